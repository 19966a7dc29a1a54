// SPDX-License-Identifier: GPL-2.0
//! What a driver and its provider say to each other beside the core.

use crate::kernel::bindings;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*,
    transmute::{AsBytes, FromBytes},
};

/// The driver's parts of a call and of its answer. Most calls have nothing of their own.
pub(crate) struct Udata(Option<NonNull<bindings::ib_udata>>);

impl Udata {
    /// What the caller adds to the call, if it is as much as this.
    ///
    /// # Errors
    ///
    /// `EFAULT` the caller's memory is not there.
    pub(crate) fn asked<T: FromBytes + Default>(&mut self) -> Result<Option<T>> {
        let Some(udata) = self.0 else {
            return Ok(None);
        };
        // SAFETY: Valid by `from_raw`.
        if unsafe { udata.as_ref() }.inlen < size_of::<T>() {
            return Ok(None);
        }
        let mut asked = T::default();
        // SAFETY: As above; any bytes are a `T`.
        to_result(unsafe {
            bindings::helper_ib_asked(
                udata.as_ptr(),
                core::ptr::from_mut(&mut asked).cast(),
                size_of::<T>(),
            )
        })?;
        Ok(Some(asked))
    }

    /// # Safety
    ///
    /// `raw` is the core's, or null, for as long as there is this value.
    pub(super) unsafe fn from_raw(raw: *mut bindings::ib_udata) -> Self {
        Self(NonNull::new(raw))
    }

    /// Adds a struct to the answer, or as much of it as the caller has room for.
    ///
    /// # Errors
    ///
    /// `EFAULT` the caller's memory is not there, `EINVAL` nobody is to be answered.
    pub(crate) fn answer<T: AsBytes>(&mut self, answer: &T) -> Result {
        let udata = self.0.ok_or(EINVAL)?;
        // SAFETY: Valid by `from_raw`; the bytes of `T` may be seen.
        to_result(unsafe {
            bindings::helper_ib_respond(
                udata.as_ptr(),
                core::ptr::from_ref(answer).cast(),
                size_of::<T>(),
            )
        })
    }
}
