// SPDX-License-Identifier: GPL-2.0
//! Devices, and what their drivers do.

use crate::kernel::{bindings, net::skb::SkBuff};
use core::{cell::UnsafeCell, ptr::NonNull};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    types::{NotThreadSafe, Opaque},
};

/// Bytes of an Ethernet header.
pub(crate) const HEADER_BYTES: u32 = bindings::ETH_HLEN;
/// Bytes of a VLAN tag, which the device's user may add to it.
pub(crate) const TAG_BYTES: u32 = 4;

/// The network stack has not known a device yet.
const NEW: u32 = 0;
/// It knows it.
const KNOWN: u32 = 1;
/// It does not, and will not again.
const OVER: u32 = 2;

/// What a driver does. It has one queue for each direction, and one NAPI context.
pub(crate) trait Driver: Send + Sync + Sized + 'static {
    /// What there is while the device is open.
    type Open: Send + Sync;

    /// Names of the counters that `ethtool -S` shows, of at most 31 bytes.
    const COUNTERS: &'static [&'static str];

    /// Takes the device into service.
    fn open(dev: &Device<Self>, rtnl: &Rtnl) -> Result<Self::Open>;

    /// Takes it out of service: nobody else uses `open` any more, and hardware must not either.
    fn stop(dev: &Device<Self>, rtnl: &Rtnl, open: Self::Open);

    /// Sends a packet. Called by one thread at a time, without sleeping. `more` others follow at once.
    fn xmit(dev: &Device<Self>, open: &Self::Open, skb: SkBuff, more: bool) -> Xmit;

    /// Hands received packets over, and takes back those that were sent. Called by one thread at a time, without
    /// sleeping.
    fn poll(dev: &Device<Self>, open: &Self::Open, poll: &mut Poll<'_, Self>);

    /// Nothing more is to be polled: has hardware interrupt when there is, also if there is by now.
    fn rearm(dev: &Device<Self>, open: &Self::Open);

    /// Which packets are wanted has changed: [`Device::mode`], [`Device::address`].
    ///
    /// # Errors
    ///
    /// It is tried again later.
    fn set_mode(dev: &Device<Self>, rtnl: &Rtnl, open: Option<&Self::Open>) -> Result;

    /// What was sent and received since the device was made.
    fn stats(dev: &Device<Self>) -> Stats;

    /// The counters, in the order of their names.
    fn counters(dev: &Device<Self>, values: &mut [u64]);
}

/// What has become of a packet that was to be sent.
pub(crate) enum Xmit {
    /// The driver has it, or has dropped it.
    Taken,
    /// There was no room for it, although the queue had not been stopped.
    Busy(SkBuff),
}

/// Packets and bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stats {
    /// Packets received.
    pub(crate) rx_packets: u64,
    /// Bytes received.
    pub(crate) rx_bytes: u64,
    /// Packets received and dropped.
    pub(crate) rx_dropped: u64,
    /// Packets that could not be received.
    pub(crate) rx_errors: u64,
    /// Packets sent.
    pub(crate) tx_packets: u64,
    /// Bytes sent.
    pub(crate) tx_bytes: u64,
    /// Packets dropped before they were sent.
    pub(crate) tx_dropped: u64,
    /// Packets that could not be sent.
    pub(crate) tx_errors: u64,
}

/// Packets that are wanted beside those to the device's own address, and to all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Those to any address.
    pub(crate) promiscuous: bool,
    /// Those to multicast addresses.
    pub(crate) multicast: bool,
}

/// The lock of the network configuration, held.
pub(crate) struct Rtnl(NotThreadSafe);

/// Lets go of the lock when dropped.
pub(crate) struct RtnlGuard(Rtnl);

impl Rtnl {
    /// Takes the lock.
    pub(crate) fn lock() -> RtnlGuard {
        // SAFETY: May be called wherever one may sleep. Dropping the guard lets go.
        unsafe { bindings::rtnl_lock() };
        // SAFETY: Just taken.
        RtnlGuard(unsafe { Self::held() })
    }

    /// # Safety
    ///
    /// The caller holds the lock for as long as there is this value.
    pub(super) unsafe fn held() -> Self {
        Self(NotThreadSafe)
    }
}

impl core::ops::Deref for RtnlGuard {
    type Target = Rtnl;

    fn deref(&self) -> &Rtnl {
        &self.0
    }
}

impl Drop for RtnlGuard {
    fn drop(&mut self) {
        // SAFETY: Taken when the guard was made.
        unsafe { bindings::rtnl_unlock() };
    }
}

/// A network device. The network stack knows it while there is a
/// [`Registration`](crate::kernel::net::registration::Registration) of it.
///
/// # Invariants
///
/// `dev` is a device whose private data is the address of this value, and which has `napi`. It is freed with this
/// value.
///
/// `open` is changed with the lock of the network configuration held, while neither `xmit` nor `poll` may be called:
/// NAPI is enabled, and the queue not stopped for good, only while it is `Some`.
#[pin_data(PinnedDrop)]
pub(crate) struct Device<T: Driver> {
    dev: NonNull<bindings::net_device>,
    #[pin]
    napi: Opaque<bindings::napi_struct>,
    open: UnsafeCell<Option<T::Open>>,
    mode: Atomic<u32>,
    /// `NEW`, `KNOWN` or `OVER`.
    known: Atomic<u32>,
    /// The driver's own.
    #[pin]
    pub(crate) data: T,
}

// SAFETY: The stack's functions that are called have locks of their own. The invariant says who uses `open`.
unsafe impl<T: Driver> Send for Device<T> {}
// SAFETY: As above.
unsafe impl<T: Driver> Sync for Device<T> {}

impl<T: Driver> Device<T> {
    /// Makes a device with a random address, which nobody knows yet.
    pub(crate) fn new(max_mtu: u32, data: impl PinInit<T, Error>) -> Result<Arc<Self>> {
        // SAFETY: Any size may be asked for.
        let raw = unsafe { bindings::alloc_etherdev_mqs(size_of::<*const Self>() as c_int, 1, 1) };
        let dev = NonNull::new(raw).ok_or(ENOMEM)?;
        let this = Arc::pin_init(
            try_pin_init!(Self {
                dev,
                open: UnsafeCell::new(None),
                mode: Atomic::new(0),
                known: Atomic::new(NEW),
                data <- data,
                // Last, because nothing takes it off the device again if another part fails.
                napi <- Opaque::ffi_init(|slot: *mut bindings::napi_struct| {
                    // SAFETY: `slot` is memory for one, pinned, which is taken off the device before it is freed.
                    unsafe {
                        slot.write(pin_init::zeroed());
                        bindings::helper_netif_napi_add(raw, slot, Some(poll::<T>));
                    }
                }),
            }? Error),
            GFP_KERNEL,
        );
        let this = this.inspect_err(|_| {
            // SAFETY: Nobody knows it; takes NAPI contexts off it.
            unsafe { bindings::free_netdev(raw) };
        })?;
        // SAFETY: Nobody else knows the device yet; its private data is as large as an address.
        unsafe {
            let private: *mut *const Self = bindings::helper_netdev_priv(raw).cast();
            private.write(Arc::as_ptr(&this));
            (*raw).max_mtu = max_mtu;
            let features = bindings::helper_netdev_features();
            (*raw).features |= features;
            (*raw).hw_features |= features;
            (*raw).vlan_features |= features;
            bindings::helper_eth_hw_addr_random(raw);
        }
        Ok(this)
    }

    /// # Safety
    ///
    /// `dev` was made by [`Self::new`], and its [`Device`] lives for `'a`.
    pub(super) unsafe fn from_raw<'a>(dev: *const bindings::net_device) -> &'a Self {
        // SAFETY: By the requirement of this function.
        unsafe { &**bindings::helper_netdev_priv(dev).cast::<*const Self>() }
    }

    /// # Safety
    ///
    /// `napi` is that of a [`Device`] of this type, which lives for `'a`.
    pub(super) unsafe fn from_napi<'a>(napi: *mut bindings::napi_struct) -> &'a Self {
        let inner = Opaque::cast_from(napi);
        // SAFETY: By the requirement of this function.
        unsafe { &*kernel::container_of!(inner, Self, napi) }
    }

    /// The stack's part of it.
    pub(crate) fn as_raw(&self) -> *mut bindings::net_device {
        self.dev.as_ptr()
    }

    /// What there is while the device is open.
    ///
    /// # Safety
    ///
    /// The caller is `xmit` or `poll`, or holds the lock of the network configuration and changes nothing meanwhile.
    pub(super) unsafe fn opened(&self) -> Option<&T::Open> {
        // SAFETY: By the requirement of this function and the type invariant nobody changes it.
        unsafe { (*self.open.get()).as_ref() }
    }

    /// Takes the device into service, if it is not.
    pub(super) fn up(&self, rtnl: &Rtnl) -> Result {
        // SAFETY: The lock is held.
        if unsafe { self.opened() }.is_some() {
            return Ok(());
        }
        let open = T::open(self, rtnl)?;
        // SAFETY: The lock is held, and neither `xmit` nor `poll` may be called, as it is `None`.
        unsafe { *self.open.get() = Some(open) };
        // SAFETY: NAPI is disabled, as there was nothing; from here on `open` is not changed.
        unsafe {
            bindings::napi_enable(self.napi.get());
            bindings::helper_netif_wake_queue(self.as_raw());
        }
        // Hardware may have something before it was told to interrupt; the first poll tells it.
        self.schedule();
        Ok(())
    }

    /// Takes the device out of service, if it is in it.
    pub(super) fn down(&self, rtnl: &Rtnl) {
        // SAFETY: The lock is held.
        if unsafe { self.opened() }.is_none() {
            return;
        }
        // SAFETY: NAPI is enabled. Both calls wait for those that run.
        unsafe {
            bindings::helper_netif_tx_disable(self.as_raw());
            bindings::napi_disable(self.napi.get());
        }
        // SAFETY: The lock is held, and neither `xmit` nor `poll` is called any more.
        if let Some(open) = unsafe { (*self.open.get()).take() } {
            T::stop(self, rtnl, open);
        }
    }

    /// Takes a device that is up out of service and into it again. If that fails it can be tried again: the device
    /// stays up, and sends and receives nothing.
    pub(crate) fn restart(&self, rtnl: &Rtnl) -> Result {
        self.suspend(rtnl);
        if self.is_up() {
            self.up(rtnl)?;
        }
        Ok(())
    }

    /// Takes a device out of service, without its user's doing, until [`Self::restart`].
    pub(crate) fn suspend(&self, rtnl: &Rtnl) {
        self.down(rtnl);
    }

    /// Whether its user has it up.
    fn is_up(&self) -> bool {
        // SAFETY: The device is valid.
        unsafe { bindings::helper_netif_running(self.as_raw()) }
    }

    /// Says whether the device has a link.
    pub(crate) fn carrier(&self, _: &Rtnl, on: bool) {
        if self.known.load(Relaxed) != KNOWN {
            return;
        }
        // SAFETY: The device is registered, and stays so as long as the lock is held.
        unsafe {
            match on {
                true => bindings::netif_carrier_on(self.as_raw()),
                false => bindings::netif_carrier_off(self.as_raw()),
            }
        }
    }

    /// Claims the device for its one registration; false if it had that.
    pub(super) fn claim(&self, _: &Rtnl) -> bool {
        let new = self.known.load(Relaxed) == NEW;
        self.known.store(OVER, Relaxed);
        new
    }

    /// Notes whether the stack knows the device, which was claimed.
    pub(super) fn set_known(&self, _: &Rtnl, known: bool) {
        self.known.store(if known { KNOWN } else { OVER }, Relaxed);
    }

    /// The device's address, perhaps while it changes.
    pub(crate) fn address_now(&self) -> [u8; 6] {
        // SAFETY: An address of six bytes, which lives as long as the device; each is read at once.
        let bytes = unsafe { (*self.as_raw()).dev_addr };
        // SAFETY: As above.
        core::array::from_fn(|i| unsafe { bytes.add(i).read_volatile() })
    }

    /// The device's address.
    pub(crate) fn address(&self, _: &Rtnl) -> [u8; 6] {
        // SAFETY: An address of six bytes, which is changed with the lock held.
        unsafe { *(*self.as_raw()).dev_addr.cast() }
    }

    /// Gives the device another address, as its user can.
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL` it is not the address of a single device; others as users of the device give them.
    pub(crate) fn set_address(&self, rtnl: &Rtnl, address: [u8; 6]) -> Result {
        if self.known.load(Relaxed) != KNOWN {
            return self.put_address(rtnl, address);
        }
        let mut named: bindings::__kernel_sockaddr_storage = pin_init::zeroed();
        let start: *mut bindings::sockaddr = (&raw mut named).cast();
        // SAFETY: Of a registered device, with the lock held; the address stands at the start of what is given.
        unsafe {
            (*start).sa_family = (*self.as_raw()).type_;
            (&raw mut (*start).sa_data).cast::<[u8; 6]>().write(address);
            to_result(bindings::dev_set_mac_address(
                self.as_raw(),
                &mut named,
                core::ptr::null_mut(),
            ))
        }
    }

    /// Notes another address.
    pub(super) fn put_address(&self, rtnl: &Rtnl, address: [u8; 6]) -> Result {
        // SAFETY: The lock is held, and there are six bytes.
        unsafe {
            if !bindings::helper_is_valid_ether_addr(address.as_ptr()) {
                return Err(EADDRNOTAVAIL);
            }
            bindings::helper_eth_hw_addr_set(self.as_raw(), address.as_ptr());
        }
        // SAFETY: The lock is held.
        T::set_mode(self, rtnl, unsafe { self.opened() })
    }

    /// Packets that are wanted.
    pub(crate) fn mode(&self) -> Mode {
        let bits = self.mode.load(Relaxed);
        Mode {
            promiscuous: bits & 1 != 0,
            multicast: bits & 2 != 0,
        }
    }

    /// Notes which packets are wanted.
    pub(super) fn set_mode(&self, rtnl: &Rtnl, mode: Mode) -> Result {
        let bits = u32::from(mode.promiscuous) | u32::from(mode.multicast) << 1;
        self.mode.store(bits, Relaxed);
        // SAFETY: The lock is held.
        T::set_mode(self, rtnl, unsafe { self.opened() })
    }

    /// Bytes of a packet at most, without the header.
    pub(crate) fn mtu(&self, _: &Rtnl) -> u32 {
        // SAFETY: Changed with the lock held.
        unsafe { (*self.as_raw()).mtu }
    }

    /// As [`Self::mtu`], which may change at any time.
    pub(crate) fn mtu_now(&self) -> u32 {
        // SAFETY: A number of a valid device, which others may write.
        unsafe { (&raw const (*self.as_raw()).mtu).read_volatile() }
    }

    /// Sends an IPv4 packet that begins with its Ethernet header, as the stack's own packets go. Called by a thread.
    ///
    /// # Errors
    ///
    /// `ENETDOWN` the packet was dropped.
    pub(crate) fn transmit(&self, skb: SkBuff) -> Result {
        // SAFETY: A valid device; the packet is given away.
        match unsafe { bindings::helper_dev_transmit(self.as_raw(), skb.into_raw()) } {
            0 => Ok(()),
            _ => Err(ENETDOWN),
        }
    }

    /// Changes how many bytes a packet has at most, which takes other buffers.
    pub(super) fn set_mtu(&self, rtnl: &Rtnl, mtu: u32) -> Result {
        // SAFETY: Read by others without a lock.
        let place = unsafe { &raw mut (*self.as_raw()).mtu };
        // SAFETY: The lock is held.
        let old = unsafe { place.read() };
        // SAFETY: As above.
        unsafe { place.write_volatile(mtu) };
        // SAFETY: The lock is held.
        if unsafe { self.opened() }.is_none() {
            return Ok(());
        }
        self.restart(rtnl).inspect_err(|_| {
            // SAFETY: As above.
            unsafe { place.write_volatile(old) };
            let _ = self.restart(rtnl);
        })
    }

    /// Has the device polled soon. Does nothing while it is not in service.
    pub(crate) fn schedule(&self) {
        // SAFETY: A NAPI context of this device; what is not enabled is not scheduled.
        unsafe { bindings::helper_napi_schedule(self.napi.get()) };
    }

    /// Has `xmit` not called until [`Self::wake_queue`].
    pub(crate) fn stop_queue(&self) {
        // SAFETY: A valid device.
        unsafe { bindings::helper_netif_stop_queue(self.as_raw()) };
    }

    /// Has `xmit` called again, while the device is in service.
    pub(crate) fn wake_queue(&self, _: &Poll<'_, T>) {
        // SAFETY: A valid device, which is in service as it is polled.
        unsafe { bindings::helper_netif_wake_queue(self.as_raw()) };
    }

    /// Whether the queue is stopped.
    pub(crate) fn is_queue_stopped(&self) -> bool {
        // SAFETY: A valid device.
        unsafe { bindings::helper_netif_queue_stopped(self.as_raw()) }
    }

    /// An empty packet for `bytes` received bytes, so that what is behind the Ethernet header is aligned.
    pub(crate) fn alloc(&self, bytes: u32) -> Option<SkBuff> {
        // SAFETY: A valid device.
        let skb = unsafe { bindings::helper_netdev_alloc_skb_ip_align(self.as_raw(), bytes) };
        // SAFETY: A fresh packet is ours.
        NonNull::new(skb).map(|skb| unsafe { SkBuff::from_raw(skb) })
    }
}

#[pinned_drop]
impl<T: Driver> PinnedDrop for Device<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: It is not registered: a registration has a reference to this value.
        unsafe {
            bindings::helper_netif_napi_del(self.napi.get());
            bindings::free_netdev(self.dev.as_ptr());
        }
    }
}

/// A poll that is under way.
pub(crate) struct Poll<'a, T: Driver> {
    dev: &'a Device<T>,
    budget: c_int,
    received: c_int,
}

impl<'a, T: Driver> Poll<'a, T> {
    /// # Safety
    ///
    /// NAPI polls `dev`, with this budget.
    pub(super) unsafe fn new(dev: &'a Device<T>, budget: c_int) -> Self {
        Self {
            dev,
            budget,
            received: 0,
        }
    }

    /// Packets that were received.
    pub(super) fn received(&self) -> c_int {
        self.received
    }

    /// Whether more packets may be received in this poll.
    pub(crate) fn may_receive(&self) -> bool {
        self.received < self.budget
    }

    /// Hands a packet to the stack; it begins with its Ethernet header. One without is dropped.
    pub(crate) fn receive(&mut self, skb: SkBuff) {
        self.received += 1;
        if skb.len() < HEADER_BYTES {
            return;
        }
        let skb = skb.into_raw();
        // SAFETY: The packet is given to the stack, by the NAPI context that is being polled.
        unsafe { bindings::helper_napi_receive(self.dev.napi.get(), self.dev.as_raw(), skb) };
    }

    /// A packet was received that the stack does not get.
    pub(crate) fn note_received(&mut self) {
        self.received += 1;
    }

    /// Frees a packet that was sent.
    pub(crate) fn sent(&self, skb: SkBuff) {
        // SAFETY: The packet is ours, and this is a poll with this budget.
        unsafe { bindings::napi_consume_skb(skb.into_raw(), self.budget) };
    }
}

/// # Safety
///
/// `napi` is that of a [`Device`] with the same `T`, and enabled.
unsafe extern "C" fn poll<T: Driver>(napi: *mut bindings::napi_struct, budget: c_int) -> c_int {
    // SAFETY: By the requirements of this function.
    let dev = unsafe { Device::<T>::from_napi(napi) };
    // SAFETY: This is `poll`.
    let Some(open) = (unsafe { dev.opened() }) else {
        return 0;
    };
    // SAFETY: NAPI polls.
    let mut poll = unsafe { Poll::new(dev, budget) };
    T::poll(dev, open, &mut poll);
    let received = poll.received();
    // SAFETY: A poll that has not used its budget up is over.
    if received < budget && unsafe { bindings::napi_complete_done(napi, received) } {
        T::rearm(dev, open);
    }
    received
}
