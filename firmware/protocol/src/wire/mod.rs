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
//! of the control connection are in [`records`]. Firmware has frames as words of packet RAM: [`headers`].

pub mod berth;
mod bytes;
pub mod ext;
pub mod headers;
pub mod icrc;
pub mod net;
pub mod opcode;
pub mod records;
pub mod reliable;

use crate::base::bound::at_most;
use bytes::{Reader, Writer};
pub use ext::{Aeth, AtomicEth, Bth, Deth, Extended, Nak, Reth, Syndrome};
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

/// All header fields of one RoCEv2 frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Ethernet addresses.
    pub eth: Eth,
    /// IPv4 or IPv6.
    pub ip: Ip,
    /// UDP source port: entropy for the network's load balancing (IBTA A17.4.5.2).
    pub source_port: u16,
    /// Base transport header.
    pub bth: Bth,
    /// Extended headers: those of the opcode, no others.
    pub ext: Extended,
}

/// Parses a frame and checks its invariant CRC. Bytes behind the IP packet (Ethernet padding) are not looked at.
///
/// # Errors
/// The reason to drop the frame.
pub fn parse(frame: &[u8]) -> Result<(Packet, &[u8]), Error> {
    parse_frame(frame, true)
}

/// Like [`parse`], for frames whose invariant CRC was checked already (the card's RTL does).
///
/// # Errors
/// The reason to drop the frame.
pub fn parse_trusted(frame: &[u8]) -> Result<(Packet, &[u8]), Error> {
    parse_frame(frame, false)
}

fn parse_frame(frame: &[u8], check: bool) -> Result<(Packet, &[u8]), Error> {
    let mut r = Reader::new(frame);
    let (eth, ether_type) = Eth::read(&mut r)?;
    let start = r.rest();
    let (ip, total) = Ip::read(&mut r, ether_type)?;
    // From here on only the bytes within the IP header's length count.
    let packet = start.get(..total).ok_or(Error::Short)?;
    let ip_len = start.len().wrapping_sub(r.rest().len());
    let mut r = Reader::new(packet.get(ip_len..).ok_or(Error::Length)?);
    let udp_len = r.rest().len();
    let source_port = r.u16()?;
    if r.u16()? != UDP_PORT {
        return Err(Error::NotRoce);
    }
    if usize::from(r.u16()?) != udp_len {
        return Err(Error::Length);
    }
    // The UDP checksum is usually 0 and not checked, because the invariant CRC protects better.
    r.u16()?;
    let (bth, pad) = Bth::read(&mut r)?;
    let layout = bth.opcode.layout().ok_or(Error::Opcode)?;
    let ext = Extended::read(&mut r, layout)?;
    let rest = r.rest();
    let body = rest.len().checked_sub(ICRC).ok_or(Error::Short)?;
    let (body, crc) = rest.split_at_checked(body).ok_or(Error::Short)?;
    if body.len() % 4 != 0 {
        return Err(Error::Length);
    }
    let payload = body.len().checked_sub(pad).and_then(|n| body.get(..n)).ok_or(Error::Length)?;
    bth.opcode.check_payload(payload.len())?;
    if check {
        let invariant = packet.get(..packet.len().saturating_sub(ICRC)).ok_or(Error::Short)?;
        if icrc::compute(invariant)?.to_le_bytes() != crc {
            return Err(Error::Icrc);
        }
    }
    Ok((Packet { eth, ip, source_port, bth, ext }, payload))
}

/// Writes a frame: headers, the payload gathered from `payload`, pad and invariant CRC. Gives its bytes.
/// A frame shorter than Ethernet's minimum is padded by the MAC.
///
/// # Errors
/// What is wrong with the packet, or [`Error::Room`]; `out` is then undefined.
pub fn emit(p: &Packet, payload: &[&[u8]], out: &mut [u8]) -> Result<usize, Error> {
    let layout = p.bth.opcode.layout().ok_or(Error::Opcode)?;
    let mut len = 0_usize;
    for part in at_most(payload.len(), payload) {
        len = len.saturating_add(part.len());
    }
    p.bth.opcode.check_payload(len)?;
    let pad = len.wrapping_neg() & 3;
    let udp_len = layout.bytes().saturating_add(8 + 12 + ICRC).saturating_add(len).saturating_add(pad);
    let udp_len = u16::try_from(udp_len).map_err(|_| Error::Length)?;

    let room = out.len();
    let mut w = Writer::new(out);
    p.eth.write(&mut w, p.ip.ether_type())?;
    p.ip.write(&mut w, udp_len)?;
    w.u16(p.source_port)?;
    w.u16(UDP_PORT)?;
    w.u16(udp_len)?;
    w.u16(0)?;
    p.bth.write(&mut w, pad)?;
    p.ext.write(&mut w, layout)?;
    for part in at_most(payload.len(), payload) {
        w.put(part)?;
    }
    w.put([0; 3].get(..pad).ok_or(Error::Length)?)?;
    let used = room.saturating_sub(w.left());
    let crc = icrc::compute(out.get(Eth::BYTES..used).ok_or(Error::Room)?)?;
    let end = used.saturating_add(ICRC);
    out.get_mut(used..end).ok_or(Error::Room)?.copy_from_slice(&crc.to_le_bytes());
    Ok(end)
}
