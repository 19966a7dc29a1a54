// SPDX-License-Identifier: GPL-2.0
//! Ethernet's CRC-32.
//!
//! C header: `include/linux/crc32.h`.

use crate::kernel::bindings;

/// Continues a CRC, least significant bit first and without inversion, over bytes.
pub(crate) fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    // SAFETY: The bytes are there.
    unsafe { bindings::crc32_le(crc, bytes.as_ptr().cast(), bytes.len()) }
}
