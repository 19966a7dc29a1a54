// SPDX-License-Identifier: Apache-2.0 OR MIT
// Events for firmware. For each source and QP the last event is kept until firmware takes it. So no source waits, however
// slow firmware is, and an event that a peer causes again and again takes one place.
//
// QPs take turns, and the sources of each.
module berth_fp_events #(
    parameter int unsigned QPS     = 64,   // a power of two
    parameter int unsigned SOURCES = 2,
    parameter int unsigned W       = 16    // bits of an event
) (
    input  logic                           clk,
    input  logic                           rst,
    input  logic [SOURCES-1:0]             put,
    input  logic [SOURCES*$clog2(QPS)-1:0] put_q,
    input  logic [SOURCES*W-1:0]           put_word,
    // A QP begins anew: its pending events are dropped, also the one that is shown.
    input  logic                           clear,
    input  logic [$clog2(QPS)-1:0]         clear_q,
    output logic                           valid,
    input  logic                           ready,
    output logic [SOURCES-1:0]             source,   // one bit
    output logic [$clog2(QPS)-1:0]         q,
    output logic [W-1:0]                   word,
    output logic                           busy      // there is something to be told
);
  localparam int unsigned QW = $clog2(QPS);

  // One QP per clock is looked at; the sources from `from_q` on come first, another one each time round.
  logic [QW-1:0] at_q;
  logic [SOURCES-1:0] from_q, here, first, take, some;
  logic [SOURCES*W-1:0] words;
  assign first = (here & from_q) != '0 ? here & from_q : here;
  assign take  = valid ? '0 : first & (~first + SOURCES'(1));
  for (genvar s = 0; s < SOURCES; s++) begin : g_source
    logic [QPS-1:0] bits_q, set, gone;
    assign set     = put[s] ? QPS'(1) << put_q[QW*s+:QW] : '0;
    assign gone    = (clear ? QPS'(1) << clear_q : '0) | (take[s] ? QPS'(1) << at_q : '0);
    assign here[s] = bits_q[at_q];
    assign some[s] = bits_q != '0;
    always_ff @(posedge clk) bits_q <= rst ? '0 : (bits_q & ~gone) | set;
    berth_fp_mem #(.WIDTH(W), .DEPTH(QPS)) m_word (.clk(clk), .we(put[s]), .waddr(put_q[QW*s+:QW]),
        .wdata(put_word[W*s+:W]), .re(!valid), .raddr(at_q), .rdata(words[W*s+:W]));
  end

  always_comb begin
    word = '0;
    for (int unsigned s = 0; s < SOURCES; s++) word = word | (words[W*s+:W] & {W{source[s]}});
  end
  assign busy = valid || some != '0;
  always_ff @(posedge clk) begin
    if (!valid) begin
      valid  <= take != '0;
      source <= take;
      q      <= at_q;
      at_q   <= at_q + QW'(1);
      if (at_q == '1) from_q <= from_q << 1 == '0 ? '1 : from_q << 1;
    end else if (ready) valid <= 1'b0;
    if (clear && clear_q == (valid ? q : at_q)) valid <= 1'b0;
    if (rst) begin
      valid  <= 1'b0;
      at_q   <= '0;
      from_q <= '1;
    end
  end
endmodule
