// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the control connection (CR-12a): three words of header, then records. Every record begins with a word that
//! names its type, its length and the QPN that it is for. See docs/reference/wire.md.

pub use berth_abi::wire::{
    REC_BIND, REC_DREQ, REC_GO, REC_KEEPALIVE, REC_LIST, REC_RECALL, REC_RECALLED, REC_REJ, REC_REP, REC_REQ, REC_RTU,
};

/// Words of a control message: it fits the smallest MTU.
pub const CONTROL_WORDS: usize = 64;
/// Words before the records of a control message.
pub const MESSAGE_HEADER: usize = 3;
/// Version of the control messages, in bits 7:0 of a message's third word.
pub use berth_abi::wire::CONTROL_VERSION as VERSION;
/// Bit of a message's third word: the first message of an incarnation.
pub const START: u32 = 1 << 8;
/// Bit of a message's third word: not a message, but an answer to one of an end that we do not know. It has the PSN of
/// that message and no records; word 0 is the name that the end is to begin with (`Shared::challenge` of the card).
pub const CHALLENGE: u32 = 1 << 9;

/// First word of a record: type, words of the record, QPN that it is for.
pub const fn record(kind: u32, words: usize, qpn: u32) -> u32 {
    kind | (words as u32) << 8 | qpn << 16
}
