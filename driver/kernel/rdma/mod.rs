// SPDX-License-Identifier: GPL-2.0
//! RDMA devices, for the programs that use verbs.
//!
//! A driver implements [`device::Driver`], and makes its device known by [`registration::Registration`]. Consumers inside
//! of the kernel are not served: the core keeps them away from a device without their functions.
//!
//! C header: `include/rdma/ib_verbs.h`.

mod callbacks;
pub(crate) mod device;
pub(crate) mod handler;
mod object;
pub(crate) mod qp;
pub(crate) mod registration;
mod stats;
pub(crate) mod udata;
