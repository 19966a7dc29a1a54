// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be in a line of the log.

use core::ffi::CStr;
use core::fmt::{Debug, Display, Formatter, LowerHex, Result};

/// As `Display`, also of what has none outside the kernel.
pub trait Show {
    fn show(&self, f: &mut Formatter<'_>) -> Result;
}

macro_rules! show {
    ($($t:ty)*) => {$(
        impl Show for $t {
            fn show(&self, f: &mut Formatter<'_>) -> Result {
                Display::fmt(self, f)
            }
        }
    )*};
}

show!(str u8 u16 u32 u64 usize i32 i64);

impl Show for CStr {
    fn show(&self, f: &mut Formatter<'_>) -> Result {
        Display::fmt(&self.to_string_lossy(), f)
    }
}

impl<T: Show + ?Sized> Show for &T {
    fn show(&self, f: &mut Formatter<'_>) -> Result {
        (**self).show(f)
    }
}

/// An argument of a line.
pub struct Shown<T>(pub T);

impl<T: Show> Display for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.show(f)
    }
}

impl<T: Debug> Debug for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.fmt(f)
    }
}

impl<T: LowerHex> LowerHex for Shown<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.0.fmt(f)
    }
}
