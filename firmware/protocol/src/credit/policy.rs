// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When the next credit list goes (CR-5 to CR-9), and how much it may grant (CR-10).
//!
//! A policy decides within what CR-11 leaves open: [`crate::credit::announcer::Announcer`] asks it only when
//! the proof has come and there is something new to announce. Whatever the policy, a list is due
//! when the sender has no credit left. Times are of any one unit (card cycles, ns).
//!
//! **Measurement.** [`Meter`] notes each landing, and says once a list, when its proof comes, how the credits before it
//! were used ([`Use`]). [`Policy`] learns from these reports alone, so it has no work for a packet. The time between two
//! landings while the sender has credits is the time that it takes for a credit. Its mean in each report is a sample; mean
//! and variance of the samples are kept (weight of a new one 1/8), and the longest time. The *lead* is the time from the
//! sending of a list to the landing of its first data when the sender was waiting for it. A list has to go one lead before
//! the sender runs dry.

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
    /// Data in the buffer that lies this many quarters (0 to 3) into the list (CR-5).
    Quarters(u8),
    /// Data in the buffer that this many others of the list follow (CR-5).
    Behind(u8),
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
            ladder: [Kind::Last, Kind::Quarters(3), Kind::Quarters(2), Kind::Quarters(1), Kind::First],
            rung: 2,
            low: 16,
            high: 64,
            variance: 256,
            agree: 2,
        }
    }
}

/// How a sender used its credits from the proof of one list to that of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Use {
    /// Times between two landings after the first of which the sender had credits: how many, and their sum.
    pub gaps: u32,
    /// See `gaps`.
    pub time: u64,
    /// The longest of them.
    pub longest: u64,
    /// Time from the list to its first data, if it went to a sender without credits.
    pub lead: Option<u64>,
    /// Credits that the sender had when the list went.
    pub left: u32,
    /// Credits that it has now.
    pub outstanding: u32,
    /// All that it still has to send, as it last said (CR-9), fits them.
    pub covered: bool,
    /// It said before the list's first data that it had more to send.
    pub waited: bool,
    /// It ran out of credits and had more to send.
    pub dry: bool,
}

/// Notes what a [`Use`] says, landing by landing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meter {
    /// Time of the last landing, if the sender had credits left after it.
    last_at: Option<u64>,
    /// Time at which a list was sent to a sender without credits, until data lands.
    sent_at: Option<u64>,
    left: u32,
    gaps: u32,
    time: u64,
    longest: u64,
    dry: bool,
    remaining: Option<u32>,
}

impl Meter {
    /// Nothing is noted.
    pub const fn new() -> Self {
        Self { last_at: None, sent_at: None, left: 0, gaps: 0, time: 0, longest: 0, dry: false, remaining: None }
    }

    /// A list is sent to a sender that has `left` credits.
    pub fn sent(&mut self, now: u64, left: u32) {
        self.left = left;
        self.sent_at = (left == 0).then_some(now);
    }

    /// Data has landed for a credit; `outstanding` credits of `bytes` bytes are left. The report, if the landing is the
    /// proof of a list.
    pub fn landed(
        &mut self,
        now: u64,
        proof: bool,
        outstanding: u32,
        bytes: u64,
        remaining: Option<u32>,
    ) -> Option<Use> {
        let waited = self.remaining.is_some_and(|remaining| remaining != 0);
        let lead = self.sent_at.take().map(|sent| now.saturating_sub(sent));
        if lead.is_none()
            && let Some(last) = self.last_at
        {
            let gap = now.saturating_sub(last);
            self.gaps = self.gaps.saturating_add(1);
            self.time = self.time.saturating_add(gap);
            self.longest = self.longest.max(gap);
        }
        self.remaining = remaining.or(self.remaining);
        self.last_at = (outstanding != 0).then_some(now);
        let dry = outstanding == 0 && self.remaining != Some(0);
        if !proof {
            self.dry |= dry;
            return None;
        }
        let report = Use {
            gaps: self.gaps,
            time: self.time,
            longest: self.longest,
            lead,
            left: self.left,
            outstanding,
            covered: self.remaining.is_some_and(|remaining| remaining as u64 <= bytes),
            waited,
            dry: self.dry,
        };
        (self.gaps, self.time, self.longest, self.dry) = (0, 0, 0, dry);
        Some(report)
    }

    /// The sender says that it has `remaining` bytes still to be sent.
    pub fn remaining(&mut self, remaining: u32) {
        self.remaining = Some(remaining);
    }

    /// Bytes still to be sent, as the sender last said (CR-9).
    pub const fn bytes_remaining(&self) -> Option<u32> {
        self.remaining
    }

    /// Credits were taken back, so what is noted of them is void.
    pub fn voided(&mut self) {
        *self = Self { remaining: self.remaining, ..Self::new() };
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
    /// Time per credit in 16ths, its variance, and how many samples (saturating).
    mean: u64,
    variance: u64,
    samples: u8,
    /// The longest time for a credit; one eighth less with each report.
    longest: u64,
    lead: u64,
    /// The next list is due (timed, predictive). `None`: at once; `u64::MAX`: when the sender has no credits.
    due_at: Option<u64>,
    filter: Predictor,
}

impl Policy {
    /// The place of a policy that is none: all zero.
    pub(crate) const NONE: Self = Self {
        settings: Settings {
            kind: Kind::First,
            lead: 0,
            margin: 0,
            ladder: [Kind::First; RUNGS],
            rung: 0,
            low: 0,
            high: 0,
            variance: 0,
            agree: 0,
        },
        rung: 0,
        streak: 0,
        mean: 0,
        variance: 0,
        samples: 0,
        longest: 0,
        lead: 0,
        due_at: None,
        filter: Predictor { history: [0; TAPS], weights: [0; TAPS], scale: 0, filled: 0 },
    };

    /// A policy without measurement.
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            rung: if (settings.rung as usize) < RUNGS { settings.rung } else { RUNGS as u8 - 1 },
            streak: 0,
            mean: 0,
            variance: 0,
            samples: 0,
            longest: 0,
            lead: settings.lead as u64,
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

    /// The kind needs reports. The others ask for none, so that states stay few for a model checker.
    pub const fn measures(&self) -> bool {
        !matches!(self.settings.kind, Kind::First | Kind::Last | Kind::Between(_) | Kind::Quarters(_) | Kind::Behind(_))
    }

    /// Trigger of the next list. For the timed policies the first buffer: the proof of CR-11.
    pub fn trigger(&self) -> Trigger {
        match self.kind() {
            Kind::First | Kind::Timed | Kind::Predictive | Kind::InBand => Trigger::First,
            Kind::Last => Trigger::Last,
            Kind::Between(index) => Trigger::Between(index),
            Kind::Quarters(quarters) => Trigger::Quarters(quarters),
            Kind::Behind(behind) => Trigger::Behind(behind),
            Kind::Adaptive => match self.mean() {
                // The credits behind the trigger buffer must last for the lead.
                Some(mean) => {
                    let needed = self.lead.saturating_add(mean.saturating_sub(1))
                        / NonZeroU64::new(mean).unwrap_or(NonZeroU64::MIN);
                    Trigger::Behind(needed.saturating_add(self.settings.margin as u64).min(u8::MAX as u64) as u8)
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

    /// The proof of a list has come at `now`: [`Self::trigger`] and [`Self::deadline`] may be others.
    pub fn learn(&mut self, now: u64, report: &Use) {
        if !self.measures() {
            return;
        }
        if let Some(lead) = report.lead {
            self.lead = match report.waited {
                true => (3 * self.lead + lead.min(u64::MAX >> 3)) / 4,
                // Perhaps it had nothing to send.
                false => self.lead.min(lead),
            };
        }
        self.measure(report);
        self.switch(report);
        self.plan(now, report);
    }

    /// The sender says that it has `remaining` bytes still to be sent; credits of `bytes` bytes are out.
    pub fn remaining(&mut self, remaining: u32, bytes: u64) {
        // It has more to send again than its credits cover, so a postponed list is due.
        if self.due_at == Some(u64::MAX) && remaining as u64 > bytes {
            self.due_at = None;
        }
    }

    fn measure(&mut self, report: &Use) {
        let Some(gaps) = NonZeroU64::new(report.gaps as u64) else {
            return;
        };
        let gap = (report.time / gaps).min(u32::MAX as u64);
        let longest = report.longest.min(u32::MAX as u64);
        // A burst is seen within a report, too: as if all but its longest time were the same.
        let within = longest.abs_diff(gap);
        let within = within * within / gaps;
        if self.samples == 0 {
            (self.mean, self.variance, self.longest) = (gap << 4, within, longest);
        } else {
            let diff = gap.abs_diff(self.mean >> 4);
            self.mean = self.mean - self.mean / 8 + (gap << 4) / 8;
            self.variance = self.variance - self.variance / 8 + (diff * diff).max(within) / 8;
            self.longest = longest.max(self.longest - self.longest / 8);
        }
        self.samples = self.samples.saturating_add(report.gaps.min(u8::MAX as u32) as u8);
        self.filter.learn(gap);
    }

    /// Looks whether lists come too fast or too slow (CR-9).
    fn switch(&mut self, report: &Use) {
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
        let lasts = (report.left as u64).saturating_mul(mean).saturating_mul(16);
        let slow = report.dry || (!report.covered && lasts < self.lead.saturating_mul(self.settings.low as u64));
        let fast = report.covered || lasts > self.lead.saturating_mul(self.settings.high as u64);
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
    fn plan(&mut self, now: u64, report: &Use) {
        let lasts = match self.kind() {
            Kind::Timed => self.mean().map(|mean| mean.saturating_mul(report.outstanding as u64)),
            Kind::Predictive if report.covered => Some(u64::MAX),
            Kind::Predictive => self.filter.predict(report.outstanding),
            _ => return,
        };
        let early = self.lead.saturating_add(self.longest.saturating_mul(self.settings.margin as u64));
        self.due_at = lasts.map(|lasts| match lasts {
            u64::MAX => u64::MAX,
            _ => now.saturating_add(lasts.saturating_sub(early)),
        });
    }

    /// Credits were taken back, so a time computed from them is void.
    pub fn voided(&mut self) {
        self.due_at = None;
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

    /// The maximum is another from now on. What is saved stays, up to the new burst.
    pub fn change(&mut self, now: u64, to: &Self) {
        let level = self.level_at(now).min(to.full());
        *self = Self { level, at: self.at.max(now), ..*to };
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
