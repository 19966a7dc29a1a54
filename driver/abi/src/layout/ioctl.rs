// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! ioctls and mappings of `/dev/berthN`.
//!
//! A descriptor becomes a *context* with `IOC_CONTEXT`: it then belongs to the caller's
//! address space for good; used from another one it answers `EPERM`. Every struct is
//! copied in and out whole; reserved fields must be zero (`EINVAL`). Errors are errno
//! values: `EINVAL` a field is out of range, `ENOENT` no such object of this context,
//! `ENOSPC` a cap is reached, `EBUSY` wrong state, `ENODEV` the card is gone, `EIO` the
//! card's firmware does not work, `EPERM` not allowed, `ENOTTY` no such call.
//!
//! The numbers of queues and services are given out again. An *identity* is not: each object
//! of a context has one, from 1 on, that no other object of this context ever has. A call that
//! names an identity is for that object alone and answers `ENOENT` when it is gone, also when
//! another has its number now; 0 means whoever has the number. Events carry the identity of
//! their object, and those that wait are dropped with it.

use super::wqe;

/// ioctl type byte of Berth.
pub const IOC_TYPE: u32 = 0xb7;

/// `_IOWR(IOC_TYPE, nr, size)` in the generic Linux encoding.
const fn iowr(nr: u32, size: usize) -> u32 {
    (3 << 30) | ((size as u32) << 16) | (IOC_TYPE << 8) | nr
}

/// Makes the descriptor a context of the calling process. Once per descriptor.
pub const IOC_CONTEXT: u32 = iowr(0x01, core::mem::size_of::<Context>());
/// Properties of the device and its name in the network. Works without a context.
pub const IOC_QUERY: u32 = iowr(0x02, core::mem::size_of::<Query>());
/// Sets the end node's name (CAP_NET_ADMIN). Works without a context.
pub const IOC_SET_NET: u32 = iowr(0x03, core::mem::size_of::<SetNet>());
/// Sets limits of the card (CAP_SYS_ADMIN) or of this context. Works without a context for the card's.
pub const IOC_SET_LIMITS: u32 = iowr(0x04, core::mem::size_of::<SetLimits>());
/// What this context has pinned.
pub const IOC_QUERY_CONTEXT: u32 = iowr(0x05, core::mem::size_of::<QueryContext>());
/// Limits that `ENOSPC` stands for, and what the caller's process and all have of each. Works without a context.
pub const IOC_QUERY_LIMITS: u32 = iowr(0x06, core::mem::size_of::<QueryLimits>());
/// Makes a completion queue.
pub const IOC_CREATE_CQ: u32 = iowr(0x10, core::mem::size_of::<CreateCq>());
/// Destroys a completion queue (`EBUSY` while a QP uses it).
pub const IOC_DESTROY_CQ: u32 = iowr(0x11, core::mem::size_of::<Handle>());
/// Makes a queue pair.
pub const IOC_CREATE_QP: u32 = iowr(0x12, core::mem::size_of::<CreateQp>());
/// Destroys a queue pair; returns when the card has let go of it.
pub const IOC_DESTROY_QP: u32 = iowr(0x13, core::mem::size_of::<Handle>());
/// Lets aliases be used again: waits for a while until the card has no memory under them (else `EBUSY`).
pub const IOC_ALIASES: u32 = iowr(0x16, core::mem::size_of::<Aliases>());
/// Says which memory the element that is about to be posted under an alias has, so that all of it is pinned when the card asks
/// for the first block (VC-7).
pub const IOC_WHOLE: u32 = iowr(0x1d, core::mem::size_of::<Whole>());
/// State of a queue pair.
pub const IOC_QUERY_QP: u32 = iowr(0x14, core::mem::size_of::<QueryQp>());
/// Changes when a queue pair's credit lists go, from the next one on (CR-5 to CR-9).
pub const IOC_SET_TRIGGER: u32 = iowr(0x15, core::mem::size_of::<SetTrigger>());
/// Sets or ends the maximum bandwidth of what a queue pair receives (CR-10). The sender keeps to it, as credits are withheld.
///
/// `EINVAL`: a rate of less than one byte in 2^14 cycles, a burst of 2^31 or more, one of them without the other.
pub const IOC_SET_CAP: u32 = iowr(0x17, core::mem::size_of::<SetCap>());
/// Makes a protection domain: queue pairs that are made in it let their peers use its keys (QP-11).
pub const IOC_CREATE_DOMAIN: u32 = iowr(0x18, core::mem::size_of::<Handle>());
/// Destroys a protection domain (`EBUSY` while queue pairs or regions are in it).
pub const IOC_DESTROY_DOMAIN: u32 = iowr(0x19, core::mem::size_of::<Handle>());
/// Registers memory of the process under a new key. Nothing is pinned, whatever the size.
pub const IOC_REGISTER: u32 = iowr(0x1a, core::mem::size_of::<Register>());
/// Binds a region's key to other memory or rights, or to nothing; a one-shot key is fresh again. When this returns, no access
/// under the old binding is under way.
pub const IOC_REBIND: u32 = iowr(0x1b, core::mem::size_of::<Register>());
/// Ends a region and its key. When this returns, no access is under way.
pub const IOC_DEREGISTER: u32 = iowr(0x1c, core::mem::size_of::<Handle>());
/// Listens to a service id, and gives the listener's identity; requests come as context events.
pub const IOC_LISTEN: u32 = iowr(0x20, core::mem::size_of::<Handle>());
/// Stops listening. Requests of this listener that have not been taken as events are rejected.
pub const IOC_UNLISTEN: u32 = iowr(0x21, core::mem::size_of::<Handle>());
/// Connects a queue pair to a service of a peer; the outcome comes as a context event.
pub const IOC_CONNECT: u32 = iowr(0x22, core::mem::size_of::<Connect>());
/// Accepts a request with a queue pair.
pub const IOC_ACCEPT: u32 = iowr(0x23, core::mem::size_of::<Accept>());
/// Rejects a request.
pub const IOC_REJECT: u32 = iowr(0x24, core::mem::size_of::<Accept>());
/// Ends a queue pair's connection.
pub const IOC_DISCONNECT: u32 = iowr(0x25, core::mem::size_of::<Handle>());
/// Takes the next context event (`EAGAIN` when there is none).
pub const IOC_GET_EVENT: u32 = iowr(0x26, core::mem::size_of::<ContextEvent>());
/// Gives a queue pair of message mode a peer that speaks plain RoCEv2, which is told nothing; the outcome comes as a context
/// event.
pub const IOC_SET_PEER: u32 = iowr(0x27, core::mem::size_of::<SetPeer>());
/// Copies counters. Works without a context.
pub const IOC_COUNTERS: u32 = iowr(0x30, core::mem::size_of::<Counters>());
/// Takes log bytes of the firmware (CAP_SYS_ADMIN). Works without a context.
pub const IOC_READ_LOG: u32 = iowr(0x31, core::mem::size_of::<ReadLog>());
/// Resets the card and loads the firmware anew (CAP_SYS_ADMIN); all contexts lose their objects. Works without a context.
pub const IOC_RESET: u32 = iowr(0x32, core::mem::size_of::<Handle>());
/// Makes the firmware panic, hang, or send any event, for tests (CAP_SYS_ADMIN, driver built with `BERTH_DEBUG`).
pub const IOC_CRASH: u32 = iowr(0x33, core::mem::size_of::<Crash>());

/// An object: a CQ, a QP, a protection domain, a region, a listener.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Handle {
    /// in: its number: CQN, QPN, key, service id; of a domain its number, which `IOC_CREATE_DOMAIN` gives out.
    pub value: u32,
    /// Must be zero.
    pub reserved: u32,
    /// in: its identity, or 0; of `IOC_LISTEN` and `IOC_CREATE_DOMAIN` out.
    pub identity: u64,
}

/// `IOC_CRASH`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Crash {
    /// in: what firmware is to do (`CRASH_*`).
    pub how: u32,
    /// Must be zero.
    pub reserved: u32,
    /// in: of `CRASH_EVENT` the event's first words.
    pub event: [u32; super::ring::CRASH_EVENT_WORDS],
}

/// `IOC_CONTEXT`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// in: `ABI_VERSION`.
    pub abi: u32,
    /// in: eventfd that is signalled when a context event waits, or -1.
    pub event_fd: i32,
    /// out: offset for mmap of the doorbell page (4096 bytes, write-only use).
    pub doorbell_offset: u64,
    /// out: address space number.
    pub asid: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// `IOC_QUERY`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    /// out: `ABI_VERSION`.
    pub abi: u32,
    /// out: `FwHeader::version`.
    pub fw_version: u32,
    /// out: `FW_*` state.
    pub fw_status: u32,
    /// out: its reason.
    pub fw_code: u32,
    /// out: QPs that the card has.
    pub max_qps: u32,
    /// out: CQs that the card has.
    pub max_cqs: u32,
    /// out: QPs that one process may have.
    pub max_qps_per_process: u32,
    /// out: IPv4 address, first byte in bits 31:24; 0 not set.
    pub ipv4: u32,
    /// out: path MTU in bytes.
    pub mtu: u32,
    /// out: card clock in Hz.
    pub clock_hz: u32,
    /// out: MAC address, and two zero bytes.
    pub mac: [u8; 8],
    /// out: GUID (QP-14).
    pub guid: u64,
    /// out: card cycles since reset.
    pub cycles: u64,
    /// out: pinned-memory budget of the card in bytes.
    pub card_budget: u64,
    /// out: pinned-memory budget of a process in bytes.
    pub process_budget: u64,
    /// out: linger time of unused pins in milliseconds.
    pub linger_ms: u32,
    /// out: first 12 bytes of the SHA-256 of the firmware's ELF file.
    pub elf_id: [u32; 3],
}

/// `IOC_SET_NET`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetNet {
    /// in: IPv4 address, first byte in bits 31:24.
    pub ipv4: u32,
    /// in: path MTU: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// in: MAC address (not multicast, not zero), and two zero bytes.
    pub mac: [u8; 8],
}

/// `IOC_SET_LIMITS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetLimits {
    /// in: which fields are meant: `LIMIT_*`.
    pub mask: u32,
    /// in: linger time of unused pins in milliseconds (card).
    pub linger_ms: u32,
    /// in: pinned-memory budget of the card in bytes, at least one page, at most `XLT_ENTRIES` pages.
    pub card_budget: u64,
    /// in: pinned-memory budget of this context in bytes, at least one page; at most the card's.
    pub context_budget: u64,
}
/// `SetLimits::mask`: `linger_ms`.
pub const LIMIT_LINGER: u32 = 1;
/// `SetLimits::mask`: `card_budget`.
pub const LIMIT_CARD_BUDGET: u32 = 2;
/// `SetLimits::mask`: `context_budget`.
pub const LIMIT_CONTEXT_BUDGET: u32 = 4;
/// `SetLimits::mask`: set the peak of pinned bytes to what is pinned now.
pub const LIMIT_RESET_PEAK: u32 = 8;

/// `IOC_QUERY_CONTEXT`. The card's figures, of all contexts together, are counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryContext {
    /// out: bytes pinned for this context now.
    pub pinned: u64,
    /// out: most bytes pinned for this context at any time since it was made.
    pub pinned_peak: u64,
    /// out: its pinned-memory budget in bytes, at most the card's.
    pub budget: u64,
}

/// A limit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// out: so many are there.
    pub taken: u32,
    /// out: there may be so many.
    pub most: u32,
}

/// `IOC_QUERY_LIMITS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryLimits {
    /// Contexts of the process (`max_process_contexts`).
    pub process_contexts: Taken,
    /// Contexts of all processes: address spaces and doorbell pages of the card.
    pub card_contexts: Taken,
    /// Completion queues of the process (`max_process_cqs`).
    pub process_cqs: Taken,
    /// Completion queues of the card.
    pub card_cqs: Taken,
    /// Queue pairs of the process (`max_process_qps`).
    pub process_qps: Taken,
    /// Queue pairs of the card.
    pub card_qps: Taken,
    /// Services that this context listens to (0 of none without a context).
    pub context_services: Taken,
    /// Services that are listened to on the card.
    pub card_services: Taken,
    /// Protection domains of this context (0 of none without a context).
    pub context_domains: Taken,
    /// Protection domains of the card.
    pub card_domains: Taken,
    /// Regions of this context (0 of none without a context).
    pub context_regions: Taken,
    /// Regions, and so keys, of the card.
    pub card_regions: Taken,
}

/// `IOC_CREATE_CQ`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateCq {
    /// in: entries wanted (1 to 32768), rounded up to a power of two. out: entries.
    pub entries: u32,
    /// in: eventfd that an armed notification signals, or -1.
    pub event_fd: i32,
    /// out: CQN.
    pub cqn: u32,
    /// out: bytes to map.
    pub bytes: u32,
    /// out: offset for mmap (`Cqe` ring).
    pub offset: u64,
    /// out: identity.
    pub identity: u64,
}

/// `IOC_CREATE_QP`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateQp {
    /// in: CQN for send completions.
    pub send_cqn: u32,
    /// in: CQN for receive completions.
    pub recv_cqn: u32,
    /// in: send queue depth (1 to `MAX_DEPTH`), rounded up to a power of two, and to `MIN_SQ_DEPTH`. out: depth.
    pub sq_depth: u32,
    /// in: receive queue depth (1 to `MAX_DEPTH`), rounded up to a power of two. out: depth.
    pub rq_depth: u32,
    /// in: `TRIGGER_*`.
    pub trigger: u32,
    /// in: for `TRIGGER_BETWEEN` to `TRIGGER_BEHIND` index of the trigger buffer, quarters, or buffers that follow.
    pub trigger_index: u32,
    /// in: longest credit list (1 to `MAX_LIST`, 0 default).
    pub max_list: u32,
    /// in: virtual-context block in bytes (multiple of 4096, to 1 MiB; 0 default).
    pub block: u32,
    /// in: acknowledgement time-out in card cycles (0 default).
    pub timeout: u32,
    /// in: retries (0 default, at most `MAX_RETRIES`).
    pub retries: u32,
    /// out: QPN.
    pub qpn: u32,
    /// out: bytes to map: the send queue, then at `rq_start` the receive queue.
    pub bytes: u32,
    /// out: offset for mmap.
    pub offset: u64,
    /// out: byte offset of the receive queue in the mapping.
    pub rq_start: u32,
    /// in: mode (CR-17): `MODE_*`.
    pub mode: u32,
    /// in: identity of the CQ for send completions, or 0.
    pub send_cq: u64,
    /// in: identity of the CQ for receive completions, or 0.
    pub recv_cq: u64,
    /// out: identity.
    pub identity: u64,
    /// in: protection domain whose keys the peer may use, or 0: none.
    pub domain: u32,
    /// in: in message mode, RDMA READ requests that it may have under way (0 to `MAX_READS`); no more than its peer takes.
    pub reads: u16,
    /// in: in message mode, RDMA READ requests that its peer may have under way here (0: none, to `MAX_READS`).
    pub peer_reads: u16,
    /// in: identity of that domain, or 0.
    pub domain_identity: u64,
    /// in: whether sends may choose how their memory reaches the card (VC-10): `ALIASES*`.
    pub aliases: u32,
    /// out: first of its aliases, 0: it has none. `ENOSPC` if `ALIASES` finds none free.
    pub first_alias: u32,
    /// in: how its credit lists go (CR-12): `CARRIER_*`.
    pub carrier: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// `CreateQp::aliases`: sends are posted at the process's own addresses: their memory is pinned (VC-2, VC-4).
pub const ALIASES_NONE: u32 = 0;
/// `CreateQp::aliases`: sends may be posted at addresses of [`alias_va`](super::alias::alias_va), and so choose how their memory
/// reaches the card (VC-10). `EOPNOTSUPP` without room for copies.
pub const ALIASES: u32 = 1;
/// `CreateQp::aliases`: likewise, if some are free and there is room.
pub const ALIASES_IF_FREE: u32 = 2;

/// `IOC_ALIASES`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Aliases {
    /// in: QPN.
    pub qpn: u32,
    /// in: first of the aliases, of those of the queue pair. All elements under them are complete.
    pub first: u32,
    /// in: how many (0: none).
    pub aliases: u32,
    /// in: elements since the last call that were posted at addresses of the process itself.
    pub pinned: u32,
    /// out: sends of up to so many bytes are cheaper by copy.
    pub copy_most: u32,
    /// Must be zero.
    pub reserved: u32,
    /// in: identity of the queue pair, or 0.
    pub identity: u64,
}

/// `IOC_WHOLE`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole {
    /// in: QPN.
    pub qpn: u32,
    /// in: alias of the element, of those whose sends are pinned as a whole.
    pub alias: u32,
    /// in: identity of the queue pair, or 0.
    pub identity: u64,
    /// in: ranges in use, at least 1.
    pub ranges: u32,
    /// Must be zero.
    pub reserved: u32,
    /// in: where the memory is in the process.
    pub range: [wqe::Sge; wqe::MAX_SGE],
}

/// `IOC_REGISTER`, `IOC_REBIND`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    /// in: virtual address of the first byte.
    pub va: u64,
    /// in: bytes. With an address of 0, 0: the key is bound to nothing.
    pub len: u64,
    /// in: protection domain (`IOC_REGISTER`).
    pub domain: u32,
    /// in: what peers may do, `RIGHT_*` of the rows.
    pub rights: u32,
    /// in: bit 0: the key serves one operation (QP-12); others must be zero.
    pub flags: u32,
    /// out: the key; of `IOC_REBIND` in.
    pub key: u32,
    /// in: identity of the domain (`IOC_REGISTER`), or 0.
    pub domain_identity: u64,
    /// out: identity of the region; of `IOC_REBIND` in, or 0.
    pub identity: u64,
}
/// Protection domains of a card; their numbers are 1 to this.
pub const MAX_DOMAINS: u32 = 255;
/// `Register::flags`: the key serves one operation.
pub const REGISTER_ONE_SHOT: u32 = 1;

/// Most retries that a QP may have: with more, and time-outs that double, a peer that is gone would not be noticed.
pub const MAX_RETRIES: u32 = 255;

/// `IOC_QUERY_QP`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryQp {
    /// in: QPN.
    pub qpn: u32,
    /// Must be zero.
    pub reserved: u32,
    /// in: its identity, or 0.
    pub identity: u64,
    /// out: its state.
    pub state: super::ring::QpState,
}

/// `IOC_SET_TRIGGER`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetTrigger {
    /// in: QPN.
    pub qpn: u32,
    /// in: `TRIGGER_*`.
    pub trigger: u32,
    /// in: its identity, or 0.
    pub identity: u64,
    /// in: as `CreateQp` has it.
    pub trigger_index: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// `IOC_SET_CAP`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetCap {
    /// in: QPN.
    pub qpn: u32,
    /// in: bytes that may land at once; 0: no maximum. A receive that is larger goes alone, and is paid for afterwards.
    pub burst: u32,
    /// in: its identity, or 0.
    pub identity: u64,
    /// in: bytes per second of card time; 0: no maximum.
    pub rate: u64,
}

/// `IOC_CONNECT`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Connect {
    /// in: QPN.
    pub qpn: u32,
    /// in: peer's IPv4 address, first byte in bits 31:24; the card's own means loopback (QP-18).
    pub ipv4: u32,
    /// in: service id (1 to 65535).
    pub service: u32,
    /// in: bytes of private data (0 to 32).
    pub private_len: u32,
    /// in: private data.
    pub private: [u8; 32],
    /// in: identity of the QP, or 0.
    pub identity: u64,
}

/// `IOC_SET_PEER`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SetPeer {
    /// in: QPN.
    pub qpn: u32,
    /// in: peer's IPv4 address, first byte in bits 31:24; the card's own means loopback (QP-18).
    pub ipv4: u32,
    /// in: QPN there (3 to 2^24 - 1).
    pub peer_qpn: u32,
    /// in: PSN of the first packet that goes (0 to 2^24 - 1).
    pub psn: u32,
    /// in: PSN of the first packet that comes (0 to 2^24 - 1).
    pub peer_psn: u32,
    /// in: path MTU in bytes: 256, 512, 1024, 2048 or 4096, no more than the device's.
    pub mtu: u32,
    /// in: time that the peer is to wait while there is no receive for it, as InfiniBand codes it (0 to 31).
    pub rnr_timer: u32,
    /// in: how often in a row the peer may have no receive for a packet before that fails (0 to 6; 7: any number of times).
    pub rnr_retries: u32,
    /// in: identity of the QP, or 0.
    pub identity: u64,
}

/// `IOC_ACCEPT`, `IOC_REJECT`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Accept {
    /// in: request id from the event.
    pub request: u32,
    /// in: QPN (accept), or 0 (reject).
    pub qpn: u32,
    /// in: bytes of private data (0 to 32).
    pub private_len: u32,
    /// Must be zero.
    pub reserved: u32,
    /// in: private data.
    pub private: [u8; 32],
    /// in: identity of the QP, or 0.
    pub identity: u64,
    /// in: identity of the listener, from the event, or 0. Firmware counts requests anew after a reset.
    pub listener: u64,
}

/// `IOC_GET_EVENT`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ContextEvent {
    /// out: `CTX_*`.
    pub kind: u32,
    /// out: QPN, or the request id of `CTX_REQUEST`.
    pub id: u32,
    /// out: service id (`CTX_REQUEST`), or `REASON_*` (`CTX_CLOSED`, `CTX_QP_ERROR`).
    pub value: u32,
    /// out: peer's IPv4 address.
    pub ipv4: u32,
    /// out: bytes of private data.
    pub private_len: u32,
    /// out: mode that `CTX_REQUEST` asks for (`MODE_*`), else 0.
    pub mode: u32,
    /// out: private data.
    pub private: [u8; 32],
    /// out: identity of the QP, or of the listener (`CTX_REQUEST`); 0 of `CTX_DEVICE_LOST`.
    pub identity: u64,
    /// out: of `CTX_QP_ERROR` with `REASON_ACCESS` or `REASON_NO_TARGET` the peer's access, if it is known: address of its
    /// first byte.
    pub va: u64,
    /// out: its bytes.
    pub len: u32,
    /// out: its key.
    pub key: u32,
    /// out: its `RIGHT_*`, else 0.
    pub right: u32,
    /// out: 0.
    pub reserved: u32,
}
/// A peer asks for a connection.
pub const CTX_REQUEST: u32 = 1;
/// A QP is connected.
pub const CTX_ESTABLISHED: u32 = 2;
/// A QP's connection is over, or did not come about.
pub const CTX_CLOSED: u32 = 3;
/// A QP went into error.
pub const CTX_QP_ERROR: u32 = 4;
/// The card was reset or is gone; every object of the context is lost, and so are the events before it.
pub const CTX_DEVICE_LOST: u32 = 5;

/// `IOC_COUNTERS`. There are more places than counters, so that the request stays the same when some are added; the
/// others are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    /// out: RTL counters (`RTL_COUNTER_TABLE`).
    pub rtl: [u64; 96],
    /// out: firmware counters (`FW_COUNTER_TABLE`).
    pub fw: [u64; 48],
    /// out: driver counters (`DRV_COUNTER_TABLE`).
    pub drv: [u64; 32],
}
impl Counters {
    /// All are 0.
    pub const ZERO: Self = Self {
        rtl: [0; 96],
        fw: [0; 48],
        drv: [0; 32],
    };
}
const _: () = assert!(super::counters::NUM_RTL_COUNTERS <= Counters::ZERO.rtl.len());
const _: () = assert!(super::counters::NUM_FW_COUNTERS <= Counters::ZERO.fw.len());
const _: () = assert!(super::counters::NUM_DRV_COUNTERS <= Counters::ZERO.drv.len());

/// `IOC_READ_LOG`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadLog {
    /// in: where to; out: unchanged.
    pub buffer: u64,
    /// in: bytes at `buffer`; out: bytes copied (0: nothing waits).
    pub bytes: u32,
    /// out: bytes lost because nobody read.
    pub lost: u32,
}
