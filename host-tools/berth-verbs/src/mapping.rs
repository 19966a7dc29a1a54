// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of the driver that is mapped into the process.

use std::ffi::c_int;
use std::io;
use std::ptr::{NonNull, null_mut};

/// Mapped memory, until it is dropped.
pub struct Mapping {
    first: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is only an address range; its users decide on access.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access goes through raw pointers.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of a context's descriptor for writing, with `read` for reading too; else answers an errno value.
    pub fn new(fd: c_int, offset: u64, bytes: usize, read: bool) -> Result<Self, c_int> {
        let offset = libc::off_t::try_from(offset).map_err(|_| libc::EOVERFLOW)?;
        let protection = libc::PROT_WRITE | if read { libc::PROT_READ } else { 0 };
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no existing memory.
        let first = unsafe { libc::mmap(null_mut(), bytes, protection, libc::MAP_SHARED, fd, offset) };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM));
        }
        Ok(Self { first: NonNull::new(first.cast()).ok_or(libc::ENOMEM)?, bytes })
    }

    /// First byte.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole of a mapping of ours, whose users are gone with it.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}
