// SPDX-License-Identifier: GPL-2.0
//! Module parameters: their ranges, and which one holds when two contradict each other.

use crate::{
    abi::card::{MAX_WAYS, NUM_ASIDS, XLT_ROWS},
    card::PAGE,
};
use kernel::prelude::*;

/// Entries of the largest translation table.
const MOST_ENTRIES: u64 = XLT_ROWS as u64 * MAX_WAYS as u64;
/// Queue pairs, and completion queues, of the largest card.
const MOST_QUEUES: u64 = 0xffff;
/// A day in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// The parameters as they were given.
#[derive(Clone, Copy)]
pub(crate) struct Params {
    /// Milliseconds that unused pages stay pinned.
    pub(crate) linger_ms: u32,
    /// Bytes that one card may have pinned.
    pub(crate) card_budget: u64,
    /// Bytes that one process may have pinned.
    pub(crate) process_budget: u64,
    /// Bytes that one card may have copied for sending.
    pub(crate) copy_pool: u64,
    /// Queue pairs of one process.
    pub(crate) max_process_qps: u32,
    /// Completion queues of one process.
    pub(crate) max_process_cqs: u32,
    /// Contexts of one process.
    pub(crate) max_process_contexts: u32,
    /// Milliseconds in which firmware may be lost eight times.
    pub(crate) loss_window_ms: u32,
    /// Whether the card is a network device as well.
    pub(crate) network_device: u32,
}

impl Params {
    /// Refuses values that cannot work, by name, and logs the value that is used where one is
    /// adjusted. What a card has less room for than is allowed here is its own to limit.
    ///
    /// # Errors
    ///
    /// `EINVAL` one of them is out of range.
    pub(crate) fn check(&self) -> Result {
        let budget = (PAGE, MOST_ENTRIES * PAGE);
        let all = [
            ("linger_ms", u64::from(self.linger_ms), (0, DAY_MS)),
            ("card_budget", self.card_budget, budget),
            ("process_budget", self.process_budget, budget),
            ("copy_pool", self.copy_pool, (0, MOST_ENTRIES * PAGE)),
            (
                "max_process_qps",
                u64::from(self.max_process_qps),
                (1, MOST_QUEUES),
            ),
            (
                "max_process_cqs",
                u64::from(self.max_process_cqs),
                (1, MOST_QUEUES),
            ),
            (
                "max_process_contexts",
                u64::from(self.max_process_contexts),
                (1, u64::from(NUM_ASIDS) - 1),
            ),
            (
                "loss_window_ms",
                u64::from(self.loss_window_ms),
                (1, DAY_MS),
            ),
            ("network_device", u64::from(self.network_device), (0, 1)),
        ];
        let mut good = true;
        for (name, value, (least, most)) in all {
            if !(least..=most).contains(&value) {
                pr_err!(
                    "parameter {}={} is out of range: it may be {} to {}\n",
                    name,
                    value,
                    least,
                    most
                );
                good = false;
            }
        }
        if !good {
            return Err(EINVAL);
        }
        for (name, value) in [
            ("card_budget", self.card_budget),
            ("process_budget", self.process_budget),
            ("copy_pool", self.copy_pool),
        ] {
            if value % PAGE != 0 {
                pr_warn!(
                    "parameter {}={} is not of whole pages: {} holds\n",
                    name,
                    value,
                    value / PAGE * PAGE
                );
            }
        }
        if self.process_budget > self.card_budget {
            pr_warn!(
                "parameter process_budget={} is more than card_budget={}, which holds for both\n",
                self.process_budget,
                self.card_budget / PAGE * PAGE
            );
        }
        Ok(())
    }

    /// The card's budget in pages.
    pub(crate) fn card_pages(&self) -> u64 {
        self.card_budget / PAGE
    }

    /// Pages that one card may have for copies.
    pub(crate) fn copy_pages(&self) -> u64 {
        self.copy_pool / PAGE
    }

    /// A process's budget in pages; the card's, which may change, holds as well.
    pub(crate) fn process_pages(&self) -> u64 {
        self.process_budget / PAGE
    }
}
