// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Counters of the card: 64 bits each, never reset but with the card.

table! {
    /// Counters in RTL, 8 bytes each from `HOST_COUNTERS`, as (name, index, text).
    RTL_COUNTER_TABLE: u32 {
    /// Frames sent to the wire (loopback not counted).
    C_TX_FRAMES = 0;
    /// Bytes sent to the wire, with iCRC, without preamble, FCS and gap.
    C_TX_BYTES = 1;
    /// Frames taken from the wire.
    C_RX_FRAMES = 2;
    /// Bytes taken from the wire.
    C_RX_BYTES = 3;
    /// Frames looped back.
    C_LOOPBACK_FRAMES = 4;
    /// Received frames dropped: shorter than their headers say, or than the least.
    C_RX_TRUNCATED = 5;
    /// Received frames dropped: longer than a slot.
    C_RX_OVERSIZED = 6;
    /// Received frames dropped: marked bad by the MAC.
    C_RX_MAC_ERROR = 7;
    /// Received RoCE frames dropped: iCRC wrong.
    C_RX_BAD_ICRC = 8;
    /// Cycles in which the wire had to wait for a receive slot.
    C_RX_STALL_CYCLES = 9;
    /// DMA reads: requests issued.
    C_DMA_READS = 10;
    /// DMA reads: bytes.
    C_DMA_READ_BYTES = 11;
    /// DMA writes: requests issued.
    C_DMA_WRITES = 12;
    /// DMA writes: bytes.
    C_DMA_WRITE_BYTES = 13;
    /// DMA refused: no translation.
    C_DMA_NO_TRANSLATION = 14;
    /// DMA ended by an error answer of the host.
    C_DMA_HOST_ERROR = 15;
    /// Page acquisitions answered by the translation table.
    C_XLT_HITS = 16;
    /// Page acquisitions that asked the host.
    C_XLT_MISSES = 17;
    /// Events written.
    C_EVENTS = 18;
    /// Completions written.
    C_COMPLETIONS = 19;
    /// MSI-X interrupts raised.
    C_INTERRUPTS = 20;
    /// Doorbells taken.
    C_DOORBELLS = 21;
    /// Doorbells dropped: QP or CQ of another process, or none.
    C_DOORBELL_DENIED = 22;
    /// Doorbells dropped: not one 8-byte write (torn), or to an unknown offset.
    C_DOORBELL_MALFORMED = 23;
    /// BAR0 accesses to an offset without a register.
    C_BAR_BAD_ACCESS = 24;
    /// Commands with an unknown RTL opcode or a field out of range.
    C_CMD_BAD = 25;
    /// Completions lost because their queue was full.
    C_CQ_OVERRUN = 26;
    /// Credits posted to builders.
    C_CREDITS_POSTED = 27;
    /// Credit lists taken from builders, repeats not included.
    C_LISTS_SENT = 28;
    /// Credits in them.
    C_CREDITS_SENT = 29;
    /// Credit lists that readers took.
    C_LISTS_TAKEN = 30;
    /// Credits that readers took.
    C_CREDITS_TAKEN = 31;
    /// Credit lists that readers refused (gap, overflow, early, bad).
    C_LISTS_REFUSED = 32;
    /// Cycles in which at least one DMA read waited for the host (counted apart from work).
    C_HOST_WAIT_CYCLES = 33;
    /// Cycles in which the core was stalled in `CPU_WAIT`.
    C_IDLE_CYCLES = 34;
    /// Fast path: data packets sent, those sent again included.
    C_FP_PACKETS = 35;
    /// Fast path: data packets sent again.
    C_FP_AGAIN = 36;
    /// Fast path: acknowledgements sent.
    C_FP_ACKS = 37;
    /// Fast path: credit lists sent, repeats included.
    C_FP_LISTS = 38;
    /// Fast path: payload bytes read from memory for sending, those sent again included, inline data not.
    C_FP_BYTES_SENT = 39;
    /// Fast path: blocks asked for sending.
    C_FP_BLOCKS = 40;
    /// Fast path: data packets accepted.
    C_FP_TAKEN = 41;
    /// Fast path: payload bytes placed in receive buffers.
    C_FP_BYTES_PLACED = 42;
    /// Fast path: pieces that have landed (credits used by the peer).
    C_FP_LANDED = 43;
    /// Fast path: data packets dropped as duplicates.
    C_FP_DUPLICATES = 44;
    /// Fast path: data packets dropped: out of sequence, outside the window, without a credit, with a malformed header.
    C_FP_DROPPED = 45;
    /// Fast path: doorbells that brought their element.
    C_FP_SLOTS = 46;
    /// Frames that firmware was given, loopback included, `C_RX_CORE_FULL` not: what the fast path does not take.
    C_FW_FRAMES = 47;
    /// Fast path: malformed queue elements, of send and receive queues.
    C_FP_BAD_WQE = 48;
    /// Commands that were not fetched, as the host had written them into the card.
    C_CMD_PUSHED = 49;
    /// DMA reads, those of queues and rings included, that were given up because the host did not answer in time (`HOST_READ_TIMEOUT`).
    C_DMA_TIMEOUTS = 50;
    /// Completions of reads thrown away: of no read that is awaited (unknown tag, given up, failed, of before a reset).
    C_DMA_UNEXPECTED = 51;
    /// Received frames dropped: neither to this card's MAC address nor to all.
    C_RX_NOT_FOR_US = 52;
    /// Received frames dropped: for firmware, which had as many as it may have.
    C_RX_CORE_FULL = 53;
    /// Fast path: acknowledgements that came, negative and repeated ones included.
    C_FP_ACKS_TAKEN = 54;
    /// Fast path: acknowledgements dropped: for packets that were never sent, or of an unknown kind.
    C_FP_BAD_ACKS = 55;
    /// Fast path: credit lists that came again.
    C_FP_LIST_REPEATS = 56;
    /// Fast path: answers to page requests (`CMD_PAGE_READY`) thrown away: it had not asked, or was answered before.
    C_FP_PAGE_STRAYS = 57;
    /// Fast path: packets of answers to RDMA READs and atomics, repeated ones included, as they were given to be sent.
    C_FP_ANSWERS = 58;
    /// Fast path: atomics of peers that were carried out.
    C_FP_ATOMICS = 59;
    /// Fast path: answers to atomics that had been carried out before.
    C_FP_ATOMICS_AGAIN = 60;
    /// Raw queues: frames sent.
    C_RAW_SENT = 61;
    /// Raw queues: frames given to receives.
    C_RAW_RECEIVED = 62;
    /// Raw queues: elements that are malformed, or could not be read, or whose memory could not; doorbells further ahead than the ring is deep.
    C_RAW_BAD = 63;
    /// Raw queues: frames dropped for want of a receive.
    C_RAW_NO_RECEIVE = 64;
    /// Raw queues: frames dropped that are longer than their receive.
    C_RAW_TOO_LONG = 65;
    /// Raw queues: frames dropped because those before them still had all receive slots that raw frames may have: they came faster than the card reads receives and writes frames.
    C_RAW_NO_SLOT = 66;
    }
}
/// RTL counters.
pub const NUM_RTL_COUNTERS: usize = RTL_COUNTER_TABLE.len();

table! {
    /// Counters in firmware, 8 bytes each from the start of the statistics RAM, as (name, index, text).
    FW_COUNTER_TABLE: u32 {
    /// Connections ended by a data packet without a credit, from a rogue peer (invariant 1).
    F_NO_CREDIT = 0;
    /// Time-outs of data packets that were not acknowledged.
    F_TIMEOUTS = 1;
    /// Frames, lists and records dropped: no QP has their QPN and epoch, or it is not connected.
    F_UNKNOWN_QP = 2;
    /// Frames dropped: opcode unknown or not expected there.
    F_BAD_OPCODE = 3;
    /// Frames dropped: headers malformed, lengths that contradict each other.
    F_BAD_HEADER = 4;
    /// Frames dropped: not for this end node (MAC or IP), not from the QP's peer, or control messages of an end that this
    /// one does not know.
    F_NOT_FOR_US = 5;
    /// Acknowledgements on the control connection dropped: for a PSN never sent.
    F_BAD_ACK = 6;
    /// Control messages sent, retransmissions included.
    F_CONTROL_SENT = 7;
    /// Control messages sent again.
    F_CONTROL_RETRANSMITTED = 8;
    /// Control messages received and taken.
    F_CONTROL_RECEIVED = 9;
    /// Control messages, lists and records dropped: malformed, or with a key that is not the connection's.
    F_CONTROL_BAD = 10;
    /// Connections ended by a credit list that breaks the protocol (early, gap, overflow, empty credits).
    F_LIST_REFUSED = 11;
    /// Queue pairs in error for a doorbell with a wild producer index.
    F_BAD_INDEX = 12;
    /// Credits recalled under pressure.
    F_RECALLED = 13;
    /// Connections ended by data for a receive whose memory went away.
    F_WITHDRAWN = 14;
    /// Peers that stopped answering.
    F_PEERS_LOST = 15;
    /// Commands refused.
    F_BAD_COMMAND = 16;
    /// Log bytes dropped because the host did not take them.
    F_LOG_DROPPED = 17;
    /// Frames dropped for want of a transmit slot or control buffer (resent later by time-out).
    F_TX_STARVED = 18;
    /// Events of the fast path that firmware decided on (time-outs, errors); none on a clean wire.
    F_FAST_EVENTS = 19;
    /// Requests for a connection refused because too many wait, or nobody answered in time.
    F_REQUESTS_BUSY = 20;
    /// Frames dropped that are neither RoCE nor ARP: VLAN, IPv6, IP options, fragments.
    F_FOREIGN = 21;
    /// ARP messages of another host that has this card's IPv4 address (RFC 5227).
    F_ADDRESS_CONFLICTS = 22;
    /// Connections ended by an access that no key allows (QP-11).
    F_ACCESS_REFUSED = 23;
    /// Times that a connection had to wait for memory of its peer (PC-4).
    F_MEMORY_WAITS = 24;
    /// BINDs of send queues (QP-4).
    F_BINDS = 25;
    /// BINDs refused, which ended their connections.
    F_BINDS_REFUSED = 26;
    /// Keys that peers have invalidated by SENDs (QP-4).
    F_INVALIDATES = 27;
    /// Keys that they may not invalidate, which ended their connections.
    F_INVALIDATES_REFUSED = 28;
    /// Reports of how a peer uses its credits, after each of which lists may go by another trigger (CR-6 to CR-9).
    F_CREDIT_REPORTS = 29;
    }
}
/// Firmware counters.
pub const NUM_FW_COUNTERS: usize = FW_COUNTER_TABLE.len();

table! {
    /// Counters and gauges of the driver, as (name, index, text).
    DRV_COUNTER_TABLE: u32 {
    /// Gauge: bytes pinned now (pinned pages x page size, each page once per address space).
    D_PINNED = 0;
    /// Most bytes pinned at any time since the device appeared or the peak was reset.
    D_PINNED_PEAK = 1;
    /// Page requests taken from the card.
    D_PAGE_NEEDS = 2;
    /// Pages pinned.
    D_PAGES_PINNED = 3;
    /// Pages unpinned.
    D_PAGES_UNPINNED = 4;
    /// Page requests that had to wait for budget, or for room for copies.
    D_BUDGET_WAITS = 5;
    /// Page requests refused: memory cannot be pinned.
    D_PAGE_FAULTS = 6;
    /// Page requests refused: larger than the budget.
    D_OVER_BUDGET = 7;
    /// Translations revoked because memory went away.
    D_REVOKED = 8;
    /// Fences that ended.
    D_FENCES = 9;
    /// Fences that the card did not answer in time (it was reset).
    D_FENCE_TIMEOUTS = 10;
    /// Card resets.
    D_RESETS = 11;
    /// Heartbeats that the firmware did not answer.
    D_HEARTBEAT_LOST = 12;
    /// ioctls refused.
    D_BAD_IOCTL = 13;
    /// Interrupts taken.
    D_INTERRUPTS = 14;
    /// Events taken.
    D_EVENTS = 15;
    /// Events with an unknown kind or a field out of range.
    D_BAD_EVENTS = 16;
    /// Gauge: contexts (open descriptors that own an address space).
    D_CONTEXTS = 17;
    /// Gauge: queue pairs.
    D_QPS = 18;
    /// Gauge: the card's budget in bytes.
    D_BUDGET = 19;
    /// Times that a page request found no memory in the host; it is tried again, for a while.
    D_NO_MEMORY = 20;
    /// Gauge: places taken in the card's translation table, those included whose eviction is not answered yet.
    D_XLT_USED = 21;
    /// Gauge: completion queues.
    D_CQS = 22;
    /// Gauge: keys that peers can be given.
    D_KEYS = 23;
    /// Datagrams sent for queue pairs of verbs.
    D_DATAGRAMS = 24;
    /// Datagrams dropped: their queue pair had no receive, or a shorter one.
    D_DATAGRAMS_NO_RECEIVE = 25;
    /// Datagrams dropped: malformed, or without the QPN and Q_Key of a queue pair that receives.
    D_DATAGRAMS_REFUSED = 26;
    /// Gauge: bytes of copies for sending (VC-5, VC-6) that the card has; none of them are pinned memory of a process.
    D_COPY_USED = 27;
    /// Most bytes of copies at any time since the device appeared or the peak was reset.
    D_COPY_PEAK = 28;
    /// Page requests that were answered by copies.
    D_COPIES = 29;
    /// Bytes copied for them.
    D_COPIED_BYTES = 30;
    /// Gauge: sends of up to so many bytes are copied where the driver chooses (VC-10), after what pinning and copying have cost.
    D_COPY_MOST = 31;
    }
}
/// Driver counters.
pub const NUM_DRV_COUNTERS: usize = DRV_COUNTER_TABLE.len();
