// SPDX-License-Identifier: GPL-2.0
//! A card, processes and contexts, and what must hold of them at any time.

use crate::abi::message::{CODE, Fence, FwLog, PageRevoke, QpQuery, Typed};
use crate::abi::{alias::*, card::*, counters::*, ring::*};
use crate::card::regs::Regs;
use crate::card::{Card, CardConfig, Entry, PAGE, State};
use crate::hardware::{Ask, Bar, Hardware};
use crate::kernel::eventfd::EventFd;
use crate::kernel::gate::Gate;
use crate::kernel::workqueue::OwnedQueue;
use crate::memory::{Change, Surroundings, change, surroundings};
use crate::net::Link;
use crate::pages::run::VPN_END;
use crate::pages::service::PageConfig;
use crate::pages::{AddressSpace, PageService};
use crate::process::Context;
use crate::process::{Registry, registry::RegistryConfig};
use kernel::{
    mm::{Mm, MmWithUser, task},
    pci::DEVICE as PCI,
    sync::{Arc, atomic::Relaxed},
    world::{World, calmly},
};
use std::cell::RefMut;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, Weak};

/// What this machine, or this firmware, cannot do.
pub(super) const EOPNOTSUPP: kernel::prelude::Error = kernel::prelude::Error(-95);

/// What a request is, and what is so of it.
pub(super) const STALE: u32 = 1;
pub(super) const WAITING: u32 = 4;
pub(super) const BLOCKED: u32 = 8;
pub(super) const PRESSED: u32 = 16;
pub(super) const CHARGED: u32 = 32;
pub(super) const SHORT: u32 = 128;
pub(super) const QUEUED: u32 = 256;
pub(super) const LISTED: u32 = 512;
pub(super) const BEHIND: u32 = 1024;
pub(super) const NO_PLACE: u32 = 2048;
pub(super) const INSTALLING: u32 = 4096;
pub(super) const BRINGING: u32 = 16384;
pub(super) const LENT: u32 = 32768;
pub(super) const POOL: u32 = 65536;

/// Nanoseconds of a millisecond.
pub(super) const MS: u64 = 1_000_000;

/// First page of a process's memory.
pub(super) const BASE: u64 = 0x1000;

/// Physical address of the doorbell pages.
pub(super) const DOORBELLS: u64 = 0xd_4000_0000;

/// Bytes of so many pages.
pub(super) const fn bytes(pages: u64) -> u64 {
    pages * PAGE
}

/// How a card is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) linger_ms: u32,
    pub(super) card_pages: u64,
    pub(super) context_pages: u64,
    /// Pages for copies.
    pub(super) copy_pages: u64,
    /// Contexts, queue pairs and completion queues of a process.
    pub(super) most: [u32; 3],
    /// The card is a network device as well.
    pub(super) network_device: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            linger_ms: 50,
            card_pages: 256,
            context_pages: 256,
            copy_pages: 64,
            most: [16, 64, 64],
            network_device: false,
        }
    }
}

/// A request, as debugfs shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownRequest {
    pub(super) tag: u32,
    pub(super) first: u64,
    pub(super) pages: u64,
    pub(super) write: bool,
    pub(super) flags: u32,
}

/// A page, as debugfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownPage {
    pub(super) vpn: u64,
    pub(super) index: u32,
    pub(super) state: String,
    pub(super) write: bool,
    pub(super) released: bool,
    pub(super) urgent: bool,
    pub(super) suspect: bool,
}

/// A context, as debugfs shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) limit: u64,
    pub(super) pinned: u64,
    pub(super) receive: u64,
    pub(super) running: u64,
    pub(super) requests: Vec<ShownRequest>,
    pub(super) pages: Vec<ShownPage>,
}

struct Show<'a>(&'a AddressSpace);

impl fmt::Display for Show<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(f)
    }
}

/// What debugfs shows of a context.
pub(super) fn shown(context: &Context) -> Shown {
    shown_space(&context.space)
}

/// The bits that stand for what debugfs says of a request.
fn flags(line: &str) -> u32 {
    let says = |what: &str, flag| if line.contains(what) { flag } else { 0 };
    let (_, state) = line.split_once(" state ").expect("debugfs has it");
    let state = match state.split([' ', '{']).next().unwrap_or_default() {
        "Looking" => 0,
        "Queued" => QUEUED,
        "Waiting(Earlier)" => WAITING,
        "Waiting(Line)" => WAITING | SHORT | BEHIND,
        "Waiting(Budget)" => WAITING | SHORT,
        "Waiting(Pool)" => WAITING | POOL,
        "Blocked" => BLOCKED,
        "NoPlace" => NO_PLACE,
        "Charged" => CHARGED,
        "Bringing" => CHARGED | BRINGING | says("lent: true", LENT),
        "Installing" => CHARGED | INSTALLING,
        other => panic!("no state {other}"),
    };
    state | says("stale true", STALE) | says("pressed true", PRESSED) | says("in line true", LISTED)
}

/// What debugfs shows of an address space.
fn shown_space(space: &AddressSpace) -> Shown {
    let text = calmly(|| Show(space).to_string());
    let mut all = Shown::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| {
            let at = words.iter().position(|w| *w == name).expect("debugfs has it");
            words[at + 1]
        };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap(),
        };
        match words[0] {
            "asid" => {
                assert_eq!(number(after("asid")), space.asid.into());
                all.limit = number(after("budget"));
                all.pinned = number(after("pinned"));
                all.receive = number(after("receive"));
                all.running = number(after("on"));
            }
            "request" => {
                let (first, pages) = after("pages").split_once('+').unwrap();
                all.requests.push(ShownRequest {
                    tag: number(after("tag")) as u32,
                    first: number(first),
                    pages: number(pages),
                    write: after("write") == "true",
                    flags: flags(line),
                });
            }
            _ => all.pages.push(ShownPage {
                vpn: number(after("page")),
                index: number(after("index")) as u32,
                state: words[4].into(),
                write: after("write") == "true",
                released: after("released") == "true",
                urgent: after("urgent") == "true",
                suspect: after("suspect") == "true",
            }),
        }
    }
    all
}

/// What a call comes to, once it is over.
pub(super) struct Outcome<T>(Arc<Mutex<Option<T>>>);

impl<T: Clone> Outcome<T> {
    pub(super) fn get(&self) -> Option<T> {
        self.0.lock().expect("nobody panicked").clone()
    }
}

impl<T> Outcome<T> {
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().expect("nobody panicked").take()
    }
}

/// A message of which only the opcode or kind is there.
pub(super) fn blank(code: u32) -> Entry {
    let mut entry = [0; ENTRY_WORDS];
    entry[CODE] = code;
    entry
}

/// A command that firmware answers: it asks for a queue pair's state.
pub(super) fn query(qpn: u32) -> Entry {
    QpQuery { qpn }.encode()
}

/// A command of which nothing comes: a page is taken away that is not there.
pub(super) fn nothing(index: u32) -> Entry {
    PageRevoke { index }.encode()
}

/// Bytes from firmware for its log: a number.
pub(super) fn log_event(number: u32) -> Entry {
    let mut log = FwLog { len: 4, ..FwLog::default() };
    let [first, ..] = &mut log.data;
    *first = number;
    log.encode()
}

/// A firmware image: its header, of version 1.2.3, and a word.
pub(super) fn image() -> Vec<u8> {
    let words = [FW_MAGIC, ABI_VERSION, 4, 0, 0x1_0203, 0xe1f0, 0xe1f1, 0xe1f2, 0x13];
    words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

/// Tag `n` of the sending half of a queue pair's row.
pub(super) fn send_tag(qpn: u32, n: u32) -> u32 {
    TAG_SENDS << 16 | qpn << TAG_SENDS_QPN | n
}

/// Whether what is under an alias may be a copy.
fn may_copy(alias: u32) -> bool {
    matches!(alias_policy(alias), (First::Copy, _) | (_, Again::Copy))
}

/// Tag `n` of the receiving half.
pub(super) fn receive_tag(qpn: u32, n: u32) -> u32 {
    TAG_RECEIVES << 16 | qpn << TAG_RECEIVES_QPN | n
}

/// What was so at the last look.
#[derive(Default)]
struct Before {
    card: u64,
    /// The card's budget.
    limit: u64,
    /// Pages that receives left for sends.
    reserves: BTreeMap<usize, u64>,
    /// How often nothing had changed.
    looks: u32,
    /// What had failed for want of memory.
    failed: u64,
    shares: BTreeMap<usize, u64>,
    spaces: BTreeMap<usize, Shown>,
    memlocks: BTreeMap<usize, i64>,
}

pub(super) struct Rig {
    pub(super) world: Arc<World>,
    pub(super) surroundings: Arc<Surroundings>,
    pub(super) card: Arc<Card>,
    pub(super) pages: Arc<PageService>,
    pub(super) registry: Arc<Registry>,
    gate: Arc<Gate>,
    before: Before,
    /// Pages that receives leave for sends at least, by address of the context.
    pub(super) reserve: BTreeMap<usize, u64>,
    pub(super) memlock: BTreeMap<u32, u64>,
    /// All contexts that there were.
    all: Vec<Weak<Context>>,
    /// Their address spaces, which may stay longer.
    spaces: Vec<Weak<AddressSpace>>,
    /// The watchdog runs, without end.
    pub(super) watched: bool,
    ended: bool,
}

/// A card whose firmware does not run yet.
fn card(gate: &Arc<Gate>, instance: usize, setup: Setup) -> Arc<Registry> {
    let queue = || Arc::new(OwnedQueue::default());
    let config =
        CardConfig { instance, queue: queue(), loss_window_ms: 60_000, doorbells: DOORBELLS, sizes: Sizes::HERE };
    let pages = PageConfig {
        faults: queue(),
        linger_ms: setup.linger_ms,
        card_pages: setup.card_pages,
        context_pages: setup.context_pages,
        copy_pages: setup.copy_pages,
    };
    let card = Card::new(gate, Regs::new(&PCI).expect("registers"), config).expect("a card");
    let processes = RegistryConfig {
        link: setup.network_device.then(|| Link::new(&card).expect("a network device")),
        max_process_contexts: setup.most[0],
        max_process_qps: setup.most[1],
        max_process_cqs: setup.most[2],
        shares_of: crate::cards::shares_of,
        take_events: crate::events::take,
    };
    let pages = PageService::new(&card, pages).expect("its page service");
    Registry::new(&pages, processes).expect("its registry")
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.ended, "the test has not looked at what is left");
        }
    }
}

impl Rig {
    /// A card in service.
    pub(super) fn new(setup: Setup) -> Self {
        Self::with(None, setup)
    }

    pub(super) fn with(seed: Option<u64>, setup: Setup) -> Self {
        let world = World::begin(seed);
        world.set_user(Arc::new(Surroundings::default()));
        let surroundings = surroundings();
        world.set_machine(Arc::new(|| crate::memory::surroundings().hardware.borrow_mut().step()));
        world.set_registers(Arc::new(Bar));
        world.set_image("berth/berth-fw.bin", Ok(image()));
        task::set_limit(u64::MAX);
        let gate = Arc::new(Gate::default());
        let registry = card(&gate, 0, setup);
        *surroundings.card.borrow_mut() = Some(registry.clone());
        registry.begin();
        let (card, pages) = (registry.card.clone(), registry.pages.clone());
        card.reset("for the first time").expect("it works");
        assert_eq!(card.state(), State::Up);
        Self {
            world,
            surroundings,
            card,
            pages,
            registry,
            gate,
            before: Before::default(),
            reserve: BTreeMap::new(),
            memlock: BTreeMap::new(),
            all: Vec::new(),
            spaces: Vec::new(),
            watched: false,
            ended: false,
        }
    }

    /// A context of a process on another card of the host, which is not in service.
    pub(super) fn context_elsewhere(&self, mm: &MmWithUser) -> Arc<Context> {
        let other = card(&self.gate, 1, Setup::default());
        self.surroundings.others.borrow_mut().push(other.clone());
        Context::new(&other, mm, None).expect("a context")
    }

    /// A process.
    pub(super) fn process(&self) -> &'static MmWithUser {
        Mm::leak()
    }

    /// A process with memory of so many pages from [`BASE`] on, and a context of it, which has queue pair `qpn`.
    pub(super) fn user(&mut self, qpn: u32, pages: u64) -> (&'static MmWithUser, Arc<Context>) {
        let mm = self.process();
        self.mmap(mm, BASE, pages);
        let context = self.context(mm);
        self.give_qp(qpn, context.asid);
        (mm, context)
    }

    /// The first use of a page does not end, or does again.
    pub(super) fn stick(&self, mm: &MmWithUser, vpn: u64, stuck: bool) {
        self.surroundings.memory.borrow_mut().set_stuck(mm.as_raw() as usize, vpn, stuck);
    }

    /// Pages that were ever pinned, whether they still are or not.
    pub(super) fn pinned(&self) -> u64 {
        self.surroundings.memory.borrow().pinned
    }

    /// The card takes no commands, or does again.
    pub(super) fn stall(&self, stalled: bool) {
        self.surroundings.hardware.borrow_mut().stalled = stalled;
    }

    /// A context of a process.
    pub(super) fn context(&mut self, mm: &MmWithUser) -> Arc<Context> {
        self.context_with(mm, u64::MAX)
    }

    /// The same with so many pages of `RLIMIT_MEMLOCK`.
    pub(super) fn context_with(&mut self, mm: &MmWithUser, pages: u64) -> Arc<Context> {
        self.context_of(mm, pages, -1)
    }

    /// The same with an event descriptor.
    pub(super) fn context_of(&mut self, mm: &MmWithUser, pages: u64, fd: i32) -> Arc<Context> {
        task::set_limit(if pages == u64::MAX { pages } else { bytes(pages) });
        let event_fd = EventFd::from_fd(fd).expect("it is open");
        let context = Context::new(&self.registry, mm, event_fd).expect("a context");
        self.surroundings.hardware.borrow_mut().mms.insert(context.asid, mm.as_raw() as usize);
        self.memlock.insert(context.asid, pages);
        self.all.push(Arc::downgrade(&context));
        self.spaces.push(Arc::downgrade(&context.space));
        self.before.spaces.remove(&(Arc::as_ptr(&context.space) as usize));
        self.reserve.insert(Arc::as_ptr(&context.space) as usize, 2 * crate::abi::wqe::MAX_SGE as u64);
        context
    }

    /// Says whose a queue pair is.
    pub(super) fn give_qp(&self, qpn: u32, asid: u32) {
        self.registry.tables.lock().qps[(qpn - FIRST_QPN) as usize] = asid as u8;
    }

    /// Maps pages in a process.
    pub(super) fn mmap(&self, mm: &MmWithUser, first: u64, pages: u64) {
        self.surroundings.memory.borrow_mut().mmap(mm.as_raw() as usize, first, pages, true);
    }

    /// Changes pages of a process; the notifier may wait.
    pub(super) fn change(&self, mm: &MmWithUser, first: u64, pages: u64, what: Change) {
        assert!(change(mm.as_raw() as usize, first, pages, what, true));
    }

    /// The same without waiting; returns whether it was allowed.
    pub(super) fn change_at_once(&self, mm: &MmWithUser, first: u64, pages: u64, what: Change) -> bool {
        change(mm.as_raw() as usize, first, pages, what, false)
    }

    /// The card asks for pages.
    pub(super) fn ask(&self, tag: u32, context: &Context, first: u64, pages: u64, write: bool) {
        self.surroundings.hardware.borrow_mut().ask(tag, context.asid, bytes(first), bytes(pages), write);
    }

    /// The same, and goes on until it has them.
    pub(super) fn get(&self, tag: u32, context: &Context, first: u64, pages: u64, write: bool) {
        self.ask(tag, context, first, pages, write);
        self.world.run_until(|| self.holds(tag));
        self.world.settle();
    }

    pub(super) fn holds(&self, tag: u32) -> bool {
        self.surroundings.hardware.borrow().holds.contains_key(&tag)
    }

    pub(super) fn asks(&self, tag: u32) -> Option<Ask> {
        self.surroundings.hardware.borrow().asks.get(&tag).copied()
    }

    /// What a request was refused with.
    pub(super) fn refused(&self, tag: u32) -> Option<u32> {
        self.surroundings.hardware.borrow().refused.get(&tag).copied()
    }

    pub(super) fn release(&self, tag: u32) {
        self.surroundings.hardware.borrow_mut().release(tag);
    }

    /// Goes on for so many milliseconds.
    pub(super) fn ms(&self, ms: u64) {
        self.world.run_for(ms * MS);
        self.world.settle();
    }

    /// Does what is to be done now.
    pub(super) fn settle(&self) {
        self.world.settle();
    }

    /// A counter of the driver.
    pub(super) fn counter(&self, index: u32) -> u64 {
        self.card.counters.get(index)
    }

    /// The page of a context.
    pub(super) fn page(&self, context: &Context, vpn: u64) -> Option<ShownPage> {
        shown(context).pages.into_iter().find(|p| p.vpn == vpn)
    }

    /// The flags of a request.
    pub(super) fn flags(&self, context: &Context, tag: u32) -> u32 {
        let request = shown(context).requests.into_iter().find(|r| r.tag == tag);
        request.expect("the driver has it").flags
    }

    /// Pages pinned in all.
    pub(super) fn pins(&self) -> u64 {
        self.surroundings.memory.borrow().pins
    }

    /// How often the card was given a command.
    pub(super) fn times(&self, opcode: u32) -> usize {
        self.surroundings.hardware.borrow().times(opcode)
    }

    /// The last command of a type.
    pub(super) fn last<M: Typed>(&self) -> M {
        self.surroundings.hardware.borrow().log.iter().rev().find_map(M::of).expect("it was given")
    }

    /// The command ring has room for so many entries and no more.
    pub(super) fn narrow(&self, room: u16) {
        let lag = 4096 - room;
        for _ in 0..lag {
            let fence = Fence::default().encode();
            calmly(|| self.card.post(&[fence])).expect("there is room");
        }
        while self.surroundings.hardware.borrow().backlog() > 0 {
            self.surroundings.hardware.borrow_mut().step();
        }
        while self.surroundings.hardware.borrow_mut().step() {}
        let mut hardware = self.surroundings.hardware.borrow_mut();
        hardware.lag = lag;
        hardware.log.clear();
    }

    /// The card's hardware.
    pub(super) fn hardware(&self) -> RefMut<'_, Hardware> {
        self.surroundings.hardware.borrow_mut()
    }

    /// The card takes all commands and sends all events, in no time, and the driver does nothing.
    pub(super) fn drain(&self) {
        while self.hardware().step() {}
    }

    /// Has something done by a thread of its own, which has not begun yet.
    pub(super) fn spawn<T: 'static>(&self, f: impl FnOnce() -> T + 'static) -> Outcome<T> {
        let outcome = Arc::new(Mutex::new(None));
        let theirs = outcome.clone();
        self.world.spawn(move || *theirs.lock().expect("nobody panicked") = Some(f()));
        Outcome(outcome)
    }

    /// The device goes.
    pub(super) fn begin_unbind(&self) -> Outcome<()> {
        let registry = self.registry.clone();
        self.begin(move |_| registry.unbind())
    }

    /// Has something done with the card by a thread of its own.
    pub(super) fn begin<T: 'static>(&self, f: impl FnOnce(&Arc<Card>) -> T + 'static) -> Outcome<T> {
        let card = self.card.clone();
        let outcome = self.spawn(move || f(&card));
        self.settle();
        outcome
    }

    /// The command ring is full, and the card takes none.
    pub(super) fn fill(&self) {
        self.stall(true);
        let room = 4096 - self.hardware().backlog();
        self.card.post(&vec![nothing(0); room.into()]).expect("there is room");
        self.hardware().log.clear();
    }

    /// The watchdog is at work.
    pub(super) fn watched(setup: Setup) -> Self {
        let mut rig = Self::new(setup);
        rig.watched = true;
        rig.card.start_watching();
        rig
    }

    /// The lines of the kernel's log that contain this; it begins anew.
    pub(super) fn logged(&self, text: &str) -> Vec<String> {
        self.world.take_log().into_iter().filter(|line| line.contains(text)).collect()
    }

    /// All contexts that there are.
    pub(super) fn contexts(&self) -> Vec<Arc<Context>> {
        calmly(|| (1..NUM_ASIDS).filter_map(|asid| self.registry.context(asid)).collect())
    }

    /// What must hold whatever has happened.
    pub(super) fn check(&mut self) {
        calmly(|| self.check_calmly());
    }

    fn check_calmly(&mut self) {
        let card = self.card.clone();
        let budget = *self.pages.budget.lock();
        // It may have become smaller since something was charged, and what is left for sends more.
        let most = budget.limit.max(core::mem::replace(&mut self.before.limit, budget.limit));
        let reserves = core::mem::replace(&mut self.before.reserves, self.reserve.clone());
        if budget.pinned == self.before.card && self.before.looks < 50 {
            self.before.looks += 1;
            return;
        }
        assert_eq!(card.counters.get(D_PINNED), bytes(budget.pinned), "decision_14: one number");
        assert!(card.counters.get(D_PINNED_PEAK) >= bytes(budget.pinned));
        self.spaces.retain(|s| s.strong_count() > 0);
        let all: Vec<Arc<AddressSpace>> = self.spaces.iter().filter_map(Weak::upgrade).collect();
        let failed = self.world.failed() + self.surroundings.memory.borrow().failed;
        let (mut of_card, mut shares) = (0, BTreeMap::new());
        let mut spaces = BTreeMap::new();
        for space in &all {
            let now = shown_space(space);
            let key = Arc::as_ptr(space) as usize;
            let reserve = self.reserve[&key].min(reserves.get(&key).copied().unwrap_or(u64::MAX));
            let default = Shown::default();
            let before = self.before.spaces.get(&key).unwrap_or(&default);
            let limit = now.limit.max(before.limit);
            if now.pinned > before.pinned {
                assert!(now.pinned <= limit, "pc_3: {} pages of {limit}", now.pinned);
                if now.receive > before.receive {
                    assert!(
                        now.pinned <= limit - reserve.min(limit / 2),
                        "decision_19: receives leave pages for sends"
                    );
                    assert!(budget.pinned <= most - reserve.min(most / 2), "decision_19: of the card");
                }
            }
            assert!(now.receive <= now.pinned);
            assert!(now.running <= 96, "decision_21: {} are worked on", now.running);
            let mut installing = now.requests.iter().filter(|r| r.flags & INSTALLING != 0).collect::<Vec<_>>();
            installing.sort_by_key(|r| r.first);
            for pair in installing.windows(2) {
                assert!(pair[0].first + pair[0].pages <= pair[1].first, "a page is mapped by two requests at a time");
            }
            // Who was charged came before all others of its kind, unless one was charged, and failed, since the last look.
            let pins = |r: &ShownRequest| {
                r.tag != u32::MAX && aliased_va(bytes(r.first)).is_none_or(|(alias, _)| !may_copy(alias))
            };
            let charged = |r: &ShownRequest| failed == self.before.failed && pins(r) && r.flags & CHARGED != 0;
            for (n, request) in now.requests.iter().enumerate().filter(|(_, r)| charged(r)) {
                let was = before.requests.iter().any(|r| r.tag == request.tag && r.flags & CHARGED != 0);
                if !was {
                    for earlier in now.requests[..n].iter().filter(|r| pins(r) && r.write == request.write) {
                        let was = before.requests.iter().find(|r| r.tag == earlier.tag);
                        let ok = earlier.flags & CHARGED != 0 || was.is_some_and(|r| r.flags & CHARGED != 0);
                        assert!(ok, "pc_3: {:#x} is served before {:#x}", request.tag, earlier.tag);
                    }
                }
            }
            let pins = now.pages.iter().filter(|p| p.vpn < VPN_END).count();
            assert!(now.pinned >= pins as u64, "pages that are not charged");
            let mm = space.mm.as_raw() as usize;
            let share = shares.entry(mm).or_insert((0, space.clone()));
            share.0 += now.pinned;
            of_card += now.pinned;
            spaces.insert(key, now);
        }
        assert_eq!(of_card, budget.pinned, "the card's budget is the sum of its contexts'");
        assert!(budget.pinned <= self.before.card || budget.pinned <= most, "pc_3: the card's budget");
        let mut now = BTreeMap::new();
        let mut memlocks = BTreeMap::new();
        for (mm, (sum, space)) in shares {
            let share = *space.share.budget.lock();
            assert_eq!(sum, share.pinned, "the process's budget is the sum of its contexts'");
            let was = self.before.shares.get(&mm).copied().unwrap_or(0);
            assert!(share.pinned <= was || share.pinned <= share.limit, "pc_3: the process's budget");
            let pins = self.surroundings.memory.borrow().pins_of(mm);
            assert!(pins <= share.pinned, "decision_14: {pins} pages are pinned, {} charged", share.pinned);
            let charged = space.mm.counts().2;
            let was = self.before.memlocks.get(&mm).copied().unwrap_or(0);
            let most = all.iter().filter(|s| s.mm.as_raw() as usize == mm);
            let most = most.map(|s| self.memlock[&s.asid]).max().unwrap_or(u64::MAX);
            assert!(charged <= was || charged as u64 <= most, "pc_3: RLIMIT_MEMLOCK");
            now.insert(mm, share.pinned);
            memlocks.insert(mm, charged);
        }
        let reserves = self.reserve.clone();
        self.before = Before {
            card: budget.pinned,
            limit: budget.limit,
            reserves,
            looks: 0,
            failed,
            shares: now,
            spaces,
            memlocks,
        };
    }

    /// Goes on for a time, and looks at every step.
    pub(super) fn watch(&mut self, ns: u64) {
        let end = self.world.now() + ns;
        while self.world.step(end) && self.world.now() <= end {
            self.check();
        }
        let now = self.world.now();
        self.world.pass(end.saturating_sub(now));
        self.check();
    }

    /// Everything works again, nobody uses anything any more: every request is answered, and nothing stays pinned.
    pub(super) fn quiesce(&mut self) {
        self.world.set_failures(0, 0);
        self.world.fail_next(0, 0);
        {
            let mut memory = self.surroundings.memory.borrow_mut();
            memory.fail = 0;
            memory.fail_pins = (0, None);
            memory.fail_maps = 0;
            memory.unstick_all();
        }
        let end = self.world.now() + 20_000 * MS;
        loop {
            {
                let mut hardware = self.surroundings.hardware.borrow_mut();
                hardware.stalled = false;
                hardware.slow = false;
                hardware.deaf = false;
                hardware.mute = false;
                let tags: Vec<u32> = hardware.holds.keys().copied().collect();
                tags.into_iter().for_each(|tag| hardware.release(tag));
            }
            self.watch(20 * MS);
            let (asks, holds) = {
                let hardware = self.surroundings.hardware.borrow();
                (hardware.asks.clone(), hardware.holds.len())
            };
            let requests: usize = self.contexts().iter().map(|c| shown(c).requests.len()).sum();
            if asks.is_empty()
                && holds == 0
                && requests == 0
                && self.world.threads() == 0
                && self.card.state() == State::Up
            {
                break;
            }
            if self.world.now() > end {
                let all: Vec<Shown> = self.contexts().iter().map(|c| shown(c)).collect();
                panic!("decision_21: unanswered: {asks:x?}\n{all:#?}");
            }
        }
        self.check();
        self.check_translations();
        // Linger and more.
        let linger = u64::from(self.pages.linger_ms.load(Relaxed));
        self.world.run_for((3 * linger.max(1000) + 500) * MS);
        self.check();
        assert_eq!(
            self.pins(),
            0,
            "pages stay pinned: {:#?}",
            self.contexts().iter().map(|c| shown(c)).collect::<Vec<_>>()
        );
        assert_eq!(self.surroundings.memory.borrow().mappings(), 0);
        assert_eq!(self.surroundings.hardware.borrow().translations().count(), 0);
        assert_eq!(self.pages.budget.lock().pinned, 0);
        assert_eq!((self.pages.pool.lock().used, self.counter(D_COPY_USED)), (0, 0), "copies stay");
        assert_eq!(self.pages.table.lock().used(), 0, "places stay taken");
        assert_eq!(self.counter(D_PAGES_PINNED), self.counter(D_PAGES_UNPINNED));
        for context in self.contexts() {
            let shown = shown(&context);
            assert_eq!((shown.pinned, shown.receive, shown.running), (0, 0, 0));
            let share = *context.space.share.budget.lock();
            assert_eq!((share.pinned, share.receive), (0, 0));
        }
        let budget = *self.pages.budget.lock();
        assert_eq!((budget.pinned, budget.receive), (0, 0));
        assert!(self.pages.waiting.lock().iter().all(Option::is_none), "who has left stands in the list");
        assert!(self.watched || !self.world.is_busy(), "work goes on though there is nothing to do");
    }

    /// What the card has is what the driver thinks it has, and what the processes have there.
    fn check_translations(&self) {
        let contexts = self.contexts();
        let hardware = self.surroundings.hardware.borrow();
        for entry in hardware.translations() {
            let context = contexts.iter().find(|c| c.asid == entry.asid).expect("whose page it is");
            let page = self.page(context, entry.vpn);
            // Debugfs shows so many.
            assert!(page.is_some() || shown(context).pages.len() == 256, "a page that the driver does not know");
            assert!(page.is_none_or(|p| p.write == entry.write));
            let mm = context.space.mm.as_raw() as usize;
            let vpn = aliased_va(bytes(entry.vpn)).map_or(entry.vpn, |(_, va)| va / PAGE);
            if let Some((of, page, _)) = self.surroundings.memory.borrow().copied(entry.bus) {
                assert_eq!((of, page), (mm, vpn), "vc_6: the copy of another page");
                continue;
            }
            let (frame, write) = self.surroundings.memory.borrow().behind(entry.bus);
            assert!(
                self.surroundings.memory.borrow().maps(mm, vpn, frame, write),
                "decision_18: page {:#x} stays, and is not what the process has there",
                entry.vpn
            );
        }
        for context in &contexts {
            for page in shown(context).pages.iter().filter(|p| p.state == "Live") {
                assert!(hardware.has(context.asid, page.vpn).is_some(), "the card has not what is live");
            }
        }
    }

    /// Ends it all; nothing is left.
    pub(super) fn end(mut self) {
        self.quiesce();
        self.end_at_once();
    }

    /// Nobody gets at the bound device any more.
    pub(super) fn close_gate(&self) {
        self.gate.closed.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// The same, whatever is under way.
    pub(super) fn end_at_once(mut self) {
        self.ended = true;
        self.surroundings.memory.borrow_mut().unstick_all();
        for context in self.contexts() {
            let weak = Arc::downgrade(&context);
            self.world.spawn(move || context.close());
            self.world.run_for(200 * MS);
            assert!(weak.upgrade().is_none_or(|c| shown(&c).pages.is_empty()), "inv_3: a closed context has pages");
        }
        if let Some(link) = self.registry.link.clone() {
            self.world.spawn(move || link.end());
        }
        self.world.run_for(2000 * MS);
        self.close_gate();
        let registry = self.registry.clone();
        self.world.spawn(move || registry.unbind());
        self.world.run_for(2000 * MS);
        assert_eq!(self.pins(), 0, "inv_3: pages stay pinned");
        assert_eq!(self.surroundings.memory.borrow().mappings(), 0, "inv_3: pages stay mapped");
        assert_eq!(self.pages.budget.lock().pinned, 0);
        assert!(!self.world.is_busy(), "work is left");
        assert_eq!(self.surroundings.hardware.borrow().dma_under_way(), 0);
        assert_eq!(self.world.images(), 0, "an image is held");
        *self.surroundings.card.borrow_mut() = None;
        // The test may have its contexts.
        let left: Vec<usize> = self.all.iter().map(Weak::strong_count).filter(|n| *n > 0).collect();
        assert!(left.iter().all(|n| *n == 1), "a context is left");
        assert_eq!(Arc::strong_count(&self.registry), 1 + left.len(), "the registry is held");
        assert_eq!(Arc::strong_count(&self.pages), 2 + left.len(), "the page service is held");
        let of_link = 2 * usize::from(self.registry.link.is_some());
        assert_eq!(Arc::strong_count(&self.card), 3 + of_link + 2 * left.len(), "the card is held");
        self.card.free_rings();
        self.world.end();
    }
}
