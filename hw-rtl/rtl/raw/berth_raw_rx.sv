// SPDX-License-Identifier: Apache-2.0 OR MIT
// Raw queues, in: places each frame in the oldest receive of its queue, completes the receive, and gives the frame's slot
// back, or to the core if that is to have the frame, too. A frame that finds no receive, or is longer than it, is dropped.
// Frames wait only for receives that are posted and not fetched yet, and for writes; one that comes while as many wait as
// may is dropped, because on the wire others stand behind it.
module berth_raw_rx #(
    parameter int unsigned QUEUES = berth_regs_pkg::RAW_QUEUES,
    parameter int unsigned SLOTS  = 12,                           // receive slots that may be held, up to 15 ...
    parameter int unsigned ALL    = berth_regs_pkg::RX_SLOTS - 1, // ... together with the core's
    parameter int unsigned QW     = $clog2(QUEUES)
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic [8*QUEUES-1:0]          cqns,
    output logic [QUEUES-1:0]            busy,        // frames for it are under way
    // Frames for queues: taken, or dropped.
    input  logic                         frame_valid,
    input  logic [QW-1:0]                frame_q,
    input  berth_card_pkg::frame_t       frame,
    input  logic                         frame_both,  // to the core afterwards
    output logic                         frame_taken,
    input  logic [4:0]                   core_n,      // slots of the core
    // Slots that are given back, or to the core.
    output logic                         free_valid,
    output logic                         free_core,
    input  logic                         free_ready,
    output berth_card_pkg::frame_t       free,
    // Receive rings (see berth_raw_ring).
    input  logic [QUEUES-1:0]            there,
    input  logic [QUEUES-1:0]            posted,
    output logic                         take,
    output logic [QW-1:0]                take_q,
    input  berth_card_pkg::raw_element_t el,
    output logic                         pop,
    output logic [QW-1:0]                pop_q,
    // Writes to memory, and their ends, in their order.
    output logic                         store_valid,
    input  logic                         store_ready,
    output berth_card_pkg::payload_t     store,
    input  logic                         stored_valid,
    input  berth_card_pkg::payload_end_t stored,
    // Completions.
    output logic                         done_valid,
    input  logic                         done_ready,
    output berth_card_pkg::completion_t  done,
    // Pulses for the counters.
    output logic                         ev_received,
    output logic                         ev_no_receive,
    output logic                         ev_too_long,
    output logic [1:0]                   ev_bad
);
  // ---- Frames that wait ---------------------------------------------------------------------------------------------
  berth_card_pkg::raw_frame_t head, in;
  logic head_valid, head_pop, head_room;
  logic [4:0] held_q;               // slots
  always_comb begin
    in       = '0;
    in.core   = frame_both;
    in.flags  = frame.flags;
    in.number = 2'(frame_q);
    in.place  = frame.place;
    in.len    = frame.len;
  end
  assign frame_taken = frame_valid && held_q < 5'(SLOTS) && 6'(held_q) + 6'(core_n) < 6'(ALL);
  berth_lutfifo #(.WIDTH($bits(in)), .DEPTH(16)) frames (
      .clk, .rst, .wr_valid(frame_taken), .wr_ready(head_room), .wr_data(in),
      .rd_valid(head_valid), .rd_ready(head_pop), .rd_data(head)
  );
  wire [QW-1:0] q = head.number[QW-1:0];

  // ---- The receive that the frame finds -----------------------------------------------------------------------------
  typedef enum logic [2:0] {IDLE, READ, SUM, JUDGE, DECIDE, STORE} state_t;
  state_t state_q;
  logic form_q, good_q, long_q, e_failed_q;
  logic [15:0] e_count_q;
  berth_wqe_pkg::raw_wqe_t e_q;
  logic [33:0] sum_q;
  wire two = e_q.num_sge >= 16'd2, three = e_q.num_sge >= 16'd3;
  wire form = e_q.opcode == berth_regs_pkg::OP_RECV[7:0] && e_q.flags == 8'd0
      && e_q.num_sge != 16'd0 && e_q.num_sge <= berth_regs_pkg::RAW_SGES[15:0]
      && e_q.length != 32'd0 && e_q.length <= berth_regs_pkg::RAW_RECEIVE_BYTES
      && e_q.sge_0.len != 32'd0 && e_q.sge_0.reserved == 32'd0
      && (!two || (e_q.sge_1.len != 32'd0 && e_q.sge_1.reserved == 32'd0))
      && (!three || (e_q.sge_2.len != 32'd0 && e_q.sge_2.reserved == 32'd0));
  wire none = state_q == IDLE && head_valid && !there[q] && !posted[q];
  assign take   = state_q == IDLE && head_valid && there[q];
  assign take_q = q;

  // ---- What is on its way: a frame, or a malformed receive that only completes -----------------------------------------
  localparam int unsigned INFO = 1 + 1 + QW + 64 + 16 + 1 + 3 + 13 + 18;
  logic fly_room, fly_put, fly_valid, fly_pop, f_bare, f_failed, f_core;
  logic [QW-1:0] f_q;
  logic [63:0] f_id;
  logic [15:0] f_count;
  logic [2:0]  f_flags, flags_q;
  logic [12:0] f_len, len_q;
  logic [17:0] f_place, place_q;
  wire bare = state_q == DECIDE && !good_q;
  wire drops = state_q == DECIDE && good_q && long_q;
  wire goes = state_q == DECIDE && good_q && !long_q;
  wire bare_go = bare && fly_room;
  wire last = 32'(len_q) <= e_q.sge_0.len;
  wire store_go = store_valid && store_ready;
  assign fly_put = bare_go || (store_go && last);
  berth_lutfifo #(.WIDTH(INFO), .DEPTH(16)) flies (
      .clk, .rst, .wr_valid(fly_put), .wr_ready(fly_room),
      .wr_data({state_q == DECIDE, e_failed_q, q_q, e_failed_q ? 64'd0 : e_q.wr_id, e_count_q,
                core_q, flags_q, state_q == DECIDE ? 13'd0 : whole_q, slot_q}),
      .rd_valid(fly_valid), .rd_ready(fly_pop),
      .rd_data({f_bare, f_failed, f_q, f_id, f_count, f_core, f_flags, f_len, f_place})
  );
  logic core_q;
  logic [QW-1:0] q_q;
  logic [12:0] whole_q;
  logic [17:0] slot_q;

  assign pop   = bare_go || goes;
  assign pop_q = q_q;

  // ---- Writes -------------------------------------------------------------------------------------------------------------
  assign store_valid = state_q == STORE && fly_room;
  always_comb begin
    store       = '0;
    store.bus   = 1'b1;
    store.place = place_q;
    store.len   = last ? len_q : e_q.sge_0.len[12:0];
    store.va    = e_q.sge_0.va;
    store.tag   = {2'b11, 5'd0, last};
  end
  wire end_last = stored_valid && stored.tag[0];
  wire end_bad = stored.status != 2'd0 || bad_q;
  logic bad_q, ended_valid, ended_bad, ended_pop, ended_room;   // bad_q: of the frame whose writes end now
  berth_lutfifo #(.WIDTH(1), .DEPTH(16)) ends (
      .clk, .rst, .wr_valid(end_last), .wr_ready(ended_room), .wr_data(end_bad),
      .rd_valid(ended_valid), .rd_ready(ended_pop), .rd_data(ended_bad)
  );

  // ---- Ends: a drop gives its slot back first ---------------------------------------------------------------------------
  wire drop = none || drops;
  wire ready = fly_valid && (f_bare || ended_valid);
  logic told_q, freed_q;            // of what is at hand the completion is out, the slot is free
  assign done_valid = ready && !told_q;
  berth_wqe_pkg::cqe_t cqe;
  always_comb begin
    done.cqn     = cqns[8*f_q+:8];
    cqe          = '0;
    cqe.wr_id    = f_id;
    cqe.byte_len = 32'(f_len);
    cqe.qpn      = berth_regs_pkg::RAW_QPN + 32'(f_q);
    cqe.status   = f_bare && !f_failed ? berth_regs_pkg::WC_BAD_WQE[7:0]
                 : f_bare || ended_bad ? berth_regs_pkg::WC_LOCAL_PROTECTION[7:0] : berth_regs_pkg::WC_OK[7:0];
    cqe.opcode   = berth_regs_pkg::OP_RECV[7:0];
    cqe.credit   = 32'(f_count);
    done.words   = cqe[7*32-1:0];
  end
  wire frees = ready && !freed_q && !f_bare;
  assign free_valid = drop || frees;
  assign free_core  = drop ? head.core : f_core;
  always_comb begin
    free.place = drop ? head.place : f_place;
    free.len   = drop ? head.len : f_len;
    free.flags = drop ? head.flags : f_flags;
  end
  wire dropped = drop && free_ready;
  wire free_go = frees && !drop && free_ready;
  wire tells   = done_valid && done_ready;
  assign fly_pop   = ready && (told_q || tells) && (f_bare || freed_q || free_go);
  assign ended_pop = fly_pop && !f_bare;
  assign head_pop  = dropped || goes;
  assign ev_received = fly_pop && !f_bare && !ended_bad;
  assign ev_bad      = 2'(fly_pop && (f_bare || ended_bad));
  assign ev_no_receive = none && free_ready;
  assign ev_too_long   = drops && free_ready;

  logic [4:0] n_q[QUEUES];          // frames and such receives
  always_comb for (int unsigned i = 0; i < QUEUES; i++) busy[i] = n_q[i] != '0;

  always_ff @(posedge clk) begin
    unique case (state_q)
      IDLE: begin
        q_q     <= q;
        place_q <= head.place;
        slot_q  <= head.place;
        core_q  <= head.core;
        flags_q <= head.flags;
        len_q   <= head.len;
        whole_q <= head.len;
        if (take) state_q <= READ;
      end
      READ: begin
        e_q        <= el.wqe;
        e_count_q  <= el.count;
        e_failed_q <= el.failed;
        state_q    <= SUM;
      end
      SUM: begin
        form_q  <= form;
        long_q  <= 32'(len_q) > e_q.length;
        sum_q   <= 34'(e_q.sge_0.len) + (two ? 34'(e_q.sge_1.len) : 34'd0) + (three ? 34'(e_q.sge_2.len) : 34'd0);
        state_q <= JUDGE;
      end
      JUDGE: begin
        good_q  <= form_q && sum_q == 34'(e_q.length) && !e_failed_q;
        state_q <= DECIDE;
      end
      DECIDE:
        if (goes) state_q <= STORE;
        else if (bare_go || (drops && free_ready)) state_q <= IDLE;
      default:
        if (store_go) begin
          len_q     <= len_q - store.len;
          place_q   <= place_q + 18'(store.len);
          e_q.sge_0 <= e_q.sge_1;
          e_q.sge_1 <= e_q.sge_2;
          if (last) state_q <= IDLE;
        end
    endcase
    if (stored_valid) bad_q <= !stored.tag[0] && end_bad;
    if (tells) told_q <= 1'b1;
    if (free_go) freed_q <= 1'b1;
    if (fly_pop) {told_q, freed_q} <= 2'b00;
    held_q <= held_q + 5'(frame_taken) - 5'(free_valid && free_ready);
    for (int unsigned i = 0; i < QUEUES; i++)
      n_q[i] <= n_q[i] + 5'(frame_taken && frame_q == QW'(i)) + 5'(bare_go && q_q == QW'(i)) - 5'(dropped && q == QW'(i))
              - 5'(fly_pop && f_q == QW'(i));
    if (rst) begin
      state_q <= IDLE;
      bad_q   <= 1'b0;
      told_q  <= 1'b0;
      freed_q <= 1'b0;
      held_q  <= '0;
      for (int unsigned i = 0; i < QUEUES; i++) n_q[i] <= '0;
    end
  end

  // There is room for all that may be under way; the list of a receive is as long as the receive.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!frame_taken || head_room);
      assert (!end_last || ended_room);
      assert (!store_valid || e_q.sge_0.len != 32'd0);
    end
  wire unused = &{1'b0, stored, head, e_q, cqe.phase};
endmodule
