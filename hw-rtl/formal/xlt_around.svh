// SPDX-License-Identifier: Apache-2.0 OR MIT
// berth_xlt, and what happens to it: parameters and ports of a proof's module, and the design in it.
    parameter CLEARED = 0  // begins, without a reset, as the clearing of 512 rows leaves it: to look for what changes break
) (
    input logic clk, rst_in,
    input logic [1:0] lk_req,
    input logic [15:0] lk_asid,
    input logic [103:0] lk_vpn,
    input logic ch_valid,
    input berth_card_pkg::table_change_t ch,
    input logic rdy_valid, rsp_ready, xev_ready,
    input berth_card_pkg::page_answer_t rdy,
    input logic [1:0] xr_room
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = CLEARED == 0 && (!started_q || rst_in);

    logic [1:0]  lk_ack;
    logic        lk_hit, ch_ready;
    logic [51:0] lk_page;
    berth_xlt dut (.clk(clk), .rst(rst), .lk_req(lk_req), .lk_asid(lk_asid), .lk_vpn(lk_vpn), .lk_ack(lk_ack), .lk_hit(lk_hit),
        .lk_page(lk_page), .ch_valid(ch_valid), .ch_ready(ch_ready), .ch(ch),
        .rdy_valid(rdy_valid), .rdy(rdy), .xhead_valid(1'b0), .xhead('0), .rsp_ready(rsp_ready), .xa_valid(2'd0), .xa('0),
        .xa_tell(1'b0), .xr_room(xr_room), .xev_ready(xev_ready));
