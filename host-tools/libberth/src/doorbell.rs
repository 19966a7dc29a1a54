// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The mapped doorbell page, and what happens when it goes.
//!
//! When the card is removed or the driver unbound, the driver takes the doorbell page out of the process, because
//! another process may soon own it. A store to it then raises SIGBUS. The event that reports the loss may still be on
//! its way, so the library catches that signal, for addresses of doorbell pages only: it puts ordinary memory in the
//! page's place, where stores do nothing, and the next wait answers `DeviceLost`. Any other SIGBUS goes where it would
//! have gone before.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use berth_abi::card::NUM_UARS;
use berth_queue::Doorbells;

use crate::mapping::Mapping;
use crate::process::{self, Caller};

/// Bytes of a doorbell page.
pub(crate) const DOORBELL_PAGE: usize = 4096;

/// Where a doorbell page is.
struct Page {
    address: AtomicUsize,
    /// Number of the process whose page it is ([`process::number`]): a child inherits this table, but no page. 0: no
    /// page; `BUSY`: not yet a page.
    process: AtomicU64,
}

const BUSY: u64 = u64::MAX;

/// The process's doorbell pages: as many as a card has. A context beyond their number, on a second card, is not
/// protected.
static PAGES: [Page; NUM_UARS as usize] =
    [const { Page { address: AtomicUsize::new(0), process: AtomicU64::new(0) } }; NUM_UARS as usize];

impl Page {
    /// Takes a place that is free, or that a parent's page has.
    fn take(&self, address: usize, process: u64) -> bool {
        let before = self.process.load(Ordering::Relaxed);
        if before == BUSY
            || before == process
            || self.process.compare_exchange(before, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        self.address.store(address, Ordering::Relaxed);
        self.process.store(process, Ordering::Release);
        true
    }

    /// Whether this is the page at `address`, and the calling process's.
    fn is_at(&self, address: usize) -> bool {
        let process = self.process.load(Ordering::Acquire);
        process != 0 && process == process::number() && self.address.load(Ordering::Relaxed) == address
    }
}

/// The earlier disposition of SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // Only calls that are safe in a signal handler from here on.
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    let page = unsafe { (*info).si_addr() } as usize & !(DOORBELL_PAGE - 1);
    if PAGES.iter().any(|p| p.is_at(page)) {
        // SAFETY: errno is this thread's own.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: replaces exactly a doorbell page, which only `Doorbells` writes; so nothing is lost.
        let ptr = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                DOORBELL_PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        if ptr != libc::MAP_FAILED {
            return;
        }
    }
    let before = BEFORE.get().map_or((libc::SIG_DFL, 0), |b| (b.sa_sigaction, b.sa_flags));
    match before {
        (libc::SIG_DFL | libc::SIG_IGN, _) => {
            // SAFETY: no memory is involved. The instruction is repeated, and the default action ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        (handler, flags) if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the address is that of such a function.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        (handler, _) => {
            // SAFETY: without SA_SIGINFO the address is that of such a function.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

fn catch_sigbus() {
    BEFORE.get_or_init(|| {
        // SAFETY: all-zero is a valid value of these C structs.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both structs are valid, and the handler keeps to what a handler may do.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) };
        before
    });
}

/// A mapped doorbell page.
#[derive(Debug)]
pub(crate) struct DoorbellPage {
    doorbells: Doorbells,
    mapping: Mapping,
}

impl DoorbellPage {
    /// Maps the page.
    pub(crate) fn map(fd: BorrowedFd<'_>, offset: u64) -> io::Result<Self> {
        Ok(Self::new(Mapping::map_doorbell(fd, offset, DOORBELL_PAGE)?))
    }

    /// A page over any memory of its size.
    pub(crate) fn new(mapping: Mapping) -> Self {
        debug_assert_eq!(mapping.len(), DOORBELL_PAGE);
        catch_sigbus();
        let (address, process) = (mapping.as_ptr() as usize, mapping.owner().number());
        let _ = PAGES.iter().find(|p| p.take(address, process));
        let page = NonNull::new(mapping.as_ptr()).expect("a mapping is never null");
        // SAFETY: the mapping is a page, and lives beside the value.
        let doorbells = unsafe { Doorbells::new(page) };
        Self { doorbells, mapping }
    }

    pub(crate) fn doorbells(&self) -> &Doorbells {
        &self.doorbells
    }
}

impl Drop for DoorbellPage {
    fn drop(&mut self) {
        if self.mapping.owner().caller() != Caller::Owner {
            return;
        }
        for page in PAGES.iter().filter(|p| p.is_at(self.doorbells.page() as usize)) {
            page.process.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn store_to_a_page_that_has_gone_does_nothing() {
        // A mapping of a file that becomes shorter: its page has gone as a doorbell page goes.
        let path = std::env::temp_dir().join(format!("berth-doorbell-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(DOORBELL_PAGE as u64).unwrap();
        let page = DoorbellPage::new(Mapping::map_shared(file.as_fd(), 0, DOORBELL_PAGE).unwrap());
        let word = page.doorbells().page().cast::<u64>();
        // SAFETY: inside the page.
        unsafe { word.write_volatile(1) };
        file.set_len(0).unwrap();
        // SAFETY: inside the page, which is replaced when it is touched.
        unsafe { word.write_volatile(2) };
        // SAFETY: as above.
        assert_eq!(unsafe { word.read_volatile() }, 2);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
