// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Plain `#[repr(C)]` structs and constants, without dependencies, so that the kernel
//! build can include this folder as a module. All multi-byte fields are little-endian.

/// Declares named constants and, beside them, a table of (name, value, text) from which
/// the SystemVerilog package and the register documentation are generated.
macro_rules! table {
    ($(#[$tmeta:meta])* $table:ident: $ty:ty { $($(#[doc = $doc:literal])+ $name:ident = $val:expr;)* }) => {
        $($(#[doc = $doc])+ pub const $name: $ty = $val;)*
        $(#[$tmeta])*
        pub const $table: &[(&str, u64, &str)] =
            &[$((stringify!($name), $name as u64, concat!($($doc),+)),)*];
    };
}

pub mod card;
pub mod counters;
pub mod cpu;
pub mod host;
pub mod ioctl;
pub mod ring;
pub mod status;
pub mod wqe;
