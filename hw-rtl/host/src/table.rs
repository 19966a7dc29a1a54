// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card's translation table as its host knows it: which pages lie where, and how often each is in use.

use crate::memory::pages;
use berth_abi::card::{XLT_WAYS, Xlt};
use berth_abi::message::{Entry, PageRevoke, Typed, code};
use berth_abi::ring::*;
use std::collections::HashMap;

/// A page in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its address space.
    pub asid: u32,
    /// Its number there.
    pub vpn: u64,
    /// Else it can only be read.
    pub writable: bool,
    /// Ranges that hold it.
    pub uses: u32,
}

/// A range of an address space that somebody holds, or asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Address space.
    pub asid: u32,
    /// Virtual address.
    pub va: u64,
    /// Bytes.
    pub len: u64,
    /// The card will write, or has written.
    pub write: bool,
}

impl Span {
    /// Its pages; those of no bytes are one.
    #[must_use]
    pub fn pages(&self) -> std::ops::Range<u64> {
        pages(self.va, self.len)
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Table(HashMap<u32, Place>);

impl Table {
    /// Where a page lies that may be used so.
    #[must_use]
    pub fn find(&self, asid: u32, vpn: u64, write: bool) -> Option<u32> {
        let fits = |p: &Place| (p.asid, p.vpn) == (asid, vpn) && (p.writable || !write);
        (0..XLT_WAYS).map(|n| Xlt::HERE.place(asid, vpn, n)).find(|place| self.0.get(place).is_some_and(fits))
    }

    /// Places of a page that hold none.
    #[must_use]
    pub fn free(&self, asid: u32, vpn: u64) -> Vec<u32> {
        (0..XLT_WAYS).map(|n| Xlt::HERE.place(asid, vpn, n)).filter(|place| !self.0.contains_key(place)).collect()
    }

    /// Puts a page into a place.
    pub fn install(&mut self, place: u32, (asid, vpn): (u32, u64), writable: bool) {
        self.0.insert(place, Place { asid, vpn, writable, uses: 0 });
    }

    /// All pages of a range have one use more, or none has; which of the two.
    pub fn acquire(&mut self, span: Span) -> bool {
        let found: Option<Vec<u32>> = span.pages().map(|vpn| self.find(span.asid, vpn, span.write)).collect();
        let places = found.iter().flatten();
        places.for_each(|place| self.0.get_mut(place).expect("just found").uses += 1);
        found.is_some()
    }

    /// A range is not held any more.
    pub fn release(&mut self, span: Span) {
        span.pages().for_each(|vpn| self.release_page(span, vpn));
    }

    pub(crate) fn release_page(&mut self, span: Span, vpn: u64) {
        let place = self.find(span.asid, vpn, span.write).and_then(|place| self.0.get_mut(&place));
        place.into_iter().for_each(|place| place.uses = place.uses.saturating_sub(1));
    }

    /// Drops a page that is not in use; whether it was.
    pub fn evict(&mut self, place: u32) -> bool {
        let idle = self.0.get(&place).is_some_and(|p| p.uses == 0);
        idle && self.0.remove(&place).is_some()
    }

    /// Drops a page, in use or not.
    pub fn revoke(&mut self, place: u32) {
        self.0.remove(&place);
    }

    /// Carries out a command of the driver, and gives the event that answers it.
    pub fn execute(&mut self, command: &Entry) -> Option<Entry> {
        match code(command) {
            CMD_PAGE_INSTALL => {
                installed_pages(command).for_each(|(key, place, _, writable)| self.install(place, key, writable));
                None
            }
            CMD_PAGE_EVICT => Some(evict_answer(command, |place| self.evict(place))),
            _ => {
                self.revoke(PageRevoke::of(command).expect("a command about pages").index);
                None
            }
        }
    }
}
