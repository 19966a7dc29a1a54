// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ready bits of an engine, one for each QP, and whose turn it is: round robin, by groups of 32.
//
// A bit is cleared when its QP is shown; one that is set at that time or later is shown again.
module berth_fp_ready #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    // Sources that set bits.
    parameter int unsigned SETS = 1,
    parameter int unsigned QW = $clog2(QPS),
    // QPs of a group, a power of two up to QPS.
    parameter int unsigned GROUP = QPS > 32 ? 32 : QPS
) (
    input  logic               clk,
    input  logic               rst,
    input  logic [SETS-1:0]    set,
    input  logic [SETS*QW-1:0] set_q,
    output logic               valid,
    output logic [QW-1:0]      q,
    input  logic               pop,    // with valid: the QP is taken
    output logic               busy    // some bit is set
);
  localparam int unsigned GROUPS = QPS / GROUP;
  localparam int unsigned GW = $clog2(GROUP);

  logic [QPS-1:0] bits_q;
  logic [QW-1:0] q_q, next;
  logic valid_q;
  logic [GROUPS-1:0] any;
  logic [GROUP-1:0] here, later, pick;
  logic [QW-1:0] at, group;

  // After the last QP in its group; else the lowest of the next group with a bit, which may be the same again.
  always_comb begin
    at   = q_q >> GW;
    here = '0;
    for (int unsigned g = 0; g < GROUPS; g++) begin
      any[g] = |bits_q[g*GROUP+:GROUP];
      if (at == QW'(g)) here = bits_q[g*GROUP+:GROUP];
    end
    later = here & ~((GROUP'(2) << q_q[GW-1:0]) - GROUP'(1));
    group = at;
    if (later == '0)
      for (int unsigned i = GROUPS; i > 0; i--)
        for (int unsigned g = 0; g < GROUPS; g++)
          if (at == QW'((g + GROUPS - i % GROUPS) % GROUPS) && any[g]) group = QW'(g);
    pick = later;
    if (later == '0) begin
      pick = '0;
      for (int unsigned g = 0; g < GROUPS; g++) if (group == QW'(g)) pick = bits_q[g*GROUP+:GROUP];
    end
    next = group << GW;
    for (int unsigned i = GROUP; i > 0; i--) if (pick[i-1]) next = (group << GW) | QW'(i - 1);
  end

  assign valid = valid_q;
  assign q     = q_q;
  assign busy  = valid_q || bits_q != '0;

  always_ff @(posedge clk) begin
    if (!valid_q || pop) begin
      valid_q <= any != '0;
      if (any != '0) begin
        q_q <= next;
        bits_q[next] <= 1'b0;
      end
    end
    for (int unsigned i = 0; i < SETS; i++) if (set[i]) bits_q[set_q[i*QW+:QW]] <= 1'b1;
    if (rst) begin
      valid_q <= 1'b0;
      bits_q  <= '0;
      q_q     <= '0;
    end
  end
endmodule
