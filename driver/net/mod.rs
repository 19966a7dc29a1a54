// SPDX-License-Identifier: GPL-2.0
//! The card as an ordinary network device: whole frames through raw queue 0, beside the connections of processes.
//!
//! [`Link`] is what the rest of the driver knows of it. It follows the card: the network device is there as soon as
//! firmware runs that knows raw queues, and has a link as long as firmware runs.

pub(crate) mod counts;
pub(crate) mod nic;
pub(crate) mod rings;
pub(crate) mod taker;

use crate::{
    abi::{
        message::RawDestroy,
        raw::{RAW_FRAME_BYTES, RAW_QPN},
    },
    card::{Card, State},
    kernel::{
        errno::unsupported,
        net::{
            device::{Device, Rtnl, HEADER_BYTES, TAG_BYTES},
            registration::Registration,
        },
        workqueue,
    },
    net::{
        nic::Nic,
        rings::{cqn_of, QUEUE},
    },
};
use kernel::{
    device, impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
    workqueue::{Work, WorkItem},
};

/// Most bytes behind a frame's Ethernet header.
const MAX_MTU: u32 = RAW_FRAME_BYTES - HEADER_BYTES - TAG_BYTES;

/// What stands on the network device: it comes after it and goes before it.
pub(crate) trait Upper: Send + Sync {
    /// The network device is registered, until [`Self::goes`] has returned. Called again if it failed.
    fn comes(&self, parent: &device::Device<device::Bound>, device: &Arc<Device<Nic>>) -> Result;

    /// The network device is about to go.
    fn goes(&self);
}

struct Registered {
    registration: Option<Registration<Nic>>,
    upper: Option<Arc<dyn Upper>>,
    /// The driver is being unbound.
    ended: bool,
}

/// The network device of a card.
#[pin_data]
pub(crate) struct Link {
    card: Arc<Card>,
    /// What the stack knows of it.
    pub(crate) device: Arc<Device<Nic>>,
    #[pin]
    registered: Mutex<Registered>,
    /// There are completions.
    notified: Atomic<u32>,
    /// The device does not have what the card's state asks for; it is tried again.
    behind: Atomic<u32>,
    #[pin]
    work: Work<Link>,
}

impl_has_work! {
    impl HasWork<Self> for Link { self.work }
}

impl Link {
    /// Makes the network device of a card, which nobody sees yet.
    pub(crate) fn new(card: &Arc<Card>) -> Result<Arc<Self>> {
        let device = Device::new(MAX_MTU, Nic::new(card.clone()))?;
        Arc::pin_init(
            pin_init!(Link {
                card: card.clone(),
                device,
                registered <- new_mutex!(Registered { registration: None, upper: None, ended: false }, "berth_link"),
                notified: Atomic::new(0),
                behind: Atomic::new(0),
                work <- new_work!("berth_link"),
            }),
            GFP_KERNEL,
        )
    }

    /// From now on `upper` stands on the network device.
    pub(crate) fn attach(self: &Arc<Self>, upper: Arc<dyn Upper>) {
        self.registered.lock().upper = Some(upper);
        self.card_changed();
    }

    /// The card came into service or out of it. Takes no memory.
    pub(crate) fn card_changed(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue(self.clone());
    }

    /// Called twice a second: tries again what has failed.
    pub(crate) fn look_around(self: &Arc<Self>) {
        if self.behind.load(Relaxed) != 0 {
            self.card_changed();
        }
    }

    /// A completion queue has fired its notification; false if it is none of the network device.
    pub(crate) fn notify(&self, cqn: u32) -> bool {
        let ours = cqn == cqn_of(&self.card);
        if ours {
            self.notified.store(1, Relaxed);
        }
        ours
    }

    /// Has the device polled if it was notified: perhaps at once, by this thread.
    pub(crate) fn poll_if_notified(&self) {
        if self.notified.xchg(0, Relaxed) != 0 {
            self.device.schedule();
        }
    }

    /// The completion queue overran for a queue with that QPN; false if it is none of the network device. It has room
    /// for all that can complete, so the card does not do what it should.
    pub(crate) fn overran(self: &Arc<Self>, qpn: u32) -> bool {
        let ours = qpn == RAW_QPN + u32::from(QUEUE);
        if ours {
            self.device.data.forget_rings();
            self.card_changed();
        }
        ours
    }

    /// The card has got this MAC address; the device takes it over.
    pub(crate) fn set_address(&self, mac: [u8; 6]) {
        let result = self.device.set_address(&Rtnl::lock(), mac);
        if let Err(e) = result {
            if self.card.may_log() {
                dev_warn!(
                    self.card.dev,
                    "berth: the network device keeps its MAC address: {:?}\n",
                    e
                );
            }
        }
    }

    /// Takes the network device away. The card must still be in service, so that its queue can be ended.
    pub(crate) fn end(self: &Arc<Self>) {
        let (upper, registration) = {
            let mut registered = self.registered.lock();
            registered.ended = true;
            (registered.upper.take(), registered.registration.take())
        };
        if let Some(upper) = upper {
            upper.goes();
        }
        drop(registration);
        workqueue::cancel::<_, 0>(self);
    }

    /// Makes the device what the card's state asks for.
    fn follow(&self) -> Result {
        let mut registered = self.registered.lock();
        if registered.ended {
            return Ok(());
        }
        if self.card.state() != State::Up {
            if registered.registration.is_some() {
                self.device.suspend(&Rtnl::lock());
            }
            return Ok(());
        }
        if registered.registration.is_none() {
            if !self.card_has_raw_queues()? {
                return Ok(());
            }
            let bound = self.card.bound()?;
            let parent: &device::Device<device::Bound> = (*bound).as_ref();
            registered.registration = Some(Registration::new(parent, &self.device)?);
        } else if !self.device.data.has_rings_of(self.card.generation()) {
            self.device.restart(&Rtnl::lock())?;
        }
        if let Some(upper) = &registered.upper {
            let bound = self.card.bound()?;
            upper.comes((*bound).as_ref(), &self.device)?;
        }
        Ok(())
    }

    /// Whether firmware knows raw queues.
    fn card_has_raw_queues(&self) -> Result<bool> {
        // Ending a queue that is not there changes nothing.
        match self.card.call(RawDestroy { queue: QUEUE }.encode()) {
            Ok(_) => Ok(true),
            Err(e) if e == unsupported() => Ok(false),
            Err(e) if e == ENOENT => Ok(true),
            Err(e) => Err(e),
        }
    }
}

impl WorkItem for Link {
    type Pointer = Arc<Link>;

    fn run(this: Arc<Link>) {
        let result = this.follow();
        // A card that has gone out of service meanwhile says so by another call.
        let again = result.is_err() && this.card.state() == State::Up;
        this.behind.store(u32::from(again), Relaxed);
    }
}
