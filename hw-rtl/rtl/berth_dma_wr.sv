// SPDX-License-Identifier: Apache-2.0 OR MIT
// DMA writes: reads packet RAM at any byte alignment and cuts it into posted writes to the host.
//
// Three stages that do not wait for each other: cut (one posted write per cycle), fetch (one beat
// per cycle, over the ends of posted writes), send. Posted writes end at multiples of the maximum
// payload, so that but for a command's first one all begin aligned.
module berth_dma_wr #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64,
    // Beats from packet RAM on their way to the host, a power of two.
    parameter int unsigned WORDS = 64,
    // Posted writes cut ahead, a power of two.
    parameter int unsigned SEGS = 8
) (
    input  logic              clk,
    input  logic              rst,
    // Commands; bad ones only get their status.
    input  logic              cmd_valid,
    output logic              cmd_ready,
    input  logic              cmd_bad,
    input  logic [17:0]       cmd_local,
    input  logic [12:0]       cmd_len,
    input  logic [15:0]       cmd_tag,
    input  logic [63:0]       cmd_addr,
    input  logic              cmd_virtual,
    input  logic [ 7:0]       cmd_asid,
    // A command has ended: its last beat has been accepted.
    output logic              done_valid,
    input  logic              done_ready,
    output logic [15:0]       done_tag,
    output logic [ 7:0]       done_status,
    // Control: limits, no new page while hold.
    input  logic              enable,
    input  logic              hold,
    input  logic [ 3:0]       log2_payload,
    output logic              quiet,   // nothing looked up, nothing on its way
    output logic [ 4:0]       flying,  // posted writes on their way
    output logic              busy,
    // Look-up of a virtual page.
    output logic              lk_req,
    output logic [ 7:0]       lk_asid,
    output logic [51:0]       lk_vpn,
    input  logic              lk_ack,
    input  logic              lk_hit,
    input  logic [51:0]       lk_page,
    // Packet RAM, any byte address: answers come in order and can not be held up.
    output logic              pr_valid,
    input  logic              pr_ready,
    output logic [17:0]       pr_addr,
    input  logic              pr_rvalid,
    input  logic [DATA_W-1:0] pr_rdata,
    // To the posted write port; addr and len stay for the whole packet.
    output logic              wr_valid,
    input  logic              wr_ready,
    output logic [63:0]       wr_addr,
    output logic [12:0]       wr_len,
    output logic [DATA_W-1:0] wr_data,
    output logic              wr_last,
    // Pulse for the counters.
    output logic              inc_no_translation
);
  localparam int unsigned BYTES = DATA_W / 8;
  localparam logic [1:0] OK = berth_regs_pkg::DMA_OK[1:0];
  localparam logic [1:0] NO_TRANSLATION = berth_regs_pkg::DMA_NO_TRANSLATION[1:0];
  localparam logic [1:0] REFUSED = berth_regs_pkg::DMA_REFUSED[1:0];

  // ---- Cut: one segment per posted write; a segment of length 0 only carries a status ---
  typedef struct packed {
    logic [63:0] addr;
    logic [12:0] len;
    logic        last;    // of its command
    logic [1:0]  status;
    logic [15:0] tag;
  } seg_t;
  typedef enum logic [1:0] {IDLE, PAGE, SEGMENT} state_t;

  state_t state_q;
  seg_t put, seg;
  logic put_valid, put_ready, seg_room, seg_valid, seg_pop;
  logic get_room, get_valid, get_pop;
  logic [17:0] get_local;
  logic [12:0] get_len;
  logic [4:0] segs_q;      // cut and not sent
  logic [17:0] local_q;
  logic [12:0] left_q, len, page_left, line, line_left;
  logic [63:0] addr_q;
  logic [51:0] phys_q;
  logic [15:0] tag_q;
  logic [7:0] asid_q;
  logic virt_q, bad_q, looking_q;

  wire miss = looking_q && lk_ack && !lk_hit;
  wire refuse = !looking_q && (state_q == PAGE || state_q == SEGMENT) && (bad_q || !enable);
  // The end of a command that goes no further; waits for a place in the segment FIFO.
  logic stop_q;
  logic [1:0] why_q;

  always_comb begin
    // A posted write ends at the page's end at the latest, because the limit is at most a page.
    line      = 13'd1 << log2_payload;
    page_left = 13'h1000 - {1'b0, addr_q[11:0]};
    line_left = line - ({1'b0, addr_q[11:0]} & (line - 13'd1));
    len       = left_q < line_left ? left_q : line_left;
    put       = {phys_q, addr_q[11:0], len, len == left_q, OK, tag_q};
    if (stop_q) begin
      put.len    = '0;
      put.last   = 1'b1;
      put.status = why_q;
    end
  end
  assign put_valid = stop_q || (state_q == SEGMENT && !refuse);
  assign put_ready = seg_room && get_room;
  wire put_go = put_valid && put_ready;

  assign cmd_ready = state_q == IDLE && !stop_q;
  assign lk_req = looking_q;
  assign lk_asid = asid_q;
  assign lk_vpn = addr_q[63:12];
  assign inc_no_translation = miss;
  assign flying = segs_q;
  assign quiet = (state_q == IDLE || (state_q == PAGE && !looking_q)) && segs_q == 0;
  assign busy = state_q != IDLE || cmd_valid || stop_q || segs_q != 0 || done_valid;

  always_ff @(posedge clk) begin
    unique case (state_q)
      IDLE: begin
        local_q <= cmd_local;
        left_q  <= cmd_len;
        addr_q  <= cmd_addr;
        tag_q   <= cmd_tag;
        virt_q  <= cmd_virtual;
        asid_q  <= cmd_asid;
        bad_q   <= cmd_bad;
        if (cmd_valid && cmd_ready) state_q <= PAGE;
      end
      PAGE: begin
        phys_q <= virt_q ? lk_page : addr_q[63:12];
        if (!refuse && !looking_q && !hold) begin
          if (virt_q) looking_q <= 1'b1;
          else state_q <= SEGMENT;
        end
        if (looking_q && lk_ack) begin
          looking_q <= 1'b0;
          state_q   <= SEGMENT;
        end
      end
      default:
      if (put_go) begin
        local_q <= local_q + 18'(len);
        left_q  <= left_q - len;
        addr_q  <= addr_q + 64'(len);
        if (len == left_q) state_q <= IDLE;
        else if (len == page_left) state_q <= PAGE;
      end
    endcase
    if (miss || refuse) begin
      state_q <= IDLE;
      stop_q  <= 1'b1;
      why_q   <= miss ? NO_TRANSLATION : REFUSED;
    end else if (put_go) stop_q <= 1'b0;
    segs_q <= segs_q + 5'(put_go) - 5'(seg_pop);
    if (rst) begin
      state_q   <= IDLE;
      looking_q <= 1'b0;
      stop_q    <= 1'b0;
      segs_q    <= '0;
    end
  end

  berth_fifo #(
      .WIDTH($bits(put)),
      .DEPTH(SEGS)
  ) seg_fifo (
      .clk,
      .rst,
      .wr_valid(put_valid && get_room),
      .wr_ready(seg_room),
      .wr_data(put),
      .rd_valid(seg_valid),
      .rd_ready(seg_pop),
      .rd_data(seg)
  );

  // ---- Fetch: beat after beat, the next segment's directly behind the last one's ---------
  logic [6:0] room_q;      // places of the word FIFO not yet promised
  logic fetching_q;
  logic [17:0] from_q;
  logic [12:0] fetch_q;    // bytes not yet asked for
  logic word_valid, word_pop, word_space;
  wire fetch_last = fetch_q <= 13'(BYTES);
  wire fetch_go = pr_valid && pr_ready;
  assign pr_valid = fetching_q && room_q != 0;
  assign pr_addr = from_q;
  assign get_pop = get_valid && (!fetching_q || (fetch_go && fetch_last));

  berth_lutfifo #(
      .WIDTH(18 + 13),
      .DEPTH(SEGS)
  ) get_fifo (
      .clk,
      .rst,
      .wr_valid(put_valid && seg_room),
      .wr_ready(get_room),
      .wr_data({local_q, put.len}),
      .rd_valid(get_valid),
      .rd_ready(get_pop),
      .rd_data({get_local, get_len})
  );

  always_ff @(posedge clk) begin
    if (fetch_go) begin
      from_q  <= from_q + 18'(BYTES);
      fetch_q <= fetch_q - 13'(BYTES);
      if (fetch_last) fetching_q <= 1'b0;
    end
    if (get_pop) begin
      from_q     <= get_local;
      fetch_q    <= get_len;
      fetching_q <= get_len != 0;
    end
    room_q <= room_q - 7'(fetch_go) + 7'(word_pop);
    if (rst) begin
      fetching_q <= 1'b0;
      room_q     <= 7'(WORDS);
    end
  end

  logic [DATA_W-1:0] word;
  berth_fifo #(
      .WIDTH(DATA_W),
      .DEPTH(WORDS)
  ) word_fifo (
      .clk,
      .rst,
      .wr_valid(pr_rvalid),
      .wr_ready(word_space),
      .wr_data(pr_rdata),
      .rd_valid(word_valid),
      .rd_ready(word_pop),
      .rd_data(word)
  );

  // ---- Send ------------------------------------------------------------------------------
  logic [12:0] sent_q;     // bytes of the segment that are out
  logic done_q;
  logic [15:0] done_tag_q;
  logic [1:0] done_status_q;

  wire empty_seg = seg.len == 0;
  wire hold_done = seg.last && done_q && !done_ready;  // the place for its status is taken

  assign wr_addr = seg.addr;
  assign wr_len = seg.len;
  assign wr_data = word;
  assign wr_last = seg.len - sent_q <= 13'(BYTES);
  assign wr_valid = seg_valid && !empty_seg && !(wr_last && hold_done) && word_valid;
  assign word_pop = wr_valid && wr_ready;
  assign seg_pop = (word_pop && wr_last) || (seg_valid && empty_seg && !hold_done);
  assign done_valid = done_q;
  assign done_tag = done_tag_q;
  assign done_status = {6'd0, done_status_q};

  always_ff @(posedge clk) begin
    if (word_pop) sent_q <= sent_q + 13'(BYTES);
    if (done_ready) done_q <= 1'b0;
    if (seg_pop) begin
      sent_q <= '0;
      if (seg.last) begin
        done_q        <= 1'b1;
        done_tag_q    <= seg.tag;
        done_status_q <= seg.status;
      end
    end
    if (rst) begin
      sent_q <= '0;
      done_q <= 1'b0;
    end
  end

  // Words that were asked for always find room; a posted write stays within page and limit.
  always_ff @(posedge clk)
    if (!rst) begin
      assert (!pr_rvalid || word_space);
      if (put_go && !stop_q) assert (len != 0 && {1'b0, addr_q[11:0]} + len <= 13'h1000);
    end
endmodule
