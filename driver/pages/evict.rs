// SPDX-License-Identifier: GPL-2.0
//! Taking idle pages back.

use crate::{
    abi::{card::*, ioctl::copied_va, message::PageRelease},
    card::{State, PAGE},
    pages::{
        page::{PageEntry, PageState},
        service::RETRY_MS,
        AddressSpace, PageService,
    },
};
use kernel::{
    sync::{atomic::Relaxed, Arc},
    time::Instant,
    workqueue::WorkItem,
};

/// Time in milliseconds after which a page is offered for eviction though it was not released: its
/// user may be gone (a destroyed QP). The card refuses while it is in use.
const STALE_MS: i64 = 1000;

impl WorkItem<1> for PageService {
    type Pointer = Arc<PageService>;

    fn run(this: Arc<PageService>) {
        if this.sweep_pages() {
            this.sweep_later();
        }
    }
}

impl PageService {
    /// Evicts what has been idle for the linger time; `true` while pages are there.
    fn sweep_pages(self: &Arc<Self>) -> bool {
        if self.card.state() == State::Unbound {
            return false;
        }
        let mut some = false;
        for asid in 1..NUM_ASIDS {
            if let Some(space) = self.space(asid) {
                some |= space.sweep();
            }
        }
        some
    }
}

impl AddressSpace {
    /// A use of a range has ended.
    pub(crate) fn page_release(self: &Arc<Self>, released: &PageRelease) {
        let &PageRelease { va, len, .. } = released;
        let len = u64::from(len);
        let Some(end) = va.checked_add(len.saturating_sub(1)) else {
            return;
        };
        let at_once = self.service.linger_ms.load(Relaxed) == 0;
        let mut space = self.lock();
        // A copy is of one moment.
        let hurry = at_once
            || copied_va(va).is_some()
            || space.requests.iter().any(|r| r.state.is_waiting());
        space.each(va / PAGE, end / PAGE, |_, page| {
            page.released = true;
            page.since = Instant::now();
            if page.state == PageState::Live && (hurry || page.urgent) {
                self.evict(page);
            }
            true
        });
        drop(space);
        self.card.ring();
        self.service.sweep_later();
    }

    /// Asks the card, or asks it again, to drop a page that seems idle. The caller rings the
    /// doorbell.
    pub(super) fn evict(&self, page: &mut PageEntry) -> bool {
        if !self.service.table.lock().evict_asked(page.index) {
            return false;
        }
        if self.card.put_evict(page.index).is_err() {
            // The card was not asked after all; the sweep tries again.
            let _ = self.service.table.lock().evict_answered(page.index);
            return false;
        }
        page.state = PageState::Evicting;
        page.released = false;
        true
    }

    /// Handles the card's answer to an eviction. `last`: no other answer is due for the page.
    pub(crate) fn evicted(self: &Arc<Self>, vpn: u64, index: u32, dropped: bool, last: bool) {
        let mut space = self.lock();
        let mut dead = false;
        if let Some(page) = space.pages.get_mut(&vpn) {
            if page.index == index && page.state == PageState::Evicting {
                if dropped {
                    page.state = PageState::Dead;
                    dead = true;
                } else if last {
                    page.state = PageState::Live;
                    page.since = Instant::now();
                    if page.released {
                        // It was released after the card had looked: asked once more.
                        self.evict(page);
                    }
                }
            }
        }
        drop(space);
        self.card.ring();
        if dead {
            self.reap_later();
        } else {
            self.retry_requests();
        }
    }

    /// Offers idle pages for eviction; gives how many evictions are under way.
    pub(super) fn evict_idle(&self) -> usize {
        let mut under_way = 0;
        let mut space = self.lock();
        space.each(0, u64::MAX, |_, page| {
            if page.memory.is_copy() {
                return true;
            }
            match page.state {
                PageState::Live if page.released => under_way += usize::from(self.evict(page)),
                PageState::Evicting
                | PageState::Dead
                | PageState::Revoking
                | PageState::Fencing => under_way += 1,
                PageState::Live => {}
            }
            true
        });
        drop(space);
        self.card.ring();
        under_way
    }

    /// Evicts what has been idle for the linger time. `true` while pages or requests are
    /// there.
    pub(crate) fn sweep(self: &Arc<Self>) -> bool {
        let linger = i64::from(self.service.linger_ms.load(Relaxed));
        let some;
        {
            let mut space = self.lock();
            space.each(0, u64::MAX, |_, page| {
                if page.state == PageState::Live {
                    let idle = page.since.elapsed().as_millis();
                    if idle >= STALE_MS.max(linger) || (page.released && idle >= linger) {
                        self.evict(page);
                    }
                }
                true
            });
            some = !space.pages.is_empty() || !space.requests.is_empty();
        }
        self.card.ring();
        self.lend_stuck_charges();
        self.press_waiting();
        self.retry_requests();
        let mut space = self.lock();
        // A place may also become free without an unpinned page.
        if space.retried.elapsed().as_millis() >= RETRY_MS {
            space.retried = Instant::now();
            drop(space);
            self.retry_for_place();
        }
        some
    }
}
