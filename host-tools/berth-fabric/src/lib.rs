// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Discrete-event simulation of Berth at scale, against other ways of flow control.
//!
//! `net` is the fabric, `hosts` what is around it, `load` the workloads. Schemes of flow control are `queued`
//! (three baselines over InfiniBand's reliable connection) and `homa`. Questions are asked by
//! [`credits`], [`triggers`], [`paging`], [`memory`].
//! A run depends on its measures and its seed only.

pub mod answer;
mod berth;
pub mod credits;
mod frames;
mod growing;
mod homa;
mod hosts;
mod load;
pub mod memory;
mod net;
pub mod page;
pub mod paging;
mod pinned;
mod plot;
mod queued;
mod time;
pub mod triggers;
