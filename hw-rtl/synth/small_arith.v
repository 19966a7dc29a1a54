// SPDX-License-Identifier: Apache-2.0 OR MIT
// For Yosys' techmap, before it makes carry chains: what takes fewer look-up tables as logic. These are comparisons with a
// constant, those of a few bits, and sums of a few bits with a constant.
(* techmap_celltype = "$lt $le $gt $ge" *)
module berth_small_compare (A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 0;
    parameter B_WIDTH = 0;
    parameter Y_WIDTH = 0;
    parameter _TECHMAP_CELLTYPE_ = "";
    parameter _TECHMAP_CONSTMSK_A_ = 0;
    parameter _TECHMAP_CONSTMSK_B_ = 0;
    input  [A_WIDTH-1:0] A;
    input  [B_WIDTH-1:0] B;
    output [Y_WIDTH-1:0] Y;
    localparam W = A_WIDTH > B_WIDTH ? A_WIDTH : B_WIDTH;
    localparam SWAP = _TECHMAP_CELLTYPE_ == "$gt" || _TECHMAP_CELLTYPE_ == "$le";
    wire _TECHMAP_FAIL_ = (A_SIGNED && B_SIGNED) || Y_WIDTH != 1
                          || (W > 16 && !(&_TECHMAP_CONSTMSK_A_) && !(&_TECHMAP_CONSTMSK_B_));
    wire [W-1:0] a = A, b = B;
    wire [W-1:0] l = SWAP ? b : a, r = SWAP ? a : b;
    wire [W:0]   less;   // of the bits below
    assign less = {(~l & r) | (~(l ^ r) & less[W-1:0]), 1'b0};
    assign Y = less[W] ^ (_TECHMAP_CELLTYPE_ == "$ge" || _TECHMAP_CELLTYPE_ == "$le");
endmodule

(* techmap_celltype = "$add $sub" *)
module berth_small_sum (A, B, Y);
    parameter A_SIGNED = 0;
    parameter B_SIGNED = 0;
    parameter A_WIDTH = 0;
    parameter B_WIDTH = 0;
    parameter Y_WIDTH = 0;
    parameter _TECHMAP_CELLTYPE_ = "";
    parameter _TECHMAP_CONSTMSK_A_ = 0;
    parameter _TECHMAP_CONSTMSK_B_ = 0;
    input  [A_WIDTH-1:0] A;
    input  [B_WIDTH-1:0] B;
    output [Y_WIDTH-1:0] Y;
    localparam W = Y_WIDTH;
    localparam SUB = _TECHMAP_CELLTYPE_ == "$sub";
    localparam CONSTANT = &_TECHMAP_CONSTMSK_A_ || &_TECHMAP_CONSTMSK_B_;
    localparam TWO_BITS = A_WIDTH <= 2 || B_WIDTH <= 2;
    wire _TECHMAP_FAIL_ = (A_SIGNED && B_SIGNED) || W > (TWO_BITS ? 10 : CONSTANT ? 8 : 4);
    wire [W-1:0] a = A, b = SUB ? ~{{W{1'b0}}, B} : B;
    wire [W:0]   carry;
    assign carry = {(a & b) | ((a ^ b) & carry[W-1:0]), SUB ? 1'b1 : 1'b0};
    assign Y = a ^ b ^ carry[W-1:0];
endmodule
