// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links every public call of `berth_protocol` for the soft core, compiled as the firmware is, so that
//! `cargo xtask test --only panic-free` can look for panics in the code that it becomes. Never run.
//!
//! The firmware links what the `Card` needs. Here is the rest: each machine with sizes as a card would have, in a
//! state, and with arguments, that the compiler can know nothing of ([`black_box`]).
#![no_std]
#![no_main]

mod card;
mod credits;
mod memory;
mod transport;
mod wire;

use core::hint::black_box;
use core::panic::PanicInfo;

/// Calls methods of a machine, each in any state and with any arguments.
macro_rules! calls {
    ($machine:ident: $($method:ident($($argument:expr),* $(,)?)),+ $(,)?) => {$(
        core::hint::black_box(&mut $machine);
        _ = core::hint::black_box($machine.$method($(core::hint::black_box($argument)),*));
    )+};
}
pub(crate) use calls;

/// Takes all of an iterator.
fn drain<T>(values: impl Iterator<Item = T>) {
    for value in values {
        black_box(value);
    }
}

/// Memory of any length and content.
fn memory<T>(buffer: &mut [T]) -> &mut [T] {
    black_box(buffer)
}

#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    card::link();
    credits::link();
    memory::link();
    transport::link();
    wire::link();
    // The one panic that is meant to be here: a search that does not see it would see nothing.
    assert!(black_box(false), "all calls made");
    stop()
}

fn stop() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    stop()
}
