// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a connection ends: closed, or in error.

use super::hw::{Hw, Log};
use super::limits::TIMEOUT;
use super::qp::{
    CLOSED, CONNECTED, CONNECTING, CREATED, ERROR, EVENT_CLOSED, EVENT_ERROR, Qp, TODO_BIND, TODO_DREQ, TODO_GO,
    TODO_RECALL, TODO_RECALLED, TODO_REP, TODO_REQ, TODO_RTU,
};
use super::shared::Shared;
use berth_abi::counters::F_LIST_REFUSED;
use berth_abi::rows::recv;
use berth_abi::status;
use berth_abi::status::{REASON_PROTOCOL, WC_FLUSHED};

impl Qp {
    /// Ends the connection without error: what is left is flushed.
    #[inline(never)]
    pub fn close<H: Hw>(&mut self, reason: u32, sh: &mut Shared, hw: &mut H) {
        if !matches!(self.state, CREATED | CONNECTING | CONNECTED) {
            return;
        }
        hw.log(Log::Closed(self.qpn(), reason));
        self.end(CLOSED, reason, sh);
        self.fast_end(status::WC_FLUSHED, sh, hw);
        self.notify(EVENT_CLOSED, sh);
    }

    /// Puts the QP in error; its oldest send completes with `head`, the rest is flushed.
    #[inline(never)]
    pub fn fail<H: Hw>(&mut self, reason: u32, head: u8, sh: &mut Shared, hw: &mut H) {
        if !matches!(self.state, CREATED | CONNECTING | CONNECTED) {
            return;
        }
        hw.log(Log::QpError(self.qpn(), reason));
        self.end(ERROR, reason, sh);
        self.fast_end(head, sh, hw);
        self.notify(EVENT_ERROR, sh);
    }

    fn end(&mut self, state: u8, reason: u32, sh: &mut Shared) {
        self.todo &= !(TODO_RECALL | TODO_RECALLED | TODO_RTU | TODO_GO);
        if self.state == CONNECTING || self.state == CONNECTED {
            // A request that was never sent need not be taken back.
            if self.todo & TODO_REQ == 0 && self.tell_peer {
                self.tell(TODO_DREQ, sh);
            }
            self.todo &= !(TODO_REQ | TODO_REP | TODO_BIND);
        }
        self.state = state;
        self.reason = reason as u8;
        (self.sq.deadline, self.fast.waits_until) = (0, 0);
        sh.close_work.add(self.at());
    }

    /// The peer has ended a connection that the hosts have made, or knows nothing of it. What has come stays, and receives are not flushed: a host
    /// hears of a peer that is gone when it sends (IBTA 9.9.2.1.4).
    #[inline(never)]
    pub(super) fn peer_gone<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        if self.gone {
            return;
        }
        self.tell_peer = false;
        if self.state == CONNECTING {
            // Its host may still name this end, or begin anew: it is asked again after a time.
            let wait = self.sq.tries.back_off(TIMEOUT.into());
            if !self.sq.tries.expired(self.retries) {
                return self.fail(status::REASON_PEER_LOST, status::WC_RETRY_EXCEEDED, sh, hw);
            }
            self.sq.deadline = now + wait;
            return sh.arm(self.sq.deadline, hw);
        }
        self.gone = true;
        // Nobody takes its lists any more.
        self.fast_receive(recv::COMMAND, recv::CMD_HOLD, hw);
        self.fast.looks = 0;
        self.fast_later(now, sh, hw);
    }

    /// Looks whether something was posted for a peer that is gone.
    #[inline(never)]
    pub(super) fn look_gone<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        let sends = self.sends_held(hw);
        if sends.queued | sends.busy | sends.holds != 0 {
            self.fail(status::REASON_PEER_LOST, status::WC_RETRY_EXCEEDED, sh, hw);
        } else {
            self.fast_later(now, sh, hw);
        }
    }

    /// The peer breaks the protocol of credit lists.
    pub fn refuse_list<H: Hw>(&mut self, answer: u32, sh: &mut Shared, hw: &mut H) {
        hw.count(F_LIST_REFUSED, 1);
        hw.log(Log::ListRefused(self.qpn(), answer));
        self.fail(REASON_PROTOCOL, WC_FLUSHED, sh, hw);
    }
}
