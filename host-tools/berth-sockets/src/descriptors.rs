// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of descriptors, which any thread may change, and a child after `fork`.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors below this number can be in a set.
const DESCRIPTORS: usize = 1 << 16;

/// A set of descriptors.
pub struct Set([AtomicU64; DESCRIPTORS / 64]);

impl Set {
    /// None.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; DESCRIPTORS / 64])
    }

    fn place(&self, fd: RawFd) -> Option<(&AtomicU64, u64)> {
        let n = usize::try_from(fd).ok()?;
        Some((self.0.get(n / 64)?, 1 << (n % 64)))
    }

    /// Puts one in; answers whether it was not there. One with too high a number never is.
    pub fn insert(&self, fd: RawFd) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.fetch_or(bit, Ordering::Relaxed) & bit == 0)
    }

    /// Takes one out; answers whether it was there.
    pub fn remove(&self, fd: RawFd) -> bool {
        // Mostly it is not: without a write then.
        self.contains(fd)
            && self.place(fd).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::Relaxed) & bit != 0)
    }

    /// Whether one is there.
    pub fn contains(&self, fd: RawFd) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Those that are there.
    pub fn iter(&self) -> impl Iterator<Item = RawFd> {
        let words = self.0.iter().enumerate().map(|(n, word)| (n, word.load(Ordering::Relaxed)));
        words.filter(|(_, word)| *word != 0).flat_map(|(n, word)| {
            (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (n * 64) as RawFd + bit as RawFd)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_not_taken_out() {
        let set = Set::new();
        for fd in [0, 63, 64, 65535] {
            assert!(set.insert(fd) && !set.insert(fd) && set.contains(fd));
        }
        assert!(!set.insert(-1) && !set.insert(65536) && !set.contains(65536));
        assert!(set.remove(64) && !set.remove(64));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 65535]);
    }
}
