// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything around `berth_fp_builder`: who posts credits, where data land, commands, and who sends lists.
//!
//! Beside each QP of the engine stands the protocol's [`Announcer`]. It is given the same credits, data and commands, and must
//! send the same lists and repeats, see the same proofs, and measure the same time. A [`Meter`] beside it must report the same
//! use of credits, and a [`Cap`] must let each list of a QP with a maximum bandwidth go. What the engine was given and has not
//! told anything about waits: it goes to the model when the engine tells something that needs it, and all of it does at rest.
//! So the order in which the engine does what waits is its own.
//!
//! What the model does not have, the bench checks by itself: beats and clocks, the words beside the numbers, when timers are
//! looked at, that what is not busy does nothing.

use berth_abi::card::FAST_PROBE;
use berth_abi::rows::recv;
use berth_protocol::credit::announcer::{Announcer, Options};
use berth_protocol::credit::entry::{Body, Name};
use berth_protocol::credit::list::Trigger;
use berth_protocol::credit::policy::{Cap, Kind, Meter, Settings, Use};
use berth_random::Rng;
use berth_rtl_unit::{Named, Op};
use std::collections::{BTreeMap, VecDeque};

pub const QPS: u32 = 64;
/// Credits of a QP that are posted and whose data have not landed.
pub const CREDITS: u32 = 128;
/// Clocks after which nothing comes any more: each timer may be looked at once, twice if the last look was just begun.
const IDLE: u64 = 3 * QPS as u64;
/// Clocks in which all withheld credits have been looked at.
const LOOKED: u64 = 600;
/// Clocks in which what has been given is done with, but for lists that wait.
const SOON: u64 = 40;

/// A command; `first` is VOID's, `trigger`, `index`, `told` and `due` are LISTS's, and all but `first` and `due` START's. For
/// CAP `first` is the rate and `epoch` the burst.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub op: Op,
    pub q: u32,
    pub first: u32,
    pub epoch: u32,
    pub max_list: u8,
    /// `TRIGGER_*`.
    pub trigger: u8,
    pub index: u8,
    /// Lists wait until then.
    pub due: Option<u64>,
    pub told: bool,
    pub stream: bool,
    pub few: u8,
    pub repeat: u16,
    pub foreign: bool,
}

impl Command {
    /// One whose lists have up to 64 credits, the first buffer as trigger, and are never repeated.
    pub fn new(op: Op, q: u32) -> Self {
        let epoch = 0x1234_5678 ^ q;
        let (told, stream) = (true, true);
        let (trigger, index, due, foreign) = (0, 0, None, false);
        Self { op, q, first: 0, epoch, max_list: 64, trigger, index, due, told, stream, few: 0, repeat: 0, foreign }
    }
}

/// What comes from the grant engine.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    pub q: u32,
    /// Size of a credit, if it is one.
    pub size: Option<u32>,
    pub commit: bool,
    pub early: bool,
}

/// What comes from the arrival engine of a piece: its first packet, what its last one says.
#[derive(Clone, Copy, Debug)]
pub struct Landed {
    pub q: u32,
    pub begins: bool,
    pub said: Option<u32>,
}

/// A receive is complete: the oldest one of a QP that is not, with so many bytes of data.
#[derive(Clone, Copy, Debug)]
struct Complete {
    q: u32,
    filled: u32,
}

/// A list that was told.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    pub q: u32,
    pub epoch: u32,
    pub first: u32,
    pub sizes: Vec<u32>,
    /// For the first time.
    pub new: bool,
    /// Clocks in which its first and its last beat were taken.
    pub at: (u64, u64),
}

/// The list whose beats come.
#[derive(Debug)]
struct Telling {
    list: List,
    wanted: Vec<u32>,
    /// What `told_round` must be.
    round: u32,
}

/// A QP as the bench knows it.
#[derive(Debug)]
pub struct Qp {
    start: Command,
    epoch: u32,
    model: Announcer,
    /// What the engine was given and the model was not.
    posts: VecDeque<Post>,
    landings: VecDeque<Landed>,
    held: bool,
    early: bool,
    meter: Meter,
    /// What the meter has reported, as rows have it, and the engine has not.
    reports: VecDeque<[u32; 3]>,
    /// What the last list waited for has come with a command.
    proven: bool,
    cap: Option<Cap>,
    /// With a maximum: posted, and their batch has not ended.
    batch: Vec<Post>,
    /// Credits whose receives are complete, their bytes, and those of data in them.
    complete: (u32, u32, u32),
    /// Sizes of credits that have been told, by number.
    sizes: Vec<u32>,
}

impl Qp {
    fn new(start: Command) -> Self {
        let options = Options {
            max_list: start.max_list.into(),
            few: start.few.into(),
            repeat: if start.repeat == 0 { u64::MAX } else { start.repeat.into() },
            probe: FAST_PROBE.into(),
            policy: policy(&start, false),
            ..Options::default()
        };
        let mut model = Announcer::new(&options);
        if !start.foreign {
            model.connect(0, Name::default(), Name::default());
        }
        let (posts, landings, reports) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let (held, early, proven) = (false, false, false);
        let (meter, cap, batch, complete, sizes) = (Meter::new(), None, Vec::new(), (0, 0, 0), Vec::new());
        let epoch = start.epoch;
        Self { start, epoch, model, posts, landings, held, early, meter, reports, proven, cap, batch, complete, sizes }
    }

    pub fn is_foreign(&self) -> bool {
        self.start.foreign
    }

    pub fn posted(&self) -> u32 {
        self.model.builder().numbers().0 + self.posts.iter().filter(|p| p.size.is_some()).count() as u32
    }

    pub fn announced(&self) -> u32 {
        self.model.builder().numbers().1
    }

    /// What the peer may use.
    fn usable(&self) -> u32 {
        if self.start.foreign && self.held { self.landed() } else { self.announced() }
    }

    pub fn landed(&self) -> u32 {
        self.model.builder().numbers().2 + self.landings.iter().filter(|l| l.begins).count() as u32
    }

    /// The next piece that waits has landed, or ended. Whether it was what the last list waited for.
    fn give_landing(&mut self, now: u64) -> bool {
        let Some(Landed { begins, said, .. }) = self.landings.pop_front() else {
            panic!("no piece has come: {self:?}")
        };
        let said = said.filter(|_| self.start.stream);
        if !begins {
            said.into_iter().for_each(|remaining| self.meter.remaining(remaining));
            return false;
        }
        let builder = self.model.builder();
        if let Some(cap) = &mut self.cap {
            cap.landed(now, builder.size_of(builder.numbers().2).expect("a credit"));
        }
        let (waited, proof) = (builder.waits(), builder.rtrip() == Some(builder.numbers().2));
        assert!(self.model.landed(now, None), "the test lands what is not announced");
        let (out, bytes) = (self.model.builder().outstanding(), self.model.outstanding_bytes());
        let report = self.meter.landed(now, proof, out, bytes, said);
        self.reports.extend(report.filter(|_| self.start.told).map(|report| words(&report)));
        waited && !self.model.builder().waits()
    }

    /// The engine has reported how credits are used.
    fn report(&mut self, now: u64) -> [u32; 3] {
        while self.reports.is_empty() {
            assert!(!self.give_landing(now), "no proof: {self:?}");
        }
        self.reports.pop_front().expect("a report")
    }

    /// A list that may go but for its time goes then.
    fn waits_until(&self, now: u64) -> Option<u64> {
        self.start.due.filter(|due| *due > now && self.model.builder().outstanding() > 0)
    }

    fn give_post(&mut self, now: u64) {
        let post = self.posts.pop_front().expect("something is posted");
        if let Some(size) = post.size {
            while self.model.post(size).is_none() {
                assert!(!self.give_landing(now), "no proof: {self:?}");
            }
        }
        if post.commit {
            self.early = post.early;
            self.model.set_policy(policy(&self.start, post.early));
            self.model.commit();
        }
        if self.start.foreign {
            self.model.announce_all();
        }
    }

    /// The model gets all that waits: the engine has done with it.
    fn give_all(&mut self, now: u64) {
        // Of a QP with a maximum some may be withheld.
        while !self.posts.is_empty() && self.cap.is_none() {
            assert!(!self.start.foreign, "credits of a foreign peer are not told: {self:?}");
            self.give_post(now);
        }
        self.give_landings(now);
    }

    fn give_landings(&mut self, now: u64) {
        while !self.landings.is_empty() {
            assert!(!self.give_landing(now), "no proof: {self:?}");
        }
    }

    /// The engine says that what the last list waited for has come.
    fn prove(&mut self, now: u64) {
        while !std::mem::take(&mut self.proven) && !self.give_landing(now) {}
    }

    /// What the model would say now: the first credit of a list and its sizes.
    fn says(&self, now: u64, new: bool) -> Option<(Announcer, u32, Vec<u32>)> {
        if new && self.waits_until(now).is_some() {
            return None;
        }
        let mut model = self.model.clone();
        let Body::List(part) = model.poll(now)?.body else { panic!("no list: {self:?}") };
        let is_new = model.builder().numbers().1 != self.announced();
        (is_new == new).then(|| (model, part.list, part.sizes().to_vec()))
    }

    /// The engine tells a list of `n` credits, and may have done with some of what waits.
    fn list(&mut self, now: u64, n: u32, new: bool) -> (u32, Vec<u32>) {
        loop {
            if let Some((model, first, sizes)) = self.says(now, new).filter(|said| said.2.len() as u32 == n) {
                if new {
                    self.meter.sent(now, self.model.builder().outstanding());
                    self.sizes.truncate(first as usize);
                    self.sizes.extend(&sizes);
                    let (out, bytes) = (self.model.outstanding_bytes(), sizes.iter().map(|s| i64::from(*s)).sum());
                    let alone = |cap: &Cap| out == 0 && n == 1 && cap.is_full(now);
                    let fits = self.cap.is_none_or(|cap| cap.free(now, out) >= bytes || alone(&cap));
                    assert!(fits, "{bytes} bytes at {now} when {out} are out: {self:?}");
                }
                self.model = model;
                return (first, sizes);
            }
            assert!(new, "a repeat of {n} at {now} that may not be: {self:?}");
            match (self.landings.is_empty(), self.posts.is_empty()) {
                (false, _) => assert!(!self.give_landing(now), "no proof: {self:?}"),
                (true, false) => self.give_post(now),
                (true, true) => panic!("a list of {n} at {now} that may not be: {self:?}"),
            }
        }
    }

    /// When its last list is told again.
    fn repeats_at(&self) -> Option<u64> {
        self.model.repeat_at().filter(|at| *at != u64::MAX)
    }
}

/// What the next lists of a QP wait for.
fn policy(start: &Command, early: bool) -> Settings {
    let chosen = u32::from(start.trigger) | u32::from(start.index) << 8;
    Settings::of(match Trigger::from_arg(chosen, early) {
        Trigger::First => Kind::First,
        Trigger::Last => Kind::Last,
        Trigger::Between(index) => Kind::Between(index),
        Trigger::Quarters(quarters) => Kind::Quarters(quarters),
        Trigger::Behind(behind) => Kind::Behind(behind),
    })
}

/// A report as rows have it.
fn words(report: &Use) -> [u32; 3] {
    let most = |value: u64, bits: u32| value.min((1 << bits) - 1) as u32;
    [
        recv::Gaps { count: report.gaps.min(255), sum: most(report.time, 24) }.word(),
        recv::Times {
            led: report.lead.is_some().into(),
            longest: most(report.longest, 15),
            lead: most(report.lead.unwrap_or(0), 16),
        }
        .word(),
        recv::Use {
            left: report.left,
            outstanding: report.outstanding,
            covered: report.covered.into(),
            waited: report.waited.into(),
            dry: report.dry.into(),
        }
        .word(),
    ]
}

/// The engine and what is around it.
pub struct Rig {
    m: Named,
    pub rng: Rng,
    /// The port `now` and all above it, in units of 64 clocks; a test moves it when nothing lands (see `at`).
    pub now: u64,
    /// How often an input, and whoever takes lists, is late.
    pub stall: f64,
    /// Another list finds room; timers are looked at all the time.
    pub room: bool,
    pub hurry: bool,
    pub qps: BTreeMap<u32, Qp>,
    pub lists: Vec<List>,
    pub proofs: u32,
    /// What was told of the time from a list to its proof, last.
    rounds: BTreeMap<u32, u32>,
    pub cycle: u64,
    /// Clocks in which a timer was looked at, and whether it runs.
    pub sweeps: Vec<(u64, bool)>,
    commands: VecDeque<Command>,
    posts: VecDeque<Post>,
    landings: VecDeque<Landed>,
    completes: VecDeque<Complete>,
    /// A QP that has just begun: none of its receives is complete.
    started: Option<u32>,
    /// QPs with a maximum of which some credits may be withheld: units until it is time to look at them.
    pub dues: BTreeMap<u32, Option<u64>>,
    /// Reports in the order in which they came.
    pub uses: Vec<(u32, [u32; 3])>,
    /// One that was told two clocks before, one clock before, as the model has it.
    asked: [Option<(u32, [u32; 3])>; 2],
    /// What is given at once may be done in any order: reports are counted only.
    pub together: bool,
    shown: [bool; 2],
    telling: Option<Telling>,
    /// The list that must begin in this clock.
    begins: Option<Telling>,
    /// No piece that lands is shown until then.
    dry: u64,
    /// Whose command has been taken in the clock before.
    commanded: Option<u32>,
    /// Credits that were posted, and those that were counted.
    posted: (u32, u32),
    /// In the clock before it was not busy, and nothing was given.
    quiet: bool,
    given_at: u64,
    moved: u64,
}

impl Rig {
    pub fn new(width: u32, seed: u64) -> Self {
        Self::of(Named::new("berth_fp_builder", width, seed), Rng(seed))
    }

    /// After a reset.
    fn of(m: Named, rng: Rng) -> Self {
        Self {
            m,
            rng,
            now: 0,
            stall: 0.0,
            room: true,
            hurry: false,
            qps: BTreeMap::new(),
            lists: Vec::new(),
            proofs: 0,
            rounds: BTreeMap::new(),
            cycle: 0,
            sweeps: Vec::new(),
            commands: VecDeque::new(),
            posts: VecDeque::new(),
            landings: VecDeque::new(),
            completes: VecDeque::new(),
            started: None,
            dues: BTreeMap::new(),
            uses: Vec::new(),
            asked: [None; 2],
            together: false,
            shown: [false; 2],
            telling: None,
            begins: None,
            dry: 0,
            commanded: None,
            posted: (0, 0),
            quiet: false,
            given_at: 0,
            moved: 0,
        }
    }

    // ---- what a test does ----------------------------------------------------------------------

    /// A command, and what it answers: credits announced, pieces landed.
    pub fn command(&mut self, command: Command) -> (u32, u32) {
        self.commands.push_back(command);
        let end = self.cycle + 10_000;
        while !self.commands.is_empty() {
            self.step();
            assert!(self.cycle < end, "a command is not taken");
        }
        self.step();
        self.step();
        (self.m.get("st_announced") as u32, self.m.get("st_landed") as u32)
    }

    pub fn post(&mut self, post: Post) {
        self.posts.push_back(post);
    }

    /// Credits of these sizes are posted, the last one ends their batch.
    pub fn batch(&mut self, q: u32, sizes: &[u32]) {
        for (n, &size) in sizes.iter().enumerate() {
            self.post(Post { q, size: Some(size), commit: n + 1 == sizes.len(), early: false });
        }
    }

    /// The first packet of a QP's next piece has come.
    pub fn land(&mut self, q: u32) {
        self.landed(Landed { q, begins: true, said: None });
    }

    /// Something has come of a piece.
    pub fn landed(&mut self, landed: Landed) {
        self.landings.push_back(landed);
    }

    /// A QP's oldest receive that is not complete is, with so many bytes; its data have begun to come.
    pub fn complete(&mut self, q: u32, filled: u32) {
        self.completes.push_back(Complete { q, filled });
    }

    /// Receives of a QP whose data have begun to come and that are not complete.
    pub fn open(&self, q: u32) -> u32 {
        let to_come = self.completes.iter().filter(|c| c.q == q).count() as u32;
        self.qps[&q].landed() - self.qps[&q].complete.0 - to_come
    }

    /// Size of the oldest of them.
    pub fn open_size(&self, q: u32) -> u32 {
        let to_come = self.completes.iter().filter(|c| c.q == q).count();
        self.qps[&q].sizes[self.qps[&q].complete.0 as usize + to_come]
    }

    /// The maximum bandwidth of a QP is another: 256ths of a byte in a unit, bytes at once; 0: none.
    pub fn cap(&mut self, q: u32, rate: u32, burst: u32) {
        self.command(Command { first: rate, epoch: burst, ..Command::new(Op::Cap, q) });
    }

    /// Credits of a QP that are announced and that no data have come for, those that are to come included.
    pub fn out(&self, q: u32) -> u32 {
        let to_come = self.landings.iter().filter(|l| l.q == q && l.begins).count() as u32;
        self.qps[&q].announced() - self.qps[&q].landed() - to_come
    }

    /// Credits that a QP may still post.
    pub fn places(&self, q: u32) -> u32 {
        let to_come = self.posts.iter().filter(|p| p.q == q && p.size.is_some()).count() as u32;
        CREDITS - (self.qps[&q].posted() + to_come - self.qps[&q].landed())
    }

    /// Steps until nothing has moved for a while: then all has been told that must be.
    pub fn rest(&mut self) {
        let from = self.cycle;
        self.moved = self.cycle;
        let withholds = self.qps.values().any(|qp| qp.cap.is_some());
        let soon = if withholds {
            LOOKED
        } else if self.hurry {
            IDLE
        } else {
            SOON
        };
        while self.cycle < self.moved + soon || !self.given() {
            self.step();
            assert!(self.cycle < from + 100_000, "the engine does not come to rest");
        }
        assert_eq!(self.posted.0, self.posted.1, "credits posted");
        let (now, room, hurry) = (self.now, self.room, self.hurry);
        for (q, qp) in &mut self.qps {
            qp.give_all(now);
            assert!(qp.reports.is_empty(), "QP {q}: no report: {qp:?}");
        }
        // One that waits for room is forgotten when there is some, if it may not go by then.
        let waits = self.qps.values().any(|qp| qp.says(now, true).is_some());
        assert!(if room { !self.m.is("busy") } else { !waits || self.m.is("busy") }, "busy at rest");
        for (q, qp) in &self.qps {
            assert!(!room || qp.says(now, true).is_none(), "QP {q}: no list: {qp:?}");
            assert!(!room || !hurry || qp.says(now, false).is_none(), "QP {q}: no repeat: {qp:?}");
        }
    }

    /// Time moves on, as soon as all pieces that have come have landed.
    pub fn at(&mut self, now: u64) {
        self.dry = self.cycle + SOON;
        while self.cycle < self.dry {
            self.step();
        }
        let before = self.now;
        self.qps.values_mut().for_each(|qp| qp.give_landings(before));
        self.now = now;
    }

    /// It has done all that it was given.
    pub fn idle(&mut self) -> bool {
        self.given() && !self.m.is("busy")
    }

    /// What was told of a QP's last list that was new: the shortest time from one to its proof.
    pub fn round(&self, q: u32) -> u32 {
        self.rounds[&q]
    }

    /// All that the test has given has been taken.
    fn given(&self) -> bool {
        self.posts.is_empty() && self.landings.is_empty() && self.commands.is_empty() && self.completes.is_empty()
    }

    /// Runs until so many lists have been told; gives the clocks that it took.
    pub fn lists_told(&mut self, n: usize) -> u64 {
        let from = self.cycle;
        while self.lists.len() < n {
            self.step();
            assert!(self.cycle < from + 1000, "{} of {n} lists", self.lists.len());
        }
        self.cycle - from
    }

    /// Resets the engine, whatever it does: all begins anew.
    pub fn reset(mut self) -> Self {
        self.m.reset();
        Self::of(self.m, self.rng)
    }

    // ---- one clock -----------------------------------------------------------------------------

    pub fn step(&mut self) {
        self.drive();
        self.m.settle();
        self.check();
        self.m.edge();
        self.cycle += 1;
    }

    fn drive(&mut self) {
        let waiting = [!self.posts.is_empty(), !self.landings.is_empty() && self.cycle >= self.dry];
        for (shown, waits) in self.shown.iter_mut().zip(waiting) {
            *shown = waits && (*shown || !self.rng.chance(self.stall));
        }
        let m = &mut self.m;
        m.set("now", self.now & 0xffff_ffff);
        m.set("hurry", self.hurry);
        m.set("told_room", self.room);
        m.set("lfr_ready", !self.rng.chance(self.stall));
        m.set("post_valid", self.shown[0]);
        if let Some(p) = self.posts.front() {
            m.set("post_q", p.q);
            m.set("post.credit", p.size.is_some());
            m.set("post.size", p.size.unwrap_or(0xdead_beef));
            m.set("post.commit", p.commit);
            m.set("post.early", p.early);
        }
        m.set("landed_valid", self.shown[1]);
        if let Some(l) = self.landings.front() {
            m.set("landed_q", l.q);
            m.set("landed.begins", l.begins);
            m.set("landed.said", l.said.is_some());
            m.set("landed.remaining", l.said.unwrap_or(0));
        }
        m.set("given_we", self.started.is_some());
        if let Some(q) = self.started.take() {
            m.set("given_q", q);
            for name in ["given.credits", "given.sizes", "given.filled"] {
                m.set(name, 0_u32);
            }
        } else if let Some(Complete { q, filled }) = self.completes.pop_front() {
            let qp = self.qps.get_mut(&q).expect("a QP");
            let size = qp.sizes[qp.complete.0 as usize];
            qp.complete = (qp.complete.0 + 1, qp.complete.1.wrapping_add(size), qp.complete.2.wrapping_add(filled));
            if let Some(cap) = &mut qp.cap {
                cap.refund(self.now, size - filled);
            }
            m.set("given_we", true);
            m.set("given_q", q);
            m.set("given.credits", qp.complete.0 & 0xff);
            m.set("given.sizes", qp.complete.1);
            m.set("given.filled", qp.complete.2);
            self.moved = self.cycle;
        }
        m.set("use_ask_q", self.asked[0].map_or(0, |(q, _)| q));
        m.set("cmd_valid", !self.commands.is_empty());
        if let Some(c) = self.commands.front() {
            m.set("cmd.op", c.op as u8);
            m.set("cmd_q", c.q);
            m.set("cmd.first", c.due.map_or(c.first, |due| due as u32));
            m.set("cmd.timed", c.due.is_some());
            m.set("cmd.told", c.told);
            m.set("cmd.stream", c.stream);
            m.set("cmd.epoch", c.epoch);
            m.set("cmd.max_list", c.max_list);
            m.set("cmd.trigger", c.trigger);
            m.set("cmd.index", c.index);
            m.set("cmd.few", c.few);
            m.set("cmd.again", c.repeat);
            m.set("cmd.foreign", c.foreign);
        }
    }

    fn check(&mut self) {
        self.check_list();
        let told = self.check_operation();
        self.check_use();
        self.check_timer();
        let (post, landing) = (self.m.is("post_ready"), self.m.is("landed_ready"));
        let given = self.shown.contains(&true) || !self.commands.is_empty();
        // Behind all that was posted in the clocks before.
        if self.m.is("cmd_ready") {
            let c = self.commands.pop_front().expect("a command");
            self.commanded = Some(c.q);
            self.execute(c);
        }
        if self.shown[0] && post {
            self.shown[0] = false;
            let p = self.posts.pop_front().expect("a post");
            let qp = self.qps.get_mut(&p.q).expect("a QP");
            self.posted.0 += u32::from(p.size.is_some());
            if qp.cap.is_none() {
                qp.posts.push_back(p);
            } else {
                // They may be announced one by one.
                qp.batch.push(p);
                if p.commit {
                    qp.posts.extend(qp.batch.drain(..).map(|post| Post { commit: true, early: p.early, ..post }));
                }
            }
        }
        if self.shown[1] && landing {
            self.shown[1] = false;
            let landed = self.landings.pop_front().expect("a landing");
            self.qps.get_mut(&landed.q).expect("a QP").landings.push_back(landed);
        }
        if given {
            self.given_at = self.cycle;
        }
        if given || told {
            self.moved = self.cycle;
        }
        let busy = self.m.is("busy");
        let withholds = self.qps.values().any(|qp| qp.cap.is_some());
        assert!(!(self.quiet && told) || withholds, "it was not busy");
        self.quiet = !busy && !given;
    }

    fn execute(&mut self, c: Command) {
        if c.op == Op::Start {
            self.qps.insert(c.q, Qp::new(c));
            self.started = Some(c.q);
            return;
        }
        let now = self.now;
        let qp = self.qps.get_mut(&c.q).expect("a QP");
        // Of a QP with a maximum they may be withheld still; then they go back.
        let goes_back = matches!(c.op, Op::Void | Op::Unpost | Op::Reclaim);
        if qp.cap.is_none() || goes_back {
            let open = qp.batch.drain(..);
            qp.posts.extend(open);
            while !qp.posts.is_empty() {
                qp.give_post(now);
            }
        }
        qp.held = match c.op {
            Op::Hold => true,
            Op::Void | Op::Reclaim => false,
            _ => qp.held,
        };
        match c.op {
            Op::End => qp.model.close(),
            Op::Hold => qp.model.hold(),
            Op::Void => {
                qp.epoch = c.epoch;
                qp.meter.voided();
                assert!(qp.model.void(c.first), "the test voids what is used: {qp:?}");
            }
            Op::Unpost => qp.model.unpost(),
            Op::Reclaim => {
                // What has landed counts, however soon the command comes.
                qp.give_landings(now);
                qp.model.reclaim();
                qp.meter.voided();
            }
            Op::Lists => {
                let Command { trigger, index, due, told, .. } = c;
                qp.start = Command { trigger, index, due, told, ..qp.start };
                let waited = qp.model.builder().waits();
                qp.model.set_policy(policy(&qp.start, qp.early));
                if c.trigger == 0 {
                    qp.model.skip_trigger();
                }
                qp.proven = waited && !qp.model.builder().waits();
            }
            Op::Cap => {
                qp.give_landings(now);
                // What is not announced is withheld.
                let (posted, announced, _) = qp.model.builder().numbers();
                let committed = announced + qp.model.builder().fresh();
                for number in (announced..posted).rev() {
                    let size = qp.model.builder().size_of(number);
                    let post = Post { q: c.q, size, commit: true, early: qp.early };
                    if number < committed { qp.posts.push_front(post) } else { qp.batch.insert(0, post) }
                }
                qp.model.unpost();
                let mut to = Cap::new(c.first.into(), 256, c.epoch);
                match qp.cap {
                    Some(mut cap) => {
                        cap.change(now, &to);
                        to = cap;
                    }
                    None => to.start(now),
                }
                qp.cap = (c.epoch != 0).then_some(to);
            }
            _ => (),
        }
    }

    /// Credits announced, lists and proofs: what the operation of this clock does. Whether it does any of it.
    fn check_operation(&mut self) -> bool {
        let (list, posted, now) = (self.m.is("ev_list"), self.m.is("ev_posted"), self.now);
        // The row of a QP that was not started since the reset holds anything, and nobody goes by its proof.
        let proof = self.m.is("proof_valid").then(|| self.m.get("proof_q") as u32).filter(|q| self.qps.contains_key(q));
        let announced = self.m.is("ann_we").then(|| (self.m.get("ann_q") as u32, self.m.get("ann_number") as u32));
        self.posted.1 += u32::from(posted);
        if let Some(q) = proof {
            self.qps.get_mut(&q).expect("a QP").prove(now);
            self.proofs += 1;
        }
        if list {
            let (q, _) = announced.expect("credits announced with a list");
            let n = self.m.get("ev_list_len") as u32;
            self.begin(q, n, true);
        } else if let Some((q, _)) = announced.filter(|a| self.commanded != Some(a.0)) {
            let qp = self.qps.get_mut(&q).expect("a QP");
            assert!(qp.start.foreign, "QP {q}: what has not changed is told");
            qp.give_post(now);
        }
        if let Some((q, number)) = announced {
            assert_eq!(number, self.qps[&q].usable(), "QP {q}: credits announced");
        }
        assert!(self.commanded.take().is_none_or(|q| announced.is_some_and(|a| a.0 == q)), "a command tells it");
        list || proof.is_some() || posted || announced.is_some()
    }

    /// Reports of how credits are used.
    fn check_use(&mut self) {
        if let Some((q, wanted)) = self.asked[1].take() {
            let seen = ["use_told.gaps", "use_told.times", "use_told.used"].map(|word| self.m.get(word) as u32);
            // Without a lead its time means nothing.
            let mut times = recv::Times::from_word(seen[1]);
            if recv::Times::from_word(wanted[1]).led == 0 {
                times.lead = 0;
            }
            let seen = [seen[0], times.word(), seen[2]];
            assert!(self.together || seen == wanted, "QP {q}: {seen:x?}, not {wanted:x?}");
            self.uses.push((q, seen));
        }
        self.asked = [None, self.asked[0]];
        if self.m.is("use_valid") {
            let (q, now) = (self.m.get("use_q") as u32, self.now);
            let report = self.qps.get_mut(&q).expect("a QP").report(now);
            self.asked[0] = Some((q, report));
            self.moved = self.cycle;
        }
    }

    /// A list of `n` credits must begin to leave in the next clock.
    fn begin(&mut self, q: u32, n: u32, new: bool) {
        let qp = self.qps.get_mut(&q).expect("a QP");
        let round = qp.model.trip().unwrap_or(0);
        let (first, wanted) = qp.list(self.now, n, new);
        let list = List { q, epoch: qp.epoch, first, sizes: Vec::new(), new, at: (u64::MAX, 0) };
        assert!(self.begins.replace(Telling { list, wanted, round }).is_none());
    }

    /// Timers are looked at one after the other, from QP 0 on.
    fn check_timer(&mut self) {
        let repeat = self.m.is("ev_repeat");
        if !self.m.is("swept") {
            assert!(!repeat, "a repeat, and no timer is looked at");
            return;
        }
        let q = self.sweeps.len() as u32 % QPS;
        let (on, at) = (self.m.is("swept_on"), self.m.get("swept_at") as u32);
        self.sweeps.push((self.cycle, on));
        let now = self.now;
        if repeat {
            assert!(self.room, "QP {q}: a repeat without room");
            let n = self.qps[&q].says(now, false).map_or(0, |said| said.2.len());
            self.begin(q, n as u32, false);
            self.moved = self.cycle;
        }
        // Not while something is given: the engine may not have come to it.
        if self.cycle > self.given_at + SOON {
            let qp = self.qps.get_mut(&q);
            if qp.as_ref().is_some_and(|qp| qp.cap.is_some() && !qp.posts.is_empty()) {
                // Some may be withheld.
                self.dues.insert(q, on.then(|| u64::from(at.wrapping_sub(now as u32))));
                return;
            }
            let timer = qp.and_then(|qp| {
                qp.give_all(now);
                let waits = qp.waits_until(now).filter(|due| qp.says(*due, true).is_some());
                waits.or_else(|| qp.repeats_at())
            });
            assert_eq!(on.then_some(at), timer.map(|at| at as u32), "QP {q}: its timer: {:?}", self.qps.get(&q));
            assert!(timer.is_none_or(|at| at > now), "QP {q}: no repeat");
        }
    }

    /// Beats of lists.
    fn check_list(&mut self) {
        let (valid, begin) = (self.m.is("lfr_valid"), self.m.is("lfr.first_beat"));
        if let Some(t) = self.begins.take() {
            assert!(self.telling.is_none() && valid && begin, "no list begins: {t:?}");
            self.telling = Some(t);
        }
        let taken = valid && self.m.is("lfr_ready");
        let mut told = None;
        if valid {
            self.moved = self.cycle;
            let t = self.telling.as_mut().expect("a beat of no list");
            assert_eq!(begin, t.list.at.0 == u64::MAX, "its first beat, and no other");
            let seen = ["lfr_q", "lfr.epoch", "lfr.first", "lfr.n"].map(|name| self.m.get(name) as u32);
            assert_eq!(seen, [t.list.q, t.list.epoch, t.list.first, t.wanted.len() as u32]);
            if taken && begin {
                t.list.at.0 = self.cycle;
            } else if taken {
                let sizes = self.m.get("lfr.sizes");
                for size in [sizes as u32, (sizes >> 32) as u32] {
                    let Some(wanted) = t.wanted.get(t.list.sizes.len()) else { break };
                    let number = t.list.first + t.list.sizes.len() as u32;
                    // What has come is used: the place of its size may be another's.
                    let used = number < self.qps[&t.list.q].landed();
                    assert!(used || size == *wanted, "QP {}: credit {number}: {size}, not {wanted}", t.list.q);
                    t.list.sizes.push(size);
                }
            }
            if t.list.sizes.len() == t.wanted.len() {
                t.list.at.1 = self.cycle;
                if t.list.new {
                    self.rounds.insert(t.list.q, t.round);
                    let bytes = t.list.sizes.iter().fold(0, |sum: u32, size| sum.wrapping_add(*size));
                    told = Some((t.list.q, bytes, t.round));
                }
                self.lists.extend(self.telling.take().map(|t| t.list));
            }
        } else {
            assert!(self.telling.as_ref().is_none_or(|t| t.list.at.0 != u64::MAX), "a list that has begun stays");
        }
        let seen =
            self.m.is("told_valid").then(|| ["told_q", "told.bytes", "told.round"].map(|n| self.m.get(n) as u32));
        assert_eq!(seen, told.map(|(q, bytes, round)| [q, bytes, round]), "a list has been told");
    }
}
