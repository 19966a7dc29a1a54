// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long an end waits for an answer, and how often it asks: the one rule of firmware, of [`super::Requester`], and of
//! all else that says something again until it is answered.
//!
//! It is RFC 6298's: what is not known yet counts as long (2.1), only what was sent once is measured (Karn, 3), each
//! time-out doubles the next one (5.5), up to a bound, until something is heard. Instead of mean and deviation there is the
//! longest round trip of late, which hardware has without multiplying, and two of them are the least time-out. How
//! often is asked is InfiniBand's retry count (IBTA 9.7.6.1.3).

use crate::base::rule::{self, Rule};
use berth_abi::ring::RNR_FOR_EVER;

/// Most doublings of a time-out.
const MAX_BACKOFF: u8 = 5;

/// The longest round trip of late. RTL measures that of the card's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoundTrip(u32);

impl RoundTrip {
    /// As it was measured elsewhere; 0: not known.
    pub const fn of(trip: u32) -> Self {
        Self(trip)
    }

    /// 0: not known.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// A packet that was sent once was answered `took` after it left: a longer time counts at once, of a shorter one an
    /// eighth.
    pub fn measure(&mut self, took: u64) {
        let took = took.clamp(1, u32::MAX as u64) as u32;
        self.0 = match self.0.checked_sub(took) {
            Some(more) if self.0 != 0 => self.0 - more.div_ceil(8),
            _ => took,
        };
    }

    /// `least`, or two round trips if these are longer; or `unknown` if that is and no round trip is known.
    pub fn twice(self, least: u64, unknown: u64) -> u64 {
        least.max(match self.0 {
            0 => unknown,
            trip => 2 * trip as u64,
        })
    }
}

/// Time-outs since something was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tries(u8);

impl Tries {
    /// None.
    pub const NONE: Self = Self(0);

    /// How many.
    pub const fn count(self) -> u8 {
        self.0
    }

    /// How long the next answer is waited for, if the first one is for `time`.
    pub fn back_off(self, time: u64) -> u64 {
        time.saturating_mul(1 << self.0.min(MAX_BACKOFF))
    }

    /// It was asked `retries` times in vain (0: any number of times).
    pub const fn spent(self, retries: u8) -> bool {
        retries != 0 && self.0 >= retries
    }

    /// No answer came in time. True: ask again; false: give up.
    pub fn expired(&mut self, retries: u8) -> bool {
        let again = rule::holds(Rule::RetriesEnd, !self.spent(retries));
        if again {
            let most = if retries == 0 { MAX_BACKOFF } else { retries };
            self.0 = self.0.saturating_add(1).min(most);
        }
        again
    }
}

/// RNR NAKs in a row for one packet: for want of a receive, as the peer of a foreign connection says it (IBTA 9.7.5.2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NotReady {
    psn: u32,
    tries: u8,
}

impl NotReady {
    /// None.
    pub const NONE: Self = Self { psn: 0, tries: 0 };

    /// There is no receive for packet `psn`: what lies before it has arrived. True: it goes again after the time that the NAK
    /// says; false: the `retries` are used up ([`RNR_FOR_EVER`]: they never are).
    pub fn again(&mut self, psn: u32, retries: u8) -> bool {
        if retries as u32 >= RNR_FOR_EVER {
            return true;
        }
        let before = if self.psn == psn { self.tries } else { 0 };
        *self = Self { psn, tries: before.saturating_add(1) };
        rule::holds(Rule::RetriesEnd, before < retries)
    }
}

/// The wait for the peer's memory (PC-4) that a GO ended last: which packet's, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Woken(Option<(u32, u64)>);

impl Woken {
    /// None.
    pub const NONE: Self = Self(None);

    /// A GO ends the wait of packet `psn`.
    pub const fn at(psn: u32, now: u64) -> Self {
        Self(Some((psn, now)))
    }

    /// Whether a "not yet" for `psn` may be for a copy that left before that GO, which was for its memory: it begins no wait.
    /// Within a `round` trip it may; while none is known, the first one may.
    pub fn late(&mut self, psn: u32, now: u64, round: RoundTrip) -> bool {
        let Some((held, at)) = self.0 else {
            return false;
        };
        if held != psn {
            return false;
        }
        if round.get() == 0 {
            *self = Self::NONE;
            return true;
        }
        now.saturating_sub(at) < round.get() as u64
    }

    /// It is forgotten unless `open` says of its packet that it is not acknowledged.
    pub fn keep(&mut self, open: impl FnOnce(u32) -> bool) {
        self.0 = self.0.filter(|&(held, _)| open(held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_round_trip_counts_at_once_and_a_shorter_one_little_by_little() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.twice(30, 1000), 1000, "it may be long");
        for (took, expected) in [(0, 1), (100, 100), (20, 90), (89, 89), (900, 900), (u64::MAX, u32::MAX)] {
            trip.measure(took);
            assert_eq!(trip.get(), expected);
        }
        assert_eq!(RoundTrip::of(100).twice(30, 1000), 200);
        assert_eq!(RoundTrip::of(10).twice(30, 1000), 30);
        assert_eq!(RoundTrip::of(u32::MAX).twice(0, 0), 2 * u32::MAX as u64);
    }

    #[test]
    fn pc_4_a_late_not_yet_is_told_by_the_round_trip_or_is_the_first_one() {
        let mut woken = Woken::at(7, 1000);
        assert!(!woken.late(8, 1000, RoundTrip::of(100)), "another packet's");
        assert!(woken.late(7, 1099, RoundTrip::of(100)) && woken.late(7, 1099, RoundTrip::of(100)));
        assert!(!woken.late(7, 1100, RoundTrip::of(100)));
        let unknown = RoundTrip::default();
        assert!(woken.late(7, 500_000, unknown) && !woken.late(7, 500_000, unknown));
        let mut over = Woken::at(7, 1000);
        over.keep(|psn| psn != 7);
        assert_eq!(over, Woken::NONE);
    }

    #[test]
    fn qp_7_rnr_naks_count_while_they_are_for_the_same_packet() {
        for retries in 0..7 {
            let mut rnr = NotReady::NONE;
            for psn in [0, 5, 0] {
                assert!((0..retries).all(|_| rnr.again(psn, retries)), "{retries}");
            }
            assert!(!rnr.again(0, retries) && !rnr.again(0, retries), "it stays so");
        }
        let mut rnr = NotReady::NONE;
        assert!((0..300).all(|_| rnr.again(3, 7)), "7: for ever");
    }

    #[test]
    fn qp_7_the_time_doubles_up_to_a_bound_and_the_retries_are_counted() {
        let mut tries = Tries::NONE;
        let mut times = std::vec::Vec::new();
        loop {
            times.push(tries.back_off(10));
            if !tries.expired(7) {
                break;
            }
        }
        assert_eq!(times, [10, 20, 40, 80, 160, 320, 320, 320], "asked once, and seven times again");
        assert!(tries.spent(7) && !tries.expired(7), "it stays so");
        tries = Tries::NONE;
        assert!((0..300).all(|_| tries.expired(0)), "0: it never gives up");
        assert_eq!((tries.count(), tries.spent(0)), (MAX_BACKOFF, false));
        assert_eq!(tries.back_off(u64::MAX), u64::MAX);
        let mut most = Tries::NONE;
        assert_eq!((0..300).filter(|_| most.expired(255)).count(), 255);
    }
}
