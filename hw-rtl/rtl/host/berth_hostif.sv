// SPDX-License-Identifier: Apache-2.0 OR MIT
// The host side of the card: BARs, rings, DMA, translation, completions, interrupts; and the core's registers for them.
module berth_hostif #(
    // Bits of a beat on the host port and of DMA in packet RAM.
    parameter int unsigned DATA_W = 64
) (
    input  logic                           clk,
    input  logic                           rst,
    input  logic                           cold,     // the slot's reset, with `rst`; without it, the host has reset the card
    // MMIO: BAR0 (bar = 0) and BAR2 (bar = 1).
    input  logic                           mmio_valid,
    output logic                           mmio_ready,
    input  logic                           mmio_write,
    input  logic                           mmio_bar,
    input  logic [19:0]                    mmio_addr,
    input  logic [63:0]                    mmio_wdata,
    input  logic [ 7:0]                    mmio_wstrb,
    output logic                           mmio_rvalid,
    output logic [63:0]                    mmio_rdata,
    // The slot's limits, encoded as in Device Control.
    input  logic [ 2:0]                    cfg_max_payload,
    input  logic [ 2:0]                    cfg_max_read_req,
    // Host memory: reads.
    output logic                           hrd_valid,
    input  logic                           hrd_ready,
    output berth_card_pkg::host_read_t     hrd,
    input  logic                           hcpl_valid,
    output logic                           hcpl_ready,
    input  logic [DATA_W-1:0]              hcpl_data,
    input  berth_card_pkg::host_reply_t    hcpl,
    // Host memory: posted writes, interrupts after them.
    output logic                           hwr_valid,
    input  logic                           hwr_ready,
    output berth_card_pkg::host_write_t    hwr,
    output logic [DATA_W-1:0]              hwr_data,
    output logic                           msix_valid,
    input  logic                           msix_ready,
    output logic [ 4:0]                    msix_vector,
    // Soft core: registers of this side, pending bits.
    input  logic                           h_req,
    input  logic                           h_we,
    input  logic [11:0]                    h_addr,
    input  logic [31:0]                    h_wdata,
    output logic                           h_ack,
    output logic [31:0]                    h_rdata,
    output logic                           pend_cmd,
    output logic                           pend_doorbell,
    output logic                           pend_dma_done,
    output logic                           pend_xlt_rsp,
    output logic                           pend_heartbeat,
    output logic                           busy,
    // Packet RAM.
    output logic                           pw_valid,
    input  logic                           pw_ready,
    output logic [18:0]                    pw_addr,  // from 2^18 on: the fast path's transmit RAM
    output logic [DATA_W-1:0]              pw_data,
    output logic [2*DATA_W/8-1:0]          pw_strb,
    output logic                           pr_valid,
    input  logic                           pr_ready,
    output logic [17:0]                    pr_addr,
    input  logic                           pr_rvalid,
    input  logic [DATA_W-1:0]              pr_rdata,
    // Firmware RAM, core.
    output logic                           fwl_we,
    output logic [19:2]                    fwl_addr,
    output logic [31:0]                    fwl_wdata,
    output logic                           core_run,
    // Attached reads of transmit slots.
    output berth_card_pkg::slot_reads_t    slot_reads,
    input  logic                           slot_err_clear,
    input  logic [3:0]                     slot_err_clear_n,
    // Fast path: payload reads of the transmit half, payload writes of the receive half, and their ends.
    input  logic                           load_valid,
    output logic                           load_ready,
    input  berth_card_pkg::payload_t       load,
    output logic                           loaded_valid,
    output berth_card_pkg::payload_end_t   loaded,
    input  logic                           store_valid,
    output logic                           store_ready,
    input  berth_card_pkg::payload_t       store,
    output logic                           stored_valid,
    output berth_card_pkg::payload_end_t   stored,
    // Fast path: atomics (see berth_atomic).
    input  logic                           change_valid,
    output logic                           change_ready,
    input  berth_card_pkg::change_t        change,
    output logic                           changed_valid,
    output berth_card_pkg::change_end_t    changed,
    // Fast path: reads of queues (see berth_queue_rd), completions; transmit half in the low bits.
    input  logic [1:0]                     qr_valid,
    output logic [1:0]                     qr_ready,
    input  berth_card_pkg::queue_reads_t   qr,
    output logic [1:0]                     qc_valid,
    output logic [DATA_W-1:0]              qc_data,
    output berth_card_pkg::queue_beat_t    qc,
    input  logic [1:0]                     fcq_valid,
    output logic [1:0]                     fcq_ready,
    input  berth_card_pkg::completions_t   fcq,
    // Fast path: doorbells of its QPs.
    output logic                           fdb_valid,
    input  logic                           fdb_ready,
    output berth_card_pkg::doorbell_t      fdb,
    // Fast path, transmit half in the low bits: ranges of pages (see berth_xlt).
    input  logic [1:0]                     xa_valid,
    output logic [1:0]                     xa_ready,
    input  berth_card_pkg::range_asks_t    xa,
    input  logic [1:0]                     xr_room,
    output logic [1:0]                     xr_valid,
    output berth_card_pkg::range_answers_t xr,
    // Raw queues: what firmware does to them, doorbells, DMA of their frames (upper bits of the tags set), reads of rings,
    // completions.
    output logic                           raw_setup_valid,
    output berth_card_pkg::raw_setup_t     raw_setup,
    input  logic [3:0]                     raw_setup_busy,
    output logic                           rdb_valid,
    output berth_card_pkg::raw_doorbell_t  rdb,
    input  logic                           raw_load_valid,
    output logic                           raw_load_ready,
    input  berth_card_pkg::payload_t       raw_load,
    output logic                           raw_loaded_valid,
    input  logic                           raw_store_valid,
    output logic                           raw_store_ready,
    input  berth_card_pkg::payload_t       raw_store,
    output logic                           raw_stored_valid,
    input  logic                           raw_qr_valid,
    output logic                           raw_qr_ready,
    input  berth_card_pkg::queue_read_t    raw_qr,
    output logic                           raw_qc_valid,
    input  logic                           raw_done_valid,
    output logic                           raw_done_ready,
    input  berth_card_pkg::completion_t    raw_done,
    // Statistics RAM.
    output logic                           stat_req,
    output logic [11:2]                    stat_addr,
    input  logic [31:0]                    stat_rdata,
    // What is added to the counters of the wire side, 16 bits each; cycles passed over while the core was idle; time, reset.
    input  logic [16*berth_regs_pkg::NUM_RTL_COUNTERS-1:0] wire_amounts,
    input  logic [63:0]                    idle_skipped,
    input  logic [63:0]                    cycles,
    output logic                           soft_rst
);
  localparam int unsigned QUEUED = berth_regs_pkg::READ_TAGS / 2;  // of firmware's commands to each engine
  initial if (DATA_W < 64 || DATA_W > 1024 || DATA_W != 1 << $clog2(DATA_W))
    $fatal(1, "berth_hostif: DATA_W must be 64, 128, 256, 512 or 1024");

  // ---- Reset by the host: reads in flight end first, and the posted write at hand; but none of them is waited for
  //      longer than 2^16 clocks: what comes later finds a tag that is not used again yet (berth_dma_rd) ----------
  logic reset_we, resetting_q, soft_rst_q, arb_busy;
  logic [16:0] patience_q;
  logic [6:0] rd_flying;
  assign soft_rst = soft_rst_q;
  always_ff @(posedge clk) begin
    if (reset_we) resetting_q <= 1'b1;
    if (resetting_q) begin
      patience_q <= patience_q + 1;
      if ((rd_flying == 0 && !arb_busy) || patience_q[16]) soft_rst_q <= 1'b1;
    end
    if (rst) begin
      resetting_q <= 1'b0;
      soft_rst_q  <= 1'b0;
      patience_q  <= '0;
    end
  end

  // ---- BAR0 ----------------------------------------------------------------------------
  logic [16*berth_regs_pkg::NUM_RTL_COUNTERS-1:0] amounts;
  logic regs_ready, regs_rvalid, inc_bad_access;
  logic [63:0] regs_rdata;
  logic fw_data_we, fw_boot_we, cmd_log2_we, cmd_pi_we, evt_log2_we, evt_arm_we, evt_lax, dma_enable;
  logic [31:0] bar_wdata, fw_status, fw_code, hb_challenge, hb_answer;
  logic [63:0] cmd_base, evt_base, fence_addr;
  logic [4:0] cmd_log2, evt_log2;
  logic [15:0] cmd_pi, cmd_ci, evt_ci, evt_pi, dma_busy;
  logic cmd_stands;
  logic [3:0] log2_payload, log2_read;
  logic push_begin, push_we, inc_cmd_pushed;
  logic [2:0] push_word;
  logic [63:0] push_data;
  logic [4:0] log2_tick;
  berth_host_regs regs (
      .clk, .rst, .valid(mmio_valid && !mmio_bar && !resetting_q), .ready(regs_ready), .write(mmio_write),
      .addr(mmio_addr), .wdata(mmio_wdata), .wstrb(mmio_wstrb), .rd_valid(regs_rvalid), .rd_data(regs_rdata),
      .fw_data_we, .fw_boot_we, .bar_wdata, .fw_status, .fw_code, .hb_challenge, .hb_answer, .reset_we, .cmd_base,
      .cmd_log2, .cmd_log2_we, .cmd_pi, .cmd_pi_we, .cmd_ci, .cmd_stands, .push_begin, .push_we, .push_word,
      .push_data, .evt_base, .evt_log2, .evt_log2_we, .evt_ci, .evt_arm_we, .evt_lax, .evt_pi, .fence_addr, .dma_enable,
      .dma_busy, .cfg_max_payload, .cfg_max_read_req, .log2_payload, .log2_read, .log2_tick, .cycles,
      .amounts(wire_amounts | amounts), .idle_skipped, .inc_bad_access, .stat_req, .stat_addr, .stat_rdata
  );

  // ---- BAR2: waits for BAR0's reply, so that reads are answered in order -----------------
  berth_card_pkg::cq_doorbell_t cqdb;
  logic db_ready, db_read_q, cqdb_valid, cqdb_ready;
  logic db_setup_valid, db_setup_ready;
  berth_card_pkg::db_setup_t db_setup;
  logic db_pop_valid, db_pop_ready;
  berth_card_pkg::rung_t db_pop;
  logic [31:0] cpu_word;
  logic inc_db_taken, inc_db_denied, inc_db_malformed;
  wire db_valid = mmio_valid && mmio_bar && regs_ready && !resetting_q;
  berth_doorbell doorbell (
      .clk, .rst, .db_valid, .db_ready, .db_write(mmio_write), .db_addr(mmio_addr[17:0]), .db_wdata(mmio_wdata),
      .db_wstrb(mmio_addr[19:18] == 0 ? mmio_wstrb : 8'd0), .cqdb_valid, .cqdb_ready, .cqdb, .db_setup_valid,
      .db_setup_ready, .db_setup, .fdb_valid, .fdb_ready, .fdb, .rdb_valid, .rdb, .db_pop_valid, .db_pop_ready, .db_pop,
      .pend_doorbell, .inc_taken(inc_db_taken), .inc_denied(inc_db_denied), .inc_malformed(inc_db_malformed)
  );
  always_ff @(posedge clk) db_read_q <= !rst && db_valid && db_ready && !mmio_write;
  assign mmio_ready = regs_ready && !resetting_q && (!mmio_bar || db_ready);
  assign mmio_rvalid = regs_rvalid || db_read_q;
  assign mmio_rdata = regs_rvalid ? regs_rdata : '1;

  // ---- Firmware loader -------------------------------------------------------------------
  logic status_we, code_we;
  berth_fw_loader loader (
      .clk, .rst, .fw_data_we, .fw_boot_we, .bar_wdata, .cpu_word, .fw_status, .fw_code, .status_we, .code_we, .fwl_we,
      .fwl_addr, .fwl_wdata, .core_run
  );
  assign pend_heartbeat = hb_challenge != hb_answer;

  // ---- The core's registers ----------------------------------------------------------------
  logic fw_pop;
  logic [3:0] fw_raddr;
  logic [31:0] fw_rdata;
  logic rgo_valid, rgo_ready, wgo_valid, wgo_ready, dma_end_valid, dma_end_pop;
  berth_card_pkg::dma_t dma;
  berth_card_pkg::dma_end_t dma_end;
  berth_card_pkg::range_ask_t xgo, xhead;
  logic xgo_valid, xgo_ready, xhead_valid, xhead_ready, rsp_valid, rsp_pop;
  logic [31:0] rsp_data;
  logic fev_valid, fev_ready;
  logic [16*32-1:0] fev_words;
  logic [15:0] ev_space;
  logic cq_setup_valid, cq_setup_ready, cqe_valid, cqe_ready;
  logic [15:0] cqe_cqn;
  berth_card_pkg::cq_setup_t cq_setup;
  logic [8*32-1:0] cqe_words;
  berth_cpu_regs cpu_regs (
      .clk, .rst, .h_req, .h_we, .h_addr, .h_wdata, .h_ack, .h_rdata, .status_we, .code_we, .hb_challenge, .hb_answer,
      .fw_pop, .fw_raddr, .fw_rdata, .db_setup_valid, .db_setup_ready, .db_setup, .pend_doorbell, .db_pop_valid,
      .db_pop_ready, .db_pop, .rgo_valid, .rgo_ready, .wgo_valid, .wgo_ready, .dma, .dma_end_valid, .dma_end_pop,
      .dma_end, .xgo_valid, .xgo_ready, .xgo, .rsp_valid, .rsp_pop, .rsp_data, .fev_valid, .fev_ready, .fev_words,
      .ev_space, .cq_setup_valid, .cq_setup_ready, .cq_setup, .cqe_valid, .cqe_ready, .cqe_cqn, .cqe_words,
      .raw_setup_valid, .raw_setup, .raw_setup_busy, .cpu_word
  );

  // ---- Translation -----------------------------------------------------------------------------
  logic [1:0] lk_req, lk_ack, lk_hit, ask_req, ask_ack;   // of DMA reads and writes
  logic [15:0] lk_asid;
  logic [103:0] lk_vpn, lk_page;
  logic ask_hit, changing;
  logic [51:0] ask_page;
  logic ch_valid, ch_ready, rdy_valid, rdy_ready, xev_valid, xev_ready, xlt_busy;
  berth_card_pkg::table_change_t ch;
  berth_card_pkg::page_answer_t rdy;
  logic [7*32-1:0] xev_words;
  logic [1:0] inc_hit, inc_miss;
  berth_fifo #(.WIDTH($bits(xgo)), .DEPTH(QUEUED)) range_fifo (
      .clk, .rst, .wr_valid(xgo_valid), .wr_ready(xgo_ready), .wr_data(xgo),
      .rd_valid(xhead_valid), .rd_ready(xhead_ready), .rd_data(xhead)
  );
  berth_xlt xlt (
      .clk, .rst, .lk_req(ask_req), .lk_asid, .lk_vpn, .lk_ack(ask_ack), .lk_hit(ask_hit), .lk_page(ask_page), .changing, .ch_valid, .ch_ready, .ch, .rdy_valid,
      .rdy_ready, .rdy, .xhead_valid, .xhead_ready, .xhead, .rsp_valid, .rsp_ready(rsp_pop), .rsp_data, .xa_valid,
      .xa_ready, .xa, .xa_tell(1'b1), .xr_room, .xr_valid, .xr, .xev_valid, .xev_ready, .xev_words, .inc_hit,
      .inc_miss, .busy(xlt_busy)
  );
  assign pend_xlt_rsp = rsp_valid;
  for (genvar i = 0; i < 2; i++) begin : recents
    berth_xlt_recent recent (
        .clk, .rst, .changing, .lk_req(lk_req[i]), .lk_asid(lk_asid[8*i+:8]), .lk_vpn(lk_vpn[52*i+:52]), .lk_ack(lk_ack[i]),
        .lk_hit(lk_hit[i]), .lk_page(lk_page[52*i+:52]), .ask_req(ask_req[i]), .ask_ack(ask_ack[i]), .ask_hit, .ask_page
    );
  end

  // ---- DMA ---------------------------------------------------------------------------------------
  berth_card_pkg::dma_t rcmd, wcmd;
  logic rcmd_valid, rcmd_ready, wcmd_valid, wcmd_ready;
  berth_fifo #(.WIDTH($bits(dma)), .DEPTH(QUEUED)) rd_fifo (
      .clk, .rst, .wr_valid(rgo_valid), .wr_ready(rgo_ready), .wr_data(dma),
      .rd_valid(rcmd_valid), .rd_ready(rcmd_ready), .rd_data(rcmd)
  );
  berth_fifo #(.WIDTH($bits(dma)), .DEPTH(QUEUED)) wr_fifo (
      .clk, .rst, .wr_valid(wgo_valid), .wr_ready(wgo_ready), .wr_data(dma),
      .rd_valid(wcmd_valid), .rd_ready(wcmd_ready), .rd_data(wcmd)
  );

  logic rdone_valid, rdone_ready, wdone_valid, wdone_ready, att_done, hold, rd_quiet, wr_quiet, rd_busy, wr_busy;
  berth_card_pkg::dma_end_t rdone, wdone;
  logic [3:0] att_slot;
  logic [4:0] wr_flying;
  berth_card_pkg::ring_read_t ring;
  berth_card_pkg::ring_beat_t ring_cpl;
  logic ring_valid, ring_ready, ring_cpl_valid, ring_cpl_end;
  logic [DATA_W-1:0] ring_cpl_data;
  logic inc_request, inc_rd_miss, inc_wr_miss, inc_host_error, inc_timeout, inc_unexpected;
  // Thirds of the time-out of reads, by the card's own time.
  logic tick_q;
  wire tick = cycles[{1'b0, log2_tick}] != tick_q;
  always_ff @(posedge clk) tick_q <= cycles[{1'b0, log2_tick}];
  logic fetch_valid, fetch_ready, fetched_valid;
  berth_card_pkg::fetch_t fetch;
  berth_card_pkg::fetched_t fetched;
  logic [DATA_W-1:0] fetched_data;
  berth_card_pkg::all_queue_reads_t all_qr;
  assign all_qr.tx  = qr.tx;
  assign all_qr.rx  = qr.rx;
  assign all_qr.raw = raw_qr;
  logic [2:0] all_qr_ready, all_qc_valid;
  assign raw_qr_ready = all_qr_ready[2];
  assign qr_ready     = all_qr_ready[1:0];
  assign raw_qc_valid = all_qc_valid[2];
  assign qc_valid     = all_qc_valid[1:0];
  berth_queue_rd #(.DATA_W(DATA_W)) queue_rd (
      .clk, .rst, .log2_read, .qr_valid({raw_qr_valid, qr_valid}), .qr_ready(all_qr_ready), .qr(all_qr),
      .qc_valid(all_qc_valid), .qc_data, .qc, .fetch_valid, .fetch_ready, .fetch, .fetched_valid, .fetched_data, .fetched
  );
  // ---- Atomics: a further user of the fast path's commands, before its own, as there are few at a time ---------------
  logic at_load_valid, at_store_valid, rd_load_ready, wr_store_ready, rd_loaded_valid, wr_stored_valid, at_busy;
  berth_card_pkg::payload_t at_load, at_store;
  logic rd_pw_valid, pw_mine, wr_pr_valid, pr_mine, at_pr_rvalid;
  logic [18:0] pr_addr_wide;
  logic [63:0] at_pr_rdata;
  logic [1:0] found_valid, found_taken, found_judged, found_refused;
  berth_card_pkg::found_t load_found, store_found;
  berth_atomic #(.DATA_W(DATA_W), .SLOTS(berth_regs_pkg::READ_TAGS / 4)) atomic (
      .clk, .rst, .busy(at_busy), .change_valid, .change_ready, .change, .changed_valid, .changed,
      .load_valid(at_load_valid), .load_ready(rd_load_ready), .load(at_load), .loaded_valid(rd_loaded_valid && loaded.tag[7:6] == 2'b10),
      .loaded, .store_valid(at_store_valid), .store_ready(wr_store_ready), .store(at_store),
      .stored_valid(wr_stored_valid && stored.tag[7:6] == 2'b10), .stored, .found_valid, .load_found, .store_found, .found_taken,
      .found_judged, .found_refused, .pw_valid(rd_pw_valid), .pw_addr, .pw_data, .pw_strb, .pw_mine,
      .pr_valid(wr_pr_valid), .pr_addr(pr_addr_wide), .pr_mine, .pr_rvalid(at_pr_rvalid), .pr_rdata(at_pr_rdata)
  );
  assign loaded_valid = rd_loaded_valid && !loaded.tag[7];
  assign stored_valid = wr_stored_valid && !stored.tag[7];
  // Raw queues take turns with the fast path.
  logic raw_loads, raw_stores, raw_load_turn_q, raw_store_turn_q;
  assign raw_loads        = raw_load_valid && !at_load_valid && (raw_load_turn_q || !load_valid);
  assign raw_stores       = raw_store_valid && !at_store_valid && (raw_store_turn_q || !store_valid);
  assign raw_load_ready   = rd_load_ready && raw_loads;
  assign raw_store_ready  = wr_store_ready && raw_stores;
  assign load_ready       = rd_load_ready && !at_load_valid && !raw_loads;
  assign store_ready      = wr_store_ready && !at_store_valid && !raw_stores;
  assign raw_loaded_valid = rd_loaded_valid && loaded.tag[7:6] == 2'b11;
  assign raw_stored_valid = wr_stored_valid && stored.tag[7:6] == 2'b11;
  always_ff @(posedge clk) begin
    if (load_valid && load_ready) raw_load_turn_q <= 1'b1;
    if (raw_load_ready) raw_load_turn_q <= 1'b0;
    if (store_valid && store_ready) raw_store_turn_q <= 1'b1;
    if (raw_store_ready) raw_store_turn_q <= 1'b0;
    if (rst) begin
      raw_load_turn_q  <= 1'b0;
      raw_store_turn_q <= 1'b0;
    end
  end
  assign pw_valid     = rd_pw_valid && !pw_mine;
  assign pr_valid     = wr_pr_valid && !pr_mine;
  berth_dma_rd #(.DATA_W(DATA_W)) dma_rd (
      .load_valid(load_valid || at_load_valid || raw_load_valid), .load_ready(rd_load_ready),
      .load(at_load_valid ? at_load : raw_loads ? raw_load : load),
      .loaded_valid(rd_loaded_valid), .loaded, .found_valid(found_valid[0]), .found(load_found), .found_taken(found_taken[0]),
      .found_judged(found_judged[0]), .found_refused(found_refused[0]), .fetch_valid, .fetch_ready, .fetch, .fetched_valid,
      .fetched_data, .fetched, .clk, .rst, .cold, .rcmd_valid, .rcmd_ready, .rcmd, .rdone_valid, .rdone_ready, .rdone,
      .att_done, .att_slot, .enable(dma_enable), .hold, .stop(resetting_q), .log2_read, .tick, .quiet(rd_quiet),
      .flying(rd_flying), .busy(rd_busy), .lk_req(lk_req[0]), .lk_asid(lk_asid[7:0]), .lk_vpn(lk_vpn[51:0]),
      .lk_ack(lk_ack[0]), .lk_hit(lk_hit[0]), .lk_page(lk_page[51:0]), .ring_valid, .ring_ready, .ring, .ring_cpl, .ring_cpl_valid,
      .ring_cpl_data, .ring_cpl_end, .hrd_valid, .hrd_ready, .hrd, .hcpl_valid, .hcpl_ready,
      .hcpl_data, .hcpl, .pw_valid(rd_pw_valid), .pw_ready(pw_ready || pw_mine), .pw_addr, .pw_data,
      .pw_strb, .inc_request, .inc_no_translation(inc_rd_miss), .inc_host_error, .inc_timeout, .inc_unexpected
  );

  // Clients of the posted write port.
  localparam int unsigned W_DMA = 0, W_EVENT = 1, W_CQE = 2, W_TOKEN = 3;
  logic [3:0] s_valid, s_ready, s_last;
  logic [4*64-1:0] s_addr;
  logic [4*13-1:0] s_len;
  logic [4*DATA_W-1:0] s_data;

  assign pr_addr = pr_addr_wide[17:0];
  berth_dma_wr #(.DATA_W(DATA_W)) dma_wr (
      .store_valid(store_valid || at_store_valid || raw_store_valid), .store_ready(wr_store_ready),
      .store(at_store_valid ? at_store : raw_stores ? raw_store : store),
      .stored_valid(wr_stored_valid), .stored, .found_valid(found_valid[1]), .found(store_found), .found_taken(found_taken[1]),
      .found_judged(found_judged[1]), .found_refused(found_refused[1]), .clk, .rst, .wcmd_valid, .wcmd_ready, .wcmd,
      .wdone_valid, .wdone_ready, .wdone, .enable(dma_enable), .hold, .log2_payload, .quiet(wr_quiet),
      .flying(wr_flying), .busy(wr_busy), .lk_req(lk_req[1]), .lk_asid(lk_asid[15:8]), .lk_vpn(lk_vpn[103:52]),
      .lk_ack(lk_ack[1]), .lk_hit(lk_hit[1]), .lk_page(lk_page[103:52]), .pr_valid(wr_pr_valid), .pr_ready(pr_ready || pr_mine), .pr_addr(pr_addr_wide),
      .pr_rvalid(pr_rvalid || at_pr_rvalid), .pr_rdata(at_pr_rvalid ? DATA_W'(at_pr_rdata) : pr_rdata),
      .wr_valid(s_valid[W_DMA]), .wr_ready(s_ready[W_DMA]), .wr_addr(s_addr[W_DMA*64+:64]),
      .wr_len(s_len[W_DMA*13+:13]), .wr_data(s_data[W_DMA*DATA_W+:DATA_W]), .wr_last(s_last[W_DMA]),
      .inc_no_translation(inc_wr_miss)
  );

  // Statuses of both engines; if firmware leaves the FIFO full, the engines wait.
  logic done_space;
  assign wdone_ready = done_space;
  assign rdone_ready = done_space && !wdone_valid;
  berth_fifo #(.WIDTH($bits(dma_end)), .DEPTH(512)) done_fifo (
      .clk, .rst, .wr_valid(wdone_valid || rdone_valid), .wr_ready(done_space),
      .wr_data(wdone_valid ? wdone : rdone),
      .rd_valid(dma_end_valid), .rd_ready(dma_end_pop), .rd_data(dma_end)
  );
  assign pend_dma_done = dma_end_valid;

  // Attached reads per transmit slot, from the core's command on.
  logic [6:0] att_q[16];
  logic [15:0] slot_out, slot_failed_q;
  logic [7:0] slot_status_q;
  wire att_go = rgo_valid && rgo_ready && dma.attach;
  always_comb for (int i = 0; i < 16; i++) slot_out[i] = att_q[i] != 0;
  assign slot_reads.out = slot_out;
  assign slot_reads.failed = slot_failed_q;
  assign slot_reads.status = slot_status_q;
  always_ff @(posedge clk) begin
    for (int unsigned i = 0; i < 16; i++)
      att_q[i] <= rst ? '0 : att_q[i] + 7'(att_go && dma.slot == 4'(i)) - 7'(att_done && att_slot == 4'(i));
    if (slot_err_clear) slot_failed_q[slot_err_clear_n] <= 1'b0;
    if (att_done && rdone.status != 0) begin
      slot_failed_q[att_slot] <= 1'b1;
      slot_status_q <= rdone.status;
    end
    if (rst) slot_failed_q <= '0;
  end

  // ---- Command ring ------------------------------------------------------------------------------
  logic token_valid, token_ready, inc_cmd_bad, cmd_busy;
  logic [63:0] token_data;
  berth_cmd #(.DATA_W(DATA_W)) cmd (
      .clk, .rst, .enable(dma_enable && !resetting_q), .cmd_base, .cmd_log2, .cmd_log2_we, .cmd_pi, .cmd_pi_we,
      .cmd_ci, .cmd_stands, .log2_read, .push_begin, .push_we, .push_word, .push_data, .ring_valid, .ring_ready, .ring,
      .ring_cpl_valid, .ring_cpl, .ring_cpl_data, .ring_cpl_end, .ch_valid, .ch_ready, .ch, .rdy_valid, .rdy_ready,
      .rdy, .hold, .quiet(rd_quiet && wr_quiet), .token_valid, .token_ready, .token_data, .pend_cmd, .fw_pop,
      .fw_raddr, .fw_rdata, .inc_bad(inc_cmd_bad), .inc_pushed(inc_cmd_pushed), .busy(cmd_busy)
  );
  berth_wr_msg #(.DATA_W(DATA_W), .MSG_BYTES(8)) token (
      .clk, .rst, .msg_valid(token_valid), .msg_ready(token_ready), .msg_data(token_data),
      .wr_valid(s_valid[W_TOKEN]), .wr_ready(s_ready[W_TOKEN]), .wr_data(s_data[W_TOKEN*DATA_W+:DATA_W]),
      .wr_last(s_last[W_TOKEN])
  );
  assign s_addr[W_TOKEN*64+:64] = fence_addr;
  assign s_len[W_TOKEN*13+:13]  = 13'd8;

  // ---- Completions, events --------------------------------------------------------------------------
  logic cev_valid, cev_ready, inc_cq_taken, inc_cq_denied, inc_cqe, inc_overrun, inc_event, inc_irq, cq_busy, ev_busy;
  logic [3*32-1:0] cev_words;
  berth_card_pkg::all_completions_t all_fcq;
  logic [2:0] all_fcq_ready;
  assign all_fcq.tx     = fcq.tx;
  assign all_fcq.rx     = fcq.rx;
  assign all_fcq.raw    = raw_done;
  assign raw_done_ready = all_fcq_ready[2];
  assign fcq_ready      = all_fcq_ready[1:0];
  berth_cq #(.DATA_W(DATA_W)) cq (
      .clk, .rst, .cqdb_valid, .cqdb_ready, .cqdb, .cq_setup_valid, .cq_setup_ready, .cq_setup, .cqe_valid, .cqe_ready,
      .cqe_cqn, .cqe_words, .fcq_valid({raw_done_valid, fcq_valid}), .fcq_ready(all_fcq_ready), .fcq(all_fcq), .wr_valid(s_valid[W_CQE]), .wr_ready(s_ready[W_CQE]),
      .wr_addr(s_addr[W_CQE*64+:64]), .wr_data(s_data[W_CQE*DATA_W+:DATA_W]), .wr_last(s_last[W_CQE]), .cev_valid,
      .cev_ready, .cev_words, .inc_taken(inc_cq_taken), .inc_denied(inc_cq_denied), .inc_written(inc_cqe),
      .inc_overrun, .busy(cq_busy)
  );
  assign s_len[W_CQE*13+:13] = 13'd32;
  berth_event #(.DATA_W(DATA_W)) events (
      .clk, .rst, .evt_base, .evt_log2, .evt_log2_we, .evt_ci, .evt_arm_we, .evt_lax, .evt_pi, .ev_space, .xev_valid, .xev_ready,
      .xev_words, .cev_valid, .cev_ready, .cev_words, .fev_valid, .fev_ready, .fev_words, .wr_valid(s_valid[W_EVENT]),
      .wr_ready(s_ready[W_EVENT]), .wr_addr(s_addr[W_EVENT*64+:64]), .wr_data(s_data[W_EVENT*DATA_W+:DATA_W]),
      .wr_last(s_last[W_EVENT]), .msix_valid, .msix_ready, .inc_event, .inc_irq, .busy(ev_busy)
  );
  assign s_len[W_EVENT*13+:13] = 13'd64;
  assign msix_vector = 5'd0;

  // With DMA disabled nothing new begins, and data on its way ends. Before a reset nothing begins at all.
  berth_wr_arb #(.DATA_W(DATA_W), .N(4)) arb (
      .clk, .rst, .allow({{3{dma_enable}}, 1'b1} & {4{!resetting_q}}),
      .s_valid, .s_ready, .s_addr, .s_len, .s_data, .s_last,
      .hwr_valid, .hwr_ready, .hwr, .hwr_data, .busy(arb_busy)
  );

  // ---- Sums ---------------------------------------------------------------------------------------------
  assign dma_busy = 16'(rd_flying) + 16'(wr_flying) + 16'(arb_busy);
  assign busy = rd_busy || wr_busy || at_busy || cmd_busy || cq_busy || ev_busy || xlt_busy || arb_busy || resetting_q || xhead_valid;
  wire hwr_start = hwr_valid && hwr_ready && hwr.first;
  always_comb begin
    amounts = '0;
    amounts[16*berth_regs_pkg::C_DMA_READS+:16]          = 16'(inc_request);
    amounts[16*berth_regs_pkg::C_DMA_READ_BYTES+:16]     = inc_request ? 16'(hrd.len) : 16'd0;
    amounts[16*berth_regs_pkg::C_DMA_WRITES+:16]         = 16'(hwr_start);
    amounts[16*berth_regs_pkg::C_DMA_WRITE_BYTES+:16]    = hwr_start ? 16'(hwr.len) : 16'd0;
    amounts[16*berth_regs_pkg::C_DMA_NO_TRANSLATION+:16] = 16'(inc_rd_miss) + 16'(inc_wr_miss);
    amounts[16*berth_regs_pkg::C_DMA_HOST_ERROR+:16]     = 16'(inc_host_error);
    amounts[16*berth_regs_pkg::C_XLT_HITS+:16]           = 16'(inc_hit);
    amounts[16*berth_regs_pkg::C_XLT_MISSES+:16]         = 16'(inc_miss);
    amounts[16*berth_regs_pkg::C_EVENTS+:16]             = 16'(inc_event);
    amounts[16*berth_regs_pkg::C_COMPLETIONS+:16]        = 16'(inc_cqe);
    amounts[16*berth_regs_pkg::C_INTERRUPTS+:16]         = 16'(inc_irq);
    amounts[16*berth_regs_pkg::C_DOORBELLS+:16]          = 16'(inc_db_taken) + 16'(inc_cq_taken);
    amounts[16*berth_regs_pkg::C_DOORBELL_DENIED+:16]    = 16'(inc_db_denied) + 16'(inc_cq_denied);
    amounts[16*berth_regs_pkg::C_DOORBELL_MALFORMED+:16] = 16'(inc_db_malformed);
    amounts[16*berth_regs_pkg::C_BAR_BAD_ACCESS+:16]     = 16'(inc_bad_access);
    amounts[16*berth_regs_pkg::C_CMD_BAD+:16]            = 16'(inc_cmd_bad);
    amounts[16*berth_regs_pkg::C_CQ_OVERRUN+:16]         = 16'(inc_overrun);
    amounts[16*berth_regs_pkg::C_HOST_WAIT_CYCLES+:16]   = 16'(rd_flying != 0);
    amounts[16*berth_regs_pkg::C_CMD_PUSHED+:16]         = 16'(inc_cmd_pushed);
    amounts[16*berth_regs_pkg::C_DMA_TIMEOUTS+:16]       = 16'(inc_timeout);
    amounts[16*berth_regs_pkg::C_DMA_UNEXPECTED+:16]     = 16'(inc_unexpected);
  end

  // What leaves the card keeps to the protocol of the port: nothing changes while it waits.
  always_ff @(posedge clk) if (!rst && $past(!rst && hrd_valid && !hrd_ready)) assert (hrd_valid && $stable(hrd));
  always_ff @(posedge clk) if (!rst && $past(!rst && hwr_valid && !hwr_ready)) assert (hwr_valid && $stable(hwr.last));

  wire unused = &{1'b0, pr_addr_wide[18]};
endmodule
