// SPDX-License-Identifier: GPL-2.0
//! Looking through the pages and requests of a context.

use crate::{
    card::parts::MAX_ASKED,
    pages::{
        budget::Budget,
        page::{Node, PageEntry, PageState},
        request_state::{RequestState, STUCK_MS},
        Pending, Request, Revoked, Space,
    },
};
use kernel::{prelude::*, rbtree::RBTree, time::Instant};

/// Revocations for which there is memory beforehand.
const MAX_REVOKED: usize = 64;

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
            copy_qps: 0,
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
        let stays = |page: &PageEntry| {
            page.state == PageState::Live && !page.released && !page.memory.is_copy()
        };
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
