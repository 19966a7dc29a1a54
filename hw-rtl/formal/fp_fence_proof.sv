// SPDX-License-Identifier: Apache-2.0 OR MIT
// The fence of placement (berth_fp_scatter), behind which memory is let go of:
// * When `fenced` comes, all write commands of any payload that was given before `fence` are done.
// * It comes within a bound: `rank`, 319 at most, falls in each clock in which placement waits neither for its write port nor
//   for the end of a write, and never rises meanwhile.
//
// Queues are free, but give as many as they were given; scatter lists have 1 to 7 ranges, of any length.
module fp_fence_proof #(
    parameter QPS = 64,
    parameter QW = $clog2(QPS)
) (
    input logic               clk, rst_in,
    input logic               place_valid, store_ready, stored_valid, placed_ready, fence, mark,
    input logic [QW-1:0]      place_q,
    input berth_card_pkg::placement_t   place,
    input berth_card_pkg::range_t       place_sge,
    input berth_card_pkg::payload_end_t stored
);
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic place_ready, store_valid, fenced;
    berth_fp_scatter #(.QPS(QPS)) dut (.clk(clk), .rst(rst), .place_valid(place_valid), .place_ready(place_ready), .place_q(place_q),
        .place(place), .place_sge(place_sge), .store_valid(store_valid), .store_ready(store_ready), .stored_valid(stored_valid), .stored(stored),
        .placed_ready(placed_ready), .fence(fence), .fenced(fenced));

    localparam logic [1:0] F_IDLE = 2'd0, F_QUEUE = 2'd1, F_FLIGHT = 2'd2;
    (* hierconn *) wire [1:0]         \dut.f_state_q ;
    (* hierconn *) wire [4:0]         \dut.queued_q ;
    (* hierconn *) wire [4:0]         \dut.f_queue_q ;
    (* hierconn *) wire [6:0]         \dut.flights_q ;
    (* hierconn *) wire [6:0]         \dut.f_flight_q ;
    localparam PLACE_W = $bits(place);
    (* hierconn *) wire [PLACE_W-1:0] \dut.p_q ;
    (* hierconn *) wire [PLACE_W-1:0] \dut.head ;
    berth_card_pkg::placement_t cut, next;
    assign cut  = \dut.p_q ;
    assign next = \dut.head ;
    (* hierconn *) wire \dut.go , \dut.over , \dut.hits , \dut.look_q , \dut.read_q , \dut.head_pop , \dut.head_valid ,
        \dut.fly_room , \dut.fly_valid ;
    wire       gives = place_valid && place_ready;
    wire       cuts  = \dut.look_q || \dut.read_q ;
    wire       ends  = \dut.go && \dut.over ;           // the packet at hand is cut
    wire [2:0] sges  = cut.sges;
    always_comb begin
        assume (\dut.head_valid == (\dut.queued_q != '0));
        assume (!place_ready || \dut.queued_q < 5'd16);
        assume (!\dut.head_valid || next.sges != '0);
        assume (\dut.fly_valid == (\dut.flights_q != '0) && \dut.fly_room == (\dut.flights_q < 7'd64));
        assume (!stored_valid || \dut.fly_valid );
        assume (!ends || \dut.hits );                   // a packet is not longer than its list: berth_fp_scatter.sv asserts it
    end

    // ---- one payload, any ------------------------------------------------------------------------------
    localparam logic [2:0] NONE = 3'd0, WAITS = 3'd1, CUT = 3'd2, FLIES = 3'd3, PLACED = 3'd4;
    logic [2:0] is_q;
    logic       before_q;                               // given before the fence at hand
    logic [6:0] ahead_q;                                // in the queue, or writes that are on their way, itself included
    always_ff @(posedge clk) begin
        before_q <= before_q || (\dut.f_state_q == F_IDLE && (is_q != NONE || (gives && mark)));
        case (is_q)
            NONE: if (gives && mark) begin
                is_q    <= WAITS;
                ahead_q <= 7'(\dut.queued_q ) - 7'(\dut.head_pop ) + 7'd1;
            end
            WAITS: if (\dut.head_pop ) begin
                ahead_q <= ahead_q - 7'd1;
                if (ahead_q == 7'd1) is_q <= CUT;
            end
            CUT: if (ends) begin
                is_q    <= FLIES;
                ahead_q <= \dut.flights_q - 7'(stored_valid) + 7'd1;
            end
            FLIES: if (stored_valid) begin
                ahead_q <= ahead_q - 7'd1;
                if (ahead_q == 7'd1) is_q <= PLACED;
            end
            default: ;
        endcase
        if (rst) {is_q, before_q} <= '0;
    end

    // ---- the rank ------------------------------------------------------------------------------------
    wire [9:0] rank = \dut.f_state_q == F_IDLE ? 10'd0 : \dut.f_state_q == F_FLIGHT ? 10'(\dut.f_flight_q )
        : 10'd65 + 10'd15 * 10'(\dut.f_queue_q ) + (cuts ? {6'd0, sges, \dut.read_q } : 10'd0);
    // For its write port, or the end of a write.
    wire       waits = \dut.f_state_q == F_FLIGHT ? !stored_valid : \dut.hits && ((store_valid && !store_ready) || !\dut.fly_room );
    logic      waited_q, going_q;
    logic [9:0] rank_q;
    always_ff @(posedge clk) begin
        waited_q <= waits;
        rank_q   <= rank;
        going_q  <= \dut.f_state_q != F_IDLE && !fenced && !rst;
    end
    always_comb if (!rst) begin
        assert (!(fenced && before_q) || is_q == PLACED);
        assert (!going_q || (rank <= rank_q && \dut.f_state_q != F_IDLE));
        assert (!going_q || waited_q || rank < rank_q);
        assert (rank <= 10'd319 && (\dut.f_state_q == F_IDLE || rank != '0 || fenced));
        // For the proof.
        assert (\dut.f_state_q <= F_FLIGHT && \dut.queued_q <= 5'd16 && \dut.flights_q <= 7'd64 && !(\dut.look_q && \dut.read_q ));
        assert ((!cuts || sges != '0) && (!\dut.read_q || sges != 3'd7));
        assert (\dut.f_state_q != F_QUEUE || \dut.f_queue_q <= \dut.queued_q );
        assert (\dut.f_state_q != F_FLIGHT || \dut.f_flight_q <= \dut.flights_q );
        assert (is_q <= PLACED && (is_q != WAITS || (ahead_q != '0 && ahead_q <= 7'(\dut.queued_q ))));
        assert (is_q != CUT || cuts);
        assert (is_q != FLIES || (ahead_q != '0 && ahead_q <= \dut.flights_q ));
        if (before_q && \dut.f_state_q == F_QUEUE) assert (is_q != WAITS || ahead_q <= 7'(\dut.f_queue_q ));
        if (before_q && \dut.f_state_q == F_FLIGHT)
            assert (is_q == PLACED || (is_q == FLIES && ahead_q <= \dut.f_flight_q ));
        assert (!before_q || is_q != NONE);
    end
endmodule
