// SPDX-License-Identifier: GPL-2.0
//! The owner of the objects on a card.

use crate::card::Card;
use kernel::sync::Arc;

/// Owns the objects on a card and is told what concerns them. The card calls it with none of its
/// locks held but `reset_lock`.
pub(crate) trait Owner: Send + Sync {
    /// The card has lost all objects, and does no DMA. Notifiers may wait for the end of this,
    /// so no memory is taken for it.
    fn lose_objects(&self);

    /// Firmware ends queue pair `qpn` only slowly: perhaps it waits for something that never
    /// comes.
    fn hurry_end_of_qp(&self, qpn: u32);

    /// Firmware found nothing to recall for the receive of queue pair `qpn`, the answer to
    /// [`Card::press`].
    fn refuse_receive(&self, qpn: u32);

    /// Called twice a second, to find processes that have gone.
    fn look_around(&self);
}

impl Card {
    /// Makes `owner` the card's owner until the card is unbound.
    pub(crate) fn set_owner(&self, owner: Arc<dyn Owner>) {
        *self.owner.lock() = Some(owner);
    }

    /// Forgets the owner, which holds the card.
    pub(super) fn forget_owner(&self) {
        let owner = self.owner.lock().take();
        drop(owner);
    }

    /// Tells the owner, if there is one.
    pub(super) fn tell_owner(&self, tell: impl FnOnce(&dyn Owner)) {
        let owner = self.owner.lock().clone();
        if let Some(owner) = owner {
            tell(&*owner);
        }
    }
}
