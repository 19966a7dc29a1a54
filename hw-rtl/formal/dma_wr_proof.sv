// SPDX-License-Identifier: Apache-2.0 OR MIT
// Posted writes of berth_dma_wr keep to a page and stop for a fence. What must hold where they are cut and fetched stands as
// assertions in berth_dma_wr.sv and berth_dma_page.sv.
//
// Queues are free but for what fifo_proof says of them: they give what they were given, and have room for as many words as
// they have places.
module dma_wr_proof (
    input logic clk
);
    `include "dma_wr_around.svh"
    localparam SEGS = 2, WORDS = 4;     // as they are there; the card has 8 and 64
    (* hierconn *) wire        \dut.put_go ;
    (* hierconn *) wire        \dut.seg_room ;
    (* hierconn *) wire        \dut.seg_valid ;
    (* hierconn *) wire        \dut.seg_pop ;
    (* hierconn *) wire [97:0] \dut.seg ;
    (* hierconn *) wire [97:0] \dut.put ;
    (* hierconn *) wire [4:0]  \dut.segs_q ;
    (* hierconn *) wire [6:0]  \dut.room_q ;
    (* hierconn *) wire        \dut.word_space ;
    (* hierconn *) wire        \dut.word_valid ;
    (* hierconn *) wire        \dut.word_pop ;
    (* hierconn *) wire [12:0] \dut.off_q ;
    (* hierconn *) wire        \dut.skip_q ;
    berth_card_pkg::page_part_t pg;
    localparam PG_W = $bits(pg);
    (* hierconn *) wire [PG_W-1:0] \dut.pg ;
    assign pg = \dut.pg ;
    (* hierconn *) wire        \dut.front.active_q ;
    (* hierconn *) wire        \dut.front.looking_q ;
    (* hierconn *) wire        \dut.front.out_q ;
    wire [12:0] put_len = \dut.put [33:21];
    wire [12:0] seg_len = \dut.seg [33:21];

    // ---- what the queues hold: posted writes that have bytes; words -----------------------------------------
    logic [4:0] writes_q, there_q;
    always_ff @(posedge clk) begin
        writes_q <= writes_q + 5'(\dut.put_go && put_len != '0) - 5'(\dut.seg_pop && seg_len != '0);
        there_q  <= there_q + 5'(pr_rvalid) - 5'(\dut.word_pop );
        if (rst) {writes_q, there_q} <= '0;
    end
    always_comb begin
        assume (!\dut.seg_valid || (\dut.segs_q != '0 && (seg_len != '0 ? writes_q != '0 : writes_q < \dut.segs_q )));
        assume (!\dut.seg_room || \dut.segs_q <= 5'(SEGS));
        assume (!\dut.word_valid || there_q != '0);
        assume (\dut.word_space || there_q >= 5'(WORDS));
    end

    // ---- while the fence holds and has found it quiet, nothing goes out -------------------
    logic fenced_q;
    always_ff @(posedge clk) fenced_q <= !rst && hold && (fenced_q || quiet);
    always_comb if (!rst) begin
        assert (!(wr_valid && fenced_q && hold));
        assert (!wr_valid || wr_len != '0);
        // For the proof. What has been refused has no bytes.
        assert (!fenced_q || (writes_q == '0 && !\dut.front.looking_q && (!\dut.front.out_q || pg.len == '0)));
        assert (writes_q <= \dut.segs_q && \dut.segs_q <= 5'(SEGS + 1));
        assert (8'(\dut.room_q ) + 8'(pr_q) + 8'(pr_rvalid_q) + 8'(there_q) == 8'(WORDS) && there_q <= 5'(WORDS));
        assert (\dut.off_q == '0 || (\dut.front.out_q && \dut.off_q < pg.len && !\dut.skip_q ));
        assert (!\dut.front.looking_q || \dut.front.active_q );
    end
endmodule
