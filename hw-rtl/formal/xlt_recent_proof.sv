// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pages that were looked up before (berth_xlt_recent): each answer says of any page what the table says in its clock, and
// none is given in a clock in which the table may change. So `xlt` holds of what DMA hears. A question that the table is asked
// stays until it is answered.
//
// The table is any that changes only when it says that it may, and answers only what it is asked. What is read from a place is
// what was written to it last.
module xlt_recent_proof #(
    parameter PAGES = 16
) (
    input logic        clk, rst_in, changing, lk_req, ask_ack, ask_hit, held_in,
    input logic [7:0]  lk_asid,
    input logic [51:0] lk_vpn, ask_page, page_in
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic        lk_ack, lk_hit, ask_req;
    logic [51:0] lk_page;
    berth_xlt_recent #(.PAGES(PAGES)) dut (.*);

    // ---- the table, of one page -------------------------------------------------------------
    (* anyconst *) logic [7:0]  the_asid;
    (* anyconst *) logic [51:0] the_vpn;
    wire mine = {lk_asid, lk_vpn} == {the_asid, the_vpn};
    logic        held_q;
    logic [51:0] page_q;
    always_ff @(posedge clk) if (changing) {held_q, page_q} <= {held_in, page_in};

    logic        waits_q, asks_q;
    logic [59:0] what_q;
    always_ff @(posedge clk) begin
        waits_q <= !rst && lk_req && !lk_ack;
        asks_q  <= !rst && ask_req && !ask_ack;
        what_q  <= {lk_asid, lk_vpn};
    end
    always_comb begin
        assume (!waits_q || (lk_req && {lk_asid, lk_vpn} == what_q));
        assume (!ask_ack || (ask_req && !changing));
        assume (!(ask_ack && mine) || (ask_hit == held_q && (!ask_hit || ask_page == page_q)));
    end

    // ---- the place of that page ---------------------------------------------------------------
    localparam LP = $clog2(PAGES);
    (* hierconn *) wire [LP-1:0]    \dut.at ;
    (* hierconn *) wire [PAGES-1:0] \dut.valid_q ;
    (* hierconn *) wire [7:0]       \dut.asid ;
    (* hierconn *) wire [51:0]      \dut.vpn ;
    (* hierconn *) wire [51:0]      \dut.page ;
    (* hierconn *) wire [51:0]      \dut.page_q ;
    (* hierconn *) wire             \dut.fill ;
    (* hierconn *) wire             \dut.match_q ;
    (* hierconn *) wire             \dut.looked_q ;
    (* hierconn *) wire             \dut.empty_q ;
    wire [LP-1:0] the_at = the_vpn[LP-1:0] ^ the_asid[LP-1:0];
    logic [111:0] stored_q;
    always_ff @(posedge clk) if (\dut.fill && \dut.at == the_at) stored_q <= {lk_asid, lk_vpn, ask_page};
    always_comb assume (\dut.at != the_at || {\dut.asid , \dut.vpn , \dut.page } == stored_q);

    always_comb if (!rst) begin
        assert (!lk_ack || (lk_req && !changing));
        assert (!(lk_ack && mine) || (lk_hit == held_q && (!lk_hit || lk_page == page_q)));
        assert (!asks_q || ask_req);
        // For the proof.
        assert (!(\dut.valid_q [the_at] && stored_q[111:52] == {the_asid, the_vpn}) || (held_q && stored_q[51:0] == page_q));
        assert (!\dut.match_q || (waits_q && \dut.looked_q && (!mine || (held_q && \dut.page_q == page_q))));
        assert (\dut.looked_q == waits_q);
        assert (\dut.empty_q == (\dut.valid_q == '0));
    end
endmodule
