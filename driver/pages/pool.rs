// SPDX-License-Identifier: GPL-2.0
//! The driver's own pages that memory is copied into for sending (VC-5, VC-6).
//!
//! They are mapped for the card when they are made, and stay while a queue pair has tags of copies. They are nobody's
//! pinned memory: neither a budget nor `RLIMIT_MEMLOCK` counts them, but `copy_pool` bounds them.

use crate::{
    abi::counters::*,
    card::PAGE,
    kernel::pin::SharedPages,
    pages::{share::Share, AddressSpace, PageService, Request},
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::{Instant, Monotonic},
};

/// Time in milliseconds for which a request that waits for pages keeps them from later ones.
const TURN_MS: i64 = 2_000;

/// Pages for copies, of one card.
pub(crate) struct Pool {
    /// Most pages.
    pub(crate) limit: u64,
    /// Pages that requests have taken.
    pub(crate) used: u64,
    /// Pages that are mapped and not taken; room for `limit`.
    free: KVec<SharedPages>,
    /// Queue pairs that have tags of copies. Without any, no page is kept.
    users: u32,
    /// Since when the request that is to be served next has waited.
    next: Option<Instant<Monotonic>>,
    /// Requests wait that were not told of a page that came back.
    waited_for: bool,
}

impl Pool {
    /// A pool of at most `limit` pages, of which there are none yet.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        Ok(Self {
            limit,
            used: 0,
            free: KVec::with_capacity(limit as usize, GFP_KERNEL)?,
            users: 0,
            next: None,
            waited_for: false,
        })
    }

    /// Most pages that one process has: half of them, so that it does not keep others from theirs.
    pub(super) const fn most(&self) -> u64 {
        self.limit / 2
    }
}

/// A page of the pool that a request has taken; goes back when dropped, which may sleep.
pub(crate) struct CopyPage {
    /// There until it is dropped.
    page: Option<SharedPages>,
    service: Arc<PageService>,
    /// Whose copies it counts to.
    share: Arc<Share>,
}

impl CopyPage {
    /// Bus address.
    pub(crate) fn addr(&self) -> u64 {
        self.page.as_ref().map_or(0, SharedPages::addr)
    }

    /// Its memory, which is made if there is none.
    ///
    /// # Errors
    ///
    /// `ENOMEM` there is no memory for it, `ENODEV` the device goes, `EOPNOTSUPP` it would need a bounce buffer.
    pub(super) fn memory(&mut self) -> Result<&SharedPages> {
        if self.page.is_none() {
            self.page = self.service.pool.lock().free.pop();
        }
        match &mut self.page {
            Some(page) => Ok(page),
            none => {
                let bound = self.service.card.bound()?;
                Ok(none.insert(SharedPages::new(bound, PAGE as usize)?))
            }
        }
    }
}

impl Drop for CopyPage {
    fn drop(&mut self) {
        let page = self.page.take();
        let service = &self.service;
        let (unwanted, waited_for) = {
            let mut pool = service.pool.lock();
            pool.used -= 1;
            self.share.copies.fetch_sub(1, Relaxed);
            service.report_copies(&pool);
            let room = pool.users != 0 && pool.free.len() < pool.free.capacity();
            let unwanted = match page {
                Some(page) if room => {
                    let _ = pool.free.push_within_capacity(page);
                    None
                }
                page => page,
            };
            (unwanted, core::mem::take(&mut pool.waited_for))
        };
        drop(unwanted);
        if waited_for {
            service.for_each_space(AddressSpace::retry_for_copies);
        }
    }
}

impl PageService {
    /// Publishes the bytes of copies after a change.
    fn report_copies(&self, pool: &Pool) {
        let bytes = pool.used * PAGE;
        self.card.counters.set(D_COPY_USED, bytes);
        if bytes > self.card.counters.get(D_COPY_PEAK) {
            self.card.counters.set(D_COPY_PEAK, bytes);
        }
    }

    /// A queue pair more has tags of copies.
    pub(super) fn use_pool(&self) {
        self.pool.lock().users += 1;
    }

    /// One less has.
    pub(super) fn leave_pool(&self) {
        let mut pool = self.pool.lock();
        pool.users -= 1;
        while pool.users == 0 {
            let Some(page) = pool.free.pop() else { break };
            // Unmaps, which must not happen under the lock.
            drop(pool);
            drop(page);
            pool = self.pool.lock();
        }
    }
}

impl Request {
    /// Takes `pages` pages, of which there need be no memory yet; `false` if it has to wait for them.
    pub(super) fn take_copies(&self, pages: usize, out: &mut KVec<CopyPage>) -> bool {
        let service = &self.space.service;
        let mut pool = service.pool.lock();
        let turn = pool.next.is_none_or(|since| {
            (since - self.since).as_nanos() >= 0 || since.elapsed().as_millis() >= TURN_MS
        });
        let share = &self.space.share;
        let mine = share.copies.load(Relaxed) + pages as u64 <= pool.most();
        if !turn || !mine || pool.used + pages as u64 > pool.limit {
            if turn && mine {
                pool.next = Some(self.since);
                self.in_line.store(1, Relaxed);
            }
            pool.waited_for = true;
            return false;
        }
        pool.used += pages as u64;
        share.copies.add(pages as u64, Relaxed);
        service.report_copies(&pool);
        self.strike_from_pool(&mut pool);
        for _ in 0..pages {
            let _ = out.push_within_capacity(CopyPage {
                page: None,
                service: service.clone(),
                share: share.clone(),
            });
        }
        true
    }

    /// It is not the next one any more.
    fn strike_from_pool(&self, pool: &mut Pool) {
        let mine = |since: Instant<Monotonic>| (since - self.since).as_nanos() == 0;
        if pool.next.is_some_and(mine) {
            pool.next = None;
        }
        self.in_line.store(0, Relaxed);
    }

    /// It waits for pages no more. The caller holds no lock of a space.
    pub(super) fn leave_pool_line(&self) {
        if self.in_line.load(Relaxed) != 0 {
            let service = &self.space.service;
            self.strike_from_pool(&mut service.pool.lock());
            service.for_each_space(AddressSpace::retry_for_copies);
        }
    }
}
