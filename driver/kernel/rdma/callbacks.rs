// SPDX-License-Identifier: GPL-2.0
//! What the core calls.

use crate::kernel::{
    bindings,
    rdma::{
        device::{Access, Advice, Device, Driver, UserMap, GIDS},
        handler::{CqHandler, QpHandler},
        pair::{Address, Changes, Context, Cq, Domain, Pair, Qp, Queue},
        posting,
        qp::{Attributes, Capacity, QpKind, QpState},
        shared::{self, Srq},
        udata::Udata,
        window::{self, Mw},
        work::Memory,
    },
};
use core::ptr::NonNull;
use kernel::{error::from_result, mm::virt::VmaNew, new_mutex, prelude::*, sync::Arc};

/// The core's table of what a driver does.
pub(super) struct Table<T>(core::marker::PhantomData<T>);

/// Bytes of a management datagram (IBTA 13.4.2).
const MAD_BYTES: u32 = 256;

/// A region: the core's part and the driver's, in one allocation of ours.
#[repr(C)]
struct Mr<T: Driver> {
    core: bindings::ib_mr,
    region: T::Region,
    access: Access,
}

impl<T: Driver> Mr<T> {
    /// Makes one, for the core.
    ///
    /// # Safety
    ///
    /// `pd` is one of [`alloc_pd`].
    unsafe fn make(
        pd: *mut bindings::ib_pd,
        start: u64,
        length: u64,
        access: Access,
    ) -> Result<*mut bindings::ib_mr> {
        // Before there is a region that could not be noted.
        let place = KBox::<Self>::new_uninit(GFP_KERNEL)?;
        // SAFETY: By the requirements of this function.
        let (driver, domain) =
            unsafe { (Device::<T>::driver((*pd).device), Domain::<T>::data(pd)) };
        let (region, key) = driver.make_region(domain, start, length, access)?;
        // SAFETY: A struct of C's, of which all bytes may be zero.
        let mut core = unsafe { core::mem::zeroed::<bindings::ib_mr>() };
        (core.lkey, core.rkey) = (key, key);
        (core.iova, core.length) = (start, length);
        let mr = Self {
            core,
            region,
            access,
        };
        Ok(KBox::into_raw(KBox::write(place, mr)).cast())
    }
}

impl<T: Driver> Table<T> {
    const OPS: bindings::ib_device_ops = bindings::ib_device_ops {
        driver_id: bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
        uverbs_abi_ver: T::ABI_VERSION,
        size_ib_ucontext: size_of::<Context<T>>(),
        size_ib_pd: size_of::<Domain<T>>(),
        size_ib_cq: size_of::<Cq<T>>(),
        size_ib_qp: size_of::<Qp<T>>(),
        size_ib_srq: size_of::<Srq>(),
        size_ib_ah: size_of::<Address<T>>(),
        size_ib_mw: size_of::<Mw<T>>(),
        post_send: Some(posting::post_send::<T>),
        post_recv: Some(posting::post_recv::<T>),
        poll_cq: Some(posting::poll_cq::<T>),
        req_notify_cq: Some(posting::req_notify_cq::<T>),
        get_dma_mr: Some(posting::get_dma_mr),
        create_ah: Some(posting::create_ah::<T>),
        create_user_ah: Some(posting::create_ah::<T>),
        destroy_ah: Some(posting::destroy_ah::<T>),
        query_device: Some(query_device::<T>),
        query_port: Some(query_port::<T>),
        query_pkey: Some(query_pkey),
        get_port_immutable: Some(port_immutable),
        get_link_layer: Some(link_layer),
        add_gid: Some(add_gid::<T>),
        del_gid: Some(del_gid::<T>),
        alloc_ucontext: Some(alloc_ucontext::<T>),
        dealloc_ucontext: Some(dealloc_ucontext::<T>),
        disassociate_ucontext: Some(disassociate_ucontext),
        mmap: Some(mmap::<T>),
        alloc_pd: Some(alloc_pd::<T>),
        dealloc_pd: Some(dealloc_pd::<T>),
        create_cq: Some(create_cq::<T>),
        create_user_cq: Some(create_cq::<T>),
        destroy_cq: Some(destroy_cq::<T>),
        create_qp: Some(create_qp::<T>),
        modify_qp: Some(modify_qp::<T>),
        query_qp: Some(query_qp::<T>),
        destroy_qp: Some(destroy_qp::<T>),
        create_srq: Some(shared::create_srq::<T>),
        modify_srq: Some(shared::modify_srq::<T>),
        query_srq: Some(shared::query_srq),
        destroy_srq: Some(shared::destroy_srq),
        reg_user_mr: Some(reg_user_mr::<T>),
        rereg_user_mr: Some(rereg_user_mr::<T>),
        advise_mr: Some(advise_mr::<T>),
        dereg_mr: Some(dereg_mr::<T>),
        alloc_mw: Some(window::alloc_mw::<T>),
        dealloc_mw: Some(window::dealloc_mw::<T>),
        alloc_hw_port_stats: Some(alloc_stats::<T>),
        get_hw_stats: Some(get_stats::<T>),
        ..pin_init::zeroed()
    };
    pub(super) const REF: &'static bindings::ib_device_ops = &Self::OPS;
}

/// # Safety
///
/// `ib` is a device of `T`; `attr` is the core's to be written.
unsafe extern "C" fn query_device<T: Driver>(
    ib: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (limits, attr) = unsafe { (Device::<T>::driver(ib).limits(), &mut *attr) };
    attr.fw_ver = limits.firmware;
    attr.sys_image_guid = limits.guid.to_be();
    attr.max_mr_size = u64::MAX;
    // Pages of 4 KiB and up.
    attr.page_size_cap = 0xffff_f000;
    (attr.vendor_id, attr.vendor_part_id) = limits.pci;
    attr.max_qp = limits.qps;
    // They take memory of the process's alone.
    attr.max_srq = limits.qps;
    attr.max_srq_wr = limits.shared;
    attr.max_srq_sge = limits.queue.receive_ranges;
    attr.max_qp_wr = limits.queue.sends.min(limits.queue.receives);
    attr.device_cap_flags = (bindings::ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_RC_RNR_NAK_GEN
        | bindings::ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_SRQ_RESIZE
        | bindings::ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_MEM_WINDOW
        | bindings::ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B)
        as u64;
    attr.kernel_cap_flags = u64::from(
        bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING
            | bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY,
    );
    attr.max_ah = limits.addresses;
    attr.max_send_sge = limits.queue.send_ranges;
    attr.max_recv_sge = limits.queue.receive_ranges;
    attr.max_sge_rd = limits.queue.send_ranges;
    attr.max_cq = limits.cqs;
    attr.max_cqe = limits.cq_entries;
    attr.max_mr = limits.regions;
    // They take keys as regions do.
    attr.max_mw = limits.regions;
    attr.max_pd = limits.domains;
    attr.max_qp_rd_atom = limits.reads;
    attr.max_qp_init_rd_atom = limits.reads;
    attr.max_res_rd_atom = limits.reads.saturating_mul(limits.qps);
    // No other atomic of the device comes between; processors' may.
    attr.atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_HCA;
    attr.max_pkeys = 1;
    // Each access to memory may wait for its page.
    attr.odp_caps.general_caps = u64::from(
        bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT
            | bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT_IMPLICIT,
    );
    attr.odp_caps.per_transport_caps.rc_odp_caps =
        bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND
            | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV
            | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE
            | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ
            | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC
            | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV;
    attr.odp_caps.per_transport_caps.ud_odp_caps =
        bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND
            | bindings::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV;
    0
}

/// # Safety
///
/// As of [`query_device`].
unsafe extern "C" fn query_port<T: Driver>(
    ib: *mut bindings::ib_device,
    _port: u32,
    attr: *mut bindings::ib_port_attr,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (port, attr) = unsafe { (Device::<T>::driver(ib).port(), &mut *attr) };
    // Codes of the ports' physical states (IBTA 14.2.5.6): 5 is link up, 3 is disabled.
    (attr.state, attr.phys_state) = match port.active {
        true => (bindings::ib_port_state_IB_PORT_ACTIVE, 5),
        false => (bindings::ib_port_state_IB_PORT_DOWN, 3),
    };
    attr.max_mtu = bindings::ib_mtu_IB_MTU_4096;
    attr.active_mtu = (port.mtu / 128)
        .checked_ilog2()
        .unwrap_or(bindings::ib_mtu_IB_MTU_1024);
    attr.phys_mtu = port.mtu;
    attr.gid_tbl_len = GIDS;
    attr.set_ip_gids(1);
    attr.max_msg_sz = port.message;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    attr.active_width = bindings::ib_port_width_IB_WIDTH_1X as u8;
    attr.active_speed = bindings::ib_port_speed_IB_SPEED_QDR as u16;
    0
}

/// # Safety
///
/// `pkey` is the core's to be written.
unsafe extern "C" fn query_pkey(
    _ib: *mut bindings::ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> c_int {
    if index != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: By the requirements of this function.
    unsafe { *pkey = 0xffff };
    0
}

/// # Safety
///
/// `to` is the core's to be written.
unsafe extern "C" fn port_immutable(
    _ib: *mut bindings::ib_device,
    _port: u32,
    to: *mut bindings::ib_port_immutable,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let to = unsafe { &mut *to };
    // As the core has them for RoCE version 2: management datagrams, and by these the connection manager.
    to.core_cap_flags = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP
        | bindings::RDMA_CORE_CAP_IB_MAD
        | bindings::RDMA_CORE_CAP_IB_CM
        | bindings::RDMA_CORE_CAP_AF_IB
        | bindings::RDMA_CORE_CAP_ETH_AH;
    to.max_mad_size = MAD_BYTES;
    to.gid_tbl_len = GIDS;
    to.pkey_tbl_len = 1;
    0
}

extern "C" fn link_layer(_ib: *mut bindings::ib_device, _port: u32) -> bindings::rdma_link_layer {
    bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
}

/// # Safety
///
/// `attr` is an entry of the GID table of a device of `T`.
unsafe extern "C" fn add_gid<T: Driver>(
    attr: *const bindings::ib_gid_attr,
    _context: *mut *mut c_void,
) -> c_int {
    // SAFETY: By the requirements of this function; a union of bytes is read.
    let (driver, gid) = unsafe {
        (
            Device::<T>::driver((*attr).device),
            *(*attr).gid.raw.as_ref(),
        )
    };
    from_result(|| driver.add_gid(gid).map(|()| 0))
}

/// # Safety
///
/// As of [`add_gid`].
unsafe extern "C" fn del_gid<T: Driver>(
    attr: *const bindings::ib_gid_attr,
    _context: *mut *mut c_void,
) -> c_int {
    // SAFETY: As in `add_gid`.
    let (driver, gid) = unsafe {
        (
            Device::<T>::driver((*attr).device),
            *(*attr).gid.raw.as_ref(),
        )
    };
    driver.remove_gid(gid);
    0
}

/// # Safety
///
/// `context` is new, of a device of `T`; `udata` is of the call.
unsafe extern "C" fn alloc_ucontext<T: Driver>(
    context: *mut bindings::ib_ucontext,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        unsafe {
            let driver = Device::<T>::driver((*context).device);
            Context::<T>::put(context, driver.open(&mut Udata::from_raw(udata))?);
        }
        Ok(0)
    })
}

/// # Safety
///
/// `context` is one of [`alloc_ucontext`] that nobody uses any more.
unsafe extern "C" fn dealloc_ucontext<T: Driver>(context: *mut bindings::ib_ucontext) {
    // SAFETY: By the requirements of this function.
    drop(unsafe { Context::<T>::take(context) });
}

/// The device goes while the context is there: the core itself takes mappings away and ends objects.
extern "C" fn disassociate_ucontext(_context: *mut bindings::ib_ucontext) {}

/// # Safety
///
/// `context` is one of [`alloc_ucontext`]; `area` is being set up by this thread.
unsafe extern "C" fn mmap<T: Driver>(
    context: *mut bindings::ib_ucontext,
    area: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (data, map) = unsafe {
            let map = UserMap {
                context: NonNull::new_unchecked(context),
                area: VmaNew::from_raw(area),
            };
            (Context::<T>::data(context), map)
        };
        T::map(data, &map).map(|()| 0)
    })
}

/// The context of a process's call; `None` for the kernel's.
///
/// # Safety
///
/// `udata` is null or of a process's call, which has a context of a device of `T`, and has it during `'a`.
unsafe fn context_of<'a, T: Driver>(udata: *mut bindings::ib_udata) -> Option<&'a T::Context> {
    // SAFETY: By the requirements of this function.
    (!udata.is_null())
        .then(|| unsafe { Context::<T>::data(bindings::helper_rdma_udata_context(udata)) })
}

/// # Safety
///
/// `pd` is new, of a device of `T`; a process's call has a context of that device.
unsafe extern "C" fn alloc_pd<T: Driver>(
    pd: *mut bindings::ib_pd,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        unsafe {
            let driver = Device::<T>::driver((*pd).device);
            Domain::<T>::put(pd, driver.make_domain(context_of::<T>(udata))?);
        }
        Ok(0)
    })
}

/// # Safety
///
/// `pd` is one of [`alloc_pd`] that nobody uses any more.
unsafe extern "C" fn dealloc_pd<T: Driver>(
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function.
    unsafe { Device::<T>::driver((*pd).device).end_domain(Domain::<T>::take(pd)) };
    0
}

/// # Safety
///
/// `cq` is new, of a device of `T`; `attr` is of the call, and so is `attrs`, which is null if it is the kernel's.
unsafe extern "C" fn create_cq<T: Driver>(
    cq: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function. The handler is ended before the queue goes.
        unsafe {
            if (*attr).flags != 0 || (*attr).comp_vector != 0 {
                return Err(EOPNOTSUPP);
            }
            let udata = match attrs.is_null() {
                true => core::ptr::null_mut(),
                false => bindings::helper_uverbs_udata(attrs),
            };
            let context = context_of::<T>(udata);
            let handler = Arc::pin_init(CqHandler::new(NonNull::new_unchecked(cq)), GFP_KERNEL)?;
            let driver = Device::<T>::driver((*cq).device);
            let mut udata = Udata::from_raw(udata);
            let made = driver.make_cq(context, (*attr).cqe, handler.clone(), &mut udata)?;
            (*cq).cqe = made.1 as c_int;
            let queue = Queue::<T> {
                cq: made.0,
                handler,
            };
            Cq::<T>::put(cq, queue);
        }
        Ok(0)
    })
}

/// # Safety
///
/// `cq` is one of [`create_cq`] that no queue pair uses any more.
unsafe extern "C" fn destroy_cq<T: Driver>(
    cq: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (driver, queue) = unsafe { (Device::<T>::driver((*cq).device), Cq::<T>::take(cq)) };
    queue.handler.end();
    driver.end_cq(queue.cq);
    0
}

/// # Safety
///
/// `qp` is new, of a device of `T`; `attr` is the core's; its queues and the protection domain of `qp` are of that device.
unsafe extern "C" fn create_qp<T: Driver>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let attr = unsafe { &mut *attr };
        let kind = QpKind::from_raw(attr.qp_type).ok_or(EOPNOTSUPP)?;
        // SAFETY: By the requirements of this function.
        let shared = (!attr.srq.is_null()).then(|| unsafe { Srq::data(attr.srq) });
        if attr.create_flags != 0 || (shared.is_some() && kind != QpKind::Reliable) {
            return Err(EOPNOTSUPP);
        }
        let memory = match udata.is_null() {
            true => Memory::Kernel,
            false => Memory::Process,
        };
        if attr.send_cq.is_null() || attr.recv_cq.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: As above. The handler is ended before the queue pair goes.
        unsafe {
            let handler = Arc::pin_init(
                QpHandler::new(NonNull::new_unchecked(qp), shared.is_some()),
                GFP_KERNEL,
            )?;
            let changes = KBox::pin_init(
                pin_init!(Changes {
                    now <- new_mutex!((QpState::Reset, Attributes::default()), "rdma_qp_changes"),
                }),
                GFP_KERNEL,
            )?;
            let driver = Device::<T>::driver((*qp).device);
            let cqs = [attr.send_cq, attr.recv_cq].map(|cq| &Cq::<T>::data(cq).cq);
            let mut capacity = Capacity::from_raw(&attr.cap);
            if let Some(shared) = shared {
                // Those that it has on loan.
                let most = driver.limits().lent;
                (capacity.receives, capacity.receive_ranges) = (shared.elements().min(most), 0);
            }
            let domain = Domain::<T>::data((*qp).pd);
            let mut udata = Udata::from_raw(udata);
            let made = driver.make_qp(
                kind,
                memory,
                domain,
                cqs,
                &mut capacity,
                handler.clone(),
                &mut udata,
            )?;
            if shared.is_some() {
                (capacity.receives, capacity.receive_ranges) = (0, 0);
            }
            capacity.store(&mut attr.cap);
            (*qp).qp_num = made.1;
            let pair = Pair::<T> {
                qp: made.0,
                kind,
                memory,
                signals_all: attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
                handler,
                capacity,
                changes,
            };
            Qp::<T>::put(qp, pair);
        }
        Ok(0)
    })
}

/// # Safety
///
/// `qp` is one of [`create_qp`], and not being destroyed; `attr` and `udata` are of the call.
unsafe extern "C" fn modify_qp<T: Driver>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (pair, attr) = unsafe { (Qp::<T>::data(qp), &*attr) };
    from_result(|| {
        // SAFETY: As above.
        if mask == 0 && T::is_recall(&mut unsafe { Udata::from_raw(udata) })? {
            T::recall(&pair.qp)?;
            return Ok(0);
        }
        let mut now = pair.changes.now.lock();
        let state = state_now(pair, now.0);
        let mut attributes = now.1;
        let next = attributes.take(pair.kind, state, attr, mask)?;
        T::change_qp(&pair.qp, state, next, &attributes)?;
        *now = (next, attributes);
        Ok(0)
    })
}

/// The state, which may have become error by itself.
fn state_now<T: Driver>(pair: &Pair<T>, known: QpState) -> QpState {
    match known {
        QpState::Reset => known,
        _ if T::has_failed(&pair.qp) => QpState::Error,
        _ => known,
    }
}

/// # Safety
///
/// As of [`modify_qp`]; `attr` and `init` are the core's to be written.
unsafe extern "C" fn query_qp<T: Driver>(
    qp: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (pair, attr, init) = unsafe { (Qp::<T>::data(qp), &mut *attr, &mut *init) };
    // The core has not cleared them, and gives to the process what stands there.
    // SAFETY: A struct of C's, of which all bytes may be zero.
    *attr = unsafe { core::mem::zeroed() };
    // SAFETY: As above.
    *init = unsafe { core::mem::zeroed() };
    // SAFETY: By the requirements of this function.
    unsafe {
        (init.qp_type, init.qp_context) = ((*qp).qp_type, (*qp).qp_context);
        (init.send_cq, init.recv_cq, init.srq) = ((*qp).send_cq, (*qp).recv_cq, (*qp).srq);
    }
    init.sq_sig_type = match pair.signals_all {
        true => bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
        false => bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
    };
    let now = pair.changes.now.lock();
    now.1.store(state_now(pair, now.0), attr);
    pair.capacity.store(&mut attr.cap);
    pair.capacity.store(&mut init.cap);
    0
}

/// # Safety
///
/// `qp` is one of [`create_qp`] that nobody uses any more.
unsafe extern "C" fn destroy_qp<T: Driver>(
    qp: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (driver, pair) = unsafe { (Device::<T>::driver((*qp).device), Qp::<T>::take(qp)) };
    pair.handler.end();
    driver.end_qp(pair.qp);
    0
}

/// # Safety
///
/// `pd` is one of [`alloc_pd`].
unsafe extern "C" fn reg_user_mr<T: Driver>(
    pd: *mut bindings::ib_pd,
    start: u64,
    length: u64,
    virt_addr: u64,
    flags: c_int,
    dmah: *mut bindings::ib_dmah,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    let make = || {
        // A process and its peers name the same addresses.
        if virt_addr != start || !dmah.is_null() {
            return Err(EOPNOTSUPP);
        }
        let access = access_of(flags)?;
        // SAFETY: By the requirements of this function.
        unsafe { Mr::<T>::make(pd, start, length, access) }
    };
    make().unwrap_or_else(|e: Error| e.to_ptr())
}

/// What `IB_ACCESS_*` of a region allow.
fn access_of(flags: c_int) -> Result<Access> {
    let has = |bit: bindings::ib_access_flags| flags as u32 & bit != 0;
    if has(bindings::ib_access_flags_IB_ZERO_BASED)
        || has(bindings::ib_access_flags_IB_ACCESS_HUGETLB)
    {
        return Err(EOPNOTSUPP);
    }
    Ok(Access::from_raw(flags))
}

/// Changes a region. One that goes to another protection domain is a new one, with another key, and the core ends the old one.
///
/// # Safety
///
/// `mr` is one of [`reg_user_mr`] that nobody else uses during the call; `pd` is one of [`alloc_pd`].
unsafe extern "C" fn rereg_user_mr<T: Driver>(
    mr: *mut bindings::ib_mr,
    flags: c_int,
    start: u64,
    length: u64,
    virt_addr: u64,
    access: c_int,
    pd: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    let has = |bit: u32| flags as u32 & bit != 0;
    let change = || {
        // SAFETY: By the requirements of this function.
        let mr = unsafe { &mut *mr.cast::<Mr<T>>() };
        let (start, length) = match has(bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS) {
            true if virt_addr != start => return Err(EOPNOTSUPP),
            true => (start, length),
            false => (mr.core.iova, mr.core.length),
        };
        let access = match has(bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS) {
            true => access_of(access)?,
            false => mr.access,
        };
        if has(bindings::ib_mr_rereg_flags_IB_MR_REREG_PD) {
            // SAFETY: By the requirements of this function.
            return unsafe { Mr::<T>::make(pd, start, length, access) };
        }
        T::change_region(&mr.region, start, length, access)?;
        mr.access = access;
        (mr.core.iova, mr.core.length) = (start, length);
        Ok(core::ptr::null_mut())
    };
    change().unwrap_or_else(|e: Error| e.to_ptr())
}

/// Brings memory in.
///
/// # Safety
///
/// `pd` is one of [`alloc_pd`]; there are `count` ranges at `list`.
unsafe extern "C" fn advise_mr<T: Driver>(
    pd: *mut bindings::ib_pd,
    advice: bindings::ib_uverbs_advise_mr_advice,
    flags: u32,
    list: *mut bindings::ib_sge,
    count: u32,
    _attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    from_result(|| {
        use bindings::{
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH as PREFETCH,
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as NO_FAULT,
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE as WRITE,
            ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH as FLUSH,
        };
        if flags & !FLUSH != 0 {
            return Err(EOPNOTSUPP);
        }
        let wanted = match advice {
            PREFETCH => Advice::Read,
            WRITE => Advice::Write,
            NO_FAULT => Advice::Nothing,
            _ => return Err(EOPNOTSUPP),
        };
        // SAFETY: By the requirements of this function.
        let domain = unsafe { Domain::<T>::data(pd) };
        for n in 0..count as usize {
            // SAFETY: As above.
            let range = unsafe { &*list.add(n) };
            T::advise(domain, range.addr, range.length.into(), wanted)?;
        }
        Ok(0)
    })
}

/// # Safety
///
/// `mr` is one of [`reg_user_mr`] that nobody uses any more.
unsafe extern "C" fn dereg_mr<T: Driver>(
    mr: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (driver, mr) = unsafe {
        (
            Device::<T>::driver((*mr).device),
            KBox::from_raw(mr.cast::<Mr<T>>()),
        )
    };
    driver.end_region(KBox::into_inner(mr).region);
    0
}

/// # Safety
///
/// As of [`query_device`].
unsafe extern "C" fn alloc_stats<T: Driver>(
    ib: *mut bindings::ib_device,
    _port: u32,
) -> *mut bindings::rdma_hw_stats {
    // SAFETY: By the requirements of this function.
    unsafe { Device::<T>::names(ib) }.room()
}

/// # Safety
///
/// As of [`query_device`]; `stats` is of [`alloc_stats`].
unsafe extern "C" fn get_stats<T: Driver>(
    ib: *mut bindings::ib_device,
    stats: *mut bindings::rdma_hw_stats,
    _port: u32,
    _index: c_int,
) -> c_int {
    // SAFETY: By the requirements of this function.
    unsafe {
        let driver = Device::<T>::driver(ib);
        Device::<T>::names(ib).fill(stats, |values| driver.counters(values))
    }
}
