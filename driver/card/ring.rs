// SPDX-License-Identifier: GPL-2.0
//! The rings of commands and events.

use crate::{
    abi::{
        host::*,
        ring::{ENTRY_WORDS, *},
        wqe::PHASE,
    },
    card::{
        deadline::{Deadline, COMMAND_CYCLES},
        parts::{CmdRing, EventRing, RING},
        regs::ALL_ONES,
        Card, Entry, State,
    },
};
use kernel::{
    dma::Coherent,
    io::{io_project, io_read, Io},
    prelude::*,
    sync::{
        atomic::Relaxed,
        barrier::{dma_mb, Read},
    },
    time::{delay::fsleep, Delta},
};

/// The entry of the command ring at an index.
fn entry_at(ring: &Coherent<[Entry]>, index: u16) -> Result<Entry> {
    Ok(io_project!(ring, [try: usize::from(index % RING)]).copy_read())
}

pub(super) fn clear_ring(ring: &Coherent<[Entry]>) {
    let clear = || -> Result {
        for i in 0..usize::from(RING) {
            io_project!(ring, [try: i]).copy_write([0u32; ENTRY_WORDS]);
        }
        Ok(())
    };
    let _ = clear();
}

impl CmdRing {
    /// The last command has changed, of which the card has not been told.
    fn rewrite_last(&self) {
        let write = || -> Result {
            if let Some(ring) = &self.ring {
                let index = usize::from(self.pi.wrapping_sub(1) % RING);
                io_project!(ring, [try: index]).copy_write(self.last);
            }
            Ok(())
        };
        let _ = write();
    }
}

impl Card {
    /// Queues commands; they are carried out in order.
    ///
    /// # Errors
    ///
    /// `EBUSY` the ring has no room for all of them (nothing is queued), `ENODEV` the
    /// card is not in service.
    pub(crate) fn post(&self, entries: &[Entry]) -> Result {
        self.put(entries)?;
        self.ring();
        Ok(())
    }

    /// Rings the doorbell for commands that were [`Self::put`]. The first of them are
    /// written into the card before it, so that it need not fetch them.
    pub(crate) fn ring(&self) {
        let mut cmd = self.cmd.lock();
        if cmd.rung == cmd.pi {
            return;
        }
        let CmdRing { ring, pi, rung, .. } = &mut *cmd;
        for n in 0..pi.wrapping_sub(*rung).min(CMD_PUSH_MOST) {
            let index = rung.wrapping_add(n);
            let Some(Ok(entry)) = ring.as_ref().map(|ring| entry_at(ring, index)) else {
                break;
            };
            self.regs.push(index, &entry);
        }
        *rung = *pi;
        // The register write orders the entries before it.
        self.regs.write(HOST_CMD_PI, u32::from(*pi));
    }

    /// Puts commands in the ring, as [`Self::post`] does, without ringing the doorbell:
    /// for many in a row.
    ///
    /// # Errors
    ///
    /// As [`Self::post`].
    pub(crate) fn put(&self, entries: &[Entry]) -> Result {
        self.put_for(None, entries)
    }

    /// As [`Self::put`], but only while the firmware of `generation` runs: answers and commands
    /// meant for one run of firmware must not reach the next.
    pub(super) fn put_for(&self, generation: Option<u32>, entries: &[Entry]) -> Result {
        self.put_in(&mut self.cmd.lock(), generation, entries)
    }

    fn put_in(&self, cmd: &mut CmdRing, generation: Option<u32>, entries: &[Entry]) -> Result {
        // Under the lock: a ring is set up anew only in other states.
        if self.state() != State::Up {
            return Err(ENODEV);
        }
        if generation.is_some_and(|g| g != cmd.generation) {
            return Err(EIO);
        }
        let CmdRing {
            ring, pi, ci, last, ..
        } = cmd;
        let Some(ring) = ring else {
            return Err(ENODEV);
        };
        let free = |pi: u16, ci: u16| usize::from(RING - pi.wrapping_sub(ci).min(RING));
        if free(*pi, *ci) < entries.len() {
            let now = self.regs.read(HOST_CMD_CI);
            if now == ALL_ONES {
                return Err(ENODEV);
            }
            *ci = now as u16;
            if free(*pi, *ci) < entries.len() {
                return Err(EBUSY);
            }
        }
        for entry in entries {
            io_project!(ring, [try: usize::from(*pi % RING)]).copy_write(*entry);
            *pi = pi.wrapping_add(1);
            *last = *entry;
        }
        Ok(())
    }

    /// Asks for the eviction of pages, without ringing the doorbell: together with those before them, if the card has not been
    /// told of them. Gives how many there was room for, which are the first.
    pub(crate) fn put_evicts(&self, places: impl Iterator<Item = u16>) -> usize {
        let mut cmd = self.cmd.lock();
        let (mut asked, mut grown) = (0, false);
        for place in places {
            let place = u32::from(place);
            let is_mine = self.state() == State::Up && cmd.pi != cmd.rung;
            if is_mine && evict_add(&mut cmd.last, place) {
                grown = true;
            } else {
                if core::mem::take(&mut grown) {
                    cmd.rewrite_last();
                }
                if self
                    .put_in(&mut cmd, None, &[evict_command(place)])
                    .is_err()
                {
                    break;
                }
            }
            asked += 1;
        }
        if grown {
            cmd.rewrite_last();
        }
        asked
    }

    /// Number of the firmware's run. An event's request is answered to that run only.
    pub(crate) fn generation(&self) -> u32 {
        self.cmd.lock().generation
    }

    /// Queues a command for the firmware of `generation` and waits for room if there is none. Sleeps, within
    /// bounds.
    pub(crate) fn post_wait(&self, generation: u32, entry: Entry) -> Result {
        self.with_room(|| self.put_for(Some(generation), &[entry]))?;
        self.ring();
        Ok(())
    }

    /// Calls `post`, which queues commands, until the ring has room for them.
    pub(super) fn with_room<T>(&self, mut post: impl FnMut() -> Result<T>) -> Result<T> {
        let mut deadline = None;
        let epoch = self.epoch.load(Relaxed);
        loop {
            if self.epoch.load(Relaxed) != epoch {
                // The card has been reset meanwhile.
                return Err(EIO);
            }
            match post() {
                Err(e) if e == EBUSY => {}
                result => return result,
            }
            let deadline =
                deadline.get_or_insert_with(|| Deadline::new(&self.regs, COMMAND_CYCLES));
            if deadline.passed(&self.regs) {
                return Err(EIO);
            }
            fsleep(Delta::from_millis(1));
        }
    }

    /// Takes the next event, if there is one.
    pub(crate) fn next_event(&self, events: &mut EventRing) -> Option<Entry> {
        let ring = events.ring.as_ref()?;
        let index = usize::from(events.ci % RING);
        let phase = if events.ci & RING == 0 { PHASE } else { 0 };
        let read = || -> Result<Option<Entry>> {
            if io_read!(ring, [try: index][try: EVENT_PHASE]) & PHASE != phase {
                return Ok(None);
            }
            // The card writes the word with the phase last.
            dma_mb(Read);
            let entry: Entry = io_project!(ring, [try: index]).copy_read();
            Ok(Some(entry))
        };
        let mut entry = read().ok()??;
        entry[EVENT_PHASE] &= !PHASE;
        events.ci = events.ci.wrapping_add(1);
        Some(entry)
    }

    /// Gives the events taken back to the card and arms the interrupt; with `lax` not for pages that are released or
    /// evicted.
    pub(crate) fn arm_events(&self, events: &EventRing, lax: bool) {
        let arm = 1 << 31 | u32::from(lax) << 30;
        self.regs.write(HOST_EVT_CI, u32::from(events.ci) | arm);
    }

    /// Gives the rings back. The card must be quiet and the interrupt freed.
    pub(crate) fn free_rings(&self) {
        let cmd = self.cmd.lock().ring.take();
        let events = self.events.lock().ring.take();
        let fence = self.fence.lock().take();
        drop((cmd, events, fence));
    }
}
