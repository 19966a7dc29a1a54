// SPDX-License-Identifier: GPL-2.0
//! A page request: from the card's event to its answer.

use crate::{
    abi::{
        counters::*,
        message::{PageNeed, PageReady},
        ring::*,
        status::*,
    },
    card::{Entry, PAGE},
    pages::{address_space::AddressSpace, plan::Plan, space::VPN_END},
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
/// First and last wait in milliseconds of a request for which there is no memory. The wait doubles
/// each time, so the request is refused after half a second.
const NO_MEMORY_MS: core::ops::RangeInclusive<i64> = 1..=256;
/// After this time in milliseconds without its pages, a request counts as stuck: it is given up
/// when a QP that may wait for it is destroyed, and its charge is lent to others.
pub(super) const STUCK_MS: i64 = 500;

/// Where a page request stands, from [`AddressSpace::begin_request`] to its answer.
///
/// | From | To | When |
/// |---|---|---|
/// | – | `Looking`, `Queued` | it begins |
/// | `Queued` | `Looking` | enough others of its process have ended |
/// | `Looking` | `Blocked` | a page of its is being taken away |
/// | `Looking` | `Waiting` | a budget has no room, or others come first |
/// | `Looking` | `Charged` | what it misses is charged |
/// | `Charged` | `Bringing` | not all of it is there |
/// | `Bringing` | `Charged` | it came, or the charge was lent: then `Looking` follows |
/// | `Charged` | `Blocked` | another request maps some of its pages; it is charged no more |
/// | `Charged` | `Installing` | all is pinned |
/// | `Charged` | `Looking` | something has changed; it is charged no more |
/// | `Installing` | `Charged` | not installed: something has changed, or there was no place |
/// | `Looking` | `NoPlace` | the table has no place for a page of its |
/// | `Blocked`, `Waiting`, `NoPlace` | `Looking`, `Queued` | what it waits for may have come |
///
/// In each state it may be answered: as a rule out of `Looking` (refused) and `Installing` (installed), out of any when
/// its queue pair, its context or the card goes. It is in no list then, and has no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    /// Its work is queued or runs, and it is charged nothing.
    Looking,
    /// It waits because too many requests of its process are worked on.
    Queued,
    /// It waits for budget.
    Waiting(WaitsFor),
    /// It waits for a page to change its state.
    Blocked,
    /// It waits for a place in the card's table for a page of its.
    NoPlace,
    /// What it misses is charged to the budgets.
    Charged,
    /// Charged; its pages are being brought, one at a time, and none is pinned but for a moment.
    Bringing {
        /// Since when, in milliseconds after the request.
        begun: i64,
        /// Whether the charge is lent to others, but for one page.
        lent: bool,
    },
    /// Charged; its pages are pinned, and being mapped and installed. A page is mapped by one
    /// request at a time.
    Installing {
        /// Whether another request waits until that is over.
        wanted: bool,
    },
}

/// What a request for budget waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// For earlier requests of its context.
    Earlier,
    /// For receives of other contexts that have waited longer; there would be room.
    Line,
    /// For room in a budget.
    Budget,
}

impl RequestState {
    /// Whether what it misses is charged to the budgets.
    pub(super) fn is_charged(self) -> bool {
        matches!(
            self,
            Self::Charged | Self::Bringing { .. } | Self::Installing { .. }
        )
    }

    /// Whether it waits for what others have.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Blocked | Self::NoPlace)
    }
}

/// A request that is not answered yet, in the list of its address space, under whose lock it
/// changes. One that is not in the list is answered.
pub(super) struct Pending {
    pub(super) request: Arc<Request>,
    pub(super) state: RequestState,
    /// The range has changed since the request began to look at it.
    pub(super) stale: bool,
    /// Firmware has been asked to recall grants for it.
    pub(super) pressed: bool,
}

impl Deref for Pending {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

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
    /// Pages that it is charged and has not installed.
    pub(super) charged: Atomic<u64>,
    /// Whether it stands in the card's line of receives that wait for its budget (1).
    pub(super) in_line: Atomic<u32>,
    /// Whether it has had to wait for budget (1).
    pub(super) waited: Atomic<u32>,
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
    /// A request for it that has not begun.
    pub(super) fn request(&self, flags: Flags) -> Result<Arc<Request>> {
        Arc::pin_init(
            pin_init!(Request {
                need: self.clone(),
                since: Instant::now(),
                charged: Atomic::new(0),
                in_line: Atomic::new(0),
                waited: Atomic::new(0),
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
    /// Something changed meanwhile: to be tried again at once.
    Again,
    /// To be answered with a status.
    Answer(u32),
    /// The host has no memory for it at the moment.
    NoMemory,
    /// All places of the card's table for this page are taken.
    Full(u64),
}

pub(super) fn ready(tag: u32, status: u32) -> Entry {
    PageReady { tag, status }.encode()
}

impl AddressSpace {
    /// Handles the card's request for pages. The caller, the interrupt thread, holds the lock of
    /// the events.
    pub(crate) fn page_need(self: &Arc<Self>, need: &PageNeed) {
        let &PageNeed {
            tag,
            va,
            len,
            write,
            ..
        } = need;
        let len = u64::from(len);
        // Events are taken and the card is reset under the same lock, so this is the run
        // that has asked.
        let generation = self.card.generation();
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
            write,
            tries: 0,
        };
        // The interrupt thread must not wait for memory: notifiers wait for the card, and
        // the card for this thread.
        match need.request(GFP_ATOMIC | __GFP_NOWARN) {
            Ok(request) => self.begin_request(request),
            Err(_) => self.service.need_later(need),
        }
    }

    /// Notes a request and starts its work. The caller holds the lock of the events.
    pub(super) fn begin_request(self: &Arc<Self>, request: Arc<Request>) {
        let card = &self.card;
        let mut space = self.lock();
        if space.closing || (space.ending != 0 && request.qpn() == space.ending) {
            drop(space);
            return self
                .service
                .page_ready(request.generation, request.tag, PAGE_NO_PROCESS);
        }
        let pending = Pending {
            request,
            state: RequestState::Looking,
            stale: false,
            pressed: false,
        };
        if space.requests.push_within_capacity(pending).is_err() {
            // More than the card can have asked for: its state is not sound.
            return card.schedule_reset();
        }
        if let Some(pending) = space.requests.last_mut() {
            pending.start();
        }
    }
}

impl Request {
    pub(super) fn last(&self) -> u64 {
        self.first + self.pages - 1
    }

    /// QP whose row asks; 0 if firmware asks.
    pub(super) fn qpn(&self) -> u32 {
        let place = self.tag & 0xffff;
        match self.tag >> 16 {
            TAG_SENDS => place >> TAG_SENDS_QPN,
            TAG_RECEIVES => place >> TAG_RECEIVES_QPN,
            _ => 0,
        }
    }

    /// Tries until it is answered, or has to wait for something.
    fn run_request(self: &Arc<Self>) {
        let mut attempts = 0;
        let mut nap = *NO_MEMORY_MS.start();
        loop {
            match self.attempt() {
                Attempt::Done => return,
                Attempt::Again if attempts < MAX_ATTEMPTS => attempts += 1,
                // The address space keeps changing here. The card asks again.
                Attempt::Again => return self.answer(PAGE_OK),
                Attempt::Full(vpn) => return self.make_room_for(vpn),
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

    /// Looks for what it misses, and charges, pins and installs it.
    fn attempt(self: &Arc<Self>) -> Attempt {
        let owner = &self.space;
        let (card, service) = (&owner.card, &owner.service);
        let pages = self.pages as usize;
        if owner.lock().pending(self).is_none() {
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
        match self.plan_pages(&mut missing) {
            Plan::Charged => self.leave_line(),
            Plan::Waits => return Attempt::Done,
            Plan::WaitsForBudget => {
                self.wait_for_budget();
                return Attempt::Done;
            }
            Plan::Answer(status) => return Attempt::Answer(status),
        }
        let result = self.pin_missing_pages(&missing);
        if let Some(pending) = owner.lock().pending(self) {
            // Unless it is blocked, or was meanwhile.
            if pending.state.is_charged() {
                pending.state = RequestState::Looking;
            }
        }
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
