// SPDX-License-Identifier: Apache-2.0 OR MIT
// Completion queues: their table, the writer of CQEs, overrun and notification events.
//
// Four users: firmware, the two halves of the fast path, and raw queues. A completion gets its place in two cycles and goes out
// through a FIFO. Notifications wait until the completions that they announce have gone out.
module berth_cq #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64
) (
    input  logic                         clk,
    input  logic                         rst,
    // Doorbells: never wait for the host, because the host may wait for them.
    input  logic                         cqdb_valid,
    output logic                         cqdb_ready,
    input  berth_card_pkg::cq_doorbell_t cqdb,
    // Core: configure a CQ.
    input  logic                         cq_setup_valid,
    output logic                         cq_setup_ready,
    input  berth_card_pkg::cq_setup_t    cq_setup,
    // Core: a completion; its words are stable from valid to ready.
    input  logic                         cqe_valid,
    output logic                         cqe_ready,
    input  logic [15:0]                  cqe_cqn,
    input  logic [8*32-1:0]              cqe_words,
    // Completions of the transmit half, the receive half, raw queues.
    input  logic [2:0]                   fcq_valid,
    output logic [2:0]                   fcq_ready,
    input  berth_card_pkg::all_completions_t fcq,
    // To the posted write port.
    output logic                         wr_valid,
    input  logic                         wr_ready,
    output logic [63:0]                  wr_addr,
    output logic [DATA_W-1:0]            wr_data,
    output logic                         wr_last,
    // To the event writer: words 0 to 2.
    output logic                         cev_valid,
    input  logic                         cev_ready,
    output logic [3*32-1:0]              cev_words,
    // Pulses for the counters.
    output logic                         inc_taken,
    output logic                         inc_denied,
    output logic                         inc_written,
    output logic                         inc_overrun,
    output logic                         busy
);
  localparam int unsigned CQS = berth_regs_pkg::NUM_CQS;
  localparam int unsigned CW = $clog2(CQS);

  typedef struct packed {
    logic [7:0]  uar;
    logic [3:0]  log2;
    logic [58:0] base;  // bus address >> 5
    logic [15:0] pi;
    logic [15:0] ci;
  } row_t;
  typedef enum logic [1:0] {IDLE, BELL, CONFIG, PLACE} state_t;
  localparam int unsigned AHEAD = 8;  // completions that have their place and are not out

  row_t row_q, row_new;
  logic [$bits(row_q)-1:0] rows[CQS];  // a plain vector: Yosys makes no RAM of a struct
  state_t state_q;
  // late_q: to be notified when the completions that have a place by then are out; due_q: those that wait for mark_q.
  logic [CQS-1:0] valid_q, armed_q, notify_q, late_q, due_q;
  logic [CW-1:0] at_q, at, first_notify;
  logic we, msg_ready, ovr_q, ev_q;
  logic [CW-1:0] ovr_cqn_q;
  logic [31:0] ovr_qpn_q;
  logic [3*32-1:0] ev_words_q;
  logic [15:0] put_q, out_q, mark_q;  // completions placed, out; as `put_q` was for due_q

  // ---- Choice of a user: in turn -------------------------------------------------
  logic [1:0] who_q, pick, k;
  logic any;
  logic [3:0] valid4;
  berth_wqe_pkg::cqe_t words;
  assign valid4 = {fcq_valid, cqe_valid};
  always_comb begin
    any  = 1'b0;
    pick = '0;
    k    = who_q;
    for (int i = 0; i < 4; i++) begin
      k = k + 2'd1;
      if (!any && valid4[k]) begin
        any  = 1'b1;
        pick = k;
      end
    end
    unique case (who_q)
      2'd1: words = {32'd0, fcq.tx.words};
      2'd2: words = {32'd0, fcq.rx.words};
      2'd3: words = {32'd0, fcq.raw.words};
      default: words = cqe_words;
    endcase
  end
  wire [15:0] pick_cqn = pick == 2'd0 ? cqe_cqn : {8'd0, pick == 2'd1 ? fcq.tx.cqn : pick == 2'd2 ? fcq.rx.cqn : fcq.raw.cqn};

  logic known_q;
  wire db_known = 32'(cqdb.cqn) < CQS;
  wire cfg_known = 32'(cq_setup.cqn) < CQS;
  wire mine = valid_q[at_q] && db_known && row_q.uar == {2'd0, cqdb.uar};
  wire [15:0] mask = (16'd1 << row_q.log2) - 16'd1;
  wire [15:0] used = row_q.pi - row_q.ci;
  // More in use than the ring holds: the process wrote a wild index and harms only itself.
  wire full = used > mask;
  wire live = valid_q[at_q] && known_q;
  logic ahead_room;
  wire placed = state_q == PLACE && live && !full;
  // Doorbells may come without end, so after each one another operation has its turn.
  logic owed_q;
  wire can_place = any && ahead_room && !ovr_q;
  wire bell = cqdb_valid && !(owed_q && (can_place || cq_setup_valid));

  always_comb begin
    at = pick_cqn[CW-1:0];
    if (bell) at = cqdb.cqn[CW-1:0];
    else if (!can_place) at = cq_setup.cqn[CW-1:0];
    row_new = row_q;
    we = 1'b0;
    unique case (state_q)
      BELL: begin
        we = mine;
        row_new.ci = cqdb.ci;
      end
      CONFIG: begin
        we = cfg_known;
        row_new = {cq_setup.uar, cq_setup.log2, cq_setup.base[63:5], 32'd0};
      end
      PLACE: begin
        we = placed;
        row_new.pi = row_q.pi + 16'd1;
      end
      default: ;
    endcase
    first_notify = '0;
    if (notify_q != 0) for (int i = CQS; i > 0; i--) if (notify_q[i-1]) first_notify = CW'(i - 1);
  end

  assign cqdb_ready    = state_q == BELL;
  assign cq_setup_ready   = state_q == CONFIG;
  assign cqe_ready   = state_q == PLACE && who_q == 2'd0;
  assign fcq_ready    = state_q == PLACE ? {who_q == 2'd3, who_q == 2'd2, who_q == 2'd1} : 3'd0;
  assign inc_taken   = cqdb_ready && mine;
  assign inc_denied  = cqdb_ready && !mine;
  assign inc_written = msg_ready;
  assign inc_overrun = state_q == PLACE && !placed;
  assign cev_valid    = ev_q;
  assign cev_words    = ev_words_q;
  assign busy        = state_q != IDLE || any || put_q != out_q || ovr_q || ev_q || notify_q != 0 || late_q != 0
      || due_q != 0;

  always_ff @(posedge clk) begin
    if (we) rows[at_q] <= row_new;
    if (state_q == IDLE) row_q <= rows[at];
  end

  berth_regs_pkg::cq_overrun_t overrun;
  berth_regs_pkg::cq_notify_t notify;
  always_comb begin
    overrun      = '0;
    overrun.code = berth_regs_pkg::EV_CQ_OVERRUN[7:0];
    overrun.cqn  = 32'(ovr_cqn_q);
    overrun.qpn  = ovr_qpn_q;
    notify       = '0;
    notify.code  = berth_regs_pkg::EV_CQ_NOTIFY[7:0];
    notify.cqn   = 32'(first_notify);
  end

  logic out_valid, out_phase;
  logic [58:0] out_addr;
  logic [8*32-2:0] out_words;
  berth_lutfifo #(
      .WIDTH(59 + 8 * 32),
      .DEPTH(AHEAD)
  ) ahead (
      .clk,
      .rst,
      .wr_valid(placed),
      .wr_ready(ahead_room),
      .wr_data({row_q.base + 59'(row_q.pi & mask), !row_q.pi[row_q.log2], words[8*32-2:0]}),
      .rd_valid(out_valid),
      .rd_ready(msg_ready),
      .rd_data({out_addr, out_phase, out_words})
  );
  assign wr_addr = {out_addr, 5'd0};
  berth_wr_msg #(
      .DATA_W(DATA_W),
      .MSG_BYTES(32)
  ) msg (
      .clk,
      .rst,
      .msg_valid(out_valid),
      .msg_ready,
      .msg_data({out_phase, out_words}),
      .wr_valid,
      .wr_ready,
      .wr_data,
      .wr_last
  );

  always_ff @(posedge clk) begin
    unique case (state_q)
      IDLE: begin
        at_q <= at;
        known_q <= 32'(pick_cqn) < CQS;
        if (bell) state_q <= BELL;
        else if (can_place) begin
          state_q <= PLACE;
          who_q   <= pick;
        end else if (cq_setup_valid) state_q <= CONFIG;
      end
      BELL: begin
        state_q <= IDLE;
        // A completion that has its place may not be out yet; the notification waits for it.
        if (mine && cqdb.arm) begin
          if (row_q.pi != cqdb.ci) late_q[at_q] <= 1'b1;
          armed_q[at_q] <= row_q.pi == cqdb.ci;
        end
      end
      CONFIG: begin
        state_q <= IDLE;
        if (cfg_known) begin
          valid_q[at_q]  <= cq_setup.on;
          armed_q[at_q]  <= 1'b0;
          notify_q[at_q] <= 1'b0;
          late_q[at_q]   <= 1'b0;
          due_q[at_q]    <= 1'b0;
        end
      end
      default: begin
        state_q <= IDLE;
        if (live && full) begin
          ovr_q     <= 1'b1;
          ovr_cqn_q <= at_q;
          ovr_qpn_q <= words.qpn;
        end
        if (placed) begin
          put_q <= put_q + 16'd1;
          if (armed_q[at_q]) late_q[at_q] <= 1'b1;
          armed_q[at_q] <= 1'b0;
        end
      end
    endcase
    if (state_q != IDLE) owed_q <= state_q == BELL;
    if (msg_ready) out_q <= out_q + 16'd1;
    if (due_q == 0) begin
      if (late_q != 0 && state_q == IDLE) begin
        due_q  <= late_q;
        late_q <= '0;
        mark_q <= put_q;
      end
    end else if (16'(out_q - mark_q) < 16'h8000 && state_q == IDLE) begin
      notify_q <= notify_q | due_q;
      due_q    <= '0;
    end
    // Events leave through one register. State changes above concern bits of other queues, or set bits that are cleared
    // here only after the event has been formed.
    if (!ev_q) begin
      if (ovr_q) begin
        ev_q <= 1'b1;
        ev_words_q <= overrun;
        ovr_q <= 1'b0;
      end else if (notify_q != 0 && state_q == IDLE && due_q == 0) begin
        ev_q <= 1'b1;
        ev_words_q <= 96'(notify);
        notify_q[first_notify] <= 1'b0;
      end
    end else if (cev_ready) ev_q <= 1'b0;
    if (rst) begin
      state_q   <= IDLE;
      owed_q    <= 1'b0;
      valid_q   <= '0;
      armed_q   <= '0;
      notify_q  <= '0;
      late_q    <= '0;
      due_q     <= '0;
      put_q     <= '0;
      out_q     <= '0;
      who_q     <= '0;
      ovr_q     <= 1'b0;
      ev_q      <= 1'b0;
    end
  end

  // A completion that has a place finds room on its way out.
  always_ff @(posedge clk) if (!rst) assert (!placed || ahead_room);

  wire unused = &{1'b0, cq_setup.base[4:0], words.phase[31]};
endmodule
