// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's end of a credit connection: the reader, and the credit buffers that lists
//! arrive in (CR-2, CR-3, CR-11, decisions 6 and 19).
//!
//! There are two buffers. One is posted before the connection exists. A list that arrives fills
//! it; before its credits are used the other one is posted. A buffer is free again when all
//! credits of its list are in the reader. The receiver sends a new list only after data has
//! landed for the last one, so a new list always finds a posted buffer: `Arrived::Overflow`
//! is the peer's fault and costs only this connection (CR-13).

use super::entry::{Body, Entry, Name, Part};
use super::list::{self, Reader, Seq};
use crate::base::bound::{Bound, at_most};
use crate::base::rule::{self, Rule};
use berth_abi::cpu::LIST_OK;

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrived {
    /// It is in a credit buffer: call [`Taker::process`].
    Buffered,
    /// All of it was known (decision 6).
    Repeat,
    /// It is from before a recall that has been answered.
    Stale,
    /// A recall: the answer is due ([`Taker::poll`]).
    Recalled,
    /// It is for another connection, or for an earlier one of this QP (decision 6): dropped.
    WrongEpoch,
    /// No credit of the last list has been used, so the receiver cannot know that a buffer is free (CR-11): dropped.
    Early,
    /// No buffer is posted: dropped. The receiver did not wait for the proof (CR-11).
    Overflow,
    /// It contradicts known entries, or is not for a sender: dropped.
    Bad,
}

/// A credit buffer with a list in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Buffer<const LIST: usize> {
    list: u32,
    total: u8,
    /// Sizes that have come.
    have: [bool; LIST],
    sizes: [u32; LIST],
}

/// The sender's end of a credit connection. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Taker<
    const ROOM: usize = { list::ROOM },
    const LIST: usize = { list::LIST },
    const BITS: u32 = { list::BITS },
> {
    reader: Reader<ROOM, LIST, BITS>,
    /// Lists whose credits are not all in the reader, oldest first.
    buffers: [Option<Buffer<LIST>>; 2],
    /// A further buffer is posted.
    posted: bool,
    own: Name,
    peer: Name,
    round: u8,
    /// Answer to the last recall.
    kept: u32,
    answer_due: bool,
    sync_due: bool,
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Default for Taker<ROOM, LIST, BITS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Taker<ROOM, LIST, BITS> {
    /// Rounds are counted in as many bits as numbers have, at most 8.
    const ROUND: u8 = if BITS < 8 { Seq::<BITS>::MASK as u8 } else { u8::MAX };

    /// An end without credits, with one buffer posted.
    pub const fn new() -> Self {
        Self {
            reader: Reader::new(),
            buffers: [None; 2],
            posted: true,
            own: Name { qpn: 0, epoch: 0 },
            peer: Name { qpn: 0, epoch: 0 },
            round: 0,
            kept: 0,
            answer_due: false,
            sync_due: false,
        }
    }

    /// A connection begins: all credits of an earlier one are void (decision 6).
    pub fn connect(&mut self, own: Name, peer: Name) {
        *self = Self::new();
        (self.own, self.peer) = (own, peer);
    }

    /// An entry has arrived. Its content is used by [`Taker::process`] only.
    pub fn arrive(&mut self, entry: &Entry<LIST>) -> Arrived {
        if !rule::holds(Rule::EpochMatches, entry.to == self.own) {
            return Arrived::WrongEpoch;
        }
        match &entry.body {
            Body::List(part) => self.arrive_part(part),
            Body::Recall { round, first } => self.recall(*round, *first),
            _ => Arrived::Bad,
        }
    }

    fn arrive_part(&mut self, part: &Part<LIST>) -> Arrived {
        if !part.is_sound() {
            return Arrived::Bad;
        }
        if !rule::holds(Rule::RoundMatches, part.round == self.round) {
            return Arrived::Stale;
        }
        let start = Seq::<BITS>::add(part.list, part.offset as u32);
        let end = Seq::<BITS>::add(start, part.len as u32);
        if !rule::holds(Rule::CreditTakenOnce, Seq::<BITS>::after(end, self.reader.expected())) {
            return Arrived::Repeat;
        }
        if let Some(buffer) = self.buffers.iter_mut().flatten().find(|b| b.list == part.list) {
            if buffer.total != part.total {
                return Arrived::Bad;
            }
            return match buffer.fill(part) {
                true => Arrived::Buffered,
                false => Arrived::Repeat,
            };
        }
        // A list is known from its first part on until all of it is in the reader.
        if !rule::holds(Rule::CreditTakenOnce, !Seq::<BITS>::after(self.reader.expected(), part.list)) {
            return Arrived::Bad;
        }
        if !rule::holds(Rule::EarlyListRefused, self.reader.proven()) {
            return Arrived::Early;
        }
        let Some(free) = self.buffers.iter_mut().find(|b| b.is_none()).filter(|_| self.posted) else {
            return Arrived::Overflow;
        };
        self.posted = false;
        let mut buffer = Buffer { list: part.list, total: part.total, have: [false; LIST], sizes: [0; LIST] };
        buffer.fill(part);
        *free = Some(buffer);
        Arrived::Buffered
    }

    /// Uses arrived entries: posts a free buffer first, and only then takes the credits. Credits behind a gap are held
    /// until it is filled. Gives the number of new credits.
    pub fn process(&mut self) -> u32 {
        let before = self.reader.expected();
        let mut bound = Bound::new(3);
        loop {
            bound.step();
            self.posted |= self.buffers.iter().any(Option::is_none);
            if !self.process_next() {
                break;
            }
        }
        Seq::<BITS>::sub(self.reader.expected(), before)
    }

    /// Takes all it can from the next buffer. True when that buffer became free.
    fn process_next(&mut self) -> bool {
        let expected = self.reader.expected();
        let comes_next = |b: &Buffer<LIST>| {
            let ahead = Seq::<BITS>::sub(expected, b.list);
            let known = ahead > 0 && ahead <= Seq::<BITS>::MASK >> 1;
            match ahead < b.total as u32 {
                true => true,
                false if known => rule::holds(Rule::CreditTakenOnce, false),
                false => rule::holds(Rule::GapHeld, false),
            }
        };
        let Some(place) = self.buffers.iter_mut().find(|b| b.as_ref().is_some_and(comes_next)) else {
            return false;
        };
        let Some(buffer) = place else {
            return false;
        };
        let total = buffer.total as u32;
        let at = match Seq::<BITS>::sub(expected, buffer.list) {
            at if at < total => at as usize,
            _ => 0,
        };
        let gap = buffer.have.iter().skip(at).take_while(|have| !**have).count();
        if !rule::holds(Rule::GapHeld, gap == 0) {
            return false;
        }
        let at = at + gap;
        let run = buffer.have.iter().skip(at).take_while(|have| **have).count() as u32;
        if run == 0 {
            return false;
        }
        // The list begins: credits of the one before it must have been used. Later parts belong to it.
        if at == 0 && self.reader.list_begin(expected, run).0 != LIST_OK {
            return false;
        }
        for size in at_most(LIST, buffer.sizes.iter().skip(at).take(run as usize)) {
            if !self.reader.list_push(*size) {
                return false;
            }
        }
        let done = at as u32 + run >= total;
        if done {
            *place = None;
            // The older list comes first.
            let [older, newer] = &mut self.buffers;
            if older.is_none() {
                core::mem::swap(older, newer);
            }
        }
        done
    }

    /// [`Taker::arrive`] and [`Taker::process`].
    pub fn accept(&mut self, entry: &Entry<LIST>) -> Arrived {
        let arrived = self.arrive(entry);
        if arrived == Arrived::Buffered {
            self.process();
        }
        arrived
    }

    /// Credits from number `first` on are wanted back.
    fn recall(&mut self, round: u8, first: u32) -> Arrived {
        if round == self.round {
            self.process();
            let unused = match Seq::<BITS>::after(self.reader.expected(), first) {
                true => Seq::<BITS>::sub(self.reader.expected(), first),
                false => 0,
            };
            self.kept = self.reader.give_up(unused);
            self.buffers = [None; 2];
            self.posted = true;
            self.round = self.round.wrapping_add(1) & Self::ROUND;
            self.answer_due = true;
            Arrived::Recalled
        } else if round == self.round.wrapping_sub(1) & Self::ROUND {
            // Asked again: the answer was lost.
            self.answer_due = true;
            Arrived::Recalled
        } else {
            Arrived::Stale
        }
    }

    /// The carrier works again after a loss: the receiver is told what is missing.
    pub fn resync(&mut self) {
        self.sync_due = true;
    }

    /// The next entry for the receiver.
    pub fn poll(&mut self) -> Option<Entry<LIST>> {
        let body = if self.answer_due {
            self.answer_due = false;
            Body::Recalled { round: self.round.wrapping_sub(1) & Self::ROUND, first: self.kept }
        } else if self.sync_due {
            self.sync_due = false;
            Body::Sync { round: self.round, next: self.reader.expected() }
        } else {
            return None;
        };
        Some(Entry { to: self.peer, body })
    }

    /// Uses the oldest credit for at most `remaining` bytes: (bytes to send, number, size). With
    /// `None` the sender holds its data (CR-3).
    pub fn take(&mut self, remaining: u32) -> Option<(u32, u32, u32)> {
        self.reader.take(remaining)
    }

    /// The credits.
    pub const fn reader(&self) -> &Reader<ROOM, LIST, BITS> {
        &self.reader
    }

    /// A credit buffer is posted: a new list has a place.
    pub const fn buffer_posted(&self) -> bool {
        self.posted
    }

    /// Entries are to be sent.
    pub const fn wants_to_send(&self) -> bool {
        self.answer_due || self.sync_due
    }

    /// Our end, as entries name it.
    pub const fn own(&self) -> Name {
        self.own
    }
}

impl<const LIST: usize> Buffer<LIST> {
    /// Enters the sizes of a part. True when one of them is new. Known sizes stay as they are.
    fn fill(&mut self, part: &Part<LIST>) -> bool {
        let mut news = false;
        let places = self.have.iter_mut().zip(&mut self.sizes).skip(part.offset as usize);
        for ((have, size), new) in at_most(LIST, places.zip(part.sizes())) {
            if !*have {
                (*have, *size, news) = (true, *new, true);
            }
        }
        news
    }
}
