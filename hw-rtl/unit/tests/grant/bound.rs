// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much is asked for ahead (docs/internals/receiving.md, "A bound of granted memory"): a model of one QP whose receives are one
//! chunk each, without going back. Time is in units of 64 clocks, as the port `now`.

use super::Post;

/// A bound that is so large is one of whole blocks of 64 KiB.
const BLOCK: u64 = 1 << 16;
/// Units until the host has pages back and their successors are known.
const LATE: u32 = 7;
/// Lists, requests and answers: the cards' own part of round trip and service.
const CARDS: u32 = 512 / 64;

/// A receive.
#[derive(Clone, Debug, PartialEq)]
struct Recv {
    size: u64,
    last: bool,
    held: bool,
    /// It could not be had, and completes in its turn.
    refused: bool,
    missed: bool,
    asked_at: u32,
}

/// The model.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Bytes that the wire carries in a unit.
    unit: u64,
    /// Both in 4 KiB, as the row has them.
    limit: u64,
    most: u64,
    recvs: Vec<Recv>,
    /// How many were asked for, are posted, are complete.
    pub asked: usize,
    pub posted: usize,
    freed: usize,
    /// Bytes asked for and not back; asked for and not announced; of the last list without its proof; of that whose data
    /// come.
    pub out: u64,
    fresh: u64,
    newest: u64,
    older: u64,
    /// When they began to come.
    since: u32,
    /// Bytes of the list that is being asked for. The one before is asked for as a whole, up to this receive.
    part: u64,
    closed: Option<usize>,
    /// It is in hand, and the one before it has not left.
    whole: bool,
    waiting: bool,
    open: bool,
    limited: bool,
    warm: bool,
    /// Bytes asked for since then.
    pace: u64,
    burst: u32,
    /// Shortest round trip; shortest service, in 2048ths, which ages by one 2048th each time.
    round: u32,
    serve: u32,
    /// So many times two receives hold what one has room for.
    hollow: u32,
    ask_due: bool,
    advance_due: bool,
    later: bool,
    pub posts: Vec<Post>,
}

impl Bound {
    pub fn new(width: u32, limit: u16, most: u16) -> Self {
        Self {
            unit: u64::from(width) / 8 * 64,
            limit: limit.into(),
            most: most.into(),
            recvs: Vec::new(),
            asked: 0,
            posted: 0,
            freed: 0,
            out: 0,
            fresh: 0,
            newest: 0,
            older: 0,
            since: 0,
            part: 0,
            closed: None,
            whole: false,
            waiting: false,
            open: false,
            limited: false,
            warm: false,
            pace: 0,
            burst: 0,
            round: 0,
            serve: 0,
            hollow: 0,
            ask_due: false,
            advance_due: false,
            later: false,
            posts: Vec::new(),
        }
    }

    /// There is a second number, and pages were missing.
    fn paced(&self) -> bool {
        self.limit != 0 && self.most != 0 && !self.warm
    }

    /// Units in which two packets of 4 KiB pass.
    fn two_packets(&self) -> u32 {
        (2 * 4096 / self.unit) as u32
    }

    /// Bytes that may be held.
    pub fn bytes(&self) -> u64 {
        if self.most == 0 {
            return self.limit * 4096;
        }
        let cards = CARDS + self.two_packets();
        let times = if self.round == 0 { 0 } else { (self.round + self.serve / 2048).saturating_sub(cards) };
        // A sixteenth less than the wire carries in these times.
        let grown = (u64::from(times) * 15 * self.unit / 16 / 4096).min(self.most);
        let bytes = (self.limit + grown) * 4096;
        if self.limit * 4096 >= BLOCK { bytes / BLOCK * BLOCK } else { bytes }
    }

    /// A list lasts until the data of the next one come, also where receives are not filled.
    fn list(&self) -> u64 {
        u64::from(self.round + CARDS / 2 + self.two_packets()) * self.unit << self.hollow
    }

    /// What will be left of the list whose data come when what is asked for now is there.
    fn to_come(&self, now: u32) -> u64 {
        let passed = now.wrapping_sub(self.since).wrapping_add(self.serve / 2048).saturating_sub(LATE).min(0xfff);
        let came = u64::from(passed) * self.unit;
        self.older.saturating_sub(came - came / 32)
    }

    // ---- events --------------------------------------------------------------------------------

    pub fn post(&mut self, size: u32, last: bool) {
        self.recvs.push(Recv { size: size.into(), last, held: false, refused: false, missed: false, asked_at: 0 });
        self.ask_due = true;
    }

    /// The table has a receive, or the host is asked.
    pub fn answer(&mut self, recv: usize, hit: bool) {
        let before = self.clone();
        if hit {
            self.warm |= self.most != 0 && !self.recvs[recv].missed;
            self.ask_due |= self.warm && self.limited;
            self.recvs[recv].held = true;
            if recv == self.posted {
                self.pass_on(&before);
            }
        } else {
            self.recvs[recv].missed = true;
            self.warm = false;
        }
    }

    /// The host has none for it.
    pub fn refuse(&mut self, recv: usize) {
        let before = self.clone();
        self.recvs[recv].refused = true;
        self.out -= self.recvs[recv].size;
        if recv == self.posted {
            self.pass_on(&before);
        }
    }

    /// The host has pages.
    pub fn served(&mut self, recv: usize, now: u32) {
        let served = u32::from(now.wrapping_sub(self.recvs[recv].asked_at) as u16) << 11;
        let aged = self.serve + self.serve / 2048;
        self.serve = if self.serve == 0 { served } else { served.min(aged) };
    }

    pub fn tell(&mut self, bytes: u32, round: u32, now: u32) {
        self.fresh = self.fresh.saturating_sub(bytes.into());
        if self.newest != 0 {
            (self.older, self.since) = (self.newest, now);
        }
        self.newest = bytes.into();
        let all = self.posted == self.asked && (self.limited || self.asked == self.recvs.len());
        if self.open && (self.whole || all) {
            if !self.whole {
                self.part = 0;
            }
            self.commit(None);
        } else {
            self.waiting = false;
        }
        self.whole = false;
        self.round = round;
        (self.ask_due, self.advance_due) = (true, true);
    }

    pub fn prove(&mut self, now: u32) {
        (self.older, self.newest) = (self.newest, 0);
        (self.since, self.burst, self.pace) = (now, now, 0);
        self.ask_due = true;
    }

    /// The oldest is complete; how full the last ones were.
    pub fn complete(&mut self, hollow: u32) {
        self.hollow = hollow;
        self.out -= self.recvs[self.freed].size;
        self.freed += 1;
        self.advance_due = true;
    }

    // ---- what follows --------------------------------------------------------------------------

    fn commit(&mut self, size: Option<u32>) {
        self.posts.push(Post { size, commit: true, early: self.paced() });
        (self.open, self.whole) = (false, false);
        self.waiting = self.most != 0 && self.round != 0;
    }

    /// The oldest that is asked for and held becomes a credit, or completes as it could not be had; decided by how things
    /// were `before`.
    fn pass_on(&mut self, before: &Self) {
        let answered = |r: &&Recv| r.refused || (r.held && !before.whole);
        let Some(recv) = self.recvs[..self.asked].get(self.posted).filter(answered).cloned() else {
            return;
        };
        let (paced, stays) = (before.paced(), before.paced() && before.waiting);
        let window_was_full = self.asked - self.posted == 16;
        if recv.refused {
            self.complete_refused(&recv, window_was_full);
            return;
        }
        self.posted += 1;
        let (ends, none) = (self.closed == Some(self.posted), self.posted == self.asked);
        let over = recv.last && (!paced || self.asked == self.recvs.len());
        let commit = !stays && (over || ends || (self.limited && none));
        let size = Some(recv.size as u32);
        if commit {
            self.commit(size);
            let post = self.posts.last_mut().expect("it was posted");
            post.early = paced;
            if none {
                self.part = 0;
            }
        } else {
            self.posts.push(Post { size, commit: false, early: paced });
            self.open = true;
            self.whole = ends && stays;
        }
        if ends {
            self.closed = None;
        }
        self.advance_due |= self.recvs[..self.asked].get(self.posted).is_some_and(|r| r.held || r.refused);
        self.ask_due |= ends || window_was_full;
    }

    /// The oldest could not be had: what is granted before it is announced, and when all of that is complete, so is it.
    fn complete_refused(&mut self, recv: &Recv, window_was_full: bool) {
        if self.freed != self.posted {
            if self.open {
                self.commit(None);
            }
            return;
        }
        self.posted += 1;
        self.freed += 1;
        self.fresh -= recv.size;
        let ends = self.closed == Some(self.posted);
        if self.closed.is_none() {
            self.part = self.part.saturating_sub(recv.size);
        } else if ends {
            self.closed = None;
        }
        self.advance_due = true;
        self.ask_due |= ends || window_was_full;
    }

    fn ask(&mut self, now: u32) {
        if self.asked == self.recvs.len() || self.asked - self.posted == 16 {
            return;
        }
        let (size, bound, paced) = (self.recvs[self.asked].size, self.bytes(), self.paced());
        let stays = paced && self.waiting;
        let (ahead, to_come) = (self.fresh + size + self.newest, self.to_come(now));
        let all = self.out + size;
        let will_hold = if self.round == 0 { all } else { all.min(ahead + to_come) };
        let lasts = self.round != 0 && self.part >= self.list();
        let too_long = paced && self.part != 0 && (self.part + size > bound / 2 || lasts);
        let too_much = if paced { will_hold > bound } else { self.out >= self.limit * 4096 };
        let since = now.wrapping_sub(self.burst);
        let too_soon = paced && self.round != 0 && since < 64 && self.pace > u64::from(since) * 8 * self.unit;
        let next_waits = too_long && self.closed.is_some();
        let bounded = self.limit != 0 && !self.warm && self.asked != self.freed;
        if bounded && (next_waits || too_much || too_soon) {
            self.later = !next_waits && paced && (too_soon || to_come != 0) && ahead <= bound;
            self.limited = !self.later;
            if self.limited && self.open && !stays && self.posted == self.asked {
                self.part = 0;
                self.commit(None);
            }
            return;
        }
        self.limited = false;
        if too_long && self.closed.is_none() {
            self.part = 0;
            if self.posted != self.asked {
                self.closed = Some(self.asked);
            } else if self.open && stays {
                self.whole = true;
            } else if self.open {
                self.commit(None);
            }
        }
        self.out += size;
        self.fresh += size;
        self.part += size;
        self.pace = if since < 64 { self.pace + size } else { size };
        if since >= 64 {
            self.burst = now;
        }
        self.recvs[self.asked].asked_at = now;
        self.asked += 1;
        self.ask_due = true;
    }

    /// What it may be when all that can be done is done: asking and passing on take turns, but passing on is before asking
    /// `ahead` times, as often as it was due when asking was not yet.
    pub fn rests(&self, now: u32) -> [Self; 3] {
        [0, 1, 2].map(|ahead| self.clone().rest(now, ahead))
    }

    fn rest(mut self, now: u32, mut ahead: u32) -> Self {
        loop {
            if self.advance_due && (ahead > 0 || !self.ask_due) {
                self.advance_due = false;
                ahead = ahead.saturating_sub(1);
                let before = self.clone();
                self.ask_due |= before.limited;
                self.pass_on(&before);
            } else if self.ask_due || std::mem::take(&mut self.later) {
                self.ask_due = false;
                ahead = 1;
                self.ask(now);
                if self.later && !self.ask_due && !self.advance_due {
                    return self;
                }
            } else {
                return self;
            }
        }
    }
}
