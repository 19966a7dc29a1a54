// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a test is, and how a module declares its own.

use crate::env::Env;
use crate::outcome::Res;

/// Where a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In both guests at the same time.
    Pair,
    /// In one guest; the runner chooses which.
    One,
}

/// A test.
#[derive(Clone, Copy)]
pub struct Test {
    /// Behaviour and id.
    pub name: &'static str,
    /// Where it runs.
    pub place: Place,
    /// Its body.
    pub run: fn(&Env) -> Res,
    /// What it does to the card.
    pub effect: Effect,
}

/// What a test does to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None of the [incidents](crate::util::INCIDENTS) may come of it.
    Gentle,
    /// It has the card lost, reset, or lie to the driver.
    Disruptive,
}

/// Declares the tests of a module: `tests! { Pair: name, name; One: name; One Disruptive: name }`.
#[macro_export]
macro_rules! tests {
    (@effect) => { $crate::test::Effect::Gentle };
    (@effect $effect:ident) => { $crate::test::Effect::$effect };
    (@list $($place:ident $effect:tt $($name:ident)+),+) => { &[$($($crate::tests!(@one $place $effect $name),)+)+] };
    (@one $place:ident [$($effect:ident)?] $name:ident) => {
        $crate::test::Test {
            name: stringify!($name),
            place: $crate::test::Place::$place,
            run: $name,
            effect: $crate::tests!(@effect $($effect)?),
        }
    };
    ($($place:ident $($effect:ident)?: $($name:ident),+ $(,)?);+ $(;)?) => {
        /// Tests of this module in the order in which they run.
        pub const TESTS: &[$crate::test::Test] = $crate::tests!(@list $($place [$($effect)?] $($name)+),+);
    };
}
