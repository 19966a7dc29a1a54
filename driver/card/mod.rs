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

pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod counters;
pub(crate) mod deadline;
pub(crate) mod fence;
pub(crate) mod firmware;
pub(crate) mod log;
pub(crate) mod net;
pub(crate) mod regs;
pub(crate) mod reset;
pub(crate) mod ring;
pub(crate) mod watchdog;

use crate::{
    abi::{card::*, counters::*, ring::*},
    card::{
        answer::{Answers, MAX_ASKED},
        call::{Calls, MAX_CALLS},
        counters::Counters,
        firmware::FwInfo,
        log::{Log, LOG_BYTES},
        net::Net,
        regs::Regs,
        ring::{CmdRing, EventRing, RING},
        watchdog::Heartbeat,
    },
    kernel::{
        doorbell::HeldInode,
        errno::unsupported,
        gate::{BoundRef, Gate},
        workqueue::OwnedQueue,
    },
    pages::{budget::Budget, request::Need, share::Share, table::Xlt},
    process::registry::{Tables, MAX_REQUESTS, MAX_SERVICES},
};
use kernel::{
    device,
    dma::Coherent,
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, Mutex, SpinLock,
    },
    time::{msecs_to_jiffies, Instant, Monotonic},
    workqueue::{DelayedWork, Work, WorkItem},
};

/// Bytes of a page, as the card counts them.
pub(crate) const PAGE: u64 = 4096;

/// An entry of either ring.
pub(crate) type Entry = [u32; ENTRY_WORDS];

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
    pub(crate) nodes: Mutex<KVec<(HeldInode, usize)>>,
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
}
