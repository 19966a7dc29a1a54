// SPDX-License-Identifier: GPL-2.0
//! Copying pages of another process for sending, without pinning them.

use crate::kernel::{bindings, pin::SharedPages, worker_mm::WorkerMm};
use kernel::{page::PAGE_SIZE, prelude::*};

impl WorkerMm<'_> {
    /// Copies the page at the page-aligned address `va` to the first page of `to`. Nothing is faulted in, so this never
    /// waits for a page.
    ///
    /// # Errors
    ///
    /// `EFAULT` it is not there, or may not be read: [`Self::bring`] it first.
    pub(crate) fn copy(&self, va: usize, to: &SharedPages) -> Result {
        // SAFETY: By the invariant. `to` has at least one page, which only the card reads, and whose bytes nobody borrows.
        let left = unsafe { bindings::helper_copy_in(to.first_page(), va as u64, PAGE_SIZE) };
        match left {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }

    /// Faults the page at the page-aligned address `va` in for reading, so that [`Self::copy`] finds it. Sleeps for as
    /// long as the fault takes, which may be for ever.
    ///
    /// # Errors
    ///
    /// `EFAULT` not mapped or no access.
    pub(crate) fn bring(&self, va: usize) -> Result {
        // SAFETY: By the invariant.
        let left = unsafe { bindings::helper_fault_in(va as u64, PAGE_SIZE, false) };
        match left {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }
}
