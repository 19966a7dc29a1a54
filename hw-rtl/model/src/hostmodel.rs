// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host for RTL-level tests: memory, a driver stand-in that speaks the rings, processes
//! with queues, and a wire between cards.
//!
//! It does what the kernel driver does towards the card (firmware load, command and
//! event rings, page service, completion queues) without a kernel, and what `libberth`
//! does towards its queues. Everything is deterministic: a test is a function of its
//! seeds. Time is the cards' cycles.

use crate::{BAR_CONTROL, BAR_DOORBELL, Card, CardConfig, HostError, HostMemory, PcieLimits};
use berth_abi::card::*;
use berth_abi::counters::*;
use berth_abi::host::*;
pub use berth_abi::message::QpCreate;
use berth_abi::message::{
    self, Accept, CmRequest, CmdDone, Connect, CqCreate, Fence, FwLog, Listen, NetConfig, PageReady, PageRelease,
    PageRevoke, Pressure, RangeRevoked,
};
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_abi::wqe::*;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

pub use berth_random::{Rng, seed};

/// Bytes of a page.
pub const PAGE: u64 = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    None,
    Read,
    ReadWrite,
}

struct Frame {
    data: Box<[u8; PAGE as usize]>,
    dma: Access,
}

/// The host's memory: page frames at bus addresses above 4 GiB, in no order.
pub struct Memory {
    frames: HashMap<u64, Frame>,
    rng: Rng,
    /// MSI-X vectors raised since the last look.
    vectors: u32,
    /// DMA to a page that the card may not touch (invariant 4): address and whether it wrote.
    pub violations: Vec<(u64, bool)>,
}

impl Memory {
    fn new(seed: u64) -> Self {
        Memory { frames: HashMap::new(), rng: Rng(seed ^ 0x6d65_6d6f), vectors: 0, violations: Vec::new() }
    }

    /// Allocates `pages` contiguous page frames and returns the first one's number.
    fn alloc(&mut self, pages: u64, dma: Access) -> u64 {
        loop {
            let first = 0x10_0000 + self.rng.below(1 << 24) * pages.next_power_of_two();
            if (first..first + pages).any(|f| self.frames.contains_key(&f)) {
                continue;
            }
            for frame in first..first + pages {
                self.frames.insert(frame, Frame { data: Box::new([0; PAGE as usize]), dma });
            }
            return first;
        }
    }

    fn access(&mut self, addr: u64, len: usize, mut each: impl FnMut(&mut [u8], usize)) -> Result<(), HostError> {
        let mut done = 0;
        while done < len {
            let at = addr + done as u64;
            let n = ((PAGE - at % PAGE) as usize).min(len - done);
            let frame = self.frames.get_mut(&(at / PAGE)).ok_or(HostError)?;
            each(&mut frame.data[(at % PAGE) as usize..][..n], done);
            done += n;
        }
        Ok(())
    }

    /// Reads bytes at a bus address, as the CPU does.
    pub fn peek(&mut self, addr: u64, out: &mut [u8]) {
        let n = out.len();
        self.access(addr, n, |m, at| out[at..at + m.len()].copy_from_slice(m)).expect("allocated memory");
    }

    /// Writes bytes at a bus address, as the CPU does.
    pub fn poke(&mut self, addr: u64, data: &[u8]) {
        self.access(addr, data.len(), |m, at| m.copy_from_slice(&data[at..at + m.len()])).expect("allocated memory");
    }

    fn word(&mut self, addr: u64) -> u32 {
        let mut b = [0; 4];
        self.peek(addr, &mut b);
        u32::from_le_bytes(b)
    }

    fn check(&mut self, addr: u64, len: usize, write: bool) -> Result<(), HostError> {
        for page in addr / PAGE..=(addr + len.max(1) as u64 - 1) / PAGE {
            let ok = match self.frames.get(&page).map_or(Access::None, |f| f.dma) {
                Access::None => false,
                Access::Read => !write,
                Access::ReadWrite => true,
            };
            if !ok {
                self.violations.push((addr, write));
                return Err(HostError);
            }
        }
        Ok(())
    }
}

/// The card's view of [`Memory`]: only pages that are mapped for it.
struct Port(Arc<Mutex<Memory>>);

impl HostMemory for Port {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), HostError> {
        let mut m = lock(&self.0);
        m.check(addr, buf.len(), false)?;
        let n = buf.len();
        m.access(addr, n, |p, at| buf[at..at + p.len()].copy_from_slice(p))
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), HostError> {
        let mut m = lock(&self.0);
        m.check(addr, data.len(), true)?;
        m.access(addr, data.len(), |p, at| p.copy_from_slice(&data[at..at + p.len()]))
    }

    fn msix(&mut self, vector: u32) {
        lock(&self.0).vectors |= 1 << vector;
    }
}

fn lock(m: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    m.lock().expect("no panic while held")
}

/// What a host is like.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The card's host port.
    pub card: CardConfig,
    /// Seed of everything random in the host.
    pub seed: u64,
    /// IPv4 address, first byte in bits 31:24.
    pub ipv4: u32,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Pinned-memory budget in bytes.
    pub budget: u64,
    /// Cycles from a page request to its answer.
    pub page_latency: u64,
    /// log2 of maximum payload and of maximum read request.
    pub limits: (u32, u32),
}

impl Default for HostConfig {
    fn default() -> Self {
        HostConfig {
            card: CardConfig::default(),
            seed: 1,
            ipv4: 0x0a00_0001,
            mtu: 4096,
            budget: 16 << 20,
            page_latency: 2000,
            limits: (8, 9),
        }
    }
}

/// A page that the driver has pinned and installed.
#[derive(Clone, Copy, Debug)]
struct Pin {
    frame: u64,
    /// An eviction is on its way.
    evicting: bool,
    /// A use ended while an eviction was on its way.
    again: bool,
}

struct PageNeed {
    due: u64,
    tag: u32,
    asid: u32,
    va: u64,
    len: u32,
    write: bool,
}

/// What the driver does with the page requests of an address space, where it does not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAnswer {
    /// The answer takes so many cycles more.
    Late(u64),
    /// The answer is this status (`PAGE_*`), and no page is installed.
    Lie(u32),
    /// There is none, until the driver does something else again.
    Never,
}

/// Page of a process.
#[derive(Clone, Copy, Debug)]
struct VmPage {
    frame: u64,
    writable: bool,
}

/// A completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// As posted.
    pub wr_id: u64,
    /// Bytes moved.
    pub byte_len: u32,
    /// QP.
    pub qpn: u32,
    /// `WC_*`.
    pub status: u8,
    /// `OP_*`.
    pub opcode: u8,
    /// `CQE_*`.
    pub flags: u16,
    /// Bytes remaining at the sender (CR-9).
    pub remaining: u32,
    /// Credit number used.
    pub credit: u32,
}

struct Cq {
    base: u64,
    log2: u32,
    ci: u32,
    uar: u32,
}

struct Qp {
    asid: u32,
    uar: u32,
    sq: u64,
    rq: u64,
    log2_sq: u32,
    log2_rq: u32,
    sq_pi: u16,
    rq_pi: u16,
    bytes: u32,
}

/// One host with its card.
pub struct Host {
    /// The card.
    pub card: Card,
    config: HostConfig,
    memory: Arc<Mutex<Memory>>,
    cmd_base: u64,
    cmd_pi: u16,
    cmd_queue: VecDeque<[u32; 16]>,
    /// Evictions that are not in it yet.
    evictions: Vec<[u32; 16]>,
    cmd_ci: u16,
    evt_base: u64,
    evt_ci: u16,
    fence: u64,
    fence_token: u64,
    cookie: u32,
    /// Events of firmware that nobody has taken yet.
    pub events: VecDeque<[u32; 16]>,
    /// Log bytes (rzCOBS) of the firmware.
    pub log: Vec<u8>,
    done: BTreeMap<u32, [u32; 16]>,
    needs: VecDeque<PageNeed>,
    /// Of these address spaces page requests are not answered as they should.
    page_answers: HashMap<u32, PageAnswer>,
    /// Page requests that have no answer for as long as that is so.
    withheld: Vec<PageNeed>,
    /// When the card may next be told that page requests wait for budget.
    pressure_due: u64,
    vm: HashMap<(u32, u64), VmPage>,
    next_vpn: u64,
    pins: BTreeMap<(u32, u64), u32>,
    table: HashMap<u32, ((u32, u64), Pin)>,
    /// Most bytes pinned at any time.
    pub pinned_peak: u64,
    /// Page requests served.
    pub page_needs: u64,
    cqs: HashMap<u32, Cq>,
    qps: HashMap<u32, Qp>,
    running: bool,
}

const CMD_LOG2: u32 = 6;
const EVT_LOG2: u32 = 8;
/// Cycles between two `CMD_PRESSURE`.
const PRESSURE_EVERY: u64 = 20_000;

impl Host {
    /// A host whose card has power but no firmware.
    pub fn new(config: HostConfig) -> Host {
        let mut memory = Memory::new(config.seed);
        let cmd_base = memory.alloc(((ENTRY_BYTES as u64) << CMD_LOG2).div_ceil(PAGE), Access::Read) * PAGE;
        let evt_base = memory.alloc(((ENTRY_BYTES as u64) << EVT_LOG2).div_ceil(PAGE), Access::ReadWrite) * PAGE;
        let fence = memory.alloc(1, Access::ReadWrite) * PAGE + 64;
        let memory = Arc::new(Mutex::new(memory));
        let card = Card::new(config.card.clone(), Box::new(Port(memory.clone())));
        let next_vpn = 0x5_5000_0000 + Rng(config.seed).below(1 << 20);
        Host {
            card,
            config,
            memory,
            cmd_base,
            cmd_pi: 0,
            cmd_queue: VecDeque::new(),
            evictions: Vec::new(),
            cmd_ci: 0,
            evt_base,
            evt_ci: 0,
            fence,
            fence_token: 0,
            cookie: 0,
            events: VecDeque::new(),
            log: Vec::new(),
            done: BTreeMap::new(),
            needs: VecDeque::new(),
            page_answers: HashMap::new(),
            withheld: Vec::new(),
            pressure_due: 0,
            vm: HashMap::new(),
            next_vpn,
            pins: BTreeMap::new(),
            table: HashMap::new(),
            pinned_peak: 0,
            page_needs: 0,
            cqs: HashMap::new(),
            qps: HashMap::new(),
            running: false,
        }
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// Reads a register of BAR0.
    pub fn reg(&mut self, offset: u32) -> u32 {
        self.card.mmio_read(BAR_CONTROL, u64::from(offset), 4) as u32
    }

    /// Writes a register of BAR0.
    pub fn set_reg(&mut self, offset: u32, value: u32) {
        self.card.mmio_write(BAR_CONTROL, u64::from(offset), u64::from(value), 4);
    }

    /// RTL counter `C_*`.
    pub fn rtl_counter(&mut self, index: u32) -> u64 {
        self.card.mmio_read(BAR_CONTROL, u64::from(HOST_COUNTERS + 8 * index), 8)
    }

    /// Firmware counter `F_*`.
    pub fn fw_counter(&mut self, index: u32) -> u64 {
        self.card.mmio_read(BAR_CONTROL, u64::from(HOST_STATS + 8 * index), 8)
    }

    /// The panic text.
    pub fn panic_text(&mut self) -> String {
        let mut text = Vec::new();
        'text: for at in (0..STATS_PANIC_BYTES).step_by(4) {
            for b in self.reg(HOST_STATS + STATS_PANIC + at).to_le_bytes() {
                if b == 0 {
                    break 'text;
                }
                text.push(b);
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Loads words and tells the card to boot. The answer is in `HOST_STATUS`.
    pub fn load(&mut self, image: &[u8]) {
        for word in image.chunks(4) {
            let mut w = [0; 4];
            w[..word.len()].copy_from_slice(word);
            self.set_reg(HOST_FW_DATA, u32::from_le_bytes(w));
        }
        self.set_reg(HOST_FW_BOOT, 1);
    }

    /// Steps until `HOST_STATUS` is `status`; false when `cycles` have gone by.
    pub fn wait_status(&mut self, status: u32, cycles: u64) -> bool {
        let end = self.card.cycles() + cycles;
        while self.reg(HOST_STATUS) != status {
            if self.card.cycles() > end {
                return false;
            }
            self.card.run(500);
        }
        true
    }

    /// As [`Host::wait_status`], with the driver at work meanwhile.
    pub fn wait_status_stepping(&mut self, status: u32, cycles: u64) -> bool {
        let end = self.card.cycles() + cycles;
        while self.reg(HOST_STATUS) != status {
            if self.card.cycles() > end {
                return false;
            }
            for _ in 0..500 {
                self.step();
            }
        }
        true
    }

    /// Resets the card. Everything that the driver side knew of it is forgotten.
    pub fn reset(&mut self) {
        self.set_reg(HOST_CTRL, 1);
        assert!(self.wait_status(FW_RESET, 200_000), "card does not come out of reset");
        self.running = false;
        self.cmd_queue.clear();
        self.evictions.clear();
        (self.cmd_pi, self.cmd_ci, self.evt_ci) = (0, 0, 0);
        self.events.clear();
        self.done.clear();
        self.needs.clear();
        self.withheld.clear();
        let frames: Vec<u64> = self.table.drain().map(|(_, (_, pin))| pin.frame).collect();
        for frame in frames {
            self.set_dma(frame, Access::None);
        }
        self.pins.clear();
        self.cqs.clear();
        self.qps.clear();
        let (base, len) = (self.evt_base, (ENTRY_BYTES as usize) << EVT_LOG2);
        self.mem().poke(base, &vec![0; len]);
    }

    /// Loads firmware, starts it and brings the rings and the network name up.
    pub fn start(&mut self, image: &[u8]) {
        self.load(image);
        let ok = self.wait_status(FW_RUNNING, 20_000_000);
        let (status, code) = (self.reg(HOST_STATUS), self.reg(HOST_FW_CODE));
        assert!(ok, "firmware does not come up: status {status}, code {code:#x}, {:?}", self.panic_text());
        self.start_rings();
        let mac = self.mac();
        let (ip, mtu) = (self.config.ipv4, self.config.mtu);
        let mut random = Rng(self.config.seed ^ 0x6b65_7900 ^ u64::from(ip) << 32);
        let name = NetConfig {
            ipv4: ip,
            mac_first: u32::from_be_bytes([mac[0], mac[1], mac[2], mac[3]]),
            mac_last: u32::from(mac[4]) << 8 | u32::from(mac[5]),
            mtu,
            guid: 0x0200_0000 << 32 | u64::from(ip),
            key: std::array::from_fn(|_| random.draw() as u32),
        };
        assert_eq!(self.command(name.encode())[2], CMD_OK, "CMD_NET_CONFIG");
    }

    /// Its MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let ip = self.config.ipv4.to_be_bytes();
        [2, 0xbe, ip[0], ip[1], ip[2], ip[3]]
    }

    /// Sets up command and event ring, limits, fence address, and lets the card do DMA.
    pub fn start_rings(&mut self) {
        let (cmd, evt, fence) = (self.cmd_base, self.evt_base, self.fence);
        let (payload, read_request) = self.config.limits;
        self.card.set_pcie_limits(PcieLimits::from_log2(payload, read_request));
        for (reg, value) in [
            (HOST_CMD_BASE_LO, cmd as u32),
            (HOST_CMD_BASE_HI, (cmd >> 32) as u32),
            (HOST_CMD_LOG2, CMD_LOG2),
            (HOST_EVT_BASE_LO, evt as u32),
            (HOST_EVT_BASE_HI, (evt >> 32) as u32),
            (HOST_EVT_LOG2, EVT_LOG2),
            (HOST_FENCE_LO, fence as u32),
            (HOST_FENCE_HI, (fence >> 32) as u32),
            (HOST_DMA_ENABLE, 1),
            (HOST_EVT_CI, 1 << 31),
        ] {
            self.set_reg(reg, value);
        }
        self.running = true;
    }

    fn mem(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// DMA outside of what was mapped for the card: must stay empty (invariant 4).
    pub fn violations(&self) -> Vec<(u64, bool)> {
        self.mem().violations.clone()
    }

    fn set_dma(&self, frame: u64, dma: Access) {
        self.mem().frames.get_mut(&frame).expect("frame of a page").dma = dma;
    }

    // ---- commands and events -------------------------------------------------------

    fn queue_command(&mut self, words: [u32; 16]) {
        self.cmd_queue.push_back(words);
        self.push_commands();
    }

    fn push_commands(&mut self) {
        if !self.running || self.cmd_queue.is_empty() {
            return;
        }
        let before = self.cmd_pi;
        while !self.cmd_queue.is_empty() {
            if self.cmd_pi.wrapping_sub(self.cmd_ci) >= 1 << CMD_LOG2 {
                self.cmd_ci = self.reg(HOST_CMD_CI) as u16;
                if self.cmd_pi.wrapping_sub(self.cmd_ci) >= 1 << CMD_LOG2 {
                    break;
                }
            }
            let Some(words) = self.cmd_queue.pop_front() else { break };
            let at = self.cmd_base + u64::from(self.cmd_pi & ((1 << CMD_LOG2) - 1)) * u64::from(ENTRY_BYTES);
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.mem().poke(at, &bytes);
            self.cmd_pi = self.cmd_pi.wrapping_add(1);
        }
        // The first ones are written into the card as well, as the driver does.
        for n in 0..self.cmd_pi.wrapping_sub(before).min(CMD_PUSH_MOST) {
            let index = before.wrapping_add(n);
            let at = self.cmd_base + u64::from(index & ((1 << CMD_LOG2) - 1)) * u64::from(ENTRY_BYTES);
            let mut entry = [0; ENTRY_BYTES as usize];
            self.mem().peek(at, &mut entry);
            self.card.post_write(BAR_CONTROL, u64::from(HOST_CMD_PUSH), u64::from(index), 8);
            for (word, bytes) in (0..).zip(entry.as_chunks::<8>().0) {
                let offset = HOST_CMD_PUSH + CMD_PUSH_WORDS + 8 * word;
                self.card.post_write(BAR_CONTROL, u64::from(offset), u64::from_le_bytes(*bytes), 8);
            }
        }
        if self.cmd_pi != before {
            self.card.post_write(BAR_CONTROL, u64::from(HOST_CMD_PI), u64::from(self.cmd_pi), 4);
        }
    }

    /// Queues a firmware command (word 1 is filled in) and returns its cookie for [`Host::done`].
    pub fn submit(&mut self, mut words: [u32; 16]) -> u32 {
        self.cookie += 1;
        words[1] = self.cookie;
        self.queue_command(words);
        self.cookie
    }

    /// The answer (`EV_CMD_DONE`) to a command, once.
    pub fn done(&mut self, cookie: u32) -> Option<[u32; 16]> {
        self.done.remove(&cookie)
    }

    /// Carries out a firmware command that this host's card can finish alone.
    pub fn command(&mut self, words: [u32; 16]) -> [u32; 16] {
        let cookie = self.submit(words);
        let end = self.card.cycles() + 5_000_000;
        loop {
            if let Some(answer) = self.done(cookie) {
                return answer;
            }
            assert!(self.card.cycles() < end, "no answer to command {words:x?}, status {}", self.report());
            self.step();
        }
    }

    /// One line on the card's state, for failures.
    pub fn report(&mut self) -> String {
        let status = self.reg(HOST_STATUS);
        let mut line = format!("HOST_STATUS {status}, HOST_FW_CODE {:#x}", self.reg(HOST_FW_CODE));
        if status == FW_PANIC {
            line += &format!(", panic: {:?}", self.panic_text());
        }
        line += &format!(", cycles {}, idle {}, counters:", self.card.cycles(), self.card.idle());
        for &(name, index, _) in FW_COUNTER_TABLE {
            let value = self.fw_counter(index as u32);
            if value != 0 {
                line += &format!(" {name}={value}");
            }
        }
        for &(name, index, _) in RTL_COUNTER_TABLE {
            let value = self.rtl_counter(index as u32);
            if value != 0 {
                line += &format!(" {name}={value}");
            }
        }
        line
    }

    fn take_events(&mut self) {
        let start = self.evt_ci;
        loop {
            let at = self.evt_base + u64::from(self.evt_ci & ((1 << EVT_LOG2) - 1)) * u64::from(ENTRY_BYTES);
            let mut bytes = [0; ENTRY_BYTES as usize];
            self.mem().peek(at, &mut bytes);
            let mut words = [0; 16];
            for (word, b) in words.iter_mut().zip(bytes.chunks_exact(4)) {
                *word = u32::from_le_bytes(b.try_into().expect("4 bytes"));
            }
            let phase = (self.evt_ci >> EVT_LOG2) & 1 == 0;
            if (words[EVENT_PHASE] & PHASE != 0) != phase {
                break;
            }
            self.evt_ci = self.evt_ci.wrapping_add(1);
            self.event(words);
        }
        self.tell_evictions();
        if start != self.evt_ci {
            self.card.post_write(BAR_CONTROL, u64::from(HOST_EVT_CI), u64::from(self.evt_ci) | 1 << 31, 4);
        }
    }

    fn event(&mut self, w: [u32; 16]) {
        match w[0] & 0xff {
            EV_PAGE_NEED => {
                self.page_needs += 1;
                let need = message::PageNeed::decode(&w);
                let answer = self.page_answers.get(&need.asid);
                let late = if let Some(PageAnswer::Late(cycles)) = answer { *cycles } else { 0 };
                let never = answer == Some(&PageAnswer::Never);
                let need = PageNeed {
                    due: self.card.cycles() + self.config.page_latency + late,
                    tag: need.tag,
                    asid: need.asid,
                    write: need.write,
                    va: need.va,
                    len: need.len,
                };
                if never {
                    self.withheld.push(need);
                } else {
                    self.needs.push_back(need);
                }
            }
            EV_PAGE_RELEASE => {
                let PageRelease { asid, va, len, .. } = PageRelease::decode(&w);
                for vpn in va / PAGE..=(va + u64::from(len.max(1)) - 1) / PAGE {
                    self.evict((asid, vpn));
                }
            }
            EV_PAGE_EVICTED => {
                for (index, dropped) in evicted_pages(&w) {
                    self.evicted(index, dropped);
                }
            }
            EV_CMD_DONE => {
                self.done.insert(CmdDone::decode(&w).cookie, w);
            }
            EV_LOG => {
                let log = FwLog::decode(&w);
                let bytes: Vec<u8> = log.data.iter().flat_map(|x| x.to_le_bytes()).collect();
                self.log.extend_from_slice(&bytes[..log.len as usize]);
            }
            _ => self.events.push_back(w),
        }
    }

    fn evicted(&mut self, index: u32, dropped: bool) {
        let Some((key, pin)) = self.table.get_mut(&index) else {
            panic!("EV_PAGE_EVICTED for entry {index} that holds nothing");
        };
        let key = *key;
        pin.evicting = false;
        let again = std::mem::take(&mut pin.again);
        let frame = pin.frame;
        if self.pins.get(&key) != Some(&index) {
            // Revoked meanwhile; the entry was kept for this answer.
            self.table.remove(&index);
        } else if dropped {
            self.table.remove(&index);
            self.pins.remove(&key);
            self.set_dma(frame, Access::None);
        } else if again {
            self.evict(key);
        }
    }

    /// Asks the card to give up a page; [`Host::tell_evictions`] sends it.
    fn evict(&mut self, key: (u32, u64)) {
        let Some(&index) = self.pins.get(&key) else { return };
        let (_, pin) = self.table.get_mut(&index).expect("pins and table agree");
        if pin.evicting {
            pin.again = true;
            return;
        }
        pin.evicting = true;
        if !self.evictions.last_mut().is_some_and(|last| evict_add(last, index)) {
            self.evictions.push(evict_command(index));
        }
    }

    fn tell_evictions(&mut self) {
        for command in std::mem::take(&mut self.evictions) {
            self.queue_command(command);
        }
    }

    /// Asks the card to give up every installed page that is not in use.
    pub fn evict_idle(&mut self) {
        let keys: Vec<_> = self.pins.keys().copied().collect();
        for key in keys {
            self.evict(key);
        }
        self.tell_evictions();
    }

    /// Bytes pinned now.
    pub fn pinned(&self) -> u64 {
        self.pins.len() as u64 * PAGE
    }

    fn serve_pages(&mut self) {
        let now = self.card.cycles();
        let mut later = VecDeque::new();
        let mut short = 0;
        while let Some(need) = self.needs.pop_front() {
            if need.due > now {
                later.push_back(need);
            } else if !self.serve(&need) {
                short += need.len;
                later.push_back(need);
            }
        }
        self.needs = later;
        if short > 0 && now >= self.pressure_due {
            self.pressure_due = now + PRESSURE_EVERY;
            self.submit(Pressure { asid: 0, bytes: short }.encode());
        }
    }

    /// Answers one page request; false when it has to wait for budget.
    fn serve(&mut self, need: &PageNeed) -> bool {
        let pages: Vec<u64> = (need.va / PAGE..=(need.va + u64::from(need.len.max(1)) - 1) / PAGE).collect();
        let status = if let Some(PageAnswer::Lie(status)) = self.page_answers.get(&need.asid) {
            *status
        } else if pages.iter().any(|&vpn| self.vm.get(&(need.asid, vpn)).is_none_or(|p| need.write && !p.writable)) {
            PAGE_FAULT
        } else if pages.len() as u64 * PAGE > self.config.budget {
            PAGE_OVER_BUDGET
        } else {
            let missing: Vec<u64> =
                pages.iter().copied().filter(|&vpn| !self.pins.contains_key(&(need.asid, vpn))).collect();
            if self.pinned() + missing.len() as u64 * PAGE > self.config.budget {
                return false;
            }
            for &vpn in &missing {
                self.install((need.asid, vpn));
            }
            PAGE_OK
        };
        self.queue_command(PageReady { tag: need.tag, status }.encode());
        true
    }

    /// What becomes of page requests of `asid` that come from now on; `None`: what should. Those that had no answer
    /// so far get theirs, unless there is still to be none.
    pub fn set_page_answer(&mut self, asid: u32, answer: Option<PageAnswer>) {
        match answer {
            Some(answer) => self.page_answers.insert(asid, answer),
            None => self.page_answers.remove(&asid),
        };
        if answer != Some(PageAnswer::Never) {
            let now = self.card.cycles();
            let (now_due, left) = std::mem::take(&mut self.withheld).into_iter().partition(|n| n.asid == asid);
            self.withheld = left;
            self.needs.extend(Vec::into_iter(now_due).map(|need| PageNeed { due: now, ..need }));
        }
    }

    fn install(&mut self, key: (u32, u64)) {
        let page = self.vm[&key];
        let index = xlt_free(key.0, key.1, |place| !self.table.contains_key(&place));
        let index = index.expect("a free place in the translation table");
        self.table.insert(index, (key, Pin { frame: page.frame, evicting: false, again: false }));
        self.pins.insert(key, index);
        self.set_dma(page.frame, if page.writable { Access::ReadWrite } else { Access::Read });
        self.pinned_peak = self.pinned_peak.max(self.pinned());
        let mut w = [0; 16];
        install_add(&mut w, key, index, page.frame * PAGE, page.writable);
        self.queue_command(w);
    }

    /// One clock of the card, and what the driver does about it.
    pub fn step(&mut self) {
        self.card.step();
        if !self.running {
            return;
        }
        let vectors = std::mem::take(&mut self.mem().vectors);
        if vectors & 1 != 0 {
            self.take_events();
        }
        if !self.needs.is_empty() {
            self.serve_pages();
        }
        self.push_commands();
    }

    /// When it next acts by itself (a page request's answer), if ever.
    fn next_action(&self) -> Option<u64> {
        let now = self.card.cycles();
        // A request whose time has come waits for budget: then the card is told again.
        self.needs.iter().map(|n| if n.due > now { n.due } else { self.pressure_due.max(now + 1) }).min()
    }

    // ---- processes -------------------------------------------------------------------

    /// Gives process `asid` `len` bytes of fresh memory at an address with offset `offset` in its page.
    pub fn alloc(&mut self, asid: u32, len: u64, offset: u64, writable: bool) -> u64 {
        let pages = (offset + len.max(1)).div_ceil(PAGE);
        let first = self.next_vpn;
        self.next_vpn += pages + 1; // one unmapped page behind
        for vpn in first..first + pages {
            let frame = self.mem().alloc(1, Access::None);
            self.vm.insert((asid, vpn), VmPage { frame, writable });
        }
        first * PAGE + offset
    }

    fn each_page(&self, asid: u32, va: u64, len: usize, mut f: impl FnMut(u64, usize, usize)) {
        let mut done = 0;
        while done < len {
            let at = va + done as u64;
            let n = ((PAGE - at % PAGE) as usize).min(len - done);
            let page = self.vm.get(&(asid, at / PAGE)).expect("mapped");
            f(page.frame * PAGE + at % PAGE, done, n);
            done += n;
        }
    }

    /// Reads a process's memory.
    pub fn read(&self, asid: u32, va: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let mut parts = Vec::new();
        self.each_page(asid, va, len, |bus, at, n| parts.push((bus, at, n)));
        for (bus, at, n) in parts {
            self.mem().peek(bus, &mut out[at..at + n]);
        }
        out
    }

    /// Writes a process's memory.
    pub fn write(&self, asid: u32, va: u64, data: &[u8]) {
        self.each_page(asid, va, data.len(), |bus, at, n| self.mem().poke(bus, &data[at..at + n]));
    }

    /// Unmaps pages from a process: what `munmap` leaves. Later requests for them fail.
    pub fn unmap(&mut self, asid: u32, va: u64, len: u64) {
        for vpn in va / PAGE..(va + len).div_ceil(PAGE) {
            self.vm.remove(&(asid, vpn));
        }
    }

    /// Takes memory away from a process as the kernel does (decision 17): the pages go at
    /// once, translations are revoked, a fence waits for DMA already issued, then the frames
    /// are out of the card's reach. Returns the cookie of `CMD_RANGE_REVOKED`, with which
    /// firmware lets go. Panics when the fence takes more than 100000 cycles.
    pub fn revoke(&mut self, asid: u32, va: u64, len: u64) -> u32 {
        self.unmap(asid, va, len);
        let vpns = va / PAGE..(va + len).div_ceil(PAGE);
        let keys: Vec<_> = self.pins.keys().filter(|k| k.0 == asid && vpns.contains(&k.1)).copied().collect();
        for key in &keys {
            self.queue_command(PageRevoke { index: self.pins[key] }.encode());
        }
        self.fence_token += 1;
        let token = self.fence_token;
        self.queue_command(Fence { token }.encode());
        let end = self.card.cycles() + 100_000;
        loop {
            let mut b = [0; 8];
            let at = self.fence;
            self.mem().peek(at, &mut b);
            if u64::from_le_bytes(b) == token {
                break;
            }
            assert!(self.card.cycles() < end, "the fence does not end: {}", self.report());
            self.step();
        }
        for key in keys {
            let Some(index) = self.pins.remove(&key) else { continue };
            let (_, pin) = self.table[&index];
            self.set_dma(pin.frame, Access::None);
            if !pin.evicting {
                // Else its place is free only when the eviction has been answered.
                self.table.remove(&index);
            }
        }
        self.submit(RangeRevoked { asid, va, len }.encode())
    }

    /// Makes a completion queue of `1 << log2` entries.
    pub fn create_cq(&mut self, cqn: u32, uar: u32, log2: u32) {
        let bytes = u64::from(CQE_BYTES) << log2;
        let base = self.mem().alloc(bytes.div_ceil(PAGE), Access::ReadWrite) * PAGE;
        let cq = CqCreate { cqn, uar, log2_entries: log2, base };
        assert_eq!(self.command(cq.encode())[2], CMD_OK, "CMD_CQ_CREATE");
        self.cqs.insert(cqn, Cq { base, log2, ci: 0, uar });
    }

    /// Makes a queue pair. `want.sq_base` and `want.rq_base` are filled in.
    pub fn create_qp(&mut self, want: QpCreate) {
        assert_eq!(self.try_create_qp(want)[2], CMD_OK, "CMD_QP_CREATE");
    }

    /// As [`create_qp`](Self::create_qp); gives the card's answer.
    pub fn try_create_qp(&mut self, want: QpCreate) -> [u32; 16] {
        let mut q = want;
        q.sq_base = self.mem().alloc((u64::from(WQE_BYTES) << q.log2_sq).div_ceil(PAGE), Access::Read) * PAGE;
        q.rq_base = self.mem().alloc((u64::from(WQE_BYTES) << q.log2_rq).div_ceil(PAGE), Access::Read) * PAGE;
        let answer = self.command(q.encode());
        self.qps.insert(
            q.qpn,
            Qp {
                asid: q.asid.into(),
                uar: q.uar.into(),
                sq: q.sq_base,
                rq: q.rq_base,
                log2_sq: q.log2_sq.into(),
                log2_rq: q.log2_rq.into(),
                sq_pi: 0,
                rq_pi: 0,
                bytes: 0,
            },
        );
        answer
    }

    fn wqe(opcode: u8, flags: u8, wr_id: u64, sges: &[(u64, u32)]) -> Vec<u8> {
        let mut b = vec![opcode, flags];
        b.extend((sges.len() as u16).to_le_bytes());
        b.extend(sges.iter().map(|s| s.1).fold(0u32, u32::wrapping_add).to_le_bytes());
        b.extend(wr_id.to_le_bytes());
        for &(va, len) in sges {
            b.extend(va.to_le_bytes());
            b.extend(len.to_le_bytes());
            b.extend([0; 4]);
        }
        b.resize(WQE_BYTES as usize, 0);
        b
    }

    /// Writes a send element without ringing the doorbell.
    pub fn put_send(&mut self, qpn: u32, wr_id: u64, flags: u8, sges: &[(u64, u32)]) {
        let q = self.qps.get_mut(&qpn).expect("QP");
        let at = q.sq + u64::from(u32::from(q.sq_pi) & ((1 << q.log2_sq) - 1)) * u64::from(WQE_BYTES);
        q.sq_pi = q.sq_pi.wrapping_add(1);
        q.bytes = sges.iter().fold(q.bytes, |b, s| b.wrapping_add(s.1));
        self.mem().poke(at, &Self::wqe(OP_SEND, flags, wr_id, sges));
    }

    /// Writes a receive element without ringing the doorbell.
    pub fn put_recv(&mut self, qpn: u32, wr_id: u64, sges: &[(u64, u32)]) {
        let q = self.qps.get_mut(&qpn).expect("QP");
        let at = q.rq + u64::from(u32::from(q.rq_pi) & ((1 << q.log2_rq) - 1)) * u64::from(WQE_BYTES);
        q.rq_pi = q.rq_pi.wrapping_add(1);
        self.mem().poke(at, &Self::wqe(OP_RECV, 0, wr_id, sges));
    }

    /// Rings the send doorbell.
    pub fn ring_send(&mut self, qpn: u32) {
        let q = &self.qps[&qpn];
        let value = u64::from(qpn) | u64::from(q.sq_pi) << 16 | u64::from(q.bytes) << 32;
        let at = u64::from(q.uar) * PAGE + u64::from(DB_SQ);
        self.card.post_write(BAR_DOORBELL, at, value, 8);
    }

    /// Rings the receive doorbell.
    pub fn ring_recv(&mut self, qpn: u32) {
        let q = &self.qps[&qpn];
        let value = u64::from(qpn) | u64::from(q.rq_pi) << 16;
        let at = u64::from(q.uar) * PAGE + u64::from(DB_RQ);
        self.card.post_write(BAR_DOORBELL, at, value, 8);
    }

    /// Posts one send.
    pub fn post_send(&mut self, qpn: u32, wr_id: u64, sges: &[(u64, u32)]) {
        self.put_send(qpn, wr_id, 0, sges);
        self.ring_send(qpn);
    }

    /// Posts receives with one doorbell.
    pub fn post_recvs(&mut self, qpn: u32, recvs: &[(u64, Vec<(u64, u32)>)]) {
        for (wr_id, sges) in recvs {
            self.put_recv(qpn, *wr_id, sges);
        }
        self.ring_recv(qpn);
    }

    /// The address space of a QP.
    pub fn asid_of(&self, qpn: u32) -> u32 {
        self.qps[&qpn].asid
    }

    /// Bus addresses of a QP's send and receive queue.
    pub fn queues(&self, qpn: u32) -> (u64, u64) {
        (self.qps[&qpn].sq, self.qps[&qpn].rq)
    }

    /// Bus addresses of the pages of a process's memory, page by page.
    pub fn bus(&self, asid: u32, va: u64, len: usize) -> Vec<u64> {
        let mut pages = Vec::new();
        self.each_page(asid, va, len, |bus, _, _| pages.push(bus / PAGE * PAGE));
        pages
    }

    /// Takes completions from a CQ and tells the card.
    pub fn poll_cq(&mut self, cqn: u32) -> Vec<Completion> {
        let (base, log2, mut ci, uar) = {
            let c = &self.cqs[&cqn];
            (c.base, c.log2, c.ci, c.uar)
        };
        let mut out = Vec::new();
        loop {
            let at = base + u64::from(ci & ((1 << log2) - 1)) * u64::from(CQE_BYTES);
            let mut m = self.mem();
            let w: [u32; 8] = std::array::from_fn(|i| m.word(at + 4 * i as u64));
            drop(m);
            if (w[7] & PHASE != 0) != ((ci >> log2) & 1 == 0) {
                break;
            }
            ci = ci.wrapping_add(1);
            out.push(Completion {
                wr_id: u64::from(w[0]) | u64::from(w[1]) << 32,
                byte_len: w[2],
                qpn: w[3],
                status: w[4] as u8,
                opcode: (w[4] >> 8) as u8,
                flags: (w[4] >> 16) as u16,
                remaining: w[5],
                credit: w[6],
            });
        }
        if !out.is_empty() {
            self.cqs.get_mut(&cqn).expect("CQ").ci = ci;
            let value = u64::from(cqn) | u64::from(ci & 0xffff) << 16;
            self.card.post_write(BAR_DOORBELL, u64::from(uar) * PAGE + u64::from(DB_CQ), value, 8);
        }
        out
    }

    /// Takes the first event of `kind` that waits.
    pub fn take_event(&mut self, kind: u32) -> Option<[u32; 16]> {
        let at = self.events.iter().position(|w| w[0] & 0xff == kind)?;
        self.events.remove(at)
    }
}

// ---- the wire ------------------------------------------------------------------------

/// What happens to frames, as a function of (seed, direction, frame index) alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame comes twice.
    pub dup: f64,
    /// Probability that a frame is overtaken by later ones.
    pub reorder: f64,
    /// Probability that a bit of a frame flips.
    pub corrupt: f64,
    /// Seed.
    pub seed: u64,
}

/// One direction of the wire.
#[derive(Default)]
pub struct Wire {
    /// Frames under way, by the receiver's arrival cycle.
    flying: VecDeque<(u64, Vec<u8>)>,
    /// Frames that are held, oldest first.
    pub held: VecDeque<Vec<u8>>,
    hold: Option<fn(&[u8]) -> bool>,
    /// Every frame that the sender has put on the wire, in order.
    pub sent: Vec<Vec<u8>>,
    index: u64,
    /// Frames lost, doubled, reordered, corrupted.
    pub faults: [u64; 4],
}

/// Hosts with a wire between the first two.
pub struct Net {
    /// The hosts: one (loopback only) or two.
    pub hosts: Vec<Host>,
    /// `wires[d]`: what host `d` sends.
    pub wires: [Wire; 2],
    /// Cycles a frame is under way.
    pub latency: u64,
    /// What the wire does to frames.
    pub faults: Faults,
}

impl Net {
    /// Joins hosts.
    pub fn new(hosts: Vec<Host>) -> Net {
        Net { hosts, wires: Default::default(), latency: 300, faults: Faults::default() }
    }

    /// Keeps the frames that host `d` sends and for which `which` says so at the wire.
    pub fn hold(&mut self, d: usize, which: fn(&[u8]) -> bool) {
        self.wires[d].hold = Some(which);
    }

    /// Lets the oldest `n` held frames of host `d` go and keeps holding.
    pub fn release(&mut self, d: usize, n: usize) {
        for _ in 0..n {
            let frame = self.wires[d].held.pop_front().expect("a held frame");
            self.fly(d, frame, 0);
        }
    }

    /// Lets all held frames of host `d` go and holds no more.
    pub fn unhold(&mut self, d: usize) {
        let n = self.wires[d].held.len();
        self.release(d, n);
        self.wires[d].hold = None;
    }

    fn fly(&mut self, d: usize, frame: Vec<u8>, extra: u64) {
        let at = self.hosts[1 - d].card.cycles() + self.latency + extra;
        let wire = &mut self.wires[d];
        let place = wire.flying.iter().position(|f| f.0 > at).unwrap_or(wire.flying.len());
        wire.flying.insert(place, (at, frame));
    }

    fn carry(&mut self, d: usize, mut frame: Vec<u8>) {
        let faults = self.faults;
        let wire = &mut self.wires[d];
        wire.sent.push(frame.clone());
        if wire.hold.is_some_and(|which| which(&frame)) {
            wire.held.push_back(frame);
            return;
        }
        let mut rng = Rng(faults.seed ^ (d as u64) << 63 ^ wire.index.wrapping_mul(0x2545_f491_4f6c_dd1d));
        wire.index += 1;
        rng.draw();
        let (lost, dup, reordered, corrupt) =
            (rng.chance(faults.loss), rng.chance(faults.dup), rng.chance(faults.reorder), rng.chance(faults.corrupt));
        if lost {
            wire.faults[0] += 1;
            return;
        }
        if corrupt {
            wire.faults[3] += 1;
            let bit = rng.below(frame.len() as u64 * 8);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let extra = if reordered {
            wire.faults[2] += 1;
            rng.between(1000, 6000)
        } else {
            0
        };
        if dup {
            wire.faults[1] += 1;
            let after = rng.between(0, 3000);
            self.fly(d, frame.clone(), extra + after);
        }
        self.fly(d, frame, extra);
    }

    /// One clock of every host.
    pub fn step(&mut self) {
        for d in 0..self.hosts.len() {
            self.hosts[d].step();
            while let Some(frame) = self.hosts[d].card.take_tx() {
                if self.hosts.len() == 2 {
                    self.carry(d, frame.data);
                } else {
                    // Whether somebody else has its address is asked by every card that gets one.
                    let probe = frame.data.starts_with(&[0xff; 6]) && frame.data.get(12..14) == Some(&[8, 6]);
                    assert!(probe, "a frame left a host that has no wire");
                }
            }
        }
        for d in 0..2 {
            while let Some(&(at, _)) = self.wires[d].flying.front() {
                if at > self.hosts[1 - d].card.cycles() {
                    break;
                }
                let (_, frame) = self.wires[d].flying.pop_front().expect("front");
                self.hosts[1 - d].card.push_rx(frame);
            }
        }
    }

    /// Cycles that may be skipped: until something is bound to happen. `None`: now.
    /// `Some(u64::MAX)`: nothing will ever happen by itself.
    fn gap(&self) -> Option<u64> {
        let mut gap = u64::MAX;
        for (d, host) in self.hosts.iter().enumerate() {
            if !host.card.idle() || !host.cmd_queue.is_empty() {
                return None;
            }
            let now = host.card.cycles();
            let wire = &self.wires[1 - d];
            let times = [host.card.timer(), host.next_action(), wire.flying.front().map(|f| f.0)];
            for at in times.into_iter().flatten() {
                gap = gap.min(at.checked_sub(now).filter(|&g| g > 0)?);
            }
        }
        Some(gap)
    }

    /// Steps until `ready` says so; skips time in which nothing happens. Panics with a
    /// report after `limit` cycles of the first card.
    pub fn run_until(&mut self, what: &str, limit: u64, mut ready: impl FnMut(&mut Net) -> bool) {
        let end = self.hosts[0].card.cycles() + limit;
        let mut n = 0u32;
        loop {
            // What tests look at changes with completions and events: a look each few cycles will do.
            if n.is_multiple_of(16) {
                if ready(self) {
                    return;
                }
                if self.hosts[0].card.cycles() > end {
                    self.fail(what);
                }
                if let Some(gap) = self.gap().filter(|&g| g > 32 && g < u64::MAX) {
                    self.skip(gap - 16);
                }
            }
            n = n.wrapping_add(1);
            self.step();
        }
    }

    /// Steps until no card has work, no frame flies and no page request waits, and no
    /// timer is due within `margin` cycles.
    pub fn settle(&mut self, margin: u64) {
        let mut calm = 0;
        let end = self.hosts[0].card.cycles() + 50_000_000;
        // A posted write needs a few clocks to make a card busy.
        while calm < 64 {
            match self.gap() {
                Some(gap) if gap > margin => calm += 1,
                _ => calm = 0,
            }
            if self.hosts[0].card.cycles() > end {
                self.fail("cards do not settle");
            }
            self.step();
        }
    }

    fn skip(&mut self, gap: u64) {
        for host in &mut self.hosts {
            let at = host.card.cycles() + gap;
            host.card.skip_to(at);
        }
    }

    fn fail(&mut self, what: &str) -> ! {
        let reports: Vec<String> = self.hosts.iter_mut().map(Host::report).collect();
        panic!("gave up waiting for: {what}\n{}", reports.join("\n"));
    }

    /// Connects QP `a` of host `from` to QP `b` of host `to` by service `service`.
    pub fn connect(&mut self, from: usize, a: u32, to: usize, b: u32, service: u32) {
        let listen = self.hosts[to].submit(Listen { service }.encode());
        self.run_until("CMD_CM_LISTEN", 10_000_000, |n| {
            n.hosts[to].done(listen).map(|w| assert_eq!(w[2], CMD_OK)).is_some()
        });
        self.join(from, a, to, b, service);
    }

    /// As [`Net::connect`], to a service that is listening.
    pub fn join(&mut self, from: usize, a: u32, to: usize, b: u32, service: u32) {
        let ask = Connect { qpn: a, ipv4: self.hosts[to].config.ipv4, service, ..Connect::default() };
        let connect = self.hosts[from].submit(ask.encode());
        self.run_until("CMD_CM_CONNECT", 10_000_000, |n| {
            n.hosts[from].done(connect).map(|w| assert_eq!(w[2], CMD_OK)).is_some()
        });
        let mut request = [0; 16];
        self.run_until("EV_CM_REQUEST", 500_000_000, |n| {
            n.hosts[to].take_event(EV_CM_REQUEST).map(|w| request = w).is_some()
        });
        let request = CmRequest::decode(&request);
        assert_eq!(request.service, service);
        let answer = Accept { request: request.request, qpn: b, ..Accept::default() };
        let accept = self.hosts[to].submit(answer.encode());
        self.run_until("CMD_CM_ACCEPT", 10_000_000, |n| {
            n.hosts[to].done(accept).map(|w| assert_eq!(w[2], CMD_OK)).is_some()
        });
        for host in [from, to] {
            let mut seen = [0; 16];
            self.run_until("EV_CM_ESTABLISHED", 500_000_000, |n| {
                n.hosts[host].take_event(EV_CM_ESTABLISHED).map(|w| seen = w).is_some()
            });
        }
    }

    /// Steps until nothing is pinned on any host. Pages that were installed for a request that
    /// nobody waits for any more have no release: idle ones are evicted now and then.
    pub fn wait_unpinned(&mut self) {
        let mut looks = 0u32;
        self.run_until("nothing pinned", 20_000_000, |n| {
            if looks.is_multiple_of(1000) {
                n.hosts.iter_mut().for_each(Host::evict_idle);
            }
            looks += 1;
            n.hosts.iter().all(|h| h.pinned() == 0 && h.needs.is_empty())
        });
    }
}

/// What a test wants to know of a frame on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Opcode.
    pub opcode: u8,
    /// Destination QPN.
    pub qpn: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// What follows the BTH, without padding and iCRC.
    pub body: Vec<u8>,
}

/// Reads a frame as RoCEv2; `None` when it is something else.
pub fn roce(frame: &[u8]) -> Option<Bth> {
    if frame.len() < 58 || frame[12..14] != [8, 0] || frame[23] != 17 || frame[36..38] != 4791u16.to_be_bytes() {
        return None;
    }
    let ip_len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let end = 14 + ip_len - 4;
    let pad = usize::from(frame[43] >> 4 & 3);
    Some(Bth {
        opcode: frame[42],
        qpn: u32::from_be_bytes([0, frame[47], frame[48], frame[49]]),
        psn: u32::from_be_bytes([0, frame[51], frame[52], frame[53]]),
        body: frame[54..end - pad].to_vec(),
    })
}

/// Whether a frame carries data (an RC SEND) of a data QP.
pub fn is_data(frame: &[u8]) -> bool {
    roce(frame).is_some_and(|b| b.qpn >= FIRST_QPN && b.opcode <= 0x05)
}

/// Bytes of the placement header in each data packet (docs/reference/wire.md: selective repeat between Berth cards).
const PLACEMENT: usize = 4;

/// Data bytes of each data packet in `frames` for QP `qpn`, in order of sending.
pub fn data_lengths(frames: &[Vec<u8>], qpn: u32) -> Vec<usize> {
    let data = frames.iter().filter_map(|f| roce(f)).filter(|b| b.qpn == qpn);
    data.filter_map(|b| match b.opcode {
        0x00 | 0x01 => Some(b.body.len().saturating_sub(PLACEMENT)),
        0x03 | 0x05 => Some(b.body.len().saturating_sub(4 + PLACEMENT)),
        _ => None,
    })
    .collect()
}

/// Data bytes of each piece in `frames` for QP `qpn`, of a wire without retransmissions.
pub fn piece_lengths(frames: &[Vec<u8>], qpn: u32) -> Vec<usize> {
    let mut pieces = Vec::new();
    let mut open = 0;
    for b in frames.iter().filter_map(|f| roce(f)).filter(|b| b.qpn == qpn) {
        match b.opcode {
            0x00 | 0x01 => open += b.body.len().saturating_sub(PLACEMENT),
            0x03 | 0x05 => pieces.push(std::mem::take(&mut open) + b.body.len().saturating_sub(4 + PLACEMENT)),
            _ => {}
        }
    }
    pieces
}

/// Credit lists in `frames` for the sending QP `qpn`, each once, in order of their numbers.
///
/// The formats are in docs/reference/wire.md: a control message has 3 words of header, then records of
/// (type | words << 8 | QPN << 16) and a body; type 1 is a list: epoch, first number, sizes. A datagram has
/// one such record behind its 2 words of DETH.
pub fn credit_lists(frames: &[Vec<u8>], qpn: u32) -> Vec<Vec<u32>> {
    const LIST: u32 = 1;
    let mut lists = BTreeMap::new();
    for message in frames.iter().filter_map(|f| roce(f)).filter(|b| b.qpn == CONTROL_QPN) {
        let mut at = match message.opcode {
            0x04 => 3,
            0x64 => 2,
            _ => continue,
        };
        let words: Vec<u32> =
            message.body.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("4 bytes"))).collect();
        while at < words.len() {
            let n = (words[at] >> 8 & 0xff) as usize;
            assert!(n > 0 && at + n <= words.len(), "malformed control message {words:x?}");
            if words[at] & 0xff == LIST && words[at] >> 16 == qpn {
                lists.insert(words[at + 2], words[at + 3..at + n].to_vec());
            }
            at += n;
        }
    }
    lists.into_values().collect()
}
