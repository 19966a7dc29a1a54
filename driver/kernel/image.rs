// SPDX-License-Identifier: GPL-2.0
//! A firmware image from the firmware loader.
//!
//! `kernel::firmware` does the same, but only in kernels that were built with
//! `RUST_FW_LOADER_ABSTRACTIONS`.
//!
//! C header: `include/linux/firmware.h`.

use core::ptr::NonNull;
use kernel::{bindings, device::Device, error::to_result, prelude::*};

/// An image; released when dropped.
///
/// # Invariants
///
/// The pointer is a valid `struct firmware` owned by this value.
pub(crate) struct Image(NonNull<bindings::firmware>);

impl Image {
    /// Loads the image `name` for `dev`. Sleeps.
    pub(crate) fn request(name: &'static CStr, dev: &Device) -> Result<Self> {
        let mut image: *const bindings::firmware = core::ptr::null();
        // `Device` is a transparent wrapper of an `Opaque<bindings::device>`.
        let raw = core::ptr::from_ref(dev).cast_mut().cast();
        // SAFETY: All pointers are valid during the call.
        to_result(unsafe { bindings::request_firmware(&mut image, name.as_char_ptr(), raw) })?;
        // INVARIANT: The call succeeded.
        NonNull::new(image.cast_mut()).map(Self).ok_or(ENOENT)
    }

    /// Its bytes.
    pub(crate) fn data(&self) -> &[u8] {
        // SAFETY: By the type invariant; the loader gives `size` bytes at `data`.
        unsafe {
            let image = self.0.as_ref();
            if image.size == 0 {
                return &[];
            }
            core::slice::from_raw_parts(image.data, image.size)
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: Owned, by the type invariant.
        unsafe { bindings::release_firmware(self.0.as_ptr()) };
    }
}
