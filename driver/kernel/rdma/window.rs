// SPDX-License-Identifier: GPL-2.0
//! Memory windows (IBTA 10.6.7.2): keys that open nothing until the provider binds them, by an element of a send queue.

use crate::kernel::{
    bindings,
    rdma::{
        device::{Access, Device, Driver},
        object::Object,
        pair::Domain,
    },
};
use kernel::{error::from_result, prelude::*};

pub(super) type Mw<T> = Object<bindings::ib_mw, <T as Driver>::Region>;

/// # Safety
///
/// `mw` is new, of a device of `T`, and has its domain; `_udata` is of the call.
pub(super) unsafe extern "C" fn alloc_mw<T: Driver>(
    mw: *mut bindings::ib_mw,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    from_result(|| {
        // SAFETY: By the requirements of this function.
        unsafe {
            let driver = Device::<T>::driver((*mw).device);
            let domain = Domain::<T>::data((*mw).pd);
            // A region of nothing.
            let (region, key) = driver.make_region(domain, 0, 0, Access::default())?;
            (*mw).rkey = key;
            Mw::<T>::put(mw, region);
        }
        Ok(0)
    })
}

/// # Safety
///
/// `mw` is one of [`alloc_mw`] that nobody uses any more.
pub(super) unsafe extern "C" fn dealloc_mw<T: Driver>(mw: *mut bindings::ib_mw) -> c_int {
    // SAFETY: By the requirements of this function.
    unsafe { Device::<T>::driver((*mw).device).end_region(Mw::<T>::take(mw)) };
    0
}
