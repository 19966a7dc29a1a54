// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host with its card, and the driver's work: firmware, rings, events, page service.

use crate::memory::{Access, Memory, PAGE};
use crate::pager::{PageAnswer, Pager};
use crate::rings::{Commands, Events};
use berth_abi::counters::*;
use berth_abi::host::*;
use berth_abi::message::{COOKIE, CmdDone, Entry, FwLog, NetConfig, Pressure, Typed};
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_random::Rng;
use berth_rtl::{BAR_CONTROL, Card, CardConfig, PcieLimits};
use std::collections::{BTreeMap, HashMap, VecDeque};

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

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) base: u64,
    pub(crate) log2: u32,
    pub(crate) ci: u32,
    pub(crate) uar: u32,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) asid: u32,
    pub(crate) uar: u32,
    pub(crate) sq: u64,
    pub(crate) rq: u64,
    pub(crate) log2_sq: u32,
    pub(crate) log2_rq: u32,
    pub(crate) sq_pi: u16,
    pub(crate) rq_pi: u16,
    pub(crate) bytes: u32,
}

/// One host with its card.
pub struct Host {
    /// The card.
    pub card: Card,
    /// Its memory.
    pub memory: Memory,
    /// Its page service.
    pub pager: Pager,
    /// Events of firmware that nobody has taken yet.
    pub events: VecDeque<Entry>,
    /// Log bytes (rzCOBS) of the firmware.
    pub log: Vec<u8>,
    config: HostConfig,
    commands: Commands,
    event_ring: Events,
    /// Interrupts that have been looked at.
    interrupts: u32,
    pub(crate) fence: u64,
    pub(crate) fence_token: u64,
    cookie: u32,
    done: BTreeMap<u32, CmdDone>,
    /// When the card may next be told that page requests wait for budget.
    pressure_due: u64,
    pub(crate) next_vpn: u64,
    pub(crate) cqs: HashMap<u32, Cq>,
    pub(crate) qps: HashMap<u32, Qp>,
    running: bool,
}

const CMD_LOG2: u32 = 6;
const EVT_LOG2: u32 = 8;
/// Cycles between two `CMD_PRESSURE`.
const PRESSURE_EVERY: u64 = 20_000;

impl Host {
    /// A host whose card has power but no firmware.
    #[must_use]
    pub fn new(config: HostConfig) -> Host {
        let memory = Memory::new(config.seed);
        let ring = |log2: u32, dma| memory.alloc((u64::from(ENTRY_BYTES) << log2).div_ceil(PAGE), dma);
        let commands = Commands::new(ring(CMD_LOG2, Access::Read), CMD_LOG2);
        let event_ring = Events::new(ring(EVT_LOG2, Access::ReadWrite), EVT_LOG2);
        let fence = memory.alloc(1, Access::ReadWrite) + 64;
        Host {
            card: Card::new(config.card.clone(), Box::new(memory.clone())),
            memory,
            pager: Pager::new(config.budget, config.page_latency),
            events: VecDeque::new(),
            log: Vec::new(),
            next_vpn: 0x5_5000_0000 + Rng(config.seed).below(1 << 20),
            config,
            commands,
            event_ring,
            interrupts: 0,
            fence,
            fence_token: 0,
            cookie: 0,
            done: BTreeMap::new(),
            pressure_due: 0,
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
        self.card.reg(offset)
    }

    /// Writes a register of BAR0.
    pub fn set_reg(&mut self, offset: u32, value: u32) {
        self.card.set_reg(offset, value);
    }

    /// RTL counter `C_*`.
    pub fn rtl_counter(&mut self, index: u32) -> u64 {
        self.card.counter(index)
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
        self.commands.forget();
        self.events.clear();
        self.done.clear();
        self.pager.reset(&self.memory);
        self.cqs.clear();
        self.qps.clear();
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
        assert_eq!(self.command(name.encode()).status, CMD_OK, "CMD_NET_CONFIG");
    }

    /// Its MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let ip = self.config.ipv4.to_be_bytes();
        [2, 0xbe, ip[0], ip[1], ip[2], ip[3]]
    }

    /// Sets up command and event ring, limits, fence address, and lets the card do DMA.
    pub fn start_rings(&mut self) {
        let (payload, read_request) = self.config.limits;
        self.card.set_pcie_limits(PcieLimits::from_log2(payload, read_request));
        self.commands.attach(&mut self.card, &self.memory);
        self.event_ring.attach(&mut self.card, &self.memory);
        self.card.mmio_write(BAR_CONTROL, HOST_FENCE_LO.into(), self.fence, 8);
        self.set_reg(HOST_DMA_ENABLE, 1);
        self.event_ring.tell(&mut self.card, true);
        self.running = true;
    }

    /// DMA outside of what was mapped for the card: must stay empty (invariant 4).
    #[must_use]
    pub fn violations(&self) -> Vec<(u64, bool)> {
        self.memory.violations()
    }

    // ---- commands and events -------------------------------------------------------

    pub(crate) fn queue_commands(&mut self, entries: impl IntoIterator<Item = Entry>) {
        entries.into_iter().for_each(|entry| self.commands.put(entry));
        if self.running {
            self.commands.tell(&mut self.card, &self.memory);
        }
    }

    /// Queues a firmware command (its cookie is filled in) and returns its cookie for [`Host::done`].
    pub fn submit(&mut self, mut words: Entry) -> u32 {
        self.cookie += 1;
        words[COOKIE] = self.cookie;
        self.queue_commands([words]);
        self.cookie
    }

    /// The answer to a command, once.
    pub fn done(&mut self, cookie: u32) -> Option<CmdDone> {
        self.done.remove(&cookie)
    }

    /// Carries out a firmware command that this host's card can finish alone.
    pub fn command(&mut self, words: Entry) -> CmdDone {
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
        let start = self.event_ring.ci;
        while let Some(event) = self.event_ring.take(&self.memory) {
            if !self.pager.event(&event, self.card.cycles(), &self.memory) {
                self.event(event);
            }
        }
        self.tell_evictions();
        if start != self.event_ring.ci {
            self.event_ring.tell(&mut self.card, true);
        }
    }

    fn event(&mut self, w: Entry) {
        if let Some(done) = CmdDone::of(&w) {
            self.done.insert(done.cookie, done);
        } else if let Some(log) = FwLog::of(&w) {
            let bytes: Vec<u8> = log.data.iter().flat_map(|x| x.to_le_bytes()).collect();
            self.log.extend_from_slice(&bytes[..log.len as usize]);
        } else {
            self.events.push_back(w);
        }
    }

    fn tell_evictions(&mut self) {
        let evictions = self.pager.evictions();
        self.queue_commands(evictions);
    }

    /// Asks the card to give up every installed page that is not in use.
    pub fn evict_idle(&mut self) {
        self.pager.evict_idle();
        self.tell_evictions();
    }

    /// Bytes pinned now.
    #[must_use]
    pub fn pinned(&self) -> u64 {
        self.pager.pinned()
    }

    fn serve_pages(&mut self) {
        let now = self.card.cycles();
        let (commands, short) = self.pager.serve(now, &self.memory);
        self.queue_commands(commands);
        if short > 0 && now >= self.pressure_due {
            self.pressure_due = now + PRESSURE_EVERY;
            self.submit(Pressure { asid: 0, bytes: short }.encode());
        }
    }

    /// What becomes of page requests of `asid` that come from now on; `None`: what should. Those that had no answer
    /// so far get theirs, unless there is still to be none.
    pub fn set_page_answer(&mut self, asid: u32, answer: Option<PageAnswer>) {
        self.pager.set_answer(asid, answer, self.card.cycles());
    }

    /// One clock of the card, and what the driver does about it.
    pub fn step(&mut self) {
        self.card.step();
        if !self.running {
            return;
        }
        let interrupts = self.memory.interrupts();
        if std::mem::replace(&mut self.interrupts, interrupts) != interrupts {
            self.take_events();
        }
        if self.pager.waits() {
            self.serve_pages();
        }
        self.queue_commands([]);
    }

    /// Whether it has commands that the ring has no room for.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.commands.waits()
    }

    /// When it next acts by itself (a page request's answer), if ever.
    #[must_use]
    pub fn next_action(&self) -> Option<u64> {
        let now = self.card.cycles();
        // A request whose time has come waits for budget, of which the card is told again, or for an eviction.
        self.pager.dues().map(|due| if due > now { due } else { self.pressure_due.max(now + 1) }).min()
    }

    /// Takes the first event of a type that waits.
    pub fn take_event<T: Typed>(&mut self) -> Option<T> {
        let (at, event) = self.events.iter().enumerate().find_map(|(at, w)| Some((at, T::of(w)?)))?;
        self.events.remove(at);
        Some(event)
    }
}
