// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator of Berth cards: each card is the Verilated RTL on a thread of its own,
//! served to a stock QEMU over vfio-user; two cards are joined by a simulated wire.
//!
//! * [`time`]: how far each card may run, and how time passes while only hosts have work.
//! * [`wire`]: latency, faults, hold and release; [`link`] joins two cards.
//! * [`card`]: a card's thread. [`device`], [`pci`], [`dma`], [`guest_memory`]: its host port.
//! * [`bridge`]: an end of the wire that leads out of the simulator.
//! * [`control`], [`capture`], [`record`]: what tests and people see.
//!
//! Performance figures come from card cycles only, never from the wall clock.

pub mod bridge;
pub mod capture;
pub mod card;
pub mod control;
pub mod device;
pub mod dma;
pub mod guest_memory;
pub mod link;
pub mod pci;
pub mod record;
#[cfg(feature = "rtl")]
pub mod rtl;
pub mod time;
pub mod wire;
