// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives that each hold a part of their memory and wait for the rest, so that none may get it (decision 19).
//!
//! One has the turn, and keeps what it holds; the others let go and ask anew. The turn passes on when its receive gets
//! ahead or waits no more. If it gets nothing though nobody else has memory that would come back, it does not fit the
//! budget (PC-3). [`super::pins`] needs no turns: there a use gets all of its pages or none.

use crate::base::set::Set;
use crate::base::turn::Turn;

/// Who has the turn, and how long it has waited in vain. All-zero when new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Squeeze {
    turn: Turn,
    /// How far its receives had come at the last look.
    progress: u32,
    /// Looks in vain.
    vain: u8,
    /// From when on one counts again.
    count_at: u64,
}

impl Squeeze {
    /// All zero.
    pub const fn new() -> Self {
        Self { turn: Turn::NEW, progress: 0, vain: 0, count_at: 0 }
    }

    /// Who of `waiting` has the turn. `progress` says how far one's receives have come: any change will do.
    pub fn look<const WORDS: usize>(
        &mut self,
        waiting: &Set<WORDS>,
        mut progress: impl FnMut(usize) -> u32,
    ) -> Option<usize> {
        if !self.turn.is_among(waiting) || progress(self.turn.of()) != self.progress {
            self.pass(waiting, progress);
        }
        self.turn.is_among(waiting).then_some(self.turn.of())
    }

    fn pass<const WORDS: usize>(&mut self, waiting: &Set<WORDS>, mut progress: impl FnMut(usize) -> u32) {
        self.turn.pass(waiting);
        self.vain = 0;
        self.progress = progress(self.turn.of());
    }

    /// After [`Squeeze::look`] gave one: memory comes back from somebody. The waiting begins anew.
    pub fn comes_back(&mut self) {
        self.vain = 0;
    }

    /// After [`Squeeze::look`] gave one: nobody has memory that would come back. A look counts once in `pause`. Behind
    /// `looks` of them gives the one whose receive does not fit; the turn passes on.
    pub fn in_vain<const WORDS: usize>(
        &mut self,
        now: u64,
        (looks, pause): (u8, u64),
        waiting: &Set<WORDS>,
        progress: impl FnMut(usize) -> u32,
    ) -> Option<usize> {
        if now < self.count_at {
            return None;
        }
        self.count_at = now.saturating_add(pause);
        self.vain = self.vain.saturating_add(1);
        if self.vain > looks {
            let who = self.turn.of();
            self.pass(waiting, progress);
            return Some(who);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: (u8, u64) = (2, 10);

    /// Those whose bits are set.
    fn set(bits: u8) -> Set<1> {
        (0..8).filter(|i| bits >> i & 1 != 0).collect()
    }

    #[test]
    fn the_turn_passes_on_with_progress_and_when_its_holder_waits_no_more() {
        let mut s = Squeeze::new();
        assert_eq!(s.look(&set(0), |_| 0), None);
        assert_eq!([s.look(&set(0b110), |_| 0), s.look(&set(0b110), |_| 0)], [Some(1), Some(1)]);
        assert_eq!(s.look(&set(0b110), |i| u32::from(i == 1)), Some(2), "it got ahead");
        assert_eq!(s.look(&set(0b011), |_| 0), Some(0), "it waits no more");
    }

    #[test]
    fn who_waits_in_vain_for_long_enough_is_named_and_has_had_its_turn() {
        let mut s = Squeeze::new();
        assert_eq!(s.look(&set(0b11), |_| 0), Some(0));
        let named: [_; 5] = core::array::from_fn(|k| s.in_vain(6 * k as u64, LIMITS, &set(0b11), |_| 0));
        assert_eq!(named, [None, None, None, None, Some(0)], "every second look comes too soon");
        assert_eq!(s.look(&set(0b11), |_| 0), Some(1));
        assert_eq!([100, 110].map(|now| s.in_vain(now, LIMITS, &set(0b11), |_| 0)), [None, None]);
        s.comes_back();
        assert_eq!([120, 130].map(|now| s.in_vain(now, LIMITS, &set(0b11), |_| 0)), [None, None], "it begins anew");
        assert_eq!(s.in_vain(140, LIMITS, &set(0b11), |_| 0), Some(1));
    }
}
