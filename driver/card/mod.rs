// SPDX-License-Identifier: GPL-2.0
//! One card: its rings, commands and state. Nothing here knows processes or pages: the owner of
//! objects on the card is told what happens through [`owner::Owner`]. The other files stand on this
//! one, which declares the card, and `parts`, of which it consists.

pub(crate) mod answer;
pub(crate) mod call;
pub(crate) mod counters;
pub(crate) mod deadline;
pub(crate) mod ending;
pub(crate) mod fence;
pub(crate) mod firmware;
pub(crate) mod log;
pub(crate) mod net;
pub(crate) mod owner;
pub(crate) mod parts;
pub(crate) mod regs;
pub(crate) mod reset;
pub(crate) mod ring;
pub(crate) mod watchdog;

pub(crate) use crate::abi::message::Entry;
use crate::{
    abi::{card::Sizes, ring::ENTRY_WORDS},
    card::{
        counters::Counters,
        net::Net,
        owner::Owner,
        parts::{
            Answers, Calls, CmdRing, EventRing, FwInfo, Heartbeat, Log, LOG_BYTES, MAX_ASKED,
            MAX_CALLS, RING,
        },
        regs::Regs,
    },
    kernel::{
        errno::unsupported,
        gate::{BoundRef, Gate},
        workqueue::OwnedQueue,
    },
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
    time::{Instant, Monotonic},
    workqueue::{DelayedWork, Work},
};

/// Bytes of a page, as the card counts them.
pub(crate) const PAGE: u64 = 4096;

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
    /// Work queue for everything but page requests; nothing on it waits for a process.
    pub(crate) queue: Arc<OwnedQueue>,
    /// Number of the card: `/dev/berthN`.
    pub(crate) instance: usize,
    /// Registers.
    pub(crate) regs: Regs,
    /// Physical address of BAR2.
    pub(crate) doorbells: u64,
    /// What it has room for.
    pub(crate) sizes: Sizes,
    /// Counters.
    pub(crate) counters: Counters,
    /// Milliseconds in which firmware may be lost `MAX_LOSSES` times and is started again.
    loss_window_ms: i64,
    state: Atomic<u32>,
    /// Raised whenever the card has lost its objects.
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
    #[pin]
    heartbeat: Mutex<Heartbeat>,
    #[pin]
    losses: SpinLock<(u32, Instant<Monotonic>)>,
    /// The owner of the objects, which is told what happens.
    #[pin]
    owner: SpinLock<Option<Arc<dyn Owner>>>,
    #[pin]
    reset_lock: Mutex<()>,
    #[pin]
    watch: DelayedWork<Card, 1>,
    #[pin]
    reset_work: Work<Card, 2>,
    #[pin]
    answer_work: DelayedWork<Card, 3>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Card { self.watch }
    impl HasDelayedWork<Self, 3> for Card { self.answer_work }
}

impl_has_work! {
    impl HasWork<Self, 2> for Card { self.reset_work }
}

/// What a new card is made of.
pub(crate) struct CardConfig {
    /// Number of the card.
    pub(crate) instance: usize,
    /// Work queue.
    pub(crate) queue: Arc<OwnedQueue>,
    /// Milliseconds in which firmware may be lost `MAX_LOSSES` times.
    pub(crate) loss_window_ms: i64,
    /// Physical address of BAR2.
    pub(crate) doorbells: u64,
    /// What the card has room for.
    pub(crate) sizes: Sizes,
}

impl Card {
    /// Makes the card behind `gate`; nothing is done to the hardware yet.
    pub(crate) fn new(gate: &Arc<Gate>, regs: Regs, config: CardConfig) -> Result<Arc<Self>> {
        let bound = gate.enter().ok_or(ENODEV)?;
        let dev: &device::Device<device::Bound> = (*bound).as_ref();
        let cmd = Coherent::zeroed_slice(dev, RING as usize, GFP_KERNEL)?;
        let events = Coherent::zeroed_slice(dev, RING as usize, GFP_KERNEL)?;
        let fence = Coherent::zeroed_slice(dev, 1, GFP_KERNEL)?;
        let log = KVVec::from_elem(0u8, LOG_BYTES, GFP_KERNEL)?;
        let calls = KVec::with_capacity(MAX_CALLS, GFP_KERNEL)?;
        let answers = KVec::with_capacity(MAX_ASKED, GFP_KERNEL)?;
        let normal: &device::Device = dev;
        Arc::pin_init(
            try_pin_init!(Card {
                dev: ARef::from(normal),
                gate: gate.clone(),
                queue: config.queue,
                instance: config.instance,
                regs,
                doorbells: config.doorbells,
                sizes: config.sizes,
                counters: Counters::new(),
                loss_window_ms: config.loss_window_ms,
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
                net <- new_spinlock!(Net::default(), "berth_net"),
                naming <- new_mutex!((), "berth_naming"),
                fw <- new_spinlock!(FwInfo::default(), "berth_fw"),
                log <- new_spinlock!(Log { bytes: log, head: 0, len: 0, lost: 0 }, "berth_log"),
                heartbeat <- new_mutex!(Heartbeat { challenge: 0, asked: None }, "berth_heartbeat"),
                losses <- new_spinlock!((0, Instant::now()), "berth_losses"),
                owner <- new_spinlock!(None, "berth_owner"),
                reset_lock <- new_mutex!((), "berth_reset"),
                watch <- new_delayed_work!("berth_watch"),
                reset_work <- new_work!("berth_reset"),
                answer_work <- new_delayed_work!("berth_answer"),
            }? Error),
            GFP_KERNEL,
        )
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

    /// Makes `owner` the card's owner until the card is unbound.
    pub(crate) fn set_owner(&self, owner: Arc<dyn Owner>) {
        *self.owner.lock() = Some(owner);
    }

    /// Forgets the owner, which holds the card.
    pub(super) fn forget_owner(&self) {
        let owner = self.owner.lock().take();
        drop(owner);
    }

    /// Tells the owner, if there is one.
    pub(crate) fn tell_owner(&self, tell: impl FnOnce(&dyn Owner)) {
        let owner = self.owner.lock().clone();
        if let Some(owner) = owner {
            tell(&*owner);
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
