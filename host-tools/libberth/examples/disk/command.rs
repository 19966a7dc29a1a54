// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What client and I/O node say to each other: each message fits an element, so it needs no memory.

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Most blocks of a command.
pub const MOST: u32 = 16;

/// Which way the blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// From the disk into the client's memory.
    Read = 1,
    /// From the client's memory onto the disk.
    Write = 2,
}

/// Moves blocks between the disk and memory of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Comes back with the answer.
    pub tag: u32,
    pub operation: Operation,
    /// First block on the disk, and how many.
    pub first: u32,
    pub blocks: u32,
    /// The client's memory, and a key that opens it for this command alone.
    pub va: u64,
    pub key: u32,
}

impl Command {
    /// Bytes of a command.
    pub const BYTES: usize = 28;

    /// As it is sent: little-endian words.
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let words = [
            self.tag,
            self.operation as u32,
            self.first,
            self.blocks,
            self.va as u32,
            (self.va >> 32) as u32,
            self.key,
        ];
        let mut bytes = [0; Self::BYTES];
        bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
        bytes
    }

    /// What a message says. None if it is no command.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = message.try_into().ok()?;
        let mut words = [0; Self::BYTES / 4];
        words.iter_mut().zip(bytes.as_chunks().0).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
        let [tag, operation, first, blocks, low, high, key] = words;
        let operation = match operation {
            1 => Operation::Read,
            2 => Operation::Write,
            _ => return None,
        };
        Some(Self { tag, operation, first, blocks, va: u64::from(high) << 32 | u64::from(low), key })
    }

    /// Where its blocks lie on a disk of `bytes`, and how long they are. None if they do not.
    pub fn range(&self, bytes: u64) -> Option<(u64, usize)> {
        let (at, len) = (u64::from(self.first) * BLOCK as u64, self.blocks as usize * BLOCK);
        let good = (1..=MOST).contains(&self.blocks) && at + len as u64 <= bytes;
        good.then_some((at, len))
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// The blocks are where they belong.
    Good = 0,
    /// It is no command, or not of blocks that the disk has.
    Bad = 1,
    /// The disk could not read or write them.
    Failed = 2,
}

/// An answer as it is sent.
pub fn answer(tag: u32, outcome: Outcome) -> [u8; 8] {
    (u64::from(outcome as u32) << 32 | u64::from(tag)).to_le_bytes()
}

/// Tag and outcome that a message says. None if it is no answer.
pub fn answered(message: &[u8]) -> Option<(u32, Outcome)> {
    let word = u64::from_le_bytes(message.try_into().ok()?);
    let outcome = match word >> 32 {
        0 => Outcome::Good,
        1 => Outcome::Bad,
        2 => Outcome::Failed,
        _ => return None,
    };
    Some((word as u32, outcome))
}
