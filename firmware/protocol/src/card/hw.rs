// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the protocol wants from the card: the engines, as one trait. On the card it is
//! register writes, in tests the software model.

use berth_abi::cpu::{CqAttr, DbCfg, TxSend};

use crate::wire::headers::Mac;

/// `Hw::tx_send`: loop the frame back into the receiver.
pub const TX_LOOPBACK: u32 = TxSend { length: 0, raw: 0, loopback: 1, slot: 0 }.word();
/// `Hw::tx_send`: append no iCRC (the frame is not RoCE).
pub const TX_NO_ICRC: u32 = TxSend { length: 0, raw: 1, loopback: 0, slot: 0 }.word();

/// Something worth a line in the log. Fields are numbers only: text is made on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Own name in the network: IPv4 address, MTU.
    NetConfig(u32, u32),
    /// QP connected: QPN, peer's IPv4 address, peer's QPN.
    Connected(u32, u32, u32),
    /// Connection over: QPN, `REASON_*`.
    Closed(u32, u32),
    /// QP in error: QPN, `REASON_*`.
    QpError(u32, u32),
    /// A peer does not answer: its IPv4 address.
    PeerLost(u32),
    /// Another host has our IPv4 address: its MAC address.
    AddressConflict(Mac),
    /// A peer has been restarted: its IPv4 address.
    PeerRestarted(u32),
    /// After a time-out a QP goes back to a packet: QPN, PSN.
    Resend(u32, u32),
    /// Credits are recalled: QPN, how many.
    Recall(u32, u32),
    /// A credit list was refused: QPN, `LIST_*`.
    ListRefused(u32, u32),
}

/// The engines. All calls return at once, in the order of their effects; what takes time is
/// reported later through the entry points of [`crate::Card`]. Packet RAM is addressed by
/// slot and 32-bit word; words are little-endian images of the bytes.
pub trait Hw {
    /// Writes words of transmit slot `slot` from word `word` on.
    fn tx_write(&mut self, slot: u32, word: u32, data: &[u32]);
    /// Queues transmit slot `slot`: `len` bytes without iCRC, flags `TX_*`. Comes back as `tx_done`.
    fn tx_send(&mut self, slot: u32, len: u32, flags: u32);
    /// Reads words of receive slot `slot` from word `word` on.
    fn rx_read(&mut self, slot: u32, word: u32, out: &mut [u32]);
    /// Gives receive slot `slot` back to the receiver.
    fn rx_free(&mut self, slot: u32);

    /// Free entries of the host's event ring.
    fn event_space(&mut self) -> u32;
    /// Writes an event. Call only with space.
    fn event(&mut self, words: &[u32; 16]);
    /// Configures CQ `cqn`.
    fn cq_config(&mut self, cqn: u32, base: u64, attr: CqAttr);
    /// Configures the doorbell row of `qpn`. A row that is given to the fast path says there first what has been posted
    /// so far, and is no doorbell for firmware any more.
    fn doorbell_config(&mut self, qpn: u32, cfg: DbCfg);

    /// Writes word `word` of QP `qpn`'s row in half `half` of the fast path (`FAST_*`); a command ends before this returns.
    fn fast_write(&mut self, half: u32, qpn: u32, word: u32, value: u32);
    /// Reads word `word` of QP `qpn`'s row in half `half` of the fast path.
    fn fast_read(&mut self, half: u32, qpn: u32, word: u32) -> u32;

    /// Makes, changes or ends a raw queue, or sets a filter (`RAW_GO_*`), as the words say.
    fn raw_set(&mut self, go: u32, words: &[u32; 6]);
    /// Raw queues that exist or have DMA under way, a bit each.
    fn raw_busy(&mut self) -> u32;

    /// Arms the card's timer for `deadline` in cycles, instead of an earlier arming. Comes back as `timer`.
    fn timer_arm(&mut self, deadline: u64);
    /// Disarms the card's timer.
    fn timer_off(&mut self);

    /// Adds `n` to firmware counter `index` (`F_*`).
    fn count(&mut self, index: u32, n: u32);
    /// Writes a log line.
    fn log(&mut self, line: Log);
    /// `CMD_CRASH`: `CRASH_PANIC`, `CRASH_LOOP`. A model may do nothing.
    fn crash(&mut self, kind: u32);
}
