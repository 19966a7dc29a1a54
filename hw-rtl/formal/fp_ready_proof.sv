// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ready bits are not lost, not invented, and come round: berth_fp_ready, watched for one QP that may be any.
module fp_ready_proof #(
    parameter QPS = 8,
    parameter GROUP = 4
) (
    input logic               clk,
    input logic               set_in,
    input logic [$clog2(QPS)-1:0] set_q_in,
    input logic [$clog2(QPS)-1:0] watch_in,
    input logic               pop_in
);
    localparam QW = $clog2(QPS);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q;

    logic [QW-1:0] w_q;     // the QP that is watched
    always_ff @(posedge clk) if (rst) w_q <= watch_in;

    logic valid, busy;
    logic [QW-1:0] q;
    berth_fp_ready #(.QPS(QPS), .GROUP(GROUP)) dut (
        .clk(clk), .rst(rst), .set(set_in), .set_q(set_q_in), .valid(valid), .q(q), .pop(pop_in), .busy(busy)
    );

    wire set   = set_in && set_q_in == w_q;
    wire shown = valid && q == w_q;
    wire taken = shown && pop_in;

    logic       want_q;     // set, and not taken since
    logic       again_q;    // set when it was shown, or was about to be: it will be shown once more
    logic       set_last_q, shown_last_q, idle_q;
    logic [4:0] others_q;   // QPs taken while it waits
    wire again = (shown && !shown_last_q ? set_last_q : again_q && shown) || set;

    always_ff @(posedge clk) begin
        want_q       <= set || (want_q && !taken) || (taken && again);
        again_q      <= again && !taken;
        set_last_q   <= set;
        shown_last_q <= shown && !pop_in;
        idle_q       <= want_q && !valid;
        others_q     <= !want_q || taken ? '0 : others_q + 5'(valid && pop_in);
        if (rst) begin
            want_q       <= 1'b0;
            again_q      <= 1'b0;
            set_last_q   <= 1'b0;
            shown_last_q <= 1'b0;
            idle_q       <= 1'b0;
            others_q     <= '0;
        end
    end

    always_ff @(posedge clk) if (!rst) begin
        // Only what was set is shown.
        assert (!shown || want_q);
        // What was set is shown: something is, at once, and it comes round.
        assert (!(idle_q && want_q && !valid));
        assert (others_q <= 5'(QPS));
    end
endmodule
