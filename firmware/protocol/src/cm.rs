// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of the control connection: credit lists, connection management, recall.

use crate::bound::Bound;
use crate::card::{Card, Requests};
use crate::control::{
    MESSAGE_HEADER, Peer, REC_DREQ, REC_KEEPALIVE, REC_LIST, REC_RECALL, REC_RECALLED, REC_REJ, REC_REP, REC_REQ,
    REC_RTU, START, VERSION, record, write_frame,
};
use crate::headers::{LIST_QKEY, PSN_MASK, Packet, Template};
use crate::hw::{Hw, Log, TX_LOOPBACK};
use crate::limits::{
    CONTROL_DOUBT, CONTROL_WORDS, FAST_LIST, FAST_WINDOW, GRANTS, HELD_LISTS, LIST_AGAIN, MAX_BACKOFF, REQUESTS, WINDOW,
};
use crate::qp::{
    CONNECTED, CONNECTING, ERROR, EVENT_ESTABLISHED, GRANT_POSTED, Qp, RECALL_NONE, TODO_DREQ, TODO_LIST, TODO_RECALL,
    TODO_RECALLED, TODO_REP, TODO_REQ, TODO_RTU,
};
use crate::rc::{Arrival, Psn};
use crate::shared::Shared;
use berth_abi::card::{CONTROL_QPN, CREDITS_PER_QP};
use berth_abi::counters::{
    F_CONTROL_BAD, F_CONTROL_RECEIVED, F_CREDITS_OUTSTANDING, F_LIST_DATAGRAMS, F_LIST_REFUSED, F_LISTS_REPEATED,
    F_TX_STARVED,
};
use berth_abi::cpu::{
    CRD_ENABLE, CRD_GIVE_UP, CRD_LIST_BEGIN, CRD_LIST_NEXT, CRD_LIST_PUSH, CRD_LIST_TAKE, CRD_RESET, LIST_EARLY,
    LIST_GAP, LIST_OK, LIST_REPEAT,
};
use berth_abi::ring::{EV_CM_REQUEST, PRIVATE_DATA};
use berth_abi::status::{REASON_NO_LISTENER, REASON_PEER_CLOSE, REASON_PROTOCOL, REASON_REJECTED, WC_FLUSHED};

/// Mode of a connection: stream (CR-17).
const MODE_STREAM: u32 = 1;
/// Beside the mode: this end can do selective repeat (in a REP: both do it).
const MODE_SELECTIVE: u32 = 0x80;
/// Beside the mode: this end can take credit lists as datagrams (in a REP: both do).
const MODE_DATAGRAMS: u32 = 0x40;
/// Bits of the mode itself.
const MODE_MASK: u32 = 0x3f;

/// Words of the longest record of a credit list.
const LIST_WORDS: usize = 3 + GRANTS;

/// What the other end of a connection says of itself.
#[derive(Clone, Copy)]
pub struct End {
    /// Its QPN.
    pub qpn: u32,
    /// Its epoch.
    pub epoch: u32,
    /// Its first PSN.
    pub psn: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Credits that it stores.
    pub store: u32,
    /// Packets that it takes ahead of a missing one.
    pub window: u8,
    /// It can do selective repeat.
    pub selective: bool,
    /// It can take credit lists as datagrams.
    pub datagrams: bool,
}

impl End {
    /// Nothing said yet.
    const NONE: Self =
        Self { qpn: 0, epoch: 0, psn: 0, mtu: 0, store: 0, window: 0, selective: false, datagrams: false };
}

/// `Request::state`: no request.
pub const REQUEST_FREE: u8 = 0;
/// `Request::state`: the host is to be told.
pub const REQUEST_NEW: u8 = 1;
/// `Request::state`: the host has it.
pub const REQUEST_OFFERED: u8 = 2;
/// `Request::state`: the peer is to be told that it is refused.
pub const REQUEST_REFUSED: u8 = 3;
/// `Request::state`: the peer is to be told that its end (`end`) has no partner any more: an acceptance
/// that came too late (`service` 0), or a QP of ours that is gone (QPN in `service`, epoch in `end.psn`).
pub const REQUEST_STALE: u8 = 4;

/// A peer's request for a connection.
#[derive(Clone, Copy)]
pub struct Request {
    /// `REQUEST_*`.
    pub state: u8,
    /// Peer (index + 1).
    pub peer: u8,
    /// Bytes of private data.
    pub private_len: u8,
    reason: u8,
    id: u32,
    service: u32,
    /// The peer's QP.
    pub end: End,
    /// Private data.
    pub private: [u32; 8],
}

impl Request {
    /// No request.
    pub const FREE: Self = Self {
        state: REQUEST_FREE,
        peer: 0,
        private_len: 0,
        reason: 0,
        id: 0,
        service: 0,
        end: End::NONE,
        private: [0; 8],
    };

    /// The request is refused for `reason`.
    pub fn refuse(&mut self, reason: u32) {
        self.state = REQUEST_REFUSED;
        self.reason = reason as u8;
    }
}

impl Qp {
    /// The other end is known: adapts to it.
    pub fn meet(&mut self, end: &End, mtu: u32) {
        self.peer_qpn = end.qpn;
        self.peer_epoch = end.epoch;
        self.rq.psn = end.psn;
        self.rq.arrival = Arrival::new(Psn::new(end.psn));
        self.selective = end.selective;
        self.lists.datagrams = end.datagrams;
        self.fast.window = end.window;
        self.lists.peer_epoch = end.epoch;
        self.log2_mtu = end.mtu.min(mtu).trailing_zeros() as u8;
        // A datagram's must fit the path (CR-4) and what an end takes as one message, behind a header of three words.
        let fits = if end.datagrams { (self.mtu() / 4).saturating_sub(3).min(FAST_LIST) } else { GRANTS as u32 };
        self.max_list = self.max_list.min(end.store / 2).min(fits).max(1);
    }

    /// The connection is there: credits may flow.
    fn connected<H: Hw>(&mut self, ip: u32, sh: &mut Shared, hw: &mut H) {
        hw.log(Log::Connected(self.qpn(), ip, self.peer_qpn));
        hw.credit(CRD_RESET, self.qpn(), self.max_list.min(GRANTS as u32), self.trigger);
        hw.credit(CRD_ENABLE, self.qpn(), 0, 0);
        self.state = CONNECTED;
        self.tell_peer = true;
        self.notify(EVENT_ESTABLISHED, sh);
        sh.send_work |= self.bit();
        sh.recv_work |= self.bit();
    }
}

/// The words of a received control message.
struct Records {
    words: [u32; CONTROL_WORDS],
    len: usize,
}

impl Records {
    /// Word `i` of the record at `at`.
    fn word(&self, at: usize, i: usize) -> u32 {
        self.words.get(at + i).copied().unwrap_or(0)
    }

    /// Private data of the record at `at`, from word `i` on.
    fn private(&self, at: usize, i: usize) -> [u32; 8] {
        core::array::from_fn(|k| self.word(at, i + k))
    }

    /// (type, words, QPN) of the record at `at`; `None` when it is malformed.
    fn record(&self, at: usize) -> Option<(u32, usize, u32)> {
        let head = self.word(at, 0);
        let (kind, words) = (head & 0xff, (head >> 8 & 0xff) as usize);
        let fits = match kind {
            REC_LIST => words > 3,
            REC_REQ | REC_REP => words == 15,
            REC_RTU => words == 2,
            REC_REJ => words == 11,
            REC_DREQ => words == 5,
            REC_KEEPALIVE => words == 1,
            REC_RECALL | REC_RECALLED => words == 3,
            _ => false,
        };
        (fits && at + words <= self.len).then_some((kind, words, head >> 16))
    }
}

impl<const QPS: usize, const PEERS: usize> Card<QPS, PEERS> {
    /// Position of the peer with this address.
    pub(crate) fn find_peer(&self, ip: u32) -> Option<usize> {
        self.peers.iter().position(|peer| peer.ip == ip && ip != 0)
    }

    /// The peer with this address; a new one takes a free place, or that of a peer without connections.
    pub(crate) fn open_peer(&mut self, ip: u32) -> Option<usize> {
        if let Some(i) = self.find_peer(ip) {
            return Some(i);
        }
        let i = (0..PEERS)
            .find(|&i| self.peers[i].ip == 0)
            .or_else(|| (0..PEERS).find(|&i| !self.in_use(i) && !self.peers[i].busy()))?;
        self.peers.get_mut(i)?.open(ip, &mut self.sh);
        Some(i)
    }

    /// The headers to QP `i`'s peer.
    pub(crate) fn prepare_template(&mut self, i: usize) {
        let Some(qp) = self.qps.get_mut(i) else {
            return;
        };
        if let Some(peer) = self.peers.get((qp.peer as usize).wrapping_sub(1)) {
            let port = 0xc000 | (qp.qpn() << 7 ^ qp.peer_qpn) as u16 & 0x3fff;
            qp.loopback = peer.loopback;
            qp.template = Template::new(self.sh.mac, self.sh.ip, peer.mac, peer.ip, port, qp.peer_qpn);
        }
    }

    /// Position of the request that the host has under this id.
    pub(crate) fn find_request(&self, id: u32) -> Option<usize> {
        self.requests.iter().position(|r| r.state == REQUEST_OFFERED && r.id == id)
    }

    /// A place for a request.
    fn new_request(&mut self, peer: usize, state: u8, end: End) -> Option<&mut Request> {
        self.sh.request_serial = self.sh.request_serial.wrapping_add(1);
        let id = self.sh.request_serial;
        self.sh.request_work = true;
        let place = self.requests.iter_mut().find(|r| r.state == REQUEST_FREE)?;
        *place = Request { state, peer: peer as u8 + 1, id, end, ..Request::FREE };
        Some(place)
    }

    /// The payload of a frame to the control QPN; `None` when it is not of whole words, or too long.
    fn records<H: Hw>(&mut self, slot: u32, packet: &Packet, hw: &mut H) -> Option<Records> {
        let len = packet.len as usize / 4;
        if !packet.len.is_multiple_of(4) || len > CONTROL_WORDS {
            return None;
        }
        // It begins in the middle of a word.
        let mut raw = [0; CONTROL_WORDS + 1];
        let words = raw.get_mut(..=len)?;
        hw.rx_read(slot, packet.start / 4, words);
        let mut records = Records { words: [0; CONTROL_WORDS], len };
        for (word, halves) in records.words.iter_mut().zip(words.windows(2)) {
            self.sh.step();
            if let [low, high] = halves {
                *word = low >> 16 | high << 16;
            }
        }
        Some(records)
    }

    /// A credit list has come as a datagram: it counts as a record of the control connection (decision 6).
    pub(crate) fn rx_list<H: Hw>(&mut self, now: u64, slot: u32, packet: &Packet, hw: &mut H) {
        let ours = packet.ext == LIST_QKEY && packet.more & PSN_MASK == CONTROL_QPN;
        let peer = self.find_peer(packet.ip).filter(|_| ours);
        let list = peer.zip(self.records(slot, packet, hw)).and_then(|(i, m)| {
            let (kind, words, qpn) = m.record(0)?;
            (kind == REC_LIST && words == m.len).then_some((i, qpn, m))
        });
        let Some((i, qpn, m)) = list else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let epoch = m.word(0, 1);
        let Some((qp, sh)) = self.qp(qpn).filter(|(qp, _)| {
            // The peer knows the epoch: if it has it from a REP of ours, the RTU is on its way.
            let known = qp.state == CONNECTED || (qp.state == CONNECTING && qp.peer_qpn != 0);
            known && qp.lists.datagrams && qp.lists.epoch == epoch && qp.peer as usize == i + 1
        }) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        if qp.state == CONNECTING {
            qp.connected(packet.ip, sh, hw);
            self.hand_over(qpn, hw);
        }
        let Some((qp, sh)) = self.qp(qpn) else {
            return;
        };
        qp.list_came(m.word(0, 2), m.words.get(3..m.len).unwrap_or_default(), sh, hw);
        if let Some(peer) = self.peers.get_mut(i) {
            peer.heard = now;
        }
    }

    /// A control message has come.
    pub(crate) fn rx_control<H: Hw>(&mut self, now: u64, slot: u32, packet: &Packet, hw: &mut H) {
        let Some(mut message) = self.records(slot, packet, hw).filter(|m| m.len >= MESSAGE_HEADER) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let len = message.len;
        let [from, to, third] = [0, 1, 2].map(|i| message.words[i]);
        if from == 0 || third & 0xff != VERSION || third >> 16 != len as u32 {
            hw.count(F_CONTROL_BAD, 1);
            return;
        }
        let start = third & START != 0;
        // Somebody whom we do not know begins, or goes on with our predecessor.
        let Some(i) = self.open_peer(packet.ip) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        // A place of the table, so that no index below can be out of it.
        let i = i % PEERS;
        self.peers[i].heard = now;
        if self.peers[i].resolve(packet.mac) {
            self.address_changed(i, hw);
        }
        let us = to == self.peers[i].incarnation;
        let stranger = from != self.peers[i].peer_incarnation;
        if !start && (stranger || (to != 0 && !us)) {
            hw.count(F_CONTROL_BAD, 1);
            self.misunderstood(i, now, hw);
            return;
        }
        if stranger {
            self.peer_begins(i, from, packet.psn, us, hw);
        }
        self.sh.peer_work |= 1 << i;
        if !self.peers[i].expect(packet.psn) {
            return;
        }
        // All records, or none: check their shape, and that answers have places.
        let mut at = MESSAGE_HEADER;
        let mut answers = 0;
        while at < len {
            self.sh.step();
            let Some((kind, words, _)) = message.record(at) else {
                hw.count(F_CONTROL_BAD, 1);
                message.len = at;
                break;
            };
            answers += matches!(kind, REC_REQ | REC_REP) as usize;
            at += words;
        }
        let free = self.requests.iter().filter(|r| r.state == REQUEST_FREE).count();
        if answers > free {
            // Not acknowledged: it comes again.
            hw.count(F_TX_STARVED, 1);
            return;
        }
        self.peers[i].taken();
        hw.count(F_CONTROL_RECEIVED, 1);
        let mut at = MESSAGE_HEADER;
        while at < message.len
            && let Some((kind, words, qpn)) = message.record(at)
        {
            self.sh.step();
            self.take_record(i, kind, words, qpn, &message, at, hw);
            at += words;
        }
    }

    /// Peer `i` goes on with an incarnation of ours that is gone (its predecessor's talk, or ours), or as one of its own
    /// that we do not know: it is to learn of this one. If that goes on for longer than its first message may be late,
    /// and ours is no longer to come, neither of us will hear the other: this end begins anew. One late frame ends nothing.
    fn misunderstood<H: Hw>(&mut self, i: usize, now: u64, hw: &mut H) {
        let i = i % PEERS;
        let peer = &mut self.peers[i];
        if peer.doubt == 0 {
            peer.doubt = now.max(1);
        } else if now.saturating_sub(peer.doubt) >= CONTROL_DOUBT && !peer.fresh() {
            self.drop_connections(i, Requests::Again, hw);
            self.peers[i].renew(&mut self.sh);
        }
        let peer = &mut self.peers[i];
        if !peer.busy() {
            peer.append(&[record(REC_KEEPALIVE, 1, 0)]);
        }
        self.sh.peer_work |= 1 << i;
    }

    /// Peer `i` begins its incarnation `from` with a message of PSN `psn`. `us`: it knows our incarnation.
    ///
    /// Our own incarnation goes on if the peer has its first message (`us`), or nobody has, so that it still comes. Else we
    /// begin anew as well. So two cards that begin at the same time, each with an old name of the other, agree as soon as
    /// both first messages have arrived, and what one says because the other has begun does not make that begin again.
    fn peer_begins<H: Hw>(&mut self, i: usize, from: u32, psn: u32, us: bool, hw: &mut H) {
        let i = i % PEERS;
        let peer = &self.peers[i];
        let known = peer.peer_incarnation != 0;
        if known {
            hw.log(Log::PeerRestarted(peer.ip));
        }
        if !us && !peer.fresh() {
            self.drop_connections(i, Requests::Again, hw);
            self.peers[i].renew(&mut self.sh);
        } else if known {
            self.drop_connections(i, Requests::Queued, hw);
        }
        self.peers[i].begin(from, psn);
    }

    /// Takes one record of peer `i`.
    #[allow(clippy::too_many_arguments)]
    fn take_record<H: Hw>(&mut self, i: usize, kind: u32, words: usize, qpn: u32, m: &Records, at: usize, hw: &mut H) {
        let peer = i as u8 + 1;
        let ip = self.peers.get(i).map_or(0, |peer| peer.ip);
        match kind {
            REC_KEEPALIVE => return,
            REC_REQ => return self.take_request(i, m, at, hw),
            REC_REP => return self.take_reply(i, qpn, m, at, hw),
            REC_DREQ => return self.take_end(i, qpn, m, at, hw),
            _ => (),
        }
        let epoch = m.word(at, 1);
        let Some((qp, sh)) = self.qp(qpn).filter(|(qp, _)| qp.peer == peer && qp.epoch == epoch) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        match (kind, qp.state) {
            (REC_LIST, CONNECTED) => {
                qp.list_came(m.word(at, 2), m.words.get(at + 3..at + words).unwrap_or_default(), sh, hw);
            }
            (REC_RTU, CONNECTING) => {
                qp.connected(ip, sh, hw);
                self.hand_over(qpn, hw);
            }
            // A credit list has overtaken it.
            (REC_RTU, CONNECTED) if qp.lists.datagrams => (),
            (REC_REJ, CONNECTING) => {
                let third = m.word(at, 2);
                let reason = match third & 0xff {
                    REASON_NO_LISTENER => REASON_NO_LISTENER,
                    _ => REASON_REJECTED,
                };
                qp.tell_peer = false;
                qp.close(reason, sh, hw);
                qp.private_len = ((third >> 24) as u8).min(PRIVATE_DATA as u8);
                qp.private = m.private(at, 3);
            }
            (REC_RECALL, CONNECTED) => {
                qp.lists.epoch = qp.lists.epoch.wrapping_add(1);
                if qp.fast.on {
                    return self.fast_give_up(qpn, m.word(at, 2), hw);
                }
                qp.kept = hw.credit(CRD_GIVE_UP, qpn, m.word(at, 2), 0);
                sh.drop_held(qp.idx);
                qp.shrink_cover(sh, hw);
                qp.tell(TODO_RECALLED, sh);
            }
            (REC_RECALLED, CONNECTED) if qp.fast.on => qp.fast_recalled(m.word(at, 2), sh, hw),
            (REC_RECALLED, CONNECTED) => qp.recalled(m.word(at, 2), sh, hw),
            _ => hw.count(F_CONTROL_BAD, 1),
        }
    }

    /// Looks at the credit lists that wait for others before them.
    pub(crate) fn held_step<H: Hw>(&mut self, hw: &mut H) {
        if !self.sh.held_due {
            return;
        }
        self.sh.held_due = false;
        for i in 0..HELD_LISTS {
            self.sh.step();
            let Some(held) = self.sh.held.get(i).copied().filter(|held| held.qp != 0) else {
                continue;
            };
            let mut waits = false;
            if let Some(qp) = self.qps.get_mut(held.qp as usize - 1)
                && qp.state == CONNECTED
            {
                match qp.take_list(held.first, held.sizes(), &mut self.sh, hw) {
                    LIST_OK | LIST_REPEAT => (),
                    // The one before it has come, but none of its credits is used.
                    LIST_GAP | LIST_EARLY => waits = true,
                    refused => qp.refuse_list(refused, &mut self.sh, hw),
                }
            }
            if !waits && let Some(place) = self.sh.held.get_mut(i) {
                place.qp = 0;
            }
        }
    }

    /// The end that a REQ or REP describes; `None` when a field is out of range, `Some(false)`: not our mode.
    fn end_of(m: &Records, at: usize, qpn: usize, flags: usize) -> Option<(End, bool)> {
        let mode = m.word(at, flags);
        let end = End {
            qpn: m.word(at, qpn),
            epoch: m.word(at, qpn + 1),
            psn: m.word(at, qpn + 2) & PSN_MASK,
            mtu: mode & 0xffff,
            selective: mode >> 16 & MODE_SELECTIVE != 0,
            datagrams: mode >> 16 & MODE_DATAGRAMS != 0,
            store: m.word(at, flags + 1) & 0xffff,
            window: match m.word(at, flags + 1) >> 16 {
                0 => WINDOW as u8,
                window => window.min(FAST_WINDOW) as u8,
            },
        };
        let good = matches!(end.mtu, 256 | 512 | 1024 | 2048 | 4096)
            && end.qpn > 2
            && end.qpn <= 0xffff
            && mode >> 24 <= PRIVATE_DATA as u32;
        good.then_some((end, mode >> 16 & MODE_MASK == MODE_STREAM))
    }

    fn take_request<H: Hw>(&mut self, i: usize, m: &Records, at: usize, hw: &mut H) {
        let Some((end, ours)) = Self::end_of(m, at, 1, 5) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let service = m.word(at, 4);
        let listening = (1..=0xffff).contains(&service) && self.services.contains(&(service as u16));
        if let Some(request) = self.new_request(i, REQUEST_NEW, end) {
            request.service = service;
            request.private_len = (m.word(at, 5) >> 24) as u8;
            request.private = m.private(at, 7);
            if !listening || !ours {
                request.private_len = 0;
                request.refuse(if listening { REASON_REJECTED } else { REASON_NO_LISTENER });
            }
        }
    }

    fn take_reply<H: Hw>(&mut self, i: usize, qpn: u32, m: &Records, at: usize, hw: &mut H) {
        let Some((end, ours)) = Self::end_of(m, at, 2, 5) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let (epoch, mtu, ip) = (m.word(at, 1), self.sh.mtu, self.peers[i].ip);
        let Some((qp, sh)) = self.qp(qpn).filter(|(qp, _)| {
            qp.state == CONNECTING && qp.peer as usize == i + 1 && qp.epoch == epoch && qp.peer_qpn == 0 && ours
        }) else {
            // Too late: the peer is to forget its end.
            let end = End { psn: 0, ..end };
            self.new_request(i, REQUEST_STALE, end);
            return;
        };
        qp.meet(&end, mtu);
        qp.private_len = (m.word(at, 5) >> 24) as u8;
        qp.private = m.private(at, 7);
        qp.tell(TODO_RTU, sh);
        qp.connected(ip, sh, hw);
        if let Some(q) = Self::index(qpn) {
            self.prepare_template(q);
        }
        self.hand_over(qpn, hw);
    }

    fn take_end<H: Hw>(&mut self, i: usize, qpn: u32, m: &Records, at: usize, hw: &mut H) {
        let peer = i as u8 + 1;
        let [epoch, from, from_epoch] = [1, 2, 3].map(|k| m.word(at, k));
        for qp in &mut self.qps {
            self.sh.step();
            let ours = qp.peer == peer
                && match qpn {
                    0 => qp.peer_qpn == from && qp.peer_epoch == from_epoch,
                    _ => qp.qpn() == qpn && qp.epoch == epoch,
                };
            if ours && matches!(qp.state, CONNECTING | CONNECTED) {
                qp.tell_peer = false;
                qp.close(REASON_PEER_CLOSE, &mut self.sh, hw);
            }
        }
        for request in &mut self.requests {
            self.sh.step();
            if request.peer == peer
                && matches!(request.state, REQUEST_NEW | REQUEST_OFFERED)
                && request.end.qpn == from
                && request.end.epoch == from_epoch
            {
                *request = Request::FREE;
            }
        }
    }

    /// Says to the peer what QP `i` has to say. False when there is no room for it now.
    pub(crate) fn ctl_step<H: Hw>(&mut self, i: usize, hw: &mut H) -> bool {
        let Some(qp) = self.qps.get_mut(i) else {
            return true;
        };
        let p = (qp.peer as usize).wrapping_sub(1);
        let Some(peer) = self.peers.get_mut(p).filter(|peer| peer.ip != 0) else {
            qp.todo = 0;
            if qp.state >= ERROR {
                self.sh.close_work |= qp.bit();
            }
            return true;
        };
        let mode = |mtu: u32, selective: bool, datagrams: bool, private: u8| {
            let repeat = if selective { MODE_SELECTIVE } else { 0 };
            let lists = if datagrams { MODE_DATAGRAMS } else { 0 };
            mtu | (MODE_STREAM | repeat | lists) << 16 | (private as u32) << 24
        };
        let long = |head: [u32; 7], private: &[u32; 8]| {
            let mut words = [0; 15];
            words[..7].copy_from_slice(&head);
            words[7..].copy_from_slice(private);
            words
        };
        // Packets ahead of a missing one; 0: as many as firmware takes.
        let ahead = if qp.fast_able(hw) { FAST_WINDOW } else { 0 };
        while qp.todo != 0 {
            self.sh.step();
            // Lowest bit first: the order of a connection's life, the end after all but credits.
            let order = [TODO_REQ, TODO_REP, TODO_RTU, TODO_RECALLED, TODO_RECALL, TODO_LIST, TODO_DREQ];
            let todo = order.into_iter().find(|bit| qp.todo & bit != 0).unwrap_or(qp.todo);
            let own = qp.qpn();
            let (to, epoch) = (qp.peer_qpn, qp.peer_epoch);
            let said = match todo {
                TODO_REQ => {
                    qp.tell_peer = true;
                    peer.append(&long(
                        [
                            record(REC_REQ, 15, 0),
                            own,
                            qp.epoch,
                            qp.sq.window.una().get(),
                            qp.service,
                            mode(self.sh.mtu, self.sh.selective, self.sh.datagrams, qp.private_len),
                            CREDITS_PER_QP | ahead << 16,
                        ],
                        &qp.private,
                    ))
                }
                TODO_REP => peer.append(&long(
                    [
                        record(REC_REP, 15, to),
                        epoch,
                        own,
                        qp.epoch,
                        qp.sq.window.una().get(),
                        mode(qp.mtu(), qp.selective, qp.lists.datagrams, qp.private_len),
                        CREDITS_PER_QP | ahead << 16,
                    ],
                    &qp.private,
                )),
                TODO_RTU => peer.append(&[record(REC_RTU, 2, to), epoch]),
                TODO_RECALLED => peer.append(&[record(REC_RECALLED, 3, to), epoch, qp.kept]),
                TODO_RECALL => peer.append(&[record(REC_RECALL, 3, to), epoch, qp.rq.recall_n]),
                TODO_LIST => {
                    if qp.rq.recall != 0 {
                        true
                    } else if !peer.room(3 + GRANTS) {
                        false
                    } else {
                        qp.append_list(peer, &mut self.sh, hw);
                        true
                    }
                }
                TODO_DREQ => peer.append(&[record(REC_DREQ, 5, to), epoch, own, qp.epoch, qp.reason as u32]),
                _ => true,
            };
            if !said && todo == TODO_DREQ && qp.destroying {
                // The host need not wait for the peer's window: the farewell waits elsewhere.
                let end = End { qpn: to, epoch, psn: qp.epoch, ..End::NONE };
                qp.todo = 0;
                self.sh.close_work |= qp.bit();
                if let Some(farewell) = self.new_request(p, REQUEST_STALE, end) {
                    farewell.service = own;
                }
                return true;
            }
            if !said {
                return false;
            }
            self.sh.peer_work |= 1 << p;
            qp.todo &= !todo;
        }
        if qp.state >= ERROR {
            self.sh.close_work |= qp.bit();
        }
        true
    }

    /// Works on requests: tells the host, answers peers.
    pub(crate) fn request_step<H: Hw>(&mut self, hw: &mut H) {
        if !self.sh.request_work {
            return;
        }
        self.sh.request_work = false;
        for r in 0..REQUESTS {
            self.sh.step();
            let request = &mut self.requests[r];
            let p = (request.peer as usize).wrapping_sub(1);
            let Some(peer) = self.peers.get_mut(p) else {
                continue;
            };
            let end = request.end;
            let done = match request.state {
                REQUEST_NEW => {
                    if hw.event_space() == 0 {
                        self.sh.request_work = true;
                        continue;
                    }
                    let mut event = [0; 16];
                    event[0] = EV_CM_REQUEST;
                    event[1] = request.id;
                    event[2] = peer.ip;
                    event[3] = request.service;
                    event[5] = request.private_len as u32;
                    event[8..16].copy_from_slice(&request.private);
                    hw.event(&event);
                    request.state = REQUEST_OFFERED;
                    continue;
                }
                REQUEST_REFUSED => {
                    let mut words = [0; 11];
                    words[0] = record(REC_REJ, 11, end.qpn);
                    words[1] = end.epoch;
                    words[2] = request.reason as u32 | (request.private_len as u32) << 24;
                    words[3..].copy_from_slice(&request.private);
                    peer.append(&words)
                }
                REQUEST_STALE => {
                    peer.append(&[record(REC_DREQ, 5, end.qpn), end.epoch, request.service, end.psn, REASON_PEER_CLOSE])
                }
                _ => continue,
            };
            if done {
                *request = Request::FREE;
                self.sh.peer_work |= 1 << p;
            } else {
                self.sh.request_work = true;
            }
        }
    }
}

impl Qp {
    /// A credit list has come: its first number, its sizes.
    fn list_came<H: Hw>(&mut self, first: u32, sizes: &[u32], sh: &mut Shared, hw: &mut H) {
        if sizes.contains(&0) {
            // A stream has no credits of size 0 (decision 10).
            hw.count(F_LIST_REFUSED, 1);
            self.fail(REASON_PROTOCOL, WC_FLUSHED, sh, hw);
            return;
        }
        if self.fast.on {
            self.fast_list(first, sizes, sh, hw);
            return;
        }
        match self.take_list(first, sizes, sh, hw) {
            LIST_OK | LIST_REPEAT => (),
            LIST_GAP => {
                // Held until filled (decision 6). Without a place for it, it is as if it had been lost.
                if !sh.hold_list(self.idx, first, sizes) {
                    hw.count(F_LIST_REFUSED, 1);
                }
            }
            refused => self.refuse_list(refused, sh, hw),
        }
    }

    /// Gives a credit list to the reader; answers `LIST_*`.
    fn take_list<H: Hw>(&mut self, first: u32, sizes: &[u32], sh: &mut Shared, hw: &mut H) -> u32 {
        let answer = hw.credit(CRD_LIST_BEGIN, self.qpn(), first, sizes.len() as u32);
        if answer == LIST_OK {
            let known = hw.credit_rsp1() as usize;
            for size in sizes.iter().skip(known) {
                sh.step();
                hw.credit(CRD_LIST_PUSH, self.qpn(), *size, 0);
            }
            self.sq.cover_more = true;
            sh.send_work |= self.bit();
            sh.held_due = true;
        }
        answer
    }

    /// The peer does not keep to the protocol of credit lists.
    pub fn refuse_list<H: Hw>(&mut self, answer: u32, sh: &mut Shared, hw: &mut H) {
        hw.count(F_LIST_REFUSED, 1);
        hw.log(Log::ListRefused(self.qpn(), answer));
        self.fail(REASON_PROTOCOL, WC_FLUSHED, sh, hw);
    }

    /// Appends the credit list that is ready, if one is. There is room.
    fn append_list<H: Hw>(&mut self, peer: &mut Peer, sh: &mut Shared, hw: &mut H) {
        let mut words = [0; LIST_WORDS];
        let len = self.next_list(&mut words, sh, hw);
        if len != 0 {
            peer.append(self.list_record(self.peer_epoch, len, &mut words));
        }
    }

    /// Completes the record of a list of `len` credits, and cuts it off behind them.
    fn list_record<'a>(&self, epoch: u32, len: usize, words: &'a mut [u32; LIST_WORDS]) -> &'a [u32] {
        words[0] = record(REC_LIST, 3 + len, self.peer_qpn);
        words[1] = epoch;
        words.get(..3 + len).unwrap_or_default()
    }

    /// Takes the credit list that is ready: its first number into word 2, its sizes behind. Gives its length, 0: none.
    fn next_list<H: Hw>(&mut self, words: &mut [u32; LIST_WORDS], sh: &mut Shared, hw: &mut H) -> usize {
        let qpn = self.qpn();
        if hw.credit(CRD_LIST_TAKE, qpn, 0, 0) != 0 {
            return 0;
        }
        let (first, len) = (hw.credit_rsp1(), hw.credit_rsp2() as usize);
        let len = len.min(GRANTS);
        words[2] = first;
        for word in words.iter_mut().skip(3).take(len) {
            sh.step();
            *word = hw.credit(CRD_LIST_NEXT, qpn, 0, 0);
        }
        self.rq.outstanding += len as u32;
        hw.count(F_CREDITS_OUTSTANDING, len as u32);
        len
    }

    /// The last list once more, as [`Qp::next_list`] gave it. None of its credits has landed: they are with the receives.
    fn last_list(&self, words: &mut [u32; LIST_WORDS]) -> usize {
        let rq = &self.rq;
        words[2] = self.lists.first;
        let mut found = 0;
        let mut bound = Bound::new(GRANTS as u32);
        let mut at = rq.land;
        while at != rq.post {
            bound.step();
            let grant = rq.grants.at(at);
            let offset = grant.credit.wrapping_sub(self.lists.first);
            if grant.state == GRANT_POSTED
                && offset < self.lists.len as u32
                && let Some(word) = words.get_mut(3 + offset as usize)
            {
                *word = grant.len;
                found += 1;
            }
            at = at.wrapping_add(1);
        }
        if found == self.lists.len as usize { found } else { 0 }
    }

    /// Sends the next credit list as a datagram, or the last one again whose proof has not come.
    pub fn send_list<H: Hw>(&mut self, now: u64, sh: &mut Shared, hw: &mut H) {
        if self.state != CONNECTED || !(self.lists.ready || self.lists.repeat) || self.rq.recall != RECALL_NONE {
            return;
        }
        let Some(slot) = sh.tx_alloc_control(hw) else {
            sh.ack_blocked |= self.bit();
            return;
        };
        let mut words = [0; LIST_WORDS];
        let mut len = 0;
        if self.lists.ready {
            self.lists.ready = false;
            len = self.next_list(&mut words, sh, hw);
            if len != 0 {
                (self.lists.first, self.lists.len, self.lists.tries) = (words[2], len as u8, 0);
            }
        }
        if len == 0 && self.lists.repeat {
            len = self.last_list(&mut words);
            hw.count(F_LISTS_REPEATED, 1);
        }
        self.lists.repeat = false;
        if len == 0 {
            sh.tx_free(slot);
            return;
        }
        let record = self.list_record(self.lists.peer_epoch, len, &mut words);
        let frame = self.template.datagram(CONTROL_QPN, CONTROL_QPN, LIST_QKEY, 4 * record.len() as u32);
        write_frame(slot, &frame, record, sh, hw);
        hw.tx_send(slot, frame.end, if self.loopback { TX_LOOPBACK } else { 0 });
        hw.count(F_LIST_DATAGRAMS, 1);
        self.lists.again = now + (LIST_AGAIN << self.lists.tries.min(MAX_BACKOFF));
        self.lists.tries = self.lists.tries.saturating_add(1);
        sh.arm(self.lists.again, hw);
    }
}
