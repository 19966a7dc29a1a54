// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credits without the card (CR-15): the receiver says which buffers it has, and the sender cuts what it sends to them.
//!
//! An [`endpoint::Endpoint`] works over any [`transport::Transport`], that is over anything that can send and receive
//! messages. It needs no Berth hardware and no driver. The rules are those of the card, because both run the same state
//! machines: those of `berth_protocol::credit`.
//!
//! * [`transport`]: what an endpoint needs of its medium
//! * [`endpoint`]: receives become credits, sends are cut to them
//! * [`header`]: which lists go as TCP options
//! * [`shared`]: shared memory of two processes of one host (CR-12, VC-11)
//! * [`tcp`]: a TCP connection, with the lists inside its stream, or as options
//! * [`queue_pairs`]: what transports over two queue pairs of a NIC have in common
//! * [`tcp_options`]: a BPF program for lists as TCP options (feature `tcp-options`)
//! * [`verbs`]: RDMA devices of any vendor, by libibverbs (feature `verbs`)
//!
//! ```
//! use berth_credits::endpoint::{Endpoint, Event, Options};
//! use berth_credits::shared::Shared;
//! use std::os::unix::net::UnixStream;
//!
//! // Two ends in one process here; the sockets usually lead to two processes.
//! let (one, other) = UnixStream::pair()?;
//! let sender = Shared::offer(one, 4096, 4096)?;
//! let receiver = Shared::join(other)?;
//! let mut sender = Endpoint::new(sender, &Options::default(), 0);
//! let mut receiver = Endpoint::<_>::new(receiver, &Options::default(), 0);
//!
//! receiver.post_receive(1, 0, 5)?;
//! receiver.post_receive(2, 5, 6)?;
//! receiver.commit();
//! sender.post_send(3, vec![&b"hello"[..], b" world"]).map_err(|unposted| unposted.reason)?;
//!
//! let mut pieces = Vec::new();
//! for now in 0..10 {
//!     sender.progress(now)?;
//!     receiver.progress(now)?;
//!     while let Some(event) = receiver.event() {
//!         if let Event::Received { len, .. } = event {
//!             pieces.push(len);
//!         }
//!     }
//! }
//! assert_eq!(pieces, [5, 6]);
//! let mut all = [0; 11];
//! assert!(receiver.read(0, &mut all));
//! assert_eq!(&all, b"hello world");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

pub mod endpoint;
pub mod header;
#[allow(unsafe_code)]
mod memory;
pub mod queue_pairs;
mod ring;
pub mod shared;
pub mod tcp;
#[cfg(feature = "tcp-options")]
pub mod tcp_options;
#[cfg(test)]
mod tests;
pub mod transport;
#[cfg(any(feature = "verbs", test))]
pub mod verbs;
