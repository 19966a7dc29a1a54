// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The firmware loader: the image is the test's ([`World::set_image`](crate::world::World::set_image)).

use crate::world::{might_sleep, world};
use core::ffi::{CStr, c_char, c_int, c_void};

/// `struct firmware`.
pub struct Firmware {
    pub size: usize,
    pub data: *const u8,
}

/// # Safety
///
/// `name` is a string that ends with a zero.
pub unsafe fn request_firmware(image: &mut *const Firmware, name: *const c_char, _: *mut c_void) -> c_int {
    might_sleep();
    // SAFETY: By the caller.
    let name = unsafe { CStr::from_ptr(name) };
    match world().image(name.to_str().expect("a name")) {
        Ok(bytes) => {
            let (size, data) = (bytes.len(), Box::leak(bytes.into_boxed_slice()).as_ptr());
            *image = Box::leak(Box::new(Firmware { size, data }));
            0
        }
        Err(error) => error.0,
    }
}

/// # Safety
///
/// The image was requested, and is released once.
pub unsafe fn release_firmware(image: *const Firmware) {
    // SAFETY: By the caller.
    unsafe {
        let image = Box::from_raw(image.cast_mut());
        drop(Box::from_raw(core::ptr::slice_from_raw_parts_mut(image.data.cast_mut(), image.size)));
    }
    world().image_goes();
}

/// What strings of C have in the kernel.
pub trait CStrExt {
    fn as_char_ptr(&self) -> *const c_char;
}

impl CStrExt for CStr {
    fn as_char_ptr(&self) -> *const c_char {
        self.as_ptr()
    }
}
