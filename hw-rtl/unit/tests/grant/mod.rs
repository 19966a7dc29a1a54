// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything around `berth_fp_grant`: parser, ranges, translation, the host, builder, arrival and what completes receives.
//!
//! The bench looks at the ports and checks, whatever is done: memory is asked for in the order of the receives, range by
//! range, in chunks that end at multiples of 1 MiB, at most 16 at a time; a receive becomes a credit once, in order, when
//! all of it is held (PC-1); what is given back was held. The rest is for each test to say.

pub mod bound;

use berth_abi::engine::{ASIDE_FLUSH, ASIDE_LOCAL, ASIDE_RELEASE};
use berth_abi::status::{PAGE_NO_MEMORY, PAGE_OVER_BUDGET};
use berth_abi::status::{WC_BAD_WQE, WC_LOCAL_PROTECTION, WC_NO_MEMORY, WC_OVER_BUDGET, WC_RECALLED};
pub use berth_protocol::memory::ahead::Post;
use berth_random::Rng;
use berth_rtl_unit::{Named, Op};
use std::collections::{BTreeMap, VecDeque};

const NAME: &str = "berth_fp_grant";
/// A chunk ends at multiples of this.
const MIB: u64 = 1 << 20;
/// Places of a QP's window of chunks.
const WINDOW: usize = 16;
/// Receives of a QP in the rings.
const RECVS: usize = 128;
/// Answers of the host.
pub const OVER_BUDGET: u8 = PAGE_OVER_BUDGET as u8;
pub const NO_MEMORY: u8 = PAGE_NO_MEMORY as u8;

/// A command; fields that it does not use are 0.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub op: Op,
    pub q: u32,
    pub limit: u16,
    pub most: u16,
    pub status: u8,
    pub first: u8,
    pub recv: u16,
    pub sge: u8,
}

impl Command {
    pub fn new(op: Op, q: u32) -> Self {
        Self { op, q, limit: 0, most: 0, status: 0, first: 0, recv: 0, sge: 0 }
    }
}

/// What a command answers (`gr_st`).
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub freed: u16,
    pub granted: u16,
    pub holds: u16,
    pub queued: bool,
    pub going: bool,
    pub waits: bool,
    pub first: u8,
    pub ranges: u8,
    /// (va, len)
    pub sge: (u64, u32),
}

/// A receive as the parser gives it.
#[derive(Clone, Debug)]
pub struct Recv {
    pub sges: Vec<(u64, u32)>,
    /// The last of its batch.
    pub last: bool,
    /// Completes in its turn and never is a credit; as it is malformed.
    pub local: bool,
    pub bad: bool,
    /// Place of its first range.
    first: u8,
}

impl Recv {
    pub fn size(&self) -> u32 {
        self.sges.iter().map(|s| s.1).sum()
    }

    /// Its chunks: (va, len).
    pub fn chunks(&self) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        for &(start, len) in &self.sges {
            let (mut at, end) = (start, start + u64::from(len));
            while at < end {
                let stop = end.min((at / MIB + 1) * MIB);
                all.push((at, (stop - at) as u32));
                at = stop;
            }
        }
        all
    }
}

/// Where a chunk is that has been asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// The table has not answered.
    Table,
    /// The host has been asked.
    Host,
    /// It is held.
    Held,
    /// It could not be had.
    Refused(u8),
    /// It has been given back.
    Back,
}

/// A chunk that has been asked for.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub recv: usize,
    pub va: u64,
    pub len: u32,
    pub slot: u8,
    pub place: Place,
}

/// A QP as the bench knows it.
#[derive(Debug, Default)]
pub struct Qp {
    pub asid: u8,
    pub limit: u16,
    pub most: u16,
    pub recvs: Vec<Recv>,
    /// All chunks asked for since they were last asked for anew.
    pub chunks: Vec<Chunk>,
    /// Receive that is asked for next, and its chunk.
    pub next: (usize, usize),
    /// Bytes asked for and neither given back nor refused.
    pub asked: u64,
    /// Bytes given back by completed receives.
    given: u64,
    /// How full these were, as `berth_fp_recv_complete` counts it.
    pub hollow: u8,
    /// Receives that were granted or completed without; credits among them.
    pub grant: usize,
    pub credits: usize,
    /// Receives that are complete.
    pub freed: usize,
    pub posts: Vec<Post>,
    /// Credits that may be announced.
    pub committed: usize,
    /// Number of the oldest credit that is out: receive and credit of it.
    pub credit_of: BTreeMap<usize, usize>,
    /// Completions without data: (receive, status).
    pub local: Vec<(usize, u8)>,
    /// The status given at the end.
    pub ended: Option<u8>,
    /// Receives before this one were to go back to the program if they were no credits.
    canceled: usize,
    /// Something was asked for after that.
    late: bool,
    /// It has been told to go back; to this receive, if that was said.
    went_back: bool,
    target: Option<usize>,
    /// Ranges parsed.
    ranges: u8,
}

/// The engine and what is around it.
pub struct Rig {
    m: Named,
    pub rng: Rng,
    /// The port `now`, in units of 64 clocks. Runs with the clock if `runs`.
    pub now: u32,
    pub runs: bool,
    /// How often a port that could be ready is not.
    pub stall: f64,
    /// What the table says by itself: the chance of a hit, of a refusal; clocks that the host takes. None: each test says.
    pub host: Option<Host>,
    pub qps: BTreeMap<u32, Qp>,
    commands: VecDeque<Command>,
    quiets: VecDeque<u32>,
    parsed: VecDeque<(u32, usize)>,
    freed: VecDeque<u32>,
    told: VecDeque<(u32, u32, u16)>,
    proofs: VecDeque<u32>,
    /// (when, tag, kind, status)
    answers: Vec<(u64, u16, u8, u8)>,
    shown: Option<(u16, u8, u8)>,
    sge: (u64, u32),
    sges: BTreeMap<(u32, u8), (u64, u32)>,
    cycle: u64,
    /// When something last went over a port.
    pub moved: u64,
    pub counted: [u32; 3],
    /// All that was asked for, in order: (q, va, len).
    pub asks: Vec<(u32, u64, u32)>,
    pub rings: Vec<(u32, u8, bool, bool, u64)>,
}

/// The table and the host, if they answer by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub hit: f64,
    pub refuse: f64,
    pub service: u64,
}

impl Rig {
    pub fn new(width: u32, seed: u64) -> Self {
        Self {
            m: Named::new(NAME, width, seed),
            rng: Rng(seed),
            now: 0,
            runs: false,
            stall: 0.0,
            host: None,
            qps: BTreeMap::new(),
            commands: VecDeque::new(),
            quiets: VecDeque::new(),
            parsed: VecDeque::new(),
            freed: VecDeque::new(),
            told: VecDeque::new(),
            proofs: VecDeque::new(),
            answers: Vec::new(),
            shown: None,
            sge: (0, 0),
            sges: BTreeMap::new(),
            cycle: 0,
            moved: 0,
            counted: [0; 3],
            asks: Vec::new(),
            rings: Vec::new(),
        }
    }

    fn ready(&mut self) -> bool {
        !self.rng.chance(self.stall)
    }

    // ---- what a test does ----------------------------------------------------------------------

    /// Begins a QP: see `Command`'s limit and most.
    pub fn start(&mut self, q: u32, limit: u16, most: u16) {
        let asid = q as u8 ^ 0xa5;
        self.qps.insert(q, Qp { asid, limit, most, ..Qp::default() });
        self.parsed.push_back((q, 0));
        self.freed.push_back(q);
        self.command(Command { limit, most, ..Command::new(Op::Start, q) });
    }

    /// A command, and what it answers.
    pub fn command(&mut self, command: Command) -> State {
        self.commands.push_back(command);
        let end = self.cycle + 100_000;
        while !self.commands.is_empty() {
            self.step();
            assert!(self.cycle < end, "a command is not taken: {}", self.state_of_all());
        }
        // Nothing holds it up.
        let stall = std::mem::take(&mut self.stall);
        (0..3).for_each(|_| self.step());
        self.stall = stall;
        self.state()
    }

    fn state(&mut self) -> State {
        State {
            freed: self.m.get("gr_st.freed") as u16,
            granted: self.m.get("gr_st.granted") as u16,
            holds: self.m.get("gr_st.holds") as u16,
            queued: self.m.is("gr_st.queued"),
            going: self.m.is("gr_st.going"),
            waits: self.m.is("gr_st.waits"),
            first: self.m.get("gr_st.first") as u8,
            ranges: self.m.get("gr_st.ranges") as u8,
            sge: (self.m.get("gr_st.sge.va"), self.m.get("gr_st.sge.len") as u32),
        }
    }

    pub fn query(&mut self, q: u32) -> State {
        self.command(Command::new(Op::Query, q))
    }

    /// One more receive is parsed.
    pub fn post(&mut self, q: u32, sges: &[(u64, u32)], last: bool) {
        self.post_as(q, sges, last, false, false);
    }

    pub fn post_as(&mut self, q: u32, sges: &[(u64, u32)], last: bool, local: bool, bad: bool) {
        let qp = self.qps.get_mut(&q).expect("a QP");
        assert!(qp.recvs.len() - qp.freed < RECVS, "the rings have no room");
        let first = qp.ranges;
        for &sge in sges {
            self.sges.insert((q, qp.ranges), sge);
            qp.ranges = qp.ranges.wrapping_add(1);
        }
        qp.recvs.push(Recv { sges: sges.to_vec(), last, local, bad, first });
        self.parsed.push_back((q, qp.recvs.len()));
    }

    /// The table or the host answers for a chunk: 0 held, 1 the host is asked, 2 the host has answered.
    pub fn answer(&mut self, q: u32, slot: u8, kind: u8, status: u8) {
        self.answers.push((self.cycle, (q as u16) << 4 | u16::from(slot), kind, status));
    }

    /// A list of so many bytes has left; shortest time from a list to its first data.
    pub fn tell(&mut self, q: u32, bytes: u32, round: u16) {
        self.told.push_back((q, bytes, round));
    }

    pub fn prove(&mut self, q: u32) {
        self.proofs.push_back(q);
    }

    pub fn quiet(&mut self, q: u32) {
        self.quiets.push_back(q);
    }

    /// The oldest receive is complete, which is a credit.
    pub fn complete(&mut self, q: u32) {
        let qp = self.qps.get_mut(&q).expect("a QP");
        assert!(qp.freed < qp.grant && qp.credit_of.contains_key(&qp.freed), "no credit is out");
        let recv = qp.freed;
        self.give_back(q, recv, usize::MAX);
        self.qps.get_mut(&q).expect("a QP").freed += 1;
    }

    /// Chunks of a receive go back, which the engine has passed on, and is told so.
    fn give_back(&mut self, q: u32, recv: usize, most: usize) {
        let qp = self.qps.get_mut(&q).expect("a QP");
        let mut n = 0;
        for c in qp.chunks.iter_mut().filter(|c| c.recv == recv && c.place == Place::Held).take(most) {
            c.place = Place::Back;
            qp.asked -= u64::from(c.len);
            qp.given += u64::from(c.len);
            n += 1;
        }
        assert!(
            most == usize::MAX || n == most,
            "QP {q}: {most} chunks of receive {recv} are to go back, {n} are held"
        );
        self.freed.push_back(q);
    }

    /// Steps until nothing has moved for a while; `now` stands still unless it runs.
    pub fn rest(&mut self) {
        let from = self.cycle;
        self.moved = self.cycle;
        while self.cycle < self.moved + 40 {
            self.step();
            assert!(self.cycle < from + 1_000_000, "the engine does not come to rest");
        }
    }

    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Bytes held.
    pub fn held(&self, q: u32) -> u64 {
        self.qps[&q].chunks.iter().filter(|c| c.place == Place::Held).map(|c| u64::from(c.len)).sum()
    }

    /// Chunks that are asked for and have not been answered for good.
    pub fn open(&self, q: u32) -> Vec<Chunk> {
        self.qps[&q].chunks.iter().filter(|c| matches!(c.place, Place::Table | Place::Host)).copied().collect()
    }

    /// For messages.
    pub fn state_of_all(&self) -> String {
        let of = |(q, qp): (&u32, &Qp)| {
            let posted = qp.recvs.len();
            let (next, committed, ended) = (qp.next, qp.committed, qp.ended);
            let (limit, most, asked, open) = (qp.limit, qp.most, qp.asked, self.open(*q));
            format!(
                "QP {q}: bounds {limit} and {most}; {posted} receives, next {next:?}, granted {}, complete {}; {} credits, \
                 {committed} committed; ended {ended:?}; {asked} bytes, open {open:x?}\n",
                qp.grant, qp.freed, qp.credits
            )
        };
        self.qps.iter().map(of).collect()
    }

    pub fn busy(&mut self) -> bool {
        self.m.is("busy")
    }

    // ---- one clock -----------------------------------------------------------------------------

    pub fn step(&mut self) {
        self.drive();
        // It comes from where receives complete, when nothing is under way there.
        let quiet = !self.quiets.is_empty() && self.freed.is_empty();
        self.m.settle();
        if quiet && !self.m.is("aside_valid") {
            self.m.set("quiet_valid", true);
            self.m.settle();
        }
        self.check();
        self.m.edge();
        self.cycle += 1;
        if self.runs && self.cycle.is_multiple_of(64) {
            self.now = self.now.wrapping_add(1);
        }
    }

    fn drive(&mut self) {
        let now = self.now;
        self.m.set("now", now);
        let command = self.commands.front().copied();
        self.m.set("cmd_valid", command.is_some());
        if let Some(c) = command {
            self.m.set("cmd.op", c.op as u8);
            self.m.set("cmd_q", c.q);
            let asid = self.qps[&c.q].asid;
            self.m.set("cmd.asid", asid);
            self.m.set("cmd.limit", c.limit);
            self.m.set("cmd.most", c.most);
            self.m.set("cmd.status", c.status);
            self.m.set("cmd.first", c.first);
            self.m.set("cmd.recv", c.recv);
            self.m.set("cmd.sge", c.sge);
        }
        let quiet = self.quiets.front().copied();
        self.m.set("quiet_valid", false);
        self.m.set("quiet_q", quiet.unwrap_or(0));
        let ok = self.ready();
        self.m.set("grant_ok", ok);
        let (va, len) = self.sge;
        self.m.set("grant_sge.va", va);
        self.m.set("grant_sge.len", len);
        let parsed = self.parsed.pop_front();
        self.m.set("parsed_we", parsed.is_some());
        self.m.set("pend_we", parsed.is_some_and(|p| p.1 > 0));
        if let Some((q, n)) = parsed {
            self.moved = self.cycle;
            self.m.set("parsed_q", q);
            self.m.set("parsed", n as u16);
            if n > 0 {
                let r = &self.qps[&q].recvs[n - 1];
                self.m.set("pend_at", (q << 7) | ((n as u32 - 1) % 128));
                for (name, value) in [
                    ("pend.wr_id", wr_id(q, n - 1)),
                    ("pend.size", r.size().into()),
                    ("pend.sge", r.first.into()),
                    ("pend.sges", r.sges.len() as u64),
                    ("pend.last", r.last.into()),
                    ("pend.apart", r.local.into()),
                    ("pend.bad", r.bad.into()),
                ] {
                    self.m.set(name, value);
                }
            }
        }
        let freed = self.freed.pop_front();
        self.m.set("freed_we", freed.is_some());
        self.m.set("given_we", freed.is_some());
        if let Some(q) = freed {
            self.moved = self.cycle;
            let (recvs, given) = (self.qps[&q].freed as u16, self.qps[&q].given as u32);
            self.m.set("freed_q", q);
            self.m.set("freed.recvs", recvs);
            self.m.set("given.bytes", given);
            self.m.set("given.hollow", self.qps[&q].hollow);
        }
        let proof = self.proofs.pop_front();
        self.m.set("proof_valid", proof.is_some());
        self.m.set("proof_q", proof.unwrap_or(0));
        let told = self.told.front().copied();
        let room = self.m.is("told_room");
        self.m.set("told_valid", told.is_some() && room);
        if let Some((q, bytes, round)) = told.filter(|_| room) {
            self.told.pop_front();
            self.m.set("told_q", q);
            self.m.set("told.bytes", bytes);
            self.m.set("told.round", round);
        }
        if proof.is_some() || told.is_some() {
            self.moved = self.cycle;
        }
        if self.shown.is_none() {
            let due: Vec<_> = (0..self.answers.len()).filter(|&i| self.answers[i].0 <= self.cycle).collect();
            if !due.is_empty() {
                let i = due[self.rng.below(due.len() as u64) as usize];
                let (_, tag, kind, status) = self.answers.swap_remove(i);
                self.shown = Some((tag, kind, status));
            }
        }
        let shown = self.shown;
        self.m.set("xr_valid", shown.is_some());
        if let Some((tag, kind, status)) = shown {
            self.m.set("xr.tag", tag);
            self.m.set("xr.kind", kind);
            self.m.set("xr.status", status);
        }
        for name in ["acq_ready", "post_ready", "aside_ready"] {
            let ready = self.ready();
            self.m.set(name, ready);
        }
    }

    fn check(&mut self) {
        if self.m.is("quiet_valid") && self.m.is("quiet_ready") {
            self.quiets.pop_front();
            self.moved = self.cycle;
        }
        if self.m.is("grant_re") && self.m.is("grant_ok") {
            let at = self.m.get("grant_at") as u32;
            self.sge = self.sges.get(&(at >> 8, at as u8)).copied().unwrap_or((u64::MAX, u32::MAX));
        }
        if self.shown.is_some() && self.m.is("xr_ready") {
            let (tag, kind, status) = self.shown.take().expect("there is one");
            self.moved = self.cycle;
            self.answered(u32::from(tag >> 4), tag as u8 & 15, kind, status);
        }
        if self.m.is("acq_valid") && self.m.is("acq_ready") {
            self.moved = self.cycle;
            self.asked();
        }
        if self.m.is("post_valid") {
            self.moved = self.cycle;
            self.posted();
        }
        if self.m.is("ring_we") && !self.m.is("post.credit") {
            let (q, at) = (self.m.get("ring_q") as u32, self.m.get("ring_at") as u8);
            let (released, withdrawn) = (self.m.is("ring.released"), self.m.is("ring.withdrawn"));
            self.rings.push((q, at, released, withdrawn, self.m.get("ring.wr_id")));
        }
        if self.m.is("aside_valid") {
            self.moved = self.cycle;
            self.completed();
        }
        for (i, name) in ["ev_hit", "ev_miss", "ev_stray"].into_iter().enumerate() {
            self.counted[i] += self.m.get(name) as u32;
        }
        // It is taken while what the operation before it has decided is on the ports.
        if !self.commands.is_empty() && self.m.is("cmd_ready") {
            let c = self.commands.pop_front().expect("there is one");
            self.moved = self.cycle;
            self.commanded(c);
        }
    }

    fn commanded(&mut self, c: Command) {
        let qp = self.qps.get_mut(&c.q).expect("a QP");
        match c.op {
            Op::End => (qp.ended, qp.target) = (Some(c.status), None),
            Op::Void | Op::Unpost => {
                let mut out = qp.credit_of.range(qp.freed..);
                qp.target = Some(out.find(|(_, n)| **n as u8 == c.first).map_or(qp.grant, |(&recv, _)| recv));
                qp.went_back = true;
            }
            Op::Squeeze => qp.went_back = true,
            Op::Cancel => (qp.went_back, qp.canceled) = (true, qp.canceled.max(c.recv.into())),
            _ => (),
        }
    }

    fn answered(&mut self, q: u32, slot: u8, kind: u8, status: u8) {
        let when = self.cycle;
        let Some(c) = self.chunk(q, slot) else { return };
        c.place = match (kind, status) {
            (0, _) => Place::Held,
            (1, _) => Place::Host,
            // What was not asked for is no answer.
            _ if c.place != Place::Host => return,
            (_, 0) => return,
            _ => Place::Refused(status),
        };
        let (len, place) = (u64::from(c.len), c.place);
        let qp = self.qps.get_mut(&q).expect("a QP");
        match place {
            Place::Refused(_) => qp.asked -= len,
            Place::Host => {
                if let Some(host) = self.host {
                    let refused = self.rng.chance(host.refuse);
                    let status = [OVER_BUDGET, NO_MEMORY, 9][self.rng.below(3) as usize];
                    let when = when + self.rng.between(1, host.service.max(1));
                    self.answers.push((when, (q as u16) << 4 | u16::from(slot), 2, if refused { status } else { 0 }));
                }
            }
            _ => (),
        }
    }

    /// The chunk in this place of the window that has no answer for good.
    fn chunk(&mut self, q: u32, slot: u8) -> Option<&mut Chunk> {
        let chunks = &mut self.qps.get_mut(&q)?.chunks;
        chunks.iter_mut().rev().find(|c| c.slot == slot && matches!(c.place, Place::Table | Place::Host))
    }

    fn asked(&mut self) {
        let (tag, va, len) = (self.m.get("acq.tag") as u16, self.m.get("acq.va"), self.m.get("acq.len") as u32);
        let (q, slot, release) = (u32::from(tag >> 4), tag as u8 & 15, self.m.is("acq.give_back"));
        let asid = self.m.get("acq.asid") as u8;
        let host = self.host;
        let cycle = self.cycle;
        let qp = self.qps.get_mut(&q).unwrap_or_else(|| panic!("no QP {q}"));
        assert_eq!(asid, qp.asid, "QP {q}: another's address space");
        if release {
            let found = qp.chunks.iter_mut().find(|c| c.place == Place::Held && (c.va, c.len) == (va, len));
            let c = found.unwrap_or_else(|| panic!("QP {q}: {len} bytes at {va:#x} go back that are not held"));
            assert!(!qp.credit_of.contains_key(&c.recv), "QP {q}: memory of a credit");
            c.place = Place::Back;
            qp.asked -= u64::from(len);
            return;
        }
        if let Some(c) = self.chunk(q, slot) {
            assert_eq!((c.va, c.len, c.place), (va, len, Place::Host), "QP {q}: another chunk in place {slot}");
            self.answers.push((cycle, tag, 0, 0));
            return;
        }
        let qp = self.qps.get_mut(&q).expect("a QP");
        // Receives without ranges take a place each, so that order is kept.
        while qp.recvs.get(qp.next.0).is_some_and(|r| r.chunks().is_empty()) {
            qp.next = (qp.next.0 + 1, 0);
        }
        let at = |n: (usize, usize)| qp.recvs.get(n.0).and_then(|r| r.chunks().get(n.1).copied());
        if at(qp.next) != Some((va, len)) {
            // All that is not granted is asked for anew.
            assert!(qp.went_back, "QP {q}: {len} bytes at {va:#x} are not next");
            let memory = |r: &usize| !qp.recvs[*r].chunks().is_empty();
            let recv = (qp.grant.max(qp.canceled)..qp.recvs.len()).find(memory).expect("a receive with memory");
            qp.next = (recv, 0);
            assert_eq!(qp.recvs[recv].chunks().first(), Some(&(va, len)), "QP {q}: not anew from {recv}");
            let grant = qp.grant;
            qp.chunks.retain(|c| {
                let gone = matches!(c.place, Place::Back | Place::Refused(_));
                assert!(c.recv < grant || gone, "QP {q}: asked for twice: {c:x?}");
                c.recv < grant
            });
        }
        // One may have been on its way.
        assert!(qp.ended.is_none() || !std::mem::replace(&mut qp.late, true), "QP {q}: asked for after the end");
        let (recv, n) = qp.next;
        let last = n + 1 == qp.recvs[recv].chunks().len();
        qp.next = if last { (recv + 1, 0) } else { (recv, n + 1) };
        qp.asked += u64::from(len);
        qp.chunks.push(Chunk { recv, va, len, slot, place: Place::Table });
        // From the oldest on that has no answer, all are in the window.
        let answered = |c: &&Chunk| !matches!(c.place, Place::Table | Place::Host);
        let window = qp.chunks.len() - qp.chunks.iter().take_while(answered).count();
        assert!(window <= WINDOW, "QP {q}: {window} chunks at a time");
        self.asks.push((q, va, len));
        if let Some(host) = host {
            let hit = self.rng.chance(host.hit);
            let when = cycle + self.rng.between(3, 12);
            self.answers.push((when, tag, u8::from(!hit), 0));
        }
    }

    fn posted(&mut self) {
        let (q, size, commit) = (self.m.get("post_q") as u32, self.m.get("post.size") as u32, self.m.is("post.commit"));
        let (credit, early) = (self.m.is("post.credit"), self.m.is("post.early"));
        let ring = (self.m.is("ring_we"), self.m.get("ring_q") as u32, self.m.get("ring_at"));
        let names = ["ring.sges", "ring.sge", "ring.size", "ring.wr_id", "ring.released", "ring.withdrawn"];
        let fields = names.map(|name| self.m.get(name));
        let qp = self.qps.get_mut(&q).expect("a QP");
        if credit {
            // What is going back is no credit.
            let recv = qp.grant;
            assert!(
                recv >= qp.canceled || qp.target.is_some_and(|t| t <= recv),
                "QP {q}: receive {recv} was to go back"
            );
            assert_eq!(qp.target.take().unwrap_or(recv), recv, "QP {q}: the first credit after going back");
            let r = &qp.recvs[recv];
            assert!(!r.local && !r.bad, "QP {q}: receive {recv} is no credit");
            let held: Vec<_> = qp.chunks.iter().filter(|c| c.recv == recv && c.place == Place::Held).collect();
            assert_eq!(held.len(), r.chunks().len(), "QP {q}: receive {recv} is not held: {held:x?}");
            assert_eq!(size, r.size());
            assert_eq!(ring, (true, q, qp.credits as u64 % 128));
            let wanted = [r.sges.len() as u64, r.first.into(), size.into(), wr_id(q, recv), 0, 0];
            assert_eq!(fields, wanted, "QP {q}: receive {recv}");
            qp.credit_of.insert(recv, qp.credits);
            qp.grant += 1;
            qp.credits += 1;
        }
        qp.posts.push(Post { size: credit.then_some(size), commit, early });
        if commit {
            qp.committed = qp.credits;
        }
    }

    fn completed(&mut self) {
        let m = &mut self.m;
        let (chunks, ranges) = (m.get("aside.chunks") as usize, m.get("aside.sges") as usize);
        let (first, status, id) = (m.get("aside.sge") as u8, m.get("aside.status") as u8, m.get("aside.wr_id"));
        let (credit, recv, kind) = (m.get("aside.credit") as u8, m.get("aside.recv"), m.get("aside.kind") as u32);
        let q = m.get("aside_q") as u32;
        let qp = self.qps.get_mut(&q).expect("a QP");
        let recv = recv as usize;
        let r = &qp.recvs[recv];
        assert_eq!((id, ranges, first), (wr_id(q, recv), r.sges.len(), r.first), "QP {q}: receive {recv}");
        let of = qp.credit_of.get(&recv).map(|&n| n as u8);
        match kind {
            // Never a credit: in its turn.
            ASIDE_LOCAL => {
                assert_eq!((recv, recv), (qp.freed, qp.grant), "QP {q}: not its turn");
                assert_eq!(qp.target.take().unwrap_or(recv), recv, "QP {q}: the first one after going back");
                let refused = qp.chunks.iter().find_map(|c| match c.place {
                    Place::Refused(s) if c.recv == recv => Some(s),
                    _ => None,
                });
                let wanted = match (qp.ended, refused) {
                    (Some(status), _) => status,
                    _ if recv < qp.canceled => WC_RECALLED,
                    _ if r.bad => WC_BAD_WQE,
                    (_, None) => 0,
                    (_, Some(OVER_BUDGET)) => WC_OVER_BUDGET,
                    (_, Some(NO_MEMORY)) => WC_NO_MEMORY,
                    _ => WC_LOCAL_PROTECTION,
                };
                assert!(
                    r.local || refused.is_some() || qp.ended.is_some() || recv < qp.canceled,
                    "QP {q}: receive {recv} is a credit"
                );
                assert_eq!(status, wanted, "QP {q}: receive {recv}");
                qp.grant += 1;
                qp.local.push((recv, status));
                self.give_back(q, recv, chunks);
                self.qps.get_mut(&q).expect("a QP").freed += 1;
            }
            // Was a credit, after the end.
            ASIDE_FLUSH => {
                assert_eq!((Some(credit), recv, Some(status)), (of, qp.freed, qp.ended), "QP {q}: receive {recv}");
                qp.local.push((recv, status));
                self.give_back(q, recv, usize::MAX);
                self.qps.get_mut(&q).expect("a QP").freed += 1;
            }
            // Taken back, newest first, or let go.
            ASIDE_RELEASE => {
                assert_eq!((Some(credit), chunks), (of, 0xffff), "QP {q}: receive {recv}");
                if qp.went_back && recv + 1 == qp.grant {
                    qp.grant -= 1;
                    qp.credits -= 1;
                    qp.committed = qp.committed.min(qp.credits);
                    qp.credit_of.remove(&recv);
                }
                self.give_back(q, recv, usize::MAX);
            }
            _ => {
                assert_eq!(recv, qp.grant, "QP {q}: part of a receive that is none");
                self.give_back(q, recv, chunks);
            }
        }
    }
}

/// What the completion of a receive is known by.
pub fn wr_id(q: u32, recv: usize) -> u64 {
    0xfeed_0000_0000_0000 | u64::from(q) << 32 | recv as u64
}
