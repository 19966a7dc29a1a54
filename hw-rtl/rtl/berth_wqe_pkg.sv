// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generated from driver/abi by `cargo xtask gen`; do not edit.
// Queue elements as they lie in memory, the first byte in the lowest bits.

package berth_wqe_pkg;

    // Scatter/gather element: one range of the process's virtual addresses
    typedef struct packed {
        logic [31:0] reserved; // Must be zero
        logic [31:0] len; // Length in bytes; 0 is legal and skipped
        logic [63:0] va; // Virtual address of the first byte
    } sge_t;

    // A send or receive queue element
    typedef struct packed {
        logic [63:0] wr_id; // The caller's own, returned in the completion
        logic [31:0] length; // Sum of the SGE lengths; must match
        logic [15:0] num_sge; // SGEs in use, 0 to `MAX_SGE`; one less with `SEND_IMMEDIATE`, `SEND_INVALIDATE`, `OP_WRITE` or `OP_READ`, and two less with `OP_CMP_SWAP` or `OP_FETCH_ADD`
        logic [7:0] flags; // `SEND_*`; 0 for receives
        logic [7:0] opcode; // `OP_*`, fitting the queue
    } wqe_header_t;

    // A completion queue element
    typedef struct packed {
        logic [31:0] phase; // Bit 31: phase, set by the completion writer
        logic [31:0] credit; // Credit number that the piece used (receives); of sends, how many of the queue are complete with this one, modulo 2^16: those before it that are not signalled have no entry of their own
        logic [31:0] remaining; // With `CQE_IMMEDIATE`
        logic [15:0] flags; // `CQE_*` flags
        logic [7:0] opcode; // Opcode of the element that completes
        logic [7:0] status; // `WC_*`
        logic [31:0] qpn; // QPN of the queue pair
        logic [31:0] byte_len; // Bytes moved: of a receive, the bytes in its buffer (less than its size is legal, CR-2)
        logic [63:0] wr_id; // `Wqe::wr_id` of the element that completes
    } cqe_t;

    // An element of a raw queue
    typedef struct packed {
        sge_t sge_2;
        sge_t sge_1;
        sge_t sge_0;
        logic [63:0] wr_id; // The driver's own, returned in the completion
        logic [31:0] length; // Sum of their lengths; must match
        logic [15:0] num_sge; // Ranges in use, 1 to `RAW_SGES`
        logic [7:0] flags; // Of a send 0 or `SEND_UNSIGNALLED`: there is no completion if it succeeds
        logic [7:0] opcode; // `OP_SEND` or `OP_RECV`, fitting the ring
    } raw_wqe_t;

endpackage
