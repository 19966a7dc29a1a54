// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What memory windows are bound to: keys that elements of a send queue bind to parts of regions (QP-4). To the card a window
//! is a key like any other. What verbs demand beyond that is checked here: a window lies in a region that allows it, and a
//! region stays while windows are bound in it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_abi::rows::recv::{RIGHT_ATOMIC, RIGHT_READ, RIGHT_WRITE};
use berth_abi::rows::send::Bind;
use berth_queue::Operation;

use crate::memory::windows_of;
use crate::rdma_core::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, ibv_mw, ibv_mw_bind_info, ibv_pd, verbs_mr,
};

/// Bits of a key that its owner chooses.
pub const TAG: u32 = 0xff;

/// Windows of a context that are bound, by what of their keys stays. A bind counts from when it is posted.
#[derive(Default)]
pub struct Windows(Mutex<BTreeMap<u32, Bound>>);

struct Bound {
    key: u32,
    _region: InRegion,
}

/// Counts a window of its region, which may go before this.
struct InRegion(Arc<AtomicUsize>);

impl InRegion {
    fn new(windows: &Arc<AtomicUsize>) -> Self {
        windows.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(windows))
    }
}

impl Drop for InRegion {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a posted element does to a window.
#[derive(Clone)]
pub struct Change {
    key: u32,
    /// Windows of the region where it is bound; `None`: it is bound nowhere any more.
    region: Option<Arc<AtomicUsize>>,
    /// It is the end of a window, and no bind (`IBV_WR_LOCAL_INV`).
    pub ends: bool,
}

impl Windows {
    fn bound(&self) -> MutexGuard<'_, BTreeMap<u32, Bound>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what has been posted.
    pub fn note(&self, change: &Change) {
        let mut bound = self.bound();
        match &change.region {
            Some(windows) => {
                let region = InRegion::new(windows);
                bound.insert(change.key & !TAG, Bound { key: change.key, _region: region });
            }
            None => _ = bound.remove(&(change.key & !TAG)),
        }
    }

    /// A peer has ended this key.
    pub fn ended(&self, key: u32) {
        self.bound().remove(&(key & !TAG));
    }

    /// The end of the window that has this key.
    ///
    /// # Errors
    /// `EINVAL` there is none.
    pub fn end(&self, key: u32) -> Result<(Operation, Change), c_int> {
        match self.bound().get(&(key & !TAG)) {
            Some(bound) if bound.key == key => Ok(end(key)),
            _ => Err(libc::EINVAL),
        }
    }
}

impl Change {
    /// Whether it is of the window that this is, or was, a key of.
    pub fn is_of(&self, key: u32) -> bool {
        (self.key ^ key) & !TAG == 0
    }

    /// Whether it binds a window to this key.
    pub fn binds(&self, key: u32) -> bool {
        self.key == key && self.region.is_some()
    }
}

/// The end of a window that has this key.
pub fn end(key: u32) -> (Operation, Change) {
    let nothing = Operation::Bind { key, va: 0, len: 0, scope: Bind::default() };
    (nothing, Change { key, region: None, ends: true })
}

/// Binds a window of type `kind`, whose key becomes `key`, for a queue pair of domain `pd` (IBTA 10.6.7.2).
///
/// # Errors
/// `EINVAL` what verbs do not allow.
///
/// # Safety
/// Window and region must be ours.
pub unsafe fn bind(
    pd: *mut ibv_pd,
    kind: c_uint,
    mw: *mut ibv_mw,
    key: u32,
    info: &ibv_mw_bind_info,
) -> Result<(Operation, Change), c_int> {
    // SAFETY: as the caller says.
    let (mw, region) = unsafe { (mw.as_ref(), info.mr.cast::<verbs_mr>().as_ref()) };
    let mw = mw.filter(|mw| mw.kind == kind && mw.pd == pd && (mw.rkey ^ key) & !TAG == 0 && key != 0);
    let mw = mw.ok_or(libc::EINVAL)?;
    if info.length == 0 {
        // Bound to nothing; the region does not matter.
        let nothing = Operation::Bind { key, va: 0, len: 0, scope: Bind::default() };
        return Ok((nothing, Change { key, region: None, ends: false }));
    }
    let region = region.ok_or(libc::EINVAL)?;
    let right = |flag: c_uint, right: u32| if info.mw_access_flags & flag != 0 { right } else { 0 };
    let rights = right(IBV_ACCESS_REMOTE_READ, RIGHT_READ)
        | right(IBV_ACCESS_REMOTE_WRITE, RIGHT_WRITE)
        | right(IBV_ACCESS_REMOTE_ATOMIC, RIGHT_ATOMIC);
    let known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    let has = |flag: c_uint| region.access as c_uint & flag != 0;
    let (first, bytes) = (region.ibv_mr.addr as u64, region.ibv_mr.length as u64);
    let inside = info.addr.checked_sub(first).is_some_and(|at| at <= bytes && info.length <= bytes - at);
    let writes = rights & (RIGHT_WRITE | RIGHT_ATOMIC) != 0;
    if info.mw_access_flags & !known != 0
        || region.ibv_mr.pd != mw.pd
        || !has(IBV_ACCESS_MW_BIND)
        || (writes && !has(IBV_ACCESS_LOCAL_WRITE))
        || !inside
    {
        return Err(libc::EINVAL);
    }
    // Without a right it opens nothing, which the card knows as bound to nothing.
    let (va, len) = if rights == 0 { (0, 0) } else { (info.addr, info.length) };
    let operation = Operation::Bind { key, va, len, scope: Bind { rights, ..Bind::default() } };
    // SAFETY: as the caller says.
    let windows = unsafe { windows_of(info.mr.cast()) };
    Ok((operation, Change { key, region: Some(Arc::clone(windows)), ends: false }))
}
