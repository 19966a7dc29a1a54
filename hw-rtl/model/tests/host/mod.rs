// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card without firmware, with the bench as its driver over the BARs and rings, and as its soft core over the debug port.
#![allow(dead_code, reason = "each test program uses some of it")]

use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::message::{CODE, Fence};
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_rtl::{BAR_CONTROL, BAR_DOORBELL, CardConfig, PcieLimits};
use berth_rtl_host::{Access, Board, Commands, Events, Memory, Rng, Span, Table};
pub use berth_rtl_host::{Dma, PAGE};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

/// Bus address of the first byte of host memory.
pub const BASE: u64 = 0x1_2000_0000;
/// Host memory: rings and small things, then data.
pub const HOST_BYTES: u64 = 8 << 20;
pub const CMD_RING: u64 = BASE + 0x1000;
pub const EVT_RING: u64 = BASE + 0x8000;
pub const FENCE: u64 = BASE + 0x100;
pub const DATA: u64 = BASE + 0x10_0000;
pub const RING_LOG2: u32 = 5;
pub const RING: u16 = 1 << RING_LOG2;
/// No wait of these benches takes longer.
pub const PATIENCE: u64 = 200_000;

pub struct Bench {
    board: Board,
    pub rng: Rng,
    pub cmd: Commands,
    pub evt: Events,
    pub token: u64,
    pub events: VecDeque<[u32; 16]>,
    pub table: Table,
}

impl Deref for Bench {
    type Target = Board;
    fn deref(&self) -> &Board {
        &self.board
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Board {
        &mut self.board
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let astray = self.memory.violations().into_iter().find(|v| v.1);
        assert!(std::thread::panicking() || astray.is_none(), "a write outside of host memory: {astray:x?}");
    }
}

impl Bench {
    pub fn new(config: CardConfig) -> Bench {
        let mut rng = Rng(config.seed ^ 0x1234);
        let memory = Memory::new(config.seed);
        memory.map(BASE, &rng.bytes(HOST_BYTES as usize), Access::ReadWrite);
        memory.log_reads();
        let board = Board::new(config, memory);
        let (cmd, evt) = (Commands::new(CMD_RING, RING_LOG2), Events::new(EVT_RING, RING_LOG2));
        Bench { board, rng, cmd, evt, token: 0, events: VecDeque::new(), table: Table::default() }
    }

    /// A card whose slot does everything that is legal and unpleasant.
    pub fn random(seed: u64) -> Bench {
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
    pub fn plain() -> Bench {
        let mut bench = Bench::new(CardConfig { read_latency: 50, ..CardConfig::default() });
        bench.start(8, 9);
        bench
    }

    pub fn reg(&mut self, offset: u32) -> u32 {
        self.card.reg(offset)
    }

    pub fn set(&mut self, offset: u32, value: u32) {
        self.card.set_reg(offset, value);
    }

    pub fn counter(&mut self, index: u32) -> u64 {
        self.card.counter(index)
    }

    pub fn peek(&self, addr: u64, len: usize) -> Vec<u8> {
        self.memory.peek(addr, len)
    }

    pub fn poke(&self, addr: u64, data: &[u8]) {
        self.memory.poke(addr, data);
    }

    pub fn vectors(&self) -> u32 {
        self.memory.interrupts()
    }

    /// Clocks until `done` gives something.
    pub fn wait<T>(&mut self, what: &str, mut done: impl FnMut(&mut Bench) -> Option<T>) -> T {
        let end = self.card.cycles() + PATIENCE;
        while self.card.cycles() < end {
            if let Some(t) = done(self) {
                return t;
            }
            self.card.run(3);
        }
        panic!("waited in vain for {what}");
    }

    pub fn settle(&mut self) {
        self.wait("the card to have nothing to do", |b| {
            (!b.card.dma_in_flight() && b.reg(HOST_DMA_BUSY) == 0).then_some(())
        });
        self.card.run(300);
    }

    // ---- driver ----------------------------------------------------------------------

    pub fn start(&mut self, log2_payload: u32, log2_read: u32) {
        let Board { card, memory } = &mut self.board;
        self.cmd.attach(card, memory);
        self.evt.attach(card, memory);
        memory.poke(FENCE, &[0; 8]);
        card.mmio_write(BAR_CONTROL, HOST_FENCE_LO.into(), FENCE, 8);
        card.set_pcie_limits(PcieLimits::from_log2(log2_payload, log2_read));
        card.set_reg(HOST_DMA_ENABLE, 1);
    }

    pub fn command(&mut self, words: &[u32]) {
        self.put(words);
        self.tell();
    }

    /// A command in the ring, of which the card has not been told.
    pub fn put(&mut self, words: &[u32]) {
        self.wait("room in the command ring", |b| {
            (b.cmd.pi.wrapping_sub(b.reg(HOST_CMD_CI) as u16) < RING).then_some(())
        });
        self.cmd.write(&self.board.memory, words);
    }

    pub fn tell(&mut self) {
        self.set(HOST_CMD_PI, u32::from(self.cmd.pi));
    }

    /// Writes into the card: the index of a command, then these of its words, with their numbers.
    pub fn push(&mut self, index: u16, words: &[(usize, u64)]) {
        self.card.post_write(BAR_CONTROL, HOST_CMD_PUSH.into(), index.into(), 8);
        for &(word, value) in words {
            self.card.post_write(BAR_CONTROL, u64::from(HOST_CMD_PUSH + CMD_PUSH_WORDS) + 8 * word as u64, value, 8);
        }
    }

    /// Commands of firmware that have come, as soon as there are so many.
    pub fn commands(&mut self, count: usize) -> Vec<[u32; 16]> {
        let one = |b: &mut Bench| {
            b.wait("a command", |b| (b.cpu(CPU_PENDING) >> PEND_CMD & 1 != 0).then_some(()));
            let words = std::array::from_fn(|i| b.cpu(CPU_CMD_W0 + 4 * i as u32));
            b.set_cpu(CPU_CMD_POP, 0);
            words
        };
        (0..count).map(|_| one(self)).collect()
    }

    pub fn firmware_command(&mut self) -> [u32; 16] {
        let mut words: [u32; 16] = std::array::from_fn(|_| self.rng.below(1 << 32) as u32);
        words[CODE] = words[CODE] & !0xff | (CMD_FIRST_FW + self.rng.below(100) as u32);
        words
    }

    /// Reads of the command ring so far.
    pub fn ring_reads(&self) -> usize {
        let ring = CMD_RING..CMD_RING + 64 * u64::from(RING);
        self.memory.reads().iter().filter(|at| ring.contains(at)).count()
    }

    pub fn fence(&mut self) {
        self.token += 0x1_0000_0001;
        let token = self.token;
        self.command(&Fence { token }.encode());
        self.wait("the fence", |b| (b.peek(FENCE, 8) == token.to_le_bytes()).then_some(()));
    }

    pub fn take_events(&mut self) {
        while let Some(event) = self.evt.take(&self.board.memory) {
            self.events.push_back(event);
            self.set(HOST_EVT_CI, u32::from(self.evt.ci));
        }
    }

    /// The next event, of which the card is not told that it was taken.
    pub fn take_event(&mut self) -> Option<[u32; 16]> {
        self.evt.take(&self.board.memory)
    }

    pub fn event(&mut self) -> [u32; 16] {
        self.wait("an event", |b| {
            b.take_events();
            b.events.pop_front()
        })
    }

    pub fn no_event(&mut self) {
        self.settle();
        self.take_events();
        assert_eq!(self.events.pop_front(), None);
    }

    pub fn install(&mut self, asid: u32, vpn: u64, bus: u64, write: bool) -> u32 {
        let free = self.table.free(asid, vpn);
        let index = free[self.rng.below(free.len() as u64) as usize];
        self.table.install(index, (asid, vpn), write);
        let mut words = [0; 16];
        install_add(&mut words, (asid, vpn), index, bus, write);
        self.command(&words);
        index
    }

    // ---- soft core -------------------------------------------------------------------

    pub fn dma(&mut self, d: Dma) {
        self.board.dma(d, None);
    }

    /// Resets the card as a driver does, and sets it up anew.
    pub fn reset(&mut self, log2_payload: u32, log2_read: u32) {
        self.set(HOST_CTRL, 1);
        assert_eq!(self.reg(HOST_STATUS), FW_RESET);
        self.start(log2_payload, log2_read);
    }

    /// Status and tag of the next DMA command that has ended.
    pub fn dma_done(&mut self) -> (u32, u32) {
        self.wait("a DMA command to end", |b| b.board.dma_done())
    }

    pub fn range(&mut self, op: XltGo, r: Range) {
        self.set_cpu(CPU_XLT_VA_LO, r.va as u32);
        self.set_cpu(CPU_XLT_VA_HI, (r.va >> 32) as u32);
        self.set_cpu(CPU_XLT_LEN, r.len);
        self.set_cpu(CPU_XLT_TAG, r.tag);
        self.set_cpu(CPU_XLT_GO, XltGo { asid: r.asid, write: r.write.into(), ..op }.word());
    }

    /// Kind, status and tag of the next answer of the translation unit.
    pub fn answer(&mut self) -> (u32, u32, u32) {
        let answer = self.wait("an answer of the translation unit", |b| {
            let answer = XltRsp::from_word(b.cpu(CPU_XLT_RSP));
            (answer.valid != 0).then_some(answer)
        });
        (answer.kind, answer.status, answer.tag)
    }

    pub fn firmware_event(&mut self, words: &[u32; 16]) {
        for (i, w) in words.iter().enumerate() {
            self.set_cpu(CPU_EV_W0 + 4 * i as u32, *w);
        }
        self.set_cpu(CPU_EV_GO, 1);
    }

    pub fn completion(&mut self, cqn: u32, words: &[u32; 8]) {
        for (i, w) in words.iter().enumerate() {
            self.set_cpu(CPU_CQE_W0 + 4 * i as u32, *w);
        }
        self.set_cpu(CPU_CQE_GO, cqn);
    }

    pub fn ring(&mut self, page: u64, offset: u32, data: u64) {
        self.card.mmio_write(BAR_DOORBELL, page * PAGE + u64::from(offset), data, 8);
    }

    pub fn ring_cq(&mut self, page: u64, cqn: u64, ci: u16, arm: bool) {
        self.ring(page, DB_CQ, cqn | u64::from(ci) << 16 | u64::from(arm) << 63);
    }
}

pub const ACQUIRE: XltGo = XltGo { asid: 0, write: 0, give_back: 0, acquire: 1 };
pub const RELEASE: XltGo = XltGo { give_back: 1, acquire: 0, ..ACQUIRE };

#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub asid: u32,
    pub va: u64,
    pub len: u32,
    pub write: bool,
    pub tag: u32,
}

impl Range {
    pub fn span(&self) -> Span {
        Span { asid: self.asid, va: self.va, len: self.len.into(), write: self.write }
    }
}
