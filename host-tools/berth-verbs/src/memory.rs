// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protection domains and memory regions.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::rdma_core::{
    ib_uverbs_alloc_pd_resp, ib_uverbs_reg_mr_resp, ib_uverbs_rereg_mr_resp, ibv_alloc_pd, ibv_cmd_alloc_pd,
    ibv_cmd_dealloc_pd, ibv_cmd_dereg_mr, ibv_cmd_reg_mr, ibv_cmd_rereg_mr, ibv_context, ibv_mr, ibv_pd, ibv_reg_mr,
    ibv_rereg_mr, verbs_mr,
};

/// A memory region: libibverbs' own, then ours.
#[repr(C)]
struct Region {
    verbs: verbs_mr,
    windows: Arc<AtomicUsize>,
}

/// An object that libibverbs fills, of zeros.
pub fn made<T>() -> *mut T {
    Box::into_raw(Box::new(MaybeUninit::<T>::zeroed())).cast()
}

/// Frees what [`made`] gave.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn free<T>(object: *mut T) {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(object.cast::<MaybeUninit<T>>()) });
}

pub unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let pd = made::<ibv_pd>();
    let mut command = ibv_alloc_pd::new();
    let mut answer = ib_uverbs_alloc_pd_resp::default();
    // SAFETY: command and answer have the sizes given.
    let error = unsafe {
        let size = size_of_val(&answer);
        ibv_cmd_alloc_pd(context, pd, &raw mut command, size_of_val(&command), &raw mut answer, size)
    };
    if error != 0 {
        // SAFETY: the call has failed.
        unsafe { free(pd) };
        return null_mut();
    }
    pd
}

pub unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller gives back a domain of ours.
    unsafe {
        let error = ibv_cmd_dealloc_pd(pd);
        if error == 0 {
            free(pd);
        }
        error
    }
}

pub unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    hca_va: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: all fields may be zero.
    let region = Region { verbs: unsafe { zeroed() }, windows: Arc::default() };
    let region = Box::into_raw(Box::new(region));
    let mr: *mut verbs_mr = region.cast();
    let mut command = ibv_reg_mr::new();
    let mut answer = ib_uverbs_reg_mr_resp::default();
    // SAFETY: command and answer have the sizes given; the kernel checks the rest.
    let error = unsafe {
        let (size, answer) = (size_of_val(&answer), &raw mut answer);
        let command_size = size_of_val(&command);
        ibv_cmd_reg_mr(pd, addr, length, hca_va, access, mr, &raw mut command, command_size, answer, size)
    };
    if error != 0 {
        // SAFETY: the call has failed.
        drop(unsafe { Box::from_raw(region) });
        return null_mut();
    }
    mr.cast()
}

/// Windows that are bound in a region.
///
/// # Safety
/// The region must be ours.
pub unsafe fn windows_of<'a>(mr: *mut verbs_mr) -> &'a Arc<AtomicUsize> {
    // SAFETY: as the caller says.
    unsafe { &(*mr.cast::<Region>()).windows }
}

/// # Safety
/// The region must be ours.
unsafe fn has_windows(mr: *mut verbs_mr) -> bool {
    // SAFETY: as the caller says.
    unsafe { windows_of(mr) }.load(Ordering::Relaxed) != 0
}

pub unsafe extern "C" fn rereg_mr(
    mr: *mut verbs_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller's region.
    if unsafe { has_windows(mr) } {
        return libc::EBUSY;
    }
    let mut command = ibv_rereg_mr::new();
    let mut answer = ib_uverbs_rereg_mr_resp::default();
    // SAFETY: the caller's arguments; command and answer have the sizes given.
    unsafe {
        let (flags, at) = (flags as u32, addr as u64);
        let (size, answer) = (size_of_val(&answer), &raw mut answer);
        let command_size = size_of_val(&command);
        ibv_cmd_rereg_mr(mr, flags, addr, length, at, access, pd, &raw mut command, command_size, answer, size)
    }
}

pub unsafe extern "C" fn dereg_mr(mr: *mut verbs_mr) -> c_int {
    // SAFETY: the caller gives back a region of ours.
    unsafe {
        if has_windows(mr) {
            return libc::EBUSY;
        }
        let error = ibv_cmd_dereg_mr(mr);
        if error == 0 {
            drop(Box::from_raw(mr.cast::<Region>()));
        }
        error
    }
}
