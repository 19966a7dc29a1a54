// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What RTL reports and does not decide itself: time-outs, failures, the peer's answer to a recall.

use super::Card;
use super::hw::{Hw, Log};
use super::limits::{TIMEOUT, rnr_cycles};
use super::qp::{CONNECTED, Due, Qp, TODO_BIND, TODO_GO};
use super::shared::Shared;
use crate::base::rule::{self, Rule};
use crate::credit::policy::Use;
use crate::credit::recall::Answered;
use crate::memory::keys::Binding;
use crate::rc::{NOT_YET_TIMER, NakCode, RoundTrip, Syndrome, Tries, Woken};
use crate::wire::headers::psn_sub;
use berth_abi::counters::{
    F_ACCESS_REFUSED, F_BAD_INDEX, F_BINDS, F_BINDS_REFUSED, F_CREDIT_REPORTS, F_FAST_EVENTS, F_INVALIDATES,
    F_INVALIDATES_REFUSED, F_MEMORY_WAITS, F_NO_CREDIT, F_RECALLED, F_TIMEOUTS, F_WITHDRAWN,
};
use berth_abi::cpu::{LIST_OK, LIST_REPEAT};
use berth_abi::rows::{ROW_CLOCK as UNIT, event::*, recv, send};
use berth_abi::status::{
    PAGE_NO_MEMORY, PAGE_OVER_BUDGET, REASON_ACCESS, REASON_BAD_INDEX, REASON_NO_TARGET, REASON_PEER_LOST,
    REASON_PROTOCOL, REASON_QUEUE_READ, REASON_SEND_FAILED, REASON_WITHDRAWN, WC_BIND, WC_FLUSHED, WC_LOCAL_PROTECTION,
    WC_NO_MEMORY, WC_OVER_BUDGET, WC_REMOTE_ACCESS, WC_REMOTE_ERROR, WC_REMOTE_REQUEST, WC_RETRY_EXCEEDED,
    WC_RNR_RETRY,
};
use berth_abi::wide;

/// `WC_*` for the driver's refusal of a page request.
fn page_status(status: u32) -> u8 {
    match status {
        PAGE_OVER_BUDGET => WC_OVER_BUDGET,
        PAGE_NO_MEMORY => WC_NO_MEMORY,
        _ => WC_LOCAL_PROTECTION,
    }
}

impl Qp {
    /// The time to look at the QP has come.
    #[inline(never)]
    pub fn fast_timer<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        self.sq.deadline = 0;
        if self.is_asking() {
            return self.tell(TODO_BIND, sh);
        }
        if self.state != CONNECTED {
            sh.close_work.add(self.at());
            return;
        }
        if self.gone {
            return self.look_gone(now, sh, hw);
        }
        match self.fast.due {
            Due::Nothing => (),
            Due::Again => {
                self.fast.due = Due::Nothing;
                // No acknowledgement has come since.
                if self.fast_sends(send::UNA, hw) == self.fast.una {
                    self.fast_again(hw);
                }
            }
            Due::Failure(status) => self.fast_failure(now, status, sh, hw),
        }
    }

    fn fast_again<H: Hw>(&mut self, hw: &mut H) {
        hw.log(Log::Resend(self.qpn(), self.fast.una));
        self.fast_send(send::COMMAND, send::CMD_AGAIN, hw);
    }

    /// RTL says that a packet was not acknowledged in time, which it counts from zero each time: the time between two
    /// tries is doubled here. A time that is shorter than two round trips counts as these, and as the default while RTL
    /// has not measured them: a time-out that was set for another wire ends no connection.
    fn fast_timed_out<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        if self.gone {
            return self.fail(REASON_PEER_LOST, WC_RETRY_EXCEEDED, sh, hw);
        }
        if self.fast.waits_until != 0 {
            // It came before the peer said that it is to wait.
            return;
        }
        let una = self.fast_sends(send::UNA, hw);
        if self.fast.due == Due::Again {
            if una == self.fast.una {
                return;
            }
            // The awaited packet was acknowledged; RTL reports each time-out only once, so this is a new one.
            (self.fast.due, self.sq.deadline) = (Due::Nothing, 0);
        }
        hw.count(F_TIMEOUTS, 1);
        if una != self.fast.una {
            (self.fast.una, self.sq.tries) = (una, Tries::NONE);
        }
        // RTL has waited for what was set, or for two round trips. An unknown round trip may be long.
        let round = RoundTrip::of(self.fast_sends(send::ROUND_TRIP, hw).wrapping_mul(UNIT));
        let [waited, least] = [0, TIMEOUT].map(|unknown| round.twice(self.timeout as u64, unknown as u64));
        let more = self.sq.tries.back_off(least).saturating_sub(waited);
        if !self.sq.tries.expired(self.retries) {
            self.fail(REASON_PEER_LOST, WC_RETRY_EXCEEDED, sh, hw);
            return;
        }
        match more {
            _ if self.fast.due != Due::Nothing => self.fast_again(hw),
            0 => self.fast_again(hw),
            more => {
                (self.fast.due, self.sq.deadline) = (Due::Again, now + more);
                sh.arm(self.sq.deadline, hw);
            }
        }
    }

    /// RNR NAK with `syndrome` for packet `psn`: the peer's memory is not there yet (PC-4), or a foreign peer has no receive.
    /// RTL has halted.
    #[inline(never)]
    fn fast_not_ready<H: Hw>(&mut self, now: u64, syndrome: u8, psn: u32, sh: &mut Shared, hw: &mut H) {
        let timer = syndrome & 0x1f;
        if self.gone {
            // It came late.
            return;
        }
        if !self.foreign && timer != NOT_YET_TIMER {
            // A Berth card says nothing else.
            return self.fail(REASON_PROTOCOL, WC_FLUSHED, sh, hw);
        }
        if self.foreign && !self.fast.rnr.again(psn, self.rnr_retries) {
            return self.fail(REASON_SEND_FAILED, WC_RNR_RETRY, sh, hw);
        }
        self.sq.tries = Tries::NONE;
        if self.fast.due == Due::Again {
            // All goes again when the wait is over.
            (self.fast.due, self.sq.deadline) = (Due::Nothing, 0);
        }
        self.fast.waits_until = now + rnr_cycles(timer);
        if self.foreign {
            return sh.arm(self.fast.waits_until, hw);
        }
        hw.count(F_MEMORY_WAITS, 1);
        self.fast.held = psn;
        // A GO has overtaken the NAK, unless the packet left only after it; or the NAK is for an earlier copy.
        let overtaken = self.fast.go.take().is_some_and(|next| psn_sub(psn, next) >> 23 != 0);
        let round = RoundTrip::of(self.fast_sends(send::ROUND_TRIP, hw).wrapping_mul(UNIT));
        match overtaken || self.fast.woken.late(psn, now, round) {
            true => self.fast_go_on(hw),
            false => sh.arm(self.fast.waits_until, hw),
        }
    }

    /// The wait for the peer's memory, or its receive, is over: what is not acknowledged goes again.
    #[inline(never)]
    pub fn fast_go_on<H: Hw>(&mut self, hw: &mut H) {
        self.fast.waits_until = 0;
        self.fast_send(send::COMMAND, send::CMD_GO_ON, hw);
    }

    /// GO (PC-4). It may overtake its NAK, and one may stand for several: any ends the wait, as in
    /// [`crate::rc::Requester::go`].
    #[inline(never)]
    pub fn fast_go<H: Hw>(&mut self, now: u64, hw: &mut H) {
        if self.fast.waits_until != 0 {
            self.fast.woken = Woken::at(self.fast.held, now);
            self.fast_go_on(hw);
        } else {
            self.fast.go = Some(self.fast_sends(send::NEXT, hw));
        }
    }

    /// A send fails with `status`, as soon as all before it is acknowledged.
    #[inline(never)]
    fn fast_failure<H: Hw>(&mut self, now: u64, status: u8, sh: &mut Shared, hw: &mut H) {
        if self.fast_sends(send::UNA, hw) == self.fast_sends(send::NEXT, hw) {
            self.fail(REASON_SEND_FAILED, status, sh, hw);
        } else {
            if !matches!(self.fast.due, Due::Failure(_)) {
                // The QP may be in mid-message, for which no acknowledgement was asked: a duplicate is answered at
                // once. A resend that was due later goes now too, because RTL reports a time-out only once.
                self.fast_again(hw);
            }
            self.fast.due = Due::Failure(status);
            self.fast_later(now, sh, hw);
        }
    }

    /// The peer has answered a recall: it keeps the credits below number `first`.
    #[inline(never)]
    pub fn fast_recalled<H: Hw>(&mut self, now: u64, first: u32, sh: &mut Shared, hw: &mut H) {
        let (announced, unused) = (self.fast_receives(recv::ANNOUNCED, hw), self.fast_unused(hw));
        let back = match self.rq.recall.answered(first, announced, unused) {
            Answered::Back(back) => back,
            Answered::Repeat => return,
            Answered::Bad => return self.fail(REASON_PROTOCOL, WC_FLUSHED, sh, hw),
        };
        self.lists.peer_epoch = self.lists.peer_epoch.wrapping_add(!rule::broken(Rule::RoundMatches) as u32);
        self.fast_receive(recv::PEER_EPOCH, self.lists.peer_epoch, hw);
        self.fast_receive(recv::FIRST, first, hw);
        self.fast_receive(recv::COMMAND, recv::CMD_REST, hw);
        self.fast_receive(recv::COMMAND, recv::CMD_VOID, hw);
        hw.count(F_RECALLED, back);
        if core::mem::take(&mut self.rq.gives_back) {
            return self.fast_cancel(sh, hw);
        }
        self.fast_rest(now, sh, hw);
    }

    /// RTL's report of how the peer uses its credits.
    fn credit_use<H: Hw>(&self, hw: &mut H) -> Use {
        let gaps = recv::Gaps::from_word(self.fast_receives(recv::GAPS, hw));
        let times = recv::Times::from_word(self.fast_receives(recv::TIMES, hw));
        let used = recv::Use::from_word(self.fast_receives(recv::USE, hw));
        Use {
            gaps: gaps.count,
            time: gaps.sum as u64,
            longest: times.longest as u64,
            lead: (times.led != 0).then_some(times.lead as u64),
            left: used.left,
            outstanding: used.outstanding,
            covered: used.covered != 0,
            waited: used.waited != 0,
            dry: used.dry != 0,
        }
    }

    /// Handles an event that RTL does not decide itself.
    #[inline(never)]
    fn fast_event<H: Hw>(&mut self, now: u64, code: u32, arg: u32, sh: &mut Shared, hw: &mut H) {
        let (bad, memory) = (BadWqe::from_word(arg), NoMemory::from_word(arg));
        match code {
            EVENT_TIMEOUT => self.fast_timed_out(now, sh, hw),
            EVENT_NAK => {
                let status = match Syndrome::from_byte(Nak::from_word(arg).syndrome as u8) {
                    Some(Syndrome::Nak(NakCode::RemoteAccess)) => WC_REMOTE_ACCESS,
                    Some(Syndrome::Nak(NakCode::InvalidRequest)) => WC_REMOTE_REQUEST,
                    _ => WC_REMOTE_ERROR,
                };
                self.fail(REASON_SEND_FAILED, status, sh, hw);
            }
            EVENT_RNR => {
                let nak = Nak::from_word(arg);
                self.fast_not_ready(now, nak.syndrome as u8, nak.psn, sh, hw);
            }
            // A foreign peer comes again by itself.
            EVENT_TARGET if self.foreign => (),
            // Memory that cannot be had, too: RTL refuses the operation when it comes again.
            EVENT_TARGET => {
                self.go = Target::from_word(arg).psn;
                self.tell(TODO_GO, sh);
            }
            EVENT_LIST => match List::from_word(arg).answer {
                LIST_OK | LIST_REPEAT => (),
                refused => self.refuse_list(refused, sh, hw),
            },
            EVENT_BAD_WQE => self.fast_failure(now, bad.status as u8, sh, hw),
            EVENT_NO_MEMORY => {
                let status = page_status(memory.status);
                if memory.again != 0 {
                    self.fail(REASON_SEND_FAILED, status, sh, hw);
                } else {
                    self.fast_failure(now, status, sh, hw);
                }
            }
            EVENT_SEND_QUEUE | EVENT_RECEIVE_QUEUE => self.fail(REASON_QUEUE_READ, WC_FLUSHED, sh, hw),
            EVENT_SEND_INDEX | EVENT_RECEIVE_INDEX => {
                hw.count(F_BAD_INDEX, 1);
                self.fail(REASON_BAD_INDEX, WC_FLUSHED, sh, hw);
            }
            EVENT_BROKEN => {
                let (reason, counter) = match Broken::from_word(arg).fault {
                    FAULT_WRITE => (REASON_WITHDRAWN, Some(F_WITHDRAWN)),
                    FAULT_NO_CREDIT => (REASON_PROTOCOL, Some(F_NO_CREDIT)),
                    FAULT_ACCESS => (REASON_ACCESS, Some(F_ACCESS_REFUSED)),
                    FAULT_PAGE => (REASON_NO_TARGET, None),
                    _ => (REASON_PROTOCOL, None),
                };
                if let Some(counter) = counter {
                    hw.count(counter, 1);
                }
                self.fail(reason, WC_FLUSHED, sh, hw);
            }
            _ => (),
        }
    }
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// Event `code` of the fast path for QP `qpn` (`CPU_FAST_EVENT`, `CPU_FAST_ARG`): no packet on a clean wire causes
    /// one, but for a BIND, a SEND with invalidate, and a list whose trigger is measured. All others are counted (`F_FAST_EVENTS`).
    #[inline(never)]
    pub fn fast_event<H: Hw>(&mut self, now: u64, code: u32, qpn: u32, arg: u32, hw: &mut H) {
        self.sh.begin(Self::FAST_EVENT_STEPS);
        if code == EVENT_BIND {
            return self.fast_bind(now, qpn, hw);
        }
        if code == EVENT_USE {
            return self.fast_use(now, qpn, hw);
        }
        if code == EVENT_INVALIDATE {
            return self.fast_invalidate(qpn, hw);
        }
        hw.count(F_FAST_EVENTS, 1);
        if let Some((qp, sh)) = self.qp(qpn)
            && qp.fast.on
            && qp.state == CONNECTED
        {
            qp.fast_event(now, code, arg, sh, hw);
        }
    }

    /// RTL has a report of how the peer of QP `qpn` uses its credits.
    #[inline(never)]
    fn fast_use<H: Hw>(&mut self, now: u64, qpn: u32, hw: &mut H) {
        if let Some(i) = Self::index(qpn)
            && let Some(qp) = self.qps.get_mut(i)
            && let Some(policy) = self.policies.get_mut(i)
            && qp.fast.on
            && qp.state == CONNECTED
        {
            hw.count(F_CREDIT_REPORTS, 1);
            let report = qp.credit_use(hw);
            if let Some((lists, due)) = qp.next_lists(now / UNIT as u64, &report, policy) {
                qp.set_lists(lists, due, hw);
            }
        }
    }

    /// A SEND with invalidate to QP `qpn` has its turn (QP-4): its receive completes when the key is dead, and what it has
    /// let in is over.
    #[inline(never)]
    fn fast_invalidate<H: Hw>(&mut self, qpn: u32, hw: &mut H) {
        let qp = Self::index(qpn).and_then(|i| self.qps.get_mut(i));
        let Some(qp) = qp.filter(|qp| qp.fast.on && qp.state == CONNECTED) else {
            return;
        };
        if recv::Invalidate::from_word(qp.fast_receives(recv::INVALIDATE, hw)).waits == 0 {
            // The QP has begun anew since, or broken.
            return;
        }
        let key = qp.fast_receives(recv::INVALIDATE_KEY, hw);
        match self.keys.invalidate((qp.asid, qp.domain), key, &mut self.sh, hw) {
            Ok(()) => {
                hw.count(F_INVALIDATES, 1);
                qp.fast_receive(recv::COMMAND, recv::CMD_INVALIDATED, hw);
            }
            Err(_) => {
                hw.count(F_INVALIDATES_REFUSED, 1);
                qp.fast_receive(recv::COMMAND, recv::CMD_NOT_INVALIDATED, hw);
            }
        }
    }

    /// A BIND of QP `qpn` has its turn (QP-4): it is done, or fails when all before it is acknowledged.
    #[inline(never)]
    fn fast_bind<H: Hw>(&mut self, now: u64, qpn: u32, hw: &mut H) {
        let qp = Self::index(qpn).and_then(|i| self.qps.get_mut(i));
        let Some(qp) = qp.filter(|qp| qp.fast.on && qp.state == CONNECTED) else {
            return;
        };
        let scope = send::Bind::from_word(qp.fast_sends(send::BIND, hw));
        if scope.waits == 0 {
            // The QP has begun anew since.
            return;
        }
        let [key, va, va_high, len, len_high] = [0, 1, 2, 3, 4].map(|word| qp.fast_sends(send::BIND_KEY + word, hw));
        let (va, len) = (wide(va, va_high), wide(len, len_high));
        let binding = Binding { va, len, rights: scope.rights as u8, one_shot: scope.one_shot != 0, region: 0 };
        match self.keys.bind_element((qp.asid, qp.domain), key, binding, &mut self.sh, hw) {
            Ok(()) => {
                hw.count(F_BINDS, 1);
                qp.fast_send(send::COMMAND, send::CMD_BOUND, hw);
            }
            Err(_) => {
                hw.count(F_BINDS_REFUSED, 1);
                qp.fast_failure(now, WC_BIND, &mut self.sh, hw);
            }
        }
    }
}
