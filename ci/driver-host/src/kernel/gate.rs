// SPDX-License-Identifier: GPL-2.0
//! Counted access to the device, which is bound until the test says otherwise.

use core::ops::Deref;
use kernel::{
    device::{Bound, DEVICE, Device},
    sync::Arc,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) closed: AtomicBool,
}

pub(crate) struct BoundRef {
    _gate: Arc<Gate>,
}

impl Gate {
    pub(crate) fn enter(self: &Arc<Self>) -> Option<BoundRef> {
        (!self.closed.load(Relaxed)).then(|| BoundRef { _gate: self.clone() })
    }
}

impl Clone for BoundRef {
    fn clone(&self) -> Self {
        Self { _gate: self._gate.clone() }
    }
}

/// The PCI device.
pub(crate) struct Pci;

impl AsRef<Device<Bound>> for Pci {
    fn as_ref(&self) -> &Device<Bound> {
        &DEVICE
    }
}

impl Pci {
    pub(crate) fn set_master(&self) {
        crate::memory::surroundings().hardware.borrow_mut().set_master(true);
    }

    pub(crate) fn clear_master(&self) {
        crate::memory::surroundings().hardware.borrow_mut().set_master(false);
    }
}

impl Deref for BoundRef {
    type Target = Pci;

    fn deref(&self) -> &Pci {
        &Pci
    }
}
