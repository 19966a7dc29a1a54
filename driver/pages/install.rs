// SPDX-License-Identifier: GPL-2.0
//! Mapping pinned pages and putting them in the card's table.

use crate::{
    abi::{counters::*, message::code, ring::*, status::*},
    card::{
        deadline::{Deadline, FENCE_CYCLES},
        Entry, State,
    },
    pages::{
        evict::STALE_MS,
        plan::Gap,
        request_state::{Attempt, RequestState},
        run::{Key, Memory, PageState, Run},
        service::ready,
        Request,
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{atomic::Relaxed, Arc},
    time::{delay::fsleep, Delta},
};

/// A run that is mapped but not in the tree yet.
struct Fresh {
    run: Run,
    slot: RBTreeNodeReservation<Key, Run>,
}

impl Request {
    /// Claims what is missing for this request to map; `None` if that worked. If another request is
    /// mapping some of it, this one waits for that; if another has mapped some, this one looks
    /// again.
    pub(super) fn claim_pages(&self, missing: &[Gap]) -> Option<Attempt> {
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
        if missing.iter().any(|gap| space.has(gap.first, gap.last())) {
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
        missing: &[Gap],
        mut brought: KVec<Memory>,
    ) -> Result<Attempt> {
        let owner = &self.space;
        let (card, service) = (&owner.card, &owner.service);
        let flags = GFP_KERNEL | __GFP_NOWARN;
        let commands = missing
            .iter()
            .map(|gap| gap.pages.div_ceil(INSTALL_PAGES as u64));
        let most = commands.sum::<u64>() as usize + 1;
        let mut fresh: KVec<Fresh> = KVec::with_capacity(missing.len(), flags)?;
        let mut entries: KVec<Entry> = KVec::with_capacity(most, flags)?;
        let mut failed = None;
        for (gap, mut memory) in missing.iter().zip(brought.drain_all()) {
            let made = RBTreeNodeReservation::new(flags).and_then(|slot| {
                let places = KVec::with_capacity(gap.pages as usize, flags)?;
                if let Memory::Process(pins) = &mut memory {
                    pins.map(card.bound()?)?;
                }
                Ok((slot, places))
            });
            let (slot, mut places) = match made {
                Ok(made) => made,
                Err(e) => {
                    card.note_unmapped(e);
                    failed = Some(Err(e));
                    break;
                }
            };
            let taken = service
                .table
                .lock()
                .take(owner.asid, gap.first..=gap.last(), &mut places);
            if let Err(vpn) = taken {
                failed = Some(Ok(Attempt::Full(vpn)));
                break;
            }
            let run = Run::new(gap.first, memory, places);
            let _ = fresh.push_within_capacity(Fresh { run, slot });
        }
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
                    let linger = service.linger_ms.load(Relaxed);
                    service.sweep_in(linger.max(STALE_MS as u32));
                    if self.alias().is_some() {
                        // The card is to tell of their release at once.
                        let events = card.events.lock();
                        card.arm_events(&events, service.is_lax());
                    }
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
            let mut table = self.space.service.table.lock();
            f.run
                .places
                .iter()
                .for_each(|place| table.give_back(*place));
        }
    }

    /// Makes room when all places for a page are taken: offers idle pages there for eviction, and
    /// waits. Unused grants are recalled, for a receive only after a while.
    pub(super) fn make_room_for(self: &Arc<Self>, vpn: u64) {
        let (card, service) = (&self.space.card, &self.space.service);
        self.space.lock().set_state(self, RequestState::NoPlace);
        let rivals = service.table.lock().rivals(self.space.asid, vpn);
        for (asid, vpn, place) in rivals {
            let Some(other) = service.space(asid) else {
                continue;
            };
            other.lock().each(vpn, vpn, |run, page| {
                if run.place_of(vpn) == place {
                    let live = page & run.are(&[PageState::Live]);
                    other.evict(run, live & (run.released | !run.urgent));
                    run.urgent |= page;
                }
                true
            });
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
        let mut usable: u64 = fresh.iter().map(|f| f.run.places.len() as u64).sum();
        space.each(self.first, self.last(), |run, pages| {
            if run.memory.is_write() || !self.write {
                usable += u64::from((pages & run.are(&[PageState::Live])).count_ones());
            }
            true
        });
        if usable != self.pages {
            return Ok(false);
        }
        entries.clear();
        let mut entry = [0; ENTRY_WORDS];
        for Fresh { run, .. } in fresh.iter() {
            let write = run.memory.is_write();
            for (n, place) in run.places.iter().enumerate() {
                let name = (owner.asid, run.first + n as u64);
                let (place, addr) = (u32::from(*place), run.memory.addr(n));
                if !install_add(&mut entry, name, place, addr, write) {
                    let _ = entries.push_within_capacity(entry);
                    entry = [0; ENTRY_WORDS];
                    install_add(&mut entry, name, place, addr, write);
                }
            }
        }
        if code(&entry) != 0 {
            let _ = entries.push_within_capacity(entry);
        }
        if !self.is_ahead() {
            let _ = entries.push_within_capacity(ready(self.tag, PAGE_OK));
        }
        card.post(entries)?;
        for mut f in fresh.drain_all() {
            if self.is_ahead() {
                f.run.ahead = f.run.there();
            }
            if self.alias().is_some() {
                space.aliased += 1;
                owner.service.aliased.add(1, Relaxed);
            }
            let key = space.key(f.run.first, f.run.last());
            let _ = space.runs.insert(f.slot.into_node(key, f.run));
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
