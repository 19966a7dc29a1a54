// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queue pairs.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use berth_abi::verbs::VerbsQp;
use berth_abi::wqe::MAX_INLINE;
use berth_queue::{Progress, QpProgress, WorkQueue, queues_fit};

use crate::building::Building;
use crate::completion::{self, ours as cq_of};
use crate::context::{Common, common_of};
use crate::datagram;
use crate::errno::failed;
use crate::lock::Lock;
use crate::mapping::Mapping;
use crate::rdma_core::{
    Answer, IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_STATE,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, ib_uverbs_create_qp_resp,
    ibv_cmd_create_qp_ex, ibv_cmd_destroy_qp, ibv_cmd_modify_qp, ibv_cmd_query_qp, ibv_context, ibv_cq, ibv_create_qp,
    ibv_modify_qp, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_query_qp, verbs_qp,
};
use crate::shared::{Shared, ours as shared_of};

/// A queue pair: libibverbs' own, then ours.
#[repr(C)]
struct Qp {
    verbs: verbs_qp,
    ours: Ours,
}

pub struct Ours {
    pub send: Lock<SendQueue>,
    pub recv: Receives,
    pub progress: Arc<QpProgress>,
    pub common: Arc<Common>,
    pub qpn: u32,
    /// Sends are signalled unless they say something else.
    pub sq_sig_all: bool,
    cqs: Cqs,
    _mapping: Mapping,
}

/// Where the receives are.
pub enum Receives {
    Own(Lock<WorkQueue>),
    Shared(Arc<Shared>),
}

/// The send queue, and what is being built for it.
pub struct SendQueue {
    pub queue: WorkQueue,
    pub building: Building,
}

/// Completion queues, which live longer than the queue pair: the kernel sees to that.
struct Cqs([*mut ibv_cq; 2]);

// SAFETY: what they point to may be used by any thread.
unsafe impl Send for Cqs {}
// SAFETY: as above.
unsafe impl Sync for Cqs {}

impl Cqs {
    fn all(&self) -> impl Iterator<Item = &completion::Ours> {
        let [send, recv] = self.0;
        let different = (send != recv).then_some(recv);
        // SAFETY: they were given as completion queues of ours when the queue pair was made, and are still there.
        [Some(send), different].into_iter().flatten().map(|cq| unsafe { cq_of(cq) })
    }
}

/// Our part of a queue pair.
///
/// # Safety
/// It must be one of [`create_qp`]'s or [`create`]'s for a reliable connection, and outlive the reference.
pub unsafe fn ours<'a>(qp: *mut ibv_qp) -> &'a Ours {
    // SAFETY: as the caller says; libibverbs changes only its own part.
    unsafe { &(*qp.cast::<Qp>()).ours }
}

/// Whether sends may be posted: not before the queue pair is ready to send. In error they come out flushed.
///
/// # Safety
/// As [`ours`].
pub unsafe fn may_send(qp: *mut ibv_qp) -> bool {
    // SAFETY: as the caller says; another thread may change it meanwhile.
    unsafe { (&raw const (*qp).state).read_volatile() >= IBV_QPS_RTS }
}

/// Whether receives may be posted: not in reset.
///
/// # Safety
/// As [`ours`].
pub unsafe fn may_receive(qp: *mut ibv_qp) -> bool {
    // SAFETY: as above.
    unsafe { (&raw const (*qp).state).read_volatile() != IBV_QPS_RESET }
}

pub unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: all fields may be zero.
    let mut all: ibv_qp_init_attr_ex = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the caller's struct.
    let attr = unsafe { &mut *attr };
    (all.qp_context, all.send_cq, all.recv_cq) = (attr.qp_context, attr.send_cq, attr.recv_cq);
    (all.srq, all.cap, all.qp_type, all.sq_sig_all) = (attr.srq, attr.cap, attr.qp_type, attr.sq_sig_all);
    (all.comp_mask, all.pd) = (IBV_QP_INIT_ATTR_PD, pd);
    // SAFETY: the caller's domain.
    let qp = unsafe { create((*pd).context, &mut all) };
    if !qp.is_null() {
        attr.cap = all.cap;
    }
    qp
}

/// Makes a queue pair; sets errno if it cannot.
///
/// # Safety
/// The context must be ours, and so must the completion queues and the shared receive queue.
pub unsafe fn create(context: *mut ibv_context, attr: &mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: as the caller says.
    match unsafe { make(context, attr) } {
        Ok(qp) => qp,
        Err(error) => {
            failed(error);
            null_mut()
        }
    }
}

/// # Safety
/// As [`create`].
unsafe fn make(context: *mut ibv_context, attr: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, c_int> {
    if attr.create_flags == 0 {
        attr.comp_mask &= !IBV_QP_INIT_ATTR_CREATE_FLAGS;
    }
    let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let kinds = [IBV_QPT_RC, IBV_QPT_UD];
    let is_datagram = attr.qp_type == IBV_QPT_UD;
    if !kinds.contains(&attr.qp_type) || (is_datagram && !attr.srq.is_null()) || attr.comp_mask & !known != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if attr.send_cq.is_null() || attr.recv_cq.is_null() {
        return Err(libc::EINVAL);
    }
    if is_datagram {
        // SAFETY: as the caller says.
        return unsafe { datagram::create(context, attr) };
    }
    if attr.cap.max_inline_data as usize > MAX_INLINE {
        return Err(libc::EINVAL);
    }
    let memory = Box::into_raw(Box::new(MaybeUninit::<Qp>::zeroed()));
    let verbs: *mut verbs_qp = memory.cast();
    let qp: *mut ibv_qp = memory.cast();
    let mut command = ibv_create_qp::new();
    let mut answer = Answer::<ib_uverbs_create_qp_resp, VerbsQp>::default();
    // SAFETY: command and answer have the sizes given.
    let error = unsafe {
        let (size, answer) = (size_of_val(&answer), (&raw mut answer).cast());
        ibv_cmd_create_qp_ex(context, verbs, attr, &raw mut command, size_of_val(&command), answer, size)
    };
    let made = match error {
        // SAFETY: filled by libibverbs.
        0 => unsafe { map(context, qp, attr, answer.driver) }.inspect_err(|_| {
            // SAFETY: just made, and known to nobody.
            unsafe { ibv_cmd_destroy_qp(qp) };
        }),
        error => Err(error),
    };
    match made {
        Ok(ours) => {
            for cq in ours.cqs.all() {
                cq.attach(ours.qpn, &ours.progress, ours.shared());
            }
            attr.cap.max_inline_data = MAX_INLINE as u32;
            // SAFETY: the memory is ours, and has a place for it.
            unsafe { (&raw mut (*qp.cast::<Qp>()).ours).write(ours) };
            Ok(qp)
        }
        Err(error) => {
            // SAFETY: known to nobody.
            drop(unsafe { Box::from_raw(memory) });
            Err(error)
        }
    }
}

/// Maps what the kernel has made.
///
/// # Safety
/// The context must be ours, and so must the shared receive queue; the queue pair must be as libibverbs has filled it.
unsafe fn map(
    context: *mut ibv_context,
    qp: *mut ibv_qp,
    attr: &ibv_qp_init_attr_ex,
    answer: VerbsQp,
) -> Result<Ours, c_int> {
    let VerbsQp { offset, bytes, sq_depth, rq_depth, rq_start } = answer;
    if !queues_fit(sq_depth, rq_depth, rq_start, bytes) {
        return Err(libc::EPROTO);
    }
    // SAFETY: as the caller says.
    let (fd, common, qpn) = unsafe { ((*context).cmd_fd, common_of(context), (*qp).qp_num) };
    let mapping = Mapping::new(fd, offset, bytes as usize, true)?;
    let sends: NonNull<u8> = mapping.first();
    // SAFETY: it lies in the mapping (checked above).
    let recvs = unsafe { sends.add(rq_start as usize) };
    // SAFETY: the mapping holds so many elements from there on (checked above), and lives beside the queue.
    let queue = unsafe { WorkQueue::new(sends.cast(), sq_depth) };
    // SAFETY: as above, behind the send queue.
    let recv = unsafe { WorkQueue::new(recvs.cast(), rq_depth) };
    let (send_progress, recv_progress) = (Progress::new(sq_depth), Progress::new(rq_depth));
    let progress = Arc::new(QpProgress { message: true, send: send_progress, recv: recv_progress });
    let recv = if attr.srq.is_null() {
        Receives::Own(Lock::new(recv))
    } else {
        // SAFETY: as the caller says.
        let shared = unsafe { shared_of(attr.srq) };
        shared.join(qp, qpn, recv, &progress);
        Receives::Shared(Arc::clone(shared))
    };
    Ok(Ours {
        send: Lock::new(SendQueue { queue, building: Building::default() }),
        recv,
        progress,
        common,
        qpn,
        sq_sig_all: attr.sq_sig_all != 0,
        cqs: Cqs([attr.send_cq, attr.recv_cq]),
        _mapping: mapping,
    })
}

pub unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let mut command = ibv_query_qp::new();
    // SAFETY: the caller's arguments; the command has the size given.
    unsafe { ibv_cmd_query_qp(qp, attr, mask, init_attr, &raw mut command, size_of_val(&command)) }
}

pub unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let mut command = ibv_modify_qp::default();
    // SAFETY: the caller's arguments; the command has the size given.
    let error = unsafe { ibv_cmd_modify_qp(qp, attr, mask, &raw mut command, size_of_val(&command)) };
    // SAFETY: the caller's queue pair.
    if error != 0 || mask & IBV_QP_STATE == 0 || unsafe { datagram::is(qp) } {
        return error;
    }
    // SAFETY: as above, and the caller's queue pair.
    let (state, ours) = unsafe { ((*attr).qp_state, ours(qp)) };
    match (state, &ours.recv) {
        (IBV_QPS_RESET, _) => ours.reset(),
        (IBV_QPS_INIT, Receives::Shared(shared)) => shared.open(ours.qpn),
        (IBV_QPS_ERR, Receives::Shared(shared)) => shared.close(ours.qpn),
        // The card takes no doorbells for a moment while the sending half begins (`QpPeer::receives_only`).
        (IBV_QPS_RTS, Receives::Shared(shared)) => shared.ring_again(ours.qpn),
        (IBV_QPS_RTS, Receives::Own(queue)) => queue.lock().ring_recv_again(&ours.common.doorbells, ours.qpn),
        _ => (),
    }
    0
}

impl Ours {
    /// The card has forgotten all that was posted, and so do the queues and the completion queues.
    fn reset(&self) {
        let mut send = self.send.lock();
        for cq in self.cqs.all() {
            cq.drop_of(self.qpn);
        }
        send.queue.reset(&self.progress.send);
        match &self.recv {
            Receives::Own(queue) => queue.lock().reset(&self.progress.recv),
            Receives::Shared(shared) => shared.reset(self.qpn),
        }
    }

    /// Its shared receive queue.
    fn shared(&self) -> Option<&Arc<Shared>> {
        match &self.recv {
            Receives::Own(_) => None,
            Receives::Shared(shared) => Some(shared),
        }
    }
}

pub unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller gives back a queue pair of ours.
    if unsafe { datagram::is(qp) } {
        // SAFETY: as above.
        return unsafe { datagram::destroy(qp) };
    }
    // SAFETY: as above.
    let (qpn, shared) = unsafe { (ours(qp).qpn, ours(qp).shared().cloned()) };
    if let Some(shared) = &shared {
        // Its number may be another one's as soon as the kernel has ended it.
        shared.close(qpn);
        shared.leaves(qp, qpn, true);
    }
    // SAFETY: as above.
    unsafe {
        let error = ibv_cmd_destroy_qp(qp);
        if let Some(shared) = shared.as_ref().filter(|_| error != 0) {
            shared.leaves(qp, qpn, false);
        }
        if error == 0 {
            let qp = Box::from_raw(qp.cast::<Qp>());
            for cq in qp.ours.cqs.all() {
                cq.detach(qp.ours.qpn, &qp.ours.progress);
            }
            if let Some(shared) = shared {
                shared.leave(qpn, &qp.ours.progress);
            }
        }
        error
    }
}
