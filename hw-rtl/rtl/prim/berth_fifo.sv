// SPDX-License-Identifier: Apache-2.0 OR MIT
// First-word-fall-through FIFO for every engine; its RAM has a synchronous read port. An entry is shown two cycles after
// it was written; with PASS one, when it finds the FIFO empty.
module berth_fifo #(
    // Bits of an entry.
    parameter int unsigned WIDTH = 32,
    // Entries, a power of two, at least 2 (one more fits into the output register).
    parameter int unsigned DEPTH = 16,
    // 1: an entry that finds all empty passes the RAM by.
    parameter int unsigned PASS = 0
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

  wire pass = PASS != 0 && wr_valid && wptr_q == rptr_q && (!out_valid_q || rd_ready);
  if (PASS != 0) begin : by
    logic passed_q;
    logic [WIDTH-1:0] data_q;
    always_ff @(posedge clk) begin
      if (pass) data_q <= wr_data;
      if (pass || fetch) passed_q <= pass;
    end
    assign rd_data = passed_q ? data_q : out_q;
  end else begin : through
    assign rd_data = out_q;
  end

  always_ff @(posedge clk) begin
    if (wr_valid && wr_ready) mem[wptr_q[AW-1:0]] <= wr_data;
    if (fetch) out_q <= mem[rptr_q[AW-1:0]];
  end

  always_ff @(posedge clk) begin
    if (wr_valid && wr_ready && !pass) wptr_q <= wptr_q + 1;
    if (fetch) rptr_q <= rptr_q + 1;
    if (fetch || pass) out_valid_q <= 1'b1;
    else if (rd_ready) out_valid_q <= 1'b0;
    if (rst) begin
      wptr_q <= '0;
      rptr_q <= '0;
      out_valid_q <= 1'b0;
    end
  end

  // The RAM never holds more than DEPTH entries.
  always_ff @(posedge clk) if (!rst) assert (wptr_q - rptr_q <= (AW + 1)'(DEPTH));
endmodule
