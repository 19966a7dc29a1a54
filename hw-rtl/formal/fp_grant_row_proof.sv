// SPDX-License-Identifier: Apache-2.0 OR MIT
// An operation of berth_fp_grant works on the row that the one before it of the same QP has stored, and on the counts of
// receives and bytes that its neighbours had written when it began, for any QP; but that it is on counts only once it was
// started after the reset.
//
// A memory gives what was written last, and anything when the same row is written at that time, but for the counts: those are
// then as they were. What is decided about a row is free.
module fp_grant_row_proof (
    input logic clk
);
    `include "fp_grant_around.svh"
    (* hierconn *) wire [RW-1:0] \dut.m_rows.content ;
    (* hierconn *) wire [15:0]   \dut.m_parsed.content ;
    (* hierconn *) wire [15:0]   \dut.m_freed.content ;
    (* hierconn *) wire [31:0]   \dut.m_given.content ;
    (* hierconn *) wire [15:0]   \dut.m_parsed.rdata ;
    (* hierconn *) wire [15:0]   \dut.m_freed.rdata ;
    (* hierconn *) wire [31:0]   \dut.m_given.rdata ;
    (* hierconn *) wire [RW-1:0] \dut.m_rows.rdata ;
    (* hierconn *) wire          \dut.same_q ;
    (* hierconn *) wire [QPS-1:0] \dut.started_q ;
    wire [RW-1:0] as_read = {stored_q[RW-1] && \dut.started_q [the_q], stored_q[RW-2:0]};   // `on` is the first field
    logic [15:0] parsed_n_q, freed_n_q, parsed_then_q, freed_then_q;       // counts: now; when the operation began
    logic [31:0] given_n_q, given_then_q;
    logic        written_q, stores_q;           // since the beginning; as it is read
    wire         stores = does && \dut.we ;
    always_ff @(posedge clk) begin
        written_q <= !rst && (written_q || stores);
        if (parsed_we && parsed_q == the_q) parsed_n_q <= parsed;
        if (freed_we && freed_q == the_q) freed_n_q <= freed.recvs;
        if (given_we && freed_q == the_q) given_n_q <= given.bytes;
        if (reads) begin
            parsed_then_q <= parsed_n_q;
            freed_then_q  <= freed_n_q;
            given_then_q  <= given_n_q;
            stores_q      <= stores;
        end
    end
    always_comb begin
        assume (!reads || stores || \dut.m_rows.content == stored_q);
        assume (!reads || (\dut.m_parsed.content == parsed_n_q && \dut.m_freed.content == freed_n_q
                           && \dut.m_given.content == given_n_q));
    end
    always_comb if (!rst && written_q) begin
        assert (!looks || \dut.row == as_read);
        assert (!works || \dut.r_q == as_read);
        assert (!works || (\dut.n_parsed_q == parsed_then_q && \dut.n_freed_q == freed_then_q && \dut.n_given_q == given_then_q));
        // For the proof.
        assert (!looks || (\dut.m_parsed.rdata == parsed_then_q && \dut.m_freed.rdata == freed_then_q
                           && \dut.m_given.rdata == given_then_q));
        assert (!looks || stores_q || \dut.m_rows.rdata == stored_q);
        assert (!looks || !stores_q || (\dut.same_q && (\dut.r_q == stored_q || \dut.r_q == as_read)));
    end
endmodule
