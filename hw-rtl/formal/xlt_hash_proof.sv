// SPDX-License-Identifier: Apache-2.0 OR MIT
// The rows of a page in the translation table (berth_xlt), for any two pages:
// * One is at home, when it is installed, in those two rows in which it is looked for.
// * Two that entries do not tell apart (their numbers differ in the lowest nine bits only) are at home in different rows.
// The page that is looked for is taken out of the pipeline, and free (`cut`).
module xlt_hash_proof (
    input logic clk,
    input logic [12:0] ch_index,
    input logic [8:0] low
);
    localparam WW = $clog2(berth_regs_pkg::XLT_WAYS), IW = WW + 9;
    (* hierconn *) wire        \dut.at_home ;
    (* hierconn *) wire [7:0]  \dut.a_asid_q ;
    (* hierconn *) wire [51:0] \dut.a_vpn_q ;
    (* hierconn *) wire [8:0]  \dut.row0 ;
    (* hierconn *) wire [8:0]  \dut.row1 ;
    berth_card_pkg::table_change_t ch;
    assign ch.op    = berth_row_pkg::CHANGE_INSTALL;
    assign ch.index = ch_index;
    assign ch.vpn   = {\dut.a_vpn_q [47:9], low};
    assign ch.asid  = \dut.a_asid_q ;
    assign ch.write = 1'b0;
    assign ch.page  = 52'd0;
    assign ch.more  = 1'b0;
    berth_xlt dut (.clk(clk), .rst(1'b0), .lk_req(2'd0), .lk_asid(16'd0), .lk_vpn(104'd0), .ch_valid(1'b0), .ch(ch),
        .rdy_valid(1'b0), .rdy('0), .xhead_valid(1'b0), .xhead('0), .rsp_ready(1'b0), .xa_valid(2'd0), .xa('0), .xa_tell(1'b0),
        .xr_room(2'd0), .xev_ready(1'b0));

    wire here = ch_index[IW-1:WW] == (ch_index[WW-1] ? \dut.row1 : \dut.row0 );
    always_comb begin
        if (\dut.a_vpn_q [8:0] == low) assert (\dut.at_home == here);
        else assert (!(\dut.at_home && here));
    end
endmodule
