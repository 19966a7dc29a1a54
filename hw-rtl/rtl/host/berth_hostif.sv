// SPDX-License-Identifier: Apache-2.0 OR MIT
// The host side of the card: BARs, rings, DMA, translation, completions, interrupts; and the core's registers for them.
module berth_hostif #(
    // Bits of a beat on the host port and of DMA in packet RAM.
    parameter int unsigned DATA_W = 64
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                cold,    // the slot's reset, with `rst`; without it, the host has reset the card
    // MMIO: BAR0 (bar = 0) and BAR2 (bar = 1).
    input  logic                mmio_valid,
    output logic                mmio_ready,
    input  logic                mmio_write,
    input  logic                mmio_bar,
    input  logic [19:0]         mmio_addr,
    input  logic [63:0]         mmio_wdata,
    input  logic [ 7:0]         mmio_wstrb,
    output logic                mmio_rvalid,
    output logic [63:0]         mmio_rdata,
    // The slot's limits, encoded as in Device Control.
    input  logic [ 2:0]         cfg_max_payload,
    input  logic [ 2:0]         cfg_max_read_req,
    // Host memory: reads.
    output logic                hrd_valid,
    input  logic                hrd_ready,
    output logic [63:0]         hrd_addr,
    output logic [12:0]         hrd_len,
    output logic [ 5:0]         hrd_tag,
    input  logic                hcpl_valid,
    output logic                hcpl_ready,
    input  logic [DATA_W-1:0]   hcpl_data,
    input  logic [ 5:0]         hcpl_tag,
    input  logic [12:0]         hcpl_off,
    input  logic [12:0]         hcpl_len,
    input  logic                hcpl_last,
    input  logic                hcpl_err,
    // Host memory: posted writes, interrupts after them.
    output logic                hwr_valid,
    input  logic                hwr_ready,
    output logic [63:0]         hwr_addr,
    output logic [12:0]         hwr_len,
    output logic [DATA_W-1:0]   hwr_data,
    output logic                hwr_first,
    output logic                hwr_last,
    output logic                msix_valid,
    input  logic                msix_ready,
    output logic [ 4:0]         msix_vector,
    // Soft core: registers of this side, pending bits.
    input  logic                cpu_req,
    input  logic                cpu_we,
    input  logic [11:0]         cpu_addr,
    input  logic [31:0]         cpu_wdata,
    output logic                cpu_ack,
    output logic [31:0]         cpu_rdata,
    output logic                pend_cmd,
    output logic                pend_doorbell,
    output logic                pend_dma_done,
    output logic                pend_xlt_rsp,
    output logic                pend_heartbeat,
    output logic                busy,
    // Packet RAM.
    output logic                pw_valid,
    input  logic                pw_ready,
    output logic [18:0]         pw_addr,  // from 2^18 on: the fast path's transmit RAM
    output logic [DATA_W-1:0]   pw_data,
    output logic [2*DATA_W/8-1:0] pw_strb,
    output logic                pr_valid,
    input  logic                pr_ready,
    output logic [17:0]         pr_addr,
    input  logic                pr_rvalid,
    input  logic [DATA_W-1:0]   pr_rdata,
    // Firmware RAM, core.
    output logic                fwl_we,
    output logic [17:2]         fwl_addr,
    output logic [31:0]         fwl_wdata,
    output logic                core_run,
    // Attached reads of transmit slots.
    output logic [15:0]         tx_wait,
    output logic [15:0]         tx_err,
    output logic [ 7:0]         tx_err_code,
    input  logic                tx_err_clear,
    input  logic [ 3:0]         tx_err_clear_slot,
    // Fast path: payload reads of the transmit half, payload writes of the receive half, and their ends.
    input  logic                fr_valid,
    output logic                fr_ready,
    input  logic [17:0]         fr_local,
    input  logic [12:0]         fr_len,
    input  logic [ 7:0]         fr_asid,
    input  logic [63:0]         fr_va,
    input  logic [ 7:0]         fr_tag,
    output logic                frd_valid,
    output logic [ 7:0]         frd_tag,
    output logic [ 1:0]         frd_status,
    input  logic                fw_valid,
    output logic                fw_ready,
    input  logic [17:0]         fw_local,
    input  logic [12:0]         fw_len,
    input  logic [ 7:0]         fw_asid,
    input  logic [63:0]         fw_va,
    input  logic [ 7:0]         fw_tag,
    output logic                fwd_valid,
    output logic [ 7:0]         fwd_tag,
    output logic [ 1:0]         fwd_status,
    // Fast path: reads of queues (see berth_queue_rd), completions; transmit half in the low bits.
    input  logic [1:0]          qr_valid,
    output logic [1:0]          qr_ready,
    input  logic [2*64-1:0]     qr_addr,
    input  logic [2*10-1:0]     qr_len,
    input  logic [2*8-1:0]      qr_tag,
    output logic [1:0]          qc_valid,
    output logic [DATA_W-1:0]   qc_data,
    output logic [ 7:0]         qc_tag,
    output logic [ 9:0]         qc_off,
    output logic                qc_last,
    output logic                qc_err,
    input  logic [1:0]          fcq_valid,
    output logic [1:0]          fcq_ready,
    input  logic [2*8-1:0]      fcq_cqn,
    input  logic [2*7*32-1:0]   fcq_words,
    // Fast path: doorbells of its QPs.
    output logic                fdb_valid,
    input  logic                fdb_ready,
    output logic                fdb_rq,      // of the receive queue
    output logic [15:0]         fdb_qpn,
    output logic [15:0]         fdb_pi,
    output logic [31:0]         fdb_posted,
    output logic                fdb_inline,  // with an element
    output logic [511:0]        fdb_wqe,
    // Fast path, transmit half in the low bits: ranges of pages (see berth_xlt).
    input  logic [1:0]          xa_valid,
    output logic [1:0]          xa_ready,
    input  logic [1:0]          xa_release,
    input  logic [1:0]          xa_write,
    input  logic [2*8-1:0]      xa_asid,
    input  logic [2*64-1:0]     xa_va,
    input  logic [2*21-1:0]     xa_len,
    input  logic [2*16-1:0]     xa_tag,
    input  logic [1:0]          xr_room,
    output logic [1:0]          xr_valid,
    output logic [2*16-1:0]     xr_tag,
    output logic [2*2-1:0]      xr_kind,
    output logic [2*8-1:0]      xr_status,
    // Statistics RAM.
    output logic                st_req,
    output logic [11:2]         st_addr,
    input  logic [31:0]         st_rdata,
    // What is added to the counters of the wire side, 16 bits each; cycles passed over while the core was idle; time, reset.
    input  logic [16*berth_regs_pkg::NUM_RTL_COUNTERS-1:0] wire_amounts,
    input  logic [63:0]         idle_skipped,
    input  logic [63:0]         cycles,
    output logic                soft_rst
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
  logic fw_data_we, fw_boot_we, cmd_log2_we, cmd_pi_we, evt_log2_we, evt_arm_we, dma_enable;
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
      .clk, .rst,
      .valid(mmio_valid && !mmio_bar && !resetting_q), .ready(regs_ready), .write(mmio_write),
      .addr(mmio_addr), .wdata(mmio_wdata), .wstrb(mmio_wstrb), .rd_valid(regs_rvalid), .rd_data(regs_rdata),
      .fw_data_we, .fw_boot_we, .wr_data(bar_wdata), .fw_status, .fw_code, .hb_challenge, .hb_answer, .reset_we,
      .cmd_base, .cmd_log2, .cmd_log2_we, .cmd_pi, .cmd_pi_we, .cmd_ci, .cmd_stands, .push_begin, .push_we, .push_word, .push_data,
      .evt_base, .evt_log2, .evt_log2_we, .evt_ci, .evt_arm_we, .evt_pi,
      .fence_addr, .dma_enable, .dma_busy, .cfg_max_payload, .cfg_max_read_req, .log2_payload, .log2_read, .log2_tick,
      .cycles, .amounts(wire_amounts | amounts), .idle_skipped, .inc_bad_access, .st_req, .st_addr, .st_rdata
  );

  // ---- BAR2: waits for BAR0's reply, so that reads are answered in order -----------------
  logic db_ready, db_read_q, cqdb_valid, cqdb_ready, cqdb_arm;
  logic [15:0] cqdb_cqn, cqdb_ci;
  logic [5:0] cqdb_uar;
  logic db_cfg_valid, db_cfg_ready, db_pop_valid, db_pop_ready;
  logic [15:0] db_cfg_qpn;
  logic [31:0] db_pop_data, db_pop_index, db_pop_bytes, cpu_word;
  logic inc_db_taken, inc_db_denied, inc_db_malformed;
  wire db_valid = mmio_valid && mmio_bar && regs_ready && !resetting_q;
  berth_doorbell doorbell (
      .clk, .rst,
      .db_valid, .db_ready, .db_write(mmio_write), .db_addr(mmio_addr[17:0]), .db_wdata(mmio_wdata),
      .db_wstrb(mmio_addr[19:18] == 0 ? mmio_wstrb : 8'd0),
      .cq_valid(cqdb_valid), .cq_ready(cqdb_ready), .cq_cqn(cqdb_cqn), .cq_uar(cqdb_uar), .cq_ci(cqdb_ci),
      .cq_arm(cqdb_arm),
      .cfg_valid(db_cfg_valid), .cfg_ready(db_cfg_ready), .cfg_qpn(db_cfg_qpn), .cfg_on(cpu_word[31]),
      .cfg_uar(cpu_word[7:0]), .cfg_fast(cpu_word[30]),
      .fdb_valid, .fdb_ready, .fdb_rq, .fdb_qpn, .fdb_pi, .fdb_posted, .fdb_inline, .fdb_wqe,
      .pop_valid(db_pop_valid), .pop_ready(db_pop_ready), .pop_data(db_pop_data), .pop_index(db_pop_index),
      .pop_bytes(db_pop_bytes), .pending(pend_doorbell),
      .inc_taken(inc_db_taken), .inc_denied(inc_db_denied), .inc_malformed(inc_db_malformed)
  );
  always_ff @(posedge clk) db_read_q <= !rst && db_valid && db_ready && !mmio_write;
  assign mmio_ready = regs_ready && !resetting_q && (!mmio_bar || db_ready);
  assign mmio_rvalid = regs_rvalid || db_read_q;
  assign mmio_rdata = regs_rvalid ? regs_rdata : '1;

  // ---- Firmware loader -------------------------------------------------------------------
  logic status_we, code_we;
  berth_fw_loader loader (
      .clk, .rst, .data_we(fw_data_we), .boot_we(fw_boot_we), .wdata(bar_wdata),
      .status_we, .code_we, .cpu_wdata(cpu_word), .fwl_we, .fwl_addr, .fwl_wdata, .core_run,
      .status(fw_status), .code(fw_code)
  );
  assign pend_heartbeat = hb_challenge != hb_answer;

  // ---- The core's registers ----------------------------------------------------------------
  typedef struct packed {
    logic        bad;
    logic [17:0] place;
    logic [12:0] len;
    logic [15:0] tag;
    logic [63:0] addr;
    logic        virt;
    logic        attach;
    logic [3:0]  slot;
    logic [7:0]  asid;
  } dma_t;
  typedef struct packed {
    logic        give_back;
    logic        write;
    logic [7:0]  asid;
    logic [63:0] va;
    logic [30:0] len;
    logic [15:0] tag;
  } range_t;
  logic fw_pop;
  logic [3:0] fw_raddr;
  logic [31:0] fw_rdata;
  logic rd_valid, rd_ready, wr_valid, wr_ready, done_valid, done_pop;
  logic [23:0] done_data;
  dma_t go;
  range_t xgo, xhead;
  logic xgo_valid, xgo_ready, xhead_valid, xhead_ready, rsp_valid, rsp_pop;
  logic [31:0] rsp_data;
  logic fev_valid, fev_ready;
  logic [16*32-1:0] fev_words;
  logic [15:0] ev_space;
  logic cq_cfg_valid, cq_cfg_ready, cqe_valid, cqe_ready;
  logic [15:0] cq_cfg_cqn, cqe_cqn;
  logic [63:0] cq_cfg_base;
  logic [31:0] cq_cfg_attr;
  logic [8*32-1:0] cqe_words;
  berth_cpu_regs cpu_regs (
      .clk, .rst, .cpu_req, .cpu_we, .cpu_addr, .cpu_wdata, .cpu_ack, .cpu_rdata,
      .status_we, .code_we, .hb_challenge, .hb_answer, .fw_pop, .fw_raddr, .fw_rdata,
      .db_cfg_valid, .db_cfg_ready, .db_cfg_qpn, .db_pending(pend_doorbell), .db_pop_valid, .db_pop_ready,
      .db_pop_data, .db_pop_index, .db_pop_bytes,
      .rd_valid, .rd_ready, .wr_valid, .wr_ready, .dma_bad(go.bad), .dma_local(go.place), .dma_len(go.len),
      .dma_tag(go.tag), .dma_addr(go.addr), .dma_virtual(go.virt), .dma_attach(go.attach), .dma_slot(go.slot),
      .dma_asid(go.asid), .done_valid, .done_pop, .done_data,
      .xlt_valid(xgo_valid), .xlt_ready(xgo_ready), .xlt_release(xgo.give_back), .xlt_write(xgo.write),
      .xlt_asid(xgo.asid), .xlt_va(xgo.va), .xlt_len(xgo.len), .xlt_tag(xgo.tag), .rsp_valid, .rsp_pop, .rsp_data,
      .ev_valid(fev_valid), .ev_ready(fev_ready), .ev_words(fev_words), .ev_space,
      .cq_cfg_valid, .cq_cfg_ready, .cq_cfg_cqn, .cq_cfg_base, .cq_cfg_attr,
      .cqe_valid, .cqe_ready, .cqe_cqn, .cqe_words, .wdata(cpu_word)
  );

  // ---- Translation -----------------------------------------------------------------------------
  logic [1:0] lk_req, lk_ack;
  logic [15:0] lk_asid;
  logic [103:0] lk_vpn;
  logic lk_hit;
  logic [51:0] lk_page, ch_page;
  logic ch_more;
  logic ch_valid, ch_ready, ch_write, rdy_valid, rdy_ready, xev_valid, xev_ready, xlt_busy;
  logic [1:0] ch_op;
  logic [12:0] ch_index;
  logic [47:0] ch_vpn;
  logic [7:0] ch_asid, rdy_status;
  logic [17:0] rdy_tag;
  logic [7*32-1:0] xev_words;
  logic [1:0] inc_hit, inc_miss;
  berth_fifo #(.WIDTH($bits(xgo)), .DEPTH(QUEUED)) range_fifo (
      .clk, .rst, .wr_valid(xgo_valid), .wr_ready(xgo_ready), .wr_data(xgo),
      .rd_valid(xhead_valid), .rd_ready(xhead_ready), .rd_data(xhead)
  );
  berth_xlt xlt (
      .clk, .rst, .lk_req, .lk_asid, .lk_vpn, .lk_ack, .lk_hit, .lk_page,
      .ch_valid, .ch_ready, .ch_op, .ch_index, .ch_vpn, .ch_asid, .ch_write, .ch_page, .ch_more,
      .rdy_valid, .rdy_ready, .rdy_tag, .rdy_status,
      .go_valid(xhead_valid), .go_ready(xhead_ready), .go_release(xhead.give_back), .go_write(xhead.write),
      .go_asid(xhead.asid), .go_va(xhead.va), .go_len(xhead.len), .go_tag(xhead.tag),
      .rsp_valid, .rsp_ready(rsp_pop), .rsp_data,
      .xa_valid, .xa_ready, .xa_release, .xa_write, .xa_asid, .xa_va, .xa_len, .xa_tag,
      .xa_tell(1'b1), .xr_room, .xr_valid, .xr_tag, .xr_kind, .xr_status,
      .ev_valid(xev_valid), .ev_ready(xev_ready), .ev_words(xev_words),
      .inc_hit, .inc_miss, .busy(xlt_busy)
  );
  assign pend_xlt_rsp = rsp_valid;

  // ---- DMA ---------------------------------------------------------------------------------------
  dma_t rcmd, wcmd;
  logic rcmd_valid, rcmd_ready, wcmd_valid, wcmd_ready;
  berth_fifo #(.WIDTH($bits(go)), .DEPTH(QUEUED)) rd_fifo (
      .clk, .rst, .wr_valid(rd_valid), .wr_ready(rd_ready), .wr_data(go),
      .rd_valid(rcmd_valid), .rd_ready(rcmd_ready), .rd_data(rcmd)
  );
  berth_fifo #(.WIDTH($bits(go)), .DEPTH(QUEUED)) wr_fifo (
      .clk, .rst, .wr_valid(wr_valid), .wr_ready(wr_ready), .wr_data(go),
      .rd_valid(wcmd_valid), .rd_ready(wcmd_ready), .rd_data(wcmd)
  );

  logic rdone_valid, rdone_ready, wdone_valid, wdone_ready, att_done, hold, rd_quiet, wr_quiet, rd_busy, wr_busy;
  logic [15:0] rdone_tag, wdone_tag;
  logic [7:0] rdone_status, wdone_status, att_status;
  logic [3:0] att_slot;
  logic [4:0] wr_flying;
  logic ring_valid, ring_ready, ring_cpl_valid, ring_cpl_end, ring_cpl_err;
  logic [63:0] ring_addr;
  logic [12:0] ring_len, ring_cpl_offset;
  logic [DATA_W-1:0] ring_cpl_data;
  logic ring_cpl_more;
  logic [2:0] ring_tag, ring_cpl_tag;
  logic inc_request, inc_rd_miss, inc_wr_miss, inc_host_error, inc_timeout, inc_unexpected;
  // Thirds of the time-out of reads, by the card's own time.
  logic tick_q;
  wire tick = cycles[{1'b0, log2_tick}] != tick_q;
  always_ff @(posedge clk) tick_q <= cycles[{1'b0, log2_tick}];
  logic one_valid, one_ready, two_valid, two_more, two_last, two_err;
  logic [63:0] one_addr;
  logic [9:0] one_len, two_off;
  logic [8:0] one_tag, two_tag;
  logic [DATA_W-1:0] two_data;
  berth_queue_rd #(.DATA_W(DATA_W)) queue_rd (
      .clk, .rst, .log2_read, .qr_valid, .qr_ready, .qr_addr, .qr_len, .qr_tag,
      .qc_valid, .qc_data, .qc_tag, .qc_off, .qc_last, .qc_err,
      .rd_valid(one_valid), .rd_ready(one_ready), .rd_addr(one_addr), .rd_len(one_len), .rd_tag(one_tag),
      .cp_valid(two_valid), .cp_data(two_data), .cp_tag(two_tag), .cp_off(two_off), .cp_more(two_more),
      .cp_last(two_last), .cp_err(two_err)
  );
  berth_dma_rd #(.DATA_W(DATA_W)) dma_rd (
      .fp_valid(fr_valid), .fp_ready(fr_ready), .fp_local(fr_local), .fp_len(fr_len), .fp_asid(fr_asid),
      .fp_va(fr_va), .fp_tag(fr_tag), .fd_valid(frd_valid), .fd_tag(frd_tag), .fd_status(frd_status),
      .qr_valid(one_valid), .qr_ready(one_ready), .qr_addr(one_addr), .qr_len(one_len), .qr_tag(one_tag),
      .qc_valid(two_valid), .qc_data(two_data), .qc_tag(two_tag), .qc_off(two_off), .qc_more(two_more),
      .qc_last(two_last), .qc_err(two_err),
      .clk, .rst, .cold, .cmd_valid(rcmd_valid), .cmd_ready(rcmd_ready), .cmd_bad(rcmd.bad), .cmd_local(rcmd.place),
      .cmd_len(rcmd.len), .cmd_tag(rcmd.tag), .cmd_addr(rcmd.addr), .cmd_virtual(rcmd.virt),
      .cmd_attach(rcmd.attach), .cmd_slot(rcmd.slot), .cmd_asid(rcmd.asid),
      .done_valid(rdone_valid), .done_ready(rdone_ready), .done_tag(rdone_tag), .done_status(rdone_status),
      .att_done, .att_slot, .att_status, .enable(dma_enable), .hold, .stop(resetting_q), .log2_read, .tick,
      .quiet(rd_quiet), .flying(rd_flying), .busy(rd_busy),
      .lk_req(lk_req[0]), .lk_asid(lk_asid[7:0]), .lk_vpn(lk_vpn[51:0]), .lk_ack(lk_ack[0]), .lk_hit, .lk_page,
      .ring_valid, .ring_ready, .ring_addr, .ring_len, .ring_tag, .ring_cpl_tag, .ring_cpl_valid, .ring_cpl_offset, .ring_cpl_data,
      .ring_cpl_more, .ring_cpl_end, .ring_cpl_err,
      .hrd_valid, .hrd_ready, .hrd_addr, .hrd_len, .hrd_tag,
      .hcpl_valid, .hcpl_ready, .hcpl_data, .hcpl_tag, .hcpl_off, .hcpl_len, .hcpl_last, .hcpl_err,
      .pw_valid, .pw_ready, .pw_addr, .pw_data, .pw_strb,
      .inc_request, .inc_no_translation(inc_rd_miss), .inc_host_error, .inc_timeout, .inc_unexpected
  );

  // Clients of the posted write port.
  localparam int unsigned W_DMA = 0, W_EVENT = 1, W_CQE = 2, W_TOKEN = 3;
  logic [3:0] s_valid, s_ready, s_last;
  logic [4*64-1:0] s_addr;
  logic [4*13-1:0] s_len;
  logic [4*DATA_W-1:0] s_data;

  logic [18:0] pr_addr_wide;
  assign pr_addr = pr_addr_wide[17:0];
  berth_dma_wr #(.DATA_W(DATA_W)) dma_wr (
      .fp_valid(fw_valid), .fp_ready(fw_ready), .fp_local(fw_local), .fp_len(fw_len), .fp_asid(fw_asid),
      .fp_va(fw_va), .fp_tag(fw_tag), .fd_valid(fwd_valid), .fd_tag(fwd_tag), .fd_status(fwd_status),
      .clk, .rst, .cmd_valid(wcmd_valid), .cmd_ready(wcmd_ready), .cmd_bad(wcmd.bad), .cmd_local(wcmd.place),
      .cmd_len(wcmd.len), .cmd_tag(wcmd.tag), .cmd_addr(wcmd.addr), .cmd_virtual(wcmd.virt), .cmd_asid(wcmd.asid),
      .done_valid(wdone_valid), .done_ready(wdone_ready), .done_tag(wdone_tag), .done_status(wdone_status),
      .enable(dma_enable), .hold, .log2_payload, .quiet(wr_quiet), .flying(wr_flying), .busy(wr_busy),
      .lk_req(lk_req[1]), .lk_asid(lk_asid[15:8]), .lk_vpn(lk_vpn[103:52]), .lk_ack(lk_ack[1]), .lk_hit, .lk_page,
      .pr_valid, .pr_ready, .pr_addr(pr_addr_wide), .pr_rvalid, .pr_rdata,
      .wr_valid(s_valid[W_DMA]), .wr_ready(s_ready[W_DMA]), .wr_addr(s_addr[W_DMA*64+:64]),
      .wr_len(s_len[W_DMA*13+:13]), .wr_data(s_data[W_DMA*DATA_W+:DATA_W]), .wr_last(s_last[W_DMA]),
      .inc_no_translation(inc_wr_miss)
  );

  // Statuses of both engines; if firmware leaves the FIFO full, the engines wait.
  logic done_space;
  assign wdone_ready = done_space;
  assign rdone_ready = done_space && !wdone_valid;
  berth_fifo #(.WIDTH(24), .DEPTH(512)) done_fifo (
      .clk, .rst, .wr_valid(wdone_valid || rdone_valid), .wr_ready(done_space),
      .wr_data(wdone_valid ? {wdone_status, wdone_tag} : {rdone_status, rdone_tag}),
      .rd_valid(done_valid), .rd_ready(done_pop), .rd_data(done_data)
  );
  assign pend_dma_done = done_valid;

  // Attached reads per transmit slot, from the core's command on.
  logic [6:0] att_q[16];
  logic [15:0] tx_err_q;
  logic [7:0] tx_err_code_q;
  wire att_go = rd_valid && rd_ready && go.attach;
  always_comb for (int i = 0; i < 16; i++) tx_wait[i] = att_q[i] != 0;
  assign tx_err = tx_err_q;
  assign tx_err_code = tx_err_code_q;
  always_ff @(posedge clk) begin
    for (int unsigned i = 0; i < 16; i++)
      att_q[i] <= rst ? '0 : att_q[i] + 7'(att_go && go.slot == 4'(i)) - 7'(att_done && att_slot == 4'(i));
    if (tx_err_clear) tx_err_q[tx_err_clear_slot] <= 1'b0;
    if (att_done && att_status != 0) begin
      tx_err_q[att_slot] <= 1'b1;
      tx_err_code_q <= att_status;
    end
    if (rst) tx_err_q <= '0;
  end

  // ---- Command ring ------------------------------------------------------------------------------
  logic token_valid, token_ready, inc_cmd_bad, cmd_busy;
  logic [63:0] token_data;
  berth_cmd #(.DATA_W(DATA_W)) cmd (
      .clk, .rst, .enable(dma_enable && !resetting_q), .ring_base(cmd_base), .ring_log2(cmd_log2),
      .ring_log2_we(cmd_log2_we), .ring_pi(cmd_pi), .ring_pi_we(cmd_pi_we), .ring_ci(cmd_ci), .stands(cmd_stands), .log2_read,
      .push_begin, .push_we, .push_word, .push_data,
      .rd_valid(ring_valid), .rd_ready(ring_ready), .rd_addr(ring_addr), .rd_len(ring_len),
      .rd_tag(ring_tag), .cpl_tag(ring_cpl_tag), .cpl_valid(ring_cpl_valid), .cpl_offset(ring_cpl_offset), .cpl_data(ring_cpl_data), .cpl_more(ring_cpl_more), .cpl_end(ring_cpl_end),
      .cpl_err(ring_cpl_err),
      .ch_valid, .ch_ready, .ch_op, .ch_index, .ch_vpn, .ch_asid, .ch_write, .ch_page, .ch_more,
      .rdy_valid, .rdy_ready, .rdy_tag, .rdy_status, .hold, .quiet(rd_quiet && wr_quiet),
      .token_valid, .token_ready, .token_data, .fw_valid(pend_cmd), .fw_pop, .fw_raddr, .fw_rdata,
      .inc_bad(inc_cmd_bad), .inc_pushed(inc_cmd_pushed), .busy(cmd_busy)
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
  berth_cq #(.DATA_W(DATA_W)) cq (
      .clk, .rst, .db_valid(cqdb_valid), .db_ready(cqdb_ready), .db_cqn(cqdb_cqn), .db_uar(cqdb_uar),
      .db_ci(cqdb_ci), .db_arm(cqdb_arm),
      .cfg_valid(cq_cfg_valid), .cfg_ready(cq_cfg_ready), .cfg_cqn(cq_cfg_cqn), .cfg_base(cq_cfg_base),
      .cfg_on(cq_cfg_attr[31]), .cfg_uar(cq_cfg_attr[15:8]), .cfg_log2(cq_cfg_attr[3:0]),
      .cqe_valid, .cqe_ready, .cqe_cqn, .cqe_words,
      .fp_valid(fcq_valid), .fp_ready(fcq_ready), .fp_cqn(fcq_cqn), .fp_words(fcq_words),
      .wr_valid(s_valid[W_CQE]), .wr_ready(s_ready[W_CQE]), .wr_addr(s_addr[W_CQE*64+:64]),
      .wr_data(s_data[W_CQE*DATA_W+:DATA_W]), .wr_last(s_last[W_CQE]),
      .ev_valid(cev_valid), .ev_ready(cev_ready), .ev_words(cev_words),
      .inc_taken(inc_cq_taken), .inc_denied(inc_cq_denied), .inc_written(inc_cqe), .inc_overrun, .busy(cq_busy)
  );
  assign s_len[W_CQE*13+:13] = 13'd32;
  berth_event #(.DATA_W(DATA_W)) events (
      .clk, .rst, .ring_base(evt_base), .ring_log2(evt_log2), .ring_log2_we(evt_log2_we), .ring_ci(evt_ci),
      .ring_arm_we(evt_arm_we), .ring_pi(evt_pi), .ring_space(ev_space),
      .x_valid(xev_valid), .x_ready(xev_ready), .x_words(xev_words),
      .c_valid(cev_valid), .c_ready(cev_ready), .c_words(cev_words),
      .f_valid(fev_valid), .f_ready(fev_ready), .f_words(fev_words),
      .wr_valid(s_valid[W_EVENT]), .wr_ready(s_ready[W_EVENT]), .wr_addr(s_addr[W_EVENT*64+:64]),
      .wr_data(s_data[W_EVENT*DATA_W+:DATA_W]), .wr_last(s_last[W_EVENT]),
      .msix_valid, .msix_ready, .inc_event, .inc_irq, .busy(ev_busy)
  );
  assign s_len[W_EVENT*13+:13] = 13'd64;
  assign msix_vector = 5'd0;

  // With DMA disabled nothing new begins; data that is on its way ends. Nothing at all begins before a reset.
  berth_wr_arb #(.DATA_W(DATA_W), .N(4)) arb (
      .clk, .rst, .allow({{3{dma_enable}}, 1'b1} & {4{!resetting_q}}),
      .s_valid, .s_ready, .s_addr, .s_len, .s_data, .s_last,
      .hwr_valid, .hwr_ready, .hwr_addr, .hwr_len, .hwr_data, .hwr_first, .hwr_last, .busy(arb_busy)
  );

  // ---- Sums ---------------------------------------------------------------------------------------------
  assign dma_busy = 16'(rd_flying) + 16'(wr_flying) + 16'(arb_busy);
  assign busy = rd_busy || wr_busy || cmd_busy || cq_busy || ev_busy || xlt_busy || arb_busy || resetting_q || xhead_valid;
  wire hwr_start = hwr_valid && hwr_ready && hwr_first;
  always_comb begin
    amounts = '0;
    amounts[16*berth_regs_pkg::C_DMA_READS+:16]          = 16'(inc_request);
    amounts[16*berth_regs_pkg::C_DMA_READ_BYTES+:16]     = inc_request ? 16'(hrd_len) : 16'd0;
    amounts[16*berth_regs_pkg::C_DMA_WRITES+:16]         = 16'(hwr_start);
    amounts[16*berth_regs_pkg::C_DMA_WRITE_BYTES+:16]    = hwr_start ? 16'(hwr_len) : 16'd0;
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
  always_ff @(posedge clk) if (!rst && $past(!rst && hrd_valid && !hrd_ready)) assert (hrd_valid && $stable({hrd_addr, hrd_len, hrd_tag}));
  always_ff @(posedge clk) if (!rst && $past(!rst && hwr_valid && !hwr_ready)) assert (hwr_valid && $stable(hwr_last));

  wire unused = &{1'b0, cq_cfg_attr, wcmd, pr_addr_wide[18]};
endmodule
