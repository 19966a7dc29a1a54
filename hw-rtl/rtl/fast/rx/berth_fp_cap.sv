// SPDX-License-Identifier: Apache-2.0 OR MIT
// The maximum bandwidth of a sender: `credit::policy::Cap` in hardware (CR-10), with a row per QP.
//
// A QP with a maximum saves bytes at its rate, up to its burst. Its credits are withheld until they fit what it has saved.
// Bytes of a credit are taken from that when it may be announced; when its receive is complete, those without data come
// back. While credits are out, so much less is saved, so that in any time t no more lands than burst + rate x t. A credit
// that is larger than the burst may be announced when the whole burst is saved and nothing is out, and is paid for
// afterwards.
//
// The model counts a credit as used when data begin to come, this engine when its receive is complete: it lets no more.
//
// Credits are looked at when some are withheld, when a receive is complete, and from time to time. A look takes some 10
// clocks, and two for each credit that it lets. It reads sizes while no list is told.
module berth_fp_cap #(
    // QPs, a power of two.
    parameter int unsigned QPS = 64,
    parameter int unsigned QW = $clog2(QPS),
    // Clocks between two looks because time has passed, a power of two.
    parameter int unsigned PACE = 16
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [31:0]            now,          // units of 64 clocks
    // The maximum of QP `gate_q` is another: 256ths of a byte in a unit, and bytes at once; 0: none. The first one begins with
    // the whole burst saved; with a later one what is saved stays, but for what the time since the last look was worth.
    input  logic                   set_valid,
    input  logic [23:0]            set_rate,
    input  logic [30:0]            set_burst,
    // Credits of QP `gate_q` may have been taken back.
    input  logic                   voids,
    // What is withheld, whenever that changes, and from time to time.
    input  logic                   gate_we,
    input  logic [QW-1:0]          gate_q,
    input  berth_card_pkg::gate_t  gate,
    // What is complete: see `berth_fp_recv_complete`.
    input  logic                   given_we,
    input  logic [QW-1:0]          given_q,
    input  berth_card_pkg::given_t given,
    // Asks for the size of a credit, which is there a clock after `size_ok`.
    output logic                   size_re,
    input  logic                   size_ok,
    output logic [QW-1:0]          size_q,
    output logic [ 6:0]            size_at,
    input  logic [31:0]            size,
    // Credits that may be announced; held until ready. Whether that was done comes with `pass_done`.
    output logic                   pass_valid,
    input  logic                   pass_ready,
    output logic [QW-1:0]          pass_q,
    output berth_card_pkg::pass_t  pass,
    input  logic                   pass_done,
    input  logic                   pass_good,
    // When it is time to look at withheld credits of a QP again, if time alone lets them go: not later than they fit, and
    // not before half of that time has passed. For simulation.
    output logic                   due_we,
    output logic [QW-1:0]          due_q,
    output logic                   due_on,
    output logic [31:0]            due_at
);
  localparam int unsigned FW = 42;   // of bytes in 256ths, with a sign

  typedef struct packed {
    logic signed [FW-1:0] free;      // bytes that more credits may have, in 256ths, at ...
    logic [31:0] at;                 // ... this time
    logic [31:0] out;                // bytes of credits that may be announced and are not complete
    logic [31:0] sizes, filled;      // what was complete then
  } row_t;
  typedef enum logic [3:0] {IDLE, LOAD, SAVE, BOUND, WALK, WALKED, COUNT, SETTLE, LIMIT, TRY, TRIED, PASS, WAIT, DUE, STORE} state_t;

  state_t state_q;
  row_t row, r_q, before_q;
  logic look_valid, look_busy, wait_valid, wait_pop, wait_busy, again;
  logic [QW-1:0] look_q, wait_q, q_q;
  logic [QPS-1:0] capped_q, fresh_q, set_q, begins_q;  // has a maximum; what is out is not known; it is another; the first one
  logic fresh, sets, begins, stale_q;
  logic [23:0] rate;
  logic [30:0] burst;
  berth_card_pkg::gate_t gate_now, g_q;
  logic [7:0] credits, at_q, n_q;
  logic [31:0] sizes, filled, sizes_q, filled_q, sum_q;
  logic [15:0] units_q;
  logic [FW-1:0] term_q;
  logic drained_q, stuck_q;
  logic signed [FW-1:0] wanted_q;   // bytes that must be saved for the next credit ...
  logic [20:0] in_q;                // ... in so many units

  // ---- whose turn it is --------------------------------------------------------------------------
  berth_fp_ready #(
      .QPS(QPS),
      .SETS(4)
  ) looks (
      .clk,
      .rst,
      .set({gate_we && gate.withheld != '0, given_we && capped_q[given_q], wait_pop, again}),
      .set_q({gate_q, given_q, wait_q, q_q}),
      .valid(look_valid),
      .q(look_q),
      .pop(state_q == IDLE),
      .busy(look_busy)
  );
  logic [$clog2(PACE)-1:0] pace_q;
  always_ff @(posedge clk) pace_q <= rst ? '0 : pace_q + 1'b1;
  assign wait_pop = wait_valid && pace_q == '1;
  berth_fp_ready #(
      .QPS(QPS)
  ) waits (
      .clk,
      .rst,
      .set(state_q == STORE && g_q.withheld != n_q),
      .set_q(q_q),
      .valid(wait_valid),
      .q(wait_q),
      .pop(wait_pop),
      .busy(wait_busy)
  );
  assign due_we = state_q == STORE;
  assign due_q  = q_q;
  assign due_on = !stuck_q;
  assign due_at = now + 32'(in_q >> 1);
  // It was looked at while it changed.
  assign again = state_q == STORE && stale_q;

  // ---- memories ----------------------------------------------------------------------------------
  wire start = state_q == IDLE && look_valid;
  berth_fp_mem #(
      .WIDTH($bits(row)),
      .DEPTH(QPS),
      .OWN(1'b1)
  ) m_rows (
      .clk,
      .we(state_q == STORE),
      .waddr(q_q),
      .wdata(r_q),
      .re(start),
      .raddr(look_q),
      .rdata(row)
  );
  berth_fp_mem #(
      .WIDTH(55),
      .DEPTH(QPS)
  ) m_caps (
      .clk,
      .we(set_valid),
      .waddr(gate_q),
      .wdata({set_rate, set_burst}),
      .re(start),
      .raddr(look_q),
      .rdata({rate, burst})
  );
  berth_fp_mem #(
      .WIDTH($bits(gate)),
      .DEPTH(QPS)
  ) m_gates (
      .clk,
      .we(gate_we),
      .waddr(gate_q),
      .wdata(gate),
      .re(start),
      .raddr(look_q),
      .rdata(gate_now)
  );
  berth_fp_mem #(
      .WIDTH(72),
      .DEPTH(QPS)
  ) m_complete (
      .clk,
      .we(given_we),
      .waddr(given_q),
      .wdata({given.credits, given.sizes, given.filled}),
      .re(1'b1),
      .raddr(start ? look_q : q_q),
      .rdata({credits, sizes, filled})
  );

  // Bytes in 256ths.
  function automatic logic signed [FW-1:0] parts(input logic [31:0] bytes);
    parts = {{FW - 40{1'b0}}, bytes, 8'd0};
  endfunction

  // ---- a look ------------------------------------------------------------------------------------
  wire signed [FW-1:0] whole = parts({1'b0, burst});
  wire signed [FW-1:0] most  = whole - parts(r_q.out);
  wire signed [FW-1:0] taken = parts(size);
  wire fits  = taken <= r_q.free;
  wire larger = n_q == '0 && drained_q && taken > whole;
  wire alone = n_q == '0 && drained_q && r_q.free >= whole;
  // The newest credits are read first, because the oldest may be complete and replaced meanwhile. If one that has been read
  // is complete, they are read again.
  wire walked = at_q == credits;
  wire passed = 8'(credits - at_q - 8'd1) < 8'd128;
  wire [31:0] units = now - row.at;

  assign size_re    = (state_q == WALK && !walked && !passed) || (state_q == TRY && g_q.withheld != n_q);
  assign size_q     = q_q;
  assign size_at    = state_q == WALK ? at_q[6:0] - 7'd1 : g_q.next[6:0] + n_q[6:0];
  assign pass_valid = state_q == PASS;
  assign pass_q     = q_q;
  assign pass.next  = g_q.next;
  assign pass.n     = n_q;

  always_ff @(posedge clk) begin
    case (state_q)
      IDLE: begin
        q_q <= look_q;
        if (start) state_q <= capped_q[look_q] ? LOAD : IDLE;
      end
      LOAD: begin
        r_q     <= row;
        g_q     <= gate_now;
        fresh   <= fresh_q[q_q];
        sets    <= set_q[q_q];
        begins  <= begins_q[q_q];
        n_q     <= '0;
        sum_q   <= '0;
        term_q  <= FW'(rate);
        units_q <= set_q[q_q] ? '0 : units > 32'hffff ? '1 : units[15:0];
        state_q <= SAVE;
      end
      // What was saved since: the rate, times the units.
      SAVE: begin
        if (units_q[0]) begin
          r_q.free <= r_q.free + $signed(term_q);
        end
        term_q  <= term_q << 1;
        units_q <= units_q >> 1;
        if (units_q == '0) state_q <= BOUND;
      end
      BOUND: begin
        if (r_q.free > most && !sets) r_q.free <= most;
        if (begins) begin
          r_q.free <= whole;
          r_q.out  <= '0;
        end
        at_q    <= g_q.next;
        state_q <= fresh ? WALK : COUNT;
      end
      WALK:
      if (walked) state_q <= COUNT;
      else if (passed) begin
        at_q  <= g_q.next;
        sum_q <= '0;
      end else if (size_ok) state_q <= WALKED;
      WALKED: begin
        sum_q   <= sum_q + size;
        at_q    <= at_q - 8'd1;
        state_q <= WALK;
      end
      COUNT: begin
        sizes_q   <= begins ? '0 : sizes - r_q.sizes;
        filled_q  <= begins ? '0 : filled - r_q.filled;
        r_q.sizes  <= sizes;
        r_q.filled <= filled;
        drained_q <= credits == g_q.next;
        // More are complete since the last one was read.
        state_q   <= fresh && !walked ? WALK : SETTLE;
      end
      SETTLE: begin
        if (fresh) begin
          r_q.free <= r_q.free + parts(r_q.out) - parts(filled_q)
                    - parts(sum_q);
          r_q.out  <= sum_q;
        end else begin
          r_q.free <= r_q.free + parts(sizes_q) - parts(filled_q);
          r_q.out  <= drained_q ? '0 : r_q.out - sizes_q;
        end
        state_q <= LIMIT;
      end
      LIMIT: begin
        if (r_q.free > most) r_q.free <= most;
        state_q <= TRY;
      end
      TRY: begin
        if (n_q == '0) before_q <= r_q;
        stuck_q <= 1'b1;
        term_q  <= FW'(rate);
        in_q    <= 21'd1;
        if (g_q.withheld == n_q) state_q <= n_q == '0 ? DUE : PASS;
        else if (size_ok) state_q <= TRIED;
      end
      TRIED:
      if (fits || alone) begin
        n_q      <= n_q + 8'd1;
        r_q.free <= r_q.free - taken;
        r_q.out  <= r_q.out + size;
        state_q  <= TRY;
      end else begin
        wanted_q <= larger ? whole : taken;
        // Not before something is complete.
        stuck_q  <= taken > most && !larger;
        state_q  <= n_q == '0 ? DUE : PASS;
      end
      PASS: if (pass_ready) state_q <= WAIT;
      WAIT:
      if (pass_done) begin
        if (!pass_good) begin
          r_q <= before_q;
          n_q <= '0;
          stuck_q <= 1'b0;
          wanted_q <= before_q.free;
        end
        state_q <= DUE;
      end
      DUE: begin
        term_q <= term_q << 1;
        in_q   <= in_q << 1;
        if (in_q[20] || stuck_q || r_q.free + $signed(term_q << 1) > wanted_q) state_q <= STORE;
      end
      default: state_q <= IDLE;
    endcase
    // What time has been counted is counted once.
    if (state_q == LOAD) begin
      r_q.at <= set_q[q_q] ? now : row.at + (units > 32'hffff ? 32'hffff : units);
      fresh_q[q_q]  <= 1'b0;
      set_q[q_q]    <= 1'b0;
      begins_q[q_q] <= 1'b0;
      stale_q       <= 1'b0;
    end
    if ((set_valid || voids) && gate_q == q_q) stale_q <= 1'b1;
    if (voids || set_valid) fresh_q[gate_q] <= 1'b1;
    if (set_valid) begin
      set_q[gate_q]    <= 1'b1;
      begins_q[gate_q] <= begins_q[gate_q] || !capped_q[gate_q];
      capped_q[gate_q] <= set_burst != '0;
    end
    if (rst) begin
      state_q  <= IDLE;
      capped_q <= '0;
      fresh_q  <= '0;
      set_q    <= '0;
      begins_q <= '0;
    end
  end

  wire unused = &{1'b0, given.bytes, given.hollow, look_busy, wait_busy};
endmodule
