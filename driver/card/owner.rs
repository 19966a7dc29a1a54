// SPDX-License-Identifier: GPL-2.0
//! The owner of the objects on a card.

/// Owns the objects on a card and is told what concerns them. The card calls it with none of its
/// locks held but `reset_lock`.
pub(crate) trait Owner: Send + Sync {
    /// The card has lost all objects, and does no DMA. Notifiers may wait for the end of this,
    /// so no memory is taken for it.
    fn lose_objects(&self);

    /// The card is in service, without objects. Takes no memory either.
    fn in_service(&self);

    /// Firmware ends queue pair `qpn` only slowly: perhaps it waits for something that never
    /// comes.
    fn hurry_end_of_qp(&self, qpn: u32);

    /// Firmware found nothing to recall for the receive of queue pair `qpn`, the answer to
    /// [`press`](crate::card::Card::press).
    fn refuse_receive(&self, qpn: u32);

    /// What the card has told so far is taken. Without `reap` the caller sees to it that pages that were evicted, of whatever
    /// address space, are unpinned.
    fn take_events(&self, reap: bool);

    /// Called twice a second, to find processes that have gone.
    fn look_around(&self);
}
