// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads of queues for both halves of the fast path and for raw queues: requests of 128 to 512 bytes, in multiples of 128 and
// not over 4 KiB boundaries, become read requests of the host; what comes goes back in whole beats, at
// offsets that are multiples of a beat, those of one request in order.
module berth_queue_rd #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 128
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic [3:0]                   log2_read,
    // Requests: of the transmit half, the receive half, raw queues; tags below 32.
    input  logic [2:0]                   qr_valid,
    output logic [2:0]                   qr_ready,
    input  berth_card_pkg::all_queue_reads_t qr,
    // Beats, without back-pressure; the last one of a request, and whether the request has failed.
    output logic [2:0]                   qc_valid,
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
  logic busy_q, wait_q, part_q;
  logic [1:0] who_q, pick;
  logic [63:0] addr_q;
  logic [9:0] left_q, base_q, most_q;  // most_q: bytes of a part; one request has parts of one size
  logic [6:0] tag_q;
  wire [9:0] len = left_q < most_q ? left_q : most_q;
  berth_card_pkg::queue_read_t picked;
  // The first one behind that of the last request, in a ring.
  always_comb begin
    pick = who_q;
    unique case (who_q)
      2'd0:    pick = qr_valid[1] ? 2'd1 : qr_valid[2] ? 2'd2 : 2'd0;
      2'd1:    pick = qr_valid[2] ? 2'd2 : qr_valid[0] ? 2'd0 : 2'd1;
      default: pick = qr_valid[0] ? 2'd0 : qr_valid[1] ? 2'd1 : 2'd2;
    endcase
    picked = pick == 2'd0 ? qr.tx : pick == 2'd1 ? qr.rx : qr.raw;
  end
  wire free = !busy_q || (fetch_valid && fetch_ready && len == left_q && !part_q);

  assign qr_ready = free ? 3'd1 << pick : 3'd0;
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
      addr_q <= picked.addr;
      left_q <= picked.len;
      tag_q  <= picked.tag[6:0];
      base_q <= '0;
      most_q <= log2_read >= 4'd9 ? 10'd512 : 10'd1 << log2_read;
    end
    if (rst) begin
      busy_q <= 1'b0;
      wait_q <= 1'b0;
      part_q <= 1'b0;
      who_q  <= 2'd0;
    end
  end

  // ---- Completions --------------------------------------------------------------------------------------
  wire last = fetched.last && (fetched.err || !mine || len == left_q);
  wire [9:0] off = fetched.off + (mine ? base_q : 10'd0);
  if (DATA_W <= 512) begin : whole
    // Completions are cut at multiples of 64 bytes, so of beats.
    always_ff @(posedge clk) begin
      qc_valid <= fetched_valid ? 3'd1 << fetched.tag[8:7] : 3'd0;
      qc_data  <= fetched_data;
      qc.tag   <= {1'b0, fetched.tag[6:0]};
      qc.off   <= off;
      qc.last  <= last;
      qc.err   <= fetched.err;
      if (rst) qc_valid <= '0;
    end
    wire unused = &{1'b0, fetched.more, picked.tag[7]};
  end else begin : halves
    // A completion may end in the middle of a beat: that half waits for the next one.
    logic [DATA_W/2-1:0] kept[128];
    wire [6:0] at = {fetched.tag[8:7], fetched.tag[4:0]};
    wire odd = off[6];
    wire keep = odd ? fetched.more : !fetched.more;
    wire full = odd || fetched.more || fetched.err;
    always_ff @(posedge clk) begin
      if (fetched_valid && keep) kept[at] <= odd ? fetched_data[DATA_W-1:DATA_W/2] : fetched_data[DATA_W/2-1:0];
      qc_valid <= fetched_valid && full ? 3'd1 << fetched.tag[8:7] : 3'd0;
      qc_data  <= odd ? {fetched_data[DATA_W/2-1:0], kept[at]} : fetched_data;
      qc.tag   <= {1'b0, fetched.tag[6:0]};
      qc.off   <= {off[9:7], 7'd0};
      qc.last  <= last;
      qc.err   <= fetched.err;
      if (rst) qc_valid <= '0;
    end
    wire unused = &{1'b0, off[5:0], picked.tag[7]};
    // What is left over belongs to a whole beat.
    always_ff @(posedge clk) if (!rst && fetched_valid && fetched.last && !fetched.err) assert (odd != fetched.more);
  end
endmodule
