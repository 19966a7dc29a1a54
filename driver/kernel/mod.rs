// SPDX-License-Identifier: GPL-2.0
//! Safe abstractions of what the `kernel` crate does not wrap. All `unsafe` of the driver is here, but for what the
//! module's start and `probe` need.

pub(crate) mod abi_bytes;
pub(crate) mod bindings;
pub(crate) mod copy;
#[cfg(CONFIG_INFINIBAND)]
pub(crate) mod crc;
pub(crate) mod doorbell;
pub(crate) mod errno;
pub(crate) mod eventfd;
pub(crate) mod gate;
pub(crate) mod image;
pub(crate) mod interrupt;
pub(crate) mod memlock;
pub(crate) mod mmu_notifier;
pub(crate) mod net;
pub(crate) mod pin;
pub(crate) mod random;
#[cfg(CONFIG_INFINIBAND)]
pub(crate) mod rdma;
pub(crate) mod registers;
#[cfg(CONFIG_INFINIBAND)]
pub(crate) mod user_memory;
pub(crate) mod users;
pub(crate) mod worker_mm;
pub(crate) mod workqueue;
