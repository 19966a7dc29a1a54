// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT
//! The one description of what the layers of Berth say to each other: registers,
//! rings, queue elements and ioctls.
//!
//! Firmware, library and simulator use it as this crate; the kernel driver includes
//! `layout/` as a module; `hw-rtl/rtl/berth_regs_pkg.sv` and `docs/reference/registers.md` are
//! generated from the tables in it (`cargo xtask gen`), and CI fails when they differ.
#![no_std]

mod layout;
pub use layout::*;
