// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs something in a copy of this process, so that it begins with exactly what stands now, and may die.

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdout, fork};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc is mounted").count()
}

fn memory_file() -> File {
    memfd_create("child", MFdFlags::MFD_CLOEXEC).expect("a file in memory").into()
}

fn contents(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("a file in memory is read");
    bytes
}

/// What `work` gives in a copy of this process, or all that was printed there if it panics or is aborted.
///
/// # Panics
/// When this process has another thread, or no copy can be made.
pub fn in_a_copy(work: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, String> {
    assert_eq!(threads(), 1, "a copy has one thread, and what others hold would stay locked in it");
    let (mut result, log) = (memory_file(), memory_file());
    // SAFETY: this is the only thread (checked above), so the copy may do all that this process may.
    match unsafe { fork() }.expect("a copy of this process") {
        ForkResult::Child => {
            dup2_stdout(&log).and_then(|()| dup2_stderr(&log)).expect("output goes to a file");
            let done = catch_unwind(AssertUnwindSafe(work)).ok().map(|bytes| result.write_all(&bytes));
            let code = if matches!(done, Some(Ok(()))) { 0 } else { 101 };
            // SAFETY: `_exit` only ends the process; what the parent would do at its end is not for the copy to do.
            unsafe { nix::libc::_exit(code) }
        }
        ForkResult::Parent { child } => match waitpid(child, None).expect("the copy ends") {
            WaitStatus::Exited(_, 0) => Ok(contents(result)),
            end => Err(format!("{}\n{end:?}", String::from_utf8_lossy(&contents(log)).trim_end())),
        },
    }
}
