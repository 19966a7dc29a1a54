// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reliable connection as pure values: what its two ends know, and what they do with each packet.
//!
//! [`Requester`] sends SEND, WRITE, READ and atomics and hears the answers; [`Responder`] is the other end. Both decide
//! packet by packet with bounded state, so that hardware can have the same structure, and know nothing of bytes on the
//! wire, memory or clocks: packets are [`RequestPacket`] and [`ResponsePacket`], time is an argument, and actions are
//! returned as values. All state is plain data with one form for each situation (unused fields are zero), so that a
//! model checker can explore these machines themselves.
//!
//! `BITS` is the width of a PSN: 24 on the wire, 3 for the model checker. `W`, a power of two, is the window in packets.
//! As in InfiniBand nothing may live on the wire for longer than half a turn of the PSNs.

mod arrival;
mod bitmap;
mod packet;
mod psn;
mod requester;
mod responder;
mod timeout;
mod window;
mod witness;

pub use arrival::{Arrival, Where};
pub use bitmap::{Bitmap, Wide};
pub use packet::{
    Kind, NOT_YET_TIMER, NakCode, Placement, Position, Remote, RequestPacket, ResponseBody, ResponsePacket, Syndrome,
    credit_code, credit_count, rnr_time,
};
pub use psn::Psn;
pub use requester::{
    Completion, Full, Immediate, Message, Op, Outcome, Requester, RequesterConfig, Status, Transmit, Wait,
};
pub use responder::{Access, Admit, Event, Fault, Place, Reply, Responder, ResponderConfig, Right, Target, Verdict};
pub use timeout::{NotReady, RoundTrip, Tries, Woken};
pub use window::{Reach, Window};
pub use witness::Witness;

/// Most places of any window.
pub const MAX_WINDOW: usize = 256;

/// Most packets of any window that are not acknowledged: a byte says how many.
pub const MAX_FLIGHT: u32 = 255;

/// Packets that `len` bytes take: at least one.
#[inline]
pub const fn packets(len: u32, log2_mtu: u8) -> u32 {
    match len {
        0 => 1,
        len => ((len - 1) >> (log2_mtu & 31)) + 1,
    }
}
