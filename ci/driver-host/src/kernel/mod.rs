// SPDX-License-Identifier: GPL-2.0
//! The driver's abstractions of the kernel: those that can be as they are, and what stands for the others.

#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../../driver/kernel/abi_bytes.rs"]
mod abi_bytes;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../../driver/kernel/errno.rs"]
pub(crate) mod errno;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../../driver/kernel/image.rs"]
pub(crate) mod image;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../../driver/kernel/memlock.rs"]
pub(crate) mod memlock;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../../driver/kernel/random.rs"]
pub(crate) mod random;

pub(crate) mod copy;
pub(crate) mod doorbell;
pub(crate) mod eventfd;
pub(crate) mod gate;
pub(crate) mod mmu_notifier;
pub(crate) mod net;
pub(crate) mod pin;
pub(crate) mod registers;
pub(crate) mod users;
pub(crate) mod worker_mm;
pub(crate) mod workqueue;
