// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PCI device with registers, which are the test's ([`World::set_registers`](crate::world::World::set_registers)).

use crate::device::Bound;
use crate::error::Result;
use core::ffi::CStr;
use core::marker::PhantomData;

/// A PCI device.
pub struct Device<C>(PhantomData<C>);

/// The one device.
pub static DEVICE: Device<Bound> = Device(PhantomData);

/// Registers of a device.
pub struct Bar<'a, const SIZE: usize>(PhantomData<&'a ()>);

impl Device<Bound> {
    pub fn iomap_region_sized<const SIZE: usize>(&self, bar: u32, _: &CStr) -> Result<Bar<'_, SIZE>> {
        assert_eq!(bar, 0);
        Ok(Bar(PhantomData))
    }
}

impl<const SIZE: usize> Bar<'_, SIZE> {
    pub fn into_devres(self) -> Result<DevresBar<SIZE>> {
        Ok(devres::Devres::new(Bar(PhantomData)))
    }
}

/// Registers that are given back when the device is unbound.
pub type DevresBar<const SIZE: usize> = devres::Devres<Bar<'static, SIZE>>;

/// What is given back when the device is unbound.
pub mod devres {
    use crate::world::world;

    pub struct Devres<T>(T);

    impl<T> Devres<T> {
        pub(super) fn new(value: T) -> Self {
            Self(value)
        }

        /// `None` when the device is not bound any more.
        pub fn try_access_with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
            (!world().is_unbound()).then(|| f(&self.0))
        }
    }
}

/// Reading and writing.
pub mod io {
    use super::Bar;
    use crate::error::{Result, code::EINVAL};
    use crate::world::world;
    pub use crate::{io_project, io_read};

    /// What reads and writes of so many bytes come to.
    pub trait Registers {
        fn read(&self, offset: usize, bytes: usize) -> u64;
        fn write(&self, offset: usize, bytes: usize, value: u64);
    }

    pub trait Io {
        /// Bytes of it.
        const SIZE: usize;
        /// What it is, if it is memory.
        type Target: Copy;

        /// Where it is, if it is memory.
        fn place(&self) -> *mut Self::Target {
            unreachable!("registers are not copied as memory is")
        }

        fn copy_read(&self) -> Self::Target {
            // SAFETY: A place of memory.
            unsafe { *self.place() }
        }

        fn copy_write(&self, value: Self::Target) {
            // SAFETY: A place of memory.
            unsafe { *self.place() = value }
        }

        fn try_read(&self, offset: usize, bytes: usize) -> Result<u64> {
            if !offset.is_multiple_of(bytes) || offset + bytes > Self::SIZE {
                return Err(EINVAL);
            }
            Ok(world().registers().read(offset, bytes))
        }

        fn try_write(&self, value: u64, offset: usize, bytes: usize) -> Result {
            if !offset.is_multiple_of(bytes) || offset + bytes > Self::SIZE {
                return Err(EINVAL);
            }
            world().registers().write(offset, bytes, value);
            Ok(())
        }

        fn try_read32(&self, offset: usize) -> Result<u32> {
            self.try_read(offset, 4).map(|value| value as u32)
        }

        fn try_read64(&self, offset: usize) -> Result<u64> {
            self.try_read(offset, 8)
        }

        fn try_write32(&self, value: u32, offset: usize) -> Result {
            self.try_write(value.into(), offset, 4)
        }

        fn try_write64(&self, value: u64, offset: usize) -> Result {
            self.try_write(value, offset, 8)
        }
    }

    impl<const SIZE: usize> Io for Bar<'_, SIZE> {
        const SIZE: usize = SIZE;
        type Target = ();
    }
}

/// A place in memory that is shared with the device.
#[macro_export]
macro_rules! io_project {
    ($memory:expr, [try: $at:expr]) => {
        $memory.at($at)?
    };
}

/// Reads such a place, or a word of it.
#[macro_export]
macro_rules! io_read {
    ($memory:expr, [try: $at:expr]) => {
        $crate::io::Io::copy_read(&$memory.at($at)?)
    };
    ($memory:expr, [try: $at:expr][try: $word:expr]) => {
        $crate::io::Io::copy_read(&$memory.at($at)?)[$word]
    };
}
