// SPDX-License-Identifier: GPL-2.0
//! What a card consists of: its rings, lists and notes. Other files say what is done with them.

use crate::{abi::message::Entry, card::deadline::Deadline};
use kernel::{
    dma::Coherent,
    prelude::*,
    sync::{Arc, Completion, SpinLock},
    time::{Instant, Monotonic},
};

/// Most answers that wait: more than the card can have requests under way.
pub(crate) const MAX_ASKED: usize = 512;

/// A page request's answer that waits for room in the command ring.
pub(crate) struct Answer {
    pub(super) generation: u32,
    pub(super) entry: Entry,
}

/// Answers that wait, and until when.
pub(super) struct Answers {
    pub(super) list: KVec<Answer>,
    pub(super) deadline: Option<Deadline>,
}

/// Firmware commands in flight at most.
pub(super) const MAX_CALLS: usize = 256;

/// A firmware command in flight.
#[pin_data]
pub(super) struct Call {
    #[pin]
    pub(super) done: Completion,
    #[pin]
    pub(super) answer: SpinLock<Option<Result<Entry>>>,
    pub(super) cookie: u32,
    pub(super) destroys: u32,
}

pub(super) struct Calls {
    pub(super) list: KVec<(Arc<Call>, Option<Watched>)>,
    pub(super) next_cookie: u32,
}

/// What the watchdog has noted about a call.
pub(super) struct Watched {
    pub(super) cycles: u64,
    pub(super) moved: Instant<Monotonic>,
    pub(super) last: u64,
}

/// log2 of the entries of both rings.
pub(super) const RING_LOG2: u32 = 12;
/// Entries of both rings.
pub(super) const RING: u16 = 1 << RING_LOG2;

/// Command ring. The driver owns the entries from the consumer to the producer index
/// until the doorbell, the card those after it.
pub(super) struct CmdRing {
    pub(super) ring: Option<Coherent<[Entry]>>,
    pub(super) pi: u16,
    pub(super) ci: u16,
    /// Producer index that the card was told last.
    pub(super) rung: u16,
    /// Entry before the producer index.
    pub(super) last: Entry,
    /// Number of the firmware run that the ring was set up for.
    pub(super) generation: u32,
}

/// Event ring, read by the interrupt thread alone.
pub(crate) struct EventRing {
    pub(super) ring: Option<Coherent<[Entry]>>,
    pub(super) ci: u16,
}

/// Firmware that is loaded.
#[derive(Clone, Copy, Default)]
pub(crate) struct FwInfo {
    /// Version of the image.
    pub(crate) version: u32,
    /// Start of the SHA-256 of its ELF file.
    pub(crate) elf_id: [u32; 3],
}

/// Bytes of firmware log kept.
pub(super) const LOG_BYTES: usize = 65536;

pub(super) struct Log {
    pub(super) bytes: KVVec<u8>,
    pub(super) head: usize,
    pub(super) len: usize,
    pub(super) lost: u32,
}

pub(super) struct Heartbeat {
    pub(super) challenge: u32,
    pub(super) asked: Option<Deadline>,
}
