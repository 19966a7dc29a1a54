// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole frames: all headers, payload and invariant CRC.

use super::bytes::{Reader, Writer};
use super::ext::{Bth, Extended};
use super::net::{Eth, Ip};
use super::{Error, ICRC, UDP_PORT, icrc};
use crate::base::bound::at_most;

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
