// SPDX-License-Identifier: GPL-2.0
//! Sending by copy (VC-5, VC-6).
//!
//! A copy is of a whole page, because another block of the same element may find it. It goes as soon as the card says
//! that it is unused; a retransmission is copied anew. A copy under the process's own address would be used by receives,
//! by peers and by later sends, to which newer bytes belong: so copies are under aliases.

use crate::{
    abi::{counters::*, status::*},
    card::PAGE,
    kernel::worker_mm::WorkerMm,
    pages::{
        copy_pool::CopyPage,
        costs::as_cost,
        plan::{Gap, Plan},
        request_state::{Attempt, RequestState, WaitsFor},
        run::Memory,
        vpn::va_of,
        AddressSpace, PageService, Request,
    },
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::{Instant, Monotonic},
};

impl AddressSpace {
    /// Whether there may be copies: of a block of a page that does not begin at one.
    pub(crate) fn has_pool(&self) -> bool {
        self.service.pool.lock().limit >= 4
    }

    /// Bytes of a block that may be copied, with a page for blocks that do not begin at a page.
    pub(crate) fn copy_block(&self) -> u32 {
        let pages = self.service.pool.lock().most().saturating_sub(1).max(1);
        (pages * PAGE) as u32
    }

    /// Sends of up to so many bytes are cheaper by copy, if the card had to ask for the memory of `asked` of `pinned` sends.
    pub(crate) fn copy_most(&self, asked: u32, pinned: u32) -> u32 {
        let bytes = self.service.costs.lock().threshold_of(asked, pinned);
        bytes - bytes % PAGE as u32
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
    pub(super) fn attempt_copies(self: &Arc<Self>) -> Result<Attempt> {
        let (owner, service) = (&self.space, &self.space.service);
        if self.pages > service.pool.lock().most() {
            owner.card.counters.inc(D_OVER_BUDGET);
            return Ok(Attempt::Answer(PAGE_OVER_BUDGET));
        }
        let (pages, flags) = (self.pages as usize, GFP_KERNEL | __GFP_NOWARN);
        let mut missing = self.gaps()?;
        let mut copies = KVec::with_capacity(pages, flags)?;
        match self.plan_copies(&mut missing, &mut copies) {
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
            let copied = places.try_for_each(|(vpn, page)| reader.copy(va_of(vpn), page.memory()?));
            if copied == Err(EFAULT) {
                // What does not come must keep no page of the pool.
                drop(copies);
                vpns().try_for_each(|vpn| reader.bring(va_of(vpn)))?;
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
    fn plan_copies(&self, missing: &mut KVec<Gap>, copies: &mut KVec<CopyPage>) -> Plan {
        let owner = &self.space;
        let mut space = owner.lock();
        if space.pending(self).is_none() || space.closing {
            return Plan::Answer(PAGE_NO_PROCESS);
        }
        if !space.has_alias(self) {
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
