// SPDX-License-Identifier: Apache-2.0 OR MIT
// BAR0 for the driver: control registers, RTL counters, and the window to the statistics RAM.
module berth_host_regs (
    input  logic        clk,
    input  logic        rst,
    // Accesses to BAR0; a read is answered by one pulse of rd_valid.
    input  logic        valid,
    output logic        ready,
    input  logic        write,
    input  logic [19:0] addr,
    input  logic [63:0] wdata,
    input  logic [ 7:0] wstrb,
    output logic        rd_valid,
    output logic [63:0] rd_data,
    // Firmware loader and state.
    output logic        fw_data_we,
    output logic        fw_boot_we,
    output logic [31:0] bar_wdata,        // data of all write pulses
    input  logic [31:0] fw_status,
    input  logic [31:0] fw_code,
    output logic [31:0] hb_challenge,
    input  logic [31:0] hb_answer,
    output logic        reset_we,
    // Command ring.
    output logic [63:0] cmd_base,
    output logic [ 4:0] cmd_log2,
    output logic        cmd_log2_we,
    output logic [15:0] cmd_pi,
    output logic        cmd_pi_we,
    input  logic [15:0] cmd_ci,
    input  logic        cmd_stands,
    // Commands that are written into the card: index of one, then its eight words.
    output logic        push_begin,
    output logic        push_we,
    output logic [ 2:0] push_word,
    output logic [63:0] push_data,
    // Event ring.
    output logic [63:0] evt_base,
    output logic [ 4:0] evt_log2,
    output logic        evt_log2_we,
    output logic [15:0] evt_ci,
    output logic        evt_arm_we,
    output logic        evt_lax,
    input  logic [15:0] evt_pi,
    // DMA.
    output logic [63:0] fence_addr,
    output logic        dma_enable,
    input  logic [15:0] dma_busy,
    input  logic [ 2:0] cfg_max_payload,  // of configuration space, encoded as in Device Control
    input  logic [ 2:0] cfg_max_read_req,
    output logic [ 3:0] log2_payload,     // the same, 7 to 12
    output logic [ 3:0] log2_read,
    output logic [ 4:0] log2_tick,        // of the cycles of a third of the time-out of reads
    // Time; what is added to the counters, 16 bits each; cycles passed over that C_IDLE_CYCLES has, too (simulation).
    input  logic [63:0] cycles,
    input  logic [16*berth_regs_pkg::NUM_RTL_COUNTERS-1:0] amounts,
    input  logic [63:0] idle_skipped,
    output logic        inc_bad_access,
    // Statistics RAM: data one cycle after stat_req.
    output logic        stat_req,
    output logic [11:2] stat_addr,
    input  logic [31:0] stat_rdata
);
  localparam logic [31:0] NUM_COUNTERS = berth_regs_pkg::NUM_RTL_COUNTERS;
  localparam logic [31:0] STATS_BYTES = berth_regs_pkg::STATS_BYTES;

  typedef enum logic [2:0] {IDLE, LOOK, ACCESS, STATS, REPLY} state_t;
  state_t state_q;
  logic upper_q, bad_q, write_q;
  logic [15:3] addr_q;
  logic [63:0] wdata_q, rdata_q;
  logic [7:0] strb_q;

  // ---- Counters -------------------------------------------------------------
  localparam int unsigned N = berth_regs_pkg::NUM_RTL_COUNTERS;
  localparam logic [N-1:0] WIDE =
      N'(1) << berth_regs_pkg::C_TX_BYTES | N'(1) << berth_regs_pkg::C_RX_BYTES | N'(1) << berth_regs_pkg::C_DMA_READ_BYTES
      | N'(1) << berth_regs_pkg::C_DMA_WRITE_BYTES | N'(1) << berth_regs_pkg::C_CREDITS_SENT
      | N'(1) << berth_regs_pkg::C_FP_BYTES_SENT | N'(1) << berth_regs_pkg::C_FP_BYTES_PLACED;
  logic [63:0] counter, counted;
  logic [31:0] offset, cnt_offset;
  logic [31:0] cnt_high_q;
  logic        cnt_there, is_cnt;
  wire [$clog2(N)-1:0] cnt_index = cnt_offset[3+:$clog2(N)];
  berth_counters #(.N(N), .AMOUNT(16), .WIDE(WIDE)) counters (
      .clk, .rst, .amounts, .ask(state_q == LOOK && is_cnt), .which(cnt_index), .there(cnt_there), .value(counted)
  );
  assign counter = counted + (cnt_index == berth_regs_pkg::C_IDLE_CYCLES[$clog2(N)-1:0] ? idle_skipped : 64'd0);

  // ---- Read mux -------------------------------------------------------------
  logic [31:0] cyc_high_q, value;
  logic known, is_stats;
  assign offset     = {16'd0, addr_q[15:3], upper_q, 2'b00};
  assign cnt_offset = offset - berth_regs_pkg::HOST_COUNTERS;
  assign is_cnt     = offset >= berth_regs_pkg::HOST_COUNTERS && cnt_offset < NUM_COUNTERS * 8;
  assign is_stats   = offset >= berth_regs_pkg::HOST_STATS && offset < berth_regs_pkg::HOST_STATS + STATS_BYTES;
  // Both halves of an 8-byte read show the same moment.
  wire paired = strb_q == 8'hff;

  always_comb begin
    known = 1'b1;
    value = '0;
    unique case (offset)
      berth_regs_pkg::HOST_ID: value = berth_regs_pkg::CARD_ID;
      berth_regs_pkg::HOST_ABI: value = berth_regs_pkg::ABI_VERSION;
      berth_regs_pkg::HOST_CAPS0: value = {berth_regs_pkg::NUM_CQS[15:0], berth_regs_pkg::NUM_QPS[15:0]};
      berth_regs_pkg::HOST_CAPS1: value = {berth_regs_pkg::XLT_ROWS[15:0], berth_regs_pkg::NUM_UARS[15:0]};
      berth_regs_pkg::HOST_CAPS2:
      value = {berth_regs_pkg::FIRST_QPN[7:0], berth_regs_pkg::XLT_WAYS[7:0], berth_regs_pkg::NUM_ASIDS[15:0]};
      berth_regs_pkg::HOST_CAPS3: value = {16'd0, berth_regs_pkg::NUM_KEYS[15:0]};
      berth_regs_pkg::HOST_STATUS: value = fw_status;
      berth_regs_pkg::HOST_FW_CODE: value = fw_code;
      berth_regs_pkg::HOST_CLOCK_HZ: value = berth_regs_pkg::CLOCK_HZ;
      berth_regs_pkg::HOST_CYCLES_LO: value = cycles[31:0];
      berth_regs_pkg::HOST_CYCLES_HI: value = cyc_high_q;
      berth_regs_pkg::HOST_CTRL, berth_regs_pkg::HOST_FW_DATA, berth_regs_pkg::HOST_FW_BOOT: ;
      berth_regs_pkg::HOST_HB_CHALLENGE: value = hb_challenge;
      berth_regs_pkg::HOST_HB_ANSWER: value = hb_answer;
      berth_regs_pkg::HOST_CMD_BASE_LO: value = cmd_base[31:0];
      berth_regs_pkg::HOST_CMD_BASE_HI: value = cmd_base[63:32];
      berth_regs_pkg::HOST_CMD_LOG2: value = {27'd0, cmd_log2};
      berth_regs_pkg::HOST_CMD_PI: value = {16'd0, cmd_pi};
      berth_regs_pkg::HOST_CMD_CI: value = {cmd_stands, 15'd0, cmd_ci};
      berth_regs_pkg::HOST_EVT_BASE_LO: value = evt_base[31:0];
      berth_regs_pkg::HOST_EVT_BASE_HI: value = evt_base[63:32];
      berth_regs_pkg::HOST_EVT_LOG2: value = {27'd0, evt_log2};
      berth_regs_pkg::HOST_EVT_CI: value = {16'd0, evt_ci};
      berth_regs_pkg::HOST_EVT_PI: value = {16'd0, evt_pi};
      berth_regs_pkg::HOST_FENCE_LO: value = fence_addr[31:0];
      berth_regs_pkg::HOST_FENCE_HI: value = fence_addr[63:32];
      berth_regs_pkg::HOST_DMA_ENABLE: value = {31'd0, dma_enable};
      berth_regs_pkg::HOST_DMA_BUSY: value = {16'd0, dma_busy};
      berth_regs_pkg::HOST_PCIE_LIMITS: value = {24'd0, log2_read, log2_payload};
      berth_regs_pkg::HOST_READ_TIMEOUT: value = {27'd0, log2_tick};
      default: begin
        known = is_cnt || is_stats;
        if (is_cnt) value = offset[2] ? (paired ? cnt_high_q : counter[63:32]) : counter[31:0];
        if (!known) value = '1;
      end
    endcase
  end

  // Largest and smallest sizes that PCI Express knows.
  // Codes that PCI Express reserves stand for the smallest size.
  function automatic logic [3:0] limit(input logic [2:0] code);
    limit = code > 3'd5 ? 4'd7 : 4'd7 + {1'b0, code};
  endfunction
  always_ff @(posedge clk) begin
    log2_payload <= limit(cfg_max_payload);
    log2_read    <= limit(cfg_max_read_req);
  end
  // Thirds of a time-out: 2^10 to 2^27 cycles.
  function automatic logic [4:0] third(input logic [31:0] log2);
    third = log2 < 10 ? 5'd10 : log2 > 27 ? 5'd27 : log2[4:0];
  endfunction
  // Ring sizes beyond 5 bits are as wrong as 31.
  function automatic logic [4:0] ring_log2(input logic [31:0] v);
    ring_log2 = v > 31 ? 5'd31 : v[4:0];
  endfunction

  wire shape_ok = addr[19:16] == 0 && ((wstrb == 8'hff && addr[2:0] == 0) ||
      (wstrb == 8'h0f && addr[2:0] == 0) || (wstrb == 8'hf0 && addr[2:0] == 4));
  // A word of a pushed command takes one clock; anything else in its place is an access to no register.
  wire in_push = write && wstrb == 8'hff && addr[2:0] == 0 && {12'd0, addr[19:7], 7'd0} == berth_regs_pkg::HOST_CMD_PUSH;
  wire is_push = in_push && (addr[6] || addr[5:3] == 0);
  wire last_half = upper_q || strb_q == 8'h0f;
  wire we = state_q == ACCESS && write_q && known;

  assign ready = state_q == IDLE;
  assign push_begin = valid && ready && is_push && !addr[6];
  assign push_we    = valid && ready && is_push && addr[6];
  assign push_word  = addr[5:3];
  assign push_data  = wdata;
  assign rd_valid = state_q == REPLY && !write_q;
  assign rd_data = rdata_q;
  assign inc_bad_access = state_q == REPLY && bad_q;
  assign stat_req = state_q == ACCESS && is_stats && !write_q;
  assign stat_addr = offset[11:2];
  assign bar_wdata = upper_q ? wdata_q[63:32] : wdata_q[31:0];
  assign fw_data_we = we && offset == berth_regs_pkg::HOST_FW_DATA;
  assign fw_boot_we = we && offset == berth_regs_pkg::HOST_FW_BOOT;
  assign reset_we = we && offset == berth_regs_pkg::HOST_CTRL && bar_wdata[0];

  always_ff @(posedge clk) begin
    cmd_log2_we <= 1'b0;
    cmd_pi_we   <= 1'b0;
    evt_log2_we <= 1'b0;
    evt_arm_we  <= 1'b0;
    unique case (state_q)
      IDLE: begin
        write_q <= write;
        addr_q  <= addr[15:3];
        wdata_q <= wdata;
        strb_q  <= wstrb;
        upper_q <= wstrb == 8'hf0;
        rdata_q <= '1;
        bad_q   <= !shape_ok;
        if (valid && !is_push) state_q <= shape_ok ? LOOK : REPLY;
      end
      LOOK: if (!is_cnt || cnt_there) state_q <= ACCESS;
      ACCESS: begin
        if (!known) bad_q <= 1'b1;
        if (upper_q) rdata_q[63:32] <= value;
        else rdata_q[31:0] <= value;
        cnt_high_q <= counter[63:32];
        if (offset == berth_regs_pkg::HOST_CYCLES_LO && !write_q) cyc_high_q <= cycles[63:32];
        upper_q <= 1'b1;
        if (is_stats && !write_q) begin
          upper_q <= upper_q;
          state_q <= STATS;
        end else if (last_half) state_q <= REPLY;
        if (we)
          unique case (offset)
            berth_regs_pkg::HOST_HB_CHALLENGE: hb_challenge <= bar_wdata;
            berth_regs_pkg::HOST_CMD_BASE_LO: cmd_base[31:6] <= bar_wdata[31:6];
            berth_regs_pkg::HOST_CMD_BASE_HI: cmd_base[63:32] <= bar_wdata;
            berth_regs_pkg::HOST_CMD_LOG2: begin
              cmd_log2    <= ring_log2(bar_wdata);
              cmd_log2_we <= 1'b1;
              cmd_pi      <= '0;
            end
            berth_regs_pkg::HOST_CMD_PI: begin
              cmd_pi    <= bar_wdata[15:0];
              cmd_pi_we <= 1'b1;
            end
            berth_regs_pkg::HOST_EVT_BASE_LO: evt_base[31:6] <= bar_wdata[31:6];
            berth_regs_pkg::HOST_EVT_BASE_HI: evt_base[63:32] <= bar_wdata;
            berth_regs_pkg::HOST_EVT_LOG2: begin
              evt_log2    <= ring_log2(bar_wdata);
              evt_log2_we <= 1'b1;
              evt_ci      <= '0;
            end
            berth_regs_pkg::HOST_EVT_CI: begin
              evt_ci     <= bar_wdata[15:0];
              evt_arm_we <= bar_wdata[31];
              evt_lax    <= bar_wdata[30];
            end
            berth_regs_pkg::HOST_FENCE_LO: fence_addr[31:3] <= bar_wdata[31:3];
            berth_regs_pkg::HOST_FENCE_HI: fence_addr[63:32] <= bar_wdata;
            berth_regs_pkg::HOST_DMA_ENABLE: dma_enable <= bar_wdata[0];
            berth_regs_pkg::HOST_READ_TIMEOUT: log2_tick <= third(bar_wdata);
            default: ;
          endcase
      end
      STATS: begin
        if (upper_q) rdata_q[63:32] <= stat_rdata;
        else rdata_q[31:0] <= stat_rdata;
        upper_q <= 1'b1;
        state_q <= last_half ? REPLY : LOOK;
      end
      default: state_q <= IDLE;
    endcase
    if (rst) begin
      state_q <= IDLE;
      cmd_base <= '0;
      cmd_log2 <= '0;
      cmd_pi <= '0;
      evt_base <= '0;
      evt_log2 <= '0;
      evt_ci <= '0;
      evt_lax <= 1'b0;
      fence_addr <= '0;
      hb_challenge <= '0;
      dma_enable <= 1'b0;
      log2_tick <= 5'd22;
      cyc_high_q <= '0;
    end
  end
endmodule
