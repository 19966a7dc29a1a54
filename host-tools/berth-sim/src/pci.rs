// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI configuration space of the card: an endpoint with three 64-bit memory BARs, power
//! management, PCI Express and MSI-X.
//!
//! QEMU shows the guest its own idea of most of it (BARs, MSI-X); a client that talks to
//! the socket directly sees this.

use berth_abi::card::{BAR0_SIZE, BAR2_SIZE, PCI_CLASS, PCI_DEVICE, PCI_VENDOR};

/// Bytes of configuration space (PCI Express).
pub const CONFIG_SIZE: usize = 4096;
/// MSI-X vectors.
pub const MSIX_VECTORS: usize = 32;
/// Size of BAR4 in bytes: MSI-X table, then pending bits.
pub const BAR4_SIZE: u32 = 0x1000;
/// Offset of the MSI-X pending bits in BAR4.
pub const PBA_OFFSET: u32 = 0x800;

const COMMAND: usize = 0x04;
const BAR0: usize = 0x10;
const CAP_PM: usize = 0x40;
const CAP_PCIE: usize = 0x48;
const CAP_MSIX: usize = 0x88;
const DEVICE_CONTROL: usize = CAP_PCIE + 8;
const INITIATE_FLR: u16 = 1 << 15;

/// Configuration space with a mask of the bits that a write can change.
#[derive(Clone)]
pub struct ConfigSpace {
    bytes: [u8; CONFIG_SIZE],
    writable: [u8; CONFIG_SIZE],
}

impl Default for ConfigSpace {
    fn default() -> Self {
        Self::new()
    }
}

impl ConfigSpace {
    /// Configuration space as after reset.
    pub fn new() -> Self {
        let mut c = Self { bytes: [0; CONFIG_SIZE], writable: [0; CONFIG_SIZE] };
        c.set16(0x00, PCI_VENDOR as u16);
        c.set16(0x02, PCI_DEVICE as u16);
        // Command: memory space, bus master, parity, SERR, INTx disable. Status: capability list.
        c.allow16(COMMAND, 0x0546);
        c.set16(0x06, 0x0010);
        c.set32(0x08, PCI_CLASS << 8);
        c.bytes[0x0c] = 0x10;
        c.writable[0x0c] = 0xff;
        for (bar, size) in [(0, BAR0_SIZE), (2, BAR2_SIZE), (4, BAR4_SIZE)] {
            // Memory, 64 bits wide, not prefetchable.
            let at = BAR0 + 4 * bar;
            c.set32(at, 0b100);
            c.allow32(at, !(size - 1));
            c.allow32(at + 4, u32::MAX);
        }
        c.set16(0x2c, PCI_VENDOR as u16);
        c.set16(0x2e, PCI_DEVICE as u16);
        c.bytes[0x34] = CAP_PM as u8;
        c.writable[0x3c] = 0xff;

        // Power management: version 3, no soft reset when leaving D3hot.
        c.capability(CAP_PM, 0x01, CAP_PCIE);
        c.set16(CAP_PM + 2, 0x0003);
        c.set16(CAP_PM + 4, 0x0008);
        c.allow16(CAP_PM + 4, 0x0003);

        // PCI Express: version 2, endpoint; 512-byte payloads, extended tags, function-level reset.
        c.capability(CAP_PCIE, 0x10, CAP_MSIX);
        c.set16(CAP_PCIE + 2, 0x0002);
        c.set32(CAP_PCIE + 4, 2 | 1 << 5 | 1 << 15 | 1 << 28);
        c.set16(DEVICE_CONTROL, 0x2810);
        c.allow16(DEVICE_CONTROL, 0x7fff);
        // Link: 8 GT/s, 8 lanes.
        c.set32(CAP_PCIE + 0x0c, 3 | 8 << 4);
        c.allow16(CAP_PCIE + 0x10, 0x00ff);
        c.set16(CAP_PCIE + 0x12, 3 | 8 << 4);
        c.set32(CAP_PCIE + 0x24, 1 << 4);
        c.allow16(CAP_PCIE + 0x28, 0x001f);
        c.set32(CAP_PCIE + 0x2c, 0b1110);
        c.set16(CAP_PCIE + 0x30, 3);

        // MSI-X: table and pending bits in BAR4.
        c.capability(CAP_MSIX, 0x11, 0);
        c.set16(CAP_MSIX + 2, MSIX_VECTORS as u16 - 1);
        c.allow16(CAP_MSIX + 2, 0xc000);
        c.set32(CAP_MSIX + 4, 4);
        c.set32(CAP_MSIX + 8, PBA_OFFSET | 4);
        c
    }

    fn capability(&mut self, at: usize, id: u8, next: usize) {
        self.bytes[at] = id;
        self.bytes[at + 1] = next as u8;
    }

    fn set16(&mut self, at: usize, v: u16) {
        self.bytes[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    fn set32(&mut self, at: usize, v: u32) {
        self.bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }

    fn allow16(&mut self, at: usize, v: u16) {
        self.writable[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    fn allow32(&mut self, at: usize, v: u32) {
        self.writable[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }

    /// Reads; bytes beyond the end are all-ones.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (i, b) in data.iter_mut().enumerate() {
            *b = usize::try_from(offset).ok().and_then(|o| self.bytes.get(o.checked_add(i)?)).copied().unwrap_or(0xff);
        }
    }

    /// Writes what is writable. Returns true if the write asks for a function-level reset.
    #[must_use]
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let mut flr = false;
        for (i, &v) in data.iter().enumerate() {
            let Some(at) = usize::try_from(offset).ok().and_then(|o| o.checked_add(i)) else { continue };
            if at >= CONFIG_SIZE {
                continue;
            }
            flr |= at == DEVICE_CONTROL + 1 && u16::from(v) << 8 & INITIATE_FLR != 0;
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | v & mask;
        }
        flr
    }

    /// Device Control of PCI Express: among others, the largest transfers that the card may make.
    pub fn device_control(&self) -> u16 {
        u16::from_le_bytes([self.bytes[DEVICE_CONTROL], self.bytes[DEVICE_CONTROL + 1]])
    }

    /// Bus mastering is on: the card may read and write memory and raise interrupts.
    pub fn bus_master(&self) -> bool {
        self.bytes[COMMAND] & 0x04 != 0
    }

    /// Memory decoding is on: the BARs answer.
    pub fn memory(&self) -> bool {
        self.bytes[COMMAND] & 0x02 != 0
    }

    /// All MSI-X vectors are masked together.
    pub fn msix_masked(&self) -> bool {
        self.bytes[CAP_MSIX + 3] & 0x40 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read32(c: &ConfigSpace, at: u64) -> u32 {
        let mut b = [0; 4];
        c.read(at, &mut b);
        u32::from_le_bytes(b)
    }

    #[test]
    fn identity_is_that_of_the_abi() {
        let c = ConfigSpace::new();
        assert_eq!(read32(&c, 0), PCI_DEVICE << 16 | PCI_VENDOR);
        assert_eq!(read32(&c, 8) >> 8, PCI_CLASS);
    }

    #[test]
    fn bars_answer_sizing_writes() {
        let mut c = ConfigSpace::new();
        for (bar, size) in [(0u64, BAR0_SIZE), (2, BAR2_SIZE), (4, BAR4_SIZE)] {
            assert!(!c.write(0x10 + 4 * bar, &[0xff; 8]));
            assert_eq!(read32(&c, 0x10 + 4 * bar), !(size - 1) | 0b100);
            assert_eq!(read32(&c, 0x14 + 4 * bar), u32::MAX);
        }
    }

    #[test]
    fn capability_list_ends_and_holds_power_express_and_msix() {
        let c = ConfigSpace::new();
        let (mut at, mut ids) = (c.bytes[0x34] as usize, vec![]);
        while at != 0 {
            ids.push(c.bytes[at]);
            at = c.bytes[at + 1] as usize;
        }
        assert_eq!(ids, [0x01, 0x10, 0x11]);
    }

    #[test]
    fn function_level_reset_is_noticed_and_reads_back_zero() {
        let mut c = ConfigSpace::new();
        let mut b = [0; 2];
        c.read(DEVICE_CONTROL as u64, &mut b);
        assert!(!c.write(DEVICE_CONTROL as u64, &b));
        assert!(c.write(DEVICE_CONTROL as u64, &[b[0], b[1] | 0x80]));
        let mut after = [0; 2];
        c.read(DEVICE_CONTROL as u64, &mut after);
        assert_eq!(after, b);
    }

    #[test]
    fn access_beyond_the_end_reads_ones_and_writes_nothing() {
        let mut c = ConfigSpace::new();
        assert_eq!(read32(&c, CONFIG_SIZE as u64 - 2) >> 16, 0xffff);
        assert_eq!(read32(&c, u64::MAX), u32::MAX);
        assert!(!c.write(u64::MAX, &[1, 2, 3]));
        assert!(!c.write(0, &[0; 4]));
        assert_eq!(read32(&c, 0) & 0xffff, PCI_VENDOR);
    }
}
