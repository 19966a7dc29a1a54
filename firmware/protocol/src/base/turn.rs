// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns among those that wait: the next one is whoever waits behind the one that had it last, around.

use super::set::Set;

/// Whose turn it is, or was last. All-zero when new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Turn(u16);

impl Turn {
    /// Nobody had it yet: number 1 is next.
    pub const NEW: Self = Self(0);

    /// Who has it.
    pub const fn of(self) -> usize {
        self.0 as usize
    }

    /// One of `waiting` has it.
    pub fn is_among<const WORDS: usize>(self, waiting: &Set<WORDS>) -> bool {
        waiting.has(self.of())
    }

    /// Passes on to the next one of `waiting`, if there is one.
    #[inline(always)]
    pub fn pass<const WORDS: usize>(&mut self, waiting: &Set<WORDS>) -> Option<usize> {
        let next = waiting.behind(self.of())?;
        self.0 = next as u16;
        Some(next)
    }

    /// As [`Turn::pass`], to one that is then taken out of `work`.
    #[inline(always)]
    pub fn take<const WORDS: usize>(&mut self, work: &mut Set<WORDS>) -> Option<usize> {
        let i = self.pass(work)?;
        work.remove(i);
        Some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_around_and_leave_nobody_out() {
        let mut turn = Turn::NEW;
        let waiting: Set<2> = [0, 1, 40, 127].into_iter().collect();
        assert_eq!(turn.pass(&Set::<2>::EMPTY), None);
        let turns: [_; 5] = core::array::from_fn(|_| turn.pass(&waiting));
        assert_eq!(turns, [1, 40, 127, 0, 1].map(Some));
        let alone: Set<1> = [1].into_iter().collect();
        assert!(turn.is_among(&alone) && !turn.is_among(&Set::<1>::EMPTY));
        assert_eq!(
            (turn.pass(&alone), turn.pass(&Set::<1>::EMPTY), turn.of()),
            (Some(1), None, 1),
            "alone, and nobody"
        );
    }

    #[test]
    fn work_is_taken_once() {
        let (mut turn, mut work) = (Turn::NEW, Set::<1>::from_iter([0, 5]));
        assert_eq!([turn.take(&mut work), turn.take(&mut work), turn.take(&mut work)], [Some(5), Some(0), None]);
    }
}
