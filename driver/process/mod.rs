// SPDX-License-Identifier: GPL-2.0
//! What processes have of a card.
//!
//! Declared here is what names each other: the registry has contexts, and a context names its registry. What they do
//! stands in the other files.

pub(crate) mod completion_queue;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod context_events;
pub(crate) mod doorbells;
pub(crate) mod limits;
pub(crate) mod object;
pub(crate) mod owned;
pub(crate) mod owner;
pub(crate) mod queue_pair;
pub(crate) mod region;
pub(crate) mod registry;

use crate::{
    abi::{card::*, ioctl::MAX_DOMAINS},
    card::Card,
    kernel::{doorbell::HeldInode, eventfd::EventFd},
    net::Link,
    pages::{
        share::{Share, Shares},
        AddressSpace, PageService,
    },
    process::owned::{Asked, Cq, Events, Listener, Memory, Objects},
};
use kernel::{
    impl_has_work,
    mm::Mm,
    prelude::*,
    sync::{atomic::Atomic, Arc, Mutex, SpinLock},
    workqueue::Work,
};

/// What processes have of one card.
#[pin_data]
pub(crate) struct Registry {
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Its page service.
    pub(crate) pages: Arc<PageService>,
    /// The card as a network device, if it is one.
    pub(crate) link: Option<Arc<Link>>,
    /// QPs that one process may have.
    pub(crate) max_process_qps: u32,
    /// CQs that one process may have.
    pub(crate) max_process_cqs: u32,
    /// Contexts, and so doorbell pages, that one process may have.
    pub(crate) max_process_contexts: u32,
    /// Address spaces that the card and the driver's tables have room for, 0 included.
    asids: u32,
    /// What the process of an address space has of each card that may be opened.
    shares_of: fn(&Mm) -> Shares,
    take_events: fn(&Registry, bool) -> bool,
    /// Owners.
    #[pin]
    pub(crate) tables: SpinLock<Tables>,
    /// What processes have of the card, those included that have no context any more. Held
    /// while a context is made.
    #[pin]
    pub(crate) shares: Mutex<KVec<Arc<Share>>>,
    /// Device nodes through which doorbell pages are mapped.
    #[pin]
    nodes: Mutex<KVec<(HeldInode, usize)>>,
}

/// Owners of the card's objects.
pub(crate) struct Tables {
    /// ASID of each QP's owner, by QPN - `Sizes::first_qpn`; 0 free.
    pub(crate) qps: KVVec<u8>,
    /// Completion queues by CQN.
    pub(crate) cqs: KVVec<Option<Arc<Cq>>>,
    /// ASID of each completion queue's owner, by CQN (also while a queue is being made); 0 free.
    pub(crate) cq_owners: KVVec<u8>,
    /// Contexts by ASID.
    pub(crate) contexts: [Option<Arc<Context>>; NUM_ASIDS as usize],
    /// ASIDs taken.
    pub(crate) asids_taken: [bool; NUM_ASIDS as usize],
    /// ASID of each protection domain's owner, by its number - 1; 0 free.
    pub(crate) domains: [u8; MAX_DOMAINS as usize],
    /// Services listened to.
    pub(crate) services: KVec<Listener>,
    /// Connection requests not yet answered.
    pub(crate) requests: KVec<Asked>,
}

/// One process's share of a card.
#[pin_data]
pub(crate) struct Context {
    /// What processes have of the card.
    pub(crate) registry: Arc<Registry>,
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Address space number, and number of the doorbell page.
    pub(crate) asid: u32,
    /// Pages and page requests, and what they are charged to.
    pub(crate) space: Arc<AddressSpace>,
    event_fd: Option<EventFd>,
    /// Identity that was given out last.
    identities: Atomic<u64>,
    /// Serialises the making and ending of objects.
    #[pin]
    control: Mutex<()>,
    #[pin]
    objects: SpinLock<Objects>,
    #[pin]
    memory: Mutex<Memory>,
    #[pin]
    events: SpinLock<Events>,
    #[pin]
    close: Work<Context>,
}

impl_has_work! {
    impl HasWork<Self> for Context { self.close }
}

impl Context {
    /// Fails when the context is closed: its process has gone or executes another program.
    pub(crate) fn open(&self) -> Result {
        if self.space.is_closing() {
            return Err(EPERM);
        }
        Ok(())
    }
}
