// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the reset vector to a program's entry, and traps; with the linker script, `link.x`.
//!
//! The core takes no interrupts; a trap is an exception (a wild access, an illegal
//! instruction) and ends the program.
#![no_std]

use bitfield::bitfield;

bitfield! {
    /// The register `mcause`: why a trap was taken (RISC-V privileged architecture, 3.1.15).
    #[derive(Clone, Copy)]
    pub struct Mcause(u32);
    /// It was an interrupt, which the core never takes.
    pub interrupt, _: 31;
    /// Number of the exception.
    pub u32, code, _: 30, 0;
}

impl Mcause {
    /// The exception's name there.
    pub fn name(&self) -> &'static str {
        match (self.interrupt(), self.code()) {
            (true, _) => "interrupt",
            (_, 0) => "instruction address misaligned",
            (_, 1) => "instruction access fault",
            (_, 2) => "illegal instruction",
            (_, 3) => "breakpoint",
            (_, 4) => "load address misaligned",
            (_, 5) => "load access fault",
            (_, 6) => "store address misaligned",
            (_, 7) => "store access fault",
            (false, _) => "exception",
        }
    }
}

/// The start code of a program: RAM that is not in the image is cleared, the stack set up, and `$main` called, an
/// `extern "C" fn() -> !`. Exceptions call `$trap`, an `extern "C" fn(mcause: u32, mepc: u32, mtval: u32) -> !`, on an
/// empty stack. Once in a program.
#[macro_export]
macro_rules! entry {
    ($main:path, $trap:path) => {
        unsafe extern "C" {
            fn _trap();
        }
        core::arch::global_asm!(
            r#"
            .section .init, "ax"
            .global _start
        _start:
            la      sp, _stack_top
            la      t0, {trap}
            csrw    mtvec, t0
            la      t0, _bss_start
            la      t1, _bss_end
            /* Its size is a multiple of 32, see link.x. */
        0:  bgeu    t0, t1, 1f
            sw      zero, 0(t0)
            sw      zero, 4(t0)
            sw      zero, 8(t0)
            sw      zero, 12(t0)
            sw      zero, 16(t0)
            sw      zero, 20(t0)
            sw      zero, 24(t0)
            sw      zero, 28(t0)
            addi    t0, t0, 32
            j       0b
        1:  la      t0, _stack_guard
            li      t1, {guard}
            sw      t1, 0(t0)
            tail    {main}

            .section .text
            .balign 4
            .global _trap
        _trap:
            la      sp, _stack_top
            csrr    a0, mcause
            csrr    a1, mepc
            csrr    a2, mtval
            tail    {report}
            "#,
            trap = sym _trap,
            guard = const $crate::STACK_GUARD,
            main = sym $main,
            report = sym $trap,
        );
    };
}

/// Written below the stack at start.
pub const STACK_GUARD: u32 = 0x5afe_57ac;

/// Whether the stack has stayed above its guard.
#[inline(always)]
pub fn stack_is_sound() -> bool {
    unsafe extern "C" {
        static _stack_guard: u32;
    }
    // SAFETY: the linker script places the symbol at a word of RAM that only the start code writes.
    unsafe { core::ptr::read_volatile(&raw const _stack_guard) == STACK_GUARD }
}
