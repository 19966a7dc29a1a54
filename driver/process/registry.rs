// SPDX-License-Identifier: GPL-2.0
//! Finding the owners of a card's QPNs, CQNs, ASIDs and services.

use crate::{
    abi::{card::*, ioctl::MAX_DOMAINS},
    net::{rings::cqn_of, Link},
    pages::{share::Shares, PageService},
    process::{Context, Registry, Tables},
};
use kernel::{mm::Mm, new_mutex, new_spinlock, prelude::*, sync::Arc};

/// Services that one card listens to at most.
pub(super) const MAX_SERVICES: usize = CM_SERVICES as usize;
/// Most connection requests in the list: those that firmware keeps, and as many that it has just
/// ended.
pub(super) const MAX_REQUESTS: usize = 2 * CM_REQUESTS as usize;

/// What a new registry is made of.
pub(crate) struct RegistryConfig {
    /// The card as a network device, if it is one.
    pub(crate) link: Option<Arc<Link>>,
    /// Caps per process.
    pub(crate) max_process_contexts: u32,
    /// Caps per process.
    pub(crate) max_process_qps: u32,
    /// Caps per process.
    pub(crate) max_process_cqs: u32,
    /// What the process of an address space has of each card.
    pub(crate) shares_of: fn(&Mm) -> Shares,
    /// Takes what the card has told so far; without the flag the caller unpins pages that were evicted.
    pub(crate) take_events: fn(&Registry, bool) -> bool,
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
        let sizes = pages.card.sizes;
        let qps = KVVec::from_elem(0u8, sizes.qps as usize, GFP_KERNEL)?;
        let cq_owners = KVVec::from_elem(0u8, sizes.cqs as usize, GFP_KERNEL)?;
        let mut cqs = KVVec::with_capacity(sizes.cqs as usize, GFP_KERNEL)?;
        for _ in 0..sizes.cqs {
            cqs.push(None, GFP_KERNEL)?;
        }
        let asids = sizes.asids.min(NUM_ASIDS);
        let contexts = config.max_process_contexts.min(asids - 1);
        Arc::pin_init(
            pin_init!(Registry {
                card: pages.card.clone(),
                pages: pages.clone(),
                link: config.link,
                asids,
                max_process_qps: config.max_process_qps.min(sizes.qps),
                max_process_cqs: config.max_process_cqs.min(sizes.cqs),
                max_process_contexts: contexts,
                shares_of: config.shares_of,
                take_events: config.take_events,
                tables <- new_spinlock!(Tables {
                    qps,
                    cqs,
                    cq_owners,
                    contexts: [const { None }; NUM_ASIDS as usize],
                    asids_taken: [false; NUM_ASIDS as usize],
                    domains: [0; MAX_DOMAINS as usize],
                    services,
                    requests,
                }, "berth_tables"),
                shares <- new_mutex!(KVec::new(), "berth_shares"),
                nodes <- new_mutex!(KVec::new(), "berth_nodes"),
            }),
            GFP_KERNEL,
        )
    }

    /// Keys that one context has at most: a quarter of the card's, so that three quarters are left to others.
    pub(crate) fn max_keys(&self) -> usize {
        self.card.sizes.keys as usize / 4
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

    /// Completion queues that processes can have: the last one may be the network device's.
    pub(crate) fn process_cqs(&self) -> u32 {
        match self.link {
            Some(_) => cqn_of(&self.card),
            None => self.card.sizes.cqs,
        }
    }

    /// The context with an ASID.
    pub(crate) fn context(&self, asid: u32) -> Option<Arc<Context>> {
        self.tables.lock().contexts.get(asid as usize)?.clone()
    }

    /// The context that owns a QP.
    pub(crate) fn owner_of_qp(&self, qpn: u32) -> Option<Arc<Context>> {
        let tables = self.tables.lock();
        let asid = *tables
            .qps
            .get(qpn.checked_sub(self.card.sizes.first_qpn)? as usize)?;
        tables.contexts[usize::from(asid)].clone()
    }
}
