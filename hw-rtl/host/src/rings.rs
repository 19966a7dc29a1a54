// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's ends of the command ring and of the event ring.

use crate::memory::Memory;
use berth_abi::host::*;
use berth_abi::message::Entry;
use berth_abi::ring::{ENTRY_BYTES, ENTRY_WORDS, EVENT_PHASE};
use berth_abi::wqe::PHASE;
use berth_rtl::{BAR_CONTROL, Card};
use std::collections::VecDeque;

/// Bus address of place `index` of a ring of 2^`log2` places.
fn place(base: u64, log2: u32, index: u16) -> u64 {
    base + u64::from(index & ((1 << log2) - 1)) * u64::from(ENTRY_BYTES)
}

/// Bytes of a ring of 2^`log2` places.
fn bytes(log2: u32) -> usize {
    (ENTRY_BYTES as usize) << log2
}

/// The command ring.
#[derive(Debug)]
pub struct Commands {
    base: u64,
    log2: u32,
    /// Index of the next command that is put into it.
    pub pi: u16,
    /// Index up to which the card has heard of them.
    told: u16,
    /// Index up to which the card is known to have taken them.
    ci: u16,
    waiting: VecDeque<Entry>,
}

impl Commands {
    /// A ring of 2^`log2` places (at most 15) at a bus address.
    #[must_use]
    pub fn new(base: u64, log2: u32) -> Self {
        Self { base, log2, pi: 0, told: 0, ci: 0, waiting: VecDeque::new() }
    }

    /// Tells the card, which has been reset, of the ring, and begins at its first place.
    pub fn attach(&mut self, card: &mut Card, memory: &Memory) {
        memory.poke(self.base, &vec![0; bytes(self.log2)]);
        card.mmio_write(BAR_CONTROL, HOST_CMD_BASE_LO.into(), self.base, 8);
        card.mmio_write(BAR_CONTROL, HOST_CMD_LOG2.into(), self.log2.into(), 4);
        (self.pi, self.told, self.ci) = (0, 0, 0);
    }

    /// Puts a command, whose words behind the given ones are 0, into the next place, which must be free. The card is not
    /// told.
    pub fn write(&mut self, memory: &Memory, words: &[u32]) {
        let mut entry = [0; ENTRY_WORDS];
        entry[..words.len()].copy_from_slice(words);
        memory.poke(place(self.base, self.log2, self.pi), &entry.map(u32::to_le_bytes).concat());
        self.pi = self.pi.wrapping_add(1);
    }

    /// Queues a command for [`Commands::tell`].
    pub fn put(&mut self, entry: Entry) {
        self.waiting.push_back(entry);
    }

    /// Drops queued commands.
    pub fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Whether some commands have not found a place.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Puts queued commands into the ring as far as there is room, and tells the card; the first ones are written into
    /// it as well, as the driver does.
    pub fn tell(&mut self, card: &mut Card, memory: &Memory) {
        while let Some(entry) = self.waiting.pop_front() {
            let full = |ci: u16| self.pi.wrapping_sub(ci) >= 1 << self.log2;
            if full(self.ci) {
                self.ci = card.mmio_read(BAR_CONTROL, HOST_CMD_CI.into(), 4) as u16;
                if full(self.ci) {
                    self.waiting.push_front(entry);
                    break;
                }
            }
            self.write(memory, &entry);
        }
        if self.pi == self.told {
            return;
        }
        for n in 0..self.pi.wrapping_sub(self.told).min(CMD_PUSH_MOST) {
            let index = self.told.wrapping_add(n);
            let words: Entry = memory.words(place(self.base, self.log2, index));
            card.post_write(BAR_CONTROL, HOST_CMD_PUSH.into(), index.into(), 8);
            for (offset, pair) in (HOST_CMD_PUSH + CMD_PUSH_WORDS..).step_by(8).zip(words.as_chunks::<2>().0) {
                card.post_write(BAR_CONTROL, offset.into(), u64::from(pair[0]) | u64::from(pair[1]) << 32, 8);
            }
        }
        self.told = self.pi;
        card.post_write(BAR_CONTROL, HOST_CMD_PI.into(), self.pi.into(), 4);
    }

    /// Tells the card of the commands, and waits until it has carried them out. Panics when it does not.
    pub fn carry_out(&mut self, card: &mut Card, memory: &Memory) {
        self.tell(card, memory);
        for _ in 0..10_000 {
            card.run(100);
            self.ci = card.mmio_read(BAR_CONTROL, HOST_CMD_CI.into(), 4) as u16;
            if self.ci == self.pi {
                card.run(1000);
                return;
            }
        }
        panic!("the card does not take the commands");
    }
}

/// The event ring.
#[derive(Debug)]
pub struct Events {
    base: u64,
    log2: u32,
    /// Index of the next event that is taken.
    pub ci: u16,
}

impl Events {
    /// A ring of 2^`log2` places (at most 15) at a bus address.
    #[must_use]
    pub fn new(base: u64, log2: u32) -> Self {
        Self { base, log2, ci: 0 }
    }

    /// Tells the card, which has been reset, of the ring, and begins at its first place.
    pub fn attach(&mut self, card: &mut Card, memory: &Memory) {
        memory.poke(self.base, &vec![0; bytes(self.log2)]);
        card.mmio_write(BAR_CONTROL, HOST_EVT_BASE_LO.into(), self.base, 8);
        card.mmio_write(BAR_CONTROL, HOST_EVT_LOG2.into(), self.log2.into(), 4);
        self.ci = 0;
    }

    /// The next event, without its phase.
    pub fn take(&mut self, memory: &Memory) -> Option<Entry> {
        let mut words: Entry = memory.words(place(self.base, self.log2, self.ci));
        if (words[EVENT_PHASE] & PHASE != 0) != ((self.ci >> self.log2) & 1 == 0) {
            return None;
        }
        words[EVENT_PHASE] &= !PHASE;
        self.ci = self.ci.wrapping_add(1);
        Some(words)
    }

    /// Gives the places of what was taken back to the card; with `arm` it raises an interrupt at the next event.
    pub fn tell(&self, card: &mut Card, arm: bool) {
        card.post_write(BAR_CONTROL, HOST_EVT_CI.into(), u64::from(self.ci) | u64::from(arm) << 31, 4);
    }
}
