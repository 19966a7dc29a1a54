// SPDX-License-Identifier: Apache-2.0 OR MIT
// Block RAM with one write port (byte strobes) and one read port (one cycle).
// A read of a word that is written in the same cycle gives the old content, unless OWN.

module berth_ram #(
    parameter WIDTH = 64,   // bits of a word, a multiple of 8
    parameter DEPTH = 1024, // words
    // Bytes that are read in the cycle in which they are written are not used: saves a look-up table and two flip-flops
    // per bit, with block RAM that gives anything then.
    parameter OWN   = 0
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
    if (OWN != 0) begin : own
        (* no_rw_check *) logic [WIDTH-1:0] mem [0:DEPTH-1];
        always_ff @(posedge clk) begin
            if (we) begin
                for (int i = 0; i < WIDTH/8; i++)
                    if (wstrb[i])
                        mem[waddr][8*i +: 8] <= wdata[8*i +: 8];
            end
`ifdef VERILATOR
            // In simulation such a read gives the inverse, so a wrong claim shows.
            for (int i = 0; i < WIDTH/8; i++)
                if (re)
                    rdata[8*i +: 8] <= we && wstrb[i] && waddr == raddr ? ~mem[raddr][8*i +: 8] : mem[raddr][8*i +: 8];
`else
            if (re)
                rdata <= mem[raddr];
`endif
        end
    end else begin : copy
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
    end
endmodule
