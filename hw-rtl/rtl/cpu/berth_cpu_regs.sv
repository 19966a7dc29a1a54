// SPDX-License-Identifier: Apache-2.0 OR MIT
// The soft core's registers of the host side: turns accesses into commands for the engines, stalling where the ABI says so.
module berth_cpu_regs (
    input  logic                       clk,
    input  logic                       rst,
    // Bus: req is held until ack.
    input  logic                       h_req,
    input  logic                       h_we,
    input  logic [11:0]                h_addr,
    input  logic [31:0]                h_wdata,
    output logic                       h_ack,
    output logic [31:0]                h_rdata,
    // State, heartbeat.
    output logic                       status_we,
    output logic                       code_we,
    input  logic [31:0]                hb_challenge,
    output logic [31:0]                hb_answer,
    // Commands from the host.
    output logic                       fw_pop,
    output logic [3:0]                 fw_raddr,
    input  logic [31:0]                fw_rdata,
    // Doorbells.
    output logic                       db_setup_valid,
    input  logic                       db_setup_ready,
    output berth_card_pkg::db_setup_t  db_setup,
    input  logic                       pend_doorbell,
    output logic                       db_pop_valid,
    input  logic                       db_pop_ready,
    input  berth_card_pkg::rung_t      db_pop,
    // DMA: command to the read or the write engine; the status of those that ended.
    output logic                       rgo_valid,
    input  logic                       rgo_ready,
    output logic                       wgo_valid,
    input  logic                       wgo_ready,
    output berth_card_pkg::dma_t       dma,
    input  logic                       dma_end_valid,
    output logic                       dma_end_pop,
    input  berth_card_pkg::dma_end_t   dma_end,
    // Translation.
    output logic                       xgo_valid,
    input  logic                       xgo_ready,
    output berth_card_pkg::range_ask_t xgo,
    input  logic                       rsp_valid,
    output logic                       rsp_pop,
    input  logic [31:0]                rsp_data,
    // Events: the words are stable from valid to ready.
    output logic                       fev_valid,
    input  logic                       fev_ready,
    output logic [16*32-1:0]           fev_words,
    input  logic [15:0]                ev_space,
    // Completion queues: the words are stable from valid to ready.
    output logic                       cq_setup_valid,
    input  logic                       cq_setup_ready,
    output berth_card_pkg::cq_setup_t  cq_setup,
    output logic                       cqe_valid,
    input  logic                       cqe_ready,
    output logic [15:0]                cqe_cqn,
    output logic [8*32-1:0]            cqe_words,
    // Raw queues: the words stay until the next command.
    output logic                       raw_setup_valid,
    output berth_card_pkg::raw_setup_t raw_setup,
    input  logic [3:0]                 raw_setup_busy,
    // What is written, for the modules that take it straight from the bus.
    output logic [31:0]                cpu_word
);
  logic ack_q, second_q, done;
  logic [31:0] rdata, rdata_q, local_q, xlt_len_q;
  berth_regs_pkg::cpu_dma_len_tag_t len_tag_q;

  wire [31:0] a = {20'd0, h_addr[11:2], 2'b00};
  wire active = h_req && !ack_q;
  wire we = active && h_we;
  wire re = active && !h_we;
  wire in_cmd = a >= berth_regs_pkg::CPU_CMD_W0 && a < berth_regs_pkg::CPU_CMD_W0 + 64;
  wire in_ev = a >= berth_regs_pkg::CPU_EV_W0 && a < berth_regs_pkg::CPU_EV_W0 + 64;
  wire in_cqe = a >= berth_regs_pkg::CPU_CQE_W0 && a < berth_regs_pkg::CPU_CQE_W0 + 32;
  wire in_raw = a >= berth_regs_pkg::CPU_RAW_W0 && a < berth_regs_pkg::CPU_RAW_W0 + 24;
  wire go = we && a == berth_regs_pkg::CPU_DMA_GO;
  berth_regs_pkg::cpu_dma_go_t dma_go;
  berth_regs_pkg::cpu_xlt_go_t xlt_go;
  berth_regs_pkg::cpu_dma_done_t dma_done;
  assign dma_go = h_wdata;
  assign xlt_go = h_wdata;
  always_comb begin
    dma_done        = '0;
    dma_done.valid  = 1'b1;
    dma_done.status = dma_end.status;
    dma_done.tag    = dma_end.tag;
  end
  wire [31:0] length = {16'd0, len_tag_q.length};

  assign h_ack = ack_q;
  assign h_rdata = rdata_q;
  assign cpu_word = h_wdata;
  assign status_we = we && a == berth_regs_pkg::CPU_STATUS;
  assign code_we = we && a == berth_regs_pkg::CPU_FW_CODE;
  assign fw_pop = we && a == berth_regs_pkg::CPU_CMD_POP;
  assign fw_raddr = h_addr[5:2];
  assign db_setup_valid = we && a == berth_regs_pkg::CPU_DB_CFG;
  assign db_pop_valid = re && a == berth_regs_pkg::CPU_DB_POP && pend_doorbell;

  assign rgo_valid = go && !dma_go.write;
  assign wgo_valid = go && dma_go.write;
  logic [63:0] dma_addr_q, xlt_va_q, cq_base_q;
  berth_regs_pkg::cpu_cq_attr_t cq_attr_q;
  berth_regs_pkg::cpu_db_cfg_t db_cfg;
  logic [6*32-1:0] raw_words_q;
  logic [15:0] xlt_tag_q, db_qpn_q;
  assign dma.addr = dma_addr_q;
  assign xgo.va = xlt_va_q;
  assign xgo.tag = xlt_tag_q;
  assign db_cfg = h_wdata;
  assign db_setup.on = db_cfg.valid;
  assign db_setup.fast = db_cfg.fast;
  assign db_setup.qpn = db_qpn_q;
  assign db_setup.uar = db_cfg.page;
  assign cq_setup.on = cq_attr_q.valid;
  assign cq_setup.uar = cq_attr_q.page;
  assign cq_setup.base = cq_base_q;
  assign cq_setup.log2 = cq_attr_q.log2;
  assign dma.bad = length == 0 || length > berth_regs_pkg::SLOT_BYTES || local_q > berth_regs_pkg::PKT_BYTES ||
      local_q + length > berth_regs_pkg::PKT_BYTES;
  assign dma.place = local_q[17:0];
  assign dma.len = len_tag_q.length[12:0];
  assign dma.tag = len_tag_q.tag;
  assign dma.virt = dma_go.virt;
  assign dma.attach = dma_go.attach;
  assign dma.slot = dma_go.slot[3:0];
  assign dma.asid = dma_go.asid;
  assign dma_end_pop = re && a == berth_regs_pkg::CPU_DMA_DONE;

  assign xgo_valid = we && a == berth_regs_pkg::CPU_XLT_GO && xlt_go.give_back != xlt_go.acquire;
  assign {xgo.quiet, xgo.probe} = '0;
  assign xgo.give_back = xlt_go.give_back;
  assign xgo.write = xlt_go.write;
  assign xgo.asid = xlt_go.asid;
  assign xgo.len = xlt_len_q[30:0];
  assign rsp_pop = re && a == berth_regs_pkg::CPU_XLT_RSP;
  assign cq_setup_valid = we && a == berth_regs_pkg::CPU_CQ_CFG;
  assign cq_setup.cqn = h_wdata[15:0];
  assign raw_setup_valid = we && a == berth_regs_pkg::CPU_RAW_GO;
  assign raw_setup.go = h_wdata[2:0];
  assign raw_setup.words = raw_words_q;

  always_comb begin
    done  = 1'b1;
    rdata = '0;
    if (in_cmd) begin
      done  = second_q;
      rdata = fw_rdata;
    end else if (in_ev) done = !h_we || !fev_valid;
    else if (in_cqe) done = !h_we || !cqe_valid;
    else
      unique case (a)
        berth_regs_pkg::CPU_HB_CHALLENGE: rdata = hb_challenge;
        berth_regs_pkg::CPU_DB_POP: begin
          done  = !db_pop_valid || db_pop_ready;
          rdata = db_pop_valid ? db_pop.data : '0;
        end
        berth_regs_pkg::CPU_DB_INDEX: rdata = db_pop.index;
        berth_regs_pkg::CPU_DB_BYTES: rdata = db_pop.bytes;
        berth_regs_pkg::CPU_DB_CFG: done = !h_we || db_setup_ready;
        berth_regs_pkg::CPU_DMA_GO: done = !h_we || (dma_go.write ? wgo_ready : rgo_ready);
        berth_regs_pkg::CPU_DMA_DONE: if (dma_end_valid) rdata = dma_done;
        berth_regs_pkg::CPU_XLT_GO: done = !xgo_valid || xgo_ready;
        berth_regs_pkg::CPU_XLT_RSP: if (rsp_valid) rdata = rsp_data;
        berth_regs_pkg::CPU_EV_GO: done = !h_we || !fev_valid;
        berth_regs_pkg::CPU_EV_SPACE: rdata = {16'd0, ev_space};
        berth_regs_pkg::CPU_CQ_CFG: done = !h_we || cq_setup_ready;
        berth_regs_pkg::CPU_CQE_GO: done = !h_we || !cqe_valid;
        berth_regs_pkg::CPU_RAW_BUSY: rdata = {28'd0, raw_setup_busy};
        default: ;
      endcase
  end

  always_ff @(posedge clk) begin
    ack_q    <= active && done;
    rdata_q  <= rdata;
    second_q <= active && !done;
    if (fev_ready) fev_valid <= 1'b0;
    if (cqe_ready) cqe_valid <= 1'b0;
    if (we && done) begin
      // Word by word, because Yosys makes a shifter of a variable slice.
      for (int unsigned i = 0; i < 16; i++) if (in_ev && h_addr[5:2] == 4'(i)) fev_words[32*i+:32] <= h_wdata;
      for (int unsigned i = 0; i < 8; i++) if (in_cqe && h_addr[4:2] == 3'(i)) cqe_words[32*i+:32] <= h_wdata;
      for (int unsigned i = 0; i < 6; i++) if (in_raw && h_addr[4:2] == 3'(i)) raw_words_q[32*i+:32] <= h_wdata;
      unique case (a)
        berth_regs_pkg::CPU_HB_ANSWER: hb_answer <= h_wdata;
        berth_regs_pkg::CPU_DB_CFG_QPN: db_qpn_q <= h_wdata[15:0];
        berth_regs_pkg::CPU_DMA_LOCAL: local_q <= h_wdata;
        berth_regs_pkg::CPU_DMA_LEN_TAG: len_tag_q <= h_wdata;
        berth_regs_pkg::CPU_DMA_ADDR_LO: dma_addr_q[31:0] <= h_wdata;
        berth_regs_pkg::CPU_DMA_ADDR_HI: dma_addr_q[63:32] <= h_wdata;
        berth_regs_pkg::CPU_XLT_VA_LO: xlt_va_q[31:0] <= h_wdata;
        berth_regs_pkg::CPU_XLT_VA_HI: xlt_va_q[63:32] <= h_wdata;
        berth_regs_pkg::CPU_XLT_LEN: xlt_len_q <= h_wdata;
        berth_regs_pkg::CPU_XLT_TAG: xlt_tag_q <= h_wdata[15:0];
        berth_regs_pkg::CPU_EV_GO: fev_valid <= 1'b1;
        berth_regs_pkg::CPU_CQ_BASE_LO: cq_base_q[31:0] <= h_wdata;
        berth_regs_pkg::CPU_CQ_BASE_HI: cq_base_q[63:32] <= h_wdata;
        berth_regs_pkg::CPU_CQ_ATTR: cq_attr_q <= h_wdata;
        berth_regs_pkg::CPU_CQE_GO: begin
          cqe_valid <= 1'b1;
          cqe_cqn   <= h_wdata[15:0];
        end
        default: ;
      endcase
    end
    if (rst) begin
      ack_q     <= 1'b0;
      second_q  <= 1'b0;
      hb_answer <= '0;
      fev_valid  <= 1'b0;
      cqe_valid <= 1'b0;
    end
  end

  // Words of an event or a completion do not change under its writer.
  always_ff @(posedge clk) if (!rst && $past(!rst && fev_valid) && fev_valid && !$past(fev_ready)) assert ($stable(fev_words));

  wire unused = &{1'b0, h_addr[1:0], db_cfg, cq_attr_q, xlt_len_q[31], dma_go, xlt_go};
endmodule
