// SPDX-License-Identifier: GPL-2.0
//! Taking a card into service and out of it.

use crate::{
    abi::{counters::*, host::*, status::*},
    card::{
        deadline::STANDSTILL_MS,
        parts::RING_LOG2,
        regs::{ADDRESS_CONFLICTS, ALL_ONES},
        ring::clear_ring,
        Card, State,
    },
    kernel::workqueue,
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::{delay::fsleep, Delta, Instant, Monotonic},
    workqueue::WorkItem,
};

impl WorkItem<2> for Card {
    type Pointer = Arc<Card>;

    fn run(this: Arc<Card>) {
        let _ = this.reset("lost");
    }
}

impl Card {
    /// Has the card reset soon.
    pub(crate) fn schedule_reset(self: &Arc<Self>) {
        let _ = self.queue.enqueue::<_, 2>(self.clone());
    }

    /// Resets the card, loads firmware and starts it. All objects on the card are
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
                // Takes the events that came before the state changed.
                self.arm_events(&self.events.lock(), false);
                let net = *self.net.lock();
                if net.ipv4 != 0 {
                    // Does not wait, because only another reset could end the wait.
                    let _ = self.post(&[net.command()]);
                }
                self.tell_owner(|owner| owner.in_service());
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
    pub(super) fn quiesce(self: &Arc<Self>) -> Result {
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
            self.lose_objects();
        }
        Ok(())
    }

    /// Takes the card out of service because it does not answer.
    pub(crate) fn gone(self: &Arc<Self>) {
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
        self.lose_objects();
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
    pub(crate) fn start(&self) -> Result {
        {
            let mut cmd = self.cmd.lock();
            let addr = cmd.ring.as_ref().ok_or(ENODEV)?.dma_address();
            cmd.pi = 0;
            cmd.ci = 0;
            cmd.rung = 0;
            cmd.generation = cmd.generation.wrapping_add(1);
            self.regs.write_addr(HOST_CMD_BASE_LO, addr);
            self.regs.write(HOST_CMD_LOG2, RING_LOG2);
        }
        {
            let events = self.events.lock();
            let addr = events.ring.as_ref().ok_or(ENODEV)?.dma_address();
            self.regs.write_addr(HOST_EVT_BASE_LO, addr);
            self.regs.write(HOST_EVT_LOG2, RING_LOG2);
        }
        {
            let fence = self.fence.lock();
            let addr = fence.as_ref().ok_or(ENODEV)?.dma_address();
            self.regs.write_addr(HOST_FENCE_LO, addr);
        }
        let bound = self.bound()?;
        // Bus mastering was switched off if the card was given up before.
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
        self.arm_events(&self.events.lock(), false);
        Ok(())
    }

    /// All objects on the card are lost; it does no DMA.
    fn lose_objects(&self) {
        self.epoch.add(1, Relaxed);
        self.tell_owner(|owner| owner.lose_objects());
    }

    /// Last act of the driver on this card: no command is taken any more, the card does
    /// no DMA, and everything that its owner holds of the device is given back.
    pub(crate) fn unbind(self: &Arc<Self>) {
        {
            let _guard = self.reset_lock.lock();
            // While the state is `Resetting`, the card does not count as quiet.
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
            self.lose_objects();
        }
        workqueue::end_delayed::<_, 1>(self);
        workqueue::cancel::<_, 2>(self);
        workqueue::end_delayed::<_, 3>(self);
        self.forget_owner();
    }
}
