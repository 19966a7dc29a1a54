// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Raw queues: whole Ethernet frames for the kernel, out of lists of ranges and into such, by filters.
//!
//! A raw queue has a send ring and a receive ring of [`RawWqe`] in the kernel's memory, and completes to completion queues
//! of the kernel (`CMD_CQ_CREATE` with doorbell page 0). All addresses are bus addresses. The driver fills elements,
//! then rings `DB_RAW_SQ` or `DB_RAW_RQ` with the producer index, as often as it likes. The elements of each ring complete in
//! their order. Their completions have the [`Cqe`](super::wqe::Cqe) of all others, whose
//!
//! * `wr_id` is the element's,
//! * `byte_len` are the bytes of the frame, without FCS,
//! * `qpn` is [`RAW_QPN`] + the queue's number,
//! * `opcode` is `OP_SEND` or `OP_RECV`, and `flags` and `remaining` are 0,
//! * `credit` says how many elements of the ring are complete with this one, modulo 2^16,
//! * `status` is `WC_OK`; `WC_BAD_WQE`: the element is malformed; `WC_LOCAL_PROTECTION`: its memory could not be read or
//!   written, or the element itself could not be read, which then has 0 for its `wr_id`. None of them stops the queue.
//!
//! A frame that is sent is 14 to [`RAW_FRAME_BYTES`] long. The card adds zeros up to 60 bytes, and no more. To its own address
//! it comes back.
//!
//! RoCE (UDP to port 4791) to the card's MAC address goes to none of the queues, except unreliable datagrams to other QPNs
//! than `CONTROL_QPN`, whose queue pairs are the kernel's. Each other frame goes to the queue of the
//! first filter that matches, else to the queue with [`RAW_DEFAULT`] (the lowest one), else to firmware as without raw
//! queues; ARP for the card's IPv4 address goes to firmware as well, so that the kernel may have the same address. But a
//! queue gets only frames to the card's own address, to all, to the address that the filter names, and what its flags say;
//! filters of a queue that does not want a frame do not match it. A frame of more bytes than the next receive holds is
//! dropped and counted (`C_RAW_TOO_LONG`), and the receive stays; one that finds no receive (`C_RAW_NO_RECEIVE`), or comes
//! while too many wait to be written (`C_RAW_NO_SLOT`), is dropped and counted too.

use super::Record;

use super::card::{NUM_CQS, RAW_FILTERS, RAW_QUEUES, SLOT_BYTES};
use super::message::{RawCreate, RawFilter, RawMode};
use super::wqe::Sge;

use super::wqe::{OP_RECV, OP_SEND, SEND_UNSIGNALLED};

/// Ranges of an element.
pub const RAW_SGES: usize = 3;
/// Bytes of an element; a ring is an array of them, indexed by the producer index modulo its depth.
pub const RAW_WQE_BYTES: u32 = 64;
/// Bytes of the longest frame, without FCS.
pub const RAW_FRAME_BYTES: u32 = SLOT_BYTES;
/// Bytes of the shortest frame that an element can have.
pub const RAW_LEAST_BYTES: u32 = 14;
/// Most bytes of a receive.
pub const RAW_RECEIVE_BYTES: u32 = 0xffff;
/// Least and most log2 of a ring's elements.
pub const RAW_LOG2: [u8; 2] = [3, 12];
/// Completions have this QPN plus the queue's number.
pub const RAW_QPN: u32 = 1 << 24;

table! {
    /// Flags of a raw queue, as (name, mask, text).
    RAW_FLAG_TABLE: u8 {
    /// It takes what no filter takes.
    RAW_DEFAULT = 1;
    /// It takes frames to all multicast addresses.
    RAW_MULTICAST = 2;
    /// It takes frames to any address.
    RAW_PROMISCUOUS = 4;
    }
}

table! {
    /// What a filter compares, as (name, mask, text).
    RAW_MATCH_TABLE: u8 {
    /// Type of the Ethernet frame.
    RAW_MATCH_ETHERTYPE = 1;
    /// Protocol of IPv4, or next header of IPv6.
    RAW_MATCH_PROTOCOL = 2;
    /// Destination port of UDP or TCP, in IPv4 that is no later fragment, or directly in IPv6.
    RAW_MATCH_PORT = 4;
    /// Destination MAC address.
    RAW_MATCH_MAC = 8;
    }
}

elements! {
    /// An element of a raw queue.
    RawWqe {
        /// `OP_SEND` or `OP_RECV`, fitting the ring.
        opcode: u8,
        /// Of a send 0 or `SEND_UNSIGNALLED`: there is no completion if it succeeds. Of a receive 0.
        flags: u8,
        /// Ranges in use, 1 to `RAW_SGES`. The others are not looked at.
        num_sge: u16,
        /// Sum of their lengths; must match. Of a send 14 to `RAW_FRAME_BYTES`, of a receive 1 to `RAW_RECEIVE_BYTES`.
        length: u32,
        /// The driver's own, returned in the completion.
        wr_id: u64,
        /// Bus addresses in `va`. Each has 1 byte or more.
        sge: [Sge; RAW_SGES],
    }
}

impl RawWqe {
    /// Whether the card takes it as a send, else as a receive.
    pub fn is_sound(&self, send: bool) -> bool {
        let (opcode, flags, bytes) = if send {
            (OP_SEND, SEND_UNSIGNALLED, RAW_LEAST_BYTES..=RAW_FRAME_BYTES)
        } else {
            (OP_RECV, 0, 1..=RAW_RECEIVE_BYTES)
        };
        let n = usize::from(self.num_sge);
        let Some(sges) = self.sge.get(..n) else {
            return false;
        };
        let whole: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        self.opcode == opcode
            && self.flags & !flags == 0
            && n != 0
            && bytes.contains(&self.length)
            && whole == u64::from(self.length)
            && sges.iter().all(|sge| sge.len != 0 && sge.reserved == 0)
    }

    /// Its words, as they stand in the ring.
    pub fn words(&self) -> [u64; RAW_WQE_BYTES as usize / 8] {
        let mut words = [0; RAW_WQE_BYTES as usize / 8];
        words[0] = u64::from(self.opcode)
            | u64::from(self.flags) << 8
            | u64::from(self.num_sge) << 16
            | u64::from(self.length) << 32;
        words[1] = self.wr_id;
        for (pair, sge) in words[2..].chunks_exact_mut(2).zip(&self.sge) {
            pair[0] = sge.va;
            pair[1] = u64::from(sge.len) | u64::from(sge.reserved) << 32;
        }
        words
    }
}

impl RawCreate {
    /// Whether all fields are in range; completion queues must exist besides.
    pub fn is_sound(&self) -> bool {
        let depth = RAW_LOG2[0]..=RAW_LOG2[1];
        u32::from(self.queue) < RAW_QUEUES
            && depth.contains(&self.log2_sq)
            && depth.contains(&self.log2_rq)
            && u32::from(self.send_cqn) < NUM_CQS
            && u32::from(self.recv_cqn) < NUM_CQS
            && self.flags & !(RAW_DEFAULT | RAW_MULTICAST | RAW_PROMISCUOUS) == 0
            && (self.sq_base | self.rq_base) & 0xfff == 0
    }
}

impl RawMode {
    /// Whether all fields are in range.
    pub fn is_sound(&self) -> bool {
        u32::from(self.queue) < RAW_QUEUES
            && self.flags & !(RAW_DEFAULT | RAW_MULTICAST | RAW_PROMISCUOUS) == 0
    }
}

impl RawFilter {
    /// Whether all fields are in range.
    pub fn is_sound(&self) -> bool {
        const ALL: u8 = RAW_MATCH_ETHERTYPE | RAW_MATCH_PROTOCOL | RAW_MATCH_PORT | RAW_MATCH_MAC;
        u32::from(self.filter) < RAW_FILTERS
            && u32::from(self.queue) < RAW_QUEUES
            && self.fields & !ALL == 0
    }
}

/// `CPU_RAW_GO`: makes the queue.
pub const RAW_GO_CREATE: u32 = 1;
/// `CPU_RAW_GO`: ends the queue, and its filters.
pub const RAW_GO_END: u32 = 2;
/// `CPU_RAW_GO`: sets the queue's flags.
pub const RAW_GO_MODE: u32 = 3;
/// `CPU_RAW_GO`: sets a filter.
pub const RAW_GO_FILTER: u32 = 4;

records! { u32;
    /// `CPU_RAW_W0` for a queue.
    RawAttr {
        /// `RAW_*` flags.
        flags: 26 24,
        /// log2 of the receive ring's elements.
        log2_rq: 19 16,
        /// log2 of the send ring's elements.
        log2_sq: 11 8,
        /// Queue.
        number: 7 0,
    }
    /// `CPU_RAW_W0` + 4 for a queue that is made; behind it both bases, that of the send ring first.
    RawCqs {
        /// CQN for receives.
        recv: 31 16,
        /// CQN for sends.
        send: 15 0,
    }
    /// `CPU_RAW_W0` for a filter.
    RawFilterAttr {
        /// Protocol.
        protocol: 31 24,
        /// `RAW_MATCH_*`; 0 ends the filter.
        fields: 19 16,
        /// Queue.
        target: 15 8,
        /// Filter.
        filter: 7 0,
    }
    /// `CPU_RAW_W0` + 4 for a filter; behind it bytes 0 to 3 of the MAC address, byte 0 in the highest bits, then bytes 4 and 5.
    RawFilterPorts {
        /// Destination port.
        port: 31 16,
        /// Type of the frame.
        ethertype: 15 0,
    }
}
