// SPDX-License-Identifier: Apache-2.0 OR MIT
// berth_dma_wr and what its neighbours do.
    localparam DATA_W = 64;
    (* anyseq *) logic              rst_in, cmd_valid, cmd_bad, cmd_virtual, fp_valid, done_ready, enable, hold, lk_ack, lk_hit,
                                    pr_ready, wr_ready;
    (* anyseq *) logic [17:0]       cmd_local, fp_local;
    (* anyseq *) logic [12:0]       cmd_len, fp_len;
    (* anyseq *) logic [15:0]       cmd_tag;
    (* anyseq *) logic [63:0]       cmd_addr, fp_va;
    (* anyseq *) logic [ 7:0]       cmd_asid, fp_asid, fp_tag;
    (* anyseq *) logic [51:0]       lk_page;
    (* anyseq *) logic [DATA_W-1:0] pr_rdata;
    (* anyseq *) logic [ 3:0]       log2_payload;
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

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
    berth_dma_wr #(.DATA_W(DATA_W), .WORDS(4), .SEGS(2)) dut (.*);

    always_comb begin
        assume (cmd_bad || (cmd_len != 0 && cmd_len <= 13'd4608));
        assume (fp_len != 0 && fp_len <= 13'd4608);
        assume (!lk_ack || lk_req);
        assume (log2_payload >= 4'd7 && log2_payload <= 4'd12);
    end
    // Answers of packet RAM come two cycles after the handshake.
    logic pr_q, pr_rvalid_q;
    always_ff @(posedge clk) begin
        pr_q        <= pr_valid && pr_ready && !rst;
        pr_rvalid_q <= pr_q && !rst;
    end
    assign pr_rvalid = pr_rvalid_q;
