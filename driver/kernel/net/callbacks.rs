// SPDX-License-Identifier: GPL-2.0
//! What the network stack calls.

use crate::kernel::{
    bindings,
    net::{
        device::{Device, Driver, Mode, Rtnl, Xmit},
        skb::SkBuff,
    },
};
use core::ptr::NonNull;
use kernel::{error::from_result, prelude::*};

/// The stack's table of what a driver does.
pub(super) struct Table<T>(core::marker::PhantomData<T>);

impl<T: Driver> Table<T> {
    const OPS: bindings::net_device_ops = bindings::net_device_ops {
        ndo_open: Some(open::<T>),
        ndo_stop: Some(stop::<T>),
        ndo_start_xmit: Some(xmit::<T>),
        ndo_set_rx_mode_async: Some(set_mode::<T>),
        ndo_set_mac_address: Some(set_address::<T>),
        ndo_validate_addr: Some(bindings::eth_validate_addr),
        ndo_change_mtu: Some(change_mtu::<T>),
        ndo_get_stats64: Some(stats::<T>),
        ..pin_init::zeroed()
    };
    pub(super) const REF: &'static bindings::net_device_ops = &Self::OPS;
}

/// # Safety
///
/// `dev` is of [`Device::new`] with the same `T`, and the lock of the network configuration is held.
unsafe extern "C" fn open<T: Driver>(dev: *mut bindings::net_device) -> c_int {
    // SAFETY: By the requirements of this function.
    let (dev, rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::held()) };
    from_result(|| dev.up(&rtnl).map(|()| 0))
}

/// # Safety
///
/// As of [`open`].
unsafe extern "C" fn stop<T: Driver>(dev: *mut bindings::net_device) -> c_int {
    // SAFETY: By the requirements of this function.
    let (dev, rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::held()) };
    dev.down(&rtnl);
    0
}

/// # Safety
///
/// `dev` is of [`Device::new`] with the same `T`; the lock of its queue, which is not stopped, is held; `skb` is given
/// away.
unsafe extern "C" fn xmit<T: Driver>(
    skb: *mut bindings::sk_buff,
    dev: *mut bindings::net_device,
) -> bindings::netdev_tx_t {
    // SAFETY: By the requirements of this function.
    let (dev, skb) = unsafe {
        (
            Device::<T>::from_raw(dev),
            SkBuff::from_raw(NonNull::new_unchecked(skb)),
        )
    };
    // SAFETY: This is `xmit`.
    let Some(open) = (unsafe { dev.opened() }) else {
        return bindings::netdev_tx_NETDEV_TX_OK;
    };
    // SAFETY: Called by `xmit`.
    let more = unsafe { bindings::helper_netdev_xmit_more() };
    match T::xmit(dev, open, skb, more) {
        Xmit::Taken => bindings::netdev_tx_NETDEV_TX_OK,
        Xmit::Busy(skb) => {
            // The stack keeps it.
            let _ = skb.into_raw();
            bindings::netdev_tx_NETDEV_TX_BUSY
        }
    }
}

/// # Safety
///
/// As of [`open`], with the lists of the device's addresses.
unsafe extern "C" fn set_mode<T: Driver>(
    dev: *mut bindings::net_device,
    _unicast: *mut bindings::netdev_hw_addr_list,
    multicast: *mut bindings::netdev_hw_addr_list,
) -> c_int {
    // SAFETY: By the requirements of this function; the flags are changed with the lock held.
    let (flags, listed) = unsafe { ((*dev).flags, (*multicast).count) };
    let mode = Mode {
        promiscuous: flags & bindings::net_device_flags_IFF_PROMISC != 0,
        multicast: flags & bindings::net_device_flags_IFF_ALLMULTI != 0 || listed != 0,
    };
    // SAFETY: By the requirements of this function.
    let (dev, rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::held()) };
    from_result(|| dev.set_mode(&rtnl, mode).map(|()| 0))
}

/// # Safety
///
/// As of [`open`], with an address of a socket that has the device's in it.
unsafe extern "C" fn set_address<T: Driver>(
    dev: *mut bindings::net_device,
    named: *mut c_void,
) -> c_int {
    // SAFETY: By the requirements of this function.
    let (dev, rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::held()) };
    // SAFETY: As above; it has six bytes and more.
    let address = unsafe {
        (&raw const (*named.cast::<bindings::sockaddr>()).sa_data)
            .cast::<[u8; 6]>()
            .read()
    };
    from_result(|| dev.put_address(&rtnl, address).map(|()| 0))
}

/// # Safety
///
/// As of [`open`].
unsafe extern "C" fn change_mtu<T: Driver>(dev: *mut bindings::net_device, mtu: c_int) -> c_int {
    // SAFETY: By the requirements of this function.
    let (dev, rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::held()) };
    from_result(|| dev.set_mtu(&rtnl, u32::try_from(mtu)?).map(|()| 0))
}

/// # Safety
///
/// `dev` is of [`Device::new`] with the same `T`, and `to` is the caller's to be written, perhaps in a message, where it
/// is not aligned.
unsafe extern "C" fn stats<T: Driver>(
    dev: *mut bindings::net_device,
    to: *mut bindings::rtnl_link_stats64,
) {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<T>::from_raw(dev) };
    let stats = T::stats(dev);
    // SAFETY: As above.
    unsafe {
        let mut all = to.read_unaligned();
        all.rx_packets = stats.rx_packets;
        all.rx_bytes = stats.rx_bytes;
        all.rx_dropped = stats.rx_dropped;
        all.rx_errors = stats.rx_errors;
        all.tx_packets = stats.tx_packets;
        all.tx_bytes = stats.tx_bytes;
        all.tx_dropped = stats.tx_dropped;
        all.tx_errors = stats.tx_errors;
        to.write_unaligned(all);
    }
}
