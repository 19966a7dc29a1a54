// SPDX-License-Identifier: Apache-2.0 OR MIT
// The sender's half of the fast path: doorbells to frames, acknowledgements to completions (docs/internals/sending.md).
// It also sends ACKs and credit lists for the receiver's half.
//
// Its rows, their commands and its events are those of driver/abi (rows.rs: `send`, `event`; docs/reference/rows.md):
// cfg_addr is {QP, word [5:0]}.
module berth_fp_tx #(
    parameter int unsigned QPS      = 64,
    parameter int unsigned DATA_W   = 64,
    parameter int unsigned HOST_W   = 2 * DATA_W,
    parameter int unsigned WB       = $clog2(berth_regs_pkg::FAST_PLACES),   // log2 of the window's places: at most one packet less is under way
    parameter int unsigned LE       = $clog2(berth_regs_pkg::FAST_ELEMENTS), // log2 of the elements of a QP
    parameter int unsigned LC       = $clog2(berth_regs_pkg::FAST_CONTEXTS), // log2 of their contexts
    parameter int unsigned RAM_BASE = 0         // of the transmit places in packet RAM (see berth_fp_tx_places)
) (
    input  logic                     clk,
    input  logic                     rst,
    input  logic [31:0]              now,

    input  logic                     cfg_req,
    input  logic                     cfg_we,
    input  logic [15:0]              cfg_addr,
    input  logic [31:0]              cfg_wdata,
    output logic                     cfg_ack,
    output logic [31:0]              cfg_rdata,
    output logic                     fw_valid,
    input  logic                     fw_ready,
    output logic [63:0]              fw_word,
    output logic                     fw_busy,      // there are events

    input  logic                     db_valid,
    output logic                     db_ready,
    input  logic [$clog2(QPS)-1:0]   db_q,
    input  logic [15:0]              db_pi,
    input  logic [31:0]              db_posted,
    input  logic                     db_inline,
    input  logic [511:0]             db_wqe,

    output logic                     qr_valid,
    input  logic                     qr_ready,
    output logic [63:0]              qr_addr,
    output logic [9:0]               qr_len,
    output logic [7:0]               qr_tag,
    input  logic                     qc_valid,
    input  logic [HOST_W-1:0]        qc_data,
    input  logic [7:0]               qc_tag,
    input  logic [9:0]               qc_off,
    input  logic                     qc_last,
    input  logic                     qc_err,

    output logic                     xa_valid,
    input  logic                     xa_ready,
    output logic                     xa_release,
    output logic                     xa_write,
    output logic [7:0]               xa_asid,
    output logic [63:0]              xa_va,
    output logic [20:0]              xa_len,
    output logic [15:0]              xa_tag,
    input  logic                     xr_valid,
    output logic                     xr_ready,
    input  logic [15:0]              xr_tag,
    input  logic [1:0]               xr_kind,
    input  logic [7:0]               xr_status,

    output logic                     pr_valid,
    input  logic                     pr_ready,
    output logic [17:0]              pr_local,
    output logic [12:0]              pr_len,
    output logic [7:0]               pr_asid,
    output logic [63:0]              pr_va,
    output logic [7:0]               pr_tag,
    input  logic                     pd_valid,
    input  logic [7:0]               pd_tag,
    input  logic [1:0]               pd_status,

    output logic                     hw_valid,
    input  logic                     hw_ready,
    output logic [17:0]              hw_addr,
    output logic [HOST_W-1:0]        hw_data,      // a word of packet RAM, at an address that is a multiple of it
    output logic [HOST_W/8-1:0]      hw_strb,
    output logic                     ms_valid,
    input  logic                     ms_ready,
    output logic [17:0]              ms_addr,
    output logic [12:0]              ms_len,
    output logic                     ms_loop,
    output logic [7:0]               ms_tag,
    input  logic                     ml_valid,
    input  logic [7:0]               ml_tag,

    output logic                     cq_valid,
    input  logic                     cq_ready,
    output logic [7:0]               cq_cqn,
    output logic [7*32-1:0]          cq_words,

    // time-outs (see berth_fp_ack)
    input  logic                     hurry,
    output logic                     swept,
    output logic                     swept_on,
    output logic [31:0]              swept_at,

    // acknowledgements and lists that came
    input  logic                     ack_valid,
    output logic                     ack_ready,
    input  logic [$clog2(QPS)-1:0]   ack_q,
    input  logic [23:0]              ack_psn,
    input  logic [7:0]               ack_syndrome,
    input  logic                     ack_has_sack,
    input  logic [127:0]             ack_sack,
    input  logic                     lst_valid,
    output logic                     lst_ready,
    output logic                     lst_over,
    input  logic [$clog2(QPS)-1:0]   lst_q,
    input  logic                     lst_begin,
    input  logic [31:0]              lst_first,
    input  logic [6:0]               lst_n,
    input  logic [31:0]              lst_size,
    // acknowledgements and lists to send
    input  logic                     afr_valid,
    output logic                     afr_ready,
    input  logic [$clog2(QPS)-1:0]   afr_q,
    input  logic [23:0]              afr_psn,
    input  logic [7:0]               afr_syndrome,
    input  logic [23:0]              afr_msn,
    input  logic                     afr_has_sack,
    input  logic [127:0]             afr_sack,
    input  logic                     lfr_valid,
    output logic                     lfr_ready,
    input  logic [$clog2(QPS)-1:0]   lfr_q,
    input  logic                     lfr_begin,
    input  logic [31:0]              lfr_epoch,
    input  logic [31:0]              lfr_first,
    input  logic [6:0]               lfr_n,
    input  logic [63:0]              lfr_sizes,

    // counters, one cycle each
    output logic                     ev_packet,     // data packet framed ...
    output logic                     ev_again,      // ... not for the first time
    output logic                     ev_ack,
    output logic                     ev_list,
    output logic                     ev_ack_taken,  // an acknowledgement came that may be ...
    output logic                     ev_bad_ack,    // ... or cannot be
    output logic                     ev_list_taken,
    output logic                     ev_list_again, // a list came that was there
    output logic                     ev_refused,    // a list was refused
    output logic                     ev_credit,     // a credit of a list was taken
    output logic                     ev_held,       // a piece had to wait for a credit
    output logic                     ev_block,
    output logic                     ev_stray,      // the host answers what it was not asked
    output logic                     ev_release,
    output logic                     ev_bad_wqe
);
    localparam int unsigned QW = $clog2(QPS);
    localparam int unsigned LP = 4, LB = 5, LR = 2;

    // ---- configuration -----------------------------------------------------------------
    typedef enum logic [1:0] {C_IDLE, C_INIT, C_COMMAND, C_ACK} config_t;
    config_t       c_q;
    logic          c_we;
    logic [QW-1:0] c_qp;
    logic [5:0]    c_word;
    logic [8:0]    init_q, init_done;
    logic          cmd_q, err_pend_q, cmd_ready, err_ready, drain_pend_q, drain_ready, give_pend_q, credits_ready;
    logic          busy, making, working, quiet_busy, queued, list_full, list_pend_q, starved, holds, is_list, is_size;
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
    berth_regs_pkg::send_command_t command;
    berth_regs_pkg::send_held_t    c_held;
    berth_regs_pkg::send_counts_t  c_counts;
    assign command   = cfg_wdata;
    assign c_held.busy       = busy || making;
    assign c_held.queued     = queued;
    assign c_held.revoking   = revoking_q[c_qp];
    assign c_held.starved    = starved;
    assign c_held.zero_27_16 = '0;
    assign c_held.holds      = {9'd0, holds, blocks_out};
    assign c_counts.unacked = {7'd0, unacked};
    assign c_counts.credits = {8'd0, credits_read};
    assign c_bit     = QPS'(1) << c_qp;
    assign c_command = c_we && c_word == berth_regs_pkg::SEND_COMMAND;
    assign held_now  = held_ever - given_ever;
    assign starved   = asked != 7'd0 && held_now == 7'd0;
    assign holds     = asked != 7'd0 || held_now != 7'd0;
    assign under_way = una_read == next_read ? 8'd0 : sent_read - oldest_piece;
    assign unacked   = {1'b0, under_way} + {1'b0, 8'(cut_read - sent_read)};
    assign c_word    = cfg_addr[5:0];
    assign c_qp      = cfg_addr[6 +: QW];
    assign c_we      = c_q == C_IDLE && cfg_req && cfg_we && !cfg_ack;
    // Also while a packet is being made, which may have been begun before the end.
    assign making    = working && working_q == c_qp;
    assign cfg_rdata = c_word == berth_regs_pkg::SEND_UNA ? {8'd0, una_read} : c_word == berth_regs_pkg::SEND_NEXT ? {8'd0, next_read}
                     : c_word == berth_regs_pkg::SEND_HELD ? c_held
                     : c_word == berth_regs_pkg::SEND_COUNTS ? c_counts
                     : c_word == berth_regs_pkg::SEND_KEPT ? given_up
                     : c_word == berth_regs_pkg::SEND_ROUND_TRIP ? {12'd0, round_read}
                     : c_word == berth_regs_pkg::SEND_LAYOUT ? {berth_regs_pkg::LAYOUT_TAG, berth_regs_pkg::LAYOUT_NUMBER} : 32'd0;
    assign blocks_out = blocks_read - freed_read;
    always_ff @(posedge clk) begin
        cfg_ack <= 1'b0;
        init_q  <= init_q & ~init_done;
        if (cmd_ready) cmd_q      <= 1'b0;
        if (err_ready) err_pend_q <= 1'b0;
        if (drain_ready) drain_pend_q <= 1'b0;
        if (credits_ready) give_pend_q <= 1'b0;
        if (c_we && c_word == berth_regs_pkg::SEND_RANGE) range_q[31:0]   <= cfg_wdata;
        if (c_we && c_word == berth_regs_pkg::SEND_RANGE + 6'd1) range_q[63:32]  <= cfg_wdata;
        if (c_we && c_word == berth_regs_pkg::SEND_RANGE + 6'd2) range_q[95:64]  <= cfg_wdata;
        if (c_we && c_word == berth_regs_pkg::SEND_RANGE + 6'd3) range_q[127:96] <= cfg_wdata;
        ended_q    <= (ended_q & ~(c_command && command.opcode == berth_regs_pkg::SEND_CMD_START ? c_bit : '0))
                      | (c_command && command.opcode == berth_regs_pkg::SEND_CMD_END ? c_bit : '0);
        revoking_q <= (revoking_q & ~(revoke_done ? QPS'(1) << mark_q : '0)) | (revoke_start ? c_bit : '0);
        case (c_q)
            C_IDLE: if (cfg_req && !cfg_ack) begin
                c_q <= C_ACK;
                if (cfg_we && c_word == berth_regs_pkg::SEND_COMMAND && command.opcode == berth_regs_pkg::SEND_CMD_START) begin
                    init_q <= '1;
                    c_q    <= C_INIT;
                end else if (cfg_we && c_word == berth_regs_pkg::SEND_COMMAND) begin
                    cmd_q        <= command.opcode <= berth_regs_pkg::SEND_CMD_GO_ON;
                    err_pend_q   <= command.opcode == berth_regs_pkg::SEND_CMD_END;
                    drain_pend_q <= command.opcode == berth_regs_pkg::SEND_CMD_DRAIN;
                    give_pend_q  <= command.opcode == berth_regs_pkg::SEND_CMD_GIVE_UP;
                    c_q          <= C_COMMAND;
                end else if (is_list || is_size) begin
                    c_q          <= C_COMMAND;
                end
            end
            C_INIT:    if (init_q == '0) c_q <= C_ACK;
            C_COMMAND: if (!cmd_q && !err_pend_q && !drain_pend_q && !give_pend_q && !list_pend_q) c_q <= C_ACK;
            default: begin
                cfg_ack <= 1'b1;
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
    logic [31:0]   own_first_q, own_size, list_first, list_size;
    logic [6:0]    own_n_q, own_put_q, own_get_q, list_n, rx_left_q;
    logic          own_q, own_begin_q, own_valid_q, list_valid, list_ready, list_begin;
    logic [QW-1:0] list_q;
    assign is_list = cfg_we && c_word == berth_regs_pkg::SEND_LIST_BEGIN;
    assign is_size = cfg_we && c_word == berth_regs_pkg::SEND_LIST_SIZE;
    berth_fp_mem #(.WIDTH(32), .DEPTH(128), .OWN(1'b1)) m_own (.clk(clk), .we(c_we && is_size), .waddr(own_put_q), .wdata(cfg_wdata),
        .re(1'b1), .raddr(own_get_q), .rdata(own_size));
    assign list_full  = own_put_q == own_n_q;
    assign own_q      = list_pend_q && rx_left_q == 7'd0 && (own_begin_q || own_valid_q);
    assign list_valid = own_q || (lst_valid && !(list_pend_q && rx_left_q == 7'd0));
    assign list_q     = own_q ? c_qp : lst_q;
    assign list_begin = own_q ? own_begin_q : lst_begin;
    assign list_first = own_q ? own_first_q : lst_first;
    assign list_n     = own_q ? own_n_q : lst_n;
    assign list_size  = own_q ? own_size : lst_size;
    assign lst_ready  = list_ready && !(list_pend_q && rx_left_q == 7'd0);
    always_ff @(posedge clk) begin
        if (c_we && c_word == berth_regs_pkg::SEND_LIST_FIRST) own_first_q <= cfg_wdata;
        if (c_we && is_list) begin
            own_n_q     <= cfg_wdata > 32'd127 ? 7'd0 : cfg_wdata[6:0];
            own_put_q   <= 7'd0;
            own_get_q   <= 7'd0;
            list_pend_q <= cfg_wdata > 32'd127 || cfg_wdata == 32'd0;   // refused at once
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
        if (lst_valid && lst_ready) rx_left_q <= lst_begin ? lst_n : lst_over ? 7'd0 : rx_left_q - 7'd1;
        if (rst) begin
            list_pend_q <= 1'b0;
            rx_left_q   <= 7'd0;
            own_n_q     <= 7'd0;
            own_put_q   <= 7'd0;
        end
    end

    // QPs that let go of memory: begun when nothing of theirs is under way, else looked at again.
    logic          turn_valid, turn_pop, turn_busy, turn_again, revoke_go;
    logic [QW-1:0] turn_q_;
    assign revoke_start = c_command && command.opcode == berth_regs_pkg::SEND_CMD_REVOKE;
    berth_fp_ready #(.QPS(QPS), .SETS(2)) turns (.clk(clk), .rst(rst), .set({revoke_start, turn_again}),
        .set_q({c_qp, turn_q_}), .valid(turn_valid), .q(turn_q_), .pop(turn_pop), .busy(turn_busy));
    assign revoke_go  = turn_valid && !quiet_busy && !(working && working_q == turn_q_);
    assign turn_again = turn_valid && !revoke_go;
    assign turn_pop   = (revoke_go && revoke_ready) || turn_again;

    // ---- between the engines -------------------------------------------------------------
    logic            posted_we, elem_we, elem_bad, elem_push, elem_inline, ctx_we, parsed_we;
    logic            sent_local, fw_again, mark_valid, mark_ready, mark_again, credits_we;
    logic [QW-1:0]   mark_q, credits_q;
    logic [5:0]      mark_idx;
    logic [7:0]      mark_state, credits_n, log_piece;
    logic [QW-1:0]   posted_q, elem_q, parsed_q;
    logic [31:0]     posted_bytes, elem_len;
    logic [LE-1:0]   elem_idx;
    logic [63:0]     elem_wr_id;
    logic [LC:0]     elem_ctxs, done_ctxs;
    logic [319:0]    elem_data;
    logic [LC-1:0]   ctx_idx;
    logic [95:0]     ctx_data;
    logic [15:0]     parsed_elems, done_elems, sent_elems;
    logic            done_we, covered_we, sent_we, piece_we, cut_we, freed_we, log_we;
    logic [QW-1:0]   done_q, covered_q, sent_q, piece_q, cut_q, freed_q, log_q;
    logic [7:0]      covered_pieces, sent_pieces, cut_pieces;
    logic [LB:0]     covered_blocks, freed_blocks;
    logic [31:0]     freed_bytes;
    logic [LR:0]     covered_lost;
    logic [23:0]     sent_next;
    logic [LP-1:0]   piece_idx;
    logic [LC+99:0]  piece_data;
    logic [WB-1:0]   log_psn;
    logic [LC+45:0]  log_where;
    logic            lost_valid, lost_ready, again_valid, again_ready, fail_valid, fail_ready, place_valid, place_ready;
    logic [QW-1:0]   lost_q, again_q, fail_q, place_q;
    logic [23:0]     lost_psn, again_psn, again_next, fail_psn;
    logic [LR-1:0]   lost_place, place_idx, fixed_place;
    logic            block_we, state_we, held_set, fixed_we;
    logic [QW-1:0]   block_q, state_q;
    logic [LB:0]     block_idx, state_idx;
    logic [LC+116:0] block_data;
    logic [9:0]      state_data;
    logic [27:0]     fixed_data;
    logic            acked_we, acked_hold, acked_halt, end_we, want_we;
    logic [QW-1:0]   acked_q, end_q, want_q;
    logic [LB:0]     want_block, want_first;
    logic [23:0]     acked_una;
    logic [LE-1:0]   end_idx;
    logic [31:0]     end_data;
    logic            small_valid, small_pop, big_valid, big_pop, ctl_valid, ctl_pop;
    logic [6:0]      small_tag, big_tag, ctl_tag, at_tag, open_tag, head_tag;
    logic [17:0]     at;
    logic            pkt_valid, pkt_ready, pkt_inline, pkt_over, part_valid, part_ready;
    logic [QW-1:0]   pkt_q, open_q, left_q;
    logic [6:0]      pkt_tag;
    logic [23:0]     pkt_psn, open_psn;
    logic [3:0]      pkt_flags, pkt_parts;
    logic [31:0]     pkt_imm, pkt_placement;
    logic [12:0]     pkt_len, pkt_first, open_bytes;
    logic [LE-1:0]   pkt_elem;
    logic [5:0]      pkt_place;
    logic [LB:0]     pkt_block;
    logic [76:0]     part_data;
    logic            open_valid, open_loop, open_apart, open_over, head_valid, head_ready, left_valid, left_ready;
    logic [4:0]      open_count;
    logic [LB+30:0]  open_left, left_data;
    logic            sq_fw, sq_wild, cut_fw, send_fw, send_fw_memory, ack_fw;
    logic [QW-1:0]   sq_fw_q, cut_fw_q, send_fw_q, ack_fw_q;
    logic [7:0]      cut_fw_status, send_fw_status;
    logic [1:0]      ack_fw_kind;
    logic [31:0]     ack_fw_arg;

    berth_fp_send_wqe #(.QPS(QPS), .HOST_W(HOST_W), .LE(LE), .LC(LC)) send_wqe (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .init_any(init_q != '0), .init_valid(init_q[1:0]), .init_q(c_qp), .init_ack(init_done[1:0]),
        .db_valid(db_valid), .db_ready(db_ready), .db_q(db_q), .db_pi(db_pi), .db_posted(db_posted),
        .db_inline(db_inline), .db_wqe(db_wqe),
        .qr_valid(qr_valid), .qr_ready(qr_ready), .qr_addr(qr_addr), .qr_len(qr_len), .qr_tag(qr_tag),
        .qc_valid(qc_valid), .qc_data(qc_data), .qc_tag(qc_tag), .qc_off(qc_off), .qc_last(qc_last), .qc_err(qc_err),
        .done_we(done_we), .done_q(done_q), .done_elems(done_elems), .done_ctxs(done_ctxs),
        .posted_we(posted_we), .posted_q(posted_q), .posted_bytes(posted_bytes),
        .elem_we(elem_we), .elem_q(elem_q), .elem_idx(elem_idx), .elem_len(elem_len), .elem_bad(elem_bad),
        .elem_push(elem_push), .elem_inline(elem_inline), .elem_wr_id(elem_wr_id), .elem_ctxs(elem_ctxs),
        .elem_data(elem_data), .ctx_we(ctx_we), .ctx_idx(ctx_idx), .ctx_data(ctx_data),
        .parsed_we(parsed_we), .parsed_q(parsed_q), .parsed_elems(parsed_elems),
        .asked_q(c_qp), .queued(queued), .fw_valid(sq_fw), .fw_wild(sq_wild), .fw_q(sq_fw_q));

    assign ev_bad_wqe = elem_we && elem_bad;

    berth_fp_cut #(.QPS(QPS), .LE(LE), .LC(LC), .LP(LP)) cutter (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .init_any(init_q != '0), .init_valid(init_q[2]), .init_q(c_qp), .init_ack(init_done[2]),
        .elem_we(elem_we), .elem_q(elem_q), .elem_idx(elem_idx), .elem_len(elem_len), .elem_bad(elem_bad),
        .elem_push(elem_push), .elem_inline(elem_inline), .elem_ctxs(elem_ctxs),
        .parsed_we(parsed_we), .parsed_q(parsed_q), .parsed_elems(parsed_elems),
        .lst_valid(list_valid), .lst_ready(list_ready), .lst_over(lst_over), .lst_q(list_q), .lst_begin(list_begin), .lst_first(list_first),
        .lst_n(list_n), .lst_size(list_size),
        .give_valid(give_pend_q), .give_ready(credits_ready), .give_q(c_qp), .give_n(command.argument), .give_first(given_up),
        .credits_we(credits_we), .credits_q(credits_q), .credits_n(credits_n),
        .covered_we(covered_we), .covered_q(covered_q), .covered_pieces(covered_pieces),
        .sent_we(sent_we), .sent_q(sent_q), .sent_pieces(sent_pieces),
        .piece_we(piece_we), .piece_q(piece_q), .piece_idx(piece_idx), .piece_data(piece_data),
        .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .fw_valid(cut_fw), .fw_q(cut_fw_q), .fw_status(cut_fw_status), .ev_list(ev_list_taken), .ev_repeat(ev_list_again),
        .ev_refused(ev_refused), .ev_credit(ev_credit), .ev_held(ev_held));

    logic        ask_valid, ask_ready, give_valid, give_ready;
    logic [7:0]  ask_asid, give_asid;
    logic [63:0] ask_va, give_va;
    logic [20:0] ask_len, give_len;
    logic [15:0] ask_tag;
    berth_fp_block #(.QPS(QPS), .LC(LC), .LP(LP), .LB(LB), .LR(LR), .WB(WB), .DATA_W(DATA_W)) block (
        .clk(clk), .rst(rst), .now(now[15:0]), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .init_any(init_q != '0), .init_valid(init_q[3]), .init_q(c_qp), .init_ack(init_done[3]),
        .ctx_we(ctx_we), .ctx_q(elem_q), .ctx_idx(ctx_idx), .ctx_data(ctx_data),
        .piece_we(piece_we), .piece_q(piece_q), .piece_idx(piece_idx), .piece_data(piece_data),
        .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .freed_we(freed_we), .freed_q(freed_q), .freed_blocks(freed_blocks), .freed_bytes(freed_bytes),
        .want_we(want_we), .want_q(want_q), .want_block(want_block), .want_first(want_first),
        .log_we(log_we), .log_q(log_q), .log_psn(log_psn), .log_where(log_where),
        .mark_valid(mark_valid), .mark_ready(mark_ready), .mark_again(mark_again), .mark_q(mark_q), .mark_idx(mark_idx),
        .mark_state(mark_state), .still(still), .wake_we(revoke_done), .wake_q(mark_q), .count_q(c_qp), .count_asked(asked),
        .count_held(held_ever),
        .lost_valid(lost_valid), .lost_ready(lost_ready), .lost_q(lost_q), .lost_psn(lost_psn), .lost_place(lost_place),
        .xa_valid(ask_valid), .xa_ready(ask_ready), .xa_asid(ask_asid), .xa_va(ask_va), .xa_len(ask_len), .xa_tag(ask_tag),
        .xr_valid(xr_valid), .xr_ready(xr_ready), .xr_tag(xr_tag), .xr_kind(xr_kind), .xr_status(xr_status),
        .block_we(block_we), .block_q(block_q), .block_idx(block_idx), .block_data(block_data),
        .state_we(state_we), .state_q(state_q), .state_idx(state_idx), .state_data(state_data), .held_set(held_set),
        .fixed_we(fixed_we), .fixed_place(fixed_place), .fixed_data(fixed_data),
        .covered_we(covered_we), .covered_q(covered_q), .covered_pieces(covered_pieces),
        .covered_blocks(covered_blocks), .covered_lost(covered_lost), .ev_block(ev_block), .ev_stray(ev_stray));

    berth_fp_send #(.QPS(QPS), .LE(LE), .LC(LC), .LP(LP), .LB(LB), .LR(LR), .WB(WB)) send (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .init_any(init_q != '0), .init_valid(init_q[4]), .init_q(c_qp), .init_ack(init_done[4]),
        .posted_we(posted_we), .posted_q(posted_q), .posted_bytes(posted_bytes),
        .piece_we(piece_we), .piece_q(piece_q), .piece_idx(piece_idx), .piece_data(piece_data[98:0]),
        .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .block_we(block_we), .block_q(block_q), .block_idx(block_idx), .block_data(block_data),
        .state_we(state_we), .state_q(state_q), .state_idx(state_idx), .state_data(state_data), .held_set(held_set),
        .fixed_we(fixed_we), .fixed_place(fixed_place), .fixed_data(fixed_data),
        .covered_we(covered_we), .covered_q(covered_q), .covered_blocks(covered_blocks), .covered_lost(covered_lost),
        .acked_we(acked_we), .acked_q(acked_q), .acked_una(acked_una), .acked_hold(acked_hold), .acked_halt(acked_halt),
        .still(still), .wake_we(revoke_done), .wake_q(mark_q), .working(working), .working_q(working_q),
        .small_valid(small_valid), .small_tag(small_tag), .small_pop(small_pop),
        .big_valid(big_valid), .big_tag(big_tag), .big_pop(big_pop),
        .log_we(log_we), .log_q(log_q), .log_psn(log_psn), .log_piece(log_piece), .log_where(log_where),
        .want_we(want_we), .want_q(want_q), .want_block(want_block), .want_first(want_first),
        .end_we(end_we), .end_q(end_q), .end_idx(end_idx), .end_data(end_data),
        .sent_we(sent_we), .sent_q(sent_q), .sent_next(sent_next), .sent_pieces(sent_pieces), .sent_elems(sent_elems),
        .sent_local(sent_local), .again_valid(sent_again), .again_ready(sent_again_room), .again_q(sent_again_q), .again_psn(sent_again_psn),
        .again_next(sent_again_next),
        .pkt_valid(pkt_valid), .pkt_ready(pkt_ready), .pkt_q(pkt_q), .pkt_tag(pkt_tag), .pkt_psn(pkt_psn),
        .pkt_flags(pkt_flags), .pkt_imm(pkt_imm), .pkt_placement(pkt_placement), .pkt_len(pkt_len),
        .pkt_inline(pkt_inline), .pkt_over(pkt_over), .pkt_elem(pkt_elem), .pkt_place(pkt_place), .pkt_parts(pkt_parts),
        .pkt_block(pkt_block), .pkt_first(pkt_first),
        .part_valid(part_valid), .part_ready(part_ready), .part_data(part_data),
        .fw_valid(send_fw), .fw_q(send_fw_q), .fw_status(send_fw_status), .fw_memory(send_fw_memory), .fw_again(fw_again),
        .ev_packet(ev_packet), .ev_again(ev_again));

    logic          backlog;
    logic          sent_again, sent_again_room;
    logic [QW-1:0] sent_again_q;
    logic [23:0]   sent_again_psn, sent_again_next;
    berth_lutfifo #(.WIDTH(QW+48), .DEPTH(4)) agains (.clk(clk), .rst(rst),
        .wr_valid(sent_again), .wr_ready(sent_again_room), .wr_data({sent_again_q, sent_again_psn, sent_again_next}),
        .rd_valid(again_valid), .rd_ready(again_ready), .rd_data({again_q, again_psn, again_next}));

    berth_fp_frame_out #(.QPS(QPS), .WORD_W(HOST_W), .LE(LE), .LB(LB)) frame_out (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .elem_we(elem_we), .elem_q(elem_q), .elem_idx(elem_idx), .elem_data(elem_data),
        .pkt_valid(pkt_valid), .pkt_ready(pkt_ready), .pkt_q(pkt_q), .pkt_tag(pkt_tag), .pkt_psn(pkt_psn),
        .pkt_flags(pkt_flags), .pkt_imm(pkt_imm), .pkt_placement(pkt_placement), .pkt_len(pkt_len),
        .pkt_inline(pkt_inline), .pkt_over(pkt_over), .pkt_elem(pkt_elem), .pkt_place(pkt_place), .pkt_parts(pkt_parts),
        .pkt_block(pkt_block), .pkt_first(pkt_first),
        .part_valid(part_valid), .part_ready(part_ready), .part_data(part_data),
        .afr_valid(afr_valid), .afr_ready(afr_ready), .afr_q(afr_q), .afr_psn(afr_psn), .afr_syndrome(afr_syndrome), .afr_msn(afr_msn),
        .afr_has_sack(afr_has_sack), .afr_sack(afr_sack),
        .lfr_valid(lfr_valid), .lfr_ready(lfr_ready), .lfr_q(lfr_q), .lfr_begin(lfr_begin), .lfr_epoch(lfr_epoch),
        .lfr_first(lfr_first), .lfr_n(lfr_n), .lfr_sizes(lfr_sizes),
        .ctl_valid(ctl_valid), .ctl_tag(ctl_tag), .ctl_pop(ctl_pop), .backlog(backlog), .at(at), .at_tag(at_tag),
        .open_valid(open_valid), .open_tag(open_tag), .open_count(open_count), .open_bytes(open_bytes),
        .open_loop(open_loop), .open_q(open_q), .open_psn(open_psn), .open_apart(open_apart), .open_over(open_over), .open_left(open_left),
        .head_valid(head_valid), .head_ready(head_ready), .head_tag(head_tag),
        .hw_valid(hw_valid), .hw_ready(hw_ready), .hw_addr(hw_addr), .hw_data(hw_data), .hw_strb(hw_strb),
        .pr_valid(pr_valid), .pr_ready(pr_ready), .pr_local(pr_local), .pr_len(pr_len), .pr_asid(pr_asid),
        .pr_va(pr_va), .pr_tag(pr_tag), .ev_ack(ev_ack), .ev_list(ev_list));

    berth_fp_tx_places #(.QPS(QPS), .LB(LB), .RAM_BASE(RAM_BASE)) tx_places (
        .clk(clk), .rst(rst), .init_valid(init_q[8]), .init_q(c_qp), .init_ack(init_done[8]),
        .made_valid(pkt_valid && pkt_ready), .made_q(pkt_q), .ctl_valid(ctl_valid), .ctl_tag(ctl_tag), .ctl_pop(ctl_pop),
        .big_valid(big_valid), .big_tag(big_tag), .big_pop(big_pop),
        .small_valid(small_valid), .small_tag(small_tag), .small_pop(small_pop), .at_tag(at_tag), .at(at),
        .open_valid(open_valid), .open_tag(open_tag), .open_count(open_count), .open_bytes(open_bytes),
        .open_loop(open_loop), .open_q(open_q), .open_psn(open_psn), .open_apart(open_apart), .open_over(open_over), .open_left(open_left),
        .head_valid(head_valid), .head_ready(head_ready), .head_tag(head_tag),
        .pd_valid(pd_valid), .pd_tag(pd_tag), .pd_status(pd_status),
        .ms_valid(ms_valid), .ms_ready(ms_ready), .ms_addr(ms_addr), .ms_len(ms_len), .ms_loop(ms_loop), .ms_tag(ms_tag),
        .ml_valid(ml_valid), .ml_tag(ml_tag), .backlog(backlog),
        .busy_q({turn_q_, c_qp}), .busy({quiet_busy, busy}),
        .left_valid(left_valid), .left_ready(left_ready), .left_q(left_q), .left_data(left_data),
        .fail_valid(fail_valid), .fail_ready(fail_ready), .fail_q(fail_q), .fail_psn(fail_psn));

    berth_fp_release #(.QPS(QPS), .LC(LC), .LB(LB), .LR(LR)) release_ (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .init_valid(init_q[5]), .init_q(c_qp), .init_ack(init_done[5]),
        .block_we(block_we), .block_q(block_q), .block_idx(block_idx), .block_data(block_data),
        .state_we(state_we), .state_q(state_q), .state_idx(state_idx), .state_data(state_data),
        .covered_we(covered_we), .covered_q(covered_q), .covered_blocks(covered_blocks),
        .drain_valid(drain_pend_q), .drain_ready(drain_ready), .drain_q(c_qp),
        .revoke_valid(revoke_go), .revoke_ready(revoke_ready), .revoke_done(revoke_done), .revoke_q(turn_q_), .range_start(range_q[63:0]),
        .range_end(range_q[127:64]), .mark_valid(mark_valid), .mark_ready(mark_ready), .mark_again(mark_again),
        .mark_q(mark_q), .mark_idx(mark_idx), .mark_state(mark_state), .count_q(c_qp), .count_given(given_ever),
        .left_valid(left_valid), .left_ready(left_ready), .left_q(left_q), .left_block(left_data[LB+26:26]),
        .left_first(left_data[25:13]), .left_len(left_data[12:0]), .left_parts(left_data[LB+30 -: 4]),
        .xa_valid(give_valid), .xa_ready(give_ready), .xa_asid(give_asid), .xa_va(give_va), .xa_len(give_len),
        .freed_we(freed_we), .freed_q(freed_q), .freed_blocks(freed_blocks), .freed_bytes(freed_bytes),
        .place_valid(place_valid), .place_ready(place_ready), .place_q(place_q), .place_idx(place_idx),
        .ev_release(ev_release));

    berth_fp_ack #(.QPS(QPS), .LR(LR), .WB(WB)) ack (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .init_any(init_q != '0), .init_valid(init_q[6]), .init_q(c_qp), .init_ack(init_done[6]),
        .cmd_valid(cmd_q), .cmd_ready(cmd_ready), .cmd_q(c_qp), .cmd_op(command.opcode[2:0]), .now(now),
        .hurry(hurry), .swept(swept), .swept_on(swept_on), .swept_at(swept_at),
        .ack_valid(ack_valid), .ack_ready(ack_ready), .ack_q(ack_q), .ack_psn(ack_psn), .ack_syndrome(ack_syndrome),
        .ack_has_sack(ack_has_sack), .ack_sack(ack_sack),
        .sent_we(sent_we), .sent_q(sent_q), .sent_next(sent_next), .sent_pieces(sent_pieces),
        .left_we(log_we), .left_q(log_q),
        .cut_we(cut_we), .cut_q(cut_q), .cut_pieces(cut_pieces),
        .again_valid(again_valid), .again_ready(again_ready), .again_q(again_q), .again_psn(again_psn), .again_next(again_next),
        .fail_valid(fail_valid), .fail_ready(fail_ready), .fail_q(fail_q), .fail_psn(fail_psn),
        .place_valid(place_valid), .place_ready(place_ready), .place_q(place_q), .place_idx(place_idx),
        .lost_valid(lost_valid), .lost_ready(lost_ready), .lost_q(lost_q), .lost_psn(lost_psn), .lost_place(lost_place),
        .acked_we(acked_we), .acked_q(acked_q), .acked_una(acked_una), .acked_hold(acked_hold), .acked_halt(acked_halt),
        .fw_valid(ack_fw), .fw_q(ack_fw_q), .fw_kind(ack_fw_kind), .fw_arg(ack_fw_arg),
        .round_we(round_we), .round_q(round_q), .round(round), .ev_taken(ev_ack_taken), .ev_bad(ev_bad_ack));

    berth_fp_send_complete #(.QPS(QPS), .LE(LE), .LC(LC)) send_complete (
        .clk(clk), .rst(rst), .cfg_we(c_we), .cfg_q(c_qp), .cfg_word(c_word), .cfg_wdata(cfg_wdata),
        .init_any(init_q != '0), .init_valid(init_q[7]), .init_q(c_qp), .init_ack(init_done[7]),
        .err_valid(err_pend_q), .err_ready(err_ready), .err_q(c_qp), .err_status(command.argument[7:0]),
        .elem_we(elem_we), .elem_q(elem_q), .elem_idx(elem_idx), .elem_len(elem_len), .elem_wr_id(elem_wr_id),
        .elem_ctxs(elem_ctxs), .parsed_we(parsed_we), .parsed_q(parsed_q), .parsed_elems(parsed_elems),
        .end_we(end_we), .end_q(end_q), .end_idx(end_idx), .end_data(end_data),
        .sent_we(sent_we), .sent_q(sent_q), .sent_elems(sent_elems), .sent_local(sent_local),
        .acked_we(acked_we), .acked_q(acked_q), .acked_una(acked_una),
        .cq_valid(cq_valid), .cq_ready(cq_ready), .cq_cqn(cq_cqn), .cq_words(cq_words),
        .done_we(done_we), .done_q(done_q), .done_elems(done_elems), .done_ctxs(done_ctxs));

    berth_fp_mem #(.WIDTH(20), .DEPTH(QPS)) m_round (.clk(clk), .we(round_we), .waddr(round_q), .wdata(round),
        .re(1'b1), .raddr(c_qp), .rdata(round_read));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_una (.clk(clk), .we(acked_we), .waddr(acked_q), .wdata(acked_una),
        .re(1'b1), .raddr(c_qp), .rdata(una_read));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_next (.clk(clk), .we(sent_we), .waddr(sent_q), .wdata(sent_next),
        .re(1'b1), .raddr(c_qp), .rdata(next_read));

    berth_fp_mem #(.WIDTH(LB+1), .DEPTH(QPS)) m_blocks (.clk(clk), .we(covered_we), .waddr(covered_q),
        .wdata(covered_blocks), .re(1'b1), .raddr(c_qp), .rdata(blocks_read));
    berth_fp_mem #(.WIDTH(LB+1), .DEPTH(QPS)) m_freed (.clk(clk), .we(freed_we), .waddr(freed_q),
        .wdata(freed_blocks), .re(1'b1), .raddr(c_qp), .rdata(freed_read));

    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_credits (.clk(clk), .we(credits_we), .waddr(credits_q),
        .wdata(credits_n), .re(1'b1), .raddr(c_qp), .rdata(credits_read));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_cut (.clk(clk), .we(cut_we), .waddr(cut_q),
        .wdata(cut_pieces), .re(1'b1), .raddr(c_qp), .rdata(cut_read));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_sent (.clk(clk), .we(sent_we), .waddr(sent_q),
        .wdata(sent_pieces), .re(1'b1), .raddr(c_qp), .rdata(sent_read));
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS << WB)) m_log_piece (.clk(clk), .we(log_we), .waddr({log_q, log_psn}),
        .wdata(log_piece), .re(1'b1), .raddr({c_qp, una_read[WB-1:0]}), .rdata(oldest_piece));

    // ---- translation: what is shown stays until it is taken --------------------------------
    logic turn_q, held_q, giving;
    assign giving     = held_q ? turn_q : give_valid;
    assign xa_valid   = give_valid || ask_valid;
    assign xa_release = giving;
    assign xa_write   = 1'b0;
    assign xa_asid    = giving ? give_asid : ask_asid;
    assign xa_va      = giving ? give_va : ask_va;
    assign xa_len     = giving ? give_len : ask_len;
    assign xa_tag     = giving ? 16'd0 : ask_tag;
    assign give_ready = giving && xa_ready;
    assign ask_ready  = !giving && xa_ready;
    always_ff @(posedge clk) begin
        held_q <= xa_valid && !xa_ready;
        turn_q <= giving;
        if (rst) held_q <= 1'b0;
    end

    // ---- events for firmware ---------------------------------------------------------------
    // Of the acknowledgements a time-out, a NAK or an RNR: what comes later says more.
    localparam int unsigned FW = 34;
    logic [3:0]    fw_source;
    logic [QW-1:0] fw_q;
    logic [FW-1:0] fw_what;
    logic [7:0]    fw_code;
    berth_fp_events #(.QPS(QPS), .SOURCES(4), .W(FW)) events (.clk(clk), .rst(rst),
        .put({sq_fw, send_fw, cut_fw, ack_fw}), .put_q({sq_fw_q, send_fw_q, cut_fw_q, ack_fw_q}),
        .put_word({FW'(sq_wild), FW'({send_fw_memory, send_fw_memory && fw_again, send_fw_status}), FW'(cut_fw_status),
                   ack_fw_kind, ack_fw_arg}),
        .clear(c_we && c_word == berth_regs_pkg::SEND_COMMAND && command.opcode == berth_regs_pkg::SEND_CMD_START), .clear_q(c_qp),
        .valid(fw_valid), .ready(fw_ready), .source(fw_source), .q(fw_q), .word(fw_what), .busy(fw_busy));
    assign fw_code = fw_source[0] ? berth_regs_pkg::EVENT_TIMEOUT + 8'(fw_what[33:32]) : fw_source[1] ? berth_regs_pkg::EVENT_LIST
                   : fw_source[2] ? (fw_what[9] ? berth_regs_pkg::EVENT_NO_MEMORY : berth_regs_pkg::EVENT_BAD_WQE)
                   : fw_what[0] ? berth_regs_pkg::EVENT_SEND_INDEX : berth_regs_pkg::EVENT_SEND_QUEUE;
    berth_regs_pkg::fast_event_t fw_event;
    assign fw_event.code     = fw_code;
    assign fw_event.qpn      = 16'(fw_q);
    assign fw_event.argument = {8'd0, fw_source[0] ? fw_what[31:0] : fw_source[1] ? {24'd0, fw_what[7:0]} : fw_source[2] ? {23'd0, fw_what[8:0]} : 32'd0};
    assign fw_word = fw_event;

    logic unused;
    assign unused = &{1'b0, cfg_addr, turn_busy, fw_source[3]};
endmodule
