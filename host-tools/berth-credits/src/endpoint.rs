// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of a connection with credits: it sends and it receives (CR-14).
//!
//! The receives that a program posts become credits, and go to the peer as lists (CR-1). What a program sends is cut to the
//! peer's credits, in order; without a credit it is held (CR-3). When a list goes is a policy's decision (CR-5 to CR-9), and
//! a cap may withhold credits (CR-10). All of that is done by the state machines of `berth_protocol::credit`.
//!
//! Nothing blocks: [`Endpoint::progress`] does what can be done at a time that the caller says. Times are nanoseconds, or of
//! any other unit that the caller keeps to.

use crate::transport::{Completion, Error, LIST, Message, ROOM, Transport};
use berth_protocol::credit::announcer::{self, Announcer, Heard};
use berth_protocol::credit::cut::{Cut, LibraryCut, Mode, Out, Piece, Refused, Send, gather};
use berth_protocol::credit::entry::Body;
use berth_protocol::credit::policy::{Cap, Settings};
use berth_protocol::credit::taker::{Arrived, Taker};
use std::collections::VecDeque;

/// Sends that wait to be cut, at most.
pub const SENDS: usize = 256;
/// Pieces that are cut ahead of the transport.
const PIECES: usize = 16;
/// Things of one kind that one call of [`Endpoint::progress`] does, at most: a busy peer does not keep it.
const TURN: usize = 2 * ROOM;

/// How an [`Endpoint`] announces its receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When the next list goes (CR-5 to CR-9).
    pub policy: Settings,
    /// Bandwidth that the peer must not exceed (CR-10).
    pub cap: Option<Cap>,
    /// Credits of a list, 1 to [`LIST`]; others count as the nearest.
    pub list: u32,
    /// More credits than so many are new when a list goes, or no more are with the peer (CR-4).
    pub few: u32,
    /// Time after which a list is repeated, if the transport may have lost it; longer each time.
    pub repeat: u64,
}

impl Default for Options {
    /// The default policy, longest lists, no cap; repeats after 50 ms, if times are nanoseconds.
    fn default() -> Self {
        Self { policy: Settings::DEFAULT, cap: None, list: LIST as u32, few: 0, repeat: 50_000_000 }
    }
}

/// Why something is not posted; nothing is changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// [`ROOM`] receives, or [`SENDS`] sends, wait already.
    Full,
    /// A receive of no bytes, or a send of 2^31 bytes or more, or of 2^16 buffers or more.
    Length,
    /// A receive outside the transport's memory.
    Range,
    /// The connection has ended.
    Ended(Error),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full => write!(f, "no more can be posted now"),
            Self::Length => write!(f, "this length is not possible"),
            Self::Range => write!(f, "outside the memory to receive into"),
            Self::Ended(error) => write!(f, "the connection has ended: {error}"),
        }
    }
}

impl std::error::Error for Reason {}

/// A send that is not posted.
#[derive(Debug)]
pub struct Unposted<B> {
    /// Why.
    pub reason: Reason,
    /// The caller's buffers.
    pub buffers: Vec<B>,
}

/// What happened to something that was posted.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<B> {
    /// A receive is filled, by one piece of a send.
    Received {
        /// The caller's number of it.
        id: u64,
        /// Where its bytes are: see [`Endpoint::read`].
        offset: u32,
        /// Bytes, at most as many as the receive has.
        len: u32,
        /// Bytes that the peer still has to send (CR-9).
        remaining: u32,
    },
    /// All bytes of a send have left.
    Sent {
        /// The caller's number of it.
        id: u64,
        /// The caller's buffers.
        buffers: Vec<B>,
    },
    /// The connection ended before the receive was filled.
    NotReceived {
        /// The caller's number of it.
        id: u64,
    },
    /// The connection ended before the send was done. The peer may have got a part of it.
    NotSent {
        /// The caller's number of it.
        id: u64,
        /// The caller's buffers.
        buffers: Vec<B>,
    },
}

/// Counts since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages with credits that were sent; a long list takes one message.
    pub lists_sent: u64,
    /// Messages with credits that came.
    pub lists_received: u64,
    /// Credits that were announced.
    pub credits_sent: u64,
    /// Credits that came.
    pub credits_received: u64,
    /// Pieces that were sent.
    pub pieces_sent: u64,
    /// Pieces that came.
    pub pieces_received: u64,
    /// Bytes that were sent.
    pub bytes_sent: u64,
    /// Bytes that came.
    pub bytes_received: u64,
    /// Bytes of receives that were not filled (CR-2).
    pub bytes_wasted: u64,
    /// Calls of [`Endpoint::progress`] that left data waiting for a credit (CR-3).
    pub held: u64,
}

/// A receive that is posted and not filled.
#[derive(Debug)]
struct Receive {
    id: u64,
    offset: u32,
    len: u32,
}

/// A send that is not complete.
#[derive(Debug)]
struct Sending<B> {
    id: u64,
    buffers: Vec<B>,
    /// What [`gather`] wants: number of the buffer in bits 63:32, and its bytes.
    list: Vec<(u64, u32)>,
    /// Pieces that the transport has.
    posted: u32,
    /// There are no more pieces.
    cut: bool,
}

/// One end of a connection. `B` holds bytes to be sent: `Vec<u8>`, `Arc<[u8]>`, `&[u8]`.
pub struct Endpoint<T, B = Vec<u8>> {
    transport: T,
    announcer: Announcer<ROOM, LIST, 32>,
    taker: Taker<ROOM, LIST, 32>,
    cutter: LibraryCut<SENDS, PIECES>,
    receives: VecDeque<Receive>,
    sends: VecDeque<Sending<B>>,
    /// Sends that were completed: the oldest of `sends` has this number.
    done: u64,
    /// Numbers of the sends that posted pieces belong to.
    pieces: VecDeque<u64>,
    /// A message that the transport had no room for.
    waiting: Option<Message>,
    events: VecDeque<Event<B>>,
    counters: Counters,
    ended: Option<Error>,
}

impl<T: std::fmt::Debug, B> std::fmt::Debug for Endpoint<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("transport", &self.transport)
            .field("counters", &self.counters)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl<T: Transport, B: AsRef<[u8]>> Endpoint<T, B> {
    /// An end of a connection that begins at time `now`.
    pub fn new(transport: T, options: &Options, now: u64) -> Self {
        let (own, peer) = transport.names();
        let mut announcer = Announcer::new(&announcer::Options {
            max_list: options.list,
            part: transport.part(),
            few: options.few,
            repeat: if transport.loses() { options.repeat } else { u64::MAX },
            probe: 0,
            policy: options.policy,
            cap: options.cap,
        });
        let mut taker = Taker::new();
        announcer.connect(now, own, peer);
        taker.connect(own, peer);
        Self {
            transport,
            announcer,
            taker,
            cutter: LibraryCut::new(Mode::Stream),
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            done: 0,
            pieces: VecDeque::new(),
            waiting: None,
            events: VecDeque::new(),
            counters: Counters::default(),
            ended: None,
        }
    }

    /// Posts a receive of `len` bytes, not 0, at byte `offset` of the transport's memory. The caller gives that range away
    /// until the receive's event. The receive is announced after [`Endpoint::commit`].
    ///
    /// # Errors
    /// See [`Reason`].
    pub fn post_receive(&mut self, id: u64, offset: u32, len: u32) -> Result<(), Reason> {
        if let Some(error) = self.ended {
            return Err(Reason::Ended(error));
        }
        if len == 0 {
            return Err(Reason::Length);
        }
        if offset.checked_add(len).is_none_or(|end| end > self.transport.memory()) {
            return Err(Reason::Range);
        }
        if self.receives.len() == ROOM || self.announcer.post(len).is_none() {
            return Err(Reason::Full);
        }
        // The peer must find the receive when it gets the credit.
        self.receives.push_back(Receive { id, offset, len });
        if let Err(error) = self.transport.post_receive(offset, len) {
            self.receives.pop_back();
            self.end(error);
            return Err(Reason::Ended(error));
        }
        Ok(())
    }

    /// The receives that are posted may be announced.
    pub fn commit(&mut self) {
        self.announcer.commit();
    }

    /// Posts a send: the bytes of all `buffers`, one after the other. They are not copied before they are sent. A send of no
    /// bytes is complete when those before it are, and the peer gets nothing.
    ///
    /// # Errors
    /// See [`Reason`]. The buffers come back.
    pub fn post_send(&mut self, id: u64, buffers: Vec<B>) -> Result<(), Unposted<B>> {
        let list = match self.ended {
            Some(error) => Err(Reason::Ended(error)),
            None => self.enqueue(&buffers),
        };
        match list {
            Ok(list) => {
                self.sends.push_back(Sending { id, buffers, list, posted: 0, cut: false });
                Ok(())
            }
            Err(reason) => Err(Unposted { reason, buffers }),
        }
    }

    fn enqueue(&mut self, buffers: &[B]) -> Result<Vec<(u64, u32)>, Reason> {
        let list: Option<Vec<_>> = (0u64..1 << 16)
            .zip(buffers)
            .map(|(i, buffer)| u32::try_from(buffer.as_ref().len()).ok().map(|len| (i << 32, len)))
            .collect();
        let list = list.filter(|list| list.len() == buffers.len()).ok_or(Reason::Length)?;
        let len = list.iter().try_fold(0u32, |sum, (_, len)| sum.checked_add(*len)).ok_or(Reason::Length)?;
        let number = self.done + self.sends.len() as u64;
        if self.sends.len() == SENDS {
            return Err(Reason::Full);
        }
        match self.cutter.post(Send { id: number, len, ..Send::default() }) {
            Ok(()) => Ok(list),
            Err(Refused::Full) => Err(Reason::Full),
            Err(_) => Err(Reason::Length),
        }
    }

    /// Does what can be done at time `now`; the next call says the same time or a later one. True when something was done,
    /// so that it is worth while to call again at once.
    ///
    /// # Errors
    /// The connection has ended, and the events of all that was posted are there. Says the same at each later call.
    pub fn progress(&mut self, now: u64) -> Result<bool, Error> {
        if let Some(error) = self.ended {
            return Err(error);
        }
        self.step(now).inspect_err(|error| self.end(*error))
    }

    fn step(&mut self, now: u64) -> Result<bool, Error> {
        let mut moved = false;
        for _ in 0..TURN {
            let Some(message) = self.transport.get()? else {
                break;
            };
            moved = true;
            self.hear(&message)?;
        }
        for _ in 0..TURN {
            let Some(completion) = self.transport.poll()? else {
                break;
            };
            moved = true;
            match completion {
                Completion::Sent => self.sent()?,
                Completion::Received { len, remaining } => self.received(now, len, remaining)?,
            }
        }
        for _ in 0..TURN {
            if !self.transport.can_send() {
                break;
            }
            let Some(out) = self.cutter.poll(&mut self.taker) else {
                self.counters.held += u64::from(self.cutter.remaining() != 0);
                break;
            };
            moved = true;
            self.send(out)?;
        }
        self.complete();
        for _ in 0..TURN {
            let next = self.waiting.take().or_else(|| self.taker.poll()).or_else(|| self.announcer.poll(now));
            let Some(message) = next else {
                break;
            };
            if !self.transport.put(&message)? {
                self.waiting = Some(message);
                break;
            }
            moved = true;
            if let Body::List(part) = &message.body {
                self.counters.lists_sent += 1;
                self.counters.credits_sent += u64::from(part.len);
            }
        }
        Ok(moved)
    }

    /// A message about credits has come.
    fn hear(&mut self, message: &Message) -> Result<(), Error> {
        match &message.body {
            // In stream mode a receive of no bytes is never announced.
            Body::List(part) if part.sizes().contains(&0) => return Err(Error::BadList(Arrived::Bad)),
            Body::List(part) => {
                self.counters.lists_received += 1;
                let arrived = self.taker.accept(message);
                match arrived {
                    Arrived::Buffered => self.counters.credits_received += u64::from(part.len),
                    Arrived::Repeat | Arrived::Stale => (),
                    bad => return Err(Error::BadList(bad)),
                }
            }
            Body::Recall { .. } => match self.taker.accept(message) {
                Arrived::Recalled | Arrived::Stale => (),
                bad => return Err(Error::BadList(bad)),
            },
            Body::Recalled { .. } | Body::Sync { .. } => match self.announcer.hear(message) {
                Heard::Synced | Heard::Repeat => (),
                // This end asks for no credits back.
                bad => return Err(Error::BadAnswer(bad)),
            },
        }
        Ok(())
    }

    /// The oldest receive is filled.
    fn received(&mut self, now: u64, len: u32, remaining: u32) -> Result<(), Error> {
        let Some(receive) = self.receives.front() else {
            return Err(Error::NoCredit);
        };
        if len == 0 {
            return Err(Error::Empty);
        }
        if len > receive.len {
            return Err(Error::TooLong { len, size: receive.len });
        }
        if !self.announcer.landed(now, Some(remaining)) {
            return Err(Error::NoCredit);
        }
        let wasted = receive.len - len;
        self.announcer.wasted(now, wasted);
        self.counters.pieces_received += 1;
        self.counters.bytes_received += u64::from(len);
        self.counters.bytes_wasted += u64::from(wasted);
        self.events.push_back(Event::Received { id: receive.id, offset: receive.offset, len, remaining });
        self.receives.pop_front();
        Ok(())
    }

    /// The send with this number.
    fn sending(&mut self, number: u64) -> Option<&mut Sending<B>> {
        self.sends.get_mut(usize::try_from(number.checked_sub(self.done)?).ok()?)
    }

    /// The transport is done with the oldest piece.
    fn sent(&mut self) -> Result<(), Error> {
        let number = self.pieces.pop_front().ok_or(Error::BadMedium)?;
        if let Some(sending) = self.sending(number) {
            sending.posted -= 1;
        }
        Ok(())
    }

    /// Sends a piece.
    fn send(&mut self, out: Out) -> Result<(), Error> {
        let piece = match out {
            Out::Piece(piece) => piece,
            Out::Empty(number) => {
                if let Some(sending) = self.sending(number) {
                    sending.cut = true;
                }
                return Ok(());
            }
            // Of message mode only.
            Out::TooLong(_) | Out::Write { .. } => return Ok(()),
        };
        let Piece { id: number, offset, len, last, immediate, .. } = piece;
        let at = number.checked_sub(self.done).and_then(|at| usize::try_from(at).ok());
        let Some(sending) = at.and_then(|at| self.sends.get_mut(at)) else {
            return Ok(());
        };
        let buffers = &sending.buffers;
        let mut parts = gather(&sending.list, offset, len).map(|(address, len)| {
            let (buffer, from) = ((address >> 32) as usize, address as u32 as usize);
            let bytes = buffers.get(buffer).map_or(&[][..], B::as_ref);
            bytes.get(from..).and_then(|rest| rest.get(..len as usize)).unwrap_or(&[])
        });
        self.transport.post_send(&mut parts, len, immediate.unwrap_or(0))?;
        sending.posted += 1;
        sending.cut = last;
        self.pieces.push_back(number);
        self.counters.pieces_sent += 1;
        self.counters.bytes_sent += u64::from(len);
        Ok(())
    }

    /// Says which sends are complete.
    fn complete(&mut self) {
        while self.sends.front().is_some_and(|sending| sending.cut && sending.posted == 0) {
            let Some(Sending { id, buffers, .. }) = self.sends.pop_front() else {
                return;
            };
            self.done += 1;
            self.events.push_back(Event::Sent { id, buffers });
        }
    }

    /// The connection has ended.
    fn end(&mut self, error: Error) {
        self.ended = Some(error);
        self.events.extend(self.receives.drain(..).map(|receive| Event::NotReceived { id: receive.id }));
        self.events.extend(self.sends.drain(..).map(|Sending { id, buffers, .. }| Event::NotSent { id, buffers }));
    }

    /// The next event. Receives come in the order in which they were posted, and so do sends.
    pub fn event(&mut self) -> Option<Event<B>> {
        self.events.pop_front()
    }

    /// When [`Endpoint::progress`] has something to do though the peer does nothing; `None`: not before the peer does
    /// something, or the caller posts.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        match (self.ended, &self.waiting) {
            (Some(_), _) => None,
            (None, Some(_)) => Some(now),
            (None, None) if self.transport.waits() => Some(now),
            (None, None) => self.announcer.deadline(now).filter(|at| *at != u64::MAX),
        }
    }

    /// Copies received bytes out, from byte `offset` on. False: not all of that lies in the transport's memory.
    pub fn read(&self, offset: u32, out: &mut [u8]) -> bool {
        self.transport.read(offset, out)
    }

    /// Bytes that are posted and not sent.
    pub fn unsent(&self) -> u32 {
        self.cutter.remaining()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The transport.
    pub fn transport(&self) -> &T {
        &self.transport
    }
}
