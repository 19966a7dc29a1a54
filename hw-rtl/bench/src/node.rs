// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card with the fast path whose firmware is in reset: connected queue pairs, made through the debug port, and a
//! process that posts elements and rings doorbells.

use anyhow::{Result, bail, ensure};
use berth_abi::card::FIRST_QPN;
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::wqe::{CQE_BYTES, OP_RECV, OP_SEND, WQE_BYTES};
use berth_random::Rng;
use berth_rtl::{BAR_CONTROL, BAR_DOORBELL};

use crate::model::Model;
use crate::rig::{HOST_BASE, Rig};

const ASID: u32 = 3;
/// Virtual page of the first byte of data.
const FIRST_VPN: u64 = 0x7_f123_4000;
/// Doorbell page of the process.
const UAR: u64 = 1;
const EVENT_LOG2: u32 = 10;
const FIRST_PSN: u32 = 100;
const EPOCH: u32 = 0x55;
const QKEY: u32 = 0x8000_0002;
/// Packets under way at most, and later ones that make a packet count as lost.
const WINDOW: u32 = 128;
const REORDER: u32 = 3;
/// Packets until an acknowledgement that was not asked for.
const ACK_EVERY: u32 = 8;
/// log2 of a block of sender's memory, and how many are asked for ahead.
const LOG2_BLOCK: u32 = 16;
const AHEAD: u32 = 8;
/// Longest list, and the new credits that a later one waits for, unless so few are out. A list of more than 60 credits
/// is not sent right by `berth_fp_frame`, whose count has 6 bits.
const LONGEST_LIST: u32 = 32;
const FEW: u32 = 24;
/// Repeat of a list without its proof, in units of 64 cycles.
const REPEAT: u32 = 1000;
/// Element flag: its data stand in it.
const INLINE: u8 = 2;
/// Bytes that an element of the doorbell has room for.
pub const INLINE_BYTES: usize = 40;

/// What each of the two cards sends to the other one.
#[derive(Clone, Copy, Debug)]
pub struct Load {
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
}

impl Load {
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
        (self.messages() * self.pitch + self.from.max(self.to)).next_multiple_of(4096)
    }

    /// Place of a message from the first one on.
    fn at(&self, q: u32, n: u32) -> usize {
        (q * self.count + n) as usize * self.pitch
    }
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
        let events = (2 * load.data() / 4096 + 1).next_power_of_two().max(512) * 64;
        let queues = events + (64 << EVENT_LOG2);
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
    pub rig: Rig,
    load: Load,
    places: Places,
    events: u16,
    sent: Vec<u16>,
    posted: Vec<u32>,
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

impl Node {
    /// Card `n` (0 or 1) of a pair, its queue pairs connected to those of the other one with the same numbers; the data
    /// that it is to send are in its memory, and all pages known to the card.
    ///
    /// # Errors
    /// When the card does not take what it is told.
    pub fn new(model: &Model, data_w: usize, n: u8, load: Load) -> Result<Self> {
        let places = Places::new(&load);
        let mut memory = vec![0; places.source];
        memory.extend(Rng(model.seed + u64::from(n)).bytes(load.data()));
        memory.resize(places.end, 0);
        let mut rig = Rig::new(model, data_w, 0, memory);
        let pages = (places.end - places.source) / 4096;
        let pages: Vec<(u64, u64)> =
            (0..pages as u64).map(|i| (FIRST_VPN + i, HOST_BASE + places.source as u64 + i * 4096)).collect();
        rig.install(places.commands, ASID, &pages)?;
        rig.card.mmio_write(BAR_CONTROL, HOST_EVT_BASE_LO.into(), HOST_BASE + places.events as u64, 8);
        rig.card.mmio_write(BAR_CONTROL, HOST_EVT_LOG2.into(), EVENT_LOG2.into(), 4);
        let queues = load.qps as usize;
        let mut node = Self { rig, load, places, events: 0, sent: vec![0; queues], posted: vec![0; queues] };
        for q in 0..load.qps {
            node.connect(n, q)?;
        }
        Ok(node)
    }

    fn row(&mut self, half: u32, qpn: u32, word: u32, value: u32) -> Result<()> {
        let at = CPU_FAST + (half * 1024 + qpn) * 256 + 4 * word;
        ensure!(self.rig.card.debug_write(at, value), "word {word} of row {qpn} is not taken");
        Ok(())
    }

    /// Completion queues, doorbell row and both rows of queue pair `q`.
    fn connect(&mut self, n: u8, q: u32) -> Result<()> {
        let (qpn, peer) = (FIRST_QPN + q, 1 - n);
        let bus = |offset: usize| HOST_BASE + offset as u64;
        for receives in [false, true] {
            let at = bus(self.places.completion_queue(q, receives));
            self.rig.write(CPU_CQ_BASE_LO, at as u32)?;
            self.rig.write(CPU_CQ_BASE_HI, (at >> 32) as u32)?;
            self.rig.write(CPU_CQ_ATTR, 1 << 31 | (UAR as u32) << 8 | self.load.depth().ilog2())?;
            self.rig.write(CPU_CQ_CFG, 2 * q + u32::from(receives))?;
        }
        self.rig.write(CPU_DB_CFG_QPN, qpn)?;
        self.rig.write(CPU_DB_CFG, 1 << 31 | 1 << 30 | UAR as u32)?;

        for (word, chunk) in (0..).zip(template(n, qpn).as_chunks::<4>().0) {
            self.row(0, qpn, word, u32::from_le_bytes(*chunk))?;
        }
        let (sends, receives) = (bus(self.places.send_queue(q)), bus(self.places.receive_queue(q)));
        let (log2_depth, log2_mtu) = (self.load.depth().ilog2(), self.load.log2_mtu);
        for (word, value) in [
            (16, sends as u32),
            (17, (sends >> 32) as u32),
            (18, (2 * q) << 16 | ASID << 8 | log2_depth),
            (19, REORDER << 16 | WINDOW << 8 | 1 << 5 | log2_mtu),
            (20, 0),
            (21, AHEAD << 8 | LOG2_BLOCK),
            (22, FIRST_PSN),
            (23, QKEY),
            (32, 1),
        ] {
            self.row(0, qpn, word, value)?;
        }
        let last4 = |mac: [u8; 6]| u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]);
        let first2 = |mac: [u8; 6]| u32::from(mac[0]) << 8 | u32::from(mac[1]);
        for (word, value) in [
            (16, u32::from_be_bytes(ip(n))),
            (17, last4(mac(n))),
            (18, first2(mac(n))),
            (0, log2_mtu | 1 << 4 | ACK_EVERY << 16),
            (1, u32::from_be_bytes(ip(peer))),
            (2, last4(mac(peer))),
            (3, first2(mac(peer))),
            (4, ASID | (2 * q + 1) << 8),
            (5, EPOCH),
            (6, EPOCH),
            (7, QKEY),
            (8, FIRST_PSN),
            (9, receives as u32),
            (10, (receives >> 32) as u32),
            (11, log2_depth),
            (12, LONGEST_LIST | FEW << 24),
            (13, REPEAT),
            (14, 0),
            (63, 1),
        ] {
            self.row(1, qpn, word, value)?;
        }
        Ok(())
    }

    fn put(&mut self, queue: usize, n: u32, opcode: u8, offset: usize) {
        let va = FIRST_VPN * 4096 + offset as u64;
        let len = self.load.len as u32;
        let mut element = vec![opcode, 0, 1, 0];
        element.extend_from_slice(&len.to_le_bytes());
        element.extend_from_slice(&u64::from(n).to_le_bytes());
        element.extend_from_slice(&va.to_le_bytes());
        element.extend_from_slice(&len.to_le_bytes());
        let at = queue + n as usize * WQE_BYTES as usize;
        self.rig.memory()[at..at + element.len()].copy_from_slice(&element);
    }

    fn doorbell(&mut self, offset: u32, word: u64) {
        self.rig.card.post_write(BAR_DOORBELL, UAR * 4096 + u64::from(offset), word, 8);
    }

    /// Posts all receives, with a doorbell for each queue.
    pub fn receive_all(&mut self) {
        let sink = self.places.sink - self.places.source + self.load.to;
        for q in 0..self.load.qps {
            for n in 0..self.load.count {
                self.put(self.places.receive_queue(q), n, OP_RECV, sink + self.load.at(q, n));
            }
            self.doorbell(DB_RQ, u64::from(FIRST_QPN + q) | u64::from(self.load.count) << 16);
        }
    }

    /// Posts all sends, with a doorbell for each queue.
    pub fn send_all(&mut self) {
        for q in 0..self.load.qps {
            for n in 0..self.load.count {
                self.put(self.places.send_queue(q), n, OP_SEND, self.load.from + self.load.at(q, n));
            }
            let posted = self.load.count * self.load.len as u32;
            let word = u64::from(FIRST_QPN + q) | u64::from(self.load.count) << 16 | u64::from(posted) << 32;
            self.doorbell(DB_SQ, word);
        }
    }

    /// Posts one message with its data in the doorbell: those that `send_all` would send.
    pub fn send_inline(&mut self, q: u32) {
        let n = u32::from(self.sent[q as usize]);
        let from = self.places.source + self.load.from + self.load.at(q, n);
        let mut element = vec![OP_SEND, INLINE, 0, 0];
        element.extend_from_slice(&(self.load.len as u32).to_le_bytes());
        element.extend_from_slice(&u64::from(n).to_le_bytes());
        {
            let mut memory = self.rig.memory();
            element.extend_from_slice(&memory[from..from + self.load.len]);
            element.resize(16 + INLINE_BYTES, 0);
            let at = self.places.send_queue(q) + n as usize * WQE_BYTES as usize;
            memory[at..at + element.len()].copy_from_slice(&element);
        }
        for (at, word) in (DB_WQE..).step_by(8).zip(element.as_chunks::<8>().0) {
            self.doorbell(at, u64::from_le_bytes(*word));
        }
        self.sent[q as usize] += 1;
        self.posted[q as usize] += self.load.len as u32;
        let (sent, posted) = (self.sent[q as usize], self.posted[q as usize]);
        self.doorbell(DB_WQE + 56, u64::from(FIRST_QPN + q) | u64::from(sent) << 16 | u64::from(posted) << 32);
    }

    /// Whether completion `n` of a queue has been written.
    pub fn completed(&self, q: u32, receives: bool, n: u32) -> bool {
        let at = self.places.completion_queue(q, receives) + (n as usize + 1) * CQE_BYTES as usize;
        self.rig.memory()[at - 1] & 0x80 != 0
    }

    /// Whether all sends and receives have been completed.
    pub fn done(&self) -> bool {
        let last = self.load.count - 1;
        (0..self.load.qps).all(|q| self.completed(q, false, last) && self.completed(q, true, last))
    }

    /// Compares what the first `count` receives of each queue have got with what `peer` has sent, and all their
    /// completions with what they must be.
    ///
    /// # Errors
    /// When something differs, or the card has an event for firmware.
    pub fn check(&mut self, peer: &Self, count: u32) -> Result<()> {
        let (code, arg) = (self.rig.read(CPU_FAST_EVENT)?, self.rig.read(CPU_FAST_ARG)?);
        ensure!(code >> 24 == 0, "event {code:#x} {arg:#x} for firmware");
        let (own, other) = (self.rig.memory(), peer.rig.memory());
        for (q, n) in (0..self.load.qps).flat_map(|q| (0..count).map(move |n| (q, n))) {
            let (at, len) = (self.load.at(q, n), self.load.len);
            let got = &own[self.places.sink + self.load.to + at..][..len];
            ensure!(got == &other[self.places.source + self.load.from + at..][..len], "message {n} of queue pair {q}");
            for (receives, opcode) in [(false, OP_SEND), (true, OP_RECV)] {
                let memory = if receives { &own } else { &other };
                let at = self.places.completion_queue(q, receives) + n as usize * CQE_BYTES as usize;
                let e = &memory[at..at + CQE_BYTES as usize];
                let fine = e[..8] == u64::from(n).to_le_bytes()
                    && e[8..12] == (len as u32).to_le_bytes()
                    && (e[16], e[17]) == (0, opcode)
                    && e[31] & 0x80 != 0;
                ensure!(fine, "completion {n} of queue pair {q}, receives {receives}: {e:x?}");
            }
        }
        Ok(())
    }

    /// Gives the card's places in the event ring back, as a driver does.
    pub fn take_events(&mut self) {
        let before = self.events;
        loop {
            let at = self.places.events + 64 * usize::from(self.events % (1 << EVENT_LOG2));
            let phase = self.rig.memory()[at + 3] & 0x80 != 0;
            if phase != (self.events >> EVENT_LOG2 & 1 == 0) {
                break;
            }
            self.events = self.events.wrapping_add(1);
        }
        if self.events != before {
            self.rig.card.post_write(BAR_CONTROL, HOST_EVT_CI.into(), self.events.into(), 4);
        }
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
        let (code, arg) = (self.rig.read(CPU_FAST_EVENT)?, self.rig.read(CPU_FAST_ARG)?);
        bail!(
            "not done in {limit} cycles: of {} each, {sends} sends and {receives} receives; event {code:#x} {arg:#x}",
            self.load.messages()
        )
    }
}
