// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bitmaps of windows: as wide as the window needs, so that the soft core does not carry 128 bits for 8 packets.

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
    /// As the SACK header has it: bit 127 is bit 0.
    fn sack(self) -> u128;
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
        }
    )*};
}

bitmap!(u32, u64, u128);
