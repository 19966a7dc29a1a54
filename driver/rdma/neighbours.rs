// SPDX-License-Identifier: GPL-2.0
//! Which peers are Berths: with them reliable connections have credit lists, with all others they speak plain
//! RoCE. A peer is asked by a management datagram before the first connection with it.

use crate::rdma::mad::Said;
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, SpinLockIrq},
    time::{Delta, Instant, Monotonic},
};

/// How many are known at a time.
const MOST: usize = 64;
/// For how long it is believed what a peer is.
const BELIEVED: Delta = Delta::from_secs(60);

/// A peer: its IPv4 and MAC addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) ipv4: u32,
    pub(super) mac: [u8; 6],
}

/// What a peer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// It is being asked, by this transaction.
    Asked(u64),
    Berth,
    /// It has said that it is none, or nothing.
    Other,
}

#[derive(Clone, Copy)]
struct Entry {
    name: Name,
    what: What,
    since: Instant<Monotonic>,
}

struct State {
    known: KVec<Entry>,
    /// The next entry that is forgotten for another one.
    oldest: usize,
    transaction: u64,
}

/// What is known of peers.
#[pin_data]
pub(super) struct Neighbours {
    #[pin]
    state: SpinLockIrq<State>,
}

impl State {
    /// By which transaction a peer is being asked.
    fn asks(&self, name: Name) -> Option<u64> {
        match self.known.iter().find(|known| known.name == name)?.what {
            What::Asked(transaction) => Some(transaction),
            _ => None,
        }
    }

    fn note(&mut self, name: Name, what: What) {
        let entry = Entry {
            name,
            what,
            since: Instant::now(),
        };
        if let Some(known) = self.known.iter_mut().find(|known| known.name == name) {
            *known = entry;
        } else if self.known.len() < MOST {
            // There is room.
            let _ = self.known.push(entry, GFP_ATOMIC);
        } else {
            self.known[self.oldest] = entry;
            self.oldest = (self.oldest + 1) % MOST;
        }
    }
}

impl Neighbours {
    /// Nobody is known. `transaction` is what the first question has.
    pub(super) fn new(transaction: u64) -> Result<impl PinInit<Self>> {
        let known = KVec::with_capacity(MOST, GFP_KERNEL)?;
        let state = State {
            known,
            oldest: 0,
            transaction,
        };
        Ok(pin_init!(Self {
            state <- new_spinlock_irq!(state, "berth_neighbours"),
        }))
    }

    /// Whether a peer is a Berth; `None`: it is to be asked.
    pub(super) fn is_berth(&self, name: Name) -> Option<bool> {
        let state = self.state.lock();
        let known = state.known.iter().find(|known| known.name == name)?;
        let is_fresh = known.since.elapsed() < BELIEVED;
        (is_fresh && !matches!(known.what, What::Asked(_))).then_some(known.what == What::Berth)
    }

    /// The number of the question that a peer is asked now.
    pub(super) fn ask(&self, name: Name) -> u64 {
        let mut state = self.state.lock();
        let transaction = state.transaction.wrapping_add(1);
        state.transaction = transaction;
        state.note(name, What::Asked(transaction));
        transaction
    }

    /// A peer has said something. True if it is to be answered.
    pub(super) fn said(&self, name: Name, said: Said, transaction: u64) -> bool {
        let mut state = self.state.lock();
        match said {
            // It may be anybody who writes another host's address into a frame: we ask as well when we want to know.
            Said::Asks => true,
            Said::Answers(is_berth) => {
                let what = match is_berth {
                    true => What::Berth,
                    false => What::Other,
                };
                if state.asks(name) == Some(transaction) {
                    state.note(name, what);
                }
                false
            }
        }
    }

    /// A peer has not answered for long enough.
    pub(super) fn is_silent(&self, name: Name) {
        let mut state = self.state.lock();
        if state.asks(name).is_some() {
            state.note(name, What::Other);
        }
    }
}
