// SPDX-License-Identifier: GPL-2.0
//! The page service: pins what the card is about to use, and takes it back.
//!
//! The card asks for pages by virtual address (`EV_PAGE_NEED`). Each request is a work
//! item of its own, so that a page that never comes holds up nothing else. A page is
//! pinned and mapped once per address space, whatever the number of its uses; it stays
//! in the card's translation table until it has been idle for the linger time, or until
//! its place in the budget is wanted, or until the memory manager takes it away.
//!
//! What becomes of a page stands at [`run::PageState`], what becomes of a request at [`request_state::RequestState`].
//!
//! Declared here is what names each other: the page service has address spaces, these have requests, and a request names
//! its address space. What they do stands in the other files.

pub(crate) mod address_space;
pub(crate) mod ahead;
pub(crate) mod aliases;
pub(crate) mod answer;
pub(crate) mod bring;
pub(crate) mod budget;
pub(crate) mod charge;
pub(crate) mod copies;
pub(crate) mod copy_pool;
pub(crate) mod costs;
pub(crate) mod evict;
pub(crate) mod install;
pub(crate) mod leaving;
pub(crate) mod line;
pub(crate) mod needs;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod recall;
pub(crate) mod recheck;
pub(crate) mod request;
pub(crate) mod request_state;
pub(crate) mod retry;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod settings;
pub(crate) mod share;
pub(crate) mod space;
pub(crate) mod table;
pub(crate) mod turn;
pub(crate) mod unpin;
pub(crate) mod vpn;

use crate::{
    abi::{
        alias::{alias_policy, Again, First, ALIAS_QPS},
        card::*,
        ring::*,
        wqe::MAX_SGE,
    },
    card::Card,
    kernel::{memlock::MemLock, mmu_notifier::Settle, workqueue::OwnedQueue},
    pages::{
        budget::Budget, copy_pool::Pool, costs::Costs, request_state::RequestState, run::Runs,
        share::Share, table::Table, vpn::alias_of,
    },
};
use core::ops::{Deref, DerefMut};
use kernel::{
    impl_has_delayed_work, impl_has_work,
    mm::Mm,
    prelude::*,
    rbtree::RBTree,
    sync::{aref::ARef, atomic::Atomic, Arc, SpinLock},
    time::{Instant, Monotonic},
    workqueue::{DelayedWork, Work},
};

/// The page service of one card.
#[pin_data]
pub(crate) struct PageService {
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Where page requests run, and what else may wait for a page fault.
    faults: Arc<OwnedQueue>,
    /// Linger time of unused pins in milliseconds.
    pub(crate) linger_ms: Atomic<u32>,
    /// Budget that a process gets, in pages.
    pub(crate) context_pages: u64,
    /// When it was made.
    begun: Instant<Monotonic>,
    /// When the next sweep is, in nanoseconds since then.
    #[pin]
    sweep_at: SpinLock<i64>,
    /// Pages were released, or are being evicted, that the next sweep looks at (1).
    released: Atomic<u32>,
    /// Runs under aliases.
    aliased: Atomic<u32>,
    /// Requests wait for what others have, or have until a moment ago: another number each time that one begins to, else 0.
    waits: Atomic<u32>,
    /// Page requests for which there was no memory.
    #[pin]
    pub(crate) needs: SpinLock<KVec<Need>>,
    /// Translation table.
    #[pin]
    pub(crate) table: SpinLock<Table>,
    /// Budget of the card.
    #[pin]
    pub(crate) budget: SpinLock<Budget>,
    /// Pages that memory is copied into for sending.
    #[pin]
    pub(crate) pool: SpinLock<Pool>,
    /// What pinning and copying have cost.
    #[pin]
    pub(crate) costs: SpinLock<Costs>,
    /// By ASID: since when a receive waits for the card's budget.
    #[pin]
    pub(crate) waiting: SpinLock<[Option<Instant<Monotonic>>; NUM_ASIDS as usize]>,
    /// By ASID: the address spaces that have pages.
    #[pin]
    spaces: SpinLock<[Option<Arc<AddressSpace>>; NUM_ASIDS as usize]>,
    #[pin]
    sweep: DelayedWork<PageService, 1>,
    #[pin]
    press_work: DelayedWork<PageService, 2>,
    #[pin]
    need_work: DelayedWork<PageService, 3>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for PageService { self.sweep }
    impl HasDelayedWork<Self, 2> for PageService { self.press_work }
    impl HasDelayedWork<Self, 3> for PageService { self.need_work }
}

/// The address space of one context, as the card has it.
#[pin_data]
pub(crate) struct AddressSpace {
    /// The page service.
    pub(crate) service: Arc<PageService>,
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Its number.
    pub(crate) asid: u32,
    /// The process's address space, without holding it in use.
    pub(crate) mm: ARef<Mm>,
    /// Its account of pinned pages.
    pub(crate) memlock: MemLock,
    /// What the process has in all; its contexts have one.
    pub(crate) share: Arc<Share>,
    /// Pages and page requests.
    #[pin]
    space: SpinLock<Space>,
    /// Registration with the memory manager; there from [`Self::open`] to [`Self::close`].
    #[pin]
    notifier: SpinLock<Option<Arc<dyn Settle>>>,
    #[pin]
    reap: Work<AddressSpace, 1>,
    #[pin]
    revoke: Work<AddressSpace, 2>,
    #[pin]
    recheck: Work<AddressSpace, 3>,
}

impl_has_work! {
    impl HasWork<Self, 1> for AddressSpace { self.reap }
    impl HasWork<Self, 2> for AddressSpace { self.revoke }
    impl HasWork<Self, 3> for AddressSpace { self.recheck }
}

impl AddressSpace {
    /// Its pages and page requests.
    pub(crate) fn lock(&self) -> impl DerefMut<Target = Space> + '_ {
        self.space.lock()
    }
}

/// A range of pages that was revoked and that firmware has to release.
#[derive(Clone, Copy)]
struct Revoked {
    first: u64,
    last: u64,
    told: bool,
}

/// Most requests of an address space, at a time, that the driver makes itself.
const MAX_AHEAD: usize = 32;

/// A queue pair that has aliases.
#[derive(Clone, Copy)]
pub(crate) struct AliasUse {
    /// Its number, 0 if it has none yet.
    qpn: u32,
    /// Blocks of memory at the process's own addresses that the card has had to ask for, for sending.
    asked: u32,
}

/// Memory of a send that is to be pinned as a whole, under its alias: the first page, and how many, of each range.
type Extents = [(u64, u64); MAX_SGE];

/// Pages and page requests of a context.
pub(crate) struct Space {
    runs: Runs,
    /// Pages of the longest run that there was.
    longest: u64,
    /// Runs so far.
    serial: u64,
    requests: KVec<Pending>,
    revoking: KVec<Revoked>,
    /// Budget of the context.
    pub(crate) budget: Budget,
    /// Pages that receives leave for sends: one block, and one packet of many ranges.
    reserve: u64,
    /// When something was last unpinned.
    unpinned: Instant<Monotonic>,
    /// When firmware was last asked to recall grants.
    pressed: Instant<Monotonic>,
    /// When places in the table were last tried again.
    retried: Instant<Monotonic>,
    /// The context is closed: nothing is pinned any more.
    pub(crate) closing: bool,
    /// Runs under aliases.
    aliased: u32,
    /// By place, from 1 on: the queue pairs that have aliases.
    alias_qps: [Option<AliasUse>; ALIAS_QPS as usize + 1],
    /// By alias: sends that are to be pinned as a whole.
    wholes: RBTree<u32, Extents>,
    /// QP that is being destroyed, 0 for none: what its rows ask for is not looked for.
    ending: u32,
}

/// A request that is not answered yet, in the list of its address space, under whose lock it
/// changes. One that is not in the list is answered.
struct Pending {
    request: Arc<Request>,
    state: RequestState,
    /// The range has changed since the request began to look at it.
    stale: bool,
    /// Firmware has been asked to recall grants for it.
    pressed: bool,
}

impl Deref for Pending {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

/// What the card asks for.
#[derive(Clone)]
pub(crate) struct Need {
    space: Arc<AddressSpace>,
    tag: u32,
    /// Run of firmware that has asked.
    generation: u32,
    first: u64,
    pages: u64,
    write: bool,
    /// How often there was no memory to note it.
    tries: u32,
}

/// How memory that is asked for reaches the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is pinned.
    Pin,
    /// It is copied.
    Copy,
}

/// Tag of a request that the driver makes itself, for pages that the card will ask for (VC-7).
const TAG_AHEAD: u32 = u32::MAX;

impl Need {
    /// The alias that its pages are under.
    fn alias(&self) -> Option<u32> {
        alias_of(self.first)
    }

    /// Whether the driver makes it itself, so that nobody waits for an answer.
    fn is_ahead(&self) -> bool {
        self.tag == TAG_AHEAD
    }

    /// Whether a packet goes again.
    fn is_again(&self) -> bool {
        self.tag >> 16 == TAG_SENDS && self.tag >> TAG_SENDS_AGAIN & 1 != 0
    }

    /// QP whose row asks; 0 if firmware or the driver does.
    fn qpn(&self) -> u32 {
        let place = self.tag & 0xffff;
        match self.tag >> 16 {
            TAG_SENDS => place >> TAG_SENDS_QPN,
            TAG_RECEIVES => place >> TAG_RECEIVES_QPN,
            _ => 0,
        }
    }

    /// How its memory is to reach the card.
    fn way(&self) -> Way {
        match (self.alias().map(alias_policy), self.is_again()) {
            (Some((_, Again::Copy)), true) | (Some((First::Copy, _)), false) => Way::Copy,
            _ => Way::Pin,
        }
    }
}

/// A request of the card for pages that is looked after.
#[pin_data]
pub(crate) struct Request {
    need: Need,
    since: Instant<Monotonic>,
    /// Pages that it is charged and has not installed.
    charged: Atomic<u64>,
    /// Whether it stands in the card's line of receives that wait for its budget, or is the next one that has pages for
    /// copies (1).
    in_line: Atomic<u32>,
    /// Whether it has had to wait for budget (1).
    waited: Atomic<u32>,
    #[pin]
    work: Work<Request>,
}

impl_has_work! {
    impl HasWork<Self> for Request { self.work }
}

impl Deref for Request {
    type Target = Need;

    fn deref(&self) -> &Need {
        &self.need
    }
}

impl Request {
    fn last(&self) -> u64 {
        self.first + self.pages - 1
    }

    /// Whether it asks for pages to be pinned, for receiving (`write`) or for sending, and waits for them.
    fn pins(&self, write: bool) -> bool {
        self.write == write && self.way() == Way::Pin && !self.is_ahead()
    }
}
