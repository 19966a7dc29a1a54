// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of one queue pair.

use super::hw::{Hw, Log};
use super::shared::Shared;
use crate::credit::recall::Recall;
use crate::rc::{NotReady, Tries, Woken};
use crate::wire::headers::Template;
use berth_abi::card::FIRST_QPN;

/// There is no such QP.
pub const FREE: u8 = 0;
/// Created, without connection.
pub const CREATED: u8 = 1;
/// On the way to a connection.
pub const CONNECTING: u8 = 2;
/// Connected.
pub const CONNECTED: u8 = 3;
/// In error: elements are flushed.
pub const ERROR: u8 = 4;
/// The connection is over: elements are flushed.
pub const CLOSED: u8 = 5;

/// `Qp::todo`: send a connection request.
pub const TODO_REQ: u16 = 1;
/// `Qp::todo`: accept the peer's request.
pub const TODO_REP: u16 = 2;
/// `Qp::todo`: confirm the peer's acceptance.
pub const TODO_RTU: u16 = 4;
/// `Qp::todo`: end the connection.
pub const TODO_DREQ: u16 = 8;
/// `Qp::todo`: say to the peer that the host has named it.
pub const TODO_BIND: u16 = 16;
/// `Qp::todo`: recall credits.
pub const TODO_RECALL: u16 = 32;
/// `Qp::todo`: answer the peer's recall.
pub const TODO_RECALLED: u16 = 64;
/// `Qp::todo`: memory that the peer waits for can be had.
pub const TODO_GO: u16 = 128;

/// `Qp::events`: the connection is there.
pub const EVENT_ESTABLISHED: u8 = 1;
/// `Qp::events`: the connection is over or did not come about.
pub const EVENT_CLOSED: u8 = 2;
/// `Qp::events`: the QP went into error.
pub const EVENT_ERROR: u8 = 4;
/// `Qp::events`: the command that destroys the QP is done.
pub const EVENT_DESTROYED: u8 = 8;

/// The sender's side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Send {
    /// Producer index of the host, before RTL has the QP.
    pub pi: u16,
    /// First PSN.
    pub psn: u32,
    /// Time-outs in a row.
    pub tries: Tries,
    /// When the QP is to be looked at; 0 never.
    pub deadline: u64,
}

/// The receiver's side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recv {
    /// Producer index of the host, before RTL has the QP.
    pub pi: u16,
    /// The peer's first PSN.
    pub psn: u32,
    /// Credits that are recalled.
    pub recall: Recall,
    /// What comes back is the program's.
    pub gives_back: bool,
}

/// Epochs of credit lists: the connection's epoch plus the number of recalls, because a credit's number may be reused
/// after a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lists {
    /// Of lists that come.
    pub epoch: u32,
    /// Of lists that go.
    pub peer_epoch: u32,
}

/// What a row waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// The time after which unacknowledged packets go again.
    Again,
    /// Acknowledgement of what went before a send that fails with this `WC_*`.
    Failure(u8),
}

/// Firmware's part of a QP whose rows RTL has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fast {
    /// RTL has the QP, until it is destroyed.
    pub on: bool,
    /// Packets that the peer takes ahead of the first one that is missing.
    pub window: u8,
    pub(super) due: Due,
    /// The policy of its lists has begun to measure.
    pub(super) measured: bool,
    /// Oldest unacknowledged PSN at the last time-out.
    pub(super) una: u32,
    /// The revocation under way has been told.
    pub(super) revoking: bool,
    /// Looks at the row that found it busy; they set the time until the next look.
    pub(super) looks: u8,
    /// Until when it asks for no receive memory, after a recall; 0: it may ask.
    pub rests_until: u64,
    /// Until when it waits for memory of the peer (PC-4), or for a receive of a foreign one; 0: it does not.
    pub waits_until: u64,
    /// A GO has come and no wait for it: the next PSN then. What it is for had left.
    pub(super) go: Option<u32>,
    /// Which packet waits.
    pub(super) held: u32,
    /// The wait that a GO ended last.
    pub(super) woken: Woken,
    /// How often a foreign peer had no receive.
    pub(super) rnr: NotReady,
}

impl Fast {
    /// Not RTL's.
    pub const NONE: Self = Self {
        on: false,
        window: 0,
        due: Due::Nothing,
        measured: false,
        una: 0,
        revoking: false,
        looks: 0,
        rests_until: 0,
        waits_until: 0,
        go: None,
        held: 0,
        woken: Woken::NONE,
        rnr: NotReady::NONE,
    };
}

/// A queue pair. All-zero when free.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Qp {
    /// `FREE` …
    pub state: u8,
    /// `REASON_*` in error or closed.
    pub reason: u8,
    /// Position in the card.
    pub idx: u16,
    /// Address space.
    pub asid: u8,
    /// Doorbell page.
    pub uar: u8,
    /// Peer (index + 1).
    pub peer: u8,
    /// Both ends are on this card.
    pub loopback: bool,
    /// The host destroys it.
    pub destroying: bool,
    /// The peer is told when the connection ends.
    pub tell_peer: bool,
    /// Message mode (CR-17).
    pub message: bool,
    /// The peer speaks plain RoCEv2, as the host says, and is told nothing.
    pub foreign: bool,
    /// The host has named its peer, a Berth.
    pub bound: bool,
    /// The peer of such a QP has ended it. Its own host hears that only when it sends, as of any other peer.
    pub gone: bool,
    /// Time that a foreign peer is to wait while there is no receive for it, as InfiniBand codes it.
    pub rnr_timer: u8,
    /// How often in a row a foreign peer may have no receive.
    pub rnr_retries: u8,
    /// `RIGHT_*` that no key gives the peer.
    pub denies: u8,
    /// READ requests that the host wants it to have under way.
    pub reads_wanted: u8,
    /// The host has named its peer and it receives, but the host has not yet said how it sends.
    pub receives_only: bool,
    /// READ requests that it may have under way: when the peer is known, no more than that takes.
    pub reads: u8,
    /// READ requests that the peer may have under way here.
    pub peer_reads: u8,
    /// `EVENT_*` for the host.
    pub events: u8,
    /// `TODO_*` for the peer.
    pub todo: u16,
    /// Cookie of the command that destroys it.
    pub cookie: u32,
    /// Depth of the send queue - 1.
    pub sq_mask: u16,
    /// Depth of the receive queue - 1.
    pub rq_mask: u16,
    /// CQN for sends.
    pub send_cqn: u16,
    /// CQN for receives.
    pub recv_cqn: u16,
    /// Trigger: `TRIGGER_*` in bits 7:0, index in bits 15:8.
    pub trigger: u32,
    /// Maximum bandwidth of what comes: rate and burst, as `QpCap` has them.
    pub cap: [u32; 2],
    /// Longest list.
    pub max_list: u32,
    /// How lists go: `CARRIER_*`.
    pub carrier: u8,
    /// Largest block in bytes.
    pub block: u32,
    /// Acknowledgement time-out in cycles.
    pub timeout: u32,
    /// Retries.
    pub retries: u8,
    /// Bus address of the send queue.
    pub sq_base: u64,
    /// Bus address of the receive queue.
    pub rq_base: u64,
    /// log2 of the connection's MTU.
    pub log2_mtu: u8,
    /// Peer's QPN.
    pub peer_qpn: u32,
    /// Epoch that the peer's records for this QP carry.
    pub epoch: u32,
    /// Epoch that records for the peer's QP carry.
    pub peer_epoch: u32,
    /// Epochs of credit lists.
    pub lists: Lists,
    /// What RTL has of it.
    pub fast: Fast,
    /// Number that answers a recall.
    pub kept: u32,
    /// Protection domain whose keys the peer may use; 0: none.
    pub domain: u16,
    /// PSN of the operation that the peer is to go on with.
    pub go: u32,
    /// Service that is asked for.
    pub service: u32,
    /// Bytes of private data.
    pub private_len: u8,
    /// Private data, to send or for the host.
    pub private: [u32; 8],
    /// Headers to the peer.
    pub template: Template,
    /// The sender's side.
    pub sq: Send,
    /// The receiver's side.
    pub rq: Recv,
}

impl Qp {
    /// Credit lists may come for it: the peer knows the epoch. If it has it from our REP, its RTU is on its way.
    pub(super) fn takes_lists(&self) -> bool {
        self.state == CONNECTED || (self.state == CONNECTING && self.peer_qpn != 0)
    }

    /// No QP.
    pub const FREE: Self = Self {
        state: FREE,
        reason: 0,
        idx: 0,
        asid: 0,
        uar: 0,
        peer: 0,
        loopback: false,
        destroying: false,
        tell_peer: false,
        message: false,
        foreign: false,
        bound: false,
        gone: false,
        rnr_timer: 0,
        rnr_retries: 0,
        denies: 0,
        reads_wanted: 0,
        receives_only: false,
        reads: 0,
        peer_reads: 0,
        events: 0,
        todo: 0,
        cookie: 0,
        sq_mask: 0,
        rq_mask: 0,
        send_cqn: 0,
        recv_cqn: 0,
        trigger: 0,
        cap: [0; 2],
        max_list: 0,
        carrier: 0,
        block: 0,
        timeout: 0,
        retries: 0,
        sq_base: 0,
        rq_base: 0,
        log2_mtu: 0,
        peer_qpn: 0,
        epoch: 0,
        peer_epoch: 0,
        lists: Lists { epoch: 0, peer_epoch: 0 },
        fast: Fast::NONE,
        kept: 0,
        domain: 0,
        go: 0,
        service: 0,
        private_len: 0,
        private: [0; 8],
        template: Template::EMPTY,
        sq: Send { pi: 0, psn: 0, tries: Tries::NONE, deadline: 0 },
        rq: Recv { pi: 0, psn: 0, recall: Recall::new(), gives_back: false },
    };

    /// Its QPN.
    pub fn qpn(&self) -> u32 {
        qpn(self.idx)
    }

    /// Its position among the QPs.
    pub fn at(&self) -> usize {
        self.idx as usize
    }

    /// Says something to the peer as soon as there is room.
    pub fn tell(&mut self, todo: u16, sh: &mut Shared) {
        self.todo |= todo;
        sh.ctl_work.add(self.at());
    }

    /// Says something to the host as soon as there is room.
    pub fn notify(&mut self, event: u8, sh: &mut Shared) {
        self.events |= event;
        sh.event_work.add(self.at());
    }

    /// It is to have a peer, of which nothing has been heard.
    pub fn is_asking(&self) -> bool {
        self.state == CONNECTING && if self.bound { self.peer_epoch == 0 } else { self.peer_qpn == 0 }
    }

    /// The connection is there: credits may flow.
    pub(super) fn connected<H: Hw>(&mut self, ip: u32, sh: &mut Shared, hw: &mut H) {
        hw.log(Log::Connected(self.qpn(), ip, self.peer_qpn));
        self.state = CONNECTED;
        (self.sq.deadline, self.sq.tries) = (0, Tries::NONE);
        self.tell_peer = !self.foreign;
        self.notify(EVENT_ESTABLISHED, sh);
    }
}

/// QPN of the QP at position `idx`.
pub const fn qpn(idx: u16) -> u32 {
    FIRST_QPN + idx as u32
}
