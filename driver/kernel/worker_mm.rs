// SPDX-License-Identifier: GPL-2.0
//! A worker that uses the address space of a process.
//!
//! C header: `include/linux/kthread.h`.

use crate::kernel::bindings;
use core::marker::PhantomData;
use kernel::mm::MmWithUser;

/// The calling kernel thread while it uses the address space of a process.
///
/// # Invariants
///
/// The thread uses the address space, for which it has a reference, until this is dropped.
pub(crate) struct WorkerMm<'a> {
    mm: &'a MmWithUser,
    /// It stays with its thread.
    _thread: PhantomData<*mut ()>,
}

impl<'a> WorkerMm<'a> {
    /// The calling thread, a worker that uses nobody's address space yet, uses `mm`.
    pub(crate) fn new(mm: &'a MmWithUser) -> Self {
        // SAFETY: `mm` has users, and a worker has no address space of its own.
        unsafe { bindings::helper_use_mm(mm.as_raw()) };
        // INVARIANT: As of now.
        Self {
            mm,
            _thread: PhantomData,
        }
    }
}

impl WorkerMm<'_> {
    /// Whose it is.
    pub(super) fn mm(&self) -> &MmWithUser {
        self.mm
    }
}

impl Drop for WorkerMm<'_> {
    fn drop(&mut self) {
        // SAFETY: By the invariant, the thread uses it.
        unsafe { bindings::helper_unuse_mm(self.mm.as_raw()) };
    }
}
