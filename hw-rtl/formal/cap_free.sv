// SPDX-License-Identifier: Apache-2.0 OR MIT
// A maximum bandwidth that lets any credits go at any time, in place of berth_fp_cap: what BUILDER does with them is right
// whatever it is.
module berth_fp_cap #(
    parameter QPS = 64,
    parameter QW = $clog2(QPS)
) (
    input  logic                  clk, rst, set_valid, voids, gate_we, given_we, size_ok, pass_ready, pass_done, pass_good,
    input  logic [31:0]           now, size,
    input  logic [23:0]           set_rate,
    input  logic [30:0]           set_burst,
    input  logic [QW-1:0]         gate_q, given_q,
    input  berth_card_pkg::gate_t gate,
    input  berth_card_pkg::given_t given,
    output logic                  size_re, pass_valid,
    output logic [QW-1:0]         size_q, pass_q,
    output logic [6:0]            size_at,
    output berth_card_pkg::pass_t pass,
    output logic                  due_we, due_on,
    output logic [QW-1:0]         due_q,
    output logic [31:0]           due_at
);
    (* anyseq *) logic asks, lets;
    (* anyseq *) logic [QW-1:0] of_q, by_q;
    (* anyseq *) logic [6:0] at;
    (* anyseq *) logic [15:0] which;
    assign size_re    = asks;
    assign size_q     = of_q;
    assign size_at    = at;
    assign pass_valid = lets;
    assign pass_q     = by_q;
    assign pass       = which;
    (* anyseq *) logic [QW+33:0] due;
    assign {due_we, due_on, due_q, due_at} = due;
endmodule
