// SPDX-License-Identifier: Apache-2.0 OR MIT
// The next packet of one QP: a lost one that is prepared first, else the next of its pieces. A packet goes only when
// window and a place in packet RAM are there and all its blocks are held; what cannot go comes back when that changes.
//
// Every packet is written to the log (decision 2: it is sent again from the log, identically), and the end of
// every element to its record, so that the completion engine knows what has to be acknowledged.
//
// The next packet's rows are read in the clock in which one goes, unless it is of the same QP. One that goes waits in a register
// when the next engine is busy.
//
// A QP that releases memory, or has ended, sends nothing (`still`); `wake` says that it may send again.
//
// New packets may go while a lost one waits for its memory, but not without selective repeat, nor those of a READ or a WRITE:
// the peer takes no READ ahead of its turn, and says nothing of a WRITE whose memory is not there.
//
// A packet of a READ goes when the blocks that its answer is to be written to are held, and not more of them wait for answers
// than the peer takes. It takes no data along, and its blocks stay where they are, so one that is lost needs none: what the
// answering engine needs of it is written to a log there.
//
// A message that uses a receive of a peer without credit lists begins when the peer's count allows it (rc::Requester): while
// fewer messages have begun than it says, or when nothing else is on its way, because the answer brings a new count.
//
// A lost packet that was acknowledged while its memory was on its way does not go: the element may be complete, its
// memory another's or gone, its place in the log a later packet's. When the host has answered for all its blocks, a
// frame that is not sent (`pkt_over`) gives back those that it got.
//
// Row: `SEND_MODE`.
module berth_fp_send #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LE  = 6,
    parameter int unsigned LC  = 8,
    parameter int unsigned LP  = 4,
    parameter int unsigned LB  = 5,
    parameter int unsigned LR  = 2,
    parameter int unsigned SMALL = 1280,       // bytes of a small place in packet RAM
    parameter int unsigned WB = 8              // log2 of the packets that the log holds: more than the window
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

    input  logic                         posted_we,
    input  logic [$clog2(QPS)-1:0]       posted_q,
    input  logic [31:0]                  posted_bytes,
    input  logic                         piece_we,
    input  logic [$clog2(QPS)-1:0]       piece_q,
    input  logic [LP-1:0]                piece_idx,
    input  berth_card_pkg::piece_t       piece_data,
    input  logic                         cut_we,
    input  logic [$clog2(QPS)-1:0]       cut_q,
    input  logic [7:0]                   cut_pieces,
    input  logic                         block_we,
    input  logic [$clog2(QPS)-1:0]       block_q,
    input  logic [LB:0]                  block_idx,
    input  berth_card_pkg::block_t       block_data,
    input  logic                         state_we,
    input  logic [$clog2(QPS)-1:0]       state_q,
    input  logic [LB:0]                  state_idx,
    input  berth_card_pkg::block_state_t state_data,
    input  logic                         held_set,
    input  logic                         fixed_we,
    input  logic [LR-1:0]                fixed_place,
    input  berth_card_pkg::fixed_t       fixed_data,
    input  logic                         covered_we,
    input  logic [$clog2(QPS)-1:0]       covered_q,
    input  berth_card_pkg::covered_t     covered_data,
    // acknowledgements
    input  logic                         acked_we,
    input  logic [$clog2(QPS)-1:0]       acked_q,
    input  berth_card_pkg::acked_t       acked_data,

    input  logic                         lsn_we,
    input  logic [$clog2(QPS)-1:0]       lsn_q,
    input  berth_card_pkg::lsn_t         lsn_data,

    input  logic [QPS-1:0]               still,
    input  logic                         wake_we,
    input  logic [$clog2(QPS)-1:0]       wake_q,
    output logic                         working,            // a packet of QP working_q is being made
    output logic [$clog2(QPS)-1:0]       working_q,

    // places in packet RAM
    input  logic                         small_valid,
    input  logic [6:0]                   small_tag,
    output logic                         small_pop,
    input  logic                         big_valid,
    input  logic [6:0]                   big_tag,
    output logic                         big_pop,
    output logic                         small_wanted,   // a packet waits for one, or for its frame
    output logic                         big_wanted,

    // log, for the block engine and the answering engine
    output logic                         log_we,
    output logic [$clog2(QPS)-1:0]       log_q,
    output logic [WB-1:0]                log_psn,
    output logic [7:0]                   log_piece,          // number of its piece
    output berth_card_pkg::where_t       log_where,
    output berth_card_pkg::asked_t       log_asked,
    // end of an element
    output logic                         end_we,
    output logic [$clog2(QPS)-1:0]       end_q,
    output logic [LE-1:0]                end_idx,
    output berth_card_pkg::element_end_t end_data,
    // what is sent so far
    output logic                         sent_we,
    output logic [$clog2(QPS)-1:0]       sent_q,
    output berth_card_pkg::sent_so_far_t sent_data,
    // a packet needs one more block than have been asked for
    output logic                         want_we,
    output logic [$clog2(QPS)-1:0]       want_q,
    output berth_card_pkg::want_t        want_data,
    // a lost packet leaves again; one leaves for the first time that waits for an answer of its own
    output logic                         sent_again_valid,
    input  logic                         sent_again_ready,
    output logic [$clog2(QPS)-1:0]       sent_again_q,
    output berth_card_pkg::again_t       sent_again_data,

    // a packet is made; it is to be framed, and its parts
    output logic                         made_valid,
    output logic [$clog2(QPS)-1:0]       made_q,
    output logic                         pkt_valid,
    input  logic                         pkt_ready,
    output logic [$clog2(QPS)-1:0]       pkt_q,
    output berth_card_pkg::packet_t      pkt,
    output logic                         part_valid,
    input  logic                         part_ready,
    output berth_card_pkg::part_t        part_data,

    output logic                         send_fault_valid,   // the QP stops: a WQE or its memory is bad
    output logic [$clog2(QPS)-1:0]       send_fault_q,
    output logic [7:0]                   send_fault_status,  // WC_*, or that of the translation
    output logic                         send_fault_memory,
    output logic                         send_fault_again,   // the memory of a packet that was sent before
    output logic                         ev_packet,
    output logic                         ev_again
);
    localparam int unsigned QW = $clog2(QPS);
    localparam int unsigned RW = 24 + 24 + 8 + 1 + 32 + 24 + LB + 1 + 21 + LR + 1 + 8 + 8 + 16 + 2;
    localparam int unsigned LW = 1 + 4 + 1 + LE + 6 + 32 + 32 + 13;

    typedef enum logic [2:0] {IDLE, ROWS, LOOK, FIX, LOGGED, WALK, COMMIT, BACK} op_t;
    op_t           op_q;
    logic [QW-1:0] q_q;
    logic          work_valid, work_pop, work_busy, more;
    logic [QW-1:0] work_q;

    // ---- rows ------------------------------------------------------------------------
    logic [23:0]   next, index, una, begun;         // begun: messages, a request of a READ being one
    berth_card_pkg::lsn_t lsn;
    logic [7:0]    pieces, since, cut, window;
    logic [7:0]    reads, answered, most_reads;      // packets of READs that were sent; of them those before `una`; that may wait
    logic          mid, waits, hold, halt, selective, message;    // waits: a lost packet has not left again, or is on its way out
    logic          stop;                 // nothing new begins, because an error is being reported
    logic          gone;                 // the memory of a packet that must go again is gone, which is being reported
    logic [31:0]   left, posted;
    logic [LB:0]   blk, blocks;
    logic [20:0]   blk_off;
    logic [LR:0]   lost, losts;
    logic [15:0]   elems;
    logic [3:0]    log2_mtu;
    logic          read, row_we;
    logic [RW-1:0] row_new;
    logic [23:0]   psn_cfg;

    berth_fp_ready #(.QPS(QPS), .SETS(6)) work (.clk(clk), .rst(rst),
        .set({more, cut_we, held_set, acked_we, lsn_we, wake_we}), .set_q({q_q, cut_q, state_q, acked_q, lsn_q, wake_q}),
        .valid(work_valid), .q(work_q), .pop(work_pop), .busy(work_busy));
    logic [QW-1:0] addr;
    assign addr = init_valid ? init_q : work_q;
    berth_fp_mem #(.WIDTH(RW), .DEPTH(QPS), .OWN(1'b1)) m_row (.clk(clk), .we(row_we), .waddr(q_q), .wdata(row_new),
        .re(read), .raddr(addr),
        .rdata({next, pieces, begun, mid, left, index, blk, blk_off, lost, reads, since, elems, gone, stop}));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_cut (.clk(clk), .we(cut_we), .waddr(cut_q), .wdata(cut_pieces),
        .re(read), .raddr(addr), .rdata(cut));
    berth_fp_mem #(.WIDTH(LB+LR+2), .DEPTH(QPS)) m_covered (.clk(clk), .we(covered_we), .waddr(covered_q),
        .wdata({covered_data.blocks, covered_data.lost}), .re(read), .raddr(addr), .rdata({blocks, losts}));
    berth_fp_mem #(.WIDTH($bits(acked_data)), .DEPTH(QPS)) m_acked (.clk(clk), .we(acked_we), .waddr(acked_q),
        .wdata(acked_data), .re(read), .raddr(addr), .rdata({una, waits, halt, answered}));
    berth_fp_mem #(.WIDTH($bits(lsn_data)), .DEPTH(QPS)) m_lsn (.clk(clk), .we(lsn_we), .waddr(lsn_q),
        .wdata(lsn_data), .re(read), .raddr(addr), .rdata(lsn));
    // Where the packets begin that ask for something, if the last one does. One that does not has them told of.
    logic        asks, asks_new;
    logic [23:0] asks_from, asks_from_q;
    berth_fp_mem #(.WIDTH(25), .DEPTH(QPS), .OWN(1'b1)) m_asks (.clk(clk), .we(row_we), .waddr(q_q),
        .wdata({asks_new, sent_data.asks_from}), .re(read), .raddr(addr), .rdata({asks, asks_from}));
    berth_row_pkg::send_mode_t cfg_mode;
    assign cfg_mode = cfg.data;
    berth_fp_mem #(.WIDTH(22), .DEPTH(QPS)) m_mode (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_MODE), .waddr(cfg_q),
        .wdata({cfg_mode.reads, cfg_mode.window, cfg_mode.selective, cfg_mode.message, cfg_mode.log2_mtu}),
        .re(read), .raddr(addr), .rdata({most_reads, window, selective, message, log2_mtu}));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_psn (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_PSN), .waddr(cfg_q),
        .wdata(cfg.data[23:0]), .re(read), .raddr(addr), .rdata(psn_cfg));
    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS)) m_posted (.clk(clk), .we(posted_we), .waddr(posted_q),
        .wdata(posted_bytes), .re(op_q == WALK || op_q == LOOK || op_q == LOGGED), .raddr(q_q), .rdata(posted));

    // ---- pieces, blocks, the log -------------------------------------------------------
    berth_card_pkg::piece_t p;
    logic [LB:0]   walk_at;
    logic          walk_read;
    berth_card_pkg::block_t b;
    berth_card_pkg::block_state_t b_state;
    berth_card_pkg::fixed_t fixed;
    logic [LW-1:0] log_new, logged;
    berth_fp_mem #(.WIDTH($bits(p)), .DEPTH(QPS << LP), .OWN(1'b1)) m_piece (.clk(clk), .we(piece_we), .waddr({piece_q, piece_idx}),
        .wdata(piece_data), .re(op_q == ROWS), .raddr({q_q, pieces[LP-1:0]}),
        .rdata(p));
    berth_fp_mem #(.WIDTH($bits(b)), .DEPTH(QPS << (LB+1)), .OWN(1'b1)) m_block (.clk(clk), .we(block_we),
        .waddr({block_q, block_idx}), .wdata(block_data), .re(walk_read), .raddr({q_q, walk_at}),
        .rdata(b));
    berth_fp_mem #(.WIDTH($bits(b_state)), .DEPTH(QPS << (LB+1))) m_state (.clk(clk), .we(state_we),
        .waddr({state_q, state_idx}), .wdata(state_data), .re(walk_read), .raddr({q_q, walk_at}),
        .rdata(b_state));
    berth_fp_mem #(.WIDTH($bits(fixed)), .DEPTH(QPS << LR), .OWN(1'b1)) m_fixed (.clk(clk), .we(fixed_we), .waddr({block_q, fixed_place}),
        .wdata(fixed_data), .re(op_q == ROWS), .raddr({q_q, lost[LR-1:0]}), .rdata(fixed));
    berth_fp_mem #(.WIDTH(LW), .DEPTH(QPS << WB), .OWN(1'b1)) m_log (.clk(clk), .we(log_we), .waddr({log_q, log_psn}),
        .wdata(log_new), .re(op_q == FIX), .raddr({q_q, fixed.psn[WB-1:0]}), .rdata(logged));

    // ---- the packet at hand ------------------------------------------------------------
    logic          fix_q;                // it was lost
    logic          over_q;               // and is acknowledged since
    logic          atomic_q;             // it is an atomic's
    logic          read_q;               // it is that, or a READ's
    logic          first_q, last_q, push_q, inline_q, ack_q, ends_q;   // ends_q: the last of its element
    logic [15:0]   elem_q;
    logic [5:0]    place_q;
    logic [31:0]   end_q_q, cut_left_q, placement_q;
    logic [12:0]   len_q, need_q;
    logic [23:0]   psn_q;
    logic [3:0]    parts_q;
    logic [LB:0]   walk_q;               // block at hand
    logic [20:0]   off_q;
    logic [LB:0]   block_first_q;
    logic [LC-1:0] ctx_q;
    logic [31:0]   ctx_off_q;
    logic [12:0]   part_first_q;
    logic [20:0]   part_at_q;            // where it begins in its first block

    // Parts go into a FIFO as they are found and count when the packet is committed.
    logic [$bits(part_data)-1:0] parts [0:63];
    logic [6:0]    put_q, committed_q, get_q;
    logic          parts_room, part_put;
    assign parts_room = put_q - get_q <= 7'd48;
    assign part_valid = committed_q != get_q;
    assign part_data  = parts[get_q[5:0]];

    // New packet, in LOOK
    logic [31:0]   rest;
    logic [12:0]   mtu, len;
    logic [23:0]   flight, room;
    logic          fresh, real_piece, windowed, half, may_ask, may_begin;
    logic          allowed_q;            // a message that uses a receive may begin
    logic [23:0]   ahead;                // messages that may, if it is not negative
    assign ahead      = lsn.messages - begun;
    assign may_begin  = mid || !p.receives || allowed_q;
    assign rest       = mid ? left : p.len;
    assign mtu        = 13'd1 << log2_mtu;
    assign len        = rest < {19'd0, mtu} ? rest[12:0] : mtu;
    assign flight     = next - una;
    assign room       = {16'd0, window} - flight;
    assign windowed   = flight < {16'd0, window};
    assign may_ask    = !(p.remote && waits) && (!p.read || reads - answered < most_reads);
    assign hold       = waits && !selective;
    assign fresh      = pieces != cut;
    assign real_piece = p.kind == berth_row_pkg::PIECE_DATA;
    assign half       = {1'b0, since} + 9'd1 >= (window[7:1] == 7'd0 ? 9'd1 : {2'd0, window[7:1]});

    // Blocks, in WALK
    logic [20:0]   here;
    logic [12:0]   take;
    logic          usable, whole, last_part;
    assign here      = b.len - off_q;
    assign take      = here < {8'd0, need_q} ? here[12:0] : need_q;
    assign usable    = (fix_q || walk_q != blocks) && (b_state.held || (over_q && b_state.failed));
    assign whole     = over_q || here == {8'd0, take};       // the block is used up
    assign last_part = over_q ? parts_q + 4'd1 == fixed.parts : take == need_q;
    assign part_put  = op_q == WALK && usable && !over_q && !read_q;
    assign walk_read = op_q == ROWS || op_q == FIX || op_q == WALK || op_q == BACK;
    assign walk_at   = op_q == ROWS || op_q == BACK ? {1'b0, blk[LB-1:0]}
                     : op_q == FIX  ? {1'b1, lost[LR-1:0], 3'd0}
                     : fix_q        ? {1'b1, walk_q[LB-1:0] + LB'(1)}
                     :                {1'b0, walk_q[LB-1:0] + LB'(1)};

    berth_card_pkg::packet_t made;
    logic          fits_small, place_ok, wants, commit, told;  // told: the acknowledging engine is told of it
    // Headers up to the BTH, extended ones of a WRITE with immediate, placement header, padding.
    localparam int unsigned HEADERS = 54 + 20 + 4 + 3;
    assign fits_small     = read_q || {19'd0, len_q} <= SMALL - HEADERS;
    assign told      = fix_q || (asks && !read_q);
    assign place_ok  = fits_small ? small_valid : big_valid;
    assign wants     = op_q == COMMIT && (!told || sent_again_ready);
    assign commit    = wants && place_ok && !kept_q;
    assign small_pop = commit && fits_small;
    assign big_pop   = commit && !fits_small;
    assign small_wanted = wants && fits_small;
    assign big_wanted   = wants && !fits_small;

    assign made_valid    = commit;
    assign made_q        = q_q;
    assign made.read      = read_q;
    assign made.tag       = fits_small ? small_tag : big_tag;
    assign made.psn       = psn_q;
    assign made.flags     = {ack_q, push_q, last_q, first_q};
    assign made.imm       = posted - end_q_q;
    assign made.placement = placement_q;
    assign made.len       = len_q;
    assign made.inlined   = inline_q;
    assign made.over      = over_q;
    assign made.elem      = 7'(elem_q[LE-1:0]);
    assign made.place     = place_q;
    assign made.parts     = read_q ? 4'd0 : parts_q;
    assign made.block     = block_first_q;
    assign made.first     = part_first_q;

    // A packet that is not taken at once is kept.
    logic          kept_q;
    logic [QW-1:0] kept_of_q;
    berth_card_pkg::packet_t kept_packet_q;
    assign pkt_valid = kept_q || commit;
    assign pkt_q     = kept_q ? kept_of_q : q_q;
    assign pkt       = kept_q ? kept_packet_q : made;
    always_ff @(posedge clk) begin
        kept_q <= pkt_valid && !pkt_ready;
        if (commit) {kept_of_q, kept_packet_q} <= {q_q, made};
        if (rst) kept_q <= 1'b0;
    end

    assign sent_again_valid = commit && told && !over_q;
    assign sent_again_q     = q_q;
    assign sent_again_data.asks  = !fix_q;
    assign sent_again_data.psn   = fix_q ? psn_q : asks_from;
    assign sent_again_data.next  = next;

    assign log_we    = commit && !fix_q;
    assign log_q     = q_q;
    assign log_psn   = psn_q[WB-1:0];
    assign log_piece = pieces;
    assign log_where.none = parts_q == 4'd0 || read_q;
    assign log_where.ctx  = 8'(ctx_q);
    assign log_where.at   = ctx_off_q;
    assign log_where.len  = len_q;
    assign log_asked.read  = read_q;
    assign log_asked.atomic = atomic_q;
    assign log_asked.len   = len_q;
    assign log_asked.parts = parts_q;
    assign log_asked.block = block_first_q[LB-1:0];
    assign log_asked.at    = part_at_q;
    assign log_asked.first = part_first_q;
    assign log_new   = {read_q, ack_q, push_q, last_q, first_q, inline_q, elem_q[LE-1:0], place_q, end_q_q, placement_q, len_q};

    // A piece without a packet.
    logic local_end;
    assign local_end = op_q == LOOK && fresh
                       && (p.kind == berth_row_pkg::PIECE_EMPTY || p.kind == berth_row_pkg::PIECE_TOO_LONG);
    logic broken;
    assign broken    = op_q == LOOK && fresh && p.kind == berth_row_pkg::PIECE_BAD;
    assign end_we    = local_end || (commit && !fix_q && ends_q);
    assign end_q     = q_q;
    assign end_idx   = local_end ? p.elem[LE-1:0] : elem_q[LE-1:0];
    assign end_data.status = local_end && p.kind == berth_row_pkg::PIECE_TOO_LONG ? berth_regs_pkg::WC_TOO_LONG[7:0]
                           : berth_regs_pkg::WC_OK[7:0];
    assign end_data.psn    = local_end ? next - 24'd1 : psn_q;

    // No block at the beginning: this many blocks are never out at once.
    assign want_we    = init_ack || (op_q == WALK && !fix_q && walk_q == blocks && parts_q != 4'd0);
    assign want_q     = q_q;
    assign want_data.block = init_ack ? '1 : walk_q;
    assign want_data.first = init_ack ? '0 : blk;

    logic failed;
    assign failed = op_q == WALK && !usable && (fix_q || walk_q != blocks) && b_state.failed;
    always_comb begin
        row_we  = commit || local_end || broken || failed;
        row_new = {next + 24'd1, pieces + {7'd0, last_q}, begun + {23'd0, first_q || read_q}, !last_q, cut_left_q,
                   last_q ? 24'd0 : index + 24'd1, walk_q, off_q, lost, reads + {7'd0, read_q}, ack_q ? 8'd0 : since + 8'd1, elems + {15'd0, ends_q}, 2'b00};
        if (fix_q)
            row_new = {next, pieces, begun, mid, left, index, blk, blk_off, lost + (LR+1)'(1), reads, since, elems, gone, stop};
        if (local_end)
            row_new = {next, pieces + 8'd1, begun, mid, left, index, blk, blk_off, lost, reads, since, elems + 16'd1, gone, stop};
        if (broken || failed)
            row_new = {next, pieces, begun, mid, left, index, blk, blk_off, lost, reads, since, elems, gone || fix_q, 1'b1};
        if (init_ack) begin
            row_we  = 1'b1;
            row_new = {psn_cfg, 8'd0, 24'd0, 1'b0, 32'd0, 24'd0, (LB+1)'(0), 21'd0, (LR+1)'(0), 8'd0, 8'd0, 16'd0, 2'b00};
        end
    end
    assign sent_data.apart = local_end;
    assign working    = op_q != IDLE;
    assign working_q  = q_q;
    assign sent_we = row_we;
    assign sent_q  = q_q;
    assign {sent_data.next, sent_data.pieces} = row_new[RW-1 -: 32];
    assign sent_data.elems = row_new[17:2];
    assign asks_new            = !init_ack && (log_we ? read_q : asks);
    assign sent_data.asks      = asks_new;
    assign sent_data.asks_from = log_we ? asks_from_q : asks_from;
    assign more       = commit || local_end;

    // An initialised QP's row is read first, for its PSN.
    logic init_read_q;
    assign init_ack = op_q == IDLE && init_valid && init_read_q;
    assign work_pop = (op_q == IDLE || (commit && !init_valid && work_q != q_q)) && !init_any && parts_room;
    assign read     = op_q == IDLE || commit;

    always_ff @(posedge clk) begin
        send_fault_valid    <= fix_q ? failed && !gone : (failed || broken) && !stop;
        send_fault_again    <= fix_q;
        send_fault_q        <= q_q;
        send_fault_memory   <= failed;
        send_fault_status   <= failed ? b_state.status : berth_regs_pkg::WC_BAD_WQE[7:0];
        ev_packet   <= commit && !over_q;
        ev_again    <= commit && fix_q && !over_q;
        init_read_q <= op_q == IDLE && init_valid && !init_read_q;
        if (part_put) begin
            parts[put_q[5:0]] <= {take, b.va + {43'd0, off_q}};
            put_q <= put_q + 7'd1;
        end
        if (part_valid && part_ready) get_q <= get_q + 7'd1;
        case (op_q)
            IDLE: if (init_valid) q_q <= init_q;
            ROWS: begin
                walk_q        <= blk;
                off_q         <= blk_off;
                block_first_q <= {1'b0, blk[LB-1:0]};
                allowed_q     <= !lsn.bounded || !(ahead[23] || ahead == 24'd0) || next == una;
                // a prepared packet goes even then, so that its memory is given back
                op_q <= still[q_q] ? IDLE : lost != losts ? FIX : fresh && !hold && !stop && !halt ? LOOK : IDLE;
            end
            LOOK: begin
                psn_q       <= next;
                asks_from_q <= !asks ? next : next - asks_from < flight ? asks_from : una;
                first_q     <= !mid;
                last_q      <= rest <= {19'd0, mtu};
                push_q      <= p.push && p.ends && rest <= {19'd0, mtu};
                ends_q      <= p.ends && rest <= {19'd0, mtu};
                inline_q    <= p.inlined;
                read_q      <= p.read;
                atomic_q    <= p.atomic;
                elem_q      <= p.elem;
                place_q     <= p.place;
                end_q_q     <= p.sum;
                cut_left_q  <= rest - {19'd0, len};
                placement_q <= {index, p.credit};
                len_q       <= len;
                need_q      <= len;
                ack_q       <= rest <= {19'd0, mtu} || room == 24'd1 || half;
                if (!real_piece || !windowed || !may_ask || !may_begin) op_q <= IDLE;
                else op_q <= p.inlined || len == 13'd0 ? COMMIT : WALK;
            end
            FIX: begin
                psn_q   <= fixed.psn;
                parts_q <= fixed.parts;
                fix_q   <= 1'b1;
                over_q  <= fixed.psn - una >= flight;
                op_q    <= LOGGED;
            end
            LOGGED: begin
                {read_q, ack_q, push_q, last_q, first_q, inline_q, elem_q[LE-1:0], place_q, end_q_q, placement_q, len_q} <= logged;
                ack_q         <= 1'b1;      // everything sent again asks for an acknowledgement
                need_q        <= logged[12:0];
                walk_q        <= {1'b1, lost[LR-1:0], 3'd0};
                block_first_q <= {1'b1, lost[LR-1:0], 3'd0};
                off_q         <= 21'd0;
                parts_q       <= 4'd0;
                op_q          <= parts_q == 4'd0 ? COMMIT : WALK;
                if (over_q) {read_q, inline_q, len_q, need_q} <= '0;
            end
            // The page of a lost packet is on its way; meanwhile new packets go on.
            BACK: begin
                walk_q        <= blk;
                off_q         <= blk_off;
                block_first_q <= {1'b0, blk[LB-1:0]};
                parts_q       <= 4'd0;
                part_first_q  <= 13'd0;
                {fix_q, over_q} <= 2'b00;
                op_q          <= LOOK;
            end
            WALK: begin
                if (!usable) begin
                    put_q <= committed_q;
                    op_q  <= fix_q && !failed && fresh && !hold && !stop && !halt ? BACK : IDLE;
                end else begin
                    parts_q <= parts_q + 4'd1;
                    need_q  <= need_q - take;
                    if (parts_q == 4'd0) begin
                        part_first_q <= take;
                        part_at_q    <= off_q;
                        ctx_q        <= b.ctx[LC-1:0];
                        ctx_off_q    <= b.at + {11'd0, off_q};
                    end
                    walk_q <= whole ? walk_q + (LB+1)'(1) : walk_q;
                    off_q  <= whole ? 21'd0 : off_q + {8'd0, take};
                    if (last_part) op_q <= COMMIT;
                end
            end
            default: if (commit) begin
                committed_q <= put_q;
                op_q        <= IDLE;
            end
        endcase
        if (op_q == IDLE || commit) begin
            parts_q      <= 4'd0;
            part_first_q <= 13'd0;
            {fix_q, over_q} <= 2'b00;
            if (work_pop && work_valid && !init_valid) begin
                q_q  <= work_q;
                op_q <= ROWS;
            end
        end
        if (rst) begin
            op_q        <= IDLE;
            put_q       <= 7'd0;
            committed_q <= 7'd0;
            get_q       <= 7'd0;
        end
    end

    logic unused;
    assign unused = &{1'b0, work_busy, covered_data, message, elem_q, cfg.data, cfg_mode, b};
endmodule
