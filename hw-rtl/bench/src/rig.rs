// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on the bench: host memory, the core in reset, its engines driven through the debug port.

use anyhow::{Context as _, Result, bail, ensure};
use berth_abi::card::xlt_free;
use berth_abi::cpu::*;
use berth_abi::host::*;
use berth_abi::ring::{ENTRY_WORDS, evict_add, evict_command, install_add};
use berth_rtl::{BAR_CONTROL, Card, HostError, HostMemory};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::Model;

/// Bus address of the host memory's first byte.
pub const HOST_BASE: u64 = 0x1_2340_0000;

/// A flat piece of host memory.
struct Flat(Arc<Mutex<Vec<u8>>>);

impl HostMemory for Flat {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), HostError> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(addr.wrapping_sub(HOST_BASE)).map_err(|_| HostError)?;
        let end = at.checked_add(buf.len()).ok_or(HostError)?;
        buf.copy_from_slice(memory.get(at..end).ok_or(HostError)?);
        Ok(())
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), HostError> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(addr.wrapping_sub(HOST_BASE)).map_err(|_| HostError)?;
        let end = at.checked_add(data.len()).ok_or(HostError)?;
        memory.get_mut(at..end).ok_or(HostError)?.copy_from_slice(data);
        Ok(())
    }

    fn msix(&mut self, _vector: u32) {}
}

/// Bytes of a command in the ring.
const COMMAND_BYTES: usize = 64;

/// The commands that install pages: (place in the table, virtual page, bus address).
pub fn install_commands(asid: u32, pages: &[(u32, u64, u64)]) -> Vec<[u32; ENTRY_WORDS]> {
    let mut entries: Vec<[u32; ENTRY_WORDS]> = Vec::new();
    for &(index, vpn, bus) in pages {
        let added = entries.last_mut().is_some_and(|e| install_add(e, (asid, vpn), index, bus, true));
        if !added {
            let mut entry = [0; ENTRY_WORDS];
            install_add(&mut entry, (asid, vpn), index, bus, true);
            entries.push(entry);
        }
    }
    entries
}

/// A DMA command of the core.
#[derive(Clone, Copy, Debug)]
pub struct Dma {
    /// To host memory, not from it.
    pub write: bool,
    /// Place in packet RAM.
    pub local: u32,
    /// Bytes.
    pub len: u32,
    /// Comes back with the status.
    pub tag: u32,
    /// Bus address, or virtual address.
    pub addr: u64,
    /// The address is a virtual one of this address space.
    pub asid: Option<u32>,
}

/// The card.
pub struct Rig {
    /// Itself.
    pub card: Card,
    memory: Arc<Mutex<Vec<u8>>>,
    /// The command ring: where, log2 of its places, index of the next one.
    commands: (usize, u32, u16),
    /// That which the card was told last.
    told: u16,
    /// The last command, until the card has heard of it.
    untold: Option<[u32; ENTRY_WORDS]>,
}

impl Rig {
    /// A card of `data_w` bits in the model's slot, reads taking `extra` cycles more, with `bytes` of host memory.
    pub fn new(model: &Model, data_w: usize, extra: u64, bytes: Vec<u8>) -> Self {
        let memory = Arc::new(Mutex::new(bytes));
        let mut card = Card::new(model.slot(data_w, extra), Box::new(Flat(memory.clone())));
        card.set_pcie_limits(model.limits());
        card.mmio_write(BAR_CONTROL, HOST_DMA_ENABLE.into(), 1, 4);
        Self { card, memory, commands: (0, 0, 0), told: 0, untold: None }
    }

    /// Host memory.
    pub fn memory(&self) -> MutexGuard<'_, Vec<u8>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a register of the core.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn read(&mut self, offset: u32) -> Result<u32> {
        match self.card.debug_read(CPU_REGS + offset) {
            Some(value) => Ok(value),
            None => bail!("the core's register {offset:#x} does not answer"),
        }
    }

    /// Writes a register of the core.
    ///
    /// # Errors
    /// When it is not taken.
    pub fn write(&mut self, offset: u32, value: u32) -> Result<()> {
        ensure!(self.card.debug_write(CPU_REGS + offset, value), "the core's register {offset:#x} is not taken");
        Ok(())
    }

    /// Fills packet RAM from `at` on, a multiple of 4.
    ///
    /// # Errors
    /// When it is not taken.
    pub fn fill(&mut self, at: u32, data: &[u8]) -> Result<()> {
        for (i, chunk) in (0..).zip(data.chunks(4)) {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            let taken = self.card.debug_write(CPU_PKT + at + 4 * i, u32::from_le_bytes(word));
            ensure!(taken, "packet RAM does not take a word");
        }
        Ok(())
    }

    /// Reads `len` bytes of packet RAM.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn packet_ram(&mut self, at: u32, len: usize) -> Result<Vec<u8>> {
        let skip = (at & 3) as usize;
        let mut data = Vec::new();
        for i in 0..(skip + len).div_ceil(4) as u32 {
            match self.card.debug_read(CPU_PKT + (at & !3) + 4 * i) {
                Some(word) => data.extend_from_slice(&word.to_le_bytes()),
                None => bail!("packet RAM does not answer"),
            }
        }
        Ok(data[skip..skip + len].to_vec())
    }

    /// Gives the card a command ring of 2^`log2` places, at `at` in host memory.
    pub fn command_ring(&mut self, at: usize, log2: u32) {
        self.commands = (at, log2, 0);
        self.told = 0;
        self.card.mmio_write(BAR_CONTROL, HOST_CMD_BASE_LO.into(), HOST_BASE + at as u64, 8);
        self.card.mmio_write(BAR_CONTROL, HOST_CMD_LOG2.into(), log2.into(), 4);
    }

    /// Puts a command into the ring; the card hears of it by [`Rig::tell`]. There must be room.
    pub fn command(&mut self, words: &[u32]) {
        let (at, log2, pi) = self.commands;
        let place = at + COMMAND_BYTES * (usize::from(pi) & ((1 << log2) - 1));
        let entry: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut memory = self.memory();
        memory[place..place + COMMAND_BYTES].fill(0);
        memory[place..place + entry.len()].copy_from_slice(&entry);
        drop(memory);
        self.commands.2 = pi.wrapping_add(1);
        self.untold = None;
    }

    /// Has a page evicted, together with those before it that the card has not heard of.
    pub fn evict(&mut self, index: u32) {
        let mut entry = self.untold.unwrap_or_default();
        if evict_add(&mut entry, index) {
            self.commands.2 = self.commands.2.wrapping_sub(1);
        } else {
            entry = evict_command(index);
        }
        self.command(&entry);
        self.untold = Some(entry);
    }

    /// Tells the card how far the ring is filled; first commands are written into it, as the driver does.
    pub fn tell(&mut self) {
        self.untold = None;
        let (at, log2, pi) = self.commands;
        for n in 0..pi.wrapping_sub(self.told).min(CMD_PUSH_MOST) {
            let index = self.told.wrapping_add(n);
            let place = at + COMMAND_BYTES * (usize::from(index) & ((1 << log2) - 1));
            let entry = self.memory()[place..place + COMMAND_BYTES].to_vec();
            self.card.post_write(BAR_CONTROL, HOST_CMD_PUSH.into(), index.into(), 8);
            for (word, bytes) in (0..).zip(entry.as_chunks::<8>().0) {
                let offset = HOST_CMD_PUSH + CMD_PUSH_WORDS + 8 * word;
                self.card.post_write(BAR_CONTROL, offset.into(), u64::from_le_bytes(*bytes), 8);
            }
        }
        self.told = pi;
        self.card.post_write(BAR_CONTROL, HOST_CMD_PI.into(), self.commands.2.into(), 4);
    }

    /// Tells the card of commands, and waits until it has carried them out.
    ///
    /// # Errors
    /// When it does not.
    pub fn carry_out(&mut self) -> Result<()> {
        self.tell();
        for _ in 0..10_000 {
            self.card.run(100);
            if self.card.mmio_read(BAR_CONTROL, HOST_CMD_CI.into(), 4) == u64::from(self.commands.2) {
                self.card.run(1000);
                return Ok(());
            }
        }
        bail!("the card does not take the commands")
    }

    /// Tells the card that virtual pages of an address space are at bus addresses, over a command ring at `ring` in
    /// host memory: (virtual page, bus address). The ring has as many places, of 64 bytes, as the next power of two, and at least 512.
    ///
    /// # Errors
    /// When a page finds no place, or the card does not take the commands.
    pub fn install(&mut self, ring: usize, asid: u32, pages: &[(u64, u64)]) -> Result<()> {
        self.command_ring(ring, (pages.len() + 1).next_power_of_two().max(512).ilog2());
        let (mut used, mut places) = (BTreeSet::new(), Vec::new());
        for &(vpn, bus) in pages {
            let index = xlt_free(asid, vpn, |place| !used.contains(&place));
            let index = index.context("no place in the translation table")?;
            used.insert(index);
            places.push((index, vpn, bus));
        }
        for command in install_commands(asid, &places) {
            self.command(&command);
        }
        self.carry_out()
    }

    /// Hands a command to the DMA engines, of which `last` was the one before. Only registers that differ are written.
    ///
    /// # Errors
    /// When a register is not taken.
    pub fn dma(&mut self, d: Dma, last: Option<Dma>) -> Result<()> {
        let differs = |field: fn(&Dma) -> u64| last.as_ref().is_none_or(|l| field(l) != field(&d));
        if differs(|d| d.local.into()) {
            self.write(CPU_DMA_LOCAL, d.local)?;
        }
        self.write(CPU_DMA_LEN_TAG, d.len | d.tag << 16)?;
        self.write(CPU_DMA_ADDR_LO, d.addr as u32)?;
        if differs(|d| d.addr >> 32) {
            self.write(CPU_DMA_ADDR_HI, (d.addr >> 32) as u32)?;
        }
        let space = d.asid.map_or(0, |asid| 1 << 1 | asid << 16);
        self.write(CPU_DMA_GO, u32::from(d.write) | space)
    }

    /// Waits for the next DMA command to end well; gives its tag.
    ///
    /// # Errors
    /// When it fails, or does not end.
    pub fn dma_done(&mut self) -> Result<u32> {
        for _ in 0..100_000 {
            let v = self.read(CPU_DMA_DONE)?;
            if v >> 31 != 0 {
                ensure!(v >> 16 & 0xff == DMA_OK, "a DMA command ended with status {}", v >> 16 & 0xff);
                return Ok(v & 0xffff);
            }
        }
        bail!("a DMA command does not end")
    }
}
