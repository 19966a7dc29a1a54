// SPDX-License-Identifier: Apache-2.0 OR MIT
// The send rings of all raw queues, or their receive rings: takes doorbells, and fetches elements ahead, so that none of
// them waits for the host when its turn has come.
//
// An element has its place in the card by its index, modulo ELEMENTS. A ring's places are four blocks. A read fetches
// elements of one block, and each block has one read under way at most, so that the block is the read's tag. What a read
// brings besides, as reads are of pairs of elements, is not stored. With places for a part of a block only, nothing of it is
// read yet: the rest would have to wait for that read, and elements that are there for more than that are enough.
module berth_raw_ring #(
    parameter int unsigned HOST_W   = 128,                              // bits of a beat of DMA, 64 to 1024 
    parameter int unsigned QUEUES   = berth_regs_pkg::RAW_QUEUES,       // rings, up to 4
    parameter int unsigned ELEMENTS = berth_regs_pkg::RAW_ELEMENTS,     // elements fetched ahead of each, 8 to 32
    parameter int unsigned QW       = $clog2(QUEUES)
) (
    input  logic                           clk,
    input  logic                           rst,
    // A queue is made or ends; of one that has ended elements are shown no more.
    input  logic                           create,
    input  logic                           finish,
    input  logic [QW-1:0]                  setup_q,
    input  logic [63:0]                    base,        // with `create`
    input  logic [3:0]                     log2,        // with `create`: of its elements
    output logic [QUEUES-1:0]              on,
    output logic [QUEUES-1:0]              reading,     // reads of it are under way
    output logic                           working,     // something is to be fetched
    // Doorbells of this side; one that is further ahead than the ring is deep is dropped.
    input  logic                           bell_valid,
    input  berth_card_pkg::raw_doorbell_t  bell,
    output logic                           bell_bad,
    // Reads (see berth_queue_rd), with tags below 16.
    output logic                           qr_valid,
    input  logic                           qr_ready,
    output berth_card_pkg::queue_read_t    qr,
    input  logic                           qc_valid,
    input  logic [HOST_W-1:0]              qc_data,
    input  berth_card_pkg::queue_beat_t    qc,
    // Its user: the oldest element of a ring is there; there is one, but it is not fetched yet. In the clock after `pop` both
    // may still speak of the element that is gone, so `there` says no.
    output logic [QUEUES-1:0]              there,
    output logic [QUEUES-1:0]              posted,
    input  logic                           take,        // shows the oldest one from the next clock on
    input  logic [QW-1:0]                  take_q,
    output berth_card_pkg::raw_element_t   el,
    input  logic                           pop,         // and it is used up
    input  logic [QW-1:0]                  pop_q
);
  localparam int unsigned BLOCK = ELEMENTS / 4;
  localparam int unsigned EW = $clog2(ELEMENTS), BW = $clog2(BLOCK);
  localparam int unsigned BYTES = HOST_W / 8;
  localparam int unsigned LB = $clog2(BYTES);
  initial if (QUEUES < 2 || QUEUES > 4 || ELEMENTS < 8 || ELEMENTS > 32 || ELEMENTS != 1 << EW || HOST_W < 64)
    $fatal(1, "berth_raw_ring: 2 to 4 queues, 8 to 32 elements, beats of 64 bits or more");

  // ---- Rings ------------------------------------------------------------------------------------------------------
  logic [51:0] base_q[QUEUES];
  logic [3:0]  log2_q[QUEUES];
  logic [15:0] posted_q[QUEUES], fetched_q[QUEUES], head_q[QUEUES];
  logic [QUEUES-1:0] on_q;
  assign on = on_q;

  // ---- Doorbells: one clock after they came -----------------------------------------------------------------------
  logic ring_q, known_q;
  logic [QW-1:0] bell_q;
  logic [15:0] pi_q;
  wire [15:0] used = posted_q[bell_q] - head_q[bell_q];
  wire [15:0] wanted = pi_q - head_q[bell_q];
  wire sound = known_q && on_q[bell_q] && wanted >= used && wanted <= 16'd1 << log2_q[bell_q];
  assign bell_bad = ring_q && !sound;
  always_ff @(posedge clk) begin
    ring_q  <= bell_valid && !rst;
    known_q <= 32'(bell.number) < QUEUES;
    bell_q  <= bell.number[QW-1:0];
    pi_q    <= bell.pi;
  end

  // ---- What is to be fetched: one ring after the other is looked at ---------------------------------------------------
  typedef enum logic [1:0] {LOOK, COUNT, SUM, ASK} state_t;
  state_t state_q;
  logic [QW-1:0] s_q;
  logic [15:0] from_q, mask_q, ahead_q;
  logic [EW:0] room_q;
  logic [3:0] n_q;                // elements of the read
  logic [BW-1:0] low_q;           // first of them in its block
  logic [4*QUEUES-1:0] flying_q;  // reads, by ring and block
  logic [51:0] page_q;            // of the ring's base
  logic [63:0] addr_q;
  logic [9:0] len_q;
  wire [1:0] block = from_q[EW-1:BW];
  wire [3:0] upto = 4'(BLOCK) - 4'(from_q[BW-1:0]);
  wire [3:0] by_room = 32'(room_q) < 32'(upto) ? 4'(room_q) : upto;
  wire [3:0] n = ahead_q < 16'(by_room) ? ahead_q[3:0] : by_room;
  wire [3:0] pairs = 4'((5'(from_q[0]) + 5'(n) + 5'd1) >> 1);
  wire [3:0] tag = {2'(s_q), block};
  wire [16:0] place = {1'b0, from_q & mask_q & 16'hfffe};
  assign qr_valid = state_q == ASK;
  assign qr.addr  = addr_q;
  assign qr.len   = len_q;
  assign qr.tag   = {4'd0, tag};

  logic [BW-1:0] lows[16], highs[16];   // of each read: first element in its block, and the last
  wire [BW:0] low = {1'b0, lows[qc.tag[3:0]]};
  wire [BW:0] high = {1'b0, highs[qc.tag[3:0]]};
  wire over = qc_valid && qc.last;
  wire [QW-1:0] c_q = qc.tag[2+:QW];

  // ---- Elements ---------------------------------------------------------------------------------------------------------
  logic [ELEMENTS*QUEUES-1:0] valid_q, failed_q;
  logic [BLOCK-1:0] mask;
  always_comb for (int unsigned i = 0; i < BLOCK; i++) mask[i] = (BW+1)'(i) >= low && (BW+1)'(i) <= high;
  localparam int unsigned PARTS = HOST_W > 512 ? 2 : 1;     // elements of a beat
  localparam int unsigned WIDE = HOST_W > 512 ? 512 : HOST_W;
  localparam int unsigned LANES = 512 / WIDE;               // beats of an element
  logic [BW:0] first;                                       // element of the beat, in its block
  assign first = {low[BW:1], 1'b0} + qc.off[6+:BW+1];
  logic [PARTS*512-1:0] shown;
  logic [EW-1:0] at_q;
  wire [EW-1:0] at = head_q[take_q][EW-1:0];
  for (genvar p = 0; p < PARTS; p++) begin : part
    localparam int unsigned PB = $clog2(PARTS);
    wire [BW:0] mine = first + (BW+1)'(p);
    logic [LANES-1:0] lane;
    if (LANES > 1) begin : lanes
      assign lane = LANES'(1) << qc.off[5:LB];
    end else begin : whole
      assign lane = 1'b1;
    end
    logic [63:0] strb;
    always_comb for (int unsigned i = 0; i < 64; i++) strb[i] = lane[i/(WIDE/8)];
    berth_ram #(.WIDTH(512), .DEPTH(QUEUES * ELEMENTS / PARTS), .OWN(1'b1)) ram (
        .clk, .we(qc_valid && mine >= low && mine <= high && !mine[BW]),
        .waddr({c_q, qc.tag[1:0], mine[BW-1:PB]}), .wdata({LANES{qc_data[WIDE*p+:WIDE]}}), .wstrb(strb),
        .re(take), .raddr({take_q, at[EW-1:PB]}), .rdata(shown[512*p+:512])
    );
  end
  if (PARTS == 2) begin : pair
    assign el.wqe = at_q[0] ? shown[512+:512] : shown[511:0];
  end else begin : one
    assign el.wqe = shown;
  end
  logic [15:0] count_q;
  logic bad_q;
  assign el.count  = count_q;
  assign el.failed = bad_q;

  always_comb
    for (int unsigned q = 0; q < QUEUES; q++)
      reading[q] = flying_q[4*q+:4] != '0 || (state_q == ASK && s_q == QW'(q));
  assign working = qr_valid || flying_q != '0 || ring_q || need_q != '0;
  logic [QUEUES-1:0] need_q;      // elements are posted that are to be read now

  always_ff @(posedge clk) begin
    at_q <= at;
    if (take) begin
      count_q <= head_q[take_q] + 16'd1;
      bad_q   <= failed_q[{take_q, at}];
    end
    unique case (state_q)
      LOOK: begin
        from_q  <= fetched_q[s_q];
        ahead_q <= posted_q[s_q] - fetched_q[s_q];
        room_q  <= (EW+1)'(ELEMENTS) - (EW+1)'(fetched_q[s_q] - head_q[s_q]);
        mask_q  <= (16'd1 << log2_q[s_q]) - 16'd1;
        page_q  <= base_q[s_q];
        state_q <= on_q[s_q] ? COUNT : LOOK;
        if (!on_q[s_q]) s_q <= s_q == QW'(QUEUES - 1) ? '0 : s_q + 1'b1;
      end
      COUNT: begin
        n_q   <= n;
        low_q <= from_q[BW-1:0];
        len_q <= 10'(pairs) << 7;
        if (n == 4'd0 || (n < upto && ahead_q > 16'(n)) || flying_q[{s_q, block}] || !on_q[s_q]) begin
          state_q <= LOOK;
          s_q     <= s_q == QW'(QUEUES - 1) ? '0 : s_q + 1'b1;
        end else state_q <= SUM;
      end
      SUM: begin
        addr_q  <= {page_q + 52'(place[16:6]), place[5:0], 6'd0};
        state_q <= on_q[s_q] ? ASK : LOOK;
      end
      default:
        if (qr_ready) begin
          flying_q[{s_q, block}] <= 1'b1;
          lows[tag]  <= low_q;
          highs[tag] <= low_q + BW'(n_q - 4'd1);
          fetched_q[s_q] <= from_q + 16'(n_q);
          state_q <= LOOK;
          s_q     <= s_q == QW'(QUEUES - 1) ? '0 : s_q + 1'b1;
        end
    endcase
    if (over) begin
      flying_q[{c_q, qc.tag[1:0]}] <= 1'b0;
      for (int unsigned i = 0; i < BLOCK; i++)
        if (mask[i]) begin
          valid_q[{c_q, qc.tag[1:0], BW'(i)}]  <= 1'b1;
          failed_q[{c_q, qc.tag[1:0], BW'(i)}] <= qc.err;
        end
    end
    if (ring_q && sound) posted_q[bell_q] <= pi_q;
    if (pop) begin
      head_q[pop_q] <= head_q[pop_q] + 16'd1;
      valid_q[{pop_q, head_q[pop_q][EW-1:0]}] <= 1'b0;
    end
    for (int unsigned q = 0; q < QUEUES; q++) begin
      there[q]  <= on_q[q] && valid_q[{QW'(q), head_q[q][EW-1:0]}] && !(pop && pop_q == QW'(q)) && !(finish && setup_q == QW'(q));
      posted[q] <= on_q[q] && posted_q[q] != head_q[q];
      need_q[q] <= on_q[q] && posted_q[q] != fetched_q[q]
                && (32'(16'(posted_q[q] - head_q[q])) <= ELEMENTS
                    || 32'(16'(fetched_q[q] - head_q[q])) + BLOCK - 32'(fetched_q[q][BW-1:0]) <= ELEMENTS);
    end
    if (create) begin
      on_q[setup_q]      <= 1'b1;
      base_q[setup_q]    <= base[63:12];
      log2_q[setup_q]    <= log2;
      posted_q[setup_q]  <= '0;
      fetched_q[setup_q] <= '0;
      head_q[setup_q]    <= '0;
      for (int unsigned i = 0; i < ELEMENTS; i++) valid_q[{setup_q, EW'(i)}] <= 1'b0;
    end
    if (finish) on_q[setup_q] <= 1'b0;
    if (rst) begin
      state_q  <= LOOK;
      s_q      <= '0;
      on_q     <= '0;
      flying_q <= '0;
      valid_q  <= '0;
      there    <= '0;
      need_q   <= '0;
    end
  end

  // What is used up was there; no more is fetched ahead than has a place.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!pop || valid_q[{pop_q, head_q[pop_q][EW-1:0]}]);
      assert (!over || flying_q[{c_q, qc.tag[1:0]}]);
    end
  wire unused = &{1'b0, bell.rq, base[11:0], qc, mask_q[0], at_q};
endmodule
