// SPDX-License-Identifier: GPL-2.0
//! Telling the core what happens to an object, until the object goes.

use crate::kernel::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, SpinLockIrq},
};

/// An object of the core's, or nothing once it is gone.
struct Held<B>(Option<NonNull<B>>);

// SAFETY: Only passed on, under the lock that it stands behind.
unsafe impl<B> Send for Held<B> {}

/// A completion queue as the core knows it.
#[pin_data]
pub(crate) struct CqHandler {
    #[pin]
    cq: SpinLockIrq<Held<bindings::ib_cq>>,
}

impl CqHandler {
    /// # Safety
    ///
    /// `cq` is being made, and stays until [`Self::end`] has returned.
    pub(super) unsafe fn new(cq: NonNull<bindings::ib_cq>) -> impl PinInit<Self> {
        pin_init!(Self {
            cq <- new_spinlock_irq!(Held(Some(cq)), "rdma_cq"),
        })
    }

    /// There are completions that the consumer has asked to be told of.
    pub(crate) fn completed(&self) {
        let held = self.cq.lock();
        let Some(cq) = held.0 else { return };
        // SAFETY: The queue is there, as long as the lock is held. Its handler takes spin locks only.
        unsafe {
            if let Some(handler) = (*cq.as_ptr()).comp_handler {
                handler(cq.as_ptr(), (*cq.as_ptr()).cq_context);
            }
        }
    }

    /// The core is told nothing more.
    pub(crate) fn end(&self) {
        self.cq.lock().0 = None;
    }
}

/// What may become of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpEvent {
    /// It is in error.
    Fatal,
    /// It is in error, because its peer wanted memory that it may not have.
    Access,
    /// It is in error, and takes no more elements of its shared receive queue, if it has one.
    LastReceive,
}

/// A queue pair as the core knows it.
#[pin_data]
pub(crate) struct QpHandler {
    #[pin]
    qp: SpinLockIrq<Held<bindings::ib_qp>>,
    /// It has a shared receive queue.
    shared: bool,
}

impl QpHandler {
    /// # Safety
    ///
    /// `qp` is being made, and stays until [`Self::end`] has returned.
    pub(super) unsafe fn new(qp: NonNull<bindings::ib_qp>, shared: bool) -> impl PinInit<Self> {
        pin_init!(Self {
            qp <- new_spinlock_irq!(Held(Some(qp)), "rdma_qp"),
            shared,
        })
    }

    /// The queue pair; `None` once it is gone.
    pub(super) fn raw(&self) -> Option<NonNull<bindings::ib_qp>> {
        self.qp.lock().0
    }

    /// Tells the consumer. Called by a thread.
    pub(crate) fn happened(&self, event: QpEvent) {
        if event == QpEvent::LastReceive && !self.shared {
            return;
        }
        let held = self.qp.lock();
        let Some(qp) = held.0 else { return };
        // SAFETY: The queue pair is there, as long as the lock is held. Its handler takes spin locks only.
        unsafe {
            let Some(handler) = (*qp.as_ptr()).event_handler else {
                return;
            };
            let mut told = core::mem::zeroed::<bindings::ib_event>();
            told.device = (*qp.as_ptr()).device;
            *told.element.qp.as_mut() = qp.as_ptr();
            told.event = match event {
                QpEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
                QpEvent::Access => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
                QpEvent::LastReceive => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
            };
            handler(&mut told, (*qp.as_ptr()).qp_context);
        }
    }

    /// The core is told nothing more.
    pub(crate) fn end(&self) {
        self.qp.lock().0 = None;
    }
}
