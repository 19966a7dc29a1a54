// SPDX-License-Identifier: Apache-2.0 OR MIT
// Counters of 64 bits in a RAM. Increments are gathered in a few bits for each counter; the counters are updated one after
// the other, two cycles each. A counter that is read is updated next, so that its value is complete.
module berth_counters #(
    parameter int unsigned N = 64,
    parameter int unsigned AMOUNT = 16,           // bits of an amount
    parameter logic [N-1:0] WIDE = '1             // counters that more than 3 are added to in a cycle
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic [N*AMOUNT-1:0]  amounts,         // to be added in this cycle
    // Held until `there`; `value` stands until the next question.
    input  logic                 ask,
    input  logic [$clog2(N)-1:0] which,
    output logic                 there,
    output logic [63:0]          value
);
    localparam int unsigned IW = $clog2(N);
    // Each is visited once in 2N cycles; or in 4N, when every second visit is for a question.
    localparam int unsigned ROUND = $clog2(4 * N);
    localparam int unsigned PART = AMOUNT + ROUND;

    logic              add_q, asked_q;
    logic [IW-1:0]     scan_q, at, at_q;
    logic [N-1:0]      used_q;                    // the RAM has it
    logic [63:0]       mem [0:N-1];
    logic [63:0]       base_q, sum;
    localparam int unsigned PLACE = 1 << $clog2(PART);   // a power of two: no multiplier, no wide shifter
    logic [N*PLACE-1:0] parts;
    logic [PART-1:0]   part_q;

    assign at  = ask ? which : scan_q;
    assign sum = (used_q[at_q] ? base_q : 64'd0) + 64'(part_q);
    always_ff @(posedge clk) begin
        if (add_q) mem[at_q] <= sum;
        else base_q <= mem[at];
    end
    always_ff @(posedge clk) begin
        add_q <= !add_q;
        if (!ask) there <= 1'b0;
        if (add_q) begin
            used_q[at_q] <= 1'b1;
            if (asked_q && ask) begin
                there <= 1'b1;
                value <= sum;
            end
        end else begin
            at_q    <= at;
            asked_q <= ask && !there;
            part_q  <= parts[PLACE*32'(at) +: PART];
            if (!ask) scan_q <= scan_q == IW'(N - 1) ? '0 : scan_q + IW'(1);
        end
        if (rst) begin
            add_q   <= 1'b0;
            there   <= 1'b0;
            asked_q <= 1'b0;
            scan_q  <= '0;
            used_q  <= '0;
        end
    end

    for (genvar i = 0; i < N; i++) begin : part
        localparam int unsigned BITS = WIDE[i] ? PART : 2 + ROUND;
        logic [BITS-1:0] sum_q;
        always_ff @(posedge clk)
            if (rst) sum_q <= '0;
            else sum_q <= (!add_q && at == IW'(i) ? '0 : sum_q) + BITS'(amounts[AMOUNT*i +: AMOUNT]);
        assign parts[PLACE*i +: PLACE] = PLACE'(sum_q);
        always_ff @(posedge clk) if (!rst) assert (WIDE[i] || amounts[AMOUNT*i+2 +: AMOUNT-2] == '0);
    end
endmodule
