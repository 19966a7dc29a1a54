// SPDX-License-Identifier: Apache-2.0 OR MIT
// Credit list builder: `credit::list::Builder` in hardware (CR-1, CR-4, CR-5, CR-11), with a row per QP and two clocks per
// operation, and the repeats of a list until its proof has come (decision 6).
//
// The sizes of credits stay in a RAM from posting until their data has landed, so that a list can be repeated from its
// numbers alone.
//
// It measures the time from a list to its first data, and tells `berth_fp_grant` how long each list was and when it
// left. A list without its proof is repeated after twice that time, then after twice as long each time.
//
// When lists go is firmware's choice (CR-6 to CR-9): `berth_fp_meter` tells it once a list how the sender uses its credits,
// and it answers with a trigger, or a time, for the lists to come. Lists do not wait for its answer. Of a sender with a
// maximum bandwidth `berth_fp_cap` withholds credits (CR-10).
module berth_fp_builder #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS),
    // Clocks between two looks at a QP's repeat timer are QPS x SWEEP.
    parameter int unsigned SWEEP = 16,
    // Least time until a list is repeated, once it is known how soon data comes for one, in units of `now`.
    parameter int unsigned PROBE = berth_regs_pkg::FAST_PROBE
) (
    input  logic                      clk,
    input  logic                      rst,
    output logic                      busy,
    input  logic [31:0]               now,           // units of 64 clocks
    // Commands; held until ready. What they answer (st_*) is there two clocks later.
    input  logic                      cmd_valid,
    output logic                      cmd_ready,
    input  logic [QW-1:0]             cmd_q,
    input  berth_card_pkg::builder_step_t cmd,
    output logic [31:0]               st_announced,
    output logic [31:0]               st_landed,
    // Receives that become credits, and ends of batches: see `berth_fp_grant`.
    input  logic                      post_valid,
    output logic                      post_ready,
    input  logic [QW-1:0]             post_q,
    input  berth_card_pkg::post_t     post,
    // Pieces that have landed: see `berth_fp_arrival`.
    input  logic                      landed_valid,
    output logic                      landed_ready,
    input  logic [QW-1:0]             landed_q,
    input  berth_card_pkg::landed_t   landed,
    // What is complete: see `berth_fp_recv_complete`.
    input  logic                      given_we,
    input  logic [QW-1:0]             given_q,
    input  berth_card_pkg::given_t    given,
    // Credits announced, whenever that changes.
    output logic                      ann_we,
    output logic [QW-1:0]             ann_q,
    output logic [31:0]               ann_number,
    // Lists to send.
    output logic                      lfr_valid,
    input  logic                      lfr_ready,
    output logic [QW-1:0]             lfr_q,
    output berth_card_pkg::list_out_t lfr,
    // A list has been told for the first time: a pulse. One more finds room.
    input  logic                      told_room,
    output logic                      told_valid,
    output logic [QW-1:0]             told_q,
    output berth_card_pkg::told_t     told,
    // The proof of a list has come: a pulse.
    output logic                      proof_valid,
    output logic [QW-1:0]             proof_q,
    // It has come, and there is a new report of how credits are used: a pulse, and the report of a QP, two clocks later.
    output logic                      use_valid,
    output logic [QW-1:0]             use_q,
    input  logic [QW-1:0]             use_ask_q,
    output berth_card_pkg::use_t      use_told,
    // Pulses for the counters.
    output logic                      ev_posted,
    output logic                      ev_list,
    output logic [ 6:0]               ev_list_len,
    output logic                      ev_repeat,
    // Repeat timers: looked at in each free clock; one is looked at, runs, and ends then.
    input  logic                      hurry,
    output logic                      swept,
    output logic                      swept_on,
    output logic [31:0]               swept_at
);
  // Commands. START: lists may be sent from then on. END: no list any more. HOLD: none until VOID. VOID: credits from a
  // number on are void, and the peer knows; UNPOST: those that are not announced are. LISTS: when lists go is another. CAP: so is
  // the maximum bandwidth. Other steps only ask.

  typedef struct packed {
    logic        on, foreign, hold;
    logic [31:0] posted, committed, announced, landed;
    logic [31:0] list_first, trigger_at;   // of the last list
    logic        list_sent;                // its proof or its trigger has not come
    logic [31:0] epoch;
    logic [6:0]  max_list, few;
    logic [2:0]  trigger;
    logic [7:0]  index;
    logic        timed, told, stream;
    logic [31:0] due;                      // while `timed`, and the sender has credits, no list goes before
    logic [15:0] again;
    logic [15:0] pause;                    // until it is told again: twice as long each time, up to `again`
    logic [31:0] stamp;                    // when it was told last
    logic [31:0] left;                     // ... and first
    logic [26:0] round;                    // shortest time to first data, in 2048ths; grows by one 2048th with each list
    logic        early;                    // pinned memory is bounded: some triggers are the first buffer
    logic        capped;                   // it has a maximum bandwidth: of what is posted ...
    logic [7:0]  withheld;                 // ... so many are in whole batches and not committed
  } row_t;
  typedef enum logic [2:0] {POST, LANDED, LIST, TIMER, COMMAND, PASS} op_t;

  function automatic logic after(input logic [31:0] a, input logic [31:0] b);
    logic [31:0] d;
    d = a - b;
    after = !d[31] && d != '0;
  endfunction

  // ---- credits that wait to be posted, pieces that have landed ---------------------------------
  logic p_valid, p_pop, l_valid, l_pop;
  logic [QW-1:0] p_q, l_q;
  berth_card_pkg::post_t p;
  berth_card_pkg::landed_t l, said_q;
  berth_lutfifo #(
      .WIDTH(QW + $bits(p)),
      .DEPTH(8)
  ) posts (
      .clk,
      .rst,
      .wr_valid(post_valid),
      .wr_ready(post_ready),
      .wr_data({post_q, post}),
      .rd_valid(p_valid),
      .rd_ready(p_pop),
      .rd_data({p_q, p})
  );
  berth_lutfifo #(
      .WIDTH(QW + $bits(l)),
      .DEPTH(16)
  ) landings (
      .clk,
      .rst,
      .wr_valid(landed_valid),
      .wr_ready(landed_ready),
      .wr_data({landed_q, landed}),
      .rd_valid(l_valid),
      .rd_ready(l_pop),
      .rd_data({l_q, l})
  );

  // ---- choice -------------------------------------------------------------------------------
  op_t op, op_q;
  logic run_q, take, ready_valid, ready_busy, list_pop, sweep_due_q, out_busy, credit_q, commit_q, early_q;
  logic [QW-1:0] q_next, q_q, ready_q, sweep_q;
  logic [31:0] size_q, first_q;
  logic [4:0] cmd_op_q;
  logic [$clog2(SWEEP)-1:0] pace_q;
  logic list_free;

  // A list is being told, or may be by the operation in work.
  assign list_free = !out_busy && !(run_q && (op_q == LIST || op_q == TIMER)) && told_room;
  always_comb begin
    // Posted credits come before a command, and what has landed before one that counts it.
    {op, q_next, take} = {COMMAND, cmd_q, 1'b1};
    if (!cmd_valid || p_valid || (l_valid && cmd.op == berth_row_pkg::STEP_RECLAIM)) begin
      take = 1'b0;
      if (l_valid && !(run_q && l_q == q_q)) {op, q_next, take} = {LANDED, l_q, 1'b1};
      else if (p_valid && !(run_q && p_q == q_q)) {op, q_next, take} = {POST, p_q, 1'b1};
      else if (pass_valid && !(run_q && pass_q == q_q)) {op, q_next, take} = {PASS, pass_q, 1'b1};
      else if (ready_valid && list_free) {op, q_next, take} = {LIST, ready_q, 1'b1};
      else if (sweep_due_q && list_free) {op, q_next, take} = {TIMER, sweep_q, 1'b1};
    end
    if (run_q && q_next == q_q) take = 1'b0;
  end
  assign cmd_ready = take && op == COMMAND;
  assign l_pop     = take && op == LANDED;
  assign p_pop     = take && op == POST;
  assign list_pop  = take && op == LIST;
  assign pass_ready = take && op == PASS;

  // ---- rows -----------------------------------------------------------------------------------
  row_t row, ram_row, r;
  logic [QPS-1:0] started_q;  // rows that mean something, after a reset
  logic we, list_ready, tell, proven, expired;
  logic [31:0] fresh, out, tell_first;
  logic [6:0] len, tell_len, trigger_index;
  berth_fp_mem #(
      .WIDTH($bits(r)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_rows (
      .clk,
      .we(we),
      .waddr(q_q),
      .wdata(r),
      .re(take),
      .raddr(q_next),
      .rdata(ram_row)
  );
  always_comb begin
    row        = ram_row;
    row.on     = ram_row.on && started_q[q_q];
    row.capped = ram_row.capped && row.on;
  end

  assign fresh = row.committed - row.announced;
  assign len   = fresh < 32'(row.max_list) ? fresh[6:0] : row.max_list;
  assign out   = row.announced - row.landed;
  assign list_ready = row.on && !row.hold && !row.list_sent && fresh != '0 && (fresh > 32'(row.few) || out <= 32'(row.few))
                   && !(row.timed && out != '0 && after(row.due, now));
  // `trigger` and `index` of the row say which buffer of a list of `len` it is.
  logic [6:0] quarters;
  always_comb begin
    quarters = 7'((9'(row.index[0] ? len : '0) + 9'({row.index[1] ? len : '0, 1'b0})) >> 2);
    case (row.trigger)
      berth_row_pkg::TRIGGER_FIRST: trigger_index = '0;
      berth_row_pkg::TRIGGER_LAST:  trigger_index = len - 7'd1;
      berth_row_pkg::TRIGGER_QUARTERS: trigger_index = quarters;
      berth_row_pkg::TRIGGER_BEHIND: trigger_index = row.index < 8'(len) ? len - 7'd1 - row.index[6:0] : '0;
      default: trigger_index = row.index < 8'(len) ? row.index[6:0] : len - 7'd1;
    endcase
    if (row.early && row.trigger > berth_row_pkg::TRIGGER_BETWEEN) trigger_index = '0;
  end

  always_comb begin
    r          = row;
    we         = run_q;
    tell       = 1'b0;
    proven     = 1'b0;
    tell_first = row.announced;
    expired = row.on && !row.hold && row.list_sent && row.again != '0 && !after(row.landed, row.list_first)
           && now - row.stamp >= 32'(row.pause);
    tell_len = len;
    case (op_q)
      LANDED: if (said_q.begins) begin
        r.landed = row.landed + 32'd1;
        // The first data of a list; its trigger's may come much later.
        if (row.list_sent && row.landed == row.list_first)
          r.round = row.round == '0 || {waited, 11'd0} < aged ? {waited, 11'd0} : aged;
      end
      POST: begin
        if (credit_q) r.posted = row.posted + 32'd1;
        if (commit_q) begin
          if (row.capped) r.withheld = 8'(r.posted - row.committed);
          else r.committed = r.posted;
          r.early     = early_q;
        end
        if (row.foreign) r.announced = r.committed;
      end
      LIST:
      if (list_ready) begin
        tell         = run_q;
        r.list_first = row.announced;
        r.trigger_at = row.announced + 32'(trigger_index);
        r.list_sent  = 1'b1;
        r.announced  = row.announced + 32'(len);
        r.stamp      = now;
        r.left       = now;
        r.pause      = pause_first;
      end
      PASS: if (pass_good) begin
        r.committed = row.committed + 32'(pass.n);
        r.withheld  = row.withheld - pass.n;
        if (row.foreign) r.announced = r.committed;
      end
      TIMER: begin
        // So that a time which has passed does not come again.
        if (!after(row.due, now)) r.timed = 1'b0;
        if (expired) begin
          tell       = run_q;
          tell_first = row.list_first;
          tell_len   = 7'(row.announced - row.list_first);
          r.stamp    = now;
          r.pause    = {1'b0, row.pause} << 1 > {1'b0, row.again} ? row.again : row.pause << 1;
        end
      end
      default:
      case (cmd_op_q)
        berth_row_pkg::STEP_START: begin
          r          = '0;
          r.on       = 1'b1;
          r.foreign  = cmd.foreign;
          r.epoch    = cmd.epoch;
          r.max_list = cmd.max_list;
          r.trigger  = cmd.trigger;
          r.index    = cmd.index;
          r.told     = cmd.told;
          r.stream   = cmd.stream;
          r.few      = cmd.few;
          r.again    = cmd.again;
        end
        berth_row_pkg::STEP_LISTS: begin
          r.trigger = cmd.trigger;
          r.index   = cmd.index;
          r.told    = cmd.told;
          r.timed   = cmd.timed;
          r.due     = first_q;
          if (cmd.trigger == berth_row_pkg::TRIGGER_FIRST && row.list_sent) r.trigger_at = row.list_first;
        end
        berth_row_pkg::STEP_CAP: begin
          r.capped = row.on && cmd.epoch[30:0] != '0;
          if (!row.capped) r.withheld = '0;
          if (r.capped) begin
            r.withheld  = r.withheld + 8'(row.committed - row.announced);
            r.committed = row.announced;
          end else if (row.capped) begin
            r.committed = row.committed + 32'(row.withheld);
            r.withheld  = '0;
            if (row.foreign) r.announced = r.committed;
          end
        end
        berth_row_pkg::STEP_END:  {r.on, r.capped} = '0;
        berth_row_pkg::STEP_HOLD: r.hold = 1'b1;
        berth_row_pkg::STEP_VOID, berth_row_pkg::STEP_UNPOST, berth_row_pkg::STEP_RECLAIM: begin
          if (cmd_op_q != berth_row_pkg::STEP_UNPOST) {r.hold, r.list_sent} = 2'b00;
          if (cmd_op_q == berth_row_pkg::STEP_VOID) {r.announced, r.epoch} = {first_q, cmd.epoch};
          if (cmd_op_q == berth_row_pkg::STEP_RECLAIM) r.announced = r.landed;
          r.committed = r.announced;
          r.posted    = r.announced;
          r.withheld  = '0;
        end
        default: ;
      endcase
    endcase
    if (r.list_sent && after(r.landed, r.list_first) && after(r.landed, r.trigger_at)) begin
      r.list_sent = 1'b0;
      proven      = run_q;
    end
  end
  // A lost list is repeated after about two of the shortest round trips, data included; while none is known, after
  // `again`.
  logic [16:0] twice;
  logic [15:0] pause_first;
  assign twice       = {row.round[26:11], 1'b0};
  assign pause_first = row.round[26:11] == '0 || twice > {1'b0, row.again} || 16'(PROBE) > row.again ? row.again
                     : twice < 17'(PROBE) ? 16'(PROBE) : twice[15:0];
  // `Shortest` of the protocol. A list that takes no time at all takes one unit.
  logic [31:0] ago;
  logic [15:0] waited;
  logic [26:0] aged;
  assign ago    = now - row.left;
  assign waited = ago == '0 ? 16'd1 : ago > 32'hffff ? 16'hffff : ago[15:0];
  assign aged   = &row.round[26:20] ? row.round : row.round + 27'(row.round[26:11]);

  logic may_go, waits, ready_now;
  logic [31:0] fresh_new, out_new;
  assign fresh_new = r.committed - r.announced;
  assign out_new   = r.announced - r.landed;
  assign may_go    = run_q && r.on && !r.hold && !r.list_sent && fresh_new != '0
                  && (fresh_new > 32'(row.few) || out_new <= 32'(row.few));
  // A list waits for its time.
  assign waits     = r.timed && out_new != '0 && after(r.due, now);
  assign ready_now = may_go && !waits;
  berth_fp_ready #(
      .QPS(QPS)
  ) lists (
      .clk,
      .rst,
      .set(ready_now),
      .set_q(q_q),
      .valid(ready_valid),
      .q(ready_q),
      .pop(list_pop),
      .busy(ready_busy)
  );

  assign ann_we     = run_q && (op_q == COMMAND || (op_q == LIST && list_ready) || ((op_q == POST || op_q == PASS) && row.foreign));
  assign ann_q      = q_q;
  // Without lists, a hold is one of what the peer may use.
  assign ann_number = r.foreign && r.hold ? r.landed : r.announced;
  assign ev_posted  = run_q && op_q == POST && credit_q;
  assign ev_list    = tell && op_q == LIST;
  assign ev_list_len = len;
  assign ev_repeat  = tell && op_q == TIMER;
  assign proof_valid = proven;
  assign proof_q     = q_q;

  always_ff @(posedge clk) begin
    run_q    <= take;
    op_q     <= op;
    cmd_op_q <= cmd.op;
    first_q  <= cmd.first;
    if (run_q && op_q == COMMAND) {st_announced, st_landed} <= {r.announced, r.landed};
    q_q      <= q_next;
    said_q   <= l;
    credit_q <= p.credit;
    commit_q <= p.commit;
    early_q  <= p.early;
    size_q   <= p.size;
    pace_q   <= pace_q + 1'b1;
    if (pace_q == '1 || hurry) sweep_due_q <= 1'b1;
    if (take && op == TIMER) begin
      sweep_due_q <= 1'b0;
      sweep_q     <= sweep_q + 1'b1;
    end
    if (run_q && op_q == COMMAND && cmd_op_q == berth_row_pkg::STEP_START) started_q[q_q] <= 1'b1;
    if (rst) begin
      started_q   <= '0;
      run_q       <= 1'b0;
      pace_q      <= '0;
      sweep_due_q <= 1'b0;
      sweep_q     <= '0;
    end
  end

  assign swept    = run_q && op_q == TIMER;
  assign swept_on = (r.on && !r.hold && r.list_sent && r.again != '0 && !after(r.landed, r.list_first))
                 || (may_go && waits) || fits_later;
  assign swept_at = fits_later ? fits_at : r.list_sent ? r.stamp + 32'(r.pause) : r.due;

  // ---- a list goes out ----------------------------------------------------------------------------
  // Two sizes at a time, from a memory of even and one of odd numbers. `left` counts those that are not read yet. While no
  // list is told, `berth_fp_cap` may read one.
  logic [63:0] sizes;
  logic [6:0] left_q, at_q;
  logic head_q, there_q, odd_q, two_q, size_re, size_take;
  logic new_q;         // it is told for the first time
  logic [31:0] epoch_q, tell_first_q;
  logic [6:0] n_q;
  logic [15:0] round_q;
  assign told_valid = new_q && size_take && left_q == '0;
  assign told_q     = lfr_q;
  assign out_busy  = head_q || left_q != '0 || there_q;
  assign size_take = lfr_ready && there_q && !head_q;
  assign size_re   = left_q != '0 && (!there_q || size_take);
  for (genvar i = 0; i < 2; i++) begin : g_sizes
    berth_fp_mem #(
        .WIDTH(32),
        .DEPTH(QPS * 64)
    ) m_sizes (
        .clk,
        .we(run_q && op_q == POST && credit_q && row.posted[0] == 1'(i)),
        .waddr({q_q, row.posted[6:1]}),
        .wdata(size_q),
        .re(size_re || (cap_size_re && !out_busy)),
        .raddr(!out_busy ? {cap_size_q, cap_size_at[6:1]} : {lfr_q, i == 0 ? at_q[6:1] + 6'(at_q[0]) : at_q[6:1]}),
        .rdata(sizes[32*i+:32])
    );
  end
  assign lfr_valid = head_q || there_q;
  assign lfr.first_beat = head_q;
  assign lfr.epoch = epoch_q;
  assign lfr.first = tell_first_q;
  assign lfr.n     = n_q;
  assign lfr.sizes = odd_q ? {sizes[31:0], sizes[63:32]} : sizes;
  logic [31:0] sum_q, sum, rest_q, rest, second;
  logic begun_q;
  assign second     = two_q ? lfr.sizes[63:32] : 32'd0;
  assign sum        = sum_q + lfr.sizes[31:0] + second;
  assign told.bytes = sum;
  // Without the first credit.
  assign rest       = rest_q + (begun_q ? lfr.sizes[31:0] : 32'd0) + second;
  assign told.round = round_q;
  always_ff @(posedge clk) begin
    if (head_q && lfr_ready) head_q <= 1'b0;
    if (size_take) begin
      there_q <= 1'b0;
      sum_q   <= sum;
      rest_q  <= rest;
      begun_q <= 1'b1;
    end
    if (size_re) begin
      there_q <= 1'b1;
      odd_q   <= at_q[0];
      two_q   <= left_q[6:1] != '0;
      left_q  <= left_q < 7'd2 ? '0 : left_q - 7'd2;
      at_q    <= at_q + 7'd2;
    end
    if (tell) begin
      head_q    <= 1'b1;
      lfr_q     <= q_q;
      epoch_q   <= row.epoch;
      sum_q     <= '0;
      rest_q    <= '0;
      begun_q   <= 1'b0;
      new_q     <= op_q == LIST;
      round_q   <= row.round[26:11];
      tell_first_q <= tell_first;
      n_q       <= tell_len;
      left_q    <= tell_len;
      at_q      <= tell_first[6:0];
    end
    if (rst) begin
      head_q  <= 1'b0;
      there_q <= 1'b0;
      left_q  <= '0;
    end
  end

  // ---- credits that are withheld ------------------------------------------------------------------
  logic pass_valid, pass_ready, pass_good, cap_size_re, cap_odd_q;
  logic [QW-1:0] pass_q, cap_size_q;
  logic [6:0] cap_size_at;
  berth_card_pkg::pass_t pass;
  assign pass_good = row.on && row.capped && !row.hold && row.committed[7:0] == pass.next && row.withheld >= pass.n;
  always_ff @(posedge clk) cap_odd_q <= cap_size_at[0];
  // When some of them may fit.
  logic due_we, due_on, fits_on, fits_later;
  logic [QW-1:0] due_q;
  logic [31:0] due_at, fits_at;
  assign fits_later = r.capped && r.withheld != '0 && fits_on;
  berth_fp_mem #(
      .WIDTH(33),
      .DEPTH(QPS)
  ) m_due (
      .clk,
      .we(due_we),
      .waddr(due_q),
      .wdata({due_on, due_at}),
      .re(take),
      .raddr(q_next),
      .rdata({fits_on, fits_at})
  );
  berth_fp_cap #(
      .QPS(QPS)
  ) cap (
      .clk,
      .rst,
      .now,
      .set_valid(run_q && op_q == COMMAND && (cmd_op_q == berth_row_pkg::STEP_CAP || cmd_op_q == berth_row_pkg::STEP_START)),
      .set_rate(first_q[23:0]),
      .set_burst(cmd_op_q == berth_row_pkg::STEP_START ? '0 : cmd.epoch[30:0]),
      .voids(run_q && op_q == COMMAND && (cmd_op_q == berth_row_pkg::STEP_VOID || cmd_op_q == berth_row_pkg::STEP_UNPOST
          || cmd_op_q == berth_row_pkg::STEP_RECLAIM)),
      .gate_we(run_q && (row.capped || r.capped) && op_q != LANDED && op_q != LIST),
      .gate_q(q_q),
      .gate({r.committed[7:0], r.withheld}),
      .given_we,
      .given_q,
      .given,
      .size_re(cap_size_re),
      .size_ok(!out_busy),
      .size_q(cap_size_q),
      .size_at(cap_size_at),
      .size(cap_odd_q ? sizes[63:32] : sizes[31:0]),
      .pass_valid,
      .pass_ready,
      .pass_q,
      .pass,
      .pass_done(run_q && op_q == PASS),
      .pass_good,
      .due_we,
      .due_q,
      .due_on,
      .due_at
  );

  // ---- how credits are used ----------------------------------------------------------------------
  berth_card_pkg::lap_t lap;
  logic lap_valid;
  assign lap_valid = run_q && (op_q == LANDED || (tell && op_q == LIST) || (op_q == COMMAND && (cmd_op_q == berth_row_pkg::STEP_START
                  || cmd_op_q == berth_row_pkg::STEP_VOID || cmd_op_q == berth_row_pkg::STEP_RECLAIM)));
  assign lap.sent  = op_q == LIST;
  assign lap.begins = op_q == LANDED && said_q.begins;
  assign lap.starts = op_q == COMMAND && cmd_op_q == berth_row_pkg::STEP_START;
  assign lap.voids  = op_q == COMMAND;
  assign lap.said   = op_q == LANDED && said_q.said && row.stream;
  assign lap.remaining = said_q.remaining;
  assign lap.proof  = row.list_sent && row.landed == row.list_first;
  assign lap.told   = row.told;
  assign lap.out    = op_q == LANDED ? out_new[7:0] : out[7:0];
  berth_fp_meter #(
      .QPS(QPS)
  ) meter (
      .clk,
      .now,
      .lap_valid,
      .lap_q(q_q),
      .lap,
      .told_valid,
      .told_q,
      .told_rest(rest),
      .use_valid,
      .use_q,
      .ask_q(use_ask_q),
      .use_told
  );

  // `busy` leaves out the timer, which is never idle.
  assign busy = p_valid || l_valid || ready_busy || out_busy || (run_q && op_q != TIMER);

  // landed <= announced <= committed <= posted <= landed + 128: credits are conserved.
  always_ff @(posedge clk)
    if (!rst && we && started_q[q_q]) begin
      assert (r.posted - r.landed <= 32'd128);
      assert (r.announced - r.landed <= r.committed - r.landed);
      assert (r.committed - r.landed <= r.posted - r.landed);
    end
endmodule
