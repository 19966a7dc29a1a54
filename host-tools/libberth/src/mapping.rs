// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pieces of memory: mapped queues, buffers, files.

use std::fs::{File, FileType};
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::process::{Caller, Owner};
use crate::sys;

/// A mapping that is unmapped when dropped, by the process that made it.
#[derive(Debug)]
pub(crate) struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    owner: Owner,
    /// A child inherits it.
    inherited: bool,
}

// SAFETY: a mapping is only an address range; its users decide on access.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared access goes through raw pointers.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn map(fd: Option<(BorrowedFd<'_>, u64)>, len: usize, prot: i32, flags: i32, inherited: bool) -> io::Result<Self> {
        let owner = Owner::here()?;
        Ok(Self { ptr: sys::mmap(fd, len, prot, flags)?, len, owner, inherited })
    }

    /// Maps `len` bytes of the driver's `fd` shared, for reading and writing. A child does not have them.
    pub(crate) fn map_shared(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        Self::map(Some((fd, offset)), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, false)
    }

    /// As [`Mapping::map_shared`], for writing only as far as the host can express it.
    pub(crate) fn map_doorbell(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        Self::map(Some((fd, offset)), len, libc::PROT_WRITE, libc::MAP_SHARED, false)
    }

    /// Anonymous, zeroed, pageable memory.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(None, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, true)
    }

    /// A file's first `len` bytes.
    fn file(file: &File, len: usize, prot: i32, flags: i32) -> io::Result<Self> {
        Self::map(Some((file.as_fd(), 0)), len, prot, flags, true)
    }

    /// The process that made it.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// First byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Gives the memory up without unmapping it.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let ours = match self.owner.caller() {
            Caller::Owner => true,
            // A child does not inherit the mapping and may have memory of its own there.
            Caller::Copy => self.inherited,
            // It is still the parent's.
            Caller::Borrower => false,
        };
        if ours {
            // SAFETY: the mapping owns the mapping, and its users are gone with it.
            unsafe { sys::munmap(self.ptr, self.len) }
        }
    }
}

/// Rounds up to whole pages, at least one.
pub(crate) fn whole_pages(len: usize) -> Option<usize> {
    len.max(1).checked_next_multiple_of(sys::page_size())
}

/// Owned, page-aligned, pageable memory.
#[derive(Debug)]
pub struct Buffer {
    mapping: Mapping,
    len: usize,
}

impl Buffer {
    /// A zeroed buffer of `len` bytes.
    ///
    /// # Errors
    /// [`Error::Os`] when the address space or the process's limits do not allow it.
    pub fn new(len: usize) -> Result<Self> {
        let what = "allocate a buffer";
        let bytes = whole_pages(len).ok_or(Error::Invalid { what })?;
        let mapping = Mapping::anonymous(bytes).map_err(|source| Error::Os { what, source })?;
        Ok(Self { mapping, len })
    }

    /// A buffer that holds a copy of `data`.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub fn from_slice(data: &[u8]) -> Result<Self> {
        let mut buffer = Self::new(data.len())?;
        buffer.copy_from_slice(data);
        Ok(buffer)
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn leak(self) {
        self.mapping.leak();
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is at least `len` bytes, initialised by the kernel, and borrowed from us.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr(), self.len) }
    }
}

/// A file mapped read-only, to be sent without a copy: from the page cache, so that it may be larger than all memory. The mapping
/// is shared, because a page of a private one becomes a copy, of this process, when it is pinned.
///
/// The bytes are not handed out as a slice, because another process may change or truncate the file: the
/// card then sends what the file holds at that time, or the send fails (VC-9).
#[derive(Debug)]
pub struct FileMap {
    mapping: Option<Mapping>,
    len: usize,
}

impl FileMap {
    /// Maps the whole of `file` as long as it is now.
    ///
    /// Files of /proc and /sys claim to be regular but report a wrong length: the mapping has the reported length, or
    /// fails. Programs that take files from users should compare it with what can be read (as `berth send` does).
    ///
    /// # Errors
    /// [`Error::NotRegular`] for a directory, a device, a pipe, a socket; [`Error::Os`] when the file's length cannot
    /// be read or it cannot be mapped.
    pub fn new(file: &File) -> Result<Self> {
        Self::map(file, libc::PROT_READ, libc::MAP_SHARED)
    }

    /// As [`FileMap::new`], to be written to, which does not change the file.
    pub(crate) fn writable(file: &File) -> Result<Self> {
        Self::map(file, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)
    }

    fn map(file: &File, prot: i32, flags: i32) -> Result<Self> {
        let what = "map the file";
        let os = |source| Error::Os { what, source };
        let found = file.metadata().map_err(os)?;
        if !found.is_file() {
            return Err(Error::NotRegular { kind: kind(found.file_type()) });
        }
        let len = usize::try_from(found.len()).map_err(|_| Error::Invalid { what })?;
        // An empty mapping is not possible, and not needed.
        let mapping = if len == 0 { None } else { Some(Mapping::file(file, len, prot, flags).map_err(os)?) };
        Ok(Self { mapping, len })
    }

    /// Writes the bytes of a range, as they are in the mapping, to the same place of `file`.
    pub(crate) fn store(&self, file: &File, range: Range<usize>) -> Result<()> {
        let what = "store a range of a file";
        if range.start > range.end || range.end > self.len {
            return Err(Error::Invalid { what });
        }
        let Some(mapping) = &self.mapping else { return Ok(()) };
        let mut at = range.start;
        while at < range.end {
            // SAFETY: the range lies inside the mapping.
            let written = unsafe { sys::pwrite(file.as_fd(), mapping.as_ptr().add(at), range.end - at, at as u64) };
            match written {
                Ok(0) => return Err(Error::Os { what, source: io::ErrorKind::WriteZero.into() }),
                Ok(n) => at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Os { what, source }),
            }
        }
        Ok(())
    }

    /// Keeps the memory mapped for good: the card could still use it.
    pub(crate) fn leak(self) {
        if let Some(mapping) = self.mapping {
            mapping.leak();
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Virtual address of the first byte; 0 for an empty file.
    pub(crate) fn address(&self) -> u64 {
        self.mapping.as_ref().map_or(0, |r| r.as_ptr() as u64)
    }
}

/// The kind of file that a path names, in a user's words.
pub(crate) fn kind(file: FileType) -> &'static str {
    match file {
        f if f.is_file() => "a regular file",
        f if f.is_dir() => "a directory",
        f if f.is_fifo() => "a FIFO (a pipe)",
        f if f.is_socket() => "a socket",
        f if f.is_char_device() => "a character device",
        f if f.is_block_device() => "a block device",
        f if f.is_symlink() => "a symbolic link",
        _ => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f5_only_a_regular_file_is_mapped() {
        for (path, says) in [("/dev/zero", "character device"), ("/", "directory")] {
            let error = FileMap::new(&File::open(path).unwrap()).unwrap_err();
            assert!(matches!(&error, Error::NotRegular { kind } if kind.contains(says)), "{error}");
        }
        let map = FileMap::new(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(!map.is_empty());
    }

    #[test]
    fn what_is_written_to_a_mapping_is_in_the_file_when_it_is_stored() {
        let path = std::env::temp_dir().join(format!("berth-mapping-{}", std::process::id()));
        std::fs::write(&path, vec![1; 9000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = FileMap::writable(&file).unwrap();
        // SAFETY: inside the mapping, to which nothing else refers.
        unsafe { (map.address() as *mut u8).add(4000).write_bytes(2, 300) };
        assert_eq!(std::fs::read(&path).unwrap(), vec![1; 9000]);
        map.store(&file, 4000..4200).unwrap();
        let mut expected = vec![1; 9000];
        expected[4000..4200].fill(2);
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        map.store(&file, 9000..9000).unwrap();
        assert!(matches!(map.store(&file, 8999..9001), Err(Error::Invalid { .. })));
        // The file has become shorter: an error, and no signal.
        file.set_len(0).unwrap();
        assert!(matches!(map.store(&file, 8192..9000), Err(Error::Os { .. })));
        let empty = FileMap::new(&File::create(&path).unwrap()).unwrap();
        empty.store(&file, 0..0).unwrap();
        assert!(matches!(empty.store(&file, 0..1), Err(Error::Invalid { .. })));
        std::fs::remove_file(&path).unwrap();
    }
}
