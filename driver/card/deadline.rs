// SPDX-License-Identifier: GPL-2.0
//! Limits of time, in cycles of the card.

use crate::card::regs::Regs;
use kernel::time::{Instant, Monotonic};

/// Card cycles within which a firmware command ends (1 s).
pub(super) const COMMAND_CYCLES: u64 = 250_000_000;
/// Card cycles within which a fence ends (100 ms).
pub(crate) const FENCE_CYCLES: u64 = 25_000_000;
/// Card cycles within which firmware starts (1 s).
pub(super) const BOOT_CYCLES: u64 = 250_000_000;
/// Wall-clock time after which a card whose clock stands still counts as lost. This is
/// no measure of speed: a slow card counts cycles, only a dead one does not.
pub(super) const STANDSTILL_MS: i64 = 30_000;

/// A deadline in card cycles, with the escape that a clock which stands still (or reads
/// all-ones) ends it too.
pub(crate) struct Deadline {
    pub(super) end: Option<u64>,
    pub(super) limit: u64,
    pub(super) seen: u64,
    pub(super) moved: Instant<Monotonic>,
}

impl Deadline {
    /// `limit` cycles from now.
    pub(crate) fn new(regs: &Regs, limit: u64) -> Self {
        let now = regs.cycles();
        Self {
            end: now.map(|n| n.saturating_add(limit)),
            limit,
            seen: now.unwrap_or(0),
            moved: Instant::now(),
        }
    }

    /// Whether it has passed.
    pub(crate) fn passed(&mut self, regs: &Regs) -> bool {
        let (Some(now), Some(end)) = (regs.cycles(), self.end) else {
            return true;
        };
        if now < self.seen {
            // The card was reset meanwhile: its clock began anew.
            self.end = Some(now.saturating_add(self.limit));
        }
        if now != self.seen {
            self.seen = now;
            self.moved = Instant::now();
        }
        now > end || self.moved.elapsed().as_millis() > STANDSTILL_MS
    }
}
