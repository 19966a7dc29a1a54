// SPDX-License-Identifier: GPL-2.0
//! The lines of requests that wait for what others have: receives for the card's budget, sends for pages to be copied
//! into ([`pool`](super::pool)).

use crate::pages::{AddressSpace, Request, Way};
use kernel::{
    sync::atomic::Relaxed,
    time::{Instant, Monotonic},
};

/// Time in milliseconds for which a request that waits keeps later ones back. Without that, what
/// becomes free would be given to these piece by piece before it is enough. A request that still
/// waits afterwards needs what is stuck.
const TURN_MS: i64 = 2_000;

impl Request {
    /// Whether it is not kept back by the request that has this place in a line.
    pub(super) fn is_before(&self, place: Option<Instant<Monotonic>>) -> bool {
        place.is_none_or(|since| {
            (since - self.since).as_nanos() >= 0 || since.elapsed().as_millis() >= TURN_MS
        })
    }

    /// Whether it is a receive's turn among those that wait for the card's budget. If it is not, or
    /// the budget has no `room`, the request joins their line, unless something else keeps it back.
    pub(super) fn join_line(&self, may_wait: bool, room: bool) -> bool {
        let asid = self.space.asid as usize;
        let mut waiting = self.space.service.waiting.lock();
        let mut others = waiting.iter().enumerate().filter(|(n, _)| *n != asid);
        let turn = others.all(|(_, since)| self.is_before(*since));
        if may_wait && !(room && turn) {
            waiting[asid] = Some(self.since);
            self.in_line.store(1, Relaxed);
        } else if !may_wait && self.in_line.load(Relaxed) != 0 {
            self.strike_from_line(&mut waiting[asid]);
        }
        turn
    }

    /// Frees its context's place in the line.
    pub(super) fn strike_from_line(&self, place: &mut Option<Instant<Monotonic>>) {
        if place.is_some_and(|since| (since - self.since).as_nanos() == 0) {
            *place = None;
        }
    }

    /// Leaves the line and wakes the next request. The caller holds no lock of a space.
    pub(super) fn leave_line(&self) {
        if self.way() == Way::Copy {
            return self.leave_pool_line();
        }
        if self.in_line.xchg(0, Relaxed) != 0 {
            let service = &self.space.service;
            self.strike_from_line(&mut service.waiting.lock()[self.space.asid as usize]);
            service.for_each_space(AddressSpace::retry_for_budget);
        }
    }
}
