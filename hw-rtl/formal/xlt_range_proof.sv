// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ranges of pages (berth_xlt_range), for any one that is acquired: all its pages are counted, or none.
// * Each of its pages is asked for once, in order, as it was asked for.
// * Its answer says that it is there just when each of its pages was counted; it is held then, and nothing of it is given
//   back, unless it was only asked after.
// * Else the pages that were counted, and no others, are given back, each once. After that the host is asked for the range
//   if it is not there and not `quiet`.
//
// The table (berth_xlt) answers pages in the order in which they came, and counts none behind a miss. Queues are free but for
// what fifo_proof says of them: they give what they were given.
module xlt_range_proof (
    input logic        clk, rst_in, mark,
    input logic        go_valid, block, tell, pg_ready, an_valid, an_last, an_counted, an_zero, ev_ready,
    input berth_card_pkg::range_ask_t go
);
    localparam RANGE = $bits(go);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic            go_ready, pg_valid, out_valid, out_hit, ev_valid, busy;
    berth_card_pkg::page_use_t pg;
    logic [15:0]     out_tag;
    logic [7*32-1:0] ev_words;
    berth_xlt_range #(.USER(2'd1)) dut (
        .clk, .rst, .go_valid, .go_ready, .go, .block, .tell, .pg_valid,
        .pg_ready, .pg, .an_valid, .an_last, .an_counted, .an_zero,
        .out_valid, .out_hit, .out_tag, .ev_valid, .ev_ready, .ev_words, .busy
    );
    (* hierconn *) wire [RANGE-1:0]    \dut.flying ;
    (* hierconn *) wire                \dut.flying_valid ;
    (* hierconn *) wire                \dut.flying_room ;
    (* hierconn *) wire [RANGE-1:0]    \dut.after ;
    (* hierconn *) wire [19:0]         \dut.after_done ;
    (* hierconn *) wire                \dut.after_tell ;
    (* hierconn *) wire                \dut.after_pop ;
    (* hierconn *) wire                \dut.after_valid ;
    (* hierconn *) wire                \dut.after_room ;
    (* hierconn *) wire                \dut.after_push ;
    (* hierconn *) wire [RANGE+21-1:0] \dut.after_fifo.wr_data ;
    (* hierconn *) wire                \dut.cur_q ;
    (* hierconn *) wire                \dut.release_q ;
    (* hierconn *) wire [51:0]         \dut.vpn_q ;
    (* hierconn *) wire [19:0]         \dut.left_q ;
    (* hierconn *) wire [3:0]          \dut.room_q ;
    (* hierconn *) wire                \dut.giving_q ;
    (* hierconn *) wire [19:0]         \dut.give_q ;
    (* hierconn *) wire [51:0]         \dut.give_vpn_q ;
    (* hierconn *) wire                \dut.all_q ;
    (* hierconn *) wire [19:0]         \dut.done_q ;
    wire begins  = go_valid && go_ready;
    wire issue   = pg_valid && pg_ready;
    wire verdict = an_valid && an_last;
    wire told    = ev_valid && ev_ready;
    wire leaves  = \dut.after_pop ;

    // ---- The two queues: how many they hold; an answer in the middle of a range --------------------------------------
    logic [3:0] flying_q, after_q;
    logic       mid_q;
    always_ff @(posedge clk) begin
        flying_q <= flying_q + 4'(begins) - 4'(verdict);
        after_q  <= after_q + 4'(\dut.after_push ) - 4'(leaves);
        if (an_valid) mid_q <= !an_last;
        if (rst) {flying_q, after_q, mid_q} <= '0;
    end
    always_comb begin
        assume (\dut.flying_valid == (flying_q != '0) && \dut.after_valid == (after_q != '0));
        assume (\dut.flying_room == (flying_q < 4'd8) && \dut.after_room == (after_q < 4'd8));
        assume (!an_valid || flying_q != '0);
    end

    // ---- A range, any ------------------------------------------------------------------------------------------------
    localparam logic [1:0] NONE = 2'd0, FLIES = 2'd1, AFTER = 2'd2, OVER = 2'd3;
    logic [1:0]       is_q;
    logic [3:0]       ahead_q;                  // of it in its queue
    logic             walks_q;                  // not all of its pages have been asked for
    berth_card_pkg::range_ask_t range_q;
    logic [19:0]      pages_q;                  // all but one
    logic [20:0]      asked_q, answered_q, counted_q, given_q;
    logic             missed_q, there_q, heard_q;
    wire              held_q = there_q && !range_q.probe;
    wire              asks   = !there_q && !range_q.quiet;  // the host
    wire              taken  = begins && mark && !go.give_back && is_q == NONE;
    wire [31:0]       span   = {1'b0, go.len == '0 ? 31'd1 : go.len} + {20'd0, go.va[11:0]} + 32'd4095;
    wire [51:0]       base   = range_q.va[63:12];
    wire              mine   = is_q == FLIES && ahead_q == '0;       // answers are its
    wire              gives  = is_q == AFTER && ahead_q == '0;
    wire              given  = issue && pg.undo && gives;
    always_ff @(posedge clk) begin
        if (walks_q && issue) begin
            asked_q <= asked_q + 21'd1;
            if (pg.last) walks_q <= 1'b0;
        end
        if (mine && an_valid) begin
            answered_q <= answered_q + 21'd1;
            counted_q  <= counted_q + 21'(an_counted);
            missed_q   <= missed_q || !an_counted;
        end
        if (given) given_q <= given_q + 21'd1;
        if (gives && told) heard_q <= 1'b1;
        case (is_q)
            NONE: if (taken) begin
                is_q    <= FLIES;
                ahead_q <= flying_q - 4'(verdict);
                walks_q <= 1'b1;
                range_q <= go;
                pages_q <= 20'(span[31:12] - 20'd1);
            end
            FLIES: if (verdict) begin
                ahead_q <= ahead_q - 4'd1;
                if (ahead_q == '0) begin
                    is_q    <= \dut.after_push ? AFTER : OVER;
                    there_q <= out_hit;
                    ahead_q <= after_q - 4'(leaves);
                end
            end
            AFTER: if (leaves) begin
                ahead_q <= ahead_q - 4'd1;
                if (ahead_q == '0) is_q <= OVER;
            end
            default: ;
        endcase
        if (rst) {is_q, walks_q, asked_q, answered_q, counted_q, given_q, missed_q, there_q, heard_q} <= '0;
    end
    always_comb begin
        assume (!mine || \dut.flying == range_q);
        assume (!gives || {\dut.after_tell , \dut.after_done , \dut.after } == {asks, counted_q[19:0], range_q});
        // The table.
        assume (!(mine && an_valid) || (answered_q < asked_q && an_last == (answered_q == {1'b0, pages_q})));
        assume (!(mine && an_valid && missed_q) || !an_counted);
    end

    always_comb if (!rst) begin
        // Its pages, in order.
        if (walks_q)
            assert (pg_valid && {pg.undo, pg.give_back, pg.write, pg.asid, pg.vpn, pg.last}
                    == {2'b00, range_q.write, range_q.asid, 52'(base + 52'(asked_q)), asked_q == {1'b0, pages_q}});
        // Its answer.
        if (mine && verdict) begin
            assert (out_valid && out_tag == range_q.tag);
            assert (out_hit == (counted_q + 21'(an_counted) == {1'b0, pages_q} + 21'd1));
            assert (\dut.after_push == (!out_hit || range_q.probe));
            assert (!\dut.after_push || \dut.after_fifo.wr_data
                    == {!out_hit && !range_q.quiet, 20'(counted_q + 21'(an_counted)), range_q});
        end
        // What is given back.
        if (given) assert (pg.give_back && pg.asid == range_q.asid && pg.vpn == 52'(base + 52'(given_q)));
        assert (!(gives && ev_valid) || (given_q == counted_q && asks));
        assert (is_q != OVER || heard_q == asks);
        assert (is_q != OVER || (held_q ? counted_q == {1'b0, pages_q} + 21'd1 && given_q == '0 : given_q == counted_q));
        // For the proof.
        assert (6'(flying_q) + 6'(after_q) + 6'(\dut.room_q ) == 6'd8);
        assert (!mid_q || flying_q != '0);
        assert (mid_q || (\dut.all_q && \dut.done_q == '0));
        assert (!\dut.giving_q || after_q != '0);
        assert (is_q != FLIES || ahead_q < flying_q);
        assert (is_q != AFTER || (ahead_q < after_q && !held_q && there_q == !missed_q && !heard_q));
        assert (is_q != NONE || {walks_q, asked_q, answered_q, counted_q, given_q, missed_q, heard_q} == '0);
        assert (is_q != FLIES || !heard_q);
        assert (!walks_q || (is_q == FLIES && \dut.cur_q && !\dut.release_q ));
        assert (!walks_q || (asked_q <= {1'b0, pages_q} && \dut.vpn_q == 52'(base + 52'(asked_q)) && 21'(\dut.left_q ) + asked_q == {1'b0, pages_q}));
        assert (is_q == NONE || walks_q || asked_q == {1'b0, pages_q} + 21'd1);
        assert (answered_q <= asked_q && counted_q <= answered_q && missed_q == (counted_q != answered_q));
        assert (!(is_q == FLIES && !mine) || answered_q == '0);
        assert (!(is_q == AFTER || is_q == OVER) || answered_q == {1'b0, pages_q} + 21'd1);
        assert (!mine || (mid_q == (answered_q != '0) && \dut.all_q == !missed_q && {1'b0, \dut.done_q } == counted_q
                && answered_q <= {1'b0, pages_q}));
        assert (!(is_q == FLIES || (is_q == AFTER && !(gives && \dut.giving_q ))) || given_q == '0);
        if (gives && \dut.giving_q )
            assert (given_q <= counted_q && 21'(\dut.give_q ) + given_q == counted_q && \dut.give_vpn_q == 52'(base + 52'(given_q)));
        assert (is_q == NONE || (!range_q.give_back && pages_q <= 20'h80000));
    end
endmodule
