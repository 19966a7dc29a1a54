// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Doorbells with any value, at any offset, which the safe layers never write. For tests of the card's defences
//! (invariants 5 and 6) and for diagnosis.

use crate::context::Context;
use crate::error::Result;

/// Writes 8 bytes at `offset` of the context's doorbell page.
///
/// # Panics
/// When the offset is not an aligned one inside the page.
///
/// # Safety
/// A wild producer index of one's own queue makes the card use elements that were never written: the caller vouches
/// for the memory that they name.
///
/// # Errors
/// [`Error::NotPermitted`](crate::Error::NotPermitted) in another process than the context's.
pub unsafe fn doorbell(context: &Context, offset: u32, value: u64) -> Result<()> {
    assert!(offset <= 4088 && offset.is_multiple_of(8));
    context.inner.check_memory("write a doorbell")?;
    context.inner.doorbells().ring(offset, value);
    Ok(())
}

/// Address of the context's doorbell page (4096 bytes, device memory: write only).
pub fn doorbell_page(context: &Context) -> *mut u8 {
    context.inner.doorbells().page()
}
