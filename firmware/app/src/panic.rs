// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Last words: what the host reads when the firmware cannot go on.

use berth_abi::status::FW_PANIC;
use berth_rt::Mcause;
use berth_soc::{Soc, regs};
use core::panic::PanicInfo;

/// Code in `HOST_FW_CODE`: a Rust panic.
const CODE_PANIC: u32 = 1;
/// Code in `HOST_FW_CODE`: a trap; the cause is added in bits 15:8.
const CODE_TRAP: u32 = 2;
/// Code in `HOST_FW_CODE`: the stack ran into its guard.
const CODE_STACK: u32 = 3;

/// Reports and stops. The message is written without `core::fmt`: a message that is not
/// one plain string (an index out of bounds) is told by its place alone.
#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    // SAFETY: nothing else runs any more: this function does not return.
    let mut soc = unsafe { Soc::steal() };
    {
        let mut text = soc.stats.panic_text();
        if let Some(message) = info.message().as_str() {
            text.str(message);
        } else {
            text.str("panic");
        }
        if let Some(place) = info.location() {
            text.str(" at ").str(place.file()).str(":").dec(place.line());
        }
    }
    stop(soc, CODE_PANIC)
}

/// Called by the trap entry with the machine's cause registers.
pub extern "C" fn trap(mcause: u32, mepc: u32, mtval: u32) -> ! {
    // SAFETY: nothing else runs any more: this function does not return.
    let mut soc = unsafe { Soc::steal() };
    let cause = Mcause(mcause);
    soc.stats
        .panic_text()
        .str(cause.name())
        .str(" (mcause 0x")
        .hex(mcause)
        .str("), mepc 0x")
        .hex(mepc)
        .str(", mtval 0x")
        .hex(mtval);
    stop(soc, CODE_TRAP | (cause.code() & 0xff) << 8)
}

/// Called when the stack guard has been overwritten.
pub fn stack_overflow() -> ! {
    // SAFETY: nothing else runs any more: this function does not return.
    let mut soc = unsafe { Soc::steal() };
    soc.stats.panic_text().str("stack overflow");
    stop(soc, CODE_STACK)
}

/// Tells the host and sleeps: nothing is pending often enough for the core to burn cycles.
fn stop(mut soc: Soc, code: u32) -> ! {
    crate::log::send_written(&mut soc);
    regs::set(&soc.regs.fw_code, code);
    regs::set(&soc.regs.status, FW_PANIC);
    loop {
        soc.regs.wait.read();
    }
}
