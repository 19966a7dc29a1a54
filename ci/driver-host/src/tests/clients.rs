// SPDX-License-Identifier: GPL-2.0
//! What processes ask the driver for beside memory, what the card is told of it, and what is there in the end.

use super::rig::*;
use crate::abi::message::{self, COOKIE, code};
use crate::abi::{card::*, counters::*, ioctl::*, ring::*, status::*};
use crate::card::Entry;
use crate::process::Context;
use crate::process::owned::{Asked, Listener};
use kernel::{mm::MmWithUser, prelude::*, sync::Arc, world::calmly};

/// What firmware says to a command, and what that is for the process.
pub(super) const STATUSES: [(u32, Error); 6] = [
    (CMD_INVALID, EINVAL),
    (CMD_BUSY, EBUSY),
    (CMD_NOT_FOUND, ENOENT),
    (CMD_FULL, ENOSPC),
    (CMD_UNKNOWN, EOPNOTSUPP),
    (99, EIO),
];

/// A completion queue, as it is asked for.
pub(super) fn cq(entries: u32) -> CreateCq {
    CreateCq { entries, event_fd: -1, ..CreateCq::default() }
}

/// A queue pair, as it is asked for.
pub(super) fn qp(send_cqn: u32, recv_cqn: u32) -> CreateQp {
    CreateQp { send_cqn, recv_cqn, sq_depth: 4, rq_depth: 4, ..CreateQp::default() }
}

/// A connection request that waits for an answer, of a listener that has gone.
pub(super) fn asked(id: u32, asid: u32) -> Asked {
    Asked { id, asid, listener: u64::MAX }
}

/// Who listens to a service.
pub(super) fn listening(service: u32, asid: u32) -> Listener {
    Listener { service, asid, identity: u64::MAX }
}

/// Private data: so many bytes that are not 0, and 0 behind them.
pub(super) fn private(len: u32) -> [u8; PRIVATE_DATA] {
    core::array::from_fn(|n| if (n as u32) < len { 0xa0 + n as u8 } else { 0 })
}

/// Private data as words.
pub(super) fn private_words(len: u32) -> [u32; PRIVATE_DATA / 4] {
    let data = private(len);
    core::array::from_fn(|n| u32::from_le_bytes(core::array::from_fn(|b| data[4 * n + b])))
}

/// What a command is about.
fn about(entry: &Entry) -> u32 {
    match code(entry) {
        CMD_PAGE_INSTALL => installed_pages(entry).next().map_or(0, |((asid, _), ..)| asid),
        CMD_PAGE_READY => message::PageReady::decode(entry).tag,
        CMD_PAGE_EVICT => evict_indices(entry).next().unwrap_or(0),
        CMD_PAGE_REVOKE => message::PageRevoke::decode(entry).index,
        CMD_NET_CONFIG => message::NetConfig::decode(entry).ipv4,
        CMD_CQ_CREATE => message::CqCreate::decode(entry).cqn,
        CMD_CQ_DESTROY => message::CqDestroy::decode(entry).cqn,
        CMD_QP_CREATE => message::QpCreate::decode(entry).qpn,
        CMD_QP_DESTROY => message::QpDestroy::decode(entry).qpn,
        CMD_QP_QUERY => message::QpQuery::decode(entry).qpn,
        CMD_QP_RECALL => message::QpRecall::decode(entry).qpn,
        CMD_QP_TRIGGER => message::QpTrigger::decode(entry).qpn,
        CMD_QP_CAP => message::QpCap::decode(entry).qpn,
        CMD_CM_LISTEN => message::Listen::decode(entry).service,
        CMD_CM_UNLISTEN => message::Unlisten::decode(entry).service,
        CMD_CM_CONNECT => message::Connect::decode(entry).qpn,
        CMD_QP_PEER => message::QpPeer::decode(entry).qpn,
        CMD_CM_ACCEPT => message::Accept::decode(entry).request,
        CMD_CM_REJECT => message::Reject::decode(entry).request,
        CMD_CM_DISCONNECT => message::Disconnect::decode(entry).qpn,
        CMD_RANGE_REVOKED => message::RangeRevoked::decode(entry).asid,
        _ => 0,
    }
}

/// What is there of what processes can have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Things {
    /// Owners of queue pairs, and of completion queues.
    pub(super) qps: Vec<u8>,
    pub(super) cqs: Vec<u8>,
    pub(super) services: Vec<(u32, u32)>,
    pub(super) requests: Vec<(u32, u32)>,
    /// Contexts, queue pairs, completion queues, as counted.
    pub(super) counted: [u64; 3],
    /// Queues that have memory, and what firmware has.
    pub(super) memory: u64,
    pub(super) objects: Vec<(u32, u32)>,
}

impl Rig {
    /// A process with a context.
    pub(super) fn client(&mut self) -> (&'static MmWithUser, Arc<Context>) {
        let mm = self.process();
        self.mmap(mm, BASE, 64);
        (mm, self.context(mm))
    }

    /// A completion queue of a context.
    pub(super) fn cq(&self, context: &Context) -> u32 {
        let mut arg = cq(2);
        context.create_cq(&mut arg).expect("a completion queue");
        arg.cqn
    }

    /// A queue pair of a context, with a completion queue.
    pub(super) fn qp(&self, context: &Context, cqn: u32) -> u32 {
        let mut arg = qp(cqn, cqn);
        context.create_qp(&mut arg).expect("a queue pair");
        arg.qpn
    }

    /// What the card has been told since the last look. Cookies are left out.
    pub(super) fn given(&self) -> Vec<Entry> {
        let mut log = core::mem::take(&mut self.surroundings.hardware.borrow_mut().log);
        for entry in log.iter_mut().filter(|e| code(e) >= CMD_FIRST_FW) {
            entry[COOKIE] = 0;
        }
        log
    }

    /// The same, but only the opcode of each and what it is about.
    pub(super) fn told(&self) -> Vec<(u32, u32)> {
        self.given().iter().map(|e| (code(e), about(e))).collect()
    }

    /// What firmware answers the next such command with: a status.
    pub(super) fn reply(&self, opcode: u32, status: u32) {
        self.surroundings.hardware.borrow_mut().replies.push_back((opcode, status, [0; EVENT_PHASE - 3]));
    }

    /// What firmware answers the next question for a queue pair's state with.
    pub(super) fn say_state(&self, state: QpState) {
        let mut results = [0; EVENT_PHASE - 3];
        results.iter_mut().zip(state.to_results()).for_each(|(to, from)| *to = from);
        self.surroundings.hardware.borrow_mut().replies.push_back((CMD_QP_QUERY, CMD_OK, results));
    }

    /// An event of the card, which the driver takes at once.
    pub(super) fn event(&self, entry: Entry) {
        self.surroundings.hardware.borrow_mut().send(entry);
        self.settle();
    }

    /// A call of another thread.
    pub(super) fn later<T: 'static>(
        &self,
        context: &Arc<Context>,
        f: impl FnOnce(&Arc<Context>) -> Result<T> + 'static,
    ) -> Outcome<Result<T>> {
        let context = context.clone();
        self.spawn(move || f(&context))
    }

    /// The driver has taken the answer to the command that is under way, and nobody knows yet.
    pub(super) fn until_answered(&self) {
        let card = self.card.clone();
        let before = self.counter(D_EVENTS);
        self.world.run_until(move || card.counters.get(D_EVENTS) > before);
    }

    /// How often an event descriptor was signalled since the last look.
    pub(super) fn signals(&self, fd: i32) -> u32 {
        self.surroundings.signals.borrow_mut().remove(&fd).unwrap_or(0)
    }

    /// What there is.
    pub(super) fn things(&self) -> Things {
        calmly(|| {
            let tables = self.registry.tables.lock();
            for (cqn, owner) in tables.cq_owners.iter().enumerate() {
                assert_eq!(tables.cqs[cqn].as_ref().map(|cq| cq.cqn), (*owner != 0).then_some(cqn as u32));
            }
            let taken = tables.asids_taken.iter().filter(|taken| **taken).count();
            assert_eq!(tables.contexts.iter().flatten().count(), taken);
            let owned = |owners: &[u8]| owners.iter().copied().filter(|asid| *asid != 0).collect();
            Things {
                qps: owned(&tables.qps),
                cqs: owned(&tables.cq_owners),
                services: tables.services.iter().map(|s| (s.service, s.asid)).collect(),
                requests: tables.requests.iter().map(|r| (r.id, r.asid)).collect(),
                counted: [D_CONTEXTS, D_QPS, D_CQS].map(|index| self.counter(index)),
                memory: self.surroundings.queues.get(),
                objects: self.surroundings.hardware.borrow().objects.keys().copied().collect(),
            }
        })
    }
}

/// First number of a queue pair, and those after it.
pub(super) const fn qpn(n: u32) -> u32 {
    FIRST_QPN + n
}
