// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads of queues for both halves of the fast path: requests of 128 to 512 bytes, in multiples of 128 and
// not over 4 KiB boundaries, become read requests of the host; what comes goes back in whole beats, at
// offsets that are multiples of a beat, those of one request in order.
module berth_queue_rd #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 128
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic [3:0]                   log2_read,
    // Requests, transmit half in the low bits; tags below 32.
    input  logic [1:0]                   qr_valid,
    output logic [1:0]                   qr_ready,
    input  berth_card_pkg::queue_reads_t qr,
    // Beats, without back-pressure; the last one of a request, and whether the request has failed.
    output logic [1:0]                   qc_valid,
    output logic [DATA_W-1:0]            qc_data,
    output berth_card_pkg::queue_beat_t  qc,
    // To berth_dma_rd.
    output logic                         fetch_valid,
    input  logic                         fetch_ready,
    output berth_card_pkg::fetch_t       fetch,
    input  logic                         fetched_valid,
    input  logic [DATA_W-1:0]            fetched_data,
    input  berth_card_pkg::fetched_t     fetched
);
  // ---- Requests: one after the other; one that is longer than reads may be goes in parts, each of
  //      which waits for the one before --------------------------------------------------------------
  logic busy_q, wait_q, part_q, who_q;
  logic [63:0] addr_q;
  logic [9:0] left_q, base_q, most_q;  // most_q: bytes of a part; one request has parts of one size
  logic [7:0] tag_q;
  wire [9:0] len = left_q < most_q ? left_q : most_q;
  wire pick = !qr_valid[0] || (qr_valid[1] && !who_q);  // the other half's turn
  wire free = !busy_q || (fetch_valid && fetch_ready && len == left_q && !part_q);

  assign qr_ready = free ? {pick, !pick} : 2'd0;
  assign fetch_valid = busy_q && !wait_q;
  assign fetch.addr = addr_q;
  assign fetch.len = len;
  assign fetch.tag = {who_q, tag_q};

  // The end of a part, or of a whole request.
  wire mine = part_q && fetched.tag == {who_q, tag_q};
  wire end_part = fetched_valid && fetched.last && mine;
  always_ff @(posedge clk) begin
    if (fetch_valid && fetch_ready) begin
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
      if (len == left_q || fetched.err) begin
        busy_q <= 1'b0;
        part_q <= 1'b0;
      end
    end
    if ((qr_valid & qr_ready) != 0) begin
      busy_q <= 1'b1;
      wait_q <= 1'b0;
      part_q <= 1'b0;
      who_q  <= pick;
      addr_q <= pick ? qr.rx.addr : qr.tx.addr;
      left_q <= pick ? qr.rx.len : qr.tx.len;
      tag_q  <= pick ? qr.rx.tag : qr.tx.tag;
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
  wire last = fetched.last && (fetched.err || !mine || len == left_q);
  wire [9:0] off = fetched.off + (mine ? base_q : 10'd0);
  if (DATA_W <= 512) begin : whole
    // Completions are cut at multiples of 64 bytes, so of beats.
    always_ff @(posedge clk) begin
      qc_valid <= {fetched_valid && fetched.tag[8], fetched_valid && !fetched.tag[8]};
      qc_data  <= fetched_data;
      qc.tag   <= fetched.tag[7:0];
      qc.off   <= off;
      qc.last  <= last;
      qc.err   <= fetched.err;
      if (rst) qc_valid <= '0;
    end
    wire unused = &{1'b0, fetched.more};
  end else begin : halves
    // A completion may end in the middle of a beat: that half waits for the next one.
    logic [DATA_W/2-1:0] kept[64];
    wire [5:0] at = {fetched.tag[8], fetched.tag[4:0]};
    wire odd = off[6];
    wire keep = odd ? fetched.more : !fetched.more;
    wire full = odd || fetched.more || fetched.err;
    always_ff @(posedge clk) begin
      if (fetched_valid && keep) kept[at] <= odd ? fetched_data[DATA_W-1:DATA_W/2] : fetched_data[DATA_W/2-1:0];
      qc_valid <= {fetched_valid && full && fetched.tag[8], fetched_valid && full && !fetched.tag[8]};
      qc_data  <= odd ? {fetched_data[DATA_W/2-1:0], kept[at]} : fetched_data;
      qc.tag   <= fetched.tag[7:0];
      qc.off   <= {off[9:7], 7'd0};
      qc.last  <= last;
      qc.err   <= fetched.err;
      if (rst) qc_valid <= '0;
    end
    wire unused = &{1'b0, off[5:0]};
    // What is left over belongs to a whole beat.
    always_ff @(posedge clk) if (!rst && fetched_valid && fetched.last && !fetched.err) assert (odd != fetched.more);
  end
endmodule
