// SPDX-License-Identifier: Apache-2.0 OR MIT
// DMA reads: cuts commands into host read requests, places completions in packet RAM at any byte alignment.
//
// Two users of commands: firmware and the fast path. It also carries out reads of the command ring and of queues, whose
// data go to their requesters. Up to 64 requests are out at once. Those of DMA end at multiples of the maximum read
// request, so that but for a command's first one all begin aligned. Completions go to (local base of the tag + offset),
// so the order of reads does not matter; each of their beats is one write to packet RAM, whatever the alignment.
//
// The completions of one read come in the order of their bytes. One that is marked as an error, or whose bytes are not
// the next ones, ends the read for its user, as time does; its tag is then dead: further completions are dropped, and
// the tag is not used again before all bytes of the old read, each once and in order, or an answer without data
// (unsupported request, completer abort), have come. A card reset kills all outstanding tags, and frees those that are
// still dead a time-out later.
module berth_dma_rd #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic                         cold,      // the slot's own reset, with `rst`: no completion of before comes any more
    // Firmware's commands; bad ones only get their status.
    input  logic                         rcmd_valid,
    output logic                         rcmd_ready,
    input  berth_card_pkg::dma_t         rcmd,
    // A command has ended; attached ones do not wait for rdone_ready.
    output logic                         rdone_valid,
    input  logic                         rdone_ready,
    output berth_card_pkg::dma_end_t     rdone,
    output logic                         att_done,
    output logic [3:0]                   att_slot,  // its status is that of `rdone`
    // The fast path's commands and their ends, which can not be held up.
    input  logic                         load_valid,
    output logic                         load_ready,
    input  berth_card_pkg::payload_t     load,
    output logic                         loaded_valid,
    output berth_card_pkg::payload_end_t loaded,
    // A page has been found for one of those whose tag's upper bits are 10: it goes on, or fails, as soon as it is judged, with
    // `found_taken`. See `berth_atomic`.
    output logic                         found_valid,
    output berth_card_pkg::found_t       found,
    output logic                         found_taken,
    input  logic                         found_judged,
    input  logic                         found_refused,
    // Reads of queues: at most one maximum read request long; beats of one in order, by offset.
    input  logic                         fetch_valid,
    output logic                         fetch_ready,
    input  berth_card_pkg::fetch_t       fetch,
    output logic                         fetched_valid,
    output logic [DATA_W-1:0]            fetched_data,
    output berth_card_pkg::fetched_t     fetched,
    // Control: limits, no new page and no read of a queue while hold, no new request while stop.
    input  logic                         enable,
    input  logic                         hold,
    input  logic                         stop,
    input  logic [ 3:0]                  log2_read,
    input  logic                         tick,      // a third of the time-out is over
    output logic                         quiet,     // nothing looked up, nothing awaited
    output logic [ 6:0]                  flying,    // requests whose data are awaited, the command ring's included
    output logic                         busy,
    // Look-up of a virtual page.
    output logic                         lk_req,
    output logic [ 7:0]                  lk_asid,
    output logic [51:0]                  lk_vpn,
    input  logic                         lk_ack,
    input  logic                         lk_hit,
    input  logic [51:0]                  lk_page,
    // Command ring: its request, and beats and end of its completions.
    input  logic                         ring_valid,
    output logic                         ring_ready,
    input  berth_card_pkg::ring_read_t   ring,      // several may be out
    output berth_card_pkg::ring_beat_t   ring_cpl,
    output logic                         ring_cpl_valid,
    output logic [DATA_W-1:0]            ring_cpl_data,
    output logic                         ring_cpl_end,
    // Host read port.
    output logic                         hrd_valid,
    input  logic                         hrd_ready,
    output berth_card_pkg::host_read_t   hrd,
    input  logic                         hcpl_valid,
    output logic                         hcpl_ready,
    input  logic [DATA_W-1:0]            hcpl_data,
    input  berth_card_pkg::host_reply_t  hcpl,
    // Packet RAM.
    output logic                         pw_valid,
    input  logic                         pw_ready,
    output logic [18:0]                  pw_addr,
    output logic [DATA_W-1:0]            pw_data,
    output logic [2*DATA_W/8-1:0]        pw_strb,   // of the word at pw_addr, then of the next
    // Pulses for the counters.
    output logic                         inc_request,
    output logic                         inc_no_translation,
    output logic                         inc_host_error,
    output logic                         inc_timeout,
    output logic                         inc_unexpected
);
  localparam int unsigned BYTES = DATA_W / 8;
  localparam int unsigned LB = $clog2(BYTES);
  localparam int unsigned TAGS = berth_regs_pkg::READ_TAGS;
  localparam int unsigned CMDS = berth_regs_pkg::READ_TAGS;  // commands in flight: each has a request
  localparam int unsigned TW = $clog2(TAGS), CW = $clog2(CMDS);
  localparam int unsigned INFO = 1 + 1 + 4 + 16;  // fast path, attached, slot, tag
  localparam logic [1:0] OK = berth_regs_pkg::DMA_OK[1:0];
  localparam logic [1:0] FOR_DMA = 2'd0, FOR_RING = 2'd1, FOR_QUEUE = 2'd2;

  // ---- Choice of a command, pages ----------------------------------------------
  logic turn_q, front_valid, front_ready, front_quiet, front_busy;
  wire fast = load_valid && (turn_q || !rcmd_valid);
  assign front_valid = load_valid || rcmd_valid;
  assign load_ready = front_ready && fast;
  assign rcmd_ready = front_ready && !fast;
  always_ff @(posedge clk)
    if (rst) turn_q <= 1'b0;
    else if (front_valid && front_ready) turn_q <= !fast;

  berth_card_pkg::page_command_t front_cmd;
  assign front_cmd.bad   = !fast && rcmd.bad;
  assign front_cmd.place = fast ? {1'b1, load.place} : {1'b0, rcmd.place};
  assign front_cmd.len   = fast ? load.len : rcmd.len;
  assign front_cmd.addr  = fast ? load.va : rcmd.addr;
  assign front_cmd.virt  = fast ? !load.bus : rcmd.virt;
  assign front_cmd.asid  = fast ? load.asid : rcmd.asid;
  logic pg_valid, pg_ready;
  berth_card_pkg::page_part_t pg;
  logic [INFO-1:0] pg_info;
  berth_dma_page #(.INFO(INFO)) front (
      .clk, .rst, .cmd_valid(front_valid), .cmd_ready(front_ready), .cmd(front_cmd),
      .cmd_info(fast ? {1'b1, 1'b0, 4'd0, 8'd0, load.tag} : {1'b0, rcmd.attach, rcmd.slot, rcmd.tag}),
      .enable, .hold(hold || stop), .quiet(front_quiet), .busy(front_busy),
      .lk_req, .lk_asid, .lk_vpn, .lk_ack, .lk_hit, .lk_page,
      .pg_valid, .pg_ready, .pg, .pg_info,
      .inc_no_translation
  );

  // ---- Commands in flight: entry is free when not active ----------------------
  logic [CMDS-1:0] act_q, issued_q;
  logic [5:0] out_q[CMDS];  // requests out
  logic [1:0] stat_q[CMDS];
  logic [INFO-1:0] info_q[CMDS];

  // ---- Requests in flight, by tag ---------------------------------------------
  // In use; told to its user as failed; of before the last reset.
  logic [TAGS-1:0] fly_q, dead_q, old_q;
  logic [TAGS-1:0] one_q, two_q, late_q;  // ticks since it was asked for, or since the reset: at least so many
  logic [18:0] base_q[TAGS];  // place in packet RAM, or the tag of a queue's or the ring's
  logic [12:0] len_q[TAGS];
  logic [12:0] next_q[TAGS];  // bytes that have come
  logic [CW-1:0] owner_q[TAGS];
  logic [1:0] kind_q[TAGS];

  // ---- Issue --------------------------------------------------------------------
  logic [CW-1:0] me_q, me, free_cmd;
  logic [TW-1:0] free_tag, turn_tag_q;
  logic free_cmd_ok, free_tag_ok;
  logic [12:0] off_q, left, seg, line, line_left;  // off_q: bytes of the piece that are out
  logic [63:0] addr;
  logic hrd_v_q;
  logic skip_q;             // the rest of a command that has failed is passed over

  always_comb begin
    free_cmd_ok = 1'b0;
    free_cmd = '0;
    if (pg_valid && pg.first)
      for (int i = CMDS; i > 0; i--)
        if (!act_q[i-1]) begin
          free_cmd_ok = 1'b1;
          free_cmd = CW'(i - 1);
        end
    free_tag_ok = 1'b0;
    free_tag = '0;
    if (pg_valid || ring_valid || fetch_valid)
      for (int i = TAGS; i > 0; i--)
        if (!fly_q[i-1]) begin
          free_tag_ok = 1'b1;
          free_tag = TW'(i - 1);
        end
    // Round robin: a tag is used again as late as can be.
    if (pg_valid || ring_valid || fetch_valid)
      for (int i = TAGS; i > 0; i--) if (!fly_q[i-1] && TW'(i - 1) >= turn_tag_q) free_tag = TW'(i - 1);
    // A request ends at the page's end at the latest, because the limit is at most a page.
    addr      = pg.addr + 64'(off_q);
    left      = pg.len - off_q;
    line      = 13'd1 << log2_read;
    line_left = line - ({1'b0, addr[11:0]} & (line - 13'd1));
    seg       = left < line_left ? left : line_left;
  end

  wire port_free = (!hrd_v_q || hrd_ready) && !stop && free_tag_ok;
  wire ring_go = ring_valid && port_free;
  wire queue_go = fetch_valid && port_free && !ring_go && enable && !hold;
  wire begun = off_q != 0 || !pg.first;          // the command has its entry
  wire mine = begun || free_cmd_ok;
  assign found_valid = pg_valid && !skip_q && pg_info[INFO-1] && pg_info[7:6] == 2'b10 && pg.status == OK;
  assign found_taken = found_valid && pg_ready;
  assign found.tag   = pg_info[7:0];
  assign found.addr  = pg.addr;
  wire judged = !found_valid || found_judged;
  wire fails = pg_valid && !skip_q && (pg.status != OK || !enable || (found_valid && found_refused)) && judged;
  // Completions come in order on many hosts: reads of rings and queues behind all that is awaited. So the fast path
  // issues reads only while fewer bytes are awaited than the wire carries in 1024 cycles, whatever the size of
  // requests.
  localparam int unsigned MOST = 1024 * BYTES;
  logic [18:0] awaited_q;  // bytes
  wire seg_go = pg_valid && !skip_q && judged && !fails && port_free && !ring_go && !queue_go && mine
             && (!pg_info[INFO-1] || awaited_q < 19'(MOST));
  wire go = seg_go || ring_go || queue_go;
  wire [12:0] size = seg_go ? seg : ring_go ? ring.len : {3'd0, fetch.len};
  wire tag_end;
  // A command that fails ends in a cycle in which no request does.
  wire fail_go = fails && mine && !tag_end;
  wire issue_end = fail_go || (seg_go && seg == left && pg.last);
  logic pv_q, end_q, err_q;
  logic [CW-1:0] end_cmd_q;
  wire [TAGS-1:0] live = fly_q & ~dead_q;
  assign me = begun ? me_q : free_cmd;
  assign pg_ready = skip_q || fail_go || (seg_go && seg == left);
  assign ring_ready = ring_go;
  assign fetch_ready = queue_go;
  assign hrd_valid = hrd_v_q;
  assign quiet = front_quiet && live == 0 && !pv_q;
  assign busy = front_busy || act_q != 0 || live != 0 || fetch_valid;
  assign inc_request = hrd_valid && hrd_ready;
  assign flying = 7'($countones(live));

  // ---- Time: one tag after the other is looked at ---------------------------------
  logic [TW-1:0] look_q, giving_tag_q;
  logic giving_q;  // that one is given up now, if it is still awaited
  wire old = fly_q[look_q] && late_q[look_q];
  wire give_go;

  // ---- Completions: turn to the local alignment ---------------------------------
  logic first_q;                      // the next beat begins a completion
  logic hurt_q, odd_q;                // a beat of this completion was marked as an error; was not the one that is due
  logic held_q;                       // its tag was in use when it began
  logic [12:0] at_q;                  // offset in the request of the beat at hand, after the first
  logic [12:0] rest_q;                // bytes of the completion from this beat on, after the first

  // A tag that the card does not have counts as one that is not awaited.
  wire [TW-1:0] ct = giving_q ? giving_tag_q : hcpl.tag[TW-1:0];
  wire has_tag = giving_q || {1'b0, hcpl.tag} < 7'(TAGS);
  wire [18:0] base = base_q[ct];
  wire [12:0] len = len_q[ct];
  wire [12:0] next = next_q[ct];
  wire [1:0] kind = kind_q[ct];
  // A completion that began while its tag was not awaited is no answer to a later request.
  wire known = has_tag && live[ct] && (giving_q || first_q || held_q);
  wire for_ring = known && kind == FOR_RING;
  wire for_queue = known && kind == FOR_QUEUE;
  wire [12:0] offset = first_q ? hcpl.off : at_q;
  wire [12:0] rest = first_q ? hcpl.len : rest_q;
  wire [13:0] upto = {1'b0, hcpl.off} + {1'b0, hcpl.len};
  // A number of beats that does not match the length is an error as well.
  wire wrong = hcpl.off != next || upto > {1'b0, len} || rest == 0 || (hcpl.last && rest > 13'(BYTES));
  wire fits = !wrong && !odd_q;
  wire failed = giving_q || hcpl.err || hurt_q || !fits;
  wire last_byte = upto == {1'b0, len};
  wire over = known && (giving_q || (hcpl.last && (failed || last_byte)));  // its user hears of it
  wire [18:0] to = base + {6'd0, offset};
  wire [LB-1:0] shift = to[LB-1:0];
  wire take = hcpl_valid && hcpl_ready;
  wire move = take || give_go;
  // No more data comes for it.
  wire clear = take && hcpl.last && has_tag && (first_q || held_q) && ((fits && last_byte) || (hcpl.err && hcpl.len == 0));
  wire put = move && known && !for_ring && !for_queue;
  wire [BYTES-1:0] in_strb = rest >= 13'(BYTES) ? '1 : ~({BYTES{1'b1}} << rest[LB-1:0]);
  wire [DATA_W-1:0] turned = DATA_W'(({hcpl_data, hcpl_data} << {shift, 3'd0}) >> DATA_W);
  wire pw_go = pv_q && pw_ready;
  wire room = !pv_q || pw_ready;

  assign give_go = giving_q && room && late_q[giving_tag_q];
  assign hcpl_ready = room && !giving_q;
  assign pw_valid = pv_q;
  assign ring_cpl.tag = base[2:0];
  assign ring_cpl_valid = take && for_ring && !failed;
  assign ring_cpl.off = offset;
  assign ring_cpl_data = hcpl_data;
  assign ring_cpl.more = rest > 13'd64;
  assign ring_cpl_end = move && for_ring && over;
  assign ring_cpl.err = failed;
  assign fetched_valid = move && for_queue && (!failed || over);
  assign fetched_data = hcpl_data;
  assign fetched.tag = base[8:0];
  assign fetched.off = offset[9:0];
  assign fetched.more = rest > 13'd64;
  assign fetched.last = over;
  assign fetched.err = failed;
  assign inc_timeout = give_go && known;
  assign inc_unexpected = take && hcpl.last && !known;

  // ---- Ends ---------------------------------------------------------------------
  wire [CW-1:0] end_cmd = end_cmd_q;
  logic over_valid, over_room, over_pop;
  logic [CW-1:0] over_cmd;
  assign tag_end = pw_go && end_q;
  wire last_end = tag_end && issued_q[end_cmd] && out_q[end_cmd] == 6'd1;
  wire fail_end = fail_go && (!begun || out_q[me] == 0);
  // Never full, because each command is in it at most once.
  berth_lutfifo #(
      .WIDTH(CW),
      .DEPTH(CMDS)
  ) over_fifo (
      .clk,
      .rst,
      .wr_valid(last_end || fail_end),
      .wr_ready(over_room),
      .wr_data(last_end ? end_cmd : me),
      .rd_valid(over_valid),
      .rd_ready(over_pop),
      .rd_data(over_cmd)
  );
  wire [INFO-1:0] over_info = info_q[over_cmd];
  wire over_fast = over_info[21];
  wire over_attached = over_info[20];
  assign over_pop = over_valid && (over_fast || over_attached || rdone_ready);
  assign rdone_valid = over_valid && !over_fast && !over_attached;
  assign rdone.tag = over_info[15:0];
  assign rdone.status = {6'd0, stat_q[over_cmd]};
  assign att_done = over_valid && over_attached;
  assign att_slot = over_info[19:16];
  assign loaded_valid = over_valid && over_fast;
  assign loaded.tag = over_info[7:0];
  assign loaded.status = stat_q[over_cmd];
  assign inc_host_error = (over_pop && stat_q[over_cmd] == berth_regs_pkg::DMA_HOST_ERROR[1:0])
      || (move && over && failed && (for_ring || for_queue));

  always_ff @(posedge clk) begin
    if (go) begin
      base_q[free_tag]  <= seg_go ? pg.place + 19'(off_q) : {10'd0, ring_go ? {6'd0, ring.tag} : fetch.tag};
      len_q[free_tag]   <= size;
      next_q[free_tag]  <= '0;
      owner_q[free_tag] <= me;
      kind_q[free_tag]  <= seg_go ? FOR_DMA : ring_go ? FOR_RING : FOR_QUEUE;
    end
    if ((seg_go || fail_go) && !begun) info_q[me] <= pg_info;
    if (take && hcpl.last && has_tag && fly_q[ct] && (first_q || held_q) && fits) next_q[ct] <= upto[12:0];
  end

  always_ff @(posedge clk) begin
    // Issue.
    if (hrd_ready) hrd_v_q <= 1'b0;
    if (go) begin
      hrd_v_q  <= 1'b1;
      hrd.addr <= seg_go ? addr : ring_go ? ring.addr : fetch.addr;
      hrd.len  <= size;
      hrd.tag  <= 6'(free_tag);
      turn_tag_q <= free_tag + TW'(1);
    end
    awaited_q <= awaited_q + (go ? 19'(size) : 19'd0) - (move && over ? 19'(len) : 19'd0);
    if (seg_go) off_q <= seg == left ? '0 : off_q + seg;
    if (fail_go) off_q <= '0;
    if (pg_valid && pg_ready) skip_q <= !pg.last && (skip_q || fail_go);
    if (seg_go || fail_go) me_q <= me;

    // Completions.
    if (take) begin
      first_q <= hcpl.last;
      if (first_q) held_q <= has_tag && fly_q[ct];
      hurt_q  <= !hcpl.last && (hurt_q || hcpl.err);
      odd_q   <= !hcpl.last && !fits;
      at_q    <= offset + 13'(BYTES);
      rest_q  <= rest > 13'(BYTES) ? rest - 13'(BYTES) : 13'd0;
    end
    if (pw_go) begin
      pv_q  <= 1'b0;
      end_q <= 1'b0;
    end
    if (put) begin
      pv_q      <= 1'b1;
      pw_addr   <= {to[18:LB], {LB{1'b0}}};
      pw_data   <= turned;
      pw_strb   <= failed ? '0 : {{BYTES{1'b0}}, in_strb} << shift;
      end_q     <= over;
      end_cmd_q <= owner_q[ct];
      err_q     <= failed;
    end

    // Tags.
    if (tick) begin
      one_q  <= fly_q;
      two_q  <= one_q & fly_q;
      late_q <= two_q & fly_q;
    end
    if (move && over) dead_q[ct] <= 1'b1;
    if (clear) fly_q[ct] <= 1'b0;
    if (!giving_q) begin
      look_q       <= look_q + TW'(1);
      giving_tag_q <= look_q;
      giving_q     <= old && !dead_q[look_q];
      if (old && old_q[look_q] && first_q && !take) fly_q[look_q] <= 1'b0;
    end else if (room) giving_q <= 1'b0;
    if (go) begin
      fly_q[free_tag]  <= 1'b1;
      dead_q[free_tag] <= 1'b0;
      old_q[free_tag]  <= 1'b0;
      one_q[free_tag]  <= 1'b0;
      two_q[free_tag]  <= 1'b0;
      late_q[free_tag] <= 1'b0;
    end

    // Requests out per command: one may begin while another ends.
    if ((seg_go || fail_go) && !begun) begin
      act_q[me]    <= 1'b1;
      issued_q[me] <= 1'b0;
      out_q[me]    <= 6'(seg_go);
    end else if (seg_go && !(tag_end && end_cmd == me)) out_q[me] <= out_q[me] + 6'd1;
    if (tag_end && !(seg_go && end_cmd == me)) out_q[end_cmd] <= out_q[end_cmd] - 6'd1;
    if (tag_end && err_q) stat_q[end_cmd] <= berth_regs_pkg::DMA_HOST_ERROR[1:0];
    if (issue_end) issued_q[me] <= 1'b1;
    if (seg_go && !begun) stat_q[me] <= OK;
    if (fail_go) stat_q[me] <= pg.status != OK ? pg.status : berth_regs_pkg::DMA_REFUSED[1:0];
    if (over_pop) act_q[over_cmd] <= 1'b0;

    if (rst) begin
      hrd_v_q  <= 1'b0;
      act_q    <= '0;
      off_q    <= '0;
      awaited_q <= '0;
      skip_q   <= 1'b0;
      pv_q     <= 1'b0;
      end_q    <= 1'b0;
      giving_q <= 1'b0;
      dead_q   <= '1;
      old_q    <= '1;
      one_q    <= '0;
      two_q    <= '0;
      late_q   <= '0;
    end
    if (cold) begin
      fly_q      <= '0;
      first_q    <= 1'b1;
      hurt_q     <= 1'b0;
      odd_q      <= 1'b0;
      look_q     <= '0;
      turn_tag_q <= '0;
    end
  end

  wire unused = &{1'b0, load.reverse};  // only writes are turned round

  // Requests respect the page and the limit; a tag is used once at a time.
  always_ff @(posedge clk)
    if (!rst) begin
      if (seg_go) assert (seg != 0 && 14'(addr[11:0]) + 14'(seg) <= 14'h1000 && !fly_q[free_tag]);
      if (tag_end) assert (act_q[end_cmd] && out_q[end_cmd] != 0);
      assert (over_room && !(last_end && fail_end));
      assert ((awaited_q == 0) == (live == 0));
    end
endmodule
