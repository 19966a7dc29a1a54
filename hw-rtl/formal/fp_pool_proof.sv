// SPDX-License-Identifier: Apache-2.0 OR MIT
// berth_fp_pool gives each number to one owner at a time, and loses none.
module fp_pool_proof #(
    parameter N = 4
) (
    input logic                 clk,
    input logic                 rst_in,
    input logic                 take,
    input logic                 give,
    input logic [$clog2(N)-1:0] give_number
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic                 valid;
    logic [$clog2(N)-1:0] number;
    berth_fp_pool #(.N(N)) dut (.*);

    // Whom a number belongs to, as its users see it. They give back what they have.
    logic [N-1:0] owned_q;
    always_comb assume (!give || owned_q[give_number]);
    always_ff @(posedge clk) begin
        if (valid && take) owned_q[number] <= 1'b1;
        if (give) owned_q[give_number] <= 1'b0;
        if (rst) owned_q <= '0;
    end

    logic waits_q;          // a number is free, and for a clock none has been shown
    always_ff @(posedge clk) waits_q <= !rst && owned_q != '1 && !valid;
    logic [N-1:0] was_owned_q;
    always_ff @(posedge clk) was_owned_q <= owned_q;
    always_comb if (!rst) begin
        assert (!valid || !owned_q[number]);
        assert (!(waits_q && (owned_q & was_owned_q) != '1 && !valid));
    end
    // For the proof: a number is free, shown, or owned.
    (* hierconn *) wire [N-1:0] \dut.free_q ;
    always_comb if (!rst)
        for (int i = 0; i < N; i++)
            assert (2'(\dut.free_q [i]) + 2'(valid && 32'(number) == i) + 2'(owned_q[i]) == 2'd1);
endmodule
