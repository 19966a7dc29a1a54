// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card's side of virtual contexts: which blocks of a stream it asks the host for, when and how (VC-2 … VC-8,
//! VC-10, PC-2), and when it releases them.
//!
//! A [`Sender`] is told which bytes are posted, covered by credits, handed to the transmitter, sent, and acknowledged;
//! [`Sender::poll`] gives the requests to the host. A *block* is what is asked for at once: a part of one piece in
//! whole packets (or a whole send, VC-7), in any number of contexts. A block gets all its memory at once or none, so a
//! packet never holds one part of its memory while it waits for another.

use super::context::{Again, Chain, ChainError, Choice, First, Place, Policy, Span};
use super::pins::{PinError, Usage};
use crate::base::bound::{Bound, at_most};
use crate::base::fifo::Fifo;
use crate::base::rule::{self, Rule};

/// What pinning and copying have cost so far; decides for [`Choice::Adaptive`]. Times are in the
/// caller's unit, the same for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Costs {
    pin: u32,
    copy: u32,
    usual: (u32, u32),
}

impl Default for Costs {
    /// 1 µs for a request and 100 ns for a KiB: copies below 10 KiB.
    fn default() -> Self {
        Self::new(1000, 100)
    }
}

impl Costs {
    /// Usual times: for a page request, and for a copy of 1 KiB (at least 1).
    pub const fn new(pin: u32, copy: u32) -> Self {
        let copy = if copy == 0 { 1 } else { copy };
        Self { pin, copy, usual: (pin, copy) }
    }

    /// A page request took `time`. The other cost, not measured meanwhile, drifts back to its usual value, so that a
    /// bad moment is forgotten.
    pub fn pinned(&mut self, time: u32) {
        self.pin = towards(self.pin, time, 3);
        self.copy = towards(self.copy, self.usual.1, 6).max(1);
    }

    /// A copy of `bytes` took `time`.
    pub fn copied(&mut self, bytes: u32, time: u32) {
        let kib = (time as u64 * 1024).checked_div(bytes as u64).unwrap_or(0);
        self.copy = towards(self.copy, kib.min(u32::MAX as u64) as u32, 3).max(1);
        self.pin = towards(self.pin, self.usual.0, 6);
    }

    /// Blocks of up to so many bytes are cheaper as copies.
    pub fn threshold(&self) -> u32 {
        self.threshold_of(1, 1)
    }

    /// The same, if the host was asked for `asked` of the last `blocks` blocks that were pinned (at least 1): the others were
    /// still pinned.
    pub fn threshold_of(&self, asked: u32, blocks: u32) -> u32 {
        let pin = self.pin as u64 * asked.min(blocks) as u64 / blocks.max(1) as u64;
        let bytes = (pin * 1024).checked_div(self.copy as u64).unwrap_or(0);
        bytes.min(u32::MAX as u64) as u32
    }

    /// The policy for a block of `len` bytes.
    pub fn policy(&self, len: u64) -> Policy {
        match len <= self.threshold() as u64 {
            true => Policy { first: First::Copy, again: Again::Copy },
            false => Policy { first: First::Pin, again: Again::Pin },
        }
    }
}

/// `value` moved by 1/2^`shift` of the way to `goal`, by at least 1.
fn towards(value: u32, goal: u32, shift: u32) -> u32 {
    let step = (value.abs_diff(goal) >> shift).max((value != goal) as u32);
    match value < goal {
        true => value.saturating_add(step),
        false => value.saturating_sub(step),
    }
}

/// Sizes of a [`Sender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Bytes of a packet; every packet of a piece but the last has so many. At least 1.
    pub mtu: u32,
    /// Most bytes of a block; counts as a multiple of `mtu`, at least one.
    pub block: u32,
    /// Bytes that may be asked for ahead of what has been sent (VC-8); at least one block is.
    pub window: u64,
    /// Bytes of the card's memory for copies (VC-5, VC-6). Blocks that never fit are pinned.
    pub copy_room: u32,
    /// Policy of sends that choose none (VC-10).
    pub choice: Choice,
}

/// What the host is to do. The bytes `start .. start + len` lie where [`Sender::spans`] says,
/// until the next call that changes the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Bring this block in and pin it (VC-2, VC-4, VC-7), then say [`Sender::answer`].
    Pin {
        /// Number of the block.
        tag: u16,
        /// Stream offset.
        start: u64,
        /// Bytes.
        len: u64,
        /// [`Usage::Lasting`] for a whole send (VC-7): it stays until more credits have come.
        usage: Usage,
    },
    /// Hand over a copy of this block (VC-5, VC-6), then say [`Sender::answer`].
    Copy {
        /// Number of the block.
        tag: u16,
        /// Stream offset.
        start: u64,
        /// Bytes.
        len: u64,
    },
    /// The block has been sent, or is not wanted any more: unpin it (VC-3).
    Release {
        /// Number of the block.
        tag: u16,
        /// Stream offset.
        start: u64,
        /// Bytes.
        len: u64,
        /// As it was asked for.
        usage: Usage,
    },
    /// The request that was answered with [`Outcome::Waits`] is not wanted any more: answer [`Outcome::Gone`] when it
    /// is out of the line, or its other outcome.
    Cancel {
        /// Number of the block.
        tag: u16,
        /// As it was asked for.
        usage: Usage,
    },
}

/// The host's answer to [`Action::Pin`] or [`Action::Copy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Pinned, or copied.
    Held,
    /// There is no budget now; another answer comes later.
    Waits,
    /// The memory changed while it was brought in: nothing is held, ask again.
    Gone,
    /// It cannot be had.
    Failed(BlockError),
}

/// Why a block cannot be had. The send fails, and with it its connection's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockError {
    /// The application does not have this memory (any more).
    #[default]
    Protection,
    /// Larger than the budget.
    OverBudget,
}

impl From<PinError> for BlockError {
    fn from(error: PinError) -> Self {
        match error {
            PinError::OverBudget => Self::OverBudget,
            PinError::NoProcess | PinError::BadRange | PinError::LineFull => Self::Protection,
        }
    }
}

/// Answer to [`Sender::transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transmit {
    /// The packet may be read and sent now; say [`Sender::sent`] when it has left.
    Ready {
        /// Number of its block.
        tag: u16,
        /// Read it from the card's memory; else from the host's.
        copy: bool,
    },
    /// Its block is not there yet (it is asked for).
    Waits,
    /// Its block cannot be had.
    Failed(BlockError),
    /// No credit covers it, it is acknowledged, or it is not the next of the stream.
    Outside,
}

/// Where a block stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// To be asked for.
    #[default]
    New,
    /// The host is at work.
    Asked,
    /// The host has no budget for it now.
    Waiting,
    /// Ready to be sent from.
    Held,
    /// Cannot be had.
    Failed(BlockError),
    /// The host is at work, but the block is not wanted any more.
    Unwanted,
    /// Waits at the host, and is not wanted any more.
    Unqueue,
    /// Held, and not wanted any more.
    Over,
    /// Nothing is held, and the block is not wanted any more.
    Empty,
    /// Held, but the memory was withdrawn: to be released, and its rest asked for anew.
    Renew,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Block {
    tag: u16,
    start: u64,
    len: u64,
    /// Stream offset of the first byte that was not handed to the transmitter from this block.
    next: u64,
    /// Packets in the transmitter.
    flying: u16,
    state: State,
    copy: bool,
    /// For a retransmission.
    again: bool,
    /// A whole send (VC-7).
    whole: bool,
}

impl Block {
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    const fn covers(&self, start: u64, end: u64) -> bool {
        self.start <= start && end <= self.end()
    }

    const fn usage(&self) -> Usage {
        match self.whole {
            true => Usage::Lasting,
            false => Usage::Brief,
        }
    }

    /// Some packet of it may still be sent.
    const fn wanted(&self) -> bool {
        !matches!(self.state, State::Unwanted | State::Unqueue | State::Over | State::Empty)
    }

    /// It is not wanted any more.
    fn drop(&mut self) {
        self.state = match self.state {
            State::Asked => State::Unwanted,
            State::Waiting => State::Unqueue,
            State::Held | State::Renew => State::Over,
            State::New | State::Failed(_) => State::Empty,
            state => state,
        };
    }
}

/// The sending side of one stream: up to `CONTEXTS` contexts, `PIECES` pieces that credits cover
/// and that are not sent, and `BLOCKS` blocks at a time, of which one is kept for retransmission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender<const CONTEXTS: usize, const PIECES: usize, const BLOCKS: usize> {
    config: Config,
    costs: Costs,
    chain: Chain<CONTEXTS>,
    /// Stream offsets behind each piece.
    pieces: Fifo<u64, PIECES>,
    blocks: Fifo<Block, BLOCKS>,
    covered: u64,
    /// Stream offset of the first byte that was not asked for (or has to be asked for anew).
    asked: u64,
    sent: u64,
    acked: u64,
    /// Stream offset of the first piece that is not sent.
    piece: u64,
    closed: bool,
}

impl<const CONTEXTS: usize, const PIECES: usize, const BLOCKS: usize> Sender<CONTEXTS, PIECES, BLOCKS> {
    /// Nothing posted. The first byte has stream offset `first`.
    pub fn new(config: Config, first: u64) -> Self {
        const { assert!(BLOCKS >= 2) };
        let mtu = config.mtu.max(1);
        let block = config.block.saturating_sub(config.block.checked_rem(mtu).unwrap_or(0)).max(mtu);
        Self {
            config: Config { mtu, block, ..config },
            costs: Costs::default(),
            chain: Chain::new(first),
            pieces: Fifo::new(),
            blocks: Fifo::new(),
            covered: first,
            asked: first,
            sent: first,
            acked: first,
            piece: first,
            closed: false,
        }
    }

    /// The application posts a send: one block, or several for a gather list (VC-1). Nothing is
    /// pinned. `choice` overrides the connection's. Gives the stream offset of its first byte.
    ///
    /// # Errors
    /// [`ChainError`]; then nothing was posted.
    pub fn post(&mut self, places: &[Place], choice: Option<Choice>) -> Result<u64, ChainError> {
        self.chain.push(places, choice.unwrap_or(self.config.choice))
    }

    /// A credit of `size` bytes has come for the next bytes that none covers: length of its piece,
    /// the smaller of the credit and what is left of that send. `None` when there is nothing to
    /// cover or no room for one more piece; offer the credit again later.
    pub fn cover(&mut self, size: u32) -> Option<u32> {
        let rest = self.chain.rest_of_send(self.covered);
        let len = rest.min(size as u64) as u32;
        if len == 0 || self.closed || self.pieces.is_full() {
            return None;
        }
        self.covered = self.covered.saturating_add(len as u64);
        self.pieces.push(self.covered);
        Some(len)
    }

    /// The peer has taken back credits (RECALL): pieces that end behind stream offset `to` are
    /// not covered any more. Pieces that were begun stay. Gives what is covered now.
    pub fn uncover(&mut self, to: u64) -> u64 {
        let begun = self.pieces.get(0).copied().filter(|_| self.sent > self.piece);
        let to = to.max(begun.unwrap_or(self.sent));
        let keep = self.pieces.as_slice().iter().take_while(|end| **end <= to).count();
        self.pieces.truncate(keep);
        self.covered = self.pieces.last().copied().unwrap_or(self.sent);
        let (covered, asked) = (self.covered, &mut self.asked);
        for b in at_most(BLOCKS, self.blocks.as_mut_slice()) {
            if b.start >= covered && !b.again && !b.whole && b.wanted() {
                *asked = (*asked).min(b.start);
                b.drop();
            }
        }
        self.covered
    }

    /// What the host is to do next; call until `None`.
    pub fn poll(&mut self) -> Option<Action> {
        let mut bound = Bound::new(2 * BLOCKS as u32 + 2);
        loop {
            bound.step();
            let next = self.blocks.position(|b| self.over(b));
            let Some(i) = next else {
                break;
            };
            if let Some(action) = self.let_go(i) {
                return Some(action);
            }
        }
        self.chain.trim(self.kept());
        let mut bound = Bound::new(BLOCKS as u32 + 2);
        loop {
            bound.step();
            if let Some(action) = self.ask() {
                return Some(action);
            }
            if !self.extend() {
                return None;
            }
        }
    }

    /// The host's answer for block `tag`. False when none was awaited.
    pub fn answer(&mut self, tag: u16, outcome: Outcome) -> bool {
        let Some(i) = self.blocks.position(|b| b.tag == tag) else {
            return false;
        };
        let Some(b) = self.blocks.get_mut(i) else {
            return false;
        };
        let block = *b;
        match (block.state, outcome) {
            (State::Asked | State::Waiting, Outcome::Held) => b.state = State::Held,
            (State::Unwanted | State::Unqueue, Outcome::Held) => b.state = State::Over,
            // The whole send does not fit: it goes block by block instead.
            (State::Asked | State::Waiting, Outcome::Waits) if block.whole => {
                b.state = State::Waiting;
                self.give_way();
            }
            (State::Asked | State::Waiting, Outcome::Failed(BlockError::OverBudget)) if block.whole => {
                b.state = State::Failed(BlockError::OverBudget);
                self.give_way();
            }
            (State::Asked | State::Waiting, Outcome::Waits) => {
                b.state = State::Waiting;
                self.squeeze(block.start);
            }
            (State::Unwanted | State::Unqueue, Outcome::Waits) => b.state = State::Unqueue,
            (State::Asked | State::Waiting, Outcome::Gone) => b.state = State::New,
            (State::Asked | State::Waiting, Outcome::Failed(error)) => b.state = State::Failed(error),
            (State::Unwanted | State::Unqueue, Outcome::Gone | Outcome::Failed(_)) => b.state = State::Empty,
            _ => return false,
        }
        true
    }

    /// Wants to hand the packet of `len` bytes at stream offset `start` to the transmitter: the next one, or one that
    /// was sent and is not acknowledged. A missing block is asked for.
    pub fn transmit(&mut self, start: u64, len: u32) -> Transmit {
        let end = start.saturating_add(len as u64);
        let inside = len > 0 && start >= self.acked && start <= self.sent && end <= self.chain.end();
        if self.closed || !inside || !rule::holds(Rule::SendWithinCover, end <= self.covered) {
            return Transmit::Outside;
        }
        let mut waits = false;
        let mut bound = Bound::new((BLOCKS + PIECES) as u32);
        for b in self.blocks.as_mut_slice() {
            bound.step();
            match b.state {
                State::Held if b.covers(start, end) => {
                    b.flying = b.flying.saturating_add(1);
                    b.next = b.next.max(end);
                    let ready = Transmit::Ready { tag: b.tag, copy: b.copy };
                    self.sent = self.sent.max(end);
                    while let Some(end) = self.pieces.get(0).copied().filter(|end| *end <= self.sent) {
                        bound.step();
                        self.piece = end;
                        self.pieces.pop();
                    }
                    return ready;
                }
                State::Failed(error) if b.start < end && start < b.end() => return Transmit::Failed(error),
                State::New | State::Asked | State::Waiting | State::Renew => waits |= b.covers(start, end),
                _ => (),
            }
        }
        if !waits && end <= self.asked {
            self.ask_again(start, len as u64);
        }
        Transmit::Waits
    }

    /// The packets of `start .. start + len` are to be sent again (VC-4, VC-5): asks for the bytes that no block has.
    /// One call per piece, in whole packets; returns how many bytes were taken, from `start`.
    pub fn resend(&mut self, start: u64, len: u64) -> u64 {
        let end = start.saturating_add(len).min(self.sent.max(self.asked));
        let mut at = start.max(self.acked);
        let mut bound = Bound::new(2 * BLOCKS as u32 + 1);
        while at < end && !self.closed {
            bound.step();
            let have = self.blocks.as_slice().iter().find(|b| {
                let live =
                    matches!(b.state, State::New | State::Asked | State::Waiting | State::Held | State::Failed(_));
                live && b.start <= at && at < b.end()
            });
            if let Some(b) = have {
                at = b.end();
                continue;
            }
            let part = (end - at).min(self.config.block as u64);
            if !self.ask_again(at, part) {
                break;
            }
            at += part;
        }
        at.min(end).saturating_sub(start)
    }

    /// A packet of block `tag` has left the transmitter. False when none was there.
    pub fn sent(&mut self, tag: u16) -> bool {
        match self.blocks.as_mut_slice().iter_mut().find(|b| b.tag == tag && b.flying > 0) {
            Some(b) => {
                b.flying -= 1;
                true
            }
            None => false,
        }
    }

    /// Everything below stream offset `to` has reached its place.
    pub fn acknowledged(&mut self, to: u64) {
        self.acked = self.acked.max(to.min(self.sent));
        let acked = self.acked;
        for b in at_most(BLOCKS, self.blocks.as_mut_slice()) {
            if b.end() <= acked && b.wanted() {
                b.drop();
            }
        }
    }

    /// The pages in `va .. va + len` (whole ones) were taken from the card (VC-9): blocks in it are released and, if
    /// some of their bytes are still to be sent, asked for again. The host then says if the memory is gone.
    pub fn withdrawn(&mut self, va: u64, len: u64) {
        let end = va.saturating_add(len);
        for i in at_most(BLOCKS, 0..self.blocks.len()) {
            let Some(b) = self.blocks.get(i).copied() else {
                continue;
            };
            let hit = self.chain.spans(b.start, b.len).any(|s| s.va < end && va < s.va.saturating_add(s.len as u64));
            if hit
                && !b.copy
                && b.state == State::Held
                && let Some(b) = self.blocks.get_mut(i)
            {
                b.state = State::Renew;
            }
        }
    }

    /// Others lack memory: a send that is pinned as a whole (VC-7), and waits or is held, continues block by block.
    pub fn give_way(&mut self) {
        let asked = &mut self.asked;
        for b in at_most(BLOCKS, self.blocks.as_mut_slice()) {
            if b.whole && b.wanted() {
                *asked = (*asked).min(b.next);
                self.chain.pin_by_block(b.start);
                b.drop();
            }
        }
    }

    /// The connection is over: releases everything. [`Sender::idle`] says when that is done.
    pub fn close(&mut self) {
        self.closed = true;
        for b in at_most(BLOCKS, self.blocks.as_mut_slice()) {
            b.drop();
        }
    }

    /// Counts stream offsets anew, so that what was offset `by` is 0: what a model checker needs to
    /// find that a stream which goes on for ever has few states. False when something below `by` is
    /// still known.
    pub fn rebase(&mut self, by: u64) -> bool {
        if by > self.kept() || by > self.chain.start() {
            return false;
        }
        self.chain.rebase(by);
        for end in at_most(PIECES, self.pieces.as_mut_slice()) {
            *end = end.saturating_sub(by);
        }
        for b in at_most(BLOCKS, self.blocks.as_mut_slice()) {
            b.start = b.start.saturating_sub(by);
            b.next = b.next.saturating_sub(by);
        }
        for offset in [&mut self.covered, &mut self.asked, &mut self.sent, &mut self.acked, &mut self.piece] {
            *offset = offset.saturating_sub(by);
        }
        true
    }

    /// Nothing is held, asked for or in the transmitter.
    pub fn idle(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Where the bytes `start .. start + len` lie.
    pub fn spans(&self, start: u64, len: u64) -> impl Iterator<Item = Span> + Clone + '_ {
        self.chain.spans(start, len)
    }

    /// Where the block `tag` lies, while it is known.
    pub fn block(&self, tag: u16) -> Option<(u64, u64, Usage)> {
        let block = self.blocks.as_slice().iter().find(|b| b.tag == tag)?;
        Some((block.start, block.len, block.usage()))
    }

    /// Measured costs of pinning and copying, for [`Choice::Adaptive`].
    pub const fn costs_mut(&mut self) -> &mut Costs {
        &mut self.costs
    }

    /// Stream offsets: (acknowledged, handed to the transmitter, covered by credits, posted).
    pub const fn offsets(&self) -> (u64, u64, u64, u64) {
        (self.acked, self.sent, self.covered, self.chain.end())
    }

    /// Stream offset behind the piece that the byte at `offset` lies in, while it is not sent.
    pub fn piece_end(&self, offset: u64) -> Option<u64> {
        self.pieces.as_slice().iter().copied().find(|end| offset < *end)
    }

    /// Bytes of the card's memory that copies take or will take.
    pub fn copied(&self) -> u64 {
        let copies =
            self.blocks.as_slice().iter().filter(|b| b.copy && !matches!(b.state, State::Empty | State::Failed(_)));
        copies.fold(0, |sum: u64, b| sum.saturating_add(b.len))
    }

    fn policy(&self, offset: u64, len: u64) -> Policy {
        match self.chain.find(offset).map_or(self.config.choice, |c| c.choice) {
            Choice::Fixed(policy) => policy,
            Choice::Adaptive => self.costs.policy(len),
        }
    }

    /// Whether a block can be released: it is sent or not wanted, and none of its packets is in the transmitter.
    fn over(&self, b: &Block) -> bool {
        let done = match b.state {
            State::Held => b.next >= b.end(),
            State::Over | State::Empty | State::Renew | State::Unqueue => true,
            _ => false,
        };
        done && rule::holds(Rule::ReleaseWhenSent, b.flying == 0)
    }

    /// Removes block `i`, or begins it anew.
    fn let_go(&mut self, i: usize) -> Option<Action> {
        let block = *self.blocks.get(i)?;
        let (tag, start, len, usage) = (block.tag, block.start, block.len, block.usage());
        let rest = block.end().saturating_sub(block.next);
        match block.state {
            State::Renew if rest > 0 => {
                if let Some(b) = self.blocks.get_mut(i) {
                    (b.start, b.len, b.state) = (block.next, rest, State::New);
                }
            }
            State::Unqueue => {
                if let Some(b) = self.blocks.get_mut(i) {
                    b.state = State::Unwanted;
                }
            }
            _ => _ = self.blocks.remove(i),
        }
        match block.state {
            State::Unqueue => Some(Action::Cancel { tag, usage }),
            State::Empty => None,
            _ if block.copy => None,
            _ => Some(Action::Release { tag, start, len, usage }),
        }
    }

    /// Stream offset of the first byte whose context is still needed.
    fn kept(&self) -> u64 {
        self.blocks.as_slice().iter().fold(self.acked, |low, b| low.min(b.start))
    }

    /// Asks for the first block that was not asked for. One that waits holds back those behind it.
    fn ask(&mut self) -> Option<Action> {
        let waiting = self.blocks.as_slice().iter().filter(|b| b.state == State::Waiting).map(|b| b.start).min();
        let new = self.blocks.as_mut_slice().iter_mut().filter(|b| b.state == State::New);
        let b = new.min_by_key(|b| b.start)?;
        if waiting.is_some_and(|at| at < b.start) {
            return None;
        }
        b.state = State::Asked;
        let (tag, start, len) = (b.tag, b.start, b.len);
        Some(match b.copy {
            true => Action::Copy { tag, start, len },
            false => Action::Pin { tag, start, len, usage: b.usage() },
        })
    }

    /// A block of `start .. start + len` for a retransmission. False when there is no room.
    fn ask_again(&mut self, start: u64, len: u64) -> bool {
        let room = self.config.copy_room as u64;
        // By copy only if there is room at once: waiting for room could be waiting for itself.
        let copy = self.policy(start, len).again == Again::Copy && self.copied().saturating_add(len) <= room;
        self.add(Block { start, len, next: start, copy, again: true, ..Block::default() })
    }

    /// Makes a block of covered bytes that were not asked for. False when there are none, or there is no room.
    fn extend(&mut self) -> bool {
        // Only retransmissions ask again for bytes that have been sent.
        self.asked = self.asked.max(self.sent);
        let at = self.asked;
        let stuck = self.blocks.as_slice().iter().any(|b| matches!(b.state, State::Waiting | State::Failed(_)));
        let covered = rule::holds(Rule::SendWithinCover, at < self.covered);
        if self.closed || stuck || !covered || self.blocks.len() + 1 >= BLOCKS {
            return false;
        }
        // Bytes asked for behind a released block need no second block.
        let first = |b: &&Block| !b.again && b.wanted();
        if let Some(b) = self.blocks.as_slice().iter().filter(first).find(|b| b.start <= at && at < b.end()) {
            self.asked = b.end();
            return true;
        }
        let next = self.blocks.as_slice().iter().filter(first).map(|b| b.start).filter(|s| *s > at).min();
        let rest = self.chain.rest_of_send(at);
        let piece = self.piece_end(at).unwrap_or(at.saturating_add(rest)).min(next.unwrap_or(u64::MAX));
        let mut len = (piece - at).min(self.config.block as u64);
        let policy = self.policy(at, len);
        let whole = policy.first == First::All;
        if whole {
            len = rest.min(next.unwrap_or(u64::MAX) - at);
        }
        if len == 0 {
            return false;
        }
        let ahead = at.saturating_sub(self.sent);
        if ahead > 0 && ahead.saturating_add(len) > self.config.window {
            return false;
        }
        let room = self.config.copy_room as u64;
        let copy = policy.first == First::Copy && len <= room;
        if copy && self.copied().saturating_add(len) > room {
            return false;
        }
        if !self.add(Block { start: at, len, next: at, copy, whole, ..Block::default() }) {
            return false;
        }
        self.asked = at.saturating_add(len);
        true
    }

    /// Enters a block under a tag that is free.
    fn add(&mut self, block: Block) -> bool {
        let used = |tag| self.blocks.as_slice().iter().any(|b| b.tag == tag);
        match (0..BLOCKS as u16).find(|tag| !used(*tag)) {
            Some(tag) => self.blocks.push(Block { tag, ..block }),
            None => false,
        }
    }

    /// The budget is short: releases blocks behind `start`, which are asked for again in their turn.
    fn squeeze(&mut self, start: u64) {
        let asked = &mut self.asked;
        for b in at_most(BLOCKS, self.blocks.as_mut_slice()) {
            if b.start > start && b.flying == 0 && b.wanted() && !b.whole {
                if !b.again {
                    *asked = (*asked).min(b.next);
                }
                b.drop();
            }
        }
    }
}
