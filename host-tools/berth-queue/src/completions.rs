// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completion queues: the ring, and the queue pairs that complete there.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use berth_abi::host;
use berth_abi::wqe::{CQE_IMMEDIATE, Cqe, OP_RECV, OP_WRITE, PHASE};

use crate::doorbell::{Doorbells, cq_doorbell};
use crate::ring::Progress;

/// Consumer side of a completion queue's ring.
#[derive(Debug)]
struct Ring {
    base: NonNull<Cqe>,
    entries: u32,
    /// Entries taken, free-running.
    consumer: u64,
    /// Entries taken that the card knows of.
    told: u64,
}

// SAFETY: a ring is the only consumer of its memory, wherever it is.
unsafe impl Send for Ring {}

impl Ring {
    /// Takes the next entry, if the card has written it.
    fn take(&mut self) -> Option<Cqe> {
        let place = (self.consumer as usize) & (self.entries as usize - 1);
        // First round: valid entries have phase 1, then 0, and so on.
        let valid = if (self.consumer / u64::from(self.entries)).is_multiple_of(2) { PHASE } else { 0 };
        // SAFETY: the place is inside the ring.
        let entry = unsafe { self.base.add(place) };
        // SAFETY: the field lies inside the entry; the card writes it last.
        let phase = unsafe { (&raw const (*entry.as_ptr()).phase).read_volatile() };
        if phase & PHASE != valid {
            return None;
        }
        // The rest of the entry was written before the phase that we have seen.
        fence(Ordering::Acquire);
        // SAFETY: the place is inside the ring, and the card leaves it alone until we have told the index.
        let cqe = unsafe { entry.read_volatile() };
        self.consumer += 1;
        Some(cqe)
    }
}

/// Progress of the two queues of a queue pair.
#[derive(Debug)]
pub struct QpProgress {
    /// In message mode.
    pub message: bool,
    /// Of the send queue.
    pub send: Progress,
    /// Of the receive queue.
    pub recv: Progress,
}

/// An entry of a completion queue that fits an element.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// As the card has written it.
    pub cqe: Cqe,
    /// It is a receive's (else a send's).
    pub recv: bool,
    /// Its queue pair is in message mode.
    pub message: bool,
    /// Its element is marked ([`WorkQueue::write_marked`](crate::WorkQueue::write_marked)).
    pub marked: bool,
}

/// An entry of this QPN that fits no element: card, driver and library disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// QPN.
    pub qpn: u32,
}

/// A completion queue, and the queue pairs that complete there. Its user has a lock around it.
#[derive(Debug)]
pub struct Completions {
    ring: Ring,
    cqn: u32,
    capacity: u32,
    /// Queue pairs that complete here, by QPN.
    qps: Vec<Option<Arc<QpProgress>>>,
    /// How many they are.
    attached: usize,
    /// There was one before.
    used: bool,
    /// Taken from the ring, accounted, and not given out yet.
    taken: VecDeque<Result<Entry, Unmatched>>,
}

impl Completions {
    /// Completion queue `cqn` whose ring of `entries` entries lies at `base`, for at most `capacity` completions that have
    /// not been taken.
    ///
    /// # Safety
    /// `base` must be valid for reads of `entries` (a power of two) aligned entries as long as the value lives.
    pub unsafe fn new(base: NonNull<Cqe>, entries: u32, capacity: u32, cqn: u32) -> Self {
        assert!(entries.is_power_of_two() && capacity <= entries);
        let ring = Ring { base, entries, consumer: 0, told: 0 };
        Self { ring, cqn, capacity, qps: Vec::new(), attached: 0, used: false, taken: VecDeque::new() }
    }

    /// CQN.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Whether the last queue pair that completed here has been forgotten, so that nothing can complete.
    pub fn is_deserted(&self) -> bool {
        self.attached == 0 && self.used
    }

    /// Takes one entry from the ring, and accounts it.
    #[inline]
    fn take(&mut self) -> Option<Result<Entry, Unmatched>> {
        let cqe = self.ring.take()?;
        let qp = self.qps.get(cqe.qpn as usize).and_then(Option::as_ref);
        let entry = qp.and_then(|qp| {
            // A WRITE uses a receive only with an immediate, and a send's completion has none.
            let recv = cqe.opcode == OP_RECV || (cqe.opcode == OP_WRITE && cqe.flags & CQE_IMMEDIATE != 0);
            let marked = if recv { qp.recv.complete().then_some(false) } else { qp.send.complete_upto(cqe.credit) }?;
            Some(Entry { cqe, recv, message: qp.message, marked })
        });
        Some(entry.ok_or(Unmatched { qpn: cqe.qpn }))
    }

    /// Moves one entry from the ring to `taken`; false if there is none.
    fn take_one(&mut self) -> bool {
        let entry = self.take();
        let is_some = entry.is_some();
        self.taken.extend(entry);
        is_some
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// [`Unmatched`]; what is behind it comes with the next call.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry>, Unmatched> {
        match self.taken.pop_front() {
            None => self.take().transpose(),
            first => first.transpose(),
        }
    }

    /// Takes all entries that are there, and drops those of which `hides` says that nobody is to see them. The others are given
    /// out later.
    pub fn sift(&mut self, mut hides: impl FnMut(&Entry) -> bool) {
        while self.take_one() {}
        self.taken.retain(|entry| !entry.as_ref().is_ok_and(&mut hides));
    }

    /// Tells the card of entries taken, if it might run out of room otherwise.
    #[inline]
    pub fn tell(&mut self, doorbells: &Doorbells) {
        let slack = u64::from(self.ring.entries - self.capacity);
        if (self.ring.consumer - self.ring.told) * 2 > slack {
            self.ring_doorbell(doorbells, false);
        }
    }

    /// Arms the notification for the next completion, or one that is there already.
    pub fn arm(&mut self, doorbells: &Doorbells) {
        self.ring_doorbell(doorbells, true);
    }

    fn ring_doorbell(&mut self, doorbells: &Doorbells, arm: bool) {
        self.ring.told = self.ring.consumer;
        doorbells.ring(host::DB_CQ, cq_doorbell(self.cqn, self.ring.consumer, arm));
    }

    /// Notes a queue pair that has just been made. An earlier one with its number is gone, but may not have been
    /// detached yet. Answers how many entries that fit no element were dropped.
    pub fn attach(&mut self, qpn: u32, progress: &Arc<QpProgress>) -> usize {
        let unmatched = self.forget(qpn, |_| ());
        let at = qpn as usize;
        if self.qps.len() <= at {
            self.qps.resize(at + 1, None);
        }
        self.qps[at] = Some(Arc::clone(progress));
        self.attached += 1;
        self.used = true;
        unmatched
    }

    /// Forgets a queue pair that is gone, with its completions, unless a later one has its number already. Each of them that
    /// had not been given out is shown to `dropped`. Answers as [`Completions::attach`].
    pub fn detach(&mut self, qpn: u32, progress: &Arc<QpProgress>, dropped: impl FnMut(&Entry)) -> usize {
        let there = self.qps.get(qpn as usize).and_then(Option::as_ref);
        if there.is_some_and(|there| Arc::ptr_eq(there, progress)) { self.forget(qpn, dropped) } else { 0 }
    }

    fn forget(&mut self, qpn: u32, dropped: impl FnMut(&Entry)) -> usize {
        let unmatched = self.drop_of(qpn, dropped);
        if self.qps.get_mut(qpn as usize).and_then(Option::take).is_some() {
            self.attached -= 1;
        }
        unmatched
    }

    /// Drops the completions of a queue pair, each of which is shown to `dropped`. Answers as [`Completions::attach`].
    pub fn drop_of(&mut self, qpn: u32, mut dropped: impl FnMut(&Entry)) -> usize {
        // Earlier completions, also of others, must be accounted while it is known.
        while self.take_one() {}
        let before = self.taken.len();
        self.taken.retain(Result::is_ok);
        let unmatched = before - self.taken.len();
        self.taken.retain(|entry| {
            let own = entry.as_ref().ok().filter(|entry| entry.cqe.qpn == qpn);
            own.inspect(|entry| dropped(entry)).is_none()
        });
        unmatched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::tests::Page;
    use crate::ring::WorkQueue;
    use berth_abi::wqe::{OP_SEND, Wqe};
    use std::vec;

    const RECV: Cqe = Cqe { opcode: OP_RECV, qpn: 1, ..NOTHING };
    const NOTHING: Cqe =
        Cqe { wr_id: 0, byte_len: 0, qpn: 0, status: 0, opcode: 0, flags: 0, remaining: 0, credit: 0, phase: 0 };

    /// Memory in place of a mapping, the card's part, and queue pairs 1 and 2.
    struct Bench {
        memory: Vec<Cqe>,
        written: u64,
        cq: Completions,
        page: Page,
        _wqes: Vec<Wqe>,
        queues: Vec<WorkQueue>,
        qps: Vec<Arc<QpProgress>>,
    }

    impl Bench {
        fn new(entries: u32, capacity: u32) -> Self {
            let mut memory = vec![Cqe::default(); entries as usize];
            let base = NonNull::new(memory.as_mut_ptr()).unwrap();
            // SAFETY: the vector is never resized and lives beside the value.
            let mut cq = unsafe { Completions::new(base, entries, capacity, 5) };
            let mut wqes = vec![Wqe::default(); 2 * 16];
            let (mut queues, mut qps) = (vec![], vec![]);
            for n in 0..2 {
                let base = NonNull::new(&raw mut wqes[n * 16]).unwrap();
                // SAFETY: as above; no other queue has these.
                queues.push(unsafe { WorkQueue::new(base, 16) });
                qps.push(Arc::new(QpProgress { message: true, send: Progress::new(16), recv: Progress::new(16) }));
                cq.attach(n as u32 + 1, &qps[n]);
            }
            Self { memory, written: 0, cq, page: Page::new(), _wqes: wqes, queues, qps }
        }

        fn post(&mut self, qpn: u32, recv: bool) {
            let n = qpn as usize - 1;
            let progress = if recv { &self.qps[n].recv } else { &self.qps[n].send };
            self.queues[n].write(progress, &Wqe::default());
        }

        fn complete(&mut self, cqe: Cqe) {
            let n = self.memory.len() as u64;
            let phase = if (self.written / n).is_multiple_of(2) { PHASE } else { 0 };
            let place = &raw mut self.memory[(self.written % n) as usize];
            // SAFETY: the place is an element of the vector.
            unsafe { place.write_volatile(Cqe { phase, ..cqe }) };
            self.written += 1;
        }

        fn next(&mut self) -> Option<u64> {
            self.cq.next().unwrap().map(|entry| entry.cqe.wr_id)
        }
    }

    #[test]
    fn completion_ring_survives_a_full_ring_and_index_wrap() {
        let mut bench = Bench::new(8, 8);
        assert_eq!(bench.next(), None);
        let mut expected = 0;
        // 2^16 entries and more: the doorbell's 16-bit index wraps, the phase goes on.
        for _ in 0..9000 {
            for n in 0..8 {
                bench.post(1, true);
                bench.complete(Cqe { wr_id: expected + n, ..RECV });
            }
            for _ in 0..8 {
                assert_eq!(bench.next(), Some(expected));
                expected += 1;
            }
            assert_eq!(bench.next(), None, "an entry of the previous round was taken again");
            bench.cq.tell(&bench.page.bells);
            assert_eq!(bench.page.last(host::DB_CQ), (expected & 0xffff) << 16 | 5);
        }
    }

    #[test]
    fn card_is_told_before_the_ring_can_fill() {
        for (capacity, entries) in [(8, 16), (8, 8), (2, 64)] {
            let mut bench = Bench::new(entries, capacity);
            for n in 0..200 {
                bench.post(1, true);
                bench.complete(Cqe { wr_id: n, ..RECV });
                assert_eq!(bench.next(), Some(n));
                bench.cq.tell(&bench.page.bells);
                let unread = (n + 1) - (bench.page.last(host::DB_CQ) >> 16);
                assert!(
                    unread + u64::from(capacity) <= u64::from(entries),
                    "{unread} entries untold: no room for {capacity} more in {entries}"
                );
            }
        }
    }

    #[test]
    fn arming_tells_the_index_and_sets_the_arm_bit() {
        let mut bench = Bench::new(16, 8);
        bench.post(1, true);
        bench.complete(RECV);
        bench.next().unwrap();
        bench.cq.arm(&bench.page.bells);
        assert_eq!(bench.page.last(host::DB_CQ), 1 << 63 | 1 << 16 | 5);
    }

    #[test]
    fn completions_of_a_detached_queue_pair_are_dropped_and_others_stay() {
        let mut bench = Bench::new(16, 8);
        for qpn in [1, 2, 1, 2] {
            bench.post(qpn, true);
            bench.complete(Cqe { wr_id: qpn.into(), qpn, ..RECV });
        }
        let (first, mut dropped) = (Arc::clone(&bench.qps[0]), vec![]);
        assert_eq!(bench.cq.detach(1, &first, |entry| dropped.push(entry.cqe.wr_id)), 0);
        assert_eq!(dropped, [1, 1]);
        assert_eq!([bench.next(), bench.next(), bench.next()], [Some(2), Some(2), None]);
        assert_eq!(bench.qps[1].recv.outstanding(), 0);
        assert!(!bench.cq.is_deserted());
        let other = Arc::clone(&bench.qps[0]);
        bench.cq.detach(2, &other, |_| ());
        assert!(!bench.cq.is_deserted(), "a later one with that number stays");
        let second = Arc::clone(&bench.qps[1]);
        bench.cq.detach(2, &second, |_| ());
        assert!(bench.cq.is_deserted());
    }

    #[test]
    fn completion_that_fits_no_element_is_an_error_and_the_next_one_is_taken() {
        let mut bench = Bench::new(16, 8);
        bench.complete(RECV);
        assert_eq!(bench.cq.next().unwrap_err(), Unmatched { qpn: 1 });
        bench.complete(Cqe { qpn: 99, ..RECV });
        assert_eq!(bench.cq.next().unwrap_err(), Unmatched { qpn: 99 });
        bench.post(2, true);
        bench.complete(Cqe { qpn: 2, wr_id: 3, ..RECV });
        assert_eq!(bench.next(), Some(3));
        bench.complete(RECV);
        assert_eq!(bench.cq.drop_of(2, |_| ()), 1);
    }

    #[test]
    fn a_write_with_immediate_is_a_receives_and_a_sends_completion_counts_those_before_it() {
        let mut bench = Bench::new(16, 8);
        for (recv, opcode, flags) in [(true, OP_WRITE, CQE_IMMEDIATE), (false, OP_WRITE, 0), (false, OP_SEND, 0)] {
            let mut bench = Bench::new(16, 8);
            bench.post(1, recv);
            bench.complete(Cqe { opcode, flags, qpn: 1, credit: 1, ..NOTHING });
            assert_eq!(bench.cq.next().unwrap().unwrap().recv, recv);
        }
        for _ in 0..3 {
            bench.post(1, false);
        }
        bench.complete(Cqe { opcode: OP_SEND, qpn: 1, credit: 3, ..NOTHING });
        bench.next().unwrap();
        assert_eq!(bench.qps[0].send.outstanding(), 0);
    }
}
