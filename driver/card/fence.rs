// SPDX-License-Identifier: GPL-2.0
//! Waiting until the card's DMA has ended.

use crate::{
    abi::{counters::*, host::*, message::Fence},
    card::{
        deadline::{Deadline, FENCE_CYCLES},
        regs::ALL_ONES,
        Card, State,
    },
};
use kernel::{
    dma::Coherent,
    io::io_read,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
    time::{delay::fsleep, Delta},
};

fn read_fence(word: &Coherent<[u64]>) -> u64 {
    let read = || -> Result<u64> { Ok(io_read!(word, [try: 0])) };
    read().unwrap_or(0)
}

impl Card {
    /// Waits until all DMA that the card had begun when this was called has ended.
    /// Sleeps, within bounds: a card that does not answer is put out of service, which
    /// ends its DMA as well.
    pub(crate) fn fence(self: &Arc<Self>) {
        let mut deadline = None;
        let mut nap = 10;
        let epoch = self.epoch.load(Relaxed);
        let posted = self.with_room(|| {
            // Tokens rise in ring order, so the card's word tells every waiter whether its fence
            // has ended.
            let mut token = self.token.lock();
            let next = *token + 1;
            self.post(&[Fence { token: next }.encode()])?;
            *token = next;
            Ok(next)
        });
        if let Ok(token) = posted {
            // The deadline is read before the token, so that time in which this thread did not run
            // does not count against the card.
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
            // As above: a card that is in service again must not be reset once more.
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
}
