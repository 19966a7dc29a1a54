// SPDX-License-Identifier: GPL-2.0
//! What pinning and copying have cost on this host (VC-10).
//!
//! The rule is that of the protocol model (`Costs` in `firmware/protocol/src/memory/blocks.rs`), which the driver's tests
//! compare it with.

/// Usual time in nanoseconds of pinning what a page request asks for.
const USUAL_PIN: u32 = 1000;
/// Usual time in nanoseconds of copying 1 KiB.
const USUAL_COPY: u32 = 100;

/// Moving averages in nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Costs {
    /// Of pinning for one request.
    pin: u32,
    /// Of copying 1 KiB, at least 1.
    copy: u32,
}

impl Costs {
    /// Nothing was measured yet.
    pub(crate) const fn new() -> Self {
        Self {
            pin: USUAL_PIN,
            copy: USUAL_COPY,
        }
    }

    /// What a request asked for was pinned in `time` ns. The other cost, not measured meanwhile, drifts back to its usual
    /// value, so that a bad moment is forgotten.
    pub(crate) fn pinned(&mut self, time: u32) {
        self.pin = towards(self.pin, time, 3);
        self.copy = towards(self.copy, USUAL_COPY, 6).max(1);
    }

    /// `bytes`, at least 1, were copied in `time` ns.
    pub(crate) fn copied(&mut self, bytes: u32, time: u32) {
        let kib = u64::from(time) * 1024 / u64::from(bytes.max(1));
        self.copy = towards(self.copy, kib.min(u64::from(u32::MAX)) as u32, 3).max(1);
        self.pin = towards(self.pin, USUAL_PIN, 6);
    }

    /// Sends of up to so many bytes are cheaper by copy.
    pub(crate) fn threshold(&self) -> u32 {
        self.threshold_of(1, 1)
    }

    /// The same, if the card had to ask for the memory of `asked` of the last `sends` sends that were pinned, at least 1:
    /// that of the others was still there.
    pub(crate) fn threshold_of(&self, asked: u32, sends: u32) -> u32 {
        let pin = u64::from(self.pin) * u64::from(asked.min(sends)) / u64::from(sends.max(1));
        let bytes = pin * 1024 / u64::from(self.copy.max(1));
        bytes.min(u64::from(u32::MAX)) as u32
    }
}

/// `value` moved by 1/2^`shift` of the way to `goal`, by at least 1.
fn towards(value: u32, goal: u32, shift: u32) -> u32 {
    let step = (value.abs_diff(goal) >> shift).max(u32::from(value != goal));
    if value < goal {
        value.saturating_add(step)
    } else {
        value.saturating_sub(step)
    }
}

/// A time in nanoseconds as a cost.
pub(super) fn as_cost(ns: i64) -> u32 {
    ns.clamp(0, u32::MAX.into()) as u32
}
