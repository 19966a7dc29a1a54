// SPDX-License-Identifier: Apache-2.0 OR MIT
// Send queues of the fast path: doorbells, fetch of WQEs, and their check. A WQE becomes an element
// (in the ring of its QP, at its own number) and the contexts of its SGEs (VC-1), in order.
//
// Up to four WQEs come with one read; reads of all QPs are under way together and are worked off in the
// order in which they were asked for, so only the latency of queue memory (which is pinned) is waited for.
// A doorbell that brings its WQE goes straight to the check when nothing of its QP lies before it;
// else it counts as a plain doorbell, because the process has written the WQE to its queue as well.
//
// WQE as in driver/abi, 16-byte lines: {opcode, flags, num_sge, length, wr_id}; of a WRITE, READ or atomic, and with flag SEND_IMMEDIATE or
// SEND_INVALIDATE, a line {address, key, immediate or key to invalidate} (message mode only; a READ or atomic only if the peer takes any, under selective repeat or without credit lists); an atomic has one more line, {operand, what is compared};
// a NOP or DELAY is its first line, and a BIND has one more line, {address, key, upper half of the bytes}; then SGEs, or with flag SEND_INLINE, and num_sge 0, up to MAX_INLINE bytes of data. A doorbell's slot has the
// same form in 64 bytes, up to SLOT_INLINE bytes of data: two lines and 8 bytes behind the first line; its last 8 bytes are the commit word (decision 28).
//
// A queue that cannot be read, or whose doorbell names an element that cannot be (further than the queue is deep ahead of
// what is complete, or before what has been rung for), is left alone from then on, until its QP is initialised again.
//
// Row: `SEND_BASE`, `SEND_QUEUE`, `SEND_MODE`.
module berth_fp_send_wqe #(
    parameter int unsigned QPS    = 64,
    parameter int unsigned HOST_W = 128,
    parameter int unsigned LE     = 6,    // log2 of elements per QP
    parameter int unsigned LC     = 8,    // log2 of contexts per QP
    parameter int unsigned LF     = 5     // log2 of reads under way
) (
    input  logic                        clk,
    input  logic                        rst,

    input  logic                        cfg_we,
    input  logic [$clog2(QPS)-1:0]      cfg_q,
    input  berth_card_pkg::row_write_t  cfg,
    // some engine's row is not initialised yet: no work begins, because it would use the old content
    input  logic                        init_any,
    input  logic [1:0]                  init_valid,      // [0] doorbells and check, [1] fetch
    input  logic [$clog2(QPS)-1:0]      init_q,
    output logic [1:0]                  init_ack,

    input  logic                        fdb_valid,
    output logic                        fdb_ready,
    input  berth_card_pkg::doorbell_t   fdb,

    output logic                        qr_valid,
    input  logic                        qr_ready,
    output berth_card_pkg::queue_read_t qr,
    input  logic                        qc_valid,
    input  logic [HOST_W-1:0]           qc_data,
    input  berth_card_pkg::queue_beat_t qc,

    // elements completed and contexts given back, by the completion engine
    input  logic                        done_we,
    input  logic [$clog2(QPS)-1:0]      done_q,
    input  logic [15:0]                 done_elems,
    input  logic [LC:0]                 done_ctxs,

    output logic                        posted_we,       // bytes posted (CR-9)
    output logic [$clog2(QPS)-1:0]      posted_q,
    output logic [31:0]                 posted_bytes,
    output logic                        elem_we,         // an element
    output logic [$clog2(QPS)-1:0]      elem_q,
    output logic [LE-1:0]               elem_idx,
    output berth_card_pkg::element_t    element,
    output logic [8*berth_regs_pkg::MAX_INLINE-1:0] elem_data,       // its inline data
    output logic                        ctx_we,          // a context
    output logic [LC-1:0]               ctx_idx,         // of QP elem_q
    output berth_card_pkg::range_t      ctx_data,
    output logic                        parsed_we,       // elements so far
    output logic [$clog2(QPS)-1:0]      parsed_q,
    output logic [15:0]                 parsed_elems,

    // QP asked_q: elements are rung for that are not complete, and its queue can be read
    input  logic [$clog2(QPS)-1:0]      asked_q,
    output logic                        queued,

    output logic                        sq_fault_valid,  // a read of the queue failed, or a doorbell cannot be
    output logic                        sq_fault_wild,   // the latter
    output logic [$clog2(QPS)-1:0]      sq_fault_q
);
    localparam int unsigned QW     = $clog2(QPS);
    localparam int unsigned ELEMS  = 1 << LE;
    localparam int unsigned CTXS   = 1 << LC;
    localparam int unsigned READS  = 1 << LF;
    localparam int unsigned LINES  = HOST_W / 128;             // 16-byte lines of a beat
    localparam int unsigned LL     = $clog2(LINES);
    localparam int unsigned AW     = LF + 5 - LL;              // beats of all fetch buffers
    localparam int unsigned MAX_SGE = berth_regs_pkg::MAX_SGE;
    localparam logic [7:0]  OP_SEND = berth_regs_pkg::OP_SEND[7:0];
    localparam logic [7:0]  OP_WRITE = berth_regs_pkg::OP_WRITE[7:0];
    localparam logic [7:0]  OP_READ = berth_regs_pkg::OP_READ[7:0];
    localparam logic [7:0]  OP_CMP_SWAP = berth_regs_pkg::OP_CMP_SWAP[7:0];
    localparam logic [7:0]  OP_FETCH_ADD = berth_regs_pkg::OP_FETCH_ADD[7:0];
    localparam logic [31:0] ATOMIC_BYTES = berth_regs_pkg::ATOMIC_BYTES;
    localparam logic [7:0]  OP_NOP = berth_regs_pkg::OP_NOP[7:0];
    localparam logic [7:0]  OP_DELAY = berth_regs_pkg::OP_DELAY[7:0];
    localparam logic [7:0]  OP_BIND = berth_regs_pkg::OP_BIND[7:0];
    localparam logic [7:0]  PUSH      = berth_regs_pkg::SEND_PUSH[7:0];
    localparam logic [7:0]  INLINED   = berth_regs_pkg::SEND_INLINE[7:0];
    localparam logic [7:0]  IMMEDIATE = berth_regs_pkg::SEND_IMMEDIATE[7:0];
    localparam logic [7:0]  INVALIDATE = berth_regs_pkg::SEND_INVALIDATE[7:0];
    localparam logic [7:0]  FENCE     = berth_regs_pkg::SEND_FENCE[7:0];
    localparam logic [7:0]  UNSIGNALLED = berth_regs_pkg::SEND_UNSIGNALLED[7:0];
    localparam logic [31:0] MAX_INLINE = berth_regs_pkg::MAX_INLINE;
    localparam logic [31:0] SLOT_INLINE = berth_regs_pkg::SLOT_INLINE;
    localparam int unsigned DATA_W = 8 * MAX_INLINE;
    localparam int unsigned DATA_LINES = MAX_INLINE / 16;

    // ---- rows ------------------------------------------------------------------------
    logic [31:0]   base_lo, base_hi;
    logic [3:0]    log2_depth, log2_depth_p;
    logic [15:0]   pi, fetched, fetched_p;
    logic [15:0]   parsed_f, parsed_p;
    logic [LC:0]   ctxs_f, ctxs_p, dctxs_f, dctxs_p;
    logic [15:0]   delems_f, delems_p;

    logic          f_read, p_read;
    logic [QW-1:0] f_addr, p_addr;
    logic          pi_we, fetched_we, row_we;
    logic [QW-1:0] pi_q, fetched_q, row_q;
    logic [15:0]   pi_data, fetched_data, row_elems;
    logic [LC:0]   row_ctxs;

    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS)) m_lo (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_BASE), .waddr(cfg_q),
        .wdata(cfg.data), .re(f_read), .raddr(f_addr), .rdata(base_lo));
    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS)) m_hi (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_BASE + 6'd1), .waddr(cfg_q),
        .wdata(cfg.data), .re(f_read), .raddr(f_addr), .rdata(base_hi));
    berth_row_pkg::send_queue_t cfg_queue;
    assign cfg_queue = cfg.data;
    berth_fp_mem #(.WIDTH(4), .DEPTH(QPS)) m_depth (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QUEUE), .waddr(cfg_q),
        .wdata(cfg_queue.log2_depth), .re(f_read), .raddr(f_addr), .rdata(log2_depth));
    berth_fp_mem #(.WIDTH(4), .DEPTH(QPS)) m_depth_p (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QUEUE), .waddr(cfg_q),
        .wdata(cfg_queue.log2_depth), .re(p_read), .raddr(p_addr), .rdata(log2_depth_p));
    berth_row_pkg::send_mode_t cfg_mode;
    logic          message_p, remote_p, reads_p;
    assign cfg_mode = cfg.data;
    berth_fp_mem #(.WIDTH(3), .DEPTH(QPS)) m_mode (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_MODE), .waddr(cfg_q),
        .wdata({cfg_mode.message, cfg_mode.remote,
                cfg_mode.remote && (cfg_mode.selective || cfg_mode.foreign) && cfg_mode.reads != 8'd0}),
        .re(p_read), .raddr(p_addr), .rdata({message_p, remote_p, reads_p}));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_pi (.clk(clk), .we(pi_we), .waddr(pi_q),
        .wdata(pi_data), .re(f_read), .raddr(f_addr), .rdata(pi));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_fetched (.clk(clk), .we(fetched_we), .waddr(fetched_q),
        .wdata(fetched_data), .re(f_read), .raddr(f_addr), .rdata(fetched));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_fetched_p (.clk(clk), .we(fetched_we), .waddr(fetched_q),
        .wdata(fetched_data), .re(p_read), .raddr(p_addr), .rdata(fetched_p));
    berth_fp_mem #(.WIDTH(16+LC+1), .DEPTH(QPS)) m_row_f (.clk(clk), .we(row_we), .waddr(row_q),
        .wdata({row_elems, row_ctxs}), .re(f_read), .raddr(f_addr), .rdata({parsed_f, ctxs_f}));
    berth_fp_mem #(.WIDTH(16+LC+1), .DEPTH(QPS)) m_row_p (.clk(clk), .we(row_we), .waddr(row_q),
        .wdata({row_elems, row_ctxs}), .re(p_read), .raddr(p_addr), .rdata({parsed_p, ctxs_p}));
    berth_fp_mem #(.WIDTH(16+LC+1), .DEPTH(QPS)) m_done_f (.clk(clk), .we(done_we), .waddr(done_q),
        .wdata({done_elems, done_ctxs}), .re(f_read), .raddr(f_addr), .rdata({delems_f, dctxs_f}));
    berth_fp_mem #(.WIDTH(16+LC+1), .DEPTH(QPS)) m_done_p (.clk(clk), .we(done_we), .waddr(done_q),
        .wdata({done_elems, done_ctxs}), .re(p_read), .raddr(p_addr), .rdata({delems_p, dctxs_p}));

    // ---- what is queued --------------------------------------------------------------
    logic [QPS-1:0] dead_q;              // the queue cannot be read
    logic [15:0]    pi_asked, done_asked;
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_pi_asked (.clk(clk), .we(pi_we), .waddr(pi_q), .wdata(pi_data),
        .re(1'b1), .raddr(asked_q), .rdata(pi_asked));
    berth_fp_mem #(.WIDTH(16), .DEPTH(QPS)) m_done_asked (.clk(clk), .we(done_we), .waddr(done_q),
        .wdata(done_elems), .re(1'b1), .raddr(asked_q), .rdata(done_asked));
    assign queued = pi_asked != done_asked && !dead_q[asked_q];
    always_ff @(posedge clk) begin
        if (p_q == P_IDLE && head_take && head_err) dead_q[head_qp] <= 1'b1;
        if (wild) dead_q[fq_q] <= 1'b1;
        if (init_ack[0]) dead_q[init_q] <= 1'b0;
        if (rst) dead_q <= '0;
    end

    // `a` comes after `b`
    function automatic logic after(input logic [15:0] a, input logic [15:0] b);
        logic [15:0] d;
        d = a - b;
        after = !d[15] && d != 16'd0;
    endfunction

    // ---- fetch -----------------------------------------------------------------------
    typedef enum logic [1:0] {F_IDLE, F_ROWS, F_ASK} fetch_t;
    fetch_t        f_q;
    logic          work_valid, work_pop, work_busy, bell_set, worked_off;
    logic [QW-1:0] work_q, fq_q;
    logic          again_q;
    logic [QW-1:0] again_q_q;
    logic [LF:0]   head_q, tail_q;       // reads: oldest not worked off, next
    logic [READS-1:0] here_q, err_q;     // all beats have come; one of them with an error
    logic [QW+2:0] meta [0:READS-1];     // {QP, WQEs}

    // A read that is worked off gives back contexts that were kept for SGEs which its WQEs might have had.
    berth_fp_ready #(.QPS(QPS), .SETS(4)) work (.clk(clk), .rst(rst),
        .set({bell_set, done_we, again_q, worked_off}), .set_q({fdb.qpn[QW-1:0], done_q, again_q_q, pq_q}),
        .valid(work_valid), .q(work_q), .pop(work_pop), .busy(work_busy));

    logic [15:0] from, ahead, room, unparsed;
    logic [2:0]  span, count;
    logic [LC:0] ctx_used;
    logic [LC+4:0] ctx_room;
    logic [2:0]  ctx_wqes;
    always_comb begin
        from     = after(parsed_f, fetched) ? parsed_f : fetched;
        ahead    = pi - from;
        room     = 16'(ELEMS) - (from - delems_f);
        unparsed = from - parsed_f;
        // WQEs that are not parsed may have all SGEs
        ctx_used = ctxs_f - dctxs_f;
        ctx_room = (LC+5)'(CTXS) - (LC+5)'(ctx_used) - (LC+5)'(unparsed[LE:0]) * (LC+5)'(MAX_SGE);
        ctx_wqes = ctx_room[LC+4] ? 3'd0
                 : ctx_room >= (LC+5)'(4*MAX_SGE) ? 3'd4
                 : ctx_room >= (LC+5)'(3*MAX_SGE) ? 3'd3
                 : ctx_room >= (LC+5)'(2*MAX_SGE) ? 3'd2
                 : ctx_room >= (LC+5)'(MAX_SGE)   ? 3'd1 : 3'd0;
        span  = 3'd4 - {1'b0, from[1:0]};    // not over a border of 512 bytes
        count = span;
        if (ahead < {13'd0, count}) count = ahead[2:0];
        if (room  < {13'd0, count}) count = room[2:0];
        if (ctx_wqes < count)       count = ctx_wqes;
    end

    logic [15:0]   used, rung;           // elements rung for; of them fetched or come with a doorbell
    logic          wild;
    assign used = pi - delems_f;
    assign rung = from - delems_f;
    assign wild = f_q == F_ROWS && !dead_q[fq_q] && (used > 16'd1 << log2_depth || used < rung);

    logic          full;
    logic [2:0]    count_q;
    logic [15:0]   from_q, mask_q;
    logic [63:0]   base_q;
    assign full     = head_q == (tail_q ^ {1'b1, {LF{1'b0}}});
    assign work_pop = f_q == F_IDLE && !init_any && !full;
    assign f_read   = work_pop;
    assign f_addr   = work_q;
    assign qr_valid = f_q == F_ASK;
    assign qr.addr  = base_q + {41'd0, from_q & mask_q, 7'd0};
    assign qr.len   = {count_q, 7'd0};
    assign qr.tag   = 8'(tail_q[LF-1:0]);
    assign init_ack[1]  = f_q == F_IDLE && init_valid[1];
    assign fetched_we   = init_ack[1] || (f_q == F_ASK && qr_ready);
    assign fetched_q    = init_ack[1] ? init_q : fq_q;
    assign fetched_data = init_ack[1] ? 16'd0 : from_q + {13'd0, count_q};

    always_ff @(posedge clk) begin
        again_q <= 1'b0;
        case (f_q)
            F_IDLE: if (work_pop && work_valid) begin
                fq_q <= work_q;
                f_q  <= F_ROWS;
            end
            F_ROWS: begin
                count_q <= count;
                from_q  <= from;
                mask_q  <= (16'd1 << log2_depth) - 16'd1;
                base_q  <= {base_hi, base_lo};
                f_q     <= count == 3'd0 || dead_q[fq_q] || wild ? F_IDLE : F_ASK;
            end
            default: if (qr_ready) begin
                meta[tail_q[LF-1:0]] <= {fq_q, count_q};
                tail_q    <= tail_q + 1'b1;
                again_q   <= 1'b1;
                again_q_q <= fq_q;
                f_q       <= F_IDLE;
            end
        endcase
        if (rst) begin
            f_q    <= F_IDLE;
            tail_q <= '0;
        end
    end

    // ---- what comes ------------------------------------------------------------------
    logic [HOST_W-1:0] line_beat;
    logic              line_read;
    logic [LF+4:0]     line_addr;      // 16-byte line
    logic [LF+4:0]     line_addr_q;
    logic [127:0]      fetched_line;
    berth_wqe_pkg::sge_t line;
    berth_fp_mem #(.WIDTH(HOST_W), .DEPTH(1 << AW), .OWN(1'b1)) m_lines (.clk(clk), .we(qc_valid),
        .waddr({qc.tag[LF-1:0], qc.off[8:4+LL]}), .wdata(qc_data),
        .re(line_read), .raddr(line_addr[LF+4:LL]), .rdata(line_beat));
    generate
        if (LINES == 1) begin : g_one
            assign fetched_line = line_beat;
        end else begin : g_some
            assign fetched_line = line_beat[128*line_addr_q[LL-1:0] +: 128];
        end
    endgenerate
    always_ff @(posedge clk) if (line_read) line_addr_q <= line_addr;

    // ---- check -----------------------------------------------------------------------
    typedef enum logic [2:0] {P_IDLE, P_BELL, P_HEAD, P_LINE, P_END} parse_t;
    parse_t        p_q;
    logic          bell_q;              // the WQE at hand came with a doorbell
    logic [QW-1:0] pq_q;
    logic [2:0]    left_q;              // WQEs of the read that are left, with this one
    logic [2:0]    line_q;              // line at hand
    logic [1:0]    wqe_q;               // WQE in the read
    logic [15:0]   elems_q;
    logic [LC:0]   ctxs_q, ctxs_new_q;
    logic          fresh_q;             // the rows have just been read
    berth_wqe_pkg::wqe_header_t h_q;
    logic [31:0]   sum_q;
    logic          over_q;              // the sum does not fit, or an SGE is malformed
    logic [DATA_W-1:0] data_q;
    berth_wqe_pkg::sge_t ext_q;         // what stands in front of SGEs and data
    logic          head_here, head_err, plain, bell_fits;
    logic [LF-1:0] head_idx;
    logic [QW-1:0] head_qp;
    logic [2:0]    head_count;

    assign head_idx  = head_q[LF-1:0];
    assign head_here = here_q[head_idx] && head_q != tail_q;
    assign head_err  = err_q[head_idx];
    assign {head_qp, head_count} = meta[head_idx];

    logic          head_take;
    assign head_take = head_here && !fdb_valid && !init_valid[0] && !wild;
    // A doorbell without WQE is taken at once.
    assign plain     = p_q == P_IDLE && fdb_valid && !fdb.pushed && !init_valid[0];
    assign bell_fits = parsed_p == fdb.pi - 16'd1 && !after(fetched_p, parsed_p)
                       && parsed_p - delems_p < 16'(ELEMS) && parsed_p - delems_p < 16'd1 << log2_depth_p && ctxs_p - dctxs_p <= (LC+1)'(CTXS - 2);
    assign fdb_ready  = plain || (p_q == P_BELL && !bell_fits) || (p_q == P_END && bell_q);
    assign bell_set  = plain || (p_q == P_BELL && !bell_fits);
    assign init_ack[0] = p_q == P_IDLE && init_valid[0];
    assign pi_we     = fdb_ready || init_ack[0];
    assign pi_q      = init_ack[0] ? init_q : fdb.qpn[QW-1:0];
    assign pi_data   = init_ack[0] ? 16'd0 : fdb.pi;
    // Bytes posted are known before the element is: P_BELL is the first cycle of every WQE that came with a doorbell.
    assign posted_we    = plain || p_q == P_BELL || init_ack[0];
    assign posted_q     = pi_q;
    assign posted_bytes = init_ack[0] ? 32'd0 : fdb.posted;

    assign p_read    = p_q == P_IDLE;
    assign p_addr    = fdb_valid ? fdb.qpn[QW-1:0] : head_qp;
    assign line_read = 1'b1;
    always_comb begin
        line_addr = {head_idx, wqe_q, line_q};
        case (p_q)
            P_IDLE:  line_addr = {head_idx, 2'd0, 3'd0};
            P_END:   line_addr = {head_idx, wqe_q + 2'd1, 3'd0};
            default: line_addr = {head_idx, wqe_q, line_q + 3'd1};
        endcase
    end
    assign line = !bell_q ? fetched_line
                : line_q == 3'd1 ? fdb.wqe[255:128]
                : fdb.wqe[383:256];

    logic          inl, imm, invalidates, write, reads, ext, ext_line, last_line, sge_used;   // reads: it is a READ or atomic
    logic          adds, atomic, operands; // operands: the line with these
    logic [1:0]    exts;                 // lines in front of SGEs and data
    logic [2:0]    lines, data_line;      // data_line: of those behind the first one
    logic          nothing, delay, binds; // nothing is sent; it is a DELAY, a BIND
    logic          bare;                 // it has no flags but those that any element may have
    berth_row_pkg::send_bind_t scope;    // of a BIND
    logic          bad;
    assign delay     = h_q.opcode == OP_DELAY;
    assign binds     = h_q.opcode == OP_BIND;
    assign nothing   = h_q.opcode == OP_NOP || delay || binds;
    assign scope     = {16'd0, h_q.num_sge};
    assign bare      = (h_q.flags & ~(FENCE | UNSIGNALLED)) == 8'd0;
    assign inl       = (h_q.flags & INLINED) != 8'd0;
    assign invalidates = (h_q.flags & INVALIDATE) != 8'd0;
    assign imm       = (h_q.flags & IMMEDIATE) != 8'd0 || invalidates;
    assign write     = h_q.opcode == OP_WRITE;
    assign adds      = h_q.opcode == OP_FETCH_ADD;
    assign atomic    = h_q.opcode == OP_CMP_SWAP || adds;
    assign reads     = h_q.opcode == OP_READ || atomic;
    assign ext       = imm || write || reads || binds;
    assign exts      = {atomic, ext && !atomic};
    assign ext_line  = ext && line_q == 3'd1;
    assign operands  = atomic && line_q == 3'd2;
    assign data_line = line_q - {1'b0, exts};
    assign lines     = {1'b0, exts} + (!inl ? binds || h_q.num_sge > most_sges(bell_q, exts) ? 3'd0 : h_q.num_sge[2:0] : bell_q ? 3'd0 : 3'(DATA_LINES));
    assign last_line = line_q == lines;
    assign sge_used  = p_q == P_LINE && !inl && !ext_line && !operands && line.len != 32'd0;
    assign bad       = !(h_q.opcode == OP_SEND || (write && remote_p) || (reads && reads_p && bare)
                         || (nothing && bare && (binds ? {scope.zero_31_8, scope.waits, scope.zero_6_6, scope.zero_4_3} == '0 : h_q.num_sge == 16'd0 && (delay || h_q.length == 32'd0))))
                       || (h_q.flags & ~(PUSH | INLINED | IMMEDIATE | FENCE | UNSIGNALLED | INVALIDATE)) != 8'd0
                       || (invalidates && (h_q.opcode != OP_SEND || (h_q.flags & IMMEDIATE) != 8'd0))
                       || (ext && !binds && !message_p) || (atomic && h_q.length != ATOMIC_BYTES)
                       || (h_q.length[31] && !binds) || over_q
                       || (inl ? h_q.length > (!bell_q ? MAX_INLINE : ext ? SLOT_INLINE - 32'd16 : SLOT_INLINE) || h_q.num_sge != 16'd0
                               : !nothing && (h_q.num_sge > most_sges(bell_q, exts) || sum_q != h_q.length));

    assign worked_off  = p_q == P_END && left_q == 3'd1 && !bell_q;
    assign elem_we     = p_q == P_END;
    assign elem_q      = pq_q;
    assign elem_idx    = elems_q[LE-1:0];
    assign element.len    = nothing ? 32'd0 : h_q.length;
    assign element.bad    = bad;
    assign element.push   = (h_q.flags & PUSH) != 8'd0;
    assign element.inlined = inl;
    assign element.has_imm = imm;
    assign element.invalidate = invalidates;
    assign element.write   = write && !bad;
    assign element.read    = reads && !bad;
    assign element.atomic  = atomic && !bad;
    assign element.adds    = adds;
    assign element.fence   = (h_q.flags & FENCE) != 8'd0;
    assign element.quiet   = (h_q.flags & UNSIGNALLED) != 8'd0;
    assign element.nothing = nothing;
    assign element.delay   = delay;
    assign element.bind_key = binds && !bad;
    assign element.span     = {ext_q.reserved, h_q.length};
    assign element.one_shot = scope.one_shot;
    assign element.rights   = scope.rights;
    assign element.imm      = ext_q.reserved;
    assign element.key      = ext_q.len;
    assign element.va      = delay ? {32'd0, h_q.length} : ext_q.va;
    assign element.wr_id  = h_q.wr_id;
    assign element.ctxs   = 9'(bad ? ctxs_q : ctxs_new_q);
    assign elem_data   = data_q;
    assign ctx_we      = sge_used;
    assign ctx_idx     = ctxs_new_q[LC-1:0];
    assign ctx_data.va  = line.va;
    assign ctx_data.len = line.len;
    assign row_we      = elem_we || init_ack[0];
    assign row_q       = init_ack[0] ? init_q : pq_q;
    assign row_elems   = init_ack[0] ? 16'd0 : elems_q + 16'd1;
    assign row_ctxs    = init_ack[0] ? '0 : element.ctxs[LC:0];
    assign parsed_we    = row_we;
    assign parsed_q     = row_q;
    assign parsed_elems = row_elems;

    berth_wqe_pkg::wqe_header_t header;
    logic         header_ext;              // a line stands in front of SGEs and data
    logic         header_inl;              // h_q.flags has not its flags yet
    logic         header_lines;            // there is a line to read behind it
    assign header = bell_q ? fdb.wqe[127:0] : fetched_line;
    assign header_ext = (header.flags & (IMMEDIATE | INVALIDATE)) != 8'd0 || header.opcode == OP_WRITE || header.opcode == OP_READ || header.opcode == OP_BIND
                       || header.opcode == OP_CMP_SWAP || header.opcode == OP_FETCH_ADD;
    assign header_inl = (header.flags & INLINED) != 8'd0;
    assign header_lines = header_ext || (header_inl ? !bell_q : header.num_sge != 16'd0 && header.num_sge <= most_sges(bell_q, 2'd0));

    // SGEs that an element may have behind its header and so many more lines.
    function automatic logic [15:0] most_sges(input logic bell, input logic [1:0] behind);
        most_sges = (bell ? 16'd2 : 16'(MAX_SGE)) - {14'd0, behind};
    endfunction

    always_ff @(posedge clk) begin
        sq_fault_valid <= wild;
        sq_fault_wild  <= wild;
        if (wild) sq_fault_q <= fq_q;
        case (p_q)
            P_IDLE: begin
                line_q  <= 3'd0;
                wqe_q   <= 2'd0;
                fresh_q <= 1'b1;
                bell_q  <= 1'b0;
                if (init_valid[0] || plain) begin
                    // one cycle
                end else if (fdb_valid) begin
                    bell_q <= 1'b1;
                    pq_q   <= fdb.qpn[QW-1:0];
                    left_q <= 3'd1;
                    p_q    <= P_BELL;
                end else if (head_take) begin
                    pq_q   <= head_qp;
                    left_q <= head_count;
                    if (head_err || dead_q[head_qp]) begin
                        head_q   <= head_q + 1'b1;
                        sq_fault_valid <= !dead_q[head_qp];
                        sq_fault_q     <= head_qp;
                    end else begin
                        p_q <= P_HEAD;
                    end
                end
            end
            P_BELL: p_q <= bell_fits ? P_HEAD : P_IDLE;
            P_HEAD: begin
                h_q        <= header;
                data_q     <= DATA_W'(header_ext ? {128'd0, fdb.wqe[447:256]} : fdb.wqe[447:128]);
                sum_q      <= 32'd0;
                over_q     <= 1'b0;
                line_q     <= 3'd1;
                elems_q    <= fresh_q ? parsed_p : elems_q;
                ctxs_q     <= fresh_q ? ctxs_p : ctxs_q;
                ctxs_new_q <= fresh_q ? ctxs_p : ctxs_q;
                fresh_q    <= 1'b0;
                // No line is read if none is used, too many are claimed, or the data came with the doorbell.
                p_q <= header_lines ? P_LINE : P_END;
            end
            P_LINE: begin
                line_q <= line_q + 3'd1;
                if (ext_line) begin
                    ext_q  <= line;
                    over_q <= !binds && ((!write && !reads && {line.len, line.va} != 96'd0) || (!imm && line.reserved != 32'd0)
                                         || (atomic && line.va[2:0] != 3'd0));
                end else if (operands) begin
                    data_q[127:0] <= line;
                    over_q        <= over_q || (adds && {line.reserved, line.len} != 64'd0);
                end else if (inl) begin
                    for (int unsigned i = 0; i < DATA_LINES; i++)
                        if (data_line == 3'(i + 1)) data_q[128*i +: 128] <= line;
                end else begin
                    {over_q, sum_q} <= {over_q || {line.reserved, line.len[31]} != 33'd0, 32'd0} | ({1'b0, sum_q} + {1'b0, line.len});
                    if (sge_used) ctxs_new_q <= ctxs_new_q + 1'b1;
                end
                if (last_line) p_q <= P_END;
            end
            default: begin  // P_END
                elems_q <= elems_q + 16'd1;
                ctxs_q  <= element.ctxs[LC:0];
                line_q  <= 3'd0;
                wqe_q   <= wqe_q + 2'd1;
                left_q  <= left_q - 3'd1;
                p_q     <= left_q == 3'd1 ? P_IDLE : P_HEAD;
                if (worked_off) head_q <= head_q + 1'b1;
            end
        endcase
        if (rst) begin
            p_q    <= P_IDLE;
            head_q <= '0;
        end
    end

    always_ff @(posedge clk) begin
        if (f_q == F_ASK && qr_ready) begin
            here_q[tail_q[LF-1:0]] <= 1'b0;
            err_q[tail_q[LF-1:0]]  <= 1'b0;
        end
        if (qc_valid) begin
            if (qc.last) here_q[qc.tag[LF-1:0]] <= 1'b1;
            if (qc.err)  err_q[qc.tag[LF-1:0]]  <= 1'b1;
        end
        if (rst) here_q <= '0;
    end

    logic unused;
    assign unused = &{1'b0, work_busy, qc, fdb, line_addr_q, unparsed};

    wire unused_cfg = &{1'b0, cfg_queue, cfg_mode};
endmodule
