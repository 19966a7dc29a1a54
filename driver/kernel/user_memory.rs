// SPDX-License-Identifier: GPL-2.0
//! Memory of the calling process.

use crate::kernel::bindings;
use kernel::{current, prelude::*};

/// Bytes between looks for signals.
const PIECE: u64 = 1 << 20;

/// Brings all of `bytes` from `va` on in, so that it may be `written`. What it holds does not change.
///
/// # Errors
///
/// `EFAULT` not all of it is there, `EINTR` a signal waits.
pub(crate) fn bring_in(va: u64, bytes: u64, written: bool) -> Result {
    let end = va.checked_add(bytes).ok_or(EINVAL)?;
    let mut at = va;
    while at < end {
        let piece = PIECE.min(end - at);
        // SAFETY: The kernel checks the addresses, which are the caller's.
        let left = unsafe { bindings::helper_fault_in(at, piece as usize, written) };
        if left != 0 {
            return Err(EFAULT);
        }
        if current!().signal_pending() {
            return Err(EINTR);
        }
        at += piece;
    }
    Ok(())
}
