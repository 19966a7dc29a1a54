// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A socket of the program's.

use super::shared::{ENTRY, Shared, lock, system};
use crate::header::{Header, OPTIONS, Often, ROOM};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

/// Where an entry says how often its option goes.
const OFTEN: usize = 2;

/// The headers of a socket's segments.
#[derive(Debug)]
pub struct Socket {
    shared: Arc<Mutex<Shared>>,
    cookie: u64,
}

impl Socket {
    /// A socket is the program's as long as this lives.
    pub(super) fn new(shared: Arc<Mutex<Shared>>, cookie: u64) -> io::Result<Self> {
        lock(&shared).add(cookie, true)?;
        let mut this = Self { shared, cookie };
        this.set(&[], Often::Once)?;
        Ok(this)
    }

    /// Writes `struct entry` of `lists.bpf.c`.
    fn write(&mut self, room: usize, option: &[u8], often: u32) -> io::Result<()> {
        if option.len() > ROOM {
            return Err(ErrorKind::InvalidInput.into());
        }
        let mut bytes = [0; OPTIONS];
        bytes[..option.len()].copy_from_slice(option);
        let mut entry = [0; ENTRY];
        let (head, rest) = entry.split_at_mut(OFTEN + 1);
        head.copy_from_slice(&[room as u32, option.len() as u32, often]);
        for (to, word) in rest.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *to = u32::from_ne_bytes(*word);
        }
        lock(&self.shared).entries.insert(self.cookie, entry, 0).map_err(system)
    }
}

impl Header for Socket {
    fn set(&mut self, option: &[u8], often: Often) -> io::Result<()> {
        let often = match often {
            _ if option.is_empty() => 0,
            Often::Once => 1,
            Often::Always => 2,
        };
        self.write(ROOM, option, often)
    }

    fn close(&mut self) -> io::Result<()> {
        self.write(0, &[], 0)
    }

    fn gone(&self) -> io::Result<bool> {
        let entry = lock(&self.shared).entries.get(&self.cookie, 0).map_err(system)?;
        Ok(entry[OFTEN] == 0)
    }

    fn next(&mut self, out: &mut [u8; OPTIONS]) -> Option<usize> {
        let (bytes, len) = lock(&self.shared).next(self.cookie)?;
        *out = bytes;
        Some(len)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        lock(&self.shared).remove(self.cookie);
    }
}
