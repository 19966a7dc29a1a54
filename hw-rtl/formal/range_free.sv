// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ranges that ask for anything at any time.
module berth_xlt_range #(
    parameter TELL_ALL = 0,
    parameter USER = 0
) (
    input  logic            clk, rst, go_valid, block, tell, pg_ready, an_valid, an_last, an_counted, an_zero,
                            ev_ready,
    input  berth_card_pkg::range_ask_t go,
    output logic            go_ready, pg_valid, out_valid, out_hit, ev_valid, busy,
    output berth_card_pkg::page_use_t pg,
    output logic [15:0]     out_tag,
    output logic [7*32-1:0] ev_words
);
    (* anyseq *) logic [309:0] any;
    assign {go_ready, pg_valid, out_valid, out_hit, ev_valid, busy, pg, out_tag, ev_words} = any;
endmodule
