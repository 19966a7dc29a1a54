// SPDX-License-Identifier: GPL-2.0
//! What the network stack asks of the card.

use crate::{
    abi::{
        message::RawMode,
        raw::{RAW_DEFAULT, RAW_MULTICAST, RAW_PROMISCUOUS},
    },
    card::Card,
    kernel::net::{
        device::{Device, Driver, Poll, Rtnl, Stats, Xmit},
        skb::SkBuff,
    },
    net::{
        counts::{Count, Counts, NAMES},
        rings::{Rings, QUEUE},
        taker::Taker,
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// What there is of a network device, open or not.
pub(crate) struct Nic {
    pub(super) card: Arc<Card>,
    pub(super) counts: Arc<Counts>,
    /// Who gets datagrams of RoCE.
    pub(crate) taker: Arc<Taker>,
    /// The run of firmware that has the rings, 1 more than its number; 0 without rings.
    run: Atomic<u64>,
}

impl Nic {
    pub(super) fn new(card: Arc<Card>) -> Result<Self> {
        Ok(Self {
            card,
            counts: Arc::pin_init(Counts::new(), GFP_KERNEL)?,
            taker: Taker::new()?,
            run: Atomic::new(0),
        })
    }

    /// Whether the firmware of `generation` has the rings, or there are none that it ought to have.
    pub(super) fn has_rings_of(&self, generation: u32) -> bool {
        self.run.load(Relaxed) == u64::from(generation) + 1
    }

    /// The rings are to be made anew.
    pub(super) fn forget_rings(&self) {
        self.run.store(0, Relaxed);
    }

    /// Which frames the raw queue is to take.
    fn flags(dev: &Device<Self>, rtnl: &Rtnl) -> u8 {
        let mode = dev.mode();
        let mut flags = RAW_DEFAULT;
        if mode.multicast {
            flags |= RAW_MULTICAST;
        }
        // The card knows its own address only: another one is left to the stack.
        if mode.promiscuous || dev.data.card.net.lock().mac != dev.address(rtnl) {
            flags |= RAW_PROMISCUOUS;
        }
        flags
    }
}

impl Driver for Nic {
    type Open = Pin<KBox<Rings>>;

    const COUNTERS: &'static [&'static str] = NAMES;

    fn open(dev: &Device<Self>, rtnl: &Rtnl) -> Result<Self::Open> {
        let nic = &dev.data;
        let flags = Self::flags(dev, rtnl);
        let rings = Rings::new(
            dev,
            &nic.card,
            (&nic.counts, &nic.taker),
            dev.mtu(rtnl),
            flags,
        )?;
        nic.run.store(u64::from(rings.generation) + 1, Relaxed);
        nic.counts.add(Count::Opened, 1);
        dev.carrier(rtnl, true);
        Ok(rings)
    }

    fn stop(dev: &Device<Self>, rtnl: &Rtnl, rings: Self::Open) {
        dev.carrier(rtnl, false);
        dev.data.forget_rings();
        rings.end(&dev.data.card);
    }

    fn xmit(dev: &Device<Self>, rings: &Self::Open, skb: SkBuff, more: bool) -> Xmit {
        rings.xmit(dev, skb, more)
    }

    fn poll(dev: &Device<Self>, rings: &Self::Open, poll: &mut Poll<'_, Self>) {
        rings.poll(dev, poll);
    }

    fn rearm(_: &Device<Self>, rings: &Self::Open) {
        rings.arm();
    }

    fn set_mode(dev: &Device<Self>, rtnl: &Rtnl, rings: Option<&Self::Open>) -> Result {
        let Some(rings) = rings else {
            return Ok(());
        };
        let mode = RawMode {
            queue: QUEUE,
            flags: Self::flags(dev, rtnl),
        };
        match dev.data.card.call_for(rings.generation, mode.encode()) {
            // Out of service: what comes after it has the flags from the start.
            Err(e) if e == EIO || e == ENODEV => Ok(()),
            result => result.map(drop),
        }
    }

    fn stats(dev: &Device<Self>) -> Stats {
        dev.data.counts.stats()
    }

    fn counters(dev: &Device<Self>, values: &mut [u64]) {
        dev.data.counts.all(&dev.data.card.regs, values);
    }
}
