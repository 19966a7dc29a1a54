// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reliable connection: two ends joined by a wire that loses, repeats and reorders.

mod common;

use berth_protocol::memory::keys::{self, Binding, Keys};
use berth_protocol::model::Rng;
use berth_protocol::rc::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const LOG2_MTU: u8 = 8;
const MTU: u32 = 256;
const MEMORY: u64 = 8192;
const KEY: u32 = 0x00c0_ffee;
const RECEIVE: u32 = 1500;

/// True in `p` percent of the cases.
fn percent(rng: &mut Rng, p: u32) -> bool {
    rng.below(100) < p as u64
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
    /// Memory that is not resident cannot be made so.
    failing: bool,
    /// PSNs that were told "not yet" and are owed a GO.
    owed: Vec<u32>,
    rng: Rng,
    used: Vec<(u32, u32)>,
    /// A table of keys, instead of the one key for all of the memory.
    keys: Option<Keys<32>>,
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
        if let Some(keys) = &mut self.keys {
            return keys.admit(0, 1, a);
        }
        if a.remote.key != KEY || a.remote.va.saturating_add(a.remote.len as u64) > MEMORY {
            return Admit::No;
        }
        if self.failing {
            return Admit::Failed;
        }
        if !a.again && percent(&mut self.rng, self.absent) {
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
        if percent(rng, faults.loss) {
            return;
        }
        if percent(rng, faults.twice) {
            self.0.push_back(packet.clone());
        }
        self.0.push_back(packet);
    }
    fn pop(&mut self, faults: Faults, rng: &mut Rng) -> Option<T> {
        let i = rng.below(faults.reorder.min(self.0.len() as u64).max(1)) as usize;
        self.0.remove(i)
    }
}

/// Credit, bytes, immediate or invalidated key, what is in the receive, whether a WRITE used it.
type Received = (u32, u32, Result<Option<u32>, u32>, Vec<u8>, bool);

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
    /// The key of a SEND with invalidate that waits for its end.
    invalidates: Option<u32>,
    page_faults: Vec<Access>,
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
                failing: false,
                owed: Vec::new(),
                rng: Rng(seed ^ 1),
                used: Vec::new(),
                keys: None,
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
            invalidates: None,
            page_faults: Vec::new(),
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
                    assert!(self.landed.len() < self.host.receives.len(), "a receive is used that is not there");
                    self.landed.push(credit);
                }
                Event::Invalidate { key } => {
                    assert_eq!(self.invalidates.replace(key), None, "it is told once");
                }
                Event::Received { credit, len, imm, invalidated, solicited: _, write } => {
                    assert_eq!(credit, self.host.first_credit + self.host.complete);
                    let i = self.host.complete as usize;
                    self.host.complete += 1;
                    let got = if write { Vec::new() } else { self.buffers[i][..len as usize].to_vec() };
                    assert_eq!((self.invalidates, invalidated.and(imm)), (None, None));
                    self.received.push((credit, len, invalidated.map_or(Ok(imm), Err), got, write));
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
                Event::Used { key, first } => {
                    self.host.used.push((key, first));
                    if let Some(keys) = &mut self.host.keys {
                        keys.used(1, key, first);
                    }
                }
                Event::PageFault(access) => self.page_faults.push(access),
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
            // An access of no bytes is allowed anywhere.
            Place::Memory { .. } if payload.is_empty() => (),
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
            .filter(|r| r.len != 0)
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
        if self.invalidates.is_some() && percent(&mut self.rng, 20) {
            self.invalidates = None;
            self.b.invalidated(true);
            self.events();
        }
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
                            self.a.go(self.now, psn);
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
        while next < specs.len() && p.a.room() > 0 && percent(&mut p.rng, 70) {
            let s = specs[next];
            let tag = next as u32;
            let mut m = message(Op::Send, tag, 0, s.len, s.va);
            m.fence = answers_before;
            match s.what {
                0..=2 => {
                    m.offset = p.bytes(s.len, tag as u64);
                    let invalidates = s.what == 2;
                    m.imm = if invalidates { Immediate::Invalidate(tag) } else { Immediate::Value(tag) };
                    m.credit = credit;
                    credit = credit.wrapping_add(1);
                    p.receive(RECEIVE);
                    let told = if invalidates { Err(tag) } else { Ok(Some(tag)) };
                    let data = p.local[m.offset as usize..].to_vec();
                    expect_receives.push((m.credit, s.len, told, data, false));
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
                        expect_receives.push((m.credit, s.len, Ok(Some(tag)), Vec::new(), true));
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

proptest! {
    #![proptest_config(common::config(300))]

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

    /// So few PSNs that they wrap all the time. The wire keeps the order, and the window is an
    /// eighth of a turn: an answer that was asked for twice may be two windows late, which is
    /// still less than the half turn that a frame may live.
    #[test]
    fn qp_7_five_bit_psns_are_enough_where_the_wire_keeps_order(
        seed: u64, list in specs(), loss in 0u32..25, twice in 0u32..15, selective: bool,
    ) {
        let p = if selective { Pair::<5, 4>::berth(seed) } else { Pair::<5, 4>::foreign(seed) };
        random(p, &list, Faults { loss, twice, reorder: 1 }, 5);
    }

    #[test]
    fn qp_7_any_window_carries_the_messages(
        seed: u64, list in specs(), faults in faults(), window in 1u16..16, selective: bool, reads in 1u8..5,
    ) {
        let mut p = if selective { Pair::<24, 16>::berth(seed) } else { Pair::<24, 16>::foreign(seed) };
        let config = if selective {
            RequesterConfig::berth(LOG2_MTU, window, 2000)
        } else {
            RequesterConfig { tick: 1, ..RequesterConfig::foreign(LOG2_MTU, window, 2000) }
        };
        // PSNs wrap from the highest.
        p.a = Requester::new(RequesterConfig { retries: 0, reads, ..config }, 0xff_fff0);
        let (ack_every, writes_in_order) = (1 + (seed % 9) as u8, seed & 16 != 0);
        let answer = ResponderConfig { ack_every, writes_in_order, ..*p.b.config() };
        p.b = Responder::new(answer, 0xff_fff0, 250);
        random(p, &list, faults, 5);
    }

    /// Each one-shot key serves its operation whatever the wire does, answers that are asked for
    /// again included, and no other one.
    #[test]
    fn qp_12_one_shot_keys_serve_one_operation_over_a_bad_wire(
        seed: u64, list in prop::collection::vec((0u8..3, 1u32..1500), 1..20), faults in faults(), selective: bool,
    ) {
        let mut p = if selective { Pair::<24, 32>::berth(seed) } else { Pair::<24, 32>::foreign(seed) };
        p.faults = faults;
        p.host.memory = (0..MEMORY).map(|i| (i * 7) as u8).collect();
        let mut table = Keys::<32>::new();
        let mut expect = Vec::new();
        let mut last = Message::default();
        let mut made = Vec::new();
        for (i, &(what, len)) in list.iter().enumerate() {
            let (tag, va) = (i as u32, (i as u64 * 300) & !7);
            let key = table.allocate(0, p.rng.draw()).unwrap();
            let rights = keys::READ | keys::WRITE | keys::ATOMIC;
            let len = if what == 2 { 8 } else { len };
            table.bind(key, Binding { va, len: len as u64, rights, one_shot: true, region: 0 }).unwrap();
            let offset = p.bytes(len, tag as u64);
            let op = [Op::Write, Op::Read, Op::FetchAdd { add: 1 }][what as usize];
            last = Message { op, tag, offset, len, remote: Remote { va, key, len }, fence: true, ..Message::default() };
            made.push(last);
        }
        p.host.keys = Some(table);
        for m in made {
            let (at, end) = (m.remote.va as usize, m.remote.va as usize + m.len as usize);
            while p.a.post(m).is_err() {
                p.step();
            }
            let count = p.done.len() + p.a.pending();
            p.run(count);
            let local = p.local[m.offset as usize..][..m.len as usize].to_vec();
            match m.op {
                Op::FetchAdd { .. } => expect.push(m.tag),
                _ => prop_assert!(p.host.memory[at..end] == local),
            }
        }
        prop_assert!(p.done.iter().all(|c| c.status == Status::Done));
        prop_assert_eq!(p.atomics.iter().map(|a| a.0).collect::<Vec<_>>(), expect);
        // A refusal is not repeated: it must not get lost.
        p.faults = CLEAN;
        let count = p.done.len() + 1;
        p.a.post(Message { tag: 99, ..last }).unwrap();
        p.run(count);
        prop_assert_eq!(p.done[count - 1].status, Status::AccessRefused);
    }

    /// Whatever comes, the ends stay within their bounds, and what they say of bad input is defined.
    #[test]
    fn inv_6_arbitrary_packets_do_no_harm(
        seed: u64, selective: bool,
        script in prop::collection::vec((0u8..9, any::<u64>(), any::<u64>()), 1..150),
    ) {
        let mut p = if selective { Pair::<24, 32>::berth(seed) } else { Pair::<24, 32>::foreign(seed) };
        for _ in 0..6 {
            p.receive(RECEIVE);
        }
        for (what, x, y) in script {
            let psn = 5u32.wrapping_add((x % 40) as u32).wrapping_sub(4) & 0xff_ffff;
            let kind = [Kind::Send, Kind::Write, Kind::Read, Kind::CompareSwap, Kind::FetchAdd][(y % 5) as usize];
            let position =
                [Position::First, Position::Middle, Position::Last, Position::Only][(y >> 8) as usize % 4];
            let remote = Remote { va: y >> 32 & 0x3fff, key: KEY ^ (y >> 60 == 0) as u32, len: (x >> 16) as u32 & 0x7ff };
            match what {
                0 if p.a.room() == 0 => (),
                0 => p.send((x & 7) as u32, (y & 0x3ff) as u32, 250),
                1 => drop(p.transmit()),
                2 => drop(p.deliver_b()),
                3 => drop(p.respond()),
                4 => drop(p.place()),
                5 => {
                    let now = p.now + x % 100_000;
                    p.now = now;
                    p.a.tick(now);
                }
                6 => {
                    let body = match y % 4 {
                        0 => ResponseBody::Read { position, len: (y >> 8) as u32 & 0x1ff },
                        1 => ResponseBody::Atomic { original: y },
                        _ => {
                            let syndrome = Syndrome::from_byte((y >> 8) as u8).unwrap_or(Syndrome::Ack(31));
                            ResponseBody::Ack { syndrome, sack: (x >> 63 != 0).then_some((y as u128) << 64) }
                        }
                    };
                    p.a.response(p.now, &ResponsePacket { psn, msn: (x >> 40) as u32, body });
                    while p.a.complete().is_some() {}
                }
                7 => p.a.go(p.now, psn),
                _ => {
                    let packet = RequestPacket {
                        psn,
                        kind,
                        position,
                        len: (x >> 40) as u32 & 0x1ff,
                        imm: (y >> 20 & 1 != 0).then_some(1),
                        invalidate: (y >> 26 & 15 == 0).then_some(2),
                        remote: (y >> 21 & 3 != 0).then_some(remote),
                        operands: [x, y],
                        placement: (selective ^ (y >> 23 & 7 == 0)).then_some(Placement {
                            credit: 250 + (x >> 50) as u8 % 4,
                            index: (x >> 56) as u32 % 4,
                        }),
                        ack_request: x >> 60 & 1 != 0,
                        solicited: false,
                    };
                    let credits = p.host.receives.len() as u32;
                    if let Verdict::Place(Place::Receive { credit, offset }) = p.b.receive(&packet, &mut p.host) {
                        prop_assert!(credit.wrapping_sub(250) < credits && offset + packet.len <= RECEIVE);
                        p.b.placed(psn);
                    } else {
                        p.b.placed(psn ^ (x >> 61) as u32);
                    }
                    while let Some(event) = p.b.event() {
                        match event {
                            Event::Atomic { psn, .. } => p.b.atomic_done(psn, 0),
                            Event::Landed { credit } => p.landed.push(credit),
                            Event::Received { .. } => p.host.complete += 1,
                            Event::Invalidate { .. } => p.b.invalidated(y >> 30 & 1 != 0),
                            _ => (),
                        }
                    }
                }
            }
            prop_assert!(p.a.window().flight() <= 32);
        }
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

fn ack(psn: u32) -> ResponsePacket {
    ResponsePacket { psn, msn: 0, body: ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack: None } }
}

/// Lets everything happen that can, without time passing.
fn settle<const BITS: u32, const W: usize>(p: &mut Pair<BITS, W>) {
    while p.transmit() || p.deliver_b() || p.place() || p.respond() || p.deliver_a() {}
    while let Some(completion) = p.a.complete() {
        p.done.push(completion);
    }
}

#[test]
fn qp_3_a_read_asks_again_only_for_what_is_missing() {
    let mut p = Pair::<24, 32>::berth(1);
    p.host.memory = (0..MEMORY).map(|i| i as u8).collect();
    let offset = p.bytes(2000, 1);
    p.a.post(message(Op::Read, 9, offset, 2000, 100)).unwrap();
    assert!(p.transmit() && !p.transmit());
    p.deliver_b();
    while p.respond() {}
    assert_eq!(p.to_a.0.len(), 8);
    p.to_a.0.remove(2);
    p.to_a.0.remove(2);
    while p.deliver_a() {}
    settle(&mut p);
    assert_eq!(p.done, [Completion { tag: 9, len: 2000, status: Status::Done }]);
    assert_eq!(p.local, p.host.memory[100..2100]);
    let again = p.sent[1];
    assert_eq!((again.psn, again.remote), (7, Some(Remote { va: 100 + 2 * 256, key: KEY, len: 512 })));
    assert_eq!(p.sent.len(), 2);
    assert_eq!(p.timeouts, 0);
}

#[test]
fn qp_3_a_long_read_is_asked_for_in_parts_within_the_window() {
    let mut p = Pair::<24, 16>::berth(1);
    p.host.memory = (0..MEMORY).map(|i| (i / 3) as u8).collect();
    let offset = p.bytes(6001, 1);
    p.a.post(message(Op::Read, 9, offset, 6001, 1)).unwrap();
    settle(&mut p);
    assert_eq!(p.done.len(), 1);
    assert_eq!(p.local, p.host.memory[1..6002]);
    assert_eq!(p.sent.len(), 3);
}

#[test]
fn qp_3_an_atomic_whose_answer_is_lost_is_carried_out_once() {
    let mut p = Pair::<24, 32>::berth(1);
    p.a.post(message(Op::FetchAdd { add: 5 }, 1, 0, 8, 64)).unwrap();
    p.a.post(message(Op::CompareSwap { compare: 5, swap: 9 }, 2, 0, 8, 64)).unwrap();
    while p.transmit() || p.deliver_b() || p.respond() {}
    assert_eq!(p.to_a.0.len(), 2);
    p.to_a.0.clear();
    p.run(2);
    assert_eq!(p.timeouts, 1);
    assert_eq!(p.atomics, [(1, 0), (2, 5)]);
    assert_eq!(p.host.memory[64], 9);
}

#[test]
fn qp_3_a_fenced_message_waits_for_reads_before_it() {
    let mut p = Pair::<24, 32>::berth(1);
    let offset = p.bytes(600, 1);
    p.a.post(message(Op::Read, 1, offset, 300, 0)).unwrap();
    p.a.post(message(Op::Write, 2, offset, 100, 0)).unwrap();
    p.a.post(Message { fence: true, ..message(Op::Write, 3, offset, 100, 200) }).unwrap();
    assert!(p.transmit() && p.transmit() && !p.transmit());
    settle(&mut p);
    assert_eq!(p.done.len(), 3);
}

#[test]
fn qp_3_a_write_does_not_overtake_one_that_it_overlaps() {
    let mut p = Pair::<24, 32>::berth(1);
    let offset = p.bytes(600, 1);
    for (tag, va) in [(1, 0), (2, 100), (3, 99)] {
        p.a.post(message(Op::Write, tag, offset, 100, va)).unwrap();
    }
    assert!(p.transmit() && p.transmit() && !p.transmit());
    settle(&mut p);
    assert_eq!(p.done.len(), 3);
    assert_eq!(p.sent.len(), 3);
}

#[test]
fn qp_3_a_read_sees_the_write_before_it_though_that_came_late() {
    let mut p = Pair::<24, 32>::berth(1);
    let write = p.bytes(500, 1);
    let read = p.bytes(500, 2);
    p.a.post(message(Op::Write, 1, write, 500, 40)).unwrap();
    p.a.post(message(Op::Read, 2, read, 500, 40)).unwrap();
    while p.transmit() {}
    let first = p.to_b.0.pop_front().unwrap();
    p.to_b.0.push_back(first);
    while p.deliver_b() {}
    // The packets have arrived, but are not in memory: no answer yet.
    assert!(!p.respond() || p.replies.iter().all(|r| matches!(r.body, ResponseBody::Ack { .. })));
    settle(&mut p);
    p.run(2);
    assert_eq!(p.local[..500], p.local[500..]);
}

#[test]
fn inv_1_a_write_that_comes_early_uses_no_receive_that_is_not_there() {
    let mut p = Pair::<24, 32>::berth(1);
    let remote = Remote { va: 0, key: KEY, len: 8 };
    let placement = Some(Placement { credit: 0, index: 0 });
    let write = RequestPacket {
        kind: Kind::Write,
        position: Position::Only,
        len: 8,
        remote: Some(remote),
        placement,
        ..RequestPacket::default()
    };
    let early = RequestPacket { psn: 6, imm: Some(1), ..write };
    assert_eq!(p.b.receive(&early, &mut p.host), Verdict::Drop(Fault::OutOfOrder));
    assert!(matches!(p.b.receive(&RequestPacket { psn: 5, ..write }, &mut p.host), Verdict::Place(_)));
    p.b.placed(5);
    p.events();
    assert_eq!(p.b.receive(&early, &mut p.host), Verdict::Drop(Fault::NoCredit));
    assert!(p.landed.is_empty() && p.received.is_empty());
}

#[test]
fn qp_7_acknowledgements_are_coalesced() {
    let mut p = Pair::<24, 32>::berth(1);
    p.receive(40 * MTU);
    p.send(1, 40 * MTU, 250);
    settle(&mut p);
    let burst = p.replies.len();
    assert!(burst <= 4, "the receiver asked whether an answer is due only after all that had come: {burst}");
    assert_eq!(p.done.len(), 1);
}

#[test]
fn qp_7_after_the_retry_limit_the_oldest_fails_and_the_rest_is_flushed() {
    let mut p = Pair::<24, 32>::berth(1);
    p.a = Requester::new(RequesterConfig { retries: 2, ..RequesterConfig::berth(LOG2_MTU, 32, 100) }, 5);
    p.receive(RECEIVE);
    p.receive(RECEIVE);
    p.send(1, 10, 250);
    p.send(2, 10, 251);
    let mut times = Vec::new();
    while p.a.failed().is_none() {
        while p.transmit() {}
        p.to_b.0.clear();
        times.push(p.a.deadline().unwrap() - p.now);
        p.now = p.a.deadline().unwrap();
        assert!(p.a.tick(p.now));
    }
    assert_eq!(times, [100, 200, 400], "doubled each time");
    let psns: Vec<u32> = p.sent.iter().map(|p| p.psn).collect();
    assert_eq!(psns, [5, 6, 5, 5], "nobody answers: the oldest asks alone");
    assert!(p.a.transmit(p.now).is_none());
    assert_eq!(p.a.complete().unwrap().status, Status::RetryExceeded);
    assert_eq!(p.a.complete().unwrap().status, Status::Flushed);
    assert_eq!(p.a.complete(), None);
    assert_eq!(p.a.deadline(), None);
}

#[test]
fn qp_7_a_foreign_peer_without_a_receive_is_waited_for() {
    let mut p = Pair::<24, 32>::foreign(1);
    p.send(1, 700, 250);
    settle(&mut p);
    assert_eq!(p.a.waiting(), Some(Wait::Receive(5)));
    let rnr = p.replies.iter().filter(|r| matches!(r.body, ResponseBody::Ack { syndrome: Syndrome::Rnr(14), .. }));
    assert_eq!(rnr.count(), 1, "one for all that was on its way");
    assert_eq!(p.a.deadline(), Some(p.now + 128));
    p.receive(RECEIVE);
    p.now += 128;
    p.a.tick(p.now);
    settle(&mut p);
    assert_eq!(p.done.len(), 1);
    assert_eq!(p.received[0].3, p.local);
}

#[test]
fn qp_7_a_peer_that_is_never_ready_fails_the_send() {
    let mut p = Pair::<24, 32>::foreign(1);
    let config = RequesterConfig { tick: 1, rnr_retries: 2, ..RequesterConfig::foreign(LOG2_MTU, 32, 2000) };
    p.a = Requester::new(config, 5);
    p.send(1, 10, 250);
    for _ in 0..3 {
        settle(&mut p);
        p.now += 128;
        p.a.tick(p.now);
    }
    assert_eq!(p.done, [Completion { tag: 1, len: 10, status: Status::NotReady }]);
}

/// The acknowledgement of what lies behind a READ says that its answer is lost; said again, it says nothing of the next one.
#[test]
fn qp_7_a_repeated_acknowledgement_loses_no_answer_of_a_foreign_peer() {
    let mut p = Pair::<24, 32>::foreign(1);
    p.receive(RECEIVE);
    let offset = p.bytes(10, 9);
    p.a.post(message(Op::Read, 9, offset, 10, 0)).unwrap();
    p.send(0, 10, 250);
    while p.transmit() || p.deliver_b() || p.place() || p.respond() {}
    assert_eq!(p.to_a.0.len(), 2, "the READ's answer, and an acknowledgement of the SEND");
    p.to_a.0.remove(0);
    assert!(p.deliver_a());
    assert!(p.transmit() && !p.transmit(), "the READ goes again");
    let acknowledgement = *p.replies.last().unwrap();
    assert_eq!(p.a.response(p.now, &acknowledgement), Outcome::Nothing);
    assert!(!p.transmit());
    settle(&mut p);
    assert_eq!(p.done.len(), 2);
}

/// The peer counts each of them as a message that has come.
#[test]
fn qp_7_each_request_of_a_read_is_a_message_of_its_own() {
    let mut p = Pair::<24, 32>::foreign(1);
    for _ in 0..3 {
        p.receive(RECEIVE);
    }
    p.b.set_receives(Some(1));
    let offset = p.bytes(3000, 9);
    p.a.post(message(Op::Read, 9, offset, 3000, 0)).unwrap();
    p.send(0, 10, 250);
    settle(&mut p);
    assert_eq!((p.done.len(), p.replies.last().unwrap().msn), (2, 3), "two requests and a SEND");
    p.send(1, 10, 251);
    p.send(2, 10, 252);
    assert!(p.transmit() && !p.transmit(), "one, as the count says");
    settle(&mut p);
    assert_eq!(p.done.len(), 4);
}

#[test]
fn qp_7_credit_counts_of_a_foreign_peer_hold_the_sender() {
    let mut p = Pair::<24, 32>::foreign(1);
    for _ in 0..5 {
        p.receive(RECEIVE);
    }
    p.b.set_receives(Some(2));
    for i in 0..5 {
        p.send(i, 10, 250 + i);
    }
    assert!(p.transmit());
    p.deliver_b();
    p.place();
    p.b.set_receives(Some(2));
    p.respond();
    p.deliver_a();
    assert!(p.transmit() && p.transmit() && !p.transmit(), "two more, as the count says");
    p.b.set_receives(Some(0));
    while p.deliver_b() || p.place() || p.respond() || p.deliver_a() {}
    assert!(p.transmit() && !p.transmit(), "one may go when nothing is on its way");
    p.b.set_receives(None);
    settle(&mut p);
    assert_eq!(p.done.len(), 5);
}

#[test]
fn qp_7_credit_codes_and_rnr_timers_are_those_of_infiniband() {
    let counts = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
        6144, 8192, 12288, 16384, 24576, 32768,
    ];
    for (code, count) in counts.into_iter().enumerate() {
        assert_eq!(credit_count(code as u8), Some(count));
        assert_eq!(credit_code(count), code as u8);
        if code > 3 {
            assert_eq!(credit_code(count - 1), code as u8 - 1, "never more than there are");
        }
    }
    assert_eq!((credit_count(31), credit_code(u32::MAX)), (None, 30));
    let times = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    for (code, time) in times.into_iter().enumerate() {
        assert_eq!(rnr_time(code as u8), time);
    }
    for byte in 0..=255u8 {
        if let Some(syndrome) = Syndrome::from_byte(byte) {
            assert_eq!(syndrome.byte(), byte);
        }
    }
    assert_eq!(Syndrome::from_byte(0x65), None);
    assert_eq!(Syndrome::from_byte(0x40), None);
}

#[test]
fn pc_4_absent_memory_is_said_once_and_go_ends_the_wait() {
    for op in [Op::Write, Op::Read, Op::FetchAdd { add: 1 }] {
        let mut p = Pair::<24, 32>::berth(1);
        p.host.absent = 100;
        let offset = p.bytes(2000, 1);
        let len = if matches!(op, Op::FetchAdd { .. }) { 8 } else { 2000 };
        p.a.post(message(op, 1, offset, len, 0)).unwrap();
        settle(&mut p);
        assert_eq!(p.a.waiting(), Some(Wait::Memory(5)));
        let sent = p.sent.len();
        let long = p.a.deadline().unwrap();
        assert_eq!(long - p.now, 65536 * 2500, "655 ms");
        // Neither asks nor sends meanwhile.
        assert!(!p.a.tick(long - 1) && !p.transmit());
        assert_eq!(p.replies.len(), 1);
        p.host.absent = 0;
        p.a.go(p.now, 5);
        settle(&mut p);
        assert_eq!(p.done.len(), 1, "{op:?}");
        assert!(p.sent.len() > sent);
        assert_eq!(p.timeouts, 0);
    }
}

#[test]
fn pc_4_any_go_ends_the_wait_and_absent_memory_is_waited_for_once_more() {
    for overtakes in [false, true] {
        let mut p = Pair::<24, 32>::berth(1);
        let offset = p.bytes(2000, 1);
        p.a.post(message(Op::Write, 1, offset, 2000, 40)).unwrap();
        // The first two packets find the memory, and are acknowledged; then it is gone.
        for _ in 0..2 {
            assert!(p.transmit() && p.deliver_b() && p.place());
        }
        p.a.response(
            p.now,
            &ResponsePacket { psn: 6, msn: 0, body: ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack: None } },
        );
        assert_eq!(p.a.window().una().get(), 7);
        p.host.absent = 100;
        assert!(p.transmit() && p.deliver_b() && p.respond());
        assert_eq!(p.host.owed, [5], "the operation is named by its first packet");
        p.host.absent = 0;
        if overtakes {
            p.a.go(p.now, 5);
            settle(&mut p);
        } else {
            settle(&mut p);
            assert_eq!(p.a.waiting(), Some(Wait::Memory(7)));
            // One for what is over, and one for memory of another packet.
            p.a.go(p.now, 4);
            assert_eq!(p.a.waiting(), Some(Wait::Memory(7)));
            p.host.absent = 100;
            p.a.go(p.now, 6);
            assert_eq!(p.a.waiting(), None);
            settle(&mut p);
            assert_eq!(p.a.waiting(), Some(Wait::Memory(7)));
            p.host.absent = 0;
            p.a.go(p.now, 5);
            assert_eq!(p.a.waiting(), None);
            settle(&mut p);
        }
        assert_eq!((p.done.len(), p.now, p.timeouts), (1, 0, 0));
        assert_eq!(p.host.memory[40..2040], p.local);
    }
}

#[test]
fn qp_13_a_page_fault_that_cannot_be_handled_is_told_to_initiator_and_owner() {
    for op in [Op::Write, Op::Read, Op::FetchAdd { add: 1 }] {
        for selective in [true, false] {
            let mut p = if selective { Pair::<24, 32>::berth(1) } else { Pair::<24, 32>::foreign(1) };
            p.host.absent = 100;
            let offset = p.bytes(2000, 1);
            let len = if matches!(op, Op::FetchAdd { .. }) { 8 } else { 2000 };
            p.a.post(message(op, 1, offset, len, 0)).unwrap();
            p.a.post(message(op, 2, offset, len, 0)).unwrap();
            settle(&mut p);
            // A foreign one knows no GO: it asks again by itself.
            let wait = if selective { Wait::Memory(5) } else { Wait::Receive(5) };
            assert_eq!(p.a.waiting(), Some(wait));
            assert!(p.page_faults.is_empty(), "it is being handled");
            // It cannot be: the initiator is to ask again, and to be told.
            p.host.failing = true;
            if selective {
                p.a.go(p.now, 5);
            } else {
                p.now += 128;
                p.a.tick(p.now);
            }
            settle(&mut p);
            let ends: Vec<_> = p.done.iter().map(|c| c.status).collect();
            assert_eq!(ends, [Status::RemoteError, Status::Flushed], "{op:?}");
            let [fault] = p.page_faults[..] else { panic!("{:?}", p.page_faults) };
            assert_eq!((fault.remote, fault.first, fault.again), (Remote { va: 0, key: KEY, len }, 5, false));
            assert_eq!(p.broken, Some(Fault::PageFault));
            assert_eq!(p.host.memory, [0; MEMORY as usize]);
            assert_eq!((p.now, p.timeouts), (if selective { 0 } else { 128 }, 0));
        }
    }
}

#[test]
fn qp_13_so_is_one_that_strikes_when_a_read_is_asked_for_again() {
    let mut p = Pair::<24, 32>::berth(1);
    let offset = p.bytes(2000, 1);
    p.a.post(message(Op::Read, 1, offset, 2000, 0)).unwrap();
    assert!(p.transmit() && p.deliver_b());
    while p.respond() {}
    p.to_a.0.remove(3);
    p.host.failing = true;
    settle(&mut p);
    assert_eq!(p.done.iter().map(|c| c.status).collect::<Vec<_>>(), [Status::RemoteError]);
    let [fault] = p.page_faults[..] else { panic!("{:?}", p.page_faults) };
    assert_eq!((fault.first, fault.right, fault.again), (8, Right::Read, true));
}

#[test]
fn pc_4_go_may_overtake_not_yet() {
    let mut p = Pair::<24, 32>::berth(1);
    p.host.absent = 100;
    let offset = p.bytes(100, 1);
    p.a.post(message(Op::Write, 1, offset, 100, 0)).unwrap();
    p.transmit();
    p.deliver_b();
    p.respond();
    p.host.absent = 0;
    p.a.go(p.now, 5);
    settle(&mut p);
    assert_eq!(p.done.len(), 1);
    assert_eq!(p.now, 0);
}

#[test]
fn pc_4_not_yet_for_an_earlier_copy_begins_no_wait() {
    let config = RequesterConfig { probe: 5_000, ..RequesterConfig::berth(LOG2_MTU, 32, 20_000) };
    let mut p = Pair::<24, 32>::new(config, ResponderConfig::berth(LOG2_MTU), 1, 5, 250);
    for tag in 1..=2 {
        let offset = p.bytes(100, 1);
        p.a.post(message(Op::Write, tag, offset, 100, 0)).unwrap();
    }
    assert!(p.transmit());
    p.now += 1000;
    assert!(p.deliver_b() && p.place() && p.respond() && p.deliver_a());
    assert!(p.transmit());
    let not_yet = ResponseBody::Ack { syndrome: Syndrome::Rnr(0), sack: None };
    let not_yet = ResponsePacket { psn: 6, msn: 1, body: not_yet };
    p.a.response(p.now, &not_yet);
    assert_eq!(p.a.waiting(), Some(Wait::Memory(6)));
    p.a.go(p.now, 6);
    assert!(p.transmit());
    // Less than a round trip later.
    p.now += 500;
    p.a.response(p.now, &not_yet);
    assert_eq!(p.a.waiting(), None);
    assert!(p.transmit(), "sent once more");
    p.now += 1000;
    p.a.response(p.now, &not_yet);
    assert_eq!(p.a.waiting(), Some(Wait::Memory(6)));
}

#[test]
fn pc_4_while_no_round_trip_is_known_one_not_yet_behind_a_go_begins_no_wait() {
    let mut p = Pair::<24, 32>::berth(1);
    let offset = p.bytes(100, 1);
    p.a.post(message(Op::Write, 1, offset, 100, 0)).unwrap();
    let not_yet = ResponseBody::Ack { syndrome: Syndrome::Rnr(0), sack: None };
    let not_yet = ResponsePacket { psn: 5, msn: 0, body: not_yet };
    for waits in [true, false, true] {
        assert!(p.transmit());
        p.a.response(p.now, &not_yet);
        assert_eq!(p.a.waiting().is_some(), waits);
        if waits {
            p.a.go(p.now, 5);
            p.now += 1_000_000;
        }
    }
}

#[test]
fn pc_4_a_lost_go_costs_the_long_timer_only() {
    let mut p = Pair::<24, 32>::berth(1);
    p.host.absent = 100;
    let offset = p.bytes(100, 1);
    p.a.post(message(Op::Write, 1, offset, 100, 0)).unwrap();
    settle(&mut p);
    p.host.absent = 0;
    p.now = p.a.deadline().unwrap();
    assert!(!p.a.tick(p.now), "that is no time-out");
    settle(&mut p);
    assert_eq!(p.done.len(), 1);
}

#[test]
fn pc_4_a_wait_of_one_packet_lets_acknowledgements_of_others_in() {
    let mut p = Pair::<24, 32>::berth(1);
    let offset = p.bytes(100, 1);
    p.receive(RECEIVE);
    p.a.post(message(Op::Write, 1, offset, 100, 0)).unwrap();
    p.send(2, 100, 250);
    p.host.absent = 100;
    settle(&mut p);
    assert_eq!(p.a.waiting(), Some(Wait::Memory(5)));
    assert_eq!(p.a.window().done(), Bitmap::bit(1), "the send behind it has arrived");
    assert_eq!(p.a.deadline(), Some(65536 * 2500));
    assert!(p.landed.is_empty() && p.done.is_empty());
    p.host.absent = 0;
    p.a.go(p.now, 5);
    settle(&mut p);
    assert_eq!(p.done.len(), 2);
}

#[test]
fn qp_5_delay_holds_what_follows_for_its_time() {
    let mut p = Pair::<24, 32>::berth(1);
    for _ in 0..2 {
        p.receive(RECEIVE);
    }
    p.send(1, 10, 250);
    p.a.post(Message { op: Op::Delay(500), tag: 2, ..Message::default() }).unwrap();
    p.send(3, 10, 251);
    p.now = 1000;
    settle(&mut p);
    assert_eq!(p.done.len(), 1);
    assert_eq!(p.a.deadline(), Some(1500));
    p.now = 1499;
    settle(&mut p);
    assert_eq!(p.done.len(), 1);
    p.now = 1500;
    settle(&mut p);
    assert_eq!(p.done.iter().map(|c| c.tag).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(p.a.deadline(), None);
}

#[test]
fn qp_4_what_the_card_does_itself_completes_in_its_turn() {
    let mut p = Pair::<24, 32>::berth(1);
    p.receive(RECEIVE);
    p.send(1, 10, 250);
    p.a.post(Message { op: Op::Local, tag: 2, ..Message::default() }).unwrap();
    p.transmit();
    p.transmit();
    assert_eq!(p.a.complete(), None);
    settle(&mut p);
    assert_eq!(p.done.iter().map(|c| c.tag).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn qp_11_a_wrong_key_or_range_is_refused_with_nothing_touched() {
    for op in [Op::Write, Op::Read, Op::CompareSwap { compare: 0, swap: 1 }] {
        for (key, va) in [(KEY + 1, 0), (KEY, MEMORY - 4), (KEY, u64::MAX - 7)] {
            let mut p = Pair::<24, 32>::berth(1);
            p.receive(RECEIVE);
            let offset = p.bytes(100, 1);
            let remote = Remote { va: va & !7, key, len: 100 };
            p.a.post(Message { op, tag: 1, offset, len: 100, remote, ..Message::default() }).unwrap();
            p.send(2, 10, 250);
            settle(&mut p);
            let want = match (op, va) {
                // Eight bytes at the end fit.
                (Op::CompareSwap { .. }, va) if va == MEMORY - 4 => Status::Done,
                _ => Status::AccessRefused,
            };
            assert_eq!(p.done[0], Completion { tag: 1, len: 100, status: want });
            if want != Status::Done {
                assert_eq!(p.done[1].status, Status::Flushed);
                assert_eq!(p.broken, Some(Fault::Access));
                assert!(p.host.memory.iter().all(|&b| b == 0));
            }
        }
    }
}

#[test]
fn cr_2_a_piece_longer_than_its_credit_is_refused() {
    let mut p = Pair::<24, 32>::berth(1);
    p.receive(300);
    p.send(1, 301, 250);
    settle(&mut p);
    assert_eq!(p.broken, Some(Fault::TooLong));
    assert_eq!(p.done[0].status, Status::InvalidRequest);
}

#[test]
fn cr_3_a_berth_peer_that_sends_without_a_credit_is_refused() {
    let mut p = Pair::<24, 32>::berth(1);
    p.send(1, 10, 250);
    settle(&mut p);
    assert_eq!(p.broken, Some(Fault::NoCredit));
    assert_eq!(p.done[0].status, Status::RemoteError);
}

#[test]
fn cr_9_bytes_remaining_are_computed_when_the_packet_leaves() {
    let mut p = Pair::<24, 32>::berth(1);
    p.receive(RECEIVE);
    let offset = p.bytes(300, 1);
    p.a.post(Message { tag: 1, offset, len: 300, credit: 250, imm: Immediate::Remaining, ..Message::default() })
        .unwrap();
    p.a.posted(1000);
    p.transmit();
    p.transmit();
    assert_eq!(p.sent[1].imm, Some(700));
    p.to_b.0.clear();
    p.a.posted(5000);
    p.now = p.a.deadline().unwrap();
    p.a.tick(p.now);
    settle(&mut p);
    assert_eq!(p.received[0].2, Ok(Some(4700)));
}

#[test]
fn cr_17_a_message_of_no_bytes_uses_one_receive() {
    let mut p = Pair::<24, 32>::berth(1);
    p.receive(0);
    p.send(1, 0, 250);
    settle(&mut p);
    assert_eq!(p.received, [(250, 0, Ok(Some(1)), Vec::new(), false)]);
    assert_eq!(p.done.len(), 1);
}

#[test]
fn qp_7_an_old_acknowledgement_is_no_news_and_a_wrong_one_is_bad() {
    let mut p = Pair::<24, 32>::berth(1);
    p.receive(RECEIVE);
    p.send(1, 600, 250);
    while p.transmit() {}
    assert_eq!(p.a.response(0, &ack(4)), Outcome::Nothing);
    assert_eq!(p.a.response(0, &ack(8)), Outcome::Bad);
    assert_eq!(p.a.response(0, &ack(5)), Outcome::Progress);
    assert_eq!(p.a.response(0, &ack(3)), Outcome::Nothing);
    assert_eq!(p.a.response(0, &ack(7)), Outcome::Progress);
    assert_eq!(p.a.complete(), Some(Completion { tag: 1, len: 600, status: Status::Done }));
}

#[test]
fn qp_7_a_loss_before_a_read_is_told_at_once() {
    let mut p = Pair::<24, 32>::berth(1);
    p.receive(RECEIVE);
    p.send(1, 10, 250);
    let offset = p.bytes(600, 1);
    p.a.post(message(Op::Read, 2, offset, 600, 0)).unwrap();
    while p.transmit() {}
    p.to_b.0.pop_front();
    settle(&mut p);
    assert_eq!(p.done.len(), 2);
    assert_eq!(p.timeouts, 0);
}
