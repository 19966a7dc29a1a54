// SPDX-License-Identifier: Apache-2.0 OR MIT
// Completed receives: writes the completion, releases the pages, and counts what is free again. A receive of
// one range takes four clocks.
module berth_fp_done #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic             clk,
    input  logic             rst,
    output logic             busy,
    // Start of a QP; held until ready.
    input  logic             cmd_valid,
    output logic             cmd_ready,
    input  logic [QW-1:0]    cmd_q,
    input  logic [ 7:0]      cmd_cqn,
    input  logic [ 7:0]      cmd_asid,
    // Receives behind credits, as `berth_fp_grant` posts them.
    input  logic             ring_we,
    input  logic [QW-1:0]    ring_q,
    input  logic [ 6:0]      ring_at,
    input  logic [74:0]      ring_data,   // {wr_id, first SGE, SGEs}
    // Ranges of scatter lists: see `berth_fp_place`.
    input  logic             sge_we,
    input  logic [QW+7:0]    sge_at,
    input  logic [95:0]      sge_data,
    // Receives that are complete: {q, credit, length, immediate there, immediate, solicited}
    input  logic             done_valid,
    output logic             done_ready,
    input  logic [QW+97:0]   done,
    // Receives that never were credits: {q, wr_id, status, first range, ranges, chunks to release}
    input  logic             local_valid,
    output logic             local_ready,
    input  logic [QW+98:0]   local_data,
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
    output logic [ 8:0]      freed_sges
);
  localparam logic [7:0] OP_RECV = 8'd2;   // `Wqe::opcode`

  typedef struct packed {
    logic [QW-1:0] q;
    logic [31:0]   credit, len;
    logic          has_imm;
    logic [31:0]   imm;
    logic          solicited;
  } done_t;
  typedef enum logic [2:0] {IDLE, WRITE, READ, RELEASE, STORE, CMD} state_t;

  state_t state_q;
  done_t head, d_q;
  logic head_valid, head_pop, local_q, begin_now, is_local;
  struct packed {
    logic [63:0] wr_id;
    logic [7:0]  status, sge;
    logic [2:0]  sges;
    logic [15:0] chunks;
  } l_q;
  logic [QW-1:0] q;

  berth_lutfifo #(
      .WIDTH(QW + 98),
      .DEPTH(16)
  ) queue (
      .clk,
      .rst,
      .wr_valid(done_valid),
      .wr_ready(done_ready),
      .wr_data(done),
      .rd_valid(head_valid),
      .rd_ready(head_pop),
      .rd_data(head)
  );

  // A local one waits until all before it are complete: `berth_fp_grant` sees to that.
  assign is_local    = local_valid && !head_valid;
  assign begin_now   = state_q == IDLE && !cmd_valid && (head_valid || local_valid);
  assign head_pop    = begin_now && !is_local;
  assign local_ready = state_q == IDLE && !cmd_valid && !head_valid;
  assign q           = cmd_valid ? cmd_q : is_local ? local_data[99+:QW] : head.q;
  assign cmd_ready   = state_q == CMD;
  assign busy        = state_q != IDLE || head_valid || local_valid || cq_valid || rel_valid;

  // ---- memories ------------------------------------------------------------------------
  logic [74:0] rings[QPS*128];
  logic [15:0] cfgs[QPS];
  logic [24:0] freeds[QPS];
  logic [63:0] wr_id;
  logic [7:0] ring_sge, cqn, asid, sge_q, first;
  logic [2:0] ring_sges, left_q, sges;
  logic [15:0] chunks_q;   // at most so many are released
  logic [15:0] recvs;
  logic [8:0] sges_freed;
  logic [95:0] sge;

  always_ff @(posedge clk) begin
    if (ring_we) rings[{ring_q, ring_at}] <= ring_data;
    if (begin_now) {wr_id, ring_sge, ring_sges} <= rings[{head.q, head.credit[6:0]}];
  end
  always_ff @(posedge clk) begin
    if (state_q == CMD) cfgs[cmd_q] <= {cmd_cqn, cmd_asid};
    if (begin_now) {cqn, asid} <= cfgs[q];
    if (freed_we) freeds[freed_q] <= {freed_recvs, freed_sges};
    if (begin_now) {recvs, sges_freed} <= freeds[q];
  end
  berth_ram #(
      .WIDTH(96),
      .DEPTH(QPS * 256)
  ) sge_ram (
      .clk,
      .we(sge_we),
      .waddr(sge_at),
      .wdata(sge_data),
      .wstrb('1),
      .re(state_q == WRITE || state_q == READ),
      .raddr({d_q.q, state_q == WRITE ? first : sge_q}),
      .rdata(sge)
  );

  assign first = local_q ? l_q.sge : ring_sge;
  assign sges  = local_q ? l_q.sges : ring_sges;

  assign freed_we    = state_q == STORE || state_q == CMD;
  assign freed_q     = state_q == CMD ? cmd_q : d_q.q;
  assign freed_recvs = state_q == CMD ? 16'd0 : recvs + 16'd1;
  assign freed_sges  = state_q == CMD ? 9'd0 : sges_freed + 9'(sges);

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
        l_q     <= local_data[98:0];
        local_q <= is_local;
        at_q    <= '0;
        if (is_local) d_q.q <= local_data[99+:QW];
      end
      WRITE:
      if (!cq_valid || cq_ready) begin
        cq_valid <= 1'b1;
        cq_cqn   <= cqn;
        if (local_q)
          cq_words <= {64'd0, 16'd0, OP_RECV, l_q.status, 32'(d_q.q), 32'd0, l_q.wr_id};
        else
          cq_words <= {d_q.credit, d_q.has_imm ? d_q.imm : 32'd0, 15'd0, d_q.solicited, OP_RECV, 8'd0,
                       32'(d_q.q), d_q.len, wr_id};
        sge_q    <= first;
        left_q   <= sges;
        chunks_q <= local_q ? l_q.chunks : '1;
        state_q  <= (local_q && l_q.chunks == '0) || sges == 3'd0 ? STORE : RELEASE;
      end
      READ: state_q <= RELEASE;
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
          state_q <= left_q == 3'd1 ? STORE : READ;
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

  // What was a credit has ranges that are not empty.
  always_ff @(posedge clk) if (!rst && state_q == RELEASE) assert (chunk != '0);
endmodule
