// SPDX-License-Identifier: Apache-2.0 OR MIT
// Translation table of pinned pages: look-ups for DMA, counted use of ranges, changes by the driver.
//
// 512 rows of 16 entries (4 on a small card). A page stands in one of the first half of one row or in one of the second
// half of another (berth_abi `Xlt::place`), so a look-up is one read, and one can begin each cycle. The row and the rest
// of a page's number determine its lowest nine bits, so entries do not hold them, and a page that the driver installs
// in a wrong row is never found.
//
//   choose user -> hash -> read -> compare -> answer to DMA, read the count -> write the count
//
// Users of ranges: 0 firmware, 1 and 2 the transmit and the receive half of the fast path.
// A change by the driver waits until the pipeline is empty; the next one of the same command follows it at once, and
// evictions of one command have one answer. All users take turns, page by page.
module berth_xlt (
    input  logic                           clk,
    input  logic                           rst,
    // Look-ups, bit 0 for DMA reads and bit 1 for DMA writes: req is held until ack.
    input  logic [1:0]                     lk_req,
    input  logic [2*8-1:0]                 lk_asid,
    input  logic [2*52-1:0]                lk_vpn,
    output logic [1:0]                     lk_ack,
    output logic                           lk_hit,   // with ack
    output logic [51:0]                    lk_page,  // with ack: bus address >> 12
    output logic                           changing, // the table may change in this clock
    // Driver's changes. Held until ready.
    input  logic                           ch_valid,
    output logic                           ch_ready,
    input  berth_card_pkg::table_change_t  ch,
    // Driver's answer to a page request.
    input  logic                           rdy_valid,
    output logic                           rdy_ready,
    input  berth_card_pkg::page_answer_t   rdy,
    // Firmware: acquire or release a range.
    input  logic                           xhead_valid,
    output logic                           xhead_ready,
    input  berth_card_pkg::range_ask_t     xhead,
    // Firmware: answers, as CPU_XLT_RSP.
    output logic                           rsp_valid,
    input  logic                           rsp_ready,
    output logic [31:0]                    rsp_data,
    // Fast path, transmit half in the low bits: ranges and answers.
    input  logic [1:0]                     xa_valid,
    output logic [1:0]                     xa_ready,
    input  berth_card_pkg::range_asks_t    xa,
    input  logic                           xa_tell,  // the host hears of pages that the fast path has left unused
    input  logic [1:0]                     xr_room,  // at least 9 answers find room
    output logic [1:0]                     xr_valid,
    output berth_card_pkg::range_answers_t xr,
    // To the event writer: words 0 to 6.
    output logic                           xev_valid,
    input  logic                           xev_ready,
    output logic [7*32-1:0]                xev_words,
    // For the counters: ranges that hit or missed in this cycle.
    output logic [1:0]                     inc_hit,
    output logic [1:0]                     inc_miss,
    output logic                           busy
);
  localparam int unsigned ROWS = berth_regs_pkg::XLT_ROWS;
  localparam int unsigned WAYS = berth_regs_pkg::XLT_WAYS;
  localparam int unsigned RW = $clog2(ROWS);
  localparam int unsigned WW = $clog2(WAYS);
  localparam int unsigned IW = RW + WW;
  localparam int unsigned COUNT = 16;
  localparam int unsigned USERS = 3;
  localparam int unsigned ENTRY = 1 + 1 + 8 + 39 + 52;  // valid, write, ASID, virtual page >> 9, page

  initial if (IW > 13 || RW != 9) $fatal(1, "berth_xlt: the hash is that of 512 rows, of at most 16");

  // As berth_abi's Xlt::place: two rows that share as few pages as can be, each without
  // collisions among 512 neighbours.
  // verilator lint_off UNUSEDSIGNAL
  function automatic logic [8:0] row_of(input logic second, input logic [7:0] asid, input logic [51:0] vpn);
    logic [8:0] x, a, b, c;
    a = vpn[17:9];
    b = vpn[26:18];
    c = vpn[35:27];
    x = second ? vpn[8:0] ^ {a[7:0], a[8]} ^ {b[6:0], b[8:7]} ^ {c[4:0], c[8:5]} : vpn[8:0] ^ a ^ b ^ c;
    row_of = second ? x * 9'h0b5 + 9'(asid) * 9'h14b : x * 9'h1c7 + 9'(asid) * 9'h09d;
  endfunction
  // verilator lint_on UNUSEDSIGNAL

  // ---- Users of ranges ----------------------------------------------------------
  logic [USERS-1:0] pg_valid, pg_ready, r_busy;
  berth_card_pkg::page_use_t pg;      // of the user that is chosen
  localparam int unsigned PG_W = $bits(pg);
  logic [USERS*PG_W-1:0] pgs;
  logic [USERS-1:0] an_valid, out_valid, out_hit, rev_valid, rev_ready;
  logic an_last_q, an_counted_q, an_zero;
  logic [USERS*16-1:0] out_tag;
  logic [USERS*7*32-1:0] rev_words;
  logic cpu_room, go_free, block;

  berth_xlt_range #(.TELL_ALL(1'b1), .USER(2'd0)) firmware (
      .clk, .rst, .go_valid(xhead_valid && cpu_room), .go_ready(go_free), .go(xhead), .block, .tell(1'b1), .pg_valid(pg_valid[0]), .pg_ready(pg_ready[0]),
      .pg(pgs[PG_W-1:0]), .an_valid(an_valid[0]), .an_last(an_last_q),
      .an_counted(an_counted_q), .an_zero, .out_valid(out_valid[0]), .out_hit(out_hit[0]), .out_tag(out_tag[15:0]),
      .ev_valid(rev_valid[0]), .ev_ready(rev_ready[0]), .ev_words(rev_words[7*32-1:0]), .busy(r_busy[0])
  );
  assign xhead_ready = go_free && cpu_room;

  logic [1:0] x_ready;
  assign xa_ready = x_ready & xr_room;
  localparam int unsigned ASK_W = $bits(xhead);
  logic [2*ASK_W-1:0] xa_bits;
  assign xa_bits = xa;
  for (genvar u = 0; u < 2; u++) begin : fast
    berth_xlt_range #(.USER(2'(u + 1))) range (
        .clk, .rst, .go_valid(xa_valid[u] && xr_room[u]), .go_ready(x_ready[u]), .go(xa_bits[ASK_W*u+:ASK_W]), .block, .tell(xa_tell),
        .pg_valid(pg_valid[u+1]), .pg_ready(pg_ready[u+1]), .pg(pgs[PG_W*(u+1)+:PG_W]),
        .an_valid(an_valid[u+1]), .an_last(an_last_q), .an_counted(an_counted_q), .an_zero,
        .out_valid(out_valid[u+1]), .out_hit(out_hit[u+1]), .out_tag(out_tag[16*(u+1)+:16]),
        .ev_valid(rev_valid[u+1]), .ev_ready(rev_ready[u+1]), .ev_words(rev_words[7*32*(u+1)+:7*32]),
        .busy(r_busy[u+1])
    );
  end

  // ---- Choice: DMA first, because it asks seldom, then the ranges in turn ---------------
  typedef enum logic [1:0] {CLEAR, RUN, DRAIN, CHANGE} state_t;
  localparam logic [2:0] WHO_READ = 3'd3, WHO_WRITE = 3'd4;  // below: users of ranges
  state_t state_q;
  logic [1:0] asked_q, turn_q, k;
  logic [2:0] pick;
  logic any;
  wire [1:0] lk_new = lk_req & ~asked_q;

  always_comb begin
    any  = 1'b0;
    pick = '0;
    k    = turn_q;
    for (int unsigned i = 0; i < USERS; i++) begin
      if (!any && pg_valid[k]) begin
        any  = 1'b1;
        pick = {1'b0, k};
      end
      k = k == 2'(USERS - 1) ? 2'd0 : k + 2'd1;
    end
    if (lk_new != 0) begin
      any  = 1'b1;
      pick = lk_new[0] ? WHO_READ : WHO_WRITE;
    end
  end
  wire issue = state_q == RUN && any;
  assign pg = pgs[PG_W*32'(pick[1:0])+:PG_W];
  always_comb
    for (int unsigned i = 0; i < USERS; i++) pg_ready[i] = issue && pick == 3'(i);

  // ---- Pipeline: chosen (a), hashed and read (b), compared (c), counted (d) ----------
  logic a_q, b_q, c_q, d_q;
  logic [2:0] a_who_q, b_who_q, c_who_q;
  logic a_write_q, a_release_q, a_back_q, a_last_q, b_write_q, b_release_q, b_back_q, b_last_q;
  logic c_release_q, c_back_q, c_last_q, c_hit_q, d_release_q, d_we_q;
  logic [7:0] a_asid_q, b_asid_q;
  logic [51:0] a_vpn_q, b_vpn_q, c_page_q;
  logic [IW-1:0] c_index_q, d_index_q;
  logic [RW-1:0] b_row0_q, b_row1_q;

  always_ff @(posedge clk) begin
    a_q <= issue;
    if (issue) begin
      a_who_q <= pick;
      unique case (pick)
        WHO_READ: {a_asid_q, a_vpn_q} <= {lk_asid[7:0], lk_vpn[51:0]};
        WHO_WRITE: {a_asid_q, a_vpn_q} <= {lk_asid[15:8], lk_vpn[103:52]};
        default: {a_asid_q, a_vpn_q} <= {pg.asid, pg.vpn};
      endcase
      a_write_q   <= pick == WHO_WRITE || (pick < WHO_READ && pg.write);
      a_release_q <= pg.give_back;
      a_back_q    <= pg.undo;
      a_last_q    <= pg.last;
      if (pick < WHO_READ) turn_q <= pick[1:0] == 2'(USERS - 1) ? 2'd0 : pick[1:0] + 2'd1;
    end
    if (rst) begin
      a_q    <= 1'b0;
      turn_q <= '0;
    end
  end

  wire [RW-1:0] row0 = row_of(1'b0, a_asid_q, a_vpn_q);
  wire [RW-1:0] row1 = row_of(1'b1, a_asid_q, a_vpn_q);
  logic [WAYS*ENTRY-1:0] entries;
  logic [WAYS-1:0] we;
  logic [RW-1:0] wrow;
  logic [ENTRY-1:0] went;
  for (genvar w = 0; w < WAYS; w++) begin : way
    logic [ENTRY-1:0] ram[ROWS];
    logic [ENTRY-1:0] out_q;
    always_ff @(posedge clk) begin
      if (we[w]) ram[wrow] <= went;
      if (a_q) out_q <= ram[w < WAYS / 2 ? row0 : row1];
    end
    assign entries[ENTRY*w+:ENTRY] = out_q;
  end

  logic [WAYS-1:0] match;
  logic [51:0] match_page;
  logic [WW-1:0] match_way;
  always_comb begin
    match_page = '0;
    match_way  = '0;
    for (int unsigned w = 0; w < WAYS; w++) begin
      match[w] = entries[ENTRY*w+100] && (entries[ENTRY*w+99] || !b_write_q)
          && entries[ENTRY*w+52+:47] == {b_asid_q, b_vpn_q[47:9]} && b_vpn_q[51:48] == 0;
      // A page stands in one place only (the driver sees to it).
      match_page |= entries[ENTRY*w+:52] & {52{match[w]}};
      match_way  |= WW'(w) & {WW{match[w]}};
    end
  end

  always_ff @(posedge clk) begin
    b_q <= a_q;
    {b_who_q, b_write_q, b_release_q, b_back_q, b_last_q} <= {a_who_q, a_write_q, a_release_q, a_back_q, a_last_q};
    {b_asid_q, b_vpn_q, b_row0_q, b_row1_q} <= {a_asid_q, a_vpn_q, row0, row1};
    c_q <= b_q;
    {c_who_q, c_release_q, c_back_q, c_last_q} <= {b_who_q, b_release_q, b_back_q, b_last_q};
    c_hit_q   <= match != 0;
    c_page_q  <= match_page;
    c_index_q <= {match_way[WW-1] ? b_row1_q : b_row0_q, match_way};
    if (rst) {b_q, c_q} <= 2'd0;
  end

  // ---- DMA's answers ----------------------------------------------------------------
  assign lk_ack  = {c_q && c_who_q == WHO_WRITE, c_q && c_who_q == WHO_READ};
  assign lk_hit  = c_hit_q;
  assign lk_page = c_page_q;
  always_ff @(posedge clk)
    if (rst) asked_q <= '0;
    else asked_q <= (asked_q | {issue && pick == WHO_WRITE, issue && pick == WHO_READ}) & ~lk_ack;

  // ---- Counts ------------------------------------------------------------------------- After a miss no further page
  // of the range is counted. Two uses of a page in a row meet in the last stage.
  logic [USERS-1:0] missed_q;
  logic [COUNT-1:0] counts[ROWS*WAYS];
  logic [COUNT-1:0] count_q, past_q, count, count_new;
  logic same_q, cwe;
  logic [IW-1:0] cat, cwat;
  logic [COUNT-1:0] cput;
  logic [IW-1:0] clear_q;
  // "In use" is no final answer to an eviction while counted pages may be given back at once. The eviction is then
  // tried again, and no range begins meanwhile.
  localparam logic [1:0] INSTALL = berth_row_pkg::CHANGE_INSTALL;
  localparam logic [1:0] EVICT = berth_row_pkg::CHANGE_EVICT;
  logic again_q, ev_space, wait_q;
  logic [2:0] open_q;
  wire evict_now = count_q == 0;
  wire final_now = evict_now || r_busy == 0;
  wire ch_done = state_q == CHANGE && (ch.op != EVICT || (ev_space && final_now));
  wire range_c = c_q && c_who_q < WHO_READ;
  wire behind = missed_q[c_who_q[1:0]];
  wire counted_c = range_c && c_hit_q && (c_release_q || !behind);

  assign count = same_q ? past_q : count_q;
  assign count_new = d_release_q ? count - 1'b1 : count + 1'b1;
  assign d_we_q = d_q && (d_release_q ? count != 0 : count != '1);
  assign an_zero = d_release_q && d_q && count_new == 0;
  assign cat = state_q == RUN ? c_index_q : state_q == CLEAR ? clear_q : c_q ? c_index_q : ch.index[IW-1:0];
  always_comb begin
    cwe  = d_we_q;
    cwat = d_index_q;
    cput = count_new;
    if (state_q == CLEAR) {cwe, cwat, cput} = {1'b1, clear_q, COUNT'(0)};
    // A page that is installed or evicted is not in use.
    else if (state_q == CHANGE) {cwe, cwat, cput} = {ch_done, ch.index[IW-1:0], COUNT'(0)};
    if (state_q == CHANGE && ch.op == EVICT && !evict_now) cwe = 1'b0;
  end
  always_ff @(posedge clk) begin
    if (cwe) counts[cwat] <= cput;
    count_q <= counts[cat];
  end

  always_ff @(posedge clk) begin
    d_q         <= counted_c;
    d_release_q <= c_release_q;
    d_index_q   <= c_index_q;
    same_q      <= d_q && counted_c && d_index_q == c_index_q;
    past_q      <= d_we_q ? count_new : count;
    for (int unsigned i = 0; i < USERS; i++) an_valid[i] <= range_c && !c_back_q && c_who_q == 3'(i);
    an_last_q    <= c_last_q;
    an_counted_q <= c_hit_q && !behind;
    if (range_c && !c_back_q) missed_q[c_who_q[1:0]] <= !c_last_q && !c_release_q && (behind || !c_hit_q);
    if (rst) begin
      d_q      <= 1'b0;
      an_valid <= '0;
      missed_q <= '0;
    end
  end

  // ---- Changes --------------------------------------------------------------------------
  wire evict_event = ch_done && ch.op == EVICT && !ch.more;
  wire at_home = row_of(ch.index[WW-1], ch.asid, {4'd0, ch.vpn}) == ch.index[IW-1:WW];
  assign ch_ready = ch_done;
  assign changing = state_q == CHANGE || state_q == CLEAR;
  assign block = again_q;

  always_comb begin
    we   = '0;
    wrow = ch.index[IW-1:WW];
    went = '0;
    if (state_q == CLEAR) begin
      we   = '1;
      wrow = clear_q[IW-1:WW];
    end else if (ch_done && (ch.op != EVICT || evict_now)) begin
      we[ch.index[WW-1:0]] = 1'b1;
      if (ch.op == INSTALL) went = {at_home, ch.write, ch.asid, ch.vpn[47:9], ch.page};
    end
  end

  always_ff @(posedge clk) begin
    if (open_q != 0) open_q <= open_q - 1;
    wait_q <= 1'b0;
    unique case (state_q)
      CLEAR: begin
        clear_q <= clear_q + 1'b1;
        if (clear_q == '1) state_q <= RUN;
      end
      RUN: if (ch_valid && (open_q == 0 || !any)) state_q <= DRAIN;
      // The count at ch.index is read once nothing is under way.
      DRAIN:
      if (!ch_valid) state_q <= RUN;
      else if (!(a_q || b_q || c_q || d_q)) begin
        wait_q <= 1'b1;
        if (wait_q) state_q <= CHANGE;
      end
      CHANGE: begin
        state_q <= RUN;
        open_q  <= 3'd4;
        again_q <= !ch_done;
        // The next one's count is read meanwhile.
        if (ch_done && ch.more) begin
          state_q <= DRAIN;
          wait_q  <= 1'b1;
        end
      end
    endcase
    if (rst) begin
      state_q <= CLEAR;
      clear_q <= '0;
      open_q  <= '0;
      again_q <= 1'b0;
    end
  end

  // ---- Answers ----------------------------------------------------------------------------
  logic [9:0] rsp_used_q;
  logic rsp_space;
  wire rdy_cpu = rdy.tag[17:16] == 2'd0;
  wire rsp_push = out_valid[0] || (rdy_valid && rdy_ready && rdy_cpu);
  // Room is kept for answers that are under way.
  assign cpu_room = rsp_used_q < 10'd480;
  berth_card_pkg::range_answer_t answer;
  localparam int unsigned ANSWER_W = $bits(answer);
  logic [2*ANSWER_W-1:0] xr_bits;
  assign xr = xr_bits;
  always_comb begin
    rdy_ready = rdy_cpu ? rsp_used_q < 10'd500 && !out_valid[0] : 1'b1;
    for (int unsigned u = 0; u < 2; u++) begin
      xr_valid[u]   = out_valid[u+1];
      answer.tag    = out_tag[16*(u+1)+:16];
      answer.kind   = out_hit[u+1] ? berth_regs_pkg::XLT_HIT[1:0] : berth_regs_pkg::XLT_MISS[1:0];
      answer.status = 8'd0;
      if (rdy.tag[17:16] == 2'(u + 1)) begin
        rdy_ready = !out_valid[u+1] && xr_room[u];
        if (!out_valid[u+1]) begin
          xr_valid[u]   = rdy_valid && xr_room[u];
          answer.tag    = rdy.tag[15:0];
          answer.kind   = berth_regs_pkg::XLT_READY[1:0];
          answer.status = rdy.status;
        end
      end
      xr_bits[ANSWER_W*u+:ANSWER_W] = answer;
    end
    inc_hit  = '0;
    inc_miss = '0;
    for (int unsigned i = 0; i < USERS; i++) begin
      inc_hit  = inc_hit + 2'(out_valid[i] && out_hit[i]);
      inc_miss = inc_miss + 2'(out_valid[i] && !out_hit[i]);
    end
  end

  berth_regs_pkg::cpu_xlt_rsp_t rsp_word;
  always_comb begin
    rsp_word        = '0;
    rsp_word.valid  = 1'b1;
    rsp_word.kind   = berth_regs_pkg::XLT_READY[3:0];
    rsp_word.status = rdy.status;
    rsp_word.tag    = rdy.tag[15:0];
    if (out_valid[0]) begin
      rsp_word.kind   = out_hit[0] ? berth_regs_pkg::XLT_HIT[3:0] : berth_regs_pkg::XLT_MISS[3:0];
      rsp_word.status = '0;
      rsp_word.tag    = out_tag[15:0];
    end
  end
  berth_fifo #(
      .WIDTH(32),
      .DEPTH(512)
  ) rsp_fifo (
      .clk,
      .rst,
      .wr_valid(rsp_push),
      .wr_ready(rsp_space),
      .wr_data(rsp_word),
      .rd_valid(rsp_valid),
      .rd_ready(rsp_ready),
      .rd_data(rsp_data)
  );
  always_ff @(posedge clk)
    if (rst) rsp_used_q <= '0;
    else rsp_used_q <= rsp_used_q + 10'(rsp_push) - 10'(rsp_valid && rsp_ready);

  // ---- Events: evictions first, then the ranges in turn ---------------------------------------
  logic [1:0] ev_turn_q, ev_pick, j;
  logic ev_any;
  always_comb begin
    ev_any  = 1'b0;
    ev_pick = '0;
    j       = ev_turn_q;
    for (int unsigned i = 0; i < USERS; i++) begin
      if (!ev_any && rev_valid[j]) begin
        ev_any  = 1'b1;
        ev_pick = j;
      end
      j = j == 2'(USERS - 1) ? 2'd0 : j + 2'd1;
    end
    for (int unsigned i = 0; i < USERS; i++)
      rev_ready[i] = ev_any && ev_pick == 2'(i) && ev_space && !evict_event;
  end
  always_ff @(posedge clk)
    if (rst) ev_turn_q <= '0;
    else if (rev_ready != 0) ev_turn_q <= ev_pick == 2'(USERS - 1) ? 2'd0 : ev_pick + 2'd1;

  // Pages of the command so far, half a word each.
  logic [11:0][15:0] evicted_q, evicted;
  logic [3:0] evicted_n_q;
  berth_regs_pkg::evicted_page_t evicted_page;
  berth_regs_pkg::pages_t evicted_pages;
  always_comb begin
    evicted_page         = '0;
    evicted_page.dropped = evict_now;
    evicted_page.index   = ch.index;
    evicted = evicted_q;
    for (int unsigned i = 0; i < 12; i++) if (evicted_n_q == 4'(i)) evicted[i] = evicted_page;
    evicted_pages         = '0;
    evicted_pages.further = evicted_n_q;
    evicted_pages.code    = berth_regs_pkg::EV_PAGE_EVICTED[7:0];
  end
  always_ff @(posedge clk)
    if (rst || evict_event) begin
      evicted_n_q <= '0;
      evicted_q   <= '0;
    end else if (ch_done && ch.op == EVICT) begin
      evicted_n_q <= evicted_n_q + 1'b1;
      evicted_q   <= evicted;
    end
  wire [7*32-1:0] evict_words = {evicted, evicted_pages};
  berth_fifo #(
      .WIDTH(7 * 32),
      .DEPTH(16)
  ) ev_fifo (
      .clk,
      .rst,
      .wr_valid(evict_event || ev_any),
      .wr_ready(ev_space),
      .wr_data(evict_event ? evict_words : rev_words[7*32*32'(ev_pick)+:7*32]),
      .rd_valid(xev_valid),
      .rd_ready(xev_ready),
      .rd_data(xev_words)
  );

  // An entry that has just gone into a FIFO cannot be seen at its end yet.
  logic [4:0] ev_used_q;
  always_ff @(posedge clk)
    if (rst) ev_used_q <= '0;
    else ev_used_q <= ev_used_q + 5'((evict_event || ev_any) && ev_space) - 5'(xev_valid && xev_ready);
  assign busy = state_q != RUN || ch_valid || lk_req != 0 || r_busy != 0 || xhead_valid || xa_valid != 0 || rdy_valid
      || ev_used_q != 0 || (rsp_used_q != 0 && !rsp_valid) || a_q || b_q || c_q || d_q;

  wire unused = &{1'b0, b_vpn_q};

  // A page stands in one place; one user is answered at a time; room is kept for answers.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!b_q || $countones(match) <= 1);
      assert ($countones({lk_ack, range_c}) <= 1);
      assert (!rsp_push || rsp_space);
      assert (state_q != CHANGE || (ch_valid && !(a_q || b_q || c_q || d_q)));
      assert (evicted_n_q < 4'd12);
    end
endmodule
