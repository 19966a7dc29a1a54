// SPDX-License-Identifier: Apache-2.0 OR MIT
// A fence finds berth_dma_wr quiet within a bound (INV 4, decision 17). While `hold` is high:
// * In each clock in which the engine is not quiet, it waits for a port (the host's, packet RAM, the table, the place for a
//   status, who judges an atomic's page), or something moves on: an answer of the table, a cut, a beat that is asked for, comes or leaves, or what a queue
//   shows a clock after it has it.
// * What can move is used up: no look-up begins, nothing is taken up but what had been looked up, each cut takes at least one
//   of the `lines` that are left (multiples of 128 bytes that the page at hand touches, 32 at most), each beat is asked for
//   and leaves once.
// So there are at most 32 cuts and SEGS + 1 posted writes, of 512 beats each at most, that were cut before: with L the beats
// of all these, 32 + SEGS + 1 of them cut, at most 5 L + 4 (34 + SEGS) + 2 moves, and the fence is over after as many clocks in
// which no port is waited for. If no port lets the engine wait for more than N clocks at a time, that is (N + 1) times as many.
//
// Queues are free but for what fifo_proof says of them: they give what they were given, in order, a clock later than they
// could at the latest. While `hold`, DMA is enabled.
module dma_fence_proof (
    input logic clk
);
    `include "dma_wr_around.svh"
    localparam SEGS = 2, WORDS = 4;     // as they are there; the card has 8 and 64
    localparam BYTES = DATA_W / 8, LOG = $clog2(BYTES);
    localparam PAGE = 16'd4096;
    (* hierconn *) wire        \dut.put_go ;
    (* hierconn *) wire        \dut.direct ;
    (* hierconn *) wire        \dut.seg_room ;
    (* hierconn *) wire        \dut.get_room ;
    (* hierconn *) wire        \dut.seg_valid ;
    (* hierconn *) wire        \dut.seg_pop ;
    (* hierconn *) wire [97:0] \dut.seg ;
    (* hierconn *) wire [97:0] \dut.put ;
    (* hierconn *) wire [4:0]  \dut.segs_q ;
    (* hierconn *) wire        \dut.get_valid ;
    (* hierconn *) wire        \dut.get_pop ;
    (* hierconn *) wire [12:0] \dut.get_len ;
    (* hierconn *) wire        \dut.fetching_q ;
    (* hierconn *) wire [12:0] \dut.fetch_q ;
    (* hierconn *) wire        \dut.fetch_go ;
    (* hierconn *) wire [6:0]  \dut.room_q ;
    (* hierconn *) wire        \dut.word_valid ;
    (* hierconn *) wire        \dut.word_pop ;
    (* hierconn *) wire [12:0] \dut.sent_q ;
    (* hierconn *) wire        \dut.hold_done ;
    (* hierconn *) wire        \dut.skip_q ;
    (* hierconn *) wire [12:0] \dut.off_q ;
    berth_card_pkg::page_part_t pg;
    localparam PG_W = $bits(pg);
    (* hierconn *) wire [PG_W-1:0] \dut.pg ;
    assign pg = \dut.pg ;
    (* hierconn *) wire        \dut.front.active_q ;
    (* hierconn *) wire        \dut.front.looking_q ;
    (* hierconn *) wire        \dut.front.bad_q ;
    (* hierconn *) wire        \dut.front.out_q ;
    (* hierconn *) wire [12:0] \dut.front.left_q ;
    (* hierconn *) wire [12:0] \dut.front.len ;
    (* hierconn *) wire [63:0] \dut.front.addr_q ;
    wire [12:0] put_len = \dut.put [33:21];
    wire [12:0] seg_len = \dut.seg [33:21];

    function automatic logic [10:0] beats(input logic [12:0] len);
        beats = 11'((14'(len) + 14'(BYTES - 1)) >> LOG);
    endfunction
    // Multiples of 128 bytes that `len` bytes at `at` touch.
    function automatic logic [5:0] touched(input logic [11:0] at, input logic [12:0] len);
        logic [13:0] last;
        last    = 14'(at) + 14'(len) - 14'd1;
        touched = len == '0 ? 6'd0 : 6'(last >> 7) - 6'(at >> 7) + 6'd1;
    endfunction

    // ---- what the queues hold: posted writes; those not begun to fetch; words; beats of those begun -----------
    logic [4:0]  gets_q, there_q;
    logic [10:0] begun_q;
    wire  [4:0]  segs = \dut.segs_q ;
    logic        seg_late_q, word_late_q, kept_q, word_kept_q;
    logic [97:0] seg_q;
    always_ff @(posedge clk) begin
        begun_q <= begun_q + (\dut.direct ? beats(put_len) : \dut.get_pop ? beats(\dut.get_len ) : '0)
                   - (\dut.seg_pop ? beats(seg_len) : '0);
        gets_q  <= gets_q + 5'(\dut.put_go && !\dut.direct ) - 5'(\dut.get_pop );
        there_q <= there_q + 5'(pr_rvalid) - 5'(\dut.word_pop );
        seg_late_q  <= segs != '0 && !\dut.seg_valid && !rst;
        word_late_q <= there_q != '0 && !\dut.word_valid && !rst;
        kept_q      <= \dut.seg_valid && !\dut.seg_pop && !rst;
        word_kept_q <= \dut.word_valid && !\dut.word_pop && !rst;
        seg_q       <= \dut.seg ;
        if (rst) {begun_q, gets_q, there_q} <= '0;
    end
    always_comb begin
        assume (!\dut.seg_valid || (segs != '0 && seg_len <= 13'(PAGE)));
        assume (!kept_q || (\dut.seg_valid && \dut.seg == seg_q));
        assume (!(seg_late_q && segs != '0) || \dut.seg_valid );
        assume (\dut.seg_room ? segs <= 5'(SEGS) : segs >= 5'(SEGS));
        assume (\dut.get_valid == (gets_q != '0) && (!\dut.get_valid || \dut.get_len <= 13'(PAGE)));
        assume (\dut.get_room || gets_q >= 5'(SEGS));
        // Both queues were given the same lengths: the oldest is the one that is not begun, the last one begun, or one of more.
        assume (!\dut.seg_valid || (segs == gets_q ? beats(seg_len) == beats(\dut.get_len )
                                    : segs == gets_q + 5'd1 ? beats(seg_len) == begun_q : beats(seg_len) <= begun_q));
        assume (!\dut.word_valid || there_q != '0);
        assume (!(word_kept_q || (word_late_q && there_q != '0)) || \dut.word_valid );
        assume (!hold || enable);
    end

    // ---- what is left, and what moves ------------------------------------------------------------------
    wire  [10:0] fetch = \dut.fetching_q ? beats(\dut.fetch_q ) : '0;
    wire  [12:0] left  = pg.len - \dut.off_q ;
    wire  [11:0] at    = pg.addr[11:0] + \dut.off_q [11:0];
    wire  [5:0]  lines = \dut.front.looking_q ? touched(\dut.front.addr_q [11:0], \dut.front.len )
                         : \dut.front.out_q ? touched(at, left) : '0;
    // It waits for the table, packet RAM, the host's port, or the place for a status.
    wire  waits = (lk_req && !lk_ack) || (found_valid && !found_judged) || (pr_valid && !pr_ready) || (wr_valid && !wr_ready)
                  || (\dut.seg_valid && \dut.hold_done && (seg_len == '0 || (wr_last && \dut.word_valid )));
    wire  moves = (lk_req && lk_ack) || (\dut.front.out_q && (\dut.put_go || \dut.skip_q )) || \dut.get_pop || \dut.fetch_go || pr_q
                  || pr_rvalid || \dut.word_pop || \dut.seg_pop || (segs != '0 && !\dut.seg_valid )
                  || (there_q != '0 && !\dut.word_valid );
    logic       held_q, cuts_q, looking_q, out_q;
    logic [5:0] lines_q;
    always_ff @(posedge clk) begin
        held_q    <= hold && !rst;
        cuts_q    <= \dut.put_go && left != '0;
        lines_q   <= lines;
        looking_q <= \dut.front.looking_q ;
        out_q     <= \dut.front.out_q ;
    end
    always_comb if (!rst) begin
        assert (!hold || quiet || waits || moves);
        assert (!wr_valid || !quiet);
        assert (!held_q || looking_q || !\dut.front.looking_q );
        assert (!held_q || out_q || looking_q || !\dut.front.out_q );
        assert (!held_q || (cuts_q ? lines < lines_q : lines <= lines_q));
        assert (lines <= 6'd32 && segs <= 5'(SEGS + 1) && (!\dut.put_go || put_len <= 13'(PAGE)));
        // For the proof.
        assert (gets_q <= segs && (gets_q != segs || begun_q == '0));
        assert (begun_q - 11'(\dut.sent_q >> LOG) == fetch + 11'(pr_q) + 11'(pr_rvalid_q) + 11'(there_q) && 11'(\dut.sent_q >> LOG) <= begun_q);
        assert (8'(\dut.room_q ) + 8'(pr_q) + 8'(pr_rvalid_q) + 8'(there_q) == 8'(WORDS) && there_q <= 5'(WORDS));
        assert (\dut.sent_q [LOG-1:0] == '0);
        assert (kept_q ? \dut.sent_q == '0 || \dut.sent_q < seg_q[33:21] : \dut.sent_q == '0);
        assert (!\dut.fetching_q || (\dut.fetch_q != '0 && \dut.fetch_q <= 13'(PAGE)));
        assert (!seg_late_q || kept_q == 1'b0);
        assert (!\dut.front.out_q || {2'd0, pg.addr[11:0]} + {1'b0, pg.len} <= 14'h1000);
        assert (\dut.off_q == '0 || (\dut.front.out_q && \dut.off_q < pg.len && !\dut.skip_q ));
        assert (!\dut.front.looking_q || (\dut.front.active_q && !\dut.front.bad_q && !\dut.front.out_q ));
        assert (!\dut.front.active_q || \dut.front.bad_q || \dut.front.left_q != '0);
    end
endmodule
