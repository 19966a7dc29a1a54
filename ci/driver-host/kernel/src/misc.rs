// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device nodes, open files, and mappings that are being set up.

use crate::ThisModule;
use crate::alloc::{AllocError, Flags, take};
use crate::error::{Error, Result};
use core::cell::RefCell;
use core::ffi::CStr;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::pin::Pin;
use std::sync::{Arc, OnceLock};

/// C structures.
#[allow(non_camel_case_types)]
pub mod bindings {
    #[derive(Clone, Copy)]
    pub struct file_operations {
        pub owner: *mut module,
    }

    pub struct miscdevice {
        pub fops: *const file_operations,
    }

    pub struct module;
}

/// What is given a value once.
pub struct SetOnce<T>(OnceLock<T>);

impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> SetOnce<T> {
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub fn as_ref(&self) -> Option<&T> {
        self.0.get()
    }

    pub fn populate(&self, value: T) -> bool {
        self.0.set(value).is_ok()
    }
}

/// A value in memory of its own.
pub struct KBox<T>(Box<T>);

impl<T> KBox<T> {
    pub fn new(value: T, flags: Flags) -> Result<Self, AllocError> {
        take(flags)?;
        Ok(Self(Box::new(value)))
    }

    pub fn try_pin_init(value: T, flags: Flags) -> Result<Pin<Self>> {
        let this = Self::new(value, flags)?;
        // SAFETY: The value stays where it is until it is dropped.
        Ok(unsafe { Pin::new_unchecked(this) })
    }
}

impl<T> Deref for KBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for KBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// What is done when something pinned goes.
pub trait PinnedDrop {
    fn drop(self: Pin<&mut Self>);
}

/// A node; who holds it counts.
#[derive(Default)]
pub struct Inode {
    /// What was taken out of all processes, by offset.
    pub zapped: RefCell<Vec<u64>>,
}

// SAFETY: One thread runs at a time.
unsafe impl Sync for Inode {}

/// An open file.
pub struct File(pub Option<Arc<Inode>>);

/// How a node is called.
pub struct Node(&'static CStr);

impl Node {
    #[must_use]
    pub fn name(&self) -> &CStr {
        self.0
    }
}

/// A device node that can be opened.
pub struct MiscDeviceRegistration<T> {
    node: Node,
    raw: RefCell<bindings::miscdevice>,
    of: PhantomData<T>,
}

static OPERATIONS: usize = 0;

impl<T> MiscDeviceRegistration<T> {
    #[must_use]
    pub fn new(name: &'static CStr) -> Self {
        let raw = bindings::miscdevice { fops: core::ptr::from_ref(&OPERATIONS).cast() };
        Self { node: Node(name), raw: RefCell::new(raw), of: PhantomData }
    }

    pub fn device(&self) -> &Node {
        &self.node
    }

    pub fn as_raw(&self) -> *mut bindings::miscdevice {
        self.raw.as_ptr()
    }
}

/// What files of a node do.
pub trait MiscDevice: Sized {
    type Ptr;

    fn open(file: &File, misc: &MiscDeviceRegistration<Self>) -> Result<Self::Ptr>;
    fn ioctl(this: Pin<&Self>, file: &File, cmd: u32, arg: usize) -> Result<isize>;
    fn mmap(this: Pin<&Self>, file: &File, vma: &VmaNew) -> Result;
}

impl ThisModule {
    #[must_use]
    pub fn as_ptr(&self) -> *mut bindings::module {
        core::ptr::null_mut()
    }
}

/// A mapping of a file that is being set up.
pub struct VmaNew {
    start: usize,
    end: usize,
    flags: usize,
    offset: u64,
    /// What it maps, once that is known: the bus address of a queue, or the doorbell page.
    pub maps: RefCell<Option<u64>>,
}

/// Flags of a mapping.
pub mod flags {
    pub const SHARED: usize = 8;
}

impl VmaNew {
    #[must_use]
    pub fn new(bytes: usize, offset: u64, flags: usize) -> Self {
        Self { start: 0x10000, end: 0x10000 + bytes, flags, offset, maps: RefCell::new(None) }
    }

    pub fn start(&self) -> usize {
        self.start
    }

    pub fn end(&self) -> usize {
        self.end
    }

    pub fn flags(&self) -> usize {
        self.flags
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Maps something, all of which is mapped and not only to the process itself.
    pub fn map(&self, what: u64, bytes: usize) -> Result {
        if self.end - self.start != bytes || self.flags & flags::SHARED == 0 {
            return Err(Error(-22));
        }
        *self.maps.borrow_mut() = Some(what);
        Ok(())
    }
}
