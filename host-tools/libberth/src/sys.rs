// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls, each wrapped once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// ioctl with a struct that is copied in and out whole.
///
/// # Safety
/// `T` must be the struct that `request` encodes, and every pointer in it must be valid for what the
/// request does with it.
pub(crate) unsafe fn ioctl<T>(fd: BorrowedFd<'_>, request: u32, arg: &mut T) -> io::Result<()> {
    debug_assert_eq!((request >> 16) & 0x3fff, size_of::<T>() as u32);
    // SAFETY: `arg` is valid for reads and writes of the size that `request` encodes; the caller
    // vouches for pointers inside it.
    let ret = unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(arg)) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Maps `len` bytes; `fd` None means anonymous private memory.
pub(crate) fn mmap(fd: Option<(BorrowedFd<'_>, u64)>, len: usize, prot: i32, flags: i32) -> io::Result<NonNull<u8>> {
    let (raw, offset, anon) = match fd {
        Some((fd, offset)) => (fd.as_raw_fd(), offset, 0),
        None => (-1, 0, libc::MAP_ANONYMOUS),
    };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: a fresh mapping at an address that the kernel chooses touches no existing memory.
    let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags | anon, raw, offset) };
    if ptr == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(ptr.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Unmaps what [`mmap`] gave.
///
/// # Safety
/// Nothing may refer to the range any more.
pub(crate) unsafe fn munmap(ptr: NonNull<u8>, len: usize) {
    // SAFETY: the caller gives the whole of a mapping that nothing refers to.
    let ret = unsafe { libc::munmap(ptr.as_ptr().cast(), len) };
    debug_assert_eq!(ret, 0);
}

/// Writes `len` bytes from `from` on to a file at `offset`; answers how many were written.
///
/// # Safety
/// The range must lie in mappings of this process. What cannot be read there, as behind the end of a mapped file, is
/// an error.
pub(crate) unsafe fn pwrite(fd: BorrowedFd<'_>, from: *const u8, len: usize, offset: u64) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: the caller vouches for the range, which only the kernel reads.
    let written = unsafe { libc::pwrite(fd.as_raw_fd(), from.cast(), len, offset) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Makes an eventfd, non-blocking, closed on exec.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes the count of an eventfd, 0 if it is not signalled.
pub(crate) fn eventfd_take(fd: BorrowedFd<'_>) -> u64 {
    let mut value = 0u64;
    // SAFETY: 8 bytes are written to an 8-byte variable.
    let n = unsafe { libc::read(fd.as_raw_fd(), std::ptr::from_mut(&mut value).cast(), 8) };
    if n == 8 { value } else { 0 }
}

/// Signals an eventfd.
pub(crate) fn eventfd_signal(fd: BorrowedFd<'_>) {
    let value = 1u64;
    // SAFETY: 8 bytes are read from an 8-byte variable.
    unsafe { libc::write(fd.as_raw_fd(), std::ptr::from_ref(&value).cast(), 8) };
}

/// Waits until one of the descriptors is readable; answers which, none after the time limit or a signal.
pub(crate) fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polls = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // Round up, so that a wait of less than a millisecond does not spin.
    let ms = timeout.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: `polls` is an array of N pollfd.
    let ret = unsafe { libc::poll(polls.as_mut_ptr(), N as libc::nfds_t, ms) };
    if ret < 0 {
        let err = io::Error::last_os_error();
        return if err.kind() == io::ErrorKind::Interrupted { Ok([false; N]) } else { Err(err) };
    }
    Ok(polls.map(|p| p.revents != 0))
}

/// Fills `out` with random bytes.
pub(crate) fn random(out: &mut [u8]) -> io::Result<()> {
    let mut left = out;
    while !left.is_empty() {
        // SAFETY: the range is ours to write.
        let n = unsafe { libc::getrandom(left.as_mut_ptr().cast(), left.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => left = &mut left[n..],
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Bytes of a page of this host.
pub(crate) fn page_size() -> usize {
    // SAFETY: no memory is involved.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(n).unwrap_or(4096)
}
