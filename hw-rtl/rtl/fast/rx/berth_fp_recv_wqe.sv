// SPDX-License-Identifier: Apache-2.0 OR MIT
// Receive queues: doorbells, fetch of queue elements (up to four with one read, many reads on their way), and their check.
// A good element becomes an entry of the QP's pending ring and ranges in its SGE ring.
//
// A QP has at most 128 receives in the card, pending or credits, and 256 ranges. Elements are fetched when
// there is room for them at their largest, so that parsing never waits.
module berth_fp_recv_wqe #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS),
    // Bits of a beat of the host port, 128 to 1024.
    parameter int unsigned HOST_W = 128,
    // Reads on their way, a power of two, at most 256.
    parameter int unsigned READS = 32
) (
    input  logic                        clk,
    input  logic                        rst,
    output logic                        busy,
    // Start of a QP, or a question (st_*, one clock after ready); held until ready.
    input  logic                        cmd_valid,
    output logic                        cmd_ready,
    input  logic [QW-1:0]               cmd_q,
    input  berth_card_pkg::recv_wqe_step_t cmd,
    output logic                        st_fetching,  // elements are to be fetched or checked
    output logic [15:0]                 st_open,      // receives posted and not complete
    // Doorbells.
    input  logic                        rdb_valid,
    output logic                        rdb_ready,
    input  logic [QW-1:0]               rdb_q,
    input  logic [15:0]                 rdb_pi,
    // Reads of queue elements.
    output logic                        qr_valid,
    input  logic                        qr_ready,
    output berth_card_pkg::queue_read_t qr,
    input  logic                        qc_valid,
    input  logic [HOST_W-1:0]           qc_data,
    input  berth_card_pkg::queue_beat_t qc,
    // Receives and ranges that are free again: see `berth_fp_recv_complete`.
    input  logic                        freed_we,
    input  logic [QW-1:0]               freed_q,
    input  berth_card_pkg::freed_t      freed,
    // Ranges.
    output logic                        sge_we,
    output logic [QW+7:0]               sge_at,
    output berth_card_pkg::range_t      sge,
    // Receives.
    output logic                        pend_we,
    output logic [QW+6:0]               pend_at,
    output berth_card_pkg::pending_t    pend,
    // Receives parsed since the start of the QP, whenever it changes.
    output logic                        parsed_we,
    output logic [QW-1:0]               parsed_q,
    output logic [15:0]                 parsed,
    // Pulses.
    output logic                        ev_bad_index,
    output logic                        ev_bad_wqe,
    // To firmware, once each: a read of elements failed, and none is taken any more; or a doorbell with an index that
    // cannot be, which is not taken.
    output logic                        lost_valid,
    output logic                        lost_index,
    output logic [QW-1:0]               lost_q,
    output logic [15:0]                 lost_pi
);
  localparam int unsigned TW = $clog2(READS);
  localparam int unsigned HB = $clog2(HOST_W / 8);       // bytes of a beat, log2
  localparam int unsigned LANES = HOST_W / 128;          // elements' parts of 16 bytes in a beat
  localparam logic [7:0] OP_RECV = berth_regs_pkg::OP_RECV[7:0];
  localparam logic [2:0] MAX_SGE = berth_regs_pkg::MAX_SGE[2:0];
  initial if (HOST_W < 128 || HOST_W > 1024) $fatal(1, "berth_fp_recv_wqe: HOST_W must be 128 to 1024");

  // ---- doorbells and fetch: two clocks each ------------------------------------------------
  typedef struct packed {
    logic        on, message;
    logic [56:0] base;      // address >> 7
    logic [3:0]  log2;
    logic [15:0] pi;
    logic [15:0] fetched;   // index of the next element
    logic [15:0] count;     // elements fetched since the start
  } row_t;
  typedef enum logic [2:0] {IDLE, BELL, FETCH, START, ASK} state_t;

  row_t row, r;
  state_t state_q;
  logic [QW-1:0] q_q, at, ready_q;
  logic ready_valid, ready_pop, ready_busy, we, again, pi_good, last, fetch_ok;
  logic [15:0] pi_q, mask, avail, out, unparsed, recvs_freed, recvs_parsed, room_recv;
  logic [8:0] sges_freed, sge_tail_row;
  logic [15:0] sge_room;
  logic [2:0] count;
  logic parse_idle;
  logic [56:0] addr;
  logic [TW:0] alloc_q, tail_q;
  logic tags_full;
  logic [QPS-1:0] wild_q;   // a wild doorbell has been told
  logic [QPS-1:0] dead_q;   // a read failed: nothing behind it may take its place

  assign ready_pop = state_q == IDLE && !cmd_valid && !rdb_valid && ready_valid && !tags_full && (!qr_valid || qr_ready);
  assign at        = cmd_valid ? cmd_q : rdb_valid ? rdb_q : ready_q;
  assign rdb_ready = state_q == BELL;
  assign cmd_ready = state_q == START || state_q == ASK;

  always_comb begin
    r    = row;
    we   = 1'b0;
    mask = (16'd1 << row.log2) - 16'd1;
    // Room: for receives, and for ranges if every element that is not parsed yet has as many as possible.
    avail     = row.pi - row.fetched;
    out       = row.count - recvs_freed;
    unparsed  = row.count - recvs_parsed;
    // Not backwards, and not more than the queue has behind the oldest that is not complete.
    pi_good = row.on && 16'(pi_q - row.fetched) >= avail && 17'(16'(pi_q - row.fetched)) + 17'(out) <= 17'(mask) + 17'd1;
    room_recv = 16'd128 - out;
    sge_room  = 16'd256 - 16'(9'(sge_tail_row - sges_freed)) - 16'd7 * unparsed;
    addr      = row.base + 57'(row.fetched & mask);
    // 1 to 4: not over the ring's end, nor over that of a page.
    count = 3'd0;
    for (int unsigned i = 1; i <= 4; i++)
      if (16'(i) <= avail && 16'(i) <= room_recv && !room_recv[15] && !sge_room[15] && 16'(7 * i) <= sge_room
          && 17'(row.fetched & mask) + 17'(i) <= 17'(mask) + 17'd1 && 6'(addr[4:0]) + 6'(i) <= 6'd32)
        count = 3'(i);
    fetch_ok = row.on && count != 3'd0 && !dead_q[q_q];
    // A batch ends with its doorbell (decision 5), or where the card is full.
    last  = 16'(count) == avail || 16'(count) == room_recv || sge_room < 16'd7 * (16'(count) + 16'd1);
    again = fetch_ok && 16'(count) != avail;
    case (state_q)
      BELL: begin
        we   = pi_good;
        r.pi = pi_q;
      end
      FETCH: begin
        we        = fetch_ok;
        r.fetched = row.fetched + 16'(count);
        r.count   = row.count + 16'(count);
      end
      START: begin
        we = 1'b1;
        r  = {1'b1, cmd.message, cmd.base[63:7], cmd.log2, cmd.ci, cmd.ci, 16'd0};
      end
      default: ;
    endcase
  end

  berth_fp_mem #(
      .WIDTH($bits(r)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_rows (
      .clk,
      .we(we),
      .waddr(q_q),
      .wdata(r),
      .re(state_q == IDLE),
      .raddr(at),
      .rdata(row)
  );
  berth_fp_mem #(
      .WIDTH(25),
      .DEPTH(QPS)
  ) m_freed (
      .clk,
      .we(freed_we),
      .waddr(freed_q),
      .wdata({freed.recvs, freed.sges}),
      .re(state_q == IDLE),
      .raddr(at),
      .rdata({recvs_freed, sges_freed})
  );
  berth_fp_mem #(
      .WIDTH(25),
      .DEPTH(QPS)
  ) m_parsed (
      .clk,
      .we(parsed_we),
      .waddr(parsed_q),
      .wdata({parsed, parsed_tail}),
      .re(state_q == IDLE),
      .raddr(at),
      .rdata({recvs_parsed, sge_tail_row})
  );

  berth_fp_ready #(
      .QPS(QPS),
      .SETS(3)
  ) ready (
      .clk,
      .rst,
      .set({freed_we, parsed_we && pend_we, (state_q == BELL && pi_good) || (state_q == FETCH && again)}),
      .set_q({freed_q, parsed_q, q_q}),
      .valid(ready_valid),
      .q(ready_q),
      .pop(ready_pop),
      .busy(ready_busy)
  );

  logic [QW+4:0] tag_info[READS];   // {q, message, last, elements - 1}
  always_ff @(posedge clk) begin
    if (qr_ready) qr_valid <= 1'b0;
    case (state_q)
      IDLE: begin
        q_q  <= at;
        pi_q <= rdb_pi;
        if (cmd_valid && cmd.ask) state_q <= ASK;
        else if (cmd_valid) begin
          if (parse_idle && alloc_q == tail_q) state_q <= START;
        end else if (rdb_valid) state_q <= BELL;
        else if (ready_pop) state_q <= FETCH;
      end
      FETCH: begin
        state_q <= IDLE;
        if (fetch_ok) begin
          qr_valid <= 1'b1;
          qr.addr  <= {addr, 7'd0};
          qr.len   <= {count, 7'd0};
          qr.tag   <= 8'(alloc_q[TW-1:0]);
          alloc_q  <= alloc_q + 1'b1;
          tag_info[alloc_q[TW-1:0]] <= {q_q, row.message, last, 3'(count - 3'd1)};
        end
      end
      ASK: begin
        state_q   <= IDLE;
        st_fetching <= row.on && !dead_q[q_q] && (avail != '0 || unparsed != '0);
        st_open   <= avail + out;
      end
      default: state_q <= IDLE;
    endcase
    if (rst) begin
      state_q  <= IDLE;
      qr_valid <= 1'b0;
      alloc_q  <= '0;
    end
  end
  assign tags_full    = alloc_q - tail_q == (TW + 1)'(READS);
  assign ev_bad_index = state_q == BELL && !pi_good;

  // ---- elements as they come ------------------------------------------------------------------
  logic [READS-1:0] there_q, bad_q;
  always_ff @(posedge clk) begin
    if (drop_tag) dead_q[b_q] <= 1'b1;
    if (wild) wild_q[q_q] <= 1'b1;
    if (state_q == START) begin
      dead_q[cmd_q] <= 1'b0;
      wild_q[cmd_q] <= 1'b0;
    end
    if (rst) begin
      dead_q <= '0;
      wild_q <= '0;
    end
  end
  logic [HOST_W-1:0] word;
  logic [127:0] part;
  berth_wqe_pkg::wqe_header_t header;
  berth_wqe_pkg::sge_t range;
  logic part_re;
  logic [TW+4:0] part_at;     // 16-byte part in the buffer
  logic [2:0] lane_q;
  berth_ram #(
      .WIDTH(HOST_W),
      .DEPTH(READS * 512 / (HOST_W / 8))
  ) buffer (
      .clk,
      .we(qc_valid),
      .waddr({qc.tag[TW-1:0], qc.off[8:HB]}),
      .wdata(qc_data),
      .wstrb('1),
      .re(part_re),
      .raddr((TW + 9 - HB)'(part_at >> (HB - 4))),
      .rdata(word)
  );
  always_comb begin
    part = word[127:0];
    for (int unsigned i = 0; i < LANES; i++) if (lane_q == 3'(i)) part = word[128*i+:128];
  end
  assign header = part;
  assign range  = part;

  // ---- parse: header, ranges, end -----------------------------------------------------------------
  typedef enum logic [1:0] {P_IDLE, P_HEADER, P_SGE, P_END} parse_t;
  parse_t p_state_q;
  logic first_q, wqe_bad_q, b_last, b_message, drop_tag, wqe_last;
  logic [QW-1:0] b_q;
  logic [2:0] b_count, wqe_q, n_q, ranges_q;    // b_count: elements of the read - 1
  logic [3:0] k_q;                              // next part
  logic [63:0] wr_id_q;
  logic [31:0] length_q;
  logic [34:0] sum_q;
  logic [24:0] pushed;
  logic [15:0] parsed_now_q;
  logic [8:0] sge_tail_q, sge_start_q, parsed_tail;
  logic start_tag, size_bad, wqe_bad, is_local;

  assign {b_q, b_message, b_last, b_count} = tag_info[tail_q[TW-1:0]];
  assign start_tag  = p_state_q == P_IDLE && state_q != BELL && alloc_q != tail_q && there_q[tail_q[TW-1:0]] && state_q != START;
  assign drop_tag   = start_tag && (bad_q[tail_q[TW-1:0]] || dead_q[b_q]);
  assign parse_idle = p_state_q == P_IDLE;
  assign part_re    = 1'b1;
  always_comb begin
    part_at = {tail_q[TW-1:0], 2'd0, 3'd0};
    case (p_state_q)
      P_HEADER: part_at = {tail_q[TW-1:0], wqe_q[1:0], 3'd1};
      P_SGE:    part_at = {tail_q[TW-1:0], wqe_q[1:0], k_q[2:0]};
      P_END:    part_at = {tail_q[TW-1:0], wqe_q[1:0] + 2'd1, 3'd0};
      default:  ;
    endcase
  end
  assign sge.va   = range.va;
  assign sge.len  = range.len;
  assign sge_we   = p_state_q == P_SGE && sge.len != '0;
  assign sge_at   = {b_q, sge_tail_q[7:0]};
  assign size_bad = sum_q != 35'(length_q) || length_q > 32'h8000_0000;
  assign wqe_bad  = wqe_bad_q || size_bad;
  assign is_local = wqe_bad || (length_q == '0 && !b_message);
  assign wqe_last = wqe_q == b_count;

  assign pend_we     = p_state_q == P_END;
  assign pend_at     = {b_q, parsed_now_q[6:0]};
  assign pend.wr_id  = wr_id_q;
  assign pend.size   = wqe_bad ? 32'd0 : length_q;
  assign pend.sge    = sge_start_q[7:0];
  assign pend.sges   = wqe_bad ? 3'd0 : ranges_q;
  assign pend.last   = b_last && wqe_last;
  assign pend.apart  = is_local;
  assign pend.bad    = wqe_bad;
  assign parsed_we   = pend_we || state_q == START;
  assign parsed_q    = state_q == START ? cmd_q : b_q;
  assign parsed      = state_q == START ? 16'd0 : parsed_now_q + 16'd1;
  assign parsed_tail = state_q == START ? 9'd0 : wqe_bad ? sge_start_q : sge_tail_q;
  assign ev_bad_wqe  = pend_we && wqe_bad;
  logic unread, wild;
  assign unread     = drop_tag && !dead_q[b_q];
  assign wild       = ev_bad_index && row.on && !wild_q[q_q];
  assign lost_valid = unread || wild;
  assign lost_index = !unread;
  assign lost_q     = unread ? b_q : q_q;
  assign lost_pi    = pi_q;

  // For the parser itself.
  berth_fp_mem #(
      .WIDTH(25),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_pushed (
      .clk,
      .we(parsed_we),
      .waddr(parsed_q),
      .wdata({parsed, parsed_tail}),
      .re(start_tag),
      .raddr(b_q),
      .rdata(pushed)
  );

  always_ff @(posedge clk) begin
    lane_q <= 3'(part_at & (TW + 5)'(LANES - 1));
    if (qc_valid) begin
      if (qc.last) there_q[qc.tag[TW-1:0]] <= 1'b1;
      if (qc.err) bad_q[qc.tag[TW-1:0]] <= 1'b1;
    end
    case (p_state_q)
      P_IDLE: begin
        wqe_q   <= '0;
        first_q <= 1'b1;
        if (start_tag && !drop_tag) p_state_q <= P_HEADER;
      end
      P_HEADER: begin
        first_q   <= 1'b0;
        n_q       <= header.num_sge[2:0];
        k_q       <= 4'd2;
        length_q  <= header.length;
        wr_id_q   <= header.wr_id;
        sum_q     <= '0;
        ranges_q  <= '0;
        wqe_bad_q <= header.opcode != OP_RECV || header.flags != '0 || header.num_sge > 16'(MAX_SGE);
        if (first_q) begin
          parsed_now_q <= pushed[24:9];
          sge_tail_q   <= pushed[8:0];
          sge_start_q  <= pushed[8:0];
        end else sge_start_q <= sge_tail_q;
        p_state_q <= header.num_sge == '0 || header.num_sge > 16'(MAX_SGE) ? P_END : P_SGE;
      end
      P_SGE: begin
        k_q <= k_q + 4'd1;
        sum_q <= sum_q + 35'(sge.len);
        if (sge.len != '0) begin
          sge_tail_q <= sge_tail_q + 9'd1;
          ranges_q   <= ranges_q + 3'd1;
        end
        // no reserved bits, no range over the end of the address space
        if (range.reserved != '0 || (65'(sge.va) + 65'(sge.len)) >> 64 != '0) wqe_bad_q <= 1'b1;
        if (k_q == 4'(n_q) + 4'd1) p_state_q <= P_END;
      end
      default: begin
        parsed_now_q <= parsed_now_q + 16'd1;
        if (wqe_bad) sge_tail_q <= sge_start_q;
        wqe_q     <= wqe_q + 3'd1;
        p_state_q <= wqe_last ? P_IDLE : P_HEADER;
      end
    endcase
    if (drop_tag || (pend_we && wqe_last)) begin
      there_q[tail_q[TW-1:0]] <= 1'b0;
      bad_q[tail_q[TW-1:0]]   <= 1'b0;
      tail_q <= tail_q + 1'b1;
    end
    if (rst) begin
      p_state_q <= P_IDLE;
      there_q   <= '0;
      bad_q     <= '0;
      tail_q    <= '0;
    end
  end
  assign busy = state_q != IDLE || rdb_valid || ready_busy || alloc_q != tail_q || qr_valid;

  wire unused = &{1'b0, cmd, qc};

  // Fetched elements have room.
  always_ff @(posedge clk)
    if (!rst && state_q == FETCH && fetch_ok) assert (out + 16'(count) <= 16'd128);
endmodule
