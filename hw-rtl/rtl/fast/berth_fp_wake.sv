// SPDX-License-Identifier: Apache-2.0 OR MIT
// Finds the next time at which the fast path acts by itself. Its two timers (time-outs of the sending half, repeats of
// lists) are in rows, which are looked at in turn. Once all rows have been looked at and nothing happened meanwhile, the
// earliest time is known, and nothing will happen before it. For simulation, which skips such time.
module berth_fp_wake #(
    parameter int unsigned QPS = 64
) (
    input  logic        clk,
    input  logic        rst,
    input  logic [31:0] now,        // units of 64 clocks
    input  logic        active,     // something happens
    output logic        hurry,      // look at a row in each free clock
    input  logic [1:0]  swept,      // a row has been looked at ...
    input  logic [1:0]  swept_on,   // ... whose timer runs ...
    input  logic [63:0] swept_at,   // ... and ends then
    output logic        rests,      // nothing happens before ...
    output logic        due,        // ... there is such a time
    output logic [31:0] due_at
);
    localparam int unsigned CW = $clog2(QPS);
    localparam int unsigned REST = 256;         // clocks after which nothing is on its way inside either
    localparam int unsigned SETTLE = 32;        // clocks after which looking begins

    logic [8:0]  rest_q;
    logic [CW:0] seen_q [0:1];
    logic [1:0]  all;
    logic        here, passed, first_on;
    logic [1:0]  on;
    logic [31:0] first_at;
    // of two that come in the same clock the earlier one
    assign on       = swept & swept_on & ~all;
    assign first_on = on != 2'd0;
    assign first_at = on == 2'd3 ? (32'(swept_at[63:32] - swept_at[31:0]) >= 32'h8000_0000 ? swept_at[63:32] : swept_at[31:0])
                                 : on[1] ? swept_at[63:32] : swept_at[31:0];
    assign all    = {seen_q[1][CW], seen_q[0][CW]};
    assign hurry  = !rests && rest_q >= 9'(SETTLE);
    // a time has come: its effects are found by looking at the rows again
    assign here   = rests && due && !(32'(due_at - now - 32'd1) < 32'h8000_0000);
    assign passed = rest_q == 9'(REST) && all == 2'b11;

    always_ff @(posedge clk) begin
        if (rest_q != 9'(REST)) rest_q <= rest_q + 9'd1;
        for (int u = 0; u < 2; u++)
            if (hurry && swept[u] && !all[u]) seen_q[u] <= seen_q[u] + 1'b1;
        if (hurry && first_on && (!due || 32'(first_at - due_at) >= 32'h8000_0000)) begin
            due    <= 1'b1;
            due_at <= first_at;
        end
        if (passed) rests <= 1'b1;
        if (rst || active || here) begin
            rest_q    <= '0;
            seen_q[0] <= '0;
            seen_q[1] <= '0;
            due       <= 1'b0;
            rests     <= 1'b0;
        end
    end
endmodule
