// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The responder: packets are checked, placed, acknowledged, and answered in order.

use super::packet::credit_code;
use super::{
    Arrival, Bitmap, Kind, NOT_YET_TIMER, NakCode, Placement, Position, Psn, Remote, RequestPacket, ResponseBody,
    ResponsePacket, Syndrome, Where, Wide, packets,
};
use crate::base::bound::{Bound, at_most};
use crate::base::rule::{self, Rule};

/// What a remote access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// Atomic.
    Atomic,
}

/// A remote access that is to be checked (QP-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The whole operation's range and key.
    pub remote: Remote,
    /// What it does.
    pub right: Right,
    /// PSN of the operation's first packet: which operation it is, for one-shot keys (QP-12) and in a GO (PC-4).
    pub first: u32,
    /// PSNs that the operation takes.
    pub packets: u32,
    /// It was carried out before, and its answer is asked for again.
    pub again: bool,
}

/// The answer to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admit {
    /// It may be done at once.
    Yes,
    /// It may be done once the memory is resident, which is under way (PC-4, QP-13). Then, or when it turns out to be
    /// impossible, the peer is to get a GO with [`Access::first`].
    NotYet,
    /// It may be done, but its memory cannot be made resident (QP-13).
    Failed,
    /// It may not be done.
    No,
}

/// The questions that a responder asks its owner while it judges a packet.
pub trait Target {
    /// Size in bytes of the receive that credit `number` stands for, if it is announced (or,
    /// towards peers without credit lists, posted) and not complete.
    fn credit(&self, number: u32) -> Option<u32>;
    /// Whether a remote access may be done. Called for each packet of a WRITE: a key may end between two of them.
    fn access(&mut self, access: &Access) -> Admit;
}

/// Where a payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Into a receive.
    Receive {
        /// Credit's number.
        credit: u32,
        /// Byte of the receive.
        offset: u32,
    },
    /// Into memory.
    Memory {
        /// Virtual address.
        va: u64,
        /// RKey, which has been checked.
        key: u32,
    },
}

/// Why a packet is dropped, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Something before it is missing, and it cannot be kept.
    OutOfOrder,
    /// It lies outside the window.
    OutOfWindow,
    /// No receive is there: RNR (with a peer that has credit lists this is `NoCredit`).
    NotReady,
    /// The memory is not resident yet (PC-4).
    NotResident,
    /// The peer sends without a credit.
    NoCredit,
    /// Longer than its credit.
    TooLong,
    /// Malformed.
    Invalid,
    /// Key, range or right do not match (QP-11).
    Access,
    /// The memory cannot be made resident (QP-13).
    PageFault,
    /// More READs and atomics than agreed.
    TooMany,
    /// The connection is broken already.
    Broken,
}

/// What becomes of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Its payload goes there. Call [`Responder::placed`] when it is there. Without selective
    /// repeat payloads must reach memory in the order of their packets, as two WRITEs may overlap.
    Place(Place),
    /// It is taken, and has no payload to place.
    Taken,
    /// It has come before.
    Duplicate,
    /// It is dropped: count it. The connection is broken if [`Responder::broken`] says so.
    Drop(Fault),
}

/// What happens at the responder's side, in PSN order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The first packet of the piece for this credit is accepted (decision 3): the proof of
    /// CR-11 and the trigger of CR-5.
    Landed {
        /// Credit's number.
        credit: u32,
    },
    /// A receive is complete.
    Received {
        /// Credit's number.
        credit: u32,
        /// Bytes in it.
        len: u32,
        /// Immediate data.
        imm: Option<u32>,
        /// The key that it has invalidated: then it is dead.
        invalidated: Option<u32>,
        /// PUSH.
        solicited: bool,
        /// It was used by a WRITE with immediate: `len` counts the bytes written, the receive itself is empty.
        write: bool,
    },
    /// The key of a SEND with invalidate is to end, with all accesses that it has let in; then call
    /// [`Responder::invalidated`]. Until then that message and what is behind it are not complete, nor acknowledged.
    Invalidate {
        /// RKey.
        key: u32,
    },
    /// An atomic is to be carried out; then call [`Responder::atomic_done`].
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
    /// A WRITE, READ or atomic that began with PSN `first` is over; its key, if it is a one-shot one, is used up (QP-12).
    Used {
        /// RKey.
        key: u32,
        /// PSN of its first packet.
        first: u32,
    },
    /// An access was refused because its memory cannot be made resident: the asynchronous event of
    /// QP-13, for the owner of the address space that the key is of. The connection breaks.
    PageFault(Access),
    /// The connection is broken.
    Broken(Fault),
}

/// A response packet that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// The packet.
    pub packet: ResponsePacket,
    /// Of a READ response: its payload.
    pub payload: Option<Remote>,
}

/// What was agreed at connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponderConfig {
    /// log2 of the path MTU in bytes.
    pub log2_mtu: u8,
    /// Selective repeat, else in order only.
    pub selective: bool,
    /// Packets of WRITEs are taken in order only, also under selective repeat: for programs that look at their memory, and
    /// take the last byte of a WRITE for all of it.
    pub writes_in_order: bool,
    /// A peer without credit lists: what has no receive, or no memory yet, is answered by RNR with this timer code (1 to 31).
    /// None: a SEND without a receive breaks the connection, and a GO ends the wait for memory.
    pub rnr_timer: Option<u8>,
    /// Packets placed before an acknowledgement is due without being asked for.
    pub ack_every: u8,
    /// Bits of a credit's number (1 to 32): it wraps at 2^bits.
    pub credit_bits: u8,
}

impl ResponderConfig {
    /// Between Berth ends: selective repeat, credit lists.
    pub const fn berth(log2_mtu: u8) -> Self {
        Self { log2_mtu, selective: true, writes_in_order: false, rnr_timer: None, ack_every: 4, credit_bits: 32 }
    }
    /// With a peer that is not Berth.
    pub const fn foreign(log2_mtu: u8, rnr_timer: u8) -> Self {
        Self { selective: false, rnr_timer: Some(rnr_timer), ..Self::berth(log2_mtu) }
    }
}

/// The record of a packet until its turn has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Record {
    kind: Kind,
    begins: bool,
    ends: bool,
    solicited: bool,
    /// An acknowledgement is wanted.
    ack: bool,
    imm: Option<u32>,
    invalidate: Option<u32>,
    /// Low byte of the credit's number.
    credit: u8,
    /// Packet of its message.
    index: u32,
    /// Payload bytes.
    len: u32,
    key: u32,
}

/// The message that the next packet in order belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Current {
    kind: Kind,
    /// Packets of it that have arrived in order.
    index: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum JobState {
    /// Its turn has not come.
    #[default]
    Waiting,
    /// An atomic that is being carried out.
    Started,
    /// An atomic whose result is known.
    Known(u64),
}

/// A READ or atomic to be answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Job {
    kind: Kind,
    psn: u32,
    /// Packets of the answer, and those that have left.
    packets: u32,
    sent: u32,
    remote: Remote,
    operands: [u64; 2],
    state: JobState,
}

/// A first-in first-out list of at most `R`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Jobs<const R: usize> {
    jobs: [Job; R],
    len: u8,
}

impl<const R: usize> Jobs<R> {
    const fn new() -> Self {
        const NONE: Job = Job {
            kind: Kind::Send,
            psn: 0,
            packets: 0,
            sent: 0,
            remote: Remote { va: 0, key: 0, len: 0 },
            operands: [0; 2],
            state: JobState::Waiting,
        };
        Self { jobs: [NONE; R], len: 0 }
    }
    fn push(&mut self, job: Job) -> bool {
        match self.jobs.get_mut(self.len as usize) {
            Some(place) => {
                *place = job;
                self.len += 1;
                true
            }
            None => false,
        }
    }
    fn first(&mut self) -> Option<&mut Job> {
        if self.len == 0 { None } else { self.jobs.first_mut() }
    }
    fn pop(&mut self) {
        if self.len != 0 {
            if let Some(first) = self.jobs.first_mut() {
                *first = Job::default();
            }
            self.jobs.rotate_left(1);
            self.len -= 1;
        }
    }
}

/// The result of an atomic, kept for when it is asked for again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Replay {
    valid: bool,
    psn: u32,
    original: u64,
}

/// How far the SEND with invalidate whose turn it is has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Invalidation {
    /// There is none.
    None,
    /// Its owner has been told.
    Told,
    /// The key is dead.
    Done,
}

/// A refusal that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refusal {
    Sequence,
    NotReady(u8),
    /// For the oldest packet that is not in its place, or for one that has come again.
    Fatal(NakCode, Option<u32>),
}

/// One end that answers requests. `R`: READs and atomics under way, and results of atomics kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Responder<const BITS: u32, const W: usize, const R: usize> {
    config: ResponderConfig,
    arrival: Arrival<BITS, W, Wide>,
    records: [Record; W],
    /// All packets below have arrived and been followed in order.
    followed: Psn<BITS>,
    current: Option<Current>,
    /// Range of the WRITE under way (in order only: later packets do not say it).
    writing: Remote,
    /// Number of the next credit to be used.
    credit: u32,
    /// Number of the next credit whose landing is to be told.
    landed: u32,
    /// Number of the next credit to be completed.
    complete: u32,
    /// PSN of the first packet of the message that the oldest record belongs to.
    first: u32,
    jobs: Jobs<R>,
    again: Jobs<R>,
    replays: [Replay; R],
    /// The key and first PSN of an operation whose end is to be told.
    used: Option<(u32, u32)>,
    invalidation: Invalidation,
    /// Receives there are, for the credit count of AETHs. None: not given.
    receives: Option<u32>,
    msn: u32,
    unacked: u8,
    ack_due: bool,
    refusal: Option<Refusal>,
    /// A NAK or RNR has been given for the expected PSN.
    refused: bool,
    /// PSN of the last packet out of sequence since.
    skipped: u32,
    broken: Option<Fault>,
    /// The access that broke it, to be told to the memory's owner.
    page_fault: Option<Access>,
    told: bool,
}

impl<const BITS: u32, const W: usize, const R: usize> Responder<BITS, W, R> {
    /// A responder that expects PSN `psn` first; its first credit has number `credit`.
    pub fn new(config: ResponderConfig, psn: u32, credit: u32) -> Self {
        const { assert!(R >= 1 && R < 256) };
        let psn = Psn::new(psn);
        Self {
            config,
            arrival: Arrival::new(psn),
            records: [Record::default(); W],
            followed: psn,
            current: None,
            writing: Remote::default(),
            credit,
            landed: credit,
            complete: credit,
            first: psn.get(),
            jobs: Jobs::new(),
            again: Jobs::new(),
            replays: [Replay::default(); R],
            used: None,
            invalidation: Invalidation::None,
            receives: None,
            msn: 0,
            unacked: 0,
            ack_due: false,
            refusal: None,
            refused: false,
            skipped: 0,
            broken: None,
            page_fault: None,
            told: false,
        }
    }

    /// Why the connection is broken, if it is.
    pub const fn broken(&self) -> Option<Fault> {
        self.broken
    }

    /// What was agreed.
    pub const fn config(&self) -> &ResponderConfig {
        &self.config
    }

    /// The arrivals, to inspect.
    pub const fn arrival(&self) -> &Arrival<BITS, W, Wide> {
        &self.arrival
    }

    /// Number of the next credit that a piece will use.
    pub const fn next_credit(&self) -> u32 {
        self.credit
    }

    /// The number of receives posted and not used, for peers that count credits (IBTA 9.7.7.2).
    pub fn set_receives(&mut self, count: Option<u32>) {
        self.receives = count;
    }

    /// The credit `n` after `number`.
    fn later(&self, number: u32, n: u32) -> u32 {
        number.wrapping_add(n) & <u32 as Bitmap>::ones(self.config.credit_bits as u32)
    }

    fn record(&mut self, psn: Psn<BITS>) -> &mut Record {
        &mut self.records[psn.get() as usize % W]
    }

    /// Breaks the connection; the peer is told by `code`.
    fn refuse(&mut self, fault: Fault, code: NakCode) -> Verdict {
        self.broken = Some(fault);
        self.refusal = Some(Refusal::Fatal(code, None));
        Verdict::Drop(fault)
    }

    /// Asks for an access; else why it cannot be done.
    fn admit<T: Target>(&mut self, access: Access, target: &mut T) -> Result<(), Fault> {
        self.page_fault = None;
        match target.access(&access) {
            Admit::Yes => Ok(()),
            Admit::NotYet => Err(Fault::NotResident),
            Admit::No => Err(Fault::Access),
            Admit::Failed => {
                self.page_fault = Some(access);
                Err(Fault::PageFault)
            }
        }
    }

    /// Refuses the expected message with `code`, for a reason of the caller's. Nothing is taken after that.
    pub fn reject(&mut self, code: NakCode) {
        if self.broken.is_none() {
            self.refuse(Fault::Invalid, code);
        }
    }

    /// Breaks the connection from this side: memory withdrawn, placement failed.
    pub fn fail(&mut self) {
        if self.broken.is_none() {
            self.refuse(Fault::Broken, NakCode::RemoteOperation);
        }
    }

    /// A request packet has come. See [`Verdict`]; then drain [`Responder::event`].
    pub fn receive<T: Target>(&mut self, p: &RequestPacket, target: &mut T) -> Verdict {
        if self.broken.is_some() {
            return Verdict::Drop(Fault::Broken);
        }
        let psn = Psn::new(p.psn);
        let order = match self.arrival.locate(psn) {
            Where::Old => return self.repeated(p, target),
            Where::Seen => {
                self.ack_due |= !rule::broken(Rule::RepeatAcknowledged);
                return Verdict::Duplicate;
            }
            Where::Beyond => return Verdict::Drop(Fault::OutOfWindow),
            Where::InOrder => true,
            Where::Ahead => {
                // Under selective repeat READs and atomics are not kept, nor is the end of a WRITE that uses a
                // receive: which one is known only in order.
                let write = p.kind == Kind::Write && (p.imm.is_some() || self.config.writes_in_order);
                if write || p.kind.answered() || (!self.config.selective && !rule::broken(Rule::InOrderOnly)) {
                    return self.skip(psn);
                }
                false
            }
        };
        let verdict = match p.kind {
            Kind::Send => self.send(p, psn, target),
            Kind::Write => self.write(p, psn, order, target),
            Kind::Read | Kind::CompareSwap | Kind::FetchAdd => self.ask(p, psn, target),
        };
        if let Verdict::Drop(fault) = verdict
            && order
        {
            return match fault {
                Fault::NotReady => self.hold(fault, self.config.rnr_timer.unwrap_or(1)),
                // Who knows no GO comes back by itself.
                Fault::NotResident => self.hold(fault, self.config.rnr_timer.unwrap_or(NOT_YET_TIMER)),
                Fault::Access => self.refuse(fault, NakCode::RemoteAccess),
                Fault::NoCredit | Fault::PageFault => self.refuse(fault, NakCode::RemoteOperation),
                _ => self.refuse(fault, NakCode::InvalidRequest),
            };
        }
        if !order {
            // Its fault is reported when its turn has come.
            self.page_fault = None;
        } else {
            // A refusal that has not left is of no use any more.
            (self.refused, self.skipped, self.refusal) = (false, 0, None);
            self.follow();
            if let Some(fault) = self.broken {
                return Verdict::Drop(fault);
            }
        }
        verdict
    }

    /// Something before `psn` is missing: one NAK for a gap, and one more when the sender has
    /// gone back and it is still there.
    fn skip(&mut self, psn: Psn<BITS>) -> Verdict {
        let again = !Psn::<BITS>::new(self.skipped).before(psn);
        if !self.refused || (again && self.refusal.is_none()) {
            self.refused = true;
            self.refusal = Some(Refusal::Sequence);
        }
        self.skipped = psn.get();
        Verdict::Drop(Fault::OutOfOrder)
    }

    /// The expected packet cannot be taken yet: it will come again after `timer`.
    fn hold(&mut self, fault: Fault, timer: u8) -> Verdict {
        self.refused = true;
        self.refusal = Some(Refusal::NotReady(timer));
        self.skipped = self.arrival.expected().get();
        Verdict::Drop(fault)
    }

    /// A packet that was carried out before has come again.
    fn repeated<T: Target>(&mut self, p: &RequestPacket, target: &mut T) -> Verdict {
        let behind = self.arrival.placed().since(Psn::new(p.psn));
        match p.kind {
            Kind::Send | Kind::Write => self.ack_due |= !rule::broken(Rule::RepeatAcknowledged),
            Kind::Read => {
                // A requester that keeps to its window never asks for older ones.
                let Some(remote) = p.remote else {
                    return Verdict::Drop(Fault::Invalid);
                };
                let log2 = self.config.log2_mtu;
                if behind > W as u32 {
                    return Verdict::Drop(Fault::OutOfWindow);
                }
                // A request that was not answered yet comes in its turn.
                let part = ((behind as u64) << (log2 & 31)).min(remote.len as u64) as u32;
                let remote = Remote { len: part, ..remote };
                let count = packets(part, log2);
                let access = Access { remote, right: Right::Read, first: p.psn, packets: count, again: true };
                if remote.len != 0 {
                    match self.admit(access, target) {
                        Ok(()) => (),
                        Err(Fault::PageFault) => {
                            let verdict = self.refuse(Fault::PageFault, NakCode::RemoteOperation);
                            self.refusal = Some(Refusal::Fatal(NakCode::RemoteOperation, Some(p.psn)));
                            return verdict;
                        }
                        // Not resident any more: it will be asked for again.
                        Err(_) => return Verdict::Drop(Fault::NotResident),
                    }
                }
                let job = Job { kind: p.kind, psn: p.psn, packets: count, remote, ..Job::default() };
                if !self.again.push(job) {
                    return Verdict::Drop(Fault::TooMany);
                }
            }
            Kind::CompareSwap | Kind::FetchAdd => {
                if let (Some(remote), true) = (p.remote, rule::broken(Rule::AtomicOnce)) {
                    let operands = p.operands;
                    self.jobs.push(Job { kind: p.kind, psn: p.psn, packets: 1, remote, operands, ..Job::default() });
                    return Verdict::Duplicate;
                }
                for replay in at_most(R, self.replays) {
                    if replay.valid && replay.psn == p.psn {
                        let state = JobState::Known(replay.original);
                        let job = Job { kind: p.kind, psn: p.psn, packets: 1, state, ..Job::default() };
                        self.again.push(job);
                        return Verdict::Duplicate;
                    }
                }
                return Verdict::Drop(Fault::OutOfWindow);
            }
        }
        Verdict::Duplicate
    }

    /// Length and place of a packet with payload are what they must be.
    fn well_formed(&self, p: &RequestPacket, ends: bool) -> bool {
        let mtu = 1 << (self.config.log2_mtu & 31);
        let size = if ends { p.len <= mtu } else { p.len == mtu };
        let zero = p.len == 0 && p.position != Position::Only;
        let word = match (p.imm, p.invalidate) {
            (None, None) => true,
            (_, None) => ends,
            (None, _) => ends && p.kind == Kind::Send,
            _ => false,
        };
        size && !zero && word && p.placement.is_some() == self.config.selective
    }

    fn send<T: Target>(&mut self, p: &RequestPacket, psn: Psn<BITS>, target: &T) -> Verdict {
        let (begins, ends) = (p.position.begins(), p.position.ends());
        let index = match (p.placement, self.current) {
            (Some(placement), _) => placement.index,
            (None, _) if begins => 0,
            (None, Some(current)) => current.index,
            (None, None) => return Verdict::Drop(Fault::Invalid),
        };
        if !self.well_formed(p, ends) || begins != (index == 0) || index > Placement::MAX_INDEX {
            return Verdict::Drop(Fault::Invalid);
        }
        // The piece under way has a credit that counts as used already.
        let begun = matches!(self.current, Some(Current { kind: Kind::Send, .. }));
        let oldest = self.later(self.credit, (begun as u32).wrapping_neg());
        let number = match p.placement {
            Some(placement) => self.later(oldest, placement.credit.wrapping_sub(oldest as u8) as u32),
            None if begins => self.credit,
            None => oldest,
        };
        let Some(size) = target.credit(number) else {
            return Verdict::Drop(if self.config.rnr_timer.is_some() { Fault::NotReady } else { Fault::NoCredit });
        };
        let offset = (index as u64) << (self.config.log2_mtu & 31);
        if !rule::holds(Rule::WithinCredit, offset + p.len as u64 <= size as u64) {
            return Verdict::Drop(Fault::TooLong);
        }
        *self.record(psn) = Record {
            kind: Kind::Send,
            begins,
            ends,
            solicited: p.solicited,
            ack: p.ack_request,
            imm: p.imm,
            invalidate: p.invalidate,
            credit: number as u8,
            index,
            len: p.len,
            key: 0,
        };
        self.take(psn, p.len, Place::Receive { credit: number, offset: offset as u32 })
    }

    /// A packet is kept; without payload it is in its place at once.
    fn take(&mut self, psn: Psn<BITS>, len: u32, place: Place) -> Verdict {
        self.arrival.accept(psn, 1);
        if len == 0 {
            self.placed(psn.get());
            return Verdict::Taken;
        }
        Verdict::Place(place)
    }

    fn write<T: Target>(&mut self, p: &RequestPacket, psn: Psn<BITS>, order: bool, target: &mut T) -> Verdict {
        let log2 = self.config.log2_mtu;
        let (index, remote, ends) = match (p.placement, p.remote, self.current) {
            (Some(placement), Some(remote), _) => {
                (placement.index, remote, placement.index.wrapping_add(1) == packets(remote.len, log2))
            }
            (None, Some(remote), None) if p.position.begins() => (0, remote, p.position.ends()),
            (None, None, Some(current)) if !p.position.begins() => (current.index, self.writing, p.position.ends()),
            _ => return Verdict::Drop(Fault::Invalid),
        };
        let before = (index as u64) << (log2 & 31);
        let end = before + p.len as u64;
        // The last packet brings the message to its length, no other one does.
        let fits = if ends { end == remote.len as u64 } else { end < remote.len as u64 };
        if !self.well_formed(p, ends) || !fits || (self.config.selective && p.position != Position::Only) {
            return Verdict::Drop(Fault::Invalid);
        }
        if remote.len != 0 {
            let first = psn.minus(index).get();
            let access =
                Access { remote, right: Right::Write, first, packets: packets(remote.len, log2), again: false };
            if let Err(fault) = self.admit(access, target) {
                return Verdict::Drop(fault);
            }
        }
        let receive = !order || p.imm.is_none() || target.credit(self.credit).is_some();
        if !rule::holds(Rule::ImmediateNeedsReceive, receive) {
            return Verdict::Drop(if self.config.rnr_timer.is_some() { Fault::NotReady } else { Fault::NoCredit });
        }
        *self.record(psn) = Record {
            kind: Kind::Write,
            begins: index == 0,
            ends,
            solicited: p.solicited,
            ack: p.ack_request,
            imm: p.imm,
            invalidate: None,
            credit: 0,
            index,
            len: p.len,
            key: remote.key,
        };
        if order && index == 0 && !self.config.selective {
            self.writing = remote;
        }
        self.take(psn, p.len, Place::Memory { va: remote.va.wrapping_add(before), key: remote.key })
    }

    /// A READ or an atomic, in order.
    fn ask<T: Target>(&mut self, p: &RequestPacket, psn: Psn<BITS>, target: &mut T) -> Verdict {
        let Some(remote) = p.remote else {
            return Verdict::Drop(Fault::Invalid);
        };
        let (right, count) = match p.kind {
            Kind::Read => (Right::Read, packets(remote.len, self.config.log2_mtu)),
            _ => (Right::Atomic, 1),
        };
        let aligned = p.kind == Kind::Read || (remote.va & 7 == 0 && remote.len == 8);
        if self.current.is_some() || !aligned || p.len != 0 || p.position != Position::Only {
            return Verdict::Drop(Fault::Invalid);
        }
        if !self.arrival.fits(psn, count) || self.jobs.len as usize >= R {
            return Verdict::Drop(Fault::TooMany);
        }
        if remote.len != 0 {
            let access = Access { remote, right, first: psn.get(), packets: count, again: false };
            if let Err(fault) = self.admit(access, target) {
                return Verdict::Drop(fault);
            }
        }
        for i in at_most(W, 0..count.min(W as u32)) {
            let (begins, ends) = (i == 0, i + 1 == count);
            *self.record(psn.plus(i)) =
                Record { kind: p.kind, begins, ends, index: i, key: remote.key, ..Record::default() };
        }
        self.arrival.accept(psn, count);
        let job = Job { kind: p.kind, psn: psn.get(), packets: count, remote, operands: p.operands, ..Job::default() };
        self.jobs.push(job);
        Verdict::Taken
    }

    /// Follows the packets that have come into order: messages must be whole, credits in order.
    fn follow(&mut self) {
        let mut steps = Bound::new(W as u32);
        while self.followed != self.arrival.expected() {
            steps.step();
            let record = *self.record(self.followed);
            if !self.follow_one(&record) {
                self.refuse(Fault::Invalid, NakCode::InvalidRequest);
                return;
            }
            self.followed = self.followed.plus(1);
        }
    }

    /// The next packet in order. False if it does not continue what was before.
    fn follow_one(&mut self, r: &Record) -> bool {
        let index = match self.current {
            None if r.begins => 0,
            Some(current) if !r.begins && current.kind == r.kind => current.index,
            _ => return false,
        };
        if r.index != index {
            return false;
        }
        match r.kind {
            Kind::Send if r.begins => {
                if r.credit != self.credit as u8 {
                    return false;
                }
                self.credit = self.later(self.credit, 1);
            }
            Kind::Send if r.credit != self.later(self.credit, u32::MAX) as u8 => return false,
            Kind::Write if r.ends && r.imm.is_some() => self.credit = self.later(self.credit, 1),
            _ => (),
        }
        self.current = match r.ends {
            true => None,
            false => Some(Current { kind: r.kind, index: index + 1 }),
        };
        if r.ends {
            self.writing = Remote::default();
        }
        true
    }

    /// The payload of packet `psn` is in its place.
    pub fn placed(&mut self, psn: u32) {
        let psn = Psn::new(psn);
        self.arrival.done(psn);
        // Behind a gap: the sender must hear of it.
        self.ack_due |= psn.since(self.arrival.placed()) >= self.arrival.expected().since(self.arrival.placed());
    }

    /// The key of [`Event::Invalidate`] is dead; or it cannot be ended by the peer, which breaks the connection.
    pub fn invalidated(&mut self, done: bool) {
        if self.invalidation != Invalidation::Told || self.broken.is_some() {
            return;
        }
        if done {
            self.invalidation = Invalidation::Done;
        } else {
            self.refuse(Fault::Access, NakCode::RemoteAccess);
        }
    }

    /// The atomic `psn` is carried out; `original` is what stood there.
    pub fn atomic_done(&mut self, psn: u32, original: u64) {
        if let Some(job) = self.jobs.first()
            && job.psn == psn
            && job.state == JobState::Started
        {
            job.state = JobState::Known(original);
        }
    }

    /// What has happened, one at a time. Drain it after `receive`, `placed` and `respond`.
    pub fn event(&mut self) -> Option<Event> {
        let mut steps = Bound::new(W as u32 + 1);
        loop {
            steps.step();
            if self.landed != self.credit {
                let credit = self.landed;
                self.landed = self.later(credit, 1);
                return Some(Event::Landed { credit });
            }
            if let Some((key, first)) = self.used.take() {
                return Some(Event::Used { key, first });
            }
            if !self.arrival.ready() || self.arrival.placed() == self.followed {
                break;
            }
            let psn = self.arrival.placed();
            let invalidated = self.record(psn).invalidate;
            if let Some(key) = invalidated {
                match self.invalidation {
                    Invalidation::None => {
                        self.invalidation = Invalidation::Told;
                        return Some(Event::Invalidate { key });
                    }
                    Invalidation::Told => break,
                    Invalidation::Done => self.invalidation = Invalidation::None,
                }
            }
            let record = core::mem::take(self.record(psn));
            self.arrival.advance();
            if record.begins {
                self.first = psn.get();
            }
            if !record.kind.answered() {
                self.unacked = self.unacked.saturating_add(1);
                self.ack_due |= record.ack;
            }
            if !record.ends {
                continue;
            }
            self.msn = self.msn.wrapping_add(1) & Psn::<BITS>::MASK;
            let write = record.kind != Kind::Send;
            if write {
                self.used = Some((record.key, self.first));
            }
            if !write || record.imm.is_some() {
                let credit = self.complete;
                self.complete = self.later(credit, 1);
                let len = (record.index << (self.config.log2_mtu & 31)).wrapping_add(record.len);
                let Record { imm, solicited, .. } = record;
                return Some(Event::Received { credit, len, imm, invalidated, solicited, write });
            }
        }
        let placed = self.arrival.placed().get();
        if let Some(job) = self.jobs.first()
            && job.state == JobState::Waiting
            && job.kind != Kind::Read
            && (rule::holds(Rule::ReadAfterWrite, job.psn == placed) || rule::broken(Rule::AtomicOnce))
        {
            job.state = JobState::Started;
            return Some(Event::Atomic { psn: job.psn, kind: job.kind, remote: job.remote, operands: job.operands });
        }
        match self.broken {
            Some(_) if self.page_fault.is_some() => self.page_fault.take().map(Event::PageFault),
            Some(fault) if !self.told => {
                self.told = true;
                Some(Event::Broken(fault))
            }
            _ => None,
        }
    }

    /// The next packet of a job's answer, and whether it is the last.
    fn next_of(job: &mut Job, log2: u8, msn: u32) -> Option<(Reply, bool)> {
        let psn = Psn::<BITS>::new(job.psn).plus(job.sent).get();
        let (body, payload) = match (job.kind, job.state) {
            (Kind::Read, _) => {
                let before = (job.sent as u64) << (log2 & 31);
                let len = (job.remote.len as u64).saturating_sub(before).min(1 << (log2 & 31)) as u32;
                let remote = Remote { va: job.remote.va.wrapping_add(before), key: job.remote.key, len };
                (ResponseBody::Read { position: Position::at(job.sent, job.packets), len }, Some(remote))
            }
            (_, JobState::Known(original)) => (ResponseBody::Atomic { original }, None),
            _ => return None,
        };
        job.sent += 1;
        Some((Reply { packet: ResponsePacket { psn, msn, body }, payload }, job.sent >= job.packets))
    }

    /// The next response packet, if one is due. Asking seldom reduces the number of acknowledgements.
    pub fn respond(&mut self) -> Option<Reply> {
        self.answer_again().or_else(|| self.answer()).or_else(|| self.acknowledge())
    }

    /// Of what [`Responder::respond`] gives, the answers to what has come again. Who reads their payloads while other
    /// packets leave asks for each kind by itself.
    pub fn answer_again(&mut self) -> Option<Reply> {
        let (log2, msn) = (self.config.log2_mtu, self.msn);
        let (reply, last) = Self::next_of(self.again.first()?, log2, msn)?;
        if last {
            self.again.pop();
        }
        Some(reply)
    }

    /// Likewise, the answers to READs and atomics in their order.
    pub fn answer(&mut self) -> Option<Reply> {
        let (log2, msn) = (self.config.log2_mtu, self.msn);
        let placed = self.arrival.placed().get();
        if let Some(job) = self.jobs.first()
            && (job.sent != 0
                || rule::holds(Rule::ReadAfterWrite, job.psn == placed)
                || matches!(job.state, JobState::Known(_)))
            && let Some((reply, last)) = Self::next_of(job, log2, msn)
        {
            if let ResponseBody::Atomic { original } = reply.packet.body {
                self.replays.rotate_right(1);
                if let Some(replay) = self.replays.first_mut() {
                    *replay = Replay { valid: true, psn: reply.packet.psn, original };
                }
            }
            if last {
                self.jobs.pop();
            }
            self.arrival.done(Psn::new(reply.packet.psn));
            (self.ack_due, self.unacked) = (false, 0);
            return Some(reply);
        }
        None
    }

    /// Likewise, acknowledgements and refusals.
    pub fn acknowledge(&mut self) -> Option<Reply> {
        let settled = self.arrival.placed() == self.followed;
        // The end of the connection waits for no placement, because unplaced packets are not acknowledged.
        let fatal = matches!(self.refusal, Some(Refusal::Fatal(..)));
        if let Some(refusal) = self.refusal
            && (settled || fatal)
        {
            self.refusal = None;
            self.unacked = 0;
            // Packets behind a gap are still to be reported.
            self.ack_due &= self.config.selective;
            let (syndrome, psn) = match refusal {
                Refusal::Sequence => (Syndrome::Nak(NakCode::Sequence), self.followed),
                Refusal::NotReady(timer) => (Syndrome::Rnr(timer), self.followed),
                Refusal::Fatal(code, None) => (Syndrome::Nak(code), self.arrival.placed()),
                Refusal::Fatal(code, Some(psn)) => (Syndrome::Nak(code), Psn::new(psn)),
            };
            return Some(self.ack(psn, syndrome, None));
        }
        // One acknowledgement then does for all that waits.
        let waits = self.invalidation == Invalidation::Told;
        if self.broken.is_some() || waits || !(self.ack_due || self.unacked >= self.config.ack_every.max(1)) {
            return None;
        }
        (self.ack_due, self.unacked) = (false, 0);
        let syndrome = Syndrome::Ack(self.receives.map_or(31, credit_code));
        let sack = Some(self.arrival.sack()).filter(|&bits| self.config.selective && bits != 0);
        Some(self.ack(self.arrival.placed().minus(1), syndrome, sack))
    }

    fn ack(&self, psn: Psn<BITS>, syndrome: Syndrome, sack: Option<u128>) -> Reply {
        let body = ResponseBody::Ack { syndrome, sack };
        Reply { packet: ResponsePacket { psn: psn.get(), msn: self.msn, body }, payload: None }
    }
}
