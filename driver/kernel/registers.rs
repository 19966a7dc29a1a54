// SPDX-License-Identifier: GPL-2.0
//! A page of a device's registers for the driver itself, beside those that processes have.
//!
//! C header: `include/linux/io.h`.

use crate::kernel::gate::BoundRef;
use core::ptr::NonNull;
use kernel::{bindings, page::PAGE_SIZE, prelude::*};

/// A page of registers; uncached.
///
/// # Invariants
///
/// `at` is a mapping of `PAGE_SIZE` bytes of registers of a device, which is bound.
pub(crate) struct RegisterPage {
    at: NonNull<c_void>,
    _bound: BoundRef,
}

// SAFETY: Registers may be written by any thread.
unsafe impl Send for RegisterPage {}
// SAFETY: As above.
unsafe impl Sync for RegisterPage {}

impl RegisterPage {
    /// Maps page `page` of region `bar`.
    ///
    /// # Errors
    ///
    /// `EINVAL` the region has no such page; `ENOMEM`, also when the page is mapped in another way.
    pub(crate) fn new(bound: BoundRef, bar: u32, page: u64) -> Result<Self> {
        let bytes = PAGE_SIZE as u64;
        if bound.resource_len(bar)? / bytes <= page {
            return Err(EINVAL);
        }
        let phys = bound.resource_start(bar)? + page * bytes;
        // SAFETY: Registers of the device are there.
        let at = unsafe { bindings::ioremap(phys, PAGE_SIZE) };
        // INVARIANT: Just mapped; the device is bound as long as there is the reference.
        Ok(Self {
            at: NonNull::new(at).ok_or(ENOMEM)?,
            _bound: bound,
        })
    }

    /// Writes a register of 64 bits. Memory written before is visible to the device first.
    pub(crate) fn write64<const OFFSET: usize>(&self, value: u64) {
        const { assert!(OFFSET % 8 == 0 && OFFSET < PAGE_SIZE) };
        // SAFETY: In the page, by the type invariant.
        unsafe { bindings::writeq(value, self.at.as_ptr().byte_add(OFFSET)) };
    }
}

impl Drop for RegisterPage {
    fn drop(&mut self) {
        // SAFETY: Mapped, by the type invariant.
        unsafe { bindings::iounmap(self.at.as_ptr()) };
    }
}
