// SPDX-License-Identifier: Apache-2.0 OR MIT
// The translation table (berth_xlt), for any page and any place of the table (invariant 4, with dma_mapped and dma_fence):
// * A look-up finds a page only where the driver has it installed: with the bus page and the right to write of its last
//   installation, and not after it was revoked, was evicted, or another page was installed over it, from the clock on in
//   which that change is taken. So does the page of a range that counts as held.
// * It does find it then, if the place is one of the page's own.
// * An answer goes to who asked, for the page that was asked for, once.
// * Its uses are counted in its place, and a place is given up to an eviction only when all that were counted have ended.
//
// The driver has a page in one place at a time, keeps a change as it is until it is taken, and names places that there are;
// DMA keeps a look-up as it is until it is answered. A page has fewer than 65535 uses.
// Memories are free but for the page's two rows and the place's count, and which rows those are (`cut`) but for what
// xlt_hash_proof says. Ranges (berth_xlt_range) ask for anything at any time.
module xlt_proof #(
    `include "xlt_around.svh"
    localparam WAYS = berth_regs_pkg::XLT_WAYS, WW = $clog2(WAYS), IW = WW + 9, ENTRY = 101;
    localparam logic [1:0] INSTALL = berth_row_pkg::CHANGE_INSTALL, EVICT = berth_row_pkg::CHANGE_EVICT;
    localparam logic [1:0] CLEAR = 2'd0, RUN = 2'd1, DRAIN = 2'd2, CHANGE = 2'd3;
    localparam logic [2:0] READ = 3'd3, WRITE = 3'd4;

    (* hierconn *) wire [1:0]            \dut.state_q ;
    (* hierconn *) wire [1:0]            \dut.asked_q ;
    (* hierconn *) wire [IW-1:0]         \dut.clear_q ;
    (* hierconn *) wire                  \dut.at_home ;
    (* hierconn *) wire                  \dut.wait_q ;
    (* hierconn *) wire [2:0]            \dut.missed_q ;
    (* hierconn *) wire [3:0]            \dut.evicted_n_q ;
    (* hierconn *) wire [IW-1:0]         \dut.c_index_q ;
    (* hierconn *) wire                  \dut.a_q ;
    (* hierconn *) wire                  \dut.b_q ;
    (* hierconn *) wire                  \dut.c_q ;
    (* hierconn *) wire                  \dut.d_q ;
    (* hierconn *) wire [2:0]            \dut.a_who_q ;
    (* hierconn *) wire [2:0]            \dut.b_who_q ;
    (* hierconn *) wire [2:0]            \dut.c_who_q ;
    (* hierconn *) wire                  \dut.a_write_q ;
    (* hierconn *) wire                  \dut.b_write_q ;
    (* hierconn *) wire [7:0]            \dut.a_asid_q ;
    (* hierconn *) wire [7:0]            \dut.b_asid_q ;
    (* hierconn *) wire [51:0]           \dut.a_vpn_q ;
    (* hierconn *) wire [51:0]           \dut.b_vpn_q ;
    (* hierconn *) wire [8:0]            \dut.row0 ;
    (* hierconn *) wire [8:0]            \dut.row1 ;
    (* hierconn *) wire [8:0]            \dut.b_row0_q ;
    (* hierconn *) wire [8:0]            \dut.b_row1_q ;
    (* hierconn *) wire [WAYS*ENTRY-1:0] \dut.entries ;
    (* hierconn *) wire [WAYS-1:0]       \dut.we ;
    (* hierconn *) wire [8:0]            \dut.wrow ;
    (* hierconn *) wire [ENTRY-1:0]      \dut.went ;
    (* hierconn *) wire [15:0]           \dut.count_q ;
    (* hierconn *) wire [15:0]           \dut.past_q ;
    (* hierconn *) wire                  \dut.same_q ;
    (* hierconn *) wire                  \dut.d_release_q ;
    (* hierconn *) wire [IW-1:0]         \dut.d_index_q ;
    (* hierconn *) wire                  \dut.evict_now ;
    (* hierconn *) wire                  \dut.cwe ;
    (* hierconn *) wire [IW-1:0]         \dut.cat ;
    (* hierconn *) wire [IW-1:0]         \dut.cwat ;
    (* hierconn *) wire [15:0]           \dut.cput ;

    wire empty = !(\dut.a_q || \dut.b_q || \dut.c_q || \dut.d_q );

    // ---- The page, its two rows (berth_abi's Xlt::place), and where the driver has it --------------------------
    (* anyconst *) logic [7:0]  the_asid;
    (* anyconst *) logic [51:0] the_vpn;
    (* anyconst *) logic [8:0]  first, second;  // of the first half of the ways, of the second
    wire ours = {ch.asid, 4'd0, ch.vpn} == {the_asid, the_vpn};
    wire like = {ch.asid, ch.vpn[47:9]} == {the_asid, the_vpn[47:9]};
    wire [8:0] own = ch.index[WW-1] ? second : first;
    always_comb begin
        assume ({\dut.a_asid_q , \dut.a_vpn_q } != {the_asid, the_vpn} || {\dut.row0 , \dut.row1 } == {first, second});
        assume (!ours || \dut.at_home == (ch.index[IW-1:WW] == own));
        assume (!(like && \dut.at_home && ch.index[IW-1:WW] == own) || ch.vpn[8:0] == the_vpn[8:0]);
    end
    wire gone = ch.op != EVICT || \dut.evict_now ;  // as the driver hears of an eviction
    logic          held_q, write_q;
    logic [51:0]   page_q;
    logic [IW-1:0] at_q;
    wire           home = (at_q[WW-1] ? second : first) == at_q[IW-1:WW];
    always_ff @(posedge clk) begin
        if (ch_ready && gone && ch.index[IW-1:0] == at_q) held_q <= 1'b0;
        if (ch_ready && ch.op == INSTALL && ours) {held_q, at_q, write_q, page_q} <= {1'b1, ch.index[IW-1:0], ch.write, ch.page};
        if (rst) held_q <= 1'b0;
    end

    // ---- Its rows in the memories: the first half of the ways have one, the second half the other ---------------
    logic [WAYS*ENTRY-1:0] rows_q, read_q;
    always_ff @(posedge clk) begin
        for (int unsigned w = 0; w < WAYS; w++)
            if (\dut.we [w] && \dut.wrow == (w < WAYS / 2 ? first : second)) rows_q[ENTRY*w+:ENTRY] <= \dut.went ;
        read_q <= rows_q;
    end
    always_comb begin
        for (int unsigned w = 0; w < WAYS; w++)
            assume (!\dut.b_q || (w < WAYS / 2 ? \dut.b_row0_q != first : \dut.b_row1_q != second)
                    || \dut.entries [ENTRY*w+:ENTRY] == read_q[ENTRY*w+:ENTRY]);
    end

    // ---- A place's count, and the uses of it that were counted ------------------------------------------------
    (* anyconst *) logic [IW-1:0] place;
    logic [15:0] count_q, was_q, uses_q;
    logic        looked_q;
    wire used = \dut.d_q && \dut.d_index_q == place;
    always_ff @(posedge clk) begin
        if (\dut.cwe && \dut.cwat == place) count_q <= \dut.cput ;
        was_q    <= count_q;
        looked_q <= \dut.cat == place;
        if (used && !\dut.d_release_q ) uses_q <= uses_q + 16'd1;
        if (used && \dut.d_release_q && uses_q != '0) uses_q <= uses_q - 16'd1;
        if (rst || (ch_ready && gone && ch.index[IW-1:0] == place)) uses_q <= '0;
    end
    always_comb begin
        assume (!looked_q || \dut.count_q == was_q);
        assume (!used || \dut.d_release_q || uses_q < 16'hfffe);
    end

    // ---- Neighbours --------------------------------------------------------------------------------------------
    logic [1:0]   asks_q;
    logic         change_q;
    logic [15:0]  asid_q;
    logic [103:0] vpn_q;
    berth_card_pkg::table_change_t last_q;
    always_ff @(posedge clk) begin
        asks_q   <= rst ? 2'd0 : lk_req & ~lk_ack;
        change_q <= !rst && ch_valid && !ch_ready;
        {asid_q, vpn_q, last_q} <= {lk_asid, lk_vpn, ch};
    end
    always_comb begin
        for (int unsigned i = 0; i < 2; i++)
            assume (!asks_q[i] || (lk_req[i] && lk_asid[8*i+:8] == asid_q[8*i+:8] && lk_vpn[52*i+:52] == vpn_q[52*i+:52]));
        assume (!change_q || (ch_valid && ch == last_q));
        assume ({19'd0, ch.index} < berth_regs_pkg::XLT_ENTRIES);
        assume (!(ch_valid && ch.op == INSTALL && ours && held_q) || ch.index[IW-1:0] == at_q);
    end

    always_comb
        assume (CLEARED == 0 || started_q || (\dut.state_q == RUN && empty && {\dut.asked_q , \dut.missed_q , \dut.evicted_n_q } == '0
                && {held_q, rows_q, count_q, uses_q, asks_q, change_q} == '0));

    // ---- What is asked for, on its way -------------------------------------------------------------------------
    logic [7:0]  c_asid_q;
    logic [51:0] c_vpn_q;
    logic        c_write_q;
    always_ff @(posedge clk) {c_asid_q, c_vpn_q, c_write_q} <= {\dut.b_asid_q , \dut.b_vpn_q , \dut.b_write_q };
    wire c_ours = {c_asid_q, c_vpn_q} == {the_asid, the_vpn};

    always_comb if (!rst) begin
        for (int unsigned i = 0; i < 2; i++) begin
            // The claim, from port to port.
            assert (!lk_ack[i] || lk_req[i]);
            if (lk_ack[i] && {lk_asid[8*i+:8], lk_vpn[52*i+:52]} == {the_asid, the_vpn})
                assert (lk_hit ? held_q && lk_page == page_q && (i == 0 || write_q) : !(held_q && home && (i == 0 || write_q)));
            // One look-up of each is on its way, as it was asked for.
            assert (2'(\dut.a_q && \dut.a_who_q == READ + 3'(i)) + 2'(\dut.b_q && \dut.b_who_q == READ + 3'(i))
                    + 2'(\dut.c_q && \dut.c_who_q == READ + 3'(i)) == 2'(\dut.asked_q [i]));
            assert (!\dut.asked_q [i] || asks_q[i]);
            assert (!(\dut.a_q && \dut.a_who_q == READ + 3'(i)) || {\dut.a_asid_q , \dut.a_vpn_q , \dut.a_write_q }
                    == {asid_q[8*i+:8], vpn_q[52*i+:52], 1'(i)});
            assert (!(\dut.b_q && \dut.b_who_q == READ + 3'(i)) || {\dut.b_asid_q , \dut.b_vpn_q , \dut.b_write_q }
                    == {asid_q[8*i+:8], vpn_q[52*i+:52], 1'(i)});
            assert (!(\dut.c_q && \dut.c_who_q == READ + 3'(i)) || {c_asid_q, c_vpn_q, c_write_q}
                    == {asid_q[8*i+:8], vpn_q[52*i+:52], 1'(i)});
        end
        // Of a range's page too; and its use is counted in its place.
        if (\dut.c_q && c_ours)
            assert (lk_hit ? held_q && {\dut.c_index_q , lk_page} == {at_q, page_q} && (!c_write_q || write_q)
                    : !(held_q && home && (!c_write_q || write_q)));
        assert (!(ch_ready && ch.op == EVICT && gone && ch.index[IW-1:0] == place) || uses_q == '0);
        // For the proof: what the rows hold ...
        for (int unsigned w = 0; w < WAYS; w++) begin
            if (\dut.state_q == CLEAR) begin
                assert (!held_q && empty);
                assert (!(\dut.clear_q [IW-1:WW] > (w < WAYS / 2 ? first : second)) || !rows_q[ENTRY*w+100]);
            end else if (the_vpn[51:48] == '0)
                assert ((rows_q[ENTRY*w+100] && rows_q[ENTRY*w+52+:47] == {the_asid, the_vpn[47:9]})
                        == (held_q && home && at_q[WW-1:0] == WW'(w)));
            if (held_q && home && at_q[WW-1:0] == WW'(w))
                assert ({rows_q[ENTRY*w+99], rows_q[ENTRY*w+:52]} == {write_q, page_q});
        end
        assert (!held_q || the_vpn[51:48] == '0);
        // ... and that nothing is on its way when they change.
        assert (empty || \dut.state_q == RUN || (\dut.state_q == DRAIN && !\dut.wait_q ));
        assert (!\dut.b_q || read_q == rows_q);
        assert (!\dut.b_q || {\dut.b_row0_q , \dut.b_row1_q } == {first, second} || {\dut.b_asid_q , \dut.b_vpn_q } != {the_asid, the_vpn});
        // Counts.
        assert (\dut.state_q == CLEAR ? uses_q == '0 : uses_q == count_q);
        assert (!(\dut.state_q == CLEAR && \dut.clear_q > place) || count_q == '0);
        assert (!used || (\dut.same_q ? \dut.past_q == count_q : looked_q && was_q == count_q));
        assert (!(\dut.state_q == CHANGE && ch.index[IW-1:0] == place) || (looked_q && was_q == count_q));
        assert (\dut.state_q != CHANGE || change_q);
    end
endmodule
