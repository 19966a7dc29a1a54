// SPDX-License-Identifier: GPL-2.0
//! What processes have of a card.

pub(crate) mod context;
