// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue arithmetic: indices, phase bits, doorbell values. No system calls: the memory is given by the
//! caller, so that the same code runs over a mapping of the card's queues and over a test's own memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use berth_abi::wqe::{self, Cqe, MAX_SGE, PHASE, Sge, Wqe};

use crate::error::{Error, Result};

/// Send-queue doorbell (`DB_SQ`): QPN, free-running producer index, bytes posted so far modulo 2^32.
pub(crate) const fn sq_doorbell(qpn: u32, producer: u64, bytes: u64) -> u64 {
    (qpn as u64 & 0xffff) | (producer & 0xffff) << 16 | (bytes & 0xffff_ffff) << 32
}

/// Receive-queue doorbell (`DB_RQ`): QPN, free-running producer index.
pub(crate) const fn rq_doorbell(qpn: u32, producer: u64) -> u64 {
    (qpn as u64 & 0xffff) | (producer & 0xffff) << 16
}

/// Completion-queue doorbell (`DB_CQ`): CQN, free-running consumer index, arm bit.
pub(crate) const fn cq_doorbell(cqn: u32, consumer: u64, arm: bool) -> u64 {
    (cqn as u64 & 0xffff) | (consumer & 0xffff) << 16 | (arm as u64) << 63
}

/// Orders the stores to queue memory before the following store to a doorbell.
pub(crate) fn before_doorbell() {
    fence(Ordering::Release);
    flush_doorbells();
}

/// Orders stores to doorbells before those that follow, and has them leave the processor: they may be write-combining,
/// so that a later store to the same doorbell would replace them.
pub(crate) fn flush_doorbells() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    // A release fence orders normal memory only; a doorbell is device memory.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no operands.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// Progress of a queue; shared by the poster and the thread that polls the completion queue.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Elements posted (whose doorbell may be still to come).
    posted: AtomicU64,
    /// Elements completed.
    completed: AtomicU64,
    /// Bytes in completed elements.
    bytes_completed: AtomicU64,
    /// Length of the element in each place of the queue.
    lengths: Box<[AtomicU32]>,
}

impl Progress {
    pub(crate) fn new(depth: u32) -> Self {
        debug_assert!(depth.is_power_of_two());
        Self {
            posted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            bytes_completed: AtomicU64::new(0),
            lengths: (0..depth).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn place(&self, index: u64) -> &AtomicU32 {
        &self.lengths[(index as usize) & (self.lengths.len() - 1)]
    }

    /// Elements posted and not completed.
    pub(crate) fn outstanding(&self) -> u32 {
        let completed = self.completed.load(Ordering::Acquire);
        (self.posted.load(Ordering::Acquire) - completed) as u32
    }

    /// Notes the completion of the oldest outstanding element; false if there is none.
    ///
    /// Called under the completion queue's lock. The card fetches elements in order, so as many places as
    /// there are completions are free again, even if completions came in another order.
    pub(crate) fn complete(&self) -> bool {
        let index = self.completed.load(Ordering::Relaxed);
        if index == self.posted.load(Ordering::Acquire) {
            return false;
        }
        let length = u64::from(self.place(index).load(Ordering::Relaxed));
        self.bytes_completed.fetch_add(length, Ordering::Relaxed);
        self.completed.store(index + 1, Ordering::Release);
        true
    }

    /// Likewise of all up to the element that is number `count`, modulo 2^16: those before it complete in silence. False if
    /// none is outstanding that has this number.
    pub(crate) fn complete_upto(&self, count: u32) -> bool {
        let more = (count as u16).wrapping_sub(self.completed.load(Ordering::Relaxed) as u16);
        more != 0 && u32::from(more) <= self.outstanding() && (0..more).all(|_| self.complete())
    }
}

/// The ranges of an element, their number and their sum checked.
pub(crate) fn element(opcode: u8, flags: u8, wr_id: u64, sges: &[Sge]) -> Result<Wqe> {
    if sges.len() > MAX_SGE {
        return Err(Error::TooManySges { got: sges.len(), max: MAX_SGE });
    }
    let sum: u64 = sges.iter().map(|s| u64::from(s.len)).sum();
    if sum > u64::from(wqe::MAX_MESSAGE) {
        return Err(Error::MessageTooLong(sum));
    }
    let mut element = Wqe { opcode, flags, num_sge: sges.len() as u16, length: sum as u32, wr_id, ..Wqe::default() };
    element.sge[..sges.len()].copy_from_slice(sges);
    Ok(element)
}

/// Producer side of a send or receive queue.
#[derive(Debug)]
pub(crate) struct WorkQueue {
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
    pub(crate) unsafe fn new(base: NonNull<Wqe>, depth: u32) -> Self {
        assert!(depth.is_power_of_two());
        Self { base, depth, producer: 0, told: 0, bytes: 0 }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn producer(&self) -> u64 {
        self.producer
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn free(&self, progress: &Progress) -> u32 {
        self.depth - progress.outstanding()
    }

    /// Whether elements with these lengths may be written now.
    pub(crate) fn check(&self, progress: &Progress, count: usize, bytes: u64) -> Result<()> {
        let free = self.free(progress);
        if count > free as usize {
            return Err(Error::QueueFull { free, depth: self.depth });
        }
        let outstanding = self.bytes - progress.bytes_completed.load(Ordering::Acquire);
        // The doorbell's byte count is modulo 2^32: the difference must stay unambiguous.
        if outstanding + bytes > u64::from(u32::MAX) {
            return Err(Error::TooMuchOutstanding);
        }
        Ok(())
    }

    /// Writes one element; [`WorkQueue::check`] has said that there is room.
    pub(crate) fn write(&mut self, progress: &Progress, element: &Wqe) {
        let place = (self.producer as usize) & (self.depth as usize - 1);
        // SAFETY: the place is inside the queue, and the card does not read it before the doorbell.
        unsafe { self.base.add(place).write_volatile(*element) };
        progress.place(self.producer).store(element.bytes(), Ordering::Relaxed);
        self.producer += 1;
        self.bytes += u64::from(element.bytes());
        progress.posted.store(self.producer, Ordering::Release);
    }

    /// Writes `element` over all places of the queue, used or not.
    pub(crate) fn overwrite(&mut self, element: &Wqe) {
        for place in 0..self.depth as usize {
            // SAFETY: the place is inside the queue.
            unsafe { self.base.add(place).write_volatile(*element) };
        }
    }

    /// How many elements wait for a doorbell; they count as told from now on.
    pub(crate) fn tell(&mut self) -> u64 {
        let fresh = self.producer - self.told;
        self.told = self.producer;
        fresh
    }
}

/// Consumer side of a completion queue.
#[derive(Debug)]
pub(crate) struct CqRing {
    base: NonNull<Cqe>,
    entries: u32,
    /// Entries taken, free-running.
    consumer: u64,
    /// Entries taken that the card knows of.
    told: u64,
}

// SAFETY: a ring is the only consumer of its memory, wherever it is.
unsafe impl Send for CqRing {}

impl CqRing {
    /// A queue of `entries` at `base`.
    ///
    /// # Safety
    /// `base` must be valid for reads of `entries` (a power of two) aligned entries as long as the ring lives.
    pub(crate) unsafe fn new(base: NonNull<Cqe>, entries: u32) -> Self {
        assert!(entries.is_power_of_two());
        Self { base, entries, consumer: 0, told: 0 }
    }

    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    pub(crate) fn consumer(&self) -> u64 {
        self.consumer
    }

    /// Takes the next entry, if the card has written it.
    pub(crate) fn take(&mut self) -> Option<Cqe> {
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

    /// Entries taken that the card does not know of yet.
    pub(crate) fn untold(&self) -> u64 {
        self.consumer - self.told
    }

    /// The card knows of all entries taken from now on.
    pub(crate) fn tell(&mut self) {
        self.told = self.consumer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory in place of a mapping, and a card's part.
    struct TestCq {
        memory: Vec<Cqe>,
        written: u64,
    }

    impl TestCq {
        fn new(entries: usize) -> (Box<Self>, CqRing) {
            let mut cq = Box::new(Self { memory: vec![Cqe::default(); entries], written: 0 });
            let base = NonNull::new(cq.memory.as_mut_ptr()).unwrap();
            // SAFETY: the vector is never resized and outlives the ring in every test.
            let ring = unsafe { CqRing::new(base, entries as u32) };
            (cq, ring)
        }

        fn complete(&mut self, wr_id: u64) {
            let n = self.memory.len() as u64;
            let phase = if (self.written / n).is_multiple_of(2) { PHASE } else { 0 };
            let entry = Cqe { wr_id, phase, ..Cqe::default() };
            let place = &raw mut self.memory[(self.written % n) as usize];
            // SAFETY: the place is an element of the vector.
            unsafe { place.write_volatile(entry) };
            self.written += 1;
        }
    }

    fn queue(depth: u32) -> (Vec<Wqe>, WorkQueue, Progress) {
        let mut memory = vec![Wqe::default(); depth as usize];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector is never resized and outlives the queue in every test.
        let queue = unsafe { WorkQueue::new(base, depth) };
        (memory, queue, Progress::new(depth))
    }

    #[test]
    fn doorbells_have_the_layout_of_the_abi() {
        assert_eq!(sq_doorbell(0x12, 0x1_2345, 0x7_89ab_cdef), 0x89ab_cdef_2345_0012);
        assert_eq!(rq_doorbell(0x12, 0xffff_ffff), 0x0000_0000_ffff_0012);
        assert_eq!(cq_doorbell(0x3f, 0x1_0001, false), 0x0000_0000_0001_003f);
        assert_eq!(cq_doorbell(0x3f, 2, true), 0x8000_0000_0002_003f);
    }

    #[test]
    fn completion_ring_takes_only_entries_of_this_round() {
        let (mut card, mut ring) = TestCq::new(4);
        assert!(ring.take().is_none());
        for n in 0..1000 {
            card.complete(n);
            assert_eq!(ring.take().unwrap().wr_id, n);
            assert!(ring.take().is_none(), "entry {n} of the previous round was taken again");
        }
    }

    #[test]
    fn completion_ring_survives_a_full_ring_and_index_wrap() {
        let (mut card, mut ring) = TestCq::new(8);
        let mut expected = 0;
        // 2^16 entries and more: the doorbell's 16-bit index wraps, the phase goes on.
        for _ in 0..9000 {
            for n in 0..8 {
                card.complete(expected + n);
            }
            for _ in 0..8 {
                assert_eq!(ring.take().unwrap().wr_id, expected);
                expected += 1;
            }
            assert!(ring.take().is_none());
            assert_eq!(ring.untold(), 8);
            ring.tell();
            assert_eq!(ring.untold(), 0);
        }
        assert_eq!(cq_doorbell(1, ring.consumer(), false) >> 16, expected & 0xffff);
    }

    #[test]
    fn work_queue_is_full_at_its_depth_and_free_after_completion() {
        let (memory, mut queue, progress) = queue(4);
        for n in 0..4u64 {
            queue.check(&progress, 1, 10).unwrap();
            let sge = Sge { va: 0x1000, len: 10, reserved: 0 };
            queue.write(&progress, &element(wqe::OP_SEND, 0, n, &[sge]).unwrap());
        }
        assert!(matches!(queue.check(&progress, 1, 10), Err(Error::QueueFull { free: 0, depth: 4 })));
        assert!(progress.complete());
        assert_eq!(queue.free(&progress), 1);
        queue.check(&progress, 1, 10).unwrap();
        assert!(queue.check(&progress, 2, 10).is_err());
        queue.write(&progress, &element(wqe::OP_SEND, 0, 4, &[]).unwrap());
        assert_eq!(memory[0].wr_id, 4, "the fifth element lies in the first place");
        assert_eq!(queue.producer(), 5);
        assert_eq!(queue.bytes(), 40);
    }

    #[test]
    fn completion_without_an_element_is_noticed() {
        let (_memory, mut queue, progress) = queue(2);
        assert!(!progress.complete());
        queue.write(&progress, &element(wqe::OP_RECV, 0, 0, &[]).unwrap());
        assert!(progress.complete());
        assert!(!progress.complete());
    }

    #[test]
    fn a_completion_is_that_of_the_silent_ones_before_it() {
        let (_memory, mut queue, progress) = queue(4);
        // The number has 16 bits.
        for n in (3..70_000u32).step_by(3) {
            for _ in 0..3 {
                queue.write(&progress, &element(wqe::OP_SEND, 0, 0, &[]).unwrap());
            }
            assert!(!progress.complete_upto(n - 3) && !progress.complete_upto(n + 1));
            assert!(progress.complete_upto(n & 0xffff) && !progress.complete_upto(n & 0xffff));
            assert_eq!(progress.outstanding(), 0);
        }
    }

    #[test]
    fn less_than_4_gib_may_be_outstanding() {
        let (_memory, mut queue, progress) = queue(8);
        let most = u64::from(wqe::MAX_MESSAGE);
        let sge = Sge { va: 0x1000, len: wqe::MAX_MESSAGE, reserved: 0 };
        queue.write(&progress, &element(wqe::OP_SEND, 0, 0, &[sge]).unwrap());
        assert!(matches!(queue.check(&progress, 1, (1 << 31) + 1), Err(Error::TooMuchOutstanding)));
        queue.check(&progress, 1, 1 << 31).unwrap();
        queue.write(&progress, &element(wqe::OP_SEND, 0, 0, &[sge]).unwrap());
        assert!(matches!(queue.check(&progress, 1, 2), Err(Error::TooMuchOutstanding)));
        queue.check(&progress, 1, 1).unwrap();
        assert!(progress.complete());
        queue.check(&progress, 1, most).unwrap();
    }

    #[test]
    fn one_doorbell_tells_a_batch() {
        let (_memory, mut queue, progress) = queue(8);
        assert_eq!(queue.tell(), 0);
        for n in 0..3 {
            queue.write(&progress, &element(wqe::OP_SEND, 0, n, &[]).unwrap());
        }
        assert_eq!(queue.tell(), 3);
        assert_eq!(queue.tell(), 0);
    }

    #[test]
    fn element_sums_its_ranges_and_refuses_too_many() {
        let sges: Vec<Sge> = (1..=7).map(|n| Sge { va: 0x1000 * u64::from(n), len: n, reserved: 0 }).collect();
        let wqe = element(wqe::OP_RECV, 0, 9, &sges).unwrap();
        assert_eq!((wqe.num_sge, wqe.length, wqe.wr_id), (7, 28, 9));
        let eight = [Sge::default(); 8];
        assert!(matches!(element(wqe::OP_SEND, 0, 0, &eight), Err(Error::TooManySges { got: 8, max: 7 })));
        let two = [Sge { va: 0, len: wqe::MAX_MESSAGE, reserved: 0 }, Sge { va: 0, len: 1, reserved: 0 }];
        element(wqe::OP_SEND, 0, 0, &two[..1]).unwrap();
        assert!(matches!(element(wqe::OP_SEND, 0, 0, &two), Err(Error::MessageTooLong(_))));
    }
}
