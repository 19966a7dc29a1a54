// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card with the fast path whose firmware is in reset: connected queue pairs, made through the debug port, and a
//! process that posts elements and rings doorbells.

use anyhow::{Result, bail, ensure};
use berth_abi::card::{FIRST_QPN, MAX_READS};
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::message::Entry;
use berth_abi::ring::{ENTRY_BYTES, TRIGGER_UNBOUNDED};
use berth_abi::rows::event::{EVENT_RNR, EVENT_TARGET, EVENT_TIMEOUT, EVENT_USE};
use berth_abi::rows::{self, HALF_RECEIVES, HALF_SENDS, ROW_CLOCK, recv, send};
use berth_abi::status::WC_OK;
use berth_abi::wqe::{
    CQE_BYTES, Cqe, OP_FETCH_ADD, OP_READ, OP_RECV, OP_SEND, OP_WRITE, PHASE, SEND_INLINE, SLOT_INLINE, Sge, WQE_BYTES,
    Wqe,
};
use berth_protocol::card::limits::TIMEOUT;
use berth_protocol::memory::keys::{ATOMIC, Binding, Keys, READ, WRITE};
use berth_random::Rng;
use berth_rtl::BAR_DOORBELL;
use berth_rtl_host::{Access, Board, Commands, Events, PAGE, Page, Pager, element};

use crate::model::Model;
use crate::rig::{HOST_BASE, board};

const ASID: u32 = 3;
/// Virtual page of the first byte of data.
const FIRST_VPN: u64 = 0x7_f123_4000;
/// Doorbell page of the process.
const UAR: u64 = 1;
const EVENT_LOG2: u32 = 10;
const FIRST_PSN: u32 = 100;
const EPOCH: u32 = 0x55;
const QKEY: u32 = 0x8000_0002;
/// Protection domain of memory that the peer writes to.
const DOMAIN: u16 = 1;
/// Keys that a card has.
const KEYS: usize = 8;
/// log2 of the command ring's places.
const COMMAND_LOG2: u32 = 12;
/// Blocks that are asked for ahead while all pages are pinned.
const AHEAD: u32 = 28;
/// Cycles after which a list without its proof is told again, on a wire that loses nothing.
const REPEAT: u64 = 64_000;
/// Bytes that an element of the doorbell has room for.
pub const INLINE_BYTES: usize = SLOT_INLINE;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SEND, into a receive.
    Send,
    /// RDMA WRITE: from the source of the one to the sink of the other.
    Write,
    /// RDMA READ: from the source of the other to the sink of the one.
    Read,
    /// Fetch-and-add of 8 bytes: what stood in the source of the other, to the sink of the one.
    Atomic,
}

/// What each atomic adds.
const ADD: u64 = 0x0102_0304_0506_0708;

/// What each of the two cards sends to the other one.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What messages are.
    pub kind: Kind,
    /// Queue pairs.
    pub qps: u32,
    /// Messages of each of them.
    pub count: u32,
    /// Bytes of a message.
    pub len: usize,
    /// log2 of the path MTU.
    pub log2_mtu: u32,
    /// Distance of the first buffer from a page: of what is sent, and of where it goes to.
    pub from: usize,
    /// See `from`.
    pub to: usize,
    /// Bytes from one buffer to the next, at least `len`.
    pub pitch: usize,
    /// Buffers of each queue pair and direction: message n has number n modulo this.
    pub buffers: u32,
    /// Receives that are posted at most.
    pub receives: u32,
    /// Pages are pinned when the card asks for them, and the driver needs so many cycles; 0: all are pinned before.
    pub service: u64,
    /// Blocks of what is sent that are asked for ahead.
    pub ahead: u32,
    /// Bound of what is granted, in pages, and in the upper half how much more while data come; 0: none.
    pub limit: u32,
    /// Longest credit list.
    pub list: u32,
    /// New credits that a later list waits for more than, unless at most so many are out.
    pub few: u32,
    /// What later lists wait for: kind and index, as rows have them.
    pub trigger: (u32, u32),
    /// The use of credits is reported with each list, and nobody answers.
    pub measured: bool,
    /// Frames of a hundred that the wire loses.
    pub loss: f64,
    /// Frames of a hundred that are late, so that later ones overtake them.
    pub reorder: f64,
    /// Selective repeat, else go-back-N.
    pub selective: bool,
    /// Each takes the other one for a foreign peer: plain RoCEv2, no lists.
    pub foreign: bool,
    /// Cycles of the wire's round trip.
    pub round_trip: u64,
}

impl Load {
    /// Messages whose buffers lie behind each other, all posted before, all pages pinned.
    pub fn warm(model: &Model, qps: u32, count: u32, len: usize, log2_mtu: u32) -> Self {
        Self {
            kind: Kind::Send,
            qps,
            count,
            len,
            log2_mtu,
            from: 0,
            to: 0,
            pitch: len,
            buffers: count,
            receives: count,
            service: 0,
            ahead: model.ahead.unwrap_or(AHEAD),
            limit: 0,
            list: model.list,
            few: model.few,
            trigger: (TRIGGER_UNBOUNDED.into(), model.trigger),
            measured: false,
            loss: 0.0,
            reorder: 0.0,
            selective: true,
            foreign: false,
            round_trip: model.wire_round_trip,
        }
    }

    /// The wire is not clean.
    pub fn faulty(&self) -> bool {
        self.loss > 0.0 || self.reorder > 0.0
    }

    /// Firmware has something to do: the wire is not clean, or peers wait for memory.
    pub fn needs_firmware(&self) -> bool {
        self.faulty() || (self.one_sided() && self.service > 0)
    }

    /// The peer has no part in it.
    fn one_sided(&self) -> bool {
        self.kind != Kind::Send
    }

    /// Something of the peer comes back.
    const fn asks(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Atomic)
    }

    /// Opcode of the elements.
    const fn opcode(&self) -> u8 {
        match self.kind {
            Kind::Send => OP_SEND,
            Kind::Write => OP_WRITE,
            Kind::Read => OP_READ,
            Kind::Atomic => OP_FETCH_ADD,
        }
    }

    /// Elements of a queue.
    fn depth(&self) -> usize {
        (self.count as usize + 1).next_power_of_two().max(128)
    }

    /// All messages of a card.
    pub fn messages(&self) -> usize {
        self.qps as usize * self.count as usize
    }

    /// Bytes of memory for all of a card's messages.
    fn data(&self) -> usize {
        (self.qps as usize * self.buffers as usize * self.pitch + self.from.max(self.to)).next_multiple_of(4096)
    }

    /// Place of a message from the first one on.
    fn at(&self, q: u32, n: u32) -> usize {
        (q * self.buffers + n % self.buffers) as usize * self.pitch
    }
}

/// What a range of host memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Elements of sends.
    SendQueue,
    /// Data that are sent.
    Source,
    /// Data that were received.
    Sink,
    /// Completions of receives.
    Completions,
    /// Anything else.
    Other,
}

/// Offsets in host memory.
#[derive(Clone, Copy, Debug)]
struct Places {
    commands: usize,
    events: usize,
    queues: usize,
    ring: usize,
    completions: usize,
    source: usize,
    sink: usize,
    end: usize,
}

impl Places {
    fn new(load: &Load) -> Self {
        let ring = load.depth() * WQE_BYTES as usize;
        let completions = load.depth() * CQE_BYTES as usize;
        let events = (ENTRY_BYTES as usize) << COMMAND_LOG2;
        let queues = events + ((ENTRY_BYTES as usize) << EVENT_LOG2);
        let source = queues + load.qps as usize * 2 * (ring + completions);
        let sink = source + load.data();
        Self { commands: 0, events, queues, ring, completions, source, sink, end: sink + load.data() }
    }

    fn queue(&self, q: u32) -> usize {
        self.queues + q as usize * 2 * (self.ring + self.completions)
    }

    fn send_queue(&self, q: u32) -> usize {
        self.queue(q)
    }

    fn receive_queue(&self, q: u32) -> usize {
        self.queue(q) + self.ring
    }

    /// Completions of sends, or of receives.
    fn completion_queue(&self, q: u32, receives: bool) -> usize {
        self.queue(q) + 2 * self.ring + usize::from(receives) * self.completions
    }
}

/// A card, its host and its process.
pub struct Node {
    /// The card and host memory.
    pub board: Board,
    load: Load,
    places: Places,
    commands: Commands,
    events: Events,
    pager: Pager,
    sent: Vec<u16>,
    bytes: Vec<u32>,
    posted: Vec<u32>,
    taken: Vec<u32>,
    expected: Vec<u8>,
    /// Cycles at which receives were seen complete, and how many were by then.
    pub progress: Vec<(u64, usize)>,
    /// Time-outs that were answered.
    pub time_outs: u32,
    /// How often a peer was told that its memory is there.
    pub goes: u32,
    /// Keys of the card, and that of its sink and of the other one's.
    keys: Keys<KEYS>,
    key: u32,
    /// By queue pair: it waits for memory of the peer; a GO has overtaken what it is for.
    waits: Vec<bool>,
    gone: Vec<bool>,
}

fn mac(n: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0, 1 + n]
}

fn ip(n: u8) -> [u8; 4] {
    [10, 0, 0, 1 + n]
}

/// Headers of a queue pair's frames, with the folded sum of the IP header in the place of its checksum.
fn template(n: u8, qpn: u32) -> [u8; 56] {
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
    t[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
    let sum: u32 = t[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    t[24..26].copy_from_slice(&(sum as u16).to_be_bytes());
    t
}

/// Bus address of what is at an offset in host memory.
fn bus(offset: usize) -> u64 {
    HOST_BASE + offset as u64
}

impl Node {
    /// Card `n` (0 or 1) of a pair, its queue pairs connected to those of the other one with the same numbers; the data
    /// that it is to send are in its memory, and all pages known to the card.
    pub fn new(model: &Model, data_w: usize, n: u8, load: Load) -> Self {
        let places = Places::new(&load);
        let mut memory = vec![0; places.source];
        memory.extend(Rng(model.seed + u64::from(n)).bytes(load.data()));
        memory.resize(places.end, 0);
        let mut board = board(model, data_w, 0, &memory);
        let Board { card, memory } = &mut board;
        let mut commands = Commands::new(bus(places.commands), COMMAND_LOG2);
        let mut events = Events::new(bus(places.events), EVENT_LOG2);
        let mut pager = Pager::new(u64::MAX, load.service);
        let vpns = FIRST_VPN..FIRST_VPN + (places.end - places.source) as u64 / PAGE;
        for (vpn, at) in vpns.clone().zip((places.source..).step_by(PAGE as usize)) {
            let writable = at >= places.sink || load.kind == Kind::Atomic;
            pager.map(ASID, vpn, Page { bus: bus(at), writable });
            memory.set_dma(bus(at), Access::None);
        }
        commands.attach(card, memory);
        if load.service == 0 {
            for first in vpns.clone().step_by(3000) {
                let some = first..vpns.end.min(first + 3000);
                pager.pin(ASID, some, memory).into_iter().for_each(|entry| commands.put(entry));
                commands.carry_out(card, memory);
            }
        }
        events.attach(card, memory);
        let queues = load.qps as usize;
        let mut node = Self {
            board,
            load,
            places,
            commands,
            events,
            pager,
            sent: vec![0; queues],
            bytes: vec![0; queues],
            posted: vec![0; queues],
            taken: vec![0; queues],
            expected: Rng(model.seed + u64::from(1 - n)).bytes(load.data()),
            progress: Vec::new(),
            time_outs: 0,
            goes: 0,
            keys: Keys::new(),
            key: 0,
            waits: vec![false; queues],
            gone: vec![false; queues],
        };
        if load.one_sided() {
            node.bind();
        }
        for q in 0..load.qps {
            node.connect(model, n, q);
        }
        node
    }

    fn row(&mut self, half: u32, qpn: u32, word: u32, value: u32) {
        self.board.write(rows::address(half, qpn, word), value);
    }

    /// Virtual address of where message `n` of a queue goes to, and of where it is sent from.
    fn sink(&self, q: u32, n: u32) -> u64 {
        FIRST_VPN * PAGE + (self.places.sink - self.places.source + self.load.to + self.load.at(q, n)) as u64
    }

    fn source(&self, q: u32, n: u32) -> u64 {
        FIRST_VPN * PAGE + (self.load.from + self.load.at(q, n)) as u64
    }

    /// A key of all that is written or read: both cards have the same one.
    fn bind(&mut self) {
        let len = self.load.data() as u64;
        let (va, rights) = match self.load.kind {
            Kind::Read => (self.source(0, 0), READ),
            Kind::Atomic => (self.source(0, 0), ATOMIC),
            _ => (self.sink(0, 0), WRITE),
        };
        let len = len - (va % PAGE);
        self.key = self.new_key(DOMAIN, Some(Binding { va, len, rights, ..Binding::default() }));
    }

    /// A new key of a protection domain, bound to something or to nothing.
    fn new_key(&mut self, domain: u16, binding: Option<Binding>) -> u32 {
        let key = self.keys.allocate(domain, 1).expect("a free place");
        if let Some(binding) = binding {
            self.keys.bind(key, binding).expect("a range");
        }
        let place = key >> 8 & (berth_abi::card::NUM_KEYS - 1);
        for (word, value) in (recv::KEY..).zip(self.keys.words(place as usize % KEYS, ASID as u8)) {
            self.row(HALF_RECEIVES, FIRST_QPN, word, value);
        }
        let command = recv::Command { opcode: recv::CMD_KEY_STORE, argument: place };
        self.row(HALF_RECEIVES, FIRST_QPN, recv::COMMAND, command.word());
        key
    }

    /// Keys that open nothing to a READ of the first message, one for each reason, as (key, virtual address): the number of
    /// a place without a key, another number of a place with one, a key of another domain, one that is not bound, one of
    /// another range, one without the right.
    pub fn wrong_keys(&mut self) -> [(u32, u64); 6] {
        let va = self.source(0, 0);
        let page = Binding { va, len: PAGE, rights: READ, ..Binding::default() };
        let foreign = self.new_key(DOMAIN + 1, Some(page));
        let unbound = self.new_key(DOMAIN, None);
        let other = self.new_key(DOMAIN, Some(page));
        let written = self.new_key(DOMAIN, Some(Binding { rights: WRITE, ..page }));
        let free = self.key ^ (berth_abi::card::NUM_KEYS / 2) << 8;
        [(free, va), (self.key ^ 1, va), (foreign, va), (unbound, va), (other, va + PAGE), (written, va)]
    }

    /// Reads the first message of a queue from elsewhere, with another key.
    pub fn read_from(&mut self, q: u32, key: u32, va: u64) {
        self.put_send(q, 0, va, key);
        self.ring_sends(q);
    }

    /// Completion queues, doorbell row and both rows of queue pair `q`.
    fn connect(&mut self, model: &Model, n: u8, q: u32) {
        let (qpn, peer) = (FIRST_QPN + q, 1 - n);
        for receives in [false, true] {
            let at = bus(self.places.completion_queue(q, receives));
            self.board.set_cpu(CPU_CQ_BASE_LO, at as u32);
            self.board.set_cpu(CPU_CQ_BASE_HI, (at >> 32) as u32);
            self.board
                .set_cpu(CPU_CQ_ATTR, CqAttr { valid: 1, page: UAR as u32, log2: self.load.depth().ilog2() }.word());
            self.board.set_cpu(CPU_CQ_CFG, 2 * q + u32::from(receives));
        }
        self.board.set_cpu(CPU_DB_CFG_QPN, qpn);
        self.board.set_cpu(CPU_DB_CFG, DbCfg { valid: 1, fast: 1, page: UAR as u32 }.word());

        for (word, chunk) in (0..).zip(template(n, qpn).as_chunks::<4>().0) {
            self.row(HALF_SENDS, qpn, word, u32::from_le_bytes(*chunk));
        }
        let (sends, receives) = (bus(self.places.send_queue(q)), bus(self.places.receive_queue(q)));
        let (log2_depth, log2_mtu) = (self.load.depth().ilog2(), self.load.log2_mtu);
        let selective = u32::from(self.load.selective && !self.load.foreign);
        let foreign = u32::from(self.load.foreign);
        // A list that is lost is told again after twice the time in which its proof can come.
        let repeat = if self.load.faulty() { 2 * self.load.round_trip + REPEAT / 32 } else { REPEAT };
        // Selective repeat does without time-outs: firmware's would take longer than a measurement may.
        let time_out = match (self.load.faulty(), self.load.selective) {
            (true, true) => u64::from(TIMEOUT),
            (true, false) => 4 * self.load.round_trip,
            (false, _) => 0,
        };
        let remote = u32::from(self.load.one_sided() || self.load.foreign);
        let reads = if self.load.asks() { MAX_READS } else { 0 };
        let mode = send::Mode {
            foreign,
            reorder: if self.load.foreign { 0 } else { model.reorder },
            window: model.window,
            selective,
            log2_mtu,
            remote,
            message: remote,
            reads,
            ..send::Mode::default()
        };
        for (word, value) in [
            (send::BASE, sends as u32),
            (send::BASE + 1, (sends >> 32) as u32),
            (send::QUEUE, send::Queue { cqn: 2 * q, asid: ASID, log2_depth }.word()),
            (send::MODE, mode.word()),
            (send::TIMEOUT, (time_out / u64::from(ROW_CLOCK)) as u32),
            (send::BLOCKS, send::Blocks { ahead: self.load.ahead, log2_block: model.log2_block }.word()),
            (send::PSN, FIRST_PSN),
            (send::QKEY, QKEY),
            (send::COMMAND, send::CMD_START),
        ] {
            self.row(HALF_SENDS, qpn, word, value);
        }
        let last4 = |mac: [u8; 6]| u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]);
        let first2 = |mac: [u8; 6]| u32::from(mac[0]) << 8 | u32::from(mac[1]);
        let mode = recv::Mode {
            foreign,
            ack_every: model.ack_every,
            selective,
            log2_mtu,
            remote,
            message: remote,
            reads,
            ..recv::Mode::default()
        };
        let lists = recv::Lists {
            told: self.load.measured.into(),
            few: self.load.few,
            timed: 0,
            index: self.load.trigger.1,
            trigger: self.load.trigger.0,
            longest: self.load.list,
        };
        for (word, value) in [
            (recv::OWN_IP, u32::from_be_bytes(ip(n))),
            (recv::OWN_MAC, last4(mac(n))),
            (recv::OWN_MAC + 1, first2(mac(n))),
            (recv::MODE, mode.word()),
            (recv::IP, u32::from_be_bytes(ip(peer))),
            (recv::MAC, last4(mac(peer))),
            (recv::MAC + 1, first2(mac(peer))),
            (recv::SPACE, recv::Space { domain: DOMAIN.into(), cqn: 2 * q + 1, asid: ASID }.word()),
            (recv::EPOCH, EPOCH),
            (recv::PEER_EPOCH, EPOCH),
            (recv::QKEY, QKEY),
            (recv::PSN, FIRST_PSN),
            (recv::BASE, receives as u32),
            (recv::BASE + 1, (receives >> 32) as u32),
            (recv::QUEUE, recv::Queue { first: 0, log2_depth }.word()),
            (recv::LISTS, lists.word()),
            (recv::AGAIN, (repeat / u64::from(ROW_CLOCK)) as u32),
            (recv::PI, 0),
            (recv::PINNED, self.load.limit),
            (recv::COMMAND, recv::CMD_START),
        ] {
            self.row(HALF_RECEIVES, qpn, word, value);
        }
    }

    /// Element `n` of a queue of receives.
    fn put_receive(&mut self, q: u32, n: u32) {
        let at = bus(self.places.receive_queue(q) + n as usize * WQE_BYTES as usize);
        let sge = (self.sink(q, n), self.load.len as u32);
        self.board.memory.poke(at, &element(OP_RECV, 0, n.into(), &[sge]));
    }

    /// Element `n` of a queue of sends. What it writes goes to where a receive of the other card would have it, and what it
    /// reads comes from `from` with `key`.
    fn put_send(&mut self, q: u32, n: u32, from: u64, key: u32) {
        let at = bus(self.places.send_queue(q) + n as usize * WQE_BYTES as usize);
        let (source, sink, len) = (self.source(q, n), self.sink(q, n), self.load.len as u32);
        let va = if self.load.asks() { sink } else { source };
        let mut wqe = Wqe { opcode: OP_SEND, num_sge: 1, length: len, wr_id: n.into(), ..Wqe::default() };
        wqe.sge[0] = Sge { va, len, reserved: 0 };
        let wqe = match self.load.kind {
            Kind::Send => Some(wqe),
            Kind::Write => wqe.with_remote(sink, key),
            Kind::Read => wqe.with_source(from, key),
            Kind::Atomic => wqe.with_fetch_add(from, key, ADD),
        };
        let wqe = wqe.expect("the element has room");
        let bytes: Vec<u8> = wqe.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.board.memory.poke(at, &bytes);
    }

    fn doorbell(&mut self, offset: u32, word: u64) {
        self.board.card.post_write(BAR_DOORBELL, UAR * PAGE + u64::from(offset), word, 8);
    }

    /// Posts as many receives as there may be, with a doorbell for each queue; WRITEs need none.
    pub fn receive_all(&mut self) {
        for q in 0..if self.load.one_sided() { 0 } else { self.load.qps } {
            self.receive(q, self.load.count.min(self.load.receives));
        }
    }

    fn receive(&mut self, q: u32, more: u32) {
        let first = self.posted[q as usize];
        for n in first..first + more {
            self.put_receive(q, n);
        }
        self.posted[q as usize] = first + more;
        self.doorbell(DB_RQ, u64::from(FIRST_QPN + q) | u64::from(first + more) << 16);
    }

    /// Posts all sends, with a doorbell for each queue.
    pub fn send_all(&mut self) {
        for q in 0..self.load.qps {
            for n in 0..self.load.count {
                self.put_send(q, n, self.source(q, n), self.key);
            }
            let posted = self.load.count * self.load.len as u32;
            let word = u64::from(FIRST_QPN + q) | u64::from(self.load.count) << 16 | u64::from(posted) << 32;
            self.doorbell(DB_SQ, word);
        }
    }

    /// Posts one message, which the card fetches: one of those that `send_all` would send.
    pub fn send_one(&mut self, q: u32) {
        let n = u32::from(self.sent[q as usize]);
        self.put_send(q, n, self.source(q, n), self.key);
        self.ring_sends(q);
    }

    /// The doorbell for one more message of a queue.
    fn ring_sends(&mut self, q: u32) {
        self.sent[q as usize] += 1;
        self.bytes[q as usize] += self.load.len as u32;
        let (sent, posted) = (self.sent[q as usize], self.bytes[q as usize]);
        self.doorbell(DB_SQ, u64::from(FIRST_QPN + q) | u64::from(sent) << 16 | u64::from(posted) << 32);
    }

    /// What the host memory at a bus address is for.
    pub fn area(&self, bus: u64) -> Area {
        let at = bus.wrapping_sub(HOST_BASE) as usize;
        let p = &self.places;
        let in_queue = |begin: usize, len: usize| (begin..begin + len).contains(&at);
        match at {
            _ if (p.source..p.sink).contains(&at) => Area::Source,
            _ if (p.sink..p.end).contains(&at) => Area::Sink,
            _ if (0..self.load.qps).any(|q| in_queue(p.send_queue(q), p.ring)) => Area::SendQueue,
            _ if (0..self.load.qps).any(|q| in_queue(p.completion_queue(q, true), p.completions)) => Area::Completions,
            _ => Area::Other,
        }
    }

    /// Posts one message with its data in the doorbell: those that `send_all` would send.
    pub fn send_inline(&mut self, q: u32) {
        let n = u32::from(self.sent[q as usize]);
        let from = self.places.source + self.load.from + self.load.at(q, n);
        let mut element = vec![OP_SEND, SEND_INLINE, 0, 0];
        element.extend_from_slice(&(self.load.len as u32).to_le_bytes());
        element.extend_from_slice(&u64::from(n).to_le_bytes());
        element.extend(self.board.memory.peek(bus(from), self.load.len));
        element.resize(16 + INLINE_BYTES, 0);
        self.board.memory.poke(bus(self.places.send_queue(q) + n as usize * WQE_BYTES as usize), &element);
        for (at, word) in (DB_WQE..).step_by(8).zip(element.as_chunks::<8>().0) {
            self.doorbell(at, u64::from_le_bytes(*word));
        }
        self.sent[q as usize] += 1;
        self.bytes[q as usize] += self.load.len as u32;
        let (sent, posted) = (self.sent[q as usize], self.bytes[q as usize]);
        self.doorbell(DB_WQE + 56, u64::from(FIRST_QPN + q) | u64::from(sent) << 16 | u64::from(posted) << 32);
    }

    /// The words of completion `n` of a queue.
    fn completion(&self, q: u32, receives: bool, n: u32) -> Cqe {
        let at = self.places.completion_queue(q, receives) + n as usize * CQE_BYTES as usize;
        Cqe::from_words(&self.board.memory.words(bus(at)))
    }

    /// Whether completion `n` of a queue has been written.
    pub fn completed(&self, q: u32, receives: bool, n: u32) -> bool {
        self.completion(q, receives, n).phase & PHASE != 0
    }

    /// Whether all sends, and all receives of SENDs, have been completed.
    pub fn done(&self) -> bool {
        let last = self.load.count - 1;
        let received = |q| self.load.one_sided() || self.completed(q, true, last);
        (0..self.load.qps).all(|q| self.completed(q, false, last) && received(q))
    }

    /// Compares the completions of the first `count` receives of each queue, and of the sends that they are from, with
    /// what they must be. What was received has been compared by [`Node::work`]; what was written or read is compared here.
    ///
    /// # Errors
    /// When something differs, or the card has an event for firmware.
    pub fn check(&mut self, peer: &Self, count: u32) -> Result<()> {
        let mut event = self.board.fast_event();
        while event.is_some_and(|e| self.load.measured && e.code as u32 == EVENT_USE) {
            event = self.board.fast_event();
        }
        ensure!(event.is_none(), "for firmware: {event:x?}");
        ensure!(self.taken.iter().all(|&n| n == count), "{:?} messages of {count} have been compared", self.taken);
        for (q, n) in (0..self.load.qps).flat_map(|q| (0..count).map(move |n| (q, n))) {
            let sender = if self.load.asks() { &*self } else { peer };
            for (node, receives, opcode) in [(sender, false, self.load.opcode()), (&*self, true, OP_RECV)] {
                if receives && self.load.one_sided() {
                    continue;
                }
                let c = node.completion(q, receives, n);
                let fine = (c.wr_id, c.byte_len) == (n.into(), self.load.len as u32)
                    && (c.status, c.opcode) == (WC_OK, opcode)
                    && c.phase & PHASE != 0;
                ensure!(fine, "completion {n} of queue pair {q}, receives {receives}: {c:x?}");
            }
        }
        for (q, n) in (0..self.load.qps).flat_map(|q| (0..count).map(move |n| (q, n))).filter(|_| self.load.one_sided())
        {
            let (at, len) = (self.load.at(q, n), self.load.len);
            let got = self.board.memory.peek(bus(self.places.sink + self.load.to + at), len);
            let expected = &self.expected[self.load.from + at..][..len];
            ensure!(got == expected, "WRITE, READ or atomic {n} of queue pair {q}");
            if self.load.kind == Kind::Atomic {
                let number = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
                let now = number(&self.board.memory.peek(bus(self.places.source + self.load.from + at), len));
                let before = number(&peer.expected[self.load.from + at..]);
                ensure!(now == before.wrapping_add(ADD), "what atomic {n} of queue pair {q} has left");
            }
        }
        for node in [&*self, peer] {
            let violations = node.board.memory.violations();
            ensure!(violations.is_empty(), "DMA to what is not pinned: {violations:x?}");
        }
        Ok(())
    }

    /// What driver and process do now and then: events are taken, page requests answered, what has been received is
    /// compared with what was sent, and its buffer posted again. Of WRITEs and READs completions are counted.
    ///
    /// # Errors
    /// When what was received is wrong, or a page cannot be pinned.
    pub fn work(&mut self) -> Result<()> {
        self.take_events();
        let (commands, _) = self.pager.serve(self.board.card.cycles(), &self.board.memory);
        self.tell(commands);
        let before: u32 = self.taken.iter().sum();
        for q in 0..self.load.qps {
            let first = self.taken[q as usize];
            let mut n = first;
            while n < self.load.count && self.completed(q, !self.load.one_sided(), n) {
                if self.load.one_sided() {
                    n += 1;
                    continue;
                }
                let (at, len) = (self.load.at(q, n), self.load.len);
                let sink = bus(self.places.sink + self.load.to + at);
                let got = self.board.memory.peek(sink, len);
                ensure!(got == self.expected[self.load.from + at..][..len], "message {n} of queue pair {q}");
                self.board.memory.poke(sink, &vec![0; len]);
                n += 1;
            }
            self.taken[q as usize] = n;
            let more = (n + self.load.receives).min(self.load.count).saturating_sub(self.posted[q as usize]);
            if n > first && more > 0 && !self.load.one_sided() {
                self.receive(q, more);
            }
        }
        let all: u32 = self.taken.iter().sum();
        if all > before {
            self.progress.push((self.board.card.cycles(), all as usize));
        }
        Ok(())
    }

    /// What firmware does. After a time-out the oldest packet goes again, or all that is not acknowledged. A queue pair
    /// that is told to wait for memory does so. Gives those whose peers are to go on, as theirs is there.
    ///
    /// # Errors
    /// When the card reports anything else.
    pub fn firmware(&mut self) -> Result<Vec<u32>> {
        let mut goes = Vec::new();
        while let Some(event) = self.board.fast_event() {
            let qpn = event.qpn as u32;
            match event.code as u32 {
                EVENT_TIMEOUT => {
                    self.time_outs += 1;
                    self.row(HALF_SENDS, qpn, send::COMMAND, send::CMD_AGAIN);
                }
                EVENT_RNR if self.load.one_sided() => {
                    let q = (qpn - FIRST_QPN) as usize;
                    if std::mem::take(&mut self.gone[q]) {
                        self.row(HALF_SENDS, qpn, send::COMMAND, send::CMD_GO_ON);
                    } else {
                        self.waits[q] = true;
                    }
                }
                EVENT_TARGET if self.load.one_sided() => {
                    self.goes += 1;
                    goes.push(qpn);
                }
                _ => bail!("for firmware: {event:x?}"),
            }
        }
        Ok(goes)
    }

    /// A GO has come.
    pub fn go(&mut self, qpn: u32) {
        let q = (qpn - FIRST_QPN) as usize;
        self.gone[q] = !std::mem::take(&mut self.waits[q]);
        if !self.gone[q] {
            self.row(HALF_SENDS, qpn, send::COMMAND, send::CMD_GO_ON);
        }
    }

    /// Most bytes that were pinned at any time: of what is sent, of what is received.
    pub fn pinned(&self) -> [u64; 2] {
        [self.pager.peak[0], self.pager.peak[1]]
    }

    /// Takes events, and gives their places in the ring back.
    fn take_events(&mut self) {
        let before = self.events.ci;
        while let Some(event) = self.events.take(&self.board.memory) {
            if self.load.service > 0 {
                self.pager.event(&event, self.board.card.cycles(), &self.board.memory);
                let evictions = self.pager.evictions();
                self.tell(evictions);
            }
        }
        if self.events.ci != before {
            self.events.tell(&mut self.board.card, false);
        }
    }

    fn tell(&mut self, commands: Vec<Entry>) {
        commands.into_iter().for_each(|entry| self.commands.put(entry));
        self.commands.tell(&mut self.board.card, &self.board.memory);
    }

    /// What went wrong, when a measurement does not end.
    ///
    /// # Errors
    /// Always.
    pub fn stuck(&mut self, limit: u64) -> Result<()> {
        let count = |receives| -> usize {
            let all = (0..self.load.qps).flat_map(|q| (0..self.load.count).map(move |n| (q, n)));
            all.filter(|&(q, n)| self.completed(q, receives, n)).count()
        };
        let (sends, receives) = (count(false), count(true));
        let (code, arg) = (self.board.cpu(CPU_FAST_EVENT), self.board.cpu(CPU_FAST_ARG));
        bail!(
            "not done in {limit} cycles: of {} each, {sends} sends and {receives} receives; event {code:#x} {arg:#x}",
            self.load.messages()
        )
    }
}
