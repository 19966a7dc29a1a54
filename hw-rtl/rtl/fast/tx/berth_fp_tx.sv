// SPDX-License-Identifier: Apache-2.0 OR MIT
// The sender's half of the fast path: doorbells to frames, acknowledgements to completions (docs/internals/sending.md).
// It also sends ACKs and credit lists for the receiver's half.
//
// Its rows, their commands and its events are those of driver/abi (rows.rs: `send`, `event`; docs/reference/rows.md).
module berth_fp_tx #(
    parameter int unsigned QPS      = 64,
    parameter int unsigned DATA_W   = 64,
    parameter int unsigned HOST_W   = 2 * DATA_W,
    parameter int unsigned WB       = $clog2(berth_regs_pkg::FAST_PLACES),   // log2 of the window's places: at most one packet less is under way
    parameter int unsigned LE       = $clog2(berth_regs_pkg::FAST_ELEMENTS), // log2 of the elements of a QP
    parameter int unsigned LC       = $clog2(berth_regs_pkg::FAST_CONTEXTS), // log2 of their contexts
    parameter int unsigned RAM_BASE = 0         // of the transmit places in packet RAM (see berth_fp_tx_places)
) (
    input  logic                          clk,
    input  logic                          rst,
    input  logic [31:0]                   now,

    input  logic                          fc_req,
    input  berth_card_pkg::row_access_t   fc,
    output logic                          fc_ack,
    output logic [31:0]                   fc_rdata,
    output logic                          fe_valid,
    input  logic                          fe_ready,
    output berth_row_pkg::fast_event_t   fe,
    output logic                          fe_busy,  // there are events

    input  logic                          fdb_valid,
    output logic                          fdb_ready,
    input  berth_card_pkg::doorbell_t     fdb,

    output logic                          qr_valid,
    input  logic                          qr_ready,
    output berth_card_pkg::queue_read_t   qr,
    input  logic                          qc_valid,
    input  logic [HOST_W-1:0]             qc_data,
    input  berth_card_pkg::queue_beat_t   qc,

    output logic                          xa_valid,
    input  logic                          xa_ready,
    output berth_card_pkg::range_ask_t    xa,
    input  logic                          xr_valid,
    output logic                          xr_ready,
    input  berth_card_pkg::range_answer_t xr,

    output logic                          load_valid,
    input  logic                          load_ready,
    output berth_card_pkg::payload_t      load,
    input  logic                          loaded_valid,
    input  berth_card_pkg::payload_end_t  loaded,

    output logic                          hw_valid,
    input  logic                          hw_ready,
    output logic [17:0]                   hw_addr,
    output logic [HOST_W-1:0]             hw_data,  // a word of packet RAM, at an address that is a multiple of it
    output logic [HOST_W/8-1:0]           hw_strb,
    output logic                          fs_valid,
    input  logic                          fs_ready,
    output berth_card_pkg::frame_out_t    fs,
    input  logic                          fl_valid,
    input  logic [7:0]                    fl_tag,

    output logic                          fcq_valid,
    input  logic                          fcq_ready,
    output berth_card_pkg::completion_t   fcq,

    // time-outs (see berth_fp_ack)
    input  logic                          hurry,
    output logic                          swept,
    output logic                          swept_on,
    output logic [31:0]                   swept_at,

    // acknowledgements and lists that came
    input  logic                          ack_valid,
    output logic                          ack_ready,
    input  logic [$clog2(QPS)-1:0]        ack_q,
    input  berth_card_pkg::ack_t          ack,
    input  logic                          lst_valid,
    output logic                          lst_ready,
    output logic                          lst_over,
    input  logic [$clog2(QPS)-1:0]        lst_q,
    input  berth_card_pkg::list_beat_t    lst,
    // answers to READs that came; frames of those that are dropped
    input  logic                          ans_valid,
    output logic                          ans_ready,
    input  logic [$clog2(QPS)-1:0]        ans_q,
    input  berth_card_pkg::answer_t       ans,
    output logic                          ans_free_valid,
    output logic [17:0]                   ans_free_place,
    // their payloads, for SCATTER; the oldest one is in place, or has failed
    output logic                          put_valid,
    input  logic                          put_ready,
    output logic [$clog2(QPS)-1:0]        put_q,
    output berth_card_pkg::placement_t    put,
    input  logic                          put_over_valid,
    input  logic                          put_over_err,
    // acknowledgements and lists to send
    input  logic                          afr_valid,
    output logic                          afr_ready,
    input  logic [$clog2(QPS)-1:0]        afr_q,
    input  berth_card_pkg::ack_t          afr,
    input  logic                          lfr_valid,
    output logic                          lfr_ready,
    input  logic [$clog2(QPS)-1:0]        lfr_q,
    input  berth_card_pkg::list_out_t     lfr,

    // answers to READs to send; the payload of one has been read
    input  logic                          rsp_valid,
    output logic                          rsp_ready,
    input  logic [$clog2(QPS)-1:0]        rsp_q,
    input  berth_card_pkg::response_t     rsp,
    output logic                          rspd_valid,
    output berth_card_pkg::response_end_t rspd,

    // counters
    output berth_card_pkg::tx_events_t    ev
);
    localparam int unsigned QW = $clog2(QPS);
    localparam int unsigned LP = 4, LB = 5, LR = 2;
    initial if (LE > 7 || LC > 8) $fatal(1, "berth_fp_tx: records have room for 128 elements and 256 contexts of a QP");

    // ---- configuration -----------------------------------------------------------------
    typedef enum logic [1:0] {C_IDLE, C_INIT, C_COMMAND, C_ACK} config_t;
    config_t       c_q;
    logic          c_we;
    logic [QW-1:0] c_qp;
    logic [5:0]    c_word;
    berth_card_pkg::row_write_t cfg;
    logic [9:0]    init_q, init_done;
    logic          cmd_q, err_pend_q, cmd_ready, err_ready, drain_pend_q, drain_ready, give_pend_q, credits_ready;
    logic          busy, making, working, quiet_busy, answering, quiet_answering, queued, list_full, list_pend_q, starved, holds, is_list, is_size;
    logic [5:0]    blocks_read, freed_read, blocks_out;
    logic [6:0]    asked, held_ever, given_ever, held_now;
    logic [23:0]   una_read, next_read;
    logic [19:0]   round_read, round;
    logic          round_we;
    logic [QW-1:0] round_q;
    logic [31:0]   given_up;
    logic [7:0]    credits_read, oldest_piece, sent_read, cut_read, under_way;
    logic [8:0]    unacked;
    logic [127:0]  range_q;
    logic [QPS-1:0] revoking_q, ended_q, still;
    logic [QW-1:0] working_q;
    logic          revoke_start, revoke_ready, revoke_done;
    assign still     = revoking_q | ended_q;
    logic [QPS-1:0] c_bit;
    logic          c_command;
    berth_row_pkg::send_command_t command;
    berth_row_pkg::send_held_t    c_held;
    berth_row_pkg::send_counts_t  c_counts;
    berth_card_pkg::bind_t        bind_data;
    berth_row_pkg::send_bind_t    c_bind;
    logic                         bind_valid, bound;
    logic [QW-1:0]                bind_q;
    assign c_bind.zero_31_8  = '0;
    assign c_bind.waits      = bind_data.waits;
    assign c_bind.zero_6_6   = '0;
    assign c_bind.one_shot   = bind_data.one_shot;
    assign c_bind.zero_4_3   = '0;
    assign c_bind.rights     = bind_data.rights;
    assign bound     = c_command && command.opcode == berth_row_pkg::SEND_CMD_BOUND;
    assign command   = fc.data;
    assign c_held.busy       = busy || making || answering;
    assign c_held.queued     = queued;
    assign c_held.revoking   = revoking_q[c_qp];
    assign c_held.starved    = starved;
    assign c_held.zero_27_16 = '0;
    assign c_held.holds      = {9'd0, holds, blocks_out};
    assign c_counts.unacked = {7'd0, unacked};
    assign c_counts.credits = {8'd0, credits_read};
    assign c_bit     = QPS'(1) << c_qp;
    assign c_command = c_we && c_word == berth_row_pkg::SEND_COMMAND;
    assign held_now  = held_ever - given_ever;
    assign starved   = asked != 7'd0 && held_now == 7'd0;
    assign holds     = asked != 7'd0 || held_now != 7'd0;
    assign under_way = una_read == next_read ? 8'd0 : sent_read - oldest_piece;
    assign unacked   = {1'b0, under_way} + {1'b0, 8'(cut_read - sent_read)};
    assign c_word    = fc.word;
    assign cfg.word  = c_word;
    assign cfg.data  = fc.data;
    assign c_qp      = fc.qpn[QW-1:0];
    assign c_we      = c_q == C_IDLE && fc_req && fc.we && !fc_ack;
    // Also while a packet is being made, which may have been begun before the end.
    assign making    = working && working_q == c_qp;
    assign fc_rdata = c_word == berth_row_pkg::SEND_UNA ? {8'd0, una_read} : c_word == berth_row_pkg::SEND_NEXT ? {8'd0, next_read}
                     : c_word == berth_row_pkg::SEND_HELD ? c_held
                     : c_word == berth_row_pkg::SEND_COUNTS ? c_counts
                     : c_word == berth_row_pkg::SEND_KEPT ? given_up
                     : c_word == berth_row_pkg::SEND_ROUND_TRIP ? {12'd0, round_read}
                     : c_word == berth_row_pkg::SEND_BIND ? c_bind
                     : c_word == berth_row_pkg::SEND_BIND_KEY ? bind_data.key
                     : c_word == berth_row_pkg::SEND_BIND_RANGE ? bind_data.va[31:0]
                     : c_word == berth_row_pkg::SEND_BIND_RANGE + 6'd1 ? bind_data.va[63:32]
                     : c_word == berth_row_pkg::SEND_BIND_RANGE + 6'd2 ? bind_data.span[31:0]
                     : c_word == berth_row_pkg::SEND_BIND_RANGE + 6'd3 ? bind_data.span[63:32]
                     : c_word == berth_row_pkg::SEND_LAYOUT ? {berth_row_pkg::LAYOUT_TAG, berth_row_pkg::LAYOUT_NUMBER} : 32'd0;
    assign blocks_out = blocks_read - freed_read;
    always_ff @(posedge clk) begin
        fc_ack <= 1'b0;
        init_q  <= init_q & ~init_done;
        if (cmd_ready) cmd_q      <= 1'b0;
        if (err_ready) err_pend_q <= 1'b0;
        if (drain_ready) drain_pend_q <= 1'b0;
        if (credits_ready) give_pend_q <= 1'b0;
        if (c_we && c_word == berth_row_pkg::SEND_RANGE) range_q[31:0]   <= fc.data;
        if (c_we && c_word == berth_row_pkg::SEND_RANGE + 6'd1) range_q[63:32]  <= fc.data;
        if (c_we && c_word == berth_row_pkg::SEND_RANGE + 6'd2) range_q[95:64]  <= fc.data;
        if (c_we && c_word == berth_row_pkg::SEND_RANGE + 6'd3) range_q[127:96] <= fc.data;
        ended_q    <= (ended_q & ~(c_command && command.opcode == berth_row_pkg::SEND_CMD_START ? c_bit : '0))
                      | (c_command && command.opcode == berth_row_pkg::SEND_CMD_END ? c_bit : '0);
        revoking_q <= (revoking_q & ~(revoke_done ? QPS'(1) << mark_q : '0)) | (revoke_start ? c_bit : '0);
        case (c_q)
            C_IDLE: if (fc_req && !fc_ack) begin
                c_q <= C_ACK;
                if (fc.we && c_word == berth_row_pkg::SEND_COMMAND && command.opcode == berth_row_pkg::SEND_CMD_START) begin
                    init_q <= '1;
                    c_q    <= C_INIT;
                end else if (fc.we && c_word == berth_row_pkg::SEND_COMMAND) begin
                    cmd_q        <= command.opcode <= berth_row_pkg::SEND_CMD_GO_ON;
                    err_pend_q   <= command.opcode == berth_row_pkg::SEND_CMD_END;
                    drain_pend_q <= command.opcode == berth_row_pkg::SEND_CMD_DRAIN;
                    give_pend_q  <= command.opcode == berth_row_pkg::SEND_CMD_GIVE_UP;
                    c_q          <= C_COMMAND;
                end else if (is_list || is_size) begin
                    c_q          <= C_COMMAND;
                end
            end
            C_INIT:    if (init_q == '0) c_q <= C_ACK;
            C_COMMAND: if (!cmd_q && !err_pend_q && !drain_pend_q && !give_pend_q && !list_pend_q) c_q <= C_ACK;
            default: begin
                fc_ack <= 1'b1;
                c_q     <= C_IDLE;
            end
        endcase
        if (rst) begin
            c_q        <= C_IDLE;
            init_q     <= '0;
            cmd_q      <= 1'b0;
            err_pend_q <= 1'b0;
            drain_pend_q <= 1'b0;
            give_pend_q  <= 1'b0;
            revoking_q   <= '0;
            ended_q      <= '0;
        end
    end

    // A list from the core is kept until its last size is there, so that the reader never waits for firmware; the write
    // that completes it is acknowledged when the reader has it. Lists of the receiver's half are not cut into.
    berth_card_pkg::list_beat_t list_beat;
    logic [31:0]   own_first_q, own_size;
    logic [6:0]    own_n_q, own_put_q, own_get_q, rx_left_q;
    logic          own_q, own_begin_q, own_valid_q, list_valid, list_ready, list_over;
    logic [QW-1:0] list_q;
    assign is_list = fc.we && c_word == berth_row_pkg::SEND_LIST_BEGIN;
    assign is_size = fc.we && c_word == berth_row_pkg::SEND_LIST_SIZE;
    berth_fp_mem #(.WIDTH(32), .DEPTH(128), .OWN(1'b1)) m_own (.clk(clk), .we(c_we && is_size), .waddr(own_put_q), .wdata(fc.data),
        .re(1'b1), .raddr(own_get_q), .rdata(own_size));
    assign list_full  = own_put_q == own_n_q;
    assign own_q      = list_pend_q && rx_left_q == 7'd0 && (own_begin_q || own_valid_q);
    assign list_valid = own_q || (lst_valid && !(list_pend_q && rx_left_q == 7'd0));
    assign list_q     = own_q ? c_qp : lst_q;
    assign list_beat.first_beat = own_q ? own_begin_q : lst.first_beat;
    assign list_beat.first = own_q ? own_first_q : lst.first;
    assign list_beat.n     = own_q ? own_n_q : lst.n;
    assign list_beat.size  = own_q ? own_size : lst.size;
    assign lst_ready  = list_ready && !(list_pend_q && rx_left_q == 7'd0);
    assign lst_over   = list_over;
    always_ff @(posedge clk) begin
        if (c_we && c_word == berth_row_pkg::SEND_LIST_FIRST) own_first_q <= fc.data;
        if (c_we && is_list) begin
            own_n_q     <= fc.data > 32'd127 ? 7'd0 : fc.data[6:0];
            own_put_q   <= 7'd0;
            own_get_q   <= 7'd0;
            list_pend_q <= fc.data > 32'd127 || fc.data == 32'd0;   // refused at once
            own_begin_q <= 1'b1;
            own_valid_q <= 1'b0;
        end
        if (c_we && is_size && !list_full) begin
            own_put_q   <= own_put_q + 7'd1;
            list_pend_q <= own_put_q + 7'd1 == own_n_q;
        end
        // A size is read in the cycle after the one before it is taken.
        own_valid_q <= list_pend_q && !own_begin_q && !(own_q && list_ready);
        if (own_q && list_ready) begin
            own_begin_q <= 1'b0;
            if (!own_begin_q) own_get_q <= own_get_q + 7'd1;
            if (own_begin_q ? own_n_q == 7'd0 : own_get_q + 7'd1 == own_n_q) list_pend_q <= 1'b0;
        end
        if (lst_valid && lst_ready) rx_left_q <= lst.first_beat ? lst.n : lst_over ? 7'd0 : rx_left_q - 7'd1;
        if (rst) begin
            list_pend_q <= 1'b0;
            rx_left_q   <= 7'd0;
            own_n_q     <= 7'd0;
            own_put_q   <= 7'd0;
        end
    end

    // QPs that release memory: begun when nothing of theirs is under way, else looked at again.
    logic          turn_valid, turn_pop, turn_busy, turn_again, revoke_go;
    logic [QW-1:0] turn_q_;
    assign revoke_start = c_command && command.opcode == berth_row_pkg::SEND_CMD_REVOKE;
    berth_fp_ready #(.QPS(QPS), .SETS(2)) turns (.clk(clk), .rst(rst), .set({revoke_start, turn_again}),
        .set_q({c_qp, turn_q_}), .valid(turn_valid), .q(turn_q_), .pop(turn_pop), .busy(turn_busy));
    assign revoke_go  = turn_valid && !quiet_busy && !quiet_answering && !(working && working_q == turn_q_);
    assign turn_again = turn_valid && !revoke_go;
    assign turn_pop   = (revoke_go && revoke_ready) || turn_again;

    // ---- between the engines -------------------------------------------------------------
    berth_card_pkg::element_t element;
    logic            posted_we, elem_we, ctx_we, parsed_we;
    logic            sq_fault_valid, sq_fault_wild, cut_fault_valid, send_fault_valid, send_fault_memory, send_fault_again, ack_fault_valid;
    berth_card_pkg::sent_so_far_t sent_data;
    berth_card_pkg::mark_t mark_data;
    logic            mark_valid, mark_ready, credits_we;
    logic [QW-1:0]   mark_q, credits_q;
    logic [7:0]      credits_n, log_piece;
    logic [QW-1:0]   posted_q, elem_q, parsed_q;
    logic [31:0]     posted_bytes;
    logic [LE-1:0]   elem_idx;
    logic [LC:0]     done_ctxs;
    logic [8*berth_regs_pkg::MAX_INLINE-1:0] elem_data;
    logic [LC-1:0]   ctx_idx;
    berth_card_pkg::range_t ctx_data;
    logic [15:0]     parsed_elems, done_elems;
    logic            done_we, covered_we, sent_we, piece_we, cut_we, freed_we, log_we;
    logic [QW-1:0]   done_q, covered_q, sent_q, piece_q, cut_q, freed_q, log_q;
    berth_card_pkg::covered_t covered_data;
    logic [7:0]      cut_pieces;
    logic [LB:0]     freed_blocks;
    logic [31:0]     freed_bytes;
    logic [LP-1:0]   piece_idx;
    berth_card_pkg::piece_t piece_data;
    logic [LC:0]     piece_ctxs;
    logic [WB-1:0]   log_psn;
    berth_card_pkg::where_t log_where;
    berth_card_pkg::asked_t log_asked;
    logic            lost_valid, lost_ready, again_valid, again_ready, fail_valid, fail_ready, place_valid, place_ready;
    logic [QW-1:0]   lost_q, again_q, fail_q, place_q;
    berth_card_pkg::lost_t lost_data;
    logic [23:0]     fail_psn;
    logic [LR-1:0]   place_idx, fixed_place;
    logic            block_we, state_we, held_set, fixed_we;
    logic [QW-1:0]   block_q, state_q;
    logic [LB:0]     block_idx, state_idx;
    berth_card_pkg::block_t block_data;
    berth_card_pkg::block_state_t state_data;
    berth_card_pkg::fixed_t fixed_data;
    berth_card_pkg::acked_t acked_data;
    logic            lsn_we;
    logic [QW-1:0]   lsn_q;
    berth_card_pkg::lsn_t lsn_data;
    logic            acked_we, end_we, want_we;
    logic [QW-1:0]   acked_q, end_q, want_q;
    berth_card_pkg::want_t want_data;
    logic [LE-1:0]   end_idx;
    berth_card_pkg::element_end_t end_data;
    logic            small_valid, small_pop, big_valid, big_pop, ctl_valid, ctl_pop;
    berth_card_pkg::open_t open;
    logic [6:0]      small_tag, big_tag, ctl_tag, at_tag, head_tag;
    logic [17:0]     at;
    berth_card_pkg::packet_t pkt;
    logic            pkt_valid, pkt_ready, part_valid, part_ready;
    logic            made_valid;
    logic [QW-1:0]   made_q, pkt_q, open_q, left_q;
    berth_card_pkg::part_t part_data;
    logic            open_valid, head_valid, head_ready, left_valid, left_ready;
    berth_card_pkg::left_t left;
    // Of packets that have left, and of answers that are in place.
    logic            gone_valid, gone_ready, dead_valid, dead_ready, came_valid, came_ready, unwritten_valid, unwritten_ready;
    logic            took_valid, took_ready, begun_valid, begun_ready, judging;
    logic [QW-1:0]   gone_q, dead_q, came_q, begun_q;
    logic [23:0]     dead_psn, came_psn, begun_psn;
    berth_card_pkg::left_t gone, came;
    logic            answer_fault_valid;
    logic [QW-1:0]   answer_fault_q;
    logic [7:0]      answer_fault_status;
    logic [QW-1:0]   sq_fault_q, cut_fault_q, send_fault_q, ack_fault_q;
    logic [7:0]      cut_fault_status, send_fault_status;
    logic [1:0]      ack_fault_kind;
    berth_row_pkg::event_nak_t ack_fault_arg;

    berth_fp_send_wqe #(.QPS(QPS), .HOST_W(HOST_W), .LE(LE), .LC(LC)) send_wqe (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_any(init_q != '0),
        .init_valid(init_q[1:0]), .init_q(c_qp), .init_ack(init_done[1:0]), .fdb_valid(fdb_valid),
        .fdb_ready(fdb_ready), .fdb(fdb), .qr_valid(qr_valid), .qr_ready(qr_ready), .qr(qr), .qc_valid(qc_valid),
        .qc_data(qc_data), .qc(qc), .done_we(done_we), .done_q(done_q), .done_elems(done_elems), .done_ctxs(done_ctxs),
        .posted_we(posted_we), .posted_q(posted_q), .posted_bytes(posted_bytes), .elem_we(elem_we), .elem_q(elem_q),
        .elem_idx(elem_idx), .element(element), .elem_data(elem_data), .ctx_we(ctx_we), .ctx_idx(ctx_idx),
        .ctx_data(ctx_data), .parsed_we(parsed_we), .parsed_q(parsed_q), .parsed_elems(parsed_elems), .asked_q(c_qp),
        .queued(queued), .sq_fault_valid(sq_fault_valid), .sq_fault_wild(sq_fault_wild), .sq_fault_q(sq_fault_q)
    );

    assign ev.bad_wqe = elem_we && element.bad;

    berth_fp_cut #(.QPS(QPS), .LE(LE), .LC(LC), .LP(LP)) cutter (
        .clk(clk), .rst(rst), .now(now), .bind_valid(bind_valid), .bind_q(bind_q), .bind_data(bind_data), .bound_we(bound),
        .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_any(init_q != '0), .init_valid(init_q[2]),
        .init_q(c_qp), .init_ack(init_done[2]), .elem_we(elem_we), .elem_q(elem_q), .elem_idx(elem_idx),
        .element(element), .parsed_we(parsed_we), .parsed_q(parsed_q), .parsed_elems(parsed_elems),
        .list_valid(list_valid), .list_ready(list_ready), .list_over(list_over), .list_q(list_q), .list_beat(list_beat),
        .give_valid(give_pend_q), .give_ready(credits_ready), .give_q(c_qp), .give_n(command.argument),
        .give_first(given_up), .credits_we(credits_we), .credits_q(credits_q), .credits_n(credits_n),
        .done_we(done_we), .done_q(done_q), .done_elems(done_elems),
        .covered_we(covered_we), .covered_q(covered_q), .covered_data(covered_data), .sent_we(sent_we),
        .sent_q(sent_q), .sent_data(sent_data), .piece_we(piece_we), .piece_q(piece_q), .piece_idx(piece_idx),
        .piece_data(piece_data), .piece_ctxs(piece_ctxs), .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .cut_fault_valid(cut_fault_valid), .cut_fault_q(cut_fault_q), .cut_fault_status(cut_fault_status),
        .ev_list(ev.list_taken), .ev_repeat(ev.list_again), .ev_refused(ev.refused), .ev_credit(ev.credit),
        .ev_held(ev.held)
    );

    logic        acq_valid, acq_ready, rel_valid, rel_ready;
    berth_card_pkg::range_ask_t acq, rel;
    berth_fp_block #(.QPS(QPS), .LC(LC), .LP(LP), .LB(LB), .LR(LR), .WB(WB), .DATA_W(DATA_W)) block (
        .clk(clk), .rst(rst), .now(now[15:0]), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_any(init_q != '0),
        .init_valid(init_q[3]), .init_q(c_qp), .init_ack(init_done[3]), .ctx_we(ctx_we), .ctx_q(elem_q),
        .ctx_idx(ctx_idx), .ctx_data(ctx_data), .piece_we(piece_we), .piece_q(piece_q), .piece_idx(piece_idx),
        .piece_data(piece_data), .piece_ctxs(piece_ctxs), .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .freed_we(freed_we), .freed_q(freed_q), .freed_blocks(freed_blocks), .freed_bytes(freed_bytes),
        .want_we(want_we), .want_q(want_q), .want_data(want_data), .log_we(log_we), .log_q(log_q), .log_psn(log_psn),
        .log_where(log_where), .mark_valid(mark_valid), .mark_ready(mark_ready), .mark_data(mark_data),
        .mark_q(mark_q), .still(still), .wake_we(revoke_done), .wake_q(mark_q), .count_q(c_qp), .count_asked(asked),
        .count_held(held_ever), .lost_valid(lost_valid), .lost_ready(lost_ready), .lost_q(lost_q),
        .lost_data(lost_data), .acq_valid(acq_valid), .acq_ready(acq_ready), .acq(acq), .xr_valid(xr_valid),
        .xr_ready(xr_ready), .xr(xr), .block_we(block_we), .block_q(block_q), .block_idx(block_idx),
        .block_data(block_data), .state_we(state_we), .state_q(state_q), .state_idx(state_idx),
        .state_data(state_data), .held_set(held_set), .fixed_we(fixed_we), .fixed_place(fixed_place),
        .fixed_data(fixed_data), .covered_we(covered_we), .covered_q(covered_q), .covered_data(covered_data),
        .ev_block(ev.block), .ev_stray(ev.stray)
    );

    berth_fp_send #(.QPS(QPS), .LE(LE), .LC(LC), .LP(LP), .LB(LB), .LR(LR), .WB(WB)) send (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_any(init_q != '0), .init_valid(init_q[4]),
        .init_q(c_qp), .init_ack(init_done[4]), .posted_we(posted_we), .posted_q(posted_q),
        .posted_bytes(posted_bytes), .piece_we(piece_we), .piece_q(piece_q), .piece_idx(piece_idx),
        .piece_data(piece_data), .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces), .block_we(block_we),
        .block_q(block_q), .block_idx(block_idx), .block_data(block_data), .state_we(state_we), .state_q(state_q),
        .state_idx(state_idx), .state_data(state_data), .held_set(held_set), .fixed_we(fixed_we),
        .fixed_place(fixed_place), .fixed_data(fixed_data), .covered_we(covered_we), .covered_q(covered_q),
        .covered_data(covered_data), .acked_we(acked_we), .acked_q(acked_q), .acked_data(acked_data), .lsn_we(lsn_we),
        .lsn_q(lsn_q), .lsn_data(lsn_data), .still(still),
        .wake_we(revoke_done), .wake_q(mark_q), .working(working), .working_q(working_q), .small_valid(small_valid && !take_small),
        .small_tag(small_tag), .small_pop(small_pop), .big_valid(big_valid && !take_big), .big_tag(big_tag), .big_pop(big_pop),
        .small_wanted(small_wanted), .big_wanted(big_wanted),
        .log_we(log_we), .log_q(log_q), .log_psn(log_psn), .log_piece(log_piece), .log_where(log_where), .log_asked(log_asked),
        .want_we(want_we), .want_q(want_q), .want_data(want_data), .end_we(end_we), .end_q(end_q), .end_idx(end_idx),
        .end_data(end_data), .sent_we(sent_we), .sent_q(sent_q), .sent_data(sent_data),
        .sent_again_valid(sent_again_valid), .sent_again_ready(sent_again_ready), .sent_again_q(sent_again_q),
        .sent_again_data(sent_again_data), .made_valid(made_valid), .made_q(made_q), .pkt_valid(pkt_valid), .pkt_ready(pkt_ready), .pkt_q(pkt_q), .pkt(pkt),
        .part_valid(part_valid), .part_ready(part_ready), .part_data(part_data), .send_fault_valid(send_fault_valid),
        .send_fault_q(send_fault_q), .send_fault_status(send_fault_status), .send_fault_memory(send_fault_memory),
        .send_fault_again(send_fault_again), .ev_packet(ev.packet), .ev_again(ev.again)
    );

    logic          backlog;
    logic          sent_again_valid, sent_again_ready;
    logic [QW-1:0] sent_again_q;
    berth_card_pkg::again_t sent_again_data, again_data;
    berth_lutfifo #(.WIDTH(QW + $bits(again_data)), .DEPTH(4)) agains (.clk(clk), .rst(rst),
        .wr_valid(sent_again_valid), .wr_ready(sent_again_ready), .wr_data({sent_again_q, sent_again_data}),
        .rd_valid(again_valid), .rd_ready(again_ready), .rd_data({again_q, again_data}));

    // ---- places for answers ---------------------------------------------------------------
    // One is taken when there is an answer for it, in turn with data packets that wait for one of its size.
    localparam logic [12:0] SMALL = 13'd1024;      // bytes of payload that fit a small place
    logic          place_here_q, answered_q, small_wanted, big_wanted, small_wanted_q, big_wanted_q, take_small, take_big;
    logic [6:0]    place_tag_q;
    logic          want_place;
    assign want_place = rsp_valid && !place_here_q;
    assign take_small = want_place && rsp.len <= SMALL && small_valid && !(answered_q && small_wanted_q);
    assign take_big   = want_place && rsp.len > SMALL && big_valid && !(answered_q && big_wanted_q);
    always_ff @(posedge clk) begin
        if (rsp_valid && rsp_ready) place_here_q <= 1'b0;
        if (take_small || take_big) {place_here_q, place_tag_q} <= {1'b1, take_small ? small_tag : big_tag};
        if (take_small || take_big) answered_q <= 1'b1;
        else if (small_pop || big_pop) answered_q <= 1'b0;
        {small_wanted_q, big_wanted_q} <= {small_wanted, big_wanted};
        if (rst) {place_here_q, answered_q} <= '0;
    end

    berth_fp_frame_out #(.QPS(QPS), .WORD_W(HOST_W), .LE(LE), .LB(LB)) frame_out (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .elem_we(elem_we), .elem_q(elem_q),
        .elem_idx(elem_idx), .elem_data(elem_data), .element(element), .pkt_valid(pkt_valid), .pkt_ready(pkt_ready), .pkt_q(pkt_q),
        .pkt(pkt), .part_valid(part_valid), .part_ready(part_ready), .part_data(part_data), .afr_valid(afr_valid),
        .afr_ready(afr_ready), .afr_q(afr_q), .afr(afr), .lfr_valid(lfr_valid), .lfr_ready(lfr_ready), .lfr_q(lfr_q),
        .lfr(lfr), .rsp_valid(rsp_valid && place_here_q), .rsp_ready(rsp_ready), .rsp_q(rsp_q), .rsp(rsp),
        .rsp_tag(place_tag_q), .ctl_valid(ctl_valid), .ctl_tag(ctl_tag), .ctl_pop(ctl_pop), .backlog(backlog), .at(at),
        .at_tag(at_tag), .open_valid(open_valid), .open(open), .open_q(open_q), .head_valid(head_valid),
        .head_ready(head_ready), .head_tag(head_tag), .hw_valid(hw_valid), .hw_ready(hw_ready), .hw_addr(hw_addr),
        .hw_data(hw_data), .hw_strb(hw_strb), .load_valid(load_valid), .load_ready(load_ready), .load(load),
        .ev_ack(ev.ack), .ev_list(ev.lists)
    );

    berth_fp_tx_places #(.QPS(QPS), .LB(LB), .RAM_BASE(RAM_BASE)) tx_places (
        .clk(clk), .rst(rst), .init_valid(init_q[8]), .init_q(c_qp), .init_ack(init_done[8]),
        .made_valid(made_valid), .made_q(made_q), .ctl_valid(ctl_valid), .ctl_tag(ctl_tag),
        .ctl_pop(ctl_pop), .big_valid(big_valid), .big_tag(big_tag), .big_pop(big_pop || take_big),
        .small_valid(small_valid), .small_tag(small_tag), .small_pop(small_pop || take_small), .rspd_valid(rspd_valid),
        .rspd(rspd), .at_tag(at_tag), .at(at), .open_valid(open_valid), .open(open),
        .open_q(open_q), .head_valid(head_valid), .head_ready(head_ready), .head_tag(head_tag),
        .loaded_valid(loaded_valid), .loaded(loaded), .fs_valid(fs_valid), .fs_ready(fs_ready), .fs(fs),
        .fl_valid(fl_valid), .fl_tag(fl_tag), .backlog(backlog), .busy_q({turn_q_, c_qp}), .busy({quiet_busy, busy}),
        .gone_valid(gone_valid), .gone_ready(gone_ready), .gone_q(gone_q), .gone(gone), .dead_valid(dead_valid),
        .dead_ready(dead_ready), .dead_q(dead_q), .dead_psn(dead_psn)
    );

    berth_fp_answer #(.QPS(QPS), .LB(LB), .WB(WB)) answer (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_valid(init_q[9]), .init_q(c_qp),
        .init_ack(init_done[9]), .ans_valid(ans_valid), .ans_ready(ans_ready), .ans_q(ans_q), .ans(ans),
        .ans_free_valid(ans_free_valid), .ans_free_place(ans_free_place), .sent_we(sent_we), .sent_q(sent_q),
        .sent_data(sent_data), .acked_we(acked_we), .acked_q(acked_q), .acked_data(acked_data), .log_we(log_we),
        .log_q(log_q), .log_psn(log_psn), .log_asked(log_asked), .block_we(block_we), .block_q(block_q),
        .block_idx(block_idx), .block_data(block_data), .state_we(state_we), .state_q(state_q), .state_idx(state_idx),
        .state_data(state_data), .still(still), .busy_q({turn_q_, c_qp}), .busy({quiet_answering, answering}),
        .put_valid(put_valid), .put_ready(put_ready), .put_q(put_q), .put(put), .put_over_valid(put_over_valid),
        .put_over_err(put_over_err), .judging(judging),
        .begun_valid(begun_valid), .begun_ready(begun_ready), .begun_q(begun_q), .begun_psn(begun_psn),
        .came_valid(came_valid), .came_ready(came_ready),
        .came_q(came_q), .came(came), .took_valid(took_valid), .took_ready(took_ready), .unwritten_valid(unwritten_valid),
        .unwritten_ready(unwritten_ready), .came_psn(came_psn), .answer_fault_valid(answer_fault_valid),
        .answer_fault_q(answer_fault_q), .answer_fault_status(answer_fault_status), .ev_bad(ev.bad_answer)
    );

    assign left_valid = gone_valid || came_valid;
    assign {left_q, left} = gone_valid ? {gone_q, gone} : {came_q, came};
    assign gone_ready = left_ready;
    assign came_ready = left_ready && !gone_valid;
    assign fail_valid = dead_valid || unwritten_valid;
    assign {fail_q, fail_psn} = dead_valid ? {dead_q, dead_psn} : {came_q, came_psn};
    assign dead_ready = fail_ready;
    assign unwritten_ready = fail_ready && !dead_valid;

    berth_fp_release #(.QPS(QPS), .LB(LB), .LR(LR)) release_ (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_valid(init_q[5]), .init_q(c_qp),
        .init_ack(init_done[5]), .block_we(block_we), .block_q(block_q), .block_idx(block_idx),
        .block_data(block_data), .state_we(state_we), .state_q(state_q), .state_idx(state_idx),
        .state_data(state_data), .covered_we(covered_we), .covered_q(covered_q), .covered_data(covered_data),
        .drain_valid(drain_pend_q), .drain_ready(drain_ready), .drain_q(c_qp), .revoke_valid(revoke_go),
        .revoke_ready(revoke_ready), .revoke_done(revoke_done), .revoke_q(turn_q_), .range_start(range_q[63:0]),
        .range_end(range_q[127:64]), .mark_valid(mark_valid), .mark_ready(mark_ready), .mark_data(mark_data),
        .mark_q(mark_q), .count_q(c_qp), .count_given(given_ever), .left_valid(left_valid), .left_ready(left_ready),
        .left_q(left_q), .left(left), .rel_valid(rel_valid), .rel_ready(rel_ready), .rel(rel), .freed_we(freed_we),
        .freed_q(freed_q), .freed_blocks(freed_blocks), .freed_bytes(freed_bytes), .place_valid(place_valid),
        .place_ready(place_ready), .place_q(place_q), .place_idx(place_idx), .ev_release(ev.give_back)
    );

    berth_fp_ack #(.QPS(QPS), .LR(LR), .WB(WB)) acker (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_any(init_q != '0), .init_valid(init_q[6]),
        .init_q(c_qp), .init_ack(init_done[6]), .cmd_valid(cmd_q), .cmd_ready(cmd_ready), .cmd_q(c_qp),
        .cmd_op(command.opcode[2:0]), .now(now), .hurry(hurry), .swept(swept), .swept_on(swept_on),
        .swept_at(swept_at), .ack_valid(ack_valid && !judging), .ack_ready(ack_ready), .ack_q(ack_q), .ack(ack),
        .begun_valid(begun_valid), .begun_ready(begun_ready), .begun_q(begun_q), .begun_psn(begun_psn), .took_valid(took_valid),
        .took_ready(took_ready), .came_q(came_q), .came_psn(came_psn), .sent_we(sent_we),
        .sent_q(sent_q), .sent_data(sent_data), .log_we(log_we), .log_q(log_q), .cut_we(cut_we), .cut_q(cut_q),
        .cut_pieces(cut_pieces), .again_valid(again_valid), .again_ready(again_ready), .again_q(again_q),
        .again_data(again_data), .fail_valid(fail_valid), .fail_ready(fail_ready), .fail_q(fail_q),
        .fail_psn(fail_psn), .place_valid(place_valid), .place_ready(place_ready), .place_q(place_q),
        .place_idx(place_idx), .lost_valid(lost_valid), .lost_ready(lost_ready), .lost_q(lost_q),
        .lost_data(lost_data), .acked_we(acked_we), .acked_q(acked_q), .acked_data(acked_data),
        .lsn_we(lsn_we), .lsn_q(lsn_q), .lsn_data(lsn_data),
        .ack_fault_valid(ack_fault_valid), .ack_fault_q(ack_fault_q), .ack_fault_kind(ack_fault_kind),
        .ack_fault_arg(ack_fault_arg), .round_we(round_we), .round_q(round_q), .round(round), .ev_taken(ev.ack_taken),
        .ev_bad(ev.bad_ack)
    );

    berth_fp_send_complete #(.QPS(QPS), .LE(LE), .LC(LC)) send_complete (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg(cfg), .init_any(init_q != '0), .init_valid(init_q[7]),
        .init_q(c_qp), .init_ack(init_done[7]), .err_valid(err_pend_q), .err_ready(err_ready), .err_q(c_qp),
        .err_status(command.argument[7:0]), .elem_we(elem_we), .elem_q(elem_q), .elem_idx(elem_idx), .element(element),
        .parsed_we(parsed_we), .parsed_q(parsed_q), .parsed_elems(parsed_elems), .end_we(end_we), .end_q(end_q),
        .end_idx(end_idx), .end_data(end_data), .sent_we(sent_we), .sent_q(sent_q), .sent_data(sent_data),
        .acked_we(acked_we), .acked_q(acked_q), .acked_data(acked_data), .fcq_valid(fcq_valid), .fcq_ready(fcq_ready),
        .fcq(fcq), .done_we(done_we), .done_q(done_q), .done_elems(done_elems), .done_ctxs(done_ctxs)
    );

    berth_fp_mem #(.WIDTH(20), .DEPTH(QPS)) m_round (.clk(clk), .we(round_we), .waddr(round_q), .wdata(round),
        .re(1'b1), .raddr(c_qp), .rdata(round_read));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_una (.clk(clk), .we(acked_we), .waddr(acked_q), .wdata(acked_data.una),
        .re(1'b1), .raddr(c_qp), .rdata(una_read));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_next (.clk(clk), .we(sent_we), .waddr(sent_q), .wdata(sent_data.next),
        .re(1'b1), .raddr(c_qp), .rdata(next_read));

    berth_fp_mem #(.WIDTH(LB+1), .DEPTH(QPS)) m_blocks (.clk(clk), .we(covered_we), .waddr(covered_q),
        .wdata(covered_data.blocks), .re(1'b1), .raddr(c_qp), .rdata(blocks_read));
    berth_fp_mem #(.WIDTH(LB+1), .DEPTH(QPS)) m_freed (.clk(clk), .we(freed_we), .waddr(freed_q),
        .wdata(freed_blocks), .re(1'b1), .raddr(c_qp), .rdata(freed_read));

    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_credits (.clk(clk), .we(credits_we), .waddr(credits_q),
        .wdata(credits_n), .re(1'b1), .raddr(c_qp), .rdata(credits_read));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_cut (.clk(clk), .we(cut_we), .waddr(cut_q),
        .wdata(cut_pieces), .re(1'b1), .raddr(c_qp), .rdata(cut_read));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_sent (.clk(clk), .we(sent_we), .waddr(sent_q),
        .wdata(sent_data.pieces), .re(1'b1), .raddr(c_qp), .rdata(sent_read));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS << WB)) m_log_piece (.clk(clk), .we(log_we), .waddr({log_q, log_psn}),
        .wdata(log_piece), .re(1'b1), .raddr({c_qp, una_read[WB-1:0]}), .rdata(oldest_piece));

    // ---- translation: what is shown stays until it is taken --------------------------------
    logic turn_q, held_q, giving;
    assign giving    = held_q ? turn_q : rel_valid;
    assign xa_valid  = rel_valid || acq_valid;
    assign xa        = giving ? rel : acq;
    assign rel_ready = giving && xa_ready;
    assign acq_ready = !giving && xa_ready;
    always_ff @(posedge clk) begin
        held_q <= xa_valid && !xa_ready;
        turn_q <= giving;
        if (rst) held_q <= 1'b0;
    end

    // ---- events for firmware --------------------------------------------------------------- From ACK a time-out, a
    // NAK or an RNR; the last one replaces those before it, because it says more. Memory that an answer is to be written to
    // is of a packet that was sent before.
    typedef struct packed {
        logic [1:0]  kind;              // of ACK: ACK_*; [0] of SEND and ANSWER: memory; of the queue: its index
        logic [31:0] argument;
    } report_t;
    berth_row_pkg::event_list_t cut_arg;
    berth_row_pkg::event_bad_wqe_t bad_wqe_arg;
    berth_row_pkg::event_no_memory_t send_arg, answer_arg;
    always_comb begin
        cut_arg            = '0;
        cut_arg.answer     = cut_fault_status;
        bad_wqe_arg        = '0;
        bad_wqe_arg.status = send_fault_status;
        send_arg           = '0;
        send_arg.again     = send_fault_again;
        send_arg.status    = send_fault_status;
        answer_arg         = '0;
        answer_arg.again   = 1'b1;
        answer_arg.status  = answer_fault_status;
    end
    logic [5:0]    fe_source;
    logic [QW-1:0] fe_q;
    report_t       fe_what;
    logic [7:0]    fe_code;
    berth_fp_events #(.QPS(QPS), .SOURCES(6), .W($bits(fe_what))) events (.clk(clk), .rst(rst),
        .put({bind_valid, answer_fault_valid, sq_fault_valid, send_fault_valid, cut_fault_valid, ack_fault_valid}),
        .put_q({bind_q, answer_fault_q, sq_fault_q, send_fault_q, cut_fault_q, ack_fault_q}),
        .put_word({2'd0, 32'd0, 2'd1, answer_arg, 1'b0, sq_fault_wild, 32'd0,
                   1'b0, send_fault_memory, send_fault_memory ? send_arg : bad_wqe_arg, 2'd0, cut_arg, ack_fault_kind, ack_fault_arg}),
        .clear(c_we && c_word == berth_row_pkg::SEND_COMMAND && command.opcode == berth_row_pkg::SEND_CMD_START), .clear_q(c_qp),
        .valid(fe_valid), .ready(fe_ready), .source(fe_source), .q(fe_q), .word(fe_what), .busy(fe_busy));
    logic [7:0]    ack_code;
    assign ack_code = fe_what.kind == berth_row_pkg::ACK_TIMEOUT ? berth_row_pkg::EVENT_TIMEOUT
                    : fe_what.kind == berth_row_pkg::ACK_NAK ? berth_row_pkg::EVENT_NAK : berth_row_pkg::EVENT_RNR;
    assign fe_code = fe_source[0] ? ack_code : fe_source[1] ? berth_row_pkg::EVENT_LIST
                   : fe_source[2] || fe_source[4] ? (fe_what.kind[0] ? berth_row_pkg::EVENT_NO_MEMORY : berth_row_pkg::EVENT_BAD_WQE)
                   : fe_source[5] ? berth_row_pkg::EVENT_BIND
                   : fe_what.kind[0] ? berth_row_pkg::EVENT_SEND_INDEX : berth_row_pkg::EVENT_SEND_QUEUE;
    assign fe.code     = fe_code;
    assign fe.qpn      = 16'(fe_q);
    assign fe.argument = {8'd0, fe_what.argument};

    logic unused;
    assign unused = &{1'b0, fc, turn_busy, fe_source[3]};
endmodule
