// SPDX-License-Identifier: Apache-2.0 OR MIT
// Invariant CRC of RoCEv2 over a frame that arrives as a stream, one beat per cycle.
// Used by berth_mac_tx to append it and by berth_mac_rx to check it.
//
// The iCRC is a CRC-32 (reflected, polynomial 0x04c11db7, all ones, inverted) over
//   8 bytes 0xff | IPv4 header | UDP header | BTH | payload, pad
// in which the bytes that routers change count as 0xff: TOS, TTL, header checksum, UDP
// checksum and the fifth byte of the BTH. The frame begins with a 14-byte Ethernet
// header; so frame bytes 6 to 13 stand for the 8 bytes 0xff, and bytes 0 to 5 count as
// zero with a start value that becomes all-ones after six zero bytes.

module berth_icrc #(
    parameter DATA_W = 64  // bits of a beat
) (
    input  logic                      clk,

    // a beat; `in_bytes` of its bytes count (from lane 0), 0 is legal
    input  logic                      in_valid,
    input  logic                      in_first,  // first beat of the frame
    input  logic [DATA_W-1:0]         in_data,
    input  logic [$clog2(DATA_W/8):0] in_bytes,

    // CRC of all beats so far, from the cycle after `in_valid` on; sent least significant byte first
    output logic [31:0]               crc
);
    localparam BYTES   = DATA_W / 8;
    localparam HEADER  = 64;              // bytes in which masking happens, rounded up
    localparam BEATS   = HEADER / BYTES;  // beats that hold them
    localparam [31:0] START = 32'haf4c_9d16;  // becomes all-ones after 6 zero bytes

    // bytes 6-13, TOS 15, TTL 22, IPv4 checksum 24-25, UDP checksum 40-41, BTH byte 4 = 46
    localparam [63:0] ONES = 64'h0000_4300_0340_bfc0;
    localparam [63:0] ZERO = 64'h0000_0000_0000_003f;

    logic [31:0]                crc_q;
    logic [$clog2(BEATS+1)-1:0] beat_q;   // index of the next beat, stays at BEATS

    assign crc = ~crc_q;

    function automatic logic [31:0] step(input logic [31:0] state, input logic [7:0] data);
        logic [31:0] s;
        integer      i;
        s = state ^ {24'd0, data};
        for (i = 0; i < 8; i++)
            s = s[0] ? (s >> 1) ^ 32'hedb8_8320 : s >> 1;
        step = s;
    endfunction

    function automatic logic [31:0] beat(input logic [31:0] state, input logic [DATA_W-1:0] data,
            input logic [BYTES-1:0] ones, input logic [BYTES-1:0] zero, input logic [$clog2(BYTES):0] n);
        logic [31:0] s;
        integer      i;
        s = state;
        for (i = 0; i < BYTES; i++)
            if (i[$clog2(BYTES):0] < n)
                s = step(s, zero[i] ? 8'h00 : ones[i] ? 8'hff : data[8*i +: 8]);
        beat = s;
    endfunction

    logic [$clog2(BEATS+1)-1:0] index;
    logic [BYTES-1:0]           ones;
    logic [BYTES-1:0]           zero;
    assign index = in_first ? '0 : beat_q;
    assign ones  = index == BEATS[$clog2(BEATS+1)-1:0] ? '0
                 : ONES[{index[$clog2(BEATS)-1:0], {$clog2(BYTES){1'b0}}} +: BYTES];
    assign zero  = index == '0 ? ZERO[BYTES-1:0] : '0;

    always_ff @(posedge clk) begin
        if (in_valid) begin
            crc_q <= beat(in_first ? START : crc_q, in_data, ones, zero, in_bytes);
            if (index != BEATS[$clog2(BEATS+1)-1:0])
                beat_q <= index + 1'b1;
            else
                beat_q <= index;
        end
    end
endmodule
