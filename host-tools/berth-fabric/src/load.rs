// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workloads: what the applications send, and when.

use crate::hosts::{App, Event, Message, Setup, Workload};
use crate::net::{Loss, Spec};
use crate::time::{MS, NS, Queue, SECOND, Time, US};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

/// Sizes of messages with their shares: mostly small, most bytes in large ones, as in data centres' RPC.
pub const MIXED: &[(u32, u32)] =
    &[(40, 64), (25, 512), (15, 4 << 10), (10, 16 << 10), (6, 64 << 10), (3, 256 << 10), (1, 1 << 20)];

/// Mean of such a distribution.
pub fn mean(sizes: &[(u32, u32)]) -> f64 {
    let (weights, sum) =
        sizes.iter().fold((0.0, 0.0), |s, &(w, n)| (s.0 + f64::from(w), s.1 + f64::from(w) * f64::from(n)));
    sum / weights
}

fn draw(sizes: &[(u32, u32)], rng: &mut impl Rng) -> u32 {
    let total: u32 = sizes.iter().map(|s| s.0).sum();
    let mut at = rng.random_range(0..total);
    for &(weight, bytes) in sizes {
        if at < weight {
            // Not all of one size: between three quarters and five quarters of it.
            return (bytes - bytes / 4 + rng.random_range(0..=bytes / 2)).max(1);
        }
        at -= weight;
    }
    1
}

/// Each host sends messages at random times (Poisson) to its peers in random order.
pub struct Mixed {
    /// Ends of each host.
    ends: Vec<Vec<u32>>,
    /// Group of messages from each host, to each end.
    groups: Vec<u8>,
    sizes: &'static [(u32, u32)],
    gap: f64,
    length: Time,
    stop: Time,
}

impl Mixed {
    /// Hosts offer `load` of their link's rate for `length`.
    pub fn new(spec: &Spec, conns: &[[u32; 2]], sizes: &'static [(u32, u32)], load: f64, length: Time) -> Self {
        let mut ends = vec![Vec::new(); spec.hosts as usize];
        for (i, conn) in conns.iter().enumerate() {
            ends[conn[0] as usize].push(2 * i as u32);
            ends[conn[1] as usize].push(2 * i as u32 + 1);
        }
        let gap = mean(sizes) * spec.ps_per_byte() as f64 / load;
        Self { ends, groups: vec![0; conns.len() * 2], sizes, gap, length, stop: 0 }
    }

    fn next(&self, host: u32, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        let wait: f64 = Exp1.sample(rng);
        let at = queue.now() + (wait * self.gap) as Time;
        if at < self.stop {
            queue.at(at, Event::Load(host));
        }
    }
}

impl Workload for Mixed {
    fn start(&mut self, at: Time, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        self.stop = at + self.length;
        for (host, ends) in self.ends.iter().enumerate() {
            if !ends.is_empty() {
                let wait: f64 = Exp1.sample(rng);
                queue.at(at + (wait * self.gap) as Time, Event::Load(host as u32));
            }
        }
    }

    fn event(&mut self, host: u32, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        let ends = &self.ends[host as usize];
        let end = ends[rng.random_range(0..ends.len())];
        let bytes = draw(self.sizes, rng);
        let now = queue.now();
        queue.at(now, Event::Post { end, bytes, group: self.groups[end as usize], token: 0 });
        self.next(host, queue, rng);
    }

    fn done(&mut self, message: &Message, queue: &mut Queue<Event>, _: &mut Pcg64Mcg) -> Option<(u8, Time)> {
        Some((message.group, queue.now() - message.posted))
    }
}

/// All senders send to one host at once; when all is received, again.
pub struct Incast {
    senders: u32,
    bytes: u32,
    rounds: u32,
    left: u32,
    posted: Time,
}

impl Incast {
    fn round(&mut self, at: Time, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        self.rounds -= 1;
        self.left = self.senders;
        self.posted = at;
        for conn in 0..self.senders {
            let at = at + rng.random_range(0..US);
            queue.at(at, Event::Post { end: 2 * conn, bytes: self.bytes, group: 0, token: 0 });
        }
    }
}

impl Workload for Incast {
    fn start(&mut self, at: Time, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        self.round(at, queue, rng);
    }

    fn event(&mut self, _: u32, _: &mut Queue<Event>, _: &mut Pcg64Mcg) {}

    fn done(&mut self, message: &Message, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) -> Option<(u8, Time)> {
        self.left -= 1;
        if self.left == 0 && self.rounds > 0 {
            self.round(queue.now() + 10 * US, queue, rng);
        }
        Some((message.group, queue.now() - message.posted))
    }
}

/// Clients send requests and wait for the answer, one at a time on each connection. What is measured is the time
/// from request to answer.
pub struct Rpc {
    conns: u32,
    request: &'static [(u32, u32)],
    answer: &'static [(u32, u32)],
    think: Time,
    length: Time,
    stop: Time,
    asked: Vec<Time>,
}

impl Workload for Rpc {
    fn start(&mut self, at: Time, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        self.stop = at + self.length;
        for conn in 0..self.conns {
            queue.at(at + rng.random_range(0..10 * US), Event::Load(conn));
        }
    }

    fn event(&mut self, conn: u32, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        let now = queue.now();
        if now < self.stop {
            self.asked[conn as usize] = now;
            let bytes = draw(self.request, rng);
            queue.at(now, Event::Post { end: 2 * conn, bytes, group: 1, token: conn });
        }
    }

    fn done(&mut self, message: &Message, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) -> Option<(u8, Time)> {
        let now = queue.now();
        let conn = message.token;
        if message.group == 1 {
            let bytes = draw(self.answer, rng);
            queue.at(now, Event::Post { end: message.end ^ 1, bytes, group: 0, token: conn });
            return None;
        }
        let wait: f64 = Exp1.sample(rng);
        queue.at(now + (wait * self.think as f64) as Time, Event::Load(conn));
        Some((0, now - self.asked[conn as usize]))
    }
}

/// A sender's pattern in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it can.
    Fast,
    /// A twentieth of the link's rate.
    Slow,
    /// 1 MiB as fast as it can, then a pause of 50 to 150 µs.
    Bursty,
    /// All rates, from all of the link's to a hundredth of it, another one every 200 µs.
    Changing,
}

impl Pace {
    /// All.
    pub const ALL: [Self; 4] = [Self::Fast, Self::Slow, Self::Bursty, Self::Changing];

    /// Name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "steady, fast",
            Self::Slow => "steady, slow",
            Self::Bursty => "bursty",
            Self::Changing => "changing",
        }
    }
}

/// One sender, one connection, messages of 16 KiB (bursts: all at once).
pub struct Stream {
    pace: Pace,
    ps_per_byte: Time,
    length: Time,
    stop: Time,
    /// Rate as a part of the link's, and until when.
    part: u64,
    until: Time,
}

impl Stream {
    /// Sends for `length`.
    pub fn new(pace: Pace, spec: &Spec, length: Time) -> Self {
        Self { pace, ps_per_byte: spec.ps_per_byte(), length, stop: 0, part: 1, until: 0 }
    }
}

impl Workload for Stream {
    fn start(&mut self, at: Time, queue: &mut Queue<Event>, _: &mut Pcg64Mcg) {
        self.stop = at + self.length;
        queue.at(at, Event::Load(0));
    }

    fn event(&mut self, _: u32, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        const MESSAGE: u32 = 16 << 10;
        let now = queue.now();
        if now >= self.stop {
            return;
        }
        let message = Time::from(MESSAGE) * self.ps_per_byte;
        let (count, next) = match self.pace {
            Pace::Fast => (1, message),
            Pace::Slow => (1, 20 * message),
            Pace::Bursty => (64, 64 * message + rng.random_range(50 * US..150 * US)),
            Pace::Changing => {
                if now >= self.until {
                    self.part = [1, 2, 5, 10, 30, 100][rng.random_range(0..6)];
                    self.until = now + 200 * US;
                }
                (1, message * self.part)
            }
        };
        for _ in 0..count {
            queue.at(now, Event::Post { end: 0, bytes: MESSAGE, group: 0, token: 0 });
        }
        queue.at(now + next, Event::Load(0));
    }

    fn done(&mut self, message: &Message, queue: &mut Queue<Event>, _: &mut Pcg64Mcg) -> Option<(u8, Time)> {
        Some((0, queue.now() - message.posted))
    }
}

/// Every connection's first end always has some messages under way.
pub struct Flood {
    conns: u32,
    bytes: u32,
    outstanding: u32,
    length: Time,
    stop: Time,
}

impl Flood {
    /// `outstanding` messages of `bytes` on each of `conns` connections, new ones for `length`.
    pub fn new(conns: u32, bytes: u32, outstanding: u32, length: Time) -> Self {
        Self { conns, bytes, outstanding, length, stop: 0 }
    }
}

impl Workload for Flood {
    fn start(&mut self, at: Time, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        self.stop = at + self.length;
        for conn in 0..self.conns {
            let at = at + rng.random_range(0..US);
            for _ in 0..self.outstanding {
                queue.at(at, Event::Post { end: 2 * conn, bytes: self.bytes, group: 0, token: 0 });
            }
        }
    }

    fn event(&mut self, _: u32, _: &mut Queue<Event>, _: &mut Pcg64Mcg) {}

    fn done(&mut self, message: &Message, queue: &mut Queue<Event>, _: &mut Pcg64Mcg) -> Option<(u8, Time)> {
        let now = queue.now();
        if now < self.stop {
            queue.at(now, Event::Post { end: message.end, bytes: self.bytes, group: 0, token: 0 });
        }
        Some((0, now - message.posted))
    }
}

/// Every connection's first end sends some small messages, and some connections' ends also large ones.
pub struct Talk {
    /// For each connection: whether it sends large messages.
    heavy: Vec<bool>,
    /// All large ones at the same time, else at any time.
    burst: bool,
    span: Time,
}

impl Talk {
    /// Bytes of a small message.
    pub const SMALL: u32 = 256;
    /// Bytes of a large one.
    pub const LARGE: u32 = 8 << 10;
    /// Messages of each kind that a connection sends.
    pub const EACH: u32 = 2;

    /// On connections of which `heavy` tells whether they send large messages, for `span`.
    pub fn new(heavy: Vec<bool>, burst: bool, span: Time) -> Self {
        Self { heavy, burst, span }
    }
}

impl Workload for Talk {
    fn start(&mut self, at: Time, queue: &mut Queue<Event>, rng: &mut Pcg64Mcg) {
        let together = at + self.span / 2;
        for (conn, heavy) in self.heavy.iter().enumerate() {
            let end = 2 * conn as u32;
            for _ in 0..Self::EACH {
                let time = at + rng.random_range(0..self.span);
                queue.at(time, Event::Post { end, bytes: Self::SMALL, group: 0, token: 0 });
                let time =
                    if self.burst { together + rng.random_range(0..US) } else { at + rng.random_range(0..self.span) };
                if *heavy {
                    queue.at(time, Event::Post { end, bytes: Self::LARGE, group: 1, token: 0 });
                }
            }
        }
    }

    fn event(&mut self, _: u32, _: &mut Queue<Event>, _: &mut Pcg64Mcg) {}

    fn done(&mut self, message: &Message, queue: &mut Queue<Event>, _: &mut Pcg64Mcg) -> Option<(u8, Time)> {
        Some((message.group, queue.now() - message.posted))
    }
}

/// Workloads of question 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Messages of many sizes between all hosts, 50 % of every link.
    Mixed,
    /// So many hosts send 64 KiB to one, four times.
    Incast(u32),
    /// As `Mixed`, at 30 %, and host 0 takes what it receives at a tenth of its link's rate.
    SlowReceiver,
    /// Requests of some hundred bytes, answers up to 64 KiB, a quarter of the hosts are servers.
    RequestResponse,
}

impl Kind {
    /// Name in tables and plots.
    pub fn name(self) -> String {
        match self {
            Self::Mixed => "mixed sizes".to_owned(),
            Self::Incast(n) => format!("incast {n}:1"),
            Self::SlowReceiver => "one slow receiver".to_owned(),
            Self::RequestResponse => "request/response".to_owned(),
        }
    }

    /// The workload on `hosts` hosts with about `connections` connections, for `length`.
    pub fn setup(self, hosts: u32, connections: u32, loss: Loss, length: Time, seed: u64) -> Setup {
        let hosts = if let Self::Incast(n) = self { n + 1 } else { hosts };
        let spec = Spec::of(hosts, loss);
        // Connections come from the seed alone, so that all schemes have the same.
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0xc0_4e_c7);
        let mut apps = Vec::new();
        let random = |rng: &mut Pcg64Mcg| {
            let a = rng.random_range(0..hosts);
            let b = (a + rng.random_range(1..hosts)) % hosts;
            [a, b]
        };
        let mut conns: Vec<[u32; 2]>;
        let load: Box<dyn Workload> = match self {
            Self::Mixed => {
                conns = (0..connections).map(|_| random(&mut rng)).collect();
                Box::new(Mixed::new(&spec, &conns, MIXED, 0.5, length))
            }
            Self::SlowReceiver => {
                // Every host has a connection with the slow one, and others.
                conns = (1..hosts).map(|h| [h, 0]).collect();
                while hosts > 2 && (conns.len() as u32) < connections {
                    let conn = random(&mut rng);
                    if conn[0] != 0 && conn[1] != 0 {
                        conns.push(conn);
                    }
                }
                apps.push((0, App { each: 200 * NS, ps_per_byte: spec.ps_per_byte() * 10, turn: 0 }));
                let mut mixed = Mixed::new(&spec, &conns, MIXED, 0.3, length);
                for (i, conn) in conns.iter().enumerate() {
                    if conn[1] == 0 {
                        mixed.groups[2 * i] = 1;
                    }
                }
                mixed.ends[0].clear();
                Box::new(mixed)
            }
            Self::Incast(n) => {
                conns = (1..=n).map(|h| [h, 0]).collect();
                Box::new(Incast { senders: n, bytes: 64 << 10, rounds: 4, left: 0, posted: 0 })
            }
            Self::RequestResponse => {
                let servers = (hosts / 4).max(1);
                conns = (0..connections)
                    .map(|i| [servers + i % (hosts - servers).max(1), rng.random_range(0..servers)])
                    .collect();
                Box::new(Rpc {
                    conns: connections,
                    request: &[(80, 128), (20, 1 << 10)],
                    answer: &[(60, 512), (30, 8 << 10), (10, 64 << 10)],
                    think: 40 * US,
                    length,
                    stop: 0,
                    asked: vec![0; connections as usize],
                })
            }
        };
        conns.retain(|c| c[0] != c[1]);
        Setup { spec, conns, apps, load, seed, limit: length + 2 * SECOND + MS }
    }
}
