// SPDX-License-Identifier: GPL-2.0
//! Packets.

use crate::kernel::bindings;
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::{error::to_result, prelude::*};

/// A packet; freed when dropped.
///
/// # Invariants
///
/// The pointer is a valid `sk_buff`, to which this value has the only right.
pub(crate) struct SkBuff(NonNull<bindings::sk_buff>);

// SAFETY: Whoever owns a packet may be any thread.
unsafe impl Send for SkBuff {}
// SAFETY: `&SkBuff` only reads.
unsafe impl Sync for SkBuff {}

impl SkBuff {
    /// # Safety
    ///
    /// `skb` is valid, and the caller's to give away.
    pub(super) unsafe fn from_raw(skb: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the requirement of this function.
        Self(skb)
    }

    /// The packet as C has it, which the caller owns from now on.
    pub(super) fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).as_raw()
    }

    pub(super) fn as_raw(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Bytes of the packet.
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.as_raw()).len }
    }

    /// Parts of it that lie one behind the other in memory.
    pub(crate) fn parts(&self) -> u32 {
        // SAFETY: Valid by the type invariant.
        unsafe {
            u32::from(bindings::helper_skb_headlen(self.as_raw()) != 0)
                + bindings::helper_skb_nr_frags(self.as_raw())
        }
    }

    /// Makes one part of it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn linearize(&mut self) -> Result {
        // SAFETY: Valid by the type invariant, and nobody else uses it.
        to_result(unsafe { bindings::helper_skb_linearize(self.as_raw()) })
    }

    /// Bytes behind those of the packet that are free.
    pub(super) fn tailroom(&self) -> u32 {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::helper_skb_tailroom(self.as_raw()) as u32 }
    }

    /// Makes `bytes` free bytes behind it part of the packet.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` there are not as many.
    pub(crate) fn put(&mut self, bytes: u32) -> Result {
        if bytes > self.tailroom() {
            return Err(EMSGSIZE);
        }
        // SAFETY: Valid by the type invariant, with room for them.
        unsafe { bindings::skb_put(self.as_raw(), bytes) };
        Ok(())
    }

    /// As [`Self::put`]; gives the new bytes, which are 0.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` there are not as many.
    pub(crate) fn append(&mut self, bytes: u32) -> Result<&mut [u8]> {
        if bytes > self.tailroom() {
            return Err(EMSGSIZE);
        }
        let bytes = bytes as usize;
        // SAFETY: Valid by the type invariant, with room for them, which nobody else has while this borrow lasts.
        unsafe {
            let start: *mut u8 = bindings::skb_put(self.as_raw(), bytes as c_uint).cast();
            start.write_bytes(0, bytes);
            Ok(core::slice::from_raw_parts_mut(start, bytes))
        }
    }

    /// The bytes of its first part.
    pub(crate) fn linear(&self) -> &[u8] {
        // SAFETY: Valid by the type invariant; what is written to a packet is written by way of `&mut`, or is in no part of it.
        unsafe {
            let bytes = bindings::helper_skb_headlen(self.as_raw()) as usize;
            core::slice::from_raw_parts((*self.as_raw()).data, bytes)
        }
    }

    /// Notes that the packet is given to hardware now.
    pub(crate) fn note_sent(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::helper_skb_tx_timestamp(self.as_raw()) };
    }
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        // SAFETY: Valid and ours by the type invariant.
        unsafe { bindings::helper_dev_kfree_skb_any(self.as_raw()) };
    }
}
