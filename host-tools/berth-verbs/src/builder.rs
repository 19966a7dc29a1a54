// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting call by call (`ibv_wr_start`, `ibv_wr_send`, …, `ibv_wr_complete`), and queue pairs for that.

use std::ffi::c_int;
use std::ptr::null_mut;

use berth_abi::wqe::{MAX_INLINE, MAX_SGE, Sge};
use berth_queue::{Operation, Remote, gather};

use crate::bound::{Change, bind, end};
use crate::building::{Open, Stored, wr_set_inline_data, wr_set_sge};
use crate::errno::{errno, failed};
use crate::lock::Held;
use crate::queue_pair::{self, SendQueue, may_send, ours};
use crate::rdma_core::*;
use crate::request::ranges;

/// Operations that there are (`send_ops_flags`).
pub const OPERATIONS: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

pub unsafe extern "C" fn create_qp_ex(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: the caller's struct.
    let all = unsafe { &mut *attr };
    let built = all.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    if built && all.send_ops_flags & !OPERATIONS != 0 && all.qp_type == IBV_QPT_RC {
        failed(libc::EOPNOTSUPP);
        return null_mut();
    }
    // SAFETY: the caller's context.
    let qp = unsafe { queue_pair::create(context, all) };
    // SAFETY: just made.
    if let Some(verbs) = unsafe { qp.cast::<verbs_qp>().as_mut() }.filter(|_| built && all.qp_type == IBV_QPT_RC) {
        verbs.comp_mask |= VERBS_QP_EX;
        install(&mut verbs.qp_ex);
    }
    qp
}

/// Puts the functions into a queue pair.
fn install(qp: &mut ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    qp.wr_bind_mw = Some(wr_bind_mw);
    qp.wr_local_inv = Some(wr_local_inv);
    qp.wr_rdma_read = Some(wr_rdma_read);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_send_inv = Some(wr_send_inv);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
}

/// The send queue's lock, which `wr_start` has taken.
///
/// # Safety
/// Between `wr_start` and `wr_complete` or `wr_abort`, in the thread that has called it.
unsafe fn kept<'a>(qp: *mut ibv_qp_ex) -> Held<'a, SendQueue> {
    // SAFETY: as the caller says.
    unsafe { ours(qp.cast()).send.kept() }
}

/// Takes the lock until `wr_complete` or `wr_abort`.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's queue pair.
    let mut held = unsafe { ours(qp.cast()) }.send.lock();
    held.building.clear();
    held.keep();
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: behind `wr_start`; the lock is given back with it.
    unsafe { kept(qp) }.building.clear();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: as `wr_abort`.
    let (mut held, ours) = unsafe { (kept(qp), ours(qp.cast())) };
    let SendQueue { queue, building } = &mut *held;
    building.close(ours.sq_sig_all);
    // SAFETY: the caller's queue pair.
    if !unsafe { may_send(qp.cast()) } {
        building.fail(libc::EINVAL);
    }
    let bytes = building.elements.iter().map(|(element, _)| u64::from(element.bytes())).sum();
    if let Err(refused) = queue.check(&ours.progress.send, building.elements.len(), bytes) {
        building.fail(errno(refused));
    }
    let error = building.error;
    if error == 0 {
        for (element, change) in &building.elements {
            queue.write_marked(&ours.progress.send, element, change.as_ref().is_some_and(|change| change.ends));
            if let Some(change) = change {
                ours.common.windows.note(change);
            }
        }
        queue.ring_send(&ours.common.doorbells, ours.qpn, building.slot);
    }
    building.clear();
    error
}

/// Begins an element.
///
/// # Safety
/// As [`kept`].
unsafe fn begin(qp: *mut ibv_qp_ex, operation: Operation) {
    // SAFETY: as the caller says.
    unsafe { begin_with(qp, operation, None) }
}

/// Begins an element that may change a window.
///
/// # Safety
/// As [`kept`].
unsafe fn begin_with(qp: *mut ibv_qp_ex, operation: Operation, change: Option<Change>) {
    // SAFETY: as the caller says.
    let (mut held, ours) = unsafe { (kept(qp), ours(qp.cast())) };
    held.building.close(ours.sq_sig_all);
    // SAFETY: as the caller says.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // Whether data are inline is said by the call that sets them.
    let flags = flags & !IBV_SEND_INLINE;
    let data = Stored::Ranges([Sge::default(); MAX_SGE], 0);
    held.building.open = Some(Open { wr_id, flags, operation, change, data });
    held.keep();
}

/// Begins what changes a window, or notes that it cannot be.
///
/// # Safety
/// As [`kept`].
unsafe fn begin_window(qp: *mut ibv_qp_ex, made: Result<(Operation, Change), c_int>) {
    match made {
        // SAFETY: as the caller says.
        Ok((operation, change)) => unsafe { begin_with(qp, operation, Some(change)) },
        Err(error) => {
            // SAFETY: as above.
            let mut held = unsafe { kept(qp) };
            held.building.fail(error);
            held.keep();
        }
    }
}

unsafe extern "C" fn wr_bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, key: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: the caller's objects; behind `wr_start`.
    unsafe { begin_window(qp, bind((*qp).qp_base.pd, IBV_MW_TYPE_2, mw, key, &*info)) }
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, key: u32) {
    // SAFETY: behind `wr_start`.
    let held = unsafe { kept(qp) };
    let built = held.building.binds(key);
    held.keep();
    // SAFETY: as above.
    unsafe { begin_window(qp, if built { Ok(end(key)) } else { ours(qp.cast()).common.windows.end(key) }) }
}

/// Declares functions that begin an element.
macro_rules! begin {
    ($($name:ident($($argument:ident: $type:ty),*) = $operation:expr;)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($argument: $type),*) {
            // SAFETY: behind `wr_start`.
            unsafe { begin(qp, $operation) }
        }
    )*};
}

begin! {
    wr_send() = Operation::Send;
    // Immediates are in network order.
    wr_send_imm(immediate: u32) = Operation::SendImmediate(u32::from_be(immediate));
    wr_send_inv(key: u32) = Operation::SendInvalidate(key);
    wr_rdma_write(key: u32, va: u64) = Operation::Write(Remote { va, key });
    wr_rdma_write_imm(key: u32, va: u64, immediate: u32) =
        Operation::WriteImmediate(Remote { va, key }, u32::from_be(immediate));
    wr_rdma_read(key: u32, va: u64) = Operation::Read(Remote { va, key });
    wr_atomic_cmp_swp(key: u32, va: u64, expected: u64, new: u64) =
        Operation::CompareSwap { remote: Remote { va, key }, expected, new };
    wr_atomic_fetch_add(key: u32, va: u64, number: u64) = Operation::FetchAdd(Remote { va, key }, number);
}

/// Sets the data of the element that was begun.
///
/// # Safety
/// As [`kept`].
unsafe fn set(qp: *mut ibv_qp_ex, data: Result<Stored, c_int>) {
    // SAFETY: as the caller says.
    let mut held = unsafe { kept(qp) };
    held.building.set_data(data);
    held.keep();
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the caller's list; behind `wr_start`.
    unsafe { set(qp, ranges(list, count).map(|(sges, n)| Stored::Ranges(sges, n))) }
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    let mut bytes = [0; MAX_INLINE];
    let buffers = (0..count).map(|n| {
        // SAFETY: the caller's list.
        let buffer = unsafe { &*list.add(n) };
        (buffer.addr as u64, buffer.length)
    });
    // SAFETY: the caller's buffers.
    let gathered = unsafe { gather(buffers, &mut bytes) };
    // SAFETY: behind `wr_start`.
    unsafe { set(qp, gathered.map(|n| Stored::Inline(bytes, n)).map_err(errno)) }
}
