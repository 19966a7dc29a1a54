// SPDX-License-Identifier: GPL-2.0
//! What a context owns, and what waits for its process.

use crate::{
    abi::ioctl::ContextEvent,
    card::Entry,
    kernel::{eventfd::EventFd, pin::SharedPages},
    pages::aliases::Aliases,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// An object as a process names it: by number, and by identity unless that is 0. Numbers are
/// reused, identities are not.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    /// CQN, QPN, service id, key, or a domain's number.
    pub(crate) number: u32,
    /// Identity, or 0 for whatever has the number.
    pub(crate) identity: u64,
}

impl Name {
    pub(crate) fn is(self, number: u32, identity: u64) -> bool {
        self.number == number && (self.identity == 0 || self.identity == identity)
    }
}

impl From<u32> for Name {
    fn from(number: u32) -> Self {
        Self {
            number,
            identity: 0,
        }
    }
}

/// Who is told that a completion queue has completions.
pub(crate) enum Notify {
    /// Nobody.
    Nobody,
    /// Whoever waits for an eventfd.
    Fd(EventFd),
    /// Another interface of the driver.
    Other(Arc<dyn Notified>),
}

/// Is told of completions, by a thread that may sleep.
pub(crate) trait Notified: Send + Sync {
    /// An armed notification has fired.
    fn notify(&self);
}

/// Is told of the end of a queue pair's connection, by a thread that may sleep, in place of the context's events.
pub(crate) trait Ended: Send + Sync {
    /// It is over, or in error, for a `REASON_*`.
    fn ended(&self, reason: u32);
}

/// A completion queue.
pub(crate) struct Cq {
    /// Its number.
    pub(crate) cqn: u32,
    /// Its identity in its context.
    pub(super) identity: u64,
    /// Its memory.
    pub(crate) memory: SharedPages,
    pub(super) told: Notify,
    pub(super) users: Atomic<u32>,
}

impl Cq {
    /// An armed notification has fired.
    pub(crate) fn notify(&self) {
        match &self.told {
            Notify::Nobody => (),
            Notify::Fd(fd) => fd.signal(),
            Notify::Other(other) => other.notify(),
        }
    }
}

impl From<&Cq> for Name {
    fn from(cq: &Cq) -> Self {
        Self {
            number: cq.cqn,
            identity: cq.identity,
        }
    }
}

impl From<&Qp> for Name {
    fn from(qp: &Qp) -> Self {
        Self {
            number: qp.qpn,
            identity: qp.identity,
        }
    }
}

/// A queue pair.
pub(crate) struct Qp {
    /// Its number.
    pub(crate) qpn: u32,
    /// Its identity in its context.
    pub(super) identity: u64,
    /// Its memory.
    pub(crate) memory: SharedPages,
    pub(super) cqs: [Arc<Cq>; 2],
    /// Who is told of its end, if it is not the process by events.
    pub(super) told: Option<Arc<dyn Ended>>,
    /// The command that makes it.
    pub(super) create: Entry,
    /// The protection domain that it is in.
    pub(super) _domain: Option<DomainUse>,
    /// Its aliases.
    pub(super) aliases: Option<Aliases>,
}

impl Drop for Qp {
    fn drop(&mut self) {
        for cq in &self.cqs {
            cq.users.fetch_sub(1, Relaxed);
        }
    }
}

/// A protection domain.
pub(crate) struct Domain {
    /// Its number on the card.
    pub(crate) number: u32,
    /// Its identity in its context.
    pub(super) identity: u64,
    /// Queue pairs and regions that are in it.
    pub(super) users: Atomic<u32>,
}

/// Something is in a protection domain.
pub(super) struct DomainUse(Arc<Domain>);

impl DomainUse {
    /// Something is in it from now on.
    pub(super) fn of(domain: Arc<Domain>) -> Self {
        domain.users.add(1, Relaxed);
        Self(domain)
    }
}

impl Drop for DomainUse {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Relaxed);
    }
}

/// Registered memory.
pub(super) struct Region {
    /// Its key.
    pub(super) key: u32,
    /// Its identity in its context.
    pub(super) identity: u64,
    pub(super) _domain: DomainUse,
}

/// Protection domains, and memory that is registered in them.
pub(super) struct Memory {
    pub(super) domains: KVec<Arc<Domain>>,
    pub(super) regions: KVec<Region>,
    /// The card may have keys of the context.
    pub(super) had_keys: bool,
}

/// What a context owns.
pub(crate) struct Objects {
    pub(super) qps: KVec<Arc<Qp>>,
    pub(super) cqs: KVec<Arc<Cq>>,
}

/// The listener of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The service.
    pub(crate) service: u32,
    /// ASID.
    pub(crate) asid: u32,
    /// Identity in that context.
    pub(crate) identity: u64,
}

/// A connection request that is not yet answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its id, which firmware has given it.
    pub(crate) id: u32,
    /// ASID of whom it is for.
    pub(crate) asid: u32,
    /// Identity of the listener that it is for.
    pub(crate) listener: u64,
}

/// Context events kept; with more the oldest are lost. Each QP causes few of them.
pub(super) const MAX_EVENTS: usize = 256;

pub(crate) struct Events {
    pub(super) queue: KVec<ContextEvent>,
    /// The process is to be told that the card was lost, before the events in the queue.
    pub(super) lost: bool,
}
