// SPDX-License-Identifier: Apache-2.0 OR MIT
// A card whose firmware RAM is outside (berth_core's FW_RAM is 0), and that RAM: each access takes a while, and another
// one each time. Ports as berth_core's.
module berth_board #(
    parameter DATA_W = 64,
    parameter HOST_W = 2 * DATA_W
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
    logic        xi_req, xi_ack, xd_req, xd_we, xd_ack;
    logic [19:2] xi_addr, xd_addr;
    logic [31:0] xi_rdata, xd_wdata, xd_rdata;
    logic [3:0]  xd_strb;
    berth_core #(.DATA_W(DATA_W), .HOST_W(HOST_W), .FW_RAM(0)) core (.*);

    localparam int unsigned AW = $clog2(berth_regs_pkg::FW_RAM_BYTES);
    logic [31:0] mem [0:berth_regs_pkg::FW_RAM_BYTES/4-1];
    logic [7:0]  chance_q;             // clocks that an access takes: 4 to 11
    logic [3:0]  i_wait_q, d_wait_q;   // 0: no access is under way
    always_ff @(posedge clk) begin
        chance_q <= {chance_q[6:0], chance_q[7] ^ chance_q[5] ^ chance_q[4] ^ chance_q[3]};
        xi_ack   <= 1'b0;
        xd_ack   <= 1'b0;
        i_wait_q <= !xi_req || xi_ack ? 4'd0 : i_wait_q == 4'd0 ? 4'd2 + {1'b0, chance_q[2:0]} : i_wait_q - 4'd1;
        d_wait_q <= !xd_req || xd_ack ? 4'd0 : d_wait_q == 4'd0 ? 4'd2 + {1'b0, chance_q[6:4]} : d_wait_q - 4'd1;
        if (xi_req && !xi_ack && i_wait_q == 4'd1) begin
            xi_ack   <= 1'b1;
            xi_rdata <= mem[xi_addr[AW-1:2]];
        end
        if (xd_req && !xd_ack && d_wait_q == 4'd1) begin
            xd_ack   <= 1'b1;
            xd_rdata <= mem[xd_addr[AW-1:2]];
            for (int i = 0; i < 4; i++)
                if (xd_we && xd_strb[i]) mem[xd_addr[AW-1:2]][8*i +: 8] <= xd_wdata[8*i +: 8];
        end
        if (rst) chance_q <= 8'd1;
    end
endmodule
