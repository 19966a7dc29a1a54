// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the instructions of a guest, those of its kernel apart, between marks that its programs set.
//!
//! A mark is a NOP that no compiler makes (`berth_marks::mark`). Each writes a line to the file that the option `out`
//! names: its number; instructions of programs and of the kernel; bytes that repeated string instructions of either have
//! written. Such an instruction is not counted, because processors write many bytes at once: its bytes say what it costs.
//!
//! Polls that find nothing take as long as the simulated card is slow, and are told apart: [`POLL`] begins one, and if
//! [`NOTHING`] ends it, it is idle, up to where the next one begins. The last number of a line is the instructions of programs
//! in such.
//!
//! With the option `profile` another file gets, for each such line, the blocks that were executed since the line before:
//! `mark NUMBER`, and for each block its address and the instructions, those of idle polls and strings included.

mod profile;
mod qemu;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use profile::Profile;
use qemu::{Block, Id, Number, at_translation, instructions, numbers};

/// Numbers of marks that are no end of a window.
const POLL: usize = berth_marks::POLL as usize;
const NOTHING: usize = berth_marks::NOTHING as usize;

/// Time that a guest rests when a poll has found nothing.
const REST: Duration = Duration::from_micros(200);

/// What is counted, by index.
const USER: usize = 0;
const KERNEL: usize = 1;
const USER_BYTES: usize = 2;
const KERNEL_BYTES: usize = 3;

struct Counts {
    numbers: [Number; 4],
    polls: Mutex<Polls>,
    profile: Option<Mutex<Profile>>,
}

struct Polls {
    out: File,
    /// Instructions when the last one began, or ended with nothing.
    began: u64,
    /// The last one has found nothing.
    in_vain: bool,
    /// Instructions of polls that found nothing.
    idle: u64,
}

static COUNTS: OnceLock<Counts> = OnceLock::new();

/// A mark has been executed.
extern "C" fn mark(_processor: c_uint, number: *mut c_void) {
    let Some(counts) = COUNTS.get() else { return };
    let now = counts.numbers.map(Number::sum);
    let mut polls = counts.polls.lock().unwrap_or_else(PoisonError::into_inner);
    let began = polls.began;
    match number.addr() {
        POLL if polls.in_vain => polls.in_vain = false,
        POLL => polls.began = now[USER],
        NOTHING => {
            polls.idle += now[USER] - began;
            (polls.began, polls.in_vain) = (now[USER], true);
            drop(polls);
            // The simulator, for which the poll waits, has this processor meanwhile.
            thread::sleep(REST);
        }
        number => {
            let [user, kernel, user_bytes, kernel_bytes] = now;
            let idle = polls.idle;
            // Nobody is there to be told of an error; a line that is missing is noticed.
            let line = format!("{number} {user} {kernel} {user_bytes} {kernel_bytes} {idle}\n");
            let _ = polls.out.write_all(line.as_bytes());
            if let Some(profile) = &counts.profile {
                let _ = profile.lock().unwrap_or_else(PoisonError::into_inner).write(number);
            }
        }
    }
}

/// The number of a mark: `nopl NUMBER<<24|0x43a55a…`.
fn number_of_mark(code: &[u8]) -> Option<usize> {
    match code {
        [0x0f, 0x1f, 0x84, 0x00, number, 0x5a, 0xa5, 0x43] => Some((*number).into()),
        _ => None,
    }
}

/// Bytes that each round of a repeated string instruction writes at most, if it is one.
fn repeated(code: &[u8]) -> Option<u64> {
    let prefixes = code
        .iter()
        .take_while(|byte| matches!(byte, 0xf2 | 0xf3 | 0x66 | 0x2e | 0x3e | 0x26 | 0x36 | 0x64 | 0x65 | 0x67));
    let (mut repeats, mut short, mut at) = (false, false, 0);
    for prefix in prefixes {
        repeats |= matches!(prefix, 0xf2 | 0xf3);
        short |= *prefix == 0x66;
        at += 1;
    }
    let mut wide = false;
    if let Some(rex @ 0x40..=0x4f) = code.get(at) {
        wide = rex & 8 != 0;
        at += 1;
    }
    match code.get(at..) {
        Some([opcode @ (0xa4..=0xa7 | 0xaa..=0xaf)]) if repeats => Some(match (opcode & 1, wide, short) {
            (0, ..) => 1,
            (_, true, _) => 8,
            (_, _, true) => 2,
            _ => 4,
        }),
        _ => None,
    }
}

/// A block is translated.
///
/// # Safety
/// QEMU calls it.
unsafe extern "C" fn translated(block: *mut Block, _: *mut c_void) {
    let Some(counts) = COUNTS.get() else { return };
    if let Some(profile) = &counts.profile {
        // SAFETY: the block of this call.
        unsafe { profile.lock().unwrap_or_else(PoisonError::into_inner).watch(block) };
    }
    // SAFETY: as above.
    for instruction in unsafe { instructions(block) } {
        let (bytes, len) = instruction.bytes();
        let code = &bytes[..len];
        if let Some(number) = number_of_mark(code) {
            instruction.call(mark, number);
        }
        let (count, written) = match instruction.is_kernels() {
            true => (KERNEL, KERNEL_BYTES),
            false => (USER, USER_BYTES),
        };
        match repeated(code) {
            Some(bytes) => instruction.count_writes(counts.numbers[written], bytes),
            None => instruction.count(counts.numbers[count]),
        }
    }
}

/// The plugin is loaded.
///
/// # Safety
/// QEMU calls it, with so many arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    _info: *const c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let file = |option: &str| {
        let name = (0..count as usize).find_map(|n| {
            // SAFETY: as the caller says.
            let argument = unsafe { CStr::from_ptr(*arguments.add(n)) };
            argument.to_str().ok()?.strip_prefix(option)?.strip_prefix('=').map(str::to_owned)
        })?;
        let file = File::create(&name);
        Some(file.inspect_err(|error| eprintln!("berth-count: {name}: {error}")))
    };
    let (Some(Ok(out)), profile) = (file("out"), file("profile").transpose()) else {
        eprintln!("berth-count: there is no option out=FILE, or it cannot be written");
        return 1;
    };
    let Ok(profile) = profile else { return 1 };
    let mut all = numbers(4);
    let counts = Counts {
        numbers: std::array::from_fn(|_| all.next().expect("there are four")),
        polls: Mutex::new(Polls { out, began: 0, in_vain: false, idle: 0 }),
        profile: profile.map(|out| Mutex::new(Profile::new(out))),
    };
    if COUNTS.set(counts).is_err() {
        return 1;
    }
    at_translation(id, translated);
    0
}
