// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Plain `#[repr(C)]` structs and constants, without dependencies, so that the kernel
//! build can include this folder as a module. All multi-byte fields are little-endian.

/// Whether the constants are those of a small card (feature `small`), which fits a small FPGA: see docs/develop/measure.md.
pub const SMALL: bool = cfg!(feature = "small");

/// Declares named constants and, beside them, a table of (name, value, text) from which
/// the SystemVerilog package and the register documentation are generated.
///
/// A constant with two values has the second one on a small card; `, small NAME` declares
/// the table of the values there.
macro_rules! table {
    ($(#[$tmeta:meta])* $table:ident: $ty:ty $(, small $small:ident)? {
        $($(#[doc = $doc:literal])+ $name:ident = $val:expr $(, $less:expr)?;)*
    }) => {
        $($(#[doc = $doc])+ pub const $name: $ty = table!(@here $val $(, $less)?);)*
        $(#[$tmeta])*
        pub const $table: &[(&str, u64, &str)] =
            &[$((stringify!($name), $val as u64, concat!($($doc),+)),)*];
        table!(@small $($small)?; $($name = ($val $(, $less)?),)*);
    };
    (@here $val:expr) => { $val };
    (@here $val:expr, $less:expr) => { if super::SMALL { $less } else { $val } };
    (@small ; $($rest:tt)*) => {};
    (@small $small:ident; $($name:ident = ($val:expr $(, $less:expr)?),)*) => {
        /// The names that have another value on a small card, and that value.
        pub const $small: &[(&str, u64)] = &[$($((stringify!($name), $less as u64),)?)*];
    };
}

pub mod card;
pub mod counters;
pub mod cpu;
pub mod host;
pub mod ioctl;
pub mod message;
pub mod ring;
pub mod rows;
pub mod status;
pub mod wqe;
