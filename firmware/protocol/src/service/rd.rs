// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reliable datagram (QP-6): one QP talks to many, reliably.
//!
//! The state of reliability belongs to pairs of end nodes, not of QPs: an end-to-end
//! [`Context`] is a requester and a responder of [`crate::rc`] that carry the messages of all QPs of
//! one node to all QPs of another, and back. So a node with M QPs among N nodes has M QPs and N - 1
//! contexts. As with InfiniBand's (IBTA 9.8) one message is under way per context and direction;
//! it goes in order, with go-back-N, and a QP without a receive is waited for by RNR.
//!
//! A refusal (no such QP, wrong Q_Key, wrong RKey, never ready) fails one message only: the requester continues behind
//! a gap in its PSNs, by a RESYNC that the responder acknowledges, so that late packets of the old message cannot be
//! taken for the new one.

use crate::base::bound::at_most;
use crate::rc::{
    Access, Admit, Completion, Event, Kind, Message, NakCode, Op, Outcome, Place, Psn, Remote, Reply, RequestPacket,
    Requester, RequesterConfig, Responder, ResponderConfig, ResponseBody, ResponsePacket, Status, Syndrome, Target,
    Tries, Verdict, Wait,
};

/// From which QP to which: DETH and the BTH's destination QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// QPN of the sender.
    pub source: u32,
    /// QPN of the receiver.
    pub destination: u32,
    /// Q_Key that the receiver must have.
    pub qkey: u32,
}

/// What a context sends to its peer as a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A packet of a message.
    Packet(Address, RequestPacket),
    /// RESYNC: the next message begins at this PSN.
    Resync(u32),
}

/// A packet that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmit {
    /// The packet.
    pub request: Request,
    /// [`Message::tag`] of the message.
    pub tag: u32,
    /// Where its payload begins, as in [`crate::rc::Transmit`].
    pub offset: u64,
}

/// What a QP says when a message for it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Open {
    /// It gives a receive of `size` bytes; `handle` is its own name for it.
    Receive {
        /// Name.
        handle: u32,
        /// Bytes.
        size: u32,
    },
    /// It has none now: RNR.
    NotReady,
    /// There is no such QP, or it has another Q_Key.
    Refused,
}

/// The QPs of a node.
pub trait Ports {
    /// A SEND, or the end of a WRITE with immediate, wants a receive. A receive that is given is used up.
    fn open(&mut self, to: &Address) -> Open;
    /// Whether the QP `to.destination`, if it is there with that Q_Key, lets the access happen.
    fn access(&mut self, to: &Address, access: &Access) -> Admit;
}

/// What happened at the receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrived {
    /// A receive is complete.
    Received {
        /// From whom, to whom.
        address: Address,
        /// As [`Open::Receive`] gave it.
        handle: u32,
        /// Bytes.
        len: u32,
        /// Immediate data.
        imm: Option<u32>,
    },
    /// An atomic is to be carried out; then call [`Context::atomic_done`].
    Atomic {
        /// Its PSN.
        psn: u32,
        /// Which.
        kind: Kind,
        /// Where.
        remote: Remote,
        /// As in [`RequestPacket`].
        operands: [u64; 2],
    },
    /// The key of an operation is used, as [`Event::Used`].
    Used {
        /// From whom, to whom.
        address: Address,
        /// RKey.
        key: u32,
        /// PSN of the operation's first packet.
        first: u32,
    },
    /// A page fault that could not be handled, as [`Event::PageFault`]: for the owner of the memory.
    PageFault {
        /// From whom, to whom.
        address: Address,
        /// What was to be done.
        access: Access,
    },
    /// The message under way was given up; its receive, if it had one, comes back unused or in part filled.
    Dropped {
        /// As [`Open::Receive`] gave it.
        handle: u32,
    },
}

/// Where the payload of a packet goes: `handle` of the receive, or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Put {
    /// Into a receive.
    Receive {
        /// Name.
        handle: u32,
        /// Byte of it.
        offset: u32,
    },
    /// Into memory.
    Memory {
        /// Virtual address.
        va: u64,
        /// RKey.
        key: u32,
    },
    /// Nowhere: repeated, refused, or without payload.
    Nothing,
}

/// The receive that the message under way goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Incoming {
    handle: u32,
    size: u32,
}

/// Passes the RC responder's questions to the QP that the packet is for.
struct Asked<'a, P: Ports> {
    ports: &'a mut P,
    address: Address,
    incoming: Option<Incoming>,
}

impl<P: Ports> Target for Asked<'_, P> {
    fn credit(&self, _number: u32) -> Option<u32> {
        self.incoming.map(|incoming| incoming.size)
    }
    fn access(&mut self, access: &Access) -> Admit {
        self.ports.access(&self.address, access)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Resync {
    psn: u32,
    tries: Tries,
    /// It is to be sent.
    due: bool,
    deadline: Option<u64>,
}

/// One node's end of an end-to-end context. `R`: READ requests and atomics
/// under way, at both ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Context<const BITS: u32, const W: usize, const R: usize> {
    config: RequesterConfig,
    answer: ResponderConfig,
    requester: Requester<BITS, W, 1>,
    /// The message under way.
    outgoing: Option<Address>,
    resync: Option<Resync>,
    /// No answer after all retries: every message fails.
    lost: bool,
    responder: Responder<BITS, W, R>,
    address: Address,
    incoming: Option<Incoming>,
    /// The receive of a message that was given up.
    dropped: Option<u32>,
    /// The refusal of the message that the peer is to give up, repeated when it asks again.
    refusal: Option<ResponsePacket>,
    refusal_due: bool,
    resync_answer: bool,
}

impl<const BITS: u32, const W: usize, const R: usize> Context<BITS, W, R> {
    /// A context that sends from PSN `psn` and expects `peer_psn`. `rnr_timer`: code for QPs
    /// without a receive. Selective repeat and credit counts of `config` are not used.
    pub fn new(config: RequesterConfig, psn: u32, peer_psn: u32, rnr_timer: u8) -> Self {
        let reads = config.reads.min(R.min(255) as u8);
        let config = RequesterConfig { selective: false, count_credits: false, reads, ..config };
        let answer = ResponderConfig { credit_bits: 1, ..ResponderConfig::foreign(config.log2_mtu, rnr_timer) };
        Self {
            config,
            answer,
            requester: Requester::new(config, psn),
            outgoing: None,
            resync: None,
            lost: false,
            responder: Responder::new(answer, peer_psn, 0),
            address: Address::default(),
            incoming: None,
            dropped: None,
            refusal: None,
            refusal_due: false,
            resync_answer: false,
        }
    }

    /// A message may be posted.
    pub fn ready(&self) -> bool {
        self.outgoing.is_none() && !self.lost
    }

    /// The peer's node does not answer any more.
    pub const fn lost(&self) -> bool {
        self.lost
    }

    /// The message under way waits for a receive or for memory.
    pub const fn waiting(&self) -> Option<Wait> {
        self.requester.waiting()
    }

    /// Sends `message` to the QP that `address` says. SEND, WRITE, READ and atomics. False if it cannot now.
    pub fn post(&mut self, address: Address, message: Message) -> bool {
        let carried = !matches!(message.op, Op::Delay(_) | Op::Local);
        let posted = carried && self.ready() && self.requester.post(message).is_ok();
        if posted {
            self.outgoing = Some(address);
        }
        posted
    }

    /// The next packet that is to leave at `now`.
    pub fn transmit(&mut self, now: u64) -> Option<Transmit> {
        if let Some(resync) = &mut self.resync {
            if !resync.due {
                return None;
            }
            resync.due = false;
            resync.deadline = Some(now.saturating_add(self.config.timeout as u64));
            return Some(Transmit { request: Request::Resync(resync.psn), tag: 0, offset: 0 });
        }
        let address = self.outgoing?;
        let t = self.requester.transmit(now)?;
        Some(Transmit { request: Request::Packet(address, t.packet), tag: t.tag, offset: t.offset })
    }

    /// A response packet has come.
    pub fn response(&mut self, now: u64, r: &ResponsePacket) -> Outcome {
        if let Some(resync) = self.resync {
            let acknowledged = matches!(r.body, ResponseBody::Ack { syndrome: Syndrome::Ack(_), .. });
            if acknowledged && Psn::<BITS>::new(r.psn).plus(1) == Psn::new(resync.psn) {
                self.resync = None;
                return Outcome::Progress;
            }
            return Outcome::Nothing;
        }
        self.requester.response(now, r)
    }

    /// The message that is over: the one under way, done or failed.
    pub fn complete(&mut self) -> Option<(Address, Completion)> {
        let address = self.outgoing?;
        if self.lost {
            let completion = self.requester.complete()?;
            self.outgoing = None;
            return Some((address, completion));
        }
        let completion = self.requester.complete()?;
        self.outgoing = None;
        match completion.status {
            Status::Done => (),
            Status::RetryExceeded | Status::Flushed => self.lost = true,
            _ => {
                // Behind everything that may still be on the wire, and beyond what is answered again.
                let psn = self.requester.window().next().plus(2 * W as u32).get();
                self.requester = Requester::new(self.config, psn);
                self.resync = Some(Resync { psn, tries: Tries::NONE, due: true, deadline: None });
            }
        }
        Some((address, completion))
    }

    /// When [`Context::tick`] is to be called.
    pub fn deadline(&self) -> Option<u64> {
        match self.resync {
            Some(resync) => resync.deadline,
            None => self.requester.deadline(),
        }
    }

    /// The time is `now`. True if a time-out has passed.
    pub fn tick(&mut self, now: u64) -> bool {
        let Some(resync) = &mut self.resync else {
            return self.requester.tick(now);
        };
        if resync.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        (resync.deadline, resync.due) = (None, true);
        if !resync.tries.expired(self.config.retries) {
            self.resync = None;
            self.lost = true;
            // So does the message that was posted meanwhile, without retries of its own.
            self.requester.abandon(Status::RetryExceeded);
        }
        true
    }

    /// GO (PC-4), as [`Requester::go`].
    pub fn go(&mut self, now: u64, psn: u32) {
        self.requester.go(now, psn);
    }

    /// A request has come. See [`Put`]; when the payload is there call [`Context::placed`]. Then drain [`Context::arrived`].
    pub fn receive<P: Ports>(&mut self, request: &Request, ports: &mut P) -> Put {
        let (address, packet) = match request {
            Request::Packet(address, packet) => (address, packet),
            Request::Resync(psn) => {
                self.resynchronise(*psn);
                return Put::Nothing;
            }
        };
        if self.responder.broken().is_some() {
            // The refusal was lost.
            self.refusal_due |= self.refusal.is_some();
            return Put::Nothing;
        }
        let psn = Psn::<BITS>::new(packet.psn);
        let expected = psn == self.responder.arrival().expected();
        let begins = packet.remote.is_some() || packet.position.begins();
        if expected {
            if begins {
                self.address = *address;
            } else if *address != self.address {
                self.responder.reject(NakCode::InvalidRequest);
                return Put::Nothing;
            }
            let send = packet.kind == Kind::Send && begins;
            if (send || packet.imm.is_some()) && self.incoming.is_none() {
                match ports.open(address) {
                    Open::Receive { handle, size } => self.incoming = Some(Incoming { handle, size }),
                    Open::NotReady => (),
                    Open::Refused => {
                        self.responder.reject(NakCode::InvalidDatagram);
                        return Put::Nothing;
                    }
                }
            }
        }
        let mut asked = Asked { ports, address: *address, incoming: self.incoming };
        match self.responder.receive(packet, &mut asked) {
            Verdict::Place(Place::Receive { offset, .. }) => match self.incoming {
                Some(Incoming { handle, .. }) => Put::Receive { handle, offset },
                None => Put::Nothing,
            },
            Verdict::Place(Place::Memory { va, key }) => Put::Memory { va, key },
            _ => Put::Nothing,
        }
    }

    /// The peer has given up a message and goes on at `psn`.
    fn resynchronise(&mut self, psn: u32) {
        let psn = Psn::<BITS>::new(psn);
        let expected = self.responder.arrival().expected();
        if psn != expected {
            if psn.before(expected) {
                // An old one.
                return;
            }
            if let Some(incoming) = self.incoming.take() {
                self.dropped = Some(incoming.handle);
            }
            self.responder = Responder::new(self.answer, psn.get(), 0);
            (self.refusal, self.refusal_due) = (None, false);
        }
        self.resync_answer = true;
    }

    /// The payload of packet `psn` is in its place.
    pub fn placed(&mut self, psn: u32) {
        self.responder.placed(psn);
    }

    /// The atomic `psn` is carried out.
    pub fn atomic_done(&mut self, psn: u32, original: u64) {
        self.responder.atomic_done(psn, original);
    }

    /// What has happened at the receiving side, one at a time.
    pub fn arrived(&mut self) -> Option<Arrived> {
        if let Some(handle) = self.dropped.take() {
            return Some(Arrived::Dropped { handle });
        }
        // A landing and a break say nothing here.
        for _ in at_most(4, 0..4) {
            match self.responder.event()? {
                Event::Landed { .. } | Event::Broken(_) => (),
                // A reliable datagram has no such SEND (IBTA 9.2.1).
                Event::Invalidate { .. } => self.responder.invalidated(false),
                Event::Received { len, imm, .. } => {
                    let incoming = self.incoming.take()?;
                    return Some(Arrived::Received { address: self.address, handle: incoming.handle, len, imm });
                }
                Event::Atomic { psn, kind, remote, operands } => {
                    return Some(Arrived::Atomic { psn, kind, remote, operands });
                }
                Event::Used { key, first } => return Some(Arrived::Used { address: self.address, key, first }),
                Event::PageFault(access) => return Some(Arrived::PageFault { address: self.address, access }),
            }
        }
        None
    }

    /// The next response packet, if one is due.
    pub fn respond(&mut self) -> Option<Reply> {
        if core::mem::take(&mut self.resync_answer) {
            let psn = self.responder.arrival().expected().minus(1).get();
            let body = ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack: None };
            return Some(Reply { packet: ResponsePacket { psn, msn: 0, body }, payload: None });
        }
        if core::mem::take(&mut self.refusal_due)
            && let Some(packet) = self.refusal
        {
            return Some(Reply { packet, payload: None });
        }
        let reply = self.responder.respond()?;
        if self.responder.broken().is_some()
            && let ResponseBody::Ack { syndrome: Syndrome::Nak(_), .. } = reply.packet.body
        {
            self.refusal = Some(reply.packet);
        }
        Some(reply)
    }
}
