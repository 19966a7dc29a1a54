// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use berth_abi::wqe::{DELAY_CYCLES, MAX_INLINE, MAX_MESSAGE, SLOT_WORDS, Sge, Wqe};
use berth_abi::{card, ioctl, ring as abi_ring};
use berth_queue::{Data, Operation, Progress, QpProgress, Remote, Request, WorkQueue, gather, queues_fit};

use crate::cap::{Cap, Capped};
use crate::context::{Inner, PeerAccess};
use crate::cq::{CompletionQueue, CqInner};
use crate::error::{Error, Reason, Result};
use crate::mapping::Mapping;
use crate::memory::{Aliases, Ask, SendMemory, under};
use crate::region::{Access, ProtectionDomain};

/// When the next credit list is sent (CR-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// When data lands in the first buffer of the last list: fast senders, many credits outstanding.
    First,
    /// When data lands in its last buffer: slow senders, few messages.
    Last,
    /// When data lands in the buffer with this index (from 0; a shorter list counts its last).
    Between(u8),
    /// The first buffer while the card bounds what is pinned for receives, as for the following ones; else the one with this
    /// index.
    Unbounded(u8),
    /// When data lands in the buffer that lies this many quarters (0 to 3) into the last list.
    Quarters(u8),
    /// The buffer follows from how fast the sender uses its credits, which the card measures: the faster, the earlier (CR-6).
    Adaptive,
    /// At a time that follows from that: when the sender is about to run out of credits (CR-7).
    Timed,
    /// The same, with a filter that learns how the sender's speed changes (CR-8).
    Predictive,
    /// The card changes between five buffers, from the last to the first, as lists come too early or too late; in stream mode
    /// the sender also says how much it still has to send (CR-9).
    Auto,
}

impl Trigger {
    /// Kind and index.
    const fn to_abi(self) -> (u8, u8) {
        match self {
            Self::First => (abi_ring::TRIGGER_FIRST, 0),
            Self::Last => (abi_ring::TRIGGER_LAST, 0),
            Self::Between(n) => (abi_ring::TRIGGER_BETWEEN, n),
            Self::Unbounded(n) => (abi_ring::TRIGGER_UNBOUNDED, n),
            Self::Quarters(n) => (abi_ring::TRIGGER_QUARTERS, n),
            Self::Adaptive => (abi_ring::TRIGGER_ADAPTIVE, 0),
            Self::Timed => (abi_ring::TRIGGER_TIMED, 0),
            Self::Predictive => (abi_ring::TRIGGER_PREDICTIVE, 0),
            Self::Auto => (abi_ring::TRIGGER_AUTO, 0),
        }
    }
}

/// How sends fill receives (CR-17). Both ends of a connection have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A send may be cut over several receives.
    #[default]
    Stream,
    /// A send fills one receive, the oldest that the peer has announced. If that is too small the send completes with
    /// [`Status::TooLong`](crate::Status::TooLong) and nothing has left; the receive waits for the next one. A send of no
    /// bytes uses a receive too.
    Message,
}

impl Mode {
    pub(crate) fn from_abi(mode: u32) -> Self {
        if mode == abi_ring::MODE_MESSAGE.into() { Self::Message } else { Self::Stream }
    }
}

/// How the credit lists of a connection go to the peer's card (CR-12). The cards see to it, and a program notices nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// From control QP to control QP.
    #[default]
    Control,
    /// In the reverse direction of the connection.
    Reverse,
    /// As RDMA WRITEs to a window in the peer's card.
    Write,
}

impl Carrier {
    const fn to_abi(self) -> u8 {
        match self {
            Self::Control => abi_ring::CARRIER_CONTROL,
            Self::Reverse => abi_ring::CARRIER_REVERSE,
            Self::Write => abi_ring::CARRIER_WRITE,
        }
    }
}

/// Properties of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// How sends fill receives.
    pub mode: Mode,
    /// Elements of the send queue (1 to 4096, rounded up to a power of two).
    pub send_depth: u32,
    /// Elements of the receive queue (1 to 4096, rounded up to a power of two).
    pub recv_depth: u32,
    /// When the next credit list is sent.
    pub trigger: Trigger,
    /// Longest credit list (1 to 64; 0: as long as possible).
    pub max_list: u32,
    /// How the credit lists that this end sends go.
    pub carrier: Carrier,
    /// Virtual-context block in bytes (VC-2): a multiple of 4096 up to 1 MiB; 0: 64 KiB.
    pub block: u32,
    /// How the memory of sends reaches the card (VC-10), unless a send says otherwise. With [`SendMemory::PIN`] all is pinned;
    /// with one that always copies, or pins sends as a whole, it is an error if the driver has no room for copies, or no aliases.
    pub memory: SendMemory,
    /// Acknowledgement time-out in card cycles; 0: default.
    pub timeout: u32,
    /// Retries before the peer counts as lost; 0: default.
    pub retries: u32,
    /// RDMA READ requests that the queue pair may have under way (0 to [`MAX_READS`](card::MAX_READS), the default; what
    /// verbs call `max_rd_atomic`), each for one packet. Once connected they are no more than the peer's `peer_reads`;
    /// with 0 a READ completes with [`Status::BadWqe`](crate::Status::BadWqe). For message mode only.
    pub reads: u8,
    /// RDMA READ requests that the peer may have under way here (likewise; `max_dest_rd_atomic`); with 0 it can read nothing.
    /// For message mode only.
    pub peer_reads: u8,
}

impl Default for Trigger {
    /// The middle of a list: among the triggers that need no measurement the simulation found it best over fast, slow, bursty and changing senders (docs/results/simulation.md, question 2). On two cards it and `First` cost the same (docs/results/policies.md).
    fn default() -> Self {
        Self::Quarters(2)
    }
}

impl Default for QpConfig {
    fn default() -> Self {
        let trigger = Trigger::default();
        let reads = card::MAX_READS as u8;
        Self {
            mode: Mode::Stream,
            send_depth: 64,
            recv_depth: 64,
            trigger,
            max_list: 0,
            carrier: Carrier::default(),
            block: 0,
            memory: SendMemory::AUTO,
            timeout: 0,
            retries: 0,
            reads,
            peer_reads: reads,
        }
    }
}

/// One element to post: the caller's number, its ranges, and how to send them.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkRequest<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Gather or scatter list, at most 7 ranges; ranges of 0 bytes are legal and skipped.
    pub sges: &'a [Sge],
    /// Ask the receiver to return its buffer at once (IW-6); sends only.
    pub push: bool,
    /// Copy the ranges' data, at most [`QueuePair::max_inline_data`] bytes, into the element: the memory is the
    /// caller's again at once, the card asks for no page, and a single element that fits goes to the card with its doorbell.
    /// Sends only (what verbs call `IBV_SEND_INLINE`).
    pub inline: bool,
    /// A number that reaches the receive's completion with the message; in message mode only, and of sends only (what verbs
    /// call `IBV_WR_SEND_WITH_IMM`). The element then has room for 6 ranges.
    pub immediate: Option<u32>,
    /// A key of the peer's that ends with this message: when its receive completes, which names the key, nobody can use the
    /// key any more, and all that it has let in is over. In message mode only, of sends only, and in place of an immediate
    /// (what verbs call `IBV_WR_SEND_WITH_INV`). It must be one that the peer has bound by [`Local::Bind`], in the
    /// protection domain of its queue pair; else the connection ends. The element then has room for 6 ranges.
    pub invalidate: Option<u32>,
    /// Write the ranges' data to this memory of the peer instead of into a receive (RDMA WRITE); in message mode only, and of
    /// sends only. It uses no receive, and the peer does not notice, but with `immediate`: then a receive of the peer, whose
    /// buffer stays as it was, completes when all data are there. The element then has room for 6 ranges.
    pub remote: Option<Remote>,
    /// Read this memory of the peer into the ranges (RDMA READ); in message mode only, of sends only, and with none of the
    /// fields above but the number and the ranges. It uses no receive, and the peer does not notice. The element then has
    /// room for 6 ranges. What it reads is as it was at some time between this READ and its completion, packet by packet.
    pub source: Option<Remote>,
    /// Change 8 bytes of the peer's memory, whose address is a multiple of 8, and put what stood there into the ranges, which
    /// have 8 bytes (in message mode only, of sends only, and with none of the fields above but the number and the ranges).
    /// No other atomic of any queue pair of the peer's card comes between; other cards' and the peer's processors' may. It
    /// uses no receive, counts as a READ under way, and is carried out once. The element then has room for 5 ranges.
    pub atomic: Option<(Remote, Atomic)>,
    /// How the memory reaches the card, if not as the queue pair has it: sends and WRITEs only, of a queue pair that was not made
    /// with [`SendMemory::PIN`].
    pub memory: Option<SendMemory>,
    /// Begin when all RDMA READs and atomics before it are complete: sends only (what verbs call `IBV_SEND_FENCE`).
    pub fence: bool,
    /// No completion if it succeeds: sends only. Its memory and its place are the caller's again with the completion of one
    /// behind it, so that the last one of a queue's depth must be signalled.
    pub unsignalled: bool,
    /// Send nothing; sends only, and with none of the fields above but the number, `fence` and `unsignalled`.
    pub local: Option<Local>,
}

/// A change of 8 bytes, a number in the byte order of x86-64 (little endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// The number becomes `new` if it is `expected` (what verbs call `IBV_WR_ATOMIC_CMP_AND_SWP`).
    CompareSwap {
        /// What it must be.
        expected: u64,
        /// What it becomes.
        new: u64,
    },
    /// This is added to it, modulo 2^64 (`IBV_WR_ATOMIC_FETCH_AND_ADD`).
    FetchAdd(u64),
}

/// What an element does that sends nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// Nothing: it completes when those before it are complete (NOP).
    Nothing,
    /// Holds what is behind it for so many cycles of the card, of which the card rounds to 64, from when all before it has
    /// left for the first time (QP-5). So a process meters its own flow.
    Delay(u64),
    /// Binds a key, when all before it has left for the first time; what is behind it waits for that (QP-4).
    Bind(Binding),
}

/// What a key opens from the completion of its BIND on, and it opens nothing else: no access under its old binding is under
/// way then. 0 bytes at address 0 are nothing. A one-shot key is fresh again.
///
/// The card refuses a key that the queue pair's [`ProtectionDomain`](crate::ProtectionDomain) does not have, bytes that wrap
/// around, and bytes without a right; the queue pair is in error then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// That of a [`Region`](crate::Region), but for its lowest 8 bits, which are the process's to choose: it is the key that
    /// peers need from now on. Who guesses it needs to guess fewer bits.
    pub key: u32,
    /// Virtual address of the first byte.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// What peers may do.
    pub access: Access,
}

/// A queue pair of another host that speaks plain RoCEv2: what both hosts have told each other by themselves, as they do
/// for verbs' `modify_qp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignPeer {
    /// The host; the card's own address means loopback (QP-18).
    pub ip: Ipv4Addr,
    /// QPN there (3 to 2^24 - 1).
    pub qpn: u32,
    /// PSN of the first packet that goes there, up to 2^24 - 1 (what verbs call `sq_psn`).
    pub psn: u32,
    /// PSN of the first packet that comes from there (`rq_psn`).
    pub peer_psn: u32,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096, no more than the card's ([`Net::mtu`](crate::Net::mtu)).
    pub mtu: u32,
    /// Time for which the peer is to wait while there is no receive for it, as InfiniBand codes it: 1 (10 µs) to 31 (491 ms),
    /// and 0 (655 ms) (`min_rnr_timer`).
    pub rnr_timer: u8,
    /// How often in a row the peer may have no receive for a message before that completes with
    /// [`Status::NotReady`](crate::Status::NotReady): 0 to 6; 7: any number of times (`rnr_retry`).
    pub rnr_retries: u8,
}

impl ForeignPeer {
    /// Queue pair `qpn` of host `ip`: first PSNs 0, an MTU of 1024, a wait of 0.64 ms, any number of times.
    pub const fn new(ip: Ipv4Addr, qpn: u32) -> Self {
        Self { ip, qpn, psn: 0, peer_psn: 0, mtu: 1024, rnr_timer: 12, rnr_retries: abi_ring::RNR_FOR_EVER as u8 }
    }
}

impl WorkRequest<'_> {
    /// The card reads its ranges and does nothing else with them.
    const fn only_sends(&self) -> bool {
        !self.inline && self.source.is_none() && self.atomic.is_none() && self.local.is_none()
    }

    /// It names memory of the peer.
    const fn is_one_sided(&self) -> bool {
        self.remote.is_some() || self.source.is_some() || self.atomic.is_some()
    }
}

/// Asks the driver about the aliases of a queue pair.
struct Asking<'a> {
    context: &'a Inner,
    qpn: u32,
    identity: u64,
}

impl Ask for Asking<'_> {
    fn free(&mut self, first: u32, aliases: u32, pinned: u32) -> Result<u32> {
        let (qpn, identity) = (self.qpn, self.identity);
        let mut arg = ioctl::Aliases { qpn, first, aliases, pinned, identity, ..Default::default() };
        self.context.ioctl("use aliases again", ioctl::IOC_ALIASES, &mut arg)?;
        Ok(arg.copy_most)
    }

    fn whole(&mut self, alias: u32, ranges: &[Sge]) -> Result<()> {
        let (qpn, identity) = (self.qpn, self.identity);
        let mut arg = ioctl::Whole { qpn, alias, identity, ..Default::default() };
        for (range, place) in ranges.iter().filter(|range| range.len != 0).zip(&mut arg.range) {
            *place = *range;
            arg.ranges += 1;
        }
        self.context.ioctl("pin a send as a whole", ioctl::IOC_WHOLE, &mut arg)
    }
}

impl Local {
    /// What the card does; `None` if a delay is too long.
    fn operation(self) -> Option<Operation> {
        Some(match self {
            Self::Nothing => Operation::Nothing,
            Self::Delay(cycles) => {
                let units = cycles.div_ceil(DELAY_CYCLES.into());
                if units > MAX_MESSAGE.into() {
                    return None;
                }
                Operation::Delay(units)
            }
            Self::Bind(Binding { key, va, len, access }) => Operation::Bind { key, va, len, scope: access.scope() },
        })
    }
}

/// State of a queue pair's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QpStateKind {
    /// Made, not connected.
    Created,
    /// A connection is being made.
    Connecting,
    /// Connected.
    Connected,
    /// In error.
    Error,
    /// The connection is over.
    Closed,
    /// A value that this library does not know.
    Other(u32),
}

/// State of a queue pair as the card tells it.
#[derive(Clone, Copy, Debug)]
pub struct QpState {
    /// State of its connection.
    pub kind: QpStateKind,
    /// Why, when in error or closed.
    pub reason: Reason,
    /// Receives posted.
    pub posted: u32,
    /// Receives that are granted (pinned) now and not completed.
    pub granted: u32,
    /// Receives announced to the peer.
    pub announced: u32,
    /// Receives in which data has landed.
    pub landed: u32,
    /// Receives completed.
    pub completed: u32,
    /// Credits of the peer that are unused.
    pub credits: u32,
    /// Pieces sent and not acknowledged.
    pub pieces: u32,
    /// RDMA READ requests that the queue pair may have under way: when connected, as agreed with the peer.
    pub reads: u32,
}

impl QpState {
    fn new(s: &abi_ring::QpState) -> Self {
        let [posted, granted, announced, landed, completed] = s.receives;
        Self {
            kind: match s.state {
                0 => QpStateKind::Created,
                1 => QpStateKind::Connecting,
                2 => QpStateKind::Connected,
                3 => QpStateKind::Error,
                4 => QpStateKind::Closed,
                other => QpStateKind::Other(other),
            },
            reason: s.reason.into(),
            posted,
            granted,
            announced,
            landed,
            completed,
            credits: s.credits,
            pieces: s.pieces,
            reads: s.reads,
        }
    }
}

/// A queue pair: a send queue and a receive queue, mapped into this process (QP-1).
///
/// Dropping it ends its connection and returns when the card has released every posted buffer. Completions that were
/// not polled until then are dropped.
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) context: Arc<Inner>,
    progress: Arc<QpProgress>,
    send: WorkQueue,
    recv: WorkQueue,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    _mapping: Mapping,
    qpn: u32,
    /// Identity of the queue pair: a later one may have its number.
    identity: u64,
    /// Tags of sends by copy.
    aliases: Option<Aliases>,
    /// Bytes of the largest receive that has been posted.
    largest_recv: Arc<AtomicU32>,
    /// Set when the driver has destroyed it.
    destroyed: bool,
    /// Lasts as long as it.
    _domain: Option<ProtectionDomain>,
}

impl QueuePair {
    pub(crate) fn new(
        context: &Arc<Inner>,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        config: &QpConfig,
        domain: Option<&ProtectionDomain>,
    ) -> Result<Self> {
        let what = "make a queue pair";
        let reads = config.reads.max(config.peer_reads);
        if reads > card::MAX_READS as u8 {
            return Err(Error::TooManyReads(reads));
        }
        let (number, domain_identity) = domain.map_or((0, 0), ProtectionDomain::name);
        let (trigger, trigger_index) = config.trigger.to_abi();
        let mut arg = ioctl::CreateQp {
            send_cqn: send_cq.cqn(),
            recv_cqn: recv_cq.cqn(),
            send_cq: send_cq.inner.identity(),
            recv_cq: recv_cq.inner.identity(),
            sq_depth: config.send_depth,
            rq_depth: config.recv_depth,
            trigger: trigger.into(),
            trigger_index: trigger_index.into(),
            max_list: config.max_list,
            block: config.block,
            timeout: config.timeout,
            retries: config.retries,
            mode: match config.mode {
                Mode::Stream => abi_ring::MODE_STREAM.into(),
                Mode::Message => abi_ring::MODE_MESSAGE.into(),
            },
            domain: number,
            domain_identity,
            reads: config.reads.into(),
            peer_reads: config.peer_reads.into(),
            aliases: config.memory.abi(),
            carrier: config.carrier.to_abi().into(),
            ..Default::default()
        };
        context.ioctl(what, ioctl::IOC_CREATE_QP, &mut arg)?;
        let mapped = if check_queues(&arg, config) {
            Mapping::map_shared(context.fd(), arg.offset, arg.bytes as usize)
                .map_err(|source| Error::Os { what: "map a queue pair", source })
        } else {
            Err(Error::Firmware { what })
        };
        let mapping = match mapped {
            Ok(mapping) => mapping,
            Err(error) => {
                let _ = destroy(context, arg.qpn, arg.identity);
                return Err(error);
            }
        };
        let base = mapping.as_ptr();
        let send_base = NonNull::new(base.cast::<Wqe>()).expect("a mapping is never null");
        // SAFETY: `rq_start` lies inside the mapping (checked above).
        let recv_base = unsafe { base.add(arg.rq_start as usize) };
        let recv_base = NonNull::new(recv_base.cast::<Wqe>()).expect("a mapping is never null");
        // SAFETY: the mapping holds `sq_depth` elements from its start (checked above), and lives beside the queue.
        let send = unsafe { WorkQueue::new(send_base, arg.sq_depth) };
        // SAFETY: the mapping holds `rq_depth` elements from `rq_start`, behind the send queue (checked above).
        let recv = unsafe { WorkQueue::new(recv_base, arg.rq_depth) };
        let (sends, recvs) = (Progress::new(arg.sq_depth), Progress::new(arg.rq_depth));
        let progress = Arc::new(QpProgress { message: config.mode == Mode::Message, send: sends, recv: recvs });
        send_cq.inner.attach(arg.qpn, &progress);
        if !Arc::ptr_eq(&send_cq.inner, &recv_cq.inner) {
            recv_cq.inner.attach(arg.qpn, &progress);
        }
        context.know_qp(arg.identity);
        Ok(Self {
            context: Arc::clone(context),
            progress,
            send,
            recv,
            send_cq: Arc::clone(&send_cq.inner),
            recv_cq: Arc::clone(&recv_cq.inner),
            _mapping: mapping,
            qpn: arg.qpn,
            identity: arg.identity,
            destroyed: false,
            aliases: (arg.first_alias != 0).then(|| Aliases::new(config.memory, arg.first_alias)),
            largest_recv: Arc::default(),
            _domain: domain.cloned(),
        })
    }

    /// Where its queues are mapped.
    #[cfg(test)]
    pub(crate) fn mapping(&self) -> (*mut u8, usize) {
        (self._mapping.as_ptr(), self._mapping.len())
    }

    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// QPN.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Depth of the send queue.
    pub fn send_depth(&self) -> u32 {
        self.send.depth()
    }

    /// Depth of the receive queue.
    pub fn recv_depth(&self) -> u32 {
        self.recv.depth()
    }

    /// Sends that may be posted now.
    pub fn send_free(&self) -> u32 {
        self.send.free(&self.progress.send)
    }

    /// Receives that may be posted now.
    pub fn recv_free(&self) -> u32 {
        self.recv.free(&self.progress.recv)
    }

    /// Sends posted and not completed.
    pub fn sends_outstanding(&self) -> u32 {
        self.progress.send.outstanding()
    }

    /// Receives posted and not completed.
    pub fn recvs_outstanding(&self) -> u32 {
        self.progress.recv.outstanding()
    }

    /// Most bytes of a send with [`WorkRequest::inline`].
    pub fn max_inline_data(&self) -> usize {
        MAX_INLINE
    }

    /// Posts sends, all with one doorbell; none of them if there is an error. No system call.
    ///
    /// # Safety
    /// The memory of every range must stay what it is (not be freed, reused or changed) until the element's
    /// completion has been polled or the queue pair has been dropped. That of an inline send must be readable during
    /// the call.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::TooMuchOutstanding`], [`Error::TooManySges`], [`Error::MessageTooLong`],
    /// [`Error::InlineTooLong`], [`Error::ImmediateInStream`], [`Error::InvalidateInStream`], [`Error::NotOfInvalidate`],
    /// [`Error::RemoteInStream`], [`Error::NotOfRead`], [`Error::NotOfAtomic`], [`Error::NotOfLocal`],
    /// [`Error::NotPermitted`] in another process.
    pub unsafe fn post_send(&mut self, requests: &[WorkRequest<'_>]) -> Result<()> {
        self.context.check_memory("post a send")?;
        if !self.progress.message && requests.iter().any(|r| r.immediate.is_some()) {
            return Err(Error::ImmediateInStream);
        }
        if !self.progress.message && requests.iter().any(|r| r.invalidate.is_some()) {
            return Err(Error::InvalidateInStream);
        }
        if !self.progress.message && requests.iter().any(WorkRequest::is_one_sided) {
            return Err(Error::RemoteInStream);
        }
        let slot = match self.under_aliases(requests) {
            // SAFETY: as our caller's.
            None => unsafe { post(&mut self.send, &self.progress.send, true, requests) }?,
            Some(ranges) => {
                let requests = requests.iter().zip(&ranges).map(|(r, sges)| WorkRequest { sges, ..*r });
                let requests: Vec<_> = requests.collect();
                let at = self.send.producer();
                // SAFETY: as our caller's; ranges under aliases stand for theirs, and inline sends have none.
                let posted = unsafe { post(&mut self.send, &self.progress.send, true, &requests) };
                if let (Err(_), Some(aliases)) = (&posted, &mut self.aliases) {
                    aliases.take_back(at);
                }
                posted?
            }
        };
        self.ring_send(slot);
        Ok(())
    }

    /// For each request the ranges at which the card is to find its memory; `None` if all are the process's own.
    fn under_aliases<'a>(&mut self, requests: &[WorkRequest<'a>]) -> Option<Vec<Cow<'a, [Sge]>>> {
        let aliases = self.aliases.as_mut()?;
        let choosing = requests.iter().filter(|r| r.only_sends()).count() as u32;
        if requests.iter().all(|r| r.memory.is_none()) && aliases.pins(choosing) {
            return None;
        }
        let begin = self.send.producer();
        let completed = begin - u64::from(self.progress.send.outstanding());
        let mut asking = Asking { context: &self.context, qpn: self.qpn, identity: self.identity };
        let place = |(at, r): (u64, &WorkRequest<'a>)| match r.only_sends() {
            true => match aliases.place(r.memory, r.sges, (at, completed), &mut asking) {
                Some(alias) => Cow::Owned(under(alias, r.sges).collect()),
                None => Cow::Borrowed(r.sges),
            },
            false => Cow::Borrowed(r.sges),
        };
        Some((begin..).zip(requests).map(place).collect())
    }

    /// Posts receives, all with one doorbell: one batch, announced to the peer when all of it is pinned. None of them
    /// if there is an error. No system call.
    ///
    /// # Safety
    /// The memory of every range must not be accessed, freed or reused until the element's completion has been
    /// polled or the queue pair has been dropped.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    pub unsafe fn post_recv(&mut self, requests: &[WorkRequest<'_>]) -> Result<()> {
        self.context.check_memory("post a receive")?;
        // SAFETY: as our caller's.
        unsafe { post(&mut self.recv, &self.progress.recv, false, requests) }?;
        // Nobody else writes it. No sum overflows: they have been checked.
        let largest = requests.iter().map(|r| r.sges.iter().map(|s| s.len).sum()).max().unwrap_or(0);
        if largest > self.largest_recv.load(Ordering::Relaxed) {
            self.largest_recv.store(largest, Ordering::Relaxed);
        }
        self.ring_recv();
        Ok(())
    }

    fn ring_send(&mut self, slot: Option<[u64; SLOT_WORDS]>) {
        self.send.ring_send(self.context.doorbells(), self.qpn, slot);
    }

    fn ring_recv(&mut self) {
        self.recv.ring_recv(self.context.doorbells(), self.qpn);
    }

    /// Writes an element as it is and rings the doorbell. See [`crate::raw`].
    ///
    /// # Safety
    /// As [`QueuePair::post_send`], for whatever the card makes of the element.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::NotPermitted`] in another process.
    pub unsafe fn post_raw(&mut self, recv: bool, element: &Wqe) -> Result<()> {
        self.context.check_memory("post an element")?;
        if recv {
            self.recv.check(&self.progress.recv, 1, 0)?;
            self.recv.write(&self.progress.recv, element);
            self.ring_recv();
        } else {
            self.send.check(&self.progress.send, 1, 0)?;
            self.send.write(&self.progress.send, element);
            self.ring_send(None);
        }
        Ok(())
    }

    /// Writes `element` over all places of a queue without a doorbell, those included that the card has been told
    /// of: it must have taken its copy of them (decision 13). For tests.
    ///
    /// # Safety
    /// As [`QueuePair::post_send`], for whatever the card makes of the element.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] in another process.
    pub unsafe fn overwrite_raw(&mut self, recv: bool, element: &Wqe) -> Result<()> {
        self.context.check_memory("overwrite a queue")?;
        if recv {
            self.recv.overwrite(element)
        } else {
            self.send.overwrite(element)
        }
        Ok(())
    }

    /// Begins to connect to `service` of `peer`; the card's own address means loopback (QP-18).
    ///
    /// # Errors
    /// [`Error::Busy`] when the queue pair is connected, [`Error::PrivateDataTooLong`].
    pub fn start_connect(&self, peer: Ipv4Addr, service: u16, private_data: &[u8]) -> Result<()> {
        let (private, private_len) = private(private_data)?;
        let mut arg = ioctl::Connect {
            qpn: self.qpn,
            identity: self.identity,
            ipv4: peer.into(),
            service: service.into(),
            private_len,
            private,
        };
        self.context.ioctl("connect", ioctl::IOC_CONNECT, &mut arg)
    }

    /// Connects to `service` of `peer` and waits for the outcome; answers the private data of the accept.
    ///
    /// # Errors
    /// [`Error::Closed`] with the reason (rejected, no listener, unreachable); [`Error::Timeout`].
    pub fn connect(
        &self,
        peer: Ipv4Addr,
        service: u16,
        private_data: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>> {
        self.start_connect(peer, service, private_data)?;
        self.wait_established(timeout)
    }

    /// Gives the queue pair, which is of message mode, a peer that speaks plain RoCEv2 and is told nothing. The connection is
    /// there, for this end, when [`QueuePair::wait_established`] says so. A send then waits for the peer's receive instead of
    /// its credit, and [`Status::TooLong`](crate::Status::TooLong) is the peer's to find: the connection breaks.
    ///
    /// # Errors
    /// [`Error::Invalid`] also in stream mode, [`Error::Busy`] when the queue pair is connected.
    pub fn set_peer(&self, peer: &ForeignPeer) -> Result<()> {
        let mut arg = ioctl::SetPeer {
            qpn: self.qpn,
            identity: self.identity,
            ipv4: peer.ip.into(),
            peer_qpn: peer.qpn,
            psn: peer.psn,
            peer_psn: peer.peer_psn,
            mtu: peer.mtu,
            rnr_timer: peer.rnr_timer.into(),
            rnr_retries: peer.rnr_retries.into(),
        };
        self.context.ioctl("set a queue pair's peer", ioctl::IOC_SET_PEER, &mut arg)
    }

    /// Waits until the connection is there; answers the peer's private data. It may be asked again.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Timeout`], [`Error::DeviceLost`], [`Error::NotPermitted`] in another process.
    pub fn wait_established(&self, timeout: Option<Duration>) -> Result<Vec<u8>> {
        self.context.wait_established(self.identity, timeout)
    }

    /// Waits until the connection is over or the queue pair in error; answers why. It may be asked again.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DeviceLost`], [`Error::NotPermitted`] in another process.
    pub fn wait_closed(&self, timeout: Option<Duration>) -> Result<Reason> {
        self.context.wait_closed(self.identity, timeout)
    }

    /// What the peer wanted, when the connection has ended with [`Reason::Access`] or [`Reason::NoTarget`]; `None` if the card
    /// does not know, or before [`QueuePair::wait_closed`] has said so.
    pub fn refused_access(&self) -> Option<PeerAccess> {
        self.context.refused(self.identity)
    }

    /// Ends the connection; elements that are left complete as flushed.
    ///
    /// # Errors
    /// [`Error::Busy`] when there is no connection.
    pub fn disconnect(&self) -> Result<()> {
        let mut arg = ioctl::Handle { value: self.qpn, reserved: 0, identity: self.identity };
        self.context.ioctl("disconnect", ioctl::IOC_DISCONNECT, &mut arg)
    }

    /// Credit lists go by another trigger from the next one on; a connection may be there or not.
    ///
    /// # Errors
    /// [`Error::Os`] with `EINVAL` for more quarters than 3; [`Error::Firmware`], [`Error::DeviceLost`].
    pub fn set_trigger(&self, trigger: Trigger) -> Result<()> {
        let (trigger, index) = trigger.to_abi();
        let (trigger, trigger_index) = (trigger.into(), index.into());
        let (qpn, identity) = (self.qpn, self.identity);
        let mut arg = ioctl::SetTrigger { qpn, trigger, identity, trigger_index, reserved: 0 };
        self.context.ioctl("change a trigger", ioctl::IOC_SET_TRIGGER, &mut arg)
    }

    /// Sets the maximum bandwidth of what this queue pair receives, or ends it; a connection may be there or not. It begins with
    /// the whole burst saved; when it changes, what is saved stays. The peer gets no more credits than that (CR-10), but those
    /// that it has stay its own; a [`ForeignPeer`] is told that the receiver is not ready. It holds for sends, not for WRITEs
    /// and READs. A receive that is posted later and is larger than the burst becomes a credit alone, when the whole burst is
    /// saved, and what it has too much is paid for afterwards.
    ///
    /// # Errors
    /// [`Error::BurstTooSmall`] when a receive that was posted is larger than the burst; [`Error::Invalid`] for a rate that is
    /// less than the card counts, or a burst out of range; [`Error::Firmware`], [`Error::DeviceLost`].
    pub fn set_cap(&self, cap: Option<Cap>) -> Result<()> {
        self.capped().set(cap)
    }

    pub(crate) fn capped(&self) -> Capped {
        let (context, largest) = (Arc::clone(&self.context), Arc::clone(&self.largest_recv));
        Capped { context, qpn: self.qpn, identity: self.identity, largest }
    }

    /// State of the queue pair.
    ///
    /// # Errors
    /// [`Error::Firmware`], [`Error::DeviceLost`].
    pub fn state(&self) -> Result<QpState> {
        let mut arg = ioctl::QueryQp { qpn: self.qpn, identity: self.identity, ..Default::default() };
        self.context.ioctl("query a queue pair", ioctl::IOC_QUERY_QP, &mut arg)?;
        Ok(QpState::new(&arg.state))
    }

    /// Drops the queue pair; answers whether the buffers of its elements may be freed. If not, the card could not be told,
    /// and may still use them.
    pub fn end(mut self) -> bool {
        self.destroy()
    }

    /// Destroys the queue pair now; answers whether its buffers may be freed.
    pub(crate) fn destroy(&mut self) -> bool {
        if self.destroyed || !self.context.is_owned() {
            // In another process, whose memory the card does not use.
            return true;
        }
        let gone = match destroy(&self.context, self.qpn, self.identity) {
            // A lost device does no DMA any more: the driver has revoked everything.
            Ok(()) | Err(Error::DeviceLost | Error::NotFound { .. }) => true,
            Err(error) => {
                tracing::warn!(qpn = self.qpn, %error, "queue pair not destroyed");
                false
            }
        };
        self.destroyed = gone;
        self.send_cq.detach(self.qpn, &self.progress);
        self.recv_cq.detach(self.qpn, &self.progress);
        self.context.forget_qp(self.identity);
        gone
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.destroy();
    }
}

fn destroy(context: &Inner, qpn: u32, identity: u64) -> Result<()> {
    let mut arg = ioctl::Handle { value: qpn, reserved: 0, identity };
    context.ioctl("destroy a queue pair", ioctl::IOC_DESTROY_QP, &mut arg)
}

/// What the card is to do for a send.
fn operation(r: &WorkRequest<'_>) -> Result<Operation> {
    if !r.is_one_sided() && r.immediate.or(r.invalidate).is_none() && r.local.is_none() {
        return Ok(Operation::Send);
    }
    let remote = r.is_one_sided();
    let line = r.immediate.or(r.invalidate).is_some() || remote;
    if r.invalidate.is_some() && (r.immediate.is_some() || remote) {
        return Err(Error::NotOfInvalidate);
    }
    if r.source.is_some() && (r.immediate.is_some() || r.inline || r.push || r.remote.is_some()) {
        return Err(Error::NotOfRead);
    }
    if r.atomic.is_some() && (r.immediate.is_some() || r.inline || r.push || r.remote.or(r.source).is_some()) {
        return Err(Error::NotOfAtomic);
    }
    if let Some(local) = r.local {
        let more = line || r.inline || r.push || !r.sges.is_empty();
        return local.operation().filter(|_| !more).ok_or(Error::NotOfLocal);
    }
    Ok(match (r.atomic, r.source, r.remote, r.immediate, r.invalidate) {
        (Some((remote, Atomic::CompareSwap { expected, new })), ..) => Operation::CompareSwap { remote, expected, new },
        (Some((remote, Atomic::FetchAdd(number))), ..) => Operation::FetchAdd(remote, number),
        (_, Some(source), ..) => Operation::Read(source),
        (_, _, Some(remote), Some(immediate), _) => Operation::WriteImmediate(remote, immediate),
        (_, _, Some(remote), None, _) => Operation::Write(remote),
        (_, _, _, Some(immediate), _) => Operation::SendImmediate(immediate),
        (_, _, _, _, Some(key)) => Operation::SendInvalidate(key),
        _ => Operation::Send,
    })
}

/// Writes elements of sends, or of receives; answers the last one as it stands in a doorbell's slot, if its data are inline.
///
/// # Safety
/// The ranges of inline sends must be readable.
unsafe fn post(
    queue: &mut WorkQueue,
    progress: &Progress,
    sends: bool,
    requests: &[WorkRequest<'_>],
) -> Result<Option<[u64; SLOT_WORDS]>> {
    let room = match requests {
        // What is wrong with a single one is found when it becomes an element.
        [r] => ranges_length(r),
        _ => {
            let lengths = requests.iter().map(|r| length(r, sends));
            lengths.sum::<Result<u64>>()?
        }
    };
    let mut slot = None;
    for (n, r) in requests.iter().enumerate() {
        // SAFETY: as our caller's.
        let element = unsafe { element(r, sends) }?;
        if n == 0 {
            queue.check(progress, requests.len(), room)?;
        }
        slot = if r.inline && sends { element.slot() } else { None };
        queue.write(progress, &element);
    }
    Ok(slot)
}

/// What the card is to do.
#[inline]
fn does(r: &WorkRequest<'_>, sends: bool) -> Result<Operation> {
    if sends { operation(r) } else { Ok(Operation::Receive) }
}

/// Bytes of the ranges, whatever they are for.
#[inline]
fn ranges_length(r: &WorkRequest<'_>) -> u64 {
    r.sges.iter().map(|s| u64::from(s.len)).sum()
}

/// Bytes of a send, or of a receive, that can be posted.
fn length(r: &WorkRequest<'_>, sends: bool) -> Result<u64> {
    let operation = does(r, sends)?;
    if !(r.inline && sends) {
        return Ok(Request::new(r.wr_id, operation, Data::Ranges(r.sges)).length()?.into());
    }
    let length = ranges_length(r);
    if length > MAX_INLINE as u64 {
        return Err(Error::InlineTooLong { got: length, max: MAX_INLINE });
    }
    Ok(length)
}

/// The element of a send, or of a receive.
///
/// # Safety
/// The ranges of an inline send must be readable.
#[inline(always)]
unsafe fn element(r: &WorkRequest<'_>, sends: bool) -> Result<Wqe> {
    let operation = does(r, sends)?;
    let mut inline = [0; MAX_INLINE];
    let data = if r.inline && sends {
        let ranges = r.sges.iter().map(|s| (s.va, s.len as usize));
        // SAFETY: as our caller's.
        let len = unsafe { gather(ranges, &mut inline) }?;
        Data::Inline(&inline[..len])
    } else {
        Data::Ranges(r.sges)
    };
    let request =
        Request { push: r.push, fence: r.fence, unsignalled: r.unsignalled, ..Request::new(r.wr_id, operation, data) };
    Ok(request.element()?)
}

/// Private data as connection management carries it.
pub(crate) fn private(data: &[u8]) -> Result<([u8; abi_ring::PRIVATE_DATA], u32)> {
    let mut bytes = [0; abi_ring::PRIVATE_DATA];
    bytes.get_mut(..data.len()).ok_or(Error::PrivateDataTooLong(data.len()))?.copy_from_slice(data);
    Ok((bytes, data.len() as u32))
}

/// Whether the driver's answer describes queues that we can use.
fn check_queues(q: &ioctl::CreateQp, config: &QpConfig) -> bool {
    queues_fit(q.sq_depth, q.rq_depth, q.rq_start, q.bytes)
        && q.sq_depth >= config.send_depth
        && q.rq_depth >= config.recv_depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_abi::rows::recv;
    use berth_abi::wqe::{
        MAX_SGE, OP_BIND, OP_CMP_SWAP, OP_DELAY, OP_FETCH_ADD, OP_NOP, OP_READ, OP_SEND, OP_WRITE, SEND_FENCE,
        SEND_IMMEDIATE, SEND_INLINE, SEND_INVALIDATE, SEND_UNSIGNALLED, SLOT_INLINE, WQE_BYTES,
    };

    #[test]
    fn answer_with_overlapping_or_short_queues_is_refused() {
        let config = QpConfig { send_depth: 4, recv_depth: 3, ..QpConfig::default() };
        let good = ioctl::CreateQp { sq_depth: 4, rq_depth: 4, rq_start: 4096, bytes: 8192, ..Default::default() };
        assert!(check_queues(&good, &config));
        for bad in [
            ioctl::CreateQp { rq_start: 256, ..good },
            ioctl::CreateQp { rq_start: 4097, ..good },
            ioctl::CreateQp { bytes: 4096 + 511, ..good },
            ioctl::CreateQp { sq_depth: 2, ..good },
            ioctl::CreateQp { rq_depth: 3, ..good },
            ioctl::CreateQp { rq_start: u32::MAX - 3, ..good },
        ] {
            assert!(!check_queues(&bad, &config), "{bad:?}");
        }
    }

    /// A send queue of 8 places.
    fn sender() -> (Vec<Wqe>, WorkQueue, Progress) {
        let mut memory = vec![Wqe::default(); 8];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector is never resized and outlives the queue in every test.
        let queue = unsafe { WorkQueue::new(base, 8) };
        (memory, queue, Progress::new(8))
    }

    fn range(bytes: &[u8]) -> Sge {
        Sge { va: bytes.as_ptr() as u64, len: bytes.len() as u32, reserved: 0 }
    }

    #[test]
    fn inline_data_are_gathered_into_the_element_and_the_slot_is_its_start() {
        let (memory, mut queue, progress) = sender();
        for len in 0..=MAX_INLINE {
            let mut data: Vec<u8> = (0..len as u8).map(|n| 0x80 ^ n.wrapping_mul(37)).collect();
            let (head, tail) = data.split_at(len / 3);
            let sges = [range(head), range(&[]), range(tail)];
            let wr_id = 0x0102_0304_0506_0708;
            let request = WorkRequest { wr_id, sges: &sges, push: true, inline: true, ..Default::default() };
            // SAFETY: the ranges are live.
            let slot = unsafe { post(&mut queue, &progress, true, &[request]) }.unwrap();
            let sent = data.clone();
            // The memory is the caller's again.
            data.fill(0);
            let wqe = memory[len % 8];
            let words: Vec<u8> = slot.iter().flatten().flat_map(|w| w.to_le_bytes()).collect();
            // SAFETY: an element is 128 bytes without padding.
            let bytes = unsafe { std::slice::from_raw_parts((&raw const wqe).cast::<u8>(), WQE_BYTES as usize) };
            assert!(slot.is_none_or(|_| words == bytes[..56]), "the slot is the element's start");
            assert_eq!(slot.is_some(), len <= SLOT_INLINE);
            assert_eq!((bytes[0], bytes[1], wqe.num_sge, wqe.length), (OP_SEND, 3, 0, len as u32));
            assert_eq!(wqe.wr_id, 0x0102_0304_0506_0708);
            assert_eq!(bytes[16..16 + len], sent);
            assert!(progress.complete());
        }
    }

    #[test]
    fn an_immediate_stands_before_the_data_and_goes_with_the_doorbell_if_that_has_room() {
        let (memory, mut queue, progress) = sender();
        let data = [7; MAX_INLINE];
        for (len, fits) in [(0, true), (24, true), (25, false), (40, false), (MAX_INLINE, false)] {
            let sges = [range(&data[..len])];
            let request = WorkRequest { sges: &sges, inline: true, immediate: Some(0x1234_5678), ..Default::default() };
            let at = queue.producer() as usize;
            // SAFETY: the ranges are live.
            let slot = unsafe { post(&mut queue, &progress, true, &[request]) }.unwrap();
            let words = memory[at].words();
            assert_eq!((words[0] >> 8 & 0xff, words[2], words[3]), (6, 0, 0x1234_5678 << 32));
            assert_eq!(slot.map(|slot| slot.to_vec()), fits.then(|| words[..SLOT_WORDS].to_vec()));
            assert_eq!(words[4] as u8, if len == 0 { 0 } else { 7 });
        }
        let ranges = [range(&data[..1]); MAX_SGE];
        for (n, good) in [(MAX_SGE - 1, true), (MAX_SGE, false)] {
            let request = WorkRequest { sges: &ranges[..n], immediate: Some(1), ..Default::default() };
            // SAFETY: as above.
            let posted = unsafe { post(&mut queue, &progress, true, &[request]) };
            assert!(if good { posted.is_ok() } else { matches!(posted, Err(Error::TooManySges { got: 7, max: 6 })) });
        }
    }

    #[test]
    fn qp_4_a_key_to_invalidate_stands_where_the_immediate_does() {
        let (memory, mut queue, progress) = sender();
        let data = [7; MAX_INLINE];
        for inline in [false, true] {
            let sges = [range(&data[..24])];
            let request = WorkRequest { sges: &sges, inline, invalidate: Some(0xabcd_ef01), ..Default::default() };
            let at = queue.producer() as usize;
            // SAFETY: the ranges are live.
            let slot = unsafe { post(&mut queue, &progress, true, &[request]) }.unwrap();
            assert_eq!((memory[at].opcode, memory[at].flags & !SEND_INLINE), (OP_SEND, SEND_INVALIDATE));
            assert_eq!(memory[at].sge[0], Sge { va: 0, len: 0, reserved: 0xabcd_ef01 });
            assert_eq!(slot.is_some(), inline);
            let remote = Some(Remote { va: 0, key: 1 });
            for bad in [
                WorkRequest { immediate: Some(1), ..request },
                WorkRequest { remote, ..request },
                WorkRequest { source: remote, inline: false, ..request },
            ] {
                // SAFETY: as above.
                assert!(matches!(unsafe { post(&mut queue, &progress, true, &[bad]) }, Err(Error::NotOfInvalidate)));
            }
        }
        let request = WorkRequest { invalidate: Some(1), local: Some(Local::Nothing), ..Default::default() };
        // SAFETY: there are no ranges.
        assert!(matches!(unsafe { post(&mut queue, &progress, true, &[request]) }, Err(Error::NotOfLocal)));
    }

    #[test]
    fn qp_3_a_write_names_the_peers_memory_before_its_own() {
        let (memory, mut queue, progress) = sender();
        let data = [7; MAX_INLINE];
        let remote = Some(Remote { va: 0x0123_4567_89ab_cdef, key: 0xfedc_ba98 });
        for (immediate, inline) in [(None, false), (Some(0x1234_5678), false), (None, true), (Some(9), true)] {
            let sges = [range(&data[..9]), range(&data[9..24])];
            let at = queue.producer() as usize;
            let request = WorkRequest { wr_id: 5, sges: &sges, immediate, inline, remote, ..Default::default() };
            // SAFETY: the ranges are live.
            let slot = unsafe { post(&mut queue, &progress, true, &[request]) }.unwrap();
            let wqe = memory[at];
            assert_eq!((wqe.opcode, wqe.length, wqe.num_sge), (OP_WRITE, 24, if inline { 0 } else { 2 }));
            let line = Sge { va: 0x0123_4567_89ab_cdef, len: 0xfedc_ba98, reserved: immediate.unwrap_or(0) };
            assert_eq!(wqe.sge[0], line);
            assert_eq!(wqe.flags & SEND_IMMEDIATE != 0, immediate.is_some());
            assert_eq!(slot.is_some(), inline, "24 bytes and the line fit a doorbell's slot");
            assert!(inline || wqe.sge[1..3] == sges);
        }
        let ranges = [range(&data[..1]); MAX_SGE];
        for (n, good) in [(MAX_SGE - 1, true), (MAX_SGE, false)] {
            let request = WorkRequest { sges: &ranges[..n], remote, ..Default::default() };
            // SAFETY: as above.
            let posted = unsafe { post(&mut queue, &progress, true, &[request]) };
            assert!(if good { posted.is_ok() } else { matches!(posted, Err(Error::TooManySges { got: 7, max: 6 })) });
        }
        // A receive has no remote memory, so it has no meaning there.
        let request = WorkRequest { sges: &ranges, remote, ..Default::default() };
        // SAFETY: as above.
        unsafe { post(&mut queue, &progress, false, &[request]) }.unwrap();
    }

    #[test]
    fn qp_5_an_element_that_sends_nothing_has_nothing_to_send() {
        let (memory, mut queue, progress) = sender();
        let local = |local| WorkRequest { wr_id: 3, local: Some(local), ..Default::default() };
        for (request, wanted) in [
            (local(Local::Nothing), (OP_NOP, 0, 0)),
            (local(Local::Delay(0)), (OP_DELAY, 0, 0)),
            (WorkRequest { fence: true, ..local(Local::Delay(65)) }, (OP_DELAY, SEND_FENCE, 2)),
            (WorkRequest { unsignalled: true, ..local(Local::Delay(64 << 20)) }, (OP_DELAY, SEND_UNSIGNALLED, 1 << 20)),
        ] {
            let at = queue.producer() as usize;
            // SAFETY: there are no ranges.
            unsafe { post(&mut queue, &progress, true, &[request]) }.unwrap();
            assert_eq!((memory[at].opcode, memory[at].flags, memory[at].length), wanted);
        }
        let access = Access { one_shot: true, ..Access::WRITE };
        let bind = local(Local::Bind(Binding { key: 0xabcd_ef01, va: 5, len: 7 << 32 | 9, access }));
        let at = queue.producer() as usize;
        // SAFETY: as above.
        unsafe { post(&mut queue, &progress, true, &[bind]) }.unwrap();
        let scope = (recv::KeyScope { one_shot: 1, rights: recv::RIGHT_WRITE, ..recv::KeyScope::default() }).word();
        assert_eq!((memory[at].opcode, memory[at].num_sge, memory[at].length), (OP_BIND, scope as u16, 9));
        assert_eq!((memory[at].sge[0].va, memory[at].sge[0].len, memory[at].sge[0].reserved), (5, 0xabcd_ef01, 7));
        assert_eq!(memory[at].slot().as_ref(), memory[at].words().first_chunk());
        assert_eq!(queue.bytes(), 0, "no time is counted as bytes");
        let (data, somewhere) = ([0; 4], Some(Remote { va: 0, key: 1 }));
        let sges = [range(&data)];
        let nothing = local(Local::Nothing);
        for request in [
            WorkRequest { sges: &sges, ..nothing },
            WorkRequest { immediate: Some(1), ..nothing },
            WorkRequest { inline: true, ..nothing },
            WorkRequest { push: true, ..nothing },
            WorkRequest { remote: somewhere, ..nothing },
            WorkRequest { source: somewhere, ..nothing },
            local(Local::Delay(1 << 37)),
        ] {
            // SAFETY: the range is live.
            assert!(matches!(unsafe { post(&mut queue, &progress, true, &[request]) }, Err(Error::NotOfLocal)));
        }
    }

    #[test]
    fn qp_3_a_read_names_the_peers_memory_and_has_nothing_of_a_send() {
        let (memory, mut queue, progress) = sender();
        let data = [0; 64];
        let source = Some(Remote { va: 0x0123_4567_89ab_cdef, key: 0xfedc_ba98 });
        let sges = [range(&data[..9]), range(&data[9..24])];
        let at = queue.producer() as usize;
        let request = WorkRequest { wr_id: 5, sges: &sges, source, ..Default::default() };
        // SAFETY: the ranges are live.
        unsafe { post(&mut queue, &progress, true, &[request]) }.unwrap();
        let wqe = memory[at];
        assert_eq!((wqe.opcode, wqe.flags, wqe.length, wqe.num_sge), (OP_READ, 0, 24, 2));
        assert_eq!(wqe.sge[0], Sge { va: 0x0123_4567_89ab_cdef, len: 0xfedc_ba98, reserved: 0 });
        assert_eq!(wqe.sge[1..3], sges);
        let plain = WorkRequest { sges: &sges, source, ..Default::default() };
        for request in [
            WorkRequest { immediate: Some(1), ..plain },
            WorkRequest { inline: true, ..plain },
            WorkRequest { push: true, ..plain },
            WorkRequest { remote: source, ..plain },
        ] {
            // SAFETY: as above.
            assert!(matches!(unsafe { post(&mut queue, &progress, true, &[request]) }, Err(Error::NotOfRead)));
        }
        assert_eq!(queue.producer() as usize, at + 1);
    }

    #[test]
    fn qp_3_an_atomic_has_8_bytes_and_its_operands_behind_the_peers_memory() {
        let (memory, mut queue, progress) = sender();
        let data = [0; 64];
        let remote = Remote { va: 0x0123_4567_89ab_cde8, key: 0xfedc_ba98 };
        let sges = [range(&data[..3]), range(&data[3..8])];
        let [expected, new, number] = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888, u64::MAX];
        let of = |atomic| WorkRequest { sges: &sges, atomic: Some((remote, atomic)), ..Default::default() };
        let swap = Atomic::CompareSwap { expected, new };
        let at = queue.producer() as usize;
        // SAFETY: the ranges are live.
        unsafe { post(&mut queue, &progress, true, &[of(swap), of(Atomic::FetchAdd(number))]) }.unwrap();
        for (wqe, opcode, [operand, compare]) in
            [(memory[at], OP_CMP_SWAP, [new, expected]), (memory[at + 1], OP_FETCH_ADD, [number, 0])]
        {
            assert_eq!((wqe.opcode, wqe.flags, wqe.length, wqe.num_sge), (opcode, 0, 8, 2));
            let words = wqe.words();
            assert_eq!(words[2..6], [remote.va, remote.key.into(), operand, compare]);
            assert_eq!(wqe.sge[2..4], sges);
            assert_eq!(wqe.slot(), None);
        }
        let plain = of(swap);
        let off = Remote { va: remote.va + 4, ..remote };
        let [short, many] = [&sges[..1], &[sges[0], sges[1], range(&[]), range(&[]), range(&[]), range(&[])]];
        for request in [
            WorkRequest { immediate: Some(1), ..plain },
            WorkRequest { inline: true, ..plain },
            WorkRequest { push: true, ..plain },
            WorkRequest { remote: Some(remote), ..plain },
            WorkRequest { source: Some(remote), ..plain },
            WorkRequest { sges: short, ..plain },
            WorkRequest { atomic: Some((off, swap)), ..plain },
        ] {
            // SAFETY: as above.
            assert!(matches!(unsafe { post(&mut queue, &progress, true, &[request]) }, Err(Error::NotOfAtomic)));
        }
        // SAFETY: as above.
        let refused = unsafe { post(&mut queue, &progress, true, &[WorkRequest { sges: many, ..plain }]) };
        assert!(matches!(refused, Err(Error::TooManySges { got: 6, max: 5 })));
        assert_eq!(queue.producer() as usize, at + 2);
    }

    #[test]
    fn more_inline_data_than_fit_are_refused_and_nothing_is_posted() {
        let (_memory, mut queue, progress) = sender();
        let data = [1; MAX_INLINE + 1];
        let (few, many) = ([range(&data[..3])], [range(&data)]);
        let requests = [&few, &many].map(|sges| WorkRequest { wr_id: 1, sges, inline: true, ..Default::default() });
        // SAFETY: the ranges are live.
        let refused = unsafe { post(&mut queue, &progress, true, &requests) };
        assert!(matches!(refused, Err(Error::InlineTooLong { got: 65, max: MAX_INLINE })));
        assert_eq!(queue.producer(), 0);
        // A receive has no data, so the flag has no meaning. SAFETY: as above.
        assert_eq!(unsafe { post(&mut queue, &progress, false, &requests) }.unwrap(), None);
        assert_eq!(queue.producer(), 2);
    }

    #[test]
    fn private_data_is_at_most_32_bytes() {
        assert_eq!(private(b"").unwrap().1, 0);
        let (bytes, len) = private(&[7; 32]).unwrap();
        assert_eq!((bytes, len), ([7; 32], 32));
        assert!(matches!(private(&[0; 33]), Err(Error::PrivateDataTooLong(33))));
    }
}
