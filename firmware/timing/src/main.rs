// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a look-up of a key takes on the soft core (QP-11): an image for the bench `pythia_cycles_…` of
//! `hw-rtl/model/tests/firmware_boot.rs`, in place of the firmware.
//!
//! Who asks for a key and measures the answer (the attack *Pythia*) learns what the cycles tell, so they are measured for
//! each kind of answer, over places of the table and guesses of the secret, in a table that is full and in one that is all
//! but empty. Statistics RAM has the result when the core says `FW_RUNNING`: of each table, for each of [`QUESTIONS`], the
//! least and the most cycles of look-ups long after the last one of that key, at once again, and behind look-ups of others.
#![no_std]
#![no_main]

use berth_abi::status::{FW_PANIC, FW_RUNNING};
use berth_protocol::memory::keys::{Keys, READ};
use berth_protocol::rc::{Access, Remote, Right};
use berth_soc::{Soc, cache, regs};
use core::hint::black_box;
use core::panic::PanicInfo;

/// Keys of a full table that the stack has room for.
const PLACES: usize = 128;
/// Every so many places are looked at: one more than a multiple of 8, so that entries begin anywhere in a cache line.
const STEP: usize = 25;
/// Lines of 32 bytes, twice as many as the core's data cache has.
type Cold = [[u32; 8]; 256];

const DOMAIN: u16 = 1;
const VA: u64 = 0x7f00_0000_0000;
const LEN: u64 = 1 << 20;

/// Cycles of look-ups of one kind: the shortest and the longest.
struct Span(u32, u32);

impl Span {
    const NONE: Self = Span(u32::MAX, 0);

    fn add(&mut self, cycles: u32) {
        *self = Span(self.0.min(cycles), self.1.max(cycles));
    }
}

/// What is asked for, of a place whose key is `key`.
type Question = fn(key: u32) -> Access;

fn access(key: u32, va: u64, right: Right) -> Access {
    Access { remote: Remote { va, key, len: 64 }, right, first: 0, packets: 1, again: false }
}

/// All is right; the key is wrong in its first bit, its last, half of them, all (but those of its place); the range begins
/// too early, ends too late; the right is not given.
const QUESTIONS: [Question; 8] = [
    |key| access(key, VA + 64, Right::Read),
    |key| access(key ^ 1 << 31, VA + 64, Right::Read),
    |key| access(key ^ 1, VA + 64, Right::Read),
    |key| access(key ^ 0x5a5a_005a, VA + 64, Right::Read),
    |key| access(key ^ 0xffff_00ff, VA + 64, Right::Read),
    |key| access(key, VA - 64, Right::Read),
    |key| access(key, VA + LEN, Right::Read),
    |key| access(key, VA + 64, Right::Write),
];

/// Cycles of one look-up, with those of reading the counter. It begins with an empty data cache, whoever was looked up
/// before.
#[inline(never)]
fn look_up(soc: &Soc, keys: &mut Keys<PLACES>, access: &Access) -> u32 {
    let start = soc.regs.cycle_lo.read();
    cache::empty();
    let found = black_box(keys).check(DOMAIN, 1, black_box(access));
    let end = soc.regs.cycle_lo.read();
    _ = black_box(found);
    end.wrapping_sub(start)
}

/// Takes everything out of the data cache.
#[inline(never)]
fn displace(cold: &Cold) {
    for line in black_box(cold) {
        black_box(line[0]);
    }
}

/// Looks up the keys of some places in each way; the results are statistics from `at` on.
fn measure(soc: &mut Soc, mut at: u32, keys: &mut Keys<PLACES>, of: &[u32; PLACES], cold: &Cold) -> u32 {
    for question in QUESTIONS {
        let (mut after, mut again, mut behind) = (Span::NONE, Span::NONE, Span::NONE);
        for &key in of.iter().step_by(STEP) {
            let asked = question(key);
            // The code is in its cache from here on.
            look_up(soc, keys, &asked);
            displace(cold);
            after.add(look_up(soc, keys, &asked));
            again.add(look_up(soc, keys, &asked));
            displace(cold);
            for &other in of.iter().step_by(STEP).filter(|other| **other != key) {
                look_up(soc, keys, &QUESTIONS[0](other));
            }
            behind.add(look_up(soc, keys, &asked));
        }
        for Span(least, most) in [after, again, behind] {
            soc.stats.add(at, least);
            soc.stats.add(at + 1, most);
            at += 2;
        }
    }
    at
}

berth_rt::entry!(main, trap);

/// Measures look-ups in a full table, and in one that holds only what is looked up.
extern "C" fn main() -> ! {
    let Some(mut soc) = Soc::take() else {
        panic!("main entered twice");
    };
    soc.stats.clear();
    let mut keys = Keys::new();
    let cold = [[0; 8]; 256];
    let mut of = [0; PLACES];
    for (place, slot) in (1u32..).zip(&mut of) {
        // Any secrets will do.
        *slot = keys.register(DOMAIN, VA, LEN, READ, u64::from(place).wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap_or(0);
    }
    let at = measure(&mut soc, 0, &mut keys, &of, &cold);
    for (place, &key) in of.iter().enumerate() {
        if place % STEP != 0 {
            _ = keys.deallocate(key);
        }
    }
    measure(&mut soc, at, &mut keys, &of, &cold);
    stop(soc, if berth_rt::stack_is_sound() { FW_RUNNING } else { FW_PANIC })
}

fn stop(soc: Soc, status: u32) -> ! {
    regs::set(&soc.regs.status, status);
    loop {
        soc.regs.wait.read();
    }
}

extern "C" fn trap(_mcause: u32, _mepc: u32, _mtval: u32) -> ! {
    panic!("trap");
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    // SAFETY: nothing else runs any more: this function does not return.
    stop(unsafe { Soc::steal() }, FW_PANIC)
}
