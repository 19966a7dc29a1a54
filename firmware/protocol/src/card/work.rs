// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The timer, and the work that events leave.

use super::Card;
use super::control::Due;
use super::hw::Hw;
use super::limits::{EVENT_RETRY, FAST_POLL};
use super::qp::{CLOSED, CONNECTED, ERROR, EVENT_CLOSED, EVENT_DESTROYED, EVENT_ERROR, EVENT_ESTABLISHED, FREE, Qp};
use super::rows::Refused;
use crate::base::rule::{self, Rule};
use berth_abi::message::{CmClosed, CmEstablished, QpError};
use berth_abi::status::{CMD_OK, REASON_ACCESS, REASON_NO_TARGET};

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// The timer's time has come.
    pub fn timer<H: Hw>(&mut self, now: u64, hw: &mut H) {
        self.sh.begin(Self::TIMER_STEPS);
        self.sh.disarm(hw);
        let mut next = u64::MAX;
        for qp in &mut self.qps {
            self.sh.step();
            if qp.state == FREE {
                continue;
            }
            if qp.sq.deadline != 0 && now >= qp.sq.deadline {
                qp.fast_timer(now, &mut self.sh, hw);
            }
            if qp.fast.rests_until != 0 && now >= qp.fast.rests_until {
                qp.fast_wake(hw);
            }
            if qp.fast.waits_until != 0 && now >= qp.fast.waits_until {
                qp.fast_go_on(hw);
            }
            // What is set later, for one of these too, is armed then.
            for deadline in [qp.sq.deadline, qp.fast.rests_until, qp.fast.waits_until] {
                if deadline != 0 {
                    next = next.min(deadline);
                }
            }
        }
        for i in 0..PEERS {
            self.sh.step();
            if self.peers[i].ip == 0 || self.peers[i].deadline == 0 {
                continue;
            }
            if now >= self.peers[i].deadline {
                self.fast_evidence(i, now, hw);
            }
            let users = self.is_told(i);
            let peer = i as u8 + 1;
            let connected = self.qps.iter().any(|qp| qp.peer == peer && qp.state == CONNECTED && !qp.foreign);
            match self.peers[i].due(now, users, connected, &mut self.sh, hw) {
                Due::Fine => (),
                Due::Probe => self.probe(peer, hw),
                Due::Lost => self.peer_lost(i, hw),
            }
            self.sh.peer_work.add(i);
            let deadline = self.peers[i].deadline;
            if deadline != 0 {
                next = next.min(deadline);
            }
        }
        self.request_timer(now, hw);
        for request in &self.requests {
            self.sh.step();
            if request.waits() {
                next = next.min(request.until);
            }
        }
        if next != u64::MAX {
            self.sh.arm(next, hw);
        }
    }

    /// Does a bounded piece of the work that events left; true when it should be called
    /// again before the core waits. Call after each burst of events.
    pub fn poll<H: Hw>(&mut self, now: u64, hw: &mut H) -> bool {
        self.sh.begin(Self::POLL_STEPS);
        let answered = self.sh.flush_answers(hw);
        self.revoke_step(now, hw);
        let drops = self.keys.step(&mut self.sh, hw);
        if self.raw.ends() && self.raw.step(&mut self.sh, hw) {
            self.sh.arm(now + FAST_POLL, hw);
        }
        if let Some(i) = self.sh.last[1].take(&mut self.sh.ctl_work)
            && !self.ctl_step(i)
        {
            self.sh.ctl_blocked.add(i);
        }
        // What somebody waits for comes first: messages, then events, then acknowledgements.
        let peer = self.sh.last[0].take(&mut self.sh.peer_work);
        let mut starved = false;
        if let Some(peer) = peer.and_then(|i| self.peers.get_mut(i)) {
            starved = peer.step(now, &mut self.sh, hw);
        }
        if let Some(i) = self.sh.last[2].take(&mut self.sh.close_work) {
            self.close_step(now, i, hw);
        }
        let mut told = true;
        if !self.sh.event_work.is_empty() {
            told = self.event_step(hw);
        }
        self.request_step(hw);
        if let Some((peer, i)) = peer.and_then(|i| self.peers.get_mut(i).zip(Some(i)))
            && (starved || peer.acknowledge_step(&mut self.sh, hw))
        {
            self.sh.peer_blocked.add(i);
        }
        if !answered || !told || self.sh.request_work {
            // The host's event ring is full, and no event tells when it has room again.
            self.sh.arm(now + EVENT_RETRY, hw);
        }
        let sh = &mut self.sh;
        let engines = !(sh.peer_work.is_empty() && sh.ctl_work.is_empty() && sh.close_work.is_empty());
        // QPs that wait for a slot or for the event ring do not count as work, or the loop would spin.
        let more = engines || drops || (answered && told && !sh.event_work.is_empty());
        if !more {
            sh.draw_ahead();
        }
        more
    }

    /// Winds up a QP in error, closed or to be destroyed.
    fn close_step<H: Hw>(&mut self, now: u64, i: usize, hw: &mut H) {
        let Some(qp) = self.qps.get_mut(i) else {
            return;
        };
        if qp.state != ERROR && qp.state != CLOSED {
            return;
        }
        let free = match qp.fast.on {
            true => qp.fast_wind_up(now, &mut self.sh, hw),
            false => qp.destroying && qp.todo == 0,
        };
        if free {
            qp.events = 0;
            qp.peer = 0;
            qp.notify(EVENT_DESTROYED, &mut self.sh);
        }
    }

    /// Tells the host what happened to one QP. False when the event ring has no room.
    fn event_step<H: Hw>(&mut self, hw: &mut H) -> bool {
        if hw.event_space() == 0 {
            return false;
        }
        let Some(i) = self.sh.last[3].take(&mut self.sh.event_work) else {
            return true;
        };
        let Some(qp) = self.qps.get_mut(i) else {
            return true;
        };
        let (qpn, private_len, private) = (qp.qpn(), qp.private_len as u32, qp.private);
        if qp.events & EVENT_ESTABLISHED != 0 {
            qp.events &= !EVENT_ESTABLISHED;
            let ipv4 = self.peers.get((qp.peer as usize).wrapping_sub(1)).map_or(0, |peer| peer.ip);
            let event = CmEstablished { qpn, ipv4, peer_qpn: qp.peer_qpn, private_len, private };
            hw.event(&event.encode());
        } else if qp.events & EVENT_CLOSED != 0 {
            qp.events &= !EVENT_CLOSED;
            hw.event(&CmClosed { qpn, reason: qp.reason as u32, private_len, private }.encode());
        } else if qp.events & EVENT_ERROR != 0 {
            qp.events &= !EVENT_ERROR;
            let reason = qp.reason as u32;
            let Refused { right, key, va, len } = match reason {
                REASON_ACCESS | REASON_NO_TARGET => qp.refused(hw),
                _ => Refused::default(),
            };
            hw.event(&QpError { qpn, reason, right, key, va, len }.encode());
        } else if qp.events & EVENT_DESTROYED != 0 {
            let cookie = qp.cookie;
            // Nothing of the QP is in flight any more: back to all-zero.
            *qp = Qp::FREE;
            qp.idx = i as u16;
            self.sh.forget_qp(i);
            self.sh.answer(cookie, CMD_OK, &[], hw);
            return true;
        }
        if qp.events != 0 {
            self.sh.event_work.add(i);
        }
        true
    }

    /// Lets go of what a revoked range holds; answers the command when all is done.
    fn revoke_step<H: Hw>(&mut self, now: u64, hw: &mut H) {
        if !self.revocation.active {
            return;
        }
        let (start, end) = (self.revocation.start, self.revocation.end);
        let mut clear = true;
        for qp in &mut self.qps {
            self.sh.step();
            if qp.state == FREE || qp.asid != self.revocation.asid {
                continue;
            }
            if qp.fast.on {
                clear &= qp.fast_revoke(now, start, end, &mut self.sh, hw);
            }
        }
        if clear {
            self.revocation.active = rule::broken(Rule::AnsweredOnce);
            for qp in &mut self.qps {
                self.sh.step();
                qp.fast_revoked();
            }
            self.sh.answer(self.revocation.cookie, CMD_OK, &[], hw);
        }
    }
}
