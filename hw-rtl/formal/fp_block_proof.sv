// SPDX-License-Identifier: Apache-2.0 OR MIT
// The sender asks for no memory beyond what it is to send and what is allowed (berth_fp_block), for any QP, from its start on:
// * At most 32 blocks of the stream are asked for and not given back; a new one only for a piece that has been cut, which takes
//   a credit (fp_cut), and not while memory is let go of. Bytes asked for + bytes of the piece at hand that are left = bytes
//   of the pieces taken up.
// * No new block when as many bytes as `ahead` whole blocks have are out, but for a packet that nothing else will make room for.
// * A block has bytes, lies in its context, and ends at the latest where a multiple of the block size after its page begins;
//   that of a lost packet lies in the context that the log names.
// * What the host says of a block that it was not asked for asks for nothing, settles nothing, and is counted.
//
// Rows are, for the QP that is looked at, what was stored last; contexts stay while a piece is cut along them; blocks are given
// back after they were asked for; the log names places in contexts. Pieces, contexts, queues and answers are free otherwise.
module fp_block_proof #(
    parameter QPS = 64,
    parameter QW = $clog2(QPS),
    parameter LC = 8, LP = 4, LB = 5, LR = 2, WB = 8
) (
    input logic           clk, rst_in,
    input logic [15:0]    now,
    input logic           cfg_we, init_any, init_valid, cut_we, freed_we, want_we, mark_valid, wake_we, lost_valid, acq_ready,
        xr_valid,
    input logic [QW-1:0]  cfg_q, init_q, cut_q, freed_q, want_q, mark_q, wake_q, count_q, lost_q,
    input berth_card_pkg::row_write_t cfg,
    input logic [31:0]    freed_bytes,
    input logic [7:0]     cut_pieces,
    input logic [LB:0]    freed_blocks,
    input logic [QPS-1:0] still,
    input berth_card_pkg::want_t want_data,
    input berth_card_pkg::mark_t mark_data,
    input berth_card_pkg::lost_t lost_data,
    input berth_card_pkg::range_answer_t xr
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic init_ack, ev_stray;
    berth_fp_block #(.QPS(QPS)) dut (.clk(clk), .rst(rst), .now(now),
        .cfg_we(cfg_we), .cfg_q(cfg_q), .cfg(cfg),
        .init_any(init_any), .init_valid(init_valid), .init_q(init_q), .init_ack(init_ack),
        .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .freed_we(freed_we), .freed_q(freed_q), .freed_blocks(freed_blocks), .freed_bytes(freed_bytes),
        .want_we(want_we), .want_q(want_q), .want_data(want_data),
        .mark_valid(mark_valid), .mark_q(mark_q), .mark_data(mark_data),
        .still(still), .wake_we(wake_we), .wake_q(wake_q), .count_q(count_q),
        .lost_valid(lost_valid), .lost_q(lost_q), .lost_data(lost_data),
        .acq_ready(acq_ready), .xr_valid(xr_valid), .xr(xr),
        .ev_stray(ev_stray));

    // As in berth_fp_block.
    typedef struct packed {
        logic          writes;
        logic [31:0]   bytes;
        logic [7:0]    pieces;
        logic [31:0]   left;
        logic [LC-1:0] ctx;
        logic [31:0]   offset;
        logic [LB:0]   blocks;
        logic [LR:0]   losts;
    } row_t;
    row_t s;                        // the QP's row, as it was stored last
    localparam RW = $bits(s);
    localparam logic [2:0] ROWS = 3'd1, LOOK = 3'd2, PART = 3'd3;
    (* hierconn *) wire [2:0]      \dut.op_q ;
    (* hierconn *) wire [QW-1:0]   \dut.q_q ;
    (* hierconn *) wire [QW-1:0]   \dut.addr ;
    (* hierconn *) wire [RW-1:0]   \dut.row_new ;
    (* hierconn *) wire [RW-1:0]   \dut.m_row.rdata ;
    (* hierconn *) wire [7:0]      \dut.m_cut.content ;
    (* hierconn *) wire [7:0]      \dut.cut ;
    (* hierconn *) wire [LB+32:0]  \dut.m_freed.content ;
    (* hierconn *) wire [LB:0]     \dut.freed ;
    (* hierconn *) wire [31:0]     \dut.back ;
    (* hierconn *) wire [LB:0]     \dut.wanted ;
    (* hierconn *) wire [LB:0]     \dut.want_from ;
    (* hierconn *) wire [5:0]      \dut.ahead ;
    (* hierconn *) wire [4:0]      \dut.log2_block ;
    (* hierconn *) wire [31:0]     \dut.p_len ;
    (* hierconn *) wire [31:0]     \dut.ctx_len ;
    (* hierconn *) wire [63:0]     \dut.ctx_va ;
    (* hierconn *) wire [31:0]     \dut.at ;
    (* hierconn *) wire [31:0]     \dut.len ;
    (* hierconn *) wire [31:0]     \dut.want ;
    (* hierconn *) wire [63:0]     \dut.va ;
    (* hierconn *) wire [LB+QW:0]  \dut.m_due.waddr ;
    (* hierconn *) wire [LB+QW:0]  \dut.m_due.raddr ;
    (* hierconn *) wire [15:0]     \dut.x_tag_q ;
    (* hierconn *) wire [1:0]      \dut.x_kind_q ;
    (* hierconn *) wire \dut.row_we , \dut.still_q , \dut.read , \dut.put , \dut.fix_q , \dut.p_none , \dut.settle , \dut.retry_put ,
        \dut.x_valid_q , \dut.x_take , \dut.x_done , \dut.x_due , \dut.m_due.content , \dut.m_due.we , \dut.m_due.wdata ;

    (* anyconst *) logic [QW-1:0] the_q;
    (* anyconst *) logic [LB:0]   the_block;
    wire here  = \dut.q_q == the_q;
    wire reads = \dut.read && \dut.addr == the_q;
    wire busy  = here && (\dut.op_q == ROWS || \dut.op_q == LOOK || \dut.op_q == PART);
    wire looks = here && \dut.op_q == LOOK && !\dut.fix_q ;
    wire puts  = here && \dut.put ;
    wire puts_new = puts && !\dut.fix_q ;
    wire begins = init_ack && here;

    // ---- the row and the counts in memory -------------------------------------------------------------
    logic [RW-1:0] stored_q, read_q;
    logic [7:0]    cut_n_q, cut_n;
    logic [LB:0]   freed_n_q, freed_n;
    assign s       = stored_q;
    assign cut_n   = cut_we && cut_q == the_q ? cut_pieces : cut_n_q;
    assign freed_n = freed_we && freed_q == the_q ? freed_blocks : freed_n_q;
    always_ff @(posedge clk) begin
        if (\dut.row_we && here) stored_q <= \dut.row_new ;
        if (\dut.read ) read_q <= stored_q;
        cut_n_q   <= cut_n;
        freed_n_q <= freed_n;
    end
    always_comb begin
        assume (!busy || \dut.m_row.rdata == read_q);
        assume (!reads || (\dut.m_cut.content == cut_n_q && \dut.m_freed.content [LB+32:32] == freed_n_q));
    end

    // ---- what happens, as it is seen from outside --------------------------------------------------------
    logic        on_q, still_q, due_q;
    logic        passed_q;                      // a piece without memory is taken up, and was in the clock before: the same one
    logic [31:0] asked_q, taken_q, len_q;       // bytes asked for; of the pieces taken up; of the context at hand
    always_ff @(posedge clk) begin
        on_q <= !rst && (on_q || begins);
        if (puts_new) begin
            asked_q <= asked_q + \dut.len ;
            len_q   <= \dut.ctx_len ;
        end
        if (puts_new && s.left == '0) taken_q <= taken_q + \dut.p_len ;
        passed_q <= looks && \dut.row_we && !\dut.put && \dut.settle && !rst;
        still_q <= still[the_q];
        if (\dut.m_due.we && \dut.m_due.waddr == {the_q, the_block}) due_q <= \dut.m_due.wdata ;
        if (begins) {asked_q, taken_q} <= '0;
    end
    wire x_here = \dut.x_valid_q && \dut.x_tag_q [LB+QW:0] == {the_q, the_block};
    always_comb begin
        assume (!(\dut.x_take && \dut.m_due.raddr == {the_q, the_block}) || \dut.m_due.content == due_q);
        assume (\dut.log2_block >= 5'd12 && \dut.log2_block <= 5'd20);
        assume (!puts || \dut.ctx_len != '0);
        assume (!puts_new || s.offset == '0 || \dut.ctx_len == len_q);
        assume (!(puts && \dut.fix_q ) || \dut.at < \dut.ctx_len );
        if (on_q) begin
            assume (8'(cut_n - s.pieces) <= 8'd16 && 8'(cut_n - s.pieces) >= 8'(cut_n_q - s.pieces));
            assume ((LB+1)'(freed_n - freed_n_q) <= (LB+1)'(s.blocks - freed_n_q));
        end
        assume (!begins || (cut_n == '0 && freed_n == '0));
    end

    always_comb if (!rst && on_q) begin
        // Blocks of the stream.
        assert ((LB+1)'(s.blocks - freed_n_q) <= (LB+1)'(32));
        assert (!puts_new || (LB+1)'(s.blocks - freed_n_q) < (LB+1)'(32));
        assert (!puts_new || s.left != '0 || (s.pieces != cut_n_q && !\dut.p_none ));
        assert (!puts_new || !still_q);
        assert (!puts_new || s.bytes - \dut.back < 32'(\dut.ahead ) << \dut.log2_block
                || (s.blocks == \dut.wanted && \dut.freed == \dut.want_from ));
        assert (asked_q + s.left == taken_q && s.bytes == asked_q);
        // Any block.
        assert (!puts || (\dut.len != '0 && \dut.len <= \dut.want && \dut.at < \dut.ctx_len && \dut.len <= \dut.ctx_len - \dut.at
                          && \dut.va == \dut.ctx_va + 64'(\dut.at )));
        assert (!puts_new || \dut.len <= (32'd1 << \dut.log2_block ) - 32'(\dut.va [11:0]));
        // For the proof.
        assert (8'(cut_n_q - s.pieces) <= 8'd16);
        assert (s.offset == '0 || s.offset < len_q);
        assert (!busy || read_q == stored_q || passed_q);
        assert (!passed_q || (looks && !\dut.put && \dut.row_we && \dut.row_new == stored_q));
        assert (!busy || (8'(\dut.cut - s.pieces) <= 8'(cut_n_q - s.pieces)
                          && (LB+1)'(freed_n_q - \dut.freed ) <= (LB+1)'(s.blocks - \dut.freed )
                          && (LB+1)'(s.blocks - \dut.freed ) <= (LB+1)'(32)));
        assert (!looks || passed_q || s.left != '0 || s.pieces != \dut.cut );
        assert (!looks || \dut.still_q == still_q);
        assert (\dut.op_q != PART || \dut.fix_q );
    end
    // The host was not asked.
    always_comb if (!rst) begin
        assert (!x_here || \dut.x_due == due_q);
        assert (!(x_here && \dut.x_kind_q == berth_regs_pkg::XLT_READY[1:0] && !due_q) || (ev_stray && !\dut.retry_put && !\dut.settle ));
    end
endmodule
