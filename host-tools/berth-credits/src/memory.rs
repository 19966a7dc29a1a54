// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory that two processes share, and how it gets from one to the other. The crate's only unsafe code.
//!
//! The file behind it can change its size no more (seals), so that no access to the mapping can fail. All of it is
//! atomics: the peer may write anywhere at any time.

use crate::ring::Ring;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU8;

/// What one end writes for the other.
#[repr(C, align(64))]
pub struct Outbox {
    /// Messages about credits.
    pub messages: Ring<512>,
    /// Receives that this end posted: byte offset in its memory, bytes.
    pub receives: Ring<512>,
    /// Pieces that this end sent, one for each receive of the other's: bytes, bytes that follow.
    pub pieces: Ring<512>,
}

/// Which of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The one that made the memory.
    First,
    /// The one that joined.
    Second,
}

/// Bytes of memory that each end receives into: at most 1 GiB each.
pub type Sizes = [u32; 2];

/// Most bytes that an end receives into.
const MOST: u32 = 1 << 30;

/// A mapping of the shared memory: an [`Outbox`] of each end, then what each end receives into.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    total: usize,
    sizes: Sizes,
}

// SAFETY: the mapping belongs to no thread, and what it holds is reached through atomics only.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: `base` and `total` are of our own mapping, and all references into it borrow `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.total) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Area {
    fn total(sizes: Sizes) -> Result<usize> {
        if sizes.iter().any(|size| *size > MOST) {
            return Err(Error::new(ErrorKind::InvalidInput, "more than 1 GiB to receive into"));
        }
        let bytes = sizes.iter().try_fold(2 * size_of::<Outbox>(), |sum, size| sum.checked_add(*size as usize));
        bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| ErrorKind::OutOfMemory.into())
    }

    /// Makes new memory, all zero, and the file that it can be mapped from.
    pub fn create(sizes: Sizes) -> Result<(Self, OwnedFd)> {
        let total = Self::total(sizes)?;
        let file = memfd_create(c"berth-credits", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let file = File::from(file);
        file.set_len(total as u64)?;
        fcntl_add_seals(&file, Self::seals())?;
        Ok((Self::map(&file, total, sizes)?, file.into()))
    }

    /// Maps memory that another process made. `sizes` is what that process says; the file must agree.
    pub fn open(file: OwnedFd, sizes: Sizes) -> Result<Self> {
        let total = Self::total(sizes)?;
        let file = File::from(file);
        let seals = fcntl_get_seals(&file)?;
        if !seals.contains(Self::seals()) || file.metadata()?.len() != total as u64 {
            return Err(Error::new(
                ErrorKind::InvalidData,
                "shared memory of another size, or that may change its size",
            ));
        }
        Self::map(&file, total, sizes)
    }

    fn seals() -> SealFlags {
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
    }

    fn map(file: &File, total: usize, sizes: Sizes) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe { mmap(null_mut(), total, protection, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { base, total, sizes })
    }

    /// What `end` writes.
    pub fn outbox(&self, end: End) -> &Outbox {
        let at = end as usize * size_of::<Outbox>();
        // SAFETY: both outboxes lie at the start of the mapping, which is aligned to a page and lives as long as `self`.
        // They consist of atomics, for which every content is valid.
        unsafe { self.base.add(at).cast::<Outbox>().as_ref() }
    }

    /// What `end` receives into.
    pub fn received(&self, end: End) -> &[AtomicU8] {
        let [first, second] = self.sizes.map(|size| size as usize);
        let at = 2 * size_of::<Outbox>();
        let (at, len) = match end {
            End::First => (at, first),
            End::Second => (at + first, second),
        };
        // SAFETY: `total` is the sum of both outboxes and both sizes, so the range lies in the mapping, which lives as long
        // as `self`. Every content is a valid atomic.
        unsafe { std::slice::from_raw_parts(self.base.add(at).cast::<AtomicU8>().as_ptr(), len) }
    }
}

/// Copies the parts to `to`, one behind the other; false if they are too short for it. These are the copies of the model's
/// `Local` (VC-11).
pub fn gather(to: &[AtomicU8], parts: &mut dyn Iterator<Item = &[u8]>) -> bool {
    let mut left = to;
    for part in parts {
        let (now, later) = left.split_at(part.len().min(left.len()));
        store(now, part);
        left = later;
    }
    left.is_empty()
}

/// Copies `from` to the start of `to`, as far as both go.
pub fn store(to: &[AtomicU8], from: &[u8]) {
    let len = to.len().min(from.len());
    // SAFETY: both ranges have `len` bytes. Atomics may be written through a shared reference.
    unsafe { copy(to.as_ptr().cast_mut().cast(), from.as_ptr(), len) }
}

/// Copies the start of `from` to `to`, as far as both go.
pub fn load(to: &mut [u8], from: &[AtomicU8]) {
    let len = to.len().min(from.len());
    // SAFETY: as in `store`.
    unsafe { copy(to.as_mut_ptr(), from.as_ptr().cast(), len) }
}

/// Copies bytes of which some are atomics. The processor moves them, a line at a time: a loop of atomic loads and stores takes
/// an instruction or more for each word, and the compiler makes nothing better of it.
///
/// # Safety
/// `to` may be written and `from` read, `len` bytes each, which do not overlap. Only those that are atomics are used by others.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: as our caller's; the direction flag is clear (the ABI says so). What other processes do to these bytes meanwhile
    // the compiler does not see, and assumes nothing about memory here.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

/// The same.
///
/// # Safety
/// The same.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    for n in 0..len {
        // SAFETY: `n` lies in both ranges. A byte of the program's own may be used as an atomic, too.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(n).cast_mut()).load(std::sync::atomic::Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(n)).store(byte, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// Sends `bytes` and a file over a socket.
pub fn send_file(socket: &UnixStream, bytes: &[u8], file: &OwnedFd) -> Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)? == bytes.len() {
        true => Ok(()),
        false => Err(ErrorKind::WriteZero.into()),
    }
}

/// Receives exactly `bytes` and one file.
pub fn receive_file(socket: &UnixStream, bytes: &mut [u8]) -> Result<OwnedFd> {
    let want = bytes.len();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(new) = message {
            files.extend(new);
        }
    }
    match (received.bytes == want, files.pop(), files.is_empty()) {
        (true, Some(file), true) => Ok(file),
        _ if received.bytes == 0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Err(Error::new(ErrorKind::InvalidData, "no offer of shared memory")),
    }
}

#[cfg(test)]
mod tests {
    use super::gather;
    use berth_protocol::memory::context::{Chain, Choice, Copy, Local, Place};
    use berth_random::Rng;
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// Where the sender's memory begins, as the model has it.
    const BASE: u64 = 0x1000;

    #[test]
    fn vc_11_bytes_are_copied_as_the_contexts_of_both_processes_say() {
        let seed = berth_random::seed(11);
        let mut rng = Rng(seed);
        for _ in 0..1000 {
            let memory = rng.bytes(200);
            let wanted = rng.below(100) as usize;
            let (mut from, mut to, mut local) = (Chain::<8>::new(0), Chain::<1>::new(0), Local::new(0));
            let places: Vec<_> = (0..rng.below(6))
                .map(|_| {
                    let at = rng.below(200);
                    Place::at(BASE + at, rng.below((200 - at).min(50) + 1) as u32)
                })
                .collect();
            from.push(&places, Choice::default()).unwrap();
            to.push(&[Place::at(0, wanted as u32)], Choice::default()).unwrap();
            let mut expected = vec![0; wanted];
            while let Some(Copy { from: source, to: target, len, .. }) = local.next(&from, &to, u32::MAX) {
                let source = (source - BASE) as usize;
                expected[target as usize..][..len as usize].copy_from_slice(&memory[source..][..len as usize]);
                assert!(local.copied(len.into(), &mut from, &mut to));
            }

            let buffer: Vec<_> = (0..wanted).map(|_| AtomicU8::new(0)).collect();
            let mut parts = places.iter().map(|place| &memory[(place.base - BASE) as usize..][..place.len as usize]);
            let whole = gather(&buffer, &mut parts);
            let copied: Vec<_> = buffer.iter().map(|byte| byte.load(Relaxed)).collect();
            assert_eq!((whole, copied), (local.done() == wanted as u64, expected), "seed {seed}");
        }
    }
}
