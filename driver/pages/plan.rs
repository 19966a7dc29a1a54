// SPDX-License-Identifier: GPL-2.0
//! What a page request misses, and whether the budgets have it.

use crate::{
    abi::{counters::*, status::*},
    pages::{
        budget::spare,
        page::{PageEntry, PageState},
        request_state::{RequestState, WaitsFor},
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

impl Request {
    /// Begins to look for what is missing. `serves`: whether a page that is there is what the request needs. `true` if it has
    /// to wait for one that is not.
    pub(super) fn find_missing(
        &self,
        space: &mut Space,
        missing: &mut KVec<u64>,
        mut serves: impl FnMut(&mut PageEntry) -> bool,
    ) -> bool {
        if let Some(pending) = space.pending(self) {
            pending.state = RequestState::Looking;
            pending.stale = false;
        }
        let mut blocked = space.is_revoking(self.first, self.last());
        let mut next = self.first;
        space.each(self.first, self.last(), |vpn, page| {
            for gap in next..vpn {
                let _ = missing.push_within_capacity(gap);
            }
            next = vpn + 1;
            if page.state == PageState::Live && serves(page) {
                page.since = Instant::now();
            } else {
                blocked = true;
            }
            true
        });
        for gap in next..=self.last() {
            let _ = missing.push_within_capacity(gap);
        }
        blocked
    }

    /// Finds out what is missing, and charges it to the budgets.
    pub(super) fn plan_pages(self: &Arc<Self>, missing: &mut KVec<u64>) -> Plan {
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
        if self.pages > most {
            card.counters.inc(D_OVER_BUDGET);
            return Plan::Answer(PAGE_OVER_BUDGET);
        }
        let blocked = self.find_missing(&mut space, missing, |page| {
            let serves = page.memory.is_write() || !self.write;
            if !serves {
                // Pinned for reading only: it must be unpinned and pinned again for writing.
                if page.released || !page.urgent {
                    owner.evict(page);
                }
                page.urgent = true;
            }
            serves
        });
        if blocked {
            space.set_state(self, RequestState::Blocked);
            drop(space);
            card.ring();
            // It does not wait for budget now, so it blocks no other request.
            self.leave_line();
            return Plan::Waits;
        }
        let pages = missing.len() as u64;
        if pages == 0 {
            return Plan::Answer(PAGE_OK);
        }
        // First come, first served among those that wait for the same.
        let earlier = space.requests.iter();
        let earlier = earlier.take_while(|r| !Arc::ptr_eq(&r.request, self));
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
            // The process's budget is short, not the card's.
            self.strike_from_line(&mut service.waiting.lock()[owner.asid as usize]);
            if share.pinned == 0 {
                // Others have used up the process's limit; nothing here can change that.
                card.counters.inc(D_OVER_BUDGET);
                return Plan::Answer(PAGE_OVER_BUDGET);
            }
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
        let mut under_way = self.space.evict_idle();
        for asid in 1..crate::abi::card::NUM_ASIDS {
            match service.space(asid) {
                Some(other) if asid != self.space.asid => under_way += other.evict_idle(),
                _ => {}
            }
        }
        self.press_firmware(|pressed| under_way == 0 && !self.write && !pressed);
        service.sweep_later();
        service.press_later();
    }
}
