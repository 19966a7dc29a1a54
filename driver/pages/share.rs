// SPDX-License-Identifier: GPL-2.0
//! A process's total of a card's pages, over all its contexts.

use crate::{kernel::users, pages::budget::Budget};
use core::ops::Deref;
use kernel::{
    mm::{Mm, MmWithUser},
    new_spinlock,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, SpinLock,
    },
};

/// Cards that one driver looks after.
pub(crate) const MAX_CARDS: usize = 16;

/// What a process has of each card.
pub(crate) type Shares = [Option<Arc<Share>>; MAX_CARDS];

/// What a process has of a card in all, whatever the number of its contexts. It stays as long
/// as page requests of it are worked on, also when no context is left.
#[pin_data]
pub(crate) struct Share {
    /// The process's address space, without holding it in use.
    pub(super) mm: ARef<Mm>,
    /// Its budget of pinned pages.
    #[pin]
    pub(crate) budget: SpinLock<Budget>,
    /// Its page requests.
    #[pin]
    pub(crate) works: SpinLock<Works>,
    /// Its pages of the pool for copies; changes under the pool's lock.
    pub(super) copies: Atomic<u64>,
    /// How often this driver holds the address space in use for this card
    /// ([`Share::user_mm`]). Changes under [`users::holds`].
    pub(super) held: Atomic<i32>,
}

/// Page requests of a process.
pub(crate) struct Works {
    /// Those whose work is queued or runs.
    pub(crate) running: u32,
    /// Others wait for the end of one.
    pub(crate) queued: bool,
}

impl Share {
    pub(crate) fn new(mm: ARef<Mm>, pages: u64) -> Result<Arc<Self>> {
        let works = Works {
            running: 0,
            queued: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                mm,
                budget <- new_spinlock!(Budget::new(pages), "berth_share"),
                works <- new_spinlock!(works, "berth_works"),
                copies: Atomic::new(0),
                held: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether it is the share of a process.
    pub(crate) fn is_of(&self, mm: &Mm) -> bool {
        core::ptr::eq(self.mm.as_raw(), mm.as_raw())
    }

    /// The process's address space, unless the process is gone.
    pub(super) fn user_mm(&self) -> Option<UserMm<'_>> {
        let _holds = users::holds();
        let mm = self.mm.mmget_not_zero()?;
        self.held.add(1, Relaxed);
        Some(UserMm { share: self, mm })
    }

    /// Whether this driver is the only user of the address space: the process is gone, but the
    /// memory manager reports that only when the last page fault has ended.
    pub(crate) fn is_orphaned(&self, shares_of: fn(&Mm) -> Shares) -> bool {
        if self.held.load(Relaxed) == 0 {
            return false;
        }
        let shares = shares_of(&self.mm);
        // A holder raises its count here last and lowers it first, so the process itself is one
        // user more while it lives.
        let _holds = users::holds();
        let held: i32 = shares.iter().flatten().map(|s| s.held.load(Relaxed)).sum();
        users::users(&self.mm) <= held
    }
}

/// The address space of a process, held in use.
pub(crate) struct UserMm<'a> {
    pub(super) share: &'a Share,
    pub(super) mm: ARef<MmWithUser>,
}

impl Deref for UserMm<'_> {
    type Target = MmWithUser;

    fn deref(&self) -> &MmWithUser {
        &self.mm
    }
}

impl Drop for UserMm<'_> {
    fn drop(&mut self) {
        // Before the reference itself goes.
        let _holds = users::holds();
        self.share.held.fetch_sub(1, Relaxed);
    }
}
