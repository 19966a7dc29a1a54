// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a card may write or read at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
const WORD: usize = 8;

/// Zeroed memory of whole words. Each word is read and written by itself, so that whatever a peer writes meanwhile is
/// only another value, and no rule of the language is broken. Clones share it; it lasts as long as one of them.
#[derive(Clone, Debug)]
pub(super) struct Words(Arc<Vec<AtomicU64>>);

impl Words {
    /// At least `bytes` bytes; `None` if there is no such memory.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let count = bytes.div_ceil(WORD);
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize_with(count, AtomicU64::default);
        Some(Self(Arc::new(words)))
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len() * WORD
    }

    /// Virtual address of the first byte.
    pub(super) fn va(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Writes `bytes` from byte `at` on, a multiple of 8, and fills their last word up; what would lie behind the end is
    /// left out.
    pub(super) fn put(&self, at: usize, bytes: &[u8]) {
        let places = self.0.get(at / WORD..).unwrap_or_default();
        for (place, part) in places.iter().zip(bytes.chunks(WORD)) {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            place.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Reads from byte `at` on, a multiple of 8; what lies behind the end is left as it is.
    pub(super) fn get(&self, at: usize, out: &mut [u8]) {
        let places = self.0.get(at / WORD..).unwrap_or_default();
        for (place, part) in places.iter().zip(out.chunks_mut(WORD)) {
            let word = place.load(Ordering::Relaxed).to_ne_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    /// [`Words::get`] of an array.
    pub(super) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        self.get(at, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written_and_nothing_beyond_the_end() {
        let words = Words::new(20).unwrap();
        assert_eq!(words.len(), 24);
        words.put(8, b"eleven byte");
        assert_eq!(words.array(8), *b"eleven byte");
        assert_eq!(words.array(0), [0; 8]);
        words.put(16, &[7; 30]);
        let mut out = [1; 12];
        words.get(16, &mut out);
        assert_eq!(out, [7, 7, 7, 7, 7, 7, 7, 7, 1, 1, 1, 1]);
        words.put(800, &[1]);
        words.get(800, &mut out);
        assert!(Words::new(usize::MAX).is_none());
    }
}
