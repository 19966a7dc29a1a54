// SPDX-License-Identifier: Apache-2.0 OR MIT
// Credits are conserved at the sender (berth_fp_cut: the reader), for any QP, from its start on: credits that came = used +
// given up + unused.
// * A size that is stored is a new credit; it overwrites that of no unused one, and unused are at most 128.
// * A piece with data uses one, but for a READ, and a WRITE without immediate, and all to a peer without lists, and there is
//   one; numbers of credits used are contiguous, none is left out or used twice.
// * Of those that are to be given up, as many are as are unused.
// * The number of unused credits that others are told of is right.
//
// Elements, modes and pieces that are done with are free, and so are the rows: of the QP that is looked at, its row is
// what was stored last.
module fp_cut_proof #(
    parameter QPS = 64,
    parameter QW = $clog2(QPS)
) (
    input logic          clk, rst_in,
    input logic          cfg_we, init_any, init_valid, elem_we, parsed_we, list_valid,
        give_valid, covered_we, sent_we, done_we,
    input logic [QW-1:0] cfg_q, init_q, elem_q, parsed_q, list_q, give_q, covered_q, sent_q, done_q,
    input berth_card_pkg::row_write_t cfg,
    input berth_card_pkg::element_t   element,
    input berth_card_pkg::list_beat_t list_beat,
    input logic [5:0]    elem_idx,
    input logic [15:0]   parsed_elems, done_elems,
    input logic [23:0]   give_n,
    input logic [31:0]   now,
    input logic          bound_we,
    input berth_card_pkg::covered_t     covered_data,
    input berth_card_pkg::sent_so_far_t sent_data
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic          init_ack, give_ready, credits_we, piece_we;
    logic [QW-1:0] credits_q, piece_q;
    logic [7:0]    credits_n;
    berth_card_pkg::piece_t piece_data;
    berth_fp_cut #(.QPS(QPS)) dut (.clk(clk), .rst(rst), .now(now), .bound_we(bound_we),
        .cfg_we(cfg_we), .cfg_q(cfg_q), .cfg(cfg),
        .init_any(init_any), .init_valid(init_valid), .init_q(init_q), .init_ack(init_ack),
        .elem_we(elem_we), .elem_q(elem_q), .elem_idx(elem_idx), .element(element),
        .parsed_we(parsed_we), .parsed_q(parsed_q), .parsed_elems(parsed_elems),
        .list_valid(list_valid), .list_q(list_q), .list_beat(list_beat), .give_valid(give_valid), .give_ready(give_ready), .give_q(give_q), .give_n(give_n),
        .credits_we(credits_we), .credits_q(credits_q), .credits_n(credits_n),
        .done_we(done_we), .done_q(done_q), .done_elems(done_elems),
        .covered_we(covered_we), .covered_q(covered_q), .covered_data(covered_data),
        .sent_we(sent_we), .sent_q(sent_q), .sent_data(sent_data),
        .piece_we(piece_we), .piece_q(piece_q), .piece_data(piece_data));

    localparam RW = 210;
    localparam logic [1:0] IDLE = 2'd0, ROWS = 2'd1, CUT = 2'd2, SCAN = 2'd3;
    (* hierconn *) wire [1:0]    \dut.state_q ;
    (* hierconn *) wire [QW-1:0] \dut.q_q ;
    (* hierconn *) wire [RW-1:0] \dut.row_new ;
    (* hierconn *) wire [RW-1:0] \dut.m_row.rdata ;
    (* hierconn *) wire [31:0]   \dut.put_q ;
    (* hierconn *) wire [6:0]    \dut.left_q ;
    (* hierconn *) wire [QW-1:0] \dut.fill_q ;
    (* hierconn *) wire [6:0]    \dut.skip_q ;
    (* hierconn *) wire \dut.row_we , \dut.size_we , \dut.is_list_q , \dut.give_q_ , \dut.late_q ;
    (* hierconn *) wire \dut.one , \dut.remote , \dut.foreign , \dut.e_imm ;

    (* anyconst *) logic [QW-1:0] the_q;
    wire here = \dut.q_q == the_q;

    // ---- the row in memory: read while idle, kept until idle again ----------------------------------
    logic [RW-1:0] stored_q, read_q;
    always_ff @(posedge clk) begin
        if (\dut.row_we && here) stored_q <= \dut.row_new ;
        if (\dut.state_q == IDLE) read_q <= stored_q;
    end
    always_comb assume (!(here && \dut.state_q == ROWS) || \dut.m_row.rdata == read_q);
    wire [31:0] next_in  = stored_q[RW-34 -: 32];
    wire [31:0] next_out = stored_q[RW-66 -: 32];

    // ---- credits, as they are seen from outside ----------------------------------------------------
    wire starts = init_ack && here;
    wire comes  = \dut.size_we && \dut.fill_q == the_q;
    wire uses   = piece_we && piece_q == the_q && piece_data.kind == berth_row_pkg::PIECE_DATA && !\dut.foreign
               && (!\dut.remote || \dut.e_imm );
    wire gives  = give_ready && here;
    logic        on_q;
    logic [7:0]  unused_q;
    logic [31:0] number_q;      // of the credit that is used next
    wire  [7:0]  given = !gives ? 8'd0 : give_n < 24'(unused_q) ? give_n[7:0] : unused_q;
    always_ff @(posedge clk) begin
        on_q     <= !rst && (on_q || starts);
        unused_q <= starts ? 8'd0 : unused_q + 8'(comes) - 8'(uses) - given;
        number_q <= starts ? 32'd0 : number_q + 32'(uses);
    end

    wire       sizes  = \dut.fill_q == the_q && \dut.left_q != 7'd0;
    wire [7:0] coming = sizes ? 8'(\dut.left_q ) - 8'(\dut.skip_q ) : 8'd0;   // credits of the list at hand
    logic [7:0] told_q;                     // what others know
    always_ff @(posedge clk)
        if (starts || (credits_we && credits_q == the_q)) told_q <= credits_n;
    always_comb if (!rst && on_q) begin
        assert (unused_q <= 8'd128);
        assert (!uses || unused_q != 8'd0);
        assert (!uses || \dut.one || piece_data.credit == number_q[7:0]);
        assert (!comes || (\dut.put_q - number_q == 32'(unused_q) && unused_q < 8'd128));
        assert (told_q == unused_q + coming);
        // For the proof.
        assert (next_out == number_q && next_in - next_out == 32'(unused_q) + 32'(coming));
        assert (32'(unused_q) + 32'(coming) <= 32'd128);
        assert (!sizes || (\dut.skip_q < \dut.left_q && \dut.left_q <= 7'd64));
        assert (!sizes || \dut.put_q == next_out + 32'(unused_q));
        assert (\dut.state_q != ROWS || !( \dut.is_list_q || \dut.give_q_ ) || \dut.left_q == 7'd0);
        assert (!(here && (\dut.state_q == CUT || \dut.state_q == SCAN)) || \dut.late_q || next_in == next_out || unused_q != 8'd0);
        assert (!here || \dut.state_q == IDLE || read_q == stored_q);
        assert (!here || (\dut.state_q != CUT && \dut.state_q != SCAN) || \dut.m_row.rdata == stored_q);
    end
endmodule
