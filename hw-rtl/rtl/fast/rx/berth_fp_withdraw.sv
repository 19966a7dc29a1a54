// SPDX-License-Identifier: Apache-2.0 OR MIT
// Withdraws receives whose memory is gone: goes through the announced receives of a QP, marks those that have some of that
// memory, waits until nothing is being written into them, and has them release their memory.
//
// It asks `berth_fp_grant` by commands, one after the other; a receive of one range takes a dozen clocks.
module berth_fp_withdraw (
    input  logic                 clk,
    input  logic                 rst,
    // Begins with a pulse, once receives that are not announced are being taken back; `busy` from then on.
    input  logic                 start,
    input  logic [63:0]          from,
    input  logic [63:0]          to,  // behind the last byte
    output logic                 busy,
    // Commands to `berth_fp_grant`, and its answers.
    output logic                 walk_valid,
    input  logic                 walk_ready,
    output berth_card_pkg::walk_t walk,
    input  berth_card_pkg::grant_state_t gr_st,
    // Asks by a pulse whether all earlier payloads are written; a pulse answers.
    output logic                 fence,
    input  logic                 fenced
);
  typedef enum logic [2:0] {IDLE, NUMBERS, LOOK, RANGE, MARK, FENCE, LET_GO} state_t;
  state_t state_q;
  logic [15:0] recv_q, first_recv_q, end_q;
  logic [7:0] sge_q;
  logic [2:0] left_q;
  logic [127:0] hits_q;
  logic [2:0] wait_q;     // until what has been asked for is there
  logic sent_q, there, hit;
  logic [64:0] sge_end;

  assign busy      = state_q != IDLE;
  assign there     = sent_q && wait_q == '0;
  assign walk_valid = !sent_q && (state_q == NUMBERS || state_q == MARK
                     || ((state_q == LOOK || state_q == LET_GO) && recv_q != end_q
                         && (state_q == LOOK || hits_q[recv_q[6:0]]))
                     || state_q == RANGE);
  assign walk.op    = state_q == MARK ? berth_row_pkg::STEP_MARK : state_q == LET_GO ? berth_row_pkg::STEP_LET_GO : berth_row_pkg::STEP_ASK;
  assign walk.recv  = recv_q;
  assign walk.sge   = sge_q;
  assign sge_end   = 65'(gr_st.sge.va) + 65'(gr_st.sge.len);
  assign hit       = gr_st.sge.va < to && sge_end > 65'(from);

  always_ff @(posedge clk) begin
    fence <= 1'b0;
    if (wait_q != '0) wait_q <= wait_q - 3'd1;
    if (walk_valid && walk_ready) begin
      sent_q <= 1'b1;
      wait_q <= 3'd4;
    end
    if (there) sent_q <= 1'b0;
    case (state_q)
      IDLE: begin
        hits_q <= '0;
        sent_q <= 1'b0;
        if (start) state_q <= NUMBERS;
      end
      NUMBERS:
      if (there) begin
        {recv_q, first_recv_q, end_q} <= {gr_st.freed, gr_st.freed, gr_st.granted};
        state_q <= LOOK;
      end
      LOOK:
      if (recv_q == end_q) begin
        state_q <= hits_q == '0 ? IDLE : FENCE;
        fence   <= hits_q != '0;
      end else if (there) begin
        sge_q  <= gr_st.first;
        left_q <= gr_st.ranges;
        if (gr_st.ranges == '0) recv_q <= recv_q + 16'd1;
        else state_q <= RANGE;
      end
      RANGE:
      if (there) begin
        sge_q  <= sge_q + 8'd1;
        left_q <= left_q - 3'd1;
        if (hit) state_q <= MARK;
        else if (left_q == 3'd1) begin
          recv_q  <= recv_q + 16'd1;
          state_q <= LOOK;
        end
      end
      MARK:
      if (there) begin
        hits_q[recv_q[6:0]] <= 1'b1;
        recv_q  <= recv_q + 16'd1;
        state_q <= LOOK;
      end
      FENCE: begin
        recv_q <= first_recv_q;
        if (fenced) state_q <= LET_GO;
      end
      default:
      if (recv_q == end_q) state_q <= IDLE;
      else if (there || !hits_q[recv_q[6:0]]) recv_q <= recv_q + 16'd1;
    endcase
    if (rst) begin
      state_q <= IDLE;
      wait_q  <= '0;
    end
  end

  wire unused = &{1'b0, gr_st};
endmodule
