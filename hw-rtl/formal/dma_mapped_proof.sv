// SPDX-License-Identifier: Apache-2.0 OR MIT
// No write to host memory without a valid translation (invariant 4): when commands have virtual addresses only,
// berth_dma_wr writes to no page but those that look-ups have given, and a look-up that misses writes nothing.
//
// Pages that are given have a mark in their number, virtual addresses do not, so that the proof is about all pages.
// The queues behind the cut give what was put into them (fifo_proof), and are free here.
module dma_mapped_proof (
    input logic clk
);
    `include "dma_wr_around.svh"

    // The mark: bit 63 of an address. A miss gives a page too, one without it.
    always_comb begin
        assume (wcmd.virt && !store.bus && !wcmd.addr[63] && !store.va[63] && wcmd.addr[62:52] == '0 && store.va[62:52] == '0);
        assume (lk_page[51] == (lk_ack && lk_hit));
    end

    // What is cut for the port's queue (seg_fifo; wr_addr is what comes out of it) lies in a page that was given; that of
    // a piece stays the same, and a piece without a page has no bytes.
    (* hierconn *) wire        \dut.put_valid ;
    (* hierconn *) wire [12:0] \dut.len ;
    (* hierconn *) wire [63:0] \dut.addr ;
    (* hierconn *) wire [12:0] \dut.off_q ;
    (* hierconn *) wire        \dut.skip_q ;
    berth_card_pkg::page_part_t pg;
    localparam PG_W = $bits(pg);
    (* hierconn *) wire [PG_W-1:0] \dut.pg ;
    assign pg = \dut.pg ;
    (* hierconn *) wire        \dut.pg_valid ;
    (* hierconn *) wire        \dut.front.active_q ;
    (* hierconn *) wire        \dut.front.looking_q ;
    (* hierconn *) wire        \dut.front.virt_q ;
    always_comb if (!rst) begin
        assert (!\dut.put_valid || \dut.len == 13'd0
                || (\dut.addr [63] && \dut.addr [63:12] == pg.addr[63:12]));
        assert (!\dut.pg_valid || pg.len == 13'd0 || pg.addr[63]);
        assert (!\dut.pg_valid || {2'd0, pg.addr[11:0]} + {1'b0, pg.len} <= 14'h1000);
        assert (\dut.off_q == 13'd0 || (\dut.pg_valid && \dut.off_q < pg.len && !\dut.skip_q ));
        assert (!\dut.front.active_q || \dut.front.virt_q );
        assert (!\dut.front.looking_q || (\dut.front.active_q && !\dut.pg_valid ));
    end
endmodule
