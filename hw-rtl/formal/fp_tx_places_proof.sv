// SPDX-License-Identifier: Apache-2.0 OR MIT
// Places of frames in packet RAM (berth_fp_tx_places), for any place: it belongs to exactly one at any time: the free ones, a
// frame that is not begun, one that is being made or waits for its turn, one that waits for the MAC, the one that is
// shown to the MAC, one that the MAC has, one that has left, one that could not be read, the one that is accounted for.
// So none is lost, none is given back twice or before its frame has left the MAC, and none is sent twice.
// * A frame goes when its header and all its reads are done, and none of which a read failed, or that is not to go, is
//   shown to the MAC.
// * It goes after the one that was begun before it in its list (new packets, or packets that go again, of one QP).
// * Two places have no byte in common.
//
// For the lists the proof takes of all other places what it shows for the one that is looked at, up to the clock before:
// LISTED below. Free places are shown as fp_pool says, and the queues give what was put into them, once (fifo_proof);
// they have a word for each place. Addresses, lengths and counts per QP are free.
module fp_tx_places_proof #(
    parameter QPS = 4,
    parameter QW = $clog2(QPS)
) (
    input logic          clk, rst_in,
    input logic          ctl_pop, big_pop, small_pop, made_valid, open_valid, head_valid, loaded_valid,
        fs_ready, fl_valid, gone_ready, dead_ready,
    input logic [6:0]    at_tag, head_tag,
    input logic [7:0]    fl_tag,
    input berth_card_pkg::open_t        open,
    input berth_card_pkg::payload_end_t loaded,
    input logic [QW-1:0] made_q, open_q
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic        ctl_valid, big_valid, small_valid, head_ready, fs_valid;
    logic [6:0]  ctl_tag, big_tag, small_tag;
    berth_card_pkg::frame_out_t fs;
    logic [17:0] at;
    berth_fp_tx_places #(.QPS(QPS)) dut (.clk(clk), .rst(rst),
        .ctl_valid(ctl_valid), .ctl_tag(ctl_tag), .ctl_pop(ctl_pop), .big_valid(big_valid), .big_tag(big_tag),
        .big_pop(big_pop), .small_valid(small_valid), .small_tag(small_tag), .small_pop(small_pop),
        .at_tag(at_tag), .at(at), .init_valid(1'b0), .made_valid(made_valid), .made_q(made_q),
        .open_valid(open_valid), .open(open), .open_q(open_q),
        .head_valid(head_valid), .head_ready(head_ready), .head_tag(head_tag),
        .loaded_valid(loaded_valid), .loaded(loaded), .fs_valid(fs_valid), .fs_ready(fs_ready),
        .fs(fs), .fl_valid(fl_valid), .fl_tag(fl_tag), .gone_ready(gone_ready), .dead_ready(dead_ready));

    localparam logic [1:0] IDLE = 2'd0;
    (* hierconn *) wire [6:0]   \dut.step_tag ;
    (* hierconn *) wire [6:0]   \dut.data_tag ;
    (* hierconn *) wire [6:0]   \dut.ctl_next ;
    (* hierconn *) wire [6:0]   \dut.data_next ;
    (* hierconn *) wire [6:0]   \dut.gone_tag ;
    (* hierconn *) wire [6:0]   \dut.dead_tag ;
    (* hierconn *) wire [6:0]   \dut.m_tag_q ;
    (* hierconn *) wire [6:0]   \dut.tag_q ;
    (* hierconn *) wire [6:0]   \dut.latest ;
    (* hierconn *) wire [6:0]   \dut.pass_tag_q ;
    (* hierconn *) wire [6:0]   \dut.pass_next ;
    (* hierconn *) wire [QW:0]  \dut.list ;
    (* hierconn *) wire [127:0] \dut.whole_q ;
    (* hierconn *) wire [127:0] \dut.turn_q ;
    (* hierconn *) wire [127:0] \dut.follows_q ;
    (* hierconn *) wire [127:0] \dut.failed_q ;
    (* hierconn *) wire [2*QPS-1:0] \dut.any_q ;
    (* hierconn *) wire [1:0]   \dut.op_q ;
    (* hierconn *) wire [4:0]   \dut.steps_left ;
    (* hierconn *) wire [QW:0]  \dut.pass_list ;
    (* hierconn *) wire \dut.step , \dut.complete , \dut.data_put , \dut.ctl_here , \dut.ctl_take , \dut.data_here ,
        \dut.data_take , \dut.gone_here , \dut.gone_take , \dut.dead_here , \dut.dead_take , \dut.dead_put , \dut.dead_room ,
        \dut.m_busy_q , \dut.m_shown_q , \dut.pass_q , \dut.pass , \dut.back , \dut.unused_room , \dut.unused_room2 ,
        \dut.unused_room3 ;

    (* anyconst *) logic [6:0] the_tag;
    wire ctl = the_tag[6:4] == 3'd0;
    always_comb assume (the_tag[6] || the_tag[6:4] == 3'd1 || the_tag[6:3] == 4'd0);

    // ---- whom it belongs to -------------------------------------------------------------------------
    logic free_q, taken_q, open_here_q, queued_q, mac_q, gone_q, dead_q;
    wire at_m   = \dut.m_busy_q && \dut.m_tag_q == the_tag;
    wire ending = \dut.op_q != IDLE && \dut.tag_q == the_tag;
    wire shown  = (ctl_valid && ctl_tag == the_tag) || (big_valid && big_tag == the_tag) || (small_valid && small_tag == the_tag);
    wire pops   = (ctl_valid && ctl_pop && ctl_tag == the_tag) || (big_valid && big_pop && big_tag == the_tag)
                || (small_valid && small_pop && small_tag == the_tag);
    wire opens  = open_valid && open.tag == the_tag;
    wire steps  = \dut.step && \dut.step_tag == the_tag;
    wire puts   = ctl ? steps && \dut.complete : \dut.data_put && \dut.data_tag == the_tag;
    wire picks  = (\dut.ctl_take && \dut.ctl_next == the_tag) || (\dut.data_take && \dut.data_next == the_tag);
    wire leaves = fl_valid && fl_tag[6:0] == the_tag;
    wire backs  = \dut.back && \dut.tag_q == the_tag;
    always_ff @(posedge clk) begin
        if (pops) {free_q, taken_q} <= 2'b01;
        if (opens) {taken_q, open_here_q} <= 2'b01;
        if (puts) {open_here_q, queued_q} <= 2'b01;
        if (picks) queued_q <= 1'b0;
        if (fs_valid && fs_ready && at_m) mac_q <= 1'b1;
        if (leaves) {mac_q, gone_q} <= 2'b01;
        if (\dut.dead_put && at_m) dead_q <= 1'b1;
        if (\dut.gone_take && \dut.gone_tag == the_tag) gone_q <= 1'b0;
        if (\dut.dead_take && \dut.dead_tag == the_tag) dead_q <= 1'b0;
        if (backs) free_q <= 1'b1;
        if (rst) {free_q, taken_q, open_here_q, queued_q, mac_q, gone_q, dead_q} <= 7'b1000000;
    end
    // What its users do, and the queues.
    logic [4:0] left_q;         // steps until it is whole
    logic       failed_q, room_q;
    always_ff @(posedge clk) begin
        room_q <= \dut.dead_room && !\dut.dead_put && !rst;
        if (opens) {left_q, failed_q} <= {open.count, open.over};
        else if (steps) left_q <= left_q - 5'd1;
        if (steps && loaded_valid && loaded.status != 2'd0) failed_q <= 1'b1;
    end
    always_comb begin
        assume (!shown || free_q);
        assume (!opens || (taken_q && open.count != 5'd0));
        assume (!steps || (open_here_q && left_q != 5'd0));
        assume (!steps || \dut.steps_left == left_q);
        assume (!leaves || mac_q);
        assume (!(\dut.ctl_here && \dut.ctl_next == the_tag) || (queued_q && ctl));
        assume (!(\dut.data_here && \dut.data_next == the_tag) || (queued_q && !ctl));
        assume (!(\dut.gone_here && \dut.gone_tag == the_tag) || gone_q);
        assume (!(\dut.dead_here && \dut.dead_tag == the_tag) || dead_q);
        assume (\dut.unused_room && \dut.unused_room2 && \dut.unused_room3 );
        assume (!room_q || \dut.dead_room );
        // A control frame has no reads, and goes.
        assume (!loaded_valid || loaded.tag[6:4] != 3'd0);
        assume (!open_valid || open.tag[6:4] != 3'd0 || !open.over);
        assume (!\dut.ctl_here || (\dut.ctl_next [6:4] == 3'd0 && !\dut.failed_q [\dut.ctl_next ]));
        assume (!\dut.data_here || \dut.data_next [6:4] != 3'd0);
    end

    // ---- its list -------------------------------------------------------------------------------------
    // LISTED: `listed_q` are the frames that were begun and have not passed the turn on; `points_q`: the one behind it is that
    // of the place; `last_q`: it is the last one of that list.
    logic [127:0]     listed_q, points_q;
    logic [2*QPS-1:0] last_q;
    logic [QW:0]      list_q;       // its own list
    logic             after_q;      // it goes after ...
    logic [6:0]       before_q;     // ... this one
    wire  [QW:0] l    = \dut.list ;
    wire  [6:0]  last = \dut.latest ;
    wire         any  = \dut.any_q [l];
    wire         data = open_valid && open.tag[6:4] != 3'd0;
    wire [127:0] ahead = listed_q & \dut.follows_q & points_q;
    always_ff @(posedge clk) begin
        if (\dut.pass ) listed_q[\dut.pass_tag_q ] <= 1'b0;
        if (\dut.pass && \dut.pass_tag_q == before_q) after_q <= 1'b0;
        if (data) begin
            listed_q[open.tag] <= 1'b1;
            last_q[l]          <= opens;
            if (any) points_q[last] <= opens;
        end
        if (data && opens) {list_q, after_q, before_q} <= {l, any, last};
        if (rst) listed_q <= '0;
        if (rst) after_q <= 1'b0;
    end
    always_comb begin
        assume ((last == the_tag) == last_q[l]);
        assume ((\dut.pass_next == the_tag) == points_q[\dut.pass_tag_q ]);
        assume (\dut.pass_tag_q != the_tag || \dut.pass_list == list_q);
        // As shown below for the one that is looked at.
        assume (!\dut.pass_q || \dut.pass_tag_q == the_tag || listed_q[\dut.pass_tag_q ]);
        assume (!open_valid || opens || !listed_q[open.tag]);
        assume (!(data && any) || last == the_tag || (listed_q[last] && !\dut.follows_q [last]));
    end

    // ---- no byte in common --------------------------------------------------------------------------------
    logic [6:0]  at_tag_q;
    logic [17:0] at_q;
    always_ff @(posedge clk) {at_tag_q, at_q} <= {at_tag, at};
    function automatic logic [18:0] bytes(input logic [6:0] tag);
        bytes = tag[6] ? 19'd1280 : tag[4] ? 19'd4608 : 19'd512;
    endfunction
    function automatic logic is_place(input logic [6:0] tag);
        is_place = tag[6] || tag[6:4] == 3'd1 || tag[6:3] == 4'd0;
    endfunction

    always_comb if (!rst) begin
        assert (4'(free_q) + 4'(taken_q) + 4'(open_here_q) + 4'(queued_q) + 4'(at_m) + 4'(mac_q) + 4'(gone_q) + 4'(dead_q)
                + 4'(ending) == 4'd1);
        assert (!puts || (left_q == 5'd0 || (steps && left_q == 5'd1)));
        assert (!puts || ctl || !after_q || (\dut.pass && \dut.pass_tag_q == before_q));
        assert (!\dut.dead_put || \dut.dead_room );
        assert (!(at_m && fs_valid) || (fs.tag == {1'b0, the_tag} && !failed_q));
        assert (!is_place(at_tag) || !is_place(at_tag_q) || at_tag == at_tag_q
                || {1'b0, at} + bytes(at_tag) <= {1'b0, at_q} || {1'b0, at_q} + bytes(at_tag_q) <= {1'b0, at});
        // LISTED.
        assert (!(\dut.pass_q && \dut.pass_tag_q == the_tag) || (listed_q[the_tag] && (at_m || mac_q || gone_q || dead_q)));
        assert (!listed_q[the_tag] || (!ctl && (open_here_q || queued_q
                || (\dut.pass_q && \dut.pass_tag_q == the_tag))));
        for (int i = 0; i < 2*QPS; i++)
            assert (!(\dut.any_q [i] && last_q[i]) || (listed_q[the_tag] && !\dut.follows_q [the_tag] && list_q == (QW+1)'(i)));
        // For the proof.
        assert (!(open_here_q || queued_q || at_m) || (\dut.failed_q [the_tag] == failed_q && (ctl || listed_q[the_tag]
                || (at_m && !(\dut.pass_q && \dut.pass_tag_q == the_tag)))));
        assert (\dut.op_q != 2'd3);
        assert (!at_m || \dut.m_shown_q == !failed_q);
        assert (!(ctl && (open_here_q || queued_q)) || !failed_q);
        assert (!open_here_q || \dut.whole_q [the_tag] == (left_q == 5'd0));
        assert (!(open_here_q && ctl) || left_q != 5'd0);
        assert (!(open_here_q && !ctl) || (\dut.turn_q [the_tag] == !after_q && !(\dut.turn_q [the_tag] && left_q == 5'd0)));
        assert (!after_q || (open_here_q && !ctl));
        assert (ahead == (after_q ? 128'd1 << before_q : '0));
        assert (!\dut.pass_q || (\dut.pass_tag_q [6:4] != 3'd0));
        assert (!(\dut.m_busy_q && !\dut.m_shown_q ) || (\dut.pass_q && \dut.dead_room ));
    end
endmodule
