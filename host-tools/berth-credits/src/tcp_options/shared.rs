// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program shares with this process.

use crate::header::OPTIONS;
use aya::Ebpf;
use aya::maps::{Array, HashMap as BpfMap, MapData, MapError, RingBuf};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Words of `struct entry` in `lists.bpf.c`.
pub(super) const ENTRY: usize = 3 + OPTIONS / 4;
/// Options of a socket that nobody has asked for, at most. Older ones are lost.
const WAITING: usize = 64;
/// An option that came.
type Arrived = ([u8; OPTIONS], usize);

/// What all sockets of a program share.
pub(super) struct Shared {
    pub entries: BpfMap<MapData, u64, [u32; ENTRY]>,
    pub counts: Array<MapData, u64>,
    pub arrivals: RingBuf<MapData>,
    /// Options that came and that nobody has asked for, by the cookies of sockets.
    pub waiting: HashMap<u64, VecDeque<Arrived>>,
    /// Keeps the program attached.
    pub _program: Ebpf,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("sockets", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// A socket is the program's from now on. `keep`: what comes for it is asked for.
    pub fn add(&mut self, cookie: u64, keep: bool) -> io::Result<()> {
        self.entries.insert(cookie, [0; ENTRY], 0).map_err(system)?;
        if keep {
            self.waiting.entry(cookie).or_default();
        }
        Ok(())
    }

    /// A socket is not the program's any more.
    pub fn remove(&mut self, cookie: u64) {
        self.waiting.remove(&cookie);
        // There may be none.
        self.entries.remove(&cookie).ok();
    }

    /// The next option that came for a socket.
    pub fn next(&mut self, cookie: u64) -> Option<Arrived> {
        // `struct arrival` in `lists.bpf.c`.
        while let Some(item) = self.arrivals.next() {
            let Some((to, rest)) = item.split_first_chunk::<8>() else {
                continue;
            };
            let Some((len, rest)) = rest.split_first_chunk::<4>() else {
                continue;
            };
            let (Some(bytes), Some(waiting)) =
                (rest.first_chunk::<OPTIONS>(), self.waiting.get_mut(&u64::from_ne_bytes(*to)))
            else {
                continue;
            };
            if waiting.len() == WAITING {
                waiting.pop_front();
            }
            waiting.push_back((*bytes, (u32::from_ne_bytes(*len) as usize).min(OPTIONS)));
        }
        self.waiting.get_mut(&cookie)?.pop_front()
    }
}

/// What the system said.
pub(super) fn system(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

/// What several sockets use.
pub(super) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Nothing in there is half done when somebody panics.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
