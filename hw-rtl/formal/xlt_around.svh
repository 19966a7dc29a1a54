// SPDX-License-Identifier: Apache-2.0 OR MIT
// berth_xlt, and what happens to it: parameters and ports of a proof's module, and the design in it.
    parameter CLEARED = 0  // begins, without a reset, as the clearing of 512 rows leaves it: to look for what changes break
) (
    input logic clk, rst_in,
    input logic [1:0] lk_req,
    input logic [15:0] lk_asid,
    input logic [103:0] lk_vpn,
    input logic ch_valid, ch_write, ch_more,
    input logic [1:0] ch_op,
    input logic [12:0] ch_index,
    input logic [47:0] ch_vpn,
    input logic [7:0] ch_asid,
    input logic [51:0] ch_page,
    input logic rdy_valid, rsp_ready, ev_ready,
    input logic [17:0] rdy_tag,
    input logic [7:0] rdy_status,
    input logic [1:0] xr_room
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = CLEARED == 0 && (!started_q || rst_in);

    logic [1:0]  lk_ack;
    logic        lk_hit, ch_ready;
    logic [51:0] lk_page;
    berth_xlt dut (.clk(clk), .rst(rst), .lk_req(lk_req), .lk_asid(lk_asid), .lk_vpn(lk_vpn), .lk_ack(lk_ack), .lk_hit(lk_hit),
        .lk_page(lk_page), .ch_valid(ch_valid), .ch_ready(ch_ready), .ch_op(ch_op), .ch_index(ch_index), .ch_vpn(ch_vpn),
        .ch_asid(ch_asid), .ch_write(ch_write), .ch_page(ch_page), .ch_more(ch_more), .rdy_valid(rdy_valid), .rdy_tag(rdy_tag),
        .rdy_status(rdy_status), .go_valid(1'b0), .go_release(1'b0), .go_write(1'b0), .go_asid(8'd0), .go_va(64'd0), .go_len(31'd0),
        .go_tag(16'd0), .rsp_ready(rsp_ready), .xa_valid(2'd0), .xa_release(2'd0), .xa_write(2'd0), .xa_asid(16'd0), .xa_va(128'd0),
        .xa_len(42'd0), .xa_tag(32'd0), .xa_tell(1'b0), .xr_room(xr_room), .ev_ready(ev_ready));
