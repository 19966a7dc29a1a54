// SPDX-License-Identifier: GPL-2.0
//! Which page has which place of the card's translation table, and which evictions are unanswered.

use crate::abi::card::*;
use core::ops::RangeInclusive;
use kernel::prelude::*;

/// Places of the translation table.
pub(crate) struct Table {
    form: Xlt,
    /// Per entry: 0 free, else `ASID << 48 | virtual page number`.
    owner: KVec<u64>,
    /// Per entry: evictions that the card has not answered yet.
    evicting: KVec<u8>,
    /// Per row: a bit for each entry that is free.
    free: KVec<u16>,
}

/// The card's answer to an eviction.
#[derive(Clone, Copy, Default)]
pub(crate) struct Evicted {
    pub(crate) asid: u32,
    pub(crate) vpn: u64,
    pub(crate) place: u16,
    /// The page is not in the table any more; else it is in use.
    pub(crate) dropped: bool,
    /// No other answer is due for it.
    pub(crate) last: bool,
}

/// An entry that is free but has an eviction unanswered.
const ZOMBIE: u64 = u64::MAX;

/// The bits of the first `n` entries of a row, which has [`MAX_WAYS`] at most.
const fn ways(n: u32) -> u16 {
    ((1 << n) - 1) as u16
}

impl Table {
    /// A table without pages.
    pub(crate) fn new(form: Xlt) -> Result<Self> {
        let entries = form.entries() as usize;
        Ok(Self {
            form,
            owner: KVec::from_elem(0u64, entries, GFP_KERNEL)?,
            evicting: KVec::from_elem(0u8, entries, GFP_KERNEL)?,
            free: KVec::from_elem(ways(form.ways), form.rows as usize, GFP_KERNEL)?,
        })
    }

    /// Takes a free place for each of some pages, among those it can have; `places` has room for them.
    ///
    /// # Errors
    ///
    /// The page for which there is none; nothing is taken then.
    pub(crate) fn take(
        &mut self,
        asid: u32,
        pages: RangeInclusive<u64>,
        places: &mut KVec<u16>,
    ) -> Result<(), u64> {
        for vpn in pages {
            let Some(index) = self.free(asid, vpn) else {
                places.iter().for_each(|place| self.give_back(*place));
                return Err(vpn);
            };
            self.owner[index as usize] = u64::from(asid) << 48 | vpn;
            let (row, way) = self.split(index);
            self.free[row] &= !way;
            // At most `MAX_WAYS * XLT_ROWS`.
            let _ = places.push_within_capacity(index as u16);
        }
        Ok(())
    }

    /// A free place for a page: in the row of the two that has more of them, so that rows fill evenly.
    pub(crate) fn free(&self, asid: u32, vpn: u64) -> Option<u32> {
        let rows = self.form.rows(asid, vpn);
        let first = self.free[rows[0] as usize] & ways(self.form.ways / 2);
        let second = self.free[rows[1] as usize] & !ways(self.form.ways / 2);
        let (row, free) = if second.count_ones() > first.count_ones() {
            (rows[1], second)
        } else {
            (rows[0], first)
        };
        (free != 0).then(|| row * self.form.ways + free.trailing_zeros())
    }

    /// The row of a place, and its bit there.
    fn split(&self, place: u32) -> (usize, u16) {
        let ways = self.form.ways;
        ((place / ways) as usize, 1 << (place % ways))
    }

    /// A place is nobody's any more.
    fn set_free(&mut self, place: u32) {
        self.owner[place as usize] = 0;
        let (row, way) = self.split(place);
        self.free[row] |= way;
    }

    /// The pages in the way of a page: up to `MAX_WAYS`, as (ASID, page number, place).
    pub(crate) fn rivals(&self, asid: u32, vpn: u64) -> [(u32, u64, u16); MAX_WAYS] {
        core::array::from_fn(|n| {
            if n as u32 >= self.form.ways {
                return (0, 0, 0);
            }
            let place = self.form.place(asid, vpn, n as u32) as u16;
            match self.owner[usize::from(place)] {
                ZOMBIE => (0, 0, 0),
                owner => ((owner >> 48) as u32, owner & ((1 << 48) - 1), place),
            }
        })
    }

    /// Gives a place back.
    pub(crate) fn give_back(&mut self, place: u16) {
        let index = usize::from(place);
        if self.evicting[index] == 0 {
            self.set_free(place.into());
        } else {
            self.owner[index] = ZOMBIE;
        }
    }

    /// Notes that an eviction is to be asked for, unless very many have not been answered.
    pub(crate) fn evict_asked(&mut self, place: u16) -> bool {
        let asked = &mut self.evicting[usize::from(place)];
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
                    self.set_free(index);
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
        for place in 0..self.form.entries() {
            if self.owner[place as usize] == ZOMBIE {
                self.set_free(place);
            }
        }
    }
}
