// SPDX-License-Identifier: Apache-2.0 OR MIT
// Free numbers 0 to N-1: the lowest free one is shown until it is taken.
module berth_fp_pool #(
    parameter int unsigned N = 64
) (
    input  logic                 clk,
    input  logic                 rst,
    output logic                 valid,
    output logic [$clog2(N)-1:0] number,
    input  logic                 take,
    input  logic                 give,
    input  logic [$clog2(N)-1:0] give_number
);
    localparam int unsigned NW = $clog2(N);
    logic [N-1:0]  free_q, found;
    logic [NW-1:0] lowest;
    always_comb begin
        found  = free_q & (~free_q + N'(1));
        lowest = '0;
        for (int i = 0; i < int'(N); i++)
            if (found[i]) lowest = lowest | NW'(i);
    end
    always_ff @(posedge clk) begin
        if (!valid || take) begin
            valid  <= free_q != '0;
            number <= lowest;
            free_q <= free_q & ~found;
        end
        if (give) free_q[give_number] <= 1'b1;
        if (rst) begin
            free_q <= '1;
            valid  <= 1'b0;
        end
    end
endmodule
