// SPDX-License-Identifier: Apache-2.0 OR MIT
// Atomics on memory of the host: eight bytes are read, and what they are to become is written. `SLOTS` are under way at a time,
// and of the same bytes one, so that they are atomic among all QPs of the card.
//
// It is a further user of the DMA engines' fast commands, and knows its own by the upper bit of their tags; the lower ones are
// the slot. A slot's place in packet RAM is one that no RAM has: what is read comes there, and from there it is written. Each of
// the two looks its page up. So a page that is revoked in between is not written to, and the atomic has failed; and when a fence
// finds the engines quiet, nothing here touches memory before it looks its page up anew.
//
// Which bytes are the same only the bus address says, as two virtual ones may be of one page. So it is judged when the read's
// page has been found: if another atomic has these bytes, the read ends without having been made, and the slot waits behind
// those that wait for them. Nothing waits in the engines, which would keep a fence from finding them quiet, and others' reads
// from going on. Whoever is done hands the bytes on to the one that has waited longest, whose page is then looked up again. A
// page that is another one by then, or when it is written, is refused.
//
// Addresses are compared by marks of 18 bits. Different bytes may have the same one; then one waits without need.
//
// Bytes are handed on after the host's port has taken the beat that was written: no read passes a write there. A comparison
// that fails writes nothing.
//
//   change -> read -> judged -> sum, comparison -> written -> end
//               ^        |                                    |
//               |        +-> waits behind others              |
//               +--------------- is handed the bytes <--------+
module berth_atomic #(
    parameter int unsigned DATA_W = 64,   // bits of a beat of DMA, up to 1024
    parameter int unsigned SLOTS  = 16    // a power of two, up to 16
) (
    input  logic                         clk,
    input  logic                         rst,
    output logic                         busy,
    // Atomics; their ends, in any order, which can not be held up.
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
    // Pages that are found for them, of reads in bit 0: whether it may go on is said until it does.
    input  logic [1:0]                   found_valid,
    input  berth_card_pkg::found_t       load_found,
    input  berth_card_pkg::found_t       store_found,
    input  logic [1:0]                   found_taken,
    output logic [1:0]                   found_judged,
    output logic [1:0]                   found_refused,
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
  localparam int unsigned SW = $clog2(SLOTS);
  localparam int unsigned MW = 18;
  // Multiples of a beat of any card, behind both packet RAMs.
  localparam int unsigned LOG2_APART = 7;
  localparam logic [17:0] PLACE = 18'h3_f800;
  initial
    if (berth_regs_pkg::PKT_BYTES > 32'(PLACE) || DATA_W > 1024 || SLOTS > 16 || SLOTS < 2)
      $fatal(1, "berth_atomic: a slot's place is one of packet RAM, or no beat's");

  // Neighbours in a page and in memory have different ones.
  function automatic logic [MW-1:0] mark_of(input logic [63:3] addr);
    mark_of = {addr[20:12] ^ addr[29:21] ^ addr[38:30] ^ addr[47:39] ^ addr[56:48] ^ {2'd0, addr[63:57]}, addr[11:3]};
  endfunction

  // ---- what a slot is about, what was read, and what is written -------------------------------------------
  logic take, again_valid_q, slot_there;  // an atomic is taken, with the free slot
  logic [SW-1:0] slot, again_slot_q, store_slot;
  logic [71:0] places [0:SLOTS-1];        // ASID, address
  logic [128:0] operations [0:SLOTS-1];   // addition, operand, comparison
  logic [14:0] tags [0:SLOTS-1];
  logic [63:0] results [0:SLOTS-1];
  always_ff @(posedge clk)
    if (take) begin
      places[slot]     <= {change.asid, change.va};
      operations[slot] <= {change.add, change.operand, change.compare};
      tags[slot]       <= change.tag;
    end

  // Some of the bytes, if the host sends them in parts.
  logic [SW-1:0] pw_slot, read_slot_q, end_slot_q;
  logic [63:0] read, original;            // by `read_slot_q` and `end_slot_q`
  assign pw_mine = pw_addr[18] && pw_addr[17:LOG2_APART+SW] == PLACE[17:LOG2_APART+SW];
  assign pw_slot = pw_addr[LOG2_APART+:SW];
  for (genvar i = 0; i < 8; i++) begin : g_byte
    logic [7:0] bytes [0:SLOTS-1];
    always_ff @(posedge clk) if (pw_valid && pw_mine && pw_strb[i]) bytes[pw_slot] <= pw_data[8*i+:8];
    assign read[8*i+:8]     = bytes[read_slot_q];
    assign original[8*i+:8] = bytes[end_slot_q];
  end

  // ---- reads: of those that have been handed their bytes, then new ones -------------------------------------
  logic [SLOTS-1:0] used_q;               // of an atomic
  logic [SLOTS-1:0] out_q;                // its read is out
  logic [SLOTS-1:0] has_q;                // the bytes of its mark are its own
  logic [SLOTS-1:0] waits_q;              // its read has found that they are another one's
  logic [SLOTS-1:0] again_q;              // it has been handed them: its read is to be made
  logic [SLOTS-1:0] done_q, failed_q;     // it has ended; it has changed nothing
  logic end_go, again_some, again_taken;
  logic [SW-1:0] again_at;
  berth_fp_pool #(
      .N(SLOTS)
  ) free (
      .clk, .rst, .valid(slot_there), .number(slot), .take, .give(end_go), .give_number(end_slot_q)
  );
  berth_fp_first #(
      .N(SLOTS)
  ) next_again (
      .bits(again_q), .any(again_some), .at(again_at)
  );
  assign load_valid   = again_valid_q || (change_valid && slot_there);
  assign change_ready = !again_valid_q && slot_there && load_ready;
  assign take         = change_valid && change_ready;
  assign again_taken  = again_valid_q && load_ready;
  always_comb begin
    load       = '0;
    load.len   = 13'd8;
    store      = load;
    load.place = PLACE + (18'(again_valid_q ? again_slot_q : slot) << LOG2_APART);
    load.tag   = {1'b1, 7'(again_valid_q ? again_slot_q : slot)};
    {load.asid, load.va} = again_valid_q ? places[again_slot_q] : {change.asid, change.va};
    store.place = PLACE + (18'(store_slot) << LOG2_APART);
    store.tag   = {1'b1, 7'(store_slot)};
    {store.asid, store.va} = places[store_slot];
  end

  // ---- who has which bytes ---------------------------------------------------------------------------------
  // A page that a read has found: its mark is compared with those of all that have bytes of their own, then it is judged.
  // Nothing is handed on meanwhile.
  logic compared_q, other, clash, kept;
  logic [SLOTS-1:0] same_q, others;
  logic [SLOTS*MW-1:0] marks_q;
  logic [MW-1:0] marks [0:SLOTS-1];       // the same, for one at a time
  logic [MW-1:0] mark, mark_q;
  logic [SW-1:0] found_slot_q, owner;
  // Who waits for a slot's bytes: the one behind it, and the last one.
  logic [SW-1:0] behind [0:SLOTS-1];
  logic [SW-1:0] last [0:SLOTS-1];
  logic [SLOTS-1:0] more_q;               // somebody is behind it
  logic last_we, hands_on, end_valid_q;
  logic [SW-1:0] last_at, last_new, last_of, heir;
  assign mark   = mark_of(load_found.addr[63:3]);
  assign others = same_q & ~(SLOTS'(1) << found_slot_q);
  assign clash  = !has_q[found_slot_q] && other;
  assign kept   = has_q[found_slot_q] && same_q[found_slot_q];
  berth_fp_first #(
      .N(SLOTS)
  ) which (
      .bits(others), .any(other), .at(owner)
  );
  // What is written next: a page that is found again must be the same.
  logic [MW-1:0] store_mark, own_mark;
  assign own_mark   = marks[store_found.tag[SW-1:0]];
  assign store_mark = mark_of(store_found.addr[63:3]);

  wire judging = found_valid[0] && !found_judged[0];
  assign end_go  = end_valid_q && !judging;
  assign hands_on = end_go && has_q[end_slot_q] && more_q[end_slot_q];
  assign heir    = behind[end_slot_q];
  assign last_of = last[compared_q ? owner : end_slot_q];
  always_comb begin
    last_we  = hands_on;
    last_at  = heir;
    last_new = last_of;
    if (compared_q) begin
      last_we  = !has_q[found_slot_q];
      last_at  = clash ? owner : found_slot_q;
      last_new = found_slot_q;
    end
  end
  always_ff @(posedge clk) begin
    for (int unsigned i = 0; i < SLOTS; i++) same_q[i] <= has_q[i] && marks_q[MW*i+:MW] == mark;
    mark_q       <= mark;
    found_slot_q <= load_found.tag[SW-1:0];
    compared_q   <= judging && !compared_q && !rst;
    if (last_we) last[last_at] <= last_new;
    if (compared_q && clash) behind[last_of] <= found_slot_q;
    if (compared_q && !has_q[found_slot_q]) marks[found_slot_q] <= mark_q;
    for (int unsigned i = 0; i < SLOTS; i++)
      if (compared_q && !has_q[found_slot_q] && found_slot_q == SW'(i)) marks_q[MW*i+:MW] <= mark_q;
    if (compared_q) found_refused[0] <= has_q[found_slot_q] ? !kept : clash;
    found_judged[0]  <= !rst && (compared_q || (found_judged[0] && !found_taken[0]));
    found_refused[1] <= own_mark != store_mark;
    found_judged[1]  <= !rst && found_valid[1] && !found_taken[1];
  end

  // ---- sum and comparison; writes ----------------------------------------------------------------------------
  logic read_q, summed_q, add_q, equal_q, summing_q;
  logic [SW-1:0] sum_slot_q, write_slot_q;
  logic [63:0] operand_q, compare_q, read_data_q, result_q;
  logic added_q, store_room;
  wire writes = summed_q && (added_q || equal_q);
  berth_lutfifo #(
      .WIDTH(SW),
      .DEPTH(SLOTS)
  ) stores (
      .clk, .rst, .wr_valid(writes), .wr_ready(store_room), .wr_data(write_slot_q),
      .rd_valid(store_valid), .rd_ready(store_ready), .rd_data(store_slot)
  );
  always_ff @(posedge clk) begin
    // An end of a read; what it has brought; what becomes of it.
    read_q       <= loaded_valid && loaded.status == 2'd0 && !rst;
    read_slot_q  <= loaded.tag[SW-1:0];
    summing_q    <= read_q && !rst;
    sum_slot_q   <= read_slot_q;
    read_data_q  <= read;
    {add_q, operand_q, compare_q} <= operations[read_slot_q];
    summed_q     <= summing_q && !rst;
    write_slot_q <= sum_slot_q;
    added_q      <= add_q;
    equal_q      <= read_data_q == compare_q;
    result_q     <= add_q ? read_data_q + operand_q : operand_q;
    if (summed_q) results[write_slot_q] <= result_q;
  end
  logic asked_q;
  logic [SW-1:0] asked_slot_q;
  assign pr_mine = pr_addr[17:LOG2_APART+SW] == PLACE[17:LOG2_APART+SW];
  always_ff @(posedge clk) begin
    asked_q      <= !rst && pr_valid && pr_mine;
    asked_slot_q <= pr_addr[LOG2_APART+:SW];
    pr_rvalid    <= !rst && asked_q;
    pr_rdata     <= results[asked_slot_q];
  end

  // ---- slots ----------------------------------------------------------------------------------------------------
  logic end_some;
  logic [SW-1:0] end_at;
  wire [SW-1:0] loaded_slot = loaded.tag[SW-1:0];
  wire [SW-1:0] stored_slot = stored.tag[SW-1:0];
  berth_fp_first #(
      .N(SLOTS)
  ) next_end (
      .bits(done_q), .any(end_some), .at(end_at)
  );
  assign busy = used_q != '0 || change_valid;
  always_ff @(posedge clk) begin
    if (!again_valid_q || again_taken) begin
      again_valid_q <= again_some;
      again_slot_q  <= again_at;
      if (again_some) again_q[again_at] <= 1'b0;
    end
    if (again_taken) begin
      out_q[again_slot_q]   <= 1'b1;
      waits_q[again_slot_q] <= 1'b0;
    end
    if (take) begin
      used_q[slot]   <= 1'b1;
      out_q[slot]    <= 1'b1;
      has_q[slot]    <= 1'b0;
      waits_q[slot]  <= 1'b0;
      more_q[slot]   <= 1'b0;
      failed_q[slot] <= 1'b0;
    end
    if (compared_q && !has_q[found_slot_q]) begin
      if (clash) begin
        waits_q[found_slot_q] <= 1'b1;
        more_q[last_of]       <= 1'b1;
      end else has_q[found_slot_q] <= 1'b1;
    end
    // A read that was not made is made again by then, if the bytes have been handed on.
    if (loaded_valid) begin
      out_q[loaded_slot] <= 1'b0;
      if (loaded.status != 2'd0) begin
        if (!waits_q[loaded_slot]) begin
          done_q[loaded_slot]   <= 1'b1;
          failed_q[loaded_slot] <= 1'b1;
        end else if (has_q[loaded_slot]) again_q[loaded_slot] <= 1'b1;
      end
    end
    if (summed_q && !writes) done_q[write_slot_q] <= 1'b1;
    if (stored_valid) begin
      done_q[stored_slot]   <= 1'b1;
      failed_q[stored_slot] <= stored.status != 2'd0;
    end
    // An end is told, and what was its own handed on.
    if (!end_valid_q) begin
      end_valid_q <= end_some;
      end_slot_q  <= end_at;
      if (end_some) done_q[end_at] <= 1'b0;
    end else if (end_go) end_valid_q <= 1'b0;
    if (end_go) begin
      used_q[end_slot_q] <= 1'b0;
      has_q[end_slot_q]  <= 1'b0;
      more_q[end_slot_q] <= 1'b0;
    end
    if (hands_on) begin
      has_q[heir] <= 1'b1;
      if (!out_q[heir] || (loaded_valid && loaded_slot == heir)) again_q[heir] <= 1'b1;
    end
    changed_valid    <= !rst && end_go;
    changed.tag      <= tags[end_slot_q];
    changed.failed   <= failed_q[end_slot_q];
    changed.original <= original;
    if (rst) begin
      again_valid_q <= 1'b0;
      end_valid_q   <= 1'b0;
      used_q        <= '0;
      out_q         <= '0;
      has_q         <= '0;
      again_q       <= '0;
      done_q        <= '0;
    end
  end

  // Bytes come, are asked for, and ends come, only of those that this waits for. Of the same bytes one has them; who waits for
  // them is none of those.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!loaded_valid || (loaded.tag[7] && out_q[loaded_slot] && !done_q[loaded_slot]));
      assert (!stored_valid || (stored.tag[7] && has_q[stored_slot] && !done_q[stored_slot]));
      assert (!(pw_valid && pw_mine) || out_q[pw_slot]);
      assert (!(pr_valid && pr_mine) || has_q[pr_addr[LOG2_APART+:SW]]);
      assert (!writes || store_room);
      assert (!end_go || (used_q[end_slot_q] && (has_q[end_slot_q] || failed_q[end_slot_q])));
      assert (!hands_on || (used_q[heir] && waits_q[heir] && !has_q[heir]));
      assert ((has_q & ~used_q) == '0 && (again_q & ~has_q) == '0 && (again_q & out_q) == '0);
      for (int unsigned i = 0; i < SLOTS; i++)
        for (int unsigned j = 0; j < i; j++)
          assert (!(has_q[i] && has_q[j]) || marks_q[MW*i+:MW] != marks_q[MW*j+:MW]);
    end

  wire unused = &{1'b0, pw_addr, pr_addr, pw_data, pw_strb, loaded, stored, load_found, store_found};
endmodule
