// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Datagram services without state per peer (QP-6): unreliable datagram (IBTA 9.8.3), and raw datagram: whole frames to
//! and from a QP, with filters that steer a protocol to a QP. [`Abilities`] says what an end node without a big host
//! may leave out (QP-16).
//!
//! Nothing here is acknowledged or sent again, and there are no credits: a datagram that finds no receive is dropped
//! and counted.

use crate::base::bound::at_most;
use crate::wire::net::{ETHER_IPV4, ETHER_IPV6, PROTOCOL_UDP, checksum};
use crate::wire::opcode::{Opcode, Operation, Service};
use crate::wire::{Bth, Deth, Eth, Extended, Ip, Nak, Packet, UDP_PORT};

/// Bytes before the payload in the receive buffer of a datagram: the network header that it
/// came with. An IPv4 header fills the last 20 of them, the first 20 are 0.
pub const NETWORK_HEADER: u32 = 40;
/// Bytes of an ARP, IPv4, … frame that the MAC pads shorter ones to.
pub const MIN_FRAME: usize = 60;
/// EtherType of ARP.
const ETHER_ARP: u16 = 0x0806;

/// A posted receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receive {
    /// The poster's name for it, given back when it is filled.
    pub id: u64,
    /// Bytes of the buffer.
    pub len: u32,
}

/// Counts of dropped packets, by cause. They change nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Packets of another service, or with headers that a datagram does not have.
    pub opcode: u64,
    /// Queue key violations (IBTA 10.2.5).
    pub qkey: u64,
    /// Partition key violations.
    pub pkey: u64,
    /// No receive was posted.
    pub no_receive: u64,
    /// The next receive is too small; it is kept, so that a stranger cannot use receives up.
    pub too_long: u64,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// [`Counters::opcode`].
    Opcode,
    /// [`Counters::qkey`].
    Qkey,
    /// [`Counters::pkey`].
    Pkey,
    /// [`Counters::no_receive`].
    NoReceive,
    /// [`Counters::too_long`].
    TooLong,
}

impl Counters {
    fn count(&mut self, dropped: Dropped) -> Dropped {
        let counter = match dropped {
            Dropped::Opcode => &mut self.opcode,
            Dropped::Qkey => &mut self.qkey,
            Dropped::Pkey => &mut self.pkey,
            Dropped::NoReceive => &mut self.no_receive,
            Dropped::TooLong => &mut self.too_long,
        };
        *counter = counter.saturating_add(1);
        dropped
    }
}

/// Posted receives, in order; at most `DEPTH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Receives<const DEPTH: usize> {
    places: [Receive; DEPTH],
    len: usize,
}

impl<const DEPTH: usize> Receives<DEPTH> {
    const EMPTY: Self = Self { places: [Receive { id: 0, len: 0 }; DEPTH], len: 0 };

    fn post(&mut self, receive: Receive) -> bool {
        let Some(place) = self.places.get_mut(self.len) else {
            return false;
        };
        *place = receive;
        self.len = self.len.wrapping_add(1);
        true
    }

    /// The oldest one, when it holds `len` bytes.
    fn take(&mut self, len: u32) -> Result<Receive, Dropped> {
        let oldest = match self.places.first() {
            Some(oldest) if self.len > 0 => *oldest,
            _ => return Err(Dropped::NoReceive),
        };
        if len > oldest.len {
            return Err(Dropped::TooLong);
        }
        // Equal contents are equal states: free places are 0.
        self.places.rotate_left(1);
        if let Some(last) = self.places.last_mut() {
            *last = Receive::default();
        }
        self.len = self.len.saturating_sub(1);
        Ok(oldest)
    }
}

/// Where datagrams go: an address handle and the QP behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Ethernet addresses.
    pub eth: Eth,
    /// IP addresses and marks.
    pub ip: Ip,
    /// UDP source port.
    pub source_port: u16,
    /// The peer's QPN, 24 bits.
    pub qpn: u32,
    /// The peer's queue key. With bit 31 set the sending QP's own one is sent instead, so that
    /// a process can use a key that it does not know (IBTA 10.2.5).
    pub qkey: u32,
}

/// Why a datagram is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// More bytes than the path MTU: a datagram is one packet.
    TooLong,
    /// A QPN of more than 24 bits.
    Qpn,
    /// Raw: shorter than an Ethernet header.
    TooShort,
    /// Raw: the source address is not this node's.
    Source,
    /// Raw: a RoCEv2 frame. Peers trust the card to have made those.
    Protected,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    /// The receive that it filled.
    pub id: u64,
    /// The first bytes of the buffer; the payload follows.
    pub header: [u8; NETWORK_HEADER as usize],
    /// Bytes in the buffer: header and payload.
    pub len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The sender's QPN.
    pub source_qpn: u32,
    /// The sender asked for an event.
    pub solicited: bool,
}

/// A QP of the service unreliable datagram, with at most `DEPTH` receives posted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UdQp<const DEPTH: usize> {
    qpn: u32,
    qkey: u32,
    mtu: u32,
    psn: u32,
    receives: Receives<DEPTH>,
    /// What was dropped.
    pub counters: Counters,
}

impl<const DEPTH: usize> UdQp<DEPTH> {
    /// A QP with its queue key and path MTU (256 to 4096); PSNs start at `psn`.
    pub const fn new(qpn: u32, qkey: u32, mtu: u32, psn: u32) -> Self {
        Self {
            qpn: qpn & 0xff_ffff,
            qkey,
            mtu,
            psn: psn & 0xff_ffff,
            receives: Receives::EMPTY,
            counters: Counters { opcode: 0, qkey: 0, pkey: 0, no_receive: 0, too_long: 0 },
        }
    }

    /// The headers of a datagram of `len` bytes to `to`.
    ///
    /// # Errors
    /// Nothing was sent; the QP is as before.
    pub fn send(&mut self, to: &Address, len: u32, imm: Option<u32>, solicited: bool) -> Result<Packet, SendError> {
        if len > self.mtu {
            return Err(SendError::TooLong);
        }
        if to.qpn > 0xff_ffff {
            return Err(SendError::Qpn);
        }
        let operation = if imm.is_some() { Operation::SendOnlyImm } else { Operation::SendOnly };
        let qkey = if to.qkey & 1 << 31 != 0 { self.qkey } else { to.qkey };
        let deth = Deth { qkey, source_qpn: self.qpn };
        let bth = Bth { solicited, ..Bth::new(Opcode::ud(operation), to.qpn, self.psn) };
        self.psn = self.psn.wrapping_add(1) & 0xff_ffff;
        Ok(Packet {
            eth: to.eth,
            ip: to.ip,
            source_port: to.source_port,
            bth,
            ext: Extended { deth: Some(deth), imm, ..Extended::NONE },
        })
    }

    /// Posts a receive. False when `DEPTH` are posted already.
    pub fn post(&mut self, receive: Receive) -> bool {
        self.receives.post(receive)
    }

    /// Receives that are posted.
    pub const fn posted(&self) -> usize {
        self.receives.len
    }

    /// A packet with `len` bytes of payload has come for this QP. PSNs are not looked at: datagrams have no order.
    ///
    /// # Errors
    /// Why it is dropped; it is counted.
    pub fn arrived(&mut self, packet: &Packet, len: u32) -> Result<Datagram, Dropped> {
        self.accept(packet, len).map_err(|dropped| self.counters.count(dropped))
    }

    fn accept(&mut self, packet: &Packet, len: u32) -> Result<Datagram, Dropped> {
        let deth = match (packet.bth.opcode.service(), packet.ext.deth) {
            (Some(Service::Ud), Some(deth)) => deth,
            _ => return Err(Dropped::Opcode),
        };
        if packet.bth.pkey | 1 << 15 != crate::wire::ext::DEFAULT_PKEY {
            return Err(Dropped::Pkey);
        }
        if deth.qkey != self.qkey {
            return Err(Dropped::Qkey);
        }
        let total = len.saturating_add(NETWORK_HEADER);
        let receive = self.receives.take(total)?;
        Ok(Datagram {
            id: receive.id,
            header: network_header(&packet.ip, packet, len),
            len: total,
            imm: packet.ext.imm,
            source_qpn: deth.source_qpn,
            solicited: packet.bth.solicited,
        })
    }
}

/// The network header as a receiver finds it, made again from the parsed fields.
fn network_header(ip: &Ip, packet: &Packet, len: u32) -> [u8; NETWORK_HEADER as usize] {
    let mut header = [0; NETWORK_HEADER as usize];
    let ext = packet.ext.layout().bytes() as u32;
    let udp = len.saturating_add(3) & !3;
    let udp = udp.saturating_add(ext).saturating_add(8 + 12 + 4).min(0xffff) as u16;
    match ip {
        Ip::V4(ip) => {
            if let (Ok(bytes), Some((_, place))) = (ip.to_bytes(udp), header.split_last_chunk_mut::<20>()) {
                *place = bytes;
            }
        }
        Ip::V6(ip) => {
            let word = 6 << 28 | u32::from(ip.traffic_class) << 20 | ip.flow & 0xf_ffff;
            let fields = word.to_be_bytes().into_iter().chain(udp.to_be_bytes()).chain([PROTOCOL_UDP, ip.hops]);
            for (place, byte) in
                at_most(NETWORK_HEADER as usize, header.iter_mut().zip(fields.chain(ip.from).chain(ip.to)))
            {
                *place = byte;
            }
        }
    }
    header
}

/// This node, as frames name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// MAC address.
    pub mac: [u8; 6],
    /// IPv4 address.
    pub ipv4: [u8; 4],
    /// IPv6 address.
    pub ipv6: [u8; 16],
}

/// The fields of a frame that filters look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fields {
    to: [u8; 6],
    from: [u8; 6],
    ether_type: u16,
    /// IP protocol, and where TCP, UDP or the like tell it, the destination port.
    protocol: Option<u8>,
    port: Option<u16>,
    /// Destination address is this node's.
    ours: bool,
}

impl Fields {
    fn of(frame: &[u8], node: &Node) -> Option<Self> {
        let (to, rest) = frame.split_first_chunk::<6>()?;
        let (from, rest) = rest.split_first_chunk::<6>()?;
        let (ether_type, rest) = rest.split_first_chunk::<2>()?;
        let ether_type = u16::from_be_bytes(*ether_type);
        let mut this = Self { to: *to, from: *from, ether_type, protocol: None, port: None, ours: false };
        let transport = match ether_type {
            ETHER_IPV4 => {
                // A header whose checksum is wrong, and all fragments but the first, have no port.
                let ihl = usize::from(rest.first()? & 0x0f).wrapping_mul(4);
                let Some(header) = rest.get(..ihl).filter(|h| h.len() >= 20 && checksum(h) == 0) else {
                    return Some(this);
                };
                this.protocol = header.get(9).copied();
                this.ours = header.get(16..20) == Some(&node.ipv4[..]);
                let offset =
                    header.get(6..8).map_or([0, 0], |b| [b.first().map_or(0, |b| b & 0x1f), *b.last().unwrap_or(&0)]);
                if offset == [0, 0] { rest.get(ihl..) } else { None }
            }
            ETHER_IPV6 => {
                this.protocol = rest.get(6).copied();
                this.ours = rest.get(24..40) == Some(&node.ipv6[..]);
                rest.get(40..)
            }
            _ => None,
        };
        // TCP, UDP, DCCP, SCTP, UDP-Lite have their destination port in bytes 2 and 3.
        if matches!(this.protocol, Some(6 | 17 | 33 | 132 | 136)) {
            this.port =
                transport.and_then(|t| t.get(2..)).and_then(|t| t.first_chunk()).map(|b| u16::from_be_bytes(*b));
        }
        Some(this)
    }

    fn is_roce(&self) -> bool {
        self.protocol == Some(PROTOCOL_UDP) && self.port == Some(UDP_PORT)
    }
}

/// Which frames a raw QP gets. `None` matches all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Destination MAC address. `None`: this node's own, and group addresses.
    pub to: Option<[u8; 6]>,
    /// EtherType.
    pub ether_type: Option<u16>,
    /// IP protocol; with it only IPv4 and IPv6 match.
    pub protocol: Option<u8>,
    /// Destination port of TCP, UDP and the like.
    pub port: Option<u16>,
}

impl Filter {
    fn matches(&self, f: &Fields, node: &Node) -> bool {
        let to = match self.to {
            Some(to) => to == f.to,
            None => f.to == node.mac || f.to.first().is_some_and(|b| b & 1 != 0),
        };
        to && self.ether_type.is_none_or(|t| t == f.ether_type)
            && self.protocol.is_none_or(|p| Some(p) == f.protocol)
            && self.port.is_none_or(|p| Some(p) == f.port)
    }
}

/// Why a filter is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterError {
    /// The table is full.
    Full,
    /// The same filter is there already.
    Taken,
    /// A port without TCP, UDP or the like as protocol.
    Port,
}

/// The receiver of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Steered {
    /// The card itself: ARP, and RoCEv2 to this node. No filter can take these away.
    Card,
    /// The raw QP with this QPN.
    Qp(u32),
    /// No receiver: dropped and counted.
    Nobody,
}

/// The filters of all raw QPs of a card, at most `N`. Of two that match a frame the one that was added first gets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filters<const N: usize> {
    rows: [Option<(Filter, u32)>; N],
}

impl<const N: usize> Default for Filters<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Filters<N> {
    /// No filter.
    pub const fn new() -> Self {
        Self { rows: [None; N] }
    }

    /// Steers frames that match `filter` to `qpn`.
    ///
    /// # Errors
    /// The table is as before.
    pub fn add(&mut self, filter: Filter, qpn: u32) -> Result<(), FilterError> {
        if filter.port.is_some() && !matches!(filter.protocol, Some(6 | 17 | 33 | 132 | 136)) {
            return Err(FilterError::Port);
        }
        for row in at_most(N, &mut self.rows) {
            match row {
                Some((there, _)) if *there == filter => return Err(FilterError::Taken),
                Some(_) => (),
                None => {
                    *row = Some((filter, qpn));
                    return Ok(());
                }
            }
        }
        Err(FilterError::Full)
    }

    /// Removes the filters of a QP; the others keep their order. Gives how many there were.
    pub fn remove(&mut self, qpn: u32) -> usize {
        let mut kept = [None; N];
        let mut removed = 0_usize;
        let mut places = kept.iter_mut();
        for row in at_most(N, self.rows.iter().flatten()) {
            if row.1 == qpn {
                removed = removed.wrapping_add(1);
            } else if let Some(place) = places.next() {
                *place = Some(*row);
            }
        }
        self.rows = kept;
        removed
    }

    /// The receiver of a frame (without frame check sequence).
    pub fn steer(&self, frame: &[u8], node: &Node) -> Steered {
        let Some(fields) = Fields::of(frame, node) else {
            return Steered::Nobody;
        };
        if fields.ether_type == ETHER_ARP || fields.is_roce() && fields.ours {
            return Steered::Card;
        }
        for (filter, qpn) in at_most(N, self.rows.iter().flatten()) {
            if filter.matches(&fields, node) {
                return Steered::Qp(*qpn);
            }
        }
        Steered::Nobody
    }
}

/// A QP of the service raw datagram, with at most `DEPTH` receives posted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawQp<const DEPTH: usize> {
    mtu: u32,
    receives: Receives<DEPTH>,
    /// What was dropped.
    pub counters: Counters,
}

impl<const DEPTH: usize> RawQp<DEPTH> {
    /// A QP for frames of at most `mtu` bytes behind the Ethernet header.
    pub const fn new(mtu: u32) -> Self {
        Self {
            mtu,
            receives: Receives::EMPTY,
            counters: Counters { opcode: 0, qkey: 0, pkey: 0, no_receive: 0, too_long: 0 },
        }
    }

    /// Whether `frame` (without frame check sequence) may be sent; gives its bytes on the wire
    /// with Ethernet's padding, which is zeros.
    ///
    /// # Errors
    /// Why not.
    pub fn send(&self, frame: &[u8], node: &Node) -> Result<usize, SendError> {
        let fields = Fields::of(frame, node).ok_or(SendError::TooShort)?;
        if frame.len() > (self.mtu as usize).saturating_add(Eth::BYTES) {
            return Err(SendError::TooLong);
        }
        if fields.from != node.mac {
            return Err(SendError::Source);
        }
        if fields.is_roce() {
            return Err(SendError::Protected);
        }
        Ok(frame.len().max(MIN_FRAME))
    }

    /// Posts a receive. False when `DEPTH` are posted already.
    pub fn post(&mut self, receive: Receive) -> bool {
        self.receives.post(receive)
    }

    /// A frame of `len` bytes (without frame check sequence) was steered to this QP. Gives the receive that it fills.
    ///
    /// # Errors
    /// Why it is dropped; it is counted.
    pub fn arrived(&mut self, len: u32) -> Result<Receive, Dropped> {
        self.receives.take(len).map_err(|dropped| self.counters.count(dropped))
    }
}

/// The services of an end node. An I/O adapter without a big host offers fewer (QP-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Abilities {
    /// QPs that it has.
    pub queue_pairs: u32,
    /// Peers may read, write and do atomics in its memory.
    pub inbound_rdma: bool,
    /// Reliable datagram.
    pub reliable_datagram: bool,
    /// Unreliable datagram.
    pub unreliable_datagram: bool,
}

impl Abilities {
    /// A host with all services.
    pub const HOST: Self =
        Self { queue_pairs: 1 << 24, inbound_rdma: true, reliable_datagram: true, unreliable_datagram: true };
    /// An I/O adapter: few QPs, reliable connections, no access to its memory.
    pub const ADAPTER: Self =
        Self { queue_pairs: 4, inbound_rdma: false, reliable_datagram: false, unreliable_datagram: false };

    /// Whether a request with this opcode is taken.
    ///
    /// # Errors
    /// What a reliable service answers; an unreliable one drops the packet.
    pub fn admits(&self, opcode: Opcode) -> Result<(), Nak> {
        let (Some(service), Some(operation)) = (opcode.service(), opcode.operation()) else {
            return Err(Nak::InvalidRequest);
        };
        let service = match service {
            Service::Rc => true,
            Service::Rd => self.reliable_datagram,
            Service::Ud => self.unreliable_datagram,
            // No QP of this service can be made.
            Service::Uc | Service::Cnp => false,
        };
        let rdma = operation.is_write()
            || matches!(operation, Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd);
        if service && (self.inbound_rdma || !rdma) { Ok(()) } else { Err(Nak::InvalidRequest) }
    }
}
