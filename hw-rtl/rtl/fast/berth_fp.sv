// SPDX-License-Identifier: Apache-2.0 OR MIT
// The fast path: its two halves, and what stands between them and the card's engines. Pairs of ports have
// the transmit half in the low bits.
module berth_fp #(
    parameter int unsigned DATA_W = 64,          // bits of a beat of the MAC
    parameter int unsigned HOST_W = 2 * DATA_W,  // bits of a beat of the host port
    parameter int unsigned QPS    = 128,         // rows, a power of two up to 1024; a QP's row is its QPN
    parameter int unsigned WB     = $clog2(berth_regs_pkg::FAST_PLACES)  // log2 of the windows' places: 5 to 8
) (
    input  logic                clk,
    input  logic                rst,
    output logic                busy,
    output logic                due,          // while not busy nothing happens before ...
    output logic [31:0]         due_at,       // ... this time, if there is one
    input  logic [31:0]         now,          // units of 64 clocks

    // core: rows (word {half, QPN [9:0], word [5:0]}), events
    input  logic                cfg_req,
    input  logic                cfg_we,
    input  logic [16:0]         cfg_addr,
    input  logic [31:0]         cfg_wdata,
    output logic                cfg_ack,
    output logic [31:0]         cfg_rdata,
    output logic                fe_valid,
    output logic [63:0]         fe_word,
    input  logic                fe_pop,

    // doorbells
    input  logic                db_valid,
    output logic                db_ready,
    input  logic                db_rq,
    input  logic [15:0]         db_qpn,
    input  logic [15:0]         db_pi,
    input  logic [31:0]         db_posted,
    input  logic                db_inline,
    input  logic [511:0]        db_wqe,

    // host side
    output logic                fr_valid,
    input  logic                fr_ready,
    output logic [17:0]         fr_local,
    output logic [12:0]         fr_len,
    output logic [7:0]          fr_asid,
    output logic [63:0]         fr_va,
    output logic [7:0]          fr_tag,
    input  logic                frd_valid,
    input  logic [7:0]          frd_tag,
    input  logic [1:0]          frd_status,
    output logic                fw_valid,
    input  logic                fw_ready,
    output logic [17:0]         fw_local,
    output logic [12:0]         fw_len,
    output logic [7:0]          fw_asid,
    output logic [63:0]         fw_va,
    output logic [7:0]          fw_tag,
    input  logic                fwd_valid,
    input  logic [7:0]          fwd_tag,
    input  logic [1:0]          fwd_status,
    output logic [1:0]          qr_valid,
    input  logic [1:0]          qr_ready,
    output logic [2*64-1:0]     qr_addr,
    output logic [2*10-1:0]     qr_len,
    output logic [2*8-1:0]      qr_tag,
    input  logic [1:0]          qc_valid,
    input  logic [HOST_W-1:0]   qc_data,
    input  logic [7:0]          qc_tag,
    input  logic [9:0]          qc_off,
    input  logic                qc_last,
    input  logic                qc_err,
    output logic [1:0]          fcq_valid,
    input  logic [1:0]          fcq_ready,
    output logic [2*8-1:0]      fcq_cqn,
    output logic [2*7*32-1:0]   fcq_words,
    output logic [1:0]          xa_valid,
    input  logic [1:0]          xa_ready,
    output logic [1:0]          xa_release,
    output logic [1:0]          xa_write,
    output logic [2*8-1:0]      xa_asid,
    output logic [2*64-1:0]     xa_va,
    output logic [2*21-1:0]     xa_len,
    output logic [2*16-1:0]     xa_tag,
    output logic [1:0]          xr_room,
    input  logic [1:0]          xr_valid,
    input  logic [2*16-1:0]     xr_tag,
    input  logic [2*2-1:0]      xr_kind,
    input  logic [2*8-1:0]      xr_status,

    // transmit RAM and MAC
    output logic                hw_valid,
    input  logic                hw_ready,
    output logic [17:0]         hw_addr,
    output logic [HOST_W-1:0]   hw_data,
    output logic [HOST_W/8-1:0] hw_strb,
    output logic                fs_valid,
    input  logic                fs_ready,
    output logic [17:0]         fs_addr,
    output logic [12:0]         fs_len,
    output logic                fs_loop,
    output logic [7:0]          fs_tag,
    input  logic                fl_valid,
    input  logic [7:0]          fl_tag,

    // frames from the MAC
    input  logic                rf_valid,
    output logic                rf_ready,
    input  logic [17:0]         rf_addr,
    input  logic [12:0]         rf_len,
    input  logic [2:0]          rf_flags,
    input  logic [8*96-1:0]     rf_hdr,
    output logic                hd_re,
    output logic [17:0]         hd_addr,
    input  logic [31:0]         hd_data,
    output logic                rfree_valid,
    output logic [17:0]         rfree_addr,
    output logic                cpu_valid,
    input  logic                cpu_ready,
    output logic [17:0]         cpu_addr,
    output logic [12:0]         cpu_len,
    output logic [2:0]          cpu_flags,

    output logic [16*12-1:0]    counts,       // what is added to the counters from C_FP_PACKETS on, 16 bits each
    output logic                inc_posted,   // for the card's counters
    output logic                inc_list,
    output logic [6:0]          inc_list_len,
    output logic [1:0]          inc_bad_wqe,  // C_FP_BAD_WQE, of both queues
    output logic [16*4-1:0]     counts_wire,  // ... to C_FP_ACKS_TAKEN, C_FP_BAD_ACKS, C_FP_LIST_REPEATS, C_FP_PAGE_STRAYS
    output logic                inc_lists_taken,
    output logic                inc_lists_refused,
    output logic                inc_credits_taken,
    output logic [47:0]         own_mac       // 0 before firmware knows it
);
    localparam int unsigned QW = $clog2(QPS);

    // ---- rows --------------------------------------------------------------------------
    logic        t_ack, r_ack;
    logic [31:0] t_rdata, r_rdata;
    assign cfg_ack   = t_ack || r_ack;
    assign cfg_rdata = cfg_addr[16] ? r_rdata : t_rdata;

    // ---- events: in turn; what is shown stays until it is taken ----------------------------
    logic [1:0]  ev_valid, ev_ready;
    logic [63:0] t_event, r_event;
    logic        ev_turn_q, ev_pick, ev_held_q, ev_shown_q, ev_busy;
    assign ev_pick  = ev_held_q ? ev_shown_q : ev_valid[1] && (ev_turn_q || !ev_valid[0]);
    assign fe_valid = ev_pick ? ev_valid[1] : ev_valid[0];
    assign fe_word  = ev_pick ? r_event : t_event;
    assign ev_ready = {fe_pop && ev_pick, fe_pop && !ev_pick};
    always_ff @(posedge clk) begin
        ev_held_q  <= fe_valid && !fe_pop && !rst;
        ev_shown_q <= ev_pick;
        if (rst) ev_turn_q <= 1'b0;
        else if (fe_valid && fe_pop) ev_turn_q <= !ev_pick;
    end

    // ---- doorbells -----------------------------------------------------------------------
    logic t_db_ready, r_db_ready;
    assign db_ready = db_rq ? r_db_ready : t_db_ready;

    // ---- answers of the translation: a queue per half --------------------------------------
    logic [1:0]    x_valid, x_ready, x_space;
    logic [2*26-1:0] x_data;
    for (genvar u = 0; u < 2; u++) begin : answers
        logic [6:0] used_q;
        berth_lutfifo #(.WIDTH(26), .DEPTH(64)) fifo (
            .clk(clk), .rst(rst), .wr_valid(xr_valid[u]), .wr_ready(x_space[u]),
            .wr_data({xr_tag[16*u+:16], xr_kind[2*u+:2], xr_status[8*u+:8]}),
            .rd_valid(x_valid[u]), .rd_ready(x_ready[u]), .rd_data(x_data[26*u+:26])
        );
        always_ff @(posedge clk)
            if (rst) used_q <= '0;
            else used_q <= used_q + 7'(xr_valid[u]) - 7'(x_valid[u] && x_ready[u]);
        assign xr_room[u] = used_q < 7'd48;
    end
    always_ff @(posedge clk) if (!rst) assert ((xr_valid & ~x_space) == 2'd0);

    // ---- the halves --------------------------------------------------------------------------
    logic          ack_valid, ack_ready, ack_has_sack, lst_valid, lst_ready, lst_over, lst_begin;
    logic [QW-1:0] ack_q, lst_q, afr_q, lfr_q;
    logic [23:0]   ack_psn, afr_psn, afr_msn;
    logic [7:0]    ack_syndrome, afr_syndrome;
    logic [127:0]  ack_sack, afr_sack;
    logic [31:0]   lst_first, lst_size, lfr_epoch, lfr_first;
    logic [63:0]   lfr_sizes;
    logic [6:0]    lst_n, lfr_n;
    logic          afr_valid, afr_ready, afr_has_sack, lfr_valid, lfr_ready, lfr_begin;
    logic [14:0]   t_counts;
    logic          hurry;
    logic [1:0]    swept, swept_on;
    logic [63:0]   swept_at;
    logic          r_busy, tr_valid, tr_landed;
    logic [QW-1:0] tr_landed_q;
    logic [63:0]   tr_word;
    logic [18:0]   r_counts;

    berth_fp_tx #(.QPS(QPS), .DATA_W(DATA_W), .HOST_W(HOST_W), .WB(WB)) tx (
        .clk(clk), .rst(rst), .now(now),
        .cfg_req(cfg_req && !cfg_addr[16]), .cfg_we(cfg_we), .cfg_addr(cfg_addr[15:0]), .cfg_wdata(cfg_wdata),
        .cfg_ack(t_ack), .cfg_rdata(t_rdata),
        .fw_valid(ev_valid[0]), .fw_ready(ev_ready[0]), .fw_word(t_event), .fw_busy(ev_busy),
        .db_valid(db_valid && !db_rq), .db_ready(t_db_ready), .db_q(db_qpn[QW-1:0]), .db_pi(db_pi),
        .db_posted(db_posted), .db_inline(db_inline), .db_wqe(db_wqe),
        .qr_valid(qr_valid[0]), .qr_ready(qr_ready[0]), .qr_addr(qr_addr[63:0]), .qr_len(qr_len[9:0]),
        .qr_tag(qr_tag[7:0]), .qc_valid(qc_valid[0]), .qc_data(qc_data), .qc_tag(qc_tag), .qc_off(qc_off),
        .qc_last(qc_last), .qc_err(qc_err),
        .xa_valid(xa_valid[0]), .xa_ready(xa_ready[0]), .xa_release(xa_release[0]), .xa_write(xa_write[0]),
        .xa_asid(xa_asid[7:0]), .xa_va(xa_va[63:0]), .xa_len(xa_len[20:0]), .xa_tag(xa_tag[15:0]),
        .xr_valid(x_valid[0]), .xr_ready(x_ready[0]), .xr_tag(x_data[25:10]), .xr_kind(x_data[9:8]),
        .xr_status(x_data[7:0]),
        .pr_valid(fr_valid), .pr_ready(fr_ready), .pr_local(fr_local), .pr_len(fr_len), .pr_asid(fr_asid),
        .pr_va(fr_va), .pr_tag(fr_tag), .pd_valid(frd_valid), .pd_tag(frd_tag), .pd_status(frd_status),
        .hw_valid(hw_valid), .hw_ready(hw_ready), .hw_addr(hw_addr), .hw_data(hw_data), .hw_strb(hw_strb),
        .ms_valid(fs_valid), .ms_ready(fs_ready), .ms_addr(fs_addr), .ms_len(fs_len), .ms_loop(fs_loop),
        .ms_tag(fs_tag), .ml_valid(fl_valid), .ml_tag(fl_tag),
        .cq_valid(fcq_valid[0]), .cq_ready(fcq_ready[0]), .cq_cqn(fcq_cqn[7:0]), .cq_words(fcq_words[7*32-1:0]),
        .ack_valid(ack_valid), .ack_ready(ack_ready), .ack_q(ack_q), .ack_psn(ack_psn), .ack_syndrome(ack_syndrome),
        .ack_has_sack(ack_has_sack), .ack_sack(ack_sack),
        .lst_valid(lst_valid), .lst_ready(lst_ready), .lst_over(lst_over), .lst_q(lst_q), .lst_begin(lst_begin), .lst_first(lst_first),
        .lst_n(lst_n), .lst_size(lst_size),
        .afr_valid(afr_valid), .afr_ready(afr_ready), .afr_q(afr_q), .afr_psn(afr_psn), .afr_syndrome(afr_syndrome),
        .afr_msn(afr_msn), .afr_has_sack(afr_has_sack), .afr_sack(afr_sack),
        .lfr_valid(lfr_valid), .lfr_ready(lfr_ready), .lfr_q(lfr_q), .lfr_begin(lfr_begin), .lfr_epoch(lfr_epoch),
        .lfr_first(lfr_first), .lfr_n(lfr_n), .lfr_sizes(lfr_sizes),
        .hurry(hurry), .swept(swept[0]), .swept_on(swept_on[0]), .swept_at(swept_at[31:0]),
        .ev_packet(t_counts[0]), .ev_again(t_counts[1]), .ev_ack(t_counts[2]), .ev_list(t_counts[3]),
        .ev_list_taken(t_counts[4]), .ev_held(t_counts[5]), .ev_block(t_counts[6]), .ev_release(t_counts[7]),
        .ev_bad_wqe(t_counts[8]), .ev_ack_taken(t_counts[9]), .ev_bad_ack(t_counts[10]), .ev_list_again(t_counts[11]),
        .ev_refused(t_counts[12]), .ev_credit(t_counts[13]), .ev_stray(t_counts[14])
    );

    berth_fp_rx #(.DATA_W(DATA_W), .HOST_W(HOST_W), .QPS(QPS), .WB(WB)) rx (
        .clk(clk), .rst(rst), .busy(r_busy), .now(now),
        .cfg_req(cfg_req && cfg_addr[16]), .cfg_we(cfg_we), .cfg_addr(cfg_addr[15:0]), .cfg_wdata(cfg_wdata),
        .cfg_ack(r_ack), .cfg_rdata(r_rdata),
        .fw_valid(ev_valid[1]), .fw_ready(ev_ready[1]), .fw_word(r_event),
        .rdb_valid(db_valid && db_rq), .rdb_ready(r_db_ready), .rdb_q(db_qpn[QW-1:0]), .rdb_pi(db_pi),
        .qr_valid(qr_valid[1]), .qr_ready(qr_ready[1]), .qr_addr(qr_addr[127:64]), .qr_len(qr_len[19:10]),
        .qr_tag(qr_tag[15:8]), .qc_valid(qc_valid[1]), .qc_data(qc_data), .qc_tag(qc_tag), .qc_off(qc_off),
        .qc_last(qc_last), .qc_err(qc_err),
        .xa_valid(xa_valid[1]), .xa_ready(xa_ready[1]), .xa_release(xa_release[1]), .xa_write(xa_write[1]),
        .xa_asid(xa_asid[15:8]), .xa_va(xa_va[127:64]), .xa_len(xa_len[41:21]), .xa_tag(xa_tag[31:16]),
        .xr_valid(x_valid[1]), .xr_ready(x_ready[1]), .xr_tag(x_data[51:36]), .xr_kind(x_data[35:34]),
        .xr_status(x_data[33:26]),
        .rf_valid(rf_valid), .rf_ready(rf_ready), .rf_addr(rf_addr), .rf_len(rf_len), .rf_flags(rf_flags),
        .rf_hdr(rf_hdr), .hd_re(hd_re), .hd_addr(hd_addr), .hd_data(hd_data),
        .rfree_valid(rfree_valid), .rfree_addr(rfree_addr),
        .cpu_valid(cpu_valid), .cpu_ready(cpu_ready), .cpu_addr(cpu_addr), .cpu_len(cpu_len), .cpu_flags(cpu_flags), .own_mac(own_mac),
        .pw_valid(fw_valid), .pw_ready(fw_ready), .pw_local(fw_local), .pw_len(fw_len), .pw_asid(fw_asid),
        .pw_va(fw_va), .pw_tag(fw_tag), .wd_valid(fwd_valid), .wd_tag(fwd_tag), .wd_status(fwd_status),
        .cq_valid(fcq_valid[1]), .cq_ready(fcq_ready[1]), .cq_cqn(fcq_cqn[15:8]),
        .cq_words(fcq_words[2*7*32-1:7*32]),
        .ack_valid(ack_valid), .ack_ready(ack_ready), .ack_q(ack_q), .ack_psn(ack_psn), .ack_syndrome(ack_syndrome),
        .ack_has_sack(ack_has_sack), .ack_sack(ack_sack),
        .lst_valid(lst_valid), .lst_ready(lst_ready), .lst_over(lst_over), .lst_q(lst_q), .lst_begin(lst_begin), .lst_first(lst_first),
        .lst_n(lst_n), .lst_size(lst_size),
        .afr_valid(afr_valid), .afr_ready(afr_ready), .afr_q(afr_q), .afr_psn(afr_psn), .afr_msn(afr_msn),
        .afr_syndrome(afr_syndrome), .afr_has_sack(afr_has_sack), .afr_sack(afr_sack),
        .lfr_valid(lfr_valid), .lfr_ready(lfr_ready), .lfr_q(lfr_q), .lfr_begin(lfr_begin), .lfr_epoch(lfr_epoch),
        .lfr_first(lfr_first), .lfr_n(lfr_n), .lfr_sizes(lfr_sizes),
        .ev_taken(r_counts[0]), .ev_duplicate(r_counts[1]), .ev_out_of_order(r_counts[2]), .ev_dropped(r_counts[3]),
        .ev_bad_index(r_counts[4]), .ev_bad_wqe(r_counts[5]), .ev_hit(r_counts[6]), .ev_miss(r_counts[7]),
        .ev_posted(r_counts[8]), .ev_list(r_counts[9]), .ev_list_len(r_counts[16:10]), .ev_repeat(r_counts[17]), .ev_stray(r_counts[18]),
        .hurry(hurry), .swept(swept[1]), .swept_on(swept_on[1]), .swept_at(swept_at[63:32]),
        .tr_valid(tr_valid), .tr_word(tr_word), .tr_landed(tr_landed), .tr_landed_q(tr_landed_q)
    );

    // ---- rest --------------------------------------------------------------------------------
    logic active, rests;
    assign active = r_busy || db_valid || rf_valid || cfg_req || fr_valid || frd_valid || qr_valid != 2'd0
                    || qc_valid != 2'd0 || fcq_valid != 2'd0 || xa_valid != 2'd0 || x_valid != 2'd0 || hw_valid
                    || fs_valid || fl_valid || ack_valid || lst_valid || afr_valid || lfr_valid || ev_busy;
    assign busy   = active || !rests || fe_valid;
    berth_fp_wake #(.QPS(QPS)) wake (
        .clk(clk), .rst(rst), .now(now), .active(active), .hurry(hurry), .swept(swept), .swept_on(swept_on),
        .swept_at(swept_at), .rests(rests), .due(due), .due_at(due_at)
    );

    // ---- counters ------------------------------------------------------------------------------
    assign {counts_wire, counts} = {
        16'(t_counts[14]) + 16'(r_counts[18]),                  // C_FP_PAGE_STRAYS
        16'(t_counts[11]), 16'(t_counts[10]), 16'(t_counts[9]), // C_FP_LIST_REPEATS .. C_FP_ACKS_TAKEN
        16'(db_valid && db_ready && db_inline),                 // C_FP_SLOTS
        16'(r_counts[3] || r_counts[2]), 16'(r_counts[1]),      // C_FP_DROPPED, C_FP_DUPLICATES
        16'(tr_landed),                                         // C_FP_LANDED
        fw_valid && fw_ready ? 16'(fw_len) : 16'd0,            // C_FP_BYTES_PLACED
        16'(r_counts[0]), 16'(t_counts[6]),                     // C_FP_TAKEN, C_FP_BLOCKS
        fr_valid && fr_ready ? 16'(fr_len) : 16'd0,            // C_FP_BYTES_SENT
        16'(t_counts[3]), 16'(t_counts[2]), 16'(t_counts[1]), 16'(t_counts[0])  // C_FP_LISTS .. C_FP_PACKETS
    };
    assign {inc_list_len, inc_list, inc_posted} = r_counts[16:8];
    assign inc_bad_wqe = {r_counts[5], t_counts[8]};
    assign {inc_credits_taken, inc_lists_refused, inc_lists_taken} = {t_counts[13:12], t_counts[4]};

    wire unused = &{1'b0, db_qpn, t_counts, r_counts, tr_valid, tr_word, tr_landed_q};
endmodule
