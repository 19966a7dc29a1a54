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
#[path = "../../../driver/abi_bytes.rs"]
mod abi_bytes;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/budget.rs"]
mod budget;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/card.rs"]
mod card;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/context.rs"]
mod context;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/errno.rs"]
mod errno;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/events.rs"]
mod events;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/fw.rs"]
mod fw;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/image.rs"]
mod image;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/memlock.rs"]
mod memlock;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/page_service.rs"]
mod page_service;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/params.rs"]
mod params;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/regs.rs"]
mod regs;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/uapi.rs"]
mod uapi;
#[rustfmt::skip]
#[allow(clippy::all)]
#[path = "../../../driver/xlt.rs"]
mod xlt;

// What stands for other parts of the driver.
mod doorbell;
mod eventfd;
mod gate;
mod mmu_notifier;
mod pin;
mod workqueue;

pub mod hardware;
pub mod memory;

/// The card that a device node belongs to: there is one.
fn card_by_instance(instance: usize) -> Option<std::sync::Arc<card::Card>> {
    let card = memory::sim().card.borrow().clone();
    card.filter(|card| card.instance == instance)
}

/// As long as the guard is there, the driver neither begins nor ends to hold an address space in use.
#[must_use]
fn holds() -> impl Sized {
    memory::holds()
}

/// What the process of an address space has of each card.
fn shares_of(mm: &kernel::mm::Mm) -> Vec<Option<std::sync::Arc<context::Share>>> {
    let sim = memory::sim();
    let cards = sim.card.borrow().iter().chain(&*sim.others.borrow()).cloned().collect::<Vec<_>>();
    let share = |card: &std::sync::Arc<card::Card>| card.shares.lock().iter().find(|s| s.is_of(mm)).cloned();
    cards.iter().map(share).collect()
}

mod tests;
