// SPDX-License-Identifier: Apache-2.0 OR MIT
// Credit engine: per QP a builder (sizes of posted receives become credit lists: CR-1,
// CR-4, CR-5, CR-11) and a reader (lists that have arrived are used in order: CR-2,
// CR-11). Operations come one at a time from the core as CRD_*; what they do is defined
// by `berth_protocol::credit`, and the two are compared in hw-rtl/sim/tests.
//
// A row of state per QP and side lies in block RAM, the sizes in two more. An operation
// loads both rows, works on them, and stores them; readiness of a list is judged while
// storing, and a QP that has become ready is shown once at `list_*`.

module berth_credit (
    input  logic        clk,
    input  logic        rst,
    output logic        busy,         // an operation is in work, or rows are being cleared
    output logic        scanning,     // a QP is about to appear at list_*

    // operation; taken when `start` is high and `busy` is low
    input  logic        start,
    input  logic [7:0]  op,           // CRD_*
    input  logic [15:0] qpn,
    input  logic [31:0] arg0,
    input  logic [31:0] arg1,

    // results, meaningful from when `busy` is low again until the next start
    output logic [31:0] rsp0,
    output logic [31:0] rsp1,
    output logic [31:0] rsp2,

    // QPs whose next list may be sent
    output logic        list_valid,
    output logic [15:0] list_qpn,
    input  logic        list_pop,

    // counters, one cycle each
    output logic        ev_posted,       // a credit was posted
    output logic        ev_list_sent,    // a list was taken from a builder ...
    output logic [6:0]  ev_list_len,     // ... with this many credits
    output logic        ev_list_taken,   // a reader took a list
    output logic        ev_taken,        // a reader took a credit of a list
    output logic        ev_refused       // a reader refused a list
);
    localparam int unsigned ROWS  = berth_regs_pkg::NUM_QP_ROWS;
    localparam int unsigned SIZES = ROWS * berth_regs_pkg::CREDITS_PER_QP;
    localparam int unsigned QW    = $clog2(ROWS);
    localparam int unsigned CW    = $clog2(berth_regs_pkg::CREDITS_PER_QP);

    // State of a builder. Numbers are credit numbers modulo 2^32.
    typedef struct packed {
        logic [31:0]   posted;
        logic [31:0]   committed;   // posted before the last end of a batch
        logic [31:0]   announced;
        logic [31:0]   landed;
        logic [31:0]   list_first;  // first credit of the last list (Rtrip)
        logic [31:0]   trigger_at;  // trigger buffer of the last list
        logic          list_sent;   // a list has been sent since reset or void
        logic          enabled;
        logic          reported;    // readiness has been shown
        logic [5:0]    max_list;    // 0 stands for MAX_LIST
        logic [1:0]    trigger;     // 0 first, 1 last, 2 in between, 3 as well
        logic [7:0]    trigger_index;
        logic [CW-1:0] next;        // place of the next size of the list being taken
        logic [6:0]    left;        // sizes of it that are left
    } builder_t;

    // State of a reader.
    typedef struct packed {
        logic [31:0] next_in;       // number that the next credit gets
        logic [31:0] next_out;      // number of the next credit to use
        logic [31:0] list_first;    // first credit of the last list
        logic        list_open;     // there was a list, and no proof of its use
        logic [39:0] bytes;         // sum of the unused sizes
    } reader_t;

    localparam int unsigned BW = 6*32 + 3 + 6 + 2 + 8 + CW + 7;  // bits of builder_t
    localparam int unsigned RW = 3*32 + 1 + 40;                  // bits of reader_t

    typedef enum logic [2:0] {
        CLEAR,   // after reset: empty every row
        IDLE,
        LOAD,    // rows are read
        EXECUTE,
        FETCH,   // a size is read
        SIZE,    // the size is there
        STORE
    } state_t;

    state_t        state_q;
    logic [7:0]    op_q;
    logic          known_q;      // the QPN has a row
    logic [QW-1:0] row_q;
    logic [31:0]   arg0_q;
    logic [31:0]   arg1_q;
    builder_t      b_q;
    reader_t       r_q;
    logic [CW:0]   give_q;       // CRD_GIVE_UP: credits still to drop

    // ---- memories --------------------------------------------------------------------
    logic [BW-1:0]    b_mem [0:ROWS-1];
    logic [RW-1:0]    r_mem [0:ROWS-1];
    logic [31:0]      b_size [0:SIZES-1];
    logic [31:0]      r_size [0:SIZES-1];
    logic [BW-1:0]    b_row;
    logic [RW-1:0]    r_row;
    logic [31:0]      b_out;
    logic [31:0]      r_out;

    logic             row_we;
    logic             row_re;
    logic [BW-1:0]    b_store;
    logic             b_push, r_push;
    logic             size_re;
    logic [CW-1:0]    r_place;

    assign row_we = state_q == CLEAR || state_q == STORE;
    assign row_re = state_q == IDLE && start;

    always_ff @(posedge clk) begin
        if (row_we) begin
            b_mem[row_q] <= b_store;
            r_mem[row_q] <= r_q;
        end
        if (row_re) begin
            b_row <= b_mem[qpn[QW-1:0]];
            r_row <= r_mem[qpn[QW-1:0]];
        end
    end

    always_ff @(posedge clk) begin
        if (b_push) b_size[{row_q, b_q.posted[CW-1:0]}] <= arg0_q;
        if (r_push) r_size[{row_q, r_q.next_in[CW-1:0]}] <= arg0_q;
        if (size_re) begin
            b_out <= b_size[{row_q, b_q.next}];
            r_out <= r_size[{row_q, r_place}];
        end
    end

    // ---- what the operations need to know --------------------------------------------
    function automatic logic after(input logic [31:0] a, input logic [31:0] b);
        logic [31:0] d;
        d = a - b;
        after = !d[31] && d != 32'd0;
    endfunction

    logic        b_full, b_due, b_ready, b_void_ok;
    logic [31:0] b_unsent;
    logic [6:0]  b_max, b_len, b_trigger;
    assign b_full    = b_q.posted - b_q.landed >= berth_regs_pkg::CREDITS_PER_QP;
    assign b_due     = !b_q.list_sent || (after(b_q.landed, b_q.list_first) && after(b_q.landed, b_q.trigger_at));
    assign b_ready   = b_q.enabled && b_q.committed != b_q.announced && b_q.left == 7'd0 && b_due;
    assign b_unsent  = b_q.committed - b_q.announced;
    assign b_max     = b_q.max_list == 6'd0 ? berth_regs_pkg::MAX_LIST[6:0] : {1'b0, b_q.max_list};
    assign b_len     = b_unsent < {25'd0, b_max} ? b_unsent[6:0] : b_max;
    assign b_trigger = b_q.trigger == 2'd1 ? b_len - 7'd1
                     : b_q.trigger[1] ? (b_q.trigger_index < {1'b0, b_len} ? b_q.trigger_index[6:0] : b_len - 7'd1)
                     : 7'd0;
    assign b_void_ok = arg0_q - b_q.landed <= b_q.announced - b_q.landed;

    logic [31:0] r_count, r_skip, r_room;
    logic [31:0] r_answer;
    assign r_count = r_q.next_in - r_q.next_out;
    assign r_skip  = r_q.next_in - arg0_q;
    assign r_room  = berth_regs_pkg::CREDITS_PER_QP - r_count;
    assign r_answer = arg1_q == 32'd0 || arg1_q > berth_regs_pkg::MAX_LIST                    ? berth_regs_pkg::LIST_BAD
                    : !after(arg0_q + arg1_q, r_q.next_in)                    ? berth_regs_pkg::LIST_REPEAT
                    : after(arg0_q, r_q.next_in)                              ? berth_regs_pkg::LIST_GAP
                    : r_q.list_open && !after(r_q.next_out, r_q.list_first)   ? berth_regs_pkg::LIST_EARLY
                    : arg1_q - r_skip > r_room                                ? berth_regs_pkg::LIST_OVERFLOW
                    : berth_regs_pkg::LIST_OK;

    assign b_push  = state_q == EXECUTE && known_q && op_q == berth_regs_pkg::CRD_POST[7:0] && !b_full;
    assign r_push  = state_q == EXECUTE && known_q && op_q == berth_regs_pkg::CRD_LIST_PUSH[7:0]
                     && r_count < berth_regs_pkg::CREDITS_PER_QP;
    assign size_re = state_q == FETCH;
    assign r_place = op_q == berth_regs_pkg::CRD_GIVE_UP[7:0] ? r_q.next_in[CW-1:0] - 1'b1
                   : op_q == berth_regs_pkg::CRD_PEEK[7:0]    ? r_q.next_out[CW-1:0] + arg0_q[CW-1:0]
                   : r_q.next_out[CW-1:0];

    // ---- readiness as it will be stored ----------------------------------------------
    builder_t b_stored;
    always_comb begin
        b_stored = b_q;
        b_stored.reported = b_ready;
    end
    assign b_store = state_q == CLEAR ? '0 : b_stored;

    // ---- QPs to show -----------------------------------------------------------------
    // `scan_q` goes round by groups of up to 16 until it stands on a QP that is ready.
    logic [ROWS-1:0] shown_q;
    logic [QW-1:0]          scan_q;
    localparam int unsigned GROUP = ROWS < 16 ? ROWS : 16;
    localparam int unsigned GW    = $clog2(GROUP);
    assign list_valid = shown_q[scan_q];
    assign scanning   = !list_valid && shown_q != '0;
    assign list_qpn   = {{(16-QW){1'b0}}, scan_q};

    assign busy = state_q != IDLE;

    always_ff @(posedge clk) begin
        ev_posted     <= 1'b0;
        ev_list_sent  <= 1'b0;
        ev_list_taken <= 1'b0;
        ev_taken      <= 1'b0;
        ev_refused    <= 1'b0;

        if (list_valid && list_pop) begin
            shown_q[scan_q] <= 1'b0;
            scan_q          <= scan_q + 1'b1;
        end else if (scanning) begin
            if (shown_q[(scan_q >> GW << GW) +: GROUP] == '0)
                scan_q <= (scan_q >> GW << GW) + QW'(GROUP);
            else
                scan_q <= scan_q + 1'b1;
        end

        case (state_q)
            CLEAR: begin
                row_q <= row_q + 1'b1;
                if (row_q == '1)
                    state_q <= IDLE;
            end

            IDLE: if (start) begin
                op_q    <= op;
                known_q <= qpn < berth_regs_pkg::NUM_QP_ROWS[15:0];
                row_q   <= qpn[QW-1:0];
                arg0_q  <= arg0;
                arg1_q  <= arg1;
                state_q <= LOAD;
            end

            LOAD: begin
                b_q     <= b_row;
                r_q     <= r_row;
                rsp0    <= 32'd0;
                rsp1    <= 32'd0;
                rsp2    <= 32'd0;
                state_q <= EXECUTE;
            end

            EXECUTE: begin
                state_q <= STORE;
                give_q  <= {1'b0, {CW{1'b0}}};
                if (!known_q) begin
                    // refused, in the words of the operation
                    rsp0 <= op_q == berth_regs_pkg::CRD_LIST_BEGIN[7:0] ? berth_regs_pkg::LIST_BAD
                          : op_q == berth_regs_pkg::CRD_TAKE[7:0] || op_q == berth_regs_pkg::CRD_PEEK[7:0]
                            || op_q == berth_regs_pkg::CRD_COUNT[7:0] ? 32'd0
                          : 32'd1;
                    state_q <= IDLE;
                end else case ({24'd0, op_q})
                    berth_regs_pkg::CRD_RESET: begin
                        b_q               <= '0;
                        b_q.max_list      <= arg0_q == 32'd0                    ? 6'd1
                                             : arg0_q >= berth_regs_pkg::MAX_LIST ? 6'd0 : arg0_q[5:0];
                        b_q.trigger       <= arg1_q[1:0];
                        b_q.trigger_index <= arg1_q[15:8];
                        r_q               <= '0;
                    end
                    berth_regs_pkg::CRD_ENABLE: b_q.enabled <= 1'b1;
                    berth_regs_pkg::CRD_POST: begin
                        if (b_full) begin
                            rsp0 <= 32'd1;
                        end else begin
                            rsp1       <= b_q.posted;
                            b_q.posted <= b_q.posted + 32'd1;
                            ev_posted  <= 1'b1;
                        end
                    end
                    berth_regs_pkg::CRD_COMMIT: b_q.committed <= b_q.posted;
                    berth_regs_pkg::CRD_LANDED: begin
                        if (b_q.landed == b_q.announced)
                            rsp0 <= 32'd1;
                        else
                            b_q.landed <= b_q.landed + 32'd1;
                    end
                    berth_regs_pkg::CRD_LIST_TAKE: begin
                        if (!b_ready) begin
                            rsp0 <= 32'd1;
                        end else begin
                            rsp1           <= b_q.announced;
                            rsp2           <= {25'd0, b_len};
                            b_q.list_first <= b_q.announced;
                            b_q.trigger_at <= b_q.announced + {25'd0, b_trigger};
                            b_q.list_sent  <= 1'b1;
                            b_q.announced  <= b_q.announced + {25'd0, b_len};
                            b_q.next       <= b_q.announced[CW-1:0];
                            b_q.left       <= b_len;
                            ev_list_sent   <= 1'b1;
                            ev_list_len    <= b_len;
                        end
                    end
                    berth_regs_pkg::CRD_LIST_NEXT: if (b_q.left != 7'd0) state_q <= FETCH;
                    berth_regs_pkg::CRD_VOID: begin
                        if (!b_void_ok) begin
                            rsp0 <= 32'd1;
                        end else begin
                            b_q.posted    <= arg0_q;
                            b_q.committed <= arg0_q;
                            b_q.announced <= arg0_q;
                            b_q.list_sent <= 1'b0;
                            b_q.left      <= 7'd0;
                        end
                    end
                    berth_regs_pkg::CRD_BUILDER: begin
                        rsp0 <= b_q.posted;
                        rsp1 <= b_q.announced;
                        rsp2 <= b_q.landed;
                    end
                    berth_regs_pkg::CRD_LIST_BEGIN: begin
                        rsp0 <= r_answer;
                        if (r_answer == berth_regs_pkg::LIST_OK) begin
                            rsp1           <= r_skip;
                            r_q.list_first <= arg0_q;
                            r_q.list_open  <= 1'b1;
                            ev_list_taken  <= 1'b1;
                        end else if (r_answer != berth_regs_pkg::LIST_REPEAT) begin
                            ev_refused     <= 1'b1;
                        end
                    end
                    berth_regs_pkg::CRD_LIST_PUSH: begin
                        if (!r_push) begin
                            rsp0 <= 32'd1;
                        end else begin
                            r_q.next_in <= r_q.next_in + 32'd1;
                            r_q.bytes   <= r_q.bytes + {8'd0, arg0_q};
                            ev_taken    <= 1'b1;
                        end
                    end
                    berth_regs_pkg::CRD_TAKE: if (r_count != 32'd0) state_q <= FETCH;
                    berth_regs_pkg::CRD_PEEK: if (arg0_q < r_count) state_q <= FETCH;
                    berth_regs_pkg::CRD_GIVE_UP: begin
                        r_q.list_open <= 1'b0;
                        rsp0          <= r_q.next_in;
                        give_q        <= arg0_q < r_count ? arg0_q[CW:0] : r_count[CW:0];
                        if (arg0_q != 32'd0 && r_count != 32'd0)
                            state_q <= FETCH;
                    end
                    berth_regs_pkg::CRD_COUNT: begin
                        rsp0 <= r_count;
                        rsp1 <= r_q.bytes[39:32] != 8'd0 ? 32'hffff_ffff : r_q.bytes[31:0];
                    end
                    default: ;
                endcase
            end

            FETCH: state_q <= SIZE;

            SIZE: begin
                state_q <= STORE;
                case ({24'd0, op_q})
                    berth_regs_pkg::CRD_LIST_NEXT: begin
                        rsp0     <= b_out;
                        b_q.next <= b_q.next + 1'b1;
                        b_q.left <= b_q.left - 7'd1;
                    end
                    berth_regs_pkg::CRD_TAKE: begin
                        rsp0         <= {1'b1, r_out < arg0_q ? r_out[30:0] : arg0_q[30:0]};
                        rsp1         <= r_q.next_out;
                        rsp2         <= r_out;
                        r_q.next_out <= r_q.next_out + 32'd1;
                        r_q.bytes    <= r_q.bytes - {8'd0, r_out};
                    end
                    berth_regs_pkg::CRD_PEEK: begin
                        rsp0 <= 32'h8000_0000;
                        rsp1 <= r_q.next_out + arg0_q;
                        rsp2 <= r_out;
                    end
                    default: begin  // CRD_GIVE_UP
                        rsp0        <= r_q.next_in - 32'd1;
                        r_q.next_in <= r_q.next_in - 32'd1;
                        r_q.bytes   <= r_q.bytes - {8'd0, r_out};
                        give_q      <= give_q - 1'b1;
                        if (give_q != 1)
                            state_q <= FETCH;
                    end
                endcase
            end

            STORE: begin
                if (!b_ready)
                    shown_q[row_q] <= 1'b0;
                else if (!b_q.reported)
                    shown_q[row_q] <= 1'b1;
                state_q <= IDLE;
            end

            default: state_q <= CLEAR;
        endcase

        if (rst) begin
            state_q       <= CLEAR;
            row_q         <= '0;
            r_q           <= '0;
            shown_q       <= '0;
            scan_q        <= '0;
            ev_posted     <= 1'b0;
            ev_list_sent  <= 1'b0;
            ev_list_taken <= 1'b0;
            ev_taken      <= 1'b0;
            ev_refused    <= 1'b0;
        end
    end

    // What is stored obeys landed <= announced <= committed <= posted <= landed + CREDITS_PER_QP.
    always_ff @(posedge clk) begin
        if (!rst && state_q == STORE) begin
            assert (b_q.posted - b_q.landed <= berth_regs_pkg::CREDITS_PER_QP);
            assert (b_q.announced - b_q.landed <= b_q.posted - b_q.landed);
            assert (r_q.next_in - r_q.next_out <= berth_regs_pkg::CREDITS_PER_QP);
        end
    end
endmodule
