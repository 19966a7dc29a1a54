// SPDX-License-Identifier: Apache-2.0 OR MIT
// What berth_fp_grant asks the translation table and the host for, and gives back, of any place of the window of any QP, from the
// QP's start on:
// * A chunk is asked for in a place that is free, once, and once more for each time that the host has pages for it: as what it
//   was, with the QP's ASID and the place as tag. The host's answer to what it was not asked changes nothing, and is counted.
// * What is held goes back once, as what it was, or with its receive: the receive's count of chunks is that of those held.
// * A receive becomes a credit when each of its chunks is held, and not while that is put off or taken back, when it goes back
//   to the program, or at the end.
//
// berth_xlt answers what it was asked, once each; nothing is on its way when a QP begins. What the host says is free.
module fp_grant_window_proof (
    input logic clk
);
    `include "fp_grant_around.svh"
    (* hierconn *) wire [1:0]    \dut.kind ;
    (* hierconn *) wire [15:0]   \dut.item_chunks ;
    (* hierconn *) wire [100:0]  \dut.m_chunks.content ;
    (* hierconn *) wire [100:0]  \dut.m_chunks.rdata ;
    (* hierconn *) wire [100:0]  \dut.m_chunks.wdata ;
    (* hierconn *) wire [QW+3:0] \dut.m_chunks.raddr ;
    (* hierconn *) wire [QW+3:0] \dut.m_chunks.waddr ;
    (* hierconn *) wire [7:0]    \dut.asid_q ;
    (* hierconn *) wire          \dut.m_chunks.we ;
    (* hierconn *) wire          \dut.m_chunks.re ;
    (* anyconst *) logic [3:0] the_slot;

    wire again  = answers && \dut.acquire ;
    wire passes = does && \dut.have ;           // the oldest place leaves the window, with its receive or not
    wire rolls  = does && \dut.we && !passes && \dut.op_q == ADVANCE && nr.have_w != s.have_w;      // taken back
    wire over   = does && s.rewind && !nr.rewind && !begins;        // has gone back
    wire mine   = answers && \dut.slot_q == the_slot;
    wire [3:0] oldest = s.have_w[3:0];

    // The place: free; asked for; the host works on it; held; refused; asks for nothing; given back.
    localparam logic [2:0] FREE = 3'd0, ASKED = 3'd1, HOST = 3'd2, OWN = 3'd3, VAIN = 3'd4, NOTHING = 3'd5, BACK = 3'd6;
    logic [2:0]  is_q, is;                      // the place; with the answer at hand
    logic        bad_q;                         // a chunk of the receive that is granted next was refused
    logic [7:0]  asid_q;
    logic [15:0] got_q;                         // chunks of that receive that are held
    logic [63:0] va_q;                          // of the place
    logic [20:0] len_q;
    logic [100:0] chunk_q;                      // in memory
    always_comb begin
        is = is_q;
        if (mine && is_q == ASKED && \dut.kind_q == HIT) is = OWN;
        if (mine && is_q == ASKED && \dut.kind_q == MISS) is = HOST;
        if (mine && is_q == HOST && \dut.kind_q == READY) is = \dut.status_q == 8'd0 ? ASKED : VAIN;
        assume (!looks || \dut.row == stored_q);
        assume (!(\dut.m_chunks.re && \dut.m_chunks.raddr == {the_q, the_slot}) || \dut.m_chunks.content == chunk_q);
    end
    wire held_now = s.own[oldest] || (answers && \dut.slot_q == oldest && \dut.kind_q == HIT);
    wire vain_now = s.refused[oldest] || (refuses && \dut.slot_q == oldest);
    wire ends     = passes && s.final_w[oldest];
    wire [15:0] got = got_q + 16'(held_now && !\dut.give );
    always_ff @(posedge clk) begin
        if (\dut.m_chunks.we && \dut.m_chunks.waddr == {the_q, the_slot}) chunk_q <= \dut.m_chunks.wdata ;
        is_q <= is;
        if (places && s.ask_w[3:0] == the_slot) is_q <= asks ? ASKED : NOTHING;
        if (gives && \dut.at_slot_q == the_slot) is_q <= BACK;
        if ((passes || rolls) && oldest == the_slot) is_q <= FREE;
        if (asks && s.ask_w[3:0] == the_slot) begin
            va_q  <= grant_sge.va + 64'(s.ask_at);
            len_q <= \dut.chunk ;
        end
        if (passes) begin
            got_q <= ends ? '0 : got;
            bad_q <= !ends && (bad_q || vain_now);
        end
        if (does && \dut.want_local && \dut.kind == berth_row_pkg::ASIDE_PART) got_q <= '0;
        if (over) bad_q <= 1'b0;
        if (begins) begin
            is_q   <= FREE;
            asid_q <= \dut.asid_q ;
            got_q  <= '0;
            bad_q  <= 1'b0;
        end
    end

    // ---- what is asked of the table about the place ----------------------------------------------------
    logic       x_q, x_back_q;
    logic [7:0] x_asid_q;
    always_ff @(posedge clk) if (begins) x_q <= 1'b0;
    else if (\dut.state_q == DECIDE && \dut.go && (\dut.acquire || \dut.give )) begin
        x_q      <= (asks && s.ask_w[3:0] == the_slot) || (mine && again) || (gives && \dut.at_slot_q == the_slot);
        x_back_q <= gives;
        x_asid_q <= asid_q;
    end

    wire [7:0]   n = s.ask_w - s.have_w;
    logic [15:0] window;
    always_comb for (int unsigned i = 0; i < 16; i++) window[i] = 8'(4'(4'(i) - oldest)) < n;

    always_comb if (!rst && on_q) begin
        // Asked for.
        assert (!places || s.ask_w[3:0] != the_slot || is_q == FREE);
        assert (!(mine && again) || (is_q == HOST && is == ASKED));
        assert (!(mine && \dut.kind_q == READY) || ev_stray == (is_q != HOST));
        // Given back.
        assert (!gives || \dut.at_slot_q != the_slot || is == OWN);
        assert (!passes || oldest != the_slot || is == OWN || is == VAIN || is == NOTHING || is == BACK);
        assert (!rolls || oldest != the_slot || is == VAIN || is == NOTHING || is == BACK);
        assert (!(does && \dut.want_local && \dut.kind == berth_row_pkg::ASIDE_LOCAL) || \dut.item_chunks == got);
        assert (!(does && \dut.want_local && \dut.kind == berth_row_pkg::ASIDE_PART) || \dut.item_chunks == got_q);
        assert (!over || got_q == '0);
        // A credit.
        if (does && \dut.posts ) begin
            assert (!bad_q && !vain_now && s.hold == '0 && !s.rewind && !s.ended && !s.drain && ends && !gives);
            assert (oldest != the_slot || is == OWN || is == NOTHING);
        end
        // What the table is told.
        assert (!(acq_valid && x_q)
                || (acq.va == va_q && acq.len == len_q && acq.give_back == x_back_q && acq.asid == x_asid_q
                    && (x_back_q || acq.tag == 16'({the_q, the_slot}))));
        // For the proof.
        assert (s.used == window && n <= 8'd16 && s.on && (s.ended || !s.flush));
        assert (is_q <= BACK && s.used[the_slot] == (is_q != FREE));
        assert (s.waits[the_slot] == (is_q == HOST));
        assert (is_q == FREE || s.held[the_slot] == (is_q == OWN || is_q == VAIN || is_q == NOTHING || is_q == BACK));
        assert (s.own[the_slot] == (is_q == OWN));
        assert (is_q == FREE || s.refused[the_slot] == (is_q == VAIN));
        assert (is_q != BACK || s.rewind || s.ended);
        assert ((s.waits & s.held) == '0 && (s.own & ~s.held) == '0);
        assert (s.asid == asid_q && s.got == got_q && (s.ended || s.drain || s.failed == bad_q));
        assert (!(is_q == ASKED || is_q == HOST || is_q == OWN || is_q == VAIN) || chunk_q[84:0] == {va_q, len_q});
        assert (!works || \dut.r_q == stored_q);
        assert (!works || \dut.op_q == ASK || \dut.at_slot_q != the_slot || \dut.m_chunks.rdata == chunk_q);
        assert (!works || \dut.op_q == ADVANCE || \dut.op_q == ASK || \dut.at_slot_q == \dut.slot_q );
        assert (!works || \dut.op_q != ADVANCE
                || ((s.ended || s.rewind) && s.own != '0 ? s.own[\dut.at_slot_q ] : \dut.at_slot_q == oldest));
        assert ((!looks && !works) || \dut.op_q <= PROOF);
    end
endmodule
