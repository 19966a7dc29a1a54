// SPDX-License-Identifier: GPL-2.0
//! What pages and page requests are charged, given back or lent to others.

use crate::pages::{
    request_state::{RequestState, STUCK_MS},
    AddressSpace, Pending,
};
use kernel::sync::atomic::Relaxed;

impl AddressSpace {
    /// Takes pages off the budgets and tries again what waits for them.
    pub(super) fn uncharge(&self, pages: u64, write: bool) {
        if pages == 0 {
            return;
        }
        {
            let mut space = self.lock();
            let mut share = self.share.budget.lock();
            let mut budget = self.service.budget.lock();
            space.budget.uncharge(pages, write);
            share.uncharge(pages, write);
            budget.uncharge(pages, write);
            // All at once, as they are charged: a request between them would charge pages that still count, or, with
            // nothing in its share, blame other processes.
            self.memlock.uncharge(pages);
            self.service.report_pinned(&budget);
        }
        self.service.for_those_that_wait(Self::retry_for_budget);
    }

    /// Lends the charges of requests whose pages do not come to others (decision 21).
    pub(super) fn lend_stuck_charges(&self) {
        for write in [false, true] {
            let lent: u64 = {
                let mut space = self.lock();
                let stuck = space
                    .requests
                    .iter_mut()
                    .filter(|r| r.write == write && r.is_stuck());
                stuck.map(|r| r.lend_charge()).sum()
            };
            self.uncharge(lent, write);
        }
    }
}

impl Pending {
    /// Whether its pages have failed to come for long.
    fn is_stuck(&self) -> bool {
        match self.state {
            RequestState::Bringing { begun, .. } => {
                self.since.elapsed().as_millis() - begun >= STUCK_MS
            }
            _ => false,
        }
    }

    /// While its pages are brought, lends its charge to others, but for the one page that it may
    /// pin. Returns how many pages that is; the caller uncharges them.
    pub(super) fn lend_charge(&mut self) -> u64 {
        match &mut self.state {
            RequestState::Bringing { lent, .. } if !*lent => *lent = true,
            _ => return 0,
        }
        self.charged.xchg(1, Relaxed) - 1
    }
}
