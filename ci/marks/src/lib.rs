// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Marks that a program in a guest sets, and between which the plugin `berth-count` counts instructions.

#[cfg(target_arch = "x86_64")]
mod window;

#[cfg(target_arch = "x86_64")]
pub use window::{idle, mark, window};

/// A window begins.
pub const BEGIN: u8 = 1;
/// A window ends.
pub const END: u8 = 2;
/// A poll begins.
pub const POLL: u8 = 3;
/// It has found nothing.
pub const NOTHING: u8 = 4;

/// The first word of a line that [`window`] prints.
pub const WORD: &str = "COUNT";
/// The window in which nothing but ticks of the timer happens.
pub const IDLE: &str = "idle";
