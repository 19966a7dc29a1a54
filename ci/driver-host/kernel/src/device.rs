// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device, and memory that it shares with the driver.

use crate::sync::aref::AlwaysRefCounted;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

pub struct Normal;
pub struct Bound;

/// A device; there is nothing to know about it.
#[repr(transparent)]
pub struct Device<C = Normal>(PhantomData<C>);

/// The one device.
pub static DEVICE: Device<Bound> = Device(PhantomData);

impl Deref for Device<Bound> {
    type Target = Device;

    fn deref(&self) -> &Device {
        &Device(PhantomData)
    }
}

// SAFETY: It is nothing.
unsafe impl AlwaysRefCounted for Device {
    fn inc_ref(&self) {}

    unsafe fn dec_ref(_: NonNull<Self>) {}
}

/// Memory for DMA.
pub mod dma {
    use super::{Bound, Device};
    use crate::alloc::{Flags, take};
    use crate::error::{Error, Result};
    use crate::io::Io;
    use core::cell::UnsafeCell;
    use core::marker::PhantomData;

    /// Zeroed memory; its bus address is where it is.
    pub struct Coherent<T: ?Sized> {
        words: Box<[UnsafeCell<u64>]>,
        /// Index of its first word: it begins with a page.
        first: usize,
        len: usize,
        of: PhantomData<T>,
    }

    // SAFETY: One thread runs at a time.
    unsafe impl<T: ?Sized> Sync for Coherent<T> {}

    impl<T: Copy> Coherent<[T]> {
        pub fn zeroed_slice(_: &Device<Bound>, len: usize, flags: Flags) -> Result<Self> {
            take(flags)?;
            let words = (len * size_of::<T>()).div_ceil(8) + 511;
            let words: Box<[_]> = (0..words).map(|_| UnsafeCell::new(0)).collect();
            let first = (words.as_ptr() as usize).next_multiple_of(4096) - words.as_ptr() as usize;
            Ok(Self { words, first: first / 8, len, of: PhantomData })
        }

        #[must_use]
        pub fn dma_address(&self) -> u64 {
            self.words[self.first..].as_ptr() as u64
        }

        /// Element `at`.
        pub fn at(&self, at: usize) -> Result<Place<T>> {
            if at >= self.len {
                return Err(Error(-22));
            }
            // SAFETY: Within the memory.
            Ok(Place(unsafe { self.words[self.first].get().cast::<T>().add(at) }))
        }
    }

    /// A value in such memory.
    pub struct Place<T>(*mut T);

    impl<T: Copy> Io for Place<T> {
        const SIZE: usize = size_of::<T>();
        type Target = T;

        fn place(&self) -> *mut T {
            self.0
        }
    }
}
