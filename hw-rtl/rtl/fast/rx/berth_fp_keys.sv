// SPDX-License-Identifier: Apache-2.0 OR MIT
// The card's table of keys: which bytes of which address space peers may read, write and change (QP-4, QP-11, QP-12).
// It is the look-up of `memory::keys::Keys`; firmware makes keys, binds them, and stores them here.
//
// A key stands in one place of the table, which the bits above its lowest 8 name. So a look-up takes the same clocks for
// every key, right or wrong: an answer comes two clocks after the question, and says nothing by its time.
//
// A one-shot key is claimed by the first operation that is done with it. Until that is over the same operation may ask again
// (each packet of a WRITE does), and a READ that is asked for in parts goes on where the part before ended. After that it
// opens nothing until firmware stores it anew.
//
// One command, question or end at a time, in this order of precedence: each takes three clocks, storing takes one. After a
// reset the table is emptied first, a place a clock, and nothing is taken meanwhile.
module berth_fp_keys #(
    // Keys, a power of two from 2 to 65,536.
    parameter int unsigned KEYS = 4096,
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS)
) (
    input  logic                       clk,
    input  logic                       rst,
    // A QP begins anew; no key gives its peer the rights `start_denies`.
    input  logic                       start,
    input  logic [QW-1:0]              start_q,
    input  logic [2:0]                 start_denies,
    // Firmware stores the key of a place, or loads it; `loaded` is there two clocks later, until the next one.
    input  logic                       cmd_valid,
    output logic                       cmd_ready,
    input  logic                       cmd_store,
    input  logic [15:0]                cmd_place,
    input  berth_card_pkg::key_t       cmd,
    output berth_card_pkg::key_t       loaded,
    // An operation is over.
    input  logic                       over_valid,
    output logic                       over_ready,
    input  berth_card_pkg::key_use_t   over,
    // Whether an access may be done; the answer two clocks later.
    input  logic                       ask_valid,
    output logic                       ask_ready,
    input  berth_card_pkg::access_t    ask,
    output logic                       told_valid,
    output berth_card_pkg::admission_t told
);
  localparam int unsigned PW = $clog2(KEYS);
  localparam int unsigned TAG_BITS = 8;      // of a key, below its place
  initial if (KEYS > 65536 || KEYS < 2 || KEYS != (1 << PW)) $fatal(1, "berth_fp_keys: KEYS must be a power of two up to 65536");

  // The operation that a one-shot key is used by.
  typedef struct packed {
    logic        taken;
    logic        over;
    logic [1:0]  right;
    logic [15:0] qpn;
    logic [23:0] psn;       // of its first packet
    logic [24:0] packets;   // at most all ones, more than any part of it may be ahead
    logic [63:0] last;      // byte
  } claim_t;

  typedef enum logic [1:0] {CLEAR, IDLE, READ, TELL} state_t;
  typedef enum logic [1:0] {OP_ASK, OP_OVER, OP_LOAD} op_t;
  state_t state_q;
  op_t op_q;
  logic [PW-1:0] clear_q, place, place_q;
  logic take, store;

  assign cmd_ready  = state_q == IDLE;
  assign over_ready = state_q == IDLE && !cmd_valid;
  assign ask_ready  = state_q == IDLE && !cmd_valid && !over_valid;
  assign store      = cmd_valid && cmd_ready && cmd_store;
  assign take       = state_q == IDLE && (cmd_valid || over_valid || ask_valid) && !store;

  // ---- the question ----------------------------------------------------------------------------
  berth_card_pkg::access_t a_q;
  logic [63:0] last_q, before_q;      // last byte of the access; the byte before its first
  logic wraps_q;
  always_comb begin
    place = ask.key[TAG_BITS+:PW];
    if (over_valid) place = over.key[TAG_BITS+:PW];
    if (cmd_valid) place = cmd_place[PW-1:0];
  end
  always_ff @(posedge clk)
    if (take) begin
      a_q <= ask;
      if (over_valid) {a_q.qpn, a_q.key, a_q.psn} <= over;
      {wraps_q, last_q} <= {1'b0, ask.va} + 65'(ask.len - 32'd1);
      before_q <= ask.va - 64'd1;
      place_q  <= place;
      op_q     <= cmd_valid ? OP_LOAD : over_valid ? OP_OVER : OP_ASK;
    end

  // ---- the table ---------------------------------------------------------------------------------
  berth_card_pkg::key_t entry, entry_new;
  claim_t claim, claim_new, claim_q;
  berth_row_pkg::recv_key_scope_t scope;
  logic entry_we, claim_we, claims;
  logic [PW-1:0] write_at;
  assign scope     = entry.scope;
  assign entry_we  = store || state_q == CLEAR;
  assign entry_new = state_q == CLEAR ? '0 : cmd;
  assign claim_we  = entry_we || claims;
  assign write_at  = state_q == CLEAR ? clear_q : state_q == TELL ? place_q : cmd_place[PW-1:0];
  berth_fp_mem #(
      .WIDTH($bits(entry)),
      .DEPTH(KEYS),
      .OWN(1'b1)
  ) m_entries (
      .clk,
      .we(entry_we),
      .waddr(write_at),
      .wdata(entry_new),
      .re(take),
      .raddr(place),
      .rdata(entry)
  );
  berth_fp_mem #(
      .WIDTH($bits(claim)),
      .DEPTH(KEYS),
      .OWN(1'b1)
  ) m_claims (
      .clk,
      .we(claim_we),
      .waddr(write_at),
      .wdata(claims ? claim_q : '0),
      .re(take),
      .raddr(place),
      .rdata(claim)
  );

  logic [2:0] denies;
  berth_fp_mem #(
      .WIDTH(3),
      .DEPTH(QPS)
  ) m_denies (
      .clk,
      .we(start),
      .waddr(start_q),
      .wdata(start_denies),
      .re(take),
      .raddr(ask.qpn[QW-1:0]),
      .rdata(denies)
  );

  // ---- what is compared ----------------------------------------------------------------------------
  logic known, of_domain, in_range, allowed, same, part_of, begins, goes_on;
  logic known_q, of_domain_q, bound_q, in_range_q, allowed_q, one_shot_q, fresh_q, repeats_q, begins_q, goes_on_q, part_of_q;
  logic [7:0] asid_q;
  logic [23:0] ahead;
  logic [25:0] packets;
  assign known     = scope.live && entry.key == a_q.key;
  assign of_domain = scope.domain == a_q.domain;
  assign in_range    = !wraps_q && a_q.va >= entry.first && last_q <= entry.last;
  logic [2:0] rights;
  assign rights    = scope.rights & ~denies;
  always_comb begin
    case (a_q.right)
      berth_row_pkg::RIGHT_BIT_READ:   allowed = (rights & berth_row_pkg::RIGHT_READ) != '0;
      berth_row_pkg::RIGHT_BIT_WRITE:  allowed = (rights & berth_row_pkg::RIGHT_WRITE) != '0;
      berth_row_pkg::RIGHT_BIT_ATOMIC: allowed = (rights & berth_row_pkg::RIGHT_ATOMIC) != '0;
      default:                          allowed = 1'b0;
    endcase
  end
  assign same    = claim.taken && claim.qpn == a_q.qpn;
  assign ahead   = a_q.psn - claim.psn;
  assign part_of  = {1'b0, ahead} + {1'b0, a_q.packets} <= claim.packets;
  assign begins  = ahead == '0 && !claim.over;
  assign goes_on = {1'b0, ahead} == claim.packets && before_q == claim.last && a_q.right == berth_row_pkg::RIGHT_BIT_READ;
  assign packets = {1'b0, claim.packets} + 26'(a_q.packets);
  always_comb begin
    claim_new = claim;
    if (op_q == OP_OVER) claim_new.over = 1'b1;
    else begin
      claim_new.taken   = 1'b1;
      claim_new.over    = 1'b0;
      claim_new.right   = a_q.right;
      claim_new.qpn     = a_q.qpn;
      claim_new.psn     = claim.taken ? claim.psn : a_q.psn;
      claim_new.packets = !claim.taken ? 25'(a_q.packets) : packets[25] ? '1 : packets[24:0];
      claim_new.last    = last_q;
    end
  end
  always_ff @(posedge clk)
    if (state_q == READ) begin
      known_q     <= known;
      of_domain_q <= of_domain;
      bound_q     <= scope.bound;
      in_range_q    <= in_range;
      allowed_q   <= allowed;
      one_shot_q  <= scope.one_shot;
      asid_q      <= scope.asid;
      fresh_q     <= !claim.taken && !a_q.again;
      repeats_q   <= same && claim.right == a_q.right && a_q.again && part_of;
      begins_q    <= same && claim.right == a_q.right && !a_q.again && begins;
      goes_on_q   <= same && claim.right == a_q.right && !a_q.again && goes_on;
      part_of_q    <= same && {1'b0, ahead} < claim.packets;
      claim_q     <= claim_new;
      if (op_q == OP_LOAD) loaded <= entry;
    end

  // ---- the answer ------------------------------------------------------------------------------------
  assign told_valid    = state_q == TELL && op_q == OP_ASK;
  assign told.asid     = asid_q;
  assign told.one_shot = one_shot_q;
  always_comb begin
    told.refusal = berth_row_pkg::KEY_OK;
    if (!known_q) told.refusal = berth_row_pkg::KEY_UNKNOWN;
    else if (!of_domain_q) told.refusal = berth_row_pkg::KEY_DOMAIN;
    else if (!bound_q) told.refusal = berth_row_pkg::KEY_UNBOUND;
    else if (!in_range_q) told.refusal = berth_row_pkg::KEY_OUTSIDE;
    else if (!allowed_q) told.refusal = berth_row_pkg::KEY_RIGHT;
    else if (one_shot_q && !(fresh_q || repeats_q || begins_q || goes_on_q)) told.refusal = berth_row_pkg::KEY_USED;
  end
  assign claims = (told_valid && told.refusal == berth_row_pkg::KEY_OK && a_q.claim && one_shot_q && (fresh_q || goes_on_q))
               || (state_q == TELL && op_q == OP_OVER && known_q && part_of_q);

  always_ff @(posedge clk) begin
    case (state_q)
      CLEAR: begin
        clear_q <= clear_q + 1'b1;
        if (clear_q == '1) state_q <= IDLE;
      end
      IDLE:    if (take) state_q <= READ;
      READ:    state_q <= TELL;
      default: state_q <= IDLE;
    endcase
    if (rst) begin
      state_q <= CLEAR;
      clear_q <= '0;
    end
  end

  wire unused = &{1'b0, cmd_place, a_q, entry, scope};
endmodule
