// SPDX-License-Identifier: GPL-2.0
//! Sending by copy (VC-5, VC-6): page requests at addresses of copies, and the tags in these addresses.
//!
//! The translation table knows a page by address space and virtual address only, and whoever finds one there does not ask
//! the driver. A copy under the process's own address would so be used by receives, by peers and by later sends, to which
//! newer bytes belong. So copies have addresses of their own ([`copy_va`](crate::abi::ioctl::copy_va)): with a tag, which
//! the process gives to one element at a time. No element but a send names such an address, no region has it, and the
//! memory manager does not know it.
//!
//! A copy is of a whole page, because another block of the same element may find it. It goes as soon as the card says
//! that it is unused; a retransmission is copied anew.

use crate::{
    abi::{counters::*, ioctl::*, status::*},
    card::{
        deadline::{Deadline, FENCE_CYCLES},
        PAGE,
    },
    kernel::worker_mm::WorkerMm,
    pages::{
        copy_pool::CopyPage,
        costs::as_cost,
        plan::{Gap, Plan},
        request_state::{Attempt, RequestState, WaitsFor},
        run::{Memory, PageState},
        AddressSpace, PageService, Request,
    },
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::{delay::fsleep, Delta, Instant, Monotonic},
};

/// Time in milliseconds for which [`AddressSpace::wait_copies_gone`] waits at least. By the card's clock it is as long as
/// for a fence, so that neither a host nor a card that is slow is taken for one that does not answer.
const GONE_MS: i64 = 100;

/// The first and the last page number of copies under tags from `first` on.
fn range_of(first: u32, tags: u32) -> (u64, u64) {
    let begin = copy_va(first, 0) / PAGE;
    let end = copy_va(first + tags - 1, COPY_END - 1) / PAGE;
    (begin, end)
}

/// Tags that one queue pair has; they are free again when this is dropped, and their copies gone from the card soon.
///
/// # Invariants
///
/// The bit of `place` in `Space::copy_qps` is set, and this value owns it.
pub(crate) struct CopyTags {
    space: Arc<AddressSpace>,
    place: u32,
}

impl CopyTags {
    /// The first of them; there are `COPY_TAGS`.
    pub(crate) fn first(&self) -> u32 {
        self.place * COPY_TAGS
    }

    /// Whether all of these tags, at least one, are among them.
    pub(crate) fn have(&self, first: u32, tags: u32) -> bool {
        let end = first.checked_add(tags);
        let mine = self.first()..=self.first() + COPY_TAGS;
        tags != 0 && mine.contains(&first) && end.is_some_and(|end| mine.contains(&end))
    }
}

impl Drop for CopyTags {
    fn drop(&mut self) {
        let (first, last) = range_of(self.first(), COPY_TAGS);
        self.space.lock().copy_qps &= !(1 << self.place);
        self.space.revoke_copies(first, last);
        self.space.service.leave_pool();
    }
}

impl AddressSpace {
    /// Gives tags of copies to a queue pair.
    ///
    /// # Errors
    ///
    /// `ENOSPC` too many queue pairs have some, or copies of the last owner are not gone yet.
    pub(crate) fn copy_tags(self: &Arc<Self>) -> Result<CopyTags> {
        let mut space = self.lock();
        for place in 1..=COPY_QPS {
            let (first, last) = range_of(place * COPY_TAGS, COPY_TAGS);
            if space.copy_qps & 1 << place == 0
                && !space.is_revoking(first, last)
                && !space.has(first, last)
            {
                space.copy_qps |= 1 << place;
                self.service.use_pool();
                let space = self.clone();
                // INVARIANT: The bit was clear, and is set now.
                return Ok(CopyTags { space, place });
            }
        }
        Err(ENOSPC)
    }

    /// Waits until no copy under tags from `first` on is left, nor asked for. The elements that had them are complete.
    ///
    /// # Errors
    ///
    /// `EBUSY` some are left.
    pub(crate) fn wait_copies_gone(self: &Arc<Self>, first: u32, tags: u32) -> Result {
        let (first, last) = range_of(first, tags);
        let begun = Instant::<Monotonic>::now();
        let (mut deadline, mut nap) = (None, 100);
        loop {
            let left = {
                let mut space = self.lock();
                let mut asked = space.requests.iter();
                let mut left = asked.any(|r| (first..=last).contains(&r.first));
                space.each(first, last, |run, pages| {
                    left = true;
                    self.evict(run, pages & run.are(&[PageState::Live]));
                    true
                });
                left
            };
            self.card.ring();
            if !left {
                return Ok(());
            }
            let regs = &self.card.regs;
            let deadline = deadline.get_or_insert_with(|| Deadline::new(regs, FENCE_CYCLES));
            if begun.elapsed().as_millis() >= GONE_MS && deadline.passed(regs) {
                return Err(EBUSY);
            }
            fsleep(Delta::from_micros(nap));
            nap = (2 * nap).min(5000);
        }
    }

    /// Whether there may be copies: of a block of a page that does not begin at one.
    pub(crate) fn has_pool(&self) -> bool {
        self.service.pool.lock().limit >= 4
    }

    /// Bytes of a block that may be copied, with a page for blocks that do not begin at a page.
    pub(crate) fn copy_block(&self) -> u32 {
        let pages = self.service.pool.lock().most().saturating_sub(1).max(1);
        (pages * PAGE) as u32
    }

    /// Sends of up to so many bytes are cheaper by copy.
    pub(crate) fn copy_most(&self) -> u32 {
        self.service.copy_most()
    }
}

impl PageService {
    /// Sends of up to so many bytes are cheaper by copy: whole pages, as no less is copied.
    pub(crate) fn copy_most(&self) -> u32 {
        let bytes = self.costs.lock().threshold();
        bytes - bytes % PAGE as u32
    }
}

impl Request {
    /// One attempt at a request for copies.
    pub(super) fn attempt_copies(self: &Arc<Self>, tag: u32) -> Result<Attempt> {
        let (owner, service) = (&self.space, &self.space.service);
        if self.pages > service.pool.lock().most() {
            owner.card.counters.inc(D_OVER_BUDGET);
            return Ok(Attempt::Answer(PAGE_OVER_BUDGET));
        }
        let (pages, flags) = (self.pages as usize, GFP_KERNEL | __GFP_NOWARN);
        let mut missing = self.gaps()?;
        let mut copies = KVec::with_capacity(pages, flags)?;
        match self.plan_copies(tag, &mut missing, &mut copies) {
            Plan::Charged => (),
            Plan::Answer(status) => return Ok(Attempt::Answer(status)),
            Plan::Waits | Plan::WaitsForBudget => return Ok(Attempt::Done),
        }
        // Made before the clock runs.
        copies
            .iter_mut()
            .try_for_each(|page| page.memory().map(|_| ()))?;
        {
            let Some(mm) = owner.user_mm() else {
                return Ok(Attempt::Answer(PAGE_NO_PROCESS));
            };
            let begun = Instant::<Monotonic>::now();
            let reader = WorkerMm::new(&mm);
            let vpns = || missing.iter().flat_map(|gap| gap.first..=gap.last());
            let mut places = vpns().zip(copies.iter_mut());
            let copied = places.try_for_each(|(vpn, page)| reader.copy(from(vpn), page.memory()?));
            if copied == Err(EFAULT) {
                // What does not come must keep no page of the pool.
                drop(copies);
                vpns().try_for_each(|vpn| reader.bring(from(vpn)))?;
                return Ok(Attempt::Again);
            }
            copied?;
            let bytes = copies.len() as u64 * PAGE;
            owner.card.counters.add(D_COPIED_BYTES, bytes);
            let time = begun.elapsed().as_nanos();
            service.note_cost(|costs| costs.copied(bytes as u32, as_cost(time)));
        }
        let mut brought = KVec::with_capacity(missing.len(), flags)?;
        let mut copies = copies.drain_all();
        for gap in &missing {
            let mut run = KVec::with_capacity(gap.pages as usize, flags)?;
            for page in copies.by_ref().take(gap.pages as usize) {
                let _ = run.push_within_capacity(Some(page));
            }
            let _ = brought.push_within_capacity(Memory::Copies(run));
        }
        if let Some(attempt) = self.claim_pages(&missing) {
            return Ok(attempt);
        }
        let result = self.map_and_install_pages(&missing, brought);
        match result {
            Ok(Attempt::Done) => owner.card.counters.inc(D_COPIES),
            _ => self.release_claim(),
        }
        result
    }

    /// Finds out what is missing, and takes as many pages of the pool.
    fn plan_copies(&self, tag: u32, missing: &mut KVec<Gap>, copies: &mut KVec<CopyPage>) -> Plan {
        let owner = &self.space;
        let mut space = owner.lock();
        if space.pending(self).is_none() || space.closing {
            return Plan::Answer(PAGE_NO_PROCESS);
        }
        if space.copy_qps & 1 << (tag / COPY_TAGS) == 0 {
            return Plan::Answer(PAGE_FAULT);
        }
        let blocked = self.find_missing(&mut space, missing, |_, live| live);
        if blocked {
            space.set_state(self, RequestState::Blocked);
            drop(space);
            self.leave_pool_line();
            return Plan::Waits;
        }
        if missing.is_empty() {
            return Plan::Answer(PAGE_OK);
        }
        let pages = missing.iter().map(|gap| gap.pages).sum::<u64>();
        if self.take_copies(pages as usize, copies) {
            return Plan::Charged;
        }
        // Under the lock of the space, so that whoever gives pages back sees it wait.
        space.set_state(self, RequestState::Waiting(WaitsFor::Pool));
        if self.waited.xchg(1, Relaxed) == 0 {
            owner.card.counters.inc(D_BUDGET_WAITS);
        }
        Plan::Waits
    }
}

/// Where the process has what page `vpn` is to be a copy of.
fn from(vpn: u64) -> usize {
    copied_va(vpn * PAGE).map_or(0, |(_, va)| va as usize)
}
