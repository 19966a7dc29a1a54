// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verbs of any vendor (CR-15): reliable connections of libibverbs, on any device that it knows: InfiniBand, RoCE,
//! iWARP.
//!
//! See [`crate::queue_pairs`] for how a connection uses its two queue pairs. With `rnr_retry` 0, a message that
//! found no receive would end the connection. So it goes between NICs that have a receive as soon as it is posted; see
//! `Port::rnr_retry` for others. All memory is registered once.
//!
//! **The ends meet** over a TCP socket, over which each tells the other its queue pairs (`Verbs::connect`). It stays open,
//! and tells when the peer's process has ended. What a peer says is checked; a peer that says or does anything else ends the
//! connection at most. Its NIC can reach no memory of ours. Whoever wants all that it sends to arrive waits for the events of
//! its sends before it drops its end.
//!
//! **iWARP** has no immediate data, so messages have a header (`headers`). Only RDMA's connection manager, librdmacm,
//! can connect queue pairs of it, with the addresses of the socket. A message that finds no receive always ends the
//! connection, whatever `Port` says. A NIC is done with a send when its TCP has the bytes: whoever wants them to arrive
//! waits for an answer of the other end before it drops its own.
//!
//! The feature `verbs` builds all of this. Without it, there is only what needs no device, for its tests.

mod exchange;
mod headers;

#[cfg(feature = "verbs")]
mod manager;
#[cfg(feature = "verbs")]
#[allow(unsafe_code)]
mod pair;
#[cfg(feature = "verbs")]
mod port;

#[cfg(feature = "verbs")]
pub use port::{Device, Port, Verbs};
