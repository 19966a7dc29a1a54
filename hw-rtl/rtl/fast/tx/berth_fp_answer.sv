// SPDX-License-Identifier: Apache-2.0 OR MIT
// Answers to READs and atomics: each packet of one is taken once, written to the blocks that its request's packet is for, and counts as
// acknowledged when it is in place.
//
// SEND logs what each packet asks for (`berth_card_pkg::asked_t`). An answer is taken if its PSN is in the window, its packet
// waits for one, kind and length are those asked for, and all its blocks are held. Another one for the same packet is dropped from
// then on. One that comes while memory is let go of, or before that is there again, is dropped too: its packet counts as lost
// when others show it, or the time-out.
//
// ACK is told at once that an answer has come, so that an acknowledgement that follows it does not take it for lost while it is
// being written: acknowledgements wait until that is decided (`judging`).
//
// Its parts, one in each block, go to SCATTER one after the other; their end comes once, in their order (`put_over`). Then the
// bytes count as left, so that blocks go back, and then ACK has the PSN. If a part could not be written, because pages were
// withdrawn, nothing of it counts, and the packet is lost.
//
// What stood there before an atomic comes most significant byte first, and is written the other way round.
//
// Row: `SEND_QUEUE`.
module berth_fp_answer #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LB  = 5,
    parameter int unsigned WB  = 8      // log2 of the packets that the log holds: more than the window
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic                         cfg_we,
    input  logic [$clog2(QPS)-1:0]       cfg_q,
    input  berth_card_pkg::row_write_t   cfg,
    input  logic                         init_valid,
    input  logic [$clog2(QPS)-1:0]       init_q,
    output logic                         init_ack,

    // answers that came; frames of those that are dropped
    input  logic                         ans_valid,
    output logic                         ans_ready,
    input  logic [$clog2(QPS)-1:0]       ans_q,
    input  berth_card_pkg::answer_t      ans,
    output logic                         ans_free_valid,
    output logic [17:0]                  ans_free_place,

    // what is sent and acknowledged; what packets ask for
    input  logic                         sent_we,
    input  logic [$clog2(QPS)-1:0]       sent_q,
    input  berth_card_pkg::sent_so_far_t sent_data,
    input  logic                         acked_we,
    input  logic [$clog2(QPS)-1:0]       acked_q,
    input  berth_card_pkg::acked_t       acked_data,
    input  logic                         log_we,
    input  logic [$clog2(QPS)-1:0]       log_q,
    input  logic [WB-1:0]                log_psn,
    input  berth_card_pkg::asked_t       log_asked,
    input  logic                         block_we,
    input  logic [$clog2(QPS)-1:0]       block_q,
    input  logic [LB:0]                  block_idx,
    input  berth_card_pkg::block_t       block_data,
    input  logic                         state_we,
    input  logic [$clog2(QPS)-1:0]       state_q,
    input  logic [LB:0]                  state_idx,
    input  berth_card_pkg::block_state_t state_data,

    // the QP lets go of memory, or has ended; is something of it being written? (two questions)
    input  logic [QPS-1:0]               still,
    input  logic [2*$clog2(QPS)-1:0]     busy_q,
    output logic [1:0]                   busy,

    // parts to be written; the last one of the oldest answer is done, or one of them has failed
    output logic                         put_valid,
    input  logic                         put_ready,
    output logic [$clog2(QPS)-1:0]       put_q,
    output berth_card_pkg::placement_t   put,
    input  logic                         put_over_valid,
    input  logic                         put_over_err,

    // an answer is taken
    output logic                         judging,
    output logic                         begun_valid,
    input  logic                         begun_ready,
    output logic [$clog2(QPS)-1:0]       begun_q,
    output logic [23:0]                  begun_psn,
    // bytes are in place (see berth_fp_release); then the answer; or it could not be written
    output logic                         came_valid,
    input  logic                         came_ready,
    output logic [$clog2(QPS)-1:0]       came_q,         // QP of these three
    output berth_card_pkg::left_t        came,
    output logic                         took_valid,
    input  logic                         took_ready,
    output logic                         unwritten_valid,
    input  logic                         unwritten_ready,
    output logic [23:0]                  came_psn,       // of the latter two

    output logic                         answer_fault_valid,     // memory for an answer cannot be had any more
    output logic [$clog2(QPS)-1:0]       answer_fault_q,
    output logic [7:0]                   answer_fault_status,    // the host's
    output logic                         ev_bad                  // counter: an answer that cannot be
);
    localparam int unsigned QW = $clog2(QPS);

    // ---- what is known of the packet ---------------------------------------------------
    typedef enum logic [2:0] {IDLE, JUDGE, READ, CHECK, TAKE, AGAIN, PUT, DROP} op_t;
    op_t           op_q;
    logic [QW-1:0] q_q;
    berth_card_pkg::answer_t a_q;
    logic          room, take, idle;
    assign idle = op_q == IDLE;
    assign take = idle && ans_valid && room;
    assign ans_ready = idle && room;

    logic [23:0]   una, next;
    logic [7:0]    asid;
    berth_card_pkg::asked_t asked, asked_q;
    logic          waits;                // for its answer
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_una (.clk(clk), .we(acked_we), .waddr(acked_q), .wdata(acked_data.una),
        .re(idle), .raddr(ans_q), .rdata(una));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_next (.clk(clk), .we(sent_we), .waddr(sent_q), .wdata(sent_data.next),
        .re(idle), .raddr(ans_q), .rdata(next));
    berth_row_pkg::send_queue_t cfg_queue;
    assign cfg_queue = cfg.data;
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_asid (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QUEUE), .waddr(cfg_q),
        .wdata(cfg_queue.asid), .re(idle), .raddr(ans_q), .rdata(asid));
    berth_fp_mem #(.WIDTH($bits(asked)), .DEPTH(QPS << WB)) m_asked (.clk(clk), .we(log_we), .waddr({log_q, log_psn}),
        .wdata(log_asked), .re(idle), .raddr({ans_q, ans.psn[WB-1:0]}), .rdata(asked));
    // Set when the packet is logged, and when its answer could not be written; cleared when that is taken.
    logic          clear, restore;
    logic [QW+WB-1:0] waits_at;
    assign waits_at = log_we ? {log_q, log_psn} : restore ? {came_q, came_psn[WB-1:0]} : {q_q, a_q.psn[WB-1:0]};
    berth_fp_mem #(.WIDTH(1), .DEPTH(QPS << WB)) m_waits (.clk(clk), .we(log_we || restore || clear), .waddr(waits_at),
        .wdata(log_we || restore), .re(idle), .raddr({ans_q, ans.psn[WB-1:0]}), .rdata(waits));

    logic [LB-1:0] blk_q;
    logic          b_read;
    berth_card_pkg::block_t b;
    berth_card_pkg::block_state_t b_state;
    assign b_read = op_q == READ || op_q == AGAIN;
    berth_fp_mem #(.WIDTH($bits(b)), .DEPTH(QPS << LB), .OWN(1'b1)) m_block (.clk(clk), .we(block_we && !block_idx[LB]),
        .waddr({block_q, block_idx[LB-1:0]}), .wdata(block_data), .re(b_read), .raddr({q_q, blk_q}), .rdata(b));
    berth_fp_mem #(.WIDTH($bits(b_state)), .DEPTH(QPS << LB)) m_state (.clk(clk), .we(state_we && !state_idx[LB]),
        .waddr({state_q, state_idx[LB-1:0]}), .wdata(state_data), .re(b_read), .raddr({q_q, blk_q}), .rdata(b_state));

    // ---- one answer ------------------------------------------------------------------------
    logic [QPS-1:0] started_q;           // rows that mean something
    logic [23:0]   flight, place;
    logic          flying, wanted, fits;
    assign flight = next - una;
    assign place  = a_q.psn - una;
    assign flying = place < flight;
    assign fits   = a_q.len == asked.len && a_q.atomic == asked.atomic;
    assign wanted = flying && asked.read && waits && fits;

    logic [3:0]    parts_q;              // that are not looked at, or not given on
    logic [12:0]   rest_q, part;
    logic          first_q;              // the first one is at hand
    logic [17:0]   payload_q;
    logic          empty, put_free;
    assign empty    = asked_q.parts == 4'd0;
    assign part     = first_q ? asked_q.first : b.len < {8'd0, rest_q} ? b.len[12:0] : rest_q;
    assign put_free = !put_valid || put_ready;
    assign clear    = op_q == TAKE && !log_we && !restore && (!begun_valid || begun_ready);
    assign judging  = op_q == JUDGE || op_q == READ || op_q == CHECK || op_q == TAKE || begun_valid;
    assign ans_free_valid = op_q == DROP;
    assign ans_free_place = a_q.frame;

    always_ff @(posedge clk) begin
        ev_bad             <= 1'b0;
        answer_fault_valid <= 1'b0;
        answer_fault_q     <= q_q;
        answer_fault_status <= b_state.status;
        if (put_ready) put_valid <= 1'b0;
        if (begun_ready) begun_valid <= 1'b0;
        if (clear) {begun_valid, begun_q, begun_psn} <= {1'b1, q_q, a_q.psn};
        case (op_q)
            IDLE: begin
                q_q <= ans_q;
                a_q <= ans;
                if (take) op_q <= JUDGE;
            end
            JUDGE: begin
                asked_q <= asked;
                blk_q   <= asked.block;
                parts_q <= asked.parts;
                rest_q  <= asked.len;
                first_q <= 1'b1;
                op_q    <= DROP;
                if (started_q[q_q] && !still[q_q]) begin
                    if (wanted) op_q <= asked.parts == 4'd0 ? TAKE : READ;
                    // not one that has come before
                    ev_bad <= flying ? !asked.read || (waits && !fits) : !place[23];
                end
            end
            READ: op_q <= CHECK;
            CHECK: begin
                blk_q   <= blk_q + 1'b1;
                parts_q <= parts_q - 4'd1;
                op_q    <= !b_state.held ? DROP : parts_q == 4'd1 ? TAKE : READ;
                answer_fault_valid <= b_state.failed;
            end
            TAKE: begin
                blk_q     <= asked_q.block;
                parts_q   <= asked_q.parts;
                payload_q <= a_q.atomic ? ~a_q.payload - 18'd7 : a_q.payload;
                // The block at hand is the only one.
                if (clear) op_q <= empty ? DROP : asked_q.parts == 4'd1 ? PUT : AGAIN;
            end
            AGAIN: op_q <= PUT;
            PUT: if (put_free) begin
                put_valid   <= 1'b1;
                put_q       <= q_q;
                put.psn     <= a_q.psn;
                put.payload <= payload_q;
                put.frame   <= a_q.frame;
                put.len     <= part;
                put.asid    <= asid;
                put.va      <= b.va + (first_q ? {43'd0, asked_q.at} : 64'd0);
                put.more    <= parts_q != 4'd1;
                put.reverse <= a_q.atomic;
                payload_q   <= payload_q + {5'd0, part};
                rest_q      <= rest_q - part;
                first_q     <= 1'b0;
                blk_q       <= blk_q + 1'b1;
                parts_q     <= parts_q - 4'd1;
                op_q        <= parts_q == 4'd1 ? IDLE : AGAIN;
            end
            default: op_q <= IDLE;  // DROP
        endcase
        {put.sge, put.sges, put.offset} <= {8'd0, 3'd1, 32'd0};
        {put.write, put.answer}         <= 2'b11;
        if (init_ack) started_q[init_q] <= 1'b1;
        if (rst) begin
            op_q      <= IDLE;
            put_valid <= 1'b0;
            begun_valid <= 1'b0;
            started_q <= '0;
        end
    end

    // ---- answers that are being written -----------------------------------------------------
    logic          here, pop, none;
    berth_lutfifo #(.WIDTH(QW + 24 + 1 + $bits(came)), .DEPTH(32)) taken (.clk(clk), .rst(rst),
        .wr_valid(clear), .wr_ready(room),
        .wr_data({q_q, a_q.psn, empty, asked_q.parts, 1'b0, asked_q.block, asked_q.first, asked_q.len}),
        .rd_valid(here), .rd_ready(pop), .rd_data({came_q, came_psn, none, came}));

    typedef enum logic [2:0] {WAIT, CAME, TOOK, RESTORE, UNWRITTEN} end_t;
    end_t          end_q;
    // SCATTER, which serves the other half too, never waits for the engines that are told.
    logic          written, end_take, failed, end_room;
    berth_lutfifo #(.WIDTH(1), .DEPTH(32)) ends (.clk(clk), .rst(rst),
        .wr_valid(put_over_valid), .wr_ready(end_room), .wr_data(put_over_err),
        .rd_valid(written), .rd_ready(end_take), .rd_data(failed));
    assign end_take     = end_q == WAIT && here && !none;
    assign came_valid   = end_q == CAME;
    assign took_valid   = end_q == TOOK;
    assign unwritten_valid = end_q == UNWRITTEN;
    assign restore      = end_q == RESTORE && !log_we;
    assign pop          = (took_valid && took_ready) || (unwritten_valid && unwritten_ready);
    always_ff @(posedge clk) begin
        case (end_q)
            WAIT: if (here) begin
                if (none) end_q <= TOOK;
                else if (written) end_q <= failed ? RESTORE : CAME;
            end
            CAME:    if (came_ready) end_q <= TOOK;
            RESTORE: if (restore) end_q <= UNWRITTEN;
            default: if (pop) end_q <= WAIT;    // TOOK, FAIL
        endcase
        if (rst) end_q <= WAIT;
    end

    // Answers taken, and those that are over: equal when the QP has none.
    logic [5:0]    begun [0:QPS-1];
    logic [5:0]    over [0:QPS-1];
    assign init_ack = init_valid && !clear && !pop;
    for (genvar i = 0; i < 2; i++) begin : g_busy
        assign busy[i] = begun[busy_q[QW*i +: QW]] != over[busy_q[QW*i +: QW]] || (!idle && q_q == busy_q[QW*i +: QW]);
    end
    always_ff @(posedge clk) begin
        if (clear || init_ack) begun[init_ack ? init_q : q_q] <= init_ack ? 6'd0 : begun[q_q] + 6'd1;
        if (pop || init_ack)   over[init_ack ? init_q : came_q] <= init_ack ? 6'd0 : over[came_q] + 6'd1;
    end

    // Answers under way have room where they are kept.
    always_ff @(posedge clk)
        if (!rst) assert ((!clear || room) && (!put_over_valid || end_room));

    logic unused;
    assign unused = &{1'b0, cfg.data, cfg_queue, sent_data, acked_data, b, asked_q};
endmodule
