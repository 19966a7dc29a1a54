// SPDX-License-Identifier: Apache-2.0 OR MIT
// Transmit engine: takes slots that the core sends, waits for the payload reads attached
// to them, streams them from packet RAM to the MAC or to the receiver (loopback) and
// appends the iCRC. Slots leave in the order in which they were given, one beat per cycle,
// frame directly behind frame. The fast path is a second user with a queue of its own: complete
// frames anywhere in its RAM. Raw queues are a third one: theirs get no iCRC, but zeros up to the least length, and those to
// this card's own address go to the receiver. The three take turns.
//
//   queue -> fetch -> skid buffer -> iCRC and the words beside it -> out
//              \-> frames begun -----^

module berth_mac_tx #(
    parameter DATA_W = 64  // bits of a beat
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic                        hold,       // do not begin another frame (a card reset is near)
    output logic                        mid_frame,  // a frame for the MAC is in work
    output logic                        busy,       // something is queued or in work

    // slots to send
    input  logic                        send_valid,
    output logic                        send_ready,
    input  berth_card_pkg::send_t       send,

    // reads attached to slots
    input  berth_card_pkg::slot_reads_t slot_reads,
    output logic                        slot_err_clear,
    output logic [3:0]                  slot_err_clear_n,

    // slots done
    output logic                        sent_valid,
    output berth_card_pkg::sent_t       sent,
    input  logic                        sent_pop,

    // fast path: frames to send, at addresses of its RAM that are aligned to a beat; a frame has left
    input  logic                        fs_valid,
    output logic                        fs_ready,
    input  berth_card_pkg::frame_out_t  fs,
    output logic                        fl_valid,
    output logic [7:0]                  fl_tag,

    // raw queues: likewise; `ws.loop` says nothing
    input  logic                        ws_valid,
    output logic                        ws_ready,
    input  berth_card_pkg::frame_out_t  ws,
    output logic                        wl_valid,
    input  logic [47:0]                 own_mac,    // first byte in bits 47:40

    // packet RAM; from 2^18 on the fast path's and raw queues'
    output logic                        tr_valid,
    input  logic                        tr_ready,
    output logic [18:0]                 tr_addr,
    input  logic                        tr_rvalid,
    input  logic [DATA_W-1:0]           tr_rdata,

    // frames out; data, keep and last are shared by the two streams
    output logic                        tx_valid,
    input  logic                        tx_ready,
    output logic                        lo_valid,
    input  logic                        lo_ready,
    output logic [DATA_W-1:0]           tx_data,
    output logic [DATA_W/8-1:0]         tx_keep,
    output logic                        tx_last,

    // counters: one cycle at the end of a frame
    output logic                        ev_sent,
    output logic                        ev_looped,
    output logic [12:0]                 ev_bytes
);
    localparam BYTES = DATA_W / 8;
    localparam LB    = $clog2(BYTES);
    localparam SKID  = 4;
    localparam DELAY = 5;   // stages of berth_icrc
    localparam logic [12:0] LEAST = 13'd60;   // bytes of a frame

    // ---- queue of slots --------------------------------------------------------------
    logic        head_valid;
    logic        head_pop;
    berth_card_pkg::send_t head;

    berth_lutfifo #(.WIDTH($bits(send)), .DEPTH(32)) sends (
        .clk(clk), .rst(rst),
        .wr_valid(send_valid), .wr_ready(send_ready),
        .wr_data(send),
        .rd_valid(head_valid), .rd_ready(head_pop),
        .rd_data(head)
    );

    logic fast_valid, fast_pop;
    berth_card_pkg::frame_out_t fast_head;

    berth_lutfifo #(.WIDTH($bits(fs)), .DEPTH(8)) fasts (
        .clk(clk), .rst(rst),
        .wr_valid(fs_valid), .wr_ready(fs_ready), .wr_data(fs),
        .rd_valid(fast_valid), .rd_ready(fast_pop), .rd_data(fast_head)
    );

    logic whole_valid, whole_pop;
    berth_card_pkg::frame_out_t whole_head;

    berth_lutfifo #(.WIDTH($bits(ws)), .DEPTH(8)) wholes (
        .clk(clk), .rst(rst),
        .wr_valid(ws_valid), .wr_ready(ws_ready), .wr_data(ws),
        .rd_valid(whole_valid), .rd_ready(whole_pop), .rd_data(whole_head)
    );

    logic       done_push;
    logic       done_room;
    berth_card_pkg::sent_t done;

    berth_lutfifo #(.WIDTH($bits(done)), .DEPTH(32)) dones (
        .clk(clk), .rst(rst),
        .wr_valid(done_push), .wr_ready(done_room), .wr_data(done),
        .rd_valid(sent_valid), .rd_ready(sent_pop), .rd_data(sent)
    );

    // ---- fetch: the words of one slot after the other ----------------------------------
    logic        fetch_q;     // a slot's words are being asked for
    logic [18:0] addr_q;      // next word to read
    logic [12:0] unread_q;    // bytes not yet asked for
    logic [2:0]  room_q;      // words that the skid buffer can still be asked for
    logic [5:0]  begun_q;     // frames begun and not ended
    logic [5:0]  begun_mac_q; // of them for the MAC
    logic        fetch_go, fetch_last, head_bad, head_failed, head_wait, head_ok, begin_go, refuse_go;
    logic        frame_room, can_begin, head_good, head_refuse, fast, whole;
    logic [1:0]  who_q;       // whose frame was the last: the core's, the fast path's, a raw queue's
    logic [12:0] whole_len;   // with its zeros

    assign tr_valid    = fetch_q && room_q != 3'd0;
    assign tr_addr     = addr_q;
    assign fetch_go    = tr_valid && tr_ready;
    assign fetch_last  = unread_q <= BYTES[12:0];
    assign head_bad    = head.slot >= berth_regs_pkg::TX_SLOTS[7:0] || head.len == 13'd0
                         || head.len > berth_regs_pkg::SLOT_BYTES[12:0] - 13'd4;
    assign head_wait   = !head_bad && slot_reads.out[head.slot[3:0]];
    assign head_failed = slot_reads.failed[head.slot[3:0]];
    assign head_ok     = head_valid && !hold && !head_wait;
    assign can_begin   = frame_room && (!fetch_q || (fetch_go && fetch_last));
    assign head_good   = head_ok && !head_bad && !head_failed;
    assign head_refuse = head_ok && (head_bad || head_failed);
    // In turn, but nothing goes before a slot that is to be refused.
    always_comb begin
        logic f, w;
        f = fast_valid && !hold && !head_refuse;
        w = whole_valid && !hold && !head_refuse;
        unique case (who_q)
            2'd0:    {whole, fast} = {w && !f, f};
            2'd1:    {whole, fast} = {w, f && !w && !head_good};
            default: {whole, fast} = {w && !f && !head_good, f && !head_good};
        endcase
    end
    assign whole_len   = whole_head.len < LEAST ? LEAST : whole_head.len;
    assign begin_go    = can_begin && (fast || whole || head_good);
    // A slot that is not sent is reported in order, behind all frames that are under way.
    assign refuse_go   = head_refuse && begun_q == 6'd0 && done_room;
    assign head_pop    = (begin_go && !fast && !whole) || refuse_go;
    assign fast_pop    = begin_go && fast;
    assign whole_pop   = begin_go && whole;

    // Frames whose words are in the skid buffer or on their way there.
    logic        frame_valid, frame_pop;
    logic [7:0]  frame_slot;
    logic [12:0] frame_len;
    logic        frame_loop, frame_raw, frame_fast, frame_whole;

    berth_lutfifo #(.WIDTH(25), .DEPTH(8)) frames (
        .clk(clk), .rst(rst),
        .wr_valid(begin_go), .wr_ready(frame_room),
        .wr_data(fast ? {3'b010, fast_head.loop, fast_head.len, fast_head.tag}
                 : whole ? {4'b1010, whole_head.len, 8'd0} : {2'b00, head.raw, head.loop, head.len, head.slot}),
        .rd_valid(frame_valid), .rd_ready(frame_pop),
        .rd_data({frame_whole, frame_fast, frame_raw, frame_loop, frame_len, frame_slot})
    );

    logic              word_valid;
    logic              word_pop;
    logic [DATA_W-1:0] word_data;
    logic              skid_full_n;

    berth_lutfifo #(.WIDTH(DATA_W), .DEPTH(SKID)) skid (
        .clk(clk), .rst(rst),
        .wr_valid(tr_rvalid), .wr_ready(skid_full_n), .wr_data(tr_rdata),
        .rd_valid(word_valid), .rd_ready(word_pop), .rd_data(word_data)
    );

    // ---- iCRC; the words go beside it ----------------------------------------------------
    logic        go;          // everything behind the skid buffer moves
    logic        first_q;     // the next word is a frame's first
    logic [12:0] left_q;      // bytes not yet taken from the skid buffer, behind the first word
    logic [12:0] left;
    logic [12:0] real_q;      // of them without zeros
    logic [12:0] real_left;
    logic [12:0] all_len;     // of the frame, with zeros
    logic        loop_q;      // a raw queue's frame goes to the receiver, behind the first word
    logic        loop;
    logic [DATA_W-1:0] word_clean;
    logic        word_last;
    logic [LB:0] word_bytes;
    logic [31:0] crc;

    assign all_len    = frame_whole && frame_len < LEAST ? LEAST : frame_len;
    assign left       = first_q ? all_len : left_q;
    assign real_left  = first_q ? frame_len : real_q;
    // A raw queue's frame names in its first bytes whom it is for.
    always_comb begin
        logic same;
        same = frame_whole;
        for (int i = 0; i < 6; i++) same = same && word_data[8*i +: 8] == own_mac[8*(5-i) +: 8];
        loop = frame_whole ? (first_q ? same : loop_q) : frame_loop;
        for (int i = 0; i < BYTES; i++)
            word_clean[8*i +: 8] = 13'(i) < real_left ? word_data[8*i +: 8] : 8'h00;
    end
    assign word_last  = left <= BYTES[12:0];
    assign word_bytes = word_last ? left[LB:0] : BYTES[LB:0];
    assign word_pop   = word_valid && go;
    assign frame_pop  = word_pop && word_last;

    berth_icrc #(.DATA_W(DATA_W)) icrc (
        .clk(clk), .go(go),
        .in_valid(word_valid), .in_first(first_q), .in_data(word_data), .in_bytes(word_bytes),
        .crc(crc)
    );

    // what is known of a word
    typedef struct packed {
        logic        last;
        logic [LB:0] bytes;
        logic        whole;
        logic        fast;
        logic        loop;
        logic        raw;
        logic [12:0] len;    // of the frame
        logic [7:0]  slot;   // or tag
    } word_t;

    logic [DELAY-1:0]  stage_valid_q;
    localparam WORD_W = 1 + (LB+1) + 4 + 13 + 8;
    logic [DELAY*WORD_W-1:0] stage_q;   // the oldest on top; no array of structs, which Yosys 0.52 does not get right
    logic [DATA_W-1:0] stage_data_q [0:DELAY-1];

    // ---- out -----------------------------------------------------------------------------
    // The last word is followed by the iCRC, which takes an extra beat when the word has
    // no room for all of it.
    word_t             out;
    logic              out_valid;
    logic              out_extra_q;  // the rest of the iCRC is left
    logic [DATA_W-1:0] out_data;
    logic              out_show, out_ready, out_beat_last;
    logic              out_done;     // the word leaves
    logic              frame_done;   // ... and was its frame's last
    logic [LB+1:0]     end_bytes;    // bytes of the last word with the iCRC behind them
    logic [LB+1:0]     rest_bytes;   // of them in the extra beat
    logic              fits;
    logic [BYTES-1:0]  out_mask;
    logic [DATA_W-1:0] out_bits;

    assign out        = stage_q[DELAY*WORD_W-1 -: WORD_W];
    assign out_valid  = stage_valid_q[DELAY-1];
    assign out_data   = stage_data_q[DELAY-1];
    assign end_bytes  = {1'b0, out.bytes} + (out.raw ? '0 : 'd4);
    assign fits       = end_bytes <= BYTES[LB+1:0];
    assign rest_bytes = end_bytes - BYTES[LB+1:0];
    assign out_mask   = {BYTES{1'b1}} >> (BYTES[LB:0] - out.bytes);

    always_comb begin
        for (int i = 0; i < BYTES; i++)
            out_bits[8*i +: 8] = out_mask[i] ? out_data[8*i +: 8] : 8'h00;
    end

    always_comb begin
        out_beat_last = 1'b0;
        tx_keep       = {BYTES{1'b1}};
        tx_data       = out_data;
        if (out_extra_q) begin
            // the first 4 - rest_bytes bytes of the iCRC have left
            tx_data       = {{(DATA_W-32){1'b0}}, crc >> {3'd4 - rest_bytes[2:0], 3'b000}};
            tx_keep       = ~({BYTES{1'b1}} << rest_bytes);
            out_beat_last = 1'b1;
        end else if (out.last) begin
            if (!out.raw)
                tx_data = out_bits | ({{(DATA_W-32){1'b0}}, crc} << {out.bytes, 3'b000});
            else
                tx_data = out_bits;
            if (fits) begin
                tx_keep       = ~({BYTES{1'b1}} << end_bytes);
                out_beat_last = 1'b1;
            end
        end
    end

    // A frame ends only when its outcome can be reported. During a card reset it is not reported, and looped frames are
    // dropped, because the receiver is in reset.
    assign out_show   = out_valid && (!out.last || out.fast || out.whole || done_room || hold);
    assign tx_valid   = out_show && !out.loop;
    assign lo_valid   = out_show && out.loop;
    assign tx_last    = out_beat_last;
    assign out_ready  = out_show && (out.loop ? lo_ready || hold : tx_ready);
    assign out_done   = out_ready && (!out.last || out_beat_last);
    assign frame_done = out_ready && out_beat_last;
    assign go         = !out_valid || out_done;

    assign done_push         = (frame_done && !out.fast && !out.whole) || refuse_go;
    assign wl_valid          = frame_done && out.whole;
    assign fl_valid          = frame_done && out.fast;
    assign fl_tag            = out.slot;
    assign done.status         = frame_done ? berth_regs_pkg::DMA_OK[7:0]
                             : head_bad ? berth_regs_pkg::DMA_REFUSED[7:0] : slot_reads.status;
    assign done.slot        = frame_done ? out.slot : head.slot;
    assign slot_err_clear      = refuse_go && !head_bad;
    assign slot_err_clear_n = head.slot[3:0];
    assign busy              = begun_q != 6'd0 || head_valid || fast_valid || whole_valid;
    assign mid_frame         = begun_mac_q != 6'd0;

    always_ff @(posedge clk) begin
        ev_sent   <= frame_done && !out.loop;
        ev_looped <= frame_done && out.loop;
        ev_bytes  <= out.len + (out.raw ? 13'd0 : 13'd4);

        // fetch
        if (fetch_go) begin
            addr_q   <= addr_q + BYTES[18:0];
            unread_q <= unread_q - BYTES[12:0];
            if (fetch_last)
                fetch_q <= 1'b0;
        end
        if (begin_go) begin
            fetch_q  <= 1'b1;
            addr_q   <= fast ? {1'b1, fast_head.place} : whole ? {1'b1, whole_head.place}
                        : {1'b0, head.slot[3:0] * berth_regs_pkg::SLOT_BYTES[17:0]};
            unread_q <= fast ? fast_head.len : whole ? whole_len : head.len;
            who_q    <= {whole, fast};
        end
        room_q      <= room_q - {2'd0, fetch_go} + {2'd0, word_pop};
        begun_q     <= begun_q + {5'd0, begin_go} - {5'd0, frame_done};
        // Whether a raw queue's frame is for the MAC is not known yet when it begins.
        begun_mac_q <= begun_mac_q + {5'd0, begin_go && !(fast ? fast_head.loop : !whole && head.loop)}
                       - {5'd0, frame_done && (out.whole || !out.loop)};

        // iCRC
        if (word_pop) begin
            first_q <= word_last;
            left_q  <= left - BYTES[12:0];
            real_q  <= real_left > BYTES[12:0] ? real_left - BYTES[12:0] : 13'd0;
            loop_q  <= loop;
        end
        if (go) begin
            stage_valid_q   <= {stage_valid_q[DELAY-2:0], word_valid};
            stage_q         <= {stage_q[(DELAY-1)*WORD_W-1:0], word_last, word_bytes, frame_whole, frame_fast, loop, frame_raw,
                                all_len, frame_slot};
            stage_data_q[0] <= word_clean;
            for (int i = 1; i < DELAY; i++) begin
                stage_data_q[i] <= stage_data_q[i-1];
            end
        end

        // out
        if (out_ready)
            out_extra_q <= !out_done;

        if (rst) begin
            fetch_q       <= 1'b0;
            who_q         <= 2'd0;
            room_q        <= SKID[2:0];
            begun_q       <= 6'd0;
            begun_mac_q   <= 6'd0;
            first_q       <= 1'b1;
            stage_valid_q <= '0;
            out_extra_q   <= 1'b0;
            ev_sent       <= 1'b0;
            ev_looped     <= 1'b0;
        end
    end

    wire unused = &{1'b0, whole_head.loop, whole_head.tag};

    // The skid buffer is never asked for more words than it holds; a word belongs to a frame
    // that has begun.
    always_ff @(posedge clk) if (!rst) assert (!tr_rvalid || skid_full_n);
    always_ff @(posedge clk) if (!rst) assert ((!word_valid || frame_valid) && begun_mac_q <= begun_q);
endmodule
