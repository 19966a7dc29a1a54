// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every call of a state machine ends after a number of steps that is known beforehand.

/// Counts the steps of one call and, where debug assertions are on, panics when the bound is exceeded.
#[derive(Debug)]
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
    pub fn step(&mut self) {
        #[cfg(debug_assertions)]
        {
            assert!(self.left > 0, "a call exceeded its step bound");
            self.left -= 1;
        }
    }
}
