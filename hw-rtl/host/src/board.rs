// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card whose core is in reset: the bench does the core's work over the debug port.

use crate::memory::Memory;
use berth_abi::cpu::*;
use berth_abi::rows::event::Event;
use berth_rtl::{Card, CardConfig};

/// A DMA command of the core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dma {
    /// To host memory, not from it.
    pub write: bool,
    /// Place in packet RAM.
    pub local: u32,
    /// Bytes.
    pub len: u32,
    /// Comes back with the status. 16 bits.
    pub tag: u32,
    /// Bus address, or virtual address.
    pub addr: u64,
    /// The address is a virtual one of this address space.
    pub asid: Option<u32>,
    /// The command is attached to this slot of packet RAM.
    pub slot: Option<u32>,
}

/// A card without firmware, in a slot with host memory.
pub struct Board {
    /// The card.
    pub card: Card,
    /// Host memory.
    pub memory: Memory,
}

impl Board {
    /// A card in this slot.
    #[must_use]
    pub fn new(config: CardConfig, memory: Memory) -> Self {
        Self { card: Card::new(config, Box::new(memory.clone())), memory }
    }

    /// Reads a word on the core's bus. Panics when nothing answers.
    pub fn read(&mut self, addr: u32) -> u32 {
        self.card.debug_read(addr).unwrap_or_else(|| panic!("no answer at {addr:#x} of the core's bus"))
    }

    /// Writes a word on the core's bus. Panics when it is not taken.
    pub fn write(&mut self, addr: u32, value: u32) {
        assert!(self.card.debug_write(addr, value), "write not taken at {addr:#x} of the core's bus");
    }

    /// Reads a register of the core.
    pub fn cpu(&mut self, offset: u32) -> u32 {
        self.read(CPU_REGS + offset)
    }

    /// Writes a register of the core.
    pub fn set_cpu(&mut self, offset: u32, value: u32) {
        self.write(CPU_REGS + offset, value);
    }

    /// Writes bytes to packet RAM, from a multiple of 4 on; the last word is filled with zeros.
    pub fn fill_packet_ram(&mut self, at: u32, data: &[u8]) {
        for (at, chunk) in (CPU_PKT + at..).step_by(4).zip(data.chunks(4)) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write(at, u32::from_le_bytes(word));
        }
    }

    /// Reads `len` bytes of packet RAM.
    pub fn packet_ram(&mut self, at: u32, len: usize) -> Vec<u8> {
        let skip = (at & 3) as usize;
        let words = (CPU_PKT + (at & !3)..).step_by(4).take((skip + len).div_ceil(4));
        let bytes: Vec<u8> = words.flat_map(|at| self.read(at).to_le_bytes()).collect();
        bytes[skip..skip + len].to_vec()
    }

    /// Hands a command to the DMA engines. If `last` is the one before, only registers that differ are written.
    pub fn dma(&mut self, d: Dma, last: Option<Dma>) {
        let differs = |field: fn(&Dma) -> u64| last.as_ref().is_none_or(|l| field(l) != field(&d));
        if differs(|d| d.local.into()) {
            self.set_cpu(CPU_DMA_LOCAL, d.local);
        }
        self.set_cpu(CPU_DMA_LEN_TAG, DmaLenTag { tag: d.tag, length: d.len }.word());
        self.set_cpu(CPU_DMA_ADDR_LO, d.addr as u32);
        if differs(|d| d.addr >> 32) {
            self.set_cpu(CPU_DMA_ADDR_HI, (d.addr >> 32) as u32);
        }
        let go = DmaGo {
            asid: d.asid.unwrap_or(0),
            slot: d.slot.unwrap_or(0),
            attach: d.slot.is_some().into(),
            virt: d.asid.is_some().into(),
            write: d.write.into(),
        };
        self.set_cpu(CPU_DMA_GO, go.word());
    }

    /// The next event of the fast path, if there is one.
    pub fn fast_event(&mut self) -> Option<Event> {
        let high = self.cpu(CPU_FAST_EVENT);
        (Event::from_word(u64::from(high) << 32).code != 0)
            .then(|| Event::from_word(u64::from(high) << 32 | u64::from(self.cpu(CPU_FAST_ARG))))
    }

    /// Status (`DMA_*`) and tag of the next DMA command that has ended, if one has.
    pub fn dma_done(&mut self) -> Option<(u32, u32)> {
        let done = DmaDone::from_word(self.cpu(CPU_DMA_DONE));
        (done.valid != 0).then_some((done.status, done.tag))
    }
}
