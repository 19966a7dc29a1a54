// SPDX-License-Identifier: GPL-2.0
//! What stands behind the core's objects.

use crate::kernel::{
    bindings,
    rdma::{
        device::Driver,
        handler::{CqHandler, QpHandler},
        object::Object,
        qp::{Attributes, Capacity, QpKind, QpState},
        work::Memory,
    },
};
use kernel::{
    prelude::*,
    sync::{Arc, Mutex},
};

pub(super) type Context<T> = Object<bindings::ib_ucontext, <T as Driver>::Context>;
pub(super) type Domain<T> = Object<bindings::ib_pd, <T as Driver>::Domain>;
pub(super) type Address<T> = Object<bindings::ib_ah, <T as Driver>::Address>;
pub(super) type Cq<T> = Object<bindings::ib_cq, Queue<T>>;
pub(super) type Qp<T> = Object<bindings::ib_qp, Pair<T>>;

/// A completion queue.
pub(super) struct Queue<T: Driver> {
    pub(super) cq: T::Cq,
    pub(super) handler: Arc<CqHandler>,
}

/// A queue pair.
pub(super) struct Pair<T: Driver> {
    pub(super) qp: T::Qp,
    pub(super) kind: QpKind,
    /// Whose memory its requests name.
    pub(super) memory: Memory,
    /// Each send has a completion.
    pub(super) signals_all: bool,
    pub(super) handler: Arc<QpHandler>,
    pub(super) capacity: Capacity,
    pub(super) changes: Pin<KBox<Changes>>,
}

/// State and attributes of a queue pair.
#[pin_data]
pub(super) struct Changes {
    #[pin]
    pub(super) now: Mutex<(QpState, Attributes)>,
}
