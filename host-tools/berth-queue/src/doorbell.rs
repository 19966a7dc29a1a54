// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doorbells: their values, and the page that they are in.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use berth_abi::host;
use berth_abi::wqe::SLOT_WORDS;

/// Bytes of a doorbell page.
const PAGE: u32 = 4096;

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
fn before_doorbell() {
    fence(Ordering::Release);
    flush_doorbells();
}

/// Orders stores to doorbells before those that follow, and has them leave the processor: they may be write-combining,
/// so that a later store to the same doorbell would replace them.
fn flush_doorbells() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    // A release fence orders normal memory only; a doorbell is device memory.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier has no operands.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// A doorbell page, for any number of threads.
#[derive(Debug)]
pub struct Doorbells {
    page: NonNull<u8>,
    /// A thread is writing the page's slot.
    slot_taken: AtomicBool,
}

// SAFETY: the page is written only, each doorbell by one store, and the slot by one thread at a time.
unsafe impl Send for Doorbells {}
// SAFETY: as above.
unsafe impl Sync for Doorbells {}

impl Doorbells {
    /// The page at `page`.
    ///
    /// # Safety
    /// `page` must be aligned to 8 bytes and valid for volatile writes of 4096 bytes as long as the value lives.
    pub const unsafe fn new(page: NonNull<u8>) -> Self {
        Self { page, slot_taken: AtomicBool::new(false) }
    }

    /// First byte of the page.
    pub const fn page(&self) -> *mut u8 {
        self.page.as_ptr()
    }

    /// Writes a doorbell: one 8-byte store after everything written to queues before.
    #[inline]
    pub fn ring(&self, offset: u32, value: u64) {
        before_doorbell();
        self.store(offset, value);
        flush_doorbells();
    }

    /// Writes a send-queue doorbell with its element, which has been written to the queue as well: eight stores in
    /// order, the last is the commit. If they arrive in another order the card takes the element from the queue.
    pub(crate) fn ring_with(&self, element: &[u64; SLOT_WORDS], commit: u64) {
        if self.slot_taken.swap(true, Ordering::Acquire) {
            // Two threads' elements must not mix.
            return self.ring(host::DB_SQ, commit);
        }
        before_doorbell();
        for (offset, value) in (host::DB_WQE..).step_by(8).zip(element.iter().chain([&commit])) {
            self.store(offset, *value);
        }
        flush_doorbells();
        self.slot_taken.store(false, Ordering::Release);
    }

    #[inline]
    fn store(&self, offset: u32, value: u64) {
        assert!(offset <= PAGE - 8 && offset.is_multiple_of(8));
        // SAFETY: the offset is an aligned one inside the page, which is mapped as long as we live.
        unsafe { self.page.as_ptr().add(offset as usize).cast::<u64>().write_volatile(value) };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    /// Memory in place of a doorbell page.
    pub(crate) struct Page {
        memory: Box<[u64; 512]>,
        pub(crate) bells: Doorbells,
    }

    impl Page {
        pub(crate) fn new() -> Self {
            let mut memory = Box::new([0; 512]);
            let page = NonNull::from(memory.as_mut()).cast();
            // SAFETY: the memory is a page's and lives beside the value.
            let bells = unsafe { Doorbells::new(page) };
            Self { memory, bells }
        }

        /// What was last written to a doorbell.
        pub(crate) fn last(&self, offset: u32) -> u64 {
            // SAFETY: a place of the page.
            unsafe { (&raw const self.memory[offset as usize / 8]).read_volatile() }
        }
    }

    #[test]
    fn doorbells_have_the_layout_of_the_abi() {
        assert_eq!(sq_doorbell(0x12, 0x1_2345, 0x7_89ab_cdef), 0x89ab_cdef_2345_0012);
        assert_eq!(rq_doorbell(0x12, 0xffff_ffff), 0x0000_0000_ffff_0012);
        assert_eq!(cq_doorbell(0x3f, 0x1_0001, false), 0x0000_0000_0001_003f);
        assert_eq!(cq_doorbell(0x3f, 2, true), 0x8000_0000_0002_003f);
    }

    #[test]
    fn a_slot_ends_with_the_doorbell_and_a_busy_one_is_left_to_its_thread() {
        let page = Page::new();
        let element = [1, 2, 3, 4, 5, 6, 7];
        page.bells.ring_with(&element, 8);
        let written: Vec<u64> = (0..8).map(|i| page.last(host::DB_WQE + 8 * i)).collect();
        assert_eq!(written, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(page.last(host::DB_SQ), 0);
        page.bells.slot_taken.store(true, Ordering::Release);
        page.bells.ring_with(&[9; SLOT_WORDS], 10);
        assert_eq!(page.last(host::DB_WQE), 1);
        assert_eq!(page.last(host::DB_SQ), 10);
    }
}
