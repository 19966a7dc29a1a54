// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generated from driver/abi by `cargo xtask gen`; do not edit.
// Rows of the fast path, by which firmware and RTL work on a QP together.

/* verilator lint_off UNUSEDPARAM */
package berth_row_pkg;

    // Rows of the fast path: The half that sends
    localparam logic [5:0] SEND_TEMPLATE            = 6'h00; // Headers of each packet, see `berth_fp_frame_out`
    localparam logic [5:0] SEND_BASE                = 6'h10; // Address of the send queue (a multiple of 4 KiB), low half, high half
    typedef struct packed {
        logic [7:0] zero_31_24;
        logic [7:0] cqn; // Number of its completion queue
        logic [7:0] asid; // Address space of the QP
        logic [3:0] zero_7_4;
        logic [3:0] log2_depth; // log2 of its elements, at least 2
    } send_queue_t;
    localparam logic [5:0] SEND_QUEUE               = 6'h12; // The send queue
    typedef struct packed {
        logic [0:0] zero_31_31;
        logic [1:0] carrier; // How credit lists go (CR-12): `CARRIER_*`
        logic [0:0] foreign; // The peer knows no credit lists: its credit counts hold what needs a receive
        logic [7:0] reads; // RDMA READ requests that wait for answers at most, as the peer takes them; 0: such an element is malformed
        logic [3:0] reorder; // Packets that may come out of order before one that is missing counts as lost
        logic [7:0] window; // Packets under way at most, up to 128
        logic [0:0] remote; // The peer takes RDMA WRITE; else such an element is malformed
        logic [0:0] loopback; // The peer is on the same card
        logic [0:0] selective; // Lost packets are sent again one by one (selective repeat), else all from the first one (go-back-N)
        logic [0:0] message; // Message mode: a send fills one receive (CR-17)
        logic [3:0] log2_mtu; // log2 of the path MTU in bytes
    } send_mode_t;
    localparam logic [5:0] SEND_MODE                = 6'h13; // How the QP sends
    localparam logic [5:0] SEND_TIMEOUT             = 6'h14; // Acknowledgement time-out in units of `ROW_CLOCK`; 0: none, and no probes
    typedef struct packed {
        logic [17:0] zero_31_14;
        logic [5:0] ahead; // Whole blocks ahead of what has left, at most, as a number of bytes
        logic [2:0] zero_7_5;
        logic [4:0] log2_block; // log2 of the bytes of a block, 12 to 20
    } send_blocks_t;
    localparam logic [5:0] SEND_BLOCKS              = 6'h15; // Memory that is asked for
    localparam logic [5:0] SEND_PSN                 = 6'h16; // First PSN
    localparam logic [5:0] SEND_QKEY                = 6'h17; // Q_Key of credit lists that go
    localparam logic [5:0] SEND_RANGE               = 6'h18; // Memory for `CMD_REVOKE`, the same for all rows: address of its first byte, low half first; address behind its last byte
    typedef struct packed {
        logic [23:0] argument; // Of `CMD_END` the `WC_*`, of `CMD_GIVE_UP` the number of credits
        logic [7:0] opcode; // `CMD_*`
    } send_command_t;
    localparam logic [5:0] SEND_COMMAND             = 6'h20; // Written: a command
    localparam logic [5:0] SEND_UNA                 = 6'h21; // Read: oldest PSN that is not acknowledged
    localparam logic [5:0] SEND_NEXT                = 6'h22; // Read: next PSN
    typedef struct packed {
        logic [0:0] busy; // A frame is under way
        logic [0:0] queued; // An element is being fetched, checked or completed; 0 after `EVENT_SEND_QUEUE` and `EVENT_SEND_INDEX`
        logic [0:0] revoking; // `CMD_REVOKE` is under way
        logic [0:0] starved; // Memory is asked for and none is held
        logic [11:0] zero_27_16;
        logic [15:0] holds; // Memory is asked for or held (bit 6), blocks (bits 5:0); 0: none
    } send_held_t;
    localparam logic [5:0] SEND_HELD                = 6'h23; // Read: what the QP holds
    typedef struct packed {
        logic [15:0] unacked; // Pieces that are not acknowledged
        logic [15:0] credits; // Credits that are not used
    } send_counts_t;
    localparam logic [5:0] SEND_COUNTS              = 6'h24; // Read: what is open
    localparam logic [5:0] SEND_KEPT                = 6'h25; // Read: number of the first credit that the last `CMD_GIVE_UP` has given up
    localparam logic [5:0] SEND_ROUND_TRIP          = 6'h26; // Read: round trip as it is measured, in units of `ROW_CLOCK`; 0: not yet
    localparam logic [5:0] SEND_LIST_FIRST          = 6'h28; // A credit list from the core, judged like one that came in a frame: number of its first credit
    localparam logic [5:0] SEND_LIST_BEGIN          = 6'h29; // Its length; it begins
    localparam logic [5:0] SEND_LIST_SIZE           = 6'h2a; // Each of its sizes
    typedef struct packed {
        logic [23:0] zero_31_8;
        logic [0:0] waits; // It waits for `CMD_BOUND`; else these words say nothing
        logic [0:0] zero_6_6;
        logic [0:0] one_shot; // One operation only (QP-12)
        logic [1:0] zero_4_3;
        logic [2:0] rights; // `RIGHT_*`
    } send_bind_t;
    localparam logic [5:0] SEND_BIND                = 6'h2c; // Read, of a BIND (QP-4): what it gives
    localparam logic [5:0] SEND_BIND_KEY            = 6'h2d; // Read: its key
    localparam logic [5:0] SEND_BIND_RANGE          = 6'h2e; // Read: address of the first byte that is bound, low half, high half; how many there are, likewise
    typedef struct packed {
        logic [15:0] tag; // `LAYOUT_TAG`, else the card has no rows that firmware knows
        logic [15:0] number; // `LAYOUT_NUMBER`
    } send_layout_t;
    localparam logic [5:0] SEND_LAYOUT              = 6'h3f; // Read: which layout rows have
    localparam logic [7:0] SEND_CMD_START           = 8'h01; // Initialise: no engine begins any work before all have the QP
    localparam logic [7:0] SEND_CMD_AGAIN           = 8'h02; // Send one packet that is not acknowledged again, as a probe; all of them without selective repeat
    localparam logic [7:0] SEND_CMD_HALT            = 8'h03; // Halt
    localparam logic [7:0] SEND_CMD_END             = 8'h04; // End with the error in `argument`: what is posted, and what will be, completes with it
    localparam logic [7:0] SEND_CMD_GO_ON           = 8'h05; // Go on after a halt
    localparam logic [7:0] SEND_CMD_DRAIN           = 8'h06; // Give back memory that is held, after `CMD_END`, when no frame is under way; again until nothing is held
    localparam logic [7:0] SEND_CMD_GIVE_UP         = 8'h07; // Give up the newest of the credits that are not used, as many as `argument` says
    localparam logic [7:0] SEND_CMD_REVOKE          = 8'h08; // Let go of memory in `RANGE`, and ask for it anew; over when `revoking` is 0
    localparam logic [7:0] SEND_CMD_BOUND           = 8'h09; // A BIND is done: what is behind it goes on

    // Rows of the fast path: The half that receives
    typedef struct packed {
        logic [0:0] zero_31_31;
        logic [0:0] writes_in_order; // A packet of a WRITE is taken in order only, also under selective repeat
        logic [5:0] reads; // RDMA READs and atomics that the peer may have under way, at most `MAX_READS`; 0: they go to the core
        logic [7:0] ack_every; // Packets until an ACK without being asked
        logic [2:0] denies; // `RIGHT_*` that no key gives the peer here
        logic [4:0] rnr_timer; // RNR timer, as InfiniBand codes it
        logic [0:0] remote; // The peer may write to memory that it has a key for
        logic [0:0] message; // Message mode: a send fills one receive (CR-17)
        logic [0:0] foreign; // The peer knows no credit lists
        logic [0:0] selective; // Selective repeat, else go-back-N
        logic [3:0] log2_mtu; // log2 of the path MTU in bytes
    } recv_mode_t;
    localparam logic [5:0] RECV_MODE                = 6'h00; // How the QP receives
    localparam logic [5:0] RECV_IP                  = 6'h01; // The peer's IPv4 address
    localparam logic [5:0] RECV_MAC                 = 6'h02; // The peer's MAC address: last four bytes, first two
    typedef struct packed {
        logic [15:0] domain; // Protection domain
        logic [7:0] cqn; // Number of the completion queue
        logic [7:0] asid; // Address space of the QP
    } recv_space_t;
    localparam logic [5:0] RECV_SPACE               = 6'h04; // Where completions and payload go
    localparam logic [5:0] RECV_EPOCH               = 6'h05; // Epoch of credit lists that come
    localparam logic [5:0] RECV_PEER_EPOCH          = 6'h06; // Epoch of credit lists that go
    localparam logic [5:0] RECV_QKEY                = 6'h07; // Q_Key of credit lists that come
    localparam logic [5:0] RECV_PSN                 = 6'h08; // First PSN
    localparam logic [5:0] RECV_BASE                = 6'h09; // Address of the receive queue (a multiple of 4 KiB), low half, high half
    typedef struct packed {
        logic [15:0] first; // Index of the first element
        logic [11:0] zero_15_4;
        logic [3:0] log2_depth; // log2 of its elements
    } recv_queue_t;
    localparam logic [5:0] RECV_QUEUE               = 6'h0b; // The receive queue
    typedef struct packed {
        logic [0:0] told; // The use of credits is told with each list, by `EVENT_USE`
        logic [6:0] few; // A later list is held until more than this many new credits exist, unless the sender has no more than this many left
        logic [7:0] index; // What `trigger` says
        logic [0:0] timed; // A list does not go before the time in `FIRST`, unless the sender has no credits
        logic [3:0] zero_14_11;
        logic [2:0] trigger; // Which buffer's data triggers the next list: `TRIGGER_*`
        logic [0:0] zero_7_7;
        logic [6:0] longest; // Credits of a list at most
    } recv_lists_t;
    localparam logic [5:0] RECV_LISTS               = 6'h0c; // When credit lists go
    localparam logic [5:0] RECV_AGAIN               = 6'h0d; // Time after which a list without a proof is told again, in units of `ROW_CLOCK`, 16 bits
    localparam logic [5:0] RECV_PI                  = 6'h0e; // Producer index of the receive queue at the start, 16 bits
    localparam logic [5:0] RECV_FIRST               = 6'h0f; // Number of the first credit that `CMD_VOID` makes void; for `CMD_LISTS` the time that a list waits for, modulo 2^32, as `HEARD` counts
    localparam logic [5:0] RECV_OWN_IP              = 6'h10; // The card's own IPv4 address
    localparam logic [5:0] RECV_OWN_MAC             = 6'h11; // Its own MAC address: last four bytes, first two
    typedef struct packed {
        logic [15:0] most; // What the wire carries in round trip and service is added to `bound`, but at most this, in units of 4 KiB
        logic [15:0] bound; // No further receive is asked for while so much is granted or asked for, but for the oldest one, in units of 4 KiB; 0: no bound
    } recv_pinned_t;
    localparam logic [5:0] RECV_PINNED              = 6'h13; // Bound of memory that receives hold
    localparam logic [5:0] RECV_RANGE               = 6'h14; // Memory for `CMD_REVOKE`: address of its first byte, low half first; address behind its last byte
    localparam logic [5:0] RECV_KEY                 = 6'h18; // A key's 32 bits
    typedef struct packed {
        logic [15:0] domain; // Protection domain
        logic [7:0] asid; // Address space that its range lies in
        logic [0:0] live; // There is such a key
        logic [0:0] bound; // It is bound to a range
        logic [0:0] one_shot; // It serves one operation (QP-12)
        logic [1:0] zero_4_3;
        logic [2:0] rights; // `RIGHT_*`
    } recv_key_scope_t;
    localparam logic [5:0] RECV_KEY_SCOPE           = 6'h19; // Whose it is, and what it gives
    localparam logic [5:0] RECV_KEY_RANGE           = 6'h1a; // Its range: address of the first byte, low half first; of the last byte
    localparam logic [5:0] RECV_KEY_KEPT            = 6'h1e; // What firmware keeps of it; RTL does not look at it
    typedef struct packed {
        logic [0:0] busy; // Payloads are being written
        logic [0:0] queued; // Elements are being fetched, checked or completed
        logic [0:0] revoking; // Memory that is gone is still held
        logic [0:0] starved; // Memory is asked for and no credit is out
        logic [11:0] zero_27_16;
        logic [15:0] holds; // Receives that hold memory or ask for it
    } recv_held_t;
    localparam logic [5:0] RECV_HELD                = 6'h20; // Read: what the QP holds
    localparam logic [5:0] RECV_COMPLETED           = 6'h21; // Read: receives that are completed
    localparam logic [5:0] RECV_ANNOUNCED           = 6'h22; // Read: credits that are announced
    localparam logic [5:0] RECV_LANDED              = 6'h23; // Read: credits whose data has landed
    typedef struct packed {
        logic [15:0] posted; // Receives that are posted and not complete
        logic [15:0] granted; // Receives that are granted and not complete
    } recv_counts_t;
    localparam logic [5:0] RECV_COUNTS              = 6'h24; // Read: what is open
    localparam logic [5:0] RECV_HEARD               = 6'h25; // Read: when a good frame last came, in units of `ROW_CLOCK`
    typedef struct packed {
        logic [30:0] zero_31_1;
        logic [0:0] waits; // One waits for `CMD_INVALIDATED`
    } recv_invalidate_t;
    localparam logic [5:0] RECV_INVALIDATE          = 6'h26; // Read: whether a SEND with invalidate waits (QP-4)
    localparam logic [5:0] RECV_INVALIDATE_KEY      = 6'h27; // Read: the key that it names, if one waits
    typedef struct packed {
        logic [23:0] zero_31_8;
        logic [0:0] known; // There is one; else these words say nothing
        logic [3:0] zero_6_3;
        logic [2:0] right; // `RIGHT_*` that it needs; 0: a SEND was to invalidate the key
    } recv_access_t;
    localparam logic [5:0] RECV_ACCESS              = 6'h28; // Read: the access of the peer for which the connection was broken, by `FAULT_ACCESS` or `FAULT_PAGE`
    localparam logic [5:0] RECV_ACCESS_KEY          = 6'h29; // Read: its key
    localparam logic [5:0] RECV_ACCESS_RANGE        = 6'h2a; // Read: address of its first byte, low half, high half; bytes
    typedef struct packed {
        logic [7:0] count; // How many, at most 255
        logic [23:0] sum; // Their sum in units of `ROW_CLOCK`, at most 2^24 - 1
    } recv_gaps_t;
    localparam logic [5:0] RECV_GAPS                = 6'h2d; // Read: how the sender used its credits when `EVENT_USE` was told last, by the proof (CR-11) of a list, and since the one before
    typedef struct packed {
        logic [0:0] led; // There is a `lead`: the list went to a sender without credits
        logic [14:0] longest; // The longest of the times of `GAPS`, in units of `ROW_CLOCK`, at most 2^15 - 1
        logic [15:0] lead; // Time from the list to its first data, in units of `ROW_CLOCK`, at most 2^16 - 1
    } recv_times_t;
    localparam logic [5:0] RECV_TIMES               = 6'h2e; // Read: more of that
    typedef struct packed {
        logic [7:0] zero_31_24;
        logic [7:0] left; // Credits that the sender had when the list went
        logic [7:0] outstanding; // Credits that it had when its first data came
        logic [4:0] zero_7_3;
        logic [0:0] covered; // All that it still had to send fitted them (CR-9)
        logic [0:0] waited; // It said before that data that it had more to send
        logic [0:0] dry; // It ran out of credits before, and had more to send
    } recv_use_t;
    localparam logic [5:0] RECV_USE                 = 6'h2f; // Read: more of that
    typedef struct packed {
        logic [23:0] argument; // Of `CMD_END` the `WC_*`, of `CMD_KEY_STORE` and `CMD_KEY_LOAD` the place in the table of keys, of `CMD_CANCEL` how many receives
        logic [7:0] opcode; // `CMD_*`
    } recv_command_t;
    localparam logic [5:0] RECV_COMMAND             = 6'h3f; // Written: a command
    localparam logic [7:0] RECV_CMD_START           = 8'h01; // Start
    localparam logic [7:0] RECV_CMD_OFF             = 8'h02; // Frames of the QP go to the core from now on
    localparam logic [7:0] RECV_CMD_ON              = 8'h03; // Frames of the QP are taken here again; `MODE` to `EPOCH` and `QKEY` are taken anew
    localparam logic [7:0] RECV_CMD_END             = 8'h04; // End: frames go to the core, no list goes, nothing is granted
    localparam logic [7:0] RECV_CMD_VOID            = 8'h05; // Credits from `FIRST` on, and those that are not announced, are void and granted anew; lists go again, with `PEER_EPOCH`
    localparam logic [7:0] RECV_CMD_HOLD            = 8'h06; // Nothing becomes a credit, and no list goes, until `CMD_VOID`
    localparam logic [7:0] RECV_CMD_REVOKE          = 8'h07; // Memory in `RANGE` is gone
    localparam logic [7:0] RECV_CMD_SQUEEZE         = 8'h08; // Memory is short
    localparam logic [7:0] RECV_CMD_REST            = 8'h09; // No receive is asked for until `CMD_SQUEEZE`: what `CMD_VOID` gives back is to be had by others
    localparam logic [7:0] RECV_CMD_KEY_STORE       = 8'h0a; // The staged key takes the place of the table that `argument` names; a one-shot key is fresh
    localparam logic [7:0] RECV_CMD_KEY_LOAD        = 8'h0b; // The key in that place is staged
    localparam logic [7:0] RECV_CMD_INVALIDATED     = 8'h0c; // The key of the SEND with invalidate that waits is dead: its receive completes, and what is behind it goes on
    localparam logic [7:0] RECV_CMD_NOT_INVALIDATED = 8'h0d; // That key is none that the peer may invalidate, which breaks the connection by `FAULT_ACCESS`
    localparam logic [7:0] RECV_CMD_CANCEL          = 8'h0e; // Of as many receives as `argument` says, modulo 2^16 and from the start on, those that are no credits complete as recalled, in their turn; those behind are granted as ever
    localparam logic [7:0] RECV_CMD_RECLAIM         = 8'h0f; // Of a peer without credit lists: receives that none of its packets has used are no credits any more, and are granted anew
    localparam logic [7:0] RECV_CMD_LISTS           = 8'h10; // `LISTS` but for `few` and `longest`, and `FIRST`, are taken anew, for lists to come
    localparam logic [7:0] RECV_CMD_CAP             = 8'h11; // What the QP may receive in a time (CR-10) is another from now on
    localparam logic [4:0] STEP_START               = 5'h00; // A QP begins
    localparam logic [4:0] STEP_END                 = 5'h01; // It has ended: no list goes, nothing is granted
    localparam logic [4:0] STEP_ASK                 = 5'h02; // Nothing changes; the engine's answer says how things are
    localparam logic [4:0] STEP_HOLD                = 5'h03; // Nothing becomes a credit, and no list goes, until `STEP_VOID`; a peer without lists may use no more, until `STEP_RECLAIM`
    localparam logic [4:0] STEP_STOP                = 5'h04; // No more memory is asked for until `STEP_VOID` or `STEP_UNPOST`
    localparam logic [4:0] STEP_VOID                = 5'h05; // Credits from a number on are void, and the peer knows
    localparam logic [4:0] STEP_UNPOST              = 5'h06; // Credits that are posted and not announced are taken back
    localparam logic [4:0] STEP_SQUEEZE             = 5'h07; // What is asked for behind the first receive that waits goes back; from now on one is asked for at a time
    localparam logic [4:0] STEP_MARK                = 5'h08; // A receive is withdrawn (VC-9)
    localparam logic [4:0] STEP_LET_GO              = 5'h09; // A receive's memory is let go of
    localparam logic [4:0] STEP_QUIET               = 5'h0a; // No command: `berth_fp_grant` goes on with its own work
    localparam logic [4:0] STEP_REST                = 5'h0b; // No receive is asked for until `STEP_SQUEEZE`
    localparam logic [4:0] STEP_INVALIDATED         = 5'h0c; // The key of a SEND with invalidate is dead
    localparam logic [4:0] STEP_NOT_INVALIDATED     = 5'h0d; // It is none that the peer may invalidate
    localparam logic [4:0] STEP_CANCEL              = 5'h0e; // Receives before a number that are no credits complete as recalled
    localparam logic [4:0] STEP_RECLAIM             = 5'h0f; // Credits that have not been used are void; the peer never knew of them
    localparam logic [4:0] STEP_LISTS               = 5'h10; // When lists go is another
    localparam logic [4:0] STEP_CAP                 = 5'h11; // The maximum bandwidth is another
    localparam logic [2:0] RIGHT_READ               = 3'h1; // READ
    localparam logic [2:0] RIGHT_WRITE              = 3'h2; // WRITE
    localparam logic [2:0] RIGHT_ATOMIC             = 3'h4; // Atomics
    localparam logic [2:0] KEY_OK                   = 3'h0; // The access may be done
    localparam logic [2:0] KEY_UNKNOWN              = 3'h1; // There is no such key
    localparam logic [2:0] KEY_DOMAIN               = 3'h2; // It is another protection domain's
    localparam logic [2:0] KEY_UNBOUND              = 3'h3; // It is not bound
    localparam logic [2:0] KEY_OUTSIDE              = 3'h4; // Not all bytes lie in its range
    localparam logic [2:0] KEY_RIGHT                = 3'h5; // It does not give this right
    localparam logic [2:0] KEY_USED                 = 3'h6; // It is a one-shot key, and used up
    localparam logic [2:0] KEY_FAULT                = 3'h7; // Its memory cannot be made resident (QP-13)
    localparam logic [2:0] TRIGGER_FIRST            = 3'h0; // The first one's
    localparam logic [2:0] TRIGGER_LAST             = 3'h1; // The last one's
    localparam logic [2:0] TRIGGER_BETWEEN          = 3'h2; // That with the index
    localparam logic [2:0] TRIGGER_UNBOUNDED        = 3'h3; // That with the index; the first one's while memory that is pinned is bounded, as for the following ones
    localparam logic [2:0] TRIGGER_QUARTERS         = 3'h4; // That which lies so many quarters into the list, 0 to 3
    localparam logic [2:0] TRIGGER_BEHIND           = 3'h5; // That which so many others follow
    localparam logic [2:0] CARRIER_CONTROL          = 3'h0; // As datagrams from control QP to control QP
    localparam logic [2:0] CARRIER_REVERSE          = 3'h1; // As datagrams in the reverse direction of the connection: from its QP to the peer's
    localparam logic [2:0] CARRIER_WRITE            = 3'h2; // As RDMA WRITEs to the window for lists in the peer's card

    // Between engines
    localparam logic [1:0] CHANGE_INSTALL           = 2'h0; // A page is installed
    localparam logic [1:0] CHANGE_EVICT             = 2'h1; // It is dropped if it is not in use
    localparam logic [1:0] CHANGE_REVOKE            = 2'h2; // It is dropped
    localparam logic [1:0] ATOMIC_NONE              = 2'h0; // It is none
    localparam logic [1:0] ATOMIC_SWAP              = 2'h1; // Compare and swap
    localparam logic [1:0] ATOMIC_ADD               = 2'h2; // Fetch and add
    localparam logic [1:0] ACCESS_WRITE             = 2'h0; // It writes
    localparam logic [1:0] ACCESS_READ              = 2'h1; // It reads
    localparam logic [1:0] ACCESS_ATOMIC            = 2'h2; // An atomic
    localparam logic [1:0] ACCESS_INVALIDATE        = 2'h3; // A SEND was to end the key
    localparam logic [1:0] RIGHT_BIT_READ           = 2'h0; // `RIGHT_READ`
    localparam logic [1:0] RIGHT_BIT_WRITE          = 2'h1; // `RIGHT_WRITE`
    localparam logic [1:0] RIGHT_BIT_ATOMIC         = 2'h2; // `RIGHT_ATOMIC`
    localparam logic [1:0] ASIDE_LOCAL              = 2'h0; // It completes, and was never a credit
    localparam logic [1:0] ASIDE_FLUSH              = 2'h1; // It completes, was a credit and gets no data any more
    localparam logic [1:0] ASIDE_RELEASE            = 2'h2; // It is taken back or withdrawn: only its pages go back
    localparam logic [1:0] ASIDE_PART               = 2'h3; // Likewise, of one that was never granted
    localparam logic [1:0] PIECE_DATA               = 2'h0; // It has data
    localparam logic [1:0] PIECE_EMPTY              = 2'h1; // An element without data
    localparam logic [1:0] PIECE_TOO_LONG           = 2'h2; // One that is longer than its credit
    localparam logic [1:0] PIECE_BAD                = 2'h3; // One that is malformed
    localparam logic [7:0] BLOCK_ASKED              = 8'h00; // It is asked for
    localparam logic [7:0] BLOCK_BACK               = 8'h01; // It has been given back
    localparam logic [7:0] BLOCK_AGAIN              = 8'h02; // Likewise, and is to be asked for again
    localparam logic [1:0] ACK_TIMEOUT              = 2'h0; // Nothing was acknowledged in time
    localparam logic [1:0] ACK_NAK                  = 2'h1; // A NAK
    localparam logic [1:0] ACK_RNR                  = 2'h2; // An RNR NAK

    // Events of the fast path
    typedef struct packed {
        logic [7:0] code; // `EVENT_*`
        logic [15:0] qpn; // QP
        logic [39:0] argument; // By the code, in its lowest 32 bits; without fields it says nothing
    } fast_event_t;
    localparam logic [7:0] EVENT_TIMEOUT            = 8'h01; // A packet was not acknowledged in time
    typedef struct packed {
        logic [7:0] syndrome; // Its syndrome, as InfiniBand codes it
        logic [23:0] psn; // Its PSN
    } event_nak_t;
    localparam logic [7:0] EVENT_NAK                = 8'h02; // A NAK that is none of a gap; the QP has halted
    localparam logic [7:0] EVENT_RNR                = 8'h03; // An RNR NAK; the QP has halted
    typedef struct packed {
        logic [23:0] zero_31_8;
        logic [7:0] answer; // `LIST_*`
    } event_list_t;
    localparam logic [7:0] EVENT_LIST               = 8'h05; // A credit list breaks the protocol
    typedef struct packed {
        logic [23:0] zero_31_8;
        logic [7:0] status; // `WC_*`
    } event_bad_wqe_t;
    localparam logic [7:0] EVENT_BAD_WQE            = 8'h06; // A send is malformed
    typedef struct packed {
        logic [22:0] zero_31_9;
        logic [0:0] again; // It is that of a packet that was sent before and is lost
        logic [7:0] status; // The host's, `PAGE_*`
    } event_no_memory_t;
    localparam logic [7:0] EVENT_NO_MEMORY          = 8'h07; // Memory of a send cannot be had
    localparam logic [7:0] EVENT_SEND_QUEUE         = 8'h08; // The send queue cannot be read; nothing more is fetched
    localparam logic [7:0] EVENT_SEND_INDEX         = 8'h09; // A doorbell of the send queue names an element that cannot be; nothing more is fetched
    localparam logic [7:0] EVENT_BIND               = 8'h0a; // A BIND has its turn (QP-4): `send::BIND` and what follows says which
    typedef struct packed {
        logic [31:0] fault; // `FAULT_*`
    } event_broken_t;
    localparam logic [7:0] EVENT_BROKEN             = 8'h40; // Data breaks the connection
    localparam logic [7:0] EVENT_RECEIVE_QUEUE      = 8'h42; // The receive queue cannot be read; nothing more is fetched
    typedef struct packed {
        logic [15:0] zero_31_16;
        logic [15:0] index; // The index that the doorbell names
    } event_receive_index_t;
    localparam logic [7:0] EVENT_RECEIVE_INDEX      = 8'h43; // A doorbell of the receive queue names an element that cannot be, and is not taken
    typedef struct packed {
        logic [7:0] status; // The host's, `PAGE_*`
        logic [23:0] psn; // PSN of the first packet of an operation that waits
    } event_target_t;
    localparam logic [7:0] EVENT_TARGET             = 8'h44; // Memory that the peer was told to wait for (PC-4) can be had now, or it is known that it never can: the peer is to try again
    localparam logic [7:0] EVENT_INVALIDATE         = 8'h45; // A SEND with invalidate has its turn (QP-4): it and what is behind it wait for `CMD_INVALIDATED`
    localparam logic [7:0] EVENT_USE                = 8'h46; // The proof of a list has come: `recv::GAPS` to `recv::USE` say how the sender uses its credits
    localparam logic [3:0] FAULT_WRITE              = 4'h0; // Bytes could not be written, or read for an answer, or were to go to a receive that is withdrawn
    localparam logic [3:0] FAULT_OUT_OF_ORDER       = 4'h1; // Out of order, and not taken
    localparam logic [3:0] FAULT_OUT_OF_WINDOW      = 4'h2; // Beyond the window
    localparam logic [3:0] FAULT_NOT_READY          = 4'h3; // No receive is there for a peer that knows no credit lists
    localparam logic [3:0] FAULT_NO_CREDIT          = 4'h4; // Without a credit, or against one that is withdrawn
    localparam logic [3:0] FAULT_TOO_LONG           = 4'h5; // Longer than its credit
    localparam logic [3:0] FAULT_INVALID            = 4'h6; // Against the protocol
    localparam logic [3:0] FAULT_BROKEN             = 4'h7; // The connection was broken before, or is not there
    localparam logic [3:0] FAULT_ACCESS             = 4'h8; // Key, range or right do not match (QP-11)
    localparam logic [3:0] FAULT_NOT_RESIDENT       = 4'h9; // The memory is not resident, and asked for (PC-4)
    localparam logic [3:0] FAULT_PAGE               = 4'ha; // The memory cannot be made resident (QP-13)
    localparam logic [15:0] LAYOUT_TAG               = 16'h4246; // Tag of `SEND_LAYOUT`
    localparam logic [15:0] LAYOUT_NUMBER            = 16'h0001; // The layout that is described here

endpackage
/* verilator lint_on UNUSEDPARAM */
