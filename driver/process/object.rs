// SPDX-License-Identifier: GPL-2.0
//! Objects of a context: their names, their memory, their end.

use crate::{
    card::{Entry, State},
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
    time::{delay::fsleep, Delta},
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

    /// Ends an object on the card. It was found while the firmware of `generation` ran. After `Ok`
    /// the card does not touch the object any more.
    pub(super) fn end_object(&self, generation: u32, end: Entry) -> Result {
        match self.card.call_for(generation, end) {
            Ok(_) => Ok(()),
            Err(e) if e == ENOENT => Ok(()),
            Err(e) if self.end_dma_after(e) => {
                match self.card.state() == State::Up && self.card.generation() == generation {
                    // The card works and still has the object: it was not told, or did not answer.
                    true => Err(EBUSY),
                    false => Ok(()),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// After a command without an answer, when the card seems to be out of service, waits until its
    /// DMA has ended. `false`: the command was answered by an error.
    pub(super) fn end_dma_after(&self, e: Error) -> bool {
        let out_of_service = e == EIO || e == ENODEV;
        if out_of_service {
            self.card.fence();
        }
        out_of_service
    }

    /// As [`Self::end_object`], for objects that must be gone afterwards: a card that does not
    /// release one is reset.
    pub(super) fn end_for_good(self: &Arc<Self>, generation: u32, end: Entry) {
        for _ in 0..100 {
            match self.end_object(generation, end) {
                Ok(()) => return,
                // Too many commands in flight, or no memory: both pass.
                Err(e) if e == EBUSY || e == ENOMEM => fsleep(Delta::from_millis(10)),
                Err(_) => break,
            }
        }
        let _ = self.card.reset("an object could not be ended");
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
