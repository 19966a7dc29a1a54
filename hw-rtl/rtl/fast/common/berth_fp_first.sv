// SPDX-License-Identifier: Apache-2.0 OR MIT
// The lowest bit that is set, or the highest: its number, by halves of halves, so that it is as deep as its number has bits.
// After stage k, only bits whose number is a multiple of 2^(k+1) mean something: what 2^(k+1) bits from there hold. All bits
// are in each operation nevertheless, as that is what a simulator is quick with; those that nobody reads become no gates.
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
