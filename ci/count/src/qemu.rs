// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As much of the interface of QEMU's plugins as is needed, in version 7 (`qemu-plugin.h` of QEMU 11).

use std::ffi::{c_int, c_uint, c_void};

/// Version of the interface.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 7;

/// A plugin, by the number that QEMU has given it.
pub type Id = u64;
/// A block of translated code.
pub enum Block {}
/// An instruction in one.
pub enum Instruction {}
/// Numbers for each virtual processor.
enum Scoreboard {}

/// One of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Number {
    board: *mut Scoreboard,
    offset: usize,
}

// SAFETY: QEMU's functions may be called by any thread.
unsafe impl Send for Number {}
// SAFETY: as above.
unsafe impl Sync for Number {}

/// `QEMU_PLUGIN_INLINE_ADD_U64`, `QEMU_PLUGIN_CB_NO_REGS`, `QEMU_PLUGIN_MEM_W`.
const ADD: c_int = 0;
const NO_REGISTERS: c_int = 0;
const WRITES: c_int = 2;

unsafe extern "C" {
    fn qemu_plugin_scoreboard_new(bytes: usize) -> *mut Scoreboard;
    fn qemu_plugin_u64_sum(number: Number) -> u64;
    fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        instruction: *mut Instruction,
        operation: c_int,
        number: Number,
        operand: u64,
    );
    fn qemu_plugin_register_vcpu_mem_inline_per_vcpu(
        instruction: *mut Instruction,
        accesses: c_int,
        operation: c_int,
        number: Number,
        operand: u64,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        call: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block: *mut Block,
        operation: c_int,
        number: Number,
        operand: u64,
    );
    fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, at: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data(instruction: *const Instruction, to: *mut c_void, bytes: usize) -> usize;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        call: unsafe extern "C" fn(*mut Block, *mut c_void),
        data: *mut c_void,
    );
}

/// So many numbers, all 0.
pub fn numbers(count: usize) -> impl Iterator<Item = Number> + Send {
    // SAFETY: it has room for them.
    let first = Number { board: unsafe { qemu_plugin_scoreboard_new(8 * count) }, offset: 0 };
    (0..count).map(move |n| {
        let first = first;
        Number { offset: 8 * n, ..first }
    })
}

impl Number {
    /// Its value, of all processors together.
    pub fn sum(self) -> u64 {
        // SAFETY: made by `numbers`.
        unsafe { qemu_plugin_u64_sum(self) }
    }
}

/// Has `call` called for every block that is translated.
pub fn at_translation(id: Id, call: unsafe extern "C" fn(*mut Block, *mut c_void)) {
    // SAFETY: the plugin stays loaded.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, call, std::ptr::null_mut()) }
}

/// Address of a block, and the number of its instructions.
///
/// # Safety
/// As [`instructions`].
pub unsafe fn extent(block: *mut Block) -> (u64, usize) {
    // SAFETY: as the caller says.
    unsafe { (qemu_plugin_tb_vaddr(block), qemu_plugin_tb_n_insns(block)) }
}

/// Counts so much for each time that a block is executed.
///
/// # Safety
/// As [`instructions`].
pub unsafe fn count_block(block: *mut Block, number: Number, worth: u64) {
    // SAFETY: as the caller says.
    unsafe { qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(block, ADD, number, worth) }
}

/// An instruction of a block, while that is translated.
pub struct Translated(*mut Instruction);

/// The instructions of a block.
///
/// # Safety
/// It must be the block of a call of [`at_translation`], during that call.
pub unsafe fn instructions(block: *mut Block) -> impl Iterator<Item = Translated> {
    // SAFETY: as the caller says.
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    // SAFETY: as above.
    (0..count).map(move |at| Translated(unsafe { qemu_plugin_tb_get_insn(block, at) }))
}

impl Translated {
    /// Its bytes, in the first so many of an array.
    pub fn bytes(&self) -> ([u8; 16], usize) {
        let mut bytes = [0; 16];
        // SAFETY: an instruction of the block that is translated.
        let len = unsafe { qemu_plugin_insn_data(self.0, bytes.as_mut_ptr().cast(), bytes.len()) };
        (bytes, len.min(16))
    }

    /// Whether it is the kernel's: at an address in the upper half.
    pub fn is_kernels(&self) -> bool {
        // SAFETY: as above.
        unsafe { qemu_plugin_insn_vaddr(self.0) >> 63 == 1 }
    }

    /// Counts how often it is executed.
    pub fn count(&self, number: Number) {
        // SAFETY: as above.
        unsafe { qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(self.0, ADD, number, 1) }
    }

    /// Counts so many bytes for each time that it writes memory.
    pub fn count_writes(&self, number: Number, bytes: u64) {
        // SAFETY: as above.
        unsafe { qemu_plugin_register_vcpu_mem_inline_per_vcpu(self.0, WRITES, ADD, number, bytes) }
    }

    /// Has `call` called with this number each time that it is executed.
    pub fn call(&self, call: extern "C" fn(c_uint, *mut c_void), number: usize) {
        // SAFETY: as above; the plugin stays loaded.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.0, call, NO_REGISTERS, number as *mut c_void) }
    }
}
