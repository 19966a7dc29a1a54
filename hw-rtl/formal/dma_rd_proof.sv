// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads of host memory by berth_dma_rd: none crosses a page or a multiple of the maximum read request, none is longer
// than that, none begins while `stop`.
module dma_rd_proof #(
    parameter DATA_W = 64
) (
    input logic                clk,
    input logic                rst_in,
    input logic                cmd_valid, cmd_bad, cmd_virtual, cmd_attach,
    input logic [17:0]         cmd_local,
    input logic [12:0]         cmd_len,
    input logic [15:0]         cmd_tag,
    input logic [63:0]         cmd_addr,
    input logic [ 3:0]         cmd_slot,
    input logic [ 7:0]         cmd_asid,
    input logic                fp_valid,
    input logic [17:0]         fp_local,
    input logic [12:0]         fp_len,
    input logic [ 7:0]         fp_asid, fp_tag,
    input logic [63:0]         fp_va,
    input logic                done_ready, enable, hold, stop,
    input logic [ 3:0]         log2_in,
    input logic                lk_ack, lk_hit,
    input logic [51:0]         lk_page,
    input logic                qr_valid,
    input logic [63:0]         qr_addr,
    input logic [ 9:0]         qr_len,
    input logic [ 8:0]         qr_tag,
    input logic                ring_valid,
    input logic [63:0]         ring_addr,
    input logic [12:0]         ring_len,
    input logic [ 2:0]         ring_tag,
    input logic                hrd_ready,
    input logic                hcpl_valid, hcpl_last, hcpl_err,
    input logic [DATA_W-1:0]   hcpl_data,
    input logic [ 5:0]         hcpl_tag,
    input logic [12:0]         hcpl_off, hcpl_len,
    input logic                pw_ready
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;
    logic [3:0] log2_read;   // any, and then the same for ever
    always_ff @(posedge clk) if (!started_q) log2_read <= log2_in;

    logic                  cmd_ready, done_valid, att_done, fp_ready, fd_valid, qr_ready, qc_valid, qc_more, qc_last;
    logic                  qc_err, quiet, busy, lk_req, ring_ready, ring_cpl_valid, ring_cpl_more, ring_cpl_end;
    logic                  ring_cpl_err, hrd_valid, hcpl_ready, pw_valid, inc_request, inc_no_translation, inc_host_error;
    logic [15:0]           done_tag;
    logic [ 7:0]           done_status, att_status, fd_tag, lk_asid;
    logic [ 3:0]           att_slot;
    logic [ 2:0]           ring_cpl_tag;
    logic [ 1:0]           fd_status;
    logic [DATA_W-1:0]     qc_data, ring_cpl_data, pw_data;
    logic [ 8:0]           qc_tag;
    logic [ 9:0]           qc_off;
    logic [ 6:0]           flying;
    logic [51:0]           lk_vpn;
    logic [12:0]           ring_cpl_offset, hrd_len;
    logic [63:0]           hrd_addr;
    logic [ 5:0]           hrd_tag;
    logic [18:0]           pw_addr;
    logic [2*DATA_W/8-1:0] pw_strb;

    berth_dma_rd #(.DATA_W(DATA_W)) dut (.*);

    // ---- what its neighbours do ------------------------------------------------------------
    wire [12:0] line = 13'd1 << log2_read;
    function automatic logic kept(input logic [63:0] addr, input logic [12:0] len, input logic [12:0] line);
        kept = len != 13'd0 && {2'd0, addr[11:0]} + {1'b0, len} <= 14'h1000 && ({1'b0, addr[11:0]} & (line - 13'd1)) + len <= line;
    endfunction
    always_comb begin
        assume (cmd_bad || (cmd_len != 0 && cmd_len <= 13'd4608));
        assume (fp_len != 0 && fp_len <= 13'd4608);
        assume (!lk_ack || lk_req);
        assume (log2_read >= 4'd7 && log2_read <= 4'd12);
        // Reads of rings and queues keep to the rule by themselves.
        assume (kept(ring_addr, ring_len, line) && kept(qr_addr, {3'd0, qr_len}, line));
    end

    // ---- what is asked of the host -----------------------------------------------------------
    logic waits_q;      // shown, not taken
    always_ff @(posedge clk) waits_q <= !rst && hrd_valid && !hrd_ready;
    logic stopped_q;    // since the clock before
    always_ff @(posedge clk) stopped_q <= !rst && stop;
    always_comb if (!rst) begin
        assert (!hrd_valid || kept(hrd_addr, hrd_len, line));
        assert (!(hrd_valid && stopped_q && !waits_q));
        assert (!waits_q || hrd_valid);
    end
    // For the proof: what is cut lies in the piece, and that in its page; nothing is empty but what only has a status.
    (* hierconn *) wire [12:0] \dut.off_q ;
    (* hierconn *) wire [12:0] \dut.pg_len ;
    (* hierconn *) wire [63:0] \dut.pg_addr ;
    (* hierconn *) wire [ 1:0] \dut.pg_status ;
    (* hierconn *) wire        \dut.pg_valid ;
    (* hierconn *) wire        \dut.skip_q ;
    (* hierconn *) wire [12:0] \dut.front.left_q ;
    (* hierconn *) wire        \dut.front.active_q ;
    (* hierconn *) wire        \dut.front.looking_q ;
    (* hierconn *) wire        \dut.front.bad_q ;
    always_comb if (!rst) begin
        assert (!\dut.pg_valid || {2'd0, \dut.pg_addr [11:0]} + {1'b0, \dut.pg_len } <= 14'h1000);
        assert (!\dut.pg_valid || \dut.pg_status != 2'd0 || \dut.pg_len != 13'd0);
        assert (\dut.off_q == 13'd0 || (\dut.pg_valid && \dut.off_q < \dut.pg_len && !\dut.skip_q ));
        assert (!\dut.front.active_q || \dut.front.bad_q || \dut.front.left_q != 13'd0);
        assert (!\dut.front.looking_q || (!\dut.pg_valid && \dut.front.active_q && !\dut.front.bad_q ));
    end
endmodule
