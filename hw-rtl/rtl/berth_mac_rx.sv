// SPDX-License-Identifier: Apache-2.0 OR MIT
// Receive engine: puts frames from the MAC or from the transmitter (loopback) into free
// receive slots, checks lengths and iCRC, and gives the good ones to the core.
//
// A frame is dropped and counted when the MAC marks it bad, when it is longer than a
// slot, when it is shorter than its headers say, or when it is RoCE (IPv4 without
// options or fragments, UDP to port 4791) and its iCRC is wrong. Bytes behind the
// length in the IPv4 header (Ethernet padding) do not count. With no free slot the
// stream waits: nothing is dropped for want of room.

module berth_mac_rx #(
    parameter DATA_W = 64  // bits of a beat, 64 to 256
) (
    input  logic                clk,
    input  logic                rst,          // card reset
    input  logic                hard_rst,     // reset of the MAC as well: no frame is under way
    output logic                busy,         // a frame is under way

    // frames from the MAC
    input  logic                rx_valid,
    output logic                rx_ready,
    input  logic [DATA_W-1:0]   rx_data,
    input  logic [DATA_W/8-1:0] rx_keep,
    input  logic                rx_last,
    input  logic                rx_err,       // with last: the frame is damaged

    // frames from the transmitter
    input  logic                lo_valid,
    output logic                lo_ready,
    input  logic [DATA_W-1:0]   lo_data,
    input  logic [DATA_W/8-1:0] lo_keep,
    input  logic                lo_last,

    // packet RAM
    output logic                rw_valid,
    input  logic                rw_ready,
    output logic [17:0]         rw_addr,
    output logic [DATA_W-1:0]   rw_data,
    output logic [DATA_W/8-1:0] rw_strb,

    // the core: frames received, slots given back
    output logic                desc_valid,
    output logic [12:0]         desc_len,
    output logic [2:0]          desc_flags,   // RX_FLAG_*
    output logic [3:0]          desc_slot,
    input  logic                desc_pop,
    input  logic                free_valid,
    input  logic [7:0]          free_slot,

    // counters
    output logic                ev_taken,     // end of a frame from the MAC ...
    output logic [15:0]         ev_bytes,     // ... with this many bytes (saturating)
    output logic                ev_truncated,
    output logic                ev_oversized,
    output logic                ev_mac_error,
    output logic                ev_bad_icrc,
    output logic                ev_stall      // the MAC waits for a slot
);
    localparam BYTES = DATA_W / 8;
    localparam LB    = $clog2(BYTES);
    localparam [12:0] LEAST_FRAME = 13'd14;                  // an Ethernet header
    localparam [15:0] LEAST_ROCE  = 16'd20 + 16'd8 + 16'd12 + 16'd4;
    localparam [15:0] ROCE_PORT   = 16'd4791;
    localparam [31:0] RESIDUE     = 32'h2144_df1c;           // CRC over data and its right CRC

    // The length in the IPv4 header must be known before the first byte that it can cut.
    initial if (DATA_W != 64 && DATA_W != 128 && DATA_W != 256)
        $fatal(1, "berth_mac_rx: DATA_W must be 64, 128 or 256");

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
    logic              st_go;        // the beat leaves the stage

    logic              slot_valid_q; // a slot is reserved for the frame
    logic [3:0]        slot_q;
    logic [15:0]       free_q;       // slots that may be reserved
    logic [15:0]       lent_q;       // slots that the core has
    logic              check_q;      // the frame is complete, its CRC is there

    // The next frame may enter only when this one has been judged.
    assign in_ready = slot_valid_q && !check_q && (!st_valid_q || (st_go && !st_last_q));
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
    logic        big_q;       // some of the frame did not fit
    logic [17:0] base;

    assign pos     = st_first_q ? 16'd0 : pos_q;
    assign end_pos = pos[15:13] == 3'b111 ? pos : pos + {{(15-LB){1'b0}}, st_bytes_q};
    assign fits    = end_pos <= berth_regs_pkg::SLOT_BYTES[15:0];
    assign base    = berth_regs_pkg::PKT_RX_BASE[17:0] + slot_q * berth_regs_pkg::SLOT_BYTES[17:0];

    assign rw_valid = st_valid_q && fits;
    assign rw_addr  = base + {5'd0, pos[12:0]};
    assign rw_data  = st_data_q;
    assign rw_strb  = {BYTES{1'b1}};
    assign st_go    = st_valid_q && (rw_ready || !fits);

    // header fields, big-endian, by their byte offset in the frame
    logic [7:0] b12_q, b13_q, b14_q, b16_q, b17_q, b20_q, b21_q, b23_q, b36_q, b37_q, b38_q, b39_q;

    // one place: byte `n` of the frame if it is in the beat
    `define BERTH_HEADER_BYTE(n) \
        if (pos == 16'(n / BYTES * BYTES)) b``n``_q <= st_data_q[8 * (n % BYTES) +: 8];

    logic [15:0] ip_len;
    logic [16:0] ip_end;      // end of the IPv4 datagram in the frame
    logic [LB:0] crc_bytes;   // bytes of the beat that belong to it
    logic [31:0] crc;
    assign ip_len = {b16_q, b17_q};
    assign ip_end = 17'd14 + {1'b0, ip_len};

    always_comb begin
        crc_bytes = st_bytes_q;
        if (pos >= 16'd32 && {1'b0, end_pos} > ip_end)
            crc_bytes = ip_end > {1'b0, pos} ? ip_end[LB:0] - pos[LB:0] : '0;
    end

    berth_icrc #(.DATA_W(DATA_W)) icrc (
        .clk(clk),
        .in_valid(st_go), .in_first(st_first_q), .in_data(st_data_q), .in_bytes(crc_bytes),
        .crc(crc)
    );

    always_ff @(posedge clk) begin
        if (st_go) begin
            pos_q <= end_pos;
            big_q <= !fits || (big_q && !st_first_q);
            `BERTH_HEADER_BYTE(12)
            `BERTH_HEADER_BYTE(13)
            `BERTH_HEADER_BYTE(14)
            `BERTH_HEADER_BYTE(16)
            `BERTH_HEADER_BYTE(17)
            `BERTH_HEADER_BYTE(20)
            `BERTH_HEADER_BYTE(21)
            `BERTH_HEADER_BYTE(23)
            `BERTH_HEADER_BYTE(36)
            `BERTH_HEADER_BYTE(37)
            `BERTH_HEADER_BYTE(38)
            `BERTH_HEADER_BYTE(39)
        end
    end
    `undef BERTH_HEADER_BYTE

    // ---- verdict, in the cycle after the last beat -----------------------------------
    logic [15:0] udp_len;
    logic        is_ipv4, is_roce, truncated, bad_icrc, good;
    assign udp_len   = {b38_q, b39_q};
    assign is_ipv4   = pos_q >= 16'd15 && {b12_q, b13_q} == 16'h0800 && b14_q[7:4] == 4'd4;
    assign is_roce   = pos_q >= 16'd42 && is_ipv4 && b14_q[3:0] == 4'd5 && ({b20_q, b21_q} & 16'h3fff) == 16'd0
                       && b23_q == 8'd17 && {b36_q, b37_q} == ROCE_PORT;
    assign truncated = pos_q < {3'd0, LEAST_FRAME}
                       || (is_ipv4 && (pos_q < 16'd34 || {1'b0, pos_q} < ip_end))
                       || (is_roce && (ip_len < LEAST_ROCE || udp_len > ip_len - 16'd20));
    assign bad_icrc  = is_roce && crc != RESIDUE;
    assign good      = !st_err_q && !big_q && !truncated && !bad_icrc;

    logic        desc_room;
    logic [12:0] len;
    assign len      = is_roce ? ip_end[12:0] : pos_q[12:0];
    assign busy     = in_frame_q || st_valid_q || check_q;

    berth_lutfifo #(.WIDTH(20), .DEPTH(16)) descs (
        .clk(clk), .rst(rst),
        .wr_valid(check_q && good), .wr_ready(desc_room),
        .wr_data({st_loop_q, is_roce, is_roce, len, slot_q}),
        .rd_valid(desc_valid), .rd_ready(desc_pop),
        .rd_data({desc_flags, desc_len, desc_slot})
    );

    // ---- slots -----------------------------------------------------------------------
    logic [3:0]  pick_q;    // looks round for the next free one

    always_ff @(posedge clk) begin
        check_q      <= st_go && st_last_q;
        ev_taken     <= st_go && st_last_q && !st_loop_q;
        ev_bytes     <= end_pos;
        ev_mac_error <= check_q && st_err_q;
        ev_oversized <= check_q && !st_err_q && big_q;
        ev_truncated <= check_q && !st_err_q && !big_q && truncated;
        ev_bad_icrc  <= check_q && !st_err_q && !big_q && !truncated && bad_icrc;

        if (!slot_valid_q) begin
            if (free_q[pick_q]) begin
                free_q[pick_q] <= 1'b0;
                slot_valid_q   <= 1'b1;
                slot_q         <= pick_q;
            end
            pick_q <= pick_q + 1'b1;
        end
        if (check_q && good)
            slot_valid_q <= 1'b0;
        if (desc_valid && desc_pop)
            lent_q[desc_slot] <= 1'b1;
        // only what the core has can be given back
        if (free_valid && free_slot < berth_regs_pkg::RX_SLOTS[7:0] && lent_q[free_slot[3:0]]) begin
            lent_q[free_slot[3:0]] <= 1'b0;
            free_q[free_slot[3:0]] <= 1'b1;
        end

        if (rst) begin
            check_q      <= 1'b0;
            slot_valid_q <= 1'b0;
            free_q       <= 16'hffff;
            lent_q       <= 16'h0000;
            pick_q       <= 4'd0;
            ev_taken     <= 1'b0;
            ev_mac_error <= 1'b0;
            ev_oversized <= 1'b0;
            ev_truncated <= 1'b0;
            ev_bad_icrc  <= 1'b0;
        end
    end

    // There are as many descriptors as slots, so one always has room.
    always_ff @(posedge clk) if (!rst) assert (!(check_q && good) || desc_room);
endmodule
