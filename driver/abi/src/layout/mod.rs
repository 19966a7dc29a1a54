// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! Plain `#[repr(C)]` structs and constants, without dependencies, so that the kernel
//! build can include this folder as a module. All multi-byte fields are little-endian.

/// Whether the constants are those of a small card (feature `small`), which fits a small FPGA: see docs/develop/measure.md.
pub const SMALL: bool = cfg!(feature = "small");
/// Whether they are those of a large card (feature `large`), with as many queue pairs as a server has use for.
pub const LARGE: bool = cfg!(feature = "large");
const _: () = assert!(!(SMALL && LARGE));

/// Declares named constants and, beside them, a table of (name, value, text) from which
/// the SystemVerilog package and the register documentation are generated.
///
/// A constant with two values has the second one on a small card, and the third one, if there is one, on a large card;
/// `, small NAME, large NAME` declares the tables of the values there.
macro_rules! table {
    ($(#[$tmeta:meta])* $table:ident: $ty:ty $(, small $small:ident, large $large:ident)? {
        $($(#[doc = $doc:literal])+ $name:ident = $val:expr $(, $less:expr $(, $more:expr)?)?;)*
    }) => {
        $($(#[doc = $doc])+ pub const $name: $ty = table!(@here $val $(, $less $(, $more)?)?);)*
        $(#[$tmeta])*
        pub const $table: &[(&str, u64, &str)] =
            &[$((stringify!($name), $val as u64, concat!($($doc),+)),)*];
        table!(@other $($small, $large)?; $($name = ($val $(, $less $(, $more)?)?),)*);
    };
    (@here $val:expr) => { $val };
    (@here $val:expr, $less:expr) => { if super::SMALL { $less } else { $val } };
    (@here $val:expr, $less:expr, $more:expr) => {
        if super::SMALL { $less } else if super::LARGE { $more } else { $val }
    };
    (@other ; $($rest:tt)*) => {};
    (@other $small:ident, $large:ident; $($name:ident = ($val:expr $(, $less:expr $(, $more:expr)?)?),)*) => {
        /// The names that have another value on a small card, and that value.
        pub const $small: &[(&str, u64)] = &[$($((stringify!($name), $less as u64),)?)*];
        /// The names that have another value on a large card, and that value.
        pub const $large: &[(&str, u64)] = &[$($($((stringify!($name), $more as u64),)?)?)*];
    };
}

/// A field of a record: its name, its highest and its lowest bit, and a text.
pub type Field = (&'static str, u32, u32, &'static str);

/// A record that is packed into bits.
#[derive(Debug)]
pub struct Record {
    /// As the Rust type is called.
    pub name: &'static str,
    /// Bits of the whole.
    pub bits: u32,
    /// What it is.
    pub text: &'static str,
    /// From the highest bit to the lowest.
    pub fields: &'static [Field],
}

/// Declares records of bit fields that are packed into an integer of the type given: a struct whose fields are numbers,
/// packed by `word` and taken apart by `from_word`. Needs [`Record`] in scope.
macro_rules! records {
    ($word:ident; $($(#[doc = $doc:literal])+ $name:ident {
        $($(#[doc = $fdoc:literal])+ $field:ident: $high:literal $low:literal,)+
    })+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $fdoc])+ pub $field: $word,)+
        }

        impl $name {
            /// How it is packed.
            pub const RECORD: Record = Record {
                name: stringify!($name),
                bits: $word::BITS,
                text: concat!($($doc),+),
                fields: &[$((stringify!($field), $high, $low, concat!($($fdoc),+)),)+],
            };

            /// The word. What does not fit into a field is cut off.
            pub const fn word(self) -> $word {
                0 $(| (self.$field & ($word::MAX >> ($word::BITS - 1 - $high + $low))) << $low)+
            }

            /// The fields of `word`.
            pub const fn from_word(word: $word) -> Self {
                Self { $($field: word >> $low & ($word::MAX >> ($word::BITS - 1 - $high + $low)),)+ }
            }
        }
    )+};
}

/// Declares elements that lie in memory as they stand here, without padding, each field little-endian. Needs [`Record`]
/// in scope.
macro_rules! elements {
    ($($(#[doc = $doc:literal])+ $name:ident {
        $($(#[doc = $fdoc:literal])+ $field:ident: $type:ty,)+
    })+) => {$(
        $(#[doc = $doc])+
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $fdoc])+ pub $field: $type,)+
        }

        impl $name {
            /// How it lies in memory: the lowest bits are those of the first byte, the fields from the lowest bit to
            /// the highest.
            pub const RECORD: Record = Record {
                name: stringify!($name),
                bits: core::mem::size_of::<Self>() as u32 * 8,
                text: concat!($($doc),+),
                fields: &[$((
                    stringify!($field),
                    (core::mem::offset_of!(Self, $field) + core::mem::size_of::<$type>()) as u32 * 8 - 1,
                    core::mem::offset_of!(Self, $field) as u32 * 8,
                    concat!($($fdoc),+),
                ),)+],
            };
        }
    )+};
}

/// The number of 64 bits that two words make.
pub const fn wide(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

pub mod alias;
pub mod card;
pub mod counters;
pub mod cpu;
pub mod engine;
pub mod host;
pub mod ioctl;
pub mod message;
pub mod raw;
pub mod ring;
pub mod rows;
pub mod status;
pub mod verbs;
pub mod wire;
pub mod wqe;
