// SPDX-License-Identifier: GPL-2.0
//! Who has an address space in use.

use kernel::mm::Mm;

#[must_use]
pub(crate) fn holds() -> impl Sized {
    crate::memory::holds()
}

pub(crate) fn users(mm: &Mm) -> i32 {
    // SAFETY: The reference says that the structure is there. An aligned word, read once.
    unsafe { (&raw const (*mm.as_raw()).__bindgen_anon_1.mm_users.counter).read_volatile() }
}
