// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work requests of verbs as the card has them.

use std::ffi::{c_int, c_uint};

use berth_abi::wqe::{MAX_SGE, Sge, Wqe};
use berth_queue::{Data, Operation, Remote, Request};

use crate::errno::errno;
use crate::rdma_core::*;

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

/// Gives the element of a receive to `to`.
///
/// # Safety
/// The list must be the caller's.
pub unsafe fn receive(wr: &ibv_recv_wr, to: impl FnOnce(&Wqe) -> Result<(), c_int>) -> Result<(), c_int> {
    let count = usize::try_from(wr.num_sge).map_err(|_| libc::EINVAL)?;
    // SAFETY: as the caller says.
    let (sges, n) = unsafe { ranges(wr.sg_list, count) }?;
    let request = Request::new(wr.wr_id, Operation::Receive, Data::Ranges(&sges[..n]));
    to(&request.element().map_err(errno)?)
}

/// What a send does.
pub fn operation(request: &ibv_send_wr) -> Result<Operation, c_int> {
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
