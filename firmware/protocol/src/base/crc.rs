// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet's CRC-32 (IEEE 802.3 3.2.9), for the soft core: byte by byte, with a table of 1 KiB and no panicking path.

use super::bound::{Bound, at_most};

/// The polynomial, lowest power in bit 31.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// What each value of a byte makes of the remainder.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut bound = Bound::new(256 * 9);
    let mut byte = 0;
    while byte < 256 {
        bound.step();
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            bound.step();
            rest = if rest & 1 != 0 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

/// A CRC over bytes that come in pieces.
pub struct Crc(u32);

impl Crc {
    /// Over nothing yet.
    pub const fn new() -> Self {
        Self(u32::MAX)
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        for byte in at_most(bytes.len(), bytes) {
            let place = (self.0 as u8 ^ byte) as usize;
            self.0 = self.0 >> 8 ^ TABLE[place];
        }
    }

    /// The CRC of all bytes so far.
    pub const fn finish(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Crc;
    use proptest::prelude::*;

    fn crc(pieces: &[&[u8]]) -> u32 {
        let mut crc = Crc::new();
        pieces.iter().for_each(|piece| crc.update(piece));
        crc.finish()
    }

    #[test]
    fn the_check_value_is_that_of_the_catalogues() {
        assert_eq!(crc(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(crc(&[]), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_have_the_crc_of_another_implementation(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
        ) {
            let (a, b) = bytes.split_at(at.index(bytes.len() + 1));
            prop_assert_eq!(crc(&[a, b]), crc32fast::hash(&bytes));
        }
    }
}
