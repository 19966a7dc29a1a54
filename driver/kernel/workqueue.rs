// SPDX-License-Identifier: GPL-2.0
//! A work queue of the driver's own, and cancelling of delayed work.
//!
//! C header: `include/linux/workqueue.h`.

use core::{ops::Deref, ptr::NonNull};
use kernel::{
    bindings, container_of,
    prelude::*,
    sync::Arc,
    workqueue::{HasDelayedWork, HasWork, Queue, Work, WorkItem},
};

/// An unbound work queue; what is queued is finished before it goes.
///
/// # Invariants
///
/// The pointer is a valid work queue owned by this value.
pub(crate) struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Work queues are thread-safe.
unsafe impl Send for OwnedQueue {}
// SAFETY: Work queues are thread-safe.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Makes a queue that runs up to `max_active` items at once, at least one of them
    /// even when memory is short.
    pub(crate) fn new(name: &'static CStr, max_active: c_int) -> Result<Self> {
        // SAFETY: The format takes one string, which is given.
        let ptr = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM,
                max_active,
                name.as_char_ptr(),
            )
        };
        // INVARIANT: A fresh queue.
        NonNull::new(ptr).map(Self).ok_or(ENOMEM)
    }

    /// Waits until everything that is queued now has run.
    pub(crate) fn flush(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: Valid by the type invariant, as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: Owned, by the type invariant.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// The delayed work `ID` of `item`, valid as long as that.
fn delayed_of<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::delayed_work
where
    T: HasDelayedWork<T, ID> + HasWork<T, ID>,
{
    let ptr = Arc::as_ptr(item).cast_mut();
    // SAFETY: `ptr` points at a valid `T`.
    let work = unsafe { Work::raw_get(T::raw_get_work(ptr)) };
    // SAFETY: `HasDelayedWork` says that the work is part of a `delayed_work`.
    unsafe { container_of!(work, bindings::delayed_work, work) }
}

/// Cancels the delayed work `ID` of `item`, or waits for it if it is running, for good: it is
/// not queued again, by itself or by others. Must not be called by the work itself.
pub(crate) fn end_delayed<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + HasWork<T, ID>,
{
    // SAFETY: The delayed work is valid as long as `item`.
    if unsafe { bindings::disable_delayed_work_sync(delayed_of::<T, ID>(item)) } {
        // SAFETY: It was queued, with a reference that its run would have taken over.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
    }
}

/// Takes the delayed work `ID` of `item` back if it has not begun; it may be queued again.
pub(crate) fn take_back<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + HasWork<T, ID>,
{
    // SAFETY: The delayed work is valid as long as `item`.
    if unsafe { bindings::cancel_delayed_work(delayed_of::<T, ID>(item)) } {
        // SAFETY: It was queued, with a reference that its run would have taken over.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
    }
}

/// Cancels the work `ID` of `item`, or waits for it if it is running. Must not be called
/// by the work itself.
pub(crate) fn cancel<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    let ptr = Arc::as_ptr(item).cast_mut();
    // SAFETY: `ptr` points at a valid `T`.
    let work = unsafe { Work::raw_get(T::raw_get_work(ptr)) };
    // SAFETY: The work is valid as long as `item`.
    if unsafe { bindings::cancel_work_sync(work) } {
        // SAFETY: It was queued, with a reference that its run would have taken over.
        drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
    }
}
