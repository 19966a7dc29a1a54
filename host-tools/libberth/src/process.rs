// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that made an object.
//!
//! The driver binds a context to the process that makes it: queues and the doorbell page are not inherited by a child
//! (`VM_DONTCOPY`), but the Rust objects that stand for them are. In a child they must not touch their addresses,
//! where the child may have memory of its own by then, nor end what the parent uses.
//!
//! A page that the kernel clears in a child (`MADV_WIPEONFORK`) tells the two apart without a system call, however the
//! child was made. Only a child that shares the parent's memory (`vfork`) sees the same page. Calls that go to the
//! kernel anyway also compare the process number, which differs.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::sys;

/// The page, with a number that tells this process from all its ancestors; 0 in a process without a number.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// The last number given by this process and its ancestors.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// The page, mapped by the first caller. It is never unmapped: a process has one.
fn page() -> io::Result<&'static AtomicU64> {
    let known = PAGE.load(Ordering::Acquire);
    // SAFETY: what is stored there is a page that is never unmapped, whose first word is accessed atomically only.
    if let Some(page) = unsafe { known.as_ref() } {
        return Ok(page);
    }
    let bytes = sys::page_size();
    let fresh = sys::mmap(None, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)?;
    // SAFETY: the page is ours, and holds nothing yet.
    let wiped = unsafe { libc::madvise(fresh.as_ptr().cast(), bytes, libc::MADV_WIPEONFORK) };
    let error = io::Error::last_os_error();
    let page: NonNull<AtomicU64> = fresh.cast();
    if wiped == 0 && PAGE.compare_exchange(null_mut(), page.as_ptr(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
        // SAFETY: as above.
        return Ok(unsafe { page.as_ref() });
    }
    // SAFETY: nobody has seen this page.
    unsafe { sys::munmap(fresh, bytes) };
    match wiped {
        0 => self::page(),
        _ => Err(error),
    }
}

/// The number in the page; 0 if this process has none. No system call, and fit for a signal handler.
pub(crate) fn number() -> u64 {
    // SAFETY: as in `page`.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }.map_or(0, |page| page.load(Ordering::Relaxed))
}

fn pid() -> u32 {
    std::process::id()
}

/// The process that made an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    number: u64,
    pid: u32,
}

/// How the calling process is related to the one that made an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// It is that process.
    Owner,
    /// It has a copy of that process's memory.
    Copy,
    /// It uses that process's memory itself, until it executes another program (`vfork`).
    Borrower,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// The kernel gives no page, or does not know `MADV_WIPEONFORK` (Linux before 4.14).
    pub(crate) fn here() -> io::Result<Self> {
        let page = page()?;
        if page.load(Ordering::Relaxed) == 0 {
            let fresh = GIVEN.fetch_add(1, Ordering::Relaxed) + 1;
            // Another thread may have been first.
            let _ = page.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(Self { number: page.load(Ordering::Relaxed), pid: pid() })
    }

    /// The number of its memory; not 0.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the caller has the memory of this process, not a copy. No system call.
    pub(crate) fn has_memory(&self) -> bool {
        number() == self.number
    }

    /// Relation of the caller.
    pub(crate) fn caller(&self) -> Caller {
        match self.has_memory() {
            false => Caller::Copy,
            true if pid() == self.pid => Caller::Owner,
            true => Caller::Borrower,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs `child` in a forked process, which must not allocate or lock what other threads may have locked; whether it
    /// answered `true`.
    pub(crate) fn in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only does what the caller gives it, and ends without destructors.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => {
                let code = i32::from(!child());
                // SAFETY: ends the process.
                unsafe { libc::_exit(code) }
            }
            pid => {
                let mut status = 0;
                // SAFETY: `status` is a valid place for the result.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }

    #[test]
    fn a_child_is_told_from_its_parent_and_gets_a_number_of_its_own() {
        let owner = Owner::here().unwrap();
        assert_eq!(owner, Owner::here().unwrap());
        assert_eq!(owner.caller(), Caller::Owner);
        assert!(in_child(|| {
            let child = owner.caller() == Caller::Copy && !owner.has_memory();
            let own = Owner::here().unwrap();
            child
                && own != owner
                && own.caller() == Caller::Owner
                && in_child(|| own.caller() == Caller::Copy && owner.caller() == Caller::Copy)
        }));
        assert_eq!(owner.caller(), Caller::Owner);
    }

    #[test]
    fn a_child_that_borrows_the_memory_is_told_by_its_process_number() {
        let owner = Owner::here().unwrap();
        let seen = std::sync::atomic::AtomicU64::new(0);
        // What vfork does, with a stack of the child's own.
        extern "C" fn child(arg: *mut libc::c_void) -> i32 {
            // SAFETY: the parent waits, and keeps what the pointer is to.
            let (owner, seen) = unsafe { &*arg.cast::<(Owner, *const AtomicU64)>() };
            let answer = match owner.caller() {
                Caller::Owner => 1,
                Caller::Copy => 2,
                Caller::Borrower => 3,
            };
            // SAFETY: as above.
            unsafe { (**seen).store(answer, Ordering::Relaxed) };
            0
        }
        let mut stack = vec![0u8; 256 << 10];
        let arg = (owner, &raw const seen);
        // SAFETY: the stack is large enough, aligned below, and lives until the child has ended.
        let top = unsafe { stack.as_mut_ptr().add(stack.len() & !15) };
        let top = top.map_addr(|a| a & !15);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: as above; the child only reads `arg` and writes `seen`.
        let pid = unsafe { libc::clone(child, top.cast(), flags, (&raw const arg).cast_mut().cast()) };
        assert!(pid > 0);
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(seen.load(Ordering::Relaxed), 3);
    }
}
