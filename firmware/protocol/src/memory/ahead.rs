// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory of receives is asked for ahead of what is consumed (PC-3; docs/internals/receiving.md, "A bound of granted
//! memory"): golden model of `berth_fp_grant`, of a connection whose receives are one chunk each and whose credits are
//! not taken back.
//!
//! [`Ahead`] is told of receives, of the host's answers, of lists that have left and of their proofs. What follows is done
//! a step at a time, in any order: [`Ahead::ask`] asks for one more receive, [`Ahead::advance`] passes on the oldest one
//! that is held. [`Ahead::take`] gives what the list builder is told. Time is in units that are the user's.

use crate::base::fifo::Fifo;
use crate::base::shortest::Shortest;
use core::num::NonZeroU64;

/// Bytes of a page, in which bounds are.
const PAGE: u64 = 4096;
/// A bound that is so large is one of whole blocks of it.
const BLOCK: u64 = 1 << 16;
/// Units until the host has pages back and their successors are known.
const LATE: u32 = 7;
/// Units of lists, requests and answers: the cards' own part of round trip and service.
const CARDS: u32 = 512 / 64;
/// Units after which a burst of requests is over.
const BURST: u32 = 64;
/// In a burst so many times the wire's rate are asked for.
const PACE: u64 = 8;

/// What the list builder is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Post {
    /// Size of a receive that is a credit now.
    pub size: Option<u32>,
    /// What is granted may be announced.
    pub commit: bool,
    /// An adaptive trigger is the first buffer.
    pub early: bool,
}

/// A receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Receive {
    size: u32,
    last: bool,
    held: bool,
    /// It could not be had, and completes in its turn.
    refused: bool,
    missed: bool,
    asked_at: u32,
}

/// What the receives of one connection may hold: `RECVS` of them at a time, `WINDOW` asked for and not passed on. Receives
/// are numbered from 0, in their order. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ahead<const RECVS: usize, const WINDOW: usize> {
    /// Bytes that the wire carries in a unit.
    rate: NonZeroU64,
    /// Both in pages.
    limit: u64,
    most: u64,
    /// Those that are not complete.
    recvs: Fifo<Receive, RECVS>,
    asked: u32,
    posted: u32,
    freed: u32,
    /// Bytes asked for and not back; asked for and not announced; of the last list without its proof; of that whose data
    /// come, and when they began to.
    out: u64,
    fresh: u64,
    newest: u64,
    older: u64,
    since: u32,
    /// Bytes of the list that is being asked for. The one before is asked for as a whole, up to this receive.
    part: u64,
    closed: Option<u32>,
    /// It is in hand, and the one before it has not left.
    whole: bool,
    waiting: bool,
    open: bool,
    limited: bool,
    /// No page was missing.
    warm: bool,
    /// Bytes asked for since then.
    pace: u64,
    burst: u32,
    /// Shortest round trip, as the builder tells it.
    round: u32,
    service: Shortest,
    /// So many times two receives hold what one has room for.
    hollow: u32,
    ask_due: bool,
    advance_due: bool,
    later: bool,
    posts: Fifo<Post, RECVS>,
}

/// What passing a receive on goes by: as it was before the event.
#[derive(Clone, Copy)]
struct Before {
    whole: bool,
    paced: bool,
    stays: bool,
}

impl<const RECVS: usize, const WINDOW: usize> Ahead<RECVS, WINDOW> {
    /// Nothing is posted. `limit` pages may be held (0: any number), and up to `most` more, as the wire needs them, which
    /// carries `rate` bytes in a unit.
    pub fn new(rate: NonZeroU64, limit: u16, most: u16) -> Self {
        Self {
            rate,
            limit: limit.into(),
            most: most.into(),
            recvs: Fifo::new(),
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
            service: Shortest::default(),
            hollow: 0,
            ask_due: false,
            advance_due: false,
            later: false,
            posts: Fifo::new(),
        }
    }

    fn get(&self, number: u32) -> Receive {
        self.recvs.get(number.wrapping_sub(self.freed) as usize).copied().unwrap_or_default()
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut Receive)) {
        if let Some(recv) = self.recvs.get_mut(number.wrapping_sub(self.freed) as usize) {
            change(recv);
        }
    }

    /// Number of the next receive that is posted.
    fn end(&self) -> u32 {
        self.freed.wrapping_add(self.recvs.len() as u32)
    }

    /// There is a second number, and pages were missing.
    fn paced(&self) -> bool {
        self.limit != 0 && self.most != 0 && !self.warm
    }

    fn before(&self) -> Before {
        Before { whole: self.whole, paced: self.paced(), stays: self.paced() && self.waiting }
    }

    fn window_is_full(&self) -> bool {
        self.asked.wrapping_sub(self.posted) >= WINDOW as u32
    }

    fn served_in(&self) -> u32 {
        self.service.get().unwrap_or(0)
    }

    /// Units in which two packets of 4 KiB pass.
    fn two_packets(&self) -> u32 {
        (2 * PAGE / self.rate) as u32
    }

    /// Bytes that may be held.
    pub fn bytes(&self) -> u64 {
        if self.most == 0 {
            return self.limit * PAGE;
        }
        let cards = CARDS.saturating_add(self.two_packets());
        let times = if self.round == 0 { 0 } else { self.round.saturating_add(self.served_in()).saturating_sub(cards) };
        // A sixteenth less than the wire carries in these times.
        let carried = (times as u64 * 15).saturating_mul(self.rate.get()) / 16;
        let bytes = (self.limit + (carried / PAGE).min(self.most)) * PAGE;
        if self.limit * PAGE >= BLOCK { bytes / BLOCK * BLOCK } else { bytes }
    }

    /// A list lasts until the data of the next one come, also where receives are not filled.
    fn list(&self) -> u64 {
        let units = self.round.saturating_add(CARDS / 2).saturating_add(self.two_packets());
        (units as u64).saturating_mul(self.rate.get()) << self.hollow
    }

    /// What will be left of the list whose data come when what is asked for now is there.
    fn to_come(&self, now: u32) -> u64 {
        let passed = now.wrapping_sub(self.since).wrapping_add(self.served_in()).saturating_sub(LATE).min(0xfff);
        let came = (passed as u64).saturating_mul(self.rate.get());
        self.older.saturating_sub(came - came / 32)
    }

    // ---- events --------------------------------------------------------------------------------

    /// A receive of `size` bytes is posted, the last of its batch or not. False when there is no room.
    pub fn post(&mut self, size: u32, last: bool) -> bool {
        let room = self.recvs.push(Receive { size, last, ..Receive::default() });
        self.ask_due |= room;
        room
    }

    /// All pages of a receive are there, and it holds them; or some are missing and the host is asked.
    pub fn answer(&mut self, number: u32, hit: bool) {
        let before = self.before();
        if hit {
            self.warm |= self.most != 0 && !self.get(number).missed;
            self.ask_due |= self.warm && self.limited;
            self.change(number, |recv| recv.held = true);
            if number == self.posted {
                self.pass_on(before);
            }
        } else {
            self.change(number, |recv| recv.missed = true);
            self.warm = false;
        }
    }

    /// The host cannot give a receive its pages.
    pub fn refuse(&mut self, number: u32) {
        let before = self.before();
        self.change(number, |recv| recv.refused = true);
        self.out = self.out.saturating_sub(self.get(number).size as u64);
        if number == self.posted {
            self.pass_on(before);
        }
    }

    /// The host has the pages of a receive.
    pub fn served(&mut self, number: u32, now: u32) {
        // A card keeps 16 bits of when it has asked.
        self.service.learn(now.wrapping_sub(self.get(number).asked_at) as u64 & 0xffff);
    }

    /// A list of so many bytes has left; `round`: shortest time from a list to its first data, 0 if it is not known.
    pub fn tell(&mut self, bytes: u32, round: u32, now: u32) {
        self.fresh = self.fresh.saturating_sub(bytes as u64);
        if self.newest != 0 {
            (self.older, self.since) = (self.newest, now);
        }
        self.newest = bytes as u64;
        let all = self.posted == self.asked && (self.limited || self.asked == self.end());
        if self.open && (self.whole || all) {
            if !self.whole {
                self.part = 0;
            }
            self.commit(None, self.paced());
        } else {
            self.waiting = false;
        }
        self.whole = false;
        self.round = round;
        (self.ask_due, self.advance_due) = (true, true);
    }

    /// The proof of the last list has come.
    pub fn prove(&mut self, now: u32) {
        (self.older, self.newest) = (self.newest, 0);
        (self.since, self.burst, self.pace) = (now, now, 0);
        self.ask_due = true;
    }

    /// The oldest receive is complete. So many times two of the last ones hold what one has room for.
    pub fn complete(&mut self, hollow: u32) {
        self.hollow = hollow.min(u8::BITS);
        let size = self.get(self.freed).size;
        self.out = self.out.saturating_sub(size as u64);
        self.free();
        self.advance_due = true;
    }

    fn free(&mut self) {
        if self.recvs.pop().is_some() {
            self.freed = self.freed.wrapping_add(1);
        }
    }

    // ---- what follows --------------------------------------------------------------------------

    fn commit(&mut self, size: Option<u32>, early: bool) {
        self.posts.push(Post { size, commit: true, early });
        (self.open, self.whole) = (false, false);
        self.waiting = self.most != 0 && self.round != 0;
    }

    /// The oldest that is asked for and answered becomes a credit, or completes as it could not be had.
    fn pass_on(&mut self, before: Before) {
        let recv = self.get(self.posted);
        if self.posted == self.asked || !(recv.refused || (recv.held && !before.whole)) {
            return;
        }
        let window_was_full = self.window_is_full();
        if recv.refused {
            self.complete_refused(recv, window_was_full);
            return;
        }
        self.posted = self.posted.wrapping_add(1);
        let (ends, none) = (self.closed == Some(self.posted), self.posted == self.asked);
        let over = recv.last && (!before.paced || self.asked == self.end());
        let size = Some(recv.size);
        if !before.stays && (over || ends || (self.limited && none)) {
            self.commit(size, before.paced);
            if none {
                self.part = 0;
            }
        } else {
            self.posts.push(Post { size, commit: false, early: before.paced });
            self.open = true;
            self.whole = ends && before.stays;
        }
        if ends {
            self.closed = None;
        }
        let next = self.get(self.posted);
        self.advance_due |= self.posted != self.asked && (next.held || next.refused);
        self.ask_due |= ends || window_was_full;
    }

    /// The oldest could not be had: what is granted before it is announced, and when all of that is complete, so is it.
    fn complete_refused(&mut self, recv: Receive, window_was_full: bool) {
        if self.freed != self.posted {
            if self.open {
                self.commit(None, self.paced());
            }
            return;
        }
        self.posted = self.posted.wrapping_add(1);
        self.free();
        self.fresh = self.fresh.saturating_sub(recv.size as u64);
        let ends = self.closed == Some(self.posted);
        if self.closed.is_none() {
            self.part = self.part.saturating_sub(recv.size as u64);
        } else if ends {
            self.closed = None;
        }
        self.advance_due = true;
        self.ask_due |= ends || window_was_full;
    }

    /// Asks for one more receive, if there is one and the bound lets it.
    pub fn ask(&mut self, now: u32) {
        if !core::mem::take(&mut self.ask_due) {
            self.later = false;
        }
        if self.asked == self.end() || self.window_is_full() {
            return;
        }
        let (size, bound, paced) = (self.get(self.asked).size as u64, self.bytes(), self.paced());
        let stays = paced && self.waiting;
        let (ahead, to_come) = (self.fresh + size + self.newest, self.to_come(now));
        let all = self.out + size;
        let will_hold = if self.round == 0 { all } else { all.min(ahead + to_come) };
        let lasts = self.round != 0 && self.part >= self.list();
        let too_long = paced && self.part != 0 && (self.part + size > bound / 2 || lasts);
        let too_much = if paced { will_hold > bound } else { self.out >= self.limit * PAGE };
        let since = now.wrapping_sub(self.burst);
        let allowed = (since as u64 * PACE).saturating_mul(self.rate.get());
        let too_soon = paced && self.round != 0 && since < BURST && self.pace > allowed;
        let next_waits = too_long && self.closed.is_some();
        let bounded = self.limit != 0 && !self.warm && self.asked != self.freed;
        if bounded && (next_waits || too_much || too_soon) {
            self.later = !next_waits && paced && (too_soon || to_come != 0) && ahead <= bound;
            self.limited = !self.later;
            if self.limited && self.open && !stays && self.posted == self.asked {
                self.part = 0;
                self.commit(None, paced);
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
                self.commit(None, paced);
            }
        }
        self.out = all;
        self.fresh += size;
        self.part += size;
        self.pace = if since < BURST { self.pace + size } else { size };
        if since >= BURST {
            self.burst = now;
        }
        self.change(self.asked, |recv| recv.asked_at = now);
        self.asked = self.asked.wrapping_add(1);
        self.ask_due = true;
    }

    /// Passes on the oldest receive that is held.
    pub fn advance(&mut self) {
        self.advance_due = false;
        let before = self.before();
        self.ask_due |= self.limited;
        self.pass_on(before);
    }

    /// Whether [`Ahead::ask`] and [`Ahead::advance`] have something to do.
    pub const fn due(&self) -> (bool, bool) {
        (self.ask_due, self.advance_due)
    }

    /// [`Ahead::ask`] has something to do when time has passed.
    pub const fn later(&self) -> bool {
        self.later
    }

    /// What the list builder is told next. Take all of it after each step.
    pub fn take(&mut self) -> Option<Post> {
        self.posts.pop()
    }

    /// Receives that were asked for so far, and those that were passed on.
    pub const fn numbers(&self) -> (u32, u32) {
        (self.asked, self.posted)
    }

    /// Bytes asked for and not back.
    pub const fn out(&self) -> u64 {
        self.out
    }
}
