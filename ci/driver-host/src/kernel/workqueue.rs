// SPDX-License-Identifier: GPL-2.0
//! Work queues of the driver's own, and cancelling.

use core::ops::Deref;
use kernel::{
    sync::Arc,
    workqueue::{HasWork, Queue, WorkItem},
    world::world,
};

#[derive(Default)]
pub(crate) struct OwnedQueue(Queue);

impl Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.0
    }
}

pub(crate) fn cancel<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    let work = item.work();
    work.cancel();
    let key = work.key();
    if world().is_running(key) {
        world().wait(move || !world().is_running(key));
    }
}

pub(crate) fn take_back<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    item.work().cancel();
}

pub(crate) fn end_delayed<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    cancel::<T, ID>(item);
    // As often as it queues itself again.
    cancel::<T, ID>(item);
}
