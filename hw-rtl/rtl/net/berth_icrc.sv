// SPDX-License-Identifier: Apache-2.0 OR MIT
// Invariant CRC of RoCEv2 over a frame that arrives as a stream, one beat per cycle at
// any width. Used by berth_mac_tx to append it and by berth_mac_rx to check it.
//
// The iCRC is a CRC-32 (reflected, polynomial 0x04c11db7, all ones, inverted) over
//   8 bytes 0xff | IPv4 header | UDP header | BTH | payload, pad
// in which the bytes that routers change count as 0xff: TOS, TTL, header checksum, UDP
// checksum and the fifth byte of the BTH. The frame begins with a 14-byte Ethernet
// header; so frame bytes 6 to 13 stand for the 8 bytes 0xff, and bytes 0 to 5 count as
// zero with a start value that becomes all-ones after six zero bytes.
//
// A pipeline of DELAY stages. A CRC is linear, so a whole beat is one constant matrix
// over its bits, and only the 32 bits of the state are in a loop. A beat that is not full
// is filled up with zeros, and the CRC is taken back over them afterwards, which is
// one constant matrix per bit of their number:
//
//   1 bytes that count    2 matrix of the beat    3 state    4, 5 back over the zeros

module berth_icrc #(
    parameter DATA_W = 64  // bits of a beat, 64 to 512
) (
    input  logic                      clk,
    input  logic                      go,        // all stages move

    // a beat, taken with `go`; `in_bytes` of its bytes count (from lane 0): all of them, then
    // in one beat some, then none
    input  logic                      in_valid,
    input  logic                      in_first,  // first beat of the frame
    input  logic [DATA_W-1:0]         in_data,
    input  logic [$clog2(DATA_W/8):0] in_bytes,

    // CRC up to the beat that was taken DELAY moves ago, if there was one; sent least
    // significant byte first
    output logic [31:0]               crc
);
    localparam BYTES = DATA_W / 8;
    localparam LB    = $clog2(BYTES);
    localparam LOW   = LB / 2;            // steps back in stage 4; the others in stage 5
    localparam BEATS = 64 / BYTES;        // beats that hold the headers
    localparam [31:0] POLY  = 32'hedb8_8320;
    localparam [31:0] START = 32'haf4c_9d16;  // becomes all-ones after 6 zero bytes

    // bytes 6-13, TOS 15, TTL 22, IPv4 checksum 24-25, UDP checksum 40-41, BTH byte 4 = 46
    localparam [63:0] ONES = 64'h0000_4300_0340_bfc0;
    localparam [63:0] ZERO = 64'h0000_0000_0000_003f;

    // ---- matrices ----------------------------------------------------------------------
    // The state after one more bit that is zero, and before it.
    function automatic logic [31:0] forth(input logic [31:0] s);
        forth = s[0] ? (s >> 1) ^ POLY : s >> 1;
    endfunction

    function automatic logic [31:0] back(input logic [31:0] s);
        back = s[31] ? ((s ^ POLY) << 1) | 32'd1 : s << 1;
    endfunction

    // Row i: which bits of a beat bit i of the state depends on. A data bit does to the
    // state what the state's own bit at that place does.
    function automatic logic [32*DATA_W-1:0] beat_rows(input logic [31:0] poly);
        logic [31:0] v;
        integer      d;
        integer      i;
        v = poly;
        for (d = DATA_W - 1; d >= 0; d = d - 1) begin
            for (i = 0; i < 32; i = i + 1)
                beat_rows[i*DATA_W + d] = v[i];
            v = forth(v);
        end
    endfunction

    // Matrix j, row i: which bits of the state bit i of the state 2^j bytes earlier depends on.
    function automatic logic [LB*32*32-1:0] back_rows(input logic [31:0] one);
        logic [31:0] v;
        integer      j;
        integer      k;
        integer      i;
        for (j = 0; j < LB; j = j + 1)
            for (k = 0; k < 32; k = k + 1) begin
                v = one << k;
                for (i = 0; i < 8 << j; i = i + 1)
                    v = back(v);
                for (i = 0; i < 32; i = i + 1)
                    back_rows[(j*32 + i)*32 + k] = v[i];
            end
    endfunction

    function automatic logic [31:0] after_zeros(input logic [31:0] s);
        integer i;
        after_zeros = s;
        for (i = 0; i < DATA_W; i = i + 1)
            after_zeros = forth(after_zeros);
    endfunction

    localparam [32*DATA_W-1:0] ROWS        = beat_rows(POLY);
    localparam [LB*32*32-1:0]  BACK        = back_rows(32'd1);
    localparam [31:0]          FIRST_STATE = after_zeros(START);

    function automatic logic [31:0] earlier(input integer j, input logic [31:0] s);
        integer i;
        for (i = 0; i < 32; i = i + 1)
            earlier[i] = ^(BACK[(j*32 + i)*32 +: 32] & s);
    endfunction

    // ---- 1: bytes that count -----------------------------------------------------------
    logic [3:0]        beat_q;     // index of the next beat, stays at BEATS
    logic [3:0]        index;
    logic [BYTES-1:0]  ones, zero, keep;
    logic [DATA_W-1:0] masked;
    assign index = in_first ? 4'd0 : beat_q;
    assign ones  = BYTES'(ONES >> (7'(index) * 7'(BYTES)));
    assign zero  = BYTES'(ZERO >> (7'(index) * 7'(BYTES)));
    assign keep  = ~({BYTES{1'b1}} << in_bytes);

    always_comb begin
        for (int i = 0; i < BYTES; i++)
            masked[8*i +: 8] = !keep[i] || zero[i] ? 8'h00 : ones[i] ? 8'hff : in_data[8*i +: 8];
    end

    logic              v1_q, first1_q;
    logic [LB-1:0]     fill1_q;    // zeros in the beat
    logic [DATA_W-1:0] data1_q;
    logic              v2_q, first2_q;
    logic [LB-1:0]     fill2_q;
    logic [31:0]       part2_q;
    logic [LB-1:0]     fill3_q;
    logic [31:0]       state3_q;
    logic [LB-1:LOW]   fill4_q;
    logic [31:0]       state4_q;
    logic [31:0]       state5_q;

    // ---- 2: matrix of the beat; 3: state -------------------------------------------------
    logic [31:0] part, state;
    always_comb begin
        for (int i = 0; i < 32; i++) begin
            part[i]  = ^(ROWS[i*DATA_W +: DATA_W] & data1_q);
            state[i] = ^(ROWS[i*DATA_W +: 32] & state3_q);
        end
    end

    // ---- 4, 5: back over the zeros -------------------------------------------------------
    logic [31:0] state4, state5;
    always_comb begin
        state4 = state3_q;
        for (int j = 0; j < LOW; j++)
            if (fill3_q[j]) state4 = earlier(j, state4);
        state5 = state4_q;
        for (int j = LOW; j < LB; j++)
            if (fill4_q[j]) state5 = earlier(j, state5);
    end

    assign crc = ~state5_q;

    always_ff @(posedge clk) if (go) begin
        v1_q     <= in_valid && in_bytes != '0;
        first1_q <= in_first;
        fill1_q  <= LB'(BYTES[LB:0] - in_bytes);
        data1_q  <= masked;
        if (in_valid)
            beat_q <= index == BEATS[3:0] ? index : index + 4'd1;

        v2_q     <= v1_q;
        first2_q <= first1_q;
        fill2_q  <= fill1_q;
        part2_q  <= part;

        if (v2_q) begin
            state3_q <= (first2_q ? FIRST_STATE : state) ^ part2_q;
            fill3_q  <= fill2_q;
        end

        state4_q <= state4;
        fill4_q  <= fill3_q[LB-1:LOW];
        state5_q <= state5;
    end
endmodule
