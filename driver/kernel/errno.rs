// SPDX-License-Identifier: GPL-2.0
//! Error numbers that the `kernel` crate has no name for.

use kernel::{bindings, error::Error};

/// `EOPNOTSUPP`: this machine, or this firmware, cannot do it.
pub(crate) fn unsupported() -> Error {
    Error::from_errno(-(bindings::EOPNOTSUPP as core::ffi::c_int))
}
