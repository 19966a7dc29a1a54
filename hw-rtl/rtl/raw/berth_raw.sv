// SPDX-License-Identifier: Apache-2.0 OR MIT
// Raw queues: whole Ethernet frames for the kernel, out of lists of ranges in its memory and into such. driver/abi has their
// elements and rules (layout/raw.rs), firmware/protocol the model of what is decided (raw.rs).
//
//   doorbells, elements          reads                    frames
//        RING (sends) ───────────► TX ──► transmit RAM ──► MAC
//        RING (receives) ──► RX ◄──────── FILTER ◄──────── what the fast path does not keep ──► core
//                             └──► writes
//
// A queue that has ended is busy until none of its reads and writes is under way.
module berth_raw #(
    parameter int unsigned DATA_W = 64,                           // bits of a beat of the MAC
    parameter int unsigned HOST_W = 2 * DATA_W,                   // bits of a beat of DMA
    parameter int unsigned SLOTS  = berth_regs_pkg::RX_SLOTS - 4  // receive slots that frames for queues may hold
) (
    input  logic                         clk,
    input  logic                         rst,
    output logic                         busy,         // something is under way
    // Firmware: what it does to a queue or filter; queues that exist or have DMA under way.
    input  logic                         setup_valid,
    input  berth_card_pkg::raw_setup_t   setup,
    output logic [3:0]                   setup_busy,
    // Names of this card, as the fast path has them.
    input  logic [47:0]                  own_mac,
    input  logic [31:0]                  own_ip,
    // Doorbells.
    input  logic                         bell_valid,
    input  berth_card_pkg::raw_doorbell_t bell,
    // Reads of rings (see berth_queue_rd), completions.
    output logic                         qr_valid,
    input  logic                         qr_ready,
    output berth_card_pkg::queue_read_t  qr,
    input  logic                         qc_valid,
    input  logic [HOST_W-1:0]            qc_data,
    input  berth_card_pkg::queue_beat_t  qc,
    output logic                         done_valid,
    input  logic                         done_ready,
    output berth_card_pkg::completion_t  done,
    // DMA of frames; both upper bits of the tags are set.
    output logic                         load_valid,
    input  logic                         load_ready,
    output berth_card_pkg::payload_t     load,
    input  logic                         loaded_valid,
    input  berth_card_pkg::payload_end_t loaded,
    output logic                         store_valid,
    input  logic                         store_ready,
    output berth_card_pkg::payload_t     store,
    input  logic                         stored_valid,
    input  berth_card_pkg::payload_end_t stored,
    // Frames to be sent, in the raw transmit RAM; one has left.
    output logic                         ws_valid,
    input  logic                         ws_ready,
    output berth_card_pkg::frame_out_t   ws,
    input  logic                         wl_valid,
    // Frames that the fast path does not keep, with their first bytes; those for the core, some of which a queue had first;
    // slots that are given back.
    output logic                         wide,         // frames to other addresses may be wanted
    input  logic                         cf_valid,
    input  berth_card_pkg::frame_t       cf,
    input  logic [8*96-1:0]              cf_hdr,
    output logic                         core_valid,
    output berth_card_pkg::frame_t       core_frame,
    input  logic [4:0]                   core_n,       // slots that it has
    output logic                         xfree_valid,
    output logic [17:0]                  xfree_place,
    // Pulses for the counters.
    output berth_card_pkg::raw_events_t  ev
);
  localparam int unsigned QUEUES = berth_regs_pkg::RAW_QUEUES;
  localparam int unsigned QW = $clog2(QUEUES);

  // ---- Set-up: in both rings at once ----------------------------------------------------------------------------------
  logic create_q, finish_q, setup_q;
  berth_card_pkg::raw_setup_t setup_words_q;
  berth_regs_pkg::cpu_raw_attr_t attr;
  berth_regs_pkg::cpu_raw_cqs_t cqs;
  assign attr = setup_words_q.words[31:0];
  assign cqs  = setup_words_q.words[63:32];
  logic [8*QUEUES-1:0] send_cqns_q, recv_cqns_q;
  always_ff @(posedge clk) begin
    setup_q       <= setup_valid && !rst;
    create_q      <= setup_valid && !rst && setup.go == berth_regs_pkg::RAW_GO_CREATE[2:0];
    finish_q      <= setup_valid && !rst && setup.go == berth_regs_pkg::RAW_GO_END[2:0];
    setup_words_q <= setup;
    for (int unsigned q = 0; q < QUEUES; q++)
      if (create_q && attr.number[QW-1:0] == QW'(q)) begin
        send_cqns_q[8*q+:8] <= cqs.send[7:0];
        recv_cqns_q[8*q+:8] <= cqs.recv[7:0];
      end
  end

  // ---- Rings ------------------------------------------------------------------------------------------------------------
  logic [1:0] r_valid, r_ready, r_bad, r_work;
  berth_card_pkg::queue_read_t t_qr, r_qr;
  logic [QUEUES-1:0] t_on, r_on, t_reads, r_reads, t_there, r_there, t_posted, r_posted;
  logic t_take, r_take, r_pop;
  logic [QW-1:0] t_take_q, r_take_q, r_pop_q;
  berth_card_pkg::raw_element_t t_el, r_el;
  berth_raw_ring #(.HOST_W(HOST_W)) sends (
      .clk, .rst, .create(create_q), .finish(finish_q), .setup_q(attr.number[QW-1:0]), .base(setup_words_q.words[127:64]),
      .log2(attr.log2_sq), .on(t_on), .reading(t_reads), .working(r_work[0]), .bell_valid(bell_valid && !bell.rq), .bell,
      .bell_bad(r_bad[0]), .qr_valid(r_valid[0]), .qr_ready(r_ready[0]), .qr(t_qr), .qc_valid(qc_valid && !qc.tag[4]), .qc_data,
      .qc, .there(t_there), .posted(t_posted), .take(t_take), .take_q(t_take_q), .el(t_el), .pop(t_take), .pop_q(t_take_q)
  );
  berth_raw_ring #(.HOST_W(HOST_W)) receives (
      .clk, .rst, .create(create_q), .finish(finish_q), .setup_q(attr.number[QW-1:0]), .base(setup_words_q.words[191:128]),
      .log2(attr.log2_rq), .on(r_on), .reading(r_reads), .working(r_work[1]), .bell_valid(bell_valid && bell.rq), .bell,
      .bell_bad(r_bad[1]), .qr_valid(r_valid[1]), .qr_ready(r_ready[1]), .qr(r_qr), .qc_valid(qc_valid && qc.tag[4]), .qc_data,
      .qc, .there(r_there), .posted(r_posted), .take(r_take), .take_q(r_take_q), .el(r_el), .pop(r_pop), .pop_q(r_pop_q)
  );
  // One of both has the port until its read is taken.
  logic who_q, held_q;
  wire who = held_q ? who_q : r_valid[1] && (!r_valid[0] || !who_q);
  assign qr_valid = who ? r_valid[1] : r_valid[0];
  assign r_ready  = {who && qr_ready, !who && qr_ready};
  always_comb begin
    qr        = who ? r_qr : t_qr;
    qr.tag[4] = who;
  end
  always_ff @(posedge clk) begin
    held_q <= qr_valid && !qr_ready && !rst;
    who_q  <= who && !rst;
  end

  // ---- Out ----------------------------------------------------------------------------------------------------------------
  logic [QUEUES-1:0] t_busy, r_busy;
  logic [1:0] d_valid, d_ready;
  berth_card_pkg::completion_t t_done, r_done;
  logic ev_sent, ev_sent_bad, ev_received, ev_none, ev_long;
  logic [1:0] ev_received_bad;
  berth_raw_tx tx (
      .clk, .rst, .cqns(send_cqns_q), .busy(t_busy), .there(t_there), .take(t_take), .take_q(t_take_q), .el(t_el),
      .load_valid, .load_ready, .load, .loaded_valid, .loaded, .ws_valid, .ws_ready, .ws, .wl_valid, .done_valid(d_valid[0]),
      .done_ready(d_ready[0]), .done(t_done), .ev_sent, .ev_bad(ev_sent_bad)
  );

  // ---- In -----------------------------------------------------------------------------------------------------------------
  logic f_busy, to_core, to_queue, to_none, both, taken, rx_free_valid, rx_free_core, rx_free_ready;
  logic [QW-1:0] to_q;
  berth_card_pkg::frame_t in, rx_free;
  berth_raw_filter filter (
      .clk, .rst, .own_mac, .own_ip, .setup_valid(setup_q), .setup(setup_words_q), .on(r_on), .wide, .cf_valid, .cf, .cf_hdr,
      .busy(f_busy), .to_core, .to_queue, .to_none, .number(to_q), .both, .frame(in)
  );
  berth_raw_rx #(.SLOTS(SLOTS)) rx (
      .clk, .rst, .cqns(recv_cqns_q), .busy(r_busy), .frame_valid(to_queue), .frame_q(to_q), .frame(in), .frame_both(both),
      .frame_taken(taken), .core_n, .free_valid(rx_free_valid), .free_core(rx_free_core), .free_ready(rx_free_ready),
      .free(rx_free), .there(r_there), .posted(r_posted),
      .take(r_take), .take_q(r_take_q), .el(r_el), .pop(r_pop), .pop_q(r_pop_q), .store_valid, .store_ready, .store,
      .stored_valid, .stored, .done_valid(d_valid[1]), .done_ready(d_ready[1]), .done(r_done), .ev_received,
      .ev_no_receive(ev_none), .ev_too_long(ev_long), .ev_bad(ev_received_bad)
  );
  // A frame that no queue takes goes to the core at once, or gives its slot back, before others do.
  wire refused = to_queue && !taken;
  wire passes  = to_core || to_none || refused;
  wire for_core = passes ? to_core || (refused && both) : rx_free_core;
  wire leaves  = passes || rx_free_valid;
  assign core_frame    = passes ? in : rx_free;
  assign core_valid    = leaves && for_core;
  assign xfree_valid   = leaves && !for_core;
  assign xfree_place   = core_frame.place;
  assign rx_free_ready = !passes;

  // ---- Completions of both, in turn ----------------------------------------------------------------------------------------
  logic d_who_q, d_held_q;
  wire d_who = d_held_q ? d_who_q : d_valid[1] && (!d_valid[0] || !d_who_q);
  assign done_valid = d_who ? d_valid[1] : d_valid[0];
  assign done       = d_who ? r_done : t_done;
  assign d_ready    = {d_who && done_ready, !d_who && done_ready};
  always_ff @(posedge clk) begin
    d_held_q <= done_valid && !done_ready && !rst;
    d_who_q  <= d_who && !rst;
  end

  // ---- Sums -----------------------------------------------------------------------------------------------------------------
  logic [QUEUES-1:0] any;
  assign any = t_on | r_on | t_reads | r_reads | t_busy | r_busy;
  always_comb begin
    setup_busy = '0;
    for (int unsigned q = 0; q < QUEUES; q++) setup_busy[q] = any[q] || (setup_q && attr.number[QW-1:0] == QW'(q));
  end
  assign busy = setup_q || f_busy || r_work != '0 || t_busy != '0 || r_busy != '0 || t_there != '0;
  always_comb begin
    ev            = '0;
    ev.sent       = ev_sent;
    ev.received   = ev_received;
    ev.no_receive = ev_none;
    ev.no_slot    = refused;
    ev.too_long   = ev_long;
    ev.not_ours   = to_none;
    ev.bad        = 3'(ev_sent_bad) + 3'(ev_received_bad) + 3'(r_bad[0]) + 3'(r_bad[1]);
  end
  wire unused = &{1'b0, t_posted, attr, cqs};
endmodule
