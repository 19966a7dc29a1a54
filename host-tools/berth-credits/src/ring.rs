// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring of words in shared memory, with one writer and one reader, without locks and system calls.
//!
//! Each side keeps its own index to itself and only publishes it. It reads the other's index once per call and checks
//! it, so that whatever the other side writes, nothing outside the ring is touched.

use std::sync::atomic::{AtomicU32, Ordering};

/// The other side's index cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// An index with a cache line of its own.
#[repr(C, align(64))]
struct Index(AtomicU32);

/// The shared part. `WORDS` is a power of two. All-zero memory is an empty ring; every content is valid for the compiler.
#[repr(C)]
pub struct Ring<const WORDS: usize> {
    /// Words written, modulo 2^32.
    tail: Index,
    /// Words read, modulo 2^32.
    head: Index,
    words: [AtomicU32; WORDS],
}

impl<const WORDS: usize> Ring<WORDS> {
    fn at(&self, index: u32) -> &AtomicU32 {
        const { assert!(WORDS.is_power_of_two()) };
        &self.words[index as usize % WORDS]
    }
}

/// The writer's own part.
#[derive(Debug, Default)]
pub struct Writer {
    tail: u32,
}

impl Writer {
    /// Writes `words` as a whole. False: no room now.
    pub fn put<const WORDS: usize>(&mut self, ring: &Ring<WORDS>, words: &[u32]) -> Result<bool, Broken> {
        let used = self.tail.wrapping_sub(ring.head.0.load(Ordering::Acquire)) as usize;
        let free = WORDS.checked_sub(used).ok_or(Broken)?;
        if words.len() > free {
            return Ok(false);
        }
        for word in words {
            ring.at(self.tail).store(*word, Ordering::Relaxed);
            self.tail = self.tail.wrapping_add(1);
        }
        ring.tail.0.store(self.tail, Ordering::Release);
        Ok(true)
    }
}

/// The reader's own part.
#[derive(Debug, Default)]
pub struct Reader {
    head: u32,
}

impl Reader {
    /// Copies the next words to the start of `out`, as many as there are; gives how many.
    pub fn peek<const WORDS: usize>(&self, ring: &Ring<WORDS>, out: &mut [u32]) -> Result<usize, Broken> {
        let there = ring.tail.0.load(Ordering::Acquire).wrapping_sub(self.head) as usize;
        if there > WORDS {
            return Err(Broken);
        }
        let len = there.min(out.len());
        for (i, word) in (0u32..).zip(out.iter_mut().take(len)) {
            *word = ring.at(self.head.wrapping_add(i)).load(Ordering::Relaxed);
        }
        Ok(len)
    }

    /// The next `words` words are done with; they were there.
    pub fn skip<const WORDS: usize>(&mut self, ring: &Ring<WORDS>, words: usize) {
        self.head = self.head.wrapping_add(words as u32);
        ring.head.0.store(self.head, Ordering::Release);
    }

    /// The next record of `N` words. `None`: not there yet.
    pub fn get<const WORDS: usize, const N: usize>(&mut self, ring: &Ring<WORDS>) -> Result<Option<[u32; N]>, Broken> {
        let mut record = [0; N];
        match self.peek(ring, &mut record)? {
            0 => Ok(None),
            len if len == N => {
                self.skip(ring, N);
                Ok(Some(record))
            }
            // A writer publishes whole records.
            _ => Err(Broken),
        }
    }
}
