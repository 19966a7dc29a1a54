// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One control connection serves many data connections (CR-13), each of which sends and
//! receives (CR-14).
//!
//! Each entry says which connection it is for. The reader finds that connection's own credit buffers; an entry that
//! finds none free there, or that is false, costs that connection only. Entries to be sent are taken from the
//! connections in turn. A server has one [`Mux`] per client.

use super::announcer::{Announcer, Heard, Options};
use super::entry::{Body, Entry, Name};
use super::list;
use super::taker::{Arrived, Taker};
use crate::base::bound::{Bound, at_most};

/// Both ends of credits that one queue pair has: it receives and it sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Port<
    const ROOM: usize = { list::ROOM },
    const LIST: usize = { list::LIST },
    const BITS: u32 = { list::BITS },
> {
    /// Its receives.
    pub announcer: Announcer<ROOM, LIST, BITS>,
    /// Its sends.
    pub taker: Taker<ROOM, LIST, BITS>,
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Port<ROOM, LIST, BITS> {
    /// A port without connection.
    pub fn new(options: &Options) -> Self {
        Self { announcer: Announcer::new(options), taker: Taker::new() }
    }

    /// The connection between `own` and `peer` is there at time `now`.
    pub fn connect(&mut self, now: u64, own: Name, peer: Name) {
        self.announcer.connect(now, own, peer);
        self.taker.connect(own, peer);
    }

    /// An entry for this connection has come. Lists wait in their buffer for [`Taker::process`].
    pub fn receive(&mut self, entry: &Entry<LIST>) -> Received {
        match entry.body {
            Body::List(_) | Body::Recall { .. } => Received::Credits(self.taker.arrive(entry)),
            Body::Recalled { .. } | Body::Sync { .. } => Received::Receipt(self.announcer.hear(entry)),
        }
    }

    /// The next entry for the peer. Answers go before lists.
    pub fn poll(&mut self, now: u64) -> Option<Entry<LIST>> {
        self.taker.poll().or_else(|| self.announcer.poll(now))
    }

    /// When [`Port::poll`] may have something; `None`: not before something else happens.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        match self.taker.wants_to_send() {
            true => Some(now),
            false => self.announcer.deadline(now),
        }
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Received {
    /// No connection of this control connection has that QPN (decision 6): dropped, to be counted.
    UnknownQpn,
    /// It was for the sending side of a connection.
    Credits(Arrived),
    /// It was for the receiving side of a connection.
    Receipt(Heard),
}

/// A connection cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenError {
    /// All places are taken.
    Full,
    /// The QPN has a connection already.
    Duplicate,
}

/// The connections that share one control connection. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mux<
    const CONNS: usize,
    const ROOM: usize = { list::ROOM },
    const LIST: usize = { list::LIST },
    const BITS: u32 = { list::BITS },
> {
    ports: [Option<Port<ROOM, LIST, BITS>>; CONNS],
    /// Place of the connection that is asked first for the next entry.
    turn: usize,
    /// An entry that did not fit the last message.
    held: Option<Entry<LIST>>,
}

impl<const CONNS: usize, const ROOM: usize, const LIST: usize, const BITS: u32> Default
    for Mux<CONNS, ROOM, LIST, BITS>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<const CONNS: usize, const ROOM: usize, const LIST: usize, const BITS: u32> Mux<CONNS, ROOM, LIST, BITS> {
    /// No connections.
    pub const fn new() -> Self {
        Self { ports: [const { None }; CONNS], turn: 0, held: None }
    }

    /// Adds the connection of our end `own` with `peer`; gives its place.
    ///
    /// # Errors
    /// All `CONNS` places are taken, or `own.qpn` is connected.
    pub fn open(&mut self, now: u64, own: Name, peer: Name, options: &Options) -> Result<usize, OpenError> {
        if self.find(own.qpn).is_some() {
            return Err(OpenError::Duplicate);
        }
        let place = self.ports.iter().position(Option::is_none).ok_or(OpenError::Full)?;
        let mut port = Port::new(options);
        port.connect(now, own, peer);
        if let Some(free) = self.ports.get_mut(place) {
            *free = Some(port);
        }
        Ok(place)
    }

    /// The connection at `place` is over: its credits are void. False if there was none.
    pub fn close(&mut self, place: usize) -> bool {
        self.ports.get_mut(place).is_some_and(|port| port.take().is_some())
    }

    /// The connection at `place`.
    pub fn port(&mut self, place: usize) -> Option<&mut Port<ROOM, LIST, BITS>> {
        self.ports.get_mut(place)?.as_mut()
    }

    /// Place of the connection of `qpn`.
    pub fn find(&self, qpn: u32) -> Option<usize> {
        self.ports.iter().position(|port| port.as_ref().is_some_and(|port| port.taker.own().qpn == qpn))
    }

    /// An entry has come over the control connection.
    pub fn receive(&mut self, entry: &Entry<LIST>) -> Received {
        match self.find(entry.to.qpn).and_then(|place| self.port(place)) {
            Some(port) => port.receive(entry),
            None => Received::UnknownQpn,
        }
    }

    /// The records of a control message have come; `told` hears what became of each entry. False when the message ends
    /// in invalid bytes, which are dropped.
    pub fn receive_words(&mut self, mut words: &[u32], mut told: impl FnMut(&Entry<LIST>, Received)) -> bool {
        let mut bound = Bound::new(words.len() as u32 + 1);
        while !words.is_empty() {
            bound.step();
            let Some((entry, len)) = Entry::decode(words) else {
                return false;
            };
            let received = self.receive(&entry);
            told(&entry, received);
            words = words.get(len..).unwrap_or(&[]);
        }
        true
    }

    /// The next entry to be sent. The connections take turns, so that none starves another.
    pub fn poll(&mut self, now: u64) -> Option<Entry<LIST>> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        let (before, after) = self.ports.split_at_mut_checked(self.turn)?;
        let mut place = self.turn;
        for port in at_most(CONNS, after.iter_mut().chain(before)) {
            place = if place + 1 < CONNS { place + 1 } else { 0 };
            if let Some(entry) = port.as_mut().and_then(|port| port.poll(now)) {
                self.turn = place;
                return Some(entry);
            }
        }
        None
    }

    /// Fills a control message with records; gives its words. `message` takes at least the largest
    /// entry that the connections make (`Options::part` credits and [`crate::credit::entry::HEAD`] words).
    pub fn fill(&mut self, now: u64, message: &mut [u32]) -> usize {
        let mut at = 0;
        let mut bound = Bound::new(message.len() as u32 + 1);
        while let Some(entry) = self.poll(now) {
            bound.step();
            let Some(words) = message.get_mut(at..).and_then(|rest| entry.encode(rest)) else {
                // It may never fit a smaller message; its own repeat comes later.
                self.held = (at > 0).then_some(entry);
                break;
            };
            at += words;
        }
        at
    }

    /// When [`Mux::poll`] may have something; `None`: not before something else happens.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        if self.held.is_some() {
            return Some(now);
        }
        self.ports.iter().flatten().filter_map(|port| port.deadline(now)).min()
    }

    /// The control connection was lost and is there again: what was under way on it may be lost.
    /// The data connections lived on their credits; both sides agree again by credit number (decision 6).
    pub fn resync(&mut self) {
        self.held = None;
        for port in at_most(CONNS, self.ports.iter_mut().flatten()) {
            port.taker.resync();
        }
    }
}
