// SPDX-License-Identifier: Apache-2.0 OR MIT
// The translation table (berth_xlt) answers each look-up of DMA within 35 clocks, whatever ranges and changes there are: `rank`,
// 35 at most, falls in each clock in which it is not answered. A reset, and the clearing of the table after it, are left out.
//
// DMA keeps a look-up, and the driver's commands a change, until it is answered; a command has 12 changes at most (`ch.more`).
// Memories are free, and so are ranges (berth_xlt_range): they ask for anything at any time.
module xlt_bound_proof #(
    `include "xlt_around.svh"
    localparam logic [1:0] CLEAR = 2'd0, RUN = 2'd1, DRAIN = 2'd2, CHANGE = 2'd3;
    localparam logic [2:0] READ = 3'd3;

    (* hierconn *) wire [1:0] \dut.state_q ;
    (* hierconn *) wire [1:0] \dut.asked_q ;
    (* hierconn *) wire [2:0] \dut.open_q ;
    (* hierconn *) wire       \dut.wait_q ;
    (* hierconn *) wire       \dut.a_q ;
    (* hierconn *) wire       \dut.b_q ;
    (* hierconn *) wire       \dut.c_q ;
    (* hierconn *) wire       \dut.d_q ;
    (* hierconn *) wire [2:0] \dut.a_who_q ;
    (* hierconn *) wire [2:0] \dut.b_who_q ;
    (* hierconn *) wire [2:0] \dut.c_who_q ;

    // ---- Neighbours --------------------------------------------------------------------------------------------
    logic [1:0] asks_q;
    logic       change_q;
    logic [3:0] done_q;                         // changes of the command at hand that are done
    always_ff @(posedge clk) begin
        asks_q   <= rst ? 2'd0 : lk_req & ~lk_ack;
        change_q <= !rst && ch_valid && !ch_ready;
        if (ch_ready) done_q <= ch.more ? done_q + 4'd1 : 4'd0;
        else if (!ch_valid) done_q <= 4'd0;
        if (rst) done_q <= 4'd0;
    end
    always_comb begin
        assume ((asks_q & ~lk_req) == '0);
        assume (!change_q || ch_valid);
        assume (done_q < 4'd11 || !ch.more);
    end
    always_comb
        assume (CLEARED == 0 || started_q
                || (\dut.state_q == RUN && {\dut.a_q , \dut.b_q , \dut.c_q , \dut.d_q , \dut.asked_q , asks_q, change_q, done_q, waits_q} == '0));

    // ---- The rank: clocks until it is answered, at most ----------------------------------------------------------
    // Until the pipeline is empty, and until no change is under way.
    wire [5:0] empties = \dut.a_q ? 6'd4 : \dut.b_q ? 6'd3 : \dut.c_q ? 6'd2 : \dut.d_q ? 6'd1 : 6'd0;
    wire [5:0] changes = 6'd24 - 6'(done_q) - 6'(done_q);
    wire [5:0] runs    = \dut.state_q == CHANGE ? changes - 6'd1 : !ch_valid ? 6'd1
        : \dut.wait_q && empties == '0 ? changes : changes + 6'd1 + empties;
    wire       read    = lk_req[0] && !\dut.asked_q [0];
    logic [1:0][5:0] rank;
    always_comb
        for (int unsigned i = 0; i < 2; i++)
            if (\dut.asked_q [i])
                rank[i] = \dut.a_q && \dut.a_who_q == READ + 3'(i) ? 6'd3 : \dut.b_q && \dut.b_who_q == READ + 3'(i) ? 6'd2
                    : \dut.c_q && \dut.c_who_q == READ + 3'(i) ? 6'd1 : 6'd0;
            else if (\dut.state_q != RUN) rank[i] = runs + 6'd4 + 6'(i);
            else if (i == 0 || !read) rank[i] = 6'd4;
            // A read goes first, and then perhaps changes.
            else rank[i] = \dut.open_q != '0 || !ch_valid ? 6'd5 : 6'd35;

    logic [1:0]      waits_q;
    logic [1:0][5:0] rank_q;
    always_ff @(posedge clk) begin
        waits_q <= rst || \dut.state_q == CLEAR ? 2'd0 : lk_req & ~lk_ack;
        rank_q  <= rank;
    end
    always_comb if (!rst && \dut.state_q != CLEAR) begin
        for (int unsigned i = 0; i < 2; i++) begin
            assert (!lk_req[i] || (rank[i] != '0 && rank[i] <= 6'd35));
            assert (!waits_q[i] || rank[i] < rank_q[i]);
        end
    end
    // For the proof.
    always_comb if (!rst) begin
        for (int unsigned i = 0; i < 2; i++) begin
            assert (2'(\dut.a_q && \dut.a_who_q == READ + 3'(i)) + 2'(\dut.b_q && \dut.b_who_q == READ + 3'(i))
                    + 2'(\dut.c_q && \dut.c_who_q == READ + 3'(i)) == 2'(\dut.asked_q [i]));
            assert (!\dut.asked_q [i] || asks_q[i]);
        end
        assert (done_q <= 4'd11);
        assert (\dut.state_q != CHANGE || (change_q && empties == '0));
        assert (!(\dut.state_q == DRAIN && \dut.wait_q ) || empties == '0);
        assert (!(\dut.state_q == DRAIN && !ch_valid) || \dut.open_q == 3'd4);
        assert (\dut.state_q != CLEAR || (empties == '0 && \dut.asked_q == '0));
    end
endmodule
