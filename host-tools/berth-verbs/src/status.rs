// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an entry of a completion queue says in terms of verbs.

use std::ffi::c_uint;

use berth_abi::status::{
    WC_BAD_WQE, WC_BIND, WC_FLUSHED, WC_LOCAL_PROTECTION, WC_NO_MEMORY, WC_OK, WC_OVER_BUDGET, WC_REMOTE_ACCESS,
    WC_REMOTE_ERROR, WC_REMOTE_REQUEST, WC_RETRY_EXCEEDED, WC_RNR_RETRY, WC_TOO_LONG, WC_WITHDRAWN,
};
use berth_abi::wqe::{CQE_IMMEDIATE, CQE_INVALIDATED, OP_BIND, OP_CMP_SWAP, OP_FETCH_ADD, OP_READ, OP_WRITE};
use berth_queue::Entry;

use crate::rdma_core::*;

/// `IBV_WC_*` of a `WC_*`.
const fn status(status: u8, recv: bool) -> c_uint {
    match status {
        WC_OK => IBV_WC_SUCCESS,
        WC_BAD_WQE => IBV_WC_LOC_QP_OP_ERR,
        WC_LOCAL_PROTECTION | WC_WITHDRAWN => IBV_WC_LOC_PROT_ERR,
        WC_RETRY_EXCEEDED => IBV_WC_RETRY_EXC_ERR,
        WC_FLUSHED => IBV_WC_WR_FLUSH_ERR,
        WC_REMOTE_ERROR => IBV_WC_REM_OP_ERR,
        WC_TOO_LONG if recv => IBV_WC_LOC_LEN_ERR,
        WC_TOO_LONG | WC_REMOTE_REQUEST => IBV_WC_REM_INV_REQ_ERR,
        WC_REMOTE_ACCESS => IBV_WC_REM_ACCESS_ERR,
        WC_BIND => IBV_WC_MW_BIND_ERR,
        WC_RNR_RETRY => IBV_WC_RNR_RETRY_EXC_ERR,
        // Verbs have no word for memory that may be used but cannot be had.
        WC_OVER_BUDGET | WC_NO_MEMORY => IBV_WC_GENERAL_ERR,
        _ => IBV_WC_GENERAL_ERR,
    }
}

/// The completion that an entry is. The card's own status stands in `vendor_err`.
pub fn completion(entry: &Entry) -> ibv_wc {
    let Entry { cqe, recv, marked, .. } = *entry;
    let opcode = match (recv, cqe.opcode) {
        (true, OP_WRITE) => IBV_WC_RECV_RDMA_WITH_IMM,
        (true, _) => IBV_WC_RECV,
        (_, OP_WRITE) => IBV_WC_RDMA_WRITE,
        (_, OP_READ) => IBV_WC_RDMA_READ,
        (_, OP_CMP_SWAP) => IBV_WC_COMP_SWAP,
        (_, OP_FETCH_ADD) => IBV_WC_FETCH_ADD,
        (_, OP_BIND) if marked => IBV_WC_LOCAL_INV,
        (_, OP_BIND) => IBV_WC_BIND_MW,
        _ => IBV_WC_SEND,
    };
    let (imm_data, wc_flags) = if recv && cqe.flags & CQE_IMMEDIATE != 0 {
        (cqe.remaining.to_be(), IBV_WC_WITH_IMM)
    } else if recv && cqe.flags & CQE_INVALIDATED != 0 {
        (cqe.remaining, IBV_WC_WITH_INV)
    } else {
        (0, 0)
    };
    ibv_wc {
        wr_id: cqe.wr_id,
        status: status(cqe.status, recv),
        opcode,
        vendor_err: cqe.status.into(),
        byte_len: cqe.byte_len,
        imm_data,
        qp_num: cqe.qpn,
        wc_flags,
        ..ibv_wc::default()
    }
}
