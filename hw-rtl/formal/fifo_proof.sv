// SPDX-License-Identifier: Apache-2.0 OR MIT
// What goes into a FIFO comes out, once, in order, unchanged: berth_fifo and berth_lutfifo
// against a shift register.
module fifo_proof #(
    parameter LUT   = 0,  // 1: berth_lutfifo
    parameter PASS  = 0,  // of berth_fifo
    parameter DEPTH = 2,
    parameter WIDTH = 2
) (
    input logic             clk,
    input logic             wr_valid,
    input logic [WIDTH-1:0] wr_data,
    input logic             rd_ready,
    input logic             rst_in
);
    // Reset in the first cycle, and whenever it pleases.
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic             wr_ready, rd_valid;
    logic [WIDTH-1:0] rd_data;

    if (LUT != 0) begin : lut
        berth_lutfifo #(.WIDTH(WIDTH), .DEPTH(DEPTH)) dut (.*);
    end else begin : ram
        berth_fifo #(.WIDTH(WIDTH), .DEPTH(DEPTH), .PASS(PASS)) dut (.*);
    end

    // The reference holds DEPTH entries, and one more for berth_fifo's output register.
    localparam N = DEPTH + 1;
    logic [WIDTH*N-1:0] ref_q;
    logic [3:0]         count_q;
    wire put = wr_valid && wr_ready;
    wire get = rd_valid && rd_ready;

    always_ff @(posedge clk) begin
        if (get) ref_q <= ref_q >> WIDTH;
        if (put) ref_q[WIDTH * 32'(count_q - 4'(get)) +: WIDTH] <= wr_data;
        count_q <= count_q + 4'(put) - 4'(get);
        if (rst) count_q <= '0;
    end

    logic late_q, kept_q;
    always_ff @(posedge clk) begin
        late_q <= count_q != 0 && !rd_valid && !rst;
        kept_q <= rd_valid && !rd_ready && !rst;
    end
    always_ff @(posedge clk) if (!rst) begin
        assert (count_q <= 4'(N));
        // What is there is shown a clock later at the latest, and until it is taken.
        assert (rd_valid || !(kept_q || (late_q && count_q != 0)));
        assert (!rd_valid || count_q != 0);
        assert (!rd_valid || rd_data == ref_q[WIDTH-1:0]);
        // Room is there while the RAM is not full.
        assert (wr_ready || count_q >= 4'(DEPTH));
    end
endmodule
