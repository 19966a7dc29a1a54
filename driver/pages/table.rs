// SPDX-License-Identifier: GPL-2.0
//! Which page has which place of the card's translation table, and which evictions are unanswered.

use crate::abi::card::*;
use kernel::prelude::*;

/// Places of the translation table.
pub(crate) struct Table {
    form: Xlt,
    /// Per entry: 0 free, else `ASID << 48 | virtual page number`.
    owner: KVec<u64>,
    /// Per entry: evictions that the card has not answered yet.
    evicting: KVec<u8>,
}

/// An entry that is free but has an eviction unanswered.
const ZOMBIE: u64 = u64::MAX;

impl Table {
    /// A table without pages.
    pub(crate) fn new(form: Xlt) -> Result<Self> {
        let entries = form.entries() as usize;
        Ok(Self {
            form,
            owner: KVec::from_elem(0u64, entries, GFP_KERNEL)?,
            evicting: KVec::from_elem(0u8, entries, GFP_KERNEL)?,
        })
    }

    /// Takes a free place for a page, among those it can have.
    pub(crate) fn take(&mut self, asid: u32, vpn: u64) -> Option<u32> {
        let index = self.free(asid, vpn)?;
        self.owner[index as usize] = u64::from(asid) << 48 | vpn;
        Some(index)
    }

    /// A free place for a page.
    pub(crate) fn free(&self, asid: u32, vpn: u64) -> Option<u32> {
        self.form
            .free(asid, vpn, |place| self.owner[place as usize] == 0)
    }

    /// The pages in the way of a page: up to `MAX_WAYS`, as (ASID, page number).
    pub(crate) fn rivals(&self, asid: u32, vpn: u64) -> [(u32, u64); MAX_WAYS] {
        core::array::from_fn(|n| {
            if n as u32 >= self.form.ways {
                return (0, 0);
            }
            let owner = self.owner[self.form.place(asid, vpn, n as u32) as usize];
            if owner == ZOMBIE {
                (0, 0)
            } else {
                ((owner >> 48) as u32, owner & ((1 << 48) - 1))
            }
        })
    }

    /// Gives a place back.
    pub(crate) fn give_back(&mut self, index: u32) {
        let index = index as usize;
        self.owner[index] = if self.evicting[index] == 0 { 0 } else { ZOMBIE };
    }

    /// Notes that an eviction is to be asked for, unless very many have not been answered.
    pub(crate) fn evict_asked(&mut self, index: u32) -> bool {
        let asked = &mut self.evicting[index as usize];
        let more = asked.checked_add(1);
        *asked = more.unwrap_or(*asked);
        more.is_some()
    }

    /// Notes an answer to an eviction; gives the page that has the place, and whether no other answer is due.
    pub(crate) fn evict_answered(&mut self, index: u32) -> Option<(u32, u64, bool)> {
        let i = index as usize;
        if i >= self.owner.len() || self.evicting[i] == 0 {
            return None;
        }
        self.evicting[i] -= 1;
        match self.owner[i] {
            0 => None,
            ZOMBIE => {
                if self.evicting[i] == 0 {
                    self.owner[i] = 0;
                }
                None
            }
            owner => {
                let vpn = owner & ((1 << 48) - 1);
                Some(((owner >> 48) as u32, vpn, self.evicting[i] == 0))
            }
        }
    }

    /// Places that are taken.
    pub(crate) fn used(&self) -> u64 {
        self.owner.iter().filter(|owner| **owner != 0).count() as u64
    }

    /// The card has lost its state: nothing is answered any more.
    pub(crate) fn clear(&mut self) {
        self.evicting.iter_mut().for_each(|e| *e = 0);
        for owner in self.owner.iter_mut() {
            if *owner == ZOMBIE {
                *owner = 0;
            }
        }
    }
}
