// SPDX-License-Identifier: Apache-2.0 OR MIT
// Credits are conserved at the receiver (berth_fp_builder), for any QP, from its start on: credits posted = landed + listed
// and not landed + committed and not listed + posted and not committed, each of them 0 to 128.
// * Each credit goes into exactly one new list, in order, and only when its batch is committed; a list has 1 to its largest
//   number of them.
// * No new list before data have landed in the first credit of the last one (CR-11), and in that of the trigger (CR-5).
// * What is told again is the last list, and only without that proof.
// * A list is told whole, with the epoch of its numbers; a credit's size is the one that was posted, unless data have
//   landed in it: then its sender has had it.
// * Arrival hears of a credit when it is listed, and not before.
//
// What is posted and what has landed is free within these bounds, and so are the rows and sizes: of the QP and the credit
// that are looked at, they are what was stored last.
module fp_builder_proof #(
    parameter QPS = 64,
    parameter QW = $clog2(QPS)
) (
    input logic          clk, rst_in,
    input logic          cmd_valid, post_valid, landed_valid, lfr_ready, hurry,
    input logic [31:0]   now,
    input berth_card_pkg::builder_step_t cmd,
    input logic [QW-1:0] cmd_q, post_q, landed_q, use_ask_q,
    input berth_card_pkg::landed_t landed,
    input berth_card_pkg::post_t post
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic          cmd_ready, ann_we, lfr_valid;
    logic [QW-1:0] ann_q, lfr_q;
    logic [31:0]   ann_number;
    berth_card_pkg::list_out_t lfr;
    berth_fp_builder #(.QPS(QPS)) dut (.clk(clk), .rst(rst), .now(now),
        .cmd_valid(cmd_valid), .cmd_ready(cmd_ready), .cmd_q(cmd_q), .cmd(cmd),
        .post_valid(post_valid), .post_q(post_q), .post(post), .landed_valid(landed_valid), .landed_q(landed_q),
        .landed(landed), .use_ask_q(use_ask_q),
        .ann_we(ann_we), .ann_q(ann_q), .ann_number(ann_number),
        .lfr_valid(lfr_valid), .lfr_ready(lfr_ready), .lfr_q(lfr_q), .lfr(lfr), .told_room(1'b1), .hurry(hurry));

    // As in berth_fp_builder.
    typedef struct packed {
        logic        on, foreign, hold;
        logic [31:0] posted, committed, announced, landed, list_first, trigger_at;
        logic        list_sent;
        logic [31:0] epoch;
        logic [6:0]  max_list, few;
        logic [2:0]  trigger;
        logic [7:0]  index;
        logic        timed, told, stream;
        logic [31:0] due;
        logic [15:0] again, pause;
        logic [31:0] stamp, left;
        logic [26:0] round;
        logic        early, capped;
        logic [7:0]  withheld;
    } row_t;
    row_t stored_q, read_q;
    localparam RW = $bits(stored_q);
    localparam logic [2:0] POST = 3'd0, LANDED = 3'd1, LIST = 3'd2, TIMER = 3'd3, COMMAND = 3'd4, PASS = 3'd5;
    (* hierconn *) wire [RW-1:0] \dut.r ;
    (* hierconn *) wire [RW-1:0] \dut.row ;
    (* hierconn *) wire [2:0]    \dut.op_q ;
    (* hierconn *) wire [4:0]    \dut.cmd_op_q ;
    (* hierconn *) wire [31:0]   \dut.first_q ;
    (* hierconn *) wire [31:0]   \dut.size_q ;
    (* hierconn *) wire [QW-1:0] \dut.q_q ;
    (* hierconn *) wire [QW-1:0] \dut.q_next ;
    (* hierconn *) wire [QW-1:0] \dut.p_q ;
    (* hierconn *) wire [QW-1:0] \dut.l_q ;
    localparam PW = $bits(post);
    (* hierconn *) wire [PW-1:0] \dut.p ;
    berth_card_pkg::post_t p;               // that is taken next
    assign p = \dut.p ;
    localparam LW = $bits(landed);
    (* hierconn *) wire [LW-1:0] \dut.l ;
    berth_card_pkg::landed_t l;
    assign l = \dut.l ;
    (* hierconn *) wire [LW-1:0] \dut.said_q ;
    berth_card_pkg::landed_t said;          // of the piece in work
    assign said = \dut.said_q ;
    (* hierconn *) wire [31:0]   \dut.tell_first ;
    (* hierconn *) wire [6:0]    \dut.tell_len ;
    (* hierconn *) wire [6:0]    \dut.left_q ;
    (* hierconn *) wire [6:0]    \dut.at_q ;
    (* hierconn *) wire [31:0]   \dut.g_sizes[0].m_sizes.content ;
    (* hierconn *) wire [31:0]   \dut.g_sizes[1].m_sizes.content ;
    (* hierconn *) wire [31:0]   \dut.g_sizes[0].m_sizes.wdata ;
    (* hierconn *) wire [31:0]   \dut.g_sizes[1].m_sizes.wdata ;
    (* hierconn *) wire [QW+5:0] \dut.g_sizes[0].m_sizes.waddr ;
    (* hierconn *) wire [QW+5:0] \dut.g_sizes[1].m_sizes.waddr ;
    (* hierconn *) wire [QW+5:0] \dut.g_sizes[0].m_sizes.raddr ;
    (* hierconn *) wire [QW+5:0] \dut.g_sizes[1].m_sizes.raddr ;
    (* hierconn *) wire \dut.g_sizes[0].m_sizes.we , \dut.g_sizes[1].m_sizes.we , \dut.g_sizes[0].m_sizes.re ,
        \dut.g_sizes[1].m_sizes.re , \dut.odd_q ;
    berth_card_pkg::pass_t pass;            // of withheld credits
    localparam AW = $bits(pass);
    (* hierconn *) wire [AW-1:0] \dut.pass ;
    assign pass = \dut.pass ;
    (* hierconn *) wire \dut.pass_good ;
    (* hierconn *) wire [QPS-1:0] \dut.started_q ;
    (* hierconn *) wire \dut.take , \dut.we , \dut.run_q , \dut.p_pop , \dut.l_pop ,
        \dut.tell , \dut.head_q , \dut.there_q , \dut.credit_q , \dut.commit_q , \dut.early_q ;

    (* anyconst *) logic [QW-1:0] the_q;
    (* anyconst *) logic [31:0]   the_n;    // a credit

    // ---- the row and the size in memory -----------------------------------------------------------
    wire         here = \dut.q_q == the_q;
    logic [31:0] kept_q;
    // The memory that has the size.
    wire [QW+5:0] the_at  = {the_q, the_n[6:1]};
    wire          stores  = the_n[0] ? \dut.g_sizes[1].m_sizes.we && \dut.g_sizes[1].m_sizes.waddr == the_at
                                     : \dut.g_sizes[0].m_sizes.we && \dut.g_sizes[0].m_sizes.waddr == the_at;
    wire          reads   = the_n[0] ? \dut.g_sizes[1].m_sizes.re && \dut.g_sizes[1].m_sizes.raddr == the_at
                                     : \dut.g_sizes[0].m_sizes.re && \dut.g_sizes[0].m_sizes.raddr == the_at;
    wire [31:0]   content = the_n[0] ? \dut.g_sizes[1].m_sizes.content : \dut.g_sizes[0].m_sizes.content ;
    wire [31:0]   wdata   = the_n[0] ? \dut.g_sizes[1].m_sizes.wdata : \dut.g_sizes[0].m_sizes.wdata ;
    always_ff @(posedge clk) begin
        if (\dut.we && here) stored_q <= \dut.r ;
        if (\dut.take && \dut.q_next == the_q) read_q <= stored_q;
        if (stores) kept_q <= wdata;
    end
    always_comb begin
        assume (!(\dut.run_q && here) || \dut.row == read_q);
        assume (!reads || content == kept_q);
        assume (cmd.max_list != 7'd0 && cmd.max_list <= 7'd64);
    end

    // ---- what happens to the QP's credits ------------------------------------------------------------
    logic        starts, ends, voids, reclaims, holds, unposts, changes, caps, posts, commits, early, lands, on_q, foreign_q;    // in the clock after it was taken
    logic [31:0] void_q, size_q;
    always_ff @(posedge clk) begin
        starts  <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_START && !rst;
        voids   <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_VOID && !rst;
        reclaims <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_RECLAIM && !rst;
        holds   <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_HOLD && !rst;
        unposts <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_UNPOST && !rst;
        ends    <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_END && !rst;
        caps    <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_CAP && !rst;
        changes <= cmd_valid && cmd_ready && cmd_q == the_q && cmd.op == berth_row_pkg::STEP_LISTS && !rst;
        posts   <= \dut.p_pop && \dut.p_q == the_q && p.credit&& !rst;
        commits <= \dut.p_pop && \dut.p_q == the_q && p.commit&& !rst;
        early   <= p.early;
        lands   <= \dut.l_pop && \dut.l_q == the_q && l.begins && !rst;
        void_q  <= cmd.first;
        size_q  <= p.size;
    end
    wire works = \dut.run_q && here;
    // Withheld credits may be announced, as many as the engine for it likes; a maximum comes or goes.
    wire passes = works && \dut.op_q == PASS && \dut.pass_good ;
    wire capped = alive_q && cmd.epoch[30:0] != '0;
    logic alive_q, capped_q;
    logic [31:0] batch_q;                       // posted, in whole batches
    wire tells = \dut.tell && here;
    logic [31:0] posted_q, committed_q, listed_q, landed_n_q, epoch_q;
    wire         news  = tells && \dut.tell_first == listed_q;      // a new list
    wire  [6:0]  n     = \dut.tell_len ;
    wire  [31:0] after = posted_q + 32'(posts);
    logic [6:0]  max_q;
    logic [2:0]  policy_q;
    logic [7:0]  index_q;
    // The buffer that the trigger is of a list of `n`.
    logic [6:0]  chosen;
    always_comb begin
        case (policy_q)
            berth_row_pkg::TRIGGER_FIRST:    chosen = 7'd0;
            berth_row_pkg::TRIGGER_LAST:     chosen = n - 7'd1;
            berth_row_pkg::TRIGGER_QUARTERS: chosen = 7'(9'(n) * 9'(index_q[1:0]) >> 2);
            berth_row_pkg::TRIGGER_BEHIND:   chosen = index_q >= 8'(n) ? 7'd0 : n - 7'd1 - index_q[6:0];
            default:                         chosen = index_q >= 8'(n) ? n - 7'd1 : index_q[6:0];
        endcase
        if (early_q && policy_q > berth_row_pkg::TRIGGER_BETWEEN) chosen = 7'd0;
    end
    wire         backs = voids || reclaims;     // credits from this number on are void
    wire  [31:0] back  = reclaims ? landed_n_q : void_q;
    // Without a maximum, whole batches are committed at once.
    wire         frees = (commits && !capped_q) || passes || (caps && capped_q && !capped);
    wire  [31:0] committed = backs ? back : unposts ? listed_q : passes ? committed_q + 32'(pass.n)
                           : commits && !capped_q ? after : caps && capped_q && !capped ? batch_q : caps && capped ? listed_q : committed_q;
    logic        held_q;
    logic        early_q;                       // some triggers are the first credit
    logic        proof_q, trigger_q;            // what the last list waits for
    logic [31:0] first_q, trigger_at_q;         // the last list
    logic [6:0]  n_q;
    always_ff @(posedge clk) begin
        on_q     <= !rst && (on_q || starts);
        posted_q <= backs ? back : unposts ? listed_q : after;
        if (commits) begin
            batch_q <= after;
            early_q <= early;
        end
        if (backs || unposts) batch_q <= backs ? back : listed_q;
        committed_q <= committed;
        listed_q <= backs ? back : news ? listed_q + 32'(n) : foreign_q && frees ? committed : listed_q;
        if (caps) capped_q <= capped;
        if (ends) {alive_q, capped_q} <= 2'b00;
        landed_n_q <= landed_n_q + 32'(lands);
        if (lands && landed_n_q == first_q) proof_q <= 1'b0;
        if (lands && landed_n_q == trigger_at_q) trigger_q <= 1'b0;
        if (news) begin
            proof_q      <= 1'b1;
            trigger_q    <= 1'b1;
            first_q      <= listed_q;
            n_q          <= n;
            trigger_at_q <= listed_q + 32'(chosen);
        end
        // The first credit counts at once, once its proof has come.
        if (changes && cmd.trigger == berth_row_pkg::TRIGGER_FIRST && (proof_q || trigger_q)) begin
            trigger_q    <= proof_q;
            trigger_at_q <= first_q;
        end
        if (changes) begin
            policy_q <= cmd.trigger;
            index_q  <= cmd.index;
        end
        if (backs || starts) begin
            proof_q   <= 1'b0;
            trigger_q <= 1'b0;
            held_q    <= 1'b0;
        end
        if (holds) held_q <= 1'b1;
        if (voids || starts) epoch_q <= cmd.epoch;
        if (starts) begin
            posted_q    <= '0;
            committed_q <= '0;
            batch_q     <= '0;
            {alive_q, capped_q} <= 2'b10;
            listed_q    <= '0;
            landed_n_q  <= '0;
            max_q       <= cmd.max_list;
            policy_q    <= cmd.trigger;
            index_q     <= cmd.index;
            early_q     <= 1'b0;
            foreign_q   <= cmd.foreign;
        end
    end
    // There is room where something is posted; data come for credits that are announced; a list is void from one of these on.
    wire [31:0] out = listed_q - landed_n_q;
    always_comb if (on_q) begin
        assume (!posts || posted_q - landed_n_q < 32'd128);
        assume (!lands || out != '0);
        assume (!voids || void_q - landed_n_q <= out);
    end

    // ---- the size of the credit that is looked at -----------------------------------------------------
    logic [31:0] the_size_q;
    wire         the_landed = the_n - landed_n_q >= posted_q - landed_n_q;   // or is not posted
    always_ff @(posedge clk) if (posts && posted_q == the_n) the_size_q <= size_q;

    // ---- the list that is being told --------------------------------------------------------------
    // It is void when its QP has begun anew since, or its numbers.
    logic       void_list_q, told_q;
    logic [6:0] taken_q;            // sizes taken
    logic [31:0] ann_last_q;
    wire  going = lfr_valid || \dut.left_q != 7'd0;
    wire  list_here = going && lfr_q == the_q && !void_list_q;
    wire  [6:0] before = lfr.first_beat ? 7'd0 : taken_q;
    wire  [6:0] shown = lfr.n - before == 7'd1 ? 7'd1 : 7'd2;
    wire [31:0] number = lfr.first + 32'(before);       // of the first size that is shown
    wire        wrong = (number == the_n && lfr.sizes[31:0] != the_size_q)
                        || (shown == 7'd2 && number + 32'd1 == the_n && lfr.sizes[63:32] != the_size_q);
    always_ff @(posedge clk) begin
        if (tells) void_list_q <= 1'b0;
        if (starts || backs || rst) void_list_q <= 1'b1;
        if (lfr_valid && lfr_ready) taken_q <= lfr.first_beat ? 7'd0 : taken_q + shown;
        if (ann_we && ann_q == the_q) ann_last_q <= ann_number;
    end

    always_comb if (!rst && on_q) begin
        assert (batch_q - landed_n_q <= posted_q - landed_n_q && committed_q - landed_n_q <= batch_q - landed_n_q);
        assert (posted_q - landed_n_q <= 32'd128 && committed_q - landed_n_q <= posted_q - landed_n_q
                && out <= committed_q - landed_n_q);
        assert (!tells || (n != 7'd0 && n <= max_q && !foreign_q));
        assert (!news || (32'(n) <= committed_q - listed_q && !proof_q && !trigger_q));
        assert (!tells || news || (\dut.tell_first == first_q && n == n_q && proof_q));
        // A peer without lists may use nothing more while that is held.
        assert (foreign_q && held_q ? listed_q - ann_last_q <= 32'd128 : ann_last_q == listed_q);
        assert (!(lfr_valid && !lfr.first_beat) || taken_q < lfr.n);
        assert (!list_here || (lfr.first == first_q && lfr.n == n_q && lfr.epoch == epoch_q));
        assert (!(list_here && lfr_valid && !lfr.first_beat && !the_landed && wrong));
        // For the proof.
        assert (stored_q.posted == posted_q && stored_q.committed == committed_q && stored_q.announced == listed_q
                && stored_q.landed == landed_n_q && stored_q.epoch == epoch_q && stored_q.max_list == max_q
                && stored_q.trigger == policy_q && stored_q.index == index_q && stored_q.early == early_q && stored_q.foreign == foreign_q
                && stored_q.hold == held_q && stored_q.on == alive_q && stored_q.capped == capped_q);
        assert (\dut.started_q [the_q]);
        assert (capped_q ? alive_q && 32'(stored_q.withheld) == batch_q - committed_q : !alive_q || committed_q == batch_q);
        assert (stored_q.list_sent == (proof_q || trigger_q));
        assert (!stored_q.list_sent || (stored_q.list_first == first_q && stored_q.trigger_at == trigger_at_q
                && listed_q == first_q + 32'(n_q) && n_q != 7'd0 && n_q <= max_q && trigger_at_q - first_q < 32'(n_q)
                && proof_q == (landed_n_q - first_q - 32'd1 >= 32'd128) && trigger_q == (landed_n_q - trigger_at_q - 32'd1 >= 32'd128)));
        assert (!(\dut.run_q && here) || read_q == stored_q);
        assert (!foreign_q || (!list_here && listed_q == committed_q && !proof_q && !trigger_q));
        assert (max_q != 7'd0 && max_q <= 7'd64);
        assert (!list_here || (listed_q == first_q + 32'(n_q) && n_q <= 7'd64));
        assert (the_landed || kept_q == the_size_q);
        assert (!(list_here && \dut.there_q && !the_landed && wrong));
    end
    always_comb if (!rst) begin
        assert (\dut.op_q <= PASS || !\dut.run_q );
        assert (!\dut.run_q || (\dut.op_q != LIST && \dut.op_q != TIMER) || !going);
        assert (starts == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_START));
        assert (voids == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_VOID));
        assert (reclaims == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_RECLAIM));
        assert (holds == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_HOLD));
        assert (unposts == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_UNPOST));
        assert (ends == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_END));
        assert (caps == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_CAP));
        assert (changes == (works && \dut.op_q == COMMAND && \dut.cmd_op_q == berth_row_pkg::STEP_LISTS));
        assert (posts == (works && \dut.op_q == POST && \dut.credit_q ));
        assert (commits == (works && \dut.op_q == POST && \dut.commit_q ));
        if (commits) assert (early == \dut.early_q );
        assert (lands == (works && \dut.op_q == LANDED && said.begins));
        assert (void_q == \dut.first_q && size_q == \dut.size_q );
        assert (!going || 9'(before) + 9'(\dut.left_q ) + (\dut.there_q ? 9'(shown) : 9'd0) == 9'(lfr.n));
        assert (!\dut.there_q || before < lfr.n);
        assert (!\dut.there_q || \dut.odd_q == number[0]);
        assert (!going || \dut.left_q == 7'd0 || lfr.first[6:0] + lfr.n - \dut.left_q == \dut.at_q );
    end
endmodule
