// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the two ends of a one-sided copy tell each other: `berth serve` on one side, `berth get` and `berth put` on the
//! other.
//!
//! The request's private data is [`ASK`], that of the accept an [`Offer`]. `get` says nothing else. `put` sends a
//! [`Store`] behind its WRITEs, which is answered with a [`Record`](crate::record::Record) when they are in the file.

use libberth::Remote;

use crate::failure::Failure;
use crate::record::{long, word};

/// Private data of a request for a copy.
pub const ASK: &[u8] = b"berth one-sided copy v1";

/// Receives of each end of a copy, most of them spare.
pub const RECV_DEPTH: u32 = 4;

/// Bytes of an [`Offer`]: as many as an accept carries.
const OFFER: usize = 32;
/// Bytes of a [`Store`].
pub const STORE: usize = 24;

const OFFER_MAGIC: &[u8; 4] = b"BOF\x01";
const STORE_MAGIC: &[u8; 8] = b"BSTORE\0\x01";
/// Beside the length, which is below it.
const WRITABLE: u64 = 1 << 63;

/// A file that is served, or memory for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its first byte.
    pub remote: Remote,
    /// Its length in bytes.
    pub length: u64,
    /// Clients may write to it.
    pub writable: bool,
    /// Another number when the file is another, or has been written to before it was served again.
    pub stamp: u64,
}

impl Offer {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; OFFER] {
        let mut bytes = [0; OFFER];
        bytes[..4].copy_from_slice(OFFER_MAGIC);
        bytes[4..8].copy_from_slice(&self.remote.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.remote.va.to_le_bytes());
        let rights = if self.writable { WRITABLE } else { 0 };
        bytes[16..24].copy_from_slice(&(self.length | rights).to_le_bytes());
        bytes[24..].copy_from_slice(&self.stamp.to_le_bytes());
        bytes
    }

    /// Reads what a server has answered.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        let (remote, length) = (Remote { va: long(bytes, 8), key: word(bytes, 4) }, long(bytes, 16));
        let offer =
            Self { remote, length: length & !WRITABLE, writable: length & WRITABLE != 0, stamp: long(bytes, 24) };
        let good = bytes.len() == OFFER && bytes.starts_with(OFFER_MAGIC);
        match remote.va.checked_add(offer.length) {
            Some(_) if good => Ok(offer),
            _ => Err(Failure::Protocol("the peer speaks another protocol: its offer is malformed".into())),
        }
    }

    /// The byte at `offset`, which is inside.
    pub fn at(&self, offset: u64) -> Remote {
        Remote { va: self.remote.va + offset, ..self.remote }
    }
}

/// A client has written a range: the server is to store it in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
}

impl Store {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; STORE] {
        let mut bytes = [0; STORE];
        bytes[..8].copy_from_slice(STORE_MAGIC);
        bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
        bytes[16..].copy_from_slice(&self.end.to_le_bytes());
        bytes
    }

    /// Reads what a client of a file of `length` bytes has sent.
    pub fn from_bytes(bytes: &[u8], length: u64) -> Result<Self, Failure> {
        let store = Self { start: long(bytes, 8), end: long(bytes, 16) };
        let good = bytes.len() == STORE && bytes.starts_with(STORE_MAGIC);
        if good && store.start <= store.end && store.end <= length {
            return Ok(store);
        }
        Err(Failure::Protocol("the client speaks another protocol: its message is malformed".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_random::{Rng, seed};

    #[test]
    fn offer_is_read_back_and_others_are_refused() {
        let remote = Remote { va: 0x7f00_0000_1000, key: 0xfedc_ba98 };
        for writable in [false, true] {
            let offer = Offer { remote, length: 60_000, writable, stamp: u64::MAX };
            assert_eq!(Offer::from_bytes(&offer.to_bytes()).unwrap(), offer);
            assert_eq!(offer.at(7), Remote { va: 0x7f00_0000_1007, ..remote });
            for (at, value) in [(0, b'X'), (3, 2), (22, 0xff), (23, 0x7f)] {
                let mut bytes = Offer { length: u64::MAX >> 2, ..offer }.to_bytes();
                bytes[15] = 0xf0;
                bytes[at] = value;
                assert!(matches!(Offer::from_bytes(&bytes), Err(Failure::Protocol(_))), "{at}");
            }
            assert!(Offer::from_bytes(&offer.to_bytes()[1..]).is_err());
        }
        // An accept of another program, or of none.
        assert!(Offer::from_bytes(b"").is_err());
        assert!(Offer::from_bytes(&[0; OFFER]).is_err());
    }

    #[test]
    fn range_that_the_file_does_not_have_is_not_stored() {
        let read = |start, end| Store::from_bytes(&Store { start, end }.to_bytes(), 100).ok();
        for (start, end) in [(0, 100), (7, 7), (100, 100)] {
            assert_eq!(read(start, end), Some(Store { start, end }));
        }
        for (start, end) in [(0, 101), (8, 7), (u64::MAX, 5), (0, u64::MAX)] {
            assert_eq!(read(start, end), None);
        }
        let good = Store { start: 1, end: 2 }.to_bytes();
        assert!(Store::from_bytes(&good[..STORE - 1], 100).is_err());
        let mut rng = Rng(seed(3));
        for _ in 0..2000 {
            let mut bytes = good;
            for _ in 0..3 {
                bytes[rng.below(STORE as u64) as usize] = rng.below(256) as u8;
            }
            if let Ok(store) = Store::from_bytes(&bytes, 100) {
                assert!(store.start <= store.end && store.end <= 100);
            }
            let _ = Offer::from_bytes(&bytes);
        }
    }
}
