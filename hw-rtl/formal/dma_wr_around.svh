// SPDX-License-Identifier: Apache-2.0 OR MIT
// berth_dma_wr and what its neighbours do.
    localparam DATA_W = 64;
    (* anyseq *) logic              rst_in, wcmd_valid, store_valid, wdone_ready, enable, hold, lk_ack, lk_hit,
                                    pr_ready, wr_ready, found_judged, found_refused;
    (* anyseq *) berth_card_pkg::dma_t     wcmd;
    (* anyseq *) berth_card_pkg::payload_t store;
    (* anyseq *) logic [51:0]       lk_page;
    (* anyseq *) logic [DATA_W-1:0] pr_rdata;
    (* anyseq *) logic [ 3:0]       log2_payload;
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic              wcmd_ready, store_ready, stored_valid, wdone_valid, quiet, busy, lk_req, pr_valid, pr_rvalid, wr_valid, wr_last;
    logic [ 7:0]       lk_asid;
    berth_card_pkg::dma_end_t     wdone;
    berth_card_pkg::payload_end_t stored;
    logic [ 4:0]       flying;
    logic [51:0]       lk_vpn;
    logic [18:0]       pr_addr;
    logic [63:0]       wr_addr;
    logic [12:0]       wr_len;
    logic [DATA_W-1:0] wr_data;
    logic              inc_no_translation, found_valid, found_taken;
    berth_card_pkg::found_t       found;
    berth_dma_wr #(.DATA_W(DATA_W), .WORDS(4), .SEGS(2)) dut (.*);

    always_comb begin
        assume (wcmd.bad || (wcmd.len != 0 && wcmd.len <= 13'd4608));
        assume (store.len != 0 && store.len <= 13'd4608);
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
