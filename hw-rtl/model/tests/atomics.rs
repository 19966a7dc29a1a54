// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Atomics of peers on one card, firmware in reset: rows and keys are written through the debug port; at the far end of each QP
//! is a golden requester.

use berth_abi::card::{FIRST_QPN, NUM_KEYS};
use berth_abi::counters::{C_FP_ATOMICS, C_FP_ATOMICS_AGAIN};
use berth_abi::host::{HOST_DMA_ENABLE, HOST_FENCE_LO};
use berth_abi::message::Fence;
use berth_abi::rows::{self, HALF_RECEIVES, HALF_SENDS, recv, send};
use berth_protocol::memory::keys::{ATOMIC, Binding, Keys};
use berth_protocol::rc::{Message, Op, Outcome, Remote, Requester, RequesterConfig};
use berth_protocol::wire::ext::{Bth, Extended};
use berth_protocol::wire::net::{Eth, Ip, Ipv4};
use berth_protocol::wire::opcode::Service;
use berth_protocol::wire::{self, Packet};
use berth_random::seed;
use berth_rtl::{BAR_CONTROL, CardConfig};
use berth_rtl_host::{Access, Board, Commands, Events, Memory, Page, Pager, Rng, pages};
use std::collections::BTreeSet;

const HOST: u64 = 0x1_0000_0000;
const BYTES: usize = 1 << 20;
/// Places in host memory.
const COMMANDS: u64 = HOST;
const EVENTS: u64 = HOST + 0x1_0000;
const TOKEN: u64 = HOST + 0x2_0000;
const DATA: u64 = HOST + 0x4_0000;
const LOG2: u32 = 9;
/// Virtual addresses of DATA, and their address spaces: QPs by turns know it by the one or the other.
const SPACES: [(u32, u64); 2] = [(3, 0x7f00_1234_0000), (9, 0x6543_2000_5000)];
const PAGES: u64 = 4;
const QPS: u32 = 5;
const DOMAIN: u16 = 7;
const PSN: u32 = 0xff_fff0;
const OWN: ([u8; 6], [u8; 4]) = ([2, 0, 0, 0, 0, 1], [10, 0, 0, 1]);
const PEER: ([u8; 6], [u8; 4]) = ([2, 0, 0, 0, 0, 2], [10, 0, 0, 2]);

/// The card, and the far ends of its QPs.
struct Bench {
    board: Board,
    commands: Commands,
    events: Events,
    pager: Pager,
    peers: Vec<Requester<24, 256, 64>>,
    keys: [u32; 2],
    /// Frames that the wire loses, in a hundred.
    loss: u64,
    rng: Rng,
    /// What each atomic, by its tag, has heard.
    heard: Vec<Option<u64>>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let memory = Memory::new(0);
        memory.map(HOST, &vec![0; BYTES], Access::ReadWrite);
        let mut board = Board::new(CardConfig { split: false, ..CardConfig::default() }, memory);
        let (mut commands, mut events) = (Commands::new(COMMANDS, LOG2), Events::new(EVENTS, LOG2));
        let Board { card, memory } = &mut board;
        commands.attach(card, memory);
        events.attach(card, memory);
        card.set_reg(HOST_DMA_ENABLE, 1);
        card.mmio_write(BAR_CONTROL, HOST_FENCE_LO.into(), TOKEN, 8);
        let mut pager = Pager::new(u64::MAX, 0);
        for (asid, va) in SPACES {
            let all = pages(va, PAGES * 4096);
            for (vpn, bus) in all.clone().zip((DATA..).step_by(4096)) {
                pager.map(asid, vpn, Page { bus, writable: true });
            }
            pager.pin(asid, all, memory).into_iter().for_each(|entry| commands.put(entry));
        }
        commands.carry_out(card, memory);
        let mut bench = Self {
            board,
            commands,
            events,
            pager,
            peers: Vec::new(),
            keys: [0; 2],
            loss: 0,
            rng: Rng(seed),
            heard: Vec::new(),
        };
        for q in FIRST_QPN..FIRST_QPN + QPS {
            bench.connect(q);
            let far = RequesterConfig { retries: 0, reads: 16, ..RequesterConfig::berth(12, 255, 20_000) };
            bench.peers.push(Requester::new(far, PSN));
        }
        let mut keys = Keys::<64>::new();
        for (n, (asid, va)) in SPACES.into_iter().enumerate() {
            let key = keys.allocate(DOMAIN, 99).expect("a place");
            let binding = Binding { va, len: PAGES * 4096, rights: ATOMIC, ..Binding::default() };
            keys.bind(key, binding).expect("a range");
            for (word, value) in (recv::KEY..).zip(keys.words((key >> 8 & 63) as usize, asid as u8)) {
                bench.row(HALF_RECEIVES, 0, word, value);
            }
            let store = recv::Command { opcode: recv::CMD_KEY_STORE, argument: key >> 8 & (NUM_KEYS - 1) };
            bench.row(HALF_RECEIVES, 0, recv::COMMAND, store.word());
            bench.keys[n] = key;
        }
        bench
    }

    fn row(&mut self, half: u32, q: u32, word: u32, value: u32) {
        self.board.write(rows::address(half, q, word), value);
    }

    fn connect(&mut self, q: u32) {
        let mut t = [0; 56];
        t[0..6].copy_from_slice(&PEER.0);
        t[6..12].copy_from_slice(&OWN.0);
        t[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        t[20..24].copy_from_slice(&[0x40, 0, 64, 17]);
        t[26..30].copy_from_slice(&OWN.1);
        t[30..34].copy_from_slice(&PEER.1);
        t[34..38].copy_from_slice(&[0xc0, 0x01, 0x12, 0xb7]);
        t[44..46].copy_from_slice(&[0xff, 0xff]);
        t[47..50].copy_from_slice(&q.to_be_bytes()[1..]);
        let sum: u32 = (14..34).step_by(2).map(|i| u32::from(t[i]) << 8 | u32::from(t[i + 1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        t[24..26].copy_from_slice(&(sum as u16).to_be_bytes());
        for (word, chunk) in (0..).zip(t.chunks(4)) {
            self.row(HALF_SENDS, q, word, u32::from_le_bytes(chunk.try_into().expect("4 bytes")));
        }
        let mode = send::Mode { reorder: 3, window: 128, selective: 1, log2_mtu: 12, ..send::Mode::default() };
        for (word, value) in [
            (send::QUEUE, send::Queue { cqn: 0, asid: SPACES[0].0, log2_depth: 8 }.word()),
            (send::MODE, mode.word()),
            (send::TIMEOUT, 0),
            (send::BLOCKS, send::Blocks { ahead: 8, log2_block: 16 }.word()),
            (send::PSN, 100),
            (send::COMMAND, send::CMD_START),
        ] {
            self.row(HALF_SENDS, q, word, value);
        }
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("4 bytes"));
        let mode = recv::Mode {
            ack_every: 4,
            selective: 1,
            log2_mtu: 12,
            remote: 1,
            message: 1,
            reads: 16,
            ..recv::Mode::default()
        };
        for (at, value) in [
            (recv::OWN_IP, word(&OWN.1)),
            (recv::OWN_MAC, word(&OWN.0[2..])),
            (recv::OWN_MAC + 1, u32::from(OWN.0[0]) << 8 | u32::from(OWN.0[1])),
            (recv::MODE, mode.word()),
            (recv::IP, word(&PEER.1)),
            (recv::MAC, word(&PEER.0[2..])),
            (recv::MAC + 1, u32::from(PEER.0[0]) << 8 | u32::from(PEER.0[1])),
            (recv::SPACE, recv::Space { domain: DOMAIN.into(), cqn: 0, asid: SPACES[0].0 }.word()),
            (recv::PSN, PSN),
            (recv::QUEUE, recv::Queue { first: 0, log2_depth: 8 }.word()),
            (recv::LISTS, recv::Lists { longest: 32, ..recv::Lists::default() }.word()),
            (recv::PI, 0),
            (recv::COMMAND, recv::CMD_START),
        ] {
            self.row(HALF_RECEIVES, q, at, value);
        }
    }

    /// The far end of QP `i` does an atomic on what lies at `at`; false if it has no room for it.
    fn post(&mut self, i: usize, op: Op, at: u64) -> bool {
        let remote = Remote { va: SPACES[i % 2].1 + at, key: self.keys[i % 2], len: 8 };
        let message = Message { op, tag: self.heard.len() as u32, len: 8, remote, ..Message::default() };
        let posted = self.peers[i].post(message).is_ok();
        if posted {
            self.heard.push(None);
        }
        posted
    }

    fn step(&mut self) {
        self.board.card.step();
        let now = self.board.card.cycles();
        for (i, q) in (FIRST_QPN..FIRST_QPN + QPS).enumerate() {
            while let Some(t) = self.peers[i].transmit(now) {
                let headers = wire::reliable::emit_request(Service::Rc, &t.packet).expect("a request");
                let mut bth = Bth::new(headers.opcode, q, t.packet.psn);
                bth.ack_request = t.packet.ack_request;
                let frame = Self::emit(bth, headers.ext, headers.prefix());
                if self.rng.below(100) >= self.loss {
                    self.board.card.push_rx(frame);
                }
            }
            self.peers[i].tick(now);
            while self.peers[i].complete().is_some() {}
        }
        while let Some(frame) = self.board.card.take_tx() {
            let (packet, payload) = wire::parse(&frame.data).expect("a frame");
            let Ok((response, _)) = wire::reliable::parse_response(&packet, payload, true) else { continue };
            if self.rng.below(100) < self.loss {
                continue;
            }
            let i = (packet.bth.qpn - FIRST_QPN) as usize;
            let outcome = self.peers[i].response(now, &response);
            assert_ne!(outcome, Outcome::Bad, "{response:?}");
            if let Outcome::Atomic { tag, original, .. } = outcome {
                assert_eq!(self.heard[tag as usize].replace(original), None);
            }
        }
        if now.is_multiple_of(64) {
            while self.events.take(&self.board.memory).is_some() {
                self.events.tell(&mut self.board.card, false);
            }
        }
    }

    fn emit(bth: Bth, ext: Extended, payload: &[u8]) -> Vec<u8> {
        let ip = Ipv4 { from: PEER.1, to: OWN.1, traffic_class: 0, id: 0, df: true, ttl: 64 };
        let packet = Packet { eth: Eth { to: OWN.0, from: PEER.0 }, ip: Ip::V4(ip), source_port: 0xc000, bth, ext };
        let mut out = vec![0; 200];
        let len = wire::emit(&packet, &[payload], &mut out).expect("a frame");
        out.truncate(len);
        out
    }

    /// Steps until `done`, at most so many cycles.
    fn until(&mut self, limit: u64, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..limit {
            if done(self) {
                return;
            }
            self.step();
        }
        let waits: Vec<_> = self.peers.iter().map(Requester::pending).collect();
        panic!("not done in {limit} cycles: {waits:?}; event {:?}", self.board.fast_event());
    }

    fn number(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.board.memory.peek(DATA + at, 8).try_into().expect("8 bytes"))
    }

    /// A fence, and how long it took.
    fn fence(&mut self, token: u64) -> u64 {
        self.commands.put(Fence { token }.encode());
        self.commands.tell(&mut self.board.card, &self.board.memory);
        let from = self.board.card.cycles();
        self.until(20_000, |bench| bench.board.memory.peek(TOKEN, 8) == token.to_le_bytes());
        self.board.card.cycles() - from
    }
}

/// Of all QPs at the same time, with answers and requests that are lost, and fences in between: each of them has a number of its
/// own, and none is missing.
#[test]
fn qp_3_atomics_of_all_qps_on_the_same_bytes_are_carried_out_one_after_the_other_and_once() {
    const EACH: u64 = 40;
    let mut bench = Bench::new(seed(1));
    bench.loss = 5;
    // A counter that all add to, at a page's end; one that becomes the next number where it is as expected; more than its half
    // changes when the lower one overflows.
    bench.board.memory.poke(DATA + 4088, &(u64::from(u32::MAX) - 20).to_le_bytes());
    let (mut posted, mut swaps, mut token) = ([0; QPS as usize], Vec::new(), 0);
    bench.until(2_000_000, |bench| {
        for (i, posted) in posted.iter_mut().enumerate() {
            if *posted < 2 * EACH && bench.rng.below(100) == 0 {
                let ok = if posted.is_multiple_of(2) {
                    bench.post(i, Op::FetchAdd { add: 1 }, 4088)
                } else {
                    let compare = bench.number(8192);
                    swaps.push((bench.heard.len(), compare));
                    let ok = bench.post(i, Op::CompareSwap { compare, swap: compare + 1 }, 8192);
                    if !ok {
                        swaps.pop();
                    }
                    ok
                };
                *posted += u64::from(ok);
            }
        }
        if bench.rng.below(3000) == 0 {
            token += 1;
            bench.commands.put(Fence { token }.encode());
            bench.commands.tell(&mut bench.board.card, &bench.board.memory);
        }
        posted == [2 * EACH; QPS as usize] && bench.peers.iter().all(|peer| peer.pending() == 0)
    });
    let all = u64::from(QPS) * EACH;
    let first = u64::from(u32::MAX) - 20;
    let tags: BTreeSet<_> = swaps.iter().map(|swap| swap.0).collect();
    let added: BTreeSet<_> =
        bench.heard.iter().enumerate().filter(|(tag, _)| !tags.contains(tag)).filter_map(|(_, n)| *n).collect();
    assert_eq!(added, (first..first + all).collect(), "what stood there is another number each time");
    assert_eq!(bench.number(4088), first + all);
    let won: Vec<_> = swaps.iter().filter(|(tag, compare)| bench.heard[*tag] == Some(*compare)).map(|s| s.1).collect();
    assert_eq!(won.iter().copied().collect::<BTreeSet<_>>(), (0..bench.number(8192)).collect());
    assert!(won.len() as u64 == bench.number(8192) && won.len() < swaps.len(), "some are too late");
    assert_eq!(bench.board.card.counter(C_FP_ATOMICS), 2 * all);
    let again = bench.board.card.counter(C_FP_ATOMICS_AGAIN);
    assert!(again > 0 && token > 0);
    let token = token + 1;
    println!("answered again: {again}; a fence takes {} cycles", bench.fence(token));
    assert!(bench.board.memory.violations().is_empty());
}

/// Whenever a page goes: after the fence neither half of an atomic touches it, and what was heard of is in memory.
#[test]
fn inv_4_after_a_revocation_and_its_fence_no_atomic_touches_the_page() {
    for when in 0..40 {
        let mut bench = Bench::new(seed(2) + when);
        for n in 0..100 {
            bench.post(n % QPS as usize, Op::FetchAdd { add: 1 }, 4096);
        }
        bench.until(20_000, |bench| bench.number(4096) == 3);
        let from = bench.board.card.cycles();
        bench.until(1000, |bench| bench.board.card.cycles() >= from + 7 * when);
        for (asid, va) in SPACES {
            let gone = bench.pager.revoke(asid, pages(va + 4096, 4096));
            gone.into_iter().for_each(|entry| bench.commands.put(entry));
        }
        bench.fence(1);
        let there = bench.number(4096);
        bench.board.memory.log_reads();
        bench.board.memory.set_dma(DATA + 4096, Access::None);
        let until = bench.board.card.cycles() + 10_000;
        bench.until(10_001, |bench| bench.board.card.cycles() >= until);
        assert_eq!(bench.number(4096), there);
        assert!(bench.board.memory.violations().is_empty(), "touched after the fence");
        assert!(bench.heard.iter().flatten().all(|&n| n < there), "heard of and not there");
    }
}
