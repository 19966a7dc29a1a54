// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host side of the card without firmware: the bench plays the driver over the BARs
//! and rings, and the soft core over the debug port. Random tests take `BERTH_SEED`.

use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_abi::wqe::CQE_BYTES;
use berth_rtl::hostmodel::{Rng, seed};
use berth_rtl::{BAR_CONTROL, BAR_DOORBELL, Card, CardConfig, HostError, HostMemory, data_w};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

/// Bus address of the first byte of host memory.
const BASE: u64 = 0x1_2000_0000;
const PAGE: u64 = 4096;
/// Host memory: rings and small things, then data.
const HOST_BYTES: u64 = 8 << 20;
const CMD_RING: u64 = BASE + 0x1000;
const EVT_RING: u64 = BASE + 0x8000;
const FENCE: u64 = BASE + 0x100;
const DATA: u64 = BASE + 0x10_0000;
const RING_LOG2: u32 = 5;
const RING: u16 = 1 << RING_LOG2;
/// No wait of these benches takes longer.
const PATIENCE: u64 = 200_000;

/// Host memory as one array, with pages that the host refuses.
struct Memory {
    bytes: Vec<u8>,
    refused: HashSet<u64>,
    reads: Vec<u64>,
    vectors: u32,
}

struct Port(Arc<Mutex<Memory>>);

impl HostMemory for Port {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), HostError> {
        let mut m = self.0.lock().unwrap();
        m.reads.push(addr);
        if m.refused.contains(&(addr / PAGE)) {
            return Err(HostError);
        }
        let at = addr.checked_sub(BASE).ok_or(HostError)? as usize;
        buf.copy_from_slice(m.bytes.get(at..at + buf.len()).ok_or(HostError)?);
        Ok(())
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), HostError> {
        let mut m = self.0.lock().unwrap();
        let at = addr.checked_sub(BASE).expect("the card writes to host memory") as usize;
        m.bytes[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn msix(&mut self, vector: u32) {
        assert_eq!(vector, 0, "one vector");
        self.0.lock().unwrap().vectors += 1;
    }
}

/// An entry of the translation table as the bench's driver keeps it.
#[derive(Clone, Copy)]
struct Entry {
    asid: u32,
    vpn: u64,
    write: bool,
    uses: u32,
}

struct Bench {
    card: Card,
    memory: Arc<Mutex<Memory>>,
    rng: Rng,
    pi: u16,
    ci: u16,
    token: u64,
    events: VecDeque<[u32; 16]>,
    table: HashMap<u32, Entry>,
}

impl Bench {
    fn new(config: CardConfig) -> Bench {
        let mut rng = Rng(config.seed ^ 0x1234);
        let bytes = rng.bytes(HOST_BYTES as usize);
        let memory = Arc::new(Mutex::new(Memory { bytes, refused: HashSet::new(), reads: Vec::new(), vectors: 0 }));
        let card = Card::new(config, Box::new(Port(memory.clone())));
        let (events, table) = (VecDeque::new(), HashMap::new());
        Bench { card, memory, rng, pi: 0, ci: 0, token: 0, events, table }
    }

    /// A card whose slot does everything that is legal and unpleasant.
    fn random(seed: u64) -> Bench {
        let mut bench = Bench::new(CardConfig {
            seed,
            read_latency: 20 + seed % 200,
            out_of_order: true,
            split: true,
            stall_percent: (seed % 4 * 15) as u8,
            ..CardConfig::default()
        });
        let (payload, read) = (bench.rng.between(7, 9) as u32, bench.rng.between(7, 12) as u32);
        bench.start(payload, read);
        bench
    }

    /// A quiet slot with the usual limits.
    fn plain() -> Bench {
        let mut bench = Bench::new(CardConfig { read_latency: 50, ..CardConfig::default() });
        bench.start(8, 9);
        bench
    }

    fn reg(&mut self, offset: u32) -> u32 {
        self.card.mmio_read(BAR_CONTROL, u64::from(offset), 4) as u32
    }

    fn set(&mut self, offset: u32, value: u32) {
        self.card.mmio_write(BAR_CONTROL, u64::from(offset), u64::from(value), 4);
    }

    fn counter(&mut self, index: u32) -> u64 {
        self.card.mmio_read(BAR_CONTROL, u64::from(HOST_COUNTERS + 8 * index), 8)
    }

    fn cpu(&mut self, offset: u32) -> u32 {
        self.card.debug_read(CPU_REGS + offset).expect("the register answers")
    }

    fn set_cpu(&mut self, offset: u32, value: u32) {
        assert!(self.card.debug_write(CPU_REGS + offset, value), "register {offset:#x} is taken");
    }

    fn packet_ram(&mut self, at: u32, len: u32) -> Vec<u8> {
        let first = at & !3;
        let words = (first..at + len).step_by(4).map(|a| self.card.debug_read(CPU_PKT + a).unwrap());
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes[(at - first) as usize..][..len as usize].to_vec()
    }

    fn fill_packet_ram(&mut self, at: u32, data: &[u8]) {
        assert!(at.is_multiple_of(4) && data.len().is_multiple_of(4));
        for (i, word) in data.chunks_exact(4).enumerate() {
            self.card.debug_write(CPU_PKT + at + 4 * i as u32, u32::from_le_bytes(word.try_into().unwrap()));
        }
    }

    fn peek(&self, addr: u64, len: usize) -> Vec<u8> {
        self.memory.lock().unwrap().bytes[(addr - BASE) as usize..][..len].to_vec()
    }

    fn poke(&self, addr: u64, data: &[u8]) {
        self.memory.lock().unwrap().bytes[(addr - BASE) as usize..][..data.len()].copy_from_slice(data);
    }

    fn vectors(&self) -> u32 {
        self.memory.lock().unwrap().vectors
    }

    /// Clocks until `done` gives something.
    fn wait<T>(&mut self, what: &str, mut done: impl FnMut(&mut Bench) -> Option<T>) -> T {
        let end = self.card.cycles() + PATIENCE;
        while self.card.cycles() < end {
            if let Some(t) = done(self) {
                return t;
            }
            self.card.run(3);
        }
        panic!("waited in vain for {what}");
    }

    fn settle(&mut self) {
        self.wait("the card to have nothing to do", |b| {
            (!b.card.dma_in_flight() && b.reg(HOST_DMA_BUSY) == 0).then_some(())
        });
        self.card.run(300);
    }

    // ---- driver ----------------------------------------------------------------------

    fn start(&mut self, log2_payload: u32, log2_read: u32) {
        self.poke(CMD_RING, &vec![0; 64 * usize::from(RING)]);
        self.poke(EVT_RING, &vec![0; 64 * usize::from(RING)]);
        self.poke(FENCE, &[0; 8]);
        (self.pi, self.ci) = (0, 0);
        for (lo, addr) in [(HOST_CMD_BASE_LO, CMD_RING), (HOST_EVT_BASE_LO, EVT_RING), (HOST_FENCE_LO, FENCE)] {
            self.card.mmio_write(BAR_CONTROL, u64::from(lo), addr, 8);
        }
        self.set(HOST_CMD_LOG2, RING_LOG2);
        self.set(HOST_EVT_LOG2, RING_LOG2);
        self.set(HOST_PCIE_LIMITS, log2_payload | log2_read << 4);
        self.set(HOST_DMA_ENABLE, 1);
    }

    fn command(&mut self, words: &[u32]) {
        self.wait("room in the command ring", |b| (b.pi.wrapping_sub(b.reg(HOST_CMD_CI) as u16) < RING).then_some(()));
        let mut entry = [0; 64];
        for (place, word) in entry.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.poke(CMD_RING + 64 * u64::from(self.pi % RING), &entry);
        self.pi = self.pi.wrapping_add(1);
        self.set(HOST_CMD_PI, u32::from(self.pi));
    }

    fn fence(&mut self) {
        self.token += 0x1_0000_0001;
        let token = self.token;
        self.command(&[CMD_FENCE, 0, token as u32, (token >> 32) as u32]);
        self.wait("the fence", |b| (b.peek(FENCE, 8) == token.to_le_bytes()).then_some(()));
    }

    fn take_events(&mut self) {
        loop {
            let raw = self.peek(EVT_RING + 64 * u64::from(self.ci % RING), 64);
            let mut w = [0; 16];
            for (word, bytes) in w.iter_mut().zip(raw.chunks_exact(4)) {
                *word = u32::from_le_bytes(bytes.try_into().unwrap());
            }
            let phase = u32::from((self.ci / RING).is_multiple_of(2));
            if w[0] >> 31 != phase {
                break;
            }
            w[0] &= 0x7fff_ffff;
            self.events.push_back(w);
            self.ci = self.ci.wrapping_add(1);
            self.set(HOST_EVT_CI, u32::from(self.ci));
        }
    }

    fn event(&mut self) -> [u32; 16] {
        self.wait("an event", |b| {
            b.take_events();
            b.events.pop_front()
        })
    }

    fn no_event(&mut self) {
        self.settle();
        self.take_events();
        assert_eq!(self.events.pop_front(), None);
    }

    fn install(&mut self, asid: u32, vpn: u64, bus: u64, write: bool) -> u32 {
        let free: Vec<u32> =
            (0..XLT_WAYS).map(|n| xlt_place(asid, vpn, n)).filter(|i| !self.table.contains_key(i)).collect();
        let index = free[self.rng.below(free.len() as u64) as usize];
        self.table.insert(index, Entry { asid, vpn, write, uses: 0 });
        let (name, page) = (u64::from(index) << 48 | vpn, bus | u64::from(write));
        let words = [CMD_PAGE_INSTALL, 1, asid, 0, name as u32, (name >> 32) as u32, page as u32, (page >> 32) as u32];
        self.command(&words);
        index
    }

    fn find(&self, asid: u32, vpn: u64, write: bool) -> Option<u32> {
        (0..XLT_WAYS)
            .map(|n| xlt_place(asid, vpn, n))
            .find(|i| self.table.get(i).is_some_and(|e| e.asid == asid && e.vpn == vpn && (e.write || !write)))
    }

    // ---- soft core -------------------------------------------------------------------

    fn dma(&mut self, d: Dma) {
        self.set_cpu(CPU_DMA_LOCAL, d.local);
        self.set_cpu(CPU_DMA_LEN_TAG, d.len | d.tag << 16);
        self.set_cpu(CPU_DMA_ADDR_LO, d.addr as u32);
        self.set_cpu(CPU_DMA_ADDR_HI, (d.addr >> 32) as u32);
        let asid = d.asid.unwrap_or(0);
        let flags = u32::from(d.write) | u32::from(d.asid.is_some()) << 1 | u32::from(d.slot.is_some()) << 2;
        self.set_cpu(CPU_DMA_GO, flags | d.slot.unwrap_or(0) << 8 | asid << 16);
    }

    /// Status and tag of the next DMA command that has ended.
    fn dma_done(&mut self) -> (u32, u32) {
        let v = self.wait("a DMA command to end", |b| {
            let v = b.cpu(CPU_DMA_DONE);
            (v >> 31 != 0).then_some(v)
        });
        (v >> 16 & 0xff, v & 0xffff)
    }

    fn range(&mut self, op: u32, r: Range) {
        self.set_cpu(CPU_XLT_VA_LO, r.va as u32);
        self.set_cpu(CPU_XLT_VA_HI, (r.va >> 32) as u32);
        self.set_cpu(CPU_XLT_LEN, r.len);
        self.set_cpu(CPU_XLT_TAG, r.tag);
        self.set_cpu(CPU_XLT_GO, op | u32::from(r.write) << 8 | r.asid << 16);
    }

    /// Kind, status and tag of the next answer of the translation unit.
    fn answer(&mut self) -> (u32, u32, u32) {
        let v = self.wait("an answer of the translation unit", |b| {
            let v = b.cpu(CPU_XLT_RSP);
            (v >> 31 != 0).then_some(v)
        });
        (v >> 24 & 0xf, v >> 16 & 0xff, v & 0xffff)
    }

    fn firmware_event(&mut self, words: &[u32; 16]) {
        for (i, w) in words.iter().enumerate() {
            self.set_cpu(CPU_EV_W0 + 4 * i as u32, *w);
        }
        self.set_cpu(CPU_EV_GO, 1);
    }

    fn completion(&mut self, cqn: u32, words: &[u32; 8]) {
        for (i, w) in words.iter().enumerate() {
            self.set_cpu(CPU_CQE_W0 + 4 * i as u32, *w);
        }
        self.set_cpu(CPU_CQE_GO, cqn);
    }

    fn ring(&mut self, page: u64, offset: u32, data: u64) {
        self.card.mmio_write(BAR_DOORBELL, page * PAGE + u64::from(offset), data, 8);
    }

    fn ring_cq(&mut self, page: u64, cqn: u64, ci: u16, arm: bool) {
        self.ring(page, DB_CQ, cqn | u64::from(ci) << 16 | u64::from(arm) << 63);
    }
}

const ACQUIRE: u32 = 1;
const RELEASE: u32 = 2;

/// A DMA command; `asid` makes the address virtual, `slot` attaches it.
#[derive(Clone, Copy, Default, Debug)]
struct Dma {
    write: bool,
    local: u32,
    len: u32,
    tag: u32,
    addr: u64,
    asid: Option<u32>,
    slot: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    asid: u32,
    va: u64,
    len: u32,
    write: bool,
    tag: u32,
}

impl Range {
    fn pages(&self) -> std::ops::RangeInclusive<u64> {
        self.va / PAGE..=(self.va + u64::from(self.len) - 1) / PAGE
    }
}

#[test]
fn bar0_answers_a_bad_offset_with_all_ones_and_counts_it() {
    let mut b = Bench::plain();
    assert_eq!(b.reg(HOST_ID), CARD_ID);
    assert_eq!(b.card.mmio_read(BAR_CONTROL, 0, 8), u64::from(ABI_VERSION) << 32 | u64::from(CARD_ID));
    assert_eq!(b.reg(HOST_CAPS0), NUM_CQS << 16 | NUM_QP_ROWS);
    assert_eq!(b.reg(HOST_CAPS1), XLT_ENTRIES << 16 | NUM_UARS);
    let before = b.counter(C_BAR_BAD_ACCESS);
    for (offset, len) in [(0x30, 4), (0x200, 8), (2, 2), (0xfff8, 8), (0x1_0000, 4)] {
        let ones = if len == 8 { u64::MAX } else { (1 << (8 * len)) - 1 };
        assert_eq!(b.card.mmio_read(BAR_CONTROL, offset, len), ones, "offset {offset:#x}");
    }
    b.set(0x30, 0);
    b.card.mmio_write(BAR_CONTROL, u64::from(HOST_CMD_LOG2), 7, 1);
    assert_eq!(b.counter(C_BAR_BAD_ACCESS), before + 7);
    assert_eq!(b.reg(HOST_CMD_LOG2), RING_LOG2, "a short write changes nothing");
    // Limits that PCI Express does not know are brought to the nearest one.
    b.set(HOST_PCIE_LIMITS, 0xf0);
    assert_eq!(b.reg(HOST_PCIE_LIMITS), 0xc7);
}

#[test]
fn commands_reach_rtl_and_firmware_in_their_order() {
    let mut b = Bench::random(seed(11));
    let (mut firmware, mut ready) = (VecDeque::new(), VecDeque::new());
    let (bad_before, mut bad) = (b.counter(C_CMD_BAD), 0);
    for round in 0..300 {
        match b.rng.below(6) {
            0 | 1 => {
                let mut words = [0; 16];
                words.iter_mut().for_each(|w| *w = b.rng.below(1 << 32) as u32);
                words[0] = words[0] & !0xff | (CMD_FIRST_FW + b.rng.below(100) as u32);
                b.command(&words);
                firmware.push_back(words);
            }
            2 => {
                let (tag, status) = (b.rng.below(1 << 16) as u32, b.rng.below(4) as u32);
                b.command(&[CMD_PAGE_READY, tag, status]);
                ready.push_back((XLT_READY, status, tag));
            }
            3 => {
                let wrong: [&[u32]; 8] = [
                    &[0],
                    &[9],
                    &[CMD_PAGE_INSTALL, 4, 1],
                    &[CMD_PAGE_INSTALL, 1, NUM_ASIDS],
                    &[CMD_PAGE_EVICT, XLT_ENTRIES],
                    &[CMD_PAGE_EVICT | 2 << 8, 0, XLT_ENTRIES],
                    &[CMD_PAGE_EVICT | 12 << 8],
                    &[CMD_PAGE_INSTALL, 1, 1, 0, 0, XLT_ENTRIES << 16],
                ];
                let which = b.rng.below(8) as usize;
                b.command(wrong[which]);
                bad += 1;
            }
            _ => b.fence(),
        }
        while firmware.len() > 10 || (round == 299 && !firmware.is_empty()) {
            b.wait("a command", |b| (b.cpu(CPU_PENDING) >> PEND_CMD & 1 != 0).then_some(()));
            let words: [u32; 16] = std::array::from_fn(|i| b.cpu(CPU_CMD_W0 + 4 * i as u32));
            assert_eq!(Some(words), firmware.pop_front());
            b.set_cpu(CPU_CMD_POP, 0);
        }
        while ready.len() > 10 || (round == 299 && !ready.is_empty()) {
            assert_eq!(Some(b.answer()), ready.pop_front());
        }
    }
    b.fence();
    assert_eq!(b.counter(C_CMD_BAD), bad_before + bad);
    // A producer index further ahead than the ring is long is refused.
    b.set(HOST_CMD_PI, u32::from(b.pi.wrapping_add(RING + 1)));
    b.card.run(1000);
    assert_eq!((b.reg(HOST_CMD_CI) as u16, b.counter(C_CMD_BAD)), (b.pi, bad_before + bad + 1));
}

#[test]
fn dma_places_every_byte_at_any_alignment() {
    let mut b = Bench::random(seed(21));
    const ASID: u32 = 9;
    const VPN: u64 = 0x7_f123_4567;
    let mut pages: Vec<u64> = (0..256).map(|i| DATA + i * PAGE).collect();
    for i in (1..pages.len()).rev() {
        let j = b.rng.below(i as u64 + 1) as usize;
        pages.swap(i, j);
    }
    for (i, &bus) in pages.iter().take(128).enumerate() {
        b.install(ASID, VPN + i as u64, bus, true);
    }
    b.fence();
    let mut ram = b.rng.bytes(PKT_BYTES as usize);
    b.fill_packet_ram(0, &ram);
    for _ in 0..12 {
        let mut commands = Vec::new();
        for tag in 0..16 {
            let len = match b.rng.below(3) {
                0 => b.rng.between(1, 64),
                1 => b.rng.between(1, 600),
                _ => b.rng.between(1, u64::from(SLOT_BYTES)),
            } as u32;
            // Commands in flight never share bytes: each has its part of packet RAM and of the host.
            let local = tag * 9000 + b.rng.below(u64::from(9000 - len)) as u32;
            let within = b.rng.below(8 * PAGE - u64::from(len));
            let virt = b.rng.chance(0.7);
            let (asid, addr) = if virt {
                (Some(ASID), (VPN + 8 * u64::from(tag)) * PAGE + within)
            } else {
                (None, DATA + 300 * PAGE + u64::from(tag) * 8 * PAGE + within)
            };
            commands.push(Dma { write: b.rng.chance(0.5), local, len, tag, addr, asid, slot: None });
        }
        let bus = |d: &Dma, i: u32| {
            let at = d.addr + u64::from(i);
            if d.asid.is_some() { pages[(at / PAGE - VPN) as usize] + at % PAGE } else { at }
        };
        let mut host = b.memory.lock().unwrap().bytes.clone();
        for d in &commands {
            for i in 0..d.len {
                let (h, l) = ((bus(d, i) - BASE) as usize, (d.local + i) as usize);
                if d.write { host[h] = ram[l] } else { ram[l] = host[h] }
            }
        }
        commands.iter().for_each(|&d| b.dma(d));
        let mut left: HashSet<u32> = (0..16).collect();
        while !left.is_empty() {
            let (status, tag) = b.dma_done();
            assert!(status == DMA_OK && left.remove(&tag), "tag {tag} status {status}");
            // The data is there when the command has ended.
            let d = commands[tag as usize];
            if d.write {
                let end = b.peek(bus(&d, d.len - 1), 1)[0];
                assert_eq!(end, ram[(d.local + d.len - 1) as usize], "{d:?}");
            } else {
                assert_eq!(b.packet_ram(d.local, d.len), ram[d.local as usize..][..d.len as usize], "{d:?}");
            }
        }
        assert!(b.memory.lock().unwrap().bytes[(DATA - BASE) as usize..] == host[(DATA - BASE) as usize..]);
    }
    assert!(b.packet_ram(0, PKT_BYTES) == ram);
}

#[test]
fn dma_ends_with_the_status_of_its_failure() {
    let mut b = Bench::plain();
    const VPN: u64 = 0x1000;
    b.install(1, VPN, DATA, true);
    b.install(1, VPN + 1, DATA + PAGE, false);
    b.fence();
    let read = Dma { len: 4096, addr: VPN * PAGE + 100, asid: Some(1), ..Dma::default() };
    let write = Dma { write: true, ..read };
    let cases = [
        (read, DMA_OK),
        (Dma { addr: read.addr + PAGE, ..read }, DMA_NO_TRANSLATION),
        (Dma { asid: Some(2), ..read }, DMA_NO_TRANSLATION),
        (write, DMA_NO_TRANSLATION), // its second page is read-only
        (Dma { len: 0, ..read }, DMA_REFUSED),
        (Dma { len: SLOT_BYTES + 1, ..read }, DMA_REFUSED),
        (Dma { local: PKT_BYTES - 100, ..read }, DMA_REFUSED),
        (Dma { asid: None, addr: BASE + HOST_BYTES, ..read }, DMA_HOST_ERROR),
    ];
    for (tag, (d, status)) in cases.into_iter().enumerate() {
        b.dma(Dma { tag: tag as u32, ..d });
        assert_eq!(b.dma_done(), (status, tag as u32), "{d:?}");
    }
    // Of an attached read only the transmit slot hears: nothing is sent.
    b.dma(Dma { asid: Some(2), slot: Some(5), ..read });
    b.set_cpu(CPU_TX_SEND, 100 << 16 | 5);
    let v = b.wait("the slot to be given up", |b| Some(b.cpu(CPU_TX_DONE)).filter(|v| v >> 31 != 0));
    assert_eq!((v >> 16 & 0xff, v & 0xff), (DMA_NO_TRANSLATION, 5));
    assert_eq!(b.cpu(CPU_DMA_DONE), 0);
    assert_eq!((b.counter(C_DMA_NO_TRANSLATION), b.counter(C_DMA_HOST_ERROR)), (4, 1));
    // Disabled, the card starts nothing.
    b.set(HOST_DMA_ENABLE, 0);
    let reads = b.counter(C_DMA_READS);
    b.dma(read);
    b.dma(write);
    assert_eq!((b.dma_done().0, b.dma_done().0), (DMA_REFUSED, DMA_REFUSED));
    assert_eq!(b.counter(C_DMA_READS), reads);
}

#[test]
fn page_uses_are_counted_as_the_model_counts_them() {
    let mut b = Bench::random(seed(31));
    const FIRST: u64 = 0x5_5555_0000;
    const PAGES: u64 = 60;
    let mut held: Vec<Range> = Vec::new();
    let (mut hits, mut misses) = (0, 0);
    for asid in 1..=3 {
        for i in 0..PAGES {
            if b.rng.chance(0.95) {
                let write = b.rng.chance(0.8);
                b.install(asid, FIRST + i, DATA + (u64::from(asid) * PAGES + i) * PAGE, write);
            }
        }
    }
    b.fence();
    for tag in 0..400 {
        match b.rng.below(10) {
            0..4 => {
                let r = Range {
                    asid: 1 + b.rng.below(3) as u32,
                    va: FIRST * PAGE + b.rng.below((PAGES - 6) * PAGE),
                    len: b.rng.between(1, 6 * PAGE - 1) as u32,
                    write: b.rng.chance(0.3),
                    tag,
                };
                let found: Option<Vec<u32>> = r.pages().map(|vpn| b.find(r.asid, vpn, r.write)).collect();
                b.range(ACQUIRE, r);
                if let Some(entries) = found {
                    hits += 1;
                    assert_eq!(b.answer(), (XLT_HIT, 0, tag));
                    entries.iter().for_each(|i| b.table.get_mut(i).unwrap().uses += 1);
                    held.push(r);
                } else {
                    misses += 1;
                    assert_eq!(b.answer(), (XLT_MISS, 0, tag));
                    let w = b.event();
                    let va = u64::from(w[4]) | u64::from(w[5]) << 32;
                    assert_eq!((w[0], w[1], w[2], w[3]), (EV_PAGE_NEED, tag, r.asid, u32::from(r.write)));
                    assert_eq!((va, w[6]), (r.va, r.len));
                }
            }
            4..7 if !held.is_empty() => {
                let at = b.rng.below(held.len() as u64) as usize;
                let r = held.swap_remove(at);
                b.range(RELEASE, r);
                let w = b.event();
                assert_eq!((w[0], w[1], w[2], w[6]), (EV_PAGE_RELEASE, r.tag, r.asid, r.len));
                for vpn in r.pages() {
                    if let Some(i) = b.find(r.asid, vpn, r.write) {
                        let uses = &mut b.table.get_mut(&i).unwrap().uses;
                        *uses = uses.saturating_sub(1);
                    }
                }
            }
            7 => {
                let asid = 1 + b.rng.below(3) as u32;
                let vpn = FIRST + b.rng.below(PAGES);
                let Some(index) = b.find(asid, vpn, false) else { continue };
                let free = b.table[&index].uses == 0;
                b.command(&[CMD_PAGE_EVICT, index]);
                let w = b.event();
                assert_eq!((w[0], evicted_pages(&w).collect::<Vec<_>>()), (EV_PAGE_EVICTED, vec![(index, free)]));
                if free {
                    b.table.remove(&index);
                }
            }
            8 | 9 => {
                let asid = 1 + b.rng.below(3) as u32;
                let vpn = FIRST + b.rng.below(PAGES);
                match b.find(asid, vpn, false) {
                    Some(index) if b.rng.chance(0.1) => {
                        b.command(&[CMD_PAGE_REVOKE, index]);
                        b.table.remove(&index);
                    }
                    Some(_) => {}
                    None => _ = b.install(asid, vpn, DATA, true),
                }
                b.fence();
            }
            _ => {}
        }
    }
    println!("{hits} hits, {misses} misses");
    assert!(hits > 20 && misses > 20);
    assert_eq!((b.counter(C_XLT_HITS), b.counter(C_XLT_MISSES)), (hits, misses));
}

#[test]
fn long_acquire_does_not_hold_up_dma() {
    let mut b = Bench::plain();
    const VPN: u64 = 0x7_0000_0000;
    const PAGES: u64 = 1000;
    for i in 0..PAGES {
        b.install(3, VPN + i, DATA, true);
    }
    b.fence();
    let range = Range { asid: 3, va: VPN * PAGE, len: (PAGES * PAGE) as u32, write: true, tag: 1 };
    let begin = b.card.cycles();
    b.range(ACQUIRE, range);
    b.dma(Dma { len: 64, addr: VPN * PAGE, asid: Some(3), ..Dma::default() });
    assert_eq!(b.dma_done(), (DMA_OK, 0));
    let dma = b.card.cycles() - begin;
    assert_eq!(b.cpu(CPU_XLT_RSP), 0, "the range is still being walked");
    assert_eq!(b.answer(), (XLT_HIT, 0, 1));
    let range_cycles = b.card.cycles() - begin;
    println!("{PAGES} pages in {range_cycles} cycles, a DMA of 64 bytes meanwhile in {dma}");
    // Evicting what an acquire is counting waits for its outcome. A miss gives all back.
    b.range(ACQUIRE, Range { len: range.len + 1, tag: 2, ..range });
    let index = b.find(3, VPN, true).unwrap();
    b.command(&[CMD_PAGE_EVICT, index]);
    assert_eq!(b.answer(), (XLT_MISS, 0, 2));
    let (first, second) = (b.event(), b.event());
    let evicted = if first[0] == EV_PAGE_EVICTED { first } else { second };
    assert_eq!(evicted_pages(&evicted).collect::<Vec<_>>(), [(index, false)]);
    b.range(RELEASE, range);
    assert_eq!(b.event()[0], EV_PAGE_RELEASE);
    b.command(&[CMD_PAGE_EVICT, index]);
    assert_eq!(evicted_pages(&b.event()).collect::<Vec<_>>(), [(index, true)]);
}

/// Invariant 4: the card never touches memory after the kernel was told that it is released.
#[test]
fn inv_4_after_a_revocation_and_its_fence_the_page_is_not_touched() {
    let mut b = Bench::random(seed(41));
    const VPN: u64 = 0x42;
    for round in 0..20 {
        let bus = DATA + round * PAGE;
        let index = b.install(7, VPN + round, bus, true);
        b.fence();
        let commands = 4 + b.rng.below(12);
        for tag in 0..commands as u32 {
            let write = b.rng.chance(0.5);
            b.dma(Dma {
                write,
                local: tag * 4608,
                len: 4096,
                tag,
                addr: (VPN + round) * PAGE,
                asid: Some(7),
                slot: None,
            });
        }
        b.command(&[CMD_PAGE_REVOKE, index]);
        b.fence();
        b.table.remove(&index);
        let then = b.peek(bus, PAGE as usize);
        b.memory.lock().unwrap().reads.clear();
        for _ in 0..commands {
            assert!([DMA_OK, DMA_NO_TRANSLATION].contains(&b.dma_done().0));
        }
        b.settle();
        assert!(b.peek(bus, PAGE as usize) == then, "written after the fence");
        assert!(b.memory.lock().unwrap().reads.iter().all(|r| r / PAGE != bus / PAGE), "read after the fence");
    }
}

#[test]
fn full_event_ring_holds_events_back_and_loses_none() {
    let mut b = Bench::plain();
    b.set(HOST_EVT_CI, 1 << 31);
    assert_eq!(b.cpu(CPU_EV_SPACE), u32::from(RING));
    let event = |i: u32| std::array::from_fn(|j| if j == 0 { EV_LOG } else { i << 8 | j as u32 });
    for i in 0..u32::from(RING) + 1 {
        b.firmware_event(&event(i));
    }
    b.settle();
    assert_eq!((b.cpu(CPU_EV_SPACE), b.counter(C_EVENTS)), (0, u64::from(RING)));
    assert_eq!(b.vectors(), 1, "one interrupt per arming");
    for i in 0..u32::from(RING) + 1 {
        assert_eq!(b.event(), event(i));
    }
    // Armed after the fact: the interrupt comes at once. Armed with nothing there: with the next event.
    b.firmware_event(&event(0));
    b.settle();
    assert_eq!(b.vectors(), 1);
    b.set(HOST_EVT_CI, u32::from(b.ci) | 1 << 31);
    b.wait("the interrupt", |b| (b.vectors() == 2).then_some(()));
    b.event();
    b.set(HOST_EVT_CI, u32::from(b.ci) | 1 << 31);
    b.settle();
    assert_eq!(b.vectors(), 2);
    b.firmware_event(&event(1));
    b.wait("the interrupt", |b| (b.vectors() == 3).then_some(()));
    assert_eq!(b.event(), event(1), "the event is there before its interrupt");
    assert_eq!(b.counter(C_INTERRUPTS), 3);
}

#[test]
fn completions_carry_the_phase_and_an_overrun_is_told() {
    let mut b = Bench::random(seed(51));
    const CQN: u32 = 7;
    const UAR: u64 = 5;
    const LOG2: u32 = 3;
    let base = DATA + PAGE - 64;
    b.poke(base, &[0; (CQE_BYTES << LOG2) as usize]);
    b.set_cpu(CPU_CQ_BASE_LO, base as u32);
    b.set_cpu(CPU_CQ_BASE_HI, (base >> 32) as u32);
    b.set_cpu(CPU_CQ_ATTR, 1 << 31 | (UAR as u32) << 8 | LOG2);
    b.set_cpu(CPU_CQ_CFG, CQN);
    let cqe = |i: u16| -> [u32; 8] { [u32::from(i), 1, 2, 3, 4, 5, 6, 0] };
    let (mut pi, mut ci) = (0u16, 0u16);
    for _ in 0..30 {
        for _ in 0..1 + b.rng.below(8) {
            b.completion(CQN, &cqe(pi));
            pi += 1;
        }
        while ci != pi {
            let mut want = cqe(ci);
            want[7] = u32::from(ci >> LOG2 & 1 == 0) << 31;
            let want: Vec<u8> = want.iter().flat_map(|w| w.to_le_bytes()).collect();
            let at = base + u64::from(CQE_BYTES) * u64::from(ci & 7);
            b.wait("the completion", |b| (b.peek(at, CQE_BYTES as usize) == want).then_some(()));
            ci += 1;
        }
        b.ring_cq(UAR, CQN.into(), ci, false);
    }
    // Armed with nothing new: told with the next one, once.
    b.ring_cq(UAR, CQN.into(), ci, true);
    b.no_event();
    b.completion(CQN, &cqe(pi));
    assert_eq!(b.event()[..2], [EV_CQ_NOTIFY, CQN]);
    b.completion(CQN, &cqe(pi));
    b.no_event();
    // Armed with two new ones: told at once.
    b.ring_cq(UAR, CQN.into(), ci, true);
    assert_eq!(b.event()[..2], [EV_CQ_NOTIFY, CQN]);
    // Two are unread: six more fit, and the seventh is lost but not the others.
    for _ in 0..6 {
        b.completion(CQN, &cqe(pi));
    }
    b.settle();
    let (all, written) = (b.peek(base, 256), b.counter(C_COMPLETIONS));
    b.completion(CQN, &[0, 0, 0, 0x77, 0, 0, 0, 0]);
    assert_eq!(b.event()[..3], [EV_CQ_OVERRUN, CQN, 0x77]);
    assert_eq!((b.counter(C_CQ_OVERRUN), b.counter(C_COMPLETIONS)), (1, written));
    assert!(b.peek(base, 256) == all);
    // Space again: the queue goes on.
    b.ring_cq(UAR, CQN.into(), ci.wrapping_add(8), false);
    b.completion(CQN, &cqe(pi));
    b.wait("the completion", |b| (b.counter(C_COMPLETIONS) == written + 1).then_some(()));
}

/// Invariant 5: no process reaches another's doorbells.
#[test]
fn inv_5_doorbell_of_another_page_is_denied() {
    let mut b = Bench::plain();
    for (qpn, uar) in [(20, 9), (21, 10), (127, 63)] {
        b.set_cpu(CPU_DB_CFG_QPN, qpn);
        b.set_cpu(CPU_DB_CFG, 1 << 31 | uar);
    }
    assert_eq!(b.cpu(CPU_DB_POP), 0);
    let sq = |qpn: u64, pi: u64, bytes: u64| qpn | pi << 16 | bytes << 32;
    // Another page, a QP or CQ that nobody has, one that does not exist.
    b.ring(8, DB_SQ, sq(20, 1, 1));
    b.ring(9, DB_SQ, sq(22, 1, 1));
    b.ring(9, DB_RQ, sq(128, 1, 1));
    b.ring_cq(9, 3, 0, true);
    b.ring_cq(9, 64, 0, true);
    assert_eq!((b.counter(C_DOORBELL_DENIED), b.counter(C_DOORBELLS)), (5, 0));
    // Torn, unknown, or not a write.
    b.card.mmio_write(BAR_DOORBELL, 9 * PAGE, 20, 4);
    b.card.mmio_write(BAR_DOORBELL, 9 * PAGE + 4, 20, 4);
    b.ring(9, 0x18, 20);
    assert_eq!(b.card.mmio_read(BAR_DOORBELL, 9 * PAGE, 8), u64::MAX);
    assert_eq!(b.counter(C_DOORBELL_MALFORMED), 4);
    assert_eq!(b.cpu(CPU_PENDING) >> PEND_DOORBELL & 1, 0);
    // Fresh ones come in turn, with the latest values.
    b.ring(9, DB_SQ, sq(20, 5, 1000));
    b.ring(9, DB_RQ, sq(20, 6, 0));
    b.ring(10, DB_SQ, sq(21, 1, 9));
    b.ring(63, DB_SQ, sq(127, 2, 8));
    assert_eq!(b.cpu(CPU_DB_POP), 1 << 31 | 20);
    assert_eq!((b.cpu(CPU_DB_INDEX), b.cpu(CPU_DB_BYTES)), (6 << 16 | 5, 1000));
    b.ring(9, DB_SQ, sq(20, 7, 2000));
    assert_eq!(b.cpu(CPU_DB_POP), 1 << 31 | 21);
    assert_eq!(b.cpu(CPU_DB_POP), 1 << 31 | 127);
    assert_eq!(b.cpu(CPU_DB_POP), 1 << 31 | 20);
    assert_eq!((b.cpu(CPU_DB_INDEX), b.cpu(CPU_DB_BYTES)), (6 << 16 | 7, 2000));
    assert_eq!(b.cpu(CPU_DB_POP), 0);
    assert_eq!((b.counter(C_DOORBELLS), b.counter(C_DOORBELL_DENIED)), (5, 5));
}

#[test]
fn reset_lets_reads_in_flight_end_first() {
    let mut b = Bench::new(CardConfig { read_latency: 2000, ..CardConfig::default() });
    b.start(8, 9);
    for tag in 0..4 {
        b.dma(Dma { local: tag * 4608, len: 4096, tag, addr: DATA, ..Dma::default() });
    }
    b.wait("the reads", |b| (b.reg(HOST_DMA_BUSY) >= 31).then_some(()));
    b.set(HOST_CTRL, 1);
    assert_eq!(b.reg(HOST_STATUS), FW_RESET);
    assert!(!b.card.dma_in_flight());
    assert_eq!((b.reg(HOST_DMA_ENABLE), b.reg(HOST_DMA_BUSY), b.reg(HOST_PCIE_LIMITS)), (0, 0, 0x98));
    assert_eq!(b.counter(C_DMA_READS), 0);
    // The card works again, and what was in flight is forgotten.
    b.start(8, 9);
    b.fence();
    assert_eq!(b.cpu(CPU_DMA_DONE), 0);
}

/// Aligned or not, reads and writes of 4 KiB use all that a host port of 1.25 times the wire carries, also with a long
/// read latency.
#[test]
fn dma_keeps_the_host_port_busy() {
    const COMMANDS: u32 = 48;
    let host_rate = 1.25 * (data_w() / 8) as f64;
    for (read_latency, offset) in [(250, 0), (450, 0), (250, 3), (250, 61)] {
        let mut b = Bench::new(CardConfig { read_latency, split: false, host_rate, ..CardConfig::default() });
        b.start(8, 9);
        b.card.reset_ports();
        for tag in 0..COMMANDS {
            for write in [false, true] {
                let slot = tag % TX_SLOTS;
                let local = if write { rx_slot(slot) } else { tx_slot(slot) + 54 };
                let addr = DATA + offset + 8192 * u64::from(tag + if write { COMMANDS } else { 0 });
                b.dma(Dma { write, local, len: 4096, tag, addr, ..Dma::default() });
            }
        }
        for _ in 0..2 * COMMANDS {
            assert_eq!(b.dma_done().0, DMA_OK);
        }
        let ports = b.card.ports();
        for (name, port) in [("reads", ports.completions), ("writes", ports.writes)] {
            let rate = port.bytes as f64 / port.span() as f64;
            // 64 reads of 512 bytes may be out
            let limit = if name == "reads" { host_rate.min(64.0 * 512.0 / read_latency as f64) } else { host_rate };
            println!("{name}, offset {offset}, latency {read_latency}: {rate:.2} of {limit:.2} bytes per cycle");
            assert_eq!(port.bytes, u64::from(COMMANDS) * 4096);
            assert!(rate >= 0.98 * limit, "{name}, offset {offset}, latency {read_latency}: {rate:.2} of {limit:.2}");
        }
    }
}
