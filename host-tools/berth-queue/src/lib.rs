// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The card's queues as a process uses them, for `libberth` and for the provider of libibverbs (QP-1): no system calls,
//! no threads, and the memory is the caller's, so that the same code runs over a mapping and over a test's own memory.
//!
//! A [`Request`] becomes an element. A [`WorkQueue`] with its [`Progress`] is a send or receive queue: what is posted, and what
//! is complete; a [`SharedQueue`] lends its receives to several of them. [`Completions`] are a completion queue and the queue
//! pairs that complete there. All ring [`Doorbells`].

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod completions;
mod doorbell;
mod request;
mod ring;
mod shared;

pub use completions::{Completions, Entry, QpProgress, Unmatched};
pub use doorbell::Doorbells;
pub use request::{Data, Operation, Refused, Remote, Request, gather};
pub use ring::{Progress, WorkQueue, queues_fit, ring_fits};
pub use shared::{LoanEnd, SharedQueue};
