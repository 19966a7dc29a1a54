// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A context: the device bound to this process, its doorbell page and its events.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_abi::rows::recv;
use berth_abi::{card, ioctl};
use berth_queue::Doorbells;

use crate::cm::Listener;
use crate::cq::CompletionQueue;
use crate::device::{Device, open_node};
use crate::doorbell::DoorbellPage;
use crate::error::{Error, Limit, Reason, Result, SET_BUDGET};
use crate::process::{Caller, Owner};
use crate::qp::{Mode, QpConfig, QueuePair};
use crate::region::ProtectionDomain;
use crate::sys;
use crate::wait::{Deadline, For, Waited};

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
        /// Mode of the queue pair that may accept it.
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
        /// With [`Reason::Access`] and [`Reason::NoTarget`] what the peer wanted, if the card knows.
        access: Option<PeerAccess>,
    },
}

/// An access of the peer that no key allows, or to memory that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAccess {
    /// What it was to do.
    pub kind: AccessKind,
    /// Its key.
    pub key: u32,
    /// Address of its first byte.
    pub va: u64,
    /// Its bytes.
    pub len: u32,
}

/// What an access was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessKind {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// An atomic.
    Atomic,
    /// SEND that was to invalidate the key; it has no range.
    Invalidate,
}

impl PeerAccess {
    fn new(e: &ioctl::ContextEvent) -> Option<Self> {
        let kind = match e.right {
            recv::RIGHT_READ => AccessKind::Read,
            recv::RIGHT_ATOMIC => AccessKind::Atomic,
            0 if e.key == 0 => return None,
            0 => AccessKind::Invalidate,
            _ => AccessKind::Write,
        };
        Some(Self { kind, key: e.key, va: e.va, len: e.len })
    }
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
            ioctl::CTX_QP_ERROR => Self::QpError { qpn: e.id, reason: e.value.into(), access: PeerAccess::new(e) },
            _ => return None,
        })
    }
}

/// The outcome of a queue pair's connection. It stays known after it was asked for.
#[derive(Debug, Default)]
struct Connection {
    /// Private data of the accept, once it is there.
    established: Option<Vec<u8>>,
    /// Why it is over, and private data of a reject.
    over: Option<(Reason, Vec<u8>)>,
    /// What its peer was refused.
    refused: Option<PeerAccess>,
}

#[derive(Debug, Default)]
struct Events {
    /// Events taken from the driver and not delivered yet, each with the identity of its object.
    waiting: VecDeque<(u64, ContextEvent)>,
    /// Connections of the queue pairs that there are, by identity.
    connections: HashMap<u64, Connection>,
}

impl Events {
    /// Takes in an event of the driver.
    fn add(&mut self, identity: u64, event: ContextEvent) {
        tracing::debug!(identity, ?event, "context event");
        let connection = self.connections.get_mut(&identity);
        match (&event, connection) {
            (ContextEvent::Request { .. }, _) => {}
            (_, None) => {
                tracing::debug!(identity, "event of a queue pair that is gone");
                return;
            }
            (ContextEvent::Established { private_data, .. }, Some(c)) => c.established = Some(private_data.clone()),
            (ContextEvent::Closed { reason, private_data, .. }, Some(c)) => {
                c.over.get_or_insert_with(|| (*reason, private_data.clone()));
            }
            (ContextEvent::QpError { reason, access, .. }, Some(c)) => {
                c.over.get_or_insert_with(|| (*reason, vec![]));
                c.refused = c.refused.or(*access);
            }
        }
        self.waiting.push_back((identity, event));
    }

    /// The connection of a queue pair.
    fn connection(&self, identity: u64) -> Result<&Connection> {
        self.connections.get(&identity).ok_or(Error::NotFound { what: "wait for a connection" })
    }

    /// Drops the events of these kinds that [`Context::next_event`] would give.
    fn drop_told(&mut self, identity: u64, told: impl Fn(&ContextEvent) -> bool) {
        self.waiting.retain(|(of, event)| *of != identity || !told(event));
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    file: File,
    doorbells: DoorbellPage,
    event_fd: OwnedFd,
    events: Waited<Events>,
    lost: AtomicBool,
    owner: Owner,
    asid: u32,
    #[cfg(test)]
    card: Option<Arc<crate::fake::Card>>,
}

impl Inner {
    fn new(file: File, doorbells: DoorbellPage, event_fd: OwnedFd, asid: u32) -> io::Result<Self> {
        Ok(Self {
            file,
            doorbells,
            event_fd,
            events: Waited::new(Events::default(), For::One),
            lost: AtomicBool::new(false),
            owner: Owner::here()?,
            asid,
            #[cfg(test)]
            card: None,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.event_fd.as_fd()
    }

    /// Fails in a process that has a copy of the objects. No system call: for what touches mapped memory only.
    pub(crate) fn check_memory(&self, what: &'static str) -> Result<()> {
        if self.owner.has_memory() { Ok(()) } else { Err(Error::NotPermitted { what }) }
    }

    /// Fails in any process but the one that the context is bound to.
    pub(crate) fn check_owner(&self, what: &'static str) -> Result<()> {
        if self.is_owned() { Ok(()) } else { Err(Error::NotPermitted { what }) }
    }

    /// Whether the calling process is the one that the context is bound to. In another one destructors only close
    /// descriptors; above all they take no lock, because a thread of the parent may have held it.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner.caller() == Caller::Owner
    }

    pub(crate) fn check_lost(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) { Err(Error::DeviceLost) } else { Ok(()) }
    }

    pub(crate) fn ioctl<T>(&self, what: &'static str, request: u32, arg: &mut T) -> Result<()> {
        self.check_owner(what)?;
        self.check_lost()?;
        self.driver(request, arg).map_err(|e| {
            let error = Error::from_errno(what, e);
            if matches!(error, Error::DeviceLost) {
                self.set_lost();
            }
            name_limit(self.fd(), request, error)
        })
    }

    /// Sends a request to the driver; answers its result.
    fn driver<T>(&self, request: u32, arg: &mut T) -> io::Result<()> {
        #[cfg(test)]
        if let Some(card) = &self.card {
            return card.ioctl(request, std::ptr::from_mut(arg).cast());
        }
        // SAFETY: every caller passes the struct of its request, and none of these holds a pointer.
        unsafe { sys::ioctl(self.fd(), request, arg) }
    }

    pub(crate) fn doorbells(&self) -> &Doorbells {
        self.doorbells.doorbells()
    }

    /// Takes all events that wait in the driver, unless a thread is about to.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut events = self.events.lock();
        if events.is_watched() {
            // That thread sleeps at the eventfd and must find it signalled.
            drop(events);
            std::thread::yield_now();
            return Ok(());
        }
        self.drain_into(&mut events)
    }

    fn drain_into(&self, events: &mut Events) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            // The eventfd stays signalled for all threads that sleep there.
            return Ok(());
        }
        // Before the events: one that comes meanwhile signals it again.
        sys::eventfd_take(self.event_fd());
        let outcome = loop {
            let mut raw = ioctl::ContextEvent::default();
            match self.driver(ioctl::IOC_GET_EVENT, &mut raw) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                    self.lost.store(true, Ordering::Release);
                    break Ok(());
                }
                Err(e) => break Err(Error::from_errno("take an event", e)),
            }
            if raw.kind == ioctl::CTX_DEVICE_LOST {
                self.lost.store(true, Ordering::Release);
            } else if let Some(event) = ContextEvent::new(&raw) {
                events.add(raw.identity, event);
            } else {
                tracing::warn!(kind = raw.kind, "context event of unknown kind ignored");
            }
            self.events.wake();
        };
        if self.lost.load(Ordering::Acquire) {
            // Also if another thread has found the event meanwhile, because we have taken its signal.
            self.set_lost();
        }
        outcome
    }

    /// Notes for good that the device is lost: the eventfd stays signalled, so that every thread that sleeps there, now
    /// or later, in any call, wakes up.
    fn set_lost(&self) {
        self.lost.store(true, Ordering::Release);
        sys::eventfd_signal(self.event_fd());
        self.events.wake();
    }

    /// Waits until `take` finds something among the events.
    fn wait_for<T>(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        mut take: impl FnMut(&mut Events) -> Result<Option<T>>,
    ) -> Result<T> {
        self.check_owner(what)?;
        self.events.wait(
            Deadline::new(timeout),
            |events| match take(events)? {
                Some(found) => Ok(Some(found)),
                None => self.check_lost().map(|()| None),
            },
            |events| self.drain_into(events),
            |left| {
                sys::wait_readable([self.event_fd()], left)
                    .map(drop)
                    .map_err(|source| Error::Os { what: "wait for an event", source })
            },
        )
    }

    /// Waits for the first event that `wanted` accepts and takes it; others stay for others.
    pub(crate) fn wait_event(
        &self,
        what: &'static str,
        timeout: Option<Duration>,
        wanted: impl Fn(u64, &ContextEvent) -> bool,
    ) -> Result<(u64, ContextEvent)> {
        self.wait_for(what, timeout, |events| {
            let at = events.waiting.iter().position(|(identity, event)| wanted(*identity, event));
            Ok(at.and_then(|at| events.waiting.remove(at)))
        })
    }

    /// Waits until a queue pair's connection is there; answers the private data of the accept.
    pub(crate) fn wait_established(&self, identity: u64, timeout: Option<Duration>) -> Result<Vec<u8>> {
        self.wait_for("wait for a connection", timeout, |events| {
            let connection = events.connection(identity)?;
            if let Some(private_data) = connection.established.clone() {
                events.drop_told(identity, |e| matches!(e, ContextEvent::Established { .. }));
                return Ok(Some(private_data));
            }
            let Some((reason, private_data)) = connection.over.clone() else { return Ok(None) };
            events.drop_told(identity, |_| true);
            Err(Error::Closed { reason, private_data })
        })
    }

    /// Waits until a queue pair's connection is over; answers why.
    pub(crate) fn wait_closed(&self, identity: u64, timeout: Option<Duration>) -> Result<Reason> {
        self.wait_for("wait for the end of a connection", timeout, |events| {
            let Some((reason, _)) = events.connection(identity)?.over else { return Ok(None) };
            events.drop_told(identity, |e| !matches!(e, ContextEvent::Established { .. }));
            Ok(Some(reason))
        })
    }

    /// What the peer was refused, as far as events of that were taken.
    pub(crate) fn refused(&self, identity: u64) -> Option<PeerAccess> {
        self.events.lock().connections.get(&identity).and_then(|c| c.refused)
    }

    /// Knows a queue pair that has just been made.
    pub(crate) fn know_qp(&self, identity: u64) {
        self.events.lock().connections.insert(identity, Connection::default());
    }

    /// Forgets a queue pair that is gone, with its events.
    pub(crate) fn forget_qp(&self, identity: u64) {
        let mut events = self.events.lock();
        events.connections.remove(&identity);
        events.drop_told(identity, |_| true);
        // Threads that wait for its connection wait in vain.
        self.events.wake();
    }

    /// Takes requests to a listener that is gone, which nothing else would take.
    pub(crate) fn take_requests(&self, listener: u64) -> Vec<ContextEvent> {
        let mut events = self.events.lock();
        let (taken, kept): (VecDeque<_>, _) =
            std::mem::take(&mut events.waiting).into_iter().partition(|(identity, _)| *identity == listener);
        events.waiting = kept;
        taken.into_iter().map(|(_, event)| event).collect()
    }
}

/// An error of a request, with the limit that it has met, if any.
fn name_limit(fd: BorrowedFd<'_>, request: u32, error: Error) -> Error {
    let Error::LimitReached { what, .. } = error else {
        return error;
    };
    let mut limits = ioctl::QueryLimits::default();
    // SAFETY: the struct of this request, without pointers.
    let limit = match unsafe { sys::ioctl(fd, ioctl::IOC_QUERY_LIMITS, &mut limits) } {
        Ok(()) => Limit::met(request, &limits),
        Err(_) => Limit::Unknown,
    };
    Error::LimitReached { what, limit }
}

#[cfg(test)]
impl Inner {
    /// A context of a stand-in for driver and card.
    pub(crate) fn of_fake(card: &Arc<crate::fake::Card>) -> Arc<Self> {
        let doorbells = DoorbellPage::map(card.fd(), 0).unwrap();
        let file = card.fd().try_clone_to_owned().unwrap().into();
        let mut inner = Self::new(file, doorbells, card.event_fd(), 1).unwrap();
        inner.card = Some(Arc::clone(card));
        Arc::new(inner)
    }
}

/// Pinned memory of one context, in bytes. The card's figures, of all processes together, are counters
/// ([`Counters::pinned`](crate::Counters::pinned)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Pinned now.
    pub now: u64,
    /// Most that was pinned at any time since the context was made.
    pub peak: u64,
    /// Most that may be.
    pub budget: u64,
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
        unsafe { sys::ioctl(file.as_fd(), ioctl::IOC_CONTEXT, &mut arg) }
            .map_err(|e| name_limit(file.as_fd(), ioctl::IOC_CONTEXT, Error::from_errno(what, e)))?;
        let doorbells = DoorbellPage::map(file.as_fd(), arg.doorbell_offset)
            .map_err(|source| Error::Os { what: "map the doorbell page", source })?;
        let inner = Inner::new(file, doorbells, event_fd, arg.asid).map_err(|source| Error::Os { what, source })?;
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
        self.inner.ioctl(SET_BUDGET, ioctl::IOC_SET_LIMITS, &mut arg)
    }

    /// Memory of this process that is pinned for this context: now, at most so far, and the budget.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] in another process; [`Error::UnknownCall`] with an older driver.
    pub fn pinned(&self) -> Result<Pinned> {
        let mut arg = ioctl::QueryContext::default();
        self.inner.ioctl("ask what is pinned", ioctl::IOC_QUERY_CONTEXT, &mut arg)?;
        Ok(Pinned { now: arg.pinned, peak: arg.pinned_peak, budget: arg.budget })
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
    /// [`Error::LimitReached`], [`Error::Invalid`], [`Error::TooManyReads`].
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        config: &QpConfig,
    ) -> Result<QueuePair> {
        QueuePair::new(&self.inner, send_cq, recv_cq, config, None)
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub fn create_domain(&self) -> Result<ProtectionDomain> {
        ProtectionDomain::new(&self.inner)
    }

    /// Listens to a service id (1 to 65535).
    ///
    /// # Errors
    /// [`Error::Busy`] when it has a listener already.
    pub fn listen(&self, service: u16) -> Result<Listener> {
        Listener::new(&self.inner, service)
    }

    /// eventfd that connection events signal, for `poll`/`epoll`, while nobody waits for one here. After it was readable,
    /// ask every object that may have changed, without waiting ([`Listener::next`], [`QueuePair::wait_established`],
    /// [`QueuePair::wait_closed`]): the first call that finds nothing takes its count.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.event_fd()
    }

    /// Waits for the next connection event of any object of this context. Objects that wait for their own events
    /// (a [`Listener`], [`QueuePair::wait_established`]) must then not be used at the same time.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::DeviceLost`], [`Error::NotPermitted`] in another process.
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<ContextEvent> {
        self.inner.wait_event("wait for an event", timeout, |_, _| true).map(|(_, event)| event)
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }
}
