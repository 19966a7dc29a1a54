// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sending end of one direction: own buffers, requests for larger ones, offers.

use std::collections::VecDeque;

use berth_protocol::service::grow::{
    ANSWER_AT, ANSWER_BYTES, Config, Frame, OFFER_BYTES, Offer, Place, Progress, Request, Sender, SenderAction,
    TALLY_AT, TALLY_BYTES, Tally,
};
use berth_queue::Remote;

use super::Status;
use super::error::{ChannelError, Refused};
use super::medium::{Medium, Tag};
use super::words::Words;
use crate::mapping::Buffer;
use crate::stream::MAX_SGE_BYTES;

/// An element that the peer was offered.
#[derive(Debug)]
struct Offering<O> {
    /// Number of the element, modulo 2^32.
    number: u32,
    offered: O,
    bytes: usize,
    /// The buffer is a copy of ours, and goes when it is done.
    copied: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Sending<M: Medium, const LEVELS: usize> {
    config: Config<LEVELS>,
    machine: Sender<LEVELS>,
    /// Buffers that elements are copied into, the next of them, and how many the card has. One fewer than the peer has, as a
    /// request takes one there and none here.
    own: Words,
    next: usize,
    staged: u32,
    /// Number of that set.
    generation: u32,
    /// The peer's buffers of the first level.
    first: Place,
    /// The last tally seen, and elements sent.
    seen: Tally,
    sent: u32,
    offers: VecDeque<Offering<M::Offered>>,
    returned: VecDeque<Buffer>,
    lens: Vec<u32>,
    bad: bool,
}

impl<M: Medium, const LEVELS: usize> Sending<M, LEVELS> {
    /// `None` without memory for its own buffers.
    pub(super) fn new(config: Config<LEVELS>, medium: &mut M) -> Option<Self> {
        Some(Self {
            config,
            machine: Sender::new(config),
            own: Self::buffers(medium, &config, config.size(0))?,
            next: 0,
            staged: 0,
            generation: 0,
            first: Place::default(),
            seen: Tally::default(),
            sent: 0,
            offers: VecDeque::new(),
            returned: VecDeque::new(),
            lens: Vec::new(),
            bad: false,
        })
    }

    fn buffers(medium: &mut M, config: &Config<LEVELS>, size: u32) -> Option<Words> {
        medium.own(size as usize * (config.count as usize - 1))
    }

    pub(super) fn begin(&mut self, first: Place) {
        self.first = first;
    }

    /// Sends what goes of a vector now.
    pub(super) fn send(&mut self, medium: &mut M, vector: &[&[u8]]) -> Result<Status, ChannelError> {
        if self.bad {
            return Err(ChannelError::BadTally);
        }
        let Some(first) = vector.first() else {
            return Ok(Status::default());
        };
        let len = |element: &&[u8]| u32::try_from(element.len()).unwrap_or(u32::MAX);
        if self.config.offers(len(first)) {
            return self.offer_copy(medium, first, vector.len() == 1);
        }
        let room = medium.room().min((self.config.count - 1 - self.staged) as usize);
        if room == 0 {
            return Ok(Status::default());
        }
        self.lens.clear();
        self.lens.extend(vector.iter().map(len).take_while(|len| !self.config.offers(*len)).take(room));
        let Progress::Now { elements, slot, .. } = self.machine.send(&self.lens)? else {
            return Ok(Status::default());
        };
        let mut status = Status::default();
        for (n, element) in vector.iter().take(elements).enumerate() {
            let size = self.config.size(self.machine.levels().0) as usize;
            let at = self.next * size;
            self.next = (self.next + 1) % (self.config.count as usize - 1);
            self.own.put(at, element);
            let code = Frame::Element { last: n + 1 == vector.len() }.code();
            let to = self.buffer(slot + n as u32);
            medium.write(&self.own, at, element.len(), to, code, Tag::Staged(self.generation))?;
            self.staged += 1;
            self.sent = self.sent.wrapping_add(1);
            status.elements += 1;
            status.bytes += element.len();
        }
        Ok(status)
    }

    /// Offers a copy of an element, one at a time: so the memory for copies is bounded.
    fn offer_copy(&mut self, medium: &mut M, element: &[u8], last: bool) -> Result<Status, ChannelError> {
        if element.len() > MAX_SGE_BYTES {
            return Err(ChannelError::TooLarge);
        }
        if self.offers.iter().any(|o| o.copied) {
            return Ok(Status::default());
        }
        if !self.may_offer(medium)? {
            return Ok(Status::default());
        }
        // It is bounded by the caller's own memory, and refused as any other.
        let buffer = Buffer::from_slice(element).map_err(|_| ChannelError::NoMemory)?;
        match self.offer_now(medium, buffer, last, true) {
            Ok(()) => Ok(Status { elements: 1, bytes: element.len() }),
            Err(refused) => Err(refused.error),
        }
    }

    /// Offers a buffer; `Ok(Some(_))`: not yet.
    pub(super) fn offer(&mut self, medium: &mut M, buffer: Buffer) -> Result<Option<Buffer>, Refused> {
        if buffer.len() > MAX_SGE_BYTES {
            return Err(Refused::with(ChannelError::TooLarge, buffer));
        }
        match self.may_offer(medium) {
            Err(error) => Err(Refused::with(error, buffer)),
            Ok(false) => Ok(Some(buffer)),
            Ok(true) => self.offer_now(medium, buffer, true, false).map(|()| None),
        }
    }

    /// Whether there is a buffer for an offer now, and the buffers of earlier ones have been taken back.
    fn may_offer(&mut self, medium: &M) -> Result<bool, ChannelError> {
        if self.bad {
            return Err(ChannelError::BadTally);
        }
        let held = self.offers.len() + self.returned.len();
        if self.machine.room() == 0 {
            // There is none, or a failure is to be told.
            self.machine.send(&[OFFER_BYTES as u32])?;
            return Ok(false);
        }
        Ok(medium.room() > 0 && held < self.config.count as usize)
    }

    /// After [`Sending::may_offer`].
    fn offer_now(&mut self, medium: &mut M, buffer: Buffer, last: bool, copied: bool) -> Result<(), Refused> {
        let bytes = buffer.len();
        let offered = medium.offer(buffer).map_err(|buffer| Refused::with(ChannelError::NoMemory, buffer))?;
        let Remote { va, key } = M::offered(&offered);
        let offer = Offer { place: Place { addr: va, rkey: key }, len: bytes as u32 };
        let Ok(Progress::Now { elements: 1, slot, .. }) = self.machine.send(&[OFFER_BYTES as u32]) else {
            unreachable!("there is room, and every level takes an offer");
        };
        let code = Frame::Offer { last }.code();
        let posted = medium.write_now(&offer.encode(), self.buffer(slot), Some(code), Tag::Frame);
        self.offers.push_back(Offering { number: self.sent, offered, bytes, copied });
        self.sent = self.sent.wrapping_add(1);
        // If not, the connection has failed; what was offered is kept as long as the channel.
        posted.map_err(|error| Refused { error, buffer: None })
    }

    /// Buffer `slot` of the peer's present set.
    fn buffer(&self, slot: u32) -> Remote {
        let size = self.config.size(self.machine.levels().1);
        let slot = slot % self.config.count;
        let (addr, rkey) = match self.machine.remote() {
            Some(set) => (set.addr, set.rkey),
            None => (self.first.addr, self.first.rkey),
        };
        // An honest set does not wrap; where another one's buffers are, its card decides.
        Remote { va: addr.wrapping_add(u64::from(slot) * u64::from(size)), key: rkey }
    }

    /// Looks at the control memory, and does what is to be done.
    pub(super) fn settle(&mut self, medium: &mut M, control: &Words) -> Result<(), ChannelError> {
        if let Some(tally) = Tally::decode(&control.array::<TALLY_BYTES>(TALLY_AT)) {
            self.count(tally);
        }
        loop {
            self.act(medium, control)?;
            if !self.machine.growing() || !self.machine.look(&control.array::<ANSWER_BYTES>(ANSWER_AT)) {
                return Ok(());
            }
        }
    }

    fn act(&mut self, medium: &mut M, control: &Words) -> Result<(), ChannelError> {
        // A request needs a place in the queue.
        while medium.room() > 0
            && let Some(action) = self.machine.poll()
        {
            match action {
                SenderAction::Clear => control.put(ANSWER_AT, &[0; ANSWER_BYTES]),
                SenderAction::Request { phase, size, slot } => {
                    let request = Request { phase, size }.encode();
                    medium.write_now(&request, self.buffer(slot), Some(Frame::Request.code()), Tag::Frame)?;
                }
                SenderAction::Provision { size, .. } => {
                    let own = Self::buffers(medium, &self.config, size);
                    self.machine.provisioned(own.is_some());
                    if let Some(own) = own {
                        // The medium keeps what the card still has of the old ones.
                        (self.own, self.next, self.staged) = (own, 0, 0);
                        self.generation = self.generation.wrapping_add(1);
                    }
                }
                // They went when the larger ones took their place.
                SenderAction::Free { .. } => {}
            }
        }
        Ok(())
    }

    /// Takes what the peer gives back.
    fn count(&mut self, tally: Tally) {
        if self.bad || tally == self.seen {
            return;
        }
        let unconsumed = self.unconsumed();
        let Some(news) = tally.since(&self.seen, self.config.count, unconsumed) else {
            self.bad = true;
            return;
        };
        self.machine.released(tally.set, news.freed);
        self.seen = tally;
        // The first that was not consumed has this number.
        let left = unconsumed - news.consumed;
        while self.offers.front().is_some_and(|o| self.sent.wrapping_sub(o.number) > left) {
            let Some(Offering { offered, copied, .. }) = self.offers.pop_front() else { break };
            let buffer = M::take_back(offered);
            self.returned.extend(buffer.filter(|_| !copied));
        }
    }

    /// The card has sent something from a set of own buffers.
    pub(super) fn staged_is_done(&mut self, generation: u32) {
        if generation == self.generation {
            self.staged -= 1;
        }
    }

    /// Elements that the peer has not consumed.
    pub(super) fn unconsumed(&self) -> u32 {
        self.sent.wrapping_sub(self.seen.consumed)
    }

    pub(super) fn returned(&mut self) -> Option<Buffer> {
        self.returned.pop_front()
    }

    pub(super) fn growing(&self) -> bool {
        self.machine.growing()
    }

    /// Levels of its own buffers, and of the peer's.
    pub(super) fn levels(&self) -> (usize, usize) {
        self.machine.levels()
    }

    /// Bytes of its own buffers, and of copies.
    pub(super) fn bytes(&self) -> usize {
        let copies = self.offers.iter().filter(|o| o.copied).map(|o| o.bytes);
        self.own.len() + copies.sum::<usize>()
    }
}
