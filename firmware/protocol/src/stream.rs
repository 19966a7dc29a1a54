// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of a stream connection, put together from its machines: receives that are pinned
//! before they become credits, credit lists, sends that are cut to credits, blocks that are asked
//! for ahead of use, packets, acknowledgements.
//!
//! [`End`] is a pure value: it has no clock, no memory and no wire. Time is an argument, what the
//! host does is an [`HostAction`] and its answer, what travels is a value. So the model checker and
//! the fuzzer run the same composition. It shows how the machines are wired to each other:
//!
//! ```text
//!  post_receive → Receives ─(pinned)→ Announcer ── list ──→ Taker ─→ blocks::Sender ←─ post_send
//!                    ↑                    ↑ landed                  cover ↓ block there
//!                 filled ←──────────── Responder ←── packets ──────── Requester
//! ```
//!
//! A credit is used when its piece is next to be sent and there is room in the log. So at most
//! one credit is used before the memory of its piece is there; a RECALL gets back all others.

use crate::base::bound::Bound;
use crate::base::fifo::Fifo;
use crate::credit::announcer::{Announcer, Heard, Options};
use crate::credit::entry::{Body, Entry, Name};
use crate::credit::list::Seq;
use crate::credit::taker::{Arrived, Taker};
use crate::memory::blocks::{self, BlockError, Sender};
use crate::memory::context::{ChainError, Choice, Place as Source, Span};
use crate::memory::receives::{self, PostError, Receives};
use crate::rc::{
    Access, Admit, Event, Immediate, Message, Op, Outcome as Heed, Place, RequestPacket, Requester, RequesterConfig,
    Responder, ResponderConfig, ResponsePacket, Status, Target, Transmit, Verdict,
};

/// Why an end is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// The peer sent what it had no credit for, a malformed packet, or an entry that cannot be true.
    Peer,
    /// Memory of a credit was withdrawn (decision 17).
    Withdrawn,
    /// A block of a send cannot be had.
    Block(BlockError),
    /// The requester has given up.
    Requester(Status),
    /// The user has closed it.
    Closed,
}

/// What the host is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostAction {
    /// About a block of a send; its memory is in [`End::block_spans`]. Answer with [`End::block_answer`].
    Send(blocks::Action),
    /// Pin receive `tag` for writing, as a lasting use; its memory is in [`End::receive_spans`]. Answer with
    /// [`End::receive_answer`].
    PinReceive(u16),
    /// Unpin receive `tag`.
    ReleaseReceive(u16),
    /// Take receive `tag` out of the waiting line, then answer `Gone`.
    CancelReceive(u16),
    /// Receive `tag` is complete.
    Received(u16, receives::Status),
    /// The send with this tag is complete: all of it has reached its place.
    Sent(u32),
}

/// A data packet that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Departure {
    /// The packet.
    pub packet: RequestPacket,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Block that its bytes are read from: [`End::left`] when they have been.
    pub block: u16,
    /// The bytes are in the card's own memory (VC-5, VC-6).
    pub copy: bool,
    /// It was sent before.
    pub again: bool,
}

/// Where the payload of a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Landing {
    /// PSN of the packet, for [`End::placed`].
    pub psn: u32,
    /// The receive.
    pub tag: u16,
    /// Byte of the receive.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Send {
    tag: u32,
    end: u64,
}

/// A receive whose first packet was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Open {
    credit: u32,
    size: u32,
}

/// How an end works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Credit lists.
    pub lists: Options,
    /// The sending half.
    pub requester: RequesterConfig,
    /// The receiving half.
    pub responder: ResponderConfig,
    /// Blocks.
    pub blocks: blocks::Config,
}

/// One end of a stream connection. `ROOM`: receives and credits stored; `LIST`: longest list; `B`: bits of a PSN; `W`:
/// window in packets; `M`: pieces in the log; `C`: contexts of sends; `BLOCKS`: blocks at a time; `SPANS`: ranges of receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End<
    const ROOM: usize,
    const LIST: usize,
    const B: u32,
    const W: usize,
    const M: usize,
    const C: usize,
    const BLOCKS: usize,
    const SPANS: usize,
> {
    announcer: Announcer<ROOM, LIST>,
    taker: Taker<ROOM, LIST>,
    requester: Requester<B, W, M>,
    responder: Responder<B, W, 1>,
    sender: Sender<C, M, BLOCKS>,
    receives: Receives<ROOM, SPANS>,
    /// Unused credits that cover bytes, from the oldest on.
    covered: u32,
    /// Stream offsets: behind the pieces that were begun, and behind those that have reached their place.
    begun: u64,
    acked: u64,
    sends: Fifo<Send, C>,
    open: Fifo<Open, W>,
    /// A packet that waits for its block.
    held: Option<Transmit>,
    broken: Option<Broken>,
}

/// The receives as the responder sees them.
struct Credits<'a, const ROOM: usize, const LIST: usize, const W: usize> {
    announcer: &'a Announcer<ROOM, LIST>,
    open: &'a Fifo<Open, W>,
}

impl<const ROOM: usize, const LIST: usize, const W: usize> Target for Credits<'_, ROOM, LIST, W> {
    fn credit(&self, number: u32) -> Option<u32> {
        let (_, announced, _) = self.announcer.builder().numbers();
        if let Some(open) = self.open.as_slice().iter().find(|o| o.credit == number) {
            return Some(open.size);
        }
        match Seq::<32>::after(announced, number) {
            true => self.announcer.builder().size_of(number),
            false => None,
        }
    }

    fn access(&mut self, _: &Access) -> Admit {
        Admit::No
    }
}

impl<
    const ROOM: usize,
    const LIST: usize,
    const B: u32,
    const W: usize,
    const M: usize,
    const C: usize,
    const BLOCKS: usize,
    const SPANS: usize,
> End<ROOM, LIST, B, W, M, C, BLOCKS, SPANS>
{
    /// An end of a connection that begins at time `now`: `own` and `peer` as entries name them,
    /// `psn` the first PSN that it sends and the first that it expects.
    pub fn new(config: &Config, now: u64, own: Name, peer: Name, psn: (u32, u32)) -> Self {
        let mut announcer = Announcer::new(&config.lists);
        announcer.connect(now, own, peer);
        let mut taker = Taker::new();
        taker.connect(own, peer);
        let mut receives = Receives::new(false);
        receives.connect();
        Self {
            announcer,
            taker,
            requester: Requester::new(config.requester, psn.0),
            responder: Responder::new(config.responder, psn.1, 0),
            sender: Sender::new(config.blocks, 0),
            receives,
            covered: 0,
            begun: 0,
            acked: 0,
            sends: Fifo::new(),
            open: Fifo::new(),
            held: None,
            broken: None,
        }
    }

    /// Why it is broken, if it is.
    pub const fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Nothing is held, under way or outstanding at the sending side, and no receive is left.
    pub fn idle(&self) -> bool {
        self.sender.idle() && self.receives.idle() && self.sends.is_empty()
    }

    /// All that was posted for sending has reached its place.
    pub fn sent_all(&self) -> bool {
        self.sends.is_empty() && self.sender.idle()
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_receive(&mut self, spans: &[Span]) -> Result<u16, PostError> {
        self.receives.post(spans)
    }

    /// What was posted since is one batch (decision 5).
    pub fn ring(&mut self) {
        self.receives.ring();
    }

    /// Posts a send; `tag` comes back in [`HostAction::Sent`].
    ///
    /// # Errors
    /// [`ChainError`].
    pub fn post_send(&mut self, tag: u32, places: &[Source], choice: Option<Choice>) -> Result<(), ChainError> {
        if self.sends.is_full() {
            return Err(ChainError::Full);
        }
        self.sender.post(places, choice)?;
        let (_, _, _, end) = self.sender.offsets();
        self.sends.push(Send { tag, end });
        self.requester.posted(end);
        self.cover();
        Ok(())
    }

    /// Bytes become covered as credits come (PC-2).
    fn cover(&mut self) {
        let mut bound = Bound::new(ROOM as u32 + 1);
        while let Some((_, size)) = self.taker.reader().peek(self.covered) {
            bound.step();
            if self.sender.cover(size).is_none() {
                break;
            }
            self.covered += 1;
        }
    }

    /// What the host is to do next; call until `None`.
    pub fn poll_host(&mut self) -> Option<HostAction> {
        if let Some(send) = self.sends.get(0).copied()
            && send.end <= self.acked
        {
            self.sends.pop();
            return Some(HostAction::Sent(send.tag));
        }
        if let Some(action) = self.sender.poll() {
            return Some(HostAction::Send(action));
        }
        let mut bound = Bound::new(2 * ROOM as u32 + 2);
        loop {
            bound.step();
            return Some(match self.receives.poll()? {
                receives::Action::Pin { tag } => HostAction::PinReceive(tag),
                receives::Action::Release { tag } => HostAction::ReleaseReceive(tag),
                receives::Action::Cancel { tag } => HostAction::CancelReceive(tag),
                receives::Action::Complete { tag, status } => HostAction::Received(tag, status),
                receives::Action::Post { size, .. } => {
                    // There is a place: the builder has as many as there are receives.
                    self.announcer.post(size);
                    continue;
                }
                receives::Action::Commit => {
                    self.announcer.commit();
                    continue;
                }
            });
        }
    }

    /// The host's answer about block `tag`.
    pub fn block_answer(&mut self, tag: u16, outcome: blocks::Outcome) -> bool {
        self.sender.answer(tag, outcome)
    }

    /// The host's answer about receive `tag`.
    pub fn receive_answer(&mut self, tag: u16, outcome: blocks::Outcome) -> bool {
        self.receives.answer(tag, outcome)
    }

    /// Where `len` bytes at stream offset `start` lie.
    pub fn block_spans(&self, start: u64, len: u64) -> impl Iterator<Item = Span> + Clone + '_ {
        self.sender.spans(start, len)
    }

    /// Block `tag`: (stream offset, bytes, usage).
    pub fn block(&self, tag: u16) -> Option<(u64, u64, crate::memory::pins::Usage)> {
        self.sender.block(tag)
    }

    /// Where receive `tag` lies.
    pub fn receive_spans(&self, tag: u16) -> impl Iterator<Item = Span> + Clone + '_ {
        self.receives.spans(tag)
    }

    /// Where the payload of a landing goes.
    pub fn landing_spans(&self, landing: &Landing) -> impl Iterator<Item = Span> + Clone + '_ {
        self.receives.part(landing.tag, landing.offset, landing.len)
    }

    /// Others lack memory: whole-send pins give way.
    pub fn give_way(&mut self) {
        self.sender.give_way();
    }

    /// Others lack memory: asks for unused credits of about `bytes` bytes back. True if there are any.
    pub fn recall(&mut self, bytes: u64) -> bool {
        // What is not announced yet cannot be had back from the peer.
        if self.announcer.recalling() || self.announcer.builder().outstanding() == 0 {
            return false;
        }
        let n = self.receives.recall(bytes);
        n > 0 && self.announcer.recall(n)
    }

    /// The next credit entry for the peer.
    pub fn poll_control(&mut self, now: u64) -> Option<Entry<LIST>> {
        if self.broken.is_some() {
            return None;
        }
        self.announcer.poll(now).or_else(|| self.taker.poll())
    }

    /// A credit entry has come. List credits are used after [`End::use_credits`].
    pub fn control(&mut self, entry: &Entry<LIST>) -> Option<Arrived> {
        match entry.body {
            Body::List(_) => Some(self.taker.arrive(entry)),
            Body::Recall { .. } => {
                let arrived = self.taker.arrive(entry);
                if arrived == Arrived::Recalled {
                    self.sender.uncover(self.begun);
                    self.covered = 0;
                    self.cover();
                }
                Some(arrived)
            }
            Body::Recalled { .. } | Body::Sync { .. } => {
                match self.announcer.hear(entry) {
                    Heard::Voided(first) => {
                        if !self.receives.recalled(first) {
                            self.fail(Broken::Peer);
                        }
                    }
                    Heard::Bad => self.fail(Broken::Peer),
                    Heard::Synced | Heard::Repeat | Heard::WrongEpoch => (),
                }
                None
            }
        }
    }

    /// Posts the other credit buffer, and then uses what has arrived (CR-11).
    pub fn use_credits(&mut self) {
        self.taker.process();
        self.cover();
    }

    /// The carrier has lost something: the peer is told what is missing (decision 6).
    pub fn resync(&mut self) {
        self.taker.resync();
    }

    /// The next data packet, if window, credits and memory are there.
    pub fn poll_request(&mut self, now: u64) -> Option<Departure> {
        let mut bound = Bound::new(W as u32 + 2);
        loop {
            bound.step();
            if self.broken.is_some() {
                return None;
            }
            let t = match self.held {
                Some(held) => held,
                None => {
                    self.begin();
                    self.requester.transmit(now)?
                }
            };
            self.held = Some(t);
            match self.sender.transmit(t.offset, t.packet.len) {
                blocks::Transmit::Ready { tag, copy } => {
                    self.held = None;
                    return Some(Departure { packet: t.packet, offset: t.offset, block: tag, copy, again: t.again });
                }
                blocks::Transmit::Waits => return None,
                // Acknowledged while it waited.
                blocks::Transmit::Outside => self.held = None,
                blocks::Transmit::Failed(error) => self.fail(Broken::Block(error)),
            }
        }
    }

    /// The next piece takes its credit.
    fn begin(&mut self) {
        if self.covered == 0 || self.requester.has_new() || self.requester.room() == 0 {
            return;
        }
        let Some(end) = self.sender.piece_end(self.begun) else {
            return;
        };
        let len = end.saturating_sub(self.begun).min(u32::MAX as u64) as u32;
        let Some((len, credit, _)) = self.taker.take(len) else {
            return;
        };
        self.covered -= 1;
        let imm = Immediate::Remaining;
        let message = Message { op: Op::Send, offset: self.begun, len, credit, imm, ..Message::default() };
        if self.requester.post(message).is_ok() {
            self.begun = self.begun.saturating_add(len as u64);
        }
    }

    /// The bytes of a packet have been read from block `tag`.
    pub fn left(&mut self, tag: u16) -> bool {
        self.sender.sent(tag)
    }

    /// A data packet has come; where its payload goes, if it has one that is new.
    pub fn request(&mut self, now: u64, packet: &RequestPacket) -> Option<Landing> {
        if self.broken.is_some() {
            return None;
        }
        let mut credits = Credits { announcer: &self.announcer, open: &self.open };
        let verdict = self.responder.receive(packet, &mut credits);
        let landing = match verdict {
            Verdict::Place(Place::Receive { credit, offset }) => {
                match self.receives.write(credit, offset, packet.len) {
                    Ok(tag) => Some(Landing { psn: packet.psn, tag, offset, len: packet.len }),
                    Err(refusal) => {
                        self.responder.fail();
                        self.fail(match refusal {
                            receives::Refusal::Withdrawn => Broken::Withdrawn,
                            _ => Broken::Peer,
                        });
                        None
                    }
                }
            }
            _ => None,
        };
        self.events(now);
        landing
    }

    /// The payload of packet `psn` for receive `tag` is in memory.
    pub fn placed(&mut self, now: u64, psn: u32, tag: u16) {
        self.receives.written(tag);
        self.responder.placed(psn);
        self.events(now);
    }

    fn events(&mut self, now: u64) {
        let mut bound = Bound::new(3 * W as u32 + 4);
        while let Some(event) = self.responder.event() {
            bound.step();
            let fine = match event {
                Event::Landed { credit } => {
                    let size = self.announcer.builder().size_of(credit).unwrap_or(0);
                    let known = self.announcer.landed(now, None) && self.open.push(Open { credit, size });
                    known && self.receives.begin(credit).is_ok()
                }
                Event::Received { credit, len, imm, .. } => {
                    if let Some(open) = self.open.pop() {
                        self.announcer.wasted(now, open.size.saturating_sub(len));
                    }
                    if let Some(remaining) = imm {
                        self.announcer.remaining(remaining);
                    }
                    self.receives.filled(credit, len).is_ok()
                }
                Event::Broken(_) | Event::PageFault(_) => false,
                // A stream has no keys.
                Event::Invalidate { .. } => {
                    self.responder.invalidated(false);
                    true
                }
                // Only SENDs are admitted.
                Event::Atomic { .. } | Event::Used { .. } => true,
            };
            if !fine {
                self.fail(Broken::Peer);
            }
        }
    }

    /// The next acknowledgement or refusal for the peer.
    pub fn poll_response(&mut self, now: u64) -> Option<ResponsePacket> {
        let reply = self.responder.respond()?;
        self.events(now);
        Some(reply.packet)
    }

    /// An acknowledgement or refusal has come.
    pub fn response(&mut self, now: u64, packet: &ResponsePacket) -> Heed {
        let heed = self.requester.response(now, packet);
        self.completions();
        heed
    }

    fn completions(&mut self) {
        let mut bound = Bound::new(M as u32 + 1);
        while let Some(done) = self.requester.complete() {
            bound.step();
            match done.status {
                Status::Done => self.acked = self.acked.saturating_add(done.len as u64),
                status => return self.fail(Broken::Requester(status)),
            }
        }
        self.sender.acknowledged(self.acked);
        self.cover();
    }

    /// When [`End::tick`] and [`End::poll_control`] want to be called.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        match (self.requester.deadline(), self.announcer.deadline(now)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The requester's timer may have run out.
    pub fn tick(&mut self, now: u64) {
        if self.requester.tick(now) {
            self.completions();
        }
    }

    /// The connection is over: memory is released and everything completes.
    pub fn close(&mut self) {
        self.fail(Broken::Closed);
    }

    fn fail(&mut self, why: Broken) {
        if self.broken.is_none() {
            self.broken = Some(why);
        }
        self.held = None;
        self.sender.close();
        self.receives.close();
        let mut bound = Bound::new(C as u32);
        while self.sends.pop().is_some() {
            bound.step();
        }
    }

    /// Memory in `va .. va + len` was taken from the card (VC-9): how many announced receives are withdrawn.
    pub fn withdrawn(&mut self, va: u64, len: u64) -> u32 {
        self.sender.withdrawn(va, len);
        self.receives.withdrawn(va, len)
    }

    /// The credit machines, to inspect.
    pub const fn credits(&self) -> (&Announcer<ROOM, LIST>, &Taker<ROOM, LIST>) {
        (&self.announcer, &self.taker)
    }

    /// The sender's window machine.
    pub const fn requester(&self) -> &Requester<B, W, M> {
        &self.requester
    }

    /// The receives.
    pub const fn receives(&self) -> &Receives<ROOM, SPANS> {
        &self.receives
    }
}
