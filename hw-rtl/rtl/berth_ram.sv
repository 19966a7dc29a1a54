// SPDX-License-Identifier: Apache-2.0 OR MIT
// Block RAM with one write port (byte strobes) and one read port (one cycle).
// A read of a word that is written in the same cycle gives the old content.

module berth_ram #(
    parameter WIDTH = 64,   // bits of a word, a multiple of 8
    parameter DEPTH = 1024  // words
) (
    input  logic                     clk,

    // write port
    input  logic                     we,
    input  logic [$clog2(DEPTH)-1:0] waddr,
    input  logic [WIDTH-1:0]         wdata,
    input  logic [WIDTH/8-1:0]       wstrb,

    // read port: rdata is the word at raddr of the last cycle with re
    input  logic                     re,
    input  logic [$clog2(DEPTH)-1:0] raddr,
    output logic [WIDTH-1:0]         rdata
);
    logic [WIDTH-1:0] mem [0:DEPTH-1];

    always_ff @(posedge clk) begin
        if (we) begin
            for (int i = 0; i < WIDTH/8; i++)
                if (wstrb[i])
                    mem[waddr][8*i +: 8] <= wdata[8*i +: 8];
        end
        if (re)
            rdata <= mem[raddr];
    end
endmodule
