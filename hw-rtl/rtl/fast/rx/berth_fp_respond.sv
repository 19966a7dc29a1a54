// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers to RDMA READs: what `rc::Responder` gives as responses, packet by packet. Arrival says which READs are to be
// answered; those of a QP are in their order, and begin when all before them is in place or being answered. What a peer asks
// for again comes first.
//
// QPs take turns by packets. A packet's key is looked up again, because it may be another one since the READ was taken; then
// its pages are acquired, if they are there. If not, the host is asked for them, and the QP has its next turn when it has
// answered: then all begins anew, as nothing is held meanwhile. One packet of a QP is on its way through this at a time. So a
// slow page holds up nobody else, and a key that is stored waits for none.
//
// What is acquired goes to the transmit half, in that order. When its payload has been read the pages go back, and arrival
// hears that the packet is answered; or that it cannot be, which ends the connection, as a key or memory that is gone does.
//
// One packet in some 14 clocks.
module berth_fp_respond #(
    // QPs, a power of two up to 1024.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS),
    parameter int unsigned LR = $clog2(berth_regs_pkg::MAX_READS)   // log2 of READs of a QP
) (
    input  logic                          clk,
    input  logic                          rst,
    output logic                          busy,
    // READs, at most `MAX_READS` of each kind; whether the QP may have its turn; it begins, or ends. See `berth_fp_arrival`.
    input  logic                          read_valid,
    input  logic [QW-1:0]                 read_q,
    input  berth_card_pkg::read_t         read,
    input  logic                          way_we,
    input  logic                          way_due,
    input  logic [QW-1:0]                 way_q,
    input  berth_card_pkg::way_t          way,
    input  logic                          begin_valid,     // of `way_q`
    input  logic                          end_valid,
    output logic [LR:0]                   st_reads,        // of `way_q`: those of which not all packets have been given
    output logic [LR:0]                   st_agains,
    output logic                          answered_valid,
    input  logic                          answered_ready,
    output logic [QW-1:0]                 answered_q,
    output berth_card_pkg::answered_t     answered,
    // Keys: see `berth_fp_keys`.
    output logic                          ask_valid,
    input  logic                          ask_ready,
    output berth_card_pkg::access_t       ask,
    input  logic                          told_valid,      // of our own question
    input  berth_card_pkg::admission_t    told,
    // Translation. The upper three bits of a tag say that it is ours.
    output logic                          hold_valid,
    input  logic                          hold_ready,
    output berth_card_pkg::range_ask_t    hold,
    input  logic                          xr_valid,
    output logic                          xr_ready,
    input  berth_card_pkg::range_answer_t xr,
    output logic                          ev_stray,        // the host answers what it was not asked
    // Packets for the transmit half; the payload of one has been read.
    output logic                          rsp_valid,
    input  logic                          rsp_ready,
    output logic [QW-1:0]                 rsp_q,
    output berth_card_pkg::response_t       rsp,
    input  logic                          sent_valid,
    input  berth_card_pkg::response_end_t   sent,
    // Whether something of QP `asked_q` is under way, three clocks later.
    input  logic [QW-1:0]                 asked_q,
    output logic                          st_busy,
    // What was let in by a key before `fence` has been read.
    input  logic                          fence,
    output logic                          fenced
);
  localparam int unsigned FLIGHTS = 16;
  localparam logic [1:0] HIT = berth_regs_pkg::XLT_HIT[1:0];
  localparam logic [1:0] MISS = berth_regs_pkg::XLT_MISS[1:0];
  localparam logic [1:0] READY = berth_regs_pkg::XLT_READY[1:0];
  initial if (QPS > 1024) $fatal(1, "berth_fp_respond: a tag has room for 1024 QPs");

  // ---- what is to be done: READs, and answers of the translation -------------------------------------
  logic [LR:0] put[0:QPS-1];               // READs that have come, of each kind
  logic [LR:0] put_again[0:QPS-1];
  logic [LR:0] over[0:QPS-1];              // those that are answered: as `head` and `head_again`
  logic [LR:0] over_again[0:QPS-1];
  logic [QPS-1:0] over_q;                 // it has ended, or an answer has failed
  logic turn_valid, turn_pop, turn_busy, again_turn;
  logic [QW-1:0] turn_q;
  berth_fp_ready #(
      .QPS (QPS),
      .SETS(2)
  ) turns (
      .clk,
      .rst,
      .set({again_turn, way_we && way_due}),
      .set_q({q_q, way_q}),
      .valid(turn_valid),
      .q(turn_q),
      .pop(turn_pop),
      .busy(turn_busy)
  );
  berth_card_pkg::range_answer_t got;
  logic got_valid, got_pop;
  berth_lutfifo #(
      .WIDTH($bits(xr)),
      .DEPTH(16)
  ) answers (
      .clk,
      .rst,
      .wr_valid(xr_valid),
      .wr_ready(xr_ready),
      .wr_data(xr),
      .rd_valid(got_valid),
      .rd_ready(got_pop),
      .rd_data(got)
  );

  // A packet on its way.
  typedef struct packed {
    logic [QW-1:0] q;
    berth_card_pkg::response_t a;           // as it is sent
    logic        frame;                   // it is
    logic        holds;                   // its pages are held
    logic        again, one_shot;
    logic [23:0] first;
    logic [31:0] key;
    logic        failed;                  // it has no answer
    logic [3:0]  fault;
  } flight_t;
  flight_t flight;

  // ---- one operation: a QP's turn, or an answer --------------------------------------------------------
  // Where a QP's next packet is: nothing is asked for; the pages are looked for, to be held; the host is being asked; it was.
  localparam logic [1:0] NONE = 2'd0, HOLD = 2'd1, ASK = 2'd2, WAIT = 2'd3;
  typedef struct packed {
    logic [1:0]  phase;
    logic        again;                   // what the answer is for is asked for again
    logic        refused;                 // the host cannot have the memory
    logic        stop;                    // an answer fails
    logic [LR:0] head, head_again;        // READs that are answered
    logic [8:0]  sent, sent_again;        // packets of the next one that are
    logic [23:0] next, msn;               // behind the last packet of one that was not asked for again; that packet's
    logic [7:0]  asid;
  } row_t;
  typedef enum logic [3:0] {IDLE, ROW, PICK, JOB, CALC, DO, KEY, TOLD, ACQUIRE, WISH} state_t;
  state_t state_q;
  logic [QW-1:0] q_q, q_next;
  logic is_answer_q, take;
  logic [1:0] kind_q;
  logic [7:0] status_q;
  logic room, fence_q, row_we, push, gone;
  logic [QPS-1:0] fresh_q;                // its row holds nothing yet
  row_t row, row_q, f;
  berth_card_pkg::way_t there, way_now_q;
  berth_card_pkg::read_t job, job_q;
  logic again, some, again_q, some_q, flying, flying_q;
  logic [LR:0] head;
  logic [8:0] done;
  logic [63:0] va_q;
  logic [20:0] left;
  logic [12:0] mtu, len_q;
  logic [23:0] psn_q, msn_q;
  logic begins_q, ends_q, may_q;
  logic [7:0] asid_q;
  logic denied_q;

  assign got_pop  = state_q == IDLE && got_valid;
  assign turn_pop = state_q == IDLE && !got_valid && turn_valid && room && !fence_q;
  assign take     = got_pop || turn_pop;
  assign q_next   = got_valid ? got.tag[QW-1:0] : turn_q;
  berth_fp_mem #(
      .WIDTH($bits(row)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_rows (
      .clk,
      .we(row_we),
      .waddr(q_q),
      .wdata(f),
      .re(take),
      .raddr(q_next),
      .rdata(row)
  );
  berth_fp_mem #(
      .WIDTH($bits(way)),
      .DEPTH(QPS)
  ) m_ways (
      .clk,
      .we(way_we),
      .waddr(way_q),
      .wdata(way),
      .re(take),
      .raddr(q_next),
      .rdata(there)
  );
  berth_fp_mem #(
      .WIDTH($bits(job)),
      .DEPTH(QPS << (LR + 1))
  ) m_reads (
      .clk,
      .we(read_valid),
      .waddr({read_q, read.again, read.again ? put_again[read_q][LR-1:0] : put[read_q][LR-1:0]}),
      .wdata(read),
      .re(state_q == PICK),
      .raddr({q_q, again, head[LR-1:0]}),
      .rdata(job)
  );
  always_ff @(posedge clk) begin
    if (begin_valid || (read_valid && !read.again)) put[begin_valid ? way_q : read_q] <= begin_valid ? '0 : put[read_q] + (LR+1)'(1);
    if (begin_valid || (read_valid && read.again)) put_again[begin_valid ? way_q : read_q] <= begin_valid ? '0 : put_again[read_q] + (LR+1)'(1);
    if (begin_valid || (push && !flight.failed && ends_q && !again_q)) over[begin_valid ? way_q : q_q] <= begin_valid ? '0 : f.head;
    if (begin_valid || (push && !flight.failed && ends_q && again_q)) over_again[begin_valid ? way_q : q_q] <= begin_valid ? '0 : f.head_again;
  end
  // A response may be answered by the next READ before arrival hears that the packet has left.
  assign st_reads  = put[way_q] - over[way_q];
  assign st_agains = put_again[way_q] - over_again[way_q];

  assign again = is_answer_q ? row_q.again : put_again[q_q] != row_q.head_again;
  assign some  = again || put[q_q] != row_q.head;
  assign head  = again ? row_q.head_again : row_q.head;
  assign done  = again_q ? row_q.sent_again : row_q.sent;
  assign left  = job_q.len - (21'(done) << job_q.log2_mtu);
  assign mtu   = 13'd1 << job_q.log2_mtu;
  assign gone  = over_q[q_q] || row_q.stop;
  always_ff @(posedge clk) begin
    case (state_q)
      IDLE: begin
        q_q         <= q_next;
        is_answer_q <= got_valid;
        kind_q      <= got.kind;
        status_q    <= got.status;
        denied_q    <= 1'b0;
        if (take) state_q <= ROW;
      end
      ROW: begin
        row_q     <= fresh_q[q_q] ? '0 : row;
        way_now_q <= there;
        state_q   <= PICK;
      end
      PICK: begin
        again_q  <= again;
        some_q   <= some;
        flying_q <= flying;
        state_q  <= JOB;
      end
      JOB: begin
        job_q   <= job;
        state_q <= CALC;
      end
      CALC: begin
        va_q     <= job_q.va + (64'(done) << job_q.log2_mtu);
        len_q    <= left > 21'(mtu) ? mtu : left[12:0];
        psn_q    <= job_q.psn + 24'(done);
        begins_q <= done == '0;
        ends_q   <= done + 9'd1 == job_q.packets;
        // All before it is in place, or ends with the answer to the READ before it, which is on its way.
        may_q    <= again_q || done != '0 || way_now_q.psn == job_q.psn || (flying_q && row_q.next == job_q.psn);
        msn_q    <= again_q || (done == '0 && way_now_q.psn == job_q.psn) ? way_now_q.msn : row_q.msn + 24'(done == '0);
        state_q  <= DO;
      end
      // Waits for a QP that begins.
      DO:
      if (!begin_valid) begin
        asid_q  <= row_q.asid;
        state_q <= IDLE;
        if (!is_answer_q && !gone && row_q.phase == NONE && !row_q.refused && some_q && may_q && len_q != '0) state_q <= KEY;
        if (is_answer_q && row_q.phase == HOLD && kind_q == MISS && !gone) state_q <= WISH;
      end
      KEY: if (ask_ready) state_q <= TOLD;
      TOLD:
      if (told_valid) begin
        asid_q   <= told.asid;
        denied_q <= told.refusal != berth_row_pkg::KEY_OK;
        state_q  <= ACQUIRE;
      end
      default: state_q <= IDLE;
    endcase
    fresh_q <= (fresh_q & ~(row_we ? QPS'(1) << q_q : '0)) | (begin_valid ? QPS'(1) << way_q : '0);
    if (rst) begin
      state_q <= IDLE;
      fresh_q <= '1;
    end
  end

  assign ask_valid   = state_q == KEY;
  assign ask.claim   = 1'b0;
  assign ask.again   = 1'b1;              // a one-shot key is this READ's since arrival has taken it
  assign ask.right   = berth_card_pkg::RIGHT_BIT_READ;
  assign ask.qpn     = 16'(q_q);
  assign ask.domain  = job_q.domain;
  assign ask.key     = job_q.key;
  assign ask.va      = va_q;
  assign ask.len     = 32'(len_q);
  assign ask.psn     = psn_q;
  assign ask.packets = 24'd1;

  // ---- decide ----------------------------------------------------------------------------------------------
  logic [4:0] put_q, give_q, done_q;      // of the flights
  logic [4:0] holds_q;                    // pages are looked for, to be held: their flights have a place
  logic holding, looked;
  berth_card_pkg::range_ask_t acquire, release_;
  logic rel_valid;

  assign looked = state_q == DO && !begin_valid && is_answer_q && row_q.phase == HOLD && kind_q != READY;
  always_comb begin
    f          = row_q;
    row_we     = 1'b0;
    push       = 1'b0;
    again_turn = 1'b0;
    ev_stray   = 1'b0;
    flight.q          = q_q;
    flight.a.begins   = begins_q;
    flight.a.ends     = ends_q;
    flight.a.psn      = psn_q;
    flight.a.msn      = msn_q;
    flight.a.len      = len_q;
    flight.a.asid     = row_q.asid;
    flight.a.va       = va_q;
    flight.a.tag      = put_q[3:0];
    flight.frame      = !gone;
    flight.holds      = is_answer_q;
    flight.again      = again_q;
    flight.one_shot   = job_q.one_shot;
    flight.first      = job_q.psn;
    flight.key        = job_q.key;
    flight.failed     = 1'b0;
    flight.fault      = row_q.refused ? berth_row_pkg::FAULT_PAGE : berth_row_pkg::FAULT_ACCESS;
    case (state_q)
      DO:
      if (begin_valid) begin
      end else if (!is_answer_q) begin
        if (!gone && row_q.phase == NONE && some_q && (row_q.refused || (may_q && len_q == '0))) begin
          push          = 1'b1;
          row_we        = 1'b1;
          again_turn    = !row_q.refused;
          f.refused     = 1'b0;
          f.stop        = row_q.refused;
          flight.frame  = !row_q.refused;
          flight.failed = row_q.refused;
        end
      end else
        case (row_q.phase)
          HOLD: begin
            ev_stray = kind_q == READY;
            if (kind_q != READY) f.phase = NONE;
            push       = kind_q == HIT;
            row_we     = kind_q == HIT || gone;
            again_turn = kind_q == HIT;
          end
          ASK: begin
            ev_stray = kind_q == READY;
            row_we   = kind_q != READY;
            if (kind_q != READY) f.phase = kind_q == HIT ? NONE : WAIT;
            again_turn = kind_q == HIT;
          end
          WAIT: begin
            ev_stray   = kind_q != READY;
            row_we     = kind_q == READY;
            f.phase    = NONE;
            f.refused  = status_q != '0;
            again_turn = kind_q == READY;
          end
          default: ev_stray = 1'b1;
        endcase
      ACQUIRE: begin
        f.phase = HOLD;
        f.again = again_q;
        f.asid  = asid_q;
        row_we  = 1'b1;
        push    = denied_q;
        if (denied_q) begin
          f.phase       = NONE;
          f.stop        = 1'b1;
          flight.frame  = 1'b0;
          flight.failed = 1'b1;
        end
      end
      WISH: begin
        f.phase = ASK;
        row_we  = 1'b1;
      end
      default: ;
    endcase
    // The next packet, or READ.
    if (push && !flight.failed) begin
      if (again_q) begin
        f.sent_again = ends_q ? '0 : row_q.sent_again + 9'd1;
        f.head_again = row_q.head_again + (LR+1)'(ends_q);
      end else begin
        f.sent = ends_q ? '0 : row_q.sent + 9'd1;
        f.head = row_q.head + (LR+1)'(ends_q);
        f.next = psn_q + 24'd1;
        f.msn  = msn_q;
      end
    end
  end

  // An answer is taken whether or not the translation takes the next question, as that may wait for just this.
  localparam int unsigned ASKS = 32;
  logic asks_valid, asks_pop, asks_room;
  logic [5:0] asks_q;
  berth_card_pkg::range_ask_t asked;
  berth_lutfifo #(
      .WIDTH($bits(asked)),
      .DEPTH(ASKS)
  ) asks (
      .clk,
      .rst,
      .wr_valid(holding || state_q == WISH),
      .wr_ready(asks_room),
      .wr_data(acquire),
      .rd_valid(asks_valid),
      .rd_ready(asks_pop),
      .rd_data(asked)
  );
  assign asks_pop = hold_ready && !rel_valid;
  always_ff @(posedge clk)
    asks_q <= rst ? '0 : asks_q + 6'(holding || state_q == WISH) - 6'(asks_valid && asks_pop);
  assign holding = state_q == ACQUIRE && !denied_q;
  always_comb begin
    acquire       = '0;
    acquire.quiet = state_q == ACQUIRE;
    acquire.probe = state_q == WISH;
    acquire.asid  = asid_q;
    acquire.va    = va_q;
    acquire.len   = 31'(len_q);
    acquire.tag   = {3'b111, 3'd0, 10'(q_q)};
  end
  assign hold_valid = rel_valid || asks_valid;
  assign hold       = rel_valid ? release_ : asked;

  // ---- on their way: given in order, and in that order answered --------------------------------------------
  logic [$bits(flight)-1:0] flights[0:FLIGHTS-1];
  logic [QW-1:0] flight_of[0:FLIGHTS-1];
  logic [FLIGHTS-1:0] used_q, read_bits_q, bad_q;
  flight_t given, last;
  logic gives, last_there, released_q, tells, passes;
  assign given      = flights[give_q[3:0]];
  assign last       = flights[done_q[3:0]];
  assign rsp_valid  = give_q != put_q && given.frame;
  assign rsp_q      = given.q;
  assign rsp        = given.a;
  assign gives      = give_q != put_q && (!given.frame || rsp_ready);
  assign last_there = done_q != give_q && read_bits_q[done_q[3:0]];
  assign rel_valid  = last_there && last.holds && !released_q;
  assign tells      = last_there && !rel_valid;
  assign answered_valid    = tells && !over_q[last.q];
  assign answered_q        = last.q;
  assign answered.again    = last.again;
  assign answered.psn      = last.a.psn;
  assign answered.ends     = last.a.ends;
  assign answered.first    = last.first;
  assign answered.one_shot = last.one_shot;
  assign answered.key      = last.key;
  assign answered.failed   = last.failed || bad_q[done_q[3:0]];
  assign answered.fault    = last.failed ? last.fault : berth_row_pkg::FAULT_WRITE;
  assign passes       = tells && (answered_ready || over_q[last.q]);
  always_comb begin
    release_           = '0;
    release_.give_back = 1'b1;
    release_.asid      = last.a.asid;
    release_.va        = last.a.va;
    release_.len       = 31'(last.a.len);
    flying = 1'b0;
    for (int unsigned i = 0; i < FLIGHTS; i++) if (used_q[i] && flight_of[i] == q_q) flying = 1'b1;
  end
  // Of a turn, and of those that have looked for pages: a flight each, or the question to the host.
  assign room = 5'(put_q - done_q) + holds_q < 5'(FLIGHTS) && asks_q + 6'(holds_q) < 6'(ASKS - 2);
  always_ff @(posedge clk) begin
    if (push) begin
      flights[put_q[3:0]]     <= flight;
      flight_of[put_q[3:0]]   <= q_q;
      used_q[put_q[3:0]]      <= 1'b1;
      read_bits_q[put_q[3:0]] <= !flight.frame;
      bad_q[put_q[3:0]]       <= 1'b0;
      put_q <= put_q + 5'd1;
    end
    if (sent_valid) begin
      read_bits_q[sent.tag] <= 1'b1;
      bad_q[sent.tag]       <= sent.failed;
    end
    if (gives) give_q <= give_q + 5'd1;
    if (rel_valid && hold_ready) released_q <= 1'b1;
    if (passes) begin
      used_q[done_q[3:0]] <= 1'b0;
      done_q     <= done_q + 5'd1;
      released_q <= 1'b0;
    end
    holds_q <= holds_q + 5'(holding) - 5'(looked);
    over_q <= (over_q | (end_valid ? QPS'(1) << way_q : '0) | (passes && answered.failed ? QPS'(1) << last.q : '0))
            & ~(begin_valid ? QPS'(1) << way_q : '0);
    if (rst) begin
      put_q   <= '0;
      give_q  <= '0;
      done_q  <= '0;
      holds_q <= '0;
      released_q <= '0;
      used_q     <= '0;
      over_q     <= '0;
    end
  end

  // ---- what a QP has under way; fence -----------------------------------------------------------------------
  logic waits, mine;
  berth_fp_mem #(
      .WIDTH(1),
      .DEPTH(QPS)
  ) m_waits (
      .clk,
      .we(row_we),
      .waddr(q_q),
      .wdata(f.phase != NONE),
      .re(1'b1),
      .raddr(asked_q),
      .rdata(waits)
  );
  always_comb begin
    mine = state_q != IDLE && q_q == asked_q;
    for (int unsigned i = 0; i < FLIGHTS; i++) if (used_q[i] && flight_of[i] == asked_q) mine = 1'b1;
  end
  always_ff @(posedge clk) st_busy <= mine || (waits && !fresh_q[asked_q]);

  // No turn begins meanwhile, so that it is over soon. Whoever waits for the host looks the key up again.
  assign fenced = fence_q && state_q == IDLE && holds_q == '0 && put_q == done_q;
  always_ff @(posedge clk) fence_q <= !rst && (fence || (fence_q && !fenced));

  assign busy = state_q != IDLE || got_valid || asks_valid || turn_busy || holds_q != '0 || put_q != done_q || fence_q;

  always_ff @(posedge clk)
    if (!rst) begin
      // What is acquired, and a turn's failure, has a place.
      assert (!push || 5'(put_q - done_q) < 5'(FLIGHTS));
      assert (asks_room || !(holding || state_q == WISH));
      assert (!sent_valid || (used_q[sent.tag] && !read_bits_q[sent.tag]));
      assert (!looked || holds_q != '0);
    end

  wire unused = &{1'b0, got.tag, told, last, given, job_q, head};
endmodule
