// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends become pieces, one per credit (CR-2, CR-15, CR-17, decisions 1, 9, 10, 11).
//!
//! Two implementations with one behaviour: [`NicCut`] takes sends of any size and cuts them when a credit is there, as
//! the hardware does. [`LibraryCut`] cuts in the user library and posts descriptors that are already of the right size
//! to a card that does not cut. Both are a [`Cut`]. A piece names a range of its send: no byte is copied (CR-16);
//! [`gather`] says where it lies.

use super::list::Reader;
use super::taker::Taker;
use crate::base::bound::Bound;
use crate::base::rule::{self, Rule};

/// How sends and receives belong together (CR-17). Both ends must be of one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A send may be cut over several receives.
    #[default]
    Stream,
    /// One send fills one receive.
    Message,
}

impl Mode {
    /// The mode of a connection, at connect (decision 9). `None`: a reject.
    pub fn agree(self, peer: Self) -> Option<Self> {
        (self == peer).then_some(self)
    }

    /// The credit for a posted receive of `len` bytes; `None`: it completes locally, unannounced (decision 10).
    pub fn credit_of(self, len: u32) -> Option<u32> {
        (len != 0 || self == Self::Message).then_some(len)
    }
}

/// A send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Send {
    /// The caller's own.
    pub id: u64,
    /// Bytes, less than 2^31.
    pub len: u32,
    /// The caller's immediate data: message mode only.
    pub immediate: Option<u32>,
    /// It is an RDMA WRITE (QP-3): message mode only.
    pub write: bool,
    /// It has no bytes, and needs no credit whatever the mode: a NOP, DELAY (QP-5) or BIND (QP-4).
    pub local: bool,
}

/// A piece: what goes against one credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Its send.
    pub id: u64,
    /// Place of its first byte in the send.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Number of its credit.
    pub credit: u32,
    /// The last piece of the send.
    pub last: bool,
    /// Immediate data of its last packet: in stream mode the bytes still to be sent (decision 11),
    /// in message mode the caller's.
    pub immediate: Option<u32>,
}

/// What a [`Cut`] has next. In the order of the sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Out {
    /// A piece is to be sent.
    Piece(Piece),
    /// A send of no bytes (stream mode), or a local one, is complete, when those before it are.
    Empty(u64),
    /// A message is longer than its credit: it fails with a length error before anything has left. The credit is kept.
    TooLong(u64),
    /// A WRITE is to be sent, whole. One with immediate data uses a receive, and so a credit of any size.
    Write {
        /// Its send.
        id: u64,
        /// Number of its credit, if it has one.
        credit: Option<u32>,
    },
}

/// A send that is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// No room.
    Full,
    /// Stream mode has no place for the caller's immediate data.
    Immediate,
    /// Nor for an RDMA WRITE.
    Write,
    /// 2^31 bytes or more, or some in a local element.
    Length,
}

/// Where credits come from.
pub trait Credits {
    /// Size of the next credit.
    fn next_size(&self) -> Option<u32>;
    /// Uses the next credit for at most `remaining` bytes: (bytes, number).
    fn use_next(&mut self, remaining: u32) -> Option<(u32, u32)>;
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Credits for Reader<ROOM, LIST, BITS> {
    fn next_size(&self) -> Option<u32> {
        self.peek(0).map(|(_, size)| size)
    }

    fn use_next(&mut self, remaining: u32) -> Option<(u32, u32)> {
        self.take(remaining).map(|(len, number, _)| (len, number))
    }
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Credits for Taker<ROOM, LIST, BITS> {
    fn next_size(&self) -> Option<u32> {
        self.reader().next_size()
    }

    fn use_next(&mut self, remaining: u32) -> Option<(u32, u32)> {
        self.take(remaining).map(|(len, number, _)| (len, number))
    }
}

/// A peer without credit lists: the requester sees to it that there is a receive, whatever its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unlisted;

impl Credits for Unlisted {
    fn next_size(&self) -> Option<u32> {
        Some(u32::MAX)
    }

    fn use_next(&mut self, remaining: u32) -> Option<(u32, u32)> {
        Some((remaining, 0))
    }
}

/// Sends in, pieces out: the same for both implementations.
pub trait Cut {
    /// Posts a send.
    ///
    /// # Errors
    /// See [`Refused`]; nothing is changed.
    fn post(&mut self, send: Send) -> Result<(), Refused>;

    /// What is next. `None`: nothing to send, or no credit, in which case the data is held (CR-3).
    fn poll(&mut self, credits: &mut impl Credits) -> Option<Out>;

    /// Bytes posted and not cut into pieces that were given out, saturating (CR-9).
    fn remaining(&self) -> u32;
}

/// A queue of at most `N` elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queue<T, const N: usize> {
    items: [Option<T>; N],
    head: usize,
    len: usize,
}

impl<T: Copy, const N: usize> Queue<T, N> {
    const fn new() -> Self {
        const { assert!(N > 0) };
        Self { items: [None; N], head: 0, len: 0 }
    }

    fn is_full(&self) -> bool {
        self.len >= N
    }

    fn push(&mut self, item: T) -> bool {
        if self.is_full() {
            return false;
        }
        self.items[(self.head + self.len) % N] = Some(item);
        self.len += 1;
        true
    }

    fn front(&mut self) -> Option<&mut T> {
        self.items[self.head % N].as_mut()
    }

    fn pop(&mut self) -> Option<T> {
        let item = self.items[self.head % N].take()?;
        self.len = self.len.saturating_sub(1);
        // An empty queue is the same whatever went through it.
        self.head = if self.len == 0 { 0 } else { (self.head + 1) % N };
        Some(item)
    }
}

/// What both implementations have in common: sends in order, and how the oldest is cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cutter<const SENDS: usize> {
    mode: Mode,
    sends: Queue<Send, SENDS>,
    /// Bytes of the oldest send that are cut.
    offset: u32,
    /// Bytes that are not cut.
    backlog: u64,
}

impl<const SENDS: usize> Cutter<SENDS> {
    const fn new(mode: Mode) -> Self {
        Self { mode, sends: Queue::new(), offset: 0, backlog: 0 }
    }

    fn post(&mut self, send: Send) -> Result<(), Refused> {
        if send.len >> 31 != 0 || (send.local && send.len != 0) {
            return Err(Refused::Length);
        }
        if self.mode == Mode::Stream && send.immediate.is_some() {
            return Err(Refused::Immediate);
        }
        if self.mode == Mode::Stream && send.write {
            return Err(Refused::Write);
        }
        if !self.sends.push(send) {
            return Err(Refused::Full);
        }
        self.backlog = self.backlog.saturating_add(send.len as u64);
        Ok(())
    }

    fn remaining(&self) -> u32 {
        u32::try_from(self.backlog).unwrap_or(u32::MAX)
    }

    fn next(&mut self, credits: &mut impl Credits) -> Option<Out> {
        let send = *self.sends.front()?;
        let rest = send.len.saturating_sub(self.offset);
        if send.local || (self.mode == Mode::Stream && send.len == 0) {
            self.sends.pop();
            return Some(Out::Empty(send.id));
        }
        if send.write {
            let credit = match send.immediate {
                Some(_) => Some(credits.use_next(0)?.1),
                None => None,
            };
            self.backlog = self.backlog.saturating_sub(send.len as u64);
            self.sends.pop();
            return Some(Out::Write { id: send.id, credit });
        }
        let size = credits.next_size()?;
        if self.mode == Mode::Message && !rule::holds(Rule::MessageFitsCredit, send.len <= size) {
            self.backlog = self.backlog.saturating_sub(send.len as u64);
            self.sends.pop();
            return Some(Out::TooLong(send.id));
        }
        let (len, credit) = credits.use_next(rest)?;
        self.backlog = self.backlog.saturating_sub(len as u64);
        let offset = self.offset;
        let last = len >= rest;
        match last {
            true => {
                self.offset = 0;
                self.sends.pop();
            }
            false => self.offset += len,
        }
        let immediate = match self.mode {
            Mode::Stream => Some(self.remaining()),
            Mode::Message => send.immediate,
        };
        Some(Out::Piece(Piece { id: send.id, offset, len, credit, last, immediate }))
    }
}

/// The card cuts (CR-15, the default): sends of any size wait in its queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NicCut<const SENDS: usize>(Cutter<SENDS>);

impl<const SENDS: usize> NicCut<SENDS> {
    /// An empty queue.
    pub const fn new(mode: Mode) -> Self {
        Self(Cutter::new(mode))
    }
}

impl<const SENDS: usize> Cut for NicCut<SENDS> {
    fn post(&mut self, send: Send) -> Result<(), Refused> {
        self.0.post(send)
    }

    fn poll(&mut self, credits: &mut impl Credits) -> Option<Out> {
        self.0.next(credits)
    }

    fn remaining(&self) -> u32 {
        self.0.remaining()
    }
}

/// The library cuts (CR-15): it reads the credits, and posts descriptors already cut to size, at
/// most `DESCRIPTORS` ahead, to a card that sends each against one credit as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LibraryCut<const SENDS: usize, const DESCRIPTORS: usize> {
    cutter: Cutter<SENDS>,
    /// The card's send queue, with the bytes that each element takes from the backlog.
    posted: Queue<(Out, u32), DESCRIPTORS>,
    /// Bytes in it.
    queued: u64,
}

impl<const SENDS: usize, const DESCRIPTORS: usize> LibraryCut<SENDS, DESCRIPTORS> {
    /// Empty queues.
    pub const fn new(mode: Mode) -> Self {
        Self { cutter: Cutter::new(mode), posted: Queue::new(), queued: 0 }
    }

    /// The library's part: posts descriptors for the credits that there are; gives how many.
    pub fn cut(&mut self, credits: &mut impl Credits) -> u32 {
        let mut bound = Bound::new(DESCRIPTORS as u32 + 1);
        let mut count = 0;
        while !self.posted.is_full() {
            bound.step();
            let before = self.cutter.backlog;
            let Some(out) = self.cutter.next(credits) else {
                break;
            };
            let len = before.saturating_sub(self.cutter.backlog);
            self.queued += len;
            self.posted.push((out, len as u32));
            count += 1;
        }
        count
    }

    /// The card's part: the next descriptor, as it is.
    pub fn descriptor(&mut self) -> Option<Out> {
        let (out, len) = self.posted.pop()?;
        self.queued = self.queued.saturating_sub(len as u64);
        Some(out)
    }
}

impl<const SENDS: usize, const DESCRIPTORS: usize> Cut for LibraryCut<SENDS, DESCRIPTORS> {
    fn post(&mut self, send: Send) -> Result<(), Refused> {
        self.cutter.post(send)
    }

    fn poll(&mut self, credits: &mut impl Credits) -> Option<Out> {
        self.cut(credits);
        let mut out = self.descriptor()?;
        // Elements posted after the cut are still to be sent, too.
        if let (Mode::Stream, Out::Piece(piece)) = (self.cutter.mode, &mut out) {
            piece.immediate = Some(self.remaining());
        }
        Some(out)
    }

    fn remaining(&self) -> u32 {
        u32::try_from(self.cutter.backlog.saturating_add(self.queued)).unwrap_or(u32::MAX)
    }
}

/// The parts of a gather list, (address, bytes) each, in which `len` bytes from byte `offset` on
/// lie: what a piece, or a packet of it, is read from.
pub fn gather(list: &[(u64, u32)], offset: u32, len: u32) -> impl Iterator<Item = (u64, u32)> + '_ {
    let (mut skip, mut left) = (offset, len);
    list.iter().filter_map(move |(address, bytes)| {
        let passed = skip.min(*bytes);
        skip -= passed;
        let take = (bytes - passed).min(left);
        left -= take;
        (take > 0).then(|| (address.wrapping_add(passed as u64), take))
    })
}
