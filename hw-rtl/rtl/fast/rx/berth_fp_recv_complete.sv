// SPDX-License-Identifier: Apache-2.0 OR MIT
// Completed receives: writes the completion, releases the pages, and counts what is free again. A receive of
// one range takes four clocks.
//
// Other kinds: LOCAL, never a credit; FLUSH, was a credit and gets no data any more; RELEASE, taken back or withdrawn:
// only its pages go back; PART, as RELEASE, of one that was never granted.
module berth_fp_recv_complete #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic             clk,
    input  logic             rst,
    output logic             busy,
    // Start of a QP, or a question (st_*, one clock after ready); held until ready.
    input  logic             cmd_valid,
    output logic             cmd_ready,
    input  logic             cmd_ask,
    input  logic [QW-1:0]    cmd_q,
    input  logic [ 7:0]      cmd_cqn,
    input  logic [ 7:0]      cmd_asid,
    output logic [31:0]      st_completed, // since the start
    output logic             st_shown,     // a completion waits to be taken
    output logic             works,        // on a receive
    // Receives behind credits, as `berth_fp_grant` posts them.
    input  logic             ring_we,
    input  logic [QW-1:0]    ring_q,
    input  logic [ 6:0]      ring_at,
    input  logic [75:0]      ring_data,   // {released, wr_id, first SGE, SGEs}
    // Ranges of scatter lists: see `berth_fp_sges`.
    output logic             sge_re,
    input  logic             sge_ok,
    output logic [QW+7:0]    sge_at,
    input  logic [95:0]      sge,
    // Receives that are complete: {q, no more of them (see `quiet`), credit, length, immediate there, immediate, solicited}
    input  logic             done_valid,
    output logic             done_ready,
    input  logic [QW+98:0]   done,
    // All that arrival had to say about a QP that has ended is done.
    output logic             quiet_valid,
    input  logic             quiet_ready,
    output logic [QW-1:0]    quiet_q,
    // Others: {q, kind, receive, credit, wr_id, status, first range, ranges, chunks to release}
    input  logic             local_valid,
    output logic             local_ready,
    input  logic [QW+124:0]  local_data,
    // Completions.
    output logic             cq_valid,
    input  logic             cq_ready,
    output logic [ 7:0]      cq_cqn,
    output logic [7*32-1:0]  cq_words,
    // Releases.
    output logic             rel_valid,
    input  logic             rel_ready,
    output logic [ 7:0]      rel_asid,
    output logic [63:0]      rel_va,
    output logic [20:0]      rel_len,
    // Receives and ranges that have been freed since the start of the QP, whenever they change.
    output logic             freed_we,
    output logic [QW-1:0]    freed_q,
    output logic [15:0]      freed_recvs,
    output logic [ 8:0]      freed_sges,
    // Bytes that have been released since the start of the QP, modulo 2^32, whenever that changes.
    output logic             given_we,
    output logic [31:0]      given         // of `freed_q`
);
  localparam logic [7:0] OP_RECV = 8'd2;   // `Wqe::opcode`

  localparam logic [1:0] LOCAL = 2'd0, FLUSH = 2'd1, RELEASE_ONLY = 2'd2, PART = 2'd3;

  typedef struct packed {
    logic [QW-1:0] q;
    logic          quiet;
    logic [31:0]   credit, len;
    logic          has_imm;
    logic [31:0]   imm;
    logic          solicited;
  } done_t;
  typedef enum logic [2:0] {IDLE, WRITE, READ, RELEASE, STORE, CMD} state_t;

  state_t state_q;
  done_t head, queue_head, d_q;
  logic queue_valid, pass, head_valid, head_pop, local_q, begin_now, is_local;
  typedef struct packed {
    logic [QW-1:0] q;
    logic [1:0]  kind;
    logic [15:0] recv;
    logic [7:0]  credit;
    logic [63:0] wr_id;
    logic [7:0]  status, sge;
    logic [2:0]  sges;
    logic [15:0] chunks;
  } local_t;
  local_t l, l_q;
  logic [QW-1:0] q;

  berth_lutfifo #(
      .WIDTH(QW + 99),
      .DEPTH(16)
  ) queue (
      .clk,
      .rst,
      .wr_valid(done_valid && !pass),
      .wr_ready(done_ready),
      .wr_data(done),
      .rd_valid(queue_valid),
      .rd_ready(head_pop),
      .rd_data(queue_head)
  );

  // A local one waits until all before it are complete: `berth_fp_grant` sees to that.
  assign l           = local_data;
  // The end of a QP waits for them: `berth_fp_grant` takes it only when what it has is taken.
  assign is_local    = local_valid && local_ready;
  assign begin_now   = state_q == IDLE && !cmd_valid && ((head_valid && !head.quiet) || is_local);
  assign quiet_valid = state_q == IDLE && head_valid && head.quiet && !local_valid;
  assign quiet_q     = head.q;
  // What comes while nothing waits need not wait for a clock.
  assign head_valid  = queue_valid || done_valid;
  assign head        = queue_valid ? queue_head : done;
  assign pass        = !queue_valid && head_pop;
  assign head_pop    = (begin_now && !is_local) || (quiet_valid && quiet_ready);
  assign local_ready = state_q == IDLE && !cmd_valid && (!head_valid || head.quiet);
  assign q           = cmd_valid ? cmd_q : is_local ? l.q : head.q;
  assign cmd_ready   = state_q == CMD;
  assign works       = state_q != IDLE;
  assign busy        = state_q != IDLE || head_valid || local_valid || cq_valid || rel_valid;

  // ---- memories ------------------------------------------------------------------------
  logic gone;
  logic [63:0] wr_id;
  logic [7:0] ring_sge, cqn, asid, sge_q, first;
  logic [2:0] ring_sges, left_q, sges;
  logic [15:0] chunks_q;   // at most so many are released
  logic [31:0] recvs;
  logic [8:0] sges_freed;

  berth_fp_mem #(
      .WIDTH(76),
      .DEPTH(QPS * 128)
  ) m_rings (
      .clk,
      .we(ring_we),
      .waddr({ring_q, ring_at}),
      .wdata(ring_data),
      .re(begin_now),
      .raddr({q, is_local ? l.credit[6:0] : head.credit[6:0]}),
      .rdata({gone, wr_id, ring_sge, ring_sges})
  );
  berth_fp_mem #(
      .WIDTH(16),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_cfg (
      .clk,
      .we(state_q == CMD && !cmd_ask),
      .waddr(cmd_q),
      .wdata({cmd_cqn, cmd_asid}),
      .re(begin_now),
      .raddr(q),
      .rdata({cqn, asid})
  );
  berth_fp_mem #(
      .WIDTH(41),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_freed (
      .clk,
      .we(freed_we),
      .waddr(freed_q),
      .wdata({completed, freed_sges}),
      .re(state_q == IDLE),
      .raddr(q),
      .rdata({recvs, sges_freed})
  );

  assign sge_re = (state_q == WRITE && may) || state_q == READ;
  assign sge_at = {d_q.q, state_q == WRITE ? first : sge_q};
  assign may    = only || !cq_valid || cq_ready;

  assign first = local_q ? l_q.sge : ring_sge;
  assign sges  = local_q ? l_q.sges : ring_sges;

  logic [31:0] completed;
  assign freed_we    = (state_q == STORE && !only) || (state_q == CMD && !cmd_ask);
  assign freed_q     = state_q == CMD ? cmd_q : d_q.q;
  assign completed   = state_q == CMD ? 32'd0 : recvs + 32'd1;
  assign freed_recvs = completed[15:0];
  assign freed_sges  = state_q == CMD ? 9'd0 : sges_freed + 9'(sges);
  // Pages go back once: not if they went already, or the receive has been completed since.
  logic only, back, may;
  assign only = local_q && (l_q.kind == RELEASE_ONLY || l_q.kind == PART);
  assign back = sges != 3'd0
             && (!local_q ? !gone : l_q.kind == LOCAL || l_q.kind == PART ? l_q.chunks != '0
                 : !gone && (l_q.kind == FLUSH || 16'(recvs[15:0] - l_q.recv - 16'd1) >= 16'h8000));

  logic [31:0] given_before, given_q;    // until this receive; of it
  assign given_we = state_q == STORE || (state_q == CMD && !cmd_ask);
  assign given    = state_q == CMD ? 32'd0 : given_before + given_q;
  berth_fp_mem #(
      .WIDTH(32),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_given (
      .clk,
      .we(given_we),
      .waddr(freed_q),
      .wdata(given),
      .re(state_q == IDLE),
      .raddr(q),
      .rdata(given_before)
  );
  always_ff @(posedge clk) begin
    if (state_q == IDLE) given_q <= '0;
    else if (state_q == RELEASE && (!rel_valid || rel_ready)) given_q <= given_q + 32'(chunk);
  end

  // ---- chunks of a range: as `berth_fp_grant` acquired them -----------------------------------
  logic [31:0] at_q, rest;
  logic [63:0] va;
  logic [20:0] chunk, bound;
  assign va    = sge[95:32] + 64'(at_q);
  assign rest  = sge[31:0] - at_q;
  assign bound = 21'h10_0000 - {1'b0, va[19:0]};
  assign chunk = rest < 32'(bound) ? rest[20:0] : bound;

  always_ff @(posedge clk) begin
    if (cq_ready) cq_valid <= 1'b0;
    if (rel_ready) rel_valid <= 1'b0;
    case (state_q)
      IDLE: begin
        if (cmd_valid) state_q <= CMD;
        else if (begin_now) state_q <= WRITE;
        d_q     <= head;
        l_q     <= l;
        local_q <= is_local;
        at_q    <= '0;
        if (is_local) d_q.q <= l.q;
      end
      CMD: begin
        state_q      <= IDLE;
        st_completed <= recvs;
        st_shown     <= cq_valid && cq_words[3*32+:QW] == cmd_q;
      end
      WRITE:
      if (may) begin
        cq_valid <= !only || (cq_valid && !cq_ready);
        if (!only) begin
          cq_cqn   <= cqn;
          if (local_q)
            cq_words <= {64'd0, 16'd0, OP_RECV, l_q.status, 32'(d_q.q), 32'd0, l_q.wr_id};
          else
            cq_words <= {d_q.credit, d_q.has_imm ? d_q.imm : 32'd0, 15'd0, d_q.solicited, OP_RECV, 8'd0,
                         32'(d_q.q), d_q.len, wr_id};
        end
        sge_q    <= first;
        left_q   <= sges;
        chunks_q <= local_q ? l_q.chunks : '1;
        state_q  <= back ? (sge_ok ? RELEASE : READ) : STORE;
      end
      READ: if (sge_ok) state_q <= RELEASE;
      RELEASE:
      if (!rel_valid || rel_ready) begin
        rel_valid <= 1'b1;
        rel_asid  <= asid;
        rel_va    <= va;
        rel_len   <= chunk;
        at_q      <= at_q + 32'(chunk);
        chunks_q  <= chunks_q - 16'd1;
        if (chunks_q == 16'd1) state_q <= STORE;
        else if (32'(chunk) == rest) begin
          at_q    <= '0;
          sge_q   <= sge_q + 8'd1;
          left_q  <= left_q - 3'd1;
          state_q <= left_q != 3'd1 ? READ : STORE;
        end
      end
      default: state_q <= IDLE;
    endcase
    if (rst) begin
      state_q   <= IDLE;
      cq_valid  <= 1'b0;
      rel_valid <= 1'b0;
    end
  end

  wire unused = &{1'b0, d_q.quiet, l_q};

  // What was a credit has ranges that are not empty.
  always_ff @(posedge clk) if (!rst && state_q == RELEASE) assert (chunk != '0);
endmodule
