// SPDX-License-Identifier: GPL-2.0
//! The page service: pins what the card is about to use, and takes it back.
//!
//! The card asks for pages by virtual address (`EV_PAGE_NEED`). Each request is a work
//! item of its own, so that a page that never comes holds up nothing else. A page is
//! pinned and mapped once per address space, whatever the number of its uses; it stays
//! in the card's translation table until it has been idle for the linger time, or until
//! its place in the budget is wanted, or until the memory manager takes it away.
//!
//! A page's life: not there, `Live` (in the card's table), `Evicting` (the card was
//! asked whether it is idle), then either `Live` again or `Dead` (not in the card's table,
//! to be unpinned). Revocation leads from `Live` or `Evicting` to `Revoking` (the card
//! has been told to drop it and may still be finishing DMA), with the next fence to
//! `Fencing`, and when that has ended to nothing.

pub(crate) mod budget;
pub(crate) mod table;

use core::ops::Deref;

use crate::{
    abi::{counters::*, ioctl::QueryContext, ring::*, status::*},
    card::{Card, Deadline, Entry, State, FENCE_CYCLES, MAX_ASKED, PAGE},
    kernel::mmu_notifier::{Event, Invalidate, Range},
    kernel::pin::{self, DmaPage, Mapping, PageId, PinnedPage},
    pages::budget::{spare, Budget},
    process::context::Context,
};
use kernel::{
    alloc::Flags,
    fmt, impl_has_work,
    mm::MmWithUser,
    new_work,
    prelude::*,
    rbtree::{RBTree, RBTreeNode, RBTreeNodeReservation},
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    time::{delay::fsleep, Delta, Instant, Monotonic},
    workqueue::{Work, WorkItem},
};

/// Revocations that firmware is told of at a time.
const MAX_REVOKING: usize = 16;
/// Revocations for which there is memory beforehand.
const MAX_REVOKED: usize = 64;
/// Pages that debugfs shows of a context: the lock is held meanwhile.
const MAX_SHOWN: usize = 256;
/// Pages handled per lock hold when many are taken out.
const BATCH: usize = 64;
/// Attempts of one request before it is handed back to the card.
const MAX_ATTEMPTS: u32 = 16;
/// Milliseconds for which a request without memory waits, at first and at last: each time
/// twice as long, so that it is refused after half a second.
const NO_MEMORY_MS: core::ops::RangeInclusive<i64> = 1..=256;
/// Times that a request which could not even be noted is tried again, all `NEED_MS`.
const MAX_NEED_TRIES: u32 = 64;
/// A page that was not released for so long is offered for eviction all the same: nobody
/// may be using it (a QP that was destroyed). The card refuses if somebody does.
const STALE_MS: i64 = 1000;
/// Receives that wait so long for budget, without anything being unpinned, ask firmware
/// to recall grants; sends ask at once.
const RECALL_MS: i64 = 40;
/// Requests without a place in the table are tried again at least so often; each time their
/// pages are pinned in vain.
pub(crate) const RETRY_MS: i64 = 100;
/// A receive that waits for the card's budget keeps later ones of other contexts from it for
/// so long: what is recalled for it would be granted again, piece by piece, before it gets
/// as much as it needs. If it still waits then, what it needs is stuck.
const TURN_MS: i64 = 2_000;
/// Page requests of one process that are worked on, or wait for page faults, at once, those of
/// contexts that are closed included; further ones queue. More than one QP can have (16 blocks
/// and 64 ranges of receives): a page that never comes stalls its QP only (decision 21), and a
/// process with many of them itself only.
const MAX_FAULTING: u32 = 96;
/// A request that has been looking for its pages for so long is given up when a QP is to
/// be destroyed that may wait for it; what it is charged is lent to others when its pages have
/// not come for so long.
const STUCK_MS: i64 = 500;
/// Virtual page numbers of user space lie below this (57 bits of address).
const VPN_END: u64 = 1 << 45;

/// What is being done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    Live,
    Evicting,
    Revoking,
    /// Revoked before the fence that is being waited for.
    Fencing,
    Dead,
}

/// A page that is pinned and mapped.
struct PageEntry {
    // Fields are dropped in this order: the mapping goes before the pin.
    dma: DmaPage,
    pin: PinnedPage,
    index: u32,
    state: PageState,
    /// Since when nothing is known to use it.
    since: Instant<Monotonic>,
    /// Released since it was last known to be in use.
    released: bool,
    /// To be evicted as soon as it is released: somebody needs it with other access.
    urgent: bool,
    /// The memory manager has touched it: look whether it still is what it was.
    suspect: bool,
}

type Pages = RBTree<u64, PageEntry>;
type Node = RBTreeNode<u64, PageEntry>;

/// A range of pages that was revoked and that firmware has to let go of.
#[derive(Clone, Copy)]
struct Revoked {
    first: u64,
    last: u64,
    told: bool,
}

/// Pages and page requests of a context.
pub(crate) struct Space {
    pages: Pages,
    requests: KVec<Arc<Request>>,
    revoking: KVec<Revoked>,
    /// Budget of the context.
    pub(crate) budget: Budget,
    /// Pages that receives leave for sends: one block, and one packet of many ranges.
    reserve: u64,
    /// When something was last unpinned.
    unpinned: Instant<Monotonic>,
    /// When firmware was last asked to recall grants.
    pressed: Instant<Monotonic>,
    /// When it was last tried again whether there are places in the table.
    retried: Instant<Monotonic>,
    /// The context is closed: nothing is pinned any more.
    pub(crate) closing: bool,
    /// QP that is being destroyed, 0 for none: what its rows ask for is not looked for.
    ending: u32,
}

impl Space {
    /// A space without pages, with a budget of `limit` pages. Its lists have their memory from
    /// the start: they change where none can be waited for.
    pub(crate) fn new(limit: u64) -> Result<Self> {
        Ok(Self {
            pages: RBTree::new(),
            requests: KVec::with_capacity(MAX_ASKED, GFP_KERNEL)?,
            revoking: KVec::with_capacity(MAX_REVOKED, GFP_KERNEL)?,
            budget: Budget::new(limit),
            reserve: 2 * crate::abi::wqe::MAX_SGE as u64,
            unpinned: Instant::now(),
            pressed: Instant::now(),
            retried: Instant::now(),
            closing: false,
            ending: 0,
        })
    }

    fn is_revoking(&self, first: u64, last: u64) -> bool {
        self.revoking
            .iter()
            .any(|r| r.first <= last && first <= r.last)
    }

    fn add_revoked(&mut self, first: u64, last: u64) {
        let range = Revoked {
            first,
            last,
            told: false,
        };
        if self.revoking.push(range, GFP_ATOMIC | __GFP_NOWARN).is_ok() {
            return;
        }
        // Without a place, nor memory for more, firmware is told of a larger range than need be.
        if let Some(r) = self.revoking.last_mut() {
            r.first = r.first.min(first);
            r.last = r.last.max(last);
            r.told = false;
        }
    }

    /// Has the request's work run, at once or when enough others of the process have ended.
    fn start(&self, request: &Arc<Request>) {
        let mut works = request.context.share.works.lock();
        if works.running >= MAX_FAULTING {
            works.queued = true;
            request.set(QUEUED);
            return;
        }
        request.clear(QUEUED);
        let faults = &request.context.card.faults;
        if faults.enqueue(request.clone()).is_ok() {
            works.running += 1;
        }
    }

    /// Those that are queued have their turn.
    fn start_queued(&self) {
        for request in self.requests.iter().filter(|r| r.is(QUEUED)) {
            self.start(request);
        }
    }

    /// Pages are about to come (but for those that have kept everybody waiting for long), or to go.
    fn changes(&mut self) -> bool {
        let coming = |r: &Request| r.is(CHARGED) && r.since.elapsed().as_millis() < STUCK_MS;
        let stays = |page: &PageEntry| page.state == PageState::Live && !page.released;
        self.requests.iter().any(|r| coming(r))
            || self.each(0, u64::MAX, |_, page| stays(page)).is_some()
    }

    fn remove_request(&mut self, request: &Arc<Request>) -> Option<Arc<Request>> {
        let at = self.requests.iter().position(|r| Arc::ptr_eq(r, request))?;
        self.requests.remove(at).ok()
    }

    /// Calls `f` for each page from `first` to `last`, until it returns `false`. Gives
    /// the page number it stopped at.
    fn each(
        &mut self,
        first: u64,
        last: u64,
        mut f: impl FnMut(u64, &mut PageEntry) -> bool,
    ) -> Option<u64> {
        let mut cursor = self.pages.cursor_lower_bound_mut(&first);
        while let Some(mut at) = cursor {
            let (vpn, entry) = at.current_mut();
            if *vpn > last {
                break;
            }
            if !f(*vpn, entry) {
                return Some(*vpn);
            }
            cursor = at.move_next();
        }
        None
    }

    /// Takes pages for which `f` says so out of the tree, as many as `out` has room for; gives
    /// their number.
    fn take_out(
        &mut self,
        out: &mut [Option<Node>],
        mut f: impl FnMut(u64, &PageEntry) -> bool,
    ) -> usize {
        let mut taken = 0;
        let mut cursor = self.pages.cursor_front_mut();
        while let Some(at) = cursor {
            let Some(place) = out.get_mut(taken) else {
                break;
            };
            let (vpn, entry) = at.current();
            let vpn = *vpn;
            if f(vpn, entry) {
                let (next, node) = at.remove_current();
                *place = Some(node);
                taken += 1;
                // At the end of the tree this is the previous element.
                cursor = next.filter(|c| *c.current().0 > vpn);
            } else {
                cursor = at.move_next();
            }
        }
        taken
    }
}

/// A page that is pinned and mapped but not in the tree yet.
struct Fresh {
    vpn: u64,
    page: PageEntry,
    slot: RBTreeNodeReservation<u64, PageEntry>,
}

/// What the card asks for.
#[derive(Clone)]
pub(crate) struct Need {
    context: Arc<Context>,
    tag: u32,
    /// Run of firmware that has asked.
    generation: u32,
    first: u64,
    pages: u64,
    write: bool,
    /// How often there was no memory to note it.
    tries: u32,
}

/// A request of the card for pages that is looked after.
#[pin_data]
pub(crate) struct Request {
    need: Need,
    since: Instant<Monotonic>,
    flags: Atomic<u32>,
    /// Pages that it is charged and has not installed.
    charged: Atomic<u64>,
    /// When it began to bring its pages, in milliseconds after `since`.
    begun: Atomic<i64>,
    #[pin]
    work: Work<Request>,
}

/// The range has changed since the request began to look at it.
const STALE: u32 = 1;
/// Answered or given up: the work has nothing to do any more.
const ANSWERED: u32 = 2;
/// Waits for budget.
const WAITING: u32 = 4;
/// Waits for a page to change its state.
const BLOCKED: u32 = 8;
/// Firmware has been asked to recall grants for it.
const PRESSED: u32 = 16;
/// What it misses is charged to the budgets.
const CHARGED: u32 = 32;
/// It has had to wait for budget before.
const WAITED: u32 = 64;
/// It is the first that waits, and the budget is short.
const SHORT: u32 = 128;
/// Waits until fewer requests of its context are worked on.
const QUEUED: u32 = 256;
/// Stands in the card's list of those that wait for its budget.
const LISTED: u32 = 512;
/// It would fit: it waits for those before it in that list.
const BEHIND: u32 = 1024;
/// Waits for a place in the card's table for a page of its.
const NO_PLACE: u32 = 2048;
/// Its pages are pinned, and being mapped and installed. A page is mapped by one request at a time.
const INSTALLING: u32 = 4096;
/// Another request waits until that is over.
const WANTED: u32 = 8192;
/// Its pages are being brought, one at a time, and none is pinned but for a moment.
const BRINGING: u32 = 16384;
/// What it was charged meanwhile is lent to others, but for one page.
const LENT: u32 = 32768;

impl_has_work! {
    impl HasWork<Self> for Request { self.work }
}

impl WorkItem for Request {
    type Pointer = Arc<Request>;

    fn run(this: Arc<Request>) {
        this.run_request();
        this.context.work_ended();
    }
}

impl Deref for Request {
    type Target = Need;

    fn deref(&self) -> &Need {
        &self.need
    }
}

impl Need {
    fn request(&self, flags: Flags) -> Result<Arc<Request>> {
        Arc::pin_init(
            pin_init!(Request {
                need: self.clone(),
                since: Instant::now(),
                flags: Atomic::new(0),
                charged: Atomic::new(0),
                begun: Atomic::new(0),
                work <- new_work!("berth_request"),
            }),
            flags,
        )
    }
}

/// Outcome of one attempt at a request.
enum Attempt {
    /// Answered, or will be tried again when something changes.
    Done,
    /// Something changed meanwhile.
    Again,
    /// To be answered with a status.
    Answer(u32),
    /// The host has no memory for it at the moment.
    NoMemory,
    /// All places of the card's table for this page are taken.
    Full(u64),
}

fn ready(tag: u32, status: u32) -> Entry {
    let mut entry = [0; ENTRY_WORDS];
    entry[0] = CMD_PAGE_READY;
    entry[1] = tag;
    entry[2] = status;
    entry
}

fn by_index(opcode: u32, index: u32) -> Entry {
    let mut entry = [0; ENTRY_WORDS];
    entry[0] = opcode;
    entry[1] = index;
    entry
}

impl Card {
    /// Keeps a request for which there is no memory, and tries it again soon.
    fn need_later(self: &Arc<Self>, need: Need) {
        self.counters.inc(D_NO_MEMORY);
        if self.needs.lock().push_within_capacity(need).is_err() {
            // More than the card can have asked for: its state is not sound.
            self.schedule_reset();
        }
        self.look_at_needs();
    }

    /// Tries requests again for which there was no memory.
    pub(crate) fn run_needs(self: &Arc<Self>) {
        let waiting = self.needs.lock().len();
        for _ in 0..waiting {
            let Ok(mut need) = self.needs.lock().remove(0) else {
                break;
            };
            let request = need.request(GFP_KERNEL | __GFP_NOWARN);
            // As long as this is held, the card is not reset.
            let events = self.events.lock();
            if self.state() != State::Up || self.generation() != need.generation {
                continue;
            }
            match request {
                Ok(request) => need.context.begin(request),
                Err(_) if need.tries < MAX_NEED_TRIES => {
                    need.tries += 1;
                    self.need_later(need);
                }
                Err(_) => self.page_ready(need.generation, need.tag, PAGE_NO_MEMORY),
            }
            drop(events);
        }
    }

    /// Forgets them.
    pub(crate) fn drop_needs(&self) {
        // A context that goes with the last of them must not do so under the lock.
        while let Some(need) = {
            let last = self.needs.lock().pop();
            last
        } {
            drop(need);
        }
    }

    /// Answers a page request of firmware's run `generation`. Does not sleep.
    pub(crate) fn page_ready(self: &Arc<Self>, generation: u32, tag: u32, status: u32) {
        if status == PAGE_FAULT || status == PAGE_NO_PROCESS {
            self.counters.inc(D_PAGE_FAULTS);
        }
        self.answer(generation, ready(tag, status));
    }

    /// The budgets' one number (decision 14), after a change.
    fn report_pinned(&self, budget: &Budget) {
        let bytes = budget.pinned * PAGE;
        self.counters.set(D_PINNED, bytes);
        if bytes > self.counters.get(D_PINNED_PEAK) {
            self.counters.set(D_PINNED_PEAK, bytes);
        }
    }

    /// Firmware says that nobody has memory that would come back, and that the receive of QP `qpn` waits for more than
    /// there is (PC-3), of budget or of places in the table: it completes so. Unless somebody's pages are on their way,
    /// whose budget may come back.
    pub(crate) fn refuse(self: &Arc<Self>, qpn: u32) {
        let mut contexts = (1..crate::abi::card::NUM_ASIDS).filter_map(|asid| self.context(asid));
        if contexts.any(|context| context.space.lock().changes()) {
            return;
        }
        if let Some(context) = self.owner_of_qp(qpn) {
            context.answer_those(PAGE_OVER_BUDGET, |r| {
                let waits = r.is(NO_PLACE) || (r.is(WAITING) && r.is(SHORT) && !r.is(BEHIND));
                let mine = r.qpn() == qpn && r.write && waits;
                let refused = mine && r.since.elapsed().as_millis() >= RECALL_MS;
                if refused {
                    self.counters.inc(D_OVER_BUDGET);
                }
                refused
            });
        }
    }

    /// Tries again what waits in any context for what others have: budget (`WAITING`), places in
    /// the table (`NO_PLACE`).
    fn kick_all(&self, flags: u32) {
        for asid in 1..crate::abi::card::NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.kick_some(flags);
            }
        }
    }

    /// Changes the card's budget.
    pub(crate) fn set_budget(&self, pages: u64) {
        self.budget.lock().limit = pages;
        self.counters.set(D_BUDGET, pages * PAGE);
        self.kick_all(WAITING);
    }

    /// The peak begins anew.
    pub(crate) fn reset_peak(&self) {
        let budget = self.budget.lock();
        self.counters.set(D_PINNED_PEAK, budget.pinned * PAGE);
    }
}

impl Context {
    /// Changes the context's budget.
    pub(crate) fn set_budget(&self, pages: u64) {
        let tight = {
            let mut space = self.space.lock();
            space.budget.limit = pages;
            let mut share = self.share.budget.lock();
            share.limit = share.limit.max(pages);
            space.budget.pinned > pages
        };
        if tight {
            self.evict_idle();
        }
        self.kick();
    }

    /// What is pinned for the context, at most was, and may be.
    pub(crate) fn query(&self) -> QueryContext {
        let card = self.card.budget.lock().limit;
        let budget = self.space.lock().budget;
        QueryContext {
            pinned: budget.pinned * PAGE,
            pinned_peak: budget.peak * PAGE,
            budget: budget.limit.min(card) * PAGE,
        }
    }

    /// Bytes of the blocks of a QP that wants `bytes` (0: 64 KiB): receives leave as much for
    /// sends, and a page for blocks that do not begin at a page. So it is less than half of
    /// what may be pinned.
    pub(crate) fn block(&self, bytes: u32) -> u32 {
        let bytes = if bytes == 0 { 65536 } else { bytes };
        let most = self.card.budget.lock().limit.min(self.memlock.limit());
        let mut space = self.space.lock();
        let most = (most.min(space.budget.limit) / 2).saturating_sub(1).max(1);
        let pages = (u64::from(bytes) / PAGE).min(most);
        space.reserve = space.reserve.max(pages + 1);
        (pages * PAGE) as u32
    }

    // ---- events of the card ---------------------------------------------------------

    /// The card needs pages. The caller, the interrupt thread, holds the lock of the events.
    pub(crate) fn page_need(self: &Arc<Self>, entry: &Entry) {
        let tag = entry[1];
        // Events are taken and the card is reset under the same lock, so this is the run
        // that has asked.
        let generation = self.card.generation();
        let va = u64::from(entry[4]) | u64::from(entry[5]) << 32;
        let len = u64::from(entry[6]);
        let first = va / PAGE;
        let last = va.checked_add(len.saturating_sub(1)).map(|e| e / PAGE);
        let last = match last {
            Some(last) if len != 0 && last < VPN_END => last,
            _ => return self.card.page_ready(generation, tag, PAGE_FAULT),
        };
        let need = Need {
            context: self.clone(),
            tag,
            generation,
            first,
            pages: last - first + 1,
            write: entry[3] & 1 != 0,
            tries: 0,
        };
        // The interrupt thread must not wait for memory: notifiers wait for the card, and
        // the card for this thread.
        match need.request(GFP_ATOMIC | __GFP_NOWARN) {
            Ok(request) => self.begin(request),
            Err(_) => self.card.need_later(need),
        }
    }

    /// Has a request looked after. The caller holds the lock of the events.
    fn begin(self: &Arc<Self>, request: Arc<Request>) {
        let card = &self.card;
        let mut space = self.space.lock();
        if space.closing || (space.ending != 0 && request.qpn() == space.ending) {
            drop(space);
            return card.page_ready(request.generation, request.tag, PAGE_NO_PROCESS);
        }
        if space
            .requests
            .push_within_capacity(request.clone())
            .is_err()
        {
            // More than the card can have asked for: its state is not sound.
            return card.schedule_reset();
        }
        space.start(&request);
    }

    /// A use of a range has ended.
    pub(crate) fn page_release(self: &Arc<Self>, entry: &Entry) {
        let va = u64::from(entry[4]) | u64::from(entry[5]) << 32;
        let len = u64::from(entry[6]);
        let Some(end) = va.checked_add(len.saturating_sub(1)) else {
            return;
        };
        let at_once = self.card.linger_ms.load(Relaxed) == 0;
        let mut space = self.space.lock();
        let hurry = at_once
            || space
                .requests
                .iter()
                .any(|r| r.is(WAITING | BLOCKED | NO_PLACE));
        space.each(va / PAGE, end / PAGE, |_, page| {
            page.released = true;
            page.since = Instant::now();
            if page.state == PageState::Live && (hurry || page.urgent) {
                self.evict(page);
            }
            true
        });
        drop(space);
        self.card.ring();
        self.card.sweep_later();
    }

    /// Writes what is pinned and what is asked for: a line for each request, and for each page, of
    /// which it leaves out those beyond `MAX_SHOWN`.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = self.space.lock();
        writeln!(
            f,
            "asid {} budget {} pinned {} receive {} worked on {}",
            self.asid,
            space.budget.limit,
            space.budget.pinned,
            space.budget.receive,
            self.share.works.lock().running
        )?;
        for request in &space.requests {
            writeln!(
                f,
                "  request tag {:#x} pages {:#x}+{} write {} flags {:#x} ms {}",
                request.tag,
                request.first,
                request.pages,
                request.write,
                request.flags.load(Relaxed),
                request.since.elapsed().as_millis()
            )?;
        }
        let mut result = Ok(());
        let mut shown = 0;
        space.each(0, u64::MAX, |vpn, page| {
            shown += 1;
            if shown > MAX_SHOWN {
                return false;
            }
            result = writeln!(
                f,
                "  page {:#x} index {} {:?} write {} released {} urgent {} suspect {} ms {}",
                vpn,
                page.index,
                page.state,
                page.pin.is_write(),
                page.released,
                page.urgent,
                page.suspect,
                page.since.elapsed().as_millis()
            );
            result.is_ok()
        });
        result
    }

    /// Asks the card to drop a page that seems idle, once more if it was asked before. The caller rings the doorbell.
    fn evict(&self, page: &mut PageEntry) -> bool {
        if !self.card.xlt.lock().evict_asked(page.index) {
            return false;
        }
        if self.card.put_evict(page.index).is_err() {
            // Not asked after all; the sweep tries again.
            let _ = self.card.xlt.lock().evict_answered(page.index);
            return false;
        }
        page.state = PageState::Evicting;
        page.released = false;
        true
    }

    /// The card's answer to an eviction, the last one that is due for the page or not.
    pub(crate) fn evicted(self: &Arc<Self>, vpn: u64, index: u32, dropped: bool, last: bool) {
        let mut space = self.space.lock();
        let mut dead = false;
        if let Some(page) = space.pages.get_mut(&vpn) {
            if page.index == index && page.state == PageState::Evicting {
                if dropped {
                    page.state = PageState::Dead;
                    dead = true;
                } else if last {
                    page.state = PageState::Live;
                    page.since = Instant::now();
                    if page.released {
                        // Released after the card had looked.
                        self.evict(page);
                    }
                }
            }
        }
        drop(space);
        self.card.ring();
        if dead {
            self.reap_later();
        } else {
            self.kick();
        }
    }

    // ---- requests -------------------------------------------------------------------

    /// Has requests that wait tried again.
    pub(crate) fn kick(&self) {
        self.kick_some(WAITING | BLOCKED);
    }

    fn kick_some(&self, flags: u32) {
        let space = self.space.lock();
        let blocked = flags & (BLOCKED | NO_PLACE);
        if blocked != 0 {
            for request in &space.requests {
                if request.is(blocked) {
                    request.clear(blocked);
                    space.start(request);
                }
            }
        }
        if flags & WAITING != 0 {
            self.kick_next(&space);
        }
    }

    /// Has the first requests tried again that wait for budget, one for sending and one
    /// for receiving. They are served in the order in which they came, because the card
    /// can make use of them only in that order: each one that is charged wakes the next.
    fn kick_next(&self, space: &Space) {
        for write in [false, true] {
            let mut all = space.requests.iter();
            match all.find(|r| r.write == write && !r.is(CHARGED)) {
                Some(next) if next.is(WAITING) => {
                    next.clear(WAITING);
                    space.start(next);
                }
                _ => {}
            }
        }
    }

    /// Answers all requests with a status, whatever their work is doing.
    pub(crate) fn answer_requests(&self, status: u32) {
        self.answer_those(status, |_| true);
    }

    fn answer_those(&self, status: u32, f: impl Fn(&Request) -> bool) {
        while let Some(request) = self.pop_request(&f) {
            request.leave();
            self.card
                .page_ready(request.generation, request.tag, status);
        }
        // What has waited behind them.
        self.kick_some(WAITING);
    }

    /// The rows of QP `qpn` wait for pages.
    pub(crate) fn asks(&self, qpn: u32) -> bool {
        self.space.lock().requests.iter().any(|r| r.qpn() == qpn)
    }

    /// QP `qpn` is to be destroyed, which waits until the host owes its rows no answer: none of
    /// their requests is worked on any more, since its pages, or the budget for them, may never
    /// come (decision 21). 0: the QP is gone.
    pub(crate) fn end_requests(&self, qpn: u32) {
        self.space.lock().ending = qpn;
        if qpn != 0 {
            self.answer_those(PAGE_NO_PROCESS, |r| r.qpn() == qpn);
            self.kick();
        }
    }

    /// Takes a request out of the list, for good.
    fn pop_request(&self, f: impl Fn(&Request) -> bool) -> Option<Arc<Request>> {
        let mut space = self.space.lock();
        let at = space.requests.iter().position(|r| f(r))?;
        let request = space.requests.remove(at).ok()?;
        request.set(ANSWERED);
        let lent = request.lend();
        drop(space);
        self.uncharge(lent, request.write);
        Some(request)
    }

    /// Lends to others what requests are charged whose pages do not come (decision 21).
    fn lend_stuck(&self) {
        for write in [false, true] {
            let lent: u64 = {
                let space = self.space.lock();
                let stuck = space
                    .requests
                    .iter()
                    .filter(|r| r.write == write && r.is_stuck());
                stuck.map(|r| r.lend()).sum()
            };
            self.uncharge(lent, write);
        }
    }

    /// Gives requests up that have been waiting for a page fault for long.
    pub(crate) fn give_up_requests(&self) {
        self.answer_those(PAGE_FAULT, |r| {
            !r.is(WAITING | BLOCKED | NO_PLACE) && r.since.elapsed().as_millis() >= STUCK_MS
        });
    }

    /// Forgets all requests: the card that asked has been reset.
    pub(crate) fn drop_requests(&self) {
        while let Some(request) = self.pop_request(|_| true) {
            request.leave();
        }
    }

    /// Asks firmware to recall grants that are unused; false when it is about to.
    fn press(&self, pages: u64) -> bool {
        self.card
            .press((pages * PAGE).min(u64::from(u32::MAX)) as u32)
    }

    /// The work of a request has run: others of the process that are queued have their turn.
    fn work_ended(&self) {
        let queued = {
            let mut works = self.share.works.lock();
            works.running -= 1;
            core::mem::take(&mut works.queued)
        };
        if !queued {
            return;
        }
        for asid in 1..crate::abi::card::NUM_ASIDS {
            if let Some(context) = self.card.context(asid) {
                if Arc::ptr_eq(&context.share, &self.share) {
                    context.space.lock().start_queued();
                }
            }
        }
    }

    /// Offers idle pages for eviction; gives how many evictions are under way.
    fn evict_idle(&self) -> usize {
        let mut under_way = 0;
        let mut space = self.space.lock();
        space.each(0, u64::MAX, |_, page| {
            match page.state {
                PageState::Live if page.released => under_way += usize::from(self.evict(page)),
                PageState::Evicting
                | PageState::Dead
                | PageState::Revoking
                | PageState::Fencing => under_way += 1,
                PageState::Live => {}
            }
            true
        });
        drop(space);
        self.card.ring();
        under_way
    }

    /// Evicts what has been idle for the linger time. `true` while pages or requests are
    /// there.
    pub(crate) fn sweep(self: &Arc<Self>) -> bool {
        let linger = i64::from(self.card.linger_ms.load(Relaxed));
        let some;
        {
            let mut space = self.space.lock();
            space.each(0, u64::MAX, |_, page| {
                if page.state == PageState::Live {
                    let idle = page.since.elapsed().as_millis();
                    if idle >= STALE_MS.max(linger) || (page.released && idle >= linger) {
                        self.evict(page);
                    }
                }
                true
            });
            some = !space.pages.is_empty() || !space.requests.is_empty();
        }
        self.card.ring();
        self.lend_stuck();
        self.press_waiting();
        self.kick();
        let mut space = self.space.lock();
        // A place may also have become free without a page that was unpinned.
        if space.retried.elapsed().as_millis() >= RETRY_MS {
            space.retried = Instant::now();
            drop(space);
            self.kick_some(NO_PLACE);
        }
        some
    }

    /// Presses where requests wait in vain. `true` while some wait for budget.
    pub(crate) fn press_waiting(&self) -> bool {
        let pressing = self.card.is_pressing();
        let mut press = 0;
        let mut some = false;
        {
            let mut space = self.space.lock();
            let quiet = space.unpinned.elapsed().as_millis() >= RECALL_MS
                && space.pressed.elapsed().as_millis() >= RECALL_MS;
            for write in [false, true] {
                let mut all = space.requests.iter();
                let head = all.find(|r| r.write == write && (r.is(NO_PLACE) || !r.is(CHARGED)));
                let Some(head) = head.filter(|r| r.is(WAITING | NO_PLACE)) else {
                    continue;
                };
                some = true;
                let long = head.since.elapsed().as_millis() >= RECALL_MS;
                if !pressing && ((long && quiet) || !(write || head.is(PRESSED))) {
                    head.set(PRESSED);
                    press += head.pages;
                }
            }
            if press != 0 {
                space.pressed = Instant::now();
            }
        }
        if press != 0 {
            self.press(press);
        }
        some
    }

    // ---- giving pages back ----------------------------------------------------------

    /// Unpins pages that were taken out of the tree.
    fn unpin(&self, nodes: &mut [Option<Node>]) {
        let (mut pages, mut receive) = (0, 0);
        for node in nodes.iter_mut().filter_map(|place| place.take()) {
            let (_, page) = node.to_key_value();
            self.card.xlt.lock().give_back(page.index);
            pages += 1;
            receive += u64::from(page.pin.is_write());
            // Unmaps, then unpins; may sleep.
            drop(page);
        }
        if pages == 0 {
            return;
        }
        self.card.counters.add(D_PAGES_UNPINNED, pages);
        self.space.lock().unpinned = Instant::now();
        self.uncharge(pages - receive, false);
        self.uncharge(receive, true);
        // Not whenever something is uncharged: who has found no place gives back what it was charged.
        self.card.kick_all(NO_PLACE);
    }

    /// Takes pages off the budgets and tries again what waits for them.
    fn uncharge(&self, pages: u64, write: bool) {
        if pages == 0 {
            return;
        }
        // First: who finds the process's limit used up, and nothing in its share, takes it for others'.
        self.memlock.uncharge(pages);
        {
            let mut space = self.space.lock();
            space.budget.uncharge(pages, write);
            self.share.budget.lock().uncharge(pages, write);
            let mut budget = self.card.budget.lock();
            budget.uncharge(pages, write);
            self.card.report_pinned(&budget);
        }
        self.card.kick_all(WAITING);
    }

    /// Takes out and unpins all pages for which `f` says so.
    fn unpin_where(&self, mut f: impl FnMut(u64, &PageEntry) -> bool) {
        // No memory is taken where memory is given back.
        let mut nodes = [const { None }; BATCH];
        while self.space.lock().take_out(&mut nodes, &mut f) != 0 {
            self.unpin(&mut nodes);
        }
    }

    /// Unpins what the card has dropped.
    pub(crate) fn run_reap(&self) {
        self.unpin_where(|_, page| page.state == PageState::Dead);
        self.kick();
    }

    /// Unpins everything. The card does no DMA any more, and no request is left to wait for a page.
    pub(crate) fn drop_pages(&self) {
        self.unpin_where(|_, _| true);
        self.space.lock().revoking.clear();
    }

    /// Takes everything away from the card, then unpins it.
    pub(crate) fn revoke_all(self: &Arc<Self>) {
        self.mark_revoked(0, VPN_END, true);
        // Also for what was revoked before and has not been fenced yet.
        if !self.space.lock().pages.is_empty() {
            self.card.fence();
        }
        self.drop_pages();
    }

    /// Tells the card to drop the pages from `first` to `last`; gives their number, and
    /// whether these are all. Sleeps for room in the command ring if it may `wait`, else
    /// pages for which there is no room stay as they are.
    fn mark_revoked(self: &Arc<Self>, first: u64, last: u64, wait: bool) -> (u64, bool) {
        self.mark_those_revoked(first, last, wait, |_| true)
    }

    /// The same for those pages only for which `which` says so.
    fn mark_those_revoked(
        self: &Arc<Self>,
        first: u64,
        last: u64,
        wait: bool,
        which: impl Fn(&PageEntry) -> bool,
    ) -> (u64, bool) {
        let mut from = first;
        let mut number = 0;
        let mut deadline = None;
        let mut stuck = false;
        let all = loop {
            let mut lowest = u64::MAX;
            let mut highest = 0;
            let stopped = {
                let mut space = self.space.lock();
                let stopped = space.each(from, last, |vpn, page| {
                    let there = matches!(page.state, PageState::Live | PageState::Evicting);
                    if !there || !which(page) {
                        return true;
                    }
                    match self.card.put(&[by_index(CMD_PAGE_REVOKE, page.index)]) {
                        Err(e) if e == EBUSY && !stuck => return false,
                        // Out of service: it has no translations and does no DMA.
                        _ => {}
                    }
                    page.state = PageState::Revoking;
                    lowest = lowest.min(vpn);
                    highest = highest.max(vpn);
                    number += 1;
                    true
                });
                if lowest <= highest {
                    space.add_revoked(lowest, highest);
                }
                self.card.ring();
                stopped
            };
            match stopped {
                Some(vpn) if wait => {
                    from = vpn;
                    fsleep(Delta::from_millis(1));
                    let regs = &self.card.regs;
                    let deadline =
                        deadline.get_or_insert_with(|| Deadline::new(regs, FENCE_CYCLES));
                    if deadline.passed(regs) {
                        // It takes no commands any more: its DMA is ended otherwise.
                        self.card.stop_dma();
                        stuck = true;
                    }
                }
                stopped => break stopped.is_none(),
            }
        };
        self.card.counters.add(D_REVOKED, number);
        (number, all)
    }

    /// Ends revocations: waits for DMA, unpins, and has firmware let go of the ranges.
    pub(crate) fn run_revoke(self: &Arc<Self>) {
        loop {
            let mut ranges = [None; MAX_REVOKING];
            {
                let mut space = self.space.lock();
                let untold = space.revoking.iter_mut().filter(|r| !r.told);
                for (r, place) in untold.zip(&mut ranges) {
                    r.told = true;
                    *place = Some(*r);
                }
                space.each(0, u64::MAX, |_, page| {
                    if page.state == PageState::Revoking {
                        page.state = PageState::Fencing;
                    }
                    true
                });
            }
            if ranges.iter().all(|r| r.is_none()) {
                return;
            }
            self.card.fence();
            self.unpin_where(|_, page| page.state == PageState::Fencing);
            for r in ranges.iter().flatten() {
                let va = r.first * PAGE;
                let len = (r.last - r.first + 1) * PAGE;
                let mut entry = [0; ENTRY_WORDS];
                entry[0] = CMD_RANGE_REVOKED;
                entry[2] = self.asid;
                entry[4] = va as u32;
                entry[5] = (va >> 32) as u32;
                entry[6] = len as u32;
                entry[7] = (len >> 32) as u32;
                let _ = self.card.call_patiently(entry);
            }
            {
                let mut space = self.space.lock();
                // One that was merged with a later revocation is told again.
                space.revoking.retain(|r| !r.told);
            }
            self.kick();
        }
    }

    /// Looks at suspect pages; takes those away that are not what they were.
    pub(crate) fn run_recheck(self: &Arc<Self>) {
        let notifier = self.notifier.lock().clone();
        let (Some(notifier), Some(mm)) = (notifier, self.user_mm()) else {
            // The address space goes: all of it is revoked.
            return;
        };
        loop {
            let mut suspects = [(0, PageId::default()); BATCH];
            let mut n = 0;
            self.space.lock().each(0, u64::MAX, |vpn, page| {
                if page.suspect {
                    if n == BATCH {
                        return false;
                    }
                    page.suspect = false;
                    suspects[n] = (vpn, page.pin.id());
                    n += 1;
                }
                true
            });
            if n == 0 {
                break;
            }
            // The change that made them suspect is over.
            notifier.wait_settled();
            let mut revoked = 0;
            for (vpn, id) in &suspects[..n] {
                if pin::recheck(&mm, (*vpn * PAGE) as usize, *id) == Mapping::Same {
                    continue;
                }
                // Another page may be there by now.
                let same = |page: &PageEntry| page.pin.id() == *id;
                revoked += self.mark_those_revoked(*vpn, *vpn, true, same).0;
            }
            if revoked != 0 {
                self.revoke_later();
            }
        }
    }
}

impl Invalidate for Context {
    fn invalidate(&self, range: &Range) -> bool {
        // `Arc<Context>` is what the work items need; the registration holds one.
        let Some(this) = self.card.context(self.asid) else {
            return true;
        };
        if !core::ptr::eq(&*this, self) {
            return true;
        }
        let first = range.start / PAGE;
        let last = range.end.saturating_sub(1) / PAGE;
        let mut revoke = matches!(range.event, Event::Unmap | Event::Release);
        let mut found = false;
        let mut leaving = false;
        {
            let mut space = self.space.lock();
            for request in &space.requests {
                if request.first <= last && first < request.first + request.pages {
                    request.set(STALE);
                }
            }
            space.each(first, last, |_, page| {
                found = true;
                let there = matches!(page.state, PageState::Live | PageState::Evicting);
                leaving |= matches!(page.state, PageState::Revoking | PageState::Fencing);
                // Another change of the same pages may be the one that revokes them.
                leaving |= revoke && there;
                page.suspect |= !revoke;
                if !revoke && range.event == Event::Clear && there {
                    // Not in use, it must not serve for what comes after the change. The card
                    // keeps it if it is in use. An eviction that was asked for before may have
                    // found it in use, and tells nothing of now.
                    leaving = true;
                    revoke = !this.evict(page);
                }
                true
            });
            self.card.ring();
        }
        if range.event == Event::Release {
            this.close_later();
        }
        if !found {
            return true;
        }
        if !revoke {
            if leaving && range.blockable {
                // Evictions are done when the fence is.
                self.card.fence();
            }
            this.recheck_later();
            return true;
        }
        let (_, all) = this.mark_revoked(first, last, range.blockable);
        if leaving {
            if range.blockable {
                self.card.fence();
            }
            this.revoke_later();
        }
        all
    }
}

impl Request {
    fn is(&self, flags: u32) -> bool {
        self.flags.load(Relaxed) & flags != 0
    }

    /// Flags change under the lock of the context's space, but for `ANSWERED`, which is
    /// only ever set, and `LISTED`, which the request's own work sets.
    fn set(&self, flags: u32) {
        let mut old = self.flags.load(Relaxed);
        while let Err(now) = self.flags.cmpxchg(old, old | flags, Relaxed) {
            old = now;
        }
    }

    fn clear(&self, flags: u32) {
        let mut old = self.flags.load(Relaxed);
        while let Err(now) = self.flags.cmpxchg(old, old & !flags, Relaxed) {
            old = now;
        }
    }

    fn last(&self) -> u64 {
        self.first + self.pages - 1
    }

    /// QP that asks, if it is one of the card's rows; 0 if firmware asks.
    fn qpn(&self) -> u32 {
        let place = self.tag & 0xffff;
        match self.tag >> 16 {
            TAG_SENDS => place >> TAG_SENDS_QPN,
            TAG_RECEIVES => place >> TAG_RECEIVES_QPN,
            _ => 0,
        }
    }

    fn run_request(self: &Arc<Self>) {
        let mut attempts = 0;
        let mut nap = *NO_MEMORY_MS.start();
        loop {
            match self.attempt() {
                Attempt::Done => return,
                Attempt::Again if attempts < MAX_ATTEMPTS => attempts += 1,
                // The address space does not come to rest here. The card asks again.
                Attempt::Again => return self.answer(PAGE_OK),
                Attempt::Full(vpn) => return self.make_room(vpn),
                Attempt::Answer(status) => return self.answer(status),
                Attempt::NoMemory => {
                    self.context.card.counters.inc(D_NO_MEMORY);
                    if !NO_MEMORY_MS.contains(&nap) {
                        return self.answer(PAGE_NO_MEMORY);
                    }
                    fsleep(Delta::from_millis(nap));
                    nap *= 2;
                }
            }
        }
    }

    /// Answers the request, unless that has been done.
    fn answer(self: &Arc<Self>, status: u32) {
        let mine = {
            let mut space = self.context.space.lock();
            let mine = space.remove_request(self);
            self.context.kick_next(&space);
            mine
        };
        self.leave();
        if mine.is_some() {
            let card = &self.context.card;
            card.page_ready(self.generation, self.tag, status);
        }
    }

    /// Finds out what is missing, and charges it to the budgets.
    fn plan(self: &Arc<Self>, missing: &mut KVec<u64>) -> Attempt {
        let context = &self.context;
        let card = &context.card;
        let of_card = *card.budget.lock();
        let mut space = context.space.lock();
        let reserve = space.reserve;
        let spare = spare(context.memlock.limit(), self.write, reserve);
        let most = of_card.most(self.write, reserve);
        let most = most.min(space.budget.most(self.write, reserve));
        let most = most.min(context.memlock.limit() - spare);
        if self.is(ANSWERED) || space.closing {
            return Attempt::Answer(PAGE_NO_PROCESS);
        }
        if self.pages > most {
            card.counters.inc(D_OVER_BUDGET);
            return Attempt::Answer(PAGE_OVER_BUDGET);
        }
        self.clear(STALE | WAITING | BLOCKED | SHORT | BEHIND | NO_PLACE);
        let mut blocked = space.is_revoking(self.first, self.last());
        let mut next = self.first;
        space.each(self.first, self.last(), |vpn, page| {
            for gap in next..vpn {
                let _ = missing.push_within_capacity(gap);
            }
            next = vpn + 1;
            match page.state {
                PageState::Live if page.pin.is_write() || !self.write => {
                    page.since = Instant::now();
                }
                PageState::Live => {
                    // There for reading only: it has to go and come again.
                    if page.released || !page.urgent {
                        context.evict(page);
                    }
                    page.urgent = true;
                    blocked = true;
                }
                _ => blocked = true,
            }
            true
        });
        for gap in next..=self.last() {
            let _ = missing.push_within_capacity(gap);
        }
        if blocked {
            self.set(BLOCKED);
            drop(space);
            card.ring();
            // It does not wait for budget now, and keeps nobody from it.
            self.leave();
            return Attempt::Done;
        }
        let pages = missing.len() as u64;
        if pages == 0 {
            return Attempt::Answer(PAGE_OK);
        }
        // First come, first served among those that wait for the same.
        let earlier = space.requests.iter();
        let earlier = earlier.take_while(|r| !Arc::ptr_eq(r, self));
        let first = !earlier
            .filter(|r| r.write == self.write)
            .any(|r| !r.is(CHARGED));
        let mut share = context.share.budget.lock();
        let mut budget = card.budget.lock();
        let mine = first
            && space.budget.fits(pages, self.write, reserve)
            && share.fits(pages, self.write, reserve);
        let room = budget.fits(pages, self.write, reserve);
        let turn = !self.write || self.queue(mine, room);
        let fits = mine && room;
        if fits && !turn {
            self.set(BEHIND);
        } else if fits {
            if context.memlock.charge(pages, spare) {
                space.budget.charge(pages, self.write);
                share.charge(pages, self.write);
                budget.charge(pages, self.write);
                card.report_pinned(&budget);
                drop(budget);
                drop(share);
                self.charged.store(pages, Relaxed);
                self.set(CHARGED);
                context.kick_next(&space);
                return Attempt::Again;
            }
            // It is not the card's budget that it waits for.
            self.strike(&mut card.waiting.lock()[context.asid as usize]);
            if share.pinned == 0 {
                // Others have used up the process's limit; nothing here can change that.
                card.counters.inc(D_OVER_BUDGET);
                return Attempt::Answer(PAGE_OVER_BUDGET);
            }
        }
        self.set(if first { WAITING | SHORT } else { WAITING });
        Attempt::Done
    }

    /// Whether it is a receive's turn among those that wait for the card's budget. Unless that has `room` for it and it
    /// is its turn, its request is put in their list, if nothing else keeps it back.
    fn queue(&self, in_line: bool, room: bool) -> bool {
        let asid = self.context.asid as usize;
        let mut waiting = self.context.card.waiting.lock();
        let mut others = waiting.iter().enumerate().filter(|(n, _)| *n != asid);
        let turn = others.all(|(_, since)| {
            since.is_none_or(|since| {
                (since - self.since).as_nanos() >= 0 || since.elapsed().as_millis() >= TURN_MS
            })
        });
        if in_line && !(room && turn) {
            waiting[asid] = Some(self.since);
            self.set(LISTED);
        } else if !in_line && self.is(LISTED) {
            self.strike(&mut waiting[asid]);
        }
        turn
    }

    /// Takes it out of its context's place in the list.
    fn strike(&self, place: &mut Option<Instant<Monotonic>>) {
        if place.is_some_and(|since| (since - self.since).as_nanos() == 0) {
            *place = None;
        }
    }

    /// It has what it waits for, or is answered: it may be others' turn. The caller holds no lock of
    /// a space.
    fn leave(&self) {
        if self.is(LISTED) {
            self.clear(LISTED);
            let card = &self.context.card;
            self.strike(&mut card.waiting.lock()[self.context.asid as usize]);
            card.kick_all(WAITING);
        }
    }

    /// The request has to wait for budget: idle pages go first, then unused grants.
    fn wait_for_budget(self: &Arc<Self>) {
        let card = &self.context.card;
        if !self.is(WAITED) {
            self.set(WAITED);
            card.counters.inc(D_BUDGET_WAITS);
        }
        let mut under_way = self.context.evict_idle();
        for asid in 1..crate::abi::card::NUM_ASIDS {
            match card.context(asid) {
                Some(other) if asid != self.context.asid => under_way += other.evict_idle(),
                _ => {}
            }
        }
        let soon = under_way == 0 && !self.write && !self.is(PRESSED);
        if soon && self.context.press(self.pages) {
            self.set(PRESSED);
        }
        card.sweep_later();
        card.press_later();
    }

    fn attempt(self: &Arc<Self>) -> Attempt {
        let context = &self.context;
        let card = &context.card;
        let pages = self.pages as usize;
        if self.is(ANSWERED) {
            return Attempt::Done;
        }
        // Larger requests than any budget are refused before memory is taken for them.
        if self.pages > card.budget.lock().limit {
            card.counters.inc(D_OVER_BUDGET);
            return Attempt::Answer(PAGE_OVER_BUDGET);
        }
        let Ok(mut missing) = KVec::with_capacity(pages, GFP_KERNEL | __GFP_NOWARN) else {
            return Attempt::NoMemory;
        };
        match self.plan(&mut missing) {
            // Charged: go on.
            Attempt::Again => self.leave(),
            Attempt::Done => {
                if self.is(SHORT) {
                    self.wait_for_budget();
                }
                return Attempt::Done;
            }
            answer => return answer,
        }
        let result = self.pin_missing(&missing);
        self.clear(CHARGED);
        context.uncharge(self.charged.xchg(0, Relaxed), self.write);
        match result {
            Ok(attempt) => attempt,
            Err(e) if e == ENOMEM => Attempt::NoMemory,
            Err(e) => {
                if card.may_log() {
                    dev_warn!(
                        card.dev,
                        "berth: asid {}: {} pages at {:#x} cannot be pinned for {}: {:?}\n",
                        context.asid,
                        self.pages,
                        self.first * PAGE,
                        if self.write { "receiving" } else { "sending" },
                        e
                    );
                }
                Attempt::Answer(PAGE_FAULT)
            }
        }
    }

    /// Pins, maps and installs what is missing.
    fn pin_missing(self: &Arc<Self>, missing: &[u64]) -> Result<Attempt> {
        let context = &self.context;
        let notifier = context.notifier.lock().clone();
        let Some(notifier) = notifier else {
            return Ok(Attempt::Answer(PAGE_NO_PROCESS));
        };
        // Room for all of them: what is pinned finds a place.
        let mut pins = KVec::with_capacity(missing.len(), GFP_KERNEL | __GFP_NOWARN)?;
        {
            let Some(mm) = context.user_mm() else {
                return Ok(Attempt::Answer(PAGE_NO_PROCESS));
            };
            // From here on every change of the range makes the request stale.
            notifier.wait_settled();
            let mut result = self.pin_present(&mm, missing, &mut pins);
            if result == Err(EFAULT) {
                pins.clear();
                if !self.bring(&mm, missing)? {
                    return Ok(Attempt::Again);
                }
                result = self.pin_present(&mm, missing, &mut pins);
            }
            match result {
                // Gone again meanwhile.
                Err(e) if e == EFAULT => return Ok(Attempt::Again),
                result => result?,
            }
        }
        drop(notifier);
        if let Some(attempt) = self.claim(missing) {
            return Ok(attempt);
        }
        let result = self.map_and_install(missing, pins);
        self.release_claim();
        result
    }

    /// Pins what is missing, as far as it is there.
    fn pin_present(&self, mm: &MmWithUser, missing: &[u64], pins: &mut KVec<PinnedPage>) -> Result {
        let mut at = 0;
        while at < missing.len() {
            let run =
                (at..missing.len()).take_while(|i| missing[*i] - missing[at] == (*i - at) as u64);
            let run = run.count();
            let va = (missing[at] * PAGE) as usize;
            // Long-term for sends too: only that makes the process keep the page
            // when it writes to it (copy-on-write is broken first), and a page may
            // linger here.
            pin::pin_present(mm, va, run, self.write, |page| {
                let _ = pins.push_within_capacity(page);
            })?;
            at += run;
        }
        Ok(())
    }

    /// Brings what is missing. It stays charged, so that it has its turn, until it is seen that its
    /// pages do not come; `false` if what it was charged has been lent to others then.
    fn bring(&self, mm: &MmWithUser, missing: &[u64]) -> Result<bool> {
        self.begun.store(self.since.elapsed().as_millis(), Relaxed);
        {
            let _space = self.context.space.lock();
            self.set(BRINGING);
        }
        self.context.card.sweep_later();
        let result = missing
            .iter()
            .try_for_each(|vpn| pin::bring(mm, (*vpn * PAGE) as usize, self.write));
        let _space = self.context.space.lock();
        let lent = self.is(LENT);
        self.clear(BRINGING | LENT);
        result.map(|()| !lent)
    }

    /// Whether its pages have not come for long.
    fn is_stuck(&self) -> bool {
        self.is(BRINGING) && self.since.elapsed().as_millis() - self.begun.load(Relaxed) >= STUCK_MS
    }

    /// Lends to others what it is charged while its pages are brought, but for the page that it may
    /// pin; gives how many pages these are, which the caller uncharges. The caller holds the lock of
    /// the space.
    fn lend(&self) -> u64 {
        if !self.is(BRINGING) || self.is(LENT) {
            return 0;
        }
        self.set(LENT);
        self.charged.xchg(1, Relaxed) - 1
    }

    /// What is missing is to be mapped by this request; `None` if so. If another one is mapping
    /// some of it, this one waits for that, and if one has done so, it looks again.
    fn claim(&self, missing: &[u64]) -> Option<Attempt> {
        let mut space = self.context.space.lock();
        let mut others = space.requests.iter();
        let other =
            others.find(|r| r.is(INSTALLING) && r.first <= self.last() && self.first <= r.last());
        if let Some(other) = other {
            other.set(WANTED);
            self.set(BLOCKED);
            return Some(Attempt::Done);
        }
        let come = space.each(self.first, self.last(), |vpn, _| {
            missing.binary_search(&vpn).is_err()
        });
        if come.is_some() {
            return Some(Attempt::Again);
        }
        self.set(INSTALLING);
        None
    }

    /// Its pages are installed, or given back.
    fn release_claim(&self) {
        let wanted = {
            let _space = self.context.space.lock();
            self.clear(INSTALLING);
            self.is(WANTED)
        };
        if wanted {
            self.clear(WANTED);
            self.context.kick_some(BLOCKED);
        }
    }

    /// Maps and installs what is pinned; what is installed stays charged.
    fn map_and_install(
        self: &Arc<Self>,
        missing: &[u64],
        mut pins: KVec<PinnedPage>,
    ) -> Result<Attempt> {
        let context = &self.context;
        let card = &context.card;
        let flags = GFP_KERNEL | __GFP_NOWARN;
        let mut fresh: KVec<Fresh> = KVec::with_capacity(missing.len(), flags)?;
        let mut entries: KVec<Entry> = KVec::with_capacity(missing.len() + 1, flags)?;
        let bound = card.bound()?;
        let mut failed = None;
        for (vpn, pin) in missing.iter().zip(pins.drain_all()) {
            if failed.is_some() {
                continue;
            }
            let made = RBTreeNodeReservation::new(GFP_KERNEL)
                .and_then(|slot| Ok((slot, DmaPage::map(bound.clone(), &pin)?)));
            let (slot, dma) = match made {
                Ok(made) => made,
                Err(e) => {
                    card.note_unmapped(e);
                    failed = Some(Err(e));
                    continue;
                }
            };
            let Some(index) = card.xlt.lock().take(context.asid, *vpn) else {
                failed = Some(Ok(Attempt::Full(*vpn)));
                continue;
            };
            let page = PageEntry {
                dma,
                pin,
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
            self.undo(&mut fresh);
            return failed;
        }
        let mut deadline = None;
        loop {
            match self.install(&mut fresh, &mut entries) {
                Ok(true) => {
                    let installed = self.charged.xchg(0, Relaxed);
                    card.counters.add(D_PAGES_PINNED, installed);
                    card.sweep_later();
                    return Ok(Attempt::Done);
                }
                Ok(false) => {
                    self.undo(&mut fresh);
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
                    self.undo(&mut fresh);
                    return Ok(Attempt::Answer(PAGE_NO_PROCESS));
                }
            }
        }
    }

    /// Gives pages back that were not installed.
    fn undo(&self, fresh: &mut KVec<Fresh>) {
        while let Some(f) = fresh.pop() {
            self.context.card.xlt.lock().give_back(f.page.index);
        }
    }

    /// All places for a page are taken: offers idle pages there for eviction, and waits; unused grants
    /// are recalled, for a receive after a while.
    fn make_room(self: &Arc<Self>, vpn: u64) {
        let card = &self.context.card;
        self.set(NO_PLACE);
        let rivals = card.xlt.lock().rivals(self.context.asid, vpn);
        for (asid, vpn) in rivals {
            let Some(other) = card.context(asid) else {
                continue;
            };
            let mut space = other.space.lock();
            if let Some(page) = space.pages.get_mut(&vpn) {
                if page.state == PageState::Live && (page.released || !page.urgent) {
                    other.evict(page);
                }
                page.urgent = true;
            }
        }
        card.ring();
        if !self.write && self.context.press(self.pages) {
            self.set(PRESSED);
        }
        card.sweep_later();
        card.press_later();
        // It may have become free before whoever freed it could see that it is waited for.
        let free = card.xlt.lock().free(self.context.asid, vpn).is_some();
        if free {
            self.context.kick_some(NO_PLACE);
        }
    }

    /// Puts pages in the tree and in the card's table, and answers the request. `false`
    /// when something has changed meanwhile.
    ///
    /// # Errors
    ///
    /// `EBUSY` no room in the command ring, others: card out of service or context closed.
    fn install(
        self: &Arc<Self>,
        fresh: &mut KVec<Fresh>,
        entries: &mut KVec<Entry>,
    ) -> Result<bool> {
        let context = &self.context;
        let card = &context.card;
        let mut space = context.space.lock();
        if self.is(ANSWERED) || space.closing || card.state() != State::Up {
            return Err(ENODEV);
        }
        if self.is(STALE) || space.is_revoking(self.first, self.last()) {
            return Ok(false);
        }
        let mut usable = fresh.len() as u64;
        space.each(self.first, self.last(), |_, page| {
            let fits = page.pin.is_write() || !self.write;
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
            let (addr, write) = (page.dma.addr(), page.pin.is_write());
            let name = (context.asid, f.vpn);
            if !install_add(&mut entry, name, page.index, addr, write) {
                let _ = entries.push_within_capacity(entry);
                entry = [0; ENTRY_WORDS];
                install_add(&mut entry, name, page.index, addr, write);
            }
        }
        if entry[0] != 0 {
            let _ = entries.push_within_capacity(entry);
        }
        let _ = entries.push_within_capacity(ready(self.tag, PAGE_OK));
        card.post(entries)?;
        for f in fresh.drain_all() {
            let _ = space.pages.insert(f.slot.into_node(f.vpn, f.page));
        }
        let request = space.remove_request(self);
        context.kick_next(&space);
        drop(space);
        drop(request);
        Ok(true)
    }
}
