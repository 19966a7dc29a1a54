// SPDX-License-Identifier: GPL-2.0
//! Completions of datagrams, which the driver makes. A completion queue may have those of the card as well, which it writes
//! to the consumer's memory; verbs promise no order between queue pairs.
//!
//! The data of a datagram wait here in their frame until the completion is polled, by a thread that has the receive's memory.
//! So nothing is pinned.

use crate::{
    kernel::{
        net::skb::SkBuff,
        rdma::{
            handler::{CqHandler, QpHandler},
            work::{Completion, Done, Receive, Status},
        },
    },
    rdma::{
        packet::{self, Header},
        ring::Ring,
    },
};
use core::ops::Range;
use kernel::{
    prelude::*,
    sync::{new_spinlock_irq, Arc, SpinLockIrq},
};

/// A queue pair whose requests complete here.
pub(super) trait Owner: Send + Sync {
    /// As the core knows it.
    fn handler(&self) -> &Arc<QpHandler>;

    /// A send has its place back.
    fn send_polled(&self);

    /// A receive has its place back.
    fn receive_polled(&self);
}

/// A request that is done.
pub(super) struct Entry {
    pub(super) qp: Arc<dyn Owner>,
    pub(super) what: What,
    pub(super) status: Status,
}

/// Which request.
pub(super) enum What {
    /// A send, by its number.
    Sent(u64),
    /// A receive, and what it has got.
    Received(Receive, Option<Frame>),
}

/// A frame with a datagram.
pub(super) struct Frame {
    pub(super) skb: SkBuff,
    pub(super) header: Header,
    /// Where its data stand.
    pub(super) data: Range<usize>,
}

/// When the consumer is to be told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Next,
}

struct State {
    entries: Ring<Entry>,
    /// How many there may be.
    reserved: usize,
    armed: Armed,
}

/// Completions of a queue that the driver has made.
#[pin_data]
pub(crate) struct Completions {
    handler: Arc<CqHandler>,
    #[pin]
    state: SpinLockIrq<State>,
}

impl Completions {
    /// None, and room for none.
    pub(super) fn new(handler: Arc<CqHandler>) -> Result<Arc<Self>> {
        let entries = Ring::new(0)?;
        Arc::pin_init(
            pin_init!(Self {
                handler,
                state <- new_spinlock_irq!(State { entries, reserved: 0, armed: Armed::No }, "berth_completions"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes room for `more` than before: each request of a queue pair has a place here until its completion is polled.
    pub(super) fn reserve(&self, more: usize) -> Result {
        let wanted = {
            let mut state = self.state.lock();
            state.reserved += more;
            state.reserved
        };
        loop {
            let room = self.state.lock().entries.room();
            if room >= wanted {
                return Ok(());
            }
            let mut larger = Ring::new(wanted).inspect_err(|_| self.release(more))?;
            let mut state = self.state.lock();
            if state.entries.room() == room {
                while let Some(entry) = state.entries.pop() {
                    let _ = larger.push(entry);
                }
                core::mem::swap(&mut state.entries, &mut larger);
            }
            // The old memory is freed with interrupts on.
            drop(state);
        }
    }

    /// As many as that will not come any more.
    pub(super) fn release(&self, fewer: usize) {
        self.state.lock().reserved -= fewer;
    }

    /// No queue pair completes here any more.
    pub(super) fn end(&self) {
        loop {
            let Some(entry) = self.state.lock().entries.pop() else {
                break;
            };
            drop(entry);
        }
    }

    /// Adds a completion, and tells the consumer if it waits for that.
    pub(super) fn add(&self, entry: Entry) {
        let solicited = match &entry.what {
            What::Received(_, frame) => {
                entry.status != Status::Success
                    || frame.as_ref().is_some_and(|frame| frame.header.solicited)
            }
            What::Sent(_) => entry.status != Status::Success,
        };
        let refused = {
            let mut state = self.state.lock();
            let tells = match state.armed {
                Armed::No => false,
                Armed::Solicited => solicited,
                Armed::Next => true,
            };
            let refused = state.entries.push(entry).err();
            if tells {
                state.armed = Armed::No;
                drop(state);
                self.handler.completed();
            }
            refused
        };
        // There is room for all requests.
        debug_assert!(refused.is_none());
        drop(refused);
    }

    /// Forgets the completions of a queue pair.
    pub(super) fn forget(&self, qp: &Arc<QpHandler>) {
        let count = self.state.lock().entries.count();
        for _ in 0..count {
            let mut state = self.state.lock();
            let Some(entry) = state.entries.pop() else {
                break;
            };
            let entry = match Arc::ptr_eq(entry.qp.handler(), qp) {
                true => Some(entry),
                false => state.entries.push(entry).err(),
            };
            drop(state);
            // Freed with interrupts on.
            drop(entry);
        }
    }

    /// The next completion, its data at their place.
    pub(super) fn poll(&self) -> Option<Completion> {
        let entry = self.state.lock().entries.pop()?;
        let qp = entry.qp.handler().clone();
        let (wr_id, status, done) = match entry.what {
            What::Sent(wr_id) => {
                entry.qp.send_polled();
                (wr_id, entry.status, Done::Sent)
            }
            What::Received(receive, frame) => {
                entry.qp.receive_polled();
                let (status, done) = hand_over(&receive, frame, entry.status);
                (receive.wr_id, status, done)
            }
        };
        Some(Completion {
            qp,
            wr_id,
            status,
            done,
        })
    }

    /// Has the consumer told of the next completion, or the next `solicited` one; true if there are some already.
    pub(super) fn arm(&self, solicited: bool) -> bool {
        let mut state = self.state.lock();
        if !solicited {
            state.armed = Armed::Next;
        } else if state.armed == Armed::No {
            state.armed = Armed::Solicited;
        }
        state.entries.count() != 0
    }
}

/// Writes a datagram to its receive, which is long enough.
fn hand_over(receive: &Receive, frame: Option<Frame>, status: Status) -> (Status, Done) {
    let mut done = Done::Received {
        bytes: 0,
        qpn: 0,
        mac: [0; 6],
        immediate: None,
    };
    let Some(frame) = frame else {
        return (status, done);
    };
    let bytes = frame.skb.linear();
    let data = &bytes[frame.data];
    if receive.data.scatter(&[&packet::grh(bytes), data]).is_err() {
        return (Status::Protection, done);
    }
    done = Done::Received {
        bytes: (packet::GRH + data.len()) as u32,
        qpn: frame.header.from_qpn,
        mac: frame.header.from_mac,
        immediate: frame.header.immediate,
    };
    (status, done)
}
