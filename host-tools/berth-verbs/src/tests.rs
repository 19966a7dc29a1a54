// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The provider as libibverbs calls it, over a stand-in for kernel and card.

use std::ffi::{CStr, c_int, c_uint};
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use berth_abi::host::{DB_CQ, DB_RQ, DB_SQ, DB_WQE};
use berth_abi::status::*;
use berth_abi::wqe::*;

use crate::fake::{Kernel, MAX_CQE, MAX_WR, OPERATIONS, REGISTERED, Sent, channel};
use crate::rdma_core::*;

/// Calls a function of the table.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: every test gives objects of its own bench that are still there.
        unsafe { (*OPERATIONS.load(Ordering::Acquire)).$name.unwrap()($($argument),*) }
    };
}

/// Calls a function of an object of the extended interfaces.
macro_rules! of {
    ($object:ident.$name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: as `call`; the object has it.
        unsafe { (*$object).$name.unwrap()($object, $($argument),*) }
    };
}

fn errno() -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// The kernel, and a context with a protection domain.
struct Bench {
    kernel: Arc<Kernel>,
    context: *mut verbs_context,
    pd: *mut ibv_pd,
}

impl Bench {
    fn new() -> Self {
        let kernel = Kernel::new();
        let driver = registered();
        // SAFETY: the stand-in looks at the descriptor only.
        let context = unsafe { driver.alloc_context.unwrap()(null_mut(), kernel.fd(), null_mut()) };
        assert!(!context.is_null());
        let mut bench = Self { kernel, context, pd: null_mut() };
        bench.pd = call!(alloc_pd(bench.context()));
        bench
    }

    fn context(&self) -> *mut ibv_context {
        // SAFETY: it is there as long as the bench.
        unsafe { &raw mut (*self.context).context }
    }

    fn cq(&self, cqe: c_int) -> *mut ibv_cq {
        call!(create_cq(self.context(), cqe, channel(), 0))
    }

    fn attributes(&self, cq: *mut ibv_cq, depth: u32) -> ibv_qp_init_attr_ex {
        // SAFETY: all fields may be zero.
        let mut attr: ibv_qp_init_attr_ex = unsafe { zeroed() };
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, IBV_QPT_RC);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (depth, depth);
        (attr.comp_mask, attr.pd) = (IBV_QP_INIT_ATTR_PD, self.pd);
        attr
    }

    /// A queue pair that is ready to send.
    fn qp(&self, cq: *mut ibv_cq, depth: u32) -> Qp<'_> {
        let mut attr = self.attributes(cq, depth);
        self.ready(call!(create_qp_ex(self.context(), &raw mut attr)))
    }

    fn ready(&self, qp: *mut ibv_qp) -> Qp<'_> {
        assert!(!qp.is_null());
        // SAFETY: just made.
        let qp = Qp { bench: self, qp, qpn: unsafe { (*qp).qp_num } };
        for state in 1..=IBV_QPS_RTS {
            qp.modify(state);
        }
        qp
    }

    /// All that is polled at once.
    fn poll(&self, cq: *mut ibv_cq) -> Vec<ibv_wc> {
        let mut wc = [ibv_wc::default(); 64];
        let n = call!(poll_cq(cq, 64, wc.as_mut_ptr()));
        wc[..usize::try_from(n).unwrap()].to_vec()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        call!(dealloc_pd(self.pd));
        call!(free_context(self.context()));
        self.kernel.forget();
        let state = self.kernel.state();
        assert_eq!((state.contexts, state.others), (0, 0));
    }
}

struct Qp<'a> {
    bench: &'a Bench,
    qp: *mut ibv_qp,
    qpn: u32,
}

impl Qp<'_> {
    /// As libibverbs' own `ibv_modify_qp`.
    fn modify(&self, state: c_uint) {
        // SAFETY: all fields may be zero.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = state;
        assert_eq!(call!(modify_qp(self.qp, &raw mut attr, IBV_QP_STATE)), 0);
        // SAFETY: it is there.
        unsafe { (*self.qp).state = state };
    }

    /// Posts sends; answers the error, and which of them was bad.
    fn send(&self, requests: &mut [ibv_send_wr]) -> (c_int, Option<usize>) {
        let first = requests.as_mut_ptr();
        for n in 1..requests.len() {
            requests[n - 1].next = first.wrapping_add(n);
        }
        let mut bad = null_mut();
        let error = call!(post_send(self.qp, first, &raw mut bad));
        // SAFETY: it points into the slice.
        (error, (!bad.is_null()).then(|| unsafe { bad.offset_from(first) } as usize))
    }

    fn recv(&self, wr_id: u64, sges: &[ibv_sge]) -> c_int {
        let sg_list = sges.as_ptr().cast_mut();
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list, num_sge: sges.len() as c_int };
        let mut bad = null_mut();
        let error = call!(post_recv(self.qp, &raw mut wr, &raw mut bad));
        assert_eq!(bad.is_null(), error == 0);
        error
    }

    fn element(&self, at: u32) -> Wqe {
        self.bench.kernel.element(self.qpn, false, at)
    }

    fn cqe(&self, opcode: u8) -> Cqe {
        Cqe { qpn: self.qpn, opcode, ..Cqe::default() }
    }
}

fn registered() -> &'static verbs_device_ops {
    // SAFETY: the library's constructor, which has run before main, has given a constant.
    unsafe { REGISTERED.load(Ordering::Acquire).as_ref() }.expect("the constructor has run")
}

fn sge(addr: u64, length: u32) -> ibv_sge {
    ibv_sge { addr, length, lkey: 0xdead }
}

fn over(data: &[u8]) -> ibv_sge {
    sge(data.as_ptr() as u64, data.len() as u32)
}

fn request(wr_id: u64, opcode: c_uint, flags: c_uint, sges: &[ibv_sge]) -> ibv_send_wr {
    // SAFETY: all fields may be zero.
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, flags);
    (wr.sg_list, wr.num_sge) = (sges.as_ptr().cast_mut(), sges.len() as c_int);
    wr
}

#[test]
fn the_constructor_registers_cards_by_their_numbers_and_names() {
    let driver = registered();
    // SAFETY: constants.
    let (name, devices) = unsafe { (CStr::from_ptr(driver.name), std::slice::from_raw_parts(driver.match_table, 3)) };
    assert_eq!(name, c"berth");
    assert_eq!((driver.match_min_abi_version, driver.match_max_abi_version), (1, 1));
    assert_eq!((devices[0].kind, devices[0].vendor, devices[0].device), (VERBS_MATCH_PCI, 0x10ee, 0xbe47));
    assert_eq!((devices[1].kind, devices[2].kind), (VERBS_MATCH_MODALIAS, VERBS_MATCH_SENTINEL));
    // SAFETY: given back below, and not used.
    unsafe {
        let device = driver.alloc_device.unwrap()(null_mut());
        driver.uninit_device.unwrap()(device);
    }
}

#[test]
fn a_driver_of_another_version_is_refused() {
    let kernel = Kernel::new();
    kernel.state().abi += 1;
    // SAFETY: the stand-in looks at the descriptor only.
    let context = unsafe { registered().alloc_context.unwrap()(null_mut(), kernel.fd(), null_mut()) };
    assert!(context.is_null());
    assert_eq!((errno(), kernel.state().contexts), (libc::EPROTONOSUPPORT, 0));
    kernel.forget();
}

#[test]
fn device_port_and_memory_are_the_kernels() {
    let bench = Bench::new();
    let mut attr = [1; 64];
    assert_eq!(call!(query_device_ex(bench.context(), null_mut(), &raw mut attr, 64)), 0);
    assert_eq!(attr.map(|c| c as u8)[..6], *b"1.2.3\0");
    assert_eq!(call!(query_port(bench.context(), 1, null_mut())), 0);
    let data = [0u8; 8];
    let at = data.as_ptr() as u64;
    let mr = call!(reg_mr(bench.pd, data.as_ptr().cast_mut().cast(), 8, at, 1));
    // SAFETY: just made.
    assert_eq!(unsafe { (*mr).rkey }, 0x1234);
    let again = |pd| call!(rereg_mr(mr.cast(), 5, pd, data.as_ptr().cast_mut().cast(), 7, 3));
    assert_eq!((again(bench.pd), again(null_mut())), (0, libc::EINVAL));
    // SAFETY: as above.
    assert_eq!(unsafe { (*mr).rkey }, 0x5_0307);
    let mut list = [over(&data[..1]), over(&data)];
    assert_eq!(call!(advise_mr(bench.pd, 1, 1, list.as_mut_ptr(), 2)), 0);
    assert_eq!(call!(dereg_mr(mr.cast())), 0);
    assert!(call!(reg_mr(bench.pd, data.as_ptr().cast_mut().cast(), 8, 0, 1)).is_null());
}

#[test]
fn ap_1_each_operation_becomes_its_element() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let qp = bench.qp(cq, 16);
    let (remote_addr, rkey) = (0x0123_4567_89ab_cde8, 0xfedc_ba98);
    let immediate = u32::from_ne_bytes([0x11, 0x22, 0x33, 0x44]);
    let mut requests: Vec<_> = [
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
    ]
    .into_iter()
    .enumerate()
    .map(|(n, opcode)| request(n as u64, opcode, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE, &[]))
    .collect();
    let sges = [sge(0x1000, 3), sge(0x2000, 5)];
    for wr in &mut requests {
        (wr.sg_list, wr.num_sge, wr.imm_data) = (sges.as_ptr().cast_mut(), 2, immediate);
        wr.wr = if wr.opcode < IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_SEND_WITH_INV {
            wr { rdma: rdma { remote_addr, rkey } }
        } else {
            wr { atomic: atomic { remote_addr, compare_add: 7, swap: 9, rkey } }
        };
    }
    assert_eq!(qp.send(&mut requests), (0, None));
    let here = [Sge { va: 0x1000, len: 3, reserved: 0 }, Sge { va: 0x2000, len: 5, reserved: 0 }];
    let line = |va, len, reserved| Sge { va, len, reserved };
    let there = line(remote_addr, rkey, 0);
    // The bytes on the wire are those in memory: the card's number has the first one highest.
    let number = 0x1122_3344;
    for (n, opcode, flags, lines) in [
        (0, OP_SEND, SEND_PUSH, vec![]),
        (1, OP_SEND, SEND_PUSH | SEND_IMMEDIATE, vec![line(0, 0, number)]),
        (2, OP_SEND, SEND_PUSH | SEND_INVALIDATE, vec![line(0, 0, immediate)]),
        (3, OP_WRITE, 0, vec![there]),
        (4, OP_WRITE, SEND_PUSH | SEND_IMMEDIATE, vec![line(remote_addr, rkey, number)]),
        (5, OP_READ, 0, vec![there]),
        (6, OP_CMP_SWAP, 0, vec![there, line(9, 7, 0)]),
        (7, OP_FETCH_ADD, 0, vec![there, line(7, 0, 0)]),
    ] {
        let wqe = qp.element(n);
        assert_eq!((wqe.opcode, wqe.flags, wqe.wr_id), (opcode, flags | SEND_FENCE, n.into()), "{n}");
        assert_eq!((wqe.num_sge, wqe.length), (2, 8), "{n}");
        let k = lines.len();
        assert_eq!((&wqe.sge[..k], &wqe.sge[k..k + 2]), (&lines[..], &here[..]), "{n}");
    }
    assert_eq!(bench.kernel.doorbell(DB_SQ), 64 << 32 | 8 << 16 | u64::from(qp.qpn), "one doorbell for all");
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn a_bad_request_is_named_and_those_before_it_are_posted() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let qp = bench.qp(cq, 4);
    let many = [sge(0x1000, 1); 8];
    let good = || request(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &many[..1]);
    let read = |flags, sges| request(2, IBV_WR_RDMA_READ, flags, sges);
    let huge = [sge(0, 1 << 31)];
    let mut posted = 0;
    for bad in [
        request(2, IBV_WR_SEND, 0, &many),
        request(2, IBV_WR_RDMA_WRITE, 0, &many[..7]),
        request(2, IBV_WR_SEND, 0, &huge),
        request(2, IBV_WR_SEND, 1 << 4, &[]),
        request(2, 7, 0, &[]),
        request(2, 99, 0, &[]),
        request(2, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, &many[..1]),
        read(IBV_SEND_INLINE, &many[..0]),
        ibv_send_wr { num_sge: -1, ..good() },
    ] {
        assert_eq!(qp.send(&mut [good(), bad, good()]), (libc::EINVAL, Some(1)));
        posted += 1;
        assert_eq!(bench.kernel.doorbell(DB_SQ) >> 16 & 0xffff, posted);
        bench.kernel.complete(cqn(cq), Cqe { credit: posted as u32, ..qp.cqe(OP_SEND) });
        assert_eq!(bench.poll(cq).len(), 1);
    }
    // The fifth has no room.
    let mut six: Vec<_> = (0..6).map(|_| good()).collect();
    assert_eq!(qp.send(&mut six), (libc::ENOMEM, Some(4)));
    assert_eq!(qp.recv(1, &many), libc::EINVAL);
    for n in 0..4 {
        assert_eq!(qp.recv(n, &many[..7]), 0);
    }
    assert_eq!(qp.recv(4, &[]), libc::ENOMEM);
    assert_eq!(bench.kernel.doorbell(DB_RQ), 4 << 16 | u64::from(qp.qpn));
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn unsignalled_sends_complete_with_the_next_one_and_queues_go_round() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let qp = bench.qp(cq, 4);
    let data = [0; 4];
    let mut told = 0;
    for n in 0u32..17_000 {
        let mut four = [0, 0, 0, IBV_SEND_SIGNALED].map(|flags| request(n.into(), IBV_WR_SEND, flags, &[]));
        assert_eq!(qp.send(&mut four), (0, None));
        assert_eq!(qp.send(&mut [request(0, IBV_WR_SEND, 0, &[])]), (libc::ENOMEM, Some(0)));
        assert_eq!([0, 1, 2, 3].map(|at| qp.element(at).flags), [16, 16, 16, 0]);
        assert_eq!(qp.recv(n.into(), &[over(&data)]), 0);
        let cqn = cqn(cq);
        bench.kernel.complete(cqn, Cqe { wr_id: n.into(), credit: (4 * (n + 1)) & 0xffff, ..qp.cqe(OP_SEND) });
        bench.kernel.complete(cqn, Cqe { wr_id: n.into(), byte_len: 4, ..qp.cqe(OP_RECV) });
        let wc = bench.poll(cq);
        assert_eq!([wc[0].opcode, wc[1].opcode], [IBV_WC_SEND, IBV_WC_RECV]);
        assert!(wc.len() == 2 && wc.iter().all(|wc| wc.wr_id == n.into() && wc.status == IBV_WC_SUCCESS));
        told = bench.kernel.doorbell(DB_CQ) >> 16;
    }
    assert!(2 * 17_000 - told <= 8, "the card knows that the ring has room");
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

fn cqn(cq: *mut ibv_cq) -> u32 {
    // SAFETY: it is there.
    unsafe { (*cq).handle }
}

#[test]
fn all_sends_are_signalled_if_the_queue_pair_says_so() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    // SAFETY: all fields may be zero.
    let mut attr: ibv_qp_init_attr = unsafe { zeroed() };
    (attr.send_cq, attr.recv_cq, attr.qp_type, attr.sq_sig_all) = (cq, cq, IBV_QPT_RC, 1);
    (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (4, 4);
    let qp = bench.ready(call!(create_qp(bench.pd, &raw mut attr)));
    assert_eq!(attr.cap.max_inline_data, 64);
    assert_eq!(qp.send(&mut [request(0, IBV_WR_SEND, 0, &[])]), (0, None));
    assert_eq!(qp.element(0).flags, 0);
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn inline_data_are_the_callers_again_at_once_and_go_with_the_doorbell_if_they_fit() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let qp = bench.qp(cq, 8);
    let mut data: Vec<u8> = (0..65).collect();
    let inline = |sges: &[ibv_sge]| request(5, IBV_WR_SEND, IBV_SEND_INLINE | IBV_SEND_SIGNALED, sges);
    let sges = [over(&data[..20]), sge(0, 0), over(&data[20..40])];
    assert_eq!(qp.send(&mut [inline(&sges)]), (0, None));
    assert_eq!(bench.kernel.doorbell(DB_WQE + 56), 40 << 32 | 1 << 16 | u64::from(qp.qpn));
    assert_eq!(bench.kernel.doorbell(DB_SQ), 0);
    assert_eq!(qp.send(&mut [inline(&[over(&data[..64])])]), (0, None));
    assert_eq!(bench.kernel.doorbell(DB_SQ), 104 << 32 | 2 << 16 | u64::from(qp.qpn));
    let expected = data.clone();
    data.fill(0xff);
    for (at, len) in [(0, 40), (1, 64)] {
        let wqe = qp.element(at);
        assert_eq!((wqe.flags, wqe.num_sge, wqe.length), (SEND_INLINE, 0, len));
        let bytes: Vec<u8> = wqe.words()[2..].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes[..len as usize], expected[..len as usize]);
    }
    assert_eq!(qp.send(&mut [inline(&[over(&data)])]), (libc::EINVAL, Some(0)));
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn each_status_has_the_name_that_verbs_have_for_it() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let qp = bench.qp(cq, 4);
    for (sent, (status, send, recv)) in (1..).zip([
        (WC_OK, IBV_WC_SUCCESS, IBV_WC_SUCCESS),
        (WC_BAD_WQE, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR),
        (WC_LOCAL_PROTECTION, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR),
        (WC_OVER_BUDGET, IBV_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR),
        (WC_WITHDRAWN, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR),
        (WC_RETRY_EXCEEDED, IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR),
        (WC_FLUSHED, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR),
        (WC_REMOTE_ERROR, IBV_WC_REM_OP_ERR, IBV_WC_REM_OP_ERR),
        (WC_TOO_LONG, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR),
        (WC_NO_MEMORY, IBV_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR),
        (WC_REMOTE_ACCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR),
        (WC_BIND, IBV_WC_MW_BIND_ERR, IBV_WC_MW_BIND_ERR),
        (WC_RNR_RETRY, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR),
        (WC_REMOTE_REQUEST, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR),
        (200, IBV_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR),
    ]) {
        assert_eq!(qp.send(&mut [request(7, IBV_WR_SEND, 0, &[])]), (0, None));
        assert_eq!(qp.recv(8, &[]), 0);
        // One that is not signalled has a completion if it fails.
        bench.kernel.complete(cqn(cq), Cqe { wr_id: 7, status, credit: sent, ..qp.cqe(OP_SEND) });
        bench.kernel.complete(cqn(cq), Cqe { wr_id: 8, status, ..qp.cqe(OP_RECV) });
        let wc = bench.poll(cq);
        assert_eq!([wc[0].status, wc[1].status], [send, recv], "{status}");
        assert!(wc.iter().all(|wc| wc.vendor_err == status.into() && wc.qp_num == qp.qpn));
    }
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn a_completion_names_operation_length_immediate_and_key() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let qp = bench.qp(cq, 16);
    let with = |opcode, flags| Cqe { flags, remaining: 0x1122_3344, byte_len: 9, ..qp.cqe(opcode) };
    let wire = u32::from_ne_bytes([0x11, 0x22, 0x33, 0x44]);
    for (cqe, opcode, flags, data) in [
        (with(OP_RECV, CQE_PUSH), IBV_WC_RECV, 0, 0),
        (with(OP_RECV, CQE_IMMEDIATE), IBV_WC_RECV, IBV_WC_WITH_IMM, wire),
        (with(OP_RECV, CQE_INVALIDATED), IBV_WC_RECV, IBV_WC_WITH_INV, 0x1122_3344),
        (with(OP_WRITE, CQE_IMMEDIATE), IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM, wire),
    ] {
        assert_eq!(qp.recv(1, &[]), 0);
        bench.kernel.complete(cqn(cq), cqe);
        let wc = bench.poll(cq)[0];
        assert_eq!((wc.opcode, wc.wc_flags, wc.imm_data, wc.byte_len), (opcode, flags, data, 9));
    }
    for (n, (cqe, opcode)) in [
        (with(OP_SEND, 0), IBV_WC_SEND),
        (with(OP_WRITE, 0), IBV_WC_RDMA_WRITE),
        (with(OP_READ, 0), IBV_WC_RDMA_READ),
        (with(OP_CMP_SWAP, 0), IBV_WC_COMP_SWAP),
        (with(OP_FETCH_ADD, 0), IBV_WC_FETCH_ADD),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(qp.send(&mut [request(1, IBV_WR_SEND, IBV_SEND_SIGNALED, &[])]), (0, None));
        bench.kernel.complete(cqn(cq), Cqe { credit: n as u32 + 1, ..cqe });
        let wc = bench.poll(cq)[0];
        assert_eq!((wc.opcode, wc.wc_flags), (opcode, 0));
    }
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn elements_are_posted_in_the_states_that_verbs_name() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let qp = bench.qp(cq, 4);
    for (state, sends, receives) in
        [(0, false, false), (1, false, true), (2, false, true), (3, true, true), (6, true, true)]
    {
        qp.modify(IBV_QPS_RESET);
        qp.modify(state);
        let error = |good| if good { 0 } else { libc::EINVAL };
        assert_eq!(qp.send(&mut [request(0, IBV_WR_SEND, 0, &[])]).0, error(sends), "{state}");
        assert_eq!(qp.recv(0, &[]), error(receives), "{state}");
    }
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn receives_ring_again_when_a_queue_pair_becomes_ready_to_send() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let [one, other] = [bench.qp(cq, 4), bench.qp(cq, 4)];
    assert_eq!(bench.kernel.doorbell(DB_RQ), 0, "nothing is posted");
    assert_eq!((one.recv(1, &[]), one.recv(2, &[]), other.recv(3, &[])), (0, 0, 0));
    assert_eq!(bench.kernel.doorbell(DB_RQ), 1 << 16 | u64::from(other.qpn));
    one.modify(IBV_QPS_RTS);
    assert_eq!(bench.kernel.doorbell(DB_RQ), 2 << 16 | u64::from(one.qpn));
    call!(destroy_qp(one.qp));
    call!(destroy_qp(other.qp));
    call!(destroy_cq(cq));
}

#[test]
fn a_reset_empties_the_queues_and_leaves_no_completions_behind() {
    let bench = Bench::new();
    let (send_cq, recv_cq) = (bench.cq(8), bench.cq(8));
    let mut attr = bench.attributes(send_cq, 4);
    attr.recv_cq = recv_cq;
    let qp = bench.ready(call!(create_qp_ex(bench.context(), &raw mut attr)));
    let other = bench.qp(send_cq, 4);
    for _ in 0..3 {
        assert_eq!(qp.send(&mut [request(1, IBV_WR_SEND, 0, &[])]).0, 0);
        assert_eq!(qp.recv(1, &[]), 0);
    }
    assert_eq!(other.send(&mut [request(9, IBV_WR_SEND, IBV_SEND_SIGNALED, &[])]).0, 0);
    bench.kernel.complete(cqn(send_cq), Cqe { credit: 2, ..qp.cqe(OP_SEND) });
    bench.kernel.complete(cqn(send_cq), Cqe { wr_id: 9, credit: 1, ..other.cqe(OP_SEND) });
    bench.kernel.complete(cqn(recv_cq), qp.cqe(OP_RECV));
    qp.modify(IBV_QPS_RESET);
    for state in 1..=IBV_QPS_RTS {
        qp.modify(state);
    }
    assert_eq!((bench.poll(send_cq).len(), bench.poll(recv_cq).len()), (1, 0));
    for _ in 0..4 {
        assert_eq!(qp.send(&mut [request(2, IBV_WR_SEND, 0, &[])]).0, 0);
        assert_eq!(qp.recv(2, &[]), 0);
    }
    assert_eq!((qp.element(0).wr_id, bench.kernel.doorbell(DB_SQ) >> 16 & 0xffff), (2, 4));
    bench.kernel.complete(cqn(send_cq), Cqe { wr_id: 2, credit: 4, ..qp.cqe(OP_SEND) });
    assert_eq!(bench.poll(send_cq)[0].wr_id, 2);
    call!(destroy_qp(qp.qp));
    call!(destroy_qp(other.qp));
    call!(destroy_cq(send_cq));
    call!(destroy_cq(recv_cq));
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_not_given_out() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let (first, second) = (bench.qp(cq, 4), bench.qp(cq, 4));
    for qp in [&first, &second, &first, &second] {
        assert_eq!(qp.recv(qp.qpn.into(), &[]), 0);
        bench.kernel.complete(cqn(cq), Cqe { wr_id: qp.qpn.into(), ..qp.cqe(OP_RECV) });
    }
    assert_eq!(call!(destroy_qp(first.qp)), 0);
    let left = bench.poll(cq);
    assert!(left.len() == 2 && left.iter().all(|wc| wc.qp_num == second.qpn));
    assert_eq!(call!(destroy_qp(second.qp)), 0);
    assert_eq!(call!(destroy_cq(cq)), 0);
    assert!(bench.kernel.state().qps.is_empty() && bench.kernel.state().cqs.is_empty());
}

#[test]
fn a_completion_that_fits_no_element_is_an_error_and_loses_no_other() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let qp = bench.qp(cq, 4);
    for wr_id in 1..3 {
        assert_eq!(qp.recv(wr_id, &[]), 0);
        bench.kernel.complete(cqn(cq), Cqe { wr_id, ..qp.cqe(OP_RECV) });
        bench.kernel.complete(cqn(cq), Cqe { qpn: 99, ..qp.cqe(OP_RECV) });
    }
    let mut wc = [ibv_wc::default(); 8];
    let polls: Vec<_> = (0..5).map(|_| call!(poll_cq(cq, 8, wc.as_mut_ptr()))).collect();
    assert_eq!(polls, [1, -libc::EIO, 1, -libc::EIO, 0]);
    // One that is found when a queue pair goes is told as well.
    bench.kernel.complete(cqn(cq), Cqe { qpn: 99, ..qp.cqe(OP_RECV) });
    call!(destroy_qp(bench.qp(cq, 4).qp));
    let polls = [0; 2].map(|_| call!(poll_cq(cq, 8, wc.as_mut_ptr())));
    assert_eq!(polls, [-libc::EIO, 0]);
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn arming_tells_the_card_what_was_polled() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let qp = bench.qp(cq, 4);
    assert_eq!(qp.recv(1, &[]), 0);
    bench.kernel.complete(cqn(cq), qp.cqe(OP_RECV));
    assert_eq!(bench.poll(cq).len(), 1);
    for solicited in [0, 1] {
        assert_eq!(call!(req_notify_cq(cq, solicited)), 0);
        assert_eq!(bench.kernel.doorbell(DB_CQ), 1 << 63 | 1 << 16 | u64::from(cqn(cq)));
    }
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn a_completion_queue_is_read_field_by_field() {
    let bench = Bench::new();
    // SAFETY: all fields may be zero.
    let mut attr: ibv_cq_init_attr_ex = unsafe { zeroed() };
    (attr.cqe, attr.wc_flags) = (8, 1 << 7);
    assert!(call!(create_cq_ex(bench.context(), &raw mut attr)).is_null());
    assert_eq!(errno(), libc::EOPNOTSUPP, "there are no time stamps");
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    let cq = call!(create_cq_ex(bench.context(), &raw mut attr));
    let qp = bench.qp(cq, 4);
    let mut how = ibv_poll_cq_attr { comp_mask: 0 };
    assert_eq!(of!(cq.start_poll(&raw mut how)), libc::ENOENT);
    for wr_id in 1..3 {
        assert_eq!(qp.recv(wr_id, &[]), 0);
        let flags = CQE_IMMEDIATE;
        bench.kernel.complete(cqn(cq), Cqe { wr_id, byte_len: 6, flags, remaining: 1, ..qp.cqe(OP_RECV) });
    }
    let status = WC_FLUSHED;
    assert_eq!(qp.send(&mut [request(3, IBV_WR_SEND, 0, &[])]).0, 0);
    bench.kernel.complete(cqn(cq), Cqe { wr_id: 3, status, credit: 1, ..qp.cqe(OP_SEND) });
    assert_eq!(of!(cq.start_poll(&raw mut how)), 0);
    for wr_id in 1..3 {
        // SAFETY: as `call`.
        assert_eq!(unsafe { ((*cq).wr_id, (*cq).status) }, (wr_id, IBV_WC_SUCCESS));
        assert_eq!((of!(cq.read_opcode()), of!(cq.read_byte_len())), (IBV_WC_RECV, 6));
        assert_eq!((of!(cq.read_imm_data()), of!(cq.read_wc_flags())), (1u32.to_be(), IBV_WC_WITH_IMM));
        assert_eq!((of!(cq.read_qp_num()), of!(cq.read_src_qp()), of!(cq.read_vendor_err())), (qp.qpn, 0, 0));
        assert_eq!((of!(cq.read_slid()), of!(cq.read_sl()), of!(cq.read_dlid_path_bits())), (0, 0, 0));
        assert_eq!(of!(cq.next_poll()), 0);
    }
    // SAFETY: as `call`.
    assert_eq!(unsafe { ((*cq).wr_id, (*cq).status) }, (3, IBV_WC_WR_FLUSH_ERR));
    assert_eq!((of!(cq.read_opcode()), of!(cq.read_vendor_err())), (IBV_WC_SEND, WC_FLUSHED.into()));
    assert_eq!(of!(cq.next_poll()), libc::ENOENT);
    of!(cq.end_poll());
    assert!(bench.poll(cq).is_empty(), "the lock is free again");
    how.comp_mask = 1;
    assert_eq!(of!(cq.start_poll(&raw mut how)), libc::EINVAL);
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

#[test]
fn elements_that_are_built_call_by_call_are_posted_together_or_not_at_all() {
    let bench = Bench::new();
    let cq = bench.cq(8);
    let mut attr = bench.attributes(cq, 8);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = 1 << 11;
    assert!(call!(create_qp_ex(bench.context(), &raw mut attr)).is_null());
    assert_eq!(errno(), libc::EOPNOTSUPP, "there is no flush");
    attr.send_ops_flags = crate::builder::OPERATIONS;
    let made = bench.ready(call!(create_qp_ex(bench.context(), &raw mut attr)));
    let qp = made.qp.cast::<ibv_qp_ex>();
    // SAFETY: as `call`.
    let set = |wr_id, wr_flags| unsafe { ((*qp).wr_id, (*qp).wr_flags) = (wr_id, wr_flags) };
    // SAFETY: as `call`.
    assert_eq!(unsafe { (*made.qp.cast::<verbs_qp>()).comp_mask }, VERBS_QP_EX);
    let sges = [sge(0x1000, 8), sge(0x2000, 0)];
    let data = *b"0123456789";

    of!(qp.wr_start());
    set(1, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    of!(qp.wr_send_imm(5u32.to_be()));
    of!(qp.wr_set_sge_list(2, sges.as_ptr()));
    set(2, IBV_SEND_FENCE);
    of!(qp.wr_rdma_write_imm(3, 0x4000, 6u32.to_be()));
    of!(qp.wr_set_sge(0, 0x3000, 1));
    set(3, 0);
    of!(qp.wr_atomic_cmp_swp(4, 0x5000, 7, 9));
    of!(qp.wr_set_sge_list(1, sges.as_ptr()));
    assert_eq!(bench.kernel.doorbell(DB_SQ), 0, "nothing before it is complete");
    assert_eq!(of!(qp.wr_complete()), 0);
    assert_eq!(bench.kernel.doorbell(DB_SQ), 17 << 32 | 3 << 16 | u64::from(made.qpn));
    let [a, b, c] = [0, 1, 2].map(|at| made.element(at));
    assert_eq!((a.wr_id, a.opcode, a.flags, a.num_sge), (1, OP_SEND, SEND_PUSH | SEND_IMMEDIATE, 2));
    assert_eq!((b.wr_id, b.opcode, b.flags & SEND_FENCE, b.length), (2, OP_WRITE, SEND_FENCE, 1));
    assert_eq!(b.sge[0], Sge { va: 0x4000, len: 3, reserved: 6 });
    assert_eq!((c.wr_id, c.opcode, c.flags, c.sge[1].va), (3, OP_CMP_SWAP, SEND_UNSIGNALLED, 9));

    // All others, and data inline.
    of!(qp.wr_start());
    of!(qp.wr_send());
    of!(qp.wr_send_inv(1));
    of!(qp.wr_rdma_write(1, 2));
    of!(qp.wr_rdma_read(1, 2));
    of!(qp.wr_atomic_fetch_add(1, 8, 1));
    of!(qp.wr_set_sge(0, 0x1000, 8));
    assert_eq!(of!(qp.wr_complete()), 0, "five fit");
    assert_eq!([3, 4, 5, 6, 7].map(|at| made.element(at).opcode), [OP_SEND, OP_SEND, OP_WRITE, OP_READ, OP_FETCH_ADD]);
    of!(qp.wr_start());
    of!(qp.wr_send());
    assert_eq!(of!(qp.wr_complete()), libc::ENOMEM);
    bench.kernel.complete(cqn(cq), Cqe { credit: 8, ..made.cqe(OP_FETCH_ADD) });
    assert_eq!(bench.poll(cq).len(), 1);

    let told = bench.kernel.doorbell(DB_SQ);
    of!(qp.wr_start());
    of!(qp.wr_send());
    of!(qp.wr_abort());
    of!(qp.wr_start());
    of!(qp.wr_send());
    of!(qp.wr_send());
    of!(qp.wr_set_inline_data(data.as_ptr().cast_mut().cast(), 65));
    assert_eq!(of!(qp.wr_complete()), libc::EINVAL);
    of!(qp.wr_start());
    of!(qp.wr_set_sge(0, 0x1000, 8));
    assert_eq!(of!(qp.wr_complete()), libc::EINVAL, "data of nothing");
    assert_eq!(bench.kernel.doorbell(DB_SQ), told);

    of!(qp.wr_start());
    of!(qp.wr_send());
    let parts =
        [&data[..4], &data[4..]].map(|part| ibv_data_buf { addr: part.as_ptr().cast_mut().cast(), length: part.len() });
    of!(qp.wr_set_inline_data_list(2, parts.as_ptr()));
    assert_eq!(of!(qp.wr_complete()), 0);
    assert_eq!(bench.kernel.doorbell(DB_WQE + 56) >> 16 & 0xffff, 9);
    assert_eq!(made.element(0).words()[2].to_le_bytes(), data[..8]);
    call!(destroy_qp(made.qp));
    call!(destroy_cq(cq));
}

#[test]
fn sizes_that_cannot_be_are_refused_and_leave_nothing_behind() {
    let bench = Bench::new();
    for (cqe, error) in [(0, libc::EINVAL), (-1, libc::EINVAL), (MAX_CQE as c_int + 1, libc::EINVAL)] {
        assert!(bench.cq(cqe).is_null());
        assert_eq!(errno(), error);
    }
    // The largest one has no room for the card to be told late.
    let cq = bench.cq(MAX_CQE as c_int);
    // SAFETY: just made.
    assert_eq!(unsafe { (*cq).cqe }, MAX_CQE as c_int);
    bench.kernel.state().cq_bytes = Some(32);
    assert!(bench.cq(8).is_null());
    assert_eq!(errno(), libc::EPROTO);
    let refused = |change: &dyn Fn(&mut ibv_qp_init_attr_ex)| {
        let mut attr = bench.attributes(cq, 4);
        change(&mut attr);
        assert!(call!(create_qp_ex(bench.context(), &raw mut attr)).is_null());
        errno()
    };
    assert_eq!(refused(&|attr| attr.cap.max_inline_data = 65), libc::EINVAL);
    assert_eq!(refused(&|attr| attr.cap.max_recv_wr = MAX_WR + 1), libc::EINVAL);
    assert_eq!(refused(&|attr| attr.qp_type = 3), libc::EOPNOTSUPP);
    assert_eq!(refused(&|attr| (attr.qp_type, attr.srq) = (IBV_QPT_UD, channel().cast())), libc::EOPNOTSUPP);
    assert_eq!(refused(&|attr| attr.comp_mask |= 1 << 3), libc::EOPNOTSUPP);
    assert_eq!(refused(&|attr| attr.send_cq = null_mut()), libc::EINVAL);
    bench.kernel.state().rq_depth = Some(3);
    assert_eq!(refused(&|_| ()), libc::EPROTO);
    assert!(bench.kernel.state().qps.is_empty() && bench.kernel.state().cqs.len() == 1);
    call!(destroy_cq(cq));
}

/// A shared receive queue.
struct Srq(*mut ibv_srq);

impl Srq {
    fn new(bench: &Bench, max_wr: u32, srq_limit: u32) -> Self {
        let attr = ibv_srq_attr { max_wr, max_sge: 1, srq_limit };
        let mut attr = ibv_srq_init_attr { srq_context: null_mut(), attr };
        Self(call!(create_srq(bench.pd, &raw mut attr)))
    }

    /// A queue pair that takes its receives from there.
    fn qp<'a>(&self, bench: &'a Bench, cq: *mut ibv_cq) -> Qp<'a> {
        let mut attr = bench.attributes(cq, 4);
        attr.srq = self.0;
        bench.ready(call!(create_qp_ex(bench.context(), &raw mut attr)))
    }

    /// Posts receives of these numbers; answers the error, and which was bad.
    fn post(&self, numbers: std::ops::Range<u64>) -> (c_int, Option<u64>) {
        let mut sges = [over(&[0; 8])];
        let request = |wr_id| ibv_recv_wr { wr_id, next: null_mut(), sg_list: sges.as_mut_ptr(), num_sge: 1 };
        let mut requests: Vec<_> = numbers.map(request).collect();
        for n in 1..requests.len() {
            requests[n - 1].next = &raw mut requests[n];
        }
        let mut bad = null_mut::<ibv_recv_wr>();
        let error = call!(post_srq_recv(self.0, requests.as_mut_ptr(), &raw mut bad));
        // SAFETY: it points into the vector.
        (error, unsafe { bad.as_ref() }.map(|wr| wr.wr_id))
    }
}

#[test]
fn receives_of_a_shared_queue_are_lent_to_its_queue_pairs() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let srq = Srq::new(&bench, 8, 0);
    let qps = [srq.qp(&bench, cq), srq.qp(&bench, cq)];
    assert_eq!(srq.post(1..11), (libc::ENOMEM, Some(9)));
    // What the card finds in the queue of each, and has completed there.
    let mut done = [vec![], vec![]];
    let next = |n: usize, done: &[u64]| {
        let wr_id = bench.kernel.element(qps[n].qpn, true, done.len() as u32 % 4).wr_id;
        (wr_id != 0 && !done.contains(&wr_id)).then_some(wr_id)
    };
    let mut complete = |n: usize, status| {
        let wr_id = next(n, &done[n])?;
        done[n].push(wr_id);
        bench.kernel.complete(1, Cqe { wr_id, status, ..qps[n].cqe(OP_RECV) });
        Some(wr_id)
    };
    assert_eq!(bench.kernel.doorbell(DB_RQ), 2 << 16 | u64::from(qps[1].qpn), "two each: half of all");
    assert_eq!(qps[0].recv(9, &[]), libc::EINVAL, "it has no queue of its own");
    assert_eq!([complete(0, WC_OK), complete(1, WC_OK), complete(0, WC_OK)], [Some(1), Some(2), Some(3)]);
    assert_eq!(bench.poll(cq).iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2, 3]);
    // A queue pair ends, and what it has not used is the other's: in error, by what it has polled or not.
    qps[1].modify(IBV_QPS_ERR);
    assert!(complete(1, WC_FLUSHED).is_some() && bench.poll(cq).is_empty(), "nobody sees what comes back");
    assert!(complete(1, WC_FLUSHED).is_some());
    call!(destroy_qp(qps[1].qp));
    let mut left = vec![];
    while let Some(wr_id) = complete(0, WC_OK) {
        left.push(wr_id);
        assert_eq!(bench.poll(cq).len(), 1);
    }
    left.sort_unstable();
    assert_eq!(left, [4, 5, 6, 7, 8], "each comes once");
    call!(destroy_qp(qps[0].qp));
    call!(destroy_srq(srq.0));
    call!(destroy_cq(cq));
}

#[test]
fn loans_are_recalled_for_a_queue_pair_that_has_none() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let srq = Srq::new(&bench, 2, 0);
    let qps = [srq.qp(&bench, cq), srq.qp(&bench, cq)];
    srq.post(1..3);
    let complete = |n: usize, wr_id, status| bench.kernel.complete(1, Cqe { wr_id, status, ..qps[n].cqe(OP_RECV) });
    bench.kernel.state().busy = libc::EBUSY;
    complete(0, 1, WC_OK);
    assert_eq!(bench.poll(cq).len(), 1);
    assert_eq!(bench.kernel.state().recalled, [qps[1].qpn], "the kernel cannot yet");
    bench.kernel.state().busy = 0;
    // Nothing completes, and the program polls on.
    while bench.kernel.state().recalled.len() < 2 {
        assert!(bench.poll(cq).is_empty());
    }
    (0..100).for_each(|_| assert!(bench.poll(cq).is_empty()));
    assert_eq!(bench.kernel.state().recalled, [qps[1].qpn; 2], "once");
    complete(1, 2, WC_RECALLED);
    assert!(bench.poll(cq).is_empty(), "nobody sees what comes back");
    assert_eq!(bench.kernel.element(qps[0].qpn, true, 1).wr_id, 2, "it is the other's now");
    complete(0, 2, WC_OK);
    assert_eq!(bench.poll(cq)[0].wr_id, 2);
    qps.iter().for_each(|qp| _ = call!(destroy_qp(qp.qp)));
    call!(destroy_srq(srq.0));
    call!(destroy_cq(cq));
}

#[test]
fn who_polls_one_completion_queue_has_loans_of_another_one_go_round() {
    let bench = Bench::new();
    let [cq, other] = [(); 2].map(|()| bench.cq(16));
    let srq = Srq::new(&bench, 8, 0);
    let qps = [(); 2].map(|()| srq.qp(&bench, cq));
    srq.post(0..2);
    let written = |qp: &Qp, wr_id| Cqe { qpn: qp.qpn, wr_id, ..qp.cqe(OP_RECV) };
    // The first one has used its receive, and has none.
    bench.kernel.complete(cqn(cq), written(&qps[0], 0));
    assert_eq!(bench.poll(cq).len(), 1);
    assert_eq!(bench.kernel.state().recalled, [qps[1].qpn]);
    bench.kernel.complete(cqn(cq), Cqe { status: WC_RECALLED, ..written(&qps[1], 1) });
    bench.kernel.complete(cqn(cq), Cqe { status: WC_TOO_LONG, ..written(&qps[1], 7) });
    // More often than needed: others of these tests may have what it looks at.
    (0..320).for_each(|_| assert!(bench.poll(other).is_empty()));
    assert_eq!(bench.kernel.element(qps[0].qpn, true, 1).wr_id, 1, "it is lent to the first one");
    qps.iter().for_each(|qp| _ = call!(destroy_qp(qp.qp)));
    call!(destroy_srq(srq.0));
    call!(destroy_cq(cq));
    call!(destroy_cq(other));
}

#[test]
fn the_kernel_tells_once_that_few_receives_of_a_shared_queue_are_left() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let srq = Srq::new(&bench, 4, 0);
    let qp = srq.qp(&bench, cq);
    srq.post(0..4);
    let mut attr = ibv_srq_attr { srq_limit: 3, ..ibv_srq_attr::default() };
    assert_eq!(call!(modify_srq(srq.0, &raw mut attr, IBV_SRQ_LIMIT as c_int)), 0);
    assert_eq!(call!(query_srq(srq.0, &raw mut attr)), 0);
    for wr_id in 0..3 {
        bench.kernel.complete(1, Cqe { wr_id, ..qp.cqe(OP_RECV) });
        bench.poll(cq);
        let told = bench.kernel.state().limits.len();
        assert_eq!(told, if wr_id == 0 { 1 } else { 2 });
    }
    assert_eq!(bench.kernel.state().limits, [(2, 3, 0), (0, 0, 1)]);
    assert!(Srq::new(&bench, MAX_WR + 1, 0).0.is_null());
    assert_eq!(errno(), libc::EINVAL);
    call!(destroy_qp(qp.qp));
    call!(destroy_srq(srq.0));
    call!(destroy_cq(cq));
}

#[test]
fn a_shared_queue_has_as_many_receives_as_it_is_told_last() {
    let bench = Bench::new();
    let srq = Srq::new(&bench, 2, 0);
    let resize = |max_wr| {
        let mut attr = ibv_srq_attr { max_wr, ..ibv_srq_attr::default() };
        call!(modify_srq(srq.0, &raw mut attr, IBV_SRQ_MAX_WR as c_int))
    };
    assert_eq!(srq.post(0..3), (libc::ENOMEM, Some(2)));
    assert_eq!((resize(1), resize(MAX_WR + 1), resize(4)), (libc::EINVAL, libc::EINVAL, 0));
    assert_eq!(srq.post(2..6), (libc::ENOMEM, Some(4)));
    assert_eq!((resize(3), resize(4)), (libc::EINVAL, 0));
    call!(destroy_srq(srq.0));
}

/// A queue pair that threads share.
struct Shared<'a>(&'a Qp<'a>, *mut ibv_cq);
// SAFETY: the provider's functions may be called by any thread.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    fn qp(&self) -> &'a Qp<'a> {
        self.0
    }

    fn cq(&self) -> *mut ibv_cq {
        self.1
    }
}

#[test]
fn threads_may_post_to_one_queue_pair_and_poll_one_completion_queue() {
    const EACH: u64 = 2000;
    let bench = Bench::new();
    let cq = bench.cq(32);
    let qp = bench.qp(cq, 8);
    let shared = Shared(&qp, cq);
    let done = std::sync::atomic::AtomicU64::new(0);
    thread::scope(|scope| {
        let shared = &shared;
        for thread in 0..3 {
            scope.spawn(move || {
                for n in 0..EACH {
                    let wr_id = thread * EACH + n;
                    while shared.qp().send(&mut [request(wr_id, IBV_WR_SEND, IBV_SEND_SIGNALED, &[])]).0 != 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        // The card.
        scope.spawn(|| {
            let mut at = 0;
            while at < 3 * EACH {
                let posted = shared.qp().bench.kernel.doorbell(DB_SQ) >> 16 & 0xffff;
                while posted != at & 0xffff {
                    let wr_id = shared.qp().element((at % 8) as u32).wr_id;
                    at += 1;
                    let credit = (at & 0xffff) as u32;
                    shared
                        .qp()
                        .bench
                        .kernel
                        .complete(cqn(shared.cq()), Cqe { wr_id, credit, ..shared.qp().cqe(OP_SEND) });
                }
                thread::yield_now();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < 3 * EACH {
                    let got = shared.qp().bench.poll(shared.cq());
                    done.fetch_add(got.len() as u64, Ordering::Relaxed);
                    thread::yield_now();
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 3 * EACH);
    call!(destroy_qp(qp.qp));
    call!(destroy_cq(cq));
}

/// What the kernel was given.
fn sent(wr_id: u64, opcode: c_uint, flags: c_uint, immediate: u32, to: [u32; 3], data: &[u8]) -> Sent {
    Sent { wr_id, opcode, flags, immediate, to, data: data.to_vec() }
}

#[test]
fn qp_6_datagrams_are_posted_to_the_kernel_and_polled_from_it() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let reliable = bench.qp(cq, 4);
    // The kernel is not asked for what it cannot have.
    call!(req_notify_cq(cq, 1));
    assert!(bench.poll(cq).is_empty() && bench.kernel.state().armed.is_empty());
    let mut attr = bench.attributes(cq, 4);
    attr.qp_type = IBV_QPT_UD;
    attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    attr.create_flags = 2;
    assert!(call!(create_qp_ex(bench.context(), &raw mut attr)).is_null());
    attr.create_flags = 0;
    let qp = bench.ready(call!(create_qp_ex(bench.context(), &raw mut attr)));
    assert_eq!(std::mem::take(&mut bench.kernel.state().armed), [0], "the program waits already");
    let mut way = 0_u8;
    assert!(call!(create_ah(bench.pd, null_mut())).is_null());
    assert_eq!(errno(), libc::EINVAL);
    let ah = call!(create_ah(bench.pd, (&raw mut way).cast()));
    // SAFETY: just made.
    let handle = unsafe { (*ah).handle };
    let to = ud { ah, remote_qpn: 77, remote_qkey: 0x1234_5678 };

    let bytes = *b"to whom it may concern";
    let ranges = [over(&bytes)];
    let mut requests = [request(7, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, &ranges), request(8, IBV_WR_SEND, 0, &[])];
    requests[0].imm_data = 0x0403_0201;
    requests.iter_mut().for_each(|request| request.wr.ud = to);
    bench.kernel.state().room = 1;
    assert_eq!(qp.send(&mut requests), (libc::ENOMEM, Some(1)));
    let posted = std::mem::take(&mut bench.kernel.state().sent);
    let names = [handle, 77, 0x1234_5678];
    assert_eq!(posted, [sent(7, IBV_WR_SEND_WITH_IMM, IBV_SEND_SIGNALED, 0x0403_0201, names, &bytes)]);
    assert_eq!(qp.recv(5, &ranges), 0);
    assert_eq!(bench.kernel.state().receives, [(5, 1)]);

    call!(req_notify_cq(cq, 1));
    assert_eq!(bench.kernel.state().armed, [1]);
    // What the card has comes first.
    assert_eq!(reliable.send(&mut [request(3, IBV_WR_SEND, IBV_SEND_SIGNALED, &ranges)]).0, 0);
    bench.kernel.complete(cqn(cq), Cqe { wr_id: 3, credit: 1, ..reliable.cqe(OP_SEND) });
    let done = [7, 5].map(|wr_id| ibv_wc { wr_id, ..ibv_wc::default() });
    bench.kernel.state().done.extend(done);
    let numbers: Vec<_> = bench.poll(cq).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(numbers, [3, 7, 5]);
    assert_eq!(call!(destroy_ah(ah)), 0);
    assert_eq!(call!(destroy_qp(qp.qp)), 0);
    bench.kernel.state().done.push_back(ibv_wc::default());
    assert!(bench.poll(cq).is_empty(), "the kernel has nothing for it any more");
    assert_eq!(call!(destroy_qp(reliable.qp)), 0);
    assert_eq!(call!(destroy_cq(cq)), 0);
}

#[test]
fn qp_6_datagrams_are_built_call_by_call() {
    let bench = Bench::new();
    let cq = bench.cq(16);
    let mut attr = bench.attributes(cq, 4);
    attr.qp_type = IBV_QPT_UD;
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    for flags in [IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV] {
        attr.send_ops_flags = flags;
        assert!(call!(create_qp_ex(bench.context(), &raw mut attr)).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let qp = bench.ready(call!(create_qp_ex(bench.context(), &raw mut attr)));
    let mut way = 0_u8;
    let ah = call!(create_ah(bench.pd, (&raw mut way).cast()));
    // SAFETY: just made.
    let names = unsafe { [(*ah).handle, 77, 3] };
    let ex: *mut ibv_qp_ex = qp.qp.cast();
    let begin = |wr_id, flags| {
        // SAFETY: the queue pair is one of the extended interface.
        unsafe { ((*ex).wr_id, (*ex).wr_flags) = (wr_id, flags) }
    };
    let (mut text, far) = (*b"inline", *b"far away");

    of!(ex.wr_start());
    begin(1, IBV_SEND_SIGNALED);
    of!(ex.wr_send());
    of!(ex.wr_set_ud_addr(ah, 77, 3));
    of!(ex.wr_set_inline_data(text.as_mut_ptr().cast(), text.len()));
    begin(2, 0);
    of!(ex.wr_send_imm(5));
    of!(ex.wr_set_sge_list(2, [over(&far[..3]), over(&far[3..])].as_ptr()));
    of!(ex.wr_set_ud_addr(ah, 77, 3));
    text.fill(0);
    assert_eq!(of!(ex.wr_complete()), 0);
    let posted = std::mem::take(&mut bench.kernel.state().sent);
    assert_eq!(
        posted,
        [
            sent(1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, names, b"inline"),
            sent(2, IBV_WR_SEND_WITH_IMM, 0, 5, names, &far),
        ]
    );

    // Nothing is posted: it is given up, it has too many ranges or bytes, or data without a send.
    of!(ex.wr_start());
    of!(ex.wr_send());
    of!(ex.wr_abort());
    of!(ex.wr_start());
    assert_eq!(of!(ex.wr_complete()), 0);
    let ranges = [over(&far); MAX_SGE + 1];
    let long = vec![0_u8; 4097];
    for bad in 0..3 {
        of!(ex.wr_start());
        if bad > 0 {
            of!(ex.wr_send());
            of!(ex.wr_set_ud_addr(ah, 77, 3));
        }
        match bad {
            1 => of!(ex.wr_set_inline_data(long.as_ptr().cast_mut().cast(), long.len())),
            _ => of!(ex.wr_set_sge_list(ranges.len(), ranges.as_ptr())),
        }
        assert_eq!(of!(ex.wr_complete()), libc::EINVAL, "{bad}");
    }
    assert!(bench.kernel.state().sent.is_empty());
    assert_eq!(call!(destroy_ah(ah)), 0);
    assert_eq!(call!(destroy_qp(qp.qp)), 0);
    assert_eq!(call!(destroy_cq(cq)), 0);
}

/// A queue pair, a region that windows may be bound in, and a window.
struct Windows<'a> {
    cq: *mut ibv_cq,
    qp: Qp<'a>,
    mr: *mut ibv_mr,
    mw: *mut ibv_mw,
    data: Vec<u8>,
}

impl<'a> Windows<'a> {
    fn new(bench: &'a Bench, kind: c_uint) -> Self {
        let cq = bench.cq(16);
        let mut attr = bench.attributes(cq, 16);
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = crate::builder::OPERATIONS;
        let qp = bench.ready(call!(create_qp_ex(bench.context(), &raw mut attr)));
        let data = vec![0; 100];
        let at = data.as_ptr();
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
        let mr = call!(reg_mr(bench.pd, at.cast_mut().cast(), 100, at as u64, access as c_int));
        let mw = call!(alloc_mw(bench.pd, kind));
        assert!(!mr.is_null() && !mw.is_null());
        Self { cq, qp, mr, mw, data }
    }

    fn key(&self) -> u32 {
        // SAFETY: it is there.
        unsafe { (*self.mw).rkey }
    }

    fn info(&self, at: u64, length: u64, mw_access_flags: c_uint) -> ibv_mw_bind_info {
        ibv_mw_bind_info { mr: self.mr, addr: (self.data.as_ptr() as u64).wrapping_add(at), length, mw_access_flags }
    }

    fn bind(&self, rkey: u32, bind_info: ibv_mw_bind_info) -> ibv_send_wr {
        let bind_mw = bind_mw { mw: self.mw, rkey, bind_info };
        ibv_send_wr { bind_mw, ..request(1, IBV_WR_BIND_MW, IBV_SEND_SIGNALED, &[]) }
    }

    fn end(&self, key: u32) -> ibv_send_wr {
        ibv_send_wr { imm_data: key, ..request(2, IBV_WR_LOCAL_INV, IBV_SEND_SIGNALED, &[]) }
    }

    /// What element `at` binds: key, first byte from the region's on, bytes, rights.
    fn bound(&self, at: u32) -> (u32, u64, u32, u16) {
        let wqe = self.qp.element(at);
        assert_eq!(wqe.opcode, OP_BIND);
        (wqe.sge[0].len, wqe.sge[0].va.wrapping_sub(self.data.as_ptr() as u64), wqe.length, wqe.num_sge)
    }

    /// Whether the region is free of windows.
    fn is_free(&self) -> bool {
        match call!(rereg_mr(self.mr.cast(), 5, self.qp.bench.pd, self.data.as_ptr().cast_mut().cast(), 100, 3)) {
            0 => true,
            error => {
                assert_eq!((error, call!(dereg_mr(self.mr.cast()))), (libc::EBUSY, libc::EBUSY));
                false
            }
        }
    }
}

impl Drop for Windows<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert_eq!(call!(dealloc_mw(self.mw)), 0);
            assert_eq!(call!(dereg_mr(self.mr.cast())), 0, "its window is gone");
            call!(destroy_qp(self.qp.qp));
            call!(destroy_cq(self.cq));
        }
    }
}

const WRITES: c_uint = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;

#[test]
fn qp_4_windows_are_bound_by_elements_and_keep_their_region() {
    let bench = Bench::new();
    let w = Windows::new(&bench, IBV_MW_TYPE_2);
    let (key, next) = (w.key(), w.key() & !0xff);
    assert!(w.is_free());
    let reads = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    assert_eq!(
        w.qp.send(&mut [w.bind(next, w.info(10, 90, WRITES)), w.end(next), w.bind(key, w.info(0, 1, reads))]),
        (0, None)
    );
    assert_eq!((w.bound(0), w.bound(2)), ((next, 10, 90, 2), (key, 0, 1, 5)));
    let nothing = 0u64.wrapping_sub(w.data.as_ptr() as u64);
    assert_eq!(w.bound(1), (next, nothing, 0, 0));
    assert!(!w.is_free());
    for (credit, opcode) in [(1, IBV_WC_BIND_MW), (2, IBV_WC_LOCAL_INV), (3, IBV_WC_BIND_MW)] {
        bench.kernel.complete(cqn(w.cq), Cqe { credit, ..w.qp.cqe(OP_BIND) });
        assert_eq!(bench.poll(w.cq)[0].opcode, opcode);
    }
    // A peer ends it.
    assert_eq!(w.qp.recv(1, &[]), 0);
    bench.kernel.complete(cqn(w.cq), Cqe { flags: CQE_INVALIDATED, remaining: key, ..w.qp.cqe(OP_RECV) });
    assert_eq!(bench.poll(w.cq)[0].imm_data, key);
    assert_eq!(w.qp.send(&mut [w.end(key)]), (libc::EINVAL, Some(0)), "nobody has this key any more");
    assert!(w.is_free());
    // Without rights, and without bytes, it opens nothing.
    assert_eq!(w.qp.send(&mut [w.bind(key, w.info(0, 9, IBV_ACCESS_LOCAL_WRITE))]), (0, None));
    assert!(!w.is_free());
    assert_eq!(w.qp.send(&mut [w.bind(key, w.info(0, 0, 0))]), (0, None));
    assert_eq!([3, 4].map(|at| w.bound(at)), [(key, nothing, 0, 0); 2]);
    assert!(w.is_free());
    assert_eq!(w.qp.send(&mut [w.bind(next, w.info(0, 9, WRITES))]), (0, None));
}

#[test]
fn qp_4_a_window_that_cannot_be_is_refused() {
    let bench = Bench::new();
    let w = Windows::new(&bench, IBV_MW_TYPE_2);
    let other = Windows::new(&bench, IBV_MW_TYPE_1);
    let key = w.key();
    let good = w.info(0, 100, WRITES);
    let domain = call!(alloc_pd(bench.context()));
    let at = w.data.as_ptr();
    let region = |access: c_uint, pd| call!(reg_mr(pd, at.cast_mut().cast(), 100, at as u64, access as c_int));
    let regions = [
        region(IBV_ACCESS_LOCAL_WRITE, bench.pd),
        region(IBV_ACCESS_MW_BIND, bench.pd),
        region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, domain),
    ];
    let mut bad: Vec<_> = regions.iter().map(|mr| w.bind(key, ibv_mw_bind_info { mr: *mr, ..good })).collect();
    bad.extend([
        w.bind(key ^ 0x100, good),
        w.bind(key, w.info(1, 100, WRITES)),
        w.bind(key, w.info(101, 1, WRITES)),
        w.bind(key, w.info(u64::MAX, 2, WRITES)),
        w.bind(key, w.info(0, u64::MAX, WRITES)),
        w.bind(key, w.info(0, 1, WRITES | 1 << 5)),
        w.bind(key, ibv_mw_bind_info { mr: null_mut(), ..good }),
        ibv_send_wr { bind_mw: bind_mw { mw: null_mut(), rkey: key, bind_info: good }, ..w.bind(key, good) },
        other.bind(other.key(), other.info(0, 1, WRITES)),
        w.end(key),
        ibv_send_wr { send_flags: IBV_SEND_INLINE, ..w.bind(key, good) },
    ]);
    for wr in bad {
        assert_eq!(w.qp.send(&mut [wr]), (libc::EINVAL, Some(0)));
    }
    assert_eq!(bench.kernel.doorbell(DB_SQ), 0);
    assert!(w.is_free() && call!(alloc_mw(bench.pd, 3)).is_null());
    // What may only be read needs no right to write.
    assert_eq!(
        w.qp.send(&mut [
            w.bind(key, ibv_mw_bind_info { mr: regions[1], mw_access_flags: IBV_ACCESS_REMOTE_READ, ..good })
        ]),
        (0, None)
    );
    assert_eq!(w.qp.send(&mut [w.end(key)]), (0, None));
    for mr in regions {
        assert_eq!(call!(dereg_mr(mr.cast())), 0);
    }
    call!(dealloc_pd(domain));
}

#[test]
fn qp_4_a_bind_of_type_1_gives_the_next_key() {
    let bench = Bench::new();
    let w = Windows::new(&bench, IBV_MW_TYPE_1);
    let old = w.key();
    let bind = |qp, bind_info, send_flags| {
        let mut wanted = ibv_mw_bind { wr_id: 7, send_flags, bind_info };
        call!(bind_mw(qp, w.mw, &raw mut wanted))
    };
    assert_eq!(bind(w.qp.qp, w.info(0, 101, WRITES), 0), libc::EINVAL);
    assert_eq!((w.key(), bind(w.qp.qp, w.info(4, 8, WRITES), IBV_SEND_SIGNALED)), (old, 0));
    let new = old & !0xff;
    assert_eq!((w.key(), w.bound(0), w.qp.element(0).wr_id, w.qp.element(0).flags), (new, (new, 4, 8, 2), 7, 0));
    assert_eq!(bench.kernel.doorbell(DB_SQ), 1 << 16 | u64::from(w.qp.qpn));
    assert_eq!((bind(w.qp.qp, w.info(0, 0, 0), 0), w.key()), (0, new + 1));
    w.qp.modify(IBV_QPS_RESET);
    assert_eq!((bind(w.qp.qp, w.info(0, 1, WRITES), 0), w.key()), (libc::EINVAL, new + 1));
    let mut attr = bench.attributes(w.cq, 4);
    attr.qp_type = IBV_QPT_UD;
    let datagrams = call!(create_qp_ex(bench.context(), &raw mut attr));
    assert_eq!(bind(datagrams, w.info(0, 1, WRITES), 0), libc::EINVAL);
    call!(destroy_qp(datagrams));
}

#[test]
fn qp_4_windows_are_bound_and_ended_call_by_call() {
    let bench = Bench::new();
    let w = Windows::new(&bench, IBV_MW_TYPE_2);
    let (qp, key) = (w.qp.qp.cast::<ibv_qp_ex>(), w.key());
    let info = w.info(1, 2, WRITES);
    of!(qp.wr_start());
    of!(qp.wr_bind_mw(w.mw, key, &raw const info));
    of!(qp.wr_abort());
    assert!(w.is_free(), "nothing was posted");
    of!(qp.wr_start());
    of!(qp.wr_bind_mw(w.mw, key ^ 0x100, &raw const info));
    assert_eq!(of!(qp.wr_complete()), libc::EINVAL);
    of!(qp.wr_start());
    of!(qp.wr_bind_mw(w.mw, key, &raw const info));
    assert_eq!(of!(qp.wr_complete()), 0);
    assert!(!w.is_free());
    of!(qp.wr_start());
    of!(qp.wr_local_inv(key));
    of!(qp.wr_bind_mw(w.mw, key - 1, &raw const info));
    assert_eq!(of!(qp.wr_complete()), 0);
    assert_eq!([0, 2].map(|at| w.bound(at)), [(key, 1, 2, 2), (key - 1, 1, 2, 2)]);
    // What ends a window may be built behind its bind, once.
    of!(qp.wr_start());
    of!(qp.wr_bind_mw(w.mw, key, &raw const info));
    of!(qp.wr_send());
    of!(qp.wr_local_inv(key));
    assert_eq!(of!(qp.wr_complete()), 0);
    assert!(w.is_free());
    of!(qp.wr_start());
    of!(qp.wr_bind_mw(w.mw, key, &raw const info));
    of!(qp.wr_local_inv(key));
    of!(qp.wr_local_inv(key));
    assert_eq!(of!(qp.wr_complete()), libc::EINVAL);
    assert!(w.is_free());
    bench.kernel.complete(cqn(w.cq), Cqe { credit: 2, ..w.qp.cqe(OP_BIND) });
    assert_eq!(bench.poll(w.cq)[0].opcode, IBV_WC_LOCAL_INV);
}
