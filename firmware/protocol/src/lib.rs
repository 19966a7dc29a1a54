// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Behaviour of the Berth card, sans-I/O: state machines and wire formats without clock,
//! DMA or register. The soft core runs it over registers, tests over a model.
//!
//! [`Card`] takes events (a command, a doorbell, a frame, the end of a DMA) and acts
//! through the trait [`hw::Hw`]. After each burst of events call [`Card::poll`].
#![no_std]
#[cfg(any(feature = "model", test))]
extern crate std;

pub mod announce;
pub mod bound;
pub mod card;
pub mod carrier;
mod cm;
mod command;
pub mod context;
pub mod control;
mod crc;
pub mod credit;
pub mod cut;
pub mod datagram;
pub mod end;
pub mod entry;
pub mod fast;
pub mod fifo;
pub mod grow;
pub mod headers;
pub mod hw;
pub mod indicate;
pub mod keyed;
pub mod keys;
pub mod limits;
#[cfg(feature = "model")]
pub mod model;
pub mod mux;
pub mod pins;
pub mod policy;
mod qp;
pub mod rc;
pub mod rd;
pub mod receive;
pub mod rule;
mod shared;
mod steps;
pub mod taker;
pub mod vc;
pub mod wire;

pub use card::Card;
