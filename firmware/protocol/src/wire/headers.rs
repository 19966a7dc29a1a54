// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet, IPv4, UDP, BTH and what follows: parse and emit, on frames as words of
//! packet RAM (little-endian images of the bytes; the frame starts at byte 0).
//!
//! ```text
//! byte  0 Ethernet | 14 IPv4 | 34 UDP | 42 BTH | 54 immediate or AETH or payload | … | iCRC
//! ```

use crate::base::bound::Bound;
use crate::rc::Placement;
use berth_abi::counters::{F_BAD_HEADER, F_NOT_FOR_US};

pub use super::berth::list_qkey;
pub use berth_abi::wire::{
    BTH_ACKNOWLEDGE, BTH_SELECTIVE_ACKNOWLEDGE, BTH_SEND_FIRST, BTH_SEND_LAST_IMM, BTH_SEND_LAST_INVALIDATE,
    BTH_SEND_MIDDLE, BTH_SEND_ONLY, BTH_SEND_ONLY_IMM, BTH_SEND_ONLY_INVALIDATE, BTH_UC_WRITE_ONLY, BTH_UD_SEND_ONLY,
};

/// UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// First byte after the BTH.
pub const PAYLOAD: u32 = 54;
/// Words that hold all headers.
pub const HEADER_WORDS: usize = 16;
/// Bytes of the placement header (selective repeat).
pub const PLACEMENT: u32 = Placement::BYTES as u32;
/// Bytes of a datagram's header (DETH): Q_Key, source QPN.
pub const DATAGRAM: u32 = 8;
/// Bytes of a WRITE's header (RETH): address, key, length.
pub const RETH: u32 = 16;
/// Bytes of iCRC.
pub const ICRC: u32 = 4;

/// AETH syndrome: ACK, credit count invalid (decision 8).
pub const ACK: u32 = 0x1f;
/// AETH syndrome: NAK, PSN sequence error.
pub const NAK_SEQUENCE: u32 = 0x60;
/// PSNs have 24 bits.
pub const PSN_MASK: u32 = 0xff_ffff;

/// `a - b` modulo 2^24.
pub const fn psn_sub(a: u32, b: u32) -> u32 {
    a.wrapping_sub(b) & PSN_MASK
}

/// `a + n` modulo 2^24.
pub const fn psn_add(a: u32, n: u32) -> u32 {
    a.wrapping_add(n) & PSN_MASK
}

/// Header words of a frame.
pub type Words = [u32; HEADER_WORDS];

/// The 16-bit big-endian field at even byte `i`.
#[inline]
fn be16(w: &Words, i: usize) -> u16 {
    ((w[i >> 2] >> ((i & 2) * 8)) as u16).swap_bytes()
}

/// The byte at `i`.
#[inline]
fn byte(w: &Words, i: usize) -> u8 {
    (w[i >> 2] >> ((i & 3) * 8)) as u8
}

#[inline]
fn set16(w: &mut Words, i: usize, value: u16) {
    let shift = (i & 2) * 8;
    w[i >> 2] = w[i >> 2] & !(0xffff << shift) | (value.swap_bytes() as u32) << shift;
}

#[inline]
fn set8(w: &mut Words, i: usize, value: u8) {
    let shift = (i & 3) * 8;
    w[i >> 2] = w[i >> 2] & !(0xff << shift) | (value as u32) << shift;
}

fn fold(mut sum: u32) -> u16 {
    sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

/// MAC address as the words of a frame hold it: bytes 0..3, bytes 4..5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub u32, pub u16);

impl Mac {
    /// From bytes in transmission order.
    pub const fn new(b: [u8; 6]) -> Self {
        Self(u32::from_le_bytes([b[0], b[1], b[2], b[3]]), u16::from_le_bytes([b[4], b[5]]))
    }
    /// All ones.
    pub const BROADCAST: Self = Self(0xffff_ffff, 0xffff);

    /// Destination of a frame.
    pub fn destination(w: &Words) -> Self {
        Self(w[0], w[1] as u16)
    }
    /// Source of a frame.
    pub fn source(w: &Words) -> Self {
        Self(w[1] >> 16 | w[2] << 16, (w[2] >> 16) as u16)
    }
}

/// The fields of a received RoCE frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sender's MAC address.
    pub mac: Mac,
    /// Sender's IPv4 address.
    pub ip: u32,
    /// BTH opcode.
    pub opcode: u8,
    /// Solicited event: PUSH.
    pub solicited: bool,
    /// Destination QPN.
    pub qpn: u32,
    /// The sender wants an acknowledgement.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: u32,
    /// Immediate data, AETH, a datagram's Q_Key, or the upper half of a WRITE's address.
    pub ext: u32,
    /// The 4 bytes behind it: a datagram's source QPN (bits 23:0), or that address's lower half.
    pub more: u32,
    /// Payload's first byte in the slot.
    pub start: u32,
    /// Payload bytes without pad.
    pub len: u32,
}

/// Parses a frame of `len` bytes (with iCRC) for the end node `mac`, `ip`.
///
/// # Errors
/// The counter (`F_*`) to count when the frame is to be dropped.
pub fn parse(w: &Words, len: u32, mac: Mac, ip: u32) -> Result<Packet, u32> {
    if Mac::destination(w) != mac {
        return Err(F_NOT_FOR_US);
    }
    if be16(w, 12) != 0x0800 || byte(w, 14) != 0x45 || byte(w, 23) != 17 {
        return Err(F_BAD_HEADER);
    }
    if (be16(w, 30) as u32) << 16 | be16(w, 32) as u32 != ip {
        return Err(F_NOT_FOR_US);
    }
    let total = be16(w, 16) as u32;
    let mut sum = 0;
    let mut i = 14;
    let mut bound = Bound::new(10);
    while i < 34 {
        bound.step();
        sum += be16(w, i) as u32;
        i += 2;
    }
    let flags = byte(w, 43);
    let opcode = byte(w, 42);
    let ext = match opcode {
        BTH_SEND_LAST_IMM | BTH_SEND_ONLY_IMM | BTH_ACKNOWLEDGE | BTH_SELECTIVE_ACKNOWLEDGE => 4,
        BTH_UD_SEND_ONLY => DATAGRAM,
        BTH_UC_WRITE_ONLY => RETH,
        _ => 0,
    };
    let pad = (flags as u32 >> 4) & 3;
    let overhead = 20 + 8 + 12 + ext + ICRC;
    if fold(sum) != 0xffff
        || be16(w, 20) & 0x3fff != 0
        || total + 14 > len
        || be16(w, 36) != UDP_PORT
        || be16(w, 38) as u32 + 20 != total
        || flags & 0x0f != 0
        || be16(w, 44) != 0xffff
        || total < overhead + pad
        || (total - overhead) & 3 != 0
    {
        return Err(F_BAD_HEADER);
    }
    Ok(Packet {
        mac: Mac::source(w),
        ip: (be16(w, 26) as u32) << 16 | be16(w, 28) as u32,
        opcode,
        solicited: flags & 0x80 != 0,
        qpn: (byte(w, 47) as u32) << 16 | be16(w, 48) as u32,
        ack_request: byte(w, 50) & 0x80 != 0,
        psn: (byte(w, 51) as u32) << 16 | be16(w, 52) as u32,
        ext: (be16(w, 54) as u32) << 16 | be16(w, 56) as u32,
        more: (be16(w, 58) as u32) << 16 | be16(w, 60) as u32,
        start: PAYLOAD + ext,
        len: total - overhead - pad,
    })
}

/// Headers to one destination QP, prepared once: only lengths, PSN and the like are filled in per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    words: Words,
    /// Sum of the IPv4 header's halves without the length.
    sum: u32,
}

impl Template {
    /// Nothing.
    pub const EMPTY: Self = Self { words: [0; HEADER_WORDS], sum: 0 };

    /// Headers from (`mac`, `ip`) to (`to_mac`, `to_ip`), QPN `qpn`, with UDP source port `port`.
    pub fn new(mac: Mac, ip: u32, to_mac: Mac, to_ip: u32, port: u16, qpn: u32) -> Self {
        let mut new = Self::EMPTY;
        new.set(mac, ip, to_mac, to_ip, port, qpn);
        new
    }

    /// [`Template::new`] in its place, without a copy.
    pub fn set(&mut self, mac: Mac, ip: u32, to_mac: Mac, to_ip: u32, port: u16, qpn: u32) {
        let w = &mut self.words;
        *w = [0; HEADER_WORDS];
        w[0] = to_mac.0;
        w[1] = to_mac.1 as u32 | mac.0 << 16;
        w[2] = mac.0 >> 16 | (mac.1 as u32) << 16;
        set16(w, 12, 0x0800);
        set16(w, 14, 0x4500);
        set16(w, 20, 0x4000);
        set16(w, 22, 0x4011);
        set16(w, 26, (ip >> 16) as u16);
        set16(w, 28, ip as u16);
        set16(w, 30, (to_ip >> 16) as u16);
        set16(w, 32, to_ip as u16);
        set16(w, 34, port);
        set16(w, 36, UDP_PORT);
        set16(w, 44, 0xffff);
        set8(w, 47, (qpn >> 16) as u8);
        set16(w, 48, qpn as u16);
        self.sum = (14..34).step_by(2).map(|i| be16(w, i) as u32).sum();
    }

    /// As the fast path's rows have it: bytes 24 and 25 are the sum without the length, not complemented.
    pub fn row(&self) -> [u32; 14] {
        let mut w = self.words;
        set16(&mut w, 24, fold(self.sum));
        let mut row = [0; 14];
        row.copy_from_slice(&w[..14]);
        row
    }

    /// Headers of one data packet of a connection with selective repeat: as [`Template::packet`],
    /// and `placement` behind them.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub fn placed(
        &self,
        opcode: u8,
        solicited: bool,
        ack_request: bool,
        psn: u32,
        ext: Option<u32>,
        placement: Placement,
        len: u32,
    ) -> Frame {
        let placement = placement.to_word();
        let mut frame = self.packet(opcode, solicited, ack_request, psn, ext, len + PLACEMENT);
        let at = frame.start as usize;
        if at + 4 <= 4 * HEADER_WORDS {
            set16(&mut frame.words, at, (placement >> 16) as u16);
            set16(&mut frame.words, at + 2, placement as u16);
        }
        frame.start += PLACEMENT;
        frame
    }

    /// Headers of a datagram (UD SEND ONLY, PSN 0) to QPN `qpn` of the same end node, from QPN `source`, with `qkey`.
    pub fn datagram(&self, qpn: u32, source: u32, qkey: u32, len: u32) -> Frame {
        let mut frame = self.packet(BTH_UD_SEND_ONLY, false, false, 0, Some(qkey), len + DATAGRAM - 4);
        set8(&mut frame.words, 47, (qpn >> 16) as u8);
        set16(&mut frame.words, 48, qpn as u16);
        set16(&mut frame.words, 58, (source >> 16) as u16 & 0xff);
        set16(&mut frame.words, 60, source as u16);
        frame.start += DATAGRAM - 4;
        frame
    }

    /// Headers of one packet: `len` payload bytes, `ext` the immediate or AETH if the opcode
    /// has one. Gives the words, the payload's first byte and the frame's length without
    /// iCRC; the `pad` bytes after the payload must be zero.
    #[inline]
    pub fn packet(
        &self,
        opcode: u8,
        solicited: bool,
        ack_request: bool,
        psn: u32,
        ext: Option<u32>,
        len: u32,
    ) -> Frame {
        let mut w = self.words;
        let pad = len.wrapping_neg() & 3;
        let start = PAYLOAD + if ext.is_some() { 4 } else { 0 };
        let end = start + len + pad;
        let total = (end + ICRC - 14) as u16;
        set16(&mut w, 16, total);
        set16(&mut w, 24, !fold(self.sum + total as u32));
        set16(&mut w, 38, total - 20);
        set16(&mut w, 42, (opcode as u16) << 8 | (solicited as u16) << 7 | (pad as u16) << 4);
        set8(&mut w, 50, (ack_request as u8) << 7);
        set8(&mut w, 51, (psn >> 16) as u8);
        set16(&mut w, 52, psn as u16);
        let ext = ext.unwrap_or(0);
        set16(&mut w, 54, (ext >> 16) as u16);
        set16(&mut w, 56, ext as u16);
        Frame { words: w, start, pad, end }
    }
}

/// Headers of one packet to send.
pub struct Frame {
    /// Words of the headers.
    pub words: Words,
    /// Payload's first byte.
    pub start: u32,
    /// Zero bytes after the payload.
    pub pad: u32,
    /// Length without iCRC.
    pub end: u32,
}

/// ARP over Ethernet, IPv4.
pub mod arp {
    use super::{Mac, Words, be16, set16};

    /// Bytes of an ARP frame (padded to Ethernet's minimum).
    pub const LEN: u32 = 60;

    /// An ARP message that is well formed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Arp {
        /// A reply, else a request.
        pub reply: bool,
        /// Sender's MAC address.
        pub mac: Mac,
        /// Sender's IPv4 address.
        pub ip: u32,
        /// IPv4 address that is asked for.
        pub target: u32,
    }

    /// Parses a frame of `len` bytes. The sender's MAC address must be the frame's source.
    pub fn parse(w: &Words, len: u32) -> Option<Arp> {
        let fixed = be16(w, 12) == 0x0806 && be16(w, 14) == 1 && be16(w, 16) == 0x0800 && be16(w, 18) == 0x0604;
        let op = be16(w, 20);
        let mac = Mac(w[5] >> 16 | w[6] << 16, (w[6] >> 16) as u16);
        if !fixed || len < 42 || !(1..=2).contains(&op) || mac != Mac::source(w) || mac.0 & 1 != 0 {
            return None;
        }
        Some(Arp {
            reply: op == 2,
            mac,
            ip: (be16(w, 28) as u32) << 16 | be16(w, 30) as u32,
            target: (be16(w, 38) as u32) << 16 | be16(w, 40) as u32,
        })
    }

    /// A frame that says `arp` to `to` (a request goes to all).
    pub fn emit(arp: &Arp, to: Mac) -> Words {
        let mut w = [0; super::HEADER_WORDS];
        let (dst, target) = match arp.reply {
            true => (to, to),
            false => (Mac::BROADCAST, Mac::default()),
        };
        w[0] = dst.0;
        w[1] = dst.1 as u32 | arp.mac.0 << 16;
        w[2] = arp.mac.0 >> 16 | (arp.mac.1 as u32) << 16;
        set16(&mut w, 12, 0x0806);
        set16(&mut w, 14, 1);
        set16(&mut w, 16, 0x0800);
        set16(&mut w, 18, 0x0604);
        set16(&mut w, 20, if arp.reply { 2 } else { 1 });
        w[5] |= arp.mac.0 << 16;
        w[6] = arp.mac.0 >> 16 | (arp.mac.1 as u32) << 16;
        set16(&mut w, 28, (arp.ip >> 16) as u16);
        set16(&mut w, 30, arp.ip as u16);
        w[8] = target.0;
        w[9] = target.1 as u32;
        set16(&mut w, 38, (arp.target >> 16) as u16);
        set16(&mut w, 40, arp.target as u16);
        w
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac::new([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac::new([2, 0, 0, 0, 0, 2]);

    fn template() -> Template {
        Template::new(A, 0x0a00_0001, B, 0x0a00_0002, 0xc123, 0x01_2345)
    }

    #[test]
    fn qp_7_every_emitted_header_parses_to_the_same_fields() {
        for (opcode, ext) in [
            (BTH_SEND_FIRST, None),
            (BTH_SEND_MIDDLE, None),
            (BTH_SEND_LAST_IMM, Some(0x1122_3344)),
            (BTH_SEND_ONLY, None),
            (BTH_SEND_ONLY_IMM, Some(u32::MAX)),
            (BTH_ACKNOWLEDGE, Some(ACK << 24 | 7)),
        ] {
            for len in [0, 1, 2, 3, 4, 4096] {
                let f = template().packet(opcode, true, true, 0xab_cdef, ext, len);
                assert_eq!((f.end - f.start) % 4, 0);
                let p = parse(&f.words, f.end + ICRC, B, 0x0a00_0002).unwrap();
                assert_eq!(
                    p,
                    Packet {
                        mac: A,
                        ip: 0x0a00_0001,
                        opcode,
                        solicited: true,
                        qpn: 0x01_2345,
                        ack_request: true,
                        psn: 0xab_cdef,
                        ext: ext.unwrap_or(p.ext),
                        more: p.more,
                        start: f.start,
                        len,
                    }
                );
            }
        }
    }

    #[test]
    fn qp_7_the_bytes_are_those_of_rocev2() {
        let f = template().packet(BTH_SEND_ONLY_IMM, false, true, 0x10_2030, Some(0xa1b2_c3d4), 5);
        let bytes: std::vec::Vec<u8> = f.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(bytes[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        // Total length 20 + 8 + 12 + 4 + 5 + 3 + 4 = 56, DF, TTL 64, UDP.
        assert_eq!(bytes[14..24], [0x45, 0, 0, 56, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(bytes[26..34], [10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(bytes[34..42], [0xc1, 0x23, 0x12, 0xb7, 0, 36, 0, 0]);
        assert_eq!(
            bytes[42..58],
            [5, 0x30, 0xff, 0xff, 0, 1, 0x23, 0x45, 0x80, 0x10, 0x20, 0x30, 0xa1, 0xb2, 0xc3, 0xd4]
        );
    }

    #[test]
    fn headers_that_contradict_each_other_are_refused() {
        let f = template().packet(BTH_SEND_ONLY_IMM, false, false, 1, Some(0), 8);
        let len = f.end + ICRC;
        let check = |edit: &dyn Fn(&mut Words)| {
            let mut w = f.words;
            edit(&mut w);
            parse(&w, len, B, 0x0a00_0002)
        };
        assert!(check(&|_| ()).is_ok());
        assert_eq!(check(&|w| w[0] ^= 1), Err(F_NOT_FOR_US));
        assert_eq!(check(&|w| set16(w, 32, 3)), Err(F_NOT_FOR_US));
        for i in [12, 14, 16, 20, 22, 36, 38, 44] {
            let edit = |w: &mut Words| {
                let value = be16(w, i);
                set16(w, i, value ^ 0x11);
            };
            assert_eq!(check(&edit), Err(F_BAD_HEADER), "byte {i}");
        }
        // The header checksum is right, but the frame is shorter than it says.
        assert_eq!(parse(&f.words, len - 1, B, 0x0a00_0002), Err(F_BAD_HEADER));
    }

    #[test]
    fn arp_round_trip() {
        let req = arp::Arp { reply: false, mac: A, ip: 1, target: 0x0102_0304 };
        assert_eq!(arp::parse(&arp::emit(&req, B), arp::LEN), Some(req));
        let rep = arp::Arp { reply: true, ..req };
        let w = arp::emit(&rep, B);
        assert_eq!(arp::parse(&w, arp::LEN), Some(rep));
        assert_eq!(Mac::destination(&w), B);
        assert_eq!(arp::parse(&w, 41), None);
    }
}
