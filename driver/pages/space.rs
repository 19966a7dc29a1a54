// SPDX-License-Identifier: GPL-2.0
//! Looking through the pages and requests of a context.

use crate::{
    abi::alias::{ALIASES_OF_QP, ALIAS_QPS},
    card::{parts::MAX_ASKED, PAGE},
    pages::{
        budget::Budget,
        leaving::Leaving,
        request_state::{RequestState, STUCK_MS},
        run::{Key, PageState, Run},
        vpn::{va_of, ALIAS_VPN},
        Need, Pending, Request, Revoked, Space, MAX_AHEAD,
    },
};
use kernel::{prelude::*, rbtree::RBTree, sync::atomic::Relaxed, time::Instant};

/// Revocations for which there is memory beforehand.
const MAX_REVOKED: usize = 64;

impl Space {
    /// A space without pages, with a budget of `limit` pages. Its lists have their memory from
    /// the start: they change where none can be waited for.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        Ok(Self {
            runs: RBTree::new(),
            longest: 1,
            serial: 0,
            requests: KVec::with_capacity(MAX_ASKED + MAX_AHEAD, GFP_KERNEL)?,
            revoking: KVec::with_capacity(MAX_REVOKED, GFP_KERNEL)?,
            budget: Budget::new(limit),
            reserve: 2 * crate::abi::wqe::MAX_SGE as u64,
            unpinned: Instant::now(),
            pressed: Instant::now(),
            retried: Instant::now(),
            closing: false,
            aliased: 0,
            alias_qps: [None; ALIAS_QPS as usize + 1],
            wholes: RBTree::new(),
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
        let stays = |run: &Run| {
            !run.memory.is_copy() && run.there() == run.are(&[PageState::Live]) & !run.released
        };
        self.requests.iter().any(coming) || !self.each(0, u64::MAX, |run, _| stays(run))
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
            if state.is_waiting() {
                request.space.service.waits.add(1, Relaxed);
            }
        }
    }

    /// Takes a request out of the list, which is answered.
    pub(super) fn remove_request(&mut self, request: &Request) -> Option<Pending> {
        let mut all = self.requests.iter();
        let at = all.position(|p| core::ptr::eq(&*p.request, request))?;
        self.requests.remove(at).ok()
    }

    /// Calls `f` for each run with pages from `first` to `last`, and these, until it returns `false`. Gives whether it never
    /// did.
    pub(super) fn each(
        &mut self,
        first: u64,
        last: u64,
        mut f: impl FnMut(&mut Run, u64) -> bool,
    ) -> bool {
        let end = last.saturating_add(self.longest - 1);
        let from = Key {
            last: first,
            serial: 0,
        };
        let mut cursor = self.runs.cursor_lower_bound_mut(&from);
        while let Some(mut at) = cursor {
            let (key, run) = at.current_mut();
            if key.last > end {
                break;
            }
            let pages = run.within(first, last);
            if pages != 0 && !f(run, pages) {
                return false;
            }
            cursor = at.move_next();
        }
        true
    }

    /// Whether there are pages from `first` to `last`.
    pub(super) fn has(&mut self, first: u64, last: u64) -> bool {
        !self.each(first, last, |_, _| false)
    }

    /// The key of a run from `first` to `last` that is about to come.
    pub(super) fn key(&mut self, first: u64, last: u64) -> Key {
        self.longest = self.longest.max(last - first + 1);
        self.serial += 1;
        Key {
            last,
            serial: self.serial,
        }
    }

    /// Takes pages that `f` names out of runs, as much as `out` has room for.
    pub(super) fn take_out(&mut self, out: &mut Leaving, mut f: impl FnMut(&Run) -> u64) {
        let mut cursor = self.runs.cursor_front_mut();
        while let Some(mut at) = cursor {
            let (key, run) = at.current_mut();
            let key = *key;
            let pages = f(run);
            if pages != 0 && pages == run.there() {
                let Some(place) = out.nodes.get_mut(out.whole) else {
                    break;
                };
                let (next, node) = at.remove_current();
                self.aliased -= u32::from(key.last >= ALIAS_VPN);
                *place = Some(node);
                out.whole += 1;
                // At the end of the tree this is the previous element.
                cursor = next.filter(|c| *c.current().0 > key);
                continue;
            }
            if pages != 0 {
                out.take_part(run, pages);
                break;
            }
            cursor = at.move_next();
        }
    }

    /// Whether what is asked for may be: its alias, if it has one, is a queue pair's.
    pub(super) fn has_alias(&self, need: &Need) -> bool {
        need.alias()
            .is_none_or(|alias| self.alias_qps[(alias / ALIASES_OF_QP) as usize].is_some())
    }

    /// Counts what the card asks for, for sending.
    pub(super) fn count_asked(&mut self, need: &Need) {
        let qpn = need.qpn();
        if need.write || need.alias().is_some() {
            return;
        }
        let of = self.alias_qps.iter_mut().flatten().find(|of| of.qpn == qpn);
        if let Some(of) = of {
            of.asked = of.asked.saturating_add(1);
        }
    }

    /// Calls `f` for each run that has pages of the process's from `first` to `last`, those under aliases included.
    pub(super) fn each_of_process(
        &mut self,
        first: u64,
        last: u64,
        mut f: impl FnMut(&mut Run, u64) -> bool,
    ) -> bool {
        self.each(first, last, &mut f) && self.each_aliased(first, last, f)
    }

    /// Calls `f` for each run under an alias that has pinned pages of the process's from `first` to `last`, and these.
    pub(super) fn each_aliased(
        &mut self,
        first: u64,
        last: u64,
        mut f: impl FnMut(&mut Run, u64) -> bool,
    ) -> bool {
        // The memory manager does not know copies.
        self.aliased == 0
            || self.each(ALIAS_VPN, u64::MAX, |run, _| {
                let begin = va_of(run.first) as u64 / PAGE;
                let (low, high) = (first.max(begin), last.min(begin + (run.last() - run.first)));
                if run.memory.is_copy() || low > high {
                    return true;
                }
                let pages = run.within(run.first + (low - begin), run.first + (high - begin));
                pages == 0 || f(run, pages)
            })
    }
}
