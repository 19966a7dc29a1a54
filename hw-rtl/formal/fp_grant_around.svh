// SPDX-License-Identifier: Apache-2.0 OR MIT
// berth_fp_grant, any one of its QPs, and what happens to it. Queues, ready bits and memories give anything (queue_free) but for
// what a proof says. The QP's row as it is read is what was stored last: fp_grant_row_proof has that, the others take it.
    localparam QPS = 64, QW = $clog2(QPS), DATA_W = 64;
    (* anyseq *) logic          rst_in, cmd_valid, quiet_valid, grant_ok, pend_we, parsed_we, freed_we, given_we, told_valid,
                                proof_valid, acq_ready, xr_valid, post_ready, aside_ready;
    (* anyseq *) logic [31:0]   now;
    (* anyseq *) berth_card_pkg::given_t given;
    (* anyseq *) berth_card_pkg::freed_t freed;
    (* anyseq *) berth_card_pkg::grant_step_t cmd;
    (* anyseq *) logic [QW-1:0] cmd_q, quiet_q, parsed_q, freed_q, told_q, proof_q;
    (* anyseq *) logic [15:0]   parsed;
    (* anyseq *) berth_card_pkg::range_t grant_sge;
    (* anyseq *) logic [QW+6:0] pend_at;
    (* anyseq *) berth_card_pkg::pending_t pend;
    (* anyseq *) berth_card_pkg::told_t told;
    (* anyseq *) berth_card_pkg::range_answer_t xr;
    (* anyconst *) logic [QW-1:0] the_q;
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic           busy, cmd_ready, quiet_ready, grant_re, told_room, acq_valid, xr_ready, ring_we,
                    post_valid, aside_valid, ev_hit, ev_miss, ev_stray;
    berth_card_pkg::grant_state_t gr_st;
    logic [QW+7:0]  grant_at;
    logic [QW-1:0]  ring_q, post_q, aside_q;
    logic [6:0]     ring_at;
    berth_card_pkg::range_ask_t acq;
    berth_card_pkg::ring_t      ring;
    berth_card_pkg::post_t      post;
    berth_card_pkg::aside_t     aside;
    berth_fp_grant #(.QPS(QPS), .DATA_W(DATA_W)) dut (.*);

    // As in berth_fp_grant.
    typedef struct packed {
        logic        on;
        logic [7:0]  asid;
        logic [15:0] ask;
        logic [2:0]  ask_range;
        logic [31:0] ask_at;
        logic [7:0]  sge, ask_w, have_w;
        logic [15:0] used, waits, held, own, refused, budget, memory, final_w, grant;
        logic [7:0]  credit;
        logic        open, failed, over, short_of;
        logic [15:0] got;
        logic [1:0]  hold;
        logic        rewind;
        logic [7:0]  back;
        logic        serial, rest;
        logic [31:0] asked;
        logic [15:0] limit, most;
        logic        limited, warm;
        logic [15:0] missed;
        logic [31:0] fresh, newest, older, since, part;
        logic        closed;
        logic [7:0]  end_w;
        logic        whole, waiting;
        logic [31:0] pace, burst;
        logic [15:0] round;
        logic [26:0] serve;
        logic        ended;
        logic [7:0]  status;
        logic        flush;
        logic [15:0] flushed;
        logic        drain;
        logic [15:0] drain_to;
    } row_t;
    row_t s, nr;                                // the QP's row: as it was stored last; as it is to be stored
    localparam RW = $bits(s);
    localparam logic [1:0] LOOK = 2'd1, DECIDE = 2'd2;
    localparam logic [2:0] ASK = 3'd0, ANSWER = 3'd1, ADVANCE = 3'd2, COMMAND = 3'd3, TOLD = 3'd4, PROOF = 3'd5;
    localparam logic [1:0] HIT = berth_regs_pkg::XLT_HIT[1:0], MISS = berth_regs_pkg::XLT_MISS[1:0], READY = berth_regs_pkg::XLT_READY[1:0];
    (* hierconn *) wire [RW-1:0] \dut.r ;
    (* hierconn *) wire [RW-1:0] \dut.r_q ;
    (* hierconn *) wire [RW-1:0] \dut.row ;
    (* hierconn *) wire [1:0]    \dut.state_q ;
    (* hierconn *) wire [2:0]    \dut.op_q ;
    (* hierconn *) wire [QW-1:0] \dut.q_q ;
    (* hierconn *) wire [QW-1:0] \dut.q_next ;
    (* hierconn *) wire [4:0]    \dut.cmd_q_op ;
    (* hierconn *) wire [3:0]    \dut.slot_q ;
    (* hierconn *) wire [3:0]    \dut.at_slot_q ;
    (* hierconn *) wire [1:0]    \dut.kind_q ;
    (* hierconn *) wire [7:0]    \dut.status_q ;
    (* hierconn *) wire [7:0]    \dut.first_q ;
    (* hierconn *) wire [15:0]   \dut.n_parsed_q ;
    (* hierconn *) wire [15:0]   \dut.n_freed_q ;
    (* hierconn *) wire [31:0]   \dut.n_given_q ;
    (* hierconn *) wire [63:0]   \dut.va ;
    (* hierconn *) wire [20:0]   \dut.chunk ;
    (* hierconn *) wire [31:0]   \dut.size ;
    (* hierconn *) wire [2:0]    \dut.ranges ;
    (* hierconn *) wire \dut.take , \dut.go , \dut.we , \dut.acquire , \dut.give , \dut.have , \dut.posts , \dut.want_local ;

    wire  here  = \dut.q_q == the_q;
    wire  reads = \dut.take && \dut.q_next == the_q && !rst;
    wire  looks = here && \dut.state_q == LOOK;
    wire  works = here && \dut.state_q == DECIDE;
    wire  does  = works && \dut.go && !rst;
    wire  begins = does && \dut.op_q == COMMAND && \dut.cmd_q_op == berth_row_pkg::STEP_START;
    logic on_q;                                 // the QP has begun
    logic [RW-1:0] stored_q;
    assign s  = stored_q;
    assign nr = \dut.r ;
    always_ff @(posedge clk) begin
        on_q <= !rst && (on_q || begins);
        if (does && \dut.we ) stored_q <= \dut.r ;
    end

    wire  first   = {s.ask_range, s.ask_at} == '0;                          // of the receive that is asked for
    wire  asks    = does && \dut.op_q == ASK && \dut.acquire ;
    wire  places  = does && \dut.op_q == ASK && \dut.we && nr.ask_w != s.ask_w;
    wire  answers = does && \dut.op_q == ANSWER;
    wire  refuses = answers && \dut.kind_q == READY && \dut.status_q != 8'd0 && !ev_stray;
    wire  gives   = does && \dut.give ;
    always_comb if (on_q && works) begin
        // berth_xlt answers what it was asked, once each: see `is_q` of fp_grant_window_proof.
        assume (\dut.op_q != ANSWER || \dut.kind_q == READY
                || (\dut.kind_q <= READY && s.used[\dut.slot_q ] && !s.waits[\dut.slot_q ] && !s.held[\dut.slot_q ]));
        // berth_fp_recv_complete says so after the end.
        assume (\dut.op_q != COMMAND || \dut.cmd_q_op != berth_row_pkg::STEP_QUIET || s.ended);
    end
