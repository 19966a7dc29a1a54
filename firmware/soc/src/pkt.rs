// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet RAM: transmit slots, receive slots, scratch places.
//!
//! It is uncached and every access costs bus cycles, so data moves as whole words.
//! Offsets are in bytes from its start, as in the DMA registers.

use berth_abi::cpu::{CPU_PKT, PKT_BYTES};

/// The packet RAM.
pub struct PacketRam {
    _one: (),
}

impl PacketRam {
    /// # Safety
    /// One user at a time, and only on the card's soft core.
    pub(crate) unsafe fn new() -> PacketRam {
        PacketRam { _one: () }
    }

    #[inline(always)]
    fn cell(offset: u32, words: usize) -> *mut u32 {
        assert!(
            offset & 3 == 0 && offset < PKT_BYTES && words <= ((PKT_BYTES - offset) / 4) as usize,
            "packet RAM range"
        );
        (CPU_PKT + offset) as usize as *mut u32
    }

    /// Copies words from `offset` (a multiple of 4) on. Panics when the range leaves the RAM.
    #[inline(always)]
    pub fn read(&self, offset: u32, out: &mut [u32]) {
        let cell = Self::cell(offset, out.len());
        for (i, word) in out.iter_mut().enumerate() {
            // SAFETY: `cell` has checked place and length; plain memory, word aligned.
            *word = unsafe { core::ptr::read_volatile(cell.add(i)) };
        }
    }

    /// Copies words to `offset` (a multiple of 4) on. Panics when the range leaves the RAM.
    #[inline(always)]
    pub fn write(&mut self, offset: u32, data: &[u32]) {
        let cell = Self::cell(offset, data.len());
        for (i, &word) in data.iter().enumerate() {
            // SAFETY: `cell` has checked place and length; plain memory, word aligned.
            unsafe { core::ptr::write_volatile(cell.add(i), word) };
        }
    }
}
