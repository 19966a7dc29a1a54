// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core's data cache: 4 KiB in lines of 32 bytes, written through.

/// Takes everything out of the data cache, in the same time whatever is in it. What comes next takes as long as if
/// nothing had been read before, so its time tells nothing of that.
///
/// VexRiscv's own instruction 0x500F. As the cache is written through, nothing is lost.
#[inline(always)]
pub fn empty() {
    // SAFETY: no register and no memory changes; the core knows the instruction.
    unsafe { core::arch::asm!(".insn i 0x0f, 5, x0, x0, 0", options(nostack)) }
}
