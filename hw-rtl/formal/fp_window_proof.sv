// SPDX-License-Identifier: Apache-2.0 OR MIT
// The sender's PSN window: a packet that is sent for the first time has the next PSN, and lies within `window` of the
// oldest that was unacknowledged when the row was read (acknowledgements only make room). All that berth_fp_send reads
// is free: rows, pieces, blocks, whose turn it is.
module fp_window_proof (
    input logic clk,
    input logic rst_in,
    input logic cfg_we, init_any, init_valid, posted_we, piece_we, cut_we, block_we, state_we, held_set, fixed_we, covered_we,
        acked_we, lsn_we, wake_we, small_valid, big_valid, sent_again_ready, pkt_ready, part_ready,
    input logic [1:0] cfg_q, init_q, posted_q, piece_q, cut_q, block_q, state_q, fixed_place, covered_q, acked_q,
        lsn_q, wake_q,
    input berth_card_pkg::row_write_t cfg,
    input logic [5:0] block_idx, state_idx,
    input logic [31:0] posted_bytes,
    input logic [3:0] piece_idx,
    input berth_card_pkg::piece_t piece_data,
    input logic [7:0] cut_pieces,
    input berth_card_pkg::block_t block_data,
    input berth_card_pkg::block_state_t state_data,
    input berth_card_pkg::fixed_t fixed_data,
    input berth_card_pkg::covered_t covered_data,
    input berth_card_pkg::acked_t acked_data,
    input berth_card_pkg::lsn_t lsn_data,
    input logic [3:0] still,
    input logic [6:0] small_tag, big_tag
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    berth_fp_send #(.QPS(4), .WB(7)) dut (.clk(clk), .rst(rst),
        .cfg_we(cfg_we), .cfg_q(cfg_q), .cfg(cfg),
        .init_any(init_any), .init_valid(init_valid), .init_q(init_q), .posted_we(posted_we), .posted_q(posted_q),
        .posted_bytes(posted_bytes), .piece_we(piece_we), .piece_q(piece_q), .piece_idx(piece_idx),
        .piece_data(piece_data), .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .block_we(block_we), .block_q(block_q), .block_idx(block_idx), .block_data(block_data),
        .state_we(state_we), .state_q(state_q), .state_idx(state_idx), .state_data(state_data),
        .held_set(held_set), .fixed_we(fixed_we), .fixed_place(fixed_place), .fixed_data(fixed_data),
        .covered_we(covered_we), .covered_q(covered_q), .covered_data(covered_data),
        .acked_we(acked_we), .acked_q(acked_q), .acked_data(acked_data), .lsn_we(lsn_we), .lsn_q(lsn_q), .lsn_data(lsn_data),
        .still(still), .wake_we(wake_we), .wake_q(wake_q),
        .small_valid(small_valid), .small_tag(small_tag), .big_valid(big_valid), .big_tag(big_tag),
        .sent_again_ready(sent_again_ready), .pkt_ready(pkt_ready), .part_ready(part_ready));

    localparam logic [2:0] LOGGED = 3'd4, WALK = 3'd5, COMMIT = 3'd6;
    (* hierconn *) wire [2:0]  \dut.op_q ;
    (* hierconn *) wire        \dut.fix_q ;
    (* hierconn *) wire        \dut.commit ;
    (* hierconn *) wire [23:0] \dut.psn_q ;
    (* hierconn *) wire [23:0] \dut.next ;
    (* hierconn *) wire [23:0] \dut.una ;
    (* hierconn *) wire [7:0]  \dut.window ;
    wire fresh  = !\dut.fix_q && (\dut.op_q == WALK || \dut.op_q == COMMIT);
    wire inside = \dut.psn_q - \dut.una < 24'(\dut.window );
    always_comb if (!rst) begin
        assert (!\dut.commit || \dut.fix_q || (\dut.psn_q == \dut.next && inside));
        // For the proof: so it is from the first look on.
        assert (!fresh || (\dut.psn_q == \dut.next && inside));
        assert (\dut.op_q != LOGGED || \dut.fix_q );
    end
endmodule
