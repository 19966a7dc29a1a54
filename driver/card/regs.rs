// SPDX-License-Identifier: GPL-2.0
//! Access to the registers of BAR0.

use crate::abi::{card, counters, host, ring::ENTRY_WORDS, wide};
use kernel::{io::Io, pci, prelude::*};

/// Bytes of BAR0 that the driver uses.
const SIZE: usize = card::BAR0_SIZE as usize;

/// What a register reads when the card is gone.
pub(super) const ALL_ONES: u32 = u32::MAX;
/// Register that counts ARP messages of another host with this card's address.
pub(super) const ADDRESS_CONFLICTS: u32 = host::HOST_STATS + 8 * counters::F_ADDRESS_CONFLICTS;

/// The registers of one card. After the device was unbound, reads give all-ones and
/// writes have no effect, as on a card that was pulled out.
pub(crate) struct Regs {
    bar: pci::DevresBar<SIZE>,
}

impl Regs {
    /// Maps BAR0 of `pdev`.
    pub(crate) fn new(pdev: &pci::Device<kernel::device::Bound>) -> Result<Self> {
        let bar = pdev
            .iomap_region_sized::<SIZE>(0, c"berth")?
            .into_devres()?;
        Ok(Self { bar })
    }

    /// Reads a 32-bit register.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        self.bar
            .try_access_with(|bar| bar.try_read32(offset as usize).unwrap_or(ALL_ONES))
            .unwrap_or(ALL_ONES)
    }

    /// Reads two neighbouring registers at once.
    pub(crate) fn read64(&self, offset: u32) -> u64 {
        self.bar
            .try_access_with(|bar| bar.try_read64(offset as usize).unwrap_or(u64::MAX))
            .unwrap_or(u64::MAX)
    }

    /// Writes a 32-bit register. Memory written before is visible to the card first.
    pub(crate) fn write(&self, offset: u32, value: u32) {
        self.bar.try_access_with(|bar| {
            let _ = bar.try_write32(value, offset as usize);
        });
    }

    /// Writes a command into the card, besides its place `index` in the ring.
    pub(crate) fn push(&self, index: u16, entry: &[u32; ENTRY_WORDS]) {
        self.bar.try_access_with(|bar| {
            let _ = bar.try_write64(u64::from(index), host::HOST_CMD_PUSH as usize);
            let words = (host::HOST_CMD_PUSH + host::CMD_PUSH_WORDS) as usize;
            for (i, pair) in entry.chunks_exact(2).enumerate() {
                let word = wide(pair[0], pair[1]);
                let _ = bar.try_write64(word, words + 8 * i);
            }
        });
    }

    /// Writes an address to two registers, low half first.
    pub(crate) fn write_addr(&self, low: u32, addr: u64) {
        self.write(low, addr as u32);
        self.write(low + 4, (addr >> 32) as u32);
    }

    /// Card cycles since reset; `None` when the card is gone.
    pub(crate) fn cycles(&self) -> Option<u64> {
        // One access: the latch for the high half is the same for all readers.
        let cycles = self.read64(host::HOST_CYCLES_LO);
        (cycles != u64::MAX).then_some(cycles)
    }

    /// Whether the card answers and is one of ours.
    pub(crate) fn present(&self) -> bool {
        self.read(host::HOST_ID) == card::CARD_ID
    }

    /// Copies the counters of RTL and firmware.
    pub(crate) fn counters(&self, rtl: &mut [u64], fw: &mut [u64]) {
        for (i, value) in rtl.iter_mut().enumerate().take(counters::NUM_RTL_COUNTERS) {
            *value = self.read64(host::HOST_COUNTERS + 8 * i as u32);
        }
        for (i, value) in fw.iter_mut().enumerate().take(counters::NUM_FW_COUNTERS) {
            *value = self.read64(host::HOST_STATS + 8 * i as u32);
        }
    }

    /// Reads the text that a panicking firmware has left; gives its length.
    pub(super) fn panic_text(&self, text: &mut [u8; host::STATS_PANIC_BYTES as usize]) -> usize {
        let base = host::HOST_STATS + host::STATS_PANIC;
        for (i, word) in text.chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&self.read(base + 4 * i as u32).to_le_bytes());
            if word.contains(&0) {
                break;
            }
        }
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        for byte in &mut text[..end] {
            if !byte.is_ascii_graphic() && *byte != b' ' {
                *byte = b'.';
            }
        }
        end
    }
}
