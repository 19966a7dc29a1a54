// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of the driver.

use super::Card;
use super::hw::{Hw, Log};
use super::limits::{FAST_WINDOW, RETRIES, TIMEOUT};
use super::qp::{CLOSED, CONNECTED, CONNECTING, CREATED, ERROR, FREE, Lists, Qp, TODO_BIND, TODO_REP, TODO_REQ};
use super::request::{REQUEST_OFFERED, Request};
use super::shared::Shared;
use crate::wire::headers::{Mac, PSN_MASK, arp};
use berth_abi::card::{FIRST_QPN, MAX_DEPTH, MAX_LIST, MAX_READS, MIN_SQ_DEPTH, NUM_CQS, NUM_UARS};
use berth_abi::counters::{F_BAD_COMMAND, F_BAD_INDEX, F_REQUESTS_BUSY};
use berth_abi::cpu::{CqAttr, DbCfg};
use berth_abi::message::{
    Accept, Connect, CqCreate, CqDestroy, Crash, Disconnect, Entry, KeyBind, KeyFree, KeyRegister, KeysDrop, Listen,
    NetConfig, Pressure, QpCap, QpCreate, QpDestroy, QpPeer, QpQuery, QpRecall, QpTrigger, RangeRevoked, RawCreate,
    RawDestroy, RawFilter, RawMode, Reject, Unlisten,
};
use berth_abi::ring::{
    CAP_BURST_MAX, CAP_RATE_MAX, CARRIER_WRITE, CMD_CM_ACCEPT, CMD_CM_CONNECT, CMD_CM_DISCONNECT, CMD_CM_LISTEN,
    CMD_CM_REJECT, CMD_CM_UNLISTEN, CMD_CQ_CREATE, CMD_CQ_DESTROY, CMD_CRASH, CMD_KEY_BIND, CMD_KEY_FREE,
    CMD_KEY_REGISTER, CMD_KEYS_DROP, CMD_NET_CONFIG, CMD_PRESSURE, CMD_QP_CAP, CMD_QP_CREATE, CMD_QP_DESTROY,
    CMD_QP_PEER, CMD_QP_QUERY, CMD_QP_RECALL, CMD_QP_TRIGGER, CMD_RANGE_REVOKED, CMD_RAW_CREATE, CMD_RAW_DESTROY,
    CMD_RAW_FILTER, CMD_RAW_MODE, CRASH_EVENT, CRASH_EVENT_WORDS, ENTRY_WORDS, MODE_MESSAGE, PRIVATE_DATA, QpState,
    is_mtu, is_trigger,
};
use berth_abi::status::{
    CMD_BUSY, CMD_FULL, CMD_INVALID, CMD_NOT_FOUND, CMD_OK, CMD_UNKNOWN, REASON_BAD_INDEX, REASON_BUSY,
    REASON_LOCAL_CLOSE, REASON_REJECTED, WC_FLUSHED,
};
use berth_abi::wide;

/// Bytes of private data at most.
const MOST_PRIVATE: u32 = PRIVATE_DATA as u32;

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
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

    /// A command (`CMD_*` from `CMD_FIRST_FW` on) of the driver.
    pub fn command<H: Hw>(&mut self, now: u64, entry: &Entry, hw: &mut H) {
        self.sh.begin(Self::COMMAND_STEPS);
        let [opcode, cookie, ..] = *entry;
        let answer = match opcode & 0xff {
            CMD_NET_CONFIG => self.net_config(now, &NetConfig::decode(entry), hw),
            CMD_CQ_CREATE => self.cq_create(&CqCreate::decode(entry), hw),
            CMD_CQ_DESTROY => self.cq_destroy(CqDestroy::decode(entry).cqn, hw),
            CMD_QP_CREATE => self.qp_create(&QpCreate::decode(entry), hw),
            CMD_QP_DESTROY => match self.qp_destroy(QpDestroy::decode(entry).qpn, cookie, hw) {
                CMD_OK => return,
                status => status,
            },
            CMD_CM_LISTEN => self.listen(Listen::decode(entry).service, true),
            CMD_CM_UNLISTEN => self.listen(Unlisten::decode(entry).service, false),
            CMD_CM_CONNECT => self.connect(&Connect::decode(entry)),
            CMD_QP_PEER => self.qp_peer(&QpPeer::decode(entry), hw),
            CMD_CM_ACCEPT => self.accept(&Accept::decode(entry)),
            CMD_CM_REJECT => self.reject(&Reject::decode(entry), hw),
            CMD_CM_DISCONNECT => self.disconnect(Disconnect::decode(entry).qpn, hw),
            CMD_RANGE_REVOKED => {
                let range = RangeRevoked::decode(entry);
                self.revocation.active = true;
                self.revocation.asid = range.asid as u8;
                self.revocation.cookie = cookie;
                self.revocation.start = range.va;
                self.revocation.end = range.va.saturating_add(range.len);
                return;
            }
            CMD_PRESSURE => {
                let too_large = self.pressure(now, Pressure::decode(entry).asid as u8, hw);
                self.sh.answer(cookie, CMD_OK, &[too_large], hw);
                return;
            }
            CMD_QP_QUERY => match self.query(QpQuery::decode(entry).qpn, hw) {
                Some(state) => {
                    self.sh.answer(cookie, CMD_OK, &state.to_results(), hw);
                    return;
                }
                None => CMD_NOT_FOUND,
            },
            CMD_QP_TRIGGER => self.qp_trigger(&QpTrigger::decode(entry), hw),
            CMD_QP_CAP => self.qp_cap(&QpCap::decode(entry), hw),
            CMD_QP_RECALL => match self.qp_recall(QpRecall::decode(entry).qpn, hw) {
                CMD_BUSY => {
                    // It could not be known.
                    self.sh.answer(cookie, CMD_BUSY, &[], hw);
                    return;
                }
                status => status,
            },
            CMD_KEY_REGISTER => match self.keys.register(&KeyRegister::decode(entry), &mut self.sh, hw) {
                Ok(key) => {
                    self.sh.answer(cookie, CMD_OK, &[key], hw);
                    return;
                }
                Err(status) => status,
            },
            CMD_KEY_BIND => self.keys.bind(&KeyBind::decode(entry), &mut self.sh, hw),
            CMD_KEY_FREE => self.keys.free(&KeyFree::decode(entry), &mut self.sh, hw),
            CMD_KEYS_DROP => match KeysDrop::decode(entry).asid {
                0 => CMD_INVALID,
                asid => return self.keys.drop_all(asid, cookie),
            },
            CMD_RAW_CREATE => self.raw.create(&RawCreate::decode(entry), &self.sh, hw),
            CMD_RAW_MODE => self.raw.mode(&RawMode::decode(entry), hw),
            CMD_RAW_FILTER => self.raw.filter(&RawFilter::decode(entry), hw),
            CMD_RAW_DESTROY => match self.raw.end(RawDestroy::decode(entry).queue, cookie, hw) {
                CMD_OK => return,
                status => status,
            },
            CMD_CRASH => {
                let crash = Crash::decode(entry);
                if crash.how == CRASH_EVENT && hw.event_space() > 0 {
                    let mut event = [0; ENTRY_WORDS];
                    event[..CRASH_EVENT_WORDS].copy_from_slice(&crash.event);
                    hw.event(&event);
                }
                hw.crash(crash.how);
                CMD_OK
            }
            _ => CMD_UNKNOWN,
        };
        if answer != CMD_OK {
            hw.count(F_BAD_COMMAND, 1);
        }
        self.sh.answer(cookie, answer, &[], hw);
    }

    fn net_config<H: Hw>(&mut self, now: u64, name: &NetConfig, hw: &mut H) -> u32 {
        let [a, b, c, d] = name.mac_first.to_be_bytes();
        let mac = Mac::new([a, b, c, d, (name.mac_last >> 8) as u8, name.mac_last as u8]);
        let (ip, mtu) = (name.ipv4, name.mtu);
        let unicast = ip >> 28 < 0xe && ip >> 24 != 0 && ip >> 24 != 127;
        if !unicast || a & 1 != 0 || mac == Mac::default() || !is_mtu(mtu) {
            return CMD_INVALID;
        }
        let same = self.sh.ip == ip && self.sh.mac == mac && self.sh.mtu == mtu;
        if same {
            self.probe_address(hw);
            return CMD_OK;
        }
        if self.peers.iter().enumerate().any(|(i, peer)| peer.ip != 0 && self.in_use(i)) {
            return CMD_BUSY;
        }
        for peer in &mut self.peers {
            self.sh.step();
            peer.ip = 0;
            peer.deadline = 0;
        }
        (self.sh.ip, self.sh.mac, self.sh.mtu) = (ip, mac, mtu);
        self.fast_name(hw);
        // The host's key; without one, a value that a restarted card is unlikely to repeat.
        let [a, b, c, d] = name.key;
        for value in [wide(a, b), wide(c, d), name.guid, wide(ip, name.mac_first), now] {
            self.sh.step();
            self.sh.stir(value);
        }
        hw.log(Log::NetConfig(ip, mtu));
        self.probe_address(hw);
        CMD_OK
    }

    /// Asks whether another host has our address; such a host answers (RFC 5227). To ask again, the driver repeats the
    /// command.
    fn probe_address<H: Hw>(&mut self, hw: &mut H) {
        self.sh.conflict = false;
        if let Some(slot) = self.sh.tx_alloc(hw) {
            let probe = arp::Arp { reply: false, mac: self.sh.mac, ip: 0, target: self.sh.ip };
            self.sh.send_arp(slot, &probe, Mac::BROADCAST, hw);
        }
    }

    fn cq_create<H: Hw>(&mut self, cq: &CqCreate, hw: &mut H) -> u32 {
        let &CqCreate { cqn, uar, log2_entries, base } = cq;
        if cqn >= NUM_CQS || uar >= NUM_UARS || !(1..=15).contains(&log2_entries) || base & 31 != 0 {
            return CMD_INVALID;
        }
        if self.sh.cqs.has(cqn as usize) {
            return CMD_BUSY;
        }
        self.sh.cqs.add(cqn as usize);
        hw.cq_config(cqn, base, CqAttr { valid: 1, page: uar, log2: log2_entries });
        CMD_OK
    }

    fn cq_destroy<H: Hw>(&mut self, cqn: u32, hw: &mut H) -> u32 {
        if cqn >= NUM_CQS || !self.sh.cqs.has(cqn as usize) {
            return CMD_NOT_FOUND;
        }
        let uses = |qp: &Qp| qp.state != FREE && (qp.send_cqn as u32 == cqn || qp.recv_cqn as u32 == cqn);
        if self.qps.iter().any(uses) || self.raw.uses(cqn) {
            return CMD_BUSY;
        }
        self.sh.cqs.remove(cqn as usize);
        hw.cq_config(cqn, 0, CqAttr::default());
        CMD_OK
    }

    fn qp_create<H: Hw>(&mut self, want: &QpCreate, hw: &mut H) -> u32 {
        let &QpCreate { qpn, asid, uar, log2_sq, log2_rq, send_cqn, recv_cqn, trigger, max_list, mode, .. } = want;
        let &QpCreate { block, sq_base, rq_base, timeout, retries, domain, reads, peer_reads, .. } = want;
        let Some(i) = Self::index(qpn) else {
            return CMD_INVALID;
        };
        let cq = |cqn: u16| (cqn as u32) < NUM_CQS && self.sh.cqs.has(cqn as usize);
        if asid == 0
            || uar as u32 >= NUM_UARS
            || !(MIN_SQ_DEPTH.ilog2()..=MAX_DEPTH.ilog2()).contains(&(log2_sq as u32))
            || log2_rq as u32 > MAX_DEPTH.ilog2()
            || !cq(send_cqn)
            || !cq(recv_cqn)
            || !is_trigger(trigger as u32, want.trigger_index as u32)
            || max_list as u32 > MAX_LIST
            || mode > MODE_MESSAGE
            || want.carrier > CARRIER_WRITE
            || block & 0xfff != 0
            || block > 1 << 20
            || sq_base & 4095 != 0
            || rq_base & 127 != 0
            || retries > 255
            || u32::from(reads.max(peer_reads)) > MAX_READS
        {
            return CMD_INVALID;
        }
        let Some(qp) = self.qps.get_mut(i) else {
            return CMD_INVALID;
        };
        if qp.state != FREE {
            return CMD_BUSY;
        }
        // A free QP is all zero already: it is large, so it is cleared once, when it becomes free.
        qp.state = CREATED;
        qp.idx = i as u16;
        (qp.asid, qp.uar) = (asid, uar);
        (qp.sq_mask, qp.rq_mask) = ((1 << log2_sq) - 1, (1 << log2_rq) - 1);
        (qp.send_cqn, qp.recv_cqn) = (send_cqn, recv_cqn);
        qp.trigger = trigger as u32 | (want.trigger_index as u32) << 8;
        qp.max_list = if max_list == 0 { MAX_LIST } else { max_list as u32 };
        qp.carrier = want.carrier;
        qp.block = if block == 0 { 65536 } else { block };
        (qp.sq_base, qp.rq_base) = (sq_base, rq_base);
        qp.timeout = if timeout == 0 { TIMEOUT } else { timeout };
        qp.retries = (if retries == 0 { RETRIES } else { retries }) as u8;
        qp.message = mode == MODE_MESSAGE;
        qp.domain = domain;
        if qp.message {
            // One-sided operations are for message mode.
            (qp.reads_wanted, qp.reads, qp.peer_reads) = (reads, reads, peer_reads);
        }
        hw.doorbell_config(qpn, DbCfg { valid: 1, fast: 0, page: uar as u32 });
        CMD_OK
    }

    fn qp_destroy<H: Hw>(&mut self, qpn: u32, cookie: u32, hw: &mut H) -> u32 {
        let Some((qp, sh)) = self.qp(qpn) else {
            return CMD_NOT_FOUND;
        };
        if qp.destroying {
            return CMD_BUSY;
        }
        hw.doorbell_config(qpn, DbCfg::default());
        qp.destroying = true;
        qp.fast_destroy();
        qp.cookie = cookie;
        qp.close(REASON_LOCAL_CLOSE, sh, hw);
        qp.events = 0;
        sh.close_work.add(qp.at());
        CMD_OK
    }

    fn listen(&mut self, service: u32, on: bool) -> u32 {
        if !(1..=0xffff).contains(&service) {
            return CMD_INVALID;
        }
        let service = service as u16;
        let known = self.services.contains(&service);
        let (from, to) = match (on, known) {
            (true, true) => return CMD_BUSY,
            (false, false) => return CMD_NOT_FOUND,
            (true, false) => (0, service),
            (false, true) => (service, 0),
        };
        match self.services.iter_mut().find(|s| **s == from) {
            Some(place) => *place = to,
            None => return CMD_FULL,
        }
        CMD_OK
    }

    fn connect(&mut self, want: &Connect) -> u32 {
        let &Connect { qpn, ipv4, service, private_len, private } = want;
        if self.sh.ip == 0 || !want.in_range() {
            return CMD_INVALID;
        }
        match self.qp(qpn) {
            None => return CMD_NOT_FOUND,
            Some((qp, _)) if qp.state != CREATED || qp.destroying => return CMD_BUSY,
            Some(_) => (),
        }
        let Some(peer) = self.open_peer(ipv4, 0) else {
            return CMD_FULL;
        };
        let Some((qp, sh)) = self.qp(qpn) else {
            return CMD_NOT_FOUND;
        };
        qp.state = CONNECTING;
        qp.peer = peer as u8 + 1;
        qp.service = service;
        qp.private_len = private_len as u8;
        qp.private = private;
        qp.name(sh);
        qp.tell(TODO_REQ, sh);
        CMD_OK
    }

    /// The QP is connected as soon as the peer's MAC address is known, which the host may have found out.
    fn qp_peer<H: Hw>(&mut self, want: &QpPeer, hw: &mut H) -> u32 {
        let &QpPeer { qpn, ipv4, mtu, .. } = want;
        if self.sh.ip == 0 || !want.in_range() || mtu > self.sh.mtu {
            return CMD_INVALID;
        }
        match self.qp(qpn) {
            None => return CMD_NOT_FOUND,
            Some((qp, _)) if qp.waits_to_send() => return self.ready_to_send(want, hw),
            Some((qp, _)) if qp.state != CREATED || qp.destroying => return CMD_BUSY,
            Some((qp, _)) if !qp.message => return CMD_INVALID,
            Some(_) => (),
        }
        let Some(i) = self.open_peer(ipv4, 0) else {
            return CMD_FULL;
        };
        // Nothing would tell that an address from earlier is not the peer's any more.
        let anew = !self.in_use(i);
        let mut moved = false;
        if let Some(peer) = self.peers.get_mut(i) {
            match want.mac() {
                // It counts as ARP does: a peer with connections moves only by its own control message.
                Some(mac) if anew || !peer.resolved => moved = peer.resolve(Mac::new(mac)),
                _ => peer.want_address(anew),
            }
        }
        if moved {
            self.address_changed(i, hw);
        }
        self.sh.peer_work.add(i);
        let Some((qp, sh)) = self.qp(qpn) else {
            return CMD_NOT_FOUND;
        };
        qp.state = CONNECTING;
        qp.peer = i as u8 + 1;
        if want.berth {
            qp.name_bound(want, sh);
            return CMD_OK;
        }
        qp.name_foreign(want, sh);
        if let Some(q) = Self::index(qpn) {
            self.meet_foreign(q, hw);
        }
        CMD_OK
    }

    /// A QP that has only received may send from now on.
    fn ready_to_send<H: Hw>(&mut self, want: &QpPeer, hw: &mut H) -> u32 {
        let ip = self.qp(want.qpn).map_or(0, |(qp, _)| qp.peer as usize);
        let ip = self.peers.get(ip.wrapping_sub(1)).map_or(0, |peer| peer.ip);
        let Some((qp, sh)) = self.qp(want.qpn) else {
            return CMD_NOT_FOUND;
        };
        if want.receives_only || want.ipv4 != ip || want.peer_qpn != qp.peer_qpn || want.berth != qp.bound {
            return CMD_BUSY;
        }
        if qp.bound {
            // It may send as soon as the peer's credits are there.
            qp.receives_only = false;
            return CMD_OK;
        }
        if qp.fast.on && !qp.fast_pause(hw) {
            return CMD_BUSY;
        }
        qp.name_sender(want);
        if qp.fast.on {
            qp.fast_resume(sh, hw);
        }
        CMD_OK
    }

    fn accept(&mut self, want: &Accept) -> u32 {
        let &Accept { request, qpn, private_len, private } = want;
        if private_len > MOST_PRIVATE {
            return CMD_INVALID;
        }
        let found = self.find_request(request);
        let Some((kept, &request)) = found.and_then(|kept| Some((kept, self.requests.get(kept)?))) else {
            return CMD_NOT_FOUND;
        };
        match self.qp(qpn) {
            None => return CMD_NOT_FOUND,
            Some((qp, _)) if qp.state != CREATED || qp.destroying => return CMD_BUSY,
            Some((qp, _)) if !qp.suits(&request.end) => return CMD_INVALID,
            Some(_) => (),
        }
        let Some((qp, sh)) = self.qp(qpn) else {
            return CMD_NOT_FOUND;
        };
        qp.state = CONNECTING;
        qp.peer = request.peer;
        qp.tell_peer = true;
        qp.private_len = private_len as u8;
        qp.private = private;
        qp.name(sh);
        qp.meet(&request.end, sh.mtu);
        qp.tell(TODO_REP, sh);
        if let Some(place) = self.requests.get_mut(kept) {
            *place = Request::FREE;
        }
        if let Some(i) = Self::index(qpn) {
            self.prepare_template(i);
        }
        CMD_OK
    }

    fn reject<H: Hw>(&mut self, want: &Reject, hw: &mut H) -> u32 {
        if want.private_len > MOST_PRIVATE {
            return CMD_INVALID;
        }
        let Some(request) = self.find_request(want.request).and_then(|kept| self.requests.get_mut(kept)) else {
            return CMD_NOT_FOUND;
        };
        request.private_len = want.private_len as u8;
        request.private = want.private;
        request.refuse(if want.reason == REASON_BUSY { REASON_BUSY } else { REASON_REJECTED });
        hw.count(F_REQUESTS_BUSY, (want.reason == REASON_BUSY) as u32);
        self.sh.request_work = true;
        CMD_OK
    }

    fn disconnect<H: Hw>(&mut self, qpn: u32, hw: &mut H) -> u32 {
        let Some((qp, sh)) = self.qp(qpn) else {
            return CMD_NOT_FOUND;
        };
        match qp.state {
            CONNECTING | CONNECTED => qp.close(REASON_LOCAL_CLOSE, sh, hw),
            CLOSED | ERROR => (),
            _ => return CMD_BUSY,
        }
        CMD_OK
    }

    #[inline(never)]
    fn qp_trigger<H: Hw>(&mut self, want: &QpTrigger, hw: &mut H) -> u32 {
        match self.qp(want.qpn) {
            None => CMD_NOT_FOUND,
            Some(_) if !is_trigger(want.trigger as u32, want.trigger_index as u32) => CMD_INVALID,
            Some((qp, _)) => {
                qp.change_trigger(want.trigger, want.trigger_index, hw);
                CMD_OK
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn qp_cap<H: Hw>(&mut self, want: &QpCap, hw: &mut H) -> u32 {
        match self.qp(want.qpn) {
            None => CMD_NOT_FOUND,
            Some(_)
                if want.burst != 0 && (want.rate == 0 || want.rate > CAP_RATE_MAX || want.burst > CAP_BURST_MAX) =>
            {
                CMD_INVALID
            }
            Some((qp, sh)) => {
                qp.cap = [want.rate, want.burst];
                if qp.fast.on && qp.state == CONNECTED {
                    qp.set_cap(sh, hw);
                }
                CMD_OK
            }
        }
    }

    fn qp_recall<H: Hw>(&mut self, qpn: u32, hw: &mut H) -> u32 {
        match self.qp(qpn) {
            None => CMD_NOT_FOUND,
            Some((qp, sh)) if qp.fast.on && qp.state == CONNECTED => {
                qp.give_back(sh, hw);
                CMD_OK
            }
            // All come back by themselves.
            Some((qp, _)) if matches!(qp.state, CLOSED | ERROR) => CMD_OK,
            Some(_) => CMD_BUSY,
        }
    }

    fn query<H: Hw>(&mut self, qpn: u32, hw: &mut H) -> Option<QpState> {
        let (qp, _) = self.qp(qpn)?;
        Some(qp.query(hw))
    }
}

impl Qp {
    /// Chooses epoch and first PSN of a connection.
    fn name(&mut self, sh: &mut Shared) {
        let [epoch, psn] = sh.random_pair();
        self.epoch = epoch;
        self.lists.epoch = epoch;
        self.sq.psn = psn & PSN_MASK;
    }

    /// The host says who the peer is, which speaks plain RoCEv2. Nobody is told its epochs, so that no record and no credit
    /// list can name it.
    fn name_foreign(&mut self, peer: &QpPeer, sh: &mut Shared) {
        [self.epoch, self.peer_epoch] = sh.random_pair();
        self.lists = Lists { epoch: self.epoch, peer_epoch: self.peer_epoch };
        self.foreign = true;
        self.peer_qpn = peer.peer_qpn;
        self.rq.psn = peer.peer_psn;
        self.log2_mtu = peer.mtu.trailing_zeros() as u8;
        self.rnr_timer = peer.rnr_timer as u8;
        self.denies = peer.denies;
        self.receives_only = peer.receives_only;
        self.fast.window = FAST_WINDOW as u8;
        if !peer.receives_only {
            self.name_sender(peer);
        }
    }

    /// The host says who the peer is, a Berth.
    fn name_bound(&mut self, peer: &QpPeer, sh: &mut Shared) {
        self.name(sh);
        // 0 says that an end does not know the other's.
        self.epoch = self.epoch.max(1);
        self.lists.epoch = self.epoch;
        self.bound = true;
        self.denies = peer.denies;
        self.peer_qpn = peer.peer_qpn;
        self.log2_mtu = peer.mtu.trailing_zeros() as u8;
        self.receives_only = peer.receives_only;
        self.tell(TODO_BIND, sh);
    }

    /// Likewise what concerns sending.
    fn name_sender(&mut self, peer: &QpPeer) {
        self.receives_only = false;
        self.sq.psn = peer.psn;
        self.rnr_retries = peer.rnr_retries as u8;
        if peer.timeout != 0 {
            self.timeout = peer.timeout;
        }
        if peer.retries != 0 {
            self.retries = peer.retries;
        }
        self.reads = self.reads.min(peer.reads);
    }

    /// The host has told its peer, but not yet what concerns sending.
    fn waits_to_send(&self) -> bool {
        self.receives_only && !self.destroying && matches!(self.state, CONNECTING | CONNECTED)
    }
}

const _: () = assert!(FIRST_QPN > 2 && REQUEST_OFFERED != 0);
