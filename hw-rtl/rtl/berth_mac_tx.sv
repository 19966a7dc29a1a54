// SPDX-License-Identifier: Apache-2.0 OR MIT
// Transmit engine: takes slots that the core sends, waits for the payload reads attached
// to them, streams them from packet RAM to the MAC or to the receiver (loopback) and
// appends the iCRC. Slots leave in the order in which they were given.

module berth_mac_tx #(
    parameter DATA_W = 64  // bits of a beat
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                hold,         // do not begin another frame (a card reset is near)
    output logic                mid_frame,    // a frame for the MAC is in work
    output logic                busy,         // something is queued or in work

    // slots to send
    input  logic                send_valid,
    output logic                send_ready,
    input  logic [7:0]          send_slot,
    input  logic [12:0]         send_len,     // bytes without iCRC
    input  logic                send_loop,    // to the receiver instead of the MAC
    input  logic                send_raw,     // append no iCRC

    // reads attached to slots
    input  logic [15:0]         tx_wait,      // per slot: reads outstanding
    input  logic [15:0]         tx_err,       // per slot: a read failed
    input  logic [7:0]          tx_err_code,
    output logic                tx_err_clear,
    output logic [3:0]          tx_err_clear_slot,

    // slots done
    output logic                done_valid,
    output logic [7:0]          done_status,  // DMA_*
    output logic [7:0]          done_slot,
    input  logic                done_pop,

    // packet RAM
    output logic                tr_valid,
    input  logic                tr_ready,
    output logic [17:0]         tr_addr,
    input  logic                tr_rvalid,
    input  logic [DATA_W-1:0]   tr_rdata,

    // frames out; data, keep and last are shared by the two streams
    output logic                tx_valid,
    input  logic                tx_ready,
    output logic                lo_valid,
    input  logic                lo_ready,
    output logic [DATA_W-1:0]   tx_data,
    output logic [DATA_W/8-1:0] tx_keep,
    output logic                tx_last,

    // counters: one cycle at the end of a frame
    output logic                ev_sent,
    output logic                ev_looped,
    output logic [12:0]         ev_bytes
);
    localparam BYTES = DATA_W / 8;
    localparam LB    = $clog2(BYTES);
    localparam SKID  = 4;

    // ---- queue of slots --------------------------------------------------------------
    logic        head_valid;
    logic        head_pop;
    logic [7:0]  head_slot;
    logic [12:0] head_len;
    logic        head_loop;
    logic        head_raw;

    berth_lutfifo #(.WIDTH(23), .DEPTH(32)) sends (
        .clk(clk), .rst(rst),
        .wr_valid(send_valid), .wr_ready(send_ready),
        .wr_data({send_raw, send_loop, send_len, send_slot}),
        .rd_valid(head_valid), .rd_ready(head_pop),
        .rd_data({head_raw, head_loop, head_len, head_slot})
    );

    logic       done_push;
    logic       done_room;
    logic [7:0] done_code;

    berth_lutfifo #(.WIDTH(16), .DEPTH(32)) dones (
        .clk(clk), .rst(rst),
        .wr_valid(done_push), .wr_ready(done_room), .wr_data({done_code, head_slot}),
        .rd_valid(done_valid), .rd_ready(done_pop), .rd_data({done_status, done_slot})
    );

    // ---- state -----------------------------------------------------------------------
    typedef enum logic [1:0] {
        IDLE,    // look at the head of the queue
        STREAM,  // its words go out
        TAIL,    // wait for the last beat
        DONE     // report it
    } state_t;

    state_t      state_q;
    logic [17:0] addr_q;      // next word to read
    logic [12:0] unread_q;    // bytes not yet asked for
    logic [12:0] left_q;      // bytes not yet taken from the skid buffer
    logic        first_q;     // the next word is the frame's first
    logic [7:0]  code_q;      // outcome for `dones`
    logic [2:0]  room_q;      // words that the skid buffer can still be asked for

    // words from packet RAM
    logic              word_valid;
    logic              word_pop;
    logic [DATA_W-1:0] word_data;
    logic              skid_full_n;

    berth_lutfifo #(.WIDTH(DATA_W), .DEPTH(SKID)) skid (
        .clk(clk), .rst(rst),
        .wr_valid(tr_rvalid), .wr_ready(skid_full_n), .wr_data(tr_rdata),
        .rd_valid(word_valid), .rd_ready(word_pop), .rd_data(word_data)
    );

    assign tr_valid = state_q == STREAM && unread_q != 13'd0 && room_q != 3'd0;
    assign tr_addr  = addr_q;

    // ---- output stage ----------------------------------------------------------------
    // Holds one word whose bytes are already in the CRC. The last one is followed by
    // the iCRC, which takes an extra beat when the word has no room for all of it.
    logic              out_valid_q;
    logic              out_last_q;   // last word of the slot
    logic              out_extra_q;  // the rest of the iCRC is left
    logic [DATA_W-1:0] out_data_q;
    logic [LB:0]       out_bytes_q;
    logic              out_ready;
    logic              out_beat_last;
    logic              out_done;     // the word leaves the stage
    logic [31:0]       crc;

    logic [LB:0]       word_bytes;
    assign word_bytes = left_q > BYTES[12:0] ? BYTES[LB:0] : left_q[LB:0];
    assign word_pop   = word_valid && state_q == STREAM && (!out_valid_q || out_done);

    berth_icrc #(.DATA_W(DATA_W)) icrc (
        .clk(clk),
        .in_valid(word_pop), .in_first(first_q), .in_data(word_data), .in_bytes(word_bytes),
        .crc(crc)
    );

    logic [LB+1:0]     end_bytes;  // bytes of the last word with the iCRC behind them
    logic [LB+1:0]     rest_bytes; // of them in the extra beat
    logic              fits;
    logic [BYTES-1:0]  out_mask;
    logic [DATA_W-1:0] out_bits;

    assign end_bytes  = {1'b0, out_bytes_q} + (head_raw ? '0 : 'd4);
    assign fits       = end_bytes <= BYTES[LB+1:0];
    assign rest_bytes = end_bytes - BYTES[LB+1:0];
    assign out_mask   = {BYTES{1'b1}} >> (BYTES[LB:0] - out_bytes_q);

    always_comb begin
        for (int i = 0; i < BYTES; i++)
            out_bits[8*i +: 8] = out_mask[i] ? out_data_q[8*i +: 8] : 8'h00;
    end

    always_comb begin
        out_beat_last = 1'b0;
        tx_keep       = {BYTES{1'b1}};
        tx_data       = out_data_q;
        if (out_extra_q) begin
            // the first 4 - rest_bytes bytes of the iCRC have left
            tx_data       = {{(DATA_W-32){1'b0}}, crc >> {3'd4 - rest_bytes[2:0], 3'b000}};
            tx_keep       = ~({BYTES{1'b1}} << rest_bytes);
            out_beat_last = 1'b1;
        end else if (out_last_q) begin
            if (!head_raw)
                tx_data = out_bits | ({{(DATA_W-32){1'b0}}, crc} << {out_bytes_q, 3'b000});
            else
                tx_data = out_bits;
            if (fits) begin
                tx_keep       = ~({BYTES{1'b1}} << end_bytes);
                out_beat_last = 1'b1;
            end
        end
    end

    assign tx_valid  = out_valid_q && !head_loop;
    assign lo_valid  = out_valid_q && head_loop;
    assign tx_last   = out_beat_last;
    assign out_ready = head_loop ? lo_ready : tx_ready;
    assign out_done  = out_ready && (!out_last_q || out_beat_last);

    // ---- sequence --------------------------------------------------------------------
    logic head_bad;
    logic head_failed;
    assign head_bad    = head_slot >= berth_regs_pkg::TX_SLOTS[7:0] || head_len == 13'd0
                         || head_len > berth_regs_pkg::SLOT_BYTES[12:0] - 13'd4;
    assign head_failed = tx_err[head_slot[3:0]];

    assign done_push         = state_q == DONE;
    assign done_code         = code_q;
    assign head_pop          = state_q == DONE && done_room;
    assign tx_err_clear_slot = head_slot[3:0];
    assign busy              = state_q != IDLE || head_valid;
    assign mid_frame         = state_q != IDLE && !head_loop;

    always_ff @(posedge clk) begin
        tx_err_clear <= 1'b0;
        ev_sent      <= 1'b0;
        ev_looped    <= 1'b0;
        ev_bytes     <= head_len + (head_raw ? 13'd0 : 13'd4);

        // words asked for and taken
        if (tr_valid && tr_ready) begin
            addr_q   <= addr_q + BYTES[17:0];
            unread_q <= unread_q > BYTES[12:0] ? unread_q - BYTES[12:0] : 13'd0;
        end
        room_q <= room_q - {2'd0, tr_valid && tr_ready} + {2'd0, word_pop};

        // output stage
        if (out_valid_q && out_ready) begin
            if (out_done) begin
                out_valid_q <= 1'b0;
                out_extra_q <= 1'b0;
            end else begin
                out_extra_q <= 1'b1;
            end
        end
        if (word_pop) begin
            out_valid_q <= 1'b1;
            out_extra_q <= 1'b0;
            out_data_q  <= word_data;
            out_bytes_q <= word_bytes;
            out_last_q  <= left_q <= BYTES[12:0];
            left_q      <= left_q - {{(12-LB){1'b0}}, word_bytes};
            first_q     <= 1'b0;
        end

        case (state_q)
            IDLE: begin
                addr_q   <= head_slot[3:0] * berth_regs_pkg::SLOT_BYTES[17:0];
                unread_q <= head_len;
                left_q   <= head_len;
                first_q  <= 1'b1;
                code_q   <= berth_regs_pkg::DMA_OK[7:0];
                if (head_valid && !hold) begin
                    if (head_bad) begin
                        code_q  <= berth_regs_pkg::DMA_REFUSED[7:0];
                        state_q <= DONE;
                    end else if (!tx_wait[head_slot[3:0]]) begin
                        if (head_failed) begin
                            code_q       <= tx_err_code;
                            tx_err_clear <= 1'b1;
                            state_q      <= DONE;
                        end else begin
                            state_q <= STREAM;
                        end
                    end
                end
            end
            STREAM: if (word_pop && left_q <= BYTES[12:0]) state_q <= TAIL;
            TAIL: if (out_valid_q && out_ready && out_beat_last) begin
                ev_sent   <= !head_loop;
                ev_looped <= head_loop;
                state_q   <= DONE;
            end
            DONE: if (done_room) state_q <= IDLE;
        endcase

        if (rst) begin
            state_q      <= IDLE;
            room_q       <= SKID[2:0];
            out_valid_q  <= 1'b0;
            out_extra_q  <= 1'b0;
            tx_err_clear <= 1'b0;
            ev_sent      <= 1'b0;
            ev_looped    <= 1'b0;
        end
    end

    // The skid buffer is never asked for more words than it holds.
    always_ff @(posedge clk) if (!rst) assert (!tr_rvalid || skid_full_n);
endmodule
