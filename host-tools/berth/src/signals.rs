// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals during a transfer, which has to clean up: remove a file, tell the other end.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::failure::Failure;

/// A wait of the transfer lasts so long before it looks for a signal, and for news of the other end.
pub const SLICE: Duration = Duration::from_millis(100);

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::Relaxed);
}

fn set(signal: i32, handler: libc::sighandler_t, flags: i32) {
    // SAFETY: a handler that only does an atomic store, or a standard disposition, in an otherwise zeroed structure, as
    // is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: asks for the disposition only; the structure is a valid place for it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// From now on a request to end is seen by [`check`], and a second one ends the process at once. A pipe without a
/// reader and a file at its size limit are errors of the write, which the other end is told.
pub fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // As under nohup.
        if !is_ignored(signal) {
            set(signal, note as *const () as libc::sighandler_t, libc::SA_RESETHAND);
        }
    }
    set(libc::SIGPIPE, libc::SIG_IGN, 0);
    set(libc::SIGXFSZ, libc::SIG_IGN, 0);
}

/// The transfer is over: only output remains, and signals act as on any command.
pub fn unwatch() {
    set(libc::SIGPIPE, libc::SIG_DFL, 0);
}

/// Fails when a signal has asked the process to end.
pub fn check() -> Result<(), Failure> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Failure::Interrupted(signal)),
    }
}
