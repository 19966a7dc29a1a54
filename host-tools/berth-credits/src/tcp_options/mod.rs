// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP options by a BPF program of the kernel's socket operations (CR-12e; feature `tcp-options`).
//!
//! * [`program`]: the program, and the sockets that it is for
//! * `shared`: what both of them use
//! * [`socket`]: one of them
//!
//! It needs Linux 5.10 with cgroups of version 2, and the right to load such programs and to attach them to a cgroup
//! (CAP_BPF and CAP_NET_ADMIN). The program looks at no socket but those that [`Program::connect`] and [`Program::listen`]
//! make. Both ends of a connection need one; where that is not so, or something between them takes options away, lists go
//! inside the stream.

pub mod program;
mod shared;
pub mod socket;

pub use program::{Counts, Error, Program};
pub use socket::Socket;
