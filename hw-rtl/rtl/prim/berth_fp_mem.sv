// SPDX-License-Identifier: Apache-2.0 OR MIT
// Row memory of the fast path: one write port, one read port (one cycle). A read of a row that is
// written in the same cycle gives the old content. An engine's row that others read too is kept
// once per reader: all copies share the write port.
module berth_fp_mem #(
    parameter int unsigned WIDTH = 32,
    parameter int unsigned DEPTH = 64,
    // Claims that data read in the cycle in which it is written is not used: it is the engine's own row, or an entry
    // that its reader does not know of yet. Saves a look-up table and two flip-flops per bit with block RAM whose
    // output is undefined then.
    parameter bit          OWN   = 1'b0
) (
    input  logic                     clk,
    input  logic                     we,
    input  logic [$clog2(DEPTH)-1:0] waddr,
    input  logic [WIDTH-1:0]         wdata,
    input  logic                     re,
    input  logic [$clog2(DEPTH)-1:0] raddr,
    output logic [WIDTH-1:0]         rdata     // keeps its value while `re` is low
);
    if (OWN) begin : own
        (* no_rw_check *) logic [WIDTH-1:0] mem [0:DEPTH-1];
        always_ff @(posedge clk) begin
            if (we) mem[waddr] <= wdata;
`ifdef VERILATOR
            // In simulation such a read gives the inverse, so a wrong claim shows.
            if (re) rdata <= we && waddr == raddr ? ~mem[raddr] : mem[raddr];
`else
            if (re) rdata <= mem[raddr];
`endif
        end
    end else begin : copy
        logic [WIDTH-1:0] mem [0:DEPTH-1];
        always_ff @(posedge clk) begin
            if (we) mem[waddr] <= wdata;
            if (re) rdata <= mem[raddr];
        end
    end
endmodule
