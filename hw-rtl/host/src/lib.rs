// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host for RTL benches: memory, a driver stand-in that speaks the rings and pins pages, processes with queues, and a
//! wire between cards.
//!
//! It does what the kernel driver does towards the card (firmware load, command and event rings, page service,
//! completion queues) without a kernel, and what `libberth` does towards its queues. Everything is deterministic: a test
//! is a function of its seeds. Time is the cards' cycles.
//!
//! A [`Host`] has a card with firmware. A [`Board`] has one whose core is in reset; the bench does the core's work.
//! Both are made of the same [`Memory`], rings ([`Commands`], [`Events`]) and [`Pager`].

mod board;
mod driver;
mod frames;
mod memory;
mod pager;
mod process;
mod rings;
mod wire;

pub use berth_abi::message::QpCreate;
pub use berth_random::{Rng, seed};
pub use board::{Board, Dma};
pub use driver::{Host, HostConfig};
pub use frames::{Bth, credit_lists, data_lengths, is_data, piece_lengths, roce};
pub use memory::{Access, Memory, PAGE, pages};
pub use pager::{Page, PageAnswer, Pager};
pub use process::element;
pub use rings::{Commands, Events};
pub use wire::{Faults, Net, Wire};
