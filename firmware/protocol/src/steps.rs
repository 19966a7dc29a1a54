// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Step bounds of the card's calls.
//!
//! What one call of [`Card`] may do is bounded as a whole, whatever peers and host have sent before: all turns of all
//! loops in all it comes to, nested ones included ([`crate::shared::Shared::step`]). The bounds are put together here
//! from those of the parts, each a worst case of its own; no real call comes near the sum. A search through one queue
//! of one QP (at most `GRANTS` receives or `BLOCKS` blocks) has a bound of its own and is not counted again.

use crate::card::Card;
use crate::control::MESSAGE_HEADER;
use crate::limits;
use berth_abi::{card, wqe};

const SEND_WQES: u32 = limits::SEND_WQES as u32;
const SEND_SGES: u32 = limits::SEND_SGES as u32;
const PIECES: u32 = limits::PIECES as u32;
const BLOCKS: u32 = limits::BLOCKS as u32;
const GRANTS: u32 = limits::GRANTS as u32;
const REQUESTS: u32 = limits::REQUESTS as u32;
/// Words of the key, and what else is stirred into it.
const NEW_KEY: u32 = 5;
const HELD_LISTS: u32 = limits::HELD_LISTS as u32;
const CONTROL_WORDS: u32 = limits::CONTROL_WORDS as u32;
const WINDOW: u32 = limits::WINDOW;
/// SGEs of one queue element.
const SGES: u32 = wqe::MAX_SGE as u32;

// What all QPs share.
/// A free tag is looked for word by word.
const TAG_ALLOC: u32 = limits::TAGS as u32 / 32;
const FLUSH_ANSWERS: u32 = limits::ANSWERS as u32;
/// An answer has up to 13 result words.
const ANSWER: u32 = 13 + FLUSH_ANSWERS;
/// Its words are copied into the frame.
const PEER_STEP: u32 = limits::CONTROL_WINDOW as u32 * (1 + CONTROL_WORDS);

// Receives.
const LET_GO: u32 = SGES;
const COMPLETE_RECVS: u32 = GRANTS * (1 + LET_GO);
const ASK_GRANTS: u32 = GRANTS * (1 + SGES * (1 + TAG_ALLOC));
/// The last turn finds that the batch is complete.
const POST_GRANTS: u32 = GRANTS + 1;
const RECV_STEP: u32 = COMPLETE_RECVS + ASK_GRANTS + POST_GRANTS;
const DROP_GRANTS: u32 = GRANTS * (1 + SGES + LET_GO);
const SQUEEZE_GRANTS: u32 = GRANTS * (1 + LET_GO);
const YIELD_GRANT: u32 = LET_GO + SGES;
const RECALL: u32 = GRANTS;
const RECALLED: u32 = GRANTS * (1 + LET_GO);
const REVOKE_GRANTS: u32 = GRANTS * (1 + LET_GO);
/// Each packet in order may begin a piece; together they pass each receive once.
const FOLLOW: u32 = WINDOW + GRANTS;
/// A piece lands, the payload is split over the receive's SGEs, and packets behind it come into order.
const DATA: u32 = GRANTS + SGES + FOLLOW;
/// The receive of a failed placement is looked for. Each packet that is in its place looks for its receive, and for
/// receives that are complete: all together complete each once, each looks at one more.
const PLACED: u32 = GRANTS + WINDOW * (1 + GRANTS + 1) + COMPLETE_RECVS;

// Sends.
/// Each turn passes a WQE or takes a credit into account; the last one finds none.
const EXTEND_COVER: u32 = SEND_WQES + card::CREDITS_PER_QP + 1;
const SEEK: u32 = SEND_WQES + SGES;
/// Packets that were sent before and are not sent again.
const PASS: u32 = WINDOW;
/// The pieces are passed once; each packet finds its own.
const AGAIN_RANGE: u32 = 2 * WINDOW + PIECES;
const DROP_BLOCKS: u32 = BLOCKS;
const DROP_BLOCKS_FROM: u32 = BLOCKS + SEEK;
const SQUEEZE_BLOCKS: u32 = 2 * BLOCKS + SEEK;
/// Gaps between packets that are sent again, and the way to what was never sent.
const SEEKS: u32 = WINDOW + 1;
/// Each turn passes a gap, a WQE or an SGE, or asks for a block; the last one finds no tag or that it must wait.
const ASK_BLOCKS: u32 = SQUEEZE_BLOCKS
    + (SEEKS + SEND_WQES + SEND_SGES + BLOCKS + 1) * (1 + AGAIN_RANGE)
    + SEEKS * SEEK
    + (BLOCKS + 1) * TAG_ALLOC;
const RELEASE_SENT: u32 = BLOCKS;
const PACKET_LEFT: u32 = BLOCKS + RELEASE_SENT;
const COMPLETE_SENDS: u32 = SEND_WQES;
const BLOCK_FAILED: u32 = BLOCKS + COMPLETE_SENDS;
/// The last turn finds a WQE with bytes left, or the end.
const NEXT_PIECE: u32 = SEND_WQES + 1 + BLOCK_FAILED;
/// Its blocks are counted, then attached; inline data (of one element) and up to 3 bytes of pad are written.
const SEND_PACKET: u32 = PASS + NEXT_PIECE + (BLOCKS + 1) + BLOCK_FAILED + BLOCKS + wqe::MAX_INLINE as u32 + 3;
const GO_BACK: u32 = DROP_BLOCKS + WINDOW + PASS + SEEK;
const SEND_STEP: u32 = GO_BACK + COMPLETE_SENDS + EXTEND_COVER + ASK_BLOCKS + limits::BURST * (1 + SEND_PACKET);
const ACKNOWLEDGE: u32 = PIECES + COMPLETE_SENDS;
const SHRINK_COVER: u32 = EXTEND_COVER + DROP_BLOCKS_FROM;

// Connections.
const WIND_UP: u32 = DROP_BLOCKS + DROP_GRANTS + SEND_WQES + GRANTS;
/// Sizes of a list in a control message.
const TAKE_LIST: u32 = CONTROL_WORDS;
const HELD_STEP: u32 = HELD_LISTS * (1 + TAKE_LIST);
/// Each turn says one of the 16 things to be told; a list has up to `GRANTS` sizes.
const CTL_STEP: u32 = 16 + GRANTS;
const REQUEST_STEP: u32 = REQUESTS;
/// The event that a QP is destroyed answers the command, and forgets the QP's list.
const EVENT_STEP: u32 = HELD_LISTS + ANSWER;
/// Sizes are taken from the builder, or looked for among the receives; the words of the record are written.
const SEND_LIST: u32 = GRANTS + 3 + GRANTS;
/// Words of both rows of a QP that RTL gets.
const HAND_OVER: u32 = 14 + 8 + 8 + 7;
/// Words of a card's own addresses.
const NAME: u32 = 3;
/// Words of both rows that name the peer.
const RENAME: u32 = 14 + 8;
/// The range, for both rows.
const FAST_REVOKE: u32 = 4 + 4;
/// Records of a control message.
const RECORDS: u32 = CONTROL_WORDS - MESSAGE_HEADER as u32;

const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

impl<const QPS: usize, const PEERS: usize> Card<QPS, PEERS> {
    const QPS_STEPS: u32 = QPS as u32;
    const PEERS_STEPS: u32 = PEERS as u32;
    const DROP_CONNECTIONS: u32 = Self::QPS_STEPS + REQUESTS;
    const REVOKE_STEP: u32 = Self::QPS_STEPS * (1 + max(REVOKE_GRANTS, FAST_REVOKE)) + Self::QPS_STEPS + ANSWER;
    /// One of those that RTL has is recalled from, twice: all are asked whether they starve, and for credits. Or all but
    /// one let go of what they hold.
    const FAST_PRESSURE: u32 = 3 * Self::QPS_STEPS + 2 * Self::QPS_STEPS * (1 + FAST_REVOKE);
    /// All QPs are squeezed; one is recalled from, or the two that wait yield.
    const PRESSURE: u32 = Self::FAST_PRESSURE
        + Self::QPS_STEPS * (1 + SQUEEZE_GRANTS + SQUEEZE_BLOCKS + YIELD_GRANT)
        + RECALL
        + COMPLETE_SENDS
        + YIELD_GRANT;
    /// A list, the beginning of a connection, a RECALL, its answer, or the end of a connection.
    const TAKE_RECORD: u32 =
        max(max(max(TAKE_LIST, HAND_OVER), SHRINK_COVER), max(RECALLED, Self::QPS_STEPS + REQUESTS));
    /// The headers to a peer are new.
    const RENAMED: u32 = Self::QPS_STEPS * (1 + RENAME);
    /// The words are shifted, the peer is asked who it is, or may have moved or begun anew; the records are checked, then
    /// taken.
    const RX_CONTROL: u32 = CONTROL_WORDS
        + MESSAGE_HEADER as u32
        + Self::RENAMED
        + Self::DROP_CONNECTIONS
        + RECORDS
        + RECORDS * (1 + Self::TAKE_RECORD);

    /// Steps of [`Card::command`]: pressure, all peers forgotten, RTL told the card's name, and a new key, or the receives
    /// of one QP counted; and the answer.
    pub const COMMAND_STEPS: u32 = max(Self::PRESSURE, max(Self::PEERS_STEPS + NAME + NEW_KEY, GRANTS)) + ANSWER;
    /// Steps of [`Card::doorbell`].
    pub const DOORBELL_STEPS: u32 = 0;
    /// Steps of [`Card::rx`]: a control message, data, an acknowledgement, or an ARP message that changes headers.
    pub const RX_STEPS: u32 = max(max(Self::RX_CONTROL, DATA), max(ACKNOWLEDGE, Self::RENAMED));
    /// Steps of [`Card::tx_done`].
    pub const TX_DONE_STEPS: u32 = PACKET_LEFT;
    /// Steps of [`Card::dma_done`].
    pub const DMA_DONE_STEPS: u32 = PLACED;
    /// Steps of [`Card::xlt_rsp`].
    pub const XLT_RSP_STEPS: u32 = max(DROP_BLOCKS_FROM, LET_GO);
    /// Steps of [`Card::credit_list`].
    pub const CREDIT_LIST_STEPS: u32 = 0;
    /// Steps of [`Card::fast_event`].
    pub const FAST_EVENT_STEPS: u32 = 0;
    /// Steps of [`Card::timer`]: deadlines of all QPs, peers and requests, of which a peer's may have QPs that ask or
    /// end; pressure; the next deadline.
    pub const TIMER_STEPS: u32 = Self::QPS_STEPS
        + Self::PEERS_STEPS * (1 + Self::QPS_STEPS + max(Self::QPS_STEPS, Self::DROP_CONNECTIONS))
        + REQUESTS
        + Self::PRESSURE
        + Self::QPS_STEPS
        + Self::PEERS_STEPS
        + REQUESTS;
    /// Steps of [`Card::poll`]: one piece of each kind of work, and up to 4 acknowledgements and credit lists.
    pub const POLL_STEPS: u32 = FLUSH_ANSWERS
        + Self::REVOKE_STEP
        + HELD_STEP
        + PEER_STEP
        + 4 * (1 + SEND_LIST)
        + RECV_STEP
        + CTL_STEP
        + SEND_STEP
        + WIND_UP
        + EVENT_STEP
        + REQUEST_STEP;
}
