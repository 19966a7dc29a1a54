// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs of unreliable datagrams, and address handles. The kernel serves them: requests go to it as libibverbs has them,
//! and it copies the data of sends when they are posted, of receives when their completions are polled.

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use berth_abi::wqe::MAX_SGE;

use crate::building::{wr_set_inline_data, wr_set_sge};
use crate::completion::{self, ours as cq_of};
use crate::errno::failed;
use crate::lock::{Held, Lock};
use crate::rdma_core::*;

/// Operations that there are (`send_ops_flags`).
pub const OPERATIONS: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

/// A queue pair: libibverbs' own, then ours.
#[repr(C)]
struct Qp {
    verbs: verbs_qp,
    ours: Ours,
}

struct Ours {
    building: Lock<Building>,
    cqs: [*mut ibv_cq; 2],
}

impl Ours {
    /// Its completion queues, each once.
    fn all_cqs(&self) -> impl Iterator<Item = *mut ibv_cq> {
        let [send, recv] = self.cqs;
        let different = (send != recv).then_some(recv);
        [Some(send), different].into_iter().flatten()
    }
}

/// Whether a queue pair is one of datagrams.
///
/// # Safety
/// It must be one of ours.
pub unsafe fn is(qp: *mut ibv_qp) -> bool {
    // SAFETY: as the caller says; libibverbs writes it once.
    unsafe { (*qp).qp_type == IBV_QPT_UD }
}

/// # Safety
/// It must be one of [`create`]'s, and outlive the reference.
unsafe fn ours<'a>(qp: *mut ibv_qp) -> &'a Ours {
    // SAFETY: as the caller says; libibverbs changes only its own part.
    unsafe { &(*qp.cast::<Qp>()).ours }
}

/// Makes a queue pair.
///
/// # Safety
/// The context must be ours, and so must the completion queues.
pub unsafe fn create(context: *mut ibv_context, attr: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, c_int> {
    let built = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    if built && attr.send_ops_flags & !OPERATIONS != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let mut memory = Box::new(MaybeUninit::<Qp>::zeroed());
    let verbs: *mut verbs_qp = memory.as_mut_ptr().cast();
    let mut command = ibv_create_qp::new();
    let mut answer = ib_uverbs_create_qp_resp::default();
    // SAFETY: command and answer have the sizes given.
    let error = unsafe {
        let size = size_of_val(&answer);
        ibv_cmd_create_qp_ex(context, verbs, attr, &raw mut command, size_of_val(&command), &raw mut answer, size)
    };
    if error != 0 {
        return Err(error);
    }
    let ours = Ours { building: Lock::new(Building::default()), cqs: [attr.send_cq, attr.recv_cq] };
    // SAFETY: they were given as completion queues of ours.
    ours.all_cqs().for_each(|cq| unsafe { completion::begin_datagrams(cq) });
    let qp = Box::into_raw(memory).cast::<Qp>();
    // SAFETY: the memory is ours, and has places for it.
    unsafe {
        (&raw mut (*qp).ours).write(ours);
        if built {
            (*verbs).comp_mask |= VERBS_QP_EX;
            install(&mut (*verbs).qp_ex);
        }
    }
    Ok(qp.cast())
}

/// Ends it.
///
/// # Safety
/// It must be one of [`create`]'s, which nobody uses any more.
pub unsafe fn destroy(qp: *mut ibv_qp) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        let error = ibv_cmd_destroy_qp(qp);
        if error == 0 {
            let qp = Box::from_raw(qp.cast::<Qp>());
            qp.ours.all_cqs().for_each(|cq| cq_of(cq).end_datagrams());
        }
        error
    }
}

pub unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut Opaque) -> *mut ibv_ah {
    // libibverbs fills it.
    let ah = Box::into_raw(Box::new(ibv_ah { context: null_mut(), pd: null_mut(), handle: 0 }));
    let mut answer = ib_uverbs_create_ah_resp::default();
    // SAFETY: the caller's arguments; the answer has the size given.
    let error = unsafe { ibv_cmd_create_ah(pd, ah, attr, &raw mut answer, size_of_val(&answer)) };
    if error == 0 {
        return ah;
    }
    // SAFETY: known to nobody.
    drop(unsafe { Box::from_raw(ah) });
    failed(error);
    null_mut()
}

pub unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller gives back one of ours.
    unsafe {
        let error = ibv_cmd_destroy_ah(ah);
        if error == 0 {
            drop(Box::from_raw(ah));
        }
        error
    }
}

/// A send that is built call by call.
struct Built {
    request: ibv_send_wr,
    ranges: [ibv_sge; MAX_SGE],
    /// Inline data, which one range then names.
    bytes: Option<Box<[u8]>>,
}

// SAFETY: the pointers in it are made when it is posted, by the thread that posts it.
unsafe impl Send for Built {}

/// What is built between `ibv_wr_start` and `ibv_wr_complete`.
#[derive(Default)]
struct Building {
    all: Vec<Built>,
    /// Why nothing can be posted, an errno value; 0: it can.
    error: c_int,
}

fn install(qp: &mut ibv_qp_ex) {
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
}

/// The lock that `wr_start` has taken.
///
/// # Safety
/// Between `wr_start` and `wr_complete` or `wr_abort`, in the thread that has called it.
unsafe fn kept<'a>(qp: *mut ibv_qp_ex) -> Held<'a, Building> {
    // SAFETY: as the caller says.
    unsafe { ours(qp.cast()).building.kept() }
}

/// Takes the lock until `wr_complete` or `wr_abort`.
unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's queue pair.
    let mut held = unsafe { ours(qp.cast()) }.building.lock();
    *held = Building::default();
    held.keep();
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: behind `wr_start`; the lock is given back with it.
    *unsafe { kept(qp) } = Building::default();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: as `wr_abort`.
    let mut held = unsafe { kept(qp) };
    let mut building = std::mem::take(&mut *held);
    if building.error != 0 || building.all.is_empty() {
        return building.error;
    }
    let mut next = null_mut();
    for built in building.all.iter_mut().rev() {
        if let Some(bytes) = &mut built.bytes {
            built.ranges[0] = ibv_sge { addr: bytes.as_mut_ptr() as u64, length: bytes.len() as u32, lkey: 0 };
            built.request.num_sge = 1;
        }
        (built.request.sg_list, built.request.next) = (built.ranges.as_mut_ptr(), next);
        next = &raw mut built.request;
    }
    let mut bad = null_mut();
    // SAFETY: the list stays as it is during the call.
    unsafe { ibv_cmd_post_send(qp.cast(), next, &raw mut bad) }
}

/// Begins a send.
///
/// # Safety
/// As [`kept`].
unsafe fn begin(qp: *mut ibv_qp_ex, opcode: c_uint, immediate: u32) {
    // SAFETY: as the caller says.
    let (mut held, wr_id, flags) = unsafe { (kept(qp), (*qp).wr_id, (*qp).wr_flags) };
    // SAFETY: all fields may be zero.
    let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    (request.wr_id, request.opcode, request.imm_data) = (wr_id, opcode, immediate);
    request.send_flags = flags;
    let ranges = [ibv_sge { addr: 0, length: 0, lkey: 0 }; MAX_SGE];
    held.all.push(Built { request, ranges, bytes: None });
    held.keep();
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: behind `wr_start`.
    unsafe { begin(qp, IBV_WR_SEND, 0) }
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, immediate: u32) {
    // SAFETY: behind `wr_start`.
    unsafe { begin(qp, IBV_WR_SEND_WITH_IMM, immediate) }
}

/// Changes the send that was begun last.
///
/// # Safety
/// As [`kept`].
unsafe fn change(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Built) -> Result<(), c_int>) {
    // SAFETY: as the caller says.
    let mut held = unsafe { kept(qp) };
    let changed = held.all.last_mut().ok_or(libc::EINVAL).and_then(change);
    if let (Err(error), 0) = (changed, held.error) {
        held.error = error;
    }
    held.keep();
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    let to = |built: &mut Built| {
        built.request.wr.ud = ud { ah, remote_qpn, remote_qkey };
        Ok(())
    };
    // SAFETY: behind `wr_start`.
    unsafe { change(qp, to) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let to = |built: &mut Built| {
        for (n, range) in built.ranges.get_mut(..count).ok_or(libc::EINVAL)?.iter_mut().enumerate() {
            // SAFETY: the caller's list.
            *range = unsafe { *list.add(n) };
        }
        built.request.num_sge = count as c_int;
        Ok(())
    };
    // SAFETY: behind `wr_start`.
    unsafe { change(qp, to) }
}

/// The caller may change the data afterwards, before the send is posted.
unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    let to = |built: &mut Built| {
        let mut bytes = Vec::new();
        for n in 0..count {
            // SAFETY: the caller's list.
            let ibv_data_buf { addr, length } = unsafe { list.add(n).read() };
            if bytes.len() + length > MAX_DATAGRAM {
                return Err(libc::EINVAL);
            }
            if length != 0 {
                // SAFETY: the caller's buffer.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(addr.cast(), length) });
            }
        }
        built.bytes = Some(bytes.into_boxed_slice());
        Ok(())
    };
    // SAFETY: behind `wr_start`.
    unsafe { change(qp, to) }
}

/// Bytes of the longest datagram there may be: the largest path MTU.
const MAX_DATAGRAM: usize = 4096;
