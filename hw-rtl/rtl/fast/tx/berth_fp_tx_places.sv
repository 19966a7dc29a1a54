// SPDX-License-Identifier: Apache-2.0 OR MIT
// Places in packet RAM, from when a frame is begun until it has left. A place is given by tag: 0 to 7 for ACKs and lists
// (512 bytes), from 16 on big (4608 bytes), from 64 on small (1280 bytes). They are taken and given back in any order, so
// that a slow read holds up only its own QP. A frame goes to the MAC when its header is written, all its reads are done,
// and the frame of its QP before it has gone; one with a failed read does not go, and counts as lost. Under selective
// repeat packets that are sent again keep their order among themselves and do not wait for the new ones that were made
// before them: each would keep the window shut for as long as those take. The MAC has at most two big frames, so that
// urgent ones (ACKs, lists, resent packets) wait for no more.
module berth_fp_tx_places #(
    parameter int unsigned QPS      = 64,
    parameter int unsigned LB       = 5,
    parameter int unsigned BIGS     = berth_regs_pkg::FAST_BIG_FRAMES,    // big places, a power of two up to 16
    parameter int unsigned SMALLS   = berth_regs_pkg::FAST_SMALL_FRAMES,  // small ones, a power of two up to 64
    parameter int unsigned RAM_BASE = 0     // byte in packet RAM, a multiple of 64
) (
    input  logic                         clk,
    input  logic                         rst,

    output logic                         ctl_valid,
    output logic [6:0]                   ctl_tag,
    input  logic                         ctl_pop,
    output logic                         big_valid,
    output logic [6:0]                   big_tag,
    input  logic                         big_pop,
    output logic                         small_valid,
    output logic [6:0]                   small_tag,
    input  logic                         small_pop,
    input  logic [6:0]                   at_tag,
    output logic [17:0]                  at,

    input  logic                         init_valid,
    input  logic [$clog2(QPS)-1:0]       init_q,
    output logic                         init_ack,

    input  logic                         made_valid,  // a data packet is on its way here
    input  logic [$clog2(QPS)-1:0]       made_q,
    input  logic                         open_valid,
    input  berth_card_pkg::open_t        open,
    input  logic [$clog2(QPS)-1:0]       open_q,
    input  logic                         head_valid,
    output logic                         head_ready,
    input  logic [6:0]                   head_tag,
    input  logic                         loaded_valid,
    input  berth_card_pkg::payload_end_t loaded,

    output logic                         fs_valid,
    input  logic                         fs_ready,
    output berth_card_pkg::frame_out_t   fs,
    input  logic                         fl_valid,
    input  logic [7:0]                   fl_tag,
    output logic                         backlog,     // data frames wait for the wire

    // does this QP have data packets that were made and whose memory is not accounted for? (two questions)
    input  logic [2*$clog2(QPS)-1:0]     busy_q,
    output logic [1:0]                   busy,

    // an answer's payload has been read, or cannot be
    output logic                         rspd_valid,
    output berth_card_pkg::response_end_t rspd,

    // a packet's memory is not needed any more (see berth_fp_release)
    output logic                         gone_valid,
    input  logic                         gone_ready,
    output logic [$clog2(QPS)-1:0]       gone_q,
    output berth_card_pkg::left_t        gone,
    // a packet could not be read
    output logic                         dead_valid,
    input  logic                         dead_ready,
    output logic [$clog2(QPS)-1:0]       dead_q,
    output logic [23:0]                  dead_psn
);
    localparam int unsigned QW    = $clog2(QPS);
    localparam int unsigned BIG   = RAM_BASE + 8*512;
    localparam int unsigned SMALL = BIG + BIGS*4608;
    localparam int unsigned BW    = $clog2(BIGS);
    localparam int unsigned SW    = $clog2(SMALLS);

    function automatic logic [17:0] address(input logic [6:0] tag);
        address = tag[6] ? 18'(SMALL) + {12'd0, tag[5:0]} * 18'd1280
                : tag[4] ? 18'(BIG) + {14'd0, tag[3:0]} * 18'd4608
                : 18'(RAM_BASE) + {6'd0, tag[2:0], 9'd0};
    endfunction
    assign at = address(at_tag);

    // A place's number in tables: its tag, or a shorter one if there are few places.
    localparam int unsigned IB = SW > 4 ? 7 : 5;
    localparam int unsigned NUMBERS = 1 << IB;
    initial if (IB == 5 && (BIGS > 8 || SMALLS > 16)) $fatal(1, "berth_fp_tx_places: too many places for short numbers");
    function automatic logic [IB-1:0] number(input logic [6:0] tag);
        number = IB'(IB == 7 ? tag : tag[6] ? {3'b001, tag[3:0]} : {3'b000, tag[4], tag[2:0]});
    endfunction

    // ---- free places -------------------------------------------------------------------
    logic       back;                   // a place comes back
    logic [6:0] back_tag;
    assign ctl_tag[6:3]   = 4'd0;
    assign big_tag[6:BW]   = (7-BW)'(16 >> BW);
    assign small_tag[6:SW] = (7-SW)'(64 >> SW);
    berth_fp_pool #(.N(8)) ctls (.clk(clk), .rst(rst), .valid(ctl_valid), .number(ctl_tag[2:0]), .take(ctl_pop),
        .give(back && back_tag[6:4] == 3'd0), .give_number(back_tag[2:0]));
    berth_fp_pool #(.N(BIGS)) bigs (.clk(clk), .rst(rst), .valid(big_valid), .number(big_tag[BW-1:0]), .take(big_pop),
        .give(back && back_tag[6:4] == 3'd1), .give_number(back_tag[BW-1:0]));
    berth_fp_pool #(.N(SMALLS)) smalls (.clk(clk), .rst(rst), .valid(small_valid), .number(small_tag[SW-1:0]), .take(small_pop),
        .give(back && back_tag[6]), .give_number(back_tag[SW-1:0]));

    // ---- what a frame waits for ----------------------------------------------------------
    logic [4:0]   waits [0:NUMBERS-1], steps_left;
    logic [NUMBERS-1:0] failed_q;
    logic         step, complete;
    logic [6:0]   step_tag;
    logic [IB-1:0] step_n, open_n;
    assign step_n     = number(step_tag);
    assign open_n     = number(open.tag);
    assign step_tag   = loaded_valid ? loaded.tag[6:0] : head_tag;
    assign head_ready = !loaded_valid && !pass_q;
    assign step       = loaded_valid || (head_valid && head_ready);
    assign steps_left = waits[step_n];
    assign complete   = step && steps_left == 5'd1;
    // The bits of the places, of which each is set or cleared by at most two in a cycle.
    logic [NUMBERS-1:0] step_bit, open_bit;
    assign step_bit   = NUMBERS'(1) << step_n;
    assign open_bit   = open_valid ? NUMBERS'(1) << open_n : '0;
    always_ff @(posedge clk) begin
        if (step) waits[step_n] <= steps_left - 5'd1;
        failed_q <= (failed_q & ~open_bit) | (loaded_valid && loaded.status != 2'd0 ? step_bit : '0)
                    | (open.over ? open_bit : '0);
        if (open_valid) waits[open_n] <= open.count;
    end

    // An answer is told of, and nothing else: it holds no blocks, and one that could not be read does not count as lost.
    logic [6:0]    answer_of [0:NUMBERS-1], answer_step;
    assign answer_step = answer_of[step_n];
    assign rspd_valid  = complete && step_tag[6:4] != 3'd0 && answer_step[6];
    assign rspd.tag    = answer_step[5:0];
    assign rspd.failed = failed_q[step_n] || (loaded_valid && loaded.status != 2'd0);
    always_ff @(posedge clk) if (open_valid) answer_of[open_n] <= {open.answer, open.answer_tag};

    logic          ctl_here, ctl_take, data_here, data_take, unused_room, unused_room2, unused_room3;
    logic [6:0]    ctl_next, data_next;

    // ---- frames of one QP keep their order --------------------------------------------------
    // Each knows the one behind it; one whose turn it is and that is complete goes to `data_frames`. The turn is passed on
    // when nothing else happens to the list. A QP has two lists: of new packets, and of those that go again.
    logic [NUMBERS-1:0] whole_q, turn_q, follows_q; // complete; its turn; another one follows
    logic [6:0]     next_of [0:NUMBERS-1];
    logic [QW:0]    list_of [0:NUMBERS-1];
    logic [2*QPS-1:0] any_q;                        // lists with a frame
    logic [6:0]     last_of [0:2*QPS-1];
    logic [QW:0]    list, pass_list;                // of the frame that is begun, and the last one of it
    logic [6:0]     latest;
    assign list   = {open.apart, open_q};
    assign latest = last_of[list];
    logic           pass_q, pass, data_put;
    logic [6:0]     pass_tag_q, pass_next, data_tag;
    assign pass      = pass_q && !loaded_valid && !open_valid;
    logic [IB-1:0] pass_n, next_n, latest_n;
    assign latest_n  = number(latest);
    assign pass_n    = number(pass_tag_q);
    assign next_n    = number(pass_next);
    assign pass_next = next_of[pass_n];
    assign pass_list = list_of[pass_n];
    assign data_put  = step_tag[6:4] != 3'd0 && complete && turn_q[step_n]
                       || (pass && follows_q[pass_n] && whole_q[next_n]);
    assign data_tag  = pass ? pass_next : step_tag;
    logic           open_data, open_any, pass_on;   // a data frame is begun; its list has one; the turn is passed on
    logic [NUMBERS-1:0] other_bit;                  // of the frame before the one begun, or of the next one
    logic [2*QPS-1:0] any_bit;
    assign open_data = open_valid && open.tag[6:4] != 3'd0;
    assign open_any  = any_q[list];
    assign pass_on   = pass && follows_q[pass_n];
    assign other_bit = NUMBERS'(1) << (pass ? next_n : latest_n);
    assign any_bit   = (2*QPS)'(1) << (pass ? pass_list : list);
    always_ff @(posedge clk) begin
        whole_q   <= (whole_q | (complete ? step_bit : '0)) & ~open_bit;
        follows_q <= (follows_q & ~open_bit) | (open_data && open_any ? other_bit : '0);
        turn_q    <= (open_any ? turn_q & ~open_bit : turn_q | open_bit) | (pass_on ? other_bit : '0);
        any_q     <= (any_q & ~(pass && !pass_on ? any_bit : '0)) | (open_data ? any_bit : '0);
        if (open_valid) list_of[open_n] <= list;
        if (open_data) begin
            last_of[list] <= open.tag;
            if (open_any) next_of[latest_n] <= open.tag;
        end
        if (pass) pass_q <= 1'b0;
        if (data_take) begin
            pass_q     <= 1'b1;
            pass_tag_q <= data_next;
        end
        if (rst) begin
            any_q  <= '0;
            pass_q <= 1'b0;
        end
    end

    // ---- to the MAC ----------------------------------------------------------------------
    berth_lutfifo #(.WIDTH(7), .DEPTH(8)) ctl_frames (.clk(clk), .rst(rst),
        .wr_valid(complete && step_tag[6:4] == 3'd0), .wr_ready(unused_room), .wr_data(step_tag),
        .rd_valid(ctl_here), .rd_ready(ctl_take), .rd_data(ctl_next));
    berth_lutfifo #(.WIDTH(7), .DEPTH(NUMBERS)) data_frames (.clk(clk), .rst(rst),
        .wr_valid(data_put), .wr_ready(unused_room2), .wr_data(data_tag),
        .rd_valid(data_here), .rd_ready(data_take), .rd_data(data_next));

    logic [1:0]    bigs_q;              // big frames on their way to the MAC, or in it
    logic          m_busy_q, m_shown_q, last_ctl_q, dead_put, dead_room;
    logic [6:0]    m_tag_q, m_pick;
    logic          pick_ctl, picked, data_ready;
    logic [12:0]   m_len;
    logic          m_loop;
    assign pick_ctl  = ctl_here && !(last_ctl_q && data_ready);
    assign data_ready = data_here && !pass_q && (data_next[6] || bigs_q < 2'd2);
    assign m_pick    = pick_ctl ? ctl_next : data_next;
    assign picked    = (ctl_here || data_ready) && dead_room && (!m_busy_q || (fs_valid && fs_ready) || dead_put);
    assign ctl_take  = picked && pick_ctl;
    assign data_take = picked && !pick_ctl;
    assign fs_valid  = m_busy_q && m_shown_q;
    assign dead_put  = m_busy_q && !m_shown_q;
    assign fs.place   = address(m_tag_q);
    assign fs.len    = m_len;
    assign fs.loop   = m_loop;
    assign fs.tag    = {1'b0, m_tag_q};
    berth_fp_mem #(.WIDTH(14), .DEPTH(NUMBERS), .OWN(1'b1)) m_frame (.clk(clk), .we(open_valid), .waddr(open_n),
        .wdata({open.loop, open.bytes}), .re(picked), .raddr(number(m_pick)), .rdata({m_loop, m_len}));
    always_ff @(posedge clk) begin
        if (picked) begin
            m_busy_q   <= 1'b1;
            m_shown_q  <= !failed_q[number(m_pick)];
            m_tag_q    <= m_pick;
            last_ctl_q <= pick_ctl;
        end else if ((fs_valid && fs_ready) || dead_put) begin
            m_busy_q <= 1'b0;
        end
        if (rst) begin
            m_busy_q   <= 1'b0;
            last_ctl_q <= 1'b0;
        end
    end

    logic [6:0] going_q;                // data frames that have been chosen and have not left
    logic       from_mac, data_dead, big_in, big_out, big_dead;
    assign from_mac  = fl_valid && fl_tag[6:4] != 3'd0;
    assign data_dead = dead_put && m_tag_q[6:4] != 3'd0;
    assign backlog   = going_q > 7'd1 || (going_q != 7'd0 && data_here);
    assign big_in   = data_take && !data_next[6];
    assign big_out  = from_mac && !fl_tag[6];
    assign big_dead = dead_put && m_tag_q[6:4] == 3'd1;
    always_ff @(posedge clk)
        if (rst) {going_q, bigs_q} <= '0;
        else begin
            going_q <= going_q + 7'(data_take) - 7'(from_mac) - 7'(data_dead);
            bigs_q  <= bigs_q + 2'(big_in) - 2'(big_out) - 2'(big_dead);
        end

    // ---- left ------------------------------------------------------------------------------
    logic          gone_here, dead_here, gone_take, dead_take;
    logic [6:0]    gone_tag, dead_tag;
    berth_lutfifo #(.WIDTH(7), .DEPTH(NUMBERS)) gone_frames (.clk(clk), .rst(rst),
        .wr_valid(fl_valid), .wr_ready(unused_room3), .wr_data(fl_tag[6:0]),
        .rd_valid(gone_here), .rd_ready(gone_take), .rd_data(gone_tag));
    berth_lutfifo #(.WIDTH(7), .DEPTH(4)) dead_frames (.clk(clk), .rst(rst),
        .wr_valid(dead_put), .wr_ready(dead_room), .wr_data(m_tag_q),
        .rd_valid(dead_here), .rd_ready(dead_take), .rd_data(dead_tag));
    typedef enum logic [1:0] {IDLE, LOOK, FAIL} op_t;
    op_t           op_q;
    logic          is_dead_q, is_answer, fails;
    logic [6:0]    tag_q;
    // Not before the turn has been passed on: reads that end in each clock hold that up, and the place must not begin anew.
    assign dead_take = op_q == IDLE && dead_here && !pass_q;
    assign gone_take = op_q == IDLE && !dead_here && gone_here && !pass_q;
    berth_fp_mem #(.WIDTH(QW + 25 + $bits(gone)), .DEPTH(NUMBERS), .OWN(1'b1)) m_packet (.clk(clk), .we(open_valid), .waddr(open_n),
        .wdata({open_q, open.psn, open.answer, open.left}), .re(op_q == IDLE), .raddr(number(dead_here ? dead_tag : gone_tag)),
        .rdata({gone_q, dead_psn, is_answer, gone}));
    // Packets made, and those accounted for: equal when the QP has none.
    logic [7:0]     made [0:QPS-1];
    logic [7:0]     over [0:QPS-1];
    logic           over_we;
    assign over_we  = back && back_tag[6:4] != 3'd0 && !is_answer;
    assign init_ack = init_valid && !made_valid && !over_we;
    for (genvar i = 0; i < 2; i++) begin : g_busy
        assign busy[i] = made[busy_q[QW*i +: QW]] != over[busy_q[QW*i +: QW]];
    end
    always_ff @(posedge clk) begin
        if (made_valid || init_ack) made[init_ack ? init_q : made_q] <= init_ack ? 8'd0 : made[made_q] + 8'd1;
        if (over_we || init_ack)    over[init_ack ? init_q : gone_q] <= init_ack ? 8'd0 : over[gone_q] + 8'd1;
    end
    logic matters;                      // it had memory, or a place for lost packets
    assign matters    = tag_q[6:4] != 3'd0 && (gone.parts != 4'd0 || gone.block[LB]);
    assign gone_valid = op_q == LOOK && matters;
    assign dead_valid = op_q == FAIL;
    assign dead_q     = gone_q;
    assign fails      = is_dead_q && !is_answer;
    assign back       = (op_q == LOOK && (!matters || gone_ready) && !fails) || (op_q == FAIL && dead_ready);
    assign back_tag   = tag_q;
    always_ff @(posedge clk) begin
        case (op_q)
            IDLE: begin
                is_dead_q <= dead_here;
                tag_q  <= dead_here ? dead_tag : gone_tag;
                if (dead_take || gone_take) op_q <= LOOK;
            end
            LOOK: if (!matters || gone_ready) op_q <= fails ? FAIL : IDLE;
            default: if (dead_ready) op_q <= IDLE;
        endcase
        if (rst) op_q <= IDLE;
    end

    logic unused;
    assign unused = &{1'b0, unused_room, unused_room2, unused_room3, loaded.tag[7], fl_tag[7], back_tag};
endmodule
