// SPDX-License-Identifier: Apache-2.0 OR MIT
// Atomics on memory of the host, one at a time, so that they are atomic among all QPs of the card: eight bytes are read, and what
// they are to become is written.
//
// It is a further user of the DMA engines' fast commands, and knows its own by the upper bit of their tags. Their place in
// packet RAM is `PLACE`, which no RAM has: what is read comes there, and from there it is written. Each of the two looks its
// page up. So a page that is revoked in between is not written to, and the atomic has failed; and when a fence finds the
// engines quiet, nothing here touches memory before it looks its page up anew.
//
// The next atomic is read after the host's port has taken the beat that was written: no read passes a write there. A comparison
// that fails writes nothing.
module berth_atomic #(
    parameter int unsigned DATA_W = 64    // bits of a beat of DMA, up to 1024
) (
    input  logic                         clk,
    input  logic                         rst,
    output logic                         busy,
    // Atomics; the end of the one that was taken last.
    input  logic                         change_valid,
    output logic                         change_ready,
    input  berth_card_pkg::change_t      change,
    output logic                         changed_valid,
    output berth_card_pkg::change_end_t  changed,
    // Commands of reads and writes, and their ends.
    output logic                         load_valid,
    input  logic                         load_ready,
    output berth_card_pkg::payload_t     load,
    input  logic                         loaded_valid,
    input  berth_card_pkg::payload_end_t loaded,
    output logic                         store_valid,
    input  logic                         store_ready,
    output berth_card_pkg::payload_t     store,
    input  logic                         stored_valid,
    input  berth_card_pkg::payload_end_t stored,
    // Writes of DMA into packet RAM, whoever they are for; whether this one is for here.
    input  logic                         pw_valid,
    input  logic [18:0]                  pw_addr,
    input  logic [DATA_W-1:0]            pw_data,
    input  logic [2*DATA_W/8-1:0]        pw_strb,
    output logic                         pw_mine,
    // Reads of DMA from there, likewise; the answer two clocks later.
    input  logic                         pr_valid,
    input  logic [18:0]                  pr_addr,
    output logic                         pr_mine,
    output logic                         pr_rvalid,
    output logic [63:0]                  pr_rdata
);
  // A multiple of a beat of any card, behind both packet RAMs.
  localparam logic [17:0] PLACE = 18'h3_ff80;
  localparam logic [7:0] TAG = 8'h80;
  initial if (berth_regs_pkg::PKT_BYTES > 32'(PLACE) || DATA_W > 1024) $fatal(1, "berth_atomic: its place is one of packet RAM");

  typedef enum logic [2:0] {IDLE, LOAD, LOADED, SUM, STORE, STORED} state_t;
  state_t state_q;
  logic add_q, equal_q;
  logic [7:0] asid_q;
  logic [63:0] va_q, operand_q, compare_q, original_q, sum_q;

  assign busy          = state_q != IDLE || change_valid;
  assign change_ready  = state_q == IDLE;
  assign load_valid    = state_q == LOAD;
  assign store_valid   = state_q == STORE && (add_q || equal_q);
  assign changed_valid = (state_q == LOADED && loaded_valid && loaded.status != 2'd0) || (state_q == STORE && !store_valid)
                      || (state_q == STORED && stored_valid);
  assign changed.failed   = state_q == LOADED || (state_q == STORED && stored.status != 2'd0);
  assign changed.original = original_q;
  always_comb begin
    load       = '0;
    load.place = PLACE;
    load.len   = 13'd8;
    load.asid  = asid_q;
    load.va    = va_q;
    load.tag   = TAG;
    store      = load;
  end

  assign pw_mine  = pw_addr[18] && pw_addr[17:7] == PLACE[17:7];
  assign pr_mine  = pr_addr[17:7] == PLACE[17:7];
  logic asked_q;
  always_ff @(posedge clk) begin
    case (state_q)
      IDLE: begin
        {add_q, asid_q, va_q, operand_q, compare_q} <= change;
        if (change_valid) state_q <= LOAD;
      end
      LOAD: if (load_ready) state_q <= LOADED;
      LOADED: if (loaded_valid) state_q <= loaded.status != 2'd0 ? IDLE : SUM;
      SUM: begin
        sum_q   <= original_q + operand_q;
        equal_q <= original_q == compare_q;
        state_q <= STORE;
      end
      STORE: begin
        if (store_valid && store_ready) state_q <= STORED;
        if (!store_valid) state_q <= IDLE;
      end
      default: if (stored_valid) state_q <= IDLE;
    endcase
    // Some of the bytes, if the host sends them in parts.
    for (int unsigned i = 0; i < 8; i++) if (pw_valid && pw_mine && pw_strb[i]) original_q[8*i+:8] <= pw_data[8*i+:8];
    asked_q   <= !rst && pr_valid && pr_mine;
    pr_rvalid <= !rst && asked_q;
    if (rst) state_q <= IDLE;
  end
  assign pr_rdata = add_q ? sum_q : operand_q;

  // Bytes come, are asked for, and ends come, only while this waits for them.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!loaded_valid || state_q == LOADED);
      assert (!stored_valid || state_q == STORED);
      assert (!(pw_valid && pw_mine) || state_q == LOADED);
      assert (!(pr_valid && pr_mine) || state_q == STORED);
    end

  wire unused = &{1'b0, pw_addr, pr_addr, pw_data, pw_strb, loaded, stored};
endmodule
