// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Provider of libibverbs: what unmodified programs of verbs reach the card by (AP-1).
//!
//! libibverbs loads it because of a file in `/etc/libibverbs.d`; its constructor gives the table [`DRIVER`], and each context
//! then has the functions of [`OPS`]. What the kernel does goes through libibverbs' own commands. Posting and polling do not
//! leave the process: they are those of `berth-queue`, as in libberth.
//!
//! * `rdma_core` declares what is shared with libibverbs.
//! * `memory`: protection domains and memory regions; `bound`: what memory windows, keys for parts of a region, are bound to.
//! * `context`: devices and contexts.
//! * `shared` is a receive queue that queue pairs share.
//! * `completion` is a completion queue, polled either way, and `status` what its entries say in terms of verbs.
//! * `datagram` is a queue pair of datagrams, which the kernel serves.
//! * `queue_pair` is a queue pair; `post` fills its queues from lists, `builder` call by call. `request` says what a work
//!   request of verbs is to the card.
//! * `windows` are the memory windows themselves.
//!
//! Keys of local memory (`lkey`) have no meaning to the card: a process reaches all of its own memory by its addresses.
//!
//! All functions that C calls are `extern "C"`: a panic in one ends the process.

mod bound;
mod builder;
mod building;
mod completion;
mod context;
mod datagram;
mod errno;
#[cfg(test)]
mod fake;
mod lock;
mod mapping;
mod memory;
mod post;
mod queue_pair;
mod rdma_core;
mod request;
mod shared;
mod status;
#[cfg(test)]
mod tests;
mod windows;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use berth_abi::card::{PCI_DEVICE, PCI_VENDOR};
use berth_abi::verbs::VERBS_ABI;

use rdma_core::{
    Opaque, VERBS_MATCH_MODALIAS, VERBS_MATCH_PCI, VERBS_MATCH_SENTINEL, verbs_context, verbs_context_ops,
    verbs_device_ops, verbs_match_ent, verbs_register_driver_34,
};

/// What a context can do.
static OPS: verbs_context_ops = verbs_context_ops {
    query_device_ex: Some(context::query_device),
    query_port: Some(context::query_port),
    free_context: Some(context::free_context),
    alloc_pd: Some(memory::alloc_pd),
    dealloc_pd: Some(memory::dealloc_pd),
    advise_mr: Some(rdma_core::ibv_cmd_advise_mr),
    reg_mr: Some(memory::reg_mr),
    rereg_mr: Some(memory::rereg_mr),
    dereg_mr: Some(memory::dereg_mr),
    alloc_mw: Some(windows::alloc_mw),
    bind_mw: Some(windows::bind_mw),
    dealloc_mw: Some(windows::dealloc_mw),
    create_cq: Some(completion::create_cq),
    create_cq_ex: Some(completion::create_cq_ex),
    poll_cq: Some(completion::poll_cq),
    req_notify_cq: Some(completion::req_notify_cq),
    destroy_cq: Some(completion::destroy_cq),
    create_srq: Some(shared::create_srq),
    modify_srq: Some(shared::modify_srq),
    query_srq: Some(shared::query_srq),
    destroy_srq: Some(shared::destroy_srq),
    post_srq_recv: Some(shared::post_srq_recv),
    create_ah: Some(datagram::create_ah),
    destroy_ah: Some(datagram::destroy_ah),
    create_qp: Some(queue_pair::create_qp),
    create_qp_ex: Some(builder::create_qp_ex),
    query_qp: Some(queue_pair::query_qp),
    modify_qp: Some(queue_pair::modify_qp),
    destroy_qp: Some(queue_pair::destroy_qp),
    post_send: Some(post::post_send),
    post_recv: Some(post::post_recv),
    ..verbs_context_ops::NONE
};

/// The card's number on PCI, because udev may rename the device; and its name, for one without a parent.
static DEVICES: [verbs_match_ent; 3] = [
    verbs_match_ent {
        driver_data: null_mut(),
        modalias: null_mut(),
        vendor: PCI_VENDOR as u16,
        device: PCI_DEVICE as u16,
        kind: VERBS_MATCH_PCI,
    },
    verbs_match_ent {
        driver_data: null_mut(),
        modalias: c"rdma_device:*Nberth*".as_ptr(),
        vendor: 0,
        device: 0,
        kind: VERBS_MATCH_MODALIAS,
    },
    verbs_match_ent { driver_data: null_mut(), modalias: null_mut(), vendor: 0, device: 0, kind: VERBS_MATCH_SENTINEL },
];

static DRIVER: verbs_device_ops = verbs_device_ops {
    name: c"berth".as_ptr(),
    match_min_abi_version: VERBS_ABI,
    match_max_abi_version: VERBS_ABI,
    match_table: &raw const DEVICES[0],
    static_providers: null_mut(),
    match_device: None,
    alloc_context: Some(alloc_context),
    import_context: None,
    alloc_device: Some(context::alloc_device),
    uninit_device: Some(context::uninit_device),
};

unsafe extern "C" fn alloc_context(device: *mut Opaque, fd: c_int, _: *mut c_void) -> *mut verbs_context {
    // SAFETY: the caller's arguments.
    unsafe { context::create(device, fd, &OPS) }
}

extern "C" fn register() {
    // SAFETY: the table is a constant.
    unsafe { verbs_register_driver_34(&raw const DRIVER) }
}

/// Run when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = register;
