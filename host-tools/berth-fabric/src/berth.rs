// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Berth: the state machines of `berth_protocol` at both ends of every connection.
//!
//! Announcer and taker make and use credit lists, requester and responder are the transport (selective
//! repeat), and a send takes a credit when its first byte is to leave. Lists travel as messages on a control
//! connection, which acknowledges them and sends them again; the card's processor works [`Settings::firmware`]
//! on each of them at both ends.
//!
//! A receive is pinned when it becomes a credit and until it is full (PC-1). With [`Settings::budget`] no more
//! than so many bytes are pinned in a host. Receives that find no room wait; of those that wait the one whose
//! connection has the fewest is granted first. When a connection has none at all, credits that others do not
//! use are recalled (PC-3, decision 19).

use crate::frames::{acknowledgement, request_bytes};
use crate::hosts::{Cx, Scheme, Timer};
use crate::net::{DATA, Packet, ROCE};
use crate::queued::{ACK, MTU};
use crate::time::{MS, NS, Time, US};
use berth_protocol::credit::announcer::{Announcer, Heard, Options};
use berth_protocol::credit::entry::{Body as EntryBody, Entry, Name};
use berth_protocol::credit::policy;
use berth_protocol::credit::taker::{Arrived, Taker};
use berth_protocol::rc::{
    Access, Admit, Event, Immediate, Message, Op, RequestPacket, Requester, RequesterConfig, Responder,
    ResponderConfig, ResponsePacket, Target, Verdict,
};
use slab::Slab;
use std::collections::{BTreeSet, VecDeque};

/// Credits that a sender keeps, and the longest list (decision 7).
const ROOM: usize = 64;
const LIST: usize = 32;
/// Unacknowledged packets, as the baselines have them, and pieces.
const WINDOW: usize = 128;
const PIECES: usize = 32;

/// A control message: RoCE headers and three words, then records.
pub const CONTROL: u32 = ROCE + 12;
/// Time-out of a control message.
const CONTROL_TIMEOUT: Time = 4 * MS;
/// How often a host whose receives wait for budget looks for credits that are not used.
const RECALL: Time = 50 * US;

/// The policy that question 2 found best.
pub const POLICY: policy::Settings = policy::Settings::of(policy::Kind::InBand);

/// Measures.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sizes of the receives that each end keeps posted, in order.
    pub receives: Vec<u32>,
    /// Receives that the application posts again with one doorbell.
    pub batch: usize,
    /// When the next list goes.
    pub policy: policy::Settings,
    /// Time that the card's processor takes for a control message that it makes or reads.
    pub firmware: Time,
    /// Bytes that a host may have pinned for receives: for each end of a connection, and at most.
    pub budget: Option<(u64, u64)>,
}

impl Default for Settings {
    /// 16 receives of 16 KiB, as InfiniBand's count credits have them; 1 µs, which is 250 instructions.
    fn default() -> Self {
        Self { receives: vec![16 << 10; 16], batch: 1, policy: POLICY, firmware: US, budget: None }
    }
}

/// What packets say.
pub enum Body {
    /// A packet of the requester.
    Request(RequestPacket),
    /// A packet of the responder.
    Response(ResponsePacket),
    /// A message on the control connection.
    Control(u64, Box<Entry<LIST>>),
    /// Its acknowledgement.
    ControlAck(u64),
}

/// A receive that is a credit.
struct Receive {
    number: u32,
    size: u32,
}

struct End {
    announcer: Announcer<ROOM, LIST, 32>,
    taker: Taker<ROOM, LIST, 32>,
    requester: Requester<24, WINDOW, PIECES>,
    responder: Responder<24, WINDOW, 1>,
    /// Bytes that the application has sent, and those of them that are cut into pieces.
    posted: u64,
    cut: u64,
    /// Messages of which bytes are not yet cut into pieces: (number, bytes left).
    waiting: VecDeque<(u32, u32)>,
    /// Messages under way to here: (number, bytes that are still to come).
    coming: VecDeque<(u32, u32)>,
    /// Its place in the host's line.
    turn: u64,
    /// Receives announced or to be, oldest first.
    receives: VecDeque<Receive>,
    /// Sizes of receives that the application is done with and has not posted again.
    used: Vec<u32>,
    /// Sizes of receives that the application has posted and that wait for budget.
    ungranted: VecDeque<u32>,
    timeout_at: Time,
    announce_at: Time,
    idle_since: Option<Time>,
    /// Credits landed when the host last looked for unused ones.
    landed_before: u32,
}

impl End {
    fn new(end: u32, settings: &Settings, timeout: Time) -> Self {
        let options = Options {
            max_list: LIST as u32,
            part: LIST as u32,
            // The control connection is reliable, so nothing is repeated above it.
            repeat: 1 << 40,
            few: 0,
            probe: 0,
            policy: settings.policy,
            cap: None,
        };
        let log2_mtu = MTU.ilog2() as u8;
        let timeout = (timeout / NS) as u32;
        let config = RequesterConfig { tick: 10_000, ..RequesterConfig::berth(log2_mtu, WINDOW as u16, timeout) };
        let mut responder = ResponderConfig::berth(log2_mtu);
        responder.ack_every = 16;
        let mut announcer = Announcer::new(&options);
        let mut taker = Taker::new();
        let (own, peer) = (name(end), name(end ^ 1));
        announcer.connect(0, own, peer);
        taker.connect(own, peer);
        Self {
            announcer,
            taker,
            requester: Requester::new(config, 0),
            responder: Responder::new(responder, 0, 0),
            posted: 0,
            cut: 0,
            waiting: VecDeque::new(),
            coming: VecDeque::new(),
            turn: 0,
            receives: VecDeque::new(),
            used: Vec::new(),
            ungranted: VecDeque::new(),
            timeout_at: 0,
            announce_at: 0,
            idle_since: None,
            landed_before: 0,
        }
    }
}

fn name(end: u32) -> Name {
    Name { qpn: end & 0xffff, epoch: end }
}

/// The receives as the responder sees them.
struct Receives<'a> {
    announced: u32,
    receives: &'a VecDeque<Receive>,
}

impl Target for Receives<'_> {
    fn credit(&self, number: u32) -> Option<u32> {
        let first = self.receives.front()?.number;
        let receive = self.receives.get(number.wrapping_sub(first) as usize)?;
        (self.announced.wrapping_sub(number) as i32 > 0).then_some(receive.size)
    }
    fn access(&mut self, _: &Access) -> Admit {
        Admit::No
    }
}

struct Pinned {
    bytes: u64,
    budget: u64,
    /// Ends with receives that wait: (receives that it has, since when in comparison, end).
    line: BTreeSet<(u32, u64, u32)>,
    /// Ends of this host, for recalls in turn.
    ends: Vec<u32>,
    next: usize,
    timer: bool,
}

/// The scheme.
pub struct Berth {
    settings: Settings,
    ends: Vec<End>,
    pinned: Vec<Pinned>,
    /// Control messages that are made, on their way, or not acknowledged.
    control: Slab<(u64, u32, Entry<LIST>)>,
    /// Control messages that have arrived and are to be read.
    arrived: Slab<(u32, Entry<LIST>)>,
    serial: u64,
    turns: u64,
    /// Entries that the peer did not take; there must be none.
    pub refused: u64,
}

/// The application is done with a buffer.
const APP: u8 = 0;
/// A control message is made.
const MADE: u8 = 1;
/// A control message is to be read.
const READ: u8 = 2;
/// A control message is not acknowledged.
const AGAIN: u8 = 3;
/// The requester's time-out.
const TIMEOUT: u8 = 4;
/// The announcer wants to be asked.
const ANNOUNCE: u8 = 5;
/// Receives wait for budget.
const SHORT: u8 = 6;

impl Berth {
    /// Without connections.
    pub fn new(settings: Settings) -> Self {
        let (control, arrived) = (Slab::new(), Slab::new());
        Self { settings, ends: Vec::new(), pinned: Vec::new(), control, arrived, serial: 0, turns: 0, refused: 0 }
    }

    /// The application posts receives, with one doorbell.
    fn post_receives(&mut self, cx: &mut Cx<Body>, end: u32, sizes: &[u32]) {
        let host = cx.host(end);
        let e = &mut self.ends[end as usize];
        let waited = !e.ungranted.is_empty();
        e.ungranted.extend(sizes);
        if !waited {
            self.turns += 1;
            e.turn = self.turns;
            self.pinned[host as usize].line.insert((e.receives.len() as u32, e.turn, end));
        }
        self.grant(cx, host);
    }

    /// The end had `before` receives: its place in the line changes. An end that was granted something goes behind
    /// others with as many.
    fn moved(&mut self, host: u32, end: u32, before: usize) {
        let e = &mut self.ends[end as usize];
        let line = &mut self.pinned[host as usize].line;
        line.remove(&(before as u32, e.turn, end));
        if !e.ungranted.is_empty() {
            if e.receives.len() > before {
                self.turns += 1;
                e.turn = self.turns;
            }
            line.insert((e.receives.len() as u32, e.turn, end));
        }
    }

    /// Pins receives as far as the budget goes: of the connection that has the fewest first.
    fn grant(&mut self, cx: &mut Cx<Body>, host: u32) {
        // A batch is announced when all of it is pinned, or as much as there is room for (decision 5).
        let mut granted = None;
        while let Some(&(held, _, end)) = self.pinned[host as usize].line.first() {
            let pinned = &mut self.pinned[host as usize];
            let e = &mut self.ends[end as usize];
            let size = e.ungranted.front().copied().unwrap_or(0);
            if pinned.bytes + u64::from(size) > pinned.budget {
                if let Some(end) = granted {
                    self.announce(cx, end);
                }
                let pinned = &mut self.pinned[host as usize];
                if held == 0 && !pinned.timer {
                    pinned.timer = true;
                    let at = cx.now() + RECALL;
                    cx.timer(at, SHORT, host, 0);
                }
                return;
            }
            let number = e.announcer.post(size);
            e.ungranted.pop_front();
            if let Some(number) = number {
                pinned.bytes += u64::from(size);
                e.receives.push_back(Receive { number, size });
                e.announcer.commit();
                cx.commit(i64::from(size));
            }
            self.moved(host, end, held as usize);
            if let Some(before) = granted.replace(end).filter(|&before| before != end) {
                self.announce(cx, before);
            }
        }
        if let Some(end) = granted {
            self.announce(cx, end);
        }
    }

    /// Sends the lists and recalls that are due.
    fn announce(&mut self, cx: &mut Cx<Body>, end: u32) {
        let now = cx.now() / NS;
        while let Some(entry) = self.ends[end as usize].announcer.poll(now) {
            self.control_message(cx, end, entry);
        }
        let e = &mut self.ends[end as usize];
        if let Some(at) = e.announcer.deadline(now) {
            let at = (at.max(now + 1)).saturating_mul(NS);
            if e.announce_at <= cx.now() || at < e.announce_at {
                e.announce_at = at;
                cx.timer(at, ANNOUNCE, end, 0);
            }
        }
    }

    fn control_message(&mut self, cx: &mut Cx<Body>, end: u32, entry: Entry<LIST>) {
        let host = cx.host(end);
        self.serial += 1;
        let key = self.control.insert((self.serial, end, entry));
        let at = cx.firmware(host, self.settings.firmware);
        cx.timer(at, MADE, end, key as u64);
    }

    fn send_control(&mut self, cx: &mut Cx<Body>, key: u64) {
        let Some((serial, end, entry)) = self.control.get(key as usize) else { return };
        let bytes = CONTROL + 4 * entry.words() as u32;
        cx.stats.flow.packets += 1;
        cx.stats.flow.bytes += u64::from(bytes);
        // The control connection's own number, so that an acknowledgement of an earlier message is not taken for this one's.
        let number = *serial << 24 | key;
        let packet = cx.packet(*end, bytes, 0, Body::Control(number, Box::new(*entry)));
        let serial = *serial;
        cx.control(packet);
        let at = cx.now() + CONTROL_TIMEOUT;
        cx.timer(at, AGAIN, serial as u32, key);
    }

    fn arm(&mut self, cx: &mut Cx<Body>, end: u32) {
        let e = &mut self.ends[end as usize];
        if let Some(at) = e.requester.deadline() {
            let at = at.saturating_mul(NS);
            // A time-out that moves on is looked at when the earlier time comes.
            if e.timeout_at <= cx.now() {
                e.timeout_at = at.max(cx.now() + 1);
                let at = e.timeout_at;
                cx.timer(at, TIMEOUT, end, 0);
            }
        }
    }

    fn request(&mut self, cx: &mut Cx<Body>, end: u32, packet: &RequestPacket) {
        let now = cx.now() / NS;
        let host = cx.host(end);
        let e = &mut self.ends[end as usize];
        let (_, announced, _) = e.announcer.builder().numbers();
        match e.responder.receive(packet, &mut Receives { announced, receives: &e.receives }) {
            Verdict::Place(_) => e.responder.placed(packet.psn),
            Verdict::Drop(fault) => {
                assert!(e.responder.broken().is_none(), "end {end}: {fault:?}");
            }
            Verdict::Taken | Verdict::Duplicate => (),
        }
        while let Some(event) = e.responder.event() {
            match event {
                Event::Landed { .. } => {
                    e.announcer.landed(now, None);
                }
                Event::Received { len, imm, .. } => {
                    if let Some(remaining) = imm {
                        e.announcer.remaining(remaining);
                    }
                    let before = e.receives.len();
                    let Some(receive) = e.receives.pop_front() else { continue };
                    if self.pinned[host as usize].line.remove(&(before as u32, e.turn, end)) {
                        self.pinned[host as usize].line.insert((before as u32 - 1, e.turn, end));
                    }
                    e.announcer.wasted(now, receive.size - len);
                    self.pinned[host as usize].bytes -= u64::from(receive.size);
                    cx.commit(-i64::from(receive.size));
                    let at = cx.serve(host, len, false);
                    cx.timer(at, APP, end, u64::from(receive.size));
                    let mut left = len;
                    while let Some((message, bytes)) = e.coming.front_mut() {
                        let part = left.min(*bytes);
                        *bytes -= part;
                        left -= part;
                        if *bytes > 0 {
                            break;
                        }
                        let message = *message;
                        e.coming.pop_front();
                        let at = cx.now();
                        cx.done(at, message);
                        if left == 0 {
                            break;
                        }
                    }
                }
                _ => (),
            }
        }
        cx.ack_waits(end);
        self.announce(cx, end);
        if self.settings.budget.is_some() {
            self.grant(cx, host);
        }
    }

    fn entry(&mut self, cx: &mut Cx<Body>, end: u32, entry: &Entry<LIST>) {
        let host = cx.host(end);
        let e = &mut self.ends[end as usize];
        if matches!(entry.body, EntryBody::Recalled { .. } | EntryBody::Sync { .. }) {
            if let Heard::Voided(first) = e.announcer.hear(entry) {
                // These receives wait again.
                let before = e.receives.len();
                while e.receives.back().is_some_and(|r| r.number.wrapping_sub(first) as i32 >= 0) {
                    let Some(receive) = e.receives.pop_back() else { break };
                    let pinned = &mut self.pinned[host as usize];
                    pinned.bytes -= u64::from(receive.size);
                    cx.commit(-i64::from(receive.size));
                    e.ungranted.push_front(receive.size);
                }
                self.moved(host, end, before);
                self.grant(cx, host);
                self.announce(cx, end);
            }
            return;
        }
        match e.taker.accept(entry) {
            Arrived::Buffered | Arrived::Repeat | Arrived::Stale | Arrived::Recalled => (),
            _ => self.refused += 1,
        }
        let e = &mut self.ends[end as usize];
        if let Some(answer) = e.taker.poll() {
            self.control_message(cx, end, answer);
        }
        cx.data_waits(end);
    }

    /// Takes back credits that were not used since the last look, while a connection has none: from ends with several
    /// all but one, else the single one.
    fn recall(&mut self, cx: &mut Cx<Body>, host: u32) {
        /// As many as the processor can do until the next look.
        const MOST: u32 = 8;
        let count = self.pinned[host as usize].ends.len();
        let mut recalled = 0;
        let mut single = Vec::new();
        for _ in 0..count {
            let pinned = &mut self.pinned[host as usize];
            let end = pinned.ends[pinned.next % count];
            pinned.next += 1;
            let e = &mut self.ends[end as usize];
            let (_, announced, landed) = e.announcer.builder().numbers();
            let unused = landed == e.landed_before;
            e.landed_before = landed;
            let n = announced.wrapping_sub(landed);
            if !unused || n == 0 || e.announcer.recalling() {
                continue;
            }
            if n == 1 {
                single.push(end);
            } else if e.announcer.recall(n - 1) {
                recalled += 1;
                self.announce(cx, end);
            }
            if recalled >= MOST {
                return;
            }
        }
        for end in single.into_iter().take(MOST as usize) {
            if recalled < MOST && self.ends[end as usize].announcer.recall(1) {
                recalled += 1;
                self.announce(cx, end);
            }
        }
    }
}

impl Scheme for Berth {
    type Body = Body;

    fn start(&mut self, cx: &mut Cx<Body>) {
        let hosts = cx.net.spec().hosts as usize;
        self.pinned = (0..hosts)
            .map(|_| Pinned {
                bytes: 0,
                budget: u64::MAX,
                line: BTreeSet::new(),
                ends: Vec::new(),
                next: 0,
                timer: false,
            })
            .collect();
        let ends = cx.conns.len() as u32 * 2;
        let timeout = cx.net.spec().timeout();
        self.ends = (0..ends).map(|end| End::new(end, &self.settings, timeout)).collect();
        for end in 0..ends {
            self.pinned[cx.host(end) as usize].ends.push(end);
        }
        let sizes = self.settings.receives.clone();
        if let Some((each, most)) = self.settings.budget {
            for pinned in &mut self.pinned {
                pinned.budget = (pinned.ends.len() as u64 * each).min(most);
            }
        }
        if self.settings.budget.is_some() {
            // One receive of each connection after the other.
            for size in sizes {
                for end in 0..ends {
                    self.post_receives(cx, end, &[size]);
                }
            }
            return;
        }
        for end in 0..ends {
            // One batch (decision 5): one list.
            let e = &mut self.ends[end as usize];
            for &size in &sizes {
                if let Some(number) = e.announcer.post(size) {
                    e.receives.push_back(Receive { number, size });
                }
            }
            e.announcer.commit();
            let bytes: u64 = e.receives.iter().map(|r| u64::from(r.size)).sum();
            self.pinned[cx.host(end) as usize].bytes += bytes;
            cx.commit(bytes as i64);
            self.announce(cx, end);
        }
    }

    fn post(&mut self, cx: &mut Cx<Body>, end: u32, message: u32) {
        let bytes = cx.messages[message as usize].bytes;
        let e = &mut self.ends[end as usize];
        e.waiting.push_back((message, bytes));
        e.posted += u64::from(bytes);
        e.requester.posted(e.posted);
        self.ends[end as usize ^ 1].coming.push_back((message, bytes));
        cx.data_waits(end);
    }

    fn data(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let now = cx.now();
        let e = &mut self.ends[end as usize];
        let transmit = loop {
            if let Some(transmit) = e.requester.transmit(now / NS) {
                break transmit;
            }
            if e.requester.has_new() || e.requester.room() == 0 {
                return None;
            }
            let (message, left) = e.waiting.front_mut()?;
            let Some((cut, credit, _)) = e.taker.take(*left) else {
                e.idle_since.get_or_insert(now);
                return None;
            };
            if let Some(since) = e.idle_since.take() {
                cx.stats.idle += now - since;
            }
            *left -= cut;
            e.cut += u64::from(cut);
            let piece = Message {
                op: Op::Send,
                tag: *message,
                len: cut,
                credit,
                imm: Immediate::Remaining,
                ..Message::default()
            };
            if *left == 0 {
                e.waiting.pop_front();
            }
            // There is room, as seen above.
            e.requester.post(piece).ok()?;
        };
        if transmit.again {
            cx.stats.again += 1;
        }
        let packet = transmit.packet;
        self.arm(cx, end);
        Some(cx.packet(end, request_bytes(&packet), DATA, Body::Request(packet)))
    }

    fn ack(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let reply = self.ends[end as usize].responder.respond()?;
        Some(acknowledgement(cx, end, reply.packet, Body::Response))
    }

    fn receive(&mut self, cx: &mut Cx<Body>, packet: Packet<Body>) {
        // The packet's flow is the end that sent it.
        let end = packet.flow ^ 1;
        match packet.body {
            Body::Request(request) => self.request(cx, end, &request),
            Body::Response(response) => {
                let now = cx.now() / NS;
                let e = &mut self.ends[end as usize];
                e.requester.response(now, &response);
                while e.requester.complete().is_some() {}
                self.arm(cx, end);
                cx.data_waits(end);
            }
            Body::Control(number, entry) => {
                cx.stats.acks.packets += 1;
                cx.stats.acks.bytes += u64::from(ACK);
                let ack = cx.packet(end, ACK, 0, Body::ControlAck(number));
                cx.control(ack);
                let key = self.arrived.insert((end, *entry));
                let at = cx.firmware(packet.to, self.settings.firmware);
                cx.timer(at, READ, end, key as u64);
            }
            Body::ControlAck(number) => {
                let key = (number & 0xff_ffff) as usize;
                if self.control.get(key).is_some_and(|c| c.0 == number >> 24) {
                    self.control.remove(key);
                }
            }
        }
    }

    fn timer(&mut self, cx: &mut Cx<Body>, timer: Timer) {
        let now = cx.now();
        let end = timer.a;
        match timer.kind {
            APP => {
                let e = &mut self.ends[end as usize];
                e.used.push(timer.b as u32);
                if e.used.len() >= self.settings.batch {
                    let sizes = std::mem::take(&mut e.used);
                    self.post_receives(cx, end, &sizes);
                }
            }
            MADE => self.send_control(cx, timer.b),
            READ => {
                let (end, entry) = self.arrived.remove(timer.b as usize);
                self.entry(cx, end, &entry);
            }
            AGAIN => {
                if self.control.get(timer.b as usize).is_some_and(|c| c.0 as u32 == timer.a) {
                    self.send_control(cx, timer.b);
                }
            }
            TIMEOUT => {
                let e = &mut self.ends[end as usize];
                e.timeout_at = 0;
                if e.requester.deadline().is_some_and(|at| at.saturating_mul(NS) <= now) {
                    e.requester.tick(now / NS);
                    cx.data_waits(end);
                }
                self.arm(cx, end);
            }
            ANNOUNCE => {
                if self.ends[end as usize].announce_at <= now {
                    self.announce(cx, end);
                }
            }
            _ => {
                let host = timer.a;
                self.pinned[host as usize].timer = false;
                self.recall(cx, host);
                self.grant(cx, host);
            }
        }
    }
}
