// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Verilated card in a modelled slot: host memory, MMIO, interrupts, frames.

use crate::ffi::{Core, Inputs, Outputs};
use berth_abi::host::HOST_COUNTERS;
use berth_random::Rng;
use std::collections::VecDeque;
use std::path::Path;

/// `bar` of the control registers (BAR0).
pub const BAR_CONTROL: u8 = 0;
/// `bar` of the doorbell pages (BAR2).
pub const BAR_DOORBELL: u8 = 1;

/// Cycles after which an MMIO access counts as unanswered; a card reset takes the longest.
const MMIO_PATIENCE: u64 = 1_000_000;
/// Cycles within which a card is idle after power-up.
const POWER_UP: u64 = 100_000;
/// Read completion boundary of PCI Express: completions are cut at multiples of it.
const COMPLETION_BOUNDARY: u64 = 64;

/// A host memory access failed: nothing there, or not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError;

/// The memory that the card's DMA reaches, and its interrupts.
pub trait HostMemory {
    /// Reads `buf.len()` bytes at bus address `addr`.
    ///
    /// # Errors
    /// When some of it cannot be read; the card gets an error completion.
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), HostError>;

    /// Writes `data` at bus address `addr`.
    ///
    /// # Errors
    /// When some of it cannot be written; posted writes have no answer, so the card does not see it.
    fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), HostError>;

    /// MSI-X vector `vector` was raised. All writes before it have been done.
    fn msix(&mut self, vector: u32);
}

/// What the host does to one read, where a read is answered in several completions to the one that is meant: numbered from 0,
/// the last one if there are fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// In place of completion `at` comes an answer without data, which ends the read: unsupported request, completer abort.
    Refused {
        /// Which completion.
        at: usize,
    },
    /// Completion `at` is marked as poisoned, on its beat `beat` (the last one, if it has fewer) only; the others come as usual.
    Poisoned {
        /// Which completion.
        at: usize,
        /// Which beat of it.
        beat: usize,
    },
    /// Completion `at` does not come; the others do.
    Dropped {
        /// Which completion.
        at: usize,
    },
    /// Completion `at` comes twice.
    Doubled {
        /// Which completion.
        at: usize,
    },
    /// Completion `at` says that its bytes are others of the read: so many further on.
    Moved {
        /// Which completion.
        at: usize,
        /// Bytes.
        by: i32,
    },
    /// Completion `at` has 64 bytes more than are due.
    Longer {
        /// Which completion.
        at: usize,
    },
    /// Nothing comes.
    Never,
    /// Everything comes so much later than usual, and holds up no other read.
    Late {
        /// Cycles.
        cycles: u64,
    },
}

impl ReadFault {
    /// Which completion it is about.
    fn at(self) -> Option<usize> {
        match self {
            Self::Refused { at }
            | Self::Poisoned { at, .. }
            | Self::Dropped { at }
            | Self::Doubled { at }
            | Self::Moved { at, .. }
            | Self::Longer { at } => Some(at),
            Self::Never | Self::Late { .. } => None,
        }
    }
}

/// Says what happens to a read of so many bytes at an address.
type ReadFaults = Box<dyn FnMut(u64, usize) -> Option<ReadFault> + Send>;

/// How the modelled slot behaves.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// Bits of a beat on the MAC port: one of [`crate::WIDTHS`]. The host port is twice as wide.
    pub data_w: usize,
    /// Bytes per cycle that the host port carries in each direction, at most; infinite: a beat in every cycle.
    pub host_rate: f64,
    /// Cycles from a read request to the first beat of its completion.
    pub read_latency: u64,
    /// Read requests that the host takes before it lets the card wait (1 to 64).
    pub outstanding: usize,
    /// Completions of different requests come in random order and with random delay.
    pub out_of_order: bool,
    /// Completions are split at random multiples of 64 bytes; else only where the slot's maximum
    /// payload, counted from multiples of it, ends.
    pub split: bool,
    /// Percentage of cycles in which a port that could take something does not.
    pub stall_percent: u8,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for CardConfig {
    /// 1 µs of read latency at 250 MHz, 64 requests outstanding, split completions in order; width from
    /// the environment as [`data_w`] says.
    fn default() -> Self {
        Self {
            data_w: data_w(),
            host_rate: f64::INFINITY,
            read_latency: 250,
            outstanding: 64,
            out_of_order: false,
            split: true,
            stall_percent: 0,
            seed: 1,
        }
    }
}

/// The width of cards where nothing else is said: `BERTH_DATA_W`, else 64. So the same benches run at every width.
///
/// # Panics
/// When the variable is not a number.
#[must_use]
pub fn data_w() -> usize {
    std::env::var("BERTH_DATA_W")
        .map_or(64, |text| text.parse().unwrap_or_else(|_| panic!("BERTH_DATA_W={text} is not a number")))
}

/// What moved over a port since [`Card::reset_ports`]. A cycle counts as [`Card::cycles`] does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Beats.
    pub beats: u64,
    /// Bytes in them that count.
    pub bytes: u64,
    /// Cycle of the first beat.
    pub first: u64,
    /// Cycle of the last beat.
    pub last: u64,
    /// Cycles in which a beat was offered and not taken.
    pub waits: u64,
}

/// What a direction of the host port may still carry: a beat moves when it is not negative.
#[derive(Clone, Copy, Debug, Default)]
struct Budget(f64);

impl Budget {
    /// Another cycle; what is not used is lost after two.
    fn cycle(&mut self, rate: f64) {
        self.0 = if rate.is_finite() { (self.0 + rate).min(2.0 * rate) } else { 0.0 };
    }

    fn allows(self) -> bool {
        self.0 >= 0.0
    }

    fn spend(&mut self, bytes: usize) {
        self.0 -= bytes as f64;
    }
}

impl Port {
    fn beat(&mut self, now: u64, bytes: usize) {
        if self.beats == 0 {
            self.first = now;
        }
        self.last = now;
        self.beats += 1;
        self.bytes += bytes as u64;
    }

    /// Cycles from the first beat to the last one, both included.
    #[must_use]
    pub fn span(&self) -> u64 {
        if self.beats == 0 { 0 } else { self.last - self.first + 1 }
    }

    /// Cycles of the span in which no beat moved.
    #[must_use]
    pub fn bubbles(&self) -> u64 {
        self.span() - self.beats
    }
}

/// The ports that carry data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Completions of reads of host memory.
    pub completions: Port,
    /// Posted writes to host memory.
    pub writes: Port,
    /// Frames to the MAC.
    pub tx: Port,
    /// Frames from the MAC.
    pub rx: Port,
}

/// What can happen at a port that carries data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The card has asked for host memory.
    ReadRequest,
    /// It has got the last byte of what it asked for.
    ReadAnswered,
    /// The first beat of a posted write.
    WriteBegun,
    /// Its last beat.
    Written,
    /// The first beat of a frame to the MAC.
    FrameBegun,
    /// Its last beat.
    FrameSent,
    /// The last beat of a frame from the MAC.
    FrameTaken,
}

/// Something that happened at a port: see [`Card::record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// When, as [`Card::cycles`] counts.
    pub cycle: u64,
    /// What.
    pub what: Move,
    /// Bus address of the range of host memory; 0 of a frame.
    pub addr: u64,
    /// Bytes of the range or of the frame; 0 while that is not known.
    pub len: usize,
}

/// A frame that the card has sent: without preamble and FCS, with iCRC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its bytes, from the destination MAC address on.
    pub data: Vec<u8>,
    /// Cycle of its first beat, as [`Card::cycles`] counts.
    pub start_cycle: u64,
    /// Cycle of its last beat.
    pub end_cycle: u64,
    /// Beats that it took.
    pub beats: u64,
}

/// An MMIO access that waits for the card to take it.
#[derive(Debug)]
struct Mmio {
    write: bool,
    bar: u8,
    addr: u32,
    data: u64,
    strobe: u8,
}

/// A read request of the card.
#[derive(Debug)]
struct Read {
    tag: u8,
    addr: u64,
    len: usize,
    /// `None`: the host refuses it.
    data: Option<Vec<u8>>,
    /// Cycle from which it may be answered.
    due: u64,
    /// Bytes answered, completions.
    sent: usize,
    completions: usize,
    fault: Option<ReadFault>,
}

/// The completion on the bus.
#[derive(Clone, Debug)]
struct Completion {
    /// Index in `reads`, bytes of it that are answered; none of a completion that the host makes up.
    read: Option<(usize, usize)>,
    /// What it says.
    tag: u8,
    off: u16,
    /// Its bytes; none: an answer without data.
    data: Vec<u8>,
    /// Beat that is marked as an error.
    poisoned: Option<usize>,
    /// Bytes of it that have been taken.
    done: usize,
    /// It comes a second time.
    doubled: bool,
}

/// A card with its slot. Deterministic: a function of its inputs and the seed.
pub struct Card {
    core: Core,
    inputs: Inputs,
    outputs: Outputs,
    config: CardConfig,
    host: Box<dyn HostMemory + Send>,
    random: Rng,
    /// Cycles since `new`, over card resets.
    now: u64,
    mmio: VecDeque<Mmio>,
    mmio_results: VecDeque<u64>,
    mmio_reads: usize,
    reads: Vec<Read>,
    completion: Option<Completion>,
    /// Completions that nobody has asked for.
    strays: VecDeque<Completion>,
    faults: Option<ReadFaults>,
    msix_ready: bool,
    writes_ready: bool,
    write: Option<(u64, usize, Vec<u8>)>,
    tx: VecDeque<Frame>,
    tx_partial: Option<Frame>,
    tx_ready: bool,
    rx: VecDeque<(Vec<u8>, bool)>,
    rx_sent: usize,
    rx_offered: u64,
    debug: Option<(bool, u32, u32)>,
    debug_result: Option<u32>,
    limits: Allowed,
    stalled: bool,
    /// Bytes of a beat of the MAC port.
    beat: usize,
    /// Bytes of a beat of the host port.
    host_beat: usize,
    to_host: Budget,
    from_host: Budget,
    ports: Ports,
    /// What has happened at the ports, if it is recorded.
    record: Option<Vec<Moved>>,
}

/// The largest transfers that the slot allows, as in Device Control of configuration space (PCI Express 7.5.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcieLimits {
    payload: u8,
    read_request: u8,
}

impl PcieLimits {
    /// Maximum payload 256 bytes, maximum read request 512.
    pub const USUAL: Self = Self { payload: 1, read_request: 2 };

    /// The largest write and the largest read request, as log2 of bytes.
    ///
    /// # Panics
    /// When one is not from 7 to 12.
    #[must_use]
    pub fn from_log2(payload: u32, read_request: u32) -> Self {
        let code = |log2: u32| {
            assert!((7..=12).contains(&log2), "PCI Express has no transfers of 2^{log2} bytes");
            log2 as u8 - 7
        };
        Self { payload: code(payload), read_request: code(read_request) }
    }

    /// From the register Device Control; its reserved codes are kept.
    #[must_use]
    pub fn from_device_control(control: u16) -> Self {
        Self { payload: (control >> 5 & 7) as u8, read_request: (control >> 12 & 7) as u8 }
    }

    /// Bytes of the largest write, and of the largest completion. Reserved codes allow the smallest size.
    #[must_use]
    pub fn payload(self) -> usize {
        Self::bytes(self.payload)
    }

    /// Bytes of the largest read request.
    #[must_use]
    pub fn read_request(self) -> usize {
        Self::bytes(self.read_request)
    }

    fn bytes(code: u8) -> usize {
        if code > 5 { 128 } else { 128 << code }
    }
}

/// What the slot allows, and what it allowed until it was changed: the card may still carry out what it had begun.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    now: PcieLimits,
    before: PcieLimits,
    /// Transfers that may still be larger than now.
    older: u32,
}

impl Allowed {
    /// Transfers that the card may have begun when the limits change: what lies cut in its queues, with much to spare.
    const BEGUN: u32 = 64;

    /// Holds a transfer of `len` bytes to the limits; `size` is the one that is meant.
    fn check(&mut self, what: &str, len: usize, size: fn(PcieLimits) -> usize) {
        let limit = size(self.now);
        if len > limit && self.older > 0 && len <= size(self.before) {
            self.older -= 1;
            return;
        }
        assert!(len > 0 && len <= limit, "{what} of {len} bytes, the slot allows {limit}");
    }
}

/// Nothing is offered to the card.
fn quiet_inputs(limits: PcieLimits) -> Inputs {
    Inputs { cfg_max_payload: limits.payload, cfg_max_read_req: limits.read_request, ..Inputs::default() }
}

impl std::fmt::Debug for Card {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Card")
            .field("now", &self.now)
            .field("idle", &self.idle())
            .field("reads", &self.reads.len())
            .finish_non_exhaustive()
    }
}

impl Card {
    /// A card that has just been powered up: out of reset, without firmware.
    #[must_use]
    pub fn new(config: CardConfig, host: Box<dyn HostMemory + Send>) -> Self {
        let mut card = Self {
            core: Core::new(config.data_w),
            beat: config.data_w / 8,
            host_beat: 2 * config.data_w / 8,
            to_host: Budget::default(),
            from_host: Budget::default(),
            ports: Ports::default(),
            record: None,
            inputs: quiet_inputs(PcieLimits::USUAL),
            outputs: Outputs::default(),
            random: Rng(config.seed),
            config,
            host,
            now: 0,
            mmio: VecDeque::new(),
            mmio_results: VecDeque::new(),
            mmio_reads: 0,
            reads: Vec::new(),
            completion: None,
            strays: VecDeque::new(),
            faults: None,
            msix_ready: true,
            writes_ready: true,
            write: None,
            tx: VecDeque::new(),
            tx_partial: None,
            tx_ready: true,
            rx: VecDeque::new(),
            rx_sent: 0,
            rx_offered: 0,
            debug: None,
            debug_result: None,
            limits: Allowed { now: PcieLimits::USUAL, before: PcieLimits::USUAL, older: 0 },
            stalled: false,
        };
        let reset = Inputs { rst: 1, ..card.inputs };
        for _ in 0..4 {
            card.core.step(&reset);
        }
        // the card holds its own reset for some cycles, and its tables are being cleared
        card.core.settle(&card.inputs, &mut card.outputs);
        card.run_until_idle(POWER_UP);
        card
    }

    /// One clock.
    pub fn step(&mut self) {
        self.present();
        let mut seen = Outputs::default();
        self.core.settle(&self.inputs, &mut seen);
        self.core.edge(&mut self.outputs);
        self.now += 1 + self.inputs.skip;
        self.take(&seen);
    }

    /// `cycles` clocks; faster than as many calls of [`Card::step`].
    pub fn run(&mut self, cycles: u64) {
        let mut left = cycles;
        while left > 0 {
            let quiet = self.quiet().min(left);
            if quiet > 1 {
                self.inputs = quiet_inputs(self.limits.now);
                let mut seen = Outputs::default();
                self.core.settle(&self.inputs, &mut seen);
                let done = self.core.run(quiet, &mut self.outputs);
                self.now += done;
                left -= done;
                if done > 0 && left == 0 {
                    break;
                }
            }
            self.step();
            left -= 1;
        }
    }

    /// Clocks until [`Card::idle`], at most `limit` cycles; whether it is idle.
    pub fn run_until_idle(&mut self, limit: u64) -> bool {
        let end = self.now + limit;
        while !self.idle() {
            if self.now >= end {
                return false;
            }
            let quiet = self.quiet().min(end - self.now);
            if quiet > 1 {
                self.inputs = quiet_inputs(self.limits.now);
                let mut seen = Outputs::default();
                self.core.settle(&self.inputs, &mut seen);
                self.now += self.core.run(quiet, &mut self.outputs);
                if self.now >= end || self.idle() {
                    return self.idle();
                }
            }
            self.step();
        }
        true
    }

    /// The core waits (or is in reset), no engine is busy, and nothing waits at a port:
    /// only the timer or an input from outside can change anything.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.outputs.idle != 0 && self.quiet() == u64::MAX && self.reads.is_empty() && !self.timer_due()
    }

    /// Cycles since the card was made, skipped ones included; goes on over card resets.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.now
    }

    /// The card's own counter, as `HOST_CYCLES` reads: since its last reset.
    #[must_use]
    pub fn card_cycles(&self) -> u64 {
        self.outputs.cycles
    }

    /// Deadline of the timer as [`Card::cycles`] counts, when it is armed. It may lie in the past.
    #[must_use]
    pub fn timer(&self) -> Option<u64> {
        let o = &self.outputs;
        // mapped from the card's own counter to ours, saturating at both ends
        (o.timer_armed != 0).then(|| match o.timer_deadline.checked_sub(o.cycles) {
            Some(ahead) => self.now.saturating_add(ahead),
            None => self.now.saturating_sub(o.cycles - o.timer_deadline),
        })
    }

    fn timer_due(&self) -> bool {
        self.outputs.timer_armed != 0 && self.outputs.timer_deadline <= self.outputs.cycles
    }

    /// Lets time pass up to `cycle` in one clock. The card must be idle or stalled; nothing happens
    /// when `cycle` is not in the future. Do not skip over the timer's deadline.
    pub fn skip_to(&mut self, cycle: u64) {
        debug_assert!(self.idle() || self.stalled, "only an idle card can skip");
        if cycle <= self.now {
            return;
        }
        let quiet = quiet_inputs(self.limits.now);
        let seen = Inputs { skip: cycle - self.now - 1, ..quiet };
        let mut before = Outputs::default();
        self.core.settle(&seen, &mut before);
        self.core.edge(&mut self.outputs);
        self.now = cycle;
        self.core.settle(&quiet, &mut self.outputs);
    }

    /// What the slot allows from now on: the host has written Device Control. After [`Card::new`] [`PcieLimits::USUAL`].
    pub fn set_pcie_limits(&mut self, limits: PcieLimits) {
        if limits != self.limits.now {
            self.limits = Allowed { now: limits, before: self.limits.now, older: Allowed::BEGUN };
        }
    }

    // ---- MMIO ------------------------------------------------------------------------

    /// Writes the low `len` bytes (1, 2, 4, 8; naturally aligned) of `data` to a BAR;
    /// clocks the card until it has taken the write, and those posted before.
    pub fn mmio_write(&mut self, bar: u8, offset: u64, data: u64, len: usize) {
        self.post_write(bar, offset, data, len);
        let end = self.now + MMIO_PATIENCE;
        while !self.mmio.is_empty() && self.now < end {
            self.step();
        }
    }

    /// Posts a write as [`Card::mmio_write`] does, without clocking.
    pub fn post_write(&mut self, bar: u8, offset: u64, data: u64, len: usize) {
        let shift = 8 * (offset & 7);
        let data = mask(data, len) << shift;
        let strobe = strobe(offset, len);
        self.mmio.push_back(Mmio { write: true, bar, addr: offset as u32 & 0xf_ffff, data, strobe });
    }

    /// Writes posted that the card has not taken yet.
    #[must_use]
    pub fn writes_pending(&self) -> usize {
        self.mmio.len()
    }

    /// Reads a register of BAR0 (`HOST_*`), as [`Card::mmio_read`].
    pub fn reg(&mut self, offset: u32) -> u32 {
        self.mmio_read(BAR_CONTROL, offset.into(), 4) as u32
    }

    /// Writes a register of BAR0 (`HOST_*`), as [`Card::mmio_write`].
    pub fn set_reg(&mut self, offset: u32, value: u32) {
        self.mmio_write(BAR_CONTROL, offset.into(), value.into(), 4);
    }

    /// The RTL's counter `C_*`.
    pub fn counter(&mut self, index: u32) -> u64 {
        self.mmio_read(BAR_CONTROL, (HOST_COUNTERS + 8 * index).into(), 8)
    }

    /// Reads `len` bytes (1, 2, 4, 8; naturally aligned) from a BAR; clocks the card until the
    /// answer is there. All-ones when there is none in a million cycles, as on a bus.
    pub fn mmio_read(&mut self, bar: u8, offset: u64, len: usize) -> u64 {
        let strobe = strobe(offset, len);
        self.mmio.push_back(Mmio { write: false, bar, addr: offset as u32 & 0xf_ffff, data: 0, strobe });
        self.mmio_reads += 1;
        let end = self.now + MMIO_PATIENCE;
        while self.mmio_results.is_empty() {
            if self.now >= end {
                self.mmio_reads -= 1;
                self.mmio.clear();
                return mask(u64::MAX, len);
            }
            self.step();
        }
        let data = self.mmio_results.pop_front().unwrap_or(u64::MAX);
        mask(data >> (8 * (offset & 7)), len)
    }

    // ---- frames ----------------------------------------------------------------------

    /// The next frame that the card has sent.
    pub fn take_tx(&mut self) -> Option<Frame> {
        self.tx.pop_front()
    }

    /// Whether the MAC takes frames; false lets the transmitter wait.
    pub fn set_tx_ready(&mut self, ready: bool) {
        self.tx_ready = ready;
    }

    /// Hands a frame to the MAC's receive side; frames wait there until the card takes them.
    pub fn push_rx(&mut self, frame: Vec<u8>) {
        self.offer(frame, false);
    }

    /// As [`Card::push_rx`], but the MAC marks the frame as damaged.
    pub fn push_rx_damaged(&mut self, frame: Vec<u8>) {
        self.offer(frame, true);
    }

    fn offer(&mut self, frame: Vec<u8>, damaged: bool) {
        if !frame.is_empty() {
            self.rx.push_back((frame, damaged));
            self.rx_offered += 1;
        }
    }

    /// Frames handed over since the card was made.
    #[must_use]
    pub fn rx_offered(&self) -> u64 {
        self.rx_offered
    }

    /// Frames handed over that the card has not taken completely.
    #[must_use]
    pub fn rx_pending(&self) -> usize {
        self.rx.len()
    }

    // ---- measuring -------------------------------------------------------------------

    /// What moved over the ports since the last [`Card::reset_ports`].
    #[must_use]
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Begins to count anew.
    pub fn reset_ports(&mut self) {
        self.ports = Ports::default();
    }

    /// Records what happens at the ports from now on; gives what was recorded since the last call.
    pub fn record(&mut self) -> Vec<Moved> {
        self.record.replace(Vec::new()).unwrap_or_default()
    }

    fn note(&mut self, what: Move, addr: u64, len: usize) {
        let cycle = self.now;
        if let Some(record) = &mut self.record {
            record.push(Moved { cycle, what, addr, len });
        }
    }

    // ---- DMA -------------------------------------------------------------------------

    /// Whether a read is unanswered or a write under way.
    #[must_use]
    pub fn dma_in_flight(&self) -> bool {
        !self.reads.is_empty() || self.write.is_some()
    }

    /// Clocks the card until all DMA that is in flight now has ended. What it starts
    /// meanwhile is not waited for, so this ends. After it the model touches no host
    /// memory on behalf of requests made before.
    pub fn drain(&mut self) {
        // Read data is fetched when a request is made, so only a write can still touch memory;
        // answers are awaited too, so that the card has seen what it asked for.
        let mut left: Vec<u8> = self.reads.iter().map(|r| r.tag).collect();
        let mut write = self.write.is_some();
        let end = self.now + MMIO_PATIENCE;
        while (!left.is_empty() || write) && self.now < end {
            self.step();
            left.retain(|tag| self.reads.iter().any(|r| r.tag == *tag));
            write = write && self.write.is_some();
        }
    }

    /// Whether the slot moves no DMA: requests are not taken and reads not answered, as if the
    /// card hung. Registers go on working.
    pub fn set_stalled(&mut self, stalled: bool) {
        self.stalled = stalled;
    }

    // ---- faults of the host ------------------------------------------------------------

    /// Asks `faults` of each read from now on, by its bus address and length, what the host does to it.
    pub fn set_read_faults(&mut self, faults: impl FnMut(u64, usize) -> Option<ReadFault> + Send + 'static) {
        self.faults = Some(Box::new(faults));
    }

    /// The host answers with `data` what nobody may have asked for: bytes from `off` on of the read with `tag`; without data
    /// a refusal.
    pub fn stray_completion(&mut self, tag: u8, off: u16, data: Vec<u8>) {
        self.strays.push_back(Completion { read: None, tag, off, data, poisoned: None, done: 0, doubled: false });
    }

    /// Whether the host takes interrupts; false lets them wait.
    pub fn set_msix_ready(&mut self, ready: bool) {
        self.msix_ready = ready;
    }

    /// Whether the host takes posted writes; false lets them wait.
    pub fn set_writes_ready(&mut self, ready: bool) {
        self.writes_ready = ready;
    }

    // ---- debug port and waveforms ----------------------------------------------------

    /// Reads a word on the soft core's bus through the debug port; `None` when it does
    /// not answer in a million cycles (`CPU_WAIT` with nothing pending, say).
    pub fn debug_read(&mut self, addr: u32) -> Option<u32> {
        self.debug_access(false, addr, 0)
    }

    /// Writes a word on the soft core's bus through the debug port; false when it is not taken.
    pub fn debug_write(&mut self, addr: u32, data: u32) -> bool {
        self.debug_access(true, addr, data).is_some()
    }

    fn debug_access(&mut self, write: bool, addr: u32, data: u32) -> Option<u32> {
        self.debug = Some((write, addr, data));
        self.debug_result = None;
        let end = self.now + MMIO_PATIENCE;
        while self.debug_result.is_none() && self.now < end {
            self.step();
        }
        self.debug = None;
        self.debug_result.take()
    }

    /// Starts a waveform file (FST).
    ///
    /// # Errors
    /// When the crate was built without the feature `trace`.
    pub fn open_trace(&mut self, path: &Path) -> Result<(), String> {
        self.core.trace(Some(path))
    }

    /// Ends the waveform file, if there is one.
    pub fn close_trace(&mut self) {
        // ending never fails
        let _ = self.core.trace(None);
    }

    // ---- coverage --------------------------------------------------------------------

    /// Moves the coverage counters to `counts`: see [`Core::take_coverage`].
    pub fn take_coverage(&mut self, counts: &mut Vec<u32>) {
        self.core.take_coverage(counts);
    }

    /// Says in Verilator's format what these counts mean: see [`Core::write_coverage`].
    ///
    /// # Errors
    /// As there.
    pub fn write_coverage(&mut self, counts: &[u32], path: &Path) -> Result<(), String> {
        self.core.write_coverage(counts, path)
    }

    // ---- the model -------------------------------------------------------------------

    /// Cycles in which the slot has nothing to do on its own.
    fn quiet(&self) -> u64 {
        if self.completion.is_some()
            || !self.strays.is_empty()
            || !self.mmio.is_empty()
            || self.mmio_reads > 0
            || self.write.is_some()
            || self.tx_partial.is_some()
            || !self.rx.is_empty()
            || self.debug.is_some()
        {
            return 0;
        }
        self.reads.iter().map(|r| r.due.saturating_sub(self.now)).min().unwrap_or(u64::MAX)
    }

    fn willing(&mut self) -> bool {
        self.config.stall_percent == 0 || self.random.draw() % 100 >= u64::from(self.config.stall_percent)
    }

    /// Chooses the next completion, if one is due.
    fn choose_completion(&mut self) {
        if self.stalled || self.completion.is_some() {
            return;
        }
        self.completion = self.strays.pop_front();
        if self.completion.is_some() || self.reads.is_empty() {
            return;
        }
        let now = self.now;
        let read = if self.config.out_of_order {
            let due: Vec<usize> = (0..self.reads.len()).filter(|&i| self.reads[i].due <= now).collect();
            if due.is_empty() {
                return;
            }
            due[self.random.draw() as usize % due.len()]
        } else {
            // in order, but for those that come late
            let waits = |r: &Read| r.due <= now || !matches!(r.fault, Some(ReadFault::Late { .. }));
            match self.reads.iter().position(waits) {
                Some(read) if self.reads[read].due <= now => read,
                _ => return,
            }
        };
        let r = &self.reads[read];
        let off = r.sent;
        let mut len = r.len - off;
        let at = r.addr + off as u64;
        let payload = self.limits.now.payload() as u64;
        if r.data.is_some() {
            // a completion carries at most what a write may
            len = len.min((payload - at % payload) as usize);
        }
        if r.data.is_some() && self.config.split {
            let first = (COMPLETION_BOUNDARY - at % COMPLETION_BOUNDARY) as usize;
            let random = self.random.draw();
            // half of them are not split
            if random & 1 == 0 {
                let cut = first + (random >> 1) as usize % 32 * COMPLETION_BOUNDARY as usize;
                len = len.min(cut);
            }
        }
        self.complete(read, off, len);
    }

    /// Answers `len` bytes from `off` on of read `read`, or does to them what the host is to do.
    fn complete(&mut self, read: usize, off: usize, len: usize) {
        let r = &mut self.reads[read];
        let whole = off + len == r.len;
        let fault = r.fault.filter(|f| f.at().is_some_and(|at| at == r.completions || whole && at > r.completions));
        r.completions += 1;
        let data = r.data.as_ref().map_or_else(Vec::new, |data| data[off..off + len].to_vec());
        let mut c = Completion {
            read: Some((read, len)),
            tag: r.tag,
            off: off as u16,
            data,
            poisoned: None,
            done: 0,
            doubled: false,
        };
        match fault {
            Some(ReadFault::Refused { .. }) => c.data.clear(),
            Some(ReadFault::Poisoned { beat, .. }) => {
                c.poisoned = Some(beat.min(len.div_ceil(self.host_beat) - 1));
            }
            Some(ReadFault::Dropped { .. }) => {
                r.sent += len;
                if whole {
                    self.reads.remove(read);
                }
                return;
            }
            Some(ReadFault::Doubled { .. }) => c.doubled = true,
            Some(ReadFault::Moved { by, .. }) => c.off = (i32::from(c.off) + by) as u16 & 0x1fff,
            Some(ReadFault::Longer { .. }) => c.data.extend([0xa5; 64]),
            Some(ReadFault::Never | ReadFault::Late { .. }) | None => {}
        }
        self.completion = Some(c);
    }

    /// Drives the inputs of this cycle.
    fn present(&mut self) {
        self.choose_completion();
        let mut i = quiet_inputs(self.limits.now);
        if let Some(m) = self.mmio.front() {
            i.mmio_valid = 1;
            i.mmio_write = u8::from(m.write);
            i.mmio_bar = m.bar;
            i.mmio_addr = m.addr;
            i.mmio_wdata = m.data;
            i.mmio_wstrb = m.strobe;
        }
        i.hrd_ready = u8::from(!self.stalled && self.reads.len() < self.config.outstanding && self.willing());
        i.hwr_ready = u8::from(!self.stalled && self.writes_ready && self.to_host.allows() && self.willing());
        i.msix_ready = u8::from(self.msix_ready && self.willing());
        i.tx_ready = u8::from(self.tx_ready && self.willing());
        if !self.stalled && self.completion.is_some() && self.from_host.allows() && self.willing() {
            let c = self.completion.as_ref().expect("checked above");
            let rest = &c.data[c.done.min(c.data.len())..];
            i.hcpl_valid = 1;
            i.hcpl_tag = c.tag;
            i.hcpl_off = c.off;
            i.hcpl_len = c.data.len() as u16;
            i.hcpl_data = beat(rest, self.host_beat);
            i.hcpl_last = u8::from(rest.len() <= self.host_beat);
            i.hcpl_err = u8::from(c.data.is_empty() || c.poisoned == Some(c.done / self.host_beat));
        }
        if !self.rx.is_empty() && self.willing() {
            let (frame, damaged) = &self.rx[0];
            let rest = &frame[self.rx_sent..];
            i.rx_valid = 1;
            i.rx_data = beat(rest, self.beat);
            i.rx_keep = u64::MAX >> (64 - rest.len().min(self.beat));
            i.rx_last = u8::from(rest.len() <= self.beat);
            i.rx_err = u8::from(*damaged && rest.len() <= self.beat);
        }
        if let Some((write, addr, data)) = self.debug {
            i.dbg_req = 1;
            i.dbg_we = u8::from(write);
            i.dbg_addr = addr;
            i.dbg_wdata = data;
        }
        self.inputs = i;
    }

    /// What the clock edge moved over the ports; `o` are the outputs before it.
    fn take(&mut self, o: &Outputs) {
        let i = self.inputs;
        self.to_host.cycle(self.config.host_rate);
        self.from_host.cycle(self.config.host_rate);
        if i.mmio_valid & o.mmio_ready != 0 {
            self.mmio.pop_front();
        }
        if o.mmio_rvalid != 0 && self.mmio_reads > 0 {
            self.mmio_reads -= 1;
            self.mmio_results.push_back(o.mmio_rdata);
        }
        if i.hcpl_valid & o.hcpl_ready != 0 {
            self.completion_taken();
        } else if i.hcpl_valid != 0 {
            self.ports.completions.waits += 1;
        }
        if o.hrd_valid & i.hrd_ready != 0 {
            self.read_request(o);
        }
        if o.hwr_valid & i.hwr_ready != 0 {
            self.write_beat(o);
        } else if o.hwr_valid != 0 {
            self.ports.writes.waits += 1;
        }
        if o.msix_valid & i.msix_ready != 0 {
            self.host.msix(u32::from(o.msix_vector));
        }
        if o.tx_valid & i.tx_ready != 0 {
            self.tx_beat(o);
        } else if o.tx_valid != 0 {
            self.ports.tx.waits += 1;
        }
        if i.rx_valid & o.rx_ready != 0 {
            let rest = self.rx[0].0.len() - self.rx_sent;
            self.ports.rx.beat(self.now, rest.min(self.beat));
            self.rx_sent += self.beat;
            if i.rx_last != 0 {
                let len = self.rx.pop_front().map_or(0, |f| f.0.len());
                self.note(Move::FrameTaken, 0, len);
                self.rx_sent = 0;
            }
        } else if i.rx_valid != 0 {
            self.ports.rx.waits += 1;
        }
        if o.dbg_ack != 0 && self.debug.is_some() {
            self.debug = None;
            self.debug_result = Some(o.dbg_rdata);
        }
    }

    fn read_request(&mut self, o: &Outputs) {
        let len = usize::from(o.hrd_len);
        self.limits.check("read", len, PcieLimits::read_request);
        assert!(o.hrd_addr % 4096 + len as u64 <= 4096, "read over a 4 KiB boundary: {:#x} + {len}", o.hrd_addr);
        assert!(self.reads.iter().all(|r| r.tag != o.hrd_tag), "tag {} is in use", o.hrd_tag);
        self.note(Move::ReadRequest, o.hrd_addr, len);
        let mut data = vec![0; len];
        let data = self.host.read(o.hrd_addr, &mut data).ok().map(|()| data);
        let jitter = if self.config.out_of_order { self.random.draw() % (self.config.read_latency / 2 + 1) } else { 0 };
        let due = self.now + self.config.read_latency + jitter;
        let fault = self.faults.as_mut().and_then(|f| f(o.hrd_addr, len));
        let due = match fault {
            Some(ReadFault::Never) => return,
            Some(ReadFault::Late { cycles }) => due + cycles,
            _ => due,
        };
        self.reads.push(Read { tag: o.hrd_tag, addr: o.hrd_addr, len, data, due, sent: 0, completions: 0, fault });
    }

    fn completion_taken(&mut self) {
        let Some(c) = &mut self.completion else { return };
        let bytes = (c.data.len() - c.done).min(self.host_beat);
        self.ports.completions.beat(self.now, bytes);
        self.from_host.spend(bytes);
        c.done += self.host_beat;
        if c.done < c.data.len() {
            return;
        }
        let Some(mut c) = self.completion.take() else { return };
        if let Some((read, len)) = c.read {
            let r = &mut self.reads[read];
            r.sent += len;
            if c.data.is_empty() || r.sent == r.len {
                let read = self.reads.remove(read);
                self.note(Move::ReadAnswered, read.addr, read.len);
            }
        }
        if std::mem::take(&mut c.doubled) {
            self.strays.push_front(Completion { read: None, done: 0, ..c });
        }
    }

    fn write_beat(&mut self, o: &Outputs) {
        if o.hwr_first != 0 {
            let len = usize::from(o.hwr_len);
            assert!(self.write.is_none(), "a write began within a write");
            self.limits.check("write", len, PcieLimits::payload);
            assert!(o.hwr_addr % 4096 + len as u64 <= 4096, "write over a 4 KiB boundary: {:#x} + {len}", o.hwr_addr);
            self.note(Move::WriteBegun, o.hwr_addr, len);
            self.write = Some((o.hwr_addr, len, Vec::with_capacity(len + self.host_beat)));
        }
        let Some((_, len, data)) = &mut self.write else { panic!("a write without a first beat") };
        let bytes = (*len - data.len()).min(self.host_beat);
        self.ports.writes.beat(self.now, bytes);
        self.to_host.spend(bytes);
        extend(data, &o.hwr_data, bytes);
        let complete = data.len() >= *len;
        assert_eq!(complete, o.hwr_last != 0, "hwr_last does not fit hwr_len {len}");
        if complete {
            let (addr, len, data) = self.write.take().expect("checked above");
            self.note(Move::Written, addr, len);
            // posted: a refusal has no way back to the card
            let _ = self.host.write(addr, &data);
        }
    }

    fn tx_beat(&mut self, o: &Outputs) {
        let now = self.now;
        if self.tx_partial.is_none() {
            self.note(Move::FrameBegun, 0, 0);
        }
        let frame = self.tx_partial.get_or_insert_with(|| Frame {
            data: Vec::with_capacity(4608),
            start_cycle: now,
            end_cycle: now,
            beats: 0,
        });
        let bytes = o.tx_keep.count_ones() as usize;
        assert!(o.tx_keep == u64::MAX >> (64 - bytes.clamp(1, 64)), "tx_keep {:#x} is not from lane 0 on", o.tx_keep);
        assert!(o.tx_last != 0 || bytes == self.beat, "a beat that is not full within a frame");
        self.ports.tx.beat(now, bytes);
        extend(&mut frame.data, &o.tx_data, bytes);
        frame.beats += 1;
        if o.tx_last != 0 {
            frame.end_cycle = now;
            let len = frame.data.len();
            self.tx.extend(self.tx_partial.take());
            self.note(Move::FrameSent, 0, len);
        }
    }
}

/// The first `most` of `bytes` as a beat, zeros behind them.
fn beat<const N: usize>(bytes: &[u8], most: usize) -> [u64; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes[..bytes.len().min(most)].chunks(8)) {
        let mut lanes = [0; 8];
        lanes[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(lanes);
    }
    words
}

/// Appends the first `n` bytes of a beat.
fn extend(bytes: &mut Vec<u8>, beat: &[u64], n: usize) {
    for (i, word) in beat.iter().enumerate().take(n.div_ceil(8)) {
        bytes.extend_from_slice(&word.to_le_bytes()[..(n - 8 * i).min(8)]);
    }
}

/// The low `len` bytes of `data`.
fn mask(data: u64, len: usize) -> u64 {
    if len >= 8 { data } else { data & ((1 << (8 * len)) - 1) }
}

/// Byte lanes of an access of `len` bytes at `offset`.
fn strobe(offset: u64, len: usize) -> u8 {
    let lanes = if len >= 8 { 0xff } else { (1u32 << len) - 1 };
    (lanes << (offset & 7)) as u8
}
