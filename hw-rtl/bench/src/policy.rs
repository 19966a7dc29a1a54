// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the next credit list goes: policies against each other on two cards with firmware, and next to each figure that of
//! the protocol's own machines for the same load.

use anyhow::{Context as _, Result};
use berth_abi::ring::*;
use berth_abi::rows::ROW_CLOCK;
use berth_protocol::card::limits::{FAST_FEW, FAST_LIST, LIST_AGAIN};
use berth_protocol::credit::announcer::{Announcer, Options};
use berth_protocol::credit::entry::{Body, Entry, Name};
use berth_protocol::credit::policy::{self as protocol, Kind, Settings};
use berth_protocol::credit::taker::{Arrived, Taker};
use rayon::iter::{IntoParallelIterator as _, IntoParallelRefIterator as _, ParallelIterator as _};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs;

use crate::cards::{Cards, LOOK, Receives, Trigger, settled};
use crate::fast;
use crate::model::{Model, wire_payload};
use crate::rows::{Bar, Row};
use crate::sender::{Log, MESSAGE, Measured, Pace};

/// A policy: its name, what the library asks the card for, and what the protocol has.
struct Policy {
    name: &'static str,
    trigger: Trigger,
    kind: Kind,
}

const POLICIES: [Policy; 8] = [
    Policy { name: "first", trigger: (TRIGGER_FIRST, 0), kind: Kind::First },
    Policy { name: "quarter", trigger: (TRIGGER_QUARTERS, 1), kind: Kind::Quarters(1) },
    Policy { name: "middle", trigger: (TRIGGER_QUARTERS, 2), kind: Kind::Quarters(2) },
    Policy { name: "last", trigger: (TRIGGER_LAST, 0), kind: Kind::Last },
    Policy { name: "adaptive", trigger: (TRIGGER_ADAPTIVE, 0), kind: Kind::Adaptive },
    Policy { name: "timed", trigger: (TRIGGER_TIMED, 0), kind: Kind::Timed },
    Policy { name: "predictive", trigger: (TRIGGER_PREDICTIVE, 0), kind: Kind::Predictive },
    Policy { name: "auto", trigger: (TRIGGER_AUTO, 0), kind: Kind::InBand },
];

/// The longer round trip is so many times as long.
const FARTHER: u64 = 10;
/// Path MTU.
const MTU: u64 = 4096;

/// Receives that the receiver keeps posted, one by one: more than the longer round trip takes, and as many as the card's lists
/// may lack (`FAST_FEW`), which is less than that.
const POSTED: [Receives; 2] = [Receives { count: 64, bytes: 8 << 10 }, Receives { count: 16, bytes: 16 << 10 }];

/// Bytes per µs of the link at which the simulation at scale counts the processor's time for lists, 1 µs for each.
const LINK: f64 = 12_500.0;

/// A policy with a sender, at a distance, and what came of it on the card and in the protocol's own machines.
struct Found {
    policy: &'static Policy,
    pace: Pace,
    receives: Receives,
    round_trip: u64,
    /// On the card, and in the protocol's own machines.
    measured: [Measured; 2],
}

/// The rows `policy_…` at the widest width that is built.
///
/// # Errors
/// When not all bytes arrive as they were sent, or there is no firmware.
pub fn rows(model: &Model, data_w: usize) -> Result<Vec<Row>> {
    if berth_rtl::WIDTHS.last() != Some(&data_w) {
        return Ok(Vec::new());
    }
    let path = model.firmware.as_ref().context("the figures policy_* need the card's firmware: --firmware FILE")?;
    let image = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let found = POSTED.into_par_iter().map(|receives| streams(model, data_w, &image, receives));
    let mut found: Vec<Found> = found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    found.sort_by_key(|f| Pace::ALL.iter().position(|&pace| pace == f.pace));
    let mut rows: Vec<Row> = found.iter().flat_map(|f| f.rows(model, data_w)).collect();
    for policy in &POLICIES {
        let those: Vec<&Found> = found.iter().filter(|f| f.policy.name == policy.name).collect();
        rows.extend(sums(data_w, policy, &those));
        let steady = those.iter().find(|f| (f.pace, f.round_trip) == (Pace::Fast, model.wire_round_trip));
        let [card, machines] = steady.context("a steady sender")?.measured.map(|m| round(m.rate));
        let params = [("data_w", data_w.into()), ("policy", policy.name.into()), ("model", machines.into())];
        let limit = wire_payload(data_w, MTU as usize);
        rows.push(Row::new("policy_bw", &params, card, "B/cycle", Some(limit), Bar::None));
    }
    let others = POLICIES.par_iter().map(|policy| {
        let (first, measured) = (Policy::first(policy), policy.trigger.0 >= TRIGGER_ADAPTIVE);
        fast::with_trigger(model, data_w, policy.name, first, measured)
    });
    rows.extend(others.collect::<Result<Vec<_>>>()?.into_iter().flatten());
    Ok(rows)
}

impl Policy {
    /// Kind and index, as rows have them, of the trigger before anything is measured.
    fn first(&self) -> (u32, u32) {
        let trigger = protocol::Policy::new(Settings::of(self.kind)).trigger().to_arg();
        (trigger & 0xff, trigger >> 8)
    }
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl Found {
    /// Its idle time, its lists, and those that were told again.
    fn rows(&self, model: &Model, data_w: usize) -> [Row; 3] {
        let (id, sender) = self.pace.names();
        let Receives { count, bytes } = self.receives;
        let row = |what: &str, unit: &str, of: fn(&Measured) -> f64| {
            let [card, machines] = self.measured.each_ref().map(|m| round(of(m)));
            let params = [
                ("data_w", data_w.into()),
                ("sender", sender.into()),
                ("receives", format!("{count} × {} KiB", bytes >> 10).into()),
                ("round_trip", self.round_trip.into()),
                ("policy", self.policy.name.into()),
                ("what", what.into()),
                ("model", machines.into()),
                ("seed", model.seed.into()),
            ];
            Row::new(id, &params, card, unit, None, Bar::None)
        };
        [row("idle", "%", |m| m.idle), row("lists", "1/MiB", |m| m.lists), row("told again", "1/MiB", |m| m.again)]
    }
}

/// The rows `policy_sum`: means over all that a policy was tried with, and what they come to by the weights of the simulation at
/// scale.
fn sums(data_w: usize, policy: &Policy, found: &[&Found]) -> Vec<Row> {
    let mean =
        |n: usize, of: fn(&Measured) -> f64| found.iter().map(|f| of(&f.measured[n])).sum::<f64>() / found.len() as f64;
    let idle = [0, 1].map(|n| mean(n, |m| m.idle));
    let lists = [0, 1].map(|n| mean(n, |m| m.lists * 1e6 / f64::from(1 << 20)));
    let processor = lists.map(|lists| 100.0 * lists * LINK / 1e6);
    let sum = [0, 1].map(|n| idle[n] + processor[n]);
    let kinds = [("idle", idle, "%"), ("lists", lists, "1/MB"), ("processor", processor, "%"), ("sum", sum, "%")];
    let row = |(what, [card, machines], unit): (&str, [f64; 2], &str)| {
        let params = [
            ("data_w", data_w.into()),
            ("policy", policy.name.into()),
            ("what", what.into()),
            ("model", round(machines).into()),
        ];
        Row::new("policy_sum", &params, round(card), unit, None, Bar::None)
    };
    kinds.into_iter().map(row).collect()
}

/// All policies with all senders, one after the other: for each policy and round trip a queue pair that forgets what it has
/// measured of the sender before.
fn streams(model: &Model, data_w: usize, image: &[u8], receives: Receives) -> Result<Vec<Found>> {
    let round_trips = [model.wire_round_trip, FARTHER * model.wire_round_trip];
    let runs: Vec<(u64, &Policy)> = round_trips.iter().flat_map(|&r| POLICIES.iter().map(move |p| (r, p))).collect();
    let triggers: Vec<Trigger> = runs.iter().map(|run| run.1.trigger).collect();
    let mut cards = Cards::new(model, data_w, image, &triggers);
    let mut found = Vec::new();
    for (n, (round_trip, policy)) in (0..).zip(runs) {
        let mut machines = Machines::new(model, data_w, receives, round_trip);
        for pace in Pace::ALL {
            let posts = pace.posts(MESSAGE * 8 / data_w as u64, model.seed);
            cards.set_trigger(n, policy.trigger)?;
            let card = cards.stream(n, receives, round_trip, &posts);
            let card = card.with_context(|| format!("{pace:?}, {receives:?}, {round_trip}, {}", policy.name))?;
            machines.set_policy(policy.kind);
            let measured = [card, machines.run(&posts)];
            found.push(Found { policy, pace, receives, round_trip, measured });
        }
    }
    Ok(found)
}

/// Credits in a list at most, and those that either end keeps.
const LIST: usize = 64;
const ROOM: usize = 2 * LIST;
/// Bytes of a frame with a list that are not sizes, and of one.
const LIST_FRAME: u64 = 24 + 14 + 20 + 8 + 12 + 8 + 12 + 4;

/// What happens in the protocol's own machines.
enum Event {
    Post,
    /// The wire is free for the sender.
    Free,
    /// A packet has come: the first one of its piece, or the last one, which says how many bytes are left.
    Landed {
        first: bool,
        last: Option<u32>,
    },
    /// A list has come.
    List(Box<Entry<LIST>>),
    /// A receive is posted again.
    Receive,
    /// The announcer wants to be asked.
    Ask,
}

/// The protocol's announcer, policy and taker, joined by a wire, with the times that the card has by its slot: nothing else takes
/// any. The window does not matter: it is more than the longer round trip takes.
struct Machines {
    announcer: Announcer<ROOM, LIST, 32>,
    taker: Taker<ROOM, LIST, 32>,
    /// Later events: when, in which order they were put in, and which.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Option<Event>>,
    /// Bytes per cycle of the wire, and those of payload.
    beat: f64,
    wire: f64,
    half: u64,
    receives: Receives,
    /// Cycles from a completion until the receive is posted again: the host looks, the card reads the element.
    again: u64,
    log: Log,
    /// Bytes of the messages that are to be sent, and of the piece that is being sent.
    waiting: VecDeque<u64>,
    piece: (u64, bool),
    busy: bool,
    asked: u64,
    now: u64,
    /// Receives that have completed in this run, and when the last one did.
    received: u64,
    last: u64,
}

impl Machines {
    fn new(model: &Model, data_w: usize, receives: Receives, round_trip: u64) -> Self {
        let repeat = LIST_AGAIN / u64::from(ROW_CLOCK);
        let probe = berth_abi::card::FAST_PROBE.into();
        let options = Options { max_list: FAST_LIST, few: FAST_FEW, repeat, probe, ..Options::default() };
        let (mut announcer, mut taker) = (Announcer::new(&options), Taker::new());
        let [own, peer] = [1, 2].map(|n| Name { qpn: n, epoch: n });
        announcer.connect(0, own, peer);
        taker.connect(peer, own);
        for _ in 0..receives.count {
            announcer.post(receives.bytes as u32);
        }
        announcer.commit();
        Self {
            announcer,
            taker,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            beat: data_w as f64 / 8.0,
            wire: wire_payload(data_w, MTU as usize),
            half: round_trip / 2,
            receives,
            again: LOOK / 2 + model.read_latency,
            log: Log::default(),
            waiting: VecDeque::new(),
            piece: (0, false),
            busy: false,
            asked: 0,
            now: 0,
            received: 0,
            last: 0,
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.queue.push(Reverse((at, self.events.len())));
        self.events.push(Some(event));
    }

    fn set_policy(&mut self, kind: Kind) {
        let lead = Settings::DEFAULT.lead / ROW_CLOCK;
        self.announcer.set_policy(Settings { lead, ..Settings::of(kind) });
    }

    /// Sends messages that are posted at these cycles.
    fn run(&mut self, posts: &[u64]) -> Measured {
        self.log = Log::default();
        self.log.list(0, self.taker.reader().count() as usize);
        self.ask(self.now);
        let from = self.now + settled(2 * self.half);
        for at in posts {
            self.at(from + at, Event::Post);
        }
        self.received = 0;
        self.work(u64::MAX, posts.len() as u64 * MESSAGE / self.receives.bytes);
        self.now = self.last + settled(2 * self.half);
        self.work(self.now, u64::MAX);
        std::mem::take(&mut self.log).measured(from, self.last)
    }

    /// What happens until a time, or until so many receives have completed.
    fn work(&mut self, until: u64, wanted: u64) {
        while let Some(&Reverse((now, n))) = self.queue.peek()
            && now <= until
            && self.received < wanted
        {
            self.queue.pop();
            let Some(event) = self.events[n].take() else { continue };
            match event {
                Event::Post => {
                    self.waiting.push_back(MESSAGE);
                    self.log.posted(now, MESSAGE);
                    self.send(now);
                }
                Event::Free => {
                    self.busy = false;
                    self.send(now);
                }
                Event::List(entry) => {
                    let new = self.taker.accept(&entry) == Arrived::Buffered;
                    if let Body::List(part) = &entry.body {
                        self.log.list(now, if new { part.len.into() } else { 0 });
                    }
                    self.send(now);
                }
                Event::Landed { first, last } => {
                    let clock = now / u64::from(ROW_CLOCK);
                    if first {
                        self.announcer.landed(clock, None);
                    }
                    if let Some(remaining) = last {
                        self.announcer.remaining(remaining);
                        self.at(now + self.again, Event::Receive);
                        self.received += 1;
                        self.last = now;
                    }
                    self.ask(now);
                }
                Event::Receive => {
                    self.announcer.post(self.receives.bytes as u32);
                    self.announcer.commit();
                    self.ask(now);
                }
                Event::Ask => self.ask(now),
            }
        }
    }

    /// Sends the lists that are due.
    fn ask(&mut self, now: u64) {
        let clock = now / u64::from(ROW_CLOCK);
        while let Some(entry) = self.announcer.poll(clock) {
            let Body::List(part) = &entry.body else { continue };
            let frame = (LIST_FRAME + 4 * u64::from(part.len)) as f64 / self.beat;
            self.at(now + frame as u64 + self.half, Event::List(Box::new(entry)));
        }
        // A time that has come without a list waits for something else.
        let at = self.announcer.deadline(clock).map(|at| at.saturating_mul(ROW_CLOCK.into()));
        if let Some(at) = at.filter(|&at| at > now && at != self.asked && at < u64::MAX / 2) {
            self.asked = at;
            self.at(at, Event::Ask);
        }
    }

    /// Sends the next packet, if the wire is free and there is a credit.
    fn send(&mut self, now: u64) {
        if self.busy {
            return;
        }
        if self.piece.0 == 0 {
            let Some(message) = self.waiting.front_mut() else { return };
            let Some((cut, ..)) = self.taker.take(*message as u32) else { return };
            *message -= u64::from(cut);
            if *message == 0 {
                self.waiting.pop_front();
            }
            self.piece = (cut.into(), true);
        }
        let bytes = self.piece.0.min(MTU);
        let first = std::mem::replace(&mut self.piece.1, false);
        self.piece.0 -= bytes;
        let remaining = self.waiting.iter().sum::<u64>() as u32;
        let last = (self.piece.0 == 0).then_some(remaining);
        let ends = now + (bytes as f64 / self.wire).round() as u64;
        self.log.sent(ends, bytes, last.is_some());
        self.busy = true;
        self.at(ends, Event::Free);
        self.at(ends + self.half, Event::Landed { first, last });
    }
}
