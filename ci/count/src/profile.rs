// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which blocks the instructions are of.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Result, Write as _};

use crate::qemu::{Block, Number, count_block, extent, numbers};

/// Blocks that are told apart; those beyond count as one, at address 0.
const BLOCKS: usize = 1 << 19;

/// A block that is counted.
struct Watched {
    address: u64,
    number: Number,
    /// Instructions up to the mark before.
    before: u64,
}

pub struct Profile {
    out: BufWriter<File>,
    free: Box<dyn Iterator<Item = Number> + Send>,
    /// By address and length: place in `watched`. A block may be translated several times.
    places: HashMap<(u64, usize), usize>,
    watched: Vec<Watched>,
}

impl Profile {
    pub fn new(out: File) -> Self {
        let mut free = numbers(BLOCKS + 1);
        let others = free.next().expect("there are many");
        let watched = vec![Watched { address: 0, number: others, before: 0 }];
        Self { out: BufWriter::new(out), free: Box::new(free), places: HashMap::new(), watched }
    }

    /// Counts a block from now on.
    ///
    /// # Safety
    /// It is being translated.
    pub unsafe fn watch(&mut self, block: *mut Block) {
        // SAFETY: as the caller says.
        let (address, len) = unsafe { extent(block) };
        let place = *self.places.entry((address, len)).or_insert_with(|| match self.free.next() {
            Some(number) => {
                self.watched.push(Watched { address, number, before: 0 });
                self.watched.len() - 1
            }
            None => 0,
        });
        // SAFETY: as above.
        unsafe { count_block(block, self.watched[place].number, len as u64) };
    }

    /// Writes what was executed since the mark before.
    pub fn write(&mut self, mark: usize) -> Result<()> {
        writeln!(self.out, "mark {mark}")?;
        for block in &mut self.watched {
            let now = block.number.sum();
            if now != block.before {
                writeln!(self.out, "{:x} {}", block.address, now - block.before)?;
                block.before = now;
            }
        }
        self.out.flush()
    }
}
