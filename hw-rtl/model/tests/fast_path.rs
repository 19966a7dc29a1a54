// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two cards with the fast path and a wire between them, firmware in reset: rows are written through the debug port,
//! elements and doorbells as a process writes them.

use berth_abi::card::FIRST_QPN;
use berth_abi::counters::*;
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::rows::event::Event;
use berth_abi::rows::{self, HALF_RECEIVES, HALF_SENDS, recv, send};
use berth_abi::status::WC_OK;
use berth_abi::wqe::{CQE_BYTES, Cqe, OP_RECV, OP_SEND, PHASE, WQE_BYTES, Wqe};
use berth_rtl::{BAR_DOORBELL, CardConfig};
use berth_rtl_host::{Access, Board, Commands, Events, Memory, Page, Pager, Rng, element, pages};
use std::collections::VecDeque;

const HOST: u64 = 0x1_0000_0000;
const BYTES: usize = 4 << 20;
/// Places in host memory.
const COMMANDS: u64 = HOST;
const EVENTS: u64 = HOST + 0x1_0000;
const SENDS: u64 = HOST + 0x8_0000;
const RECEIVES: u64 = HOST + 0x9_0000;
const COMPLETIONS: u64 = HOST + 0xa_0000;
const DATA: u64 = HOST + 0x10_0000;
const LOG2: u32 = 9;
const LOG2_CQ: u32 = 10;
/// Virtual address of DATA, and its address space.
const VA: u64 = 0x7f00_1234_0000;
const ASID: u32 = 3;
const PAGES: u64 = 256;
const QP: u32 = FIRST_QPN;
const PAGE: u64 = 1;
const QKEY: u32 = 0x1234_5678;
const EPOCH: u32 = 0x55;
const LOG2_MTU: u32 = 12;

struct Node {
    board: Board,
    events: Events,
    sq: u16,
    rq: u16,
    posted: u32,
}

fn mac(n: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0, 1 + n]
}

fn ip(n: u8) -> [u8; 4] {
    [10, 0, 0, 1 + n]
}

impl Node {
    fn new(n: u8) -> Self {
        let memory = Memory::new(0);
        memory.map(HOST, &vec![0; BYTES], Access::ReadWrite);
        let mut board = Board::new(CardConfig { split: false, ..CardConfig::default() }, memory);
        let (mut commands, mut events) = (Commands::new(COMMANDS, LOG2), Events::new(EVENTS, LOG2));
        let Board { card, memory } = &mut board;
        commands.attach(card, memory);
        events.attach(card, memory);
        card.set_reg(HOST_DMA_ENABLE, 1);
        let (mut pager, all) = (Pager::new(u64::MAX, 0), pages(VA, PAGES * 4096));
        for (vpn, bus) in all.clone().zip((DATA..).step_by(4096)) {
            pager.map(ASID, vpn, Page { bus, writable: true });
        }
        pager.pin(ASID, all, memory).into_iter().for_each(|entry| commands.put(entry));
        commands.carry_out(card, memory);
        let mut node = Self { board, events, sq: 0, rq: 0, posted: 0 };
        // a completion queue, and the doorbell row of a QP of the fast path
        node.register(CPU_CQ_BASE_LO, COMPLETIONS as u32);
        node.register(CPU_CQ_BASE_HI, (COMPLETIONS >> 32) as u32);
        node.register(CPU_CQ_ATTR, CqAttr { valid: 1, page: PAGE as u32, log2: LOG2_CQ }.word());
        node.register(CPU_CQ_CFG, 0);
        node.register(CPU_DB_CFG_QPN, QP);
        node.register(CPU_DB_CFG, DbCfg { valid: 1, fast: 1, page: PAGE as u32 }.word());
        node.connect(n);
        node
    }

    fn register(&mut self, offset: u32, value: u32) {
        self.board.set_cpu(offset, value);
    }

    fn row(&mut self, half: u32, word: u32, value: u32) {
        self.board.write(rows::address(half, QP, word), value);
    }

    /// Writes the rows of QP, whose peer is the other card's.
    fn connect(&mut self, n: u8) {
        let peer = 1 - n;
        let mut t = [0; 56];
        t[0..6].copy_from_slice(&mac(peer));
        t[6..12].copy_from_slice(&mac(n));
        t[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        t[20..24].copy_from_slice(&[0x40, 0, 64, 17]);
        t[26..30].copy_from_slice(&ip(n));
        t[30..34].copy_from_slice(&ip(peer));
        t[34..38].copy_from_slice(&[0xc0, 0x01, 0x12, 0xb7]);
        t[44..46].copy_from_slice(&[0xff, 0xff]);
        t[47..50].copy_from_slice(&QP.to_be_bytes()[1..]);
        let sum: u32 = (14..34).step_by(2).map(|i| u32::from(t[i]) << 8 | u32::from(t[i + 1])).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        t[24..26].copy_from_slice(&(sum as u16).to_be_bytes());
        for (word, chunk) in (0..).zip(t.chunks(4)) {
            self.row(HALF_SENDS, word, u32::from_le_bytes(chunk.try_into().unwrap()));
        }
        let mode = send::Mode { reorder: 3, window: 128, selective: 1, log2_mtu: LOG2_MTU, ..send::Mode::default() };
        for (word, value) in [
            (send::BASE, SENDS as u32),
            (send::BASE + 1, (SENDS >> 32) as u32),
            (send::QUEUE, send::Queue { cqn: 0, asid: ASID, log2_depth: 8 }.word()),
            (send::MODE, mode.word()),
            (send::TIMEOUT, 0),
            (send::BLOCKS, send::Blocks { ahead: 8, log2_block: 16 }.word()),
            (send::PSN, 100),
            (send::QKEY, QKEY),
            (send::COMMAND, send::CMD_START),
        ] {
            self.row(HALF_SENDS, word, value);
        }
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let (own, other) = (mac(n), mac(peer));
        let mode = recv::Mode { ack_every: 4, selective: 1, log2_mtu: LOG2_MTU, ..recv::Mode::default() };
        for (at, value) in [
            (recv::OWN_IP, word(&ip(n))),
            (recv::OWN_MAC, word(&own[2..])),
            (recv::OWN_MAC + 1, u32::from(own[0]) << 8 | u32::from(own[1])),
            (recv::MODE, mode.word()),
            (recv::IP, word(&ip(peer))),
            (recv::MAC, word(&other[2..])),
            (recv::MAC + 1, u32::from(other[0]) << 8 | u32::from(other[1])),
            (recv::SPACE, recv::Space { domain: 0, cqn: 0, asid: ASID }.word()),
            (recv::EPOCH, EPOCH),
            (recv::PEER_EPOCH, EPOCH),
            (recv::QKEY, QKEY),
            (recv::PSN, 100),
            (recv::BASE, RECEIVES as u32),
            (recv::BASE + 1, (RECEIVES >> 32) as u32),
            (recv::QUEUE, recv::Queue { first: 0, log2_depth: 8 }.word()),
            (recv::LISTS, recv::Lists { longest: 32, ..recv::Lists::default() }.word()),
            (recv::AGAIN, 1000),
            (recv::PI, 0),
            (recv::COMMAND, recv::CMD_START),
        ] {
            self.row(HALF_RECEIVES, at, value);
        }
    }

    fn poke(&self, addr: u64, data: &[u8]) {
        self.board.memory.poke(addr, data);
    }

    fn peek(&self, addr: u64, len: usize) -> Vec<u8> {
        self.board.memory.peek(addr, len)
    }

    fn put(&self, queue: u64, index: u16, opcode: u8, va: u64, len: u32) {
        self.poke(
            queue + u64::from(WQE_BYTES) * u64::from(index % 256),
            &element(opcode, 0, index.into(), &[(va, len)]),
        );
    }

    fn receive(&mut self, va: u64, len: u32) {
        self.put(RECEIVES, self.rq, OP_RECV, va, len);
        self.rq += 1;
        let word = u64::from(QP) | u64::from(self.rq) << 16;
        self.board.card.mmio_write(BAR_DOORBELL, PAGE * 4096 + u64::from(DB_RQ), word, 8);
    }

    fn send(&mut self, va: u64, len: u32) {
        self.put(SENDS, self.sq, OP_SEND, va, len);
        self.sq += 1;
        self.posted = self.posted.wrapping_add(len);
        let word = u64::from(QP) | u64::from(self.sq) << 16 | u64::from(self.posted) << 32;
        self.board.card.mmio_write(BAR_DOORBELL, PAGE * 4096 + u64::from(DB_SQ), word, 8);
    }

    /// Posts an inline send of `data`; with `slot` these are in the doorbell, and stores to it in the order of `order`.
    fn send_inline(&mut self, data: &[u8], slot: &[u8], order: &[u64]) {
        let element = |data: &[u8]| {
            let header = Wqe { opcode: OP_SEND, wr_id: self.sq.into(), ..Wqe::default() };
            header.with_inline(data).unwrap().slot().unwrap()
        };
        let bytes: Vec<u8> = element(data).iter().flat_map(|w| w.to_le_bytes()).collect();
        self.poke(SENDS + u64::from(WQE_BYTES) * u64::from(self.sq % 256), &bytes);
        let mut words = element(slot).to_vec();
        self.sq += 1;
        self.posted = self.posted.wrapping_add(data.len() as u32);
        words.push(u64::from(QP) | u64::from(self.sq) << 16 | u64::from(self.posted) << 32);
        for &i in order {
            self.board.card.mmio_write(BAR_DOORBELL, PAGE * 4096 + u64::from(DB_WQE) + 8 * i, words[i as usize], 8);
        }
    }

    fn counter(&mut self, index: u32) -> u64 {
        self.board.card.counter(index)
    }

    /// The completions so far (of the first round), as (wr_id, bytes, status, opcode).
    fn completions(&self) -> Vec<(u64, u32, u8, u8)> {
        let ring = (COMPLETIONS..).step_by(CQE_BYTES as usize).map(|at| Cqe::from_words(&self.board.memory.words(at)));
        let valid = ring.take(1 << LOG2_CQ).take_while(|c| c.phase & PHASE != 0);
        valid.map(|c| (c.wr_id, c.byte_len, c.status, c.opcode)).collect()
    }

    /// Gives the host's place in the event ring back, as a driver does.
    fn take_events(&mut self) {
        while self.events.take(&self.board.memory).is_some() {
            self.events.tell(&mut self.board.card, false);
        }
    }

    /// Events of the fast path for firmware.
    fn exception(&mut self) -> Option<Event> {
        self.board.fast_event()
    }
}

/// Two cards and a wire that takes `delay` cycles each way.
struct Pair {
    nodes: [Node; 2],
    wires: [VecDeque<(u64, Vec<u8>)>; 2],
    delay: u64,
}

impl Pair {
    fn new(delay: u64) -> Self {
        Self { nodes: [Node::new(0), Node::new(1)], wires: Default::default(), delay }
    }

    fn step(&mut self) {
        for n in 0..2 {
            let node = &mut self.nodes[n];
            node.board.card.step();
            let now = node.board.card.cycles();
            while let Some(frame) = node.board.card.take_tx() {
                self.wires[n].push_back((now + self.delay, frame.data));
            }
        }
        for n in 0..2 {
            let now = self.nodes[n].board.card.cycles();
            while self.wires[1 - n].front().is_some_and(|f| f.0 <= now) {
                let frame = self.wires[1 - n].pop_front().unwrap().1;
                self.nodes[n].board.card.push_rx(frame);
            }
            if now.is_multiple_of(64) {
                self.nodes[n].take_events();
            }
        }
    }

    /// Until `done`, at most so many cycles.
    fn until(&mut self, limit: u64, mut done: impl FnMut(&Self) -> bool) -> u64 {
        for cycle in 0..limit {
            if cycle.is_multiple_of(16) && done(self) {
                return cycle;
            }
            self.step();
        }
        let found = [0, 1].map(|n| (self.nodes[n].completions().len(), self.nodes[n].exception()));
        panic!("not done in {limit} cycles; completions, events: {found:x?}");
    }
}

#[test]
fn messages_arrive_in_the_receives_and_both_ends_hear_of_it() {
    let mut pair = Pair::new(100);
    let mut rng = Rng(1);
    let data = rng.bytes(256 << 10);
    pair.nodes[0].poke(DATA, &data);
    let lens = [64, 4096, 1, 10_000, 4096, 333];
    let mut at = 0;
    for (n, &len) in lens.iter().enumerate() {
        pair.nodes[1].receive(VA + n as u64 * 16384, len);
    }
    for &len in &lens {
        pair.nodes[0].send(VA + at, len);
        at += u64::from(len);
    }
    let cycles = pair.until(60_000, |p| p.nodes.iter().all(|n| n.completions().len() == lens.len()));
    println!("{} messages, {at} bytes: {cycles} cycles", lens.len());
    let mut from = 0;
    for (n, &len) in lens.iter().enumerate() {
        let got = pair.nodes[1].peek(DATA + n as u64 * 16384, len as usize);
        assert!(got == data[from..from + len as usize], "message {n}");
        from += len as usize;
        assert_eq!(pair.nodes[1].completions()[n], (n as u64, len, WC_OK, OP_RECV));
        assert_eq!(pair.nodes[0].completions()[n], (n as u64, len, WC_OK, OP_SEND));
    }
    assert_eq!((pair.nodes[0].exception(), pair.nodes[1].exception()), (None, None));
    let packets = lens.iter().map(|len| u64::from(len.div_ceil(1 << LOG2_MTU))).sum();
    let [sender, receiver] = &mut pair.nodes;
    assert_eq!([C_FP_PACKETS, C_FP_BYTES_SENT].map(|i| sender.counter(i)), [packets, at]);
    assert_eq!([C_FP_TAKEN, C_FP_BYTES_PLACED].map(|i| receiver.counter(i)), [packets, at]);
    assert!(sender.counter(C_FP_BLOCKS) >= lens.len() as u64);
}

/// The queue's copy of an element differs from that in the slot, so that the data tell which the card has taken.
#[test]
fn decision_28_only_a_slot_whose_stores_come_in_order_brings_its_element() {
    const ORDER: [u64; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
    let mut pair = Pair::new(100);
    let mut rng = Rng(28);
    let mut taken = 0;
    let mut sent = 0;
    // As the rule says: stores since the last other doorbell or the last eighth, and whether one was out of order.
    let (mut stores, mut bad) = (0, false);
    for round in 0..60 {
        let len = (rng.below(40) + 1) as usize;
        let (queue, slot) = (vec![0x11; len], vec![0x22; len]);
        let mut order = ORDER.to_vec();
        match rng.below(6) {
            0 => {
                // Write combining: any order, the commit somewhere.
                let at = rng.below(8) as usize;
                order.rotate_left(at);
            }
            1 => order.swap(rng.below(7) as usize, rng.below(7) as usize),
            2 => _ = order.remove(rng.below(7) as usize),
            _ => (),
        }
        pair.nodes[1].receive(VA + round * 64, 64);
        if rng.below(3) == 0 {
            // Another doorbell of the page: that of the receive queue, which has nothing new.
            let word = u64::from(QP) | u64::from(pair.nodes[0].rq) << 16;
            pair.nodes[0].board.card.mmio_write(BAR_DOORBELL, PAGE * 4096 + u64::from(DB_RQ), word, 8);
            (stores, bad) = (0, false);
        }
        // Another process's slot does not disturb.
        pair.nodes[0].board.card.mmio_write(BAR_DOORBELL, 2 * 4096 + u64::from(DB_WQE) + 8 * rng.below(7), u64::MAX, 8);
        let mut brought = false;
        for &i in &order {
            bad |= i != stores;
            brought |= i == 7 && !bad;
            stores += 1;
            if stores == 8 {
                (stores, bad) = (0, false);
            }
        }
        pair.nodes[0].send_inline(&queue, &slot, &order);
        sent += 1;
        taken += u64::from(brought);
        pair.until(20_000, |p| p.nodes.iter().all(|n| n.completions().len() == sent));
        assert_eq!(pair.nodes[1].completions()[sent - 1], (round, len as u32, 0, 2));
        let got = pair.nodes[1].peek(DATA + round * 64, len);
        assert_eq!(got == slot, brought, "round {round}, stores {order:?}");
        assert!(brought || got == queue);
    }
    assert!(taken > 10, "{taken} of {sent} slots were taken");
    assert_eq!(pair.nodes[0].counter(C_FP_SLOTS), taken);
    // The other counters of the path, of one message and one list each.
    let count = |pair: &mut Pair, n: usize, index| pair.nodes[n].counter(index);
    let sent = sent as u64;
    assert_eq!(count(&mut pair, 0, C_FP_PACKETS), sent);
    assert_eq!(count(&mut pair, 0, C_FP_AGAIN), 0);
    assert_eq!(count(&mut pair, 1, C_FP_TAKEN), sent);
    assert_eq!(count(&mut pair, 1, C_CREDITS_POSTED), sent);
    assert_eq!(count(&mut pair, 1, C_CREDITS_SENT), sent);
    let lists = count(&mut pair, 1, C_LISTS_SENT);
    assert_eq!(count(&mut pair, 1, C_FP_LISTS), lists);
    assert_eq!(count(&mut pair, 1, C_FP_LANDED), sent);
    assert_eq!(count(&mut pair, 1, C_FP_BYTES_PLACED), pair.nodes[0].posted.into());
    assert_eq!(
        (count(&mut pair, 0, C_FP_BYTES_SENT), count(&mut pair, 0, C_FP_BLOCKS)),
        (0, 0),
        "inline data need no memory"
    );
    assert!(count(&mut pair, 1, C_FP_ACKS) > 0);
    for n in 0..2 {
        for index in [C_FP_DUPLICATES, C_FP_DROPPED, C_FW_FRAMES] {
            assert_eq!(count(&mut pair, n, index), 0, "counter {index} of card {n}");
        }
        let frames = [C_FP_PACKETS, C_FP_ACKS, C_FP_LISTS].map(|i| count(&mut pair, n, i)).iter().sum::<u64>();
        assert_eq!(count(&mut pair, n, C_TX_FRAMES), frames);
    }
}

/// As when a process posts before its connection is there.
#[test]
fn what_was_posted_before_the_rows_were_written_follows_by_itself() {
    let mut pair = Pair::new(100);
    let data = Rng(3).bytes(8192);
    pair.nodes[0].poke(DATA, &data);
    for node in &mut pair.nodes {
        node.register(CPU_DB_CFG_QPN, QP);
        node.register(CPU_DB_CFG, DbCfg { valid: 1, fast: 0, page: PAGE as u32 }.word());
    }
    for n in 0..2 {
        pair.nodes[1].receive(VA + n * 4096, 4096);
        pair.nodes[0].send(VA + n * 4096, 4096);
    }
    for _ in 0..2000 {
        pair.step();
    }
    for (n, node) in (0..).zip(&mut pair.nodes) {
        node.connect(n);
        node.register(CPU_DB_CFG_QPN, QP);
        node.register(CPU_DB_CFG, DbCfg { valid: 1, fast: 1, page: PAGE as u32 }.word());
    }
    pair.until(60_000, |p| p.nodes.iter().all(|n| n.completions().len() == 2));
    assert!(pair.nodes[1].peek(DATA, 8192) == data);
    pair.nodes[0].send(VA, 100);
    pair.nodes[1].receive(VA, 100);
    pair.until(60_000, |p| p.nodes.iter().all(|n| n.completions().len() == 3));
    assert_eq!((pair.nodes[0].exception(), pair.nodes[1].exception()), (None, None));
}

/// Steady streams over one queue pair, in both directions at once; only the data are judged here.
#[test]
fn streams_in_both_directions_arrive_whole() {
    for (count, len) in [(96, 4096), (200, 64)] {
        let mut pair = Pair::new(250);
        let data: Vec<Vec<u8>> = (0..2).map(|n| Rng(7 + n).bytes(512 << 10)).collect();
        for (n, bytes) in data.iter().enumerate() {
            pair.nodes[n].poke(DATA, bytes);
            for i in 0..count {
                pair.nodes[n].receive(VA + (512 << 10) + i * len, len as u32);
            }
        }
        pair.nodes.iter_mut().for_each(|n| n.board.card.reset_ports());
        for i in 0..count {
            pair.nodes.iter_mut().for_each(|n| n.send(VA + i * len, len as u32));
        }
        pair.until(400_000, |p| p.nodes.iter().all(|n| n.completions().len() == 2 * count as usize));
        for n in 0..2 {
            let got = pair.nodes[n].peek(DATA + (512 << 10), (count * len) as usize);
            assert!(got == data[1 - n][..(count * len) as usize], "{count} of {len}, card {n}");
            let tx = pair.nodes[n].board.card.ports().tx;
            let each = tx.span() as f64 / count as f64;
            println!(
                "{count} messages of {len} bytes: {each:.1} cycles each, {:.0} % of them beats",
                100.0 * tx.beats as f64 / tx.span() as f64
            );
        }
    }
}
