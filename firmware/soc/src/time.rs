// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time: card cycles, and delays counted in them.

use crate::regs::Regs;
use berth_abi::card::CLOCK_HZ;
use embedded_hal::delay::DelayNs;

/// The cycle counter.
#[derive(Clone, Copy)]
pub struct Clock {
    regs: &'static Regs,
}

impl Clock {
    pub(crate) fn new(regs: &'static Regs) -> Clock {
        Clock { regs }
    }

    /// Card cycles since reset.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        // Reading the low half latches the high one.
        let low = self.regs.cycle_lo.read();
        (u64::from(self.regs.cycle_hi.read()) << 32) | u64::from(low)
    }
}

impl DelayNs for Clock {
    /// Waits by reading the counter; at least `ns`, rounded up to cycles.
    fn delay_ns(&mut self, ns: u32) {
        const NS_PER_CYCLE: u32 = 1_000_000_000 / CLOCK_HZ;
        let end = self.now() + u64::from(ns.div_ceil(NS_PER_CYCLE));
        while self.now() < end {}
    }
}
