// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the next credit list goes (CR-5 to CR-9), and how much it may grant (CR-10).
//!
//! A policy decides within what CR-11 leaves open: [`crate::credit::announcer::Announcer`] asks it only when
//! the proof has come and there is something new to announce. Whatever the policy, a list is due
//! when the sender has no credit left. Times are of any one unit (card cycles, ns).
//!
//! **Measurement.** The time between two landings while the sender has credits is the time that
//! it takes for a credit; mean and variance of it are kept (weight of a new sample 1/8). The
//! *lead* is the time from the sending of a list to the landing of its first data when the sender
//! was waiting for it. A list has to go one lead before the sender runs dry.

use super::list::Trigger;
use crate::base::bound::{Bound, at_most};
use core::num::NonZeroU64;

/// What the next list waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Data in the first buffer of the last list: fast senders (CR-5).
    First,
    /// Data in the last buffer: slow senders (CR-5).
    Last,
    /// Data in the buffer with this index (CR-5).
    Between(u8),
    /// Data in the buffer that lies this many 256ths into the list (CR-5).
    Share(u8),
    /// Data in the buffer that follows from the measurement: towards the start of the list for a fast sender, towards
    /// the end for a slow one (CR-6).
    Adaptive,
    /// A time, computed from the measurement (CR-7).
    Timed,
    /// The time for which a predictive filter expects the sender to run dry, less the lead (CR-8).
    Predictive,
    /// The ladder of the settings, switched by the bytes that the sender still has to send (CR-9): the default.
    #[default]
    InBand,
}

/// Rungs of the ladder of [`Kind::InBand`].
pub const RUNGS: usize = 5;

/// How a policy works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// What the next list waits for.
    pub kind: Kind,
    /// The lead as long as it is not measured.
    pub lead: u32,
    /// Credits by which a list goes earlier than the measurement says.
    pub margin: u8,
    /// Policies to switch between, from the slowest to the fastest (CR-9). An `InBand` here counts as `First`.
    pub ladder: [Kind; RUNGS],
    /// Rung to begin with.
    pub rung: u8,
    /// Lists come too slow when the credits left last less than this, in 16ths of the lead.
    pub low: u16,
    /// Lists come too fast when the credits left last more than this, in 16ths of the lead.
    pub high: u16,
    /// No switch while the variance is above this, in 256ths of the mean's square.
    pub variance: u16,
    /// Lists in a row that must agree before a switch.
    pub agree: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Settings {
    /// The settings that the simulation found best over fast, slow, bursty and changing senders
    /// (docs/results/simulation.md).
    pub const DEFAULT: Self = Self::of(Kind::InBand);

    /// Default values for `kind`.
    pub const fn of(kind: Kind) -> Self {
        Self {
            kind,
            lead: 5_000,
            margin: 1,
            ladder: [Kind::Last, Kind::Share(192), Kind::Share(128), Kind::Share(64), Kind::First],
            rung: 2,
            low: 16,
            high: 64,
            variance: 256,
            agree: 2,
        }
    }
}

/// Samples before a measurement counts.
const ENOUGH: u8 = 2;

/// Decides when the next list goes. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    settings: Settings,
    rung: u8,
    /// Lists in a row that were too slow (positive) or too fast (negative).
    streak: i8,
    /// Time of the last landing, if the sender had credits left after it.
    last_at: Option<u64>,
    /// Time per credit in 16ths, its variance, and how many samples (saturating).
    mean: u64,
    variance: u64,
    samples: u8,
    lead: u64,
    /// Time at which a list was sent to a sender without credits, until data lands.
    sent_at: Option<u64>,
    /// The sender ran out of credits and had more to send, since the last list.
    dry: bool,
    /// Bytes still to be sent, as last said.
    remaining: Option<u32>,
    /// The next list is due (timed, predictive). `None`: at once; `u64::MAX`: when the sender has no credits.
    due_at: Option<u64>,
    filter: Predictor,
}

impl Policy {
    /// A policy without measurement.
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            rung: if (settings.rung as usize) < RUNGS { settings.rung } else { RUNGS as u8 - 1 },
            streak: 0,
            last_at: None,
            mean: 0,
            variance: 0,
            samples: 0,
            lead: settings.lead as u64,
            sent_at: None,
            dry: false,
            remaining: None,
            due_at: None,
            filter: Predictor::new(),
        }
    }

    /// What the next list waits for now.
    pub fn kind(&self) -> Kind {
        match self.settings.kind {
            Kind::InBand => match self.settings.ladder.get(self.rung as usize) {
                Some(Kind::InBand) | None => Kind::First,
                Some(kind) => *kind,
            },
            kind => kind,
        }
    }

    /// Time per credit; `None` when it is not measured yet.
    pub const fn mean(&self) -> Option<u64> {
        if self.samples < ENOUGH { None } else { Some(self.mean >> 4) }
    }

    /// Variance of the time per credit.
    pub const fn variance(&self) -> u64 {
        self.variance
    }

    /// Time from the sending of a list to the first data for it.
    pub const fn lead(&self) -> u64 {
        self.lead
    }

    /// Bytes still to be sent, as the sender last said (CR-9).
    pub const fn bytes_remaining(&self) -> Option<u32> {
        self.remaining
    }

    /// The kind needs no measurement: nothing is kept, so that states stay few for a model checker.
    const fn blind(&self) -> bool {
        matches!(self.settings.kind, Kind::First | Kind::Last | Kind::Between(_) | Kind::Share(_))
    }

    /// The trigger of a list that has gone may change while its data comes.
    pub const fn moves(&self) -> bool {
        !self.blind()
    }

    /// Trigger buffer of a list of `len` credits. For the timed policies the first: the proof of CR-11.
    pub fn trigger(&self, len: u32) -> Trigger {
        match self.kind() {
            Kind::First | Kind::Timed | Kind::Predictive | Kind::InBand => Trigger::First,
            Kind::Last => Trigger::Last,
            Kind::Between(index) => Trigger::Between(index),
            Kind::Share(share) => Trigger::Between((len.saturating_mul(share as u32) >> 8).min(255) as u8),
            Kind::Adaptive => match self.mean() {
                // The credits behind the trigger buffer must last for the lead.
                Some(mean) => {
                    let needed = self.lead.saturating_add(mean.saturating_sub(1))
                        / NonZeroU64::new(mean).unwrap_or(NonZeroU64::MIN);
                    let behind = needed.saturating_add(self.settings.margin as u64);
                    Trigger::Between((len.saturating_sub(1) as u64).saturating_sub(behind).min(255) as u8)
                }
                None => Trigger::First,
            },
        }
    }

    /// The policy lets a list go at `now`; the sender has `outstanding` credits.
    pub fn due(&self, now: u64, outstanding: u32) -> bool {
        self.deadline(outstanding).is_some_and(|at| now >= at)
    }

    /// Time from which on the policy lets a list go, 0 if nothing is waited for; `None`: not
    /// before something lands.
    pub fn deadline(&self, outstanding: u32) -> Option<u64> {
        match self.kind() {
            Kind::Timed | Kind::Predictive if outstanding != 0 => {
                Some(self.due_at.unwrap_or(0)).filter(|at| *at != u64::MAX)
            }
            _ => Some(0),
        }
    }

    /// Data has landed for a credit; `outstanding` credits of `bytes` bytes are left.
    pub fn landed(&mut self, now: u64, outstanding: u32, bytes: u64, remaining: Option<u32>) {
        if self.blind() {
            return;
        }
        if let Some(sent) = self.sent_at.take() {
            let sample = now.saturating_sub(sent);
            match self.remaining {
                // The sender was waiting.
                Some(1..) => self.lead = (3 * self.lead + sample.min(u64::MAX >> 3)) / 4,
                // Perhaps it had nothing to send.
                _ => self.lead = self.lead.min(sample),
            }
        } else if let Some(last) = self.last_at {
            self.measure(now.saturating_sub(last));
        }
        if remaining.is_some() {
            self.remaining = remaining;
        }
        self.last_at = (outstanding != 0).then_some(now);
        self.dry |= outstanding == 0 && self.remaining != Some(0);
        self.plan(now, outstanding, bytes);
    }

    /// The sender says that it has `remaining` bytes still to be sent; credits of `bytes` bytes are out.
    pub fn remaining(&mut self, remaining: u32, bytes: u64) {
        if self.blind() {
            return;
        }
        self.remaining = Some(remaining);
        // It has more to send again than its credits cover, so a postponed list is due.
        if self.due_at == Some(u64::MAX) && !self.covered(bytes) {
            self.due_at = None;
        }
    }

    fn measure(&mut self, interval: u64) {
        let interval = interval.min(u32::MAX as u64);
        if self.samples == 0 {
            self.mean = interval << 4;
        } else {
            let diff = interval.abs_diff(self.mean >> 4);
            self.mean = self.mean - self.mean / 8 + (interval << 4) / 8;
            self.variance = self.variance - self.variance / 8 + diff.saturating_mul(diff) / 8;
        }
        self.samples = self.samples.saturating_add(1);
        self.filter.learn(interval);
    }

    /// A list of `len` credits is sent; `outstanding` credits of `bytes` bytes are out, with it.
    pub fn sent(&mut self, now: u64, len: u32, outstanding: u32, bytes: u64) {
        if self.blind() {
            return;
        }
        let left = outstanding.saturating_sub(len);
        self.switch(left, bytes);
        self.dry = false;
        self.sent_at = (left == 0).then_some(now);
        self.plan(now, outstanding, bytes);
    }

    /// The bytes that are still to be sent fit the credits that are out.
    fn covered(&self, bytes: u64) -> bool {
        self.remaining.is_some_and(|remaining| remaining as u64 <= bytes)
    }

    /// Looks whether lists come too fast or too slow; `left`: credits that the sender had when
    /// this one was sent (CR-9).
    fn switch(&mut self, left: u32, bytes: u64) {
        if self.settings.kind != Kind::InBand {
            return;
        }
        let Some(mean) = self.mean() else {
            return;
        };
        let bound = (mean as u128 * mean as u128 * self.settings.variance as u128) >> 8;
        if self.variance as u128 > bound {
            self.streak = 0;
            return;
        }
        let lasts = (left as u64).saturating_mul(mean).saturating_mul(16);
        let slow = self.dry || (!self.covered(bytes) && lasts < self.lead.saturating_mul(self.settings.low as u64));
        let fast = self.covered(bytes) || lasts > self.lead.saturating_mul(self.settings.high as u64);
        self.streak = match (slow, fast) {
            (true, _) => self.streak.max(0).saturating_add(1),
            (false, true) => self.streak.min(0).saturating_sub(1),
            (false, false) => 0,
        };
        if self.streak.unsigned_abs() >= self.settings.agree.max(1) {
            self.rung = match self.streak > 0 {
                true => (self.rung + 1).min(RUNGS as u8 - 1),
                false => self.rung.saturating_sub(1),
            };
            self.streak = 0;
        }
    }

    /// Computes when the next list is due.
    fn plan(&mut self, now: u64, outstanding: u32, bytes: u64) {
        let lasts = match self.kind() {
            Kind::Timed => self.mean().map(|mean| mean.saturating_mul(outstanding as u64)),
            Kind::Predictive if self.covered(bytes) => Some(u64::MAX),
            Kind::Predictive => self.filter.predict(outstanding),
            _ => return,
        };
        let early = self.lead.saturating_add(self.mean().unwrap_or(0).saturating_mul(self.settings.margin as u64));
        self.due_at = lasts.map(|lasts| match lasts {
            u64::MAX => u64::MAX,
            _ => now.saturating_add(lasts.saturating_sub(early)),
        });
    }

    /// Credits were taken back, so values computed from them are void.
    pub fn voided(&mut self) {
        (self.sent_at, self.last_at, self.due_at, self.dry) = (None, None, None, false);
    }
}

/// Intervals that the filter looks back at.
const TAPS: usize = 4;
/// Bits behind the point of its weights.
const POINT: u32 = 14;
/// Largest scaled interval.
const LARGEST: u64 = 1 << 20;

/// Adaptive linear predictor (normalised least mean squares, step 1/4) of the time that the
/// sender takes for its next credits (CR-8), in fixed point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Predictor {
    /// Last intervals, newest first, without their `scale` lowest bits.
    history: [u32; TAPS],
    weights: [i32; TAPS],
    scale: u8,
    filled: u8,
}

impl Default for Predictor {
    fn default() -> Self {
        Self::new()
    }
}

impl Predictor {
    /// A filter that begins as the mean of the last intervals.
    pub const fn new() -> Self {
        Self { history: [0; TAPS], weights: [(1 << POINT) / TAPS as i32; TAPS], scale: 0, filled: 0 }
    }

    fn output(&self, history: &[u32; TAPS]) -> u64 {
        let sum: i64 = self.weights.iter().zip(history).map(|(w, h)| *w as i64 * *h as i64).sum();
        ((sum >> POINT).max(0) as u64).min(4 * LARGEST)
    }

    /// Learns that the sender took `interval` for a credit.
    pub fn learn(&mut self, interval: u64) {
        let interval = interval.min(u32::MAX as u64);
        let mut bound = Bound::new(64);
        while interval >> self.scale >= LARGEST {
            bound.step();
            self.scale += 1;
            self.history.iter_mut().for_each(|h| *h >>= 1);
        }
        // Short intervals keep their bits.
        while self.scale > 0
            && interval >> self.scale < LARGEST >> 10
            && self.history.iter().all(|h| (*h as u64) < LARGEST >> 10)
        {
            bound.step();
            self.scale -= 1;
            self.history.iter_mut().for_each(|h| *h <<= 1);
        }
        let seen = interval >> self.scale;
        if self.filled as usize >= TAPS {
            let error = seen as i64 - self.output(&self.history) as i64;
            let power: u64 = self.history.iter().map(|h| *h as u64 * *h as u64).sum();
            let norm = NonZeroU64::MIN.saturating_add(power);
            for (weight, h) in at_most(TAPS, self.weights.iter_mut().zip(&self.history)) {
                let step = ((error.unsigned_abs() * *h as u64) << (POINT - 2)) / norm;
                let step = step.min(1 << POINT) as i32;
                let next = if error < 0 { *weight - step } else { *weight + step };
                *weight = next.clamp(-(2 << POINT), 2 << POINT);
            }
        }
        self.filled = self.filled.saturating_add(1);
        self.history.rotate_right(1);
        self.history[0] = seen as u32;
    }

    /// Time that the sender will take for its next `credits` (at most 255 of them are looked at); `None` before
    /// enough is known.
    pub fn predict(&self, credits: u32) -> Option<u64> {
        if (self.filled as usize) < TAPS {
            return None;
        }
        let mut history = self.history;
        let mut sum = 0u64;
        for _ in at_most(255, 0..credits.min(255)) {
            let next = self.output(&history).min(LARGEST);
            sum += next;
            history.rotate_right(1);
            history[0] = next as u32;
        }
        Some(sum << self.scale)
    }
}

/// Bits behind the point of a [`Cap`]'s rate: bytes per 2^32 units of time.
const RATE_POINT: u32 = 32;

/// A maximum bandwidth of one sender, kept by withholding credits (CR-10): in any time *t* there
/// land at most *burst* + *rate* × *t* bytes, but for a single credit that is larger than the burst,
/// which goes alone, when the whole burst is saved, and is paid for afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cap {
    /// Bytes per 2^32 units of time.
    rate: u64,
    burst: u32,
    /// What the sender may have landed at once at time `at`, announced or not; bytes × 2^32.
    level: i128,
    at: u64,
}

impl Cap {
    /// At most `bytes_per_second`, and `burst` bytes at once; `units_per_second` says what a unit of time is.
    pub const fn new(bytes_per_second: u64, units_per_second: u64, burst: u32) -> Self {
        let units = if units_per_second == 0 { 1 } else { units_per_second };
        let rate = ((bytes_per_second as u128) << RATE_POINT) / units as u128;
        let rate = if rate > u64::MAX as u128 { u64::MAX } else { rate as u64 };
        Self { rate, burst, level: (burst as i128) << RATE_POINT, at: 0 }
    }

    /// Bytes per second that `clients` senders with a cap of `bytes_per_second` each can bring at
    /// most: a server's load is planned with it.
    pub const fn planned_load(clients: u32, bytes_per_second: u64) -> u64 {
        bytes_per_second.saturating_mul(clients as u64)
    }

    /// The connection begins, with the whole burst saved.
    pub fn start(&mut self, now: u64) {
        (self.level, self.at) = (self.full(), now);
    }

    const fn full(&self) -> i128 {
        (self.burst as i128) << RATE_POINT
    }

    fn level_at(&self, now: u64) -> i128 {
        let earned = self.rate as u128 * now.saturating_sub(self.at) as u128;
        self.level.saturating_add(earned.min(i128::MAX as u128) as i128).min(self.full())
    }

    /// Data has landed for a credit of `size` bytes.
    pub fn landed(&mut self, now: u64, size: u32) {
        (self.level, self.at) = (self.level_at(now) - ((size as i128) << RATE_POINT), self.at.max(now));
    }

    /// `bytes` of a credit turned out not to be used.
    pub fn refund(&mut self, now: u64, bytes: u32) {
        let level = self.level_at(now) + ((bytes as i128) << RATE_POINT);
        (self.level, self.at) = (level.min(self.full()), self.at.max(now));
    }

    /// Bytes that may be announced at `now` when `outstanding` bytes are announced and not landed.
    pub fn free(&self, now: u64, outstanding: u64) -> i64 {
        let free = (self.level_at(now) >> RATE_POINT) - outstanding as i128;
        free.clamp(i64::MIN as i128, i64::MAX as i128) as i64
    }

    /// The whole burst is saved.
    pub fn is_full(&self, now: u64) -> bool {
        self.level_at(now) >= self.full()
    }

    /// Time from which on a credit of `size` bytes may be announced; 0 if now; `None`: not before something lands.
    pub fn when(&self, now: u64, size: u32, outstanding: u64) -> Option<u64> {
        let needed = match outstanding {
            0 => size.min(self.burst) as i128,
            _ => size as i128 + outstanding as i128,
        } << RATE_POINT;
        if self.level_at(now) >= needed {
            return Some(0);
        }
        if needed > self.full() {
            return None;
        }
        let rate = NonZeroU64::new(self.rate)?;
        let missing = needed.saturating_sub(self.level).max(0) as u128;
        let wait = divide(missing, rate);
        Some(self.at.saturating_add(wait))
    }
}

/// `a / b` rounded up, saturating.
fn divide(a: u128, b: NonZeroU64) -> u64 {
    let b = b.get() as u128;
    let quotient = a.checked_div(b).unwrap_or(u128::MAX).saturating_add((a.checked_rem(b) != Some(0)) as u128);
    u64::try_from(quotient).unwrap_or(u64::MAX)
}
