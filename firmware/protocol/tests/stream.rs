// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two whole ends against each other, with loss, repetition and reordering, under a budget of pages.

use berth_protocol::credit::announcer::Options;
use berth_protocol::credit::entry::{Entry, Name};
use berth_protocol::credit::policy::{Kind, Settings};
use berth_protocol::memory::blocks::{self, Outcome};
use berth_protocol::memory::context::{Again, Choice, First, Place, Policy, Span};
use berth_protocol::memory::pins::{self, Answer, Pins, Request, Served, Usage};
use berth_protocol::memory::receives::Status;
use berth_protocol::rc::{RequestPacket, RequesterConfig, ResponderConfig, ResponsePacket};
use berth_protocol::stream::{Broken, Config, Departure, End, HostAction, Landing};
use proptest::prelude::*;
use std::collections::BTreeMap;

mod common;

type Side = End<8, 4, 24, 16, 8, 8, 4, 16>;

const RECEIVE_AT: u64 = 1 << 20;

struct World {
    ends: [Side; 2],
    pins: Pins<64, 1, 16>,
    services: Vec<Request>,
    flying: Vec<Departure>,
    dma: Vec<(Landing, Vec<u8>)>,
    there: Vec<(RequestPacket, Vec<u8>)>,
    back: Vec<ResponsePacket>,
    entries: [Vec<Entry<4>>; 2],
    memory: BTreeMap<u64, u8>,
    received: Vec<(u16, Status)>,
    sent: Vec<u32>,
    /// Receives: tag, place, size.
    posted: Vec<(u16, u64, u32)>,
    now: u64,
}

/// What happens next.
#[derive(Clone, Debug)]
enum Op {
    Receive(u32),
    /// The sending end gives a packet to the transmitter.
    Transmit,
    /// The packet leaves.
    Depart {
        lost: bool,
    },
    /// A packet arrives, and may arrive again.
    Arrive {
        at: usize,
        again: bool,
    },
    /// A packet's bytes are in memory.
    Place {
        at: usize,
    },
    /// The receiving end answers, and the answer arrives.
    Answer {
        lost: bool,
    },
    Response,
    /// Both ends say what they have to say on the control connection, and hear it; the last word first.
    Speak {
        lost: bool,
    },
    Hear,
    /// The host answers a request for pages.
    Serve {
        at: usize,
    },
    Wait {
        time: u64,
        resync: bool,
    },
}

/// What takes everything further.
const ROUND: [Op; 10] = [
    Op::Transmit,
    Op::Depart { lost: false },
    Op::Arrive { at: 0, again: false },
    Op::Place { at: 0 },
    Op::Answer { lost: false },
    Op::Response,
    Op::Speak { lost: false },
    Op::Hear,
    Op::Serve { at: 0 },
    Op::Wait { time: 5, resync: false },
];

fn op() -> impl Strategy<Value = Op> {
    let eighth = || prop::bool::weighted(0.125);
    prop_oneof![
        1 => (1u32..41).prop_map(Op::Receive),
        2 => Just(Op::Transmit),
        1 => eighth().prop_map(|lost| Op::Depart { lost }),
        2 => (0usize..8, eighth()).prop_map(|(at, again)| Op::Arrive { at, again }),
        1 => (0usize..8).prop_map(|at| Op::Place { at }),
        1 => eighth().prop_map(|lost| Op::Answer { lost }),
        1 => Just(Op::Response),
        1 => eighth().prop_map(|lost| Op::Speak { lost }),
        1 => Just(Op::Hear),
        1 => (0usize..8).prop_map(|at| Op::Serve { at }),
        1 => (0u64..30, eighth()).prop_map(|(time, resync)| Op::Wait { time, resync }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let first = prop_oneof![Just(First::Pin), Just(First::Copy), Just(First::All)];
    let again = prop_oneof![Just(Again::Pin), Just(Again::Copy)];
    (first, again).prop_map(|(first, again)| Policy { first, again })
}

fn config(policy: Policy) -> Config {
    Config {
        lists: Options { max_list: 4, part: 2, repeat: 50, policy: Settings::of(Kind::First), ..Options::default() },
        requester: RequesterConfig { retries: 0, ..RequesterConfig::berth(3, 16, 40) },
        responder: ResponderConfig::berth(3),
        blocks: blocks::Config { mtu: 8, block: 16, window: 64, copy_room: 64, choice: Choice::Fixed(policy) },
    }
}

fn byte(offset: u64) -> u8 {
    (offset * 7 + 3) as u8
}

fn name(qpn: u32) -> Name {
    Name { qpn, epoch: 5 }
}

impl World {
    fn new(policy: Policy, budget: u32, linger: u64) -> Self {
        let c = config(policy);
        let mut pins = Pins::new(pins::Config { budget, reserve: 4, lend: false, page_shift: 3, linger });
        assert!(pins.open(1, budget));
        let end = |a, b, p| Side::new(&c, 0, name(a), name(b), p);
        Self {
            ends: [end(1, 2, (0xff_fff0, 9)), end(2, 1, (9, 0xff_fff0))],
            pins,
            services: vec![],
            flying: vec![],
            dma: vec![],
            there: vec![],
            back: vec![],
            entries: [vec![], vec![]],
            memory: BTreeMap::new(),
            received: vec![],
            sent: vec![],
            posted: vec![],
            now: 0,
        }
    }

    fn spans(&self, r: &Request) -> Vec<Span> {
        let end = &self.ends[r.owner as usize];
        match r.owner {
            0 => end.block(r.tag).map(|(at, len, _)| end.block_spans(at, len).collect()).unwrap_or_default(),
            _ => end.receive_spans(r.tag).collect(),
        }
    }

    fn answer(&mut self, r: &Request, outcome: Outcome) {
        let end = &mut self.ends[r.owner as usize];
        assert!(if r.owner == 0 { end.block_answer(r.tag, outcome) } else { end.receive_answer(r.tag, outcome) });
    }

    fn acquire(&mut self, r: Request) {
        let spans = self.spans(&r);
        let outcome = match self.pins.acquire(&r, spans.into_iter(), r.owner == 1) {
            Answer::Hit => Outcome::Held,
            Answer::Serve { .. } => return self.services.push(r),
            Answer::Wait => Outcome::Waits,
            Answer::Refused(error) => Outcome::Failed(error.into()),
        };
        self.answer(&r, outcome);
    }

    fn host(&mut self) {
        loop {
            let mut idle = true;
            for owner in 0..2u32 {
                while let Some(action) = self.ends[owner as usize].poll_host() {
                    idle = false;
                    let request = |tag, usage| Request { owner, tag, asid: 1, usage };
                    match action {
                        HostAction::Send(blocks::Action::Pin { tag, usage, .. }) => self.acquire(request(tag, usage)),
                        HostAction::Send(blocks::Action::Copy { tag, .. }) => {
                            assert!(self.ends[0].block_answer(tag, Outcome::Held));
                        }
                        HostAction::Send(blocks::Action::Release { tag, start, len, usage }) => {
                            let spans: Vec<_> = self.ends[0].block_spans(start, len).collect();
                            assert!(self.pins.release(&request(tag, usage), spans.into_iter(), self.now));
                        }
                        HostAction::Send(blocks::Action::Cancel { tag, usage }) => self.cancel(&request(tag, usage)),
                        HostAction::PinReceive(tag) => self.acquire(request(tag, Usage::Lasting)),
                        HostAction::ReleaseReceive(tag) => {
                            let spans: Vec<_> = self.ends[1].receive_spans(tag).collect();
                            assert!(self.pins.release(&request(tag, Usage::Lasting), spans.into_iter(), self.now));
                        }
                        HostAction::CancelReceive(tag) => self.cancel(&request(tag, Usage::Lasting)),
                        HostAction::Received(tag, status) => self.received.push((tag, status)),
                        HostAction::Sent(tag) => self.sent.push(tag),
                    }
                }
            }
            while let Some(request) = self.pins.retry() {
                idle = false;
                self.acquire(request);
            }
            if idle {
                break;
            }
        }
        assert!(self.pins.pinned() <= self.pins.config().budget);
    }

    fn cancel(&mut self, request: &Request) {
        if self.pins.cancel(request) {
            self.answer(request, Outcome::Gone);
        }
    }

    fn read(&self, d: &Departure) -> Vec<u8> {
        let len = d.packet.len as u64;
        for span in self.ends[0].block_spans(d.offset, len) {
            assert!(d.copy || self.pins.may_touch(1, span, false), "the card reads what it does not hold");
        }
        (d.offset..d.offset + len).map(byte).collect()
    }

    /// One step, as far as it can be done.
    fn step(&mut self, op: &Op) {
        match *op {
            Op::Receive(size) => self.receive(size),
            Op::Transmit => self.flying.extend(self.ends[0].poll_request(self.now)),
            Op::Depart { lost } if !self.flying.is_empty() => {
                let d = self.flying.remove(0);
                let bytes = self.read(&d);
                assert!(self.ends[0].left(d.block));
                if !lost {
                    self.there.push((d.packet, bytes));
                }
            }
            Op::Arrive { at, again } if !self.there.is_empty() => {
                let i = at % self.there.len();
                let (packet, bytes) = if again { self.there[i].clone() } else { self.there.remove(i) };
                if let Some(landing) = self.ends[1].request(self.now, &packet) {
                    self.dma.push((landing, bytes));
                }
            }
            Op::Place { at } if !self.dma.is_empty() => {
                let (landing, bytes) = self.dma.remove(at % self.dma.len());
                let mut bytes = bytes.into_iter();
                let spans: Vec<_> = self.ends[1].landing_spans(&landing).collect();
                for span in spans {
                    assert!(self.pins.may_touch(1, span, true), "data meets memory that is not pinned");
                    for at in span.va..span.va + span.len as u64 {
                        assert_eq!(self.memory.insert(at, bytes.next().unwrap()), None, "a byte is placed once");
                    }
                }
                self.ends[1].placed(self.now, landing.psn, landing.tag);
            }
            Op::Answer { lost } => self.back.extend(self.ends[1].poll_response(self.now).filter(|_| !lost)),
            Op::Response if !self.back.is_empty() => {
                let packet = self.back.remove(0);
                self.ends[0].response(self.now, &packet);
            }
            Op::Speak { lost } => {
                for who in 0..2 {
                    self.entries[who].extend(self.ends[who].poll_control(self.now).filter(|_| !lost));
                }
            }
            Op::Hear => {
                for who in 0..2 {
                    if let Some(entry) = self.entries[who].pop() {
                        self.ends[1 - who].control(&entry);
                        self.ends[0].use_credits();
                    }
                }
            }
            Op::Serve { at } if !self.services.is_empty() => {
                let request = self.services.remove(at % self.services.len());
                let spans = self.spans(&request);
                let served = self.pins.served(&request, spans.into_iter(), request.owner == 1, self.now);
                self.answer(&request, if served == Served::Held { Outcome::Held } else { Outcome::Gone });
            }
            Op::Wait { time, resync } => {
                self.now += time;
                self.ends[0].tick(self.now);
                self.pins.expire(self.now);
                if self.pins.pressure(Usage::Lasting).is_some() {
                    self.ends[1].recall(8);
                }
                if self.pins.pressure(Usage::Brief).is_some() {
                    self.ends[0].give_way();
                }
                if resync {
                    self.ends[0].resync();
                }
            }
            _ => (),
        }
        self.host();
    }

    /// Posts a receive, unless several wait already.
    fn receive(&mut self, size: u32) {
        let place = RECEIVE_AT + 100 * self.posted.len() as u64;
        if self.posted.len() - self.received.len() < 6
            && let Ok(tag) = self.ends[1].post_receive(&[Span { va: place, len: size }])
        {
            self.ends[1].ring();
            self.posted.push((tag, place, size));
        }
    }

    /// Each step once, without faults.
    fn round(&mut self) {
        for op in ROUND {
            self.step(&op);
        }
    }

    fn quiet(&self) -> bool {
        self.ends.iter().all(End::idle) && self.services.is_empty() && self.flying.is_empty() && self.dma.is_empty()
    }
}

/// Sends messages of these lengths; the reference is what the receives must hold in the end.
fn follow(mut w: World, sends: &[u32], ops: &[Op]) {
    let (mut va, mut sent) = (0x100, 0u64);
    let mut cuts = Vec::new();
    for (tag, &len) in sends.iter().enumerate() {
        let places = [Place::at(va, len / 2), Place::at(va + 200, len - len / 2)];
        w.ends[0].post_send(tag as u32, &places, None).unwrap();
        va += 1000;
        sent += u64::from(len);
        cuts.push(sent);
    }
    ops.iter().for_each(|op| w.step(op));
    // With a good wire everything comes to an end.
    let mut rounds = 0;
    while w.sent.len() < sends.len() {
        w.receive(16);
        w.round();
        rounds += 1;
        assert!(rounds < 20_000, "stuck with {:?} of {sends:?} sent", w.sent);
    }
    for _ in 0..50 {
        w.round();
    }
    assert_eq!(w.ends.each_ref().map(End::broken), [None, None]);
    assert!(w.ends[0].sent_all());
    let (mut offset, mut cut) = (0u64, 0);
    for (&(tag, at, size), &(done, status)) in w.posted.iter().zip(&w.received) {
        let Status::Filled(len) = status else { panic!("{status:?}") };
        let rest = cuts[cut] - offset;
        assert_eq!((done, u64::from(len)), (tag, rest.min(u64::from(size))), "one credit serves one send");
        for i in 0..u64::from(len) {
            assert_eq!(w.memory.get(&(at + i)), Some(&byte(offset + i)));
        }
        offset += u64::from(len);
        cut += usize::from(offset == cuts[cut]);
    }
    assert_eq!(offset, sent);
    w.ends[1].close();
    w.ends[0].close();
    for _ in 0..200 {
        w.round();
    }
    assert!(w.quiet(), "all is let go at the end");
    w.pins.expire(u64::MAX);
    assert_eq!(w.pins.pinned(), 0);
}

proptest! {
    #![proptest_config(common::config(300))]

    #[test]
    fn qp_7_cr_2_pc_3_streams_between_two_ends_arrive_once_in_order_within_the_budget(
        policy in policy(), budget in 10u32..50, lingers: bool,
        sends in prop::collection::vec(1u32..71, 1..4), ops in prop::collection::vec(op(), 0..800),
    ) {
        follow(World::new(policy, budget, if lingers { 20 } else { 0 }), &sends, &ops);
    }
}

#[test]
fn vc_9_data_for_withdrawn_memory_breaks_that_end_only() {
    let mut w = World::new(Policy { first: First::Pin, again: Again::Pin }, 20, 0);
    w.ends[0].post_send(7, &[Place::at(0x100, 8)], None).unwrap();
    w.ends[1].post_receive(&[Span { va: RECEIVE_AT, len: 8 }]).unwrap();
    w.ends[1].ring();
    while w.ends[1].receives().unused().0 == 0 {
        w.round();
    }
    w.pins.withdraw(1, RECEIVE_AT, 8, |_| false);
    assert_eq!(w.ends[1].withdrawn(RECEIVE_AT, 8), 1);
    w.pins.fenced();
    for _ in 0..300 {
        w.round();
    }
    assert_eq!(w.ends[1].broken(), Some(Broken::Withdrawn));
    assert!(matches!(w.ends[0].broken(), Some(Broken::Requester(_))), "the peer is told");
    assert_eq!((w.received.as_slice(), w.pins.pinned()), (&[(0, Status::Withdrawn)][..], 0));
    assert!(w.memory.is_empty() && w.sent.is_empty());
    let (announcer, taker) = w.ends[1].credits();
    assert_eq!((announcer.recalling(), taker.own(), w.ends[0].requester().pending()), (false, name(2), 0));
}
