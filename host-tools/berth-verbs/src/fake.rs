// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stand-in for libibverbs' commands, the kernel and the card: a file holds what is mapped.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_abi::card::ABI_VERSION;
use berth_abi::verbs::{VerbsContext, VerbsCq, VerbsQp};
use berth_abi::wqe::{CQE_BYTES, Cqe, PHASE, WQE_BYTES, Wqe};

use crate::mapping::Mapping;
use crate::rdma_core::*;

/// Bytes between two objects' memory.
const STEP: u64 = 1 << 16;
/// Objects of each kind.
const OBJECTS: u64 = 32;
/// Bytes before a receive queue.
const RECV_START: u32 = STEP as u32 / 2;
/// Largest completion queue.
pub const MAX_CQE: u32 = 64;
/// Deepest queue.
pub const MAX_WR: u32 = 128;

/// The table that the library's constructor gave.
pub static REGISTERED: AtomicPtr<verbs_device_ops> = AtomicPtr::new(null_mut());
/// What a context was told that it can do.
pub static OPERATIONS: AtomicPtr<verbs_context_ops> = AtomicPtr::new(null_mut());
/// Kernels by descriptor.
static KERNELS: Mutex<BTreeMap<c_int, Arc<Kernel>>> = Mutex::new(BTreeMap::new());

pub struct State {
    /// Of queue elements, as told to a context.
    pub abi: u32,
    /// As the kernel's answers are.
    pub cq_bytes: Option<u32>,
    pub rq_depth: Option<u32>,
    /// Entries and written ones of each completion queue.
    pub cqs: BTreeMap<u32, (u32, u64)>,
    /// Depths of the queues of each queue pair.
    pub qps: BTreeMap<u32, (u32, u32)>,
    /// Protection domains and memory regions.
    pub others: usize,
    /// Contexts.
    pub contexts: usize,
    /// Datagrams that were posted.
    pub sent: Vec<Sent>,
    /// How many of them the queue takes.
    pub room: usize,
    /// Numbers of receives for datagrams, with how many ranges each has.
    pub receives: Vec<(u64, c_int)>,
    /// Completions that the kernel has.
    pub done: VecDeque<ibv_wc>,
    /// What it was asked to notify of: all, or solicited ones alone.
    pub armed: Vec<c_int>,
    /// What it was told of limits of shared receive queues: mask, limit, and whether it is reached.
    pub limits: Vec<(c_int, u32, u32)>,
    /// Queue pairs that receives are recalled from, and what their calls answer.
    pub recalled: Vec<u32>,
    pub busy: c_int,
    given: u32,
}

/// A datagram that was posted.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub wr_id: u64,
    pub opcode: c_uint,
    pub flags: c_uint,
    pub immediate: u32,
    /// Address handle, QPN and Q_Key.
    pub to: [u32; 3],
    pub data: Vec<u8>,
}

pub struct Kernel {
    file: File,
    memory: Mapping,
    state: Mutex<State>,
}

impl Kernel {
    pub fn new() -> Arc<Self> {
        // SAFETY: the name is a C string, and the descriptor fresh.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"card".as_ptr(), libc::MFD_CLOEXEC)) };
        let bytes = STEP * (1 + 2 * OBJECTS);
        file.set_len(bytes).unwrap();
        let memory = Mapping::new(file.as_raw_fd(), 0, bytes as usize, true).unwrap();
        let state = State {
            abi: ABI_VERSION,
            cq_bytes: None,
            rq_depth: None,
            cqs: BTreeMap::new(),
            qps: BTreeMap::new(),
            others: 0,
            contexts: 0,
            sent: Vec::new(),
            room: usize::MAX,
            receives: Vec::new(),
            done: VecDeque::new(),
            armed: Vec::new(),
            limits: Vec::new(),
            recalled: Vec::new(),
            busy: 0,
            given: 0,
        };
        let kernel = Arc::new(Self { file, memory, state: Mutex::new(state) });
        KERNELS.lock().unwrap().insert(kernel.fd(), Arc::clone(&kernel));
        kernel
    }

    pub fn fd(&self) -> c_int {
        self.file.as_raw_fd()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets it, so that another one may have its descriptor.
    pub fn forget(&self) {
        KERNELS.lock().unwrap().remove(&self.fd());
    }

    fn place<T>(&self, offset: u64) -> *mut T {
        // SAFETY: every caller gives an offset inside the file.
        unsafe { self.memory.first().as_ptr().add(offset as usize).cast() }
    }

    /// What was last written to a doorbell.
    pub fn doorbell(&self, offset: u32) -> u64 {
        // SAFETY: inside the page.
        unsafe { self.place::<u64>(offset.into()).read_volatile() }
    }

    /// The element in place `at` of a send queue, or of a receive queue.
    pub fn element(&self, qpn: u32, recv: bool, at: u32) -> Wqe {
        let offset = u64::from(at * WQE_BYTES + if recv { RECV_START } else { 0 });
        // SAFETY: inside the queue pair's memory.
        unsafe { self.place::<Wqe>(STEP * (1 + OBJECTS + u64::from(qpn)) + offset).read_volatile() }
    }

    /// The card writes a completion.
    pub fn complete(&self, cqn: u32, cqe: Cqe) {
        let mut state = self.state();
        let (entries, written) = state.cqs.get_mut(&cqn).unwrap();
        let (round, at) = (*written / u64::from(*entries), *written % u64::from(*entries));
        let phase = if round.is_multiple_of(2) { PHASE } else { 0 };
        let place = self.place::<Cqe>(STEP * (1 + u64::from(cqn)) + at * u64::from(CQE_BYTES));
        // SAFETY: a place of the queue's memory; the phase is written last, as the card does.
        unsafe {
            place.write_volatile(Cqe { phase: phase ^ PHASE, ..cqe });
            std::sync::atomic::fence(Ordering::Release);
            (&raw mut (*place).phase).write_volatile(phase);
        }
        *written += 1;
    }
}

impl State {
    fn number(&mut self) -> u32 {
        self.given += 1;
        assert!(u64::from(self.given) < OBJECTS);
        self.given
    }
}

fn kernel(fd: c_int) -> Arc<Kernel> {
    Arc::clone(&KERNELS.lock().unwrap()[&fd])
}

/// The kernel of a context.
fn kernel_of(context: *mut ibv_context) -> Arc<Kernel> {
    // SAFETY: every caller gives one of `_verbs_init_and_alloc_context`.
    kernel(unsafe { (*context).cmd_fd })
}

/// Writes an answer as the kernel does: the core's part, then the driver's.
///
/// # Safety
/// `to` must be valid for `size` bytes.
unsafe fn answer<C, D>(to: *mut C, size: usize, core: C, driver: D) {
    assert_eq!(size, size_of::<Answer<C, D>>());
    // SAFETY: as the caller says.
    unsafe {
        to.write(core);
        to.byte_add(size - size_of::<D>()).cast::<D>().write(driver);
    }
}

#[unsafe(no_mangle)]
extern "C" fn verbs_register_driver_34(ops: *const verbs_device_ops) {
    REGISTERED.store(ops.cast_mut(), Ordering::Release);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _verbs_init_and_alloc_context(
    _: *mut Opaque,
    fd: c_int,
    size: usize,
    offset: *mut verbs_context,
    _: u32,
) -> *mut c_void {
    kernel(fd).state().contexts += 1;
    // SAFETY: the context lies at that offset in memory of that size.
    unsafe {
        let memory = libc::calloc(1, size);
        (*memory.byte_add(offset.addr()).cast::<verbs_context>()).context.cmd_fd = fd;
        memory
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn verbs_uninit_context(context: *mut verbs_context) {
    // SAFETY: as `kernel_of`.
    kernel_of(unsafe { &raw mut (*context).context }).state().contexts -= 1;
}

#[unsafe(no_mangle)]
extern "C" fn verbs_set_ops(_: *mut verbs_context, ops: *const verbs_context_ops) {
    OPERATIONS.store(ops.cast_mut(), Ordering::Release);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_get_context(
    context: *mut verbs_context,
    _: *mut ibv_get_context,
    cmd_size: usize,
    resp: *mut ib_uverbs_get_context_resp,
    resp_size: usize,
) -> c_int {
    assert_eq!(cmd_size, 16);
    // SAFETY: as `kernel_of`.
    let abi = kernel_of(unsafe { &raw mut (*context).context }).state().abi;
    // SAFETY: the caller's answer.
    unsafe { answer(resp, resp_size, [3, 1], VerbsContext { abi, reserved: 0, doorbell_offset: 0 }) }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_query_device_any(
    _: *mut ibv_context,
    _: *const Opaque,
    attr: *mut fw_ver,
    attr_size: usize,
    resp: *mut ib_uverbs_ex_query_device_resp,
    resp_size: *mut usize,
) -> c_int {
    assert!(attr_size >= size_of::<fw_ver>());
    // SAFETY: the caller's structs.
    unsafe {
        *attr = [0; 64];
        (*resp).fw_ver = 0x0001_0203;
        *resp_size = 304;
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_cmd_query_port(
    _: *mut ibv_context,
    port: u8,
    _: *mut Opaque,
    _: *mut ibv_query_port,
    size: usize,
) -> c_int {
    if port == 1 && size == 24 { 0 } else { libc::EINVAL }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_alloc_pd(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    _: *mut ibv_alloc_pd,
    _: usize,
    _: *mut ib_uverbs_alloc_pd_resp,
    resp_size: usize,
) -> c_int {
    assert_eq!(resp_size, 4);
    kernel_of(context).state().others += 1;
    // SAFETY: the caller's struct.
    unsafe { (*pd).context = context };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's struct.
    kernel_of(unsafe { (*pd).context }).state().others -= 1;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
    mr: *mut verbs_mr,
    _: *mut ibv_reg_mr,
    _: usize,
    _: *mut ib_uverbs_reg_mr_resp,
    resp_size: usize,
) -> c_int {
    assert_eq!(resp_size, 12);
    if addr as u64 != hca_va {
        return crate::errno::failed(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's structs.
    unsafe {
        // The rest of libibverbs does so.
        ((*mr).ibv_mr.context, (*mr).ibv_mr.pd) = ((*pd).context, pd);
        ((*mr).ibv_mr.addr, (*mr).ibv_mr.length, (*mr).access) = (addr, length, access);
        (*mr).ibv_mr.rkey = 0x1234;
        kernel_of((*pd).context).state().others += 1;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_rereg_mr(
    mr: *mut verbs_mr,
    flags: u32,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
    pd: *mut ibv_pd,
    _: *mut ibv_rereg_mr,
    cmd_size: usize,
    _: *mut ib_uverbs_rereg_mr_resp,
    resp_size: usize,
) -> c_int {
    assert_eq!((cmd_size, resp_size, addr as u64), (56, 8, hca_va));
    // SAFETY: the caller's struct.
    unsafe { (*mr).ibv_mr.rkey = flags << 16 | (access as u32) << 8 | length as u32 };
    if pd.is_null() { libc::EINVAL } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_advise_mr(
    _: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: the caller's list.
    let last = unsafe { &*list.add(count as usize - 1) };
    if (advice, flags, last.length) == (1, 1, 8) { 0 } else { libc::EINVAL }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dereg_mr(mr: *mut verbs_mr) -> c_int {
    // SAFETY: the caller's struct.
    kernel_of(unsafe { (*mr).ibv_mr.context }).state().others -= 1;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_alloc_mw(
    pd: *mut ibv_pd,
    kind: c_uint,
    mw: *mut ibv_mw,
    _: *mut ibv_alloc_mw,
    cmd_size: usize,
    _: *mut ib_uverbs_alloc_mw_resp,
    resp_size: usize,
) -> c_int {
    assert_eq!((cmd_size, resp_size), (24, 8));
    if ![IBV_MW_TYPE_1, IBV_MW_TYPE_2].contains(&kind) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's structs.
    unsafe {
        let kernel = kernel_of((*pd).context);
        let mut state = kernel.state();
        state.others += 1;
        let rkey = state.number() << 8 | 0xff;
        mw.write(ibv_mw { context: (*pd).context, pd, rkey, handle: 1, kind });
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller's struct.
    kernel_of(unsafe { (*mw).context }).state().others -= 1;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    channel: *mut Opaque,
    _: c_int,
    cq: *mut ibv_cq,
    _: *mut ibv_create_cq,
    _: usize,
    resp: *mut ib_uverbs_create_cq_resp,
    resp_size: usize,
) -> c_int {
    let kernel = kernel_of(context);
    let mut state = kernel.state();
    let entries = (cqe as u32).next_power_of_two();
    if entries > MAX_CQE {
        return libc::EINVAL;
    }
    let cqn = state.number();
    state.cqs.insert(cqn, (entries, 0));
    let bytes = state.cq_bytes.unwrap_or(entries * CQE_BYTES);
    // SAFETY: the caller's structs.
    unsafe {
        ((*cq).context, (*cq).channel, (*cq).handle, (*cq).cqe) = (context, channel, cqn, entries as c_int);
        let driver = VerbsCq { offset: STEP * (1 + u64::from(cqn)), bytes, cqn };
        answer(resp, resp_size, [cqn, entries], driver);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's struct.
    let (kernel, cqn) = unsafe { (kernel_of((*cq).context), (*cq).handle) };
    let there = kernel.state().cqs.remove(&cqn).is_some();
    if there { 0 } else { libc::EINVAL }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_srq(
    pd: *mut ibv_pd,
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_init_attr,
    _: *mut ibv_create_srq,
    cmd_size: usize,
    _: *mut ib_uverbs_create_srq_resp,
    resp_size: usize,
) -> c_int {
    assert_eq!((cmd_size, resp_size), (40, 16));
    // SAFETY: the caller's structs.
    unsafe {
        if (*attr).attr.max_wr > MAX_WR {
            return libc::EINVAL;
        }
        (*srq).context = (*pd).context;
        kernel_of((*pd).context).state().others += 1;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
    cmd: *mut ibv_modify_srq,
    cmd_size: usize,
) -> c_int {
    assert_eq!(cmd_size, 32);
    // SAFETY: the caller's structs.
    let (kernel, limit, reached) = unsafe { (kernel_of((*srq).context), (*attr).srq_limit, (*cmd).driver.reached) };
    kernel.state().limits.push((mask, limit, reached));
    // SAFETY: the caller's struct.
    let too_many = mask as c_uint & IBV_SRQ_MAX_WR != 0 && unsafe { (*attr).max_wr } > MAX_WR;
    if too_many { libc::EINVAL } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_cmd_query_srq(_: *mut ibv_srq, _: *mut ibv_srq_attr, _: *mut ibv_query_srq, size: usize) -> c_int {
    if size == 24 { 0 } else { libc::EINVAL }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's struct.
    kernel_of(unsafe { (*srq).context }).state().others -= 1;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_qp_ex(
    context: *mut ibv_context,
    qp: *mut verbs_qp,
    attr: *mut ibv_qp_init_attr_ex,
    _: *mut ibv_create_qp,
    _: usize,
    resp: *mut ib_uverbs_create_qp_resp,
    resp_size: usize,
) -> c_int {
    let kernel = kernel_of(context);
    let mut state = kernel.state();
    // SAFETY: the caller's structs.
    let (attr, qp) = unsafe { (&mut *attr, &mut *qp) };
    if attr.cap.max_send_wr > MAX_WR || attr.cap.max_recv_wr > MAX_WR {
        return libc::EINVAL;
    }
    let qpn = state.number();
    let depth = |asked: u32| asked.next_power_of_two();
    // Of a shared queue it may have four elements.
    let receives = if attr.srq.is_null() { attr.cap.max_recv_wr } else { 4 };
    let (sq_depth, rq_depth) = (depth(attr.cap.max_send_wr), depth(receives));
    state.qps.insert(qpn, (sq_depth, rq_depth));
    let base = &mut qp.qp_ex.qp_base;
    (base.context, base.pd, base.send_cq, base.recv_cq) = (context, attr.pd, attr.send_cq, attr.recv_cq);
    (base.handle, base.qp_num, base.state) = (qpn, qpn, IBV_QPS_RESET);
    base.qp_type = attr.qp_type;
    if attr.qp_type == IBV_QPT_UD {
        // It has nothing to be mapped.
        return if resp_size == size_of::<ib_uverbs_create_qp_resp>() { 0 } else { libc::EINVAL };
    }
    attr.cap.max_inline_data = 0;
    let driver = VerbsQp {
        offset: STEP * (1 + OBJECTS + u64::from(qpn)),
        bytes: STEP as u32,
        sq_depth,
        rq_depth: state.rq_depth.unwrap_or(rq_depth),
        rq_start: RECV_START,
    };
    // SAFETY: the caller's answer.
    unsafe { answer(resp, resp_size, [0; 8], driver) }
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_cmd_query_qp(
    _: *mut ibv_qp,
    _: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
    _: *mut ibv_query_qp,
    size: usize,
) -> c_int {
    if size == 24 { 0 } else { libc::EINVAL }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_modify_qp(
    qp: *mut ibv_qp,
    _: *mut ibv_qp_attr,
    mask: c_int,
    cmd: *mut ibv_modify_qp,
    size: usize,
) -> c_int {
    assert_eq!(size, 128);
    // SAFETY: the caller's structs.
    let (kernel, qpn, recall) = unsafe { (kernel_of((*qp).context), (*qp).qp_num, (*cmd).driver.recall) };
    assert_eq!(recall != 0, mask == 0);
    if recall != 0 {
        kernel.state().recalled.push(qpn);
    }
    kernel.state().busy
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's struct.
    let (kernel, qpn) = unsafe { (kernel_of((*qp).context), (*qp).handle) };
    let there = kernel.state().qps.remove(&qpn).is_some();
    if there { 0 } else { libc::EINVAL }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_create_ah(
    pd: *mut ibv_pd,
    ah: *mut ibv_ah,
    attr: *mut Opaque,
    _: *mut ib_uverbs_create_ah_resp,
    resp_size: usize,
) -> c_int {
    if attr.is_null() || resp_size != 4 {
        return libc::EINVAL;
    }
    // SAFETY: the caller's structs.
    unsafe {
        (*ah).context = (*pd).context;
        let kernel = kernel_of((*pd).context);
        let mut state = kernel.state();
        state.others += 1;
        (*ah).handle = state.number();
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller's struct.
    unsafe { kernel_of((*ah).context) }.state().others -= 1;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_post_send(qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's structs.
    let kernel = unsafe { kernel_of((*qp).context) };
    let mut state = kernel.state();
    // SAFETY: as above.
    while let Some(next) = unsafe { wr.as_ref() } {
        if state.sent.len() == state.room {
            // SAFETY: as above.
            unsafe { *bad = wr };
            return libc::ENOMEM;
        }
        let mut data = Vec::new();
        for n in 0..next.num_sge as usize {
            // SAFETY: as above.
            data.extend_from_slice(unsafe {
                let sge = *next.sg_list.add(n);
                std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
            });
        }
        // SAFETY: as above.
        let to = unsafe { [(*next.wr.ud.ah).handle, next.wr.ud.remote_qpn, next.wr.ud.remote_qkey] };
        let (wr_id, opcode, flags, immediate) = (next.wr_id, next.opcode, next.send_flags, next.imm_data);
        state.sent.push(Sent { wr_id, opcode, flags, immediate, to, data });
        wr = next.next;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_post_recv(qp: *mut ibv_qp, mut wr: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller's structs.
    let kernel = unsafe { kernel_of((*qp).context) };
    // SAFETY: as above.
    while let Some(next) = unsafe { wr.as_ref() } {
        kernel.state().receives.push((next.wr_id, next.num_sge));
        wr = next.next;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_poll_cq(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's structs.
    let kernel = unsafe { kernel_of((*cq).context) };
    let mut state = kernel.state();
    let count = state.done.len().min(most as usize);
    for (n, done) in state.done.drain(..count).enumerate() {
        // SAFETY: the caller has room for it.
        unsafe { wc.add(n).write(done) };
    }
    count as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_cmd_req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    // SAFETY: the caller's struct.
    unsafe { kernel_of((*cq).context) }.state().armed.push(solicited);
    0
}

/// A channel for events, which nobody looks into.
pub fn channel() -> *mut Opaque {
    without_provenance_mut(0x1000)
}
