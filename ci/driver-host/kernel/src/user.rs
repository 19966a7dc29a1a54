// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that makes a call: its address space, its capabilities, and memory that the call names.
//!
//! All of it is the calling thread's, and belongs to a test.

use crate::error::{Result, code::EFAULT};
use crate::mm::MmWithUser;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Memory of the process from an address on.
struct Region {
    bytes: Vec<u8>,
    writable: bool,
}

thread_local! {
    static MM: Cell<Option<&'static MmWithUser>> = const { Cell::new(None) };
    static CAPABILITIES: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    static MEMORY: RefCell<BTreeMap<usize, Region>> = const { RefCell::new(BTreeMap::new()) };
    static AT_REFUSAL: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// Says whose address space the calls are made from that come next; none: a thread of the kernel.
pub fn enter(mm: Option<&'static MmWithUser>) {
    MM.set(mm);
}

/// Whose that is.
#[must_use]
pub fn caller() -> Option<&'static MmWithUser> {
    MM.get()
}

/// Says which capabilities the caller has, beside that of `RLIMIT_MEMLOCK`.
pub fn set_capabilities(all: &[u32]) {
    CAPABILITIES.set(all.to_vec());
}

/// Which these are.
#[must_use]
pub fn capabilities() -> Vec<u32> {
    CAPABILITIES.with_borrow(Clone::clone)
}

/// Whether the caller has a capability.
#[must_use]
pub fn has(capability: u32) -> bool {
    CAPABILITIES.with_borrow(|all| all.contains(&capability))
}

/// Puts memory at an address, in place of what is there; what is not writable can be read only.
pub fn put(address: usize, bytes: &[u8], writable: bool) {
    let region = Region { bytes: bytes.to_vec(), writable };
    MEMORY.with_borrow_mut(|memory| memory.insert(address, region));
}

/// Says what happens just before the caller's memory cannot be written next.
pub fn at_refusal(f: impl FnOnce() + 'static) {
    AT_REFUSAL.set(Some(Box::new(f)));
}

/// The memory that was put at an address.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn get(address: usize) -> Vec<u8> {
    MEMORY.with_borrow(|memory| memory[&address].bytes.clone())
}

/// Does something with `len` bytes from `address` on.
fn with<T>(address: usize, len: usize, write: bool, f: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
    MEMORY.with_borrow_mut(|memory| {
        let (start, region) = memory.range_mut(..=address).next_back().ok_or(EFAULT)?;
        let at = address - start;
        let bytes = region.bytes.get_mut(at..).and_then(|rest| rest.get_mut(..len)).ok_or(EFAULT)?;
        if write && !region.writable { Err(EFAULT) } else { Ok(f(bytes)) }
    })
}

/// The calling task.
pub struct CurrentTask;

impl CurrentTask {
    #[must_use]
    pub fn mm(&self) -> Option<&'static MmWithUser> {
        MM.get()
    }
}

#[macro_export]
macro_rules! current {
    () => {
        $crate::user::CurrentTask
    };
}

/// Values as bytes.
pub mod transmute {
    /// # Safety
    ///
    /// The value has no padding.
    pub unsafe trait AsBytes {}

    /// # Safety
    ///
    /// Any bytes are a value.
    pub unsafe trait FromBytes {}
}

/// Copying from and to memory of the caller.
pub mod uaccess {
    use super::transmute::{AsBytes, FromBytes};
    use super::with;
    use crate::error::{Result, code::EFAULT};
    use crate::world::might_sleep;
    use core::mem::MaybeUninit;

    /// An address of the caller.
    #[derive(Clone, Copy)]
    pub struct UserPtr(usize);

    impl UserPtr {
        #[must_use]
        pub fn from_addr(address: usize) -> Self {
            Self(address)
        }
    }

    /// Memory of the caller, which is looked at when it is used.
    pub struct UserSlice {
        at: usize,
        len: usize,
    }

    pub struct UserSliceReader(UserSlice);

    pub struct UserSliceWriter(UserSlice);

    impl UserSlice {
        #[must_use]
        pub fn new(at: UserPtr, len: usize) -> Self {
            Self { at: at.0, len }
        }

        #[must_use]
        pub fn reader(self) -> UserSliceReader {
            UserSliceReader(self)
        }

        #[must_use]
        pub fn writer(self) -> UserSliceWriter {
            UserSliceWriter(self)
        }

        #[must_use]
        pub fn reader_writer(self) -> (UserSliceReader, UserSliceWriter) {
            (UserSliceReader(Self { ..self }), UserSliceWriter(self))
        }

        /// Goes on behind `n` bytes; gives where they are.
        fn pass(&mut self, n: usize) -> Result<usize> {
            might_sleep();
            let at = self.at;
            self.len = self.len.checked_sub(n).ok_or(EFAULT)?;
            self.at += n;
            Ok(at)
        }
    }

    impl UserSliceReader {
        pub fn read<T: FromBytes>(&mut self) -> Result<T> {
            let n = size_of::<T>();
            let at = self.0.pass(n)?;
            with(at, n, false, |from| {
                let mut value = MaybeUninit::<T>::uninit();
                // SAFETY: So many bytes are there and here; any are a value.
                unsafe {
                    value.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from.as_ptr(), n);
                    value.assume_init()
                }
            })
        }
    }

    impl UserSliceWriter {
        #[must_use]
        pub fn len(&self) -> usize {
            self.0.len
        }

        #[must_use]
        pub fn is_empty(&self) -> bool {
            self.0.len == 0
        }

        pub fn write<T: AsBytes>(&mut self, value: &T) -> Result {
            // SAFETY: So many bytes, without padding.
            let bytes = unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) };
            self.write_slice(bytes)
        }

        pub fn write_slice(&mut self, bytes: &[u8]) -> Result {
            let at = self.0.pass(bytes.len())?;
            with(at, bytes.len(), true, |to| to.copy_from_slice(bytes)).inspect_err(|_| {
                if let Some(f) = super::AT_REFUSAL.take() {
                    f();
                }
            })
        }
    }
}
