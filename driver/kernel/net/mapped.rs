// SPDX-License-Identifier: GPL-2.0
//! Packets in the hands of hardware.

use crate::kernel::{
    bindings::{self, dma_data_direction},
    net::skb::SkBuff,
};
use kernel::{
    device::{self, Bound},
    dma::DmaAddress,
    error::to_result,
    prelude::*,
};

/// A reference to a device that does DMA, which is bound as long as there is one.
pub(crate) trait DmaDevice: Clone + Send + Sync {
    /// The device.
    fn device(&self) -> &device::Device<Bound>;
}

/// Memory as the device addresses it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Range {
    /// Bus address.
    pub(crate) addr: DmaAddress,
    /// Bytes.
    pub(crate) bytes: u32,
}

/// At most `N` ranges of memory that are mapped; unmapped when dropped.
///
/// # Invariants
///
/// The first `count` of `ranges` are mapped for `dev`, in direction `dir`.
struct Mapping<D: DmaDevice, const N: usize> {
    dev: D,
    dir: dma_data_direction,
    ranges: [Range; N],
    count: usize,
}

impl<D: DmaDevice, const N: usize> Mapping<D, N> {
    fn new(dev: &D, dir: dma_data_direction) -> Self {
        // INVARIANT: Nothing is mapped.
        Self {
            dev: dev.clone(),
            dir,
            ranges: [Range::default(); N],
            count: 0,
        }
    }

    fn raw(&self) -> *mut bindings::device {
        let dev: &device::Device = self.dev.device();
        // `Device` is a transparent wrapper of an `Opaque<bindings::device>`.
        core::ptr::from_ref(dev).cast_mut().cast()
    }

    /// Adds what has just been mapped.
    ///
    /// # Safety
    ///
    /// `addr` is what a mapping function gave for `bytes` bytes, for this device and direction.
    unsafe fn add(&mut self, addr: DmaAddress, bytes: u32) -> Result {
        // SAFETY: A device, and an address that was mapped for it.
        to_result(unsafe { bindings::helper_dma_mapping_error(self.raw(), addr) })?;
        // INVARIANT: By the requirement of this function.
        self.ranges[self.count] = Range { addr, bytes };
        self.count += 1;
        Ok(())
    }

    /// Maps memory.
    ///
    /// # Safety
    ///
    /// There are `bytes` bytes at `at`, in the kernel's linear mapping, as long as this value has them.
    unsafe fn map(&mut self, at: *mut u8, bytes: u32) -> Result {
        // SAFETY: By the requirement of this function; the device is bound.
        unsafe {
            let addr =
                bindings::helper_dma_map_single(self.raw(), at.cast(), bytes as usize, self.dir);
            self.add(addr, bytes)
        }
    }
}

impl<D: DmaDevice, const N: usize> Drop for Mapping<D, N> {
    fn drop(&mut self) {
        for range in &self.ranges[..self.count] {
            let bytes = range.bytes as usize;
            // SAFETY: Mapped, by the type invariant.
            unsafe { bindings::helper_dma_unmap_page(self.raw(), range.addr, bytes, self.dir) };
        }
    }
}

/// A packet whose memory is mapped for a device, in at most `N` ranges. The fields are dropped in this order.
pub(crate) struct Mapped<D: DmaDevice, const N: usize> {
    mapping: Mapping<D, N>,
    skb: SkBuff,
}

impl<D: DmaDevice, const N: usize> Mapped<D, N> {
    /// Maps a packet of at most `N` parts for the device to read.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` it has more parts, or none; `ENOMEM` it cannot be mapped.
    pub(crate) fn to_device(dev: &D, skb: SkBuff) -> Result<Self> {
        if !(1..=N as u32).contains(&skb.parts()) {
            return Err(EMSGSIZE);
        }
        let mut mapping = Mapping::new(dev, dma_data_direction::DMA_TO_DEVICE);
        let raw = skb.as_raw();
        // SAFETY: The packet is valid and ours; its parts stay as they are as long as the mapping, as nobody else has it.
        unsafe {
            let head = bindings::helper_skb_headlen(raw);
            if head != 0 {
                mapping.map((*raw).data, head)?;
            }
            for i in 0..bindings::helper_skb_nr_frags(raw) {
                let mut bytes = 0;
                let addr = bindings::helper_skb_frag_dma_map(mapping.raw(), raw, i, &mut bytes);
                mapping.add(addr, bytes)?;
            }
        }
        Ok(Self { mapping, skb })
    }

    /// Maps the free bytes behind a packet, at most `bytes`, for the device to write.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` there are none; `ENOMEM` they cannot be mapped.
    pub(crate) fn from_device(dev: &D, skb: SkBuff, bytes: u32) -> Result<Self> {
        const { assert!(N > 0) };
        let bytes = bytes.min(skb.tailroom());
        if bytes == 0 {
            return Err(EMSGSIZE);
        }
        let mut mapping = Mapping::new(dev, dma_data_direction::DMA_FROM_DEVICE);
        // SAFETY: The packet is valid and ours; as many bytes are free behind its linear part, and stay there as long
        // as the mapping.
        unsafe {
            let raw = skb.as_raw();
            let end = (*raw).data.add(bindings::helper_skb_headlen(raw) as usize);
            mapping.map(end, bytes)?;
        }
        Ok(Self { mapping, skb })
    }

    /// The packet. What the device writes is not to be read yet.
    pub(crate) fn skb(&self) -> &SkBuff {
        &self.skb
    }

    /// Where it is.
    pub(crate) fn ranges(&self) -> &[Range] {
        &self.mapping.ranges[..self.mapping.count]
    }

    /// Gives the packet back, which the device does not use any more.
    pub(crate) fn unmap(self) -> SkBuff {
        drop(self.mapping);
        self.skb
    }
}
