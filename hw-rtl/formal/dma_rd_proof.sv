// SPDX-License-Identifier: Apache-2.0 OR MIT
// Reads of host memory by berth_dma_rd: none crosses a page or a multiple of the maximum read request, none is longer
// than that, none begins while `stop`, and none of a queue under a fence (`hold`).
// Their answers, whatever the host says and when: nothing is written or passed on but the bytes of a read that is awaited, in
// its own range, in order; the first error, whatever beat it is marked on, ends the read with an error; all its bytes end it
// without one. A tag is asked with again only when all bytes of its read, in order, or a refusal, have come, or two ticks at
// least after a reset.
// Of the host only this is assumed: tag, offset and length hold through the beats of a completion. Of the memories, which are taken
// away: what is read of a tag is what was stored with its read.
module dma_rd_proof #(
    parameter DATA_W = 64
) (
    input logic                clk,
    input logic                rst_in, cold_in, tick,
    input logic [ 5:0]         t_in,
    input logic [ 3:0]         lane_in,
    input logic                rcmd_valid, load_valid,
    input berth_card_pkg::dma_t     rcmd,
    input berth_card_pkg::payload_t load,
    input logic                found_judged, found_refused,
    input logic                rdone_ready, enable, hold, stop,
    input logic [ 3:0]         log2_read,   // another one in any clock
    input logic                lk_ack, lk_hit,
    input logic [51:0]         lk_page,
    input logic                fetch_valid, ring_valid,
    input berth_card_pkg::fetch_t     fetch,
    input berth_card_pkg::ring_read_t ring,
    input logic                hrd_ready,
    input logic                hcpl_valid,
    input logic [DATA_W-1:0]   hcpl_data,
    input berth_card_pkg::host_reply_t hcpl,
    input logic                pw_ready
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in || cold_in;
    wire cold = !started_q || cold_in;

    logic                  rcmd_ready, rdone_valid, att_done, load_ready, loaded_valid, fetch_ready, fetched_valid;
    logic                  quiet, busy, lk_req, ring_ready, ring_cpl_valid, ring_cpl_end;
    logic                  hrd_valid, hcpl_ready, pw_valid, inc_request, inc_no_translation, inc_host_error;
    logic                  inc_timeout, inc_unexpected, found_valid, found_taken;
    berth_card_pkg::found_t       found;
    logic [ 7:0]           lk_asid;
    logic [ 3:0]           att_slot;
    logic [DATA_W-1:0]     fetched_data, ring_cpl_data, pw_data;
    berth_card_pkg::dma_end_t     rdone;
    berth_card_pkg::payload_end_t loaded;
    berth_card_pkg::fetched_t     fetched;
    berth_card_pkg::ring_beat_t   ring_cpl;
    logic [ 6:0]           flying;
    logic [51:0]           lk_vpn;
    berth_card_pkg::host_read_t   hrd;
    logic [18:0]           pw_addr;
    logic [2*DATA_W/8-1:0] pw_strb;

    berth_dma_rd #(.DATA_W(DATA_W)) dut (.*);

    // ---- what its neighbours do ------------------------------------------------------------
    wire [12:0] line = 13'd1 << log2_read;
    function automatic logic kept(input logic [63:0] addr, input logic [12:0] len, input logic [12:0] line);
        kept = len != 13'd0 && {2'd0, addr[11:0]} + {1'b0, len} <= 14'h1000 && ({1'b0, addr[11:0]} & (line - 13'd1)) + len <= line;
    endfunction
    always_comb begin
        assume (rcmd.bad || (rcmd.len != 0 && rcmd.len <= 13'd4608));
        assume (load.len != 0 && load.len <= 13'd4608);
        assume (!lk_ack || lk_req);
        assume (log2_read >= 4'd7 && log2_read <= 4'd12);
        // Reads of rings and queues keep to the rule by themselves, with the limit of when they were made.
        assume (kept(ring.addr, ring.len, 13'd4096) && kept(fetch.addr, {3'd0, fetch.len}, 13'd4096));
    end

    // ---- what is asked of the host -----------------------------------------------------------
    logic waits_q;      // shown, not taken
    always_ff @(posedge clk) waits_q <= !rst && hrd_valid && !hrd_ready;
    (* hierconn *) wire \dut.queue_go ;
    (* hierconn *) wire \dut.seg_go ;
    logic [12:0] line_q;   // the limit when the request that is shown was made
    always_ff @(posedge clk) if (!(hrd_valid && !hrd_ready)) line_q <= \dut.seg_go ? line : 13'd4096;
    logic stopped_q;    // since the clock before
    always_ff @(posedge clk) stopped_q <= !rst && stop;
    always_comb if (!rst) begin
        assert (!hrd_valid || kept(hrd.addr, hrd.len, line_q));
        assert (!(hrd_valid && stopped_q && !waits_q));
        assert (!waits_q || hrd_valid);
        assert (!(hold && \dut.queue_go ));
    end
    // For the proof: what is cut lies in the piece, and that in its page; nothing is empty but what only has a status.
    (* hierconn *) wire [12:0] \dut.off_q ;
    berth_card_pkg::page_part_t pg;
    localparam PG_W = $bits(pg);
    (* hierconn *) wire [PG_W-1:0] \dut.pg ;
    assign pg = \dut.pg ;
    (* hierconn *) wire        \dut.pg_valid ;
    (* hierconn *) wire        \dut.skip_q ;
    (* hierconn *) wire [12:0] \dut.front.left_q ;
    (* hierconn *) wire        \dut.front.active_q ;
    (* hierconn *) wire        \dut.front.looking_q ;
    (* hierconn *) wire        \dut.front.bad_q ;
    always_comb if (!rst) begin
        assert (!\dut.pg_valid || {2'd0, pg.addr[11:0]} + {1'b0, pg.len} <= 14'h1000);
        assert (!\dut.pg_valid || pg.status != 2'd0 || pg.len != 13'd0);
        assert (\dut.off_q == 13'd0 || (\dut.pg_valid && \dut.off_q < pg.len && !\dut.skip_q ));
        assert (!\dut.front.active_q || \dut.front.bad_q || \dut.front.left_q != 13'd0);
        assert (!\dut.front.looking_q || (!\dut.pg_valid && \dut.front.active_q && !\dut.front.bad_q ));
    end

    // ---- the answers to the reads of one tag, any ----------------------------------------------
    logic [ 5:0] t;
    logic [ 3:0] lane;      // and one byte of what is written
    always_ff @(posedge clk) if (!started_q) {t, lane} <= {t_in, lane_in};
    (* hierconn *) wire        \dut.ring_go ;
    (* hierconn *) wire [ 5:0] \dut.free_tag ;
    (* hierconn *) wire [12:0] \dut.seg ;
    (* hierconn *) wire [18:0] \dut.base ;
    (* hierconn *) wire [12:0] \dut.len ;
    (* hierconn *) wire [12:0] \dut.next ;
    (* hierconn *) wire [ 1:0] \dut.kind ;
    (* hierconn *) wire [ 5:0] \dut.ct ;
    (* hierconn *) wire [63:0] \dut.fly_q ;
    (* hierconn *) wire [63:0] \dut.dead_q ;
    (* hierconn *) wire [63:0] \dut.old_q ;
    (* hierconn *) wire [63:0] \dut.one_q ;
    (* hierconn *) wire [63:0] \dut.two_q ;
    (* hierconn *) wire [63:0] \dut.late_q ;
    (* hierconn *) wire        \dut.give_go ;
    (* hierconn *) wire [ 5:0] \dut.giving_tag_q ;
    (* hierconn *) wire        \dut.first_q ;
    (* hierconn *) wire        \dut.held_q ;
    (* hierconn *) wire        \dut.hurt_q ;
    (* hierconn *) wire        \dut.odd_q ;
    (* hierconn *) wire [12:0] \dut.at_q ;
    (* hierconn *) wire [12:0] \dut.rest_q ;
    (* hierconn *) wire        \dut.end_q ;
    (* hierconn *) wire        \dut.err_q ;
    localparam [12:0] BYTES = DATA_W / 8;

    // What it was asked for; whether its user waits, and whether the host owes anything. Ticks since then, or since the reset
    // that it is older than.
    logic        live_q, owed_q, old_q;
    logic [ 1:0] ticks_q, kind_q;
    logic [12:0] len_q, next_q;
    logic [18:0] base_q;
    wire go = (\dut.seg_go || \dut.ring_go || \dut.queue_go ) && \dut.free_tag == t;

    // The completion at hand.
    logic        mid_q, held_q, hurt_q, odd_q;
    logic [ 5:0] tag_q;
    logic [12:0] off_q, clen_q;
    logic [13:0] seen_q;    // bytes of its beats, or more than any has
    wire         take = hcpl_valid && hcpl_ready;
    wire         mine = take && hcpl.tag == t && (mid_q ? held_q : owed_q);
    wire [13:0]  seen = mid_q ? seen_q : 14'd0;
    wire [13:0]  upto = {1'b0, hcpl.off} + {1'b0, hcpl.len};
    wire         odd = (mid_q && odd_q) || hcpl.off != next_q || upto > {1'b0, len_q} || seen >= {1'b0, hcpl.len}
                    || (hcpl.last && {1'b0, hcpl.len} > seen + {1'b0, BYTES});
    wire         bad = hcpl.err || (mid_q && hurt_q) || odd;
    wire         all = upto == {1'b0, len_q};
    wire         hears = mine && live_q && hcpl.last && (bad || all);
    wire         given = \dut.give_go && \dut.giving_tag_q == t && live_q;
    always_comb begin
        assume (!(mid_q && hcpl_valid) || (hcpl.tag == tag_q && hcpl.off == off_q && hcpl.len == clen_q));
        assume (!owed_q || \dut.ct != t || (\dut.base == base_q && \dut.len == len_q && \dut.next == next_q && \dut.kind == kind_q));
        assume (\dut.kind != 2'd3);
    end
    always_ff @(posedge clk) begin
        if (take) begin
            mid_q  <= !hcpl.last;
            hurt_q <= hcpl.err || (mid_q && hurt_q);
            odd_q  <= odd;
            seen_q <= seen >= 14'h2000 ? 14'h2000 : seen + {1'b0, BYTES};
            if (!mid_q) begin
                held_q <= hcpl.tag == t && owed_q;
                tag_q  <= hcpl.tag;
                off_q  <= hcpl.off;
                clen_q <= hcpl.len;
            end
        end
        if (hears || given) live_q <= 1'b0;
        if (mine && hcpl.last && !odd) next_q <= upto[12:0];
        if (mine && hcpl.last && ((all && !odd) || (hcpl.err && hcpl.len == 13'd0))) owed_q <= 1'b0;
        if (tick && ticks_q != 2'd3) ticks_q <= ticks_q + 2'd1;
        if (go) begin
            live_q  <= 1'b1;
            owed_q  <= 1'b1;
            old_q   <= 1'b0;
            ticks_q <= 2'd0;
            held_q  <= 1'b0;
            next_q  <= 13'd0;
            base_q  <= \dut.seg_go ? pg.place + {6'd0, \dut.off_q } : \dut.ring_go ? {16'd0, ring.tag} : {10'd0, fetch.tag};
            len_q   <= \dut.seg_go ? \dut.seg : \dut.ring_go ? ring.len : {3'd0, fetch.len};
            kind_q  <= \dut.seg_go ? 2'd0 : \dut.ring_go ? 2'd1 : 2'd2;
        end
        if (rst) begin
            live_q  <= 1'b0;
            old_q   <= 1'b1;
            if (!old_q || go || cold) ticks_q <= 2'd0;
        end
        if (cold) {owed_q, mid_q} <= 2'd0;
    end

    // What is written next came from this tag; and what is told with it.
    logic        put_q, put_live_q, told_q, fresh_q, told_err_q;
    logic [18:0] put_base_q;
    logic [12:0] put_len_q;
    wire  [18:0] within = pw_addr + {15'd0, lane} - put_base_q;
    always_ff @(posedge clk) begin
        if (take || \dut.give_go ) begin
            put_q      <= take && hcpl.tag == t;
            put_live_q <= mine && live_q && kind_q == 2'd0;
            put_base_q <= base_q;
            put_len_q  <= len_q;
        end
        fresh_q    <= (mine && live_q && kind_q == 2'd0) || (given && kind_q == 2'd0);
        told_q     <= hears || given;
        told_err_q <= given || bad;
        if (rst) {put_q, fresh_q} <= 2'd0;
    end
    always_comb if (!rst) begin
        // Written are bytes of a read that is awaited only, and within its range.
        assert (!(pw_valid && pw_strb[lane] && put_q) || (put_live_q && within < {6'd0, put_len_q}));
        // The end, and its error, are told: of DMA with the last word, to the others at once.
        assert (!fresh_q || (pw_valid && \dut.end_q == told_q && (!told_q || \dut.err_q == told_err_q)));
        if (take && hcpl.tag == t) begin
            assert (!(ring_cpl_valid || ring_cpl_end || fetched_valid) || (mine && live_q));
            assert (!(mine && live_q && kind_q == 2'd1) || (ring_cpl_end == hears && (!hears || ring_cpl.err == bad)));
            assert (!(mine && live_q && kind_q == 2'd2) || ((fetched_valid && fetched.last) == hears && (!hears || fetched.err == bad)));
            assert (!ring_cpl_valid || !bad);
            assert (!(fetched_valid && !fetched.last) || !bad);
        end
        if (given && kind_q == 2'd1) assert (ring_cpl_end && ring_cpl.err);
        if (given && kind_q == 2'd2) assert (fetched_valid && fetched.last && fetched.err);
        // Asked with again only when nothing is owed, or long after a reset.
        assert (!(go && owed_q) || (old_q && ticks_q == 2'd3));
    end
    // For the proof; what outlives a reset holds in it as well.
    always_comb if (started_q) begin
        assert (live_q == (\dut.fly_q [t] && !\dut.dead_q [t]));
        assert (!live_q || owed_q);
        assert (owed_q || !\dut.fly_q [t]);
        assert (!owed_q || \dut.fly_q [t] || (old_q && ticks_q == 2'd3));
        assert (!\dut.fly_q [t] || \dut.old_q [t] == old_q);
        assert (!\dut.late_q [t] || ticks_q == 2'd3);
        assert (!\dut.two_q [t] || ticks_q >= 2'd2);
        assert (!\dut.one_q [t] || ticks_q != 2'd0);
        assert (!old_q || !live_q);
        assert (mid_q == !\dut.first_q && (mid_q || (!\dut.hurt_q && !\dut.odd_q )));
        assert (!(mid_q && tag_q == t) || ((!\dut.held_q || (held_q && \dut.fly_q [t])) && (!(held_q && \dut.fly_q [t]) || \dut.held_q )));
        assert (!(mid_q && tag_q != t && held_q));
        assert (!(mid_q && tag_q == t && held_q && \dut.fly_q [t]) || (hurt_q == \dut.hurt_q && odd_q == \dut.odd_q ));
        assert (!mid_q || \dut.rest_q == ({1'b0, clen_q} > seen_q ? clen_q - seen_q[12:0] : 13'd0));
        assert (!mid_q || \dut.rest_q == 13'd0 || \dut.at_q == off_q + seen_q[12:0]);
        assert (!mid_q || (seen_q != 14'd0 && seen_q[2:0] == 3'd0));
    end
endmodule
