// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credits of one connection, and how its two ends exchange them: lists are built, announced, carried, taken and used
//! up.

pub mod announcer;
pub mod carrier;
pub mod cut;
pub mod entry;
pub mod list;
pub mod mux;
pub mod policy;
pub mod recall;
pub mod taker;
