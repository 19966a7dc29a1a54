// SPDX-License-Identifier: GPL-2.0
//! Accounting of pinned pages to a process: `mm->pinned_vm` against `RLIMIT_MEMLOCK`,
//! and the capability checks of the calling task.

use kernel::{
    bindings,
    mm::{Mm, MmWithUser},
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
    },
};

/// A capability of the calling task.
#[derive(Clone, Copy)]
pub(crate) enum Capability {
    /// May configure the network.
    NetAdmin,
    /// May administer the system.
    SysAdmin,
    /// May exceed `RLIMIT_MEMLOCK`.
    IpcLock,
}

/// Whether the calling task has `cap`.
pub(crate) fn capable(cap: Capability) -> bool {
    let cap = match cap {
        Capability::NetAdmin => bindings::CAP_NET_ADMIN,
        Capability::SysAdmin => bindings::CAP_SYS_ADMIN,
        Capability::IpcLock => bindings::CAP_IPC_LOCK,
    };
    // SAFETY: Always safe in process context; `cap` is a valid capability.
    unsafe { bindings::capable(cap as c_int) }
}

/// The pinned-page account of an address space.
pub(crate) struct MemLock {
    mm: ARef<Mm>,
    limit: i64,
}

impl MemLock {
    /// The account of the calling process. Its limit is `RLIMIT_MEMLOCK` as it is now,
    /// none with `CAP_IPC_LOCK`.
    pub(crate) fn of_current(mm: &MmWithUser) -> Self {
        let limit = if capable(Capability::IpcLock) {
            i64::MAX
        } else {
            let task = kernel::task::Task::current_raw();
            // SAFETY: `task` is the current task, whose `signal` is valid; the limit may
            // change while it is read, which a single volatile load copes with.
            let bytes = unsafe {
                (&raw const (*(*task).signal).rlim[bindings::RLIMIT_MEMLOCK as usize].rlim_cur)
                    .read_volatile()
            };
            (bytes >> PAGE_SHIFT) as i64
        };
        let mm: &Mm = mm;
        Self {
            mm: ARef::from(mm),
            limit,
        }
    }

    /// Pages that the process may have pinned at all.
    pub(crate) fn limit(&self) -> u64 {
        self.limit as u64
    }

    fn counter(&self) -> &Atomic<i64> {
        // SAFETY: The `mm_struct` lives as long as `self.mm`; all accesses to its
        // `pinned_vm` are atomic.
        unsafe {
            Atomic::from_ptr(
                (&raw mut (*self.mm.as_raw()).__bindgen_anon_1.pinned_vm.counter).cast::<i64>(),
            )
        }
    }

    /// Adds `pages` if the limit allows `pages` and `spare` more.
    pub(crate) fn charge(&self, pages: u64, spare: u64) -> bool {
        let most = self.limit.saturating_sub((pages + spare) as i64);
        let pages = pages as i64;
        if self.counter().fetch_add(pages, Relaxed) > most {
            self.counter().fetch_sub(pages, Relaxed);
            return false;
        }
        true
    }

    /// Takes `pages` off again.
    pub(crate) fn uncharge(&self, pages: u64) {
        self.counter().fetch_sub(pages as i64, Relaxed);
    }
}
