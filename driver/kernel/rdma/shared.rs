// SPDX-License-Identifier: GPL-2.0
//! Shared receive queues (IBTA 10.2.9.4). The provider has the queue itself; here is what the core is told of it.

use crate::kernel::{
    bindings,
    rdma::{
        device::{Device, Driver},
        object::Object,
        udata::Udata,
    },
};
use kernel::{
    error::from_result,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// What the core knows of a shared receive queue.
pub(super) struct Shared {
    /// Elements, and ranges of each.
    elements: Atomic<u32>,
    ranges: u32,
    /// The consumer is told once when fewer are left; 0: never.
    limit: Atomic<u32>,
}

impl Shared {
    /// Elements that there may be.
    pub(super) fn elements(&self) -> u32 {
        self.elements.load(Relaxed)
    }
}

pub(super) type Srq = Object<bindings::ib_srq, Shared>;

/// # Safety
///
/// `srq` is new, of a device of `T`; `attr` and `udata` are of the call.
pub(super) unsafe extern "C" fn create_srq<T: Driver>(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (limits, attr) = unsafe { (Device::<T>::driver((*srq).device).limits(), &mut *attr) };
        // Of the kernel's queue pairs there are none for connections.
        if udata.is_null() || attr.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
            return Err(EOPNOTSUPP);
        }
        let wanted = &mut attr.attr;
        if !(1..=limits.shared).contains(&wanted.max_wr)
            || wanted.max_sge > limits.queue.receive_ranges
            || wanted.srq_limit > wanted.max_wr
        {
            return Err(EINVAL);
        }
        wanted.max_sge = limits.queue.receive_ranges;
        let made = Shared {
            elements: Atomic::new(wanted.max_wr),
            ranges: wanted.max_sge,
            limit: Atomic::new(wanted.srq_limit),
        };
        // SAFETY: By the requirements of this function.
        unsafe { Srq::put(srq, made) };
        Ok(0)
    })
}

/// Sets the limit, and how many elements there may be: the provider has said that no more are there. It says by the driver's
/// part of the call that the limit is reached.
///
/// # Safety
///
/// `srq` is one of [`create_srq`]; `attr` and `udata` are of the call.
pub(super) unsafe extern "C" fn modify_srq<T: Driver>(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        let (limits, shared, wanted) = unsafe {
            (
                Device::<T>::driver((*srq).device).limits(),
                Srq::data(srq),
                &*attr,
            )
        };
        // SAFETY: As above.
        let is_reached = T::is_limit_reached(&mut unsafe { Udata::from_raw(udata) })?;
        let has = |bit: bindings::ib_srq_attr_mask| mask & bit != 0;
        let elements = match has(bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR) {
            true => wanted.max_wr,
            false => shared.elements(),
        };
        let limit = match has(bindings::ib_srq_attr_mask_IB_SRQ_LIMIT) {
            true => wanted.srq_limit,
            false => shared.limit.load(Relaxed),
        };
        if !(1..=limits.shared).contains(&elements) || limit > elements {
            return Err(EINVAL);
        }
        shared.elements.store(elements, Relaxed);
        if has(bindings::ib_srq_attr_mask_IB_SRQ_LIMIT) {
            shared.limit.store(limit, Relaxed);
        }
        if is_reached && shared.limit.xchg(0, Relaxed) != 0 {
            // SAFETY: The queue is there during the call. Its handler takes spin locks only.
            unsafe { tell(srq) };
        }
        Ok(0)
    })
}

/// Tells the consumer that fewer elements are left than its limit.
///
/// # Safety
///
/// `srq` is one of [`create_srq`].
unsafe fn tell(srq: *mut bindings::ib_srq) {
    // SAFETY: By the requirements of this function.
    unsafe {
        let Some(handler) = (*srq).event_handler else {
            return;
        };
        let mut told = core::mem::zeroed::<bindings::ib_event>();
        told.device = (*srq).device;
        *told.element.srq.as_mut() = srq;
        told.event = bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED;
        handler(&mut told, (*srq).srq_context);
    }
}

/// # Safety
///
/// `srq` is one of [`create_srq`]; `attr` is the core's to be written.
pub(super) unsafe extern "C" fn query_srq(
    srq: *mut bindings::ib_srq,
    attr: *mut bindings::ib_srq_attr,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (shared, attr) = unsafe { (Srq::data(srq), &mut *attr) };
    (attr.max_wr, attr.max_sge) = (shared.elements(), shared.ranges);
    attr.srq_limit = shared.limit.load(Relaxed);
    0
}

/// # Safety
///
/// `srq` is one of [`create_srq`] that no queue pair uses any more.
pub(super) unsafe extern "C" fn destroy_srq(
    srq: *mut bindings::ib_srq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let _: Shared = unsafe { Srq::take(srq) };
    0
}
