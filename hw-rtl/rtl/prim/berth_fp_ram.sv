// SPDX-License-Identifier: Apache-2.0 OR MIT
// The fast path's transmit RAM: payload comes from DMA at any byte address, headers from the frame
// builder, frames go to the MAC. As in berth_pktram, it is two RAMs, of even and of odd words of a beat
// of DMA, and a beat of the MAC is a word or half of one. A header waits for DMA, which never stops.

module berth_fp_ram #(
    parameter DATA_W = 64,      // bits of a beat of the MAC
    parameter HOST_W = DATA_W,  // bits of a beat of DMA: as many, or twice
    // bytes: all places of berth_fp_tx_places
    parameter SIZE   = 8*512 + berth_regs_pkg::FAST_BIG_FRAMES*4608 + berth_regs_pkg::FAST_SMALL_FRAMES*1280
) (
    input  logic                  clk,
    input  logic                  rst,

    // DMA: lane i holds a byte of the word at pw_addr (strobe i) or of the next one (strobe BYTES + i)
    input  logic                  pw_valid,
    output logic                  pw_ready,
    input  logic [17:0]           pw_addr,
    input  logic [HOST_W-1:0]     pw_data,
    input  logic [2*HOST_W/8-1:0] pw_strb,

    // headers, aligned to a word
    input  logic                  hw_valid,
    output logic                  hw_ready,
    input  logic [17:0]           hw_addr,
    input  logic [HOST_W-1:0]     hw_data,
    input  logic [HOST_W/8-1:0]   hw_strb,

    // MAC, aligned; data one cycle after the handshake
    input  logic                  tr_valid,
    output logic                  tr_ready,
    input  logic [17:0]           tr_addr,
    output logic                  tr_rvalid,
    output logic [DATA_W-1:0]     tr_rdata
);
    localparam BYTES  = HOST_W / 8;
    localparam LB     = $clog2(BYTES);
    localparam HALVES = HOST_W / DATA_W;
    localparam WORDS  = SIZE / BYTES / 2;   // of each RAM
    localparam AW     = $clog2(WORDS);

    initial if (SIZE % (2 * BYTES) != 0 || (HALVES != 1 && HALVES != 2)) $fatal(1, "berth_fp_ram: sizes do not fit");

    logic              pw_odd;
    logic [17:LB+1]    pw_next;
    logic [1:0]        p_hit;      // DMA writes to the even, the odd RAM

    assign pw_odd   = pw_addr[LB];
    assign pw_next  = pw_addr[17:LB+1] + {{(16-LB){1'b0}}, pw_odd};
    assign pw_ready = 1'b1;
    assign tr_ready = 1'b1;
    assign hw_ready = !(pw_valid && p_hit[hw_addr[LB]]);

    logic [1:0][HOST_W-1:0] rdata;
    for (genvar p = 0; p < 2; p++) begin : parity
        logic [BYTES-1:0] p_strb;
        logic [17:LB+1]   p_word;
        assign p_strb   = (p == 1) == pw_odd ? pw_strb[0 +: BYTES] : pw_strb[BYTES +: BYTES];
        assign p_word   = p == 0 ? pw_next : pw_addr[17:LB+1];
        assign p_hit[p] = p_strb != '0;
        wire unused = &{1'b0, p_word};
        logic here;
        assign here = hw_valid && hw_ready && hw_addr[LB] == (p == 1);
        berth_ram #(.WIDTH(HOST_W), .DEPTH(WORDS), .OWN(1'b1)) ram (
            .clk(clk),
            .we(here || (pw_valid && p_hit[p])), .waddr(here ? hw_addr[LB+1 +: AW] : p_word[LB+1 +: AW]),
            .wdata(here ? hw_data : pw_data), .wstrb(here ? hw_strb : p_strb),
            .re(tr_valid), .raddr(tr_addr[LB+1 +: AW]), .rdata(rdata[p])
        );
    end

    logic              tr_odd_q;
    logic [HOST_W-1:0] tr_word;
    assign tr_word = rdata[tr_odd_q];
    if (HALVES == 1) begin : tr_whole
        assign tr_rdata = tr_word;
    end else begin : tr_half
        logic high_q;
        always_ff @(posedge clk) high_q <= tr_addr[LB-1];
        assign tr_rdata = high_q ? tr_word[HOST_W-1:DATA_W] : tr_word[DATA_W-1:0];
    end
    always_ff @(posedge clk) begin
        tr_rvalid <= tr_valid && !rst;
        tr_odd_q  <= tr_addr[LB];
    end
    wire unused = &{1'b0, pw_addr, hw_addr, tr_addr, pw_next};
endmodule
