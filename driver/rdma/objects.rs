// SPDX-License-Identifier: GPL-2.0
//! What processes have of the card by verbs.

use crate::{
    abi::status::REASON_ACCESS,
    kernel::rdma::handler::{CqHandler, QpEvent, QpHandler},
    process::{
        self,
        owned::{Cq, Ended, Name, Notified, Qp},
    },
    rdma::{
        completions::Completions,
        datagram::{Datagram, Exchange},
    },
};
use kernel::{
    current,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// A context: ended with the process's use of the device.
pub(crate) struct Opened(pub(super) Arc<process::Context>);

/// A context, if the caller's address space is the one that it belongs to: another one's memory is not what its elements
/// name.
///
/// # Errors
///
/// `EPERM` the caller has inherited the descriptor.
pub(super) fn own(context: &Arc<process::Context>) -> Result<Arc<process::Context>> {
    match current!().mm() {
        Some(mm) if mm.as_raw() == context.space.mm.as_raw() => Ok(context.clone()),
        _ => Err(EPERM),
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A protection domain; of the kernel's, without anything on the card.
pub(crate) struct Domain(pub(super) Option<Owned>);

/// A protection domain of a process.
pub(super) struct Owned {
    pub(super) context: Arc<process::Context>,
    pub(super) domain: Arc<process::owned::Domain>,
}

/// A completion queue: the card's, unless it is the kernel's, and what the driver adds to it.
pub(crate) struct MadeCq {
    pub(super) card: Option<CardCq>,
    pub(super) completions: Arc<Completions>,
}

/// A completion queue on the card.
pub(super) struct CardCq {
    pub(super) context: Arc<process::Context>,
    pub(super) cq: Arc<Cq>,
}

/// A queue pair.
pub(crate) enum MadeQp {
    /// Of a reliable connection, on the card.
    Reliable(CardQp),
    /// Of datagrams, in the driver.
    Datagram(Arc<Datagram>),
}

/// A queue pair on the card.
pub(crate) struct CardQp {
    pub(super) context: Arc<process::Context>,
    pub(super) qp: Arc<Qp>,
    pub(super) failure: Arc<Failure>,
    pub(super) exchange: Arc<Exchange>,
    /// Its peer is a Berth.
    pub(super) is_bound: Atomic<u32>,
}

/// A region.
pub(crate) struct Region {
    pub(super) context: Arc<process::Context>,
    pub(super) name: Name,
}

/// Tells the core of completions.
pub(super) struct Told(pub(super) Arc<CqHandler>);

impl Notified for Told {
    fn notify(&self) {
        self.0.completed();
    }
}

/// Tells the core of a queue pair's end.
pub(crate) struct Failure {
    handler: Arc<QpHandler>,
    failed: Atomic<u32>,
    /// The process has asked for it.
    wanted: Atomic<u32>,
}

impl Failure {
    pub(super) fn new(handler: Arc<QpHandler>) -> Result<Arc<Self>> {
        let this = Self {
            handler,
            failed: Atomic::new(0),
            wanted: Atomic::new(0),
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }

    /// It is the process that ends the connection.
    pub(super) fn want(&self) {
        self.wanted.store(1, Relaxed);
    }

    /// The queue pair is being reset, and of its end nobody is told; or it is as new.
    pub(super) fn reset(&self, is_new: bool) {
        self.failed.store((!is_new).into(), Relaxed);
        self.wanted.store(0, Relaxed);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed) != 0
    }
}

impl Ended for Failure {
    fn ended(&self, reason: u32) {
        if self.failed.xchg(1, Relaxed) != 0 {
            return;
        }
        if self.wanted.load(Relaxed) == 0 {
            self.handler.happened(match reason {
                REASON_ACCESS => QpEvent::Access,
                _ => QpEvent::Fatal,
            });
        }
        self.handler.happened(QpEvent::LastReceive);
    }
}
