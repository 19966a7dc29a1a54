// SPDX-License-Identifier: GPL-2.0
//! Asking firmware to recall unused grants.

use crate::{
    abi::{counters::*, status::*},
    card::{State, PAGE},
    pages::{
        request_state::{RequestState, WaitsFor},
        AddressSpace, PageService, Request,
    },
};
use kernel::{
    sync::Arc,
    time::{msecs_to_jiffies, Instant},
    workqueue::WorkItem,
};

/// Time in milliseconds after which the driver checks whether receives still wait for budget.
const PRESS_MS: u32 = 10;
/// Receives that wait so long for budget, without anything being unpinned, ask firmware
/// to recall grants; sends ask at once.
const RECALL_MS: i64 = 40;

impl WorkItem<2> for PageService {
    type Pointer = Arc<PageService>;

    fn run(this: Arc<PageService>) {
        if this.press_waiting() {
            this.press_later();
        }
    }
}

impl PageService {
    /// Schedules a check for receives that wait for budget in vain.
    pub(crate) fn press_later(self: &Arc<Self>) {
        if self.card.state() == State::Unbound {
            return;
        }
        let _ = self
            .card
            .queue
            .enqueue_delayed::<_, 2>(self.clone(), msecs_to_jiffies(PRESS_MS));
    }

    /// Presses where requests wait in vain; `true` while some wait.
    pub(super) fn press_waiting(self: &Arc<Self>) -> bool {
        if self.card.state() != State::Up {
            return false;
        }
        let mut some = false;
        for space in self.all_spaces() {
            some |= space.press_waiting();
        }
        some
    }

    /// Refuses the receive of QP `qpn`, of `space`: firmware says that no more memory will come
    /// back, and the receive needs more budget, or places in the table, than there is (PC-3). Does
    /// nothing while pages of any request are on their way, because their budget may come back.
    pub(crate) fn refuse_receive(&self, space: &AddressSpace, qpn: u32) {
        if self.all_spaces().any(|space| space.lock().changes()) {
            return;
        }
        space.answer_those(PAGE_OVER_BUDGET, |r| {
            let waits = matches!(
                r.state,
                RequestState::NoPlace | RequestState::Waiting(WaitsFor::Budget)
            );
            let mine = r.qpn() == qpn && r.write && waits;
            let refused = mine && r.since.elapsed().as_millis() >= RECALL_MS;
            if refused {
                self.card.counters.inc(D_OVER_BUDGET);
            }
            refused
        });
    }
}

impl AddressSpace {
    /// Asks firmware to recall unused grants; false when it is doing so already.
    pub(crate) fn press(&self, pages: u64) -> bool {
        self.card
            .press((pages * PAGE).min(u64::from(u32::MAX)) as u32)
    }

    /// Presses where requests wait in vain. `true` while some wait for budget.
    pub(super) fn press_waiting(&self) -> bool {
        let pressing = self.card.is_pressing();
        let mut press = 0;
        let mut some = false;
        {
            let mut space = self.lock();
            let quiet = space.unpinned.elapsed().as_millis() >= RECALL_MS
                && space.pressed.elapsed().as_millis() >= RECALL_MS;
            for write in [false, true] {
                let mut all = space.requests.iter_mut();
                let head = all.find(|r| r.pins(write) && !r.state.is_charged());
                let Some(head) = head.filter(|r| {
                    matches!(r.state, RequestState::Waiting(_) | RequestState::NoPlace)
                }) else {
                    continue;
                };
                some = true;
                let long = head.since.elapsed().as_millis() >= RECALL_MS;
                if !pressing && ((long && quiet) || !(write || head.pressed)) {
                    head.pressed = true;
                    press += head.pages;
                }
            }
            if press != 0 {
                space.pressed = Instant::now();
            }
        }
        if press != 0 {
            self.press(press);
        }
        some
    }
}

impl Request {
    /// Asks firmware to recall grants for this request, if `when` says so; its argument is whether
    /// that was done before.
    pub(super) fn press_firmware(&self, when: impl FnOnce(bool) -> bool) {
        let pressed = self.space.lock().pending(self).is_some_and(|p| p.pressed);
        if when(pressed) && self.space.press(self.pages) {
            if let Some(pending) = self.space.lock().pending(self) {
                pending.pressed = true;
            }
        }
    }
}
