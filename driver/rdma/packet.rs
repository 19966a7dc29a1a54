// SPDX-License-Identifier: GPL-2.0
//! Packets of unreliable datagrams by RoCE version 2 over IPv4 (IBTA 9.8.2, A17.3): bytes only.

use crate::{
    abi::wire::{BTH_UD_SEND_ONLY, BTH_UD_SEND_ONLY_IMM},
    net::taker::{is_roce, PORT},
};
use core::ops::Range;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const BTH: usize = 12;
const DETH: usize = 8;
const IMMEDIATE: usize = 4;
/// Bytes of the invariant CRC.
const ICRC: usize = 4;
/// Where the BTH stands.
const AT_BTH: usize = ETHERNET + IPV4 + UDP;
/// Where the bytes behind the DETH stand.
const AT_DATA: usize = AT_BTH + BTH + DETH;
/// The P_Key that all have (IBTA 10.9.1.2), without its upper bit, which tells full members from others.
const PKEY: u16 = 0x7fff;

/// Bytes in front of received data: of a GRH, in the second half of which the IPv4 header stands (IBTA A17.4.5.2).
pub(crate) const GRH: usize = 40;

/// What is said of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The MAC address to which the frame goes.
    pub(crate) to_mac: [u8; 6],
    /// The one from which it comes.
    pub(crate) from_mac: [u8; 6],
    /// The IPv4 address to which it goes.
    pub(crate) to_ip: u32,
    /// The one from which it comes.
    pub(crate) from_ip: u32,
    /// Traffic class.
    pub(crate) class: u8,
    /// Time to live.
    pub(crate) hops: u8,
    /// The receiver is to be told of it.
    pub(crate) solicited: bool,
    /// The QPN to which it goes.
    pub(crate) to_qpn: u32,
    /// The one from which it comes.
    pub(crate) from_qpn: u32,
    /// Q_Key.
    pub(crate) qkey: u32,
    /// PSN.
    pub(crate) psn: u32,
    /// Immediate data, in network order.
    pub(crate) immediate: Option<[u8; 4]>,
}

/// Path MTU of RoCE on an Ethernet of that MTU (IBTA A17.3.1.2): the largest one that leaves room for the longest headers, as
/// Linux has it for all devices.
pub(crate) fn roce_mtu(ethernet: u32) -> u32 {
    // IPv6, UDP, BTH, the header of atomics with that of shared connections, CRC.
    const HEADERS: u32 = 40 + 8 + 12 + 28 + 4 + 4;
    [4096, 2048, 1024, 512]
        .into_iter()
        .find(|mtu| mtu + HEADERS <= ethernet)
        .unwrap_or(256)
}

fn at_data(immediate: bool) -> usize {
    AT_DATA + if immediate { IMMEDIATE } else { 0 }
}

/// Bytes that make the data a multiple of four.
fn pad(bytes: usize) -> usize {
    bytes.wrapping_neg() & 3
}

/// Bytes of the frame with `bytes` of data, without FCS.
pub(crate) fn length(immediate: bool, bytes: usize) -> usize {
    at_data(immediate) + bytes + pad(bytes) + ICRC
}

/// The invariant CRC of a packet behind its Ethernet header, without the CRC (IBTA A17.3.3).
fn icrc(packet: &[u8], crc: impl Fn(u32, &[u8]) -> u32) -> u32 {
    let (head, rest) = packet.split_at(IPV4 + UDP + BTH);
    let mut masked = [0xff; 8 + IPV4 + UDP + BTH];
    masked[8..].copy_from_slice(head);
    // What may change on the way: type of service, time to live, both checksums, and marks of congestion.
    for at in [1, 8, 10, 11, IPV4 + 6, IPV4 + 7, IPV4 + UDP + 4] {
        masked[8 + at] = 0xff;
    }
    !crc(crc(u32::MAX, &masked), rest)
}

/// The checksum of an IPv4 header in which that is 0 (RFC 791 3.1).
fn checksum(header: &[u8]) -> u16 {
    let sum = header.chunks_exact(2).fold(0, |sum, word| {
        sum + u32::from(u16::from_be_bytes([word[0], word[1]]))
    });
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

impl Header {
    /// Builds a frame of [`length`] bytes, of which the last but the CRC are data that `fill` puts there. `crc` continues
    /// Ethernet's CRC over bytes, without inversion.
    pub(crate) fn build<E>(
        &self,
        frame: &mut [u8],
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
        crc: impl Fn(u32, &[u8]) -> u32,
    ) -> Result<(), E> {
        let start = at_data(self.immediate.is_some());
        let end = frame.len() - ICRC;
        frame[..start].fill(0);
        fill(&mut frame[start..start + bytes])?;
        frame[start + bytes..].fill(0);

        frame[..6].copy_from_slice(&self.to_mac);
        frame[6..12].copy_from_slice(&self.from_mac);
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        let ip = &mut frame[ETHERNET..];
        let total = (end + ICRC - ETHERNET) as u16;
        ip[..2].copy_from_slice(&[0x45, self.class]);
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        // Not to be fragmented.
        ip[6] = 0x40;
        ip[8..10].copy_from_slice(&[self.hops, 17]);
        ip[12..16].copy_from_slice(&self.from_ip.to_be_bytes());
        ip[16..20].copy_from_slice(&self.to_ip.to_be_bytes());
        let sum = checksum(&ip[..IPV4]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let udp = &mut ip[IPV4..];
        // Packets of one flow have one port, so that they go one way (IBTA A17.9.2).
        let flow = 0xc000 | ((self.to_qpn ^ self.from_qpn) & 0x3fff) as u16;
        udp[..2].copy_from_slice(&flow.to_be_bytes());
        udp[2..4].copy_from_slice(&PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&(total - IPV4 as u16).to_be_bytes());
        let bth = &mut udp[UDP..];
        bth[0] = match self.immediate {
            None => BTH_UD_SEND_ONLY,
            Some(_) => BTH_UD_SEND_ONLY_IMM,
        };
        // Solicited event, pad count.
        bth[1] = u8::from(self.solicited) << 7 | (pad(bytes) as u8) << 4;
        bth[2..4].copy_from_slice(&(PKEY | 0x8000).to_be_bytes());
        bth[4..8].copy_from_slice(&(self.to_qpn & 0xff_ffff).to_be_bytes());
        bth[8..12].copy_from_slice(&(self.psn & 0xff_ffff).to_be_bytes());
        let deth = &mut bth[BTH..];
        deth[..4].copy_from_slice(&self.qkey.to_be_bytes());
        deth[4..8].copy_from_slice(&(self.from_qpn & 0xff_ffff).to_be_bytes());
        if let Some(immediate) = self.immediate {
            deth[8..12].copy_from_slice(&immediate);
        }
        let crc = icrc(&frame[ETHERNET..end], crc);
        frame[end..].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }

    /// Reads a frame whose invariant CRC the card has found right: what is said of it, and where its data stand. `None` for
    /// one that is no sound datagram.
    pub(crate) fn parse(frame: &[u8]) -> Option<(Self, Range<usize>)> {
        if !is_datagram(frame) {
            return None;
        }
        let be16 = |at: usize| {
            let bytes = frame.get(at..)?.first_chunk()?;
            Some(u16::from_be_bytes(*bytes))
        };
        let be32 = |at: usize| {
            let bytes = frame.get(at..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        let byte = |at: usize| frame.get(at).copied();
        // Behind the packet there may be bytes that made the frame as long as Ethernet wants it.
        let end = ETHERNET + usize::from(be16(ETHERNET + 2)?);
        let udp = usize::from(be16(ETHERNET + IPV4 + 4)?);
        if end > frame.len() || udp + ETHERNET + IPV4 != end {
            return None;
        }
        let (flags, pkey) = (byte(AT_BTH + 1)?, be16(AT_BTH + 2)?);
        let has_immediate = byte(AT_BTH)? == BTH_UD_SEND_ONLY_IMM;
        let start = at_data(has_immediate);
        let behind = end.checked_sub(ICRC + usize::from(flags >> 4 & 3))?;
        // The version of the transport header is 0.
        if pkey & PKEY != PKEY || flags & 0xf != 0 || start > behind {
            return None;
        }
        let immediate = match has_immediate {
            true => Some(*frame.get(AT_DATA..)?.first_chunk()?),
            false => None,
        };
        let header = Self {
            to_mac: *frame.first_chunk()?,
            from_mac: *frame.get(6..)?.first_chunk()?,
            to_ip: be32(ETHERNET + 16)?,
            from_ip: be32(ETHERNET + 12)?,
            class: byte(ETHERNET + 1)?,
            hops: byte(ETHERNET + 8)?,
            solicited: flags & 0x80 != 0,
            to_qpn: be32(AT_BTH + 4)? & 0xff_ffff,
            from_qpn: be32(AT_BTH + BTH + 4)? & 0xff_ffff,
            qkey: be32(AT_BTH + BTH)?,
            psn: be32(AT_BTH + 8)? & 0xff_ffff,
            immediate,
        };
        Some((header, start..behind))
    }
}

/// Whether a frame is a datagram of RoCE version 2 over IPv4 without options.
pub(crate) fn is_datagram(frame: &[u8]) -> bool {
    frame.len() >= AT_DATA + ICRC
        && is_roce(frame)
        && matches!(frame[AT_BTH], BTH_UD_SEND_ONLY | BTH_UD_SEND_ONLY_IMM)
}

/// What stands in front of a datagram's data in a receive.
pub(crate) fn grh(frame: &[u8]) -> [u8; GRH] {
    let mut grh = [0; GRH];
    if let Some(header) = frame.get(ETHERNET..ETHERNET + IPV4) {
        grh[GRH - IPV4..].copy_from_slice(header);
    }
    grh
}
