// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! The messages of the two rings as types: a struct for each command and each event, with `encode` and `decode`.
//!
//! A field has a word, and the lowest bit of its place in it. What `ring` says about opcodes and kinds is the meaning of
//! the whole; here is where its parts lie.

use super::card::CONTROL_QPN;
use super::ring::*;
use super::rows::recv::{RIGHT_ATOMIC, RIGHT_READ, RIGHT_WRITE};

/// All `RIGHT_*` that a key can give.
pub const ALL_RIGHTS: u32 = RIGHT_READ | RIGHT_WRITE | RIGHT_ATOMIC;

/// Word of a message whose bits 7:0 are its [`code`].
pub const CODE: usize = 0;
/// Word of a command that its answer repeats.
pub const COOKIE: usize = 1;

/// An entry of either ring.
pub type Entry = [u32; ENTRY_WORDS];

/// The opcode of a command, or the kind of an event.
pub const fn code(entry: &Entry) -> u32 {
    entry[CODE] & 0xff
}

/// A type of messages.
pub trait Typed: Copy {
    /// The message, if the entry is one of this type.
    fn of(entry: &Entry) -> Option<Self>;
}

/// A number that lies in an entry, from bit `low` of word `word` on. Words that do not exist read as 0, and take nothing.
trait Part: Sized {
    /// Writes it.
    fn put(self, entry: &mut Entry, word: usize, low: u32);
    /// Reads it.
    fn get(entry: &Entry, word: usize, low: u32) -> Self;
}

macro_rules! parts {
    ($($int:ty)+) => {$(
        impl Part for $int {
            fn put(self, entry: &mut Entry, word: usize, low: u32) {
                if let Some(place) = entry.get_mut(word) {
                    *place = *place & !(u32::from(<$int>::MAX) << low) | u32::from(self) << low;
                }
            }

            fn get(entry: &Entry, word: usize, low: u32) -> Self {
                entry.get(word).map_or(0, |place| (place >> low) as $int)
            }
        }
    )+};
}
parts!(u8 u16 u32);

impl Part for u64 {
    fn put(self, entry: &mut Entry, word: usize, _: u32) {
        (self as u32).put(entry, word, 0);
        ((self >> 32) as u32).put(entry, word + 1, 0);
    }

    fn get(entry: &Entry, word: usize, _: u32) -> Self {
        super::wide(u32::get(entry, word, 0), u32::get(entry, word + 1, 0))
    }
}

impl Part for bool {
    fn put(self, entry: &mut Entry, word: usize, low: u32) {
        if let Some(place) = entry.get_mut(word) {
            *place = *place & !(1 << low) | u32::from(self) << low;
        }
    }

    fn get(entry: &Entry, word: usize, low: u32) -> Self {
        entry.get(word).is_some_and(|place| place >> low & 1 != 0)
    }
}

impl<const N: usize> Part for [u32; N] {
    fn put(self, entry: &mut Entry, word: usize, _: u32) {
        for (place, value) in entry.iter_mut().skip(word).zip(self) {
            *place = value;
        }
    }

    fn get(entry: &Entry, word: usize, _: u32) -> Self {
        let mut words = [0; N];
        for (value, place) in words.iter_mut().zip(entry.iter().skip(word)) {
            *value = *place;
        }
        words
    }
}

/// A message for the documentation: its type's name, its opcode or kind, and its fields, each as (name, word, lowest bit,
/// type, text).
#[derive(Debug)]
pub struct Message {
    /// As the type is called.
    pub name: &'static str,
    /// `CMD_*` or `EV_*`.
    pub code: u32,
    /// Its fields.
    pub fields: &'static [(&'static str, u32, u32, &'static str, &'static str)],
}

macro_rules! messages {
    ($(#[$tmeta:meta])* $table:ident {
        $($(#[doc = $doc:literal])+ $name:ident = $code:ident {
            $($(#[doc = $fdoc:literal])+ $field:ident: $type:ty = $word:literal $(. $low:literal)?,)*
        })+
    }) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $($(#[doc = $fdoc])+ pub $field: $type,)*
            }

            impl $name {
                /// Its opcode or kind.
                pub const CODE: u32 = $code;

                /// The entry. Whoever sends it adds a command's [`COOKIE`], or an event's phase.
                #[must_use]
                pub fn encode(self) -> Entry {
                    let mut entry = [0; ENTRY_WORDS];
                    entry[CODE] = $code;
                    $(self.$field.put(&mut entry, $word, messages!(@low $($low)?));)*
                    entry
                }

                /// The message that an entry has, whose code must have been looked at.
                #[must_use]
                pub fn decode(entry: &Entry) -> Self {
                    let _ = entry;
                    Self { $($field: Part::get(entry, $word, messages!(@low $($low)?)),)* }
                }
            }

            impl Typed for $name {
                fn of(entry: &Entry) -> Option<Self> {
                    (code(entry) == Self::CODE).then(|| Self::decode(entry))
                }
            }
        )+
        $(#[$tmeta])*
        pub const $table: &[Message] = &[$(Message {
            name: stringify!($name),
            code: $code,
            fields: &[$((
                stringify!($field),
                $word,
                messages!(@low $($low)?),
                stringify!($type),
                concat!($($fdoc),+),
            ),)*],
        },)+];
    };
    (@low) => { 0 };
    (@low $low:literal) => { $low };
}

messages! {
    /// Commands of one shape. `CMD_PAGE_INSTALL` and `CMD_PAGE_EVICT` have up to as many pages as fit: see `install_add` and `evict_add`.
    COMMANDS {
    /// Answers a page request.
    PageReady = CMD_PAGE_READY {
        /// Tag of the `EV_PAGE_NEED`.
        tag: u32 = 1,
        /// `PAGE_*`.
        status: u32 = 2,
    }
    /// Drops a page.
    PageRevoke = CMD_PAGE_REVOKE {
        /// Index in the translation table.
        index: u32 = 1,
    }
    /// Waits for all DMA that is under way.
    Fence = CMD_FENCE {
        /// What is written to `HOST_FENCE` then.
        token: u64 = 2,
    }
    /// Names this end node.
    NetConfig = CMD_NET_CONFIG {
        /// IPv4 address, its first byte in the highest bits.
        ipv4: u32 = 2,
        /// Bytes 0 to 3 of the MAC address, byte 0 in the highest bits.
        mac_first: u32 = 3,
        /// Bytes 4 and 5, byte 4 in the higher bits.
        mac_last: u32 = 4,
        /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096.
        mtu: u32 = 5,
        /// GUID.
        guid: u64 = 6,
        /// Random bits, new with each command: PSNs, epochs and incarnations follow from them.
        key: [u32; 4] = 8,
    }
    /// Makes a completion queue.
    CqCreate = CMD_CQ_CREATE {
        /// Its number.
        cqn: u32 = 2,
        /// Doorbell page of its process.
        uar: u32 = 3,
        /// log2 of its entries, 1 to 15.
        log2_entries: u32 = 4,
        /// Bus address of the ring.
        base: u64 = 6,
    }
    /// Ends a completion queue.
    CqDestroy = CMD_CQ_DESTROY {
        /// Its number.
        cqn: u32 = 2,
    }
    /// Makes a queue pair.
    QpCreate = CMD_QP_CREATE {
        /// QPN, `FIRST_QPN` to `FIRST_QPN + NUM_QPS - 1`.
        qpn: u32 = 2,
        /// Address space of the process.
        asid: u8 = 3 . 0,
        /// Its doorbell page.
        uar: u8 = 3 . 8,
        /// log2 of the send queue's depth (`MIN_SQ_DEPTH` to `MAX_DEPTH`).
        log2_sq: u8 = 3 . 16,
        /// log2 of the receive queue's depth (1 to `MAX_DEPTH`).
        log2_rq: u8 = 3 . 24,
        /// CQN for sends.
        send_cqn: u16 = 4 . 0,
        /// CQN for receives.
        recv_cqn: u16 = 4 . 16,
        /// Trigger kind (CR-5): `TRIGGER_*`.
        trigger: u8 = 5 . 0,
        /// For `TRIGGER_BETWEEN` to `TRIGGER_BEHIND`: index of the buffer in the list, quarters, or buffers that follow.
        trigger_index: u8 = 5 . 8,
        /// Longest credit list to send, 1 to `MAX_LIST`; 0 takes `MAX_LIST`.
        max_list: u8 = 5 . 16,
        /// Mode (CR-17): `MODE_*`.
        mode: u8 = 5 . 24,
        /// Largest virtual-context block in bytes: a multiple of 4096 up to 1 MiB; 0 takes 64 KiB.
        block: u32 = 6,
        /// How its credit lists go (CR-12): `CARRIER_*`.
        carrier: u8 = 7 . 0,
        /// Bus address of the send queue: a multiple of 4096.
        sq_base: u64 = 8,
        /// Bus address of the receive queue.
        rq_base: u64 = 10,
        /// Acknowledgement time-out in card cycles; 0 takes the default.
        timeout: u32 = 12,
        /// Retries before the peer counts as lost; 0 takes the default (7).
        retries: u32 = 13,
        /// Protection domain whose keys its peer may use; 0: none.
        domain: u16 = 14 . 0,
        /// In message mode: RDMA READ requests that it may have under way, 0 to `MAX_READS`; no more than its peer takes (verbs call it `max_rd_atomic`).
        reads: u8 = 14 . 16,
        /// In message mode: RDMA READ requests that its peer may have under way here, 0 (none) to `MAX_READS` (`max_dest_rd_atomic`).
        peer_reads: u8 = 14 . 24,
    }
    /// Ends a queue pair.
    QpDestroy = CMD_QP_DESTROY {
        /// Its number.
        qpn: u32 = 2,
    }
    /// Listens.
    Listen = CMD_CM_LISTEN {
        /// Service id, 1 to 65535.
        service: u32 = 2,
    }
    /// Listens no more.
    Unlisten = CMD_CM_UNLISTEN {
        /// Service id.
        service: u32 = 2,
    }
    /// Asks a peer for a connection.
    Connect = CMD_CM_CONNECT {
        /// QP that is to be connected.
        qpn: u32 = 2,
        /// The peer's IPv4 address.
        ipv4: u32 = 3,
        /// Service id there.
        service: u32 = 4,
        /// Bytes of private data, up to `PRIVATE_DATA`.
        private_len: u32 = 5,
        /// Private data.
        private: [u32; PRIVATE_DATA / 4] = 8,
    }
    /// Accepts a request.
    Accept = CMD_CM_ACCEPT {
        /// Id of the `EV_CM_REQUEST`.
        request: u32 = 2,
        /// QP for it, of the mode that it names.
        qpn: u32 = 3,
        /// Bytes of private data, up to `PRIVATE_DATA`.
        private_len: u32 = 5,
        /// Private data.
        private: [u32; PRIVATE_DATA / 4] = 8,
    }
    /// Refuses a request.
    Reject = CMD_CM_REJECT {
        /// Id of the `EV_CM_REQUEST`.
        request: u32 = 2,
        /// `REASON_BUSY` if others may ask in its place later, else 0.
        reason: u32 = 3,
        /// Bytes of private data, up to `PRIVATE_DATA`.
        private_len: u32 = 5,
        /// Private data.
        private: [u32; PRIVATE_DATA / 4] = 8,
    }
    /// Ends a connection.
    Disconnect = CMD_CM_DISCONNECT {
        /// QP.
        qpn: u32 = 2,
    }
    /// Says that memory is gone.
    RangeRevoked = CMD_RANGE_REVOKED {
        /// Address space.
        asid: u32 = 2,
        /// Virtual address of its first byte.
        va: u64 = 4,
        /// Bytes.
        len: u64 = 6,
    }
    /// Says that page requests wait for budget.
    Pressure = CMD_PRESSURE {
        /// Address space; 0: all.
        asid: u32 = 2,
        /// Bytes that are wanted.
        bytes: u32 = 3,
    }
    /// Asks for a queue pair's state.
    QpQuery = CMD_QP_QUERY {
        /// Its number.
        qpn: u32 = 2,
    }
    /// Gives receives of a queue pair back.
    QpRecall = CMD_QP_RECALL {
        /// Its number.
        qpn: u32 = 2,
    }
    /// Changes when a queue pair's credit lists go.
    QpTrigger = CMD_QP_TRIGGER {
        /// Its number.
        qpn: u32 = 2,
        /// `TRIGGER_*`.
        trigger: u8 = 3 . 0,
        /// As `QpCreate` has it.
        trigger_index: u8 = 3 . 8,
    }
    /// Sets or ends the maximum bandwidth of what a queue pair receives (CR-10).
    QpCap = CMD_QP_CAP {
        /// Its number.
        qpn: u32 = 2,
        /// `CAP_PARTS` of a byte in `ROW_CLOCK` cycles, 1 to `CAP_RATE_MAX`; with no burst it says nothing.
        rate: u32 = 3,
        /// Bytes at once, at most `CAP_BURST_MAX`; 0: no maximum.
        burst: u32 = 4,
    }
    /// Breaks firmware, for tests.
    Crash = CMD_CRASH {
        /// `CRASH_*`.
        how: u32 = 2,
        /// Of `CRASH_EVENT`: the event from its word 0 on.
        event: [u32; CRASH_EVENT_WORDS] = 3,
    }
    /// Makes a key.
    KeyRegister = CMD_KEY_REGISTER {
        /// Address space that its range lies in.
        asid: u8 = 2 . 0,
        /// `RIGHT_*`.
        rights: u8 = 2 . 8,
        /// Protection domain, not 0.
        domain: u16 = 2 . 16,
        /// For one operation only (QP-12).
        one_shot: bool = 3,
        /// Virtual address of the first byte.
        va: u64 = 4,
        /// Bytes.
        len: u64 = 6,
        /// Random bits that the key is drawn from.
        entropy: u64 = 8,
    }
    /// Binds a key anew.
    KeyBind = CMD_KEY_BIND {
        /// Address space.
        asid: u8 = 2 . 0,
        /// `RIGHT_*`.
        rights: u8 = 2 . 8,
        /// For one operation only (QP-12).
        one_shot: bool = 3,
        /// Virtual address of the first byte.
        va: u64 = 4,
        /// Bytes.
        len: u64 = 6,
        /// The key; a BIND may have given it other lowest 8 bits.
        key: u32 = 8,
    }
    /// Ends a key.
    KeyFree = CMD_KEY_FREE {
        /// Address space.
        asid: u8 = 2 . 0,
        /// The key; a BIND may have given it other lowest 8 bits.
        key: u32 = 3,
    }
    /// Ends all keys of an address space.
    KeysDrop = CMD_KEYS_DROP {
        /// Address space.
        asid: u8 = 2 . 0,
    }
    /// Says who a queue pair's peer is.
    QpPeer = CMD_QP_PEER {
        /// QP that gets the peer.
        qpn: u32 = 2,
        /// The peer's IPv4 address.
        ipv4: u32 = 3,
        /// QPN there, 3 to 2^24 - 1.
        peer_qpn: u32 = 4,
        /// PSN of the first packet that goes, up to 2^24 - 1.
        psn: u32 = 5,
        /// PSN of the first packet that comes, likewise.
        peer_psn: u32 = 6,
        /// Path MTU in bytes: 256 to 4096, no more than the end node's.
        mtu: u32 = 7,
        /// Time that the peer is to wait while there is no receive for it, as InfiniBand codes it (0 to 31; verbs call it `min_rnr_timer`).
        rnr_timer: u32 = 8,
        /// How often in a row the peer may have no receive for a packet before that fails: 0 to 6; 7: any number of times.
        rnr_retries: u32 = 9,
        /// Acknowledgement time-out in cycles (0: as the QP was made).
        timeout: u32 = 10,
        /// Retries (0: as the QP was made, up to 255).
        retries: u8 = 11 . 0,
        /// RDMA READ requests under way that the peer takes; no more go than the QP was made for.
        reads: u8 = 11 . 8,
        /// `RIGHT_*` that no key gives the peer by this QP.
        denies: u8 = 11 . 16,
        /// The peer's MAC address, bytes 0 to 3, byte 0 in the highest bits; 0 with `mac_last`: to be found out by ARP.
        mac_first: u32 = 12,
        /// Bytes 4 and 5, byte 4 in the higher bits.
        mac_last: u32 = 13,
        /// The queue pair only receives until another such command comes for it, without this, which says what concerns sending;
        /// nothing is to be posted to its send queue before. Doorbells that ring while the second one is carried out are to ring again.
        receives_only: bool = 14,
        /// The peer is a Berth as well: both cards agree on credit lists, and neither looks at the PSNs and the timers of the
        /// other's host.
        berth: bool = 15,
    }
    /// Makes a raw queue.
    RawCreate = CMD_RAW_CREATE {
        /// Its number, below `RAW_QUEUES`.
        queue: u8 = 2 . 0,
        /// log2 of the send ring's elements, 3 to 12.
        log2_sq: u8 = 2 . 8,
        /// log2 of the receive ring's elements, 3 to 12.
        log2_rq: u8 = 2 . 16,
        /// `RAW_DEFAULT`, `RAW_MULTICAST`, `RAW_PROMISCUOUS`.
        flags: u8 = 2 . 24,
        /// CQN for sends.
        send_cqn: u16 = 3 . 0,
        /// CQN for receives.
        recv_cqn: u16 = 3 . 16,
        /// Bus address of the send ring: a multiple of 4096.
        sq_base: u64 = 4,
        /// Bus address of the receive ring: a multiple of 4096.
        rq_base: u64 = 6,
    }
    /// Ends a raw queue.
    RawDestroy = CMD_RAW_DESTROY {
        /// Its number.
        queue: u8 = 2 . 0,
    }
    /// Sets the flags of a raw queue.
    RawMode = CMD_RAW_MODE {
        /// Its number.
        queue: u8 = 2 . 0,
        /// `RAW_DEFAULT`, `RAW_MULTICAST`, `RAW_PROMISCUOUS`.
        flags: u8 = 2 . 24,
    }
    /// Sets a filter.
    RawFilter = CMD_RAW_FILTER {
        /// Its number, below `RAW_FILTERS`: the lowest one that matches decides.
        filter: u8 = 2 . 0,
        /// Raw queue that gets the frames.
        queue: u8 = 2 . 8,
        /// `RAW_MATCH_*` of what is compared, all of which must match; 0 ends the filter.
        fields: u8 = 2 . 16,
        /// Protocol of IPv4, or next header of IPv6.
        protocol: u8 = 2 . 24,
        /// Type of the Ethernet frame.
        ethertype: u16 = 3 . 0,
        /// Destination port of UDP or TCP.
        port: u16 = 3 . 16,
        /// Bytes 0 to 3 of the destination MAC address, byte 0 in the highest bits.
        mac_first: u32 = 4,
        /// Bytes 4 and 5, byte 4 in the higher bits.
        mac_last: u32 = 5,
    }
    }
}

impl Connect {
    /// Whether all that it names can be connected to: a host, a service number of 16 bits, as much private data as there is room for.
    pub const fn in_range(&self) -> bool {
        is_host(self.ipv4)
            && self.service != 0
            && self.service >> 16 == 0
            && self.private_len as usize <= PRIVATE_DATA
    }
}

impl QpPeer {
    /// The peer's MAC address as the host has found it out; `None`: firmware is to.
    pub const fn mac(&self) -> Option<[u8; 6]> {
        let ([a, b, c, d], [_, _, e, f]) =
            (self.mac_first.to_be_bytes(), self.mac_last.to_be_bytes());
        match (self.mac_first, self.mac_last) {
            (0, 0) => None,
            _ => Some([a, b, c, d, e, f]),
        }
    }

    /// Names this MAC address.
    pub const fn with_mac(mut self, mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        self.mac_first = u32::from_be_bytes([a, b, c, d]);
        self.mac_last = u32::from_be_bytes([0, 0, e, f]);
        self
    }

    /// Whether each of its fields is one that InfiniBand has; the end node's own path MTU may be less than `mtu`.
    pub const fn in_range(&self) -> bool {
        is_host(self.ipv4)
            && self.peer_qpn > CONTROL_QPN
            && self.peer_qpn <= MAX_QPN
            && self.psn <= MAX_QPN
            && self.peer_psn <= MAX_QPN
            && is_mtu(self.mtu)
            && self.rnr_timer <= MAX_RNR_TIMER
            && self.rnr_retries <= RNR_FOR_EVER
            && self.denies as u32 & !ALL_RIGHTS == 0
            && self.mac_first >> 24 & 1 == 0
            && self.mac_last >> 16 == 0
    }
}

messages! {
    /// Events. `EV_PAGE_EVICTED` has the pages of its command: see `evicted_pages`.
    EVENTS {
    /// Pages are needed.
    PageNeed = EV_PAGE_NEED {
        /// Tag for the answer, see `TAG_*`.
        tag: u32 = 1,
        /// Address space.
        asid: u32 = 2,
        /// The card will write.
        write: bool = 3,
        /// Virtual address.
        va: u64 = 4,
        /// Bytes.
        len: u32 = 6,
    }
    /// A range is not in use any more.
    PageRelease = EV_PAGE_RELEASE {
        /// Tag of the `EV_PAGE_NEED`.
        tag: u32 = 1,
        /// Address space.
        asid: u32 = 2,
        /// The card has written.
        wrote: bool = 3,
        /// Virtual address.
        va: u64 = 4,
        /// Bytes.
        len: u32 = 6,
    }
    /// A notification has fired.
    CqNotify = EV_CQ_NOTIFY {
        /// Completion queue.
        cqn: u32 = 1,
    }
    /// A completion was lost.
    CqOverrun = EV_CQ_OVERRUN {
        /// Completion queue.
        cqn: u32 = 1,
        /// QP that it was for.
        qpn: u32 = 2,
    }
    /// A command is done.
    CmdDone = EV_CMD_DONE {
        /// Cookie of the command.
        cookie: u32 = 1,
        /// `CMD_*` status.
        status: u32 = 2,
        /// What it gives: of `CMD_PRESSURE` a QPN, of `CMD_QP_QUERY` a `QpState`, of `CMD_KEY_REGISTER` a key.
        results: [u32; EVENT_PHASE - 3] = 3,
    }
    /// A peer asks for a connection.
    CmRequest = EV_CM_REQUEST {
        /// Its id.
        request: u32 = 1,
        /// The peer's IPv4 address.
        ipv4: u32 = 2,
        /// Service id.
        service: u32 = 3,
        /// `MODE_*` that the QP must have that accepts it.
        mode: u32 = 4,
        /// Bytes of private data.
        private_len: u32 = 5,
        /// Private data.
        private: [u32; PRIVATE_DATA / 4] = 7,
    }
    /// A QP is connected.
    CmEstablished = EV_CM_ESTABLISHED {
        /// QP.
        qpn: u32 = 1,
        /// The peer's IPv4 address.
        ipv4: u32 = 2,
        /// The peer's QPN.
        peer_qpn: u32 = 3,
        /// Bytes of private data.
        private_len: u32 = 5,
        /// Private data.
        private: [u32; PRIVATE_DATA / 4] = 7,
    }
    /// A connection is over or did not come about.
    CmClosed = EV_CM_CLOSED {
        /// QP.
        qpn: u32 = 1,
        /// `REASON_*`.
        reason: u32 = 2,
        /// Bytes of private data, of a reject.
        private_len: u32 = 5,
        /// Private data.
        private: [u32; PRIVATE_DATA / 4] = 7,
    }
    /// A QP went into error.
    QpError = EV_QP_ERROR {
        /// QP.
        qpn: u32 = 1,
        /// `REASON_*`.
        reason: u32 = 2,
        /// With `REASON_ACCESS` and `REASON_NO_TARGET` the access of the peer, if it is known: its `RIGHT_*`, else 0.
        right: u32 = 3,
        /// Its key.
        key: u32 = 4,
        /// Virtual address of its first byte.
        va: u64 = 5,
        /// Bytes.
        len: u32 = 7,
    }
    /// Log of firmware.
    FwLog = EV_LOG {
        /// Bytes, up to `EVENT_LOG_BYTES`.
        len: u32 = 1,
        /// The bytes.
        data: [u32; EVENT_LOG_BYTES / 4] = 2,
    }
    /// A request is over without an answer of the host.
    CmRequestOver = EV_CM_REQUEST_OVER {
        /// Its id.
        request: u32 = 1,
    }
    }
}
