// SPDX-License-Identifier: Apache-2.0 OR MIT
// Credit reader and cut: lists that came are queued (CR-2, CR-11, decision 6), elements become pieces,
// one per credit (CR-15; message mode CR-17, decision 9; zero length decision 10). A WRITE is one piece, and takes a credit
// only with an immediate, as that uses a receive. A READ or atomic is one piece, and takes none.
//
// A peer without credit lists gives no credits: each element is one piece, and SEND waits for the peer to have a receive.
//
// Up to 2^LP pieces are cut ahead of the packets. They are the *cover* (PC-2): the block engine asks for
// memory of pieces only. One list, or one piece of one QP, is one operation of three cycles; a list's sizes are stored beside
// the operations that follow, and its first credits are used while the last ones come.
//
// Under selective repeat a WRITE is not cut before all WRITEs of its QP that it overlaps are complete, because what is sent
// again of an older one might be placed last (`rc::Requester`). To see that, four elements before it are looked at in a clock;
// but none where each of them begins behind those before it, as it mostly is.
//
// An element with a fence is not begun before all READs and atomics before it are complete. A NOP is a piece without packet. So is a DELAY,
// some time after all pieces before it have left; its turn comes by a look at one QP in each clock. So is a BIND (QP-4), when
// all before it have left and firmware has written the key.
//
// Unused credits can be given up, newest first (decision 19): the list whose proof was waited for is forgotten with them.
//
// Row: `SEND_MODE`.
module berth_fp_cut #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LE  = 6,
    parameter int unsigned LC  = 8,
    parameter int unsigned LP  = 4      // log2 of pieces that are cut and not sent
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic [31:0]                  now,               // in units of 64 clocks
    input  logic                         cfg_we,
    input  logic [$clog2(QPS)-1:0]       cfg_q,
    input  berth_card_pkg::row_write_t   cfg,
    // some engine's row is not initialised yet: no work begins, because it would use the old content
    input  logic                         init_any,
    input  logic                         init_valid,
    input  logic [$clog2(QPS)-1:0]       init_q,
    output logic                         init_ack,

    // elements
    input  logic                         elem_we,
    input  logic [$clog2(QPS)-1:0]       elem_q,
    input  logic [LE-1:0]                elem_idx,
    input  berth_card_pkg::element_t     element,
    input  logic                         parsed_we,
    input  logic [$clog2(QPS)-1:0]       parsed_q,
    input  logic [15:0]                  parsed_elems,

    // lists that came; of one that is not taken, only the first beat
    input  logic                         list_valid,
    output logic                         list_ready,
    output logic                         list_over,         // with a size: none is wanted, and what is left of the list need not come
    input  logic [$clog2(QPS)-1:0]       list_q,
    input  berth_card_pkg::list_beat_t   list_beat,

    // the `give_n` newest credits are given up, or all that are left; the first of them is the next to be expected
    input  logic                         give_valid,
    output logic                         give_ready,
    input  logic [$clog2(QPS)-1:0]       give_q,
    input  logic [23:0]                  give_n,
    output logic [31:0]                  give_first,        // kept until the next time
    // unused credits of a QP, when they change
    output logic                         credits_we,
    output logic [$clog2(QPS)-1:0]       credits_q,
    output logic [7:0]                   credits_n,

    // elements that are complete
    input  logic                         done_we,
    input  logic [$clog2(QPS)-1:0]       done_q,
    input  logic [15:0]                  done_elems,
    // pieces that the block engine and the send engine are done with
    input  logic                         covered_we,
    input  logic [$clog2(QPS)-1:0]       covered_q,
    input  berth_card_pkg::covered_t     covered_data,
    input  logic                         sent_we,
    input  logic [$clog2(QPS)-1:0]       sent_q,
    input  berth_card_pkg::sent_so_far_t sent_data,

    // a piece, and the contexts up to the end of its element
    output logic                         piece_we,
    output logic [$clog2(QPS)-1:0]       piece_q,
    output logic [LP-1:0]                piece_idx,
    output berth_card_pkg::piece_t       piece_data,
    output logic [LC:0]                  piece_ctxs,
    output logic                         cut_we,            // pieces so far
    output logic [$clog2(QPS)-1:0]       cut_q,
    output logic [7:0]                   cut_pieces,

    // a BIND has its turn; what it says, of QP `cfg_q`; it is done
    output logic                         bind_valid,
    output logic [$clog2(QPS)-1:0]       bind_q,
    output berth_card_pkg::bind_t        bind_data,
    input  logic                         bound_we,          // of QP `cfg_q`

    output logic                         cut_fault_valid,   // a list breaks the protocol
    output logic [$clog2(QPS)-1:0]       cut_fault_q,
    output logic [7:0]                   cut_fault_status,  // LIST_*
    output logic                         ev_list,           // counters: a list was taken, all of its sizes are here
    output logic                         ev_repeat,         // a list was there
    output logic                         ev_refused,        // a list was refused, for a gap before it or because it breaks the protocol
    output logic                         ev_credit,         // a credit was taken
    output logic                         ev_held            // a piece waits for a credit (CR-3)
);
    localparam int unsigned QW    = $clog2(QPS);
    localparam int unsigned ROOM  = berth_regs_pkg::CREDITS_PER_QP;
    localparam int unsigned CW    = $clog2(ROOM);
    localparam int unsigned RW    = 1 + 32 + 32 + 32 + 16 + 1 + 32 + 6 + 8 + 32 + 1 + 1 + 16;

    // ---- rows ------------------------------------------------------------------------
    logic          open, mid;            // a list without proof; an element has been begun
    logic [31:0]   list_first, next_in, next_out, rest, total;
    logic [15:0]   elem, parsed;
    logic [5:0]    place;
    logic [7:0]    pieces, covered, sent;
    logic          delaying, answers;    // a DELAY is begun; a READ may be open ...
    logic [15:0]   answers_upto;         // ... and this element is behind the last one
    logic [15:0]   complete;
    logic          message, selective, foreign;
    logic          read, row_we;
    logic [QW-1:0] addr, q_q;
    logic [RW-1:0] row_new;

    typedef enum logic [1:0] {IDLE, ROWS, CUT, SCAN} state_t;
    state_t        state_q;
    logic          is_list_q, give_q_;   // the operation is a list, or that credits are given up
    logic          fill, filled;         // sizes of a list are still to come; one that may be waited for is there
    logic [QW-1:0] fill_q;               // of this QP
    logic          work_valid, work_pop, work_busy, again;
    logic [QW-1:0] work_q;

    berth_fp_ready #(.QPS(QPS), .SETS(7)) work (.clk(clk), .rst(rst),
        .set({passed, done_we, filled, again, parsed_we, covered_we, sent_we}),
        .set_q({looked_q, done_q, fill_q, q_q, parsed_q, covered_q, sent_q}),
        .valid(work_valid), .q(work_q), .pop(work_pop), .busy(work_busy));
    berth_fp_mem #(.WIDTH(RW), .DEPTH(QPS), .OWN(1'b1)) m_row (.clk(clk), .we(row_we), .waddr(q_q), .wdata(row_new),
        .re(read), .raddr(addr),
        .rdata({open, list_first, next_in, next_out, elem, mid, rest, place, pieces, total, delaying, answers, answers_upto}));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_parsed (.clk(clk), .we(parsed_we), .waddr(parsed_q),
        .wdata(parsed_elems), .re(read), .raddr(addr), .rdata(parsed));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_covered (.clk(clk), .we(covered_we), .waddr(covered_q),
        .wdata(covered_data.pieces), .re(read), .raddr(addr), .rdata(covered));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_sent (.clk(clk), .we(sent_we), .waddr(sent_q),
        .wdata(sent_data.pieces), .re(read), .raddr(addr), .rdata(sent));
    berth_row_pkg::send_mode_t cfg_mode;
    assign cfg_mode = cfg.data;
    berth_fp_mem #(.WIDTH(3), .DEPTH(QPS)) m_mode (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_MODE), .waddr(cfg_q),
        .wdata({cfg_mode.message, cfg_mode.selective, cfg_mode.foreign}), .re(read), .raddr(addr), .rdata({message, selective, foreign}));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_complete (.clk(clk), .we(done_we), .waddr(done_q),
        .wdata(done_elems), .re(read), .raddr(addr), .rdata(complete));

    logic [64:0]   element_sum;
    logic [63:0]   element_end;          // behind the last byte
    assign element_sum = {1'b0, element.va} + 65'(element.len);
    assign element_end = element_sum[64] ? '1 : element_sum[63:0];
    logic [31:0]   e_len, size;
    logic          e_bad, e_push, e_inline, e_write, e_read, e_atomic, e_imm, e_fence, e_nothing, e_delay, e_bind, size_we;
    logic [63:0]   e_va, e_end;          // e_end, e_len: of a BIND bytes and key
    logic [3:0]    e_access;
    logic [LC:0]   e_ctxs;
    logic [31:0]   put_q;                // number of the next credit of the list at hand
    berth_fp_mem #(.WIDTH(176+LC), .DEPTH(QPS << LE), .OWN(1'b1)) m_elem (.clk(clk), .we(elem_we), .waddr({elem_q, elem_idx}),
        .wdata({element.ctxs[LC:0], element.bad, element.push, element.inlined, element.write, element.read, element.atomic, element.has_imm,
                 element.fence, element.nothing, element.delay, element.bind_key, element.one_shot, element.rights, element.va,
                 element.bind_key ? {element.span, element.key} : {element_end, element.len}}),
        .re(state_q == ROWS), .raddr({q_q, elem[LE-1:0]}),
        .rdata({e_ctxs, e_bad, e_push, e_inline, e_write, e_read, e_atomic, e_imm, e_fence, e_nothing, e_delay, e_bind, e_access, e_va, e_end, e_len}));
    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS*ROOM), .OWN(1'b1)) m_size (.clk(clk), .we(size_we), .waddr({fill_q, put_q[CW-1:0]}),
        .wdata(list_beat.size), .re(state_q == ROWS), .raddr({q_q, next_out[CW-1:0]}), .rdata(size));

    // ---- lists -----------------------------------------------------------------------
    function automatic logic after(input logic [31:0] a, input logic [31:0] b);
        logic [31:0] d;
        d = a - b;
        after = !d[31] && d != 32'd0;
    endfunction
    logic [31:0] list_end, skip, count, kept;
    logic [7:0]  answer;
    logic        fresh, refused;         // the list is taken; it is counted as refused
    logic [31:0] first_q;
    logic [6:0]  n_q, left_q, skip_q;    // credits of the list; sizes that are to come, and of them those that are known
    assign list_end = first_q + {25'd0, n_q};
    assign skip     = next_in - first_q;
    assign count    = next_in - next_out;
    assign kept     = {8'd0, give_n} < count ? next_in - {8'd0, give_n} : next_out;
    assign answer   = n_q == 7'd0 || {25'd0, n_q} > berth_regs_pkg::MAX_LIST     ? berth_regs_pkg::LIST_BAD[7:0]
                    : !after(list_end, next_in)                                  ? berth_regs_pkg::LIST_REPEAT[7:0]
                    : after(first_q, next_in)                                    ? berth_regs_pkg::LIST_GAP[7:0]
                    : open && !after(next_out, list_first)                       ? berth_regs_pkg::LIST_EARLY[7:0]
                    : {25'd0, n_q} - skip > 32'(ROOM) - count                    ? berth_regs_pkg::LIST_OVERFLOW[7:0]
                    : berth_regs_pkg::LIST_OK[7:0];
    assign fresh    = answer == berth_regs_pkg::LIST_OK[7:0];
    assign refused  = !fresh && answer != berth_regs_pkg::LIST_REPEAT[7:0];
    logic first_size_q, init_go, give_go, list_go, size_go;
    logic bytes_q, empty_q, empty;       // the list's QP is in stream mode; a credit of the list has no bytes
    // Operations that change the numbers of credits wait for all sizes. A stray size is dropped. The sizes of a list
    // that is not taken are not waited for, or a peer with such lists would delay the lists of others.
    assign fill      = left_q != 7'd0;
    assign init_go   = init_valid && !fill;
    assign give_go   = give_valid && !fill && !init_valid;
    assign list_go   = list_valid && list_beat.first_beat && !fill && !init_valid && !give_valid;
    assign list_ready = list_beat.first_beat ? state_q == IDLE && list_go : !(state_q == ROWS && is_list_q);
    assign size_go   = list_valid && !list_beat.first_beat && fill;
    assign size_we   = size_go && skip_q == 7'd0;
    assign list_over = !fill;
    // In stream mode a credit of no bytes would make packets without end (CR-1). The list breaks the protocol; what is
    // before the credit is used, and nothing is cut from there on.
    assign empty     = size_we && bytes_q && list_beat.size == 32'd0;
    assign filled    = size_go && (left_q == 7'd1 || (size_we && first_size_q));

    // ---- cut -------------------------------------------------------------------------
    logic        have, room, credit, cut, ends;
    logic        alone;                  // it needs no credit
    logic [31:0] left, len;
    logic [1:0]  kind;
    logic clear;                         // no WRITE before it is in its way
    logic [15:0] open_for;               // elements that the last READ is ahead of what is complete
    logic needs;                         // it takes a credit
    logic one;                           // it is one piece, whatever the credit's size
    logic remote;                        // it goes to memory of the peer that is named, or asks for it
    assign remote = e_write || e_read;
    assign one    = remote || foreign;
    assign open_for = answers_upto - complete;
    assign needs  = !one || (e_imm && !foreign);
    assign have   = mid || elem != parsed;
    assign room   = pieces - covered < 8'(1 << LP) && pieces - sent < 8'(1 << LP);
    // The size of the next credit is not there yet. It is not read either while it is written.
    logic late_q;
    assign credit = next_in != next_out && !late_q;
    assign left   = mid ? rest : e_len;
    always_comb begin
        kind = berth_row_pkg::PIECE_DATA;
        if (e_bad) kind = berth_row_pkg::PIECE_BAD;
        else if (e_nothing || (!message && left == 32'd0)) kind = berth_row_pkg::PIECE_EMPTY;
        else if (message && !one && credit && left > size) kind = berth_row_pkg::PIECE_TOO_LONG;
    end
    assign len  = kind != berth_row_pkg::PIECE_DATA ? 32'd0 : one || left < size ? left : size;
    assign ends = kind != berth_row_pkg::PIECE_DATA || one || left <= size;
    assign alone = kind == berth_row_pkg::PIECE_BAD || kind == berth_row_pkg::PIECE_EMPTY || !needs;
    assign cut  = state_q == CUT && have && room && clear && !waits && ((credit && (message || size != 32'd0)) || alone);

    // ---- fences, DELAYs and BINDs -------------------------------------------------------
    logic           behind_q;            // a READ before it is open
    logic           holds;               // it is a DELAY or a BIND
    logic           waits, starts;       // it waits, or is one of these that is not over; one begins
    logic [QPS-1:0] delayed_q;           // its DELAY or BIND is not over
    logic [QPS-1:0] binding_q;           // it is a BIND that firmware is not done with
    logic [QW-1:0]  look_q, looked_q;    // the QP that is looked at now, and in the clock before
    logic           stale_q;             // what was read of that is not what was written
    logic [31:0]    until_at, remains;
    logic           passed;              // the DELAY of `looked_q` is over
    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS), .OWN(1'b1)) m_until (.clk(clk), .we(starts), .waddr(q_q), .wdata(e_bind ? now : now + e_va[31:0]),
        .re(1'b1), .raddr(look_q), .rdata(until_at));
    assign remains = until_at - now;
    assign passed  = delayed_q[looked_q] && !stale_q && !binding_q[looked_q] && (remains[31] || remains == 32'd0);
    assign holds   = e_delay || e_bind;
    assign waits   = !e_bad && ((e_fence && !mid && behind_q) || (holds && (!delaying || delayed_q[q_q])));
    assign starts  = state_q == CUT && have && room && clear && !e_bad && holds && !delaying && pieces == sent && !(e_fence && behind_q);
    logic [$bits(bind_data)-2:0] bind_read;
    berth_fp_mem #(.WIDTH($bits(bind_data)-1), .DEPTH(QPS)) m_bind (.clk(clk), .we(starts), .waddr(q_q), .wdata({e_access, e_va, e_end, e_len}),
        .re(1'b1), .raddr(cfg_q), .rdata(bind_read));
    assign bind_data = {binding_q[cfg_q], bind_read};
    always_ff @(posedge clk) begin
        look_q   <= look_q + QW'(1);
        looked_q <= look_q;
        stale_q  <= starts && q_q == look_q;
        if (passed) delayed_q[looked_q] <= 1'b0;
        if (bound_we) binding_q[cfg_q] <= 1'b0;
        if (starts) delayed_q[q_q] <= 1'b1;
        if (starts) binding_q[q_q] <= e_bind;
        if (init_ack) delayed_q[init_q] <= 1'b0;
        if (init_ack) binding_q[init_q] <= 1'b0;
        bind_valid <= starts && e_bind;
        bind_q     <= q_q;
        if (rst) begin
            look_q    <= '0;
            delayed_q <= '0;
            binding_q <= '0;
            bind_valid <= 1'b0;
        end
    end

    // ---- WRITEs before a WRITE ---------------------------------------------------------
    localparam int unsigned LANES = 4;
    logic [3:0]    hits;
    logic          clear_q;              // all before it that are not complete have been looked at
    logic [15:0]   scan_q, scan_left_q;  // element to look at next, and how many
    logic [LE-3:0] scan_at;              // row of them
    logic          scan_last;
    logic [LE:0]   e_run;                // elements before it that are clear of it
    assign clear     = !e_write || !selective || scan_left_q <= 16'(e_run) || clear_q;
    assign scan_at   = state_q == SCAN ? scan_q[LE-1:2] + 1'b1 : complete[LE-1:2];
    assign scan_last = scan_left_q <= 16'(LANES) - 16'(scan_q[1:0]);
    for (genvar i = 0; i < LANES; i++) begin : g_lane
        logic        write;
        logic [63:0] from, upto;
        logic [15:0] ahead;              // of the element to look at
        berth_fp_mem #(.WIDTH(129), .DEPTH((QPS << LE) / LANES), .OWN(1'b1)) m_range (.clk(clk),
            .we(elem_we && elem_idx[1:0] == 2'(i)), .waddr({elem_q, elem_idx[LE-1:2]}),
            .wdata({element.write, element.va, element_end}), .re(state_q == CUT || state_q == SCAN),
            .raddr({q_q, scan_at}), .rdata({write, from, upto}));
        assign ahead   = 16'(i) - 16'(scan_q[1:0]);
        assign hits[i] = write && !ahead[15] && ahead < scan_left_q && from < e_end && upto > e_va;
    end

    // How many elements before each are clear of it without a look: those of which each WRITE begins where the ones before it end,
    // or behind that. It is stored in the clock after the element, and not read before.
    logic          came_q, came_write_q, forward_q, follows;
    logic [QW-1:0] came_of_q;
    logic [LE-1:0] came_idx_q;
    logic [63:0]   came_va_q, came_end_q;
    logic [LE+64:0] run_read, run_q, run_new;   // {elements, where the last WRITE of them ends}
    logic [LE:0]   run;
    logic [63:0]   run_end;
    assign {run, run_end} = forward_q ? run_q : run_read;
    assign follows = !came_write_q || came_va_q >= run_end;
    assign run_new = {!follows ? (LE+1)'(0) : run[LE] ? run : run + 1'b1, came_write_q ? came_end_q : run_end};
    berth_fp_mem #(.WIDTH(LE+65), .DEPTH(QPS), .OWN(1'b1)) m_run (.clk(clk), .we(came_q), .waddr(came_of_q),
        .wdata(run_new), .re(elem_we), .raddr(elem_q), .rdata(run_read));
    berth_fp_mem #(.WIDTH(LE+1), .DEPTH(QPS << LE), .OWN(1'b1)) m_follows (.clk(clk), .we(came_q), .waddr({came_of_q, came_idx_q}),
        .wdata(run_new[LE+64 -: LE+1]), .re(state_q == ROWS), .raddr({q_q, elem[LE-1:0]}), .rdata(e_run));
    always_ff @(posedge clk) begin
        came_q  <= elem_we && !rst;
        run_q   <= run_new;
        forward_q  <= came_q && came_of_q == elem_q;
        {came_of_q, came_idx_q, came_write_q, came_va_q, came_end_q} <= {elem_q, elem_idx, element.write, element.va, element_end};
    end

    assign piece_we   = cut;
    assign piece_q    = q_q;
    assign piece_idx  = pieces[LP-1:0];
    assign piece_ctxs = e_ctxs;
    assign piece_data.kind    = kind;
    assign piece_data.read    = e_read;
    assign piece_data.atomic  = e_atomic;
    assign piece_data.remote  = remote;
    assign piece_data.inlined = e_inline;
    assign piece_data.push    = e_push;
    assign piece_data.ends    = ends;
    assign piece_data.receives = !remote || e_imm;
    assign piece_data.place   = mid ? place : 6'd0;
    assign piece_data.elem    = elem;
    assign piece_data.credit  = one ? 8'd0 : next_out[7:0];
    assign piece_data.sum     = total + len;
    assign piece_data.len     = len;
    assign cut_we     = cut || init_ack;
    assign cut_q      = init_ack ? init_q : q_q;
    assign cut_pieces = init_ack ? 8'd0 : pieces + 8'd1;
    assign again      = cut;
    assign init_ack   = state_q == IDLE && init_go && q_q == init_q;

    always_comb begin
        row_we  = cut || starts;
        row_new = {open, list_first, next_in, next_out + {31'd0, kind == berth_row_pkg::PIECE_DATA && needs}, elem + {15'd0, ends},
                   !ends, left - len, (mid ? place : 6'd0) + len[5:0], pieces + 8'd1, total + len,
                   1'b0, e_read || behind_q, e_read ? elem + 16'd1 : answers_upto};
        if (starts)
            row_new = {open, list_first, next_in, next_out, elem, mid, rest, place, pieces, total, 1'b1, behind_q, answers_upto};
        if (state_q == ROWS && is_list_q) begin
            row_we  = fresh;
            row_new = {1'b1, first_q, list_end, next_out, elem, mid, rest, place, pieces, total, delaying, answers, answers_upto};
        end
        if (give_ready) begin
            row_we  = 1'b1;
            row_new = {1'b0, 32'd0, kept, next_out, elem, mid, rest, place, pieces, total, delaying, answers, answers_upto};
        end
        if (init_ack) begin
            row_we  = 1'b1;
            row_new = '0;
        end
    end
    assign give_ready = state_q == ROWS && give_q_;
    assign credits_we = row_we && !starts;
    assign credits_q  = q_q;
    assign credits_n  = row_new[RW-58 -: 8] - row_new[RW-90 -: 8];

    assign work_pop = state_q == IDLE && !init_any && !give_go && !list_go;
    assign read     = state_q == IDLE;
    assign addr     = give_go ? give_q : list_go ? list_q : work_q;

    always_ff @(posedge clk) begin
        cut_fault_valid   <= 1'b0;
        ev_list    <= 1'b0;
        ev_repeat  <= 1'b0;
        ev_refused <= 1'b0;
        ev_credit  <= size_we;
        ev_held    <= 1'b0;
        case (state_q)
            IDLE: begin
                first_q <= list_beat.first;
                n_q     <= list_beat.n;
                is_list_q <= 1'b0;
                give_q_ <= 1'b0;
                if (init_go) begin
                    q_q <= init_q;
                end else if (give_go) begin
                    q_q     <= give_q;
                    give_q_ <= 1'b1;
                    state_q <= ROWS;
                end else if (list_go) begin
                    q_q     <= list_q;
                    is_list_q <= 1'b1;
                    state_q <= ROWS;
                end else if (work_pop && work_valid) begin
                    q_q     <= work_q;
                    state_q <= ROWS;
                end
            end
            ROWS: begin
                clear_q   <= 1'b0;
                scan_q      <= complete;
                scan_left_q <= elem - complete;
                behind_q  <= answers && open_for != 16'd0 && !open_for[15];
                late_q    <= fill && fill_q == q_q && put_q == next_out;
                cut_fault_status <= answer;
                cut_fault_q      <= q_q;
                if (give_q_) begin
                    give_first <= kept;
                    state_q    <= IDLE;
                end else if (is_list_q) begin
                    // one with a gap before it comes again
                    cut_fault_valid   <= refused && answer != berth_regs_pkg::LIST_GAP[7:0];
                    ev_refused <= refused;
                    ev_repeat  <= answer == berth_regs_pkg::LIST_REPEAT[7:0];
                    state_q    <= IDLE;
                end else begin
                    state_q <= have && room ? CUT : IDLE;
                end
            end
            CUT: begin
                ev_held     <= have && room && clear && !waits && !cut && !late_q;
                state_q     <= have && room && !clear ? SCAN : IDLE;
            end
            default: begin  // SCAN
                scan_q      <= {scan_q[15:2] + 14'd1, 2'd0};
                scan_left_q <= scan_left_q - (16'(LANES) - 16'(scan_q[1:0]));
                clear_q     <= 1'b1;
                // one that waits is looked at again when elements are complete
                if (hits != '0) state_q <= IDLE;
                else if (scan_last) state_q <= CUT;
            end
        endcase
        if (state_q == ROWS && is_list_q) begin
            bytes_q      <= !message;
            empty_q      <= 1'b0;
            first_size_q <= 1'b1;
            fill_q       <= q_q;
            put_q        <= next_in;
            left_q       <= fresh ? n_q : 7'd0;
            skip_q       <= skip[6:0];
        end else if (size_go) begin
            left_q  <= left_q - 7'd1;
            empty_q <= empty_q || empty;
            if (left_q == 7'd1) begin
                {cut_fault_valid, cut_fault_q, cut_fault_status} <= {empty_q || empty, fill_q, berth_regs_pkg::LIST_BAD[7:0]};
                {ev_list, ev_refused} <= {!(empty_q || empty), empty_q || empty};
            end
            if (skip_q != 7'd0) skip_q <= skip_q - 7'd1;
            if (size_we) begin
                put_q        <= put_q + 32'd1;
                first_size_q <= 1'b0;
            end
        end
        if (rst) begin
            state_q <= IDLE;
            left_q  <= 7'd0;
        end
    end

    logic unused;
    assign unused = &{1'b0, cfg.data, cfg_mode, element, covered_data, sent_data, work_busy};
endmodule
