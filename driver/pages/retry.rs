// SPDX-License-Identifier: GPL-2.0
//! Trying page requests again, when what they wait for may have come.

use crate::{
    pages::address_space::AddressSpace,
    pages::{
        request::{Request, BLOCKED, CHARGED, NO_PLACE, QUEUED, WAITING},
        space::Space,
    },
};
use kernel::sync::Arc;

/// Requests without a place in the table are tried again at least so often; each time their
/// pages are pinned in vain.
pub(crate) const RETRY_MS: i64 = 100;
/// Page requests of one process that are worked on, or wait for page faults, at once, those of
/// contexts that are closed included; further ones queue. More than one QP can have (16 blocks
/// and 64 ranges of receives): a page that never comes stalls its QP only (decision 21), and a
/// process with many of them itself only.
const MAX_FAULTING: u32 = 96;

impl Space {
    /// Has the request's work run, at once or when enough others of the process have ended.
    pub(crate) fn start(&self, request: &Arc<Request>) {
        let mut works = request.space.share.works.lock();
        if works.running >= MAX_FAULTING {
            works.queued = true;
            request.set(QUEUED);
            return;
        }
        request.clear(QUEUED);
        let faults = &request.space.service.faults;
        if faults.enqueue(request.clone()).is_ok() {
            works.running += 1;
        }
    }

    /// Those that are queued have their turn.
    fn start_queued(&self) {
        for request in self.requests.iter().filter(|r| r.is(QUEUED)) {
            self.start(request);
        }
    }
}

impl AddressSpace {
    /// Has requests that wait tried again.
    pub(crate) fn kick(&self) {
        self.kick_some(WAITING | BLOCKED);
    }

    pub(super) fn kick_some(&self, flags: u32) {
        let space = self.lock();
        let blocked = flags & (BLOCKED | NO_PLACE);
        if blocked != 0 {
            for request in &space.requests {
                if request.is(blocked) {
                    request.clear(blocked);
                    space.start(request);
                }
            }
        }
        if flags & WAITING != 0 {
            self.kick_next(&space);
        }
    }

    /// Has the first requests tried again that wait for budget, one for sending and one
    /// for receiving. They are served in the order in which they came, because the card
    /// can make use of them only in that order: each one that is charged wakes the next.
    pub(super) fn kick_next(&self, space: &Space) {
        for write in [false, true] {
            let mut all = space.requests.iter();
            match all.find(|r| r.write == write && !r.is(CHARGED)) {
                Some(next) if next.is(WAITING) => {
                    next.clear(WAITING);
                    space.start(next);
                }
                _ => {}
            }
        }
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
        for asid in 1..crate::abi::card::NUM_ASIDS {
            if let Some(space) = self.service.space(asid) {
                if Arc::ptr_eq(&space.share, &self.share) {
                    space.lock().start_queued();
                }
            }
        }
    }
}
