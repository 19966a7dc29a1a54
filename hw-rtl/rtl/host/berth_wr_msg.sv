// SPDX-License-Identifier: Apache-2.0 OR MIT
// Cuts one message of fixed size (event, completion, fence token) into beats for the posted write port.
module berth_wr_msg #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64,
    // Bytes of a message.
    parameter int unsigned MSG_BYTES = 64
) (
    input  logic                   clk,
    input  logic                   rst,
    // The message: stable from msg_valid to msg_ready, which comes with its last beat's acceptance.
    input  logic                   msg_valid,
    output logic                   msg_ready,
    input  logic [MSG_BYTES*8-1:0] msg_data,
    // Beats.
    output logic                   wr_valid,
    input  logic                   wr_ready,
    output logic [DATA_W-1:0]      wr_data,
    output logic                   wr_last
);
  localparam int unsigned BEATS = (MSG_BYTES * 8 + DATA_W - 1) / DATA_W;
  localparam int unsigned BW = BEATS > 1 ? $clog2(BEATS) : 1;

  logic [BW-1:0] beat_q;
  wire [BEATS*DATA_W-1:0] padded = (BEATS * DATA_W)'(msg_data);

  assign wr_valid  = msg_valid;
  assign wr_data   = padded[32'(beat_q)*DATA_W+:DATA_W];
  assign wr_last   = beat_q == BW'(BEATS - 1);
  assign msg_ready = wr_valid && wr_ready && wr_last;

  always_ff @(posedge clk) begin
    if (wr_valid && wr_ready) beat_q <= wr_last ? '0 : beat_q + 1;
    if (rst) beat_q <= '0;
  end
endmodule
