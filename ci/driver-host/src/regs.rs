// SPDX-License-Identifier: GPL-2.0
//! The card's registers: those of the hardware that the test has.

use crate::abi::{card, host, ring::ENTRY_WORDS};
use crate::memory::sim;

pub(crate) const ALL_ONES: u32 = u32::MAX;

pub(crate) struct Regs;

impl Regs {
    pub(crate) fn read(&self, offset: u32) -> u32 {
        sim().hardware.borrow().read(offset)
    }

    pub(crate) fn read64(&self, offset: u32) -> u64 {
        assert_eq!(offset, host::HOST_CYCLES_LO);
        sim().hardware.borrow().cycles()
    }

    pub(crate) fn write(&self, offset: u32, value: u32) {
        sim().hardware.borrow_mut().write(offset, value);
    }

    pub(crate) fn push(&self, index: u16, entry: &[u32; ENTRY_WORDS]) {
        sim().hardware.borrow_mut().push(index, entry);
    }

    pub(crate) fn write_addr(&self, low: u32, addr: u64) {
        sim().hardware.borrow_mut().write_addr(low, addr);
    }

    pub(crate) fn cycles(&self) -> Option<u64> {
        let cycles = self.read64(host::HOST_CYCLES_LO);
        (cycles != u64::MAX).then_some(cycles)
    }

    pub(crate) fn present(&self) -> bool {
        self.read(host::HOST_ID) == card::CARD_ID
    }

    pub(crate) fn panic_text(&self, _: &mut [u8; host::STATS_PANIC_BYTES as usize]) -> usize {
        0
    }
}
