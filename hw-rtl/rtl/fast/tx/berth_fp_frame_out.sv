// SPDX-License-Identifier: Apache-2.0 OR MIT
// Frames: data packets, answers to READs, ACKs and lists get their headers from the QP's template and a place in packet RAM; the reads
// of their payload are issued meanwhile. Before an ACK or a list waits for longer than one packet they go first; but while
// data frames wait for the wire, an ACK waits for three of them, so that one does for several packets. Data packets and
// answers take turns.
//
// Two frames are in work: one is chosen and composed (two cycles) while the one before it is written, a word of packet RAM
// per cycle. The sizes of a list follow its header as they come.
//
// Template (`SEND_TEMPLATE`, bytes in order, little end first): Ethernet, IPv4, UDP and BTH to the peer's
// QP. Lengths, opcode, PSN and flags are filled in here. Bytes 24 and 25 hold the sum of the IPv4 header's halves
// without length and checksum, folded to 16 bits.
//
// Row: `SEND_TEMPLATE`, `SEND_QUEUE`, `SEND_MODE`, `SEND_QKEY`.
module berth_fp_frame_out #(
    parameter int unsigned QPS    = 64,
    parameter int unsigned WORD_W = 128,    // bits of a word of packet RAM
    parameter int unsigned LE     = 6,
    parameter int unsigned LB     = 5
) (
    input  logic                       clk,
    input  logic                       rst,
    input  logic                       cfg_we,
    input  logic [$clog2(QPS)-1:0]     cfg_q,
    input  berth_card_pkg::row_write_t cfg,

    input  logic                       elem_we,    // inline data
    input  logic [$clog2(QPS)-1:0]     elem_q,
    input  logic [LE-1:0]              elem_idx,
    input  logic [8*berth_regs_pkg::MAX_INLINE-1:0] elem_data,
    input  berth_card_pkg::element_t   element,    // its immediate or key to invalidate, in message mode; where a WRITE goes, a READ reads

    // data packets (see berth_fp_send)
    input  logic                       pkt_valid,
    output logic                       pkt_ready,
    input  logic [$clog2(QPS)-1:0]     pkt_q,
    input  berth_card_pkg::packet_t    pkt,
    input  logic                       part_valid,
    output logic                       part_ready,
    input  berth_card_pkg::part_t      part_data,

    // answers to READs and atomics (see berth_fp_respond), each with a place
    input  logic                       rsp_valid,
    output logic                       rsp_ready,
    input  logic [$clog2(QPS)-1:0]     rsp_q,
    input  berth_card_pkg::response_t  rsp,
    input  logic [6:0]                 rsp_tag,

    // ACKs to send
    input  logic                       afr_valid,
    output logic                       afr_ready,
    input  logic [$clog2(QPS)-1:0]     afr_q,
    input  berth_card_pkg::ack_t       afr,
    // lists to send
    input  logic                       lfr_valid,
    output logic                       lfr_ready,
    input  logic [$clog2(QPS)-1:0]     lfr_q,
    input  berth_card_pkg::list_out_t  lfr,
    input  logic                       ctl_valid,  // a place for them
    input  logic [6:0]                 ctl_tag,
    output logic                       ctl_pop,
    input  logic                       backlog,    // data frames wait for the wire

    // places: a packet is begun (with all that is kept of it), its header is written
    input  logic [17:0]                at,         // address of place `at_tag`
    output logic [6:0]                 at_tag,
    output logic                       open_valid,
    output berth_card_pkg::open_t      open,
    output logic [$clog2(QPS)-1:0]     open_q,
    output logic                       head_valid,
    input  logic                       head_ready,
    output logic [6:0]                 head_tag,

    output logic                       hw_valid,
    input  logic                       hw_ready,
    output logic [17:0]                hw_addr,
    output logic [WORD_W-1:0]          hw_data,
    output logic [WORD_W/8-1:0]        hw_strb,
    output logic                       load_valid,
    input  logic                       load_ready,
    output berth_card_pkg::payload_t   load,

    output logic                       ev_ack,
    output logic                       ev_list
);
    localparam int unsigned QW    = $clog2(QPS);
    localparam int unsigned BYTES = WORD_W / 8;
    localparam int unsigned LANES = $clog2(BYTES);
    localparam int unsigned HEAD = 54;              // bytes up to the BTH's end
    localparam int unsigned INLINE  = berth_regs_pkg::MAX_INLINE;
    localparam int unsigned MOST_EXTRA = 24;        // bytes of extended headers before it
    localparam int unsigned LONGEST = HEAD + MOST_EXTRA + INLINE; // bytes that are composed
    localparam int unsigned WORDS = (LONGEST + BYTES - 1) / BYTES;
    // One and a half sizes may hang over a word.
    localparam int unsigned IMAGE = WORDS == 1 ? WORD_W + 48 : WORDS * WORD_W;
    localparam logic [2:0]  ACK_AFTER = 3'd3;       // data frames

    // The wire: opcodes, where extended headers go (docs/reference/wire.md).
    localparam logic [7:0] SEND_FIRST = berth_regs_pkg::BTH_SEND_FIRST[7:0];
    localparam logic [7:0] SEND_MIDDLE = berth_regs_pkg::BTH_SEND_MIDDLE[7:0];
    localparam logic [7:0] SEND_LAST = berth_regs_pkg::BTH_SEND_LAST[7:0];
    localparam logic [7:0] SEND_LAST_IMM = berth_regs_pkg::BTH_SEND_LAST_IMM[7:0];
    localparam logic [7:0] SEND_ONLY = berth_regs_pkg::BTH_SEND_ONLY[7:0];
    localparam logic [7:0] SEND_ONLY_IMM = berth_regs_pkg::BTH_SEND_ONLY_IMM[7:0];
    localparam logic [7:0] SEND_LAST_INVALIDATE = berth_regs_pkg::BTH_SEND_LAST_INVALIDATE[7:0];
    localparam logic [7:0] SEND_ONLY_INVALIDATE = berth_regs_pkg::BTH_SEND_ONLY_INVALIDATE[7:0];
    localparam logic [7:0] WRITE_FIRST = berth_regs_pkg::BTH_WRITE_FIRST[7:0];
    localparam logic [7:0] WRITE_MIDDLE = berth_regs_pkg::BTH_WRITE_MIDDLE[7:0];
    localparam logic [7:0] WRITE_LAST = berth_regs_pkg::BTH_WRITE_LAST[7:0];
    localparam logic [7:0] WRITE_LAST_IMM = berth_regs_pkg::BTH_WRITE_LAST_IMM[7:0];
    localparam logic [7:0] WRITE_ONLY = berth_regs_pkg::BTH_WRITE_ONLY[7:0];
    localparam logic [7:0] WRITE_ONLY_IMM = berth_regs_pkg::BTH_WRITE_ONLY_IMM[7:0];
    localparam logic [7:0] READ_REQUEST = berth_regs_pkg::BTH_READ_REQUEST[7:0];
    localparam logic [7:0] CMP_SWAP = berth_regs_pkg::BTH_CMP_SWAP[7:0];
    localparam logic [7:0] FETCH_ADD = berth_regs_pkg::BTH_FETCH_ADD[7:0];
    localparam logic [7:0] RESPONSE_FIRST = berth_regs_pkg::BTH_READ_RESPONSE_FIRST[7:0];
    localparam logic [7:0] RESPONSE_MIDDLE = berth_regs_pkg::BTH_READ_RESPONSE_MIDDLE[7:0];
    localparam logic [7:0] RESPONSE_LAST = berth_regs_pkg::BTH_READ_RESPONSE_LAST[7:0];
    localparam logic [7:0] RESPONSE_ONLY = berth_regs_pkg::BTH_READ_RESPONSE_ONLY[7:0];
    localparam logic [7:0] ATOMIC_ACKNOWLEDGE = berth_regs_pkg::BTH_ATOMIC_ACKNOWLEDGE[7:0];
    localparam logic [7:0] ACK_NO_COUNT = 8'h1f;
    localparam logic [7:0] ACKNOWLEDGE = berth_regs_pkg::BTH_ACKNOWLEDGE[7:0];
    localparam logic [7:0] SELECTIVE_ACKNOWLEDGE = berth_regs_pkg::BTH_SELECTIVE_ACKNOWLEDGE[7:0];
    localparam logic [7:0] UD_SEND_ONLY = berth_regs_pkg::BTH_UD_SEND_ONLY[7:0];
    localparam logic [7:0] REC_LIST = berth_regs_pkg::REC_LIST[7:0];
    localparam logic [7:0] UC_WRITE_ONLY = berth_regs_pkg::BTH_UC_WRITE_ONLY[7:0];
    localparam logic [23:0] CONTROL_QPN = berth_regs_pkg::CONTROL_QPN[23:0];
    localparam int unsigned DETH_BYTES = 8, RETH_BYTES = 16;
    localparam int unsigned RECORD_BYTES = 12;      // of a list, before its sizes
    localparam logic        PLACED = 1'b1;          // bit 8 of a placement header

    typedef enum logic [2:0] {FREE, WRITE, SIZES, PAD, CLOSE} op_t;
    typedef enum logic [1:0] {PACKET, ACK, LIST, ANSWER} kind_t;
    op_t           op_q;                 // of the frame that is written
    logic          make_q;               // a frame has been chosen
    logic          go;                   // it is composed, and will be written
    logic          moved;                // its inline data begins with this packet's
    logic          done;                 // the one before it is written
    kind_t         kind_q;
    logic          turn_q;               // a data packet or an answer goes next
    logic          answer_turn_q;        // of these, an answer
    logic [2:0]    since_q;              // of these, since the last ACK
    logic          list_q;               // a list has been chosen whose sizes are not all here
    logic          ack_go, idle;
    logic          pick_ack, pick_list, pick_data, pick_packet, pick_answer;
    logic [QW-1:0] q;

    assign idle        = !make_q || go;
    assign ack_go      = afr_valid && (!backlog || since_q == ACK_AFTER);
    assign pick_data   = (pkt_valid || rsp_valid) && (turn_q || !((ack_go || (lfr_valid && !list_q)) && ctl_valid));
    assign pick_answer = pick_data && rsp_valid && (answer_turn_q || !pkt_valid);
    assign pick_packet = pick_data && !pick_answer;
    assign pick_ack    = !pick_data && ack_go && ctl_valid;
    assign pick_list   = !pick_data && !ack_go && lfr_valid && !list_q && ctl_valid;
    assign q           = pick_answer ? rsp_q : pick_packet ? pkt_q : pick_ack ? afr_q : lfr_q;

    // ---- templates ---------------------------------------------------------------------
    logic [447:0]  template_;
    logic [7:0]    asid;
    logic          loop, selective, message;
    logic [3:0]    log2_mtu;
    logic [31:0]   qkey;
    logic [8*INLINE-1:0] inline_;
    generate
        for (genvar i = 0; i < 14; i++) begin : g_template
            berth_fp_mem #(.WIDTH(32), .DEPTH(QPS)) m_word (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_TEMPLATE + i[5:0]),
                .waddr(cfg_q), .wdata(cfg.data), .re(idle), .raddr(q), .rdata(template_[32*i +: 32]));
        end
    endgenerate
    berth_row_pkg::send_queue_t cfg_queue;
    assign cfg_queue = cfg.data;
    berth_row_pkg::send_mode_t cfg_mode;
    assign cfg_mode = cfg.data;
    berth_fp_mem #(.WIDTH(8), .DEPTH(QPS)) m_asid (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QUEUE), .waddr(cfg_q),
        .wdata(cfg_queue.asid), .re(idle), .raddr(q), .rdata(asid));
    logic [1:0]    carrier;              // of lists
    berth_fp_mem #(.WIDTH(9), .DEPTH(QPS)) m_mode (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_MODE), .waddr(cfg_q),
        .wdata({cfg_mode.carrier, cfg_mode.log2_mtu, cfg_mode.loopback, cfg_mode.selective, cfg_mode.message}), .re(idle), .raddr(q),
        .rdata({carrier, log2_mtu, loop, selective, message}));
    berth_fp_mem #(.WIDTH(32), .DEPTH(QPS)) m_qkey (.clk(clk), .we(cfg_we && cfg.word == berth_row_pkg::SEND_QKEY), .waddr(cfg_q),
        .wdata(cfg.data), .re(idle), .raddr(q), .rdata(qkey));
    logic          own_imm, invalidate;  // the process's immediate; it is a key to invalidate instead
    logic [31:0]   imm;
    logic          atomic, adds;         // an atomic; it is a fetch-and-add
    logic          write;                // a WRITE, and its RETH
    logic [63:0]   va, read_va_q;        // read_va_q: of what this packet of a READ asks for, ...
    logic          read_ready_q;         // ... when it is there
    logic [31:0]   key, whole_len;
    berth_fp_mem #(.WIDTH(165 + 8*INLINE), .DEPTH(QPS << LE), .OWN(1'b1)) m_inline (.clk(clk), .we(elem_we), .waddr({elem_q, elem_idx}),
        .wdata({element.atomic, element.adds, element.write, element.va, element.key, element.len, element.has_imm, element.invalidate, element.imm, elem_data}), .re(idle),
        .raddr({pkt_q, pkt.elem[LE-1:0]}), .rdata({atomic, adds, write, va, key, whole_len, own_imm, invalidate, imm, inline_}));

    // ---- what the frame says -----------------------------------------------------------
    logic [QW-1:0] q_q;
    logic [6:0]    tag_q;
    logic [23:0]   psn_q;
    logic [3:0]    flags_q, parts_q, left_q;      // left_q: parts that are not asked for, of the frame written
    logic [31:0]   imm_q, placement_q, epoch_q, number_q;
    logic [12:0]   len_q, first_q;
    logic          inline_q, sack_q, over_q, read_q;
    logic [3:0]    reads;
    logic [5:0]    place_q;               // bytes that the inline data has still to be moved by
    logic          kept_q;                // it stands in data_q
    logic [8*INLINE-1:0] data_q;
    logic [LB:0]   block_q;
    logic [7:0]    syndrome_q;
    logic [23:0]   msn_q;
    logic [127:0]  sack_bits_q;
    logic [6:0]    n_q;
    logic [5:0]    answer_tag_q;
    logic [7:0]    answer_asid_q;
    logic          answer_atomic_q;
    logic [63:0]   original_q;

    function automatic logic [31:0] be32(input logic [31:0] x);
        be32 = {x[7:0], x[15:8], x[23:16], x[31:24]};
    endfunction
    function automatic logic [15:0] be16(input logic [15:0] x);
        be16 = {x[7:0], x[15:8]};
    endfunction

    function automatic logic [63:0] be64(input logic [63:0] x);
        be64 = {be32(x[31:0]), be32(x[63:32])};
    endfunction

    logic          with_imm, placed, with_reth, asks;  // asks: it is an atomic
    logic [31:0]   placement;                         // {index, mark, credit modulo 256}
    logic [7:0]    opcode;
    logic [1:0]    pad;
    logic [12:0]   extra, payload, head_len, bytes;   // extended headers; payload in memory or behind them; headers; frame
    logic [15:0]   ip_len, checksum;
    logic [16:0]   sum;
    logic [8*INLINE-1:0] data, whole;
    logic [6:0]    keep;
    logic          list_written;                      // a list goes to the window in the peer's card
    logic [7:0]    list_words;
    logic [12:0]   list_head;                         // its bytes before the sizes
    assign list_written = carrier == berth_row_pkg::CARRIER_WRITE[1:0];
    assign list_words   = {1'b0, n_q} + 8'd3;
    assign list_head    = 13'(HEAD + RECORD_BYTES) + 13'(list_written ? RETH_BYTES : DETH_BYTES);
    assign with_imm = flags_q[1] && !read_q && (!message || own_imm);
    assign placed   = selective && !read_q;
    assign asks     = read_q && atomic;
    // Between Berth cards each packet of a WRITE can be placed alone.
    assign with_reth = kind_q == PACKET && ((write && (selective || flags_q[0])) || (read_q && !atomic));
    assign placement = {placement_q[30:8], PLACED, placement_q[7:0]};
    always_comb begin
        opcode  = sack_q ? SELECTIVE_ACKNOWLEDGE : ACKNOWLEDGE;
        extra   = sack_q ? 13'd20 : 13'd4;
        payload = 13'd0;
        if (kind_q == PACKET) begin
            case ({write, flags_q[1:0]})
                3'b001:  opcode = SEND_FIRST;
                3'b000:  opcode = SEND_MIDDLE;
                3'b010:  opcode = with_imm ? (invalidate ? SEND_LAST_INVALIDATE : SEND_LAST_IMM) : SEND_LAST;
                3'b011:  opcode = with_imm ? (invalidate ? SEND_ONLY_INVALIDATE : SEND_ONLY_IMM) : SEND_ONLY;
                3'b101:  opcode = WRITE_FIRST;
                3'b100:  opcode = WRITE_MIDDLE;
                3'b110:  opcode = with_imm ? WRITE_LAST_IMM : WRITE_LAST;
                default: opcode = with_imm ? WRITE_ONLY_IMM : WRITE_ONLY;
            endcase
            if (write && selective) opcode = with_imm ? WRITE_ONLY_IMM : WRITE_ONLY;
            extra   = {8'd0, with_reth, 4'd0} + {10'd0, with_imm, 2'd0} + {10'd0, placed, 2'd0};
            payload = len_q;
            if (read_q) {opcode, payload} = {READ_REQUEST, 13'd0};
            if (asks) {opcode, extra} = {adds ? FETCH_ADD : CMP_SWAP, 13'd28};
        end else if (kind_q == ANSWER) begin
            case (flags_q[1:0])
                2'b01:   opcode = RESPONSE_FIRST;
                2'b00:   opcode = RESPONSE_MIDDLE;
                2'b10:   opcode = RESPONSE_LAST;
                default: opcode = RESPONSE_ONLY;
            endcase
            extra   = flags_q[1:0] == 2'b00 ? 13'd0 : 13'd4;
            payload = len_q;
            if (answer_atomic_q) {opcode, extra} = {ATOMIC_ACKNOWLEDGE, 13'd12};
        end else if (kind_q == LIST) begin
            opcode  = list_written ? UC_WRITE_ONLY : UD_SEND_ONLY;
            extra   = 13'(list_written ? RETH_BYTES : DETH_BYTES) + 13'(RECORD_BYTES);
            payload = {4'd0, n_q, 2'd0};
        end
    end
    assign pad      = 2'd0 - payload[1:0];
    assign head_len = 13'(HEAD) + extra;
    assign bytes    = head_len + payload + {11'd0, pad};
    assign ip_len   = {3'd0, bytes} - 16'd10;      // without Ethernet, with iCRC
    assign sum      = {1'b0, template_[24*8 +: 8], template_[25*8 +: 8]} + {1'b0, ip_len};
    assign checksum = ~(sum[15:0] + {15'd0, sum[16]});
    always_comb begin
        data = kept_q ? data_q : inline_;
        whole = data;
        keep = len_q[6:0];
        for (int i = 0; i < int'(INLINE); i++)
            if (7'(i) >= keep) data[8*i +: 8] = 8'd0;
    end

    logic [LONGEST*8-1:0] image;
    localparam int unsigned BEHIND = 8 * (MOST_EXTRA + INLINE);
    logic [BEHIND-1:0] behind;           // the BTH: extended headers, data
    always_comb begin
        behind = '0;
        image = '0;
        image[HEAD*8-1:0] = template_[HEAD*8-1:0];
        image[16*8 +: 16] = be16(ip_len);
        image[24*8 +: 16] = be16(checksum);
        image[38*8 +: 16] = be16(ip_len - 16'd20);
        image[42*8 +: 8]  = opcode;
        image[43*8 +: 8]  = {kind_q == PACKET && flags_q[2], 1'b0, pad, 4'd0};
        image[50*8 +: 8]  = {kind_q == PACKET && flags_q[3], 7'd0};
        image[51*8 +: 8]  = psn_q[23:16];
        image[52*8 +: 16] = be16(psn_q[15:0]);
        case (kind_q)
            PACKET: begin
                // Each header moves back what is behind it.
                if (inline_q) behind[8*INLINE-1:0] = data;
                if (placed) behind = {behind[BEHIND-33:0], be32(placement)};
                if (with_imm) behind = {behind[BEHIND-33:0], be32(message ? imm : imm_q)};
                if (with_reth) behind = {behind[BEHIND-129:0], be32(read_q ? {19'd0, len_q} : whole_len), be32(key),
                                             be32(read_q ? read_va_q[31:0] : va[31:0]), be32(read_q ? read_va_q[63:32] : va[63:32])};
                if (asks) behind = BEHIND'({be64(inline_[127:64]), be64(inline_[63:0]), be32(key), be64(va)});
                image[HEAD*8 +: BEHIND] = behind;
            end
            ANSWER: begin
                image[HEAD*8 +: 32] = be32({ACK_NO_COUNT, msn_q});
                if (answer_atomic_q) image[(HEAD+4)*8 +: 64] = {be32(original_q[31:0]), be32(original_q[63:32])};
            end
            ACK: begin
                image[HEAD*8 +: 32] = be32({syndrome_q, msn_q});
                for (int i = 0; i < 16; i++)
                    if (sack_q) image[(HEAD+4+i)*8 +: 8] = sack_bits_q[127-8*i -: 8];
            end
            default: begin
                if (carrier != berth_row_pkg::CARRIER_REVERSE[1:0])
                    image[47*8 +: 24] = {CONTROL_QPN[7:0], CONTROL_QPN[15:8], CONTROL_QPN[23:16]};
                behind = BEHIND'({number_q, epoch_q, template_[48*8 +: 8], template_[49*8 +: 8], list_words, REC_LIST});
                if (list_written) begin
                    behind = {behind[BEHIND-1-8*RETH_BYTES:0], be32({22'd0, list_words, 2'b00}), be32(berth_regs_pkg::LIST_KEY),
                              be32({7'd0, template_[48*8 +: 8], template_[49*8 +: 8], 9'd0}), be32(qkey)};
                end else begin
                    behind = {behind[BEHIND-1-8*DETH_BYTES:0],
                              be32({8'd0, carrier == berth_row_pkg::CARRIER_REVERSE[1:0] ? 24'(q_q) : CONTROL_QPN}), be32(qkey)};
                end
                image[HEAD*8 +: BEHIND] = behind;
            end
        endcase
    end

    // ---- writing -----------------------------------------------------------------------
    logic [IMAGE-1:0] image_q;
    logic [12:0]   ends_q;               // bytes that the image has
    logic [12:0]   wrote_q;              // bytes written, a multiple of a word
    logic [17:0]   base_q;
    logic [12:0]   tail_q;               // first byte behind the payload
    logic [1:0]    pad_q;
    logic [12:0]   tail_end;
    logic          is_list_q, parts_done, written, word_last, wrote;
    logic [LANES:0] fill_q;              // bytes of a list that are kept for the next word
    logic [6:0]    sizes_q;              // that do not stand in the image yet
    logic [6:0]    tag_w_q;
    logic          in_memory;            // its payload is to be read
    logic          loads;
    logic          full, size_go, size_one;
    assign in_memory  = kind_q == ANSWER || (kind_q == PACKET && !inline_q);
    assign parts_done = left_q == 4'd0 || (left_q == 4'd1 && loads);
    assign at_tag     = tag_q;
    assign tail_end   = tail_q + {11'd0, pad_q};
    assign full       = fill_q[LANES];
    // A list's last bytes wait for its sizes.
    assign word_last  = op_q == PAD ? wrote_q + 13'(BYTES) >= tail_end
                      : op_q == SIZES ? sizes_q == 7'd0 && !(full && fill_q[LANES-1:0] != '0)
                      : wrote_q + 13'(BYTES) >= ends_q && !is_list_q;
    assign hw_valid   = op_q == WRITE || op_q == PAD || (op_q == SIZES && (full || sizes_q == 7'd0));
    assign hw_addr    = base_q + {5'd0, wrote_q};
    assign hw_data    = op_q == PAD ? '0 : image_q[WORD_W-1:0];
    // Bytes of a word from its first one on: up to what ends, which lies behind the word's begin; and spare ones before the pad.
    logic [12:0]    more, spare;
    logic [LANES:0] upto, from;
    assign more   = (op_q == PAD ? tail_end : ends_q) - wrote_q;
    assign spare  = tail_q - wrote_q;
    assign upto   = op_q == SIZES ? fill_q : more[12:LANES] != '0 ? (LANES+1)'(BYTES) : more[LANES:0];
    assign from   = op_q != PAD || spare[12] ? '0 : spare[LANES:0];
    always_comb
        for (int i = 0; i < int'(BYTES); i++) hw_strb[i] = (LANES+1)'(i) < upto && (LANES+1)'(i) >= from;
    assign wrote      = hw_valid && hw_ready;
    // Nothing is left to be written from the next cycle on.
    assign written    = op_q == CLOSE || (wrote && word_last && !(op_q == WRITE && pad_q != 2'd0));
    assign head_valid = written && parts_done;
    assign head_tag   = tag_w_q;
    assign done       = head_valid && head_ready;
    // Few packets take only a part of inline data, so it may be shifted slowly: by eight bytes or by one in a cycle.
    assign moved      = (!inline_q || place_q == 6'd0) && (!read_q || read_ready_q);
    assign go         = make_q && moved && (op_q == FREE || done);

    assign pkt_ready = idle && pick_packet;
    assign rsp_ready = idle && pick_answer;
    assign afr_ready = idle && pick_ack;
    // A size without a list is dropped.
    assign size_go   = op_q == SIZES && !full && sizes_q != 7'd0;
    assign size_one  = sizes_q == 7'd1;
    assign lfr_ready = (idle && pick_list) || size_go;
    assign ctl_pop   = idle && (pick_ack || (pick_list && lfr.first_beat));

    assign reads      = over_q ? 4'd0 : parts_q;
    assign open_valid = go;
    assign open.tag   = tag_q;
    assign open.count = 5'd1 + {1'b0, reads};
    assign open.over  = over_q;
    assign open.bytes = bytes;
    assign open.loop  = loop;
    assign open_q     = q_q;
    assign open.psn   = psn_q;
    assign open.apart = selective && kind_q == PACKET && block_q[LB];      // parts of its own: it goes again
    assign open.answer     = kind_q == ANSWER;
    assign open.answer_tag = answer_tag_q;
    assign open.left.parts = kind_q == ANSWER ? 4'd0 : parts_q;
    assign open.left.block = block_q;
    assign open.left.first = first_q;
    assign open.left.len   = len_q;

    // Reads: beside the header.
    logic [17:0]   local_q;
    logic [7:0]    asid_q;
    // An answer has one part, which came with it.
    logic          answers_q;
    logic [12:0]   answer_len_q;
    logic [63:0]   answer_va_q, answer_va_w_q;
    assign load_valid   = left_q != 4'd0 && (answers_q || part_valid);
    assign loads        = load_valid && load_ready;
    assign part_ready   = loads && !answers_q;
    assign load.reverse = 1'b0;
    assign load.bus     = 1'b0;
    assign load.place   = local_q;
    assign load.len     = answers_q ? answer_len_q : part_data.len;
    assign load.va      = answers_q ? answer_va_w_q : part_data.va;
    assign load.asid    = asid_q;
    assign load.tag     = {1'b0, tag_w_q};

    always_ff @(posedge clk) begin
        ev_ack  <= afr_ready;
        ev_list <= ctl_pop && pick_list;
        // chosen
        if (idle) begin
            kind_q  <= pick_answer ? ANSWER : pick_packet ? PACKET : pick_ack ? ACK : LIST;
            q_q     <= q;
            sack_q  <= afr.has_sack;
            msn_q   <= pick_answer ? rsp.msn : afr.msn;
            {answer_tag_q, answer_asid_q, answer_va_q} <= {rsp.tag, rsp.asid, rsp.va};
            {answer_atomic_q, original_q} <= {rsp.atomic, rsp.original};
            {syndrome_q, sack_bits_q} <= {afr.syndrome, afr.sack};
            {epoch_q, number_q, n_q}  <= {lfr.epoch, lfr.first, lfr.n};
            read_q  <= pick_packet && pkt.read;
            {flags_q, imm_q, placement_q, len_q, inline_q, place_q, block_q, first_q} <=
                {pkt.flags, pkt.imm, pkt.placement, pkt.len, pick_packet && pkt.inlined, pkt.place, pkt.block, pkt.first};
            if (pick_answer) {flags_q, len_q, block_q} <= {2'b00, rsp.ends, rsp.begins, rsp.len, {(LB+1){1'b0}}};
            tag_q   <= pick_answer ? rsp_tag : pick_packet ? pkt.tag : ctl_tag;
            psn_q   <= pick_answer ? rsp.psn : pick_packet ? pkt.psn : pick_ack ? afr.psn : 24'd0;
            parts_q <= pick_answer ? {3'd0, rsp.len != 13'd0} : pick_packet ? pkt.parts : 4'd0;
            over_q  <= pick_packet && pkt.over;
            make_q  <= pick_data || pick_ack || (pick_list && lfr.first_beat);
            if (pick_data || ctl_pop) turn_q <= !pick_data;
            if (pick_data) answer_turn_q <= !pick_answer;
            if (pick_data && since_q != ACK_AFTER) since_q <= since_q + 3'd1;
            if (pick_ack) since_q <= 3'd0;
            if (pick_list && lfr.first_beat) list_q <= lfr.n != 7'd0;
        end
        // A multiple of the MTU behind the READ's begin: not in the clock in which a frame is composed.
        read_va_q    <= va + (64'(placement_q[31:8]) << log2_mtu);
        read_ready_q <= make_q && !idle;
        if (make_q && inline_q && place_q != 6'd0) begin
            kept_q  <= 1'b1;
            data_q  <= place_q[5:3] != 3'd0 ? whole >> 64 : whole >> 8;
            place_q <= place_q - (place_q[5:3] != 3'd0 ? 6'd8 : 6'd1);
        end else if (idle) begin
            kept_q <= 1'b0;
        end
        // written
        if (loads) begin
            left_q  <= left_q - 4'd1;
            local_q <= local_q + {5'd0, load.len};
        end
        if (wrote) begin
            wrote_q <= wrote_q + 13'(BYTES);
            image_q <= image_q >> WORD_W;
        end
        case (op_q)
            WRITE: if (wrote) begin
                fill_q <= (LANES+1)'(ends_q - wrote_q) - (LANES+1)'(BYTES);
                if (is_list_q && wrote_q + 13'(2*BYTES) > ends_q) op_q <= SIZES;
                else if (word_last) begin
                    if (pad_q != 2'd0) wrote_q <= {tail_q[12:LANES], {LANES{1'b0}}};
                    op_q <= pad_q != 2'd0 ? PAD : CLOSE;
                end
            end
            SIZES: begin
                if (wrote) begin
                    fill_q <= full ? fill_q - (LANES+1)'(BYTES) : '0;
                    if (word_last) op_q <= CLOSE;
                end
                if (size_go && lfr_valid) begin
                    for (int i = 2; i < int'(BYTES); i += 4)
                        if (fill_q[LANES-1:0] == LANES'(i)) image_q[8*i +: 64] <= lfr.sizes;
                    fill_q  <= fill_q + (LANES+1)'(size_one ? 4 : 8);
                    sizes_q <= size_one ? 7'd0 : sizes_q - 7'd2;
                    if (size_one || sizes_q == 7'd2) list_q <= 1'b0;
                end
            end
            PAD:     if (wrote && word_last) op_q <= CLOSE;
            default: ;
        endcase
        if (done) op_q <= FREE;
        if (go) begin
            image_q   <= IMAGE'(image);
            base_q    <= at;
            tag_w_q   <= tag_q;
            asid_q    <= kind_q == ANSWER ? answer_asid_q : asid;
            answers_q <= kind_q == ANSWER;
            {answer_len_q, answer_va_w_q} <= {len_q, answer_va_q};
            left_q    <= reads;
            local_q   <= at + {5'd0, head_len};
            ends_q    <= kind_q == LIST ? list_head : in_memory ? head_len : bytes;
            tail_q    <= head_len + payload;
            pad_q     <= in_memory ? pad : 2'd0;
            is_list_q <= kind_q == LIST;
            sizes_q   <= n_q;
            fill_q    <= (LANES+1)'(list_head);
            wrote_q   <= 13'd0;
            op_q      <= kind_q == LIST && 13'(BYTES) > list_head ? SIZES : WRITE;
        end
        if (rst) begin
            op_q    <= FREE;
            make_q  <= 1'b0;
            list_q  <= 1'b0;
            left_q  <= 4'd0;
            turn_q  <= 1'b0;
            answer_turn_q <= 1'b0;
            since_q <= 3'd0;
        end
    end

    logic unused;
    assign unused = &{1'b0, placement_q[31], template_[447:432], spare, element};

    wire unused_cfg = &{1'b0, cfg_queue, cfg_mode};
endmodule
