// SPDX-License-Identifier: Apache-2.0 OR MIT
// DMA writes: reads packet RAM at any byte alignment and cuts it into posted writes to the host.
//
// Two users of commands: firmware and the fast path; all are carried out in their order.
// Four stages that do not wait for each other: look up (berth_dma_page), cut (one posted write per
// cycle), fetch (one beat per cycle, over the ends of posted writes), send. Posted writes end at multiples of the maximum
// payload, so that but for a command's first one all begin aligned.
module berth_dma_wr #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64,
    // Beats from packet RAM on their way to the host, a power of two.
    parameter int unsigned WORDS = 64,
    // Posted writes cut ahead, a power of two.
    parameter int unsigned SEGS = 8
) (
    input  logic                         clk,
    input  logic                         rst,
    // Firmware's commands; bad ones only get their status.
    input  logic                         wcmd_valid,
    output logic                         wcmd_ready,
    input  berth_card_pkg::dma_t         wcmd,
    // A command has ended: its last beat has been accepted.
    output logic                         wdone_valid,
    input  logic                         wdone_ready,
    output berth_card_pkg::dma_end_t     wdone,
    // The fast path's commands and, in their order, their ends, which can not be held up.
    input  logic                         store_valid,
    output logic                         store_ready,
    input  berth_card_pkg::payload_t     store,
    output logic                         stored_valid,
    output berth_card_pkg::payload_end_t stored,
    // A page has been found for one of those whose tag's upper bits are 10: see `berth_dma_rd`.
    output logic                         found_valid,
    output berth_card_pkg::found_t       found,
    output logic                         found_taken,
    input  logic                         found_judged,
    input  logic                         found_refused,
    // Control: limits, no new page while hold.
    input  logic                         enable,
    input  logic                         hold,
    input  logic [ 3:0]                  log2_payload,
    output logic                         quiet,   // nothing looked up, nothing on its way
    output logic [ 4:0]                  flying,  // posted writes on their way
    output logic                         busy,
    // Look-up of a virtual page.
    output logic                         lk_req,
    output logic [ 7:0]                  lk_asid,
    output logic [51:0]                  lk_vpn,
    input  logic                         lk_ack,
    input  logic                         lk_hit,
    input  logic [51:0]                  lk_page,
    // Packet RAM, any byte address: answers come in order and can not be held up.
    output logic                         pr_valid,
    input  logic                         pr_ready,
    output logic [18:0]                  pr_addr,
    input  logic                         pr_rvalid,
    input  logic [DATA_W-1:0]            pr_rdata,
    // To the posted write port; addr and len stay for the whole packet.
    output logic                         wr_valid,
    input  logic                         wr_ready,
    output logic [63:0]                  wr_addr,
    output logic [12:0]                  wr_len,
    output logic [DATA_W-1:0]            wr_data,
    output logic                         wr_last,
    // Pulse for the counters.
    output logic                         inc_no_translation
);
  localparam int unsigned BYTES = DATA_W / 8;
  localparam int unsigned INFO = 18;  // the last byte first, fast path, tag

  // ---- Choice of a command, pages ----------------------------------------------
  logic turn_q, front_valid, front_ready, front_quiet, front_busy;
  wire fast = store_valid && (turn_q || !wcmd_valid);
  assign front_valid = store_valid || wcmd_valid;
  assign store_ready = front_ready && fast;
  assign wcmd_ready = front_ready && !fast;
  always_ff @(posedge clk)
    if (rst) turn_q <= 1'b0;
    else if (front_valid && front_ready) turn_q <= !fast;

  berth_card_pkg::page_command_t front_cmd;
  assign front_cmd.bad   = !fast && wcmd.bad;
  // Of bytes that are turned round the beat that ends with the first one is read, in a space of complements.
  assign front_cmd.place = fast ? {1'b0, store.place} + (store.reverse ? 19'(BYTES - 1) : 19'd0) : {1'b0, wcmd.place};
  assign front_cmd.len   = fast ? store.len : wcmd.len;
  assign front_cmd.addr  = fast ? store.va : wcmd.addr;
  assign front_cmd.virt  = fast ? !store.bus : wcmd.virt;
  assign front_cmd.asid  = fast ? store.asid : wcmd.asid;
  logic pg_valid, pg_ready;
  berth_card_pkg::page_part_t pg;
  logic [INFO-1:0] pg_info;
  berth_dma_page #(.INFO(INFO)) front (
      .clk, .rst, .cmd_valid(front_valid), .cmd_ready(front_ready), .cmd(front_cmd),
      .cmd_info(fast ? {store.reverse, 1'b1, 8'd0, store.tag} : {2'b00, wcmd.tag}),
      .enable, .hold, .quiet(front_quiet), .busy(front_busy),
      .lk_req, .lk_asid, .lk_vpn, .lk_ack, .lk_hit, .lk_page,
      .pg_valid, .pg_ready, .pg, .pg_info,
      .inc_no_translation
  );

  // ---- Cut: one segment per posted write; a segment of length 0 only carries a status ---
  typedef struct packed {
    logic [63:0]     addr;
    logic [12:0]     len;
    logic            last;    // of its command
    logic [1:0]      status;
    logic [INFO-1:0] info;
  } seg_t;

  seg_t put, seg;
  logic put_valid, put_ready, seg_room, seg_valid, seg_pop;
  logic get_room, get_valid, get_pop;
  logic [18:0] get_local;
  logic [12:0] get_len;
  logic [4:0] segs_q;      // cut and not sent
  logic [12:0] off_q, left, len, line, line_left;  // off_q: bytes of the piece that are cut
  logic [63:0] addr;
  logic [18:0] local_now;

  logic skip_q;            // the rest of a command that was refused is passed over
  assign found_valid = pg_valid && !skip_q && pg_info[16] && pg_info[7:6] == 2'b10 && pg.len != 0;
  assign found_taken = found_valid && pg_ready;
  assign found.tag   = pg_info[7:0];
  assign found.addr  = pg.addr;
  wire refuse = (!enable || (found_valid && found_refused)) && pg.len != 0;

  always_comb begin
    // A posted write ends at the page's end at the latest, because the limit is at most a page.
    addr      = pg.addr + 64'(off_q);
    local_now = pg.place + 19'(off_q);
    left      = pg.len - off_q;
    line      = 13'd1 << log2_payload;
    line_left = line - ({1'b0, addr[11:0]} & (line - 13'd1));
    len       = left < line_left ? left : line_left;
    put       = {addr, len, len == left && pg.last, pg.status, pg_info};
    if (refuse) begin
      put.len    = '0;
      put.last   = 1'b1;
      put.status = berth_regs_pkg::DMA_REFUSED[1:0];
    end
  end
  assign put_valid = pg_valid && !skip_q && (!found_valid || found_judged);
  assign put_ready = seg_room && get_room;
  assign pg_ready = skip_q || (put_go && (refuse || len == left));
  wire put_go = put_valid && put_ready;

  assign flying = segs_q;
  assign quiet = front_quiet && segs_q == 0;
  assign busy = front_busy || segs_q != 0 || wdone_valid;

  always_ff @(posedge clk) begin
    if (put_go) off_q <= refuse || len == left ? '0 : off_q + len;
    if (pg_valid && pg_ready) skip_q <= !pg.last && (skip_q || refuse);
    segs_q <= segs_q + 5'(put_go) - 5'(seg_pop);
    if (rst) begin
      off_q  <= '0;
      skip_q <= 1'b0;
      segs_q <= '0;
    end
  end

  berth_fifo #(
      .WIDTH($bits(put)),
      .DEPTH(SEGS)
  ) seg_fifo (
      .clk,
      .rst,
      .wr_valid(put_valid && get_room),
      .wr_ready(seg_room),
      .wr_data(put),
      .rd_valid(seg_valid),
      .rd_ready(seg_pop),
      .rd_data(seg)
  );

  // ---- Fetch: beat after beat, the next segment's directly behind the last one's ---------
  logic [6:0] room_q;      // places of the word FIFO not yet promised
  logic fetching_q;
  logic [18:0] from_q;
  logic back_q, get_back;  // what is asked for is turned round
  logic [12:0] fetch_q;    // bytes not yet asked for
  logic word_valid, word_pop, word_space;
  wire fetch_last = fetch_q <= 13'(BYTES);
  wire fetch_go = pr_valid && pr_ready;
  assign pr_valid = fetching_q && room_q != 0;
  assign pr_addr = from_q ^ {19{back_q}};
  wire get_free = !fetching_q || (fetch_go && fetch_last);
  wire direct = put_go && !get_valid && get_free;   // nothing lies before it
  assign get_pop = get_valid && get_free;

  berth_lutfifo #(
      .WIDTH(1 + 19 + 13),
      .DEPTH(SEGS)
  ) get_fifo (
      .clk,
      .rst,
      .wr_valid(put_valid && seg_room && !direct),
      .wr_ready(get_room),
      .wr_data({pg_info[17], local_now, put.len}),
      .rd_valid(get_valid),
      .rd_ready(get_pop),
      .rd_data({get_back, get_local, get_len})
  );

  always_ff @(posedge clk) begin
    if (fetch_go) begin
      from_q  <= from_q + 19'(BYTES);
      fetch_q <= fetch_q - 13'(BYTES);
      if (fetch_last) fetching_q <= 1'b0;
    end
    if (get_pop) begin
      from_q     <= get_local;
      back_q     <= get_back;
      fetch_q    <= get_len;
      fetching_q <= get_len != 0;
    end
    if (direct) begin
      from_q     <= local_now;
      back_q     <= pg_info[17];
      fetch_q    <= put.len;
      fetching_q <= put.len != 0;
    end
    room_q <= room_q - 7'(fetch_go) + 7'(word_pop);
    if (rst) begin
      fetching_q <= 1'b0;
      room_q     <= 7'(WORDS);
    end
  end

  logic [DATA_W-1:0] word;
  berth_fifo #(
      .WIDTH(DATA_W),
      .DEPTH(WORDS),
      .PASS(1)
  ) word_fifo (
      .clk,
      .rst,
      .wr_valid(pr_rvalid),
      .wr_ready(word_space),
      .wr_data(pr_rdata),
      .rd_valid(word_valid),
      .rd_ready(word_pop),
      .rd_data(word)
  );

  // ---- Send ------------------------------------------------------------------------------
  logic [12:0] sent_q;     // bytes of the segment that are out
  logic done_q;
  logic [15:0] done_tag_q;
  logic [1:0] done_status_q;

  wire empty_seg = seg.len == 0;
  wire hold_done = seg.last && !seg.info[16] && done_q && !wdone_ready;  // the place for its status is taken

  assign wr_addr = seg.addr;
  assign wr_len = seg.len;
  always_comb
    for (int unsigned i = 0; i < BYTES; i++) wr_data[8*i +: 8] = seg.info[17] ? word[8*(BYTES-1-i) +: 8] : word[8*i +: 8];
  assign wr_last = seg.len - sent_q <= 13'(BYTES);
  assign wr_valid = seg_valid && !empty_seg && !(wr_last && hold_done) && word_valid;
  assign word_pop = wr_valid && wr_ready;
  assign seg_pop = (word_pop && wr_last) || (seg_valid && empty_seg && !hold_done);
  assign wdone_valid = done_q;
  assign wdone.tag = done_tag_q;
  assign wdone.status = {6'd0, done_status_q};
  assign stored_valid = seg_pop && seg.last && seg.info[16];
  assign stored.tag = seg.info[7:0];
  assign stored.status = seg.status;

  always_ff @(posedge clk) begin
    if (word_pop) sent_q <= sent_q + 13'(BYTES);
    if (wdone_ready) done_q <= 1'b0;
    if (seg_pop) begin
      sent_q <= '0;
      if (seg.last && !seg.info[16]) begin
        done_q        <= 1'b1;
        done_tag_q    <= seg.info[15:0];
        done_status_q <= seg.status;
      end
    end
    if (rst) begin
      sent_q <= '0;
      done_q <= 1'b0;
    end
  end

  wire unused = &{1'b0, pg.first, wcmd};  // only reads are attached

  // Words that were asked for always find room; a posted write stays within page and limit.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!pr_rvalid || word_space);
      if (put_go) assert (14'(addr[11:0]) + 14'(len) <= 14'h1000);
    end
endmodule
