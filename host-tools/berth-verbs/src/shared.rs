// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared receive queues. Their elements are here, lent to queue pairs (`berth_queue::SharedQueue`); the kernel knows their
//! size, and tells the program when there are few left.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use berth_abi::status::{WC_FLUSHED, WC_RECALLED};
use berth_abi::verbs::{VerbsQpChange, VerbsSrq};
use berth_queue::{Entry, LoanEnd, QpProgress, SharedQueue, WorkQueue};

use crate::context::{Common, common_of};
use crate::errno::{errno, failed};
use crate::lock::Lock;
use crate::rdma_core::{
    Answer, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ib_uverbs_create_srq_resp, ibv_cmd_create_srq, ibv_cmd_destroy_srq,
    ibv_cmd_modify_qp, ibv_cmd_modify_srq, ibv_cmd_query_srq, ibv_create_srq, ibv_modify_qp, ibv_modify_srq, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_query_srq, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};
use crate::request::receive;

/// A shared receive queue: libibverbs' own, then ours.
#[repr(C)]
struct Srq {
    verbs: ibv_srq,
    ours: Arc<Shared>,
}

/// What its queue pairs and their completion queues hold of it.
pub struct Shared {
    queue: Lock<SharedQueue>,
    common: Arc<Common>,
    srq: *mut ibv_srq,
    /// Its queue pairs by number, from before they have receives until they are destroyed.
    qps: Mutex<BTreeMap<u32, *mut ibv_qp>>,
    since: Instant,
}

// SAFETY: what it points to may be used by any thread; it outlives the queue pairs, which the kernel sees to. Those that it
// points to are forgotten before they go.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// A queue pair takes its receives from here, once it is opened.
    pub fn join(&self, qp: *mut ibv_qp, qpn: u32, queue: WorkQueue, progress: &Arc<QpProgress>) {
        self.qps().insert(qpn, qp);
        self.queue.lock().join(qpn, queue, Arc::clone(progress));
    }

    /// It is about to be destroyed, or was not after all.
    pub fn leaves(&self, qp: *mut ibv_qp, qpn: u32, leaves: bool) {
        match leaves {
            true => _ = self.qps().remove(&qpn),
            false => _ = self.qps().insert(qpn, qp),
        }
    }

    /// It is gone.
    pub fn leave(&self, qpn: u32, progress: &Arc<QpProgress>) {
        self.change(|queue| queue.leave(qpn, progress));
    }

    fn qps(&self) -> MutexGuard<'_, BTreeMap<u32, *mut ibv_qp>> {
        self.qps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It may have receives.
    pub fn open(&self, qpn: u32) {
        self.change(|queue| queue.open(qpn));
    }

    /// It gets no more.
    pub fn close(&self, qpn: u32) {
        self.queue.lock().close(qpn);
    }

    /// It has been reset.
    pub fn reset(&self, qpn: u32) {
        self.change(|queue| queue.reset(qpn));
    }

    /// The card is told again of what it has.
    pub fn ring_again(&self, qpn: u32) {
        self.queue.lock().ring_again(qpn, &self.common.doorbells);
    }

    fn change(&self, change: impl FnOnce(&mut SharedQueue)) {
        let mut queue = self.queue.lock();
        change(&mut queue);
        queue.lend(&self.common.doorbells);
    }

    /// A completion of a queue pair has been taken. Whether it is one for the program to see: a receive that came back is not,
    /// because it is still in the queue.
    pub fn completed(&self, entry: &Entry) -> bool {
        if !entry.recv {
            return true;
        }
        let end = match entry.cqe.status {
            WC_FLUSHED => LoanEnd::Flushed,
            WC_RECALLED => LoanEnd::Recalled,
            _ => LoanEnd::Used,
        };
        self.change(|queue| queue.completed(entry.cqe.qpn, end));
        self.tell();
        self.recall();
        end == LoanEnd::Used
    }

    /// Has the card recall loans of a queue pair, if another one has none.
    pub fn recall(&self) {
        let now = || self.since.elapsed().as_nanos() as u64;
        let Some(qpn) = self.queue.lock().recall(now) else { return };
        let mut command =
            ibv_modify_qp { driver: VerbsQpChange { recall: 1, reserved: 0 }, ..ibv_modify_qp::default() };
        // No field of it is looked at.
        let mut nothing = MaybeUninit::<ibv_qp_attr>::zeroed();
        // It is not destroyed meanwhile.
        let qps = self.qps();
        let recalled = qps.get(&qpn).is_some_and(|qp| {
            // SAFETY: the queue pair is there; the command has the size given.
            unsafe { ibv_cmd_modify_qp(*qp, nothing.as_mut_ptr(), 0, &raw mut command, size_of_val(&command)) == 0 }
        });
        if !recalled {
            self.queue.lock().not_recalled(qpn);
        }
    }

    /// Has the kernel tell the program if fewer are left than its limit.
    fn tell(&self) {
        if self.queue.lock().takes_limit() {
            let mut command = ibv_modify_srq { core: [0; 6], driver: VerbsSrq { reached: 1, reserved: 0 } };
            let mut nothing = ibv_srq_attr::default();
            // SAFETY: the queue is there; the command has the size given. Nobody hears of an error: the program has limits of
            // its own, and the device may have gone.
            unsafe { ibv_cmd_modify_srq(self.srq, &raw mut nothing, 0, &raw mut command, size_of_val(&command)) };
        }
    }
}

/// Our part of a shared receive queue.
///
/// # Safety
/// It must be one of [`create_srq`]'s, and outlive the reference.
pub unsafe fn ours<'a>(srq: *mut ibv_srq) -> &'a Arc<Shared> {
    // SAFETY: as the caller says; libibverbs changes only its own part.
    unsafe { &(*srq.cast::<Srq>()).ours }
}

pub unsafe extern "C" fn create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    let memory = Box::into_raw(Box::new(MaybeUninit::<Srq>::zeroed()));
    let srq: *mut ibv_srq = memory.cast();
    let mut command = ibv_create_srq::new();
    let mut answer = Answer::<ib_uverbs_create_srq_resp, [u32; 0]>::default();
    // SAFETY: the caller's arguments; command and answer have the sizes given.
    let error = unsafe {
        let (size, answer) = (size_of_val(&answer), (&raw mut answer).cast());
        ibv_cmd_create_srq(pd, srq, attr, &raw mut command, size_of_val(&command), answer, size)
    };
    if error != 0 {
        // SAFETY: known to nobody.
        drop(unsafe { Box::from_raw(memory) });
        failed(error);
        return null_mut();
    }
    // SAFETY: the caller's arguments.
    let (common, wanted) = unsafe { (common_of((*pd).context), &(*attr).attr) };
    let mut queue = SharedQueue::new(wanted.max_wr);
    queue.set_limit(wanted.srq_limit);
    let (queue, qps, since) = (Lock::new(queue), Mutex::new(BTreeMap::new()), Instant::now());
    let ours = Arc::new(Shared { queue, common, srq, qps, since });
    // SAFETY: the memory is ours, and has a place for it.
    unsafe { (&raw mut (*srq.cast::<Srq>()).ours).write(ours) };
    srq
}

pub unsafe extern "C" fn modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    let mut command = ibv_modify_srq { core: [0; 6], driver: VerbsSrq::default() };
    // SAFETY: the caller's arguments.
    let (ours, wanted) = unsafe { (ours(srq), *attr) };
    let has = |bit: c_uint| mask as c_uint & bit != 0;
    let before = ours.queue.lock().capacity();
    if has(IBV_SRQ_MAX_WR) && ours.queue.lock().resize(wanted.max_wr).is_err() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's arguments; the command has the size given.
    let error = unsafe { ibv_cmd_modify_srq(srq, attr, mask, &raw mut command, size_of_val(&command)) };
    if error != 0 && has(IBV_SRQ_MAX_WR) {
        // If more have been posted meanwhile, they stay.
        let _ = ours.queue.lock().resize(before);
    }
    if error == 0 && has(IBV_SRQ_LIMIT) {
        ours.queue.lock().set_limit(wanted.srq_limit);
        ours.tell();
    }
    error
}

pub unsafe extern "C" fn query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    let mut command = ibv_query_srq::new();
    // SAFETY: the caller's arguments; the command has the size given.
    unsafe { ibv_cmd_query_srq(srq, attr, &raw mut command, size_of_val(&command)) }
}

pub unsafe extern "C" fn destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller gives back a queue of ours.
    unsafe {
        let error = ibv_cmd_destroy_srq(srq);
        if error == 0 {
            drop(Box::from_raw(srq.cast::<Srq>()));
        }
        error
    }
}

pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's queue.
    let ours = unsafe { ours(srq) };
    let mut error = 0;
    ours.change(|queue| {
        // SAFETY: the caller's list.
        while let Some(next) = unsafe { wr.as_ref() } {
            // SAFETY: as above.
            let posted = unsafe { receive(next, |element| queue.post(*element).map_err(errno)) };
            if let Err(refused) = posted {
                error = refused;
                // SAFETY: the caller's place for it.
                unsafe { *bad = wr };
                break;
            }
            wr = next.next;
        }
    });
    ours.recall();
    error
}
