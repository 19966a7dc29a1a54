// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory, which may be short.

use crate::error::{Error, code::ENOMEM};
use crate::world::{might_sleep, world};
use core::ops::{BitOr, Deref, DerefMut};
use std::sync::Arc;

/// How memory is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flags(u32);

/// It may be waited for.
pub const GFP_KERNEL: Flags = Flags(1);
/// It may not.
pub const GFP_ATOMIC: Flags = Flags(2);
/// Nothing is said when there is none.
pub const __GFP_NOWARN: Flags = Flags(4);

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// There is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        ENOMEM
    }
}

/// Takes memory, or not.
pub(crate) fn take(flags: Flags) -> Result<(), AllocError> {
    let may_wait = flags.0 & GFP_KERNEL.0 != 0;
    if may_wait {
        might_sleep();
    }
    if world().fails(may_wait) { Err(AllocError) } else { Ok(()) }
}

/// What `Arc` can do in the kernel.
pub trait ArcExt<T>: Sized {
    fn pin_init(value: T, flags: Flags) -> Result<Self, Error>;
}

impl<T> ArcExt<T> for Arc<T> {
    fn pin_init(value: T, flags: Flags) -> Result<Self, Error> {
        take(flags)?;
        Ok(Self::new(value))
    }
}

/// A vector.
#[derive(Debug)]
pub struct KVec<T> {
    list: Vec<T>,
    room: usize,
}

pub type KVVec<T> = KVec<T>;

impl<T> Default for KVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> KVec<T> {
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new(), room: 0 }
    }

    pub fn with_capacity(room: usize, flags: Flags) -> Result<Self, AllocError> {
        if room > 0 {
            take(flags)?;
        }
        Ok(Self { list: Vec::with_capacity(room), room })
    }

    pub fn from_elem(value: T, n: usize, flags: Flags) -> Result<Self, AllocError>
    where
        T: Clone,
    {
        take(flags)?;
        Ok(Self { list: vec![value; n], room: n })
    }

    pub const fn capacity(&self) -> usize {
        self.room
    }

    pub fn push(&mut self, value: T, flags: Flags) -> Result<(), AllocError> {
        if self.list.len() == self.room {
            take(flags)?;
            self.room = (2 * self.room).max(4);
        }
        self.list.push(value);
        Ok(())
    }

    pub fn push_within_capacity(&mut self, value: T) -> Result<(), T> {
        if self.list.len() == self.room {
            return Err(value);
        }
        self.list.push(value);
        Ok(())
    }

    pub fn insert_within_capacity(&mut self, at: usize, value: T) -> Result<(), T> {
        if self.list.len() == self.room || at > self.list.len() {
            return Err(value);
        }
        self.list.insert(at, value);
        Ok(())
    }

    pub fn pop(&mut self) -> Option<T> {
        self.list.pop()
    }

    pub fn remove(&mut self, at: usize) -> Result<T, Error> {
        if at < self.list.len() { Ok(self.list.remove(at)) } else { Err(Error(-22)) }
    }

    pub fn retain(&mut self, f: impl FnMut(&mut T) -> bool) {
        self.list.retain_mut(f);
    }

    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub fn drain_all(&mut self) -> std::vec::Drain<'_, T> {
        self.list.drain(..)
    }
}

impl<T> Deref for KVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.list
    }
}

impl<T> DerefMut for KVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.list
    }
}

impl<'a, T> IntoIterator for &'a KVec<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
