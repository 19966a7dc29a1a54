// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices and contexts.

use std::ffi::{c_char, c_int};
use std::io::Write;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::null_mut;
use std::sync::Arc;

use berth_abi::card::ABI_VERSION;
use berth_abi::verbs::VerbsContext;
use berth_queue::Doorbells;

use crate::bound::Windows;
use crate::errno::failed;
use crate::mapping::Mapping;
use crate::rdma_core::{
    _verbs_init_and_alloc_context, Answer, Opaque, fw_ver, ib_uverbs_ex_query_device_resp, ib_uverbs_get_context_resp,
    ibv_cmd_get_context, ibv_cmd_query_device_any, ibv_cmd_query_port, ibv_context, ibv_get_context, ibv_query_port,
    verbs_context, verbs_context_ops, verbs_device, verbs_set_ops, verbs_uninit_context,
};

/// Bytes of the doorbell page.
const PAGE: usize = 4096;
/// `RDMA_DRIVER_UNKNOWN`.
const DRIVER_ID: u32 = 0;

/// What a context's queues hold of it: its doorbell page, and what they tell each other.
pub struct Common {
    pub doorbells: Doorbells,
    pub windows: Windows,
    _mapping: Mapping,
}

/// A context: libibverbs' own, then ours.
#[repr(C)]
struct Context {
    verbs: verbs_context,
    /// Of `Arc::into_raw`.
    common: *const Common,
}

pub unsafe extern "C" fn alloc_device(_: *mut Opaque) -> *mut verbs_device {
    // libibverbs expects zeros and fills it.
    Box::into_raw(Box::new(MaybeUninit::<verbs_device>::zeroed())).cast()
}

pub unsafe extern "C" fn uninit_device(device: *mut verbs_device) {
    // SAFETY: made by `alloc_device`, and used by nobody any more.
    drop(unsafe { Box::from_raw(device.cast::<MaybeUninit<verbs_device>>()) });
}

/// Makes a context that can do `operations`; sets errno if it cannot.
///
/// # Safety
/// The device and its descriptor must be libibverbs'.
pub unsafe fn create(device: *mut Opaque, fd: c_int, operations: &'static verbs_context_ops) -> *mut verbs_context {
    let offset = offset_of!(Context, verbs) as *mut verbs_context;
    // SAFETY: the size is that of the struct in which libibverbs' own stands at that offset.
    let context =
        unsafe { _verbs_init_and_alloc_context(device, fd, size_of::<Context>(), offset, DRIVER_ID) }.cast::<Context>();
    if context.is_null() {
        return null_mut();
    }
    // SAFETY: fresh, and of that size.
    let verbs = unsafe { &raw mut (*context).verbs };
    // SAFETY: as above.
    match unsafe { open(verbs, fd) } {
        Ok(common) => {
            // SAFETY: as above.
            unsafe {
                (*context).common = Arc::into_raw(Arc::new(common));
                verbs_set_ops(verbs, operations);
            }
            verbs
        }
        Err(error) => {
            // SAFETY: as above; it is used by nobody any more.
            unsafe {
                verbs_uninit_context(verbs);
                libc::free(context.cast());
            }
            failed(error);
            null_mut()
        }
    }
}

/// Opens the device for a context, and maps its doorbell page.
///
/// # Safety
/// `verbs` must be libibverbs'.
unsafe fn open(verbs: *mut verbs_context, fd: c_int) -> Result<Common, c_int> {
    let mut command = ibv_get_context::new();
    let mut answer = Answer::<ib_uverbs_get_context_resp, VerbsContext>::default();
    // SAFETY: command and answer have the sizes given.
    let error = unsafe {
        let size = size_of_val(&answer);
        ibv_cmd_get_context(verbs, &raw mut command, size_of_val(&command), (&raw mut answer).cast(), size)
    };
    if error != 0 {
        return Err(error);
    }
    if answer.driver.abi != ABI_VERSION {
        // The driver is another version's.
        return Err(libc::EPROTONOSUPPORT);
    }
    let mapping = Mapping::new(fd, answer.driver.doorbell_offset, PAGE, false)?;
    // SAFETY: the mapping is a page, and lives beside the value.
    let doorbells = unsafe { Doorbells::new(mapping.first()) };
    Ok(Common { doorbells, windows: Windows::default(), _mapping: mapping })
}

/// What the queues of a context hold of it.
///
/// # Safety
/// The context must be one of [`create`]'s.
pub unsafe fn common_of(context: *mut ibv_context) -> Arc<Common> {
    // SAFETY: the caller's context stands at that place.
    unsafe {
        let common = (*ours(context)).common;
        Arc::increment_strong_count(common);
        Arc::from_raw(common)
    }
}

/// The whole of which libibverbs hands out a part. No memory is touched.
fn ours(context: *mut ibv_context) -> *mut Context {
    context.wrapping_byte_sub(offset_of!(Context, verbs) + offset_of!(verbs_context, context)).cast()
}

pub unsafe extern "C" fn free_context(context: *mut ibv_context) {
    let context = ours(context);
    // SAFETY: libibverbs gives a context of ours back; its memory came from calloc.
    unsafe {
        verbs_uninit_context(&raw mut (*context).verbs);
        drop(Arc::from_raw((*context).common));
        libc::free(context.cast());
    }
}

pub unsafe extern "C" fn query_device(
    context: *mut ibv_context,
    input: *const Opaque,
    attr: *mut fw_ver,
    size: usize,
) -> c_int {
    let mut answer = ib_uverbs_ex_query_device_resp::new();
    let mut answer_size = size_of_val(&answer);
    // SAFETY: the caller's arguments; the answer has the size given.
    let error = unsafe { ibv_cmd_query_device_any(context, input, attr, size, &raw mut answer, &raw mut answer_size) };
    if error == 0 {
        // SAFETY: the call has checked that the caller's struct is no shorter than what it begins with.
        put_version(unsafe { &mut *attr }, answer.fw_ver);
    }
    error
}

/// Puts the firmware's version, packed as in its image (`FwHeader`), as text.
fn put_version(text: &mut fw_ver, version: u64) {
    let mut bytes = [0u8; size_of::<fw_ver>()];
    // It fits.
    let _ = write!(&mut bytes[..], "{}.{}.{}", version >> 16 & 0xffff, version >> 8 & 0xff, version & 0xff);
    *text = bytes.map(|byte| byte as c_char);
}

pub unsafe extern "C" fn query_port(context: *mut ibv_context, port: u8, attr: *mut Opaque) -> c_int {
    let mut command = ibv_query_port::new();
    // SAFETY: the caller's arguments; the command has the size given.
    unsafe { ibv_cmd_query_port(context, port, attr, &raw mut command, size_of_val(&command)) }
}
