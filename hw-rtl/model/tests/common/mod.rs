// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the engine benches share: a card whose core stays in reset, driven through the
//! debug port, with a flat host memory.

// not every bench uses everything
#![allow(dead_code)]

use berth_abi::cpu::*;
use berth_rtl::{BAR_CONTROL, Card, CardConfig, HostError, HostMemory};
use std::sync::{Arc, Mutex};

pub use berth_rtl_host::{Rng, seed};

/// Bus address of the host memory's first byte.
pub const HOST_BASE: u64 = 0x1_2340_0000;

/// A flat piece of host memory.
pub struct Flat(pub Arc<Mutex<Vec<u8>>>);

impl HostMemory for Flat {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), HostError> {
        let memory = self.0.lock().expect("no panic while locked");
        let at = addr.checked_sub(HOST_BASE).ok_or(HostError)? as usize;
        buf.copy_from_slice(memory.get(at..at + buf.len()).ok_or(HostError)?);
        Ok(())
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Result<(), HostError> {
        let mut memory = self.0.lock().expect("no panic while locked");
        let at = addr.checked_sub(HOST_BASE).ok_or(HostError)? as usize;
        memory.get_mut(at..at + data.len()).ok_or(HostError)?.copy_from_slice(data);
        Ok(())
    }

    fn msix(&mut self, _vector: u32) {}
}

/// A card without firmware on the bench.
pub struct Bench {
    pub card: Card,
    pub memory: Arc<Mutex<Vec<u8>>>,
    pub rng: Rng,
}

impl Bench {
    /// A card whose slot answers in the default way.
    pub fn new(seed: u64) -> Self {
        Self::with(CardConfig { seed, ..CardConfig::default() })
    }

    /// A card in a given slot.
    pub fn with(config: CardConfig) -> Self {
        let memory = Arc::new(Mutex::new(vec![0; 1 << 20]));
        let rng = Rng(config.seed);
        let card = Card::new(config, Box::new(Flat(memory.clone())));
        Self { card, memory, rng }
    }

    /// Reads a word on the core's bus.
    pub fn read(&mut self, addr: u32) -> u32 {
        self.card.debug_read(addr).unwrap_or_else(|| panic!("no answer at {addr:#x}"))
    }

    /// Writes a word on the core's bus.
    pub fn write(&mut self, addr: u32, data: u32) {
        assert!(self.card.debug_write(addr, data), "write not taken at {addr:#x}");
    }

    /// Reads an engine register.
    pub fn reg(&mut self, offset: u32) -> u32 {
        self.read(CPU_REGS + offset)
    }

    /// Writes an engine register.
    pub fn set(&mut self, offset: u32, data: u32) {
        self.write(CPU_REGS + offset, data);
    }

    /// An RTL counter.
    pub fn counter(&mut self, index: u32) -> u64 {
        self.card.mmio_read(BAR_CONTROL, u64::from(berth_abi::host::HOST_COUNTERS + 8 * index), 8)
    }

    /// Writes bytes to packet RAM, from a multiple of 4 on; the last word is filled with zeros.
    pub fn put_packet(&mut self, offset: u32, data: &[u8]) {
        for (i, chunk) in data.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write(CPU_PKT + offset + 4 * i as u32, u32::from_le_bytes(word));
        }
    }

    /// Reads bytes from packet RAM, from a multiple of 4 on.
    pub fn get_packet(&mut self, offset: u32, len: usize) -> Vec<u8> {
        let mut data = Vec::new();
        for i in 0..len.div_ceil(4) {
            data.extend_from_slice(&self.read(CPU_PKT + offset + 4 * i as u32).to_le_bytes());
        }
        data.truncate(len);
        data
    }

    /// Waits until a pending bit is set.
    pub fn wait(&mut self, bit: u32) {
        for _ in 0..100_000 {
            if self.reg(CPU_PENDING) & 1 << bit != 0 {
                return;
            }
        }
        panic!("pending bit {bit} does not come");
    }
}
