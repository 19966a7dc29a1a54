// SPDX-License-Identifier: Apache-2.0 OR MIT
// Takes the firmware image word by word, checks its header and CRC, and lets the core run.
module berth_fw_loader (
    input  logic        clk,
    input  logic        rst,
    // BAR0: next word of the image; "the image is complete".
    input  logic        fw_data_we,
    input  logic        fw_boot_we,
    input  logic [31:0] bar_wdata,
    // Firmware: its own state and fw_code, once it runs.
    input  logic        status_we,
    input  logic        code_we,
    input  logic [31:0] cpu_word,
    // RAM of the core.
    output logic        fwl_we,
    output logic [19:2] fwl_addr,
    output logic [31:0] fwl_wdata,
    output logic        core_run,
    // BAR0: HOST_STATUS, HOST_FW_CODE.
    output logic [31:0] fw_status,
    output logic [31:0] fw_code
);
  localparam logic [31:0] HEADER_WORDS = berth_regs_pkg::FW_HEADER_BYTES / 4;

  logic [31:0] status_q, code_q, magic_q, abi_q, length_q, want_q, crc_q, verdict;
  logic [31:0] count_q;  // words so far, header included; saturates far above any legal image
  logic run_q;
  wire [31:0] payload = count_q - HEADER_WORDS;
  wire length_ok = length_q != 0 && length_q[1:0] == 0 && length_q <= berth_regs_pkg::FW_RAM_BYTES;
  wire in_payload = count_q >= HEADER_WORDS;

  // CRC-32 (IEEE 802.3, reflected) over the four bytes of a little-endian word.
  function automatic logic [31:0] crc32(input logic [31:0] crc, input logic [31:0] word);
    crc32 = crc ^ word;
    for (int i = 0; i < 32; i++) crc32 = {1'b0, crc32[31:1]} ^ (crc32[0] ? 32'hedb8_8320 : 32'd0);
  endfunction

  always_comb begin
    if (count_q < HEADER_WORDS) verdict = berth_regs_pkg::FW_TRUNCATED;
    else if (magic_q != berth_regs_pkg::FW_MAGIC) verdict = berth_regs_pkg::FW_BAD_MAGIC;
    else if (abi_q != berth_regs_pkg::ABI_VERSION) verdict = berth_regs_pkg::FW_BAD_ABI;
    else if (!length_ok) verdict = berth_regs_pkg::FW_BAD_LENGTH;
    else if (payload != {2'd0, length_q[31:2]}) verdict = berth_regs_pkg::FW_TRUNCATED;
    else if (~crc_q != want_q) verdict = berth_regs_pkg::FW_BAD_CRC;
    else verdict = '0;
  end

  assign core_run = run_q;
  assign fw_status   = status_q;
  assign fw_code     = code_q;

  always_ff @(posedge clk) begin
    // A word past the length that the header states is counted but goes nowhere.
    fwl_we    <= fw_data_we && !run_q && in_payload && length_ok && payload < {2'd0, length_q[31:2]};
    fwl_addr  <= payload[17:0];
    fwl_wdata <= bar_wdata;
    if (fw_data_we && !run_q) begin
      if (status_q != berth_regs_pkg::FW_LOADING) begin
        status_q <= berth_regs_pkg::FW_LOADING;
        code_q   <= '0;
      end
      if (!count_q[31]) count_q <= count_q + 1;
      unique case (count_q)
        32'd0: begin
          magic_q <= bar_wdata;
          crc_q   <= '1;
        end
        32'd1: abi_q <= bar_wdata;
        32'd2: length_q <= bar_wdata;
        32'd3: want_q <= bar_wdata;
        default: if (in_payload) crc_q <= crc32(crc_q, bar_wdata);
      endcase
    end
    if (fw_boot_we) begin
      count_q <= '0;
      if (run_q) code_q <= berth_regs_pkg::FW_BUSY;
      else begin
        run_q    <= verdict == 0;
        code_q   <= verdict;
        status_q <= verdict == 0 ? berth_regs_pkg::FW_STARTED : berth_regs_pkg::FW_REFUSED;
      end
    end
    if (status_we) status_q <= cpu_word;
    if (code_we) code_q <= cpu_word;
    if (rst) begin
      fwl_we   <= 1'b0;
      run_q    <= 1'b0;
      count_q  <= '0;
      status_q <= berth_regs_pkg::FW_RESET;
      code_q   <= '0;
    end
  end

  // Nothing is loaded under a running core.
  always_ff @(posedge clk) if (!rst && run_q && $past(run_q)) assert (!fwl_we);
endmodule
