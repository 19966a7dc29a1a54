// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two ends, the wire between them, and the clocks that keep them in step.
//!
//! One lock guards all of it. A card's thread takes it once per step (some ten cycles of
//! the Verilated core, far longer than the lock is held); the rules themselves are pure
//! functions in [`crate::time`] and [`crate::wire`].

use crate::time::{Pace, Peer, Plan, View};
use crate::wire::{Arrived, Direction, DirectionStats, Faults, Sent};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A register read clocks a card to its answer, past the limit if need be; so many cycles
/// are kept free for that, and frames still come in time.
const GUARD: u64 = 128;
/// Frames under way in one direction before the sender's transmitter has to wait.
const IN_FLIGHT_LIMIT: usize = 64;
/// Requests that may wait for a card before its host has to.
const INBOX_LIMIT: usize = 256;

/// A request of a host, or of the control socket, to a card.
#[derive(Debug)]
pub enum Request {
    /// Read of a BAR (0 or 2).
    Read {
        /// Which BAR.
        bar: u32,
        /// Byte offset.
        offset: u64,
        /// 1, 2, 4 or 8 bytes.
        len: usize,
        /// Gets the value.
        reply: SyncSender<u64>,
    },
    /// Posted write of a BAR (0 or 2).
    Write {
        /// Which BAR.
        bar: u32,
        /// Byte offset.
        offset: u64,
        /// 1, 2, 4 or 8 bytes.
        len: usize,
        /// Value, right-aligned.
        data: u64,
    },
    /// Device Control of configuration space has changed.
    DeviceControl {
        /// The register.
        control: u16,
    },
    /// Ends DMA under way, then removes mappings: a range (address, bytes) or all.
    Unmap {
        /// What to remove.
        range: Option<(u64, u64)>,
        /// Told when it is done.
        reply: SyncSender<()>,
    },
    /// Resets the card.
    Reset {
        /// Told when it is done.
        reply: SyncSender<()>,
    },
    /// Takes the card off the bus and off the wire, or puts it back.
    Unplug {
        /// True: off.
        off: bool,
        /// Told when it is done.
        reply: SyncSender<()>,
    },
    /// Makes the card hang, or go on: it does nothing but answer register accesses.
    Stall {
        /// True: it hangs.
        on: bool,
        /// Told when it is done.
        reply: SyncSender<()>,
    },
    /// Starts a waveform, or ends it.
    Trace {
        /// The file; `None` ends it.
        file: Option<PathBuf>,
        /// Gets the outcome.
        reply: SyncSender<Result<(), String>>,
    },
    /// Asks for statistics.
    Report {
        /// Gets them.
        reply: SyncSender<serde_json::Value>,
    },
    /// Sends a frame that has come from outside of the simulator; for a bridge, not for a card.
    Frame(Vec<u8>),
}

/// The next step of a card's thread.
#[derive(Debug)]
pub enum Step {
    /// End the thread.
    Stop,
    /// Bring the clock to `clock`, then serve the request.
    Request {
        /// The request.
        request: Request,
        /// The clock, not before the card's own.
        clock: u64,
        /// Cycles of that skip that were spent waiting for a host.
        host_wait: u64,
    },
    /// Hand a frame to the card.
    Deliver(Arrived),
    /// Clock the card until this cycle.
    Run(u64),
    /// Skip to this cycle.
    Skip(u64),
}

/// The state that a card's thread reports when it asks for its next step.
#[derive(Clone, Copy, Debug, Default)]
pub struct CardState {
    /// Its clock.
    pub now: u64,
    /// It has no work.
    pub idle: bool,
    /// Its timer, if armed.
    pub timer: Option<u64>,
    /// It can take a request of its host.
    pub host_room: bool,
    /// It can take a frame.
    pub rx_room: bool,
}

/// Wall-clock times of one end.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortStats {
    /// Time that the card was parked.
    pub parked: Duration,
    /// Time that the card waited for its peer (lookahead).
    pub blocked: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Busy,
    Parked { timer: Option<u64> },
    Gone,
}

#[derive(Debug)]
struct Port {
    status: Status,
    now: u64,
    // End of the step that its thread is executing.
    target: u64,
    waiting: bool,
    inbox: VecDeque<Request>,
    stats: PortStats,
}

#[derive(Debug)]
struct Shared {
    ports: [Port; 2],
    // wire[i] carries what card i sends.
    wire: [Direction; 2],
    faults: Faults,
    // Since when, and from which cycle on, no card has work.
    idle_since: Option<(Instant, u64)>,
    quiet: Quiet,
    stop: bool,
}

/// Cycles in which no card of the wire had work, by what ended them. They depend on the speed of the emulated hosts, so
/// no performance figure may contain those of the first kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quiet {
    /// A host's access.
    pub host: u64,
    /// A timer.
    pub timer: u64,
}

/// Settings of a wire.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// One-way latency in cycles, at least 1.
    pub latency: u64,
    /// Most cycles that a card runs before it looks at the wire again.
    pub quantum: u64,
    /// Pace of time while no card has work.
    pub pace: Pace,
    /// Faults to begin with.
    pub faults: Faults,
}

/// A wire with two ends.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    // How far a card may run ahead of its peer: the latency without the guard.
    lookahead: u64,
    shared: Mutex<Shared>,
    wake: [Condvar; 2],
    changed: Condvar,
}

impl Shared {
    fn view(&self, me: usize, quantum: u64, lookahead: u64) -> View {
        let port = &self.ports[me];
        let peer = &self.ports[1 - me];
        let (idle, timer) = match port.status {
            Status::Parked { timer } => (true, timer),
            Status::Busy | Status::Gone => (false, None),
        };
        View {
            now: port.now,
            idle,
            timer,
            arrival: self.wire[1 - me].next_arrival(),
            peer: match peer.status {
                Status::Busy => Peer::Busy { now: peer.now },
                Status::Gone => Peer::Gone,
                Status::Parked { .. } => Peer::Parked { next: self.next_event(1 - me) },
            },
            latency: lookahead,
            quantum,
        }
    }

    // Next timer of, or frame for, a parked card.
    fn next_event(&self, who: usize) -> Option<u64> {
        match self.ports[who].status {
            Status::Parked { timer } => [timer, self.wire[1 - who].next_arrival()].into_iter().flatten().min(),
            Status::Busy | Status::Gone => None,
        }
    }

    fn note_idleness(&mut self) {
        if self.ports.iter().any(|p| p.status == Status::Busy) {
            self.idle_since = None;
        } else if self.idle_since.is_none() {
            let now = self.ports.iter().map(|p| p.now).max().unwrap_or(0);
            self.idle_since = Some((Instant::now(), now));
        }
    }

    // Where the clock stands while no card has work (rule 6), not beyond the next event.
    fn paced_now(&self, pace: &Pace) -> Option<u64> {
        let (since, base) = self.idle_since?;
        if pace.cycles_per_ms == 0 {
            return Some(base);
        }
        let paced = base.saturating_add(pace.cycles(since.elapsed()));
        let next = [self.next_event(0), self.next_event(1)].into_iter().flatten().min();
        Some(paced.min(next.unwrap_or(u64::MAX).max(base)))
    }

    // The clock of a parked card that its host wakes, and how much of the skip was waiting for that host.
    fn wake_clock(&self, me: usize, pace: &Pace) -> (u64, u64) {
        let port = &self.ports[me];
        let peer = &self.ports[1 - me];
        let mut clock = port.now;
        if peer.status != Status::Gone {
            clock = clock.max(peer.now);
        }
        let busy_until = clock;
        if let Some(paced) = self.paced_now(pace) {
            clock = clock.max(paced);
        }
        if let Some(event) = self.next_event(me) {
            clock = clock.min(event.max(port.now));
        }
        (clock, clock.saturating_sub(busy_until))
    }

    fn begin(&mut self, me: usize, now: u64, target: u64) {
        let port = &mut self.ports[me];
        port.status = Status::Busy;
        port.now = now;
        port.target = target;
        self.idle_since = None;
    }
}

impl Link {
    /// A wire whose ends are both free: an end counts as gone until a card asks for its first step.
    pub fn new(config: LinkConfig, first_direction: u32) -> Self {
        let port = || Port {
            status: Status::Gone,
            now: 0,
            target: 0,
            waiting: false,
            inbox: VecDeque::new(),
            stats: PortStats::default(),
        };
        let latency = config.latency.max(1);
        let lookahead = latency - GUARD.min(latency / 4);
        let config = LinkConfig { latency, quantum: config.quantum.clamp(1, lookahead), ..config };
        Self {
            config,
            lookahead,
            shared: Mutex::new(Shared {
                ports: [port(), port()],
                wire: [Direction::new(first_direction, latency), Direction::new(first_direction + 1, latency)],
                faults: config.faults,
                idle_since: None,
                quiet: Quiet::default(),
                stop: false,
            }),
            wake: [Condvar::new(), Condvar::new()],
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A thread that panicked has left counters and queues that are still consistent.
        self.shared.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn view(&self, s: &Shared, who: usize) -> View {
        s.view(who, self.config.quantum, self.lookahead)
    }

    fn wake_if_useful(&self, s: &Shared, who: usize) {
        let port = &s.ports[who];
        if port.waiting && port.status != Status::Gone && self.view(s, who).wake() {
            self.wake[who].notify_one();
        }
    }

    /// Card `me` has sent a frame in the cycles `start..=end`. Call before [`Link::next`] tells the wire a later clock.
    pub fn send(&self, me: usize, frame: Vec<u8>, start: u64, end: u64) -> Option<Sent> {
        let mut s = self.lock();
        if s.ports.iter().any(|p| p.status == Status::Gone) {
            s.wire[me].drop_unplugged(&frame);
            return None;
        }
        let faults = s.faults;
        let sent = s.wire[me].send(&faults, frame, start, end);
        if sent.held {
            self.changed.notify_all();
        }
        self.wake_if_useful(&s, 1 - me);
        Some(sent)
    }

    /// The next frame for card `me` that has arrived by `now`; for a card that is clocked outside of its steps.
    pub fn take_due(&self, me: usize, now: u64) -> Option<Arrived> {
        let frame = self.lock().wire[1 - me].take_due(now);
        self.changed.notify_all();
        frame
    }

    /// Whether the wire takes further frames of card `me`; held frames do not count.
    pub fn tx_room(&self, me: usize) -> bool {
        self.lock().wire[me].in_flight() < IN_FLIGHT_LIMIT
    }

    /// Waits until the wire takes a further frame of end `me`, or the run ends.
    pub fn wait_room(&self, me: usize) {
        let mut s = self.lock();
        while s.wire[me].in_flight() >= IN_FLIGHT_LIMIT && !s.stop {
            s = self.changed.wait(s).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Tells the state of card `me` and waits until there is something for it to do.
    pub fn next(&self, me: usize, state: CardState) -> Step {
        let mut s = self.lock();
        let parked = if state.idle { Status::Parked { timer: state.timer } } else { Status::Busy };
        s.ports[me].now = state.now;
        s.ports[me].target = state.now;
        s.ports[me].status = parked;
        s.note_idleness();
        self.wake_if_useful(&s, 1 - me);
        loop {
            if s.stop {
                return Step::Stop;
            }
            let view = self.view(&s, me);
            if state.host_room && !s.ports[me].inbox.is_empty() && (state.idle || state.now < view.limit()) {
                let (clock, host_wait) = if state.idle { s.wake_clock(me, &self.config.pace) } else { (state.now, 0) };
                let request = s.ports[me].inbox.pop_front().expect("not empty");
                s.quiet.host += host_wait;
                s.begin(me, clock, clock);
                self.changed.notify_all();
                self.wake_if_useful(&s, 1 - me);
                return Step::Request { request, clock, host_wait };
            }
            if state.rx_room
                && let Some(frame) = s.wire[1 - me].take_due(state.now)
            {
                s.begin(me, state.now, state.now);
                self.changed.notify_all();
                return Step::Deliver(frame);
            }
            match view.plan() {
                Plan::Run(until) => {
                    s.begin(me, state.now, until);
                    return Step::Run(until);
                }
                Plan::Skip(to) => {
                    s.begin(me, to, to);
                    self.wake_if_useful(&s, 1 - me);
                    return Step::Skip(to);
                }
                Plan::Pace(to) => {
                    let (since, base) = *s.idle_since.get_or_insert((Instant::now(), state.now));
                    let due = self.config.pace.duration(to.saturating_sub(base));
                    let elapsed = since.elapsed();
                    if elapsed >= due {
                        s.quiet.timer += to.saturating_sub(base);
                        s.begin(me, to, to);
                        self.wake_if_useful(&s, 1 - me);
                        return Step::Skip(to);
                    }
                    s = self.wait(s, me, Some(due - elapsed));
                }
                Plan::Wait => s = self.wait(s, me, None),
            }
        }
    }

    fn wait<'a>(
        &'a self,
        mut s: MutexGuard<'a, Shared>,
        me: usize,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, Shared> {
        let start = Instant::now();
        s.ports[me].waiting = true;
        let mut s = match timeout {
            None => self.wake[me].wait(s).unwrap_or_else(|e| e.into_inner()),
            Some(t) => self.wake[me].wait_timeout(s, t).unwrap_or_else(|e| e.into_inner()).0,
        };
        let port = &mut s.ports[me];
        port.waiting = false;
        if port.status == Status::Busy {
            port.stats.blocked += start.elapsed();
        } else {
            port.stats.parked += start.elapsed();
        }
        s
    }

    /// Waits for the next request to an unplugged card; `None` ends the thread.
    pub fn next_while_gone(&self, me: usize) -> Option<Request> {
        let mut s = self.lock();
        loop {
            if s.stop {
                return None;
            }
            if let Some(request) = s.ports[me].inbox.pop_front() {
                self.changed.notify_all();
                return Some(request);
            }
            s = self.wait(s, me, None);
        }
    }

    /// Card `me` leaves the wire: frames under way are dropped.
    pub fn leave(&self, me: usize) {
        let mut s = self.lock();
        s.ports[me].status = Status::Gone;
        s.wire.iter_mut().for_each(Direction::cut);
        s.note_idleness();
        self.wake_if_useful(&s, 1 - me);
        self.changed.notify_all();
    }

    /// Card `me` comes (back) to the wire; returns its clock, at least `now`.
    pub fn join(&self, me: usize, now: u64) -> u64 {
        let mut s = self.lock();
        let clock = now.max(s.ports[1 - me].now).max(s.paced_now(&self.config.pace).unwrap_or(0));
        s.begin(me, clock, clock);
        clock
    }

    /// Queues a request for card `me`. Waits while many are queued, which holds up its host like a bus without credits.
    pub fn request(&self, me: usize, request: Request) {
        let mut s = self.lock();
        while s.ports[me].inbox.len() >= INBOX_LIMIT && !s.stop {
            s = self.changed.wait(s).unwrap_or_else(|e| e.into_inner());
        }
        s.ports[me].inbox.push_back(request);
        self.wake[me].notify_one();
    }

    /// Holds card `me`'s frames at the wire, after `after` further ones.
    pub fn hold(&self, me: usize, after: u64) {
        self.lock().wire[me].hold(after);
    }

    /// Lets held frames of card `me` go: `count` of them, or all and the wire is open again. Returns how many went.
    pub fn release(&self, me: usize, count: Option<usize>) -> usize {
        let mut s = self.lock();
        let now = s.ports.iter().map(|p| p.now.max(p.target)).max().unwrap_or(0);
        let now = now.max(s.paced_now(&self.config.pace).unwrap_or(0));
        let n = s.wire[me].release(now, count);
        self.wake_if_useful(&s, 1 - me);
        self.changed.notify_all();
        n
    }

    /// Waits until at least `count` frames of card `me` are held. False if that takes longer than `timeout`, or at the end of the run.
    pub fn wait_held(&self, me: usize, count: usize, timeout: Duration) -> bool {
        let end = Instant::now() + timeout;
        let mut s = self.lock();
        while s.wire[me].held() < count {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || s.stop {
                return false;
            }
            s = self.changed.wait_timeout(s, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        true
    }

    /// Frames of card `me` that are held.
    pub fn held(&self, me: usize) -> usize {
        self.lock().wire[me].held()
    }

    /// The faults that new frames meet.
    pub fn faults(&self) -> Faults {
        self.lock().faults
    }

    /// Changes the faults that new frames meet.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Cycles so far in which no card had work.
    pub fn quiet(&self) -> Quiet {
        self.lock().quiet
    }

    /// Counters of card `me`'s frames.
    pub fn direction(&self, me: usize) -> DirectionStats {
        self.lock().wire[me].stats()
    }

    /// Wall-clock times of end `me`.
    pub fn port(&self, me: usize) -> PortStats {
        self.lock().ports[me].stats
    }

    /// Ends both cards' threads.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.wake.iter().for_each(Condvar::notify_all);
        self.changed.notify_all();
    }
}
