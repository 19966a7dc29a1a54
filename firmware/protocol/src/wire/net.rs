// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet, IPv4 (RFC 791) and IPv6 (RFC 8200) headers under RoCEv2.

use super::Error;
use super::bytes::{Reader, Writer, fits};
use crate::base::bound::at_most;

/// EtherType of IPv4.
pub const ETHER_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHER_IPV6: u16 = 0x86dd;
/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// Ethernet addresses of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Eth {
    /// Destination.
    pub to: [u8; 6],
    /// Source.
    pub from: [u8; 6],
}

impl Eth {
    /// Bytes of the header.
    pub const BYTES: usize = 14;

    pub(super) fn read(r: &mut Reader) -> Result<(Self, u16), Error> {
        let this = Self { to: r.take()?, from: r.take()? };
        Ok((this, r.u16()?))
    }

    pub(super) fn write(&self, w: &mut Writer, ether_type: u16) -> Result<(), Error> {
        w.put(&self.to)?;
        w.put(&self.from)?;
        w.u16(ether_type)
    }
}

/// The network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ip {
    /// IPv4 without options.
    V4(Ipv4),
    /// IPv6 without extension headers.
    V6(Ipv6),
}

/// Fields of an IPv4 header; lengths, protocol and checksum follow from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4 {
    /// Source address.
    pub from: [u8; 4],
    /// Destination address.
    pub to: [u8; 4],
    /// Differentiated services in bits 7:2, congestion notification (ECN) in bits 1:0.
    pub traffic_class: u8,
    /// Identification.
    pub id: u16,
    /// Don't fragment.
    pub df: bool,
    /// Time to live.
    pub ttl: u8,
}

/// Fields of an IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6 {
    /// Source address.
    pub from: [u8; 16],
    /// Destination address.
    pub to: [u8; 16],
    /// Differentiated services in bits 7:2, congestion notification (ECN) in bits 1:0.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow: u32,
    /// Hop limit.
    pub hops: u8,
}

impl Ipv4 {
    /// Bytes of the header.
    pub const BYTES: usize = 20;

    /// What Berth sends from `from` to `to`: no marks, don't fragment, TTL 64.
    pub const fn new(from: [u8; 4], to: [u8; 4]) -> Self {
        Self { from, to, traffic_class: 0, id: 0, df: true, ttl: 64 }
    }
}

impl Ipv6 {
    /// Bytes of the header.
    pub const BYTES: usize = 40;

    /// What Berth sends from `from` to `to`: no marks, no flow label, hop limit 64.
    pub const fn new(from: [u8; 16], to: [u8; 16]) -> Self {
        Self { from, to, traffic_class: 0, flow: 0, hops: 64 }
    }
}

impl Ip {
    /// The EtherType that says which one it is.
    pub const fn ether_type(&self) -> u16 {
        match self {
            Self::V4(_) => ETHER_IPV4,
            Self::V6(_) => ETHER_IPV6,
        }
    }

    /// The two bits of explicit congestion notification (RFC 3168).
    pub const fn ecn(&self) -> u8 {
        match self {
            Self::V4(ip) => ip.traffic_class & 3,
            Self::V6(ip) => ip.traffic_class & 3,
        }
    }

    /// Gives also the bytes of the whole IP packet.
    pub(super) fn read(r: &mut Reader, ether_type: u16) -> Result<(Self, usize), Error> {
        match ether_type {
            ETHER_IPV4 => Ipv4::read(r).map(|(ip, n)| (Self::V4(ip), n)),
            ETHER_IPV6 => Ipv6::read(r).map(|(ip, n)| (Self::V6(ip), n)),
            _ => Err(Error::EtherType),
        }
    }

    pub(super) fn write(&self, w: &mut Writer, udp_len: u16) -> Result<(), Error> {
        match self {
            Self::V4(ip) => ip.write(w, udp_len),
            Self::V6(ip) => ip.write(w, udp_len),
        }
    }
}

/// The Internet checksum of a header whose checksum field counts as it is (RFC 1071).
pub fn checksum(header: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in at_most(header.len(), header.chunks(2)) {
        let value = match pair {
            [high, low] => u16::from_be_bytes([*high, *low]),
            [high] => u16::from_be_bytes([*high, 0]),
            _ => 0,
        };
        // Folded at once: no length overflows it.
        sum = sum.wrapping_add(u32::from(value));
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    !(sum as u16)
}

impl Ipv4 {
    fn read(r: &mut Reader) -> Result<(Self, usize), Error> {
        let header: [u8; Self::BYTES] = r.take()?;
        let mut h = Reader::new(&header);
        if h.u8()? != 0x45 {
            return Err(Error::IpHeader);
        }
        if checksum(&header) != 0 {
            return Err(Error::IpChecksum);
        }
        let traffic_class = h.u8()?;
        let total = usize::from(h.u16()?);
        let id = h.u16()?;
        let fragment = h.u16()?;
        if fragment & 0x3fff != 0 {
            return Err(Error::Fragment);
        }
        let ttl = h.u8()?;
        if h.u8()? != PROTOCOL_UDP {
            return Err(Error::NotRoce);
        }
        h.u16()?;
        let this = Self { from: h.take()?, to: h.take()?, traffic_class, id, df: fragment & 0x4000 != 0, ttl };
        Ok((this, total))
    }

    /// The header of a packet with `payload` bytes behind it.
    ///
    /// # Errors
    /// [`Error::Length`] when the packet would be longer than 65,535 bytes.
    pub fn to_bytes(&self, payload: u16) -> Result<[u8; Self::BYTES], Error> {
        let total = payload.checked_add(Self::BYTES as u16).ok_or(Error::Length)?;
        let mut header = [0; Self::BYTES];
        let sum = checksum(&self.fields(total, 0)?);
        header.copy_from_slice(&self.fields(total, sum)?);
        Ok(header)
    }

    fn fields(&self, total: u16, sum: u16) -> Result<[u8; Self::BYTES], Error> {
        let mut header = [0; Self::BYTES];
        let mut w = Writer::new(&mut header);
        w.u8(0x45)?;
        w.u8(self.traffic_class)?;
        w.u16(total)?;
        w.u16(self.id)?;
        w.u16(if self.df { 0x4000 } else { 0 })?;
        w.u8(self.ttl)?;
        w.u8(PROTOCOL_UDP)?;
        w.u16(sum)?;
        w.put(&self.from)?;
        w.put(&self.to)?;
        Ok(header)
    }

    fn write(&self, w: &mut Writer, udp_len: u16) -> Result<(), Error> {
        w.put(&self.to_bytes(udp_len)?)
    }
}

impl Ipv6 {
    fn read(r: &mut Reader) -> Result<(Self, usize), Error> {
        let word = r.u32()?;
        if word >> 28 != 6 {
            return Err(Error::IpHeader);
        }
        let payload = usize::from(r.u16()?);
        if r.u8()? != PROTOCOL_UDP {
            return Err(Error::NotRoce);
        }
        let hops = r.u8()?;
        let (from, to) = (r.take()?, r.take()?);
        let this = Self { from, to, traffic_class: (word >> 20) as u8, flow: word & 0xf_ffff, hops };
        Ok((this, payload.saturating_add(Self::BYTES)))
    }

    fn write(&self, w: &mut Writer, udp_len: u16) -> Result<(), Error> {
        w.u32(6 << 28 | u32::from(self.traffic_class) << 20 | fits(self.flow, 20)?)?;
        w.u16(udp_len)?;
        w.u8(PROTOCOL_UDP)?;
        w.u8(self.hops)?;
        w.put(&self.from)?;
        w.put(&self.to)
    }
}
