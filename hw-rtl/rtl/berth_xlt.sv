// SPDX-License-Identifier: Apache-2.0 OR MIT
// Translation table of pinned pages: look-ups for DMA, counted use for firmware, changes by the driver.
//
// A page stands at one of XLT_PROBE places after its hash. One RAM, one place per cycle;
// all users take turns page by page, so that a long range never holds up a DMA.
module berth_xlt (
    input  logic            clk,
    input  logic            rst,
    // Look-ups, bit 0 for DMA reads and bit 1 for DMA writes: req is held until ack.
    input  logic [1:0]      lk_req,
    input  logic [2*8-1:0]  lk_asid,
    input  logic [2*52-1:0] lk_vpn,
    output logic [1:0]      lk_ack,
    output logic            lk_hit,   // with ack
    output logic [51:0]     lk_page,  // with ack: bus address >> 12
    // Driver's changes: 0 install, 1 evict, 2 revoke. Held until ready.
    input  logic            ch_valid,
    output logic            ch_ready,
    input  logic [1:0]      ch_op,
    input  logic [12:0]     ch_index,
    input  logic [47:0]     ch_vpn,
    input  logic [7:0]      ch_asid,
    input  logic            ch_write,
    input  logic [51:0]     ch_page,
    // Driver's answer to a page request: on to firmware.
    input  logic            rdy_valid,
    output logic            rdy_ready,
    input  logic [15:0]     rdy_tag,
    input  logic [7:0]      rdy_status,
    // Firmware: acquire or release a range.
    input  logic            go_valid,
    output logic            go_ready,
    input  logic            go_release,
    input  logic            go_write,
    input  logic [7:0]      go_asid,
    input  logic [63:0]     go_va,
    input  logic [30:0]     go_len,
    input  logic [15:0]     go_tag,
    // Firmware: answers, as CPU_XLT_RSP.
    output logic            rsp_valid,
    input  logic            rsp_ready,
    output logic [31:0]     rsp_data,
    // To the event writer: words 0 to 6.
    output logic            ev_valid,
    input  logic            ev_ready,
    output logic [7*32-1:0] ev_words,
    // Pulses for the counters.
    output logic            inc_hit,
    output logic            inc_miss,
    output logic            busy
);
  localparam int unsigned ENTRIES = berth_regs_pkg::XLT_ENTRIES;
  localparam int unsigned IW = $clog2(ENTRIES);
  localparam int unsigned PROBE = berth_regs_pkg::XLT_PROBE;
  localparam int unsigned PW = $clog2(PROBE);

  typedef struct packed {
    logic        valid;
    logic        write;
    logic [7:0]  asid;
    logic [47:0] vpn;
    logic [51:0] page;
    logic [15:0] use_count;
  } entry_t;
  typedef enum logic [1:0] {CLEAR, IDLE, SEARCH, CHANGE} state_t;
  typedef enum logic [2:0] {R_IDLE, R_PAGE, R_BACK, R_RSP, R_EVENT} range_t;
  localparam logic [1:0] WHO_READ = 0, WHO_WRITE = 1, WHO_RANGE = 2, WHO_CHANGE = 3;

  // ---- Range engine: state used by the table below --------------------------
  range_t range_q;
  logic r_release_q, r_write_q, r_hit_q;
  logic [7:0] r_asid_q;
  logic [63:0] r_va_q;
  logic [30:0] r_len_q;
  logic [15:0] r_tag_q;
  logic [51:0] r_vpn_q;
  logic [19:0] r_left_q, r_done_q;  // pages to go, pages counted
  logic r_ack, r_found;
  wire r_req = (range_q == R_PAGE && r_left_q != 0) || (range_q == R_BACK && r_done_q != 0);
  // While pages are being counted that may be given back at once, "in use" is no final answer.
  wire r_unsure = range_q == R_PAGE || range_q == R_BACK;

  // ---- Table ----------------------------------------------------------------
  entry_t ent_q, ent_new;
  logic [$bits(ent_q)-1:0] table_q[ENTRIES];  // a plain vector: Yosys makes no RAM of a struct
  state_t state_q;
  logic [1:0] who_q, pick, k;
  logic any, we;
  logic [IW-1:0] raddr, waddr, at_q;
  logic [PW-1:0] n_q;
  logic [7:0] asid_q;
  logic [51:0] vpn_q;
  logic want_write_q;
  logic evict_event, evict_space, range_event, ev_space;

  logic [3:0] req;
  assign req = {ch_valid, r_req, lk_req};

  function automatic logic [IW-1:0] hash(input logic [7:0] asid, input logic [38:0] vpn);
    hash = (vpn[IW-1:0] ^ vpn[13+:IW] ^ vpn[26+:IW]) * IW'(32'h13c7) + IW'(asid) * IW'(32'h9d);
  endfunction

  // The four users take turns.
  logic [7:0] pick_asid;
  logic [51:0] pick_vpn;
  always_comb begin
    any  = 1'b0;
    pick = '0;
    k    = '0;
    for (int unsigned i = 4; i > 0; i--) begin
      k = 2'(32'(who_q) + i);
      if (req[k]) begin
        any  = 1'b1;
        pick = k;
      end
    end
    unique case (pick)
      WHO_READ: {pick_asid, pick_vpn} = {lk_asid[7:0], lk_vpn[51:0]};
      WHO_WRITE: {pick_asid, pick_vpn} = {lk_asid[15:8], lk_vpn[103:52]};
      default: {pick_asid, pick_vpn} = {r_asid_q, r_vpn_q};
    endcase
  end

  // In SEARCH, ent_q is what stands at at_q.
  wire match = ent_q.valid && ent_q.asid == asid_q && {4'd0, ent_q.vpn} == vpn_q && (ent_q.write || !want_write_q);
  wire found = state_q == SEARCH && match;
  wire ended = state_q == SEARCH && (match || n_q == PW'(PROBE - 1));
  wire evict_now = ent_q.use_count == 0 || !ent_q.valid;
  wire ch_done = state_q == CHANGE && (ch_op != 2'd1 || (evict_space && (evict_now || !r_unsure)));

  assign lk_ack  = (ended && !who_q[1]) ? 2'd1 << who_q[0] : 2'd0;
  assign lk_hit  = found;
  assign lk_page = ent_q.page;
  assign r_ack   = ended && who_q == WHO_RANGE;
  assign r_found = found;
  assign ch_ready = ch_done;
  assign evict_event = ch_done && ch_op == 2'd1;

  always_comb begin
    raddr = at_q + 1'b1;
    if (state_q == IDLE) raddr = pick == WHO_CHANGE ? ch_index : hash(pick_asid, pick_vpn[38:0]);
    waddr   = at_q;
    ent_new = ent_q;
    we      = 1'b0;
    unique case (state_q)
      CLEAR: begin
        we = 1'b1;
        ent_new = '0;
      end
      SEARCH:
      if (found && who_q == WHO_RANGE) begin
        if (range_q == R_PAGE && !r_release_q) begin
          we = ent_q.use_count != '1;
          ent_new.use_count = ent_q.use_count + 1;
        end else begin
          we = ent_q.use_count != 0;
          ent_new.use_count = ent_q.use_count - 1;
        end
      end
      CHANGE: begin
        we = ch_done && (ch_op != 2'd1 || evict_now);
        ent_new = '0;
        if (ch_op == 2'd0) ent_new = {1'b1, ch_write, ch_asid, ch_vpn, ch_page, 16'd0};
      end
      default: ;
    endcase
  end

  always_ff @(posedge clk) begin
    if (we) table_q[waddr] <= ent_new;
    ent_q <= table_q[raddr];
  end

  always_ff @(posedge clk) begin
    at_q <= raddr;
    unique case (state_q)
      CLEAR: if (at_q == '1) state_q <= IDLE;
      IDLE: begin
        n_q <= '0;
        asid_q <= pick_asid;
        vpn_q <= pick_vpn;
        want_write_q <= pick == WHO_WRITE || (pick == WHO_RANGE && r_write_q);
        if (any) begin
          who_q   <= pick;
          state_q <= pick == WHO_CHANGE ? CHANGE : SEARCH;
        end
      end
      SEARCH: begin
        n_q <= n_q + 1;
        if (ended) state_q <= IDLE;
      end
      // An eviction that has to wait lets the others pass.
      CHANGE: state_q <= IDLE;
    endcase
    if (rst) begin
      state_q <= CLEAR;
      at_q    <= '0;
      who_q   <= '0;
    end
  end

  // ---- Ranges ---------------------------------------------------------------
  wire [19:0] go_pages = 20'((32'({1'b0, go_len}) + 32'(go_va[11:0]) + 32'd4095) >> 12);
  wire rsp_space, rsp_push;
  assign go_ready = range_q == R_IDLE;
  assign inc_hit  = range_q == R_RSP && rsp_space && r_hit_q;
  assign inc_miss = range_q == R_RSP && rsp_space && !r_hit_q;
  assign range_event = range_q == R_EVENT;
  assign busy = state_q != IDLE || req != 0 || range_q != R_IDLE || go_valid || rdy_valid || ev_valid;

  always_ff @(posedge clk) begin
    unique case (range_q)
      R_IDLE: begin
        r_release_q <= go_release;
        r_write_q   <= go_write;
        r_asid_q    <= go_asid;
        r_va_q      <= go_va;
        r_len_q     <= go_len;
        r_tag_q     <= go_tag;
        r_vpn_q     <= go_va[63:12];
        r_left_q    <= go_pages;
        r_done_q    <= '0;
        r_hit_q     <= 1'b1;
        if (go_valid) range_q <= R_PAGE;
      end
      R_PAGE:
      if (r_left_q == 0) range_q <= r_release_q ? R_EVENT : R_RSP;
      else if (r_ack) begin
        if (r_found || r_release_q) begin
          r_left_q <= r_left_q - 1;
          r_done_q <= r_done_q + 1;
          r_vpn_q  <= r_vpn_q + 1;
        end else begin
          // A miss: what has been counted so far is given back.
          r_hit_q <= 1'b0;
          r_vpn_q <= r_va_q[63:12];
          range_q <= R_BACK;
        end
      end
      R_BACK:
      if (r_done_q == 0) range_q <= R_RSP;
      else if (r_ack) begin
        r_done_q <= r_done_q - 1;
        r_vpn_q  <= r_vpn_q + 1;
      end
      // Firmware hears of the miss before the host does, so before the host can answer.
      R_RSP: if (rsp_space) range_q <= r_hit_q ? R_IDLE : R_EVENT;
      default: if (ev_space && !evict_event) range_q <= R_IDLE;
    endcase
    if (rst) range_q <= R_IDLE;
  end

  // ---- Answers and events ---------------------------------------------------
  assign rsp_push  = range_q == R_RSP;
  assign rdy_ready = rsp_space && !rsp_push;
  wire [31:0] rsp_word = rsp_push ?
      {1'b1, 3'd0, r_hit_q ? berth_regs_pkg::XLT_HIT[3:0] : berth_regs_pkg::XLT_MISS[3:0], 8'd0, r_tag_q} :
      {1'b1, 3'd0, berth_regs_pkg::XLT_READY[3:0], rdy_status, rdy_tag};
  berth_fifo #(
      .WIDTH(32),
      .DEPTH(512)
  ) rsp_fifo (
      .clk,
      .rst,
      .wr_valid(rsp_push || rdy_valid),
      .wr_ready(rsp_space),
      .wr_data(rsp_word),
      .rd_valid(rsp_valid),
      .rd_ready(rsp_ready),
      .rd_data(rsp_data)
  );

  wire [31:0] range_kind = r_release_q ? berth_regs_pkg::EV_PAGE_RELEASE : berth_regs_pkg::EV_PAGE_NEED;
  wire [7*32-1:0] range_words = {
    1'b0, r_len_q, r_va_q[63:32], r_va_q[31:0], 31'd0, r_write_q, 24'd0, r_asid_q, 16'd0, r_tag_q, range_kind
  };
  wire [7*32-1:0] evict_words = {
    128'd0, 31'd0, evict_now, 19'd0, ch_index, berth_regs_pkg::EV_PAGE_EVICTED
  };
  assign evict_space = ev_space;
  berth_fifo #(
      .WIDTH(7 * 32),
      .DEPTH(16)
  ) ev_fifo (
      .clk,
      .rst,
      .wr_valid(evict_event || range_event),
      .wr_ready(ev_space),
      .wr_data(evict_event ? evict_words : range_words),
      .rd_valid(ev_valid),
      .rd_ready(ev_ready),
      .rd_data(ev_words)
  );

  // One user is answered at a time, and only from a valid entry.
  always_ff @(posedge clk)
    if (!rst) assert ($countones({lk_ack, r_ack, ch_ready}) <= 1 && (!found || ent_q.valid));
endmodule
