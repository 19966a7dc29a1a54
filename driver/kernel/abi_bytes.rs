// SPDX-License-Identifier: GPL-2.0
//! The structs of the ABI's calls as bytes, so that they can be copied from and to user
//! space.

use crate::abi::{ioctl::*, verbs::*};
use core::mem::size_of;
use kernel::{
    static_assert,
    transmute::{AsBytes, FromBytes},
};

macro_rules! plain {
    ($($ty:ty = $size:literal,)*) => {$(
        // No padding: the size is the sum of the fields.
        static_assert!(size_of::<$ty>() == $size);
        // SAFETY: `repr(C)`, only integers and arrays of them, and no padding (asserted).
        unsafe impl AsBytes for $ty {}
        // SAFETY: `repr(C)`, only integers and arrays of them: any bytes are a value.
        unsafe impl FromBytes for $ty {}
    )*};
}

plain! {
    Handle = 16,
    Crash = 56,
    Context = 24,
    Query = 96,
    SetNet = 16,
    SetLimits = 24,
    QueryContext = 24,
    QueryLimits = 96,
    CreateCq = 32,
    CreateQp = 120,
    Aliases = 32,
    Whole = 136,
    QueryQp = 56,
    SetTrigger = 24,
    SetCap = 24,
    Register = 48,
    Connect = 56,
    SetPeer = 40,
    Accept = 64,
    ContextEvent = 88,
    Counters = 1408,
    ReadLog = 16,
    VerbsContext = 16,
    VerbsCq = 16,
    VerbsQp = 24,
    VerbsQpChange = 8,
    VerbsSrq = 8,
}
