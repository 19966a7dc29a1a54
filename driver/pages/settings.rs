// SPDX-License-Identifier: GPL-2.0
//! Budgets as users set and see them.

use crate::{
    abi::{counters::*, ioctl::QueryContext},
    card::PAGE,
    pages::{run::bits, AddressSpace, PageService},
};
use kernel::{fmt, sync::atomic::Relaxed};

/// Pages that debugfs shows of a context: the lock is held meanwhile.
const MAX_SHOWN: usize = 256;

impl PageService {
    /// Value of the driver's counter `index`.
    pub(crate) fn drv_counter(&self, index: u32) -> u64 {
        match index {
            D_XLT_USED => self.table.lock().used(),
            D_COPY_MOST => self.copy_most().into(),
            _ => self.card.counters.get(index),
        }
    }

    /// Changes the card's budget.
    pub(crate) fn set_budget(&self, pages: u64) {
        self.budget.lock().limit = pages;
        self.card.counters.set(D_BUDGET, pages * PAGE);
        self.for_each_space(AddressSpace::retry_for_budget);
    }

    /// The peak begins anew.
    pub(crate) fn reset_peak(&self) {
        let budget = self.budget.lock();
        self.card.counters.set(D_PINNED_PEAK, budget.pinned * PAGE);
        let pool = self.pool.lock();
        self.card.counters.set(D_COPY_PEAK, pool.used * PAGE);
    }
}

impl AddressSpace {
    /// Changes the context's budget.
    pub(crate) fn set_budget(&self, pages: u64) {
        let tight = {
            let mut space = self.lock();
            space.budget.limit = pages;
            let mut share = self.share.budget.lock();
            share.limit = share.limit.max(pages);
            space.budget.pinned > pages
        };
        if tight {
            // Of pages that were released nobody may have been told.
            self.card.tell_owner(|owner| owner.take_events(true));
            self.evict_idle();
        }
        self.retry_requests();
    }

    /// What is pinned for the context, at most was, and may be.
    pub(crate) fn query(&self) -> QueryContext {
        let card = self.service.budget.lock().limit;
        let budget = self.lock().budget;
        QueryContext {
            pinned: budget.pinned * PAGE,
            pinned_peak: budget.peak * PAGE,
            budget: budget.limit.min(card) * PAGE,
        }
    }

    /// Bytes of the blocks of a QP that wants `bytes` (0: 64 KiB): receives leave as much for
    /// sends, and a page for blocks that do not begin at a page. So it is less than half of
    /// what may be pinned.
    pub(crate) fn block(&self, bytes: u32) -> u32 {
        let bytes = if bytes == 0 { 65536 } else { bytes };
        let most = self.service.budget.lock().limit.min(self.memlock.limit());
        let mut space = self.lock();
        let most = (most.min(space.budget.limit) / 2).saturating_sub(1).max(1);
        let pages = (u64::from(bytes) / PAGE).min(most);
        space.reserve = space.reserve.max(pages + 1);
        (pages * PAGE) as u32
    }

    /// Writes what is pinned and what is asked for: a line for each request, and for each page, of
    /// which it leaves out those beyond `MAX_SHOWN`.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = self.lock();
        writeln!(
            f,
            "asid {} budget {} pinned {} receive {} worked on {}",
            self.asid,
            space.budget.limit,
            space.budget.pinned,
            space.budget.receive,
            self.share.works.lock().running
        )?;
        for request in &space.requests {
            writeln!(
                f,
                "  request tag {:#x} pages {:#x}+{} write {} state {:?} stale {} pressed {} in line {} ms {}",
                request.tag,
                request.first,
                request.pages,
                request.write,
                request.state,
                request.stale,
                request.pressed,
                request.in_line.load(Relaxed) != 0,
                request.since.elapsed().as_millis()
            )?;
        }
        let mut result = Ok(());
        let mut shown = 0;
        space.each(0, u64::MAX, |run, pages| {
            for n in bits(pages) {
                shown += 1;
                let Some(state) = run.state(n).filter(|_| shown <= MAX_SHOWN) else {
                    return false;
                };
                let is = |mask: u64| mask >> n & 1 != 0;
                result = writeln!(
                    f,
                    "  page {:#x} index {} {:?} write {} released {} urgent {} suspect {} ms {}",
                    run.first + n as u64,
                    run.places[n],
                    state,
                    run.memory.is_write(),
                    is(run.released),
                    is(run.urgent),
                    is(run.suspect),
                    run.since.elapsed().as_millis()
                );
            }
            result.is_ok()
        });
        result
    }
}
