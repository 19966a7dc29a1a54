// SPDX-License-Identifier: GPL-2.0
//! What processes have of a card.

pub(crate) mod completion_queue;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod context_events;
pub(crate) mod doorbells;
pub(crate) mod limits;
pub(crate) mod object;
pub(crate) mod queue_pair;
pub(crate) mod registry;
