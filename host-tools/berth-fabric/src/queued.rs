// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Baselines over InfiniBand's reliable connection: count credits with receiver-not-ready, fixed-size credits,
//! and eager sends into a shared receive queue.
//!
//! The transport is the same for all three: a window of packets, coalesced acknowledgements, go-back-N with one NAK per
//! gap, time-outs. They differ in what a send is (a cut of `buffer` bytes), when it may leave, and which receive it
//! takes.

use crate::hosts::{Cx, Scheme, Timer};
use crate::net::{DATA, Packet, ROCE};
use crate::time::{NS, Time, US};
use std::collections::{BTreeSet, VecDeque};

/// Largest payload of a packet.
pub const MTU: u32 = 4096;
/// Packets that an end has unacknowledged.
const WINDOW: u64 = 128;
/// Bytes of an acknowledgement or NAK.
pub const ACK: u32 = ROCE + 4;
/// Packets after which a sender asks for an acknowledgement.
const ACK_EVERY: u64 = 16;

/// When a send may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// InfiniBand's end-to-end credits: the number of receives posted, coded in each acknowledgement. Without
    /// credit one packet may be sent; it is answered by a NAK if there is no receive (IBTA 9.7.7.2).
    Count,
    /// The exact number of free buffers, told in messages and in data of the other direction. Nothing is ever
    /// sent without one (as SMB Direct does).
    Fixed,
    /// Always; the receives are shared by all connections of a host.
    Shared,
}

/// Measures of such a scheme.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When a send may leave.
    pub gate: Gate,
    /// Bytes of each receive buffer: longer messages are cut.
    pub buffer: u32,
    /// Receives for each connection end; with [`Gate::Shared`] a host has them together.
    pub count: u32,
    /// With [`Gate::Shared`]: receives that a host has at least.
    pub least: u32,
    /// Time that a receiver-not-ready NAK asks for.
    pub rnr: Time,
    /// Bytes of receive memory that a host has: for each end of a connection, and at most. Then `buffer` and `count`
    /// are the most, and `least` does not count.
    pub budget: Option<(u64, u64)>,
    /// Received bytes are copied out of the buffer, which is free then.
    pub copy: bool,
    /// How the memory of sends and receives is made present; without it, it always is and counts as committed.
    pub memory: Option<Memory>,
}

/// How the memory of sends and receives is made present. Each send and each receive lies in another place of its
/// end's region, until the region begins anew.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// All of it is registered (pinned) beforehand.
    Registered(Region),
    /// The adapter takes a fault when it comes to a page that is not present: a send waits, a receive is answered
    /// as not ready. One fault brings in all of a send or receive, which stays present.
    Faults(Region),
}

/// Places for sends, and for receives, of each connection end, and the service of faults.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Places of `buffer` bytes.
    pub places: u64,
    /// Time from a request for pages to their presence.
    pub latency: Time,
}

/// Time of a core for a page request, and for each of its pages.
pub const SERVICE: Time = 300 * NS;
/// See [`SERVICE`].
pub const SERVICE_PAGE: Time = 50 * NS;
/// Bytes of a page.
pub const PAGE: u32 = 4096;

/// When `bytes` are present, that `core` is asked for now.
pub fn service(core: &mut Time, now: Time, bytes: u32, latency: Time) -> Time {
    *core = (*core).max(now) + SERVICE + SERVICE_PAGE * Time::from(bytes.div_ceil(PAGE));
    *core + latency
}

/// What its packets say.
pub enum Body {
    /// Data.
    Data {
        psn: u64,
        len: u32,
        first: bool,
        last: bool,
        message: u32,
        ends_message: bool,
        ack: bool,
        /// As in [`Body::Credits`]; 0 where it says nothing.
        credits: u64,
    },
    /// Everything below `psn` has come; `limit`: sends that may be begun, counted from the first.
    Ack {
        psn: u64,
        limit: Option<u64>,
    },
    /// `psn` is missing.
    Missing {
        psn: u64,
    },
    /// No receive for `psn`.
    NotReady {
        psn: u64,
    },
    /// So many sends may be begun, counted from the first; and its acknowledgement.
    Credits(u64),
    CreditsAck(u64),
}

/// A part of a message that takes one receive.
struct Send {
    psn: u64,
    len: u32,
    message: u32,
    ends_message: bool,
}

impl Send {
    fn packets(&self) -> u64 {
        u64::from(self.len.div_ceil(MTU).max(1))
    }
}

#[derive(Default)]
struct End {
    /// Its receives: bytes of each, and how many there are.
    buffer: u32,
    count: u32,
    /// Messages not cut yet: number, bytes left.
    waiting: VecDeque<(u32, u32)>,
    /// Sends not acknowledged as a whole.
    sends: VecDeque<Send>,
    /// Number of the first of them, counted from the connection's first.
    base: u64,
    /// The next packet: place in `sends`, packet of it.
    at: usize,
    packet: u64,
    next: u64,
    una: u64,
    /// Never sent.
    max: u64,
    since_ack: u64,
    deadline: Time,
    timer: bool,
    /// Not before, after a receiver-not-ready NAK.
    held_until: Time,
    /// Sends that may be begun.
    limit: u64,
    idle_since: Option<Time>,

    expected: u64,
    /// Sends begun and received, as the receiver counts.
    begun: u64,
    receives: u32,
    /// A gap was told.
    told: bool,
    refused: bool,
    answer: Answer,
    /// Fixed credits: buffers free again and not told, sends allowed as told, and as the peer knows.
    to_tell: u32,
    allowed: u64,
    known: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Ack,
    Missing,
    NotReady,
}

/// The scheme.
pub struct Queued {
    settings: Settings,
    ends: Vec<End>,
    /// Receives left in each host's shared queue.
    shared: Vec<u32>,
    /// Places that are present: end, whether for receiving, place. And those being brought in.
    present: BTreeSet<(u32, bool, u64)>,
    coming: BTreeSet<(u32, bool, u64)>,
    cores: Vec<Time>,
    /// Most receives of one host in use at a time, and those in use.
    pub most_used: u32,
    used: Vec<u32>,
    /// Times that a send waited for a page, and for how long.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled: Time,
}

/// The largest number of credits not above `n` that an acknowledgement can carry (IBTA table 46): powers of two
/// and the numbers half way between.
pub fn coded_credits(n: u32) -> u32 {
    if n < 2 {
        return n;
    }
    let power = 1 << n.ilog2();
    if n >= power + power / 2 { power + power / 2 } else { power }
}

impl Queued {
    /// Without connections.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ends: Vec::new(),
            shared: Vec::new(),
            present: BTreeSet::new(),
            coming: BTreeSet::new(),
            cores: Vec::new(),
            most_used: 0,
            used: Vec::new(),
            stalls: 0,
            stalled: 0,
        }
    }

    /// The receives of each of a host's `ends` ends: bytes, and how many. With a budget fewer, then smaller ones.
    fn receives(&self, ends: u32) -> (u32, u32) {
        /// Smaller receives are not worth their headers; and one alone would stop the sender each time.
        const LEAST: (u32, u32) = (1 << 10, 2);
        let Settings { mut buffer, count, budget, .. } = self.settings;
        let Some((each, most)) = budget.filter(|_| ends > 0) else { return (buffer, count) };
        let room = each.min(most / u64::from(ends));
        while buffer > LEAST.0 && u64::from(LEAST.1 * buffer) > room {
            buffer /= 2;
        }
        (buffer, ((room / u64::from(buffer)) as u32).clamp(LEAST.1, count.max(LEAST.1)))
    }

    /// Receives in the queue that a host's `ends` ends share.
    fn shared_receives(&self, ends: u32) -> u32 {
        let Settings { buffer, count, least, budget, .. } = self.settings;
        match budget {
            _ if ends == 0 => 0,
            Some((each, most)) => ((u64::from(ends) * each).min(most) / u64::from(buffer)) as u32,
            None => (ends * count).max(least),
        }
    }

    /// Whether the memory of send or receive number `number` is present; if not, it is being brought in.
    fn is_present(&mut self, cx: &mut Cx<Body>, end: u32, receive: bool, number: u64) -> bool {
        let Some(Memory::Faults(region)) = self.settings.memory else { return true };
        let place = (end, receive, number % region.places);
        if self.present.contains(&place) {
            return true;
        }
        if self.coming.insert(place) {
            let host = cx.host(end) as usize;
            let at = service(&mut self.cores[host], cx.now(), self.settings.buffer, region.latency);
            cx.timer(at, if receive { 4 } else { 3 }, end, place.2);
            if !receive {
                self.stalls += 1;
                self.stalled += at - cx.now();
            }
        }
        false
    }

    /// Cuts the next send from what waits, if it may leave.
    fn cut(&mut self, end: usize) -> bool {
        let buffer = self.ends[end ^ 1].buffer;
        let e = &mut self.ends[end];
        let Some((message, left)) = e.waiting.front_mut() else { return false };
        let len = (*left).min(buffer);
        *left -= len;
        let (message, ends_message) = (*message, *left == 0);
        if ends_message {
            e.waiting.pop_front();
        }
        e.sends.push_back(Send { psn: e.max, len, message, ends_message });
        true
    }

    /// The current send may be begun, or gone on with.
    fn may(&self, e: &End) -> bool {
        let number = e.base + e.at as u64;
        match self.settings.gate {
            Gate::Shared => true,
            Gate::Fixed => number < e.limit,
            // Without credit: one packet, when all before is acknowledged.
            Gate::Count => number < e.limit || (e.packet == 0 && e.una == e.next),
        }
    }

    fn arm(&mut self, cx: &mut Cx<Body>, end: u32, at: Time) {
        let e = &mut self.ends[end as usize];
        e.deadline = at;
        if !e.timer {
            e.timer = true;
            cx.timer(at, 0, end, 0);
        }
    }

    fn go_back(&mut self, cx: &mut Cx<Body>, end: u32) {
        let e = &mut self.ends[end as usize];
        let una = e.una;
        cx.stats.again += e.next - una;
        e.next = una;
        e.at = 0;
        while e.sends.get(e.at).is_some_and(|s| s.psn + s.packets() <= una) {
            e.at += 1;
        }
        e.packet = e.sends.get(e.at).map_or(0, |s| una - s.psn);
        cx.data_waits(end);
    }

    fn acknowledged(&mut self, cx: &mut Cx<Body>, end: u32, psn: u64) {
        let (now, timeout) = (cx.now(), cx.net.spec().timeout());
        let e = &mut self.ends[end as usize];
        if psn > e.una {
            e.una = psn.min(e.max);
            if e.next < e.una {
                // It came although we went back: continues behind it.
                e.next = e.una;
                e.at = 0;
                while e.sends.get(e.at).is_some_and(|s| s.psn + s.packets() <= e.una) {
                    e.at += 1;
                }
                e.packet = e.sends.get(e.at).map_or(0, |s| e.una - s.psn);
            }
            while e.sends.front().is_some_and(|s| s.psn + s.packets() <= e.una) {
                e.sends.pop_front();
                e.base += 1;
                e.at = e.at.saturating_sub(1);
            }
            self.arm(cx, end, now + timeout);
        }
        cx.data_waits(end);
    }

    /// Tells the peer what it may send, with an empty SMB Direct message: 20 bytes, padded to 24. It is a send of
    /// the reliable connection, so it is sent again until it is acknowledged.
    fn tell(&mut self, cx: &mut Cx<Body>, end: u32) {
        let allowed = self.ends[end as usize].allowed;
        let packet = cx.packet(end, ROCE + 24, 0, Body::Credits(allowed));
        cx.stats.flow.packets += 1;
        cx.stats.flow.bytes += u64::from(packet.bytes);
        cx.control(packet);
        let at = cx.now() + cx.net.spec().timeout();
        cx.timer(at, 5, end, allowed);
    }

    /// A receive is free again.
    fn repost(&mut self, cx: &mut Cx<Body>, end: u32) {
        let host = cx.host(end);
        self.used[host as usize] -= 1;
        match self.settings.gate {
            Gate::Shared => self.shared[host as usize] += 1,
            Gate::Count => self.ends[end as usize].receives += 1,
            Gate::Fixed => {
                let e = &mut self.ends[end as usize];
                let half = e.count / 2;
                e.receives += 1;
                e.to_tell += 1;
                // Told when half of all have gathered, or when the peer can have only one left.
                let peer_has = e.receives - e.to_tell;
                if e.to_tell >= half.max(1) || peer_has <= 1 {
                    e.allowed += u64::from(std::mem::take(&mut e.to_tell));
                    self.tell(cx, end);
                }
            }
        }
    }

    fn data_in(&mut self, cx: &mut Cx<Body>, end: u32, body: Body) {
        let Body::Data { psn, len, first, last, message, ends_message, ack, .. } = body else { return };
        let host = cx.host(end);
        let e = &mut self.ends[end as usize];
        if psn != e.expected {
            if psn < e.expected {
                e.answer = Answer::Ack;
                cx.ack_waits(end);
            } else if !e.told && !e.refused {
                e.told = true;
                e.answer = Answer::Missing;
                cx.ack_waits(end);
            }
            return;
        }
        e.told = false;
        e.refused = false;
        if first {
            let number = e.begun;
            if !self.is_present(cx, end, true, number) {
                let e = &mut self.ends[end as usize];
                cx.stats.not_ready += 1;
                e.refused = true;
                e.answer = Answer::NotReady;
                cx.ack_waits(end);
                return;
            }
            let e = &mut self.ends[end as usize];
            let receives = match self.settings.gate {
                Gate::Shared => &mut self.shared[host as usize],
                _ => &mut e.receives,
            };
            if *receives == 0 {
                cx.stats.not_ready += 1;
                e.refused = true;
                e.answer = Answer::NotReady;
                cx.ack_waits(end);
                return;
            }
            *receives -= 1;
            self.ends[end as usize].begun += 1;
            self.used[host as usize] += 1;
            self.most_used = self.most_used.max(self.used[host as usize]);
        }
        let e = &mut self.ends[end as usize];
        e.expected += 1;
        e.answer = Answer::Ack;
        if ack || last && self.settings.gate == Gate::Count {
            cx.ack_waits(end);
        }
        if last {
            let bytes = (len - 1) % self.ends[end as usize].buffer.max(1) + 1;
            let at = cx.serve(host, bytes, self.settings.copy);
            cx.timer(at, 1, end, 0);
            if ends_message {
                // Copying is a part of receiving; the application's work on its own buffer is not.
                let at = if self.settings.copy { at } else { cx.now() };
                cx.done(at, message);
            }
        }
    }
}

impl Scheme for Queued {
    type Body = Body;

    fn start(&mut self, cx: &mut Cx<Body>) {
        let Settings { buffer, gate, .. } = self.settings;
        let hosts = cx.net.spec().hosts as usize;
        let mut ends = vec![0; hosts];
        for conn in &cx.conns {
            ends[conn[0] as usize] += 1;
            ends[conn[1] as usize] += 1;
        }
        self.shared = ends.iter().map(|n| self.shared_receives(*n)).collect();
        self.cores = vec![0; hosts];
        self.used = vec![0; hosts];
        self.ends = (0..cx.conns.len() as u32 * 2)
            .map(|end| {
                let receives = |end: u32| match gate {
                    Gate::Shared => (buffer, 0),
                    _ => self.receives(ends[cx.host(end) as usize]),
                };
                let (buffer, count) = receives(end);
                // It may send as many as the other end has.
                let limit = u64::from(receives(end ^ 1).1);
                let [allowed, known] = [u64::from(count); 2];
                End { buffer, count, receives: count, limit, allowed, known, ..End::default() }
            })
            .collect();
        let bytes = match gate {
            Gate::Shared => self.shared.iter().map(|n| i64::from(*n) * i64::from(buffer)).sum(),
            _ => self.ends.iter().map(|e| i64::from(e.count) * i64::from(e.buffer)).sum(),
        };
        match self.settings.memory {
            None => cx.commit(bytes),
            // One region for sending at one end, and one for receiving at the other.
            Some(Memory::Registered(r)) => cx.commit(self.ends.len() as i64 * r.places as i64 * i64::from(buffer)),
            Some(Memory::Faults(_)) => (),
        }
    }

    fn post(&mut self, cx: &mut Cx<Body>, end: u32, message: u32) {
        let bytes = cx.messages[message as usize].bytes;
        self.ends[end as usize].waiting.push_back((message, bytes));
        cx.data_waits(end);
    }

    fn data(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let (now, timeout) = (cx.now(), cx.net.spec().timeout());
        let i = end as usize;
        let e = &self.ends[i];
        if e.held_until > now || e.next - e.una >= WINDOW {
            return None;
        }
        if e.at == e.sends.len() && (e.waiting.is_empty() || !self.may(e)) || !self.may(e) {
            let e = &mut self.ends[i];
            if (e.at < e.sends.len() || !e.waiting.is_empty()) && e.idle_since.is_none() {
                e.idle_since = Some(now);
            }
            return None;
        }
        if e.packet == 0 && !self.is_present(cx, end, false, self.ends[i].base + self.ends[i].at as u64) {
            return None;
        }
        let e = &self.ends[i];
        if e.at == e.sends.len() && !self.cut(i) {
            return None;
        }
        let fixed = self.settings.gate == Gate::Fixed;
        let number = self.ends[i].base + self.ends[i].at as u64;
        let without_credit = self.settings.gate == Gate::Count && number >= self.ends[i].limit;
        let e = &mut self.ends[i];
        if let Some(since) = e.idle_since.take() {
            cx.stats.idle += now - since;
        }
        let send = &e.sends[e.at];
        let packets = send.packets();
        let last = e.packet + 1 == packets;
        let len = if last { send.len - (packets as u32 - 1) * MTU } else { MTU };
        let (message, ends_message) = (send.message, send.ends_message);
        e.since_ack += 1;
        // Also at the end of what may be sent for now.
        let closed = self.settings.gate != Gate::Shared && e.base + e.at as u64 + 1 >= e.limit;
        let ack = e.since_ack >= ACK_EVERY || without_credit || (last && (e.waiting.is_empty() || closed));
        if ack {
            e.since_ack = 0;
        }
        e.allowed += u64::from(std::mem::take(&mut e.to_tell));
        let credits = if fixed { e.allowed } else { 0 };
        let body = Body::Data {
            psn: e.next,
            len: if last { send.len } else { len },
            first: e.packet == 0,
            last,
            message,
            ends_message: last && ends_message,
            ack,
            credits,
        };
        e.next += 1;
        e.max = e.max.max(e.next);
        e.packet += 1;
        if last {
            e.at += 1;
            e.packet = 0;
        }
        self.arm(cx, end, now + timeout);
        let header = ROCE + if fixed { 24 } else { 0 };
        Some(cx.packet(end, header + len.next_multiple_of(4), DATA, body))
    }

    fn ack(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let gate = self.settings.gate;
        let e = &mut self.ends[end as usize];
        let psn = e.expected;
        let body = match std::mem::take(&mut e.answer) {
            Answer::Ack => {
                let limit = (gate == Gate::Count).then(|| e.begun + u64::from(coded_credits(e.receives)));
                Body::Ack { psn, limit }
            }
            Answer::Missing => Body::Missing { psn },
            Answer::NotReady => {
                cx.stats.flow.packets += 1;
                cx.stats.flow.bytes += u64::from(ACK);
                return Some(cx.packet(end, ACK, 0, Body::NotReady { psn }));
            }
        };
        cx.stats.acks.packets += 1;
        cx.stats.acks.bytes += u64::from(ACK);
        Some(cx.packet(end, ACK, 0, body))
    }

    fn receive(&mut self, cx: &mut Cx<Body>, packet: Packet<Body>) {
        // The packet's flow is the end that sent it.
        let end = packet.flow ^ 1;
        match packet.body {
            Body::Data { credits, .. } => {
                let e = &mut self.ends[end as usize];
                if credits > e.limit {
                    e.limit = credits;
                    cx.data_waits(end);
                }
                self.data_in(cx, end, packet.body);
            }
            Body::Ack { psn, limit } => {
                if let Some(limit) = limit {
                    let e = &mut self.ends[end as usize];
                    e.limit = e.limit.max(limit);
                }
                self.acknowledged(cx, end, psn);
            }
            Body::Missing { psn } => {
                self.acknowledged(cx, end, psn);
                self.go_back(cx, end);
            }
            Body::NotReady { psn } => {
                self.acknowledged(cx, end, psn);
                let timeout = cx.net.spec().timeout();
                let at = cx.now() + self.settings.rnr;
                self.ends[end as usize].held_until = at;
                self.go_back(cx, end);
                self.arm(cx, end, at + timeout);
                cx.timer(at, 2, end, 0);
            }
            Body::Credits(n) => {
                let e = &mut self.ends[end as usize];
                e.limit = e.limit.max(n);
                cx.data_waits(end);
                cx.stats.acks.packets += 1;
                cx.stats.acks.bytes += u64::from(ACK);
                let ack = cx.packet(end, ACK, 0, Body::CreditsAck(n));
                cx.control(ack);
            }
            Body::CreditsAck(n) => {
                let e = &mut self.ends[end as usize];
                e.known = e.known.max(n);
            }
        }
    }

    fn timer(&mut self, cx: &mut Cx<Body>, timer: Timer) {
        let end = timer.a;
        let (now, timeout) = (cx.now(), cx.net.spec().timeout());
        match timer.kind {
            0 => {
                let e = &mut self.ends[end as usize];
                e.timer = false;
                if e.una == e.max {
                    return;
                }
                if e.deadline > now {
                    let at = e.deadline;
                    self.arm(cx, end, at);
                } else {
                    self.go_back(cx, end);
                    self.arm(cx, end, now + timeout);
                }
            }
            1 => self.repost(cx, end),
            5 => {
                let e = &self.ends[end as usize];
                if e.known < timer.b && e.allowed == timer.b {
                    self.tell(cx, end);
                }
            }
            3 | 4 => {
                let place = (end, timer.kind == 4, timer.b);
                self.coming.remove(&place);
                self.present.insert(place);
                cx.data_waits(end);
            }
            _ => cx.data_waits(end),
        }
    }
}

/// InfiniBand's count credits: 16 receives of 16 KiB for each end of a connection.
pub fn count_credits() -> Settings {
    Settings {
        gate: Gate::Count,
        buffer: 16 << 10,
        count: 16,
        least: 128,
        rnr: 10 * US,
        budget: None,
        copy: false,
        memory: None,
    }
}

/// Fixed-size credits: 32 buffers of 8 KiB for each end of a connection, copied out of.
pub fn fixed_credits() -> Settings {
    Settings {
        gate: Gate::Fixed,
        buffer: 8 << 10,
        count: 32,
        least: 128,
        rnr: 10 * US,
        budget: None,
        copy: true,
        memory: None,
    }
}

/// Eager sends into a queue shared by a host's connections: a quarter of what fixed buffers take.
pub fn shared_queue() -> Settings {
    Settings {
        gate: Gate::Shared,
        buffer: 8 << 10,
        count: 8,
        least: 128,
        rnr: 10 * US,
        budget: None,
        copy: true,
        memory: None,
    }
}
