// SPDX-License-Identifier: GPL-2.0
//! Mapping pinned pages and putting them in the card's table.

use crate::{
    abi::{counters::*, message::code, ring::*, status::*},
    card::{
        deadline::{Deadline, FENCE_CYCLES},
        Entry, State,
    },
    kernel::pin::{DmaPage, PinnedPage},
    pages::{
        copy_pool::CopyPage,
        page::{Memory, PageEntry, PageState},
        request_state::{Attempt, RequestState},
        service::ready,
        Request,
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{atomic::Relaxed, Arc},
    time::{delay::fsleep, Delta, Instant},
};

/// What a page is made of.
pub(super) enum Brought {
    /// A page of the process, which is not mapped yet.
    Pin(PinnedPage),
    /// A copy.
    Copy(CopyPage),
}

/// A page that is mapped but not in the tree yet.
struct Fresh {
    vpn: u64,
    page: PageEntry,
    slot: RBTreeNodeReservation<u64, PageEntry>,
}

impl Request {
    /// Claims what is missing for this request to map; `None` if that worked. If another request is
    /// mapping some of it, this one waits for that; if another has mapped some, this one looks
    /// again.
    pub(super) fn claim_pages(&self, missing: &[u64]) -> Option<Attempt> {
        let mut space = self.space.lock();
        let mut others = space.requests.iter_mut();
        let other = others.find(|r| {
            let installs = matches!(r.state, RequestState::Installing { .. });
            installs && r.first <= self.last() && self.first <= r.last()
        });
        if let Some(other) = other {
            other.state = RequestState::Installing { wanted: true };
            space.set_state(self, RequestState::Blocked);
            return Some(Attempt::Done);
        }
        let come = space.each(self.first, self.last(), |vpn, _| {
            missing.binary_search(&vpn).is_err()
        });
        if come.is_some() {
            return Some(Attempt::Again);
        }
        space.set_state(self, RequestState::Installing { wanted: false });
        None
    }

    /// Ends the claim of a request whose pages are given back and not installed.
    pub(super) fn release_claim(&self) {
        let mut space = self.space.lock();
        // If the request was answered meanwhile it is unknown whether others wait: assume so.
        let mut wanted = true;
        if let Some(pending) = space.pending(self) {
            wanted = pending.state == RequestState::Installing { wanted: true };
            pending.state = RequestState::Charged;
        }
        if wanted {
            space.start_those(RequestState::Blocked);
        }
    }

    /// Maps and installs what is pinned or copied; pins that are installed stay charged.
    pub(super) fn map_and_install_pages(
        self: &Arc<Self>,
        missing: &[u64],
        mut brought: KVec<Brought>,
    ) -> Result<Attempt> {
        let owner = &self.space;
        let (card, service) = (&owner.card, &owner.service);
        let flags = GFP_KERNEL | __GFP_NOWARN;
        let mut fresh: KVec<Fresh> = KVec::with_capacity(missing.len(), flags)?;
        let mut entries: KVec<Entry> = KVec::with_capacity(missing.len() + 1, flags)?;
        let bound = card.bound()?;
        let mut failed = None;
        for (vpn, brought) in missing.iter().zip(brought.drain_all()) {
            if failed.is_some() {
                continue;
            }
            let made = RBTreeNodeReservation::new(GFP_KERNEL).and_then(|slot| {
                let memory = match brought {
                    Brought::Pin(pin) => {
                        let dma = DmaPage::map(bound.clone(), &pin)?;
                        Memory::Process { dma, pin }
                    }
                    Brought::Copy(page) => Memory::Copy(page),
                };
                Ok((slot, memory))
            });
            let (slot, memory) = match made {
                Ok(made) => made,
                Err(e) => {
                    card.note_unmapped(e);
                    failed = Some(Err(e));
                    continue;
                }
            };
            let Some(index) = service.table.lock().take(owner.asid, *vpn) else {
                failed = Some(Ok(Attempt::Full(*vpn)));
                continue;
            };
            let page = PageEntry {
                memory,
                index,
                state: PageState::Live,
                since: Instant::now(),
                released: false,
                urgent: false,
                suspect: false,
            };
            let _ = fresh.push_within_capacity(Fresh {
                vpn: *vpn,
                page,
                slot,
            });
        }
        drop(bound);
        if let Some(failed) = failed {
            self.give_back_pages(&mut fresh);
            return failed;
        }
        let mut deadline = None;
        loop {
            match self.install_pages(&mut fresh, &mut entries) {
                Ok(true) => {
                    let installed = self.charged.xchg(0, Relaxed);
                    card.counters.add(D_PAGES_PINNED, installed);
                    service.sweep_later();
                    return Ok(Attempt::Done);
                }
                Ok(false) => {
                    self.give_back_pages(&mut fresh);
                    return Ok(Attempt::Again);
                }
                Err(e)
                    if e == EBUSY
                        && !deadline
                            .get_or_insert_with(|| Deadline::new(&card.regs, FENCE_CYCLES))
                            .passed(&card.regs) =>
                {
                    fsleep(Delta::from_millis(1));
                }
                Err(_) => {
                    self.give_back_pages(&mut fresh);
                    return Ok(Attempt::Answer(PAGE_NO_PROCESS));
                }
            }
        }
    }

    /// Gives pages back that were not installed.
    fn give_back_pages(&self, fresh: &mut KVec<Fresh>) {
        while let Some(f) = fresh.pop() {
            self.space.service.table.lock().give_back(f.page.index);
        }
    }

    /// Makes room when all places for a page are taken: offers idle pages there for eviction, and
    /// waits. Unused grants are recalled, for a receive only after a while.
    pub(super) fn make_room_for(self: &Arc<Self>, vpn: u64) {
        let (card, service) = (&self.space.card, &self.space.service);
        self.space.lock().set_state(self, RequestState::NoPlace);
        let rivals = service.table.lock().rivals(self.space.asid, vpn);
        for (asid, vpn) in rivals {
            let Some(other) = service.space(asid) else {
                continue;
            };
            let mut space = other.lock();
            if let Some(page) = space.pages.get_mut(&vpn) {
                if page.state == PageState::Live && (page.released || !page.urgent) {
                    other.evict(page);
                }
                page.urgent = true;
            }
        }
        card.ring();
        self.press_firmware(|_| !self.write);
        service.sweep_later();
        service.press_later();
        // A place may have become free before this request was seen to wait for it.
        let free = service.table.lock().free(self.space.asid, vpn).is_some();
        if free {
            self.space.retry_for_place();
        }
    }

    /// Puts pages in the tree and in the card's table, and answers the request. `false`
    /// when something has changed meanwhile.
    ///
    /// # Errors
    ///
    /// `EBUSY` no room in the command ring; others: the card is out of service or the context
    /// closed.
    fn install_pages(
        self: &Arc<Self>,
        fresh: &mut KVec<Fresh>,
        entries: &mut KVec<Entry>,
    ) -> Result<bool> {
        let owner = &self.space;
        let card = &owner.card;
        let mut space = owner.lock();
        let stale = space.pending(self).map(|p| p.stale).ok_or(ENODEV)?;
        if space.closing || card.state() != State::Up {
            return Err(ENODEV);
        }
        if stale || space.is_revoking(self.first, self.last()) {
            return Ok(false);
        }
        let mut usable = fresh.len() as u64;
        space.each(self.first, self.last(), |_, page| {
            let fits = page.memory.is_write() || !self.write;
            usable += u64::from(page.state == PageState::Live && fits);
            true
        });
        if usable != self.pages {
            return Ok(false);
        }
        entries.clear();
        let mut entry = [0; ENTRY_WORDS];
        for f in fresh.iter() {
            let page = &f.page;
            let (addr, write) = (page.memory.addr(), page.memory.is_write());
            let name = (owner.asid, f.vpn);
            if !install_add(&mut entry, name, page.index, addr, write) {
                let _ = entries.push_within_capacity(entry);
                entry = [0; ENTRY_WORDS];
                install_add(&mut entry, name, page.index, addr, write);
            }
        }
        if code(&entry) != 0 {
            let _ = entries.push_within_capacity(entry);
        }
        let _ = entries.push_within_capacity(ready(self.tag, PAGE_OK));
        card.post(entries)?;
        for f in fresh.drain_all() {
            let _ = space.pages.insert(f.slot.into_node(f.vpn, f.page));
        }
        let done = space.remove_request(self);
        space.start_next();
        let wanted = RequestState::Installing { wanted: true };
        if done.as_ref().is_some_and(|p| p.state == wanted) {
            space.start_those(RequestState::Blocked);
        }
        drop(space);
        drop(done);
        Ok(true)
    }
}
