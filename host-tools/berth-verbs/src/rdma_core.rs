// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the provider shares with libibverbs: as much of verbs as it touches, and of the private interface between libibverbs
//! and providers, which has version 34 in rdma-core 56. Names are those of rdma-core. What the provider does not look at is
//! opaque. Sizes and places are compared below with what bindgen says of rdma-core 56.1 (x86-64).

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use berth_abi::verbs::{VerbsQpChange, VerbsSrq};
use libc::{pthread_cond_t, pthread_mutex_t};

/// A function that the provider does not have.
type Unused = Option<unsafe extern "C" fn()>;

/// Something of which only the address is passed on.
pub enum Opaque {}

/// What libibverbs has of its device.
#[repr(C)]
pub struct verbs_device {
    opaque: [u64; 89],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut Opaque,
    ops: [usize; 32],
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    mutex: pthread_mutex_t,
    abi_compat: *mut c_void,
}

#[repr(C)]
pub struct verbs_context {
    extensions: [usize; 40],
    pub context: ibv_context,
}

#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct verbs_mr {
    pub ibv_mr: ibv_mr,
    mr_type: c_uint,
    pub access: c_int,
}

pub const IBV_ACCESS_LOCAL_WRITE: c_uint = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_uint = 2;
pub const IBV_ACCESS_REMOTE_READ: c_uint = 4;
pub const IBV_ACCESS_REMOTE_ATOMIC: c_uint = 8;
pub const IBV_ACCESS_MW_BIND: c_uint = 16;

#[repr(C)]
pub struct ibv_mw {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: c_uint,
}

pub const IBV_MW_TYPE_1: c_uint = 1;
pub const IBV_MW_TYPE_2: c_uint = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

#[repr(C)]
pub struct ibv_mw_bind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub bind_info: ibv_mw_bind_info,
}

#[repr(C)]
pub struct ibv_cq_ex {
    pub context: *mut ibv_context,
    pub channel: *mut Opaque,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    comp_events_completed: u32,
    async_events_completed: u32,
    comp_mask: u32,
    pub status: c_uint,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex)>,
    pub read_opcode: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
    pub read_vendor_err: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_qp_num: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint>,
    pub read_slid: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> u8>,
    read_more: [Unused; 5],
}

/// `ibv_cq`, and `verbs_cq`: the plain one is the extended one's beginning.
pub type ibv_cq = ibv_cq_ex;

#[repr(C)]
pub struct ibv_poll_cq_attr {
    pub comp_mask: u32,
}

#[repr(C)]
pub struct ibv_cq_init_attr_ex {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut Opaque,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut ibv_pd,
}

pub const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
pub const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
pub const IBV_WC_STANDARD_FLAGS: u64 = 0x7f;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// `imm_data`, whose bytes are in network order, or `invalidated_rkey`.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub const IBV_WC_SUCCESS: c_uint = 0;
pub const IBV_WC_LOC_LEN_ERR: c_uint = 1;
pub const IBV_WC_LOC_QP_OP_ERR: c_uint = 2;
pub const IBV_WC_LOC_PROT_ERR: c_uint = 4;
pub const IBV_WC_WR_FLUSH_ERR: c_uint = 5;
pub const IBV_WC_MW_BIND_ERR: c_uint = 6;
pub const IBV_WC_REM_INV_REQ_ERR: c_uint = 9;
pub const IBV_WC_REM_ACCESS_ERR: c_uint = 10;
pub const IBV_WC_REM_OP_ERR: c_uint = 11;
pub const IBV_WC_RETRY_EXC_ERR: c_uint = 12;
pub const IBV_WC_RNR_RETRY_EXC_ERR: c_uint = 13;
pub const IBV_WC_GENERAL_ERR: c_uint = 21;

pub const IBV_WC_SEND: c_uint = 0;
pub const IBV_WC_RDMA_WRITE: c_uint = 1;
pub const IBV_WC_RDMA_READ: c_uint = 2;
pub const IBV_WC_COMP_SWAP: c_uint = 3;
pub const IBV_WC_FETCH_ADD: c_uint = 4;
pub const IBV_WC_BIND_MW: c_uint = 5;
pub const IBV_WC_LOCAL_INV: c_uint = 6;
pub const IBV_WC_RECV: c_uint = 128;
pub const IBV_WC_RECV_RDMA_WITH_IMM: c_uint = 129;

pub const IBV_WC_WITH_IMM: c_uint = 2;
pub const IBV_WC_WITH_INV: c_uint = 8;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// Of a union, whose other member is smaller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bind_mw {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}

#[repr(C)]
pub union wr {
    pub rdma: rdma,
    pub atomic: atomic,
    pub ud: ud,
}

#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// `imm_data`, whose bytes are in network order, or `invalidate_rkey`.
    pub imm_data: u32,
    pub wr: wr,
    pub xrc_srqn: u32,
    pub bind_mw: bind_mw,
}

#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

pub const IBV_WR_RDMA_WRITE: c_uint = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_uint = 1;
pub const IBV_WR_SEND: c_uint = 2;
pub const IBV_WR_SEND_WITH_IMM: c_uint = 3;
pub const IBV_WR_RDMA_READ: c_uint = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: c_uint = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: c_uint = 6;
pub const IBV_WR_LOCAL_INV: c_uint = 7;
pub const IBV_WR_BIND_MW: c_uint = 8;
pub const IBV_WR_SEND_WITH_INV: c_uint = 9;

pub const IBV_SEND_FENCE: c_uint = 1;
pub const IBV_SEND_SIGNALED: c_uint = 2;
pub const IBV_SEND_SOLICITED: c_uint = 4;
pub const IBV_SEND_INLINE: c_uint = 8;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    srq_context: *mut c_void,
    pd: *mut ibv_pd,
    pub handle: u32,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

#[repr(C)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}

pub const IBV_SRQ_MAX_WR: c_uint = 1;
pub const IBV_SRQ_LIMIT: c_uint = 2;

#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

#[repr(C)]
pub struct ibv_qp_init_attr_ex {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ibv_pd,
    xrcd: *mut Opaque,
    pub create_flags: u32,
    max_tso_header: u16,
    rwq_ind_tbl: *mut Opaque,
    rx_hash_conf: [u64; 3],
    source_qpn: u32,
    pub send_ops_flags: u64,
}

pub const IBV_QPT_RC: c_uint = 2;
pub const IBV_QPT_UD: c_uint = 4;
pub const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

pub const IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1;
pub const IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
pub const IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
pub const IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
pub const IBV_QP_EX_WITH_RDMA_READ: u64 = 1 << 4;
pub const IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
pub const IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
pub const IBV_QP_EX_WITH_LOCAL_INV: u64 = 1 << 7;
pub const IBV_QP_EX_WITH_BIND_MW: u64 = 1 << 8;
pub const IBV_QP_EX_WITH_SEND_WITH_INV: u64 = 1 << 9;

#[repr(C)]
pub struct ibv_qp_attr {
    pub qp_state: c_uint,
    opaque: [u32; 35],
}

pub const IBV_QP_STATE: c_int = 1;
pub const IBV_QPS_RESET: c_uint = 0;
pub const IBV_QPS_INIT: c_uint = 1;
pub const IBV_QPS_RTS: c_uint = 3;
pub const IBV_QPS_ERR: c_uint = 6;

#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
    mutex: pthread_mutex_t,
    cond: pthread_cond_t,
    events_completed: u32,
}

#[repr(C)]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
    pub wr_bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub wr_rdma_read: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    pub wr_rdma_write: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub wr_send: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    pub wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
    wr_send_tso: Unused,
    pub wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
    wr_set_xrc_srqn: Unused,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
    pub wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
    pub wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
    pub wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
    pub wr_start: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    pub wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
    pub wr_abort: Option<unsafe extern "C" fn(*mut ibv_qp_ex)>,
    wr_atomic_write: Unused,
    wr_flush: Unused,
}

/// The union in it is of `ibv_qp` and `ibv_qp_ex`, which begins with that.
#[repr(C)]
pub struct verbs_qp {
    pub qp_ex: ibv_qp_ex,
    pub comp_mask: u32,
    xrcd: *mut Opaque,
}

/// `verbs_qp::comp_mask`: `ibv_qp_ex` is in use.
pub const VERBS_QP_EX: u32 = 2;

/// The first member of `ibv_device_attr_ex`'s first member.
pub type fw_ver = [c_char; 64];

/// Room for a command, which libibverbs fills: header and the core's payload of so many 8-byte words.
#[repr(C)]
pub struct Command<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Default for Command<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const WORDS: usize> Command<WORDS> {
    pub const fn new() -> Self {
        Self([0; WORDS])
    }
}

pub type ibv_get_context = Command<2>;
pub type ibv_alloc_pd = Command<2>;
pub type ibv_query_port = Command<3>;
pub type ibv_alloc_mw = Command<3>;
pub type ibv_query_qp = Command<3>;
pub type ibv_query_srq = Command<3>;
pub type ibv_create_cq = Command<5>;
pub type ibv_create_srq = Command<5>;
pub type ibv_reg_mr = Command<6>;
pub type ibv_rereg_mr = Command<7>;
pub type ibv_create_qp = Command<8>;

/// The core's part of a call, and the driver's behind it.
#[repr(C)]
#[derive(Default)]
pub struct ibv_modify_qp {
    pub core: Command<15>,
    pub driver: VerbsQpChange,
}

/// The core's part of a call, and the driver's behind it.
#[repr(C)]
pub struct ibv_modify_srq {
    pub core: [u32; 6],
    pub driver: VerbsSrq,
}

/// The core's part of an answer of the kernel, which libibverbs evaluates, and the driver's behind it.
#[repr(C)]
#[derive(Default)]
pub struct Answer<C, D> {
    core: C,
    pub driver: D,
}

pub type ib_uverbs_alloc_pd_resp = [u32; 1];
pub type ib_uverbs_reg_mr_resp = [u32; 3];
pub type ib_uverbs_alloc_mw_resp = [u32; 2];
pub type ib_uverbs_rereg_mr_resp = [u32; 2];
pub type ib_uverbs_get_context_resp = [u32; 2];
pub type ib_uverbs_create_cq_resp = [u32; 2];
pub type ib_uverbs_create_srq_resp = [u32; 4];
pub type ib_uverbs_create_qp_resp = [u32; 8];
pub type ib_uverbs_create_ah_resp = [u32; 1];

#[repr(C)]
pub struct ib_uverbs_ex_query_device_resp {
    pub fw_ver: u64,
    opaque: [u64; 37],
}

impl ib_uverbs_ex_query_device_resp {
    pub const fn new() -> Self {
        Self { fw_ver: 0, opaque: [0; 37] }
    }
}

/// What a provider does. Without a function libibverbs answers EOPNOTSUPP.
#[repr(C)]
pub struct verbs_context_ops {
    pub advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, c_uint, u32, *mut ibv_sge, u32) -> c_int>,
    pub alloc_dm: Unused,
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_uint) -> *mut ibv_mw>,
    pub alloc_null_mr: Unused,
    pub alloc_parent_domain: Unused,
    pub alloc_pd: Option<unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd>,
    pub alloc_td: Unused,
    pub async_event: Unused,
    pub attach_counters_point_flow: Unused,
    pub attach_mcast: Unused,
    pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub close_xrcd: Unused,
    pub cq_event: Unused,
    pub create_ah: Option<unsafe extern "C" fn(*mut ibv_pd, *mut Opaque) -> *mut ibv_ah>,
    pub create_counters: Unused,
    pub create_cq: Option<unsafe extern "C" fn(*mut ibv_context, c_int, *mut Opaque, c_int) -> *mut ibv_cq>,
    pub create_cq_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub create_flow: Unused,
    pub create_flow_action_esp: Unused,
    pub create_qp: Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp>,
    pub create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub create_rwq_ind_table: Unused,
    pub create_srq: Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq>,
    pub create_srq_ex: Unused,
    pub create_wq: Unused,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub dealloc_pd: Option<unsafe extern "C" fn(*mut ibv_pd) -> c_int>,
    pub dealloc_td: Unused,
    pub dereg_mr: Option<unsafe extern "C" fn(*mut verbs_mr) -> c_int>,
    pub destroy_ah: Option<unsafe extern "C" fn(*mut ibv_ah) -> c_int>,
    pub destroy_counters: Unused,
    pub destroy_cq: Option<unsafe extern "C" fn(*mut ibv_cq) -> c_int>,
    pub destroy_flow: Unused,
    pub destroy_flow_action: Unused,
    pub destroy_qp: Option<unsafe extern "C" fn(*mut ibv_qp) -> c_int>,
    pub destroy_rwq_ind_table: Unused,
    pub destroy_srq: Option<unsafe extern "C" fn(*mut ibv_srq) -> c_int>,
    pub destroy_wq: Unused,
    pub detach_mcast: Unused,
    pub free_context: Option<unsafe extern "C" fn(*mut ibv_context)>,
    pub free_dm: Unused,
    pub get_srq_num: Unused,
    pub import_dm: Unused,
    pub import_mr: Unused,
    pub import_pd: Unused,
    pub modify_cq: Unused,
    pub modify_flow_action_esp: Unused,
    pub modify_qp: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int>,
    pub modify_qp_rate_limit: Unused,
    pub modify_srq: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int>,
    pub modify_wq: Unused,
    pub open_qp: Unused,
    pub open_xrcd: Unused,
    pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub post_send: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub post_srq_ops: Unused,
    pub post_srq_recv: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub query_device_ex: Option<unsafe extern "C" fn(*mut ibv_context, *const Opaque, *mut fw_ver, usize) -> c_int>,
    pub query_ece: Unused,
    pub query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut Opaque) -> c_int>,
    pub query_qp: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int>,
    pub query_qp_data_in_order: Unused,
    pub query_rt_values: Unused,
    pub query_srq: Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_srq_attr) -> c_int>,
    pub read_counters: Unused,
    pub reg_dm_mr: Unused,
    pub reg_dmabuf_mr: Unused,
    pub reg_mr: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub rereg_mr: Option<unsafe extern "C" fn(*mut verbs_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int>,
    pub resize_cq: Unused,
    pub set_ece: Unused,
    pub unimport_dm: Unused,
    pub unimport_mr: Unused,
    pub unimport_pd: Unused,
}

impl verbs_context_ops {
    /// None at all.
    pub const NONE: Self = {
        // SAFETY: all fields are pointers to functions that may be absent, which is zero.
        unsafe { std::mem::zeroed() }
    };
}

/// One line of the table of devices that a provider serves.
#[repr(C)]
pub struct verbs_match_ent {
    pub driver_data: *mut c_void,
    /// For `VERBS_MATCH_MODALIAS`.
    pub modalias: *const c_char,
    pub vendor: u16,
    pub device: u16,
    pub kind: u8,
}

pub const VERBS_MATCH_SENTINEL: u8 = 0;
pub const VERBS_MATCH_PCI: u8 = 1;
pub const VERBS_MATCH_MODALIAS: u8 = 2;

#[repr(C)]
pub struct verbs_device_ops {
    pub name: *const c_char,
    pub match_min_abi_version: u32,
    pub match_max_abi_version: u32,
    pub match_table: *const verbs_match_ent,
    pub static_providers: *mut c_void,
    pub match_device: Unused,
    pub alloc_context: Option<unsafe extern "C" fn(*mut Opaque, c_int, *mut c_void) -> *mut verbs_context>,
    pub import_context: Unused,
    pub alloc_device: Option<unsafe extern "C" fn(*mut Opaque) -> *mut verbs_device>,
    pub uninit_device: Option<unsafe extern "C" fn(*mut verbs_device)>,
}

// SAFETY: the tables are constants, and so is what they point to.
unsafe impl Sync for verbs_device_ops {}
// SAFETY: as above.
unsafe impl Sync for verbs_match_ent {}

// The stub that build.rs makes has the functions of this block.
unsafe extern "C" {
    pub fn verbs_register_driver_34(ops: *const verbs_device_ops);
    /// The memory is calloc's, and so freed by free. `offset` is that of `verbs_context` in it.
    pub fn _verbs_init_and_alloc_context(
        device: *mut Opaque,
        cmd_fd: c_int,
        size: usize,
        offset: *mut verbs_context,
        driver_id: u32,
    ) -> *mut c_void;
    pub fn verbs_uninit_context(context: *mut verbs_context);
    pub fn verbs_set_ops(context: *mut verbs_context, ops: *const verbs_context_ops);
    pub fn ibv_cmd_get_context(
        context: *mut verbs_context,
        cmd: *mut ibv_get_context,
        cmd_size: usize,
        resp: *mut ib_uverbs_get_context_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_query_device_any(
        context: *mut ibv_context,
        input: *const Opaque,
        attr: *mut fw_ver,
        attr_size: usize,
        resp: *mut ib_uverbs_ex_query_device_resp,
        resp_size: *mut usize,
    ) -> c_int;
    pub fn ibv_cmd_query_port(
        context: *mut ibv_context,
        port: u8,
        attr: *mut Opaque,
        cmd: *mut ibv_query_port,
        cmd_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_alloc_pd(
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        cmd: *mut ibv_alloc_pd,
        cmd_size: usize,
        resp: *mut ib_uverbs_alloc_pd_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    pub fn ibv_cmd_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        hca_va: u64,
        access: c_int,
        mr: *mut verbs_mr,
        cmd: *mut ibv_reg_mr,
        cmd_size: usize,
        resp: *mut ib_uverbs_reg_mr_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_rereg_mr(
        mr: *mut verbs_mr,
        flags: u32,
        addr: *mut c_void,
        length: usize,
        hca_va: u64,
        access: c_int,
        pd: *mut ibv_pd,
        cmd: *mut ibv_rereg_mr,
        cmd_size: usize,
        resp: *mut ib_uverbs_rereg_mr_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_advise_mr(pd: *mut ibv_pd, advice: c_uint, flags: u32, list: *mut ibv_sge, count: u32) -> c_int;
    pub fn ibv_cmd_dereg_mr(mr: *mut verbs_mr) -> c_int;
    pub fn ibv_cmd_alloc_mw(
        pd: *mut ibv_pd,
        kind: c_uint,
        mw: *mut ibv_mw,
        cmd: *mut ibv_alloc_mw,
        cmd_size: usize,
        resp: *mut ib_uverbs_alloc_mw_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_dealloc_mw(mw: *mut ibv_mw) -> c_int;
    pub fn ibv_cmd_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        channel: *mut Opaque,
        comp_vector: c_int,
        cq: *mut ibv_cq,
        cmd: *mut ibv_create_cq,
        cmd_size: usize,
        resp: *mut ib_uverbs_create_cq_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_destroy_cq(cq: *mut ibv_cq) -> c_int;
    pub fn ibv_cmd_create_srq(
        pd: *mut ibv_pd,
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_init_attr,
        cmd: *mut ibv_create_srq,
        cmd_size: usize,
        resp: *mut ib_uverbs_create_srq_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_modify_srq(
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_attr,
        mask: c_int,
        cmd: *mut ibv_modify_srq,
        cmd_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_query_srq(
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_attr,
        cmd: *mut ibv_query_srq,
        cmd_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_destroy_srq(srq: *mut ibv_srq) -> c_int;
    pub fn ibv_cmd_create_qp_ex(
        context: *mut ibv_context,
        qp: *mut verbs_qp,
        attr: *mut ibv_qp_init_attr_ex,
        cmd: *mut ibv_create_qp,
        cmd_size: usize,
        resp: *mut ib_uverbs_create_qp_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
        cmd: *mut ibv_query_qp,
        cmd_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_modify_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        cmd: *mut ibv_modify_qp,
        cmd_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_destroy_qp(qp: *mut ibv_qp) -> c_int;
    pub fn ibv_cmd_create_ah(
        pd: *mut ibv_pd,
        ah: *mut ibv_ah,
        attr: *mut Opaque,
        resp: *mut ib_uverbs_create_ah_resp,
        resp_size: usize,
    ) -> c_int;
    pub fn ibv_cmd_destroy_ah(ah: *mut ibv_ah) -> c_int;
    pub fn ibv_cmd_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int;
    pub fn ibv_cmd_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int;
    pub fn ibv_cmd_poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int;
    pub fn ibv_cmd_req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int;
}

#[cfg(target_arch = "x86_64")]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<verbs_device>() == 712);
    assert!(size_of::<ibv_context>() == 328 && offset_of!(ibv_context, cmd_fd) == 264);
    assert!(size_of::<verbs_context>() == 648 && offset_of!(verbs_context, context) == 320);
    assert!(size_of::<ibv_pd>() == 16 && offset_of!(ibv_pd, handle) == 8);
    assert!(size_of::<verbs_mr>() == 56 && offset_of!(ibv_mr, rkey) == 40 && offset_of!(verbs_mr, access) == 52);
    assert!(size_of::<ibv_mw>() == 32 && offset_of!(ibv_mw, kind) == 24 && size_of::<ibv_mw_bind_info>() == 32);
    assert!(size_of::<ibv_mw_bind>() == 48 && size_of::<bind_mw>() == 48 && offset_of!(bind_mw, bind_info) == 16);
    assert!(size_of::<ibv_cq_ex>() == 288 && offset_of!(ibv_cq_ex, cqe) == 28);
    assert!(offset_of!(ibv_cq_ex, status) == 132 && offset_of!(ibv_cq_ex, wr_id) == 136);
    assert!(offset_of!(ibv_cq_ex, start_poll) == 144 && offset_of!(ibv_cq_ex, read_wc_flags) == 216);
    assert!(offset_of!(ibv_cq_ex, read_dlid_path_bits) == 240);
    assert!(size_of::<ibv_cq_init_attr_ex>() == 56 && offset_of!(ibv_cq_init_attr_ex, wc_flags) == 32);
    assert!(offset_of!(ibv_cq_init_attr_ex, flags) == 44);
    assert!(size_of::<ibv_wc>() == 48 && offset_of!(ibv_wc, imm_data) == 24 && offset_of!(ibv_wc, sl) == 44);
    assert!(size_of::<ibv_sge>() == 16 && offset_of!(ibv_sge, length) == 8);
    assert!(size_of::<ibv_data_buf>() == 16);
    assert!(size_of::<ibv_send_wr>() == 128 && offset_of!(ibv_send_wr, send_flags) == 32);
    assert!(offset_of!(ibv_send_wr, wr) == 40 && size_of::<wr>() == 32 && offset_of!(ibv_send_wr, xrc_srqn) == 72);
    assert!(offset_of!(rdma, rkey) == 8 && offset_of!(atomic, rkey) == 24 && offset_of!(atomic, swap) == 16);
    assert!(offset_of!(ud, remote_qkey) == 12 && size_of::<ibv_ah>() == 24 && offset_of!(ibv_ah, handle) == 16);
    assert!(size_of::<ibv_recv_wr>() == 32 && offset_of!(ibv_recv_wr, num_sge) == 24);
    assert!(size_of::<ibv_srq>() == 128 && offset_of!(ibv_srq, handle) == 24 && size_of::<ibv_srq_init_attr>() == 24);
    assert!(offset_of!(verbs_context_ops, create_srq) == 176 && offset_of!(verbs_context_ops, query_srq) == 512);
    assert!(size_of::<ibv_qp_init_attr>() == 64 && offset_of!(ibv_qp_init_attr, sq_sig_all) == 56);
    assert!(size_of::<ibv_qp_init_attr_ex>() == 136 && offset_of!(ibv_qp_init_attr_ex, comp_mask) == 60);
    assert!(offset_of!(ibv_qp_init_attr_ex, cap) == 32 && offset_of!(ibv_qp_init_attr_ex, qp_type) == 52);
    assert!(offset_of!(ibv_qp_init_attr_ex, pd) == 64 && offset_of!(ibv_qp_init_attr_ex, send_ops_flags) == 128);
    assert!(size_of::<ibv_qp_attr>() == 144);
    assert!(size_of::<ibv_qp>() == 160 && offset_of!(ibv_qp, qp_num) == 52 && offset_of!(ibv_qp, state) == 56);
    assert!(size_of::<ibv_qp_ex>() == 360 && offset_of!(ibv_qp_ex, wr_flags) == 176);
    assert!(offset_of!(ibv_qp_ex, wr_bind_mw) == 200 && offset_of!(ibv_send_wr, bind_mw) == 80);
    assert!(offset_of!(ibv_qp_ex, wr_rdma_read) == 216 && offset_of!(ibv_qp_ex, wr_send_inv) == 256);
    assert!(offset_of!(ibv_qp_ex, wr_set_ud_addr) == 272);
    assert!(offset_of!(ibv_qp_ex, wr_set_inline_data) == 288 && offset_of!(ibv_qp_ex, wr_abort) == 336);
    assert!(size_of::<verbs_qp>() == 376 && offset_of!(verbs_qp, comp_mask) == 360);
    assert!(size_of::<ib_uverbs_ex_query_device_resp>() == 304);
    assert!(size_of::<verbs_context_ops>() == 608 && offset_of!(verbs_context_ops, alloc_pd) == 40);
    assert!(offset_of!(verbs_context_ops, alloc_mw) == 16 && offset_of!(verbs_context_ops, bind_mw) == 80);
    assert!(offset_of!(verbs_context_ops, dealloc_mw) == 200);
    assert!(offset_of!(verbs_context_ops, create_ah) == 104 && offset_of!(verbs_context_ops, destroy_ah) == 232);
    assert!(offset_of!(verbs_context_ops, create_qp) == 152 && offset_of!(verbs_context_ops, dealloc_pd) == 208);
    assert!(offset_of!(verbs_context_ops, destroy_qp) == 272 && offset_of!(verbs_context_ops, free_context) == 312);
    assert!(offset_of!(verbs_context_ops, modify_qp) == 376 && offset_of!(verbs_context_ops, poll_cq) == 424);
    assert!(offset_of!(verbs_context_ops, query_device_ex) == 464 && offset_of!(verbs_context_ops, reg_mr) == 544);
    assert!(offset_of!(verbs_context_ops, rereg_mr) == 560 && offset_of!(verbs_context_ops, advise_mr) == 0);
    assert!(offset_of!(verbs_context_ops, req_notify_cq) == 552 && offset_of!(verbs_context_ops, dereg_mr) == 224);
    assert!(offset_of!(verbs_context_ops, destroy_cq) == 248 && offset_of!(verbs_context_ops, query_qp) == 488);
    assert!(offset_of!(verbs_context_ops, create_cq_ex) == 128 && offset_of!(verbs_context_ops, query_port) == 480);
    assert!(size_of::<verbs_match_ent>() == 24 && offset_of!(verbs_match_ent, kind) == 20);
    assert!(size_of::<verbs_device_ops>() == 72 && offset_of!(verbs_device_ops, alloc_context) == 40);
};
