// SPDX-License-Identifier: GPL-2.0
//! RDMA devices, for the programs that use verbs.
//!
//! A driver implements [`device::Driver`], and makes its device known by [`registration::Registration`]. Of the consumers
//! inside of the kernel, those of datagrams are served, the connection manager among them.
//!
//! C header: `include/rdma/ib_verbs.h`.

mod callbacks;
pub(crate) mod device;
pub(crate) mod handler;
mod object;
mod pair;
mod posting;
pub(crate) mod qp;
pub(crate) mod registration;
mod shared;
mod stats;
pub(crate) mod udata;
mod window;
pub(crate) mod work;
