// SPDX-License-Identifier: GPL-2.0
//! Packets, whose bytes are where the card finds them.

use crate::memory::surroundings;
use kernel::prelude::*;
use kernel::world::world;

pub(crate) struct SkBuff {
    pub(super) parts: Vec<Vec<u8>>,
    /// Bytes behind the first part.
    pub(super) room: u32,
}

fn count(n: i32) {
    let packets = &surroundings().packets;
    packets.set(packets.get() + n);
}

impl SkBuff {
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        count(1);
        Self { parts: parts.iter().map(|part| part.to_vec()).collect(), room: 0 }
    }

    pub(super) fn empty(room: u32) -> Self {
        count(1);
        Self { parts: vec![vec![0; room as usize]], room }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.parts.concat();
        bytes.truncate(self.len() as usize);
        bytes
    }

    pub(crate) fn len(&self) -> u32 {
        self.parts.iter().map(|part| part.len() as u32).sum::<u32>() - self.room
    }

    pub(crate) fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    pub(crate) fn linearize(&mut self) -> Result {
        if world().fails(false) {
            return Err(ENOMEM);
        }
        self.parts = vec![self.parts.concat()];
        Ok(())
    }

    pub(crate) fn put(&mut self, bytes: u32) -> Result {
        self.room = self.room.checked_sub(bytes).ok_or(EMSGSIZE)?;
        Ok(())
    }

    pub(crate) fn linear(&self) -> &[u8] {
        let first = &self.parts[0];
        &first[..first.len() - self.room as usize]
    }

    pub(crate) fn note_sent(&self) {}
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            count(-1);
        }
    }
}
