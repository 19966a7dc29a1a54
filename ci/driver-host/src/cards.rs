// SPDX-License-Identifier: GPL-2.0
//! The cards of a test, by their numbers.

use crate::memory::surroundings;
use crate::pages::share::Shares;
use crate::process::Registry;
use kernel::mm::Mm;
use std::sync::Arc;

/// What processes have of the card that a device node belongs to: there is one card.
pub(crate) fn registry_by_instance(instance: usize) -> Option<Arc<Registry>> {
    let registry = surroundings().card.borrow().clone();
    registry.filter(|registry| registry.card.instance == instance)
}

/// What the process of an address space has of each card.
pub(crate) fn shares_of(mm: &Mm) -> Shares {
    let surroundings = surroundings();
    let cards = surroundings.card.borrow().iter().chain(&*surroundings.others.borrow()).cloned().collect::<Vec<_>>();
    std::array::from_fn(|n| cards.get(n)?.shares.lock().iter().find(|s| s.is_of(mm)).cloned())
}
