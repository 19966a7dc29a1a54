// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statistics RAM: 64-bit counters that the host reads, and the panic text.

use berth_abi::cpu::CPU_STATS;
use berth_abi::host::{STATS_PANIC, STATS_PANIC_BYTES};

const COUNTERS: u32 = STATS_PANIC / 8;

/// The statistics RAM. It is cleared by [`Stats::clear`], not by a card reset.
pub struct Stats {
    _one: (),
}

impl Stats {
    /// # Safety
    /// One user at a time, and only on the card's soft core.
    pub(crate) unsafe fn new() -> Stats {
        Stats { _one: () }
    }

    #[inline(always)]
    fn cell(offset: u32) -> *mut u32 {
        (CPU_STATS + offset) as usize as *mut u32
    }

    /// Sets everything to zero.
    pub fn clear(&mut self) {
        for word in 0..(STATS_PANIC + STATS_PANIC_BYTES) / 4 {
            // SAFETY: word aligned and inside statistics RAM, which is plain memory.
            unsafe { core::ptr::write_volatile(Self::cell(word * 4), 0) };
        }
    }

    /// Adds to counter `index` (`F_*`).
    #[inline(always)]
    pub fn add(&mut self, index: u32, n: u32) {
        assert!(index < COUNTERS, "counter index");
        // SAFETY: inside statistics RAM (checked), word aligned, plain memory.
        unsafe {
            let low = core::ptr::read_volatile(Self::cell(index * 8));
            let (sum, carry) = low.overflowing_add(n);
            if carry {
                let high = core::ptr::read_volatile(Self::cell(index * 8 + 4));
                core::ptr::write_volatile(Self::cell(index * 8 + 4), high.wrapping_add(1));
            }
            core::ptr::write_volatile(Self::cell(index * 8), sum);
        }
    }

    /// A writer that puts text at `STATS_PANIC`, cut to its room and NUL-terminated.
    pub fn panic_text(&mut self) -> PanicText<'_> {
        PanicText { _stats: self, at: 0, word: 0 }
    }
}

/// See [`Stats::panic_text`]. Dropping it ends the text.
pub struct PanicText<'a> {
    _stats: &'a mut Stats,
    at: u32,
    word: u32,
}

impl PanicText<'_> {
    fn put(&mut self, byte: u8) {
        // With it nothing below can overflow: that would be a panic within the panic.
        if self.at >= STATS_PANIC_BYTES {
            return;
        }
        let lane = self.at & 3;
        self.word = if lane == 0 { byte as u32 } else { self.word | (byte as u32) << (8 * lane) };
        // SAFETY: `at` is below STATS_PANIC_BYTES (looked at above), so this is inside statistics RAM; whole words.
        unsafe { core::ptr::write_volatile(Stats::cell(STATS_PANIC + (self.at & !3)), self.word) };
        self.at += 1;
    }

    /// Appends text. What does not fit is cut, at a byte, not at a character.
    pub fn str(&mut self, text: &str) -> &mut Self {
        for &b in text.as_bytes() {
            if self.at >= STATS_PANIC_BYTES - 1 {
                break;
            }
            self.put(b);
        }
        self
    }

    /// Appends a number in decimal.
    pub fn dec(&mut self, value: u32) -> &mut Self {
        let mut unit = 1_000_000_000;
        while unit > 1 && value < unit {
            unit /= 10;
        }
        while unit > 0 && self.at < STATS_PANIC_BYTES - 1 {
            self.put(b'0' + (value / unit % 10) as u8);
            unit /= 10;
        }
        self
    }

    /// Appends a number in hexadecimal, eight digits.
    pub fn hex(&mut self, value: u32) -> &mut Self {
        for i in (0..8).rev() {
            if self.at >= STATS_PANIC_BYTES - 1 {
                break;
            }
            self.put(b"0123456789abcdef"[(value >> (4 * i) & 15) as usize]);
        }
        self
    }
}

impl Drop for PanicText<'_> {
    fn drop(&mut self) {
        self.put(0);
    }
}
