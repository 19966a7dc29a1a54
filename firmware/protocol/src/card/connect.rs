// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of the control connection: connection management, recall; and credit lists that come before RTL takes them.

use super::Card;
use super::control::{Challenged, Peer, headers, write_frame};
use super::hw::{Hw, Log, TX_LOOPBACK};
use super::limits::{FAST_LIST, FAST_WINDOW, REQUEST_SHARE, REQUEST_TIME, REQUESTS, REQUESTS_OFFERED};
use super::peers::Requests;
use super::qp::{
    CONNECTED, CONNECTING, CREATED, ERROR, FREE, Qp, TODO_BIND, TODO_DREQ, TODO_GO, TODO_RECALL, TODO_RECALLED,
    TODO_REP, TODO_REQ, TODO_RTU,
};
use super::request::{
    End, REFUSAL_WORDS, REQUEST_FREE, REQUEST_LATE, REQUEST_NEW, REQUEST_OFFERED, REQUEST_OVER, REQUEST_STALE, Request,
};
use super::shared::Shared;
use crate::base::rule::{self, Rule};
use crate::wire::headers::{BTH_SEND_ONLY, BTH_UC_WRITE_ONLY, PAYLOAD, PSN_MASK, Packet, RETH, Template, list_qkey};
use crate::wire::records::{
    CHALLENGE, CONTROL_WORDS, MESSAGE_HEADER, REC_BIND, REC_DREQ, REC_GO, REC_KEEPALIVE, REC_LIST, REC_RECALL,
    REC_RECALLED, REC_REJ, REC_REP, REC_REQ, REC_RTU, START, VERSION, record,
};
use berth_abi::card::{CONTROL_QPN, CREDITS_PER_QP};
use berth_abi::counters::{
    F_BAD_OPCODE, F_CONTROL_BAD, F_CONTROL_RECEIVED, F_CONTROL_SENT, F_LIST_REFUSED, F_NOT_FOR_US, F_REQUESTS_BUSY,
    F_TX_STARVED, F_UNKNOWN_QP,
};
use berth_abi::message::{CmRequest, CmRequestOver};
use berth_abi::ring::{PRIVATE_DATA, is_mtu};
use berth_abi::status::{
    REASON_ACCESS, REASON_BUSY, REASON_NO_LISTENER, REASON_NO_TARGET, REASON_PEER_CLOSE, REASON_PROTOCOL,
    REASON_REJECTED, REASON_SEND_FAILED, WC_FLUSHED, WC_REMOTE_ACCESS, WC_REMOTE_ERROR,
};
use berth_abi::wire::{LIST_KEY, LIST_SLOT};
use heapless::Vec;

/// Mode of a connection (CR-17), on the wire: stream.
const STREAM: u32 = 1;
/// Mode of a connection: message.
const MESSAGE: u32 = 2;
/// Beside the mode: what a connection wants of both ends, selective repeat (decision 23) and credit lists as datagrams.
const MODE_NEEDS: u32 = 0xc0;
/// Bits of the mode itself.
const MODE_MASK: u32 = 0x3f;

impl Qp {
    /// Both ends have the same mode (CR-17).
    pub fn suits(&self, end: &End) -> bool {
        self.message == end.message
    }

    /// The other end is known: adapts to it.
    pub fn meet(&mut self, end: &End, mtu: u32) {
        self.peer_qpn = end.qpn;
        self.peer_epoch = end.epoch;
        self.rq.psn = end.psn;
        self.fast.window = end.window;
        self.reads = self.reads_wanted.min(end.reads);
        self.lists.peer_epoch = end.epoch;
        let mtu = end.mtu.min(mtu);
        self.log2_mtu = mtu.trailing_zeros() as u8;
        // A datagram's must fit the path (CR-4) and what an end takes as one message, behind a header of three words.
        let fits = (mtu / 4).saturating_sub(3).min(FAST_LIST);
        self.max_list = self.max_list.min(end.store / 2).min(fits).max(1);
    }
}

/// The words of a received control message.
struct Records {
    /// While they are read, one more.
    words: Vec<u32, { CONTROL_WORDS + 1 }>,
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
            REC_REJ => words == REFUSAL_WORDS,
            REC_DREQ => words == 5,
            REC_BIND => words == 7,
            REC_KEEPALIVE => words == 1,
            REC_RECALL | REC_RECALLED | REC_GO => words == 3,
            _ => false,
        };
        (fits && at + words <= self.words.len()).then_some((kind, words, head >> 16))
    }
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// Position of the request that the host has under this id.
    pub(crate) fn find_request(&self, id: u32) -> Option<usize> {
        self.requests.iter().position(|r| r.state == REQUEST_OFFERED && r.id == id)
    }

    /// Keeps a request. False when there is no place.
    fn keep_request(&mut self, request: Request) -> bool {
        let Some(place) = self.requests.iter_mut().find(|r| r.state == REQUEST_FREE) else {
            return false;
        };
        self.sh.request_serial = self.sh.request_serial.wrapping_add(1);
        self.sh.request_work = true;
        *place = Request { id: self.sh.request_serial, ..request };
        true
    }

    /// Tells peer `i`, whose message has just come, what `request` says, at once if there is room, else later.
    fn tell(&mut self, i: usize, request: Request) {
        if let Some(peer) = self.peers.get_mut(i)
            && request.say(|words| peer.answer(words))
        {
            self.sh.peer_work.add(i);
        } else {
            self.keep_request(Request { peer: i as u8 + 1, ..request });
        }
    }

    /// Requests that the host is too late for are refused.
    pub(crate) fn request_timer<H: Hw>(&mut self, now: u64, hw: &mut H) {
        for request in &mut self.requests {
            self.sh.step();
            if request.waits() && now >= request.until {
                let offered = request.state == REQUEST_OFFERED;
                request.private_len = 0;
                request.refuse(REASON_BUSY);
                if offered {
                    request.state = REQUEST_LATE;
                }
                hw.count(F_REQUESTS_BUSY, 1);
                self.sh.request_work = true;
            }
        }
    }

    /// Reads the payload of a frame to the control QPN. False when it is not of whole words, or too long.
    fn read_records<H: Hw>(&mut self, slot: u32, packet: &Packet, records: &mut Records, hw: &mut H) -> bool {
        let len = packet.len as usize / 4;
        // It begins in the middle of a word.
        if !packet.len.is_multiple_of(4) || records.words.resize_default(len + 1).is_err() {
            return false;
        }
        hw.rx_read(slot, packet.start / 4, &mut records.words);
        let mut next = records.words.pop().unwrap_or(0);
        for word in records.words.iter_mut().rev() {
            self.sh.step();
            next = core::mem::replace(word, *word >> 16 | next << 16);
        }
        true
    }

    /// Whether a WRITE of `len` bytes says so, and names the window for lists.
    #[cold]
    fn is_window<H: Hw>(slot: u32, len: u32, hw: &mut H) -> bool {
        let mut words = [0; 3];
        hw.rx_read(slot, (PAYLOAD + RETH - 8) / 4, &mut words);
        // In the middle of a word, big-endian.
        let [key, told] = [0, 1].map(|i: usize| {
            let [low, high] = [words.get(i), words.get(i + 1)].map(|word| word.copied().unwrap_or(0));
            (low >> 16 | high << 16).swap_bytes()
        });
        key == LIST_KEY && told == len
    }

    /// A credit list has come: it counts as a record of the control connection, however it was carried (decision 6, CR-12).
    #[cold]
    pub(crate) fn rx_list<H: Hw>(&mut self, now: u64, slot: u32, packet: &Packet, hw: &mut H) {
        let peer = self.find_peer(packet.ip);
        if peer.and_then(|i| self.peers.get(i)).is_some_and(|peer| peer.mac != packet.mac) {
            // As data: a peer moves when it says so in a control message. Lists are repeated.
            hw.count(F_NOT_FOR_US, 1);
            return;
        }
        let mut records = Records { words: Vec::new() };
        let whole = self.read_records(slot, packet, &mut records, hw);
        let m = &records;
        let list = peer.filter(|_| whole).and_then(|i| {
            let (kind, words, qpn) = m.record(0)?;
            let ours = match packet.opcode {
                BTH_UC_WRITE_ONLY => packet.more == qpn * LIST_SLOT && Self::is_window(slot, packet.len, hw),
                _ if packet.qpn == CONTROL_QPN => packet.more & PSN_MASK == CONTROL_QPN,
                _ => packet.qpn == qpn,
            };
            (ours && kind == REC_LIST && words == m.words.len()).then_some((i, qpn))
        });
        let Some((i, qpn)) = list else {
            // Another datagram than a list is nothing for the QP of a connection.
            hw.count(if packet.qpn == CONTROL_QPN { F_CONTROL_BAD } else { F_BAD_OPCODE }, 1);
            return;
        };
        let epoch = m.word(0, 1);
        if self.qp(qpn).is_some_and(|(qp, _)| qp.bound && qp.is_asking()) {
            // It has overtaken the peer's BIND. Lists are repeated.
            return;
        }
        let Some((qp, sh)) =
            self.qp(qpn).filter(|(qp, _)| qp.takes_lists() && qp.lists.epoch == epoch && qp.peer as usize == i + 1)
        else {
            // Of a connection, or of a round of its lists, that is over.
            hw.count(F_UNKNOWN_QP, 1);
            return;
        };
        if packet.ext != list_qkey(qp.peer_epoch) {
            hw.count(F_CONTROL_BAD, 1);
            return;
        }
        if qp.state == CONNECTING {
            qp.connected(packet.ip, sh, hw);
            self.hand_over(qpn, hw);
        }
        let Some((qp, sh)) = self.qp(qpn) else {
            return;
        };
        qp.list_came(m.word(0, 2), m.words.get(3..).unwrap_or_default(), sh, hw);
        if let Some(peer) = self.peers.get_mut(i) {
            peer.heard = now;
        }
    }

    /// A control message has come.
    pub(crate) fn rx_control<H: Hw>(&mut self, now: u64, slot: u32, packet: &Packet, hw: &mut H) {
        let mut message = Records { words: Vec::new() };
        if !self.read_records(slot, packet, &mut message, hw) {
            hw.count(F_CONTROL_BAD, 1);
            return;
        }
        let len = message.words.len();
        let [from, to, third] = [0, 1, 2].map(|i| message.word(0, i));
        if len < MESSAGE_HEADER || from == 0 || third & 0xff != VERSION || third >> 16 != len as u32 {
            hw.count(F_CONTROL_BAD, 1);
            return;
        }
        let known = self.find_peer(packet.ip);
        let ends = |peer: &Peer| (peer.incarnation, peer.peer_incarnation);
        let (ours, theirs) = known.and_then(|i| self.peers.get(i)).map_or((0, 0), ends);
        let mut us = ours != 0 && to == ours;
        if third & CHALLENGE != 0 {
            self.rx_challenge(now, known.filter(|_| us && len == MESSAGE_HEADER), from, packet.psn, hw);
            return;
        }
        let stranger = from != theirs;
        let begins = third & START != 0;
        // A peer that goes on as agreed needs no challenge name, which costs a keyed function.
        let agreed = !stranger && (begins || us || to == 0);
        let [name, name_us] = if agreed { [0; 2] } else { self.sh.challenge(packet.ip, from, ours, theirs) };
        let good = agreed
            || (begins && {
                // A peer that begins must echo our challenge, because anybody can write another host's address into a
                // frame. If we know an earlier incarnation of the peer, our own name proves nothing: that incarnation
                // may have known it.
                let hears = to == name || to == name_us || (us && theirs == 0);
                us |= to == name_us;
                hears
            });
        if !good {
            if !begins {
                // When two cards meet, one may have heard of the other before the other has heard of it.
                hw.count(F_NOT_FOR_US, 1);
            }
            self.challenge(known, packet, from, if us { name_us } else { name }, hw);
            return;
        }
        // Leaves places for peers that this card asks.
        let Some(i) = self.open_peer(packet.ip, PEERS / 8) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        // A place of the table, so that no index below can be out of it.
        let i = i % PEERS;
        self.peers[i].heard = now;
        if (us || stranger) && self.peers[i].resolve(packet.mac) {
            self.address_changed(i, hw);
        }
        if stranger {
            self.peer_begins(i, from, packet.psn, us, hw);
        }
        self.sh.peer_work.add(i);
        if !self.peers[i].expect(packet.psn) {
            return;
        }
        // All records, or none: check their shape, and that answers have places or room.
        let mut at = MESSAGE_HEADER;
        let mut answers = 0;
        while at < len {
            self.sh.step();
            let Some((kind, words, _)) = message.record(at) else {
                hw.count(F_CONTROL_BAD, 1);
                message.words.truncate(at);
                break;
            };
            answers += matches!(kind, REC_REQ | REC_REP) as usize;
            at += words;
        }
        let free = || self.requests.iter().filter(|r| r.state == REQUEST_FREE).count();
        if answers > 0 && !self.peers[i].room_for_answers(answers * REFUSAL_WORDS) && answers > free() {
            // The peer acknowledges nothing, so there is no room for answers. This message is not acknowledged and
            // comes again.
            hw.count(F_TX_STARVED, 1);
            return;
        }
        self.peers[i].taken(us);
        hw.count(F_CONTROL_RECEIVED, 1);
        let mut at = MESSAGE_HEADER;
        while at < message.words.len()
            && let Some((kind, words, qpn)) = message.record(at)
        {
            self.sh.step();
            self.take_record(now, i, kind, qpn, &message, at, hw);
            at += words;
        }
    }

    /// Challenges the sender of `packet`, which calls itself `from`: it is to begin with `name`. This card remembers
    /// nothing of the challenge, which is no longer than the packet that it answers.
    fn challenge<H: Hw>(&mut self, known: Option<usize>, packet: &Packet, from: u32, name: u32, hw: &mut H) {
        let all = packet.mac.0 & 1 != 0 || packet.ip == 0 || packet.ip >> 28 >= 0xe;
        if all {
            return;
        }
        // Goes to the peer's known MAC address if connections depend on it, so that a host at another address does not
        // learn the name.
        let place = known.and_then(|i| self.peers.get(i).filter(|p| p.resolved && (p.busy() || self.in_use(i))));
        let mac = place.map_or(packet.mac, |peer| peer.mac);
        let Some(slot) = self.sh.tx_alloc(hw) else {
            return;
        };
        let (own, port) = (self.sh.ip, 0xc000 | CONTROL_QPN as u16);
        let template = Template::new(self.sh.mac, own, mac, packet.ip, port, CONTROL_QPN);
        let words = [name, from, VERSION | CHALLENGE | (MESSAGE_HEADER as u32) << 16];
        let frame = headers(&template, BTH_SEND_ONLY, false, packet.psn, None, 4 * MESSAGE_HEADER as u32);
        write_frame(slot, &frame, &words, &mut self.sh, hw);
        hw.tx_send(slot, frame.end, if packet.ip == own { TX_LOOPBACK } else { 0 });
        hw.count(F_CONTROL_SENT, 1);
    }

    /// A challenge from peer `i`: it does not know our end, and answers our message `psn` with `name`.
    ///
    /// If we begin, we begin again with the name. Else it has forgotten us, or we have never heard each other: our end is
    /// made anew, at once if that ends no connection, else when the peer has said nothing else for a time. One late frame
    /// ends nothing.
    fn rx_challenge<H: Hw>(&mut self, now: u64, i: Option<usize>, name: u32, psn: u32, hw: &mut H) {
        let Some(i) = i else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let i = i % PEERS;
        let peer = i as u8 + 1;
        self.peers[i].heard = now;
        self.sh.peer_work.add(i);
        let loses = |qp: &Qp| qp.peer == peer && matches!(qp.state, CONNECTED | CONNECTING) && !qp.is_asking();
        match self.peers[i].challenged(now, psn, name) {
            Challenged::Fine => return,
            Challenged::Doubt if self.qps.iter().any(loses) => return,
            Challenged::Doubt | Challenged::Over => (),
        }
        hw.log(Log::PeerRestarted(self.peers[i].ip));
        self.drop_connections(i, Requests::Again, hw);
        self.peers[i].renew(&mut self.sh);
        // The peer's remains of our end are over as well.
        self.peers[i].append(&[record(REC_KEEPALIVE, 1, 0)]);
    }

    /// Peer `i` begins its incarnation `from` with a message of PSN `psn`. `us`: it knows our incarnation; else it has
    /// said the name of its challenge.
    ///
    /// Our own incarnation goes on if the peer has received its first message (`us`), or if that message is still
    /// unacknowledged and so comes again. Else we begin anew as well. So two cards that begin at the same time, each
    /// with an old name of the other, agree as soon as both first messages have arrived, and neither makes the other
    /// begin again.
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
    fn take_record<H: Hw>(&mut self, now: u64, i: usize, kind: u32, qpn: u32, m: &Records, at: usize, hw: &mut H) {
        let peer = i as u8 + 1;
        let ip = self.peers.get(i).map_or(0, |peer| peer.ip);
        match kind {
            REC_KEEPALIVE => return,
            REC_REQ => return self.take_request(now, i, m, at, hw),
            REC_REP => return self.take_reply(i, qpn, m, at, hw),
            REC_DREQ => return self.take_end(now, i, qpn, m, at, hw),
            REC_BIND => return self.take_bind(now, i, qpn, m, at, hw),
            _ => (),
        }
        let epoch = m.word(at, 1);
        let Some((qp, sh)) = self.qp(qpn).filter(|(qp, _)| qp.peer == peer && qp.epoch == epoch) else {
            hw.count(F_UNKNOWN_QP, 1);
            return;
        };
        match (kind, qp.state) {
            (REC_RTU, CONNECTING) => {
                qp.connected(ip, sh, hw);
                self.hand_over(qpn, hw);
            }
            // A credit list has overtaken this record.
            (REC_RTU, CONNECTED) => (),
            (REC_REJ, CONNECTING) => {
                let third = m.word(at, 2);
                let reason = match third & 0xff {
                    named @ (REASON_NO_LISTENER | REASON_BUSY) => named,
                    _ => REASON_REJECTED,
                };
                qp.tell_peer = false;
                qp.close(reason, sh, hw);
                qp.private_len = ((third >> 24) as u8).min(PRIVATE_DATA as u8);
                qp.private = m.private(at, 3);
            }
            (REC_RECALL, CONNECTED) => {
                qp.lists.epoch = qp.lists.epoch.wrapping_add(!rule::broken(Rule::RoundMatches) as u32);
                self.fast_give_up(qpn, m.word(at, 2), hw);
            }
            (REC_RECALLED, CONNECTED) => qp.fast_recalled(now, m.word(at, 2), sh, hw),
            (REC_GO, CONNECTED) => qp.fast_go(now, hw),
            (REC_LIST, _) | (_, CONNECTED) => hw.count(F_CONTROL_BAD, 1),
            _ => hw.count(F_UNKNOWN_QP, 1),
        }
    }

    /// The end that a REQ or REP describes; `None` when a field is out of range, `Some(false)`: nothing that this end
    /// can be connected to.
    fn end_of(m: &Records, at: usize, qpn: usize, flags: usize) -> Option<(End, bool)> {
        let (mode, capacities) = (m.word(at, flags), m.word(at, flags + 1));
        let end = End {
            qpn: m.word(at, qpn),
            epoch: m.word(at, qpn + 1),
            psn: m.word(at, qpn + 2) & PSN_MASK,
            mtu: mode & 0xffff,
            message: mode >> 16 & MODE_MASK == MESSAGE,
            store: capacities & 0xffff,
            window: (capacities >> 16 & 0xff).clamp(1, FAST_WINDOW) as u8,
            reads: (capacities >> 24) as u8,
        };
        let good = is_mtu(end.mtu) && end.qpn > 2 && end.qpn <= 0xffff && mode >> 24 <= PRIVATE_DATA as u32;
        let ours = end.message || mode >> 16 & MODE_MASK == STREAM;
        good.then_some((end, ours && mode >> 16 & MODE_NEEDS == MODE_NEEDS))
    }

    fn take_request<H: Hw>(&mut self, now: u64, i: usize, m: &Records, at: usize, hw: &mut H) {
        let Some((end, ours)) = Self::end_of(m, at, 1, 5) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let service = m.word(at, 4);
        let listening = (1..=0xffff).contains(&service) && self.services.contains(&(service as u16));
        let (mut waiting, mut same) = (0, 0);
        for other in self.requests.iter().filter(|r| r.waits()) {
            self.sh.step();
            waiting += 1;
            same += (other.service == service) as usize;
        }
        let busy = waiting >= REQUESTS_OFFERED || same >= REQUEST_SHARE;
        let mut request =
            Request { state: REQUEST_NEW, peer: i as u8 + 1, until: now + REQUEST_TIME, service, end, ..Request::FREE };
        match (listening, ours) {
            (false, _) => request.refuse(REASON_NO_LISTENER),
            (_, false) => request.refuse(REASON_REJECTED),
            _ if busy => (),
            _ => {
                request.private_len = (m.word(at, 5) >> 24) as u8;
                request.private = m.private(at, 7);
                if self.keep_request(request) {
                    self.sh.arm(request.until, hw);
                    return;
                }
                (request.private_len, request.private) = (0, [0; 8]);
            }
        }
        if request.state == REQUEST_NEW {
            // No place is left, or none for this service: a listener that does not answer must not block others.
            request.refuse(REASON_BUSY);
            hw.count(F_REQUESTS_BUSY, 1);
        }
        self.tell(i, request);
    }

    fn take_reply<H: Hw>(&mut self, i: usize, qpn: u32, m: &Records, at: usize, hw: &mut H) {
        let Some((end, ours)) = Self::end_of(m, at, 2, 5) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let (epoch, mtu, ip) = (m.word(at, 1), self.sh.mtu, self.peers[i].ip);
        let Some((qp, sh)) = self.qp(qpn).filter(|(qp, _)| {
            qp.state == CONNECTING
                && qp.peer as usize == i + 1
                && qp.epoch == epoch
                && qp.peer_qpn == 0
                && ours
                && qp.suits(&end)
        }) else {
            // Too late: the peer is to forget its end.
            let end = End { psn: 0, ..end };
            self.tell(i, Request { state: REQUEST_STALE, end, ..Request::FREE });
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

    /// The host of a QP of peer `i` has named QP `qpn` as its peer. Each end says so when its own host has done the same,
    /// and again when it then hears it of an end that does not know its epoch.
    fn take_bind<H: Hw>(&mut self, now: u64, i: usize, qpn: u32, m: &Records, at: usize, hw: &mut H) {
        let Some((end, ours)) = Self::end_of(m, at, 2, 5) else {
            hw.count(F_CONTROL_BAD, 1);
            return;
        };
        let (epoch, ip) = (m.word(at, 1), self.peers.get(i).map_or(0, |peer| peer.ip));
        let (state, named, earlier) = self.qp(qpn).map_or((FREE, false, false), |(qp, _)| {
            let pair = qp.bound && qp.peer as usize == i + 1 && qp.peer_qpn == end.qpn;
            let known = epoch == 0 || epoch == qp.epoch;
            let named = pair && !qp.gone && qp.suits(&end) && known && ours;
            let same = qp.is_asking() || qp.peer_epoch == end.epoch;
            // The two have a connection, and the peer's host has begun anew.
            (qp.state, named && same, pair && epoch == 0 && !same && qp.state == CONNECTED)
        });
        match state {
            // Its host is still to name its peer, and it then says so.
            CREATED => (),
            CONNECTING | CONNECTED if named => {
                let Some((qp, sh)) = self.qp(qpn) else {
                    return;
                };
                let asks = qp.is_asking();
                if asks {
                    qp.meet(&end, 1 << (qp.log2_mtu & 31));
                    qp.connected(ip, sh, hw);
                }
                if epoch == 0 {
                    qp.tell(TODO_BIND, sh);
                }
                if asks {
                    if let Some(q) = Self::index(qpn) {
                        self.prepare_template(q);
                    }
                    self.hand_over(qpn, hw);
                }
            }
            // It has no partner here, or not yet.
            _ => {
                if let Some((qp, sh)) = self.qp(qpn).filter(|_| earlier) {
                    qp.peer_gone(now, sh, hw);
                }
                self.tell(i, Request { state: REQUEST_STALE, end: End { psn: 0, ..end }, ..Request::FREE });
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn take_end<H: Hw>(&mut self, now: u64, i: usize, qpn: u32, m: &Records, at: usize, hw: &mut H) {
        let peer = i as u8 + 1;
        let [epoch, from, from_epoch, reason] = [1, 2, 3, 4].map(|k| m.word(at, k));
        for qp in &mut self.qps {
            self.sh.step();
            let ours = qp.peer == peer
                && match qpn {
                    0 => qp.peer_qpn == from && qp.peer_epoch == from_epoch,
                    _ => qp.qpn() == qpn && qp.epoch == epoch,
                };
            if ours && matches!(qp.state, CONNECTING | CONNECTED) {
                qp.tell_peer = false;
                match reason {
                    // In place of a NAK, which may be lost.
                    REASON_ACCESS => qp.fail(REASON_SEND_FAILED, WC_REMOTE_ACCESS, &mut self.sh, hw),
                    REASON_NO_TARGET => qp.fail(REASON_SEND_FAILED, WC_REMOTE_ERROR, &mut self.sh, hw),
                    _ if qp.bound => qp.peer_gone(now, &mut self.sh, hw),
                    _ => qp.close(REASON_PEER_CLOSE, &mut self.sh, hw),
                }
            }
        }
        for request in &mut self.requests {
            self.sh.step();
            if request.peer == peer && request.waits() && request.end.qpn == from && request.end.epoch == from_epoch {
                request.over();
                self.sh.request_work = true;
            }
        }
    }

    /// Sends QP `i`'s pending records to the peer. False when there is no room for them now.
    pub(crate) fn ctl_step(&mut self, i: usize) -> bool {
        let Some(qp) = self.qps.get_mut(i) else {
            return true;
        };
        let p = (qp.peer as usize).wrapping_sub(1);
        let Some(peer) = self.peers.get_mut(p).filter(|peer| peer.ip != 0) else {
            qp.todo = 0;
            if qp.state >= ERROR {
                self.sh.close_work.add(qp.at());
            }
            return true;
        };
        let message = if qp.message { MESSAGE } else { STREAM };
        let mode = |mtu: u32, private: u8| mtu | (message | MODE_NEEDS) << 16 | (private as u32) << 24;
        let capacities = CREDITS_PER_QP | FAST_WINDOW << 16 | (qp.peer_reads as u32) << 24;
        let long = |head: [u32; 7], private: &[u32; 8]| {
            let mut words = [0; 15];
            words[..7].copy_from_slice(&head);
            words[7..].copy_from_slice(private);
            words
        };
        while qp.todo != 0 {
            self.sh.step();
            // Lowest bit first: the order of a connection's life, the end after all but credits.
            let order = [TODO_REQ, TODO_REP, TODO_BIND, TODO_RTU, TODO_RECALLED, TODO_RECALL, TODO_GO, TODO_DREQ];
            let todo = order.into_iter().find(|bit| qp.todo & bit != 0).unwrap_or(qp.todo);
            let own = qp.qpn();
            let (to, epoch) = (if qp.is_asking() { 0 } else { qp.peer_qpn }, qp.peer_epoch);
            let said = match todo {
                TODO_REQ => {
                    qp.tell_peer = true;
                    peer.append(&long(
                        [
                            record(REC_REQ, 15, 0),
                            own,
                            qp.epoch,
                            qp.sq.psn,
                            qp.service,
                            mode(self.sh.mtu, qp.private_len),
                            capacities,
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
                        qp.sq.psn,
                        mode(1 << (qp.log2_mtu & 31), qp.private_len),
                        capacities,
                    ],
                    &qp.private,
                )),
                TODO_BIND => {
                    qp.tell_peer = true;
                    let mode = mode(1 << (qp.log2_mtu & 31), 0);
                    let (head, psn) = (record(REC_BIND, 7, qp.peer_qpn), qp.sq.psn);
                    peer.append(&[head, epoch, own, qp.epoch, psn, mode, capacities])
                }
                TODO_RTU => peer.append(&[record(REC_RTU, 2, to), epoch]),
                TODO_RECALLED => peer.append(&[record(REC_RECALLED, 3, to), epoch, qp.kept]),
                TODO_RECALL => peer.append(&[record(REC_RECALL, 3, to), epoch, qp.rq.recall.asked().unwrap_or(0)]),
                TODO_GO => peer.append(&[record(REC_GO, 3, to), epoch, qp.go]),
                TODO_DREQ => peer.append(&[record(REC_DREQ, 5, to), epoch, own, qp.epoch, qp.reason as u32]),
                _ => true,
            };
            if !said && todo == TODO_DREQ && qp.destroying {
                // The host need not wait for the peer's window: the last record waits among the requests.
                let end = End { qpn: to, epoch, psn: qp.epoch, ..End::NONE };
                qp.todo = 0;
                self.sh.close_work.add(qp.at());
                let peer = p as u8 + 1;
                self.keep_request(Request { state: REQUEST_STALE, peer, service: own, end, ..Request::FREE });
                return true;
            }
            if !said {
                return false;
            }
            self.sh.peer_work.add(p);
            qp.todo &= !todo;
        }
        if qp.state >= ERROR {
            self.sh.close_work.add(qp.at());
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
            if matches!(request.state, REQUEST_FREE | REQUEST_OFFERED) {
                continue;
            }
            let p = (request.peer as usize).wrapping_sub(1);
            if let REQUEST_NEW | REQUEST_OVER = request.state {
                if hw.event_space() == 0 {
                    self.sh.request_work = true;
                    continue;
                }
                if request.state == REQUEST_OVER {
                    hw.event(&CmRequestOver { request: request.id }.encode());
                    request.state = REQUEST_FREE;
                } else {
                    let event = CmRequest {
                        request: request.id,
                        ipv4: self.peers.get(p).map_or(0, |peer| peer.ip),
                        service: request.service,
                        mode: request.end.message as u32,
                        private_len: request.private_len as u32,
                        private: request.private,
                    };
                    hw.event(&event.encode());
                    request.state = REQUEST_OFFERED;
                }
                continue;
            }
            let Some(peer) = self.peers.get_mut(p) else {
                continue;
            };
            if request.say(|words| peer.append(words)) {
                request.over();
                self.sh.peer_work.add(p);
            }
            self.sh.request_work |= request.state != REQUEST_FREE;
        }
    }
}

impl Qp {
    /// A credit list has come: its first number, its sizes.
    fn list_came<H: Hw>(&mut self, first: u32, sizes: &[u32], sh: &mut Shared, hw: &mut H) {
        if sizes.contains(&0) && !self.message {
            // A stream has no credits of size 0 (decision 10).
            hw.count(F_LIST_REFUSED, 1);
            self.fail(REASON_PROTOCOL, WC_FLUSHED, sh, hw);
            return;
        }
        self.fast_list(first, sizes, sh, hw);
    }
}
