// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw queues: whole Ethernet frames for the kernel. Which queue a frame goes to, and how it is cut over the ranges of an
//! element; whether an element is sound stands with the layout ([`berth_abi::raw::RawWqe::is_sound`]).

use berth_abi::card::CONTROL_QPN;
use berth_abi::raw::{
    RAW_DEFAULT, RAW_MATCH_ETHERTYPE, RAW_MATCH_MAC, RAW_MATCH_PORT, RAW_MATCH_PROTOCOL, RAW_MULTICAST,
    RAW_PROMISCUOUS, RawWqe,
};
use berth_abi::wire::{BTH_UD_SEND_ONLY, BTH_UD_SEND_ONLY_IMM};

/// An Ethernet address, its first byte in bits 47:40.
pub type Address = u64;
/// The address of all.
pub const BROADCAST: Address = 0xffff_ffff_ffff;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_ARP: u16 = 0x0806;
const TYPE_IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What a filter compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `RAW_MATCH_*`; 0: there is no such filter.
    pub fields: u8,
    /// Queue that gets the frames.
    pub queue: usize,
    /// Protocol of IPv4, or next header of IPv6.
    pub protocol: u8,
    /// Type of the frame.
    pub ethertype: u16,
    /// Destination port.
    pub port: u16,
    /// Destination address.
    pub mac: Address,
}

/// What decides whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules<const QUEUES: usize, const FILTERS: usize> {
    /// The card's Ethernet and IPv4 addresses; an Ethernet address of 0: it has none yet.
    pub own: (Address, u32),
    /// Flags (`RAW_*`) of the queues that there are.
    pub queues: [Option<u8>; QUEUES],
    /// Filters.
    pub filters: [Filter; FILTERS],
}

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The card's own, or nobody else's.
    Core,
    /// A queue's.
    Queue(usize),
    /// A queue's first, and then the card's own too, also if the queue drops it: ARP for the card's IPv4 address, which the
    /// kernel may have as well.
    Both(usize),
    /// It is dropped.
    None,
}

/// Two bytes of a frame; 0 behind its end.
fn be16(frame: &[u8], at: usize) -> u16 {
    frame.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

fn be32(frame: &[u8], at: usize) -> u32 {
    u32::from(be16(frame, at)) << 16 | u32::from(be16(frame, at + 2))
}

/// Whether a RoCE frame is an unreliable datagram that is no credit list: its queue pair is the kernel's.
fn is_datagram(frame: &[u8]) -> bool {
    // The BTH stands behind Ethernet, IPv4 without options and UDP.
    matches!(frame.get(42), Some(&(BTH_UD_SEND_ONLY | BTH_UD_SEND_ONLY_IMM)))
        && be32(frame, 46) & 0xff_ffff != CONTROL_QPN
}

/// Protocol above IP and destination port, as far as a frame has them.
fn upper(frame: &[u8], ethertype: u16) -> (Option<u8>, Option<u16>) {
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let first = byte(14);
    let (protocol, at, ported) = match ethertype {
        TYPE_IPV4 if first >> 4 == 4 && first & 15 >= 5 && frame.len() >= 34 => {
            let later = be16(frame, 20) & 0x1fff != 0;
            (byte(23), 14 + 4 * usize::from(first & 15), !later)
        }
        TYPE_IPV6 if first >> 4 == 6 && frame.len() >= 54 => (byte(20), 54, true),
        _ => return (None, None),
    };
    let ported = ported && (protocol == TCP || protocol == UDP) && frame.len() >= at + 4;
    (Some(protocol), ported.then(|| be16(frame, at + 2)))
}

impl<const QUEUES: usize, const FILTERS: usize> Rules<QUEUES, FILTERS> {
    /// The frame is to this card, or to all.
    fn is_ours(&self, to: Address) -> bool {
        self.own.0 == 0 || to == self.own.0 || to == BROADCAST
    }

    /// Queue `queue` wants frames to that address.
    fn wants(&self, queue: usize, to: Address) -> bool {
        let Some(&Some(flags)) = self.queues.get(queue) else {
            return false;
        };
        let group = to >> 40 & 1 != 0;
        self.is_ours(to) || flags & RAW_PROMISCUOUS != 0 || (flags & RAW_MULTICAST != 0 && group)
    }

    /// Whose a frame of at least 14 bytes is that the fast path does not keep. `roce`: it is IPv4 and UDP to port 4791, and its
    /// iCRC is right.
    #[must_use]
    pub fn choose(&self, frame: &[u8], roce: bool) -> Whose {
        let to = u64::from(be16(frame, 0)) << 32 | u64::from(be32(frame, 2));
        let ethertype = be16(frame, 12);
        let ours = self.is_ours(to);
        let is_named = self.own.0 != 0;
        if is_named && roce && to == self.own.0 && !is_datagram(frame) {
            return Whose::Core;
        }
        let arp = ethertype == TYPE_ARP && frame.len() >= 42 && be32(frame, 38) == self.own.1;
        let both = is_named && arp && ours;
        let whose = |queue| if both { Whose::Both(queue) } else { Whose::Queue(queue) };
        let (protocol, port) = upper(frame, ethertype);
        let hits = |filter: &&Filter| {
            let &&Filter { fields, queue, .. } = filter;
            let named = fields & RAW_MATCH_MAC != 0;
            let there = self.queues.get(queue).is_some_and(Option::is_some);
            fields != 0
                && (if named { there && filter.mac == to } else { self.wants(queue, to) })
                && (fields & RAW_MATCH_ETHERTYPE == 0 || filter.ethertype == ethertype)
                && (fields & RAW_MATCH_PROTOCOL == 0 || protocol == Some(filter.protocol))
                && (fields & RAW_MATCH_PORT == 0 || port == Some(filter.port))
        };
        if let Some(filter) = self.filters.iter().find(hits) {
            return whose(filter.queue);
        }
        let default = |queue: &usize| {
            let flags = self.queues.get(*queue).copied().flatten().unwrap_or(0);
            flags & RAW_DEFAULT != 0 && self.wants(*queue, to)
        };
        match (0..QUEUES).find(default) {
            Some(queue) => whose(queue),
            None if ours => Whose::Core,
            None => Whose::None,
        }
    }
}

/// The ranges of memory that `len` bytes of a frame take of a sound element: address and bytes, in their order.
pub fn cut(element: &RawWqe, len: u32) -> impl Iterator<Item = (u64, u32)> {
    let mut left = len;
    element.sge.into_iter().take(usize::from(element.num_sge)).map_while(move |sge| {
        let part = sge.len.min(left);
        left -= part;
        (part != 0).then_some((sge.va, part))
    })
}
