// SPDX-License-Identifier: Apache-2.0 OR MIT
// Placement: cuts the payload of one packet along the scatter list of its receive into write commands, and tells
// arrival when the last of them is done. Two clocks per range of the list that is looked at. That of a WRITE is one command, and
// so is each part of an answer to a READ: these are given one after the other, and what is told is the end of the last.
module berth_fp_scatter #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS),
    // Write commands on their way, a power of two, at most 256.
    parameter int unsigned FLYING = 64
) (
    input  logic                         clk,
    input  logic                         rst,
    output logic                         busy,
    // Payloads, as `berth_fp_arrival` gives them.
    input  logic                         place_valid,
    output logic                         place_ready,
    input  logic [QW-1:0]                place_q,
    input  berth_card_pkg::placement_t   place,
    // Ranges of scatter lists: see `berth_fp_sges`.
    output logic                         place_re,
    output logic [QW+7:0]                place_at,
    input  berth_card_pkg::range_t       place_sge,
    // Write commands, and that they are done, in their order.
    output logic                         store_valid,
    input  logic                         store_ready,
    output berth_card_pkg::payload_t     store,
    input  logic                         stored_valid,
    input  berth_card_pkg::payload_end_t stored,
    // Packets in place, or failed.
    output logic                         placed_valid,
    input  logic                         placed_ready,
    output logic [QW-1:0]                placed_q,
    output logic [23:0]                  placed_psn,
    output logic                         placed_err,
    output logic                         put_over_valid,     // an answer, instead: it is taken at once
    // Their frames.
    output logic                         pl_free_valid,
    output logic [17:0]                  pl_free_place,
    // Payloads that were given before `fence` are in place, or failed.
    input  logic                         fence,
    output logic                         fenced
);
  localparam int unsigned TW = $clog2(FLYING);

  logic [QW-1:0] head_q, q_q;
  berth_card_pkg::placement_t head, p_q;
  logic head_valid, head_pop;
  berth_lutfifo #(
      .WIDTH(QW + $bits(place)),
      .DEPTH(16)
  ) queue (
      .clk,
      .rst,
      .wr_valid(place_valid),
      .wr_ready(place_ready),
      .wr_data({place_q, place}),
      .rd_valid(head_valid),
      .rd_ready(head_pop),
      .rd_data({head_q, head})
  );

  // ---- walk along the list -------------------------------------------------------------
  logic look_q, go, begin_now, hits, over, fly_room;
  logic [31:0] room;
  logic [12:0] part;
  logic [TW-1:0] tag_q;
  logic read_q;      // the next range is being read

  berth_card_pkg::range_t range;
  assign range     = p_q.write ? {p_q.va, 19'd0, p_q.len} : place_sge;
  assign hits    = p_q.offset < range.len;
  assign room      = range.len - p_q.offset;
  assign part      = 32'(p_q.len) < room ? p_q.len : room[12:0];
  assign go        = look_q && (!hits || ((!store_valid || store_ready) && fly_room));
  // The list is at least as long as the credit said, so that it does not end before the packet.
  assign over      = (hits && part == p_q.len) || p_q.sges == 3'd1;
  assign begin_now = head_valid && !read_q && (!look_q || (go && over));
  assign head_pop  = begin_now;
  assign place_re    = begin_now || read_q;
  assign place_at    = begin_now ? {head_q, head.sge} : {q_q, p_q.sge};
  assign busy      = head_valid || look_q || read_q || store_valid || fly_valid || over_valid;

  always_ff @(posedge clk) begin
    if (store_ready) store_valid <= 1'b0;
    if (read_q) begin
      read_q <= 1'b0;
      look_q <= 1'b1;
    end
    if (go) begin
      look_q <= 1'b0;
      if (hits) begin
        store_valid <= 1'b1;
        store.reverse <= p_q.reverse;
        store.bus   <= 1'b0;
        store.place <= p_q.payload;
        store.len   <= part;
        store.asid  <= p_q.asid;
        store.va    <= range.va + 64'(p_q.offset);
        store.tag   <= 8'(tag_q);
        tag_q    <= tag_q + 1'b1;
      end
      if (!over) begin
        read_q         <= 1'b1;
        p_q.sge        <= p_q.sge + 8'd1;
        p_q.sges       <= p_q.sges - 3'd1;
        p_q.offset     <= hits ? 32'd0 : p_q.offset - range.len;
        p_q.len        <= hits ? p_q.len - part : p_q.len;
        p_q.payload <= hits ? p_q.payload + 18'(part) : p_q.payload;
      end
    end
    if (begin_now) begin
      p_q    <= head;
      q_q    <= head_q;
      look_q <= 1'b1;
    end
    if (rst) begin
      store_valid <= 1'b0;
      look_q   <= 1'b0;
      read_q   <= 1'b0;
      tag_q    <= '0;
    end
  end

  // ---- what is on its way ----------------------------------------------------------------
  logic fly_valid, fly_last, fly_answer, err_q, bad, over_valid, over_answer;
  logic [QW-1:0] fly_q;
  logic [23:0] fly_psn;
  logic [17:0] fly_frame;
  logic [TW-1:0] due_q;
  berth_lutfifo #(
      .WIDTH(2 + QW + 24 + 18),
      .DEPTH(FLYING)
  ) flying (
      .clk,
      .rst,
      .wr_valid(go && hits),
      .wr_ready(fly_room),
      .wr_data({over && !p_q.more, p_q.answer, q_q, p_q.psn, p_q.frame}),
      .rd_valid(fly_valid),
      .rd_ready(stored_valid),
      .rd_data({fly_last, fly_answer, fly_q, fly_psn, fly_frame})
  );
  assign bad        = err_q || stored.status != 2'd0;
  assign pl_free_valid = stored_valid && fly_valid && fly_last;
  assign pl_free_place  = fly_frame;

  logic room_unused;
  berth_lutfifo #(
      .WIDTH(QW + 26),
      .DEPTH(FLYING)
  ) over_fifo (
      .clk,
      .rst,
      .wr_valid(pl_free_valid),
      .wr_ready(room_unused),
      .wr_data({fly_answer, fly_q, fly_psn, bad}),
      .rd_valid(over_valid),
      .rd_ready(over_answer || placed_ready),
      .rd_data({over_answer, placed_q, placed_psn, placed_err})
  );
  assign placed_valid   = over_valid && !over_answer;
  assign put_over_valid = over_valid && over_answer;

  always_ff @(posedge clk) begin
    if (stored_valid) begin
      err_q <= bad && !fly_last;
      due_q <= due_q + 1'b1;
    end
    if (rst) begin
      err_q <= 1'b0;
      due_q <= '0;
    end
  end

  // ---- fence: first what waits here, then what is on its way ------------------------------
  typedef enum logic [1:0] {F_IDLE, F_QUEUE, F_FLIGHT} fence_t;
  fence_t f_state_q;
  logic [4:0] queued_q, f_queue_q;
  logic [TW:0] flights_q, f_flight_q;
  assign fenced = f_state_q == F_FLIGHT && f_flight_q == '0;
  always_ff @(posedge clk) begin
    queued_q  <= queued_q + 5'(place_valid && place_ready) - 5'(head_pop);
    flights_q <= flights_q + (TW + 1)'(go && hits) - (TW + 1)'(stored_valid);
    case (f_state_q)
      F_IDLE: begin
        f_queue_q <= queued_q + 5'(place_valid && place_ready) - 5'(head_pop);
        if (fence) f_state_q <= F_QUEUE;
      end
      F_QUEUE: begin
        f_queue_q  <= f_queue_q - 5'(head_pop && f_queue_q != '0);
        f_flight_q <= flights_q + (TW + 1)'(go && hits) - (TW + 1)'(stored_valid);
        // The one that is being cut counts as one that waits.
        if (f_queue_q == '0 && ((go && over) || !(look_q || read_q))) f_state_q <= F_FLIGHT;
      end
      default: begin
        f_flight_q <= f_flight_q - (TW + 1)'(stored_valid && f_flight_q != '0);
        if (fenced) f_state_q <= F_IDLE;
      end
    endcase
    if (rst) begin
      f_state_q <= F_IDLE;
      queued_q  <= '0;
      flights_q <= '0;
    end
  end

  // Answers come in order, and only for commands on their way; a packet is never longer than its list.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!stored_valid || (fly_valid && stored.tag == 8'(due_q)));
      assert (!pl_free_valid || room_unused);
      assert (!go || !over || (hits && part == p_q.len));
    end
endmodule
