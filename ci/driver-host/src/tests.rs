// SPDX-License-Identifier: GPL-2.0
//! The page service under test: by steps that are told one by one, and at random.

mod budgets;
mod clients;
mod connections;
mod context_events;
mod contexts;
mod crowd;
mod eviction;
mod objects;
mod random;
mod requests;
mod revocation;
mod rig;
