// SPDX-License-Identifier: GPL-2.0
//! Making the page service of a card, and what all files need of it.

use crate::{
    abi::{card::*, counters::*, message::PageReady, status::*},
    card::{parts::MAX_ASKED, Card, Entry, State, PAGE},
    kernel::workqueue::{self, OwnedQueue},
    pages::{
        budget::Budget, copy_pool::Pool, costs::Costs, table::Table, AddressSpace, PageService,
        TAG_AHEAD,
    },
};
use kernel::{
    new_delayed_work, new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    time::{msecs_to_jiffies, Instant},
};

/// Longest time in milliseconds until requests without a place in the table are tried again. Each
/// try in vain costs a pinning.
pub(super) const RETRY_MS: i64 = 100;

/// Shortest time in milliseconds until a sweep.
pub(super) const SOON_MS: u32 = 20;
/// No sweep is due.
pub(super) const NEVER: i64 = i64::MAX;

/// What a new page service is made of.
pub(crate) struct PageConfig {
    /// Work queue of page requests.
    pub(crate) faults: Arc<OwnedQueue>,
    /// Linger time in milliseconds.
    pub(crate) linger_ms: u32,
    /// Card budget in pages.
    pub(crate) card_pages: u64,
    /// Process budget in pages.
    pub(crate) context_pages: u64,
    /// Pages for copies, at most.
    pub(crate) copy_pages: u64,
}

pub(super) fn ready(tag: u32, status: u32) -> Entry {
    PageReady { tag, status }.encode()
}

impl PageService {
    /// Makes the page service of `card`.
    pub(crate) fn new(card: &Arc<Card>, config: PageConfig) -> Result<Arc<Self>> {
        let table = Table::new(card.sizes.table)?;
        let pool = Pool::new(config.copy_pages)?;
        let needs = KVec::with_capacity(MAX_ASKED, GFP_KERNEL)?;
        card.counters.set(D_BUDGET, config.card_pages * PAGE);
        Arc::pin_init(
            pin_init!(PageService {
                card: card.clone(),
                faults: config.faults,
                linger_ms: Atomic::new(config.linger_ms),
                context_pages: config.context_pages,
                begun: Instant::now(),
                sweep_at <- new_spinlock!(NEVER, "berth_sweep_at"),
                released: Atomic::new(0),
                aliased: Atomic::new(0),
                waits: Atomic::new(0),
                needs <- new_spinlock!(needs, "berth_needs"),
                table <- new_spinlock!(table, "berth_xlt"),
                budget <- new_spinlock!(Budget::new(config.card_pages), "berth_budget"),
                pool <- new_spinlock!(pool, "berth_copies"),
                costs <- new_spinlock!(Costs::new(), "berth_costs"),
                waiting <- new_spinlock!([None; NUM_ASIDS as usize], "berth_waiting"),
                spaces <- new_spinlock!([const { None }; NUM_ASIDS as usize], "berth_spaces"),
                sweep <- new_delayed_work!("berth_sweep"),
                press_work <- new_delayed_work!("berth_press"),
                need_work <- new_delayed_work!("berth_need"),
            }),
            GFP_KERNEL,
        )
    }

    /// The address space with an ASID.
    pub(crate) fn space(&self, asid: u32) -> Option<Arc<AddressSpace>> {
        self.spaces.lock().get(asid as usize)?.clone()
    }

    /// Those that there are.
    pub(super) fn all_spaces(&self) -> impl Iterator<Item = Arc<AddressSpace>> + '_ {
        let mut next = 0;
        core::iter::from_fn(move || {
            let all = self.spaces.lock();
            let at = (next..all.len()).find(|at| all[*at].is_some())?;
            next = at + 1;
            all[at].clone()
        })
    }

    /// Looks after an address space from now on.
    pub(super) fn add_space(&self, space: &Arc<AddressSpace>) {
        self.spaces.lock()[space.asid as usize] = Some(space.clone());
    }

    /// Looks after an address space no more.
    pub(super) fn remove_space(&self, asid: u32) {
        let gone = self.spaces.lock()[asid as usize].take();
        drop(gone);
    }

    /// Ends all works; the card is unbound.
    pub(crate) fn end_works(self: &Arc<Self>) {
        workqueue::end_delayed::<_, 1>(self);
        workqueue::end_delayed::<_, 2>(self);
        workqueue::end_delayed::<_, 3>(self);
        self.drop_needs();
    }

    /// Forgets them.
    pub(crate) fn drop_needs(&self) {
        // Dropping the last need may drop its space, which must not happen under the lock.
        while let Some(need) = {
            let last = self.needs.lock().pop();
            last
        } {
            drop(need);
        }
    }

    /// Has requests that wait looked at soon.
    pub(crate) fn sweep_later(self: &Arc<Self>) {
        self.sweep_in(self.linger_ms.load(Relaxed).clamp(SOON_MS, RETRY_MS as u32));
    }

    /// Has idle pages looked at so many milliseconds from now, or before.
    pub(super) fn sweep_in(self: &Arc<Self>, ms: u32) {
        if self.card.state() == State::Unbound {
            return;
        }
        let at = self.begun.elapsed().as_nanos() + i64::from(ms) * 1_000_000;
        let mut planned = self.sweep_at.lock();
        if at >= *planned {
            return;
        }
        *planned = at;
        workqueue::take_back::<_, 1>(self);
        let _ = self
            .card
            .queue
            .enqueue_delayed::<_, 1>(self.clone(), msecs_to_jiffies(ms));
    }

    /// Another linger time holds from now on.
    pub(crate) fn set_linger(self: &Arc<Self>, ms: u32) {
        self.linger_ms.store(ms, Relaxed);
        self.sweep_in(SOON_MS);
        if self.card.state() == State::Up {
            self.card
                .arm_events(&self.card.events.lock(), self.is_lax());
        }
    }

    /// Whether the card need not tell of pages that are released or evicted: nobody waits for them, and the sweep takes what
    /// the card has told. What is under aliases goes at once.
    pub(crate) fn is_lax(&self) -> bool {
        self.released.load(Relaxed) != 0
            && self.waits.load(Relaxed) == 0
            && self.aliased.load(Relaxed) == 0
            && self.linger_ms.load(Relaxed) != 0
    }

    /// Somebody waits: the card is to tell of pages that are released or evicted, and to tell at once of those that were. The
    /// caller holds no lock.
    pub(super) fn listen(&self) {
        self.waits.add(1, Relaxed);
        self.card.arm_events(&self.card.events.lock(), false);
    }

    /// Answers a page request of firmware's run `generation`, unless the driver made it. Does not sleep.
    pub(crate) fn page_ready(self: &Arc<Self>, generation: u32, tag: u32, status: u32) {
        if tag == TAG_AHEAD {
            return;
        }
        if status == PAGE_FAULT || status == PAGE_NO_PROCESS {
            self.card.counters.inc(D_PAGE_FAULTS);
        }
        self.card.answer(generation, ready(tag, status));
    }

    /// Publishes the pinned bytes (decision 14) after a change.
    pub(super) fn report_pinned(&self, budget: &Budget) {
        let bytes = budget.pinned * PAGE;
        self.card.counters.set(D_PINNED, bytes);
        if bytes > self.card.counters.get(D_PINNED_PEAK) {
            self.card.counters.set(D_PINNED_PEAK, bytes);
        }
    }

    /// Notes what something has cost.
    pub(super) fn note_cost(&self, f: impl FnOnce(&mut Costs)) {
        f(&mut self.costs.lock());
    }

    /// Calls `f` for each address space if requests wait for what others have.
    pub(super) fn for_those_that_wait(&self, f: impl Fn(&AddressSpace)) {
        let seen = self.waits.load(Relaxed);
        if seen == 0 {
            return;
        }
        let mut some = false;
        self.for_each_space(|space| {
            f(space);
            some |= space.lock().requests.iter().any(|r| r.state.is_waiting());
        });
        if !some {
            // Unless one has begun to wait meanwhile.
            let _ = self.waits.cmpxchg(seen, 0, Relaxed);
        }
    }

    /// Calls `f` for each address space, as when requests that wait for others may go on.
    pub(super) fn for_each_space(&self, mut f: impl FnMut(&AddressSpace)) {
        self.all_spaces().for_each(|space| f(&space));
    }
}
