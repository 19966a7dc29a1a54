// SPDX-License-Identifier: GPL-2.0
//! The pages of a context.

use crate::{
    abi::ioctl::QueryContext,
    card::{parts::MAX_ASKED, PAGE},
    kernel::pin::{DmaPage, PinnedPage},
    pages::{
        address_space::AddressSpace,
        budget::Budget,
        request::{Pending, Request, RequestState, STUCK_MS},
    },
};
use kernel::{
    fmt,
    prelude::*,
    rbtree::{RBTree, RBTreeNode},
    sync::atomic::Relaxed,
    time::{Instant, Monotonic},
};

/// Revocations for which there is memory beforehand.
const MAX_REVOKED: usize = 64;
/// Pages that debugfs shows of a context: the lock is held meanwhile.
const MAX_SHOWN: usize = 256;
/// Virtual page numbers of user space lie below this (57 bits of address).
pub(super) const VPN_END: u64 = 1 << 45;

/// What is being done with a page that is pinned.
///
/// | From | To | When |
/// |---|---|---|
/// | – | `Live` | it is installed |
/// | `Live` | `Evicting` | the card is asked whether it is idle |
/// | `Evicting` | `Live` | the card has it in use |
/// | `Evicting` | `Dead` | the card has dropped it |
/// | `Live`, `Evicting` | `Revoking` | the card is told to drop it |
/// | `Revoking` | `Fencing` | a fence begins |
/// | `Dead`, `Fencing` | – | it is unpinned; after `Fencing` when the fence is over |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageState {
    /// In the card's table.
    Live,
    /// The card was asked whether it is idle.
    Evicting,
    /// The card has been told to drop it, and may still be finishing DMA.
    Revoking,
    /// Revoked before the fence that is being waited for.
    Fencing,
    /// Not in the card's table any more, to be unpinned.
    Dead,
}

/// A page that is pinned and mapped.
pub(super) struct PageEntry {
    // Fields are dropped in this order: the mapping goes before the pin.
    pub(super) dma: DmaPage,
    pub(super) pin: PinnedPage,
    pub(super) index: u32,
    pub(super) state: PageState,
    /// Time since which no use of it is known.
    pub(super) since: Instant<Monotonic>,
    /// Released since it was last known to be in use.
    pub(super) released: bool,
    /// To be evicted as soon as it is released: a request needs it with other access.
    pub(super) urgent: bool,
    /// The memory manager has touched it: look whether it still is what it was.
    pub(super) suspect: bool,
}

type Pages = RBTree<u64, PageEntry>;

pub(super) type Node = RBTreeNode<u64, PageEntry>;

/// A range of pages that was revoked and that firmware has to release.
#[derive(Clone, Copy)]
pub(super) struct Revoked {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) told: bool,
}

/// Pages and page requests of a context.
pub(crate) struct Space {
    pub(super) pages: Pages,
    pub(super) requests: KVec<Pending>,
    pub(super) revoking: KVec<Revoked>,
    /// Budget of the context.
    pub(crate) budget: Budget,
    /// Pages that receives leave for sends: one block, and one packet of many ranges.
    pub(super) reserve: u64,
    /// When something was last unpinned.
    pub(super) unpinned: Instant<Monotonic>,
    /// When firmware was last asked to recall grants.
    pub(super) pressed: Instant<Monotonic>,
    /// When places in the table were last tried again.
    pub(super) retried: Instant<Monotonic>,
    /// The context is closed: nothing is pinned any more.
    pub(crate) closing: bool,
    /// QP that is being destroyed, 0 for none: what its rows ask for is not looked for.
    pub(super) ending: u32,
}

impl Space {
    /// A space without pages, with a budget of `limit` pages. Its lists have their memory from
    /// the start: they change where none can be waited for.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        Ok(Self {
            pages: RBTree::new(),
            requests: KVec::with_capacity(MAX_ASKED, GFP_KERNEL)?,
            revoking: KVec::with_capacity(MAX_REVOKED, GFP_KERNEL)?,
            budget: Budget::new(limit),
            reserve: 2 * crate::abi::wqe::MAX_SGE as u64,
            unpinned: Instant::now(),
            pressed: Instant::now(),
            retried: Instant::now(),
            closing: false,
            ending: 0,
        })
    }

    pub(super) fn is_revoking(&self, first: u64, last: u64) -> bool {
        self.revoking
            .iter()
            .any(|r| r.first <= last && first <= r.last)
    }

    pub(super) fn add_revoked(&mut self, first: u64, last: u64) {
        let range = Revoked {
            first,
            last,
            told: false,
        };
        if self.revoking.push(range, GFP_ATOMIC | __GFP_NOWARN).is_ok() {
            return;
        }
        // Without a free entry or memory for one, firmware is told of a larger range than
        // necessary.
        if let Some(r) = self.revoking.last_mut() {
            r.first = r.first.min(first);
            r.last = r.last.max(last);
            r.told = false;
        }
    }

    /// Whether pages are about to be installed or unpinned. Requests that have been stuck for long
    /// do not count.
    pub(super) fn changes(&mut self) -> bool {
        let coming = |r: &Pending| r.state.is_charged() && r.since.elapsed().as_millis() < STUCK_MS;
        let stays = |page: &PageEntry| page.state == PageState::Live && !page.released;
        self.requests.iter().any(coming) || self.each(0, u64::MAX, |_, page| stays(page)).is_some()
    }

    /// The request in the list; none if it is answered.
    pub(super) fn pending(&mut self, request: &Request) -> Option<&mut Pending> {
        let mut all = self.requests.iter_mut();
        all.find(|p| core::ptr::eq(&*p.request, request))
    }

    /// The request is in another state, unless it is answered.
    pub(super) fn set_state(&mut self, request: &Request, state: RequestState) {
        if let Some(pending) = self.pending(request) {
            pending.state = state;
        }
    }

    /// Takes a request out of the list, which is answered.
    pub(super) fn remove_request(&mut self, request: &Request) -> Option<Pending> {
        let mut all = self.requests.iter();
        let at = all.position(|p| core::ptr::eq(&*p.request, request))?;
        self.requests.remove(at).ok()
    }

    /// Calls `f` for each page from `first` to `last`, until it returns `false`. Gives
    /// the page number it stopped at.
    pub(super) fn each(
        &mut self,
        first: u64,
        last: u64,
        mut f: impl FnMut(u64, &mut PageEntry) -> bool,
    ) -> Option<u64> {
        let mut cursor = self.pages.cursor_lower_bound_mut(&first);
        while let Some(mut at) = cursor {
            let (vpn, entry) = at.current_mut();
            if *vpn > last {
                break;
            }
            if !f(*vpn, entry) {
                return Some(*vpn);
            }
            cursor = at.move_next();
        }
        None
    }

    /// Takes pages for which `f` says so out of the tree, as many as `out` has room for; gives
    /// their number.
    pub(super) fn take_out(
        &mut self,
        out: &mut [Option<Node>],
        mut f: impl FnMut(u64, &PageEntry) -> bool,
    ) -> usize {
        let mut taken = 0;
        let mut cursor = self.pages.cursor_front_mut();
        while let Some(at) = cursor {
            let Some(place) = out.get_mut(taken) else {
                break;
            };
            let (vpn, entry) = at.current();
            let vpn = *vpn;
            if f(vpn, entry) {
                let (next, node) = at.remove_current();
                *place = Some(node);
                taken += 1;
                // At the end of the tree this is the previous element.
                cursor = next.filter(|c| *c.current().0 > vpn);
            } else {
                cursor = at.move_next();
            }
        }
        taken
    }
}

impl AddressSpace {
    /// Changes the context's budget.
    pub(crate) fn set_budget(&self, pages: u64) {
        let tight = {
            let mut space = self.lock();
            space.budget.limit = pages;
            let mut share = self.share.budget.lock();
            share.limit = share.limit.max(pages);
            space.budget.pinned > pages
        };
        if tight {
            self.evict_idle();
        }
        self.retry_requests();
    }

    /// What is pinned for the context, at most was, and may be.
    pub(crate) fn query(&self) -> QueryContext {
        let card = self.service.budget.lock().limit;
        let budget = self.lock().budget;
        QueryContext {
            pinned: budget.pinned * PAGE,
            pinned_peak: budget.peak * PAGE,
            budget: budget.limit.min(card) * PAGE,
        }
    }

    /// Bytes of the blocks of a QP that wants `bytes` (0: 64 KiB): receives leave as much for
    /// sends, and a page for blocks that do not begin at a page. So it is less than half of
    /// what may be pinned.
    pub(crate) fn block(&self, bytes: u32) -> u32 {
        let bytes = if bytes == 0 { 65536 } else { bytes };
        let most = self.service.budget.lock().limit.min(self.memlock.limit());
        let mut space = self.lock();
        let most = (most.min(space.budget.limit) / 2).saturating_sub(1).max(1);
        let pages = (u64::from(bytes) / PAGE).min(most);
        space.reserve = space.reserve.max(pages + 1);
        (pages * PAGE) as u32
    }

    /// Writes what is pinned and what is asked for: a line for each request, and for each page, of
    /// which it leaves out those beyond `MAX_SHOWN`.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = self.lock();
        writeln!(
            f,
            "asid {} budget {} pinned {} receive {} worked on {}",
            self.asid,
            space.budget.limit,
            space.budget.pinned,
            space.budget.receive,
            self.share.works.lock().running
        )?;
        for request in &space.requests {
            writeln!(
                f,
                "  request tag {:#x} pages {:#x}+{} write {} state {:?} stale {} pressed {} in line {} ms {}",
                request.tag,
                request.first,
                request.pages,
                request.write,
                request.state,
                request.stale,
                request.pressed,
                request.in_line.load(Relaxed) != 0,
                request.since.elapsed().as_millis()
            )?;
        }
        let mut result = Ok(());
        let mut shown = 0;
        space.each(0, u64::MAX, |vpn, page| {
            shown += 1;
            if shown > MAX_SHOWN {
                return false;
            }
            result = writeln!(
                f,
                "  page {:#x} index {} {:?} write {} released {} urgent {} suspect {} ms {}",
                vpn,
                page.index,
                page.state,
                page.pin.is_write(),
                page.released,
                page.urgent,
                page.suspect,
                page.since.elapsed().as_millis()
            );
            result.is_ok()
        });
        result
    }
}
