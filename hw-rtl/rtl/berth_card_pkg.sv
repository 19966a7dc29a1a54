// SPDX-License-Identifier: Apache-2.0 OR MIT
// Records that cross module borders: each is the type of a port, with the same name at all levels. The signals that a
// record is there (`_valid`, `_we`) and is taken (`_ready`), the row of its QP (`_q`), and data as wide as a beat are
// ports beside it. Lengths and sizes are bytes; a place in packet RAM is a byte's address there. Numbers that depend on a
// parameter have the width of the largest card, because Yosys 0.52 takes no constant of another package here. Codes
// stand in berth_row_pkg.

/* verilator lint_off UNUSEDPARAM */
package berth_card_pkg;
    // ---- memory of the host -----------------------------------------------------------------------------------------

    // A range of a scatter or gather list.
    typedef struct packed {
        logic [63:0] va;
        logic [31:0] len;
    } range_t;

    // A command to acquire or give back a range of pages, and the answer to an acquisition.
    typedef struct packed {
        logic        give_back;
        logic        quiet;      // the host is not asked for what is missing
        logic        probe;      // it is not held if all is there
        logic        write;      // for writing
        logic [7:0]  asid;
        logic [63:0] va;
        logic [30:0] len;
        logic [15:0] tag;        // comes back
    } range_ask_t;
    typedef struct packed {
        logic [15:0] tag;
        logic [1:0]  kind;       // XLT_*
        logic [7:0]  status;     // the host's
    } range_answer_t;

    // A page of a range is counted in the table, or not any more.
    typedef struct packed {
        logic        give_back;
        logic        undo;       // it is given back, as another one of its range is missing: without an answer
        logic        write;
        logic [7:0]  asid;
        logic [51:0] vpn;
        logic        last;       // of its range
    } page_use_t;

    // Requests of both halves of the fast path, and their answers.
    typedef struct packed {
        range_ask_t rx, tx;
    } range_asks_t;
    typedef struct packed {
        range_answer_t rx, tx;
    } range_answers_t;

    // A command to move a payload between packet RAM and memory, and its end.
    typedef struct packed {
        logic        reverse;    // a write of at most 8 bytes, the last one first: `place` is the complement of that one's address
        logic        bus;        // `va` is a bus address, and `asid` says nothing
        logic [17:0] place;
        logic [12:0] len;
        logic [7:0]  asid;
        logic [63:0] va;
        logic [7:0]  tag;        // comes back
    } payload_t;
    typedef struct packed {
        logic [7:0] tag;
        logic [1:0] status;      // 0: all is well
    } payload_end_t;

    // An atomic on eight bytes of memory, a multiple of 8, and its end. Of fetch-and-add `compare` says nothing.
    typedef struct packed {
        logic        add;        // fetch and add, else compare and swap
        logic [7:0]  asid;
        logic [63:0] va;
        logic [63:0] operand;    // what is added or swapped in
        logic [63:0] compare;
        logic [14:0] tag;        // comes back
    } change_t;
    typedef struct packed {
        logic [14:0] tag;
        logic        failed;     // the bytes could not be read or written
        logic [63:0] original;   // what stood there
    } change_end_t;

    // The page of an atomic's read or write has been found.
    typedef struct packed {
        logic [7:0]  tag;
        logic [63:0] addr;       // as the bus has it
    } found_t;

    // Payloads for firmware, by physical addresses too, and their end.
    typedef struct packed {
        logic        bad;        // the command cannot be: only its end is told
        logic [17:0] place;
        logic [12:0] len;
        logic [15:0] tag;        // comes back
        logic [63:0] addr;
        logic        virt;       // the address is one of `asid`
        logic        attach;     // a read that transmit slot `slot` waits for
        logic [3:0]  slot;
        logic [7:0]  asid;
    } dma_t;
    typedef struct packed {
        logic [7:0]  status;     // DMA_*
        logic [15:0] tag;
    } dma_end_t;

    // A range of memory that is to be cut at the ends of pages; a part of it within a page, or of no bytes and with the
    // status of a command that goes no further.
    typedef struct packed {
        logic        bad;        // the command cannot be: only its status is told
        logic [18:0] place;      // upper bit: in the transmit RAM
        logic [12:0] len;
        logic [63:0] addr;
        logic        virt;       // the address is one of `asid`
        logic [7:0]  asid;
    } page_command_t;
    typedef struct packed {
        logic [63:0] addr;       // as the bus has it
        logic [18:0] place;
        logic [12:0] len;
        logic        first;      // of the command
        logic        last;
        logic [1:0]  status;     // DMA_*
    } page_part_t;

    // A read of a queue's elements, and a beat of its data.
    typedef struct packed {
        logic [63:0] addr;
        logic [9:0]  len;
        logic [7:0]  tag;        // below 32
    } queue_read_t;
    typedef struct packed {
        queue_read_t rx, tx;
    } queue_reads_t;
    typedef struct packed {
        queue_read_t raw, rx, tx;
    } all_queue_reads_t;
    typedef struct packed {
        logic [7:0] tag;
        logic [9:0] off;         // of the beat in what was asked for
        logic       last;
        logic       err;         // with `last`: the read has failed
    } queue_beat_t;

    // The same below `berth_queue_rd`: at most one maximum read request long.
    typedef struct packed {
        logic [63:0] addr;
        logic [9:0]  len;
        logic [8:0]  tag;
    } fetch_t;
    typedef struct packed {
        logic [8:0] tag;
        logic [9:0] off;
        logic       more;        // over 64 bytes of the beat count
        logic       last;
        logic       err;
    } fetched_t;

    // A read of commands from the host's ring, and a beat of its data.
    typedef struct packed {
        logic [63:0] addr;
        logic [12:0] len;
        logic [2:0]  tag;        // comes back
    } ring_read_t;
    typedef struct packed {
        logic [2:0]  tag;
        logic [12:0] off;
        logic        more;       // over 64 bytes of the beat count
        logic        err;
    } ring_beat_t;

    // The host's port, as the card's outermost module has it flat: a read is asked for; a beat of its completion; a beat
    // that is written.
    typedef struct packed {
        logic [63:0] addr;
        logic [12:0] len;
        logic [5:0]  tag;
    } host_read_t;
    typedef struct packed {
        logic [5:0]  tag;
        logic [12:0] off, len;   // the same for all beats of a completion
        logic        last;
        logic        err;
    } host_reply_t;
    typedef struct packed {
        logic [63:0] addr;       // with `first`, as the length
        logic [12:0] len;
        logic        first, last;
    } host_write_t;

    // A change of the translation table by the driver, and its answer to a page request.
    typedef struct packed {
        logic [1:0]  op;         // CHANGE_*
        logic [12:0] index;
        logic [47:0] vpn;
        logic [7:0]  asid;
        logic        write;
        logic [51:0] page;
        logic        more;       // another one of the same command follows; at most 12 evictions
    } table_change_t;
    typedef struct packed {
        logic [17:0] tag;        // its user in bits 17:16: 0 firmware, 1 the sending half, 2 the receiving half
        logic [7:0]  status;
    } page_answer_t;

    // A doorbell of a QP of the fast path.
    typedef struct packed {
        logic         rq;        // of the receive queue
        logic [15:0]  qpn;
        logic [15:0]  pi;        // elements posted so far
        logic [31:0]  posted;    // bytes posted so far
        logic         pushed;    // with its element
        logic [511:0] wqe;
    } doorbell_t;

    // Words 0 to 6 of a completion.
    typedef struct packed {
        logic [7:0]      cqn;
        logic [7*32-1:0] words;
    } completion_t;
    typedef struct packed {
        completion_t rx, tx;
    } completions_t;
    typedef struct packed {
        completion_t raw, rx, tx;
    } all_completions_t;

    // A doorbell of a completion queue.
    typedef struct packed {
        logic [15:0] cqn;
        logic [5:0]  uar;        // the page that it came by
        logic [15:0] ci;
        logic        arm;
    } cq_doorbell_t;

    // The core's set-up of a completion queue and of a QP's doorbells, and what it reads about a QP whose doorbell
    // rang.
    typedef struct packed {
        logic        on;
        logic [15:0] cqn;
        logic [7:0]  uar;
        logic [63:0] base;
        logic [3:0]  log2;       // of its completions
    } cq_setup_t;
    typedef struct packed {
        logic        on;
        logic        fast;       // the fast path's
        logic [15:0] qpn;
        logic [7:0]  uar;
    } db_setup_t;
    typedef struct packed {
        logic [31:0] data;       // as CPU_DB_POP
        logic [31:0] index;
        logic [31:0] bytes;
    } rung_t;

    // ---- frames -----------------------------------------------------------------------------------------------------

    // A frame in packet RAM.
    typedef struct packed {
        logic [17:0] place;
        logic [12:0] len;        // with iCRC, without padding
        logic [2:0]  flags;      // RX_FLAG_*
    } frame_t;

    // One for the core, by its receive slot.
    typedef struct packed {
        logic [2:0]  flags;
        logic [12:0] len;
        logic [3:0]  slot;
    } desc_t;

    // A transmit slot that the core sends, and its end.
    typedef struct packed {
        logic        raw;        // append no iCRC
        logic        loop;       // to this card's own receiver
        logic [12:0] len;        // without iCRC
        logic [7:0]  slot;
    } send_t;
    typedef struct packed {
        logic [7:0] status;      // DMA_*
        logic [7:0] slot;
    } sent_t;

    // Reads that are attached to transmit slots, a bit per slot.
    typedef struct packed {
        logic [15:0] out;
        logic [15:0] failed;
        logic [7:0]  status;     // of the last that has failed
    } slot_reads_t;

    // A frame of the fast path for the MAC.
    typedef struct packed {
        logic [17:0] place;      // in the transmit RAM
        logic [12:0] len;        // without iCRC, not 0
        logic        loop;       // to this card's own receiver
        logic [7:0]  tag;        // comes back when it has left
    } frame_out_t;

    // ---- raw queues -------------------------------------------------------------------------------------------------

    // What firmware does to a raw queue or a filter, and a doorbell of one.
    typedef struct packed {
        logic [2:0]      go;     // RAW_GO_*
        logic [6*32-1:0] words;  // from CPU_RAW_W0 on
    } raw_setup_t;
    typedef struct packed {
        logic        rq;         // of the receive ring
        logic [15:0] number;
        logic [15:0] pi;         // elements posted so far
    } raw_doorbell_t;

    // An element that is fetched.
    typedef struct packed {
        logic        failed;     // it could not be read, and the rest says nothing
        logic [15:0] count;      // elements of the ring up to its end
        logic [511:0] wqe;       // raw_wqe_t
    } raw_element_t;

    // A frame for a raw queue.
    typedef struct packed {
        logic        core;       // it goes to the core afterwards
        logic [2:0]  flags;
        logic [1:0]  number;
        logic [17:0] place;
        logic [12:0] len;
    } raw_frame_t;

    // Increments of counters (C_RAW_*, C_RX_NOT_FOR_US).
    typedef struct packed {
        logic sent, received, no_receive, no_slot, too_long, not_ours;
        logic [2:0] bad;
    } raw_events_t;

    // ---- fast path --------------------------------------------------------------------------------------------------

    // The core reads or writes a word of a row.
    typedef struct packed {
        logic        we;
        logic        half;       // the receiving one
        logic [9:0]  qpn;
        logic [5:0]  word;
        logic [31:0] data;
    } row_access_t;

    // Increments of the card's counters (C_FP_* and those of credits).
    typedef struct packed {
        logic [15:0] packets, again, acks, lists, bytes_sent, blocks, taken, bytes_placed, landed, duplicates, dropped, slots, answers, atomics, atomics_again;
        logic [15:0] bad_wqe, acks_taken, bad_acks, list_repeats, page_strays;
        logic [15:0] credits_posted, lists_sent, credits_sent, lists_taken, credits_taken, lists_refused;
    } fast_amounts_t;

    // Increments from each half in one clock.
    typedef struct packed {
        logic packet;            // a data packet is framed ...
        logic again;             // ... not for the first time
        logic ack, lists;        // an acknowledgement, lists are framed
        logic ack_taken;         // an acknowledgement came that may be ...
        logic bad_ack;           // ... or cannot be
        logic list_taken;
        logic bad_answer;        // data of a READ came that cannot be
        logic list_again;        // a list came that was there
        logic refused;           // a list was refused
        logic credit;            // a credit of a list was taken
        logic held;              // a piece had to wait for a credit
        logic block;
        logic stray;             // the host answers what it was not asked
        logic give_back;         // a block was given back
        logic bad_wqe;
    } tx_events_t;
    typedef struct packed {
        logic taken, duplicate, out_of_order, dropped;      // a packet was
        logic bad_index, bad_wqe;
        logic hit, miss;
        logic stray;
        logic posted;
        logic answer;            // a packet of an answer to a READ or an atomic is given to be sent
        logic atomic;            // an atomic has been carried out ...
        logic atomic_again;      // ... or is answered that was before
        logic lists;             // a list has left the builder ...
        logic [6:0] list_len;    // ... with so many credits
        logic list_again;
    } rx_events_t;

    // ---- between the halves of the fast path ------------------------------------------------------------------------

    // An acknowledgement that came, or is to be sent.
    typedef struct packed {
        logic [23:0]  psn;
        logic [23:0]  msn;
        logic [7:0]   syndrome;
        logic         has_sack;
        logic [127:0] sack;      // bit i: the packet i + 1 behind `psn` has come
    } ack_t;

    // A packet of a READ's answer came, or an atomic's.
    typedef struct packed {
        logic         atomic;
        logic [23:0]  psn;
        logic [12:0]  len;       // of the payload
        logic [17:0]  payload, frame;    // their places
    } answer_t;

    // A list that came: a beat with `first_beat`, then one with each size.
    typedef struct packed {
        logic        first_beat;
        logic [31:0] first;      // number of its first credit
        logic [6:0]  n;          // credits
        logic [31:0] size;
    } list_beat_t;

    // A list to be sent: a beat with `first_beat`, then two sizes per beat, the first in the low half; the last may be one.
    typedef struct packed {
        logic        first_beat;
        logic [31:0] epoch;      // the peer's
        logic [31:0] first;
        logic [6:0]  n;
        logic [63:0] sizes;
    } list_out_t;

    // ---- receiving half ---------------------------------------------------------------------------------------------

    // Steps of firmware's commands, with what the engines need for them.
    typedef struct packed {
        logic [4:0]  op;                // STEP_*
        logic [23:0] psn;               // expected first
        logic        selective;
        logic        writes_in_order;   // their packets are taken in order only
        logic [3:0]  log2_mtu;
        logic [7:0]  ack_every;         // packets, 1 or more
        logic        foreign;           // no credit lists: RNR where there is no receive, or no memory yet ...
        logic [4:0]  rnr;               // ... with this timer
        logic [5:0]  reads;             // READs under way at most
        logic [31:0] key;               // that is not to end
    } arrival_step_t;
    typedef struct packed {
        logic        ask;               // only a question
        logic [7:0]  cqn;
        logic [7:0]  asid;
    } recv_complete_step_t;
    typedef struct packed {
        logic        ask;               // only a question
        logic [63:0] base;              // of the queue, a multiple of 128
        logic [3:0]  log2;              // of its elements
        logic [15:0] ci;                // of its first element
        logic        message;
    } recv_wqe_step_t;
    typedef struct packed {
        logic [4:0]  op;                // STEP_*
        logic [7:0]  asid;              // start
        logic [15:0] limit;             // start: bound of memory in 4 KiB ...
        logic [15:0] most;              // ... and that of what may be added to it
        logic [7:0]  status;            // end
        logic [7:0]  first;             // go back: the number that the next credit is to have
        logic [15:0] recv;              // look, mark, let go: the receive ...
        logic [7:0]  sge;               // ... and a range
    } grant_step_t;
    typedef struct packed {
        logic [4:0]  op;                // STEP_*
        logic [31:0] first;             // first credit that is void; lists: until when they wait; cap: its rate, as rows have it
        logic [31:0] epoch;             // the peer's; cap: its burst
        logic [6:0]  max_list;          // 1 to 64
        logic [2:0]  trigger;           // TRIGGER_* ...
        logic [7:0]  index;             // ... and what it needs
        logic        timed;             // lists wait, until `first`, while there are credits
        logic        told;              // their use is told
        logic        stream;            // stream mode: pieces say how many bytes are still to be sent
        logic [6:0]  few;               // later lists wait for more than this many new credits, unless so few are out
        logic [15:0] again;             // longest time until a list is told again, in units of 64 clocks; 0: never
        logic        foreign;           // no credit lists: what is committed may be used at once
    } builder_step_t;

    // What has come of a piece (decision 3).
    typedef struct packed {
        logic        begins;            // its first packet: it has landed
        logic        said;              // its last packet, and it has immediate data ...
        logic [31:0] remaining;         // ... these: in stream mode the bytes still to be sent (CR-9)
    } landed_t;

    // What happened to a QP's credits, for the meter of their use.
    typedef struct packed {
        logic        sent;              // a list went for the first time
        logic        begins;            // a piece has landed
        logic        said;              // the sender said how many bytes it still has to send ...
        logic [31:0] remaining;         // ... these
        logic        starts;            // the QP begins
        logic        voids;             // credits were taken back, or it begins
        logic        proof;             // landed: that was the last list's first credit
        logic        told;              // landed: firmware wants to know
        logic [7:0]  out;               // credits that the sender has: landed, without that one; sent, without the list
    } lap_t;
    // A report of that, as firmware reads it.
    typedef struct packed {
        logic [31:0] gaps;              // recv_gaps_t
        logic [31:0] times;             // recv_times_t
        logic [31:0] used;              // recv_use_t
    } use_t;

    // A step of a withdrawal, for the granting engine; how things are there after each step.
    typedef struct packed {
        logic [4:0]  op;                // STEP_*
        logic [15:0] recv;
        logic [7:0]  sge;
    } walk_t;
    typedef struct packed {
        logic [15:0] freed;             // receives complete
        logic [15:0] granted;           // receives granted, without those that are to be taken back
        logic [15:0] holds;             // receives that hold memory or ask for it
        logic        queued;            // receives wait for their completion, after the end
        logic        going;             // going back or at its end, and memory is still held for what is not granted
        logic        waits;             // asks for memory
        logic [7:0]  first;             // look: the receive's first range ...
        logic [2:0]  ranges;            // ... how many it has ...
        range_t      sge;               // ... and the one asked for
    } grant_state_t;

    // Who a QP's frames come from.
    typedef struct packed {
        logic        on;                // they are taken here
        logic        selective;
        logic        remote;            // they may be one-sided ...
        logic        reads;             // ... READs too
        logic [3:0]  log2_mtu;
        logic [7:0]  asid;
        logic [15:0] domain;
        logic [47:0] mac;
        logic [31:0] ip;
        logic [31:0] epoch;             // of lists that come
        logic [31:0] qkey;              // of them
    } peer_t;

    // What is free again of a receive queue, and what has been given back, since the start of the QP.
    typedef struct packed {
        logic [15:0] recvs;
        logic [8:0]  sges;
    } freed_t;
    typedef struct packed {
        logic [31:0] bytes;             // modulo 2^32
        logic [1:0]  hollow;            // the data of the last receives fill a half (1), a quarter (2), an eighth (3) of them
        logic [7:0]  credits;           // credits whose receives are complete, modulo 2^8 ...
        logic [31:0] sizes;             // ... their bytes, modulo 2^32, but of those that were withdrawn ...
        logic [31:0] filled;            // ... and the bytes of data in them
    } given_t;

    // Credits of a QP with a maximum bandwidth (CR-10).
    typedef struct packed {
        logic [7:0]  next;              // number of the first one that may not be announced yet, modulo 2^8
        logic [7:0]  withheld;          // how many there are
    } gate_t;
    // Some of them may.
    typedef struct packed {
        logic [7:0]  next;              // the first one
        logic [7:0]  n;                 // how many: not 0
    } pass_t;

    // The WRITE that a QP has under way without selective repeat: its first packet's PSN, and where it goes.
    typedef struct packed {
        logic [23:0] psn;
        logic [63:0] va;
        logic [31:0] key, whole;
    } write_t;

    // A packet with data has come.
    typedef struct packed {
        logic [23:0] psn;
        logic        begins, ends;      // a piece; a WRITE, but for selective repeat
        logic        has_imm;
        logic        invalidate;        // `imm` is a key that is to end
        logic        solicited;
        logic        ack;               // wants to be acknowledged
        logic [31:0] imm;
        logic [23:0] index;             // in the piece
        logic [7:0]  credit;            // low byte of its number
        logic [12:0] len;               // of the payload
        logic [17:0] payload, frame;    // their places
        logic [7:0]  asid;              // of what it is written to
        logic        write;             // of a WRITE: to `whole` bytes from `va` on
        logic [63:0] va;
        logic [31:0] key, whole;
        logic        read;              // of a READ: from there; or of an atomic
        logic [1:0]  atomic;            // ATOMIC_*
        logic [3:0]  log2_mtu;          // of the QP ...
        logic [15:0] domain;            // ... and its protection domain
        logic [2:0]  refusal;           // KEY_*
        logic        one_shot;          // its key serves one operation
        logic        absent;            // the memory is not there
        logic        held;              // ... or is held for a READ of one packet, until the frame is given back
    } arrival_t;

    // A key of the table.
    typedef struct packed {
        logic [63:0] kept;              // firmware's own
        logic [63:0] last, first;       // bytes of its range
        logic [31:0] scope;             // recv_key_scope_t
        logic [31:0] key;
    } key_t;

    // An access that a key is to allow (QP-11), and the answer; an operation that is over (QP-12).
    typedef struct packed {
        logic        claim;             // it is being done: a one-shot key is this operation's from now on
        logic        again;             // it was done before, and its answer is asked for again
        logic [1:0]  right;             // RIGHT_BIT_*
        logic [15:0] qpn;
        logic [15:0] domain;            // of the QP
        logic [31:0] key;
        logic [63:0] va;
        logic [31:0] len;               // not 0
        logic [23:0] psn;               // of the operation's first packet
        logic [23:0] packets;           // PSNs that it takes
    } access_t;
    typedef struct packed {
        logic [2:0]  refusal;           // KEY_*
        logic        one_shot;
        logic [7:0]  asid;
    } admission_t;
    typedef struct packed {
        logic [15:0] qpn;
        logic [31:0] key;
        logic [23:0] psn;               // of its first packet
    } key_use_t;

    // A list has come.
    typedef struct packed {
        logic [31:0] first;             // number of its first credit
        logic [6:0]  n;                 // credits
        logic [17:0] frame;             // its place
        logic        window;            // it was written to the window for lists: its headers are longer
    } list_in_t;

    // A payload is to be placed.
    typedef struct packed {
        logic [23:0] psn;
        logic [17:0] payload, frame;    // their places
        logic [12:0] len;
        logic [7:0]  asid;
        logic [7:0]  sge;               // first range
        logic [2:0]  sges;              // ranges
        logic [31:0] offset;            // in them
        logic        write;             // instead: to `va`
        logic [63:0] va;
        logic        answer;            // of a READ or an atomic: the transmit half is told of its end ...
        logic        more;              // ... which is that of a later part of it, the next one here
        logic        reverse;           // an atomic's: see `payload_t`
    } placement_t;

    // A READ or an atomic is to be answered. All before a PSN of a QP is in place, or answered.
    typedef struct packed {
        logic        again;             // it was answered before
        logic [1:0]  atomic;            // ATOMIC_*
        logic [23:0] psn;               // of its first packet
        logic [8:0]  packets;
        logic [63:0] va;
        logic [20:0] len;
        logic [31:0] key;
        logic        one_shot;          // its key serves one operation
        logic [15:0] domain;
        logic [3:0]  log2_mtu;
        logic        held;              // of one packet, which is the next to be answered: its memory is held, of ...
        logic [7:0]  asid;
    } read_t;
    typedef struct packed {
        logic [23:0] psn, msn;
    } way_t;

    // A packet of the answer is to be sent; its payload has been read from memory; ARRIVAL hears of it.
    typedef struct packed {
        logic        begins, ends;      // the answer
        logic [23:0] psn, msn;
        logic [12:0] len;
        logic [7:0]  asid;
        logic [63:0] va;
        logic        atomic;            // it is that of an atomic: these bytes, and no payload
        logic [63:0] original;
        logic [5:0]  tag;               // below READ_TAGS; comes back
    } response_t;
    typedef struct packed {
        logic [5:0] tag;
        logic       failed;             // it could not be read, and is not sent
    } response_end_t;
    typedef struct packed {
        logic        again;             // it was asked for again
        logic [23:0] psn;
        logic        ends;              // it is the last one ...
        logic [23:0] first;             // ... of a READ with this PSN ...
        logic        one_shot;          // ... whose key serves one operation
        logic [31:0] key;
        logic        failed;            // there is no answer
        logic [3:0]  fault;             // FAULT_*
    } answered_t;

    // A receive that is parsed.
    typedef struct packed {
        logic [63:0] wr_id;
        logic [31:0] size;
        logic [7:0]  sge;               // first range
        logic [2:0]  sges;              // ranges
        logic        last;              // of a batch
        logic        apart;             // never a credit
        logic        bad;               // malformed
    } pending_t;

    // A receive behind a credit.
    typedef struct packed {
        logic        released;          // its memory has been given back
        logic        withdrawn;         // nothing is placed there any more
        logic [63:0] wr_id;
        logic [31:0] size;
        logic [7:0]  sge;               // first range
        logic [2:0]  sges;              // ranges
    } ring_t;

    // A receive that becomes a credit, the end of a batch, or both.
    typedef struct packed {
        logic        credit;            // there is one, of `size` bytes
        logic [31:0] size;
        logic        commit;            // what is posted may be announced ...
        logic        early;             // ... in a list that lasts no longer than the next one takes to come (CR-6)
    } post_t;

    // A list has been sent for the first time.
    typedef struct packed {
        logic [31:0] bytes;
        logic [15:0] round;             // shortest time from a list to its proof, in units of 64 clocks; 0: none yet
    } told_t;

    // A receive is complete.
    typedef struct packed {
        logic        quiet;             // instead: no more of them come, the QP has ended
        logic [31:0] credit;
        logic [31:0] len;
        logic        has_imm;
        logic        invalidated;       // `imm` is a key that has ended
        logic [31:0] imm;
        logic        solicited;
        logic        write;             // a WRITE with immediate: the receive itself is empty
    } received_t;

    // A receive completes without data, or only gives back what it holds.
    typedef struct packed {
        logic [1:0]  kind;              // ASIDE_*
        logic [15:0] recv;
        logic [7:0]  credit;
        logic [63:0] wr_id;
        logic [7:0]  status;
        logic [7:0]  sge;               // first range
        logic [2:0]  sges;              // ranges
        logic [15:0] chunks;            // to be given back
    } aside_t;

    // ---- sending half -----------------------------------------------------------------------------------------------

    // A word of a QP's row is written.
    typedef struct packed {
        logic [5:0]  word;              // SEND_*
        logic [31:0] data;
    } row_write_t;

    // An element of a send queue.
    typedef struct packed {
        logic [31:0]    len;
        logic           bad;
        logic           push;
        logic           inlined;        // its data come with it
        logic           has_imm;        // ... and the process's immediate ...
        logic           invalidate;     // ... or a key that the peer is to invalidate
        logic [31:0]    imm;
        logic           write;          // RDMA WRITE: its bytes go to ...
        logic           read;           // ... or RDMA READ or atomic: they come from ...
        logic           atomic;         // the latter, whose operands are its inline data: compare-and-swap, or ...
        logic           adds;           // ... fetch-and-add
        logic           fence;          // READs before it are complete first
        logic           quiet;          // no completion if it succeeds
        logic           nothing;        // nothing is sent: NOP or ...
        logic           delay;          // ... DELAY, of a time which is `va`, or ...
        logic           bind_key;       // ... BIND of `key` to `span` bytes from `va` on
        logic [63:0]    span;
        logic           one_shot;
        logic [2:0]     rights;
        logic [63:0]    va;             // ... this address of the peer ...
        logic [31:0]    key;            // ... under this key
        logic [63:0]    wr_id;
        logic [8:0]     ctxs;           // contexts up to its end
    } element_t;

    // An access to memory of this card.
    typedef struct packed {
        logic [1:0]  kind;              // ACCESS_*
        logic [31:0] key;
        logic [63:0] va;
        logic [31:0] len;
    } peer_access_t;

    // A BIND that firmware is to do.
    typedef struct packed {
        logic        waits;             // it is not done; else the rest says nothing
        logic        one_shot;
        logic [2:0]  rights;
        logic [63:0] va;
        logic [63:0] span;              // bytes
        logic [31:0] key;
    } bind_t;

    // The end of an element.
    typedef struct packed {
        logic [7:0]  status;            // WC_*
        logic [23:0] psn;               // of its last packet
    } element_end_t;

    // A piece.
    typedef struct packed {
        logic [1:0]  kind;              // PIECE_*
        logic        read;              // of a READ or an atomic: its bytes are asked for
        logic        atomic;            // of the latter
        logic        remote;            // of these or a WRITE
        logic        inlined;
        logic        push;
        logic        ends;              // it is the last of its element
        logic        receives;          // it uses a receive of the peer
        logic [5:0]  place;             // in its element, if it is inline
        logic [15:0] elem;
        logic [7:0]  credit;            // low byte of its number; 0 of a WRITE or READ
        logic [31:0] sum;               // bytes up to its end
        logic [31:0] len;
    } piece_t;

    // A block of memory that packets are sent from, or answers written to.
    typedef struct packed {
        logic             write;
        logic [7:0]       ctx;
        logic [31:0]      at;           // in the context
        logic [20:0]      len;
        logic [63:0]      va;
    } block_t;
    typedef struct packed {
        logic       failed, held;
        logic [7:0] status;             // why it failed; BLOCK_* if it is neither
    } block_state_t;

    // A lost packet is prepared.
    typedef struct packed {
        logic [3:0]  parts;
        logic [23:0] psn;
    } fixed_t;

    // Where a packet's bytes lie.
    typedef struct packed {
        logic             none;         // in no memory
        logic [7:0]       ctx;
        logic [31:0]      at;           // in the context
        logic [12:0]      len;
    } where_t;

    // What a packet asks for, and where it goes.
    typedef struct packed {
        logic        read;              // it does ...
        logic        atomic;            // ... by an atomic
        logic [12:0] len;
        logic [3:0]  parts;             // blocks that it lies in ...
        logic [4:0]  block;             // ... the first of them ...
        logic [20:0] at;                // ... its first byte in that ...
        logic [12:0] first;             // ... and bytes there
    } asked_t;

    // A packet is to be framed; its parts.
    typedef struct packed {
        logic              read;        // a READ's: it asks for `len` bytes, and has none
        logic [6:0]        tag;         // of its place in the transmit RAM
        logic [23:0]       psn;
        logic [3:0]        flags;       // {acknowledge, PUSH, last, first}
        logic [31:0]       imm;
        logic [31:0]       placement;   // header
        logic [12:0]       len;
        logic              inlined;
        logic              over;        // not sent: only its blocks are given back
        logic [6:0]        elem;
        logic [5:0]        place;       // of its data in the element's, if inline
        logic [3:0]        parts;
        logic [5:0]        block;       // its first block; upper bit: it was lost
        logic [12:0]       first;       // bytes in that
    } packet_t;
    typedef struct packed {
        logic [12:0] len;
        logic [63:0] va;
    } part_t;

    // The blocks of a packet that is not needed any more.
    typedef struct packed {
        logic [3:0]       parts;
        logic [5:0]       block;        // the first one; upper bit: it was lost
        logic [12:0]      first;        // bytes in that
        logic [12:0]      len;
    } left_t;

    // A QP's progress, whenever it changes: what is sent ...
    typedef struct packed {
        logic [23:0] next;              // PSN
        logic [7:0]  pieces;
        logic [15:0] elems;
        logic        apart;             // an element has ended that has no packet
        logic        asks;              // the last packets are those of READs or atomics ...
        logic [23:0] asks_from;         // ... from this PSN on, which may be acknowledged
    } sent_so_far_t;
    // ... what is asked for in memory ...
    typedef struct packed {
        logic [7:0] pieces;
        logic [5:0] blocks;
        logic [2:0] lost;               // lost packets
    } covered_t;
    // ... and what is acknowledged.
    typedef struct packed {
        logic [23:0] una;               // oldest PSN that is not
        logic        lost;              // some behind it are, and have not left the card again
        logic        halt;              // nothing new may be sent
        logic [7:0]  reads;             // packets of READs before it
    } acked_t;

    // A packet that lies in several blocks needs this one, however many there are.
    typedef struct packed {
        logic [5:0] block;
        logic [5:0] first;              // its first one
    } want_t;

    // The state of a block whose memory has been given back changes.
    typedef struct packed {
        logic       again;              // it is asked for once more
        logic [5:0] idx;                // upper bit: of a lost packet
        logic [7:0] state;              // BLOCK_*
    } mark_t;

    // Messages that a peer without credit lists lets begin, if they use a receive.
    typedef struct packed {
        logic        bounded;           // else any
        logic [23:0] messages;          // of the connection so far
    } lsn_t;

    // A lost packet is to be prepared; it leaves again. Or one leaves for the first time behind some that wait for answers of
    // their own.
    typedef struct packed {
        logic [23:0] psn;
        logic [1:0]  place;
    } lost_t;
    typedef struct packed {
        logic        asks;              // the latter: `psn` is the first one's
        logic [23:0] psn;
        logic [23:0] next;              // PSN of the next new packet then
    } again_t;

    // A frame is begun.
    typedef struct packed {
        logic [6:0]  tag;               // of its place in the transmit RAM
        logic [4:0]  count;             // header and parts
        logic [12:0] bytes;             // without iCRC
        logic        loop;
        logic [23:0] psn;
        logic        apart;             // goes again: waits only for others that do
        logic        over;              // does not go: counts as one that could not be read
        logic        answer;            // of an answer to a READ ...
        logic [5:0]  answer_tag;        // ... with this tag
        left_t       left;
    } open_t;
endpackage
/* verilator lint_on UNUSEDPARAM */
