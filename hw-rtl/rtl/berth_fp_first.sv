// SPDX-License-Identifier: Apache-2.0 OR MIT
// The lowest bit that is set: its number, by halves of halves, so that it is as deep as its number has bits.
module berth_fp_first #(
    parameter int unsigned N = 128   // a power of two
) (
    input  logic [N-1:0]         bits,
    output logic                 any,
    output logic [$clog2(N)-1:0] at     // all ones when there is none
);
    localparam int unsigned NW = $clog2(N);
    logic [N-1:0]         some;
    logic [N-1:0][NW-1:0] lowest;
    always_comb begin
        some   = bits;
        lowest = '0;
        for (int unsigned k = 0; k < NW; k++)
            for (int unsigned i = 0; i < (N >> (k + 1)); i++) begin
                lowest[i] = some[2*i] ? lowest[2*i] : lowest[2*i+1] | NW'(1 << k);
                some[i]   = some[2*i] || some[2*i+1];
            end
    end
    assign any = some[0];
    assign at  = lowest[0];
endmodule
