// SPDX-License-Identifier: GPL-2.0
//! Objects of a context: their names, their memory, their end.

use crate::{
    kernel::pin::SharedPages,
    process::{
        doorbells::DOORBELL_OFFSET,
        owned::{Cq, Qp},
        Context,
    },
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// Queues are this far apart, log2: more than the largest.
const OBJECT_SHIFT: u32 = 22;

/// What an mmap offset stands for.
pub(crate) enum Mapping {
    /// The doorbell page.
    Doorbell,
    /// A completion queue.
    Cq(Arc<Cq>),
    /// A queue pair.
    Qp(Arc<Qp>),
}

/// Offset of a queue. It follows from the identity, so a later queue with the same number has
/// another offset.
pub(super) fn offset_of(identity: u64) -> u64 {
    identity << OBJECT_SHIFT
}

impl Context {
    /// An identity that no object of this context has had.
    pub(super) fn new_identity(&self) -> u64 {
        self.identities.fetch_add(1, Relaxed) + 1
    }

    /// Memory for a queue.
    pub(super) fn shared(&self, bytes: usize) -> Result<SharedPages> {
        SharedPages::new(self.card.bound()?, bytes).inspect_err(|e| self.card.note_unmapped(*e))
    }

    /// Memory behind an mmap offset.
    pub(crate) fn mapping(&self, offset: u64) -> Result<Mapping> {
        if offset == DOORBELL_OFFSET {
            return Ok(Mapping::Doorbell);
        }
        let identity = offset >> OBJECT_SHIFT;
        if offset != offset_of(identity) {
            return Err(EINVAL);
        }
        let objects = self.objects.lock();
        if let Some(cq) = objects.cqs.iter().find(|c| c.identity == identity) {
            return Ok(Mapping::Cq(cq.clone()));
        }
        let qp = objects.qps.iter().find(|q| q.identity == identity);
        Ok(Mapping::Qp(qp.ok_or(ENOENT)?.clone()))
    }
}
