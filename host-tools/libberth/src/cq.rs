// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completion queues.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use berth_abi::wqe::{self, Cqe};
use berth_abi::{ioctl, status};
use berth_queue::{Completions, Entry, QpProgress, ring_fits};

use crate::context::Inner;
use crate::error::{Error, Reason, Result};
use crate::mapping::Mapping;
use crate::sys;
use crate::wait::{Deadline, For, Waited};

/// How an element ended (`WC_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Ok,
    /// The element is malformed.
    BadWqe,
    /// Its memory cannot be used: unmapped, no access, kernel address, special mapping.
    LocalProtection,
    /// It does not fit the pinned-memory budget, however long one waits.
    OverBudget,
    /// Its memory was unmapped before the data came.
    Withdrawn,
    /// The peer did not answer.
    RetryExceeded,
    /// The queue pair went into error, or its connection ended, before.
    Flushed,
    /// The peer refused.
    RemoteError,
    /// Message mode: the credit is smaller than the message.
    TooLong,
    /// The host had no memory to bring its pages in.
    NoMemory,
    /// The peer's key does not allow the access (QP-11).
    RemoteAccess,
    /// The queue pair's protection domain has no such key, or the range or right to be bound cannot be (QP-4).
    Bind,
    /// The peer, which is no Berth, had no receive however often it was tried ([`ForeignPeer`](crate::ForeignPeer)).
    NotReady,
    /// The peer takes no such request: longer than its receive, or of a kind that its queue pair does not serve.
    RemoteRequest,
    /// A value that this library does not know.
    Other(u8),
}

impl From<u8> for Status {
    fn from(value: u8) -> Self {
        match value {
            status::WC_OK => Self::Ok,
            status::WC_BAD_WQE => Self::BadWqe,
            status::WC_LOCAL_PROTECTION => Self::LocalProtection,
            status::WC_OVER_BUDGET => Self::OverBudget,
            status::WC_WITHDRAWN => Self::Withdrawn,
            status::WC_RETRY_EXCEEDED => Self::RetryExceeded,
            status::WC_FLUSHED => Self::Flushed,
            status::WC_REMOTE_ERROR => Self::RemoteError,
            status::WC_TOO_LONG => Self::TooLong,
            status::WC_NO_MEMORY => Self::NoMemory,
            status::WC_REMOTE_ACCESS => Self::RemoteAccess,
            status::WC_BIND => Self::Bind,
            status::WC_RNR_RETRY => Self::NotReady,
            status::WC_REMOTE_REQUEST => Self::RemoteRequest,
            other => Self::Other(other),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ok => "done",
            Self::BadWqe => "the queue element is malformed",
            Self::LocalProtection => {
                "local protection error (memory unmapped, not accessible, or of a kind that cannot be pinned)"
            }
            Self::OverBudget => {
                "larger than the pinned-memory budget (post smaller buffers, or raise it with `berth limits --budget`)"
            }
            Self::Withdrawn => "its memory was unmapped before the data came",
            Self::RetryExceeded => "the peer does not answer",
            Self::Flushed => "flushed: the connection ended before",
            Self::RemoteError => "the peer refused",
            Self::TooLong => "longer than the peer's receive buffer",
            Self::NoMemory => "the host had no memory to bring its pages in",
            Self::RemoteAccess => "the peer's key does not allow this (unknown, used up, wrong range or right)",
            Self::Bind => "the key is none of the protection domain's, or its range or right cannot be",
            Self::NotReady => "the peer has no receive, however often it is tried",
            Self::RemoteRequest => "the peer takes no such request (longer than its receive, or of another kind)",
            Self::Other(n) => return write!(f, "unknown status {n}"),
        })
    }
}

/// One completed element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's number of the element.
    pub wr_id: u64,
    /// QPN of its queue pair.
    pub qpn: u32,
    /// How it ended.
    pub status: Status,
    /// Whether it is a receive (else a send).
    pub recv: bool,
    /// Whether it is an RDMA WRITE; of a receive: whether a peer's WRITE has used it, which leaves its buffer as it was.
    pub write: bool,
    /// Whether it is an RDMA READ.
    pub read: bool,
    /// Whether it is an atomic; its ranges have what stood there before.
    pub atomic: bool,
    /// Bytes moved; of a receive: bytes in its buffer, which may be fewer than its size (CR-2).
    pub byte_len: u32,
    /// Stream mode: bytes that the sender still had to send after this piece (CR-9); `u32::MAX` means at least that.
    pub remaining: u32,
    /// Message mode: the immediate that the sender gave (receives).
    pub immediate: Option<u32>,
    /// Message mode: the key that the sender has invalidated (receives). No peer can use it any more, and all that it has let
    /// in is over.
    pub invalidated: Option<u32>,
    /// Number of the credit that the piece used (receives).
    pub credit: u32,
    /// The element sends nothing ([`WorkRequest::local`](crate::WorkRequest::local)).
    pub local: bool,
    /// The sender asked to push (IW-6).
    pub push: bool,
}

impl Completion {
    fn new(Entry { cqe, recv, message, .. }: Entry) -> Self {
        let carried = (cqe.flags & wqe::CQE_IMMEDIATE != 0).then_some(cqe.remaining);
        Self {
            wr_id: cqe.wr_id,
            qpn: cqe.qpn,
            status: cqe.status.into(),
            recv,
            write: cqe.opcode == wqe::OP_WRITE,
            read: cqe.opcode == wqe::OP_READ,
            atomic: matches!(cqe.opcode, wqe::OP_CMP_SWAP | wqe::OP_FETCH_ADD),
            byte_len: cqe.byte_len,
            remaining: carried.filter(|_| !message).unwrap_or(0),
            immediate: carried.filter(|_| message),
            invalidated: (cqe.flags & wqe::CQE_INVALIDATED != 0).then_some(cqe.remaining),
            credit: if recv { cqe.credit } else { 0 },
            local: matches!(cqe.opcode, wqe::OP_NOP | wqe::OP_DELAY | wqe::OP_BIND),
            push: cqe.flags & wqe::CQE_PUSH != 0,
        }
    }

    /// The completion itself if it is good.
    ///
    /// # Errors
    /// [`Error::Completion`].
    pub fn ok(self) -> Result<Self> {
        match self.status {
            Status::Ok => Ok(self),
            status => Err(Error::Completion { wr_id: self.wr_id, status }),
        }
    }
}

#[derive(Debug)]
pub(crate) struct CqInner {
    state: Waited<Completions>,
    // Declared before `context`: unmapped while the descriptor is open.
    _mapping: Mapping,
    event_fd: OwnedFd,
    /// Identity of the completion queue: a later one may have its number.
    identity: u64,
    capacity: u32,
    context: Arc<Inner>,
}

impl CqInner {
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// Notes a queue pair that has just been made. An earlier one with its number is gone, but may not have been
    /// detached yet.
    pub(crate) fn attach(&self, qpn: u32, progress: &Arc<QpProgress>) {
        let mut state = self.state.lock();
        warn_of(state.attach(qpn, progress));
        state.tell(self.context.doorbells());
    }

    /// Forgets a queue pair that is gone, with its completions, unless a later one has its number already.
    pub(crate) fn detach(&self, qpn: u32, progress: &Arc<QpProgress>) {
        let mut state = self.state.lock();
        warn_of(state.detach(qpn, progress, |_| ()));
        state.tell(self.context.doorbells());
        // Threads that wait for its completions wait in vain.
        if state.is_watched() {
            sys::eventfd_signal(self.event_fd.as_fd());
        }
        self.state.wake();
    }

    #[cfg(test)]
    pub(crate) fn is_watched(&self) -> bool {
        self.state.lock().is_watched()
    }

    /// Runs `take`, which may take completions, and tells the card how many are taken, also when one matches no
    /// element.
    fn poll<T>(&self, take: impl FnOnce(&mut Completions) -> Result<T>) -> Result<T> {
        self.context.check_memory("poll a completion queue")?;
        let mut state = self.state.lock();
        let outcome = take(&mut state);
        state.tell(self.context.doorbells());
        outcome
    }

    pub(crate) fn wait(&self, deadline: Deadline) -> Result<Completion> {
        let what = "wait for a completion";
        self.context.check_memory(what)?;
        self.state.wait(
            deadline,
            |state| {
                if let Some(entry) = state.next()? {
                    state.tell(self.context.doorbells());
                    return Ok(Some(Completion::new(entry)));
                }
                self.context.check_lost()?;
                if state.is_deserted() {
                    // Nothing can complete.
                    return Err(Error::Closed { reason: Reason::LocalClose, private_data: vec![] });
                }
                Ok(None)
            },
            |state| {
                self.context.check_owner(what)?;
                state.arm(self.context.doorbells());
                Ok(())
            },
            |left| {
                // A reset of the card comes as a context event; nothing would complete then.
                let [cq, context] = sys::wait_readable([self.event_fd.as_fd(), self.context.event_fd()], left)
                    .map_err(|source| Error::Os { what, source })?;
                if cq {
                    sys::eventfd_take(self.event_fd.as_fd());
                }
                if context { self.context.drain() } else { Ok(()) }
            },
        )
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if !self.context.is_owned() {
            return;
        }
        let mut arg = ioctl::Handle { value: self.state.lock().cqn(), reserved: 0, identity: self.identity };
        if let Err(error) = self.context.ioctl("destroy a completion queue", ioctl::IOC_DESTROY_CQ, &mut arg)
            && !matches!(error, Error::DeviceLost | Error::NotFound { .. })
        {
            tracing::warn!(cqn = arg.value, %error, "completion queue not destroyed");
        }
    }
}

/// A completion queue, to be shared by any number of queue pairs and threads. Clones share it.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

impl CompletionQueue {
    pub(crate) fn new(context: &Arc<Inner>, capacity: u32, entries: u32) -> Result<Self> {
        let what = "make a completion queue";
        if capacity == 0 {
            return Err(Error::Invalid { what });
        }
        let event_fd = sys::eventfd().map_err(|source| Error::Os { what, source })?;
        let mut arg = ioctl::CreateCq { entries, event_fd: event_fd.as_raw_fd(), ..Default::default() };
        context.ioctl(what, ioctl::IOC_CREATE_CQ, &mut arg)?;
        let mapped = if ring_fits(arg.entries, arg.bytes, capacity) {
            Mapping::map_shared(context.fd(), arg.offset, arg.bytes as usize)
                .map_err(|source| Error::Os { what: "map a completion queue", source })
        } else {
            Err(Error::Firmware { what })
        };
        let mapping = match mapped {
            Ok(mapping) => mapping,
            Err(error) => {
                let mut handle = ioctl::Handle { value: arg.cqn, reserved: 0, identity: arg.identity };
                let _ = context.ioctl("destroy a completion queue", ioctl::IOC_DESTROY_CQ, &mut handle);
                return Err(error);
            }
        };
        let base = NonNull::new(mapping.as_ptr().cast::<Cqe>()).expect("a mapping is never null");
        // SAFETY: the mapping holds `entries` entries (checked above), is page-aligned, and lives beside the value.
        let completions = unsafe { Completions::new(base, arg.entries, capacity, arg.cqn) };
        Ok(Self {
            inner: Arc::new(CqInner {
                state: Waited::new(completions, For::Any),
                _mapping: mapping,
                event_fd,
                identity: arg.identity,
                capacity,
                context: Arc::clone(context),
            }),
        })
    }

    /// CQN.
    pub fn cqn(&self) -> u32 {
        self.inner.state.lock().cqn()
    }

    /// Completions that may wait to be polled.
    pub fn capacity(&self) -> u32 {
        self.inner.capacity
    }

    /// Takes one completion, if there is one. No system call.
    ///
    /// # Errors
    /// [`Error::BadCompletion`]; [`Error::NotPermitted`] in another process.
    pub fn poll(&self) -> Result<Option<Completion>> {
        self.inner.poll(|state| Ok(state.next()?.map(Completion::new)))
    }

    /// Takes at most `max` completions and appends them to `out`; answers how many. No system call.
    ///
    /// # Errors
    /// [`Error::BadCompletion`]; [`Error::NotPermitted`] in another process.
    pub fn poll_into(&self, max: usize, out: &mut Vec<Completion>) -> Result<usize> {
        self.inner.poll(|state| {
            let mut count = 0;
            while count < max
                && let Some(entry) = state.next()?
            {
                out.push(Completion::new(entry));
                count += 1;
            }
            Ok(count)
        })
    }

    /// Arms the notification: the next completion, or one that is there already, signals [`CompletionQueue::event_fd`]
    /// once. No system call.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] in another process.
    pub fn arm(&self) -> Result<()> {
        self.inner.context.check_memory("arm a completion queue")?;
        self.inner.state.lock().arm(self.inner.context.doorbells());
        Ok(())
    }

    /// eventfd that an armed notification signals, for `poll`/`epoll`. After it was readable: take its count, poll
    /// completions until there are none, arm, poll once more.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.event_fd.as_fd()
    }

    /// Waits for a completion and takes it: polls first, then sleeps at the eventfd. Any number of threads may wait, each
    /// for a completion of its own; they share the eventfd, so a program either waits here or sleeps there itself.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::DeviceLost`] when the card is reset or removed; [`Error::Closed`] when the last queue
    /// pair that completes here has been dropped, until another one is made; [`Error::NotPermitted`] in another process.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Completion> {
        self.inner.wait(Deadline::new(timeout))
    }
}

fn warn_of(unmatched: usize) {
    if unmatched != 0 {
        tracing::warn!(unmatched, "completions that fit no element dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_carries_the_fields_of_the_entry() {
        let cqe = Cqe {
            wr_id: 7,
            byte_len: 40,
            qpn: 16,
            status: status::WC_OK,
            opcode: wqe::OP_RECV,
            flags: wqe::CQE_PUSH | wqe::CQE_IMMEDIATE,
            remaining: 11,
            credit: 3,
            phase: wqe::PHASE,
        };
        let of = |cqe: Cqe, message| {
            Completion::new(Entry { cqe, recv: cqe.opcode == wqe::OP_RECV, message, marked: false })
        };
        let c = of(cqe, false);
        assert!(c.recv && c.push && c.ok().is_ok());
        assert_eq!((c.wr_id, c.qpn, c.byte_len, c.remaining, c.credit), (7, 16, 40, 11, 3));
        assert_eq!(c.immediate, None, "in a stream it is the card's");
        let message = of(cqe, true);
        assert_eq!((message.remaining, message.immediate), (0, Some(11)));
        assert_eq!(of(Cqe { flags: 0, ..cqe }, true).immediate, None);
        let invalidated = of(Cqe { flags: wqe::CQE_INVALIDATED, ..cqe }, true);
        assert_eq!((invalidated.invalidated, invalidated.immediate, invalidated.remaining), (Some(11), None, 0));
        assert_eq!(message.invalidated, None);
        let write = Cqe { opcode: wqe::OP_WRITE, ..cqe };
        let [received, sent] = [(wqe::CQE_IMMEDIATE, true), (0, false)].map(|(flags, recv)| {
            Completion::new(Entry { cqe: Cqe { flags, ..write }, recv, message: true, marked: false })
        });
        assert_eq!((received.recv, received.write, received.immediate), (true, true, Some(cqe.remaining)));
        assert_eq!((sent.recv, sent.write, sent.immediate, sent.byte_len), (false, true, None, cqe.byte_len));
        let read = of(Cqe { opcode: wqe::OP_READ, flags: 0, ..cqe }, true);
        assert_eq!((read.recv, read.write, read.read, read.byte_len), (false, false, true, cqe.byte_len));
        let delay = of(Cqe { opcode: wqe::OP_DELAY, flags: 0, ..cqe }, true);
        assert!(delay.local && !delay.recv && !read.local && delay.credit == 0);
        let bad = of(Cqe { status: status::WC_WITHDRAWN, ..cqe }, false);
        assert!(matches!(bad.ok(), Err(Error::Completion { wr_id: 7, status: Status::Withdrawn })));
    }

    #[test]
    fn eventfd_is_taken_once() {
        let fd = sys::eventfd().unwrap();
        assert_eq!(sys::eventfd_take(fd.as_fd()), 0);
        sys::eventfd_signal(fd.as_fd());
        sys::eventfd_signal(fd.as_fd());
        assert_eq!(sys::wait_readable([fd.as_fd()], None).unwrap(), [true]);
        assert_eq!(sys::eventfd_take(fd.as_fd()), 2);
        assert_eq!(sys::wait_readable([fd.as_fd()], Some(Duration::ZERO)).unwrap(), [false]);
    }
}
