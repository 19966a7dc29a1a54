// SPDX-License-Identifier: GPL-2.0
//! Sends that are pinned as a whole (VC-7).
//!
//! The process says which memory such a send has ([`Whole`](crate::abi::ioctl::Whole)). When the card has got the first block
//! of it, the driver asks itself for all of it, so that the card finds what follows. What no budget has room for is left
//! out: the card asks for it block by block. Pages that are not used yet go before anybody waits, and as others do that are not
//! used for long.

use crate::{
    abi::{
        alias::{alias_policy, alias_va, fits_alias, First},
        ioctl::Whole,
        wqe::MAX_SGE,
    },
    card::{parts::MAX_ASKED, State, PAGE},
    pages::{
        request_state::RequestState, AddressSpace, Need, Pending, Request, Space, MAX_AHEAD,
        TAG_AHEAD,
    },
};
use core::ops::Range;
use kernel::{prelude::*, rbtree::RBTreeNode, sync::Arc};

/// Most pages of a request that the driver makes.
const AHEAD_PAGES: u64 = 256;

impl AddressSpace {
    /// Notes what the element that is about to be posted under an alias has.
    ///
    /// # Errors
    ///
    /// `EINVAL` that cannot be under such an alias, `ENOMEM`.
    pub(crate) fn note_whole(&self, whole: &Whole) -> Result {
        let ranges = whole
            .range
            .get(..whole.ranges as usize)
            .filter(|ranges| !ranges.is_empty() && alias_policy(whole.alias).0 == First::Whole)
            .ok_or(EINVAL)?;
        let mut extents = [(0, 0); MAX_SGE];
        for (range, extent) in ranges.iter().zip(&mut extents) {
            if range.len == 0 || range.reserved != 0 || !fits_alias(range.va, range.len.into()) {
                return Err(EINVAL);
            }
            let first = range.va / PAGE;
            let last = (range.va + u64::from(range.len) - 1) / PAGE;
            *extent = (alias_va(whole.alias, first * PAGE) / PAGE, last - first + 1);
        }
        let node = RBTreeNode::new(whole.alias, extents, GFP_KERNEL)?;
        let old = self.lock().wholes.insert(node);
        drop(old);
        Ok(())
    }

    /// Forgets what elements under these aliases have.
    pub(super) fn forget_wholes(&self, aliases: Range<u32>) {
        for alias in aliases {
            let gone = {
                let mut space = self.lock();
                if space.wholes.is_empty() {
                    return;
                }
                space.wholes.remove_node(&alias)
            };
            drop(gone);
        }
    }

    /// Has pages pinned that the card will ask for.
    fn pin_ahead(self: &Arc<Self>, generation: u32, first: u64, pages: u64) {
        let need = Need {
            space: self.clone(),
            tag: TAG_AHEAD,
            generation,
            first,
            pages,
            write: false,
            tries: 0,
        };
        let Ok(request) = need.request(GFP_KERNEL | __GFP_NOWARN) else {
            return;
        };
        // As long as this is held, the card is not reset.
        let events = self.card.events.lock();
        if self.card.state() == State::Up && self.card.generation() == generation {
            let mut space = self.lock();
            let ahead = space.requests.iter().filter(|r| r.is_ahead()).count();
            if !space.closing && ahead < MAX_AHEAD && space.has_alias(&request) {
                space.begin(request);
            }
        }
        drop(events);
    }
}

impl Space {
    /// Whether there are as many requests of the card as it can have.
    pub(super) fn is_full(&self) -> bool {
        let all = &self.requests;
        all.len() >= MAX_ASKED && all.iter().filter(|r| !r.is_ahead()).count() >= MAX_ASKED
    }

    /// Notes a request and starts its work; `false` if there is no room for it.
    pub(super) fn begin(&mut self, request: Arc<Request>) -> bool {
        let pending = Pending {
            request,
            state: RequestState::Looking,
            stale: false,
            pressed: false,
        };
        let noted = self.requests.push_within_capacity(pending).is_ok();
        if let Some(pending) = self.requests.last_mut().filter(|_| noted) {
            pending.start();
        }
        noted
    }
}

impl Request {
    /// It is over: if it was for the first block of a send that is pinned as a whole, the rest is asked for.
    pub(super) fn pin_rest(&self) {
        let begins = !self.is_ahead() && !self.is_again();
        let Some(alias) = self.alias().filter(|_| begins) else {
            return;
        };
        let owner = &self.space;
        let node = {
            let mut space = owner.lock();
            if space.pending(self).is_some() {
                // It waits.
                return;
            }
            space.wholes.remove_node(&alias)
        };
        let Some((_, extents)) = node.map(RBTreeNode::to_key_value) else {
            return;
        };
        for (first, pages) in extents {
            for at in (0..pages).step_by(AHEAD_PAGES as usize) {
                owner.pin_ahead(self.generation, first + at, AHEAD_PAGES.min(pages - at));
            }
        }
    }
}
