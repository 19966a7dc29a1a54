// SPDX-License-Identifier: GPL-2.0
//! Trying page requests again, when what they wait for may have come.

use crate::pages::{
    request_state::{RequestState, WaitsFor},
    AddressSpace, Pending, Space,
};
use kernel::sync::Arc;

/// Page requests of one process that are worked on, or wait for page faults, at once, those of
/// contexts that are closed included; further ones queue. More than one QP can have (16 blocks
/// and 64 ranges of receives): a page that never comes stalls its QP only (decision 21), and a
/// process with many of them itself only.
const MAX_FAULTING: u32 = 96;

impl Pending {
    /// Queues its work at once, or when enough others of the process have ended.
    pub(super) fn start(&mut self) {
        let mut works = self.request.space.share.works.lock();
        if works.running >= MAX_FAULTING {
            works.queued = true;
            self.state = RequestState::Queued;
            return;
        }
        self.state = RequestState::Looking;
        let faults = &self.request.space.service.faults;
        if faults.enqueue(self.request.clone()).is_ok() {
            works.running += 1;
        }
    }
}

impl Space {
    /// Starts all requests in a state.
    pub(super) fn start_those(&mut self, state: RequestState) {
        for pending in self.requests.iter_mut().filter(|p| p.state == state) {
            pending.start();
        }
    }

    /// Starts the first requests that wait for budget, one for sending and one for receiving. They
    /// are served in order of arrival, because the card can use them only in that order: each one
    /// that is charged starts the next.
    pub(super) fn start_next(&mut self) {
        for write in [false, true] {
            let mut all = self.requests.iter_mut();
            let first = all.find(|p| p.pins(write) && !p.state.is_charged());
            match first {
                Some(next) if matches!(next.state, RequestState::Waiting(_)) => next.start(),
                _ => {}
            }
        }
    }
}

impl AddressSpace {
    /// Tries requests again that wait for pages to change, or for budget.
    pub(super) fn retry_requests(&self) {
        let mut space = self.lock();
        space.start_those(RequestState::Blocked);
        space.start_next();
    }

    /// Tries requests again that wait for budget.
    pub(super) fn retry_for_budget(&self) {
        self.lock().start_next();
    }

    /// Tries requests again that wait for pages of the pool of copies.
    pub(super) fn retry_for_copies(&self) {
        self.lock()
            .start_those(RequestState::Waiting(WaitsFor::Pool));
    }

    /// Tries requests again that wait for a place in the table.
    pub(super) fn retry_for_place(&self) {
        self.lock().start_those(RequestState::NoPlace);
    }

    /// The work of a request has run: others of the process that are queued have their turn.
    pub(super) fn work_ended(&self) {
        let queued = {
            let mut works = self.share.works.lock();
            works.running -= 1;
            core::mem::take(&mut works.queued)
        };
        if !queued {
            return;
        }
        for space in self.service.all_spaces() {
            if Arc::ptr_eq(&space.share, &self.share) {
                space.lock().start_those(RequestState::Queued);
            }
        }
    }
}
