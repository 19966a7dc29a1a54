// SPDX-License-Identifier: GPL-2.0
//! The cards of this module, by their numbers.

use crate::{
    kernel::workqueue::OwnedQueue,
    pages::share::{Shares, MAX_CARDS},
    process::Registry,
};
use ::kernel::{
    mm::Mm,
    prelude::*,
    sync::{global_lock, Arc},
};

/// What the cards of this module share.
pub(crate) struct Global {
    /// Work queues: for page requests the second one.
    pub(crate) queues: Option<(Arc<OwnedQueue>, Arc<OwnedQueue>)>,
    /// The module, once its cards are looked for.
    pub(crate) module: Option<&'static ThisModule>,
    /// For each instance, whether it is taken.
    pub(crate) taken: [bool; MAX_CARDS],
    /// For each instance, the card while it may be opened.
    pub(crate) cards: [Option<Arc<Registry>>; MAX_CARDS],
}

global_lock! {
    // SAFETY: Initialised in the module's initialiser, before the driver is registered.
    pub(crate) unsafe(uninit) static GLOBAL: Mutex<Global> = Global {
        queues: None,
        module: None,
        taken: [false; MAX_CARDS],
        cards: [const { None }; MAX_CARDS],
    };
}

/// The registry of the card that a device node belongs to.
pub(crate) fn registry_by_instance(instance: usize) -> Option<Arc<Registry>> {
    GLOBAL.lock().cards.get(instance)?.clone()
}

/// What the process of an address space has of each card that may be opened.
pub(crate) fn shares_of(mm: &Mm) -> Shares {
    let global = GLOBAL.lock();
    core::array::from_fn(|i| {
        let shares = global.cards[i].as_ref()?.shares.lock();
        let found = shares.iter().find(|share| share.is_of(mm));
        found.cloned()
    })
}

/// The number of a card; free again when dropped.
pub(crate) struct Instance(pub(crate) usize);

impl Instance {
    pub(crate) fn new() -> Result<Self> {
        let mut global = GLOBAL.lock();
        let free = global.taken.iter().position(|taken| !taken);
        let number = free.ok_or(ENOSPC)?;
        global.taken[number] = true;
        Ok(Self(number))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        GLOBAL.lock().taken[self.0] = false;
    }
}
