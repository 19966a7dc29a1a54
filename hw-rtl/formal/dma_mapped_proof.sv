// SPDX-License-Identifier: Apache-2.0 OR MIT
// No write to host memory without a valid translation (invariant 4): when commands have virtual addresses only,
// berth_dma_wr writes to no page but those that look-ups have given, and a look-up that misses writes nothing.
//
// Pages that are given have a mark in their number, virtual addresses do not, so that the proof is about all pages.
// The queues behind the cut give what was put into them (fifo_proof), and are free here.
module dma_mapped_proof #(
    parameter DATA_W = 64
) (
    input logic              clk,
    input logic              rst_in,
    input logic              cmd_valid, cmd_bad,
    input logic [17:0]       cmd_local,
    input logic [12:0]       cmd_len,
    input logic [15:0]       cmd_tag,
    input logic [63:0]       cmd_addr,
    input logic [ 7:0]       cmd_asid,
    input logic              fp_valid,
    input logic [17:0]       fp_local,
    input logic [12:0]       fp_len,
    input logic [ 7:0]       fp_asid, fp_tag,
    input logic [63:0]       fp_va,
    input logic              done_ready, enable, hold,
    input logic [ 3:0]       log2_in,
    input logic              lk_ack, lk_hit,
    input logic [51:0]       lk_page,
    input logic              pr_ready,
    input logic [DATA_W-1:0] pr_rdata,
    input logic              wr_ready
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;
    logic [3:0] log2_payload;   // any, and then the same for ever
    always_ff @(posedge clk) if (!started_q) log2_payload <= log2_in;

    logic              cmd_ready, fp_ready, fd_valid, done_valid, quiet, busy, lk_req, pr_valid, pr_rvalid, wr_valid, wr_last;
    logic [15:0]       done_tag;
    logic [ 7:0]       done_status, lk_asid, fd_tag;
    logic [ 1:0]       fd_status;
    logic [ 4:0]       flying;
    logic [51:0]       lk_vpn;
    logic [18:0]       pr_addr;
    logic [63:0]       wr_addr;
    logic [12:0]       wr_len;
    logic [DATA_W-1:0] wr_data;
    logic              inc_no_translation;
    wire               cmd_virtual = 1'b1;

    berth_dma_wr #(.DATA_W(DATA_W), .WORDS(4), .SEGS(2)) dut (.*);

    // The mark: bit 63 of an address. A miss gives a page too, one without it.
    always_comb begin
        assume (!cmd_addr[63] && !fp_va[63] && cmd_addr[62:52] == '0 && fp_va[62:52] == '0);
        assume (cmd_bad || (cmd_len != 0 && cmd_len <= 13'd4608));
        assume (fp_len != 0 && fp_len <= 13'd4608);
        assume (!lk_ack || lk_req);
        assume (lk_page[51] == (lk_ack && lk_hit));
        assume (log2_payload >= 4'd7 && log2_payload <= 4'd12);
    end
    logic pr_q, pr_rvalid_q;
    always_ff @(posedge clk) begin
        pr_q        <= pr_valid && pr_ready && !rst;
        pr_rvalid_q <= pr_q && !rst;
    end
    assign pr_rvalid = pr_rvalid_q;

    // What is cut for the port's queue (seg_fifo; wr_addr is what comes out of it) lies in a page that was given; that of
    // a piece stays the same, and a piece without a page has no bytes.
    (* hierconn *) wire        \dut.put_valid ;
    (* hierconn *) wire [12:0] \dut.len ;
    (* hierconn *) wire [63:0] \dut.addr ;
    (* hierconn *) wire [12:0] \dut.off_q ;
    (* hierconn *) wire        \dut.skip_q ;
    (* hierconn *) wire [12:0] \dut.pg_len ;
    (* hierconn *) wire [63:0] \dut.pg_addr ;
    (* hierconn *) wire        \dut.pg_valid ;
    (* hierconn *) wire        \dut.front.active_q ;
    (* hierconn *) wire        \dut.front.looking_q ;
    (* hierconn *) wire        \dut.front.virt_q ;
    always_comb if (!rst) begin
        assert (!\dut.put_valid || \dut.len == 13'd0
                || (\dut.addr [63] && \dut.addr [63:12] == \dut.pg_addr [63:12]));
        assert (!\dut.pg_valid || \dut.pg_len == 13'd0 || \dut.pg_addr [63]);
        assert (!\dut.pg_valid || {2'd0, \dut.pg_addr [11:0]} + {1'b0, \dut.pg_len } <= 14'h1000);
        assert (\dut.off_q == 13'd0 || (\dut.pg_valid && \dut.off_q < \dut.pg_len && !\dut.skip_q ));
        assert (!\dut.front.active_q || \dut.front.virt_q );
        assert (!\dut.front.looking_q || (\dut.front.active_q && !\dut.pg_valid ));
    end
endmodule
