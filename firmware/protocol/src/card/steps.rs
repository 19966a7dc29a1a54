// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Step bounds of the card's calls.
//!
//! What one call of [`Card`] may do is bounded as a whole, whatever peers and host have sent before: all turns of all
//! loops in all it comes to, nested ones included ([`super::shared::Shared::step`]). The bounds are put together here
//! from those of the parts, each a worst case of its own; no real call comes near the sum.

use super::Card;
use super::keys::{DROP_KEYS, DROP_LOOKS, KEY_WORDS};
use super::limits;
use crate::wire::records::{self, MESSAGE_HEADER};

const REQUESTS: u32 = limits::REQUESTS as u32;
/// Words of the key, and what else is stirred into it.
const NEW_KEY: u32 = 5;
const CONTROL_WORDS: u32 = records::CONTROL_WORDS as u32;

const FLUSH_ANSWERS: u32 = limits::ANSWERS as u32;
/// An answer has up to 13 result words.
const ANSWER: u32 = 13 + FLUSH_ANSWERS;
/// Its words are copied into the frame.
const PEER_STEP: u32 = (limits::CONTROL_WINDOW + limits::CONTROL_ANSWERS) as u32 * (1 + CONTROL_WORDS);
/// Each turn says one of the 16 things to be told.
const CTL_STEP: u32 = 16;
const REQUEST_STEP: u32 = REQUESTS;
/// Words of both rows of a QP that RTL gets: when it is connected, or ends without.
const HAND_OVER: u32 = 14 + 8 + 8 + 7;
/// Words of a card's own addresses.
const NAME: u32 = 3;
/// Words of both rows that name the peer.
const RENAME: u32 = 14 + 8;
/// The range, for both rows.
const REVOKE: u32 = 4 + 4;
/// Records of a control message.
const RECORDS: u32 = CONTROL_WORDS - MESSAGE_HEADER as u32;
/// The words of a credit list are shifted, and given to RTL; it may begin the connection.
const RX_LIST: u32 = CONTROL_WORDS + HAND_OVER + CONTROL_WORDS;

/// A key is loaded, stored, and stored again if it cannot be what was asked for.
const KEY: u32 = 7 * KEY_WORDS;
/// Places are looked at, and the keys of some ended.
const KEYS_STEP: u32 = DROP_LOOKS as u32 + DROP_KEYS as u32 * 2 * KEY_WORDS + ANSWER;

const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    const QPS_STEPS: u32 = QPS as u32;
    const PEERS_STEPS: u32 = PEERS as u32;
    const DROP_CONNECTIONS: u32 = Self::QPS_STEPS * (1 + HAND_OVER) + REQUESTS;
    const REVOKE_STEP: u32 = Self::QPS_STEPS * (1 + REVOKE) + Self::QPS_STEPS + ANSWER;
    /// All are asked whether they starve, and for credits; all but one release what they hold.
    const PRESSURE: u32 = 3 * Self::QPS_STEPS + Self::QPS_STEPS * (1 + REVOKE);
    /// The beginning of a connection, a RECALL, its answer, or the end of a connection.
    const TAKE_RECORD: u32 =
        max(max(HAND_OVER, max(RENAME, limits::CANCEL_LOOKS)), max(Self::DROP_CONNECTIONS, REQUESTS));
    /// The headers to a peer are new, or known for the first time.
    const RENAMED: u32 = Self::QPS_STEPS * (1 + max(RENAME, HAND_OVER));
    /// The words are shifted, the peer is asked who it is, or may have moved or begun anew; the records are checked, then
    /// taken.
    const RX_CONTROL: u32 = CONTROL_WORDS
        + MESSAGE_HEADER as u32
        + Self::RENAMED
        + Self::DROP_CONNECTIONS
        + RECORDS
        + RECORDS * (1 + Self::TAKE_RECORD);

    /// Steps of [`Card::command`]: pressure, or all peers forgotten, RTL told the card's name, and a new secret, or the end of
    /// a QP, or a key; and the answer.
    pub const COMMAND_STEPS: u32 =
        max(max(Self::PRESSURE, KEY), max(Self::PEERS_STEPS + NAME + NEW_KEY, HAND_OVER)) + ANSWER;
    /// Steps of [`Card::doorbell`].
    pub const DOORBELL_STEPS: u32 = HAND_OVER;
    /// Steps of [`Card::rx`]: a control message, a credit list, or an ARP message that changes headers.
    pub const RX_STEPS: u32 = max(Self::RX_CONTROL, max(RX_LIST, Self::RENAMED));
    /// Steps of [`Card::tx_done`].
    pub const TX_DONE_STEPS: u32 = 0;
    /// Steps of [`Card::fast_event`]: a BIND, or a SEND with invalidate.
    pub const FAST_EVENT_STEPS: u32 = KEY;
    /// Steps of [`Card::timer`]: deadlines of all QPs, peers and requests, of which a peer's may have QPs that ask or
    /// end; the next deadline.
    pub const TIMER_STEPS: u32 = Self::QPS_STEPS
        + Self::PEERS_STEPS * (1 + Self::QPS_STEPS + max(Self::QPS_STEPS, Self::DROP_CONNECTIONS))
        + REQUESTS
        + REQUESTS;
    /// Steps of [`Card::poll`]: one piece of each kind of work.
    pub const POLL_STEPS: u32 =
        FLUSH_ANSWERS + Self::REVOKE_STEP + KEYS_STEP + ANSWER + PEER_STEP + CTL_STEP + ANSWER + REQUEST_STEP;
}
