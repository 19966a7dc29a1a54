// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The receiving end of one direction: sets that the peer writes to, elements in them, answers, and what is given back.

use std::collections::VecDeque;

use berth_protocol::service::grow::{
    ANSWER_AT, Answer, Config, Frame, OFFER_BYTES, Offer, Place, Receiver, ReceiverAction, Request, TALLY_AT, Tally,
};
use berth_queue::Remote;

use super::error::{ChannelError, Refused};
use super::medium::{Medium, Tag};
use super::{Arrived, Fetched};
use crate::mapping::Buffer;
use crate::stream::MAX_SGE_BYTES;

/// An answer is not repeated in more calls than so many.
const LONGEST_PAUSE: u32 = 1024;

/// Where an element is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// At this byte of the set of this level.
    Buffer { level: usize, at: usize },
    /// In the peer's memory.
    Peer(Place),
}

#[derive(Clone, Copy, Debug)]
struct Element {
    at: At,
    len: u32,
    last: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Receiving<M: Medium, const LEVELS: usize> {
    config: Config<LEVELS>,
    machine: Receiver<LEVELS>,
    /// Sets, by level.
    sets: [Option<M::Open>; LEVELS],
    /// Buffer of the present set that is filled next.
    slot: u32,
    /// Elements that nobody took, oldest first.
    waiting: VecDeque<Element>,
    /// The oldest one is being READ.
    reading: bool,
    /// It is there. What is behind it waits until it was taken.
    fetched: Option<Fetched>,
    /// What the peer is to be told: an answer, a tally.
    answer: Option<Answer>,
    tally: Tally,
    untold: u32,
    /// Calls until the answer is written again, and those since.
    pause: u32,
    calls: u32,
    bad: Option<&'static str>,
}

impl<M: Medium, const LEVELS: usize> Receiving<M, LEVELS> {
    /// `None` without memory or a key for the first set.
    pub(super) fn new(config: Config<LEVELS>, medium: &mut M) -> Option<Self> {
        let mut sets = [const { None }; LEVELS];
        *sets.first_mut()? = Some(medium.open(config.bytes(0) as usize)?);
        Some(Self {
            config,
            machine: Receiver::new(config),
            sets,
            slot: 0,
            waiting: VecDeque::new(),
            reading: false,
            fetched: None,
            answer: None,
            tally: Tally::default(),
            untold: 0,
            pause: 1,
            calls: 0,
            bad: None,
        })
    }

    /// The first set, for the peer.
    pub(super) fn first(&self) -> Remote {
        self.sets.first().and_then(Option::as_ref).map_or(Remote { va: 0, key: 0 }, M::remote)
    }

    /// The peer has filled the next buffer, or done something that no channel does.
    pub(super) fn arrived(&mut self, medium: &mut M, code: Option<u32>, len: u32) {
        if self.bad.is_none() {
            self.bad = self.take(medium, code, len).err();
        }
    }

    fn take(&mut self, medium: &mut M, code: Option<u32>, len: u32) -> Result<(), &'static str> {
        let frame = code.and_then(Frame::of).ok_or("a message of no kind")?;
        let level = self.machine.level();
        let size = self.config.size(level);
        if len > size {
            return Err("more than a buffer takes");
        }
        let at = self.slot as usize * size as usize;
        let words = self.sets.get(level).and_then(Option::as_ref).map(M::words).ok_or("a set that is gone")?;
        let slot = (self.slot + 1) % self.config.count;
        match frame {
            Frame::Request => {
                let mut bytes = [0; 8];
                words.get(at, &mut bytes);
                let request = Request::decode(&bytes).filter(|_| len as usize == bytes.len());
                let Request { phase, size } = request.ok_or("a request of another length")?;
                self.slot = slot;
                self.pause = 1;
                self.calls = 0;
                // What cannot be is refused by the machine's answer.
                self.machine.request(phase, size);
                self.act(medium);
            }
            Frame::Offer { last } => {
                let bytes: [u8; OFFER_BYTES] = words.array(at);
                let offer = Offer::decode(&bytes).filter(|o| len as usize == OFFER_BYTES && within(o.len));
                let Offer { place, len } = offer.ok_or("an offer that cannot be")?;
                self.push(Element { at: At::Peer(place), len, last })?;
                self.slot = slot;
            }
            Frame::Element { last } => {
                self.push(Element { at: At::Buffer { level, at }, len, last })?;
                self.slot = slot;
            }
        }
        Ok(())
    }

    fn push(&mut self, element: Element) -> Result<(), &'static str> {
        if !self.machine.message() {
            return Err("more than there are buffers");
        }
        self.waiting.push_back(element);
        Ok(())
    }

    fn act(&mut self, medium: &mut M) {
        while let Some(action) = self.machine.poll() {
            match action {
                ReceiverAction::Provision { size, .. } => {
                    let level = self.config.level_of(size);
                    let open = level.and_then(|level| medium.open(self.config.bytes(level) as usize));
                    let place = open.as_ref().map(M::remote).map(|Remote { va, key }| (va, key));
                    if let (Some(open), Some(set)) = (open, level.and_then(|level| self.sets.get_mut(level))) {
                        *set = Some(open);
                        self.slot = 0;
                    }
                    self.machine.provisioned(place);
                }
                ReceiverAction::Answer(answer) => self.answer = Some(answer),
                ReceiverAction::Free { size, .. } => {
                    let level = self.config.level_of(size);
                    if let Some(set) = level.and_then(|level| self.sets.get_mut(level)) {
                        *set = None;
                    }
                }
                ReceiverAction::Release { phase, n } => {
                    let freed = if self.tally.set == phase { self.tally.freed } else { 0 };
                    (self.tally.set, self.tally.freed) = (phase, freed.wrapping_add(n));
                    self.untold += n;
                }
            }
        }
    }

    /// Writes to the peer's control memory what it is to know, if `all`, or else if much is; answers whether.
    pub(super) fn tell(&mut self, medium: &mut M, control: Place, all: bool) -> Result<bool, ChannelError> {
        let to = |at: usize| Remote { va: control.addr.wrapping_add(at as u64), key: control.rkey };
        if medium.room() == 0 {
            return Ok(false);
        }
        if let Some(answer) = self.answer.take() {
            medium.write_now(&answer.encode(), to(ANSWER_AT), None, Tag::Control)?;
            return Ok(true);
        }
        if self.untold > 0 && (all || self.untold >= self.config.count / 4) {
            medium.write_now(&self.tally.encode(), to(TALLY_AT), None, Tag::Control)?;
            self.untold = 0;
            return Ok(true);
        }
        Ok(false)
    }

    /// A call has come, and the last answer is written: now and then it is written again (BE-7).
    pub(super) fn repeat(&mut self, medium: &mut M) {
        self.calls += 1;
        if self.calls >= self.pause {
            self.calls = 0;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            if self.machine.repeat() {
                self.act(medium);
            }
        }
    }

    /// The oldest element that nobody took.
    fn oldest(&self) -> Result<Option<Element>, ChannelError> {
        match (self.waiting.front(), self.bad) {
            _ if self.reading || self.fetched.is_some() => Ok(None),
            (Some(element), _) => Ok(Some(*element)),
            (None, Some(what)) => Err(ChannelError::BadFrame(what)),
            (None, None) => Ok(None),
        }
    }

    pub(super) fn peek(&self) -> Result<Option<Arrived>, ChannelError> {
        let arrived = |e: Element| Arrived { len: e.len as usize, last: e.last, offered: matches!(e.at, At::Peer(_)) };
        Ok(self.oldest()?.map(arrived))
    }

    /// Copies the oldest element.
    pub(super) fn receive(&mut self, medium: &mut M, into: &mut [u8]) -> Result<Option<Arrived>, ChannelError> {
        let Some(arrived) = self.peek()? else { return Ok(None) };
        let len = arrived.len;
        let Some(Element { at: At::Buffer { level, at }, .. }) = self.oldest()? else {
            return Err(ChannelError::IsOffered { len });
        };
        let into = into.get_mut(..len).ok_or(ChannelError::TooSmall { len })?;
        if let Some(set) = self.sets.get(level).and_then(Option::as_ref) {
            M::words(set).get(at, into);
        }
        self.consume(medium);
        Ok(Some(arrived))
    }

    /// Has the oldest element put into a buffer; `Ok(Some(_))`: not yet.
    pub(super) fn fetch(&mut self, medium: &mut M, mut into: Buffer) -> Result<Option<Buffer>, Refused> {
        let Element { at, len, last } = match self.oldest() {
            Err(error) => return Err(Refused::with(error, into)),
            Ok(Some(element)) => element,
            Ok(None) => return Ok(Some(into)),
        };
        if into.len() < len as usize {
            return Err(Refused::with(ChannelError::TooSmall { len: len as usize }, into));
        }
        match at {
            At::Peer(Place { addr, rkey }) if len > 0 => {
                if medium.room() == 0 {
                    return Ok(Some(into));
                }
                medium.read(into, len, Remote { va: addr, key: rkey })?;
                self.reading = true;
            }
            At::Buffer { level, at } => {
                if let (Some(set), Some(into)) =
                    (self.sets.get(level).and_then(Option::as_ref), into.get_mut(..len as usize))
                {
                    M::words(set).get(at, into);
                }
                self.put_fetched(medium, into, len, last);
            }
            At::Peer(_) => self.put_fetched(medium, into, len, last),
        }
        Ok(None)
    }

    /// The READ is done.
    pub(super) fn is_read(&mut self, medium: &mut M, buffer: Buffer) {
        self.reading = false;
        if let Some(Element { len, last, .. }) = self.waiting.front().copied() {
            self.put_fetched(medium, buffer, len, last);
        }
    }

    fn put_fetched(&mut self, medium: &mut M, buffer: Buffer, len: u32, last: bool) {
        self.fetched = Some(Fetched { buffer, len: len as usize, last });
        self.consume(medium);
    }

    pub(super) fn fetched(&mut self) -> Option<Fetched> {
        self.fetched.take()
    }

    /// Gives the oldest element back unread.
    pub(super) fn skip(&mut self, medium: &mut M) -> Result<Option<Arrived>, ChannelError> {
        let skipped = self.peek()?;
        if skipped.is_some() {
            self.consume(medium);
        }
        Ok(skipped)
    }

    fn consume(&mut self, medium: &mut M) {
        self.waiting.pop_front();
        self.machine.consumed(1);
        self.tally.consumed = self.tally.consumed.wrapping_add(1);
        // Of an older set nothing is released, but an offer may be done.
        self.untold = self.untold.max(1);
        self.act(medium);
    }

    /// Whether the peer is to be told something.
    pub(super) fn has_news(&self) -> bool {
        self.untold > 0 || self.answer.is_some()
    }

    pub(super) fn level(&self) -> usize {
        self.machine.level()
    }

    /// Bytes of all sets.
    pub(super) fn bytes(&self) -> usize {
        self.sets.iter().flatten().map(|set| M::words(set).len()).sum()
    }
}

/// Whether so long an element can be READ by one element of the queue.
fn within(len: u32) -> bool {
    len as usize <= MAX_SGE_BYTES
}
