// SPDX-License-Identifier: GPL-2.0
//! The page service under test: by steps that are told one by one, and at random.

mod budgets;
mod eviction;
mod random;
mod requests;
mod revocation;
mod rig;
