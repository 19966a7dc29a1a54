// SPDX-License-Identifier: GPL-2.0
//! What `ethtool` asks.

use crate::kernel::{
    bindings,
    net::device::{Device, Driver},
};
use core::slice;
use kernel::prelude::*;

/// Bytes of a counter's name.
const NAME_BYTES: usize = bindings::ETH_GSTRING_LEN as usize;

/// The stack's table of what `ethtool` can ask a driver.
pub(super) struct Table<T>(core::marker::PhantomData<T>);

impl<T: Driver> Table<T> {
    const OPS: bindings::ethtool_ops = bindings::ethtool_ops {
        get_link: Some(bindings::ethtool_op_get_link),
        get_sset_count: Some(count::<T>),
        get_strings: Some(names::<T>),
        get_ethtool_stats: Some(values::<T>),
        ..pin_init::zeroed()
    };
    pub(super) const REF: &'static bindings::ethtool_ops = &Self::OPS;
}

// The headers that `kernel` has only name `net_device`, so it has a type of its own there.
type NamedOnly = kernel::bindings::net_device;

/// # Safety
///
/// None.
unsafe extern "C" fn count<T: Driver>(_: *mut NamedOnly, set: c_int) -> c_int {
    match set as u32 {
        bindings::ethtool_stringset_ETH_SS_STATS => T::COUNTERS.len() as c_int,
        _ => EOPNOTSUPP.to_errno(),
    }
}

/// # Safety
///
/// `to` has room for the names of set `set`.
unsafe extern "C" fn names<T: Driver>(_: *mut NamedOnly, set: u32, to: *mut u8) {
    if set != bindings::ethtool_stringset_ETH_SS_STATS {
        return;
    }
    // SAFETY: By the requirement of this function; `count` has said how many there are.
    let to = unsafe { slice::from_raw_parts_mut(to.cast::<[u8; NAME_BYTES]>(), T::COUNTERS.len()) };
    for (name, place) in T::COUNTERS.iter().zip(to) {
        let bytes = name.len().min(NAME_BYTES - 1);
        *place = [0; NAME_BYTES];
        place[..bytes].copy_from_slice(&name.as_bytes()[..bytes]);
    }
}

/// # Safety
///
/// `dev` is of [`Device::new`] with the same `T`, and `to` has room for all counters.
unsafe extern "C" fn values<T: Driver>(
    dev: *mut NamedOnly,
    _: *mut bindings::ethtool_stats,
    to: *mut u64,
) {
    // SAFETY: By the requirements of this function; `count` has said how many there are.
    let (dev, to) = unsafe {
        (
            Device::<T>::from_raw(dev.cast()),
            slice::from_raw_parts_mut(to, T::COUNTERS.len()),
        )
    };
    T::counters(dev, to);
}
