// SPDX-License-Identifier: Apache-2.0 OR MIT
// The small card as a board would have it, for synthesis: with the sizes of rtl/small/berth_regs_pkg.sv, firmware's RAM
// outside, and nothing at the ports that are for simulation and benches.
module berth_small (
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

    // the slot's limits, as configuration space has them in Device Control: 0 is 128 bytes, 5 is 4096, others count as 0.
    // What was asked for before a change may still go out at its old size
    input  logic [2:0]          cfg_max_payload,
    input  logic [2:0]          cfg_max_read_req,

    // host memory reads: requests never cross 4 KiB
    output logic                hrd_valid,
    input  logic                hrd_ready,
    output logic [63:0]         hrd_addr,
    output logic [12:0]         hrd_len,
    output logic [5:0]          hrd_tag,

    // ... and their completions, left-aligned
    input  logic                hcpl_valid,
    output logic                hcpl_ready,
    input  logic [127:0]        hcpl_data,
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
    output logic [127:0]        hwr_data,
    output logic                hwr_first,
    output logic                hwr_last,

    // interrupts, ordered behind the writes
    output logic                msix_valid,
    input  logic                msix_ready,
    output logic [4:0]          msix_vector,

    // MAC: frames without preamble and FCS
    output logic                tx_valid,
    input  logic                tx_ready,
    output logic [63:0]         tx_data,
    output logic [7:0]          tx_keep,
    output logic                tx_last,
    input  logic                rx_valid,
    output logic                rx_ready,
    input  logic [63:0]         rx_data,
    input  logic [7:0]          rx_keep,
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
    input  logic [31:0]         xd_rdata
);
    logic        idle, timer_armed, dbg_ack;
    logic [63:0] timer_deadline, cycles;
    logic [31:0] dbg_rdata;
    berth_core #(.DATA_W(64), .HOST_W(128), .FW_RAM(0)) core (
        .skip(64'd0), .dbg_req(1'b0), .dbg_we(1'b0), .dbg_addr(32'd0), .dbg_wdata(32'd0), .*
    );
endmodule
