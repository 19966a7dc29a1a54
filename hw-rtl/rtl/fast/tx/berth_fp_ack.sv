// SPDX-License-Identifier: Apache-2.0 OR MIT
// The sender's window (berth_protocol::rc::Window): acknowledgements that came, packets that are lost, time-outs.
//
// Per QP bitmaps of 2^WB bits, of which bit 0 is the oldest unacknowledged PSN (a SACK has the first 128 behind its PSN): done, lost, fixing (given to the block engine and
// not yet sent again), answers (waits for an answer of its own: a packet of a READ), marked (sent again; its mark says how far behind it the next new PSN was then). A packet is
// lost when `reorder` packets that left later are known to have arrived, or any one when nothing new is left
// to send. Without selective repeat a NAK loses everything, and only answers are missed otherwise: any that an acknowledgement
// or a later answer passes over.
//
// No acknowledgement and no SACK is about packets that wait for answers. The answer for one acknowledges what lies before it,
// but other such packets. One of these is lost likewise, but by what is known to have been answered: that is all up to the PSN
// of the last acknowledgement or answer (`heard`), whether the answers have come or not. Which packets wait for answers is told
// by SEND: from which one on all do, with each that leaves (`asks_from`); and when one follows that does not, before an
// acknowledgement of it can come. If the oldest packet is one that waits, all of them go again in place of a probe.
//
// A peer without credit lists says with each acknowledgement how many messages may begin that use a receive: its count of
// messages and that of its receives together. The last one holds, whether it is more or less.
//
// The effect of an acknowledgement on packets that were sent once is decided for all of them at once; resent packets
// are looked at one by one, at most LOOKS of them in one operation. The rest is work of the QP that goes on behind
// acknowledgements of others (`from`: places below it are looked at). So a peer can cause many such looks, but delays
// no other QP. An acknowledgement without news causes none, except once when nothing new is left to send. One that
// cannot have news (`idle_ack`: for packets that were never sent, or are acknowledged) takes three clocks, four with a
// SACK, and its row is not stored.
//
// Marks only know new packets that left later. Where none follows, one packet that was sent again is the witness
// (rc::Witness): `before` has the packets that left before it and not since. When it is acknowledged, at least half a
// round trip after it left, those of them that are still open and would be in a SACK are lost. The next one that goes
// again is the witness if there is none, if the one that there is began a quarter of a round trip ago at most (they
// left together), or if it is overdue.
//
// The round trip is measured with one packet at a time that was sent once; a longer one counts at once, of a shorter
// one an eighth. Without news for two round trips, and at least PROBE, one packet goes again, alone: a probe, which is
// the witness for all packets that left before it. The first probe is the newest packet if nothing has come behind a
// gap and a SACK reaches that far, because only the end of the stream can be missing then; later probes are the oldest
// packet, which the peer always answers. The time doubles with each, until the round trip is measured anew; it counts
// from the last progress, or from when a packet last went again. No probe goes while one that is to go again has not
// left, nor later than the time-out.
//
// A time-out only tells firmware, which answers by a command. Time counts from the last progress. A time-out that is shorter
// than two round trips is as long as these.
//
// Row: `SEND_MODE`, `SEND_TIMEOUT`, `SEND_PSN`.
// Commands: `SEND_CMD_AGAIN`, `_HALT`, `_END` (halts too), `_GO_ON` (sends all again).
module berth_fp_ack #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LR  = 2,
    parameter int unsigned WB  = 8,     // log2 of the window's places, 5 to 8: one packet less may be under way
    // Least time without news until a probe, in units of `now`; and until the first one, while no round trip is known.
    parameter int unsigned PROBE = berth_regs_pkg::FAST_PROBE,
    parameter int unsigned FIRST = 32 * PROBE
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic                         cfg_we,
    input  logic [$clog2(QPS)-1:0]       cfg_q,
    input  berth_card_pkg::row_write_t   cfg,
    // some engine's row is not initialised yet: no work begins, because it would use the old content
    input  logic                         init_any,
    input  logic                         init_valid,
    input  logic [$clog2(QPS)-1:0]       init_q,
    output logic                         init_ack,
    input  logic                         cmd_valid,
    output logic                         cmd_ready,
    input  logic [$clog2(QPS)-1:0]       cmd_q,
    input  logic [2:0]                   cmd_op,
    input  logic [31:0]                  now,
    // time-outs: look whenever nothing else is to be done; a row was looked at, it runs a timer, and until when
    input  logic                         hurry,
    output logic                         swept,
    output logic                         swept_on,
    output logic [31:0]                  swept_at,

    input  logic                         ack_valid,
    output logic                         ack_ready,
    input  logic [$clog2(QPS)-1:0]       ack_q,
    input  berth_card_pkg::ack_t         ack,
    // the answer for a packet in the window has come, and is being written; it is in place
    input  logic                         begun_valid,
    output logic                         begun_ready,
    input  logic [$clog2(QPS)-1:0]       begun_q,
    input  logic [23:0]                  begun_psn,
    input  logic                         took_valid,
    output logic                         took_ready,
    input  logic [$clog2(QPS)-1:0]       came_q,
    input  logic [23:0]                  came_psn,

    // sent so far; pieces that are cut
    input  logic                         sent_we,
    input  logic [$clog2(QPS)-1:0]       sent_q,
    input  berth_card_pkg::sent_so_far_t sent_data,
    input  logic                         cut_we,
    input  logic [$clog2(QPS)-1:0]       cut_q,
    input  logic [7:0]                   cut_pieces,
    // a packet leaves for the first time
    input  logic                         log_we,
    input  logic [$clog2(QPS)-1:0]       log_q,
    // a lost packet leaves again, or one leaves behind some that wait for answers; a packet could not be read, or its answer
    // not be written; a place for lost ones is free
    input  logic                         again_valid,
    output logic                         again_ready,
    input  logic [$clog2(QPS)-1:0]       again_q,
    input  berth_card_pkg::again_t       again_data,
    input  logic                         fail_valid,
    output logic                         fail_ready,
    input  logic [$clog2(QPS)-1:0]       fail_q,
    input  logic [23:0]                  fail_psn,
    input  logic                         place_valid,
    output logic                         place_ready,
    input  logic [$clog2(QPS)-1:0]       place_q,
    input  logic [LR-1:0]                place_idx,

    // a lost packet for the block engine
    output logic                         lost_valid,
    input  logic                         lost_ready,
    output logic [$clog2(QPS)-1:0]       lost_q,
    output berth_card_pkg::lost_t        lost_data,

    output logic                         acked_we,
    output logic [$clog2(QPS)-1:0]       acked_q,
    output berth_card_pkg::acked_t       acked_data,

    output logic                         lsn_we,
    output logic [$clog2(QPS)-1:0]       lsn_q,
    output berth_card_pkg::lsn_t         lsn_data,

    output logic                         ack_fault_valid,
    output logic [$clog2(QPS)-1:0]       ack_fault_q,
    output logic [1:0]                   ack_fault_kind,  // ACK_*
    output berth_row_pkg::event_nak_t    ack_fault_arg,   // of a time-out it says nothing
    // the round trip as it is measured, in units of `now`; 0: not yet
    output logic                         round_we,
    output logic [$clog2(QPS)-1:0]       round_q,
    output logic [19:0]                  round,
    // counters: acknowledgements that came, and those that cannot be
    output logic                         ev_taken,
    output logic                         ev_bad
);
    localparam int unsigned QW     = $clog2(QPS);
    localparam int unsigned PLACES = 1 << LR;
    localparam int unsigned W      = 1 << WB;
    localparam int          SACK   = WB < 7 ? 1 << WB : 128;   // bits of a SACK that matter
    localparam int unsigned TW     = 20;     // bits of a time that is measured: 2^26 clocks
    localparam int unsigned RW     = 24 + 6*W + 16 + PLACES + LR + 1 + 1 + 1 + 32 + 4 + WB + 1 + 2*(WB + TW + 1) + 4 + 2*TW;
    localparam logic [3:0]  LOOKS  = 4'd8;

    typedef enum logic [4:0] {IDLE, ROWS, ALIGN, AGE, APPLY, SLIDE, LOSE, LOOK, ONCE, HUNT, MARK, GIVE, STORE,
                              WEIGH, PROVE, DUE, DECIDE} op_t;
    typedef enum logic [3:0] {ACK, BEGUN, TOOK, AGAIN, ASKS, FAIL, PLACE, WORK, COMMAND, SWEEP, INIT} kind_t;
    op_t           op_q;
    kind_t         kind_q;
    logic [QW-1:0] q_q, q;

    // ---- what is next ------------------------------------------------------------------
    logic          work_valid, work_pop, work_busy, more;
    logic [QW-1:0] work_q, sweep_q;
    logic          sweep_due_q, sweep_go;
    logic [5:0]    tick_q;
    logic          pick_init, pick_sweep, pick_again, pick_fail, pick_place, pick_cmd, pick_begun, pick_ack,
                   pick_took, pick_work, ready, idle;
    logic          next_init, next_sweep, next_again, next_fail, next_place, next_cmd, next_begun, next_ack, next_took,
                   next_work;
    berth_fp_ready #(.QPS(QPS), .SETS(1)) work (.clk(clk), .rst(rst), .set(more), .set_q(q_q),
        .valid(work_valid), .q(work_q), .pop(work_pop), .busy(work_busy));
    assign sweep_go   = sweep_due_q && !init_any;
    logic none_before_begun;
    assign none_before_begun = !init_valid && !sweep_go && !again_valid && !fail_valid && !place_valid && !cmd_valid;
    assign next_init  = init_valid;
    assign next_sweep = sweep_go;
    assign next_again = !init_valid && !sweep_go && again_valid;
    assign next_fail  = !init_valid && !sweep_go && !again_valid && fail_valid;
    assign next_place = !init_valid && !sweep_go && !again_valid && !fail_valid && place_valid;
    assign next_cmd   = !init_valid && !sweep_go && !again_valid && !fail_valid && !place_valid && cmd_valid;
    assign next_begun = none_before_begun && begun_valid;
    // Answers, acknowledgements and work take turns.
    assign next_took  = none_before_begun && !begun_valid && took_valid && !((ack_valid || work_valid) && kind_q == TOOK)
                        && !(work_valid && kind_q == ACK);
    assign next_ack   = none_before_begun && !begun_valid && !next_took && ack_valid && !(work_valid && kind_q == ACK);
    assign next_work  = none_before_begun && !init_any && !begun_valid && !next_took && !next_ack && work_valid;
    assign q = next_init ? init_q : next_sweep ? sweep_q : next_again ? again_q : next_fail ? fail_q
             : next_place ? place_q : next_cmd ? cmd_q : next_begun ? begun_q : next_took ? came_q : next_ack ? ack_q : work_q;
    // The next operation begins while the row of the one before it is stored, unless it is of the same QP.
    assign ready      = op_q == IDLE || op_q == STORE;
    assign idle       = op_q == IDLE || (op_q == STORE && q != q_q);
    assign pick_init  = idle && next_init;
    assign pick_sweep = idle && next_sweep;
    assign pick_again = idle && next_again;
    assign pick_fail  = idle && next_fail;
    assign pick_place = idle && next_place;
    assign pick_cmd   = idle && next_cmd;
    assign pick_begun = idle && next_begun;
    assign pick_took  = idle && next_took;
    assign pick_ack   = idle && next_ack;
    assign pick_work  = idle && next_work;
    assign again_ready = pick_again;
    assign fail_ready  = pick_fail;
    assign place_ready = pick_place;
    assign cmd_ready   = pick_cmd;
    assign ack_ready   = pick_ack;
    assign begun_ready = pick_begun;
    assign took_ready  = pick_took;
    assign work_pop    = pick_work;

    // ---- rows --------------------------------------------------------------------------
    logic [23:0]       m_una, next, asks_from, psn_cfg;
    logic              asks;
    logic [W-1:0]      m_done, m_lost, m_fixing, m_answers, m_marked, m_before;
    logic [7:0]        m_heard, m_reads;
    logic              m_probing, m_witness, m_timed;
    logic [WB-1:0]     m_witness_psn, m_timed_psn;
    logic [TW-1:0]     m_witness_at, m_timed_at, m_waits, m_round, left;
    logic [3:0]        m_probes;
    logic [PLACES-1:0] m_busy;
    logic [LR-1:0]     m_place;
    logic              m_halt, m_armed, m_told, selective, foreign;
    logic              m_hunting, m_anew, m_idle, m_idled;
    logic [WB-1:0]     m_from;
    logic [31:0]       m_stamp, timeout;
    logic [7:0]        pieces, cut;
    logic [3:0]        reorder;
    logic [RW-1:0]     row_new;
    logic              store;
    berth_fp_mem #(.WIDTH(RW), .DEPTH(QPS), .OWN(1'b1)) m_row (.clk(clk), .we(store), .waddr(q_q), .wdata(row_new),
        .re(ready), .raddr(q), .rdata({m_una, m_done, m_lost, m_fixing, m_answers, m_heard, m_reads, m_marked, m_busy, m_place,
                                      m_halt, m_armed, m_told, m_stamp,
                                      m_hunting, m_anew, m_idle, m_idled, m_from,
                                      m_before, m_probing, m_witness, m_witness_psn, m_witness_at,
                                      m_timed, m_timed_psn, m_timed_at, m_probes, m_waits, m_round}));
    berth_fp_mem #(.WIDTH(TW), .DEPTH(QPS)) m_left (.clk(clk), .we(log_we), .waddr(log_q), .wdata(now[TW-1:0]),
        .re(ready), .raddr(q), .rdata(left));
    berth_fp_mem #(.WIDTH(57), .DEPTH(QPS)) m_sent (.clk(clk), .we(sent_we), .waddr(sent_q),
        .wdata({sent_data.next, sent_data.pieces, sent_data.asks, sent_data.asks_from}), .re(ready), .raddr(q),
        .rdata({next, pieces, asks, asks_from}));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_cut (.clk(clk), .we(cut_we), .waddr(cut_q),
        .wdata(cut_pieces), .re(ready), .raddr(q), .rdata(cut));
    berth_row_pkg::send_mode_t cfg_mode;
    assign cfg_mode = cfg.data;
    berth_fp_mem #(.WIDTH(6), .DEPTH(QPS)) m_mode (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_MODE), .waddr(cfg_q),
        .wdata({cfg_mode.selective ? cfg_mode.reorder : 4'd0, cfg_mode.selective, cfg_mode.foreign}), .re(ready), .raddr(q),
        .rdata({reorder, selective, foreign}));
    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS)) m_timeout (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_TIMEOUT), .waddr(cfg_q),
        .wdata(cfg.data), .re(ready), .raddr(q), .rdata(timeout));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_psn (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_PSN), .waddr(cfg_q),
        .wdata(cfg.data[23:0]), .re(ready), .raddr(q), .rdata(psn_cfg));

    logic [23:0]       una_q, psn_q, next_q, out_q;
    logic [W-1:0]      done_q, lost_q_, fixing_q, answers_q, marked_q, before_q, open_q, seen_at_q;
    logic [7:0]        heard_q, reads_q; // packets up to the newest one that is known to be answered; answers before `una`
    logic [PLACES-1:0] busy_q;
    logic [LR-1:0]     place_q_, freed_q;
    logic              halt_q, armed_q, told_q, has_sack_q, lose_q, seen_q, hunt_q;
    // Flags: resent packets are being looked at; the look must begin again afterwards; nothing new was left to send
    // when it began; that case has been looked at since the last news.
    logic              hunting_q, anew_q, idle_q, idled_q;
    logic [WB-1:0]     from_q;
    logic [3:0]        looks_q;
    logic [31:0]       stamp_q;
    logic [7:0]        syndrome_q;
    logic [2:0]        cmd_op_q;
    localparam logic [2:0] CMD_AGAIN = berth_row_pkg::SEND_CMD_AGAIN[2:0], CMD_HALT = berth_row_pkg::SEND_CMD_HALT[2:0],
        CMD_END = berth_row_pkg::SEND_CMD_END[2:0], CMD_GO_ON = berth_row_pkg::SEND_CMD_GO_ON[2:0];
    logic              was_lost_q, was_halt_q;
    // Of the witness and the packet whose round trip is measured: there is one, its PSN modulo W, when it left (the witness, or one
    // that was before it), its place.
    logic              witness_q, timed_q;
    logic [WB-1:0]     witness_psn_q, timed_psn_q, witness_place_q, timed_place_q;
    logic [TW-1:0]     witness_at_q, timed_at_q, trip_q, round_q_, waits_q;
    logic [3:0]        probes_q;         // since the round trip was measured
    logic              probing_q, first_q, trip_valid_q, own_q, young_q, overdue_q, proved_q, same_q, tail_q;
    logic [TW-1:0]     age;
    logic [23:0]       was_una_q;

    // The first n bits, or all; by groups of 16.
    function automatic logic [W-1:0] ones(input logic all, input logic [WB-1:0] n);
        logic [W/16-1:0] below, its;
        logic [15:0]     part;
        below = ~({W/16{1'b1}} << n[WB-1:4]);
        its   = (W/16)'(1) << n[WB-1:4];
        part  = ~(16'hffff << n[3:0]);
        for (int i = 0; i < int'(W/16); i++) ones[16*i +: 16] = {16{all || below[i]}} | ({16{its[i]}} & part);
    endfunction
    // Shifting is done in steps of 16, 4 and 1 places, the largest that fits each cycle: acknowledgements of one
    // packet, of four and of sixteen need one.

    // ---- an acknowledgement --------------------------------------------------------------
    logic [23:0]  flight, upto, back;
    logic         reached, old, is_ack, is_nak, is_rnr, in_window, bad;
    logic [W-1:0] told_bits, news, sent_out, sacked, below_upto;
    typedef enum logic [1:0] {NOTHING, BELOW, ALSO_SEEN, ONLY_SEEN} told_t;
    told_t        told;
    // Bit i of the SACK is bit 127 - i of the header. It is reversed in log2(128) swap steps, which Verilator runs
    // fast.
    localparam logic [7*128-1:0] HALVES = {{64'd0, ~64'd0}, {2{32'd0, ~32'd0}}, {4{16'd0, ~16'd0}}, {8{8'd0, ~8'd0}},
                                           {16{8'h0f}}, {16{8'h33}}, {16{8'h55}}};
    logic [127:0] mirror;
    always_comb begin
        mirror = ack.sack;
        for (int k = 0; k < 7; k++)
            mirror = ((mirror >> (1 << k)) & HALVES[128*k +: 128]) | ((mirror << (1 << k)) & ~HALVES[128*k +: 128]);
        sacked = W'(mirror[SACK-1:0]);
    end
    logic         with_sack;
    // Places by which the SACK's bits must still be rotated, to later packets: also if it begins before the window;
    // bits that have wrapped round then lie behind `upto` modulo W.
    logic [WB:0]  shift_q;
    logic         has_sack;              // it says something
    assign is_ack    = syndrome_q[7:5] == 3'd0;
    assign is_nak    = syndrome_q[7:5] == 3'd3;
    assign is_rnr    = syndrome_q[7:5] == 3'd1;
    // For packets that were never sent, or of an unknown kind.
    assign bad       = !old && (is_ack ? !reached : !in_window) || !(is_ack || is_nak || is_rnr);
    assign flight    = next_q - una_q;
    assign upto      = psn_q + {23'd0, is_ack} - una_q;   // packets below
    assign back      = 24'd0 - upto;
    assign reached    = upto <= flight;
    assign old       = upto[23];
    assign in_window = upto < flight;
    assign with_sack = is_ack && has_sack_q && selective;
    assign has_sack  = with_sack && (reached ? upto < 24'(W) : old && back < 24'(SACK));
    logic [23:0]  out;                   // packets that had left: of one that left again, before it did
    assign out        = out_q - una_q;
    assign sent_out   = ones(out[23:WB] != '0, out[WB-1:0]);
    // Packets that wait for answers: the last ones that have left, or those before the last one.
    logic         asks_q;
    logic [23:0]  asks_at;               // place of the first of them, which may be acknowledged
    logic [WB-1:0] asks_at_q;            // ... of those that are not
    assign asks_at = (kind_q == ASKS ? psn_q : asks_from) - m_una;
    logic [W-1:0] asking, waiting;
    assign asking  = op_q == APPLY && asks_q && !out[23] ? sent_out & ~ones(1'b0, asks_at_q) : '0;
    assign waiting = answers_q | asking;
    assign below_upto = ones(reached && upto[23:WB] != '0, upto[WB-1:0]);
    always_comb begin
        if (op_q != APPLY || !(kind_q == ACK || kind_q == TOOK) || bad) told = NOTHING;
        else if (reached) told = has_sack ? ALSO_SEEN : BELOW;
        else told = has_sack ? ONLY_SEEN : NOTHING;
        case (told)
            BELOW:     told_bits = below_upto;
            ALSO_SEEN: told_bits = below_upto | seen_at_q;
            ONLY_SEEN: told_bits = below_upto & seen_at_q;
            default:   told_bits = '0;
        endcase
        news = ((told_bits & ~waiting) | (told == NOTHING || kind_q != TOOK ? '0 : one)) & sent_out & ~done_q;
    end

    // The count of receives: the upper bits are its exponent, the lowest one is half a step more (IBTA 9.7.7.2.1).
    logic [23:0]  msn_q, messages_q;
    logic         counts, counted_q;     // the acknowledgement has a count of its own, which is not stored yet
    function automatic logic [23:0] receives(input logic [4:0] code);
        receives = code[4:2] == 3'd0 ? {22'd0, code[1:0]} : code[0] ? 24'd3 << (code[4:1] - 4'd1) : 24'd1 << code[4:1];
    endfunction
    assign counts     = op_q == APPLY && kind_q == ACK && foreign && is_ack && reached;
    assign lsn_we   = store && (counted_q || kind_q == INIT);
    assign lsn_q    = q_q;
    assign lsn_data.bounded  = counted_q && syndrome_q[4:0] != 5'd31;
    assign lsn_data.messages = messages_q;

    // What has been answered is known up to there.
    logic [7:0]   heard;
    logic         hears;
    assign heard = upto[7:0] + {7'd0, kind_q == TOOK};
    assign hears = op_q == APPLY && (kind_q == ACK || kind_q == TOOK) && !bad && reached && heard > heard_q;

    // ---- the window slides -----------------------------------------------------------------
    logic [1:0]   hop;                   // 16, 4 or 1 places, or none
    logic [4:0]   step;                  // as a number
    logic         slid;                  // with this step
    always_comb begin
        if (done_q[15:0] == '1) {hop, step, slid} = {2'd3, 5'd16, !done_q[16]};
        else if (done_q[3:0] == '1) {hop, step, slid} = {2'd2, 5'd4, !done_q[4]};
        else {hop, step, slid} = {1'b0, done_q[0], 4'd0, done_q[0], !(done_q[0] && done_q[1])};
        if (op_q != SLIDE) hop = 2'd0;
    end
    // Packets of READs among those that it slides over.
    logic [4:0]   slid_reads;
    always_comb begin
        slid_reads = '0;
        for (int i = 0; i < 16; i++) slid_reads = slid_reads + {4'd0, 5'(i) < step && answers_q[i]};
    end
    function automatic logic [W-1:0] down(input logic [W-1:0] bits, input logic [1:0] by);
        down = by[1] ? by[0] ? bits >> 16 : bits >> 4 : by[0] ? bits >> 1 : bits;
    endfunction

    // ---- what is lost ----------------------------------------------------------------------
    logic [7:0]   newest, newest_q;      // less than W packets are under way
    logic [W-1:0] settled, sure;
    logic         nothing_new, all_new_q, any_done, unused_any;
    logic [WB-1:0] newest_at, sure_q, sure_heard_q;
    logic         all_heard_q, answer_q; // nothing is left to be heard of; the packet looked at waits for an answer
    berth_fp_first #(.N(W), .HIGHEST(1'b1)) newest_done (.bits(done_q), .any(any_done), .at(newest_at));
    assign newest  = any_done ? 8'(newest_at) + 8'd1 : 8'd0;
    assign settled = done_q | lost_q_ | fixing_q;
    assign nothing_new = selective && pieces == cut;
    logic         idle_ack;              // the acknowledgement changes nothing
    assign idle_ack = (bad || flight == 24'd0 || (!has_sack && (old || upto == 24'd0))) && !(in_window && (is_nak || is_rnr))
                      && !(is_ack && nothing_new && !idled_q) && !counts;
    // Places that may be overtaken: there, packets that were sent once are.
    assign sure    = (ones(1'b0, sure_q) & ~answers_q) | (ones(1'b0, sure_heard_q) & answers_q);
    logic [WB-1:0] first_at, first_at_q, at; // places in the window: the lowest of the bits looked at; of a packet
    logic         looked_q;                // GIVE: it is found
    logic [W-1:0] one;                     // its bit; a packet's in APPLY, none if it is not in the window
    berth_fp_first #(.N(W)) lowest_one (.bits(op_q == GIVE ? lost_q_ : open_q), .any(unused_any), .at(first_at));
    logic          flying;                 // the packet is in the window
    assign flying = psn_q - una_q < flight;
    assign one = op_q != APPLY ? W'(1) << first_at_q : flying ? W'(1) << at : '0;
    logic [7:0] mark;
    logic [9:0] marked_at, seen;
    logic       overtaken;
    assign marked_at = 10'(first_at_q) + {2'd0, mark};
    assign seen      = {2'd0, answer_q ? heard_q : newest_q};
    assign overtaken = seen >= marked_at + {6'd0, reorder} || ((answer_q ? all_heard_q : all_new_q) && seen > marked_at);
    assign at        = psn_q[WB-1:0] - una_q[WB-1:0];

    logic         mark_we;
    logic [23:0]  open_psn, behind;
    assign open_psn = una_q + 24'(first_at);
    assign mark_we  = op_q == APPLY && kind_q == AGAIN && flying;
    assign behind   = again_next_q - psn_q;
    logic [23:0]  again_next_q;
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS << WB), .OWN(1'b1)) m_marks (.clk(clk), .we(mark_we), .waddr({q_q, psn_q[WB-1:0]}),
        .wdata(behind[7:0]), .re(op_q == HUNT), .raddr({q_q, open_psn[WB-1:0]}), .rdata(mark));

    // ---- a packet that was sent again proves others lost ------------------------------------- Only packets that an
    // acknowledgement would name: the first 128 behind its PSN. The window has slid to there, or further.
    logic         take, proved;
    logic [23:0]  past, known;
    logic [WB:0]  known_q;
    logic [W-1:0] proven;
    assign take   = op_q == APPLY && kind_q == AGAIN && flying && selective
                    && (!witness_q || probing_q || same_q || young_q || overdue_q);
    assign age    = now[TW-1:0] - witness_at_q;
    assign proved = first_q && witness_q && done_q[witness_place_q];
    assign past   = una_q - psn_q - 24'd1;
    assign known  = 24'd128 - past;
    // An answer tells only of others: they come in the order of their packets.
    assign proven = before_q & ~settled & (kind_q != TOOK ? ones(known_q[WB], known_q[WB-1:0]) & ~answers_q : same_q ? answers_q : '0);

    // ---- time-outs and probes ----------------------------------------------------------------
    logic [QPS-1:0] started_q;           // rows that mean something
    logic           alive, runs, probe, probe_on_q, may_probe, may_probe_q;
    logic [TW-1:0]  waited;
    logic [TW:0]    pto_q;
    logic [TW+15:0] span_q;              // time until the next probe
    logic [31:0]    limit_q, probe_at_q, time_out_at;
    logic [TW-1:0]  shorter;
    assign alive    = started_q[q_q];
    assign runs     = alive && armed_q && timeout != 32'd0 && !told_q && !halt_q;
    assign waited   = now[TW-1:0] - waits_q;
    // Short enough that its end is seen before the time's bits wrap round.
    assign may_probe = may_probe_q && span_q[TW+15:TW-1] == '0 && span_q[31:0] < limit_q;
    assign probe    = op_q == DECIDE && may_probe && {16'd0, waited} >= span_q;
    assign shorter  = round_q_ - trip_q;
    assign swept    = op_q == STORE && kind_q == SWEEP;
    assign swept_on = runs || probe_on_q;
    assign time_out_at = stamp_q + limit_q;
    assign swept_at = probe_on_q && (!runs || 32'(time_out_at - probe_at_q) < 32'h8000_0000) ? probe_at_q : time_out_at;
    assign round_we = store;
    assign round_q  = q_q;
    assign round    = round_q_;

    // ---- storing -----------------------------------------------------------------------
    logic some_lost, can_give, in_order;
    // Under selective repeat new packets do not wait for those that go again (berth_fp_tx_places): until these have left. What is
    // being written of an answer is in `fixing`, and no reason to wait.
    assign some_lost = lost_q_ != '0 || busy_q != '0;
    assign can_give = alive && lost_q_ != '0 && !busy_q[place_q_] && !halt_q;
    assign store    = op_q == STORE && (kind_q != SWEEP || alive);
    assign row_new  = {una_q, done_q, lost_q_, fixing_q, answers_q, heard_q, reads_q, marked_q, busy_q, place_q_, halt_q, armed_q, told_q, stamp_q,
                       hunting_q, anew_q, idle_q, idled_q, from_q, before_q, probing_q, witness_q, witness_psn_q, witness_at_q,
                       timed_q, timed_psn_q, timed_at_q, probes_q, waits_q, round_q_};
    // The oldest one goes first: one behind those that are still to be looked at waits for them.
    assign in_order = !hunting_q || first_at_q < from_q;
    assign more     = store && (can_give || (hunting_q && alive));
    assign init_ack = store && kind_q == INIT;
    assign acked_we = store && (kind_q == INIT || una_q != was_una_q || some_lost != was_lost_q || halt_q != was_halt_q);
    assign acked_q    = q_q;
    assign acked_data.una  = una_q;
    assign acked_data.lost = some_lost;
    assign acked_data.halt = halt_q;
    assign acked_data.reads = reads_q;
    assign lost_valid = op_q == GIVE && can_give && looked_q && in_order;
    assign lost_q     = q_q;
    assign lost_data.psn   = una_q + 24'(first_at_q);
    assign lost_data.place = place_q_;

    // ---- the bitmaps: loaded, slid, or some bits set and cleared ------------------------------
    // A packet that is lost, or given to be sent again, is not done.
    logic         again, fail, give, lose_all, lose_one, lose_probe, load;
    logic         begun_now, took;
    logic [W-1:0] done_new, lost_new, fixing_new, answers_new, marked_new, before_new, losing, ask_again;
    // It does not go again while its answer is being written.
    assign begun_now = op_q == APPLY && kind_q == BEGUN;
    assign took     = op_q == APPLY && kind_q == TOOK;
    assign load     = op_q == ROWS;
    assign again    = op_q == APPLY && kind_q == AGAIN;
    assign fail     = op_q == APPLY && kind_q == FAIL;
    assign give     = lost_valid && lost_ready;
    assign lose_all = (op_q == APPLY && kind_q == COMMAND && ((cmd_op_q == CMD_AGAIN && !selective) || cmd_op_q == CMD_GO_ON))
                      || op_q == LOSE;
    assign lose_probe = probe || (op_q == APPLY && kind_q == COMMAND && cmd_op_q == CMD_AGAIN && selective);
    assign lose_one = fail || (op_q == MARK && overtaken);
    assign ask_again = waiting[0] ? waiting : probe && tail_q ? ~(sent_out >> 1) : W'(1);
    assign losing   = (lose_all ? sent_out & ~fixing_q : lose_probe ? sent_out & ~fixing_q & ask_again
                       : op_q == PROVE ? proven : op_q == ONCE ? sure & ~marked_q & ~settled : lose_one ? one : '0)
                      & ~done_q;
    always_comb begin
        done_new   = down(load ? m_done : done_q | news, hop);
        lost_new   = down(load ? m_lost : (lost_q_ & ~news & ~(give || begun_now ? one : '0)) | losing, hop);
        fixing_new = down(load ? m_fixing : (fixing_q & ~(again || fail || took ? one : '0)) | (give || begun_now ? one : '0), hop);
        answers_new = down(load ? m_answers : waiting, hop);
        marked_new = down(load ? m_marked : marked_q | (again ? one : '0), hop);
        before_new = down(load ? m_before : (take ? sent_out & ~settled & (nothing_new || probing_q ? '1 : marked_q)
                                                  : before_q) & ~(again ? one : '0), hop);
    end
    always_ff @(posedge clk) begin
        {done_q, lost_q_, fixing_q, answers_q, marked_q, before_q} <= {done_new, lost_new, fixing_new, answers_new, marked_new, before_new};
        if (load && kind_q == INIT) {done_q, lost_q_, fixing_q, answers_q, marked_q} <= '0;
    end

    always_ff @(posedge clk) begin
        ack_fault_valid <= 1'b0;
        ev_taken <= op_q == APPLY && kind_q == ACK && !bad;
        ev_bad   <= op_q == APPLY && kind_q == ACK && bad;
        ack_fault_q     <= q_q;
        ack_fault_arg.syndrome <= syndrome_q;
        ack_fault_arg.psn      <= psn_q;
        tick_q   <= tick_q + 6'd1;
        first_at_q <= first_at;
        answer_q   <= answers_q[first_at];
        looked_q   <= 1'b0;
        first_q    <= 1'b0;
        // Sooner or later than a round trip an earlier copy of the witness has come.
        own_q      <= age >= round_q_ - {2'd0, round_q_[TW-1:2]}
                      && (round_q_ == '0 || {1'b0, age} < {1'b0, round_q_} + {3'd0, round_q_[TW-1:2]});
        tail_q     <= !any_done && answers_q == '0 && flight <= 24'(SACK) && probes_q == '0;
        young_q    <= age < {2'd0, round_q_[TW-1:2]};
        overdue_q  <= {1'b0, age} >= {1'b0, round_q_} + {3'd0, round_q_[TW-1:2]};
        pto_q      <= round_q_ == '0 ? (TW+1)'(FIRST) : {round_q_, 1'b0} > (TW+1)'(PROBE) ? {round_q_, 1'b0} : (TW+1)'(PROBE);
        known_q    <= known[23] ? '0 : known >= 24'(W) ? {1'b1, {WB{1'b0}}} : {1'b0, known[WB-1:0]};
        trip_valid_q <= 1'b0;
        if (trip_valid_q) round_q_ <= round_q_ == '0 || trip_q > round_q_ ? trip_q
                                      : round_q_ - {3'd0, shorter[TW-1:3]} - {{TW-1{1'b0}}, shorter[2:0] != 3'd0};
        if (tick_q == 6'd0 || (tick_q[3:0] == 4'd0 && op_q == IDLE && !again_valid && !fail_valid && !place_valid && !cmd_valid
                               && !ack_valid && !begun_valid && !took_valid && !work_valid) || (hurry && !again_valid && !fail_valid && !place_valid && !cmd_valid && !ack_valid && !begun_valid && !took_valid
                                          && !work_valid))
            sweep_due_q <= 1'b1;
        case (op_q)
            IDLE, STORE: begin
                op_q <= IDLE;
                if (idle) begin
                    q_q    <= q;
                    lose_q <= 1'b0;
                    hunt_q <= 1'b0;
                    counted_q <= 1'b0;
                    msn_q  <= ack.msn;
                    psn_q  <= pick_again ? again_data.psn : pick_fail ? fail_psn : pick_begun ? begun_psn : pick_took ? came_psn : ack.psn;
                    again_next_q <= again_data.next;
                    freed_q      <= place_idx;
                    cmd_op_q     <= cmd_op;
                    // What an answer says of packets before it is what a NAK says.
                    {syndrome_q, has_sack_q} <= pick_took ? {8'h60, 1'b0} : {ack.syndrome, ack.has_sack};
                    seen_at_q <= sacked;
                    shift_q <= '1;
                    if (pick_sweep) begin
                        sweep_due_q <= 1'b0;
                        sweep_q     <= sweep_q + QW'(1);
                    end
                    kind_q <= pick_init ? INIT : pick_sweep ? SWEEP : pick_again ? (again_data.asks ? ASKS : AGAIN) : pick_fail ? FAIL
                            : pick_place ? PLACE : pick_cmd ? COMMAND : pick_begun ? BEGUN : pick_took ? TOOK : pick_ack ? ACK : WORK;
                    if (pick_init || pick_sweep || pick_again || pick_fail || pick_place || pick_cmd || pick_begun || pick_took || pick_ack || pick_work)
                        op_q <= ROWS;
                end
            end
            ROWS: begin
                messages_q <= msn_q + receives(syndrome_q[4:0]);
                una_q      <= m_una;
                heard_q    <= m_heard;
                reads_q    <= m_reads;
                busy_q     <= m_busy;
                place_q_   <= m_place;
                halt_q     <= m_halt;
                armed_q    <= m_armed;
                told_q     <= m_told;
                stamp_q    <= m_stamp;
                {hunting_q, anew_q, idle_q, idled_q, from_q} <= {m_hunting, m_anew, m_idle, m_idled, m_from};
                was_una_q  <= m_una;
                was_lost_q <= m_lost != '0 || m_busy != '0;
                was_halt_q <= m_halt;
                next_q     <= next;
                out_q      <= kind_q == AGAIN || kind_q == ASKS ? again_next_q : next;
                asks_q     <= kind_q == ASKS || (asks && kind_q != AGAIN && kind_q != INIT);
                asks_at_q  <= asks_at[23] ? '0 : asks_at[WB-1:0];
                {probing_q, witness_q, witness_psn_q, witness_at_q} <= {m_probing, m_witness, m_witness_psn, m_witness_at};
                {waits_q, round_q_, probes_q} <= {m_waits, m_round, m_probes};
                witness_place_q <= m_witness_psn - m_una[WB-1:0];
                same_q     <= psn_q[WB-1:0] == m_witness_psn;
                // measure the newest packet's round trip, if no other one's is being measured
                {timed_q, timed_psn_q, timed_at_q} <= {m_timed, m_timed_psn, m_timed_at};
                timed_place_q <= m_timed_psn - m_una[WB-1:0];
                if (!m_timed && timeout != 32'd0 && (kind_q == ACK || kind_q == TOOK || kind_q == SWEEP)) begin
                    {timed_q, timed_psn_q, timed_at_q} <= {next != m_una, next[WB-1:0] - WB'(1), left};
                    timed_place_q <= next[WB-1:0] - WB'(1) - m_una[WB-1:0];
                end
                proved_q   <= 1'b0;
                probe_on_q <= 1'b0;
                op_q       <= kind_q == ACK && has_sack_q ? ALIGN : kind_q == AGAIN ? AGE : APPLY;
            end
            AGE: op_q <= APPLY;
            ALIGN: if (shift_q == '1) begin
                shift_q <= {1'b0, upto[WB-1:0]};
                if (!has_sack || flight == 24'd0) op_q <= APPLY;
            end else begin
                if (shift_q[WB-1:4] != '0) begin
                    seen_at_q <= {seen_at_q[W-17:0], seen_at_q[W-1:W-16]};
                    shift_q   <= shift_q - (WB+1)'(16);
                end else if (shift_q[3:2] != 2'd0) begin
                    seen_at_q <= {seen_at_q[W-5:0], seen_at_q[W-1:W-4]};
                    shift_q   <= shift_q - (WB+1)'(4);
                end else if (shift_q[1:0] != 2'd0) begin
                    seen_at_q <= {seen_at_q[W-2:0], seen_at_q[W-1]};
                    shift_q   <= shift_q - (WB+1)'(1);
                end else begin
                    op_q <= APPLY;
                end
            end
            APPLY: begin
                op_q <= GIVE;
                if (hears) heard_q <= heard;
                counted_q <= counts;
                // That the newest packet has arrived was known already: how long ago is not.
                if (done_q[timed_place_q]) timed_q <= 1'b0;
                case (kind_q)
                    ACK: begin
                        seen_q  <= news != '0;
                        lose_q  <= is_nak && syndrome_q[4:0] == 5'd0 && in_window;
                        // without news no further packet is lost, unless nothing new is left to send since then
                        if (is_ack && (news != '0 || hears || (nothing_new && !idled_q))) begin
                            hunt_q    <= 1'b1;
                            hunting_q <= 1'b1;
                            anew_q    <= hunting_q;
                            idle_q    <= nothing_new;
                            idled_q   <= nothing_new;
                        end
                        // reported once: a halted QP stays so until firmware decides
                        if (is_nak && syndrome_q[4:0] != 5'd0 && in_window) begin
                            halt_q <= 1'b1;
                            {ack_fault_valid, ack_fault_kind} <= {!halt_q, berth_row_pkg::ACK_NAK};
                        end else if (is_rnr && in_window) begin
                            halt_q <= 1'b1;
                            lose_q <= 1'b1;
                            {ack_fault_valid, ack_fault_kind} <= {!halt_q, berth_row_pkg::ACK_RNR};
                        end
                        op_q    <= idle_ack ? IDLE : SLIDE;
                        first_q <= 1'b1;
                    end
                    TOOK: if (!bad) begin
                        seen_q    <= news != '0;
                        hunt_q    <= 1'b1;
                        hunting_q <= 1'b1;
                        anew_q    <= hunting_q;
                        idle_q    <= nothing_new;
                        idled_q   <= nothing_new;
                        first_q   <= 1'b1;
                        op_q      <= SLIDE;
                    end
                    ASKS, BEGUN: op_q <= STORE;
                    AGAIN: if (flying) begin
                        waits_q <= now[TW-1:0];
                        probing_q <= 1'b0;
                        if (take) {witness_q, witness_psn_q} <= {1'b1, psn_q[WB-1:0]};
                        if (take && !(witness_q && young_q && !same_q && !probing_q)) witness_at_q <= now[TW-1:0];
                    end
                    PLACE: busy_q[freed_q] <= 1'b0;
                    WORK: if (hunting_q) op_q <= LOOK;
                    COMMAND: begin
                        if (cmd_op_q == CMD_HALT || cmd_op_q == CMD_END) halt_q <= 1'b1;
                        if (cmd_op_q == CMD_GO_ON) halt_q <= 1'b0;
                        if (cmd_op_q == CMD_AGAIN) probing_q <= 1'b1;
                        told_q  <= 1'b0;
                        stamp_q <= now;
                        waits_q <= now[TW-1:0];
                    end
                    SWEEP: if (alive) begin
                        armed_q <= flight != 24'd0;
                        if (!armed_q) begin
                            stamp_q <= now;
                            waits_q <= now[TW-1:0];
                            told_q  <= 1'b0;
                        end
                        op_q <= DUE;
                    end
                    INIT: begin
                        una_q <= psn_cfg;
                        {heard_q, reads_q} <= '0;
                        busy_q   <= '0;
                        place_q_ <= '0;
                        halt_q   <= 1'b0;
                        armed_q  <= 1'b0;
                        told_q   <= 1'b0;
                        {hunting_q, anew_q, idle_q, idled_q, from_q} <= '0;
                        {probing_q, witness_q, timed_q, probes_q, waits_q, round_q_} <= '0;
                        started_q[q_q] <= 1'b1;
                        op_q <= STORE;
                    end
                    default: ;
                endcase
            end
            SLIDE: begin
                una_q <= una_q + {19'd0, step};
                heard_q <= heard_q > {3'd0, step} ? heard_q - {3'd0, step} : 8'd0;
                reads_q <= reads_q + {3'd0, slid_reads};
                if (seen_q) begin
                    armed_q <= flight != {19'd0, step};
                    told_q  <= 1'b0;
                    stamp_q <= now;
                    waits_q <= now[TW-1:0];
                    probing_q <= 1'b0;
                end
                // What became of the witness, and of the packet whose round trip is measured: for a resent packet it is
                // unknown which copy was acknowledged.
                if (first_q && timed_q && done_q[timed_place_q]) begin
                    timed_q <= 1'b0;
                    if (!marked_q[timed_place_q]) begin
                        trip_valid_q <= 1'b1;
                        trip_q       <= now[TW-1:0] == timed_at_q ? TW'(1) : now[TW-1:0] - timed_at_q;
                        probes_q     <= '0;
                    end
                end
                if (proved) begin
                    witness_q <= 1'b0;
                    proved_q  <= own_q;
                end
                from_q <= from_q > WB'(step) ? from_q - WB'(step) : '0;
                // packets known to have arrived behind a gap are looked at; a NAK loses all
                if (slid) op_q <= lose_q ? LOSE : !hunt_q ? GIVE : (proved ? own_q : proved_q) ? WEIGH : LOOK;
            end
            LOSE: op_q <= GIVE;
            WEIGH: op_q <= PROVE;
            PROVE: op_q <= LOOK;
            DUE: begin
                span_q  <= (TW+16)'(pto_q) << probes_q;
                limit_q <= timeout > {11'd0, round_q_, 1'b0} ? timeout : {11'd0, round_q_, 1'b0};
                // no lost packet has still to leave
                may_probe_q <= runs && selective && (lost_q_ | fixing_q) == '0;
                op_q    <= DECIDE;
            end
            DECIDE: begin
                if (runs && now - stamp_q >= limit_q) begin
                    told_q <= 1'b1;
                    {ack_fault_valid, ack_fault_kind} <= {1'b1, berth_row_pkg::ACK_TIMEOUT};
                end
                probe_at_q <= now + span_q[31:0] - {{(32-TW){1'b0}}, waited};
                probe_on_q <= may_probe && !probe;
                if (probe) begin
                    probing_q <= 1'b1;
                    probes_q  <= probes_q + {3'd0, probes_q != '1};
                    waits_q   <= now[TW-1:0];
                end
                op_q <= GIVE;
            end
            LOOK: begin
                newest_q  <= newest;
                all_new_q <= idle_q && {16'd0, newest} == flight;
                sure_q    <= !selective ? '0 : idle_q && {16'd0, newest} == flight ? WB'(newest) - WB'(1)
                             : newest > {4'd0, reorder} ? WB'(newest) - WB'(reorder) : '0;
                all_heard_q  <= idle_q && {16'd0, heard_q} == flight;
                sure_heard_q <= idle_q && {16'd0, heard_q} == flight ? WB'(heard_q) - WB'(heard_q != 8'd0)
                                : heard_q > {4'd0, reorder} ? WB'(heard_q) - WB'(reorder) : '0;
                looks_q   <= 4'd0;
                op_q      <= ONCE;
                if (!any_done && heard_q == 8'd0) begin
                    {hunting_q, anew_q, from_q} <= '0;
                    op_q <= can_give ? GIVE : STORE;
                end
            end
            ONCE: begin
                open_q <= marked_q & ~settled & sure & ~ones(1'b0, from_q);
                op_q   <= HUNT;
            end
            HUNT: if (open_q == '0) begin
                {hunting_q, anew_q} <= {anew_q, 1'b0};
                from_q <= '0;
                op_q   <= GIVE;
            end else if (looks_q == LOOKS) begin
                from_q <= first_at;
                op_q   <= GIVE;
            end else begin
                op_q   <= MARK;
            end
            MARK: begin
                open_q  <= open_q & ~one;
                looks_q <= looks_q + 4'd1;
                op_q    <= HUNT;
            end
            GIVE: begin
                looked_q <= 1'b1;
                if (give) begin
                    busy_q[place_q_]   <= 1'b1;
                    place_q_           <= place_q_ + LR'(1);
                end
                if (!can_give || give || (looked_q && !in_order)) op_q <= STORE;
            end
            default: ;
        endcase
        if (rst) begin
            op_q        <= IDLE;
            sweep_due_q <= 1'b0;
            sweep_q     <= '0;
            started_q   <= '0;
            tick_q      <= 6'd0;
            kind_q      <= WORK;
        end
    end

    logic unused;
    assign unused = &{1'b0, open_psn, behind, asks_at, work_busy, unused_any, ack, sent_data};

    wire unused_cfg = &{1'b0, cfg_mode};
endmodule
