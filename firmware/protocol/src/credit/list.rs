// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit list builder and reader: the golden model of `berth_fp_builder` and of the reader in `berth_fp_cut`.
//!
//! A *credit* is the size of one posted receive buffer. Credits are numbered from 0,
//! modulo 2^32, in posting order. The *builder* is the receiver's side of a QP, the
//! *reader* the sender's.
//!
//! `ROOM` (credits stored, a power of two), `LIST` (longest list) and `BITS` (width of credit
//! numbers) are those of the card unless said otherwise; a model checker shrinks them. Slots
//! that hold no live credit are 0, so that two machines that behave alike are equal.

use crate::base::bound::{Bound, at_most};
use crate::base::rule::{self, Rule};
use berth_abi::rows::recv;
use berth_abi::{card, cpu};

/// Credits that the card stores per QP and direction.
pub const ROOM: usize = card::CREDITS_PER_QP as usize;
/// Longest list of the card.
pub const LIST: usize = card::MAX_LIST as usize;
/// Width of credit numbers on the card.
pub const BITS: u32 = 32;

/// Arithmetic of numbers modulo 2^`BITS` (1 to 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seq<const BITS: u32>;

impl<const BITS: u32> Seq<BITS> {
    /// All bits of a number.
    pub const MASK: u32 = u32::MAX >> (32 - BITS);

    /// `a + b`.
    #[inline]
    pub const fn add(a: u32, b: u32) -> u32 {
        a.wrapping_add(b) & Self::MASK
    }

    /// `a - b`.
    #[inline]
    pub const fn sub(a: u32, b: u32) -> u32 {
        a.wrapping_sub(b) & Self::MASK
    }

    /// `a` comes after `b`.
    #[inline]
    pub const fn after(a: u32, b: u32) -> bool {
        let ahead = Self::sub(a, b);
        ahead != 0 && ahead <= Self::MASK >> 1
    }
}

/// Which buffer of the last list triggers the next one (CR-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// The first buffer: fast senders.
    #[default]
    First,
    /// The last buffer: slow senders.
    Last,
    /// The buffer with this index, or the last one of a shorter list.
    Between(u8),
    /// The buffer that lies this many quarters (0 to 3) into the list.
    Quarters(u8),
    /// The buffer behind which this many others follow, or the first one of a shorter list.
    Behind(u8),
}

impl Trigger {
    /// From a kind (`TRIGGER_*` of rows) in bits 7:0 and an index in bits 15:8. What memory that is pinned bounds is the first
    /// buffer while it does (`bounded`). A kind that rows do not have is the first buffer.
    pub const fn from_arg(arg: u32, bounded: bool) -> Self {
        let index = (arg >> 8) as u8;
        match arg & 0xff {
            recv::TRIGGER_LAST => Self::Last,
            recv::TRIGGER_BETWEEN => Self::Between(index),
            _ if bounded => Self::First,
            recv::TRIGGER_UNBOUNDED => Self::Between(index),
            recv::TRIGGER_QUARTERS => Self::Quarters(index & 3),
            recv::TRIGGER_BEHIND => Self::Behind(index),
            _ => Self::First,
        }
    }

    /// As [`Trigger::from_arg`] takes it, where nothing bounds.
    pub const fn to_arg(self) -> u32 {
        match self {
            Self::First => recv::TRIGGER_FIRST,
            Self::Last => recv::TRIGGER_LAST,
            Self::Between(index) => recv::TRIGGER_BETWEEN | (index as u32) << 8,
            Self::Quarters(quarters) => recv::TRIGGER_QUARTERS | (quarters as u32) << 8,
            Self::Behind(behind) => recv::TRIGGER_BEHIND | (behind as u32) << 8,
        }
    }

    /// Index of the trigger buffer in a list of `len` credits.
    pub const fn index(self, len: u32) -> u32 {
        let last = len.saturating_sub(1);
        match self {
            Self::First => 0,
            Self::Last => last,
            Self::Between(index) if (index as u32) < last => index as u32,
            Self::Between(_) => last,
            Self::Quarters(quarters) => len.saturating_mul((quarters & 3) as u32) >> 2,
            Self::Behind(behind) => last.saturating_sub(behind as u32),
        }
    }
}

/// The receiver's side: sizes of posted receives become lists (CR-1, CR-4, CR-5, CR-11).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Builder<
    const ROOM: usize = { self::ROOM },
    const LIST: usize = { self::LIST },
    const BITS: u32 = { self::BITS },
> {
    fifo: [u32; ROOM],
    posted: u32,
    committed: u32,
    announced: u32,
    landed: u32,
    /// First credit of the last list (*Rtrip* while the proof is outstanding).
    list_first: u32,
    /// Number of the last list's trigger buffer.
    trigger_at: u32,
    /// The last list's proof or trigger is outstanding.
    list_sent: bool,
    enabled: bool,
    max_list: u32,
    trigger: Trigger,
    /// Next size that `list_next` gives, and how many are left.
    next: u32,
    left: u32,
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Default for Builder<ROOM, LIST, BITS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Builder<ROOM, LIST, BITS> {
    /// An empty builder, not enabled, with the longest lists and trigger "first".
    pub const fn new() -> Self {
        const {
            assert!(ROOM.is_power_of_two() && LIST >= 1 && LIST <= ROOM);
            assert!(BITS >= 2 && BITS <= 32 && ROOM <= 1 << (BITS - 2));
        }
        Self {
            fifo: [0; ROOM],
            posted: 0,
            committed: 0,
            announced: 0,
            landed: 0,
            list_first: 0,
            trigger_at: 0,
            list_sent: false,
            enabled: false,
            max_list: LIST as u32,
            trigger: Trigger::First,
            next: 0,
            left: 0,
        }
    }

    /// Empty, numbers to 0, not enabled. `max_list` is clipped to 1 ..= `LIST`.
    pub fn reset(&mut self, max_list: u32, trigger: Trigger) {
        *self = Self::new();
        self.max_list = max_list.clamp(1, LIST as u32);
        self.trigger = trigger;
    }

    /// Lists may be sent from now on.
    pub fn enable(&mut self) {
        self.enabled = true;
    }

    /// No list may be sent any more.
    pub fn disable(&mut self) {
        self.enabled = false;
    }

    fn slot(&mut self, number: u32) -> &mut u32 {
        &mut self.fifo[number as usize % ROOM]
    }

    /// Appends a credit of `size` bytes and gives its number; `None` when the FIFO is full.
    pub fn post(&mut self, size: u32) -> Option<u32> {
        if Seq::<BITS>::sub(self.posted, self.landed) >= ROOM as u32 {
            return None;
        }
        let number = self.posted;
        *self.slot(number) = size;
        self.posted = Seq::<BITS>::add(number, 1);
        Some(number)
    }

    /// Posted credits may be announced.
    pub fn commit(&mut self) {
        self.committed = self.posted;
    }

    /// The first packet of the next piece was accepted. False when no announced credit is left.
    pub fn landed(&mut self) -> bool {
        if self.landed == self.announced {
            return false;
        }
        if self.left == 0 {
            *self.slot(self.landed) = 0;
        }
        self.landed = Seq::<BITS>::add(self.landed, 1);
        self.settle();
        true
    }

    /// Forgets the last list when neither its proof nor its trigger is outstanding.
    fn settle(&mut self) {
        if !self.list_sent
            || (Seq::<BITS>::after(self.landed, self.list_first) && Seq::<BITS>::after(self.landed, self.trigger_at))
        {
            (self.list_sent, self.list_first, self.trigger_at) = (false, 0, 0);
        }
    }

    /// A list may be taken now.
    pub fn ready(&self) -> bool {
        // The trigger is never before the list's first buffer, so that it implies the proof.
        let due = !self.list_sent
            || rule::holds(
                Rule::ProofBeforeList,
                Seq::<BITS>::after(self.landed, self.list_first) && Seq::<BITS>::after(self.landed, self.trigger_at),
            );
        self.enabled && self.committed != self.announced && self.left == 0 && due
    }

    /// Number of the first credit and length of the list that is ready.
    /// Read all its sizes with [`Builder::list_next`].
    pub fn list_take(&mut self) -> Option<(u32, u32)> {
        self.list_take_most(u32::MAX)
    }

    /// As [`Builder::list_take`], but at most `most` credits: the others are withheld (CR-10).
    pub fn list_take_most(&mut self, most: u32) -> Option<(u32, u32)> {
        if !self.ready() || most == 0 {
            return None;
        }
        let first = self.announced;
        let len = self.fresh().min(self.max_list).min(most);
        self.list_first = first;
        self.trigger_at = Seq::<BITS>::add(first, self.trigger.index(len));
        self.list_sent = true;
        self.announced = Seq::<BITS>::add(first, len);
        self.next = first;
        self.left = len;
        Some((first, len))
    }

    /// Next size of the list begun; 0 when there is none left.
    pub fn list_next(&mut self) -> u32 {
        if self.left == 0 {
            return 0;
        }
        let size = *self.slot(self.next);
        self.left -= 1;
        self.next = match self.left {
            0 => 0,
            _ => Seq::<BITS>::add(self.next, 1),
        };
        size
    }

    /// Voids every credit from number `first` on. False when `first` is outside landed ..= announced.
    pub fn void(&mut self, first: u32) -> bool {
        if Seq::<BITS>::sub(first, self.landed) > self.outstanding() {
            return false;
        }
        self.announced = first;
        self.unpost();
        self.list_sent = false;
        (self.next, self.left) = (0, 0);
        self.settle();
        true
    }

    /// Credits that are not announced are not posted any more.
    pub fn unpost(&mut self) {
        let mut bound = Bound::new(ROOM as u32);
        while self.posted != self.announced {
            bound.step();
            self.posted = Seq::<BITS>::sub(self.posted, 1);
            *self.slot(self.posted) = 0;
        }
        self.committed = self.announced;
    }

    /// What is committed is announced without a list.
    pub fn announce_all(&mut self) {
        self.announced = self.committed;
    }

    /// The proof, or the trigger's data, of the last list are to come.
    pub const fn waits(&self) -> bool {
        self.list_sent
    }

    /// Numbers (posted, announced, landed).
    pub const fn numbers(&self) -> (u32, u32, u32) {
        (self.posted, self.announced, self.landed)
    }

    /// Sets the trigger of the lists to come.
    pub fn set_trigger(&mut self, trigger: Trigger) {
        self.trigger = trigger;
    }

    /// The last list's trigger counts as passed as soon as its proof is there.
    pub fn skip_trigger(&mut self) {
        if self.list_sent {
            self.trigger_at = self.list_first;
            self.settle();
        }
    }

    /// Trigger of the lists to come.
    pub const fn trigger(&self) -> Trigger {
        self.trigger
    }

    /// *Rtrip* (CR-11): first credit of the last list while its proof is outstanding.
    pub fn rtrip(&self) -> Option<u32> {
        let proven = rule::holds(Rule::RepeatUntilProof, Seq::<BITS>::after(self.landed, self.list_first));
        match self.list_sent && !proven {
            true => Some(self.list_first),
            false => None,
        }
    }

    /// *Next* (CR-11): first posted credit that is not announced.
    pub const fn next_unannounced(&self) -> Option<u32> {
        match self.posted != self.announced {
            true => Some(self.announced),
            false => None,
        }
    }

    /// Credits that are announced and that no data has landed for.
    pub const fn outstanding(&self) -> u32 {
        Seq::<BITS>::sub(self.announced, self.landed)
    }

    /// Credits that are committed and not announced.
    pub const fn fresh(&self) -> u32 {
        Seq::<BITS>::sub(self.committed, self.announced)
    }

    /// Size of the credit `number` if it is posted and no data has landed for it.
    pub fn size_of(&self, number: u32) -> Option<u32> {
        let live = Seq::<BITS>::sub(number, self.landed) < Seq::<BITS>::sub(self.posted, self.landed);
        live.then(|| self.fifo[number as usize % ROOM])
    }
}

/// The sender's side: lists are queued and used in order (CR-2, CR-11).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reader<
    const ROOM: usize = { self::ROOM },
    const LIST: usize = { self::LIST },
    const BITS: u32 = { self::BITS },
> {
    fifo: [u32; ROOM],
    next_in: u32,
    next_out: u32,
    /// First credit of the last list taken.
    list_first: u32,
    /// A list was taken whose first credit is still to be seen used.
    list_open: bool,
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Default for Reader<ROOM, LIST, BITS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Reader<ROOM, LIST, BITS> {
    /// An empty reader.
    pub const fn new() -> Self {
        const {
            assert!(ROOM.is_power_of_two() && LIST >= 1 && LIST <= ROOM);
            assert!(BITS >= 2 && BITS <= 32 && ROOM <= 1 << (BITS - 2));
        }
        Self { fifo: [0; ROOM], next_in: 0, next_out: 0, list_first: 0, list_open: false }
    }

    fn slot(&mut self, number: u32) -> &mut u32 {
        &mut self.fifo[number as usize % ROOM]
    }

    /// (`LIST_*`, entries to skip). After `LIST_OK` push the entries that are left.
    pub fn list_begin(&mut self, first: u32, len: u32) -> (u32, u32) {
        if len == 0 || len > LIST as u32 {
            return (cpu::LIST_BAD, 0);
        }
        if !rule::holds(Rule::CreditTakenOnce, Seq::<BITS>::after(Seq::<BITS>::add(first, len), self.next_in)) {
            return (cpu::LIST_REPEAT, 0);
        }
        if Seq::<BITS>::after(first, self.next_in) {
            return (cpu::LIST_GAP, 0);
        }
        if self.list_open && !rule::holds(Rule::EarlyListRefused, Seq::<BITS>::after(self.next_out, self.list_first)) {
            return (cpu::LIST_EARLY, 0);
        }
        let skip = match rule::broken(Rule::CreditTakenOnce) {
            false => Seq::<BITS>::sub(self.next_in, first),
            true => 0,
        };
        if self.count() + (len - skip) > ROOM as u32 {
            return (cpu::LIST_OVERFLOW, 0);
        }
        self.list_first = first;
        self.list_open = true;
        (cpu::LIST_OK, skip)
    }

    /// Appends a size. False when the FIFO is full.
    pub fn list_push(&mut self, size: u32) -> bool {
        if self.count() >= ROOM as u32 {
            return false;
        }
        *self.slot(self.next_in) = size;
        self.next_in = Seq::<BITS>::add(self.next_in, 1);
        true
    }

    /// Uses the oldest credit against `remaining` bytes: (bytes to send, number, size).
    pub fn take(&mut self, remaining: u32) -> Option<(u32, u32, u32)> {
        let (number, size) = self.peek(0)?;
        *self.slot(number) = 0;
        self.next_out = Seq::<BITS>::add(self.next_out, 1);
        let cut = match rule::holds(Rule::PieceWithinCredit, remaining <= size) {
            true => remaining,
            false => size,
        };
        Some((cut & 0x7fff_ffff, number, size))
    }

    /// Drops at most `n` unused credits, newest first; gives the number of the first one not kept.
    pub fn give_up(&mut self, n: u32) -> u32 {
        for _ in at_most(ROOM, 0..n.min(self.count())) {
            self.next_in = Seq::<BITS>::sub(self.next_in, 1);
            *self.slot(self.next_in) = 0;
        }
        self.list_open = false;
        self.list_first = 0;
        self.next_in
    }

    /// Unused credits.
    pub const fn count(&self) -> u32 {
        Seq::<BITS>::sub(self.next_in, self.next_out)
    }

    /// Number of the next credit that is not here: what a list should begin with (decision 6).
    pub const fn expected(&self) -> u32 {
        self.next_in
    }

    /// Number of the next credit to be used.
    pub const fn next_out(&self) -> u32 {
        self.next_out
    }

    /// A credit of the last list was used, or there was none: the next list may come (CR-11).
    pub const fn proven(&self) -> bool {
        !self.list_open || Seq::<BITS>::after(self.next_out, self.list_first)
    }

    /// Sum of the unused credits' sizes, saturating.
    pub fn bytes(&self) -> u32 {
        (0..self.count()).filter_map(|i| self.peek(i)).fold(0, |sum: u32, (_, size)| sum.saturating_add(size))
    }

    /// (number, size) of the unused credit `past` places behind the oldest.
    pub fn peek(&self, past: u32) -> Option<(u32, u32)> {
        if past >= self.count() {
            return None;
        }
        let number = Seq::<BITS>::add(self.next_out, past);
        Some((number, self.fifo[number as usize % ROOM]))
    }
}
