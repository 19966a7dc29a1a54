// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reliable connection: two ends joined by a wire that loses, repeats and reorders.

use berth_protocol::rc::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const LOG2_MTU: u8 = 8;
const MTU: u32 = 256;
const MEMORY: u64 = 8192;
const KEY: u32 = 0x00c0_ffee;
const RECEIVE: u32 = 1500;

/// Random source of a schedule (SplitMix64).
#[derive(Clone)]
struct Rng(u64);
impl Rng {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }
    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent as u64
    }
}

/// What the responder's card knows: receives and memory.
struct Host {
    /// Size of each receive, by credit number.
    receives: Vec<u32>,
    first_credit: u32,
    complete: u32,
    memory: Vec<u8>,
    /// Percent of accesses that find the memory not resident.
    absent: u32,
    /// PSNs that were told "not yet" and are owed a GO.
    owed: Vec<u32>,
    rng: Rng,
    used: Vec<(u32, u32)>,
}

impl Target for Host {
    fn credit(&self, number: u32) -> Option<u32> {
        let i = number.wrapping_sub(self.first_credit);
        if i < self.complete {
            return None;
        }
        self.receives.get(i as usize).copied()
    }
    fn access(&mut self, a: &Access) -> Admit {
        if a.remote.key != KEY || a.remote.va.saturating_add(a.remote.len as u64) > MEMORY {
            return Admit::No;
        }
        if !a.again && self.rng.chance(self.absent) {
            self.owed.push(a.first);
            return Admit::NotYet;
        }
        Admit::Yes
    }
}

#[derive(Clone, Copy, Debug)]
struct Faults {
    loss: u32,
    twice: u32,
    reorder: u64,
}

const CLEAN: Faults = Faults { loss: 0, twice: 0, reorder: 1 };

/// One direction of a wire.
struct Wire<T>(VecDeque<T>);
impl<T: Clone> Wire<T> {
    fn push(&mut self, packet: T, faults: Faults, rng: &mut Rng) {
        if rng.chance(faults.loss) {
            return;
        }
        if rng.chance(faults.twice) {
            self.0.push_back(packet.clone());
        }
        self.0.push_back(packet);
    }
    fn pop(&mut self, faults: Faults, rng: &mut Rng) -> Option<T> {
        let i = rng.below(faults.reorder.min(self.0.len() as u64)) as usize;
        self.0.remove(i)
    }
}

/// Credit, bytes, immediate, what is in the receive, whether a WRITE used it.
type Received = (u32, u32, Option<u32>, Vec<u8>, bool);

struct Pair<const BITS: u32, const W: usize> {
    a: Requester<BITS, W, 8>,
    b: Responder<BITS, W, 4>,
    host: Host,
    /// The requester's bytes: what it sends, and what it reads into.
    local: Vec<u8>,
    to_b: Wire<(RequestPacket, Vec<u8>)>,
    to_a: Wire<(ResponsePacket, Vec<u8>)>,
    goes: Vec<u32>,
    placing: Vec<(u32, Place, Vec<u8>)>,
    rng: Rng,
    faults: Faults,
    selective: bool,
    now: u64,
    landed: Vec<u32>,
    received: Vec<Received>,
    buffers: Vec<Vec<u8>>,
    done: Vec<Completion>,
    atomics: Vec<(u32, u64)>,
    sent: Vec<RequestPacket>,
    replies: Vec<ResponsePacket>,
    timeouts: u32,
    broken: Option<Fault>,
    /// Every packet whose bytes were put somewhere, in that order.
    places: Vec<(u32, Place)>,
}

impl<const BITS: u32, const W: usize> Pair<BITS, W> {
    fn new(config: RequesterConfig, answer: ResponderConfig, seed: u64, psn: u32, credit: u32) -> Self {
        Self {
            a: Requester::new(config, psn),
            b: Responder::new(answer, psn, credit),
            host: Host {
                receives: Vec::new(),
                first_credit: credit,
                complete: 0,
                memory: vec![0; MEMORY as usize],
                absent: 0,
                owed: Vec::new(),
                rng: Rng(seed ^ 1),
                used: Vec::new(),
            },
            local: Vec::new(),
            to_b: Wire(VecDeque::new()),
            to_a: Wire(VecDeque::new()),
            goes: Vec::new(),
            placing: Vec::new(),
            rng: Rng(seed),
            faults: CLEAN,
            selective: config.selective,
            now: 0,
            landed: Vec::new(),
            received: Vec::new(),
            buffers: Vec::new(),
            done: Vec::new(),
            atomics: Vec::new(),
            sent: Vec::new(),
            replies: Vec::new(),
            timeouts: 0,
            broken: None,
            places: Vec::new(),
        }
    }

    fn berth(seed: u64) -> Self {
        let config = RequesterConfig { retries: 0, ..RequesterConfig::berth(LOG2_MTU, W as u16, 2000) };
        Self::new(config, ResponderConfig::berth(LOG2_MTU), seed, 5, 250)
    }

    fn foreign(seed: u64) -> Self {
        let config = RequesterConfig { tick: 1, retries: 0, ..RequesterConfig::foreign(LOG2_MTU, W as u16, 2000) };
        Self::new(config, ResponderConfig::foreign(LOG2_MTU, 14), seed, 5, 250)
    }

    fn receive(&mut self, size: u32) {
        self.host.receives.push(size);
        self.buffers.push(vec![0; size as usize]);
    }

    /// A stretch of local memory with a pattern; gives its offset.
    fn bytes(&mut self, len: u32, seed: u64) -> u64 {
        let at = self.local.len() as u64;
        let mut rng = Rng(seed);
        self.local.extend((0..len).map(|_| rng.draw() as u8));
        at
    }

    fn transmit(&mut self) -> bool {
        let Some(t) = self.a.transmit(self.now) else {
            return false;
        };
        let at = t.offset as usize;
        let payload = self.local[at..at + t.packet.len as usize].to_vec();
        self.sent.push(t.packet);
        assert!(self.a.window().flight() <= W as u32);
        self.to_b.push((t.packet, payload), self.faults, &mut self.rng);
        true
    }

    fn events(&mut self) {
        while let Some(event) = self.b.event() {
            match event {
                Event::Landed { credit } => {
                    assert_eq!(credit, self.host.first_credit + self.landed.len() as u32, "landings are in order");
                    self.landed.push(credit);
                }
                Event::Received { credit, len, imm, solicited: _, write } => {
                    assert_eq!(credit, self.host.first_credit + self.host.complete);
                    let i = self.host.complete as usize;
                    self.host.complete += 1;
                    let got = if write { Vec::new() } else { self.buffers[i][..len as usize].to_vec() };
                    self.received.push((credit, len, imm, got, write));
                }
                Event::Atomic { psn, kind, remote, operands } => {
                    let at = remote.va as usize;
                    let old = u64::from_le_bytes(self.host.memory[at..at + 8].try_into().unwrap());
                    let new = match kind {
                        Kind::FetchAdd => old.wrapping_add(operands[0]),
                        _ if old == operands[1] => operands[0],
                        _ => old,
                    };
                    self.host.memory[at..at + 8].copy_from_slice(&new.to_le_bytes());
                    self.b.atomic_done(psn, old);
                }
                Event::Used { key, first } => self.host.used.push((key, first)),
                Event::Broken(fault) => self.broken = Some(fault),
            }
        }
    }

    fn deliver_b(&mut self) -> bool {
        let Some((packet, payload)) = self.to_b.pop(self.faults, &mut self.rng) else {
            return false;
        };
        let verdict = self.b.receive(&packet, &mut self.host);
        if let Verdict::Place(place) = verdict {
            self.placing.push((packet.psn, place, payload));
        }
        self.events();
        true
    }

    fn place(&mut self) -> bool {
        if self.placing.is_empty() {
            return false;
        }
        // A peer that holds back no WRITE that overlaps another needs them in order.
        let i = if self.selective { self.rng.below(self.placing.len() as u64) as usize } else { 0 };
        let (psn, place, payload) = self.placing.remove(i);
        match place {
            Place::Receive { credit, offset } => {
                let buffer = &mut self.buffers[(credit - self.host.first_credit) as usize];
                buffer[offset as usize..offset as usize + payload.len()].copy_from_slice(&payload);
            }
            Place::Memory { va, .. } => {
                self.host.memory[va as usize..va as usize + payload.len()].copy_from_slice(&payload);
            }
        }
        self.places.push((psn, place));
        self.b.placed(psn);
        self.events();
        true
    }

    fn respond(&mut self) -> bool {
        let Some(reply) = self.b.respond() else {
            return false;
        };
        let payload = reply
            .payload
            .map_or(Vec::new(), |r| self.host.memory[r.va as usize..r.va as usize + r.len as usize].to_vec());
        self.replies.push(reply.packet);
        self.to_a.push((reply.packet, payload), self.faults, &mut self.rng);
        self.events();
        true
    }

    fn deliver_a(&mut self) -> bool {
        let Some((packet, payload)) = self.to_a.pop(self.faults, &mut self.rng) else {
            return false;
        };
        match self.a.response(self.now, &packet) {
            Outcome::Read { offset, len, .. } => {
                assert_eq!(len as usize, payload.len());
                self.local[offset as usize..offset as usize + payload.len()].copy_from_slice(&payload);
            }
            Outcome::Atomic { tag, original, .. } => self.atomics.push((tag, original)),
            Outcome::Bad => panic!("{packet:?}"),
            _ => (),
        }
        while let Some(completion) = self.a.complete() {
            self.done.push(completion);
        }
        true
    }

    /// One step of a random schedule; time passes when nothing else can happen.
    fn step(&mut self) {
        for _ in 0..20 {
            let did = match self.rng.below(6) {
                0 => self.transmit(),
                1 => self.deliver_b(),
                2 => self.place(),
                3 => self.respond(),
                4 => self.deliver_a(),
                _ => {
                    while let Some(psn) = self.host.owed.pop() {
                        self.goes.push(psn);
                    }
                    match self.goes.is_empty() {
                        true => false,
                        false => {
                            let i = self.rng.below(self.goes.len() as u64) as usize;
                            let psn = self.goes.swap_remove(i);
                            self.a.go(psn);
                            true
                        }
                    }
                }
            };
            if did {
                self.now += 1;
                return;
            }
        }
        if let Some(deadline) = self.a.deadline()
            && self.to_a.0.is_empty()
            && self.to_b.0.is_empty()
        {
            self.now = self.now.max(deadline);
            self.timeouts += self.a.tick(self.now) as u32;
        }
        while let Some(completion) = self.a.complete() {
            self.done.push(completion);
        }
    }

    /// Runs until `count` messages are over.
    fn run(&mut self, count: usize) {
        for _ in 0..200_000 {
            if self.done.len() >= count {
                return;
            }
            self.step();
        }
        panic!("no progress: {:?} {:?}", self.a.window(), self.b.arrival());
    }

    fn send(&mut self, tag: u32, len: u32, credit: u32) {
        let offset = self.bytes(len, tag as u64);
        self.a
            .post(Message { op: Op::Send, tag, offset, len, credit, imm: Immediate::Value(tag), ..Message::default() })
            .unwrap();
    }
}

fn message(op: Op, tag: u32, offset: u64, len: u32, va: u64) -> Message {
    Message { op, tag, offset, len, remote: Remote { va, key: KEY, len }, ..Message::default() }
}

/// A random message.
#[derive(Clone, Copy, Debug)]
struct Spec {
    what: u8,
    len: u32,
    va: u64,
}

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let len = prop_oneof![0u32..20, 1u32..RECEIVE, Just(MTU), Just(MTU * 3)];
    prop::collection::vec((0u8..7, len, 0..MEMORY - 5000), 1..24)
        .prop_map(|list| list.into_iter().map(|(what, len, va)| Spec { what, len, va }).collect())
}

fn faults() -> impl Strategy<Value = Faults> {
    (0u32..25, 0u32..15, 1u64..6).prop_map(|(loss, twice, reorder)| Faults { loss, twice, reorder })
}

/// Random messages over a bad wire have the effect that they have one after the other.
fn random<const BITS: u32, const W: usize>(mut p: Pair<BITS, W>, specs: &[Spec], faults: Faults, absent: u32) {
    p.faults = faults;
    p.host.absent = absent;
    let mut rounds = 0;
    let mut memory = vec![0u8; MEMORY as usize];
    let mut expect_receives = Vec::new();
    let mut expect_atomics = Vec::new();
    let mut expect_reads = Vec::new();
    let mut next = 0;
    let mut credit = p.host.first_credit;
    let mut answers_before = false;
    while p.done.len() < specs.len() {
        while next < specs.len() && p.a.room() > 0 && p.rng.chance(70) {
            let s = specs[next];
            let tag = next as u32;
            let mut m = message(Op::Send, tag, 0, s.len, s.va);
            m.fence = answers_before;
            match s.what {
                0..=2 => {
                    m.offset = p.bytes(s.len, tag as u64);
                    m.imm = Immediate::Value(tag);
                    m.credit = credit;
                    credit = credit.wrapping_add(1);
                    p.receive(RECEIVE);
                    let data = p.local[m.offset as usize..].to_vec();
                    expect_receives.push((m.credit, s.len, Some(tag), data, false));
                }
                3 | 4 => {
                    m.op = Op::Write;
                    m.offset = p.bytes(s.len, tag as u64);
                    memory[s.va as usize..s.va as usize + s.len as usize]
                        .copy_from_slice(&p.local[m.offset as usize..]);
                    if s.what == 4 {
                        m.imm = Immediate::Value(tag);
                        m.credit = credit;
                        credit = credit.wrapping_add(1);
                        p.receive(RECEIVE);
                        expect_receives.push((m.credit, s.len, Some(tag), Vec::new(), true));
                    }
                }
                5 => {
                    m.op = Op::Read;
                    m.offset = p.bytes(s.len, 99);
                    answers_before = true;
                    let data = memory[s.va as usize..s.va as usize + s.len as usize].to_vec();
                    expect_reads.push((m.offset as usize, data));
                }
                _ => {
                    m.len = 8;
                    m.remote.va = s.va & !7;
                    answers_before = true;
                    let at = m.remote.va as usize;
                    let old = u64::from_le_bytes(memory[at..at + 8].try_into().unwrap());
                    let new = match s.len & 1 {
                        0 => {
                            m.op = Op::FetchAdd { add: tag as u64 + 1 };
                            old.wrapping_add(tag as u64 + 1)
                        }
                        _ => {
                            let compare = if s.len & 2 == 0 { old } else { 1 };
                            m.op = Op::CompareSwap { compare, swap: tag as u64 };
                            if old == compare { tag as u64 } else { old }
                        }
                    };
                    memory[at..at + 8].copy_from_slice(&new.to_le_bytes());
                    expect_atomics.push((tag, old));
                }
            }
            p.a.post(m).unwrap();
            next += 1;
        }
        let done = p.done.len();
        for _ in 0..5000 {
            p.step();
            if p.done.len() > done || (next < specs.len() && p.a.room() > 0) {
                break;
            }
        }
        rounds += 1;
        assert!(rounds < 2000 && p.broken.is_none(), "{:?} {:?} {:?}", p.broken, p.a.window(), p.b.arrival());
    }
    for (i, completion) in p.done.iter().enumerate() {
        assert_eq!((completion.tag, completion.status), (i as u32, Status::Done));
    }
    assert!(p.received == expect_receives);
    assert_eq!(p.atomics, expect_atomics);
    for (offset, data) in expect_reads {
        assert!(p.local[offset..offset + data.len()] == data);
    }
    assert!(p.host.memory == memory);
    assert!(!p.a.busy());
}

fn cases() -> ProptestConfig {
    let count = std::env::var("BERTH_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn qp_7_selective_repeat_delivers_once_in_order_over_a_bad_wire(
        seed: u64, list in specs(), faults in faults(), absent in 0u32..20,
    ) {
        random(Pair::<24, 32>::berth(seed), &list, faults, absent);
    }

    #[test]
    fn qp_7_go_back_n_delivers_once_in_order_over_a_bad_wire(
        seed: u64, list in specs(), faults in faults(), absent in 0u32..20,
    ) {
        random(Pair::<24, 32>::foreign(seed), &list, faults, absent);
    }
}

#[test]
fn cr_5_pieces_land_in_psn_order_though_their_packets_do_not() {
    let mut p = Pair::<24, 32>::berth(3);
    for _ in 0..3 {
        p.receive(RECEIVE);
    }
    for i in 0..3 {
        p.send(i, 2 * MTU, 250 + i);
    }
    while p.transmit() {}
    // The first packet comes last.
    let first = p.to_b.0.pop_front().unwrap();
    p.to_b.0.push_back(first);
    for _ in 0..5 {
        p.deliver_b();
        assert!(p.landed.is_empty() && p.received.is_empty());
    }
    while p.place() {}
    assert_eq!(p.places.len(), 5, "what is ahead is placed at once");
    p.deliver_b();
    assert_eq!(p.landed, [250, 251, 252]);
    p.place();
    assert_eq!(p.received.iter().map(|r| (r.0, r.1)).collect::<Vec<_>>(), [(250, 512), (251, 512), (252, 512)]);
    p.run(3);
    assert_eq!(p.sent.len(), 6, "nothing was sent again");
}

#[test]
fn qp_7_only_what_is_missing_is_sent_again() {
    let mut p = Pair::<24, 128>::berth(4);
    p.receive(100 * MTU);
    p.send(7, 100 * MTU, 250);
    for i in 0..100 {
        assert!(p.transmit());
        if i % 10 == 3 {
            p.to_b.0.pop_back();
        }
        while p.deliver_b() || p.place() || p.respond() || p.deliver_a() {}
    }
    p.run(1);
    assert_eq!(p.sent.len(), 110);
    assert_eq!(p.timeouts, 0);
    assert_eq!(p.received[0].3, p.local);
}
