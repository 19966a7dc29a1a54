// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pages that one DMA engine has looked up last, between it and the translation table: messages of a few bytes mostly lie in
// pages that those before them lay in, and every look-up less is a use of a range more.
//
// A page has one place here, by its number. An answer from here comes in the clock behind the question; else the table is asked
// from then on, or at once while nothing is here. Any change of the table empties all places, and no answer is given from here
// in a clock in which the table may change. So every answer is what the table says in that clock.
module berth_xlt_recent #(
    // Pages, a power of two from 2 to 256.
    parameter int unsigned PAGES = 16
) (
    input  logic        clk,
    input  logic        rst,
    // The table may change, or is not there.
    input  logic        changing,
    // Look-ups of the engine: req, address space and page are held until ack.
    input  logic        lk_req,
    input  logic [ 7:0] lk_asid,
    input  logic [51:0] lk_vpn,
    output logic        lk_ack,
    output logic        lk_hit,
    output logic [51:0] lk_page,
    // Of address space and page as they are, to the table.
    output logic        ask_req,
    input  logic        ask_ack,
    input  logic        ask_hit,
    input  logic [51:0] ask_page
);
  localparam int unsigned LP = $clog2(PAGES);

  logic [PAGES-1:0] valid_q;
  logic [LP-1:0] at;
  logic [7:0] asid;
  logic [51:0] vpn, page, page_q;
  logic looked_q, match_q;   // it has been compared; it is here
  logic empty_q;             // all places are
  assign at = lk_vpn[LP-1:0] ^ lk_asid[LP-1:0];

  logic [8+52+52-1:0] pages[PAGES];
  assign {asid, vpn, page} = pages[at];
  wire fill = ask_ack && ask_hit;
  always_ff @(posedge clk) if (fill) pages[at] <= {lk_asid, lk_vpn, ask_page};

  wire here = match_q && !changing;
  assign ask_req = lk_req && (looked_q ? !match_q : empty_q);
  assign lk_ack  = here || ask_ack;
  assign lk_hit  = here || ask_hit;
  assign lk_page = here ? page_q : ask_page;

  always_ff @(posedge clk) begin
    looked_q <= lk_req && !lk_ack;
    match_q  <= lk_req && !looked_q && !changing && valid_q[at] && {asid, vpn} == {lk_asid, lk_vpn};
    page_q   <= page;
    if (fill) begin
      valid_q[at] <= 1'b1;
      empty_q     <= 1'b0;
    end
    if (changing || rst) begin
      valid_q <= '0;
      empty_q <= 1'b1;
    end
    if (rst) {looked_q, match_q} <= 2'b00;
  end
endmodule
