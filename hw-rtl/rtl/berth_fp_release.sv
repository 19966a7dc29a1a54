// SPDX-License-Identifier: Apache-2.0 OR MIT
// Blocks go back when all their bytes have left (VC-3), in whatever order packets leave. Every byte of a block
// leaves once: what is sent again has blocks of its own. So counting bytes is enough.
//
// When a QP has ended, blocks that are held and will not be sent go back by a command (`drain`).
module berth_fp_release #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LC  = 8,
    parameter int unsigned LB  = 5,
    parameter int unsigned LR  = 2
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic                     cfg_we,
    input  logic [$clog2(QPS)-1:0]   cfg_q,
    input  logic [5:0]               cfg_word,
    input  logic [31:0]              cfg_wdata,
    input  logic                     init_valid,
    input  logic [$clog2(QPS)-1:0]   init_q,
    output logic                     init_ack,

    input  logic                     block_we,
    input  logic [$clog2(QPS)-1:0]   block_q,
    input  logic [LB:0]              block_idx,
    input  logic [LC+116:0]          block_data,

    input  logic                     state_we,
    input  logic [$clog2(QPS)-1:0]   state_q,
    input  logic [LB:0]              state_idx,
    input  logic [9:0]               state_data,
    input  logic                     covered_we,   // blocks asked for so far
    input  logic [$clog2(QPS)-1:0]   covered_q,
    input  logic [LB:0]              covered_blocks,
    input  logic                     drain_valid,
    output logic                     drain_ready,  // done
    input  logic [$clog2(QPS)-1:0]   drain_q,

    // a packet has left
    input  logic                     left_valid,
    output logic                     left_ready,
    input  logic [$clog2(QPS)-1:0]   left_q,
    input  logic [LB:0]              left_block,   // its first block; upper bit: it had been lost
    input  logic [12:0]              left_first,   // bytes in that
    input  logic [12:0]              left_len,
    input  logic [3:0]               left_parts,

    output logic                     xa_valid,
    input  logic                     xa_ready,
    output logic [7:0]               xa_asid,
    output logic [63:0]              xa_va,
    output logic [20:0]              xa_len,

    output logic                     freed_we,     // blocks given back so far
    output logic [$clog2(QPS)-1:0]   freed_q,
    output logic [LB:0]              freed_blocks,
    output logic                     place_valid,  // a place for a lost packet is free
    input  logic                     place_ready,
    output logic [$clog2(QPS)-1:0]   place_q,
    output logic [LR-1:0]            place_idx,
    output logic                     ev_release
);
    localparam int unsigned QW   = $clog2(QPS);
    localparam int unsigned RING = 1 << LB;

    typedef enum logic [3:0] {IDLE, ROWS, COUNT, GIVE, STEP, PLACE, INIT, FIND, LOOK, DROP} op_t;
    op_t             op_q;
    logic [QW-1:0]   q_q, q;
    logic            drain_q_;             // the operation is a drain
    logic [LB:0]     blk_q;
    logic [LB:0]     at_q;
    logic [12:0]     first_q, rest_q;
    logic [3:0]      parts_q;

    logic [LB:0]     freed, freed_new_q, blocks;
    logic            b_failed, b_held;
    logic [7:0]      b_status;
    logic [RING-1:0] gone, gone_q;          // blocks given back out of order
    logic [7:0]      asid;
    logic            row_we;
    berth_fp_mem #(.WIDTH(LB+1+RING), .DEPTH(QPS)) m_row (.clk(clk), .we(row_we), .waddr(q_q),
        .wdata(op_q == INIT ? '0 : {freed_new_q, gone_q}), .re(op_q == IDLE), .raddr(q), .rdata({freed, gone}));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_asid (.clk(clk), .we(cfg_we && cfg_word == 6'd18), .waddr(cfg_q),
        .wdata(cfg_wdata[15:8]), .re(op_q == IDLE), .raddr(q), .rdata(asid));
    berth_fp_mem #(.WIDTH(LB+1), .DEPTH(QPS)) m_covered (.clk(clk), .we(covered_we), .waddr(covered_q),
        .wdata(covered_blocks), .re(op_q == IDLE), .raddr(q), .rdata(blocks));
    assign q = left_valid ? left_q : drain_q;

    logic            b_read, count_we;
    logic [LB:0]     b_at;
    logic [20:0]     b_len, count, count_new;
    logic [63:0]     b_va;
    logic [LC+31:0]  b_rest;
    logic [LB-1:0]   count_idx;
    berth_fp_mem #(.WIDTH(LC+117), .DEPTH(QPS << (LB+1))) m_block (.clk(clk), .we(block_we),
        .waddr({block_q, block_idx}), .wdata(block_data), .re(b_read), .raddr({q_q, b_at}),
        .rdata({b_rest, b_len, b_va}));
    berth_fp_mem #(.WIDTH(10), .DEPTH(QPS << (LB+1))) m_state (.clk(clk), .we(state_we),
        .waddr({state_q, state_idx}), .wdata(state_data), .re(b_read), .raddr({q_q, b_at}),
        .rdata({b_failed, b_held, b_status}));
    // bytes of each block that have left
    berth_fp_mem #(.WIDTH(21), .DEPTH(QPS << LB)) m_count (.clk(clk), .we(count_we), .waddr({q_q, count_idx}),
        .wdata(count_new), .re(b_read), .raddr({q_q, b_at[LB-1:0]}), .rdata(count));

    logic [20:0]     bytes, sum;
    logic            all, again;
    assign again     = blk_q[LB];
    assign bytes     = first_q != 13'd0 ? {8'd0, first_q} : b_len < {8'd0, rest_q} ? b_len : {8'd0, rest_q};
    assign sum       = again ? b_len : count + bytes;
    assign all       = sum == b_len;
    assign b_read    = op_q == ROWS || op_q == STEP || op_q == FIND;
    assign b_at      = op_q == ROWS || op_q == FIND ? {again, blk_q[LB-1:0]} : {again, blk_q[LB-1:0] + LB'(1)};
    assign count_we  = (op_q == COUNT && !again) || op_q == INIT || op_q == DROP;
    assign count_idx = blk_q[LB-1:0];
    assign count_new = all || op_q == INIT || op_q == DROP ? 21'd0 : sum;

    assign xa_valid = op_q == GIVE || op_q == DROP;
    assign xa_asid  = asid;
    assign xa_va    = b_va;
    assign xa_len   = b_len;

    logic            done, slide;
    assign done        = op_q == STEP && parts_q == 4'd0;
    assign slide       = gone_q[freed_new_q[LB-1:0]];
    assign row_we      = (done && !slide && !again) || op_q == INIT;
    assign freed_we    = row_we;
    assign freed_q     = q_q;
    assign freed_blocks = op_q == INIT ? '0 : freed_new_q;
    assign left_ready  = op_q == IDLE && !init_valid;
    assign drain_ready = done && !slide && drain_q_;
    assign place_valid = op_q == PLACE;
    assign place_q     = q_q;
    assign place_idx   = blk_q[LB-1 -: LR];
    assign init_ack    = op_q == INIT && blk_q[LB-1:0] == '1;

    always_ff @(posedge clk) begin
        ev_release <= xa_valid && xa_ready;
        case (op_q)
            IDLE: begin
                q_q      <= q;
                drain_q_ <= 1'b0;
                blk_q   <= left_block;
                first_q <= left_first;
                rest_q  <= left_len;
                parts_q <= left_parts;
                if (init_valid) begin
                    q_q   <= init_q;
                    blk_q <= '0;
                    op_q  <= INIT;
                end else if (left_valid) begin
                    op_q <= ROWS;
                end else if (drain_valid) begin
                    drain_q_ <= 1'b1;
                    parts_q  <= 4'd0;
                    op_q     <= ROWS;
                end
            end
            ROWS: begin
                freed_new_q <= freed;
                gone_q      <= gone;
                if (drain_q_) begin
                    blk_q <= {1'b0, freed[LB-1:0]};
                    at_q  <= freed;
                    op_q  <= FIND;
                end else begin
                    op_q <= parts_q == 4'd0 ? (again ? PLACE : IDLE) : COUNT;
                end
            end
            COUNT: begin
                rest_q  <= rest_q - bytes[12:0];
                first_q <= 13'd0;
                parts_q <= parts_q - 4'd1;
                if (all && !again) gone_q[blk_q[LB-1:0]] <= 1'b1;
                op_q    <= all ? GIVE : STEP;
            end
            GIVE: if (xa_ready) op_q <= STEP;
            STEP: if (parts_q != 4'd0) begin
                blk_q[LB-1:0] <= blk_q[LB-1:0] + LB'(1);
                op_q          <= COUNT;
            end else if (again) begin
                op_q <= PLACE;
            end else if (slide) begin
                gone_q[freed_new_q[LB-1:0]] <= 1'b0;
                freed_new_q <= freed_new_q + (LB+1)'(1);
            end else begin
                op_q <= IDLE;
            end
            PLACE: if (place_ready) op_q <= IDLE;
            // drain: one block after the other; one that is still asked for stays, the command comes again
            FIND: op_q <= at_q == blocks ? STEP : LOOK;
            LOOK: begin
                if (b_failed) gone_q[blk_q[LB-1:0]] <= 1'b1;
                if (b_held && !gone_q[blk_q[LB-1:0]]) begin
                    op_q <= DROP;
                end else begin
                    blk_q[LB-1:0] <= blk_q[LB-1:0] + LB'(1);
                    at_q          <= at_q + (LB+1)'(1);
                    op_q          <= FIND;
                end
            end
            DROP: if (xa_ready) begin
                gone_q[blk_q[LB-1:0]] <= 1'b1;
                blk_q[LB-1:0]         <= blk_q[LB-1:0] + LB'(1);
                at_q                  <= at_q + (LB+1)'(1);
                op_q                  <= FIND;
            end
            default: begin  // INIT: the counts, one by one
                blk_q <= blk_q + (LB+1)'(1);
                if (init_ack) op_q <= IDLE;
            end
        endcase
        if (rst) op_q <= IDLE;
    end

    logic unused;
    assign unused = &{1'b0, b_status, cfg_wdata, b_rest};
endmodule
