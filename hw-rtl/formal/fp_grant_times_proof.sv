// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a bound with a `most` comes to in berth_fp_grant (docs/internals/receiving.md, "A bound of granted memory"), for any row:
// * As many bytes as `limit` has, and, up to `most`, a sixteenth less than the wire carries in round trip and service, whole
//   pages of it, less what the cards need themselves; whole blocks of 64 KiB, if `limit` has one.
// * Of the list whose data come, what is still to come when what is asked for now is there: the wire carries a 32nd less than it
//   could, at most 4095 units long, and the host takes a service and LATE units.
// Without overflow, for all numbers and times.
module fp_grant_times_proof (
    input logic clk
);
    `include "fp_grant_around.svh"
    (* hierconn *) wire [31:0] \dut.may_hold ;
    (* hierconn *) wire [31:0] \dut.to_come ;
    localparam UNIT = DATA_W / 8 * 64;                      // bytes that the wire carries in a unit of time, which has 64 clocks
    localparam CARDS = 512 / 64 + 2 * 4096 / UNIT, LATE = 7, LONG = 4095;
    row_t        r_q;
    logic [39:0] both, times, carried, bound, since, passed, came;
    always_comb begin
        r_q     = \dut.r_q ;
        both    = 40'(r_q.round) + 40'(r_q.serve >> 11);
        times   = r_q.round != '0 && both > 40'(CARDS) ? both - 40'(CARDS) : '0;
        carried = times * 40'(UNIT * 15 / 16) >> 12;
        bound   = (40'(r_q.limit) + (carried < 40'(r_q.most) ? carried : 40'(r_q.most))) << 12;
        if (r_q.limit >= 16'd16) bound[15:0] = '0;
        since   = 40'(32'(now - r_q.since)) + 40'(r_q.serve >> 11);
        passed  = since < 40'(LATE) ? '0 : since - 40'(LATE) < 40'(LONG) ? since - 40'(LATE) : 40'(LONG);
        came    = passed * 40'(UNIT * 31 / 32);
    end
    always_comb begin
        assert (40'(\dut.may_hold ) == (r_q.most == '0 ? 40'(r_q.limit) << 12 : bound));
        // Times that differ by 2^32 units are not told apart.
        assert (since >> 32 != '0 || 40'(\dut.to_come ) == (came < 40'(r_q.older) ? 40'(r_q.older) - came : '0));
    end
endmodule
