// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Software model of hosts, engines and wire, for tests and simulations (feature `model`).
//!
//! A [`World`] has cards with their hosts, joined by one wire with faults from a seed. It
//! is a discrete-event simulation in card cycles: the same seed gives the same run.

use crate::card::Card;
use crate::credit::CreditRow;
use crate::hw::{Hw, Log, TX_LOOPBACK, TX_NO_ICRC};
use berth_abi::card::{NUM_QP_ROWS, RX_SLOTS, SLOT_BYTES, TX_SLOTS};
use berth_abi::counters::NUM_FW_COUNTERS;
use berth_abi::cpu::{
    DMA_NO_TRANSLATION, DMA_OK, RX_FLAG_ICRC_OK, RX_FLAG_LOOPBACK, RX_FLAG_ROCE, XLT_HIT, XLT_MISS, XLT_READY,
};
use berth_abi::ring::{
    CMD_CM_ACCEPT, CMD_CM_CONNECT, CMD_CM_LISTEN, CMD_CQ_CREATE, CMD_NET_CONFIG, CMD_PRESSURE, CMD_QP_CREATE,
    CMD_QP_DESTROY, CMD_RANGE_REVOKED, EV_CMD_DONE,
};
use berth_abi::status::{CMD_OK, PAGE_FAULT, PAGE_OK, PAGE_OVER_BUDGET};
use berth_abi::wqe::{OP_RECV, OP_SEND, SEND_INLINE, WQE_BYTES};
pub use berth_random::Rng;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::vec;
use std::vec::Vec;

const PAGE: u64 = 4096;
/// Actions that a trace keeps.
const TRACE: usize = 1 << 16;
/// Frames that the wire's record keeps.
const RECORD: usize = 1 << 16;

/// What happens later at a node.
enum What {
    Cpu,
    Scratch { place: u32, len: u32, addr: u64, tag: u16 },
    Attach { slot: u32, byte: u32, len: u32, asid: u8, va: u64 },
    Write { slot: u32, byte: u32, len: u32, asid: u8, va: u64, tag: u16 },
    Acquire { asid: u8, va: u64, len: u32, write: bool, tag: u16 },
    Release { asid: u8, va: u64, len: u32 },
    Serve(Need),
    Press(u32),
    Frame(Vec<u8>, bool),
    Timer(u64),
}

/// A page request.
#[derive(Clone, Copy, Debug)]
struct Need {
    asid: u8,
    va: u64,
    len: u32,
    write: bool,
    tag: u16,
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

struct Entry {
    frame: u64,
    write: bool,
    /// Pinned for a receive.
    receive: bool,
    uses: u32,
}

/// Something that the engines did, in order (decision 32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A range was acquired or asked for.
    Acquire(u64, u32, bool),
    /// A range was released.
    Release(u64, u32),
    /// A frame was sent: the bytes without iCRC.
    Send(Vec<u8>),
    /// A completion was written: CQN, words.
    Cqe(u32, [u32; 8]),
}

/// Rows of the fast path, as firmware writes and reads them. What RTL does with them is not in this model: tests say
/// what it reports.
#[derive(Clone, Debug, Default)]
pub struct FastRows {
    /// Layout of the rows; 0: the card has no fast path.
    pub layout: u32,
    /// Words as last written: half, QPN, word.
    pub words: HashMap<(u32, u32, u32), u32>,
    /// All that was written, in order: half, QPN, word, value.
    pub written: Vec<(u32, u32, u32, u32)>,
    /// What words read as: half, QPN, word; else 0.
    pub reads: HashMap<(u32, u32, u32), u32>,
    /// QPs whose doorbells go there.
    pub bells: BTreeSet<u32>,
}

/// Engines and host of one card.
pub struct Engines {
    /// Memory, by physical page.
    frames: HashMap<u64, Box<[u8; PAGE as usize]>>,
    next_frame: u64,
    /// Page tables of the processes: (ASID, page) → (physical page, writable).
    maps: BTreeMap<(u8, u64), (u64, bool)>,
    xlt: BTreeMap<(u8, u64), Entry>,
    /// Pinned-memory budget in bytes.
    pub budget: u64,
    /// Most bytes pinned at any time.
    pub peak: u64,
    /// The driver tells firmware when requests wait for budget.
    pub pressure: bool,
    /// Bytes that receives leave to sends.
    pub reserve: u64,
    pressing: bool,
    waiting: VecDeque<Need>,
    revoking: Vec<(u32, u8, u64, u64)>,
    tx: Vec<Vec<u8>>,
    tx_wait: [u32; TX_SLOTS as usize],
    tx_error: [u32; TX_SLOTS as usize],
    tx_queue: VecDeque<(u32, u32, u32)>,
    rx: Vec<Option<(Vec<u8>, u32)>>,
    rx_backlog: VecDeque<(Vec<u8>, bool)>,
    scratch: Vec<[u8; 128]>,
    in_rx: VecDeque<(u32, u32, u32)>,
    in_dma: VecDeque<(u16, u32)>,
    in_xlt: VecDeque<(u32, u32, u16)>,
    in_tx: VecDeque<(u32, u32)>,
    in_db: VecDeque<u32>,
    in_cmd: VecDeque<[u32; 16]>,
    in_timer: bool,
    in_fast: VecDeque<(u32, u32, u32)>,
    /// The fast path.
    pub fast: FastRows,
    doorbells: HashMap<u32, (u16, u16, u32)>,
    rows: Vec<CreditRow>,
    rsp: [u32; 3],
    timer: Option<u64>,
    /// Events for the host.
    pub events: Vec<[u32; 16]>,
    /// Room in the event ring.
    pub event_room: u32,
    /// Completions by CQN.
    pub cqes: HashMap<u32, Vec<[u32; 8]>>,
    /// Firmware counters (`F_*`).
    pub counters: [u64; NUM_FW_COUNTERS],
    /// Actions in order.
    pub trace: Vec<Action>,
    /// Log lines.
    pub log: Vec<Log>,
    out: Vec<(Vec<u8>, u32)>,
    later: Vec<(u64, What)>,
    rng: Rng,
    /// Most cycles that the host takes for a page request.
    pub page_delay: u64,
    /// Most cycles that a DMA takes.
    pub dma_delay: u64,
    /// Requests for these pages are never answered.
    pub stuck: Vec<(u8, u64)>,
}

impl Engines {
    fn new(seed: u64) -> Self {
        Self {
            frames: HashMap::new(),
            next_frame: 0x100,
            maps: BTreeMap::new(),
            xlt: BTreeMap::new(),
            budget: 64 << 20,
            peak: 0,
            pressure: true,
            reserve: 16 * PAGE,
            pressing: false,
            waiting: VecDeque::new(),
            revoking: Vec::new(),
            tx: vec![vec![0; SLOT_BYTES as usize]; TX_SLOTS as usize],
            tx_wait: [0; TX_SLOTS as usize],
            tx_error: [0; TX_SLOTS as usize],
            tx_queue: VecDeque::new(),
            rx: vec![None; RX_SLOTS as usize],
            rx_backlog: VecDeque::new(),
            scratch: vec![[0; 128]; 64],
            in_rx: VecDeque::new(),
            in_dma: VecDeque::new(),
            in_xlt: VecDeque::new(),
            in_tx: VecDeque::new(),
            in_db: VecDeque::new(),
            in_cmd: VecDeque::new(),
            in_timer: false,
            in_fast: VecDeque::new(),
            fast: FastRows::default(),
            doorbells: HashMap::new(),
            rows: vec![CreditRow::new(); NUM_QP_ROWS as usize],
            rsp: [0; 3],
            timer: None,
            events: Vec::new(),
            event_room: u32::MAX,
            cqes: HashMap::new(),
            counters: [0; NUM_FW_COUNTERS],
            trace: Vec::new(),
            log: Vec::new(),
            out: Vec::new(),
            later: Vec::new(),
            rng: Rng(seed),
            page_delay: 20_000,
            dma_delay: 500,
            stuck: Vec::new(),
        }
    }

    /// Bytes pinned now.
    pub fn pinned(&self) -> u64 {
        self.xlt.len() as u64 * PAGE
    }

    /// Unpins what is not in use, as the driver does after the linger time.
    pub fn evict_idle(&mut self) {
        self.xlt.retain(|_, e| e.uses > 0);
    }

    /// Sum of the use counts of all pinned pages.
    pub fn uses(&self) -> u64 {
        self.xlt.values().map(|e| e.uses as u64).sum()
    }

    fn new_frame(&mut self) -> u64 {
        self.next_frame += 1;
        self.frames.insert(self.next_frame, Box::new([0; PAGE as usize]));
        self.next_frame
    }

    /// Maps `va .. va + len` (whole pages) in an address space.
    pub fn map(&mut self, asid: u8, va: u64, len: u64, write: bool) {
        for vpn in va / PAGE..(va + len).div_ceil(PAGE) {
            if !self.maps.contains_key(&(asid, vpn)) {
                let frame = self.new_frame();
                self.maps.insert((asid, vpn), (frame, write));
            }
        }
    }

    /// Unmaps pages as the kernel does: revokes translations, then tells firmware.
    pub fn unmap(&mut self, asid: u8, va: u64, len: u64) {
        for vpn in va / PAGE..(va + len).div_ceil(PAGE) {
            self.maps.remove(&(asid, vpn));
            self.xlt.remove(&(asid, vpn));
        }
        let cookie = 0x8000_0000 | self.rng.draw() as u32;
        self.revoking.push((cookie, asid, va, va + len));
        let mut w = [0; 16];
        w[0] = CMD_RANGE_REVOKED;
        w[1] = cookie;
        w[2] = asid as u32;
        (w[4], w[5]) = (va as u32, (va >> 32) as u32);
        (w[6], w[7]) = (len as u32, (len >> 32) as u32);
        self.in_cmd.push_back(w);
        self.later.push((1, What::Cpu));
    }

    /// The parts of `va .. va + len` page by page: page, offset in it, range of the buffer.
    fn pages(va: u64, len: usize) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
        let mut done = 0;
        core::iter::from_fn(move || {
            let at = va + done as u64;
            let offset = (at % PAGE) as usize;
            let part = (len - done).min(PAGE as usize - offset);
            let range = done..done + part;
            done += part;
            (part > 0).then_some((at / PAGE, offset, range))
        })
    }

    /// Reads or writes a process's memory.
    fn access(&mut self, asid: u8, va: u64, buf: &mut [u8], write: bool) {
        for (vpn, offset, range) in Self::pages(va, buf.len()) {
            let (frame, _) = self.maps[&(asid, vpn)];
            let page = self.frames.get_mut(&frame).unwrap();
            let page = &mut page[offset..offset + range.len()];
            if write {
                page.copy_from_slice(&buf[range]);
            } else {
                buf[range].copy_from_slice(page);
            }
        }
    }

    /// Writes a process's memory.
    pub fn poke(&mut self, asid: u8, va: u64, data: &[u8]) {
        self.access(asid, va, &mut data.to_vec(), true);
    }

    /// Reads a process's memory.
    pub fn peek(&mut self, asid: u8, va: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        self.access(asid, va, &mut buf, false);
        buf
    }

    /// A piece of bus memory for a queue.
    fn alloc_bus(&mut self, bytes: u64) -> u64 {
        let first = self.next_frame + 1;
        for _ in 0..bytes.div_ceil(PAGE) {
            self.new_frame();
        }
        first * PAGE
    }

    fn bus(&mut self, addr: u64, data: &[u8]) {
        for (frame, offset, range) in Self::pages(addr, data.len()) {
            let page = self.frames.get_mut(&frame).unwrap();
            page[offset..offset + range.len()].copy_from_slice(&data[range]);
        }
    }

    /// Copies between packet memory and a virtual range through the translation table.
    fn translated(&mut self, asid: u8, va: u64, buf: &mut [u8], write: bool) -> u32 {
        for (vpn, offset, range) in Self::pages(va, buf.len()) {
            let entry = self.xlt.get(&(asid, vpn)).filter(|e| !write || e.write);
            let Some(entry) = entry else {
                return DMA_NO_TRANSLATION;
            };
            assert!(entry.uses > 0, "DMA to a page that is not in use");
            let page = self.frames.get_mut(&entry.frame).unwrap();
            let page = &mut page[offset..offset + range.len()];
            if write {
                page.copy_from_slice(&buf[range]);
            } else {
                buf[range].copy_from_slice(page);
            }
        }
        DMA_OK
    }

    /// Adds to the trace, which keeps the first actions of a run.
    fn note(&mut self, action: Action) {
        if self.trace.len() < TRACE {
            self.trace.push(action);
        }
    }

    fn cpu_soon(&mut self) {
        let delay = 100 + self.rng.below(2000);
        self.later.push((delay, What::Cpu));
    }

    fn serve(&mut self, need: Need, again: bool) {
        let blocked = self
            .revoking
            .iter()
            .any(|&(_, asid, start, end)| asid == need.asid && need.va < end && start < need.va + need.len as u64);
        let pages = need.va / PAGE..(need.va + need.len as u64).div_ceil(PAGE);
        if pages.clone().any(|vpn| self.stuck.contains(&(need.asid, vpn))) {
            return;
        }
        if blocked {
            self.later.push((1000, What::Serve(need)));
            return;
        }
        let mut status = PAGE_OK;
        let count = (pages.end - pages.start) * PAGE;
        if count > self.budget {
            status = PAGE_OVER_BUDGET;
        }
        for vpn in pages.clone() {
            match self.maps.get(&(need.asid, vpn)) {
                Some((_, writable)) if *writable || !need.write => (),
                _ => status = PAGE_FAULT,
            }
        }
        if status == PAGE_OK {
            let fresh = pages.clone().filter(|vpn| !self.xlt.contains_key(&(need.asid, *vpn))).count() as u64 * PAGE;
            let xlt = &mut self.xlt;
            // Idle pages make room.
            if xlt.len() as u64 * PAGE + fresh + self.reserve > self.budget {
                xlt.retain(|key, e| e.uses > 0 || (key.0 == need.asid && pages.contains(&key.1)));
            }
            // First come, first served among those that wait for the same; receives leave room
            // for one block to send, but one that is alone may take all (decision 19).
            let turn = again || !self.waiting.iter().any(|n| n.write == need.write);
            let reserve = match need.write && self.xlt.values().any(|e| e.receive && e.uses > 0) {
                true => self.reserve.min(self.budget / 2),
                false => 0,
            };
            if self.pinned() + fresh + reserve > self.budget || !turn {
                match again {
                    true => self.waiting.push_front(need),
                    false => self.waiting.push_back(need),
                }
                if self.pressure && !again {
                    self.press(need.len);
                }
                return;
            }
            for vpn in pages {
                let (frame, write) = self.maps[&(need.asid, vpn)];
                self.xlt.entry((need.asid, vpn)).or_insert(Entry { frame, write, receive: need.write, uses: 0 });
            }
            self.peak = self.peak.max(self.pinned());
            assert!(self.pinned() <= self.budget, "invariant 3");
        }
        self.in_xlt.push_back((XLT_READY, status, need.tag));
        self.cpu_soon();
    }

    /// Tells firmware that the budget is short, and again while it is.
    fn press(&mut self, bytes: u32) {
        if self.waiting.is_empty() {
            return;
        }
        let mut w = [0; 16];
        (w[0], w[1], w[3]) = (CMD_PRESSURE, 0x4000_0000, bytes);
        self.in_cmd.push_back(w);
        self.cpu_soon();
        if !self.pressing {
            self.pressing = true;
            self.later.push((20_000_000, What::Press(bytes)));
        }
    }

    fn retry_waiting(&mut self) {
        for write in [false, true] {
            while let Some(i) = self.waiting.iter().position(|n| n.write == write) {
                let need = self.waiting.remove(i).unwrap();
                let left = self.waiting.len();
                self.serve(need, true);
                if self.waiting.len() > left {
                    break;
                }
            }
        }
    }

    fn pump_tx(&mut self) {
        while let Some(&(slot, len, flags)) = self.tx_queue.front() {
            let s = slot as usize;
            if self.tx_wait[s] > 0 {
                return;
            }
            self.tx_queue.pop_front();
            let status = core::mem::take(&mut self.tx_error[s]);
            if status == 0 {
                let frame = self.tx[s][..len as usize].to_vec();
                self.note(Action::Send(frame.clone()));
                self.out.push((frame, flags));
            }
            self.in_tx.push_back((slot, status));
            self.cpu_soon();
        }
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
            What::Scratch { place, len, addr, tag } => {
                let mut buf = [0; 128];
                for (i, byte) in buf[..len as usize].iter_mut().enumerate() {
                    let at = addr + i as u64;
                    *byte = self.frames[&(at / PAGE)][(at % PAGE) as usize];
                }
                self.scratch[place as usize] = buf;
                self.in_dma.push_back((tag, DMA_OK));
                self.cpu_soon();
            }
            What::Attach { slot, byte, len, asid, va } => {
                let mut buf = vec![0; len as usize];
                let status = self.translated(asid, va, &mut buf, false);
                let s = slot as usize;
                if status != 0 {
                    self.tx_error[s] = status;
                }
                self.tx[s][byte as usize..][..len as usize].copy_from_slice(&buf);
                self.tx_wait[s] -= 1;
                self.pump_tx();
            }
            What::Write { slot, byte, len, asid, va, tag } => {
                let (frame, _) = self.rx[slot as usize].as_ref().expect("placement from a free slot");
                let mut buf = frame[byte as usize..][..len as usize].to_vec();
                let status = self.translated(asid, va, &mut buf, true);
                self.in_dma.push_back((tag, status));
                self.cpu_soon();
            }
            What::Acquire { asid, va, len, write, tag } => {
                let pages = va / PAGE..(va + len as u64).div_ceil(PAGE);
                let hit = pages.clone().all(|vpn| self.xlt.get(&(asid, vpn)).is_some_and(|e| e.write || !write));
                if hit {
                    for vpn in pages {
                        self.xlt.get_mut(&(asid, vpn)).unwrap().uses += 1;
                    }
                    self.in_xlt.push_back((XLT_HIT, 0, tag));
                } else {
                    self.in_xlt.push_back((XLT_MISS, 0, tag));
                    let delay = 1 + self.rng.below(self.page_delay);
                    self.later.push((delay, What::Serve(Need { asid, va, len, write, tag })));
                }
                self.cpu_soon();
            }
            What::Release { asid, va, len } => {
                for vpn in va / PAGE..(va + len as u64).div_ceil(PAGE) {
                    if let Some(entry) = self.xlt.get_mut(&(asid, vpn)) {
                        entry.uses = entry.uses.saturating_sub(1);
                        if entry.uses == 0 {
                            self.xlt.remove(&(asid, vpn));
                        }
                    }
                }
                self.retry_waiting();
            }
            What::Press(bytes) => {
                self.pressing = false;
                self.press(bytes);
            }
            What::Serve(need) => self.serve(need, false),
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
    fn tx_write_byte(&mut self, slot: u32, byte: u32, value: u8) {
        self.tx[slot as usize][byte as usize] = value;
    }
    fn tx_send(&mut self, slot: u32, len: u32, flags: u32) {
        assert!(!self.tx_queue.iter().any(|q| q.0 == slot), "slot sent twice");
        self.tx_queue.push_back((slot, len, flags));
        self.pump_tx();
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
    fn scratch_read(&mut self, place: u32, word: u32, out: &mut [u32]) {
        for (i, value) in out.iter_mut().enumerate() {
            let at = (word as usize + i) * 4;
            let bytes = &self.scratch[place as usize][at..at + 4];
            *value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
    }
    fn dma_read_scratch(&mut self, place: u32, len: u32, addr: u64, tag: u16) {
        let delay = 1 + self.rng.below(self.dma_delay);
        self.later.push((delay, What::Scratch { place, len, addr, tag }));
    }
    fn dma_attach(&mut self, slot: u32, byte: u32, len: u32, asid: u8, va: u64) {
        assert!(len > 0 && byte + len <= SLOT_BYTES);
        self.tx_wait[slot as usize] += 1;
        let delay = 1 + self.rng.below(self.dma_delay);
        self.later.push((delay, What::Attach { slot, byte, len, asid, va }));
    }
    fn dma_write_rx(&mut self, slot: u32, byte: u32, len: u32, asid: u8, va: u64, tag: u16) {
        assert!(len > 0);
        let delay = 1 + self.rng.below(self.dma_delay);
        self.later.push((delay, What::Write { slot, byte, len, asid, va, tag }));
    }
    fn xlt_acquire(&mut self, asid: u8, va: u64, len: u32, write: bool, tag: u16) {
        assert!(len > 0 && len >> 31 == 0);
        self.note(Action::Acquire(va, len, write));
        self.later.push((5, What::Acquire { asid, va, len, write, tag }));
    }
    fn xlt_release(&mut self, asid: u8, va: u64, len: u32, _write: bool, _tag: u16) {
        self.note(Action::Release(va, len));
        self.later.push((5, What::Release { asid, va, len }));
    }
    fn event_space(&mut self) -> u32 {
        self.event_room.saturating_sub(self.events.len() as u32)
    }
    fn event(&mut self, words: &[u32; 16]) {
        assert!(self.event_space() > 0, "event without room");
        if words[0] == EV_CMD_DONE {
            self.revoking.retain(|r| r.0 != words[1]);
        }
        self.events.push(*words);
    }
    fn cqe(&mut self, cqn: u32, words: &[u32; 8]) {
        self.note(Action::Cqe(cqn, *words));
        self.cqes.entry(cqn).or_default().push(*words);
    }
    fn cq_config(&mut self, _cqn: u32, _base: u64, _attr: u32) {}
    fn doorbell_config(&mut self, qpn: u32, cfg: u32) {
        self.doorbells.remove(&qpn);
        self.fast.bells.remove(&qpn);
        if cfg >> 30 == 3 {
            self.fast.bells.insert(qpn);
        } else if cfg >> 31 != 0 {
            self.doorbells.insert(qpn, (0, 0, 0));
        }
    }
    fn credit(&mut self, op: u32, qpn: u32, arg0: u32, arg1: u32) -> u32 {
        self.rsp = self.rows[qpn as usize].execute(op, arg0, arg1);
        self.rsp[0]
    }
    fn credit_rsp1(&mut self) -> u32 {
        self.rsp[1]
    }
    fn credit_rsp2(&mut self) -> u32 {
        self.rsp[2]
    }
    fn fast_layout(&mut self) -> u32 {
        self.fast.layout
    }
    fn fast_write(&mut self, half: u32, qpn: u32, word: u32, value: u32) {
        assert!(self.fast.layout != 0, "a row of a card without them");
        self.fast.words.insert((half, qpn, word), value);
        self.fast.written.push((half, qpn, word, value));
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
    fn discount(&mut self, index: u32, n: u32) {
        let value = &mut self.counters[index as usize];
        *value = value.checked_sub(n as u64).expect("gauge below 0");
    }
    fn log(&mut self, line: Log) {
        if self.log.len() < TRACE {
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

/// What the wire does to one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Loss,
    /// It comes twice, the second time so many cycles later.
    Twice(u64),
    /// It comes so many cycles later than it should.
    Late(u64),
    /// This bit of it is wrong, counted from its first and modulo its length.
    Corrupt(usize),
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
    sq: u64,
    rq: u64,
    depth: u32,
    sq_pi: u16,
    rq_pi: u16,
    bytes: u32,
}

impl User {
    /// Takes over producer indices from another copy of the same queue pair.
    pub fn merge(&mut self, other: &Self) {
        (self.sq_pi, self.rq_pi, self.bytes) = (other.sq_pi, other.rq_pi, other.bytes);
    }
}

/// One card and its host.
pub struct Node {
    /// Engines and host.
    pub hw: Engines,
    /// Firmware.
    pub card: Box<Card<64, 8>>,
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
    /// Faults of single frames, by their number on the wire.
    pub planned: BTreeMap<u64, Fault>,
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

/// A card that offers selective repeat, as the model's do.
fn selective_card() -> Box<Card<64, 8>> {
    let mut card = Box::new(Card::new());
    card.offer_selective_repeat();
    card
}

impl World {
    /// `n` cards (1 or 2) with names, seed `seed`.
    pub fn new(n: usize, seed: u64) -> Self {
        Self::with_mtu(n, seed, MTU)
    }

    /// The same with another MTU.
    pub fn with_mtu(n: usize, seed: u64, mtu: u32) -> Self {
        let mut rng = Rng(seed);
        let nodes = (0..n)
            .map(|i| Node {
                hw: Engines::new(rng.draw()),
                card: selective_card(),
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
            planned: BTreeMap::new(),
            frames: 0,
            deaf: [false; 2],
            hold: [false; 2],
            edit: None,
            held: [VecDeque::new(), VecDeque::new()],
            wire: Vec::new(),
            cookie: 0,
        };
        for i in 0..n {
            world.name(i, mtu);
        }
        world
    }

    fn name(&mut self, i: usize, mtu: u32) {
        let ip = self.nodes[i].ip;
        let mut w = [0; 16];
        (w[0], w[2], w[3], w[4], w[5]) = (CMD_NET_CONFIG, ip, 0x0200_0000, i as u32 + 1, mtu);
        w[8..12].fill_with(|| self.rng.draw() as u32);
        assert_eq!(self.command(i, w)[2], CMD_OK);
        w[0] = CMD_CQ_CREATE;
        for cqn in 0..2 {
            (w[2], w[3], w[4], w[6], w[7]) = (cqn, 1, 12, 0, 0);
            assert_eq!(self.command(i, w)[2], CMD_OK);
        }
    }

    /// The card is reset and started anew; the host's memory stays.
    pub fn restart(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        node.card = selective_card();
        let mut hw = Engines::new(self.rng.draw());
        core::mem::swap(&mut hw.frames, &mut node.hw.frames);
        core::mem::swap(&mut hw.maps, &mut node.hw.maps);
        hw.next_frame = node.hw.next_frame;
        node.hw = hw;
        node.dead = false;
        let heap = core::mem::take(&mut self.heap);
        self.heap = heap.into_iter().filter(|l| l.node != i || matches!(l.what, What::Frame(..) | What::Cpu)).collect();
        self.name(i, MTU);
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
        let planned = self.planned.get(&self.frames).copied();
        self.frames += 1;
        let control = frame[12..14] == [8, 0] && frame[47..50] == [0, 0, 2];
        if planned == Some(Fault::Loss) || self.rng.chance(faults.loss) || (control && self.deaf[i]) {
            return;
        }
        let bits = frame.len() * 8;
        let wrong = match planned {
            Some(Fault::Corrupt(bit)) => Some(bit % bits),
            _ => self.rng.chance(faults.corrupt).then(|| self.rng.below(bits as u64) as usize),
        };
        if let Some(bit) = wrong {
            frame[bit / 8] ^= 1 << (bit % 8);
            // The Ethernet header is not covered by iCRC; of the rest the receiver drops the frame.
            if bit / 8 >= 14 {
                return;
            }
        }
        let late = match planned {
            Some(Fault::Late(cycles)) => Some(cycles),
            _ => self.rng.chance(faults.reorder).then(|| self.rng.below(5000)),
        };
        let delay = 500 + late.unwrap_or(0);
        let again = match planned {
            Some(Fault::Twice(cycles)) => Some(cycles),
            _ => self.rng.chance(faults.dup).then(|| self.rng.below(3000)),
        };
        if let Some(cycles) = again {
            self.push(to, delay + cycles, What::Frame(frame.clone(), false));
        }
        self.push(to, delay, What::Frame(frame, false));
    }

    /// Lets up to `n` frames that card `i` sent go on.
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

    /// Firmware's main loop, once round.
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
            if let Some(&(sq, rq, bytes)) = hw.doorbells.get(&qpn) {
                card.doorbell(now, qpn, sq, rq, bytes, hw);
            }
        }
        for _ in 0..4 {
            if let Some((slot, len, flags)) = hw.in_rx.pop_front() {
                card.rx(now, slot, len, flags, hw);
            }
        }
        while let Some((slot, status)) = hw.in_tx.pop_front() {
            card.tx_done(now, slot, status, hw);
        }
        while let Some((tag, status)) = hw.in_dma.pop_front() {
            card.dma_done(now, tag, status, hw);
        }
        while let Some((kind, status, tag)) = hw.in_xlt.pop_front() {
            card.xlt_rsp(now, kind, status, tag, hw);
        }
        while let Some((code, qpn, arg)) = hw.in_fast.pop_front() {
            card.fast_event(now, code, qpn, arg, hw);
        }
        if core::mem::take(&mut hw.in_timer) {
            card.timer(now, hw);
        }
        for qpn in 0..NUM_QP_ROWS {
            if hw.rows[qpn as usize].builder.report() {
                card.credit_list(now, qpn, hw);
            }
        }
        let mut rounds = 0;
        while card.poll(now, hw) {
            rounds += 1;
            assert!(rounds < 100_000, "poll never ends");
        }
        let ready = (0..NUM_QP_ROWS as usize).any(|q| {
            let row = &mut hw.rows[q].builder;
            row.clone().report()
        });
        if !hw.in_rx.is_empty() || ready {
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
    pub fn post_command(&mut self, i: usize, mut words: [u32; 16]) -> u32 {
        self.cookie += 1;
        words[1] = self.cookie;
        let hw = &mut self.nodes[i].hw;
        hw.in_cmd.push_back(words);
        hw.cpu_soon();
        self.collect(i);
        self.cookie
    }

    /// Gives card `i` a command and waits for its answer.
    pub fn command(&mut self, i: usize, words: [u32; 16]) -> [u32; 16] {
        let cookie = self.post_command(i, words);
        let mut answer = [0; 16];
        self.run_until(500_000_000, |w| {
            let events = &mut w.nodes[i].hw.events;
            let at = events.iter().position(|e| e[0] == EV_CMD_DONE && e[1] == cookie);
            if let Some(at) = at {
                answer = events.remove(at);
            }
            at.is_some()
        });
        answer
    }

    /// Waits for an event of `kind` on card `i` whose word 1 is `id` (`None`: any).
    pub fn event(&mut self, i: usize, kind: u32, id: Option<u32>) -> [u32; 16] {
        let mut found = [0; 16];
        self.run_until(4_000_000_000, |w| {
            let events = &mut w.nodes[i].hw.events;
            let at = events.iter().position(|e| e[0] == kind && id.is_none_or(|id| e[1] == id));
            if let Some(at) = at {
                found = events.remove(at);
            }
            at.is_some()
        });
        found
    }

    /// Creates a QP; `tune` may change the words of the command. CQ 0 takes sends, CQ 1 receives.
    pub fn create_qp(&mut self, node: usize, qpn: u32, asid: u8, tune: impl FnOnce(&mut [u32; 16])) -> User {
        let depth = 64;
        let hw = &mut self.nodes[node].hw;
        let sq = hw.alloc_bus((depth * WQE_BYTES) as u64);
        let rq = hw.alloc_bus((depth * WQE_BYTES) as u64);
        let mut w = [0; 16];
        w[0] = CMD_QP_CREATE;
        w[2] = qpn;
        w[3] = asid as u32 | 1 << 8 | 6 << 16 | 6 << 24;
        w[4] = 1 << 16;
        w[8] = sq as u32;
        w[9] = (sq >> 32) as u32;
        w[10] = rq as u32;
        w[11] = (rq >> 32) as u32;
        tune(&mut w);
        assert_eq!(self.command(node, w)[2], CMD_OK);
        User { node, qpn, asid, sq, rq, depth, sq_pi: 0, rq_pi: 0, bytes: 0 }
    }

    /// Connects `a` to `b` through service `service`.
    pub fn connect(&mut self, a: &User, b: &User, service: u32) {
        use berth_abi::ring::{EV_CM_ESTABLISHED, EV_CM_REQUEST};
        let mut w = [0; 16];
        (w[0], w[2]) = (CMD_CM_LISTEN, service);
        self.command(b.node, w);
        (w[0], w[2], w[3], w[4]) = (CMD_CM_CONNECT, a.qpn, self.nodes[b.node].ip, service);
        assert_eq!(self.command(a.node, w)[2], CMD_OK);
        let request = self.event(b.node, EV_CM_REQUEST, None);
        let mut w = [0; 16];
        (w[0], w[2], w[3]) = (CMD_CM_ACCEPT, request[1], b.qpn);
        assert_eq!(self.command(b.node, w)[2], CMD_OK);
        self.event(a.node, EV_CM_ESTABLISHED, Some(a.qpn));
        self.event(b.node, EV_CM_ESTABLISHED, Some(b.qpn));
    }

    /// Destroys a QP and waits until the card has let go of it.
    pub fn destroy(&mut self, user: &User) {
        let mut w = [0; 16];
        (w[0], w[2]) = (CMD_QP_DESTROY, user.qpn);
        assert_eq!(self.command(user.node, w)[2], CMD_OK);
    }

    fn element(opcode: u8, flags: u8, sges: &[(u64, u32)], wr_id: u64) -> Vec<u8> {
        let mut e = vec![opcode, flags];
        e.extend((sges.len() as u16).to_le_bytes());
        e.extend(sges.iter().map(|s| s.1).fold(0, u32::wrapping_add).to_le_bytes());
        e.extend(wr_id.to_le_bytes());
        for (va, len) in sges {
            e.extend(va.to_le_bytes());
            e.extend(len.to_le_bytes());
            e.extend([0; 4]);
        }
        e.resize(WQE_BYTES as usize, 0);
        e
    }

    /// Writes raw bytes as the next send element (without doorbell).
    pub fn post_raw_send(&mut self, user: &mut User, element: &[u8]) {
        let at = user.sq + ((user.sq_pi as u32 % user.depth) * WQE_BYTES) as u64;
        self.nodes[user.node].hw.bus(at, element);
        user.sq_pi = user.sq_pi.wrapping_add(1);
    }

    /// Writes raw bytes as the next receive element (without doorbell).
    pub fn post_raw_recv(&mut self, user: &mut User, element: &[u8]) {
        let at = user.rq + ((user.rq_pi as u32 % user.depth) * WQE_BYTES) as u64;
        self.nodes[user.node].hw.bus(at, element);
        user.rq_pi = user.rq_pi.wrapping_add(1);
    }

    /// Overwrites the send element with index `index`, posted earlier, in the queue's memory.
    pub fn overwrite_send(&mut self, user: &User, index: u16, element: &[u8]) {
        let at = user.sq + ((index as u32 % user.depth) * WQE_BYTES) as u64;
        self.nodes[user.node].hw.bus(at, element);
    }

    /// Posts a send of a gather list (without doorbell).
    pub fn post_send(&mut self, user: &mut User, sges: &[(u64, u32)], wr_id: u64) {
        let element = Self::element(OP_SEND, 0, sges, wr_id);
        self.post_raw_send(user, &element);
        user.bytes = sges.iter().fold(user.bytes, |sum, s| sum.wrapping_add(s.1));
    }

    /// Posts a send whose data, at most 40 bytes, are in its element (without doorbell).
    pub fn post_inline(&mut self, user: &mut User, data: &[u8], wr_id: u64) {
        let mut element = Self::element(OP_SEND, SEND_INLINE, &[], wr_id);
        element[4..8].copy_from_slice(&(data.len() as u32).to_le_bytes());
        element[16..16 + data.len()].copy_from_slice(data);
        self.post_raw_send(user, &element);
        user.bytes = user.bytes.wrapping_add(data.len() as u32);
    }

    /// Posts a receive of a scatter list (without doorbell).
    pub fn post_recv(&mut self, user: &mut User, sges: &[(u64, u32)], wr_id: u64) {
        let element = Self::element(OP_RECV, 0, sges, wr_id);
        self.post_raw_recv(user, &element);
    }

    /// Rings the QP's doorbells.
    pub fn ring(&mut self, user: &User) {
        self.ring_raw(user, user.sq_pi, user.rq_pi, user.bytes);
    }

    /// Rings with any values.
    pub fn ring_raw(&mut self, user: &User, sq_pi: u16, rq_pi: u16, bytes: u32) {
        let hw = &mut self.nodes[user.node].hw;
        if let Some(row) = hw.doorbells.get_mut(&user.qpn) {
            *row = (sq_pi, rq_pi, bytes);
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

    /// Unmaps memory under a card's feet (QP-10).
    pub fn unmap(&mut self, node: usize, asid: u8, va: u64, len: u64) {
        self.nodes[node].hw.unmap(asid, va, len);
        self.collect(node);
    }

    /// Prints what firmware and engines know of a QP, and all counters.
    pub fn dump(&mut self, i: usize, qpn: u32) {
        let Node { hw, card, .. } = &mut self.nodes[i];
        std::println!("card {i}: {}", card.describe(qpn, hw));
        let row = &hw.rows[qpn as usize];
        std::println!(
            "  builder {:?} ready {} reader {}",
            row.builder.numbers(),
            row.builder.ready(),
            row.reader.count()
        );
        std::println!(
            "  waiting {} pinned {} uses {} timer {:?} now {}",
            hw.waiting.len(),
            hw.pinned(),
            hw.uses(),
            hw.timer,
            self.now
        );
        for need in &hw.waiting {
            std::println!("    {:x} {} {} tag {} {:?}", need.va, need.len, need.write, need.tag, card.tag_of(need.tag));
        }
        for (name, index, _) in berth_abi::counters::FW_COUNTER_TABLE {
            let value = hw.counters[*index as usize];
            if value != 0 {
                std::print!("  {name}={value}");
            }
        }
        std::println!();
    }

    /// Counter `F_*` of card `i`.
    pub fn counter(&self, i: usize, index: u32) -> u64 {
        self.nodes[i].hw.counters[index as usize]
    }

    /// Completions of QP `user` so far, sends (`recv` false) or receives.
    pub fn completions(&self, user: &User, recv: bool) -> Vec<[u32; 8]> {
        self.nodes[user.node]
            .hw
            .cqes
            .get(&(recv as u32))
            .map(|v| v.iter().filter(|c| c[3] == user.qpn).copied().collect())
            .unwrap_or_default()
    }
}
