// SPDX-License-Identifier: GPL-2.0
//! Management datagrams by which a host finds out whether a peer is a Berth (IBTA 13.4): bytes only.
//!
//! Whoever knows nothing of them answers that it has no such class, or nothing. So nothing else of Berth's own goes to a peer
//! that has not said what it is.

use crate::abi::wire::{CONTROL_VERSION, MAD_ATTRIBUTE, MAD_CLASS, MAD_DATA, MAD_VENDOR};

/// Bytes of a management datagram (IBTA 13.4.2).
pub(crate) const BYTES: usize = 256;

const BASE_VERSION: u8 = 1;
const CLASS_VERSION: u8 = 1;
const GET: u8 = 1;
const GET_RESPONSE: u8 = 0x81;
/// Where the vendor stands in datagrams of such classes.
const AT_VENDOR: usize = 37;

/// What one says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A Berth asks.
    Asks,
    /// A Berth of our version answers, or somebody who is none.
    Answers(bool),
}

fn with(method: u8, transaction: u64, version: u32) -> [u8; BYTES] {
    let mut mad = [0; BYTES];
    mad[..4].copy_from_slice(&[BASE_VERSION, MAD_CLASS, CLASS_VERSION, method]);
    mad[8..16].copy_from_slice(&transaction.to_be_bytes());
    mad[16..18].copy_from_slice(&MAD_ATTRIBUTE.to_be_bytes());
    mad[AT_VENDOR..AT_VENDOR + 3].copy_from_slice(&MAD_VENDOR);
    mad[MAD_DATA..MAD_DATA + 4].copy_from_slice(&version.to_be_bytes());
    mad
}

/// The one that asks.
pub(crate) fn question(transaction: u64) -> [u8; BYTES] {
    with(GET, transaction, CONTROL_VERSION)
}

/// The one that answers it.
pub(crate) fn answer(transaction: u64) -> [u8; BYTES] {
    with(GET_RESPONSE, transaction, CONTROL_VERSION)
}

/// Reads one that came to QP 1: what it says, and in which transaction; `None` if it is none of ours.
pub(crate) fn read(mad: &[u8]) -> Option<(Said, u64)> {
    if mad.len() != BYTES || mad[..3] != [BASE_VERSION, MAD_CLASS, CLASS_VERSION] {
        return None;
    }
    let transaction = u64::from_be_bytes(*mad.get(8..)?.first_chunk()?);
    let ours = mad[16..18] == MAD_ATTRIBUTE.to_be_bytes()
        && mad[AT_VENDOR..AT_VENDOR + 3] == MAD_VENDOR
        && mad[MAD_DATA..MAD_DATA + 4] == CONTROL_VERSION.to_be_bytes();
    let said = match mad[3] {
        // Not to be answered by us, but as of a class that nobody has.
        GET if !ours => return None,
        GET => Said::Asks,
        // Whoever does not know the class sends it back with a status.
        GET_RESPONSE => Said::Answers(ours && mad[4..6] == [0, 0]),
        _ => return None,
    };
    Some((said, transaction))
}
