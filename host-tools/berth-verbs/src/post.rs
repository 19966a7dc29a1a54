// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Posting lists of work requests.

use std::ffi::{c_int, c_uint};

use berth_abi::wqe::{MAX_INLINE, MAX_SGE, SLOT_WORDS, Sge};
use berth_queue::{Data, Operation, Progress, Refused, Remote, Request, WorkQueue, gather};

use crate::queue_pair::{may_receive, may_send, ours};
use crate::rdma_core::*;

/// The errno value that verbs have for it.
pub fn errno(refused: Refused) -> c_int {
    match refused {
        Refused::QueueFull { .. } | Refused::TooMuchOutstanding => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

/// What a request of these flags is. A request without `IBV_SEND_SIGNALED` has no completion, unless all have one.
pub fn request(
    wr_id: u64,
    operation: Operation,
    flags: c_uint,
    sq_sig_all: bool,
    data: Data<'_>,
) -> Result<Request<'_>, c_int> {
    const KNOWN: c_uint = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    if flags & !KNOWN != 0 {
        return Err(libc::EINVAL);
    }
    // Packets that use a receive have the bit (IBTA 9.2.3); for others verbs ignore the flag.
    let solicits = matches!(
        operation,
        Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) | Operation::WriteImmediate(..)
    );
    Ok(Request {
        push: solicits && flags & IBV_SEND_SOLICITED != 0,
        fence: flags & IBV_SEND_FENCE != 0,
        unsignalled: !sq_sig_all && flags & IBV_SEND_SIGNALED == 0,
        ..Request::new(wr_id, operation, data)
    })
}

/// Ranges of an element as verbs have them, at most `MAX_SGE`.
///
/// # Safety
/// `list` must point to `count` of them.
pub unsafe fn ranges(list: *const ibv_sge, count: usize) -> Result<([Sge; MAX_SGE], usize), c_int> {
    let mut sges = [Sge::default(); MAX_SGE];
    for (n, sge) in sges.get_mut(..count).ok_or(libc::EINVAL)?.iter_mut().enumerate() {
        // SAFETY: as the caller says.
        let ibv_sge { addr, length, .. } = unsafe { *list.add(n) };
        *sge = Sge { va: addr, len: length, reserved: 0 };
    }
    Ok((sges, count))
}

/// Writes an element to a queue.
pub fn write(queue: &mut WorkQueue, progress: &Progress, request: &Request<'_>) -> Result<berth_abi::wqe::Wqe, c_int> {
    let element = request.element().map_err(errno)?;
    queue.check(progress, 1, element.bytes().into()).map_err(errno)?;
    queue.write(progress, &element);
    Ok(element)
}

/// What a send does.
fn operation(request: &ibv_send_wr) -> Result<Operation, c_int> {
    // The card has numbers, whose bytes it sends in network order.
    let immediate = u32::from_be(request.imm_data);
    // SAFETY: any bits are good for all fields of the union.
    let (rdma, atomic) = unsafe { (request.wr.rdma, request.wr.atomic) };
    let remote = Remote { va: rdma.remote_addr, key: rdma.rkey };
    let target = Remote { va: atomic.remote_addr, key: atomic.rkey };
    Ok(match request.opcode {
        IBV_WR_SEND => Operation::Send,
        IBV_WR_SEND_WITH_IMM => Operation::SendImmediate(immediate),
        IBV_WR_SEND_WITH_INV => Operation::SendInvalidate(request.imm_data),
        IBV_WR_RDMA_WRITE => Operation::Write(remote),
        IBV_WR_RDMA_WRITE_WITH_IMM => Operation::WriteImmediate(remote, immediate),
        IBV_WR_RDMA_READ => Operation::Read(remote),
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            Operation::CompareSwap { remote: target, expected: atomic.compare_add, new: atomic.swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => Operation::FetchAdd(target, atomic.compare_add),
        _ => return Err(libc::EINVAL),
    })
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
    let element = write(queue, progress, &request(wr.wr_id, operation, wr.send_flags, sq_sig_all, data)?)?;
    Ok(if inline { element.slot() } else { None })
}

pub unsafe extern "C" fn post_send(qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
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
    // SAFETY: the caller's queue pair.
    let ours = unsafe { ours(qp) };
    let mut queue = ours.recv.lock();
    let mut error = 0;
    // SAFETY: the caller's list.
    while let Some(next) = unsafe { wr.as_ref() } {
        let receive = || {
            // SAFETY: as above.
            if !unsafe { may_receive(qp) } {
                return Err(libc::EINVAL);
            }
            let count = usize::try_from(next.num_sge).map_err(|_| libc::EINVAL)?;
            // SAFETY: as above.
            let (sges, n) = unsafe { ranges(next.sg_list, count) }?;
            let request = Request::new(next.wr_id, Operation::Receive, Data::Ranges(&sges[..n]));
            write(&mut queue, &ours.progress.recv, &request)
        };
        if let Err(refused) = { receive }() {
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
