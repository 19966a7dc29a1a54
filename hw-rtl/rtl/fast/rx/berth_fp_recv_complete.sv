// SPDX-License-Identifier: Apache-2.0 OR MIT
// Completed receives: writes the completion, releases the pages, and counts the receives and ranges that are free again. A
// receive of one range takes four clocks.
//
// So do receives that get no data (`ASIDE_*`).
module berth_fp_recv_complete #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic                        clk,
    input  logic                        rst,
    output logic                        busy,
    // Start of a QP, or a question (st_*, one clock after ready); held until ready.
    input  logic                        cmd_valid,
    output logic                        cmd_ready,
    input  logic [QW-1:0]               cmd_q,
    input  berth_card_pkg::recv_complete_step_t cmd,
    output logic [31:0]                 st_completed,  // since the start
    output logic                        st_shown,      // a completion waits to be taken
    output logic                        works,         // on a receive
    // Receives behind credits, as `berth_fp_grant` posts them.
    input  logic                        ring_we,
    input  logic [QW-1:0]               ring_q,
    input  logic [ 6:0]                 ring_at,
    input  berth_card_pkg::ring_t       ring,
    // Ranges of scatter lists: see `berth_fp_sges`.
    output logic                        done_re,
    input  logic                        done_ok,
    output logic [QW+7:0]               done_at,
    input  berth_card_pkg::range_t      done_sge,
    // Receives that are complete.
    input  logic                        done_valid,
    output logic                        done_ready,
    input  logic [QW-1:0]               done_q,
    input  berth_card_pkg::received_t   done,
    // Arrival is done with a QP that has ended.
    output logic                        quiet_valid,
    input  logic                        quiet_ready,
    output logic [QW-1:0]               quiet_q,
    // Those that get no data.
    input  logic                        aside_valid,
    output logic                        aside_ready,
    input  logic [QW-1:0]               aside_q,
    input  berth_card_pkg::aside_t      aside,
    // Completions.
    output logic                        fcq_valid,
    input  logic                        fcq_ready,
    output berth_card_pkg::completion_t fcq,
    // Releases.
    output logic                        rel_valid,
    input  logic                        rel_ready,
    output berth_card_pkg::range_ask_t  rel,
    // What has been freed and given back, whenever it changes.
    output logic                        freed_we,
    output logic [QW-1:0]               freed_q,
    output berth_card_pkg::freed_t      freed,
    output logic                        given_we,
    output berth_card_pkg::given_t      given          // of `freed_q`
);
  localparam logic [7:0] OP_RECV = berth_regs_pkg::OP_RECV[7:0];
  localparam logic [7:0] OP_WRITE = berth_regs_pkg::OP_WRITE[7:0];   // a WRITE has used the receive, which is empty

  typedef enum logic [2:0] {IDLE, WRITE, READ, RELEASE, STORE, CMD} state_t;

  state_t state_q;
  berth_card_pkg::received_t head, queue_head, d_q;
  logic queue_valid, pass, head_valid, head_pop, local_q, begin_now, is_local;
  berth_card_pkg::aside_t l_q;
  logic [QW-1:0] q, queue_q, head_q, q_q;

  berth_lutfifo #(
      .WIDTH(QW + $bits(done)),
      .DEPTH(16)
  ) queue (
      .clk,
      .rst,
      .wr_valid(done_valid && !pass),
      .wr_ready(done_ready),
      .wr_data({done_q, done}),
      .rd_valid(queue_valid),
      .rd_ready(head_pop),
      .rd_data({queue_q, queue_head})
  );

  // `berth_fp_grant` gives a local one only when all before it are complete, and takes the end of a QP only when all
  // that it gave has been taken.
  assign is_local    = aside_valid && aside_ready;
  assign begin_now   = state_q == IDLE && !cmd_valid && ((head_valid && !head.quiet) || is_local);
  assign quiet_valid = state_q == IDLE && head_valid && head.quiet && !aside_valid;
  assign quiet_q     = head_q;
  // An entry that comes while nothing waits is taken in the same clock.
  assign head_valid  = queue_valid || done_valid;
  assign head        = queue_valid ? queue_head : done;
  assign head_q      = queue_valid ? queue_q : done_q;
  assign pass        = !queue_valid && head_pop;
  assign head_pop    = (begin_now && !is_local) || (quiet_valid && quiet_ready);
  assign aside_ready = state_q == IDLE && !cmd_valid && (!head_valid || head.quiet);
  assign q           = cmd_valid ? cmd_q : is_local ? aside_q : head_q;
  assign cmd_ready   = state_q == CMD;
  assign works       = state_q != IDLE;
  assign busy        = state_q != IDLE || head_valid || aside_valid || fcq_valid || rel_valid;

  // ---- memories ------------------------------------------------------------------------
  logic gone;
  logic [63:0] wr_id;
  logic [7:0] ring_sge, cqn, asid, sge_q, first;
  logic [2:0] ring_sges, left_q, sges;
  logic [15:0] chunks_q;   // at most so many are released
  logic [31:0] recvs;
  logic [8:0] sges_freed;

  berth_fp_mem #(
      .WIDTH($bits({gone, wr_id, ring_sge, ring_sges})),
      .DEPTH(QPS * 128)
  ) m_rings (
      .clk,
      .we(ring_we),
      .waddr({ring_q, ring_at}),
      .wdata({ring.released, ring.wr_id, ring.sge, ring.sges}),
      .re(begin_now),
      .raddr({q, is_local ? aside.credit[6:0] : head.credit[6:0]}),
      .rdata({gone, wr_id, ring_sge, ring_sges})
  );
  berth_fp_mem #(
      .WIDTH(16),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_cfg (
      .clk,
      .we(state_q == CMD && !cmd.ask),
      .waddr(cmd_q),
      .wdata({cmd.cqn, cmd.asid}),
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
      .wdata({completed, freed.sges}),
      .re(state_q == IDLE),
      .raddr(q),
      .rdata({recvs, sges_freed})
  );

  assign done_re = (state_q == WRITE && may) || state_q == READ;
  assign done_at = {q_q, state_q == WRITE ? first : sge_q};
  assign may    = only || !fcq_valid || fcq_ready;

  assign first = local_q ? l_q.sge : ring_sge;
  assign sges  = local_q ? l_q.sges : ring_sges;

  logic [31:0] completed;
  assign freed_we    = (state_q == STORE && !only) || (state_q == CMD && !cmd.ask);
  assign freed_q     = state_q == CMD ? cmd_q : q_q;
  assign completed   = state_q == CMD ? 32'd0 : recvs + 32'd1;
  assign freed.recvs = completed[15:0];
  assign freed.sges  = state_q == CMD ? 9'd0 : sges_freed + 9'(sges);
  // Pages go back once: not if they went already, or the receive has been completed since.
  logic only, back, may;
  assign only = local_q && (l_q.kind == berth_row_pkg::ASIDE_RELEASE || l_q.kind == berth_row_pkg::ASIDE_PART);
  assign back = sges != 3'd0
             && (!local_q ? !gone : l_q.kind == berth_row_pkg::ASIDE_LOCAL || l_q.kind == berth_row_pkg::ASIDE_PART
                 ? l_q.chunks != '0
                 : !gone && (l_q.kind == berth_row_pkg::ASIDE_FLUSH || 16'(recvs[15:0] - l_q.recv - 16'd1) >= 16'h8000));

  logic [31:0] given_before, given_q;    // until this receive; of it
  assign given_we = state_q == STORE || (state_q == CMD && !cmd.ask);
  assign given.bytes = state_q == CMD ? 32'd0 : given_before + given_q;
  logic [1:0] hollow_before, of_this;
  always_comb begin
    of_this = 2'd0;
    for (int unsigned n = 1; n < 4; n++) if (d_q.write || d_q.len <= given_q >> n) of_this = 2'(n);
    given.hollow = hollow_before;
    if (state_q == CMD) given.hollow = '0;
    else if (!local_q && given_q != '0) begin
      if (of_this > hollow_before) given.hollow = hollow_before + 2'd1;
      if (of_this < hollow_before) given.hollow = hollow_before - 2'd1;
    end
  end
  // A WRITE with immediate leaves the receive itself empty.
  logic [7:0] credits_before;
  logic [31:0] sizes_before, filled_before;
  always_comb begin
    {given.credits, given.sizes, given.filled} = {credits_before, sizes_before, filled_before};
    if (state_q == CMD) {given.credits, given.sizes, given.filled} = '0;
    else if (!local_q) begin
      given.credits = credits_before + 8'd1;
      given.sizes   = sizes_before + given_q;
      if (!d_q.write) given.filled = filled_before + d_q.len;
    end
  end
  berth_fp_mem #(
      .WIDTH($bits(given)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_given (
      .clk,
      .we(given_we),
      .waddr(freed_q),
      .wdata(given),
      .re(state_q == IDLE),
      .raddr(q),
      .rdata({given_before, hollow_before, credits_before, sizes_before, filled_before})
  );
  always_ff @(posedge clk) begin
    if (state_q == IDLE) given_q <= '0;
    else if (state_q == RELEASE && (!rel_valid || rel_ready)) given_q <= given_q + 32'(chunk);
  end

  // ---- chunks of a range: as `berth_fp_grant` acquired them -----------------------------------
  logic [31:0] at_q, rest;
  logic [63:0] va;
  logic [20:0] chunk, bound;
  assign va    = done_sge.va + 64'(at_q);
  assign rest  = done_sge.len - at_q;
  assign bound = 21'h10_0000 - {1'b0, va[19:0]};
  // ---- completions ---------------------------------------------------------------------
  berth_wqe_pkg::cqe_t cqe, shown;
  assign shown = {32'd0, fcq.words};
  always_comb begin
    cqe        = '0;
    cqe.qpn    = 32'(q_q);
    cqe.opcode = OP_RECV;
    if (local_q) begin
      cqe.wr_id  = l_q.wr_id;
      cqe.status = l_q.status;
    end else begin
      cqe.wr_id    = wr_id;
      cqe.byte_len = d_q.len;
      cqe.status   = berth_regs_pkg::WC_OK[7:0];
      if (d_q.write) cqe.opcode = OP_WRITE;
      if (d_q.solicited) cqe.flags = cqe.flags | berth_regs_pkg::CQE_PUSH[15:0];
      if (d_q.has_imm) cqe.flags = cqe.flags | berth_regs_pkg::CQE_IMMEDIATE[15:0];
      if (d_q.invalidated) cqe.flags = cqe.flags | berth_regs_pkg::CQE_INVALIDATED[15:0];
      if (d_q.has_imm || d_q.invalidated) cqe.remaining = d_q.imm;
      cqe.credit = d_q.credit;
    end
  end

  assign chunk = rest < 32'(bound) ? rest[20:0] : bound;

  always_ff @(posedge clk) begin
    if (fcq_ready) fcq_valid <= 1'b0;
    if (rel_ready) rel_valid <= 1'b0;
    case (state_q)
      IDLE: begin
        if (cmd_valid) state_q <= CMD;
        else if (begin_now) state_q <= WRITE;
        d_q     <= head;
        l_q     <= aside;
        q_q     <= is_local ? aside_q : head_q;
        local_q <= is_local;
        at_q    <= '0;
      end
      CMD: begin
        state_q      <= IDLE;
        st_completed <= recvs;
        st_shown     <= fcq_valid && shown.qpn[QW-1:0] == cmd_q;
      end
      WRITE:
      if (may) begin
        fcq_valid <= !only || (fcq_valid && !fcq_ready);
        if (!only) begin
          fcq.cqn   <= cqn;
          fcq.words <= cqe[7*32-1:0];
        end
        sge_q    <= first;
        left_q   <= sges;
        chunks_q <= local_q ? l_q.chunks : '1;
        state_q  <= back ? (done_ok ? RELEASE : READ) : STORE;
      end
      READ: if (done_ok) state_q <= RELEASE;
      RELEASE:
      if (!rel_valid || rel_ready) begin
        rel_valid <= 1'b1;
        rel.give_back <= 1'b1;
        {rel.quiet, rel.probe} <= '0;
        rel.write <= 1'b1;
        rel.tag   <= '0;
        rel.asid  <= asid;
        rel.va    <= va;
        rel.len   <= 31'(chunk);
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
      fcq_valid  <= 1'b0;
      rel_valid <= 1'b0;
    end
  end

  wire unused = &{1'b0, d_q.quiet, l_q, ring, cqe.phase, shown};

  // A receive that was a credit has ranges that are not empty.
  always_ff @(posedge clk) if (!rst && state_q == RELEASE) assert (chunk != '0);
endmodule
