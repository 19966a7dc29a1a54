// SPDX-License-Identifier: GPL-2.0
//! The device's counters, as `rdma statistic` shows them.

use crate::kernel::bindings;
use kernel::prelude::*;

/// Names of counters, as the core wants them.
pub(super) struct Names {
    list: KVec<bindings::rdma_stat_desc>,
    /// What the list points into: each name with a zero byte behind it.
    _text: KVec<u8>,
}

impl Names {
    /// Those that `all` adds, each by a prefix and a name.
    pub(super) fn new(
        all: impl FnOnce(&mut dyn FnMut(&str, &str) -> Result) -> Result,
    ) -> Result<Self> {
        let mut text = KVec::new();
        let mut starts = KVec::new();
        all(&mut |prefix, name| {
            starts.push(text.len(), GFP_KERNEL)?;
            for part in [prefix, name] {
                for byte in part.bytes() {
                    text.push(byte.to_ascii_lowercase(), GFP_KERNEL)?;
                }
            }
            Ok(text.push(0, GFP_KERNEL)?)
        })?;
        let mut list = KVec::with_capacity(starts.len(), GFP_KERNEL)?;
        for start in &starts {
            // SAFETY: A struct of C's, of which all bytes may be zero.
            let mut name = unsafe { core::mem::zeroed::<bindings::rdma_stat_desc>() };
            name.name = text[*start..].as_ptr().cast();
            list.push(name, GFP_KERNEL)?;
        }
        Ok(Self { list, _text: text })
    }

    /// Room for the values, which the core frees.
    pub(super) fn room(&self) -> *mut bindings::rdma_hw_stats {
        // SAFETY: The names live as long as the device; the core takes their values for 10 ms, its default, as fresh.
        unsafe {
            bindings::rdma_alloc_hw_stats_struct(
                self.list.as_ptr(),
                self.list.len() as c_int,
                bindings::RDMA_HW_STATS_DEFAULT_LIFESPAN as usize,
            )
        }
    }

    /// Has the values put there; gives how many they are.
    ///
    /// # Safety
    ///
    /// `stats` is of [`Self::room`], and the caller's to be written.
    pub(super) unsafe fn fill(
        &self,
        stats: *mut bindings::rdma_hw_stats,
        values: impl FnOnce(&mut [u64]),
    ) -> c_int {
        // SAFETY: By the requirement of this function there are as many values as names.
        values(unsafe {
            core::slice::from_raw_parts_mut((&raw mut (*stats).value).cast(), self.list.len())
        });
        self.list.len() as c_int
    }
}
