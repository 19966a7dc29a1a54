// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Software model of hosts, engines and wire as firmware sees them, for tests (feature `model`). It covers control
//! messages and rows, not data: RTL handles data packets, and RTL's golden model is `rc` with the machines around it.
//!
//! A [`World`] has cards with their hosts, joined by one wire with faults from a seed. It
//! is a discrete-event simulation in card cycles: the same seed gives the same run.

use crate::card::Card;
use crate::card::hw::{Hw, Log, TX_LOOPBACK, TX_NO_ICRC};
use berth_abi::card::{RX_SLOTS, SLOT_BYTES, TX_SLOTS};
use berth_abi::counters::NUM_FW_COUNTERS;
use berth_abi::cpu::{CqAttr, DbCfg, RX_FLAG_ICRC_OK, RX_FLAG_LOOPBACK, RX_FLAG_ROCE};
use berth_abi::message::{
    Accept, COOKIE, CmClosed, CmEstablished, CmRequest, CmdDone, Connect, CqCreate, Entry, Listen, NetConfig, QpCreate,
    QpDestroy, QpError, RangeRevoked, Typed,
};
use berth_abi::rows::{HALF_RECEIVES, recv};
use berth_abi::status::CMD_OK;
use berth_abi::wqe::WQE_BYTES;
pub use berth_random::Rng;
use std::boxed::Box;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::vec;
use std::vec::Vec;

const PAGE: u64 = 4096;
/// Log lines that are kept.
const LOG: usize = 1 << 16;
/// Frames that the wire's record keeps.
const RECORD: usize = 1 << 16;

/// What happens later at a node.
enum What {
    Cpu,
    Frame(Vec<u8>, bool),
    Timer(u64),
}

struct Later {
    at: u64,
    seq: u64,
    node: usize,
    what: What,
}
impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}
impl Eq for Later {}
impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Later {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

/// Rows of the fast path, as firmware writes and reads them. What RTL does with them is not in this model: tests say
/// what it reports.
#[derive(Clone, Debug, Default)]
pub struct FastRows {
    /// Words as last written: half, QPN, word.
    pub words: HashMap<(u32, u32, u32), u32>,
    /// All that was written, in order: half, QPN, word, value.
    pub written: Vec<(u32, u32, u32, u32)>,
    /// What words read as: half, QPN, word; else 0.
    pub reads: HashMap<(u32, u32, u32), u32>,
    /// QPs whose doorbells go there.
    pub bells: BTreeSet<u32>,
    /// The table of keys, by place.
    pub keys: HashMap<u32, [u32; 8]>,
}

/// Engines and host of one card.
pub struct Engines {
    next_frame: u64,
    tx: Vec<Vec<u8>>,
    tx_busy: [bool; TX_SLOTS as usize],
    rx: Vec<Option<(Vec<u8>, u32)>>,
    rx_backlog: VecDeque<(Vec<u8>, bool)>,
    in_rx: VecDeque<(u32, u32, u32)>,
    in_tx: VecDeque<u32>,
    in_db: VecDeque<u32>,
    in_cmd: VecDeque<Entry>,
    in_timer: bool,
    in_fast: VecDeque<(u32, u32, u32)>,
    /// The fast path.
    pub fast: FastRows,
    /// What was done to raw queues (`RAW_GO_*`).
    pub raw: Vec<(u32, [u32; 6])>,
    /// Those that are busy.
    pub raw_busy: u32,
    doorbells: HashMap<u32, (u16, u16)>,
    timer: Option<u64>,
    /// Events for the host.
    pub events: Vec<Entry>,
    /// Room in the event ring.
    pub event_room: u32,
    /// Firmware counters (`F_*`).
    pub counters: [u64; NUM_FW_COUNTERS],
    /// Log lines.
    pub log: Vec<Log>,
    out: Vec<(Vec<u8>, u32)>,
    later: Vec<(u64, What)>,
    rng: Rng,
}

impl Engines {
    fn new(seed: u64) -> Self {
        Self {
            next_frame: 0x100,
            tx: vec![vec![0; SLOT_BYTES as usize]; TX_SLOTS as usize],
            tx_busy: [false; TX_SLOTS as usize],
            rx: vec![None; RX_SLOTS as usize],
            rx_backlog: VecDeque::new(),
            in_rx: VecDeque::new(),
            in_tx: VecDeque::new(),
            in_db: VecDeque::new(),
            in_cmd: VecDeque::new(),
            in_timer: false,
            in_fast: VecDeque::new(),
            fast: FastRows::default(),
            raw: Vec::new(),
            raw_busy: 0,
            doorbells: HashMap::new(),
            timer: None,
            events: Vec::new(),
            event_room: u32::MAX,
            counters: [0; NUM_FW_COUNTERS],
            log: Vec::new(),
            out: Vec::new(),
            later: Vec::new(),
            rng: Rng(seed),
        }
    }

    /// The kernel revokes memory, and tells firmware.
    fn revoke(&mut self, asid: u8, va: u64, len: u64) {
        let mut entry = RangeRevoked { asid: asid as u32, va, len }.encode();
        entry[COOKIE] = 0x8000_0000 | self.rng.draw() as u32;
        self.in_cmd.push_back(entry);
        self.later.push((1, What::Cpu));
    }

    /// A piece of bus memory for a queue.
    fn alloc_bus(&mut self, bytes: u64) -> u64 {
        self.next_frame += bytes.div_ceil(PAGE);
        (self.next_frame - bytes.div_ceil(PAGE)) * PAGE
    }

    /// Events of a type that the host has not taken.
    pub fn told<M: Typed>(&self) -> impl Iterator<Item = M> {
        self.events.iter().filter_map(M::of)
    }

    /// Takes the first event of which `which` holds.
    pub fn take<M: Typed>(&mut self, which: impl Fn(&M) -> bool) -> Option<M> {
        let holds = |entry: &Entry| M::of(entry).is_some_and(|event| which(&event));
        let at = self.events.iter().position(holds)?;
        M::of(&self.events.remove(at))
    }

    fn cpu_soon(&mut self) {
        let delay = 100 + self.rng.below(2000);
        self.later.push((delay, What::Cpu));
    }

    fn take_frames(&mut self) {
        while let Some(slot) = self.rx.iter().position(Option::is_none) {
            let Some((frame, loopback)) = self.rx_backlog.pop_front() else {
                return;
            };
            let roce = frame.len() > 42 && frame[12..14] == [8, 0];
            let mut flags = if roce { RX_FLAG_ROCE | RX_FLAG_ICRC_OK } else { 0 };
            if loopback {
                flags |= RX_FLAG_LOOPBACK;
            }
            let len = frame.len() as u32 + if roce { 4 } else { 0 };
            self.rx[slot] = Some((frame, flags));
            self.in_rx.push_back((slot as u32, len, flags));
            self.cpu_soon();
        }
    }

    fn happen(&mut self, what: What, now: u64) {
        match what {
            What::Frame(frame, loopback) => {
                self.rx_backlog.push_back((frame, loopback));
                self.take_frames();
            }
            What::Timer(at) => {
                if self.timer == Some(at) && now >= at {
                    self.timer = None;
                    self.in_timer = true;
                    self.cpu_soon();
                }
            }
            What::Cpu => unreachable!("handled by the world"),
        }
    }
}

impl Hw for Engines {
    fn tx_write(&mut self, slot: u32, word: u32, data: &[u32]) {
        for (i, value) in data.iter().enumerate() {
            let at = (word as usize + i) * 4;
            self.tx[slot as usize][at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }
    fn tx_send(&mut self, slot: u32, len: u32, flags: u32) {
        assert!(!core::mem::replace(&mut self.tx_busy[slot as usize], true), "slot sent twice");
        self.out.push((self.tx[slot as usize][..len as usize].to_vec(), flags));
        self.in_tx.push_back(slot);
        self.cpu_soon();
    }
    fn rx_read(&mut self, slot: u32, word: u32, out: &mut [u32]) {
        let (frame, _) = self.rx[slot as usize].as_ref().expect("read of a free slot");
        for (i, value) in out.iter_mut().enumerate() {
            let at = (word as usize + i) * 4;
            *value = (0..4).fold(0, |v, k| v | (frame.get(at + k).copied().unwrap_or(0xa5) as u32) << (8 * k));
        }
    }
    fn rx_free(&mut self, slot: u32) {
        assert!(self.rx[slot as usize].take().is_some(), "slot freed twice");
        self.take_frames();
    }
    fn event_space(&mut self) -> u32 {
        self.event_room.saturating_sub(self.events.len() as u32)
    }
    fn event(&mut self, words: &Entry) {
        assert!(self.event_space() > 0, "event without room");
        self.events.push(*words);
    }
    fn cq_config(&mut self, _cqn: u32, _base: u64, _attr: CqAttr) {}
    fn raw_set(&mut self, go: u32, words: &[u32; 6]) {
        self.raw.push((go, *words));
    }
    fn raw_busy(&mut self) -> u32 {
        self.raw_busy
    }
    fn doorbell_config(&mut self, qpn: u32, cfg: DbCfg) {
        self.doorbells.remove(&qpn);
        self.fast.bells.remove(&qpn);
        if cfg.valid == 1 && cfg.fast == 1 {
            self.fast.bells.insert(qpn);
        } else if cfg.valid == 1 {
            self.doorbells.insert(qpn, (0, 0));
        }
    }
    fn fast_write(&mut self, half: u32, qpn: u32, word: u32, value: u32) {
        self.fast.words.insert((half, qpn, word), value);
        self.fast.written.push((half, qpn, word, value));
        let recv::Command { opcode, argument } = recv::Command::from_word(value);
        let staged = |i| (half, qpn, recv::KEY + i);
        match (half, word, opcode) {
            (HALF_RECEIVES, recv::COMMAND, recv::CMD_KEY_STORE) => {
                let words = core::array::from_fn(|i| self.fast.words.get(&staged(i as u32)).copied().unwrap_or(0));
                self.fast.keys.insert(argument, words);
            }
            (HALF_RECEIVES, recv::COMMAND, recv::CMD_KEY_LOAD) => {
                let words = self.fast.keys.get(&argument).copied().unwrap_or_default();
                self.fast.reads.extend((0..).zip(words).map(|(i, word)| (staged(i), word)));
            }
            _ => (),
        }
    }
    fn fast_read(&mut self, half: u32, qpn: u32, word: u32) -> u32 {
        self.fast.reads.get(&(half, qpn, word)).copied().unwrap_or(0)
    }
    fn timer_arm(&mut self, deadline: u64) {
        self.timer = Some(deadline);
        self.later.push((0, What::Timer(deadline)));
    }
    fn timer_off(&mut self) {
        self.timer = None;
    }
    fn count(&mut self, index: u32, n: u32) {
        self.counters[index as usize] += n as u64;
    }
    fn log(&mut self, line: Log) {
        if self.log.len() < LOG {
            self.log.push(line);
        }
    }
    fn crash(&mut self, _kind: u32) {}
}

/// Faults of the wire, as probabilities per frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The frame is lost.
    pub loss: f64,
    /// The frame comes twice.
    pub dup: f64,
    /// The frame is late by up to 20 µs.
    pub reorder: f64,
    /// A bit of the frame is wrong (most are then dropped for their iCRC).
    pub corrupt: f64,
}

/// A queue pair as the user library sees it.
#[derive(Clone, Debug)]
pub struct User {
    /// Card.
    pub node: usize,
    /// QPN.
    pub qpn: u32,
    /// Address space.
    pub asid: u8,
}

/// One card and its host.
pub struct Node {
    /// Engines and host.
    pub hw: Engines,
    /// Firmware.
    pub card: Box<Card<64, 8, 256>>,
    /// IPv4 address.
    pub ip: u32,
    cpu_at: Option<u64>,
    /// The card is gone: it takes and sends nothing.
    pub dead: bool,
}

/// Cards on one wire.
pub struct World {
    /// The cards.
    pub nodes: Vec<Node>,
    /// Time in cycles.
    pub now: u64,
    heap: BinaryHeap<Later>,
    seq: u64,
    rng: Rng,
    /// Faults of the wire.
    pub faults: Faults,
    /// Frames that came to the wire so far: the number of the next one.
    pub frames: u64,
    /// Frames from card 0, 1 to the control QPN are lost.
    pub deaf: [bool; 2],
    /// Frames from card 0, 1 are held.
    pub hold: [bool; 2],
    /// Changes frames (card, bytes without iCRC) before they get onto the wire.
    pub edit: Option<fn(usize, &mut [u8])>,
    /// Frames that are held.
    pub held: [VecDeque<Vec<u8>>; 2],
    /// Frames on the wire, by sender, in order of sending.
    pub wire: Vec<(usize, Vec<u8>)>,
    cookie: u32,
}

/// MTU of the cards in the model.
pub const MTU: u32 = 1024;

impl World {
    /// `n` cards (1 or 2) with names, seed `seed`.
    pub fn new(n: usize, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let nodes = (0..n)
            .map(|i| Node {
                hw: Engines::new(rng.draw()),
                card: Box::new(Card::new()),
                ip: 0x0a00_0001 + i as u32,
                cpu_at: None,
                dead: false,
            })
            .collect();
        let mut world = Self {
            nodes,
            now: 1000,
            heap: BinaryHeap::new(),
            seq: 0,
            rng,
            faults: Faults::default(),
            frames: 0,
            deaf: [false; 2],
            hold: [false; 2],
            edit: None,
            held: [VecDeque::new(), VecDeque::new()],
            wire: Vec::new(),
            cookie: 0,
        };
        for i in 0..n {
            world.name(i);
        }
        world
    }

    fn name(&mut self, i: usize) {
        let ip = self.nodes[i].ip;
        let key = core::array::from_fn(|_| self.rng.draw() as u32);
        let name = NetConfig { ipv4: ip, mac_first: 0x0200_0000, mac_last: i as u32 + 1, mtu: MTU, guid: 0, key };
        assert_eq!(self.command(i, name.encode()).status, CMD_OK);
        for cqn in 0..2 {
            let cq = CqCreate { cqn, uar: 1, log2_entries: 12, base: 0 };
            assert_eq!(self.command(i, cq.encode()).status, CMD_OK);
        }
    }

    /// The card is reset and started anew.
    pub fn restart(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        *node.card = Card::new();
        node.hw = Engines::new(self.rng.draw());
        node.dead = false;
        let heap = core::mem::take(&mut self.heap);
        self.heap = heap.into_iter().filter(|l| l.node != i || matches!(l.what, What::Frame(..) | What::Cpu)).collect();
        self.name(i);
    }

    fn push(&mut self, node: usize, delay: u64, what: What) {
        self.seq += 1;
        let at = match what {
            What::Timer(at) => at.max(self.now),
            _ => self.now + delay,
        };
        self.heap.push(Later { at, seq: self.seq, node, what });
    }

    /// Moves what a card left to the heap and the wire.
    fn collect(&mut self, i: usize) {
        for (delay, what) in core::mem::take(&mut self.nodes[i].hw.later) {
            match what {
                What::Cpu => {
                    if self.nodes[i].cpu_at.is_none() {
                        self.nodes[i].cpu_at = Some(self.now + delay);
                        self.push(i, delay, What::Cpu);
                    }
                }
                what => self.push(i, delay, what),
            }
        }
        for (mut frame, flags) in core::mem::take(&mut self.nodes[i].hw.out) {
            if self.nodes[i].dead {
                continue;
            }
            if flags & TX_LOOPBACK != 0 {
                self.push(i, 200, What::Frame(frame, true));
                continue;
            }
            assert_eq!(flags & TX_NO_ICRC == 0, frame[12..14] == [8, 0]);
            if let Some(edit) = self.edit {
                edit(i, &mut frame);
            }
            if self.wire.len() < RECORD {
                self.wire.push((i, frame.clone()));
            }
            if self.hold[i] {
                self.held[i].push_back(frame);
            } else {
                self.transmit(i, frame);
            }
        }
    }

    /// Puts a frame of card `i` on the wire, with its faults.
    fn transmit(&mut self, i: usize, mut frame: Vec<u8>) {
        let to = 1 - i;
        if to >= self.nodes.len() {
            return;
        }
        let faults = self.faults;
        self.frames += 1;
        let control = frame[12..14] == [8, 0] && frame[47..50] == [0, 0, 2];
        if self.rng.chance(faults.loss) || (control && self.deaf[i]) {
            return;
        }
        if self.rng.chance(faults.corrupt) {
            let bit = self.rng.below(frame.len() as u64 * 8) as usize;
            frame[bit / 8] ^= 1 << (bit % 8);
            // The Ethernet header is not covered by iCRC; of the rest the receiver drops the frame.
            if bit / 8 >= 14 {
                return;
            }
        }
        let late = if self.rng.chance(faults.reorder) { self.rng.below(5000) } else { 0 };
        if self.rng.chance(faults.dup) {
            let cycles = self.rng.below(3000);
            self.push(to, 500 + late + cycles, What::Frame(frame.clone(), false));
        }
        self.push(to, 500 + late, What::Frame(frame, false));
    }

    /// Releases up to `n` held frames that card `i` sent.
    pub fn release(&mut self, i: usize, n: usize) {
        for _ in 0..n {
            let Some(frame) = self.held[i].pop_front() else {
                return;
            };
            self.transmit(i, frame);
        }
    }

    /// A frame from elsewhere arrives at card `i` (iCRC right).
    pub fn inject(&mut self, i: usize, frame: Vec<u8>) {
        self.push(i, 1, What::Frame(frame, false));
    }

    /// One event. False when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        let Some(later) = self.heap.pop() else {
            return false;
        };
        self.now = self.now.max(later.at);
        let i = later.node;
        match later.what {
            What::Cpu => {
                self.nodes[i].cpu_at = None;
                if !self.nodes[i].dead {
                    self.cpu(i);
                }
            }
            What::Frame(..) if self.nodes[i].dead => (),
            what => self.nodes[i].hw.happen(what, self.now),
        }
        self.collect(i);
        true
    }

    /// One round of firmware's main loop.
    fn cpu(&mut self, i: usize) {
        let now = self.now;
        let Node { hw, card, .. } = &mut self.nodes[i];
        while card.command_ready() {
            let Some(words) = hw.in_cmd.pop_front() else {
                break;
            };
            card.command(now, &words, hw);
        }
        if !hw.in_cmd.is_empty() {
            hw.cpu_soon();
        }
        while let Some(qpn) = hw.in_db.pop_front() {
            if let Some(&(sq, rq)) = hw.doorbells.get(&qpn) {
                card.doorbell(qpn, sq, rq, hw);
            }
        }
        for _ in 0..4 {
            if let Some((slot, len, flags)) = hw.in_rx.pop_front() {
                card.rx(now, slot, len, flags, hw);
            }
        }
        while let Some(slot) = hw.in_tx.pop_front() {
            hw.tx_busy[slot as usize] = false;
            card.tx_done(slot);
        }
        while let Some((code, qpn, arg)) = hw.in_fast.pop_front() {
            card.fast_event(now, code, qpn, arg, hw);
        }
        if core::mem::take(&mut hw.in_timer) {
            card.timer(now, hw);
        }
        let mut rounds = 0;
        while card.poll(now, hw) {
            rounds += 1;
            assert!(rounds < 100_000, "poll never ends");
        }
        if !hw.in_rx.is_empty() {
            hw.cpu_soon();
        }
    }

    /// Runs until `done` holds. Panics after `limit` cycles.
    pub fn run_until(&mut self, limit: u64, mut done: impl FnMut(&mut World) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "not done in {limit} cycles");
            assert!(self.step(), "nothing left to happen, and not done");
        }
    }

    /// Runs for `cycles`.
    pub fn run(&mut self, cycles: u64) {
        let end = self.now + cycles;
        while self.heap.peek().is_some_and(|l| l.at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Gives card `i` a command; its answer comes later, with the cookie returned.
    pub fn post_command(&mut self, i: usize, mut entry: Entry) -> u32 {
        self.cookie += 1;
        entry[COOKIE] = self.cookie;
        let hw = &mut self.nodes[i].hw;
        hw.in_cmd.push_back(entry);
        hw.cpu_soon();
        self.collect(i);
        self.cookie
    }

    /// Gives card `i` a command and waits for its answer.
    pub fn command(&mut self, i: usize, entry: Entry) -> CmdDone {
        let cookie = self.post_command(i, entry);
        self.wait(500_000_000, i, |done: &CmdDone| done.cookie == cookie)
    }

    /// Status of the answer to a command of card `i`, if there is one that was not taken yet.
    pub fn answer(&self, i: usize, cookie: u32) -> Option<u32> {
        self.nodes[i].hw.told().find(|done: &CmdDone| done.cookie == cookie).map(|done| done.status)
    }

    /// Waits for an event of card `i` of which `which` holds, and takes it.
    pub fn event<M: Typed>(&mut self, i: usize, which: impl Fn(&M) -> bool) -> M {
        self.wait(4_000_000_000, i, which)
    }

    fn wait<M: Typed>(&mut self, limit: u64, i: usize, which: impl Fn(&M) -> bool) -> M {
        let mut found = None;
        self.run_until(limit, |w| {
            found = w.nodes[i].hw.take(&which);
            found.is_some()
        });
        found.expect("it was waited for")
    }

    /// Waits for the end of QP `qpn` of card `i` by its connection's end: the reason.
    pub fn closed(&mut self, i: usize, qpn: u32) -> u32 {
        self.event(i, |e: &CmClosed| e.qpn == qpn).reason
    }

    /// Waits for the end of QP `qpn` of card `i` by an error: the reason.
    pub fn failed(&mut self, i: usize, qpn: u32) -> u32 {
        self.event(i, |e: &QpError| e.qpn == qpn).reason
    }

    /// Waits for QP `qpn` of card `i` to be connected.
    pub fn established(&mut self, i: usize, qpn: u32) -> CmEstablished {
        self.event(i, |e: &CmEstablished| e.qpn == qpn)
    }

    /// Waits for a request to card `i`.
    pub fn requested(&mut self, i: usize) -> CmRequest {
        self.event(i, |_| true)
    }

    /// Creates a QP; `tune` may change the command. CQ 0 takes sends, CQ 1 receives.
    pub fn create_qp(&mut self, node: usize, qpn: u32, asid: u8, tune: impl FnOnce(&mut QpCreate)) -> User {
        let depth = 64;
        let hw = &mut self.nodes[node].hw;
        let sq_base = hw.alloc_bus((depth * WQE_BYTES) as u64);
        let rq_base = hw.alloc_bus((depth * WQE_BYTES) as u64);
        let mut want = QpCreate {
            qpn,
            asid,
            uar: 1,
            log2_sq: 6,
            log2_rq: 6,
            recv_cqn: 1,
            sq_base,
            rq_base,
            ..QpCreate::default()
        };
        tune(&mut want);
        assert_eq!(self.command(node, want.encode()).status, CMD_OK);
        User { node, qpn, asid }
    }

    /// Connects `a` to `b` through service `service`.
    pub fn connect(&mut self, a: &User, b: &User, service: u32) {
        self.command(b.node, Listen { service }.encode());
        let connect = Connect { qpn: a.qpn, ipv4: self.nodes[b.node].ip, service, ..Connect::default() };
        assert_eq!(self.command(a.node, connect.encode()).status, CMD_OK);
        let CmRequest { request, .. } = self.requested(b.node);
        let accept = Accept { request, qpn: b.qpn, ..Accept::default() };
        assert_eq!(self.command(b.node, accept.encode()).status, CMD_OK);
        self.established(a.node, a.qpn);
        self.established(b.node, b.qpn);
    }

    /// Destroys a QP and waits until the card has released it.
    pub fn destroy(&mut self, user: &User) {
        assert_eq!(self.command(user.node, QpDestroy { qpn: user.qpn }.encode()).status, CMD_OK);
    }

    /// Rings the QP's doorbells.
    pub fn ring(&mut self, user: &User, sq_pi: u16, rq_pi: u16) {
        let hw = &mut self.nodes[user.node].hw;
        if let Some(row) = hw.doorbells.get_mut(&user.qpn) {
            *row = (sq_pi, rq_pi);
            hw.in_db.push_back(user.qpn);
            hw.cpu_soon();
        }
        self.collect(user.node);
    }

    /// The fast path of card `i` has an event for firmware.
    pub fn fast_event(&mut self, i: usize, code: u32, qpn: u32, arg: u32) {
        let hw = &mut self.nodes[i].hw;
        hw.in_fast.push_back((code, qpn, arg));
        hw.cpu_soon();
        self.collect(i);
    }

    /// The host takes memory away that the card uses (QP-10).
    pub fn revoke(&mut self, node: usize, asid: u8, va: u64, len: u64) {
        self.nodes[node].hw.revoke(asid, va, len);
        self.collect(node);
    }

    /// Counter `F_*` of card `i`.
    pub fn counter(&self, i: usize, index: u32) -> u64 {
        self.nodes[i].hw.counters[index as usize]
    }
}
