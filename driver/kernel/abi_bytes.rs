// SPDX-License-Identifier: GPL-2.0
//! The ioctl structs of the ABI as bytes, so that they can be copied from and to user
//! space, and the reference that an open descriptor holds on the module.

use crate::abi::ioctl::*;
use core::mem::size_of;
use kernel::{
    bindings,
    miscdevice::{MiscDevice, MiscDeviceRegistration},
    static_assert,
    sync::SetOnce,
    transmute::{AsBytes, FromBytes},
    ThisModule,
};

macro_rules! plain {
    ($($ty:ty = $size:literal,)*) => {$(
        // No padding: the size is the sum of the fields.
        static_assert!(size_of::<$ty>() == $size);
        // SAFETY: `repr(C)`, only integers and arrays of them, and no padding (asserted).
        unsafe impl AsBytes for $ty {}
        // SAFETY: `repr(C)`, only integers and arrays of them: any bytes are a value.
        unsafe impl FromBytes for $ty {}
    )*};
}

plain! {
    Handle = 16,
    Crash = 56,
    Context = 24,
    Query = 96,
    SetNet = 16,
    SetLimits = 24,
    QueryContext = 24,
    QueryLimits = 64,
    CreateCq = 32,
    CreateQp = 88,
    QueryQp = 56,
    Connect = 56,
    Accept = 64,
    ContextEvent = 64,
    Counters = 1152,
    ReadLog = 16,
}

struct Operations(bindings::file_operations);

// SAFETY: Never written after it was made.
unsafe impl Sync for Operations {}
// SAFETY: Function pointers and a pointer to the module, the same on every thread.
unsafe impl Send for Operations {}

static OPERATIONS: SetOnce<Operations> = SetOnce::new();

/// Makes every descriptor of `misc` that is opened from now on hold a reference to
/// `module`, so that it cannot be unloaded under it. (`MiscDeviceRegistration` of Linux
/// 7.2 leaves the owner of its file operations empty.)
///
/// All registrations that are passed here must be of one type `T`.
pub(crate) fn own_descriptors<T: MiscDevice>(
    misc: &MiscDeviceRegistration<T>,
    module: &'static ThisModule,
) {
    // SAFETY: A registered miscdevice; its operations are a constant.
    let mut operations = unsafe { *(*misc.as_raw()).fops };
    operations.owner = module.as_ptr();
    OPERATIONS.populate(Operations(operations));
    if let Some(operations) = OPERATIONS.as_ref() {
        // SAFETY: `misc_open` reads the pointer without a lock; both values are good
        // operations of the same type, and this one lives as long as the module, that is
        // longer than the registration and, through the owner, than open descriptors.
        unsafe { (&raw mut (*misc.as_raw()).fops).write_volatile(&operations.0) };
    }
}
