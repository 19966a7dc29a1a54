// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit list builder and reader: the golden model of the credit engine in RTL.
//!
//! A *credit* is the size of one posted receive buffer. Credits are numbered from 0,
//! modulo 2^32, in posting order. The *builder* is the receiver's side of a QP, the
//! *reader* the sender's. [`CreditRow::execute`] carries out one `CRD_*` operation as
//! the registers `CPU_CRD_*` do.

use crate::rule::{self, Rule};
use berth_abi::{card, cpu};

/// Credits that a FIFO holds.
const ROOM: usize = card::CREDITS_PER_QP as usize;
/// Index mask of a FIFO.
const MASK: u32 = card::CREDITS_PER_QP - 1;

/// `a` comes after `b`, in numbers modulo 2^32.
const fn after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// Which buffer of the last list triggers the next one (CR-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// The first buffer: fast senders.
    #[default]
    First,
    /// The last buffer: slow senders.
    Last,
    /// The buffer with this index, or the last one of a shorter list.
    Between(u8),
}

impl Trigger {
    /// Decodes `CRD_RESET`'s second argument; an unknown kind counts as "first".
    pub const fn from_arg(arg: u32) -> Self {
        match arg & 3 {
            1 => Self::Last,
            2 => Self::Between((arg >> 8) as u8),
            _ => Self::First,
        }
    }

    /// Encodes `CRD_RESET`'s second argument.
    pub const fn to_arg(self) -> u32 {
        match self {
            Self::First => 0,
            Self::Last => 1,
            Self::Between(index) => 2 | (index as u32) << 8,
        }
    }
}

/// The receiver's side: sizes of posted receives become lists (CR-1, CR-4, CR-5, CR-11).
#[derive(Clone, Debug)]
pub struct Builder {
    fifo: [u32; ROOM],
    posted: u32,
    committed: u32,
    announced: u32,
    landed: u32,
    /// First credit of the last list (*Rtrip* while the proof is outstanding).
    list_first: u32,
    /// Number of the last list's trigger buffer.
    trigger_at: u32,
    /// A list has been sent since reset or void, so that proof and trigger count.
    list_sent: bool,
    enabled: bool,
    max_list: u32,
    trigger: Trigger,
    /// Next size that `list_next` gives, and how many are left.
    next: u32,
    left: u32,
    /// Readiness as last seen by [`Builder::report`].
    reported: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// An empty builder, not enabled, with the longest lists and trigger "first".
    pub const fn new() -> Self {
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
            max_list: card::MAX_LIST,
            trigger: Trigger::First,
            next: 0,
            left: 0,
            reported: false,
        }
    }

    /// `CRD_RESET`: empty, numbers to 0, not enabled. `max_list` is clipped to 1 ..= `MAX_LIST`.
    pub fn reset(&mut self, max_list: u32, trigger: Trigger) {
        *self = Self::new();
        self.max_list = max_list.clamp(1, card::MAX_LIST);
        self.trigger = trigger;
    }

    /// `CRD_ENABLE`: lists may be sent from now on.
    pub fn enable(&mut self) {
        self.enabled = true;
    }

    /// `CRD_POST`: appends a credit of `size` bytes and gives its number; `None` when the FIFO is full.
    pub fn post(&mut self, size: u32) -> Option<u32> {
        if self.posted.wrapping_sub(self.landed) >= card::CREDITS_PER_QP {
            return None;
        }
        let number = self.posted;
        self.fifo[(number & MASK) as usize] = size;
        self.posted = number.wrapping_add(1);
        Some(number)
    }

    /// `CRD_COMMIT`: what has been posted may be announced.
    pub fn commit(&mut self) {
        self.committed = self.posted;
    }

    /// `CRD_LANDED`: the first packet of the next piece was accepted. False when no announced credit is left.
    pub fn landed(&mut self) -> bool {
        if self.landed == self.announced {
            return false;
        }
        self.landed = self.landed.wrapping_add(1);
        true
    }

    /// A list may be taken now.
    pub fn ready(&self) -> bool {
        let due = !self.list_sent
            || (rule::holds(Rule::ProofBeforeList, after(self.landed, self.list_first))
                && after(self.landed, self.trigger_at));
        self.enabled && self.committed != self.announced && self.left == 0 && due
    }

    /// True once each time the builder becomes ready (`CPU_CRD_LIST`).
    pub fn report(&mut self) -> bool {
        let ready = self.ready();
        let fresh = ready && !self.reported;
        self.reported = ready;
        fresh
    }

    /// `CRD_LIST_TAKE`: (number of the first credit, length) of the list that is ready.
    /// Read all its sizes with [`Builder::list_next`].
    pub fn list_take(&mut self) -> Option<(u32, u32)> {
        if !self.ready() {
            return None;
        }
        let first = self.announced;
        let len = self.committed.wrapping_sub(first).min(self.max_list);
        let trigger = match self.trigger {
            Trigger::First => 0,
            Trigger::Last => len - 1,
            Trigger::Between(index) => (index as u32).min(len - 1),
        };
        self.list_first = first;
        self.trigger_at = first.wrapping_add(trigger);
        self.list_sent = true;
        self.announced = first.wrapping_add(len);
        self.next = first;
        self.left = len;
        self.reported = false;
        Some((first, len))
    }

    /// `CRD_LIST_NEXT`: next size of the list begun; 0 when there is none left.
    pub fn list_next(&mut self) -> u32 {
        if self.left == 0 {
            return 0;
        }
        let size = self.fifo[(self.next & MASK) as usize];
        self.next = self.next.wrapping_add(1);
        self.left -= 1;
        size
    }

    /// `CRD_VOID`: voids every credit from number `first` on. False when `first` is outside landed ..= announced.
    pub fn void(&mut self, first: u32) -> bool {
        if first.wrapping_sub(self.landed) > self.announced.wrapping_sub(self.landed) {
            return false;
        }
        self.posted = first;
        self.committed = first;
        self.announced = first;
        self.list_sent = false;
        self.left = 0;
        true
    }

    /// `CRD_BUILDER`: numbers (posted, announced, landed).
    pub const fn numbers(&self) -> (u32, u32, u32) {
        (self.posted, self.announced, self.landed)
    }
}

/// The sender's side: lists are queued and used in order (CR-2, CR-11).
#[derive(Clone, Debug)]
pub struct Reader {
    fifo: [u32; ROOM],
    next_in: u32,
    next_out: u32,
    /// First credit of the last list taken.
    list_first: u32,
    /// A list was taken whose first credit is still to be seen used.
    list_open: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// An empty reader.
    pub const fn new() -> Self {
        Self { fifo: [0; ROOM], next_in: 0, next_out: 0, list_first: 0, list_open: false }
    }

    /// `CRD_LIST_BEGIN`: (`LIST_*`, entries to skip). After `LIST_OK` push the entries that are left.
    pub fn list_begin(&mut self, first: u32, len: u32) -> (u32, u32) {
        if len == 0 || len > card::MAX_LIST {
            return (cpu::LIST_BAD, 0);
        }
        if !after(first.wrapping_add(len), self.next_in) {
            return (cpu::LIST_REPEAT, 0);
        }
        if after(first, self.next_in) {
            return (cpu::LIST_GAP, 0);
        }
        if self.list_open && !rule::holds(Rule::EarlyListRefused, after(self.next_out, self.list_first)) {
            return (cpu::LIST_EARLY, 0);
        }
        let skip = self.next_in.wrapping_sub(first);
        if self.count() + (len - skip) > card::CREDITS_PER_QP {
            return (cpu::LIST_OVERFLOW, 0);
        }
        self.list_first = first;
        self.list_open = true;
        (cpu::LIST_OK, skip)
    }

    /// `CRD_LIST_PUSH`: appends a size. False when the FIFO is full.
    pub fn list_push(&mut self, size: u32) -> bool {
        if self.count() >= card::CREDITS_PER_QP {
            return false;
        }
        self.fifo[(self.next_in & MASK) as usize] = size;
        self.next_in = self.next_in.wrapping_add(1);
        true
    }

    /// `CRD_TAKE`: uses the oldest credit against `remaining` bytes: (bytes to send, number, size).
    pub fn take(&mut self, remaining: u32) -> Option<(u32, u32, u32)> {
        let (number, size) = self.peek(0)?;
        self.next_out = self.next_out.wrapping_add(1);
        Some((size.min(remaining) & 0x7fff_ffff, number, size))
    }

    /// `CRD_GIVE_UP`: drops at most `n` unused credits, newest first; gives the number of the first one not kept.
    pub fn give_up(&mut self, n: u32) -> u32 {
        self.next_in = self.next_in.wrapping_sub(n.min(self.count()));
        self.list_open = false;
        self.next_in
    }

    /// Unused credits.
    pub const fn count(&self) -> u32 {
        self.next_in.wrapping_sub(self.next_out)
    }

    /// Sum of the unused credits' sizes, saturating.
    pub fn bytes(&self) -> u32 {
        (0..self.count()).filter_map(|i| self.peek(i)).fold(0, |sum: u32, (_, size)| sum.saturating_add(size))
    }

    /// `CRD_PEEK`: (number, size) of the unused credit `past` places behind the oldest.
    pub fn peek(&self, past: u32) -> Option<(u32, u32)> {
        if past >= self.count() {
            return None;
        }
        let number = self.next_out.wrapping_add(past);
        Some((number, self.fifo[(number & MASK) as usize]))
    }
}

/// One QP's row of the credit engine.
#[derive(Clone, Debug, Default)]
pub struct CreditRow {
    /// The receiver's side.
    pub builder: Builder,
    /// The sender's side.
    pub reader: Reader,
}

impl CreditRow {
    /// An empty row.
    pub const fn new() -> Self {
        Self { builder: Builder::new(), reader: Reader::new() }
    }

    /// Carries out operation `op` (`CRD_*`) and gives RSP0, RSP1, RSP2. An unknown
    /// operation does nothing. Results that the operation does not define are 0.
    pub fn execute(&mut self, op: u32, arg0: u32, arg1: u32) -> [u32; 3] {
        const TAKEN: u32 = 1 << 31;
        match op {
            cpu::CRD_RESET => {
                self.builder.reset(arg0, Trigger::from_arg(arg1));
                self.reader = Reader::new();
                [0; 3]
            }
            cpu::CRD_ENABLE => {
                self.builder.enable();
                [0; 3]
            }
            cpu::CRD_POST => match self.builder.post(arg0) {
                Some(number) => [0, number, 0],
                None => [1, 0, 0],
            },
            cpu::CRD_COMMIT => {
                self.builder.commit();
                [0; 3]
            }
            cpu::CRD_LANDED => [!self.builder.landed() as u32, 0, 0],
            cpu::CRD_LIST_TAKE => match self.builder.list_take() {
                Some((first, len)) => [0, first, len],
                None => [1, 0, 0],
            },
            cpu::CRD_LIST_NEXT => [self.builder.list_next(), 0, 0],
            cpu::CRD_VOID => [!self.builder.void(arg0) as u32, 0, 0],
            cpu::CRD_LIST_BEGIN => {
                let (answer, skip) = self.reader.list_begin(arg0, arg1);
                [answer, skip, 0]
            }
            cpu::CRD_LIST_PUSH => [!self.reader.list_push(arg0) as u32, 0, 0],
            cpu::CRD_TAKE => match self.reader.take(arg0) {
                Some((cut, number, size)) => [TAKEN | cut, number, size],
                None => [0; 3],
            },
            cpu::CRD_GIVE_UP => [self.reader.give_up(arg0), 0, 0],
            cpu::CRD_COUNT => [self.reader.count(), self.reader.bytes(), 0],
            cpu::CRD_BUILDER => {
                let (posted, announced, landed) = self.builder.numbers();
                [posted, announced, landed]
            }
            cpu::CRD_PEEK => match self.reader.peek(arg0) {
                Some((number, size)) => [TAKEN, number, size],
                None => [0; 3],
            },
            _ => [0; 3],
        }
    }
}
