// SPDX-License-Identifier: GPL-2.0
//! The page service of a card: its budget, its table, the address spaces, and works that look at all of them.

use crate::{
    abi::{card::*, counters::*, status::*},
    card::{parts::MAX_ASKED, Card, State, PAGE},
    kernel::workqueue::{self, OwnedQueue},
    pages::{
        address_space::AddressSpace,
        budget::Budget,
        request::{ready, Need},
        retry::RETRY_MS,
        table::Table,
    },
};
use kernel::{
    impl_has_delayed_work, new_delayed_work, new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLock,
    },
    time::{msecs_to_jiffies, Instant, Monotonic},
    workqueue::{DelayedWork, WorkItem},
};

/// The page service of one card.
#[pin_data]
pub(crate) struct PageService {
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Where page requests run, and what else may wait for a page fault.
    pub(super) faults: Arc<OwnedQueue>,
    /// Linger time of unused pins in milliseconds.
    pub(crate) linger_ms: Atomic<u32>,
    /// Budget that a process gets, in pages.
    pub(crate) context_pages: u64,
    /// Page requests for which there was no memory.
    #[pin]
    pub(crate) needs: SpinLock<KVec<Need>>,
    /// Translation table.
    #[pin]
    pub(crate) table: SpinLock<Table>,
    /// Budget of the card.
    #[pin]
    pub(crate) budget: SpinLock<Budget>,
    /// By ASID: since when a receive waits for the card's budget.
    #[pin]
    pub(crate) waiting: SpinLock<[Option<Instant<Monotonic>>; NUM_ASIDS as usize]>,
    /// By ASID: the address spaces that have pages.
    #[pin]
    spaces: SpinLock<[Option<Arc<AddressSpace>>; NUM_ASIDS as usize]>,
    #[pin]
    sweep: DelayedWork<PageService, 1>,
    #[pin]
    press_work: DelayedWork<PageService, 2>,
    #[pin]
    need_work: DelayedWork<PageService, 3>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for PageService { self.sweep }
    impl HasDelayedWork<Self, 2> for PageService { self.press_work }
    impl HasDelayedWork<Self, 3> for PageService { self.need_work }
}

impl WorkItem<1> for PageService {
    type Pointer = Arc<PageService>;

    fn run(this: Arc<PageService>) {
        if this.sweep_pages() {
            this.sweep_later();
        }
    }
}

impl WorkItem<2> for PageService {
    type Pointer = Arc<PageService>;

    fn run(this: Arc<PageService>) {
        if this.press_waiting() {
            this.press_later();
        }
    }
}

impl WorkItem<3> for PageService {
    type Pointer = Arc<PageService>;

    fn run(this: Arc<PageService>) {
        this.run_needs();
    }
}

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
}

impl PageService {
    /// Makes the page service of `card`.
    pub(crate) fn new(card: &Arc<Card>, config: PageConfig) -> Result<Arc<Self>> {
        let table = Table::new()?;
        let needs = KVec::with_capacity(MAX_ASKED, GFP_KERNEL)?;
        card.counters.set(D_BUDGET, config.card_pages * PAGE);
        Arc::pin_init(
            pin_init!(PageService {
                card: card.clone(),
                faults: config.faults,
                linger_ms: Atomic::new(config.linger_ms),
                context_pages: config.context_pages,
                needs <- new_spinlock!(needs, "berth_needs"),
                table <- new_spinlock!(table, "berth_xlt"),
                budget <- new_spinlock!(Budget::new(config.card_pages), "berth_budget"),
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

    /// Has idle pages looked at after the linger time, and requests without a place in the table
    /// soon.
    pub(crate) fn sweep_later(self: &Arc<Self>) {
        if self.card.state() == State::Unbound {
            return;
        }
        let ms = self.linger_ms.load(Relaxed).clamp(20, RETRY_MS as u32);
        let _ = self
            .card
            .queue
            .enqueue_delayed::<_, 1>(self.clone(), msecs_to_jiffies(ms));
    }

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

    /// Value of the driver's counter `index`.
    pub(crate) fn drv_counter(&self, index: u32) -> u64 {
        if index == D_XLT_USED {
            self.table.lock().used()
        } else {
            self.card.counters.get(index)
        }
    }

    /// Answers a page request of firmware's run `generation`. Does not sleep.
    pub(crate) fn page_ready(self: &Arc<Self>, generation: u32, tag: u32, status: u32) {
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

    /// Calls `f` for each address space, as when requests that wait for others may go on.
    pub(super) fn for_each_space(&self, f: impl Fn(&AddressSpace)) {
        for asid in 1..crate::abi::card::NUM_ASIDS {
            if let Some(space) = self.space(asid) {
                f(&space);
            }
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
    }
}
