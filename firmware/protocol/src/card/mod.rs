// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What firmware does: the card, as the engines and the driver see it.
//!
//! Here is what the card knows. [`hw::Hw`] is what it wants of the engines, [`limits`] are sizes and times, `shared` is
//! what all QPs and peers have in common. `control` carries records to a peer, `request` asks for a connection, `peers`
//! are all ends. RTL has `raw` queues, the table of `keys`, and the [`rows`] of a connected QP (`qp`) until its `end`; `reports` are what it
//! leaves to firmware, `lists` when credit lists go.
//!
//! Entry points, each bounded by `steps`: `command` of the driver, `rx` for frames (those that begin and end connections
//! are for `connect`), `reports`, and `work` for what is left. `pressure` decides who releases memory when it is short.

mod command;
mod connect;
mod control;
mod end;
pub mod hw;
mod keys;
pub mod limits;
mod lists;
mod peers;
mod pressure;
mod qp;
mod raw;
mod reports;
mod request;
pub mod rows;
mod rx;
mod shared;
mod steps;
mod work;

use crate::credit::policy::Policy;
use berth_abi::card::FIRST_QPN;
use control::Peer;
use keys::Index;
use limits::{REQUESTS, SERVICES};
use qp::{CREATED, FREE, Qp};
use request::Request;
use shared::Shared;

/// A revocation that is under way (`CMD_RANGE_REVOKED`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Revocation {
    pub(crate) active: bool,
    pub(crate) asid: u8,
    pub(crate) cookie: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Everything that firmware knows. All-zero when new, so that it lies in `.bss`.
/// `QPS`: data QPs (at most `NUM_QPS`; QPNs from `FIRST_QPN`), `PEERS`: end nodes it talks to at a time (at most `NUM_PEERS`), `KEYS`: keys
/// that peers can be given.
///
/// Each call is bounded as a whole, whatever came before: [`Card::POLL_STEPS`] and the like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Card<
    const QPS: usize = { berth_abi::card::NUM_QPS as usize },
    const PEERS: usize = { berth_abi::card::NUM_PEERS as usize },
    const KEYS: usize = { berth_abi::card::NUM_KEYS as usize },
> {
    pub(crate) qps: [Qp; QPS],
    /// Of the QPs whose lists go by what is measured.
    pub(crate) policies: [Policy; QPS],
    pub(crate) peers: [Peer; PEERS],
    pub(crate) requests: [Request; REQUESTS],
    pub(crate) services: [u16; SERVICES],
    pub(crate) revocation: Revocation,
    pub(crate) keys: Index<KEYS>,
    pub(crate) raw: raw::Queues,
    pub(crate) sh: Shared,
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Card<QPS, PEERS, KEYS> {
    /// A card without name, QPs or peers.
    pub const fn new() -> Self {
        assert!(QPS <= berth_abi::card::NUM_QPS as usize && PEERS <= berth_abi::card::NUM_PEERS as usize);
        Self {
            qps: [const { Qp::FREE }; QPS],
            policies: [const { Policy::NONE }; QPS],
            peers: [const { Peer::FREE }; PEERS],
            requests: [Request::FREE; REQUESTS],
            services: [0; SERVICES],
            revocation: Revocation { active: false, asid: 0, cookie: 0, start: 0, end: 0 },
            keys: Index::new(),
            raw: raw::Queues::new(),
            sh: Shared::new(),
        }
    }

    /// Whether [`Card::command`] may be given a firmware command now; else leave it in the FIFO.
    pub fn command_ready(&self) -> bool {
        !self.revocation.active && !self.keys.drops() && self.sh.answer_room()
    }

    /// Whether [`Card::poll`] has something to tell the host, which further frames need not delay.
    pub fn has_news(&self) -> bool {
        !self.sh.event_work.is_empty() || self.sh.request_work
    }

    /// Position of a QPN.
    pub(crate) fn index(qpn: u32) -> Option<usize> {
        let idx = qpn.wrapping_sub(FIRST_QPN) as usize;
        (idx < QPS).then_some(idx)
    }

    /// QP `qpn`, if it exists.
    pub(crate) fn qp(&mut self, qpn: u32) -> Option<(&mut Qp, &mut Shared)> {
        let qp = self.qps.get_mut(Self::index(qpn)?)?;
        (qp.state != FREE).then_some((qp, &mut self.sh))
    }

    /// QPN's state for tests and diagnosis: `FREE` ….
    pub fn state_of(&self, qpn: u32) -> u8 {
        Self::index(qpn).and_then(|i| self.qps.get(i)).map_or(FREE, |qp| qp.state)
    }

    /// Keys that there are.
    pub fn keys_in_use(&self) -> usize {
        self.keys.in_use()
    }

    /// QPs that are not free.
    pub fn qps_in_use(&self) -> usize {
        self.qps.iter().filter(|qp| qp.state >= CREATED).count()
    }
}

impl<const QPS: usize, const PEERS: usize, const KEYS: usize> Default for Card<QPS, PEERS, KEYS> {
    fn default() -> Self {
        Self::new()
    }
}
