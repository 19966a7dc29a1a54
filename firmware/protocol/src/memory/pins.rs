// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pinned pages of one card, as its driver counts them (PC-3; decisions 14, 17–21).
//!
//! A *use* is a send block or a receive that holds all the pages its bytes lie in. Pages are shared: each is pinned
//! once per address space, however many uses it has, and counts once against the budget of its process and that of the
//! card. A use gets all its pages at once or none, so no two uses can hold parts and wait for each other. The caller
//! does the work: [`Pins::acquire`] says which pages to bring in, and the caller reports them with [`Pins::served`].

use super::context::Span;
use crate::base::bound::{Bound, at_most};
use crate::base::fifo::Fifo;
use crate::base::rule::{self, Rule};

/// Number of an address space.
pub type Asid = u16;

/// What a use is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Usage {
    /// A block to send from: held for a short time, because its credit is there already.
    #[default]
    Brief,
    /// A receive behind a credit, or a send pinned as a whole: held until the peer acts, perhaps for ever. Never takes
    /// the reserve.
    Lasting,
}

/// Who asks: `owner` and `tag` are the caller's, and come back from [`Pins::retry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// The caller's number of the connection.
    pub owner: u32,
    /// The connection's number of the block or receive.
    pub tag: u16,
    /// Address space of the bytes.
    pub asid: Asid,
    /// What for.
    pub usage: Usage,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// All pages are there; the use holds them.
    Hit,
    /// The use holds its places in the budget. Bring in its pages, then say [`Pins::served`] or
    /// [`Pins::unserved`].
    Serve {
        /// Pages that are to be pinned.
        pages: u32,
    },
    /// No room now: holds nothing and waits in line. [`Pins::retry`] says when to ask again.
    Wait,
    /// Never: holds nothing and does not wait.
    Refused(PinError),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinError {
    /// More pages than the budget (for a lasting use: less the reserve) will ever hold.
    OverBudget,
    /// No such address space, or it is being closed.
    NoProcess,
    /// An address would exceed 64 bits, or there are no bytes.
    BadRange,
    /// The waiting line is full.
    LineFull,
}

/// What became of served pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Served {
    /// The use holds its pages; the card may touch them until [`Pins::release`].
    Held,
    /// Some were withdrawn meanwhile: the use holds nothing; ask again or give up.
    Gone,
    /// The caller did not hold them; nothing changed.
    NotHeld,
}

/// Sizes and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Pages that the card may have pinned at a time.
    pub budget: u32,
    /// Of these (and of each process's), pages that lasting uses never take: the largest send block. It guarantees
    /// progress (decision 19).
    pub reserve: u32,
    /// A lasting use may take the reserve while there is no other, so that a receive as large as the budget can be
    /// posted. Hosts that also send lose the guarantee of progress.
    pub lend: bool,
    /// Log2 of the page size in bytes.
    pub page_shift: u8,
    /// Time that a page stays pinned after its last use; 0 is allowed (decision 14).
    pub linger: u64,
}

/// Where a page stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// Being brought in; has its place in the budget.
    #[default]
    Coming,
    /// Pinned and mapped for the card.
    Present,
    /// The card has no translation for it any more, but may have begun to touch it.
    Withdrawn,
    /// Not pinned any more; known until its former uses have ended.
    Unpinned,
}

/// One page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Page {
    asid: Asid,
    number: u64,
    /// Uses of either kind.
    brief: u32,
    lasting: u32,
    state: State,
    writable: bool,
    /// Unpinned at this time if unused.
    until: u64,
}

impl Page {
    const fn unused(&self) -> bool {
        self.brief == 0 && self.lasting == 0
    }

    const fn gone(&self) -> bool {
        matches!(self.state, State::Withdrawn | State::Unpinned)
    }

    /// Pinned only because it was used a short time ago.
    const fn lingers(&self) -> bool {
        self.unused() && matches!(self.state, State::Present)
    }

    fn uses(&mut self, usage: Usage) -> &mut u32 {
        match usage {
            Usage::Brief => &mut self.brief,
            Usage::Lasting => &mut self.lasting,
        }
    }
}

/// One address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    asid: Asid,
    budget: u32,
    /// Pages that count against the budget, and those of them in lasting use.
    pinned: u32,
    lasting: u32,
    closing: bool,
}

/// One request that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Waiter {
    request: Request,
    /// Found no room since the last page became free.
    tried: bool,
    /// What it lacks is the card's, so later requests of other processes wait behind it.
    card: bool,
    /// Pages that it lacked.
    short: u32,
}

/// A request lacks memory that others could give up (decision 19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pressure {
    /// The request that waits longest of its kind.
    pub request: Request,
    /// Pages that it lacks.
    pub pages: u32,
    /// Any process's pages help; else only those of the same address space do.
    pub card: bool,
}

/// What a request would take.
#[derive(Default)]
struct Need {
    /// Different pages.
    pages: u32,
    /// Pages that are not pinned yet.
    fresh: u32,
    /// Pages that are not there, or not for writing.
    missing: u32,
    /// Pages that have no lasting use yet.
    lasting: u32,
    /// Pages that linger, of the process.
    lingering: u32,
    /// A page was withdrawn, and some of its uses still hold it.
    gone: bool,
}

/// Pages of one card: at most `PAGES` known at a time, of `PROCESSES` address spaces, and `LINE`
/// requests that wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pins<const PAGES: usize, const PROCESSES: usize, const LINE: usize> {
    config: Config,
    /// In the order of (address space, page number).
    pages: Fifo<Page, PAGES>,
    processes: Fifo<Process, PROCESSES>,
    line: Fifo<Waiter, LINE>,
    pinned: u32,
    lasting: u32,
}

impl<const PAGES: usize, const PROCESSES: usize, const LINE: usize> Pins<PAGES, PROCESSES, LINE> {
    /// Nothing pinned, no process. A budget above `PAGES` counts as `PAGES`.
    pub fn new(config: Config) -> Self {
        let budget = config.budget.min(PAGES as u32);
        let config = Config { budget, page_shift: config.page_shift.min(63), ..config };
        Self { config, pages: Fifo::new(), processes: Fifo::new(), line: Fifo::new(), pinned: 0, lasting: 0 }
    }

    /// An address space that may have up to `budget` pages pinned. False when there is no room
    /// for one more, or it is known.
    pub fn open(&mut self, asid: Asid, budget: u32) -> bool {
        self.process(asid).is_none() && self.processes.push(Process { asid, budget, ..Process::default() })
    }

    /// The process is gone: its requests leave the line and its pages are withdrawn as by [`Pins::withdraw`]. The
    /// address space is forgotten when fence and uses have ended.
    pub fn close(&mut self, asid: Asid) {
        if let Some(p) = self.process_mut(asid) {
            p.closing = true;
        }
        self.leave(|r| r.asid == asid);
        self.withdraw(asid, 0, u64::MAX, |_| false);
        self.reap();
    }

    /// Asks for all pages of `spans` for one use, all or nothing; with `writing` the card will
    /// write to them. The spans of one request are the same in every call about it.
    pub fn acquire<I>(&mut self, request: &Request, spans: I, writing: bool) -> Answer
    where
        I: Iterator<Item = Span> + Clone,
    {
        let asid = request.asid;
        let refuse = |pins: &mut Self, error| {
            pins.cancel(request);
            Answer::Refused(error)
        };
        let Some(process) = self.process(asid).copied().filter(|p| !p.closing) else {
            return refuse(self, PinError::NoProcess);
        };
        let bytes = spans.clone().fold(0u64, |sum, s| sum.saturating_add(s.len as u64));
        if bytes == 0 || spans.clone().any(|s| s.len > 0 && s.va.checked_add(s.len as u64 - 1).is_none()) {
            return refuse(self, PinError::BadRange);
        }
        let lend = self.config.lend && self.lasting == 0;
        let reserve = match request.usage {
            Usage::Lasting if !lend => self.config.reserve,
            _ => 0,
        };
        let fits = process.budget.min(self.config.budget).saturating_sub(match self.config.lend {
            true => 0,
            false => reserve,
        });
        let need = self.need(asid, request.usage, spans.clone(), writing, fits);
        if need.pages > fits {
            return refuse(self, PinError::OverBudget);
        }
        // How many pages too many, for the process and for the card.
        let over = |pinned: u32, more: u32, budget: u32| pinned.saturating_add(more).saturating_sub(budget);
        let lasting = match request.usage {
            Usage::Lasting => need.lasting,
            Usage::Brief => 0,
        };
        let share = |budget: u32| budget.saturating_sub(reserve);
        let spare = |process: bool, over: u32| match over {
            0 => 0,
            _ => {
                let lingering = self.pages.as_slice().iter().filter(|p| p.lingers() && (!process || p.asid == asid));
                over.saturating_sub((lingering.count() as u32).saturating_sub(need.lingering))
            }
        };
        let full = over(self.pages.len() as u32, need.fresh, PAGES as u32);
        let lacks_process = spare(true, over(process.pinned, need.fresh, process.budget)).max(over(
            process.lasting,
            lasting,
            share(process.budget),
        ));
        let lacks_card = spare(false, over(self.pinned, need.fresh, self.config.budget).max(full)).max(over(
            self.lasting,
            lasting,
            share(self.config.budget),
        ));
        let place = self.line.position(|w| w.request == *request);
        let wants = need.fresh > 0 || lasting > 0;
        let behind = wants && self.behind(request, place.unwrap_or(self.line.len()));
        let enough = !behind && lacks_process == 0 && lacks_card == 0;
        if need.gone || !rule::holds(Rule::PinsWithinBudget, enough) {
            let card = lacks_card > 0 && lacks_process == 0 && !need.gone;
            let waiter = Waiter { request: *request, tried: true, card, short: lacks_process.max(lacks_card).max(1) };
            return match place.and_then(|i| self.line.get_mut(i)) {
                Some(w) => {
                    *w = waiter;
                    Answer::Wait
                }
                None => match self.line.push(waiter) {
                    true => Answer::Wait,
                    false => Answer::Refused(PinError::LineFull),
                },
            };
        }
        self.cancel(request);
        self.take(request, spans, need.fresh);
        match need.missing {
            0 => Answer::Hit,
            pages => Answer::Serve { pages },
        }
    }

    /// The pages of a request that was answered with [`Answer::Serve`] are there.
    pub fn served<I>(&mut self, request: &Request, spans: I, writing: bool, now: u64) -> Served
    where
        I: Iterator<Item = Span> + Clone,
    {
        if !self.holds(request, spans.clone()) {
            return Served::NotHeld;
        }
        let mut gone = false;
        self.each(request.asid, spans.clone(), PAGES, |page| {
            match page.state {
                State::Coming => page.state = State::Present,
                State::Present => (),
                State::Withdrawn | State::Unpinned => gone = true,
            }
            page.writable |= writing && page.state == State::Present;
        });
        if gone {
            self.release(request, spans, now);
            return Served::Gone;
        }
        Served::Held
    }

    /// The pages of such a request cannot be had, or are not wanted any more: it then holds nothing. False when it held
    /// nothing before.
    pub fn unserved<I>(&mut self, request: &Request, spans: I, now: u64) -> bool
    where
        I: Iterator<Item = Span> + Clone,
    {
        self.release(request, spans, now)
    }

    /// The use is over. Pages without another use are unpinned after the linger time. False, and nothing changes, when
    /// the request does not hold them.
    pub fn release<I>(&mut self, request: &Request, spans: I, now: u64) -> bool
    where
        I: Iterator<Item = Span> + Clone,
    {
        if !self.holds(request, spans.clone()) {
            return false;
        }
        let until = now.saturating_add(self.config.linger);
        let (usage, mut lasting, mut unused) = (request.usage, 0, false);
        self.each(request.asid, spans, PAGES, |page| {
            let uses = page.uses(usage);
            *uses = uses.saturating_sub(1);
            lasting += (usage == Usage::Lasting && *uses == 0 && page.state != State::Unpinned) as u32;
            if page.unused() {
                page.until = until;
                unused = true;
            }
        });
        if lasting > 0 || unused {
            self.uncount(request.asid, 0, lasting);
            self.sweep(now);
        }
        true
    }

    /// Takes a request that waits out of the line. False when it does not wait.
    pub fn cancel(&mut self, request: &Request) -> bool {
        let before = self.line.len();
        self.leave(|r| r == request);
        before != self.line.len()
    }

    /// A request that may be granted now: [`Pins::acquire`] it again. `None` when none can.
    pub fn retry(&self) -> Option<Request> {
        let mut line = self.line.as_slice().iter().enumerate();
        line.find(|(i, w)| !w.tried && !self.behind(&w.request, *i)).map(|(_, w)| w.request)
    }

    /// The first request of a kind that found no room (decision 19).
    pub fn pressure(&self, usage: Usage) -> Option<Pressure> {
        let waiter = self.line.as_slice().iter().find(|w| w.tried && w.request.usage == usage)?;
        Some(Pressure { request: waiter.request, pages: waiter.short, card: waiter.card })
    }

    /// The application has changed the address space in `va .. va + len` (VC-9). Pages for which `same` (page number)
    /// is false are taken from the card; returns how many. Then fence, and call [`Pins::fenced`]; and tell the owners,
    /// whose uses hold them in vain.
    ///
    /// For unmap and release `same` is false; where only rights or the mapping may have changed
    /// it says whether the address still maps that page with the right to use it (decision 18).
    pub fn withdraw(&mut self, asid: Asid, va: u64, len: u64, mut same: impl FnMut(u64) -> bool) -> u32 {
        let shift = self.config.page_shift;
        let (first, last) = (va >> shift, va.saturating_add(len.saturating_sub(1)) >> shift);
        let mut count = 0;
        for page in at_most(PAGES, self.pages.as_mut_slice()) {
            if page.asid == asid
                && (first..=last).contains(&page.number)
                && len > 0
                && !page.gone()
                && !same(page.number)
            {
                page.state = State::Withdrawn;
                count += 1;
            }
        }
        count
    }

    /// All DMA that had been issued before the last [`Pins::withdraw`] is over (decision 17): withdrawn pages are
    /// unpinned.
    pub fn fenced(&mut self) {
        let mut i = 0;
        let mut bound = Bound::new(PAGES as u32 + 1);
        while let Some(page) = self.pages.get_mut(i) {
            bound.step();
            i += 1;
            if page.state == State::Withdrawn {
                page.state = State::Unpinned;
                let (asid, lasting) = (page.asid, page.lasting > 0);
                self.uncount(asid, 1, lasting as u32);
            }
        }
        self.sweep(0);
    }

    /// Unpins pages whose linger time is over.
    pub fn expire(&mut self, now: u64) {
        self.sweep(now);
    }

    /// When [`Pins::expire`] has something to do next.
    pub fn next_expiry(&self) -> Option<u64> {
        self.pages.as_slice().iter().filter(|p| p.lingers()).map(|p| p.until).min()
    }

    /// The card may touch these bytes now: all their pages are mapped and in use.
    pub fn may_touch(&self, asid: Asid, span: Span, writing: bool) -> bool {
        let page = |n| self.find(asid, n).ok().and_then(|i| self.pages.get(i));
        // The first page that the table does not have ends the loop.
        at_most(PAGES + 1, self.numbers(span))
            .all(|n| page(n).is_some_and(|p| p.state == State::Present && !p.unused() && (p.writable || !writing)))
    }

    /// Pages that count against the card's budget: pinned, or being brought in.
    pub const fn pinned(&self) -> u32 {
        self.pinned
    }

    /// [`Pins::pinned`] in bytes: the number that budget, `RLIMIT_MEMLOCK` and reports use.
    pub const fn pinned_bytes(&self) -> u64 {
        (self.pinned as u64) << self.config.page_shift
    }

    /// Pages in lasting use.
    pub const fn lasting(&self) -> u32 {
        self.lasting
    }

    /// (Pages that count against it, its budget) of an address space.
    pub fn pinned_by(&self, asid: Asid) -> Option<(u32, u32)> {
        self.process(asid).map(|p| (p.pinned, p.budget))
    }

    /// Requests that wait.
    pub const fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Sizes and times.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn process(&self, asid: Asid) -> Option<&Process> {
        self.processes.as_slice().iter().find(|p| p.asid == asid)
    }

    fn process_mut(&mut self, asid: Asid) -> Option<&mut Process> {
        self.processes.as_mut_slice().iter_mut().find(|p| p.asid == asid)
    }

    /// Place of a page in the table, or where it would stand.
    fn find(&self, asid: Asid, number: u64) -> Result<usize, usize> {
        self.pages.as_slice().binary_search_by_key(&(asid, number), |p| (p.asid, p.number))
    }

    /// Numbers of the pages that a span touches.
    fn numbers(&self, span: Span) -> impl Iterator<Item = u64> + Clone + use<PAGES, PROCESSES, LINE> {
        numbers(span, self.config.page_shift)
    }

    /// What a request would take; counts no further than `limit` pages and one.
    fn need<I>(&self, asid: Asid, usage: Usage, spans: I, writing: bool, limit: u32) -> Need
    where
        I: Iterator<Item = Span> + Clone,
    {
        let mut need = Need::default();
        let most = (limit as usize).saturating_add(1);
        for number in distinct(spans, self.config.page_shift, most) {
            need.pages += 1;
            if need.pages > limit {
                break;
            }
            match self.find(asid, number).ok().and_then(|i| self.pages.get(i)) {
                None => {
                    need.fresh += 1;
                    need.missing += 1;
                    need.lasting += 1;
                }
                Some(page) => {
                    need.gone |= page.gone();
                    need.lingering += page.lingers() as u32;
                    need.missing += (page.state != State::Present || (writing && !page.writable)) as u32;
                    need.lasting += (usage == Usage::Lasting && page.lasting == 0) as u32;
                }
            }
        }
        need
    }

    /// Enters a use; there is room, if necessary in place of lingering pages.
    fn take<I>(&mut self, request: &Request, spans: I, fresh: u32)
    where
        I: Iterator<Item = Span> + Clone,
    {
        let (asid, usage) = (request.asid, request.usage);
        let mut lasting = 0;
        let most = PAGES.saturating_add(fresh as usize);
        self.each(asid, spans.clone(), most, |page| {
            let uses = page.uses(usage);
            *uses = uses.saturating_add(1);
            lasting += (usage == Usage::Lasting && *uses == 1) as u32;
        });
        let mut bound = Bound::new(PAGES as u32 + 1);
        loop {
            bound.step();
            let process = self.process(asid).copied().unwrap_or_default();
            let own = process.pinned.saturating_add(fresh) > process.budget;
            let any = self.pinned.saturating_add(fresh) > self.config.budget
                || self.pages.len().saturating_add(fresh as usize) > PAGES;
            if !(own || any) || !self.evict(own.then_some(asid)) {
                break;
            }
        }
        for number in distinct(spans, self.config.page_shift, most) {
            let Err(place) = self.find(asid, number) else {
                continue;
            };
            let mut page = Page { asid, number, ..Page::default() };
            *page.uses(usage) = 1;
            if self.pages.insert(place, page) {
                lasting += (usage == Usage::Lasting) as u32;
                self.pinned += 1;
                if let Some(p) = self.process_mut(asid) {
                    p.pinned += 1;
                }
            }
        }
        self.lasting += lasting;
        if let Some(p) = self.process_mut(asid) {
            p.lasting += lasting;
        }
    }

    /// Unpins the page that lingers longest, of one address space or of any. False when there is none.
    fn evict(&mut self, asid: Option<Asid>) -> bool {
        let lingering = |p: &Page| p.lingers() && asid.is_none_or(|a| p.asid == a);
        let since = self.pages.as_slice().iter().filter(|p| lingering(p)).map(|p| p.until).min();
        let oldest = self.pages.position(|p| lingering(p) && Some(p.until) == since);
        let Some(page) = oldest.and_then(|i| self.pages.remove(i)) else {
            return false;
        };
        self.uncount(page.asid, 1, 0);
        true
    }

    /// Forgets pages without use that are unpinned, or whose linger time is over.
    fn sweep(&mut self, now: u64) {
        let mut i = 0;
        let mut bound = Bound::new(2 * PAGES as u32 + 1);
        while let Some(page) = self.pages.get(i).copied() {
            bound.step();
            let over = match page.state {
                State::Coming => true,
                State::Present => page.until <= now,
                State::Withdrawn => false,
                State::Unpinned => true,
            };
            if !(page.unused() && over) || rule::broken(Rule::UnusedUnpinned) {
                i += 1;
                continue;
            }
            self.pages.remove(i);
            self.uncount(page.asid, (page.state != State::Unpinned) as u32, 0);
        }
        self.reap();
    }

    /// `pinned` and `lasting` pages of an address space no longer count; waiting requests may try again.
    fn uncount(&mut self, asid: Asid, pinned: u32, lasting: u32) {
        self.pinned = self.pinned.saturating_sub(pinned);
        self.lasting = self.lasting.saturating_sub(lasting);
        if let Some(p) = self.process_mut(asid) {
            p.pinned = p.pinned.saturating_sub(pinned);
            p.lasting = p.lasting.saturating_sub(lasting);
        }
        for w in at_most(LINE, self.line.as_mut_slice()) {
            w.tried = false;
        }
    }

    /// Forgets address spaces that are closed and have no page left.
    fn reap(&mut self) {
        let mut i = 0;
        let mut bound = Bound::new(PROCESSES as u32 + 1);
        while let Some(p) = self.processes.get(i).copied() {
            bound.step();
            match p.closing && !self.pages.as_slice().iter().any(|page| page.asid == p.asid) {
                true => _ = self.processes.remove(i),
                false => i += 1,
            }
        }
    }

    /// Whether a request must wait behind one of the first `place` in the line.
    fn behind(&self, request: &Request, place: usize) -> bool {
        let before = self.line.as_slice().iter().take(place);
        before.filter(|w| w.request.usage == request.usage).any(|w| w.card || w.request.asid == request.asid)
    }

    /// Requests for which `who` is true leave the line; those behind them may try.
    fn leave(&mut self, who: impl Fn(&Request) -> bool) {
        let mut i = 0;
        let mut left = false;
        let mut bound = Bound::new(LINE as u32 + 1);
        while let Some(w) = self.line.get_mut(i) {
            bound.step();
            w.tried &= !left;
            match who(&w.request) {
                true => left = self.line.remove(i).is_some(),
                false => i += 1,
            }
        }
    }

    /// Each page of the spans has a use of that kind.
    fn holds<I>(&self, request: &Request, spans: I) -> bool
    where
        I: Iterator<Item = Span> + Clone,
    {
        let mut pages = distinct(spans, self.config.page_shift, PAGES + 1).peekable();
        pages.peek().is_some()
            && pages.all(|number| {
                let page = self.find(request.asid, number).ok().and_then(|i| self.pages.get(i));
                page.is_some_and(|p| match request.usage {
                    Usage::Brief => p.brief > 0,
                    Usage::Lasting => p.lasting > 0,
                })
            })
    }

    /// Calls `action` once for each page of the spans, which have at most `most`, that is known.
    fn each<I>(&mut self, asid: Asid, spans: I, most: usize, mut action: impl FnMut(&mut Page))
    where
        I: Iterator<Item = Span> + Clone,
    {
        let shift = self.config.page_shift;
        for number in distinct(spans, shift, most) {
            if let Some(page) = self.find(asid, number).ok().and_then(|i| self.pages.get_mut(i)) {
                action(page);
            }
        }
    }
}

/// Numbers of the pages that a span touches.
fn numbers(span: Span, shift: u8) -> impl Iterator<Item = u64> + Clone {
    let shift = shift.min(63);
    let first = span.va >> shift;
    let last = span.va.saturating_add((span.len as u64).saturating_sub(1)) >> shift;
    (first..=last).take(if span.len == 0 { 0 } else { usize::MAX })
}

/// Numbers of the pages that spans touch, each once. No more than `most` are looked at, which each span may repeat.
fn distinct<I>(spans: I, shift: u8, most: usize) -> impl Iterator<Item = u64>
where
    I: Iterator<Item = Span> + Clone,
{
    let all = spans.clone();
    let steps = if cfg!(debug_assertions) { most.saturating_mul(all.clone().count()) } else { 0 };
    let counted = spans.scan(0_usize, |next, span| {
        let k = *next;
        *next = k.wrapping_add(1);
        Some((k, span))
    });
    let pages = counted.flat_map(move |(k, span)| numbers(span, shift).map(move |number| (k, number)));
    let first = move |(k, number): &(usize, u64)| !touched(all.clone(), *k, *number, shift);
    at_most(steps, pages).filter(first).map(|(_, number)| number)
}

/// One of the first `k` spans touches the page.
fn touched(spans: impl Iterator<Item = Span>, k: usize, number: u64, shift: u8) -> bool {
    for span in at_most(k, spans.take(k)) {
        if touches(span, number, shift) {
            return true;
        }
    }
    false
}

fn touches(span: Span, number: u64, shift: u8) -> bool {
    let last = span.va.saturating_add((span.len as u64).saturating_sub(1)) >> shift;
    span.len > 0 && (span.va >> shift..=last).contains(&number)
}
