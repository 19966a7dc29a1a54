// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts with their adapters and applications around the fabric; the interface of a scheme of flow control, and the
//! measurements.

use crate::net::{Net, NetCounters, NetEvent, Outcome, Packet, Spec};
use crate::time::{MS, NS, Queue, SECOND, Time, US};
use hdrhistogram::Histogram;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use slab::Slab;
use std::collections::VecDeque;

/// Something that a scheme wants to be called for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// What for; the scheme's own.
    pub kind: u8,
    /// Connection end or host.
    pub a: u32,
    /// More.
    pub b: u64,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// In the fabric.
    Net(NetEvent),
    /// The host's adapter may have something to send.
    Kick(u32),
    /// In the scheme.
    Timer(Timer),
    /// The application of an end sends a message.
    Post {
        /// End.
        end: u32,
        /// Bytes.
        bytes: u32,
        /// Group that it is measured in.
        group: u8,
        /// The workload's own.
        token: u32,
    },
    /// The last byte of a message is in its receiver's hands.
    Done(u32),
    /// In the workload.
    Load(u32),
}

impl From<NetEvent> for Event {
    fn from(event: NetEvent) -> Self {
        Self::Net(event)
    }
}

/// A message that is not received yet.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// End that sends it.
    pub end: u32,
    /// Bytes.
    pub bytes: u32,
    /// Group that it is measured in.
    pub group: u8,
    /// The workload's own.
    pub token: u32,
    /// When it was posted.
    pub posted: Time,
}

/// How an application handles received bytes.
#[derive(Clone, Copy, Debug)]
pub struct App {
    /// Time for each buffer.
    pub each: Time,
    /// Picoseconds for each byte.
    pub ps_per_byte: Time,
    /// It looks for received buffers in turns of this length: a buffer waits for up to so long, half of it in the mean.
    pub turn: Time,
}

impl Default for App {
    /// Looks at each buffer for 100 ns.
    fn default() -> Self {
        Self { each: 100 * NS, ps_per_byte: 0, turn: 0 }
    }
}

/// Time to copy a byte from a bounce buffer to where it belongs: 25 GB/s, about two cores.
pub const COPY_PS_PER_BYTE: Time = 40;

/// Places of a host's adapter where something waits to be sent.
pub struct Nic<B> {
    /// Control packets, complete.
    pub control: VecDeque<Packet<B>>,
    /// Ends that owe an acknowledgement.
    acks: VecDeque<u32>,
    /// Ends that may have data to send, in turn.
    data: VecDeque<u32>,
    app: App,
    app_free: Time,
    firmware_free: Time,
    /// A `Kick` is on its way.
    kicked: bool,
}

/// Bytes and messages that are not data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

/// One group of messages.
pub struct Group {
    /// Nanoseconds from post to the last byte in the receiver's hands.
    pub times: Histogram<u64>,
    /// Messages received.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last one was received.
    pub last: Time,
}

impl Default for Group {
    fn default() -> Self {
        let times = Histogram::new_with_bounds(1, 1_000_000_000_000, 3).expect("1 ns to 1000 s, three digits");
        Self { times, messages: 0, bytes: 0, last: 0 }
    }
}

/// Number of groups.
pub const GROUPS: usize = 3;

/// What is measured.
#[derive(Default)]
pub struct Stats {
    /// Messages by group.
    pub groups: [Group; GROUPS],
    /// Acknowledgements of the transport.
    pub acks: Control,
    /// Flow control: credits, lists, grants and their acknowledgements.
    pub flow: Control,
    /// Receiver not ready: times that data was refused or dropped because there was no buffer.
    pub not_ready: u64,
    /// Data packets sent again.
    pub again: u64,
    /// Bytes copied by hosts.
    pub copied: u64,
    /// Data packets.
    pub data: Control,
    committed: u64,
    committed_peak: u64,
    committed_sum: u128,
    committed_at: Time,
    /// When a message was received last, and the sum until then.
    committed_done: (Time, u128),
    /// Begin of the measurement.
    pub began: Time,
    /// Connection ends that wait for credit although data is there: time.
    pub idle: Time,
}

impl Stats {
    fn commit(&mut self, now: Time, delta: i64) {
        self.committed_sum += self.committed as u128 * (now - self.committed_at) as u128;
        self.committed_at = now;
        self.committed = self.committed.saturating_add_signed(delta);
        self.committed_peak = self.committed_peak.max(self.committed);
    }

    /// Most bytes of receive buffers committed at a time, all hosts.
    pub fn committed_peak(&self) -> u64 {
        self.committed_peak
    }

    /// Bytes of receive buffers committed now.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Bytes committed, averaged over the time until the last message was received.
    pub fn committed_mean(&self) -> u64 {
        (self.committed_done.1 / u128::from((self.committed_done.0.max(self.began) - self.began).max(1))) as u64
    }

    /// Begins anew; committed memory stays committed.
    fn restart(&mut self, now: Time) {
        let committed = self.committed;
        *self = Self { committed, committed_peak: committed, committed_at: now, began: now, ..Self::default() };
    }

    /// All groups: messages, bytes, time of the last.
    pub fn total(&self) -> (u64, u64, Time) {
        self.groups.iter().fold((0, 0, 0), |t, g| (t.0 + g.messages, t.1 + g.bytes, t.2.max(g.last)))
    }
}

/// The state that schemes and workloads act on.
pub struct Cx<B> {
    /// What happens later.
    pub queue: Queue<Event>,
    /// The fabric.
    pub net: Net<B>,
    /// Adapters.
    pub nics: Vec<Nic<B>>,
    /// Hosts of each connection's two ends. End `2 c + s` is side `s` of connection `c`.
    pub conns: Vec<[u32; 2]>,
    /// Messages under way.
    pub messages: Slab<Message>,
    /// Measurements.
    pub stats: Stats,
    /// Random numbers for schemes and workloads.
    pub rng: Pcg64Mcg,
    flags: Vec<u8>,
}

const ACK_WAITS: u8 = 1;
const DATA_WAITS: u8 = 2;

impl<B> Cx<B> {
    /// Now.
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// Host of an end.
    pub fn host(&self, end: u32) -> u32 {
        self.conns[end as usize / 2][end as usize & 1]
    }

    /// Host at the other end.
    pub fn peer(&self, end: u32) -> u32 {
        self.host(end ^ 1)
    }

    /// A packet from `end` to the other end.
    pub fn packet(&self, end: u32, bytes: u32, class: u8, body: B) -> Packet<B> {
        Packet::new(self.host(end), self.peer(end), bytes, end, class, body)
    }

    /// Calls the scheme's `timer` at `at`.
    pub fn timer(&mut self, at: Time, kind: u8, a: u32, b: u64) {
        self.queue.at(at, Event::Timer(Timer { kind, a, b }));
    }

    /// The end may have data to send.
    pub fn data_waits(&mut self, end: u32) {
        let flag = &mut self.flags[end as usize];
        if *flag & DATA_WAITS == 0 {
            *flag |= DATA_WAITS;
            let host = self.host(end);
            self.nics[host as usize].data.push_back(end);
            self.kick(host);
        }
    }

    /// The end owes an acknowledgement.
    pub fn ack_waits(&mut self, end: u32) {
        let flag = &mut self.flags[end as usize];
        if *flag & ACK_WAITS == 0 {
            *flag |= ACK_WAITS;
            let host = self.host(end);
            self.nics[host as usize].acks.push_back(end);
            self.kick(host);
        }
    }

    /// Sends a control packet as soon as the link is free.
    pub fn control(&mut self, packet: Packet<B>) {
        let host = packet.from;
        self.nics[host as usize].control.push_back(packet);
        self.kick(host);
    }

    /// The host may have something to send.
    pub fn kick(&mut self, host: u32) {
        if !self.nics[host as usize].kicked && self.net.ready(host, &mut self.queue) {
            self.nics[host as usize].kicked = true;
            let now = self.now();
            self.queue.at(now, Event::Kick(host));
        }
    }

    /// The application of `host` takes `bytes` that lie in its own buffer (or are copied there first): when it
    /// is done with them.
    pub fn serve(&mut self, host: u32, bytes: u32, copy: bool) -> Time {
        let now = self.now();
        let nic = &mut self.nics[host as usize];
        let mut time = nic.app.each + bytes as Time * nic.app.ps_per_byte;
        if copy {
            time += bytes as Time * COPY_PS_PER_BYTE;
            self.stats.copied += bytes as u64;
        }
        nic.app_free = nic.app_free.max(now) + time;
        let (free, turn) = (nic.app_free, nic.app.turn);
        free + if turn > 0 { self.rng.random_range(0..turn) } else { 0 }
    }

    /// A part of a message is copied to the application while the rest still comes: when that is done.
    pub fn copy(&mut self, host: u32, bytes: u32) -> Time {
        let now = self.now();
        self.stats.copied += bytes as u64;
        let nic = &mut self.nics[host as usize];
        nic.app_free = nic.app_free.max(now) + bytes as Time * (COPY_PS_PER_BYTE + nic.app.ps_per_byte);
        nic.app_free
    }

    /// The card's processor does a piece of work of length `work`, after what it has to do before: when it is done.
    pub fn firmware(&mut self, host: u32, work: Time) -> Time {
        let now = self.now();
        let nic = &mut self.nics[host as usize];
        nic.firmware_free = nic.firmware_free.max(now) + work;
        nic.firmware_free
    }

    /// Receive memory is committed (positive) or given back.
    pub fn commit(&mut self, delta: i64) {
        let now = self.now();
        self.stats.commit(now, delta);
    }

    /// The last byte of message `message` is where the application wants it at `at`.
    pub fn done(&mut self, at: Time, message: u32) {
        self.queue.at(at, Event::Done(message));
    }
}

/// A way of flow control, with the transport under it.
pub trait Scheme: Sized {
    /// What its packets say.
    type Body;
    /// All connections exist; nothing is sent yet.
    fn start(&mut self, cx: &mut Cx<Self::Body>);
    /// The application of `end` sends message `message`.
    fn post(&mut self, cx: &mut Cx<Self::Body>, end: u32, message: u32);
    /// Next data packet of `end`.
    fn data(&mut self, cx: &mut Cx<Self::Body>, end: u32) -> Option<Packet<Self::Body>>;
    /// Acknowledgement that `end` owes.
    fn ack(&mut self, cx: &mut Cx<Self::Body>, end: u32) -> Option<Packet<Self::Body>>;
    /// A packet has come.
    fn receive(&mut self, cx: &mut Cx<Self::Body>, packet: Packet<Self::Body>);
    /// A time set with [`Cx::timer`] has come.
    fn timer(&mut self, cx: &mut Cx<Self::Body>, timer: Timer);
    /// Next packet of a host whose link is free: acknowledgements and control, then data, end after end in turn.
    fn pull(&mut self, cx: &mut Cx<Self::Body>, host: u32) -> Option<Packet<Self::Body>> {
        while let Some(end) = cx.nics[host as usize].acks.pop_front() {
            cx.flags[end as usize] &= !ACK_WAITS;
            if let Some(packet) = self.ack(cx, end) {
                return Some(packet);
            }
        }
        if let Some(packet) = cx.nics[host as usize].control.pop_front() {
            return Some(packet);
        }
        if !cx.net.may_send_data(host) {
            return None;
        }
        while let Some(end) = cx.nics[host as usize].data.pop_front() {
            if let Some(packet) = self.data(cx, end) {
                cx.nics[host as usize].data.push_back(end);
                return Some(packet);
            }
            cx.flags[end as usize] &= !DATA_WAITS;
        }
        None
    }
}

/// What the applications send.
pub trait Workload {
    /// Puts the first events into the queue; sending begins at `at`.
    fn start(&mut self, at: Time, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg);
    /// An event `Load` of its own.
    fn event(&mut self, token: u32, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg);
    /// A message was received. Returns the group and the nanoseconds to be recorded.
    fn done(&mut self, message: &Message, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) -> Option<(u8, Time)>;
}

/// What a run is made of.
pub struct Setup {
    /// The fabric.
    pub spec: Spec,
    /// Hosts of each connection's two ends.
    pub conns: Vec<[u32; 2]>,
    /// Applications that are not as usual.
    pub apps: Vec<(u32, App)>,
    /// What is sent.
    pub load: Box<dyn Workload>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Simulated time after which the run ends although messages are under way.
    pub limit: Time,
}

/// Outcome of a run.
pub struct End {
    /// Measurements.
    pub stats: Stats,
    /// The fabric's counters.
    pub net: NetCounters,
    /// Messages that were not received by the end.
    pub unfinished: u64,
    /// Events handled.
    pub events: u64,
}

/// Runs `scheme` until all messages are received or the limit is reached.
pub fn run<S: Scheme>(setup: Setup, scheme: &mut S) -> End {
    use rand::SeedableRng;
    let Setup { spec, conns, apps, mut load, seed, limit } = setup;
    let mut nics: Vec<Nic<S::Body>> = (0..spec.hosts)
        .map(|_| Nic {
            control: VecDeque::new(),
            acks: VecDeque::new(),
            data: VecDeque::new(),
            app: App::default(),
            app_free: 0,
            firmware_free: 0,
            kicked: false,
        })
        .collect();
    for (host, app) in apps {
        nics[host as usize].app = app;
    }
    let mut ends_of = vec![0u64; spec.hosts as usize];
    for conn in &conns {
        ends_of[conn[0] as usize] += 1;
        ends_of[conn[1] as usize] += 1;
    }
    let mut cx = Cx {
        queue: Queue::default(),
        net: Net::new(spec),
        nics,
        flags: vec![0; conns.len() * 2],
        conns,
        messages: Slab::new(),
        stats: Stats::default(),
        rng: Pcg64Mcg::seed_from_u64(seed),
    };
    // First credits go out before the measurement begins, as they do when connections are made beforehand.
    let begin = 20 * US + 3 * US * ends_of.iter().max().copied().unwrap_or(0);
    scheme.start(&mut cx);
    step(&mut cx, scheme, load.as_mut(), begin);
    let now = cx.now();
    cx.stats.restart(begin.max(now));
    cx.net.counters = NetCounters::default();
    load.start(begin, &mut cx.queue, &mut cx.rng);
    // In pieces, so that a run whose only events are timers that never end does end.
    let mut last = (0, begin);
    let mut to = begin;
    loop {
        to = (to + MS).min(limit.max(begin));
        step(&mut cx, scheme, load.as_mut(), to);
        let (received, ..) = cx.stats.total();
        if received != last.0 {
            last = (received, to);
        }
        let idle = cx.messages.is_empty() && to - last.1 > 20 * MS;
        if idle || to >= limit || to - last.1 > 5 * SECOND {
            break;
        }
    }
    End { unfinished: cx.messages.len() as u64, events: cx.queue.count(), net: cx.net.counters, stats: cx.stats }
}

fn step<S: Scheme>(cx: &mut Cx<S::Body>, scheme: &mut S, load: &mut dyn Workload, limit: Time) {
    while let Some(event) = cx.queue.take(limit) {
        match event {
            Event::Net(event) => match cx.net.handle(event, &mut cx.queue) {
                Outcome::None => (),
                Outcome::Pull(host) => pull(cx, scheme, host),
                Outcome::Arrived(packet) => scheme.receive(cx, packet),
            },
            Event::Kick(host) => {
                cx.nics[host as usize].kicked = false;
                pull(cx, scheme, host);
            }
            Event::Timer(timer) => scheme.timer(cx, timer),
            Event::Post { end, bytes, group, token } => {
                let posted = cx.now();
                let message = cx.messages.insert(Message { end, bytes, group, token, posted }) as u32;
                scheme.post(cx, end, message);
            }
            Event::Done(key) => {
                let message = cx.messages.remove(key as usize);
                let now = cx.now();
                let record = load.done(&message, &mut cx.queue, &mut cx.rng);
                let group = &mut cx.stats.groups[message.group as usize % GROUPS];
                group.messages += 1;
                group.bytes += message.bytes as u64;
                group.last = now;
                cx.stats.commit(now, 0);
                cx.stats.committed_done = (now, cx.stats.committed_sum);
                if let Some((group, time)) = record {
                    cx.stats.groups[group as usize % GROUPS].times.saturating_record((time / NS).max(1));
                }
            }
            Event::Load(token) => load.event(token, &mut cx.queue, &mut cx.rng),
        }
    }
}

fn pull<S: Scheme>(cx: &mut Cx<S::Body>, scheme: &mut S, host: u32) {
    if !cx.net.ready(host, &mut cx.queue) {
        return;
    }
    if let Some(packet) = scheme.pull(cx, host) {
        if packet.class != 0 {
            cx.stats.data.packets += 1;
            cx.stats.data.bytes += packet.bytes as u64;
        }
        cx.net.send(packet, &mut cx.queue);
        // Asks for the event that comes when the link is free again.
        cx.net.ready(host, &mut cx.queue);
    }
}
