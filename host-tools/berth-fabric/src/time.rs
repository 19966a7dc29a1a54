// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Simulated time, and the queue of later events.

use dary_heap::QuaternaryHeap;
use std::cmp::Ordering;

/// Picoseconds since the run began. 64 bits last for 213 days.
pub type Time = u64;
/// A nanosecond.
pub const NS: Time = 1_000;
/// A microsecond.
pub const US: Time = 1_000_000;
/// A millisecond.
pub const MS: Time = 1_000_000_000;
/// A second.
pub const SECOND: Time = 1_000_000_000_000;

struct Item<E> {
    at: Time,
    seq: u64,
    event: E,
}

impl<E> PartialEq for Item<E> {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}
impl<E> Eq for Item<E> {}
impl<E> PartialOrd for Item<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Item<E> {
    // The heap gives the greatest first: the earliest event, and of those at one time the one put in first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

/// Events in order of time. Those of one time come in the order in which they were put in, so that a run depends on its
/// seed only.
pub struct Queue<E> {
    heap: QuaternaryHeap<Item<E>>,
    seq: u64,
    now: Time,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: QuaternaryHeap::new(), seq: 0, now: 0 }
    }
}

impl<E> Queue<E> {
    /// Time of the event taken last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Events taken and waiting.
    pub fn count(&self) -> u64 {
        self.seq
    }

    /// `event` happens at time `at`, or now if that is over.
    pub fn at(&mut self, at: Time, event: E) {
        self.heap.push(Item { at: at.max(self.now), seq: self.seq, event });
        self.seq += 1;
    }

    /// Takes the next event unless it lies after `limit`.
    pub fn take(&mut self, limit: Time) -> Option<E> {
        if self.heap.peek()?.at > limit {
            return None;
        }
        let item = self.heap.pop()?;
        self.now = item.at;
        Some(item.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_come_in_the_order_they_were_put_in() {
        let mut queue = Queue::default();
        for i in 0..100 {
            queue.at(if i % 3 == 0 { 5 } else { 7 }, i);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.take(10)).collect();
        let expected: Vec<_> = (0..100).filter(|i| i % 3 == 0).chain((0..100).filter(|i| i % 3 != 0)).collect();
        assert_eq!(order, expected);
        assert_eq!(queue.now(), 7);
    }

    #[test]
    fn nothing_happens_after_the_limit() {
        let mut queue = Queue::default();
        queue.at(11, ());
        assert_eq!(queue.take(10), None);
        assert_eq!(queue.take(11), Some(()));
    }
}
