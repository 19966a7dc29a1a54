// SPDX-License-Identifier: Apache-2.0 OR MIT
// Grants (PC-1): acquires the pages of pending receives, several ahead, and makes a credit of each receive whose
// pages are all held, in order. Batches are committed whole (decision 5).
//
// Ranges are acquired in chunks of at most 1 MiB; up to 16 chunks of a QP are on their way. An operation takes three
// clocks (read; look up; decide and store), and the next begins with the third; of the same QP, it takes the row from
// the register instead of the RAM.
//
// What is granted or asked for is undone in two ways. Going back (`rewind`): chunks that are held are released as they
// come, then the newest receives, until the next credit is the number wanted; then all is asked for anew. The end
// (`ended`): chunks likewise, then every receive completes in its turn with the status given; nothing is asked for, and
// granted receives do not go back any more, because they may be complete.
//
// Receives that are not granted can be given back to the program (`drain`): up to a number, each completes in its turn as
// recalled, and nothing is asked for it. Those behind it are granted as ever.
module berth_fp_grant #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS),
    // Bits of a beat of the wire.
    parameter int unsigned DATA_W = 64
) (
    input  logic                          clk,
    input  logic                          rst,
    output logic                          busy,
    input  logic [31:0]                   now,          // units of 64 clocks
    // Commands; held until ready. What they answer (gr_st) is there three clocks later.
    input  logic                          cmd_valid,
    output logic                          cmd_ready,
    input  logic [QW-1:0]                 cmd_q,
    input  berth_card_pkg::grant_step_t   cmd,
    output berth_card_pkg::grant_state_t  gr_st,
    // After the end, all that was being written for a QP is complete; held until ready.
    input  logic                          quiet_valid,
    output logic                          quiet_ready,
    input  logic [QW-1:0]                 quiet_q,
    // Pending receives: see `berth_fp_recv_wqe`; their ranges: see `berth_fp_sges`.
    output logic                          grant_re,
    input  logic                          grant_ok,
    output logic [QW+7:0]                 grant_at,
    input  berth_card_pkg::range_t        grant_sge,
    input  logic                          pend_we,
    input  logic [QW+6:0]                 pend_at,
    input  berth_card_pkg::pending_t      pend,
    input  logic                          parsed_we,
    input  logic [QW-1:0]                 parsed_q,
    input  logic [15:0]                   parsed,
    // What is complete: see `berth_fp_recv_complete`.
    input  logic                          freed_we,
    input  logic [QW-1:0]                 freed_q,
    input  berth_card_pkg::freed_t        freed,
    input  logic                          given_we,
    input  berth_card_pkg::given_t        given,        // of `freed_q`
    // A list has left: see `berth_fp_builder`.
    input  logic                          told_valid,
    output logic                          told_room,
    input  logic [QW-1:0]                 told_q,
    input  berth_card_pkg::told_t         told,
    input  logic                          proof_valid,  // its first data have come
    input  logic [QW-1:0]                 proof_q,
    // Acquisitions, and their answers.
    output logic                          acq_valid,
    input  logic                          acq_ready,
    output berth_card_pkg::range_ask_t    acq,          // tag: {q, place in the window}; gives back what a receive held when the rest of it could not be had
    input  logic                          xr_valid,
    output logic                          xr_ready,
    input  berth_card_pkg::range_answer_t xr,
    // Receives that become credits: for the rings of arrival and done, and for the builder.
    output logic                          ring_we,
    output logic [QW-1:0]                 ring_q,
    output logic [ 6:0]                   ring_at,      // credit modulo 128
    output berth_card_pkg::ring_t         ring,
    output logic                          post_valid,
    input  logic                          post_ready,
    output logic [QW-1:0]                 post_q,
    output berth_card_pkg::post_t         post,
    // Receives that complete without data, or only release what they hold.
    output logic                          aside_valid,
    input  logic                          aside_ready,
    output logic [QW-1:0]                 aside_q,
    output berth_card_pkg::aside_t        aside,
    // Pulses.
    output logic                          ev_hit,
    output logic                          ev_miss,
    output logic                          ev_stray      // the host answers what it was not asked
);
  localparam logic [1:0] HIT = berth_regs_pkg::XLT_HIT[1:0];
  localparam logic [1:0] MISS = berth_regs_pkg::XLT_MISS[1:0];
  localparam logic [1:0] READY = berth_regs_pkg::XLT_READY[1:0];
  localparam logic [7:0] WC_OK = berth_regs_pkg::WC_OK[7:0];
  localparam logic [7:0] WC_RECALLED = berth_regs_pkg::WC_RECALLED[7:0];
  localparam logic [7:0] WC_BAD_WQE = berth_regs_pkg::WC_BAD_WQE[7:0];
  localparam logic [7:0] WC_LOCAL_PROTECTION = berth_regs_pkg::WC_LOCAL_PROTECTION[7:0];
  localparam logic [7:0] WC_OVER_BUDGET = berth_regs_pkg::WC_OVER_BUDGET[7:0];
  localparam logic [7:0] WC_NO_MEMORY = berth_regs_pkg::WC_NO_MEMORY[7:0];
  localparam logic [7:0] PAGE_OVER_BUDGET = berth_regs_pkg::PAGE_OVER_BUDGET[7:0];
  localparam logic [7:0] PAGE_NO_MEMORY = berth_regs_pkg::PAGE_NO_MEMORY[7:0];
  // Commands. START: begin. END: nothing is granted any more, see above. QUERY. HOLD: nothing becomes a credit until
  // VOID. STOP: the same until UNPOST. VOID, UNPOST: go back. REST: no receive is asked for until SQUEEZE, so that others
  // may have what goes back. SQUEEZE: memory is short, see `serial`. CANCEL: see `drain`. LOOK at a receive; MARK it as
  // withdrawn; LET_GO of it.

  typedef struct packed {
    logic        on;
    logic [7:0]  asid;
    logic [15:0] ask;        // receive that is being asked for
    logic [2:0]  ask_range;  // its range ...
    logic [31:0] ask_at;     // ... from this byte on
    logic [7:0]  sge;        // that range's place in the ring
    logic [7:0]  ask_w;      // chunks asked for
    logic [7:0]  have_w;     // chunks held, in order
    logic [15:0] used;       // chunks of the window: asked for ...
    logic [15:0] waits;      // ... the host works on it ...
    logic [15:0] held;       // ... answered for good ...
    logic [15:0] own;        // ... with memory, which is held ...
    logic [15:0] refused;    // ... or in vain ...
    logic [15:0] budget;     // ... as they do not fit the budget
    logic [15:0] memory;     // ... as the host had no memory
    logic [15:0] final_w;    // the last of their receive
    logic [15:0] grant;      // receive that is granted next
    logic [7:0]  credit;     // its credit
    logic        open;       // something is posted and not committed
    logic        failed;     // a chunk of the receive was refused (decision 20) ...
    logic        over;       // ... as it does not fit the budget ...
    logic        short_of;   // ... as the host had no memory ...
    logic [15:0] got;        // ... after so many that are held
    logic [1:0]  hold;       // nothing becomes a credit: until VOID; until UNPOST
    logic        rewind;     // going back ...
    logic [7:0]  back;       // ... by so many receives
    // Memory is short: what is granted is committed, and until one more is, only that one is asked for, so that nothing
    // is held ahead of what waits.
    logic        serial;
    logic        rest;       // no receive is asked for
    // Bytes asked for, without what went back from here. No more than so many 4 KiB are held or asked for (0: no bound);
    // if there is a `most`, what round trip and services take is added, up to that.
    logic [31:0] asked;
    logic [15:0] limit, most;
    logic        limited;    // ... which is why no further receive is asked for
    // With `most`: the last chunk asked for was pinned already, so that nothing is pinned for this QP: no bound.
    logic        warm;
    logic [15:0] missed;     // chunks that were not
    // With `most`: bytes asked for and not announced, all of a receive until then or until it completes by itself; of the
    // last list without its proof, and of that whose data come.
    logic [31:0] fresh, newest, older;
    logic [31:0] since;      // when they began to come
    // Bytes of the list that is being asked for. One is asked for as a whole and not in hand yet: up to this chunk.
    logic [31:0] part;
    logic        closed;
    logic [7:0]  end_w;
    logic        whole;      // ... it is in hand, and waits until ...
    logic        waiting;    // ... the one before it, which the builder has, has left
    logic [31:0] pace;       // bytes asked for ...
    logic [31:0] burst;      // ... since then: the last proof, or 64 units after the last such time
    logic [15:0] round;      // shortest time from a list to its first data
    logic [26:0] serve;      // shortest time from asking for a chunk to the host's answer; both as the builder's `round`
    logic        ended;
    logic [7:0]  status;     // of all receives after the end
    logic        flush;      // receives that were credits complete, up to `grant` ...
    logic [15:0] flushed;    // ... this one next
    logic        drain;      // receives complete as recalled from `grant` on ...
    logic [15:0] drain_to;   // ... up to this one
  } row_t;
  typedef enum logic [1:0] {IDLE, LOOK, DECIDE} state_t;
  typedef enum logic [2:0] {ASK, ANSWER, ADVANCE, COMMAND, TOLD, PROOF} op_t;

  state_t state_q;
  op_t op, op_q;
  logic take, may, go, we;
  logic [QW-1:0] q_next, q_q;
  logic [3:0] slot_q;
  logic [1:0] kind_q;
  logic [7:0] status_q;
  logic [3:0] look_slot;
  logic [4:0] cmd_q_op;
  logic [7:0] asid_q, end_q, first_q, sge_q;
  logic [15:0] recv_q;
  logic ask_valid, adv_valid, ask_pop, adv_pop, ask_busy, adv_busy;
  logic [QW-1:0] ask_q, adv_q, wait_q, t_q;
  logic t_valid, t_pop, wait_valid, wait_pop, wait_busy;
  logic [31:0] bytes_q;
  berth_card_pkg::told_t t;
  logic proven_valid, proven_pop, proven_busy;
  logic [QW-1:0] proven_q;
  logic [15:0] round_q;

  // Answers go first; asking and advancing take turns.
  logic turn_q;
  always_comb begin
    may    = state_q == IDLE || (state_q == DECIDE && go);
    op     = COMMAND;
    q_next = cmd_valid ? cmd_q : quiet_q;
    take   = cmd_valid || quiet_valid;
    if (!cmd_valid && !quiet_valid) begin
      if (t_valid) {op, q_next, take} = {TOLD, t_q, 1'b1};
      else if (proven_valid) {op, q_next, take} = {PROOF, proven_q, 1'b1};
      else if (xr_valid) {op, q_next, take} = {ANSWER, xr.tag[4+:QW], 1'b1};
      else if (adv_valid && (turn_q || !ask_valid)) {op, q_next, take} = {ADVANCE, adv_q, 1'b1};
      else if (ask_valid) {op, q_next, take} = {ASK, ask_q, 1'b1};
    end
    take = take && may;
  end
  assign cmd_ready = take && cmd_valid;
  assign quiet_ready = take && !cmd_valid && quiet_valid;
  assign t_pop     = take && op == TOLD;
  assign proven_pop = take && op == PROOF;
  assign xr_ready  = take && op == ANSWER;
  assign ask_pop   = take && op == ASK;
  assign adv_pop   = take && op == ADVANCE;
  assign busy      = state_q != IDLE || ask_busy || adv_busy || wait_busy || proven_busy || t_valid || xr_valid || acq_valid;

  // Lists that have left.
  berth_lutfifo #(
      .WIDTH(QW + $bits(t)),
      .DEPTH(4)
  ) lists (
      .clk,
      .rst,
      .wr_valid(told_valid),
      .wr_ready(told_room),
      .wr_data({told_q, told}),
      .rd_valid(t_valid),
      .rd_ready(t_pop),
      .rd_data({t_q, t})
  );

  // ---- memories --------------------------------------------------------------------------
  logic [31:0] n_given, n_given_q;
  logic [1:0] n_hollow, n_hollow_q;
  row_t ram_row, row, r_q, r;
  logic same_q;     // the operation before was of the same QP: its row is in r_q
  logic [15:0] n_parsed, n_parsed_q, n_freed, n_freed_q, look_recv;
  logic [63:0] wr_id, va, again_va;
  logic [31:0] size, rest;
  logic [15:0] then;
  logic [20:0] chunk, bound, again_len;
  logic [7:0] first_range;
  logic [2:0] ranges;
  logic p_last, p_local, p_bad;

  // A row that is written while it is asked for comes from the register; of receives only those that are parsed count.
  berth_fp_mem #(
      .WIDTH($bits(r)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_rows (
      .clk,
      .we(state_q == DECIDE && go && we),
      .waddr(q_q),
      .wdata(r),
      .re(take),
      .raddr(q_next),
      .rdata(ram_row)
  );
  berth_fp_mem #(
      .WIDTH(16),
      .DEPTH(QPS)
  ) m_parsed (
      .clk,
      .we(parsed_we),
      .waddr(parsed_q),
      .wdata(parsed),
      .re(take),
      .raddr(q_next),
      .rdata(n_parsed)
  );
  berth_fp_mem #(
      .WIDTH(16),
      .DEPTH(QPS)
  ) m_freed (
      .clk,
      .we(freed_we),
      .waddr(freed_q),
      .wdata(freed.recvs),
      .re(take),
      .raddr(q_next),
      .rdata(n_freed)
  );
  berth_fp_mem #(
      .WIDTH(32),
      .DEPTH(QPS)
  ) m_given (
      .clk,
      .we(given_we),
      .waddr(freed_q),
      .wdata(given.bytes),
      .re(take),
      .raddr(q_next),
      .rdata(n_given)
  );
  berth_fp_mem #(
      .WIDTH(2),
      .DEPTH(QPS)
  ) m_hollow (
      .clk,
      .we(given_we),
      .waddr(freed_q),
      .wdata(given.hollow),
      .re(take),
      .raddr(q_next),
      .rdata(n_hollow)
  );
  logic [QPS-1:0] started_q;  // rows that mean something, after a reset
  always_comb begin
    row    = same_q ? r_q : ram_row;
    row.on = row.on && started_q[q_q];
  end
  always_comb begin
    look_recv = row.grant;
    if (row.rewind && row.got == '0 && row.back != '0) look_recv = row.grant - 16'd1;
    else if (row.flush && row.got == '0) look_recv = row.flushed;
    if (op_q == ASK) look_recv = row.ask;
    if (op_q == COMMAND) look_recv = recv_q;
    // The chunk to release: the one that was answered, the oldest that is held in vain, or the oldest of all.
    look_slot = slot_q;
    if (op_q == ADVANCE) begin
      look_slot = row.have_w[3:0];
      if (row.ended || row.rewind)
        for (int unsigned i = 16; i > 0; i--) if (row.own[i-1]) look_slot = 4'(i - 1);
    end
  end
  berth_fp_mem #(
      .WIDTH($bits(pend)),
      .DEPTH(QPS * 128),
      .OWN(1'b1)
  ) m_pends (
      .clk,
      .we(pend_we),
      .waddr(pend_at),
      .wdata(pend),
      .re(state_q == LOOK),
      .raddr({q_q, look_recv[6:0]}),
      .rdata({wr_id, size, first_range, ranges, p_last, p_local, p_bad})
  );
  berth_fp_mem #(
      .WIDTH(101),  // when it was asked for, address, length
      .DEPTH(QPS * 16),
      .OWN(1'b1)
  ) m_chunks (
      .clk,
      .we(state_q == DECIDE && op_q == ASK && can_ask),
      .waddr({q_q, r_q.ask_w[3:0]}),
      .wdata({now[15:0], va, chunk}),
      .re(state_q == LOOK),
      .raddr({q_q, look_slot}),
      .rdata({then, again_va, again_len})
  );

  assign grant_re = state_q == LOOK && (op_q == ASK || op_q == COMMAND);
  assign grant_at = {q_q, op_q == COMMAND ? sge_q : row.sge};

  // ---- how much may be held (docs/internals/receiving.md) -------------------------------------------------
  // A sixteenth less than the wire carries in round trip and services, which are what was measured without the cards'
  // own part; in blocks of 64 KiB. A unit of time is so many bytes of the wire: 512 at 64 bits.
  // The cards' part, both times: lists, requests and answers (512 clocks), two packets of 4 KiB that are stored.
  localparam logic [16:0] CARDS = 17'd8 + 17'd1024 / 17'(DATA_W);
  localparam logic [16:0] NEXT = 17'd4 + 17'd1024 / 17'(DATA_W);  // from a proof to the next list
  localparam logic [15:0] LATE = 16'd7;        // until the host has pages back and their successors are known here
  localparam int unsigned UNIT_W = $clog2(DATA_W) + 3;
  // `Shortest` of the protocol. No time at all is one unit.
  logic [15:0] took;
  logic [26:0] served, served_aged;
  assign took        = now[15:0] - then;
  assign served      = {took == '0 ? 16'd1 : took, 11'd0};
  assign served_aged = &r_q.serve[26:20] ? r_q.serve : r_q.serve + 27'(r_q.serve[26:11]);
  logic [16:0] times;
  logic [20:0] grown;
  logic [31:0] may_hold, to_come, passed, came, list, fresh_less, fresh_left;
  logic [33:0] ahead, will_hold, all_out;   // a receive has up to 2 GiB
  always_comb begin
    times    = 17'(r_q.round) + 17'(r_q.serve[26:11]);
    times    = r_q.round == '0 || times < CARDS ? '0 : times - CARDS;
    grown    = 21'((37'(times) * 37'd15) << UNIT_W >> 16);
    if (grown > 21'(r_q.most)) grown = 21'(r_q.most);
    // A list lasts until the data of the next one come, which leaves behind what the MAC has: more receives where they
    // are not filled.
    list     = (32'(r_q.round) + 32'(NEXT)) << UNIT_W << n_hollow_q;
    may_hold = r_q.most == '0 ? {4'd0, r_q.limit, 12'd0}
                              : (32'(r_q.limit) + 32'(grown)) << 12;
    if (r_q.most != '0 && r_q.limit >= 16'd16) may_hold[15:0] = '0;
    // What will still be held of the list whose data come when what is asked for now comes.
    passed   = now - r_q.since + 32'(r_q.serve[26:11]);
    passed   = passed < 32'(LATE) ? '0 : passed - 32'(LATE);
    if (passed > 32'hfff) passed = 32'hfff;
    came     = (passed << UNIT_W) - (passed << UNIT_W >> 5);
    to_come  = came < r_q.older ? r_q.older - came : 32'd0;
    ahead     = 34'(r_q.fresh) + 34'(size) + 34'(r_q.newest);
    will_hold = ahead + 34'(to_come);
    // Modulo 2^32, so not in the cast, which would widen both first.
    all_out   = {2'd0, r_q.asked - n_given_q} + 34'(size);
    if (r_q.round == '0 || will_hold > all_out) will_hold = all_out;
    fresh_less = op_q == TOLD ? bytes_q : size;
    fresh_left = r_q.fresh > fresh_less ? r_q.fresh - fresh_less : 32'd0;
  end

  // ---- decide -----------------------------------------------------------------------------
  logic full, paced, stays, list_ends, too_long, too_much, too_soon, later, can_ask, range_ends, recv_ends, acquire, give, have, posts, want_local, more_ask, more_adv;
  logic local_turn, commit, failed, over, short_of, purge, mark, let_go, stray;
  logic skips, drains;     // the receive that is asked for next, or granted next, is only to complete
  logic [15:0] drain_left, skip_left;
  logic [3:0] at, at_slot_q;
  logic [7:0] ring_credit;
  logic [1:0] kind;
  logic [15:0] item_recv, item_chunks;
  always_comb begin
    r          = r_q;
    we         = 1'b0;
    acquire    = 1'b0;
    posts       = 1'b0;
    commit     = 1'b0;
    want_local = 1'b0;
    give       = 1'b0;
    more_ask   = 1'b0;
    more_adv   = 1'b0;
    // A chunk ends with its range, and at multiples of 1 MiB.
    va         = grant_sge.va + 64'(r_q.ask_at);
    rest       = grant_sge.len - r_q.ask_at;
    bound      = 21'h10_0000 - {1'b0, va[19:0]};
    chunk      = rest < 32'(bound) ? rest[20:0] : bound;
    range_ends = 32'(chunk) == rest;
    recv_ends  = ranges == '0 || (range_ends && r_q.ask_range + 3'd1 == ranges);
    drain_left = r_q.drain_to - r_q.grant;
    drains     = r_q.ended || r_q.drain;
    skip_left  = r_q.drain_to - r_q.ask;
    skips      = r_q.ended || (r_q.drain && skip_left != '0 && !skip_left[15]);
    can_ask    = r_q.on && !r_q.rewind && (!r_q.rest || r_q.ended) && !(r_q.serial && r_q.ask != r_q.grant) && r_q.ask != n_parsed_q && 8'(r_q.ask_w - r_q.have_w) < 8'd16;
    // A receive is asked for as a whole, and the oldest one whatever the bound.
    paced      = r_q.limit != '0 && r_q.most != '0 && !r_q.warm;
    // Asking for everything at once would keep the driver and the card's commands busy for long, so asking is limited
    // to eight times the wire's rate.
    too_soon   = paced && r_q.round != '0 && now - r_q.burst < 32'd64 && r_q.pace > (now - r_q.burst) << (UNIT_W + 3);
    too_long   = paced && r_q.part != '0
              && (33'(r_q.part) + 33'(size) > {2'd0, may_hold[31:1]} || (r_q.round != '0 && r_q.part >= list));
    too_much   = paced ? will_hold > 34'(may_hold) : r_q.asked - n_given_q >= {4'd0, r_q.limit, 12'd0};
    full       = r_q.limit != '0 && !r_q.warm && r_q.ask != n_freed_q && {r_q.ask_range, r_q.ask_at} == '0 && !skips
              && ((too_long && r_q.closed) || too_much || too_soon);
    later      = full && !(too_long && r_q.closed) && paced && (too_soon || to_come != '0) && ahead <= 34'(may_hold);
    stays      = paced && r_q.waiting;
    list_ends  = r_q.closed && r_q.have_w + 8'd1 == r_q.end_w;
    have       = 1'b0;
    local_turn = r_q.grant == n_freed_q;
    at         = r_q.have_w[3:0];
    failed     = r_q.failed || drains;
    over       = r_q.over;
    short_of   = r_q.short_of;
    purge      = r_q.ended || r_q.rewind;
    mark       = 1'b0;
    let_go     = 1'b0;
    // The host answers each request once.
    stray      = op_q == ANSWER && kind_q == READY && !(r_q.on && r_q.waits[slot_q]);
    kind       = berth_row_pkg::ASIDE_LOCAL;
    item_recv  = r_q.grant;
    item_chunks = r_q.got;
    ring_credit = r_q.credit;
    if (op_q == COMMAND) ring_credit = r_q.credit - 8'(r_q.grant - recv_q);
    case (op_q)
      ASK:
      if (can_ask && later) begin
        we        = 1'b1;
        r.limited = 1'b0;
      end else if (can_ask && full) begin
        // Granted receives must not wait for the rest of their batch.
        we        = 1'b1;
        r.limited = 1'b1;
        commit    = r_q.open && !stays && r_q.hold == '0 && r_q.have_w == r_q.ask_w;
        r.open    = r_q.open && !commit;
        if (commit) r.part = '0;
      end else if (can_ask) begin
        we      = 1'b1;
        r.limited = 1'b0;
        acquire = ranges != '0 && !skips;
        r.ask_w = r_q.ask_w + 8'd1;
        r.used[r_q.ask_w[3:0]]    = 1'b1;
        r.final_w[r_q.ask_w[3:0]] = recv_ends || skips;
        // A receive that asks for nothing takes a place in the window, so that order is kept.
        r.held[r_q.ask_w[3:0]]    = !acquire;
        r.own[r_q.ask_w[3:0]]     = 1'b0;
        r.waits[r_q.ask_w[3:0]]   = 1'b0;
        r.missed[r_q.ask_w[3:0]]  = 1'b0;
        r.refused[r_q.ask_w[3:0]] = 1'b0;
        more_adv = !acquire;
        // The list is long enough: another one begins with this receive.
        if (too_long && !r_q.closed && {r_q.ask_range, r_q.ask_at} == '0) begin
          r.part   = '0;
          r.closed = r_q.have_w != r_q.ask_w;
          r.end_w  = r_q.ask_w;
          commit   = !r.closed && !stays && r_q.open && r_q.hold == '0;
          r.whole  = r_q.whole || (!r.closed && stays && r_q.open);
          r.open   = r_q.open && !commit;
        end
        if (acquire) begin
          r.asked = r_q.asked + 32'(chunk);
          r.fresh = r_q.fresh + 32'(chunk);
          r.part  = r.part + 32'(chunk);
          r.pace  = now - r_q.burst < 32'd64 ? r_q.pace + 32'(chunk) : 32'(chunk);
          if (now - r_q.burst >= 32'd64) r.burst = now;
        end
        r.ask_at = range_ends ? 32'd0 : r_q.ask_at + 32'(chunk);
        if (!acquire) begin
          r.ask_at = '0;
          r.sge    = r_q.sge + 8'(ranges);
        end else if (range_ends) begin
          r.sge       = r_q.sge + 8'd1;
          r.ask_range = r_q.ask_range + 3'd1;
        end
        if (recv_ends || skips) begin
          r.ask       = r_q.ask + 16'd1;
          r.ask_range = '0;
        end
        more_ask = 1'b1;
      end
      COMMAND: begin
        we = 1'b1;
        case (cmd_q_op)
          berth_row_pkg::STEP_START: begin
            r      = '0;
            r.on   = 1'b1;
            r.asid = asid_q;
            r.limit = cmd.limit;
            r.most  = cmd.most;
          end
          berth_row_pkg::STEP_END: begin
            r.ended  = 1'b1;
            r.status = end_q;
          end
          berth_row_pkg::STEP_HOLD: r.hold[0] = 1'b1;
          berth_row_pkg::STEP_STOP: r.hold[1] = 1'b1;
          berth_row_pkg::STEP_VOID, berth_row_pkg::STEP_UNPOST: begin
            r.hold   = cmd_q_op == berth_row_pkg::STEP_VOID ? 2'd0 : {1'b0, r_q.hold[0]};
            if (!r_q.ended) begin
              r.rewind = 1'b1;
              r.open   = 1'b0;
              if (8'(r_q.credit - first_q) > r_q.back) r.back = r_q.credit - first_q;
            end
          end
          berth_row_pkg::STEP_REST: r.rest = 1'b1;
          berth_row_pkg::STEP_CANCEL:
          if (!r_q.ended) begin
            // What has been asked for goes back first.
            {r.rewind, r.rest, r.drain} = 3'b101;
            r.drain_to = recv_q;
          end
          berth_row_pkg::STEP_SQUEEZE: begin
            r.rest   = 1'b0;
            commit   = r_q.open && r_q.hold == '0;
            r.open   = r_q.open && !commit;
            r.serial = 1'b1;
            // Something is asked for behind the first that waits.
            if (r_q.ask != r_q.grant && (r_q.ask != r_q.grant + 16'd1 || {r_q.ask_range, r_q.ask_at} != '0)) r.rewind = 1'b1;
          end
          // Only receives that are not complete, because places of complete ones may have been reused.
          berth_row_pkg::STEP_MARK:   mark = 16'(n_freed_q - recv_q - 16'd1) >= 16'h8000;
          berth_row_pkg::STEP_LET_GO: begin
            let_go      = 16'(n_freed_q - recv_q - 16'd1) >= 16'h8000;
            kind        = berth_row_pkg::ASIDE_RELEASE;
            item_recv   = recv_q;
            item_chunks = '1;
          end
          berth_row_pkg::STEP_QUIET: begin
            r.flush   = 1'b1;
            r.flushed = n_freed_q;
          end
          default: ;
        endcase
        more_adv   = cmd_q_op != berth_row_pkg::STEP_START;
        more_ask   = cmd_q_op == berth_row_pkg::STEP_END || cmd_q_op == berth_row_pkg::STEP_SQUEEZE;
        want_local = let_go;
      end
      TOLD: begin
        we       = 1'b1;
        r.fresh  = fresh_left;
        r.newest = bytes_q;
        // This list has no proof, because the one before was recalled.
        if (r_q.newest != '0) begin
          r.older = r_q.newest;
          r.since = now;
        end
        r.round  = round_q;
        // The waiting list goes now if it is whole, or if there is nothing more.
        commit    = r_q.open && r_q.hold == '0
                 && (r_q.whole || (r_q.have_w == r_q.ask_w && (r_q.limited || r_q.ask == n_parsed_q)));
        r.open    = r_q.open && !commit;
        r.whole   = 1'b0;
        r.waiting = 1'b0;
        if (commit && !r_q.whole) r.part = '0;
        more_ask  = 1'b1;
        more_adv  = 1'b1;
      end
      PROOF: begin
        we       = 1'b1;
        r.newest = '0;
        r.older  = r_q.newest;
        r.since  = now;
        r.burst  = now;
        r.pace   = '0;
        more_ask = 1'b1;
      end
      default: begin
        if (op_q == ANSWER && !stray) begin
          we = 1'b1;
          r.waits[slot_q] = kind_q == MISS;
          if (kind_q == MISS) begin
            r.missed[slot_q] = 1'b1;
            r.warm           = 1'b0;
          end
          if (kind_q == HIT && !r_q.missed[slot_q] && r_q.most != '0) r.warm = 1'b1;
          if (kind_q == HIT) begin
            r.held[slot_q] = 1'b1;
            r.own[slot_q]  = 1'b1;
          end
          // Chunks held in vain too: only a release tells the host that its pages are unused.
          if (kind_q == READY && status_q == '0) begin
            acquire = 1'b1;
            r.serve = r_q.serve == '0 || served < served_aged ? served : served_aged;
          end
          if (kind_q == READY && status_q != '0) begin
            r.held[slot_q]    = 1'b1;
            r.refused[slot_q] = 1'b1;
            r.budget[slot_q]  = status_q == PAGE_OVER_BUDGET;
            r.memory[slot_q]  = status_q == PAGE_NO_MEMORY;
            r.asked = r_q.asked - 32'(again_len);
          end
        end
        // Memory that came back may make room, or the bound may be gone.
        more_ask = r_q.limited && (op_q == ADVANCE || r.warm);
        if (purge && op_q == ANSWER) more_adv = 1'b1;
        else if (purge && r_q.own != '0) begin
          // Chunks that are held in vain go back, in whatever order they came.
          we       = 1'b1;
          give     = 1'b1;
          more_adv = 1'b1;
          r.own[at_slot_q] = 1'b0;
        end else if (purge && r_q.got != '0) begin
          we         = 1'b1;
          more_adv   = 1'b1;
          want_local = 1'b1;
          kind       = berth_row_pkg::ASIDE_PART;
          r.got      = '0;
        end else if (r_q.rewind && !(r_q.flush && r_q.back == '0)) begin
          // Announced receives complete first, because the host may owe answers for ever.
          we       = 1'b1;
          more_adv = 1'b1;
          if (r_q.back != '0) begin
            want_local  = 1'b1;
            kind        = berth_row_pkg::ASIDE_RELEASE;
            item_recv   = r_q.grant - 16'd1;
            item_chunks = '1;
            ring_credit = r_q.credit - 8'd1;
            r.grant     = r_q.grant - 16'd1;
            r.credit    = r_q.credit - 8'd1;
            r.back      = r_q.back - 8'd1;
          end else if (r_q.have_w != r_q.ask_w) begin
            more_adv = r_q.held[at];
            if (r_q.held[at]) begin
              r.held[at] = 1'b0;
              r.used[at] = 1'b0;
              r.have_w   = r_q.have_w + 8'd1;
            end
          end else begin
            {r.rewind, r.failed, r.over, r.short_of, r.ask_range} = '0;
            r.ask_at = '0;
            {r.closed, r.whole, r.waiting} = '0;
            r.fresh  = '0;
            r.part   = '0;
            r.ask    = r_q.grant;
            if (drain_left == '0 || drain_left[15]) r.drain = 1'b0;
            if (r_q.grant != n_parsed_q) r.sge = first_range;
            more_ask = 1'b1;
          end
        end else if (r_q.flush) begin
          want_local  = r_q.flushed != r_q.grant && r_q.flushed == n_freed_q;
          kind        = berth_row_pkg::ASIDE_FLUSH;
          item_recv   = r_q.flushed;
          item_chunks = '1;
          ring_credit = r_q.credit - 8'(r_q.grant - r_q.flushed);
          if (r_q.flushed == r_q.grant) r.flush = 1'b0;
          if (want_local) r.flushed = r_q.flushed + 16'd1;
          we       = want_local || !r.flush;
          more_adv = !r.flush;
        end else begin
          // The oldest chunk. If it was held already, releasing it is an operation of its own.
          have = r_q.have_w != r_q.ask_w && r.held[at] && (op_q == ADVANCE || slot_q == at);
          if (have) begin
            if (r.refused[at] && !failed) {failed, over, short_of} = {1'b1, r.budget[at], r.memory[at]};
            give = failed && r.own[at];
            if (!failed && r.own[at]) r.got = r_q.got + 16'd1;
          end
          item_chunks = r.got;
          if (have && r_q.final_w[at]) begin
            if (p_local || failed) begin
              // It completes in its turn; receives posted before it must not wait for the batch's end.
              want_local = local_turn;
              commit     = !local_turn && r_q.open && r_q.hold == '0;
              have       = local_turn;
              give       = give && local_turn;
              if (local_turn && !drains) begin
                r.fresh = fresh_left;
                if (!r_q.closed) r.part = r_q.part > size ? r_q.part - size : 32'd0;
              end
            end else if (r_q.hold != '0 || r_q.whole) have = 1'b0;
            else begin
              posts     = 1'b1;
              // With lists of a certain length, a batch ends when nothing more is posted.
              commit   = (p_last && (!paced || r_q.ask == n_parsed_q)) || list_ends || (r_q.limited && r_q.have_w + 8'd1 == r_q.ask_w);
              r.whole  = list_ends && stays;
              if (stays) commit = 1'b0;
              if (r_q.serial) commit = 1'b1;
              r.serial = 1'b0;
              r.credit = r_q.credit + 8'd1;
            end
            // The batch may end with a receive that never is a credit.
            if (want_local && p_last) commit = r_q.open;
            if (posts) r.open = 1'b1;
            if (commit) r.open = 1'b0;
            if (have) begin
              r.grant = r_q.grant + 16'd1;
              r.got   = '0;
            end
          end
          if (!have) r.got = r_q.got;
          else begin
            if (list_ends) r.closed = 1'b0;
            if (commit && r_q.have_w + 8'd1 == r_q.ask_w) r.part = '0;
            r.failed   = r_q.ended ? 1'b0 : failed && !r_q.final_w[at];
            if (r_q.final_w[at] && drain_left == 16'd1) r.drain = 1'b0;
            r.over     = over;
            r.short_of = short_of;
            r.held[at] = 1'b0;
            r.own[at]  = 1'b0;
            r.used[at] = 1'b0;
            r.have_w   = r_q.have_w + 8'd1;
            more_adv   = r_q.have_w + 8'd1 != r_q.ask_w && r.held[4'(at + 4'd1)];
            more_ask   = more_ask || list_ends || 8'(r_q.ask_w - r_q.have_w) == 8'd16 || (r_q.serial && r_q.final_w[at]);
          end
          we = we || have || commit;
        end
      end
    endcase
    if (commit) begin
      r.whole   = 1'b0;
      r.waiting = r_q.most != '0 && r_q.round != '0;
    end
    if (give) begin
      r.asked = r_q.asked - 32'(again_len);
    end
    // The row of a QP that has not been started is meaningless.
    if (!r_q.on && !(op_q == COMMAND && cmd_q_op == berth_row_pkg::STEP_START))
      {we, acquire, posts, commit, want_local, give, more_ask, more_adv, mark, let_go} = '0;
  end
  assign go = (!(acquire || give) || !acq_valid || acq_ready) && (!(posts || commit) || post_ready)
           && (!want_local || aside_ready);

  assign ring_we       = state_q == DECIDE && go && (posts || mark || let_go);
  assign ring_q        = q_q;
  assign ring_at       = ring_credit[6:0];
  assign ring.released  = let_go;
  assign ring.withdrawn = mark || let_go;
  assign ring.wr_id     = wr_id;
  assign ring.size      = size;
  assign ring.sge       = first_range;
  assign ring.sges      = ranges;
  assign post_valid    = state_q == DECIDE && go && (posts || commit);
  assign post_q        = q_q;
  assign post.credit   = posts;
  assign post.size     = size;
  assign post.commit   = commit;
  assign post.early    = paced;
  assign aside_valid   = state_q == DECIDE && go && want_local;
  assign aside_q       = q_q;
  assign aside.kind    = kind;
  assign aside.recv    = item_recv;
  assign aside.credit  = ring_credit;
  assign aside.wr_id   = wr_id;
  assign aside.status  = r_q.ended ? r_q.status : r_q.drain ? WC_RECALLED : p_bad ? WC_BAD_WQE : !failed ? WC_OK
                       : over ? WC_OVER_BUDGET : short_of ? WC_NO_MEMORY : WC_LOCAL_PROTECTION;
  assign aside.sge     = first_range;
  assign aside.sges    = ranges;
  assign aside.chunks  = item_chunks;
  assign ev_hit        = state_q == DECIDE && go && op_q == ANSWER && kind_q == HIT;
  assign ev_miss       = state_q == DECIDE && go && op_q == ANSWER && kind_q == MISS;
  assign ev_stray      = state_q == DECIDE && go && stray;

  always_ff @(posedge clk) begin
    if (acq_ready) acq_valid <= 1'b0;
    case (state_q)
      LOOK: begin
        if (!grant_re || grant_ok) state_q <= DECIDE;
        r_q        <= row;
        at_slot_q  <= look_slot;
        n_parsed_q <= n_parsed;
        n_freed_q  <= n_freed;
        n_given_q  <= n_given;
        n_hollow_q <= n_hollow;
      end
      DECIDE:
      if (go) begin
        state_q <= IDLE;
        if (we) r_q <= r;
        if (acquire || give) begin
          acq_valid   <= 1'b1;
          acq.give_back <= give;
          {acq.quiet, acq.probe} <= '0;
          acq.write <= 1'b1;
          acq.asid <= r_q.asid;
          acq.va   <= op_q == ASK ? va : again_va;
          acq.len  <= 31'(op_q == ASK ? chunk : again_len);
          acq.tag  <= 16'({q_q, op_q == ASK ? r_q.ask_w[3:0] : slot_q});
        end
        if (op_q == COMMAND) begin
          gr_st.freed   <= n_freed_q;
          gr_st.granted <= r_q.grant - 16'(r_q.back);
          gr_st.holds   <= r_q.ask - n_freed_q + 16'({r_q.ask_range, r_q.ask_at} != '0);
          gr_st.queued  <= r_q.ended && n_parsed_q != n_freed_q;
          gr_st.going   <= purge && (r_q.got != '0 || r_q.back != '0 || r_q.own != '0
                        || (r_q.used & ~r_q.held & ~r_q.waits) != '0);
          gr_st.waits   <= (r_q.used & ~r_q.held) != '0;
          gr_st.first   <= first_range;
          gr_st.ranges  <= ranges;
          gr_st.sge     <= grant_sge;
        end
      end
      default: ;
    endcase
    if (take) begin
      state_q  <= LOOK;
      op_q     <= op;
      q_q      <= q_next;
      same_q   <= state_q != IDLE && q_next == q_q;
      cmd_q_op <= cmd_valid ? cmd.op : berth_row_pkg::STEP_QUIET;
      asid_q   <= cmd.asid;
      end_q    <= cmd.status;
      first_q  <= cmd.first;
      recv_q   <= cmd.recv;
      sge_q    <= cmd.sge;
      slot_q   <= xr.tag[3:0];
      bytes_q  <= t.bytes;
      round_q  <= t.round;
      kind_q   <= xr.kind;
      status_q <= xr.status;
      turn_q   <= op == ASK;
    end
    if (state_q == DECIDE && go && op_q == COMMAND && cmd_q_op == berth_row_pkg::STEP_START) started_q[q_q] <= 1'b1;
    if (rst) begin
      started_q <= '0;
      state_q  <= IDLE;
      acq_valid <= 1'b0;
      turn_q   <= 1'b0;
    end
  end

  logic stored;
  assign stored = state_q == DECIDE && go;
  berth_fp_ready #(
      .QPS(QPS),
      .SETS(3)
  ) asks (
      .clk,
      .rst,
      .set({parsed_we, wait_pop, stored && more_ask}),
      .set_q({parsed_q, wait_q, q_q}),
      .valid(ask_valid),
      .q(ask_q),
      .pop(ask_pop),
      .busy(ask_busy)
  );
  berth_fp_ready #(
      .QPS(QPS)
  ) proofs (
      .clk,
      .rst,
      .set(proof_valid),
      .set_q(proof_q),
      .valid(proven_valid),
      .q(proven_q),
      .pop(proven_pop),
      .busy(proven_busy)
  );
  // QPs whose time has not come yet look again: one of them every 16 clocks.
  logic [3:0] pace_q;
  always_ff @(posedge clk) pace_q <= rst ? 4'd0 : pace_q + 4'd1;
  assign wait_pop = wait_valid && pace_q == '1;
  berth_fp_ready #(
      .QPS(QPS)
  ) waits (
      .clk,
      .rst,
      .set(stored && op_q == ASK && can_ask && later),
      .set_q(q_q),
      .valid(wait_valid),
      .q(wait_q),
      .pop(wait_pop),
      .busy(wait_busy)
  );
  // A completed receive may give the turn to one that never is a credit.
  berth_fp_ready #(
      .QPS(QPS),
      .SETS(2)
  ) advances (
      .clk,
      .rst,
      .set({freed_we, stored && more_adv}),
      .set_q({freed_q, q_q}),
      .valid(adv_valid),
      .q(adv_q),
      .pop(adv_pop),
      .busy(adv_busy)
  );

  // Each place of the window has one use at a time.
  always_ff @(posedge clk) if (!rst && stored && we) assert (8'(r.ask_w - r.have_w) <= 8'd16);

  wire unused = &{1'b0, look_recv[15:7], xr, freed, given};
endmodule
