// SPDX-License-Identifier: Apache-2.0 OR MIT
// DMA waits for packet RAM for one clock at most, whatever the core does: of berth_pktram with berth_cpu_bus before it, each of
// DMA's two ports is ready in one of any two clocks that follow each other, at any address.
//
// Memories are free, and so is all that the core, the loader and the other engines do.
module pktram_turn_proof (
    input logic clk, rst_in, pw_valid, pr_valid,
    input logic [17:0] pw_addr, pr_addr,
    // The core's neighbours.
    input logic core_run, ibus_stb, dbus_stb, dbus_we, dbg_req, dbg_we, fwl_we, xi_ack, xd_ack, h_ack, stat_req,
                pend_cmd, pend_doorbell, pend_dma_done, pend_xlt_rsp, pend_heartbeat, desc_valid, send_ready,
                sent_valid, fc_ack, fe_valid,
    input logic [31:2] ibus_adr, dbus_adr,
    input logic [2:0] ibus_cti, dbus_cti,
    input logic [3:0] dbus_sel,
    input logic [31:0] dbus_dat_w, dbg_addr, dbg_wdata, fwl_wdata, xi_rdata, xd_rdata, h_rdata, fc_rdata,
    input logic [19:2] fwl_addr,
    input logic [11:2] stat_addr,
    input berth_card_pkg::desc_t desc,
    input berth_card_pkg::sent_t sent,
    input berth_row_pkg::fast_event_t fe,
    input logic [63:0] cycles
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic        p_valid, p_we, pw_ready, pr_ready;
    logic [17:0] p_addr;
    logic [31:0] p_wdata, p_rdata;
    logic [3:0]  p_strb;
    berth_cpu_bus bus (.clk, .rst, .core_run, .ibus_stb, .ibus_adr, .ibus_cti, .dbus_stb, .dbus_we, .dbus_adr, .dbus_cti,
        .dbus_sel, .dbus_dat_w, .dbg_req, .dbg_we, .dbg_addr, .dbg_wdata, .fwl_we, .fwl_addr, .fwl_wdata, .xi_ack, .xi_rdata,
        .xd_ack, .xd_rdata, .h_ack, .h_rdata, .p_rdata, .stat_req, .stat_addr, .pend_cmd, .pend_doorbell, .pend_dma_done,
        .pend_xlt_rsp, .pend_heartbeat, .desc_valid, .desc, .send_ready, .sent_valid, .sent,
        .fc_ack, .fc_rdata, .fe_valid, .fe, .cycles, .p_valid, .p_we, .p_addr, .p_wdata, .p_strb);
    berth_pktram #(.DATA_W(64), .HOST_W(128)) ram (.clk(clk), .rst(rst), .pw_valid(pw_valid), .pw_ready(pw_ready), .pw_addr(pw_addr),
        .pr_valid(pr_valid), .pr_ready(pr_ready), .pr_addr(pr_addr), .p_valid(p_valid), .p_we(p_we), .p_addr(p_addr),
        .p_wdata(p_wdata), .p_strb(p_strb), .p_rdata(p_rdata), .pw_data('0), .pw_strb('1), .tr_valid(1'b0), .tr_addr('0), .rw_valid(1'b0),
        .rw_addr('0), .rw_data('0), .rw_strb('0));

    logic pw_waits_q, pr_waits_q;
    always_ff @(posedge clk) {pw_waits_q, pr_waits_q} <= {2{!rst}} & {pw_valid && !pw_ready, pr_valid && !pr_ready};
    always_comb if (!rst) begin
        assert (!pw_waits_q || pw_ready);
        assert (!pr_waits_q || pr_ready);
    end
endmodule
