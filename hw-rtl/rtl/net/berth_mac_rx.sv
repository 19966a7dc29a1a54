// SPDX-License-Identifier: Apache-2.0 OR MIT
// Receive engine: puts frames from the MAC or from the transmitter (loopback) into free
// receive slots, checks lengths and iCRC, and shows the good ones, with their headers, to
// the fast path, which keeps them or passes them on to the core.
//
// A frame is dropped and counted when the MAC marks it bad, when it is longer than a
// slot, when it is shorter than its headers say, when it is neither to this card nor to all (unless `wide`), or when it is RoCE (IPv4
// without options or fragments, UDP to port 4791) and its iCRC is wrong. Bytes behind the
// length in the IPv4 header (Ethernet padding) do not count. With no free slot the
// stream waits. Otherwise it takes one beat per
// cycle, frame directly behind frame; a frame is judged while the next ones arrive.
//
// The core is slow, and it gets every frame that is not the fast path's. So frames for it, also queued ones, may occupy
// at most CORE_SLOTS slots; a frame that would need one more is dropped and counted. Peers retransmit such frames.
// Before the card knows its own address there is no fast path: the core has all slots, and nothing is dropped.

module berth_mac_rx #(
    parameter DATA_W     = 64,  // bits of a beat, 64 to 512
    parameter CORE_SLOTS = 8    // most slots of the core
) (
    input  logic                   clk,
    input  logic                   rst,           // card reset
    input  logic                   hard_rst,      // reset of the MAC as well: no frame is under way
    output logic                   busy,          // a frame is under way
    input  logic [47:0]            own_mac,       // first byte in bits 47:40; 0: unknown, every frame may be ours
    input  logic                   wide,          // frames to other addresses are good ones too

    // frames from the MAC
    input  logic                   rx_valid,
    output logic                   rx_ready,
    input  logic [DATA_W-1:0]      rx_data,
    input  logic [DATA_W/8-1:0]    rx_keep,
    input  logic                   rx_last,
    input  logic                   rx_err,        // with last: the frame is damaged

    // frames from the transmitter
    input  logic                   lo_valid,
    output logic                   lo_ready,
    input  logic [DATA_W-1:0]      lo_data,
    input  logic [DATA_W/8-1:0]    lo_keep,
    input  logic                   lo_last,

    // packet RAM
    output logic                   rw_valid,
    input  logic                   rw_ready,
    output logic [17:0]            rw_addr,
    output logic [DATA_W-1:0]      rw_data,
    output logic [DATA_W/8-1:0]    rw_strb,

    // good frames; rf_hdr are the first bytes, lane 0 first
    output logic                   rf_valid,
    input  logic                   rf_ready,
    output berth_card_pkg::frame_t rf,
    output logic [8*96-1:0]        rf_hdr,
    // a word of the first 512 bytes of a frame: hd_addr is in it, data in the next cycle
    input  logic                   hd_re,
    input  logic [17:0]            hd_addr,
    output logic [31:0]            hd_data,
    // frames given back
    input  logic                   rfree_valid,
    input  logic [17:0]            rfree_place,
    // frames given back that were passed on
    input  logic                   xfree_valid,
    input  logic [17:0]            xfree_place,
    // frames for the core
    input  logic                   core_valid,
    output logic                   core_ready,
    input  berth_card_pkg::frame_t core_frame,
    output logic [4:0]             core_n,        // slots of frames that wait for the core, or that it has

    // the core: frames received, slots given back
    output logic                   desc_valid,
    output berth_card_pkg::desc_t  desc,
    input  logic                   desc_pop,
    input  logic                   slot_free,
    input  logic [7:0]             slot_free_n,

    // counters
    output logic                   ev_taken,      // end of a frame from the MAC ...
    output logic [15:0]            ev_bytes,      // ... with this many bytes (saturating)
    output logic                   ev_truncated,
    output logic                   ev_oversized,
    output logic                   ev_mac_error,
    output logic                   ev_bad_icrc,
    output logic                   ev_not_ours,
    output logic                   ev_core,       // a frame for the core goes to it ...
    output logic                   ev_core_full,  // ... or is dropped
    output logic                   ev_stall       // the MAC waits for a slot
);
    localparam BYTES = DATA_W / 8;
    localparam LB    = $clog2(BYTES);
    localparam [12:0] LEAST_FRAME = 13'd14;                  // an Ethernet header
    localparam [15:0] LEAST_ROCE  = 16'd20 + 16'd8 + 16'd12 + 16'd4;
    localparam [15:0] ROCE_PORT   = 16'd4791;
    localparam [31:0] RESIDUE     = 32'h2144_df1c;           // CRC over data and its right CRC

    localparam DELAY = 5;   // stages of berth_icrc
    initial if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256 && DATA_W != 512)
        $fatal(1, "berth_mac_rx: DATA_W must be 64, 128, 256 or 512");

    // ---- choice of the source, frame by frame ----------------------------------------
    // `skip` outlives a card reset: what is left of a frame that the reset has cut is
    // thrown away.
    logic src_loop_q;   // the frame under way comes from the transmitter
    logic in_frame_q;   // a frame is under way at the input
    logic skip_q;
    logic src_loop;
    logic src_valid;
    logic take;         // the input stage takes a beat
    logic in_ready;

    assign src_loop  = in_frame_q ? src_loop_q : lo_valid && (!rx_valid || !src_loop_q);
    assign src_valid = src_loop ? lo_valid : rx_valid && !skip_q;
    assign take      = src_valid && in_ready;
    assign rx_ready  = skip_q || rst || (in_ready && !src_loop);
    assign lo_ready  = in_ready && src_loop;

    always_ff @(posedge clk) begin
        if (rx_valid && rx_ready)
            skip_q <= (skip_q || rst) && !rx_last;
        // a reset in the middle of a frame from the MAC
        if (rst && in_frame_q && !src_loop_q && !(rx_valid && rx_last))
            skip_q <= 1'b1;
        if (hard_rst)
            skip_q <= 1'b0;
    end

    // ---- input stage -----------------------------------------------------------------
    logic              st_valid_q;
    logic              st_first_q;
    logic              st_last_q;
    logic              st_err_q;
    logic              st_loop_q;
    logic [DATA_W-1:0] st_data_q;
    logic [LB:0]       st_bytes_q;
    logic [3:0]        st_slot_q;
    logic              st_go;        // the beat leaves the stage

    logic              slot_valid_q; // a slot is reserved for the next frame
    logic [3:0]        slot_q;
    logic [15:0]       free_q;       // slots that may be reserved
    logic [15:0]       lent_q;       // slots that the core has

    assign in_ready = (in_frame_q || slot_valid_q) && (!st_valid_q || st_go);
    assign ev_stall = rx_valid && !rx_ready && !slot_valid_q && free_q == 16'd0;

    function automatic logic [LB:0] count(input logic [BYTES-1:0] keep);
        logic [LB:0] n;
        integer      i;
        n = '0;
        for (i = 0; i < BYTES; i++)
            n = n + {{LB{1'b0}}, keep[i]};
        count = n;
    endfunction

    always_ff @(posedge clk) begin
        if (st_go)
            st_valid_q <= 1'b0;
        if (take) begin
            st_valid_q <= 1'b1;
            st_first_q <= !in_frame_q;
            st_loop_q  <= src_loop;
            st_last_q  <= src_loop ? lo_last : rx_last;
            st_err_q   <= !src_loop && rx_err && rx_last;
            st_data_q  <= src_loop ? lo_data : rx_data;
            st_bytes_q <= count(src_loop ? lo_keep : rx_keep);
            in_frame_q <= src_loop ? !lo_last : !rx_last;
            src_loop_q <= src_loop;
            if (!in_frame_q)
                st_slot_q <= slot_q;
        end
        if (rst) begin
            st_valid_q <= 1'b0;
            in_frame_q <= 1'b0;
        end
    end

    // ---- slot write, header fields, CRC ------------------------------------------------
    logic [15:0] pos_q;       // bytes of the frame before the beat (saturating)
    logic [15:0] pos;
    logic [15:0] end_pos;
    logic        fits;        // the beat lies within the slot
    logic        big_q;       // some of the frame did not fit, behind the first beat
    logic        big;
    logic [17:0] base;

    assign pos     = st_first_q ? 16'd0 : pos_q;
    assign end_pos = pos[15:13] == 3'b111 ? pos : pos + {{(15-LB){1'b0}}, st_bytes_q};
    assign fits    = end_pos <= berth_regs_pkg::SLOT_BYTES[15:0];
    assign big     = !fits || (big_q && !st_first_q);
    assign base    = address(st_slot_q);

    assign rw_valid = st_valid_q && fits;
    assign rw_addr  = base + {5'd0, pos[12:0]};
    assign rw_data  = st_data_q;
    assign rw_strb  = {BYTES{1'b1}};
    assign st_go    = st_valid_q && (rw_ready || !fits);

    // The headers: the frame's first 96 bytes, as far as they have arrived, this beat included.
    logic [8*96-1:0] top_q, top;
    always_comb begin
        top = top_q;
        for (int i = 0; i < 96; i += 4)
            if (pos == 16'(i / BYTES * BYTES))
                top[8*i +: 32] = st_data_q[8*(i % BYTES) +: 32];
    end

    function automatic logic [7:0] byte_at(input logic [8*96-1:0] bytes, input integer n);
        byte_at = bytes[8*n +: 8];
    endfunction

    logic [15:0] ip_len, udp_len;
    logic [16:0] ip_end;      // end of the IPv4 datagram in the frame
    logic [LB:0] crc_bytes;   // bytes of the beat that belong to it
    logic [31:0] crc;
    assign ip_len  = {byte_at(top, 16), byte_at(top, 17)};
    assign udp_len = {byte_at(top, 38), byte_at(top, 39)};
    assign ip_end  = 17'd14 + {1'b0, ip_len};

    always_comb begin
        crc_bytes = st_bytes_q;
        // anything that it can cut lies behind it
        if (end_pos > 16'd32 && {1'b0, end_pos} > ip_end)
            crc_bytes = ip_end > {1'b0, pos} ? ip_end[LB:0] - pos[LB:0] : '0;
    end

    berth_icrc #(.DATA_W(DATA_W)) icrc (
        .clk(clk), .go(1'b1),
        .in_valid(st_go), .in_first(st_first_q), .in_data(st_data_q), .in_bytes(crc_bytes),
        .crc(crc)
    );

    always_ff @(posedge clk) begin
        if (st_go) begin
            pos_q <= end_pos;
            big_q <= big;
            top_q <= top;
        end
    end

    // ---- verdict: all but the iCRC with the last beat, the iCRC DELAY cycles later --------
    logic is_ipv4, is_roce, truncated;
    assign is_ipv4   = end_pos >= 16'd15 && {byte_at(top, 12), byte_at(top, 13)} == 16'h0800
                       && top[8*14 + 4 +: 4] == 4'd4;
    assign is_roce   = end_pos >= 16'd42 && is_ipv4 && top[8*14 +: 4] == 4'd5
                       && ({byte_at(top, 20), byte_at(top, 21)} & 16'h3fff) == 16'd0
                       && byte_at(top, 23) == 8'd17 && {byte_at(top, 36), byte_at(top, 37)} == ROCE_PORT;
    assign truncated = end_pos < {3'd0, LEAST_FRAME}
                       || (is_ipv4 && (end_pos < 16'd34 || {1'b0, end_pos} < ip_end))
                       || (is_roce && (ip_len < LEAST_ROCE || udp_len > ip_len - 16'd20));

    logic [47:0] to;
    logic        ours;
    always_comb for (int i = 0; i < 6; i++) to[8*(5-i) +: 8] = byte_at(top, i);
    assign ours = own_mac == '0 || to == own_mac || to == '1 || wide;

    typedef struct packed {
        logic        err, big, truncated, ours, roce, loop;
        logic [12:0] len;
        logic [3:0]  slot;
    } frame_t;

    logic [DELAY-1:0] judge_valid_q;
    localparam FRAME_W = 6 + 13 + 4;
    logic [DELAY*FRAME_W-1:0] judge_q;   // the oldest on top; no array of structs, which Yosys 0.52 does not get right
    frame_t           judge;
    logic             check;    // the frame `judge` is complete, its CRC is there
    logic             bad_icrc, good;

    assign judge    = judge_q[DELAY*FRAME_W-1 -: FRAME_W];
    assign check    = judge_valid_q[DELAY-1];
    assign bad_icrc = judge.roce && crc != RESIDUE;
    assign good     = !judge.err && !judge.big && !judge.truncated && judge.ours && !bad_icrc;

    always_ff @(posedge clk) begin
        judge_valid_q <= {judge_valid_q[DELAY-2:0], st_go && st_last_q};
        judge_q       <= {judge_q[(DELAY-1)*FRAME_W-1:0], st_err_q, big, truncated, ours, is_roce, st_loop_q,
                          is_roce ? ip_end[12:0] : end_pos[12:0], st_slot_q};
        if (rst)
            judge_valid_q <= '0;
    end

    logic good_room;
    assign busy = in_frame_q || st_valid_q || judge_valid_q != '0 || rf_valid;

    function automatic logic [17:0] address(input logic [3:0] slot);
        address = berth_regs_pkg::PKT_RX_BASE[17:0] + slot * berth_regs_pkg::SLOT_BYTES[17:0];
    endfunction

    // verilator lint_off UNUSEDSIGNAL
    // The slot that begins at `addr`, or that has it in its first 512 bytes.
    function automatic logic [3:0] slot_of(input logic [17:0] addr);
        slot_of = 4'd0;
        for (int i = 0; i < int'(berth_regs_pkg::RX_SLOTS); i++)
            if (addr[17:9] == 9'(address(4'(i)) >> 9))
                slot_of = 4'(i);
    endfunction
    // verilator lint_on UNUSEDSIGNAL

    // ---- good frames, and those of them that are for the core -----------------------------
    logic [3:0]      good_slot;
    logic [2:0]      rf_flags;
    logic [12:0]     rf_len;
    logic [8*96-1:0] tops [0:15];
    always_ff @(posedge clk)
        if (st_go && st_last_q)
            tops[st_slot_q] <= top;

    berth_lutfifo #(.WIDTH(20), .DEPTH(16)) goods (
        .clk(clk), .rst(rst),
        .wr_valid(check && good), .wr_ready(good_room),
        .wr_data({judge.loop, judge.roce, judge.roce, judge.len, judge.slot}),
        .rd_valid(rf_valid), .rd_ready(rf_ready),
        .rd_data({rf_flags, rf_len, good_slot})
    );
    assign rf.place = address(good_slot);
    assign rf.len   = rf_len;
    assign rf.flags = rf_flags;
    assign rf_hdr  = tops[good_slot];

    berth_lutfifo #(.WIDTH($bits(desc)), .DEPTH(16)) descs (
        .clk(clk), .rst(rst),
        .wr_valid(ev_core), .wr_ready(core_ready),
        .wr_data({core_frame.flags, core_frame.len, core_slot}),
        .rd_valid(desc_valid), .rd_ready(desc_pop),
        .rd_data(desc)
    );

    logic [15:0] core_q;       // those slots
    logic [3:0]  core_slot;
    always_comb begin
        core_n = '0;
        for (int i = 0; i < 16; i++) core_n = core_n + {4'd0, core_q[i]};
    end
    assign core_slot    = slot_of(core_frame.place);
    assign ev_core      = core_valid && (core_n < CORE_SLOTS[4:0] || own_mac == '0);
    assign ev_core_full = core_valid && !ev_core;

    // ---- a copy of the first bytes of each slot --------------------------------------------
    logic [DATA_W-1:0] head;
    logic [LB-1:2]     head_lane_q;
    logic [8:0]        head_at;
    assign head_at = 9'(hd_addr - address(slot_of(hd_addr)));
    berth_ram #(.WIDTH(DATA_W), .DEPTH(16 * 512 / BYTES)) heads (
        .clk(clk),
        .we(st_go && pos < 16'd512), .waddr({st_slot_q, pos[8:LB]}), .wdata(st_data_q), .wstrb('1),
        .re(hd_re), .raddr({slot_of(hd_addr), head_at[8:LB]}), .rdata(head)
    );
    always_ff @(posedge clk)
        if (hd_re)
            head_lane_q <= head_at[LB-1:2];
    assign hd_data = head[{head_lane_q, 5'd0} +: 32];

    // ---- slots -----------------------------------------------------------------------
    logic [3:0] rfree_slot, xfree_slot;
    assign rfree_slot = slot_of(rfree_place);
    assign xfree_slot = slot_of(xfree_place);

    logic       found;
    logic [3:0] pick;
    always_comb begin
        found = 1'b0;
        pick  = 4'd0;
        for (int i = 15; i >= 0; i--)
            if (free_q[i]) begin
                found = 1'b1;
                pick  = 4'(i);
            end
    end

    always_ff @(posedge clk) begin
        ev_taken     <= st_go && st_last_q && !st_loop_q;
        ev_bytes     <= end_pos;
        ev_mac_error <= check && judge.err;
        ev_oversized <= check && !judge.err && judge.big;
        ev_truncated <= check && !judge.err && !judge.big && judge.truncated;
        ev_not_ours  <= check && !judge.err && !judge.big && !judge.truncated && !judge.ours;
        ev_bad_icrc  <= check && !judge.err && !judge.big && !judge.truncated && judge.ours && bad_icrc;

        // One slot waits for the next frame: it is replaced in the cycle in which it is used.
        if (!slot_valid_q || (take && !in_frame_q)) begin
            slot_valid_q <= found;
            slot_q       <= pick;
            if (found)
                free_q[pick] <= 1'b0;
        end
        if (check && !good)
            free_q[judge.slot] <= 1'b1;
        if (desc_valid && desc_pop)
            lent_q[desc.slot] <= 1'b1;
        if (rfree_valid)
            free_q[rfree_slot] <= 1'b1;
        if (xfree_valid)
            free_q[xfree_slot] <= 1'b1;
        if (ev_core)
            core_q[core_slot] <= 1'b1;
        if (ev_core_full)
            free_q[core_slot] <= 1'b1;
        // only what the core has can be given back
        if (slot_free && slot_free_n < berth_regs_pkg::RX_SLOTS[7:0] && lent_q[slot_free_n[3:0]]) begin
            lent_q[slot_free_n[3:0]] <= 1'b0;
            core_q[slot_free_n[3:0]] <= 1'b0;
            free_q[slot_free_n[3:0]] <= 1'b1;
        end

        if (rst) begin
            slot_valid_q <= 1'b0;
            free_q       <= 16'((17'd1 << berth_regs_pkg::RX_SLOTS) - 17'd1);
            lent_q       <= 16'h0000;
            core_q       <= 16'h0000;
            ev_taken     <= 1'b0;
            ev_mac_error <= 1'b0;
            ev_oversized <= 1'b0;
            ev_truncated <= 1'b0;
            ev_not_ours  <= 1'b0;
            ev_bad_icrc  <= 1'b0;
        end
    end

    // There are as many descriptors as slots, so one always has room.
    always_ff @(posedge clk) if (!rst) assert ((!(check && good) || good_room) && (!core_valid || core_ready));
    // A slot that is free, or with the core, is not the fast path's to give back.
    always_ff @(posedge clk)
        if (!rst && rfree_valid) assert (!free_q[rfree_slot] && !core_q[rfree_slot]);
    always_ff @(posedge clk)
        if (!rst && xfree_valid) assert (!free_q[xfree_slot] && !core_q[xfree_slot]);

    wire unused = &{1'b0, head_at[1:0]};
endmodule
