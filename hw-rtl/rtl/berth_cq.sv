// SPDX-License-Identifier: Apache-2.0 OR MIT
// Completion queues: their table, the writer of CQEs, overrun and notification events.
module berth_cq #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64
) (
    input  logic              clk,
    input  logic              rst,
    // Doorbells: never wait for the host, because the host may wait for them.
    input  logic              db_valid,
    output logic              db_ready,
    input  logic [15:0]       db_cqn,
    input  logic [ 5:0]       db_uar,
    input  logic [15:0]       db_ci,
    input  logic              db_arm,
    // Core: configure a CQ.
    input  logic              cfg_valid,
    output logic              cfg_ready,
    input  logic [15:0]       cfg_cqn,
    input  logic [63:0]       cfg_base,
    input  logic              cfg_on,
    input  logic [ 7:0]       cfg_uar,
    input  logic [ 3:0]       cfg_log2,
    // Core: a completion; its words are stable from valid to ready.
    input  logic              cqe_valid,
    output logic              cqe_ready,
    input  logic [15:0]       cqe_cqn,
    input  logic [8*32-1:0]   cqe_words,
    // To the posted write port.
    output logic              wr_valid,
    input  logic              wr_ready,
    output logic [63:0]       wr_addr,
    output logic [DATA_W-1:0] wr_data,
    output logic              wr_last,
    // To the event writer: words 0 to 2.
    output logic              ev_valid,
    input  logic              ev_ready,
    output logic [3*32-1:0]   ev_words,
    // Pulses for the counters.
    output logic              inc_taken,
    output logic              inc_denied,
    output logic              inc_written,
    output logic              inc_overrun,
    output logic              busy
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
  typedef enum logic [2:0] {IDLE, BELL, CONFIG, BEGIN, COMMIT} state_t;

  row_t row_q, row_new;
  logic [$bits(row_q)-1:0] rows[CQS];  // a plain vector: Yosys makes no RAM of a struct
  state_t state_q;
  logic [CQS-1:0] valid_q, armed_q, notify_q;
  logic [CW-1:0] at_q, at, first_notify;
  logic we, writing_q, written_q, msg_ready, phase_q, ovr_q, ev_q;
  logic [CW-1:0] ovr_cqn_q;
  logic [31:0] ovr_qpn_q;
  logic [3*32-1:0] ev_words_q;

  wire cqe_known = 32'(cqe_cqn) < CQS;
  wire db_known = 32'(db_cqn) < CQS;
  wire cfg_known = 32'(cfg_cqn) < CQS;
  wire mine = valid_q[at_q] && db_known && row_q.uar == {2'd0, db_uar};
  wire [15:0] mask = (16'd1 << row_q.log2) - 16'd1;
  wire [15:0] used = row_q.pi - row_q.ci;
  // More in use than the ring holds: the process wrote a wild index, which is its own loss.
  wire full = used > mask;
  wire live = valid_q[at_q] && cqe_known;

  always_comb begin
    at = cqe_cqn[CW-1:0];
    if (!written_q && db_valid) at = db_cqn[CW-1:0];
    else if (!cqe_valid) at = cfg_cqn[CW-1:0];
    row_new = row_q;
    we = 1'b0;
    unique case (state_q)
      BELL: begin
        we = mine;
        row_new.ci = db_ci;
      end
      CONFIG: begin
        we = cfg_known;
        row_new = {cfg_uar, cfg_log2, cfg_base[63:5], 32'd0};
      end
      COMMIT: begin
        we = 1'b1;
        row_new.pi = row_q.pi + 16'd1;
      end
      default: ;
    endcase
    first_notify = '0;
    if (notify_q != 0) for (int i = CQS; i > 0; i--) if (notify_q[i-1]) first_notify = CW'(i - 1);
  end

  assign db_ready    = state_q == BELL;
  assign cfg_ready   = state_q == CONFIG;
  assign cqe_ready   = state_q == COMMIT || (state_q == BEGIN && (!live || full));
  assign inc_taken   = db_ready && mine;
  assign inc_denied  = db_ready && !mine;
  assign inc_written = state_q == COMMIT;
  assign inc_overrun = state_q == BEGIN && (!live || full);
  assign ev_valid    = ev_q;
  assign ev_words    = ev_words_q;
  assign busy        = state_q != IDLE || cqe_valid || ovr_q || ev_q || notify_q != 0;

  always_ff @(posedge clk) begin
    if (we) rows[at_q] <= row_new;
    if (state_q == IDLE) row_q <= rows[at];
  end

  berth_wr_msg #(
      .DATA_W(DATA_W),
      .MSG_BYTES(32)
  ) msg (
      .clk,
      .rst,
      .msg_valid(writing_q),
      .msg_ready,
      .msg_data({phase_q, cqe_words[8*32-2:0]}),
      .wr_valid,
      .wr_ready,
      .wr_data,
      .wr_last
  );

  always_ff @(posedge clk) begin
    unique case (state_q)
      IDLE: begin
        at_q <= at;
        // A completion: BEGIN finds its place, COMMIT counts it when it is out, so that
        // a notification can never overtake it. Doorbells pass in between; one that the
        // process rings because it has seen the completion finds it counted.
        if (written_q) state_q <= COMMIT;
        else if (db_valid) state_q <= BELL;
        else if (cqe_valid) begin
          if (!writing_q && !ovr_q) state_q <= BEGIN;
        end else if (cfg_valid) state_q <= CONFIG;
      end
      BELL: begin
        state_q <= IDLE;
        if (mine && db_arm) begin
          if (row_q.pi != db_ci) notify_q[at_q] <= 1'b1;
          armed_q[at_q] <= row_q.pi == db_ci;
        end
      end
      CONFIG: begin
        state_q <= IDLE;
        if (cfg_known) begin
          valid_q[at_q]  <= cfg_on;
          armed_q[at_q]  <= 1'b0;
          notify_q[at_q] <= 1'b0;
        end
      end
      BEGIN: begin
        state_q   <= IDLE;
        writing_q <= live && !full;
        wr_addr   <= {row_q.base + 59'(row_q.pi & mask), 5'd0};
        phase_q   <= !row_q.pi[row_q.log2];
        ovr_q     <= live && full;
        ovr_cqn_q <= at_q;
        ovr_qpn_q <= cqe_words[3*32+:32];
      end
      default: begin
        state_q   <= IDLE;
        written_q <= 1'b0;
        if (armed_q[at_q]) notify_q[at_q] <= 1'b1;
        armed_q[at_q] <= 1'b0;
      end
    endcase
    if (msg_ready) begin
      writing_q <= 1'b0;
      written_q <= 1'b1;
    end
    // Events leave through one register. State changes above happen to bits of other
    // queues or set what is cleared here only after the event has been formed.
    if (!ev_q) begin
      if (ovr_q) begin
        ev_q <= 1'b1;
        ev_words_q <= {ovr_qpn_q, 32'(ovr_cqn_q), berth_regs_pkg::EV_CQ_OVERRUN};
        ovr_q <= 1'b0;
      end else if (notify_q != 0 && state_q == IDLE) begin
        ev_q <= 1'b1;
        ev_words_q <= {32'd0, 32'(first_notify), berth_regs_pkg::EV_CQ_NOTIFY};
        notify_q[first_notify] <= 1'b0;
      end
    end else if (ev_ready) ev_q <= 1'b0;
    if (rst) begin
      state_q   <= IDLE;
      valid_q   <= '0;
      armed_q   <= '0;
      notify_q  <= '0;
      writing_q <= 1'b0;
      written_q <= 1'b0;
      ovr_q     <= 1'b0;
      ev_q      <= 1'b0;
    end
  end

  // A place is written once, and only for a completion that is still there.
  always_ff @(posedge clk) if (!rst) assert (!(writing_q && written_q) && (cqe_valid || !(writing_q || written_q)));

  wire unused = &{1'b0, cfg_base[4:0], cqe_words[8*32-1]};
endmodule
