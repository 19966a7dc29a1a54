// SPDX-License-Identifier: GPL-2.0
//! Taking pages away from the card that the memory manager wants back.

use crate::{
    abi::{
        counters::*,
        message::{PageRevoke, RangeRevoked},
    },
    card::{
        deadline::{Deadline, FENCE_CYCLES},
        PAGE,
    },
    kernel::{
        mmu_notifier::{Event, Range},
        workqueue,
    },
    pages::{
        run::{bits, PageState, Run, TABLE_END},
        vpn::{alias_of, va_of},
        AddressSpace, Space, Way,
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta},
    workqueue::WorkItem,
};

/// Ranges of a revocation; of what does not fit the last one is larger than necessary.
const RANGES: usize = 8;
/// Revocations that firmware is told of at a time.
const MAX_REVOKING: usize = 16;

impl WorkItem<2> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_revoke();
    }
}

impl AddressSpace {
    /// The memory manager changes a range. Returns `false` only if it would have had to sleep
    /// and must not.
    pub(crate) fn invalidate(self: &Arc<Self>, range: &Range) -> bool {
        let first = range.start / PAGE;
        let last = range.end.saturating_sub(1) / PAGE;
        let mut revoke = matches!(range.event, Event::Unmap | Event::Release);
        let mut found = false;
        let mut leaving = false;
        {
            let mut space = self.lock();
            for pending in space.requests.iter_mut() {
                let begin = va_of(pending.first) as u64 / PAGE;
                let reaches = begin <= last && first < begin + pending.pages;
                pending.stale |= reaches && pending.way() == Way::Pin;
            }
            space.each_of_process(first, last, |run, pages| {
                found = true;
                let there = pages & run.are(&[PageState::Live, PageState::Evicting]);
                let others = run.are(&[PageState::Revoking, PageState::Fencing]);
                leaving |= pages & others != 0;
                // Another change of the same pages may be the one that revokes them.
                leaving |= revoke && there != 0;
                if !revoke {
                    run.suspect |= pages;
                }
                if !revoke && range.event == Event::Clear && there != 0 {
                    // Unused pages must not serve requests after the change, so they are evicted;
                    // the card keeps them while they are in use. An earlier eviction may have found one
                    // in use, which proves nothing about now.
                    leaving = true;
                    revoke = self.evict(run, there) != there;
                }
                true
            });
            self.card.ring();
        }
        if !found {
            return true;
        }
        if !revoke {
            if leaving && range.blockable {
                // Evictions are done when the fence is.
                self.card.fence();
            }
            self.recheck_later();
            return true;
        }
        let (_, all) = self.mark_revoked(first, last, range.blockable);
        if leaving {
            if range.blockable {
                self.card.fence();
            }
            self.revoke_later();
        }
        all
    }

    /// Gives all pages back, and the registration. No request comes any more.
    pub(crate) fn close(self: &Arc<Self>) {
        self.revoke_all();
        // A revocation that firmware is being told of must not name the next owner of
        // the address space number.
        workqueue::cancel::<_, 2>(self);
        let notifier = self.notifier.lock().take();
        drop(notifier);
        self.service.remove_space(self.asid);
    }

    /// Takes everything away from the card, then unpins it.
    pub(super) fn revoke_all(self: &Arc<Self>) {
        self.mark_revoked(0, TABLE_END - 1, true);
        // This also covers pages that were revoked before and not fenced yet.
        if !self.lock().runs.is_empty() {
            self.card.fence();
        }
        self.drop_pages();
    }

    /// Tells the card to drop the process's pages from `first` to `last`, those under aliases included; gives their number,
    /// and whether these are all. Sleeps for room in the command ring if it may `wait`, else pages for which there is no
    /// room stay as they are.
    pub(super) fn mark_revoked(self: &Arc<Self>, first: u64, last: u64, wait: bool) -> (u64, bool) {
        let (own, all) = self.mark_runs_revoked(wait, |space, f| space.each(first, last, f));
        let (aliased, too) =
            self.mark_runs_revoked(wait, |space, f| space.each_aliased(first, last, f));
        (own + aliased, all && too)
    }

    /// The same for one page, under the number that the card has, if `same` says that it is in a run.
    pub(super) fn mark_page_revoked(
        self: &Arc<Self>,
        vpn: u64,
        same: impl Fn(&Run) -> bool,
    ) -> u64 {
        let marked = self.mark_runs_revoked(true, |space, f| {
            space.each(vpn, vpn, |run, page| !same(run) || f(run, page))
        });
        marked.0
    }

    /// The same for pages that `each` calls its argument for.
    fn mark_runs_revoked(
        self: &Arc<Self>,
        wait: bool,
        each: impl Fn(&mut Space, &mut dyn FnMut(&mut Run, u64) -> bool) -> bool,
    ) -> (u64, bool) {
        let mut number = 0;
        let mut deadline = None;
        let mut stuck = false;
        let all = loop {
            // One range, and one for each alias: what is under others is not told of.
            let mut ranges = [(u64::MAX, 0); RANGES];
            let mut used = 0;
            let all = {
                let mut space = self.lock();
                let all = each(&mut space, &mut |run, pages| {
                    let there = run.are(&[PageState::Live, PageState::Evicting]);
                    for n in bits(pages & there) {
                        let index = u32::from(run.places[n]);
                        match self.card.put(&[PageRevoke { index }.encode()]) {
                            Err(e) if e == EBUSY && !stuck => return false,
                            // Out of service: it has no translations and does no DMA.
                            _ => {}
                        }
                        run.set(1 << n, PageState::Revoking);
                        let vpn = run.first + n as u64;
                        let (_, highest) = ranges[used];
                        if highest != 0 && alias_of(highest) != alias_of(vpn) {
                            used = (used + 1).min(RANGES - 1);
                        }
                        let (lowest, highest) = &mut ranges[used];
                        *lowest = vpn.min(*lowest);
                        *highest = vpn.max(*highest);
                        number += 1;
                    }
                    true
                });
                for (lowest, highest) in ranges {
                    if lowest <= highest {
                        space.add_revoked(lowest, highest);
                    }
                }
                self.card.ring();
                all
            };
            if all || !wait {
                break all;
            }
            fsleep(Delta::from_millis(1));
            let regs = &self.card.regs;
            let deadline = deadline.get_or_insert_with(|| Deadline::new(regs, FENCE_CYCLES));
            if deadline.passed(regs) {
                // The card takes no commands any more, so its DMA is switched off.
                self.card.stop_dma();
                stuck = true;
            }
        };
        self.card.counters.add(D_REVOKED, number);
        (number, all)
    }

    /// Ends revocations: waits for DMA, unpins, and has firmware release the ranges.
    pub(super) fn run_revoke(self: &Arc<Self>) {
        loop {
            let mut ranges = [None; MAX_REVOKING];
            {
                let mut space = self.lock();
                let untold = space.revoking.iter_mut().filter(|r| !r.told);
                for (r, place) in untold.zip(&mut ranges) {
                    r.told = true;
                    *place = Some(*r);
                }
                space.each(0, u64::MAX, |run, _| {
                    run.set(run.are(&[PageState::Revoking]), PageState::Fencing);
                    true
                });
            }
            if ranges.iter().all(|r| r.is_none()) {
                return;
            }
            self.card.fence();
            self.unpin_where(|run| run.are(&[PageState::Fencing]));
            for r in ranges.iter().flatten() {
                let va = r.first * PAGE;
                let len = (r.last - r.first + 1) * PAGE;
                let gone = RangeRevoked {
                    asid: self.asid,
                    va,
                    len,
                };
                let _ = self.card.call_patiently(gone.encode());
            }
            {
                let mut space = self.lock();
                // Firmware is told again of one that was merged with a later revocation.
                space.revoking.retain(|r| !r.told);
            }
            self.retry_requests();
        }
    }
}
