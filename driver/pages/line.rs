// SPDX-License-Identifier: GPL-2.0
//! The line of receives that wait for the card's budget.

use crate::pages::{AddressSpace, Request, Way};
use kernel::{
    sync::atomic::Relaxed,
    time::{Instant, Monotonic},
};

/// Time in milliseconds for which a receive that waits for the card's budget keeps it from later
/// receives of other contexts. Without that, recalled memory would be granted to these piece by
/// piece before it is enough. A receive that still waits afterwards needs memory that is stuck.
const TURN_MS: i64 = 2_000;

impl Request {
    /// Whether it is a receive's turn among those that wait for the card's budget. If it is not, or
    /// the budget has no `room`, the request joins their line, unless something else keeps it back.
    pub(super) fn join_line(&self, may_wait: bool, room: bool) -> bool {
        let asid = self.space.asid as usize;
        let mut waiting = self.space.service.waiting.lock();
        let mut others = waiting.iter().enumerate().filter(|(n, _)| *n != asid);
        let turn = others.all(|(_, since)| {
            since.is_none_or(|since| {
                (since - self.since).as_nanos() >= 0 || since.elapsed().as_millis() >= TURN_MS
            })
        });
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
