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
    berth_xlt dut (.clk(clk), .rst(1'b0), .lk_req(2'd0), .ch_valid(1'b0), .ch_op(2'd0), .ch_page(52'd0), .ch_more(1'b0), .ch_index(ch_index), .ch_vpn({\dut.a_vpn_q [47:9], low}),
        .ch_asid(\dut.a_asid_q ), .rdy_valid(1'b0), .go_valid(1'b0), .xa_valid(2'd0));

    wire here = ch_index[IW-1:WW] == (ch_index[WW-1] ? \dut.row1 : \dut.row0 );
    always_comb begin
        if (\dut.a_vpn_q [8:0] == low) assert (\dut.at_home == here);
        else assert (!(\dut.at_home && here));
    end
endmodule
