// SPDX-License-Identifier: Apache-2.0 OR MIT
// Packet RAM: transmit slots, receive slots and scratch places, shared by the DMA
// engines, the MAC engines and the core.
//
//   byte address          bank   word in the bank
//   0 ..                  T      address / BYTES                    transmit slots
//   PKT_RX_BASE ..        R      (address - PKT_RX_BASE) / BYTES    receive slots
//   PKT_SCRATCH_BASE ..   T      behind the transmit slots          scratch places
//   PKT_BYTES ..          -      writes are dropped, reads give word 0 of bank T
//
// Each bank has one write port and one read port, so that sending and receiving do not
// disturb each other. On a port the core goes first (it has at most one access in two
// cycles), then DMA, then the MAC engine.

module berth_pktram #(
    parameter DATA_W = 64  // bits of a beat of DMA and MAC
) (
    input  logic                clk,
    input  logic                rst,

    // DMA into packet RAM; addresses are aligned to a beat
    input  logic                pw_valid,
    output logic                pw_ready,
    input  logic [17:0]         pw_addr,
    input  logic [DATA_W-1:0]   pw_data,
    input  logic [DATA_W/8-1:0] pw_strb,

    // DMA out of packet RAM; data one cycle after the handshake
    input  logic                pr_valid,
    output logic                pr_ready,
    input  logic [17:0]         pr_addr,
    output logic                pr_rvalid,
    output logic [DATA_W-1:0]   pr_rdata,

    // transmit engine, bank T only; data one cycle after the handshake
    input  logic                tr_valid,
    output logic                tr_ready,
    input  logic [17:0]         tr_addr,
    output logic                tr_rvalid,
    output logic [DATA_W-1:0]   tr_rdata,

    // receive engine, bank R only
    input  logic                rw_valid,
    output logic                rw_ready,
    input  logic [17:0]         rw_addr,
    input  logic [DATA_W-1:0]   rw_data,
    input  logic [DATA_W/8-1:0] rw_strb,

    // the core: words, always taken; data of a read in the next cycle
    input  logic                cp_valid,
    input  logic                cp_we,
    input  logic [17:0]         cp_addr,
    input  logic [31:0]         cp_wdata,
    input  logic [3:0]          cp_strb,
    output logic [31:0]         cp_rdata
);
    localparam BYTES   = DATA_W / 8;
    localparam LB      = $clog2(BYTES);
    localparam WORDS   = BYTES / 4;
    localparam T_WORDS = (berth_regs_pkg::PKT_RX_BASE + berth_regs_pkg::PKT_BYTES
                          - berth_regs_pkg::PKT_SCRATCH_BASE) / BYTES;
    localparam R_WORDS = (berth_regs_pkg::PKT_SCRATCH_BASE - berth_regs_pkg::PKT_RX_BASE) / BYTES;
    localparam TW      = $clog2(T_WORDS);
    localparam RW      = $clog2(R_WORDS);

    function automatic logic in_r(input logic [17:0] addr);
        in_r = addr >= berth_regs_pkg::PKT_RX_BASE[17:0] && addr < berth_regs_pkg::PKT_SCRATCH_BASE[17:0];
    endfunction

    function automatic logic in_any(input logic [17:0] addr);
        in_any = addr < berth_regs_pkg::PKT_BYTES[17:0];
    endfunction

    // verilator lint_off UNUSEDSIGNAL
    function automatic logic [TW-1:0] t_word(input logic [17:0] addr);
        logic [17:0] a;
        a = addr < berth_regs_pkg::PKT_RX_BASE[17:0] ? addr
          : addr < berth_regs_pkg::PKT_BYTES[17:0]
            ? addr - (berth_regs_pkg::PKT_SCRATCH_BASE[17:0] - berth_regs_pkg::PKT_RX_BASE[17:0])
          : 18'd0;
        t_word = a[LB +: TW];
    endfunction

    function automatic logic [RW-1:0] r_word(input logic [17:0] addr);
        logic [17:0] a;
        a = addr - berth_regs_pkg::PKT_RX_BASE[17:0];
        r_word = a[LB +: RW];
    endfunction
    // verilator lint_on UNUSEDSIGNAL

    // ---- write ports -----------------------------------------------------------------
    logic                cpw;         // the core writes
    logic                cpw_r;       // ... to bank R
    logic                pw_r;
    logic [DATA_W-1:0]   cp_wide;
    logic [BYTES-1:0]    cp_wstrb;

    assign cpw      = cp_valid && cp_we;
    assign cpw_r    = in_r(cp_addr);
    assign pw_r     = in_r(pw_addr);
    assign cp_wide  = {WORDS{cp_wdata}};
    assign cp_wstrb = {{(BYTES-4){1'b0}}, cp_strb} << {cp_addr[LB-1:2], 2'b00};

    assign pw_ready = !(cpw && cpw_r == pw_r);
    assign rw_ready = !(cpw && cpw_r) && !(pw_valid && pw_r);

    logic                t_we,    r_we;
    logic [TW-1:0]       t_waddr;
    logic [RW-1:0]       r_waddr;
    logic [DATA_W-1:0]   t_wdata, r_wdata;
    logic [BYTES-1:0]    t_wstrb, r_wstrb;

    assign t_we    = cpw && !cpw_r ? in_any(cp_addr) : pw_valid && !pw_r && in_any(pw_addr);
    assign t_waddr = cpw && !cpw_r ? t_word(cp_addr) : t_word(pw_addr);
    assign t_wdata = cpw && !cpw_r ? cp_wide         : pw_data;
    assign t_wstrb = cpw && !cpw_r ? cp_wstrb        : pw_strb;

    assign r_we    = (cpw && cpw_r) || (pw_valid && pw_r) || (rw_valid && in_r(rw_addr));
    assign r_waddr = cpw && cpw_r ? r_word(cp_addr) : pw_valid && pw_r ? r_word(pw_addr) : r_word(rw_addr);
    assign r_wdata = cpw && cpw_r ? cp_wide         : pw_valid && pw_r ? pw_data         : rw_data;
    assign r_wstrb = cpw && cpw_r ? cp_wstrb        : pw_valid && pw_r ? pw_strb         : rw_strb;

    // ---- read ports ------------------------------------------------------------------
    logic cpr, cpr_r, pr_r;
    assign cpr      = cp_valid && !cp_we;
    assign cpr_r    = cpw_r;
    assign pr_r     = in_r(pr_addr);
    assign pr_ready = !(cpr && cpr_r == pr_r);
    assign tr_ready = !(cpr && !cpr_r) && !(pr_valid && !pr_r);

    logic                t_re,    r_re;
    logic [TW-1:0]       t_raddr;
    logic [RW-1:0]       r_raddr;
    logic [DATA_W-1:0]   t_rdata, r_rdata;

    assign t_re    = (cpr && !cpr_r) || (pr_valid && !pr_r) || tr_valid;
    assign t_raddr = cpr && !cpr_r ? t_word(cp_addr) : pr_valid && !pr_r ? t_word(pr_addr) : t_word(tr_addr);
    assign r_re    = (cpr && cpr_r) || (pr_valid && pr_r);
    assign r_raddr = cpr && cpr_r ? r_word(cp_addr) : r_word(pr_addr);

    logic          pr_rvalid_q, tr_rvalid_q;
    logic          pr_r_q, cpr_r_q;
    logic [LB-1:2] cp_lane_q;

    always_ff @(posedge clk) begin
        pr_rvalid_q <= pr_valid && pr_ready;
        tr_rvalid_q <= tr_valid && tr_ready;
        pr_r_q      <= pr_r;
        cpr_r_q     <= cpr_r;
        cp_lane_q   <= cp_addr[LB-1:2];
        if (rst) begin
            pr_rvalid_q <= 1'b0;
            tr_rvalid_q <= 1'b0;
        end
    end

    assign pr_rvalid = pr_rvalid_q;
    assign pr_rdata  = pr_r_q ? r_rdata : t_rdata;
    assign tr_rvalid = tr_rvalid_q;
    assign tr_rdata  = t_rdata;
    assign cp_rdata  = cpr_r_q ? r_rdata[{cp_lane_q, 5'd0} +: 32] : t_rdata[{cp_lane_q, 5'd0} +: 32];

    berth_ram #(.WIDTH(DATA_W), .DEPTH(T_WORDS)) bank_t (
        .clk(clk),
        .we(t_we), .waddr(t_waddr), .wdata(t_wdata), .wstrb(t_wstrb),
        .re(t_re), .raddr(t_raddr), .rdata(t_rdata)
    );

    berth_ram #(.WIDTH(DATA_W), .DEPTH(R_WORDS)) bank_r (
        .clk(clk),
        .we(r_we), .waddr(r_waddr), .wdata(r_wdata), .wstrb(r_wstrb),
        .re(r_re), .raddr(r_raddr), .rdata(r_rdata)
    );
endmodule
