// SPDX-License-Identifier: Apache-2.0 OR MIT
// The receiver asks for no memory beyond what its bound allows (berth_fp_grant), for any QP, from its start on:
// * Bytes held or asked for are those of the chunks that were asked for, less those that were refused or given back, and less
//   those that went with their receives. Each chunk counts once.
// * No receive is begun that the bound leaves no room for (`room`: docs/internals/receiving.md, "A bound of granted memory"), but the
//   oldest that is not complete. There is no bound without a `limit`, or if there is a `most` and the last chunk that was
//   answered had been pinned already. Sums are right for receives and lists of any size.
// * At most 16 chunks are asked for and not passed on; each lies in its range and ends at a multiple of 1 MiB or with it; the
//   first begins where the range does, each other one where the one before it ends.
//
// `room` is made of what the row says of the lists (`fresh`, `newest`, `older`) and of times; how they come to be is not said
// here, but for `fresh`. A receive is asked for as a whole once it is begun. The range and the receive that are being asked for
// stay the same, and no range is empty. Bytes count modulo 4 GiB: a QP holds less.
module fp_grant_bound_proof (
    input logic clk
);
    `include "fp_grant_around.svh"
    (* hierconn *) wire [20:0] \dut.again_len ;
    (* hierconn *) wire [31:0] \dut.bytes_q ;
    logic [31:0] asked_q;                       // bytes asked for, without those that were refused or given back
    logic [95:0] range_q;                       // being asked for ...
    logic [2:0]  ranges_q;                      // ... of as many
    logic        warm_q;                        // the last chunk that was answered was pinned already
    logic [15:0] missed_q;                      // places of the window whose chunk was not
    wire  [7:0]  n = s.ask_w - s.have_w;
    wire  [63:0] va = grant_sge.va + 64'(s.ask_at);
    always_comb begin
        assume (!looks || \dut.row == stored_q);
        assume (!asks || s.ask_at == '0 || grant_sge == range_q);
        assume (!asks || first || \dut.ranges == ranges_q);
        assume (grant_sge.len != '0);               // berth_fp_recv_wqe stores no others
    end
    always_ff @(posedge clk) begin
        asked_q <= asked_q + (asks ? 32'(\dut.chunk ) : 32'd0) - (refuses || gives ? 32'(\dut.again_len ) : 32'd0);
        if (asks) begin
            range_q  <= grant_sge;
            ranges_q <= \dut.ranges ;
        end
        if (places) missed_q[s.ask_w[3:0]] <= 1'b0;
        if (answers && \dut.kind_q == MISS) begin
            missed_q[\dut.slot_q ] <= 1'b1;
            warm_q <= 1'b0;
        end
        if (answers && \dut.kind_q == HIT && !missed_q[\dut.slot_q ]) warm_q <= 1'b1;
        if (begins) begin
            asked_q  <= '0;
            missed_q <= '0;
            warm_q   <= 1'b0;
        end
    end

    // ---- the bound, in bytes ---------------------------------------------------------------------------
    localparam UNIT = DATA_W / 8 * 64;          // that the wire carries in a unit of time, which has 64 clocks
    (* hierconn *) wire [31:0] \dut.may_hold ;  // by the row's numbers and times: see fp_grant_times_proof
    (* hierconn *) wire [31:0] \dut.to_come ;
    wire [39:0] out      = 40'(32'(asked_q - \dut.n_given_q ));                          // held or asked for
    wire [39:0] estimate = 40'(s.fresh) + 40'(\dut.size ) + 40'(s.newest) + 40'(\dut.to_come );  // when it comes
    wire [39:0] age      = 40'(32'(now - s.burst));
    wire bounded = s.limit != '0 && !(s.most != '0 && warm_q);
    wire room = s.most == '0 ? out < 40'(s.limit) * 40'd4096
                             : out + 40'(\dut.size ) <= 40'(\dut.may_hold )
                               || (s.round != '0 && estimate <= 40'(\dut.may_hold ));
    always_comb if (!rst && on_q) begin
        assert (!(asks && first && bounded && s.ask != \dut.n_freed_q ) || room);
        // With a `most`: no third list, none above half of the bound, and no faster than eight times the wire.
        if (asks && first && bounded && s.most != '0 && s.ask != \dut.n_freed_q ) begin
            assert (!s.closed || s.part == '0 || 40'(s.part) + 40'(\dut.size ) <= 40'(\dut.may_hold [31:1]));
            assert (s.round == '0 || age >= 40'd64 || 40'(s.pace) <= age * 40'(8 * UNIT));
        end
        // Chunks.
        assert (n <= 8'd16 && (!places || n < 8'd16));
        assert (!asks || (s.ask_at < grant_sge.len && \dut.chunk != '0 && 40'(s.ask_at) + 40'(\dut.chunk ) <= 40'(grant_sge.len)));
        assert (!asks || \dut.va == va);
        assert (!asks || 40'(va[19:0]) + 40'(\dut.chunk ) == 40'h10_0000
                || (40'(va[19:0]) + 40'(\dut.chunk ) < 40'h10_0000 && 40'(s.ask_at) + 40'(\dut.chunk ) == 40'(grant_sge.len)));
        assert (!asks || (nr.ask_at == '0 ? 40'(s.ask_at) + 40'(\dut.chunk ) == 40'(grant_sge.len)
                                            && (nr.ask_range == '0 || nr.ask_range == s.ask_range + 3'd1)
                          : nr.ask_at == s.ask_at + 32'(\dut.chunk ) && nr.ask_range == s.ask_range));
        assert (!asks || s.ask_range < \dut.ranges );
        // What is counted.
        assert (s.asked == asked_q);
        assert (!(asks && gives) && !(refuses && gives));
        assert (!asks || nr.fresh == s.fresh + 32'(\dut.chunk ));
        // For the proof.
        assert (!works || \dut.r_q == stored_q);
        assert (s.on && (s.ended || !s.flush) && s.missed == missed_q && s.warm == (warm_q && s.most != '0));
        assert ((s.waits & s.held) == '0 && (s.own & ~s.held) == '0);
        assert (s.ask_at == '0 || s.ask_at < range_q[31:0]);
        assert (first || s.ask_range < ranges_q);
        assert ((!looks && !works) || \dut.op_q <= PROOF);
    end
endmodule
