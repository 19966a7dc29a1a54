// SPDX-License-Identifier: GPL-2.0
//! The line of receives that wait for the card's budget.

use crate::pages::{AddressSpace, Request, Way};
use kernel::sync::atomic::Relaxed;

impl Request {
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
            self.give_up_place(&mut waiting[asid]);
        }
        turn
    }

    /// Leaves the line and wakes the next request. The caller holds no lock of a space.
    pub(super) fn leave_line(&self) {
        if self.way() == Way::Copy {
            return self.leave_pool_line();
        }
        if self.in_line.xchg(0, Relaxed) != 0 {
            let service = &self.space.service;
            self.give_up_place(&mut service.waiting.lock()[self.space.asid as usize]);
            service.for_each_space(AddressSpace::retry_for_budget);
        }
    }
}
