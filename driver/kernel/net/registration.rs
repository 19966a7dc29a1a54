// SPDX-License-Identifier: GPL-2.0
//! Making a device known to the network stack.

use crate::kernel::{
    bindings,
    net::{
        callbacks,
        device::{Device, Driver, Rtnl},
        ethtool,
    },
};
use kernel::{
    device::{self, Bound},
    error::to_result,
    prelude::*,
    sync::Arc,
};

/// A device that the stack knows; taken away from it when dropped.
///
/// # Invariants
///
/// The device is registered.
pub(crate) struct Registration<T: Driver>(Arc<Device<T>>);

impl<T: Driver> Registration<T> {
    /// Registers a device, which has no link yet. It gets the next name of the form `eth%d`.
    ///
    /// # Errors
    ///
    /// `EBUSY` it is registered, or was.
    pub(crate) fn new(parent: &device::Device<Bound>, dev: &Arc<Device<T>>) -> Result<Self> {
        let raw = dev.as_raw();
        let parent: &device::Device = parent;
        {
            let rtnl = Rtnl::lock();
            if !dev.claim(&rtnl) {
                return Err(EBUSY);
            }
        }
        // SAFETY: Nobody else knows the device; what it is given lives for ever, or, the parent, is counted.
        to_result(unsafe {
            bindings::helper_set_netdev_dev(raw, core::ptr::from_ref(parent).cast_mut().cast());
            (*raw).netdev_ops = callbacks::Table::<T>::REF;
            (*raw).ethtool_ops = ethtool::Table::<T>::REF;
            bindings::netif_carrier_off(raw);
            bindings::register_netdev(raw)
        })?;
        // INVARIANT: Just registered.
        let this = Self(dev.clone());
        dev.set_known(&Rtnl::lock(), true);
        Ok(this)
    }
}

impl<T: Driver> Drop for Registration<T> {
    fn drop(&mut self) {
        self.0.set_known(&Rtnl::lock(), false);
        // SAFETY: Registered, by the type invariant. Stops the device first, if it is up.
        unsafe { bindings::unregister_netdev(self.0.as_raw()) };
    }
}
