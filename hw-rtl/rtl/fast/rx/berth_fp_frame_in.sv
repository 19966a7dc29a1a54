// SPDX-License-Identifier: Apache-2.0 OR MIT
// Frames from the MAC, by what they are for: good SENDs, WRITEs, READs and atomics of a connected fast QP go on to arrival, good
// ACKs, answers to READs and credit lists to the transmit half, all others to the core, which judges them itself. Under selective
// repeat each packet of a WRITE has the RETH of the whole message, else only the first one has it. Answers are those of Berth cards.
//
// Two stages, one frame per cycle: fields and the row of the QP; judgement. A frame waits only for its own way out.
module berth_fp_frame_in #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic                     clk,
    input  logic                     rst,
    // Names of this card and of its QPs' peers.
    input  logic [47:0]              own_mac,       // first byte of the address in bits 47:40
    input  logic [31:0]              own_ip,
    input  logic                     row_we,
    input  logic [QW-1:0]            row_q,
    input  berth_card_pkg::peer_t    row,
    input  logic                     row_start,     // `st_heard` begins
    input  logic [31:0]              now,
    // When a good frame of QP `ask_q` last came, two clocks later.
    input  logic [QW-1:0]            ask_q,
    output logic [31:0]              st_heard,
    output logic                     parse_passed,  // no frame is left that was judged by an earlier row
    // Good frames from the MAC.
    input  logic                     rf_valid,
    output logic                     rf_ready,
    input  berth_card_pkg::frame_t   rf,
    input  logic [8*96-1:0]          rf_hdr,
    // SENDs, WRITEs, READs and atomics; the operands of an atomic.
    output logic                     in_valid,
    input  logic                     in_ready,
    output logic [QW-1:0]            in_q,
    output berth_card_pkg::arrival_t in,
    output logic [127:0]             in_operands,
    // ACKs, NAKs; the frame is given back.
    output logic                     ack_valid,
    input  logic                     ack_ready,
    output logic [QW-1:0]            ack_q,
    output berth_card_pkg::ack_t     ack,
    output logic                     in_free_valid,
    output logic [17:0]              in_free_place,
    // Answers to READs.
    output logic                     ans_valid,
    input  logic                     ans_ready,
    output logic [QW-1:0]            ans_q,
    output berth_card_pkg::answer_t  ans,
    // Credit lists.
    output logic                     list_valid,
    input  logic                     list_ready,
    output logic [QW-1:0]            list_q,
    output berth_card_pkg::list_in_t list,
    // All others.
    output logic                     cf_valid,
    input  logic                     cf_ready,
    output berth_card_pkg::frame_t   cf,
    output logic [8*96-1:0]          cf_hdr         // its first bytes
);
  // Formats: offsets in the frame.
  localparam int unsigned AT_BTH = 42;
  localparam int unsigned AT_EXT = 54;           // extended headers, behind the BTH
  localparam int unsigned DETH_BYTES = 8;
  localparam logic [12:0] LEAST = 13'd58;        // headers and iCRC of a frame without extended headers
  localparam logic [7:0] SEND_FIRST = berth_regs_pkg::BTH_SEND_FIRST[7:0];
  localparam logic [7:0] SEND_MIDDLE = berth_regs_pkg::BTH_SEND_MIDDLE[7:0];
  localparam logic [7:0] SEND_LAST_IMM = berth_regs_pkg::BTH_SEND_LAST_IMM[7:0];
  localparam logic [7:0] SEND_ONLY = berth_regs_pkg::BTH_SEND_ONLY[7:0];
  localparam logic [7:0] SEND_ONLY_IMM = berth_regs_pkg::BTH_SEND_ONLY_IMM[7:0];
  localparam logic [7:0] SEND_LAST_INVALIDATE = berth_regs_pkg::BTH_SEND_LAST_INVALIDATE[7:0];
  localparam logic [7:0] SEND_ONLY_INVALIDATE = berth_regs_pkg::BTH_SEND_ONLY_INVALIDATE[7:0];
  localparam logic [7:0] WRITE_FIRST = berth_regs_pkg::BTH_WRITE_FIRST[7:0];
  localparam logic [7:0] WRITE_MIDDLE = berth_regs_pkg::BTH_WRITE_MIDDLE[7:0];
  localparam logic [7:0] WRITE_LAST_IMM = berth_regs_pkg::BTH_WRITE_LAST_IMM[7:0];
  localparam logic [7:0] WRITE_ONLY = berth_regs_pkg::BTH_WRITE_ONLY[7:0];
  localparam logic [7:0] WRITE_ONLY_IMM = berth_regs_pkg::BTH_WRITE_ONLY_IMM[7:0];
  localparam logic [7:0] READ_RESPONSE_FIRST = berth_regs_pkg::BTH_READ_RESPONSE_FIRST[7:0];
  localparam logic [7:0] READ_RESPONSE_MIDDLE = berth_regs_pkg::BTH_READ_RESPONSE_MIDDLE[7:0];
  localparam logic [7:0] READ_RESPONSE_ONLY = berth_regs_pkg::BTH_READ_RESPONSE_ONLY[7:0];
  localparam logic [7:0] ATOMIC_ACKNOWLEDGE = berth_regs_pkg::BTH_ATOMIC_ACKNOWLEDGE[7:0];
  localparam logic [7:0] READ_REQUEST = berth_regs_pkg::BTH_READ_REQUEST[7:0];
  localparam logic [7:0] CMP_SWAP = berth_regs_pkg::BTH_CMP_SWAP[7:0];
  localparam logic [7:0] FETCH_ADD = berth_regs_pkg::BTH_FETCH_ADD[7:0];
  localparam int unsigned RETH_BYTES = 16;
  localparam int unsigned ATOMIC_ETH_BYTES = 28;
  localparam int unsigned AETH_BYTES = 4;
  localparam logic [7:0] ACKNOWLEDGE = berth_regs_pkg::BTH_ACKNOWLEDGE[7:0];
  localparam logic [7:0] SELECTIVE_ACKNOWLEDGE = berth_regs_pkg::BTH_SELECTIVE_ACKNOWLEDGE[7:0];
  localparam logic [7:0] UD_SEND_ONLY = berth_regs_pkg::BTH_UD_SEND_ONLY[7:0];
  localparam logic [7:0] UC_WRITE_ONLY = berth_regs_pkg::BTH_UC_WRITE_ONLY[7:0];
  localparam logic [15:0] DEFAULT_PKEY = 16'hffff;
  initial if (berth_regs_pkg::LIST_SLOT != 512) $fatal(1, "berth_fp_frame_in: a slot of the window for lists has 512 bytes");
  localparam logic [7:0] REC_LIST = berth_regs_pkg::REC_LIST[7:0];
  // Placement header: index in the piece in bits 31:9, bit 8 always 1, low byte of the credit's number in 7:0.
  localparam int unsigned PLACEMENT_BYTES = 4;
  localparam int unsigned SACK_BYTES = 16;

  function automatic logic [7:0] b8(input logic [8*96-1:0] h, input int unsigned n);
    b8 = h[8*n+:8];
  endfunction
  function automatic logic [15:0] b16(input logic [8*96-1:0] h, input int unsigned n);
    b16 = {h[8*n+:8], h[8*n+8+:8]};
  endfunction
  function automatic logic [31:0] b32(input logic [8*96-1:0] h, input int unsigned n);
    b32 = {h[8*n+:8], h[8*n+8+:8], h[8*n+16+:8], h[8*n+24+:8]};
  endfunction

  // ---- 1: fields that need no row -------------------------------------------------------
  logic only, reth;    // a WRITE in one packet; one that says where all of it goes
  logic roce, a_list, in_window, to_control, send, invalidate, write, read, atomic, an_ack, answer;
  logic [7:0] opcode;
  logic [15:0] ip_len;
  logic [19:0] sum;
  logic [23:0] qpn;
  assign opcode = b8(rf_hdr, AT_BTH);
  assign ip_len = b16(rf_hdr, 16);
  assign invalidate = opcode == SEND_LAST_INVALIDATE || opcode == SEND_ONLY_INVALIDATE;
  assign send   = opcode <= SEND_ONLY_IMM || invalidate;
  assign write  = opcode >= WRITE_FIRST && opcode <= WRITE_ONLY_IMM;
  assign only   = opcode == WRITE_ONLY || opcode == WRITE_ONLY_IMM;
  assign reth   = opcode == WRITE_FIRST || only;
  assign atomic = opcode == CMP_SWAP || opcode == FETCH_ADD;
  assign read   = opcode == READ_REQUEST || atomic;
  assign an_ack = opcode == ACKNOWLEDGE || opcode == SELECTIVE_ACKNOWLEDGE;
  assign answer = (opcode >= READ_RESPONSE_FIRST && opcode <= READ_RESPONSE_ONLY) || opcode == ATOMIC_ACKNOWLEDGE;
  // A list is a datagram, or is written to the window for lists (CR-12).
  assign in_window  = opcode == UC_WRITE_ONLY;
  assign a_list     = opcode == UD_SEND_ONLY || in_window;
  assign to_control = {b8(rf_hdr, 47), b16(rf_hdr, 48)} == 24'(berth_regs_pkg::CONTROL_QPN);
  // If that is at the control QP, its QP is named by its record.
  logic [15:0] record_qpn;
  assign record_qpn = rf_hdr[8*(AT_EXT+DETH_BYTES)+16+:16];
  assign qpn    = in_window ? {8'd0, rf_hdr[8*(AT_EXT+RETH_BYTES)+16+:16]} : a_list && to_control ? {8'd0, record_qpn}
                : {b8(rf_hdr, 47), b16(rf_hdr, 48)};

  always_comb begin
    sum = '0;
    for (int unsigned i = 0; i < 10; i++) sum = sum + 20'(b16(rf_hdr, 14 + 2 * i));
    sum = 20'(sum[15:0]) + 20'(sum[19:16]);
    roce = rf.flags[0] && {b16(rf_hdr, 0), b32(rf_hdr, 2)} == own_mac && b32(rf_hdr, 30) == own_ip
        && (sum == 20'h0ffff || sum == 20'h1fffe) && b16(rf_hdr, 38) == ip_len - 16'd20
        && rf_hdr[8*(AT_BTH+1)+:4] == 4'd0 && b16(rf_hdr, 44) == DEFAULT_PKEY
        && (qpn < 24'(QPS)) && (!a_list || to_control || (!in_window && qpn == {8'd0, record_qpn}));
  end

  logic v1_q, roce_q, send_q, write_q, only_q, reth_q, read_q, atomic_q, ack_q1, answer_q1, list_q1, window_q, control_q, imm_q, invalidate_q, step;
  logic [QW-1:0] q_q;
  berth_card_pkg::frame_t frame_q;
  logic [8*96-1:0] h_q;
  assign rf_ready = !v1_q || step;

  // ---- row -----------------------------------------------------------------------------
  berth_card_pkg::peer_t peer;
  berth_fp_mem #(
      .WIDTH($bits(peer)),
      .DEPTH(QPS)
  ) m_rows (
      .clk,
      .we(row_we),
      .waddr(row_q),
      .wdata(row),
      .re(rf_valid && rf_ready),
      .raddr(qpn[QW-1:0]),
      .rdata(peer)
  );

  always_ff @(posedge clk) begin
    if (rf_ready) v1_q <= rf_valid;
    if (rf_valid && rf_ready) begin
      roce_q  <= roce;
      send_q  <= send;
      write_q <= write;
      only_q  <= only;
      reth_q  <= reth;
      read_q  <= read;
      atomic_q <= atomic;
      ack_q1  <= an_ack;
      answer_q1 <= answer;
      list_q1 <= a_list;
      window_q  <= in_window;
      control_q <= to_control;
      imm_q   <= opcode == SEND_LAST_IMM || opcode == SEND_ONLY_IMM || opcode == WRITE_LAST_IMM || opcode == WRITE_ONLY_IMM
              || invalidate;
      invalidate_q <= invalidate;
      q_q     <= qpn[QW-1:0];
      frame_q <= rf;
      h_q     <= rf_hdr;
    end
    if (rst) v1_q <= 1'b0;
  end

  // ---- 2: judgement ----------------------------------------------------------------------
  logic mine, is_send, is_ack, is_answer, is_list;
  logic [1:0] pad;
  logic [12:0] ext, body;     // extended headers; what follows them, without padding
  logic [12:0] list_len;      // of a list: its record
  logic [7:0] op;
  logic [15:0] words;
  logic [95:0] record;        // of a list
  logic list_from;            // it comes from who may send it
  logic begins, ends;
  logic [31:0] imm, placement, whole;
  always_comb begin
    op   = b8(h_q, AT_BTH);
    pad  = h_q[8*(AT_BTH+1)+4+:2];
    mine = roce_q && peer.on && {b16(h_q, 6), b32(h_q, 8)} == peer.mac && b32(h_q, 26) == peer.ip;
    ext  = '0;
    if (send_q || write_q)
      ext = 13'(reth_q ? RETH_BYTES : 0) + 13'(imm_q ? 4 : 0) + 13'(peer.selective ? PLACEMENT_BYTES : 0);
    if (read_q) ext = 13'(atomic_q ? ATOMIC_ETH_BYTES : RETH_BYTES);
    if (ack_q1 || (answer_q1 && op != READ_RESPONSE_MIDDLE)) ext = 13'(AETH_BYTES);
    if (list_q1) ext = 13'(window_q ? RETH_BYTES : DETH_BYTES);
    body    = frame_q.len - LEAST - ext - 13'(pad);
    // what a frame carries is a multiple of 4 bytes, with its padding
    mine    = mine && frame_q.len >= LEAST + ext + 13'(pad) && 2'(frame_q.len - LEAST - ext) == 2'd0;
    is_send = mine && ((send_q && (!peer.selective || placement[8]))
                       || (peer.remote && write_q && !(reth_q && whole[31]) && (!peer.selective || (placement[8] && only_q)))
                       || (peer.remote && read_q && !whole[31] && peer.reads && body == '0 && pad == '0));
    is_ack  = mine && ack_q1 && pad == '0
           && (op == ACKNOWLEDGE ? body == '0 : peer.selective && body == 13'(SACK_BYTES));
    is_answer = mine && answer_q1 && (peer.selective || peer.remote);
    record  = window_q ? h_q[8*(AT_EXT+RETH_BYTES)+:96] : h_q[8*(AT_EXT+DETH_BYTES)+:96];
    words   = {8'd0, record[15:8]};
    // As `body`, but the row has no part in it.
    list_len = frame_q.len - LEAST - 13'(window_q ? RETH_BYTES : DETH_BYTES);
    // In the reverse direction of a connection any QP of the peer's may be named: its Q_Key is the connection's.
    list_from = window_q ? b32(h_q, AT_EXT + 4) == {7'd0, record[31:16], 9'd0} && b32(h_q, AT_EXT + 8) == berth_regs_pkg::LIST_KEY
                           && b32(h_q, AT_EXT + 12) == {14'd0, words, 2'b00}
              : !control_q || {b8(h_q, AT_EXT + 5), b16(h_q, AT_EXT + 6)} == 24'(berth_regs_pkg::CONTROL_QPN);
    is_list = mine && list_q1 && record[7:0] == REC_LIST && pad == '0 && words >= 16'd4
           && words <= 16'd67 && list_len == {words[10:0], 2'b00} && record[63:32] == peer.epoch
           && b32(h_q, AT_EXT) == peer.qkey && list_from;
  end

  assign begins    = op == SEND_FIRST || op == SEND_ONLY || op == SEND_ONLY_IMM || op == SEND_ONLY_INVALIDATE || reth_q || read_q;
  assign ends      = op != SEND_FIRST && op != SEND_MIDDLE && op != WRITE_FIRST && op != WRITE_MIDDLE;
  assign imm       = reth_q ? b32(h_q, AT_EXT + RETH_BYTES) : b32(h_q, AT_EXT);
  assign placement = reth_q ? (imm_q ? b32(h_q, AT_EXT + RETH_BYTES + 4) : b32(h_q, AT_EXT + RETH_BYTES))
                   : imm_q ? b32(h_q, AT_EXT + 4) : b32(h_q, AT_EXT);
  assign whole     = atomic_q ? 32'd8 : b32(h_q, AT_EXT + 12);

  assign in_valid     = v1_q && is_send;
  assign in_q         = q_q;
  assign in.psn       = {b8(h_q, 51), b16(h_q, 52)};
  assign in.begins    = begins;
  assign in.ends      = ends;
  assign in.has_imm   = imm_q && !invalidate_q;
  assign in.invalidate = invalidate_q;
  assign in.solicited = h_q[8*(AT_BTH+1)+7];
  assign in.ack       = h_q[8*50+7];
  assign in.imm       = imm;
  assign in.index     = read_q || !peer.selective ? '0 : {1'b0, placement[31:9]};
  assign in.credit    = placement[7:0];
  assign in.len       = body;
  assign in.payload   = frame_q.place + 18'(AT_EXT) + 18'(ext);
  assign in.frame     = frame_q.place;
  assign in.asid      = peer.asid;
  assign in.write     = write_q;
  assign in.read      = read_q;
  assign in.atomic    = !atomic_q ? berth_row_pkg::ATOMIC_NONE : op == FETCH_ADD ? berth_row_pkg::ATOMIC_ADD : berth_row_pkg::ATOMIC_SWAP;
  assign in_operands  = {b32(h_q, AT_EXT + 12), b32(h_q, AT_EXT + 16), b32(h_q, AT_EXT + 20), b32(h_q, AT_EXT + 24)};
  assign in.va        = {b32(h_q, AT_EXT), b32(h_q, AT_EXT + 4)};
  assign in.key       = b32(h_q, AT_EXT + 8);
  assign in.whole     = whole;
  assign in.log2_mtu  = peer.log2_mtu;
  assign in.domain    = peer.domain;
  assign in.refusal   = berth_row_pkg::KEY_OK;
  assign in.one_shot  = 1'b0;
  assign in.absent    = 1'b0;
  assign in.held      = 1'b0;
  assign ack_valid    = v1_q && is_ack;
  assign ack_q        = q_q;
  assign ack.psn      = {b8(h_q, 51), b16(h_q, 52)};
  assign ack.msn      = {b8(h_q, AT_EXT + 1), b16(h_q, AT_EXT + 2)};
  assign ack.syndrome = b8(h_q, AT_EXT);
  assign ack.has_sack = body != '0;
  assign ack.sack     = {b32(h_q, AT_EXT + 4), b32(h_q, AT_EXT + 8), b32(h_q, AT_EXT + 12), b32(h_q, AT_EXT + 16)};
  assign in_free_valid = ack_valid && ack_ready;
  assign in_free_place = frame_q.place;
  assign ans_valid    = v1_q && is_answer;
  assign ans_q        = q_q;
  assign ans.psn      = {b8(h_q, 51), b16(h_q, 52)};
  assign ans.atomic   = op == ATOMIC_ACKNOWLEDGE;
  assign ans.len      = body;
  assign ans.payload  = frame_q.place + 18'(AT_EXT) + 18'(ext);
  assign ans.frame    = frame_q.place;
  assign list_valid   = v1_q && is_list;
  assign list_q       = q_q;
  assign list.first   = record[95:64];
  assign list.n       = 7'(words - 16'd3);
  assign list.frame   = frame_q.place;
  assign list.window  = window_q;
  assign cf_valid     = v1_q && !is_send && !is_ack && !is_answer && !is_list;
  assign cf           = frame_q;
  assign cf_hdr       = h_q;
  assign step         = (in_valid && in_ready) || in_free_valid || (ans_valid && ans_ready) || (list_valid && list_ready) || (cf_valid && cf_ready);

  assign parse_passed       = !v1_q || step;

  logic heard_we;
  assign heard_we = row_start || (step && !cf_valid);
  berth_fp_mem #(
      .WIDTH(32),
      .DEPTH(QPS)
  ) m_heard (
      .clk,
      .we(heard_we),
      .waddr(row_start ? row_q : q_q),
      .wdata(now),
      .re(1'b1),
      .raddr(ask_q),
      .rdata(st_heard)
  );

  // A frame has one way out.
  always_ff @(posedge clk)
    if (!rst && v1_q) assert (32'(in_valid) + 32'(ack_valid) + 32'(ans_valid) + 32'(list_valid) + 32'(cf_valid) == 1);
endmodule
