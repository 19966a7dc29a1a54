// SPDX-License-Identifier: GPL-2.0
//! Devices, and what their drivers do.

use crate::kernel::{
    bindings,
    rdma::{
        handler::{CqHandler, QpHandler},
        qp::{Attributes, Capacity, Path, QpKind, QpState},
        stats::Names,
        udata::Udata,
        work::{Completion, Memory, Receive, Send as SendRequest},
    },
};
use core::ptr::NonNull;
use kernel::{
    bindings::vm_area_struct,
    error::to_result,
    mm::virt::VmaNew,
    page::{PAGE_SHIFT, PAGE_SIZE},
    prelude::*,
    sync::Arc,
    types::Opaque,
};

/// What a driver does. The device has one port, an Ethernet one, and speaks RoCE version 2. Its queue pairs are of reliable
/// connections, to which providers post without the kernel, and of datagrams, whose requests the driver gets.
///
/// Whatever a process leaves behind is ended one after the other; an end that fails is an error of the driver's, so those
/// functions do not fail.
pub(crate) trait Driver: Send + Sync + Sized + 'static {
    /// What a process has that opens the device.
    type Context: Send + Sync;
    /// A protection domain.
    type Domain: Send + Sync;
    /// A completion queue.
    type Cq: Send + Sync;
    /// A queue pair.
    type Qp: Send + Sync;
    /// A region of memory.
    type Region: Send + Sync;
    /// An address handle.
    type Address: Send + Sync;

    /// Version of what driver and provider say to each other.
    const ABI_VERSION: u32;

    /// What the device has room for.
    fn limits(&self) -> Limits;

    /// Names the counters, each by a prefix and a name.
    fn counter_names(&self, add: &mut dyn FnMut(&str, &str) -> Result) -> Result;

    /// The counters, in the order of their names.
    fn counters(&self, values: &mut [u64]);

    /// Whether the port carries data, and how.
    fn port(&self) -> Port;

    /// A GID of the port's has come. Errors keep it from being used.
    fn add_gid(&self, gid: [u8; 16]) -> Result;

    /// A GID has gone.
    fn remove_gid(&self, gid: [u8; 16]);

    /// A process opens the device.
    fn open(&self, udata: &mut Udata) -> Result<Self::Context>;

    /// Maps memory of the device's that an answer has named by its offset.
    fn map(context: &Self::Context, map: &UserMap<'_>) -> Result;

    /// Makes a protection domain: of the kernel's, without a context.
    fn make_domain(&self, context: Option<&Self::Context>) -> Result<Self::Domain>;

    /// Ends it.
    fn end_domain(&self, domain: Self::Domain);

    /// Makes a completion queue: of the kernel's, without a context. Says how many entries it has.
    fn make_cq(
        &self,
        context: Option<&Self::Context>,
        entries: u32,
        handler: Arc<CqHandler>,
        udata: &mut Udata,
    ) -> Result<(Self::Cq, u32)>;

    /// Ends it.
    fn end_cq(&self, cq: Self::Cq);

    /// Makes a queue pair, of which `capacity` is at least wanted; says what it has, and its QPN.
    #[allow(clippy::too_many_arguments)]
    fn make_qp(
        &self,
        kind: QpKind,
        memory: Memory,
        domain: &Self::Domain,
        cqs: [&Self::Cq; 2],
        capacity: &mut Capacity,
        handler: Arc<QpHandler>,
        udata: &mut Udata,
    ) -> Result<(Self::Qp, u32)>;

    /// Changes its state, for which `attributes` has all that verbs demand.
    fn change_qp(qp: &Self::Qp, from: QpState, to: QpState, attributes: &Attributes) -> Result;

    /// Whether it is in error by itself.
    fn has_failed(qp: &Self::Qp) -> bool;

    /// Ends it.
    fn end_qp(&self, qp: Self::Qp);

    /// Whether the provider wants receives back that nothing has come for.
    fn is_recall(udata: &mut Udata) -> Result<bool>;

    /// Has them complete as such.
    ///
    /// # Errors
    ///
    /// `EBUSY` it has no connection yet, `EINVAL` it is of datagrams.
    fn recall(qp: &Self::Qp) -> Result;

    /// Whether the provider says that fewer elements of a shared receive queue are left than its limit.
    fn is_limit_reached(udata: &mut Udata) -> Result<bool>;

    /// Posts a send to a queue pair of datagrams, whose memory may be changed again afterwards. The kernel's are posted without
    /// sleeping, perhaps with interrupts off.
    ///
    /// # Errors
    ///
    /// `ENOMEM` the queue is full, or there is no memory; `EMSGSIZE` it is longer than a packet; `EFAULT`, `EINVAL`.
    fn post_send(qp: &Self::Qp, send: SendRequest<'_, Self::Address>) -> Result;

    /// Posts a receive to such a queue pair, likewise.
    ///
    /// # Errors
    ///
    /// `ENOMEM` the queue is full; `EINVAL` the queue pair has been reset.
    fn post_receive(qp: &Self::Qp, receive: Receive) -> Result;

    /// Takes the next completion of such queue pairs out of a completion queue.
    fn poll(cq: &Self::Cq) -> Option<Completion>;

    /// Has the consumer told of the next one of them, or of the next `solicited` one; true if there are some already.
    fn arm(cq: &Self::Cq, solicited: bool) -> bool;

    /// Makes an address handle, without sleeping.
    fn make_address(&self, path: Path) -> Result<Self::Address>;

    /// Makes a region of `bytes` from `va` on, with these rights; gives its key.
    fn make_region(
        &self,
        domain: &Self::Domain,
        va: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(Self::Region, u32)>;

    /// Makes it one of `bytes` from `va` on, with these rights and the same key: no access to what it was is under way then.
    fn change_region(region: &Self::Region, va: u64, bytes: u64, access: Access) -> Result;

    /// Follows an advice for `bytes` from `va` on, which must be the caller's own memory.
    fn advise(domain: &Self::Domain, va: u64, bytes: u64, advice: Advice) -> Result;

    /// Ends it: nothing uses its memory any more.
    fn end_region(&self, region: Self::Region);
}

/// What is to be done about memory that will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nothing: what is there is found.
    Nothing,
    /// It is brought in.
    Read,
    /// It is brought in, and may be written.
    Write,
}

/// What peers may do with a region, and the process itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// The process's own READs and receives write it.
    pub(crate) local_write: bool,
    /// Peers may write it.
    pub(crate) write: bool,
    /// Peers may read it.
    pub(crate) read: bool,
    /// Peers may change it by atomics.
    pub(crate) atomic: bool,
}

impl Access {
    /// What keys may give a queue pair's peer.
    pub(crate) fn by(attributes: &Attributes) -> Self {
        Self::from_raw(attributes.access)
    }

    /// What `IB_ACCESS_*` allow.
    pub(super) fn from_raw(flags: c_int) -> Self {
        let has = |bit: bindings::ib_access_flags| flags as u32 & bit != 0;
        Self {
            local_write: has(bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE),
            write: has(bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE),
            read: has(bindings::ib_access_flags_IB_ACCESS_REMOTE_READ),
            atomic: has(bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC),
        }
    }
}

/// What a device has room for, and what it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Version of its firmware.
    pub(crate) firmware: u64,
    /// GUID.
    pub(crate) guid: u64,
    /// PCI identifiers, of vendor and device.
    pub(crate) pci: (u32, u32),
    /// Queue pairs that a process may have.
    pub(crate) qps: u32,
    /// Elements of a queue, ranges of an element, and bytes of data in it.
    pub(crate) queue: Capacity,
    /// Elements of a shared receive queue, and how many of them a queue pair may have.
    pub(crate) shared: u32,
    pub(crate) lent: u32,
    /// Completion queues that a process may have.
    pub(crate) cqs: u32,
    /// Entries of one.
    pub(crate) cq_entries: u32,
    /// Regions that a process may have.
    pub(crate) regions: u32,
    /// Protection domains that a process may have.
    pub(crate) domains: u32,
    /// READs and atomics under way of a queue pair, each way.
    pub(crate) reads: u32,
    /// Address handles.
    pub(crate) addresses: u32,
}

/// What a port is like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Port {
    /// It carries data.
    pub(crate) active: bool,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// Most bytes of a message.
    pub(crate) message: u32,
}

/// Entries of the GID table.
pub(super) const GIDS: c_int = 16;

/// An RDMA device.
#[repr(C)]
pub(super) struct Device<T> {
    pub(super) core: Opaque<bindings::ib_device>,
    pub(super) driver: T,
    pub(super) names: Names,
}

impl<T: Driver> Device<T> {
    /// The names of its counters.
    ///
    /// # Safety
    ///
    /// As of [`Self::driver`].
    pub(super) unsafe fn names<'a>(core: *mut bindings::ib_device) -> &'a Names {
        // SAFETY: By the requirements of this function.
        unsafe { &(*core.cast::<Self>()).names }
    }

    /// # Safety
    ///
    /// `core` is a device of this driver, and not freed during `'a`.
    pub(super) unsafe fn driver<'a>(core: *mut bindings::ib_device) -> &'a T {
        // SAFETY: By the requirements of this function.
        unsafe { &(*core.cast::<Self>()).driver }
    }
}

/// A mapping that a process asks for.
pub(crate) struct UserMap<'a> {
    pub(super) context: NonNull<bindings::ib_ucontext>,
    pub(super) area: &'a VmaNew,
}

impl UserMap<'_> {
    /// The area of the process's memory.
    pub(crate) fn area(&self) -> &VmaNew {
        self.area
    }

    /// The offset in bytes.
    pub(crate) fn offset(&self) -> u64 {
        crate::kernel::pin::vma_offset(self.area)
    }

    /// Puts one page of registers there, uncached, or combining writes where the device has asked for that. The core takes
    /// it away when the device goes.
    ///
    /// # Errors
    ///
    /// `EINVAL` the area is not one page, or private.
    pub(crate) fn registers(&self, phys: u64) -> Result {
        if self.area.end() - self.area.start() != PAGE_SIZE {
            return Err(EINVAL);
        }
        let area: *mut vm_area_struct = self.area.as_ptr();
        // SAFETY: The core has called for this area, which is being set up by this thread, and this context. The memory
        // manager looks up how the page may be cached.
        to_result(unsafe {
            bindings::helper_rdma_map_page(
                self.context.as_ptr(),
                area,
                (phys >> PAGE_SHIFT) as usize,
            )
        })
    }
}
