// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A context: the device bound to this process, its doorbell page and its events.

use std::collections::VecDeque;
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_abi::wqe::SLOT_WORDS;
use berth_abi::{card, host, ioctl};

use crate::cm::Listener;
use crate::cq::CompletionQueue;
use crate::device::{Device, open_node};
use crate::doorbell::{DOORBELL_PAGE, DoorbellPage};
use crate::error::{Error, Reason, Result};
use crate::qp::{Mode, QpConfig, QueuePair};
use crate::{ring, sys};

/// Something that happened to a context's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContextEvent {
    /// A peer asks for a connection.
    Request {
        /// Number of the request.
        id: u32,
        /// Service that it asks for.
        service: u32,
        /// The peer.
        peer: Ipv4Addr,
        /// Mode that the queue pair must have which accepts it.
        mode: Mode,
        /// Private data of the request.
        private_data: Vec<u8>,
    },
    /// A queue pair is connected.
    Established {
        /// QPN.
        qpn: u32,
        /// The peer.
        peer: Ipv4Addr,
        /// Private data of the accept.
        private_data: Vec<u8>,
    },
    /// A queue pair's connection is over, or did not come about.
    Closed {
        /// QPN.
        qpn: u32,
        /// Why.
        reason: Reason,
        /// Private data of a reject.
        private_data: Vec<u8>,
    },
    /// A queue pair went into error.
    QpError {
        /// QPN.
        qpn: u32,
        /// Why.
        reason: Reason,
    },
}

impl ContextEvent {
    /// QPN that the event is about.
    pub fn qpn(&self) -> Option<u32> {
        match self {
            Self::Request { .. } => None,
            Self::Established { qpn, .. } | Self::Closed { qpn, .. } | Self::QpError { qpn, .. } => Some(*qpn),
        }
    }

    /// `None`: the device is lost, or the kind is not known.
    fn new(e: &ioctl::ContextEvent) -> Option<Self> {
        let private_data = e.private[..(e.private_len as usize).min(e.private.len())].to_vec();
        let peer = Ipv4Addr::from(e.ipv4);
        Some(match e.kind {
            ioctl::CTX_REQUEST => {
                Self::Request { id: e.id, service: e.value, peer, mode: Mode::from_abi(e.mode), private_data }
            }
            ioctl::CTX_ESTABLISHED => Self::Established { qpn: e.id, peer, private_data },
            ioctl::CTX_CLOSED => Self::Closed { qpn: e.id, reason: e.value.into(), private_data },
            ioctl::CTX_QP_ERROR => Self::QpError { qpn: e.id, reason: e.value.into() },
            _ => return None,
        })
    }
}

#[derive(Debug, Default)]
struct Events {
    /// Events taken from the driver that nobody has asked for yet.
    waiting: VecDeque<ContextEvent>,
    /// A thread is waiting at the driver for all others.
    pumped: bool,
}

#[derive(Debug)]
pub(crate) struct Inner {
    file: File,
    doorbells: DoorbellPage,
    event_fd: OwnedFd,
    events: Mutex<Events>,
    arrived: Condvar,
    lost: AtomicBool,
    /// A thread is writing the page's slot.
    slot_taken: AtomicBool,
    asid: u32,
}

impl Inner {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.event_fd.as_fd()
    }

    pub(crate) fn check_lost(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) { Err(Error::DeviceLost) } else { Ok(()) }
    }

    pub(crate) fn ioctl<T>(&self, what: &'static str, request: u32, arg: &mut T) -> Result<()> {
        self.check_lost()?;
        // SAFETY: every caller passes the struct of its request, and none of these holds a pointer.
        unsafe { sys::ioctl(self.fd(), request, arg) }.map_err(|e| Error::from_errno(what, e))
    }

    /// Writes a doorbell: one 8-byte store after everything written to queues before.
    pub(crate) fn doorbell(&self, offset: u32, value: u64) {
        ring::before_doorbell();
        self.store(offset, value);
        ring::flush_doorbells();
    }

    /// Writes a send-queue doorbell with its element, which has been written to the queue as well: eight stores in
    /// order, the last is the commit. A card to which they come in another order takes the element from the queue.
    pub(crate) fn doorbell_with(&self, element: &[u64; SLOT_WORDS], commit: u64) {
        if self.slot_taken.swap(true, Ordering::Acquire) {
            // Two threads' elements must not mix.
            return self.doorbell(host::DB_SQ, commit);
        }
        ring::before_doorbell();
        for (offset, value) in (host::DB_WQE..).step_by(8).zip(element.iter().chain([&commit])) {
            self.store(offset, *value);
        }
        ring::flush_doorbells();
        self.slot_taken.store(false, Ordering::Release);
    }

    fn store(&self, offset: u32, value: u64) {
        debug_assert!(offset as usize <= DOORBELL_PAGE - 8 && offset.is_multiple_of(8));
        // SAFETY: the offset is an aligned one inside the page, which is mapped as long as we live.
        unsafe { self.doorbells.as_ptr().add(offset as usize).cast::<u64>().write_volatile(value) };
    }

    pub(crate) fn doorbell_page(&self) -> *mut u8 {
        self.doorbells.as_ptr()
    }

    fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all events that wait in the driver, unless another thread is about to.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut events = self.lock();
        if events.pumped {
            // That thread sleeps at the eventfd: it must find it signalled.
            drop(events);
            std::thread::yield_now();
            return Ok(());
        }
        self.drain_into(&mut events)
    }

    fn drain_into(&self, events: &mut Events) -> Result<()> {
        // Before the events: one that comes meanwhile signals it again.
        sys::eventfd_take(self.event_fd());
        loop {
            let mut raw = ioctl::ContextEvent::default();
            // SAFETY: the struct of this request, without pointers.
            match unsafe { sys::ioctl(self.fd(), ioctl::IOC_GET_EVENT, &mut raw) } {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                    self.set_lost();
                    return Ok(());
                }
                Err(e) => return Err(Error::from_errno("take an event", e)),
            }
            if raw.kind == ioctl::CTX_DEVICE_LOST {
                self.set_lost();
            } else if let Some(event) = ContextEvent::new(&raw) {
                tracing::debug!(?event, "context event");
                events.waiting.push_back(event);
            } else {
                tracing::warn!(kind = raw.kind, "context event of unknown kind ignored");
            }
            self.arrived.notify_all();
        }
    }

    fn set_lost(&self) {
        self.lost.store(true, Ordering::Release);
        self.arrived.notify_all();
    }

    /// Waits for the first event that `wanted` accepts and takes it; others stay for others.
    pub(crate) fn wait_event(
        &self,
        timeout: Option<Duration>,
        wanted: impl Fn(&ContextEvent) -> bool,
    ) -> Result<ContextEvent> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut events = self.lock();
        loop {
            if !events.pumped {
                self.drain_into(&mut events)?;
            }
            if let Some(at) = events.waiting.iter().position(&wanted) {
                return Ok(events.waiting.remove(at).expect("position is inside"));
            }
            self.check_lost()?;
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                return Err(Error::Timeout(timeout.unwrap_or_default()));
            }
            if events.pumped {
                // Another thread waits at the driver, and wakes us for every event.
                events = match left {
                    Some(left) => self.arrived.wait_timeout(events, left).unwrap_or_else(PoisonError::into_inner).0,
                    None => self.arrived.wait(events).unwrap_or_else(PoisonError::into_inner),
                };
                continue;
            }
            events.pumped = true;
            drop(events);
            let waited = sys::wait_readable([self.event_fd()], left);
            events = self.lock();
            events.pumped = false;
            // Somebody else takes over the waiting when we leave with our event.
            self.arrived.notify_all();
            waited.map_err(|source| Error::Os { what: "wait for an event", source })?;
        }
    }

    /// Drops the events of a queue pair that is gone, so that a later one with its number does not see them.
    pub(crate) fn forget(&self, qpn: u32) {
        let mut events = self.lock();
        if let Err(error) = self.drain_into(&mut events) {
            tracing::warn!(%error, "events could not be taken");
        }
        events.waiting.retain(|e| e.qpn() != Some(qpn));
        if events.pumped {
            // We may have taken the signal that another thread sleeps for.
            sys::eventfd_signal(self.event_fd());
        }
    }

    /// Drops the requests to a service that nobody listens to any more.
    pub(crate) fn take_requests(&self, service: u32) -> Vec<ContextEvent> {
        let mut events = self.lock();
        let (taken, kept) = std::mem::take(&mut events.waiting)
            .into_iter()
            .partition(|e| matches!(e, ContextEvent::Request { service: s, .. } if *s == service));
        events.waiting = kept;
        taken.into()
    }
}

#[cfg(test)]
impl Inner {
    /// A context without a device: ordinary memory in place of the doorbell page, and every ioctl fails.
    pub(crate) fn without_device() -> Arc<Self> {
        Arc::new(Self {
            file: File::open("/dev/null").unwrap(),
            doorbells: DoorbellPage::new(crate::region::Region::anonymous(DOORBELL_PAGE).unwrap()),
            event_fd: sys::eventfd().unwrap(),
            events: Mutex::default(),
            arrived: Condvar::new(),
            lost: AtomicBool::new(false),
            slot_taken: AtomicBool::new(false),
            asid: 1,
        })
    }

    /// As if another thread were writing the slot.
    pub(crate) fn take_slot(&self) {
        self.slot_taken.store(true, Ordering::Release);
    }

    /// What was last written to a doorbell.
    pub(crate) fn last_doorbell(&self, offset: u32) -> u64 {
        // SAFETY: an aligned offset inside the page.
        unsafe { self.doorbells.as_ptr().add(offset as usize).cast::<u64>().read_volatile() }
    }
}

/// The device bound to this process. Clones share it.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
    path: PathBuf,
}

impl Context {
    /// Binds a device to this process (with a descriptor of its own).
    ///
    /// # Errors
    /// [`Error::LimitReached`] when the card has no doorbell page or address space left.
    pub fn new(device: &Device) -> Result<Self> {
        let file = open_node(device.path())?;
        let what = "make a context";
        let event_fd = sys::eventfd().map_err(|source| Error::Os { what, source })?;
        let mut arg =
            ioctl::Context { abi: card::ABI_VERSION, event_fd: event_fd.as_raw_fd(), ..ioctl::Context::default() };
        // SAFETY: the struct of this request, without pointers.
        unsafe { sys::ioctl(file.as_fd(), ioctl::IOC_CONTEXT, &mut arg) }.map_err(|e| Error::from_errno(what, e))?;
        let doorbells = DoorbellPage::map(file.as_fd(), arg.doorbell_offset)
            .map_err(|source| Error::Os { what: "map the doorbell page", source })?;
        let inner = Inner {
            file,
            doorbells,
            event_fd,
            events: Mutex::default(),
            arrived: Condvar::new(),
            lost: AtomicBool::new(false),
            slot_taken: AtomicBool::new(false),
            asid: arg.asid,
        };
        Ok(Self { inner: Arc::new(inner), path: device.path().to_owned() })
    }

    /// Number of this process's address space on the card.
    pub fn asid(&self) -> u32 {
        self.inner.asid
    }

    /// Path of the device node.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Sets this process's pinned-memory budget in bytes (at least one page, at most the card's).
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is out of range.
    pub fn set_budget(&self, bytes: u64) -> Result<()> {
        let mut arg = ioctl::SetLimits {
            mask: ioctl::LIMIT_CONTEXT_BUDGET,
            context_budget: bytes,
            ..ioctl::SetLimits::default()
        };
        self.inner.ioctl("set the process's pinned-memory budget", ioctl::IOC_SET_LIMITS, &mut arg)
    }

    /// Makes a completion queue for at most `capacity` completions that have not been polled (1 to 16384).
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::Invalid`].
    pub fn create_cq(&self, capacity: u32) -> Result<CompletionQueue> {
        CompletionQueue::new(&self.inner, capacity, capacity.saturating_mul(2))
    }

    /// As [`Context::create_cq`], but the ring has exactly `capacity` entries rounded up to a power of two, and the
    /// card is told of every entry taken at once.
    ///
    /// # Errors
    /// As [`Context::create_cq`].
    pub fn create_cq_exact(&self, capacity: u32) -> Result<CompletionQueue> {
        CompletionQueue::new(&self.inner, capacity, capacity)
    }

    /// Makes a queue pair.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::Invalid`].
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        config: &QpConfig,
    ) -> Result<QueuePair> {
        QueuePair::new(&self.inner, send_cq, recv_cq, config)
    }

    /// Listens to a service id (1 to 65535).
    ///
    /// # Errors
    /// [`Error::Busy`] when somebody listens to it already.
    pub fn listen(&self, service: u16) -> Result<Listener> {
        Listener::new(&self.inner, service)
    }

    /// Waits for the next connection event of any object of this context. Objects that wait for their own events
    /// (a [`Listener`], [`QueuePair::wait_established`]) must then not be used at the same time.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DeviceLost`].
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<ContextEvent> {
        self.inner.wait_event(timeout, |_| true)
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }
}
