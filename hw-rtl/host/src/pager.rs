// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's page service: pins what the card asks for, after the time that this takes, and unpins what it has left.

use crate::memory::{Access, Memory, PAGE, pages};
use berth_abi::card::Xlt;
use berth_abi::message::{Entry, PageNeed, PageReady, PageRelease, PageRevoke, code};
use berth_abi::ring::*;
use berth_abi::status::{PAGE_FAULT, PAGE_OK, PAGE_OVER_BUDGET};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

/// A page by its address space and its number there.
type Key = (u32, u64);

/// A page of a process.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Bus address.
    pub bus: u64,
    /// Else it can only be read.
    pub writable: bool,
}

/// A page that has a place in the card's table.
#[derive(Clone, Copy, Debug)]
struct Pin {
    key: Key,
    page: Page,
    /// An eviction is on its way.
    evicting: bool,
    /// A use ended while an eviction was on its way.
    again: bool,
}

/// What the driver does with the page requests of an address space, where it does not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAnswer {
    /// The answer takes so many cycles more.
    Late(u64),
    /// The answer is this status (`PAGE_*`), and no page is installed.
    Lie(u32),
    /// There is none, until the driver does something else again.
    Never,
}

/// What a look at a page request comes to.
enum Look {
    /// An answer.
    Answer(u32),
    /// It waits for an eviction.
    Waits,
    /// It waits for budget.
    Short,
}

/// Pages of processes, and which of them are pinned and known to the card.
#[derive(Debug)]
pub struct Pager {
    budget: u64,
    latency: u64,
    pages: HashMap<Key, Page>,
    pins: BTreeMap<Key, u32>,
    table: HashMap<u32, Pin>,
    /// Requests, and when they are due.
    needs: VecDeque<(u64, PageNeed)>,
    answers: HashMap<u32, PageAnswer>,
    /// Pages that cannot be had, with the answer (`PAGE_*`).
    refused: HashMap<Key, u32>,
    /// Requests that have no answer for as long as that is so.
    withheld: Vec<PageNeed>,
    /// What the card has left stays pinned.
    keeps: bool,
    /// Evictions of which the card has not been told.
    evictions: Vec<Entry>,
    /// Bytes pinned now: of what can only be read, of what is writable.
    pinned: [u64; 2],
    /// Most bytes pinned at any time: of what can only be read, of what is writable, of both.
    pub peak: [u64; 3],
    /// Page requests so far.
    pub requests: u64,
}

impl Pager {
    /// With a budget of pinned bytes, and the cycles from a page request to its answer.
    #[must_use]
    pub fn new(budget: u64, latency: u64) -> Self {
        Self {
            budget,
            latency,
            pages: HashMap::new(),
            pins: BTreeMap::new(),
            table: HashMap::new(),
            needs: VecDeque::new(),
            answers: HashMap::new(),
            refused: HashMap::new(),
            withheld: Vec::new(),
            keeps: false,
            evictions: Vec::new(),
            pinned: [0; 2],
            peak: [0; 3],
            requests: 0,
        }
    }

    /// Gives address space `asid` a page.
    pub fn map(&mut self, asid: u32, vpn: u64, page: Page) {
        self.pages.insert((asid, vpn), page);
    }

    /// Takes pages from an address space. What is pinned stays so.
    pub fn unmap(&mut self, asid: u32, vpns: Range<u64>) {
        vpns.for_each(|vpn| _ = self.pages.remove(&(asid, vpn)));
    }

    /// Another budget of pinned bytes, from now on.
    pub fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes;
    }

    /// Requests for a page have this answer (`PAGE_*`).
    pub fn refuse(&mut self, asid: u32, vpn: u64, status: u32) {
        self.refused.insert((asid, vpn), status);
    }

    /// Whether requests for a page are refused.
    #[must_use]
    pub fn is_refused(&self, asid: u32, vpn: u64) -> bool {
        self.refused.contains_key(&(asid, vpn))
    }

    /// A page of an address space, if it has that.
    #[must_use]
    pub fn page(&self, asid: u32, vpn: u64) -> Option<Page> {
        self.pages.get(&(asid, vpn)).copied()
    }

    /// What the card has left stays pinned from now on.
    pub fn keep_pinned(&mut self) {
        self.keeps = true;
    }

    /// Bytes pinned now.
    #[must_use]
    pub fn pinned(&self) -> u64 {
        self.pinned.iter().sum()
    }

    /// Whether page requests wait for their answer.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.needs.is_empty()
    }

    /// When the page requests that wait are due.
    pub fn dues(&self) -> impl Iterator<Item = u64> {
        self.needs.iter().map(|need| need.0)
    }

    /// The card has been reset: nothing is pinned, nobody asks.
    pub fn reset(&mut self, memory: &Memory) {
        self.needs.clear();
        self.withheld.clear();
        self.evictions.clear();
        self.pins.clear();
        self.pinned = [0; 2];
        self.table.drain().for_each(|(_, pin)| memory.set_dma(pin.page.bus, Access::None));
    }

    /// Takes an event of the card at cycle `now`; false if it is not about pages.
    pub fn event(&mut self, event: &Entry, now: u64, memory: &Memory) -> bool {
        match code(event) {
            EV_PAGE_NEED => {
                self.requests += 1;
                let need = PageNeed::decode(event);
                match self.answers.get(&need.asid) {
                    Some(PageAnswer::Never) => self.withheld.push(need),
                    Some(PageAnswer::Late(cycles)) => self.needs.push_back((now + self.latency + cycles, need)),
                    _ => self.needs.push_back((now + self.latency, need)),
                }
            }
            EV_PAGE_RELEASE if self.keeps => (),
            EV_PAGE_RELEASE => {
                let PageRelease { asid, va, len, .. } = PageRelease::decode(event);
                pages(va, len.into()).for_each(|vpn| self.evict((asid, vpn)));
            }
            EV_PAGE_EVICTED => {
                evicted_pages(event).for_each(|(index, dropped)| self.evicted(index, dropped, memory));
            }
            _ => return false,
        }
        true
    }

    fn evicted(&mut self, index: u32, dropped: bool, memory: &Memory) {
        let Some(pin) = self.table.get_mut(&index) else {
            panic!("EV_PAGE_EVICTED for entry {index} that holds nothing");
        };
        pin.evicting = false;
        let again = std::mem::take(&mut pin.again);
        let key = pin.key;
        if self.pins.get(&key) != Some(&index) {
            // Revoked meanwhile; the entry was kept for this answer.
            self.table.remove(&index);
        } else if dropped {
            self.unpin(key, memory);
        } else if again {
            self.evict(key);
        }
    }

    fn unpin(&mut self, key: Key, memory: &Memory) {
        let Some(index) = self.pins.remove(&key) else { return };
        let pin = self.table[&index];
        self.pinned[usize::from(pin.page.writable)] -= PAGE;
        memory.set_dma(pin.page.bus, Access::None);
        if !pin.evicting {
            // Else its place is free only when the eviction has been answered.
            self.table.remove(&index);
        }
    }

    fn evict(&mut self, key: Key) {
        let Some(&index) = self.pins.get(&key) else { return };
        let pin = self.table.get_mut(&index).expect("pins and table agree");
        if std::mem::replace(&mut pin.evicting, true) {
            pin.again = true;
            return;
        }
        if !self.evictions.last_mut().is_some_and(|last| evict_add(last, index)) {
            self.evictions.push(evict_command(index));
        }
    }

    /// Asks for a page whether it is idle, if it is pinned.
    pub fn evict_page(&mut self, asid: u32, vpn: u64) {
        self.evict((asid, vpn));
    }

    /// Asks for every pinned page whether it is idle.
    pub fn evict_idle(&mut self) {
        let keys: Vec<_> = self.pins.keys().copied().collect();
        keys.into_iter().for_each(|key| self.evict(key));
    }

    /// The commands for evictions that the card has not heard of.
    pub fn evictions(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.evictions)
    }

    /// Pins pages that an address space has, and gives the commands that make them known to the card. Panics when one
    /// finds no place in the card's table.
    pub fn pin(&mut self, asid: u32, vpns: impl IntoIterator<Item = u64>, memory: &Memory) -> Vec<Entry> {
        let mut commands: Vec<Entry> = Vec::new();
        for vpn in vpns {
            let (key, page) = ((asid, vpn), self.pages[&(asid, vpn)]);
            let index = Xlt::HERE.free(asid, vpn, |place| !self.table.contains_key(&place));
            let index = index.expect("a free place in the translation table");
            self.table.insert(index, Pin { key, page, evicting: false, again: false });
            self.pins.insert(key, index);
            memory.set_dma(page.bus, if page.writable { Access::ReadWrite } else { Access::Read });
            self.pinned[usize::from(page.writable)] += PAGE;
            let [read, write] = self.pinned;
            for (peak, now) in self.peak.iter_mut().zip([read, write, read + write]) {
                *peak = now.max(*peak);
            }
            if !commands.last_mut().is_some_and(|last| install_add(last, key, index, page.bus, page.writable)) {
                let mut entry = [0; ENTRY_WORDS];
                install_add(&mut entry, key, index, page.bus, page.writable);
                commands.push(entry);
            }
        }
        commands
    }

    /// Answers what is due at cycle `now`: commands, and bytes of the requests that wait for budget.
    pub fn serve(&mut self, now: u64, memory: &Memory) -> (Vec<Entry>, u32) {
        let (mut commands, mut short) = (Vec::new(), 0);
        for (due, need) in std::mem::take(&mut self.needs) {
            if due <= now {
                match self.look(&need, &mut commands, memory) {
                    Look::Answer(status) => {
                        commands.push(PageReady { tag: need.tag, status }.encode());
                        continue;
                    }
                    Look::Waits => (),
                    Look::Short => short += need.len,
                }
            }
            self.needs.push_back((due, need));
        }
        (commands, short)
    }

    fn look(&mut self, need: &PageNeed, commands: &mut Vec<Entry>, memory: &Memory) -> Look {
        let (asid, vpns) = (need.asid, pages(need.va, need.len.into()));
        if let Some(PageAnswer::Lie(status)) = self.answers.get(&asid) {
            return Look::Answer(*status);
        }
        if let Some(status) = vpns.clone().find_map(|vpn| self.refused.get(&(asid, vpn))) {
            return Look::Answer(*status);
        }
        if vpns.clone().any(|vpn| self.page(asid, vpn).is_none_or(|p| need.write && !p.writable)) {
            return Look::Answer(PAGE_FAULT);
        }
        if (vpns.end - vpns.start) * PAGE > self.budget {
            return Look::Answer(PAGE_OVER_BUDGET);
        }
        let mut missing = Vec::new();
        for vpn in vpns {
            match self.pins.get(&(asid, vpn)) {
                None => missing.push(vpn),
                Some(index) if self.table[index].evicting => return Look::Waits,
                Some(_) => (),
            }
        }
        if self.pinned() + missing.len() as u64 * PAGE > self.budget {
            return Look::Short;
        }
        commands.extend(self.pin(asid, missing, memory));
        Look::Answer(PAGE_OK)
    }

    /// What becomes of page requests of `asid` that come from cycle `now` on; `None`: what should. Those that had no
    /// answer so far get theirs, unless there is still to be none.
    pub fn set_answer(&mut self, asid: u32, answer: Option<PageAnswer>, now: u64) {
        match answer {
            Some(answer) => self.answers.insert(asid, answer),
            None => self.answers.remove(&asid),
        };
        if answer != Some(PageAnswer::Never) {
            let due = self.withheld.extract_if(.., |need| need.asid == asid);
            self.needs.extend(due.map(|need| (now, need)));
        }
    }

    /// Takes pages from an address space, and gives the commands that take them from the card.
    pub fn revoke(&mut self, asid: u32, vpns: Range<u64>) -> Vec<Entry> {
        self.unmap(asid, vpns.clone());
        let pinned = self.pins.range((asid, vpns.start)..(asid, vpns.end));
        pinned.map(|(_, &index)| PageRevoke { index }.encode()).collect()
    }

    /// DMA to these pages, which have been revoked, is over: they are out of the card's reach.
    pub fn revoked(&mut self, asid: u32, vpns: Range<u64>, memory: &Memory) {
        let keys: Vec<_> = self.pins.range((asid, vpns.start)..(asid, vpns.end)).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.unpin(key, memory));
    }
}
