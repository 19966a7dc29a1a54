// SPDX-License-Identifier: Apache-2.0 OR MIT
// Packet RAM: transmit slots, receive slots and scratch places, shared by the DMA
// engines, the MAC engines and the core.
//
//   byte address          bank   word in the bank
//   0 ..                  T      address / BYTES                    transmit slots
//   PKT_RX_BASE ..        R      (address - PKT_RX_BASE) / BYTES    receive slots
//   PKT_SCRATCH_BASE ..   T      behind the transmit slots          scratch places
//   PKT_BYTES ..          -      writes are dropped, reads give something
//
// Each bank is two RAMs, of its even and of its odd words. So a beat of DMA at any byte address, which lies in two
// neighbouring words, is one access: alignment costs nothing. A beat of the MAC is a word or, where DMA is wider, one
// half of it. Each RAM has one write port and one read port, so that sending and receiving do not disturb each other.
// Bytes are never read while they are written, because a slot has one owner. In a bank the core goes first (it has at
// most one access in two cycles, berth_cpu_bus), then DMA, which so waits for one cycle at most, then the MAC engine.

module berth_pktram #(
    parameter DATA_W = 64,     // bits of a beat of the MAC
    parameter HOST_W = DATA_W  // bits of a beat of DMA, and of a word: as many, or twice
) (
    input  logic                  clk,
    input  logic                  rst,

    // DMA into packet RAM: lane i holds a byte of the word at pw_addr (which is aligned to
    // a beat; strobe i) or of the next word (strobe BYTES + i), not both
    input  logic                  pw_valid,
    output logic                  pw_ready,
    input  logic [17:0]           pw_addr,
    input  logic [HOST_W-1:0]     pw_data,
    input  logic [2*HOST_W/8-1:0] pw_strb,

    // DMA out of packet RAM: a beat from any byte address, two cycles after the handshake
    input  logic                  pr_valid,
    output logic                  pr_ready,
    input  logic [17:0]           pr_addr,
    output logic                  pr_rvalid,
    output logic [HOST_W-1:0]     pr_rdata,

    // transmit engine, bank T only, aligned; data one cycle after the handshake
    input  logic                  tr_valid,
    output logic                  tr_ready,
    input  logic [17:0]           tr_addr,
    output logic                  tr_rvalid,
    output logic [DATA_W-1:0]     tr_rdata,

    // receive engine, bank R only, aligned
    input  logic                  rw_valid,
    output logic                  rw_ready,
    input  logic [17:0]           rw_addr,
    input  logic [DATA_W-1:0]     rw_data,
    input  logic [DATA_W/8-1:0]   rw_strb,

    // the core: words, always taken; data of a read in the next cycle
    input  logic                  p_valid,
    input  logic                  p_we,
    input  logic [17:0]           p_addr,
    input  logic [31:0]           p_wdata,
    input  logic [3:0]            p_strb,
    output logic [31:0]           p_rdata
);
    localparam BYTES   = HOST_W / 8;
    localparam HALVES  = HOST_W / DATA_W;  // beats of the MAC in a word
    localparam LB      = $clog2(BYTES);
    localparam WORDS   = BYTES / 4;
    initial if (HALVES != 1 && HALVES != 2) $fatal(1, "berth_pktram: HOST_W must be DATA_W or twice as many");
    // words of the even RAM, and of the odd one, of each bank
    localparam T_WORDS = (berth_regs_pkg::PKT_RX_BASE + berth_regs_pkg::PKT_BYTES
                          - berth_regs_pkg::PKT_SCRATCH_BASE) / BYTES / 2;
    localparam R_WORDS = (berth_regs_pkg::PKT_SCRATCH_BASE - berth_regs_pkg::PKT_RX_BASE) / BYTES / 2;
    localparam TW      = $clog2(T_WORDS);
    localparam RW      = $clog2(R_WORDS);

    // Both banks begin at an even word, so that a word's parity is that of its address.
    initial if (berth_regs_pkg::PKT_RX_BASE % (2*BYTES) != 0 || berth_regs_pkg::PKT_SCRATCH_BASE % (2*BYTES) != 0)
        $fatal(1, "berth_pktram: banks must be aligned to two beats");

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
        t_word = a[LB + 1 +: TW];
    endfunction

    function automatic logic [RW-1:0] r_word(input logic [17:0] addr);
        logic [17:0] a;
        a = addr - berth_regs_pkg::PKT_RX_BASE[17:0];
        r_word = a[LB + 1 +: RW];
    endfunction
    // verilator lint_on UNUSEDSIGNAL

    // ---- what each client wants of the even (0) and the odd (1) RAMs ---------------------
    logic [1:0][17:0]      pw_at, pr_at;     // address of the word
    logic [1:0][BYTES-1:0] pw_s;
    logic                  pw_r, pr_r;       // some of it is in bank R ...
    logic                  pw_t, pr_t;       // ... and in bank T
    logic                  pw_odd, pr_odd;
    logic                  cpw, cpr, cp_r;   // the core writes, reads; in bank R
    logic [HOST_W-1:0]     cp_wide, rw_wide;
    logic [BYTES-1:0]      rw_wstrb;
    logic [BYTES-1:0]      cp_wstrb;

    assign pw_odd   = pw_addr[LB];
    assign pw_at[0] = {pw_addr[17:LB+1] + {{(16-LB){1'b0}}, pw_odd}, {(LB+1){1'b0}}};
    assign pw_at[1] = {pw_addr[17:LB+1], {(LB+1){1'b0}}};
    assign pw_s[0]  = pw_odd ? pw_strb[BYTES +: BYTES] : pw_strb[0 +: BYTES];
    assign pw_s[1]  = pw_odd ? pw_strb[0 +: BYTES] : pw_strb[BYTES +: BYTES];
    assign pw_r     = in_r(pw_at[0]) || in_r(pw_at[1]);
    assign pw_t     = !in_r(pw_at[0]) || !in_r(pw_at[1]);
    assign pr_odd   = pr_addr[LB];
    assign pr_at[0] = {pr_addr[17:LB+1] + {{(16-LB){1'b0}}, pr_odd}, {(LB+1){1'b0}}};
    assign pr_at[1] = {pr_addr[17:LB+1], {(LB+1){1'b0}}};
    assign pr_r     = in_r(pr_at[0]) || in_r(pr_at[1]);
    assign pr_t     = !in_r(pr_at[0]) || !in_r(pr_at[1]);
    assign cpw      = p_valid && p_we;
    assign cpr      = p_valid && !p_we;
    assign cp_r     = in_r(p_addr);
    assign cp_wide  = {WORDS{p_wdata}};
    assign rw_wide  = {HALVES{rw_data}};
    if (HALVES == 1) begin : whole
        assign rw_wstrb = rw_strb;
    end else begin : halves
        assign rw_wstrb = rw_addr[LB-1] ? {rw_strb, {(BYTES/2){1'b0}}} : {{(BYTES/2){1'b0}}, rw_strb};
    end
    assign cp_wstrb = {{(BYTES-4){1'b0}}, p_strb} << {p_addr[LB-1:2], 2'b00};

    assign pw_ready = !(cpw && (cp_r ? pw_r : pw_t));
    assign rw_ready = !(cpw && cp_r) && !(pw_valid && pw_r);
    assign pr_ready = !(cpr && (cp_r ? pr_r : pr_t));
    assign tr_ready = !(cpr && !cp_r) && !(pr_valid && pr_t);

    // ---- the RAMs --------------------------------------------------------------------------
    logic [1:0][HOST_W-1:0] t_rdata, r_rdata;

    for (genvar p = 0; p < 2; p++) begin : parity
        logic              pw_in_r, cp_here, rw_here;
        logic              t_we, r_we, t_re, r_re;
        logic [TW-1:0]     t_waddr, t_raddr;
        logic [RW-1:0]     r_waddr, r_raddr;
        logic [HOST_W-1:0] t_wdata, r_wdata;
        logic [BYTES-1:0]  t_wstrb, r_wstrb;

        assign pw_in_r = in_r(pw_at[p]);
        assign cp_here = p_addr[LB] == (p == 1);
        assign rw_here = rw_addr[LB] == (p == 1);

        assign t_we    = cpw && !cp_r ? cp_here && in_any(p_addr) : pw_valid && pw_ready && !pw_in_r && in_any(pw_at[p]);
        assign t_waddr = cpw && !cp_r ? t_word(p_addr) : t_word(pw_at[p]);
        assign t_wdata = cpw && !cp_r ? cp_wide         : pw_data;
        assign t_wstrb = cpw && !cp_r ? cp_wstrb        : pw_s[p];

        assign r_we    = cpw && cp_r ? cp_here
                       : pw_valid && pw_r ? pw_ready && pw_in_r
                       : rw_valid && rw_here && in_r(rw_addr);
        assign r_waddr = cpw && cp_r ? r_word(p_addr) : pw_valid && pw_r ? r_word(pw_at[p]) : r_word(rw_addr);
        assign r_wdata = cpw && cp_r ? cp_wide         : pw_valid && pw_r ? pw_data          : rw_wide;
        assign r_wstrb = cpw && cp_r ? cp_wstrb        : pw_valid && pw_r ? pw_s[p]          : rw_wstrb;

        assign t_re    = (cpr && !cp_r) || (pr_valid && pr_t) || tr_valid;
        assign t_raddr = cpr && !cp_r ? t_word(p_addr) : pr_valid && pr_t ? t_word(pr_at[p]) : t_word(tr_addr);
        assign r_re    = (cpr && cp_r) || (pr_valid && pr_r);
        assign r_raddr = cpr && cp_r ? r_word(p_addr) : r_word(pr_at[p]);

        berth_ram #(.WIDTH(HOST_W), .DEPTH(T_WORDS), .OWN(1'b1)) bank_t (
            .clk(clk),
            .we(t_we), .waddr(t_waddr), .wdata(t_wdata), .wstrb(t_wstrb),
            .re(t_re), .raddr(t_raddr), .rdata(t_rdata[p])
        );

        berth_ram #(.WIDTH(HOST_W), .DEPTH(R_WORDS), .OWN(1'b1)) bank_r (
            .clk(clk),
            .we(r_we), .waddr(r_waddr), .wdata(r_wdata), .wstrb(r_wstrb),
            .re(r_re), .raddr(r_raddr), .rdata(r_rdata[p])
        );
    end

    // ---- answers ---------------------------------------------------------------------------
    logic              pr_q, pr_rvalid_q, tr_rvalid_q;
    logic [1:0]        pr_r_q;          // the even, the odd word came from bank R
    logic              pr_odd_q;        // the beat begins in the odd word
    logic [LB-1:0]     pr_shift_q;      // ... at this lane
    logic [HOST_W-1:0] pr_even, pr_oddw, pr_first, pr_next, pr_rdata_q;
    logic              tr_odd_q, cp_r_q, cp_odd_q;
    logic [LB-1:2]     cp_lane_q;
    logic [HOST_W-1:0] cp_word, tr_word;

    assign pr_even  = pr_r_q[0] ? r_rdata[0] : t_rdata[0];
    assign pr_oddw  = pr_r_q[1] ? r_rdata[1] : t_rdata[1];
    assign pr_first = pr_odd_q ? pr_oddw : pr_even;
    assign pr_next  = pr_odd_q ? pr_even : pr_oddw;

    always_ff @(posedge clk) begin
        pr_q        <= pr_valid && pr_ready;
        pr_r_q      <= {in_r(pr_at[1]), in_r(pr_at[0])};
        pr_odd_q    <= pr_odd;
        pr_shift_q  <= pr_addr[LB-1:0];
        pr_rvalid_q <= pr_q;
        pr_rdata_q  <= HOST_W'({pr_next, pr_first} >> {pr_shift_q, 3'd0});
        tr_rvalid_q <= tr_valid && tr_ready;
        tr_odd_q    <= tr_addr[LB];
        cp_r_q      <= cp_r;
        cp_odd_q    <= p_addr[LB];
        cp_lane_q   <= p_addr[LB-1:2];
        if (rst) begin
            pr_q        <= 1'b0;
            pr_rvalid_q <= 1'b0;
            tr_rvalid_q <= 1'b0;
        end
    end

    assign pr_rvalid = pr_rvalid_q;
    assign pr_rdata  = pr_rdata_q;
    assign tr_rvalid = tr_rvalid_q;
    assign tr_word   = t_rdata[tr_odd_q];
    if (HALVES == 1) begin : tr_whole
        assign tr_rdata = tr_word;
    end else begin : tr_half
        logic high_q;
        always_ff @(posedge clk) high_q <= tr_addr[LB-1];
        assign tr_rdata = high_q ? tr_word[HOST_W-1:DATA_W] : tr_word[DATA_W-1:0];
    end
    assign cp_word   = cp_r_q ? r_rdata[cp_odd_q] : t_rdata[cp_odd_q];
    assign p_rdata  = cp_word[{cp_lane_q, 5'd0} +: 32];
endmodule
