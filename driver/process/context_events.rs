// SPDX-License-Identifier: GPL-2.0
//! Events that a process takes.

use crate::{
    abi::{
        ioctl::{self, ContextEvent},
        message::QpError,
        status::REASON_CQ_FULL,
    },
    process::{
        owned::{Asked, Cq, Qp, MAX_EVENTS},
        Context,
    },
};
use kernel::sync::Arc;

/// A queue pair, still to be named, went into error.
fn qp_error(reason: u32) -> ContextEvent {
    ContextEvent {
        kind: ioctl::CTX_QP_ERROR,
        value: reason,
        ..Default::default()
    }
}

impl Context {
    /// Queues an event of an object, whose lock is held: events go with their object, under that lock.
    pub(super) fn push_event(&self, event: ContextEvent) {
        let mut events = self.events.lock();
        // One such event is enough, though a QP may lose several completions.
        let same = |e: &ContextEvent| {
            (e.kind, e.identity, e.value) == (event.kind, event.identity, event.value)
        };
        if event.kind == ioctl::CTX_QP_ERROR && events.queue.iter().any(same) {
            return;
        }
        if events.queue.len() == MAX_EVENTS {
            let _ = events.queue.remove(0);
        }
        let _ = events.queue.push_within_capacity(event);
    }

    /// The process is to look for events.
    pub(super) fn signal(&self) {
        if let Some(fd) = &self.event_fd {
            fd.signal();
        }
    }

    /// Queues an event of a queue pair; false if the context has none of that number (any more).
    pub(super) fn tell_of_qp(&self, qpn: u32, event: ContextEvent) -> bool {
        self.tell_of_qp_if(qpn, event, |_| true)
    }

    fn tell_of_qp_if(
        &self,
        qpn: u32,
        event: ContextEvent,
        concerns: impl FnOnce(&Qp) -> bool,
    ) -> bool {
        let other = {
            let objects = self.objects.lock();
            let found = objects.qps.iter().find(|q| q.qpn == qpn);
            let Some(qp) = found.filter(|qp| concerns(qp)) else {
                return false;
            };
            if qp.told.is_none() {
                self.push_event(ContextEvent {
                    id: qpn,
                    identity: qp.identity,
                    ..event
                });
            }
            qp.told.clone()
        };
        match other {
            None => self.signal(),
            Some(other) if event.kind != ioctl::CTX_ESTABLISHED => other.ended(event.value),
            Some(_) => (),
        }
        true
    }

    /// Puts an event back that could not be handed over, as the oldest, unless it is over meanwhile.
    pub(crate) fn put_back(&self, event: ContextEvent) {
        let put = || {
            // When there is no room left, this event is the one that is lost.
            let _ = self.events.lock().queue.insert_within_capacity(0, event);
        };
        match event.kind {
            ioctl::CTX_DEVICE_LOST => self.events.lock().lost = true,
            ioctl::CTX_REQUEST => {
                let tables = self.registry.tables.lock();
                let there =
                    |r: &Asked| (r.id, r.asid, r.listener) == (event.id, self.asid, event.identity);
                if tables.requests.iter().any(there) {
                    put();
                }
            }
            _ => {
                let objects = self.objects.lock();
                if objects.qps.iter().any(|q| q.identity == event.identity) {
                    put();
                }
            }
        }
        self.signal();
    }

    /// Takes the oldest event.
    pub(crate) fn take_event(&self) -> Option<ContextEvent> {
        let mut events = self.events.lock();
        if core::mem::take(&mut events.lost) {
            return Some(ContextEvent {
                kind: ioctl::CTX_DEVICE_LOST,
                ..Default::default()
            });
        }
        events.queue.remove(0).ok()
    }

    /// A queue pair went into error.
    pub(crate) fn qp_failed(&self, e: &QpError) {
        let event = ContextEvent {
            va: e.va,
            len: e.len,
            key: e.key,
            right: e.right,
            ..qp_error(e.reason)
        };
        self.tell_of_qp(e.qpn, event);
    }

    /// A completion of a queue pair found no room in `cq`. False if the queue pair does not
    /// complete there: the one that did is gone.
    pub(crate) fn qp_overran(&self, qpn: u32, cq: &Arc<Cq>) -> bool {
        self.tell_of_qp_if(qpn, qp_error(REASON_CQ_FULL), |qp| {
            qp.cqs.iter().any(|its| Arc::ptr_eq(its, cq))
        })
    }
}
