// SPDX-License-Identifier: GPL-2.0
//! Making a device known to the core.

use crate::kernel::{
    bindings,
    rdma::{
        callbacks::Table,
        device::{Device, Driver},
        stats::Names,
    },
};
use core::ptr::NonNull;
use kernel::{
    device::{self, Bound},
    error::to_result,
    prelude::*,
};

/// A device that the core knows; taken away from it, and freed, when dropped. The core then ends all objects of processes.
///
/// # Invariants
///
/// The device is registered.
pub(crate) struct Registration<T: Driver>(NonNull<Device<T>>);

// SAFETY: A device may be taken away by any thread that may sleep.
unsafe impl<T: Driver> Send for Registration<T> {}
// SAFETY: There is no access through `&Registration`.
unsafe impl<T: Driver> Sync for Registration<T> {}

impl<T: Driver> Registration<T> {
    /// Registers a device with a name of the form `berth%d`. Its GIDs follow the addresses of the network device, which must
    /// stay registered longer. Consumers in the kernel name memory by the addresses that the kernel itself uses.
    ///
    /// # Safety
    ///
    /// `netdev` is registered with the network stack for as long as there is this value.
    ///
    /// # Errors
    ///
    /// As the core has them.
    pub(crate) unsafe fn new(
        name: &CStr,
        parent: &device::Device<Bound>,
        netdev: *mut bindings::net_device,
        guid: u64,
        module: &'static ThisModule,
        driver: T,
    ) -> Result<Self> {
        let names = Names::new(|add| driver.counter_names(add))?;
        // SAFETY: The core allocates a device of this size, zeroed.
        let ib = unsafe {
            bindings::_ib_alloc_device(size_of::<Device<T>>(), &raw mut bindings::init_net)
        };
        let ib = NonNull::new(ib).ok_or(ENOMEM)?.as_ptr();
        let parent: *mut bindings::device = {
            let parent: &device::Device = parent;
            core::ptr::from_ref(parent).cast_mut().cast()
        };
        // SAFETY: Nobody else knows the device yet; the driver's part is there before anybody can call it. The parent stays
        // bound while the device is registered, because the driver takes it away before.
        let registered = unsafe {
            (&raw mut (*ib.cast::<Device<T>>()).driver).write(driver);
            (&raw mut (*ib.cast::<Device<T>>()).names).write(names);
            bindings::ib_set_device_ops(ib, Table::<T>::REF);
            (*ib).ops.owner = module.as_ptr().cast();
            (*ib).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*ib).phys_port_cnt = 1;
            (*ib).num_comp_vectors = 1;
            (*ib).node_guid = guid.to_be();
            // What processes may ask of the driver beside what all devices do.
            (*ib).uverbs_cmd_mask |= [
                bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_SEND,
                bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POST_RECV,
                bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_POLL_CQ,
                bindings::ib_uverbs_write_cmds_IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
            ]
            .into_iter()
            .fold(0, |mask, command| mask | 1 << command);
            bindings::helper_ib_set_parent(ib, parent);
            to_result(bindings::ib_device_set_netdev(ib, netdev, 1)).and_then(|()| {
                to_result(bindings::ib_register_device(
                    ib,
                    name.as_char_ptr(),
                    core::ptr::null_mut(),
                ))
            })
        };
        if let Err(e) = registered {
            // SAFETY: The core does not know the device.
            unsafe { Self::free(ib) };
            return Err(e);
        }
        // INVARIANT: Just registered.
        // SAFETY: Not null.
        Ok(Self(unsafe { NonNull::new_unchecked(ib.cast()) }))
    }

    /// # Safety
    ///
    /// `ib` is a device of this driver that the core does not know, or not any more.
    unsafe fn free(ib: *mut bindings::ib_device) {
        // SAFETY: By the requirements of this function. The memory is freed when the last reference goes, which does not call
        // the driver.
        unsafe {
            core::ptr::drop_in_place(&raw mut (*ib.cast::<Device<T>>()).driver);
            core::ptr::drop_in_place(&raw mut (*ib.cast::<Device<T>>()).names);
            bindings::ib_dealloc_device(ib);
        }
    }
}

impl<T: Driver> Drop for Registration<T> {
    fn drop(&mut self) {
        let ib: *mut bindings::ib_device = self.0.as_ptr().cast();
        // SAFETY: Registered, by the type invariant; afterwards nobody calls the driver.
        unsafe {
            bindings::ib_unregister_device(ib);
            Self::free(ib);
        }
    }
}
