// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Verilated Berth card.
//!
//! [`Core`] is the bare RTL, clock by clock. [`Card`] adds what a card is plugged into:
//! a host port with a declared read latency, split and reordered completions, MMIO, and
//! frames at the MAC. The simulator (`berth-sim`) and the RTL benches build on `Card`.

mod card;
mod ffi;

pub use card::{
    BAR_CONTROL, BAR_DOORBELL, Card, CardConfig, Frame, HostError, HostMemory, Move, Moved, PcieLimits, Port, Ports,
    ReadFault, data_w,
};
pub use ffi::{Beat, Core, HostBeat, Inputs, Outputs, WIDTHS};
