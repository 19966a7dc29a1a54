// SPDX-License-Identifier: Apache-2.0 OR MIT
// DMA reads: cuts commands into host read requests, places completions in packet RAM at any byte alignment.
//
// Up to 63 requests of DMA are out at once, and one of the command ring's (tag 63). They end at
// multiples of the maximum read request, so that but for a command's first one all begin aligned.
// Completions go to (local base of the tag + offset), so their order does not matter; each of
// their beats is one write to packet RAM, whatever the alignment.
module berth_dma_rd #(
    // Bits of a beat.
    parameter int unsigned DATA_W = 64
) (
    input  logic                clk,
    input  logic                rst,
    // Commands; bad ones only get their status.
    input  logic                cmd_valid,
    output logic                cmd_ready,
    input  logic                cmd_bad,
    input  logic [17:0]         cmd_local,
    input  logic [12:0]         cmd_len,
    input  logic [15:0]         cmd_tag,
    input  logic [63:0]         cmd_addr,
    input  logic                cmd_virtual,
    input  logic                cmd_attach,
    input  logic [ 3:0]         cmd_slot,
    input  logic [ 7:0]         cmd_asid,
    // A command has ended; attached ones do not wait for done_ready.
    output logic                done_valid,
    input  logic                done_ready,
    output logic [15:0]         done_tag,
    output logic [ 7:0]         done_status,
    output logic                att_done,
    output logic [ 3:0]         att_slot,
    output logic [ 7:0]         att_status,
    // Control: limits, no new page while hold, no new request while stop.
    input  logic                enable,
    input  logic                hold,
    input  logic                stop,
    input  logic [ 3:0]         log2_read,
    output logic                quiet,   // nothing looked up, nothing in flight
    output logic [ 6:0]         flying,  // requests out, the command ring's included
    output logic                busy,
    // Look-up of a virtual page.
    output logic                lk_req,
    output logic [ 7:0]         lk_asid,
    output logic [51:0]         lk_vpn,
    input  logic                lk_ack,
    input  logic                lk_hit,
    input  logic [51:0]         lk_page,
    // Command ring: its request, and beats and end of its completions.
    input  logic                ring_valid,
    output logic                ring_ready,
    input  logic [63:0]         ring_addr,
    input  logic [12:0]         ring_len,
    output logic                ring_cpl_valid,
    output logic [12:0]         ring_cpl_offset,
    output logic [DATA_W-1:0]   ring_cpl_data,
    output logic                ring_cpl_end,
    output logic                ring_cpl_err,
    // Host read port.
    output logic                hrd_valid,
    input  logic                hrd_ready,
    output logic [63:0]         hrd_addr,
    output logic [12:0]         hrd_len,
    output logic [ 5:0]         hrd_tag,
    input  logic                hcpl_valid,
    output logic                hcpl_ready,
    input  logic [DATA_W-1:0]   hcpl_data,
    input  logic [ 5:0]         hcpl_tag,
    input  logic [12:0]         hcpl_off,
    input  logic [12:0]         hcpl_len,
    input  logic                hcpl_last,
    input  logic                hcpl_err,
    // Packet RAM.
    output logic                pw_valid,
    input  logic                pw_ready,
    output logic [17:0]         pw_addr,
    output logic [DATA_W-1:0]   pw_data,
    output logic [2*DATA_W/8-1:0] pw_strb,  // of the word at pw_addr, then of the next
    // Pulses for the counters.
    output logic                inc_request,
    output logic                inc_no_translation,
    output logic                inc_host_error
);
  localparam int unsigned BYTES = DATA_W / 8;
  localparam int unsigned LB = $clog2(BYTES);
  localparam int unsigned TAGS = 64;
  localparam logic [5:0] RING_TAG = 6'd63;
  localparam int unsigned CMDS = 16;  // commands in flight
  localparam logic [1:0] OK = berth_regs_pkg::DMA_OK[1:0];

  // ---- Commands in flight: entry is free when not active ----------------------
  logic [CMDS-1:0] act_q, issued_q, att_q;
  logic [CMDS-1:0][6:0] out_q;  // requests out
  logic [1:0] stat_q[CMDS];
  logic [15:0] tag_q[CMDS];
  logic [3:0] slot_q[CMDS];

  // ---- Requests in flight, by tag ---------------------------------------------
  logic [TAGS-1:0] fly_q;
  logic [17:0] base_q[TAGS];
  logic [12:0] len_q[TAGS];
  logic [3:0] owner_q[TAGS];

  // ---- Issue --------------------------------------------------------------------
  typedef enum logic [1:0] {IDLE, PAGE, SEGMENT} state_t;
  state_t state_q;
  logic [3:0] me_q, free_cmd;
  logic free_cmd_ok, free_tag_ok;
  logic [5:0] free_tag;
  logic [17:0] local_q;
  logic [12:0] left_q, seg, page_left, line, line_left;
  logic [63:0] addr_q;
  logic [51:0] phys_q;
  logic virt_q, bad_q;
  logic [7:0] asid_q;
  logic hrd_v_q;

  always_comb begin
    free_cmd_ok = 1'b0;
    free_cmd = '0;
    if (cmd_valid)
      for (int i = CMDS; i > 0; i--)
        if (!act_q[i-1]) begin
          free_cmd_ok = 1'b1;
          free_cmd = 4'(i - 1);
        end
    free_tag_ok = 1'b0;
    free_tag = '0;
    if (state_q == SEGMENT)
      for (int i = 63; i > 0; i--)
        if (!fly_q[i-1]) begin
          free_tag_ok = 1'b1;
          free_tag = 6'(i - 1);
        end
    // A request ends at the page's end at the latest, because the limit is at most a page.
    line      = 13'd1 << log2_read;
    page_left = 13'h1000 - {1'b0, addr_q[11:0]};
    line_left = line - ({1'b0, addr_q[11:0]} & (line - 13'd1));
    seg       = left_q < line_left ? left_q : line_left;
  end

  wire port_free = (!hrd_v_q || hrd_ready) && !stop;
  wire ring_go = ring_valid && port_free && !fly_q[RING_TAG];
  wire seg_go = state_q == SEGMENT && port_free && !ring_go && free_tag_ok && enable;
  wire seg_last = seg == left_q;
  wire start = state_q == IDLE && cmd_valid && free_cmd_ok;
  wire miss = state_q == PAGE && lk_req && lk_ack && !lk_hit;
  wire refuse = (state_q == PAGE && (bad_q || !enable) && !lk_req) || (state_q == SEGMENT && !enable);
  wire issue_end = miss || refuse || (seg_go && seg_last);

  assign cmd_ready = state_q == IDLE && free_cmd_ok;
  assign ring_ready = ring_go;
  logic looking_q;
  assign lk_req = looking_q;
  assign lk_asid = asid_q;
  assign lk_vpn = addr_q[63:12];
  assign hrd_valid = hrd_v_q;
  assign quiet = state_q != SEGMENT && !looking_q && fly_q == 0;
  assign busy = state_q != IDLE || cmd_valid || act_q != 0 || fly_q != 0;
  assign inc_request = hrd_valid && hrd_ready;
  assign inc_no_translation = miss;
  assign flying = 7'($countones(fly_q));

  // ---- Completions: turn to the local alignment ---------------------------------
  logic first_q;                      // the next beat begins a completion
  logic [12:0] at_q;                  // offset in the request of the beat at hand, after the first
  logic [12:0] rest_q;                // bytes of the completion from this beat on, after the first
  logic pv_q, end_q, err_q;
  logic [5:0] end_tag_q;

  wire [5:0] ct = hcpl_tag;
  wire known = fly_q[ct];
  wire for_ring = known && ct == RING_TAG;
  wire [12:0] offset = first_q ? hcpl_off : at_q;
  wire [12:0] rest = first_q ? hcpl_len : rest_q;
  wire failed = hcpl_err || {1'b0, hcpl_off} + {1'b0, hcpl_len} > {1'b0, len_q[ct]};
  wire ends = known && hcpl_last && (failed || hcpl_off + hcpl_len == len_q[ct]);
  wire [17:0] to = base_q[ct] + {5'd0, offset};
  wire [LB-1:0] shift = to[LB-1:0];
  wire take = hcpl_valid && hcpl_ready;
  wire put = take && known && !for_ring;
  wire [BYTES-1:0] in_strb = rest >= 13'(BYTES) ? '1 : ~({BYTES{1'b1}} << rest[LB-1:0]);
  wire [DATA_W-1:0] turned = DATA_W'(({hcpl_data, hcpl_data} << {shift, 3'd0}) >> DATA_W);
  wire pw_go = pv_q && pw_ready;

  assign hcpl_ready = !pv_q || pw_ready;
  assign pw_valid = pv_q;
  assign ring_cpl_valid = take && for_ring && !failed;
  assign ring_cpl_offset = offset;
  assign ring_cpl_data = hcpl_data;
  assign ring_cpl_end = take && for_ring && ends;
  assign ring_cpl_err = failed;

  // ---- Ends ---------------------------------------------------------------------
  logic over_ok;
  logic [3:0] over_cmd;
  always_comb begin
    over_ok = 1'b0;
    over_cmd = '0;
    if ((act_q & issued_q) != 0)
      for (int i = CMDS; i > 0; i--)
        if (act_q[i-1] && issued_q[i-1] && out_q[i-1] == 0) begin
          over_ok = 1'b1;
          over_cmd = 4'(i - 1);
        end
  end
  assign done_valid = over_ok && !att_q[over_cmd];
  assign done_tag = tag_q[over_cmd];
  assign done_status = {6'd0, stat_q[over_cmd]};
  assign att_done = over_ok && att_q[over_cmd];
  assign att_slot = slot_q[over_cmd];
  assign att_status = done_status;
  wire over_go = over_ok && (att_q[over_cmd] || done_ready);
  assign inc_host_error = (over_go && stat_q[over_cmd] == berth_regs_pkg::DMA_HOST_ERROR[1:0]) || (ring_cpl_end && failed);

  wire tag_end = pw_go && end_q;
  wire [3:0] end_cmd = owner_q[end_tag_q];

  always_ff @(posedge clk) begin
    if (seg_go) begin
      base_q[free_tag]  <= local_q;
      len_q[free_tag]   <= seg;
      owner_q[free_tag] <= me_q;
    end
    if (ring_go) len_q[RING_TAG] <= ring_len;
  end

  always_ff @(posedge clk) begin
    // Issue.
    if (hrd_ready) hrd_v_q <= 1'b0;
    unique case (state_q)
      IDLE: begin
        me_q    <= free_cmd;
        local_q <= cmd_local;
        left_q  <= cmd_len;
        addr_q  <= cmd_addr;
        virt_q  <= cmd_virtual;
        asid_q  <= cmd_asid;
        bad_q   <= cmd_bad;
        if (start) begin
          state_q <= PAGE;
          act_q[free_cmd] <= 1'b1;
          issued_q[free_cmd] <= 1'b0;
          att_q[free_cmd] <= cmd_attach;
          out_q[free_cmd] <= '0;
          stat_q[free_cmd] <= OK;
          tag_q[free_cmd] <= cmd_tag;
          slot_q[free_cmd] <= cmd_slot;
        end
      end
      PAGE: begin
        phys_q <= virt_q ? lk_page : addr_q[63:12];
        if (!refuse && !looking_q && !hold && !stop) begin
          if (virt_q) looking_q <= 1'b1;
          else state_q <= SEGMENT;
        end
        if (looking_q && lk_ack) begin
          looking_q <= 1'b0;
          if (lk_hit) state_q <= SEGMENT;
        end
      end
      default:
      if (seg_go) begin
        local_q <= local_q + 18'(seg);
        left_q  <= left_q - seg;
        addr_q  <= addr_q + 64'(seg);
        if (seg == page_left) state_q <= PAGE;
        hrd_v_q  <= 1'b1;
        hrd_addr <= {phys_q, addr_q[11:0]};
        hrd_len  <= seg;
        hrd_tag  <= free_tag;
        fly_q[free_tag] <= 1'b1;
      end
    endcase
    if (ring_go) begin
      hrd_v_q  <= 1'b1;
      hrd_addr <= ring_addr;
      hrd_len  <= ring_len;
      hrd_tag  <= RING_TAG;
      fly_q[RING_TAG] <= 1'b1;
    end

    // Completions.
    if (take) begin
      first_q <= hcpl_last;
      at_q    <= offset + 13'(BYTES);
      rest_q  <= rest - 13'(BYTES);
    end
    if (pw_go) begin
      pv_q <= 1'b0;
      if (end_q) fly_q[end_tag_q] <= 1'b0;
      end_q <= 1'b0;
    end
    if (put) begin
      pv_q      <= 1'b1;
      pw_addr   <= {to[17:LB], {LB{1'b0}}};
      pw_data   <= turned;
      pw_strb   <= failed ? '0 : {{BYTES{1'b0}}, in_strb} << shift;
      end_q     <= ends;
      end_tag_q <= ct;
      err_q     <= failed;
    end
    if (ring_cpl_end) fly_q[RING_TAG] <= 1'b0;

    // Requests out per command: one may begin while another ends.
    if (seg_go || tag_end)
      for (int i = 0; i < CMDS; i++)
        out_q[i] <= out_q[i] + 7'(seg_go && me_q == 4'(i)) - 7'(tag_end && end_cmd == 4'(i));
    if (tag_end && err_q) stat_q[end_cmd] <= berth_regs_pkg::DMA_HOST_ERROR[1:0];
    if (issue_end) begin
      state_q <= IDLE;
      issued_q[me_q] <= 1'b1;
      if (miss) stat_q[me_q] <= berth_regs_pkg::DMA_NO_TRANSLATION[1:0];
      if (refuse) stat_q[me_q] <= berth_regs_pkg::DMA_REFUSED[1:0];
    end
    if (over_go) act_q[over_cmd] <= 1'b0;

    if (rst) begin
      state_q   <= IDLE;
      looking_q <= 1'b0;
      hrd_v_q   <= 1'b0;
      act_q     <= '0;
      fly_q     <= '0;
      first_q   <= 1'b1;
      pv_q      <= 1'b0;
      end_q     <= 1'b0;
    end
  end

  // Requests respect the page and the limit; a tag is used once at a time.
  always_ff @(posedge clk)
    if (!rst) begin
      if (seg_go) assert (seg != 0 && {1'b0, addr_q[11:0]} + seg <= 13'h1000 && !fly_q[free_tag]);
      if (tag_end) assert (fly_q[end_tag_q] && act_q[end_cmd] && out_q[end_cmd] != 0);
    end
endmodule
