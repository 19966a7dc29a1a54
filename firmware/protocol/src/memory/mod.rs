// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which pages are pinned, and for how long: virtual contexts, the blocks of a stream that a sender asks the host for,
//! receives on their way to credits, how many of them are asked for ahead, which of them lets go when memory is short, the
//! pages of a card, and the keys that open memory to peers.

pub mod ahead;
pub mod blocks;
pub mod context;
pub mod keys;
pub mod pins;
pub mod receives;
pub mod squeeze;
