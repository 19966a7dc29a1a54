// SPDX-License-Identifier: GPL-2.0
//! A worker that uses the address space of a process.

use kernel::mm::MmWithUser;

pub(crate) struct WorkerMm<'a>(&'a MmWithUser);

impl<'a> WorkerMm<'a> {
    pub(crate) fn new(mm: &'a MmWithUser) -> Self {
        Self(mm)
    }

    /// Whose memory it uses.
    pub(super) fn mm(&self) -> &MmWithUser {
        self.0
    }
}
