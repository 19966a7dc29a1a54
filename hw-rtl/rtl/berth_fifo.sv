// SPDX-License-Identifier: Apache-2.0 OR MIT
// First-word-fall-through FIFO for every engine; its RAM has a synchronous read port.
module berth_fifo #(
    // Bits of an entry.
    parameter int unsigned WIDTH = 32,
    // Entries, a power of two, at least 2 (one more fits into the output register).
    parameter int unsigned DEPTH = 16
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             wr_valid,
    output logic             wr_ready,
    input  logic [WIDTH-1:0] wr_data,
    output logic             rd_valid,
    input  logic             rd_ready,
    output logic [WIDTH-1:0] rd_data
);
  localparam int unsigned AW = $clog2(DEPTH);
  initial if (DEPTH < 2 || DEPTH != (1 << AW)) $fatal(1, "berth_fifo: DEPTH must be a power of two");

  logic [WIDTH-1:0] mem[DEPTH];
  logic [AW:0] wptr_q, rptr_q;
  logic [WIDTH-1:0] out_q;
  logic out_valid_q;

  wire full = wptr_q == (rptr_q ^ {1'b1, {AW{1'b0}}});
  wire fetch = wptr_q != rptr_q && (!out_valid_q || rd_ready);
  assign wr_ready = !full;
  assign rd_valid = out_valid_q;
  assign rd_data  = out_q;

  always_ff @(posedge clk) begin
    if (wr_valid && wr_ready) mem[wptr_q[AW-1:0]] <= wr_data;
    if (fetch) out_q <= mem[rptr_q[AW-1:0]];
  end

  always_ff @(posedge clk) begin
    if (wr_valid && wr_ready) wptr_q <= wptr_q + 1;
    if (fetch) begin
      rptr_q <= rptr_q + 1;
      out_valid_q <= 1'b1;
    end else if (rd_ready) out_valid_q <= 1'b0;
    if (rst) begin
      wptr_q <= '0;
      rptr_q <= '0;
      out_valid_q <= 1'b0;
    end
  end

  // The RAM never holds more than DEPTH entries.
  always_ff @(posedge clk) if (!rst) assert (wptr_q - rptr_q <= (AW + 1)'(DEPTH));
endmodule
