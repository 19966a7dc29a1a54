// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two queue pairs of message mode, and the memory that they send from and receive into.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use berth_abi::wqe::Sge;
use berth_credits::queue_pairs::{DEPTHS, Done, EXTRA, Nic, Request};
use berth_credits::transport::{Error as CreditError, Failure};

use crate::context::Context;
use crate::cq::{Completion, CompletionQueue, Status};
use crate::error::{Error, Result};
use crate::mapping::{Mapping, whole_pages};
use crate::memory::SendMemory;
use crate::qp::{Mode, QpConfig, QueuePair, WorkRequest};

/// Most completions that are taken at a time.
const TAKEN: usize = 64;

/// Memory that the card may read and write while this process does: all of it is atomics.
#[derive(Debug)]
struct Bytes {
    mapping: ManuallyDrop<Mapping>,
    len: usize,
}

impl Bytes {
    fn new(len: usize) -> Result<Self> {
        let what = "allocate memory of a connection";
        let pages = whole_pages(len).ok_or(Error::Invalid { what })?;
        let mapping = Mapping::anonymous(pages).map_err(|source| Error::Os { what, source })?;
        Ok(Self { mapping: ManuallyDrop::new(mapping), len })
    }

    fn all(&self) -> &[AtomicU8] {
        // SAFETY: the mapping is at least `len` bytes, initialised by the kernel, lives as long as the slice, and is used as
        // atomics alone.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().cast(), self.len) }
    }

    fn range(&self, at: usize, len: u32) -> io::Result<Sge> {
        let part = self.all().get(at..).and_then(|bytes| bytes.get(..len as usize));
        let part = part.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Sge { va: part.as_ptr() as u64, len, reserved: 0 })
    }

    /// Unmaps it. Without this it stays.
    fn free(&mut self) {
        // SAFETY: only `drop` of what owns this calls it, once; slices of it are gone by then.
        unsafe { ManuallyDrop::drop(&mut self.mapping) }
    }
}

/// The card's side of a [`Pairs`](berth_credits::queue_pairs::Pairs).
#[derive(Debug)]
pub struct Card {
    data: QueuePair,
    control: QueuePair,
    queue: CompletionQueue,
    bytes: Bytes,
    long: Option<Bytes>,
    completions: Vec<Completion>,
}

impl Card {
    /// Queue pairs that are not connected, with `memory` bytes to receive into.
    pub(super) fn new(context: &Context, memory: u32) -> Result<Self> {
        let queue = context.create_cq(2 * DEPTHS.iter().sum::<u32>())?;
        let [data, control] = DEPTHS.map(|depth| {
            let (mode, memory) = (Mode::Message, SendMemory::PIN);
            let (send_depth, recv_depth, reads, peer_reads) = (depth, depth, 0, 0);
            let config = QpConfig { mode, memory, send_depth, recv_depth, reads, peer_reads, ..QpConfig::default() };
            context.create_qp(&queue, &queue, &config)
        });
        let bytes = Bytes::new(memory as usize + EXTRA)?;
        Ok(Self { data: data?, control: control?, queue, bytes, long: None, completions: Vec::new() })
    }

    /// The queue pair of data, and that of messages about credits.
    pub(super) fn pairs(&self) -> [&QueuePair; 2] {
        [&self.data, &self.control]
    }

    fn post(&mut self, request: Request, range: Sge, immediate: u32) -> io::Result<()> {
        let pair = if request == Request::Message { &mut self.control } else { &mut self.data };
        let sges = if range.len == 0 { &[][..] } else { &[range] };
        let request = WorkRequest { wr_id: request.id(), sges, immediate: Some(immediate), ..WorkRequest::default() };
        // SAFETY: the range is ours, and stays until the queue pair is gone (`drop`). All of it may change at any time.
        unsafe { pair.post_send(&[request]) }.map_err(io::Error::other)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let gone = [self.data.destroy(), self.control.destroy()];
        if gone == [true; 2] {
            self.bytes.free();
            self.long.iter_mut().for_each(Bytes::free);
        }
    }
}

/// How a request ended.
fn result(completion: &Completion) -> std::result::Result<(), CreditError> {
    let failure = match completion.status {
        Status::Ok => return Ok(()),
        Status::TooLong => Failure::TooLong,
        Status::RetryExceeded => Failure::NoAnswer,
        Status::NotReady => Failure::ReceiverNotReady,
        Status::RemoteError | Status::RemoteAccess | Status::RemoteRequest => Failure::Refused,
        // That of `ibv_wc_status`.
        Status::LocalProtection | Status::Withdrawn => Failure::Other(4),
        Status::Flushed => Failure::Other(5),
        _ => Failure::Other(21),
    };
    Err(CreditError::Failed(failure))
}

fn done(completion: &Completion) -> Option<Done> {
    let request = Request::of(completion.wr_id)?;
    let (len, immediate) = (completion.byte_len, completion.immediate.unwrap_or(0));
    let result = match result(completion) {
        // The peer's keys let it write nothing, so it is a receive of no bytes.
        Ok(()) if completion.recv && completion.write => Err(CreditError::BadMedium),
        result => result,
    };
    Some(Done { request, result, len, immediate })
}

impl Nic for Card {
    fn bytes(&self) -> &[AtomicU8] {
        self.bytes.all()
    }

    fn receive(&mut self, request: Request, at: usize, len: u32) -> io::Result<()> {
        let pair = if request == Request::Receive { &mut self.data } else { &mut self.control };
        let range = [self.bytes.range(at, len)?];
        let request = WorkRequest { wr_id: request.id(), sges: &range, ..WorkRequest::default() };
        // SAFETY: as in `post`.
        unsafe { pair.post_recv(&[request]) }.map_err(io::Error::other)
    }

    fn send(&mut self, request: Request, at: usize, len: u32, immediate: u32) -> io::Result<()> {
        let range = self.bytes.range(at, len)?;
        self.post(request, range, immediate)
    }

    fn long(&mut self, len: u32) -> io::Result<&[AtomicU8]> {
        let new = Bytes::new(len as usize).map_err(io::Error::other)?;
        // The piece that the last one was for is done.
        self.long.iter_mut().for_each(Bytes::free);
        Ok(self.long.insert(new).all())
    }

    fn send_long(&mut self, immediate: u32) -> io::Result<()> {
        let long = self.long.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let range = long.range(0, long.len as u32)?;
        self.post(Request::LongPiece, range, immediate)
    }

    fn done(&mut self, into: &mut Vec<Done>) -> io::Result<()> {
        while self.queue.poll_into(TAKEN, &mut self.completions).map_err(io::Error::other)? == TAKEN {}
        into.extend(self.completions.drain(..).filter_map(|completion| done(&completion)));
        Ok(())
    }

    fn closed(&mut self) -> bool {
        !self.pairs().iter().all(|pair| matches!(pair.wait_closed(Some(Duration::ZERO)), Err(Error::Timeout(_))))
    }
}
