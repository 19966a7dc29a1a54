// SPDX-License-Identifier: Apache-2.0 OR MIT
// The number of the lowest or highest bit that is set, by a binary tree that is log2(N) deep. After stage k, only bits
// whose number is a multiple of 2^(k+1) are meaningful: they stand for the 2^(k+1) bits from there on. Each operation
// covers all bits nevertheless, because that simulates fast; synthesis drops the unused ones.
module berth_fp_first #(
    parameter int unsigned N       = 128,  // a power of two
    parameter bit          HIGHEST = 1'b0
) (
    input  logic [N-1:0]         bits,
    output logic                 any,
    output logic [$clog2(N)-1:0] at     // when there is none: all ones, of the highest 0
);
    localparam int unsigned NW = $clog2(N);
    logic [N-1:0]         some, upper, lower;  // one is set here; in the upper half; the lower half has it
    logic [NW-1:0][N-1:0] number;              // bit j of its number
    always_comb begin
        some   = bits;
        number = '0;
        for (int unsigned k = 0; k < NW; k++) begin
            upper = some >> (1 << k);
            lower = HIGHEST ? ~upper : some;
            for (int unsigned j = 0; j < k; j++)
                number[j] = (number[j] & lower) | ((number[j] >> (1 << k)) & ~lower);
            number[k] = ~lower;
            some      = some | upper;
        end
    end
    assign any = some[0];
    for (genvar j = 0; j < NW; j++) begin : digit
        assign at[j] = number[j][0];
    end
endmodule
