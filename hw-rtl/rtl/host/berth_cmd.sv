// SPDX-License-Identifier: Apache-2.0 OR MIT
// Fetches the host's command ring, carries out RTL commands in order, queues the others for firmware.
//
// Up to eight fetches are out, of up to four commands each; they are carried out in their order.
//
// The driver may write a command into the card as well (`HOST_CMD_PUSH`): it says the index, then eight words in order.
// A command that is there whole when its turn to be fetched comes is not fetched. There are 64 places, each for the
// next index that falls on it. A command that comes late, torn or too early is dropped, because the ring has it as
// well.
module berth_cmd #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64
) (
    input  logic                          clk,
    input  logic                          rst,
    // Ring, from BAR0. Writing the size resets the indices.
    input  logic                          enable,
    input  logic [63:0]                   cmd_base,
    input  logic [ 4:0]                   cmd_log2,
    input  logic                          cmd_log2_we,
    input  logic [15:0]                   cmd_pi,
    input  logic                          cmd_pi_we,
    output logic [15:0]                   cmd_ci,
    output logic                          cmd_stands,  // a fetch has failed: nothing goes on until the ring is set up anew
    input  logic [ 3:0]                   log2_read,
    // Pushed commands: see `berth_host_regs`.
    input  logic                          push_begin,
    input  logic                          push_we,
    input  logic [ 2:0]                   push_word,
    input  logic [63:0]                   push_data,
    // Fetch: a read request, then its beats (placed by byte offset) and its end.
    output logic                          ring_valid,
    input  logic                          ring_ready,
    output berth_card_pkg::ring_read_t    ring,
    input  berth_card_pkg::ring_beat_t    ring_cpl,
    input  logic                          ring_cpl_valid,
    input  logic [DATA_W-1:0]             ring_cpl_data,
    input  logic                          ring_cpl_end,
    // Translation table.
    output logic                          ch_valid,
    input  logic                          ch_ready,
    output berth_card_pkg::table_change_t ch,
    output logic                          rdy_valid,
    input  logic                          rdy_ready,
    output berth_card_pkg::page_answer_t  rdy,
    // Fence: engines start nothing while hold is high; quiet says that all they had begun has ended.
    output logic                          hold,
    input  logic                          quiet,
    output logic                          token_valid,
    input  logic                          token_ready,
    output logic [63:0]                   token_data,
    // Firmware: word raddr of the command at the head one cycle later.
    output logic                          pend_cmd,
    input  logic                          fw_pop,
    input  logic [3:0]                    fw_raddr,
    output logic [31:0]                   fw_rdata,
    // Pulses for the counters.
    output logic                          inc_bad,
    output logic                          inc_pushed,
    output logic                          busy
);
  localparam int unsigned W = DATA_W > 512 ? 512 : DATA_W;  // bits of a piece: at most an entry
  localparam int unsigned LB = $clog2(W / 8);
  localparam int unsigned BEATS = 512 / W;           // pieces of one entry
  localparam int unsigned BUF = 4 * BEATS;           // pieces of one fetch: at most 4 entries
  localparam int unsigned BA = $clog2(BUF);
  localparam int unsigned FETCHES = 8;
  localparam int unsigned FW_ENTRIES = 16;

  typedef enum logic [3:0] {
    IDLE, LOAD, SHIFT, DECODE, INSTALL, CHANGE, READY, FENCE, TOKEN, COPY
  } state_t;
  state_t state_q;

  // ---- Fetch ----------------------------------------------------------------
  logic [15:0] ci_q;       // what was taken out of the fetches
  logic [15:0] next_q;     // what is to be fetched next
  logic [2:0] n_q, count;  // entries at hand that are left; of the next fetch
  logic request_q;
  logic [15:0] request_at_q;
  logic [2:0] put_q, get_q;                  // fetches: the next one, the oldest
  // Fetches: out or not carried out; has come; of no use, as it failed or the ring has been set up anew since (stale).
  // A failed fetch is not skipped: the fence of a lost revocation may follow it (invariant 4).
  logic [FETCHES-1:0] used_q, there_q, bad_q, stale_q;
  logic [2:0] n_of[FETCHES];
  wire ring_ok = cmd_log2 >= 5'd4 && cmd_log2 <= 5'd12;
  wire [15:0] size = 16'd1 << cmd_log2[3:0];
  wire [15:0] held = cmd_pi - ci_q;
  wire [15:0] avail = cmd_pi - next_q;
  wire pi_ok = ring_ok && held <= size;
  wire [15:0] index = next_q & (size - 16'd1);
  wire [63:0] head = cmd_base + {42'd0, request_at_q, 6'd0};
  // Up to the next 256 bytes (128, if reads may not be longer), so no fetch crosses 4 KiB.
  wire [7:6] line = cmd_base[7:6] + index[1:0];
  wire [2:0] to_line = log2_read < 4'd8 ? 3'd2 - {2'd0, line[6]} : 3'd4 - {1'b0, line};
  always_comb begin
    count = to_line;
    if (16'(count) > avail) count = avail[2:0];
    if (16'(count) > size - index) count = 3'(size - index);
  end

  // ---- Pushed commands --------------------------------------------------------
  localparam int unsigned PLACES = berth_regs_pkg::CMD_PUSHES;
  localparam int unsigned PA = $clog2(PLACES);
  localparam int unsigned BANKS = W / 64;
  // Of the next PLACES - 1 indices only one falls on each place. A pushed command is accepted only if its index is
  // among these and has not been fetched; a skipped command loses its place. The one that is carried out keeps its
  // words.
  logic [PLACES-1:0] whole_q;
  logic open_q;              // a command is being written ...
  logic [15:0] push_at_q;    // ... with this index ...
  logic [2:0] push_next_q;   // ... up to this word
  logic [FETCHES-1:0] pushed_q;
  logic [PA-1:0] place_of[FETCHES];
  wire [15:0] to_next = push_data[15:0] - next_q;
  wire [15:0] to_ci = push_data[15:0] - ci_q;
  wire [15:0] open_to_next = push_at_q - next_q;
  wire push_word_ok = push_we && open_q && push_word == push_next_q;
  wire may_ask = !request_q && enable && pi_ok && avail != 0 && !used_q[put_q] && !cmd_log2_we;
  wire take_pushed = may_ask && whole_q[next_q[PA-1:0]];
  assign inc_pushed = take_pushed;
  logic [W-1:0] pushed_line;
  for (genvar b = 0; b < BANKS; b++) begin : g_pushed
    localparam int unsigned DEPTH = PLACES * BEATS;
    logic we;
    logic [$clog2(DEPTH)-1:0] waddr, raddr;
    assign we = push_word_ok && (push_word & 3'(BANKS - 1)) == 3'(b);
    if (BEATS == 1) begin : one
      assign waddr = push_at_q[PA-1:0];
      assign raddr = place_of[get_q];
    end else begin : some
      assign waddr = {push_at_q[PA-1:0], push_word[2-:$clog2(BEATS)]};
      assign raddr = {place_of[get_q], beat_q[0+:$clog2(BEATS)]};
    end
    berth_fp_mem #(
        .WIDTH(64),
        .DEPTH(DEPTH),
        .OWN(1'b1)
    ) words (
        .clk,
        .we,
        .waddr,
        .wdata(push_data),
        .re(1'b1),
        .raddr,
        .rdata(pushed_line[64*b+:64])
    );
  end

  logic [W-1:0] line_q;
  logic [BA-1:0] beat_q;    // next piece to read
  logic [BA:0] left_q;      // pieces of the entry that are still to come
  if (DATA_W == W) begin : narrow
    logic [W-1:0] lines[FETCHES*BUF];
    always_ff @(posedge clk) begin
      if (ring_cpl_valid) lines[{ring_cpl.tag, ring_cpl.off[LB+:BA]}] <= ring_cpl_data;
      line_q <= lines[{get_q, beat_q}];
    end
    wire unused_more = ring_cpl.more;
  end else begin : wide
    // A beat is two entries, of which the first may be any: even and odd ones apart.
    logic [W-1:0] even[2*FETCHES], odd[2*FETCHES];
    wire first_odd = ring_cpl.off[6];
    wire at = ring_cpl.off[7];
    always_ff @(posedge clk) begin
      if (ring_cpl_valid && (!first_odd || ring_cpl.more)) even[{ring_cpl.tag, at ^ first_odd}] <= ring_cpl_data[first_odd ? DATA_W - W : 0+:W];
      if (ring_cpl_valid && (first_odd || ring_cpl.more)) odd[{ring_cpl.tag, at}] <= ring_cpl_data[first_odd ? 0 : DATA_W - W+:W];
      line_q <= beat_q[0] ? odd[{get_q, beat_q[1]}] : even[{get_q, beat_q[1]}];
    end
  end

  // ---- The entry, word 0 in the low bits --------------------------------------
  localparam int unsigned PAGE_AT = 32 * berth_regs_pkg::INSTALL_FIRST;
  localparam int unsigned VPN_AT = 32 * berth_regs_pkg::INSTALL_VPN;
  localparam int unsigned EVICT_AT = 32 * berth_regs_pkg::EVICT_FIRST;
  logic [511:0] entry_q;
  logic [3:0] page_q;       // pages carried out
  logic [3:0] word_q;
  wire [31:0] w0 = entry_q[31:0];
  berth_regs_pkg::pages_t pages;
  berth_regs_pkg::page_ready_t ready;
  berth_regs_pkg::page_revoke_t revoke;
  berth_regs_pkg::fence_t fence;
  berth_regs_pkg::installed_page_t page;  // the page at hand; INSTALL shifts the others down
  assign pages  = w0;
  assign ready  = entry_q[$bits(ready)-1:0];
  assign revoke = entry_q[$bits(revoke)-1:0];
  assign fence  = entry_q[$bits(fence)-1:0];
  assign page   = entry_q[PAGE_AT+:64];
  wire [31:0] opcode = {24'd0, pages.code};
  wire [3:0] further = pages.further;
  wire [12:0] page_index = {page.index_high, page.index};
  wire [31:0] asid = entry_q[32*berth_regs_pkg::INSTALL_ASID+:32];
  wire asid_ok = asid != 0 && asid < berth_regs_pkg::NUM_ASIDS;
  wire install_ok = further < berth_regs_pkg::INSTALL_PAGES[3:0] && asid_ok;
  wire page_ok = {19'd0, page_index} < berth_regs_pkg::XLT_ENTRIES;
  wire revoke_ok = revoke.index < berth_regs_pkg::XLT_ENTRIES;
  // Pages to evict: half a word each, the one at hand first; CHANGE shifts the others down.
  wire evict = opcode == berth_regs_pkg::CMD_PAGE_EVICT;
  logic evict_ok;
  always_comb begin
    evict_ok = further < berth_regs_pkg::EVICT_PAGES[3:0];
    for (int unsigned i = 0; i < berth_regs_pkg::EVICT_PAGES; i++)
      if (4'(i) <= further && {16'd0, entry_q[EVICT_AT+16*i+:16]} >= berth_regs_pkg::XLT_ENTRIES) evict_ok = 1'b0;
  end

  assign cmd_ci = ci_q;
  assign ring_valid = request_q && enable;
  assign ring.addr = head;
  assign ring.len = {4'd0, n_of[put_q], 6'd0};
  assign ring.tag = put_q;

  assign ch_valid = state_q == CHANGE || (state_q == INSTALL && page_ok);
  assign ch.op = state_q == INSTALL ? berth_row_pkg::CHANGE_INSTALL : evict ? berth_row_pkg::CHANGE_EVICT : berth_row_pkg::CHANGE_REVOKE;
  assign ch.more = (state_q == INSTALL || evict) && page_q != further;
  assign ch.index = state_q == INSTALL ? page_index : evict ? entry_q[EVICT_AT+:13] : revoke.index[12:0];
  assign ch.vpn = entry_q[VPN_AT+:48] + 48'(page_q);
  assign ch.asid = asid[7:0];
  assign ch.write = page.write;
  assign ch.page = {2'd0, page.page};
  assign rdy_valid = state_q == READY;
  assign rdy.tag = ready.tag[17:0];
  assign rdy.status = ready.status[7:0];
  assign hold = state_q == FENCE || state_q == TOKEN;
  assign token_valid = state_q == TOKEN;
  assign token_data = fence.token;
  assign cmd_stands = state_q == IDLE && used_q[get_q] && there_q[get_q] && bad_q[get_q] && !stale_q[get_q];
  assign busy = !cmd_stands && (state_q != IDLE || used_q != 0 || (pi_ok && enable && held != 0));

  // ---- Firmware's queue -------------------------------------------------------
  logic [31:0] fw_ram[FW_ENTRIES*16];
  logic [4:0] fw_wptr_q, fw_rptr_q;
  wire fw_full = fw_wptr_q == (fw_rptr_q ^ 5'h10);
  wire fw_we = state_q == COPY && !fw_full;
  assign pend_cmd = fw_wptr_q != fw_rptr_q;
  always_ff @(posedge clk) begin
    if (fw_we) fw_ram[{fw_wptr_q[3:0], word_q}] <= w0;
    fw_rdata <= fw_ram[{fw_rptr_q[3:0], fw_raddr}];
  end

  always_comb begin
    inc_bad = cmd_pi_we && !pi_ok;
    unique case (state_q)
      DECODE:
      unique case (opcode)
        berth_regs_pkg::CMD_PAGE_INSTALL: if (!install_ok) inc_bad = 1'b1;
        berth_regs_pkg::CMD_PAGE_EVICT: if (!evict_ok) inc_bad = 1'b1;
        berth_regs_pkg::CMD_PAGE_REVOKE: if (!revoke_ok) inc_bad = 1'b1;
        berth_regs_pkg::CMD_PAGE_READY, berth_regs_pkg::CMD_FENCE: ;
        default: if (opcode < berth_regs_pkg::CMD_FIRST_FW) inc_bad = 1'b1;
      endcase
      INSTALL: if (!page_ok) inc_bad = 1'b1;
      default: ;
    endcase
  end

  always_ff @(posedge clk) begin
    // Pushed commands: begun, whole.
    if (push_begin) begin
      open_q      <= ring_ok && !to_next[15] && to_ci < 16'(PLACES - 1);
      push_at_q   <= push_data[15:0];
      push_next_q <= '0;
      if (ring_ok && !to_next[15] && to_ci < 16'(PLACES - 1)) whole_q[push_data[PA-1:0]] <= 1'b0;
    end
    if (push_we) begin
      push_next_q <= push_next_q + 3'd1;
      if (!push_word_ok || push_word == 3'd7) open_q <= 1'b0;
      if (push_word_ok && push_word == 3'd7 && !open_to_next[15]) whole_q[push_at_q[PA-1:0]] <= 1'b1;
    end
    // Fetches: asked for, come.
    if (may_ask) begin
      request_q        <= !take_pushed;
      request_at_q     <= index;
      n_of[put_q]      <= take_pushed ? 3'd1 : count;
      pushed_q[put_q]  <= take_pushed;
      place_of[put_q]  <= next_q[PA-1:0];
    end
    if (take_pushed) begin
      used_q[put_q]            <= 1'b1;
      there_q[put_q]           <= 1'b1;
      bad_q[put_q]             <= 1'b0;
      stale_q[put_q]           <= 1'b0;
      put_q                    <= put_q + 3'd1;
      next_q                   <= next_q + 16'd1;
      whole_q[next_q[PA-1:0]]  <= 1'b0;
    end
    if (ring_valid && ring_ready) begin
      request_q      <= 1'b0;
      used_q[put_q]  <= 1'b1;
      there_q[put_q] <= 1'b0;
      bad_q[put_q]   <= 1'b0;
      stale_q[put_q] <= 1'b0;
      put_q          <= put_q + 3'd1;
      next_q         <= next_q + 16'(n_of[put_q]);
      for (int unsigned i = 0; i < 4; i++)
        if (3'(i) < n_of[put_q]) whole_q[PA'(next_q + 16'(i))] <= 1'b0;
    end else if (!enable || cmd_log2_we) request_q <= 1'b0;
    if (ring_cpl_end) begin
      there_q[ring_cpl.tag] <= 1'b1;
      if (ring_cpl.err) bad_q[ring_cpl.tag] <= 1'b1;
    end
    unique case (state_q)
      IDLE: begin
        beat_q <= '0;
        n_q    <= n_of[get_q];
        if (used_q[get_q] && there_q[get_q]) begin
          // Fetches of a ring that is gone are skipped; a failed fetch stops everything.
          if (!bad_q[get_q]) begin
            state_q <= LOAD;
            ci_q <= ci_q + 16'(n_of[get_q]);
          end else if (stale_q[get_q]) begin
            used_q[get_q] <= 1'b0;
            get_q <= get_q + 3'd1;
          end
        end
      end
      LOAD: begin
        left_q  <= (BA + 1)'(BEATS);
        page_q  <= '0;
        word_q  <= '0;
        beat_q  <= beat_q + 1;
        state_q <= SHIFT;
        if (n_q == 0) begin
          state_q <= IDLE;
          used_q[get_q] <= 1'b0;
          get_q <= get_q + 3'd1;
        end
      end
      SHIFT: begin
        entry_q <= 512'({pushed_q[get_q] ? pushed_line : line_q, entry_q} >> W);
        left_q  <= left_q - 1;
        if (left_q != 1) beat_q <= beat_q + 1;
        if (left_q == 1) begin
          n_q     <= n_q - 1;
          state_q <= DECODE;
        end
      end
      DECODE: begin
        unique case (opcode)
          berth_regs_pkg::CMD_PAGE_INSTALL: state_q <= install_ok ? INSTALL : LOAD;
          berth_regs_pkg::CMD_PAGE_EVICT: state_q <= evict_ok ? CHANGE : LOAD;
          berth_regs_pkg::CMD_PAGE_REVOKE: state_q <= revoke_ok ? CHANGE : LOAD;
          berth_regs_pkg::CMD_PAGE_READY: state_q <= READY;
          berth_regs_pkg::CMD_FENCE: state_q <= FENCE;
          default: state_q <= opcode < berth_regs_pkg::CMD_FIRST_FW ? LOAD : COPY;
        endcase
      end
      INSTALL:
      if (ch_ready || !page_ok) begin
        page_q <= page_q + 1;
        entry_q[511:PAGE_AT] <= {64'd0, entry_q[511:PAGE_AT+64]};
        if (!ch.more) state_q <= LOAD;
      end
      CHANGE:
      if (ch_ready) begin
        page_q <= page_q + 1;
        entry_q[511:EVICT_AT] <= {16'd0, entry_q[511:EVICT_AT+16]};
        if (!ch.more) state_q <= LOAD;
      end
      READY: if (rdy_ready) state_q <= LOAD;
      FENCE: if (quiet) state_q <= TOKEN;
      TOKEN: if (token_ready) state_q <= LOAD;
      default:  // COPY
      if (fw_we) begin
        word_q  <= word_q + 1;
        entry_q <= {32'd0, entry_q[511:32]};
        if (word_q == '1) begin
          fw_wptr_q <= fw_wptr_q + 1;
          state_q   <= LOAD;
        end
      end
    endcase
    if (fw_pop && pend_cmd) fw_rptr_q <= fw_rptr_q + 1;
    if (cmd_log2_we) begin
      ci_q    <= '0;
      next_q  <= '0;
      bad_q   <= '1;
      stale_q <= '1;
      whole_q <= '0;
      open_q  <= 1'b0;
    end
    if (rst) begin
      state_q   <= IDLE;
      ci_q      <= '0;
      next_q    <= '0;
      request_q <= 1'b0;
      used_q    <= '0;
      whole_q   <= '0;
      open_q    <= 1'b0;
      put_q     <= '0;
      get_q     <= '0;
      fw_wptr_q <= '0;
      fw_rptr_q <= '0;
    end
  end

  // The firmware queue never holds more than it has room for.
  always_ff @(posedge clk) if (!rst) assert (fw_wptr_q - fw_rptr_q <= 5'd16);

  wire unused = &{1'b0, ring_cpl.off, to_next, open_to_next, pages, ready, revoke, fence};
endmodule
