// SPDX-License-Identifier: GPL-2.0
//! What the card asks for, and requests for which there was no memory.

use crate::{
    abi::{counters::*, message::PageNeed, status::*},
    card::{State, PAGE},
    pages::{run::VPN_END, vpn::under_one_alias, AddressSpace, Need, PageService},
};
use kernel::{prelude::*, sync::Arc, time::msecs_to_jiffies, workqueue::WorkItem};

/// Time in milliseconds after which page requests for which there was no memory are tried
/// again.
const NEED_MS: u32 = 10;
/// Number of tries, `NEED_MS` apart, for a request that could not even be noted.
const MAX_NEED_TRIES: u32 = 64;

impl WorkItem<3> for PageService {
    type Pointer = Arc<PageService>;

    fn run(this: Arc<PageService>) {
        this.run_needs();
    }
}

impl PageService {
    /// Schedules another try of requests for which there was no memory.
    pub(crate) fn look_at_needs(self: &Arc<Self>) {
        if self.card.state() == State::Unbound {
            return;
        }
        // Waits for memory, which may mean waiting for a process to be killed.
        let _ = self
            .faults
            .enqueue_delayed::<_, 3>(self.clone(), msecs_to_jiffies(NEED_MS));
    }

    /// Keeps a request for which there is no memory, and tries it again soon.
    pub(super) fn need_later(self: &Arc<Self>, need: Need) {
        self.card.counters.inc(D_NO_MEMORY);
        if self.needs.lock().push_within_capacity(need).is_err() {
            // More than a sound card can have asked for.
            self.card.schedule_reset();
        }
        self.look_at_needs();
    }

    /// Tries requests again for which there was no memory.
    pub(super) fn run_needs(self: &Arc<Self>) {
        let waiting = self.needs.lock().len();
        for _ in 0..waiting {
            let Ok(mut need) = self.needs.lock().remove(0) else {
                break;
            };
            let request = need.request(GFP_KERNEL | __GFP_NOWARN);
            // As long as this is held, the card is not reset.
            let events = self.card.events.lock();
            if self.card.state() != State::Up || self.card.generation() != need.generation {
                continue;
            }
            match request {
                Ok(request) => need.space.begin_request(request),
                Err(_) if need.tries < MAX_NEED_TRIES => {
                    need.tries += 1;
                    self.need_later(need);
                }
                Err(_) => self.page_ready(need.generation, need.tag, PAGE_NO_MEMORY),
            }
            drop(events);
        }
    }
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
            Some(last) if len != 0 && !write && under_one_alias(first, last) => last,
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
}
