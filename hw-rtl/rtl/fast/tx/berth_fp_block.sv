// SPDX-License-Identifier: Apache-2.0 OR MIT
// Blocks (VC-2, VC-4, PC-2): memory of the pieces that are cut is acquired block by block, ahead of the packets,
// and memory of lost packets packet by packet. A block lies in one piece, one context, and ends where a
// multiple of the block size after its page begins.
//
// Blocks that a READ's answer is written to are acquired for writing. They are held until the answer is there, so a packet of a
// READ that goes again needs no memory of its own.
//
// Blocks of one QP are a ring of 2^LB in the order of the stream. Lost packets have 2^LR places of 8 parts each.
// One block asked for is one operation of three cycles; the question waits in a register until it is taken. Answers go into the
// state of the block at once; one that the host has answered is acquired again.
//
// State of a block: {failed, held, why it failed}, else {0, 0, BLOCK_*}: asked for, given back, to be asked for again.
// The release engine writes it when it gives memory back.
//
// At most 2^LB blocks, and no new one when as many bytes as `ahead` whole blocks have are held or asked for; or, when the
// host has been asked, as the wire carries while it works on a request, and two whole blocks. That time is measured, with
// one request of the card at a time; the least of late counts (a measurement adds a 2048th to it).
//
// Row: `SEND_QUEUE`, `SEND_BLOCKS`.
module berth_fp_block #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LC  = 8,
    parameter int unsigned LP  = 4,
    parameter int unsigned LB  = 5,     // log2 of blocks per QP
    parameter int unsigned LR  = 2,     // log2 of lost packets in work per QP; LR + 3 = LB
    parameter int unsigned WB  = 8,     // log2 of the packets that the log holds: more than the window
    parameter int unsigned DATA_W = 64  // bits of a beat of the wire
) (
    input  logic                          clk,
    input  logic                          rst,
    input  logic [15:0]                   now,          // units of 64 clocks
    input  logic                          cfg_we,
    input  logic [$clog2(QPS)-1:0]        cfg_q,
    input  berth_card_pkg::row_write_t    cfg,
    // some engine's row is not initialised yet: no work begins, because it would use the old content
    input  logic                          init_any,
    input  logic                          init_valid,
    input  logic [$clog2(QPS)-1:0]        init_q,
    output logic                          init_ack,

    input  logic                          ctx_we,
    input  logic [$clog2(QPS)-1:0]        ctx_q,
    input  logic [LC-1:0]                 ctx_idx,
    input  berth_card_pkg::range_t        ctx_data,
    input  logic                          piece_we,
    input  logic [$clog2(QPS)-1:0]        piece_q,
    input  logic [LP-1:0]                 piece_idx,
    input  berth_card_pkg::piece_t        piece_data,
    input  logic [LC:0]                   piece_ctxs,
    input  logic                          cut_we,
    input  logic [$clog2(QPS)-1:0]        cut_q,
    input  logic [7:0]                    cut_pieces,
    input  logic                          freed_we,     // blocks given back so far
    input  logic [$clog2(QPS)-1:0]        freed_q,
    input  logic [LB:0]                   freed_blocks,
    input  logic [31:0]                   freed_bytes,  // and of bytes
    // a packet that lies in several blocks needs this one, however many there are; its first one
    input  logic                          want_we,
    input  logic [$clog2(QPS)-1:0]        want_q,
    input  berth_card_pkg::want_t         want_data,
    // packet log: where a packet's bytes lie
    input  logic                          log_we,
    input  logic [$clog2(QPS)-1:0]        log_q,
    input  logic [WB-1:0]                 log_psn,
    input  berth_card_pkg::where_t        log_where,

    // a block's state changes: of memory that was given back; it may be asked for once more
    input  logic                          mark_valid,
    output logic                          mark_ready,
    input  berth_card_pkg::mark_t         mark_data,
    input  logic [$clog2(QPS)-1:0]        mark_q,
    // no new block while memory is being released, and none when the QP has ended; `wake`: it continues
    input  logic [QPS-1:0]                still,
    input  logic                          wake_we,
    input  logic [$clog2(QPS)-1:0]        wake_q,
    // blocks of QP count_q, those of lost packets included: asked for; held since the QP was initialised
    input  logic [$clog2(QPS)-1:0]        count_q,
    output logic [LB+1:0]                 count_asked,
    output logic [LB+1:0]                 count_held,

    // a lost packet to be prepared
    input  logic                          lost_valid,
    output logic                          lost_ready,
    input  logic [$clog2(QPS)-1:0]        lost_q,
    input  berth_card_pkg::lost_t         lost_data,

    // translation
    output logic                          acq_valid,
    input  logic                          acq_ready,
    output berth_card_pkg::range_ask_t    acq,
    input  logic                          xr_valid,
    output logic                          xr_ready,
    input  berth_card_pkg::range_answer_t xr,

    // a block
    output logic                          block_we,
    output logic [$clog2(QPS)-1:0]        block_q,
    output logic [LB:0]                   block_idx,    // upper bit: of a lost packet
    output berth_card_pkg::block_t        block_data,
    // its state
    output logic                          state_we,
    output logic [$clog2(QPS)-1:0]        state_q,
    output logic [LB:0]                   state_idx,
    output berth_card_pkg::block_state_t  state_data,
    output logic                          held_set,     // a block of state_q is not waited for any more
    output logic                          fixed_we,     // a lost packet is prepared
    output logic [LR-1:0]                 fixed_place,  // of QP block_q
    output berth_card_pkg::fixed_t        fixed_data,
    output logic                          covered_we,   // {pieces, blocks, lost packets} so far
    output logic [$clog2(QPS)-1:0]        covered_q,
    output berth_card_pkg::covered_t      covered_data,
    output logic                          ev_block,     // counter: a block was asked for
    output logic                          ev_stray      // counter: the host answers what it was not asked
);
    localparam int unsigned QW = $clog2(QPS);
    localparam logic [1:0]  HIT   = berth_regs_pkg::XLT_HIT[1:0];
    localparam logic [1:0]  MISS  = berth_regs_pkg::XLT_MISS[1:0];
    localparam logic [1:0]  READY = berth_regs_pkg::XLT_READY[1:0];
    localparam int unsigned RW = 1 + 32 + 8 + 32 + LC + 32 + LB + 1 + LR + 1;

    typedef enum logic [2:0] {IDLE, ROWS, LOOK, PART, AGAIN} op_t;
    op_t           op_q;
    logic          ask_q;                // a block waits to be asked for
    logic          fix_q;                // the operation is a lost packet
    logic [QW-1:0] q_q;
    logic          work_valid, work_pop, work_busy, again;
    logic [QW-1:0] work_q;

    // ---- rows ------------------------------------------------------------------------
    logic [7:0]    pieces, cut, asid;
    logic          writes;               // the piece that is taken up is a READ's
    logic [31:0]   left, offset, bytes, back;     // bytes: of all blocks so far; back: of those given back
    logic [LC-1:0] ctx;
    logic [LB:0]   blocks, freed, wanted, want_from;
    logic [LR:0]   losts;
    logic [4:0]    log2_block;
    logic [5:0]    ahead;
    logic          read, row_we;
    logic [QW-1:0] addr;
    logic [RW-1:0] row_new;

    berth_fp_ready #(.QPS(QPS), .SETS(5)) work (.clk(clk), .rst(rst),
        .set({again, cut_we, freed_we, want_we, wake_we}), .set_q({q_q, cut_q, freed_q, want_q, wake_q}),
        .valid(work_valid), .q(work_q), .pop(work_pop), .busy(work_busy));
    berth_fp_mem #(.WIDTH(RW), .DEPTH(QPS), .OWN(1'b1)) m_row (.clk(clk), .we(row_we), .waddr(q_q), .wdata(row_new),
        .re(read), .raddr(addr), .rdata({writes, bytes, pieces, left, ctx, offset, blocks, losts}));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_cut (.clk(clk), .we(cut_we), .waddr(cut_q), .wdata(cut_pieces),
        .re(read), .raddr(addr), .rdata(cut));
    berth_fp_mem #(.WIDTH(LB+33), .DEPTH(QPS)) m_freed (.clk(clk), .we(freed_we), .waddr(freed_q),
        .wdata({freed_blocks, freed_bytes}), .re(read), .raddr(addr), .rdata({freed, back}));
    berth_fp_mem #(.WIDTH(2*LB+2), .DEPTH(QPS)) m_want (.clk(clk), .we(want_we), .waddr(want_q),
        .wdata({want_data.block, want_data.first}), .re(read), .raddr(addr), .rdata({wanted, want_from}));
    berth_row_pkg::send_queue_t cfg_queue;
    assign cfg_queue = cfg.data;
    berth_row_pkg::send_blocks_t cfg_blocks;
    assign cfg_blocks = cfg.data;
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_asid (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QUEUE), .waddr(cfg_q),
        .wdata(cfg_queue.asid), .re(read), .raddr(addr), .rdata(asid));
    berth_fp_mem #(.WIDTH(11), .DEPTH(QPS)) m_size (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_BLOCKS), .waddr(cfg_q),
        .wdata({cfg_blocks.ahead, cfg_blocks.log2_block}), .re(read), .raddr(addr), .rdata({ahead, log2_block}));

    // ---- pieces, contexts, the log, blocks ---------------------------------------------
    berth_card_pkg::piece_t piece;
    logic [LC:0]   ctxs;
    logic [31:0]   ctx_len;
    logic [63:0]   ctx_va;
    logic          ctx_read;
    logic [LC-1:0] ctx_at, fix_ctx_q;
    berth_card_pkg::where_t logged;
    logic [31:0]   fix_off_q;
    logic [12:0]   fix_left_q;
    logic [2:0]    part_q;
    logic [23:0]   psn_q;
    logic [LR-1:0] place_q;
    berth_fp_mem #(.WIDTH(LC + 1 + $bits(piece)), .DEPTH(QPS << LP), .OWN(1'b1)) m_piece (.clk(clk), .we(piece_we), .waddr({piece_q, piece_idx}),
        .wdata({piece_ctxs, piece_data}), .re(op_q == ROWS), .raddr({q_q, pieces[LP-1:0]}), .rdata({ctxs, piece}));
    berth_fp_mem #(.WIDTH(96), .DEPTH(QPS << LC), .OWN(1'b1)) m_ctx (.clk(clk), .we(ctx_we), .waddr({ctx_q, ctx_idx}),
        .wdata(ctx_data), .re(ctx_read), .raddr({q_q, ctx_at}), .rdata({ctx_va, ctx_len}));
    berth_fp_mem #(.WIDTH($bits(log_where)), .DEPTH(QPS << WB), .OWN(1'b1)) m_log (.clk(clk), .we(log_we), .waddr({log_q, log_psn}),
        .wdata(log_where), .re(op_q == ROWS), .raddr({q_q, psn_q[WB-1:0]}),
        .rdata(logged));

    // ---- answers --------------------------------------------------------------------- The host's answer counts once,
    // for a block that it was asked for: the state is read first, and the next answer waits until it is changed.
    logic          x_valid_q, x_done, x_take, x_due;
    logic [15:0]   x_tag_q, s_tag;
    logic [1:0]    x_kind_q;
    logic [7:0]    x_status_q;
    // The memory of a QP that has not been initialised since the reset is meaningless; initialising it clears what is
    // due.
    logic [QPS-1:0] started_q;
    logic          x_asked, due_clear;
    logic [LB:0]   clear_q;
    // Both an answer and a new block are written into the states: a block that is looked at goes first, unless it must wait.
    assign xr_ready  = !x_valid_q && !due_clear && !(op_q == LOOK && !ask_q);
    assign x_take    = xr_valid && xr_ready && xr.kind != HIT;
    assign x_done    = !(retry_put && !retry_room);
    assign x_asked   = x_due && started_q[x_tag_q[LB+1 +: QW]];
    assign due_clear = op_q == IDLE && init_valid && q_q == init_q && !x_valid_q;
    assign ev_stray  = x_valid_q && x_kind_q == READY && !x_asked;
    always_ff @(posedge clk) begin
        if (x_done) x_valid_q <= 1'b0;
        if (x_take) {x_valid_q, x_tag_q, x_kind_q, x_status_q} <= {1'b1, xr.tag, xr.kind, xr.status};
        if (due_clear && clear_q != '1) clear_q <= clear_q + 1'b1;
        if (init_ack) begin
            clear_q           <= '0;
            started_q[init_q] <= 1'b1;
        end
        if (rst) begin
            x_valid_q <= 1'b0;
            clear_q   <= '0;
            started_q <= '0;
        end
    end
    berth_fp_mem #(.WIDTH(1), .DEPTH(QPS << (LB+1)), .OWN(1'b1)) m_due (.clk(clk), .we(due_clear || (x_valid_q && x_done)),
        .waddr(due_clear ? {q_q, clear_q} : x_tag_q[LB+QW:0]), .wdata(!due_clear && x_kind_q == MISS), .re(x_take),
        .raddr(xr.tag[LB+QW:0]), .rdata(x_due));
    logic          retry_valid, retry_ready, retry_put, retry_room;
    logic [15:0]   retry_tag;
    logic          good;
    assign good      = !x_valid_q || x_status_q == 8'd0;
    assign retry_put = x_valid_q && x_kind_q == READY && x_asked && good;
    logic mark_put;                      // a block is asked for again, by a mark
    assign mark_put = mark_valid && mark_ready && mark_data.again;
    berth_fifo #(.WIDTH(16), .DEPTH(256)) retries (.clk(clk), .rst(rst),
        .wr_valid(retry_put || mark_put), .wr_ready(retry_room),
        .wr_data(retry_put ? x_tag_q : {(15-LB)'(mark_q), mark_data.idx}),
        .rd_valid(retry_valid), .rd_ready(retry_ready), .rd_data(retry_tag));
    logic          settle;               // an answer settles a block
    assign settle    = x_valid_q ? x_kind_q == READY && x_asked && !good : xr_valid && xr_ready && xr.kind == HIT;
    assign s_tag     = x_valid_q ? x_tag_q : xr.tag;

    // ---- how long the host works on a request ----------------------------------------------
    localparam int unsigned UNIT_W = $clog2(DATA_W) + 3;   // log2 of the wire's bytes in a unit of time
    logic          timing_q;             // one is measured ...
    logic [15:0]   timed_q, since_q;     // ... this one, asked for then
    logic [26:0]   serve_q;              // in 2048ths of a unit; 0: none yet
    logic [15:0]   since;
    logic [26:0]   aged;
    logic [31:0]   carried_q;            // a sixteenth less than what the wire carries in that time
    logic          timed;
    assign since   = now - since_q;
    assign aged    = &serve_q[26:20] ? serve_q : serve_q + 27'(serve_q[26:11]);
    assign timed   = timing_q && (settle || (x_valid_q && x_done)) && s_tag == timed_q;
    always_ff @(posedge clk) begin
        if (timed && (settle || x_kind_q != MISS)) timing_q <= 1'b0;
        carried_q <= 32'((36'(serve_q[26:11]) * 36'd15) << UNIT_W >> 4);
        if (timed && retry_put) serve_q <= serve_q == '0 || {since, 11'd0} < aged ? {since, 11'd0} : aged;
        if (ask_q && acq_ready && !timing_q) begin
            timing_q <= 1'b1;
            timed_q  <= acq.tag;
            since_q  <= now;
        end
        // Its QP may have ended.
        if (timing_q && since[15]) timing_q <= 1'b0;
        if (rst) begin
            timing_q <= 1'b0;
            serve_q  <= '0;
        end
    end

    // ---- one block -------------------------------------------------------------------
    logic          need, fits;
    logic [31:0]   p_len, in_ctx, want, len;
    logic          p_none;               // a piece without memory
    logic [63:0]   va;
    logic [20:0]   reach;                // bytes up to the end of the block
    logic [31:0]   at;
    logic          fixing;               // LOOK is at a part of a lost packet
    logic [31:0]   most, soon;
    assign fixing   = fix_q;
    assign need     = left == 32'd0;
    // Blocks for a packet exceed that bound only when no earlier packet will give anything back.
    assign most     = {26'd0, ahead} << log2_block;
    assign soon     = carried_q + (32'd2 << log2_block);
    assign fits     = (bytes - back < (serve_q == '0 || most < soon ? most : soon) || (blocks == wanted && freed == want_from))
                      && blocks - freed < (LB+1)'(1 << LB);
    assign p_len    = piece.len;
    assign p_none   = piece.kind != berth_row_pkg::PIECE_DATA || piece.inlined || p_len == 32'd0;
    assign at       = fixing ? fix_off_q : offset;
    assign in_ctx   = ctx_len - at;
    assign want     = fixing ? {19'd0, fix_left_q} : need ? p_len : left;
    assign va       = ctx_va + {32'd0, at};
    assign reach    = (21'd1 << log2_block) - {9'd0, va[11:0]};
    always_comb begin
        len = in_ctx < want ? in_ctx : want;
        if (!fixing && len > {11'd0, reach}) len = {11'd0, reach};
    end

    logic due, put;                      // LOOK is to write a block; and does
    logic still_q;                       // of its QP
    assign due        = fixing ? fix_left_q != 13'd0 : !(need && p_none) && fits && !still_q;
    assign put        = op_q == LOOK && due && !settle && !ask_q;
    assign block_we   = put;
    assign block_q    = q_q;
    assign block_idx  = fixing ? {1'b1, place_q, part_q} : {1'b0, blocks[LB-1:0]};
    assign block_data.write = !fixing && (need ? piece.read : writes);
    assign block_data.ctx = 8'(fixing ? fix_ctx_q : ctx);
    assign block_data.at  = at;
    assign block_data.len = len[20:0];
    assign block_data.va  = va;
    assign mark_ready = !settle && !put && !fixed_we && !(mark_data.again && (retry_put || !retry_room));
    assign state_we   = settle || put || (mark_valid && mark_ready);
    assign state_q    = settle ? s_tag[LB+1 +: QW] : put || fixed_we ? q_q : mark_q;
    assign state_idx  = settle ? s_tag[LB:0] : put ? block_idx : mark_data.idx;
    assign state_data.failed = settle && !good;
    assign state_data.held   = settle && good;
    assign state_data.status = settle ? (x_valid_q ? x_status_q : 8'd0) : put ? berth_row_pkg::BLOCK_ASKED : mark_data.state;
    assign held_set   = settle || fixed_we;

    // Counts; a QP has nothing under way when it is initialised.
    logic [LB+1:0] asked [0:QPS-1];
    logic [LB+1:0] held  [0:QPS-1];
    logic [QW-1:0] count_at;
    logic          count_we;
    assign count_at    = init_ack ? init_q : state_q;
    assign count_we    = settle || put || mark_put || init_ack;
    assign count_asked = asked[count_q];
    assign count_held  = held[count_q];
    always_ff @(posedge clk) if (count_we) begin
        asked[count_at] <= init_ack ? '0 : settle ? asked[count_at] - 1'b1 : asked[count_at] + 1'b1;
        held[count_at]  <= init_ack ? '0 : held[count_at] + (LB+2)'(settle && good);
    end

    berth_card_pkg::block_t again_block;
    berth_fp_mem #(.WIDTH($bits(block_data)), .DEPTH(QPS << (LB+1)), .OWN(1'b1)) m_block (.clk(clk), .we(block_we),
        .waddr({block_q, block_idx}), .wdata(block_data), .re(op_q == IDLE),
        .raddr({retry_tag[LB+1 +: QW], retry_tag[LB:0]}), .rdata(again_block));

    // ---- operations ------------------------------------------------------------------
    logic          ctx_ends, covers;
    assign ctx_ends = at + len == ctx_len;
    assign covers   = op_q == LOOK && !fixing && need && (p_none || put);   // a piece is taken up
    assign ctx_read = op_q == ROWS || op_q == PART;
    assign ctx_at   = op_q == PART ? fix_ctx_q : ctx;

    logic fix_done;                      // a lost packet is prepared
    assign fix_done    = op_q == PART && fix_left_q == 13'd0 && !settle;
    assign fixed_we    = fix_done;
    assign fixed_place = place_q;
    assign fixed_data.parts = {1'b0, part_q};
    assign fixed_data.psn   = psn_q;
    always_comb begin
        row_we  = put && !fixing;
        row_new = {block_data.write, bytes + len, pieces + {7'd0, need}, want - len, ctx_ends ? ctx + LC'(1) : ctx, ctx_ends ? 32'd0 : at + len,
                   blocks + (LB+1)'(1), losts};
        if (op_q == LOOK && !fixing && need && p_none) begin
            row_we  = 1'b1;
            // an element that is not sent has contexts too
            row_new = {1'b0, bytes, pieces + 8'd1, 32'd0, piece.kind == berth_row_pkg::PIECE_DATA ? ctx : ctxs[LC-1:0],
                       piece.kind == berth_row_pkg::PIECE_DATA ? offset : 32'd0, blocks, losts};
        end
        if (fix_done) begin
            row_we  = 1'b1;
            row_new = {writes, bytes, pieces, left, ctx, offset, blocks, losts + (LR+1)'(1)};
        end
        if (init_ack) begin
            row_we  = 1'b1;
            row_new = '0;
        end
    end
    assign covered_we     = row_we;
    assign covered_q      = q_q;
    assign {covered_data.pieces, covered_data.blocks, covered_data.lost} =
        {row_new[RW-34 -: 8], row_new[LB+LR+1 -: LB+1], row_new[LR:0]};
    assign again = put && !fixing || (covers && p_none);

    assign init_ack    = due_clear && clear_q == '1 && !settle && !mark_valid;
    assign retry_ready = op_q == IDLE && !(init_valid && !x_valid_q);   // an answer may wait for room among the retries
    assign lost_ready  = op_q == IDLE && !init_valid && !retry_valid;
    assign work_pop    = lost_ready && !lost_valid && !init_any;
    assign read        = op_q == IDLE;
    assign addr        = retry_valid ? retry_tag[LB+1 +: QW] : lost_valid ? lost_q : work_q;
    // The question of the last block that was written, before one that is asked again.
    logic [63:0] va_q;
    logic [20:0] len_q;
    logic [LB:0] idx_q, again_idx_q;
    logic [QW-1:0] ask_of_q;
    logic [7:0]  asid_q;
    logic        write_q;
    assign acq_valid    = ask_q || op_q == AGAIN;
    assign acq.asid     = ask_q ? asid_q : asid;
    assign acq.va       = ask_q ? va_q : again_block.va;
    assign acq.len     = 31'(ask_q ? len_q : again_block.len);
    assign acq.give_back = 1'b0;
    assign {acq.quiet, acq.probe} = '0;
    assign acq.write   = ask_q ? write_q : again_block.write;
    assign acq.tag      = ask_q ? {(15-LB)'(ask_of_q), idx_q} : {(15-LB)'(q_q), again_idx_q};

    always_ff @(posedge clk) begin
        ev_block <= put;
        still_q  <= still[q_q];
        if (acq_ready) ask_q <= 1'b0;
        if (put) begin
            ask_q    <= 1'b1;
            ask_of_q <= q_q;
            asid_q   <= asid;
            va_q     <= va;
            len_q    <= len[20:0];
            write_q  <= block_data.write;
            idx_q    <= block_idx;
        end
        case (op_q)
            IDLE: begin
                fix_q  <= 1'b0;
                part_q <= 3'd0;
                if (init_valid && !x_valid_q) begin
                    q_q <= init_q;
                end else if (retry_valid) begin
                    q_q   <= retry_tag[LB+1 +: QW];
                    again_idx_q <= retry_tag[LB:0];
                    op_q  <= AGAIN;
                end else if (lost_ready && lost_valid) begin
                    q_q     <= lost_q;
                    psn_q   <= lost_data.psn;
                    place_q <= lost_data.place;
                    fix_q   <= 1'b1;
                    op_q    <= ROWS;
                end else if (work_pop && work_valid) begin
                    q_q  <= work_q;
                    op_q <= ROWS;
                end
            end
            ROWS: op_q <= fix_q ? LOOK : still[q_q] ? IDLE : fits && (!need || pieces != cut) ? LOOK
                        : need && pieces != cut ? LOOK : IDLE;
            LOOK: if (fix_q && fix_left_q == 13'd0 && part_q == 3'd0) begin
                // the log is there: the first part follows
                fix_ctx_q  <= logged.ctx[LC-1:0];
                fix_off_q  <= logged.at;
                fix_left_q <= logged.none ? 13'd0 : logged.len;
                op_q       <= PART;
            end else if (put || (!due && !settle)) begin
                if (put && fixing) begin
                    fix_left_q <= fix_left_q - len[12:0];
                    fix_ctx_q  <= fix_ctx_q + LC'(1);
                    fix_off_q  <= 32'd0;
                    part_q     <= part_q + 3'd1;
                end
                op_q <= put && fixing ? PART : IDLE;
            end
            PART: op_q <= fix_left_q != 13'd0 ? LOOK : settle ? PART : IDLE;
            default: if (acq_ready && !ask_q) op_q <= IDLE;   // AGAIN
        endcase
        if (rst) begin
            op_q       <= IDLE;
            ask_q      <= 1'b0;
            fix_left_q <= 13'd0;
        end
    end

    logic unused;
    assign unused = &{1'b0, ctxs[LC], cfg.data, cfg_queue, cfg_blocks, retry_tag, work_busy, piece, again_block, psn_q};
endmodule
