// SPDX-License-Identifier: GPL-2.0
//! The address space of a context: what it is charged to, its pages, and the works that give them back.

use crate::{
    card::Card,
    kernel::{memlock::MemLock, mmu_notifier::Settle, workqueue},
    pages::{
        service::PageService,
        share::{Share, UserMm},
        space::Space,
    },
};
use core::ops::DerefMut;
use kernel::{
    impl_has_work,
    mm::{Mm, MmWithUser},
    new_spinlock, new_work,
    prelude::*,
    sync::{aref::ARef, Arc, SpinLock},
    workqueue::{Work, WorkItem},
};

/// The address space of one context, as the card has it.
#[pin_data]
pub(crate) struct AddressSpace {
    /// The page service.
    pub(crate) service: Arc<PageService>,
    /// The card.
    pub(crate) card: Arc<Card>,
    /// Its number.
    pub(crate) asid: u32,
    /// The process's address space, without holding it in use.
    pub(crate) mm: ARef<Mm>,
    /// Its account of pinned pages.
    pub(crate) memlock: MemLock,
    /// What the process has in all; its contexts have one.
    pub(crate) share: Arc<Share>,
    /// Pages and page requests.
    #[pin]
    space: SpinLock<Space>,
    /// Registration with the memory manager; there from [`Self::open`] to [`Self::close`].
    #[pin]
    notifier: SpinLock<Option<Arc<dyn Settle>>>,
    #[pin]
    reap: Work<AddressSpace, 1>,
    #[pin]
    revoke: Work<AddressSpace, 2>,
    #[pin]
    recheck: Work<AddressSpace, 3>,
}

impl_has_work! {
    impl HasWork<Self, 1> for AddressSpace { self.reap }
    impl HasWork<Self, 2> for AddressSpace { self.revoke }
    impl HasWork<Self, 3> for AddressSpace { self.recheck }
}

impl WorkItem<1> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_reap();
    }
}

impl WorkItem<2> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_revoke();
    }
}

impl WorkItem<3> for AddressSpace {
    type Pointer = Arc<AddressSpace>;

    fn run(this: Arc<AddressSpace>) {
        this.run_recheck();
    }
}

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

    /// Its pages and page requests.
    pub(crate) fn lock(&self) -> impl DerefMut<Target = Space> + '_ {
        self.space.lock()
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

    /// Gives all pages back, and the registration. No request comes any more.
    pub(crate) fn close(self: &Arc<Self>) {
        self.revoke_all();
        // A revocation that firmware is being told of must not name the next owner of
        // the address space number.
        workqueue::cancel::<_, 2>(self);
        let notifier = self.notifier.lock().take();
        drop(notifier);
        self.service.remove_space(self.asid);
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
