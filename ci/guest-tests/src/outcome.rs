// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a step of a test comes to.

use std::error::Error;

/// Result of a test or a step of one.
pub type Res<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Fails with a text.
pub fn fail<T>(text: impl Into<String>) -> Res<T> {
    Err(text.into().into())
}

/// Fails the test unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($cond:expr $(,)?) => {
        if !$cond {
            return $crate::outcome::fail(format!("{}:{}: not so: {}", file!(), line!(), stringify!($cond)));
        }
    };
    ($cond:expr, $($text:tt)+) => {
        if !$cond {
            return $crate::outcome::fail(format!("{}:{}: {}", file!(), line!(), format!($($text)+)));
        }
    };
}

/// Fails the test unless both are equal.
#[macro_export]
macro_rules! ensure_eq {
    ($left:expr, $right:expr $(,)?) => {
        match (&$left, &$right) {
            (left, right) => $crate::ensure!(*left == *right, "{} is {left:?}, not {right:?}", stringify!($left)),
        }
    };
}
