// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything around `berth_fp_builder`: who posts credits, where data land, commands, and who sends lists.
//!
//! The bench looks at the ports and checks, whatever is done: a list goes when it may (CR-4, CR-5, CR-11) and says what was
//! posted (CR-1), a repeat when it is due and no proof has come (decision 6), a proof when the trigger's data have come; what
//! is told beside them is right; what is not busy does nothing. The rest is for each test to say.

use berth_abi::card::FAST_PROBE;
use berth_protocol::credit::list::Trigger;
use berth_random::Rng;
use berth_rtl_unit::{Named, Op};
use std::collections::{BTreeMap, VecDeque};

pub const QPS: u32 = 64;
/// Credits of a QP that are posted and whose data have not landed.
pub const CREDITS: u32 = 128;
/// Clocks after which nothing comes any more: each timer may be looked at once, twice if the last look was just begun.
const IDLE: u64 = 3 * QPS as u64;
/// Clocks in which what has been given is done with, but for lists that wait.
const SOON: u64 = 40;

/// A command; `first` is VOID's, and all behind it but the epoch are START's.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub op: Op,
    pub q: u32,
    pub first: u32,
    pub epoch: u32,
    pub max_list: u8,
    /// 3: adaptive; else as `Trigger::to_arg` has it.
    pub trigger: u8,
    pub index: u8,
    pub few: u8,
    pub repeat: u16,
    pub foreign: bool,
}

impl Command {
    /// One whose lists have up to 64 credits, the first buffer as trigger, and are never repeated.
    pub fn new(op: Op, q: u32) -> Self {
        let epoch = 0x1234_5678 ^ q;
        Self { op, q, first: 0, epoch, max_list: 64, trigger: 0, index: 0, few: 0, repeat: 0, foreign: false }
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
    n: u32,
    /// What `told_round` must be.
    round: u32,
}

/// A list of which the proof, or the trigger's data, are to come.
#[derive(Clone, Copy, Debug)]
struct Open {
    first: u32,
    trigger: u32,
    /// When it was told first and last.
    left: u32,
    stamp: u32,
    /// Until it is told again.
    pause: u32,
}

/// A QP as the bench knows it; numbers are of credits.
#[derive(Debug)]
pub struct Qp {
    on: bool,
    hold: bool,
    start: Command,
    epoch: u32,
    sizes: Vec<u32>,
    committed: u32,
    /// All numbers up to which was committed.
    commits: Vec<u32>,
    early: bool,
    announced: u32,
    landed: u32,
    open: Option<Open>,
    /// Shortest time from a list to its proof, in 2048ths of `now`.
    round: u32,
}

impl Qp {
    pub fn posted(&self) -> u32 {
        self.sizes.len() as u32
    }

    pub fn announced(&self) -> u32 {
        self.announced
    }

    pub fn landed(&self) -> u32 {
        self.landed
    }

    /// CR-4, CR-5, CR-11: a list may go.
    fn may_tell(&self) -> bool {
        let (fresh, few) = (self.committed - self.announced, u32::from(self.start.few));
        let enough = fresh > few || self.announced - self.landed <= few;
        self.on && !self.hold && self.open.is_none() && fresh != 0 && enough
    }

    /// The timer of its list runs: until its first credit's data have come.
    fn timed(&self) -> Option<Open> {
        self.open.filter(|o| self.on && !self.hold && self.start.repeat != 0 && self.landed <= o.first)
    }

    /// A list must go again.
    fn due(&self, now: u32) -> bool {
        self.timed().is_some_and(|o| now.wrapping_sub(o.stamp) >= o.pause)
    }

    /// Time until a list that is told now for the first time is told again.
    fn pause(&self) -> u32 {
        match (self.round >> 11, u32::from(self.start.repeat)) {
            (0, repeat) => repeat,
            (round, repeat) => (2 * round).max(FAST_PROBE).min(repeat),
        }
    }

    fn trigger(&self, n: u32) -> u32 {
        let c = &self.start;
        let chosen = if c.trigger == 3 && self.early { 0 } else { u32::from(c.trigger) | u32::from(c.index) << 8 };
        Trigger::from_arg(chosen).index(n)
    }
}

/// The engine and what is around it.
pub struct Rig {
    m: Named,
    pub rng: Rng,
    /// The port `now`, in units of 64 clocks; a test moves it.
    pub now: u32,
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
    landings: VecDeque<u32>,
    shown: [bool; 2],
    telling: Option<Telling>,
    /// The list that must begin in this clock: (QP, credits, for the first time).
    begins: Option<(u32, u32, bool)>,
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
        Self::of(Named::new("berth_fp_builder", width), Rng(seed))
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
            shown: [false; 2],
            telling: None,
            begins: None,
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
        self.landings.push_back(q);
    }

    /// Credits of a QP that are announced and that no data have come for, those that are to come included.
    pub fn out(&self, q: u32) -> u32 {
        let to_come = self.landings.iter().filter(|&&l| l == q).count() as u32;
        self.qps[&q].announced - self.qps[&q].landed - to_come
    }

    /// Credits that a QP may still post.
    pub fn places(&self, q: u32) -> u32 {
        let to_come = self.posts.iter().filter(|p| p.q == q && p.size.is_some()).count() as u32;
        CREDITS - (self.qps[&q].posted() + to_come - self.qps[&q].landed)
    }

    /// Steps until nothing has moved for a while: then all has been told that must be.
    pub fn rest(&mut self) {
        let from = self.cycle;
        self.moved = self.cycle;
        while self.cycle < self.moved + if self.hurry { IDLE } else { SOON } || !self.given() {
            self.step();
            assert!(self.cycle < from + 100_000, "the engine does not come to rest");
        }
        assert_eq!(self.posted.0, self.posted.1, "credits posted");
        // One that waits for room is forgotten when there is some, if it may not go by then.
        let waits = self.qps.values().any(Qp::may_tell);
        assert!(if self.room { !self.m.is("busy") } else { !waits || self.m.is("busy") }, "busy at rest");
        for (q, qp) in &self.qps {
            assert!(!self.room || !qp.may_tell(), "QP {q}: no list: {qp:?}");
            assert!(!self.room || !self.hurry || !qp.due(self.now), "QP {q}: no repeat: {qp:?}");
            assert!(qp.open.is_none_or(|o| qp.landed <= o.trigger), "QP {q}: no proof: {qp:?}");
        }
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
        self.posts.is_empty() && self.landings.is_empty() && self.commands.is_empty()
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
        let waiting = [!self.posts.is_empty(), !self.landings.is_empty()];
        for (shown, waits) in self.shown.iter_mut().zip(waiting) {
            *shown = waits && (*shown || !self.rng.chance(self.stall));
        }
        let m = &mut self.m;
        m.set("now", self.now);
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
        if let Some(&q) = self.landings.front() {
            m.set("landed_q", q);
        }
        m.set("cmd_valid", !self.commands.is_empty());
        if let Some(c) = self.commands.front() {
            m.set("cmd.op", c.op as u8);
            m.set("cmd_q", c.q);
            m.set("cmd.first", c.first);
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
        self.check_timer();
        let (post, landing) = (self.m.is("post_ready"), self.m.is("landed_ready"));
        let given = self.shown.contains(&true) || !self.commands.is_empty();
        if self.shown[0] && post {
            self.shown[0] = false;
            let p = self.posts.pop_front().expect("a post");
            let qp = self.qps.get_mut(&p.q).expect("a QP");
            qp.sizes.extend(p.size);
            self.posted.0 += u32::from(p.size.is_some());
            if p.commit {
                (qp.committed, qp.early) = (qp.posted(), p.early);
                qp.commits.push(qp.committed);
            }
        }
        if self.shown[1] && landing {
            self.shown[1] = false;
            let q = self.landings.pop_front().expect("a landing");
            let qp = self.qps.get_mut(&q).expect("a QP");
            qp.landed += 1;
            assert!(qp.landed <= qp.announced, "the test lands what is not announced");
        }
        if self.m.is("cmd_ready") {
            let c = self.commands.pop_front().expect("a command");
            self.commanded = Some(c.q);
            self.execute(c);
        }
        if given {
            self.given_at = self.cycle;
        }
        if given || told {
            self.moved = self.cycle;
        }
        let busy = self.m.is("busy");
        assert!(!(self.quiet && told), "it was not busy");
        self.quiet = !busy && !given;
    }

    fn execute(&mut self, c: Command) {
        if c.op == Op::Start {
            let qp = Qp {
                on: true,
                hold: false,
                start: c,
                epoch: c.epoch,
                sizes: Vec::new(),
                committed: 0,
                commits: Vec::new(),
                early: false,
                announced: 0,
                landed: 0,
                open: None,
                round: 0,
            };
            self.qps.insert(c.q, qp);
            return;
        }
        let qp = self.qps.get_mut(&c.q).expect("a QP");
        match c.op {
            Op::End => qp.on = false,
            Op::Hold => qp.hold = true,
            Op::Void | Op::Unpost => {
                if c.op == Op::Void {
                    (qp.hold, qp.epoch, qp.announced, qp.open) = (false, c.epoch, c.first, None);
                }
                qp.committed = qp.announced;
                qp.sizes.truncate(qp.announced as usize);
                qp.commits.clear();
            }
            _ => (),
        }
    }

    /// Credits announced, lists and proofs: what the operation of this clock does. Whether it does any of it.
    fn check_operation(&mut self) -> bool {
        let (list, posted) = (self.m.is("ev_list"), self.m.is("ev_posted"));
        // The row of a QP that was not started since the reset holds anything, and nobody goes by its proof.
        let proof = self.m.is("proof_valid").then(|| self.m.get("proof_q") as u32).filter(|q| self.qps.contains_key(q));
        let announced = self.m.is("ann_we").then(|| (self.m.get("ann_q") as u32, self.m.get("ann_number") as u32));
        self.posted.1 += u32::from(posted);
        if let Some(q) = proof {
            let qp = self.qps.get_mut(&q).expect("a QP");
            let open = qp.open.take().expect("a proof of no list");
            assert!(qp.landed > open.trigger, "QP {q}: a proof before the trigger's data: {open:?}");
            let waited = self.now.wrapping_sub(open.left).clamp(1, 0xffff) << 11;
            // It grows by one 2048th with each list, as long as there is room for that.
            let aged = if qp.round >> 20 == 0x7f { qp.round } else { qp.round + (qp.round >> 11) };
            qp.round = if qp.round == 0 { waited } else { waited.min(aged) };
            self.proofs += 1;
        }
        if list {
            let (q, number) = announced.expect("credits announced with a list");
            let qp = self.qps.get_mut(&q).expect("a QP");
            let n = self.m.get("ev_list_len") as u32;
            assert!(qp.may_tell(), "QP {q}: a list that may not be: {qp:?}");
            let most = u32::from(qp.start.max_list);
            let first = qp.announced;
            let whole = |&c: &u32| c > first && n == most.min(c - first);
            assert!(qp.commits.iter().any(whole), "QP {q}: a list of {n}: {qp:?}");
            assert_eq!(number, first + n, "QP {q}: credits announced");
            let (left, stamp, pause) = (self.now, self.now, qp.pause());
            qp.open = Some(Open { first, trigger: first + qp.trigger(n), left, stamp, pause });
            qp.announced = number;
            assert!(self.begins.is_none());
            self.begins = Some((q, n, true));
        } else if let Some((q, number)) = announced {
            let asked = self.commanded == Some(q);
            let qp = self.qps.get_mut(&q).expect("a QP");
            if qp.start.foreign {
                assert!(number >= qp.announced && number <= qp.committed, "QP {q}: {number} announced");
                qp.announced = number;
            }
            assert!(asked || qp.start.foreign, "QP {q}: what has not changed is told");
            assert_eq!(number, qp.announced, "QP {q}: credits announced");
        }
        assert!(self.commanded.take().is_none_or(|q| announced.is_some_and(|a| a.0 == q)), "a command tells it");
        list || proof.is_some() || posted || announced.is_some()
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
        if repeat {
            let qp = self.qps.get_mut(&q).expect("a QP");
            assert!(self.room && qp.due(self.now), "QP {q}: a repeat too early: {qp:?}");
            let open = qp.open.as_mut().expect("a list");
            open.stamp = self.now;
            open.pause = (2 * open.pause).min(qp.start.repeat.into());
            let n = qp.announced - open.first;
            assert!(self.begins.is_none());
            self.begins = Some((q, n, false));
            self.moved = self.cycle;
        }
        // Not while something is given: the engine may not have come to it.
        if self.cycle > self.given_at + SOON {
            let timer = self.qps.get(&q).and_then(|qp| qp.timed().map(|o| o.stamp.wrapping_add(o.pause)));
            assert_eq!(on.then_some(at), timer, "QP {q}: its timer");
            assert!(!self.qps.get(&q).is_some_and(|qp| qp.due(self.now)), "QP {q}: no repeat");
        }
    }

    /// Beats of lists.
    fn check_list(&mut self) {
        let (valid, begin) = (self.m.is("lfr_valid"), self.m.is("lfr.first_beat"));
        if let Some((q, n, new)) = self.begins.take() {
            assert!(self.telling.is_none() && valid && begin, "QP {q}: no list begins");
            let qp = &self.qps[&q];
            let first = if new { qp.announced - n } else { qp.open.expect("a list").first };
            let list = List { q, epoch: qp.epoch, first, sizes: Vec::new(), new, at: (u64::MAX, 0) };
            self.telling = Some(Telling { list, n, round: qp.round >> 11 });
        }
        let taken = valid && self.m.is("lfr_ready");
        let mut told = None;
        if valid {
            self.moved = self.cycle;
            let t = self.telling.as_mut().expect("a beat of no list");
            assert_eq!(begin, t.list.at.0 == u64::MAX, "its first beat, and no other");
            let seen = ["lfr_q", "lfr.epoch", "lfr.first", "lfr.n"].map(|name| self.m.get(name) as u32);
            assert_eq!(seen, [t.list.q, t.list.epoch, t.list.first, t.n]);
            if taken && begin {
                t.list.at.0 = self.cycle;
            } else if taken {
                let sizes = self.m.get("lfr.sizes");
                for size in [sizes as u32, (sizes >> 32) as u32].into_iter().take(t.n as usize - t.list.sizes.len()) {
                    let number = t.list.first + t.list.sizes.len() as u32;
                    let qp = &self.qps[&t.list.q];
                    // What has come is used: the place of its size may be another's.
                    if number >= qp.landed {
                        assert_eq!(qp.sizes.get(number as usize), Some(&size), "QP {}: credit {number}", t.list.q);
                    }
                    t.list.sizes.push(size);
                }
            }
            if t.list.sizes.len() as u32 == t.n {
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
