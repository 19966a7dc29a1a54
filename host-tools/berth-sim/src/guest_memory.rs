// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guest memory that a client of the vfio-user socket has handed over as a file descriptor.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A shared mapping of a part of a file.
///
/// The guest changes the memory at any time, so it is only touched by atomic accesses:
/// whole aligned 8-byte words, in rising order of addresses, as a PCIe root complex does
/// with one TLP. A guest that polls the last word of a completion therefore finds the
/// words before it complete.
#[derive(Debug)]
pub struct GuestMemory {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the mapping is plain shared memory, owned by this value and accessed by atomics only.
unsafe impl Send for GuestMemory {}
// SAFETY: as above.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Maps `len` bytes of `file` from `offset` (a multiple of the page size).
    ///
    /// # Errors
    /// What `mmap` says; `InvalidInput` if the file ends before the mapping would.
    pub fn map(file: &File, offset: u64, len: u64, writable: bool) -> io::Result<Self> {
        let end = offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
        // Access beyond the end of the file would be answered with SIGBUS.
        if len == 0 || file.metadata()?.len() < end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let size = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let start = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let prot = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new shared mapping at an address of the kernel's choice; nothing else refers to it.
        let p = unsafe { libc::mmap(std::ptr::null_mut(), size, prot, libc::MAP_SHARED, file.as_raw_fd(), start) };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(p.cast::<u8>()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { base, len: size, writable })
    }

    /// Whether [`GuestMemory::write`] is allowed.
    pub fn writable(&self) -> bool {
        self.writable
    }

    fn check(&self, offset: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        (offset.checked_add(len)? <= self.len).then_some(offset)
    }

    /// Copies from the mapping; false (nothing copied) if the range is not inside it.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(mut at) = self.check(offset, buf.len()) else { return false };
        let mut rest = buf;
        while !rest.is_empty() {
            let n = if at.is_multiple_of(8) && rest.len() >= 8 { 8 } else { 1 };
            let (head, tail) = rest.split_at_mut(n);
            if n == 8 {
                head.copy_from_slice(&self.word(at).load(Ordering::Acquire).to_ne_bytes());
            } else {
                head[0] = self.byte(at).load(Ordering::Acquire);
            }
            at += n;
            rest = tail;
        }
        true
    }

    /// Copies into the mapping; false (nothing copied) if the range is not inside it or it is read-only.
    pub fn write(&self, offset: u64, data: &[u8]) -> bool {
        let Some(mut at) = self.check(offset, data.len()) else { return false };
        if !self.writable {
            return false;
        }
        let mut rest = data;
        while !rest.is_empty() {
            let n = if at.is_multiple_of(8) && rest.len() >= 8 { 8 } else { 1 };
            let (head, tail) = rest.split_at(n);
            match <[u8; 8]>::try_from(head) {
                Ok(word) => self.word(at).store(u64::from_ne_bytes(word), Ordering::Release),
                Err(_) => self.byte(at).store(head[0], Ordering::Release),
            }
            at += n;
            rest = tail;
        }
        true
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.len);
        // SAFETY: inside the mapping (checked by the callers), aligned, and the mapping lives as long as self.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: inside the mapping (checked by the callers), which lives as long as self.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(at)) }
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` got; no reference into it outlives self.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
