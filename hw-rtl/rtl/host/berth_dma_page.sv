// SPDX-License-Identifier: Apache-2.0 OR MIT
// Front of the DMA engines: cuts commands at the ends of pages and looks virtual pages up, one page
// ahead of the engine, so that small commands need not wait for each other's look-ups.
module berth_dma_page #(
    // Bits that come with a command and leave with each of its pieces.
    parameter int unsigned INFO = 16
) (
    input  logic            clk,
    input  logic            rst,
    // Commands; bad ones only get their status.
    input  logic            cmd_valid,
    output logic            cmd_ready,
    input  berth_card_pkg::page_command_t cmd,
    input  logic [INFO-1:0] cmd_info,
    // Control: no new page while hold, and no status of a bad command, because bad commands may come without end.
    input  logic            enable,
    input  logic            hold,
    output logic            quiet,     // nothing is being looked up or has been and was not taken
    output logic            busy,
    // Look-up of a virtual page.
    output logic            lk_req,
    output logic [ 7:0]     lk_asid,
    output logic [51:0]     lk_vpn,
    input  logic            lk_ack,
    input  logic            lk_hit,
    input  logic [51:0]     lk_page,
    // Pieces: within a page, or of no bytes and with the status of a command that goes no further.
    output logic            pg_valid,
    input  logic            pg_ready,
    output berth_card_pkg::page_part_t pg,
    output logic [INFO-1:0] pg_info,
    // Pulse for the counters.
    output logic            inc_no_translation
);
  localparam logic [1:0] OK = berth_regs_pkg::DMA_OK[1:0];

  logic active_q, looking_q, first_q, virt_q, bad_q, out_q;
  logic [18:0] local_q;
  logic [12:0] left_q;
  logic [63:0] addr_q;
  logic [7:0] asid_q;
  logic [INFO-1:0] info_q;

  wire [12:0] page_left = 13'h1000 - {1'b0, addr_q[11:0]};
  wire [12:0] len = left_q < page_left ? left_q : page_left;
  wire room = !out_q || pg_ready;  // a piece can be put out
  wire refuse = active_q && !looking_q && ((bad_q && !hold) || !enable) && room;
  wire plain = active_q && !looking_q && !refuse && !virt_q && !hold && enable && room;
  wire found = looking_q && lk_ack && lk_hit;
  wire miss = looking_q && lk_ack && !lk_hit;
  wire put = refuse || plain || found || miss;
  wire over = refuse || miss || (put && len == left_q);

  assign cmd_ready = !active_q || over;
  assign lk_req = looking_q;
  assign lk_asid = asid_q;
  assign lk_vpn = addr_q[63:12];
  assign pg_valid = out_q;
  assign quiet = !looking_q && !out_q;
  assign busy = active_q || out_q || cmd_valid;
  assign inc_no_translation = miss;

  always_ff @(posedge clk) begin
    if (pg_ready) out_q <= 1'b0;
    if (put) begin
      out_q     <= 1'b1;
      pg.addr   <= {virt_q ? lk_page : addr_q[63:12], addr_q[11:0]};
      pg.place  <= local_q;
      pg.len    <= refuse || miss ? '0 : len;
      pg.first  <= first_q;
      pg.last   <= over;
      pg.status <= refuse ? berth_regs_pkg::DMA_REFUSED[1:0] : miss ? berth_regs_pkg::DMA_NO_TRANSLATION[1:0] : OK;
      pg_info   <= info_q;
      addr_q    <= addr_q + 64'(len);
      local_q   <= local_q + 19'(len);
      left_q    <= left_q - len;
      first_q   <= 1'b0;
      looking_q <= 1'b0;
    end
    // The place for the piece is free when its look-up begins, and stays so.
    else if (active_q && !looking_q && virt_q && !bad_q && enable && !hold && room) looking_q <= 1'b1;
    if (over) active_q <= 1'b0;
    if (cmd_valid && cmd_ready) begin
      active_q <= 1'b1;
      first_q  <= 1'b1;
      bad_q    <= cmd.bad;
      local_q  <= cmd.place;
      left_q   <= cmd.len;
      addr_q   <= cmd.addr;
      virt_q   <= cmd.virt;
      asid_q   <= cmd.asid;
      info_q   <= cmd_info;
      // the first look-up begins with the command where it may
      looking_q <= cmd.virt && !cmd.bad && enable && !hold && !put && room;
    end
    if (rst) begin
      active_q  <= 1'b0;
      looking_q <= 1'b0;
      out_q     <= 1'b0;
    end
  end

  // A piece lies within its page.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!out_q || 14'(pg.addr[11:0]) + 14'(pg.len) <= 14'h1000);
      assert (!(out_q && looking_q));
    end
endmodule
