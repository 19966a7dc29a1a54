// SPDX-License-Identifier: GPL-2.0
//! Random numbers.
//!
//! C header: `include/linux/random.h`.

use kernel::bindings;

/// Random words.
pub(crate) fn words<const N: usize>() -> [u32; N] {
    let mut words = [0_u32; N];
    // SAFETY: Any bytes are a value of these words, which are the kernel's to write for the call.
    unsafe { bindings::get_random_bytes(words.as_mut_ptr().cast(), size_of_val(&words)) };
    words
}
