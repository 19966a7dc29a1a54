// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! What driver and provider of libibverbs say to each other beside what verbs have of their own (AP-1).
//!
//! Each struct follows the core's part of the same call or answer. The queues' elements, the
//! doorbell page and the completions are those of the other modules.

/// Version of these structs, which libibverbs compares with the provider's.
pub const VERBS_ABI: u32 = 1;

/// Answer to `alloc_ucontext`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsContext {
    /// `ABI_VERSION`: of queue elements and doorbells.
    pub abi: u32,
    /// Must be ignored.
    pub reserved: u32,
    /// Offset for mmap of the doorbell page (4096 bytes, write-only use).
    pub doorbell_offset: u64,
}

/// Answer to `create_cq`. How many entries it has stands in the core's answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsCq {
    /// Offset for mmap (`Cqe` ring).
    pub offset: u64,
    /// Bytes to map.
    pub bytes: u32,
    /// CQN, for doorbells.
    pub cqn: u32,
}

/// Answer to `create_qp`. Its QPN stands in the core's answer. Both queues begin at their first element, and the bytes posted
/// at 0, when it is made and when it has been reset.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsQp {
    /// Offset for mmap.
    pub offset: u64,
    /// Bytes to map: the send queue, then at `rq_start` the receive queue.
    pub bytes: u32,
    /// Elements of the send queue.
    pub sq_depth: u32,
    /// Elements of the receive queue.
    pub rq_depth: u32,
    /// Byte offset of the receive queue in the mapping.
    pub rq_start: u32,
}

/// Call of `modify_qp`, with no attribute that changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsQpChange {
    /// Not 0: receives that nothing has come for are recalled from the peer, and complete with `WC_RECALLED`; the queue pair goes on.
    pub recall: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Call of `modify_srq`. A shared receive queue is the provider's, and so is the count of what is left in it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsSrq {
    /// Not 0: fewer elements are left than the limit.
    pub reached: u32,
    /// Must be 0.
    pub reserved: u32,
}
