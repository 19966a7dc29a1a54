// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A byte stream over one queue pair, with owned memory.
//!
//! A [`Stream`] takes buffers or ranges of mapped files to send and gives them back when the peer has acknowledged
//! them. It owns one mapping for receives, posts pieces of it, and lends them out when data has come. In message mode a
//! piece is a message, and the stream takes memory for READs and WRITEs too.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use berth_abi::wqe::{MAX_MESSAGE, MAX_SGE, Sge};
use berth_queue::Remote;

use crate::context::Context;
use crate::cq::{Completion, CompletionQueue};
use crate::error::{Error, Result};
use crate::mapping::{Buffer, FileMap, Mapping, whole_pages};
use crate::qp::{Atomic, QpConfig, QueuePair, WorkRequest};
use crate::region::ProtectionDomain;
use crate::wait::Deadline;

/// Longest range of one scatter/gather element that this layer makes.
pub const MAX_SGE_BYTES: usize = 1 << 30;

/// Alignment of receive buffers of a page or more; smaller ones are packed tightly.
const PAGE: usize = 4096;

/// Memory to be sent, or to be filled by a READ or an atomic.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendBlock {
    /// The whole of an owned buffer.
    Buffer(Buffer),
    /// A range of a mapped file.
    File(Arc<FileMap>, Range<usize>),
}

impl SendBlock {
    fn range(&self) -> Result<(u64, usize)> {
        match self {
            Self::Buffer(b) => Ok((b.mapping().as_ptr() as u64, b.len())),
            Self::File(map, range) => {
                if range.start > range.end || range.end > map.len() {
                    return Err(Error::Invalid { what: "send a range of a file" });
                }
                Ok((map.address() + range.start as u64, range.len()))
            }
        }
    }

    /// Keeps the memory mapped for good: the card could still read it.
    fn leak(self) {
        match self {
            Self::Buffer(buffer) => buffer.leak(),
            Self::File(map, _) => {
                // One reference too many: the last user does not unmap it.
                std::mem::forget(map);
            }
        }
    }
}

impl From<Buffer> for SendBlock {
    fn from(buffer: Buffer) -> Self {
        Self::Buffer(buffer)
    }
}

/// A send, WRITE, READ or atomic that is done: its bytes are in their place.
#[derive(Debug)]
pub struct Sent {
    /// The memory, to be used again.
    pub block: SendBlock,
    /// The completion.
    pub completion: Completion,
}

/// Splits a range so that no part is longer than `max`; at most [`MAX_SGE`] parts.
fn split(va: u64, len: usize, max: usize) -> Option<Vec<Sge>> {
    let parts = len.div_ceil(max);
    (parts <= MAX_SGE).then(|| {
        (0..parts)
            .map(|n| Sge { va: va + (n * max) as u64, len: (len - n * max).min(max) as u32, reserved: 0 })
            .collect()
    })
}

/// First-in, first-out places in a mapping. Buffers of a page or more are page-aligned, smaller ones packed.
#[derive(Debug)]
struct Arena {
    size: usize,
    /// Places in use, oldest first; none is empty.
    used: VecDeque<Range<usize>>,
}

impl Arena {
    fn new(size: usize) -> Self {
        Self { size, used: VecDeque::new() }
    }

    fn allocate(&mut self, len: usize) -> Option<Range<usize>> {
        // An empty buffer takes a byte, so that no two places start at one address.
        let need = len.max(1);
        let align = if len >= PAGE { PAGE } else { 1 };
        let start = match (self.used.front(), self.used.back()) {
            (Some(oldest), Some(newest)) => {
                let behind = newest.end.next_multiple_of(align);
                let wrapped = newest.end <= oldest.start;
                let end = if wrapped { oldest.start } else { self.size };
                if need <= end.saturating_sub(behind) {
                    behind
                } else if !wrapped && need <= oldest.start {
                    0
                } else {
                    return None;
                }
            }
            _ if need <= self.size => 0,
            _ => return None,
        };
        self.used.push_back(start..start + need);
        Some(start..start + len)
    }

    /// As if the last place had not been allocated.
    fn take_back_newest(&mut self) {
        self.used.pop_back();
    }

    fn free_oldest(&mut self) -> Option<Range<usize>> {
        self.used.pop_front()
    }
}

/// A connection's two byte streams over one queue pair (CR-14), with owned memory.
#[derive(Debug)]
pub struct Stream {
    qp: QueuePair,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    /// Sends with the card, oldest first, by number of the element.
    sends: VecDeque<(u64, SendBlock)>,
    next_send: u64,
    /// Receive buffers lie in it.
    memory: ManuallyDrop<Mapping>,
    arena: Arena,
    /// Receives with the card, oldest first: the element's number and place, its completion if it has come.
    recvs: VecDeque<(u64, Range<usize>, Option<Completion>)>,
    next_recv: u64,
}

impl Stream {
    /// A stream that is not connected yet, with `recv_bytes` of pageable memory for its receive buffers.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::Invalid`], [`Error::TooManyReads`], [`Error::Os`] when there is no such memory.
    pub fn new(context: &Context, config: &QpConfig, recv_bytes: usize) -> Result<Self> {
        Self::make(context, None, config, recv_bytes)
    }

    /// As [`Stream::new`], but its peer may use the keys of a protection domain of this context.
    ///
    /// # Errors
    /// As [`Stream::new`].
    pub fn in_domain(
        context: &Context,
        domain: &ProtectionDomain,
        config: &QpConfig,
        recv_bytes: usize,
    ) -> Result<Self> {
        Self::make(context, Some(domain), config, recv_bytes)
    }

    fn make(
        context: &Context,
        domain: Option<&ProtectionDomain>,
        config: &QpConfig,
        recv_bytes: usize,
    ) -> Result<Self> {
        let what = "allocate receive buffers";
        let size = whole_pages(recv_bytes).ok_or(Error::Invalid { what })?;
        let memory = Mapping::anonymous(size).map_err(|source| Error::Os { what, source })?;
        let send_cq = context.create_cq(config.send_depth.next_power_of_two())?;
        let recv_cq = context.create_cq(config.recv_depth.next_power_of_two())?;
        let qp = match domain {
            Some(domain) => domain.create_qp(&send_cq, &recv_cq, config),
            None => context.create_qp(&send_cq, &recv_cq, config),
        }?;
        Ok(Self {
            qp,
            send_cq,
            recv_cq,
            sends: VecDeque::new(),
            next_send: 0,
            arena: Arena::new(memory.len()),
            memory: ManuallyDrop::new(memory),
            recvs: VecDeque::new(),
            next_recv: 0,
        })
    }

    /// The queue pair, to connect it, or to accept a request with it.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.qp
    }

    /// Whether another block may be sent now.
    pub fn has_send_room(&self) -> bool {
        self.qp.send_free() > 0
    }

    /// Blocks to be sent that are with the card.
    pub fn sends_outstanding(&self) -> usize {
        self.sends.len()
    }

    /// Receive buffers that are with the card.
    pub fn recvs_outstanding(&self) -> usize {
        self.recvs.len()
    }

    /// Sends a block. Nothing is copied, but a buffer of few bytes, which goes in its element; the card pins what it is
    /// about to send (VC-2). No system call.
    ///
    /// # Errors
    /// [`Error::QueueFull`] and [`Error::TooMuchOutstanding`]: take completed blocks with [`Stream::next_sent`] first.
    /// [`Error::MessageTooLong`] for 2 GiB or more.
    pub fn send(&mut self, block: impl Into<SendBlock>, push: bool) -> Result<()> {
        self.post(block.into(), WorkRequest { push, ..WorkRequest::default() })
    }

    /// Writes a block to memory of the peer (RDMA WRITE; in message mode). [`Stream::next_sent`] gives it back.
    ///
    /// # Errors
    /// As [`Stream::send`]; [`Error::RemoteInStream`].
    pub fn write(&mut self, block: impl Into<SendBlock>, to: Remote) -> Result<()> {
        self.post(block.into(), WorkRequest { remote: Some(to), ..WorkRequest::default() })
    }

    /// Fills a buffer with memory of the peer (RDMA READ; in message mode). [`Stream::next_sent`] gives it back.
    ///
    /// # Errors
    /// As [`Stream::send`]; [`Error::RemoteInStream`].
    pub fn read(&mut self, into: Buffer, from: Remote) -> Result<()> {
        self.post(into.into(), WorkRequest { source: Some(from), ..WorkRequest::default() })
    }

    /// Changes 8 bytes of the peer's memory (in message mode); the buffer, of 8 bytes, gets what stood there.
    /// [`Stream::next_sent`] gives it back.
    ///
    /// # Errors
    /// As [`Stream::send`]; [`Error::RemoteInStream`], [`Error::NotOfAtomic`].
    pub fn atomic(&mut self, into: Buffer, at: Remote, atomic: Atomic) -> Result<()> {
        self.post(into.into(), WorkRequest { atomic: Some((at, atomic)), ..WorkRequest::default() })
    }

    /// Posts an element of the kind of `request` for a block.
    fn post(&mut self, block: SendBlock, request: WorkRequest<'_>) -> Result<()> {
        let (va, len) = block.range()?;
        let sges = split(va, len, MAX_SGE_BYTES).ok_or(Error::MessageTooLong(len as u64))?;
        let wr_id = self.next_send;
        // A file's pages may be gone, which only the card finds out.
        let fits = matches!(block, SendBlock::Buffer(_)) && len <= self.qp.max_inline_data();
        let inline = fits && request.source.is_none() && request.atomic.is_none();
        // SAFETY: the block is kept in `sends`, which gives it out only after its completion, or after the queue pair
        // has gone when we are dropped. A file's content may be changed by others; nobody holds a reference to it. What
        // a READ or an atomic fills is an owned buffer.
        unsafe { self.qp.post_send(&[WorkRequest { wr_id, sges: &sges, inline, ..request }]) }?;
        self.next_send += 1;
        self.sends.push_back((wr_id, block));
        Ok(())
    }

    fn give_back(&mut self, completion: Completion) -> Result<Sent> {
        let at = self
            .sends
            .iter()
            .position(|(id, _)| *id == completion.wr_id)
            .ok_or(Error::BadCompletion { qpn: completion.qpn })?;
        let (_, block) = self.sends.remove(at).expect("position is inside");
        Ok(Sent { block, completion })
    }

    /// Waits for a block to be sent and acknowledged, and gives it back; `None` when none is with the card.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DeviceLost`]; a send that failed is not an error here: see [`Sent::completion`].
    pub fn next_sent(&mut self, timeout: Option<Duration>) -> Result<Option<Sent>> {
        if self.sends.is_empty() {
            return Ok(None);
        }
        let completion = self.send_cq.wait(timeout)?;
        self.give_back(completion).map(Some)
    }

    /// Gives back a block that is done, if there is one. No system call.
    ///
    /// # Errors
    /// [`Error::BadCompletion`].
    pub fn try_next_sent(&mut self) -> Result<Option<Sent>> {
        match self.send_cq.poll()? {
            Some(completion) => self.give_back(completion).map(Some),
            None => Ok(None),
        }
    }

    /// Posts receive buffers of these sizes with one doorbell, as many from the start of the list as there is room for
    /// in the queue and the memory; answers how many. No system call.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`] for a size of 2 GiB or more, [`Error::TooMuchOutstanding`]; none of them is posted then.
    pub fn post_recv(&mut self, sizes: &[usize]) -> Result<usize> {
        if let Some(len) = sizes.iter().find(|&&len| len > MAX_MESSAGE as usize) {
            return Err(Error::MessageTooLong(*len as u64));
        }
        let mut places = Vec::new();
        for &len in sizes.iter().take(self.qp.recv_free() as usize) {
            let Some(place) = self.arena.allocate(len) else { break };
            places.push(place);
        }
        let sges: Vec<_> = places
            .iter()
            .map(|place| {
                // SAFETY: the place lies inside the memory.
                let va = unsafe { self.memory.as_ptr().add(place.start) } as u64;
                split(va, place.len(), MAX_SGE_BYTES).expect("2 GiB are two parts")
            })
            .collect();
        let requests: Vec<_> = (self.next_recv..)
            .zip(&sges)
            .map(|(wr_id, sges)| WorkRequest { wr_id, sges, ..WorkRequest::default() })
            .collect();
        if !requests.is_empty() {
            // SAFETY: places in use overlap nothing and are lent out (`Piece`) only after their completion; the memory
            // lives until the queue pair has gone.
            if let Err(error) = unsafe { self.qp.post_recv(&requests) } {
                // None of them is posted.
                places.iter().for_each(|_| self.arena.take_back_newest());
                return Err(error);
            }
        }
        let posted = places.len();
        self.recvs.extend((self.next_recv..).zip(places).map(|(wr_id, place)| (wr_id, place, None)));
        self.next_recv += posted as u64;
        Ok(posted)
    }

    /// Waits for the oldest receive buffer to be done, and lends it out; `None` when none is with the card. Its memory
    /// is free again when the piece is dropped.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DeviceLost`], [`Error::Completion`] when that buffer failed (flushed when the
    /// connection has ended).
    pub fn next_piece(&mut self, timeout: Option<Duration>) -> Result<Option<Piece<'_>>> {
        let deadline = Deadline::new(timeout);
        loop {
            match self.recvs.front() {
                None => return Ok(None),
                Some((_, _, Some(_))) => break,
                Some((_, _, None)) => {
                    let completion = self.recv_cq.inner.wait(deadline)?;
                    self.note(completion)?;
                }
            }
        }
        let (_, place, completion) = self.recvs.pop_front().expect("looked at above");
        let completion = completion.expect("looked at above");
        if let Err(error) = completion.ok() {
            self.arena.free_oldest();
            return Err(error);
        }
        let len = (completion.byte_len as usize).min(place.len());
        Ok(Some(Piece { stream: self, place: place.start..place.start + len, completion }))
    }

    /// Whether [`Stream::next_piece`] would not have to wait. No system call.
    ///
    /// # Errors
    /// [`Error::BadCompletion`].
    pub fn is_piece_ready(&mut self) -> Result<bool> {
        while let Some(completion) = self.recv_cq.poll()? {
            self.note(completion)?;
        }
        Ok(self.recvs.front().is_some_and(|(_, _, completion)| completion.is_some()))
    }

    fn note(&mut self, completion: Completion) -> Result<()> {
        let slot = self
            .recvs
            .iter_mut()
            .find(|(id, _, done)| *id == completion.wr_id && done.is_none())
            .ok_or(Error::BadCompletion { qpn: completion.qpn })?;
        slot.2 = Some(completion);
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.qp.destroy() {
            // SAFETY: dropped once, here; the card has released it.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        } else {
            // The card may still read it.
            self.sends.drain(..).for_each(|(_, block)| block.leak());
        }
    }
}

/// Received bytes, lent out by a [`Stream`].
#[derive(Debug)]
pub struct Piece<'a> {
    stream: &'a mut Stream,
    place: Range<usize>,
    completion: Completion,
}

impl Piece<'_> {
    /// Bytes that the sender still had to send after this piece (CR-9); `u32::MAX` means at least that.
    pub fn remaining(&self) -> u32 {
        self.completion.remaining
    }

    /// The completion.
    pub fn completion(&self) -> &Completion {
        &self.completion
    }
}

impl Deref for Piece<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the place lies inside the memory, its element has completed, and it is not posted again before we
        // are dropped (we borrow the stream).
        unsafe { std::slice::from_raw_parts(self.stream.memory.as_ptr().add(self.place.start), self.place.len()) }
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.stream.arena.free_oldest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_random::{Rng, seed};

    #[test]
    fn long_range_is_split_into_at_most_seven() {
        let sges = split(0x1000, 25, 10).unwrap();
        let got: Vec<_> = sges.iter().map(|s| (s.va, s.len)).collect();
        assert_eq!(got, [(0x1000, 10), (0x100a, 10), (0x1014, 5)]);
        assert_eq!(split(0, 0, 10).unwrap().len(), 0);
        assert!(split(0, 71, 10).is_none());
        assert_eq!(split(0, 70, 10).unwrap().len(), 7);
    }

    #[test]
    fn arena_packs_small_and_aligns_large_buffers() {
        let mut arena = Arena::new(4 * PAGE);
        assert_eq!(arena.allocate(3), Some(0..3));
        assert_eq!(arena.allocate(7), Some(3..10));
        assert_eq!(arena.allocate(PAGE), Some(PAGE..2 * PAGE));
        assert_eq!(arena.allocate(2 * PAGE), Some(2 * PAGE..4 * PAGE));
        assert_eq!(arena.allocate(1), None);
        assert_eq!(arena.free_oldest(), Some(0..3));
        assert_eq!(arena.allocate(4), None);
        assert_eq!(arena.allocate(3), Some(0..3));
        assert_eq!(arena.allocate(0), None);
    }

    /// Places in use never overlap, whatever the sizes; a seed in `BERTH_SEED` repeats a run.
    #[test]
    fn arena_places_never_overlap() {
        let mut rng = Rng(seed(1));
        let mut random = move |below: usize| rng.below(below as u64) as usize;
        let mut arena = Arena::new(16 * PAGE);
        let mut live: VecDeque<Range<usize>> = VecDeque::new();
        for _ in 0..20_000 {
            if random(5) < 3 {
                let len = match random(4) {
                    0 => 0,
                    1 => 1 + random(100),
                    2 => PAGE * (1 + random(4)),
                    _ => random(3 * PAGE),
                };
                if let Some(place) = arena.allocate(len) {
                    assert_eq!(place.len(), len);
                    assert!(place.end <= arena.size);
                    assert!(len < PAGE || place.start.is_multiple_of(PAGE));
                    for other in &live {
                        assert!(
                            place.is_empty()
                                || other.is_empty()
                                || place.end <= other.start
                                || other.end <= place.start,
                            "{place:?} overlaps {other:?}"
                        );
                    }
                    live.push_back(place);
                } else {
                    assert!(!live.is_empty(), "{len} bytes must fit an empty arena");
                }
            } else {
                let freed = arena.free_oldest();
                assert_eq!(freed.map(|p| p.start), live.pop_front().map(|p| p.start));
            }
        }
    }
}
