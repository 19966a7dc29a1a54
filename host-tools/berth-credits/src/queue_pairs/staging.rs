// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places for bytes to be sent, in a memory that is used round and round.

use std::collections::VecDeque;

/// Which bytes of `size` are in use. They are given back in the order in which they were taken.
#[derive(Debug)]
pub struct Staging {
    size: u32,
    /// Where the next ones may begin.
    head: u32,
    /// Places in use, the oldest first.
    used: VecDeque<(u32, u32)>,
}

impl Staging {
    /// All of it is free.
    pub fn new(size: u32) -> Self {
        Self { size, head: 0, used: VecDeque::new() }
    }

    /// Places in use.
    pub fn used(&self) -> usize {
        self.used.len()
    }

    /// Where `len` bytes, not 0, have room in one piece.
    pub fn room(&self, len: u32) -> Option<u32> {
        let Some((tail, _)) = self.used.front() else {
            return (len <= self.size).then_some(0);
        };
        match self.head > *tail {
            true if len <= self.size - self.head => Some(self.head),
            true => (len <= *tail).then_some(0),
            false => (len <= *tail - self.head).then_some(self.head),
        }
    }

    /// Takes such a place.
    pub fn take(&mut self, len: u32) -> Option<u32> {
        let at = self.room(len)?;
        self.used.push_back((at, len));
        self.head = at + len;
        Some(at)
    }

    /// Where the oldest place is.
    #[cfg(any(feature = "verbs", test))]
    pub fn oldest(&self) -> Option<u32> {
        self.used.front().map(|(at, _)| *at)
    }

    /// Gives the oldest place back.
    pub fn free(&mut self) {
        self.used.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::Staging;
    use berth_random::Rng;
    use std::collections::VecDeque;

    #[test]
    fn cr_15_places_for_sends_never_overlap_and_half_is_always_free_again() {
        let mut rng = Rng(berth_random::seed(11));
        for _ in 0..200 {
            let size = rng.between(2, 100) as u32;
            let (mut staging, mut model) = (Staging::new(size), VecDeque::new());
            for _ in 0..500 {
                let len = rng.between(1, u64::from(size)) as u32;
                if let Some(at) = staging.take(len) {
                    assert!(at + len <= size);
                    assert!(model.iter().all(|(other, long)| at + len <= *other || other + long <= at));
                    model.push_back((at, len));
                }
                while rng.chance(0.4) {
                    staging.free();
                    model.pop_front();
                }
                assert_eq!(staging.used(), model.len());
                assert!(!model.is_empty() || staging.room(size) == Some(0));
            }
        }
    }
}
