// SPDX-License-Identifier: Apache-2.0 OR MIT
// berth_wr_arb passes whole packets on, beat by beat and each once, and keeps to the port's
// rules while the host lets it wait. Each client's beats carry its number and a count.
module wr_arb_proof #(
    parameter N = 2
) (
    input logic         clk,
    input logic         rst_in,
    input logic [N-1:0] allow,
    input logic [N-1:0] offer,
    input logic [N-1:0] ends,
    input logic         hwr_ready
);
    localparam DATA_W = 8;
    logic started_q = 1'b0;
    always_ff @(posedge clk) started_q <= 1'b1;
    wire rst = !started_q || rst_in;

    logic [N-1:0]        s_valid, s_ready, s_last;
    logic [N*64-1:0]     s_addr;
    logic [N*13-1:0]     s_len;
    logic [N*DATA_W-1:0] s_data;
    logic                hwr_valid, busy;
    berth_card_pkg::host_write_t hwr;
    logic [DATA_W-1:0]   hwr_data;

    berth_wr_arb #(.DATA_W(DATA_W), .N(N)) dut (.*);

    // Clients: a beat stays until it is taken. Data is {count, client}.
    logic [N-1:0] show_q, last_q;
    logic [5:0]   count_q [0:N-1];
    for (genvar i = 0; i < N; i++) begin : client
        assign s_valid[i]                 = show_q[i];
        assign s_last[i]                  = last_q[i];
        assign s_addr[64*i +: 64]         = 64'(i * 64);
        assign s_len[13*i +: 13]          = 13'd1;
        assign s_data[DATA_W*i +: DATA_W] = {count_q[i], 2'(i)};
        always_ff @(posedge clk) begin
            if (!show_q[i] || s_ready[i]) begin
                show_q[i] <= offer[i];
                last_q[i] <= ends[i];
            end
            if (show_q[i] && s_ready[i]) count_q[i] <= count_q[i] + 6'd1;
            if (rst) begin
                show_q[i]  <= 1'b0;
                count_q[i] <= '0;
            end
        end
    end

    // The host: which client's packet is under way, and which beat of each comes next.
    logic       open_q;
    logic [1:0] who_q;
    logic [5:0] next_q [0:N-1];
    logic [1:0] who;
    assign who = hwr_data[1:0];
    always_ff @(posedge clk) begin
        if (hwr_valid && hwr_ready) begin
            open_q <= !hwr.last;
            who_q  <= who;
            for (int i = 0; i < N; i++)
                if (who == 2'(i)) next_q[i] <= next_q[i] + 6'd1;
        end
        if (rst) begin
            open_q <= 1'b0;
            for (int i = 0; i < N; i++) next_q[i] <= '0;
        end
    end

    logic beat_q;
    logic [DATA_W:0] shown_q;
    always_ff @(posedge clk) begin
        beat_q  <= !rst && hwr_valid && !hwr_ready;
        shown_q <= {hwr.last, hwr_data};
    end

    always_ff @(posedge clk) if (!rst) begin
        if (hwr_valid) begin
            assert (hwr.first == !open_q);
            assert (!open_q || who == who_q);
            assert (hwr.addr == {56'd0, who, 6'd0});
            for (int i = 0; i < N; i++)
                if (who == 2'(i)) assert (hwr_data[7:2] == next_q[i]);
        end
        // What is shown stays until it is taken.
        if (beat_q) assert (hwr_valid && shown_q == {hwr.last, hwr_data});
        // A packet that has begun is not held up by another client, nor by `allow`.
        if (open_q) assert (hwr_valid == s_valid[who_q[0]]);
        // Nothing begins that may not.
        if (hwr_valid && !open_q && !beat_q) assert (allow[who[0]]);
        assert ($countones(s_ready) <= 1);
    end
endmodule
