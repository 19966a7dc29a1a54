// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers to RDMA READs and atomics: what `rc::Responder` gives as responses, packet by packet. Arrival says which are to be
// answered; those of a QP are in their order, and begin when all before them is in place or being answered. What a peer asks
// for again comes first.
//
// QPs take turns by packets. A packet's key is looked up again, because it may be another one since the READ was taken; then
// its pages are acquired, if they are there. If not, the host is asked for them, and the QP has its next turn when it has
// answered: then all begins anew, as nothing is held meanwhile. One packet of a QP is on its way through this at a time. So a
// slow page holds up nobody else, and a key that is stored waits for none.
//
// A READ of one packet that is the next to be answered comes with its page held, and its key just looked up: it is given on at
// once, and has no place among the READs that are kept.
//
// An atomic is a READ of one packet, whose pages are acquired to be written. When they are held, `berth_atomic` changes the
// bytes, and what stood there is the answer; then the QP has its next turn. No READ before it is being read meanwhile. At most
// `ATOMICS` are under way, one of a QP, so that READs have places beside them; QPs that would have more take turns of their own.
//
// What an atomic gave is kept where its operands were, as long as its READ has its place in memory: until `MAX_READS` newer
// ones have come, which no peer sends before it has the answer. One that is asked for again is looked for there by its PSN, and
// if it is found answered from there; it is never carried out again.
//
// What is acquired goes to the transmit half, in that order. When its payload has been read the pages go back, and arrival
// hears that the packet is answered; or that it cannot be, which ends the connection, as a key or memory that is gone does.
//
// A packet is two operations: its QP's turn, of six clocks, and the answer of the translation, of three. Its key is looked up
// while the next operation is done. So there is one in nine clocks.
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
    input  logic [127:0]                  read_operands,   // of an atomic: what is added or swapped in, what is compared with
    output logic                          read_held_ready,
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
    // Atomics: see `berth_atomic`.
    output logic                          change_valid,
    input  logic                          change_ready,
    output berth_card_pkg::change_t       change,
    input  logic                          changed_valid,
    input  berth_card_pkg::change_end_t   changed,
    // Packets for the transmit half; the payload of one has been read.
    output logic                          rsp_valid,
    input  logic                          rsp_ready,
    output logic [QW-1:0]                 rsp_q,
    output berth_card_pkg::response_t       rsp,
    output logic                          ev_again,        // it is of an atomic that was carried out before
    input  logic                          sent_valid,
    input  berth_card_pkg::response_end_t   sent,
    // Whether something of QP `asked_q` is under way, three clocks later.
    input  logic [QW-1:0]                 asked_q,
    output logic                          st_busy,
    // What was let in by a key before `fence` has been read.
    input  logic                          fence,
    output logic                          fenced
);
  localparam int unsigned FLIGHTS = berth_regs_pkg::READ_TAGS;    // as many as there are commands to read
  localparam int unsigned FW = $clog2(FLIGHTS);
  localparam int unsigned ATOMICS = FLIGHTS / 4;
  localparam int unsigned AW = $clog2(ATOMICS);
  localparam logic [1:0] ATOMIC_NONE = berth_row_pkg::ATOMIC_NONE;
  localparam logic [1:0] HIT = berth_regs_pkg::XLT_HIT[1:0];
  localparam logic [1:0] MISS = berth_regs_pkg::XLT_MISS[1:0];
  localparam logic [1:0] READY = berth_regs_pkg::XLT_READY[1:0];
  initial if (QPS > 1024 || FLIGHTS > 64) $fatal(1, "berth_fp_respond: a tag has room for 1024 QPs, or 64 packets");

  // ---- what is to be done: READs, and answers of the translation -------------------------------------
  logic [LR:0] put[0:QPS-1];               // READs that have come, of each kind
  logic [LR:0] put_again[0:QPS-1];
  logic [LR:0] over[0:QPS-1];              // those that are answered: as `head` and `head_again`
  logic [LR:0] over_again[0:QPS-1];
  logic [QPS-1:0] over_q;                 // it has ended, or an answer has failed
  logic [QPS-1:0] many_q;                 // at least as many READs have come as are kept
  logic turn_valid, turn_pop, turn_busy, again_turn;
  logic late_valid, late_pop, late_busy, late_turn;    // of QPs with an atomic for which there was no place
  logic [QW-1:0] turn_q, late_q;
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
  berth_fp_ready #(
      .QPS(QPS)
  ) late_turns (
      .clk,
      .rst,
      .set(late_turn),
      .set_q(q_q),
      .valid(late_valid),
      .q(late_q),
      .pop(late_pop),
      .busy(late_busy)
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

  // A packet, and what becomes of it.
  typedef struct packed {
    logic        again;                   // asked for again
    logic        begins, ends;            // the READ
    logic [1:0]  atomic;                  // ATOMIC_*
    logic [23:0] psn, msn;
    logic [12:0] len;
    logic [63:0] va;
    logic [7:0]  asid;
    logic        one_shot;
    logic [23:0] first;                   // PSN of the READ
    logic [31:0] key;
  } packet_t;
  // What of it the transmit half is given, and what is still to be done when it has been read.
  typedef struct packed {
    logic [QW-1:0] q;
    logic        frame;                   // it is sent
    logic        again;                   // asked for again
    logic        begins, ends;
    logic        atomic;
    logic [23:0] psn, msn;
    logic [12:0] len;
    logic [63:0] va;
    logic [7:0]  asid;
    logic [63:0] original;
  } given_t;
  typedef struct packed {
    logic [QW-1:0] q;
    logic        holds;                   // its pages are held
    logic        failed;                  // it has no answer
    logic [3:0]  fault;
    logic        counts;                  // it is one of `atomics_q`
    logic        again;
    logic        ends;
    logic        atomic;
    logic [23:0] psn;
    logic [12:0] len;
    logic [63:0] va;
    logic [7:0]  asid;
    logic        one_shot;
    logic [23:0] first;
    logic [31:0] key;
  } flight_t;
  given_t give;
  flight_t flight;

  // ---- one operation: a QP's turn, or an answer, of the translation, of the keys, or to an atomic -----------------
  // Where a QP's next packet is: nothing is asked for; key and pages are looked for, to be held; the host is being asked; it
  // was; its pages are held and it changes the bytes.
  localparam logic [2:0] NONE = 3'd0, HOLD = 3'd1, ASK = 3'd2, WAIT = 3'd3, CHANGE = 3'd4;
  typedef struct packed {
    logic [2:0]  phase;
    logic        refused;                 // the host cannot have the memory
    logic        stop;                    // an answer fails
    logic [LR:0] head, head_again;        // READs that are answered
    logic [8:0]  sent, sent_again;        // packets of the next one that are
    logic [23:0] next, msn;               // behind the last packet of one that was not asked for again; that packet's
    logic        atomic;                  // that was one
  } row_t;
  typedef enum logic [3:0] {IDLE, ROW, PICK, JOB, CALC, SCAN, FOUND, KEPT, DO, WISH} state_t;
  state_t state_q;
  logic [QW-1:0] q_q, q_next;
  logic is_answer_q, is_refusal_q, is_change_q, take;
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
  logic [20:0] left;
  logic [12:0] mtu;
  logic may_q;
  logic [LR:0] scan_q;                    // the READ that is looked at next
  logic [LR-1:0] found_at_q;
  logic found_q, same, recent;
  logic [63:0] kept_q;                    // what the atomic gave
  packet_t p_q, waiting;                  // that of this operation; the one that a QP's answer is for

  // READs whose memory is held.
  localparam int unsigned HANDED = 4;
  typedef struct packed {
    logic [QW-1:0] q;
    logic [23:0]   psn, msn;
    logic [12:0]   len;
    logic [63:0]   va;
    logic [7:0]    asid;
    logic [31:0]   key;
  } handed_t;
  handed_t handed_new, handed;
  packet_t handed_packet, handed_q;
  logic hands, handed_valid, handed_room, handed_pop, is_handed_q;
  logic [$clog2(HANDED):0] handed_left_q;
  logic [QPS-1:0] handing_q;              // QPs with one that has not been given on

  // What is looked for: the key, then the pages. Whoever is refused by the key comes back as an operation.
  typedef enum logic [2:0] {FREE, KEY, TOLD, ACQUIRE, REFUSED} look_t;
  look_t look_q;
  logic [QW-1:0] look_for_q;
  logic [15:0] domain_q;
  packet_t l_q;
  logic wanted, full, look, refusal_pop;

  // The oldest atomic whose pages are held, and that is not being carried out: its operands are fetched. And the oldest that has
  // been, whose end is kept and is then an operation.
  typedef enum logic [1:0] {C_FETCH, C_OPERANDS, C_GO} change_state_t;
  typedef struct packed {
    logic [QW-1:0] q;
    logic [LR-1:0] slot;
    logic          add;
    logic [7:0]    asid;
    logic [63:0]   va;
  } held_t;
  change_state_t c_state_q;
  held_t held_new, held;
  logic held_put, held_valid, held_pop, held_room, change_pop, keeps, fetches, no_turn;
  logic ended_valid, ended_room, ended_pop, kept_done_q;
  logic [QW-1:0] ended_of;
  logic [LR-1:0] ended_slot;
  logic [127:0] operands, operands_q;
  berth_card_pkg::change_end_t ended;
  logic [AW:0] atomics_q;                 // those whose key is looked up, and what comes then, up to the end of their flight

  assign refusal_pop = state_q == IDLE && look_q == REFUSED;
  assign change_pop  = state_q == IDLE && !refusal_pop && ended_valid && (ended.failed || kept_done_q);
  assign got_pop  = state_q == IDLE && !refusal_pop && !change_pop && got_valid;
  assign handed_pop = state_q == IDLE && !refusal_pop && !change_pop && !got_valid && handed_valid;
  assign no_turn  = state_q != IDLE || refusal_pop || change_pop || got_valid || handed_valid || !room || fence_q;
  assign late_pop = !no_turn && late_valid && atomics_q < (AW+1)'(ATOMICS);
  assign turn_pop = !no_turn && !late_pop && turn_valid;
  assign take     = refusal_pop || change_pop || got_pop || handed_pop || late_pop || turn_pop;
  assign q_next   = refusal_pop ? look_for_q : change_pop ? ended_of : got_valid ? got.tag[QW-1:0] : handed_valid ? handed.q : late_pop ? late_q : turn_q;
  assign hands = read_valid && read.held;
  assign handed_new.q    = read_q;
  assign handed_new.psn  = read.psn;
  assign handed_new.msn  = way.msn;
  assign handed_new.len  = read.len[12:0];
  assign handed_new.va   = read.va;
  assign handed_new.asid = read.asid;
  assign handed_new.key  = read.key;
  berth_lutfifo #(
      .WIDTH($bits(handed)),
      .DEPTH(HANDED)
  ) handeds (
      .clk,
      .rst,
      .wr_valid(hands),
      .wr_ready(handed_room),
      .wr_data(handed_new),
      .rd_valid(handed_valid),
      .rd_ready(handed_pop),
      .rd_data(handed)
  );
  always_comb begin
    handed_packet        = '0;
    handed_packet.begins = 1'b1;
    handed_packet.ends   = 1'b1;
    handed_packet.psn    = handed.psn;
    handed_packet.msn    = handed.msn;
    handed_packet.len    = handed.len;
    handed_packet.va     = handed.va;
    handed_packet.asid   = handed.asid;
    handed_packet.first  = handed.psn;
    handed_packet.key    = handed.key;
  end
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
      .WIDTH($bits(waiting)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_waiting (
      .clk,
      .we(look_q == ACQUIRE),
      .waddr(look_for_q),
      .wdata(l_q),
      .re(got_pop || change_pop),
      .raddr(q_next),
      .rdata(waiting)
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
      .we(read_valid && !hands),
      .waddr({read_q, read.again, read.again ? put_again[read_q][LR-1:0] : put[read_q][LR-1:0]}),
      .wdata(read),
      .re(state_q == PICK || state_q == SCAN),
      .raddr(state_q == PICK ? {q_q, again, head[LR-1:0]} : {q_q, 1'b0, scan_q[LR-1:0]}),
      .rdata(job)
  );
  // An atomic's operands; then, in the upper half, what it gave.
  logic brings;
  assign brings  = read_valid && !read.again && !hands;
  assign keeps   = ended_valid && !ended.failed && !kept_done_q && !brings;
  assign fetches = c_state_q == C_FETCH && held_valid && state_q != FOUND;
  berth_fp_mem #(
      .WIDTH(128),
      .DEPTH(QPS << LR),
      .OWN(1'b1)
  ) m_operands (
      .clk,
      .we(brings || keeps),
      .waddr(brings ? {read_q, put[read_q][LR-1:0]} : {ended_of, ended_slot}),
      .wdata(brings ? read_operands : {ended.original, 64'd0}),
      .re(state_q == FOUND || fetches),
      .raddr(state_q == FOUND ? {q_q, found_at_q} : {held.q, held.slot}),
      .rdata(operands)
  );
  always_ff @(posedge clk) begin
    if (brings && put[read_q][LR-1:0] == '1) many_q[read_q] <= 1'b1;
    if (begin_valid) many_q[way_q] <= 1'b0;
    if (begin_valid || brings) put[begin_valid ? way_q : read_q] <= begin_valid ? '0 : put[read_q] + (LR+1)'(1);
    if (begin_valid || (read_valid && read.again)) put_again[begin_valid ? way_q : read_q] <= begin_valid ? '0 : put_again[read_q] + (LR+1)'(1);
    if (begin_valid || (push && !flight.failed && p_q.ends && !p_q.again)) over[begin_valid ? way_q : q_q] <= begin_valid ? '0 : f.head;
    if (begin_valid || (push && !flight.failed && p_q.ends && p_q.again)) over_again[begin_valid ? way_q : q_q] <= begin_valid ? '0 : f.head_again;
  end
  // A response may be answered by the next READ before arrival hears that the packet has left.
  assign st_reads  = put[way_q] - over[way_q] + (LR+1)'(handing_q[way_q]);
  assign st_agains = put_again[way_q] - over_again[way_q];

  assign again = put_again[q_q] != row_q.head_again;
  assign some  = again || put[q_q] != row_q.head;
  assign head  = again ? row_q.head_again : row_q.head;
  assign done  = again_q ? row_q.sent_again : row_q.sent;
  assign left  = job_q.len - (21'(done) << job_q.log2_mtu);
  assign mtu   = 13'd1 << job_q.log2_mtu;
  assign gone  = over_q[q_q] || row_q.stop;
  // The READ that was looked at, the one before `scan_q`: it is of this QP's life, and the atomic that is asked for.
  wire [LR:0] scanned = scan_q - (LR+1)'(1);
  assign recent  = many_q[q_q] || scanned < put[q_q];
  assign same = scan_q != '0 && recent && job.atomic != ATOMIC_NONE && job.psn == p_q.psn;
  always_ff @(posedge clk) begin
    case (state_q)
      IDLE: begin
        q_q          <= q_next;
        is_answer_q  <= got_pop || refusal_pop || change_pop || handed_pop;
        is_handed_q  <= handed_pop;
        is_refusal_q <= refusal_pop;
        is_change_q  <= change_pop;
        kind_q       <= got.kind;
        status_q     <= got.status;
        handed_q     <= handed_packet;
        if (take) state_q <= ROW;
      end
      ROW: begin
        row_q     <= fresh_q[q_q] ? '0 : row;
        way_now_q <= there;
        p_q       <= is_refusal_q ? l_q : is_handed_q ? handed_q : waiting;
        state_q   <= is_answer_q ? DO : PICK;
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
        p_q.again    <= again_q;
        p_q.begins   <= done == '0;
        p_q.ends     <= done + 9'd1 == job_q.packets;
        p_q.psn      <= job_q.psn + 24'(done);
        p_q.msn      <= again_q || (done == '0 && way_now_q.psn == job_q.psn) ? way_now_q.msn : row_q.msn + 24'(done == '0);
        p_q.len      <= left > 21'(mtu) ? mtu : left[12:0];
        p_q.va       <= job_q.va + (64'(done) << job_q.log2_mtu);
        p_q.one_shot <= job_q.one_shot;
        p_q.first    <= job_q.psn;
        p_q.key      <= job_q.key;
        p_q.atomic   <= job_q.atomic;
        // All before it is in place, or ends with the answer to the READ before it, which is on its way. An atomic does not
        // begin while a READ before it is on its way, which may not have been read.
        may_q    <= again_q || done != '0 || way_now_q.psn == job_q.psn
                 || (flying_q && row_q.next == job_q.psn && (job_q.atomic == ATOMIC_NONE || row_q.atomic));
        scan_q   <= '0;
        found_q  <= 1'b0;
        state_q  <= again_q && some_q && !gone && job_q.atomic != ATOMIC_NONE ? SCAN : DO;
      end
      // An atomic that is asked for again: one READ a clock.
      SCAN: begin
        scan_q     <= scan_q + (LR+1)'(1);
        found_at_q <= scanned[LR-1:0];
        if (same) found_q <= 1'b1;
        if (same) state_q <= FOUND;
        else if (scan_q[LR]) state_q <= DO;
      end
      FOUND: state_q <= KEPT;
      KEPT: begin
        kept_q  <= operands[127:64];
        state_q <= DO;
      end
      // Waits for a QP that begins, and for the one that looks.
      DO:
      if (!begin_valid && !(wanted && look_q != FREE && look_q != REFUSED))
        state_q <= is_answer_q && !is_refusal_q && !is_change_q && !is_handed_q && row_q.phase == HOLD && kind_q == MISS && !gone ? WISH : IDLE;
      default: state_q <= IDLE;
    endcase
    fresh_q <= (fresh_q & ~(row_we ? QPS'(1) << q_q : '0)) | (begin_valid ? QPS'(1) << way_q : '0);
    if (rst) begin
      state_q <= IDLE;
      fresh_q <= '1;
    end
  end

  // Nothing is to be read: of a READ of no bytes, or as it is kept.
  wire bare = p_q.len == '0 || (p_q.again && p_q.atomic != ATOMIC_NONE);
  wire next = !is_answer_q && !gone && row_q.phase == NONE && some_q;
  assign full   = p_q.atomic != ATOMIC_NONE && atomics_q == (AW+1)'(ATOMICS);
  assign wanted = next && !row_q.refused && may_q && !bare && !full;
  assign look   = state_q == DO && !begin_valid && wanted && look_q == FREE;
  always_ff @(posedge clk) begin
    case (look_q)
      FREE: if (look) begin
        look_for_q <= q_q;
        domain_q   <= job_q.domain;
        l_q        <= p_q;
        look_q     <= KEY;
      end
      KEY: if (ask_ready) look_q <= TOLD;
      TOLD: begin
        l_q.asid <= told.asid;
        if (told_valid) look_q <= told.refusal == berth_row_pkg::KEY_OK ? ACQUIRE : REFUSED;
      end
      ACQUIRE: if (holding) look_q <= FREE;
      default: if (refusal_pop) look_q <= FREE;
    endcase
    if (rst) look_q <= FREE;
  end

  assign ask_valid   = look_q == KEY;
  assign ask.claim   = 1'b0;
  assign ask.again   = 1'b1;              // a one-shot key is this READ's since arrival has taken it
  assign ask.right   = l_q.atomic != ATOMIC_NONE ? berth_row_pkg::RIGHT_BIT_ATOMIC : berth_row_pkg::RIGHT_BIT_READ;
  assign ask.qpn     = 16'(look_for_q);
  assign ask.domain  = domain_q;
  assign ask.key     = l_q.key;
  assign ask.va      = l_q.va;
  assign ask.len     = 32'(l_q.len);
  assign ask.psn     = l_q.psn;
  assign ask.packets = 24'd1;

  // ---- decide ----------------------------------------------------------------------------------------------
  logic [FW:0] put_q, give_q, done_q;     // of the flights
  logic [FW:0] holds_q;                   // key and pages are looked for, to be held: their flights have a place
  logic holding, looked;
  berth_card_pkg::range_ask_t acquire, release_;
  logic rel_valid;

  assign looked = state_q == DO && !begin_valid && !held_put
               && (is_refusal_q || is_change_q || is_handed_q || (is_answer_q && row_q.phase == HOLD && kind_q != READY));
  always_comb begin
    f          = row_q;
    row_we     = 1'b0;
    push       = 1'b0;
    again_turn = 1'b0;
    ev_stray   = 1'b0;
    give.q        = q_q;
    give.frame    = !gone && (is_answer_q || p_q.len == '0 || found_q);
    give.again    = p_q.again;
    give.begins   = p_q.begins;
    give.ends     = p_q.ends;
    give.atomic   = p_q.atomic != ATOMIC_NONE;
    give.psn      = p_q.psn;
    give.msn      = p_q.msn;
    give.len      = give.atomic ? 13'd0 : p_q.len;
    give.va       = p_q.va;
    give.asid     = p_q.asid;
    give.original = is_change_q ? ended.original : kept_q;
    flight.q      = q_q;
    flight.holds  = is_answer_q && !is_refusal_q;
    flight.failed = 1'b0;
    flight.fault  = is_change_q ? berth_row_pkg::FAULT_WRITE : row_q.refused ? berth_row_pkg::FAULT_PAGE : berth_row_pkg::FAULT_ACCESS;
    flight.counts = is_answer_q && give.atomic;
    flight.again    = p_q.again;
    flight.ends     = p_q.ends;
    flight.atomic   = give.atomic;
    flight.psn      = p_q.psn;
    flight.len      = p_q.len;
    flight.va       = p_q.va;
    flight.asid     = p_q.asid;
    flight.one_shot = p_q.one_shot;
    flight.first    = p_q.first;
    flight.key      = p_q.key;
    late_turn     = 1'b0;
    held_put      = 1'b0;
    if (state_q == DO && !begin_valid) begin
      if (is_change_q) begin
        push       = 1'b1;
        row_we     = 1'b1;
        f.phase    = NONE;
        f.stop     = row_q.stop || ended.failed;
        again_turn = 1'b1;
        flight.failed = ended.failed;
        if (ended.failed) give.frame = 1'b0;
      end else if (is_handed_q) begin
        push   = 1'b1;
        row_we = 1'b1;
      end else if (is_refusal_q || (next && row_q.refused)) begin
        push          = 1'b1;
        row_we        = 1'b1;
        f.phase       = NONE;
        f.refused     = 1'b0;
        f.stop        = 1'b1;
        give.frame    = 1'b0;
        flight.failed = 1'b1;
      end else if (wanted) begin
        row_we     = look;
        f.phase    = HOLD;
        again_turn = look_q == REFUSED;
      end else if (!is_answer_q) begin
        push       = next && may_q && bare;
        row_we     = push;
        again_turn = push;
        late_turn  = next && may_q && !bare;
      end else
        case (row_q.phase)
          HOLD: begin
            ev_stray = kind_q == READY;
            held_put = kind_q == HIT && !gone && p_q.atomic != ATOMIC_NONE;
            if (kind_q != READY) f.phase = held_put ? CHANGE : kind_q == HIT || gone ? NONE : ASK;
            push       = kind_q == HIT && !held_put;
            row_we     = kind_q != READY;
            again_turn = kind_q == HIT && !held_put;
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
    end
    // The next packet, or READ.
    if (push && !flight.failed) begin
      if (p_q.again) begin
        f.sent_again = p_q.ends ? '0 : row_q.sent_again + 9'd1;
        f.head_again = row_q.head_again + (LR+1)'(p_q.ends);
      end else begin
        if (!is_handed_q) begin
          f.sent = p_q.ends ? '0 : row_q.sent + 9'd1;
          f.head = row_q.head + (LR+1)'(p_q.ends);
        end
        f.next = p_q.psn + 24'd1;
        f.msn  = p_q.msn;
        f.atomic = p_q.atomic != ATOMIC_NONE;
      end
    end
  end

  // ---- atomics whose pages are held, and their ends -------------------------------------------------------------
  assign held_new.q    = q_q;
  assign held_new.slot = row_q.head[LR-1:0];
  assign held_new.add  = p_q.atomic == berth_row_pkg::ATOMIC_ADD;
  assign held_new.asid = p_q.asid;
  assign held_new.va   = p_q.va;
  berth_lutfifo #(
      .WIDTH($bits(held)),
      .DEPTH(ATOMICS)
  ) helds (
      .clk,
      .rst,
      .wr_valid(held_put),
      .wr_ready(held_room),
      .wr_data(held_new),
      .rd_valid(held_valid),
      .rd_ready(held_pop),
      .rd_data(held)
  );
  berth_lutfifo #(
      .WIDTH($bits(ended)),
      .DEPTH(ATOMICS)
  ) ends (
      .clk,
      .rst,
      .wr_valid(changed_valid),
      .wr_ready(ended_room),
      .wr_data(changed),
      .rd_valid(ended_valid),
      .rd_ready(ended_pop),
      .rd_data(ended)
  );
  assign {ended_of, ended_slot} = ended.tag[QW+LR-1:0];
  assign ended_pop      = is_change_q && state_q == DO && !begin_valid;
  assign held_pop       = c_state_q == C_GO && change_ready;
  assign change_valid   = c_state_q == C_GO;
  assign change.add     = held.add;
  assign change.asid    = held.asid;
  assign change.va      = held.va;
  assign change.operand = operands_q[127:64];
  assign change.compare = operands_q[63:0];
  assign change.tag     = 15'({held.q, held.slot});
  always_ff @(posedge clk) begin
    case (c_state_q)
      C_FETCH: if (fetches) c_state_q <= C_OPERANDS;
      C_OPERANDS: begin
        operands_q <= operands;
        c_state_q  <= C_GO;
      end
      default: if (held_pop) c_state_q <= C_FETCH;
    endcase
    kept_done_q <= keeps || (kept_done_q && !ended_pop);
    atomics_q <= atomics_q + (AW+1)'(look && p_q.atomic != ATOMIC_NONE)
               - (AW+1)'(looked && !push && p_q.atomic != ATOMIC_NONE) - (AW+1)'(passes && last.counts);
    if (rst) begin
      c_state_q   <= C_FETCH;
      kept_done_q <= 1'b0;
      atomics_q   <= '0;
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
  assign holding = look_q == ACQUIRE && state_q != WISH;
  always_comb begin
    acquire       = '0;
    acquire.quiet = holding;
    acquire.probe = !holding;
    acquire.write = (holding ? l_q.atomic : p_q.atomic) != ATOMIC_NONE;
    acquire.asid  = holding ? l_q.asid : p_q.asid;
    acquire.va    = holding ? l_q.va : p_q.va;
    acquire.len   = 31'(holding ? l_q.len : p_q.len);
    acquire.tag   = {3'b111, 3'd0, 10'(holding ? look_for_q : q_q)};
  end
  assign hold_valid = rel_valid || asks_valid;
  assign hold       = rel_valid ? release_ : asked;

  // ---- on their way: given in order, and in that order answered --------------------------------------------
  logic [$bits(give)-1:0] gives_of[0:FLIGHTS-1];
  logic [$bits(flight)-1:0] flights[0:FLIGHTS-1];
  logic [FLIGHTS-1:0] read_bits_q, bad_q;
  given_t given;
  flight_t last;
  logic gives, last_there, released_q, tells, passes;
  assign given      = gives_of[give_q[FW-1:0]];
  assign last       = flights[done_q[FW-1:0]];
  assign rsp_valid  = give_q != put_q && given.frame;
  assign rsp_q      = given.q;
  assign rsp.begins = given.begins;
  assign rsp.ends   = given.ends;
  assign rsp.psn    = given.psn;
  assign rsp.msn    = given.msn;
  assign rsp.len    = given.len;
  assign rsp.atomic = given.atomic;
  assign rsp.original = given.original;
  assign rsp.asid   = given.asid;
  assign rsp.va     = given.va;
  assign rsp.tag    = 6'(give_q[FW-1:0]);
  assign ev_again   = rsp_valid && rsp_ready && rsp.atomic && given.again;
  assign gives      = give_q != put_q && (!given.frame || rsp_ready);
  assign last_there = done_q != give_q && read_bits_q[done_q[FW-1:0]];
  assign rel_valid  = last_there && last.holds && !released_q;
  assign tells      = last_there && !rel_valid;
  assign answered_valid    = tells && !over_q[last.q];
  assign answered_q        = last.q;
  assign answered.again    = last.again;
  assign answered.psn      = last.psn;
  assign answered.ends     = last.ends;
  assign answered.first    = last.first;
  assign answered.one_shot = last.one_shot;
  assign answered.key      = last.key;
  assign answered.failed   = last.failed || bad_q[done_q[FW-1:0]];
  assign answered.fault    = last.failed ? last.fault : berth_row_pkg::FAULT_WRITE;
  assign passes       = tells && (answered_ready || over_q[last.q]);
  always_comb begin
    release_           = '0;
    release_.give_back = 1'b1;
    release_.write     = last.atomic;
    release_.asid      = last.asid;
    release_.va        = last.va;
    release_.len       = 31'(last.len);
  end
  // Of a turn, and of those whose pages are looked for or held: a flight each, or the question to the host. One that is handed
  // over leaves a place for the turn that may have begun.
  assign room = (FW+1)'(put_q - done_q) + holds_q < (FW+1)'(FLIGHTS) && asks_q + 6'(holds_q) < 6'(ASKS - 2);
  always_ff @(posedge clk) begin
    if (push) begin
      gives_of[put_q[FW-1:0]]    <= give;
      flights[put_q[FW-1:0]]     <= flight;
      read_bits_q[put_q[FW-1:0]] <= !give.frame;
      bad_q[put_q[FW-1:0]]       <= 1'b0;
      put_q <= put_q + (FW+1)'(1);
    end
    if (sent_valid) begin
      read_bits_q[sent.tag[FW-1:0]] <= 1'b1;
      bad_q[sent.tag[FW-1:0]]       <= sent.failed;
    end
    if (gives) give_q <= give_q + (FW+1)'(1);
    if (rel_valid && hold_ready) released_q <= 1'b1;
    if (passes) begin
      done_q     <= done_q + (FW+1)'(1);
      released_q <= 1'b0;
    end
    holds_q <= holds_q + (FW+1)'(look) + (FW+1)'(hands) - (FW+1)'(looked);
    handing_q <= (handing_q | (hands ? QPS'(1) << read_q : '0)) & ~(push && is_handed_q ? QPS'(1) << q_q : '0);
    handed_left_q   <= handed_left_q - ($clog2(HANDED)+1)'(hands) + ($clog2(HANDED)+1)'(handed_pop);
    read_held_ready <= !rst && !fence && !fence_q && (FW+1)'(put_q - done_q) + holds_q < (FW+1)'(FLIGHTS - 3)
                    && handed_left_q > ($clog2(HANDED)+1)'(1);
    over_q <= (over_q | (end_valid ? QPS'(1) << way_q : '0) | (passes && answered.failed ? QPS'(1) << last.q : '0))
            & ~(begin_valid ? QPS'(1) << way_q : '0);
    if (rst) begin
      put_q   <= '0;
      give_q  <= '0;
      done_q  <= '0;
      holds_q <= '0;
      released_q <= '0;
      over_q     <= '0;
      handed_left_q <= ($clog2(HANDED)+1)'(HANDED);
      handing_q     <= '0;
    end
  end

  // ---- what a QP has under way; fence -----------------------------------------------------------------------
  // Of each QP the newest flight: when that has passed, none is left. Which one has is looked at a clock later.
  logic [FW:0] newest_of[0:QPS-1];
  logic [QPS-1:0] flying_bits_q;
  logic passed_q, lands;
  logic [QW-1:0] passed_of_q;
  logic [FW:0] passed_at_q;
  assign lands  = passed_q && newest_of[passed_of_q] == passed_at_q;
  assign flying = flying_bits_q[q_q];
  always_ff @(posedge clk) begin
    passed_q    <= passes;
    passed_of_q <= last.q;
    passed_at_q <= done_q;
    if (push) newest_of[q_q] <= put_q;
    flying_bits_q <= (flying_bits_q & ~(lands ? QPS'(1) << passed_of_q : '0)) | (push ? QPS'(1) << q_q : '0);
    if (rst) begin
      passed_q      <= 1'b0;
      flying_bits_q <= '0;
    end
  end
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
  assign mine = (state_q != IDLE && q_q == asked_q) || handing_q[asked_q] || (look_q != FREE && look_for_q == asked_q) || flying_bits_q[asked_q];
  always_ff @(posedge clk) st_busy <= mine || (waits && !fresh_q[asked_q]);

  // No turn begins meanwhile, so that it is over soon. Whoever waits for the host looks the key up again.
  assign fenced = fence_q && state_q == IDLE && holds_q == '0 && put_q == done_q;
  always_ff @(posedge clk) fence_q <= !rst && (fence || (fence_q && !fenced));

  assign busy = state_q != IDLE || got_valid || handed_valid || asks_valid || turn_busy || late_busy || holds_q != '0 || put_q != done_q || fence_q;

  always_ff @(posedge clk)
    if (!rst) begin
      // What is acquired, and a turn's failure, has a place.
      assert (!push || (FW+1)'(put_q - done_q) < (FW+1)'(FLIGHTS));
      assert (asks_room || !(holding || state_q == WISH));
      assert (!sent_valid || ({1'b0, sent.tag[FW-1:0] - done_q[FW-1:0]} < put_q - done_q && !read_bits_q[sent.tag[FW-1:0]]));
      assert (!looked || holds_q != '0);
      assert (!held_put || held_room);
      assert (!hands || handed_room);
      assert (!(is_handed_q && state_q == DO) || row_q.phase == NONE || gone);
      assert (!changed_valid || ended_room);
    end

  wire unused = &{1'b0, got.tag, told, job_q, head, ended.tag};
endmodule
