// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory of peers' RDMA: packets wait here, in their order, until it is known whether those of WRITEs may be placed, and
// READs answered.
// The key is looked up (QP-11), then the pages of the packet's bytes are acquired: for a moment, until the frame is given
// back. A packet of any other kind waits only behind those before it.
//
// Where a page is missing, the packet goes on as `absent`, arrival tells the peer to wait (PC-4), and the host is asked for
// more than the packet, as the rest of its WRITE is likely to come. When the host has answered, firmware is told, which tells
// the peer to go on; a foreign one knows no such word, and comes back by itself. So a page service holds up one connection, and no frame. What the host has made resident is not held
// meanwhile: the host keeps it for a while. Memory that cannot be had refuses the WRITE (QP-13).
//
// One request a QP is out at a time. WRITEs and READs that follow each other in memory are read ahead for: the next request leaves
// while packets still find what the last one was for. It grows as long as the peer has to wait.
//
// Of a READ all its bytes are looked for at once. Those of one packet are held, as a WRITE's are; arrival may pass that on with
// the READ, if nothing is to be answered before it. Else none is held: what is there may be gone again when it is answered, and
// `berth_fp_respond` waits for it then. So it is with an atomic's, which is looked for to be written. For one that was answered before, the key may say no here, as arrival alone knows
// which those are; it asks again, and its answer counts.
//
// A packet of no bytes touches no memory, and needs no key.
//
// Without selective repeat only the first packet of a WRITE says where it goes. Arrival tells when it has taken that one; a packet
// behind it waits until it is judged, and goes on as if it said so itself. Whether it is the next one is for arrival to see.
module berth_fp_target #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic                        clk,
    input  logic                        rst,
    output logic                        busy,
    // Packets, as `berth_fp_frame_in` gives them, and as they go on.
    input  logic                        in_valid,
    output logic                        in_ready,
    input  logic [QW-1:0]               in_q,
    input  berth_card_pkg::arrival_t    in,
    output logic                        item_valid,
    input  logic                        item_ready,
    output logic [QW-1:0]               item_q,
    output berth_card_pkg::arrival_t    item,
    // The first packet of a WRITE that says where the others go: see `berth_fp_arrival`.
    input  logic                        opens,
    input  logic [QW-1:0]               opens_q,
    input  logic                        open_valid,
    input  berth_card_pkg::write_t      open,
    // Keys: see `berth_fp_keys`.
    output logic                        ask_valid,
    input  logic                        ask_ready,
    output berth_card_pkg::access_t     ask,
    input  logic                        told_valid,      // of our own question
    input  berth_card_pkg::admission_t  told,
    // Translation. The upper bit of a tag says that it is ours.
    output logic                        hold_valid,
    input  logic                        hold_ready,
    output berth_card_pkg::range_ask_t  hold,
    input  logic                        xr_valid,
    output logic                        xr_ready,
    input  berth_card_pkg::range_answer_t xr,
    // A frame is given back.
    input  logic                        rfree_valid,
    input  logic [17:0]                 rfree_place,
    // What is held for the READ of the frame that arrival has at hand is another one's now.
    input  logic                        keep_valid,
    input  logic [17:0]                 ar_free_place,
    // The host has answered.
    output logic                        came_valid,
    output logic [QW-1:0]               came_q,
    output logic [23:0]                 came_psn,        // of the first packet of an operation that was to wait
    output logic [7:0]                  came_status,
    output logic                        ev_stray,        // ... what it was not asked
    // A QP begins anew: what was found out for it before is forgotten; a request that is out stays so.
    input  logic                        start,
    input  logic [QW-1:0]               start_q,
    input  logic                        start_foreign,
    // All packets that were here when `fence` was given have gone on.
    input  logic                        fence,
    output logic                        fenced
);
  localparam int unsigned WINDOW = 256;    // packets
  localparam int unsigned SLOTS = 16;      // frames, and so packets: room for those of any card
  initial if (berth_regs_pkg::RX_SLOTS > SLOTS) $fatal(1, "berth_fp_target: more receive slots than places");
  localparam logic [1:0] HIT = berth_regs_pkg::XLT_HIT[1:0];
  localparam logic [1:0] MISS = berth_regs_pkg::XLT_MISS[1:0];
  localparam logic [1:0] READY = berth_regs_pkg::XLT_READY[1:0];

  // The receive slot that a frame lies in.
  function automatic logic [3:0] slot_of(input logic [17:0] place);
    slot_of = '0;
    for (int unsigned i = 1; i < SLOTS; i++)
      if (place >= berth_regs_pkg::PKT_RX_BASE[17:0] + 18'(i) * berth_regs_pkg::SLOT_BYTES[17:0]) slot_of = 4'(i);
  endfunction

  // ---- packets, in their order ------------------------------------------------------------------
  // from `head` on: those of which all is known (`known_q`), the one that is looked at (`next`), those that have just come
  localparam int unsigned IW = QW + $bits(in);
  logic [IW-1:0] items [0:SLOTS-1];
  logic [11:0] answers [0:SLOTS-1];       // what the key's look-up said
  logic [SLOTS-1:0] known_q, absent_q, fault_q, holds_q;
  logic [4:0] head_q, next_q, tail_q;
  logic [QW-1:0] next_item_q, fetched_q;
  berth_card_pkg::arrival_t next_item, fetched, head_item;
  logic next_there, next_known, passes;
  logic [QW-1:0] head_item_q;
  // Of packets that do not say where they go: their index, and what the first one said.
  typedef struct packed {
    logic [23:0] index;
    logic [63:0] va;
    logic [31:0] key, whole;
  } place_t;
  place_t head_place;
  logic [$bits(head_place)-1:0] places [0:SLOTS-1];
  berth_card_pkg::write_t under_way;
  logic [4:0] openings [0:QPS-1];         // of each QP the newest first packet of such a WRITE that was looked at
  logic goes_on, unjudged;
  berth_card_pkg::admission_t head_told;

  // With nobody before it, what is no WRITE or READ goes on at once.
  assign passes      = head_q == tail_q && !in.write && !in.read;
  assign in_ready    = passes ? item_ready : tail_q - head_q != 5'(SLOTS);
  assign next_there  = next_q != tail_q;
  assign {fetched_q, fetched}     = items[next_q[3:0]];
  assign {head_item_q, head_item} = items[head_q[3:0]];
  assign head_told   = answers[head_q[3:0]];
  assign head_place  = places[head_q[3:0]];
  assign item_valid  = passes ? in_valid : head_q != next_q && known_q[head_q[3:0]];
  assign item_q      = passes ? in_q : head_item_q;
  always_comb begin
    item = passes ? in : head_item;
    if (!passes && (head_item.write || head_item.read)) begin
      item.asid     = head_told.asid;
      item.refusal  = fault_q[head_q[3:0]] ? berth_row_pkg::KEY_FAULT : head_told.refusal;
      item.one_shot = head_told.one_shot;
      item.absent   = absent_q[head_q[3:0]];
      item.held     = head_item.read && holds_q[head_q[3:0]];
    end
    if (!passes && head_item.write && !head_item.begins) begin
      item.index = head_place.index;
      item.va    = head_place.va;
      item.key   = head_place.key;
      item.whole = head_place.whole;
    end
  end

  // What was looked up, for each frame.
  typedef struct packed {
    logic [3:0]  item;
    logic [23:0] psn;                     // of the operation's first packet
    logic        first;                   // that is this one
    logic        read;                    // of a READ or an atomic
    logic        probe;                   // only looked for
    logic        write;                   // of a WRITE or an atomic
    logic [7:0]  asid;
    logic [63:0] va;
    logic [12:0] len;
    logic [31:0] rest;
  } looked_t;
  looked_t looked, looked_new;
  logic [$bits(looked)-1:0] lookups [0:SLOTS-1];
  logic [63:0] end_q, whole_q;            // behind the packet's bytes, behind those of its WRITE
  logic follows_q, again_q, newer_q;
  logic [63:0] behind;
  logic [23:0] ahead;
  logic [31:0] size_q;
  logic [63:0] lead_q, left_q;            // the front is before the packet's end by so much; up to the end of the WRITE
  logic judged, there, absent, failed, asks, came, stray, some_back, wish_there;

  // ---- the one that is looked at ------------------------------------------------------------------
  typedef enum logic [2:0] {FETCH, JOIN, INDEX, OFFSET, LOOK, KEY, HOLD} state_t;
  state_t state_q;
  logic plain, longer, refused;
  logic [37:0] offset_q, ends;            // of its bytes in the whole
  berth_card_pkg::admission_t told_q;
  logic [63:0] va_q;
  logic [31:0] rest_q;                    // bytes of the whole from its first one on
  logic [3:0] slot_q;
  logic slot_free;                        // what was held for the frame before it has gone back
  logic acquires, probe_q;

  // A packet that goes on with a WRITE waits until the one that may have begun it has left here, and arrival has judged it. (A
  // position that is long over may look like one that is still here, until all before the packet have left.)
  assign goes_on    = fetched.write && !fetched.begins;
  assign unjudged   = 5'(openings[next_item_q] - head_q) < 5'(next_q - head_q) || (opens && opens_q == next_item_q);
  always_ff @(posedge clk)
    if (state_q == FETCH && next_there && fetched.write && fetched.begins && !fetched.ends) openings[fetched_q] <= next_q;
  berth_fp_mem #(
      .WIDTH($bits(open)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_under_way (
      .clk,
      .we(open_valid),
      .waddr(opens_q),
      .wdata(open),
      .re(state_q == JOIN && !unjudged),
      .raddr(next_item_q),
      .rdata(under_way)
  );
  // What lies beyond the whole is malformed, which arrival says; so is a packet of no bytes of a WRITE that has some.
  assign ends       = offset_q + 38'(next_item.len);
  // So is a READ that fills more than any window, unless it was answered before; then it is not looked for. And so is an
  // atomic that is not aligned.
  assign longer     = next_item.whole > 32'(WINDOW) << next_item.log2_mtu
                   || (next_item.atomic != berth_row_pkg::ATOMIC_NONE && next_item.va[2:0] != 3'd0);
  assign plain      = !(next_item.write || next_item.read) || next_item.whole == '0 || ends > 38'(next_item.whole)
                   || (next_item.read && longer) || (next_item.write && next_item.len == '0);
  assign ask_valid  = state_q == LOOK && !plain;
  assign ask.claim  = 1'b0;
  assign ask.again  = 1'b0;
  assign ask.right  = next_item.atomic != berth_row_pkg::ATOMIC_NONE ? berth_row_pkg::RIGHT_BIT_ATOMIC
                    : next_item.read ? berth_row_pkg::RIGHT_BIT_READ : berth_row_pkg::RIGHT_BIT_WRITE;
  assign ask.qpn    = 16'(next_item_q);
  assign ask.domain = next_item.domain;
  assign ask.key    = next_item.key;
  assign ask.va     = next_item.va;
  assign ask.len    = next_item.whole;
  assign ask.psn    = next_item.psn - next_item.index;
  assign ask.packets = 24'd1;             // what a claim has is arrival's
  assign refused    = told_q.refusal != berth_row_pkg::KEY_OK;
  assign next_known = (state_q == LOOK && plain) || (state_q == HOLD && refused);
  assign acquires   = state_q == HOLD && !refused && slot_free && !some_back && !wish_there;
  always_ff @(posedge clk) begin
    if (in_valid && in_ready && !passes) begin
      items[tail_q[3:0]] <= {in_q, in};
      known_q[tail_q[3:0]]  <= 1'b0;
      absent_q[tail_q[3:0]] <= 1'b0;
      fault_q[tail_q[3:0]]  <= 1'b0;
      holds_q[tail_q[3:0]]  <= 1'b0;
      tail_q <= tail_q + 5'd1;
    end
    if (item_valid && item_ready && !passes) head_q <= head_q + 5'd1;
    case (state_q)
      FETCH: begin
        {next_item_q, next_item} <= {fetched_q, fetched};
        offset_q <= 38'(fetched.index) << fetched.log2_mtu;
        if (next_there) state_q <= goes_on ? JOIN : LOOK;
      end
      JOIN: if (!unjudged) state_q <= INDEX;
      INDEX: begin
        next_item.index <= next_item.psn - under_way.psn;
        next_item.va    <= under_way.va;
        next_item.key   <= under_way.key;
        next_item.whole <= under_way.whole;
        state_q <= OFFSET;
      end
      OFFSET: begin
        offset_q <= 38'(next_item.index) << next_item.log2_mtu;
        places[next_q[3:0]] <= {next_item.index, next_item.va, next_item.key, next_item.whole};
        state_q <= LOOK;
      end
      LOOK: begin
        if (plain) begin
          next_q  <= next_q + 5'd1;
          state_q <= FETCH;
        end
        if (ask_valid && ask_ready) state_q <= KEY;
        slot_q <= slot_of(next_item.frame);
        va_q   <= next_item.va + 64'(offset_q);
        probe_q <= next_item.read && (next_item.atomic != berth_row_pkg::ATOMIC_NONE || next_item.whole > 32'd1 << next_item.log2_mtu);
        rest_q <= next_item.whole - 32'(offset_q);
      end
      KEY:
      if (told_valid) begin
        told_q  <= told;
        answers[next_q[3:0]] <= told;
        state_q <= HOLD;
      end
      default:
      if (next_known || (acquires && hold_ready)) begin
        next_q  <= next_q + 5'd1;
        state_q <= FETCH;
      end
    endcase
    if (next_known) known_q[next_q[3:0]] <= 1'b1;
    if (there) begin
      known_q[looked.item] <= 1'b1;
      holds_q[looked.item] <= !looked.probe;
    end
    if (judged && kind_q == MISS) begin
      known_q[looked.item]  <= 1'b1;
      absent_q[looked.item] <= absent;
      fault_q[looked.item]  <= failed;
    end
    if (rst) begin
      state_q <= FETCH;
      {head_q, next_q, tail_q} <= '0;
    end
  end

  // ---- answers of the translation, one in five clocks; what is there may go on at once -----------------
  assign looked_new.item  = next_q[3:0];
  assign looked_new.psn   = next_item.psn - next_item.index;
  assign looked_new.first = next_item.index == '0;
  assign looked_new.read  = next_item.read;
  assign looked_new.probe = acquire.probe;
  assign looked_new.write = acquire.write;
  assign looked_new.asid  = told_q.asid;
  assign looked_new.va    = va_q;
  assign looked_new.len   = next_item.read ? next_item.whole[12:0] : next_item.len;
  assign looked_new.rest  = rest_q;
  always_ff @(posedge clk) if (acquires && hold_ready) lookups[slot_q] <= looked_new;

  // A QP's requests. WRITEs follow each other (`in_order`) when each begins where the one before it ends.
  typedef struct packed {
    logic        out;                     // one is out ...
    logic        exact;                   // ... for one packet only
    logic        wanted;                  // a packet was absent meanwhile
    logic        narrow;                  // more than a packet cannot be had
    logic        doomed;                  // the memory of the operation of `asked` cannot be had
    logic        in_order;
    logic [2:0]  grown;                   // log2 of a request's bytes, over LEAST
    logic [23:0] asked, waits;            // PSNs: of the operation whose packet was asked for; of the newest one that was absent
    logic [63:0] front;                   // asked for up to here
    logic [63:0] ends;                    // of the last WRITE
  } row_t;
  localparam int unsigned LEAST = 16;     // 64 KiB
  localparam logic [2:0] MOST = 3'd4;     // 1 MiB
  localparam int unsigned LOG2_AGAIN = 21; // WRITEs under way, by their bytes
  berth_card_pkg::range_answer_t got;
  logic got_valid, got_pop;
  berth_lutfifo #(
      .WIDTH($bits(xr)),
      .DEPTH(16)
  ) answers_fifo (
      .clk,
      .rst,
      .wr_valid(xr_valid),
      .wr_ready(xr_ready),
      .wr_data(xr),
      .rd_valid(got_valid),
      .rd_ready(got_pop),
      .rd_data(got)
  );
  typedef enum logic [2:0] {A_READ, A_TAKE, A_SEE, A_TURN, A_DO} answer_state_t;
  answer_state_t a_state_q;
  logic [QPS-1:0] begun_q;                // its row holds something ...
  logic [QPS-1:0] anew_q;                 // ... of a QP before it
  logic [QPS-1:0] foreign_q;              // its peer comes back by itself
  logic [QW-1:0] a_q, a_of;
  logic [1:0] kind_q;
  logic [7:0] a_status_q;
  logic of_ask_q;
  logic [3:0] a_slot_q;
  row_t row, row_q, r, f;
  logic row_we;
  assign a_of = got.tag[QW-1:0];
  berth_fp_mem #(
      .WIDTH($bits(row)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_row (
      .clk,
      .we(row_we),
      .waddr(a_q),
      .wdata(f),
      .re(a_state_q == A_READ),
      .raddr(a_of),
      .rdata(row)
  );
  assign looked  = lookups[a_slot_q];
  // The host answers requests only, whatever tag it names.
  wire of_packet = !of_ask_q && kind_q != READY;
  assign there   = a_state_q == A_TAKE && of_packet && kind_q == HIT;
  assign got_pop = a_state_q == A_READ && got_valid;
  always_ff @(posedge clk) begin
    case (a_state_q)
      A_READ: begin
        a_q        <= a_of;
        a_slot_q   <= got.tag[13:10];
        of_ask_q   <= got.tag[14];
        kind_q     <= got.kind;
        a_status_q <= got.status;
        if (got_valid) a_state_q <= A_TAKE;
      end
      A_TAKE: begin
        row_q     <= '0;
        if (begun_q[a_q]) begin
          if (anew_q[a_q]) row_q.out <= row.out;
          else row_q <= row;
        end
        end_q     <= looked.va + 64'(looked.read ? looked.rest : 32'(looked.len));
        whole_q   <= looked.va + 64'(looked.rest);
        a_state_q <= A_SEE;
      end
      A_SEE: begin
        follows_q <= looked.va == row_q.ends;
        again_q   <= behind[63:LOG2_AGAIN] == '0;
        newer_q   <= !ahead[23];
        lead_q    <= row_q.front - end_q;
        left_q    <= whole_q - row_q.front;
        a_state_q <= A_TURN;
      end
      A_TURN: begin
        size_q <= 32'd1 << (5'(LEAST) + 5'(row_q.grown));
        // Those that came before the last one are sent again.
        if (of_packet && looked.first && !again_q) begin
          row_q.in_order <= follows_q;
          row_q.ends     <= whole_q;
          if (!follows_q) begin
            {row_q.grown, row_q.narrow, row_q.front} <= {3'd0, 1'b0, looked.va};
            size_q <= 32'd1 << LEAST;
            lead_q <= '1;
            left_q <= 64'(looked.rest);
          end
        end
        a_state_q <= A_DO;
      end
      default: begin
        begun_q[a_q] <= 1'b1;
        anew_q[a_q]  <= 1'b0;
        a_state_q    <= A_READ;
      end
    endcase
    if (start) anew_q[start_q] <= 1'b1;
    if (start) foreign_q[start_q] <= start_foreign;
    if (rst) begin
      a_state_q <= A_READ;
      begun_q   <= '0;
      anew_q    <= '0;
    end
  end
  assign row_we = a_state_q == A_DO;
  assign behind = row_q.ends - whole_q;
  assign ahead  = looked.psn - row_q.waits;

  // ---- decide -------------------------------------------------------------------------------------------
  berth_card_pkg::range_ask_t wish;
  always_comb begin
    r       = row_q;
    absent  = 1'b0;
    failed  = 1'b0;
    asks    = 1'b0;
    came    = 1'b0;
    stray   = 1'b0;
    judged  = a_state_q == A_DO && of_packet;
    wish           = '0;
    wish.probe     = 1'b1;
    wish.write     = looked.write;
    wish.asid      = looked.asid;
    wish.tag       = {2'b11, 14'(a_q)};
    f = r;
    if (!of_packet) begin
      // The rest of what is out: the host answers, or all of it was there.
      if (kind_q != MISS) begin
        stray = !of_ask_q || !r.out;
        if (!stray) begin
          f.out    = 1'b0;
          f.wanted = 1'b0;
          came     = r.wanted;
          if (r.wanted && r.in_order && r.grown != MOST) f.grown = r.grown + 3'd1;
          if (kind_q == READY && a_status_q != '0) begin
            if (r.exact) f.doomed = 1'b1;
            else f.narrow = 1'b1;
          end
        end
      end
    end else if (kind_q == MISS) begin
      failed = r.doomed && r.asked == looked.psn;
      absent = !failed;
      if (failed) f.doomed = 1'b0;
      else begin
        f.wanted = 1'b1;
        // No peer waits for what it was answered before.
        if (!r.wanted || newer_q) f.waits = looked.psn;
        if (!r.out) begin
          asks     = 1'b1;
          f.out    = 1'b1;
          f.exact  = r.narrow;
          f.doomed = 1'b0;
          f.asked  = looked.psn;
          wish.va  = looked.va;
          wish.len = r.narrow ? 31'(looked.read ? looked.rest[30:0] : 31'(looked.len))
                   : !r.in_order && looked.rest < size_q ? looked.rest[30:0] : size_q[30:0];
          f.front  = looked.va + 64'(wish.len);
        end
      end
    end else if (!r.narrow && !r.out) begin
      // It is there. What follows it, too?
      if (lead_q[63]) f.front = end_q;
      else if (lead_q[62:0] < 63'(size_q) && (r.in_order || (!left_q[63] && left_q != '0)) && !wish_there) begin
        asks     = 1'b1;
        f.out    = 1'b1;
        f.exact  = 1'b0;
        wish.va  = r.front;
        wish.len = !r.in_order && left_q < 64'(size_q) ? left_q[30:0] : size_q[30:0];
        f.front  = r.front + 64'(wish.len);
      end
    end
  end
  assign came_valid  = came && a_state_q == A_DO && !foreign_q[a_q];
  assign came_q      = a_q;
  assign came_psn    = r.waits;
  assign came_status = a_status_q;
  assign ev_stray    = stray && a_state_q == A_DO;

  // ---- what the host is to be asked for; what is held goes back with its frame -----------------------------
  berth_card_pkg::range_ask_t wished, acquire, release_;
  logic wish_room, wish_pop;
  berth_lutfifo #(
      .WIDTH($bits(wish)),
      .DEPTH(SLOTS)
  ) wishes (
      .clk,
      .rst,
      .wr_valid(asks && a_state_q == A_DO),
      .wr_ready(wish_room),
      .wr_data(wish),
      .rd_valid(wish_there),
      .rd_ready(wish_pop),
      .rd_data(wished)
  );
  logic [SLOTS-1:0] held_q, back_q;
  logic [3:0] back, freed, kept;
  berth_fp_first #(
      .N(SLOTS)
  ) first_back (
      .bits(back_q),
      .any(some_back),
      .at(back)
  );
  // What was looked up for a frame is what is held for it, until the next look-up, which waits for `slot_free`.
  looked_t leaves;
  assign leaves    = lookups[back];
  assign slot_free = !back_q[slot_q];
  assign freed     = slot_of(rfree_place);
  assign kept      = slot_of(ar_free_place);
  always_comb begin
    acquire       = '0;
    acquire.quiet = 1'b1;
    acquire.probe = probe_q;
    acquire.write = !next_item.read || next_item.atomic != berth_row_pkg::ATOMIC_NONE;
    acquire.asid  = told_q.asid;
    acquire.va    = va_q;
    acquire.len   = next_item.read ? next_item.whole[30:0] : 31'(next_item.len);
    acquire.tag   = {2'b10, slot_q, 10'(next_item_q)};
    release_           = '0;
    release_.give_back = 1'b1;
    release_.write     = leaves.write;
    release_.asid      = leaves.asid;
    release_.va        = leaves.va;
    release_.len       = 31'(leaves.len);
  end
  assign wish_pop   = hold_ready && !some_back;
  assign hold_valid = some_back || wish_there || acquires;
  assign hold       = some_back ? release_ : wish_there ? wished : acquire;
  always_ff @(posedge clk) begin
    if (there && !looked.probe) held_q[a_slot_q] <= 1'b1;
    if (keep_valid) held_q[kept] <= 1'b0;
    if (some_back && hold_ready) back_q[back] <= 1'b0;
    if (rfree_valid && held_q[freed]) begin
      held_q[freed] <= 1'b0;
      back_q[freed] <= 1'b1;
    end
    if (rst) {held_q, back_q} <= '0;
  end

  // ---- fence ------------------------------------------------------------------------------------------
  logic fence_q;
  logic [4:0] until_q;
  assign fenced = fence_q && (head_q == until_q || 5'(head_q - until_q) < 5'(SLOTS));
  always_ff @(posedge clk) begin
    if (fence) {fence_q, until_q} <= {1'b1, tail_q};
    else if (fenced) fence_q <= 1'b0;
    if (rst) fence_q <= 1'b0;
  end

  assign busy = tail_q != head_q || back_q != '0 || wish_there || got_valid || a_state_q != A_READ;

  // A frame is given back after its packet has gone on; a slot's range goes back before the next one is acquired.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!(acquires && hold_ready) || !held_q[slot_q]);
      assert (!there || !held_q[a_slot_q]);
      assert (!keep_valid || held_q[kept]);
      assert (!(asks && a_state_q == A_DO) || wish_room);
    end

  wire unused = &{1'b0, got.tag, told, told_q, next_item, looked, leaves, behind, ahead};
endmodule
