// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What everything else stands on: bounded loops, short queues, checksums, a keyed function, sets, turns, the shortest of many
//! times, rules that tests may break.

pub mod bound;
pub(crate) mod crc;
pub mod fifo;
pub mod keyed;
pub mod rule;
pub mod set;
pub mod shortest;
pub mod turn;
