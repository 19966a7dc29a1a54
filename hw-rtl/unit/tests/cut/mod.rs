// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything around `berth_fp_cut`: the parsers of elements and of frames, the engines behind it, and the golden model.
//!
//! In each clock the bench compares with `credit::list::Reader` and `cut::NicCut`: verdicts on lists and what is counted of
//! them, unused credits, and each piece with all its fields; and no piece more than 16 ahead. What waits for what, and for how
//! long, is for each test to say.

use berth_abi::cpu::{LIST_BAD, LIST_GAP, LIST_OK, LIST_REPEAT};
use berth_abi::engine::{PIECE_BAD, PIECE_DATA, PIECE_EMPTY, PIECE_TOO_LONG};
use berth_abi::rows::send;
use berth_protocol::credit::cut::{Cut, Mode, NicCut, Out, Send, Unlisted};
use berth_protocol::credit::list::Reader;
use berth_random::Rng;
use berth_rtl_unit::Named;
use std::collections::{BTreeMap, VecDeque};

/// Pieces that are cut and not sent, or have no memory.
pub const AHEAD: u8 = 16;
/// Elements of a QP's ring.
const RING: usize = 64;
/// Clocks after which nothing comes any more: each QP may be looked at once.
const IDLE: u64 = 2 * 64 + 12;
/// Clocks within which one that is held goes on, when it may.
const LATE: u64 = 400;

/// What a BIND says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bind {
    pub key: u32,
    pub va: u64,
    pub span: u64,
    pub one_shot: bool,
    pub rights: u8,
}

/// An element as the parser gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Elem {
    pub len: u32,
    pub bad: bool,
    pub push: bool,
    pub inline: bool,
    /// Contexts up to its end, 9 bits.
    pub ctxs: u16,
    /// A WRITE to this address, and whether it has an immediate.
    pub write: Option<u64>,
    pub imm: bool,
    /// A READ.
    pub read: bool,
    /// READs before it are complete first.
    pub fence: bool,
    /// A NOP.
    pub nothing: bool,
    /// A DELAY of so many units of 64 clocks.
    pub delay: Option<u32>,
    /// A BIND.
    pub bind: Option<Bind>,
}

impl Elem {
    /// One of so many bytes.
    pub fn of(len: u32) -> Self {
        Self { len, ..Self::default() }
    }

    /// A WRITE.
    pub fn write(va: u64, len: u32) -> Self {
        Self { len, write: Some(va), ..Self::default() }
    }

    /// A READ.
    pub fn read(len: u32) -> Self {
        Self { len, read: true, ..Self::default() }
    }

    /// A DELAY.
    pub fn delay(time: u32) -> Self {
        Self { delay: Some(time), ..Self::default() }
    }

    /// It sends nothing.
    fn local(&self) -> bool {
        self.nothing || self.delay.is_some() || self.bind.is_some()
    }

    /// Whether a WRITE's bytes lie about another one's, as the golden model has it.
    fn overlaps(&self, other: &Self) -> bool {
        match (self.write, other.write) {
            (Some(va), Some(before)) if !self.bad && !other.bad => {
                let end = |va: u64, len: u32| va.saturating_add(len.into());
                end(before, other.len) > va && end(va, self.len) > before
            }
            _ => false,
        }
    }
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u32)]
pub enum Kind {
    Data = PIECE_DATA,
    Empty = PIECE_EMPTY,
    TooLong = PIECE_TOO_LONG,
    Bad = PIECE_BAD,
}

/// A piece that was cut, as the bench saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    pub q: u32,
    pub elem: usize,
    pub kind: Kind,
    pub len: u32,
    /// The clock in which it was told.
    pub at: u64,
}

/// What is told of a list in one clock; `held` beside it, which is not foretold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Told {
    /// A list breaks the protocol: (QP, status).
    broken: Option<(u32, u32)>,
    list: bool,
    repeat: bool,
    refused: bool,
    credit: bool,
}

/// How often each was told since the reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub lists: u32,
    pub repeats: u32,
    pub refused: u32,
    pub credits: u32,
    pub held: u32,
}

#[derive(Clone, Copy, Debug)]
enum Beat {
    Begin { q: u32, first: u32, n: u8 },
    Size(u32),
}

/// The list that was taken and whose sizes come.
#[derive(Clone, Copy, Debug)]
struct Fill {
    q: u32,
    left: u8,
    skip: u32,
    empty: bool,
}

/// What a QP's peer knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Peer {
    /// Selective repeat.
    Berth,
    /// Credit lists.
    GoBackN,
    /// Neither.
    Foreign,
}

/// A QP as the model has it.
#[derive(Debug)]
pub struct Qp {
    mode: Mode,
    peer: Peer,
    elems: Vec<Elem>,
    reader: Reader,
    cut: NicCut<1>,
    /// The element at hand is in `cut`.
    open: bool,
    /// Elements that are complete, and that are cut; bytes and pieces so far.
    complete: usize,
    done: usize,
    bytes: u32,
    pieces: u8,
    covered: u8,
    sent: u8,
    /// The number after the last credit of the last list that was taken.
    end: u32,
    /// The clock, that in which the DELAY or BIND that is next may have begun, and that in which the BIND was done.
    now: u64,
    since: Option<u64>,
    bound: Option<u64>,
}

impl Qp {
    fn new(mode: Mode, peer: Peer) -> Self {
        Self {
            mode,
            peer,
            complete: 0,
            elems: Vec::new(),
            reader: Reader::new(),
            cut: NicCut::new(mode),
            open: false,
            done: 0,
            bytes: 0,
            pieces: 0,
            covered: 0,
            sent: 0,
            end: 0,
            now: 0,
            since: None,
            bound: None,
        }
    }

    /// Unused credits, those included whose sizes are to come.
    pub fn unused(&self) -> u32 {
        self.end.wrapping_sub(self.reader.next_out())
    }

    /// The next number that a list should begin with.
    pub fn expected(&self) -> u32 {
        self.end
    }

    pub fn elems(&self) -> usize {
        self.elems.len()
    }

    pub fn complete(&self) -> usize {
        self.complete
    }

    /// Elements that are cut.
    pub fn done(&self) -> usize {
        self.done
    }

    pub fn pieces(&self) -> u8 {
        self.pieces
    }

    pub fn sent(&self) -> u8 {
        self.sent
    }

    pub fn covered(&self) -> u8 {
        self.covered
    }

    fn room(&self) -> bool {
        self.pieces.wrapping_sub(self.covered) < AHEAD && self.pieces.wrapping_sub(self.sent) < AHEAD
    }

    /// A READ before the next element is open, and it has a fence.
    fn fenced(&self) -> bool {
        let before = &self.elems[self.complete.min(self.done)..self.done];
        self.elems.get(self.done).is_some_and(|elem| elem.fence) && before.iter().any(|elem| elem.read && !elem.bad)
    }

    /// A clock is over: a DELAY or a BIND begins when all before it has been sent.
    fn look(&mut self, now: u64) {
        self.now = now;
        let holds = |elem: &Elem| (elem.delay.is_some() || elem.bind.is_some()) && !elem.bad;
        if self.elems.get(self.done).is_some_and(holds) && !self.fenced() && self.room() && self.pieces == self.sent {
            self.since.get_or_insert(now);
        }
    }

    /// Whether the DELAY or BIND that is next may be over; `late`: it must be. A time is told in whole units.
    fn over(&self, elem: &Elem, late: bool) -> bool {
        let from = if elem.bind.is_some() { self.bound } else { self.since };
        let least = 64 * u64::from(elem.delay.unwrap_or(0).saturating_sub(1));
        from.is_some_and(|from| self.now >= from + if late { least + LATE } else { least })
    }

    /// What is cut next, if its credit and its size are there.
    fn next(&mut self, late: bool) -> Option<(Kind, Out)> {
        let elem = *self.elems.get(self.done)?;
        let id = self.done as u64;
        if elem.bad {
            return Some((Kind::Bad, Out::Empty(id)));
        }
        if (!self.open && self.fenced()) || ((elem.delay.is_some() || elem.bind.is_some()) && !self.over(&elem, late)) {
            return None;
        }
        if self.peer == Peer::Berth && self.elems[self.complete..self.done].iter().any(|before| elem.overlaps(before)) {
            return None;
        }
        // CR-1: nothing is cut from a credit of no bytes on.
        if self.mode == Mode::Stream && elem.len != 0 && self.reader.peek(0).is_some_and(|(_, size)| size == 0) {
            return None;
        }
        if !self.open {
            let local = elem.local();
            let (write, immediate) = (elem.write.is_some() || elem.read, elem.imm.then_some(7));
            self.cut.post(Send { id, len: elem.len, immediate, write, local }).expect("the one before it is cut");
            self.open = true;
        }
        let out = match self.peer {
            Peer::Foreign => self.cut.poll(&mut Unlisted)?,
            _ => self.cut.poll(&mut self.reader)?,
        };
        let kind = match out {
            Out::Piece(_) | Out::Write { .. } => Kind::Data,
            Out::Empty(_) => Kind::Empty,
            Out::TooLong(_) => Kind::TooLong,
        };
        Some((kind, out))
    }

    /// Whether a piece may be cut.
    fn can_cut(&self) -> bool {
        let copy = Qp { elems: self.elems.clone(), reader: self.reader.clone(), cut: self.cut.clone(), ..*self };
        self.room() && { copy }.next(true).is_some()
    }
}

/// The engine and what is around it.
pub struct Rig {
    m: Named,
    pub qps: BTreeMap<u32, Qp>,
    pub rng: Rng,
    /// How often a list's beat is late.
    pub stall: f64,
    pub cycle: u64,
    pub counts: Counts,
    pub pieces: Vec<Piece>,
    /// Lists that broke the protocol: (QP, status).
    pub broken: Vec<(u32, u32)>,
    beats: VecDeque<Beat>,
    /// The first of them is on the port.
    shown: bool,
    /// The QP that begins.
    starts: Option<(u32, Mode, Peer)>,
    gives: VecDeque<(u32, u32)>,
    elems: VecDeque<(u32, usize)>,
    completed: VecDeque<(u32, usize)>,
    covered: VecDeque<(u32, u8)>,
    sent: VecDeque<(u32, u8)>,
    /// BINDs that firmware does, and when it is done; it takes so long at most.
    binds: VecDeque<(u32, u64)>,
    pub bind_time: u64,
    /// The last QP that began, and when.
    began: Option<(u32, u64)>,
    /// A row is written.
    configures: bool,
    fill: Option<Fill>,
    /// What is told in this clock and in the next ones.
    told: VecDeque<Told>,
    /// Whose list was taken in the clock before: its credits are told now.
    credited: Option<u32>,
    /// What the last giving up must say.
    given: Option<u32>,
    moved: u64,
}

impl Rig {
    pub fn new(width: u32, seed: u64) -> Self {
        Self::of(Named::new("berth_fp_cut", width, seed), Rng(seed))
    }

    /// After a reset.
    fn of(m: Named, rng: Rng) -> Self {
        Self {
            m,
            qps: BTreeMap::new(),
            rng,
            stall: 0.0,
            cycle: 0,
            counts: Counts::default(),
            pieces: Vec::new(),
            broken: Vec::new(),
            beats: VecDeque::new(),
            shown: false,
            starts: None,
            gives: VecDeque::new(),
            elems: VecDeque::new(),
            completed: VecDeque::new(),
            covered: VecDeque::new(),
            sent: VecDeque::new(),
            binds: VecDeque::new(),
            bind_time: 1,
            began: None,
            configures: false,
            fill: None,
            told: VecDeque::new(),
            credited: None,
            given: None,
            moved: 0,
        }
    }

    // ---- what a test does ----------------------------------------------------------------------

    /// A QP begins, perhaps anew; what others know of it is written as their engines do.
    pub fn start(&mut self, q: u32, mode: Mode) {
        self.start_with(q, mode, Peer::Berth);
    }

    /// The same, with a peer of any kind.
    pub fn start_with(&mut self, q: u32, mode: Mode, peer: Peer) {
        let kind = send::Mode {
            selective: (peer == Peer::Berth).into(),
            foreign: (peer == Peer::Foreign).into(),
            ..send::Mode::default()
        };
        let word = send::Mode { message: 1, ..kind }.word();
        let others = !send::Mode { message: 1, selective: 1, foreign: 1, ..send::Mode::default() }.word();
        let stream = others | kind.word();
        self.configures = true;
        self.m.set("cfg_we", true);
        self.m.set("cfg_q", q);
        self.m.set("cfg.word", send::MODE);
        self.m.set("cfg.data", if mode == Mode::Message { word } else { stream });
        self.step();
        // Only that word of its row.
        self.m.set("cfg.word", send::QUEUE);
        self.m.set("cfg.data", if mode == Mode::Message { 0 } else { u32::MAX });
        self.step();
        self.m.set("cfg_we", false);
        self.configures = false;
        self.m.set("init_any", true);
        self.m.set("init_valid", true);
        self.m.set("init_q", q);
        self.starts = Some((q, mode, peer));
        let end = self.cycle + 1000;
        while self.starts.is_some() {
            self.step();
            assert!(self.cycle < end, "QP {q} does not begin");
        }
        self.elems.push_back((q, 0));
        self.completed.push_back((q, 0));
        self.covered.push_back((q, 0));
        self.sent.push_back((q, 0));
        self.m.set("init_valid", false);
        self.step();
        self.m.set("init_any", false);
    }

    /// One more element of a QP is parsed.
    pub fn post(&mut self, q: u32, elem: Elem) {
        let qp = self.qps.get_mut(&q).expect("a QP");
        assert!(qp.elems.len() - qp.done < RING, "the ring is full");
        qp.elems.push(elem);
        self.elems.push_back((q, qp.elems.len()));
    }

    /// A list comes.
    pub fn list(&mut self, q: u32, first: u32, sizes: &[u32]) {
        let n = u8::try_from(sizes.len()).expect("a byte");
        self.beats.push_back(Beat::Begin { q, first, n });
        self.beats.extend(sizes.iter().map(|&size| Beat::Size(size)));
    }

    /// A list comes whose sizes are yet to come.
    pub fn begin(&mut self, q: u32, first: u32, n: u8) {
        self.beats.push_back(Beat::Begin { q, first, n });
    }

    /// A size comes: of the list that was begun, if one was and wants more.
    pub fn size(&mut self, size: u32) {
        self.beats.push_back(Beat::Size(size));
    }

    /// The newest credits are given up.
    pub fn give_up(&mut self, q: u32, n: u32) {
        self.gives.push_back((q, n));
    }

    /// So many elements are complete.
    pub fn complete(&mut self, q: u32, elems: usize) {
        self.completed.push_back((q, elems));
    }

    /// The block engine has gone so far.
    pub fn cover(&mut self, q: u32, pieces: u8) {
        self.covered.push_back((q, pieces));
    }

    /// So many pieces have been sent.
    pub fn send(&mut self, q: u32, pieces: u8) {
        self.sent.push_back((q, pieces));
    }

    /// Beats of lists, and what is to be given up, that are still to come.
    pub fn to_come(&self) -> usize {
        self.beats.len() + self.gives.len()
    }

    /// Steps until nothing has moved for a while: then all is cut that the model would cut.
    pub fn rest(&mut self) {
        let from = self.cycle;
        self.moved = self.cycle;
        while self.cycle < self.moved + IDLE || self.to_come() + self.elems.len() + self.binds.len() != 0 {
            self.step();
            assert!(self.cycle < from + 100_000, "the engine does not come to rest");
        }
        for (q, qp) in &self.qps {
            assert!(!qp.can_cut(), "QP {q} cuts nothing: {qp:?}");
        }
    }

    /// Steps until at most so many beats of lists are to come.
    pub fn rest_of_lists(&mut self, beats: usize) {
        while self.beats.len() > beats {
            self.step();
        }
    }

    /// Steps for as long as all that has come may take.
    pub fn settle(&mut self) {
        (0..12).for_each(|_| self.step());
    }

    /// Whether some engine's row is not initialised.
    pub fn hold(&mut self, on: bool) {
        self.m.set("init_any", on);
    }

    /// Resets the engine, whatever it does: all begins anew.
    pub fn reset(mut self) -> Self {
        self.m.reset();
        Self::of(self.m, self.rng)
    }

    // ---- one clock -----------------------------------------------------------------------------

    pub fn step(&mut self) {
        self.m.set("now", (self.cycle / 64) as u32);
        self.drive();
        self.m.settle();
        self.check();
        self.bind();
        self.m.edge();
        self.cycle += 1;
        let now = self.cycle;
        self.qps.values_mut().for_each(|qp| qp.look(now));
    }

    /// Firmware reads what a BIND says, and says that it is done.
    fn bind(&mut self) {
        let q = self.m.get("bind_q") as u32;
        // One of a QP that has just begun anew is not told of any more: its row says that none waits.
        if self.m.is("bind_valid") && self.began != Some((q, self.cycle)) {
            let qp = &self.qps[&q];
            assert!(qp.elems[qp.done].bind.is_some() && qp.since.is_some(), "QP {q}: a BIND that has no turn");
            assert!(self.binds.iter().all(|(other, _)| *other != q), "QP {q}: a BIND is told twice");
            self.binds.push_back((q, self.cycle + 2 + self.rng.below(self.bind_time)));
        }
        self.m.set("bound_we", false);
        if self.configures {
            // The port is another one's.
            self.binds.iter_mut().for_each(|(_, due)| *due = (*due).max(1));
        }
        let Some(at) = self.binds.iter().position(|(_, due)| *due <= self.cycle).filter(|_| !self.configures) else {
            return;
        };
        let (q, due) = self.binds[at];
        if due != 0 {
            // It is read in the next clock.
            self.m.set("cfg_q", q);
            self.binds.remove(at);
            self.binds.push_front((q, 0));
            return;
        }
        let told = Bind {
            key: self.m.get("bind_data.key") as u32,
            va: self.m.get("bind_data.va"),
            span: self.m.get("bind_data.span"),
            one_shot: self.m.is("bind_data.one_shot"),
            rights: self.m.get("bind_data.rights") as u8,
        };
        let waits = self.m.is("bind_data.waits");
        let qp = self.qps.get_mut(&q).expect("a QP");
        assert_eq!((Some(told), waits), (qp.elems[qp.done].bind, true), "QP {q}");
        qp.bound = Some(self.cycle);
        self.moved = self.cycle;
        self.binds.remove(at);
        self.m.set("bound_we", true);
    }

    fn drive(&mut self) {
        // A beat stays until it is taken.
        self.shown = !self.beats.is_empty() && (self.shown || !self.rng.chance(self.stall));
        let beat = self.beats.front().copied().filter(|_| self.shown);
        self.m.set("list_valid", beat.is_some());
        self.m.set("list_beat.first_beat", false);
        match beat {
            Some(Beat::Begin { q, first, n }) => {
                self.m.set("list_beat.first_beat", true);
                self.m.set("list_q", q);
                self.m.set("list_beat.first", first);
                self.m.set("list_beat.n", n);
            }
            Some(Beat::Size(size)) => self.m.set("list_beat.size", size),
            None => (),
        }
        self.m.set("give_valid", !self.gives.is_empty());
        if let Some(&(q, n)) = self.gives.front() {
            self.m.set("give_q", q);
            self.m.set("give_n", n);
        }
        let elem = self.elems.pop_front();
        self.m.set("parsed_we", elem.is_some());
        self.m.set("elem_we", elem.is_some_and(|(_, n)| n != 0));
        if let Some((q, n)) = elem {
            self.m.set("parsed_q", q);
            self.m.set("parsed_elems", n as u16);
            if let Some(i) = n.checked_sub(1) {
                let elem = self.qps[&q].elems[i];
                self.m.set("elem_q", q);
                self.m.set("elem_idx", (i % RING) as u8);
                self.m.set("element.len", elem.len);
                self.m.set("element.bad", elem.bad);
                self.m.set("element.push", elem.push);
                self.m.set("element.inlined", elem.inline);
                self.m.set("element.ctxs", elem.ctxs);
                self.m.set("element.write", elem.write.is_some() && !elem.bad);
                self.m.set("element.has_imm", elem.imm);
                self.m.set("element.read", elem.read && !elem.bad);
                self.m.set("element.fence", elem.fence);
                let bind = elem.bind.unwrap_or_default();
                let va = elem.write.or(elem.delay.map(u64::from)).unwrap_or(bind.va);
                self.m.set("element.nothing", elem.local());
                self.m.set("element.delay", elem.delay.is_some());
                self.m.set("element.bind_key", elem.bind.is_some() && !elem.bad);
                self.m.set("element.va", va);
                self.m.set("element.key", bind.key);
                self.m.set("element.span", bind.span);
                self.m.set("element.one_shot", bind.one_shot);
                self.m.set("element.rights", bind.rights);
            }
        }
        let completed = self.completed.pop_front();
        self.m.set("done_we", completed.is_some());
        if let Some((q, n)) = completed {
            self.m.set("done_q", q);
            self.m.set("done_elems", n as u16);
            if let Some(qp) = self.qps.get_mut(&q) {
                qp.complete = n;
            }
        }
        let covered = self.covered.pop_front();
        self.m.set("covered_we", covered.is_some());
        if let Some((q, n)) = covered {
            self.m.set("covered_q", q);
            self.m.set("covered_data.pieces", n);
        }
        let sent = self.sent.pop_front();
        self.m.set("sent_we", sent.is_some());
        if let Some((q, n)) = sent {
            self.m.set("sent_q", q);
            self.m.set("sent_data.pieces", n);
        }
        for (q, covered, n) in covered.map(|(q, n)| (q, true, n)).into_iter().chain(sent.map(|(q, n)| (q, false, n))) {
            if let Some(qp) = self.qps.get_mut(&q) {
                *if covered { &mut qp.covered } else { &mut qp.sent } = n;
            }
        }
    }

    fn check(&mut self) {
        self.check_told();
        // Who has other credits now.
        let mut changed = self.credited.take();
        let mut cut = None;
        if let Some(wanted) = self.given.take() {
            assert_eq!(self.m.get("give_first") as u32, wanted, "the first credit that is not kept");
        }
        if self.m.is("piece_we") {
            let q = self.check_piece();
            changed = Some(q);
            cut = Some((q, self.qps[&q].pieces));
        }
        if self.m.is("init_ack") {
            let (q, mode, peer) = self.starts.take().expect("a QP that begins");
            assert!(self.fill.is_none(), "a QP begins while sizes come");
            self.qps.insert(q, Qp::new(mode, peer));
            self.binds.retain(|(other, _)| *other != q);
            self.began = Some((q, self.cycle));
            changed = Some(q);
            cut = Some((q, 0));
        }
        if self.m.is("give_ready") {
            let (q, n) = self.gives.pop_front().expect("something is given up");
            assert!(self.fill.is_none(), "given up while sizes come");
            let qp = self.qps.get_mut(&q).expect("a QP");
            qp.end = qp.reader.give_up(n);
            self.given = Some(qp.end);
            changed = Some(q);
        }
        let told = self.m.is("credits_we").then(|| (self.m.get("credits_q") as u32, self.m.get("credits_n") as u32));
        assert_eq!(told, changed.map(|q| (q, self.qps[&q].unused())), "unused credits");
        let told = self.m.is("cut_we").then(|| (self.m.get("cut_q") as u32, self.m.get("cut_pieces") as u8));
        assert_eq!(told, cut, "pieces so far");
        if self.m.is("list_valid") && self.m.is("list_ready") {
            let beat = self.beats.pop_front().expect("a beat");
            self.shown = false;
            self.take(beat);
        }
        if changed.is_some() {
            self.moved = self.cycle;
        }
    }

    /// What is told of lists in this clock is what the model says.
    fn check_told(&mut self) {
        let wanted = self.told.pop_front().unwrap_or_default();
        let broken = self
            .m
            .is("cut_fault_valid")
            .then(|| (self.m.get("cut_fault_q") as u32, self.m.get("cut_fault_status") as u32));
        let told = Told {
            broken,
            list: self.m.is("ev_list"),
            repeat: self.m.is("ev_repeat"),
            refused: self.m.is("ev_refused"),
            credit: self.m.is("ev_credit"),
        };
        assert_eq!(told, wanted, "clock {}", self.cycle);
        self.broken.extend(broken);
        let held = self.m.is("ev_held");
        for (count, is) in [
            (&mut self.counts.lists, told.list),
            (&mut self.counts.repeats, told.repeat),
            (&mut self.counts.refused, told.refused),
            (&mut self.counts.credits, told.credit),
            (&mut self.counts.held, held),
        ] {
            *count += u32::from(is);
        }
        if held {
            self.moved = self.cycle;
        }
    }

    /// A piece is the model's next one. Gives its QP.
    fn check_piece(&mut self) -> u32 {
        let q = self.m.get("piece_q") as u32;
        let m = &mut self.m;
        let (len, end) = (m.get("piece_data.len") as u32, m.get("piece_data.sum") as u32);
        let (credit, elem) = (m.get("piece_data.credit") as u8, m.get("piece_data.elem") as usize);
        let (place, kind, ctxs) = (m.get("piece_data.place"), m.get("piece_data.kind"), m.get("piece_ctxs"));
        let [ends, push, inline] = ["piece_data.ends", "piece_data.push", "piece_data.inlined"].map(|name| m.is(name));
        let idx = self.m.get("piece_idx") as u8;
        let qp = self.qps.get_mut(&q).expect("a QP");
        assert!(qp.room(), "QP {q}: more than {AHEAD} pieces ahead");
        let number = qp.reader.next_out();
        let Some((wanted, out)) = qp.next(false) else { panic!("QP {q}: a piece that may not be") };
        let of = qp.elems[qp.done];
        let (wanted_len, offset, last) = match out {
            Out::Piece(p) => (p.len, p.offset, p.last),
            Out::Write { .. } => (of.len, 0, true),
            _ => (0, 0, true),
        };
        let number = if matches!(out, Out::Write { .. }) || qp.peer == Peer::Foreign { 0 } else { number };
        let receives = (of.write.is_none() && !of.read) || of.imm;
        assert!(wanted != Kind::Data || self.m.is("piece_data.receives") == receives, "QP {q}: {of:?}");
        qp.bytes = qp.bytes.wrapping_add(wanted_len);
        assert_eq!((kind, len, end), (wanted as u64, wanted_len, qp.bytes), "QP {q}: {of:?}");
        assert_eq!((elem, place, ends), (qp.done & 0xffff, u64::from(offset % 64), last), "QP {q}: {of:?}");
        assert_eq!((push, inline, ctxs), (of.push, of.inline, of.ctxs.into()), "QP {q}: {of:?}");
        assert_eq!((credit, idx), (number as u8, qp.pieces % AHEAD), "QP {q}: {of:?}");
        self.pieces.push(Piece { q, elem: qp.done, kind: wanted, len, at: self.cycle });
        qp.pieces = qp.pieces.wrapping_add(1);
        if last {
            qp.done += 1;
            qp.open = false;
            (qp.since, qp.bound) = (None, None);
        }
        q
    }

    /// The engine has taken a beat of a list.
    fn take(&mut self, beat: Beat) {
        self.moved = self.cycle;
        match beat {
            Beat::Begin { q, first, n } => {
                assert!(self.fill.is_none(), "a list begins while sizes of another one come");
                let qp = self.qps.get_mut(&q).expect("a QP");
                let (verdict, skip) = qp.reader.list_begin(first, n.into());
                let taken = verdict == LIST_OK;
                let refused = !taken && verdict != LIST_REPEAT;
                let broken = (refused && verdict != LIST_GAP).then_some((q, verdict));
                if taken {
                    qp.end = first.wrapping_add(n.into());
                    self.credited = Some(q);
                }
                self.fill = taken.then_some(Fill { q, left: n, skip, empty: false });
                assert!(self.told.is_empty());
                let told = Told { broken, repeat: verdict == LIST_REPEAT, refused, ..Told::default() };
                self.told.extend([Told::default(), told]);
            }
            Beat::Size(size) => {
                assert_eq!(self.m.is("list_over"), self.fill.is_none(), "whether more sizes are wanted");
                let Some(fill) = self.fill.as_mut() else {
                    // What is left of the list does not come.
                    while matches!(self.beats.front(), Some(Beat::Size(_))) {
                        self.beats.pop_front();
                    }
                    return;
                };
                let qp = self.qps.get_mut(&fill.q).expect("a QP");
                let credit = fill.skip == 0;
                fill.skip = fill.skip.saturating_sub(1);
                fill.left -= 1;
                if credit {
                    assert!(qp.reader.list_push(size));
                    fill.empty |= qp.mode == Mode::Stream && size == 0;
                }
                let mut told = Told { credit, ..Told::default() };
                if fill.left == 0 {
                    (told.list, told.refused) = (!fill.empty, fill.empty);
                    told.broken = fill.empty.then_some((fill.q, LIST_BAD));
                    self.fill = None;
                }
                // The verdict is told before the first size can come.
                assert!(self.told.is_empty());
                self.told.push_back(told);
            }
        }
    }
}
