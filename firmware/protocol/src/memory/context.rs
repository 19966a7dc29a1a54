// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual contexts (VC-1): a stream as a list of blocks that are contiguous in virtual
//! addresses only. Nothing here is pinned; a [`Chain`] says where the bytes of a stream lie.

use crate::base::bound::{Bound, at_most};
use crate::base::fifo::Fifo;

/// Bytes that lie together in the virtual addresses of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Virtual address of the first byte.
    pub va: u64,
    /// Bytes.
    pub len: u32,
}

/// How the bytes of a block come into the card for their first transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum First {
    /// Block by block, pinned when it comes within the window, unpinned when sent (VC-2, VC-3).
    #[default]
    Pin,
    /// Block by block, handed over as a copy into the card's memory; nothing is pinned (VC-6).
    Copy,
    /// The whole send is pinned when its first byte comes within the window, and unpinned
    /// when its last has been sent; its contexts stay (VC-7).
    All,
}

/// How they come for a retransmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Again {
    /// By virtual address, only what is not acknowledged, pinned for that time (VC-4).
    #[default]
    Pin,
    /// As a copy (VC-5).
    Copy,
}

/// A policy of VC-10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// For the first transmission.
    pub first: First,
    /// For retransmissions.
    pub again: Again,
}

/// What chooses the policy (VC-10), per connection or per send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// Per block, by its size: what was cheaper so far ([`crate::memory::blocks::Costs`]).
    #[default]
    Adaptive,
    /// Always this one.
    Fixed(Policy),
}

/// One virtual context: a block of a stream. The next one follows it in its [`Chain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// Virtual address that `offset` counts from.
    pub base: u64,
    /// Offset of the first byte from `base`. An address alone is a base with offset 0.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u32,
    /// Stream offset (sequence number) of the first byte.
    pub start: u64,
    /// Stream offset behind the last byte of the send that the context belongs to.
    pub send_end: u64,
    /// Policy of that send.
    pub choice: Choice,
}

impl Context {
    /// Virtual address of the first byte.
    pub const fn va(&self) -> u64 {
        self.base.wrapping_add(self.offset)
    }

    /// Stream offset behind the last byte.
    pub const fn end(&self) -> u64 {
        self.start.wrapping_add(self.len as u64)
    }
}

/// Where a block of a new context lies: {base, offset, length in bytes}.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Virtual address that `offset` counts from.
    pub base: u64,
    /// Offset of the first byte from `base`.
    pub offset: u64,
    /// Bytes. A place of 0 bytes is no context.
    pub len: u32,
}

impl Place {
    /// `len` bytes at virtual address `va`.
    pub const fn at(va: u64, len: u32) -> Self {
        Self { base: va, offset: 0, len }
    }
}

/// Why contexts were not taken. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainError {
    /// No room for so many contexts now; there will be when earlier ones are done.
    Full,
    /// An address or a stream offset would exceed 64 bits.
    BadRange,
}

/// The contexts of one stream, oldest first, `N` at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain<const N: usize> {
    contexts: Fifo<Context, N>,
    end: u64,
}

impl<const N: usize> Chain<N> {
    /// An empty chain whose first byte will have stream offset `first` (0, or where the
    /// transport's own numbers begin).
    pub fn new(first: u64) -> Self {
        Self { contexts: Fifo::new(), end: first }
    }

    /// Appends the blocks of one send (several for a gather list): stream offset of its first byte.
    ///
    /// # Errors
    /// [`ChainError`]; then nothing of the send was taken.
    pub fn push(&mut self, places: &[Place], choice: Choice) -> Result<u64, ChainError> {
        let wanted = places.iter().filter(|p| p.len > 0).fold(0_usize, |n, _| n.wrapping_add(1));
        if wanted > N.saturating_sub(self.contexts.len()) {
            return Err(ChainError::Full);
        }
        let start = self.end;
        let mut send_end = start;
        for p in at_most(N, places.iter().filter(|p| p.len > 0)) {
            let va = p.base.checked_add(p.offset).ok_or(ChainError::BadRange)?;
            va.checked_add(p.len as u64).ok_or(ChainError::BadRange)?;
            send_end = send_end.checked_add(p.len as u64).ok_or(ChainError::BadRange)?;
        }
        for p in at_most(N, places.iter().filter(|p| p.len > 0)) {
            let context = Context { base: p.base, offset: p.offset, len: p.len, start: self.end, send_end, choice };
            self.contexts.push(context);
            self.end = context.end();
        }
        Ok(start)
    }

    /// Forgets contexts that lie wholly below stream offset `offset`.
    pub fn trim(&mut self, offset: u64) {
        let mut bound = Bound::new(N as u32 + 1);
        while self.contexts.get(0).is_some_and(|c| c.end() <= offset) {
            bound.step();
            self.contexts.pop();
        }
    }

    /// Stream offset behind the last byte.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Stream offset of the first byte that the chain still knows ([`Chain::end`] if there is none).
    pub fn start(&self) -> u64 {
        self.contexts.get(0).map_or(self.end, |c| c.start)
    }

    /// The contexts, oldest first.
    pub fn contexts(&self) -> &[Context] {
        self.contexts.as_slice()
    }

    /// The context that the byte at `offset` lies in.
    pub fn find(&self, offset: u64) -> Option<&Context> {
        self.contexts().iter().find(|c| c.start <= offset && offset < c.end())
    }

    /// Where the bytes `start .. start + len` of the stream lie, in order. Bytes that the chain
    /// does not know are left out.
    pub fn spans(&self, start: u64, len: u64) -> impl Iterator<Item = Span> + Clone + '_ {
        let end = start.saturating_add(len);
        self.contexts().iter().filter_map(move |c| {
            let (from, to) = (start.max(c.start), end.min(c.end()));
            (from < to).then(|| Span { va: c.va().wrapping_add(from - c.start), len: (to - from) as u32 })
        })
    }

    /// Counts stream offsets from `by` on, at most [`Chain::start`].
    pub(crate) fn rebase(&mut self, by: u64) {
        for c in at_most(N, self.contexts.as_mut_slice()) {
            c.start = c.start.saturating_sub(by);
            c.send_end = c.send_end.saturating_sub(by);
        }
        self.end = self.end.saturating_sub(by);
    }

    /// The send that the byte at `offset` lies in goes on block by block (VC-2); how it is
    /// retransmitted stays.
    pub fn pin_by_block(&mut self, offset: u64) {
        let Some(send_end) = self.find(offset).map(|c| c.send_end) else {
            return;
        };
        for c in at_most(N, self.contexts.as_mut_slice().iter_mut().filter(|c| c.send_end == send_end)) {
            let again = match c.choice {
                Choice::Fixed(policy) => policy.again,
                Choice::Adaptive => Again::Pin,
            };
            c.choice = Choice::Fixed(Policy { first: First::Pin, again });
        }
    }

    /// Bytes from `offset` to the end of the send that it lies in; 0 outside the chain.
    pub fn rest_of_send(&self, offset: u64) -> u64 {
        self.find(offset).map_or(0, |c| c.send_end - offset)
    }
}

/// One copy that carries a part of a stream from one process to another (VC-11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Copy {
    /// Virtual address in the sender's address space.
    pub from: u64,
    /// Virtual address in the receiver's address space.
    pub to: u64,
    /// Bytes.
    pub len: u32,
    /// Stream offset of the first byte.
    pub start: u64,
}

/// Sender and receiver are processes of one host and no card is involved (VC-11): the same
/// contexts name the sender's blocks and the receiver's buffers, and bytes are copied from one
/// to the other; nothing is pinned.
///
/// The receiver's chain counts the same stream: its buffers are filled from stream offset 0 on
/// without gaps (stream mode; a piece may fill several buffers).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// First byte that no copy was given for.
    next: u64,
    /// First byte that has not arrived.
    done: u64,
}

impl Local {
    /// A transfer whose first byte has stream offset `first`.
    pub const fn new(first: u64) -> Self {
        Self { next: first, done: first }
    }

    /// The next copy of at most `most` bytes: as far as both sides have contexts, within one context of each. `None`
    /// when one of them has none.
    pub fn next<const S: usize, const R: usize>(&mut self, from: &Chain<S>, to: &Chain<R>, most: u32) -> Option<Copy> {
        let (s, r) = (from.find(self.next)?, to.find(self.next)?);
        let len = (s.end().min(r.end()) - self.next).min(most as u64) as u32;
        if len == 0 {
            return None;
        }
        let at = self.next;
        self.next += len as u64;
        Some(Copy { from: s.va().wrapping_add(at - s.start), to: r.va().wrapping_add(at - r.start), len, start: at })
    }

    /// The copies of the first `len` bytes given have been made. Both chains are trimmed.
    /// False when so many were not given; then nothing changes.
    pub fn copied<const S: usize, const R: usize>(&mut self, len: u64, from: &mut Chain<S>, to: &mut Chain<R>) -> bool {
        if len > self.next - self.done {
            return false;
        }
        self.done += len;
        from.trim(self.done);
        to.trim(self.done);
        true
    }

    /// A copy failed (the memory of one side is gone): bytes from `start` on are given again,
    /// or never if the connection ends now.
    pub fn failed(&mut self, start: u64) {
        self.next = self.next.min(start.max(self.done));
    }

    /// Stream offset behind the last byte that has arrived.
    pub const fn done(&self) -> u64 {
        self.done
    }
}
