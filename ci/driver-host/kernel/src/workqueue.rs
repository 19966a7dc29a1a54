// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work that is done by a thread of its own.

use crate::time::Jiffies;
use crate::world::world;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

/// Work of a `T`.
pub struct Work<T, const ID: u64 = 0> {
    pending: Cell<bool>,
    of: PhantomData<fn(T)>,
}

/// Work that may be done later.
pub type DelayedWork<T, const ID: u64 = 0> = Work<T, ID>;

// SAFETY: One thread runs at a time.
unsafe impl<T, const ID: u64> Sync for Work<T, ID> {}

impl<T, const ID: u64> Default for Work<T, ID> {
    fn default() -> Self {
        Self { pending: Cell::new(false), of: PhantomData }
    }
}

impl<T, const ID: u64> Work<T, ID> {
    /// What names it for [`crate::world::World`].
    #[must_use]
    pub fn key(&self) -> usize {
        std::ptr::from_ref(&self.pending) as usize
    }

    /// Takes it back if it has not begun.
    pub fn cancel(&self) {
        if self.pending.replace(false) {
            world().cancel_job(self.key());
        }
    }
}

pub trait WorkItem<const ID: u64 = 0> {
    type Pointer;

    fn run(this: Self::Pointer);
}

pub trait HasWork<T, const ID: u64 = 0> {
    fn work(&self) -> &Work<T, ID>;
}

/// A work queue.
#[derive(Default)]
pub struct Queue(());

impl Queue {
    pub fn enqueue<T, const ID: u64>(&self, item: Arc<T>) -> Result<(), Arc<T>>
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + 'static,
    {
        self.enqueue_delayed(item, 0)
    }

    pub fn enqueue_delayed<T, const ID: u64>(&self, item: Arc<T>, delay: Jiffies) -> Result<(), Arc<T>>
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + 'static,
    {
        let work = item.work();
        if work.pending.replace(true) {
            return Err(item);
        }
        let (world, key) = (world(), work.key());
        let due = world.now() + delay * 1_000_000;
        world.add_job(key, due, move || {
            item.work().pending.set(false);
            T::run(item);
        });
        Ok(())
    }
}

#[macro_export]
macro_rules! impl_has_work {
    ($(impl HasWork<$me:ident $(, $id:tt)?> for $t:ident { self.$field:ident })*) => {$(
        impl $crate::workqueue::HasWork<$t $(, $id)?> for $t {
            fn work(&self) -> &$crate::workqueue::Work<$t $(, $id)?> {
                &self.$field
            }
        }
    )*};
}

#[macro_export]
macro_rules! impl_has_delayed_work {
    ($(impl HasDelayedWork<$me:ident $(, $id:tt)?> for $t:ident { self.$field:ident })*) => {
        $crate::impl_has_work! { $(impl HasWork<$me $(, $id)?> for $t { self.$field })* }
    };
}

#[macro_export]
macro_rules! new_work {
    ($name:literal) => {
        $crate::workqueue::Work::default()
    };
}

#[macro_export]
macro_rules! new_delayed_work {
    ($name:literal) => {
        $crate::workqueue::Work::default()
    };
}
