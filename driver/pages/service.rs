// SPDX-License-Identifier: GPL-2.0
//! What the page service has of a card: budget, table, and works that look at all contexts.

use crate::{
    abi::{card::*, counters::*, status::*},
    card::{Card, State, PAGE},
    pages::{
        budget::Budget,
        request::{ready, WAITING},
        retry::RETRY_MS,
    },
};
use kernel::{
    sync::{atomic::Relaxed, Arc},
    time::msecs_to_jiffies,
};

impl Card {
    /// Has idle pages looked at after the linger time, and requests without a place in the table
    /// soon.
    pub(crate) fn sweep_later(self: &Arc<Self>) {
        if self.state() == State::Unbound {
            return;
        }
        let ms = self.linger_ms.load(Relaxed).clamp(20, RETRY_MS as u32);
        let _ = self
            .queue
            .enqueue_delayed::<_, 2>(self.clone(), msecs_to_jiffies(ms));
    }

    /// Evicts what has been idle for the linger time; `true` while pages are there.
    pub(crate) fn sweep_pages(self: &Arc<Self>) -> bool {
        if self.state() == State::Unbound {
            return false;
        }
        let mut some = false;
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                some |= context.sweep();
            }
        }
        some
    }

    /// Value of the driver's counter `index`.
    pub(crate) fn drv_counter(&self, index: u32) -> u64 {
        if index == D_XLT_USED {
            self.xlt.lock().used()
        } else {
            self.counters.get(index)
        }
    }

    /// Answers a page request of firmware's run `generation`. Does not sleep.
    pub(crate) fn page_ready(self: &Arc<Self>, generation: u32, tag: u32, status: u32) {
        if status == PAGE_FAULT || status == PAGE_NO_PROCESS {
            self.counters.inc(D_PAGE_FAULTS);
        }
        self.answer(generation, ready(tag, status));
    }

    /// The budgets' one number (decision 14), after a change.
    pub(super) fn report_pinned(&self, budget: &Budget) {
        let bytes = budget.pinned * PAGE;
        self.counters.set(D_PINNED, bytes);
        if bytes > self.counters.get(D_PINNED_PEAK) {
            self.counters.set(D_PINNED_PEAK, bytes);
        }
    }

    /// Tries again what waits in any context for what others have: budget (`WAITING`), places in
    /// the table (`NO_PLACE`).
    pub(super) fn kick_all(&self, flags: u32) {
        for asid in 1..crate::abi::card::NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.kick_some(flags);
            }
        }
    }

    /// Changes the card's budget.
    pub(crate) fn set_budget(&self, pages: u64) {
        self.budget.lock().limit = pages;
        self.counters.set(D_BUDGET, pages * PAGE);
        self.kick_all(WAITING);
    }

    /// The peak begins anew.
    pub(crate) fn reset_peak(&self) {
        let budget = self.budget.lock();
        self.counters.set(D_PINNED_PEAK, budget.pinned * PAGE);
    }
}
