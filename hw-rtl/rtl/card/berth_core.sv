// SPDX-License-Identifier: Apache-2.0 OR MIT
// The Berth card without vendor primitives: host port, MAC port, and the soft core in
// its socket. Simulation, boards and formal all attach here.
//
//   host port -- berth_hostif -- berth_pktram -- berth_mac_tx/rx -- MAC port
//                      |               |             |
//                      +------- berth_cpu_bus -------+
//                                      |
//                                  berth_cpu
//
// `rst` resets everything. A card reset that the host asks for (HOST_CTRL) resets
// everything too, but lets a frame end that has begun on the MAC.

module berth_core #(
    parameter DATA_W = 64,         // bits of a beat on the MAC port: 64, 128, 256 or 512
    parameter HOST_W = 2 * DATA_W, // bits of a beat on the host port: DATA_W or twice as many
    parameter FW_RAM = 1           // 0: firmware's RAM (FW_RAM_BYTES) is outside, at the ports xi_* and xd_*
) (
    input  logic                clk,
    input  logic                rst,

    // MMIO: BAR0 (bar = 0) and BAR2 (bar = 1), little-endian lanes by addr[2:0]
    input  logic                mmio_valid,
    output logic                mmio_ready,
    input  logic                mmio_write,
    input  logic                mmio_bar,
    input  logic [19:0]         mmio_addr,
    input  logic [63:0]         mmio_wdata,
    input  logic [7:0]          mmio_wstrb,
    output logic                mmio_rvalid,
    output logic [63:0]         mmio_rdata,

    // the slot's limits, as configuration space has them in Device Control: 0 is 128 bytes, 5 is 4096, others count as
    // 0. Requests from before a change may still go out at the old size
    input  logic [2:0]          cfg_max_payload,
    input  logic [2:0]          cfg_max_read_req,

    // host memory reads: requests never cross 4 KiB
    output logic                hrd_valid,
    input  logic                hrd_ready,
    output logic [63:0]         hrd_addr,
    output logic [12:0]         hrd_len,
    output logic [5:0]          hrd_tag,

    // ... and their completions, left-aligned; off and len hold through all beats of one. Those of a tag come in the order
    // of its bytes. err: with data (poisoned) the rest may still come; without (len 0) nothing does
    input  logic                hcpl_valid,
    output logic                hcpl_ready,
    input  logic [HOST_W-1:0]   hcpl_data,
    input  logic [5:0]          hcpl_tag,
    input  logic [12:0]         hcpl_off,
    input  logic [12:0]         hcpl_len,
    input  logic                hcpl_last,
    input  logic                hcpl_err,

    // host memory writes (posted), left-aligned; addr and len with first
    output logic                hwr_valid,
    input  logic                hwr_ready,
    output logic [63:0]         hwr_addr,
    output logic [12:0]         hwr_len,
    output logic [HOST_W-1:0]   hwr_data,
    output logic                hwr_first,
    output logic                hwr_last,

    // interrupts, ordered behind the writes
    output logic                msix_valid,
    input  logic                msix_ready,
    output logic [4:0]          msix_vector,

    // MAC: frames without preamble and FCS
    output logic                tx_valid,
    input  logic                tx_ready,
    output logic [DATA_W-1:0]   tx_data,
    output logic [DATA_W/8-1:0] tx_keep,
    output logic                tx_last,
    input  logic                rx_valid,
    output logic                rx_ready,
    input  logic [DATA_W-1:0]   rx_data,
    input  logic [DATA_W/8-1:0] rx_keep,
    input  logic                rx_last,
    input  logic                rx_err,

    // firmware's RAM if it is outside, instructions and data; words. A request stands until its answer (a clock with
    // ack; rdata comes with it), or until a reset ends it
    output logic                xi_req,
    output logic [19:2]         xi_addr,
    input  logic                xi_ack,
    input  logic [31:0]         xi_rdata,
    output logic                xd_req,
    output logic                xd_we,
    output logic [19:2]         xd_addr,
    output logic [31:0]         xd_wdata,
    output logic [3:0]          xd_strb,
    input  logic                xd_ack,
    input  logic [31:0]         xd_rdata,

    // simulation: nothing can happen before the deadline or an input
    output logic                idle,
    output logic                timer_armed,
    output logic [63:0]         timer_deadline,
    output logic [63:0]         cycles,
    input  logic [63:0]         skip,      // cycles that pass in this clock besides; only while idle

    // debug port: second master on the core's bus, held until the ack; 0 on boards
    input  logic                dbg_req,
    input  logic                dbg_we,
    input  logic [31:0]         dbg_addr,
    input  logic [31:0]         dbg_wdata,
    output logic                dbg_ack,
    output logic [31:0]         dbg_rdata
);
    // ---- reset and time --------------------------------------------------------------
    logic       soft_rst;
    logic       tx_mid_frame;
    logic [3:0] rst_left_q;
    logic       card_rst;
    logic       tx_rst;
    logic       core_run;

    // At power-on no signal is meaningful, not even the one that a frame is on the wire.
    assign card_rst = rst || rst_left_q != 4'd0;
    assign tx_rst   = rst || (card_rst && !tx_mid_frame);

    always_ff @(posedge clk) begin
        if (rst || soft_rst)
            rst_left_q <= 4'd15;
        else if (card_rst && !(rst_left_q == 4'd1 && tx_mid_frame))
            rst_left_q <= rst_left_q - 4'd1;

        cycles <= cycles + 64'd1 + skip;
        if (card_rst)
            cycles <= 64'd0;
    end

    // ---- soft core -------------------------------------------------------------------
    logic        ibus_stb, ibus_ack, ibus_err;
    logic [31:2] ibus_adr;
    logic [2:0]  ibus_cti;
    logic [31:0] ibus_dat_r;
    logic        dbus_stb, dbus_we, dbus_ack, dbus_err;
    logic [31:2] dbus_adr;
    logic [2:0]  dbus_cti;
    logic [3:0]  dbus_sel;
    logic [31:0] dbus_dat_w, dbus_dat_r;
    logic        core_rst_q;
    logic        fwl_we, fwl_room, fwl_busy;
    logic [19:2] fwl_addr;
    logic [31:0] fwl_wdata;

    always_ff @(posedge clk) core_rst_q <= card_rst || !core_run || fwl_busy;

    berth_cpu cpu (
        .clk(clk), .rst(core_rst_q),
        .ibus_stb(ibus_stb), .ibus_adr(ibus_adr), .ibus_cti(ibus_cti),
        .ibus_ack(ibus_ack), .ibus_dat_r(ibus_dat_r), .ibus_err(ibus_err),
        .dbus_stb(dbus_stb), .dbus_we(dbus_we), .dbus_adr(dbus_adr), .dbus_cti(dbus_cti),
        .dbus_sel(dbus_sel), .dbus_dat_w(dbus_dat_w),
        .dbus_ack(dbus_ack), .dbus_dat_r(dbus_dat_r), .dbus_err(dbus_err)
    );

    // ---- the core's bus --------------------------------------------------------------
    logic        h_req, h_we, h_ack;
    logic [11:0] h_addr;
    logic [31:0] h_wdata, h_rdata;
    logic        p_valid, p_we;
    logic [17:0] p_addr;
    logic [31:0] p_wdata, p_rdata;
    logic [3:0]  p_strb;
    logic        stat_req;
    logic [11:2] stat_addr;
    logic [31:0] stat_rdata;
    logic        pend_cmd, pend_doorbell, pend_dma_done, pend_xlt_rsp, pend_heartbeat;
    logic        desc_valid, desc_pop, slot_free;
    berth_card_pkg::desc_t desc;
    logic [7:0]  slot_free_n;
    berth_card_pkg::send_t send;
    logic        send_valid, send_ready;
    logic        sent_valid, sent_pop;
    berth_card_pkg::sent_t sent;
    logic        asleep, waiting, cpu_armed;
    logic [63:0] cpu_deadline, fp_deadline;
    logic [31:0] fp_ahead;

    berth_cpu_bus #(.FW_RAM(FW_RAM)) bus (
        .clk(clk), .rst(card_rst), .core_run(!core_rst_q), .ibus_stb(ibus_stb && !core_rst_q), .ibus_adr(ibus_adr),
        .ibus_cti(ibus_cti), .ibus_ack(ibus_ack), .ibus_dat_r(ibus_dat_r), .ibus_err(ibus_err),
        .dbus_stb(dbus_stb && !core_rst_q), .dbus_we(dbus_we), .dbus_adr(dbus_adr), .dbus_cti(dbus_cti),
        .dbus_sel(dbus_sel), .dbus_dat_w(dbus_dat_w), .dbus_ack(dbus_ack), .dbus_dat_r(dbus_dat_r),
        .dbus_err(dbus_err), .dbg_req(dbg_req), .dbg_we(dbg_we), .dbg_addr(dbg_addr), .dbg_wdata(dbg_wdata),
        .dbg_ack(dbg_ack), .dbg_rdata(dbg_rdata), .fwl_we(fwl_we), .fwl_addr(fwl_addr), .fwl_wdata(fwl_wdata),
        .fwl_room(fwl_room), .fwl_busy(fwl_busy), .xi_req(xi_req), .xi_addr(xi_addr), .xi_ack(xi_ack),
        .xi_rdata(xi_rdata), .xd_req(xd_req), .xd_we(xd_we), .xd_addr(xd_addr), .xd_wdata(xd_wdata), .xd_strb(xd_strb),
        .xd_ack(xd_ack), .xd_rdata(xd_rdata), .h_req(h_req), .h_we(h_we), .h_addr(h_addr), .h_wdata(h_wdata),
        .h_ack(h_ack), .h_rdata(h_rdata), .p_valid(p_valid), .p_we(p_we), .p_addr(p_addr), .p_wdata(p_wdata),
        .p_strb(p_strb), .p_rdata(p_rdata), .stat_req(stat_req), .stat_addr(stat_addr), .stat_rdata(stat_rdata),
        .pend_cmd(pend_cmd), .pend_doorbell(pend_doorbell), .pend_dma_done(pend_dma_done), .pend_xlt_rsp(pend_xlt_rsp),
        .pend_heartbeat(pend_heartbeat), .desc_valid(desc_valid), .desc(desc), .desc_pop(desc_pop),
        .slot_free(slot_free), .slot_free_n(slot_free_n), .send_valid(send_valid), .send_ready(send_ready),
        .send(send), .sent_valid(sent_valid), .sent(sent), .sent_pop(sent_pop), .fc_req(fc_req), .fc(fc),
        .fc_ack(fc_ack), .fc_rdata(fc_rdata), .fe_valid(fe_valid), .fe(fe), .fe_pop(fe_pop), .cycles(cycles),
        .timer_armed(cpu_armed), .timer_deadline(cpu_deadline), .asleep(asleep), .waiting(waiting)
    );

    // ---- host side -------------------------------------------------------------------
    logic                hostif_busy, hostif_mmio_ready;
    logic                pw_valid, pw_ready;
    logic [18:0]         pw_addr;
    logic [HOST_W-1:0]   pw_data;
    logic [2*HOST_W/8-1:0] pw_strb;
    logic                pr_valid, pr_ready, pr_rvalid;
    logic [17:0]         pr_addr;
    logic [HOST_W-1:0]   pr_rdata;
    berth_card_pkg::slot_reads_t slot_reads;
    logic                slot_err_clear;
    logic [3:0]          slot_err_clear_n;
    logic [16*berth_regs_pkg::NUM_RTL_COUNTERS-1:0] wire_amounts;
    logic [63:0]         idle_skipped;

    // Fast path, transmit half in the low bits of pairs.
    logic                load_valid, load_ready, loaded_valid, store_valid, store_ready, stored_valid;
    berth_card_pkg::payload_t load, store;
    berth_card_pkg::payload_end_t loaded, stored;
    logic                change_valid, change_ready, changed_valid;
    berth_card_pkg::change_t change;
    berth_card_pkg::change_end_t changed;
    berth_card_pkg::queue_reads_t qr;
    berth_card_pkg::queue_beat_t qc;
    berth_card_pkg::completions_t fcq;
    berth_card_pkg::range_asks_t xa;
    berth_card_pkg::range_answers_t xr;
    logic [1:0]          qr_valid, qr_ready, qc_valid, fcq_valid, fcq_ready;
    logic [HOST_W-1:0]   qc_data;
    logic [1:0]          xa_valid, xa_ready, xr_valid;
    logic [1:0]          xr_room;
    berth_card_pkg::doorbell_t fdb;
    logic                fdb_valid, fdb_ready;
    berth_card_pkg::row_access_t fc;
    berth_row_pkg::fast_event_t fe;
    logic                fc_req, fc_ack, fe_valid, fe_pop, fp_busy, fp_due;
    logic [31:0]         fp_due_at;
    logic [31:0]         fc_rdata;
    logic                cf_valid, core_valid;
    berth_card_pkg::frame_t rf, cf, core_frame;
    logic [8*96-1:0]     cf_hdr;
    logic                rf_valid, rf_ready, hd_re, rfree_valid;
    logic [17:0]         hd_addr, rfree_place;
    logic [8*96-1:0]     rf_hdr;
    logic [31:0]         hd_data;
    berth_card_pkg::frame_out_t fs;
    logic                hw_valid, hw_ready, fs_valid, fs_ready, fl_valid;
    logic [17:0]         hw_addr;
    logic [HOST_W-1:0]   hw_data;
    logic [HOST_W/8-1:0] hw_strb;
    logic [7:0]          fl_tag;
    berth_card_pkg::fast_amounts_t fp_amounts;
    logic [47:0]         own_mac;
    logic [31:0]         own_ip;

    berth_fp #(.DATA_W(DATA_W), .HOST_W(HOST_W), .QPS(berth_regs_pkg::NUM_QP_ROWS), .WB($clog2(berth_regs_pkg::FAST_PLACES))) fp (
        .clk(clk), .rst(card_rst), .busy(fp_busy), .due(fp_due), .due_at(fp_due_at), .now(cycles[37:6]),
        .fc_req(fc_req), .fc(fc), .fc_ack(fc_ack), .fc_rdata(fc_rdata), .fe_valid(fe_valid), .fe(fe), .fe_pop(fe_pop),
        .fdb_valid(fdb_valid), .fdb_ready(fdb_ready), .fdb(fdb), .load_valid(load_valid), .load_ready(load_ready),
        .load(load), .loaded_valid(loaded_valid), .loaded(loaded), .store_valid(store_valid),
        .store_ready(store_ready), .store(store), .stored_valid(stored_valid), .stored(stored),
        .change_valid(change_valid), .change_ready(change_ready), .change(change), .changed_valid(changed_valid),
        .changed(changed), .qr_valid(qr_valid), .qr_ready(qr_ready), .qr(qr), .qc_valid(qc_valid), .qc_data(qc_data), .qc(qc), .fcq_valid(fcq_valid),
        .fcq_ready(fcq_ready), .fcq(fcq), .xa_valid(xa_valid), .xa_ready(xa_ready), .xa(xa), .xr_room(xr_room),
        .xr_valid(xr_valid), .xr(xr), .hw_valid(hw_valid), .hw_ready(hw_ready), .hw_addr(hw_addr), .hw_data(hw_data),
        .hw_strb(hw_strb), .fs_valid(fs_valid), .fs_ready(fs_ready), .fs(fs), .fl_valid(fl_valid), .fl_tag(fl_tag),
        .rf_valid(rf_valid), .rf_ready(rf_ready), .rf(rf), .rf_hdr(rf_hdr), .hd_re(hd_re), .hd_addr(hd_addr),
        .hd_data(hd_data), .rfree_valid(rfree_valid), .rfree_place(rfree_place), .cf_valid(cf_valid),
        .cf_ready(1'b1), .cf(cf), .cf_hdr(cf_hdr), .fp_amounts(fp_amounts), .own_mac(own_mac), .own_ip(own_ip)
    );

    // ---- raw queues --------------------------------------------------------------------
    logic                raw_busy, raw_setup_valid, rdb_valid, raw_qr_valid, raw_qr_ready, raw_qc_valid, raw_done_valid, raw_done_ready;
    logic                raw_load_valid, raw_load_ready, raw_loaded_valid, raw_store_valid, raw_store_ready, raw_stored_valid;
    logic [3:0]          raw_setup_busy;
    berth_card_pkg::raw_setup_t    raw_setup;
    berth_card_pkg::raw_doorbell_t rdb;
    berth_card_pkg::queue_read_t   raw_qr;
    berth_card_pkg::completion_t   raw_done;
    berth_card_pkg::payload_t      raw_load, raw_store;
    berth_card_pkg::frame_out_t    ws;
    berth_card_pkg::raw_events_t   raw_ev;
    logic                ws_valid, ws_ready, wl_valid, wide, xfree_valid;
    logic [17:0]         xfree_place;
    logic [4:0]          core_n;

    berth_raw #(.DATA_W(DATA_W), .HOST_W(HOST_W)) raw (
        .clk(clk), .rst(card_rst), .busy(raw_busy), .setup_valid(raw_setup_valid), .setup(raw_setup),
        .setup_busy(raw_setup_busy), .own_mac(own_mac), .own_ip(own_ip), .bell_valid(rdb_valid), .bell(rdb),
        .qr_valid(raw_qr_valid), .qr_ready(raw_qr_ready), .qr(raw_qr), .qc_valid(raw_qc_valid), .qc_data(qc_data), .qc(qc),
        .done_valid(raw_done_valid), .done_ready(raw_done_ready), .done(raw_done), .load_valid(raw_load_valid),
        .load_ready(raw_load_ready), .load(raw_load), .loaded_valid(raw_loaded_valid), .loaded(loaded),
        .store_valid(raw_store_valid), .store_ready(raw_store_ready), .store(raw_store), .stored_valid(raw_stored_valid),
        .stored(stored), .ws_valid(ws_valid), .ws_ready(ws_ready), .ws(ws), .wl_valid(wl_valid), .wide(wide),
        .cf_valid(cf_valid), .cf(cf), .cf_hdr(cf_hdr), .core_valid(core_valid), .core_frame(core_frame), .core_n(core_n), .xfree_valid(xfree_valid),
        .xfree_place(xfree_place), .ev(raw_ev)
    );

    assign mmio_ready = hostif_mmio_ready && !card_rst && fwl_room;

    berth_card_pkg::host_read_t  hrd;
    berth_card_pkg::host_reply_t hcpl;
    berth_card_pkg::host_write_t hwr;
    assign {hrd_addr, hrd_len, hrd_tag} = {hrd.addr, hrd.len, hrd.tag};
    assign hcpl.tag  = hcpl_tag;
    assign hcpl.off  = hcpl_off;
    assign hcpl.len  = hcpl_len;
    assign hcpl.last = hcpl_last;
    assign hcpl.err  = hcpl_err;
    assign {hwr_addr, hwr_len, hwr_first, hwr_last} = {hwr.addr, hwr.len, hwr.first, hwr.last};
    berth_hostif #(.DATA_W(HOST_W)) hostif (
        .clk(clk), .rst(card_rst), .mmio_valid(mmio_valid && !card_rst && fwl_room), .mmio_ready(hostif_mmio_ready),
        .mmio_write(mmio_write), .mmio_bar(mmio_bar), .mmio_addr(mmio_addr), .mmio_wdata(mmio_wdata),
        .mmio_wstrb(mmio_wstrb), .mmio_rvalid(mmio_rvalid), .mmio_rdata(mmio_rdata), .cold(rst), .hrd_valid(hrd_valid),
        .hrd_ready(hrd_ready), .hrd(hrd), .hcpl_valid(hcpl_valid), .hcpl_ready(hcpl_ready), .hcpl_data(hcpl_data),
        .hcpl(hcpl), .hwr_valid(hwr_valid), .hwr_ready(hwr_ready), .hwr(hwr), .hwr_data(hwr_data), .msix_valid(msix_valid),
        .msix_ready(msix_ready), .msix_vector(msix_vector), .cfg_max_payload(cfg_max_payload),
        .cfg_max_read_req(cfg_max_read_req), .h_req(h_req), .h_we(h_we), .h_addr(h_addr), .h_wdata(h_wdata),
        .h_ack(h_ack), .h_rdata(h_rdata), .pend_cmd(pend_cmd), .pend_doorbell(pend_doorbell),
        .pend_dma_done(pend_dma_done), .pend_xlt_rsp(pend_xlt_rsp), .pend_heartbeat(pend_heartbeat),
        .busy(hostif_busy), .pw_valid(pw_valid), .pw_ready(pw_ready), .pw_addr(pw_addr), .pw_data(pw_data),
        .pw_strb(pw_strb), .pr_valid(pr_valid), .pr_ready(pr_ready), .pr_addr(pr_addr), .pr_rvalid(pr_rvalid),
        .pr_rdata(pr_rdata), .fwl_we(fwl_we), .fwl_addr(fwl_addr), .fwl_wdata(fwl_wdata), .core_run(core_run),
        .slot_reads(slot_reads), .slot_err_clear(slot_err_clear), .slot_err_clear_n(slot_err_clear_n),
        .load_valid(load_valid), .load_ready(load_ready), .load(load), .loaded_valid(loaded_valid), .loaded(loaded),
        .store_valid(store_valid), .store_ready(store_ready), .store(store), .stored_valid(stored_valid),
        .stored(stored), .change_valid(change_valid), .change_ready(change_ready), .change(change),
        .changed_valid(changed_valid), .changed(changed),
        .qr_valid(qr_valid), .qr_ready(qr_ready), .qr(qr), .qc_valid(qc_valid), .qc_data(qc_data),
        .qc(qc), .fcq_valid(fcq_valid), .fcq_ready(fcq_ready), .fcq(fcq), .xa_valid(xa_valid), .xa_ready(xa_ready),
        .xa(xa), .xr_room(xr_room), .xr_valid(xr_valid), .xr(xr), .fdb_valid(fdb_valid), .fdb_ready(fdb_ready),
        .fdb(fdb), .raw_setup_valid(raw_setup_valid), .raw_setup(raw_setup), .raw_setup_busy(raw_setup_busy),
        .rdb_valid(rdb_valid), .rdb(rdb), .raw_load_valid(raw_load_valid), .raw_load_ready(raw_load_ready),
        .raw_load(raw_load), .raw_loaded_valid(raw_loaded_valid), .raw_store_valid(raw_store_valid),
        .raw_store_ready(raw_store_ready), .raw_store(raw_store), .raw_stored_valid(raw_stored_valid),
        .raw_qr_valid(raw_qr_valid), .raw_qr_ready(raw_qr_ready), .raw_qr(raw_qr), .raw_qc_valid(raw_qc_valid),
        .raw_done_valid(raw_done_valid), .raw_done_ready(raw_done_ready), .raw_done(raw_done), .stat_req(stat_req), .stat_addr(stat_addr), .stat_rdata(stat_rdata), .wire_amounts(wire_amounts),
        .idle_skipped(idle_skipped), .cycles(cycles), .soft_rst(soft_rst)
    );

    // ---- packet RAM ------------------------------------------------------------------
    logic                tr_valid, tr_ready, tr_rvalid, tr_ready_core, tr_ready_fast, tr_rvalid_core, tr_rvalid_fast, tr_rvalid_raw;
    logic [18:0]         tr_addr;
    logic [DATA_W-1:0]   tr_rdata, tr_rdata_core, tr_rdata_fast, tr_rdata_raw;
    logic                pw_ready_core, pw_ready_fast;
    logic                rw_valid, rw_ready;
    logic [17:0]         rw_addr;
    logic [DATA_W-1:0]   rw_data;
    logic [DATA_W/8-1:0] rw_strb;

    berth_pktram #(.DATA_W(DATA_W), .HOST_W(HOST_W)) pktram (
        .clk(clk), .rst(rst), .pw_valid(pw_valid && !pw_addr[18]), .pw_ready(pw_ready_core), .pw_addr(pw_addr[17:0]),
        .pw_data(pw_data), .pw_strb(pw_strb), .pr_valid(pr_valid), .pr_ready(pr_ready), .pr_addr(pr_addr),
        .pr_rvalid(pr_rvalid), .pr_rdata(pr_rdata), .tr_valid(tr_valid && !tr_addr[18]), .tr_ready(tr_ready_core),
        .tr_addr(tr_addr[17:0]), .tr_rvalid(tr_rvalid_core), .tr_rdata(tr_rdata_core), .rw_valid(rw_valid),
        .rw_ready(rw_ready), .rw_addr(rw_addr), .rw_data(rw_data), .rw_strb(rw_strb), .p_valid(p_valid), .p_we(p_we),
        .p_addr(p_addr), .p_wdata(p_wdata), .p_strb(p_strb), .p_rdata(p_rdata)
    );

    // Raw queues' transmit RAM lies behind the fast path's, and is addressed modulo its size.
    logic pw_raw, tr_raw, unused_raw;
    assign pw_raw = pw_addr[18:16] == 3'b111;
    assign tr_raw = tr_addr[18:16] == 3'b111;
    logic [2:0] always_ready;
    berth_fp_ram #(.DATA_W(DATA_W), .HOST_W(HOST_W), .SIZE(berth_regs_pkg::RAW_SEND_BYTES)) raw_ram (
        .clk(clk), .rst(rst),
        .pw_valid(pw_valid && pw_raw), .pw_ready(always_ready[0]), .pw_addr(pw_addr[17:0]), .pw_data(pw_data), .pw_strb(pw_strb),
        .hw_valid(1'b0), .hw_ready(always_ready[1]), .hw_addr('0), .hw_data('0), .hw_strb('0),
        .tr_valid(tr_valid && tr_raw), .tr_ready(always_ready[2]), .tr_addr(tr_addr[17:0]),
        .tr_rvalid(tr_rvalid_raw), .tr_rdata(tr_rdata_raw)
    );
    assign unused_raw = &{1'b0, always_ready};
    initial if (32'h3_0000 < 8*512 + berth_regs_pkg::FAST_BIG_FRAMES*4608 + berth_regs_pkg::FAST_SMALL_FRAMES*1280)
        $fatal(1, "berth_core: the fast path's transmit RAM is where raw queues' is");

    berth_fp_ram #(.DATA_W(DATA_W), .HOST_W(HOST_W)) fp_ram (
        .clk(clk), .rst(rst),
        .pw_valid(pw_valid && pw_addr[18] && !pw_raw), .pw_ready(pw_ready_fast), .pw_addr(pw_addr[17:0]), .pw_data(pw_data),
        .pw_strb(pw_strb),
        .hw_valid(hw_valid), .hw_ready(hw_ready), .hw_addr(hw_addr), .hw_data(hw_data), .hw_strb(hw_strb),
        .tr_valid(tr_valid && tr_addr[18] && !tr_raw), .tr_ready(tr_ready_fast), .tr_addr(tr_addr[17:0]),
        .tr_rvalid(tr_rvalid_fast), .tr_rdata(tr_rdata_fast)
    );
    assign pw_ready  = pw_addr[18] ? pw_ready_fast : pw_ready_core;
    assign tr_ready  = tr_addr[18] ? tr_ready_fast : tr_ready_core;
    assign tr_rvalid = tr_rvalid_core || tr_rvalid_fast || tr_rvalid_raw;
    assign tr_rdata  = tr_rvalid_fast ? tr_rdata_fast : tr_rvalid_raw ? tr_rdata_raw : tr_rdata_core;

    // ---- MAC engines -----------------------------------------------------------------
    logic        lo_valid, lo_ready;
    logic        tx_busy, rx_busy;
    logic        ev_sent, ev_looped, core_ready, unused_ready;
    assign unused_ready = &{1'b0, core_ready};   // the core always takes a frame, or drops it
    logic [12:0] ev_tx_bytes;
    logic        ev_taken, ev_truncated, ev_oversized, ev_mac_error, ev_bad_icrc, ev_not_ours, ev_core, ev_core_full, ev_stall;
    logic [15:0] ev_rx_bytes;

    berth_mac_tx #(.DATA_W(DATA_W)) mac_tx (
        .clk(clk), .rst(tx_rst), .hold(card_rst), .mid_frame(tx_mid_frame), .busy(tx_busy), .send_valid(send_valid),
        .send_ready(send_ready), .send(send), .slot_reads(slot_reads), .slot_err_clear(slot_err_clear),
        .slot_err_clear_n(slot_err_clear_n), .sent_valid(sent_valid), .sent(sent), .sent_pop(sent_pop),
        .fs_valid(fs_valid), .fs_ready(fs_ready), .fs(fs), .fl_valid(fl_valid), .fl_tag(fl_tag), .ws_valid(ws_valid),
        .ws_ready(ws_ready), .ws(ws), .wl_valid(wl_valid), .own_mac(own_mac), .tr_valid(tr_valid),
        .tr_ready(tr_ready), .tr_addr(tr_addr), .tr_rvalid(tr_rvalid), .tr_rdata(tr_rdata), .tx_valid(tx_valid),
        .tx_ready(tx_ready), .lo_valid(lo_valid), .lo_ready(lo_ready), .tx_data(tx_data), .tx_keep(tx_keep),
        .tx_last(tx_last), .ev_sent(ev_sent), .ev_looped(ev_looped), .ev_bytes(ev_tx_bytes)
    );

    berth_mac_rx #(.DATA_W(DATA_W), .CORE_SLOTS(berth_regs_pkg::RX_SLOTS / 2)) mac_rx (
        .clk(clk), .rst(card_rst), .hard_rst(rst), .busy(rx_busy), .own_mac(own_mac), .wide(wide), .rx_valid(rx_valid),
        .rx_ready(rx_ready), .rx_data(rx_data), .rx_keep(rx_keep), .rx_last(rx_last), .rx_err(rx_err),
        .lo_valid(lo_valid), .lo_ready(lo_ready), .lo_data(tx_data), .lo_keep(tx_keep), .lo_last(tx_last),
        .rw_valid(rw_valid), .rw_ready(rw_ready), .rw_addr(rw_addr), .rw_data(rw_data), .rw_strb(rw_strb),
        .rf_valid(rf_valid), .rf_ready(rf_ready), .rf(rf), .rf_hdr(rf_hdr), .hd_re(hd_re), .hd_addr(hd_addr),
        .hd_data(hd_data), .rfree_valid(rfree_valid), .rfree_place(rfree_place),
        .xfree_valid(xfree_valid), .xfree_place(xfree_place), .core_valid(core_valid), .core_ready(core_ready), .core_frame(core_frame), .core_n(core_n), .desc_valid(desc_valid), .desc(desc), .desc_pop(desc_pop), .slot_free(slot_free),
        .slot_free_n(slot_free_n), .ev_taken(ev_taken), .ev_bytes(ev_rx_bytes), .ev_truncated(ev_truncated),
        .ev_oversized(ev_oversized), .ev_mac_error(ev_mac_error), .ev_bad_icrc(ev_bad_icrc), .ev_not_ours(ev_not_ours),
        .ev_core(ev_core), .ev_core_full(ev_core_full), .ev_stall(ev_stall)
    );

    // The next deadline: the core's timer or one of the fast path's.
    assign fp_ahead       = fp_due_at - cycles[37:6];
    assign fp_deadline    = {cycles[63:6], 6'd0} + {{26{fp_ahead[31]}}, fp_ahead, 6'd0};
    assign timer_armed    = cpu_armed || fp_due;
    assign timer_deadline = cpu_armed && (!fp_due || cpu_deadline < fp_deadline) ? cpu_deadline : fp_deadline;

    // Attached reads that fail or never end keep berth_hostif busy, not the transmitter. A slot that waits for its
    // reads counts as work, and so does one that waits for a receive slot.
    assign idle = asleep && !fp_busy && !raw_busy && !card_rst && !hostif_busy && !tx_busy && !rx_busy && !rx_valid
                  && !mmio_valid;

    // ---- counters of this side: what is added -----------------------------------------
    always_ff @(posedge clk)
        if (card_rst) idle_skipped <= 64'd0;
        else if (waiting) idle_skipped <= idle_skipped + skip;

    always_comb begin
        wire_amounts = '0;
        wire_amounts[16 * berth_regs_pkg::C_TX_FRAMES       +: 16] = 16'(ev_sent);
        wire_amounts[16 * berth_regs_pkg::C_TX_BYTES        +: 16] = ev_sent ? 16'(ev_tx_bytes) : 16'd0;
        wire_amounts[16 * berth_regs_pkg::C_RX_FRAMES       +: 16] = 16'(ev_taken);
        wire_amounts[16 * berth_regs_pkg::C_RX_BYTES        +: 16] = ev_taken ? ev_rx_bytes : 16'd0;
        wire_amounts[16 * berth_regs_pkg::C_LOOPBACK_FRAMES +: 16] = 16'(ev_looped);
        wire_amounts[16 * berth_regs_pkg::C_RX_TRUNCATED    +: 16] = 16'(ev_truncated);
        wire_amounts[16 * berth_regs_pkg::C_RX_OVERSIZED    +: 16] = 16'(ev_oversized);
        wire_amounts[16 * berth_regs_pkg::C_RX_MAC_ERROR    +: 16] = 16'(ev_mac_error);
        wire_amounts[16 * berth_regs_pkg::C_RX_BAD_ICRC     +: 16] = 16'(ev_bad_icrc);
        wire_amounts[16 * berth_regs_pkg::C_RX_STALL_CYCLES +: 16] = 16'(ev_stall);
        wire_amounts[16 * berth_regs_pkg::C_CREDITS_POSTED  +: 16] = fp_amounts.credits_posted;
        wire_amounts[16 * berth_regs_pkg::C_LISTS_SENT      +: 16] = fp_amounts.lists_sent;
        wire_amounts[16 * berth_regs_pkg::C_CREDITS_SENT    +: 16] = fp_amounts.credits_sent;
        wire_amounts[16 * berth_regs_pkg::C_LISTS_TAKEN     +: 16] = fp_amounts.lists_taken;
        wire_amounts[16 * berth_regs_pkg::C_CREDITS_TAKEN   +: 16] = fp_amounts.credits_taken;
        wire_amounts[16 * berth_regs_pkg::C_LISTS_REFUSED   +: 16] = fp_amounts.lists_refused;
        wire_amounts[16 * berth_regs_pkg::C_IDLE_CYCLES     +: 16] = 16'(waiting);
        wire_amounts[16 * berth_regs_pkg::C_FP_PACKETS      +: 16] = fp_amounts.packets;
        wire_amounts[16 * berth_regs_pkg::C_FP_AGAIN        +: 16] = fp_amounts.again;
        wire_amounts[16 * berth_regs_pkg::C_FP_ACKS         +: 16] = fp_amounts.acks;
        wire_amounts[16 * berth_regs_pkg::C_FP_LISTS        +: 16] = fp_amounts.lists;
        wire_amounts[16 * berth_regs_pkg::C_FP_BYTES_SENT   +: 16] = fp_amounts.bytes_sent;
        wire_amounts[16 * berth_regs_pkg::C_FP_BLOCKS       +: 16] = fp_amounts.blocks;
        wire_amounts[16 * berth_regs_pkg::C_FP_TAKEN        +: 16] = fp_amounts.taken;
        wire_amounts[16 * berth_regs_pkg::C_FP_BYTES_PLACED +: 16] = fp_amounts.bytes_placed;
        wire_amounts[16 * berth_regs_pkg::C_FP_LANDED       +: 16] = fp_amounts.landed;
        wire_amounts[16 * berth_regs_pkg::C_FP_DUPLICATES   +: 16] = fp_amounts.duplicates;
        wire_amounts[16 * berth_regs_pkg::C_FP_DROPPED      +: 16] = fp_amounts.dropped;
        wire_amounts[16 * berth_regs_pkg::C_FP_SLOTS        +: 16] = fp_amounts.slots;
        wire_amounts[16 * berth_regs_pkg::C_FP_BAD_WQE      +: 16] = fp_amounts.bad_wqe;
        wire_amounts[16 * berth_regs_pkg::C_FP_ACKS_TAKEN   +: 16] = fp_amounts.acks_taken;
        wire_amounts[16 * berth_regs_pkg::C_FP_BAD_ACKS     +: 16] = fp_amounts.bad_acks;
        wire_amounts[16 * berth_regs_pkg::C_FP_LIST_REPEATS +: 16] = fp_amounts.list_repeats;
        wire_amounts[16 * berth_regs_pkg::C_FP_PAGE_STRAYS  +: 16] = fp_amounts.page_strays;
        wire_amounts[16 * berth_regs_pkg::C_FP_ANSWERS      +: 16] = fp_amounts.answers;
        wire_amounts[16 * berth_regs_pkg::C_FP_ATOMICS      +: 16] = fp_amounts.atomics;
        wire_amounts[16 * berth_regs_pkg::C_FP_ATOMICS_AGAIN +: 16] = fp_amounts.atomics_again;
        wire_amounts[16 * berth_regs_pkg::C_FW_FRAMES       +: 16] = 16'(ev_core);
        wire_amounts[16 * berth_regs_pkg::C_RX_NOT_FOR_US   +: 16] = 16'(ev_not_ours) + 16'(raw_ev.not_ours);
        wire_amounts[16 * berth_regs_pkg::C_RAW_SENT        +: 16] = 16'(raw_ev.sent);
        wire_amounts[16 * berth_regs_pkg::C_RAW_RECEIVED    +: 16] = 16'(raw_ev.received);
        wire_amounts[16 * berth_regs_pkg::C_RAW_BAD         +: 16] = 16'(raw_ev.bad);
        wire_amounts[16 * berth_regs_pkg::C_RAW_NO_RECEIVE  +: 16] = 16'(raw_ev.no_receive);
        wire_amounts[16 * berth_regs_pkg::C_RAW_TOO_LONG    +: 16] = 16'(raw_ev.too_long);
        wire_amounts[16 * berth_regs_pkg::C_RAW_NO_SLOT     +: 16] = 16'(raw_ev.no_slot);
        wire_amounts[16 * berth_regs_pkg::C_RX_CORE_FULL    +: 16] = 16'(ev_core_full);
    end
endmodule
