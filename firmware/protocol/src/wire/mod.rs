// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of RoCEv2 as bytes: parse and emit, every header that Berth uses, with the invariant CRC.
//!
//! ```text
//! Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | BTH 12 | extended headers | payload | pad 0–3 | iCRC 4
//! ```
//!
//! Sources: IBTA specification volume 1, chapter 9 (transport headers) and annex A17 (RoCEv2).
//! Fields that the specification reserves are sent as 0 and not looked at. There are no
//! Ethernet frame check sequence (the MAC's), no VLAN tag, no IPv4 options and no IPv6 extension headers.
//!
//! Headers of Berth cards alone are in [`berth`]: the connection, not the BTH, tells whether they are there. Messages
//! of the control connection are in [`records`], headers of credit lists in [`lists`]. Firmware has frames as words of packet RAM: [`headers`].

pub mod berth;
mod bytes;
pub mod ext;
mod frame;
pub mod headers;
pub mod icrc;
pub mod lists;
pub mod net;
pub mod opcode;
pub mod records;
pub mod reliable;

pub use ext::{Aeth, AtomicEth, Bth, Deth, Extended, Nak, Reth, Syndrome};
pub use frame::{Packet, emit, parse, parse_trusted};
pub use net::{Eth, Ip, Ipv4, Ipv6};
pub use opcode::Opcode;

/// UDP destination port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// Bytes of the invariant CRC.
pub const ICRC: usize = 4;
/// Largest path MTU: payload bytes of one packet (IBTA 9.5.2).
pub const MAX_PAYLOAD: usize = 4096;
/// Bytes of the reserved payload of a congestion notification (IBTA A17.9.3).
pub const CNP_PAYLOAD: usize = 16;
/// Most bytes of all headers of one frame: IPv6, reliable datagram, atomic.
pub const MAX_HEADERS: usize = 14 + 40 + 8 + 12 + 4 + 8 + 28 + 4;

/// Why a frame is dropped or a packet cannot be emitted. Every cause is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The frame ends before its headers do, or before the length that they tell.
    Short,
    /// Neither IPv4 nor IPv6.
    EtherType,
    /// IP version or header length (options) that is not understood.
    IpHeader,
    /// The IPv4 header's checksum is wrong.
    IpChecksum,
    /// A fragment: RoCEv2 packets are never fragmented (IBTA A17.4.5.1).
    Fragment,
    /// Not UDP to port 4791.
    NotRoce,
    /// Lengths that contradict each other, or a payload that this opcode cannot have.
    Length,
    /// Version of the transport header that is not 0.
    Version,
    /// Opcode that is not used.
    Opcode,
    /// The invariant CRC is wrong.
    Icrc,
    /// Emit only: the extended headers are not those of the opcode.
    Headers,
    /// Emit only: a field's value has more bits than the field.
    Range,
    /// Emit only: the frame does not fit the buffer.
    Room,
}
