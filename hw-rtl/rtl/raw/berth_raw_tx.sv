// SPDX-License-Identifier: Apache-2.0 OR MIT
// Raw queues, out: takes elements of the send rings in turn, checks them, has their ranges read side by side into the raw
// transmit RAM, gives the frames to the MAC, and completes the elements, all in one order.
//
//   rings -- check -- table of frames, reads -- all read: MAC -- has left: completion, room is given back
//
// The RAM is a ring of bytes in which frames begin at multiples of 64; it is addressed modulo its size.
module berth_raw_tx #(
    parameter int unsigned QUEUES = berth_regs_pkg::RAW_QUEUES,      // a power of two
    parameter int unsigned FRAMES = berth_regs_pkg::RAW_ELEMENTS,    // frames under way, a power of two up to 32
    parameter int unsigned BYTES  = berth_regs_pkg::RAW_SEND_BYTES,  // of the transmit RAM, a power of two
    parameter int unsigned QW     = $clog2(QUEUES)
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic [8*QUEUES-1:0]          cqns,
    output logic [QUEUES-1:0]            busy,       // frames of it are under way
    // Send rings.
    input  logic [QUEUES-1:0]            there,
    output logic                         take,       // and it is used up
    output logic [QW-1:0]                take_q,
    input  berth_card_pkg::raw_element_t el,
    // Reads of memory, and their ends.
    output logic                         load_valid,
    input  logic                         load_ready,
    output berth_card_pkg::payload_t     load,
    input  logic                         loaded_valid,
    input  berth_card_pkg::payload_end_t loaded,
    // Frames for the MAC; one has left.
    output logic                         ws_valid,
    input  logic                         ws_ready,
    output berth_card_pkg::frame_out_t   ws,
    input  logic                         wl_valid,
    // Completions.
    output logic                         done_valid,
    input  logic                         done_ready,
    output berth_card_pkg::completion_t  done,
    // Pulses for the counters.
    output logic                         ev_sent,
    output logic                         ev_bad
);
  localparam int unsigned FW = $clog2(FRAMES);
  localparam int unsigned UW = $clog2(BYTES) - 6;     // units of 64 bytes
  // Behind the fast path's frames. Their ends may lie past the ring's.
  localparam logic [17:0] PLACE = 18'h3_0000;
  initial if (FRAMES > 32 || BYTES > 32768) $fatal(1, "berth_raw_tx: up to 32 frames in 32 KiB");

  // ---- An element ---------------------------------------------------------------------------------------------------
  typedef enum logic [2:0] {IDLE, READ, SUM, JUDGE, PLACING, LOAD} state_t;
  state_t state_q;
  logic [QW-1:0] q_q, next_q;
  logic any, e_failed_q, form_q, good_q;
  logic [15:0] e_count_q;
  berth_wqe_pkg::raw_wqe_t e_q;
  logic [33:0] sum_q;
  always_comb begin
    any    = 1'b0;
    take_q = next_q;
    for (int unsigned i = QUEUES; i > 0; i--)
      if (there[next_q + QW'(i - 1)]) begin
        any    = 1'b1;
        take_q = next_q + QW'(i - 1);
      end
  end
  assign take = state_q == IDLE && any;

  wire two = e_q.num_sge >= 16'd2, three = e_q.num_sge >= 16'd3;
  wire form = e_q.opcode == berth_regs_pkg::OP_SEND[7:0] && (e_q.flags & ~berth_regs_pkg::SEND_UNSIGNALLED[7:0]) == 8'd0
      && e_q.num_sge != 16'd0 && e_q.num_sge <= berth_regs_pkg::RAW_SGES[15:0]
      && e_q.length >= berth_regs_pkg::RAW_LEAST_BYTES && e_q.length <= berth_regs_pkg::RAW_FRAME_BYTES
      && e_q.sge_0.len != 32'd0 && e_q.sge_0.reserved == 32'd0
      && (!two || (e_q.sge_1.len != 32'd0 && e_q.sge_1.reserved == 32'd0))
      && (!three || (e_q.sge_2.len != 32'd0 && e_q.sge_2.reserved == 32'd0));

  // ---- The table of frames: [done, mac) are given to the MAC, or are to be skipped; [mac, put) are being read ----------
  logic [FW:0] put_q, mac_q, done_q;
  logic [1:0] left_q[FRAMES];          // reads of each that are under way or to come
  logic [FRAMES-1:0] failed_q;         // one of them has failed, or there are none
  localparam int unsigned INFO = QW + 2 + 1 + 64 + 13 + 16;
  logic [INFO-1:0] infos[FRAMES];
  logic [UW+13-1:0] spans[FRAMES];
  logic [UW:0] free_q;                 // units
  logic [UW-1:0] unit_q;               // next one
  wire [UW:0] units = (UW+1)'((e_q.length[12:0] + 13'd63) >> 6);
  wire put_room = (FW+1)'(put_q - done_q) != (FW+1)'(FRAMES);
  wire put_go = state_q == PLACING && put_room && (!good_q || free_q >= units);
  wire [FW-1:0] put_at = put_q[FW-1:0];

  // ---- Reads: of the frame that was put last ---------------------------------------------------------------------------
  logic [1:0] range_q;                 // ranges that are left
  logic [17:0] place_q;
  berth_wqe_pkg::sge_t first_q, second_q, third_q;
  logic [FW-1:0] tag_q;
  always_comb begin
    load       = '0;
    load.bus   = 1'b1;
    load.place = place_q;
    load.len   = first_q.len[12:0];
    load.va    = first_q.va;
    load.tag   = {2'b11, 6'(tag_q)};
  end
  assign load_valid = state_q == LOAD;
  wire [FW-1:0] end_at = loaded.tag[FW-1:0];

  // ---- To the MAC, in order -----------------------------------------------------------------------------------------
  logic look_q;                        // what is known of the frame at hand is from the clock before
  logic none_q, fail_q;
  wire [FW-1:0] mac_at = mac_q[FW-1:0];
  wire [UW+13-1:0] span = spans[mac_at];
  wire mac_there = mac_q != put_q && look_q && none_q;
  assign ws_valid = mac_there && !fail_q;
  always_comb begin
    ws       = '0;
    ws.place = PLACE + 18'({span[13+:UW], 6'd0});
    ws.len   = span[12:0];
  end
  wire mac_go = mac_there && (fail_q || ws_ready);

  // ---- Completions, in order -------------------------------------------------------------------------------------------
  logic [FW:0] gone_q;                 // frames that have left and are not complete
  wire [FW-1:0] done_at = done_q[FW-1:0];
  logic shown_q;
  logic [QW-1:0] i_q;
  logic [1:0] i_bad;                   // 1: malformed, 2: not read
  logic i_quiet;
  logic [63:0] i_id;
  logic [12:0] i_len;
  logic [15:0] i_count;
  assign {i_q, i_bad, i_quiet, i_id, i_len, i_count} = infos[done_at];
  wire i_failed = failed_q[done_at];
  wire ready = done_q != mac_q && shown_q && (i_failed || gone_q != '0);
  wire tells = i_failed || !i_quiet;
  wire done_go = ready && (!tells || done_ready);
  assign done_valid = ready && tells;
  berth_wqe_pkg::cqe_t cqe;
  always_comb begin
    done.cqn     = cqns[8*i_q+:8];
    cqe          = '0;
    cqe.wr_id    = i_id;
    cqe.byte_len = 32'(i_len);
    cqe.qpn      = berth_regs_pkg::RAW_QPN + 32'(i_q);
    cqe.status   = i_bad[0] ? berth_regs_pkg::WC_BAD_WQE[7:0] : i_failed ? berth_regs_pkg::WC_LOCAL_PROTECTION[7:0]
                 : berth_regs_pkg::WC_OK[7:0];
    cqe.opcode   = berth_regs_pkg::OP_SEND[7:0];
    cqe.credit   = 32'(i_count);
    done.words   = cqe[7*32-1:0];
  end
  assign ev_bad  = done_go && i_failed;
  assign ev_sent = done_go && !i_failed;

  logic [FW+1:0] n_q[QUEUES];          // frames of each queue, that at hand included
  always_comb for (int unsigned q = 0; q < QUEUES; q++) busy[q] = n_q[q] != '0;

  always_ff @(posedge clk) begin
    unique case (state_q)
      IDLE: begin
        q_q <= take_q;
        if (any) begin
          state_q <= READ;
          next_q  <= take_q + 1'b1;
        end
      end
      READ: begin
        e_q        <= el.wqe;
        e_count_q  <= el.count;
        e_failed_q <= el.failed;
        state_q    <= SUM;
      end
      SUM: begin
        form_q  <= form;
        sum_q   <= 34'(e_q.sge_0.len) + (two ? 34'(e_q.sge_1.len) : 34'd0) + (three ? 34'(e_q.sge_2.len) : 34'd0);
        state_q <= JUDGE;
      end
      JUDGE: begin
        good_q  <= form_q && sum_q == 34'(e_q.length) && !e_failed_q;
        state_q <= PLACING;
      end
      PLACING: begin
        {third_q, second_q, first_q} <= {e_q.sge_2, e_q.sge_1, e_q.sge_0};
        range_q <= e_q.num_sge[1:0];
        place_q <= PLACE + 18'({unit_q, 6'd0});
        tag_q   <= put_at;
        if (put_go) begin
          put_q <= put_q + 1'b1;
          infos[put_at] <= {q_q, e_failed_q, !good_q && !e_failed_q,
                            (e_q.flags & berth_regs_pkg::SEND_UNSIGNALLED[7:0]) != 8'd0, e_failed_q ? 64'd0 : e_q.wr_id,
                            e_failed_q || !good_q ? 13'd0 : e_q.length[12:0], e_count_q};
          spans[put_at] <= {unit_q, e_q.length[12:0]};
          unit_q  <= good_q ? unit_q + UW'(units) : unit_q;
          state_q <= good_q ? LOAD : IDLE;
        end
      end
      default:
        if (load_ready) begin
          {second_q, first_q} <= {third_q, second_q};
          range_q <= range_q - 2'd1;
          place_q <= place_q + 18'(first_q.len[12:0]);
          if (range_q == 2'd1) state_q <= IDLE;
        end
    endcase
    if (loaded_valid) begin
      left_q[end_at] <= left_q[end_at] - 2'd1;
      if (loaded.status != 2'd0) failed_q[end_at] <= 1'b1;
    end
    if (put_go) begin
      left_q[put_at]   <= good_q ? e_q.num_sge[1:0] : 2'd0;
      failed_q[put_at] <= !good_q;
    end
    free_q <= free_q - (put_go && good_q ? units : '0) + (done_go ? (UW+1)'((i_len + 13'd63) >> 6) : '0);

    look_q  <= mac_q != put_q && !mac_go;
    none_q  <= left_q[mac_at] == 2'd0;
    fail_q  <= failed_q[mac_at];
    if (mac_go) mac_q <= mac_q + 1'b1;
    shown_q <= done_q != mac_q && !done_go;
    if (done_go) done_q <= done_q + 1'b1;
    gone_q  <= gone_q + (FW+1)'(wl_valid) - (FW+1)'(done_go && !i_failed);
    for (int unsigned q = 0; q < QUEUES; q++)
      n_q[q] <= n_q[q] + (FW+2)'(take && take_q == QW'(q)) - (FW+2)'(done_go && i_q == QW'(q));
    if (rst) begin
      state_q <= IDLE;
      next_q  <= '0;
      put_q   <= '0;
      mac_q   <= '0;
      done_q  <= '0;
      look_q  <= 1'b0;
      shown_q <= 1'b0;
      gone_q  <= '0;
      unit_q  <= '0;
      free_q  <= (UW+1)'(1 << UW);
      for (int unsigned q = 0; q < QUEUES; q++) n_q[q] <= '0;
    end
  end

  // A read ends for a frame that waits for it; frames leave that were given.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!loaded_valid || left_q[end_at] != 2'd0);
      assert (!wl_valid || done_q != mac_q);
      assert (free_q <= (UW+1)'(1 << UW));
    end
  wire unused = &{1'b0, loaded, e_q, i_bad[1], first_q, cqe.phase};
endmodule
