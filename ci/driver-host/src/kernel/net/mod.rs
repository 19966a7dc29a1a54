// SPDX-License-Identifier: GPL-2.0
//! The network stack: a test sends packets, polls, and looks at what came.

pub(crate) mod device;
pub(crate) mod mapped;
pub(crate) mod registration;
pub(crate) mod skb;
