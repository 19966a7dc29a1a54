// SPDX-License-Identifier: GPL-2.0
//! What a page request misses, and whether the budgets have it.

use crate::{
    abi::{counters::*, status::*},
    pages::{
        budget::spare,
        request_state::{RequestState, WaitsFor},
        run::{bits, low, PageState, Run, RUN_PAGES},
        Request, Space,
    },
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::Instant,
};

/// Result of a look at the pages of a request.
pub(super) enum Plan {
    /// What is missing is charged.
    Charged,
    /// It waits for pages to change their state, or for earlier requests.
    Waits,
    /// It is the first that waits for budget.
    WaitsForBudget,
    /// To be answered with a status.
    Answer(u32),
}

/// Neighbouring pages that a request misses, [`RUN_PAGES`] at most.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    pub(super) first: u64,
    pub(super) pages: u64,
}

impl Gap {
    pub(super) fn last(&self) -> u64 {
        self.first + self.pages - 1
    }
}

impl Request {
    /// Room for what it may miss.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn gaps(&self) -> Result<KVec<Gap>> {
        // Every other page, at most.
        let most = self.pages.div_ceil(2) as usize;
        Ok(KVec::with_capacity(most, GFP_KERNEL | __GFP_NOWARN)?)
    }

    /// The status of one that no budget ever has room for.
    pub(super) fn over_budget(&self) -> u32 {
        if !self.is_ahead() {
            self.space.card.counters.inc(D_OVER_BUDGET);
        }
        PAGE_OVER_BUDGET
    }

    /// Begins to look for what is missing. `serves`: which of the pages of a run that are there are what the request needs.
    /// `true` if it has to wait for some that are not.
    pub(super) fn find_missing(
        &self,
        space: &mut Space,
        missing: &mut KVec<Gap>,
        mut serves: impl FnMut(&mut Run, u64) -> u64,
    ) -> bool {
        if let Some(pending) = space.pending(self) {
            pending.state = RequestState::Looking;
            pending.stale = false;
        }
        let now = Instant::now();
        let mut blocked = space.is_revoking(self.first, self.last());
        for first in (self.first..=self.last()).step_by(RUN_PAGES as usize) {
            let pages = RUN_PAGES.min(self.last() - first + 1);
            let mut there = 0;
            space.each(first, first + pages - 1, |run, found| {
                let live = found & run.are(&[PageState::Live]);
                let serving = serves(run, live);
                if serving != 0 {
                    run.note_use(serving, now);
                }
                blocked |= serving != found;
                there |= match run.first.checked_sub(first) {
                    Some(behind) => found << behind,
                    None => found >> (first - run.first),
                };
                true
            });
            let mut absent = !there & low(pages);
            while let Some(begin) = bits(absent).next() {
                let pages = u64::from((absent >> begin).trailing_ones());
                absent &= !(low(pages) << begin);
                let _ = missing.push_within_capacity(Gap {
                    first: first + begin as u64,
                    pages,
                });
            }
        }
        blocked
    }

    /// Finds out what is missing, and charges it to the budgets.
    pub(super) fn plan_pages(self: &Arc<Self>, missing: &mut KVec<Gap>) -> Plan {
        let owner = &self.space;
        let (card, service) = (&owner.card, &owner.service);
        let of_card = *service.budget.lock();
        let mut space = owner.lock();
        let reserve = space.reserve;
        let spare = spare(owner.memlock.limit(), self.write, reserve);
        let most = of_card.most(self.write, reserve);
        let most = most.min(space.budget.most(self.write, reserve));
        let most = most.min(owner.memlock.limit() - spare);
        if space.pending(self).is_none() || space.closing {
            return Plan::Answer(PAGE_NO_PROCESS);
        }
        if !space.has_alias(self) {
            return Plan::Answer(PAGE_FAULT);
        }
        if self.pages > most {
            return Plan::Answer(self.over_budget());
        }
        let blocked = self.find_missing(&mut space, missing, |run, live| {
            if run.memory.is_write() || !self.write {
                return live;
            }
            // Pinned for reading only: they must be unpinned and pinned again for writing.
            owner.evict(run, live & (run.released | !run.urgent));
            run.urgent |= live;
            0
        });
        if blocked {
            space.set_state(self, RequestState::Blocked);
            drop(space);
            card.ring();
            // It does not wait for budget now, so it blocks no other request.
            self.leave_line();
            return Plan::Waits;
        }
        let pages = missing.iter().map(|gap| gap.pages).sum();
        if pages == 0 {
            return Plan::Answer(PAGE_OK);
        }
        // First come, first served among those that wait for the same.
        // What nobody has asked for comes after all others.
        let others = space.requests.iter();
        let earlier = others.take_while(|r| self.is_ahead() || !Arc::ptr_eq(&r.request, self));
        let first = !earlier
            .filter(|r| r.pins(self.write))
            .any(|r| !r.state.is_charged());
        let mut share = owner.share.budget.lock();
        let mut budget = service.budget.lock();
        let mine = first
            && space.budget.fits(pages, self.write, reserve)
            && share.fits(pages, self.write, reserve);
        let room = budget.fits(pages, self.write, reserve);
        let turn = !self.write || self.join_line(mine, room);
        let fits = mine && room;
        if fits && turn {
            if owner.memlock.charge(pages, spare) {
                space.budget.charge(pages, self.write);
                share.charge(pages, self.write);
                budget.charge(pages, self.write);
                service.report_pinned(&budget);
                drop(budget);
                drop(share);
                self.charged.store(pages, Relaxed);
                space.set_state(self, RequestState::Charged);
                space.start_next();
                return Plan::Charged;
            }
            if self.is_ahead() {
                return Plan::Answer(PAGE_OVER_BUDGET);
            }
            // The process's budget is short, not the card's.
            self.give_up_place(&mut service.waiting.lock()[owner.asid as usize]);
            if share.pinned == 0 {
                // Others have used up the process's limit; nothing here can change that.
                card.counters.inc(D_OVER_BUDGET);
                return Plan::Answer(PAGE_OVER_BUDGET);
            }
        }
        if self.is_ahead() {
            return Plan::Answer(PAGE_OVER_BUDGET);
        }
        let waits_for = match (first, fits && !turn) {
            (false, _) => WaitsFor::Earlier,
            (true, true) => WaitsFor::Line,
            (true, false) => WaitsFor::Budget,
        };
        space.set_state(self, RequestState::Waiting(waits_for));
        if first {
            Plan::WaitsForBudget
        } else {
            Plan::Waits
        }
    }

    /// The request has to wait for budget: idle pages go first, then unused grants.
    pub(super) fn wait_for_budget(self: &Arc<Self>) {
        let (card, service) = (&self.space.card, &self.space.service);
        if self.waited.xchg(1, Relaxed) == 0 {
            card.counters.inc(D_BUDGET_WAITS);
        }
        // Of pages that were released nobody may have been told.
        card.tell_owner(|owner| owner.take_events(true));
        let mut under_way = self.space.evict_idle();
        for other in service.all_spaces() {
            if other.asid != self.space.asid {
                under_way += other.evict_idle();
            }
        }
        self.press_firmware(|pressed| under_way == 0 && !self.write && !pressed);
        service.sweep_later();
        service.press_later();
    }
}
