// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What firmware does: the card, as the engines and the driver see it.
//!
//! Here are the entry points for what the engines report, and the work that events leave. [`hw::Hw`] is what the card
//! wants of the engines. A QP (`qp`) is made and destroyed by commands of the driver (`command`). `control` carries
//! records to a peer; `connect` begins and ends connections with them. Then RTL has the connection's [`rows`], and
//! `pressure` decides which QP releases memory when memory is short. `shared` is what all QPs and peers have in common,
//! [`limits`] are sizes and times, `steps` bounds what a call may take.

mod command;
mod connect;
mod control;
pub mod hw;
pub mod limits;
mod pressure;
mod qp;
pub mod rows;
mod shared;
mod steps;

use crate::base::rule::{self, Rule};
use crate::wire::headers::{
    BTH_ACKNOWLEDGE, BTH_SELECTIVE_ACKNOWLEDGE, BTH_SEND_FIRST, BTH_SEND_ONLY, BTH_SEND_ONLY_IMM, BTH_UD_SEND_ONLY,
    HEADER_WORDS, arp, parse,
};
use berth_abi::card::{CONTROL_QPN, FIRST_QPN, RX_SLOTS};
use berth_abi::counters::{
    F_ADDRESS_CONFLICTS, F_BAD_HEADER, F_BAD_INDEX, F_BAD_OPCODE, F_FOREIGN, F_NOT_FOR_US, F_PEERS_LOST, F_UNKNOWN_QP,
};
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE};
use berth_abi::message::{CmClosed, CmEstablished, QpError};
use berth_abi::status::{
    CMD_OK, REASON_BAD_INDEX, REASON_PEER_LOST, REASON_UNREACHABLE, WC_FLUSHED, WC_RETRY_EXCEEDED,
};
use connect::Request;
use control::{Due, Peer};
use hw::{Hw, Log};
use limits::{EVENT_RETRY, REQUESTS, SERVICES};
use qp::{
    CLOSED, CONNECTED, CONNECTING, CREATED, ERROR, EVENT_CLOSED, EVENT_DESTROYED, EVENT_ERROR, EVENT_ESTABLISHED, FREE,
    Qp, TODO_REQ,
};
use shared::Shared;

/// A revocation that is under way (`CMD_RANGE_REVOKED`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Revocation {
    pub(crate) active: bool,
    pub(crate) asid: u8,
    pub(crate) cookie: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What happens to requested connections when the peer has to begin anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// The requests are over as well.
    Over,
    /// The requests wait in unacknowledged messages, which come again.
    Queued,
    /// The requests are sent again.
    Again,
}

/// Everything that firmware knows. All-zero when new, so that it lies in `.bss`.
/// `QPS`: data QPs (at most 64; QPNs from `FIRST_QPN`), `PEERS`: end nodes it talks to at a time (at most 64).
///
/// Each call is bounded as a whole, whatever came before: [`Card::POLL_STEPS`] and the like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Card<const QPS: usize = 64, const PEERS: usize = { berth_abi::card::NUM_PEERS as usize }> {
    pub(crate) qps: [Qp; QPS],
    pub(crate) peers: [Peer; PEERS],
    pub(crate) requests: [Request; REQUESTS],
    pub(crate) services: [u16; SERVICES],
    pub(crate) revocation: Revocation,
    pub(crate) sh: Shared,
}

impl<const QPS: usize, const PEERS: usize> Card<QPS, PEERS> {
    /// A card without name, QPs or peers.
    pub const fn new() -> Self {
        assert!(QPS <= 64 && PEERS <= 64);
        Self {
            qps: [const { Qp::FREE }; QPS],
            peers: [const { Peer::FREE }; PEERS],
            requests: [Request::FREE; REQUESTS],
            services: [0; SERVICES],
            revocation: Revocation { active: false, asid: 0, cookie: 0, start: 0, end: 0 },
            sh: Shared::new(),
        }
    }

    /// Whether [`Card::command`] may be given a firmware command now; else leave it in the FIFO.
    pub fn command_ready(&self) -> bool {
        !self.revocation.active && self.sh.answer_room()
    }

    /// Position of a QPN.
    pub(crate) fn index(qpn: u32) -> Option<usize> {
        let idx = qpn.wrapping_sub(FIRST_QPN) as usize;
        (idx < QPS).then_some(idx)
    }

    /// QP `qpn`, if it exists.
    pub(crate) fn qp(&mut self, qpn: u32) -> Option<(&mut Qp, &mut Shared)> {
        let qp = self.qps.get_mut(Self::index(qpn)?)?;
        (qp.state != FREE).then_some((qp, &mut self.sh))
    }

    /// QP `qpn`'s doorbell: producer indices, as latched. Only before RTL has the QP.
    pub fn doorbell<H: Hw>(&mut self, qpn: u32, sq_pi: u16, rq_pi: u16, hw: &mut H) {
        self.sh.begin(Self::DOORBELL_STEPS);
        let Some((qp, sh)) = self.qp(qpn).filter(|(qp, _)| !qp.destroying && !qp.fast.on) else {
            return;
        };
        // RTL has taken nothing from the queues yet.
        let wild = |new: u16, old: u16, mask: u16| new > mask + 1 || new < old;
        if wild(sq_pi, qp.sq.pi, qp.sq_mask) || wild(rq_pi, qp.rq.pi, qp.rq_mask) {
            hw.count(F_BAD_INDEX, 1);
            qp.fail(REASON_BAD_INDEX, WC_FLUSHED, sh, hw);
            return;
        }
        (qp.sq.pi, qp.rq.pi) = (sq_pi, rq_pi);
    }

    /// A frame of `len` bytes (with iCRC) lies in receive slot `slot`; flags `RX_FLAG_*`. The card frees the slot.
    pub fn rx<H: Hw>(&mut self, now: u64, slot: u32, len: u32, flags: u32, hw: &mut H) {
        self.sh.begin(Self::RX_STEPS);
        if slot >= RX_SLOTS {
            return;
        }
        let mut words = [0; HEADER_WORDS];
        hw.rx_read(slot, 0, &mut words);
        const GOOD: u32 = RX_FLAG_ROCE | RX_FLAG_ICRC_OK;
        if flags & GOOD != GOOD || self.sh.ip == 0 {
            if self.sh.ip == 0 {
                // The card has no address yet.
                hw.count(F_NOT_FOR_US, 1);
            } else if flags & RX_FLAG_ROCE == 0 {
                self.rx_arp(&words, len, hw);
            }
            hw.rx_free(slot);
            return;
        }
        let packet = match parse(&words, len, self.sh.mac, self.sh.ip) {
            Ok(packet) => packet,
            Err(counter) => {
                hw.count(counter, 1);
                hw.rx_free(slot);
                return;
            }
        };
        if packet.qpn == CONTROL_QPN {
            match packet.opcode {
                BTH_SEND_ONLY => self.rx_control(now, slot, &packet, hw),
                BTH_UD_SEND_ONLY => self.rx_list(now, slot, &packet, hw),
                BTH_ACKNOWLEDGE => {
                    if let Some(i) = self.find_peer(packet.ip)
                        && let Some(peer) = self.peers.get_mut(i)
                    {
                        if peer.acknowledge(now, packet.psn, packet.ext >> 24, hw) {
                            peer.heard = now;
                        }
                        self.sh.peer_work |= 1 << i;
                        self.sh.ctl_work |= self.sh.ctl_blocked;
                        self.sh.ctl_blocked = 0;
                    } else {
                        hw.count(F_NOT_FOR_US, 1);
                    }
                }
                _ => hw.count(F_BAD_OPCODE, 1),
            }
            hw.rx_free(slot);
            return;
        }
        // RTL takes all data packets, acknowledgements and lists of connections; this is another frame.
        let qp = Self::index(packet.qpn).and_then(|i| self.qps.get(i)).filter(|qp| qp.state == CONNECTED);
        let from = |peer: &&Peer| peer.ip == packet.ip && peer.mac == packet.mac;
        let counter = match qp {
            None => F_UNKNOWN_QP,
            Some(qp) if self.peers.get((qp.peer as usize).wrapping_sub(1)).filter(from).is_none() => F_NOT_FOR_US,
            Some(_) => match packet.opcode {
                BTH_SEND_FIRST..=BTH_SEND_ONLY_IMM | BTH_ACKNOWLEDGE | BTH_SELECTIVE_ACKNOWLEDGE => F_BAD_HEADER,
                _ => F_BAD_OPCODE,
            },
        };
        hw.count(counter, 1);
        hw.rx_free(slot);
    }

    /// An ARP message: answers requests for us, learns addresses of peers.
    fn rx_arp<H: Hw>(&mut self, words: &[u32; HEADER_WORDS], len: u32, hw: &mut H) {
        let Some(message) = arp::parse(words, len) else {
            hw.count(F_FOREIGN, 1);
            return;
        };
        let (ours, same) = (message.target == self.sh.ip, message.ip == self.sh.ip);
        if same && message.mac != self.sh.mac {
            hw.count(F_ADDRESS_CONFLICTS, 1);
            if !core::mem::replace(&mut self.sh.conflict, true) {
                hw.log(Log::AddressConflict(message.mac));
            }
        } else if !ours || same || (message.reply && message.ip == 0) {
            hw.count(F_NOT_FOR_US, 1);
            return;
        }
        // ARP proves nothing, so it counts only while it can do no harm: a peer with connections moves only by its own
        // control message.
        if let Some(i) = self.find_peer(message.ip)
            && let Some(peer) = self.peers.get(i)
            && (!peer.resolved || !(peer.busy() || self.in_use(i)))
            && let Some(peer) = self.peers.get_mut(i)
            && peer.resolve(message.mac)
        {
            self.address_changed(i, hw);
        }
        // A probe (RFC 5227) has no sender's address: it learns that ours is taken.
        if ours
            && !message.reply
            && let Some(slot) = self.sh.tx_alloc(hw)
        {
            let answer = arp::Arp { reply: true, mac: self.sh.mac, ip: self.sh.ip, target: message.ip };
            self.sh.send_arp(slot, &answer, message.mac, hw);
        }
    }

    /// The MAC address of peer `i` is new: headers to it change.
    pub(crate) fn address_changed<H: Hw>(&mut self, i: usize, hw: &mut H) {
        self.sh.peer_work |= 1 << i;
        for q in 0..QPS {
            self.sh.step();
            if self.qps[q].peer as usize == i + 1 {
                self.prepare_template(q);
                self.fast_renamed(q, hw);
            }
        }
    }

    /// Transmit slot `slot` is free again.
    pub fn tx_done(&mut self, slot: u32) {
        self.sh.begin(Self::TX_DONE_STEPS);
        self.sh.tx_free(slot);
    }

    /// The timer's time has come.
    pub fn timer<H: Hw>(&mut self, now: u64, hw: &mut H) {
        self.sh.begin(Self::TIMER_STEPS);
        self.sh.disarm(hw);
        for qp in &mut self.qps {
            self.sh.step();
            if qp.sq.deadline != 0 && now >= qp.sq.deadline {
                qp.fast_timer(now, &mut self.sh, hw);
            }
            if qp.fast.rests_until != 0 && now >= qp.fast.rests_until {
                qp.fast_wake(hw);
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
            let users = self.in_use(i);
            let peer = i as u8 + 1;
            let connected = self.qps.iter().any(|qp| qp.peer == peer && qp.state == CONNECTED);
            match self.peers[i].due(now, users, connected, &mut self.sh, hw) {
                Due::Fine => (),
                Due::Probe => self.probe(peer, hw),
                Due::Lost => self.peer_lost(i, hw),
            }
            self.sh.peer_work |= 1 << i;
        }
        self.request_timer(now, hw);
        let mut next = u64::MAX;
        for qp in &self.qps {
            self.sh.step();
            for deadline in [qp.sq.deadline, qp.fast.rests_until] {
                if deadline != 0 {
                    next = next.min(deadline);
                }
            }
        }
        for peer in &self.peers {
            self.sh.step();
            if peer.ip != 0 && peer.deadline != 0 {
                next = next.min(peer.deadline);
            }
        }
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

    /// QPs or requests live from peer `i`.
    pub(crate) fn in_use(&self, i: usize) -> bool {
        let peer = i as u8 + 1;
        self.qps.iter().any(|qp| qp.peer == peer && (matches!(qp.state, CONNECTING | CONNECTED) || qp.todo != 0))
            || self.requests.iter().any(|r| r.peer == peer)
    }

    /// Probes peer `peer` (index + 1) on its data connections, as far as there are slots.
    fn probe<H: Hw>(&mut self, peer: u8, hw: &mut H) {
        let of_peer = self.qps.iter().filter(|qp| qp.peer == peer && qp.state == CONNECTED);
        let mut probes = of_peer.fold(0, |bits, qp| bits | qp.bit());
        let mut turn = self.sh.probe_last;
        while let Some(i) = turn.take(&mut probes)
            && let Some(qp) = self.qps.get_mut(i)
        {
            self.sh.step();
            if !qp.probe(&mut self.sh, hw) {
                return;
            }
            self.sh.probe_last = turn;
        }
    }

    /// Peer `i` does not answer: its connections are over.
    fn peer_lost<H: Hw>(&mut self, i: usize, hw: &mut H) {
        hw.count(F_PEERS_LOST, 1);
        hw.log(Log::PeerLost(self.peers[i].ip));
        self.drop_connections(i, Requests::Over, hw);
        self.peers[i].ip = 0;
        self.peers[i].deadline = 0;
    }

    /// Ends all connections with peer `i`, which cannot be told; those that are still asked for as `requests` says.
    pub(crate) fn drop_connections<H: Hw>(&mut self, i: usize, requests: Requests, hw: &mut H) {
        let peer = i as u8 + 1;
        for qp in &mut self.qps {
            self.sh.step();
            if qp.peer != peer {
                continue;
            }
            if qp.state == CONNECTING && qp.peer_qpn == 0 && requests != Requests::Over {
                if requests == Requests::Again {
                    qp.tell(TODO_REQ, &mut self.sh);
                }
                continue;
            }
            qp.tell_peer = false;
            match qp.state {
                CONNECTING => qp.close(REASON_UNREACHABLE, &mut self.sh, hw),
                CONNECTED => qp.fail(REASON_PEER_LOST, WC_RETRY_EXCEEDED, &mut self.sh, hw),
                _ => (),
            }
            qp.todo = 0;
            qp.peer = 0;
            // A request that waits to tell the peer need not wait any more.
            if qp.state >= ERROR {
                self.sh.close_work |= qp.bit();
            }
        }
        for request in &mut self.requests {
            self.sh.step();
            if request.peer == peer {
                request.over();
                self.sh.request_work = true;
            }
        }
    }

    /// Does a bounded piece of the work that events left; true when it should be called
    /// again before the core waits. Call after each burst of events.
    pub fn poll<H: Hw>(&mut self, now: u64, hw: &mut H) -> bool {
        self.sh.begin(Self::POLL_STEPS);
        let answered = self.sh.flush_answers(hw);
        self.revoke_step(now, hw);
        if let Some(i) = self.sh.last[0].take(&mut self.sh.peer_work)
            && let Some(peer) = self.peers.get_mut(i)
            && peer.step(now, &mut self.sh, hw)
        {
            self.sh.peer_blocked |= 1 << i;
        }
        if let Some(i) = self.sh.last[1].take(&mut self.sh.ctl_work)
            && !self.ctl_step(i)
        {
            self.sh.ctl_blocked |= 1 << i;
        }
        if let Some(i) = self.sh.last[2].take(&mut self.sh.close_work) {
            self.close_step(now, i, hw);
        }
        let mut told = true;
        if self.sh.event_work != 0 {
            told = self.event_step(hw);
        }
        self.request_step(hw);
        if !answered || !told || self.sh.request_work {
            // The host's event ring is full, and no event tells when it has room again.
            self.sh.arm(now + EVENT_RETRY, hw);
        }
        let sh = &self.sh;
        let engines = sh.peer_work | sh.ctl_work | sh.close_work;
        // QPs that wait for a slot or for the event ring do not count as work, or the loop would spin.
        engines != 0 || (answered && told && sh.event_work != 0)
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
            hw.event(&QpError { qpn, reason: qp.reason as u32 }.encode());
        } else if qp.events & EVENT_DESTROYED != 0 {
            let cookie = qp.cookie;
            // Nothing of the QP is in flight any more: back to all-zero.
            *qp = Qp::FREE;
            qp.idx = i as u8;
            self.sh.forget_qp(i);
            self.sh.answer(cookie, CMD_OK, &[], hw);
            return true;
        }
        if qp.events != 0 {
            self.sh.event_work |= 1 << i;
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

    /// QPN's state for tests and diagnosis: `FREE` ….
    pub fn state_of(&self, qpn: u32) -> u8 {
        Self::index(qpn).and_then(|i| self.qps.get(i)).map_or(FREE, |qp| qp.state)
    }

    /// QPs that are not free.
    pub fn qps_in_use(&self) -> usize {
        self.qps.iter().filter(|qp| qp.state >= CREATED).count()
    }
}

impl<const QPS: usize, const PEERS: usize> Default for Card<QPS, PEERS> {
    fn default() -> Self {
        Self::new()
    }
}
