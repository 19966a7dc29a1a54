// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ranges of scatter lists, 256 per QP: one memory, written by the parser of receives and read by placement, which
// never waits, and by grants and completions, which take turns in the clocks that it leaves.
//
// A reader's data is there from the clock after its read on, until its next one.
module berth_fp_sges #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 sge_we,
    input  logic [QW+7:0]        sge_at,
    input  berth_card_pkg::range_t sge,
    input  logic                 place_re,
    input  logic [QW+7:0]        place_at,
    output berth_card_pkg::range_t place_sge,
    input  logic                 grant_re,
    output logic                 grant_ok,
    input  logic [QW+7:0]        grant_at,
    output berth_card_pkg::range_t grant_sge,
    input  logic                 done_re,
    output logic                 done_ok,
    input  logic [QW+7:0]        done_at,
    output berth_card_pkg::range_t done_sge
);
  logic last_done_q;     // of the two that take turns
  logic [2:0] fresh_q;   // whose data has come
  berth_card_pkg::range_t data, place_kept_q, grant_kept_q, done_kept_q;

  assign grant_ok = !place_re && grant_re && !(done_re && !last_done_q);
  assign done_ok  = !place_re && done_re && !(grant_re && last_done_q);
  berth_fp_mem #(
      .WIDTH($bits(sge)),
      .DEPTH(QPS * 256),
      .OWN(1'b1)   // only ranges of receives that are parsed count
  ) memory (
      .clk,
      .we(sge_we),
      .waddr(sge_at),
      .wdata(sge),
      .re(place_re || grant_ok || done_ok),
      .raddr(place_re ? place_at : grant_ok ? grant_at : done_at),
      .rdata(data)
  );
  assign place_sge = fresh_q[0] ? data : place_kept_q;
  assign grant_sge = fresh_q[1] ? data : grant_kept_q;
  assign done_sge  = fresh_q[2] ? data : done_kept_q;
  always_ff @(posedge clk) begin
    fresh_q <= {done_ok, grant_ok, place_re};
    if (fresh_q[0]) place_kept_q <= data;
    if (fresh_q[1]) grant_kept_q <= data;
    if (fresh_q[2]) done_kept_q <= data;
    if (grant_ok || done_ok) last_done_q <= done_ok;
    if (rst) {fresh_q, last_done_q} <= '0;
  end
endmodule
