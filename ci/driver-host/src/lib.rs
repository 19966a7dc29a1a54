// SPDX-License-Identifier: GPL-2.0
//! The driver's page service, contexts and card on the host, as they are; what they stand on is made for tests: the
//! card's hardware and firmware ([`hardware`]), address spaces ([`memory`]), and `kernel`.
//!
//! Includes sources of the driver, which are GPL-2.0, and so is this package.

#![cfg(test)]
// Of the driver's files not all is used here.
#![allow(dead_code)]

#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/abi/src/layout/mod.rs"]
pub mod abi;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/card/mod.rs"]
mod card;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/events.rs"]
mod events;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/net/mod.rs"]
mod net;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/rdma/mad.rs"]
mod mad;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/rdma/packet.rs"]
mod packet;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/pages/mod.rs"]
mod pages;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/params.rs"]
mod params;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/process/mod.rs"]
mod process;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/uapi.rs"]
mod uapi;

mod cards;
mod kernel;

pub mod hardware;
pub mod memory;

mod tests;
