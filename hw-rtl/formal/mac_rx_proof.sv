// SPDX-License-Identifier: Apache-2.0 OR MIT
// Receive slots of berth_mac_rx: each belongs to exactly one at any time: the free ones, the one that waits for the
// next frame, the frame that is being written, the frames that are being judged, the good ones that wait, the fast
// path, the descriptors that wait, the core. So none is lost, and none is written while another has it: a beat goes
// to packet RAM within the slot of its frame only. The descriptors and the core have at most CORE_SLOTS between them: a frame that
// would be one more is dropped, and its slot is free again (once the card knows its address, which stays).
//
// The fast path, and raw queues behind it, give back, or pass on to the core, what they have; the core may say anything. The two queues give
// what was put into them once (fifo_proof; here, for the slot that is looked at) and have room, as they have as many words
// as there are slots, and hold a slot once. CRC, headers and their copies are free.
module mac_rx_proof #(
    parameter DATA_W     = 64,
    parameter CORE_SLOTS = 8
) (
    input logic                clk, rst_in, hard_rst,
    input logic                rx_valid, rx_last, rx_err, lo_valid, lo_last, rw_ready, rf_ready, hd_re, rfree_valid,
    input logic                core_valid, desc_pop, slot_free, wide, xfree_valid,
    input logic [DATA_W-1:0]   rx_data, lo_data,
    input logic [DATA_W/8-1:0] rx_keep, lo_keep,
    input logic [17:0]         hd_addr, rfree_place, xfree_place,
    input logic [3:0]          rfree_slot, xfree_slot, core_slot,
    input berth_card_pkg::frame_t core_frame,
    input logic [7:0]          slot_free_n
);
    localparam BYTES = DATA_W / 8;
    localparam LB    = $clog2(BYTES);
    localparam FRAME_W = 23;      // of what is judged, the slot in the low bits
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic        rw_valid, rf_valid, core_ready, desc_valid, ev_core, ev_core_full;
    logic [17:0] rw_addr;
    berth_card_pkg::frame_t rf;
    berth_card_pkg::desc_t  desc;
    berth_mac_rx #(.DATA_W(DATA_W), .CORE_SLOTS(CORE_SLOTS)) dut (.clk(clk), .rst(rst), .hard_rst(hard_rst), .own_mac(own_mac),
        .ev_core(ev_core), .ev_core_full(ev_core_full),
        .rx_valid(rx_valid), .rx_data(rx_data), .rx_keep(rx_keep), .rx_last(rx_last), .rx_err(rx_err),
        .lo_valid(lo_valid), .lo_data(lo_data), .lo_keep(lo_keep), .lo_last(lo_last),
        .rw_valid(rw_valid), .rw_ready(rw_ready), .rw_addr(rw_addr),
        .rf_valid(rf_valid), .rf_ready(rf_ready), .rf(rf), .hd_re(hd_re), .hd_addr(hd_addr),
        .rfree_valid(rfree_valid), .rfree_place(rfree_place), .xfree_valid(xfree_valid), .xfree_place(xfree_place), .wide(wide),
        .core_valid(core_valid), .core_ready(core_ready), .core_frame(core_frame),
        .desc_valid(desc_valid), .desc(desc), .desc_pop(desc_pop),
        .slot_free(slot_free), .slot_free_n(slot_free_n));

    (* hierconn *) wire        \dut.slot_valid_q ;
    (* hierconn *) wire [3:0]  \dut.slot_q ;
    (* hierconn *) wire        \dut.in_frame_q ;
    (* hierconn *) wire        \dut.st_valid_q ;
    (* hierconn *) wire        \dut.st_first_q ;
    (* hierconn *) wire        \dut.st_last_q ;
    (* hierconn *) wire [3:0]  \dut.st_slot_q ;
    (* hierconn *) wire [LB:0] \dut.st_bytes_q ;
    (* hierconn *) wire [15:0] \dut.pos_q ;
    (* hierconn *) wire [4:0]  \dut.judge_valid_q ;
    (* hierconn *) wire [5*FRAME_W-1:0] \dut.judge_q ;
    (* hierconn *) wire        \dut.check ;
    (* hierconn *) wire        \dut.good ;
    (* hierconn *) wire        \dut.good_room ;
    (* hierconn *) wire [3:0]  \dut.good_slot ;
    (* hierconn *) wire [15:0] \dut.free_q ;
    (* hierconn *) wire [15:0] \dut.lent_q ;
    (* hierconn *) wire [15:0] \dut.core_q ;

    function automatic logic [17:0] address(input logic [3:0] slot);
        address = berth_regs_pkg::PKT_RX_BASE[17:0] + slot * berth_regs_pkg::SLOT_BYTES[17:0];
    endfunction

    (* anyconst *) logic [3:0] the_slot;
    (* anyconst *) logic [47:0] own_mac;

    // Frames that are being judged, as long as it takes.
    logic [4:0] judged;
    always_comb for (int i = 0; i < 5; i++) judged[i] = \dut.judge_valid_q [i] && \dut.judge_q [FRAME_W*i +: 4] == the_slot;

    // Who has it, where only its users see that. An address is in the first 512 bytes of a slot.
    logic waits_q, fast_q, told_q;
    wire shown  = rf_valid && \dut.good_slot == the_slot;
    wire backs  = rfree_valid && rfree_slot == the_slot;
    wire xbacks = xfree_valid && xfree_slot == the_slot;
    wire passes = core_valid && core_slot == the_slot;
    always_comb begin
        assume (rfree_place - address(rfree_slot) < 18'd512 && core_frame.place - address(core_slot) < 18'd512);
        assume (xfree_place - address(xfree_slot) < 18'd512);
        assume (2'(backs) + 2'(xbacks) + 2'(passes) <= 2'(fast_q));
        assume (\dut.good_room && core_ready);
        assume ((!shown || waits_q) && (!(desc_valid && desc.slot == the_slot) || told_q));
        // All beats but the last are full, none is empty.
        assume (rx_keep[0] && lo_keep[0] && (rx_last || rx_keep == '1) && (lo_last || lo_keep == '1));
    end
    always_ff @(posedge clk) begin
        if (\dut.check && \dut.good && judged[4]) waits_q <= 1'b1;
        if (shown && rf_ready) {waits_q, fast_q} <= 2'b01;
        if (backs || xbacks) fast_q <= 1'b0;
        if (passes) {fast_q, told_q} <= {1'b0, ev_core};
        if (desc_valid && desc_pop && desc.slot == the_slot) told_q <= 1'b0;
        if (rst) {waits_q, fast_q, told_q} <= '0;
    end

    logic [4:0] core_n;
    always_comb begin
        core_n = '0;
        for (int i = 0; i < 16; i++) core_n = core_n + {4'd0, \dut.core_q [i]};
    end
    wire writes = (\dut.in_frame_q || \dut.st_valid_q ) && \dut.st_slot_q == the_slot;
    wire next   = \dut.slot_valid_q && \dut.slot_q == the_slot;
    always_comb if (!rst) begin
        assert (4'(\dut.free_q [the_slot]) + 4'(next) + 4'(writes) + 4'(judged[0]) + 4'(judged[1]) + 4'(judged[2])
                + 4'(judged[3]) + 4'(judged[4]) + 4'(waits_q) + 4'(fast_q) + 4'(told_q) + 4'(\dut.lent_q [the_slot]) == 4'd1);
        assert (!rw_valid || ({1'b0, rw_addr} >= {1'b0, address(\dut.st_slot_q )} && {1'b0, rw_addr} + 19'(BYTES)
                              <= {1'b0, address(\dut.st_slot_q )} + {1'b0, berth_regs_pkg::SLOT_BYTES[17:0]}));
        assert (\dut.core_q [the_slot] == (told_q || \dut.lent_q [the_slot]));
        assert ((own_mac == '0 || core_n <= CORE_SLOTS[4:0]) && ev_core_full == (core_valid && !ev_core));
        assert (!shown || rf.place == address(the_slot));
        // For the proof.
        assert (!\dut.st_valid_q || \dut.st_last_q != \dut.in_frame_q );
        assert (!\dut.st_valid_q || (\dut.st_bytes_q != '0 && 32'(\dut.st_bytes_q ) <= BYTES));
        assert (!\dut.st_valid_q || \dut.st_last_q || 32'(\dut.st_bytes_q ) == BYTES);
        assert (!(\dut.st_valid_q ? !\dut.st_first_q : \dut.in_frame_q ) || \dut.pos_q [LB-1:0] == '0);
    end
endmodule

// Any checksum.
module berth_icrc #(
    parameter DATA_W = 64
) (
    input  logic                      clk, go, in_valid, in_first,
    input  logic [DATA_W-1:0]         in_data,
    input  logic [$clog2(DATA_W/8):0] in_bytes,
    output logic [31:0]               crc
);
    (* anyseq *) logic [31:0] any;
    assign crc = any;
endmodule
