// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Behaviour of the Berth card, sans-I/O: state machines and wire formats without clock,
//! DMA or register. The soft core runs it over registers, tests over a model.
//!
//! [`Card`] takes events (a command, a doorbell, a frame, the end of a DMA) and acts
//! through the trait [`card::hw::Hw`]. After each burst of events call [`Card::poll`].
//!
//! Folders, lowest first. Nothing uses what stands beside or above it (`cargo xtask test --only layers`):
//!
//! * [`base`]: what everything stands on. Loops with a bound, short queues, checksums, a keyed function, turns, rules that a
//!   test can break.
//! * [`rc`]: the reliable connection. What a requester and a responder know, and what they do with each packet.
//! * [`wire`]: frames. The bytes of every packet, and the records of the control connection.
//! * [`memory`]: pages. Which parts of a stream are pinned, for how long, and which keys open memory to peers.
//! * [`credit`]: credits. How lists of them are built, carried, taken and used up.
//! * [`service`]: what stands beside the stream connection. Datagrams, the indicate window, buffers that grow.
//! * [`card`]: what firmware does. RTL has the credit lists and the pages; of `credit` it uses the rule of recalls.
//! * [`stream`]: one end of a stream connection, put together from `rc`, `memory` and `credit`. The model checker
//!   joins two of them.
//! * `model`: hosts, engines and wire around the [`card`], for tests.
#![no_std]
#[cfg(any(feature = "model", test))]
extern crate std;

pub mod base;
pub mod card;
pub mod credit;
pub mod memory;
#[cfg(feature = "model")]
pub mod model;
pub mod rc;
pub mod service;
pub mod stream;
pub mod wire;

pub use card::Card;
