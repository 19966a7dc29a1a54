// SPDX-License-Identifier: Apache-2.0 OR MIT
// A fence in berth_cmd (decision 17), and what may keep it waiting there.
// * Its token is given out only after engines were seen quiet while `hold` was high, which it is from the clock on in which
//   the fence is taken up, and until the token is taken. The token stays what it was.
// * It passes nothing, and nothing passes it: a change of the table, an answer to a page request, or a command for firmware
//   that is begun stays until it is taken, and while `hold` there is none.
// * In each clock in which nobody is waited for, the command at hand comes nearer to its end: it has 26 such clocks at most
//   from the one on in which it is taken up, a fence 2 once it holds. Who is waited for: the table, the place of answers,
//   firmware's queue; for a fence the engines (dma_fence_proof), and the write port for its token.
// * Fetches are carried out oldest first, each once. While `hold`, at most as many begin as there are places (8): a fence
//   has no more reads of the ring to wait for.
// What is fetched, pushed, answered, and when, is free, and so is the ring's set-up.
module cmd_fence_proof (
    input logic clk, rst_in,
    input logic enable, cmd_log2_we, cmd_pi_we, push_begin, push_we, ring_ready, ring_cpl_valid, ring_cpl_end, ch_ready,
                rdy_ready, quiet, token_ready, fw_pop,
    input logic [63:0] cmd_base, push_data, ring_cpl_data,
    input logic [4:0]  cmd_log2,
    input logic [15:0] cmd_pi,
    input logic [3:0]  log2_read, fw_raddr,
    input logic [2:0]  push_word,
    input berth_card_pkg::ring_beat_t ring_cpl
);
    localparam DATA_W = 64, FETCHES = 8;
    localparam logic [3:0] LOAD = 4'd1, SHIFT = 4'd2, DECODE = 4'd3, INSTALL = 4'd4, CHANGE = 4'd5, READY = 4'd6, FENCE = 4'd7,
        TOKEN = 4'd8, COPY = 4'd9;
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic        ring_valid, ch_valid, rdy_valid, hold, token_valid, pend_cmd, cmd_stands, inc_bad, inc_pushed, busy;
    logic [15:0] cmd_ci;
    logic [63:0] token_data;
    logic [31:0] fw_rdata;
    berth_card_pkg::ring_read_t    ring;
    berth_card_pkg::table_change_t ch;
    berth_card_pkg::page_answer_t  rdy;
    berth_cmd #(.DATA_W(DATA_W)) dut (.*);

    (* hierconn *) wire [3:0]         \dut.state_q ;
    (* hierconn *) wire [3:0]         \dut.page_q ;
    (* hierconn *) wire [3:0]         \dut.word_q ;
    (* hierconn *) wire [3:0]         \dut.further ;
    (* hierconn *) wire [5:0]         \dut.left_q ;
    (* hierconn *) wire [2:0]         \dut.n_q ;
    (* hierconn *) wire [2:0]         \dut.get_q ;
    (* hierconn *) wire [2:0]         \dut.put_q ;
    (* hierconn *) wire [FETCHES-1:0] \dut.used_q ;
    (* hierconn *) wire [FETCHES-1:0] \dut.there_q ;
    (* hierconn *) wire [FETCHES-1:0] \dut.bad_q ;
    (* hierconn *) wire [FETCHES-1:0] \dut.stale_q ;
    (* hierconn *) wire               \dut.take_pushed ;
    (* hierconn *) wire               \dut.request_q ;
    (* hierconn *) wire               \dut.page_ok ;
    (* hierconn *) wire [31:0]        \dut.opcode ;
    (* hierconn *) wire               \dut.evict ;
    (* hierconn *) wire               \dut.fw_full ;
    (* hierconn *) wire               \dut.fw_we ;

    // ---- Clocks that the command at hand has left, but for those in which it waits ---------------------------------
    logic [5:0] rank;
    always_comb
        case (\dut.state_q )
            LOAD:    rank = \dut.n_q == '0 ? 6'd0 : 6'd26;
            SHIFT:   rank = 6'd17 + \dut.left_q ;
            DECODE:  rank = 6'd17;
            INSTALL: rank = 6'd6 - 6'(\dut.page_q );
            CHANGE:  rank = 6'd12 - 6'(\dut.page_q );
            READY:   rank = 6'd1;
            FENCE:   rank = 6'd2;
            TOKEN:   rank = 6'd1;
            COPY:    rank = 6'd16 - 6'(\dut.word_q );
            default: rank = 6'd0;
        endcase
    wire waits = (ch_valid && !ch_ready) || (rdy_valid && !rdy_ready) || (\dut.state_q == FENCE && !quiet)
                 || (token_valid && !token_ready) || (\dut.state_q == COPY && \dut.fw_full );
    wire begins = \dut.state_q == LOAD && \dut.n_q != '0;  // the next command
    wire over   = \dut.state_q == LOAD;

    // The oldest fetch is over: carried out, or of no use.
    wire ends = (\dut.state_q == LOAD && \dut.n_q == '0)
                || (\dut.state_q == '0 && \dut.there_q [\dut.get_q ] && \dut.bad_q [\dut.get_q ] && \dut.stale_q [\dut.get_q ]);

    logic               waits_q, hold_q, hold_taken_q, seen_q, began_q, fence_q, changes_q, answers_q, copies_q;
    logic [5:0]         rank_q;
    logic [63:0]        token_q;
    logic [FETCHES-1:0] used_q;
    logic [3:0]         fetches_q;
    berth_card_pkg::table_change_t change_q;
    always_ff @(posedge clk) begin
        {waits_q, rank_q, token_q, used_q, change_q} <= {waits, rank, token_data, \dut.used_q , ch};
        hold_q       <= hold && !rst;
        hold_taken_q <= token_ready && token_valid;
        changes_q    <= ch_valid && !ch_ready && !rst;
        answers_q    <= rdy_valid && !rdy_ready && !rst;
        copies_q     <= \dut.state_q == COPY && !(\dut.fw_we && \dut.word_q == 4'd15) && !rst;
        began_q      <= begins && !rst;
        fence_q      <= \dut.state_q == DECODE && \dut.opcode == berth_regs_pkg::CMD_FENCE && !rst;
        seen_q       <= hold && (seen_q || quiet);
        fetches_q    <= fetches_q + 4'((ring_valid && ring_ready) || \dut.take_pushed ) - 4'(\dut.used_q [\dut.get_q ] && ends);
        if (rst) {rank_q, seen_q, fetches_q} <= '0;
    end

    always_comb if (!rst) begin
        assert (hold == (\dut.state_q == FENCE || \dut.state_q == TOKEN));
        assert (!token_valid || (hold && seen_q));
        assert (!hold_q || hold_taken_q || (hold && token_data == token_q));
        assert (!changes_q || (ch_valid && ch == change_q));
        assert (!answers_q || rdy_valid);
        assert (!copies_q || \dut.state_q == COPY);
        assert (!hold || !(ch_valid || rdy_valid || \dut.fw_we ));
        // Nearer to its end, or over.
        assert (rank_q == '0 || (waits_q ? rank == rank_q : over || rank < rank_q));
        assert (!(began_q && over));
        assert (!fence_q || hold);
        // Fetches.
        assert (!(ring_valid && ring_ready) || !\dut.used_q [\dut.put_q ]);
        assert (!(hold_q && hold) || (used_q & ~\dut.used_q ) == '0);
        assert (fetches_q <= 4'(FETCHES) && \dut.put_q == \dut.get_q + fetches_q[2:0]);
        for (int unsigned i = 0; i < FETCHES; i++) assert (\dut.used_q [i] == ({1'b0, 3'(i) - \dut.get_q } < fetches_q));
        // For the proof.
        assert (\dut.state_q <= COPY && (\dut.state_q == '0 || \dut.used_q [\dut.get_q ]));
        assert (!\dut.request_q || !\dut.used_q [\dut.put_q ]);
        assert (\dut.state_q != SHIFT || (\dut.left_q != '0 && \dut.left_q <= 6'd8));
        assert (\dut.state_q != INSTALL || (\dut.page_q <= \dut.further && \dut.further < 4'd6));
        assert (\dut.state_q != CHANGE || (\dut.evict ? \dut.page_q <= \dut.further && \dut.further < 4'd12 : \dut.page_q == '0));
        assert ((\dut.state_q != SHIFT && \dut.state_q != DECODE) || {\dut.page_q , \dut.word_q } == '0);
    end
endmodule
