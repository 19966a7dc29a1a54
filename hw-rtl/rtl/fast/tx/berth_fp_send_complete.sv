// SPDX-License-Identifier: Apache-2.0 OR MIT
// Elements whose last packet is acknowledged complete, in order: one CQE each. After `SEND_CMD_END` the
// oldest element completes with its status and all others as flushed. One that is not signalled has no CQE if it succeeds.
//
// An element counts as complete when its CQE is taken. Until then one of another QP is looked at.
//
// Row: `SEND_QUEUE`.
module berth_fp_send_complete #(
    parameter int unsigned QPS = 64,
    parameter int unsigned LE  = 6,
    parameter int unsigned LC  = 8
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic                         cfg_we,
    input  logic [$clog2(QPS)-1:0]       cfg_q,
    input  berth_card_pkg::row_write_t   cfg,
    // some engine's row is not initialised yet: no work begins, because it would use the old content
    input  logic                         init_any,
    input  logic                         init_valid,
    input  logic [$clog2(QPS)-1:0]       init_q,
    output logic                         init_ack,
    input  logic                         err_valid,
    output logic                         err_ready,
    input  logic [$clog2(QPS)-1:0]       err_q,
    input  logic [7:0]                   err_status,

    input  logic                         elem_we,
    input  logic [$clog2(QPS)-1:0]       elem_q,
    input  logic [LE-1:0]                elem_idx,
    input  berth_card_pkg::element_t     element,
    input  logic                         parsed_we,
    input  logic [$clog2(QPS)-1:0]       parsed_q,
    input  logic [15:0]                  parsed_elems,
    input  logic                         end_we,
    input  logic [$clog2(QPS)-1:0]       end_q,
    input  logic [LE-1:0]                end_idx,
    input  berth_card_pkg::element_end_t end_data,
    input  logic                         sent_we,
    input  logic [$clog2(QPS)-1:0]       sent_q,
    input  berth_card_pkg::sent_so_far_t sent_data,
    input  logic                         acked_we,
    input  logic [$clog2(QPS)-1:0]       acked_q,
    input  berth_card_pkg::acked_t       acked_data,

    output logic                         fcq_valid,
    input  logic                         fcq_ready,
    output berth_card_pkg::completion_t  fcq,

    output logic                         done_we,  // {elements, contexts} so far
    output logic [$clog2(QPS)-1:0]       done_q,
    output logic [15:0]                  done_elems,
    output logic [LC:0]                  done_ctxs
);
    localparam int unsigned QW = $clog2(QPS);
    localparam logic [7:0]  OP_SEND = berth_regs_pkg::OP_SEND[7:0];
    localparam logic [7:0]  OP_WRITE = berth_regs_pkg::OP_WRITE[7:0];
    localparam logic [7:0]  OP_READ = berth_regs_pkg::OP_READ[7:0];
    localparam logic [7:0]  OP_CMP_SWAP = berth_regs_pkg::OP_CMP_SWAP[7:0];
    localparam logic [7:0]  OP_FETCH_ADD = berth_regs_pkg::OP_FETCH_ADD[7:0];
    localparam logic [7:0]  OP_NOP = berth_regs_pkg::OP_NOP[7:0];
    localparam logic [7:0]  OP_DELAY = berth_regs_pkg::OP_DELAY[7:0];
    localparam logic [7:0]  OP_BIND = berth_regs_pkg::OP_BIND[7:0];

    typedef enum logic [1:0] {IDLE, ROWS, LOOK} op_t;
    op_t           op_q;
    logic [QW-1:0] q_q, q;
    logic          work_valid, work_pop, work_busy;
    logic [QW-1:0] work_q;
    logic          fail_q;                      // the operation is an error

    logic [15:0]   head, parsed, elems;
    logic [LC:0]   ctxs, e_ctxs;
    logic [7:0]    err, cqn, status, err_new_q;
    logic [23:0]   una, psn;
    logic          e_write, e_read, e_atomic, e_adds, e_quiet, e_nothing, e_delay, e_bind;
    logic [31:0]   e_len;
    logic [63:0]   e_id;
    logic          row_we, err_read;
    logic [16+LC+8:0] row_new;

    // After an error elements complete as soon as they are there; else when they are acknowledged.
    logic [QPS-1:0] ended_q;
    logic           more;
    always_ff @(posedge clk) begin
        if (err_ready) ended_q[q_q] <= 1'b1;
        if (init_ack)  ended_q[q_q] <= 1'b0;
        if (rst)       ended_q      <= '0;
    end
    berth_fp_ready #(.QPS(QPS), .SETS(4)) work (.clk(clk), .rst(rst),
        .set({more, sent_we && sent_data.apart, acked_we, parsed_we && ended_q[parsed_q]}),
        .set_q({done_q, sent_q, acked_q, parsed_q}),
        .valid(work_valid), .q(work_q), .pop(work_pop), .busy(work_busy));
    assign err_read = err_valid && !init_valid;
    assign q        = err_read ? err_q : work_q;
    berth_fp_mem #(.WIDTH(16+LC+1+8), .DEPTH(QPS), .OWN(1'b1)) m_row (.clk(clk), .we(row_we), .waddr(done_q), .wdata(row_new),
        .re(op_q == IDLE), .raddr(q), .rdata({head, ctxs, err}));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_parsed (.clk(clk), .we(parsed_we), .waddr(parsed_q),
        .wdata(parsed_elems), .re(op_q == IDLE), .raddr(q), .rdata(parsed));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_sent (.clk(clk), .we(sent_we), .waddr(sent_q),
        .wdata(sent_data.elems), .re(op_q == IDLE), .raddr(q), .rdata(elems));
    berth_fp_mem #(.WIDTH(24), .DEPTH(QPS)) m_acked (.clk(clk), .we(acked_we), .waddr(acked_q),
        .wdata(acked_data.una), .re(op_q == IDLE), .raddr(q), .rdata(una));
    berth_row_pkg::send_queue_t cfg_queue;
    assign cfg_queue = cfg.data;
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_cqn (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QUEUE), .waddr(cfg_q),
        .wdata(cfg_queue.cqn), .re(op_q == IDLE), .raddr(q), .rdata(cqn));
    berth_fp_mem #(.WIDTH(104+LC+1), .DEPTH(QPS << LE), .OWN(1'b1)) m_elem (.clk(clk), .we(elem_we), .waddr({elem_q, elem_idx}),
        .wdata({element.write, element.read, element.atomic, element.adds, element.quiet, element.nothing, element.delay, element.bind_key, element.wr_id, element.len, element.ctxs[LC:0]}), .re(op_q == ROWS), .raddr({q_q, head[LE-1:0]}),
        .rdata({e_write, e_read, e_atomic, e_adds, e_quiet, e_nothing, e_delay, e_bind, e_id, e_len, e_ctxs}));
    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS << LE), .OWN(1'b1)) m_end (.clk(clk), .we(end_we), .waddr({end_q, end_idx}),
        .wdata(end_data), .re(op_q == ROWS), .raddr({q_q, head[LE-1:0]}), .rdata({status, psn}));

    logic        over, flush, done;
    logic [23:0] beyond;
    assign beyond = una - psn - 24'd1;          // not negative: acknowledged
    // (while flushing, elements that were never sent are passed)
    assign over   = head != elems && !beyond[23] && err != berth_regs_pkg::WC_FLUSHED[7:0];
    assign flush  = err != 8'd0 && head != parsed;
    assign done   = over || flush;

    // ---- the one that is given -----------------------------------------------------------
    logic       give_q, take, given;     // there is one; it is taken up; its CQE, if it has one, is taken
    logic       silent_q, further_q;     // it has none; there is one more of its QP
    logic [QW-1:0] give_of_q;
    logic [16+LC+8:0] give_row_q;
    berth_card_pkg::completion_t give_cqe_q;
    logic [7:0] opcode;
    assign opcode    = e_write ? OP_WRITE : e_atomic ? (e_adds ? OP_FETCH_ADD : OP_CMP_SWAP) : e_read ? OP_READ : e_delay ? OP_DELAY : e_bind ? OP_BIND : e_nothing ? OP_NOP : OP_SEND;
    berth_wqe_pkg::cqe_t cqe;
    always_comb begin
        cqe          = '0;
        cqe.wr_id    = e_id;
        cqe.byte_len = e_len;
        cqe.qpn      = 32'(q_q);
        cqe.status   = over ? status : err;
        cqe.opcode   = opcode;
        cqe.credit   = {16'd0, head + 16'd1};
    end
    assign take      = op_q == LOOK && done && !give_q;
    assign fcq_valid = give_q && !silent_q;
    assign given     = give_q && (silent_q || fcq_ready);
    assign fcq       = give_cqe_q;
    always_ff @(posedge clk) begin
        if (given) give_q <= 1'b0;
        if (take) begin
            give_q     <= 1'b1;
            silent_q   <= e_quiet && over && status == berth_regs_pkg::WC_OK[7:0];
            further_q  <= head + 16'd1 != elems;
            give_of_q  <= q_q;
            give_row_q <= {head + 16'd1, e_ctxs, over || err == 8'd0 ? err : berth_regs_pkg::WC_FLUSHED[7:0]};
            give_cqe_q.cqn   <= cqn;
            give_cqe_q.words <= cqe[7*32-1:0];
        end
        if (rst) give_q <= 1'b0;
    end

    // What is stored of that one goes before what else changes a row.
    logic       free;                    // no CQE of QP `q` is being given
    assign free      = !(give_q && give_of_q == q);
    assign init_ack  = op_q == IDLE && init_valid && q_q == init_q && !give_q;
    assign err_ready = op_q == ROWS && fail_q && !given;
    assign work_pop  = op_q == IDLE && !init_any && !err_valid && free;
    assign row_we    = init_ack || err_ready || given;
    always_comb begin
        row_new = give_row_q;
        if (err_ready) row_new = {head, ctxs, err_new_q};
        if (init_ack)  row_new = '0;
    end
    assign more    = err_ready || (given && (further_q || ended_q[give_of_q]));
    assign done_we = row_we;
    assign done_q  = given ? give_of_q : q_q;
    assign {done_elems, done_ctxs} = row_new[16+LC+8:8];

    always_ff @(posedge clk) begin
        case (op_q)
            IDLE: begin
                fail_q    <= err_read;
                err_new_q <= err_status;
                if (init_valid) q_q <= init_q;
                else if (free && (err_valid || (work_pop && work_valid))) begin
                    q_q  <= q;
                    op_q <= ROWS;
                end
            end
            ROWS:    if (!fail_q || err_ready) op_q <= fail_q || (head == elems && !flush) ? IDLE : LOOK;
            default: if (!done || take) op_q <= IDLE;   // LOOK
        endcase
        if (rst) op_q <= IDLE;
    end

    logic unused;
    assign unused = &{1'b0, cfg.data, cfg_queue, element, sent_data, acked_data, beyond, work_busy, cqe.phase};
endmodule
