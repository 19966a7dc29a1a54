// SPDX-License-Identifier: GPL-2.0
//! The driver under test: by steps that are told one by one, and at random.

mod budgets;
mod callers;
mod calls;
mod calls_of_processes;
mod card;
mod clients;
mod connections;
mod context_events;
mod contexts;
mod copies;
mod crowd;
mod eviction;
mod firmware;
mod net;
mod objects;
mod packets;
mod params;
mod policies;
mod random;
mod regions;
mod requests;
mod resets;
mod revocation;
mod rig;
mod rings;
mod watchdog;
