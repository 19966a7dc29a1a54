// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns among up to 64 that wait: the next one is whoever waits behind the one that had it last, around.

/// Whose turn it is, or was last. All-zero when new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Turn(u8);

impl Turn {
    /// Nobody had it yet: number 1 is next.
    pub const NEW: Self = Self(0);

    /// Who has it.
    pub const fn of(self) -> usize {
        (self.0 & 63) as usize
    }

    /// One of those whose bits are in `waiting` has it.
    pub const fn is_among(self, waiting: u64) -> bool {
        waiting >> self.of() & 1 != 0
    }

    /// Passes on to the next one of `waiting`, if there is one.
    #[inline]
    pub fn pass(&mut self, waiting: u64) -> Option<usize> {
        if waiting == 0 {
            return None;
        }
        let from = (self.0 as u32 + 1) & 63;
        self.0 = ((waiting.rotate_right(from).trailing_zeros() + from) & 63) as u8;
        Some(self.of())
    }

    /// As [`Turn::pass`], to one whose bit is then taken out of `work`.
    #[inline]
    pub fn take(&mut self, work: &mut u64) -> Option<usize> {
        let i = self.pass(*work)?;
        *work &= !(1 << i);
        Some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_around_and_leave_nobody_out() {
        let mut turn = Turn::NEW;
        assert_eq!(turn.pass(0), None);
        let waiting = 1 << 63 | 1 << 40 | 1 << 1 | 1;
        let turns: [_; 5] = core::array::from_fn(|_| turn.pass(waiting));
        assert_eq!(turns, [1, 40, 63, 0, 1].map(Some));
        assert!(turn.is_among(2) && !turn.is_among(!2));
        assert_eq!((turn.pass(2), turn.pass(0), turn.of()), (Some(1), None, 1), "alone, and nobody");
    }

    #[test]
    fn work_is_taken_once() {
        let (mut turn, mut work) = (Turn::NEW, 1 << 5 | 1);
        assert_eq!([turn.take(&mut work), turn.take(&mut work), turn.take(&mut work)], [Some(5), Some(0), None]);
    }
}
