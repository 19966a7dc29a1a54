// SPDX-License-Identifier: Apache-2.0 OR MIT
// The table of keys (berth_fp_keys), for any place of it, from a reset on:
// * an access is let in only if firmware's last word on that place was this key, bound, of this domain, with this right, and
//   all bytes of the access lie in its range; and such an access to a key that is no one-shot key is never refused;
// * between two stores of a one-shot key all accesses that are let in and claim it are of one QP and one right, and once that
//   operation is over none is let in but what is asked for again, and the next part of a READ;
// * an answer comes two clocks after its question, and no other time.
//
// The table's memories are free (queue_free.sv), but for the place that is looked at: what is read there is what was
// written last. Likewise what a QP denies: for one QP, any.
module fp_keys_proof #(
    parameter KEYS = 4096,
    parameter PW = $clog2(KEYS),
    parameter QPS = 64,
    parameter QW = $clog2(QPS)
) (
    input logic                     clk, rst_in,
    input logic                     cmd_valid, cmd_store, over_valid, ask_valid, start,
    input logic [QW-1:0]            start_q,
    input logic [2:0]               start_denies,
    input logic [15:0]              cmd_place,
    input berth_card_pkg::key_t     cmd,
    input berth_card_pkg::key_use_t over,
    input berth_card_pkg::access_t  ask
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic cmd_ready, over_ready, ask_ready, told_valid;
    berth_card_pkg::admission_t told;
    berth_fp_keys #(.KEYS(KEYS), .QPS(QPS)) dut (.clk(clk), .rst(rst),
        .start(start), .start_q(start_q), .start_denies(start_denies),
        .cmd_valid(cmd_valid), .cmd_ready(cmd_ready), .cmd_store(cmd_store), .cmd_place(cmd_place), .cmd(cmd),
        .over_valid(over_valid), .over_ready(over_ready), .over(over),
        .ask_valid(ask_valid), .ask_ready(ask_ready), .ask(ask), .told_valid(told_valid), .told(told));

    // As in berth_fp_keys.
    localparam logic [1:0] CLEAR = 2'd0, IDLE = 2'd1, READ = 2'd2, TELL = 2'd3;
    localparam logic [1:0] OP_ASK = 2'd0, OP_OVER = 2'd1, OP_LOAD = 2'd2;
    typedef struct packed {
        logic        taken, over;
        logic [1:0]  right;
        logic [15:0] qpn;
        logic [23:0] psn;
        logic [24:0] packets;
        logic [63:0] last;
    } claim_t;
    localparam EW = $bits(cmd), CW = 2 + 2 + 16 + 24 + 25 + 64, AW = $bits(ask);
    (* hierconn *) wire [1:0]    \dut.state_q ;
    (* hierconn *) wire [1:0]    \dut.op_q ;
    (* hierconn *) wire [PW-1:0] \dut.clear_q ;
    (* hierconn *) wire [PW-1:0] \dut.place_q ;
    (* hierconn *) wire [PW-1:0] \dut.write_at ;
    (* hierconn *) wire [EW-1:0] \dut.entry ;
    (* hierconn *) wire [EW-1:0] \dut.entry_new ;
    (* hierconn *) wire [CW-1:0] \dut.claim ;
    (* hierconn *) wire [CW-1:0] \dut.claim_q ;
    (* hierconn *) wire [AW-1:0] \dut.a_q ;
    (* hierconn *) wire [63:0]   \dut.last_q ;
    (* hierconn *) wire [63:0]   \dut.before_q ;
    (* hierconn *) wire \dut.entry_we , \dut.claim_we , \dut.claims , \dut.wraps_q , \dut.known_q , \dut.of_domain_q ,
        \dut.bound_q , \dut.in_range_q , \dut.allowed_q , \dut.one_shot_q , \dut.fresh_q , \dut.repeats_q , \dut.begins_q ,
        \dut.goes_on_q , \dut.part_of_q ;
    (* hierconn *) wire [7:0] \dut.asid_q ;
    (* hierconn *) wire [2:0] \dut.denies ;

    (* anyconst *) logic [PW-1:0] the_place;

    // ---- the place in memory: what was written last is what is read --------------------------------
    logic [EW-1:0] entry_s;
    logic [CW-1:0] claim_s;
    wire written = \dut.write_at == the_place;
    always_ff @(posedge clk) begin
        if (\dut.entry_we && written) entry_s <= \dut.entry_new ;
        if (\dut.claim_we && written) claim_s <= \dut.claims ? \dut.claim_q : '0;
    end
    wire here = \dut.place_q == the_place;
    always_comb assume (!(\dut.state_q == READ && here) || (\dut.entry == entry_s && \dut.claim == claim_s));

    // ---- what the QP denies ---------------------------------------------------------------------------
    (* anyconst *) logic [QW-1:0] the_qp;
    logic [2:0] denies_s, denied_s;      // now; when it was asked
    wire by_qp = asked_s.qpn[QW-1:0] == the_qp;
    always_ff @(posedge clk) begin
        if (start && start_q == the_qp) denies_s <= start_denies;
        if (ask_valid && ask_ready) denied_s <= denies_s;
    end
    always_comb assume (!(\dut.state_q == READ && \dut.op_q == OP_ASK && by_qp) || \dut.denies == denied_s);

    // ---- firmware's last word on the place, and what has been let in since ---------------------------
    berth_card_pkg::key_t key_s;
    berth_row_pkg::recv_key_scope_t scope_s;
    logic used_s, over_s;
    logic [15:0] used_qpn_s;
    logic [1:0] used_right_s;
    wire stored = cmd_valid && cmd_ready && cmd_store && cmd_place[PW-1:0] == the_place;
    wire let_in = told_valid && told.refusal == berth_row_pkg::KEY_OK && here && \dut.one_shot_q && asked_s.claim;
    claim_t claim;
    assign claim   = claim_s;
    assign scope_s = key_s.scope;
    wire [23:0] over_ahead = over_key_s.psn - claim.psn;
    wire ends = \dut.state_q == TELL && \dut.op_q == OP_OVER && here && key_s.key == over_key_s.key && scope_s.live
        && claim.taken && claim.qpn == over_key_s.qpn && {1'b0, over_ahead} < claim.packets;
    always_ff @(posedge clk) begin
        if (let_in) begin
            used_s       <= 1'b1;
            used_qpn_s   <= asked_s.qpn;
            used_right_s <= asked_s.right;
            // the next part of a READ
            if (!asked_s.again && asked_s.psn != claim.psn) over_s <= 1'b0;
        end
        if (ends) over_s <= 1'b1;
        if (stored) {key_s, used_s, over_s} <= {cmd, 2'b00};
        if (rst) {key_s, used_s, over_s} <= '0;
    end

    // ---- questions ------------------------------------------------------------------------------------
    berth_card_pkg::access_t asked_s, at_hand;
    berth_card_pkg::key_use_t over_key_s;
    logic [1:0] age_q;      // clocks since the question
    assign at_hand = \dut.a_q ;
    always_ff @(posedge clk) begin
        age_q <= ask_valid && ask_ready ? 2'd1 : age_q == 2'd1 ? 2'd2 : 2'd0;
        if (ask_valid && ask_ready) asked_s <= ask;
        if (over_valid && over_ready) over_key_s <= over;
        if (rst) age_q <= '0;
    end
    wire [64:0] last = {1'b0, asked_s.va} + 65'(asked_s.len - 32'd1);
    wire [2:0] rights = scope_s.rights & ~denied_s;
    wire right_here = rights[0] && asked_s.right == 2'd0 || rights[1] && asked_s.right == 2'd1
        || rights[2] && asked_s.right == 2'd2;
    wire fits = scope_s.live && key_s.key == asked_s.key && scope_s.domain == asked_s.domain && scope_s.bound
        && asked_s.va >= key_s.first && !last[64] && last[63:0] <= key_s.last && right_here;
    wire ok = told.refusal == berth_row_pkg::KEY_OK;
    wire next_part = !asked_s.again && asked_s.right == 2'd0 && asked_s.psn != claim.psn;
    always_comb if (!rst) begin
        assert (told_valid == (age_q == 2'd2));
        if (told_valid && here && by_qp) begin
            assert (!ok || (fits && told.asid == scope_s.asid));
            assert (!fits || scope_s.one_shot || ok);
            if (ok && scope_s.one_shot) begin
                assert (!used_s || (used_qpn_s == asked_s.qpn && used_right_s == asked_s.right));
                assert (!over_s || asked_s.again || next_part);
            end
        end
    end

    // ---- for the proof ----------------------------------------------------------------------------------
    wire ask_now  = \dut.op_q == OP_ASK && \dut.state_q >= READ;
    wire over_now = \dut.op_q == OP_OVER && \dut.state_q >= READ;
    wire cleared  = \dut.state_q != CLEAR || \dut.clear_q > the_place;
    always_comb if (!rst) begin
        assert (age_q != 2'd3 && (age_q == 2'd1) == (\dut.op_q == OP_ASK && \dut.state_q == READ)
            && (age_q == 2'd2) == (\dut.op_q == OP_ASK && \dut.state_q == TELL));
        // The table has what firmware has stored, and its claim is who was let in.
        assert (!cleared || entry_s == key_s);
        assert (!cleared || (claim.taken == used_s && (!used_s || (claim.qpn == used_qpn_s && claim.right == used_right_s))));
        assert (!cleared || !used_s || claim.over == over_s);
        assert (used_s || !over_s);
        assert (\dut.state_q != CLEAR || key_s == '0 && !used_s);
        assert (!ask_now || (at_hand == asked_s && \dut.last_q == last[63:0] && \dut.wraps_q == last[64]
            && \dut.before_q == asked_s.va - 64'd1 && \dut.place_q == asked_s.key[8+:PW]));
        assert (!over_now || (at_hand.qpn == over_key_s.qpn && at_hand.key == over_key_s.key && at_hand.psn == over_key_s.psn
            && \dut.place_q == over_key_s.key[8+:PW]));
        // What was compared.
        if (here && \dut.state_q == TELL && ask_now) begin
            assert (\dut.known_q == (scope_s.live && key_s.key == asked_s.key) && \dut.of_domain_q == (scope_s.domain == asked_s.domain)
                && \dut.bound_q == scope_s.bound && \dut.one_shot_q == scope_s.one_shot && \dut.asid_q == scope_s.asid
                && (!by_qp || \dut.allowed_q == right_here));
            assert (\dut.in_range_q == (asked_s.va >= key_s.first && !last[64] && last[63:0] <= key_s.last));
            assert (\dut.fresh_q == (!used_s && !asked_s.again));
            assert (!\dut.repeats_q || (used_s && used_qpn_s == asked_s.qpn && used_right_s == asked_s.right && asked_s.again));
            assert (!\dut.begins_q || (used_s && used_qpn_s == asked_s.qpn && used_right_s == asked_s.right && !over_s
                && asked_s.psn == claim.psn));
            assert (!\dut.goes_on_q || (used_s && used_qpn_s == asked_s.qpn && used_right_s == asked_s.right && next_part));
        end
        if (here && \dut.state_q == TELL && over_now)
            assert ((\dut.known_q && \dut.part_of_q ) == ends);
        if (here && \dut.state_q == TELL && (ask_now || over_now)) begin
            assert (!claim_new.taken || 1'b1);
            assert (!ask_now || (claim_new.taken && !claim_new.over && claim_new.qpn == asked_s.qpn && claim_new.right == asked_s.right
                && claim_new.psn == (claim.taken ? claim.psn : asked_s.psn) && claim_new.packets != '0));
            assert (!over_now || claim_new == {claim.taken, 1'b1, claim[CW-3:0]});
        end
        // A claim has packets, so that a part behind it is none of its beginning.
        assert (!cleared || !claim.taken || claim.packets != '0);
    end
    claim_t claim_new;
    assign claim_new = \dut.claim_q ;
    // An access takes at least one PSN.
    always_comb assume (!ask_valid || ask.packets != '0);
endmodule
