// SPDX-License-Identifier: Apache-2.0 OR MIT
// How a sender uses its credits: `credit::policy::Meter` in hardware (CR-6 to CR-9), with a row per QP.
//
// It notes each landing. When the proof of a list comes it writes a report of the credits before it, and begins anew. A
// report that firmware has not read is replaced by the next one. Times are in units of 64 clocks; counts and times that are
// too large for their fields are the largest that fit.
//
// What comes of one QP lies at least two clocks apart.
module berth_fp_meter #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic                   clk,
    input  logic [31:0]            now,
    // What happens to credits.
    input  logic                   lap_valid,
    input  logic [QW-1:0]          lap_q,
    input  berth_card_pkg::lap_t   lap,
    // A list has been told for the first time, and the bytes of its credits but the first one.
    input  logic                   told_valid,
    input  logic [QW-1:0]          told_q,
    input  logic [31:0]            told_rest,
    // A report that firmware wants is there.
    output logic                   use_valid,
    output logic [QW-1:0]          use_q,
    // The last report of a QP, two clocks later.
    input  logic [QW-1:0]          ask_q,
    output berth_card_pkg::use_t   use_told
);
  typedef struct packed {
    logic        has_last;   // the sender had credits after the last landing, which came ...
    logic [31:0] last_at;    // ... then
    logic        waits;      // a list went to a sender without credits, at ...
    logic [31:0] sent_at;    // ... this time
    logic [7:0]  left;       // credits that the sender had when the last list went
    logic [7:0]  gaps;       // times since the last report: how many, ...
    logic [23:0] time_sum;   // ... their sum, ...
    logic [14:0] longest;    // ... and the longest
    logic        dry;        // it ran out of credits, and had more to send
    logic        said;       // it has said how many bytes it has to send ...
    logic [31:0] remaining;  // ... these
  } row_t;

  logic lap_valid_q;
  logic [QW-1:0] q_q;
  berth_card_pkg::lap_t lap_q1;
  logic [31:0] now_q, rest;
  row_t row, r;
  berth_fp_mem #(
      .WIDTH($bits(r)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_rows (
      .clk,
      .we(lap_valid_q),
      .waddr(q_q),
      .wdata(r),
      .re(lap_valid),
      .raddr(lap_q),
      .rdata(row)
  );
  // Bytes of the last list's credits but the first one: those that are out when that one is used.
  berth_fp_mem #(
      .WIDTH(32),
      .DEPTH(QPS)
  ) m_rest (
      .clk,
      .we(told_valid),
      .waddr(told_q),
      .wdata(told_rest),
      .re(lap_valid),
      .raddr(lap_q),
      .rdata(rest)
  );

  // ---- what a landing or a list changes ------------------------------------------------------------
  logic [31:0] gap, lead;
  logic [24:0] sum;
  logic [14:0] short_gap;
  logic counts, report;
  berth_row_pkg::recv_gaps_t gaps;
  berth_row_pkg::recv_times_t times;
  berth_row_pkg::recv_use_t used;
  assign gap       = now_q - row.last_at;
  assign lead      = now_q - row.sent_at;
  assign sum       = 25'(row.time_sum) + 25'(gap[23:0]);
  assign short_gap = gap > 32'h7fff ? '1 : gap[14:0];
  assign counts    = lap_q1.begins && row.has_last && !row.waits;
  assign report    = lap_valid_q && lap_q1.begins && lap_q1.proof;
  always_comb begin
    r = row;
    if (counts) begin
      if (row.gaps != '1) r.gaps = row.gaps + 8'd1;
      r.time_sum = gap[31:24] != '0 || sum[24] ? '1 : sum[23:0];
      if (short_gap > row.longest) r.longest = short_gap;
    end
    if (lap_q1.said) {r.said, r.remaining} = {1'b1, lap_q1.remaining};
    if (lap_q1.begins) begin
      r.waits    = 1'b0;
      r.has_last = lap_q1.out != '0;
      r.last_at  = now_q;
    end
    if (lap_q1.sent) begin
      r.left    = lap_q1.out;
      r.waits   = lap_q1.out == '0;
      r.sent_at = now_q;
    end
    gaps.count       = r.gaps;
    gaps.sum         = r.time_sum;
    times.led        = row.waits;
    times.longest    = r.longest;
    times.lead       = lead > 32'hffff ? '1 : lead[15:0];
    used.zero_31_24  = '0;
    used.left        = row.left;
    used.outstanding = lap_q1.out;
    used.zero_7_3    = '0;
    used.covered     = r.said && r.remaining <= rest;
    used.waited      = row.said && row.remaining != '0;
    used.dry         = row.dry;
    if (lap_q1.begins) begin
      if (lap_q1.proof) {r.gaps, r.time_sum, r.longest, r.dry} = '0;
      if (lap_q1.out == '0 && !(r.said && r.remaining == '0)) r.dry = 1'b1;
    end
    if (lap_q1.voids) begin
      r           = '0;
      r.said      = row.said && !lap_q1.starts;
      r.remaining = row.remaining;
    end
  end

  // ---- reports ---------------------------------------------------------------------------------------
  berth_fp_mem #(
      .WIDTH($bits(use_told)),
      .DEPTH(QPS)
  ) m_reports (
      .clk,
      .we(report),
      .waddr(q_q),
      .wdata({gaps, times, used}),
      .re(1'b1),
      .raddr(ask_q),
      .rdata(use_told)
  );
  always_ff @(posedge clk) begin
    lap_valid_q <= lap_valid;
    q_q         <= lap_q;
    lap_q1      <= lap;
    now_q       <= now;
    use_valid   <= report && lap_q1.told;
    use_q       <= q_q;
  end
endmodule
