// SPDX-License-Identifier: GPL-2.0
//! Taking idle pages back.

use crate::{
    abi::{alias::aliased_va, message::PageRelease, ring::EVICT_PAGES},
    card::{State, PAGE},
    pages::{
        run::{bits, Idle, PageState, Run},
        service::{NEVER, RETRY_MS, SOON_MS},
        table::Evicted,
        AddressSpace, PageService,
    },
};
use kernel::{
    sync::{atomic::Relaxed, Arc},
    time::{Instant, Monotonic},
    workqueue::WorkItem,
};

/// Time in milliseconds after which a page is offered for eviction though it was not released: its
/// user may be gone (a destroyed QP). The card refuses while it is in use.
pub(super) const STALE_MS: i64 = 1000;

impl WorkItem<1> for PageService {
    type Pointer = Arc<PageService>;

    fn run(this: Arc<PageService>) {
        this.sweep_pages();
    }
}

impl PageService {
    /// Handles the card's answers to evictions, [`EVICT_PAGES`] at most: place, and whether the page was dropped.
    /// Without `reap` the caller unpins those.
    pub(crate) fn evicted(&self, answers: impl Iterator<Item = (u32, bool)>, reap: bool) {
        let mut all = [Evicted::default(); EVICT_PAGES];
        let mut some = 0;
        {
            let mut table = self.table.lock();
            for (index, dropped) in answers {
                let (Some((asid, vpn, last)), Some(place)) =
                    (table.evict_answered(index), all.get_mut(some))
                else {
                    continue;
                };
                *place = Evicted {
                    asid,
                    vpn,
                    place: index as u16,
                    dropped,
                    last,
                };
                some += 1;
            }
        }
        for of_one in all[..some].chunk_by(|a, b| a.asid == b.asid) {
            if let Some(space) = self.space(of_one[0].asid) {
                space.evicted(of_one, reap);
            }
        }
    }

    /// Evicts what has been idle for the linger time.
    fn sweep_pages(self: &Arc<Self>) {
        *self.sweep_at.lock() = NEVER;
        if self.card.state() == State::Unbound {
            return;
        }
        // Pages may have been released of which nobody was told.
        self.card.tell_owner(|owner| owner.take_events(false));
        let mut next = Due::default();
        for space in self.all_spaces() {
            space.sweep(&mut next);
        }
        if self.released.load(Relaxed) != u32::from(next.released) {
            self.released.store(next.released.into(), Relaxed);
            if self.card.state() == State::Up {
                self.card
                    .arm_events(&self.card.events.lock(), self.is_lax());
            }
        }
        if let Some(ms) = next.ms {
            self.sweep_in(ms.max(SOON_MS));
        }
    }
}

/// What the next sweep is for.
#[derive(Default)]
struct Due {
    /// When it is, in milliseconds from now.
    ms: Option<u32>,
    /// There are pages that were released, or are being evicted.
    released: bool,
}

impl Due {
    /// Something is due in so many milliseconds.
    fn add(&mut self, ms: i64) {
        let ms = ms.clamp(0, u32::MAX.into()) as u32;
        self.ms = Some(self.ms.map_or(ms, |other| other.min(ms)));
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
        // Under an alias it was for one element, and a copy is of one moment.
        let hurry = at_once
            || aliased_va(va).is_some()
            || space.requests.iter().any(|r| r.state.is_waiting());
        let now = Instant::now();
        space.each(va / PAGE, end / PAGE, |run, pages| {
            run.released |= pages;
            run.ahead &= !pages;
            run.note_use(pages, now);
            let wanted = if hurry { pages } else { pages & run.urgent };
            self.evict(run, wanted & run.are(&[PageState::Live]));
            true
        });
        drop(space);
        self.card.ring();
        let service = &self.service;
        service.released.store(1, Relaxed);
        service.sweep_in(service.linger_ms.load(Relaxed).max(SOON_MS));
    }

    /// Asks the card, or asks it again, to drop pages that seem idle. Gives of which it is asked. The caller rings the
    /// doorbell.
    pub(super) fn evict(&self, run: &mut Run, pages: u64) -> u64 {
        if pages == 0 {
            return 0;
        }
        let mut asked = 0;
        {
            let mut table = self.service.table.lock();
            for n in bits(pages) {
                asked |= u64::from(table.evict_asked(run.places[n])) << n;
            }
        }
        let put = self.card.put_evicts(bits(asked).map(|n| run.places[n]));
        if put < asked.count_ones() as usize {
            // Of the others it was not asked after all; the sweep tries again.
            let mut table = self.service.table.lock();
            for n in bits(asked).skip(put) {
                let _ = table.evict_answered(run.places[n].into());
                asked &= !(1 << n);
            }
        }
        run.set(asked, PageState::Evicting);
        run.released &= !asked;
        run.ahead &= !asked;
        if asked != 0 && self.service.linger_ms.load(Relaxed) != 0 {
            // The card answers soon, and may not tell of it.
            self.service.sweep_in(1);
        }
        asked
    }

    /// Handles the card's answers to evictions. Without `reap` the caller unpins what the card has dropped.
    pub(crate) fn evicted(self: &Arc<Self>, mut answers: &[Evicted], reap: bool) {
        let mut space = self.lock();
        let (mut dead, mut stale) = (false, false);
        while let Some(first) = answers.first() {
            let mut used = 0;
            space.each(first.vpn, first.vpn, |run, _| {
                // The next ones are of the same run, as a rule.
                let (mut dropped, mut kept) = (0, 0);
                for answer in answers {
                    let n = answer.vpn.wrapping_sub(run.first) as usize;
                    // Another run may have a page that is gone here, at the same place.
                    if run.places.get(n) != Some(&answer.place) || run.there() >> n & 1 == 0 {
                        break;
                    }
                    used += 1;
                    let page = 1 << n & run.are(&[PageState::Evicting]);
                    if answer.dropped {
                        dropped |= page;
                    } else if answer.last {
                        kept |= page;
                    }
                }
                run.set(dropped, PageState::Dead);
                run.set(kept, PageState::Live);
                dead |= dropped != 0;
                if kept != 0 {
                    run.note_use(kept, Instant::now());
                    stale = true;
                }
                // They were released after the card had looked: asked once more.
                self.evict(run, kept & run.released);
                used == 0
            });
            answers = &answers[used.max(1)..];
        }
        drop(space);
        self.card.ring();
        if stale {
            let linger = self.service.linger_ms.load(Relaxed);
            self.service.sweep_in(linger.max(STALE_MS as u32));
        }
        if !dead {
            self.retry_requests();
        } else if reap {
            self.reap_later();
        }
    }

    /// Offers idle pages for eviction; gives how many evictions are under way.
    pub(super) fn evict_idle(&self) -> usize {
        let mut under_way = 0;
        let mut space = self.lock();
        space.each(0, u64::MAX, |run, pages| {
            if !run.memory.is_copy() {
                let live = run.are(&[PageState::Live]);
                under_way += (pages & !live).count_ones() as usize;
                let idle = live & (run.released | run.ahead);
                under_way += self.evict(run, idle).count_ones() as usize;
            }
            true
        });
        drop(space);
        self.card.ring();
        under_way
    }

    /// Evicts what has been idle for the linger time, and says what is due next.
    fn sweep(self: &Arc<Self>, next: &mut Due) {
        let linger = i64::from(self.service.linger_ms.load(Relaxed));
        let stale = STALE_MS.max(linger);
        let mut dead = false;
        {
            let mut space = self.lock();
            let now = Instant::<Monotonic>::now();
            space.each(0, u64::MAX, |run, _| {
                let (lingered, next_linger) = run.idle(Idle::Lingers, now, linger);
                let (stayed, next_stale) = run.idle(Idle::Stays, now, stale);
                let due = stayed | (lingered & run.released);
                self.evict(run, due & run.are(&[PageState::Live]));
                dead |= run.are(&[PageState::Dead]) != 0;
                // What the card has not been asked for is asked for again.
                let live = run.are(&[PageState::Live]);
                if live & run.released != 0 {
                    next.released = true;
                    // Not for each page anew.
                    next.add(next_linger.max(linger / 8));
                }
                if live & !run.released != 0 {
                    next.add(next_stale.max(linger / 8));
                }
                if run.are(&[PageState::Evicting]) != 0 {
                    next.released = true;
                    next.add(0);
                }
                true
            });
            if !space.requests.is_empty() {
                next.add(linger.min(RETRY_MS));
            }
        }
        self.card.ring();
        if dead {
            self.run_reap();
        }
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
    }
}
