// SPDX-License-Identifier: Apache-2.0 OR MIT
// Arrival of requests: `rc::Responder` in hardware. PSN window, duplicates, holes, credits, messages
// in order, what is in place, completions in order, acknowledgements.
//
// Whether a WRITE may be placed is known when it comes (`berth_fp_target`), but for a one-shot key (QP-12): it is claimed
// here, by the first packet that is taken. Of a WRITE with immediate the last packet is taken in order only, as it uses the
// receive whose turn it is; where programs look at their memory (`writes_in_order`), each packet of a WRITE is. Without
// selective repeat only the first packet says where the WRITE goes: `berth_fp_target` hears of it when it is taken, and
// lets none behind it pass before.
//
// A READ is taken in order only, by a request that stands for the PSNs of the whole answer: all of them have come then, and
// each is in place when `berth_fp_respond` says that it is answered, which is in their order. That engine keeps what is to be
// answered, so a READ has no records. One that has been answered is given to it once more, and changes nothing here. The key
// is looked up here, as only here is known whether the READ is a new one and how much of an old one is to be answered. Of a new
// one of one packet `berth_fp_target` has said all, but for a one-shot key; and if it is the next to be answered, what is held
// for it goes on with it. An atomic is a READ of one packet. Of an old one nothing is looked up, as it touches no memory: `berth_fp_respond` knows what it gave.
//
// Three operations on a QP's row: a packet has come, a packet is in place, an acknowledgement is due. Each takes
// three clocks (read; locate; decide and store), and the next begins with the third; of the same QP, it takes the row
// from the register instead of the RAM. Only where a hole closes the engine goes on for one packet after the other
// behind it, two clocks each.
//
// Where the turn of a SEND with invalidate has come, the QP waits: firmware ends the key and says so, and only then the receive
// completes, and what is behind it. Packets are taken meanwhile, and nothing is acknowledged, as one acknowledgement then does.
//
// A QP that has ended takes nothing; when the last of its payloads is in place, or could not be written, its completions
// are closed by a mark.
//
// Bitmaps, of 2^WB bits, begin with the oldest packet that is not in place. `fol` packets from there on have arrived in order and
// been followed; between operations these are all up to the first hole.
module berth_fp_arrival #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS),
    // log2 of the packets that are taken ahead of the oldest that is not in place: 5 to 8.
    parameter int unsigned WB = 8,
    // Clocks, a power of two, in which at most one acknowledgement is sent because of duplicates.
    parameter int unsigned DOUBLES = 64,
    parameter int unsigned LR = $clog2(berth_regs_pkg::MAX_READS)   // log2 of READs of a QP
) (
    input  logic                       clk,
    input  logic                       rst,
    output logic                       busy,
    // Start of a QP, its end, or a question; held until ready. st_* are there three clocks later.
    input  logic                       cmd_valid,
    output logic                       cmd_ready,
    input  logic [QW-1:0]              cmd_q,
    input  berth_card_pkg::arrival_step_t cmd,
    output logic                       st_writing,     // payloads are being written
    output logic                       st_out,         // credits are announced and not complete
    output logic                       st_waits,       // a SEND with invalidate waits
    // The builder: credits announced so far.
    input  logic                       ann_we,
    input  logic [QW-1:0]              ann_q,
    input  logic [31:0]                ann_number,
    // Receives behind credits, as `berth_fp_grant` posts them.
    input  logic                       ring_we,
    input  logic [QW-1:0]              ring_q,
    input  logic [ 6:0]                ring_at,
    input  berth_card_pkg::ring_t      ring,
    // Packets, as `berth_fp_frame_in` gives them.
    input  logic                       item_valid,
    output logic                       item_ready,
    input  logic [QW-1:0]              item_q,
    input  berth_card_pkg::arrival_t   item,
    // Packets whose payload is in place, or could not be written.
    input  logic                       placed_valid,
    output logic                       placed_ready,
    input  logic [QW-1:0]              placed_q,
    input  logic [23:0]                placed_psn,
    input  logic                       placed_err,
    // READs to be answered, for which there is room; how far each QP with some is; a packet of an answer has been read, or there
    // is none. The QP begins, or ends.
    output logic                       read_valid,
    output logic [QW-1:0]              read_q,
    output berth_card_pkg::read_t      read,
    input  logic                       read_held_ready,    // there is room for one whose memory is held
    output logic                       way_we,
    output logic                       way_due,        // it has READs under way
    output logic [QW-1:0]              way_q,
    output berth_card_pkg::way_t       way,
    input  logic                       answered_valid,
    output logic                       answered_ready,
    input  logic [QW-1:0]              answered_q,
    input  berth_card_pkg::answered_t  answered,
    input  logic [LR:0]                st_reads,       // of `way_q`: those that are not given to be sent ...
    input  logic [LR:0]                st_agains,      // ... and those that were answered before
    output logic                       begin_valid,
    output logic                       end_valid,
    // Keys of READs, and one-shot keys: an operation claims one; the answer, of our own question; it is over.
    output logic                       claim_valid,
    input  logic                       claim_ready,
    output berth_card_pkg::access_t    claim,
    input  logic                       claimed_valid,
    input  logic [ 2:0]                claimed_refusal,
    input  logic                       claimed_one_shot,
    output logic                       over_valid,
    input  logic                       over_ready,
    output berth_card_pkg::key_use_t   over,
    // The first packet of a WRITE whose others do not say where it goes: it is being judged; it is taken, which is the last that
    // is heard of it.
    output logic                       opens,
    output logic [QW-1:0]              opens_q,
    output logic                       open_valid,
    output berth_card_pkg::write_t     open,
    // Payloads to be placed.
    output logic                       place_valid,
    input  logic                       place_ready,
    output logic [QW-1:0]              place_q,
    output berth_card_pkg::placement_t place,
    // Frames whose payload is not wanted.
    output logic                       ar_free_valid,
    output logic [17:0]                ar_free_place,
    // A piece has landed (decision 3), or its last packet has said something.
    output logic                       landed_valid,
    input  logic                       landed_ready,
    output logic [QW-1:0]              landed_q,
    output berth_card_pkg::landed_t    landed,
    // Completions of receives in order.
    output logic                       done_valid,
    input  logic                       done_ready,
    output logic [QW-1:0]              done_q,
    output berth_card_pkg::received_t  done,
    // Acknowledgements to send.
    output logic                       afr_valid,
    input  logic                       afr_ready,
    output logic [QW-1:0]              afr_q,
    output berth_card_pkg::ack_t       afr,
    // To firmware: the connection is broken.
    output logic                       broken_valid,
    input  logic                       broken_ready,
    output logic [QW-1:0]              broken_q,
    output logic [ 3:0]                broken_fault,
    output logic                       broken_named,     // by the access that `broken_access` is
    output berth_card_pkg::peer_access_t broken_access,
    // Likewise: a SEND with invalidate of this key waits.
    output logic                       invalidate_valid,
    output logic [QW-1:0]              invalidate_q,
    output logic [31:0]                invalidate_key,
    // Pulses for the counters.
    output logic                       ev_taken,
    output logic                       ev_duplicate,
    output logic                       ev_out_of_order,
    output logic                       ev_dropped,
    // Trace for benches: one word per operation.
    output logic                       trace_valid,
    output logic [63:0]                trace_word
);
  localparam int unsigned W = 1 << WB;
  localparam int unsigned SACK = W < 128 ? W : 128;  // packets that an acknowledgement tells of
  localparam logic [3:0] NO_FAULT = berth_row_pkg::FAULT_WRITE;  // of the packet itself
  localparam logic [1:0] NONE = 2'd0, SEQUENCE = 2'd1, RNR = 2'd2, FATAL = 2'd3;
  localparam logic [7:0] ACK_NO_COUNT = 8'h1f, NAK = 8'h60, RNR_NAK = 8'h20;
  localparam logic [4:0] NAK_INVALID = 5'd1, NAK_ACCESS = 5'd2, NAK_OPERATION = 5'd3;
  localparam logic [LR:0] MOST_READS = berth_regs_pkg::MAX_READS[LR:0]; // of a QP, that `berth_fp_respond` keeps
  localparam logic [4:0] NOT_YET = 5'd0;     // the longest RNR timer: a GO ends it (PC-4), which foreign peers do not know
  // Verdicts in the trace.
  localparam logic [3:0] V_PLACE = 4'd0, V_TAKEN = 4'd1, V_DUPLICATE = 4'd2, V_DROP = 4'd3;

  typedef struct packed {
    logic         on, broken, selective, writes_in_order, foreign;
    logic         ended, closed;  // told to end; the mark is given
    logic [WB:0]  writing;        // payloads that are being written
    logic [3:0]   log2_mtu;
    logic [7:0]   ack_every;
    logic [4:0]   rnr;
    logic [23:0]  placed;       // oldest PSN that is not in place
    logic [W-1:0] seen, in_place;
    logic [WB:0]  fol;
    logic [31:0]  credit;       // next credit that a piece uses
    logic [31:0]  complete;     // next credit to be completed
    logic         begun;        // a message is under way ...
    logic         write;        // ... which is a WRITE ...
    logic [23:0]  index;        // ... and this many of its packets have come in order
    logic [7:0]   unacked;
    logic         ack_due;
    logic [1:0]   refusal;
    logic [4:0]   refusal_code;
    logic         refused;
    logic [23:0]  skipped;
    logic [23:0]  msn;
    logic [LR:0]  most;         // READs under way at most
    logic [LR+1:0] reads;       // those that are not answered ...
    logic [LR+1:0] agains;      // ... and those that are answered again
    logic         of_again;     // the refusal is of one of these: of PSN `skipped`
    logic         waits;        // the oldest packet is the end of a SEND with invalidate, and firmware knows
  } row_t;
  // The record that is kept of a packet until its turn has come.
  typedef struct packed {
    logic        begins, ends, has_imm, invalidate, solicited, ack, write, one_shot;
    logic [31:0] key;
    logic [31:0] imm;
    logic [7:0]  credit;
    logic [23:0] index;
    logic [12:0] len;
  } record_t;
  typedef enum logic [3:0] {IDLE, LOCATE, DECIDE, FOLLOW_READ, FOLLOW, SETTLE, DRAIN_READ, DRAIN, CLAIM, CLAIMED, EXTENT, COUNT, SPAN} state_t;
  typedef enum logic [1:0] {OP_PACKET, OP_PLACED, OP_ACK, OP_CMD} op_t;

  state_t state_q;
  op_t op_q, op;
  logic [4:0] cmd_op_q;
  berth_card_pkg::arrival_t p_q;
  logic [QW-1:0] q_q, q_next;
  logic [23:0] psn_q, psn_next;
  logic err_q, take, go, last_packet_q, live;
  logic answered_now_q;       // OP_PLACED is of a packet of an answer ...
  berth_card_pkg::answered_t a_q;    // ... this one

  // ---- choice of the next operation ---------------------------------------------------------
  logic finish;    // the row is stored, the operation is over
  logic due_valid, due_pop, due_busy, may;
  logic [QW-1:0] due_q;
  always_comb begin
    // The next may begin while the row is being stored.
    may = state_q == IDLE || finish;
    op       = OP_PACKET;
    q_next   = item_q;
    psn_next = item.psn;
    take     = item_valid;
    if (due_valid && !afr_valid && (last_packet_q || !item_valid)) begin
      {op, q_next, take} = {OP_ACK, due_q, 1'b1};
    end
    if (answered_valid) begin
      {op, q_next, take} = {OP_PLACED, answered_q, 1'b1};
      psn_next = answered.psn;
    end
    if (placed_valid) begin
      {op, q_next, take} = {OP_PLACED, placed_q, 1'b1};
      psn_next = placed_psn;
    end
    if (cmd_valid) {op, q_next, take} = {OP_CMD, cmd_q, 1'b1};
    take = take && may;
    if (op == OP_ACK && state_q != IDLE && op_q == OP_ACK) take = 1'b0;  // afr is being filled
  end
  assign item_ready   = take && op == OP_PACKET;
  assign placed_ready = take && op == OP_PLACED && placed_valid;
  assign answered_ready = take && op == OP_PLACED && !placed_valid;
  assign due_pop      = take && op == OP_ACK;
  assign cmd_ready    = take && op == OP_CMD;
  assign busy         = state_q != IDLE || item_valid || placed_valid || answered_valid || due_busy || again_busy || afr_valid;

  // ---- memories -----------------------------------------------------------------------------
  logic withdrawn;
  row_t ram_row, row, r_q, r, f;
  logic same_q;     // the operation before was of the same QP: its row is in r_q
  record_t rec, rec_new;
  logic [31:0] ann, number, size;
  logic [7:0] number_q, credits_q;
  logic [7:0] ring_sge;
  logic [2:0] ring_sges;
  logic row_we, rec_we, rec_re;
  logic [WB-1:0] rec_at;
  logic [WB:0] walk_q, run_q, run;

  // A row that is written while it is read comes from the register; a record is never read before its packet has come.
  berth_fp_mem #(
      .WIDTH($bits(r_q)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_rows (
      .clk,
      .we(row_we),
      .waddr(q_q),
      .wdata(r),
      .re(take),
      .raddr(q_next),
      .rdata(ram_row)
  );
  berth_fp_mem #(
      .WIDTH(32),
      .DEPTH(QPS)
  ) m_anns (
      .clk,
      .we(ann_we),
      .waddr(ann_q),
      .wdata(ann_number),
      .re(take),
      .raddr(q_next),
      .rdata(ann)
  );
  berth_fp_mem #(
      .WIDTH($bits(rec)),
      .DEPTH(QPS * W),
      .OWN(1'b1)
  ) m_records (
      .clk,
      .we(rec_we),
      .waddr({q_q, p_q.psn[WB-1:0]}),
      .wdata(rec_new),
      .re(rec_re),
      .raddr({take ? q_next : q_q, rec_at}),
      .rdata(rec)
  );
  berth_fp_mem #(
      .WIDTH($bits({withdrawn, size, ring_sge, ring_sges})),
      .DEPTH(QPS * 128)
  ) m_rings (
      .clk,
      .we(ring_we),
      .waddr({ring_q, ring_at}),
      .wdata({ring.withdrawn, ring.size, ring.sge, ring.sges}),
      .re(state_q == LOCATE),
      .raddr({q_q, number[6:0]}),
      .rdata({withdrawn, size, ring_sge, ring_sges})
  );
  assign row    = same_q ? r_q : ram_row;
  assign rec_re = take || state_q == FOLLOW_READ || state_q == DRAIN_READ;
  always_comb begin
    rec_at = psn_next[WB-1:0];
    if (state_q == FOLLOW_READ) rec_at = r_q.placed[WB-1:0] + walk_q[WB-1:0];
    if (state_q == DRAIN_READ) rec_at = r_q.placed[WB-1:0];
  end

  // ---- locate: place in the window, number of the credit ----------------------------------------
  logic [31:0] oldest, left;
  logic [23:0] at_q;
  logic live_q, order_q, old_q, beyond_q, seen_q;
  logic [WB-1:0] gap_at;
  logic gap;
  assign oldest = row.credit - 32'(row.begun && !row.write);
  berth_fp_first #(.N(W)) first_missing (
      .bits(~row.seen),
      .any(gap),
      .at(gap_at)
  );
  assign run = gap ? {1'b0, gap_at} : (WB+1)'(W);
  always_comb begin
    number = p_q.write ? row.credit : !row.selective ? (p_q.begins ? row.credit : oldest)
                                           : oldest + 32'(8'(p_q.credit - oldest[7:0]));
    left   = ann - row.complete;
    live   = number - row.complete < left && !left[31];     // none is left where `ann` was taken back from under a packet
  end

  // ---- decide ---------------------------------------------------------------------------------
  // f: the row after this clock's step; r: what is stored.
  logic [3:0] fault, fault_q;
  logic [3:0] verdict, verdict_q;
  logic follows, want_place, want_landed, want_said, want_done, want_free, want_broken, want_afr, want_close;
  logic bad_size, bad_order, more_follow, more_drain, skip_again, want_over, want_claim, claimed_q, claim_fails_q;
  logic want_extent, want_read, extent_q, fits_q, full_q, in_order_only;
  logic [23:0] behind_q;    // of an old READ: packets up to the oldest that is not in place
  logic [31:0] part, part_q;    // bytes of a READ that are to be answered
  logic [WB:0] count, count_q;  // packets of them, at most one more than the window has
  logic [W-1:0] span, span_q;   // their places
  logic one_shot_q, atomic;
  logic single_q, many_q;       // a READ of one packet; its QP has as many under way as it may
  logic next_q;                 // nothing is to be answered before it
  wire known = single_q && !p_q.one_shot && p_q.refusal == berth_row_pkg::KEY_OK;     // all is known when it is located
  logic want_invalidate;
  logic dead_q;       // the key of the record that is drained next is dead
  logic begins, ends, uses, next_in_order;     // of the packet; `uses`: a receive at its end
  logic [37:0] behind;                         // its last byte, in its message
  logic [23:0] index, mtu;
  logic [35:0] offset;
  logic [31:0] len_total, offset_q;
  logic [WB:0] next_at;     // behind the packet that is followed ...
  logic next_here;         // ... comes one that is here
  logic [W-1:0] bit_at;
  record_t d;         // the record that is drained

  always_comb begin
    f           = r_q;
    fault       = NO_FAULT;
    verdict     = verdict_q;
    want_place  = 1'b0;
    want_landed = 1'b0;
    want_said   = 1'b0;
    want_done   = 1'b0;
    want_free   = 1'b0;
    want_afr    = 1'b0;
    want_close  = 1'b0;
    want_invalidate = 1'b0;
    more_follow = 1'b0;
    more_drain  = 1'b0;
    follows     = 1'b0;
    skip_again  = 1'b0;
    rec_we      = 1'b0;
    d           = rec;
    if (state_q == DECIDE && answered_now_q) begin
      d          = '0;
      d.ends     = a_q.ends;
      d.one_shot = a_q.one_shot;
      d.key      = a_q.key;
      d.index    = a_q.psn - a_q.first;
      d.write    = 1'b1;    // it completes no receive
    end
    bit_at      = W'(1) << at_q[WB-1:0];
    mtu         = 24'd1 << r_q.log2_mtu;
    next_at     = state_q != DECIDE ? walk_q + (WB+1)'(1) : run_q + (p_q.read && !known ? count_q : (WB+1)'(1));
    next_here   = !next_at[WB] && r_q.seen[next_at[WB-1:0]];
    index       = r_q.selective ? p_q.index : (p_q.begins || !r_q.begun) ? 24'd0 : r_q.index;
    offset      = 36'(index) << r_q.log2_mtu;
    behind      = 38'(offset) + 38'(p_q.len);
    begins      = p_q.write ? index == '0 : p_q.begins;
    ends        = p_q.write ? behind == 38'(p_q.whole) : p_q.ends;
    uses        = p_q.write && p_q.has_imm;
    in_order_only = uses || p_q.read || (p_q.write && r_q.writes_in_order);
    atomic      = p_q.atomic != berth_row_pkg::ATOMIC_NONE;
    want_over   = 1'b0;
    want_claim  = 1'b0;
    want_extent = 1'b0;
    want_read   = 1'b0;
    // Without selective repeat a WRITE's opcode must say what its place does: it begins or goes on, and its last byte ends it.
    bad_order   = !r_q.selective && ((p_q.begins ? r_q.begun : !(r_q.begun && r_q.write)) || p_q.ends != ends);
    bad_size    = p_q.write ? bad_order || (ends ? 24'(p_q.len) > mtu : 24'(p_q.len) != mtu || behind > 38'(p_q.whole))
                              || (p_q.len == '0 && p_q.whole != '0) || (p_q.has_imm && !ends)
                  : (p_q.ends ? 24'(p_q.len) > mtu : 24'(p_q.len) != mtu) || (p_q.len == '0 && !(p_q.begins && p_q.ends))
                  || p_q.begins != (index == '0) || (!r_q.selective && !p_q.begins && !r_q.begun);
    rec_new     = {begins, ends, p_q.has_imm, p_q.invalidate, p_q.solicited, p_q.ack, p_q.write, p_q.one_shot, p_q.key, p_q.imm, number_q,
                   index, p_q.len};
    // Messages are whole; pieces use credits in order.
    next_in_order = begins != r_q.begun && index == (r_q.begun ? r_q.index : 24'd0) && (begins || r_q.write == p_q.write)
                    && (p_q.write || number_q == (begins ? r_q.credit[7:0] : 8'(r_q.credit[7:0] - 8'd1)));

    case (state_q)
      DECIDE: begin
        case (op_q)
          OP_PACKET: begin
            verdict = V_DROP;
            if (r_q.broken || !r_q.on) fault = berth_row_pkg::FAULT_BROKEN;
            else if (old_q && p_q.read) begin
              // An answer is asked for again. A requester that keeps to its window never asks for older ones. Memory that is
              // not there any more is waited for when it is answered from.
              if (24'd0 - at_q > 24'(W)) fault = berth_row_pkg::FAULT_OUT_OF_WINDOW;
              else if (!extent_q) want_extent = 1'b1;
              else if (part_q != '0 && !atomic && !claimed_q) want_claim = 1'b1;
              else if (part_q != '0 && !atomic && claim_fails_q) fault = berth_row_pkg::FAULT_NOT_RESIDENT;
              else if (part_q != '0 && !atomic && p_q.refusal == berth_row_pkg::KEY_FAULT) begin
                fault = berth_row_pkg::FAULT_PAGE;
                {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_OPERATION};
                {f.of_again, f.skipped} = {1'b1, psn_q};
              end
              else if (full_q) fault = berth_row_pkg::FAULT_INVALID;
              else begin
                verdict   = V_DUPLICATE;
                want_read = 1'b1;
                f.agains  = r_q.agains + (LR+2)'(1);
              end
            end else if (old_q || seen_q) begin
              verdict   = V_DUPLICATE;
              f.ack_due = 1'b1;
            end else if (beyond_q) fault = berth_row_pkg::FAULT_OUT_OF_WINDOW;
            else if (!order_q && (!r_q.selective || in_order_only)) begin
              // One NAK for a gap, and one more when the sender went back and it is still there.
              fault      = berth_row_pkg::FAULT_OUT_OF_ORDER;
              skip_again = 24'(r_q.skipped - psn_q) < 24'h800000;
              if (!r_q.refused || (skip_again && r_q.refusal == NONE)) begin
                f.refused = 1'b1;
                f.refusal = SEQUENCE;
              end
              f.skipped = psn_q;
            end else begin
              if (p_q.read) begin
                if (r_q.begun || (atomic && p_q.va[2:0] != 3'd0) || (known ? many_q : extent_q && (!fits_q || full_q))) fault = berth_row_pkg::FAULT_INVALID;
                else if (known) fault = p_q.absent ? berth_row_pkg::FAULT_NOT_RESIDENT : NO_FAULT;
                else if (!extent_q) want_extent = 1'b1;
                else if (p_q.whole != '0 && !claimed_q) want_claim = 1'b1;
                else if (p_q.whole != '0 && claim_fails_q) fault = berth_row_pkg::FAULT_ACCESS;
                else if (p_q.whole != '0 && p_q.refusal == berth_row_pkg::KEY_FAULT) fault = berth_row_pkg::FAULT_PAGE;
                else if (p_q.whole != '0 && p_q.absent) fault = berth_row_pkg::FAULT_NOT_RESIDENT;
              end
              else if (bad_size) fault = berth_row_pkg::FAULT_INVALID;
              else if (p_q.write) begin
                if (p_q.whole != '0 && (p_q.refusal != berth_row_pkg::KEY_OK || (claimed_q && claim_fails_q)))
                  fault = p_q.refusal == berth_row_pkg::KEY_FAULT ? berth_row_pkg::FAULT_PAGE : berth_row_pkg::FAULT_ACCESS;
                else if (p_q.whole != '0 && p_q.absent) fault = berth_row_pkg::FAULT_NOT_RESIDENT;
                else if (uses && !live_q)
                  fault = r_q.foreign ? berth_row_pkg::FAULT_NOT_READY : berth_row_pkg::FAULT_NO_CREDIT;
              end
              else if (!live_q) fault = r_q.foreign ? berth_row_pkg::FAULT_NOT_READY : berth_row_pkg::FAULT_NO_CREDIT;
              else if (withdrawn) fault = berth_row_pkg::FAULT_NO_CREDIT;
              else if (37'(offset) + 37'(p_q.len) > 37'(size)) fault = berth_row_pkg::FAULT_TOO_LONG;
              if (p_q.write) want_claim = fault == NO_FAULT && p_q.one_shot && p_q.whole != '0 && !claimed_q;
              if (fault == NO_FAULT && p_q.read && !want_extent && !want_claim) begin
                verdict   = V_TAKEN;
                want_read = 1'b1;
                f.seen    = r_q.seen | (known ? bit_at : span_q);
                f.fol     = r_q.fol + (known ? (WB+1)'(1) : count_q);
                f.reads   = r_q.reads + (LR+2)'(1);
                {f.refused, f.refusal, f.skipped} = {1'b0, NONE, 24'd0};
                more_follow = next_here;
              end else if (fault == NO_FAULT && !want_claim && !want_extent) begin
                rec_we    = 1'b1;
                f.seen    = r_q.seen | bit_at;
                verdict   = p_q.len == '0 ? V_TAKEN : V_PLACE;
                if (p_q.len == '0) begin
                  f.in_place = r_q.in_place | bit_at;
                  if (!order_q) f.ack_due = 1'b1;
                end
                if (order_q) begin
                  {f.refused, f.refusal, f.skipped} = {1'b0, NONE, 24'd0};
                  follows = next_in_order;
                  if (follows) begin
                    f.fol       = r_q.fol + (WB+1)'(1);
                    f.begun     = !ends;
                    f.write     = !ends && p_q.write;
                    f.index     = ends ? '0 : index + 24'd1;
                    want_landed = p_q.write ? uses : begins;
                    want_said   = ends && p_q.has_imm && !p_q.write;
                    if (want_landed) f.credit = r_q.credit + 32'd1;
                    more_follow = next_here;
                  end else begin
                    fault   = berth_row_pkg::FAULT_INVALID;
                    verdict = V_DROP;
                    {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_INVALID};
                  end
                end
                want_place = verdict == V_PLACE && !more_follow;
                more_drain = verdict == V_TAKEN && order_q && at_q == '0 && !more_follow;
              end else if (order_q && fault != NO_FAULT) begin
                case (fault)
                  berth_row_pkg::FAULT_NOT_READY, berth_row_pkg::FAULT_NOT_RESIDENT: begin
                    {f.refused, f.refusal} = {1'b1, RNR};
                    f.refusal_code = fault == berth_row_pkg::FAULT_NOT_READY || r_q.foreign ? r_q.rnr : NOT_YET;
                    f.skipped = r_q.placed + 24'(run_q);
                  end
                  berth_row_pkg::FAULT_NO_CREDIT, berth_row_pkg::FAULT_PAGE: {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_OPERATION};
                  berth_row_pkg::FAULT_ACCESS:    {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_ACCESS};
                  default:                        {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_INVALID};
                endcase
              end
            end
            want_free = verdict != V_PLACE && !more_follow && !want_claim && !want_extent;
          end
          OP_PLACED: begin
            verdict   = {3'd0, err_q};
            if (!answered_now_q) f.writing = r_q.writing - (WB+1)'(1);
            else if (!a_q.again) {f.ack_due, f.unacked} = '0;
            if (answered_now_q && a_q.ends && a_q.again) f.agains = r_q.agains - (LR+2)'(1);
            if (answered_now_q && a_q.ends && !a_q.again) f.reads = r_q.reads - (LR+2)'(1);
            if (answered_now_q && a_q.again && !err_q) begin
              // It was in place before.
            end else if (err_q) begin
              if (!r_q.broken) {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_OPERATION};
            end else if (at_q[23:WB] == '0) begin
              f.in_place = r_q.in_place | (bit_at & r_q.seen);
              if (at_q[WB:0] >= run_q) f.ack_due = 1'b1;   // behind a gap: the sender must hear of it
              more_drain = at_q == '0 && r_q.fol != '0 && f.in_place[0];
            end
          end
          OP_ACK: begin
            verdict = V_DROP;
            if (r_q.ended) begin
              want_close = !r_q.closed && r_q.writing == '0;
              f.closed   = r_q.closed || want_close;
            end else if (r_q.refusal != NONE && (r_q.fol == '0 || r_q.refusal == FATAL)) begin
              want_afr  = 1'b1;
              f.refusal = NONE;
              f.unacked = '0;
              f.ack_due = r_q.ack_due && r_q.selective;
            end else if (!r_q.broken && !r_q.waits && (r_q.ack_due || r_q.unacked >= r_q.ack_every)) begin
              want_afr  = 1'b1;
              f.ack_due = 1'b0;
              f.unacked = '0;
            end
            if (want_afr) verdict = V_TAKEN;
          end
          default: begin
            verdict = V_TAKEN;
            if (cmd_op_q == berth_row_pkg::STEP_START) begin
              f           = '0;
              f.on        = 1'b1;
              f.selective = cmd.selective;
              f.writes_in_order = cmd.writes_in_order;
              f.foreign   = cmd.foreign;
              f.log2_mtu  = cmd.log2_mtu;
              f.ack_every = cmd.ack_every;
              f.rnr       = cmd.rnr;
              f.most      = cmd.reads > 6'(MOST_READS) ? MOST_READS : (LR+1)'(cmd.reads);
              f.placed    = cmd.psn;
            end else if (cmd_op_q == berth_row_pkg::STEP_END) begin
              {f.broken, f.ended, f.closed} = 3'b110;
              {f.refusal, f.ack_due} = {NONE, 1'b0};
              f.unacked = '0;
            end else if (cmd_op_q == berth_row_pkg::STEP_INVALIDATED && r_q.waits && !r_q.broken) begin
              f.waits    = 1'b0;
              more_drain = r_q.in_place[0] && r_q.fol != '0;
            end else if (cmd_op_q == berth_row_pkg::STEP_NOT_INVALIDATED && r_q.waits && !r_q.broken) begin
              fault = berth_row_pkg::FAULT_ACCESS;
              {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_ACCESS};
            end
          end
        endcase
      end
      FOLLOW: begin
        if (rec.begins != r_q.begun && rec.index == (r_q.begun ? r_q.index : 24'd0)
            && (rec.begins || r_q.write == rec.write)
            && (rec.write || rec.credit == (rec.begins ? r_q.credit[7:0] : 8'(r_q.credit[7:0] - 8'd1)))) begin
          follows     = 1'b1;
          f.fol       = r_q.fol + (WB+1)'(1);
          f.begun     = !rec.ends;
          f.write     = !rec.ends && rec.write;
          f.index     = rec.ends ? '0 : rec.index + 24'd1;
          // The last packet of a WRITE that uses a receive is never taken ahead of its turn.
          want_landed = !rec.write && rec.begins;
          want_said   = !rec.write && rec.ends && rec.has_imm;
          if (want_landed) f.credit = r_q.credit + 32'd1;
          more_follow = next_here;
        end else begin
          {f.broken, f.refusal, f.refusal_code} = {1'b1, FATAL, NAK_INVALID};
          verdict = V_DROP;
        end
      end
      SETTLE: begin
        // All packets that are in order have been followed; now this packet itself.
        want_place = verdict_q == V_PLACE;
        want_free  = verdict_q != V_PLACE;
        more_drain = r_q.in_place[0] && r_q.fol != '0 && !r_q.waits;
      end
      default: ;
    endcase
    if (want_place) f.writing = r_q.writing + (WB+1)'(1);
    // The oldest packet's turn has come.
    if (((state_q == DECIDE && op_q == OP_PLACED && more_drain) || state_q == DRAIN) && d.invalidate && !dead_q) begin
      f.waits         = 1'b1;
      want_invalidate = 1'b1;
      more_drain      = 1'b0;
    end else if ((state_q == DECIDE && op_q == OP_PLACED && more_drain) || state_q == DRAIN) begin
      f.placed   = r_q.placed + 24'd1;
      f.fol      = r_q.fol - (WB+1)'(1);
      f.seen     = f.seen >> 1;
      f.in_place = f.in_place >> 1;
      if (state_q == DECIDE && answered_now_q) f.unacked = '0;
      else if (r_q.unacked != '1) f.unacked = r_q.unacked + 8'd1;
      if (d.ack) f.ack_due = 1'b1;
      want_done = d.ends && (!d.write || d.has_imm);
      want_over = d.ends && d.one_shot;
      if (d.ends) f.msn = r_q.msn + 24'd1;
      if (want_done) f.complete = r_q.complete + 32'd1;
      more_drain = f.in_place[0] && f.fol != '0;
    end
    len_total   = 32'(36'(d.index) << r_q.log2_mtu) + 32'(d.len);
    want_broken = f.broken && !r_q.broken && !f.ended && (state_q == DECIDE || state_q == FOLLOW);
  end

  assign go = (!want_place || place_ready) && (!(want_landed || want_said) || landed_ready) && (!(want_done || want_close) || done_ready)
           && (!want_broken || broken_ready) && (!want_over || over_ready);
  assign opens        = state_q != IDLE && op_q == OP_PACKET && p_q.write && p_q.begins && !p_q.ends;
  assign opens_q      = q_q;
  assign open_valid   = place_valid && opens;
  assign open.psn     = p_q.psn;
  assign open.va      = p_q.va;
  assign open.key     = p_q.key;
  assign open.whole   = p_q.whole;
  assign place_valid  = want_place && go;
  assign place_q       = q_q;
  assign place.psn     = p_q.psn;
  assign place.payload = p_q.payload;
  assign place.frame   = p_q.frame;
  assign place.len     = p_q.len;
  assign place.asid    = p_q.asid;
  assign place.sge     = ring_sge;
  assign place.sges    = ring_sges;
  assign place.offset  = p_q.write ? '0 : state_q == SETTLE ? offset_q : offset[31:0];
  assign place.write   = p_q.write;
  assign place.answer  = 1'b0;
  assign place.more    = 1'b0;
  assign place.reverse = 1'b0;
  assign place.va      = p_q.va + 64'(state_q == SETTLE ? offset_q : offset[31:0]);
  assign over_valid    = want_over && go;
  assign over.qpn      = 16'(q_q);
  assign over.key      = d.key;
  assign over.psn      = r_q.placed - d.index;
  assign claim_valid   = state_q == CLAIM;
  // What cannot be answered yet claims nothing.
  assign claim.claim   = !p_q.read || !(p_q.absent || p_q.refusal == berth_row_pkg::KEY_FAULT);
  assign claim.again   = p_q.read && old_q;
  assign claim.right   = atomic ? berth_row_pkg::RIGHT_BIT_ATOMIC : p_q.read ? berth_row_pkg::RIGHT_BIT_READ : berth_row_pkg::RIGHT_BIT_WRITE;
  assign claim.qpn     = 16'(q_q);
  assign claim.domain  = p_q.domain;
  assign claim.key     = p_q.key;
  assign claim.va      = p_q.va;
  assign claim.len     = p_q.read ? part_q : p_q.whole;
  assign claim.psn     = p_q.read ? p_q.psn : p_q.psn - index;
  assign claim.packets = p_q.read ? 24'(count_q) : 24'((p_q.whole - 32'd1) >> r_q.log2_mtu) + 24'd1;
  assign read_valid    = want_read && go;
  assign read_q        = q_q;
  assign read.again    = old_q;
  assign read.atomic   = p_q.atomic;
  assign read.psn      = p_q.psn;
  assign read.packets  = known && !old_q ? 9'd1 : 9'(count_q);
  assign read.va       = p_q.va;
  assign read.len      = known && !old_q ? p_q.whole[20:0] : part_q[20:0];
  assign read.key      = p_q.key;
  assign read.one_shot = one_shot_q;
  assign read.domain   = p_q.domain;
  assign read.log2_mtu = r_q.log2_mtu;
  assign read.held     = known && !old_q && p_q.held && next_q && read_held_ready;
  assign read.asid     = p_q.asid;
  assign way_we        = row_we;
  // A question may be of a QP that never was.
  assign way_due       = !(want_read && read.held) && (op_q != OP_CMD || cmd_op_q == berth_row_pkg::STEP_INVALIDATED) && (f.reads != '0 || f.agains != '0);
  assign way_q         = q_q;
  assign way.psn       = f.placed;
  assign way.msn       = f.msn;
  wire   commands      = state_q == DECIDE && go && op_q == OP_CMD;
  assign begin_valid   = commands && cmd_op_q == berth_row_pkg::STEP_START;
  assign end_valid     = commands && cmd_op_q == berth_row_pkg::STEP_END;
  // Bytes and packets of a READ: of an old one those that have been answered.
  assign part  = old_q && 44'(p_q.whole) > 44'(behind_q) << r_q.log2_mtu ? 32'(behind_q << r_q.log2_mtu) : p_q.whole;
  always_comb begin
    count = (WB+1)'((part_q - 32'd1) >> r_q.log2_mtu) + (WB+1)'(1);
    if ((part_q - 32'd1) >> r_q.log2_mtu > 32'(W)) count = (WB+1)'(W + 1);
    if (part_q == '0) count = (WB+1)'(1);
    for (int unsigned i = 0; i < W; i++) span[i] = 24'(i) >= at_q && 24'(i) < at_q + 24'(count_q);
  end
  assign ar_free_valid = want_free && go;
  assign ar_free_place = p_q.frame;
  assign landed_valid = (want_landed || want_said) && go;
  assign landed_q     = q_q;
  assign landed.begins    = want_landed;
  assign landed.said      = want_said;
  assign landed.remaining = state_q == FOLLOW ? rec.imm : p_q.imm;
  assign done_valid   = (want_done || want_close) && go;
  assign done_q         = q_q;
  assign done.quiet     = want_close;
  assign done.credit    = r_q.complete;
  assign done.len       = len_total;
  assign done.has_imm   = d.has_imm;
  assign done.invalidated = d.invalidate;
  assign done.imm       = d.imm;
  assign done.solicited = d.solicited;
  assign done.write     = d.write;
  assign broken_valid = want_broken && go;
  assign broken_q     = q_q;
  assign broken_fault = op_q == OP_PLACED && answered_now_q ? a_q.fault : op_q == OP_PLACED || (state_q == DECIDE && fault == berth_row_pkg::FAULT_NO_CREDIT && live_q) ? NO_FAULT
                      : state_q == FOLLOW ? berth_row_pkg::FAULT_INVALID : fault;
  assign broken_named = op_q != OP_PLACED && (fault == berth_row_pkg::FAULT_ACCESS || fault == berth_row_pkg::FAULT_PAGE);
  assign broken_access.kind = op_q == OP_CMD ? berth_row_pkg::ACCESS_INVALIDATE : atomic ? berth_row_pkg::ACCESS_ATOMIC
                            : p_q.read ? berth_row_pkg::ACCESS_READ : berth_row_pkg::ACCESS_WRITE;
  assign broken_access.key  = op_q == OP_CMD ? cmd.key : p_q.key;
  assign broken_access.va   = op_q == OP_CMD ? 64'd0 : p_q.va;
  assign broken_access.len  = op_q == OP_CMD ? 32'd0 : p_q.whole;
  assign invalidate_valid = want_invalidate && go;
  assign invalidate_q     = q_q;
  assign invalidate_key   = d.imm;
  assign r            = f;

  always_comb begin
    finish = 1'b0;
    case (state_q)
      DECIDE:  finish = go && !more_follow && !more_drain && !want_claim && !want_extent;
      SETTLE, DRAIN: finish = go && !more_drain;
      default: ;
    endcase
  end
  assign row_we = finish;

  // ---- sequence ---------------------------------------------------------------------------------
  always_ff @(posedge clk) begin
    case (state_q)
      LOCATE: begin
        dead_q    <= 1'b0;
        claimed_q <= 1'b0;
        extent_q  <= 1'b0;
        one_shot_q <= 1'b0;
        single_q  <= p_q.whole != '0 && p_q.whole <= 32'd1 << p_q.log2_mtu;
        many_q    <= st_reads >= row.most;
        next_q    <= psn_q == row.placed && row.reads == '0 && row.agains == '0;
        state_q  <= DECIDE;
        r_q      <= row;
        at_q     <= psn_q - row.placed;
        old_q    <= 24'(psn_q - row.placed) >= 24'h800000;
        beyond_q <= 24'(psn_q - row.placed) >= 24'(W);
        seen_q   <= 24'(psn_q - row.placed) < 24'(W) && row.seen[WB'(psn_q[WB-1:0] - row.placed[WB-1:0])];
        order_q  <= 24'(psn_q - row.placed) == 24'(run);
        run_q    <= run;
        number_q <= number[7:0];
        live_q   <= live;
        credits_q <= left[31] ? '0 : left[7:0];
      end
      DECIDE:
      if (go) begin
        if (op_q == OP_CMD) {st_writing, st_out, st_waits} <= {r_q.writing != '0, credits_q != '0, r_q.waits && !r_q.broken};
        dead_q    <= op_q == OP_CMD && cmd_op_q == berth_row_pkg::STEP_INVALIDATED;
        state_q   <= IDLE;
        verdict_q <= verdict;
        fault_q   <= fault;
        offset_q  <= offset[31:0];
        walk_q    <= next_at;
        r_q       <= f;
        if (more_follow || more_drain) state_q <= more_follow ? FOLLOW_READ : DRAIN_READ;
        if (want_claim) state_q <= CLAIM;
        if (want_extent) state_q <= EXTENT;
        behind_q <= 24'd0 - at_q;
      end
      // How much is to be answered; what it has of the window.
      EXTENT: begin
        part_q  <= part;
        state_q <= COUNT;
      end
      COUNT: begin
        count_q <= count;
        state_q <= SPAN;
      end
      SPAN: begin
        span_q   <= span;
        fits_q   <= at_q + 24'(count_q) <= 24'(W) && (r_q.seen & span) == '0;
        full_q   <= (old_q ? st_agains : st_reads) >= r_q.most;
        extent_q <= 1'b1;
        state_q  <= DECIDE;
      end
      CLAIM: if (claim_ready) state_q <= CLAIMED;
      CLAIMED:
      if (claimed_valid) begin
        claimed_q     <= 1'b1;
        claim_fails_q <= claimed_refusal != berth_row_pkg::KEY_OK;
        one_shot_q    <= claimed_one_shot;
        state_q       <= DECIDE;
      end
      FOLLOW_READ: state_q <= FOLLOW;
      FOLLOW:
      if (go) begin
        r_q       <= f;
        walk_q    <= next_at;
        verdict_q <= verdict;
        if (!follows) fault_q <= berth_row_pkg::FAULT_INVALID;
        state_q   <= more_follow ? FOLLOW_READ : SETTLE;
      end
      DRAIN_READ: state_q <= DRAIN;
      SETTLE, DRAIN:
      if (go) begin
        r_q     <= f;
        dead_q  <= 1'b0;
        state_q <= more_drain ? DRAIN_READ : IDLE;
      end
      default: state_q <= IDLE;
    endcase
    if (take) begin
      state_q <= LOCATE;
      op_q    <= op;
      q_q     <= q_next;
      same_q  <= state_q != IDLE && q_next == q_q;
      psn_q   <= psn_next;
      err_q   <= placed_ready ? placed_err : answered.failed;
      a_q     <= answered;
      answered_now_q <= answered_ready;
      cmd_op_q <= cmd.op;
      p_q     <= item;
      last_packet_q <= op == OP_PACKET || (op == OP_PLACED && last_packet_q);
    end
    if (rst) begin
      state_q       <= IDLE;
      last_packet_q <= 1'b0;
    end
  end

  // ---- acknowledgements ----------------------------------------------------------------------------
  logic ready_now, old_news;
  // A question changes nothing, also of a QP that never was.
  wire asks = op_q == OP_CMD && cmd_op_q == berth_row_pkg::STEP_ASK;
  assign ready_now = finish && !asks && ((f.ended && !f.closed && f.writing == '0) || f.refusal == FATAL || (f.refusal != NONE && f.fol == '0)
                   || (!f.broken && !f.waits && (f.ack_due || f.unacked >= f.ack_every))) && f.on;
  assign old_news  = op_q == OP_PACKET && state_q == DECIDE && verdict == V_DUPLICATE;
  // A duplicate says that an acknowledgement may have been lost, and one acknowledgement makes up for all. So the card
  // sends at most one for duplicates in DOUBLES clocks. Otherwise a flood of duplicates would become a flood of
  // acknowledgements, which cost more than the duplicates themselves.
  logic again_valid, again_pop, again_busy;
  logic [QW-1:0] again_q;
  logic [$clog2(DOUBLES)-1:0] pace_q;
  berth_fp_ready #(
      .QPS(QPS)
  ) again (
      .clk,
      .rst,
      .set(ready_now && old_news),
      .set_q(q_q),
      .valid(again_valid),
      .q(again_q),
      .pop(again_pop),
      .busy(again_busy)
  );
  assign again_pop = again_valid && pace_q == '0;
  always_ff @(posedge clk) begin
    if (again_pop) pace_q <= '1;
    else if (pace_q != '0) pace_q <= pace_q - 1'b1;
    if (rst) pace_q <= '0;
  end
  berth_fp_ready #(
      .QPS (QPS),
      .SETS(2)
  ) due (
      .clk,
      .rst,
      .set({again_pop, ready_now && !old_news}),
      .set_q({again_q, q_q}),
      .valid(due_valid),
      .q(due_q),
      .pop(due_pop),
      .busy(due_busy)
  );

  always_ff @(posedge clk) begin
    if (afr_ready) afr_valid <= 1'b0;
    if (want_afr && go && state_q == DECIDE) begin
      afr_valid    <= 1'b1;
      afr_q        <= q_q;
      afr.msn      <= r_q.msn;
      afr.has_sack <= 1'b0;
      afr.sack     <= '0;
      for (int unsigned i = 0; i < SACK; i++) afr.sack[127-i] <= r_q.in_place[i];
      case (r_q.refusal != NONE && (r_q.fol == '0 || r_q.refusal == FATAL) ? r_q.refusal : NONE)
        NONE: begin
          afr.psn      <= r_q.placed - 24'd1;
          afr.syndrome <= ACK_NO_COUNT;
          afr.has_sack <= r_q.selective && r_q.in_place[SACK-1:0] != '0;
        end
        SEQUENCE: begin
          afr.psn      <= r_q.placed;
          afr.syndrome <= NAK;
        end
        RNR: begin
          afr.psn      <= r_q.placed;
          afr.syndrome <= RNR_NAK | {3'd0, r_q.refusal_code};
        end
        default: begin
          afr.psn      <= r_q.of_again ? r_q.skipped : r_q.placed;
          afr.syndrome <= NAK | {3'd0, r_q.refusal_code};
        end
      endcase
    end
    if (rst) afr_valid <= 1'b0;
  end

  // ---- counters, trace -------------------------------------------------------------------------------
  logic packet_over;
  assign packet_over     = finish && op_q == OP_PACKET;
  assign ev_taken        = packet_over && verdict < V_DUPLICATE;
  assign ev_duplicate    = packet_over && verdict == V_DUPLICATE;
  assign ev_out_of_order = packet_over && state_q == DECIDE && fault == berth_row_pkg::FAULT_OUT_OF_ORDER;
  assign ev_dropped      = packet_over && verdict == V_DROP && fault != berth_row_pkg::FAULT_OUT_OF_ORDER;
  assign trace_valid        = finish;
  assign trace_word         = {answered_now_q && a_q.again, answered_now_q, op_q, verdict, state_q == DECIDE ? fault : fault_q, 16'(q_q),
                           1'b0, op_q == OP_CMD && cmd_op_q == berth_row_pkg::STEP_NOT_INVALIDATED,
                           op_q == OP_CMD && cmd_op_q == berth_row_pkg::STEP_INVALIDATED, credits_q, err_q,
                           psn_q};

  wire unused = &{1'b0, ring, d, p_q, a_q};

  // Every packet that is in place has come; nothing is stored behind the window. A command may be of a QP that never was.
  always_ff @(posedge clk)
    if (!rst && row_we && op_q != OP_CMD)
      assert ((f.in_place & ~f.seen) == '0 && f.complete - f.credit - 32'd1 > 32'h7fff_ffff);

endmodule
