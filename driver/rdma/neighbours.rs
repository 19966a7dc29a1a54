// SPDX-License-Identifier: GPL-2.0
//! Which peers are Berths: with them reliable connections have credit lists, with all others they speak plain RoCE
//! (decision 39). A peer is asked by a management datagram before the first connection with it.

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

#[derive(Clone, Copy)]
struct Entry {
    name: Name,
    is_berth: bool,
    since: Instant<Monotonic>,
}

struct State {
    known: KVec<Entry>,
    /// The next entry that is forgotten for another one.
    oldest: usize,
    /// Who is being asked, and by which transaction.
    asked: Option<(Name, u64)>,
    transaction: u64,
}

/// What is known of peers.
#[pin_data]
pub(super) struct Neighbours {
    #[pin]
    state: SpinLockIrq<State>,
}

impl State {
    fn note(&mut self, name: Name, is_berth: bool) {
        let entry = Entry {
            name,
            is_berth,
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
            asked: None,
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
        (known.since.elapsed() < BELIEVED).then_some(known.is_berth)
    }

    /// The number of the question that a peer is asked now.
    pub(super) fn ask(&self, name: Name) -> u64 {
        let mut state = self.state.lock();
        state.transaction = state.transaction.wrapping_add(1);
        state.asked = Some((name, state.transaction));
        state.transaction
    }

    /// A peer has said something. True if it is to be answered.
    pub(super) fn said(&self, name: Name, said: Said, transaction: u64) -> bool {
        let mut state = self.state.lock();
        match said {
            // It may be anybody who writes another host's address into a frame: we ask as well when we want to know.
            Said::Asks => true,
            Said::Answers(is_berth) => {
                if state.asked == Some((name, transaction)) {
                    state.asked = None;
                    state.note(name, is_berth);
                }
                false
            }
        }
    }

    /// A peer has not answered.
    pub(super) fn is_silent(&self, name: Name) {
        self.state.lock().note(name, false);
    }
}
