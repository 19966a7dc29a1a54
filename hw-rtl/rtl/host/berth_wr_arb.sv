// SPDX-License-Identifier: Apache-2.0 OR MIT
// One in-order way to the host's posted write port for DMA data, events, completions and fence tokens.
module berth_wr_arb #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64,
    // Clients.
    parameter int unsigned N = 4
) (
    input  logic                clk,
    input  logic                rst,
    // Bit i: client i may begin a packet now (one that has begun always ends).
    input  logic [N-1:0]        allow,
    // Clients: addr and len are meaningful on a packet's first beat; valid stays until ready.
    input  logic [N-1:0]        s_valid,
    output logic [N-1:0]        s_ready,
    input  logic [N*64-1:0]     s_addr,
    input  logic [N*13-1:0]     s_len,
    input  logic [N*DATA_W-1:0] s_data,
    input  logic [N-1:0]        s_last,
    // Posted write port of the host.
    output logic                hwr_valid,
    input  logic                hwr_ready,
    output berth_card_pkg::host_write_t hwr,
    output logic [DATA_W-1:0]   hwr_data,
    // A packet is under way.
    output logic                busy
);
  localparam int unsigned SW = $clog2(N);

  logic lock_q, first_q;
  logic [SW-1:0] sel_q, sel, pick, k;
  logic any;

  // Round robin from packet to packet, without a cycle in between. A beat that is shown to the host stays until it is
  // taken, so a choice holds until the packet's end.
  always_comb begin
    any  = 1'b0;
    pick = '0;
    k    = '0;
    for (int unsigned i = N; i > 0; i--) begin
      k = SW'(32'(sel_q) + i);
      if (s_valid[k] && allow[k]) begin
        any  = 1'b1;
        pick = k;
      end
    end
  end
  assign sel = lock_q ? sel_q : pick;

  assign hwr_valid = lock_q ? s_valid[sel_q] : any;
  assign hwr.addr  = s_addr[32'(sel)*64+:64];
  assign hwr.len   = s_len[32'(sel)*13+:13];
  assign hwr_data  = s_data[32'(sel)*DATA_W+:DATA_W];
  assign hwr.last  = s_last[sel];
  assign hwr.first = first_q;
  assign s_ready   = (hwr_valid && hwr_ready) ? N'(1) << sel : '0;
  assign busy      = lock_q;

  always_ff @(posedge clk) begin
    if (hwr_valid) begin
      sel_q  <= sel;
      lock_q <= !(hwr_ready && hwr.last);
      if (hwr_ready) first_q <= hwr.last;
    end
    if (rst) begin
      lock_q  <= 1'b0;
      first_q <= 1'b1;
      sel_q   <= '0;
    end
  end

  // No packet crosses a 4 KiB boundary or is empty.
  always_ff @(posedge clk)
    if (!rst && hwr_valid && hwr.first)
      assert (hwr.len != 0 && 14'(hwr.addr[11:0]) + 14'(hwr.len) <= 14'h1000);
endmodule
