// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pin on credit: receives, credits, blocks and pages of two hosts together, without a card.

use berth_abi::cpu::LIST_OK;
use berth_protocol::credit::list::{Builder, Reader, Trigger};
use berth_protocol::memory::blocks::{self, BlockError, Outcome, Sender, Transmit};
use berth_protocol::memory::context::{Again, Choice, First, Place, Policy, Span};
use berth_protocol::memory::pins::{self, Answer, Pins, Request, Served, Usage};
use berth_protocol::memory::receives::{self, PostError, Receives, Refusal, Status};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

mod common;

type Recvs = Receives<8, 24>;
type Table = Pins<32, 4, 64>;

fn table(budget: u32, reserve: u32, linger: u64) -> Table {
    let mut pins = Pins::new(pins::Config { budget, reserve, lend: false, page_shift: 12, linger });
    assert!(pins.open(1, budget));
    pins
}

fn span(va: u64, len: u32) -> Span {
    Span { va, len }
}

/// One receiver with its host; page services are answered at once, in order.
struct Receiver {
    pins: Table,
    recvs: Recvs,
    log: Vec<receives::Action>,
    broken: Vec<u16>,
    most: u32,
}

impl Receiver {
    fn new(budget: u32) -> Self {
        let mut recvs = Recvs::new(false);
        recvs.connect();
        Self { pins: table(budget, 1, 0), recvs, log: Vec::new(), broken: Vec::new(), most: 0 }
    }

    fn ask(&mut self, tag: u16) {
        let request = Request { owner: 0, tag, asid: 1, usage: Recvs::USAGE };
        let spans: Vec<_> = self.recvs.spans(tag).collect();
        let spans = spans.iter().copied();
        let outcome = match self.pins.acquire(&request, spans.clone(), true) {
            Answer::Hit => Outcome::Held,
            Answer::Serve { .. } if self.broken.contains(&tag) => {
                assert!(self.pins.unserved(&request, spans, 0));
                Outcome::Failed(BlockError::Protection)
            }
            Answer::Serve { .. } => match self.pins.served(&request, spans, true, 0) {
                Served::Held => Outcome::Held,
                _ => Outcome::Gone,
            },
            Answer::Wait => Outcome::Waits,
            Answer::Refused(e) => Outcome::Failed(e.into()),
        };
        self.most = self.most.max(self.pins.pinned());
        assert!(self.recvs.answer(tag, outcome));
    }

    /// Carries out everything; the actions that are not the host's.
    fn run(&mut self) -> Vec<receives::Action> {
        let mut out = Vec::new();
        loop {
            while let Some(action) = self.recvs.poll() {
                self.log.push(action);
                let request = |tag| Request { owner: 0, tag, asid: 1, usage: Recvs::USAGE };
                match action {
                    receives::Action::Pin { tag } => self.ask(tag),
                    receives::Action::Release { tag } => {
                        assert!(self.pins.release(&request(tag), self.recvs.spans(tag), 0));
                    }
                    receives::Action::Cancel { tag } => {
                        assert!(self.pins.cancel(&request(tag)) && self.recvs.answer(tag, Outcome::Gone));
                    }
                    other => out.push(other),
                }
            }
            match self.pins.retry() {
                Some(request) => self.ask(request.tag),
                None => return out,
            }
        }
    }

    fn fill(&mut self, credit: u32, bytes: u32) {
        self.recvs.begin(credit).unwrap();
        let tag = self.recvs.write(credit, 0, bytes).unwrap();
        for s in self.recvs.part(tag, 0, bytes) {
            assert!(self.pins.may_touch(1, s, true));
        }
        assert!(self.recvs.written(tag));
        self.recvs.filled(credit, bytes).unwrap();
    }
}

use receives::Action::{Commit, Complete, Post};

#[test]
fn pc_1_a_receive_is_pinned_when_granted_and_unpinned_when_filled() {
    let mut r = Receiver::new(8);
    r.recvs = Recvs::new(false);
    let tag = r.recvs.post(&[span(0x1000, 4096), span(0x9000, 10)]).unwrap();
    r.recvs.ring();
    assert_eq!(r.run(), []);
    assert_eq!(r.pins.pinned(), 0, "posting pins nothing before there is a connection");
    r.recvs.connect();
    assert_eq!(r.run(), [Post { credit: 0, size: 4106 }, Commit]);
    assert_eq!(r.pins.pinned(), 2);
    r.fill(0, 4100);
    assert_eq!(r.run(), [Complete { tag, status: Status::Filled(4100) }]);
    assert_eq!((r.pins.pinned(), r.recvs.idle()), (0, true));
}

#[test]
fn pc_1_receives_posted_with_one_doorbell_are_announced_together() {
    let mut r = Receiver::new(8);
    for (i, size) in [3, 7, 22].into_iter().enumerate() {
        r.recvs.post(&[span(0x1000 + i as u64 * 100, size)]).unwrap();
        if i == 1 {
            r.recvs.ring();
        }
    }
    let posts =
        |sizes: &[(u32, u32)]| sizes.iter().map(|(credit, size)| Post { credit: *credit, size: *size }).collect();
    let mut expected: Vec<_> = posts(&[(0, 3), (1, 7)]);
    expected.push(Commit);
    expected.extend(posts(&[(2, 22)]));
    assert_eq!(r.run(), expected);
    r.recvs.ring();
    assert_eq!(r.run(), [Commit]);
    assert_eq!(r.pins.pinned(), 1, "they share a page");
}

#[test]
fn decision_20_a_receive_whose_pin_fails_completes_in_its_turn_and_later_ones_go_on() {
    let mut r = Receiver::new(8);
    let tags: Vec<_> = (0..3).map(|i| r.recvs.post(&[span(0x1_0000 * (i + 1), 50)]).unwrap()).collect();
    r.recvs.ring();
    r.broken.push(tags[1]);
    assert_eq!(r.run(), [Post { credit: 0, size: 50 }, Post { credit: 1, size: 50 }, Commit]);
    r.fill(0, 50);
    r.fill(1, 50);
    let failed = Status::Failed(BlockError::Protection);
    let expected = [(tags[0], Status::Filled(50)), (tags[1], failed), (tags[2], Status::Filled(50))];
    assert_eq!(r.run(), expected.map(|(tag, status)| Complete { tag, status }));
    assert_eq!(r.pins.pinned(), 0);
}

#[test]
fn decision_19_a_receive_larger_than_the_budget_completes_with_a_named_error() {
    let mut r = Receiver::new(4);
    let big = r.recvs.post(&[span(0x10_0000, 5 * 4096)]).unwrap();
    let tight = r.recvs.post(&[span(0x20_0000, 4 * 4096)]).unwrap();
    r.recvs.post(&[span(0x30_0000, 3 * 4096)]).unwrap();
    r.recvs.ring();
    let failed = Status::Failed(BlockError::OverBudget);
    let (a, b) = (Complete { tag: big, status: failed }, Complete { tag: tight, status: failed });
    assert_eq!(r.run(), [a, b, Post { credit: 0, size: 3 * 4096 }, Commit], "the reserve is not for receives");
}

#[test]
fn pc_3_credits_are_withheld_when_the_budget_is_used_up_and_go_on_when_there_is_room() {
    let mut r = Receiver::new(4);
    let tags: Vec<_> = (0..6).map(|i| r.recvs.post(&[span(0x1_0000 * (i + 1), 4096)]).unwrap()).collect();
    r.recvs.ring();
    let post = |credit| Post { credit, size: 4096 };
    assert_eq!(r.run(), [post(0), post(1), post(2), Commit], "what is granted of the batch is announced");
    assert_eq!(r.recvs.unused(), (3, 3 * 4096));
    r.fill(0, 4096);
    assert_eq!(r.run(), [Complete { tag: tags[0], status: Status::Filled(4096) }, post(3), Commit]);
    for credit in 1..6 {
        r.fill(credit, 1);
        r.run();
    }
    assert_eq!((r.most, r.pins.pinned(), r.recvs.idle()), (3, 0, true));
}

#[test]
fn decision_10_zero_length_receives_complete_locally_or_are_credits_of_size_0() {
    let mut r = Receiver::new(4);
    let tag = r.recvs.post(&[span(0x1000, 0)]).unwrap();
    assert_eq!(r.run(), [Complete { tag, status: Status::Filled(0) }]);
    r.recvs = Recvs::new(true);
    r.recvs.connect();
    let tag = r.recvs.post(&[]).unwrap();
    r.recvs.ring();
    assert_eq!(r.run(), [Post { credit: 0, size: 0 }, Commit]);
    assert_eq!(r.recvs.recall(0), 1);
    assert!(r.recvs.recalled(0));
    assert_eq!(r.run(), [Post { credit: 0, size: 0 }, Commit]);
    r.fill(0, 0);
    assert_eq!(r.run(), [Complete { tag, status: Status::Filled(0) }]);
}

#[test]
fn decision_19_recalled_receives_give_their_memory_to_others_and_are_granted_again() {
    let mut r = Receiver::new(8);
    for i in 0..4u64 {
        r.recvs.post(&[span(0x1_0000 * (i + 1), 4096)]).unwrap();
    }
    r.recvs.ring();
    r.run();
    r.recvs.begin(0).unwrap();
    assert_eq!(r.recvs.recall(1), 1);
    assert_eq!(r.recvs.recall(5000), 2);
    assert_eq!(r.recvs.recall(u64::MAX), 3, "never one that data has come for");
    r.recvs.post(&[span(0x9_0000, 1)]).unwrap();
    assert_eq!(r.run(), [], "no credit is posted until the answer");
    assert!(!r.recvs.recalled(0), "a credit that data has come for cannot be given up");
    assert!(r.recvs.recalled(2));
    let posts: Vec<_> = [(2, 4096), (3, 4096)].map(|(credit, size)| Post { credit, size }).to_vec();
    let out = r.run();
    assert_eq!((&out[..2], out[2]), (&posts[..], Commit));
    assert_eq!(r.log.iter().filter(|a| matches!(a, receives::Action::Release { .. })).count(), 2);
}

#[test]
fn decision_17_data_for_a_withdrawn_receive_is_refused_and_nothing_waits_for_the_peer() {
    let mut r = Receiver::new(8);
    let tags: Vec<_> = (0..2).map(|i| r.recvs.post(&[span(0x1_0000 * (i + 1), 4096)]).unwrap()).collect();
    r.recvs.ring();
    r.run();
    assert_eq!(r.pins.withdraw(1, 0x2_0000, 4096, |_| false), 1);
    assert!(!r.pins.may_touch(1, span(0x2_0000, 1), true), "the translation goes first");
    assert_eq!(r.pins.pinned(), 2, "unpinned when DMA already issued is over");
    r.pins.fenced();
    assert_eq!(r.pins.pinned(), 1);
    assert_eq!(r.recvs.withdrawn(0x2_0000, 4096), 1);
    r.fill(0, 10);
    assert_eq!(r.recvs.begin(1), Err(Refusal::Withdrawn));
    assert_eq!(r.recvs.write(1, 0, 1), Err(Refusal::Withdrawn));
    r.recvs.close();
    let expected = [(tags[0], Status::Filled(10)), (tags[1], Status::Withdrawn)];
    assert_eq!(r.run(), expected.map(|(tag, status)| Complete { tag, status }));
    assert_eq!((r.pins.pinned(), r.recvs.idle()), (0, true));
}

#[test]
fn inv_6_bad_posts_and_data_without_a_credit_are_refused() {
    let mut r = Receiver::new(8);
    assert_eq!(r.recvs.post(&[span(u64::MAX, 2)]), Err(PostError::BadRange));
    assert_eq!(r.recvs.post(&[span(0, u32::MAX)]), Err(PostError::BadRange));
    assert_eq!(r.recvs.post(&[span(0, 1); 25]), Err(PostError::Full));
    assert_eq!((r.recvs.begin(0), r.recvs.write(0, 0, 1)), (Err(Refusal::NoCredit), Err(Refusal::NoCredit)));
    let tag = r.recvs.post(&[span(0, 10)]).unwrap();
    r.recvs.ring();
    r.run();
    assert_eq!(r.recvs.begin(1), Err(Refusal::NoCredit));
    assert_eq!(r.recvs.filled(0, 1), Err(Refusal::NoCredit));
    assert_eq!(r.recvs.write(0, 9, 2), Err(Refusal::TooLong));
    assert_eq!(r.recvs.write(0, u32::MAX, 2), Err(Refusal::TooLong));
    r.recvs.begin(0).unwrap();
    assert_eq!((r.recvs.begin(0), r.recvs.filled(0, 11)), (Err(Refusal::NoCredit), Err(Refusal::TooLong)));
    assert!(!r.recvs.written(tag) && !r.recvs.answer(tag, Outcome::Held) && !r.recvs.answer(77, Outcome::Held));
    for _ in 1..8 {
        r.recvs.post(&[]).unwrap();
    }
    assert_eq!(r.recvs.post(&[]), Err(PostError::Full));
}

#[test]
fn vc_9_a_receive_that_is_no_credit_yet_is_granted_again_when_its_memory_moves() {
    let mut recvs = Recvs::new(false);
    recvs.connect();
    let (a, b) = (recvs.post(&[span(0x1000, 10)]).unwrap(), recvs.post(&[span(0x9000, 10)]).unwrap());
    recvs.ring();
    let pin = |tag| Some(receives::Action::Pin { tag });
    assert_eq!((recvs.poll(), recvs.poll(), recvs.poll()), (pin(a), pin(b), None));
    assert!(recvs.answer(b, Outcome::Held) && !recvs.answer(b, Outcome::Held));
    assert_eq!(recvs.withdrawn(0x9000, 1), 0, "no credit is lost");
    assert_eq!((recvs.poll(), recvs.poll(), recvs.poll()), (Some(receives::Action::Release { tag: b }), pin(b), None));
    assert!(recvs.answer(a, Outcome::Gone) && recvs.answer(b, Outcome::Held));
    assert_eq!(recvs.poll(), pin(a), "and the first one, too");
    // Closed while the host is at work; the request waits in line for a while, and is taken out.
    recvs.close();
    assert_eq!(recvs.poll(), Some(receives::Action::Release { tag: b }));
    assert!(recvs.answer(a, Outcome::Waits));
    assert_eq!(recvs.poll(), Some(receives::Action::Cancel { tag: a }));
    assert!(recvs.answer(a, Outcome::Waits) && recvs.poll().is_some() && recvs.answer(a, Outcome::Gone));
    for tag in [a, b] {
        assert_eq!(recvs.poll(), Some(Complete { tag, status: Status::Flushed }));
    }
    assert!(recvs.idle() && recvs.post(&[]).is_err());
}

/// One direction between two hosts, everything real but the wire.
#[derive(Debug)]
struct Flow {
    from: usize,
    to: usize,
    sender: Sender<12, 8, 4>,
    recvs: Recvs,
    builder: Builder,
    reader: Reader,
    /// Pieces that are sent and not acknowledged: (start, length, credit).
    pieces: VecDeque<(u64, u32, u32)>,
    next_credit: u32,
    /// What the receiver has of each outstanding piece, by credit.
    got: HashMap<u32, (Vec<bool>, u32)>,
    begun: u32,
    data: Vec<u8>,
    posted: usize,
    /// Receives that wait for completion: (tag, spans).
    buffers: VecDeque<(u16, Vec<Span>)>,
    out: Vec<u8>,
    flying: Vec<u16>,
}

/// On the wire: flow, credit, piece length, offset, bytes.
type Packet = (usize, u32, u32, u32, Vec<u8>);

struct World {
    pins: [Table; 2],
    memory: [HashMap<u64, u8>; 2],
    flows: Vec<Flow>,
    services: [Vec<Request>; 2],
    copies: Vec<(usize, u16)>,
    wire: VecDeque<Packet>,
    mtu: u32,
    now: u64,
}

const RECV: u32 = 1 << 16;

/// What happens next, as far as it can.
#[derive(Clone, Debug)]
enum Op {
    /// A message of these ranges is posted; of all, as much as the stream still has room for.
    Send {
        flow: usize,
        ranges: Vec<Span>,
        choice: Option<Choice>,
    },
    /// Receives are posted with one doorbell: bytes, and where each is cut in two.
    Receive {
        flow: usize,
        lens: Vec<(u32, u32)>,
    },
    /// A host answers a request for pages, or has copied a block.
    Serve {
        host: usize,
        at: usize,
    },
    Copied {
        at: usize,
    },
    /// The next packet goes to the transmitter; one has left it.
    Transmit {
        flow: usize,
    },
    Left {
        flow: usize,
    },
    /// A packet arrives, or gets lost.
    Deliver {
        at: usize,
        lost: bool,
    },
    /// A packet that is not acknowledged goes once more; with `block`, its block is asked for again first.
    Resend {
        flow: usize,
        piece: usize,
        packet: u32,
        block: bool,
    },
    /// A host takes credits back, if there is need.
    Recall {
        host: usize,
    },
    /// Time goes on in a host; and a page of its sends moves, or is swapped out.
    Wait {
        host: usize,
        moved: Option<u64>,
    },
}

impl World {
    fn spans_of(&self, r: &Request) -> Vec<Span> {
        let flow = &self.flows[(r.owner & !RECV) as usize];
        match r.owner & RECV != 0 {
            true => flow.recvs.spans(r.tag).collect(),
            false => {
                let (start, len, _) = flow.sender.block(r.tag).unwrap();
                flow.sender.spans(start, len).collect()
            }
        }
    }

    fn answer(&mut self, r: &Request, outcome: Outcome) {
        let flow = &mut self.flows[(r.owner & !RECV) as usize];
        let known = match r.owner & RECV != 0 {
            true => flow.recvs.answer(r.tag, outcome),
            false => flow.sender.answer(r.tag, outcome),
        };
        assert!(known);
    }

    fn ask(&mut self, host: usize, r: Request) {
        let spans = self.spans_of(&r);
        match self.pins[host].acquire(&r, spans.into_iter(), r.owner & RECV != 0) {
            Answer::Hit => self.answer(&r, Outcome::Held),
            Answer::Serve { .. } => self.services[host].push(r),
            Answer::Wait => self.answer(&r, Outcome::Waits),
            Answer::Refused(e) => self.answer(&r, Outcome::Failed(e.into())),
        }
        let pins = &self.pins[host];
        assert!(pins.pinned() <= pins.config().budget, "pinned above the budget");
    }

    fn done(&self) -> bool {
        self.flows.iter().all(|f| f.out.len() == f.data.len())
    }

    /// Everything that follows without time or chance. False when nothing did.
    fn settle(&mut self) -> bool {
        let mut any = false;
        loop {
            let mut more = false;
            for f in 0..self.flows.len() {
                let (from, to) = (self.flows[f].from, self.flows[f].to);
                while let Some(action) = self.flows[f].sender.poll() {
                    more = true;
                    let request = |tag, usage| Request { owner: f as u32, tag, asid: 1, usage };
                    match action {
                        blocks::Action::Pin { tag, usage, .. } => self.ask(from, request(tag, usage)),
                        blocks::Action::Copy { tag, .. } => self.copies.push((f, tag)),
                        blocks::Action::Release { tag, start, len, usage } => {
                            let spans = self.flows[f].sender.spans(start, len);
                            assert!(self.pins[from].release(&request(tag, usage), spans, self.now));
                        }
                        blocks::Action::Cancel { tag, usage } => {
                            if self.pins[from].cancel(&request(tag, usage)) {
                                assert!(self.flows[f].sender.answer(tag, Outcome::Gone));
                            }
                        }
                    }
                }
                while let Some(action) = self.flows[f].recvs.poll() {
                    more = true;
                    let r = |tag| Request { owner: f as u32 | RECV, tag, asid: 1, usage: Recvs::USAGE };
                    match action {
                        receives::Action::Pin { tag } => self.ask(to, r(tag)),
                        receives::Action::Release { tag } => {
                            let spans = self.flows[f].recvs.spans(tag);
                            assert!(self.pins[to].release(&r(tag), spans, self.now));
                        }
                        receives::Action::Cancel { tag } => {
                            if self.pins[to].cancel(&r(tag)) {
                                assert!(self.flows[f].recvs.answer(tag, Outcome::Gone));
                            }
                        }
                        receives::Action::Post { credit, size } => {
                            assert_eq!(self.flows[f].builder.post(size), Some(credit));
                        }
                        receives::Action::Commit => self.flows[f].builder.commit(),
                        receives::Action::Complete { tag, status } => {
                            let (expected, spans) = self.flows[f].buffers.pop_front().unwrap();
                            assert_eq!(expected, tag, "receives complete in order");
                            let Status::Filled(bytes) = status else { panic!("{status:?}") };
                            let all = spans.iter().flat_map(|s| s.va..s.va + s.len as u64);
                            let bytes: Vec<_> = all.take(bytes as usize).map(|va| self.memory[to][&va]).collect();
                            self.flows[f].out.extend(bytes);
                        }
                    }
                }
                let flow = &mut self.flows[f];
                if let Some((first, len)) = flow.builder.list_take() {
                    more = true;
                    assert_eq!(flow.reader.list_begin(first, len), (LIST_OK, 0));
                    for _ in 0..len {
                        assert!(flow.reader.list_push(flow.builder.list_next()));
                    }
                }
                // Credits that cover nothing yet are looked at in the order in which they will be used.
                let flow = &mut self.flows[f];
                let ahead = flow.pending();
                if let Some((_, size)) = flow.reader.peek(ahead)
                    && flow.sender.cover(size).is_some()
                {
                    more = true;
                }
            }
            for host in 0..2 {
                while let Some(r) = self.pins[host].retry() {
                    more = true;
                    self.ask(host, r);
                }
                if more {
                    continue;
                }
                if self.pins[host].pressure(Usage::Brief).is_some() {
                    for f in self.flows.iter_mut().filter(|f| f.from == host) {
                        f.sender.give_way();
                        more |= f.sender.clone().poll().is_some();
                    }
                }
            }
            if !more {
                return any;
            }
            any = true;
        }
    }

    /// Takes a flow's credits back if another one into that host gets nothing at all: the sender gives up what it has
    /// not begun to cut.
    fn recall(&mut self, host: usize) -> bool {
        let starved = self.flows.iter().any(|f| f.to == host && f.recvs.starved());
        if !starved || self.pins[host].pressure(Usage::Lasting).is_none() {
            return false;
        }
        for f in self.flows.iter_mut().filter(|f| f.to == host) {
            let n = f.recvs.recall(u64::MAX);
            if n == 0 {
                continue;
            }
            // Posted ones that are not announced go without asking.
            let announced = f.builder.numbers().1;
            let quiet = f.next_unposted().wrapping_sub(announced);
            let first = f.reader.give_up(n.saturating_sub(quiet));
            let keep = f.reader.count();
            f.uncover(keep);
            assert!(f.builder.void(first));
            assert!(f.recvs.recalled(first));
            return true;
        }
        for f in self.flows.iter_mut().filter(|f| f.from == host) {
            f.sender.give_way();
        }
        false
    }

    /// Carries out what can be done of it. False when there was nothing to do.
    fn step(&mut self, op: &Op) -> bool {
        let flows = self.flows.len();
        let flow = |f: usize| f % flows;
        match *op {
            Op::Send { flow: f, ref ranges, choice } => self.post_send(flow(f), ranges, choice),
            Op::Receive { flow: f, ref lens } => self.post_recv(flow(f), lens),
            Op::Serve { host, at } if !self.services[host].is_empty() => {
                let at = at % self.services[host].len();
                let r = self.services[host].swap_remove(at);
                let spans = self.spans_of(&r);
                let served = self.pins[host].served(&r, spans.into_iter(), r.owner & RECV != 0, self.now);
                self.answer(&r, if served == Served::Held { Outcome::Held } else { Outcome::Gone });
                true
            }
            Op::Copied { at } if !self.copies.is_empty() => {
                let (f, tag) = self.copies.swap_remove(at % self.copies.len());
                assert!(self.flows[f].sender.answer(tag, Outcome::Held));
                true
            }
            Op::Transmit { flow: f } => self.send(flow(f)),
            Op::Left { flow: f } => {
                let f = &mut self.flows[flow(f)];
                f.flying.pop().is_some_and(|tag| f.sender.sent(tag))
            }
            Op::Deliver { at, lost } if !self.wire.is_empty() => {
                let packet = self.wire.remove(at % self.wire.len()).unwrap();
                if !lost {
                    self.deliver(packet);
                }
                true
            }
            Op::Resend { flow: f, piece, packet, block } => self.resend(flow(f), piece, packet, block),
            Op::Recall { host } => self.recall(host),
            Op::Wait { host, moved } => {
                self.now += 1;
                self.pins[host].expire(self.now);
                // Nothing is lost, the pages are asked for again.
                let busy = self.flows.iter().any(|f| !f.flying.is_empty() && f.from == host);
                if let Some(page) = moved.filter(|_| !busy) {
                    self.pins[host].withdraw(1, page << 12, 4096, |_| false);
                    for f in self.flows.iter_mut().filter(|f| f.from == host) {
                        f.sender.withdrawn(page << 12, 4096);
                    }
                    self.pins[host].fenced();
                }
                false
            }
            _ => false,
        }
    }

    /// Everything that takes a flow further, once. False when nothing did.
    fn round(&mut self) -> bool {
        let mut moved = false;
        for flow in 0..self.flows.len() {
            let ops = [
                Op::Send { flow, ranges: vec![span(100, 3000)], choice: None },
                Op::Receive { flow, lens: vec![(3000, 1000)] },
                Op::Transmit { flow },
                Op::Left { flow },
                Op::Deliver { at: 0, lost: false },
                Op::Serve { host: flow % 2, at: 0 },
                Op::Serve { host: 1 - flow % 2, at: 0 },
                Op::Copied { at: 0 },
                Op::Wait { host: flow % 2, moved: None },
                Op::Wait { host: 1 - flow % 2, moved: None },
            ];
            for op in ops {
                moved |= self.step(&op);
                moved |= self.settle();
            }
        }
        moved
    }

    /// What was lost is sent again, the `n`th packet of each flow's oldest piece.
    fn resend_all(&mut self, n: u32) -> bool {
        (0..self.flows.len()).fold(false, |any, f| self.resend(f, 0, n, false) | any)
    }

    /// Every send has its own bytes: they lie in ranges that no other send writes to.
    fn post_send(&mut self, f: usize, ranges: &[Span], choice: Option<Choice>) -> bool {
        let flow = &mut self.flows[f];
        let host = flow.from;
        let mut room = (flow.data.len() - flow.posted) as u32;
        let mut spans = Vec::new();
        for s in ranges {
            spans.push(Span { len: s.len.min(room), ..*s });
            room -= s.len.min(room);
        }
        spans.retain(|s| s.len > 0);
        if spans.is_empty() {
            return false;
        }
        let places: Vec<_> =
            spans.iter().map(|s| Place { base: s.va / 2, offset: s.va - s.va / 2, len: s.len }).collect();
        let bytes: Vec<u8> = spans
            .iter()
            .flat_map(|s| s.va..s.va + s.len as u64)
            .map(|va| (va.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ host as u8)
            .collect();
        if flow.sender.post(&places, choice).is_err() {
            return false;
        }
        flow.data[flow.posted..][..bytes.len()].copy_from_slice(&bytes);
        flow.posted += bytes.len();
        true
    }

    fn post_recv(&mut self, f: usize, lens: &[(u32, u32)]) -> bool {
        let mut any = false;
        for &(len, cut) in lens {
            // Receives do not overlap while they are outstanding: each has its slot.
            let used: Vec<u64> = self.flows.iter().flat_map(|f| f.buffers.iter().map(|b| b.1[0].va >> 12)).collect();
            let Some(slot) = (16u64..96).find(|s| s % 3 == 0 && !used.contains(s)) else { break };
            let cut = cut % len;
            let spans = [span((slot << 12) + 100, cut.max(1)), span((slot << 12) + 6000, (len - cut).max(1))];
            match self.flows[f].recvs.post(&spans) {
                Ok(tag) => {
                    self.flows[f].buffers.push_back((tag, spans.to_vec()));
                    any = true;
                }
                Err(_) => break,
            }
        }
        self.flows[f].recvs.ring();
        any
    }

    fn put(&mut self, f: usize, start: u64, len: u32) -> bool {
        let Transmit::Ready { tag, copy } = self.flows[f].sender.transmit(start, len) else {
            return false;
        };
        let flow = &mut self.flows[f];
        let host = flow.from;
        for s in flow.sender.spans(start, len as u64) {
            assert!(copy || self.pins[host].may_touch(1, s, false), "the card reads what it does not hold");
        }
        flow.flying.push(tag);
        let bytes = flow.data[start as usize..][..len as usize].to_vec();
        let (at, size, credit) = *flow.pieces.iter().find(|p| p.0 <= start && start < p.0 + p.1 as u64).unwrap();
        self.wire.push_back((f, credit, size, (start - at) as u32, bytes));
        true
    }

    fn send(&mut self, f: usize) -> bool {
        let flow = &mut self.flows[f];
        let (_, sent, covered, _) = flow.sender.offsets();
        if sent == covered {
            return false;
        }
        let end = flow.sender.piece_end(sent).unwrap();
        let begins = flow.pieces.back().is_none_or(|p| p.0 + p.1 as u64 <= sent);
        let before = flow.sender.clone();
        let len = (end - sent).min(self.mtu as u64) as u32;
        if begins {
            if !matches!(flow.sender.clone().transmit(sent, len), Transmit::Ready { .. }) {
                flow.sender = before;
                return false;
            }
            let (cut, credit, _) = flow.reader.take((end - sent) as u32).unwrap();
            assert_eq!(cut as u64, end - sent, "the cover is what the credits give");
            assert_eq!(credit, flow.next_credit);
            flow.next_credit += 1;
            flow.pieces.push_back((sent, cut, credit));
        }
        self.put(f, sent, len)
    }

    /// A packet that is sent and not acknowledged, once more.
    fn resend(&mut self, f: usize, piece: usize, packet: u32, block: bool) -> bool {
        let flow = &mut self.flows[f];
        let (acked, sent, _, _) = flow.sender.offsets();
        if flow.pieces.is_empty() {
            return false;
        }
        let (start, size, _) = flow.pieces[piece % flow.pieces.len()];
        let at = start + u64::from(packet % size.div_ceil(self.mtu) * self.mtu);
        let end = start + u64::from(size);
        let len = (end - at).min(u64::from(self.mtu));
        if at + len > sent || at < acked {
            return false;
        }
        if block {
            flow.sender.resend(at, end - at);
        }
        self.put(f, at, len as u32)
    }

    fn deliver(&mut self, (f, credit, size, offset, bytes): Packet) {
        let (to, mtu) = (self.flows[f].to, self.mtu);
        let flow = &mut self.flows[f];
        if flow.builder.numbers().2 > credit && !flow.got.contains_key(&credit) {
            return; // a duplicate of a piece that is done
        }
        let have = flow.got.entry(credit).or_insert_with(|| (vec![false; size.div_ceil(mtu).max(1) as usize], size));
        if !std::mem::replace(&mut have.0[(offset / mtu) as usize], true) {
            let tag = flow.recvs.write(credit, offset, bytes.len() as u32).unwrap();
            let mut bytes = bytes.iter();
            for s in flow.recvs.part(tag, offset, bytes.len() as u32) {
                assert!(self.pins[to].may_touch(1, s, true), "the card writes to what it does not hold");
                for va in s.va..s.va + s.len as u64 {
                    self.memory[to].insert(va, *bytes.next().unwrap());
                }
            }
            assert!(bytes.next().is_none() && flow.recvs.written(tag));
        }
        // In order: first packets land, whole pieces are filled and acknowledged.
        while let Some((have, size)) = flow.got.get(&flow.begun_next()) {
            let (whole, size) = (have.iter().all(|x| *x), *size);
            let credit = flow.begun_next();
            if have[0] && flow.builder.numbers().2 == credit {
                flow.recvs.begin(credit).unwrap();
                assert!(flow.builder.landed());
            }
            if !whole {
                break;
            }
            flow.recvs.filled(credit, size).unwrap();
            flow.got.remove(&credit);
            flow.begun += 1;
            let (start, len, number) = flow.pieces.pop_front().unwrap();
            assert_eq!(number, credit);
            flow.sender.acknowledged(start + len as u64);
        }
    }
}

impl Flow {
    /// The oldest piece that is not whole.
    fn begun_next(&self) -> u32 {
        self.begun
    }

    fn next_unposted(&self) -> u32 {
        self.builder.numbers().0
    }

    /// Pieces that are covered and have not taken their credit.
    fn pending(&self) -> u32 {
        let (_, sent, covered, _) = self.sender.offsets();
        let mut at = self.pieces.back().map_or(sent, |p| sent.max(p.0 + p.1 as u64));
        let mut n = 0;
        while at < covered {
            at = self.sender.piece_end(at).unwrap();
            n += 1;
        }
        n
    }

    /// The sender keeps `keep` unused credits.
    fn uncover(&mut self, keep: u32) {
        let (_, sent, _, _) = self.sender.offsets();
        let mut at = self.pieces.back().map_or(sent, |p| sent.max(p.0 + p.1 as u64));
        for _ in 0..keep {
            let Some(end) = self.sender.piece_end(at) else { break };
            at = end;
        }
        self.sender.uncover(at);
    }
}

/// A stream from one host to the other, or within one.
#[derive(Clone, Debug)]
struct Stream {
    from: usize,
    to: usize,
    window: u64,
    copy_room: u32,
    max_list: u32,
    trigger: u8,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Scenario {
    mtu: u32,
    /// Packets of a block.
    block: u32,
    reserve: u32,
    /// Pages that each host may pin beyond the reserve.
    budgets: [u32; 2],
    linger: u64,
    streams: Vec<Stream>,
}

fn stream() -> impl Strategy<Value = Stream> {
    let within = prop::bool::weighted(0.2);
    (0usize..2, within, 0u64..40_000, 0u32..9000, 1u32..17, 0u8..4, 3000usize..13_000).prop_map(
        |(from, within, window, copy_room, max_list, trigger, bytes)| {
            let to = if within { from } else { 1 - from };
            Stream { from, to, window, copy_room, max_list, trigger, bytes }
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    // A packet in three ranges may lie in six pages.
    (8u32..12, 1u32..5, 7u32..9, [3u32..19, 3u32..19], 0u64..20, prop::collection::vec(stream(), 1..5)).prop_map(
        |(log2_mtu, block, reserve, budgets, linger, streams)| Scenario {
            mtu: 1 << log2_mtu,
            block,
            reserve,
            budgets,
            linger,
            streams,
        },
    )
}

fn choice() -> impl Strategy<Value = Option<Choice>> {
    let fixed = |first, again| Just(Some(Choice::Fixed(Policy { first, again })));
    prop_oneof![
        Just(None),
        Just(Some(Choice::Adaptive)),
        fixed(First::All, Again::Pin),
        fixed(First::Copy, Again::Copy),
        fixed(First::Pin, Again::Copy),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let flow = || 0usize..4;
    // Within 8 pages.
    let range = (0u64..26_000, 1u32..6000).prop_map(|(va, len)| span(va, len));
    let lens = prop::collection::vec((1u32..5001, 0u32..5001), 1..4);
    prop_oneof![
        1 => (flow(), prop::collection::vec(range, 1..4), choice())
            .prop_map(|(flow, ranges, choice)| Op::Send { flow, ranges, choice }),
        1 => (flow(), lens).prop_map(|(flow, lens)| Op::Receive { flow, lens }),
        1 => (0usize..2, 0usize..8).prop_map(|(host, at)| Op::Serve { host, at }),
        1 => (0usize..8).prop_map(|at| Op::Copied { at }),
        2 => flow().prop_map(|flow| Op::Transmit { flow }),
        1 => flow().prop_map(|flow| Op::Left { flow }),
        1 => (0usize..3, prop::bool::weighted(0.17)).prop_map(|(at, lost)| Op::Deliver { at, lost }),
        1 => (flow(), 0usize..4, 0u32..16, any::<bool>())
            .prop_map(|(flow, piece, packet, block)| Op::Resend { flow, piece, packet, block }),
        1 => (0usize..2).prop_map(|host| Op::Recall { host }),
        1 => (0usize..2, prop::option::weighted(0.1, 0u64..8)).prop_map(|(host, moved)| Op::Wait { host, moved }),
    ]
}

fn flow(scenario: &Scenario, stream: &Stream) -> Flow {
    let Stream { from, to, window, copy_room, max_list, trigger, bytes } = *stream;
    let (mtu, block) = (scenario.mtu, scenario.mtu * scenario.block);
    let config = blocks::Config { mtu, block, window, copy_room, choice: Choice::default() };
    let (mut builder, mut recvs) = (<Builder>::new(), Recvs::new(false));
    builder.reset(max_list, Trigger::Between(trigger));
    builder.enable();
    recvs.connect();
    Flow {
        from,
        to,
        sender: Sender::new(config, 0),
        recvs,
        builder,
        reader: <Reader>::new(),
        pieces: VecDeque::new(),
        next_credit: 0,
        got: HashMap::new(),
        begun: 0,
        data: vec![0; bytes],
        posted: 0,
        buffers: VecDeque::new(),
        out: Vec::new(),
        flying: Vec::new(),
    }
}

/// The reference is each stream's bytes, in order.
fn follow(scenario: &Scenario, ops: &[Op]) {
    let flows = scenario.streams.iter().map(|stream| flow(scenario, stream)).collect();
    let pins = scenario.budgets.map(|pages| table(scenario.reserve + pages, scenario.reserve, scenario.linger));
    let (memory, services, copies, wire) = Default::default();
    let mut w = World { pins, memory, flows, services, copies, wire, mtu: scenario.mtu, now: 0 };
    for op in ops {
        w.step(op);
        w.settle();
    }
    // With a good wire everything comes to an end.
    let (mut rounds, mut stops) = (0, 0);
    while !w.done() {
        if !w.round() {
            // Something was lost, or memory is with those who do not use it.
            w.resend_all(stops);
            (0..2).for_each(|host| _ = w.recall(host));
            w.settle();
            stops += 1;
        }
        rounds += 1;
        let state = || w.flows.iter().map(|f| (&f.sender, &f.recvs)).collect::<Vec<_>>();
        assert!(rounds < 1000, "no end after {stops} stops: {:?} {:?}", w.pins, state());
    }
    // At rest nothing is pinned.
    for f in &mut w.flows {
        assert_eq!(f.out, f.data);
        let tags = std::mem::take(&mut f.flying);
        tags.into_iter().for_each(|tag| assert!(f.sender.sent(tag)));
        f.sender.close();
        f.recvs.close();
        f.buffers.clear();
    }
    for host in 0..2 {
        while let Some(r) = w.services[host].pop() {
            let spans = w.spans_of(&r);
            assert!(w.pins[host].unserved(&r, spans.into_iter(), w.now));
            w.answer(&r, Outcome::Failed(BlockError::Protection));
        }
    }
    for (f, tag) in std::mem::take(&mut w.copies) {
        assert!(w.flows[f].sender.answer(tag, Outcome::Held));
    }
    for f in 0..w.flows.len() {
        while let Some(action) = w.flows[f].sender.poll() {
            let host = w.flows[f].from;
            let r = |tag, usage| Request { owner: f as u32, tag, asid: 1, usage };
            match action {
                blocks::Action::Release { tag, start, len, usage } => {
                    let spans = w.flows[f].sender.spans(start, len);
                    assert!(w.pins[host].release(&r(tag, usage), spans, w.now));
                }
                blocks::Action::Cancel { tag, usage } => {
                    assert!(w.pins[host].cancel(&r(tag, usage)) && w.flows[f].sender.answer(tag, Outcome::Gone));
                }
                other => panic!("{other:?} of a closed stream"),
            }
        }
        while let Some(action) = w.flows[f].recvs.poll() {
            let host = w.flows[f].to;
            let r = |tag| Request { owner: f as u32 | RECV, tag, asid: 1, usage: Recvs::USAGE };
            match action {
                receives::Action::Release { tag } => {
                    let spans = w.flows[f].recvs.spans(tag);
                    assert!(w.pins[host].release(&r(tag), spans, w.now));
                }
                receives::Action::Cancel { tag } => {
                    assert!(w.pins[host].cancel(&r(tag)) && w.flows[f].recvs.answer(tag, Outcome::Gone));
                }
                receives::Action::Complete { .. } => (),
                other => panic!("{other:?} of closed receives"),
            }
        }
        assert!(w.flows[f].sender.idle() && w.flows[f].recvs.idle() && w.flows[f].sender.copied() == 0);
    }
    for pins in &mut w.pins {
        pins.expire(u64::MAX);
        assert_eq!((pins.pinned(), pins.lasting(), pins.waiting()), (0, 0, 0));
    }
}

proptest! {
    #![proptest_config(common::config(100))]

    #[test]
    fn pc_3_streams_under_tight_budgets_all_arrive_and_nothing_stays_pinned(
        scenario in scenario(), ops in prop::collection::vec(op(), 0..600),
    ) {
        follow(&scenario, &ops);
    }
}
