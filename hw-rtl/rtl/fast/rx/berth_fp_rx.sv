// SPDX-License-Identifier: Apache-2.0 OR MIT
// The receiving half of the fast path: frames from the MAC to receives, completions and acknowledgements; receive
// queues to grants and credit lists. docs/internals/receiving.md has the whole picture.
//
//   frame ─► frame_in ─► target ─► arrival ─► scatter ─► (payload writes)
//                │         │ keys,  ▲  │        │
//                ▼         ▼ pages  │  │        │ written      doorbell ─► recv_wqe ─► grant ─► builder ─► lists
//          ACKs, lists,    └──┼────────┘                                     recv_complete ─┘        │
//          frames for the     ├──► recv_complete (completion, release)                               │
//          core               ├──► respond ─► answers to READs                                       │
//                             └──► acknowledgements, landed ─────────────────────────────────────────┘
//
// Its rows, their commands and its events are those of driver/abi (rows.rs: `recv`, `event`; docs/reference/rows.md):
// words below `RECV_HELD` are one staging area for all QPs, which a command applies to its QP; it
// does so in steps (`STEP_*`), each of which some of the engines take.
module berth_fp_rx #(
    // Bits of a beat of the wire; only the host port's width follows from it here.
    parameter int unsigned DATA_W = 64,
    parameter int unsigned HOST_W = DATA_W < 512 ? 2 * DATA_W : 1024,
    // QPs, a power of two up to 1024; a QP's row is its QPN.
    parameter int unsigned QPS = 64,
    // log2 of the packets that are taken ahead of the oldest that is not in place.
    parameter int unsigned WB = 8,
    // Keys, a power of two.
    parameter int unsigned KEYS = berth_regs_pkg::NUM_KEYS,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic                          clk,
    input  logic                          rst,
    output logic                          busy,
    input  logic [31:0]                   now,           // units of 64 clocks
    // Core: rows.
    input  logic                          fc_req,
    input  berth_card_pkg::row_access_t   fc,
    output logic                          fc_ack,
    output logic [31:0]                   fc_rdata,
    // Core: exceptions.
    output logic                          fe_valid,
    input  logic                          fe_ready,
    output berth_row_pkg::fast_event_t   fe,
    // Doorbells of receive queues.
    input  logic                          fdb_valid,
    output logic                          fdb_ready,
    input  berth_card_pkg::doorbell_t     fdb,
    // Reads of queue elements.
    output logic                          qr_valid,
    input  logic                          qr_ready,
    output berth_card_pkg::queue_read_t   qr,
    input  logic                          qc_valid,
    input  logic [HOST_W-1:0]             qc_data,
    input  berth_card_pkg::queue_beat_t   qc,
    // Translation: acquire and release ranges.
    output logic                          xa_valid,
    input  logic                          xa_ready,
    output berth_card_pkg::range_ask_t    xa,
    input  logic                          xr_valid,
    output logic                          xr_ready,
    input  berth_card_pkg::range_answer_t xr,
    // Good frames from the MAC; their first bytes, word by word (data one clock after hd_re); given back.
    input  logic                          rf_valid,
    output logic                          rf_ready,
    input  berth_card_pkg::frame_t        rf,
    input  logic [8*96-1:0]               rf_hdr,
    output logic                          hd_re,
    output logic [17:0]                   hd_addr,
    input  logic [31:0]                   hd_data,
    output logic                          rfree_valid,
    output logic [17:0]                   rfree_place,
    // Frames for the core, which gives them back itself.
    output logic                          cf_valid,
    input  logic                          cf_ready,
    output berth_card_pkg::frame_t        cf,
    output logic [8*96-1:0]               cf_hdr,        // its first bytes
    output logic [47:0]                   own_mac,       // 0 before `RECV_OWN_MAC` is written
    output logic [31:0]                   own_ip,        // says nothing before that
    // Payload writes; answers in their order.
    output logic                          store_valid,
    input  logic                          store_ready,
    output berth_card_pkg::payload_t      store,
    input  logic                          stored_valid,
    input  berth_card_pkg::payload_end_t  stored,
    // Completions.
    output logic                          fcq_valid,
    input  logic                          fcq_ready,
    output berth_card_pkg::completion_t   fcq,
    // Transmit half: ACKs and lists that came; ACKs and lists to send.
    output logic                          ack_valid,
    input  logic                          ack_ready,
    output logic [QW-1:0]                 ack_q,
    output berth_card_pkg::ack_t          ack,
    // Answers to READs that came; frames of those that are dropped; their payloads; the oldest one is in place, or has failed.
    output logic                          ans_valid,
    input  logic                          ans_ready,
    output logic [QW-1:0]                 ans_q,
    output berth_card_pkg::answer_t       ans,
    input  logic                          ans_free_valid,
    input  logic [17:0]                   ans_free_place,
    input  logic                          put_valid,
    output logic                          put_ready,
    input  logic [QW-1:0]                 put_q,
    input  berth_card_pkg::placement_t    put,
    output logic                          put_over_valid,
    output logic                          put_over_err,
    output logic                          lst_valid,
    input  logic                          lst_ready,
    input  logic                          lst_over,      // with a size: no more of the list are wanted
    output logic [QW-1:0]                 lst_q,
    output berth_card_pkg::list_beat_t    lst,
    output logic                          afr_valid,
    input  logic                          afr_ready,
    output logic [QW-1:0]                 afr_q,
    output berth_card_pkg::ack_t          afr,
    output logic                          lfr_valid,
    input  logic                          lfr_ready,
    output logic [QW-1:0]                 lfr_q,
    output berth_card_pkg::list_out_t     lfr,
    // Packets of answers to READs; the payload of one has been read.
    output logic                          rsp_valid,
    input  logic                          rsp_ready,
    output logic [QW-1:0]                 rsp_q,
    output berth_card_pkg::response_t       rsp,
    input  logic                          rspd_valid,
    input  berth_card_pkg::response_end_t   rspd,
    // Atomics: see `berth_atomic`.
    output logic                          change_valid,
    input  logic                          change_ready,
    output berth_card_pkg::change_t       change,
    input  logic                          changed_valid,
    input  berth_card_pkg::change_end_t   changed,
    // Repeat timers of lists: the next one is looked at in each free clock. A look: its timer runs, and ends then.
    input  logic                          hurry,
    output logic                          swept,
    output logic                          swept_on,
    output logic [31:0]                   swept_at,
    // Pulses for the counters.
    output berth_card_pkg::rx_events_t    ev,
    // Trace of arrival, for benches.
    output logic                          trace_valid,
    output logic [63:0]                   trace_word,
    output logic                          trace_landed,  // a piece of `trace_landed_q` has landed
    output logic [QW-1:0]                 trace_landed_q
);
  localparam logic [7:0] READ = 8'd0;  // the question, which is no command of the core
  initial if (QPS > 1024 || QPS != (1 << QW)) $fatal(1, "berth_fp_rx: QPS must be a power of two up to 1024");

  // ---- configuration -------------------------------------------------------------------- A command is a few steps,
  // each of which goes to some of the engines.
  // Of a key that is stored, accesses that were let in by the old one are awaited.
  typedef enum logic [3:0] {C_IDLE, C_STEP, C_RUN, C_REST, C_BELL, C_ROW, C_PASS, C_WALK, C_KEY, C_LOADED, C_TARGET, C_FENCE} cfg_t;
  cfg_t c_state_q;
  logic [31:0] stage[32];
  localparam logic [4:0] S_AGAIN = berth_row_pkg::RECV_AGAIN[4:0];
  localparam logic [4:0] S_BASE = berth_row_pkg::RECV_BASE[4:0];
  localparam logic [4:0] S_EPOCH = berth_row_pkg::RECV_EPOCH[4:0];
  localparam logic [4:0] S_FIRST = berth_row_pkg::RECV_FIRST[4:0];
  localparam logic [4:0] S_IP = berth_row_pkg::RECV_IP[4:0];
  localparam logic [4:0] S_KEY = berth_row_pkg::RECV_KEY[4:0];
  localparam logic [4:0] S_LISTS = berth_row_pkg::RECV_LISTS[4:0];
  localparam logic [4:0] S_MAC = berth_row_pkg::RECV_MAC[4:0];
  localparam logic [4:0] S_MODE = berth_row_pkg::RECV_MODE[4:0];
  localparam logic [4:0] S_PEER_EPOCH = berth_row_pkg::RECV_PEER_EPOCH[4:0];
  localparam logic [4:0] S_PI = berth_row_pkg::RECV_PI[4:0];
  localparam logic [4:0] S_PINNED = berth_row_pkg::RECV_PINNED[4:0];
  localparam logic [4:0] S_PSN = berth_row_pkg::RECV_PSN[4:0];
  localparam logic [4:0] S_QKEY = berth_row_pkg::RECV_QKEY[4:0];
  localparam logic [4:0] S_QUEUE = berth_row_pkg::RECV_QUEUE[4:0];
  localparam logic [4:0] S_RANGE = berth_row_pkg::RECV_RANGE[4:0];
  localparam logic [4:0] S_SPACE = berth_row_pkg::RECV_SPACE[4:0];
  berth_row_pkg::recv_mode_t c_mode;
  berth_row_pkg::recv_space_t c_space;
  berth_row_pkg::recv_queue_t c_queue;
  berth_row_pkg::recv_lists_t c_lists;
  berth_row_pkg::recv_pinned_t c_pinned;
  berth_row_pkg::recv_command_t command;
  assign c_mode   = stage[S_MODE];
  assign c_space  = stage[S_SPACE];
  assign c_queue  = stage[S_QUEUE];
  assign c_lists  = stage[S_LISTS];
  assign c_pinned = stage[S_PINNED];
  assign command  = fc.data;
  logic [QW-1:0] c_q;
  logic [7:0] command_q, status_q;
  logic [15:0] argument_q;
  logic key_ready, target_fence, target_fenced;
  berth_card_pkg::key_t key_staged, key_loaded;
  assign target_fence = c_state_q == C_KEY && key_ready && command_q == berth_row_pkg::RECV_CMD_KEY_STORE;
  always_comb for (int unsigned i = 0; i < 8; i++) key_staged[32*i+:32] = stage[S_KEY+5'(i)];
  logic [5:0] word_q6;
  logic [4:0] todo_q, c_ready;     // arrival, recv_complete, recv_wqe, grant, builder
  logic [4:0] c_op_q;
  logic [4:0] who;
  logic [4:0] what;
  logic [2:0] step_q, rest_q;
  logic [1:0] drain_q;
  logic drain_waits, dn_works;
  logic [4:0] lists_q, lists_left_q;
  logic bell_valid, bell_ready, steps_over, c_passed_q, walk_start, walk_busy;
  logic walk_valid, walk_fence, fenced, fence_q, fence_go;
  berth_card_pkg::walk_t walk;
  // The access that broke a connection, until the QP begins anew.
  berth_card_pkg::peer_access_t broken_access, refused;
  berth_row_pkg::recv_access_t c_access;
  logic [QPS-1:0] refused_q;
  assign c_access.zero_31_8 = '0;
  assign c_access.known     = refused_q[c_q];
  assign c_access.zero_6_3  = '0;
  always_comb begin
    case (refused.kind)
      berth_row_pkg::ACCESS_READ:       c_access.right = berth_row_pkg::RIGHT_READ[2:0];
      berth_row_pkg::ACCESS_ATOMIC:     c_access.right = berth_row_pkg::RIGHT_ATOMIC[2:0];
      berth_row_pkg::ACCESS_INVALIDATE: c_access.right = 3'd0;
      default:                           c_access.right = berth_row_pkg::RIGHT_WRITE[2:0];
    endcase
  end
  logic [31:0] st_announced, st_landed, st_completed, st_heard;
  logic [15:0] st_open;
  logic st_writing, st_answering, st_out, st_waits, st_shown, st_fetching;
  berth_card_pkg::grant_state_t gr_st;
  berth_row_pkg::recv_held_t held;
  berth_row_pkg::recv_counts_t counts;
  assign held.busy       = st_writing || st_answering;
  assign held.queued     = st_fetching || gr_st.queued || st_shown;
  assign held.revoking   = gr_st.going;
  assign held.starved    = gr_st.waits && !st_out;
  assign held.zero_27_16 = '0;
  assign held.holds      = gr_st.holds;
  assign counts.posted  = st_open;
  assign counts.granted = gr_st.granted - gr_st.freed;

  always_comb begin
    who        = 5'b00000;
    what       = berth_row_pkg::STEP_ASK;
    steps_over = 1'b0;
    case ({command_q, step_q})
      {READ, 3'd0}:       who = 5'b11111;
      {berth_row_pkg::RECV_CMD_START, 3'd0}:  {who, what} = {5'b11111, berth_row_pkg::STEP_START};
      // The mark that arrival makes finds `grant` ready for it.
      {berth_row_pkg::RECV_CMD_END, 3'd0}:    {who, what} = {5'b11000, berth_row_pkg::STEP_END};
      {berth_row_pkg::RECV_CMD_END, 3'd1}:    {who, what} = {5'b00001, berth_row_pkg::STEP_END};
      {berth_row_pkg::RECV_CMD_HOLD, 3'd0}:   {who, what} = {5'b11000, berth_row_pkg::STEP_HOLD};
      {berth_row_pkg::RECV_CMD_VOID, 3'd0}, {berth_row_pkg::RECV_CMD_REVOKE, 3'd0}: {who, what} = {5'b01000, berth_row_pkg::STEP_STOP};
      {berth_row_pkg::RECV_CMD_VOID, 3'd1}:   {who, what} = {5'b10000, berth_row_pkg::STEP_VOID};
      {berth_row_pkg::RECV_CMD_VOID, 3'd2}:   {who, what} = {5'b01000, berth_row_pkg::STEP_VOID};
      {berth_row_pkg::RECV_CMD_SQUEEZE, 3'd0}: {who, what} = {5'b01000, berth_row_pkg::STEP_SQUEEZE};
      {berth_row_pkg::RECV_CMD_INVALIDATED, 3'd0}: {who, what} = {5'b00001, berth_row_pkg::STEP_INVALIDATED};
      {berth_row_pkg::RECV_CMD_NOT_INVALIDATED, 3'd0}: {who, what} = {5'b00001, berth_row_pkg::STEP_NOT_INVALIDATED};
      {berth_row_pkg::RECV_CMD_REST, 3'd0}:   {who, what} = {5'b01000, berth_row_pkg::STEP_REST};
      {berth_row_pkg::RECV_CMD_CANCEL, 3'd0}: {who, what} = {5'b01000, berth_row_pkg::STEP_CANCEL};
      // A packet that arrival has in hand may use one more, which builder hears of before arrival answers.
      {berth_row_pkg::RECV_CMD_RECLAIM, 3'd0}: {who, what} = {5'b11000, berth_row_pkg::STEP_HOLD};
      {berth_row_pkg::RECV_CMD_RECLAIM, 3'd1}: who = 5'b00001;
      {berth_row_pkg::RECV_CMD_RECLAIM, 3'd2}: {who, what} = {5'b10000, berth_row_pkg::STEP_RECLAIM};
      {berth_row_pkg::RECV_CMD_RECLAIM, 3'd3}: {who, what} = {5'b01000, berth_row_pkg::STEP_VOID};
      {berth_row_pkg::RECV_CMD_LISTS, 3'd0}:  {who, what} = {5'b10000, berth_row_pkg::STEP_LISTS};
      {berth_row_pkg::RECV_CMD_CAP, 3'd0}:    {who, what} = {5'b10000, berth_row_pkg::STEP_CAP};
      {berth_row_pkg::RECV_CMD_REVOKE, 3'd1}: {who, what} = {5'b10000, berth_row_pkg::STEP_UNPOST};
      {berth_row_pkg::RECV_CMD_REVOKE, 3'd2}: {who, what} = {5'b01000, berth_row_pkg::STEP_UNPOST};
      default: steps_over = 1'b1;
    endcase
  end

  // "Nothing is held" is reported once earlier releases have reached the translation, checked step by step.
  always_comb begin
    case (drain_q)
      2'd0: drain_waits = dn_works;
      2'd1: drain_waits = rel_valid && !rel_ready;
      2'd2: drain_waits = acq_valid && !acq_ready;
      default: drain_waits = xa_valid && !xa_ready;
    endcase
  end

  assign bell_valid = c_state_q == C_BELL;
  assign walk_start = c_state_q == C_STEP && steps_over && command_q == berth_row_pkg::RECV_CMD_REVOKE;
  always_ff @(posedge clk) begin
    fc_ack <= 1'b0;
    todo_q  <= todo_q & ~c_ready;
    lists_q <= lists_q + 5'(list_valid && list_ready) - 5'(ls_pop);
    case (c_state_q)
      C_IDLE: begin
        c_q     <= fc.qpn[QW-1:0];
        word_q6 <= fc.word;
        step_q  <= '0;
        if (fc_req && !fc_ack) begin
          fc_rdata <= fc.word[5] ? 32'd0 : stage[fc.word[4:0]];
          command_q <= command.opcode;
          status_q  <= command.argument[7:0];
          argument_q <= command.argument[15:0];
          if (fc.we && fc.word == berth_row_pkg::RECV_COMMAND)
            // First of all, arriving frames go elsewhere.
            c_state_q <= command.opcode == berth_row_pkg::RECV_CMD_END ? C_ROW
                       : command.opcode == berth_row_pkg::RECV_CMD_KEY_STORE || command.opcode == berth_row_pkg::RECV_CMD_KEY_LOAD ? C_KEY
                       : C_STEP;
          else if (!fc.we && fc.word >= berth_row_pkg::RECV_HELD && fc.word <= berth_row_pkg::RECV_USE) begin
            command_q <= READ;
            c_state_q <= C_STEP;
          end else begin
            fc_ack <= 1'b1;
            if (fc.we && !fc.word[5]) stage[fc.word[4:0]] <= fc.data;
            if (fc.we && fc.word == berth_row_pkg::RECV_OWN_IP) own_ip <= fc.data;
            if (fc.we && fc.word == berth_row_pkg::RECV_OWN_MAC) own_mac[31:0] <= fc.data;
            if (fc.we && fc.word == berth_row_pkg::RECV_OWN_MAC + 6'd1) own_mac[47:32] <= fc.data[15:0];
          end
        end
      end
      C_STEP: begin
        todo_q    <= who;
        c_op_q    <= what;
        step_q    <= step_q + 3'd1;
        c_state_q <= C_RUN;
        if (steps_over) begin
          if (command_q == berth_row_pkg::RECV_CMD_START) c_state_q <= C_BELL;
          else if (command_q == berth_row_pkg::RECV_CMD_REVOKE) c_state_q <= C_WALK;
          else if (command_q == READ || command_q == berth_row_pkg::RECV_CMD_END || command_q == berth_row_pkg::RECV_CMD_HOLD || command_q == berth_row_pkg::RECV_CMD_VOID || command_q == berth_row_pkg::RECV_CMD_SQUEEZE
              || command_q == berth_row_pkg::RECV_CMD_REST || command_q == berth_row_pkg::RECV_CMD_CANCEL || command_q == berth_row_pkg::RECV_CMD_RECLAIM || command_q == berth_row_pkg::RECV_CMD_INVALIDATED
              || command_q == berth_row_pkg::RECV_CMD_NOT_INVALIDATED || command_q == berth_row_pkg::RECV_CMD_LISTS
              || command_q == berth_row_pkg::RECV_CMD_CAP) begin
            fc_ack   <= 1'b1;
            c_state_q <= C_IDLE;
          end else c_state_q <= C_ROW;
        end
      end
      C_RUN:
      if (todo_q == '0) begin
        rest_q    <= 3'd4;
        drain_q   <= '0;
        c_state_q <= C_REST;
      end
      // The engines' answers are there, and each engine sees what the one before has done.
      C_REST: begin
        if (rest_q != '0) rest_q <= rest_q - 3'd1;
        else if (!drain_waits) drain_q <= drain_q + 2'd1;
        case (word_q6)
          berth_row_pkg::RECV_HELD: fc_rdata <= held;
          berth_row_pkg::RECV_COMPLETED: fc_rdata <= st_completed;
          berth_row_pkg::RECV_ANNOUNCED: fc_rdata <= st_announced;
          berth_row_pkg::RECV_LANDED: fc_rdata <= st_landed;
          berth_row_pkg::RECV_COUNTS: fc_rdata <= counts;
          berth_row_pkg::RECV_HEARD: fc_rdata <= st_heard;
          berth_row_pkg::RECV_INVALIDATE: fc_rdata <= {31'd0, st_waits};
          berth_row_pkg::RECV_INVALIDATE_KEY: fc_rdata <= ending;
          berth_row_pkg::RECV_ACCESS: fc_rdata <= c_access;
          berth_row_pkg::RECV_ACCESS_KEY: fc_rdata <= refused.key;
          berth_row_pkg::RECV_ACCESS_RANGE: fc_rdata <= refused.va[31:0];
          berth_row_pkg::RECV_ACCESS_RANGE + 6'd1: fc_rdata <= refused.va[63:32];
          berth_row_pkg::RECV_ACCESS_RANGE + 6'd2: fc_rdata <= refused.len;
          berth_row_pkg::RECV_GAPS: fc_rdata <= use_told.gaps;
          berth_row_pkg::RECV_TIMES: fc_rdata <= use_told.times;
          default: fc_rdata <= use_told.used;
        endcase
        if (rest_q == '0 && (word_q6 != berth_row_pkg::RECV_HELD || (drain_q == 2'd3 && !drain_waits))) c_state_q <= C_STEP;
      end
      C_BELL: if (bell_ready) c_state_q <= C_ROW;
      C_ROW: begin
        c_state_q  <= command_q == berth_row_pkg::RECV_CMD_END ? C_STEP : C_PASS;
        c_passed_q <= 1'b0;
      end
      C_PASS: begin
        // Frames that were judged by the old row, and the lists among them.
        if (parse_passed) c_passed_q <= 1'b1;
        if (!c_passed_q) lists_left_q <= lists_q + 5'(list_valid && list_ready) - 5'(ls_pop);
        else if (lists_left_q != '0) lists_left_q <= lists_left_q - 5'(ls_pop);
        else begin
          fc_ack   <= 1'b1;
          c_state_q <= C_IDLE;
        end
      end
      C_KEY: begin
        rest_q <= 3'd2;
        if (key_ready) c_state_q <= command_q == berth_row_pkg::RECV_CMD_KEY_STORE ? C_TARGET : C_LOADED;
      end
      C_LOADED: begin
        rest_q <= rest_q - 3'd1;
        if (rest_q == '0) begin
          for (int unsigned i = 0; i < 8; i++) stage[S_KEY+5'(i)] <= key_loaded[32*i+:32];
          fc_ack   <= 1'b1;
          c_state_q <= C_IDLE;
        end
      end
      C_TARGET:
      if (target_fenced) begin
        {fence_q, todo_q[0], c_op_q} <= {1'b1, 1'b1, berth_row_pkg::STEP_ASK};
        c_state_q <= C_FENCE;
      end
      C_FENCE:
      if (fenced) begin
        fc_ack   <= 1'b1;
        c_state_q <= C_IDLE;
      end
      default:
      if (!walk_busy) begin
        fc_ack   <= 1'b1;
        c_state_q <= C_IDLE;
      end
    endcase
    // Once arrival has answered, it has passed on everything from before the marks.
    fence_go <= 1'b0;
    if (walk_fence) {fence_q, todo_q[0], c_op_q} <= {1'b1, 1'b1, berth_row_pkg::STEP_ASK};
    if (fence_q && !todo_q[0] && !fence_go) {fence_q, fence_go} <= 2'b01;
    if (rst) begin
      c_state_q <= C_IDLE;
      own_mac   <= '0;
      todo_q    <= '0;
      lists_q   <= '0;
      fence_q   <= 1'b0;
    end
  end

  berth_fp_withdraw withdraw (
      .clk,
      .rst,
      .start(walk_start),
      .from({stage[S_RANGE+1], stage[S_RANGE]}),
      .to({stage[S_RANGE+3], stage[S_RANGE+2]}),
      .busy(walk_busy),
      .walk_valid,
      .walk_ready(walk_valid && c_ready[3]),
      .walk,
      .gr_st,
      .fence(walk_fence),
      .fenced
  );

  // ---- frames ----------------------------------------------------------------------------
  logic parse_passed;
  logic item_valid, item_ready, in_valid, in_ready, in_free_valid, list_valid, list_ready, ls_valid, ls_pop;
  berth_card_pkg::arrival_t item, in;
  logic opens, open_valid;
  logic [QW-1:0] opens_q;
  berth_card_pkg::write_t open;
  logic [17:0] in_free_place;
  logic [QW-1:0] item_q, in_q, list_q, ls_q;
  berth_card_pkg::list_in_t list, ls;
  berth_card_pkg::peer_t row;
  assign row.on        = command_q == berth_row_pkg::RECV_CMD_START || command_q == berth_row_pkg::RECV_CMD_ON;
  assign row.selective = c_mode.selective;
  assign row.remote    = c_mode.remote;
  assign row.reads     = c_mode.reads != '0;
  assign row.log2_mtu  = c_mode.log2_mtu;
  assign row.asid      = c_space.asid;
  assign row.domain    = c_space.domain;
  assign row.mac       = {stage[S_MAC+1][15:0], stage[S_MAC]};
  assign row.ip        = stage[S_IP];
  assign row.epoch     = stage[S_EPOCH];
  assign row.qkey      = stage[S_QKEY];
  berth_fp_frame_in #(
      .QPS(QPS)
  ) frame_in (
      .clk,
      .rst,
      .own_mac(own_mac),
      .own_ip(own_ip),
      .row_we(c_state_q == C_ROW),
      .row_q(c_q),
      .row,
      .row_start(c_state_q == C_ROW && command_q == berth_row_pkg::RECV_CMD_START),
      .now,
      .ask_q(c_q),
      .st_heard,
      .parse_passed,
      .rf_valid,
      .rf_ready,
      .rf,
      .rf_hdr,
      .in_valid,
      .in_ready,
      .in_q,
      .in,
      .in_operands,
      .ack_valid,
      .ack_ready,
      .ack_q,
      .ack,
      .in_free_valid,
      .in_free_place,
      .ans_valid,
      .ans_ready,
      .ans_q,
      .ans,
      .list_valid,
      .list_ready,
      .list_q,
      .list,
      .cf_valid,
      .cf_ready,
      .cf,
      .cf_hdr
  );

  // The operands of atomics, by the frames that they came in, until these are given back. Slots lie an odd number of 512 bytes
  // apart, so that these bits of a place are others for each.
  localparam int unsigned SLOTS = 16;
  initial
    if (berth_regs_pkg::RX_SLOTS > SLOTS || berth_regs_pkg::SLOT_BYTES[9:0] != 10'h200 || berth_regs_pkg::PKT_RX_BASE[8:0] != '0)
      $fatal(1, "berth_fp_rx: receive slots do not lie as they should");
  logic [127:0] in_operands, read_operands;
  logic [127:0] operands[0:SLOTS-1];
  always_ff @(posedge clk) if (in_valid) operands[in.frame[12:9]] <= in_operands;
  assign read_operands = operands[ar_free_place[12:9]];

  // ---- keys, and memory of peers' RDMA -------------------------------------------------------
  logic ask_valid, ask_ready, claim_valid, claim_ready, key_told_valid, over_valid, over_ready;
  logic read_ask_valid, read_ask_ready;
  logic [2:0] told_to_q;    // respond, target, arrival
  berth_card_pkg::access_t ask, claim, read_ask;
  berth_card_pkg::admission_t key_told;
  berth_card_pkg::key_use_t over;
  logic grant_xr_ready, target_xr_ready, respond_xr_ready, grant_stray, target_stray, respond_stray;
  logic [2:0] strays_q;
  wire qp_starts = c_state_q == C_IDLE && fc_req && fc.we && fc.word == berth_row_pkg::RECV_COMMAND
                && command.opcode == berth_row_pkg::RECV_CMD_START;
  // Whose answer of the translation it is.
  localparam logic [1:0] TO_GRANT = 2'd0, TO_TARGET = 2'd1, TO_RESPOND = 2'd2;
  logic [1:0] xr_to;
  assign xr_to = xr.tag[15:13] == 3'b111 ? TO_RESPOND : xr.tag[15] ? TO_TARGET : TO_GRANT;
  logic keys_ready, tg_busy, hold_valid, hold_ready, came_valid;
  logic [QW-1:0] came_q;
  logic [23:0] came_psn;
  logic [7:0] came_status;
  berth_card_pkg::range_ask_t hold;
  assign claim_ready = keys_ready;
  assign ask_ready   = keys_ready && !claim_valid;
  assign read_ask_ready = ask_ready && !ask_valid;
  always_ff @(posedge clk) if (keys_ready) told_to_q <= {read_ask_ready, ask_ready && ask_valid, claim_valid};
  berth_fp_keys #(
      .KEYS(KEYS),
      .QPS(QPS)
  ) keys (
      .clk,
      .rst,
      .start(qp_starts),
      .start_q(fc.qpn[QW-1:0]),
      .start_denies(c_mode.denies),
      .cmd_valid(c_state_q == C_KEY),
      .cmd_ready(key_ready),
      .cmd_store(command_q == berth_row_pkg::RECV_CMD_KEY_STORE),
      .cmd_place(argument_q),
      .cmd(key_staged),
      .loaded(key_loaded),
      .over_valid,
      .over_ready,
      .over,
      .ask_valid(claim_valid || ask_valid || read_ask_valid),
      .ask_ready(keys_ready),
      .ask(claim_valid ? claim : ask_valid ? ask : read_ask),
      .told_valid(key_told_valid),
      .told(key_told)
  );
  berth_fp_target #(
      .QPS(QPS)
  ) target (
      .clk,
      .rst,
      .busy(tg_busy),
      .in_valid,
      .in_ready,
      .in_q,
      .in,
      .item_valid,
      .item_ready,
      .item_q,
      .item,
      .opens,
      .opens_q,
      .open_valid,
      .open,
      .ask_valid,
      .ask_ready,
      .ask,
      .told_valid(key_told_valid && told_to_q[1]),
      .told(key_told),
      .hold_valid,
      .hold_ready,
      .hold,
      .xr_valid(xr_valid && xr_to == TO_TARGET),
      .xr_ready(target_xr_ready),
      .xr,
      .rfree_valid,
      .rfree_place,
      .keep_valid(read_valid && read.held),
      .ar_free_place,
      .came_valid,
      .came_q,
      .came_psn,
      .came_status,
      .ev_stray(target_stray),
      .start(qp_starts),
      .start_q(fc.qpn[QW-1:0]),
      .start_foreign(c_mode.foreign),
      .fence(target_fence),
      .fenced(target_fenced)
  );

  // ---- lists that come: the sizes are read from the frame's copy ------------------------------
  // A record's words lie two bytes off the words of the copy, so each is put together from two of them.
  localparam logic [17:0] AT_SIZES = 18'd72, AT_SIZES_WRITTEN = 18'd80;
  // One size per clock; a list of which no size is wanted takes four clocks.
  typedef enum logic [1:0] {L_IDLE, L_BEGIN, L_FIRST, L_SIZE} list_t;
  list_t l_state_q;
  logic [6:0] l_left_q;
  logic [15:0] l_low_q;
  logic [17:0] l_at_q;
  berth_lutfifo #(
      .WIDTH(QW + $bits(ls)),
      .DEPTH(16)
  ) came (
      .clk,
      .rst,
      .wr_valid(list_valid),
      .wr_ready(list_ready),
      .wr_data({list_q, list}),
      .rd_valid(ls_valid),
      .rd_ready(ls_pop),
      .rd_data({ls_q, ls})
  );
  assign hd_re     = l_state_q == L_FIRST || (lst_valid && lst_ready);
  assign hd_addr   = l_at_q;
  assign lst_q     = ls_q;
  assign lst.first = ls.first;
  assign lst.n     = ls.n;
  assign lst.first_beat = l_state_q == L_BEGIN;
  assign lst_valid = l_state_q == L_BEGIN || l_state_q == L_SIZE;
  assign ls_pop    = l_state_q == L_SIZE && lst_ready && (l_left_q == 7'd1 || lst_over);
  logic [31:0] word_q;
  logic fresh_q;
  logic [31:0] word;
  assign word     = fresh_q ? hd_data : word_q;
  assign lst.size = {word[15:0], l_low_q};
  always_ff @(posedge clk) begin
    fresh_q <= hd_re;
    if (fresh_q) word_q <= hd_data;
    if (hd_re) l_at_q <= l_at_q + 18'd4;
    case (l_state_q)
      L_IDLE: begin
        l_at_q   <= ls.frame + (ls.window ? AT_SIZES_WRITTEN : AT_SIZES);
        l_left_q <= ls.n;
        if (ls_valid) l_state_q <= L_BEGIN;
      end
      L_BEGIN: if (lst_ready) l_state_q <= L_FIRST;
      L_FIRST: begin
        l_low_q   <= word[31:16];
        l_state_q <= L_SIZE;
      end
      default:
      if (lst_ready) begin
        l_low_q  <= word[31:16];
        l_left_q <= l_left_q - 7'd1;
        if (ls_pop) l_state_q <= L_IDLE;
      end
    endcase
    if (rst) l_state_q <= L_IDLE;
  end

  // ---- packets ----------------------------------------------------------------------------
  logic ann_we, ring_we, placed_valid, placed_ready, placed_err, place_valid, place_ready, ar_free_valid;
  logic landed_valid, landed_ready, done_valid, done_ready, broken_valid;
  berth_card_pkg::landed_t landed;
  logic [QW-1:0] ann_q, ring_q, placed_q, landed_q, broken_q, place_q, done_q;
  logic [31:0] ann_number;
  logic [6:0] ring_at;
  berth_card_pkg::ring_t ring;
  logic [23:0] placed_psn;
  berth_card_pkg::placement_t place;
  logic [17:0] ar_free_place, pl_free_place;
  berth_card_pkg::received_t done;
  logic quiet_valid, quiet_ready;
  logic [QW-1:0] quiet_q;
  logic [3:0] broken_fault;
  logic broken_named, invalidate_valid;
  logic [QW-1:0] invalidate_q;
  logic [31:0] invalidate_key, ending;
  berth_fp_mem #(
      .WIDTH(32),
      .DEPTH(QPS)
  ) m_endings (
      .clk,
      .we(invalidate_valid),
      .waddr(invalidate_q),
      .wdata(invalidate_key),
      .re(1'b1),
      .raddr(c_q),
      .rdata(ending)
  );
  logic pl_fenced;
  logic ar_busy, pl_busy, dn_busy, rq_busy, gr_busy, bd_busy, pl_free_valid;
  berth_card_pkg::arrival_step_t arrival_cmd;
  assign arrival_cmd.op        = c_op_q;
  assign arrival_cmd.psn       = stage[S_PSN][23:0];
  assign arrival_cmd.selective = c_mode.selective;
  assign arrival_cmd.writes_in_order = c_mode.writes_in_order;
  assign arrival_cmd.log2_mtu  = c_mode.log2_mtu;
  assign arrival_cmd.ack_every = c_mode.ack_every;
  assign arrival_cmd.foreign   = c_mode.foreign;
  assign arrival_cmd.rnr       = c_mode.rnr_timer;
  assign arrival_cmd.reads     = c_mode.reads;
  assign arrival_cmd.key       = ending;
  logic [$clog2(berth_regs_pkg::MAX_READS):0] st_reads, st_agains;
  logic read_valid, read_held_ready, way_we, way_due, begin_valid, end_valid, answered_valid, answered_ready;
  logic [QW-1:0] read_q, way_q, answered_q;
  berth_card_pkg::read_t read;
  berth_card_pkg::way_t way;
  berth_card_pkg::answered_t answered;
  berth_fp_arrival #(
      .QPS(QPS),
      .WB(WB)
  ) arrival (
      .clk,
      .rst,
      .busy(ar_busy),
      .cmd_valid(todo_q[0]),
      .cmd_ready(c_ready[0]),
      .cmd_q(c_q),
      .cmd(arrival_cmd),
      .st_writing,
      .st_out,
      .st_waits,
      .ann_we,
      .ann_q,
      .ann_number,
      .ring_we,
      .ring_q,
      .ring_at,
      .ring,
      .item_valid,
      .item_ready,
      .item_q,
      .item,
      .placed_valid,
      .placed_ready,
      .placed_q,
      .placed_psn,
      .placed_err,
      .read_valid,
      .read_q,
      .read,
      .read_held_ready,
      .way_we,
      .way_due,
      .way_q,
      .way,
      .st_reads,
      .st_agains,
      .answered_valid,
      .answered_ready,
      .answered_q,
      .answered,
      .begin_valid,
      .end_valid,
      .claim_valid,
      .claim_ready,
      .claim,
      .claimed_valid(key_told_valid && told_to_q[0]),
      .claimed_refusal(key_told.refusal),
      .claimed_one_shot(key_told.one_shot),
      .over_valid,
      .over_ready,
      .over,
      .opens,
      .opens_q,
      .open_valid,
      .open,
      .place_valid,
      .place_ready,
      .place_q,
      .place,
      .ar_free_valid,
      .ar_free_place,
      .landed_valid,
      .landed_ready,
      .landed_q,
      .landed,
      .done_valid,
      .done_ready,
      .done_q,
      .done,
      .afr_valid,
      .afr_ready,
      .afr_q,
      .afr,
      .broken_valid,
      .broken_ready(1'b1),
      .broken_q,
      .broken_fault,
      .broken_named,
      .broken_access,
      .invalidate_valid,
      .invalidate_q,
      .invalidate_key,
      .ev_taken(ev.taken),
      .ev_duplicate(ev.duplicate),
      .ev_out_of_order(ev.out_of_order),
      .ev_dropped(ev.dropped),
      .trace_valid,
      .trace_word
  );

  logic rs_busy, rs_hold_valid, rs_hold_ready, rs_fenced;
  berth_card_pkg::range_ask_t rs_hold;
  berth_fp_respond #(
      .QPS(QPS)
  ) respond (
      .clk,
      .rst,
      .busy(rs_busy),
      .read_valid,
      .read_q,
      .read,
      .read_operands,
      .read_held_ready,
      .way_we,
      .way_due,
      .way_q,
      .way,
      .st_reads,
      .st_agains,
      .begin_valid,
      .end_valid,
      .answered_valid,
      .answered_ready,
      .answered_q,
      .answered,
      .ask_valid(read_ask_valid),
      .ask_ready(read_ask_ready),
      .ask(read_ask),
      .told_valid(key_told_valid && told_to_q[2]),
      .told(key_told),
      .hold_valid(rs_hold_valid),
      .hold_ready(rs_hold_ready),
      .hold(rs_hold),
      .xr_valid(xr_valid && xr_to == TO_RESPOND),
      .xr_ready(respond_xr_ready),
      .xr,
      .ev_stray(respond_stray),
      .change_valid,
      .change_ready,
      .change,
      .changed_valid,
      .changed,
      .rsp_valid,
      .rsp_ready,
      .rsp_q,
      .rsp,
      .ev_again(ev.atomic_again),
      .sent_valid(rspd_valid),
      .sent(rspd),
      .asked_q(c_q),
      .st_busy(st_answering),
      .fence(fence_go),
      .fenced(rs_fenced)
  );
  assign ev.answer = rsp_valid && rsp_ready;
  assign ev.atomic = changed_valid && !changed.failed;

  assign trace_landed   = landed_valid && landed_ready && landed.begins;
  assign trace_landed_q = landed_q;

  logic sge_we, pend_we, parsed_we, freed_we;
  logic [QW+7:0] sge_at;
  berth_card_pkg::range_t sge;
  logic place_re, grant_re, grant_ok, done_re, done_ok;
  logic [QW+7:0] place_at, grant_at, done_at;
  berth_card_pkg::range_t place_sge, grant_sge, done_sge;
  berth_fp_sges #(
      .QPS(QPS)
  ) sges (
      .clk,
      .rst,
      .sge_we,
      .sge_at,
      .sge,
      .place_re,
      .place_at,
      .place_sge,
      .grant_re,
      .grant_ok,
      .grant_at,
      .grant_sge,
      .done_re,
      .done_ok,
      .done_at,
      .done_sge
  );

  // Payloads of requests and of answers take turns; the parts of an answer stay together.
  logic pick_put, put_mid_q, put_turn_q, scatter_ready;
  assign pick_put    = put_mid_q || (put_valid && put_turn_q);
  assign place_ready = scatter_ready && !pick_put;
  assign put_ready   = scatter_ready && pick_put;
  always_ff @(posedge clk) begin
    if (put_valid && put_ready) put_mid_q <= put.more;
    if (scatter_ready) put_turn_q <= !pick_put;
    if (rst) put_mid_q <= 1'b0;
  end
  assign put_over_err = placed_err;
  berth_fp_scatter #(
      .QPS(QPS)
  ) scatter (
      .clk,
      .rst,
      .busy(pl_busy),
      .place_valid(pick_put ? put_valid : place_valid),
      .place_ready(scatter_ready),
      .place_q(pick_put ? put_q : place_q),
      .place(pick_put ? put : place),
      .place_re,
      .place_at,
      .place_sge,
      .store_valid,
      .store_ready,
      .store,
      .stored_valid,
      .stored,
      .placed_valid,
      .placed_ready,
      .placed_q,
      .placed_psn,
      .placed_err,
      .put_over_valid,
      .pl_free_valid,
      .pl_free_place,
      .fence(fence_go),
      .fenced(pl_fenced)
  );

  // Both are to have passed it.
  logic [1:0] passed_q;
  assign fenced = (passed_q | {rs_fenced, pl_fenced}) == 2'b11;
  always_ff @(posedge clk) passed_q <= rst || fenced ? '0 : passed_q | {rs_fenced, pl_fenced};

  logic aside_valid, aside_ready, rel_valid, rel_ready, lost_valid, lost_index;
  logic [15:0] lost_pi;
  berth_card_pkg::aside_t aside;
  berth_card_pkg::range_ask_t rel, acq;
  logic [QW-1:0] freed_q, parsed_q, lost_q, post_q, aside_q;
  logic [15:0] parsed;
  berth_card_pkg::freed_t freed;
  logic given_we;
  berth_card_pkg::given_t given;
  logic acq_valid, acq_ready;
  berth_card_pkg::recv_complete_step_t complete_cmd;
  assign complete_cmd.ask  = c_op_q != berth_row_pkg::STEP_START;
  assign complete_cmd.cqn  = c_space.cqn;
  assign complete_cmd.asid = c_space.asid;
  berth_fp_recv_complete #(
      .QPS(QPS)
  ) recv_complete (
      .clk,
      .rst,
      .busy(dn_busy),
      .cmd_valid(todo_q[1]),
      .cmd_ready(c_ready[1]),
      .cmd_q(c_q),
      .cmd(complete_cmd),
      .st_completed,
      .st_shown,
      .works(dn_works),
      .ring_we,
      .ring_q,
      .ring_at,
      .ring,
      .done_re,
      .done_ok,
      .done_at,
      .done_sge,
      .done_valid,
      .done_ready,
      .done_q,
      .done,
      .quiet_valid,
      .quiet_ready,
      .quiet_q,
      .aside_valid,
      .aside_ready,
      .aside_q,
      .aside,
      .fcq_valid,
      .fcq_ready,
      .fcq,
      .rel_valid,
      .rel_ready,
      .rel,
      .freed_we,
      .freed_q,
      .freed,
      .given_we,
      .given
  );

  // ---- receives -----------------------------------------------------------------------------
  logic [QW+6:0] pend_at;
  berth_card_pkg::pending_t pend;
  logic post_valid, post_ready;
  berth_card_pkg::post_t post;
  // The start's own doorbell comes first.
  logic rdb_valid, rdb_ready;
  logic [QW-1:0] rdb_q;
  logic [15:0] rdb_pi;
  assign rdb_valid = bell_valid || fdb_valid;
  assign rdb_q     = bell_valid ? c_q : fdb.qpn[QW-1:0];
  assign rdb_pi    = bell_valid ? stage[S_PI][15:0] : fdb.pi;
  logic bell_last_q;     // which of the two is being taken
  assign bell_ready = rdb_ready && bell_last_q;
  assign fdb_ready  = rdb_ready && !bell_last_q;
  always_ff @(posedge clk) if (!rdb_ready) bell_last_q <= bell_valid;
  berth_card_pkg::recv_wqe_step_t wqe_cmd;
  assign wqe_cmd.ask     = c_op_q != berth_row_pkg::STEP_START;
  assign wqe_cmd.base    = {stage[S_BASE+1], stage[S_BASE]};
  assign wqe_cmd.log2    = c_queue.log2_depth;
  assign wqe_cmd.ci      = c_queue.first;
  assign wqe_cmd.message = c_mode.message;
  berth_fp_recv_wqe #(
      .QPS(QPS),
      .HOST_W(HOST_W)
  ) recv_wqe (
      .clk,
      .rst,
      .busy(rq_busy),
      .cmd_valid(todo_q[2]),
      .cmd_ready(c_ready[2]),
      .cmd_q(c_q),
      .cmd(wqe_cmd),
      .st_fetching,
      .st_open,
      .rdb_valid,
      .rdb_ready,
      .rdb_q,
      .rdb_pi,
      .qr_valid,
      .qr_ready,
      .qr,
      .qc_valid,
      .qc_data,
      .qc,
      .freed_we,
      .freed_q,
      .freed,
      .sge_we,
      .sge_at,
      .sge,
      .pend_we,
      .pend_at,
      .pend,
      .parsed_we,
      .parsed_q,
      .parsed,
      .ev_bad_index(ev.bad_index),
      .ev_bad_wqe(ev.bad_wqe),
      .lost_valid,
      .lost_index,
      .lost_q,
      .lost_pi
  );

  logic told_valid, told_room, proof_valid;
  logic [QW-1:0] told_q, proof_q;
  berth_card_pkg::told_t told;
  berth_card_pkg::grant_step_t grant_cmd;
  assign grant_cmd.op     = walk_valid ? walk.op : c_op_q;
  assign grant_cmd.asid   = c_space.asid;
  assign grant_cmd.limit  = c_pinned.bound;
  assign grant_cmd.most   = c_pinned.most;
  assign grant_cmd.status = status_q;
  assign grant_cmd.first  = command_q == berth_row_pkg::RECV_CMD_VOID ? stage[S_FIRST][7:0] : st_announced[7:0];
  assign grant_cmd.recv   = walk_valid ? walk.recv : argument_q;
  assign grant_cmd.sge    = walk.sge;
  berth_fp_grant #(
      .QPS(QPS),
      .DATA_W(DATA_W)
  ) grant (
      .clk,
      .rst,
      .busy(gr_busy),
      .now,
      .cmd_valid(todo_q[3] || walk_valid),
      .cmd_ready(c_ready[3]),
      .cmd_q(c_q),
      .cmd(grant_cmd),
      .gr_st,
      .quiet_valid,
      .quiet_ready,
      .quiet_q,
      .grant_re,
      .grant_ok,
      .grant_at,
      .grant_sge,
      .pend_we,
      .pend_at,
      .pend,
      .parsed_we,
      .parsed_q,
      .parsed,
      .freed_we,
      .freed_q,
      .freed,
      .given_we,
      .given,
      .told_valid,
      .told_room,
      .told_q,
      .told,
      .proof_valid,
      .proof_q,
      .acq_valid,
      .acq_ready,
      .acq,
      .xr_valid(xr_valid && xr_to == TO_GRANT),
      .xr_ready(grant_xr_ready),
      .xr,
      .ring_we,
      .ring_q,
      .ring_at,
      .ring,
      .post_valid,
      .post_ready,
      .post_q,
      .post,
      .aside_valid,
      .aside_ready,
      .aside_q,
      .aside,
      .ev_hit(ev.hit),
      .ev_miss(ev.miss),
      .ev_stray(grant_stray)
  );

  logic use_valid;
  logic [QW-1:0] use_q;
  berth_card_pkg::use_t use_told;
  berth_card_pkg::builder_step_t builder_cmd;
  assign builder_cmd.op       = c_op_q;
  assign builder_cmd.first    = command_q == berth_row_pkg::RECV_CMD_CAP ? stage[S_RANGE] : stage[S_FIRST];
  assign builder_cmd.epoch    = command_q == berth_row_pkg::RECV_CMD_CAP ? stage[S_RANGE+1] : stage[S_PEER_EPOCH];
  assign builder_cmd.max_list = c_lists.longest;
  assign builder_cmd.trigger  = c_lists.trigger;
  assign builder_cmd.index    = c_lists.index;
  assign builder_cmd.timed    = c_lists.timed;
  assign builder_cmd.told     = c_lists.told;
  assign builder_cmd.stream   = !c_mode.message;
  assign builder_cmd.few      = c_lists.few;
  assign builder_cmd.again    = stage[S_AGAIN][15:0];
  assign builder_cmd.foreign  = c_mode.foreign;
  berth_fp_builder #(
      .QPS(QPS)
  ) builder (
      .clk,
      .rst,
      .busy(bd_busy),
      .now,
      .cmd_valid(todo_q[4]),
      .cmd_ready(c_ready[4]),
      .cmd_q(c_q),
      .cmd(builder_cmd),
      .st_announced,
      .st_landed,
      .post_valid,
      .post_ready,
      .post_q,
      .post,
      .landed_valid,
      .landed_ready,
      .landed_q,
      .landed,
      .given_we,
      .given_q(freed_q),
      .given,
      .ann_we,
      .ann_q,
      .ann_number,
      .lfr_valid,
      .lfr_ready,
      .lfr_q,
      .lfr,
      .told_room,
      .told_valid,
      .told_q,
      .told,
      .proof_valid,
      .proof_q,
      .use_valid,
      .use_q,
      .use_ask_q(c_q),
      .use_told,
      .ev_posted(ev.posted),
      .ev_list(ev.lists),
      .ev_list_len(ev.list_len),
      .ev_repeat(ev.list_again),
      .hurry,
      .swept,
      .swept_on,
      .swept_at
  );

  // ---- acquisitions and releases take turns: those of receives, and with these those of RDMA -----------
  logic last_rel_q, pick_rel, last_hold_q, pick_hold, last_read_q, pick_read;
  assign xr_ready   = xr_to == TO_RESPOND ? respond_xr_ready : xr_to == TO_TARGET ? target_xr_ready : grant_xr_ready;
  assign pick_hold  = (hold_valid || rs_hold_valid) && (!(rel_valid || acq_valid) || !last_hold_q);
  assign pick_read  = rs_hold_valid && (!hold_valid || !last_read_q);
  assign pick_rel   = rel_valid && (!acq_valid || !last_rel_q);
  assign hold_ready = (!xa_valid || xa_ready) && pick_hold && !pick_read;
  assign rs_hold_ready = (!xa_valid || xa_ready) && pick_hold && pick_read;
  assign rel_ready  = (!xa_valid || xa_ready) && !pick_hold && pick_rel;
  assign acq_ready  = (!xa_valid || xa_ready) && !pick_hold && !pick_rel;
  // Those at once are counted one after the other.
  assign ev.stray = strays_q != '0;
  always_ff @(posedge clk)
    strays_q <= rst ? '0 : strays_q + 3'(grant_stray) + 3'(target_stray) + 3'(respond_stray) - 3'(ev.stray);
  always_ff @(posedge clk) begin
    if (!xa_valid || xa_ready) begin
      xa_valid    <= rel_valid || acq_valid || hold_valid || rs_hold_valid;
      xa          <= pick_hold ? (pick_read ? rs_hold : hold) : pick_rel ? rel : acq;
      last_hold_q <= pick_hold;
      if (pick_hold) last_read_q <= pick_read;
      if (!pick_hold) last_rel_q <= pick_rel;
    end
    if (rst) begin
      xa_valid    <= 1'b0;
      last_rel_q  <= 1'b0;
      last_hold_q <= 1'b0;
      last_read_q <= 1'b0;
    end
  end

  // ---- frames that are free again ----------------------------------------------------------------
  // There are at most 16 frames, so that none of the five queues can be full.
  logic [4:0] free_valid, free_pop, free_room, free_set;
  logic [5*18-1:0] free_place, free_in;
  assign free_set = {ans_free_valid, ls_pop, in_free_valid, ar_free_valid, pl_free_valid};
  assign free_in  = {ans_free_place, ls.frame, in_free_place, ar_free_place, pl_free_place};
  for (genvar i = 0; i < 5; i++) begin : frees
    berth_lutfifo #(
        .WIDTH(18),
        .DEPTH(16)
    ) queue (
        .clk,
        .rst,
        .wr_valid(free_set[i]),
        .wr_ready(free_room[i]),
        .wr_data(free_in[18*i+:18]),
        .rd_valid(free_valid[i]),
        .rd_ready(free_pop[i]),
        .rd_data(free_place[18*i+:18])
    );
  end
  always_comb begin
    free_pop    = '0;
    rfree_place = '0;
    for (int unsigned i = 5; i > 0; i--)
      if (free_valid[i-1]) begin
        free_pop    = 5'(1 << (i - 1));
        rfree_place = free_place[18*(i-1)+:18];
      end
  end
  assign rfree_valid = free_valid != '0;

  // ---- what broke a connection ----------------------------------------------------------------------
  berth_fp_mem #(
      .WIDTH($bits(refused)),
      .DEPTH(QPS)
  ) m_refused (
      .clk,
      .we(broken_valid && broken_named),
      .waddr(broken_q),
      .wdata(broken_access),
      .re(1'b1),
      .raddr(c_q),
      .rdata(refused)
  );
  always_ff @(posedge clk) begin
    if (qp_starts) refused_q[fc.qpn[QW-1:0]] <= 1'b0;
    if (broken_valid && broken_named) refused_q[broken_q] <= 1'b1;
    if (rst) refused_q <= '0;
  end

  // ---- exceptions -----------------------------------------------------------------------------------
  // A broken connection; a receive queue that cannot be read, or a doorbell that cannot be; memory that has come; a key to end; how
  // credits are used.
  berth_row_pkg::event_broken_t broken_arg;
  berth_row_pkg::event_target_t came_arg;
  berth_row_pkg::event_receive_index_t lost_arg;
  logic lost_told;    // of the receive queue: its index, else a read
  always_comb begin
    broken_arg.fault = 32'(broken_fault);
    came_arg.status  = came_status;
    came_arg.psn     = came_psn;
    lost_arg         = '0;
    {lost_told, lost_arg.index} = fe_what[16:0];
  end
  logic fe_busy;
  logic [4:0] fe_source;
  logic [QW-1:0] fe_q;
  logic [31:0] fe_what;
  berth_fp_events #(
      .QPS(QPS),
      .SOURCES(5),
      .W(32)
  ) events (
      .clk,
      .rst,
      .put({use_valid, invalidate_valid, came_valid, lost_valid, broken_valid}),
      .put_q({use_q, invalidate_q, came_q, lost_q, broken_q}),
      .put_word({32'd0, 32'd0, came_arg, 15'd0, lost_index, lost_pi, broken_arg}),
      .clear(qp_starts),
      .clear_q(fc.qpn[QW-1:0]),
      .valid(fe_valid),
      .ready(fe_ready),
      .source(fe_source),
      .q(fe_q),
      .word(fe_what),
      .busy(fe_busy)
  );
  assign fe.code     = fe_source[0] ? berth_row_pkg::EVENT_BROKEN : fe_source[4] ? berth_row_pkg::EVENT_USE : fe_source[3] ? berth_row_pkg::EVENT_INVALIDATE : fe_source[2] ? berth_row_pkg::EVENT_TARGET : fe_source[1] && lost_told ? berth_row_pkg::EVENT_RECEIVE_INDEX : berth_row_pkg::EVENT_RECEIVE_QUEUE;
  assign fe.qpn      = 16'(fe_q);
  assign fe.argument = {8'd0, fe_source[1] ? lost_arg : fe_what};

  assign busy = rf_valid || ls_valid || tg_busy || ar_busy || rs_busy || pl_busy || dn_busy || rq_busy || gr_busy || bd_busy
             || free_valid != '0 || fe_busy || xa_valid || c_state_q != C_IDLE;

  always_ff @(posedge clk) if (!rst) assert ((free_set & ~free_room) == '0 );

  wire unused = &{1'b0, fc, stage[S_MAC+1], stage[S_PSN], stage[S_AGAIN], stage[S_PI], c_mode, c_space, c_queue, c_lists, fdb};
endmodule
