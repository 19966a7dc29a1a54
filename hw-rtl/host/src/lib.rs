// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host for RTL benches: memory, a driver stand-in that speaks the rings and pins pages, processes with queues, and a
//! wire between cards.
//!
//! It does what the kernel driver does towards the card (firmware load, command and event rings, page service,
//! completion queues) without a kernel, and what `libberth` does towards its queues. Everything is deterministic: a test
//! is a function of its seeds. Time is the cards' cycles.
//!
//! A [`Host`] has a card with firmware. A [`Board`] has one whose core is in reset; the bench does the core's work.
//! Both are made of the same [`Memory`], rings ([`Commands`], [`Events`]) and [`Pager`]. Benches of single modules have no
//! card: there [`Ranges`] is what memory is asked of, the same [`Pager`] behind a [`Table`].

#[cfg(feature = "card")]
mod board;
#[cfg(feature = "card")]
mod driver;
#[cfg(feature = "card")]
mod frames;
mod memory;
mod pager;
#[cfg(feature = "card")]
mod process;
mod ranges;
#[cfg(feature = "card")]
mod raw;
#[cfg(feature = "card")]
mod rings;
mod table;
#[cfg(feature = "card")]
mod wire;

pub use berth_abi::message::QpCreate;
pub use berth_random::{Rng, seed};
#[cfg(feature = "card")]
pub use board::{Board, Dma};
#[cfg(feature = "card")]
pub use driver::{Host, HostConfig};
#[cfg(feature = "card")]
pub use frames::{Bth, credit_lists, data_lengths, is_data, numbered_lists, piece_lengths, roce};
pub use memory::{Access, Memory, PAGE, pages};
pub use pager::{Page, PageAnswer, Pager};
#[cfg(feature = "card")]
pub use process::element;
pub use ranges::{Ranges, Reply};
#[cfg(feature = "card")]
pub use raw::{RawQueue, raw_element};
#[cfg(feature = "card")]
pub use rings::{Commands, Events};
pub use table::{Span, Table};
#[cfg(feature = "card")]
pub use wire::{Faults, Net, Wire};
