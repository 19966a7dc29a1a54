// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives on their way to credits and to completion (PC-1, VC-9; decisions 5, 10, 17, 19, 20).
//!
//! A receive is pinned when it is *granted*, and only then becomes a credit; it is unpinned when it has been filled. So
//! data for a credit never meets a page fault. [`Receives`] is told of posted receives, the host's answers and arriving
//! data; [`Receives::poll`] gives requests to the host, credits for the builder, and completions, all in posting order.

use super::blocks::{BlockError, Outcome};
use super::context::Span;
use super::pins::Usage;
use crate::base::bound::at_most;
use crate::base::fifo::Fifo;
use crate::base::rule::{self, Rule};

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Filled with so many bytes.
    Filled(u32),
    /// Never announced: its memory could not be had.
    Failed(BlockError),
    /// Its memory was taken away while it was a credit.
    Withdrawn,
    /// The connection ended first.
    Flushed,
    /// It was given back.
    Recalled,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Bring receive `tag` in and pin it for writing, as [`Usage::Lasting`]; then [`Receives::answer`].
    Pin {
        /// Number of the receive.
        tag: u16,
    },
    /// Unpin receive `tag`.
    Release {
        /// Number of the receive.
        tag: u16,
    },
    /// The request that was answered with [`Outcome::Waits`] is not wanted any more: answer [`Outcome::Gone`] when it
    /// is out of the line, or its other outcome.
    Cancel {
        /// Number of the receive.
        tag: u16,
    },
    /// Post a credit of `size` bytes to the builder: it gets number `credit`.
    Post {
        /// Number of the credit.
        credit: u32,
        /// Bytes.
        size: u32,
    },
    /// Commit the credits posted to the builder (decision 5).
    Commit,
    /// The oldest receive is complete.
    Complete {
        /// Number of the receive, free again.
        tag: u16,
        /// How it ended.
        status: Status,
    },
}

/// Why data for a credit cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No such credit is outstanding (invariant 1).
    NoCredit,
    /// It would exceed the credit's size.
    TooLong,
    /// The memory was withdrawn: the connection is in error (decision 17).
    Withdrawn,
}

/// Why a receive was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PostError {
    /// No room now.
    Full,
    /// An address would exceed 64 bits, or the receive 2^31 − 1 bytes.
    BadRange,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// To be asked for.
    #[default]
    New,
    /// The host is at work.
    Asked,
    /// The host has no budget now.
    Waiting,
    /// Pinned; no credit yet.
    Ready,
    /// Pinned, and a credit.
    Posted,
    /// All its data has come.
    Done,
    /// It needs no memory, or cannot have it.
    Local,
    /// The host is at work, in vain: then as `New`.
    Unwanted,
    /// Waits at the host, in vain.
    Unqueue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Receive {
    tag: u16,
    spans: u8,
    size: u32,
    /// Last of its batch.
    last: bool,
    state: State,
    /// Number of the credit, if it is one.
    credit: u32,
    committed: bool,
    /// Data has come for it.
    begun: bool,
    filled: u32,
    /// DMA under way into it.
    flying: u16,
    /// Its pages are held at the host.
    held: bool,
    withdrawn: bool,
    /// It goes back to the program as it is.
    canceled: bool,
    error: Option<BlockError>,
}

/// The receives of one connection: `RECVS` of them with `SPANS` ranges at a time. Credits are
/// numbered modulo 2^`BITS`, as the builder does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receives<const RECVS: usize, const SPANS: usize, const BITS: u32 = 32> {
    list: Fifo<Receive, RECVS>,
    spans: Fifo<Span, SPANS>,
    next_credit: u32,
    connected: bool,
    closed: bool,
    /// Zero-length receives become credits of size 0 (message mode, decision 10).
    empty_credits: bool,
    recalling: bool,
}

impl<const RECVS: usize, const SPANS: usize, const BITS: u32> Receives<RECVS, SPANS, BITS> {
    const MASK: u32 = if BITS >= 32 { u32::MAX } else { (1 << BITS) - 1 };

    /// Nothing posted, not connected. In message mode zero-length receives become credits; in
    /// stream mode they complete locally (decision 10).
    pub fn new(message_mode: bool) -> Self {
        Self {
            list: Fifo::new(),
            spans: Fifo::new(),
            next_credit: 0,
            connected: false,
            closed: false,
            empty_credits: message_mode,
            recalling: false,
        }
    }

    /// The connection is there; nothing was pinned before.
    pub fn connect(&mut self) {
        self.connected = true;
    }

    /// The application posts a receive into `spans`. Gives its number, which comes back at completion.
    ///
    /// # Errors
    /// [`PostError`]; then nothing was taken.
    pub fn post(&mut self, spans: &[Span]) -> Result<u16, PostError> {
        let spans = spans.iter().filter(|s| s.len > 0);
        let count = spans.clone().fold(0_usize, |n, _| n.wrapping_add(1));
        let size = spans.clone().fold(0u64, |sum, s| sum.saturating_add(s.len as u64));
        if size > 0x7fff_ffff || spans.clone().any(|s| s.va.checked_add(s.len as u64).is_none()) {
            return Err(PostError::BadRange);
        }
        let used = |tag: u16| self.list.as_slice().iter().any(|r| r.tag == tag);
        let tag = (0..RECVS as u16).find(|tag| !used(*tag)).ok_or(PostError::Full)?;
        if count > (SPANS - self.spans.len()).min(u8::MAX as usize) || self.closed {
            return Err(PostError::Full);
        }
        for s in at_most(SPANS, spans) {
            self.spans.push(*s);
        }
        let local = count == 0 && !self.empty_credits;
        let state = match count {
            0 if local => State::Local,
            0 => State::Ready,
            _ => State::New,
        };
        self.list.push(Receive { tag, spans: count as u8, size: size as u32, state, ..Receive::default() });
        Ok(tag)
    }

    /// The doorbell: receives posted since the last one are a batch, announced together (decision 5).
    pub fn ring(&mut self) {
        if let Some(r) = self.list.as_mut_slice().last_mut() {
            r.last = true;
        }
    }

    /// What to do next; call until `None`.
    pub fn poll(&mut self) -> Option<Action> {
        if let Some(action) = self.complete() {
            return Some(action);
        }
        if let Some(action) = self.let_go() {
            return Some(action);
        }
        if !self.connected || self.closed {
            return None;
        }
        if let Some(action) = self.advance() {
            return Some(action);
        }
        self.ask()
    }

    /// The host's answer for receive `tag`. False when none was awaited.
    pub fn answer(&mut self, tag: u16, outcome: Outcome) -> bool {
        let closed = self.closed;
        let Some(i) = self.list.position(|r| r.tag == tag) else {
            return false;
        };
        let Some(r) = self.list.get_mut(i) else {
            return false;
        };
        match (r.state, outcome) {
            (State::Asked | State::Waiting, Outcome::Held) => (r.state, r.held) = (State::Ready, true),
            (State::Asked | State::Waiting, Outcome::Waits) => {
                r.state = State::Waiting;
                self.squeeze(i);
            }
            (State::Unwanted | State::Unqueue, Outcome::Held) => (r.state, r.held) = (State::New, true),
            (State::Unwanted | State::Unqueue, Outcome::Waits) => r.state = State::Unqueue,
            (State::Asked | State::Waiting | State::Unwanted | State::Unqueue, Outcome::Gone) => r.state = State::New,
            (State::Asked | State::Waiting | State::Unwanted | State::Unqueue, Outcome::Failed(error)) => {
                (r.state, r.error) = (State::Local, Some(error));
            }
            _ => return false,
        }
        if let Some(r) = self.list.get_mut(i)
            && (closed || r.canceled)
            && r.state != State::Unqueue
        {
            r.state = State::Local;
        }
        true
    }

    /// The first packet of the piece for `credit` was accepted, in order: it is the oldest credit
    /// that no data has come for.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn begin(&mut self, credit: u32) -> Result<(), Refusal> {
        let mut unused = self.list.as_mut_slice().iter_mut().filter(|r| r.state == State::Posted && !r.begun);
        let r = unused.next().filter(|r| r.credit == credit).ok_or(Refusal::NoCredit)?;
        if !rule::holds(Rule::WithdrawnIsRefused, !r.withdrawn) {
            return Err(Refusal::Withdrawn);
        }
        r.begun = true;
        Ok(())
    }

    /// `len` bytes at `offset` of the piece for `credit` are to be written by DMA, to
    /// [`Receives::spans`]; number of the receive, for [`Receives::written`]. Data may come before
    /// its piece has begun in order (selective repeat).
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn write(&mut self, credit: u32, offset: u32, len: u32) -> Result<u16, Refusal> {
        let mut posted = self.list.as_mut_slice().iter_mut().filter(|r| r.state == State::Posted);
        let r = posted.find(|r| r.credit == credit).ok_or(Refusal::NoCredit)?;
        if offset.checked_add(len).is_none_or(|end| end > r.size) {
            return Err(Refusal::TooLong);
        }
        if !rule::holds(Rule::WithdrawnIsRefused, !r.withdrawn) {
            return Err(Refusal::Withdrawn);
        }
        r.flying = r.flying.saturating_add(1);
        Ok(r.tag)
    }

    /// Such a write has ended. False when none was under way.
    pub fn written(&mut self, tag: u16) -> bool {
        match self.list.as_mut_slice().iter_mut().find(|r| r.tag == tag && r.flying > 0) {
            Some(r) => {
                r.flying -= 1;
                true
            }
            None => false,
        }
    }

    /// The piece for `credit` has come to its end with `bytes` bytes, and all data before it has.
    ///
    /// # Errors
    /// [`Refusal::NoCredit`] when it was not begun, [`Refusal::TooLong`].
    pub fn filled(&mut self, credit: u32, bytes: u32) -> Result<(), Refusal> {
        let mut begun = self.list.as_mut_slice().iter_mut().filter(|r| r.state == State::Posted && r.begun);
        let r = begun.next().filter(|r| r.credit == credit).ok_or(Refusal::NoCredit)?;
        if bytes > r.size {
            return Err(Refusal::TooLong);
        }
        (r.state, r.filled) = (State::Done, bytes);
        Ok(())
    }

    /// How many credits to ask back so that their receives free about `bytes`, newest first; at
    /// least one if there is any that no data has come for (decision 19). Until
    /// [`Receives::recalled`] no credit is posted.
    pub fn recall(&mut self, bytes: u64) -> u32 {
        let (mut n, mut sum) = (0, 0u64);
        let recallable = |r: &&Receive| r.state == State::Posted && !r.begun && r.flying == 0;
        for r in at_most(RECVS, self.list.as_slice().iter().rev().filter(recallable)) {
            if sum >= bytes && n > 0 {
                break;
            }
            sum = sum.saturating_add(r.size as u64);
            n += 1;
        }
        self.recalling |= n > 0;
        n
    }

    /// The answer to a recall: the peer keeps credits below number `first`, which the builder has
    /// voided from there on. Their receives are granted anew, in their turn. False when data has
    /// already begun for one of them.
    pub fn recalled(&mut self, first: u32) -> bool {
        let void = |r: &Receive| {
            let past = r.credit.wrapping_sub(first) & Self::MASK;
            r.state == State::Posted && past <= Self::MASK >> 1
        };
        if self.list.as_slice().iter().any(|r| void(r) && (r.begun || r.flying > 0)) {
            return false;
        }
        for r in at_most(RECVS, self.list.as_mut_slice().iter_mut().filter(|r| void(r))) {
            let state = if r.spans == 0 { State::Ready } else { State::New };
            (r.state, r.withdrawn, r.committed, r.credit) = (state, false, false, 0);
        }
        self.next_credit = first & Self::MASK;
        self.recalling = false;
        true
    }

    /// Receives that are no credits go back to the program: each completes in its turn as recalled, its memory untouched. Those
    /// posted later are granted as ever.
    pub fn cancel(&mut self) {
        for r in at_most(RECVS, self.list.as_mut_slice()) {
            r.state = match r.state {
                State::Posted | State::Done => continue,
                State::Asked | State::Unwanted => State::Unwanted,
                State::Waiting | State::Unqueue => State::Unqueue,
                State::New | State::Ready | State::Local => State::Local,
            };
            r.canceled = true;
        }
    }

    /// The pages in `va .. va + len` (whole ones) were taken from the card (VC-9). Receives that are no credits are
    /// asked for again; the others are withdrawn, and their number returned. Data for a withdrawn one is refused.
    pub fn withdrawn(&mut self, va: u64, len: u64) -> u32 {
        let end = va.saturating_add(len);
        let (mut count, mut at) = (0, 0);
        let (list, spans) = (&mut self.list, &self.spans);
        for r in at_most(RECVS, list.as_mut_slice()) {
            let own = spans.as_slice().iter().skip(at).take(r.spans as usize);
            at += r.spans as usize;
            let hit = own.into_iter().any(|s| s.va < end && va < s.va.saturating_add(s.len as u64));
            match r.state {
                State::Ready if hit => r.state = State::New,
                State::Posted if hit && !r.withdrawn => {
                    r.withdrawn = true;
                    count += 1;
                }
                _ => (),
            }
        }
        count
    }

    /// The connection is over: all memory is released, all receives complete.
    pub fn close(&mut self) {
        self.closed = true;
        for r in at_most(RECVS, self.list.as_mut_slice()) {
            r.state = match r.state {
                State::Asked | State::Unwanted => State::Unwanted,
                State::Waiting | State::Unqueue => State::Unqueue,
                State::Done => State::Done,
                _ => State::Local,
            };
        }
    }

    /// No receive is left.
    pub fn idle(&self) -> bool {
        self.list.is_empty()
    }

    /// Where receive `tag` lies.
    pub fn spans(&self, tag: u16) -> impl Iterator<Item = Span> + Clone + '_ {
        let place = self.list.position(|r| r.tag == tag);
        let first = self
            .list
            .as_slice()
            .iter()
            .take(place.unwrap_or(0))
            .fold(0, |n: usize, r| n.wrapping_add(r.spans as usize));
        let count = place.and_then(|i| self.list.get(i)).map_or(0, |r| r.spans as usize);
        self.spans.as_slice().iter().copied().skip(first).take(count)
    }

    /// Where `len` bytes at `offset` of receive `tag` lie.
    pub fn part(&self, tag: u16, offset: u32, len: u32) -> impl Iterator<Item = Span> + Clone + '_ {
        let (from, to) = (offset as u64, offset as u64 + len as u64);
        self.spans(tag)
            .scan(0u64, move |at, s| {
                let start = *at;
                *at += s.len as u64;
                Some((start, s))
            })
            .filter_map(move |(start, s)| {
                let (a, b) = (from.max(start), to.min(start + s.len as u64));
                (a < b).then(|| Span { va: s.va.wrapping_add(a - start), len: (b - a) as u32 })
            })
    }

    /// Credits that no data has come for, and their bytes.
    pub fn unused(&self) -> (u32, u64) {
        let unused = self.list.as_slice().iter().filter(|r| r.state == State::Posted && !r.begun);
        unused.fold((0, 0), |(n, sum), r| (n + 1, sum + r.size as u64))
    }

    /// A receive waits for budget, and none is a credit: nothing can come that would free memory.
    pub fn starved(&self) -> bool {
        let list = self.list.as_slice();
        list.iter().any(|r| r.state == State::Waiting) && !list.iter().any(|r| r.state == State::Posted)
    }

    /// The request for receive `tag` is of this kind.
    pub const USAGE: Usage = Usage::Lasting;

    /// Completes the oldest receive if it is over and holds nothing.
    fn complete(&mut self) -> Option<Action> {
        let r = *self.list.get(0)?;
        if !rule::holds(Rule::ReleasedBeforeComplete, !r.held) || r.flying > 0 {
            return None;
        }
        let status = match (r.state, r.error) {
            (State::Done, _) => Status::Filled(r.filled),
            (State::Local, _) if r.withdrawn => Status::Withdrawn,
            (State::Local, _) if r.canceled => Status::Recalled,
            (State::Local, Some(error)) => Status::Failed(error),
            (State::Local, None) if self.closed && (r.size > 0 || self.empty_credits) => Status::Flushed,
            (State::Local, None) => Status::Filled(0),
            _ => return None,
        };
        self.list.pop();
        for _ in at_most(SPANS, 0..r.spans) {
            self.spans.pop();
        }
        Some(Action::Complete { tag: r.tag, status })
    }

    /// Releases memory that is not needed and not being written.
    fn let_go(&mut self) -> Option<Action> {
        for r in at_most(RECVS, self.list.as_mut_slice()) {
            let over = matches!(r.state, State::New | State::Done | State::Local) || r.withdrawn;
            if r.held && over && rule::holds(Rule::ReleaseWhenSent, r.flying == 0) {
                r.held = false;
                return Some(Action::Release { tag: r.tag });
            }
            if r.state == State::Unqueue {
                r.state = State::Unwanted;
                return Some(Action::Cancel { tag: r.tag });
            }
        }
        None
    }

    /// Turns granted receives into credits, in order, and commits them when the batch is complete
    /// or cannot get further for now.
    fn advance(&mut self) -> Option<Action> {
        if self.recalling {
            return None;
        }
        let full = self.list.is_full() || self.spans.is_full();
        let next = self.next_credit;
        // A credit is not committed, and a batch has ended since.
        let (mut open, mut due) = (false, false);
        let mut end = true;
        for r in at_most(RECVS, self.list.as_mut_slice()) {
            match r.state {
                State::Posted => open |= !r.committed,
                State::Done | State::Local => (),
                State::Ready if !due => {
                    (r.state, r.credit) = (State::Posted, next);
                    self.next_credit = next.wrapping_add(1) & Self::MASK;
                    return Some(Action::Post { credit: next, size: r.size });
                }
                state => {
                    due |= open && state == State::Waiting;
                    end = false;
                    break;
                }
            }
            due |= open && r.last;
        }
        if !(due || open && end && full) {
            return None;
        }
        for r in at_most(RECVS, self.list.as_mut_slice()) {
            r.committed |= r.state == State::Posted;
        }
        Some(Action::Commit)
    }

    /// Asks for the first receive that was not asked for. One that waits holds back the later ones.
    fn ask(&mut self) -> Option<Action> {
        for r in at_most(RECVS, self.list.as_mut_slice()) {
            match r.state {
                State::Waiting => return None,
                State::New if !r.held => {
                    r.state = State::Asked;
                    return Some(Action::Pin { tag: r.tag });
                }
                _ => (),
            }
        }
        None
    }

    /// The budget is short: releases what later receives hold or ask for.
    fn squeeze(&mut self, place: usize) {
        for r in at_most(RECVS, self.list.as_mut_slice().iter_mut().skip(place + 1)) {
            match r.state {
                State::Ready if r.held => r.state = State::New,
                State::Asked => r.state = State::Unwanted,
                State::Waiting => r.state = State::Unqueue,
                _ => (),
            }
        }
    }
}
