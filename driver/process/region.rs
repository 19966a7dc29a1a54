// SPDX-License-Identifier: GPL-2.0
//! Protection domains, and memory that peers may be given keys for (QP-9, QP-11).
//!
//! A region is a key of the card's table and nothing else: no page is pinned or looked at, so that it costs the same for any
//! size. What the process may access of it is decided when a peer does, page by page, as for its own elements.

use crate::{
    abi::{
        counters::*,
        ioctl::{self, MAX_DOMAINS, REGISTER_ONE_SHOT},
        message::{CmdDone, KeyBind, KeyFree, KeyRegister, KeysDrop, ALL_RIGHTS},
        wide,
    },
    card::PAGE,
    kernel::random,
    pages::run::VPN_END,
    process::{
        owned::{Domain, DomainUse, Name, Region},
        Context,
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// Protection domains that one context has at most.
pub(crate) const MAX_CONTEXT_DOMAINS: usize = MAX_DOMAINS as usize / 4;

/// What a region is bound to.
struct Bound {
    va: u64,
    len: u64,
    rights: u8,
    one_shot: bool,
}

impl Bound {
    /// From a call, if it can be.
    fn of(arg: &ioctl::Register) -> Result<Self> {
        if arg.rights & !ALL_RIGHTS != 0 || arg.flags & !REGISTER_ONE_SHOT != 0 {
            return Err(EINVAL);
        }
        let null = arg.va == 0 && arg.len == 0;
        let last = arg.va.checked_add(arg.len.wrapping_sub(1));
        let inside = last.is_some_and(|last| last / PAGE < VPN_END);
        if !null && (arg.len == 0 || arg.rights == 0 || !inside) {
            return Err(EINVAL);
        }
        Ok(Self {
            va: arg.va,
            len: arg.len,
            rights: arg.rights as u8,
            one_shot: arg.flags & REGISTER_ONE_SHOT != 0,
        })
    }
}

impl Context {
    pub(super) fn find_domain(&self, name: Name) -> Result<Arc<Domain>> {
        let memory = self.memory.lock();
        let mut domains = memory.domains.iter();
        let found = domains.find(|d| name.is(d.number, d.identity));
        found.cloned().ok_or(ENOENT)
    }

    /// Makes a protection domain, and gives it for [`Self::end_domain`].
    pub(crate) fn create_domain(&self, arg: &mut ioctl::Handle) -> Result<Arc<Domain>> {
        if arg.value != 0 || arg.identity != 0 || arg.reserved != 0 {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let epoch = self.card.epoch.load(Relaxed);
        let number = {
            let mut tables = self.registry.tables.lock();
            let owners = tables.domains.iter();
            let mine = owners.filter(|asid| u32::from(**asid) == self.asid);
            if mine.count() >= MAX_CONTEXT_DOMAINS {
                return Err(ENOSPC);
            }
            let free = tables.domains.iter().position(|asid| *asid == 0);
            let place = free.ok_or(ENOSPC)?;
            tables.domains[place] = self.asid as u8;
            place as u32 + 1
        };
        let domain = Domain {
            number,
            identity: self.new_identity(),
            users: Atomic::new(0),
        };
        let made = Arc::pin_init(domain, GFP_KERNEL).and_then(|domain| {
            let mut memory = self.memory.lock();
            if self.card.epoch.load(Relaxed) != epoch {
                return Err(EIO);
            }
            let _ = memory.domains.push_within_capacity(domain.clone());
            Ok(domain)
        });
        match &made {
            Ok(domain) => (arg.value, arg.identity) = (number, domain.identity),
            Err(_) => self.forget_domain(number),
        }
        made
    }

    fn forget_domain(&self, number: u32) {
        let mut tables = self.registry.tables.lock();
        tables.domains[number as usize - 1] = 0;
    }

    /// Destroys this protection domain, and no later one with the same number.
    pub(crate) fn end_domain(&self, domain: &Arc<Domain>) -> Result {
        self.destroy_domain(Name {
            number: domain.number,
            identity: domain.identity,
        })
    }

    /// Destroys a protection domain.
    pub(crate) fn destroy_domain(&self, name: Name) -> Result {
        let _control = self.control.lock();
        let domain = self.find_domain(name)?;
        if domain.users.load(Relaxed) != 0 {
            return Err(EBUSY);
        }
        let gone = {
            let mut memory = self.memory.lock();
            let found = memory.domains.iter().position(|d| Arc::ptr_eq(d, &domain));
            found.and_then(|i| memory.domains.remove(i).ok())
        };
        if gone.is_some() {
            self.forget_domain(domain.number);
        }
        Ok(())
    }

    /// Registers memory, and gives the region's name for [`Self::deregister`].
    pub(crate) fn register(&self, arg: &mut ioctl::Register) -> Result<Name> {
        let bound = Bound::of(arg)?;
        if arg.key != 0 || arg.identity != 0 {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let domain = self.find_domain(Name {
            number: arg.domain,
            identity: arg.domain_identity,
        })?;
        let generation = self.card.generation();
        let epoch = self.card.epoch.load(Relaxed);
        // Before the card has a key that could not be noted.
        self.make_room()?;
        let [low, high] = random::words();
        let register = KeyRegister {
            asid: self.asid as u8,
            rights: bound.rights,
            domain: domain.number as u16,
            one_shot: bound.one_shot,
            va: bound.va,
            len: bound.len,
            entropy: wide(low, high),
        };
        let done = self.card.call_for(generation, register.encode());
        let done = done.inspect_err(|e| {
            self.card.end_dma_after(*e);
        })?;
        let [key, ..] = CmdDone::decode(&done).results;
        let region = Region {
            key,
            identity: self.new_identity(),
            _domain: DomainUse::of(domain),
        };
        (arg.key, arg.identity) = (key, region.identity);
        let mut memory = self.memory.lock();
        if self.card.epoch.load(Relaxed) != epoch {
            return Err(EIO);
        }
        let _ = memory.regions.push_within_capacity(region);
        self.card.counters.inc(D_KEYS);
        Ok(Name {
            number: arg.key,
            identity: arg.identity,
        })
    }

    /// Makes room for one more region. The caller holds `control`.
    fn make_room(&self) -> Result {
        let (regions, room) = {
            let mut memory = self.memory.lock();
            memory.had_keys = true;
            (memory.regions.len(), memory.regions.capacity())
        };
        if regions >= self.registry.max_keys() {
            return Err(ENOSPC);
        }
        if regions < room {
            return Ok(());
        }
        // Not under the lock, which a reset of the card takes: memory may have to be taken from processes for it, and then
        // waits for that reset.
        let mut larger = KVec::with_capacity(2 * room.max(4), GFP_KERNEL)?;
        let mut memory = self.memory.lock();
        for region in memory.regions.drain_all() {
            let _ = larger.push_within_capacity(region);
        }
        let old = core::mem::replace(&mut memory.regions, larger);
        drop(memory);
        drop(old);
        Ok(())
    }

    /// Regions that it has.
    pub(super) fn regions(&self) -> usize {
        self.memory.lock().regions.len()
    }

    fn has_region(&self, name: Name) -> Result {
        let memory = self.memory.lock();
        let mut regions = memory.regions.iter();
        let there = regions.any(|r| name.is(r.key, r.identity));
        there.then_some(()).ok_or(ENOENT)
    }

    /// Binds a region's key anew.
    pub(crate) fn rebind(&self, arg: &ioctl::Register) -> Result {
        let bound = Bound::of(arg)?;
        if arg.domain != 0 || arg.domain_identity != 0 {
            return Err(EINVAL);
        }
        let _control = self.control.lock();
        self.open()?;
        let generation = self.card.generation();
        self.has_region(Name {
            number: arg.key,
            identity: arg.identity,
        })?;
        let bind = KeyBind {
            asid: self.asid as u8,
            rights: bound.rights,
            one_shot: bound.one_shot,
            va: bound.va,
            len: bound.len,
            key: arg.key,
        };
        let done = self.card.call_for(generation, bind.encode());
        done.map(|_| ())
    }

    /// Ends a region: its key opens nothing any more, and no access to it is under way.
    pub(crate) fn deregister(&self, name: Name) -> Result {
        let _control = self.control.lock();
        let generation = self.card.generation();
        self.has_region(name)?;
        let free = KeyFree {
            asid: self.asid as u8,
            key: name.number,
        };
        self.card.end_object(generation, free.encode())?;
        let gone = {
            let mut memory = self.memory.lock();
            let mut regions = memory.regions.iter();
            let found = regions.position(|r| name.is(r.key, r.identity));
            found.and_then(|i| memory.regions.remove(i).ok())
        };
        if gone.is_some() {
            self.card.counters.sub(D_KEYS, 1);
        }
        Ok(())
    }

    /// Forgets all regions and domains: the card has none of their keys any more.
    pub(super) fn drop_regions(&self) {
        loop {
            let region = self.memory.lock().regions.pop();
            let Some(region) = region else { break };
            drop(region);
            self.card.counters.sub(D_KEYS, 1);
        }
        loop {
            let domain = self.memory.lock().domains.pop();
            let Some(domain) = domain else { break };
            self.forget_domain(domain.number);
        }
    }

    /// Ends all keys for good: the context is being closed.
    pub(super) fn end_regions(self: &Arc<Self>) {
        let generation = self.card.generation();
        let had_keys = self.memory.lock().had_keys;
        if had_keys {
            let asid = self.asid as u8;
            self.card
                .end_for_good(generation, KeysDrop { asid }.encode());
        }
        self.drop_regions();
    }
}
