// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State of one queue pair.

use crate::bound::at_most;
use crate::fast::Fast;
use crate::headers::Template;
use crate::hw::{Hw, Log};
use crate::limits::{BLOCKS, GRANTS, PIECES, RECV_SGES, SEND_SGES, SEND_WQES, WINDOW};
use crate::rc::{Arrival, Psn, Window};
use crate::ring::Ring;
use crate::shared::Shared;
use berth_abi::card::FIRST_QPN;
use berth_abi::status;
use berth_abi::wqe::{MAX_INLINE, MAX_MESSAGE, MAX_SGE, SEND_INLINE};

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
/// `Qp::todo`: a credit list may be ready.
pub const TODO_LIST: u16 = 16;
/// `Qp::todo`: recall credits.
pub const TODO_RECALL: u16 = 32;
/// `Qp::todo`: answer the peer's recall.
pub const TODO_RECALLED: u16 = 64;

/// `Qp::events`: the connection is there.
pub const EVENT_ESTABLISHED: u8 = 1;
/// `Qp::events`: the connection is over or did not come about.
pub const EVENT_CLOSED: u8 = 2;
/// `Qp::events`: the QP went into error.
pub const EVENT_ERROR: u8 = 4;
/// `Qp::events`: the command that destroys the QP is done.
pub const EVENT_DESTROYED: u8 = 8;

/// Bytes of an inline element's data that stand in one [`Range`].
pub const INLINE_PART: usize = 12;
/// `Block::tag`: the block's bytes are data of an inline element, not memory; its address is the element's first context (bits 23:8)
/// and the first byte (bits 7:0).
pub const TAG_INLINE: u16 = u16::MAX;

/// One range of virtual memory, or `INLINE_PART` bytes of an inline element's data (in address and length).
#[derive(Clone, Copy)]
pub struct Range {
    /// Virtual address.
    pub va: u64,
    /// Bytes, not 0.
    pub len: u32,
    /// Translation tag while one is asked for (receives).
    pub tag: u16,
}

impl Range {
    const ZERO: Self = Self { va: 0, len: 0, tag: 0 };

    /// Byte `at` of the part of inline data that it is.
    pub fn inline_byte(&self, at: usize) -> u8 {
        let shift = 8 * (at as u32 & 7);
        if at < 8 { (self.va >> shift) as u8 } else { (self.len >> (shift & 31)) as u8 }
    }
}

/// A send WQE, snapshotted: its contexts' list is a part of the stream.
#[derive(Clone, Copy)]
pub struct SendWqe {
    /// Stream offset of its first byte.
    pub start: u64,
    /// The caller's own.
    pub wr_id: u64,
    /// Bytes.
    pub len: u32,
    /// First context.
    pub sge: u16,
    /// Contexts.
    pub sges: u8,
    /// `SEND_*`.
    pub flags: u8,
    /// `WC_*`: not 0, it fails when its turn comes.
    pub status: u8,
}

impl SendWqe {
    /// Stream offset after its last byte.
    pub fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Its contexts are its data.
    pub fn is_inline(&self) -> bool {
        self.flags & SEND_INLINE != 0
    }
}

/// Entry of the piece log: what went against one credit (decision 2).
#[derive(Clone, Copy)]
pub struct Piece {
    /// Stream offset of its first byte.
    pub start: u64,
    /// PSN of its first packet.
    pub psn: u32,
    /// Bytes, not 0.
    pub len: u32,
    /// Credit number: the log is the credit's record until the acknowledgement (decision 2).
    #[allow(dead_code)]
    pub credit: u32,
    /// WQE that it is cut from.
    pub wqe: u16,
}

/// State of a block: free, or failed with the WQE's status.
pub const BLOCK_FAILED: u8 = 0;
/// State of a block: RTL has not yet said hit or miss.
pub const BLOCK_PROBING: u8 = 1;
/// State of a block: the host has been asked.
pub const BLOCK_WAITING: u8 = 2;
/// State of a block: its pages are in use.
pub const BLOCK_HELD: u8 = 3;

/// A part of one context whose pages are asked for, or held, for sending (VC-2).
#[derive(Clone, Copy)]
pub struct Block {
    /// Virtual address.
    pub va: u64,
    /// Stream offset of its first byte.
    pub start: u64,
    /// Bytes.
    pub len: u32,
    /// Translation tag.
    pub tag: u16,
    /// `BLOCK_*`.
    pub state: u8,
    /// Packets that are being sent from it.
    pub flying: u8,
}

impl Block {
    /// Where its bytes begin, if they are inline data: first context of the element, byte.
    pub fn inline_at(&self) -> Option<(u16, usize)> {
        (self.tag == TAG_INLINE && self.state == BLOCK_HELD).then_some(((self.va >> 8) as u16, self.va as usize & 0xff))
    }

    /// Its pages are in use.
    pub fn holds_memory(&self) -> bool {
        self.state == BLOCK_HELD && self.tag != TAG_INLINE
    }
}

/// The sender's side.
pub struct Send {
    /// Producer index of the host.
    pub pi: u16,
    /// WQEs snapshotted (index of the next one to fetch).
    pub fetched: u16,
    /// A WQE is being fetched.
    pub fetching: bool,
    /// Oldest WQE that is not complete.
    pub head: u16,
    /// WQE that the next new piece is cut from.
    pub cut_wqe: u16,
    /// WQE in which the credits' cover ends.
    pub cover_wqe: u16,
    /// Context after the last one in use.
    pub sge_tail: u16,
    /// Piece log: oldest entry.
    pub piece_head: u16,
    /// Piece log: next free entry.
    pub piece_tail: u16,
    /// Piece that the next packet is cut from; `piece_tail`: a new one.
    pub piece: u16,
    /// Bytes of that piece that are sent.
    pub piece_off: u32,
    /// Blocks: oldest.
    pub block_head: u16,
    /// Blocks: next free.
    pub block_tail: u16,
    /// Block that holds `pos`.
    pub block: u16,
    /// WQE in which the next block begins.
    pub ask_wqe: u16,
    /// Context of it.
    pub ask_sge: u8,
    /// Byte of it.
    pub ask_off: u32,
    /// Stream offset where the next block begins.
    pub ask_pos: u64,
    /// Stream offset up to which credits cover the WQEs.
    pub cover_pos: u64,
    /// Credits that make this cover and are not used.
    pub cover_credits: u32,
    /// There may be credits beyond the cover.
    pub cover_more: bool,
    /// Stream offset of the next packet.
    pub pos: u64,
    /// Stream offset of the next new piece.
    pub cut_pos: u64,
    /// Stream offset that was never sent.
    pub high: u64,
    /// Stream offset up to which all is acknowledged.
    pub acked: u64,
    /// Stream offset after the last WQE snapshotted.
    pub stream_end: u64,
    /// Bytes posted, as the doorbell said.
    pub bytes_posted: u32,
    /// PSN of the next packet.
    pub next: u32,
    /// Packets that are not acknowledged.
    pub window: Window<24, { WINDOW as usize }, u32>,
    /// Packets before the window's end that are sent in this pass, by PSN modulo `WINDOW`.
    pub again: u32,
    /// Packets since the last request for an acknowledgement.
    pub since_ack: u32,
    /// Go back to `una` when nothing is in the engines.
    pub rewind: bool,
    /// The budget is short: ask for one block at a time.
    pub serial: bool,
    /// Times that the budget was short and nothing else was held.
    pub squeezed: u8,
    /// Packets in the transmitter.
    pub flying: u8,
    /// Blocks that RTL has not answered.
    pub probing: u8,
    /// Time-outs in a row.
    pub tries: u32,
    /// DMA failures in a row.
    pub dma_tries: u8,
    /// Acknowledgement time-out; 0 none.
    pub deadline: u64,
    /// `WC_*` of the oldest WQE when the QP goes into error.
    pub head_status: u8,
    /// The host's memory of the queue cannot be read.
    pub dead: bool,
    /// WQEs.
    pub wqes: Ring<SendWqe, SEND_WQES>,
    /// Contexts.
    pub sges: Ring<Range, SEND_SGES>,
    /// Piece log.
    pub pieces: Ring<Piece, PIECES>,
    /// Blocks.
    pub blocks: Ring<Block, BLOCKS>,
}

/// State of a receive: to be acquired.
pub const GRANT_NEW: u8 = 0;
/// State of a receive: SGEs are asked for.
pub const GRANT_ASKING: u8 = 1;
/// State of a receive: all is pinned.
pub const GRANT_READY: u8 = 2;
/// State of a receive: it is a credit.
pub const GRANT_POSTED: u8 = 3;
/// State of a receive: full, or the piece is over.
pub const GRANT_DONE: u8 = 4;
/// State of a receive: completes with `status` when its turn comes (0: zero length).
pub const GRANT_LOCAL: u8 = 5;

/// A receive.
#[derive(Clone, Copy)]
pub struct Grant {
    /// The caller's own.
    pub wr_id: u64,
    /// Bytes.
    pub len: u32,
    /// Credit number.
    pub credit: u32,
    /// Bytes placed or being placed.
    pub filled: u32,
    /// Bytes remaining (CR-9).
    pub remaining: u32,
    /// First SGE.
    pub sge: u16,
    /// SGEs.
    pub sges: u8,
    /// `GRANT_*`.
    pub state: u8,
    /// `WC_*`.
    pub status: u8,
    /// SGEs that are held.
    pub held: u8,
    /// SGEs that RTL has not answered.
    pub probing: u8,
    /// SGEs that the host is asked for.
    pub waiting: u8,
    /// Memory was revoked while it was asked for.
    pub stale: bool,
    /// Memory was withdrawn after it was announced.
    pub withdrawn: bool,
    /// PUSH.
    pub push: bool,
}

/// A recall: nothing going on.
pub const RECALL_NONE: u8 = 0;
/// A recall: credits are being recalled, no list may be sent.
pub const RECALL_OUT: u8 = 1;

/// `Record::flags`: a piece begins.
pub const RECORD_FIRST: u8 = 1;
/// `Record::flags`: a piece ends.
pub const RECORD_LAST: u8 = 2;
/// `Record::flags`: PUSH.
pub const RECORD_PUSH: u8 = 4;
/// `Record::flags`: the sender wants an acknowledgement.
pub const RECORD_ACK: u8 = 8;

/// What is kept of a data packet until its turn has come.
#[derive(Clone, Copy)]
pub struct Record {
    /// `RECORD_*`.
    pub flags: u8,
    /// Low byte of the credit's number.
    pub credit: u8,
    /// Bytes.
    pub len: u16,
    /// Packet of its piece.
    pub index: u32,
    /// Bytes remaining (CR-9), with `last`.
    pub remaining: u32,
}

/// The receiver's side. Grants are indexed as the receive queue.
pub struct Recv {
    /// Producer index of the host.
    pub pi: u16,
    /// Receives snapshotted.
    pub fetched: u16,
    /// A receive is being fetched.
    pub fetching: bool,
    /// Oldest receive that is not complete.
    pub head: u16,
    /// Next receive to acquire.
    pub ask: u16,
    /// Next receive to become a credit.
    pub post: u16,
    /// End of the batch that is being granted (decision 5).
    pub batch: u16,
    /// Credits that are posted and not committed.
    pub uncommitted: bool,
    /// The budget is short: announce what there is.
    pub pressure: bool,
    /// The budget is short: ask for one receive at a time.
    pub serial: bool,
    /// Times that the budget was short and nothing else was held.
    pub squeezed: u8,
    /// Next receive that a piece lands in.
    pub land: u16,
    /// A piece is being received.
    pub in_piece: bool,
    /// Packets of that piece.
    pub index: u32,
    /// SGE after the last one in use.
    pub sge_tail: u16,
    /// Next PSN in order.
    pub psn: u32,
    /// Packets that have arrived, and that are placed: what is below is acknowledged.
    pub arrival: Arrival<24, { WINDOW as usize }, u32>,
    /// What is kept of those.
    pub records: Ring<Record, { WINDOW as usize }>,
    /// Message sequence number.
    pub msn: u32,
    /// Packets placed since the last acknowledgement.
    pub unacked: u32,
    /// An acknowledgement is due.
    pub ack_due: bool,
    /// A NAK is due (AETH syndrome).
    pub nak_due: u8,
    /// A NAK has been sent for this gap.
    pub nak_sent: bool,
    /// PSN of the last packet out of sequence.
    pub nak_psn: u32,
    /// SGEs that RTL has not answered.
    pub probing: u16,
    /// `RECALL_*`.
    pub recall: u8,
    /// Credits to recall.
    pub recall_n: u32,
    /// Recalls since data last landed.
    pub recalls: u8,
    /// What is being recalled fills the budget for which a send waits: it is over budget.
    pub too_large: bool,
    /// Credits announced and not landed.
    pub outstanding: u32,
    /// Slots that are being placed.
    pub placing: u8,
    /// The host's memory of the queue cannot be read.
    pub dead: bool,
    /// Receives completed.
    pub completed: u32,
    /// Receives.
    pub grants: Ring<Grant, GRANTS>,
    /// SGEs.
    pub sges: Ring<Range, RECV_SGES>,
}

/// Credit lists that go and come as datagrams.
#[derive(Clone, Copy)]
pub struct Lists {
    /// Both ends can take them so.
    pub datagrams: bool,
    /// The builder may have one.
    pub ready: bool,
    /// The last one is due again.
    pub repeat: bool,
    /// Credits of the last one, whose proof (CR-11) has not come; 0: it has.
    pub len: u8,
    /// Times that it was told again.
    pub tries: u8,
    /// Its first credit.
    pub first: u32,
    /// When it is due again; 0 never.
    pub again: u64,
    /// Epoch of lists that come: the connection's and how often the peer has recalled, since a credit's number may be
    /// given again after that.
    pub epoch: u32,
    /// Epoch of lists that go.
    pub peer_epoch: u32,
}

impl Lists {
    const NONE: Self = Self {
        datagrams: false,
        ready: false,
        repeat: false,
        len: 0,
        tries: 0,
        first: 0,
        again: 0,
        epoch: 0,
        peer_epoch: 0,
    };

    /// The last list need not be told again.
    pub fn proven(&mut self) {
        (self.len, self.again, self.repeat) = (0, 0, false);
    }
}

/// A queue pair. All-zero when free.
pub struct Qp {
    /// `FREE` …
    pub state: u8,
    /// `REASON_*` in error or closed.
    pub reason: u8,
    /// Position in the card.
    pub idx: u8,
    /// Address space.
    pub asid: u8,
    /// Doorbell page.
    pub uar: u8,
    /// Peer (index + 1).
    pub peer: u8,
    /// Both ends are on this card.
    pub loopback: bool,
    /// The host wants it away.
    pub destroying: bool,
    /// The peer is told when the connection ends.
    pub tell_peer: bool,
    /// Selective repeat, as both ends have offered (decision 23).
    pub selective: bool,
    /// Message mode (CR-17).
    pub message: bool,
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
    /// Trigger as `CRD_RESET` takes it.
    pub trigger: u32,
    /// Longest list.
    pub max_list: u32,
    /// Largest block in bytes.
    pub block: u32,
    /// Acknowledgement time-out in cycles.
    pub timeout: u32,
    /// Retries.
    pub retries: u32,
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
    /// Credit lists as datagrams.
    pub lists: Lists,
    /// What RTL has of it.
    pub fast: Fast,
    /// Number that answers a recall.
    pub kept: u32,
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
        selective: false,
        message: false,
        events: 0,
        todo: 0,
        cookie: 0,
        sq_mask: 0,
        rq_mask: 0,
        send_cqn: 0,
        recv_cqn: 0,
        trigger: 0,
        max_list: 0,
        block: 0,
        timeout: 0,
        retries: 0,
        sq_base: 0,
        rq_base: 0,
        log2_mtu: 0,
        peer_qpn: 0,
        epoch: 0,
        peer_epoch: 0,
        lists: Lists::NONE,
        fast: Fast::NONE,
        kept: 0,
        service: 0,
        private_len: 0,
        private: [0; 8],
        template: Template::EMPTY,
        sq: Send {
            pi: 0,
            fetched: 0,
            fetching: false,
            head: 0,
            cut_wqe: 0,
            cover_wqe: 0,
            sge_tail: 0,
            piece_head: 0,
            piece_tail: 0,
            piece: 0,
            piece_off: 0,
            block_head: 0,
            block_tail: 0,
            block: 0,
            ask_wqe: 0,
            ask_sge: 0,
            ask_off: 0,
            ask_pos: 0,
            cover_pos: 0,
            cover_credits: 0,
            cover_more: false,
            pos: 0,
            cut_pos: 0,
            high: 0,
            acked: 0,
            stream_end: 0,
            bytes_posted: 0,
            next: 0,
            window: Window::new(Psn::new(0)),
            again: 0,
            since_ack: 0,
            rewind: false,
            serial: false,
            squeezed: 0,
            flying: 0,
            probing: 0,
            tries: 0,
            dma_tries: 0,
            deadline: 0,
            head_status: 0,
            dead: false,
            wqes: Ring::new(SendWqe { start: 0, wr_id: 0, len: 0, sge: 0, sges: 0, flags: 0, status: 0 }),
            sges: Ring::new(Range::ZERO),
            pieces: Ring::new(Piece { start: 0, psn: 0, len: 0, credit: 0, wqe: 0 }),
            blocks: Ring::new(Block { va: 0, start: 0, len: 0, tag: 0, state: 0, flying: 0 }),
        },
        rq: Recv {
            pi: 0,
            fetched: 0,
            fetching: false,
            head: 0,
            ask: 0,
            post: 0,
            batch: 0,
            uncommitted: false,
            pressure: false,
            serial: false,
            squeezed: 0,
            land: 0,
            in_piece: false,
            index: 0,
            sge_tail: 0,
            psn: 0,
            arrival: Arrival::new(Psn::new(0)),
            records: Ring::new(Record { flags: 0, credit: 0, len: 0, index: 0, remaining: 0 }),
            msn: 0,
            unacked: 0,
            ack_due: false,
            nak_due: 0,
            nak_sent: false,
            nak_psn: 0,
            probing: 0,
            recall: 0,
            recall_n: 0,
            recalls: 0,
            too_large: false,
            outstanding: 0,
            placing: 0,
            dead: false,
            completed: 0,
            grants: Ring::new(Grant {
                wr_id: 0,
                len: 0,
                credit: 0,
                filled: 0,
                remaining: 0,
                sge: 0,
                sges: 0,
                state: 0,
                status: 0,
                held: 0,
                probing: 0,
                waiting: 0,
                stale: false,
                withdrawn: false,
                push: false,
            }),
            sges: Ring::new(Range::ZERO),
        },
    };

    /// Its QPN.
    pub fn qpn(&self) -> u32 {
        qpn(self.idx)
    }

    /// Its bit in the work bitmaps.
    pub fn bit(&self) -> u64 {
        1 << (self.idx & 63)
    }

    /// The connection's MTU in bytes.
    pub fn mtu(&self) -> u32 {
        1 << (self.log2_mtu & 31)
    }

    /// Says something to the peer as soon as there is room.
    pub fn tell(&mut self, todo: u16, sh: &mut Shared) {
        self.todo |= todo;
        sh.ctl_work |= self.bit();
    }

    /// The builder may have a credit list: it goes as soon as there is room.
    pub fn list_ready(&mut self, sh: &mut Shared) {
        match self.lists.datagrams {
            true => {
                self.lists.ready = true;
                sh.ack_work |= self.bit();
            }
            false => self.tell(TODO_LIST, sh),
        }
    }

    /// Says something to the host as soon as there is room.
    pub fn notify(&mut self, event: u8, sh: &mut Shared) {
        self.events |= event;
        sh.event_work |= self.bit();
    }

    /// Ends the connection without error: what is left is flushed.
    #[inline(never)]
    pub fn close<H: Hw>(&mut self, reason: u32, sh: &mut Shared, hw: &mut H) {
        if !matches!(self.state, CREATED | CONNECTING | CONNECTED) {
            return;
        }
        hw.log(Log::Closed(self.qpn(), reason));
        self.end(CLOSED, reason, status::WC_FLUSHED, sh);
        self.fast_end(status::WC_FLUSHED, hw);
        self.notify(EVENT_CLOSED, sh);
    }

    /// Puts the QP in error; its oldest send completes with `head`, the rest is flushed.
    #[inline(never)]
    pub fn fail<H: Hw>(&mut self, reason: u32, head: u8, sh: &mut Shared, hw: &mut H) {
        if !matches!(self.state, CREATED | CONNECTING | CONNECTED) {
            return;
        }
        hw.log(Log::QpError(self.qpn(), reason));
        self.end(ERROR, reason, head, sh);
        self.fast_end(head, hw);
        self.notify(EVENT_ERROR, sh);
    }

    fn end(&mut self, state: u8, reason: u32, head: u8, sh: &mut Shared) {
        self.todo &= !(TODO_LIST | TODO_RECALL | TODO_RECALLED | TODO_RTU);
        if self.state == CONNECTING || self.state == CONNECTED {
            // A request that has not left needs no taking back.
            if self.todo & TODO_REQ == 0 && self.tell_peer {
                self.tell(TODO_DREQ, sh);
            }
            self.todo &= !(TODO_REQ | TODO_REP);
        }
        self.state = state;
        self.reason = reason as u8;
        self.sq.head_status = head;
        self.sq.deadline = 0;
        self.lists.proven();
        sh.token_drop(self.idx);
        sh.close_work |= self.bit();
    }
}

/// A queue element as the card snapshots it.
pub struct Element {
    /// The caller's own.
    pub wr_id: u64,
    /// Bytes.
    pub len: u32,
    /// Flags.
    pub flags: u8,
    /// SGEs that are not empty; of an inline element, parts of its data.
    pub sges: u8,
    /// It is well formed.
    pub good: bool,
}

/// QPN of the QP at position `idx`.
pub const fn qpn(idx: u8) -> u32 {
    FIRST_QPN + idx as u32
}

/// Checks a queue element and gives its non-empty SGEs to `sge`, or the parts of its inline data.
pub fn parse_element(w: &[u32; 32], opcode: u8, known_flags: u8, mut sge: impl FnMut(u8, u64, u32)) -> Element {
    let wide = |i: usize| w[i] as u64 | (w[i + 1] as u64) << 32;
    let count = (w[0] >> 16) as usize;
    let mut element = Element {
        wr_id: wide(2),
        len: w[1],
        flags: (w[0] >> 8) as u8,
        sges: 0,
        good: w[0] as u8 == opcode && (w[0] >> 8) as u8 & !known_flags == 0 && count <= MAX_SGE && w[1] <= MAX_MESSAGE,
    };
    if !element.good {
        return element;
    }
    if element.flags & SEND_INLINE != 0 {
        element.good = count == 0 && element.len as usize <= MAX_INLINE;
        let parts = if element.good { (element.len as usize).div_ceil(INLINE_PART) } else { 0 };
        for i in at_most(MAX_INLINE.div_ceil(INLINE_PART), 0..parts) {
            sge(i as u8, wide(4 + 3 * i), w[6 + 3 * i]);
        }
        element.sges = parts as u8;
        return element;
    }
    let mut sum = 0;
    for i in at_most(MAX_SGE, 0..count.min(MAX_SGE)) {
        let at = 4 + 4 * i;
        let (va, len) = (wide(at), w[at + 2]);
        sum += len as u64;
        element.good &= w[at + 3] == 0 && len >> 31 == 0 && va.checked_add(len as u64).is_some();
        if len != 0 {
            sge(element.sges, va, len);
            element.sges += 1;
        }
    }
    element.good &= sum == element.len as u64;
    element
}
