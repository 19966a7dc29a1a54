// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The clock of the test's world.

use crate::world::world;
use core::marker::PhantomData;
use core::ops::Sub;

pub struct Monotonic;

/// A moment.
pub struct Instant<C>(i64, PhantomData<C>);

impl<C> Clone for Instant<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Instant<C> {}

impl<C> Instant<C> {
    #[must_use]
    pub fn now() -> Self {
        Self(world().now() as i64, PhantomData)
    }

    #[must_use]
    pub fn elapsed(&self) -> Delta {
        Self::now() - *self
    }
}

impl<C> Sub for Instant<C> {
    type Output = Delta;

    fn sub(self, other: Self) -> Delta {
        Delta(self.0 - other.0)
    }
}

/// Nanoseconds between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delta(i64);

impl Delta {
    #[must_use]
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }

    #[must_use]
    pub const fn from_micros(us: i64) -> Self {
        Self(us * 1000)
    }

    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0 / 1_000_000
    }

    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

/// Sleeping.
pub mod delay {
    use super::Delta;

    pub fn fsleep(delta: Delta) {
        crate::world::world().sleep(delta.0.max(0) as u64);
    }
}

/// Milliseconds here.
pub type Jiffies = u64;

#[must_use]
pub fn msecs_to_jiffies(ms: u32) -> Jiffies {
    ms.into()
}
