// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card: entry points for what the engines report, and the work that events leave.

use crate::cm::Request;
use crate::control::{Due, Peer};
use crate::headers::{
    ACKNOWLEDGE, HEADER_WORDS, SACK, SELECTIVE_ACKNOWLEDGE, SEND_FIRST, SEND_ONLY, SEND_ONLY_IMM, UD_SEND_ONLY, arp,
    parse,
};
use crate::hw::{Hw, Log, TX_NO_ICRC};
use crate::limits::{EVENT_RETRY, REQUESTS, SERVICES};
use crate::qp::{
    CLOSED, CONNECTED, CONNECTING, CREATED, ERROR, EVENT_CLOSED, EVENT_DESTROYED, EVENT_ERROR, EVENT_ESTABLISHED, FREE,
    Qp, TODO_REQ,
};
use crate::ring::take_bit;
use crate::shared::{DMA_PLACE, DMA_SCRATCH, Shared, TAG_RECV, TAG_SEND};
use berth_abi::card::{CONTROL_QPN, FIRST_QPN, RX_SLOTS};
use berth_abi::counters::{F_BAD_HEADER, F_BAD_OPCODE, F_FOREIGN, F_NOT_FOR_US, F_PEERS_LOST, F_UNKNOWN_QP};
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_ROCE, XLT_READY};
use berth_abi::ring::{EV_CM_CLOSED, EV_CM_ESTABLISHED, EV_QP_ERROR, EVENT_PHASE, EVENT_PRIVATE};
use berth_abi::status::{CMD_OK, REASON_PEER_LOST, REASON_UNREACHABLE, WC_RETRY_EXCEEDED};

/// A revocation that is under way (`CMD_RANGE_REVOKED`).
pub(crate) struct Revocation {
    pub(crate) active: bool,
    pub(crate) asid: u8,
    pub(crate) cookie: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What becomes of connections that are asked for when the peer has to begin anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// They are over as well.
    Over,
    /// They wait in messages that nobody has acknowledged: those come again.
    Queued,
    /// They are to be said again.
    Again,
}

/// Everything that firmware knows. All-zero when new, so that it lies in `.bss`.
/// `QPS`: data QPs (at most 64; QPNs from `FIRST_QPN`), `PEERS`: end nodes it talks to at a time (at most 64).
///
/// Each call is bounded as a whole, whatever came before: [`Card::POLL_STEPS`] and the like.
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

    /// From now on connections that this end asks for use selective repeat (decision 23) if the
    /// peer can; else, as at first, go-back-N. Both ends accept either.
    pub const fn offer_selective_repeat(&mut self) {
        self.sh.selective = true;
    }

    /// From now on connections that this end asks for send credit lists as datagrams if the peer can
    /// take them so; else, as at first, over the control connection. Both ends accept either.
    pub const fn offer_list_datagrams(&mut self) {
        self.sh.datagrams = true;
    }

    /// A firmware command may be given to [`Card::command`] now; else leave it in the FIFO.
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

    /// QP `qpn`'s doorbell: producer indices and bytes posted so far, as latched.
    pub fn doorbell<H: Hw>(&mut self, now: u64, qpn: u32, sq_pi: u16, rq_pi: u16, bytes: u32, hw: &mut H) {
        self.sh.begin(Self::DOORBELL_STEPS);
        let _ = now;
        if let Some((qp, sh)) = self.qp(qpn)
            && !qp.destroying
            && !qp.fast.on
        {
            qp.doorbell(sq_pi, rq_pi, bytes, sh, hw);
        }
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
                SEND_ONLY => self.rx_control(now, slot, &packet, hw),
                UD_SEND_ONLY => self.rx_list(now, slot, &packet, hw),
                ACKNOWLEDGE => {
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
        let peers = &mut self.peers;
        let sh = &mut self.sh;
        let qp = Self::index(packet.qpn).and_then(|i| self.qps.get_mut(i));
        let Some(qp) = qp.filter(|qp| qp.state == CONNECTED) else {
            hw.count(F_UNKNOWN_QP, 1);
            hw.rx_free(slot);
            return;
        };
        match peers.get_mut((qp.peer as usize).wrapping_sub(1)) {
            Some(peer) if peer.ip == packet.ip && peer.mac == packet.mac => {
                // Whoever only has the address does not keep a peer alive that is gone (decision 26).
                if !qp.fast.on && qp.plausible(&packet) {
                    peer.heard = now;
                }
            }
            _ => {
                hw.count(F_NOT_FOR_US, 1);
                hw.rx_free(slot);
                return;
            }
        }
        if qp.fast.on {
            // Nothing that RTL takes.
            let counter = match packet.opcode {
                SEND_FIRST..=SEND_ONLY_IMM | ACKNOWLEDGE | SELECTIVE_ACKNOWLEDGE => F_BAD_HEADER,
                _ => F_BAD_OPCODE,
            };
            hw.count(counter, 1);
            hw.rx_free(slot);
            return;
        }
        match (packet.opcode, packet.len) {
            (ACKNOWLEDGE, 0) => qp.acknowledge(now, packet.psn, packet.ext >> 24, 0, sh, hw),
            (SELECTIVE_ACKNOWLEDGE, SACK) if qp.selective => {
                qp.acknowledge(now, packet.psn, packet.ext >> 24, packet.more, sh, hw);
            }
            (ACKNOWLEDGE | SELECTIVE_ACKNOWLEDGE, _) => hw.count(F_BAD_HEADER, 1),
            _ => return qp.data(&packet, slot, sh, hw),
        }
        hw.rx_free(slot);
    }

    /// An ARP message: answers requests for us, learns addresses of peers.
    fn rx_arp<H: Hw>(&mut self, words: &[u32; HEADER_WORDS], len: u32, hw: &mut H) {
        let Some(message) = arp::parse(words, len) else {
            hw.count(F_FOREIGN, 1);
            return;
        };
        if message.target != self.sh.ip || message.ip == 0 || message.ip == self.sh.ip {
            hw.count(F_NOT_FOR_US, 1);
            return;
        }
        // ARP proves nothing. What it says counts while it can do no harm: a peer with connections moves when it says so
        // on the control connection.
        if let Some(i) = self.find_peer(message.ip)
            && let Some(peer) = self.peers.get(i)
            && (!peer.resolved || !(peer.busy() || self.in_use(i)))
            && let Some(peer) = self.peers.get_mut(i)
            && peer.resolve(message.mac)
        {
            self.address_changed(i, hw);
        }
        if !message.reply
            && let Some(slot) = self.sh.tx_alloc_control(hw)
        {
            let answer = arp::Arp { reply: true, mac: self.sh.mac, ip: self.sh.ip, target: message.ip };
            hw.tx_write(slot, 0, &arp::emit(&answer, message.mac));
            hw.tx_send(slot, arp::LEN, TX_NO_ICRC);
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

    /// Transmit slot `slot` is free again; status 0 or `DMA_*`.
    pub fn tx_done<H: Hw>(&mut self, now: u64, slot: u32, status: u32, hw: &mut H) {
        self.sh.begin(Self::TX_DONE_STEPS);
        let _ = now;
        if let Some(user) = self.sh.tx_free(slot)
            && user.data
            && let Some(qp) = self.qps.get_mut(user.qp as usize)
        {
            qp.packet_left(user, status, &mut self.sh, hw);
        }
    }

    /// The DMA command with `tag` has ended: status `DMA_*`.
    pub fn dma_done<H: Hw>(&mut self, now: u64, tag: u16, status: u32, hw: &mut H) {
        self.sh.begin(Self::DMA_DONE_STEPS);
        let _ = now;
        let number = (tag & 0xff) as u32;
        match tag & 0xf000 {
            DMA_SCRATCH => {
                let Some((idx, recv)) = self.sh.scratch_free(number) else {
                    return;
                };
                let Some(qp) = self.qps.get_mut(idx as usize) else {
                    return;
                };
                let mut words = [0; 32];
                if status == 0 {
                    hw.scratch_read(number, 0, &mut words);
                }
                let words = if status == 0 { Some(&words) } else { None };
                qp.fetched(recv, words, &mut self.sh, hw);
            }
            DMA_PLACE if number < RX_SLOTS => {
                let idx = self.sh.rx[number as usize].qp;
                if let Some(qp) = self.qps.get_mut(idx as usize) {
                    qp.placed(number, status, &mut self.sh, hw);
                }
            }
            _ => (),
        }
    }

    /// Answer of the translation unit: kind `XLT_*`, status `PAGE_*` (of `XLT_READY`).
    pub fn xlt_rsp<H: Hw>(&mut self, now: u64, kind: u32, status: u32, tag: u16, hw: &mut H) {
        self.sh.begin(Self::XLT_RSP_STEPS);
        let _ = now;
        let Some(user) = self.sh.tag_user(tag) else {
            return;
        };
        let sh = &mut self.sh;
        match (user.kind, self.qps.get_mut(user.qp as usize)) {
            (TAG_SEND, Some(qp)) => qp.block_answer(kind, status, tag, user.index, sh, hw),
            (TAG_RECV, Some(qp)) => qp.grant_answer(kind, status, tag, user.index, user.sge, sh, hw),
            _ if kind == XLT_READY => sh.tag_free(tag),
            _ => (),
        }
    }

    /// QP `qpn`'s next credit list may be sent.
    pub fn credit_list<H: Hw>(&mut self, now: u64, qpn: u32, hw: &mut H) {
        self.sh.begin(Self::CREDIT_LIST_STEPS);
        let _ = (now, hw);
        if let Some((qp, sh)) = self.qp(qpn)
            && qp.state == CONNECTED
            && !qp.fast.on
        {
            qp.list_ready(sh);
        }
    }

    /// The timer's time has come.
    pub fn timer<H: Hw>(&mut self, now: u64, hw: &mut H) {
        self.sh.begin(Self::TIMER_STEPS);
        self.sh.disarm(hw);
        for qp in &mut self.qps {
            self.sh.step();
            if qp.sq.deadline != 0 && now >= qp.sq.deadline {
                match qp.state {
                    _ if qp.fast.on => qp.fast_timer(now, &mut self.sh, hw),
                    CONNECTED => qp.timed_out(now, &mut self.sh, hw),
                    _ => (),
                }
            }
            if qp.fast.rests_until != 0 && now >= qp.fast.rests_until {
                qp.fast_wake(hw);
            }
            if qp.lists.again != 0 && now >= qp.lists.again {
                (qp.lists.again, qp.lists.repeat) = (0, true);
                self.sh.ack_work |= qp.bit();
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
        if self.sh.pressure_at != 0 && now >= self.sh.pressure_at {
            self.pressure(now, self.sh.pressure_asid, self.sh.pressure_bytes, false, hw);
        }
        let mut next = match self.sh.pressure_at {
            0 => u64::MAX,
            at => at,
        };
        for qp in &self.qps {
            self.sh.step();
            for deadline in [qp.sq.deadline, qp.lists.again, qp.fast.rests_until] {
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

    /// Asks peer `peer` (index + 1) on its data connections whether it lives, as far as there are slots.
    fn probe<H: Hw>(&mut self, peer: u8, hw: &mut H) {
        for k in 1..=QPS {
            self.sh.step();
            let i = (self.sh.probe_last as usize + k) % QPS;
            if let Some(qp) = self.qps.get_mut(i)
                && qp.peer == peer
                && qp.state == CONNECTED
            {
                if !qp.probe(&mut self.sh, hw) {
                    return;
                }
                self.sh.probe_last = i as u8;
            }
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
            // One that waits to tell the peer need not wait any more.
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
        self.held_step(hw);
        if let Some(i) = take_bit(&mut self.sh.peer_work, &mut self.sh.last[0])
            && let Some(peer) = self.peers.get_mut(i)
            && peer.step(now, &mut self.sh, hw)
        {
            self.sh.peer_blocked |= 1 << i;
        }
        for _ in 0..4 {
            self.sh.step();
            if let Some(i) = take_bit(&mut self.sh.ack_work, &mut self.sh.last[1])
                && let Some(qp) = self.qps.get_mut(i)
            {
                qp.send_ack(&mut self.sh, hw);
                qp.send_list(now, &mut self.sh, hw);
            }
        }
        if let Some(i) = take_bit(&mut self.sh.recv_work, &mut self.sh.last[2])
            && let Some(qp) = self.qps.get_mut(i)
        {
            qp.recv_step(&mut self.sh, hw);
        }
        if let Some(i) = take_bit(&mut self.sh.ctl_work, &mut self.sh.last[3])
            && !self.ctl_step(i, hw)
        {
            self.sh.ctl_blocked |= 1 << i;
        }
        if let Some(i) = take_bit(&mut self.sh.send_work, &mut self.sh.last[4])
            && let Some(qp) = self.qps.get_mut(i)
            && qp.send_step(now, &mut self.sh, hw)
        {
            self.sh.send_work |= 1 << i;
        }
        if let Some(i) = take_bit(&mut self.sh.close_work, &mut self.sh.last[5]) {
            self.close_step(now, i, hw);
        }
        let mut told = true;
        if self.sh.event_work != 0 {
            told = self.event_step(hw);
        }
        self.request_step(hw);
        if !answered || !told || self.sh.request_work {
            // The host's event ring has no room, and nothing tells when it has.
            self.sh.arm(now + EVENT_RETRY, hw);
        }
        let sh = &self.sh;
        let engines = sh.peer_work | sh.ack_work | sh.recv_work | sh.ctl_work | sh.send_work | sh.close_work;
        // What waits for a slot or for the host's event ring is not work: it would spin.
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
            false => qp.wind_up(&mut self.sh, hw),
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
        let Some(i) = take_bit(&mut self.sh.event_work, &mut self.sh.last[6]) else {
            return true;
        };
        let Some(qp) = self.qps.get_mut(i) else {
            return true;
        };
        let mut event = [0; 16];
        event[1] = qp.qpn();
        if qp.events & EVENT_ESTABLISHED != 0 {
            qp.events &= !EVENT_ESTABLISHED;
            event[0] = EV_CM_ESTABLISHED;
            event[2] = self.peers.get((qp.peer as usize).wrapping_sub(1)).map_or(0, |peer| peer.ip);
            event[3] = qp.peer_qpn;
            event[5] = qp.private_len as u32;
            event[EVENT_PRIVATE..EVENT_PHASE].copy_from_slice(&qp.private);
            hw.event(&event);
        } else if qp.events & EVENT_CLOSED != 0 {
            qp.events &= !EVENT_CLOSED;
            event[0] = EV_CM_CLOSED;
            event[2] = qp.reason as u32;
            event[5] = qp.private_len as u32;
            event[EVENT_PRIVATE..EVENT_PHASE].copy_from_slice(&qp.private);
            hw.event(&event);
        } else if qp.events & EVENT_ERROR != 0 {
            qp.events &= !EVENT_ERROR;
            event[0] = EV_QP_ERROR;
            event[2] = qp.reason as u32;
            hw.event(&event);
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
                continue;
            }
            if qp.blocks_overlap(start, end) {
                if qp.state == CONNECTED {
                    qp.rewind(&mut self.sh);
                }
                clear = false;
            }
            clear &= qp.revoke_grants(start, end, &mut self.sh, hw);
        }
        if clear {
            self.revocation.active = false;
            self.sh.revoking = false;
            for qp in &mut self.qps {
                self.sh.step();
                qp.fast_revoked();
                if qp.state == CONNECTED && !qp.fast.on && qp.asid == self.revocation.asid {
                    self.sh.send_work |= qp.bit();
                    self.sh.recv_work |= qp.bit();
                }
            }
            self.sh.answer(self.revocation.cookie, CMD_OK, &[], hw);
        }
    }

    /// QPN's state for tests and diagnosis: `FREE` ….
    pub fn state_of(&self, qpn: u32) -> u8 {
        Self::index(qpn).and_then(|i| self.qps.get(i)).map_or(FREE, |qp| qp.state)
    }

    /// Kind, QP (index) and block or receive that a translation tag is for, for tests.
    #[cfg(feature = "model")]
    pub fn tag_of(&self, tag: u16) -> Option<(u8, u8, u16)> {
        self.sh.tag_user(tag).map(|t| (t.kind, t.qp, t.index))
    }

    /// What firmware knows of a QP, for tests.
    #[cfg(feature = "model")]
    pub fn describe<H: Hw>(&mut self, qpn: u32, hw: &mut H) -> std::string::String {
        let _ = hw;
        let Some((qp, sh)) = self.qp(qpn) else {
            return std::string::String::from("free");
        };
        let (s, r) = (&qp.sq, &qp.rq);
        let states: std::vec::Vec<u8> =
            (0..r.fetched.wrapping_sub(r.head)).map(|i| r.grants.at(r.head.wrapping_add(i)).state).collect();
        let blocks: std::vec::Vec<u8> = (0..s.block_tail.wrapping_sub(s.block_head))
            .map(|i| s.blocks.at(s.block_head.wrapping_add(i)).state)
            .collect();
        std::format!(
            "state {} reason {} todo {:x} | send pi {} fetched {} head {} cut {}@{} cover {}+{} more {} ask {}/{}/{}@{} pos {} high {} acked {} psn {:x}/{:x}/{:x} rewind {} flying {} probing {} deadline {} tries {} pieces {}..{}..{} blocks {}/{}/{} {blocks:?}              | recv pi {} fetched {} head {} ask {} post {} batch {} land {} psn {:x} placed {:x} placing {} recall {} outstanding {} pressure {} uncommitted {} in_piece {} {states:?} | work s{:x} sb{:x} r{:x} c{:x} cb{:x} tb{:x}",
            qp.state,
            qp.reason,
            qp.todo,
            s.pi,
            s.fetched,
            s.head,
            s.cut_wqe,
            s.cut_pos,
            s.cover_pos,
            s.cover_credits,
            s.cover_more,
            s.ask_wqe,
            s.ask_sge,
            s.ask_off,
            s.ask_pos,
            s.pos,
            s.high,
            s.acked,
            s.window.una().get(),
            s.next,
            s.window.next().get(),
            s.rewind,
            s.flying,
            s.probing,
            s.deadline,
            s.tries,
            s.piece_head,
            s.piece,
            s.piece_tail,
            s.block_head,
            s.block,
            s.block_tail,
            r.pi,
            r.fetched,
            r.head,
            r.ask,
            r.post,
            r.batch,
            r.land,
            r.psn,
            r.arrival.placed().get(),
            r.placing,
            r.recall,
            r.outstanding,
            r.pressure,
            r.uncommitted,
            r.in_piece,
            sh.send_work,
            sh.send_blocked,
            sh.recv_work,
            sh.ctl_work,
            sh.ctl_blocked,
            sh.tag_blocked,
        )
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

// The firmware's RAM holds code and stack beside it.
const _: () = assert!(size_of::<Card>() <= 0x5_9800);
