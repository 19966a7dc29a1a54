// SPDX-License-Identifier: GPL-2.0
//! Devices. The test is who has them up, sends packets and polls.

use crate::kernel::net::skb::SkBuff;
use crate::memory::surroundings;
use kernel::prelude::*;
use kernel::sync::{Arc, MutexGuard};
use kernel::world::{might_sleep, world};
use std::cell::{Cell, RefCell};

pub(crate) const HEADER_BYTES: u32 = 14;
pub(crate) const TAG_BYTES: u32 = 4;

pub(crate) trait Driver: Send + Sync + Sized + 'static {
    type Open: Send + Sync;

    const COUNTERS: &'static [&'static str];

    fn open(dev: &Device<Self>, rtnl: &Rtnl) -> Result<Self::Open>;
    fn stop(dev: &Device<Self>, rtnl: &Rtnl, open: Self::Open);
    fn xmit(dev: &Device<Self>, open: &Self::Open, skb: SkBuff, more: bool) -> Xmit;
    fn poll(dev: &Device<Self>, open: &Self::Open, poll: &mut Poll<'_, Self>);
    fn rearm(dev: &Device<Self>, open: &Self::Open);
    fn set_mode(dev: &Device<Self>, rtnl: &Rtnl, open: Option<&Self::Open>) -> Result;
    fn stats(dev: &Device<Self>) -> Stats;
    fn counters(dev: &Device<Self>, values: &mut [u64]);
}

pub(crate) enum Xmit {
    Taken,
    Busy(SkBuff),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) rx_dropped: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_dropped: u64,
    pub(crate) tx_errors: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) promiscuous: bool,
    pub(crate) multicast: bool,
}

pub(crate) struct Rtnl(());

pub(crate) struct RtnlGuard {
    rtnl: Rtnl,
    _lock: MutexGuard<'static, ()>,
}

impl Rtnl {
    pub(crate) fn lock() -> RtnlGuard {
        RtnlGuard { rtnl: Self(()), _lock: surroundings().rtnl().lock() }
    }
}

impl core::ops::Deref for RtnlGuard {
    type Target = Rtnl;

    fn deref(&self) -> &Rtnl {
        &self.rtnl
    }
}

pub(crate) struct Device<T: Driver> {
    pub(crate) data: T,
    open: RefCell<Option<T::Open>>,
    pub(crate) max_mtu: u32,
    mtu: Cell<u32>,
    up: Cell<bool>,
    known: Cell<bool>,
    pub(crate) link: Cell<bool>,
    pub(crate) stopped: Cell<bool>,
    scheduled: Cell<bool>,
    mode: Cell<Mode>,
    address: Cell<[u8; 6]>,
    received: RefCell<Vec<Vec<u8>>>,
}

// SAFETY: One thread runs at a time.
unsafe impl<T: Driver> Send for Device<T> {}
// SAFETY: As above.
unsafe impl<T: Driver> Sync for Device<T> {}

impl<T: Driver> Device<T> {
    pub(crate) fn new(max_mtu: u32, data: Result<T>) -> Result<Arc<Self>> {
        let this = Self {
            data: data?,
            open: RefCell::new(None),
            max_mtu,
            mtu: Cell::new(1500),
            up: Cell::new(false),
            known: Cell::new(false),
            link: Cell::new(false),
            stopped: Cell::new(false),
            scheduled: Cell::new(false),
            mode: Cell::default(),
            address: Cell::new([2, 0, 0, 0, 0, 9]),
            received: RefCell::default(),
        };
        Arc::pin_init(this, GFP_KERNEL)
    }

    // ---- what the driver calls --------------------------------------------------------

    pub(crate) fn restart(&self, rtnl: &Rtnl) -> Result {
        self.suspend(rtnl);
        if self.up.get() { self.begin(rtnl) } else { Ok(()) }
    }

    pub(crate) fn suspend(&self, rtnl: &Rtnl) {
        might_sleep();
        self.stopped.set(true);
        self.scheduled.set(false);
        let open = self.open.borrow_mut().take();
        if let Some(open) = open {
            T::stop(self, rtnl, open);
        }
    }

    fn begin(&self, rtnl: &Rtnl) -> Result {
        let open = T::open(self, rtnl)?;
        *self.open.borrow_mut() = Some(open);
        self.stopped.set(false);
        self.schedule();
        Ok(())
    }

    pub(crate) fn carrier(&self, _: &Rtnl, on: bool) {
        self.link.set(on && self.known.get());
    }

    pub(crate) fn address(&self, _: &Rtnl) -> [u8; 6] {
        self.address.get()
    }

    pub(crate) fn set_address(&self, rtnl: &Rtnl, address: [u8; 6]) -> Result {
        self.address.set(address);
        T::set_mode(self, rtnl, self.open.borrow().as_ref())
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode.get()
    }

    pub(crate) fn mtu(&self, _: &Rtnl) -> u32 {
        self.mtu.get()
    }

    pub(crate) fn schedule(&self) {
        self.scheduled.set(self.open.try_borrow().is_ok_and(|open| open.is_some()));
    }

    pub(crate) fn stop_queue(&self) {
        self.stopped.set(true);
    }

    pub(crate) fn wake_queue(&self, _: &Poll<'_, T>) {
        self.stopped.set(false);
    }

    pub(crate) fn is_queue_stopped(&self) -> bool {
        self.stopped.get()
    }

    pub(crate) fn alloc(&self, bytes: u32) -> Option<SkBuff> {
        (!world().fails(false)).then(|| SkBuff::empty(bytes))
    }

    // ---- what the stack does ----------------------------------------------------------

    pub(super) fn set_known(&self, _: &Rtnl, known: bool) {
        self.known.set(known);
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known.get()
    }

    /// Its user has it up, or not.
    pub(crate) fn set_up(&self, rtnl: &Rtnl, up: bool) -> Result {
        if up == self.up.get() {
            return Ok(());
        }
        match up {
            true => self.begin(rtnl)?,
            false => self.suspend(rtnl),
        }
        self.up.set(up);
        Ok(())
    }

    pub(crate) fn set_mode(&self, rtnl: &Rtnl, mode: Mode) -> Result {
        self.mode.set(mode);
        T::set_mode(self, rtnl, self.open.borrow().as_ref())
    }

    pub(crate) fn set_mtu(&self, rtnl: &Rtnl, mtu: u32) -> Result {
        self.mtu.set(mtu);
        self.restart(rtnl)
    }

    /// Sends a packet; false if it has to be sent again.
    pub(crate) fn xmit(&self, skb: SkBuff, more: bool) -> bool {
        assert!(!self.stopped.get(), "the queue is stopped");
        let open = self.open.borrow();
        matches!(T::xmit(self, open.as_ref().expect("it is open"), skb, more), Xmit::Taken)
    }

    /// Polls if that was asked for; says how many packets were received.
    pub(crate) fn poll(&self, budget: usize) -> Option<usize> {
        self.scheduled.replace(false).then(|| {
            let open = self.open.borrow();
            let open = open.as_ref().expect("it is open");
            let mut poll = Poll { dev: self, budget, received: 0 };
            T::poll(self, open, &mut poll);
            let received = poll.received;
            assert!(received <= budget);
            if received < budget {
                T::rearm(self, open);
            } else {
                self.scheduled.set(true);
            }
            received
        })
    }

    /// What was received since the last look.
    pub(crate) fn received(&self) -> Vec<Vec<u8>> {
        self.received.take()
    }

    pub(crate) fn stats(&self) -> Stats {
        T::stats(self)
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let mut values = vec![0; T::COUNTERS.len()];
        T::counters(self, &mut values);
        values[T::COUNTERS.iter().position(|n| *n == name).expect("there is one")]
    }
}

pub(crate) struct Poll<'a, T: Driver> {
    dev: &'a Device<T>,
    budget: usize,
    received: usize,
}

impl<T: Driver> Poll<'_, T> {
    pub(crate) fn may_receive(&self) -> bool {
        self.received < self.budget
    }

    pub(crate) fn receive(&mut self, skb: SkBuff) {
        assert!(self.may_receive());
        self.received += 1;
        self.dev.received.borrow_mut().push(skb.bytes());
    }

    pub(crate) fn note_received(&mut self) {
        assert!(self.may_receive());
        self.received += 1;
    }

    pub(crate) fn sent(&self, skb: SkBuff) {
        drop(skb);
    }
}
