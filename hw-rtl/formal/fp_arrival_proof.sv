// SPDX-License-Identifier: Apache-2.0 OR MIT
// The receiver's PSN window (berth_fp_arrival), for any QP and any PSN, from the start of the QP on:
// * a packet is accepted only if it lies within the window of the oldest that is not in place, and so are all of a READ;
// * no PSN is accepted twice while it is in the window or behind it, nor is its payload given away twice;
// * the window moves by one, and past a packet only if that was accepted and is in place;
// * the bitmaps say so: `seen` what was accepted, `in_place` what of it has been reported; `fol` ends at the first hole.
//
// Receives, records and announced credits are free (queue_free.sv has their memories), and so are the rows: of the
// QP that is looked at, its row is what was stored last.
// The card has WB = 8; with 7 the proof takes a fraction of the time, and no line of the design knows which it is.
module fp_arrival_proof #(
    parameter QPS = 64,
    parameter WB = 7,
    parameter W = 1 << WB,
    parameter QW = $clog2(QPS),
    parameter LR = $clog2(berth_regs_pkg::MAX_READS)
) (
    input logic              clk, rst_in,
    input logic              cmd_valid, ann_we, ring_we, item_valid, placed_valid, placed_err,
    input berth_card_pkg::arrival_step_t cmd,
    input logic [QW-1:0]     cmd_q, ann_q, ring_q, placed_q, item_q,
    input logic [23:0]       placed_psn,
    input logic [31:0]       ann_number,
    input logic [6:0]        ring_at,
    input berth_card_pkg::ring_t    ring,
    input berth_card_pkg::arrival_t item,
    input logic              place_ready, landed_ready, done_ready, afr_ready, broken_ready,
        claim_ready, claimed_valid, over_ready,
    input logic [2:0]        claimed_refusal,
    input logic              claimed_one_shot, answered_valid,
    input logic [LR:0]       st_reads, st_agains,
    input logic              read_held_ready,
    input logic [QW-1:0]     answered_q,
    input berth_card_pkg::answered_t answered
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic               place_valid;
    logic [QW-1:0]      place_q;
    berth_card_pkg::placement_t place;
    berth_fp_arrival #(.QPS(QPS), .WB(WB)) dut (.clk(clk), .rst(rst),
        .cmd_valid(cmd_valid), .cmd_q(cmd_q), .cmd(cmd),
        .ann_we(ann_we), .ann_q(ann_q), .ann_number(ann_number),
        .ring_we(ring_we), .ring_q(ring_q), .ring_at(ring_at), .ring(ring),
        .item_valid(item_valid), .item_q(item_q), .item(item),
        .placed_valid(placed_valid), .placed_q(placed_q), .placed_psn(placed_psn), .placed_err(placed_err),
        .place_valid(place_valid), .place_ready(place_ready), .place_q(place_q), .place(place), .landed_ready(landed_ready),
        .done_ready(done_ready), .afr_ready(afr_ready), .broken_ready(broken_ready), .claim_ready(claim_ready),
        .claimed_valid(claimed_valid), .claimed_refusal(claimed_refusal), .claimed_one_shot(claimed_one_shot),
        .st_reads(st_reads), .st_agains(st_agains), .read_held_ready(read_held_ready), .answered_valid(answered_valid), .answered_q(answered_q), .answered(answered), .over_ready(over_ready));

    // As in berth_fp_arrival.
    typedef struct packed {
        logic         on, broken, selective, writes_in_order, foreign, ended, closed;
        logic [WB:0]  writing;
        logic [3:0]   log2_mtu;
        logic [7:0]   ack_every;
        logic [4:0]   rnr;
        logic [23:0]  placed;
        logic [W-1:0] seen, in_place;
        logic [WB:0]  fol;
        logic [31:0]  credit, complete;
        logic         begun, write;
        logic [23:0]  index;
        logic [7:0]   unacked;
        logic         ack_due;
        logic [1:0]   refusal;
        logic [4:0]   refusal_code;
        logic         refused;
        logic [23:0]  skipped, msn;
        logic [LR:0]  most;
        logic [LR+1:0] reads, agains;
        logic         of_again, waits;
    } row_t;
    row_t now, after;       // the row before and after this clock
    localparam RW = $bits(now);
    localparam logic [3:0] LOCATE = 4'd1, DECIDE = 4'd2, FOLLOW_READ = 4'd3, FOLLOW = 4'd4, SETTLE = 4'd5, DRAIN_READ = 4'd6,
        DRAIN = 4'd7, CLAIM = 4'd8, CLAIMED = 4'd9;
    localparam logic [1:0] OP_PACKET = 2'd0, OP_PLACED = 2'd1, OP_CMD = 2'd3;
    localparam logic [3:0] V_PLACE = 4'd0;
    (* hierconn *) wire [3:0]    \dut.state_q ;
    (* hierconn *) wire [1:0]    \dut.op_q ;
    (* hierconn *) wire [4:0]    \dut.cmd_op_q ;
    (* hierconn *) wire [3:0]    \dut.verdict_q ;
    (* hierconn *) wire [QW-1:0] \dut.q_q ;
    (* hierconn *) wire [QW-1:0] \dut.q_next ;
    (* hierconn *) wire [23:0]   \dut.psn_q ;
    localparam ITEM_W = $bits(item);
    localparam AW = $bits(answered);
    (* hierconn *) wire [ITEM_W-1:0] \dut.p_q ;
    berth_card_pkg::arrival_t at_hand;
    assign at_hand = \dut.p_q ;
    (* hierconn *) wire [RW-1:0] \dut.r_q ;
    (* hierconn *) wire [RW-1:0] \dut.f ;
    (* hierconn *) wire [RW-1:0] \dut.r ;
    (* hierconn *) wire [RW-1:0] \dut.row ;
    (* hierconn *) wire [RW-1:0] \dut.ram_row ;
    (* hierconn *) wire [WB:0]   \dut.run_q ;
    (* hierconn *) wire [WB:0]   \dut.walk_q ;
    (* hierconn *) wire [23:0]   \dut.at_q ;
    (* hierconn *) wire \dut.same_q , \dut.take , \dut.go , \dut.row_we , \dut.rec_we , \dut.err_q , \dut.old_q ,
        \dut.beyond_q , \dut.seen_q , \dut.order_q , \dut.want_read , \dut.extent_q , \dut.fits_q , \dut.known ,
        \dut.answered_now_q ;
    (* hierconn *) wire [AW-1:0] \dut.a_q ;
    berth_card_pkg::answered_t answered_now;
    assign answered_now = \dut.a_q ;
    (* hierconn *) wire [W-1:0]  \dut.span_q ;
    (* hierconn *) wire [WB:0]   \dut.count_q ;

    (* anyconst *) logic [QW-1:0] the_q;
    (* anyconst *) logic [23:0]   the_psn;

    // ---- the row in memory -------------------------------------------------------------------
    logic [RW-1:0] stored_q, read_q;
    always_ff @(posedge clk) begin
        if (\dut.row_we && \dut.q_q == the_q) stored_q <= \dut.r ;
        read_q <= stored_q;
    end
    wire         here = \dut.q_q == the_q;
    wire         mine = here && \dut.state_q >= DECIDE;     // the row is in work
    always_comb assume (!(here && \dut.state_q == LOCATE) || \dut.ram_row == read_q);
    assign now   = mine ? \dut.r_q : stored_q;
    assign after = mine ? \dut.f : stored_q;

    // ---- what happens to the packet ------------------------------------------------------------
    wire step    = mine && \dut.go && \dut.state_q != FOLLOW_READ && \dut.state_q != DRAIN_READ
        && \dut.state_q < CLAIM;
    wire starts  = step && \dut.state_q == DECIDE && \dut.op_q == OP_CMD && \dut.cmd_op_q == berth_row_pkg::STEP_START;
    wire same    = \dut.psn_q == the_psn;
    wire accepts = step && \dut.state_q == DECIDE && \dut.op_q == OP_PACKET && \dut.rec_we ;
    // What is answered again was in place before.
    wire reports = step && \dut.state_q == DECIDE && \dut.op_q == OP_PLACED && !\dut.err_q && !(\dut.answered_now_q && answered_now.again);
    wire moves   = step && !starts && now.placed != after.placed;
    // A READ is accepted: the packet is one of its.
    wire reads   = step && \dut.state_q == DECIDE && \dut.op_q == OP_PACKET && \dut.want_read && !\dut.old_q ;
    wire [12:0] len = at_hand.len;
    wire gives   = place_valid && place_ready && place_q == the_q && place.psn == the_psn;

    logic on_q, taken_q, given_q, there_q;      // the QP was started; the packet was accepted, given away, is in place
    wire [23:0] pos    = the_psn - now.placed;
    wire        beyond = pos >= 24'(W) && !pos[23];    // and before it comes into the window again
    wire        taken  = taken_q && !beyond;
    wire        of_read = reads && pos < 24'(W) && (\dut.known ? same : \dut.span_q [pos[WB-1:0]]);
    wire        there  = (taken && there_q) || (accepts && same && len == '0) || (taken && reports && same);
    always_ff @(posedge clk) begin
        on_q    <= !rst && (on_q || starts);
        taken_q <= !starts && (taken || (accepts && same) || of_read);
        given_q <= !starts && ((taken && given_q) || gives);
        there_q <= !starts && there;
    end

    function automatic logic [WB:0] run_of(input logic [W-1:0] bits);
        run_of = (WB+1)'(W);
        for (int i = W; i > 0; i--) if (!bits[i-1]) run_of = (WB+1)'(i - 1);
    endfunction
    wire [WB:0] run     = run_of(now.seen);
    wire       follows  = mine && (\dut.state_q == FOLLOW_READ || \dut.state_q == FOLLOW);
    wire       drains   = mine && (\dut.state_q == DRAIN_READ || \dut.state_q == DRAIN);
    wire [23:0] at      = \dut.psn_q - now.placed;
    wire        claims  = \dut.state_q >= CLAIM;       // or how much a READ asks for is being found out
    logic [W-1:0] span;
    always_comb for (int i = 0; i < W; i++) span[i] = 24'(i) >= at && 24'(i) < at + 24'(\dut.count_q );

    always_comb if (!rst && on_q) begin
        assert (!accepts || \dut.psn_q - now.placed < 24'(W));
        assert (!(accepts && same && taken) && !(of_read && taken));
        assert (!gives || ((taken || (accepts && same)) && !(taken && given_q)));
        assert (!moves || after.placed == now.placed + 24'd1);
        assert (!(moves && now.placed == the_psn) || (taken || (accepts && same)) && there);
        assert (pos >= 24'(W) || now.seen[pos[WB-1:0]] == taken_q);
        assert (pos >= 24'(W) || now.in_place[pos[WB-1:0]] == (taken_q && there_q));
        assert ((now.in_place & ~now.seen) == '0);
        assert (now.fol <= run && (now.broken || follows || now.fol == run));
        // For the proof.
        assert (!here || \dut.state_q != LOCATE || \dut.row == stored_q);
        assert (!(mine && (\dut.state_q == DECIDE || claims))
                || (\dut.at_q == at && \dut.old_q == at[23] && \dut.beyond_q == (at >= 24'(W)) && \dut.run_q == run
                    && \dut.seen_q == (at < 24'(W) && now.seen[at[WB-1:0]]) && \dut.order_q == (at == 24'(run))
                    && now == stored_q));
        assert (!(mine && \dut.extent_q && (\dut.state_q == DECIDE || \dut.state_q == CLAIM || \dut.state_q == CLAIMED))
                || (\dut.span_q == span && \dut.fits_q == (at + 24'(\dut.count_q ) <= 24'(W) && (now.seen & span) == '0)));
        assert (!follows || (now.fol == \dut.walk_q && \dut.walk_q < run && \dut.op_q == OP_PACKET));
        assert (!drains || (now.in_place[0] && now.fol != '0));
        assert (!(mine && (\dut.state_q == SETTLE || claims)) || \dut.op_q == OP_PACKET);
        assert (\dut.op_q != OP_PACKET || \dut.state_q < LOCATE || at_hand.psn == \dut.psn_q );
        assert (!(follows || (mine && \dut.state_q == SETTLE)) || !same || \dut.verdict_q != V_PLACE || (taken && !given_q));
    end
endmodule
