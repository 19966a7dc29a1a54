// SPDX-License-Identifier: Apache-2.0 OR MIT
// The fast path: its two halves, and what stands between them and the card's engines. Pairs have
// the transmit half in the low bits.
module berth_fp #(
    parameter int unsigned DATA_W = 64,          // bits of a beat of the MAC
    parameter int unsigned HOST_W = 2 * DATA_W,  // bits of a beat of the host port
    parameter int unsigned QPS    = 128,         // rows, a power of two up to 1024; a QP's row is its QPN
    parameter int unsigned WB     = $clog2(berth_regs_pkg::FAST_PLACES)  // log2 of the windows' places: 5 to 8
) (
    input  logic                           clk,
    input  logic                           rst,
    output logic                           busy,
    output logic                           due,      // while not busy nothing happens before ...
    output logic [31:0]                    due_at,   // ... this time, if there is one
    input  logic [31:0]                    now,      // units of 64 clocks

    // core: rows, events
    input  logic                           fc_req,
    input  berth_card_pkg::row_access_t    fc,
    output logic                           fc_ack,
    output logic [31:0]                    fc_rdata,
    output logic                           fe_valid,
    output berth_row_pkg::fast_event_t    fe,
    input  logic                           fe_pop,

    // doorbells
    input  logic                           fdb_valid,
    output logic                           fdb_ready,
    input  berth_card_pkg::doorbell_t      fdb,

    // host side
    output logic                           load_valid,
    input  logic                           load_ready,
    output berth_card_pkg::payload_t       load,
    input  logic                           loaded_valid,
    input  berth_card_pkg::payload_end_t   loaded,
    output logic                           store_valid,
    input  logic                           store_ready,
    output berth_card_pkg::payload_t       store,
    input  logic                           stored_valid,
    input  berth_card_pkg::payload_end_t   stored,
    output logic                           change_valid,
    input  logic                           change_ready,
    output berth_card_pkg::change_t        change,
    input  logic                           changed_valid,
    input  berth_card_pkg::change_end_t    changed,
    output logic [1:0]                     qr_valid,
    input  logic [1:0]                     qr_ready,
    output berth_card_pkg::queue_reads_t   qr,
    input  logic [1:0]                     qc_valid,
    input  logic [HOST_W-1:0]              qc_data,
    input  berth_card_pkg::queue_beat_t    qc,
    output logic [1:0]                     fcq_valid,
    input  logic [1:0]                     fcq_ready,
    output berth_card_pkg::completions_t   fcq,
    output logic [1:0]                     xa_valid,
    input  logic [1:0]                     xa_ready,
    output berth_card_pkg::range_asks_t    xa,
    output logic [1:0]                     xr_room,
    input  logic [1:0]                     xr_valid,
    input  berth_card_pkg::range_answers_t xr,

    // transmit RAM and MAC
    output logic                           hw_valid,
    input  logic                           hw_ready,
    output logic [17:0]                    hw_addr,
    output logic [HOST_W-1:0]              hw_data,
    output logic [HOST_W/8-1:0]            hw_strb,
    output logic                           fs_valid,
    input  logic                           fs_ready,
    output berth_card_pkg::frame_out_t     fs,
    input  logic                           fl_valid,
    input  logic [7:0]                     fl_tag,

    // frames from the MAC
    input  logic                           rf_valid,
    output logic                           rf_ready,
    input  berth_card_pkg::frame_t         rf,
    input  logic [8*96-1:0]                rf_hdr,
    output logic                           hd_re,
    output logic [17:0]                    hd_addr,
    input  logic [31:0]                    hd_data,
    output logic                           rfree_valid,
    output logic [17:0]                    rfree_place,
    output logic                           cf_valid,
    input  logic                           cf_ready,
    output berth_card_pkg::frame_t         cf,
    output logic [8*96-1:0]                cf_hdr,   // its first bytes

    output berth_card_pkg::fast_amounts_t  fp_amounts,
    output logic [47:0]                    own_mac,  // 0 before firmware knows it
    output logic [31:0]                    own_ip    // says nothing before that
);
    localparam int unsigned QW = $clog2(QPS);

    // ---- rows --------------------------------------------------------------------------
    logic        t_ack, r_ack;
    logic [31:0] t_rdata, r_rdata;
    assign fc_ack   = t_ack || r_ack;
    assign fc_rdata = fc.half ? r_rdata : t_rdata;

    // ---- events for firmware: in turn; what is shown stays until it is taken ----------------------------
    logic [1:0]  fes_valid, fes_ready;
    berth_row_pkg::fast_event_t t_fe, r_fe;
    logic        fe_turn_q, fe_pick, fe_held_q, fe_shown_q, fe_busy;
    assign fe_pick  = fe_held_q ? fe_shown_q : fes_valid[1] && (fe_turn_q || !fes_valid[0]);
    assign fe_valid = fe_pick ? fes_valid[1] : fes_valid[0];
    assign fe       = fe_pick ? r_fe : t_fe;
    assign fes_ready = {fe_pop && fe_pick, fe_pop && !fe_pick};
    always_ff @(posedge clk) begin
        fe_held_q  <= fe_valid && !fe_pop && !rst;
        fe_shown_q <= fe_pick;
        if (rst) fe_turn_q <= 1'b0;
        else if (fe_valid && fe_pop) fe_turn_q <= !fe_pick;
    end

    // ---- doorbells -----------------------------------------------------------------------
    logic t_db_ready, r_db_ready;
    assign fdb_ready = fdb.rq ? r_db_ready : t_db_ready;

    // ---- answers of the translation: a queue per half --------------------------------------
    logic [1:0]    x_valid, x_ready, x_space;
    berth_card_pkg::range_answers_t x;
    localparam int unsigned XW = $bits(x.tx);
    logic [2*XW-1:0] xr_bits, x_bits;
    assign xr_bits = xr;
    assign x       = x_bits;
    for (genvar u = 0; u < 2; u++) begin : answers
        logic [6:0] used_q;
        berth_lutfifo #(.WIDTH(XW), .DEPTH(64)) fifo (
            .clk(clk), .rst(rst), .wr_valid(xr_valid[u]), .wr_ready(x_space[u]),
            .wr_data(xr_bits[XW*u+:XW]),
            .rd_valid(x_valid[u]), .rd_ready(x_ready[u]), .rd_data(x_bits[XW*u+:XW])
        );
        always_ff @(posedge clk)
            if (rst) used_q <= '0;
            else used_q <= used_q + 7'(xr_valid[u]) - 7'(x_valid[u] && x_ready[u]);
        assign xr_room[u] = used_q < 7'd48;
    end
    always_ff @(posedge clk) if (!rst) assert ((xr_valid & ~x_space) == 2'd0);

    // ---- the halves --------------------------------------------------------------------------
    logic          ack_valid, ack_ready, lst_valid, lst_ready, lst_over;
    logic [QW-1:0] ack_q, lst_q, afr_q, lfr_q, ans_q, put_q;
    logic          ans_valid, ans_ready, ans_free_valid, put_valid, put_ready, put_over_valid, put_over_err;
    logic [17:0]   ans_free_place;
    berth_card_pkg::answer_t    ans;
    berth_card_pkg::placement_t put;
    berth_card_pkg::ack_t       ack, afr;
    berth_card_pkg::list_beat_t lst;
    berth_card_pkg::list_out_t  lfr;
    logic          afr_valid, afr_ready, lfr_valid, lfr_ready;
    logic          rsp_valid, rsp_ready, rspd_valid;
    logic [QW-1:0] rsp_q;
    berth_card_pkg::response_t     rsp;
    berth_card_pkg::response_end_t rspd;
    berth_card_pkg::tx_events_t t_ev;
    berth_card_pkg::rx_events_t r_ev;
    logic          hurry;
    logic [1:0]    swept, swept_on;
    logic [63:0]   swept_at;
    logic          r_busy, trace_valid, trace_landed;
    logic [QW-1:0] trace_landed_q;
    logic [63:0]   trace_word;

    berth_fp_tx #(.QPS(QPS), .DATA_W(DATA_W), .HOST_W(HOST_W), .WB(WB)) tx (
        .clk(clk), .rst(rst), .now(now), .fc_req(fc_req && !fc.half), .fc(fc), .fc_ack(t_ack), .fc_rdata(t_rdata),
        .fe_valid(fes_valid[0]), .fe_ready(fes_ready[0]), .fe(t_fe), .fe_busy(fe_busy),
        .fdb_valid(fdb_valid && !fdb.rq), .fdb_ready(t_db_ready), .fdb(fdb), .qr_valid(qr_valid[0]),
        .qr_ready(qr_ready[0]), .qr(qr.tx), .qc_valid(qc_valid[0]), .qc_data(qc_data), .qc(qc), .xa_valid(xa_valid[0]),
        .xa_ready(xa_ready[0]), .xa(xa.tx), .xr_valid(x_valid[0]), .xr_ready(x_ready[0]), .xr(x.tx),
        .load_valid(load_valid), .load_ready(load_ready), .load(load), .loaded_valid(loaded_valid), .loaded(loaded),
        .hw_valid(hw_valid), .hw_ready(hw_ready), .hw_addr(hw_addr), .hw_data(hw_data), .hw_strb(hw_strb),
        .fs_valid(fs_valid), .fs_ready(fs_ready), .fs(fs), .fl_valid(fl_valid), .fl_tag(fl_tag),
        .fcq_valid(fcq_valid[0]), .fcq_ready(fcq_ready[0]), .fcq(fcq.tx), .ack_valid(ack_valid), .ack_ready(ack_ready),
        .ack_q(ack_q), .ack(ack), .lst_valid(lst_valid), .lst_ready(lst_ready), .lst_over(lst_over), .lst_q(lst_q),
        .lst(lst), .ans_valid(ans_valid), .ans_ready(ans_ready), .ans_q(ans_q), .ans(ans),
        .ans_free_valid(ans_free_valid), .ans_free_place(ans_free_place), .put_valid(put_valid), .put_ready(put_ready),
        .put_q(put_q), .put(put), .put_over_valid(put_over_valid), .put_over_err(put_over_err), .afr_valid(afr_valid),
        .afr_ready(afr_ready), .afr_q(afr_q), .afr(afr), .lfr_valid(lfr_valid), .lfr_ready(lfr_ready), .lfr_q(lfr_q),
        .lfr(lfr), .rsp_valid(rsp_valid), .rsp_ready(rsp_ready), .rsp_q(rsp_q), .rsp(rsp), .rspd_valid(rspd_valid),
        .rspd(rspd), .hurry(hurry), .swept(swept[0]), .swept_on(swept_on[0]),
        .swept_at(swept_at[31:0]), .ev(t_ev)
    );

    berth_fp_rx #(.DATA_W(DATA_W), .HOST_W(HOST_W), .QPS(QPS), .WB(WB)) rx (
        .clk(clk), .rst(rst), .busy(r_busy), .now(now), .fc_req(fc_req && fc.half), .fc(fc), .fc_ack(r_ack),
        .fc_rdata(r_rdata), .fe_valid(fes_valid[1]), .fe_ready(fes_ready[1]), .fe(r_fe),
        .fdb_valid(fdb_valid && fdb.rq), .fdb_ready(r_db_ready), .fdb(fdb), .qr_valid(qr_valid[1]),
        .qr_ready(qr_ready[1]), .qr(qr.rx), .qc_valid(qc_valid[1]), .qc_data(qc_data), .qc(qc), .xa_valid(xa_valid[1]),
        .xa_ready(xa_ready[1]), .xa(xa.rx), .xr_valid(x_valid[1]), .xr_ready(x_ready[1]), .xr(x.rx),
        .rf_valid(rf_valid), .rf_ready(rf_ready), .rf(rf), .rf_hdr(rf_hdr), .hd_re(hd_re), .hd_addr(hd_addr),
        .hd_data(hd_data), .rfree_valid(rfree_valid), .rfree_place(rfree_place), .cf_valid(cf_valid),
        .cf_ready(cf_ready), .cf(cf), .cf_hdr(cf_hdr), .own_mac(own_mac), .own_ip(own_ip), .store_valid(store_valid), .store_ready(store_ready),
        .store(store), .stored_valid(stored_valid), .stored(stored), .fcq_valid(fcq_valid[1]),
        .fcq_ready(fcq_ready[1]), .fcq(fcq.rx), .ack_valid(ack_valid), .ack_ready(ack_ready), .ack_q(ack_q), .ack(ack),
        .lst_valid(lst_valid), .lst_ready(lst_ready), .lst_over(lst_over), .lst_q(lst_q), .lst(lst),
        .ans_valid(ans_valid), .ans_ready(ans_ready), .ans_q(ans_q), .ans(ans), .ans_free_valid(ans_free_valid),
        .ans_free_place(ans_free_place), .put_valid(put_valid), .put_ready(put_ready), .put_q(put_q), .put(put),
        .put_over_valid(put_over_valid), .put_over_err(put_over_err),
        .afr_valid(afr_valid), .afr_ready(afr_ready), .afr_q(afr_q), .afr(afr), .lfr_valid(lfr_valid),
        .lfr_ready(lfr_ready), .lfr_q(lfr_q), .lfr(lfr), .rsp_valid(rsp_valid), .rsp_ready(rsp_ready), .rsp_q(rsp_q),
        .rsp(rsp), .rspd_valid(rspd_valid), .rspd(rspd), .change_valid(change_valid), .change_ready(change_ready),
        .change(change), .changed_valid(changed_valid), .changed(changed), .ev(r_ev), .hurry(hurry), .swept(swept[1]),
        .swept_on(swept_on[1]), .swept_at(swept_at[63:32]), .trace_valid(trace_valid), .trace_word(trace_word),
        .trace_landed(trace_landed), .trace_landed_q(trace_landed_q)
    );

    // ---- rest --------------------------------------------------------------------------------
    logic active, rests;
    assign active = r_busy || fdb_valid || rf_valid || fc_req || load_valid || loaded_valid || qr_valid != 2'd0
                    || qc_valid != 2'd0 || fcq_valid != 2'd0 || xa_valid != 2'd0 || x_valid != 2'd0 || hw_valid
                    || fs_valid || fl_valid || ack_valid || ans_valid || put_valid || lst_valid || afr_valid || lfr_valid
                    || rsp_valid || fe_busy;
    assign busy   = active || !rests || fe_valid;
    berth_fp_wake #(.QPS(QPS)) wake (
        .clk(clk), .rst(rst), .now(now), .active(active), .hurry(hurry), .swept(swept), .swept_on(swept_on),
        .swept_at(swept_at), .rests(rests), .due(due), .due_at(due_at)
    );

    // ---- counters ------------------------------------------------------------------------------
    assign fp_amounts.packets        = 16'(t_ev.packet);
    assign fp_amounts.again          = 16'(t_ev.again);
    assign fp_amounts.acks           = 16'(t_ev.ack);
    assign fp_amounts.lists          = 16'(t_ev.lists);
    assign fp_amounts.bytes_sent     = load_valid && load_ready ? 16'(load.len) : 16'd0;
    assign fp_amounts.blocks         = 16'(t_ev.block);
    assign fp_amounts.taken          = 16'(r_ev.taken);
    assign fp_amounts.bytes_placed   = store_valid && store_ready ? 16'(store.len) : 16'd0;
    assign fp_amounts.landed         = 16'(trace_landed);
    assign fp_amounts.duplicates     = 16'(r_ev.duplicate);
    assign fp_amounts.dropped        = 16'(r_ev.dropped || r_ev.out_of_order);
    assign fp_amounts.slots          = 16'(fdb_valid && fdb_ready && fdb.pushed);
    assign fp_amounts.answers        = 16'(r_ev.answer);
    assign fp_amounts.atomics        = 16'(r_ev.atomic);
    assign fp_amounts.atomics_again  = 16'(r_ev.atomic_again);
    assign fp_amounts.bad_wqe        = 16'(r_ev.bad_wqe) + 16'(t_ev.bad_wqe);
    assign fp_amounts.acks_taken     = 16'(t_ev.ack_taken);
    assign fp_amounts.bad_acks       = 16'(t_ev.bad_ack) + 16'(t_ev.bad_answer);
    assign fp_amounts.list_repeats   = 16'(t_ev.list_again);
    assign fp_amounts.page_strays    = 16'(t_ev.stray) + 16'(r_ev.stray);
    assign fp_amounts.credits_posted = 16'(r_ev.posted);
    assign fp_amounts.lists_sent     = 16'(r_ev.lists);
    assign fp_amounts.credits_sent   = r_ev.lists ? 16'(r_ev.list_len) : 16'd0;
    assign fp_amounts.lists_taken    = 16'(t_ev.list_taken);
    assign fp_amounts.credits_taken  = 16'(t_ev.credit);
    assign fp_amounts.lists_refused  = 16'(t_ev.refused);

    wire unused = &{1'b0, t_ev, r_ev, trace_valid, trace_word, trace_landed_q};
endmodule
