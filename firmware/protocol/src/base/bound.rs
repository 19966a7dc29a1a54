// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every call of a state machine ends after a number of steps that is known beforehand.
//!
//! A step is one turn of a loop. A loop over values is written `for x in at_most(N, values)`; any other counts its
//! turns with [`Bound::step`]. Loops in each other in one function count together; a method of another machine that is
//! called in a loop has its own bound. A call of the card is bounded over all that it comes to ([`crate::Card`]).
//!
//! With debug assertions (all tests, the model checker, fuzzing) a call that exceeds its bound panics; without them
//! nothing of this is left. `tests/bounds.rs` looks for loops that do not count.

/// Counts the steps of one call and, where debug assertions are on, panics when the bound is exceeded.
#[derive(Clone, Debug)]
pub struct Bound {
    #[cfg(debug_assertions)]
    left: u32,
}

impl Bound {
    /// A call of at most `steps` steps.
    #[inline(always)]
    pub const fn new(steps: u32) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = steps;
        Self {
            #[cfg(debug_assertions)]
            left: steps,
        }
    }

    /// One step.
    #[inline(always)]
    pub const fn step(&mut self) {
        #[cfg(debug_assertions)]
        {
            assert!(self.left > 0, "a call exceeded its step bound");
            self.left -= 1;
        }
    }
}

/// What is left of a bound is no part of the situation: all are equal.
impl PartialEq for Bound {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Bound {}

impl core::hash::Hash for Bound {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// `values`, each of them a step, of which there are at most `steps`.
#[inline(always)]
pub fn at_most<I: IntoIterator>(steps: usize, values: I) -> AtMost<I::IntoIter> {
    let steps = if steps > u32::MAX as usize { u32::MAX } else { steps as u32 };
    AtMost { values: values.into_iter(), bound: Bound::new(steps) }
}

/// See [`at_most`].
#[derive(Debug)]
pub struct AtMost<I> {
    values: I,
    bound: Bound,
}

impl<I: Iterator> Iterator for AtMost<I> {
    type Item = I::Item;

    #[inline(always)]
    fn next(&mut self) -> Option<I::Item> {
        let value = self.values.next()?;
        self.bound.step();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_the_bound_passes() {
        assert!(at_most(3, [1, 2, 3]).eq([1, 2, 3]));
        assert_eq!(at_most(0, 0..0).next(), None);
        let mut bound = Bound::new(1);
        bound.step();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "step bound")]
    fn one_turn_too_many_is_caught() {
        for _ in at_most(2, 0..3) {}
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "step bound")]
    fn one_step_too_many_is_caught() {
        Bound::new(0).step();
    }
}
