// SPDX-License-Identifier: GPL-2.0
//! Counters of the network device.

use crate::{
    abi::{
        counters::{
            C_RAW_BAD, C_RAW_NO_RECEIVE, C_RAW_NO_SLOT, C_RAW_RECEIVED, C_RAW_SENT, C_RAW_TOO_LONG,
        },
        host::HOST_COUNTERS,
    },
    card::regs::Regs,
    kernel::net::device::Stats,
};
use kernel::sync::atomic::{Atomic, Relaxed};

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// Frames given to the stack.
    RxPackets,
    /// Their bytes.
    RxBytes,
    /// Frames dropped for want of memory for the next one.
    RxNoMemory,
    /// Receives that the card could not fill.
    RxFailed,
    /// Frames sent.
    TxPackets,
    /// Their bytes.
    TxBytes,
    /// Frames of more parts than an element has, copied into one.
    TxCopied,
    /// Frames dropped for want of memory, or because they were too short or too long.
    TxDropped,
    /// Frames that the card could not send.
    TxFailed,
    /// Times that the queue was stopped because it was full.
    TxStopped,
    /// Completions that make no sense.
    BadCompletions,
    /// Times that the rings were made.
    Opened,
}

/// The driver's names for `ethtool -S`, in the order of [`Count`], and the card's behind them.
pub(crate) const NAMES: &[&str] = &[
    "rx_packets",
    "rx_bytes",
    "rx_no_memory",
    "rx_failed",
    "tx_packets",
    "tx_bytes",
    "tx_copied",
    "tx_dropped",
    "tx_failed",
    "tx_stopped",
    "bad_completions",
    "opened",
    "card_raw_sent",
    "card_raw_received",
    "card_raw_bad",
    "card_raw_no_receive",
    "card_raw_too_long",
    "card_raw_no_slot",
];

/// The card's counters, of all raw queues.
const OF_CARD: [u32; 6] = [
    C_RAW_SENT,
    C_RAW_RECEIVED,
    C_RAW_BAD,
    C_RAW_NO_RECEIVE,
    C_RAW_TOO_LONG,
    C_RAW_NO_SLOT,
];
const OF_DRIVER: usize = NAMES.len() - OF_CARD.len();
const _: () = assert!(Count::Opened as usize + 1 == OF_DRIVER);

/// The driver's counters.
pub(crate) struct Counts([Atomic<u64>; OF_DRIVER]);

impl Counts {
    pub(crate) fn new() -> Self {
        Self([const { Atomic::new(0) }; OF_DRIVER])
    }

    /// Adds `n`.
    pub(crate) fn add(&self, count: Count, n: u64) {
        self.0[count as usize].add(n, Relaxed);
    }

    fn get(&self, count: Count) -> u64 {
        self.0[count as usize].load(Relaxed)
    }

    /// What the stack wants to know. The card's counters are not part of it, as they begin anew with each reset.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            rx_packets: self.get(Count::RxPackets),
            rx_bytes: self.get(Count::RxBytes),
            rx_dropped: self.get(Count::RxNoMemory),
            rx_errors: self.get(Count::RxFailed),
            tx_packets: self.get(Count::TxPackets),
            tx_bytes: self.get(Count::TxBytes),
            tx_dropped: self.get(Count::TxDropped),
            tx_errors: self.get(Count::TxFailed),
        }
    }

    /// The values to [`NAMES`].
    pub(crate) fn all(&self, regs: &Regs, values: &mut [u64]) {
        let own = self.0.iter().map(|value| value.load(Relaxed));
        let card = OF_CARD
            .iter()
            .map(|index| regs.read64(HOST_COUNTERS + 8 * index));
        for (place, value) in values.iter_mut().zip(own.chain(card)) {
            *place = value;
        }
    }
}
