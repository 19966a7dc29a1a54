// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of positions: of queue pairs, of peers.

use super::bound::at_most;

/// Positions from 0 to 64 × `WORDS` - 1. All-zero when empty. A position beyond is never in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Set<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Set<WORDS> {
    /// Nothing.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Whether `i` is in it.
    #[inline(always)]
    pub fn has(&self, i: usize) -> bool {
        self.0.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 != 0)
    }

    /// Puts `i` into it.
    #[inline(always)]
    pub fn add(&mut self, i: usize) {
        if let Some(word) = self.0.get_mut(i / 64) {
            *word |= 1 << (i % 64);
        }
    }

    /// Takes `i` out of it.
    #[inline(always)]
    pub fn remove(&mut self, i: usize) {
        if let Some(word) = self.0.get_mut(i / 64) {
            *word &= !(1 << (i % 64));
        }
    }

    /// Puts all of `other` into it, which is empty then.
    #[inline]
    pub fn take_in(&mut self, other: &mut Self) {
        for (word, from) in at_most(WORDS, self.0.iter_mut().zip(&mut other.0)) {
            *word |= core::mem::take(from);
        }
    }

    /// Whether nothing is in it.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The first one behind `from`, around: `from` itself comes last.
    #[inline(always)]
    pub fn behind(&self, from: usize) -> Option<usize> {
        // The main loop of a card's firmware asks this of sets that are empty, as a rule.
        if self.is_empty() {
            return None;
        }
        self.around(from)
    }

    #[inline(never)]
    fn around(&self, from: usize) -> Option<usize> {
        if let [word] = self.0[..] {
            let from = (from as u32 + 1) & 63;
            return Some(((word.rotate_right(from).trailing_zeros() + from) & 63) as usize);
        }
        let (first, bit) = ((from + 1) / 64 % WORDS, (from + 1) % 64);
        for n in at_most(WORDS + 1, 0..=WORDS) {
            let at = (first + n) % WORDS;
            let all = self.0.get(at).copied().unwrap_or(0);
            let rest = u64::MAX << bit;
            let word = match n {
                0 => all & rest,
                _ if n == WORDS => all & !rest,
                _ => all,
            };
            if word != 0 {
                return Some(at * 64 + word.trailing_zeros() as usize);
            }
        }
        None
    }
}

impl<const WORDS: usize> Default for Set<WORDS> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const WORDS: usize> FromIterator<usize> for Set<WORDS> {
    fn from_iter<I: IntoIterator<Item = usize>>(positions: I) -> Self {
        let mut set = Self::EMPTY;
        for i in at_most(64 * WORDS, positions) {
            set.add(i);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn compare<const WORDS: usize>(rng: &mut berth_random::Rng) {
        let most = 64 * WORDS as u64;
        let (mut set, mut other) = (Set::<WORDS>::EMPTY, Set::<WORDS>::EMPTY);
        let (mut model, mut other_model) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..500 {
            let i = rng.below(most + 2) as usize;
            match rng.below(8) {
                0..3 => {
                    set.add(i);
                    model.extend((i < most as usize).then_some(i));
                }
                3..5 => {
                    set.remove(i);
                    model.remove(&i);
                }
                5 | 6 => {
                    other.add(i);
                    other_model.extend((i < most as usize).then_some(i));
                }
                _ => {
                    set.take_in(&mut other);
                    model.append(&mut other_model);
                    assert!(other.is_empty());
                }
            }
            assert_eq!((set.has(i), set.is_empty()), (model.contains(&i), model.is_empty()));
            assert_eq!(set, model.iter().copied().collect());
            let from = rng.below(most) as usize;
            let behind = model.range(from + 1..).next().or_else(|| model.iter().next());
            assert_eq!(set.behind(from), behind.copied(), "{from} of {model:?}");
        }
    }

    #[test]
    fn qp_19_sets_of_any_size_do_as_sets_do() {
        let mut rng = berth_random::Rng(berth_random::seed(1));
        compare::<1>(&mut rng);
        compare::<2>(&mut rng);
        compare::<3>(&mut rng);
        compare::<17>(&mut rng);
    }
}
