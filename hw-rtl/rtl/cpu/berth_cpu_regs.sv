// SPDX-License-Identifier: Apache-2.0 OR MIT
// The soft core's registers of the host side: turns accesses into commands for the engines, stalling where the ABI says so.
module berth_cpu_regs (
    input  logic             clk,
    input  logic             rst,
    // Bus: req is held until ack.
    input  logic             cpu_req,
    input  logic             cpu_we,
    input  logic [11:0]      cpu_addr,
    input  logic [31:0]      cpu_wdata,
    output logic             cpu_ack,
    output logic [31:0]      cpu_rdata,
    // State, heartbeat.
    output logic             status_we,
    output logic             code_we,
    input  logic [31:0]      hb_challenge,
    output logic [31:0]      hb_answer,
    // Commands from the host.
    output logic             fw_pop,
    output logic [3:0]       fw_raddr,
    input  logic [31:0]      fw_rdata,
    // Doorbells.
    output logic             db_cfg_valid,
    input  logic             db_cfg_ready,
    output logic [15:0]      db_cfg_qpn,
    input  logic             db_pending,
    output logic             db_pop_valid,
    input  logic             db_pop_ready,
    input  logic [31:0]      db_pop_data,
    input  logic [31:0]      db_pop_index,
    input  logic [31:0]      db_pop_bytes,
    // DMA: command to the read or the write engine; the status of those that ended.
    output logic             rd_valid,
    input  logic             rd_ready,
    output logic             wr_valid,
    input  logic             wr_ready,
    output logic             dma_bad,
    output logic [17:0]      dma_local,
    output logic [12:0]      dma_len,
    output logic [15:0]      dma_tag,
    output logic [63:0]      dma_addr,
    output logic             dma_virtual,
    output logic             dma_attach,
    output logic [3:0]       dma_slot,
    output logic [7:0]       dma_asid,
    input  logic             done_valid,
    output logic             done_pop,
    input  logic [23:0]      done_data,
    // Translation.
    output logic             xlt_valid,
    input  logic             xlt_ready,
    output logic             xlt_release,
    output logic             xlt_write,
    output logic [7:0]       xlt_asid,
    output logic [63:0]      xlt_va,
    output logic [30:0]      xlt_len,
    output logic [15:0]      xlt_tag,
    input  logic             rsp_valid,
    output logic             rsp_pop,
    input  logic [31:0]      rsp_data,
    // Events: the words are stable from valid to ready.
    output logic             ev_valid,
    input  logic             ev_ready,
    output logic [16*32-1:0] ev_words,
    input  logic [15:0]      ev_space,
    // Completion queues: the words are stable from valid to ready.
    output logic             cq_cfg_valid,
    input  logic             cq_cfg_ready,
    output logic [15:0]      cq_cfg_cqn,
    output logic [63:0]      cq_cfg_base,
    output logic [31:0]      cq_cfg_attr,
    output logic             cqe_valid,
    input  logic             cqe_ready,
    output logic [15:0]      cqe_cqn,
    output logic [8*32-1:0]  cqe_words,
    // What is written, for the modules that take it straight from the bus.
    output logic [31:0]      wdata
);
  logic ack_q, second_q, done;
  logic [31:0] rdata, rdata_q, local_q, len_tag_q, xlt_len_q;

  wire [31:0] a = {20'd0, cpu_addr[11:2], 2'b00};
  wire active = cpu_req && !ack_q;
  wire we = active && cpu_we;
  wire re = active && !cpu_we;
  wire in_cmd = a >= berth_regs_pkg::CPU_CMD_W0 && a < berth_regs_pkg::CPU_CMD_W0 + 64;
  wire in_ev = a >= berth_regs_pkg::CPU_EV_W0 && a < berth_regs_pkg::CPU_EV_W0 + 64;
  wire in_cqe = a >= berth_regs_pkg::CPU_CQE_W0 && a < berth_regs_pkg::CPU_CQE_W0 + 32;
  wire go = we && a == berth_regs_pkg::CPU_DMA_GO;
  wire [31:0] length = {16'd0, len_tag_q[15:0]};

  assign cpu_ack = ack_q;
  assign cpu_rdata = rdata_q;
  assign wdata = cpu_wdata;
  assign status_we = we && a == berth_regs_pkg::CPU_STATUS;
  assign code_we = we && a == berth_regs_pkg::CPU_FW_CODE;
  assign fw_pop = we && a == berth_regs_pkg::CPU_CMD_POP;
  assign fw_raddr = cpu_addr[5:2];
  assign db_cfg_valid = we && a == berth_regs_pkg::CPU_DB_CFG;
  assign db_pop_valid = re && a == berth_regs_pkg::CPU_DB_POP && db_pending;

  assign rd_valid = go && !cpu_wdata[0];
  assign wr_valid = go && cpu_wdata[0];
  assign dma_bad = length == 0 || length > berth_regs_pkg::SLOT_BYTES || local_q > berth_regs_pkg::PKT_BYTES ||
      local_q + length > berth_regs_pkg::PKT_BYTES;
  assign dma_local = local_q[17:0];
  assign dma_len = len_tag_q[12:0];
  assign dma_tag = len_tag_q[31:16];
  assign dma_virtual = cpu_wdata[1];
  assign dma_attach = cpu_wdata[2];
  assign dma_slot = cpu_wdata[11:8];
  assign dma_asid = cpu_wdata[23:16];
  assign done_pop = re && a == berth_regs_pkg::CPU_DMA_DONE;

  assign xlt_valid = we && a == berth_regs_pkg::CPU_XLT_GO && cpu_wdata[1] != cpu_wdata[0];
  assign xlt_release = cpu_wdata[1];
  assign xlt_write = cpu_wdata[8];
  assign xlt_asid = cpu_wdata[23:16];
  assign xlt_len = xlt_len_q[30:0];
  assign rsp_pop = re && a == berth_regs_pkg::CPU_XLT_RSP;
  assign cq_cfg_valid = we && a == berth_regs_pkg::CPU_CQ_CFG;
  assign cq_cfg_cqn = cpu_wdata[15:0];

  always_comb begin
    done  = 1'b1;
    rdata = '0;
    if (in_cmd) begin
      done  = second_q;
      rdata = fw_rdata;
    end else if (in_ev) done = !cpu_we || !ev_valid;
    else if (in_cqe) done = !cpu_we || !cqe_valid;
    else
      unique case (a)
        berth_regs_pkg::CPU_HB_CHALLENGE: rdata = hb_challenge;
        berth_regs_pkg::CPU_DB_POP: begin
          done  = !db_pop_valid || db_pop_ready;
          rdata = db_pop_valid ? db_pop_data : '0;
        end
        berth_regs_pkg::CPU_DB_INDEX: rdata = db_pop_index;
        berth_regs_pkg::CPU_DB_BYTES: rdata = db_pop_bytes;
        berth_regs_pkg::CPU_DB_CFG: done = !cpu_we || db_cfg_ready;
        berth_regs_pkg::CPU_DMA_GO: done = !cpu_we || (cpu_wdata[0] ? wr_ready : rd_ready);
        berth_regs_pkg::CPU_DMA_DONE: if (done_valid) rdata = {8'h80, done_data};
        berth_regs_pkg::CPU_XLT_GO: done = !xlt_valid || xlt_ready;
        berth_regs_pkg::CPU_XLT_RSP: if (rsp_valid) rdata = rsp_data;
        berth_regs_pkg::CPU_EV_GO: done = !cpu_we || !ev_valid;
        berth_regs_pkg::CPU_EV_SPACE: rdata = {16'd0, ev_space};
        berth_regs_pkg::CPU_CQ_CFG: done = !cpu_we || cq_cfg_ready;
        berth_regs_pkg::CPU_CQE_GO: done = !cpu_we || !cqe_valid;
        default: ;
      endcase
  end

  always_ff @(posedge clk) begin
    ack_q    <= active && done;
    rdata_q  <= rdata;
    second_q <= active && !done;
    if (ev_ready) ev_valid <= 1'b0;
    if (cqe_ready) cqe_valid <= 1'b0;
    if (we && done) begin
      // Word by word: of a variable slice Yosys makes a shifter.
      for (int unsigned i = 0; i < 16; i++) if (in_ev && cpu_addr[5:2] == 4'(i)) ev_words[32*i+:32] <= cpu_wdata;
      for (int unsigned i = 0; i < 8; i++) if (in_cqe && cpu_addr[4:2] == 3'(i)) cqe_words[32*i+:32] <= cpu_wdata;
      unique case (a)
        berth_regs_pkg::CPU_HB_ANSWER: hb_answer <= cpu_wdata;
        berth_regs_pkg::CPU_DB_CFG_QPN: db_cfg_qpn <= cpu_wdata[15:0];
        berth_regs_pkg::CPU_DMA_LOCAL: local_q <= cpu_wdata;
        berth_regs_pkg::CPU_DMA_LEN_TAG: len_tag_q <= cpu_wdata;
        berth_regs_pkg::CPU_DMA_ADDR_LO: dma_addr[31:0] <= cpu_wdata;
        berth_regs_pkg::CPU_DMA_ADDR_HI: dma_addr[63:32] <= cpu_wdata;
        berth_regs_pkg::CPU_XLT_VA_LO: xlt_va[31:0] <= cpu_wdata;
        berth_regs_pkg::CPU_XLT_VA_HI: xlt_va[63:32] <= cpu_wdata;
        berth_regs_pkg::CPU_XLT_LEN: xlt_len_q <= cpu_wdata;
        berth_regs_pkg::CPU_XLT_TAG: xlt_tag <= cpu_wdata[15:0];
        berth_regs_pkg::CPU_EV_GO: ev_valid <= 1'b1;
        berth_regs_pkg::CPU_CQ_BASE_LO: cq_cfg_base[31:0] <= cpu_wdata;
        berth_regs_pkg::CPU_CQ_BASE_HI: cq_cfg_base[63:32] <= cpu_wdata;
        berth_regs_pkg::CPU_CQ_ATTR: cq_cfg_attr <= cpu_wdata;
        berth_regs_pkg::CPU_CQE_GO: begin
          cqe_valid <= 1'b1;
          cqe_cqn   <= cpu_wdata[15:0];
        end
        default: ;
      endcase
    end
    if (rst) begin
      ack_q     <= 1'b0;
      second_q  <= 1'b0;
      hb_answer <= '0;
      ev_valid  <= 1'b0;
      cqe_valid <= 1'b0;
    end
  end

  // Words of an event or a completion do not change under its writer.
  always_ff @(posedge clk) if (!rst && $past(!rst && ev_valid) && ev_valid && !$past(ev_ready)) assert ($stable(ev_words));

  wire unused = &{1'b0, cpu_addr[1:0], xlt_len_q[31]};
endmodule
