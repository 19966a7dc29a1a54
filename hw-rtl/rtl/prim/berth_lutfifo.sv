// SPDX-License-Identifier: Apache-2.0 OR MIT
// Small FIFO with asynchronous read (distributed RAM): a word written in one cycle can
// be read in the next. For descriptors; berth_fifo is the one for deep or wide queues.

module berth_lutfifo #(
    parameter WIDTH = 32,  // bits of a word
    parameter DEPTH = 16   // words, a power of two, at least 2
) (
    input  logic             clk,
    input  logic             rst,

    // write side; a word written while wr_ready is low is lost
    input  logic             wr_valid,
    output logic             wr_ready,
    input  logic [WIDTH-1:0] wr_data,

    // read side: rd_data is meaningful while rd_valid is high
    output logic             rd_valid,
    input  logic             rd_ready,
    output logic [WIDTH-1:0] rd_data
);
    localparam AW = $clog2(DEPTH);

    logic [WIDTH-1:0] mem [0:DEPTH-1];
    logic [AW:0]      wptr_q;
    logic [AW:0]      rptr_q;

    assign wr_ready = wptr_q - rptr_q != DEPTH[AW:0];
    assign rd_valid = wptr_q != rptr_q;
    assign rd_data  = mem[rptr_q[AW-1:0]];

    always_ff @(posedge clk) begin
        if (wr_valid && wr_ready) begin
            mem[wptr_q[AW-1:0]] <= wr_data;
            wptr_q <= wptr_q + 1'b1;
        end
        if (rd_valid && rd_ready)
            rptr_q <= rptr_q + 1'b1;
        if (rst) begin
            wptr_q <= '0;
            rptr_q <= '0;
        end
    end
endmodule
