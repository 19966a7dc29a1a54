// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks, which tell what the kernel would hang in, atomics, completions.

pub use crate::misc::SetOnce;
use crate::world::{leave_mutex, leave_spin, take_mutex, take_spin, world};
use core::cell::{Cell, RefCell, RefMut};
use core::ops::{Deref, DerefMut};
pub use std::sync::Arc;

/// A spin lock.
pub struct SpinLock<T> {
    value: RefCell<T>,
    name: &'static str,
}

// SAFETY: One thread runs at a time, and none hands over while it holds a spin lock.
unsafe impl<T> Sync for SpinLock<T> {}

pub struct SpinGuard<'a, T> {
    value: Option<RefMut<'a, T>>,
    name: &'static str,
}

impl<T> SpinLock<T> {
    pub const fn new(value: T, name: &'static str) -> Self {
        Self { value: RefCell::new(value), name }
    }

    pub fn lock(&self) -> SpinGuard<'_, T> {
        take_spin(self.name);
        let Ok(value) = self.value.try_borrow_mut() else { panic!("{} is taken by who holds it", self.name) };
        SpinGuard { value: Some(value), name: self.name }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("until it is dropped")
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("until it is dropped")
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        leave_spin(self.name);
        if !std::thread::panicking() {
            world().preempt();
        }
    }
}

#[macro_export]
macro_rules! new_spinlock {
    ($value:expr, $name:literal) => {
        $crate::sync::SpinLock::new($value, $name)
    };
}

/// Interrupts are another thread here, which does not run while a spin lock is held.
pub type SpinLockIrq<T> = SpinLock<T>;
pub use crate::new_spinlock as new_spinlock_irq;

/// A lock that is slept for.
pub struct Mutex<T> {
    value: RefCell<T>,
    taken: Arc<Cell<bool>>,
    name: &'static str,
}

// SAFETY: One thread runs at a time.
unsafe impl<T> Sync for Mutex<T> {}
// SAFETY: As above.
unsafe impl<T> Send for Mutex<T> {}

pub struct MutexGuard<'a, T> {
    value: Option<RefMut<'a, T>>,
    taken: &'a Cell<bool>,
    name: &'static str,
}

impl<T> Mutex<T> {
    pub fn new(value: T, name: &'static str) -> Self {
        Self { value: RefCell::new(value), taken: Arc::default(), name }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        take_mutex(self.name);
        while self.taken.get() {
            let taken = self.taken.clone();
            world().wait(move || !taken.get());
        }
        self.taken.set(true);
        MutexGuard { value: Some(self.value.borrow_mut()), taken: &self.taken, name: self.name }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("until it is dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("until it is dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        self.taken.set(false);
        leave_mutex(self.name);
    }
}

#[macro_export]
macro_rules! new_mutex {
    ($value:expr, $name:literal) => {
        $crate::sync::Mutex::new($value, $name)
    };
}

/// What is waited for once.
#[derive(Default)]
pub struct Completion(Arc<Cell<bool>>);

// SAFETY: One thread runs at a time.
unsafe impl Sync for Completion {}
// SAFETY: As above.
unsafe impl Send for Completion {}

impl Completion {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait_for_completion(&self) {
        let done = self.0.clone();
        world().wait(move || done.get());
    }

    pub fn complete_all(&self) {
        self.0.set(true);
    }
}

/// Counted references to what counts by itself.
pub mod aref {
    use core::ops::Deref;
    use core::ptr::NonNull;

    /// # Safety
    ///
    /// What is counted must live while the count is above 0.
    pub unsafe trait AlwaysRefCounted {
        fn inc_ref(&self);
        /// # Safety
        ///
        /// The caller gives up a reference.
        unsafe fn dec_ref(obj: NonNull<Self>);
    }

    pub struct ARef<T: AlwaysRefCounted>(NonNull<T>);

    // SAFETY: One thread runs at a time.
    unsafe impl<T: AlwaysRefCounted> Send for ARef<T> {}
    // SAFETY: As above.
    unsafe impl<T: AlwaysRefCounted> Sync for ARef<T> {}

    impl<T: AlwaysRefCounted> ARef<T> {
        /// # Safety
        ///
        /// A reference is handed over.
        pub unsafe fn from_raw(ptr: NonNull<T>) -> Self {
            Self(ptr)
        }
    }

    impl<T: AlwaysRefCounted> From<&T> for ARef<T> {
        fn from(value: &T) -> Self {
            value.inc_ref();
            Self(NonNull::from(value))
        }
    }

    impl<T: AlwaysRefCounted> Deref for ARef<T> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: It is counted.
            unsafe { self.0.as_ref() }
        }
    }

    impl<T: AlwaysRefCounted> Drop for ARef<T> {
        fn drop(&mut self) {
            // SAFETY: The reference is this value's.
            unsafe { T::dec_ref(self.0) }
        }
    }
}

/// Atomics.
pub mod atomic {
    use core::cell::UnsafeCell;

    pub struct Relaxed;
    pub struct Release;
    pub struct Full;

    /// Numbers that are added to.
    pub trait Number: Copy + PartialEq {
        fn plus(self, other: Self) -> Self;
        fn minus(self, other: Self) -> Self;
    }

    macro_rules! number {
        ($($t:ty)*) => {$(
            impl Number for $t {
                fn plus(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }

                fn minus(self, other: Self) -> Self {
                    self.wrapping_sub(other)
                }
            }
        )*};
    }

    number!(u32 u64 i32 i64);

    #[repr(transparent)]
    pub struct Atomic<T>(UnsafeCell<T>);

    // SAFETY: One thread runs at a time.
    unsafe impl<T> Sync for Atomic<T> {}

    impl<T> Atomic<T> {
        pub const fn new(value: T) -> Self {
            Self(UnsafeCell::new(value))
        }

        /// # Safety
        ///
        /// The value lives as long as what is returned.
        pub unsafe fn from_ptr<'a>(ptr: *mut T) -> &'a Self {
            // SAFETY: By the caller; the representation is that of the value.
            unsafe { &*ptr.cast() }
        }
    }

    impl<T: Number> Atomic<T> {
        pub fn load<O>(&self, _: O) -> T {
            // SAFETY: One thread runs at a time.
            unsafe { *self.0.get() }
        }

        pub fn store<O>(&self, value: T, _: O) {
            // SAFETY: One thread runs at a time.
            unsafe { *self.0.get() = value }
        }

        pub fn xchg<O>(&self, value: T, _: O) -> T {
            let old = self.load(Relaxed);
            self.store(value, Relaxed);
            old
        }

        pub fn cmpxchg<O>(&self, old: T, new: T, _: O) -> Result<T, T> {
            let now = self.load(Relaxed);
            if now != old {
                return Err(now);
            }
            self.store(new, Relaxed);
            Ok(old)
        }

        pub fn fetch_add<O>(&self, value: T, _: O) -> T {
            self.xchg(self.load(Relaxed).plus(value), Relaxed)
        }

        pub fn fetch_sub<O>(&self, value: T, _: O) -> T {
            self.xchg(self.load(Relaxed).minus(value), Relaxed)
        }

        pub fn add<O>(&self, value: T, _: O) {
            self.fetch_add(value, Relaxed);
        }
    }
}

/// Barriers: there is nothing to be kept in order.
pub mod barrier {
    pub struct Read;

    pub fn dma_mb(_: Read) {}
}
