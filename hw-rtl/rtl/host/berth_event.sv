// SPDX-License-Identifier: Apache-2.0 OR MIT
// Writes events of RTL and firmware into the host's event ring, and raises its interrupt.
module berth_event #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64
) (
    input  logic              clk,
    input  logic              rst,
    // Ring, from BAR0. Writing the size resets the indices.
    input  logic [63:0]       evt_base,
    input  logic [ 4:0]       evt_log2,
    input  logic              evt_log2_we,
    input  logic [15:0]       evt_ci,
    input  logic              evt_arm_we,
    // With `evt_arm_we`: what is told of pages that are released or evicted may wait.
    input  logic              evt_lax,
    output logic [15:0]       evt_pi,
    output logic [15:0]       ev_space,
    // Translation unit: words 0 to 6.
    input  logic              xev_valid,
    output logic              xev_ready,
    input  logic [7*32-1:0]   xev_words,
    // Completion queues: words 0 to 2.
    input  logic              cev_valid,
    output logic              cev_ready,
    input  logic [3*32-1:0]   cev_words,
    // Firmware: all words.
    input  logic              fev_valid,
    output logic              fev_ready,
    input  logic [16*32-1:0]  fev_words,
    // To the posted write port.
    output logic              wr_valid,
    input  logic              wr_ready,
    output logic [63:0]       wr_addr,
    output logic [DATA_W-1:0] wr_data,
    output logic              wr_last,
    // Interrupt (vector 0): raised after the event's last beat has been accepted.
    output logic              msix_valid,
    input  logic              msix_ready,
    // Pulses for the counters.
    output logic              inc_event,
    output logic              inc_irq,
    output logic              busy
);
  // Index behind the last event that may not wait, if the host has not taken it; else the host's.
  logic [15:0] pi_q, urgent_q;
  logic send_q, armed_q, lax_q, irq_q;
  logic [1:0] sel_q, pick;
  logic [16*32-1:0] words;
  logic msg_ready;

  wire ring_ok = evt_log2 >= 5'd4 && evt_log2 <= 5'd12;
  wire [15:0] size = 16'd1 << evt_log2[3:0];
  wire [15:0] used = pi_q - evt_ci;
  berth_regs_pkg::pages_t first;
  assign first = words[31:0];
  wire is_urgent = first.code != berth_regs_pkg::EV_PAGE_RELEASE[7:0] &&
      first.code != berth_regs_pkg::EV_PAGE_EVICTED[7:0];
  // The host has not taken all that may not wait. An impossible consumer index counts as if it had not.
  wire some_urgent = urgent_q != evt_ci && 16'(urgent_q - evt_ci) <= used;
  wire due = pi_q != evt_ci && (!lax_q || some_urgent || used >= size >> 1);
  wire [2:0] req = {fev_valid, cev_valid, xev_valid};

  assign evt_pi = pi_q;
  // An impossible consumer index counts as a full ring, so nothing is overwritten.
  assign ev_space = (ring_ok && used <= size) ? size - used - 16'(send_q) : '0;

  // Round robin between the three sources.
  always_comb begin
    unique case (sel_q)
      2'd0: pick = req[1] ? 2'd1 : req[2] ? 2'd2 : 2'd0;
      2'd1: pick = req[2] ? 2'd2 : req[0] ? 2'd0 : 2'd1;
      default: pick = req[0] ? 2'd0 : req[1] ? 2'd1 : 2'd2;
    endcase
    words = fev_words;
    if (send_q && sel_q == 2'd0) words = 512'(xev_words);
    if (send_q && sel_q == 2'd1) words = 512'(cev_words);
    // The phase is in the last word: the host may see the other words before it, and none after it.
    words[32*berth_regs_pkg::EVENT_PHASE+31] = !pi_q[evt_log2[3:0]];
  end

  berth_wr_msg #(
      .DATA_W(DATA_W),
      .MSG_BYTES(64)
  ) msg (
      .clk,
      .rst,
      .msg_valid(send_q),
      .msg_ready,
      .msg_data(words),
      .wr_valid,
      .wr_ready,
      .wr_data,
      .wr_last
  );
  assign wr_addr = evt_base + {42'd0, pi_q & (size - 16'd1), 6'd0};
  assign {fev_ready, cev_ready, xev_ready} = msg_ready ? 3'd1 << sel_q : 3'd0;

  assign msix_valid = irq_q;
  assign inc_event  = msg_ready;
  assign inc_irq    = msix_valid && msix_ready;
  assign busy       = send_q || irq_q || (armed_q && due) || req != 0;

  always_ff @(posedge clk) begin
    if (!send_q) begin
      if (req != 0 && ev_space != 0) begin
        send_q <= 1'b1;
        sel_q  <= pick;
      end
    end else if (msg_ready) begin
      send_q <= 1'b0;
      pi_q   <= pi_q + 1;
    end
    if (msg_ready && is_urgent) urgent_q <= pi_q + 1;
    else if (!some_urgent) urgent_q <= evt_ci;
    if (msix_ready) irq_q <= 1'b0;
    // Covers both "the next event" and "at once, if there is one already": pi only counts events that are out.
    if (armed_q && due) begin
      armed_q <= 1'b0;
      irq_q   <= 1'b1;
    end
    if (evt_arm_we) begin
      armed_q <= 1'b1;
      lax_q   <= evt_lax;
    end
    if (evt_log2_we) begin
      pi_q     <= '0;
      urgent_q <= '0;
      armed_q  <= 1'b0;
    end
    if (rst) begin
      pi_q     <= '0;
      urgent_q <= '0;
      lax_q    <= 1'b0;
      send_q  <= 1'b0;
      armed_q <= 1'b0;
      irq_q   <= 1'b0;
      sel_q   <= '0;
    end
  end

  wire unused = &{1'b0, first};

  // An entry is written only when the ring has room for it.
  always_ff @(posedge clk) if (!rst && send_q && ring_ok) assert (used < size || used > size);
endmodule
