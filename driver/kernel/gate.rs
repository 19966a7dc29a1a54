// SPDX-License-Identifier: GPL-2.0
//! Counted access to a bound device.
//!
//! Work items and system calls may outlive the driver's binding to its device. Users of the bound
//! device (DMA mappings, coherent memory, the page service) hold a [`BoundRef`]; [`Gate::close`]
//! gives out no new one and waits until the last is dropped. The driver closes the gate before it
//! is unbound.

use crate::kernel::errno::unsupported;
use core::ops::Deref;
use kernel::{
    bindings,
    device::Bound,
    error::to_result,
    new_condvar, new_spinlock, pci,
    prelude::*,
    sync::{aref::ARef, Arc, CondVar, SpinLock},
};

struct State {
    open: bool,
    users: usize,
}

/// The gate of one device.
#[pin_data]
pub(crate) struct Gate {
    dev: ARef<pci::Device>,
    #[pin]
    state: SpinLock<State>,
    #[pin]
    idle: CondVar,
}

/// Owner of an open [`Gate`]; closes it when dropped.
///
/// # Invariants
///
/// Lives in the driver's bus device data, which is dropped before the device is unbound.
pub(crate) struct GateOwner(Arc<Gate>);

impl GateOwner {
    /// Opens a gate to `dev`.
    ///
    /// # Safety
    ///
    /// The owner must be dropped before `dev` is unbound.
    pub(crate) unsafe fn new(dev: &pci::Device<Bound>) -> Result<Self> {
        let dev: &pci::Device = dev;
        let gate = Arc::pin_init(
            pin_init!(Gate {
                dev: ARef::from(dev),
                state <- new_spinlock!(State { open: true, users: 0 }, "berth_gate"),
                idle <- new_condvar!("berth_gate_idle"),
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: By the safety requirement of this function.
        Ok(Self(gate))
    }

    /// The gate.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.0
    }
}

impl Drop for GateOwner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Gate {
    /// Takes a reference to the bound device; `None` once the gate is closed.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<BoundRef> {
        let mut state = self.state.lock();
        if !state.open {
            return None;
        }
        state.users += 1;
        Some(BoundRef { gate: self.clone() })
    }

    /// Gives out no more references and waits until all are dropped.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        while state.users != 0 {
            self.idle.wait(&mut state);
        }
    }
}

/// A counted reference to the bound device.
///
/// # Invariants
///
/// The device is bound: the gate's owner waits for this reference before it goes.
pub(crate) struct BoundRef {
    gate: Arc<Gate>,
}

impl Clone for BoundRef {
    fn clone(&self) -> Self {
        // A reference is held, so the gate's owner is still there, even if it is closing.
        self.gate.state.lock().users += 1;
        Self {
            gate: self.gate.clone(),
        }
    }
}

impl BoundRef {
    fn raw(&self) -> *mut bindings::pci_dev {
        let dev: *const pci::Device = &*self.gate.dev;
        // `pci::Device` is a transparent wrapper of an `Opaque<bindings::pci_dev>`.
        dev.cast_mut().cast()
    }

    /// Lets the device do DMA.
    pub(crate) fn set_master(&self) {
        // SAFETY: The device is valid and bound.
        unsafe { bindings::pci_set_master(self.raw()) };
    }

    /// Forbids the device to do DMA.
    pub(crate) fn clear_master(&self) {
        // SAFETY: The device is valid and bound.
        unsafe { bindings::pci_clear_master(self.raw()) };
    }

    /// Lets the processor combine writes to `bytes` of registers at `phys` where processes map them
    /// ([`crate::kernel::doorbell`]), as long as the device is bound.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` the processor cannot (no PAT), others when the registers are mapped in another
    /// way. They stay uncached then.
    pub(crate) fn combine_writes(&self, phys: u64, bytes: u64) -> Result {
        // Without PAT the kernel would accept the request and map them uncached all the same.
        // SAFETY: The function takes any of the modes.
        let bits = |mode| unsafe { bindings::cachemode2protval(mode) };
        if bits(bindings::page_cache_mode__PAGE_CACHE_MODE_WC)
            == bits(bindings::page_cache_mode__PAGE_CACHE_MODE_UC_MINUS)
        {
            return Err(unsupported());
        }
        // SAFETY: The device is valid and bound, so that what is managed for it is given
        // back when it is unbound.
        to_result(unsafe {
            bindings::devm_arch_io_reserve_memtype_wc(&raw mut (*self.raw()).dev, phys, bytes)
        })
    }
}

impl Deref for BoundRef {
    type Target = pci::Device<Bound>;

    fn deref(&self) -> &Self::Target {
        let dev: *const pci::Device = &*self.gate.dev;
        // SAFETY: `pci::Device` has the same layout whatever its context is, and by the
        // type invariant the device is bound as long as `self` lives.
        unsafe { &*dev.cast::<pci::Device<Bound>>() }
    }
}

impl Drop for BoundRef {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.users -= 1;
        if state.users == 0 && !state.open {
            self.gate.idle.notify_all();
        }
    }
}
