// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests read in frames of the wire.

use berth_abi::card::{CONTROL_QPN, FIRST_QPN};
use berth_abi::wire::*;
use std::collections::BTreeMap;

/// What a test wants to know of a frame on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Opcode.
    pub opcode: u8,
    /// Destination QPN.
    pub qpn: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// What follows the BTH, without padding and iCRC.
    pub body: Vec<u8>,
}

/// Reads a frame as RoCEv2; `None` when it is something else.
pub fn roce(frame: &[u8]) -> Option<Bth> {
    if frame.len() < 58 || frame[12..14] != [8, 0] || frame[23] != 17 || frame[36..38] != 4791u16.to_be_bytes() {
        return None;
    }
    let ip_len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let end = 14 + ip_len - 4;
    let pad = usize::from(frame[43] >> 4 & 3);
    Some(Bth {
        opcode: frame[42],
        qpn: u32::from_be_bytes([0, frame[47], frame[48], frame[49]]),
        psn: u32::from_be_bytes([0, frame[51], frame[52], frame[53]]),
        body: frame[54..end - pad].to_vec(),
    })
}

/// Whether a frame carries data (an RC SEND) of a data QP.
pub fn is_data(frame: &[u8]) -> bool {
    roce(frame).is_some_and(|b| b.qpn >= FIRST_QPN && b.opcode <= 0x05)
}

/// Bytes of the placement header in each data packet (docs/reference/wire.md: selective repeat between Berth cards).
const PLACEMENT: usize = 4;

/// Data bytes of each data packet in `frames` for QP `qpn`, in order of sending.
pub fn data_lengths(frames: &[Vec<u8>], qpn: u32) -> Vec<usize> {
    let data = frames.iter().filter_map(|f| roce(f)).filter(|b| b.qpn == qpn);
    data.filter_map(|b| match b.opcode {
        0x00 | 0x01 => Some(b.body.len().saturating_sub(PLACEMENT)),
        0x03 | 0x05 => Some(b.body.len().saturating_sub(4 + PLACEMENT)),
        _ => None,
    })
    .collect()
}

/// Data bytes of each piece in `frames` for QP `qpn`, of a wire without retransmissions.
pub fn piece_lengths(frames: &[Vec<u8>], qpn: u32) -> Vec<usize> {
    let mut pieces = Vec::new();
    let mut open = 0;
    for b in frames.iter().filter_map(|f| roce(f)).filter(|b| b.qpn == qpn) {
        match b.opcode {
            BTH_SEND_FIRST | BTH_SEND_MIDDLE => open += b.body.len().saturating_sub(PLACEMENT),
            BTH_SEND_LAST_IMM | BTH_SEND_ONLY_IMM => {
                pieces.push(std::mem::take(&mut open) + b.body.len().saturating_sub(4 + PLACEMENT))
            }
            _ => {}
        }
    }
    pieces
}

/// Credit lists in `frames` for the sending QP `qpn`, each once, in order of their numbers.
///
/// The formats are in docs/reference/wire.md: a control message has 3 words of header, then records of
/// (type | words << 8 | QPN << 16) and a body; that of a list: epoch, first number, sizes. A datagram has
/// one such record behind its 2 words of DETH, a WRITE behind its 4 words of RETH.
pub fn credit_lists(frames: &[Vec<u8>], qpn: u32) -> Vec<Vec<u32>> {
    numbered_lists(frames, qpn).into_values().collect()
}

/// As [`credit_lists`], by the number of their first credit.
pub fn numbered_lists(frames: &[Vec<u8>], qpn: u32) -> BTreeMap<u32, Vec<u32>> {
    let mut lists = BTreeMap::new();
    for message in frames.iter().filter_map(|f| roce(f)) {
        let mut at = match (message.opcode, message.qpn) {
            (BTH_SEND_ONLY, CONTROL_QPN) => 3,
            (BTH_UD_SEND_ONLY, _) => 2,
            (BTH_UC_WRITE_ONLY, CONTROL_QPN) => 4,
            _ => continue,
        };
        let words: Vec<u32> =
            message.body.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect();
        while at < words.len() {
            let n = (words[at] >> 8 & 0xff) as usize;
            assert!(n > 0 && at + n <= words.len(), "malformed control message {words:x?}");
            if words[at] & 0xff == REC_LIST && words[at] >> 16 == qpn {
                lists.insert(words[at + 2], words[at + 3..at + n].to_vec());
            }
            at += n;
        }
    }
    lists
}
