// SPDX-License-Identifier: Apache-2.0 OR MIT
// No client of berth_wr_arb is passed by: while it waits and may begin, each other one begins at most one packet. So the
// fence's token is in the port after at most three packets of others, one of them of posted write data.
module wr_turn_proof #(
    parameter N = 4
) (
    input logic         clk,
    input logic         rst_in,
    input logic [N-1:0] allow, s_valid, s_last,
    input logic         hwr_ready
);
    localparam DATA_W = 8;
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic [N-1:0] s_ready;
    logic         hwr_valid;
    berth_card_pkg::host_write_t hwr;
    berth_wr_arb #(.DATA_W(DATA_W), .N(N)) dut (.clk(clk), .rst(rst), .allow(allow), .s_valid(s_valid), .s_ready(s_ready),
        .s_addr('0), .s_len({N{13'd1}}), .s_data('0), .s_last(s_last),
        .hwr_valid(hwr_valid), .hwr_ready(hwr_ready), .hwr(hwr));

    // A client, and who has begun a packet since it waits.
    (* anyconst *) logic [1:0] the;
    wire          waits = s_valid[the] && allow[the] && !rst;
    logic [N-1:0] been_q;
    wire  [N-1:0] begins = hwr.first ? s_ready : '0;
    logic [N-1:0] kept_q, last_q;
    always_ff @(posedge clk) begin
        been_q <= waits && !begins[the] ? been_q | begins : '0;
        kept_q <= rst ? '0 : s_valid & ~s_ready;
        last_q <= s_last;
    end
    // A beat stays until it is taken.
    always_comb for (int i = 0; i < N; i++) assume (!kept_q[i] || (s_valid[i] && s_last[i] == last_q[i]));
    always_ff @(posedge clk) if (!rst && waits) assert ((been_q & begins) == '0);
endmodule
