// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exhaustive model checking of Berth's state machines.
//!
//! The machines are the real ones of `berth_protocol`, with small widths and depths. What is around them is
//! nondeterministic: when a packet arrives, is lost, repeated or overtaken, when a timer runs out, what the
//! applications do. Each harness is explored until no new state is found. See docs/develop/proofs.md.

pub mod buffers;
pub mod cards;
pub mod channel;
pub mod credits;
pub mod ends;
pub mod explore;
pub mod indicate;
pub mod keys;
pub mod lists;
pub mod suite;
pub mod transport;
