// SPDX-License-Identifier: GPL-2.0
//! Objects of which the core has one part and the driver the other.

use core::mem::MaybeUninit;
use kernel::types::Opaque;

/// The core's part of an object, and the driver's behind it. The core allocates it, zeroed, and frees it.
#[repr(C)]
pub(super) struct Object<B, T> {
    core: Opaque<B>,
    data: MaybeUninit<T>,
}

impl<B, T> Object<B, T> {
    /// The driver's part.
    ///
    /// # Safety
    ///
    /// `core` is the first part of such an object, between [`Self::put`] and [`Self::take`], during `'a`.
    pub(super) unsafe fn data<'a>(core: *mut B) -> &'a T {
        // SAFETY: By the requirements of this function.
        unsafe { (*core.cast::<Self>()).data.assume_init_ref() }
    }

    /// Puts the driver's part in.
    ///
    /// # Safety
    ///
    /// `core` is the first part of such an object, which nobody else uses and which has no driver's part.
    pub(super) unsafe fn put(core: *mut B, data: T) {
        // SAFETY: By the requirements of this function.
        unsafe { (*core.cast::<Self>()).data.write(data) };
    }

    /// Takes the driver's part out.
    ///
    /// # Safety
    ///
    /// As of [`Self::data`], and nobody else uses the object any more.
    pub(super) unsafe fn take(core: *mut B) -> T {
        // SAFETY: By the requirements of this function.
        unsafe { (*core.cast::<Self>()).data.assume_init_read() }
    }
}
