// SPDX-License-Identifier: Apache-2.0 OR MIT
// Atomics (berth_atomic), whatever the DMA engines answer and when, and wherever pages lie or are moved to:
// * of any eight bytes, by their address on the bus, at most one atomic has read them, or may write them, and has not ended;
// * each is read at most once, and then written at most once; it has exactly one end, which says that nothing was changed
//   unless all went well;
// * none that waits is forgotten: it is behind one that has the bytes or waits itself, and came before it.
//
// The memories are free (queue_free.sv): what is read of who waits behind whom is what was stored, and of other contents this
// does not speak. Queue and pool give what they were given.
module atomic_proof #(
    parameter SLOTS = 4,
    parameter SW = $clog2(SLOTS),
    parameter DATA_W = 64
) (
    input logic                         clk, rst_in, change_valid, load_ready, store_ready, loaded_valid, stored_valid,
    input berth_card_pkg::change_t      change,
    input berth_card_pkg::payload_end_t loaded, stored,
    input logic [1:0]                   found_valid, found_taken,
    input berth_card_pkg::found_t       load_found, store_found,
    input logic                         pw_valid, pr_valid,
    input logic [18:0]                  pw_addr, pr_addr,
    input logic [DATA_W-1:0]            pw_data,
    input logic [2*DATA_W/8-1:0]        pw_strb
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic busy, change_ready, changed_valid, load_valid, store_valid, pw_mine, pr_mine, pr_rvalid;
    logic [1:0] found_judged, found_refused;
    logic [63:0] pr_rdata;
    berth_card_pkg::change_end_t changed;
    berth_card_pkg::payload_t load, store;
    berth_atomic #(.DATA_W(DATA_W), .SLOTS(SLOTS)) dut (.*);

    // As in berth_atomic.
    localparam MW = 18;
    function automatic logic [MW-1:0] mark_of(input logic [63:3] addr);
        mark_of = {addr[20:12] ^ addr[29:21] ^ addr[38:30] ^ addr[47:39] ^ addr[56:48] ^ {2'd0, addr[63:57]}, addr[11:3]};
    endfunction
    (* hierconn *) wire [SLOTS-1:0]    \dut.used_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.out_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.has_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.waits_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.again_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.done_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.failed_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.more_q ;
    (* hierconn *) wire [SLOTS-1:0]    \dut.same_q ;
    (* hierconn *) wire [SLOTS*MW-1:0] \dut.marks_q ;
    (* hierconn *) wire [MW-1:0]       \dut.mark_q ;
    (* hierconn *) wire [MW-1:0]       \dut.own_mark ;
    (* hierconn *) wire [SW-1:0]       \dut.found_slot_q ;
    (* hierconn *) wire [SW-1:0]       \dut.slot ;
    (* hierconn *) wire [SW-1:0]       \dut.again_slot_q ;
    (* hierconn *) wire [SW-1:0]       \dut.read_slot_q ;
    (* hierconn *) wire [SW-1:0]       \dut.sum_slot_q ;
    (* hierconn *) wire [SW-1:0]       \dut.write_slot_q ;
    (* hierconn *) wire [SW-1:0]       \dut.end_slot_q ;
    (* hierconn *) wire [SW-1:0]       \dut.store_slot ;
    (* hierconn *) wire [SW-1:0]       \dut.heir ;
    (* hierconn *) wire [SW-1:0]       \dut.owner ;
    (* hierconn *) wire [SW-1:0]       \dut.last_of ;
    (* hierconn *) wire [SW-1:0]       \dut.last_at ;
    (* hierconn *) wire [SW-1:0]       \dut.last_new ;
    (* hierconn *) wire \dut.take , \dut.slot_there , \dut.again_valid_q , \dut.compared_q , \dut.clash , \dut.last_we ,
        \dut.read_q , \dut.summing_q , \dut.summed_q , \dut.writes , \dut.store_room , \dut.end_valid_q , \dut.end_go ;

    // ---- what its neighbours do ------------------------------------------------------------------------------
    wire [SW-1:0] load_slot   = load.tag[SW-1:0];
    wire [SW-1:0] loaded_slot = loaded.tag[SW-1:0];
    wire [SW-1:0] stored_slot = stored.tag[SW-1:0];
    wire [SW-1:0] found_slot  = load_found.tag[SW-1:0];
    wire [SW-1:0] write_slot  = store_found.tag[SW-1:0];
    function automatic logic own(input logic [7:0] tag);
        own = tag[7] && tag[6:SW] == '0;
    endfunction
    // Commands that are out; of them those whose page was found, and might go on, or not. Those in the queue of writes.
    logic [SLOTS-1:0] reads_q, writes_q, granted_q, refused_q, may_write_q, queued_q;
    logic [1:0] found_q;
    berth_card_pkg::found_t load_found_q, store_found_q;
    wire grants = found_taken[0] && !found_refused[0];
    wire may_write = found_taken[1] && !found_refused[1];
    always_ff @(posedge clk) begin
        found_q <= found_valid & ~found_taken;
        {load_found_q, store_found_q} <= {load_found, store_found};
        if (grants) granted_q[found_slot] <= 1'b1;
        if (found_taken[0] && found_refused[0]) refused_q[found_slot] <= 1'b1;
        if (may_write) may_write_q[write_slot] <= 1'b1;
        if (loaded_valid) reads_q[loaded_slot] <= 1'b0;
        if (stored_valid) writes_q[stored_slot] <= 1'b0;
        if (load_valid && load_ready) begin
            reads_q[load_slot]   <= 1'b1;
            granted_q[load_slot] <= 1'b0;
            refused_q[load_slot] <= 1'b0;
        end
        if (\dut.writes ) queued_q[\dut.write_slot_q ] <= 1'b1;
        if (store_valid && store_ready) begin
            queued_q[\dut.store_slot ]    <= 1'b0;
            writes_q[\dut.store_slot ]    <= 1'b1;
            may_write_q[\dut.store_slot ] <= 1'b0;
        end
        if (rst) begin
            found_q  <= '0;
            reads_q  <= '0;
            writes_q <= '0;
            queued_q <= '0;
        end
    end
    always_comb begin
        assume (!found_q[0] || (found_valid[0] && load_found == load_found_q));
        assume (!found_q[1] || (found_valid[1] && store_found == store_found_q));
        assume ((found_taken & ~(found_valid & found_judged)) == '0);
        assume (!found_valid[0] || (own(load_found.tag) && reads_q[found_slot] && !granted_q[found_slot] && !refused_q[found_slot]));
        assume (!found_valid[1] || (own(store_found.tag) && writes_q[write_slot] && !may_write_q[write_slot]));
        assume (!loaded_valid || (own(loaded.tag) && reads_q[loaded_slot] && !(found_valid[0] && found_slot == loaded_slot)
            && (loaded.status != 2'd0 || granted_q[loaded_slot])));
        assume (!stored_valid || (own(stored.tag) && writes_q[stored_slot] && !(found_valid[1] && write_slot == stored_slot)
            && (stored.status != 2'd0 || may_write_q[stored_slot])));
        assume (!pw_valid && !pr_valid);    // contents are free
        assume (!store_valid || queued_q[\dut.store_slot ]);
        assume (\dut.store_room );
        assume (!\dut.slot_there || !\dut.used_q [\dut.slot ]);
    end

    logic [SLOTS-1:0][MW-1:0] marks;
    assign marks = \dut.marks_q ;

    // ---- who waits behind whom: what was stored is what is read; who came later ---------------------------------
    logic [SW-1:0] behind_s [0:SLOTS-1];
    logic [SW-1:0] last_s [0:SLOTS-1];
    logic [SLOTS-1:0][SLOTS-1:0] before_q;  // [i][j]: i came before j
    wire [SW-1:0] last_read = \dut.compared_q ? \dut.owner : \dut.end_slot_q ;
    always_comb begin
        assume (\dut.heir == behind_s[\dut.end_slot_q ]);
        assume (\dut.last_of == last_s[last_read]);
        assume (\dut.own_mark == marks[write_slot]);    // which are stored with these
    end
    wire joins = \dut.compared_q && !\dut.has_q [\dut.found_slot_q ];
    always_ff @(posedge clk) begin
        if (\dut.last_we ) last_s[\dut.last_at ] <= \dut.last_new ;
        if (\dut.compared_q && \dut.clash ) behind_s[\dut.last_of ] <= \dut.found_slot_q ;
        for (int i = 0; i < SLOTS; i++)
            if (joins && i != 32'(\dut.found_slot_q )) begin
                before_q[i][\dut.found_slot_q ] <= 1'b1;
                before_q[\dut.found_slot_q ][i] <= 1'b0;
            end
        if (rst)
            for (int i = 0; i < SLOTS; i++) for (int j = 0; j < SLOTS; j++) before_q[i][j] <= i < j;
    end

    // ---- any eight bytes ------------------------------------------------------------------------------------------
    (* anyconst *) logic [63:3] bytes;
    logic [SLOTS-1:0] has_bytes_q;          // those that have read them, or may write them
    logic [SLOTS-1:0] read_once_q, wrote_q, good_q;
    always_ff @(posedge clk) begin
        if (\dut.take ) begin
            has_bytes_q[\dut.slot ] <= 1'b0;
            read_once_q[\dut.slot ] <= 1'b0;
            wrote_q[\dut.slot ]     <= 1'b0;
            good_q[\dut.slot ]      <= 1'b0;
        end
        if (grants) read_once_q[found_slot] <= 1'b1;
        if (grants && load_found.addr[63:3] == bytes) has_bytes_q[found_slot] <= 1'b1;
        if (may_write && store_found.addr[63:3] == bytes) has_bytes_q[write_slot] <= 1'b1;
        if (store_valid && store_ready) wrote_q[\dut.store_slot ] <= 1'b1;
        // It is written, or a comparison has failed.
        if (stored_valid && stored.status == 2'd0) good_q[stored_slot] <= 1'b1;
        if (\dut.summed_q && !\dut.writes ) good_q[\dut.write_slot_q ] <= 1'b1;
        if (\dut.end_go ) has_bytes_q[\dut.end_slot_q ] <= 1'b0;
        if (rst) has_bytes_q <= '0;
    end
    always_comb if (!rst) begin
        assert ($countones(has_bytes_q) <= 1);
        assert (!grants || !read_once_q[found_slot]);
        assert (!(grants && load_found.addr[63:3] == bytes) || (has_bytes_q & ~(SLOTS'(1) << found_slot)) == '0);
        assert (!(may_write && store_found.addr[63:3] == bytes) || (has_bytes_q & ~(SLOTS'(1) << write_slot)) == '0);
        assert (!(store_valid && store_ready) || (!wrote_q[\dut.store_slot ] && read_once_q[\dut.store_slot ]));
        assert (!\dut.end_go || \dut.failed_q [\dut.end_slot_q ] == !good_q[\dut.end_slot_q ]);
        assert (!(load_valid && load_ready) || !reads_q[load_slot]);
    end

    // ---- for the proof ----------------------------------------------------------------------------------------------
    logic [SLOTS-1:0] members, waiters;     // who has bytes or waits for them
    assign waiters = \dut.used_q & \dut.waits_q & ~\dut.has_q ;
    assign members = \dut.has_q | waiters;
    logic [3:0] places;
    logic behind_one;
    always_comb begin
        places     = '0;
        behind_one = 1'b0;
        if (!rst) begin
            assert (reads_q == \dut.out_q );
            assert ((\dut.has_q & ~\dut.used_q ) == '0 && (has_bytes_q & ~\dut.has_q ) == '0);
            assert ((\dut.again_q & ~(\dut.has_q & \dut.waits_q )) == '0);
            assert (!\dut.again_valid_q || (\dut.has_q [\dut.again_slot_q ] && \dut.waits_q [\dut.again_slot_q ]));
            assert ((queued_q & ~(\dut.has_q & read_once_q & ~wrote_q)) == '0 && (writes_q & ~(\dut.has_q & read_once_q & wrote_q)) == '0);
            // A page that is judged.
            assert (!(\dut.compared_q && found_judged[0]));
            assert (!\dut.compared_q || (found_valid[0] && \dut.found_slot_q == found_slot && \dut.mark_q == mark_of(load_found.addr[63:3])));
            assert (!found_judged[0] || found_q[0]);
            assert (!found_judged[1] || found_q[1]);
            assert (!(found_judged[0] && !found_refused[0]) || (\dut.has_q [found_slot] && !\dut.waits_q [found_slot]
                && marks[found_slot] == mark_of(load_found.addr[63:3])));
            assert (!(found_judged[0] && found_refused[0]) || \dut.waits_q [found_slot] || \dut.has_q [found_slot]);
            assert (!found_judged[1] || found_refused[1] == (marks[write_slot] != mark_of(store_found.addr[63:3])));
            // Each is in one place: a read is out, is to be made again, has brought something; it waits; it is written, or over.
            for (int i = 0; i < SLOTS; i++) begin
                places = 4'(\dut.out_q [i]) + 4'(waiters[i] && !\dut.out_q [i]) + 4'(\dut.again_q [i])
                       + 4'(\dut.again_valid_q && 32'(\dut.again_slot_q ) == i) + 4'(\dut.read_q && 32'(\dut.read_slot_q ) == i)
                       + 4'(\dut.summing_q && 32'(\dut.sum_slot_q ) == i) + 4'(\dut.summed_q && 32'(\dut.write_slot_q ) == i)
                       + 4'(queued_q[i]) + 4'(writes_q[i]) + 4'(\dut.done_q [i]) + 4'(\dut.end_valid_q && 32'(\dut.end_slot_q ) == i);
                assert (places == 4'(\dut.used_q [i]));
                assert (!\dut.compared_q || \dut.same_q [i] == (\dut.has_q [i] && marks[i] == \dut.mark_q ));
                assert (!(\dut.out_q [i] && granted_q[i]) || (\dut.has_q [i] && read_once_q[i] && !refused_q[i]));
                assert (!(\dut.out_q [i] && !granted_q[i]) || !read_once_q[i]);
                assert (!\dut.out_q [i] || (!wrote_q[i] && !good_q[i]));
                assert (!(\dut.out_q [i] && refused_q[i]) || \dut.waits_q [i] || \dut.has_q [i]);
                assert (!(\dut.used_q [i] && \dut.waits_q [i]) || (!read_once_q[i] && !\dut.done_q [i] && !wrote_q[i] && !good_q[i]
                    && !(\dut.end_valid_q && 32'(\dut.end_slot_q ) == i)));
                assert (!(\dut.out_q [i] && \dut.waits_q [i]) || refused_q[i]
                    || (found_valid[0] && 32'(found_slot) == i && found_judged[0] && found_refused[0]));
                assert (!(\dut.out_q [i] && \dut.has_q [i] && !\dut.waits_q [i] && refused_q[i]) || !granted_q[i]);
                assert (!has_bytes_q[i] || (marks[i] == mark_of(bytes) && read_once_q[i]));
                assert (!(\dut.used_q [i] && wrote_q[i]) || read_once_q[i]);
                assert (!((\dut.read_q && 32'(\dut.read_slot_q ) == i) || (\dut.summing_q && 32'(\dut.sum_slot_q ) == i)
                    || (\dut.summed_q && 32'(\dut.write_slot_q ) == i)) || (\dut.has_q [i] && read_once_q[i] && !wrote_q[i]));
                // What is over; what is not has not failed.
                assert (!\dut.used_q [i] || \dut.done_q [i] || (\dut.end_valid_q && 32'(\dut.end_slot_q ) == i)
                    || (!\dut.failed_q [i] && !good_q[i]));
                assert (!(\dut.done_q [i] || (\dut.end_valid_q && 32'(\dut.end_slot_q ) == i))
                    || (\dut.failed_q [i] == !good_q[i] && !\dut.waits_q [i] && (\dut.has_q [i] || \dut.failed_q [i])));
            end
            // One of a mark has bytes; who waits is behind one of the same mark that came before, and is not so twice.
            for (int i = 0; i < SLOTS; i++) begin
                behind_one = 1'b0;
                for (int j = 0; j < SLOTS; j++) begin
                    if (members[j] && \dut.more_q [j] && 32'(behind_s[j]) == i) behind_one = 1'b1;
                    if (i != j) begin
                        assert (!(\dut.has_q [i] && \dut.has_q [j]) || marks[i] != marks[j]);
                        assert (!(members[i] && members[j] && \dut.more_q [i] && \dut.more_q [j]) || behind_s[i] != behind_s[j]);
                        assert (!(members[i] && members[j] && !\dut.more_q [i] && !\dut.more_q [j]) || marks[i] != marks[j]);
                        assert (before_q[i][j] == !before_q[j][i]);
                    end else assert (!before_q[i][i]);
                    for (int k = 0; k < SLOTS; k++) assert (!(before_q[i][j] && before_q[j][k]) || before_q[i][k]);
                end
                assert (!waiters[i] || behind_one);
                assert (!(\dut.used_q [i] && !members[i]) || !\dut.more_q [i]);
                assert (!(members[i] && \dut.more_q [i]) || (waiters[behind_s[i]] && marks[behind_s[i]] == marks[i] && before_q[i][behind_s[i]]));
                assert (!\dut.has_q [i] || (members[last_s[i]] && !\dut.more_q [last_s[i]] && marks[last_s[i]] == marks[i]
                    && \dut.more_q [i] == (32'(last_s[i]) != i)));
            end
        end
    end
endmodule
