// SPDX-License-Identifier: GPL-2.0
//! Rust declarations of what `kernel::bindings` lacks, made by `bindings/generate.sh` when the module is built. What
//! both have is of the same type.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

pub(crate) use kernel::bindings::*;
use kernel::ffi;
use pin_init::{MaybeZeroable, Zeroable};

// SAFETY: A newtype around `Storage`; bindgen does not derive this.
unsafe impl<Storage: Zeroable> Zeroable for __BindgenBitfieldUnit<Storage> {}

include!(env!("BERTH_BINDINGS"));
