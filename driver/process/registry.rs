// SPDX-License-Identifier: GPL-2.0
//! Which context owns which number of a card.

use crate::{
    abi::card::*,
    card::Card,
    pages::share::Share,
    process::{completion_queue::Cq, context::Context},
};
use kernel::{prelude::*, sync::Arc};

/// Services that one card listens to at most.
pub(crate) const MAX_SERVICES: usize = CM_SERVICES as usize;
/// Connection requests in the list at most: what firmware keeps, and as many that it has just ended.
pub(crate) const MAX_REQUESTS: usize = 2 * CM_REQUESTS as usize;

/// Who owns what on the card.
pub(crate) struct Tables {
    /// ASID of each QP's owner, by QPN - `FIRST_QPN`; 0 free.
    pub(crate) qps: [u8; NUM_QPS as usize],
    /// Completion queues by CQN.
    pub(crate) cqs: [Option<Arc<Cq>>; NUM_CQS as usize],
    /// ASID of each completion queue's owner, by CQN (also while a queue is being made); 0 free.
    pub(crate) cq_owners: [u8; NUM_CQS as usize],
    /// Contexts by ASID.
    pub(crate) contexts: [Option<Arc<Context>>; NUM_ASIDS as usize],
    /// ASIDs taken.
    pub(crate) asids_taken: [bool; NUM_ASIDS as usize],
    /// Services listened to.
    pub(crate) services: KVec<Listener>,
    /// Connection requests not yet answered.
    pub(crate) requests: KVec<Asked>,
}

/// Who listens to a service.
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

impl Tables {
    /// Finds a free place among `owners` for an object of `context`, whose process may have `most` of them in all its
    /// contexts.
    ///
    /// # Errors
    ///
    /// `ENOSPC` it has as many, or none is free.
    pub(crate) fn free_place(&self, owners: &[u8], context: &Context, most: u32) -> Result<usize> {
        let same = |asid: &u8| {
            let owner = self.contexts[usize::from(*asid)].as_ref();
            owner.is_some_and(|owner| Arc::ptr_eq(&owner.share, &context.share))
        };
        if owners.iter().filter(|asid| same(asid)).count() >= most as usize {
            return Err(ENOSPC);
        }
        owners.iter().position(|asid| *asid == 0).ok_or(ENOSPC)
    }

    /// Takes a connection request off the list; gives the ASID that it was for.
    pub(crate) fn take_request(&mut self, request: u32) -> Option<u32> {
        let at = self.requests.iter().position(|r| r.id == request)?;
        self.requests.remove(at).ok().map(|r| r.asid)
    }

    /// Processes that listen to a service, and connection requests that wait for the one with `mm`.
    pub(crate) fn listeners(&self, mm: *mut kernel::bindings::mm_struct) -> (usize, usize) {
        let of = |asid: u32| self.contexts.get(asid as usize)?.as_ref();
        let mut listens = [false; NUM_ASIDS as usize];
        for listener in &self.services {
            listens[listener.asid as usize % listens.len()] = true;
        }
        let mms = || {
            (1..NUM_ASIDS)
                .filter(|a| listens[*a as usize])
                .filter_map(of)
        };
        // Each counts once, whatever the number of its contexts.
        let first = |i: usize, mm| !mms().take(i).any(|c| c.mm.as_raw() == mm);
        let processes = mms()
            .enumerate()
            .filter(|(i, c)| first(*i, c.mm.as_raw()))
            .count();
        let waiting = self
            .requests
            .iter()
            .filter(|r| of(r.asid).is_some_and(|c| c.mm.as_raw() == mm))
            .count();
        (processes, waiting)
    }
}

impl Card {
    /// The context with an ASID.
    pub(crate) fn context(&self, asid: u32) -> Option<Arc<Context>> {
        self.tables.lock().contexts.get(asid as usize)?.clone()
    }

    /// The context that owns a QP.
    pub(crate) fn owner_of_qp(&self, qpn: u32) -> Option<Arc<Context>> {
        let tables = self.tables.lock();
        let asid = *tables.qps.get(qpn.checked_sub(FIRST_QPN)? as usize)?;
        tables.contexts[usize::from(asid)].clone()
    }

    /// Closes what processes have left behind, and forgets those that have nothing any more.
    pub(crate) fn look_at_processes(&self) {
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.close_if_orphaned();
            }
        }
        let in_use = |share: &Arc<Share>| {
            let tables = self.tables.lock();
            let mut contexts = tables.contexts.iter().flatten();
            contexts.any(|context| Arc::ptr_eq(&context.share, share))
        };
        let mut shares = self.shares.lock();
        shares.retain(|share| in_use(share) || share.works.lock().running != 0);
    }
}
