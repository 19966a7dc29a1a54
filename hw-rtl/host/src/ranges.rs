// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host for benches of modules that ask for ranges of memory: what stands behind their port, which is the card's
//! translation table ([`Table`]) and the driver ([`Pager`]), without rings between them.
//!
//! Whoever asks is a `user` with a `tag`, as on the port. A page that nobody has named before is there at once, or not, by
//! chance ([`Ranges::warm`]). What a bench injects: pages that are missing ([`Ranges::evict`]), that cannot be had
//! ([`Ranges::refuse`], [`Ranges::unmap`]) or are taken away ([`Ranges::revoke`]), a short budget, answers that are late or
//! that nobody asked for ([`Ranges::stray`]).

use crate::memory::{Access, Memory, PAGE, pages};
use crate::pager::{Page, Pager};
use crate::table::{Span, Table};
use berth_abi::cpu::{XLT_HIT, XLT_MISS, XLT_READY};
use berth_abi::message::{self, PageNeed, PageReady, Typed};
use berth_random::Rng;
use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// What a user is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Who asked.
    pub user: usize,
    /// With which tag.
    pub tag: u16,
    /// `XLT_*`: the range is held, the driver is asked, the driver has answered.
    pub kind: u32,
    /// The driver's answer (`PAGE_*`).
    pub status: u8,
}

/// The host. Times are in cycles.
pub struct Ranges {
    /// Chance from 0 to 1 that a page is there before it is asked for.
    pub warm: f64,
    /// From a request to the table's answer.
    pub lookup: u64,
    pager: Pager,
    table: Table,
    memory: Memory,
    rng: Rng,
    fill: u8,
    /// All pages that there have been; some are not in their address space any more.
    frames: HashMap<(u32, u64), Page>,
    /// Those of them that have been named since the reset.
    named: HashSet<(u32, u64)>,
    /// Pages that are in use and go from the table when they are not.
    going: HashSet<(u32, u64)>,
    /// What is held, and of each holder the pages that have been revoked since.
    held: BTreeMap<Span, Vec<Vec<Range<u64>>>>,
    uses: HashMap<(u32, u64), u32>,
    /// What was missing and is asked for again.
    asked: HashMap<(usize, u16), Span>,
    waiting: HashSet<(usize, u16)>,
    replies: Vec<(u64, Reply)>,
    bytes: u64,
    /// Most bytes held at any time.
    pub peak: u64,
}

impl Ranges {
    /// A host whose page service takes so long, with memory of bytes `fill`.
    #[must_use]
    pub fn new(seed: u64, service: u64, fill: u8) -> Self {
        Self {
            warm: 1.0,
            lookup: 1,
            pager: Pager::new(u64::MAX, service),
            table: Table::default(),
            memory: Memory::new(seed),
            rng: Rng(seed ^ 0x7261_6e67),
            fill,
            frames: HashMap::new(),
            named: HashSet::new(),
            going: HashSet::new(),
            held: BTreeMap::new(),
            uses: HashMap::new(),
            asked: HashMap::new(),
            waiting: HashSet::new(),
            replies: Vec::new(),
            bytes: 0,
            peak: 0,
        }
    }

    /// The card is reset: it holds nothing and asks for nothing.
    pub fn reset(&mut self) {
        self.pager.reset(&self.memory);
        self.table = Table::default();
        self.named.clear();
        self.going.clear();
        (self.held, self.uses, self.bytes) = Default::default();
        (self.asked, self.waiting, self.replies) = Default::default();
    }

    /// Bytes that may be pinned.
    pub fn set_budget(&mut self, bytes: u64) {
        self.pager.set_budget(bytes);
    }

    // ---- what the module does ------------------------------------------------------------------

    /// A user asks for a range at cycle `now`. False if it does so again, as the driver has answered.
    pub fn acquire(&mut self, now: u64, user: usize, tag: u16, span: Span) -> bool {
        span.pages().for_each(|vpn| self.know(span.asid, vpn, true));
        let before = self.asked.remove(&(user, tag));
        assert!(before.is_none_or(|asked| asked == span), "asked again for something else: {before:x?}, {span:x?}");
        if !self.hold(now, user, tag, span) {
            self.asked.insert((user, tag), span);
            self.request(now, user, tag, span);
        }
        before.is_none()
    }

    /// A user acquires a range if it is there.
    pub fn look(&mut self, now: u64, user: usize, tag: u16, span: Span) {
        span.pages().for_each(|vpn| self.know(span.asid, vpn, true));
        self.hold(now, user, tag, span);
    }

    /// A user asks whether a range is there.
    pub fn see(&mut self, now: u64, user: usize, tag: u16, span: Span) {
        span.pages().for_each(|vpn| self.know(span.asid, vpn, true));
        let hit = span.pages().all(|vpn| self.table.find(span.asid, vpn, span.write).is_some());
        self.tell(now, user, tag, hit);
    }

    /// A user asks for a range without holding it.
    pub fn probe(&mut self, now: u64, user: usize, tag: u16, span: Span) {
        self.see(now, user, tag, span);
        if !span.pages().all(|vpn| self.table.find(span.asid, vpn, span.write).is_some()) {
            self.request(now, user, tag, span);
        }
    }

    /// True if the range is held now, of which the user is told.
    fn hold(&mut self, now: u64, user: usize, tag: u16, span: Span) -> bool {
        let hit = self.table.acquire(span);
        self.tell(now, user, tag, hit);
        if hit {
            self.held.entry(span).or_default().push(Vec::new());
            span.pages().for_each(|vpn| *self.uses.entry((span.asid, vpn)).or_default() += 1);
            self.bytes += span.len;
            self.peak = self.peak.max(self.bytes);
        }
        hit
    }

    fn tell(&mut self, now: u64, user: usize, tag: u16, hit: bool) {
        let reply = Reply { user, tag, kind: if hit { XLT_HIT } else { XLT_MISS }, status: 0 };
        self.replies.push((now + self.lookup, reply));
    }

    fn request(&mut self, now: u64, user: usize, tag: u16, span: Span) {
        let Span { asid, va, len, write } = span;
        self.waiting.insert((user, tag));
        let need = PageNeed { tag: (user as u32) << 16 | u32::from(tag), asid, write, va, len: len as u32 };
        self.pager.event(&need.encode(), now + self.lookup, &self.memory);
    }

    /// A range goes back, which must be held.
    pub fn release(&mut self, span: Span) {
        let holders = self.held.get_mut(&span).unwrap_or_else(|| panic!("{span:x?} goes back that is not held"));
        let stale = holders.iter().position(|lost| !lost.is_empty()).unwrap_or(0);
        let lost = holders.swap_remove(stale);
        if holders.is_empty() {
            self.held.remove(&span);
        }
        self.bytes -= span.len;
        for vpn in span.pages() {
            let uses = self.uses.get_mut(&(span.asid, vpn)).expect("pages of what is held");
            *uses -= 1;
            if !lost.iter().any(|gone| gone.contains(&vpn)) {
                self.table.release_page(span, vpn);
            }
            if self.going.contains(&(span.asid, vpn)) {
                self.drop_idle(span.asid, vpn);
            }
        }
    }

    /// DMA to or from a range, of which each page must be held. False if some of it is revoked.
    #[must_use]
    pub fn reaches(&self, span: Span) -> bool {
        let held = |vpn: u64| self.uses.get(&(span.asid, vpn)).is_some_and(|uses| *uses > 0);
        assert!(span.pages().all(held), "DMA to {span:x?}, which is not held");
        span.pages().all(|vpn| self.table.find(span.asid, vpn, span.write).is_some())
    }

    /// What a user is told at cycle `now`, the oldest first.
    pub fn reply(&mut self, now: u64, user: usize) -> Option<Reply> {
        self.serve(now);
        self.replies.iter().find(|(due, reply)| *due <= now && reply.user == user).map(|(_, reply)| *reply)
    }

    /// It has taken that.
    pub fn taken(&mut self, reply: Reply) {
        let place = self.replies.iter().position(|r| r.1 == reply).expect("it is told");
        self.replies.remove(place);
        let request = (reply.user, reply.tag);
        if reply.kind == XLT_READY && self.waiting.remove(&request) && reply.status != 0 {
            self.asked.remove(&request);
        }
    }

    fn serve(&mut self, now: u64) {
        if !self.pager.dues().any(|due| due <= now) {
            return;
        }
        let (commands, short) = self.pager.serve(now, &self.memory);
        for command in commands {
            match PageReady::of(&command) {
                Some(PageReady { tag, status }) => {
                    let (user, tag) = ((tag >> 16) as usize, tag as u16);
                    self.replies.push((now, Reply { user, tag, kind: XLT_READY, status: status as u8 }));
                }
                None => self.execute(&[command]),
            }
        }
        if short > 0 {
            self.pager.evict_idle();
            self.evict_now();
        }
    }

    fn execute(&mut self, commands: &[message::Entry]) {
        for command in commands {
            if let Some(event) = self.table.execute(command) {
                self.pager.event(&event, 0, &self.memory);
            }
        }
    }

    fn evict_now(&mut self) {
        let commands = self.pager.evictions();
        self.execute(&commands);
    }

    /// A page goes from the table, now or when nobody holds it any more.
    fn drop_idle(&mut self, asid: u32, vpn: u64) {
        self.pager.evict_page(asid, vpn);
        self.evict_now();
        match self.table.find(asid, vpn, false) {
            Some(_) => _ = self.going.insert((asid, vpn)),
            None => _ = self.going.remove(&(asid, vpn)),
        }
    }

    /// Makes a page of an address space, if it has not been named.
    fn know(&mut self, asid: u32, vpn: u64, asked: bool) {
        if !self.named.insert((asid, vpn)) {
            return;
        }
        if let Entry::Vacant(frame) = self.frames.entry((asid, vpn)) {
            let page = Page { bus: self.memory.alloc(1, Access::None), writable: true };
            self.memory.poke(page.bus, &[self.fill; PAGE as usize]);
            self.pager.map(asid, vpn, *frame.insert(page));
        }
        let there = self.pager.page(asid, vpn).is_some() && !self.pager.is_refused(asid, vpn);
        if asked && there && self.rng.chance(self.warm) {
            if self.table.free(asid, vpn).is_empty() {
                self.pager.evict_idle();
                self.evict_now();
            }
            let commands = self.pager.pin(asid, [vpn], &self.memory);
            self.execute(&commands);
        }
    }

    // ---- what a bench injects ------------------------------------------------------------------

    /// Pages are missing when they are asked for next after nobody has held them.
    pub fn evict(&mut self, asid: u32, va: u64, len: u64) {
        for vpn in pages(va, len) {
            self.know(asid, vpn, false);
            self.drop_idle(asid, vpn);
        }
    }

    /// Requests for a page are answered so (`PAGE_*`).
    pub fn refuse(&mut self, asid: u32, vpn: u64, status: u8) {
        self.pager.refuse(asid, vpn, status.into());
        self.drop_idle(asid, vpn);
    }

    /// Pages that an address space does not have any more. Those that are held stay until they go back.
    pub fn unmap(&mut self, asid: u32, va: u64, len: u64) {
        for vpn in pages(va, len) {
            self.know(asid, vpn, false);
            self.pager.unmap(asid, vpn..vpn + 1);
            self.drop_idle(asid, vpn);
        }
    }

    /// It has them again.
    pub fn map(&mut self, asid: u32, va: u64, len: u64) {
        for vpn in pages(va, len) {
            if let Some(page) = self.frames.get(&(asid, vpn)) {
                self.pager.map(asid, vpn, *page);
            }
        }
    }

    /// Takes pages from the card, held or not. Whoever asks for them afterwards waits for the driver.
    pub fn revoke(&mut self, asid: u32, va: u64, len: u64) {
        let gone = pages(va, len);
        gone.clone().for_each(|vpn| self.know(asid, vpn, false));
        let commands = self.pager.revoke(asid, gone.clone());
        self.execute(&commands);
        self.pager.revoked(asid, gone.clone(), &self.memory);
        self.map(asid, va, len);
        for (span, holders) in &mut self.held {
            if span.asid == asid && span.pages().any(|vpn| gone.contains(&vpn)) {
                holders.iter_mut().for_each(|lost| lost.push(gone.clone()));
            }
        }
    }

    /// The driver answers a request that was not made or is answered. False if it is made and not answered.
    pub fn stray(&mut self, now: u64, user: usize, tag: u16, status: u8) -> bool {
        let stray = !self.waiting.contains(&(user, tag));
        if stray {
            self.replies.insert(0, (now, Reply { user, tag, kind: XLT_READY, status }));
        }
        stray
    }

    // ---- what a bench looks at -----------------------------------------------------------------

    /// Ranges that are held.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.held.values().map(Vec::len).sum()
    }

    /// Those of them of which pages have been revoked since.
    #[must_use]
    pub fn stale(&self) -> usize {
        self.held.values().flatten().filter(|lost| !lost.is_empty()).count()
    }

    /// Pages that are held, each as often as it is.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.uses.values().sum()
    }

    /// The same, of a part of an address space.
    #[must_use]
    pub fn pages_in(&self, asid: u32, start: u64, end: u64) -> u32 {
        pages(start, end - start).filter_map(|vpn| self.uses.get(&(asid, vpn))).sum()
    }

    /// Whether one range that is held has all of this one.
    #[must_use]
    pub fn covers(&self, span: Span) -> bool {
        let end = span.va + span.len;
        self.held.keys().any(|held| held.asid == span.asid && held.va <= span.va && end <= held.va + held.len)
    }

    /// Requests that the driver has not answered.
    #[must_use]
    pub fn waiting(&self, which: impl Fn(usize, u16) -> bool) -> usize {
        self.waiting.iter().filter(|(user, tag)| which(*user, *tag)).count()
    }

    /// Replies and answers that are to come.
    #[must_use]
    pub fn to_come(&self) -> usize {
        self.replies.len() + self.pager.dues().count()
    }

    /// Bytes of an address space.
    pub fn read(&mut self, asid: u32, va: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = va + bytes.len() as u64;
            self.know(asid, at / PAGE, true);
            let n = ((PAGE - at % PAGE) as usize).min(len - bytes.len());
            bytes.extend(self.memory.peek(self.frames[&(asid, at / PAGE)].bus + at % PAGE, n));
        }
        bytes
    }

    /// Writes them.
    pub fn write(&mut self, asid: u32, va: u64, mut data: &[u8]) {
        let mut at = va;
        while !data.is_empty() {
            self.know(asid, at / PAGE, true);
            let (now, later) = data.split_at(((PAGE - at % PAGE) as usize).min(data.len()));
            self.memory.poke(self.frames[&(asid, at / PAGE)].bus + at % PAGE, now);
            (data, at) = (later, at + now.len() as u64);
        }
    }
}
