// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address spaces: how often they are in use, and their limits. What is mapped in them is the test's.

use crate::sync::aref::{ARef, AlwaysRefCounted};
use core::ops::Deref;
use core::ptr::NonNull;

/// C structures, as far as the driver looks at them.
#[allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]
pub mod bindings {
    pub use crate::firmware::{Firmware as firmware, release_firmware, request_firmware};
    pub use crate::misc::bindings::*;
    use core::ffi::{c_int, c_ulong, c_void};

    pub const EOPNOTSUPP: u32 = 95;
    pub const CAP_NET_ADMIN: u32 = 12;
    pub const CAP_IPC_LOCK: u32 = 14;
    pub const CAP_SYS_ADMIN: u32 = 21;
    pub const RLIMIT_MEMLOCK: u32 = 8;

    #[derive(Default)]
    pub struct atomic_t {
        pub counter: i32,
    }

    #[derive(Default)]
    pub struct atomic64_t {
        pub counter: i64,
    }

    #[derive(Default)]
    pub struct mm_fields {
        pub mm_users: atomic_t,
        pub mm_count: atomic_t,
        pub pinned_vm: atomic64_t,
    }

    #[derive(Default)]
    pub struct mm_struct {
        pub __bindgen_anon_1: mm_fields,
    }

    #[derive(Default)]
    pub struct rlimit {
        pub rlim_cur: c_ulong,
    }

    #[derive(Default)]
    pub struct signal_struct {
        pub rlim: [rlimit; 16],
    }

    pub struct task_struct {
        pub signal: *mut signal_struct,
    }

    /// # Safety
    ///
    /// None is needed here.
    #[must_use]
    pub unsafe fn capable(cap: c_int) -> bool {
        cap == CAP_IPC_LOCK as c_int && super::task::limit() == c_ulong::MAX || crate::user::has(cap as u32)
    }

    /// # Safety
    ///
    /// `to` has `n` bytes.
    pub unsafe fn get_random_bytes(to: *mut c_void, n: usize) {
        // SAFETY: By the caller.
        unsafe { to.cast::<u8>().write_bytes(7, n) }
    }
}

/// Mappings.
pub mod virt {
    pub use crate::misc::{VmaNew, flags};
}

/// The calling process.
pub mod task {
    use super::bindings::{RLIMIT_MEMLOCK, signal_struct, task_struct};
    use std::cell::Cell;

    thread_local! {
        static LIMIT: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    /// Sets the calling process's `RLIMIT_MEMLOCK` in bytes; all ones: it may exceed it.
    pub fn set_limit(bytes: u64) {
        LIMIT.set(bytes);
    }

    pub(crate) fn limit() -> u64 {
        LIMIT.get()
    }

    pub struct Task;

    impl Task {
        /// The calling task. It stays for ever.
        #[must_use]
        pub fn current_raw() -> *mut task_struct {
            let mut signal = signal_struct::default();
            signal.rlim[RLIMIT_MEMLOCK as usize].rlim_cur = limit();
            Box::leak(Box::new(task_struct { signal: Box::leak(Box::new(signal)) }))
        }
    }
}

/// An address space.
#[repr(transparent)]
pub struct Mm(core::cell::UnsafeCell<bindings::mm_struct>);

// SAFETY: One thread runs at a time.
unsafe impl Sync for Mm {}

impl Mm {
    /// A new one, that stays for ever; its process is its user.
    #[must_use]
    pub fn leak() -> &'static MmWithUser {
        let mm = Box::leak(Box::new(MmWithUser(Self(core::cell::UnsafeCell::default()))));
        // SAFETY: It was just made.
        unsafe { (*mm.as_raw()).__bindgen_anon_1.mm_users.counter = 1 };
        mm
    }

    #[must_use]
    pub fn as_raw(&self) -> *mut bindings::mm_struct {
        self.0.get()
    }

    /// Users, references beside them, and pages that are charged.
    #[must_use]
    pub fn counts(&self) -> (i32, i32, i64) {
        // SAFETY: One thread runs at a time.
        let fields = unsafe { &(*self.as_raw()).__bindgen_anon_1 };
        (fields.mm_users.counter, fields.mm_count.counter, fields.pinned_vm.counter)
    }

    /// Charges pages that others have pinned.
    pub fn charge_for_others(&self, pages: i64) {
        // SAFETY: One thread runs at a time.
        unsafe { (*self.as_raw()).__bindgen_anon_1.pinned_vm.counter += pages }
    }

    /// One user less: the process ends.
    pub fn put_user(&self) {
        self.add_user(-1);
    }

    fn add_user(&self, n: i32) {
        // SAFETY: One thread runs at a time.
        let users = unsafe { &mut (*self.as_raw()).__bindgen_anon_1.mm_users.counter };
        *users += n;
        assert!(*users >= 0, "too many users have gone");
    }

    #[must_use]
    pub fn mmget_not_zero(&self) -> Option<ARef<MmWithUser>> {
        if self.counts().0 == 0 {
            return None;
        }
        self.add_user(1);
        // SAFETY: It was counted; the representation is the same.
        Some(unsafe { ARef::from_raw(NonNull::from(self).cast()) })
    }
}

// SAFETY: It stays for ever.
unsafe impl AlwaysRefCounted for Mm {
    fn inc_ref(&self) {
        // SAFETY: One thread runs at a time.
        unsafe { (*self.as_raw()).__bindgen_anon_1.mm_count.counter += 1 }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: One thread runs at a time.
        unsafe { (*obj.as_ref().as_raw()).__bindgen_anon_1.mm_count.counter -= 1 }
    }
}

/// An address space that is in use.
#[repr(transparent)]
pub struct MmWithUser(Mm);

// SAFETY: It stays for ever.
unsafe impl AlwaysRefCounted for MmWithUser {
    fn inc_ref(&self) {
        self.add_user(1);
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the caller.
        unsafe { obj.as_ref() }.add_user(-1);
    }
}

impl Deref for MmWithUser {
    type Target = Mm;

    fn deref(&self) -> &Mm {
        &self.0
    }
}
