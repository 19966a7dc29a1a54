// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Berth with its memory: virtual contexts and pinned pages of `berth_protocol` at both ends, for question 3.
//!
//! A receive becomes a credit when its pages are pinned (PC-1); a send's blocks are asked for as soon as a credit
//! covers them (PC-2) and released when their last packet has left (VC-3). The fabric here loses nothing, so nothing is
//! sent again.

use crate::berth::{Body, CONTROL, POLICY};
use crate::frames::{ack_bytes, request_bytes};
use crate::hosts::{Cx, Scheme, Timer};
use crate::net::{DATA, Packet};
use crate::queued::{MTU, service};
use crate::time::{NS, Time, US};
use berth_protocol::credit::announcer::{Announcer, Options};
use berth_protocol::credit::entry::{Entry, Name};
use berth_protocol::credit::taker::Taker;
use berth_protocol::memory::blocks::{self, Action, Outcome, Sender, Transmit};
use berth_protocol::memory::context::{Again, Choice, First, Place, Policy, Span};
use berth_protocol::memory::pins::{self, Answer, Pins, Request, Served, Usage};
use berth_protocol::rc::{
    Access, Admit, Event, Immediate, Message, Op, RequestPacket, Requester, RequesterConfig, Responder,
    ResponderConfig, Target, Verdict,
};
use slab::Slab;
use std::collections::VecDeque;

const LIST: usize = 32;
const WINDOW: usize = 128;
/// Pages that a host's table has places for.
pub const PAGES: usize = 8192;
/// Bytes of a block.
const BLOCK: u32 = 64 << 10;

/// Measures.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a receive; a message is no longer.
    pub buffer: u32,
    /// Receives of each end.
    pub count: u32,
    /// Places of `buffer` bytes that sends, and receives, of a connection go through.
    pub places: u64,
    /// Time from a request for pages to their presence.
    pub latency: Time,
    /// Pages that a host may have pinned.
    pub budget: u32,
    /// Time that pages stay pinned after their last use.
    pub linger: Time,
}

struct Receive {
    /// The connection's number of it; its place follows from it.
    serial: u64,
    held: bool,
    /// Credit number, when it is one.
    credit: Option<u32>,
}

struct End {
    announcer: Announcer<64, LIST, 32>,
    taker: Taker<64, LIST, 32>,
    requester: Requester<24, WINDOW, 64>,
    responder: Responder<24, WINDOW, 1>,
    vc: Sender<64, 64, 32>,
    /// Messages that the chain of contexts had no room for.
    unposted: VecDeque<u32>,
    /// Messages posted, their numbers and sizes, not yet cut.
    waiting: VecDeque<(u32, u32)>,
    coming: VecDeque<(u32, u32)>,
    /// Lengths of pieces that credits cover and that are not begun; credits looked at for them.
    pieces: VecDeque<u32>,
    covered: u32,
    /// Bytes left of the piece under way, and the stream offset of the next packet.
    left: u32,
    pos: u64,
    cut: u64,
    acked: u64,
    sends: u64,
    receives: VecDeque<Receive>,
    posted: u64,
    stalled_since: Option<Time>,
    announce_at: Time,
}

/// The scheme.
pub struct Pinned {
    settings: Settings,
    ends: Vec<End>,
    pins: Vec<Pins<PAGES, 1, 512>>,
    cores: Vec<Time>,
    control: Slab<Entry<LIST>>,
    services: Slab<Request>,
    committed: Vec<u64>,
    expiry: Vec<Time>,
    /// Times that a packet waited for a page although a credit and the window allowed it, and for how long.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled: Time,
}

/// Tags of receives, against those of send blocks.
const RECEIVE: u16 = 0x8000;

const APP: u8 = 0;
const MADE: u8 = 1;
const READ: u8 = 2;
const SERVED: u8 = 3;
const SENT: u8 = 4;
const EXPIRE: u8 = 5;
const ANNOUNCE: u8 = 6;

struct Credits<'a>(&'a VecDeque<Receive>, u32);

impl Target for Credits<'_> {
    fn credit(&self, number: u32) -> Option<u32> {
        self.0.iter().any(|r| r.credit == Some(number)).then_some(self.1)
    }
    fn access(&mut self, _: &Access) -> Admit {
        Admit::No
    }
}

impl Pinned {
    /// Without connections.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ends: Vec::new(),
            pins: Vec::new(),
            cores: Vec::new(),
            control: Slab::new(),
            services: Slab::new(),
            committed: Vec::new(),
            expiry: Vec::new(),
            stalls: 0,
            stalled: 0,
        }
    }

    /// Virtual address of place number `number` of an end.
    fn va(&self, end: u32, receive: bool, number: u64) -> u64 {
        let region = (u64::from(end) << 33) + (u64::from(receive) << 32);
        region + number % self.settings.places * u64::from(self.settings.buffer)
    }

    fn spans(&self, request: &Request) -> Vec<Span> {
        let end = request.owner;
        if request.tag & RECEIVE != 0 {
            let e = &self.ends[end as usize];
            let serial = e.receives.iter().map(|r| r.serial).find(|s| tag(*s) == request.tag);
            return serial.map(|s| Span { va: self.va(end, true, s), len: self.settings.buffer }).into_iter().collect();
        }
        let vc = &self.ends[end as usize].vc;
        vc.block(request.tag).map(|(start, len, _)| vc.spans(start, len).collect()).unwrap_or_default()
    }

    /// Pinned bytes of a host have changed.
    fn account(&mut self, cx: &mut Cx<Body>, host: usize) {
        let bytes = self.pins[host].pinned_bytes();
        cx.commit(bytes as i64 - self.committed[host] as i64);
        self.committed[host] = bytes;
    }

    fn acquire(&mut self, cx: &mut Cx<Body>, request: Request) {
        let host = cx.host(request.owner) as usize;
        let spans = self.spans(&request);
        let writing = request.tag & RECEIVE != 0;
        match self.pins[host].acquire(&request, spans.iter().copied(), writing) {
            Answer::Hit => self.answer(cx, request, Outcome::Held),
            Answer::Serve { pages } => {
                let at = service(&mut self.cores[host], cx.now(), pages << 12, self.settings.latency);
                let key = self.services.insert(request);
                cx.timer(at, SERVED, request.owner, key as u64);
            }
            Answer::Wait => self.answer(cx, request, Outcome::Waits),
            Answer::Refused(error) => panic!("{request:?}: {error:?}"),
        }
        self.account(cx, host);
    }

    fn answer(&mut self, cx: &mut Cx<Body>, request: Request, outcome: Outcome) {
        let end = request.owner;
        let e = &mut self.ends[end as usize];
        if request.tag & RECEIVE == 0 {
            e.vc.answer(request.tag, outcome);
            cx.data_waits(end);
            return;
        }
        if outcome != Outcome::Held {
            return;
        }
        if let Some(receive) = e.receives.iter_mut().find(|r| tag(r.serial) == request.tag) {
            receive.held = true;
        }
        // Credits in the order in which the receives were posted.
        let size = self.settings.buffer;
        for receive in &mut e.receives {
            if receive.credit.is_some() {
                continue;
            }
            if !receive.held {
                break;
            }
            receive.credit = e.announcer.post(size);
        }
        e.announcer.commit();
        self.announce(cx, end);
    }

    fn release(&mut self, cx: &mut Cx<Body>, request: Request, spans: &[Span]) {
        let host = cx.host(request.owner) as usize;
        let now = cx.now() / NS;
        assert!(self.pins[host].release(&request, spans.iter().copied(), now), "{request:?} was not held");
        self.account(cx, host);
        while let Some(waiting) = self.pins[host].retry() {
            self.acquire(cx, waiting);
        }
        if let Some(at) = self.pins[host].next_expiry() {
            let at = at.saturating_mul(NS).max(cx.now());
            if self.expiry[host] <= cx.now() {
                self.expiry[host] = at.max(cx.now() + US);
                let at = self.expiry[host];
                cx.timer(at, EXPIRE, host as u32, 0);
            }
        }
    }

    /// Requests of the contexts to the host.
    fn blocks(&mut self, cx: &mut Cx<Body>, end: u32) {
        while let Some(action) = self.ends[end as usize].vc.poll() {
            let request = |tag, usage| Request { owner: end, tag, asid: 1, usage };
            match action {
                Action::Pin { tag, usage, .. } => self.acquire(cx, request(tag, usage)),
                Action::Release { tag, start, len, usage } => {
                    let spans: Vec<Span> = self.ends[end as usize].vc.spans(start, len).collect();
                    self.release(cx, request(tag, usage), &spans);
                }
                Action::Cancel { tag, usage } => {
                    self.pins[cx.host(end) as usize].cancel(&request(tag, usage));
                }
                Action::Copy { .. } => panic!("nothing is copied here"),
            }
        }
    }

    /// Offers credits that have arrived to the contexts (PC-2).
    fn cover(&mut self, cx: &mut Cx<Body>, end: u32) {
        let places = self.settings.places;
        let e = &mut self.ends[end as usize];
        while let Some(&message) = e.unposted.front() {
            let bytes = cx.messages[message as usize].bytes;
            let place = (u64::from(end) << 33) + (e.sends % places) * u64::from(self.settings.buffer);
            if e.vc.post(&[Place::at(place, bytes)], None).is_err() {
                break;
            }
            e.unposted.pop_front();
            e.sends += 1;
            e.waiting.push_back((message, bytes));
        }
        // Credits of begun pieces are no longer in the reader.
        while let Some((_, size)) = e.taker.reader().peek(e.covered) {
            let Some(len) = e.vc.cover(size) else { break };
            e.covered += 1;
            e.pieces.push_back(len);
        }
        self.blocks(cx, end);
    }

    fn post_receive(&mut self, cx: &mut Cx<Body>, end: u32) {
        let e = &mut self.ends[end as usize];
        let serial = e.posted;
        e.posted += 1;
        e.receives.push_back(Receive { serial, held: false, credit: None });
        self.acquire(cx, Request { owner: end, tag: tag(serial), asid: 1, usage: Usage::Lasting });
    }

    fn announce(&mut self, cx: &mut Cx<Body>, end: u32) {
        let now = cx.now() / NS;
        while let Some(entry) = self.ends[end as usize].announcer.poll(now) {
            let key = self.control.insert(entry);
            let at = cx.firmware(cx.host(end), US);
            cx.timer(at, MADE, end, key as u64);
        }
        let e = &mut self.ends[end as usize];
        if let Some(at) = e.announcer.deadline(now) {
            let at = at.max(now + 1).saturating_mul(NS);
            if e.announce_at <= cx.now() || at < e.announce_at {
                e.announce_at = at;
                cx.timer(at, ANNOUNCE, end, 0);
            }
        }
    }

    fn request(&mut self, cx: &mut Cx<Body>, end: u32, packet: &RequestPacket) {
        let now = cx.now() / NS;
        let size = self.settings.buffer;
        let e = &mut self.ends[end as usize];
        match e.responder.receive(packet, &mut Credits(&e.receives, size)) {
            Verdict::Place(_) => e.responder.placed(packet.psn),
            verdict => panic!("end {end}: {verdict:?} in a fabric that loses nothing"),
        }
        while let Some(event) = self.ends[end as usize].responder.event() {
            let e = &mut self.ends[end as usize];
            match event {
                Event::Landed { .. } => {
                    e.announcer.landed(now, None);
                }
                Event::Received { len, imm, .. } => {
                    if let Some(remaining) = imm {
                        e.announcer.remaining(remaining);
                    }
                    let Some(receive) = e.receives.pop_front() else { continue };
                    let at = cx.serve(cx.host(end), len, false);
                    cx.timer(at, APP, end, 0);
                    if let Some((message, left)) = e.coming.front_mut() {
                        *left -= len;
                        if *left == 0 {
                            let message = *message;
                            e.coming.pop_front();
                            let at = cx.now();
                            cx.done(at, message);
                        }
                    }
                    let spans = [Span { va: self.va(end, true, receive.serial), len: size }];
                    let request = Request { owner: end, tag: tag(receive.serial), asid: 1, usage: Usage::Lasting };
                    self.release(cx, request, &spans);
                }
                _ => (),
            }
        }
        cx.ack_waits(end);
        self.announce(cx, end);
    }
}

fn tag(serial: u64) -> u16 {
    RECEIVE | (serial & 0x7fff) as u16
}

impl Scheme for Pinned {
    type Body = Body;

    fn start(&mut self, cx: &mut Cx<Body>) {
        let hosts = cx.net.spec().hosts as usize;
        let Settings { budget, linger, count, .. } = self.settings;
        let linger = linger / NS;
        let config = pins::Config { budget, reserve: BLOCK >> 12, lend: false, page_shift: 12, linger };
        self.pins = (0..hosts).map(|_| Pins::new(config)).collect();
        for pins in &mut self.pins {
            assert!(pins.open(1, budget));
        }
        self.cores = vec![0; hosts];
        self.committed = vec![0; hosts];
        self.expiry = vec![0; hosts];
        let log2_mtu = MTU.ilog2() as u8;
        let choice = Choice::Fixed(Policy { first: First::Pin, again: Again::Pin });
        // Blocks are asked for as far ahead as credits reach.
        let config = blocks::Config { mtu: MTU, block: BLOCK, window: 1 << 30, copy_room: 0, choice };
        for end in 0..cx.conns.len() as u32 * 2 {
            let mut responder = ResponderConfig::berth(log2_mtu);
            responder.ack_every = 16;
            let options = Options { repeat: 1 << 40, policy: POLICY, ..Options::default() };
            let mut e = End {
                announcer: Announcer::new(&options),
                taker: Taker::new(),
                requester: Requester::new(RequesterConfig::berth(log2_mtu, WINDOW as u16, 100_000_000), 0),
                responder: Responder::new(responder, 0, 0),
                vc: Sender::new(config, 0),
                unposted: VecDeque::new(),
                waiting: VecDeque::new(),
                coming: VecDeque::new(),
                pieces: VecDeque::new(),
                covered: 0,
                left: 0,
                pos: 0,
                cut: 0,
                acked: 0,
                sends: 0,
                receives: VecDeque::new(),
                posted: 0,
                stalled_since: None,
                announce_at: 0,
            };
            let name = |end: u32| Name { qpn: end & 0xffff, epoch: end };
            e.announcer.connect(0, name(end), name(end ^ 1));
            e.taker.connect(name(end), name(end ^ 1));
            self.ends.push(e);
        }
        // Data flows from first to second ends.
        for end in (1..self.ends.len() as u32).step_by(2) {
            for _ in 0..count {
                self.post_receive(cx, end);
            }
        }
    }

    fn post(&mut self, cx: &mut Cx<Body>, end: u32, message: u32) {
        let bytes = cx.messages[message as usize].bytes;
        self.ends[end as usize].unposted.push_back(message);
        self.ends[end as usize ^ 1].coming.push_back((message, bytes));
        self.cover(cx, end);
        cx.data_waits(end);
    }

    fn data(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let now = cx.now();
        let e = &mut self.ends[end as usize];
        if e.requester.window().flight() >= WINDOW as u32 {
            return None;
        }
        if e.left == 0 {
            if e.requester.room() == 0 {
                return None;
            }
            let len = *e.pieces.front()?;
            let (message, left) = e.waiting.front_mut()?;
            let (cut, credit, _) = e.taker.take(*left)?;
            assert_eq!(cut, len, "contexts and reader cut differently");
            e.pieces.pop_front();
            e.covered -= 1;
            let imm = Immediate::Remaining;
            let piece = Message { op: Op::Send, tag: *message, offset: e.cut, len, credit, imm, ..Message::default() };
            *left -= len;
            if *left == 0 {
                e.waiting.pop_front();
            }
            e.requester.post(piece).ok()?;
            e.cut += u64::from(len);
            e.left = len;
        }
        let len = e.left.min(MTU);
        let block = match e.vc.transmit(e.pos, len) {
            Transmit::Ready { tag, .. } => tag,
            Transmit::Waits => {
                if e.stalled_since.is_none() {
                    e.stalled_since = Some(now);
                    self.stalls += 1;
                }
                self.blocks(cx, end);
                return None;
            }
            other => panic!("end {end}: {other:?} at {}", self.ends[end as usize].pos),
        };
        if let Some(since) = e.stalled_since.take() {
            self.stalled += now - since;
        }
        let transmit = e.requester.transmit(now / NS)?;
        assert_eq!((transmit.offset, transmit.packet.len, transmit.again), (e.pos, len, false));
        e.pos += u64::from(len);
        e.left -= len;
        let packet = transmit.packet;
        let bytes = request_bytes(&packet);
        let gone = now + Time::from(bytes) * cx.net.spec().ps_per_byte();
        cx.timer(gone, SENT, end, u64::from(block));
        Some(cx.packet(end, bytes, DATA, Body::Request(packet)))
    }

    fn ack(&mut self, cx: &mut Cx<Body>, end: u32) -> Option<Packet<Body>> {
        let reply = self.ends[end as usize].responder.respond()?;
        Some(cx.packet(end, ack_bytes(&reply.packet), 0, Body::Response(reply.packet)))
    }

    fn receive(&mut self, cx: &mut Cx<Body>, packet: Packet<Body>) {
        let end = packet.flow ^ 1;
        match packet.body {
            Body::Request(request) => self.request(cx, end, &request),
            Body::Response(response) => {
                let now = cx.now() / NS;
                let e = &mut self.ends[end as usize];
                e.requester.response(now, &response);
                while let Some(done) = e.requester.complete() {
                    e.acked += u64::from(done.len);
                }
                e.vc.acknowledged(e.acked);
                self.cover(cx, end);
                cx.data_waits(end);
            }
            Body::Control(_, entry) => {
                let key = self.control.insert(*entry);
                let at = cx.firmware(packet.to, US);
                cx.timer(at, READ, end, key as u64);
            }
            Body::ControlAck(_) => (),
        }
    }

    fn timer(&mut self, cx: &mut Cx<Body>, timer: Timer) {
        let end = timer.a;
        match timer.kind {
            APP => self.post_receive(cx, end),
            MADE => {
                let entry = self.control.remove(timer.b as usize);
                let bytes = CONTROL + 4 * entry.words() as u32;
                let packet = cx.packet(end, bytes, 0, Body::Control(0, Box::new(entry)));
                cx.control(packet);
            }
            READ => {
                let entry = self.control.remove(timer.b as usize);
                self.ends[end as usize].taker.accept(&entry);
                self.cover(cx, end);
                cx.data_waits(end);
            }
            SERVED => {
                let request = self.services.remove(timer.b as usize);
                let host = cx.host(end) as usize;
                let spans = self.spans(&request);
                let writing = request.tag & RECEIVE != 0;
                let now = cx.now() / NS;
                match self.pins[host].served(&request, spans.iter().copied(), writing, now) {
                    Served::Held => self.answer(cx, request, Outcome::Held),
                    other => panic!("{request:?}: {other:?}"),
                }
            }
            SENT => {
                self.ends[end as usize].vc.sent(timer.b as u16);
                self.blocks(cx, end);
            }
            EXPIRE => {
                let host = timer.a as usize;
                let now = cx.now() / NS;
                self.pins[host].expire(now);
                self.account(cx, host);
                self.expiry[host] = 0;
                if let Some(at) = self.pins[host].next_expiry() {
                    self.expiry[host] = at.saturating_mul(NS).max(cx.now() + US);
                    let at = self.expiry[host];
                    cx.timer(at, EXPIRE, timer.a, 0);
                }
                while let Some(waiting) = self.pins[host].retry() {
                    self.acquire(cx, waiting);
                }
            }
            _ => self.announce(cx, end),
        }
    }
}
