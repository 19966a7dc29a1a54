// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting lists of work requests.

use std::ffi::{c_int, c_uint};

use berth_abi::wqe::{MAX_INLINE, SLOT_WORDS, Wqe};
use berth_queue::{Data, Operation, Progress, WorkQueue, gather};

use crate::bound::{Change, bind};
use crate::datagram;
use crate::errno::errno;
use crate::queue_pair::{Ours, Receives, may_receive, may_send, ours};
use crate::rdma_core::{
    IBV_MW_TYPE_2, IBV_SEND_INLINE, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, bind_mw, ibv_cmd_post_recv, ibv_cmd_post_send,
    ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr,
};
use crate::request::{operation, ranges, receive, request};

/// Writes an element to a queue.
fn write(queue: &mut WorkQueue, progress: &Progress, element: &Wqe) -> Result<(), c_int> {
    write_marked(queue, progress, element, false)
}

/// Likewise; marked if it ends a window.
fn write_marked(queue: &mut WorkQueue, progress: &Progress, element: &Wqe, marked: bool) -> Result<(), c_int> {
    queue.check(progress, 1, element.bytes().into()).map_err(errno)?;
    queue.write_marked(progress, element, marked);
    Ok(())
}

/// Posts one element that changes a window.
fn change_window(
    queue: &mut WorkQueue,
    to: &Ours,
    wr_id: u64,
    flags: c_uint,
    (operation, change): (Operation, Change),
) -> Result<(), c_int> {
    if flags & IBV_SEND_INLINE != 0 {
        return Err(libc::EINVAL);
    }
    let element = request(wr_id, operation, flags, to.sq_sig_all, Data::Ranges(&[]))?.element().map_err(errno)?;
    write_marked(queue, &to.progress.send, &element, change.ends)?;
    to.common.windows.note(&change);
    Ok(())
}

/// Posts an element that changes a window, alone.
///
/// # Safety
/// The queue pair must be the caller's.
pub unsafe fn post_window(
    qp: *mut ibv_qp,
    wr_id: u64,
    flags: c_uint,
    operation: Operation,
    change: Change,
) -> Result<(), c_int> {
    // SAFETY: as the caller says.
    if unsafe { datagram::is(qp) || !may_send(qp) } {
        return Err(libc::EINVAL);
    }
    // SAFETY: as above.
    let ours = unsafe { ours(qp) };
    let mut held = ours.send.lock();
    change_window(&mut held.queue, ours, wr_id, flags, (operation, change))?;
    held.queue.ring_send(&ours.common.doorbells, ours.qpn, None);
    Ok(())
}

/// Posts one send; answers it as it stands in a doorbell's slot, if its data are inline.
///
/// # Safety
/// The lists must be the caller's, and the memory of inline data readable; so must what a window's bind names, of domain `pd`.
unsafe fn send(
    queue: &mut WorkQueue,
    to: &Ours,
    pd: *mut ibv_pd,
    wr: &ibv_send_wr,
) -> Result<Option<[u64; SLOT_WORDS]>, c_int> {
    let window = match wr.opcode {
        IBV_WR_LOCAL_INV => Some(to.common.windows.end(wr.imm_data)?),
        IBV_WR_BIND_MW => {
            let bind_mw { mw, rkey, bind_info } = &wr.bind_mw;
            // SAFETY: as the caller says.
            Some(unsafe { bind(pd, IBV_MW_TYPE_2, *mw, *rkey, bind_info) }?)
        }
        _ => None,
    };
    if let Some(window) = window {
        return change_window(queue, to, wr.wr_id, wr.send_flags, window).map(|()| None);
    }
    let operation = operation(wr)?;
    let count = usize::try_from(wr.num_sge).map_err(|_| libc::EINVAL)?;
    let inline = wr.send_flags & IBV_SEND_INLINE != 0;
    let mut bytes = [0; MAX_INLINE];
    let (sges, n);
    let data = if inline {
        let list = (0..count).map(|n| {
            // SAFETY: as the caller says.
            let sge = unsafe { *wr.sg_list.add(n) };
            (sge.addr, sge.length as usize)
        });
        // SAFETY: as the caller says.
        let len = unsafe { gather(list, &mut bytes) }.map_err(errno)?;
        Data::Inline(&bytes[..len])
    } else {
        // SAFETY: as the caller says.
        (sges, n) = unsafe { ranges(wr.sg_list, count) }?;
        Data::Ranges(&sges[..n])
    };
    let element = request(wr.wr_id, operation, wr.send_flags, to.sq_sig_all, data)?.element().map_err(errno)?;
    write(queue, &to.progress.send, &element)?;
    Ok(if inline { element.slot() } else { None })
}

pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's queue pair and list.
    if unsafe { datagram::is(qp) } {
        // SAFETY: as above.
        return unsafe { ibv_cmd_post_send(qp, wr, bad) };
    }
    // SAFETY: the caller's queue pair.
    let ours = unsafe { ours(qp) };
    let mut held = ours.send.lock();
    let queue = &mut held.queue;
    let (mut slot, mut error) = (None, 0);
    // SAFETY: the caller's list.
    while let Some(next) = unsafe { wr.as_ref() } {
        // SAFETY: as above.
        let posted = match unsafe { may_send(qp) } {
            false => Err(libc::EINVAL),
            // SAFETY: as above.
            true => unsafe { send(queue, ours, (*qp).pd, next) },
        };
        match posted {
            Ok(last) => slot = last,
            Err(refused) => {
                error = refused;
                // SAFETY: the caller's place for it.
                unsafe { *bad = wr };
                break;
            }
        }
        wr = next.next;
    }
    queue.ring_send(&ours.common.doorbells, ours.qpn, slot);
    error
}

pub unsafe extern "C" fn post_recv(qp: *mut ibv_qp, mut wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller's queue pair and list.
    if unsafe { datagram::is(qp) } {
        // SAFETY: as above.
        return unsafe { ibv_cmd_post_recv(qp, wr, bad) };
    }
    // SAFETY: the caller's queue pair.
    let ours = unsafe { ours(qp) };
    let Receives::Own(queue) = &ours.recv else {
        // SAFETY: the caller's place for it.
        unsafe { *bad = wr };
        return libc::EINVAL;
    };
    let mut queue = queue.lock();
    let mut error = 0;
    // SAFETY: the caller's list.
    while let Some(next) = unsafe { wr.as_ref() } {
        // SAFETY: as above.
        let posted = match unsafe { may_receive(qp) } {
            false => Err(libc::EINVAL),
            // SAFETY: as above.
            true => unsafe { receive(next, |element| write(&mut queue, &ours.progress.recv, element)) },
        };
        if let Err(refused) = posted {
            error = refused;
            // SAFETY: the caller's place for it.
            unsafe { *bad = wr };
            break;
        }
        wr = next.next;
    }
    queue.ring_recv(&ours.common.doorbells, ours.qpn);
    error
}
