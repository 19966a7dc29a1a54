// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What sets them.

use crate::{BEGIN, END, IDLE, WORD};
use std::arch::asm;
use std::io::{Error, Result};
use std::time::{Duration, Instant};

/// A NOP that no compiler makes.
#[inline(always)]
pub fn mark<const NUMBER: u8>() {
    // SAFETY: `nopl` with an address that is not accessed.
    unsafe { asm!(".byte 0x0f, 0x1f, 0x84, 0x00, {n}, 0x5a, 0xa5, 0x43", n = const NUMBER, options(nostack)) }
}

/// Interrupts of the timer so far.
fn ticks() -> Result<u64> {
    let all = std::fs::read_to_string("/proc/interrupts")?;
    let line = all.lines().find(|line| line.trim_start().starts_with("LOC:")).ok_or(Error::other("no line LOC"))?;
    Ok(line.split_whitespace().skip(1).map_while(|n| n.parse::<u64>().ok()).sum())
}

/// Lets what `work` does be counted, which is so many messages and bytes. `interrupts`: the card's so far.
///
/// # Errors
/// Those of `work` and `interrupts`; or the kernel does not say how many ticks there were.
pub fn window<E: From<Error>>(
    name: &str,
    messages: usize,
    bytes: usize,
    interrupts: impl Fn() -> std::result::Result<u64, E>,
    work: impl FnOnce() -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let before = (ticks()?, interrupts()?);
    mark::<BEGIN>();
    let result = work();
    mark::<END>();
    result?;
    let (ticks, interrupts) = (ticks()? - before.0, interrupts()? - before.1);
    println!("{WORD} {name} {messages} {bytes} {ticks} {interrupts}");
    Ok(())
}

/// The window that says what a tick costs.
///
/// # Errors
/// The kernel does not say how many ticks there were.
pub fn idle() -> Result<()> {
    window(
        IDLE,
        1,
        1,
        || Ok(0),
        || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {}
            Ok(())
        },
    )
}
