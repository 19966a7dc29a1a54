// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows of the fast path: words of both its halves, one row per QPN. A write is over when what it commands is.

use berth_abi::rows::address;

/// The rows.
pub struct Fast {
    _one: (),
}

impl Fast {
    /// # Safety
    /// One user at a time, and only on the card's soft core.
    pub(crate) unsafe fn new() -> Fast {
        Fast { _one: () }
    }

    #[inline(always)]
    fn cell(half: u32, qpn: u32, word: u32) -> *mut u32 {
        address(half, qpn, word) as usize as *mut u32
    }

    /// Reads word `word` (0 to 63) of QP `qpn`'s row (0 to 1023) in half `half` (0 sends, 1 receives).
    #[inline(never)]
    pub fn read(&self, half: u32, qpn: u32, word: u32) -> u32 {
        // SAFETY: `cell` stays in the rows; reads have no effect.
        unsafe { core::ptr::read_volatile(Self::cell(half, qpn, word)) }
    }

    /// Writes word `word` (0 to 63) of QP `qpn`'s row (0 to 1023) in half `half` (0 sends, 1 receives).
    #[inline(always)]
    pub fn write(&mut self, half: u32, qpn: u32, word: u32, value: u32) {
        // SAFETY: `cell` stays in the rows. Rows name host memory by bus address or by translation, never the RAM that
        // this program lives in.
        unsafe { core::ptr::write_volatile(Self::cell(half, qpn, word), value) }
    }
}
