// SPDX-License-Identifier: GPL-2.0
//! Signalling an eventfd from the kernel.
//!
//! C header: `include/linux/eventfd.h`.

use core::ptr::NonNull;
use kernel::{bindings, error::from_err_ptr, prelude::*};

/// A reference to an eventfd's context.
///
/// # Invariants
///
/// The pointer is a valid `eventfd_ctx` of which this value owns one reference.
pub(crate) struct EventFd(NonNull<bindings::eventfd_ctx>);

// SAFETY: The reference count and the signal function of an eventfd are thread-safe.
unsafe impl Send for EventFd {}
// SAFETY: As above; there is no other access through `&EventFd`.
unsafe impl Sync for EventFd {}

impl EventFd {
    /// Takes the eventfd behind descriptor `fd` of the current process; `None` for -1.
    ///
    /// # Errors
    ///
    /// `EBADF` no such descriptor, `EINVAL` not an eventfd.
    pub(crate) fn from_fd(fd: i32) -> Result<Option<Self>> {
        if fd == -1 {
            return Ok(None);
        }
        // SAFETY: The function takes any number.
        let ctx = from_err_ptr(unsafe { bindings::eventfd_ctx_fdget(fd) })?;
        // INVARIANT: The call succeeded and has given us a reference.
        Ok(NonNull::new(ctx).map(Self))
    }

    /// Adds 1 to the counter and wakes its waiters.
    pub(crate) fn signal(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::eventfd_signal_mask(self.0.as_ptr(), 0) };
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // SAFETY: The type invariant gives us the reference that is put here.
        unsafe { bindings::eventfd_ctx_put(self.0.as_ptr()) };
    }
}
