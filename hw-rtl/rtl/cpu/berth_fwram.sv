// SPDX-License-Identifier: Apache-2.0 OR MIT
// Firmware RAM: a read port for instructions, a read/write port for data and the loader.

module berth_fwram #(
    parameter BYTES = 262144  // size, a power of two
) (
    input  logic                       clk,

    // instructions: i_rdata is the word at i_addr of the last cycle with i_re
    input  logic                       i_re,
    input  logic [$clog2(BYTES)-1:2]   i_addr,
    output logic [31:0]                i_rdata,

    // data: d_rdata likewise; reads and writes do not come in the same cycle
    input  logic                       d_re,
    input  logic                       d_we,
    input  logic [$clog2(BYTES)-1:2]   d_addr,
    input  logic [31:0]                d_wdata,
    input  logic [3:0]                 d_wstrb,
    output logic [31:0]                d_rdata
);
    // Instructions are never written while they are fetched, so the ports need no collision logic.
    (* no_rw_check *)
    logic [31:0] mem [0:BYTES/4-1];

    always_ff @(posedge clk) begin
        if (i_re)
            i_rdata <= mem[i_addr];
    end

    always_ff @(posedge clk) begin
        if (d_we) begin
            for (int i = 0; i < 4; i++)
                if (d_wstrb[i])
                    mem[d_addr][8*i +: 8] <= d_wdata[8*i +: 8];
        end else if (d_re) begin
            d_rdata <= mem[d_addr];
        end
    end
endmodule
