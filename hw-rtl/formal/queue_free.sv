// SPDX-License-Identifier: Apache-2.0 OR MIT
// Queues, ready bits, pools and row memories that may give anything at any time: in place of the real ones where a proof does
// not rest on what they hold, or says itself what it takes of them (they have proofs of their own).
module berth_lutfifo #(
    parameter WIDTH = 1,
    parameter DEPTH = 2
) (
    input  logic             clk, rst, wr_valid, rd_ready,
    input  logic [WIDTH-1:0] wr_data,
    output logic             wr_ready, rd_valid,
    output logic [WIDTH-1:0] rd_data
);
    (* anyseq *) logic             room, there;
    (* anyseq *) logic [WIDTH-1:0] data;
    assign wr_ready = room;
    assign rd_valid = there;
    assign rd_data  = data;
endmodule

module berth_fp_ready #(
    parameter QPS = 64,
    parameter GROUP = 32,
    parameter SETS = 1
) (
    input  logic                        clk, rst, pop,
    input  logic [SETS-1:0]             set,
    input  logic [SETS*$clog2(QPS)-1:0] set_q,
    output logic                        valid, busy,
    output logic [$clog2(QPS)-1:0]      q
);
    (* anyseq *) logic                   there, works;
    (* anyseq *) logic [$clog2(QPS)-1:0] which;
    assign valid = there;
    assign busy  = works;
    assign q     = which;
endmodule

module berth_fifo #(
    parameter WIDTH = 1,
    parameter DEPTH = 2,
    parameter PASS = 0
) (
    input  logic             clk, rst, wr_valid, rd_ready,
    input  logic [WIDTH-1:0] wr_data,
    output logic             wr_ready, rd_valid,
    output logic [WIDTH-1:0] rd_data
);
    berth_lutfifo #(.WIDTH(WIDTH), .DEPTH(DEPTH)) any (.*);
endmodule

module berth_fp_pool #(
    parameter N = 64
) (
    input  logic                 clk, rst, take, give,
    input  logic [$clog2(N)-1:0] give_number,
    output logic                 valid,
    output logic [$clog2(N)-1:0] number
);
    (* anyseq *) logic                 there;
    (* anyseq *) logic [$clog2(N)-1:0] which;
    assign valid  = there;
    assign number = which;
endmodule

// Row memory with any content.
module berth_fp_mem #(
    parameter WIDTH = 32,
    parameter DEPTH = 64,
    parameter OWN = 0
) (
    input  logic                     clk, we, re,
    input  logic [$clog2(DEPTH)-1:0] waddr, raddr,
    input  logic [WIDTH-1:0]         wdata,
    output logic [WIDTH-1:0]         rdata
);
    (* anyseq *) logic [WIDTH-1:0] content;
    always_ff @(posedge clk) if (re) rdata <= content;
endmodule
