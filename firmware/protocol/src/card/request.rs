// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests for a connection that wait for an answer, and answers that wait for room.

use crate::wire::records::{REC_DREQ, REC_REJ, record};
use berth_abi::status::REASON_PEER_CLOSE;

/// Words of the record that refuses a request; the one that ends a connection is shorter.
pub const REFUSAL_WORDS: usize = 11;

/// What the other end of a connection says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// Its QPN.
    pub qpn: u32,
    /// Its epoch.
    pub epoch: u32,
    /// Its first PSN.
    pub psn: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Credits that it stores.
    pub store: u32,
    /// Packets that it takes ahead of a missing one.
    pub window: u8,
    /// READ requests that it takes at a time.
    pub reads: u8,
    /// Message mode (CR-17).
    pub message: bool,
}

impl End {
    /// Nothing said yet.
    pub(super) const NONE: Self =
        Self { qpn: 0, epoch: 0, psn: 0, mtu: 0, store: 0, window: 0, reads: 0, message: false };
}

/// `Request::state`: no request.
pub const REQUEST_FREE: u8 = 0;
/// `Request::state`: the host is to be told.
pub const REQUEST_NEW: u8 = 1;
/// `Request::state`: the host has it.
pub const REQUEST_OFFERED: u8 = 2;
/// `Request::state`: the peer is to be told that it is refused.
pub const REQUEST_REFUSED: u8 = 3;
/// `Request::state`: the peer is to be told that its end (`end`) has no partner any more: an acceptance
/// that came too late (`service` 0), or a QP of ours that is gone (QPN in `service`, epoch in `end.psn`).
pub const REQUEST_STALE: u8 = 4;
/// `Request::state`: the peer is to be told that the host, which has it, is too late.
pub const REQUEST_LATE: u8 = 5;
/// `Request::state`: the host is to be told that what it has is over.
pub const REQUEST_OVER: u8 = 6;

/// A peer's request for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// `REQUEST_*`.
    pub state: u8,
    /// Peer (index + 1).
    pub peer: u8,
    /// Bytes of private data.
    pub private_len: u8,
    pub(super) reason: u8,
    /// When the host is too late with its answer.
    pub until: u64,
    pub(super) id: u32,
    pub(super) service: u32,
    /// The peer's QP.
    pub end: End,
    /// Private data.
    pub private: [u32; 8],
}

impl Request {
    /// No request.
    pub const FREE: Self = Self {
        state: REQUEST_FREE,
        peer: 0,
        private_len: 0,
        reason: 0,
        until: 0,
        id: 0,
        service: 0,
        end: End::NONE,
        private: [0; 8],
    };

    /// The request is refused for `reason`.
    pub fn refuse(&mut self, reason: u32) {
        self.state = REQUEST_REFUSED;
        self.reason = reason as u8;
    }

    /// No peer is left to answer: the place becomes free as soon as the host, if it has the request, has been told.
    pub(crate) fn over(&mut self) {
        let told = matches!(self.state, REQUEST_OFFERED | REQUEST_LATE | REQUEST_OVER);
        self.state = if told { REQUEST_OVER } else { REQUEST_FREE };
        self.peer = 0;
    }

    /// The host is to answer it.
    pub fn waits(&self) -> bool {
        matches!(self.state, REQUEST_NEW | REQUEST_OFFERED)
    }

    /// Says what the peer is to be told by `append`, which says whether there is room for it now.
    pub(super) fn say(&self, append: impl FnOnce(&[u32]) -> bool) -> bool {
        let end = self.end;
        if self.state == REQUEST_STALE {
            return append(&[record(REC_DREQ, 5, end.qpn), end.epoch, self.service, end.psn, REASON_PEER_CLOSE]);
        }
        let mut words = [0; REFUSAL_WORDS];
        words[0] = record(REC_REJ, REFUSAL_WORDS, end.qpn);
        words[1] = end.epoch;
        words[2] = self.reason as u32 | (self.private_len as u32) << 24;
        words[3..].copy_from_slice(&self.private);
        append(&words)
    }
}
