// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting call by call (`ibv_wr_start`, `ibv_wr_send`, …, `ibv_wr_complete`).
//!
//! Elements are kept aside until `ibv_wr_complete`, so that all of them are posted or none.

use std::ffi::{c_int, c_uint, c_void};

use berth_abi::wqe::{MAX_INLINE, MAX_SGE, SLOT_WORDS, Sge, Wqe};
use berth_queue::{Data, Operation, Remote, gather};

use crate::lock::Held;
use crate::post::{errno, ranges, request};
use crate::queue_pair::{SendQueue, may_send, ours};
use crate::rdma_core::*;

/// Operations that there are (`send_ops_flags`).
pub const OPERATIONS: u64 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// What is built between `ibv_wr_start` and `ibv_wr_complete`.
#[derive(Default)]
pub struct Building {
    /// Elements that are whole.
    elements: Vec<Wqe>,
    /// The last one as it stands in a doorbell's slot, if its data are inline.
    slot: Option<[u64; SLOT_WORDS]>,
    /// The one whose data may come yet.
    open: Option<Open>,
    /// Why nothing can be posted, an errno value; 0: it can.
    error: c_int,
}

/// An element whose data may come yet.
struct Open {
    wr_id: u64,
    flags: c_uint,
    operation: Operation,
    data: Stored,
}

/// Data of an element.
enum Stored {
    Ranges([Sge; MAX_SGE], usize),
    Inline([u8; MAX_INLINE], usize),
}

impl Building {
    /// Makes the open element whole.
    fn close(&mut self, sq_sig_all: bool) {
        let Some(open) = self.open.take() else { return };
        let (data, inline) = match &open.data {
            Stored::Ranges(sges, n) => (Data::Ranges(&sges[..*n]), false),
            Stored::Inline(bytes, n) => (Data::Inline(&bytes[..*n]), true),
        };
        let made = request(open.wr_id, open.operation, open.flags, sq_sig_all, data)
            .and_then(|request| request.element().map_err(errno));
        match made {
            Ok(element) => {
                self.slot = if inline { element.slot() } else { None };
                self.elements.push(element);
            }
            Err(error) => self.fail(error),
        }
    }

    /// The first error is the one that is told.
    fn fail(&mut self, error: c_int) {
        if self.error == 0 {
            self.error = error;
        }
    }

    fn clear(&mut self) {
        self.elements.clear();
        (self.slot, self.open, self.error) = (None, None, 0);
    }

    fn set_data(&mut self, data: Result<Stored, c_int>) {
        match (data, &mut self.open) {
            (Ok(data), Some(open)) => open.data = data,
            (Ok(_), None) => self.fail(libc::EINVAL),
            (Err(error), _) => self.fail(error),
        }
    }
}

/// Puts the functions into a queue pair.
pub fn install(qp: &mut ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
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
    let bytes = building.elements.iter().map(|element| u64::from(element.bytes())).sum();
    if let Err(refused) = queue.check(&ours.progress.send, building.elements.len(), bytes) {
        building.fail(errno(refused));
    }
    let error = building.error;
    if error == 0 {
        for element in &building.elements {
            queue.write(&ours.progress.send, element);
        }
        queue.ring_send(&ours.page.doorbells, ours.qpn, building.slot);
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
    let (mut held, ours) = unsafe { (kept(qp), ours(qp.cast())) };
    held.building.close(ours.sq_sig_all);
    // SAFETY: as the caller says.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // Whether data are inline is said by the call that sets them.
    let flags = flags & !IBV_SEND_INLINE;
    let data = Stored::Ranges([Sge::default(); MAX_SGE], 0);
    held.building.open = Some(Open { wr_id, flags, operation, data });
    held.keep();
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

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = ibv_sge { addr, length, lkey };
    // SAFETY: behind `wr_start`; the list has one range.
    unsafe { wr_set_sge_list(qp, 1, &raw const sge) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the caller's list; behind `wr_start`.
    unsafe { set(qp, ranges(list, count).map(|(sges, n)| Stored::Ranges(sges, n))) }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let one = ibv_data_buf { addr, length };
    // SAFETY: behind `wr_start`; the list has one buffer.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const one) }
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
