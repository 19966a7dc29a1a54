// SPDX-License-Identifier: GPL-2.0
//! A page request: from its beginning to its answer.

use crate::{
    abi::{counters::*, status::*},
    pages::{
        plan::Plan,
        request_state::{Attempt, RequestState},
        vpn::va_of,
        AddressSpace, Need, Request, Way,
    },
};
use kernel::{
    alloc::Flags,
    new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    time::{delay::fsleep, Delta, Instant},
    workqueue::WorkItem,
};

/// Attempts of one request before it is handed back to the card.
const MAX_ATTEMPTS: u32 = 16;
/// First and last wait in milliseconds of a request for which there is no memory. The wait doubles
/// each time, so the request is refused after half a second.
const NO_MEMORY_MS: core::ops::RangeInclusive<i64> = 1..=256;

impl WorkItem for Request {
    type Pointer = Arc<Request>;

    fn run(this: Arc<Request>) {
        this.run_request();
        this.pin_rest();
        this.space.work_ended();
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

impl AddressSpace {
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
        space.count_asked(&request);
        if space.is_full() || !space.begin(request) {
            // More than the card can have asked for: its state is not sound.
            card.schedule_reset();
        }
    }
}

impl Request {
    /// Tries until it is answered, or has to wait for something.
    fn run_request(self: &Arc<Self>) {
        let mut attempts = 0;
        let mut nap = *NO_MEMORY_MS.start();
        loop {
            match self.attempt() {
                Attempt::Done => break,
                Attempt::Again if attempts < MAX_ATTEMPTS => attempts += 1,
                // The address space keeps changing here. The card asks again.
                Attempt::Again => return self.answer(PAGE_OK),
                // Nobody waits for these.
                Attempt::Full(_) if self.is_ahead() => return self.answer(PAGE_OVER_BUDGET),
                Attempt::Full(vpn) => {
                    self.make_room_for(vpn);
                    break;
                }
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
        let mut space = self.space.lock();
        let waits = space.pending(self).is_some_and(|p| p.state.is_waiting());
        drop(space);
        if waits {
            self.space.service.listen();
            self.space.service.sweep_later();
        }
    }

    /// Looks for what it misses, and charges, pins and installs it.
    fn attempt(self: &Arc<Self>) -> Attempt {
        let owner = &self.space;
        let service = &owner.service;
        if owner.lock().pending(self).is_none() {
            return Attempt::Done;
        }
        if self.way() == Way::Copy {
            let result = self.attempt_copies();
            return self.outcome(result);
        }
        // Larger requests than any budget are refused before memory is taken for them.
        if self.pages > service.budget.lock().limit {
            return Attempt::Answer(self.over_budget());
        }
        let Ok(mut missing) = self.gaps() else {
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
        self.outcome(result)
    }

    /// What an attempt comes to.
    fn outcome(&self, result: Result<Attempt>) -> Attempt {
        let (owner, card) = (&self.space, &self.space.card);
        match result {
            Ok(attempt) => attempt,
            Err(e) if e == ENOMEM => Attempt::NoMemory,
            Err(e) => {
                if card.may_log() {
                    let (what, purpose) = match (self.way(), self.write) {
                        (Way::Copy, _) => ("copied", "sending"),
                        (Way::Pin, true) => ("pinned", "receiving"),
                        (Way::Pin, false) => ("pinned", "sending"),
                    };
                    dev_warn!(
                        card.dev,
                        "berth: asid {}: {} pages at {:#x} cannot be {} for {}: {:?}\n",
                        owner.asid,
                        self.pages,
                        va_of(self.first),
                        what,
                        purpose,
                        e
                    );
                }
                Attempt::Answer(PAGE_FAULT)
            }
        }
    }
}
