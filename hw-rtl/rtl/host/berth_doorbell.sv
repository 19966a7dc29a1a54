// SPDX-License-Identifier: Apache-2.0 OR MIT
// Doorbell pages (BAR2): checks the page against the QP's, keeps each QP's latest indices, hands fresh ones to the core;
// those of the fast path's QPs go there at once, some with their element.
module berth_doorbell (
    input  logic                         clk,
    input  logic                         rst,
    // Accesses to BAR2 (reads are answered elsewhere, but judged here).
    input  logic                         db_valid,
    output logic                         db_ready,
    input  logic                         db_write,
    input  logic [17:0]                  db_addr,
    input  logic [63:0]                  db_wdata,
    input  logic [ 7:0]                  db_wstrb,
    // Completion-queue doorbells, checked by berth_cq.
    output logic                         cqdb_valid,
    input  logic                         cqdb_ready,
    output berth_card_pkg::cq_doorbell_t cqdb,
    // Core: configure a row.
    input  logic                         db_setup_valid,
    output logic                         db_setup_ready,
    input  berth_card_pkg::db_setup_t    db_setup,
    // Fast path.
    output logic                         fdb_valid,
    input  logic                         fdb_ready,
    output berth_card_pkg::doorbell_t    fdb,
    // Raw queues: a clock each.
    output logic                         rdb_valid,
    output berth_card_pkg::raw_doorbell_t rdb,
    // Core: take the next fresh QP; its data are meaningful with db_pop_ready, the others from then on.
    input  logic                         db_pop_valid,
    output logic                         db_pop_ready,
    output berth_card_pkg::rung_t        db_pop,
    output logic                         pend_doorbell,
    // Pulses for the counters.
    output logic                         inc_taken,
    output logic                         inc_denied,
    output logic                         inc_malformed
);
  localparam int unsigned ROWS = berth_regs_pkg::NUM_QP_ROWS;
  localparam int unsigned RW = $clog2(ROWS);
  localparam int unsigned PAGES = berth_regs_pkg::NUM_UARS;
  localparam int unsigned PW = $clog2(PAGES);

  typedef struct packed {
    logic        fast;
    logic [7:0]  uar;
    logic [31:0] bytes;
    logic [15:0] rq;
    logic [15:0] sq;
  } row_t;
  // REPLAY_RQ, REPLAY_SQ: doorbells that rang before their QP became the fast path's go there, before any other
  // doorbell.
  typedef enum logic [2:0] {IDLE, RING, CONFIG, POP, REPLAY_RQ, REPLAY_SQ} state_t;

  row_t row_q, row_new;
  logic [$bits(row_q)-1:0] rows[ROWS];  // a plain vector: Yosys makes no RAM of a struct
  state_t state_q;
  logic [ROWS-1:0] valid_q, dirty_q;
  logic [RW-1:0] at_q, next_q, at, pick;
  logic we;

  wire [31:0] offset = {20'd0, db_addr[11:0]};
  wire is_sq = offset == berth_regs_pkg::DB_SQ;
  wire is_rq = offset == berth_regs_pkg::DB_RQ;
  wire is_cq = offset == berth_regs_pkg::DB_CQ;
  // Of raw queues, which are the kernel's.
  wire is_raw = offset == berth_regs_pkg::DB_RAW_SQ || offset == berth_regs_pkg::DB_RAW_RQ;
  wire kernel = db_addr[17:12] == '0;
  // A slot: an element's words are kept per page; the last of the eight is a doorbell of the send queue. It brings its
  // element only if all eight came in order: a processor that combines writes may reorder them, and two threads may mix
  // theirs. Stores are counted, so that the rest of such a slot is not taken for the next one; any other doorbell of
  // the page begins anew.
  wire [PW-1:0] page = db_addr[12+:PW];
  wire known_page = 32'(db_addr[17:12]) < PAGES;
  wire in_wqe = known_page && {offset[31:6], 6'd0} == berth_regs_pkg::DB_WQE;
  wire is_last = in_wqe && offset[5:0] == 6'd56;
  wire is_word = in_wqe && !is_last && offset[2:0] == 0 && db_write && db_wstrb == 8'hff;
  wire whole = db_write && db_wstrb == 8'hff && (is_sq || is_rq || is_cq || is_raw || is_last);
  wire for_cq = whole && is_cq;
  wire known = 32'(db_wdata[15:0]) < ROWS;
  wire mine = valid_q[at_q] && row_q.uar == {2'd0, db_addr[17:12]};
  // Doorbells may come without end, so after each one the core has its turn at the rows.
  logic owed_q;
  wire idle = state_q == IDLE && !owed_q;

  assign rdb_valid  = idle && db_valid && whole && is_raw && kernel;
  assign rdb.rq     = offset == berth_regs_pkg::DB_RAW_RQ;
  assign rdb.number = db_wdata[15:0];
  assign rdb.pi     = db_wdata[31:16];
  assign cqdb_valid = idle && db_valid && for_cq;
  assign cqdb.cqn   = db_wdata[15:0];
  assign cqdb.uar   = db_addr[17:12];
  assign cqdb.ci    = db_wdata[31:16];
  assign cqdb.arm   = db_wdata[63];

  // Doorbells of unknown QPs end at once; the others after their row has been read.
  assign db_ready      = (idle && (!whole || is_raw || (!is_cq && !known) || (for_cq && cqdb_ready)))
      || (state_q == RING && (!fast || fdb_ready));
  assign inc_malformed = idle && db_valid && !whole && !is_word;
  assign inc_denied    = (idle && db_valid && whole && (is_raw ? !kernel : !is_cq && !known)) || (state_q == RING && !mine);
  assign inc_taken     = (state_q == RING && mine && db_ready) || rdb_valid;

  wire fast = mine && row_q.fast;
  wire replay = state_q == REPLAY_RQ || state_q == REPLAY_SQ;
  assign fdb_valid  = (state_q == RING && fast) || replay;
  assign fdb.rq     = replay ? state_q == REPLAY_RQ : is_rq;
  assign fdb.qpn    = replay ? 16'(at_q) : db_wdata[15:0];
  assign fdb.pi     = state_q == REPLAY_RQ ? row_q.rq : state_q == REPLAY_SQ ? row_q.sq : db_wdata[31:16];
  assign fdb.posted = replay ? row_q.bytes : db_wdata[63:32];
  assign fdb.pushed = is_last && slot_good && !replay;
  logic [511:0] wqe;
  assign wqe[511:448] = 64'd0;
  assign fdb.wqe = wqe;
  for (genvar w = 0; w < 7; w++) begin : word
    logic [63:0] kept[PAGES];
    logic [63:0] out_q;
    always_ff @(posedge clk) begin
      if (db_valid && is_word && db_addr[5:3] == 3'(w)) kept[page] <= db_wdata;
      if (idle) out_q <= kept[page];
    end
    assign wqe[64*w+:64] = out_q;
  end

  // A QP becomes the fast path's: its row stays, and is passed on.
  wire handed = db_setup.on && db_setup.fast && 32'(db_setup.qpn) < ROWS && valid_q[at_q] && !row_q.fast && row_q.uar == db_setup.uar;

  logic [3:0] slot_q[PAGES];  // of a page's slot: out of order, stores
  wire [3:0] slot = slot_q[page];
  wire slot_good = !slot[3] && slot[2:0] == db_addr[5:3];
  always_ff @(posedge clk) begin
    if (db_valid && db_ready && (is_word || (whole && is_last)))
      slot_q[page] <= {slot[2:0] != 3'd7 && !slot_good, slot[2:0] + 3'd1};
    else if (db_valid && db_ready && whole && known_page) slot_q[page] <= 4'd0;
    if (rst) for (int unsigned i = 0; i < PAGES; i++) slot_q[i] <= 4'd0;
  end

  assign db_setup_ready = state_q == CONFIG;
  assign db_pop_ready = state_q == POP;
  logic [31:0] index_q, bytes_q;
  assign db_pop.index = index_q;
  assign db_pop.bytes = bytes_q;
  assign db_pop.data  = {1'b1, 31'(at_q)} & {32{dirty_q[at_q]}};
  assign pend_doorbell   = dirty_q != 0;

  // Next dirty row from next_q on, cyclic.
  always_comb begin
    pick = next_q;
    if (db_pop_valid) begin
      for (int i = ROWS; i > 0; i--) if (dirty_q[i-1]) pick = RW'(i - 1);
      for (int i = ROWS; i > 0; i--) if (dirty_q[i-1] && i - 1 >= 32'(next_q)) pick = RW'(i - 1);
    end
  end

  always_comb begin
    at = pick;
    if (db_valid && !owed_q) at = db_wdata[RW-1:0];
    else if (db_setup_valid) at = db_setup.qpn[RW-1:0];
    row_new = row_q;
    we = 1'b0;
    if (state_q == CONFIG) begin
      row_new = handed ? {1'b1, row_q[$bits(row_q)-2:0]} : {db_setup.fast, db_setup.uar, 64'd0};
      we = 32'(db_setup.qpn) < ROWS;
    end else if (state_q == RING && mine && !row_q.fast) begin
      we = 1'b1;
      if (!is_rq) begin
        row_new.sq = db_wdata[31:16];
        row_new.bytes = db_wdata[63:32];
      end else row_new.rq = db_wdata[31:16];
    end
  end

  always_ff @(posedge clk) begin
    if (we) rows[at_q] <= row_new;
    if (state_q == IDLE) row_q <= rows[at];
  end

  always_ff @(posedge clk) begin
    unique case (state_q)
      IDLE: begin
        at_q <= at;
        if (db_valid && !owed_q) begin
          if (whole && !is_cq && !is_raw && known) state_q <= RING;
        end else if (db_setup_valid) state_q <= CONFIG;
        else if (db_pop_valid) state_q <= POP;
      end
      RING: begin
        if (mine && !fast) dirty_q[at_q] <= 1'b1;
        if (db_ready) state_q <= IDLE;
      end
      CONFIG: begin
        if (32'(db_setup.qpn) < ROWS) begin
          valid_q[at_q] <= db_setup.on;
          dirty_q[at_q] <= 1'b0;
        end
        state_q <= handed ? REPLAY_RQ : IDLE;
      end
      REPLAY_RQ: if (fdb_ready) state_q <= REPLAY_SQ;
      REPLAY_SQ: if (fdb_ready) state_q <= IDLE;
      POP: begin
        if (dirty_q[at_q]) begin
          index_q <= {row_q.rq, row_q.sq};
          bytes_q <= row_q.bytes;
          next_q <= at_q + 1;
        end
        dirty_q[at_q] <= 1'b0;
        state_q <= IDLE;
      end
      default: state_q <= IDLE;
    endcase
    owed_q <= (db_setup_valid || db_pop_valid) && (owed_q || (db_valid && db_ready)) && state_q != CONFIG && state_q != POP;
    if (rst) begin
      state_q <= IDLE;
      owed_q  <= 1'b0;
      valid_q <= '0;
      dirty_q <= '0;
      next_q  <= '0;
    end
  end

  // Only a row with an owner can be fresh.
  always_ff @(posedge clk) if (!rst) assert ((dirty_q & ~valid_q) == 0);
endmodule
