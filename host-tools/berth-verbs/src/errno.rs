// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors as verbs have them: values of errno.

use std::ffi::c_int;

use berth_queue::Refused;

/// Sets `errno`, and answers it, as functions of verbs do.
pub fn failed(error: c_int) -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = error };
    error
}

/// Why something cannot be posted.
pub fn errno(refused: Refused) -> c_int {
    match refused {
        Refused::QueueFull { .. } | Refused::TooMuchOutstanding => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}
