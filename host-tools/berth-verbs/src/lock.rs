// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock that one function of verbs may take and another one give back (`ibv_wr_start` and `ibv_wr_complete`).

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};

/// Tries before the processor is given to others, among which its owner may be.
const SPINS: u32 = 100;

/// A value for one thread at a time. It is held for short times only.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a thread has the value only while it holds the lock.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock is held.
pub struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Held<'_, T> {
        let mut spins = 0;
        while self.taken.swap(true, Ordering::Acquire) {
            if spins < SPINS {
                spins += 1;
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        Held(self)
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<Held<'_, T>> {
        (!self.taken.swap(true, Ordering::Acquire)).then(|| Held(self))
    }

    /// The lock as it was kept by [`Held::keep`].
    ///
    /// # Safety
    /// The caller must be the one that it was kept for, and have no other [`Held`] of it.
    pub unsafe fn kept(&self) -> Held<'_, T> {
        debug_assert!(self.taken.load(Ordering::Relaxed));
        Held(self)
    }
}

impl<T> Held<'_, T> {
    /// Goes on holding the lock beyond the function that took it.
    pub fn keep(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and no other `Held` of it is in use.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_lock_keeps_others_out_until_it_is_given_back() {
        let lock = Lock::new(0);
        lock.lock().keep();
        thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock());
            assert!(lock.try_lock().is_none());
            // SAFETY: kept by this thread.
            let mut held = unsafe { lock.kept() };
            *held = 7;
            drop(held);
            assert_eq!(other.join().unwrap(), 7);
        });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(lock.try_lock().map(|held| *held), Some(4007));
    }
}
