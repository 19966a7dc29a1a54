// SPDX-License-Identifier: GPL-2.0
//! Frames that the stack does not get.

use crate::kernel::net::skb::SkBuff;
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, Arc, SpinLockIrq},
};

/// Gets datagrams of RoCE, which are not the stack's.
pub(crate) trait Datagrams: Send + Sync {
    /// A frame has come, of UDP over IPv4 without options to RoCE's port. Called without sleeping.
    fn received(self: Arc<Self>, frame: SkBuff);
}

/// UDP port of RoCE version 2 (IBTA A17.3.2).
pub(crate) const PORT: u16 = 4791;

/// Whether a frame is RoCE version 2 over IPv4 without options.
pub(crate) fn is_roce(frame: &[u8]) -> bool {
    frame.get(12..15) == Some(&[0x08, 0x00, 0x45])
        && frame.get(23) == Some(&17)
        && frame.get(36..38) == Some(&PORT.to_be_bytes())
}

/// Who gets them.
#[pin_data]
pub(crate) struct Taker {
    #[pin]
    taker: SpinLockIrq<Option<Arc<dyn Datagrams>>>,
}

impl Taker {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                taker <- new_spinlock_irq!(None, "berth_taker"),
            }),
            GFP_KERNEL,
        )
    }

    /// From now on `taker` gets them; without one, the stack does.
    pub(crate) fn set(&self, taker: Option<Arc<dyn Datagrams>>) {
        let before = core::mem::replace(&mut *self.taker.lock(), taker);
        drop(before);
    }

    /// Whoever gets a frame that begins with these bytes; `None`: the stack.
    pub(super) fn of(&self, frame: &[u8]) -> Option<Arc<dyn Datagrams>> {
        match is_roce(frame) {
            true => self.taker.lock().clone(),
            false => None,
        }
    }
}
