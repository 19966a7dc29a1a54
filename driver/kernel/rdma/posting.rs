// SPDX-License-Identifier: GPL-2.0
//! What the core calls for requests and completions of queue pairs that the driver serves itself, and for address handles.

use crate::kernel::{
    bindings,
    rdma::{
        device::{Device, Driver},
        pair::{Address, Cq, Pair, Qp},
        qp::{path, QpKind},
        work::{Posted, Receive, Send},
    },
};
use kernel::{error::from_result, prelude::*};

/// Whether requests to a queue pair come here.
fn is_served<T: Driver>(pair: &Pair<T>) -> bool {
    pair.kind != QpKind::Reliable
}

/// # Safety
///
/// `ah` is new, of a device of `T`; `attr` is the core's.
pub(super) unsafe extern "C" fn create_ah<T: Driver>(
    ah: *mut bindings::ib_ah,
    attr: *mut bindings::rdma_ah_init_attr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        unsafe {
            let path = path(&*(*attr).ah_attr)?;
            let driver = Device::<T>::driver((*ah).device);
            Address::<T>::put(ah, driver.make_address(path)?);
        }
        Ok(0)
    })
}

/// # Safety
///
/// `ah` is one of [`create_ah`] that nobody uses any more.
pub(super) unsafe extern "C" fn destroy_ah<T: Driver>(
    ah: *mut bindings::ib_ah,
    _flags: u32,
) -> c_int {
    // SAFETY: By the requirements of this function.
    drop(unsafe { Address::<T>::take(ah) });
    0
}

/// # Safety
///
/// `qp` is a queue pair of a device of `T`, and not being destroyed; `list` is its consumer's, `bad` to be written.
pub(super) unsafe extern "C" fn post_send<T: Driver>(
    qp: *mut bindings::ib_qp,
    mut list: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let served = unsafe { Qp::<T>::data(qp) };
    // SAFETY: By the requirements of this function: each points to the next one.
    while let Some(wr) = unsafe { list.as_ref() } {
        let post = || {
            let immediate = match wr.opcode {
                bindings::ib_wr_opcode_IB_WR_SEND => None,
                bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => {
                    Some(wr.ex.bindgen_union_field.to_ne_bytes())
                }
                _ => return Err(EINVAL),
            };
            if !is_served(served) {
                return Err(EINVAL);
            }
            let has = |bit: bindings::ib_send_flags| wr.send_flags & bit != 0;
            let datagram: *const bindings::ib_ud_wr = core::ptr::from_ref(wr).cast();
            // SAFETY: The requests of such a queue pair stand in those of datagrams, whose first part they are. An address
            // handle is there until the request is done.
            let send = unsafe {
                let ah = (*datagram).ah;
                if ah.is_null() {
                    return Err(EINVAL);
                }
                Send {
                    wr_id: wr.__bindgen_anon_1.bindgen_union_field,
                    signalled: served.signals_all || has(bindings::ib_send_flags_IB_SEND_SIGNALED),
                    solicited: has(bindings::ib_send_flags_IB_SEND_SOLICITED),
                    immediate,
                    address: Address::<T>::data(ah),
                    peer_qpn: (*datagram).remote_qpn,
                    qkey: (*datagram).remote_qkey,
                    data: Posted::new(served.memory, wr.sg_list, wr.num_sge)?,
                }
            };
            T::post_send(&served.qp, send)
        };
        if let Err(e) = { post }() {
            // SAFETY: By the requirements of this function.
            unsafe { *bad = list };
            return e.to_errno();
        }
        list = wr.next;
    }
    0
}

/// # Safety
///
/// As of [`post_send`].
pub(super) unsafe extern "C" fn post_recv<T: Driver>(
    qp: *mut bindings::ib_qp,
    mut list: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let served = unsafe { Qp::<T>::data(qp) };
    // SAFETY: By the requirements of this function: each points to the next one.
    while let Some(wr) = unsafe { list.as_ref() } {
        let post = || {
            if !is_served(served) {
                return Err(EINVAL);
            }
            // SAFETY: A request of this queue pair.
            let data = unsafe { Posted::new(served.memory, wr.sg_list, wr.num_sge) }?;
            let wr_id = wr.__bindgen_anon_1.bindgen_union_field;
            T::post_receive(&served.qp, Receive { wr_id, data })
        };
        if let Err(e) = { post }() {
            // SAFETY: By the requirements of this function.
            unsafe { *bad = list };
            return e.to_errno();
        }
        list = wr.next;
    }
    0
}

/// # Safety
///
/// `cq` is a completion queue of a device of `T`, and not being destroyed; there is room for `most` at `to`.
pub(super) unsafe extern "C" fn poll_cq<T: Driver>(
    cq: *mut bindings::ib_cq,
    most: c_int,
    to: *mut bindings::ib_wc,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let queue = unsafe { Cq::<T>::data(cq) };
    let mut count = 0;
    while count < most {
        let Some(completion) = T::poll(&queue.cq) else {
            break;
        };
        if let Some(wc) = completion.raw() {
            // SAFETY: There is room for it.
            unsafe { to.add(count as usize).write(wc) };
            count += 1;
        }
    }
    count
}

/// # Safety
///
/// As of [`poll_cq`].
pub(super) unsafe extern "C" fn req_notify_cq<T: Driver>(
    cq: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let queue = unsafe { Cq::<T>::data(cq) };
    let wanted = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK;
    let has_some = T::arm(
        &queue.cq,
        wanted == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED,
    );
    let asks = flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0;
    c_int::from(asks && has_some)
}

/// The core gives consumers of the kernel a key of their own for all of its memory, so that it asks for no other one.
pub(super) extern "C" fn get_dma_mr(
    _pd: *mut bindings::ib_pd,
    _flags: c_int,
) -> *mut bindings::ib_mr {
    EOPNOTSUPP.to_ptr()
}
