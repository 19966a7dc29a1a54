// SPDX-License-Identifier: GPL-2.0
//! The owners of a card's QPNs, CQNs, ASIDs and services.

use crate::{
    abi::card::*,
    card::{owner::Owner, Card},
    kernel::doorbell::HeldInode,
    pages::{
        share::{Share, Shares},
        PageService,
    },
    process::{completion_queue::Cq, context::Context},
};
use kernel::{
    mm::Mm,
    new_mutex, new_spinlock,
    prelude::*,
    sync::{Arc, Mutex, SpinLock},
};

/// Services that one card listens to at most.
pub(super) const MAX_SERVICES: usize = CM_SERVICES as usize;
/// Most connection requests in the list: those that firmware keeps, and as many that it has just
/// ended.
pub(super) const MAX_REQUESTS: usize = 2 * CM_REQUESTS as usize;

/// What processes have of one card.
#[pin_data]
pub(crate) struct Registry {
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Its page service.
    pub(crate) pages: Arc<PageService>,
    /// QPs that one process may have.
    pub(crate) max_process_qps: u32,
    /// CQs that one process may have.
    pub(crate) max_process_cqs: u32,
    /// Contexts, and so doorbell pages, that one process may have.
    pub(crate) max_process_contexts: u32,
    /// What the process of an address space has of each card that may be opened.
    shares_of: fn(&Mm) -> Shares,
    /// Owners.
    #[pin]
    pub(crate) tables: SpinLock<Tables>,
    /// What processes have of the card, those included that have no context any more. Held
    /// while a context is made.
    #[pin]
    pub(crate) shares: Mutex<KVec<Arc<Share>>>,
    /// Device nodes through which doorbell pages are mapped.
    #[pin]
    pub(super) nodes: Mutex<KVec<(HeldInode, usize)>>,
}

/// What a new registry is made of.
pub(crate) struct RegistryConfig {
    /// Caps per process.
    pub(crate) max_process_contexts: u32,
    /// Caps per process.
    pub(crate) max_process_qps: u32,
    /// Caps per process.
    pub(crate) max_process_cqs: u32,
    /// What the process of an address space has of each card.
    pub(crate) shares_of: fn(&Mm) -> Shares,
}

/// Owners of the card's objects.
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
            owner.is_some_and(|owner| Arc::ptr_eq(&owner.space.share, &context.space.share))
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
        let first = |i: usize, mm| !mms().take(i).any(|c| c.space.mm.as_raw() == mm);
        let processes = mms()
            .enumerate()
            .filter(|(i, c)| first(*i, c.space.mm.as_raw()))
            .count();
        let waiting = self
            .requests
            .iter()
            .filter(|r| of(r.asid).is_some_and(|c| c.space.mm.as_raw() == mm))
            .count();
        (processes, waiting)
    }
}

impl Registry {
    /// Makes the registry of a card.
    pub(crate) fn new(pages: &Arc<PageService>, config: RegistryConfig) -> Result<Arc<Self>> {
        let services = KVec::with_capacity(MAX_SERVICES, GFP_KERNEL)?;
        let requests = KVec::with_capacity(MAX_REQUESTS, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Registry {
                card: pages.card.clone(),
                pages: pages.clone(),
                max_process_qps: config.max_process_qps,
                max_process_cqs: config.max_process_cqs,
                max_process_contexts: config.max_process_contexts,
                shares_of: config.shares_of,
                tables <- new_spinlock!(Tables {
                    qps: [0; NUM_QPS as usize],
                    cqs: [const { None }; NUM_CQS as usize],
                    cq_owners: [0; NUM_CQS as usize],
                    contexts: [const { None }; NUM_ASIDS as usize],
                    asids_taken: [false; NUM_ASIDS as usize],
                    services,
                    requests,
                }, "berth_tables"),
                shares <- new_mutex!(KVec::new(), "berth_shares"),
                nodes <- new_mutex!(KVec::new(), "berth_nodes"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes this registry the card's owner, until [`Self::unbind`].
    pub(crate) fn begin(self: &Arc<Self>) {
        self.card.set_owner(self.clone());
    }

    /// Last act of the driver on this card.
    pub(crate) fn unbind(&self) {
        self.card.unbind();
        self.pages.end_works();
    }

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
    fn look_at_processes(&self) {
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.close_if_orphaned(self.shares_of);
            }
        }
        let in_use = |share: &Arc<Share>| {
            let tables = self.tables.lock();
            let mut contexts = tables.contexts.iter().flatten();
            contexts.any(|context| Arc::ptr_eq(&context.space.share, share))
        };
        let mut shares = self.shares.lock();
        shares.retain(|share| in_use(share) || share.works.lock().running != 0);
    }
}

impl Owner for Registry {
    fn lose_objects(&self) {
        self.pages.drop_needs();
        {
            // Cleared before the contexts' events, so that no more are queued.
            let mut tables = self.tables.lock();
            tables.services.clear();
            tables.requests.clear();
        }
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.device_lost();
            }
        }
        self.pages.table.lock().clear();
    }

    fn hurry_end_of_qp(&self, qpn: u32) {
        // Perhaps the QP waits for a page that never comes (decision 21).
        if let Some(context) = self.owner_of_qp(qpn) {
            context.space.give_up_requests();
        }
    }

    fn refuse_receive(&self, qpn: u32) {
        if let Some(context) = self.owner_of_qp(qpn) {
            self.pages.refuse_receive(&context.space, qpn);
        }
    }

    fn look_around(&self) {
        self.look_at_processes();
    }
}
