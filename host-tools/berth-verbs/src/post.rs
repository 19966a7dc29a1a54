// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting lists of work requests.

use std::ffi::c_int;

use berth_abi::wqe::{MAX_INLINE, SLOT_WORDS, Wqe};
use berth_queue::{Data, Progress, WorkQueue, gather};

use crate::datagram;
use crate::errno::errno;
use crate::queue_pair::{Receives, may_receive, may_send, ours};
use crate::rdma_core::{IBV_SEND_INLINE, ibv_cmd_post_recv, ibv_cmd_post_send, ibv_qp, ibv_recv_wr, ibv_send_wr};
use crate::request::{operation, ranges, receive, request};

/// Writes an element to a queue.
fn write(queue: &mut WorkQueue, progress: &Progress, element: &Wqe) -> Result<(), c_int> {
    queue.check(progress, 1, element.bytes().into()).map_err(errno)?;
    queue.write(progress, element);
    Ok(())
}

/// Posts one send; answers it as it stands in a doorbell's slot, if its data are inline.
///
/// # Safety
/// The lists must be the caller's, and the memory of inline data readable.
unsafe fn send(
    queue: &mut WorkQueue,
    progress: &Progress,
    sq_sig_all: bool,
    wr: &ibv_send_wr,
) -> Result<Option<[u64; SLOT_WORDS]>, c_int> {
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
    let element = request(wr.wr_id, operation, wr.send_flags, sq_sig_all, data)?.element().map_err(errno)?;
    write(queue, progress, &element)?;
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
            true => unsafe { send(queue, &ours.progress.send, ours.sq_sig_all, next) },
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
    queue.ring_send(&ours.page.doorbells, ours.qpn, slot);
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
    queue.ring_recv(&ours.page.doorbells, ours.qpn);
    error
}
