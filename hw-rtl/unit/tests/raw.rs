// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_raw`: queues that are made and end under load, elements of all kinds, frames of all kinds, rings full and empty, and
//! neighbours that hold back, compared with the model (`berth_protocol::service::raw`).
#![cfg(feature = "fastpath")]

use berth_abi::card::{RAW_FILTERS, RAW_QUEUES, RAW_SEND_BYTES, SLOT_BYTES};
use berth_abi::cpu::{RX_FLAG_ICRC_OK, RX_FLAG_LOOPBACK, RX_FLAG_ROCE};
use berth_abi::raw::{
    RAW_FRAME_BYTES, RAW_GO_CREATE, RAW_GO_END, RAW_GO_FILTER, RAW_GO_MODE, RAW_LEAST_BYTES, RAW_QPN,
    RAW_RECEIVE_BYTES, RAW_WQE_BYTES, RawAttr, RawCqs, RawFilterAttr, RawFilterPorts, RawWqe,
};
use berth_abi::status::{WC_BAD_WQE, WC_LOCAL_PROTECTION, WC_OK};
use berth_abi::wqe::{OP_RECV, OP_SEND, SEND_UNSIGNALLED, Sge};
use berth_protocol::service::raw::{BROADCAST, Filter, Rules, Whose, cut};
use berth_random::{Rng, cases, seed};
use berth_rtl_unit::{Module, Named};
use std::collections::{HashMap, VecDeque};

const NAME: &str = "berth_raw";
const QUEUES: usize = RAW_QUEUES as usize;
const FILTERS: usize = RAW_FILTERS as usize;
/// Names of this card.
const OWN: (u64, u32) = (0x0200_0000_0001, 0x0a00_0001);
const FOREIGN: u64 = 0x0200_0000_0077;
const GROUP: u64 = 0x0100_5e00_0001;
/// Where the transmit RAM lies, and how it is addressed.
const TRANSMIT: u64 = 0x3_0000;
/// First receive slot, and how many there are.
const SLOTS: u64 = 16;
const FIRST_SLOT: u64 = 0x1_2000;
/// CQNs of queue 0.
const CQ_OF: [u64; 2] = [3, 40];
/// What is counted.
const EVENTS: [&str; 7] =
    ["ev.sent", "ev.received", "ev.bad", "ev.no_receive", "ev.too_long", "ev.not_ours", "ev.no_slot"];

/// What the neighbours do: probabilities.
#[derive(Clone, Copy, Debug)]
struct Mood {
    /// A neighbour is ready, in a clock.
    ready: f64,
    /// A read or a write ends, in a clock.
    ends: f64,
    /// A read fails.
    fails: f64,
    /// An element is malformed.
    bad: f64,
}

/// An element that the host has put into a ring.
#[derive(Clone, Debug)]
struct Posted {
    wqe: RawWqe,
    /// It could not be read.
    lost: bool,
    /// A read of its memory has failed.
    failed: bool,
}

/// A ring.
#[derive(Debug, Default)]
struct Ring {
    base: u64,
    log2: u8,
    /// Elements posted, complete; free-running.
    pi: u16,
    done: u16,
    elements: VecDeque<Posted>,
}

/// A queue.
#[derive(Debug, Default)]
struct Queue {
    on: bool,
    ends: bool,
    rings: [Ring; 2],
    /// Frames for it that are not at their ends, in their order.
    frames: VecDeque<Waiting>,
}

/// A frame in a receive slot.
#[derive(Clone, Debug)]
struct Frame {
    bytes: Vec<u8>,
    flags: u64,
    whose: Whose,
}

/// A frame whose receive is not complete.
#[derive(Clone, Debug)]
struct Waiting {
    /// Its slot, while it has one.
    place: Option<u64>,
    bytes: Vec<u8>,
}

/// A read or write under way.
#[derive(Clone, Debug)]
struct Move {
    place: u64,
    len: u64,
    va: u64,
    tag: u64,
}

/// A read of a ring under way: tag, bytes that are left, from where, offset.
#[derive(Clone, Debug)]
struct Fetch {
    tag: u64,
    addr: u64,
    len: u64,
    off: u64,
    fails: bool,
}

struct Bench {
    m: Named,
    rng: Rng,
    mood: Mood,
    beat: u64,
    clock: u64,
    /// Elements by their addresses. Payload is a function of its address.
    rings: HashMap<u64, [u64; 8]>,
    transmit: Vec<u8>,
    slots: HashMap<u64, Frame>,
    /// Slots of the core.
    core: Vec<u64>,
    written: HashMap<u64, u8>,
    queues: Vec<Queue>,
    rules: Rules<QUEUES, FILTERS>,
    /// When a rule was changed and a frame came, which does not happen at once.
    changed: [u64; 2],
    next_base: u64,
    next_va: u64,
    next_id: u64,
    fetches: Vec<Fetch>,
    loads: Vec<Move>,
    stores: VecDeque<Move>,
    /// Frames that have not left.
    leaving: u64,
    /// Frames that the MAC was given.
    given: VecDeque<Vec<u8>>,
    /// Events as the module counts them, and as they should be.
    counts: [u64; 7],
    expected: [u64; 7],
}

/// Payload bytes in memory.
fn payload(va: u64) -> u8 {
    (va ^ va >> 8 ^ va >> 17).wrapping_mul(0x9d) as u8
}

fn eight(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|c| c.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))).collect()
}

impl Bench {
    fn new(width: u32, seed: u64, mood: Mood) -> Self {
        let mut m = Named::new(NAME, width, seed);
        m.set("own_mac", OWN.0);
        m.set("own_ip", OWN.1);
        let rules = Rules { own: OWN, queues: [None; QUEUES], filters: [Filter::default(); FILTERS] };
        Self {
            m,
            rng: Rng(seed),
            mood,
            beat: u64::from(width) * 2 / 8,
            clock: 0,
            rings: HashMap::new(),
            transmit: vec![0xee; RAW_SEND_BYTES as usize],
            slots: HashMap::new(),
            core: Vec::new(),
            written: HashMap::new(),
            queues: (0..QUEUES).map(|_| Queue::default()).collect(),
            rules,
            changed: [0; 2],
            next_base: 0x1_0000_0000,
            next_va: 0x40_0000_0000,
            next_id: 1,
            fetches: Vec::new(),
            loads: Vec::new(),
            stores: VecDeque::new(),
            leaving: 0,
            given: VecDeque::new(),
            counts: [0; 7],
            expected: [0; 7],
        }
    }

    fn setup(&mut self, go: u32, words: [u32; 6]) {
        self.m.set("setup_valid", 1_u8);
        self.m.set("setup.go", go);
        let mut wide = Vec::new();
        for pair in words.as_chunks::<2>().0 {
            wide.push(u64::from(pair[0]) | u64::from(pair[1]) << 32);
        }
        self.m.set_wide("setup.words", &wide);
    }

    fn create(&mut self, q: usize) {
        let flags = self.rng.below(8) as u8;
        let rings: [Ring; 2] = std::array::from_fn(|_| {
            let log2 = self.rng.between(3, 6) as u8;
            self.next_base += 0x10_0000;
            Ring { base: self.next_base, log2, ..Ring::default() }
        });
        let attr = RawAttr {
            flags: flags.into(),
            log2_sq: rings[0].log2.into(),
            log2_rq: rings[1].log2.into(),
            number: q as u32,
        };
        let cqs = RawCqs { send: CQ_OF[0] as u32 + q as u32, recv: CQ_OF[1] as u32 + q as u32 };
        let [s, r] = [rings[0].base, rings[1].base].map(|b| [b as u32, (b >> 32) as u32]);
        self.setup(RAW_GO_CREATE, [attr.word(), cqs.word(), s[0], s[1], r[0], r[1]]);
        self.queues[q] = Queue { on: true, ends: false, rings, frames: VecDeque::new() };
        self.rules.queues[q] = Some(flags);
    }

    /// Something is done to a queue or a filter, now and then.
    fn change(&mut self) {
        if self.clock < self.changed[1] + 4 {
            return;
        }
        self.changed[0] = self.clock;
        let q = self.rng.below(QUEUES as u64) as usize;
        match self.rng.below(4) {
            0 if !self.queues[q].on => self.create(q),
            1 if self.queues[q].on && !self.queues[q].ends && self.rng.chance(0.2) => {
                self.setup(RAW_GO_END, [RawAttr { number: q as u32, ..RawAttr::default() }.word(), 0, 0, 0, 0, 0]);
                self.queues[q].ends = true;
                self.rules.queues[q] = None;
                self.rules.filters.iter_mut().filter(|f| f.queue == q).for_each(|f| f.fields = 0);
            }
            2 if self.queues[q].on && !self.queues[q].ends => {
                let flags = self.rng.below(8) as u8;
                let attr = RawAttr { flags: flags.into(), number: q as u32, ..RawAttr::default() };
                self.setup(RAW_GO_MODE, [attr.word(), 0, 0, 0, 0, 0]);
                self.rules.queues[q] = Some(flags);
            }
            3 if self.queues[q].on && !self.queues[q].ends => {
                let f = self.rng.below(FILTERS as u64) as usize;
                let mut fields = self.rng.below(16) as u8;
                fields &= if self.rng.chance(0.5) { self.rng.below(16) as u8 } else { 15 };
                let filter = Filter {
                    fields,
                    queue: q,
                    protocol: [6, 17, 1, 58][self.rng.below(4) as usize],
                    ethertype: [0x0800, 0x86dd, 0x0806, 0x88b5][self.rng.below(4) as usize],
                    port: [80, 4791, 53][self.rng.below(3) as usize],
                    mac: [OWN.0, FOREIGN, GROUP][self.rng.below(3) as usize],
                };
                let attr = RawFilterAttr {
                    protocol: filter.protocol.into(),
                    fields: fields.into(),
                    target: q as u32,
                    filter: f as u32,
                };
                let ports = RawFilterPorts { port: filter.port.into(), ethertype: filter.ethertype.into() };
                let mac = [(filter.mac >> 16) as u32, (filter.mac & 0xffff) as u32];
                self.setup(RAW_GO_FILTER, [attr.word(), ports.word(), mac[0], mac[1], 0, 0]);
                self.rules.filters[f] = filter;
            }
            _ => (),
        }
    }

    /// An element: mostly a good one, of ranges that lie anywhere.
    fn element(&mut self, send: bool) -> RawWqe {
        let n = self.rng.between(1, 3) as usize;
        let most = if send { RAW_FRAME_BYTES } else { 5000 };
        let least = if send { RAW_LEAST_BYTES } else { 1 };
        let mut length = self.rng.between(least.into(), most.into()) as u32;
        if self.rng.chance(if send { 0.6 } else { 0.2 }) {
            length = length.min(self.rng.between(14, 200) as u32).max(n as u32);
        }
        length = length.max(n as u32);
        let mut left = length;
        let mut wqe = RawWqe {
            opcode: if send { OP_SEND } else { OP_RECV },
            flags: if send && self.rng.chance(0.3) { SEND_UNSIGNALLED } else { 0 },
            num_sge: n as u16,
            length,
            wr_id: self.next_id << 32 | 0x55,
            ..RawWqe::default()
        };
        self.next_id += 1;
        for i in 0..n {
            let rest = (n - 1 - i) as u32;
            let len = if rest == 0 { left } else { self.rng.between(1, u64::from(left - rest)) as u32 };
            self.next_va += 0x2_0000;
            wqe.sge[i] = Sge { va: self.next_va + self.rng.below(0x1000), len, reserved: 0 };
            left -= len;
        }
        for sge in &mut wqe.sge[n..] {
            *sge = Sge { va: self.rng.draw(), len: self.rng.draw() as u32, reserved: self.rng.draw() as u32 };
        }
        if self.rng.chance(self.mood.bad) {
            let i = self.rng.below(n as u64) as usize;
            match self.rng.below(10) {
                0 => wqe.opcode ^= 3,
                1 => wqe.flags |= 1 << self.rng.below(8),
                2 => wqe.num_sge = 0,
                3 => wqe.num_sge = 4 + self.rng.below(3) as u16,
                4 => wqe.length ^= 1 << self.rng.below(32),
                5 => wqe.sge[i].len = 0,
                6 => wqe.sge[i].len ^= 1 << self.rng.below(32),
                7 => wqe.sge[i].reserved = 1 << self.rng.below(32),
                8 if send => wqe.length = [13, RAW_FRAME_BYTES + 1][self.rng.below(2) as usize],
                9 if !send => {
                    wqe.num_sge = 1;
                    wqe.length = RAW_RECEIVE_BYTES + self.rng.below(2) as u32;
                    wqe.sge[0].len = wqe.length;
                }
                _ => wqe.opcode = self.rng.draw() as u8,
            }
        }
        wqe
    }

    /// Posts elements, and rings.
    fn post(&mut self) {
        let q = self.rng.below(QUEUES as u64) as usize;
        if !self.queues[q].on || self.queues[q].ends || self.clock < self.changed[0] + 4 {
            return;
        }
        let side = self.rng.below(2) as usize;
        for _ in 0..self.rng.between(1, 12) {
            let ring = &self.queues[q].rings[side];
            if ring.pi.wrapping_sub(ring.done) >= 1 << ring.log2 {
                break;
            }
            let (base, at) = (ring.base, u64::from(ring.pi & ((1 << ring.log2) - 1)));
            let wqe = self.element(side == 0);
            self.rings.insert(base + at * u64::from(RAW_WQE_BYTES), wqe.words());
            let ring = &mut self.queues[q].rings[side];
            ring.pi = ring.pi.wrapping_add(1);
            ring.elements.push_back(Posted { wqe, lost: false, failed: false });
        }
        let ring = &self.queues[q].rings[side];
        let (mut pi, mut number) = (ring.pi, q as u64);
        if self.rng.chance(0.05) {
            // A wild doorbell is dropped, whatever it names.
            if self.rng.chance(0.3) {
                number = QUEUES as u64 + self.rng.below(1000);
            } else {
                pi = pi.wrapping_add((1 << ring.log2) + 1 + self.rng.below(30_000) as u16);
            }
            self.expected[2] += 1;
        }
        self.m.set("bell_valid", 1_u8);
        self.m.set("bell.rq", side as u64);
        self.m.set("bell.number", number);
        self.m.set("bell.pi", u64::from(pi));
    }

    /// A frame as the fast path passes it on.
    fn frame(&mut self) -> (Vec<u8>, bool) {
        let to = [OWN.0, BROADCAST, FOREIGN, GROUP][self.rng.below(4) as usize];
        let ethertype = [0x0800_u16, 0x86dd, 0x0806, 0x88b5][self.rng.below(4) as usize];
        let long = self.rng.between(14, SLOT_BYTES.into());
        let len = if self.rng.chance(0.7) { self.rng.between(14, 120).min(long) } else { long };
        let mut f = self.rng.bytes(len as usize);
        f[..6].copy_from_slice(&to.to_be_bytes()[2..]);
        f[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = f.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        let protocol = [6, 17, 1, 58][self.rng.below(4) as usize];
        let port = [80_u16, 4791, 53][self.rng.below(3) as usize].to_be_bytes();
        let mut roce = false;
        match ethertype {
            0x0800 => {
                let ihl = if self.rng.chance(0.6) { 5 } else { self.rng.between(3, 15) as u8 };
                put(14, &[if self.rng.chance(0.9) { 0x40 } else { 0x50 } | ihl]);
                put(20, if self.rng.chance(0.7) { &[0x40, 0] } else { &[0x20, 1] });
                put(23, &[protocol]);
                put(14 + 4 * usize::from(ihl) + 2, &port);
                roce = ihl == 5 && protocol == 17 && len > 60 && self.rng.chance(0.5);
                if roce && self.rng.chance(0.5) {
                    // Datagrams and others, to the control QPN, to its neighbours and to such as differ from it in one byte.
                    put(42, &[[0x64, 0x65, 0x04, 0x66][self.rng.below(4) as usize]]);
                    put(47, &[[0, 0, 2], [0, 0, 1], [0, 1, 2], [0x80, 0, 2]][self.rng.below(4) as usize]);
                }
            }
            0x86dd => {
                put(14, &[0x60]);
                put(20, &[protocol]);
                put(56, &port);
            }
            0x0806 if self.rng.chance(0.5) => put(38, &OWN.1.to_be_bytes()),
            _ => (),
        }
        (f, roce)
    }

    /// Shows a frame, if there is a slot.
    fn arrive(&mut self) {
        let all = (0..SLOTS).map(|s| FIRST_SLOT + s * u64::from(SLOT_BYTES));
        let is_free = |at: &u64| !self.slots.contains_key(at) && !self.core.contains(at);
        let Some(place) = all.into_iter().find(is_free) else { return };
        if self.clock < self.changed[0] + 4 {
            return;
        }
        let (bytes, roce) = self.frame();
        let mut header = bytes[..bytes.len().min(96)].to_vec();
        header.extend(self.rng.bytes(96 - header.len()));
        self.m.set("cf_valid", 1_u8);
        self.m.set("cf.place", place);
        self.m.set("cf.len", bytes.len() as u64);
        let loopback = if self.rng.chance(0.5) { RX_FLAG_LOOPBACK } else { 0 };
        let flags = u64::from(loopback | if roce { RX_FLAG_ROCE | RX_FLAG_ICRC_OK } else { 0 });
        self.m.set("cf.flags", flags);
        self.m.set_wide("cf_hdr", &eight(&header));
        let whose = self.rules.choose(&bytes, roce);
        if let Whose::Queue(q) | Whose::Both(q) = whose {
            self.queues[q].frames.push_back(Waiting { place: Some(place), bytes: bytes.clone() });
        }
        self.slots.insert(place, Frame { bytes, flags, whose });
        self.changed[1] = self.clock;
    }

    /// The clock's inputs, by the neighbours.
    fn neighbours(&mut self) {
        for ready in ["qr_ready", "done_ready", "load_ready", "store_ready", "ws_ready"] {
            let is = self.rng.chance(self.mood.ready);
            self.m.set(ready, is);
        }
        for valid in ["qc_valid", "loaded_valid", "stored_valid", "wl_valid"] {
            self.m.set(valid, 0_u8);
        }
        if !self.core.is_empty() && self.rng.chance(self.mood.ends / 20.0) {
            let i = self.rng.below(self.core.len() as u64) as usize;
            self.core.swap_remove(i);
        }
        self.m.set("core_n", self.core.len() as u64);
        // A beat of a ring's read: reads go side by side.
        if !self.fetches.is_empty() && self.rng.chance(self.mood.ends) {
            let i = self.rng.below(self.fetches.len() as u64) as usize;
            let (fetch, beat) = (self.fetches[i].clone(), self.beat);
            let last = fetch.off + beat >= fetch.len || (fetch.fails && self.rng.chance(0.5));
            let mut bytes = Vec::new();
            for at in (fetch.addr + fetch.off..).step_by(8).take(beat as usize / 8) {
                let words = self.rings.get(&(at / 64 * 64)).copied().unwrap_or([0xdead_beef_dead_beef; 8]);
                bytes.push(words[(at % 64 / 8) as usize]);
            }
            self.m.set("qc_valid", 1_u8);
            self.m.set_wide("qc_data", &bytes);
            self.m.set("qc.tag", fetch.tag);
            self.m.set("qc.off", fetch.off);
            self.m.set("qc.last", last);
            self.m.set("qc.err", last && fetch.fails);
            self.fetches[i].off += beat;
            if last {
                self.fetches.swap_remove(i);
            }
        }
        // Reads end in any order.
        if !self.loads.is_empty() && self.rng.chance(self.mood.ends) {
            let i = self.rng.below(self.loads.len() as u64) as usize;
            let load = self.loads.swap_remove(i);
            let fails = self.rng.chance(self.mood.fails);
            let most = if fails { self.rng.below(load.len) } else { load.len };
            for b in 0..most {
                let at = (load.place - TRANSMIT + b) % u64::from(RAW_SEND_BYTES);
                self.transmit[at as usize] = payload(load.va + b);
            }
            if fails {
                self.mark(load.va);
            }
            self.m.set("loaded_valid", 1_u8);
            self.m.set("loaded.tag", load.tag);
            self.m.set("loaded.status", if fails { 2_u8 } else { 0 });
        }
        // Writes end in their order.
        if !self.stores.is_empty() && self.rng.chance(self.mood.ends) {
            let store = self.stores.pop_front().expect("one");
            let fails = self.rng.chance(self.mood.fails);
            let slot = (store.place - FIRST_SLOT) / u64::from(SLOT_BYTES) * u64::from(SLOT_BYTES) + FIRST_SLOT;
            let frame = &self.slots[&slot].bytes;
            for b in 0..store.len {
                self.written.insert(store.va + b, frame[(store.place - slot + b) as usize]);
            }
            if fails {
                self.mark(store.va);
            }
            self.m.set("stored_valid", 1_u8);
            self.m.set("stored.tag", store.tag);
            self.m.set("stored.status", if fails { 2_u8 } else { 0 });
        }
        if self.leaving != 0 && self.rng.chance(self.mood.ends) {
            self.leaving -= 1;
            self.m.set("wl_valid", 1_u8);
        }
    }

    /// The element whose memory is there.
    fn mark(&mut self, va: u64) {
        let of = |p: &&mut Posted| p.wqe.sge.iter().any(|s| va.wrapping_sub(s.va) < u64::from(s.len));
        let elements = self.queues.iter_mut().flat_map(|q| q.rings.iter_mut()).flat_map(|r| r.elements.iter_mut());
        elements.into_iter().find(|p| p.wqe.is_sound(p.wqe.opcode == OP_SEND) && of(p)).expect("one").failed = true;
    }

    /// What the module does in this clock.
    fn look(&mut self) {
        let m = &mut self.m;
        if m.is("qr_valid") && m.is("qr_ready") {
            let (addr, len, tag) = (m.get("qr.addr"), m.get("qr.len"), m.get("qr.tag"));
            assert!(len.is_multiple_of(128) && addr.is_multiple_of(128) && len <= 512 && tag < 32);
            assert!(addr % 4096 + len <= 4096);
            let fails = self.rng.chance(self.mood.fails / 4.0);
            assert!(self.fetches.iter().all(|f| f.tag != tag), "two reads with tag {tag}");
            let (q, side) = ((tag >> 2 & 3) as usize, (tag >> 4) as usize);
            let ring = &mut self.queues[q].rings[side];
            assert!((ring.base..ring.base + (64 << ring.log2)).contains(&addr));
            self.fetches.push(Fetch { tag, addr, len, off: 0, fails });
            if fails {
                // Which of its elements had been asked for before is the module's business: see `complete`.
                let depth = 1 << ring.log2;
                let first = ((addr - ring.base) / 64) as u16;
                let n = ring.elements.len() as u16;
                for i in 0..(len / 64) as u16 {
                    let place = (first + i) % depth;
                    let back = ring.pi.wrapping_sub(1).wrapping_sub(place) % depth;
                    if back < n {
                        let at = usize::from(n - 1 - back);
                        ring.elements[at].lost = true;
                    }
                }
            }
        }
        let m = &mut self.m;
        if m.is("load_valid") && m.is("load_ready") {
            assert!(m.is("load.bus") && !m.is("load.reverse") && m.get("load.tag") >= 0xc0);
            let load = Move {
                place: m.get("load.place"),
                len: m.get("load.len"),
                va: m.get("load.va"),
                tag: m.get("load.tag"),
            };
            self.loads.push(load);
        }
        if m.is("store_valid") && m.is("store_ready") {
            assert!(m.is("store.bus") && !m.is("store.reverse") && m.get("store.tag") >= 0xc0);
            let store = Move {
                place: m.get("store.place"),
                len: m.get("store.len"),
                va: m.get("store.va"),
                tag: m.get("store.tag"),
            };
            self.stores.push_back(store);
        }
        if m.is("ws_valid") && m.is("ws_ready") {
            let (place, len) = (m.get("ws.place"), m.get("ws.len"));
            assert!(place.is_multiple_of(64) && place - TRANSMIT < u64::from(RAW_SEND_BYTES));
            let at = |b| self.transmit[((place - TRANSMIT + b) % u64::from(RAW_SEND_BYTES)) as usize];
            let bytes: Vec<u8> = (0..len).map(at).collect();
            self.leaving += 1;
            self.given.push_back(bytes);
        }
        for (count, name) in self.counts.iter_mut().zip(EVENTS) {
            *count += m.get(name);
        }
        if m.is("done_valid") && m.is("done_ready") {
            self.complete();
        }
        let m = &mut self.m;
        if m.is("core_valid") {
            let place = m.get("core_frame.place");
            let Frame { bytes, flags, whose } = self.slots.remove(&place).expect("a frame");
            assert!(matches!(whose, Whose::Core | Whose::Both(_)), "{whose:?}: {:x?}", &bytes[..14]);
            assert_eq!((m.get("core_frame.len"), m.get("core_frame.flags")), (bytes.len() as u64, flags));
            // It has so many at most.
            if self.core.len() < SLOTS as usize / 2 {
                self.core.push(place);
            }
            self.leaves(place, whose);
        }
        let m = &mut self.m;
        if m.is("xfree_valid") {
            assert!(!m.is("core_valid"), "one way at a time");
            let place = m.get("xfree_place");
            let frame = self.slots.remove(&place).expect("a frame");
            assert!(matches!(frame.whose, Whose::None | Whose::Queue(_)), "{:x?} is the core's", frame.bytes);
            self.leaves(place, frame.whose);
        }
    }

    /// A frame leaves its slot.
    fn leaves(&mut self, place: u64, whose: Whose) {
        let slot = place..place + u64::from(SLOT_BYTES);
        assert!(!self.stores.iter().any(|store| slot.contains(&store.place)), "it is written yet");
        match whose {
            Whose::Core => (),
            Whose::None => self.expected[5] += 1,
            Whose::Queue(q) | Whose::Both(q) => {
                let frames = &mut self.queues[q].frames;
                let at = frames.iter().position(|waiting| waiting.place == Some(place));
                if ["ev.no_receive", "ev.too_long", "ev.no_slot"].into_iter().any(|name| self.m.is(name)) {
                    self.expected[3] += 1;
                    at.map(|at| frames.remove(at));
                } else if let Some(at) = at {
                    frames[at].place = None;
                }
            }
        }
    }

    fn complete(&mut self) {
        let m = &mut self.m;
        let cqn = m.get("done.cqn");
        let words = m.wide("done.words");
        let side = usize::from(cqn >= CQ_OF[1]);
        let q = (cqn - CQ_OF[side]) as usize;
        let (id, len, qpn) = (words[0], words[1] as u32, (words[1] >> 32) as u32);
        let (codes, rest, credit) = (words[2] as u32, (words[2] >> 32) as u32, words[3] as u16);
        let (status, opcode) = (codes as u8, (codes >> 8) as u8);
        assert_eq!((qpn, codes >> 16, rest), (RAW_QPN + q as u32, 0, 0));
        assert_eq!(opcode, if side == 0 { OP_SEND } else { OP_RECV });
        loop {
            let queue = &mut self.queues[q];
            let ring = &mut queue.rings[side];
            let Posted { wqe, lost, failed } = ring.elements.pop_front().expect("an element");
            ring.done = ring.done.wrapping_add(1);
            let mine = ring.done == credit;
            let sound = wqe.is_sound(side == 0);
            // Of an element that was asked for twice the first read counts.
            let lost = lost && status == WC_LOCAL_PROTECTION && id == 0 && mine;
            if !mine {
                assert!(side == 0 && sound && !failed && wqe.flags & SEND_UNSIGNALLED != 0, "{wqe:x?} is told of");
                self.expected[0] += 1;
                self.sent(&wqe);
                continue;
            }
            if lost {
                assert_eq!(len, 0);
                self.expected[2] += 1;
                break;
            }
            assert_eq!(id, wqe.wr_id, "{side} {wqe:x?}");
            if !sound {
                assert_eq!((status, len), (WC_BAD_WQE, 0), "{wqe:x?}");
                self.expected[2] += 1;
                break;
            }
            assert_eq!(status, if failed { WC_LOCAL_PROTECTION } else { WC_OK }, "{wqe:x?}");
            self.expected[if failed { 2 } else { side }] += 1;
            if side == 0 {
                assert_eq!(len, wqe.length);
                if !failed {
                    assert_eq!(wqe.flags, 0, "none was asked for");
                    self.sent(&wqe);
                }
            } else {
                let frame = self.queues[q].frames.pop_front().expect("a frame for it");
                assert_eq!(frame.bytes.len() as u32, len);
                let mut at = 0;
                for (va, part) in cut(&wqe, len) {
                    for b in 0..u64::from(part) {
                        let there = self.written.remove(&(va + b));
                        assert_eq!(there, Some(frame.bytes[at]), "byte {at} of {len}, {wqe:x?}");
                        at += 1;
                    }
                }
                assert_eq!(at as u32, len);
            }
            break;
        }
    }

    /// A frame was sent: the MAC was given its bytes, frames in the order of their elements. Of several queues any may be next.
    fn sent(&mut self, wqe: &RawWqe) {
        let bytes: Vec<u8> =
            cut(wqe, wqe.length).flat_map(|(va, len)| (va..va + u64::from(len)).map(payload)).collect();
        let at = self.given.iter().position(|given| *given == bytes);
        let at = at.unwrap_or_else(|| panic!("the MAC was not given the frame of {wqe:x?}"));
        self.given.remove(at);
    }

    fn step(&mut self, load: bool) {
        for valid in ["setup_valid", "bell_valid", "cf_valid"] {
            self.m.set(valid, 0_u8);
        }
        if load {
            if self.rng.chance(0.01) {
                self.change();
            }
            if self.rng.chance(0.05) {
                self.post();
            }
            if self.rng.chance(0.06) {
                self.arrive();
            }
        }
        self.neighbours();
        self.m.settle();
        self.look();
        let busy = self.m.get("setup_busy");
        self.m.edge();
        self.clock += 1;
        for (q, queue) in self.queues.iter_mut().enumerate() {
            if queue.ends && busy >> q & 1 == 0 {
                assert!(self.fetches.iter().all(|f| (f.tag >> 2 & 3) as usize != q), "a read of ring {q} is under way");
                let of = |va: u64| {
                    let elements = queue.rings.iter().flat_map(|r| r.elements.iter());
                    elements
                        .into_iter()
                        .any(|p| p.wqe.sge.iter().any(|s| va.wrapping_sub(s.va) < u64::from(s.len.min(5000))))
                };
                assert!(!self.loads.iter().any(|l| of(l.va)) && !self.stores.iter().any(|s| of(s.va)), "DMA of {q}");
                *queue = Queue::default();
            }
        }
    }

    /// Lets everything end.
    fn drain(&mut self) {
        let end = self.clock + 20_000;
        while self.clock < end && (self.m.is("busy") || !self.slots.is_empty()) {
            self.step(false);
        }
        for _ in 0..20 {
            self.step(false);
        }
        assert!(self.slots.is_empty(), "frames stay: {:?}", self.slots.values().map(|f| f.whose).collect::<Vec<_>>());
    }
}

#[test]
fn qp_6_queues_frames_and_elements_of_all_kinds() {
    let seed = seed(17);
    println!("BERTH_SEED={seed}");
    for width in Module::widths(NAME) {
        for case in 0..cases(6) {
            let mut rng = Rng(seed ^ case << 20);
            let mood = Mood {
                ready: [1.0, 0.5, 0.2][rng.below(3) as usize],
                ends: [0.9, 0.3, 0.1][rng.below(3) as usize],
                fails: [0.0, 0.05][rng.below(2) as usize],
                bad: [0.0, 0.1, 0.3][rng.below(3) as usize],
            };
            println!("{width} bits, case {case}: {mood:?}");
            let mut bench = Bench::new(width, rng.draw(), mood);
            for _ in 0..20_000 {
                bench.step(true);
            }
            bench.drain();
            let [sent, received, bad, none, long, not_ours, no_slot] = bench.counts;
            let Bench { expected, .. } = &bench;
            assert_eq!(
                [bad, none + long + no_slot, not_ours],
                [expected[2], expected[3], expected[5]],
                "{:?}",
                bench.counts
            );
            println!(
                "{sent} sent, {received} received, {bad} bad, {none} without a receive, {long} too long, {no_slot} too many"
            );
            assert!(sent > 20 && received > 5);
        }
    }
}
