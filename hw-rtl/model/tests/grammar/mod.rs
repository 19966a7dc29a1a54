// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hostile wire that knows the protocol: frames that are nearly right, each with what is to become of it.
//!
//! Two attackers. One has seen frames of the connection ([`Seen`]): it knows addresses, QPNs, PSNs, credits, epochs and
//! Q_Keys, and breaks one rule at a time. The other is blind to all but the addresses.

#![allow(dead_code, reason = "each test program uses some of it")]

use berth_abi::card::SLOT_BYTES;
use berth_abi::counters::*;
use berth_abi::wire::*;
use berth_protocol::wire::berth::Placement;
use berth_protocol::wire::records::record;
use berth_rtl_host::{Bth, Rng, roce};

/// Rewrites the parts of a RoCE frame that depend on the others: IPv4 checksum and iCRC.
pub fn seal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34].chunks(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let end = frame.len() - 4;
    let mut input = vec![0xff; 8];
    input.extend_from_slice(&frame[14..end]);
    for masked in [9, 16, 18, 19, 34, 35, 40] {
        input[masked] = 0xff;
    }
    let mut crc = u32::MAX;
    for byte in input {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    frame[end..].copy_from_slice(&(!crc).to_le_bytes());
}

/// A frame of RoCE from `like` (a frame on the wire) with another opcode, QPN, PSN and body.
pub fn forge(like: &[u8], opcode: u8, qpn: u32, psn: u32, body: &[u8]) -> Vec<u8> {
    let pad = body.len().wrapping_neg() & 3;
    let mut f = like[..54].to_vec();
    f.extend_from_slice(body);
    f.resize(f.len() + pad + 4, 0);
    let ip_len = (f.len() - 14) as u16;
    f[16..18].copy_from_slice(&ip_len.to_be_bytes());
    f[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    f[42] = opcode;
    f[43] = (pad as u8) << 4;
    f[46..50].copy_from_slice(&qpn.to_be_bytes());
    f[50..54].copy_from_slice(&(psn & 0xff_ffff).to_be_bytes());
    seal(&mut f);
    f
}

/// The body of a SEND ONLY with immediate data: the credit of this number (low byte), a packet of it, data.
pub fn send(credit: u8, index: u32, data: &[u8]) -> Vec<u8> {
    [&[0; 4][..], &placement(credit, index), data].concat()
}

/// A placement header.
pub fn placement(credit: u8, index: u32) -> [u8; 4] {
    Placement { credit, index }.to_bytes()
}

/// Where a frame is counted; `None` where nothing has to be: it says what is known already.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Counted {
    /// In RTL: `C_*`.
    Rtl(u32),
    /// By firmware: `F_*`.
    Firmware(u32),
}

impl Counted {
    /// The counter's name.
    pub fn name(self) -> &'static str {
        match self {
            Counted::Rtl(i) => RTL_COUNTER_TABLE[i as usize].0,
            Counted::Firmware(i) => FW_COUNTER_TABLE[i as usize].0,
        }
    }
}

/// A frame of an attacker, and the one counter in which it is to be found.
pub struct Act {
    /// What is wrong with it.
    pub name: &'static str,
    /// The frame.
    pub frame: Vec<u8>,
    /// Its counter.
    pub counted: Counted,
}

/// What the attacker who sees everything has seen of a connection that rests: frames to the victim's QP `qpn`.
pub struct Seen {
    /// The victim's QP.
    pub qpn: u32,
    /// The last data packet to it.
    pub data: Vec<u8>,
    /// The last acknowledgement to it.
    pub ack: Vec<u8>,
    /// The last credit list to it, as a datagram, where there are such.
    pub list: Option<Vec<u8>>,
}

/// The credit of a data packet with a placement header.
pub fn credit_of(frame: &[u8]) -> u8 {
    let b = roce(frame).expect("RoCE");
    let at = if b.opcode == 3 || b.opcode == 5 { 4 } else { 0 };
    b.body[at + 3]
}

fn parts(frame: &[u8]) -> Bth {
    roce(frame).expect("a frame of RoCE")
}

impl Seen {
    /// A list like the last one, with another epoch or Q_Key added to, first number and sizes.
    pub fn list(&self, epoch: u32, qkey: u32, first: u32, sizes: &[u32]) -> Vec<u8> {
        let like = self.list.as_ref().expect("lists are datagrams");
        let b = parts(like);
        let mut words = self.list_words();
        words.truncate(4);
        words[0] = (u32::from_be(words[0]).wrapping_add(qkey)).to_be();
        words[2] = record(REC_LIST, 3 + sizes.len(), self.qpn);
        words[3] = words[3].wrapping_add(epoch);
        words.push(first);
        words.extend(sizes);
        let body: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        forge(like, b.opcode, b.qpn, b.psn, &body)
    }

    fn list_words(&self) -> Vec<u32> {
        let like = self.list.as_ref().expect("lists are datagrams");
        parts(like).body.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("4"))).collect()
    }

    /// Number of the first credit that is not known yet.
    pub fn next_credit(&self) -> u32 {
        let words = self.list_words();
        words[4].wrapping_add(words.len() as u32 - 5)
    }

    /// PSN of the next packet to the victim.
    pub fn next_psn(&self) -> u32 {
        parts(&self.data).psn.wrapping_add(1) & 0xff_ffff
    }

    /// Frames that break one rule each, in any order: all there are. None of them ends the connection.
    pub fn acts(&self, rng: &mut Rng) -> Vec<Act> {
        use Counted::{Firmware, Rtl};
        let (q, next) = (self.qpn, self.next_psn());
        let acked = parts(&self.ack).psn;
        let some = rng.bytes(64);
        let small = |opcode, psn, body: &[u8]| forge(&self.data, opcode, q, psn, body);
        let edit = |at: usize, bits: u8| {
            let mut f = self.data.clone();
            f[at] ^= bits;
            seal(&mut f);
            f
        };
        // Not RoCE to the card: what is behind the Ethernet header is not looked at.
        let raw = |at: usize, bytes: &[u8]| {
            let mut f = small(BTH_SEND_ONLY_IMM, next, &send(0, 0, &some));
            f[at..at + bytes.len()].copy_from_slice(bytes);
            f
        };
        let tagged = [&self.data[..12], &[0x81, 0, 0x20, rng.draw() as u8], &self.data[12..]].concat();
        let udp = |more: i16| {
            let mut f = self.data.clone();
            let length = u16::from_be_bytes([f[38], f[39]]).wrapping_add_signed(more);
            f[38..40].copy_from_slice(&length.to_be_bytes());
            seal(&mut f);
            f
        };
        // Two of the bytes that pad it are missing.
        let mut lying = small(BTH_SEND_ONLY_IMM, next, &send(0, 0, &some[..61]));
        lying.truncate(lying.len() - 2);
        let ip_len = lying.len() as u16 - 14;
        lying[16..18].copy_from_slice(&ip_len.to_be_bytes());
        lying[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
        seal(&mut lying);
        // More padding than there are bytes behind the headers.
        let mut padded = small(BTH_SEND_ONLY_IMM, next, &send(0, 0, &[]));
        padded[43] |= 0x30;
        seal(&mut padded);
        let far = rng.between(300, 0x40_0000) as u32;
        let bit = 1 << rng.below(8);
        let mut acts: Vec<(&'static str, Vec<u8>, Counted)> = vec![
            ("VLAN tag", tagged, Firmware(F_FOREIGN)),
            ("IPv6", raw(12, &[0x86, 0xdd]), Firmware(F_FOREIGN)),
            ("IPv4 options", raw(14, &[0x46]), Firmware(F_FOREIGN)),
            ("first fragment", raw(20, &[0x20, 0]), Firmware(F_FOREIGN)),
            ("later fragment", raw(20, &[0, bit]), Firmware(F_FOREIGN)),
            ("another UDP port", raw(36, &[0x12, 0xb8]), Firmware(F_FOREIGN)),
            ("another protocol", raw(23, &[6]), Firmware(F_FOREIGN)),
            ("to another MAC address", edit(5, bit), Rtl(C_RX_NOT_FOR_US)),
            ("multicast", edit(0, 1), Rtl(C_RX_NOT_FOR_US)),
            ("to another IPv4 address", edit(33, bit), Firmware(F_NOT_FOR_US)),
            ("from another IPv4 address", edit(29, bit), Firmware(F_NOT_FOR_US)),
            ("from another MAC address", edit(11, bit), Firmware(F_NOT_FOR_US)),
            (
                "damaged",
                {
                    let mut f = self.data.clone();
                    f[60] ^= bit;
                    f
                },
                Rtl(C_RX_BAD_ICRC),
            ),
            ("cut short", self.data[..self.data.len() - 1 - rng.below(12) as usize].to_vec(), Rtl(C_RX_TRUNCATED)),
            ("too long", vec![0x55; SLOT_BYTES as usize + 1 + rng.below(500) as usize], Rtl(C_RX_OVERSIZED)),
            ("UDP longer than IP", udp(4), Rtl(C_RX_TRUNCATED)),
            ("UDP shorter than IP", udp(-4), Firmware(F_BAD_HEADER)),
            ("unknown QPN", forge(&self.data, BTH_SEND_ONLY_IMM, 60, next, &send(0, 0, &some)), Firmware(F_UNKNOWN_QP)),
            (
                "QPN without a row",
                forge(&self.data, BTH_SEND_ONLY_IMM, 0x40_0000 | q, next, &send(0, 0, &some)),
                Firmware(F_UNKNOWN_QP),
            ),
            (
                "opcode",
                small([0x06, 0x0c, 0x1f, BTH_UD_SEND_ONLY, 0xff][rng.below(5) as usize], next, &some),
                Firmware(F_BAD_OPCODE),
            ),
            ("P_Key", edit(44, 0x40), Firmware(F_BAD_HEADER)),
            ("BTH version", edit(43, 1), Firmware(F_BAD_HEADER)),
            ("PadCnt that lies", lying, Firmware(F_BAD_HEADER)),
            ("PadCnt of more than there is", padded, Firmware(F_BAD_HEADER)),
            ("no placement header", small(BTH_SEND_ONLY_IMM, next, &[0; 20]), Firmware(F_BAD_HEADER)),
            (
                "SACK cut short",
                small(BTH_SELECTIVE_ACKNOWLEDGE, acked, &[0x1f, 0, 0, 0, 0x40, 0, 0, 0]),
                Firmware(F_BAD_HEADER),
            ),
            ("old packet", self.data.clone(), Rtl(C_FP_DUPLICATES)),
            (
                "packet of long ago",
                small(BTH_SEND_ONLY_IMM, next.wrapping_sub(far), &send(3, 0, &some)),
                Rtl(C_FP_DUPLICATES),
            ),
            (
                "packet beyond the window",
                small(BTH_SEND_ONLY_IMM, next.wrapping_add(far), &send(3, 0, &some)),
                Rtl(C_FP_DROPPED),
            ),
            (
                "acknowledgement of what was never sent",
                small(BTH_ACKNOWLEDGE, acked.wrapping_add(far), &[0x1f, 0, 0, 0]),
                Rtl(C_FP_BAD_ACKS),
            ),
            (
                "SACK of what was never sent",
                small(
                    BTH_SELECTIVE_ACKNOWLEDGE,
                    acked.wrapping_add(far),
                    &[&[0x1f, 0, 0, 0][..], &some[..16]].concat(),
                ),
                Rtl(C_FP_BAD_ACKS),
            ),
            (
                "NAK of what was never sent",
                small(BTH_ACKNOWLEDGE, acked.wrapping_add(far), &[0x60 | some[0] & 3, 0, 0, 0]),
                Rtl(C_FP_BAD_ACKS),
            ),
            (
                "RNR of what was never sent",
                small(BTH_ACKNOWLEDGE, acked.wrapping_add(far), &[0x20, 0, 0, 0]),
                Rtl(C_FP_BAD_ACKS),
            ),
            (
                "AETH of no kind",
                small(BTH_ACKNOWLEDGE, acked.wrapping_add(far), &[0x40 | some[0] & 0x80, 0, 0, 0]),
                Rtl(C_FP_BAD_ACKS),
            ),
        ];
        let lists = |size| self.list(0, 0, self.next_credit(), size);
        if self.list.is_some() {
            let mut elsewhere = lists(&[100]);
            elsewhere[11] ^= bit;
            acts.extend([
                ("list from another MAC address", elsewhere, Firmware(F_NOT_FOR_US)),
                ("list of another epoch", self.list(1 + far, 0, self.next_credit(), &[100]), Firmware(F_UNKNOWN_QP)),
                ("list with another Q_Key", self.list(0, 1 + far, self.next_credit(), &[100]), Firmware(F_CONTROL_BAD)),
                ("empty list", lists(&[]), Firmware(F_CONTROL_BAD)),
                ("list that is too long", lists(&[9; 65]), Firmware(F_CONTROL_BAD)),
            ]);
        }
        for i in (1..acts.len()).rev() {
            acts.swap(i, rng.below(i as u64 + 1) as usize);
        }
        acts.into_iter().map(|(name, frame, counted)| Act { name, frame, counted }).collect()
    }

    /// One of [`Seen::acts`].
    pub fn act(&self, rng: &mut Rng) -> Act {
        self.acts(rng).pop().expect("there are some")
    }

    /// What says again, or too early, what a connection may say: old acknowledgements and NAKs, lists with a gap before
    /// them, lists once more. RTL has a counter for each.
    pub fn repeat(&self, rng: &mut Rng) -> Act {
        let acked = parts(&self.ack).psn;
        let some = rng.below(1000) as u32;
        let old =
            |syndrome: u8| forge(&self.data, BTH_ACKNOWLEDGE, self.qpn, acked.wrapping_sub(some), &[syndrome, 0, 0, 0]);
        let (name, frame, counter) = match rng.below(if self.list.is_some() { 6 } else { 4 }) {
            0 => ("acknowledgement once more", self.ack.clone(), C_FP_ACKS_TAKEN),
            1 => ("old acknowledgement", old(0x1f), C_FP_ACKS_TAKEN),
            2 => ("old NAK", old(0x60 + (some % 4) as u8), C_FP_ACKS_TAKEN),
            3 => ("old RNR", old(0x20 + (some % 16) as u8), C_FP_ACKS_TAKEN),
            4 => {
                ("list with a gap before it", self.list(0, 0, self.next_credit() + 1 + some, &[5; 3]), C_LISTS_REFUSED)
            }
            _ => ("list once more", self.list.clone().expect("there is one"), C_FP_LIST_REPEATS),
        };
        Act { name, frame, counted: Counted::Rtl(counter) }
    }
}

/// A frame of the attacker who knows addresses only.
pub fn blind(like: &[u8], rng: &mut Rng) -> Vec<u8> {
    let opcode = match rng.below(4) {
        0 => rng.draw() as u8,
        1 => BTH_ACKNOWLEDGE,
        2 => (BTH_SEND_FIRST..=BTH_SEND_ONLY_IMM).collect::<Vec<_>>()[rng.below(6) as usize],
        _ => [BTH_SELECTIVE_ACKNOWLEDGE, BTH_UD_SEND_ONLY][rng.below(2) as usize],
    };
    let qpn = match rng.below(3) {
        0 => rng.below(128) as u32,
        1 => 2,
        _ => rng.draw() as u32 & 0xff_ffff,
    };
    let len = [0, 4, 8, 20, 24, 92, 1024, 4096][rng.below(8) as usize] + rng.below(5) as usize;
    let body = rng.bytes(len);
    forge(like, opcode, qpn, rng.draw() as u32, &body)
}
