// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bitmaps of windows: as wide as the window needs, so that the soft core does not carry 256 bits for 8 packets.

use core::fmt::Debug;
use core::hash::Hash;
use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

/// An unsigned integer as a bitmap: bit 0 is the oldest packet.
pub trait Bitmap:
    Copy
    + Debug
    + Default
    + Eq
    + Hash
    + BitAnd<Output = Self>
    + BitAndAssign
    + BitOr<Output = Self>
    + BitOrAssign
    + Not<Output = Self>
{
    /// No bits.
    const ZERO: Self;
    /// How many bits there are.
    const WIDTH: u32;
    /// The lowest `n` bits.
    fn ones(n: u32) -> Self;
    /// Bit `i`; none beyond the width.
    fn bit(i: u32) -> Self;
    /// Moved down by `n`.
    fn down(self, n: u32) -> Self;
    /// Moved up by `n`.
    fn up(self, n: u32) -> Self;
    /// Place of the lowest bit; the width if there is none.
    fn lowest(self) -> u32;
    /// Bits that are set from bit 0 on.
    fn run(self) -> u32;
    /// Place behind the highest bit.
    fn top(self) -> u32;
    /// Bits that are set.
    fn count(self) -> u32;
    /// As the SACK header has it: its bit 127 is bit 0, and what is beyond bit 127 is left out.
    fn sack(self) -> u128;
    /// What a SACK header says.
    fn from_sack(sack: u128) -> Self;
}

macro_rules! bitmap {
    ($($kind:ty),*) => {$(
        impl Bitmap for $kind {
            const ZERO: Self = 0;
            const WIDTH: u32 = Self::BITS;
            #[inline]
            fn ones(n: u32) -> Self {
                Self::bit(n).wrapping_sub(1)
            }
            #[inline]
            fn bit(i: u32) -> Self {
                (1 as $kind).checked_shl(i).unwrap_or(0)
            }
            #[inline]
            fn down(self, n: u32) -> Self {
                self.checked_shr(n).unwrap_or(0)
            }
            #[inline]
            fn up(self, n: u32) -> Self {
                self.checked_shl(n).unwrap_or(0)
            }
            #[inline]
            fn lowest(self) -> u32 {
                self.trailing_zeros()
            }
            #[inline]
            fn run(self) -> u32 {
                self.trailing_ones()
            }
            #[inline]
            fn top(self) -> u32 {
                Self::BITS - self.leading_zeros()
            }
            #[inline]
            fn count(self) -> u32 {
                self.count_ones()
            }
            #[inline]
            fn sack(self) -> u128 {
                (self as u128).reverse_bits()
            }
            #[inline]
            fn from_sack(sack: u128) -> Self {
                sack.reverse_bits() as $kind
            }
        }
    )*};
}

bitmap!(u32, u64, u128);

/// 256 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wide {
    low: u128,
    high: u128,
}

impl BitAnd for Wide {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self { low: self.low & other.low, high: self.high & other.high }
    }
}

impl BitAndAssign for Wide {
    #[inline]
    fn bitand_assign(&mut self, other: Self) {
        *self = *self & other;
    }
}

impl BitOr for Wide {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self { low: self.low | other.low, high: self.high | other.high }
    }
}

impl BitOrAssign for Wide {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl Not for Wide {
    type Output = Self;
    #[inline]
    fn not(self) -> Self {
        Self { low: !self.low, high: !self.high }
    }
}

impl Bitmap for Wide {
    const ZERO: Self = Self { low: 0, high: 0 };
    const WIDTH: u32 = 256;
    #[inline]
    fn ones(n: u32) -> Self {
        Self { low: u128::ones(n), high: u128::ones(n.saturating_sub(128)) }
    }
    #[inline]
    fn bit(i: u32) -> Self {
        // Beyond the lower half the difference wraps to a place that no bitmap has.
        Self { low: u128::bit(i), high: u128::bit(i.wrapping_sub(128)) }
    }
    #[inline]
    fn down(self, n: u32) -> Self {
        let carried = match n.checked_sub(128) {
            Some(more) => self.high.down(more),
            None => self.high.up(128 - n),
        };
        Self { low: self.low.down(n) | carried, high: self.high.down(n) }
    }
    #[inline]
    fn up(self, n: u32) -> Self {
        let carried = match n.checked_sub(128) {
            Some(more) => self.low.up(more),
            None => self.low.down(128 - n),
        };
        Self { low: self.low.up(n), high: self.high.up(n) | carried }
    }
    #[inline]
    fn lowest(self) -> u32 {
        match self.low {
            0 => 128 + self.high.lowest(),
            low => low.lowest(),
        }
    }
    #[inline]
    fn run(self) -> u32 {
        match self.low {
            u128::MAX => 128 + self.high.run(),
            low => low.run(),
        }
    }
    #[inline]
    fn top(self) -> u32 {
        match self.high {
            0 => self.low.top(),
            high => 128 + high.top(),
        }
    }
    #[inline]
    fn count(self) -> u32 {
        self.low.count() + self.high.count()
    }
    #[inline]
    fn sack(self) -> u128 {
        self.low.sack()
    }
    #[inline]
    fn from_sack(sack: u128) -> Self {
        Self { low: u128::from_sack(sack), high: 0 }
    }
}
