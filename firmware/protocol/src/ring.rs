// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed arrays addressed by free-running 16-bit indices.

/// `N` places (a power of two); index `i` lies at `i` modulo `N`, so no index is out of range.
pub struct Ring<T, const N: usize>([T; N]);

impl<T: Copy, const N: usize> Ring<T, N> {
    /// A ring with `value` everywhere.
    pub const fn new(value: T) -> Self {
        const { assert!(N.is_power_of_two()) };
        Self([value; N])
    }

    /// The place of index `i`.
    #[inline]
    pub fn at(&self, i: u16) -> &T {
        &self.0[i as usize % N]
    }

    /// The place of index `i`.
    #[inline]
    pub fn at_mut(&mut self, i: u16) -> &mut T {
        &mut self.0[i as usize % N]
    }
}

/// Takes the next set bit of `map` after position `last`, cyclically.
#[inline]
pub fn take_bit(map: &mut u64, last: &mut u8) -> Option<usize> {
    if *map == 0 {
        return None;
    }
    let from = (*last as u32 + 1) & 63;
    let i = (map.rotate_right(from).trailing_zeros() + from) & 63;
    *map &= !(1 << i);
    *last = i as u8;
    Some(i as usize)
}
