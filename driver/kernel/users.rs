// SPDX-License-Identifier: GPL-2.0
//! Users of an address space.

use kernel::{mm::Mm, prelude::*, sync::global_lock};

global_lock! {
    // SAFETY: Initialised by `init`, before anybody asks for it.
    unsafe(uninit) static HOLDS: SpinLock<()> = ();
}

/// Makes [`holds`] usable.
///
/// # Safety
///
/// Must be called once, before anything else of this file.
pub(crate) unsafe fn init() {
    // SAFETY: Called once, as the caller says.
    unsafe { HOLDS.init() };
}

/// While the guard lives, the driver neither takes nor drops a hold on the use of any address
/// space, for any card.
#[must_use]
pub(crate) fn holds() -> impl Sized {
    HOLDS.lock()
}

/// The number of users of an address space: its process, this driver, and others.
pub(crate) fn users(mm: &Mm) -> i32 {
    // SAFETY: The reference says that the structure is there. An aligned word, read once.
    unsafe { (&raw const (*mm.as_raw()).__bindgen_anon_1.mm_users.counter).read_volatile() }
}
