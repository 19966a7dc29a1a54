// SPDX-License-Identifier: Apache-2.0 OR MIT
// Acquires and releases ranges of pages for one user of the translation table, one page per cycle.
//
// Several ranges may be under way: the next one begins while the last one's answers are out. All pages
// of a range are counted or none: after a miss the table counts no further page of it (berth_xlt), and
// those before are given back here. So are all pages of a range that is only asked after (`probe`).
module berth_xlt_range #(
    // 1: the host is told of each release; 0: only of one that leaves a page unused, and only with `tell`.
    parameter bit TELL_ALL = 1'b0,
    // Says in the host's events, and so in its answers, whose range it is.
    parameter logic [1:0] USER = 2'd0
) (
    input  logic                       clk,
    input  logic                       rst,
    // Ranges. No new one begins while `block`.
    input  logic                       go_valid,
    output logic                       go_ready,
    input  berth_card_pkg::range_ask_t go,
    input  logic                       block,
    input  logic                       tell,
    // Pages to the table; a page that is given back has no answer.
    output logic                       pg_valid,
    input  logic                       pg_ready,
    output berth_card_pkg::page_use_t  pg,
    // Answers, in order; `an_counted`: found, and not behind a miss.
    input  logic                       an_valid,
    input  logic                       an_last,
    input  logic                       an_counted,
    input  logic                       an_zero,  // the page is not in use any more
    // The range of this tag is there and, unless it was only asked after, held (hit), or the host will be asked, unless it
    // is `quiet`. Releases have no answer.
    output logic                       out_valid,
    output logic                       out_hit,
    output logic [15:0]                out_tag,
    // To the event writer: words 0 to 6.
    output logic                       ev_valid,
    input  logic                       ev_ready,
    output logic [7*32-1:0]            ev_words,
    output logic                       busy
);
  localparam int unsigned FLYING = 8;  // ranges under way


  // ---- Issue ------------------------------------------------------------------
  logic cur_q, release_q, write_q;
  logic [7:0] asid_q;
  logic [51:0] vpn_q;
  logic [19:0] left_q;      // pages after this one
  logic [3:0] room_q;       // ranges that may begin
  logic giving_q, after_valid, after_pop;
  logic [19:0] give_q;      // pages to give back
  logic [51:0] give_vpn_q;
  berth_card_pkg::range_ask_t after;
  logic [19:0] after_done;
  logic after_tell;

  wire [31:0] span = {1'b0, go.len == 0 ? 31'd1 : go.len} + 32'(go.va[11:0]) + 32'd4095;
  wire giving = giving_q && give_q != 0;
  wire issue = pg_valid && pg_ready;
  wire begins = go_valid && go_ready;

  assign go_ready = !block && room_q != 0 && !giving && (!cur_q || (pg_ready && left_q == 0));
  assign pg_valid = cur_q || giving;
  assign pg.undo = !cur_q;
  assign pg.give_back = cur_q ? release_q : 1'b1;
  assign pg.write = cur_q ? write_q : after.write;
  assign pg.asid = cur_q ? asid_q : after.asid;
  assign pg.vpn = cur_q ? vpn_q : give_vpn_q;
  assign pg.last = left_q == 0;

  // ---- Answers ----------------------------------------------------------------
  berth_card_pkg::range_ask_t flying;
  logic flying_valid, flying_room, after_room;
  logic all_q, zero_q;
  logic [19:0] done_q;
  wire verdict = an_valid && an_last;
  wire hit = all_q && an_counted;
  wire tell_host = flying.give_back ? TELL_ALL || (tell && (zero_q || an_zero)) : !hit && !flying.quiet;
  wire keeps = flying.give_back || (hit && !flying.probe);
  wire after_push = verdict && (tell_host || !keeps);

  assign out_valid = verdict && !flying.give_back;
  assign out_hit   = hit;
  assign out_tag   = flying.tag;
  assign busy      = room_q != 4'(FLYING);

  berth_lutfifo #(
      .WIDTH($bits(flying)),
      .DEPTH(FLYING)
  ) flying_fifo (
      .clk,
      .rst,
      .wr_valid(begins),
      .wr_ready(flying_room),
      .wr_data(go),
      .rd_valid(flying_valid),
      .rd_ready(verdict),
      .rd_data(flying)
  );

  // Ranges of which pages are to be given back, and that the host is to be told of after that.
  berth_lutfifo #(
      .WIDTH(21 + $bits(flying)),
      .DEPTH(FLYING)
  ) after_fifo (
      .clk,
      .rst,
      .wr_valid(after_push),
      .wr_ready(after_room),
      .wr_data({tell_host, flying.give_back ? 20'd0 : done_q + 20'(an_counted && all_q), flying}),
      .rd_valid(after_valid),
      .rd_ready(after_pop),
      .rd_data({after_tell, after_done, after})
  );

  berth_regs_pkg::page_need_t need;
  berth_regs_pkg::page_release_t released;
  always_comb begin
    need           = '0;
    need.code      = berth_regs_pkg::EV_PAGE_NEED[7:0];
    need.tag       = {14'd0, USER, after.tag};
    need.asid      = 32'(after.asid);
    need.write     = after.write;
    need.va        = after.va;
    need.len       = 32'(after.len);
    released       = '0;
    released.code  = berth_regs_pkg::EV_PAGE_RELEASE[7:0];
    released.tag   = need.tag;
    released.asid  = need.asid;
    released.wrote = need.write;
    released.va    = need.va;
    released.len   = need.len;
  end
  assign ev_valid = giving_q && give_q == 0 && after_tell;
  assign ev_words = after.give_back ? released : need;
  assign after_pop = giving_q && give_q == 0 && (ev_ready || !after_tell);

  always_ff @(posedge clk) begin
    if (issue) begin
      if (cur_q) begin
        vpn_q  <= vpn_q + 1;
        left_q <= left_q - 1;
        if (left_q == 0) cur_q <= 1'b0;
      end else begin
        give_vpn_q <= give_vpn_q + 1;
        give_q     <= give_q - 1;
      end
    end
    if (begins) begin
      cur_q     <= 1'b1;
      release_q <= go.give_back;
      write_q   <= go.write;
      asid_q    <= go.asid;
      vpn_q     <= go.va[63:12];
      left_q    <= span[31:12] - 20'd1;
    end
    if (an_valid) begin
      all_q  <= an_last || hit;
      zero_q <= !an_last && (zero_q || an_zero);
      done_q <= an_last ? '0 : done_q + 20'(an_counted && all_q);
    end
    // A range that is not kept, or that the host is to be told of, keeps its place until that is done.
    room_q <= room_q - 4'(begins) + 4'(verdict && !after_push) + 4'(after_pop);
    if (after_pop) giving_q <= 1'b0;
    else if (after_valid && !giving_q) begin
      giving_q   <= 1'b1;
      give_q     <= after_done;
      give_vpn_q <= after.va[63:12];
    end
    if (rst) begin
      cur_q    <= 1'b0;
      giving_q <= 1'b0;
      all_q    <= 1'b1;
      zero_q   <= 1'b0;
      done_q   <= '0;
      room_q   <= 4'(FLYING);
    end
  end

  // Answers belong to ranges; there is room for what is under way.
  always_ff @(posedge clk)
    if (!rst) assert ((!an_valid || flying_valid) && (!begins || flying_room) && (!after_push || after_room));

  wire unused = &{1'b0, span[11:0], after};
endmodule
