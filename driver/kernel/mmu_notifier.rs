// SPDX-License-Identifier: GPL-2.0
//! Being told of changes of an address space.
//!
//! One `mmu_interval_notifier` covers the whole address space. Its callback runs under
//! locks of the memory manager, possibly in reclaim: it must not allocate with reclaim
//! and takes only locks that are never held while allocating or pinning.
//!
//! C header: `include/linux/mmu_notifier.h`.

use core::marker::PhantomPinned;
use kernel::{
    bindings, container_of, error::to_result, mm::MmWithUser, page::PAGE_SIZE, prelude::*,
    sync::Arc, types::Opaque,
};

/// What happens to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The range is unmapped.
    Unmap,
    /// The whole address space goes.
    Release,
    /// The addresses may then map something else or nothing: copy-on-write, truncation,
    /// `MADV_DONTNEED`, an attempt to swap out.
    Clear,
    /// Anything else: protection change, migration attempts, dirty tracking, …
    Other,
}

/// A change that is about to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// First address.
    pub(crate) start: u64,
    /// Address after the last.
    pub(crate) end: u64,
    /// Kind of change.
    pub(crate) event: Event,
    /// Whether the callback may sleep.
    pub(crate) blockable: bool,
}

/// Receiver of changes.
pub(crate) trait Invalidate: Send + Sync + 'static {
    /// The range is about to change. Returns `false` only if it would have had to sleep
    /// and must not.
    fn invalidate(&self, range: &Range) -> bool;
}

/// Registration of an [`Invalidate`] for an address space.
///
/// # Invariants
///
/// `inner` is inserted from construction to drop.
#[pin_data(PinnedDrop)]
pub(crate) struct Registration<T: Invalidate> {
    target: Arc<T>,
    #[pin]
    inner: Opaque<bindings::mmu_interval_notifier>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: Insertion and removal may happen on different threads.
unsafe impl<T: Invalidate> Send for Registration<T> {}
// SAFETY: All methods of `&Registration` are thread-safe.
unsafe impl<T: Invalidate> Sync for Registration<T> {}

impl<T: Invalidate> Registration<T> {
    const OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate_callback),
        invalidate_start: None,
        invalidate_finish: None,
    };

    /// Registers `target` for all of `mm`. Takes the mmap lock for writing.
    pub(crate) fn new<'a>(
        mm: &'a MmWithUser,
        target: Arc<T>,
    ) -> impl PinInit<Self, Error> + use<'a, T> {
        try_pin_init!(Self {
            target,
            inner <- Opaque::try_ffi_init(move |slot: *mut bindings::mmu_interval_notifier| {
                // SAFETY: `slot` is pinned memory that is removed before it is freed; `mm`
                // has users.
                to_result(unsafe {
                    slot.write(pin_init::zeroed());
                    bindings::mmu_interval_notifier_insert(
                        slot,
                        mm.as_raw(),
                        0,
                        usize::MAX & !(PAGE_SIZE - 1),
                        &Self::OPS,
                    )
                })
            }),
            _pin: PhantomPinned,
        })
    }

    /// # Safety
    ///
    /// Called by the memory manager for a notifier inserted by [`Self::new`].
    unsafe extern "C" fn invalidate_callback(
        sub: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        cur_seq: c_ulong,
    ) -> bool {
        // What `mmu_interval_set_seq` does; it is an inline function, without binding.
        // SAFETY: `sub` is valid; others read the field at the same time.
        unsafe { (&raw mut (*sub).invalidate_seq).write_volatile(cur_seq) };
        let inner = Opaque::cast_from(sub);
        // SAFETY: `sub` is the field `inner` of a `Registration<T>`, whose `target` was
        // initialised before the insertion and is not changed.
        let target = unsafe { &(*container_of!(inner, Self, inner)).target };
        // SAFETY: The memory manager gives a valid range.
        let range = unsafe { &*range };
        let event = match range.event {
            bindings::mmu_notifier_event_MMU_NOTIFY_UNMAP => Event::Unmap,
            bindings::mmu_notifier_event_MMU_NOTIFY_RELEASE => Event::Release,
            bindings::mmu_notifier_event_MMU_NOTIFY_CLEAR => Event::Clear,
            _ => Event::Other,
        };
        target.invalidate(&Range {
            start: range.start as u64,
            end: range.end as u64,
            event,
            blockable: range.flags & bindings::MMU_NOTIFIER_RANGE_BLOCKABLE != 0,
        })
    }
}

/// A [`Registration`], whatever its receiver is.
pub(crate) trait Settle: Send + Sync {
    /// Waits until no change is in progress. Later look-ups in the page tables either stay valid or
    /// are followed by a call of [`Invalidate::invalidate`]. Sleeps; the mmap lock must not be
    /// held.
    fn wait_settled(&self);
}

impl<T: Invalidate> Settle for Registration<T> {
    fn wait_settled(&self) {
        // SAFETY: Inserted, by the type invariant.
        unsafe { bindings::mmu_interval_read_begin(self.inner.get()) };
    }
}

#[pinned_drop]
impl<T: Invalidate> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Inserted, by the type invariant. Waits for callbacks that are running.
        unsafe { bindings::mmu_interval_notifier_remove(self.inner.get()) };
    }
}
