// SPDX-License-Identifier: Apache-2.0 OR MIT
// Grants (PC-1): acquires the pages of pending receives, several ahead, and makes a credit of each receive whose
// pages are all held, in order. Batches are committed whole (decision 5).
//
// Ranges are acquired in chunks of at most 1 MiB; up to 16 chunks of a QP are on their way. An operation takes three
// clocks (read; look up; decide and store), and the next begins with the third; of the same QP, it takes the row from
// the register instead of the RAM.
module berth_fp_grant #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic           clk,
    input  logic           rst,
    output logic           busy,
    // Start of a QP; held until ready.
    input  logic           cmd_valid,
    output logic           cmd_ready,
    input  logic [QW-1:0]  cmd_q,
    input  logic [ 7:0]    cmd_asid,
    // Pending receives and their ranges: see `berth_fp_rq`.
    input  logic           sge_we,
    input  logic [QW+7:0]  sge_at,
    input  logic [95:0]    sge_data,
    input  logic           pend_we,
    input  logic [QW+6:0]  pend_at,
    input  logic [109:0]   pend_data,
    input  logic           parsed_we,
    input  logic [QW-1:0]  parsed_q,
    input  logic [15:0]    parsed,
    // What is complete: see `berth_fp_done`.
    input  logic           freed_we,
    input  logic [QW-1:0]  freed_q,
    input  logic [15:0]    freed_recvs,
    // Acquisitions, and their answers.
    output logic           xa_valid,
    input  logic           xa_ready,
    output logic [ 7:0]    xa_asid,
    output logic [63:0]    xa_va,
    output logic [20:0]    xa_len,
    output logic [15:0]    xa_tag,     // {q, place in the window}
    output logic           xa_release, // of what a receive held when the rest of it could not be had
    input  logic           xr_valid,
    output logic           xr_ready,
    input  logic [15:0]    xr_tag,
    input  logic [ 1:0]    xr_kind,    // 0 held, 1 the host is asked, 2 the host has answered
    input  logic [ 7:0]    xr_status,
    // Receives that become credits: for the rings of arrival and done, and for the builder.
    output logic           ring_we,
    output logic [QW-1:0]  ring_q,
    output logic [ 6:0]    ring_at,    // credit modulo 128
    output logic [106:0]   ring_data,  // {wr_id, size, first range, ranges}
    output logic           post_valid,
    input  logic           post_ready,
    output logic [QW-1:0]  post_q,
    output logic           post_credit, // a credit of `post_size` bytes ...
    output logic [31:0]    post_size,
    output logic           post_commit, // ... and what is posted may be announced
    // Receives that are complete without being credits: {q, wr_id, status, first range, ranges, chunks to release}
    output logic           local_valid,
    input  logic           local_ready,
    output logic [QW+98:0] local_data,
    // Pulses.
    output logic           ev_hit,
    output logic           ev_miss
);
  localparam logic [1:0] HELD = 2'd0, MISS = 2'd1, ANSWERED = 2'd2;
  localparam logic [7:0] WC_OK = berth_regs_pkg::WC_OK[7:0];
  localparam logic [7:0] WC_BAD_WQE = berth_regs_pkg::WC_BAD_WQE[7:0];
  localparam logic [7:0] WC_LOCAL_PROTECTION = berth_regs_pkg::WC_LOCAL_PROTECTION[7:0];
  localparam logic [7:0] WC_OVER_BUDGET = berth_regs_pkg::WC_OVER_BUDGET[7:0];
  localparam logic [7:0] PAGE_OVER_BUDGET = berth_regs_pkg::PAGE_OVER_BUDGET[7:0];

  typedef struct packed {
    logic        on;
    logic [7:0]  asid;
    logic [15:0] ask;        // receive that is being asked for
    logic [2:0]  ask_range;  // its range ...
    logic [31:0] ask_at;     // ... from this byte on
    logic [7:0]  sge;        // that range's place in the ring
    logic [7:0]  ask_w;      // chunks asked for
    logic [7:0]  have_w;     // chunks held, in order
    logic [15:0] held;       // chunks of the window: answered for good ...
    logic [15:0] refused;    // ... but in vain ...
    logic [15:0] budget;     // ... as they do not fit the budget
    logic [15:0] final_w;    // the last of their receive
    logic [15:0] grant;      // receive that is granted next
    logic [6:0]  credit;     // its credit
    logic        open;       // something is posted and not committed
    logic        failed;     // a chunk of the receive was refused (decision 20) ...
    logic        over;       // ... as it does not fit the budget ...
    logic [15:0] got;        // ... after so many that are held
  } row_t;
  typedef enum logic [1:0] {IDLE, LOOK, DECIDE} state_t;
  typedef enum logic [1:0] {ASK, ANSWER, ADVANCE, START} op_t;

  state_t state_q;
  op_t op, op_q;
  logic take, may, go, we;
  logic [QW-1:0] q_next, q_q;
  logic [3:0] slot_q;
  logic [1:0] kind_q;
  logic [7:0] status_q;
  logic ask_valid, adv_valid, ask_pop, adv_pop, ask_busy, adv_busy;
  logic [QW-1:0] ask_q, adv_q;

  // Answers go first; asking and advancing take turns.
  logic turn_q;
  always_comb begin
    may    = state_q == IDLE || (state_q == DECIDE && go);
    op     = START;
    q_next = cmd_q;
    take   = cmd_valid;
    if (!cmd_valid) begin
      if (xr_valid) {op, q_next, take} = {ANSWER, xr_tag[4+:QW], 1'b1};
      else if (adv_valid && (turn_q || !ask_valid)) {op, q_next, take} = {ADVANCE, adv_q, 1'b1};
      else if (ask_valid) {op, q_next, take} = {ASK, ask_q, 1'b1};
    end
    take = take && may;
  end
  assign cmd_ready = take && op == START;
  assign xr_ready  = take && op == ANSWER;
  assign ask_pop   = take && op == ASK;
  assign adv_pop   = take && op == ADVANCE;
  assign busy      = state_q != IDLE || ask_busy || adv_busy || xr_valid || xa_valid;

  // ---- memories --------------------------------------------------------------------------
  logic [15:0] parseds[QPS], freeds[QPS];
  logic [109:0] pends[QPS*128];
  logic [84:0] chunks[QPS*16];
  row_t ram_row, row, r_q, r;
  logic [$bits(r)-1:0] rows[QPS];  // a plain vector: Yosys makes no RAM of a struct
  logic same_q;     // the operation before was of the same QP: its row is in r_q
  logic [15:0] n_parsed, n_parsed_q, n_freed, n_freed_q, look_recv;
  logic [63:0] wr_id, va, again_va;
  logic [31:0] size, rest;
  logic [20:0] chunk, bound, again_len;
  logic [7:0] first_range;
  logic [2:0] ranges;
  logic p_last, p_local, p_bad;
  logic [95:0] sge;

  always_ff @(posedge clk) begin
    if (state_q == DECIDE && go && we) rows[q_q] <= r;
    if (take) ram_row <= rows[q_next];
    if (parsed_we) parseds[parsed_q] <= parsed;
    if (take) n_parsed <= parseds[q_next];
    if (freed_we) freeds[freed_q] <= freed_recvs;
    if (take) n_freed <= freeds[q_next];
  end
  assign row       = same_q ? r_q : ram_row;
  assign look_recv = op_q == ASK ? row.ask : row.grant;
  always_ff @(posedge clk) begin
    if (pend_we) pends[pend_at] <= pend_data;
    if (state_q == LOOK) {wr_id, size, first_range, ranges, p_last, p_local, p_bad} <= pends[{q_q, look_recv[6:0]}];
  end
  always_ff @(posedge clk) begin
    if (state_q == DECIDE && op_q == ASK && can_ask) chunks[{q_q, r_q.ask_w[3:0]}] <= {va, chunk};
    if (state_q == LOOK) {again_va, again_len} <= chunks[{q_q, op_q == ADVANCE ? row.have_w[3:0] : slot_q}];
  end
  berth_ram #(
      .WIDTH(96),
      .DEPTH(QPS * 256)
  ) sges (
      .clk,
      .we(sge_we),
      .waddr(sge_at),
      .wdata(sge_data),
      .wstrb('1),
      .re(state_q == LOOK),
      .raddr({q_q, row.sge}),
      .rdata(sge)
  );

  // ---- decide -----------------------------------------------------------------------------
  logic can_ask, range_ends, recv_ends, acquire, give, have, post, want_local, more_ask, more_adv;
  logic local_turn, commit, failed, over;
  logic [3:0] at;
  always_comb begin
    r          = r_q;
    we         = 1'b0;
    acquire    = 1'b0;
    post       = 1'b0;
    commit     = 1'b0;
    want_local = 1'b0;
    give       = 1'b0;
    more_ask   = 1'b0;
    more_adv   = 1'b0;
    // A chunk ends with its range, and at multiples of 1 MiB.
    va         = sge[95:32] + 64'(r_q.ask_at);
    rest       = sge[31:0] - r_q.ask_at;
    bound      = 21'h10_0000 - {1'b0, va[19:0]};
    chunk      = rest < 32'(bound) ? rest[20:0] : bound;
    range_ends = 32'(chunk) == rest;
    recv_ends  = ranges == '0 || (range_ends && r_q.ask_range + 3'd1 == ranges);
    can_ask    = r_q.on && r_q.ask != n_parsed_q && 8'(r_q.ask_w - r_q.have_w) < 8'd16;
    have       = 1'b0;
    local_turn = r_q.grant == n_freed_q;
    at         = r_q.have_w[3:0];
    failed     = r_q.failed;
    over       = r_q.over;
    case (op_q)
      ASK:
      if (can_ask) begin
        we      = 1'b1;
        acquire = ranges != '0;
        r.ask_w = r_q.ask_w + 8'd1;
        r.final_w[r_q.ask_w[3:0]] = recv_ends;
        // A receive without ranges takes a place in the window, so that order is kept.
        r.held[r_q.ask_w[3:0]]    = ranges == '0;
        r.refused[r_q.ask_w[3:0]] = 1'b0;
        more_adv = ranges == '0;
        r.ask_at = range_ends ? 32'd0 : r_q.ask_at + 32'(chunk);
        if (ranges == '0) r.ask_at = '0;
        else if (range_ends) begin
          r.sge       = r_q.sge + 8'd1;
          r.ask_range = r_q.ask_range + 3'd1;
        end
        if (recv_ends) begin
          r.ask       = r_q.ask + 16'd1;
          r.ask_range = '0;
        end
        more_ask = 1'b1;
      end
      START: begin
        we     = 1'b1;
        r      = '0;
        r.on   = 1'b1;
        r.asid = cmd_asid;
      end
      default: begin
        if (op_q == ANSWER) begin
          we = 1'b1;
          if (kind_q == HELD) r.held[slot_q] = 1'b1;
          if (kind_q == ANSWERED && status_q == '0) acquire = 1'b1;
          if (kind_q == ANSWERED && status_q != '0) begin
            r.held[slot_q]    = 1'b1;
            r.refused[slot_q] = 1'b1;
            r.budget[slot_q]  = status_q == PAGE_OVER_BUDGET;
          end
        end
        // The oldest chunk. One that was held already waits for its turn, which is an operation of its own.
        have = r_q.have_w != r_q.ask_w && r.held[at] && (op_q == ADVANCE || slot_q == at);
        if (have) begin
          if (r.refused[at] && !failed) {failed, over} = {1'b1, r.budget[at]};
          give = failed && !r.refused[at] && ranges != '0;
          if (!failed && ranges != '0) r.got = r_q.got + 16'd1;
        end
        if (have && r_q.final_w[at]) begin
          if (p_local || failed) begin
            // Completes in its turn; what is posted before it must not wait for the batch's end.
            want_local = local_turn;
            commit     = !local_turn && r_q.open;
            have       = local_turn;
            give       = give && local_turn;
          end else begin
            post     = 1'b1;
            commit   = p_last;
            r.credit = r_q.credit + 7'd1;
          end
          // The batch may end with a receive that never is a credit.
          if (want_local && p_last) commit = r_q.open;
          if (post) r.open = 1'b1;
          if (commit) r.open = 1'b0;
          if (have) begin
            r.grant = r_q.grant + 16'd1;
            r.got   = '0;
          end
        end
        if (have) begin
          r.failed   = failed && !r_q.final_w[at];
          r.over     = over;
          r.held[at] = 1'b0;
          r.have_w   = r_q.have_w + 8'd1;
          more_adv   = r_q.have_w + 8'd1 != r_q.ask_w && r.held[4'(at + 4'd1)];
          more_ask   = 8'(r_q.ask_w - r_q.have_w) == 8'd16;
        end
        we = we || have || commit;
      end
    endcase
  end
  assign go = (!(acquire || give) || !xa_valid || xa_ready) && (!(post || commit) || post_ready)
           && (!want_local || local_ready);

  assign ring_we       = state_q == DECIDE && go && post;
  assign ring_q        = q_q;
  assign ring_at       = r_q.credit;
  assign ring_data     = {wr_id, size, first_range, ranges};
  assign post_valid    = state_q == DECIDE && go && (post || commit);
  assign post_q        = q_q;
  assign post_credit   = post;
  assign post_size     = size;
  assign post_commit   = commit;
  assign local_valid   = state_q == DECIDE && go && want_local;
  assign local_data    = {q_q, wr_id,
                          p_bad ? WC_BAD_WQE : !failed ? WC_OK : over ? WC_OVER_BUDGET : WC_LOCAL_PROTECTION,
                          first_range, ranges, r_q.got};
  assign ev_hit        = state_q == DECIDE && go && op_q == ANSWER && kind_q == HELD;
  assign ev_miss       = state_q == DECIDE && go && op_q == ANSWER && kind_q == MISS;

  always_ff @(posedge clk) begin
    if (xa_ready) xa_valid <= 1'b0;
    case (state_q)
      LOOK: begin
        state_q    <= DECIDE;
        r_q        <= row;
        n_parsed_q <= n_parsed;
        n_freed_q  <= n_freed;
      end
      DECIDE:
      if (go) begin
        state_q <= IDLE;
        if (we) r_q <= r;
        if (acquire || give) begin
          xa_valid   <= 1'b1;
          xa_release <= give;
          xa_asid    <= r_q.asid;
          xa_va    <= op_q == ASK ? va : again_va;
          xa_len   <= op_q == ASK ? chunk : again_len;
          xa_tag   <= 16'({q_q, op_q == ASK ? r_q.ask_w[3:0] : slot_q});
        end
      end
      default: ;
    endcase
    if (take) begin
      state_q  <= LOOK;
      op_q     <= op;
      q_q      <= q_next;
      same_q   <= state_q != IDLE && q_next == q_q;
      slot_q   <= xr_tag[3:0];
      kind_q   <= xr_kind;
      status_q <= xr_status;
      turn_q   <= op == ASK;
    end
    if (rst) begin
      state_q  <= IDLE;
      xa_valid <= 1'b0;
      turn_q   <= 1'b0;
    end
  end

  logic stored;
  assign stored = state_q == DECIDE && go;
  berth_fp_ready #(
      .QPS(QPS),
      .SETS(2)
  ) asks (
      .clk,
      .rst,
      .set({parsed_we, stored && more_ask}),
      .set_q({parsed_q, q_q}),
      .valid(ask_valid),
      .q(ask_q),
      .pop(ask_pop),
      .busy(ask_busy)
  );
  // A receive that completed may make it the turn of one that never is a credit.
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

  // The window's places are used once at a time.
  always_ff @(posedge clk) if (!rst && stored && we) assert (8'(r.ask_w - r.have_w) <= 8'd16);

  wire unused = &{1'b0, look_recv[15:7], xr_tag};
endmodule
