// SPDX-License-Identifier: GPL-2.0
//! A page request: from the card's event to its answer.

use crate::{
    abi::{counters::*, ring::*, status::*},
    card::{Entry, PAGE},
    pages::address_space::AddressSpace,
    pages::space::VPN_END,
};
use core::ops::Deref;
use kernel::{
    alloc::Flags,
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    time::{delay::fsleep, Delta, Instant, Monotonic},
    workqueue::{Work, WorkItem},
};

/// Attempts of one request before it is handed back to the card.
const MAX_ATTEMPTS: u32 = 16;
/// Milliseconds for which a request without memory waits, at first and at last: each time
/// twice as long, so that it is refused after half a second.
const NO_MEMORY_MS: core::ops::RangeInclusive<i64> = 1..=256;
/// A request that has been looking for its pages for so long is given up when a QP is to
/// be destroyed that may wait for it; what it is charged is lent to others when its pages have
/// not come for so long.
pub(super) const STUCK_MS: i64 = 500;
/// The range has changed since the request began to look at it.
pub(super) const STALE: u32 = 1;
/// Answered or given up: the work has nothing to do any more.
pub(super) const ANSWERED: u32 = 2;
/// Waits for budget.
pub(super) const WAITING: u32 = 4;
/// Waits for a page to change its state.
pub(super) const BLOCKED: u32 = 8;
/// Firmware has been asked to recall grants for it.
pub(super) const PRESSED: u32 = 16;
/// What it misses is charged to the budgets.
pub(super) const CHARGED: u32 = 32;
/// It has had to wait for budget before.
pub(super) const WAITED: u32 = 64;
/// It is the first that waits, and the budget is short.
pub(super) const SHORT: u32 = 128;
/// Waits until fewer requests of its context are worked on.
pub(super) const QUEUED: u32 = 256;
/// Stands in the card's list of those that wait for its budget.
pub(super) const LISTED: u32 = 512;
/// It would fit: it waits for those before it in that list.
pub(super) const BEHIND: u32 = 1024;
/// Waits for a place in the card's table for a page of its.
pub(super) const NO_PLACE: u32 = 2048;
/// Its pages are pinned, and being mapped and installed. A page is mapped by one request at a time.
pub(super) const INSTALLING: u32 = 4096;
/// Another request waits until that is over.
pub(super) const WANTED: u32 = 8192;
/// Its pages are being brought, one at a time, and none is pinned but for a moment.
pub(super) const BRINGING: u32 = 16384;
/// What it was charged meanwhile is lent to others, but for one page.
pub(super) const LENT: u32 = 32768;

/// What the card asks for.
#[derive(Clone)]
pub(crate) struct Need {
    pub(super) space: Arc<AddressSpace>,
    pub(super) tag: u32,
    /// Run of firmware that has asked.
    pub(super) generation: u32,
    pub(super) first: u64,
    pub(super) pages: u64,
    pub(super) write: bool,
    /// How often there was no memory to note it.
    pub(super) tries: u32,
}

/// A request of the card for pages that is looked after.
#[pin_data]
pub(crate) struct Request {
    pub(super) need: Need,
    pub(super) since: Instant<Monotonic>,
    pub(super) flags: Atomic<u32>,
    /// Pages that it is charged and has not installed.
    pub(super) charged: Atomic<u64>,
    /// When it began to bring its pages, in milliseconds after `since`.
    pub(super) begun: Atomic<i64>,
    #[pin]
    pub(super) work: Work<Request>,
}

impl_has_work! {
    impl HasWork<Self> for Request { self.work }
}

impl WorkItem for Request {
    type Pointer = Arc<Request>;

    fn run(this: Arc<Request>) {
        this.run_request();
        this.space.work_ended();
    }
}

impl Deref for Request {
    type Target = Need;

    fn deref(&self) -> &Need {
        &self.need
    }
}

impl Need {
    pub(crate) fn request(&self, flags: Flags) -> Result<Arc<Request>> {
        Arc::pin_init(
            pin_init!(Request {
                need: self.clone(),
                since: Instant::now(),
                flags: Atomic::new(0),
                charged: Atomic::new(0),
                begun: Atomic::new(0),
                work <- new_work!("berth_request"),
            }),
            flags,
        )
    }
}

/// Outcome of one attempt at a request.
pub(super) enum Attempt {
    /// Answered, or will be tried again when something changes.
    Done,
    /// Something changed meanwhile.
    Again,
    /// To be answered with a status.
    Answer(u32),
    /// The host has no memory for it at the moment.
    NoMemory,
    /// All places of the card's table for this page are taken.
    Full(u64),
}

pub(super) fn ready(tag: u32, status: u32) -> Entry {
    let mut entry = [0; ENTRY_WORDS];
    entry[0] = CMD_PAGE_READY;
    entry[1] = tag;
    entry[2] = status;
    entry
}

impl AddressSpace {
    /// The card needs pages. The caller, the interrupt thread, holds the lock of the events.
    pub(crate) fn page_need(self: &Arc<Self>, entry: &Entry) {
        let tag = entry[1];
        // Events are taken and the card is reset under the same lock, so this is the run
        // that has asked.
        let generation = self.card.generation();
        let va = u64::from(entry[4]) | u64::from(entry[5]) << 32;
        let len = u64::from(entry[6]);
        let first = va / PAGE;
        let last = va.checked_add(len.saturating_sub(1)).map(|e| e / PAGE);
        let last = match last {
            Some(last) if len != 0 && last < VPN_END => last,
            _ => return self.service.page_ready(generation, tag, PAGE_FAULT),
        };
        let need = Need {
            space: self.clone(),
            tag,
            generation,
            first,
            pages: last - first + 1,
            write: entry[3] & 1 != 0,
            tries: 0,
        };
        // The interrupt thread must not wait for memory: notifiers wait for the card, and
        // the card for this thread.
        match need.request(GFP_ATOMIC | __GFP_NOWARN) {
            Ok(request) => self.begin(request),
            Err(_) => self.service.need_later(need),
        }
    }

    /// Has a request looked after. The caller holds the lock of the events.
    pub(super) fn begin(self: &Arc<Self>, request: Arc<Request>) {
        let card = &self.card;
        let mut space = self.lock();
        if space.closing || (space.ending != 0 && request.qpn() == space.ending) {
            drop(space);
            return self
                .service
                .page_ready(request.generation, request.tag, PAGE_NO_PROCESS);
        }
        if space
            .requests
            .push_within_capacity(request.clone())
            .is_err()
        {
            // More than the card can have asked for: its state is not sound.
            return card.schedule_reset();
        }
        space.start(&request);
    }
}

impl Request {
    pub(crate) fn is(&self, flags: u32) -> bool {
        self.flags.load(Relaxed) & flags != 0
    }

    /// Flags change under the lock of the context's space, but for `ANSWERED`, which is
    /// only ever set, and `LISTED`, which the request's own work sets.
    pub(crate) fn set(&self, flags: u32) {
        let mut old = self.flags.load(Relaxed);
        while let Err(now) = self.flags.cmpxchg(old, old | flags, Relaxed) {
            old = now;
        }
    }

    pub(crate) fn clear(&self, flags: u32) {
        let mut old = self.flags.load(Relaxed);
        while let Err(now) = self.flags.cmpxchg(old, old & !flags, Relaxed) {
            old = now;
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.first + self.pages - 1
    }

    /// QP that asks, if it is one of the card's rows; 0 if firmware asks.
    pub(crate) fn qpn(&self) -> u32 {
        let place = self.tag & 0xffff;
        match self.tag >> 16 {
            TAG_SENDS => place >> TAG_SENDS_QPN,
            TAG_RECEIVES => place >> TAG_RECEIVES_QPN,
            _ => 0,
        }
    }

    fn run_request(self: &Arc<Self>) {
        let mut attempts = 0;
        let mut nap = *NO_MEMORY_MS.start();
        loop {
            match self.attempt() {
                Attempt::Done => return,
                Attempt::Again if attempts < MAX_ATTEMPTS => attempts += 1,
                // The address space does not come to rest here. The card asks again.
                Attempt::Again => return self.answer(PAGE_OK),
                Attempt::Full(vpn) => return self.make_room(vpn),
                Attempt::Answer(status) => return self.answer(status),
                Attempt::NoMemory => {
                    self.space.card.counters.inc(D_NO_MEMORY);
                    if !NO_MEMORY_MS.contains(&nap) {
                        return self.answer(PAGE_NO_MEMORY);
                    }
                    fsleep(Delta::from_millis(nap));
                    nap *= 2;
                }
            }
        }
    }

    pub(super) fn attempt(self: &Arc<Self>) -> Attempt {
        let owner = &self.space;
        let (card, service) = (&owner.card, &owner.service);
        let pages = self.pages as usize;
        if self.is(ANSWERED) {
            return Attempt::Done;
        }
        // Larger requests than any budget are refused before memory is taken for them.
        if self.pages > service.budget.lock().limit {
            card.counters.inc(D_OVER_BUDGET);
            return Attempt::Answer(PAGE_OVER_BUDGET);
        }
        let Ok(mut missing) = KVec::with_capacity(pages, GFP_KERNEL | __GFP_NOWARN) else {
            return Attempt::NoMemory;
        };
        match self.plan(&mut missing) {
            // Charged: go on.
            Attempt::Again => self.leave(),
            Attempt::Done => {
                if self.is(SHORT) {
                    self.wait_for_budget();
                }
                return Attempt::Done;
            }
            answer => return answer,
        }
        let result = self.pin_missing(&missing);
        self.clear(CHARGED);
        owner.uncharge(self.charged.xchg(0, Relaxed), self.write);
        match result {
            Ok(attempt) => attempt,
            Err(e) if e == ENOMEM => Attempt::NoMemory,
            Err(e) => {
                if card.may_log() {
                    dev_warn!(
                        card.dev,
                        "berth: asid {}: {} pages at {:#x} cannot be pinned for {}: {:?}\n",
                        owner.asid,
                        self.pages,
                        self.first * PAGE,
                        if self.write { "receiving" } else { "sending" },
                        e
                    );
                }
                Attempt::Answer(PAGE_FAULT)
            }
        }
    }
}
