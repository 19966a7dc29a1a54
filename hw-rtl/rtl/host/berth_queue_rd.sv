// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads of queues for both halves of the fast path: requests of 128 to 512 bytes, in multiples of 128 and
// not over 4 KiB boundaries, become read requests of the host; what comes goes back in whole beats, at
// offsets that are multiples of a beat, those of one request in order.
module berth_queue_rd #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 128
) (
    input  logic              clk,
    input  logic              rst,
    input  logic [3:0]        log2_read,
    // Requests, transmit half in the low bits; tags below 32.
    input  logic [1:0]        qr_valid,
    output logic [1:0]        qr_ready,
    input  logic [2*64-1:0]   qr_addr,
    input  logic [2*10-1:0]   qr_len,
    input  logic [2*8-1:0]    qr_tag,
    // Beats, without back-pressure; the last one of a request, and whether the request has failed.
    output logic [1:0]        qc_valid,
    output logic [DATA_W-1:0] qc_data,
    output logic [7:0]        qc_tag,
    output logic [9:0]        qc_off,
    output logic              qc_last,
    output logic              qc_err,
    // To berth_dma_rd.
    output logic              rd_valid,
    input  logic              rd_ready,
    output logic [63:0]       rd_addr,
    output logic [9:0]        rd_len,
    output logic [8:0]        rd_tag,
    input  logic              cp_valid,
    input  logic [DATA_W-1:0] cp_data,
    input  logic [8:0]        cp_tag,
    input  logic [9:0]        cp_off,
    input  logic              cp_more,  // over 64 bytes of the beat count
    input  logic              cp_last,
    input  logic              cp_err
);
  // ---- Requests: one after the other; one that is longer than reads may be goes in parts, each of
  //      which waits for the one before --------------------------------------------------------------
  logic busy_q, wait_q, part_q, who_q;
  logic [63:0] addr_q;
  logic [9:0] left_q, base_q, most_q;  // most_q: bytes of a part; one request has parts of one size
  logic [7:0] tag_q;
  wire [9:0] len = left_q < most_q ? left_q : most_q;
  wire pick = !qr_valid[0] || (qr_valid[1] && !who_q);  // the other half's turn
  wire free = !busy_q || (rd_valid && rd_ready && len == left_q && !part_q);

  assign qr_ready = free ? {pick, !pick} : 2'd0;
  assign rd_valid = busy_q && !wait_q;
  assign rd_addr = addr_q;
  assign rd_len = len;
  assign rd_tag = {who_q, tag_q};

  // The end of a part, or of a whole request.
  wire mine = part_q && cp_tag == {who_q, tag_q};
  wire end_part = cp_valid && cp_last && mine;
  always_ff @(posedge clk) begin
    if (rd_valid && rd_ready) begin
      if (len != left_q || part_q) begin
        part_q <= 1'b1;
        wait_q <= 1'b1;
      end else busy_q <= 1'b0;
    end
    if (end_part) begin
      wait_q <= 1'b0;
      addr_q <= addr_q + 64'(len);
      left_q <= left_q - len;
      base_q <= base_q + len;
      if (len == left_q || cp_err) begin
        busy_q <= 1'b0;
        part_q <= 1'b0;
      end
    end
    if ((qr_valid & qr_ready) != 0) begin
      busy_q <= 1'b1;
      wait_q <= 1'b0;
      part_q <= 1'b0;
      who_q  <= pick;
      addr_q <= qr_addr[64*pick+:64];
      left_q <= qr_len[10*pick+:10];
      tag_q  <= qr_tag[8*pick+:8];
      base_q <= '0;
      most_q <= log2_read >= 4'd9 ? 10'd512 : 10'd1 << log2_read;
    end
    if (rst) begin
      busy_q <= 1'b0;
      wait_q <= 1'b0;
      part_q <= 1'b0;
      who_q  <= 1'b0;
    end
  end

  // ---- Completions --------------------------------------------------------------------------------------
  wire last = cp_last && (cp_err || !mine || len == left_q);
  wire [9:0] off = cp_off + (mine ? base_q : 10'd0);
  if (DATA_W <= 512) begin : whole
    // Completions are cut at multiples of 64 bytes, so of beats.
    always_ff @(posedge clk) begin
      qc_valid <= {cp_valid && cp_tag[8], cp_valid && !cp_tag[8]};
      qc_data  <= cp_data;
      qc_tag   <= cp_tag[7:0];
      qc_off   <= off;
      qc_last  <= last;
      qc_err   <= cp_err;
      if (rst) qc_valid <= '0;
    end
    wire unused = &{1'b0, cp_more};
  end else begin : halves
    // A completion may end in the middle of a beat: that half waits for the next one.
    logic [DATA_W/2-1:0] kept[64];
    wire [5:0] at = {cp_tag[8], cp_tag[4:0]};
    wire odd = off[6];
    wire keep = odd ? cp_more : !cp_more;
    wire full = odd || cp_more || cp_err;
    always_ff @(posedge clk) begin
      if (cp_valid && keep) kept[at] <= odd ? cp_data[DATA_W-1:DATA_W/2] : cp_data[DATA_W/2-1:0];
      qc_valid <= {cp_valid && full && cp_tag[8], cp_valid && full && !cp_tag[8]};
      qc_data  <= odd ? {cp_data[DATA_W/2-1:0], kept[at]} : cp_data;
      qc_tag   <= cp_tag[7:0];
      qc_off   <= {off[9:7], 7'd0};
      qc_last  <= last;
      qc_err   <= cp_err;
      if (rst) qc_valid <= '0;
    end
    wire unused = &{1'b0, off[5:0]};
    // What is left over belongs to a whole beat.
    always_ff @(posedge clk) if (!rst && cp_valid && cp_last && !cp_err) assert (odd != cp_more);
  end
endmodule
