// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card and the thread that clocks it.

use crate::capture::Capture;
use crate::dma::DmaSpace;
use crate::link::{CardState, Link, Request, Step};
use crate::record::Recorder;
use crate::wire::Arrived;
use berth_abi::counters::{FW_COUNTER_TABLE, RTL_COUNTER_TABLE};
use berth_abi::host::{HOST_COUNTERS, HOST_CTRL, HOST_PCIE_LIMITS, HOST_STATS, HOST_STATUS};
use berth_abi::status::FW_RESET;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Cycles that a card is clocked after anything came to it before it may count as idle.
const SETTLE: u64 = 64;
/// Cycles that a card has to be idle before it is parked: an engine may hand work to the next in between.
const REST: u64 = 32;
/// Cycles that a card is clocked for a register write.
const WRITE: u64 = 2;
/// Posted writes that the card may hold without having taken them; the host waits with more, and with anything behind
/// them. The number is small, so that a read behind them is answered within the time that the lookahead leaves for it.
const POSTED: usize = 16;
/// Frames that may wait in the card's receive port; the others wait on the wire.
const RX_QUEUE: usize = 2;
/// Cycles within which a reset has to be over.
const RESET_LIMIT: u64 = 100_000;

/// A frame that a card has sent, with the cycles ([`SimCard::cycles`]) of its first and last beat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxFrame {
    /// Ethernet frame without FCS.
    pub data: Vec<u8>,
    /// First beat.
    pub start_cycle: u64,
    /// Last beat.
    pub end_cycle: u64,
}

/// The simulator's interface to a card. The Verilated card is `berth_rtl::Card`; tests have others.
pub trait SimCard: Send {
    /// So many clocks.
    fn run(&mut self, cycles: u64);
    /// Clocks until the card is idle, at most so many times.
    fn run_until_idle(&mut self, limit: u64);
    /// No work: the core waits and no engine is busy.
    fn idle(&self) -> bool;
    /// Cycles since the card was made, skipped ones included; goes on over resets.
    fn cycles(&self) -> u64;
    /// The counter that the host can read: cycles since the last reset.
    fn card_cycles(&self) -> u64;
    /// Deadline of the timer as [`SimCard::cycles`] counts, if armed.
    fn timer(&self) -> Option<u64>;
    /// Advances an idle card's clock to `cycle`.
    fn skip_to(&mut self, cycle: u64);
    /// Posts a write to BAR 0 or 2 (`bar`), of `len` bytes; the card takes it as it is clocked, before later accesses.
    fn mmio_write(&mut self, bar: u32, offset: u64, data: u64, len: usize);
    /// Posted writes that the card has not taken.
    fn writes_pending(&self) -> usize;
    /// Device Control of the card's configuration space: the largest transfers that it may make.
    fn set_device_control(&mut self, control: u16);
    /// Read of BAR 0 or 2; clocks the card until the answer is there.
    fn mmio_read(&mut self, bar: u32, offset: u64, len: usize) -> u64;
    /// The next frame that the card has sent.
    fn take_tx(&mut self) -> Option<TxFrame>;
    /// Whether the wire takes frames: false lets the card's transmitter wait.
    fn set_tx_ready(&mut self, ready: bool);
    /// Hands a frame to the MAC's receive port; a damaged one has a wrong FCS.
    fn push_rx(&mut self, frame: Vec<u8>, damaged: bool);
    /// Frames handed over that the card has not taken completely.
    fn rx_pending(&self) -> usize;
    /// Clocks the card until no DMA is under way.
    fn drain(&mut self);
    /// Whether no DMA moves: the card hangs, but for its registers.
    fn set_stalled(&mut self, stalled: bool);
    /// Starts a waveform file, or ends it.
    ///
    /// # Errors
    /// Why there can be none.
    fn trace(&mut self, file: Option<&Path>) -> Result<(), String>;
}

/// Counters of a card's thread.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    stepped: u64,
    skipped: u64,
    host_wait: u64,
    reads: u64,
    writes: u64,
    resets: u64,
    rx_frames: u64,
    rx_bytes: u64,
    tx_frames: u64,
    tx_bytes: u64,
    stepping: Duration,
}

/// A card with its clock, ready to run on its own thread.
pub struct Worker<C> {
    name: String,
    card: C,
    link: Arc<Link>,
    // Which end of the wire.
    end: usize,
    dma: Arc<Mutex<DmaSpace>>,
    capture: Option<(Arc<Capture>, u32)>,
    recorder: Option<Arc<Recorder>>,
    // Common clock, and the card's own counter when it was last looked at.
    now: u64,
    seen: u64,
    // Not idle before this cycle; `resting` since it was found idle.
    settled: u64,
    resting: bool,
    // The card hangs: it is not clocked but for register accesses, and its clock goes on.
    stalled: bool,
    next_sample: u64,
    counts: Counts,
    // Counters of the card as they were before its last reset.
    before_reset: Option<Value>,
}

impl<C: SimCard> Worker<C> {
    /// A card at end `end` (0 or 1) of `link`, whose DMA goes through `dma`.
    pub fn new(name: &str, card: C, link: Arc<Link>, end: usize, dma: Arc<Mutex<DmaSpace>>) -> Self {
        let now = link.join(end, 0);
        let seen = card.cycles();
        Self {
            name: name.into(),
            card,
            link,
            end,
            dma,
            capture: None,
            recorder: None,
            now,
            seen,
            settled: now + SETTLE,
            resting: false,
            stalled: false,
            next_sample: 0,
            counts: Counts::default(),
            before_reset: None,
        }
    }

    /// Frames that the card sends go to `capture`, as its interface `interface`.
    pub fn with_capture(mut self, capture: Arc<Capture>, interface: u32) -> Self {
        self.capture = Some((capture, interface));
        self
    }

    /// Samples go to `recorder`.
    pub fn with_recorder(mut self, recorder: Arc<Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    // Follows the card's clock after calls that clock it.
    fn catch_up(&mut self) {
        let passed = self.card.cycles().saturating_sub(self.seen);
        self.now += passed;
        self.seen += passed;
        self.counts.stepped += passed;
    }

    fn skip_to(&mut self, clock: u64) {
        if let Some(skipped) = clock.checked_sub(self.now).filter(|&s| s > 0) {
            self.card.skip_to(self.seen + skipped);
            self.now += skipped;
            self.seen += skipped;
            self.counts.skipped += skipped;
        }
    }

    fn touched(&mut self) {
        self.settled = self.now + SETTLE;
        self.resting = false;
    }

    fn run_until(&mut self, until: u64) {
        let start = Instant::now();
        if self.now < self.settled {
            self.card.run(until.min(self.settled) - self.now);
            self.catch_up();
        }
        if self.now >= self.settled {
            self.resting &= self.card.idle();
        }
        if self.now < until && !self.resting {
            self.card.run_until_idle(until - self.now);
            self.catch_up();
            if self.card.idle() {
                self.settled = self.now + REST;
                self.resting = true;
            }
        }
        self.counts.stepping += start.elapsed();
    }

    fn collect_tx(&mut self) {
        while let Some(frame) = self.card.take_tx() {
            let clock = |cycle: u64| (self.now + cycle).saturating_sub(self.seen).min(self.now);
            let (start, end) = (clock(frame.start_cycle), clock(frame.end_cycle));
            self.counts.tx_frames += 1;
            self.counts.tx_bytes += frame.data.len() as u64;
            let copy = self.capture.is_some().then(|| frame.data.clone());
            let sent = self.link.send(self.end, frame.data, start, end);
            if let (Some((capture, interface)), Some(data)) = (&self.capture, copy) {
                capture.frame(*interface, start, data, sent);
            }
        }
    }

    fn sample(&mut self) {
        let Some(recorder) = self.recorder.clone() else { return };
        if self.now < self.next_sample {
            return;
        }
        self.next_sample = self.now + recorder.every();
        let mut line = Map::new();
        line.insert("card".into(), json!(self.name));
        line.insert("time".into(), json!(self.now));
        line.insert("cycles".into(), json!(self.card.card_cycles()));
        let quiet = self.link.quiet();
        line.insert("host_wait_cycles".into(), json!(quiet.host));
        line.insert("timer_wait_cycles".into(), json!(quiet.timer));
        line.insert("tx_frames".into(), json!(self.counts.tx_frames));
        line.insert("tx_bytes".into(), json!(self.counts.tx_bytes));
        line.insert("rx_frames".into(), json!(self.counts.rx_frames));
        line.insert("rx_bytes".into(), json!(self.counts.rx_bytes));
        for (key, counters) in crate::record::SAMPLED {
            let sum: u64 = counters.iter().filter_map(|name| self.counter(name)).sum();
            line.insert((*key).into(), json!(sum));
        }
        recorder.line(&Value::Object(line));
    }

    // A register access clocks the card to its end; a frame that came due in an access before it comes first.
    fn deliver_due(&mut self) {
        while self.card.rx_pending() < RX_QUEUE
            && let Some(frame) = self.link.take_due(self.end, self.now)
        {
            self.deliver(frame);
        }
    }

    fn deliver(&mut self, Arrived { frame, damaged }: Arrived) {
        self.counts.rx_frames += 1;
        self.counts.rx_bytes += frame.len() as u64;
        self.card.push_rx(frame, damaged);
        self.touched();
    }

    // A counter by its name in the abi, read as a host would: 8 bytes of BAR0.
    fn counter(&mut self, name: &str) -> Option<u64> {
        let place = |table: &[(&str, u64, &str)], base: u32| {
            table.iter().find(|(n, _, _)| *n == name).map(|(_, index, _)| u64::from(base) + 8 * index)
        };
        let offset = place(RTL_COUNTER_TABLE, HOST_COUNTERS).or_else(|| place(FW_COUNTER_TABLE, HOST_STATS))?;
        self.deliver_due();
        let value = self.card.mmio_read(0, offset, 8);
        self.catch_up();
        self.touched();
        Some(value)
    }

    fn counters(&mut self) -> Value {
        let names = RTL_COUNTER_TABLE.iter().chain(FW_COUNTER_TABLE).map(|(name, _, _)| *name);
        let values: Map<String, Value> =
            names.filter_map(|name| Some((name.to_string(), json!(self.counter(name)?)))).collect();
        Value::Object(values)
    }

    // Before a reset: the last sample, and the counters.
    fn keep_counters(&mut self) {
        self.next_sample = 0;
        self.sample();
        // Resets come in groups; the figures of the last one that ended any work are kept.
        let counters = self.counters();
        if counters["C_DMA_READS"] != json!(0) || counters["C_DMA_WRITES"] != json!(0) {
            self.before_reset = Some(counters);
        }
    }

    fn reset(&mut self) {
        self.keep_counters();
        self.counts.resets += 1;
        self.card.mmio_write(0, u64::from(HOST_CTRL), 1, 4);
        self.catch_up();
        let limit = self.now + RESET_LIMIT;
        while self.card.mmio_read(0, u64::from(HOST_STATUS), 4) != u64::from(FW_RESET) {
            self.catch_up();
            if self.now >= limit {
                warn!(card = self.name, "reset does not end");
                break;
            }
        }
        self.catch_up();
        self.touched();
    }

    fn report(&mut self) -> Value {
        let counters = self.counters();
        let limits = self.card.mmio_read(0, u64::from(HOST_PCIE_LIMITS), 4);
        let c = self.counts;
        let port = self.link.port(self.end);
        let dma = self.dma.lock().unwrap_or_else(PoisonError::into_inner).stats();
        let khz = if c.stepping.is_zero() { 0.0 } else { c.stepped as f64 / c.stepping.as_secs_f64() / 1e3 };
        json!({
            "name": self.name,
            "time": self.now,
            "cycles": self.card.card_cycles(),
            "stepped_cycles": c.stepped,
            "skipped_cycles": c.skipped,
            "host_wait_cycles": c.host_wait,
            "stepping_ms": c.stepping.as_millis() as u64,
            "parked_ms": port.parked.as_millis() as u64,
            "waiting_for_peer_ms": port.blocked.as_millis() as u64,
            "speed_khz": khz.round(),
            "pcie_max_payload": 1 << (limits & 0xf),
            "pcie_max_read_request": 1 << (limits >> 4 & 0xf),
            "register_reads": c.reads,
            "register_writes": c.writes,
            "resets": c.resets,
            "tx_frames": c.tx_frames,
            "tx_bytes": c.tx_bytes,
            "rx_frames": c.rx_frames,
            "rx_bytes": c.rx_bytes,
            "dma": {
                "reads": dma.reads, "read_bytes": dma.read_bytes,
                "writes": dma.writes, "write_bytes": dma.write_bytes,
                "errors": dma.errors, "no_bus_master": dma.no_bus_master, "maps": dma.maps,
                "maps_without_memory": dma.maps_without_memory, "unmaps": dma.unmaps,
            },
            "unmapped_dma": dma.unmapped,
            "counters": counters,
            "counters_before_reset": self.before_reset,
        })
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Read { bar, offset, len, reply } => {
                self.counts.reads += 1;
                self.deliver_due();
                let value = self.card.mmio_read(bar, offset, len);
                // The host may have gone in the meantime.
                let _ = reply.send(value);
            }
            Request::Write { bar, offset, len, data } => {
                self.counts.writes += 1;
                if bar == 0 && offset == u64::from(HOST_CTRL) && data & 1 != 0 {
                    self.keep_counters();
                }
                self.deliver_due();
                self.card.mmio_write(bar, offset, data, len);
                // About as long as the card takes for it, so that a host that writes all the time does not stop its clock.
                self.card.run(WRITE);
            }
            Request::DeviceControl { control } => self.card.set_device_control(control),
            Request::Unmap { range, reply } => {
                self.card.drain();
                self.unmap(range);
                let _ = reply.send(());
            }
            Request::Reset { reply } => {
                self.reset();
                let _ = reply.send(());
            }
            Request::Unplug { off, reply } => {
                if off {
                    self.while_unplugged(reply);
                } else {
                    let _ = reply.send(());
                }
                return;
            }
            Request::Stall { on, reply } => {
                self.stall(on);
                let _ = reply.send(());
            }
            Request::Trace { file, reply } => {
                let _ = reply.send(self.card.trace(file.as_deref()));
            }
            Request::Report { reply } => {
                let report = self.report();
                let _ = reply.send(report);
            }
            // Only bridges get these.
            Request::Frame(_) => {}
        }
        self.catch_up();
        self.touched();
    }

    fn unmap(&self, range: Option<(u64, u64)>) {
        let mut dma = self.dma.lock().unwrap_or_else(PoisonError::into_inner);
        match range {
            Some((address, len)) => dma.unmap(address, len),
            None => dma.unmap_all(),
        }
    }

    fn stall(&mut self, on: bool) {
        info!(card = self.name, on, "stalled");
        self.stalled = on;
        self.card.set_stalled(on);
    }

    // Surprise removal: no DMA, no frames, reads give all-ones, until replugged (then the card comes out of reset).
    fn while_unplugged(&mut self, done: std::sync::mpsc::SyncSender<()>) {
        info!(card = self.name, "unplugged");
        self.stall(false);
        self.dma.lock().unwrap_or_else(PoisonError::into_inner).set_unplugged(true);
        self.link.leave(self.end);
        let _ = done.send(());
        while let Some(request) = self.link.next_while_gone(self.end) {
            match request {
                Request::Read { reply, .. } => {
                    let _ = reply.send(u64::MAX);
                }
                Request::DeviceControl { control } => self.card.set_device_control(control),
                Request::Write { .. } | Request::Frame(_) => {}
                Request::Unmap { range, reply } => {
                    self.unmap(range);
                    let _ = reply.send(());
                }
                Request::Reset { reply } => {
                    let _ = reply.send(());
                }
                Request::Unplug { off: true, reply } | Request::Stall { reply, .. } => {
                    let _ = reply.send(());
                }
                Request::Trace { file, reply } => {
                    let _ = reply.send(self.card.trace(file.as_deref()));
                }
                Request::Report { reply } => {
                    let report = self.report();
                    let _ = reply.send(report);
                }
                Request::Unplug { off: false, reply } => {
                    // The card's pending bus accesses end with errors before it is back.
                    self.card.drain();
                    while self.card.take_tx().is_some() {}
                    self.catch_up();
                    self.reset();
                    self.dma.lock().unwrap_or_else(PoisonError::into_inner).set_unplugged(false);
                    let clock = self.link.join(self.end, self.now);
                    self.now = clock;
                    info!(card = self.name, "plugged in again");
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    /// Clocks the card until the link is stopped; returns its last statistics.
    pub fn run(mut self) -> Value {
        loop {
            self.collect_tx();
            self.sample();
            self.card.set_tx_ready(self.link.tx_room(self.end));
            let rx = self.card.rx_pending();
            let idle = self.stalled || self.resting && self.now >= self.settled && rx == 0 && self.card.idle();
            let timer = self.card.timer().filter(|_| !self.stalled).map(|t| self.now + t.saturating_sub(self.seen));
            // Only its host's accesses clock a card that hangs.
            let host_room = self.stalled || self.card.writes_pending() < POSTED;
            let rx_room = rx < RX_QUEUE && !self.stalled;
            let step = self.link.next(self.end, CardState { now: self.now, idle, timer, host_room, rx_room });
            match step {
                Step::Stop => break,
                Step::Request { request, clock, host_wait } => {
                    self.counts.host_wait += host_wait;
                    self.skip_to(clock);
                    self.serve(request);
                }
                Step::Deliver(frame) => self.deliver(frame),
                // Only until the card has room for its host again.
                Step::Run(until) if !host_room => self.run_until(until.min(self.now + POSTED as u64)),
                Step::Run(until) => self.run_until(until),
                Step::Skip(to) => {
                    self.skip_to(to);
                    self.touched();
                }
            }
        }
        if let Err(e) = self.card.trace(None) {
            warn!(card = self.name, "waveform: {e}");
        }
        self.report()
    }
}
