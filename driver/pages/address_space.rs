// SPDX-License-Identifier: GPL-2.0
//! Making and opening the address space of a context.

use crate::{
    kernel::{memlock::MemLock, mmu_notifier::Settle},
    pages::{
        share::{Share, UserMm},
        AddressSpace, PageService, Space,
    },
};
use kernel::{
    mm::{Mm, MmWithUser},
    new_spinlock, new_work,
    prelude::*,
    sync::{aref::ARef, Arc},
};

impl AddressSpace {
    /// Makes the address space number `asid` of the calling process, which `mm` belongs to.
    pub(crate) fn new(
        service: &Arc<PageService>,
        mm: &MmWithUser,
        asid: u32,
        share: Arc<Share>,
    ) -> Result<Arc<Self>> {
        let space = Space::new(service.context_pages)?;
        let grabbed: ARef<Mm> = ARef::from(&**mm);
        let memlock = MemLock::of_current(mm);
        Arc::pin_init(
            pin_init!(Self {
                service: service.clone(),
                card: service.card.clone(),
                asid,
                mm: grabbed,
                memlock,
                share,
                space <- new_spinlock!(space, "berth_space"),
                notifier <- new_spinlock!(None, "berth_notifier"),
                reap <- new_work!("berth_reap"),
                revoke <- new_work!("berth_revoke"),
                recheck <- new_work!("berth_recheck"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets pages be asked for from now on: the memory manager reports changes, and `notifier` says
    /// when they are over.
    pub(crate) fn open(self: &Arc<Self>, notifier: Arc<dyn Settle>) {
        *self.notifier.lock() = Some(notifier);
        self.service.add_space(self);
    }

    /// Registration with the memory manager; none when the process is gone.
    pub(super) fn notifier(&self) -> Option<Arc<dyn Settle>> {
        self.notifier.lock().clone()
    }

    /// Forbids pinning from now on; `false` if it was forbidden before.
    pub(crate) fn begin_close(&self) -> bool {
        !core::mem::replace(&mut self.lock().closing, true)
    }

    /// Whether no pages are pinned any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.lock().closing
    }

    /// The process's address space, unless the process is gone.
    pub(crate) fn user_mm(&self) -> Option<UserMm<'_>> {
        self.share.user_mm()
    }

    /// Has pages that were evicted unpinned.
    pub(super) fn reap_later(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue::<_, 1>(self.clone());
    }

    /// Has firmware told of a revocation, and the pages unpinned.
    pub(crate) fn revoke_later(self: &Arc<Self>) {
        let _ = self.card.queue.enqueue::<_, 2>(self.clone());
    }

    /// Has suspect pages looked at.
    pub(super) fn recheck_later(self: &Arc<Self>) {
        let _ = self.service.faults.enqueue::<_, 3>(self.clone());
    }
}
