// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet sequence numbers of any width.

/// A packet sequence number of `BITS` bits (2 to 24; IBTA 9.7.2 has 24).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn<const BITS: u32>(u32);

impl<const BITS: u32> Psn<BITS> {
    /// All bits of a PSN.
    pub const MASK: u32 = {
        assert!(BITS >= 2 && BITS <= 24);
        (1 << BITS) - 1
    };
    /// Half of all PSNs: what is less than this ahead is ahead, the rest is behind.
    pub const HALF: u32 = (Self::MASK >> 1) + 1;

    /// The PSN that `value` has modulo 2^BITS.
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The PSN `n` later.
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` earlier.
    pub const fn minus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// How far it lies after `other`, around the circle.
    pub const fn since(self, other: Self) -> u32 {
        self.0.wrapping_sub(other.0) & Self::MASK
    }

    /// It lies before `other`: more than half the circle after it.
    pub const fn before(self, other: Self) -> bool {
        self.since(other) >= Self::HALF
    }
}
