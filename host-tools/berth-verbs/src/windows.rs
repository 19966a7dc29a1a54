// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory windows as libibverbs asks for them.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

use crate::bound::{TAG, bind};
use crate::context::common_of;
use crate::memory::{free, made};
use crate::post::post_window;
use crate::rdma_core::{
    IBV_MW_TYPE_1, ib_uverbs_alloc_mw_resp, ibv_alloc_mw, ibv_cmd_alloc_mw, ibv_cmd_dealloc_mw, ibv_mw, ibv_mw_bind,
    ibv_pd, ibv_qp,
};

pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
    let mw = made::<ibv_mw>();
    let mut command = ibv_alloc_mw::new();
    let mut answer = ib_uverbs_alloc_mw_resp::default();
    // SAFETY: command and answer have the sizes given.
    let error = unsafe {
        let size = size_of_val(&answer);
        ibv_cmd_alloc_mw(pd, kind, mw, &raw mut command, size_of_val(&command), &raw mut answer, size)
    };
    if error != 0 {
        // SAFETY: the call has failed.
        unsafe { free(mw) };
        return null_mut();
    }
    mw
}

pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller gives back a window of ours.
    unsafe {
        let (common, key) = (common_of((*mw).context), (*mw).rkey);
        let error = ibv_cmd_dealloc_mw(mw);
        if error == 0 {
            common.windows.ended(key);
            free(mw);
        }
        error
    }
}

/// Binds a window of type 1, which has the next key then.
pub unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, wanted: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller's objects.
    let posted = unsafe {
        let (old, wanted) = ((*mw).rkey, &*wanted);
        let key = (old & !TAG) | (old.wrapping_add(1) & TAG);
        bind((*qp).pd, IBV_MW_TYPE_1, mw, key, &wanted.bind_info)
            .and_then(|(operation, change)| post_window(qp, wanted.wr_id, wanted.send_flags, operation, change))
            .map(|()| (*mw).rkey = key)
    };
    posted.err().unwrap_or(0)
}
