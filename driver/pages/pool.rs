// SPDX-License-Identifier: GPL-2.0
//! The driver's own pages that memory is copied into for sending (VC-5, VC-6).
//!
//! They are mapped for the card when they are made, and stay while a queue pair has aliases. They are nobody's
//! pinned memory: neither a budget nor `RLIMIT_MEMLOCK` counts them, but `copy_pool` bounds them.

use crate::{
    abi::counters::*,
    card::PAGE,
    kernel::pin::SharedPages,
    pages::{
        copy_pool::{CopyPage, Home, Pool},
        share::Share,
        AddressSpace, PageService, Request,
    },
};
use kernel::{prelude::*, sync::atomic::Relaxed};

impl Home for PageService {
    fn make(&self) -> Result<SharedPages> {
        let kept = self.pool.lock().free.pop();
        match kept {
            Some(page) => Ok(page),
            None => SharedPages::new(self.card.bound()?, PAGE as usize),
        }
    }

    fn take_back(&self, page: Option<SharedPages>, share: &Share) {
        let (unwanted, waited_for) = {
            let mut pool = self.pool.lock();
            pool.used -= 1;
            share.copies.fetch_sub(1, Relaxed);
            self.report_copies(&pool);
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
            self.for_each_space(AddressSpace::retry_for_copies);
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

    /// A queue pair more has aliases.
    pub(super) fn use_pool(&self) {
        let mut pool = self.pool.lock();
        pool.users += 1;
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
        let turn = self.is_before(pool.next);
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
            let _ = out.push_within_capacity(CopyPage::new(service.clone(), share.clone()));
        }
        true
    }

    /// It is not the next one any more, if it was.
    fn strike_from_pool(&self, pool: &mut Pool) {
        self.give_up_place(&mut pool.next);
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
