// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Send and receive queues: free-running indices, and what of them is complete.

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use berth_abi::host;
use berth_abi::wqe::{CQE_BYTES, SLOT_WORDS, WQE_BYTES, Wqe};

use crate::doorbell::{Doorbells, rq_doorbell, sq_doorbell};
use crate::request::Refused;

/// Whether an answer of the driver describes queues that can be used: a send queue of `sends` elements, and from byte
/// `recv_start` on a receive queue of `recvs`, in `bytes` bytes.
pub fn queues_fit(sends: u32, recvs: u32, recv_start: u32, bytes: u32) -> bool {
    let send_end = sends.checked_mul(WQE_BYTES);
    let recv_end = recvs.checked_mul(WQE_BYTES).and_then(|n| n.checked_add(recv_start));
    sends.is_power_of_two()
        && recvs.is_power_of_two()
        && recv_start.is_multiple_of(align_of::<Wqe>() as u32)
        && send_end.is_some_and(|end| recv_start >= end)
        && recv_end.is_some_and(|end| bytes >= end)
}

/// Whether an answer of the driver describes a completion queue that can be used, of `entries` entries in `bytes` bytes, with
/// room for `capacity` completions.
pub fn ring_fits(entries: u32, bytes: u32, capacity: u32) -> bool {
    entries.is_power_of_two()
        && entries >= capacity
        && entries.checked_mul(CQE_BYTES).is_some_and(|needed| bytes >= needed)
}

/// Progress of a queue; shared by the poster and the thread that polls the completion queue.
#[derive(Debug)]
pub struct Progress {
    /// Elements posted (whose doorbell may be still to come).
    posted: AtomicU64,
    /// Elements completed.
    completed: AtomicU64,
    /// Bytes in completed elements.
    bytes_completed: AtomicU64,
    /// Length of the element in each place of the queue, and whether it is marked.
    lengths: Box<[AtomicU32]>,
}

/// An element is marked; its length has fewer bits (`MAX_MESSAGE`).
const MARK: u32 = 1 << 31;

impl Progress {
    /// Of a queue of `depth` elements, a power of two.
    pub fn new(depth: u32) -> Self {
        debug_assert!(depth.is_power_of_two());
        Self {
            posted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            bytes_completed: AtomicU64::new(0),
            lengths: (0..depth).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    #[inline]
    fn place(&self, index: u64) -> &AtomicU32 {
        &self.lengths[(index as usize) & (self.lengths.len() - 1)]
    }

    /// Elements posted and not completed.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        let completed = self.completed.load(Ordering::Acquire);
        (self.posted.load(Ordering::Acquire) - completed) as u32
    }

    /// Notes the completion of the oldest outstanding element; false if there is none.
    ///
    /// Called under the completion queue's lock. The card fetches elements in order, so as many places as
    /// there are completions are free again, even if completions came in another order.
    #[inline]
    pub fn complete(&self) -> bool {
        self.complete_one().is_some()
    }

    /// Likewise; answers whether it is marked.
    #[inline]
    fn complete_one(&self) -> Option<bool> {
        let index = self.completed.load(Ordering::Relaxed);
        if index == self.posted.load(Ordering::Acquire) {
            return None;
        }
        let entry = self.place(index).load(Ordering::Relaxed);
        self.bytes_completed.fetch_add((entry & !MARK).into(), Ordering::Relaxed);
        // From here on the place is the poster's again.
        self.completed.store(index + 1, Ordering::Release);
        Some(entry & MARK != 0)
    }

    /// Likewise of all up to the element that is number `count`, modulo 2^16, whose mark it answers: those before it complete
    /// in silence. `None` if none is outstanding that has this number.
    #[inline]
    pub(crate) fn complete_upto(&self, count: u32) -> Option<bool> {
        let more = (count as u16).wrapping_sub(self.completed.load(Ordering::Relaxed) as u16);
        if u32::from(more) > self.outstanding() {
            return None;
        }
        (0..more).map_while(|_| self.complete_one()).last()
    }

    /// Nothing is posted and nothing complete, as in a new queue.
    fn reset(&self) {
        self.bytes_completed.store(0, Ordering::Relaxed);
        self.completed.store(0, Ordering::Relaxed);
        self.posted.store(0, Ordering::Release);
    }
}

/// Producer side of a send or receive queue.
#[derive(Debug)]
pub struct WorkQueue {
    base: NonNull<Wqe>,
    depth: u32,
    /// Elements written, free-running.
    producer: u64,
    /// Elements that the card was told of by a doorbell.
    told: u64,
    /// Bytes in elements written, free-running.
    bytes: u64,
}

// SAFETY: a work queue is the only producer of its memory, wherever it is.
unsafe impl Send for WorkQueue {}

impl WorkQueue {
    /// A queue of `depth` elements at `base`.
    ///
    /// # Safety
    /// `base` must be valid for writes of `depth` (a power of two) aligned elements as long as the queue lives, and
    /// written by nobody else.
    pub unsafe fn new(base: NonNull<Wqe>, depth: u32) -> Self {
        assert!(depth.is_power_of_two());
        Self { base, depth, producer: 0, told: 0, bytes: 0 }
    }

    /// Elements that there is room for.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Elements written so far.
    pub fn producer(&self) -> u64 {
        self.producer
    }

    /// Bytes in elements written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Elements that may be written now.
    #[inline]
    pub fn free(&self, progress: &Progress) -> u32 {
        self.depth - progress.outstanding()
    }

    /// Whether `count` elements with together `bytes` bytes may be written now.
    ///
    /// # Errors
    /// [`Refused::QueueFull`], [`Refused::TooMuchOutstanding`].
    #[inline]
    pub fn check(&self, progress: &Progress, count: usize, bytes: u64) -> Result<(), Refused> {
        let free = self.free(progress);
        if count > free as usize {
            return Err(Refused::QueueFull { free, depth: self.depth });
        }
        let outstanding = self.bytes - progress.bytes_completed.load(Ordering::Acquire);
        // The doorbell's byte count is modulo 2^32: the difference must stay unambiguous.
        if outstanding + bytes > u64::from(u32::MAX) {
            return Err(Refused::TooMuchOutstanding);
        }
        Ok(())
    }

    /// Writes one element; [`WorkQueue::check`] has said that there is room.
    #[inline]
    pub fn write(&mut self, progress: &Progress, element: &Wqe) {
        self.write_marked(progress, element, false);
    }

    /// Writes one whose entry has a mark of the poster's: the card does not say more of an element than its opcode.
    #[inline]
    pub fn write_marked(&mut self, progress: &Progress, element: &Wqe, marked: bool) {
        let place = (self.producer as usize) & (self.depth as usize - 1);
        // SAFETY: the place is inside the queue, and the card does not read it before the doorbell.
        unsafe { self.base.add(place).write_volatile(*element) };
        let mark = if marked { MARK } else { 0 };
        progress.place(self.producer).store(element.bytes() | mark, Ordering::Relaxed);
        self.producer += 1;
        self.bytes += u64::from(element.bytes());
        progress.posted.store(self.producer, Ordering::Release);
    }

    /// Writes `element` over all places of the queue, used or not.
    pub fn overwrite(&mut self, element: &Wqe) {
        for place in 0..self.depth as usize {
            // SAFETY: the place is inside the queue.
            unsafe { self.base.add(place).write_volatile(*element) };
        }
    }

    /// Begins anew, as the card does when the queue pair has left its reset: what was posted is forgotten.
    pub fn reset(&mut self, progress: &Progress) {
        (self.producer, self.told, self.bytes) = (0, 0, 0);
        progress.reset();
    }

    /// Tells the card of the sends that it does not know yet; `slot` is the last of them, if a doorbell has room for it: a
    /// single one goes to the card with its doorbell then.
    #[inline]
    pub fn ring_send(&mut self, doorbells: &Doorbells, qpn: u32, slot: Option<[u64; SLOT_WORDS]>) {
        let value = sq_doorbell(qpn, self.producer, self.bytes);
        match (self.tell(), slot) {
            (0, _) => {}
            (1, Some(element)) => doorbells.ring_with(&element, value),
            _ => doorbells.ring(host::DB_SQ, value),
        }
    }

    /// Tells the card of the receives that it does not know yet.
    #[inline]
    pub fn ring_recv(&mut self, doorbells: &Doorbells, qpn: u32) {
        if self.tell() != 0 {
            doorbells.ring(host::DB_RQ, rq_doorbell(qpn, self.producer));
        }
    }

    /// Tells the card of all receives once more: it may have taken no doorbell meanwhile.
    pub fn ring_recv_again(&self, doorbells: &Doorbells, qpn: u32) {
        if self.told != 0 {
            doorbells.ring(host::DB_RQ, rq_doorbell(qpn, self.producer));
        }
    }

    /// How many elements wait for a doorbell; they count as told from now on.
    fn tell(&mut self) -> u64 {
        let fresh = self.producer - self.told;
        self.told = self.producer;
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::tests::Page;
    use berth_abi::wqe::{MAX_MESSAGE, OP_SEND};
    use std::vec;
    use std::vec::Vec;

    fn queue(depth: u32) -> (Vec<Wqe>, WorkQueue, Progress) {
        let mut memory = vec![Wqe::default(); depth as usize];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector is never resized and outlives the queue in every test.
        let queue = unsafe { WorkQueue::new(base, depth) };
        (memory, queue, Progress::new(depth))
    }

    fn send(wr_id: u64, length: u32) -> Wqe {
        Wqe { opcode: OP_SEND, wr_id, length, ..Wqe::default() }
    }

    #[test]
    fn work_queue_is_full_at_its_depth_and_free_after_completion() {
        let (memory, mut queue, progress) = queue(4);
        for n in 0..4 {
            queue.check(&progress, 1, 10).unwrap();
            queue.write(&progress, &send(n, 10));
        }
        assert_eq!(queue.check(&progress, 1, 10), Err(Refused::QueueFull { free: 0, depth: 4 }));
        assert!(progress.complete());
        assert_eq!(queue.free(&progress), 1);
        queue.check(&progress, 1, 10).unwrap();
        assert!(queue.check(&progress, 2, 10).is_err());
        queue.write(&progress, &send(4, 0));
        assert_eq!(memory[0].wr_id, 4, "the fifth element lies in the first place");
        assert_eq!((queue.producer(), queue.bytes()), (5, 40));
    }

    #[test]
    fn completion_without_an_element_is_noticed() {
        let (_memory, mut queue, progress) = queue(2);
        assert!(!progress.complete());
        queue.write(&progress, &send(0, 0));
        assert!(progress.complete());
        assert!(!progress.complete());
    }

    #[test]
    fn a_completion_is_that_of_the_silent_ones_before_it() {
        let (_memory, mut queue, progress) = queue(4);
        // The number has 16 bits.
        for n in (3..70_000u32).step_by(3) {
            for _ in 0..3 {
                queue.write(&progress, &send(0, 0));
            }
            assert_eq!([n - 3, n + 1].map(|n| progress.complete_upto(n)), [None; 2]);
            assert_eq!([n & 0xffff; 2].map(|n| progress.complete_upto(n)), [Some(false), None]);
            assert_eq!(progress.outstanding(), 0);
        }
    }

    #[test]
    fn a_mark_is_that_of_the_element_that_completes_and_no_length() {
        let (_memory, mut queue, progress) = queue(4);
        for marked in [false, true, true, false, true] {
            queue.write(&progress, &send(0, MAX_MESSAGE));
            queue.write_marked(&progress, &send(1, MAX_MESSAGE), marked);
            assert_eq!(progress.complete_one(), Some(false));
            assert_eq!(progress.complete_one(), Some(marked));
            queue.check(&progress, 2, u32::MAX.into()).unwrap();
        }
    }

    #[test]
    fn less_than_4_gib_may_be_outstanding() {
        let (_memory, mut queue, progress) = queue(8);
        let most = u64::from(MAX_MESSAGE);
        queue.write(&progress, &send(0, MAX_MESSAGE));
        assert_eq!(queue.check(&progress, 1, (1 << 31) + 1), Err(Refused::TooMuchOutstanding));
        queue.check(&progress, 1, 1 << 31).unwrap();
        queue.write(&progress, &send(0, MAX_MESSAGE));
        assert_eq!(queue.check(&progress, 1, 2), Err(Refused::TooMuchOutstanding));
        queue.check(&progress, 1, 1).unwrap();
        assert!(progress.complete());
        queue.check(&progress, 1, most).unwrap();
    }

    #[test]
    fn one_doorbell_tells_a_batch_and_a_single_one_that_fits_goes_with_it() {
        let (_memory, mut queue, progress) = queue(8);
        let page = Page::new();
        queue.ring_send(&page.bells, 5, None);
        assert_eq!(page.last(host::DB_SQ), 0, "there is nothing to tell");
        for n in 0..3 {
            queue.write(&progress, &send(n, 2));
        }
        let slot = send(2, 2).slot();
        queue.ring_send(&page.bells, 5, slot);
        assert_eq!((page.last(host::DB_SQ), page.last(host::DB_WQE)), (6 << 32 | 3 << 16 | 5, 0));
        queue.write(&progress, &send(2, 2));
        queue.ring_send(&page.bells, 5, slot);
        assert_eq!(page.last(host::DB_WQE + 56), 8 << 32 | 4 << 16 | 5);
        queue.write(&progress, &send(3, 2));
        queue.ring_recv(&page.bells, 5);
        assert_eq!(page.last(host::DB_RQ), 5 << 16 | 5);
    }

    #[test]
    fn after_a_reset_queues_begin_at_their_first_place() {
        let (memory, mut queue, progress) = queue(4);
        let page = Page::new();
        for n in 0..3 {
            queue.write(&progress, &send(n, 5));
        }
        queue.ring_send(&page.bells, 1, None);
        progress.complete();
        queue.reset(&progress);
        assert_eq!((queue.producer(), queue.bytes(), progress.outstanding()), (0, 0, 0));
        queue.write(&progress, &send(9, 7));
        queue.ring_send(&page.bells, 1, None);
        assert_eq!((memory[0].wr_id, page.last(host::DB_SQ)), (9, 7 << 32 | 1 << 16 | 1));
    }

    #[test]
    fn answers_with_overlapping_or_short_queues_are_refused() {
        assert!(queues_fit(4, 4, 4096, 8192));
        assert!(!queues_fit(4, 4, 256, 8192));
        assert!(!queues_fit(4, 4, 4097, 8192));
        assert!(!queues_fit(4, 4, 4096, 4096 + 511));
        assert!(!queues_fit(4, 3, 4096, 8192));
        assert!(!queues_fit(4, 4, u32::MAX - 7, 8192));
        assert!(ring_fits(64, 2048, 64));
        assert!(!ring_fits(64, 2047, 64));
        assert!(!ring_fits(48, 4096, 48));
        assert!(!ring_fits(32, 4096, 64));
    }
}
