// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes and times of the firmware. They decide how much RAM a QP takes.

use crate::rc::{NOT_YET_TIMER, rnr_time};
use crate::wire::records::{CONTROL_WORDS, MESSAGE_HEADER};
use berth_abi::card::{CLOCK_HZ, CM_REQUESTS};

/// Places for requests for a connection that wait for an answer, and for answers that wait for room.
pub const REQUESTS: usize = 16;
/// Requests that wait for the host's answer at a time: places are left for answers.
pub const REQUESTS_OFFERED: usize = CM_REQUESTS as usize;
/// Of those the ones for one service.
pub const REQUEST_SHARE: usize = 4;
/// Time for which a request waits for the host's answer (cycles, 10 s).
pub const REQUEST_TIME: u64 = 2_500_000_000;
/// Service ids that are listened to.
pub const SERVICES: usize = berth_abi::card::CM_SERVICES as usize;
/// Command answers that wait for room in the event ring.
pub const ANSWERS: usize = 8;
/// Packets that overtake one before it counts as lost (selective repeat).
pub const REORDER: u32 = 3;
/// Packets that RTL has unacknowledged, and takes ahead of a missing one.
pub const FAST_WINDOW: u32 = berth_abi::card::FAST_PLACES - 1;
/// Packets that RTL places before it acknowledges without being asked.
pub const FAST_ACK_EVERY: u32 = 8;
/// Longest credit list of RTL: what one control message takes behind its header of three words.
pub const FAST_LIST: u32 = (CONTROL_WORDS - MESSAGE_HEADER) as u32;
/// A later list of RTL waits for more than this many new credits, unless at most this many are out. Without it,
/// receives that are posted one by one make a list each.
pub const FAST_FEW: u32 = 24;
/// Bytes that leave during a page service, at most: RTL asks for so many, and two blocks more, ahead of what has left,
/// if credits cover them. 50 µs of a wire of 168 Gbit/s, or 12,500 cycles at 84 bytes.
pub const FAST_AHEAD: u32 = 1024 * 1024;
/// Blocks of receives that RTL may have granted in addition to the bytes that the wire carries in a round trip and both
/// ends' page services, which RTL measures.
pub const FAST_PINNED: u32 = 3;
/// Most bytes that the measured part may add: those of a 512-bit wire with a round trip of 20,000 cycles and services
/// of 20,000.
pub const FAST_PINNED_MOST: u32 = 4 * 1024 * 1024;
/// Blocks ahead at most.
pub const FAST_BLOCKS: u32 = 16;
/// First time between two looks at a row of RTL that is to become idle (cycles).
pub const FAST_POLL: u64 = 5_000;
/// Most doublings of that time while the row is not idle (1.3 ms).
pub const FAST_POLL_DOUBLED: u8 = 6;
/// Time that an RNR timer code stands for (cycles).
pub const fn rnr_cycles(timer: u8) -> u64 {
    rnr_time(timer) as u64 * (CLOCK_HZ as u64 / 100_000)
}
/// Time after which a connection that waits for memory of its peer asks again, if no GO has come (PC-4; cycles, 655 ms).
pub const NOT_YET: u64 = rnr_cycles(NOT_YET_TIMER);
/// Default acknowledgement time-out in cycles (16 ms).
pub const TIMEOUT: u32 = 4_000_000;
/// Default retries before a peer counts as lost.
pub const RETRIES: u32 = 7;
/// Acknowledgement time-out of a control message in cycles (4 ms), doubled with each retry.
pub const CONTROL_TIMEOUT: u64 = 1_000_000;
/// Retries of a control message; together about half a second.
pub const CONTROL_RETRIES: u8 = 8;
/// The last retries of a control message, during which the data connections probe the peer as well.
pub const PROBES: u8 = 3;
/// Time for which a peer with connections must say that it does not know this end before this end begins anew; late
/// frames have arrived by then (cycles, 16 ms).
pub const CONTROL_DOUBT: u64 = 4 * CONTROL_TIMEOUT;
/// Time after which a credit list without its proof (CR-11) is repeated, doubled with each repeat (cycles, 4 ms).
pub const LIST_AGAIN: u64 = 1_000_000;
/// Silence after which a peer with connections is probed (cycles, 250 ms).
pub const KEEPALIVE: u64 = 62_500_000;
/// ARP requests before a peer is unreachable, `CONTROL_TIMEOUT` doubled between them.
pub const ARP_TRIES: u8 = 6;
/// Control messages in flight to one peer.
pub const CONTROL_WINDOW: usize = 4;
/// Control messages in flight beside these, which only answer what the peer has asked for: as many as it may ask in.
pub const CONTROL_ANSWERS: usize = CONTROL_WINDOW;
/// Time after which events are offered again to a full event ring (cycles).
pub const EVENT_RETRY: u64 = 100_000;
/// How often the driver must report a short budget, while nothing else is held, before a receive that holds a part of
/// its memory counts as too large.
pub const SQUEEZES: u8 = 3;
/// Least time between two reports that count (cycles, 0.2 ms): released memory has then reached another row.
pub const FAST_SQUEEZE_TIME: u64 = 50_000;
/// Looks at what a row's receives have come to, until two agree.
pub const CANCEL_LOOKS: u32 = 8;
/// Time for which a row asks for no memory after a recall, so that the host can unpin what went back and another row
/// gets a turn (cycles, 4 ms).
pub const FAST_REST: u64 = 1_000_000;
