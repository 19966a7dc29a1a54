// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far the clocks of two cards on one wire, and of their slow hosts, may advance.
//!
//! All times are card cycles on the simulator's common clock.
//!
//! 1. **Lookahead.** A frame needs the wire's latency `L` to arrive. A card whose peer has
//!    come to cycle `p` therefore knows everything that can reach it before `p + L`, and
//!    runs no further.
//! 2. **Parking.** A card that is idle (soft core waiting, no engine at work) is not clocked. It sleeps until its host
//!    accesses it, a frame arrives, or its timer comes; then its clock *skips* to where it should be. A parked peer
//!    sends nothing before its own next event, so it holds up no other card.
//! 3. **A timer next to a busy peer** obeys rule 1: the idle card skips to its timer as
//!    soon as the peer has come within `L` of it. So an acknowledgement time-out lasts as
//!    many cycles of the peer's work as it says.
//! 4. **A frame under way between parked cards** is delivered at once: the skip takes no time.
//! 5. **A timer while no card works** may be waiting for a *host*: page service, an application, a booting guest. Hosts
//!    are emulated and slow. Skipping to the timer at once would make every time-out expire before any host could
//!    answer, so time in which no card has work passes at a limited pace against the wall clock (`--skip-rate`, cycles
//!    per millisecond; the default is a tenth of the card's real clock, about as much as emulation slows down a guest).
//!    Such cycles are counted apart (`host_wait_cycles` when it was a host that ended the wait), and no performance
//!    figure contains them.
//! 6. Time passes by rule 5 even when no timer is armed, up to the moment that something
//!    happens: a driver that waits for so many card cycles, as read from the clock
//!    register, gets there with a card that does nothing.

use std::time::Duration;

/// Smallest step that is worth waking a waiting peer for, as a part of the latency.
const WORTH_WAKING: u64 = 2;

/// The state that a card shows its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// At work, has come to cycle `now`.
    Busy {
        /// Its clock.
        now: u64,
    },
    /// Parked; does nothing by itself before `next`.
    Parked {
        /// Its next timer or frame.
        next: Option<u64>,
    },
    /// No card there, or unplugged.
    Gone,
}

/// The state from which a card's next step is decided.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Its clock.
    pub now: u64,
    /// It has no work.
    pub idle: bool,
    /// Its timer, if armed.
    pub timer: Option<u64>,
    /// Arrival of the next frame for it.
    pub arrival: Option<u64>,
    /// The other end of the wire.
    pub peer: Peer,
    /// How far it may run ahead of its peer: at most the latency of the wire.
    pub latency: u64,
    /// Most cycles to run in one go.
    pub quantum: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Clock the card until this cycle.
    Run(u64),
    /// Add cycles to the idle card's clock, up to this cycle.
    Skip(u64),
    /// No card works: skip to this cycle when the pace allows.
    Pace(u64),
    /// Nothing to do until the peer or the host does something.
    Wait,
}

impl View {
    /// The cycle that this card must not pass.
    pub fn limit(&self) -> u64 {
        match self.peer {
            Peer::Busy { now } | Peer::Parked { next: Some(now) } => now.saturating_add(self.latency),
            Peer::Parked { next: None } | Peer::Gone => u64::MAX,
        }
    }

    /// The next thing that happens to this card by itself.
    pub fn next_event(&self) -> Option<u64> {
        match (self.timer, self.arrival) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Applies the rules.
    pub fn plan(&self) -> Plan {
        let limit = self.limit();
        if !self.idle {
            let mut until = limit.min(self.now + self.quantum);
            if let Some(a) = self.arrival.filter(|&a| a > self.now) {
                until = until.min(a);
            }
            return if until > self.now { Plan::Run(until) } else { Plan::Wait };
        }
        let Some(event) = self.next_event() else { return Plan::Wait };
        if event <= self.now {
            // The card has not noticed yet.
            return if self.now < limit { Plan::Run(limit.min(self.now + self.quantum)) } else { Plan::Wait };
        }
        if event > limit {
            return Plan::Wait;
        }
        match self.peer {
            Peer::Busy { .. } => Plan::Skip(event),
            _ if self.arrival == Some(event) => Plan::Skip(event),
            _ => Plan::Pace(event),
        }
    }

    /// Whether a card that waits with this view is worth waking.
    pub fn wake(&self) -> bool {
        match self.plan() {
            Plan::Wait => false,
            Plan::Run(_) => {
                !matches!(self.peer, Peer::Busy { .. })
                    || self.limit() - self.now >= (self.latency / WORTH_WAKING).max(1)
                    || self.arrival.is_some_and(|a| a <= self.limit())
            }
            Plan::Skip(_) | Plan::Pace(_) => true,
        }
    }
}

/// The pace of time while no card has work.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Cycles per millisecond of wall-clock time; 0 means without limit.
    pub cycles_per_ms: u64,
}

impl Pace {
    /// Cycles that may pass in `elapsed`.
    pub fn cycles(&self, elapsed: Duration) -> u64 {
        if self.cycles_per_ms == 0 {
            return u64::MAX;
        }
        u64::try_from(elapsed.as_nanos() * u128::from(self.cycles_per_ms) / 1_000_000).unwrap_or(u64::MAX)
    }

    /// How long `cycles` take at least.
    pub fn duration(&self, cycles: u64) -> Duration {
        if self.cycles_per_ms == 0 {
            return Duration::ZERO;
        }
        let nanos = (u128::from(cycles) * 1_000_000).div_ceil(u128::from(self.cycles_per_ms));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: View = View {
        now: 1000,
        idle: true,
        timer: None,
        arrival: None,
        peer: Peer::Parked { next: None },
        latency: 500,
        quantum: 64,
    };

    #[test]
    fn a_busy_card_stops_one_latency_ahead_of_its_peer() {
        let v = View { idle: false, peer: Peer::Busy { now: 540 }, ..IDLE };
        assert_eq!(v.plan(), Plan::Run(1040));
        assert_eq!(View { now: 1040, ..v }.plan(), Plan::Wait);
        assert_eq!(View { peer: Peer::Busy { now: 5000 }, ..v }.plan(), Plan::Run(1064));
    }

    #[test]
    fn a_busy_card_stops_at_the_arrival_of_a_frame() {
        let v = View { idle: false, arrival: Some(1010), ..IDLE };
        assert_eq!(v.plan(), Plan::Run(1010));
        // Due, but not taken yet: the card has to be clocked to take it.
        assert_eq!(View { now: 1010, ..v }.plan(), Plan::Run(1074));
    }

    #[test]
    fn a_parked_peer_does_not_hold_a_busy_card_up() {
        let v = View { idle: false, now: 1_000_000, ..IDLE };
        assert_eq!(v.plan(), Plan::Run(1_000_064));
        assert_eq!(View { peer: Peer::Gone, ..v }.plan(), Plan::Run(1_000_064));
    }

    #[test]
    fn a_busy_card_waits_for_the_timer_of_a_parked_peer() {
        let v = View { idle: false, peer: Peer::Parked { next: Some(500) }, ..IDLE };
        assert_eq!(v.plan(), Plan::Wait);
    }

    #[test]
    fn an_idle_card_with_nothing_to_come_waits() {
        assert_eq!(IDLE.plan(), Plan::Wait);
        assert_eq!(View { peer: Peer::Busy { now: 900 }, ..IDLE }.plan(), Plan::Wait);
    }

    #[test]
    fn a_timer_next_to_a_busy_peer_comes_no_sooner_than_the_peer_gets_there() {
        let v = View { timer: Some(50_000), peer: Peer::Busy { now: 1200 }, ..IDLE };
        assert_eq!(v.plan(), Plan::Wait);
        assert!(!v.wake());
        let near = View { peer: Peer::Busy { now: 49_500 }, ..v };
        assert_eq!(near.plan(), Plan::Skip(50_000));
        assert!(near.wake());
    }

    #[test]
    fn a_timer_while_nobody_works_is_paced() {
        let v = View { timer: Some(50_000), ..IDLE };
        assert_eq!(v.plan(), Plan::Pace(50_000));
        assert_eq!(View { peer: Peer::Gone, ..v }.plan(), Plan::Pace(50_000));
    }

    #[test]
    fn the_earlier_of_two_timers_goes_first() {
        let first = View { timer: Some(2000), peer: Peer::Parked { next: Some(9000) }, ..IDLE };
        let second = View { timer: Some(9000), peer: Peer::Parked { next: Some(2000) }, ..IDLE };
        assert_eq!(first.plan(), Plan::Pace(2000));
        assert_eq!(second.plan(), Plan::Wait);
    }

    #[test]
    fn a_frame_between_parked_cards_is_delivered_at_once() {
        let v = View { timer: Some(50_000), arrival: Some(3000), ..IDLE };
        assert_eq!(v.plan(), Plan::Skip(3000));
    }

    #[test]
    fn a_waiting_busy_card_is_woken_for_half_a_latency_at_least() {
        let v = View { idle: false, peer: Peer::Busy { now: 501 }, ..IDLE };
        assert_eq!(v.plan(), Plan::Run(1001));
        assert!(!v.wake());
        assert!(View { peer: Peer::Busy { now: 750 }, ..v }.wake());
        assert!(View { peer: Peer::Parked { next: None }, ..v }.wake());
    }

    #[test]
    fn two_busy_cards_never_wait_for_each_other() {
        // Whatever their clocks are, within the lookahead, one of the two can run.
        for (a, b) in [(0u64, 0u64), (500, 0), (0, 500), (250, 0), (17, 400)] {
            let view = |now, peer| View { idle: false, now, peer: Peer::Busy { now: peer }, ..IDLE };
            assert!(view(a, b).wake() || view(b, a).wake(), "{a} {b}");
        }
    }

    #[test]
    fn pace_converts_both_ways() {
        let p = Pace { cycles_per_ms: 25_000 };
        assert_eq!(p.cycles(Duration::from_millis(2)), 50_000);
        assert_eq!(p.duration(50_000), Duration::from_millis(2));
        assert!(p.cycles(p.duration(1)) >= 1);
        let free = Pace { cycles_per_ms: 0 };
        assert_eq!((free.cycles(Duration::ZERO), free.duration(u64::MAX)), (u64::MAX, Duration::ZERO));
    }
}
