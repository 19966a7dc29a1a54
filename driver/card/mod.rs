// SPDX-License-Identifier: GPL-2.0
//! One card: its rings, commands and state, without any user interface.
//!
//! Lock order, outermost first: `Context::control`, `reset_lock`, `events`, `Space` (a
//! context's pages), the process's budget, the card's `budget`, then the leaves `xlt`,
//! `answers`, `needs`, `cmd`, `calls`, `log`, and `tables` or a context's `objects`, under either of which its
//! events are queued and dropped. All from `Space` on are spin locks. The MMU notifier
//! takes only these; none of them is held while memory is allocated with reclaim or pages
//! are pinned. A notifier that waits for a fence is let go by a reset before the reset
//! takes memory or any lock that is held while memory is allocated.

pub(crate) mod firmware;
pub(crate) mod regs;

use crate::{
    abi::{card::*, counters::*, host::*, ioctl, ring::*, status::*, wqe::PHASE},
    card::regs::{Regs, ALL_ONES},
    kernel::doorbell::HeldInode,
    kernel::errno::unsupported,
    kernel::gate::{BoundRef, Gate},
    kernel::workqueue::OwnedQueue,
    pages::budget::Budget,
    pages::table::Xlt,
    pages::{Need, RETRY_MS},
    process::context::{Context, Cq, Share, MAX_PER_CONTEXT},
};
use kernel::{
    device,
    dma::Coherent,
    dma_read, dma_write, impl_has_delayed_work, impl_has_work,
    mm::Mm,
    new_delayed_work, new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, Completion, Mutex, SpinLock,
    },
    time::{delay::fsleep, msecs_to_jiffies, Delta, Instant, Monotonic},
    workqueue::{DelayedWork, Work, WorkItem},
};

/// An entry of either ring.
pub(crate) type Entry = [u32; ENTRY_WORDS];

/// log2 of the entries of both rings.
const RING_LOG2: u32 = 12;
/// Entries of both rings.
const RING: u16 = 1 << RING_LOG2;
/// Firmware commands in flight at most.
const MAX_CALLS: usize = 256;
/// Bytes of firmware log kept.
const LOG_BYTES: usize = 65536;

/// Card cycles within which firmware answers the heartbeat (20 ms at 250 MHz).
const HEARTBEAT_CYCLES: u64 = 5_000_000;
/// Card cycles within which a firmware command ends (1 s).
const COMMAND_CYCLES: u64 = 250_000_000;
/// Card cycles within which a fence ends (100 ms).
pub(crate) const FENCE_CYCLES: u64 = 25_000_000;
/// Card cycles within which firmware starts (1 s).
pub(crate) const BOOT_CYCLES: u64 = 250_000_000;
/// Page requests at most: more than the card can have under way.
pub(crate) const MAX_ASKED: usize = 512;
/// Time in milliseconds after which page requests for which there was no memory are tried
/// again.
const NEED_MS: u32 = 10;
/// Time in milliseconds after which the command ring is tried again for them.
const ANSWER_MS: u32 = 2;
/// Time in milliseconds after which it is looked whether receives still wait for budget.
const PRESS_MS: u32 = 10;
/// Names `CMD_PRESSURE` in its answer; calls have lower numbers, from 1 on.
const PRESS_COOKIE: u32 = u32::MAX;
/// Wall-clock time after which a card whose clock stands still counts as lost. This is
/// no measure of speed: a slow card counts cycles, only a dead one does not.
const STANDSTILL_MS: i64 = 30_000;
/// Losses of firmware within `CardConfig::loss_window_ms` after which the driver stops
/// restarting it.
const MAX_LOSSES: u32 = 8;

/// State of a card, as the driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no working firmware.
    Down = 0,
    /// In service.
    Up = 1,
    /// Being reset.
    Resetting = 2,
    /// Does not answer: pulled out or dead.
    Gone = 3,
    /// The driver is being unbound.
    Unbound = 4,
}

/// The driver's counters, indexed as `DRV_COUNTER_TABLE`.
pub(crate) struct Counters([Atomic<u64>; NUM_DRV_COUNTERS]);

impl Counters {
    fn new() -> Self {
        Self([const { Atomic::new(0) }; NUM_DRV_COUNTERS])
    }

    /// Adds `n` to counter `index`.
    pub(crate) fn add(&self, index: u32, n: u64) {
        self.0[index as usize].add(n, Relaxed);
    }

    /// Takes `n` off gauge `index`.
    pub(crate) fn sub(&self, index: u32, n: u64) {
        self.0[index as usize].fetch_sub(n, Relaxed);
    }

    /// Adds 1 to counter `index`.
    pub(crate) fn inc(&self, index: u32) {
        self.add(index, 1);
    }

    /// Sets gauge `index`.
    pub(crate) fn set(&self, index: u32, value: u64) {
        self.0[index as usize].store(value, Relaxed);
    }

    /// Value of counter `index`.
    pub(crate) fn get(&self, index: u32) -> u64 {
        self.0[index as usize].load(Relaxed)
    }
}

/// A deadline in card cycles, with the escape that a clock which stands still (or reads
/// all-ones) ends it too.
pub(crate) struct Deadline {
    end: Option<u64>,
    limit: u64,
    seen: u64,
    moved: Instant<Monotonic>,
}

impl Deadline {
    /// `limit` cycles from now.
    pub(crate) fn new(regs: &Regs, limit: u64) -> Self {
        let now = regs.cycles();
        Self {
            end: now.map(|n| n.saturating_add(limit)),
            limit,
            seen: now.unwrap_or(0),
            moved: Instant::now(),
        }
    }

    /// Whether it has passed.
    pub(crate) fn passed(&mut self, regs: &Regs) -> bool {
        let (Some(now), Some(end)) = (regs.cycles(), self.end) else {
            return true;
        };
        if now < self.seen {
            // The card was reset meanwhile: its clock began anew.
            self.end = Some(now.saturating_add(self.limit));
        }
        if now != self.seen {
            self.seen = now;
            self.moved = Instant::now();
        }
        now > end || self.moved.elapsed().as_millis() > STANDSTILL_MS
    }
}

/// Command ring. The driver owns the entries from the consumer to the producer index
/// until the doorbell, the card those after it.
struct CmdRing {
    ring: Option<Coherent<[Entry]>>,
    pi: u16,
    ci: u16,
    /// Producer index that the card was told last.
    rung: u16,
    /// Entry before the producer index.
    last: Entry,
    /// Changes whenever the ring is set up anew for another run of firmware.
    generation: u32,
}

/// A page request's answer that waits for room in the command ring.
struct Answer {
    generation: u32,
    entry: Entry,
}

/// Answers that wait, and until when.
struct Answers {
    list: KVec<Answer>,
    deadline: Option<Deadline>,
}

/// Event ring, read by the interrupt thread alone.
pub(crate) struct EventRing {
    ring: Option<Coherent<[Entry]>>,
    ci: u16,
}

/// A firmware command in flight.
#[pin_data]
struct Call {
    #[pin]
    done: Completion,
    #[pin]
    answer: SpinLock<Option<Result<Entry>>>,
    cookie: u32,
    destroys: u32,
}

struct Calls {
    list: KVec<(Arc<Call>, Option<Watched>)>,
    next_cookie: u32,
}

/// What the watchdog has noted about a call.
struct Watched {
    cycles: u64,
    moved: Instant<Monotonic>,
    last: u64,
}

/// Who owns what on the card.
pub(crate) struct Tables {
    /// ASID of each QP's owner, by QPN - `FIRST_QPN`; 0 free.
    pub(crate) qps: [u8; NUM_QPS as usize],
    /// Completion queues by CQN.
    pub(crate) cqs: [Option<Arc<Cq>>; NUM_CQS as usize],
    /// ASID of each completion queue's owner, by CQN (also while a queue is being made); 0 free.
    pub(crate) cq_owners: [u8; NUM_CQS as usize],
    /// Contexts by ASID.
    pub(crate) contexts: [Option<Arc<Context>>; NUM_ASIDS as usize],
    /// ASIDs taken.
    pub(crate) asids_taken: [bool; NUM_ASIDS as usize],
    /// Services listened to.
    pub(crate) services: KVec<Listener>,
    /// Connection requests not yet answered.
    pub(crate) requests: KVec<Asked>,
}

/// Who listens to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The service.
    pub(crate) service: u32,
    /// ASID.
    pub(crate) asid: u32,
    /// Identity in that context.
    pub(crate) identity: u64,
}

/// A connection request that is not yet answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its id, which firmware has given it.
    pub(crate) id: u32,
    /// ASID of whom it is for.
    pub(crate) asid: u32,
    /// Identity of the listener that it is for.
    pub(crate) listener: u64,
}

impl Tables {
    /// Finds a free place among `owners` for an object of `context`, whose process may have `most` of them in all its
    /// contexts.
    ///
    /// # Errors
    ///
    /// `ENOSPC` it has as many, or none is free.
    pub(crate) fn free_place(&self, owners: &[u8], context: &Context, most: u32) -> Result<usize> {
        let same = |asid: &u8| {
            let owner = self.contexts[usize::from(*asid)].as_ref();
            owner.is_some_and(|owner| Arc::ptr_eq(&owner.share, &context.share))
        };
        if owners.iter().filter(|asid| same(asid)).count() >= most as usize {
            return Err(ENOSPC);
        }
        owners.iter().position(|asid| *asid == 0).ok_or(ENOSPC)
    }

    /// Takes a connection request off the list; gives the ASID that it was for.
    pub(crate) fn take_request(&mut self, request: u32) -> Option<u32> {
        let at = self.requests.iter().position(|r| r.id == request)?;
        self.requests.remove(at).ok().map(|r| r.asid)
    }

    /// Processes that listen to a service, and connection requests that wait for the one with `mm`.
    pub(crate) fn listeners(&self, mm: *mut kernel::bindings::mm_struct) -> (usize, usize) {
        let of = |asid: u32| self.contexts.get(asid as usize)?.as_ref();
        let mut listens = [false; NUM_ASIDS as usize];
        for listener in &self.services {
            listens[listener.asid as usize % listens.len()] = true;
        }
        let mms = || {
            (1..NUM_ASIDS)
                .filter(|a| listens[*a as usize])
                .filter_map(of)
        };
        // Each counts once, whatever the number of its contexts.
        let first = |i: usize, mm| !mms().take(i).any(|c| c.mm.as_raw() == mm);
        let processes = mms()
            .enumerate()
            .filter(|(i, c)| first(*i, c.mm.as_raw()))
            .count();
        let waiting = self
            .requests
            .iter()
            .filter(|r| of(r.asid).is_some_and(|c| c.mm.as_raw() == mm))
            .count();
        (processes, waiting)
    }
}

/// The end node's name, kept to be given to firmware again after a reset.
#[derive(Clone, Copy, Default)]
pub(crate) struct Net {
    /// IPv4 address, first byte in bits 31:24; 0 not set.
    pub(crate) ipv4: u32,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// MAC address.
    pub(crate) mac: [u8; 6],
    /// GUID.
    pub(crate) guid: u64,
}

impl Net {
    /// The command that tells firmware, with a new key for the numbers that others are not to guess.
    pub(crate) fn command(&self) -> Entry {
        let key = crate::kernel::random::words::<4>();
        let mut entry = [0; ENTRY_WORDS];
        entry[0] = CMD_NET_CONFIG;
        entry[2] = self.ipv4;
        entry[3] = u32::from_be_bytes([self.mac[0], self.mac[1], self.mac[2], self.mac[3]]);
        entry[4] = u32::from_be_bytes([0, 0, self.mac[4], self.mac[5]]);
        entry[5] = self.mtu;
        entry[6] = self.guid as u32;
        entry[7] = (self.guid >> 32) as u32;
        entry[8..12].copy_from_slice(&key);
        entry
    }
}

/// Firmware that is loaded.
#[derive(Clone, Copy, Default)]
pub(crate) struct FwInfo {
    /// Version of the image.
    pub(crate) version: u32,
    /// Start of the SHA-256 of its ELF file.
    pub(crate) elf_id: [u32; 3],
}

struct Log {
    bytes: KVVec<u8>,
    head: usize,
    len: usize,
    lost: u32,
}

struct Heartbeat {
    challenge: u32,
    asked: Option<Deadline>,
}

/// One card.
#[pin_data]
pub(crate) struct Card {
    /// For log lines.
    pub(crate) dev: ARef<device::Device>,
    /// Way to the bound device.
    pub(crate) gate: Arc<Gate>,
    /// Where all work but page requests runs; nothing there waits for a process.
    pub(crate) queue: Arc<OwnedQueue>,
    /// Where page requests run, and what else may wait for a page fault.
    pub(crate) faults: Arc<OwnedQueue>,
    /// Number of the card: `/dev/berthN`.
    pub(crate) instance: usize,
    /// Registers.
    pub(crate) regs: Regs,
    /// Physical address of BAR2.
    pub(crate) doorbells: u64,
    /// Counters.
    pub(crate) counters: Counters,
    /// Linger time of unused pins in milliseconds.
    pub(crate) linger_ms: Atomic<u32>,
    /// QPs that one process may have.
    pub(crate) max_process_qps: u32,
    /// CQs that one process may have.
    pub(crate) max_process_cqs: u32,
    /// Contexts, and so doorbell pages, that one process may have.
    pub(crate) max_process_contexts: u32,
    /// Milliseconds in which firmware may be lost `MAX_LOSSES` times and is started again.
    loss_window_ms: i64,
    /// Budget that a process gets, in pages.
    pub(crate) context_pages: u64,
    state: Atomic<u32>,
    /// Raised whenever contexts have lost their objects.
    pub(crate) epoch: Atomic<u32>,
    /// Token of the last fence.
    #[pin]
    token: SpinLock<u64>,
    /// Firmware has been told that memory is short, and has not answered yet.
    pressing: Atomic<u32>,
    /// The card was given up because nothing answered: 1 as long as it does not.
    vanished: Atomic<u32>,
    log_window: Atomic<u64>,
    /// ARP messages of another host with this card's address, as they were told last.
    conflicts: Atomic<u64>,
    born: Instant<Monotonic>,
    #[pin]
    cmd: SpinLock<CmdRing>,
    #[pin]
    pub(crate) events: Mutex<EventRing>,
    #[pin]
    fence: SpinLock<Option<Coherent<[u64]>>>,
    #[pin]
    calls: SpinLock<Calls>,
    #[pin]
    answers: SpinLock<Answers>,
    /// Page requests for which there was no memory.
    #[pin]
    pub(crate) needs: SpinLock<KVec<Need>>,
    /// Translation table.
    #[pin]
    pub(crate) xlt: SpinLock<Xlt>,
    /// Budget of the card.
    #[pin]
    pub(crate) budget: SpinLock<Budget>,
    /// By ASID: since when a receive waits for the card's budget.
    #[pin]
    pub(crate) waiting: SpinLock<[Option<Instant<Monotonic>>; NUM_ASIDS as usize]>,
    /// Owners.
    #[pin]
    pub(crate) tables: SpinLock<Tables>,
    /// Name in the network.
    #[pin]
    pub(crate) net: SpinLock<Net>,
    /// Serialises changes of the name.
    #[pin]
    pub(crate) naming: Mutex<()>,
    /// Firmware.
    #[pin]
    pub(crate) fw: SpinLock<FwInfo>,
    #[pin]
    log: SpinLock<Log>,
    /// Device nodes through which doorbell pages are mapped.
    #[pin]
    nodes: Mutex<KVec<(HeldInode, usize)>>,
    #[pin]
    heartbeat: Mutex<Heartbeat>,
    #[pin]
    losses: SpinLock<(u32, Instant<Monotonic>)>,
    /// What processes have of the card, those included that have no context any more. Held
    /// while a context is made.
    #[pin]
    pub(crate) shares: Mutex<KVec<Arc<Share>>>,
    #[pin]
    reset_lock: Mutex<()>,
    #[pin]
    watch: DelayedWork<Card, 1>,
    #[pin]
    sweep: DelayedWork<Card, 2>,
    #[pin]
    reset_work: Work<Card, 3>,
    #[pin]
    answer_work: DelayedWork<Card, 4>,
    #[pin]
    press_work: DelayedWork<Card, 5>,
    #[pin]
    need_work: DelayedWork<Card, 6>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Card { self.watch }
    impl HasDelayedWork<Self, 2> for Card { self.sweep }
    impl HasDelayedWork<Self, 4> for Card { self.answer_work }
    impl HasDelayedWork<Self, 5> for Card { self.press_work }
    impl HasDelayedWork<Self, 6> for Card { self.need_work }
}
impl_has_work! {
    impl HasWork<Self, 3> for Card { self.reset_work }
}

impl WorkItem<1> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        this.watchdog();
        this.look_at_processes();
        if this.state() != State::Unbound {
            let queue = this.queue.clone();
            let _ = queue.enqueue_delayed::<_, 1>(this, msecs_to_jiffies(500));
        }
    }
}

impl WorkItem<2> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        if this.sweep_pages() {
            this.sweep_later();
        }
    }
}

impl WorkItem<3> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        let _ = this.reset("lost");
    }
}

impl WorkItem<4> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        this.flush_answers();
    }
}

impl WorkItem<5> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        if this.press_waiting() {
            this.press_later();
        }
    }
}

impl WorkItem<6> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        this.run_needs();
    }
}

/// What a new card is made of.
pub(crate) struct CardConfig {
    /// Number of the card.
    pub(crate) instance: usize,
    /// Work queue.
    pub(crate) queue: Arc<OwnedQueue>,
    /// Work queue of page requests.
    pub(crate) faults: Arc<OwnedQueue>,
    /// Linger time in milliseconds.
    pub(crate) linger_ms: u32,
    /// Card budget in pages.
    pub(crate) card_pages: u64,
    /// Process budget in pages.
    pub(crate) context_pages: u64,
    /// Milliseconds in which firmware may be lost `MAX_LOSSES` times.
    pub(crate) loss_window_ms: i64,
    /// Caps per process.
    pub(crate) max_process_contexts: u32,
    /// Caps per process.
    pub(crate) max_process_qps: u32,
    /// Caps per process.
    pub(crate) max_process_cqs: u32,
    /// Physical address of BAR2.
    pub(crate) doorbells: u64,
}

impl Card {
    /// Makes the card behind `gate`; nothing is done to the hardware yet.
    pub(crate) fn new(gate: &Arc<Gate>, regs: Regs, config: CardConfig) -> Result<Arc<Self>> {
        let bound = gate.enter().ok_or(ENODEV)?;
        let dev: &device::Device<device::Bound> = (*bound).as_ref();
        let cmd = Coherent::zeroed_slice(dev, RING as usize, GFP_KERNEL)?;
        let events = Coherent::zeroed_slice(dev, RING as usize, GFP_KERNEL)?;
        let fence = Coherent::zeroed_slice(dev, 1, GFP_KERNEL)?;
        let xlt = Xlt::new()?;
        let log = KVVec::from_elem(0u8, LOG_BYTES, GFP_KERNEL)?;
        let calls = KVec::with_capacity(MAX_CALLS, GFP_KERNEL)?;
        let services = KVec::with_capacity(MAX_SERVICES, GFP_KERNEL)?;
        let requests = KVec::with_capacity(MAX_REQUESTS, GFP_KERNEL)?;
        let answers = KVec::with_capacity(MAX_ASKED, GFP_KERNEL)?;
        let needs = KVec::with_capacity(MAX_ASKED, GFP_KERNEL)?;
        let normal: &device::Device = dev;
        let card_pages = config.card_pages;
        Arc::pin_init(
            try_pin_init!(Card {
                dev: ARef::from(normal),
                gate: gate.clone(),
                queue: config.queue,
                faults: config.faults,
                instance: config.instance,
                regs,
                doorbells: config.doorbells,
                counters: Counters::new(),
                linger_ms: Atomic::new(config.linger_ms),
                max_process_qps: config.max_process_qps,
                max_process_cqs: config.max_process_cqs,
                max_process_contexts: config.max_process_contexts,
                loss_window_ms: config.loss_window_ms,
                context_pages: config.context_pages,
                state: Atomic::new(State::Down as u32),
                epoch: Atomic::new(0),
                token <- new_spinlock!(0, "berth_token"),
                pressing: Atomic::new(0),
                vanished: Atomic::new(0),
                log_window: Atomic::new(0),
                conflicts: Atomic::new(0),
                born: Instant::now(),
                cmd <- new_spinlock!(CmdRing {
                    ring: Some(cmd),
                    pi: 0,
                    ci: 0,
                    rung: 0,
                    last: [0; ENTRY_WORDS],
                    generation: 0,
                }, "berth_cmd"),
                events <- new_mutex!(EventRing { ring: Some(events), ci: 0 }, "berth_events"),
                fence <- new_spinlock!(Some(fence), "berth_fence"),
                calls <- new_spinlock!(Calls { list: calls, next_cookie: 1 }, "berth_calls"),
                answers <- new_spinlock!(Answers { list: answers, deadline: None }, "berth_answers"),
                needs <- new_spinlock!(needs, "berth_needs"),
                xlt <- new_spinlock!(xlt, "berth_xlt"),
                budget <- new_spinlock!(Budget::new(card_pages), "berth_budget"),
                waiting <- new_spinlock!([None; NUM_ASIDS as usize], "berth_waiting"),
                tables <- new_spinlock!(Tables {
                    qps: [0; NUM_QPS as usize],
                    cqs: [const { None }; NUM_CQS as usize],
                    cq_owners: [0; NUM_CQS as usize],
                    contexts: [const { None }; NUM_ASIDS as usize],
                    asids_taken: [false; NUM_ASIDS as usize],
                    services,
                    requests,
                }, "berth_tables"),
                net <- new_spinlock!(Net::default(), "berth_net"),
                naming <- new_mutex!((), "berth_naming"),
                fw <- new_spinlock!(FwInfo::default(), "berth_fw"),
                log <- new_spinlock!(Log { bytes: log, head: 0, len: 0, lost: 0 }, "berth_log"),
                nodes <- new_mutex!(KVec::new(), "berth_nodes"),
                heartbeat <- new_mutex!(Heartbeat { challenge: 0, asked: None }, "berth_heartbeat"),
                losses <- new_spinlock!((0, Instant::now()), "berth_losses"),
                shares <- new_mutex!(KVec::new(), "berth_shares"),
                reset_lock <- new_mutex!((), "berth_reset"),
                watch <- new_delayed_work!("berth_watch"),
                sweep <- new_delayed_work!("berth_sweep"),
                reset_work <- new_work!("berth_reset"),
                answer_work <- new_delayed_work!("berth_answer"),
                press_work <- new_delayed_work!("berth_press"),
                need_work <- new_delayed_work!("berth_need"),
            }? Error),
            GFP_KERNEL,
        )
        .inspect(|card| {
            card.counters.set(D_BUDGET, card_pages * PAGE);
        })
    }

    /// State as the driver sees it.
    pub(crate) fn state(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Down,
            1 => State::Up,
            2 => State::Resetting,
            3 => State::Gone,
            _ => State::Unbound,
        }
    }

    /// Changes the state, but never away from `Unbound`.
    fn set_state(&self, state: State) {
        let mut old = self.state.load(Relaxed);
        while old != State::Unbound as u32 {
            match self
                .state
                .cmpxchg(old, state as u32, kernel::sync::atomic::Full)
            {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
    }

    /// Access to the bound device.
    pub(crate) fn bound(&self) -> Result<BoundRef> {
        self.gate.enter().ok_or(ENODEV)
    }

    /// Whether one more log line is allowed: at most ten in about four seconds.
    pub(crate) fn may_log(&self) -> bool {
        let now = (self.born.elapsed().as_millis() as u64 >> 12) & 0xffff_ffff;
        let old = self.log_window.load(Relaxed);
        let new = if old >> 32 == now { old + 1 } else { now << 32 };
        self.log_window.store(new, Relaxed);
        new & 0xffff_ffff < 10
    }

    /// Memory could not be mapped for the card: says so if the machine is the cause.
    pub(crate) fn note_unmapped(&self, e: Error) {
        if e == unsupported() && self.may_log() {
            dev_err!(
                self.dev,
                "berth: memory is not used, as DMA to it would go through bounce buffers: {:?}\n",
                e
            );
        }
    }

    // ---- commands -------------------------------------------------------------------

    /// Queues commands; they are carried out in order.
    ///
    /// # Errors
    ///
    /// `EBUSY` the ring has no room for all of them (nothing is queued), `ENODEV` the
    /// card is not in service.
    pub(crate) fn post(&self, entries: &[Entry]) -> Result {
        self.put(entries)?;
        self.ring();
        Ok(())
    }

    /// Rings the doorbell for commands that were [`Self::put`]. The first of them are
    /// written into the card before it, so that it need not fetch them.
    pub(crate) fn ring(&self) {
        let mut cmd = self.cmd.lock();
        if cmd.rung == cmd.pi {
            return;
        }
        let CmdRing { ring, pi, rung, .. } = &mut *cmd;
        for n in 0..pi.wrapping_sub(*rung).min(CMD_PUSH_MOST) {
            let index = rung.wrapping_add(n);
            let Some(Ok(entry)) = ring.as_ref().map(|ring| entry_at(ring, index)) else {
                break;
            };
            self.regs.push(index, &entry);
        }
        *rung = *pi;
        // The register write orders the entries before it.
        self.regs.write(HOST_CMD_PI, u32::from(*pi));
    }

    /// Puts commands in the ring, as [`Self::post`] does, without ringing the doorbell:
    /// for many in a row.
    ///
    /// # Errors
    ///
    /// As [`Self::post`].
    pub(crate) fn put(&self, entries: &[Entry]) -> Result {
        self.put_for(None, entries)
    }

    /// As [`Self::put`], but only as long as the firmware of `generation` runs: what its
    /// predecessor has asked for, or was asked for, is not told to it.
    fn put_for(&self, generation: Option<u32>, entries: &[Entry]) -> Result {
        let mut cmd = self.cmd.lock();
        // Under the lock: a ring is set up anew only in other states.
        if self.state() != State::Up {
            return Err(ENODEV);
        }
        if generation.is_some_and(|g| g != cmd.generation) {
            return Err(EIO);
        }
        let CmdRing {
            ring, pi, ci, last, ..
        } = &mut *cmd;
        let Some(ring) = ring else {
            return Err(ENODEV);
        };
        let free = |pi: u16, ci: u16| usize::from(RING - pi.wrapping_sub(ci).min(RING));
        if free(*pi, *ci) < entries.len() {
            let now = self.regs.read(HOST_CMD_CI);
            if now == ALL_ONES {
                return Err(ENODEV);
            }
            *ci = now as u16;
            if free(*pi, *ci) < entries.len() {
                return Err(EBUSY);
            }
        }
        for entry in entries {
            dma_write!(ring, [try: usize::from(*pi % RING)], *entry);
            *pi = pi.wrapping_add(1);
            *last = *entry;
        }
        Ok(())
    }

    /// Asks for the eviction of a page, without ringing the doorbell: together with those before it, if the
    /// card has not been told of them.
    ///
    /// # Errors
    ///
    /// As [`Self::post`].
    pub(crate) fn put_evict(&self, index: u32) -> Result {
        {
            let mut cmd = self.cmd.lock();
            let CmdRing {
                ring,
                pi,
                rung,
                last,
                ..
            } = &mut *cmd;
            if let (State::Up, Some(ring)) = (self.state(), ring) {
                if pi != rung && evict_add(last, index) {
                    dma_write!(ring, [try: usize::from(pi.wrapping_sub(1) % RING)], *last);
                    return Ok(());
                }
            }
        }
        self.put(&[evict_command(index)])
    }

    /// Number of the firmware's run. What an event asks for is answered to that run only.
    pub(crate) fn generation(&self) -> u32 {
        self.cmd.lock().generation
    }

    /// Queues the answer to what firmware of `generation` has asked for. Does not sleep:
    /// when the command ring has no room the answer goes as soon as it has.
    pub(crate) fn answer(self: &Arc<Self>, generation: u32, entry: Entry) {
        match self.put_for(Some(generation), &[entry]) {
            Ok(()) => self.ring(),
            Err(e) if e == EBUSY => {
                let answer = Answer { generation, entry };
                if self
                    .answers
                    .lock()
                    .list
                    .push_within_capacity(answer)
                    .is_err()
                {
                    // More than the card can have asked for: its state is not sound.
                    self.schedule_reset();
                    return;
                }
                self.answer_later();
            }
            // Nobody waits for it any more.
            Err(_) => {}
        }
    }

    fn answer_later(self: &Arc<Self>) {
        if self.state() == State::Unbound {
            return;
        }
        let _ = self
            .queue
            .enqueue_delayed::<_, 4>(self.clone(), msecs_to_jiffies(ANSWER_MS));
    }

    /// Queues answers that have waited for room.
    fn flush_answers(self: &Arc<Self>) {
        let left = {
            let mut answers = self.answers.lock();
            let Answers { list, deadline } = &mut *answers;
            list.retain(
                |a| matches!(self.put_for(Some(a.generation), &[a.entry]), Err(e) if e == EBUSY),
            );
            if list.is_empty() {
                *deadline = None;
            }
            !list.is_empty()
        };
        self.ring();
        if !left {
            return;
        }
        let late = {
            let mut answers = self.answers.lock();
            answers
                .deadline
                .get_or_insert_with(|| Deadline::new(&self.regs, COMMAND_CYCLES))
                .passed(&self.regs)
        };
        if late {
            // It takes no commands any more; firmware would wait for these for ever.
            self.answers.lock().deadline = None;
            self.schedule_reset();
        }
        self.answer_later();
    }

    /// Queues a command for the firmware of `generation` and waits for room if there is none. Sleeps, within
    /// bounds.
    pub(crate) fn post_wait(&self, generation: u32, entry: Entry) -> Result {
        self.with_room(|| self.put_for(Some(generation), &[entry]))?;
        self.ring();
        Ok(())
    }

    /// Calls `post`, which queues commands, until the ring has room for them.
    fn with_room<T>(&self, mut post: impl FnMut() -> Result<T>) -> Result<T> {
        let mut deadline = None;
        let epoch = self.epoch.load(Relaxed);
        loop {
            if self.epoch.load(Relaxed) != epoch {
                // The card that this was for has been reset.
                return Err(EIO);
            }
            match post() {
                Err(e) if e == EBUSY => {}
                result => return result,
            }
            let deadline =
                deadline.get_or_insert_with(|| Deadline::new(&self.regs, COMMAND_CYCLES));
            if deadline.passed(&self.regs) {
                return Err(EIO);
            }
            fsleep(Delta::from_millis(1));
        }
    }

    /// Has firmware carry out a command and waits for its answer. The wait is ended by
    /// the answer, by the watchdog (which resets a card that does not answer), by a
    /// reset, or by the removal of the device.
    ///
    /// # Errors
    ///
    /// `EIO` no working firmware, `ENODEV` card gone, or what the status stands for.
    pub(crate) fn call(&self, entry: Entry) -> Result<Entry> {
        self.call_for(self.generation(), entry)
    }

    /// As [`Self::call`], but only as long as the firmware of `generation` runs, else `EIO`: its successor may
    /// have another process's under the same number.
    pub(crate) fn call_for(&self, generation: u32, mut entry: Entry) -> Result<Entry> {
        let opcode = entry[0];
        let cookie = {
            let mut calls = self.calls.lock();
            calls.next_cookie = calls.next_cookie % (PRESS_COOKIE - 1) + 1;
            calls.next_cookie
        };
        let call = Arc::pin_init(
            pin_init!(Call {
                done <- Completion::new(),
                answer <- new_spinlock!(None, "berth_answer"),
                cookie,
                destroys: if opcode == CMD_QP_DESTROY { entry[2] } else { 0 },
            }),
            GFP_KERNEL,
        )?;
        entry[1] = cookie;
        {
            let mut calls = self.calls.lock();
            if calls
                .list
                .push_within_capacity((call.clone(), None))
                .is_err()
            {
                return Err(EBUSY);
            }
        }
        // After the call is in the list: whoever takes the card out of service ends all
        // calls afterwards.
        let posted = match self.state() {
            State::Up => self.post_wait(generation, entry),
            State::Gone | State::Unbound => Err(ENODEV),
            _ => Err(EIO),
        };
        if let Err(e) = posted {
            self.calls.lock().list.retain(|(c, _)| c.cookie != cookie);
            return Err(e);
        }
        call.done.wait_for_completion();
        let answer = call.answer.lock().take();
        let answer = answer.unwrap_or(Err(EIO))?;
        match answer[2] {
            CMD_OK => Ok(answer),
            CMD_INVALID => Err(EINVAL),
            CMD_BUSY => Err(EBUSY),
            CMD_NOT_FOUND => Err(ENOENT),
            CMD_FULL => Err(ENOSPC),
            CMD_UNKNOWN => Err(unsupported()),
            _ => Err(EIO),
        }
    }

    /// As [`Self::call`], for what firmware must be told: tried again for a while when too many
    /// commands are in flight or there is no memory, which passes.
    pub(crate) fn call_patiently(&self, entry: Entry) -> Result<Entry> {
        self.call_patiently_for(self.generation(), entry)
    }

    /// The same, but only as long as the firmware of `generation` runs.
    pub(crate) fn call_patiently_for(&self, generation: u32, entry: Entry) -> Result<Entry> {
        for _ in 0..100 {
            match self.call_for(generation, entry) {
                Err(e) if e == EBUSY || e == ENOMEM => fsleep(Delta::from_millis(10)),
                result => return result,
            }
        }
        Err(EBUSY)
    }

    /// Has firmware recall grants that are unused: `bytes` are missing. It looks at everybody,
    /// so one such command under way is enough; false when there is one.
    pub(crate) fn press(&self, bytes: u32) -> bool {
        if self.pressing.xchg(1, Relaxed) != 0 {
            return false;
        }
        let mut entry = [0; ENTRY_WORDS];
        entry[0] = CMD_PRESSURE;
        entry[1] = PRESS_COOKIE;
        // entry[2] is 0: of all contexts, since the card's budget may be short because of others.
        entry[3] = bytes;
        let posted = self.post(&[entry]).is_ok();
        if !posted {
            self.pressing.store(0, Relaxed);
        }
        posted
    }

    /// Firmware has been told that memory is short, and has not answered yet.
    pub(crate) fn is_pressing(&self) -> bool {
        self.pressing.load(Relaxed) != 0
    }

    /// Takes firmware's answer to a command.
    pub(crate) fn answered(self: &Arc<Self>, entry: &Entry) {
        if entry[1] == PRESS_COOKIE {
            self.pressing.store(0, Relaxed);
            if entry[2] == CMD_OK && entry[3] != 0 {
                self.refuse(entry[3]);
            }
            return;
        }
        let call = {
            let mut calls = self.calls.lock();
            let found = calls.list.iter().position(|(c, _)| c.cookie == entry[1]);
            found.and_then(|i| calls.list.remove(i).ok())
        };
        // Commands with cookie 0 are not waited for.
        match call {
            Some((call, _)) => {
                *call.answer.lock() = Some(Ok(*entry));
                call.done.complete_all();
            }
            None if entry[1] != 0 => self.counters.inc(D_BAD_EVENTS),
            None => {}
        }
    }

    /// Ends all commands in flight with an error.
    fn end_calls(&self, error: Error) {
        self.pressing.store(0, Relaxed);
        loop {
            let Some((call, _)) = self.calls.lock().list.pop() else {
                break;
            };
            *call.answer.lock() = Some(Err(error));
            call.done.complete_all();
        }
    }

    /// Waits until all DMA that the card had begun when this was called has ended.
    /// Sleeps, within bounds: a card that does not answer is put out of service, which
    /// ends its DMA as well.
    pub(crate) fn fence(self: &Arc<Self>) {
        let mut deadline = None;
        let mut nap = 10;
        let epoch = self.epoch.load(Relaxed);
        let posted = self.with_room(|| {
            // Tokens rise in the ring as well: the card's word has that of its last fence, whoever waits for which.
            let mut token = self.token.lock();
            let next = *token + 1;
            let mut entry = [0; ENTRY_WORDS];
            entry[0] = CMD_FENCE;
            entry[2] = next as u32;
            entry[3] = (next >> 32) as u32;
            self.post(&[entry])?;
            *token = next;
            Ok(next)
        });
        if let Ok(token) = posted {
            // Looked at before the token is, so that time that this thread does not run
            // is not held against the card.
            let mut late = false;
            while self.state() == State::Up {
                let seen = match &*self.fence.lock() {
                    Some(word) => read_fence(word),
                    None => u64::MAX,
                };
                if seen >= token {
                    self.counters.inc(D_FENCES);
                    return;
                }
                if self.epoch.load(Relaxed) != epoch {
                    // Reset and in service again: what was in flight then has ended.
                    return;
                }
                if late {
                    self.counters.inc(D_FENCE_TIMEOUTS);
                    dev_err!(
                        self.dev,
                        "berth: fence {} not answered in time (last {}), command ring {}/{}, DMA in flight {}: resetting the card\n",
                        token,
                        seen,
                        self.regs.read(HOST_CMD_CI),
                        self.regs.read(HOST_CMD_PI),
                        self.regs.read(HOST_DMA_BUSY)
                    );
                    break;
                }
                fsleep(Delta::from_micros(nap));
                nap = (nap * 2).min(1000);
                let deadline =
                    deadline.get_or_insert_with(|| Deadline::new(&self.regs, FENCE_CYCLES));
                late = nap > 500 && deadline.passed(&self.regs);
            }
        }
        if self.epoch.load(Relaxed) != epoch {
            // As above: it may be in service again, and is not to be reset once more.
            return;
        }
        // Out of service: it is being reset, or is gone. Either way this ends its DMA.
        self.stop_dma();
    }

    /// Makes sure that the card does no DMA any more, by switching it off, and starts a
    /// reset unless the device is being unbound.
    pub(crate) fn stop_dma(self: &Arc<Self>) {
        match self.state() {
            State::Up => {
                self.regs.write(HOST_DMA_ENABLE, 0);
                let mut deadline = Deadline::new(&self.regs, FENCE_CYCLES);
                while !matches!(self.regs.read(HOST_DMA_BUSY), 0 | ALL_ONES)
                    && !deadline.passed(&self.regs)
                {
                    fsleep(Delta::from_millis(1));
                }
                if !matches!(self.regs.read(HOST_DMA_BUSY), 0 | ALL_ONES) {
                    if let Some(bound) = self.gate.enter() {
                        bound.clear_master();
                    }
                }
                self.schedule_reset();
            }
            State::Resetting => {
                // Ends with the card up, down or gone; each step of it is bounded.
                while self.state() == State::Resetting {
                    fsleep(Delta::from_millis(1));
                }
            }
            State::Down | State::Gone | State::Unbound => {}
        }
    }

    /// Has the card reset soon.
    pub(crate) fn schedule_reset(self: &Arc<Self>) {
        let _ = self.queue.enqueue::<_, 3>(self.clone());
    }

    // ---- events ---------------------------------------------------------------------

    /// Takes the next event, if there is one.
    pub(crate) fn next_event(&self, events: &mut EventRing) -> Option<Entry> {
        let ring = events.ring.as_ref()?;
        let index = usize::from(events.ci % RING);
        let phase = if events.ci & RING == 0 { PHASE } else { 0 };
        let read = || -> Result<Option<Entry>> {
            if dma_read!(ring, [try: index][try: EVENT_PHASE]) & PHASE != phase {
                return Ok(None);
            }
            // The card writes the word with the phase last.
            kernel::sync::barrier::smp_rmb();
            let entry: Entry = dma_read!(ring, [try: index]);
            Ok(Some(entry))
        };
        let mut entry = read().ok()??;
        entry[EVENT_PHASE] &= !PHASE;
        events.ci = events.ci.wrapping_add(1);
        Some(entry)
    }

    /// Gives the events taken back to the card and arms the interrupt.
    pub(crate) fn arm_events(&self, events: &EventRing) {
        self.regs.write(HOST_EVT_CI, u32::from(events.ci) | 1 << 31);
    }

    /// Keeps log bytes for `IOC_READ_LOG`; the oldest give way.
    pub(crate) fn log(&self, data: &[u8]) {
        let mut log = self.log.lock();
        for byte in data {
            if log.len == LOG_BYTES {
                log.head = (log.head + 1) % LOG_BYTES;
                log.len -= 1;
                log.lost = log.lost.saturating_add(1);
            }
            let at = (log.head + log.len) % LOG_BYTES;
            log.bytes[at] = *byte;
            log.len += 1;
        }
    }

    /// Counts log bytes as lost that nobody has got.
    pub(crate) fn lose_log(&self, bytes: usize) {
        let mut log = self.log.lock();
        log.lost = log.lost.saturating_add(bytes as u32);
    }

    /// Moves log bytes to `out`; gives their number and how many were lost before them.
    pub(crate) fn take_log(&self, out: &mut [u8]) -> (usize, u32) {
        let mut log = self.log.lock();
        let n = log.len.min(out.len());
        for byte in &mut out[..n] {
            *byte = log.bytes[log.head];
            log.head = (log.head + 1) % LOG_BYTES;
        }
        log.len -= n;
        (n, core::mem::take(&mut log.lost))
    }

    // ---- life of the card -----------------------------------------------------------

    /// Resets the card, loads firmware and starts it. All objects of all contexts are
    /// lost. On a firmware that cannot be used the card stays reachable, without service.
    ///
    /// # Errors
    ///
    /// `ENODEV` card gone, `EIO` firmware missing, refused, or not starting.
    pub(crate) fn reset(self: &Arc<Self>, why: &str) -> Result {
        let _guard = self.reset_lock.lock();
        if self.state() == State::Unbound {
            return Err(ENODEV);
        }
        if self.state() != State::Down {
            dev_info!(self.dev, "berth: resetting the card ({})\n", why);
            self.counters.inc(D_RESETS);
        }
        self.quiesce()?;
        let result = self.start();
        match result {
            Ok(()) => {
                self.set_state(State::Up);
                // What came before the state changed is taken now.
                self.arm_events(&self.events.lock());
                let net = *self.net.lock();
                if net.ipv4 != 0 {
                    // Not waited for: only another reset could end the wait.
                    let _ = self.post(&[net.command()]);
                }
            }
            Err(_) => {
                // A core that runs but does not work is not left running.
                if self.regs.read(HOST_STATUS) != FW_REFUSED {
                    self.regs.write(HOST_DMA_ENABLE, 0);
                }
            }
        }
        result
    }

    /// Takes the card out of service by a hardware reset. The caller holds `reset_lock`.
    fn quiesce(self: &Arc<Self>) -> Result {
        let had_service = self.state() != State::Down;
        // While the state is `Resetting` notifiers wait, so nothing is allocated here.
        self.set_state(State::Resetting);
        self.end_calls(EIO);
        if self.reset_hardware().is_err() {
            self.gone();
            return Err(ENODEV);
        }
        self.set_state(State::Down);
        // Events that are there belong to the old firmware.
        {
            let mut events = self.events.lock();
            events.ci = 0;
            if let Some(ring) = &events.ring {
                clear_ring(ring);
            }
        }
        if had_service {
            self.lose_contexts();
        }
        self.xlt.lock().clear();
        Ok(())
    }

    /// Takes the card out of service because it does not answer.
    fn gone(self: &Arc<Self>) {
        if !matches!(self.state(), State::Gone | State::Unbound) {
            dev_err!(
                self.dev,
                "berth: the card does not answer, it is out of service\n"
            );
        }
        if let Some(bound) = self.gate.enter() {
            bound.clear_master();
        }
        self.vanished
            .store(u32::from(!self.regs.present()), Relaxed);
        self.set_state(State::Gone);
        self.end_calls(ENODEV);
        self.lose_contexts();
    }

    /// Resets the hardware; afterwards it does no DMA and no core runs.
    fn reset_hardware(&self) -> Result {
        if !self.regs.present() {
            return Err(ENODEV);
        }
        self.regs.write(HOST_DMA_ENABLE, 0);
        self.regs.write(HOST_CTRL, 1);
        let start = Instant::<Monotonic>::now();
        loop {
            match self.regs.read(HOST_STATUS) {
                FW_RESET => return Ok(()),
                ALL_ONES => return Err(ENODEV),
                _ => {}
            }
            if start.elapsed().as_millis() > STANDSTILL_MS {
                return Err(EIO);
            }
            fsleep(Delta::from_millis(1));
        }
    }

    /// Sets up the rings, loads firmware and waits until it runs.
    fn start(&self) -> Result {
        {
            let mut cmd = self.cmd.lock();
            let addr = cmd.ring.as_ref().ok_or(ENODEV)?.dma_handle();
            cmd.pi = 0;
            cmd.ci = 0;
            cmd.rung = 0;
            cmd.generation = cmd.generation.wrapping_add(1);
            self.regs.write_addr(HOST_CMD_BASE_LO, addr);
            self.regs.write(HOST_CMD_LOG2, RING_LOG2);
        }
        {
            let events = self.events.lock();
            let addr = events.ring.as_ref().ok_or(ENODEV)?.dma_handle();
            self.regs.write_addr(HOST_EVT_BASE_LO, addr);
            self.regs.write(HOST_EVT_LOG2, RING_LOG2);
        }
        {
            let fence = self.fence.lock();
            let addr = fence.as_ref().ok_or(ENODEV)?.dma_handle();
            self.regs.write_addr(HOST_FENCE_LO, addr);
        }
        let bound = self.bound()?;
        // Cleared when the card was given up once.
        bound.set_master();
        drop(bound);
        {
            let mut heartbeat = self.heartbeat.lock();
            heartbeat.asked = None;
            heartbeat.challenge = self.regs.read(HOST_HB_ANSWER);
            self.regs.write(HOST_HB_CHALLENGE, heartbeat.challenge);
        }
        self.regs.write(HOST_DMA_ENABLE, 1);
        crate::card::firmware::load(self)?;
        // Firmware counts from here on.
        self.conflicts
            .store(self.regs.read64(ADDRESS_CONFLICTS), Relaxed);
        self.arm_events(&self.events.lock());
        Ok(())
    }

    /// All contexts lose their objects; the card does no DMA.
    fn lose_contexts(self: &Arc<Self>) {
        self.epoch.add(1, Relaxed);
        self.drop_needs();
        {
            // Before the contexts' events: none is queued for them from now on.
            let mut tables = self.tables.lock();
            tables.services.clear();
            tables.requests.clear();
        }
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.device_lost();
            }
        }
    }

    /// The context with an ASID.
    pub(crate) fn context(&self, asid: u32) -> Option<Arc<Context>> {
        self.tables.lock().contexts.get(asid as usize)?.clone()
    }

    /// The context that owns a QP.
    pub(crate) fn owner_of_qp(&self, qpn: u32) -> Option<Arc<Context>> {
        let tables = self.tables.lock();
        let asid = *tables.qps.get(qpn.checked_sub(FIRST_QPN)? as usize)?;
        tables.contexts[usize::from(asid)].clone()
    }

    /// Closes what processes have left behind, and forgets those that have nothing any more.
    fn look_at_processes(&self) {
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                context.close_if_orphaned();
            }
        }
        let in_use = |share: &Arc<Share>| {
            let tables = self.tables.lock();
            let mut contexts = tables.contexts.iter().flatten();
            contexts.any(|context| Arc::ptr_eq(&context.share, share))
        };
        let mut shares = self.shares.lock();
        shares.retain(|share| in_use(share) || share.works.lock().running != 0);
    }

    /// Starts the watchdog.
    pub(crate) fn start_watching(self: &Arc<Self>) {
        let _ = self
            .queue
            .enqueue_delayed::<_, 1>(self.clone(), msecs_to_jiffies(500));
    }

    /// Has idle pages looked at after the linger time, and requests without a place in the table
    /// soon.
    pub(crate) fn sweep_later(self: &Arc<Self>) {
        if self.state() == State::Unbound {
            return;
        }
        let ms = self.linger_ms.load(Relaxed).clamp(20, RETRY_MS as u32);
        let _ = self
            .queue
            .enqueue_delayed::<_, 2>(self.clone(), msecs_to_jiffies(ms));
    }

    /// Has it looked at soon whether receives wait for budget in vain.
    pub(crate) fn press_later(self: &Arc<Self>) {
        if self.state() == State::Unbound {
            return;
        }
        let _ = self
            .queue
            .enqueue_delayed::<_, 5>(self.clone(), msecs_to_jiffies(PRESS_MS));
    }

    /// Has requests tried again soon for which there was no memory.
    pub(crate) fn look_at_needs(self: &Arc<Self>) {
        if self.state() == State::Unbound {
            return;
        }
        // Its work waits for memory, which may take a process.
        let _ = self
            .faults
            .enqueue_delayed::<_, 6>(self.clone(), msecs_to_jiffies(NEED_MS));
    }

    /// Presses where requests wait in vain; `true` while some wait.
    fn press_waiting(self: &Arc<Self>) -> bool {
        if self.state() != State::Up {
            return false;
        }
        let mut some = false;
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                some |= context.press_waiting();
            }
        }
        some
    }

    /// Evicts what has been idle for the linger time; `true` while pages are there.
    fn sweep_pages(self: &Arc<Self>) -> bool {
        if self.state() == State::Unbound {
            return false;
        }
        let mut some = false;
        for asid in 1..NUM_ASIDS {
            if let Some(context) = self.context(asid) {
                some |= context.sweep();
            }
        }
        some
    }

    /// Watches firmware and commands.
    fn watchdog(self: &Arc<Self>) {
        if self.state() == State::Gone && self.vanished.load(Relaxed) != 0 && self.regs.present() {
            // It was reset behind the driver's back, and did not answer meanwhile.
            self.vanished.store(0, Relaxed);
            let _ = self.reset("the card answers again");
            return;
        }
        if self.state() != State::Up {
            return;
        }
        let status = self.regs.read(HOST_STATUS);
        if status == ALL_ONES && !self.regs.present() {
            let _guard = self.reset_lock.lock();
            if self.state() == State::Up {
                self.gone();
            }
            return;
        }
        if status == FW_PANIC {
            self.firmware_lost("panicked");
            return;
        }
        if status != FW_RUNNING {
            self.firmware_lost("stopped");
            return;
        }
        let mut heartbeat = self.heartbeat.lock();
        if self.regs.read(HOST_HB_ANSWER) == heartbeat.challenge {
            heartbeat.challenge = heartbeat.challenge.wrapping_add(1);
            self.regs.write(HOST_HB_CHALLENGE, heartbeat.challenge);
            heartbeat.asked = Some(Deadline::new(&self.regs, HEARTBEAT_CYCLES));
        } else if let Some(deadline) = &mut heartbeat.asked {
            if deadline.passed(&self.regs) {
                heartbeat.asked = None;
                drop(heartbeat);
                self.counters.inc(D_HEARTBEAT_LOST);
                self.firmware_lost("hangs");
                return;
            }
        }
        drop(heartbeat);
        self.watch_address();
        self.watch_calls();
    }

    /// Says so when another host has this card's address.
    fn watch_address(&self) {
        let now = self.regs.read64(ADDRESS_CONFLICTS);
        if now == u64::MAX || now <= self.conflicts.xchg(now, Relaxed) {
            return;
        }
        let [a, b, c, d] = self.net.lock().ipv4.to_be_bytes();
        if self.may_log() {
            dev_warn!(
                self.dev,
                "berth: another host has this card's IPv4 address {}.{}.{}.{} ({} ARP messages, `berth log` says which MAC address): peers may reach either\n",
                a,
                b,
                c,
                d,
                now
            );
        }
    }

    /// Ends a firmware that holds back an answer to a command.
    fn watch_calls(self: &Arc<Self>) {
        let Some(now) = self.regs.cycles() else {
            return;
        };
        let mut stuck_qp = 0;
        let stuck = {
            let mut calls = self.calls.lock();
            let mut stuck = false;
            for (call, watched) in calls.list.iter_mut() {
                match watched {
                    None => {
                        *watched = Some(Watched {
                            cycles: now,
                            moved: Instant::now(),
                            last: now,
                        });
                    }
                    Some(w) => {
                        if now != w.last {
                            w.last = now;
                            w.moved = Instant::now();
                        }
                        if now.saturating_sub(w.cycles) > COMMAND_CYCLES / 2 {
                            stuck_qp = call.destroys;
                        }
                        stuck |= now.saturating_sub(w.cycles) > COMMAND_CYCLES
                            || w.moved.elapsed().as_millis() > STANDSTILL_MS;
                    }
                }
            }
            stuck
        };
        if stuck {
            self.firmware_lost("does not answer a command");
        } else if stuck_qp != 0 {
            // Perhaps the QP waits for a page that never comes (decision 21).
            if let Some(context) = self.owner_of_qp(stuck_qp) {
                context.give_up_requests();
            }
        }
    }

    /// Forgets how often firmware was lost: somebody asks for another start.
    pub(crate) fn forgive(&self) {
        self.losses.lock().0 = 0;
    }

    /// Reports a firmware that is lost and resets the card.
    fn firmware_lost(self: &Arc<Self>, how: &str) {
        let code = self.regs.read(HOST_FW_CODE);
        let mut text = [0; STATS_PANIC_BYTES as usize];
        let len = if self.regs.read(HOST_STATUS) == FW_PANIC {
            self.regs.panic_text(&mut text)
        } else {
            0
        };
        let text = core::str::from_utf8(&text[..len]).unwrap_or("");
        dev_err!(
            self.dev,
            "berth: firmware {} (code {:#x}): {}\n",
            how,
            code,
            text
        );
        // Firmware that fails again and again is not started for ever.
        let again = {
            let mut losses = self.losses.lock();
            if losses.1.elapsed().as_millis() > self.loss_window_ms {
                *losses = (0, Instant::now());
            }
            losses.0 += 1;
            losses.0 <= MAX_LOSSES
        };
        if again {
            self.schedule_reset();
            return;
        }
        dev_err!(
            self.dev,
            "berth: firmware keeps failing, given up until a reset is asked for\n"
        );
        let _guard = self.reset_lock.lock();
        if self.state() == State::Up {
            let _ = self.quiesce();
        }
    }

    /// Last act of the driver on this card: no command is taken any more, the card does
    /// no DMA, and everything that contexts hold of the device is given back.
    pub(crate) fn unbind(self: &Arc<Self>) {
        {
            let _guard = self.reset_lock.lock();
            // As long as the state is `Resetting`, nobody takes the card for quiet.
            self.set_state(State::Resetting);
            self.end_calls(ENODEV);
            if self.regs.present() {
                let _ = self.reset_hardware();
            }
            if let Some(bound) = self.gate.enter() {
                bound.clear_master();
            }
            self.state
                .store(State::Unbound as u32, kernel::sync::atomic::Release);
            self.end_calls(ENODEV);
            drop(self.events.lock());
            self.lose_contexts();
        }
        crate::kernel::workqueue::end_delayed::<_, 1>(self);
        crate::kernel::workqueue::end_delayed::<_, 2>(self);
        crate::kernel::workqueue::cancel::<_, 3>(self);
        crate::kernel::workqueue::end_delayed::<_, 4>(self);
        crate::kernel::workqueue::end_delayed::<_, 5>(self);
        crate::kernel::workqueue::end_delayed::<_, 6>(self);
        self.drop_needs();
    }

    /// Notes a device node through which a session maps doorbell pages, until
    /// [`Self::forget_node`].
    pub(crate) fn note_node(&self, node: &HeldInode) -> Result {
        let mut nodes = self.nodes.lock();
        match nodes.iter_mut().find(|(n, _)| n.same(node)) {
            Some((_, sessions)) => *sessions += 1,
            None => nodes.push((node.clone(), 1), GFP_KERNEL)?,
        }
        Ok(())
    }

    /// A session that has noted a node is over, and so are its mappings: they hold its file.
    pub(crate) fn forget_node(&self, node: &HeldInode) {
        let mut nodes = self.nodes.lock();
        let Some(at) = nodes.iter().position(|(n, _)| n.same(node)) else {
            return;
        };
        nodes[at].1 -= 1;
        if nodes[at].1 == 0 {
            let _ = nodes.remove(at);
        }
    }

    /// Takes the doorbell pages out of all processes. Nobody can use the bound device any
    /// more.
    pub(crate) fn take_doorbells(&self) {
        // The sessions, which wait here, keep the file systems of the nodes.
        let mut nodes = self.nodes.lock();
        for (node, _) in nodes.iter() {
            node.zap(crate::process::context::DOORBELL_OFFSET);
        }
        nodes.clear();
    }

    /// Gives the rings back. The card must be quiet and the interrupt freed.
    pub(crate) fn free_rings(&self) {
        let cmd = self.cmd.lock().ring.take();
        let events = self.events.lock().ring.take();
        let fence = self.fence.lock().take();
        drop((cmd, events, fence));
    }

    /// Value of the driver's counter `index`.
    pub(crate) fn drv_counter(&self, index: u32) -> u64 {
        if index == D_XLT_USED {
            self.xlt.lock().used()
        } else {
            self.counters.get(index)
        }
    }

    /// What the process with `mm`, and a context of it, has of what is limited, and all have.
    pub(crate) fn limits(&self, mm: Option<&Mm>, context: Option<&Context>) -> ioctl::QueryLimits {
        let tables = self.tables.lock();
        let own = |asid: usize| {
            let owner = tables.contexts.get(asid).and_then(Option::as_ref);
            owner.is_some_and(|owner| mm.is_some_and(|mm| owner.share.is_of(mm)))
        };
        let taken = |taken: usize, most: u32| ioctl::Taken {
            taken: taken as u32,
            most,
        };
        let both = |owners: &[u8], most| {
            let all = owners.iter().filter(|asid| **asid != 0);
            let mine = all.clone().filter(|asid| own(usize::from(**asid)));
            [
                taken(mine.count(), most),
                taken(all.count(), owners.len() as u32),
            ]
        };
        let [process_cqs, card_cqs] = both(&tables.cq_owners, self.max_process_cqs);
        let [process_qps, card_qps] = both(&tables.qps, self.max_process_qps);
        let asids = tables.asids_taken.iter().enumerate();
        let contexts = asids.filter(|(_, there)| **there);
        let services = context.map_or(0, |context| {
            let mine = tables.services.iter().filter(|s| s.asid == context.asid);
            mine.count()
        });
        ioctl::QueryLimits {
            process_contexts: taken(
                contexts.clone().filter(|(asid, _)| own(*asid)).count(),
                self.max_process_contexts,
            ),
            card_contexts: taken(contexts.count(), NUM_ASIDS - 1),
            process_cqs,
            card_cqs,
            process_qps,
            card_qps,
            context_services: taken(services, context.map_or(0, |_| MAX_PER_CONTEXT as u32)),
            card_services: taken(tables.services.len(), MAX_SERVICES as u32),
        }
    }

    /// Queries that work without a context.
    pub(crate) fn query(&self) -> ioctl::Query {
        let net = *self.net.lock();
        let fw = *self.fw.lock();
        let budget = *self.budget.lock();
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&net.mac);
        ioctl::Query {
            abi: ABI_VERSION,
            fw_version: fw.version,
            fw_status: self.regs.read(HOST_STATUS),
            fw_code: self.regs.read(HOST_FW_CODE),
            max_qps: NUM_QPS,
            max_cqs: NUM_CQS,
            max_qps_per_process: self.max_process_qps,
            ipv4: net.ipv4,
            mtu: net.mtu,
            clock_hz: self.regs.read(HOST_CLOCK_HZ),
            mac,
            guid: net.guid,
            cycles: self.regs.cycles().unwrap_or(0),
            card_budget: budget.limit * PAGE,
            process_budget: self.context_pages.min(budget.limit) * PAGE,
            linger_ms: self.linger_ms.load(Relaxed),
            elf_id: fw.elf_id,
        }
    }
}

/// Bytes of a page, as the card counts them.
pub(crate) const PAGE: u64 = 4096;
/// Register that counts ARP messages of another host with this card's address.
const ADDRESS_CONFLICTS: u32 = HOST_STATS + 8 * F_ADDRESS_CONFLICTS;
/// Services that one card listens to at most.
pub(crate) const MAX_SERVICES: usize = CM_SERVICES as usize;
/// Connection requests in the list at most: what firmware keeps, and as many that it has just ended.
pub(crate) const MAX_REQUESTS: usize = 2 * CM_REQUESTS as usize;

/// The entry of the command ring at an index.
fn entry_at(ring: &Coherent<[Entry]>, index: u16) -> Result<Entry> {
    Ok(dma_read!(ring, [try: usize::from(index % RING)]))
}

fn clear_ring(ring: &Coherent<[Entry]>) {
    let clear = || -> Result {
        for i in 0..usize::from(RING) {
            dma_write!(ring, [try: i], [0u32; ENTRY_WORDS]);
        }
        Ok(())
    };
    let _ = clear();
}

fn read_fence(word: &Coherent<[u64]>) -> u64 {
    let read = || -> Result<u64> { Ok(dma_read!(word, [try: 0])) };
    read().unwrap_or(0)
}
