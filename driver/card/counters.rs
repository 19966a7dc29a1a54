// SPDX-License-Identifier: GPL-2.0
//! The driver's counters.

use crate::abi::counters::*;
use kernel::sync::atomic::{Atomic, Relaxed};

/// The driver's counters, indexed as `DRV_COUNTER_TABLE`.
pub(crate) struct Counters([Atomic<u64>; NUM_DRV_COUNTERS]);

impl Counters {
    pub(crate) fn new() -> Self {
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
