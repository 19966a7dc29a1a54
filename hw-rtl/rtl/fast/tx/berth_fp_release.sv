// SPDX-License-Identifier: Apache-2.0 OR MIT
// Blocks go back when all their bytes have left, or have come as the answer to a READ (VC-3), in whatever order packets leave. Every byte of a block leaves
// once, because resent packets have blocks of their own. So counting bytes is enough.
//
// When a QP has ended, blocks that are held and will not be sent go back by a command (`drain`). When memory is
// withdrawn (`revoke`), blocks that lie in it go back too, and are asked for again behind that: while none of the QP's
// packets is under way, held blocks are still to be sent. Both look at all 2^LB blocks and as many parts of lost
// packets.
//
// The next packet's row is read while that of the one before it is stored, unless it is of the same QP.
module berth_fp_release #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LB  = 5,
    parameter int unsigned LR  = 2
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic                         cfg_we,
    input  logic [$clog2(QPS)-1:0]       cfg_q,
    input  berth_card_pkg::row_write_t   cfg,
    input  logic                         init_valid,
    input  logic [$clog2(QPS)-1:0]       init_q,
    output logic                         init_ack,

    input  logic                         block_we,
    input  logic [$clog2(QPS)-1:0]       block_q,
    input  logic [LB:0]                  block_idx,
    input  berth_card_pkg::block_t       block_data,

    input  logic                         state_we,
    input  logic [$clog2(QPS)-1:0]       state_q,
    input  logic [LB:0]                  state_idx,
    input  berth_card_pkg::block_state_t state_data,
    input  logic                         covered_we,    // blocks asked for so far
    input  logic [$clog2(QPS)-1:0]       covered_q,
    input  berth_card_pkg::covered_t     covered_data,
    input  logic                         drain_valid,
    output logic                         drain_ready,   // done
    input  logic [$clog2(QPS)-1:0]       drain_q,

    input  logic                         revoke_valid,  // QP revoke_q: nothing of it is under way, it sends nothing
    output logic                         revoke_ready,
    output logic                         revoke_done,   // of QP mark_q
    input  logic [$clog2(QPS)-1:0]       revoke_q,
    input  logic [63:0]                  range_start,
    input  logic [63:0]                  range_end,     // behind it
    // the state of a block changes (see berth_fp_block)
    output logic                         mark_valid,
    input  logic                         mark_ready,
    output berth_card_pkg::mark_t        mark_data,
    output logic [$clog2(QPS)-1:0]       mark_q,
    // blocks of QP count_q given back since it was initialised
    input  logic [$clog2(QPS)-1:0]       count_q,
    output logic [LB+1:0]                count_given,

    // a packet has left
    input  logic                         left_valid,
    output logic                         left_ready,
    input  logic [$clog2(QPS)-1:0]       left_q,
    input  berth_card_pkg::left_t        left,          // of its first block the upper bit: it had been lost

    output logic                         rel_valid,
    input  logic                         rel_ready,
    output berth_card_pkg::range_ask_t   rel,

    output logic                         freed_we,      // blocks given back so far
    output logic [$clog2(QPS)-1:0]       freed_q,
    output logic [LB:0]                  freed_blocks,
    output logic [31:0]                  freed_bytes,   // and of bytes
    output logic                         place_valid,   // a place for a lost packet is free
    input  logic                         place_ready,
    output logic [$clog2(QPS)-1:0]       place_q,
    output logic [LR-1:0]                place_idx,
    output logic                         ev_release
);
    localparam int unsigned QW   = $clog2(QPS);
    localparam int unsigned RING = 1 << LB;

    typedef enum logic [3:0] {IDLE, ROWS, COUNT, GIVE, STEP, PLACE, INIT, FIND, LOOK, DROP, MARK} op_t;
    typedef enum logic [1:0] {LEFT, DRAIN, REVOKE} kind_t;
    op_t             op_q;
    kind_t           kind_q;
    logic [QW-1:0]   q_q, q;
    logic            second_q;             // a revocation's second look: what is to be asked for again
    logic [LB:0]     blk_q;
    logic [LB:0]     at_q;                 // block looked at; upper bit: part of a lost packet
    logic [12:0]     first_q, rest_q;
    logic [3:0]      parts_q;

    logic [LB:0]     freed, freed_new_q, blocks;
    berth_card_pkg::block_state_t b_state;
    logic [RING-1:0] gone, gone_q;          // blocks given back out of order
    logic [7:0]      asid;
    logic            row_we;
    logic [31:0]     back, back_q;          // bytes given back
    berth_fp_mem #(.WIDTH(LB+33+RING), .DEPTH(QPS), .OWN(1'b1)) m_row (.clk(clk), .we(row_we), .waddr(q_q),
        .wdata(op_q == INIT ? '0 : {freed_upto, gone_left, back_q}), .re(ready), .raddr(q),
        .rdata({freed, gone, back}));
    berth_row_pkg::send_queue_t cfg_queue;
    assign cfg_queue = cfg.data;
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_asid (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QUEUE), .waddr(cfg_q),
        .wdata(cfg_queue.asid), .re(ready), .raddr(q), .rdata(asid));
    berth_fp_mem #(.WIDTH(LB+1), .DEPTH(QPS)) m_covered (.clk(clk), .we(covered_we), .waddr(covered_q),
        .wdata(covered_data.blocks), .re(ready), .raddr(q), .rdata(blocks));
    assign q = left_valid ? left_q : drain_valid ? drain_q : revoke_q;

    logic            b_read, count_we;
    logic [LB:0]     b_at;
    logic [20:0]     count, count_new;
    berth_card_pkg::block_t b;
    logic [LB-1:0]   count_idx;
    berth_fp_mem #(.WIDTH($bits(b)), .DEPTH(QPS << (LB+1)), .OWN(1'b1)) m_block (.clk(clk), .we(block_we),
        .waddr({block_q, block_idx}), .wdata(block_data), .re(b_read), .raddr({q_q, b_at}),
        .rdata(b));
    berth_fp_mem #(.WIDTH($bits(b_state)), .DEPTH(QPS << (LB+1))) m_state (.clk(clk), .we(state_we),
        .waddr({state_q, state_idx}), .wdata(state_data), .re(b_read), .raddr({q_q, b_at}),
        .rdata(b_state));
    // bytes of each block that have left
    berth_fp_mem #(.WIDTH(21), .DEPTH(QPS << LB), .OWN(1'b1)) m_count (.clk(clk), .we(count_we), .waddr({q_q, count_idx}),
        .wdata(count_new), .re(b_read), .raddr({q_q, b_at[LB-1:0]}), .rdata(count));

    logic [20:0]     bytes, sum;
    logic            all, again;
    assign again     = blk_q[LB];
    assign bytes     = first_q != 13'd0 ? {8'd0, first_q} : b.len < {8'd0, rest_q} ? b.len : {8'd0, rest_q};
    assign sum       = again ? b.len : count + bytes;
    assign all       = sum == b.len;
    assign b_read    = op_q == ROWS || op_q == STEP || op_q == FIND;
    assign b_at      = op_q == FIND ? at_q : op_q == ROWS ? {again, blk_q[LB-1:0]} : {again, blk_q[LB-1:0] + LB'(1)};
    assign count_we  = (op_q == COUNT && !again) || op_q == INIT || (drop_gone && op_q == DROP);
    assign count_idx = op_q == DROP ? at_q[LB-1:0] : blk_q[LB-1:0];
    assign count_new = all || op_q == INIT || op_q == DROP ? 21'd0 : sum;

    // ---- a look at all blocks --------------------------------------------------------
    logic            lost, live, overlaps, drop, drop_gone, last;
    logic [LB-1:0]   behind;               // of the oldest block
    logic [LB:0]     out;                  // blocks that are asked for or held
    assign lost      = at_q[LB];
    assign behind    = at_q[LB-1:0] - freed_new_q[LB-1:0];
    assign out       = blocks - freed_new_q;
    assign live      = lost || ({1'b0, behind} < out && !gone_q[at_q[LB-1:0]]);
    assign overlaps  = b.va < range_end && b.va + {43'd0, b.len} > range_start;
    assign drop      = live && b_state.held && (kind_q == DRAIN || (!second_q && overlaps));
    assign drop_gone = kind_q == DRAIN && !lost;
    assign last      = at_q == '1;

    // States: parts of lost packets that are given back, all of them at the begin; blocks to be asked for again.
    assign mark_valid = op_q == MARK || op_q == INIT;
    assign mark_data.again = op_q == MARK && kind_q == REVOKE && second_q;
    assign mark_q     = q_q;
    assign mark_data.idx   = op_q == INIT ? {1'b1, blk_q[LB-1:0]} : kind_q == LEFT ? blk_q : at_q;
    assign mark_data.state = op_q == INIT || kind_q != REVOKE ? berth_row_pkg::BLOCK_BACK
                           : second_q ? berth_row_pkg::BLOCK_ASKED : berth_row_pkg::BLOCK_AGAIN;

    logic [LB+1:0]   given [0:QPS-1];
    assign count_given = given[count_q];
    always_ff @(posedge clk)
        if (op_q == INIT || (rel_valid && rel_ready)) given[q_q] <= op_q == INIT ? '0 : given[q_q] + 1'b1;

    assign rel_valid = op_q == GIVE || op_q == DROP;
    assign rel.give_back = 1'b1;
    assign {rel.quiet, rel.probe} = '0;
    assign rel.write = b.write;
    assign rel.asid  = asid;
    assign rel.va    = b.va;
    assign rel.len   = 31'(b.len);
    assign rel.tag   = '0;

    // The oldest block and those behind it, as far as they are given back: one a clock.
    logic            done, slide, slides_on, ready;
    logic [LB:0]     freed_upto;
    logic [RING-1:0] gone_left;
    assign slide       = gone_q[freed_new_q[LB-1:0]];
    assign slides_on   = slide && gone_q[freed_new_q[LB-1:0] + LB'(1)];
    assign freed_upto  = freed_new_q + {{LB{1'b0}}, slide};
    assign gone_left   = gone_q & ~(RING'(slide) << freed_new_q[LB-1:0]);
    assign done        = op_q == STEP && parts_q == 4'd0 && !(slides_on && !again);
    assign ready       = op_q == IDLE || (done && !again);
    assign row_we      = (done && !again) || op_q == INIT;
    assign freed_we    = row_we;
    assign freed_q     = q_q;
    assign freed_blocks = op_q == INIT ? '0 : freed_upto;
    assign freed_bytes  = op_q == INIT ? '0 : back_q;
    assign left_ready  = (op_q == IDLE || (ready && left_q != q_q)) && !init_valid;
    assign drain_ready  = done && kind_q == DRAIN;
    assign revoke_ready = op_q == IDLE && !init_valid && !left_valid && !drain_valid;
    assign revoke_done  = done && kind_q == REVOKE;
    assign place_valid = op_q == PLACE;
    assign place_q     = q_q;
    assign place_idx   = blk_q[LB-1 -: LR];
    assign init_ack    = op_q == INIT && blk_q[LB-1:0] == '1 && mark_ready;

    always_ff @(posedge clk) begin
        ev_release <= rel_valid && rel_ready;
        case (op_q)
            IDLE: begin
                q_q      <= q;
                second_q <= 1'b0;
                at_q     <= '0;
                if (init_valid) begin
                    q_q   <= init_q;
                    blk_q <= '0;
                    op_q  <= INIT;
                end else if (drain_valid || revoke_valid) begin
                    kind_q  <= drain_valid ? DRAIN : REVOKE;
                    parts_q <= 4'd0;
                    blk_q   <= '0;
                    op_q    <= ROWS;
                end
            end
            ROWS: begin
                freed_new_q <= freed;
                gone_q      <= gone;
                back_q      <= back;
                if (kind_q != LEFT) begin
                    op_q <= FIND;
                end else begin
                    op_q <= parts_q == 4'd0 ? (again ? PLACE : IDLE) : COUNT;
                end
            end
            COUNT: begin
                rest_q  <= rest_q - bytes[12:0];
                first_q <= 13'd0;
                parts_q <= parts_q - 4'd1;
                if (all && !again) gone_q[blk_q[LB-1:0]] <= 1'b1;
                if (all && !again) back_q <= back_q + {11'd0, b.len};
                // A block that could not be had belongs to no packet.
                op_q    <= !all ? STEP : b_state.failed ? MARK : GIVE;
            end
            GIVE: if (rel_ready) op_q <= again ? MARK : STEP;
            STEP: if (parts_q != 4'd0) begin
                blk_q[LB-1:0] <= blk_q[LB-1:0] + LB'(1);
                op_q          <= COUNT;
            end else if (again) begin
                op_q <= PLACE;
            end else begin
                gone_q      <= gone_left;
                freed_new_q <= freed_upto;
                if (done) op_q <= IDLE;
            end
            PLACE: if (place_ready) op_q <= IDLE;
            // One that is still asked for stays: a drain comes again.
            FIND: op_q <= LOOK;
            LOOK: begin
                if (drop_gone && live && b_state.failed) gone_q[at_q[LB-1:0]] <= 1'b1;
                if (drop) begin
                    op_q <= DROP;
                end else if ((kind_q == DRAIN && lost && b_state.failed)
                             || (second_q && live && !b_state.held && !b_state.failed
                                 && b_state.status == berth_row_pkg::BLOCK_AGAIN)) begin
                    op_q <= MARK;
                end else begin
                    at_q     <= at_q + (LB+1)'(1);
                    second_q <= second_q || last;
                    op_q     <= !last || (kind_q == REVOKE && !second_q) ? FIND : STEP;
                end
            end
            DROP: if (rel_ready) begin
                if (drop_gone) gone_q[at_q[LB-1:0]] <= 1'b1;
                if (drop_gone) begin
                    at_q <= at_q + (LB+1)'(1);
                    op_q <= FIND;
                end else begin
                    op_q <= MARK;
                end
            end
            MARK: if (mark_ready) begin
                if (kind_q == LEFT) begin
                    op_q <= STEP;
                end else begin
                    at_q     <= at_q + (LB+1)'(1);
                    second_q <= second_q || last;
                    op_q     <= !last || (kind_q == REVOKE && !second_q) ? FIND : STEP;
                end
            end
            default: begin  // INIT: counts and states, one by one
                if (mark_ready) blk_q <= blk_q + (LB+1)'(1);
                if (init_ack) op_q <= IDLE;
            end
        endcase
        if (left_valid && left_ready) begin
            q_q     <= left_q;
            kind_q  <= LEFT;
            blk_q   <= left.block;
            first_q <= left.first;
            rest_q  <= left.len;
            parts_q <= left.parts;
            op_q    <= ROWS;
        end
        if (rst) op_q <= IDLE;
    end

    logic unused;
    assign unused = &{1'b0, cfg.data, cfg_queue, b, covered_data};
endmodule
