// SPDX-License-Identifier: GPL-2.0
//! Answering page requests.

use crate::{
    abi::status::*,
    pages::{request_state::STUCK_MS, AddressSpace, Pending, Request},
};
use kernel::sync::Arc;

impl AddressSpace {
    /// Answers all requests with a status, whatever their work is doing.
    pub(crate) fn answer_requests(&self, status: u32) {
        self.answer_those(status, |_| true);
    }

    /// Answers those requests for which `f` says so.
    pub(super) fn answer_those(&self, status: u32, f: impl Fn(&Pending) -> bool) {
        while let Some(request) = self.pop_request(&f) {
            request.leave_line();
            self.service
                .page_ready(request.generation, request.tag, status);
        }
        // Requests that waited behind them may go on.
        self.retry_for_budget();
    }

    /// The rows of QP `qpn` wait for pages.
    pub(crate) fn asks(&self, qpn: u32) -> bool {
        self.lock().requests.iter().any(|r| r.qpn() == qpn)
    }

    /// QP `qpn` is to be destroyed, which waits until the host owes its rows no answer: none of
    /// their requests is worked on any more, since its pages, or the budget for them, may never
    /// come (decision 21). 0: the QP is gone.
    pub(crate) fn end_requests(&self, qpn: u32) {
        self.lock().ending = qpn;
        if qpn != 0 {
            self.answer_those(PAGE_NO_PROCESS, |r| r.qpn() == qpn);
            self.retry_requests();
        }
    }

    /// Takes a request out of the list for good, and lends its charge to others.
    fn pop_request(&self, f: impl Fn(&Pending) -> bool) -> Option<Arc<Request>> {
        let mut space = self.lock();
        let at = space.requests.iter().position(f)?;
        let mut pending = space.requests.remove(at).ok()?;
        let lent = pending.lend_charge();
        drop(space);
        self.uncharge(lent, pending.write);
        Some(pending.request)
    }

    /// Gives requests up that have been waiting for a page fault for long.
    pub(crate) fn give_up_requests(&self) {
        self.answer_those(PAGE_FAULT, |r| {
            !r.state.is_waiting() && r.since.elapsed().as_millis() >= STUCK_MS
        });
    }

    /// Forgets all requests: the card that asked has been reset.
    pub(crate) fn drop_requests(&self) {
        while let Some(request) = self.pop_request(|_| true) {
            request.leave_line();
        }
    }
}

impl Request {
    /// Answers the request, unless that has been done.
    pub(super) fn answer(self: &Arc<Self>, status: u32) {
        let mine = {
            let mut space = self.space.lock();
            let mine = space.remove_request(self);
            space.start_next();
            mine
        };
        self.leave_line();
        if mine.is_some() {
            self.space
                .service
                .page_ready(self.generation, self.tag, status);
        }
    }
}
