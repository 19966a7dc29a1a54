// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both ends of a credit connection, announcer and taker, over a carrier that loses, repeats and reorders entries:
//! repeats until the proof, gaps held, credits recalled, a reconnect with old entries still under way.
//!
//! Data goes in order and once. Credit numbers are those of the card, so that no old entry can be taken for a new one
//! by its number alone; what a reconnect and a recall do about numbers used again is what is explored.

use std::collections::VecDeque;

use berth_protocol::credit::announcer::{Announcer, Heard, Options};
use berth_protocol::credit::entry::{Body, Entry, Name};
use berth_protocol::credit::policy::{Kind, Settings};
use berth_protocol::credit::taker::{Arrived, Taker};
use stateright::{Model, Property};

use crate::buffers::CreditBuffers;
use crate::channel::{Air, Packet};
use crate::explore::{Harness, stable_hash};

/// Times at which a repeat timer runs that was started at the later one, and at which it has run out.
pub(crate) const RUNS: u64 = 0;
pub(crate) const RUN_OUT: u64 = 1;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Data came without a credit, or more of it than the receive holds.
    NoCredit,
    /// A new list found no posted credit buffer.
    NoCreditBuffer,
    /// An honest entry was refused.
    Refused,
}

impl<const LIST: usize> Packet for Entry<LIST> {
    fn key(&self) -> u64 {
        stable_hash(self)
    }
}

/// A piece on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Piece {
    number: u32,
    len: u8,
}

/// Both ends and what is between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const ROOM: usize, const LIST: usize> {
    announcer: Announcer<ROOM, LIST>,
    taker: Taker<ROOM, LIST>,
    /// To the sender, and back.
    there: Air<Entry<LIST>>,
    back: Air<Entry<LIST>>,
    /// The sender's credit buffers, counted independently.
    buffers: CreditBuffers,
    pieces: VecDeque<Piece>,
    /// Receives that the application will post, in this order.
    to_post: VecDeque<u8>,
    /// Receives posted, oldest first, and the number of the oldest one's credit.
    posted: VecDeque<u8>,
    number: u32,
    /// Bytes to be sent.
    pending: u8,
    recalls: u8,
    reconnects: u8,
    syncs: u8,
    voided: bool,
    held: bool,
    stale: bool,
    fault: Option<Fault>,
}

/// Steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The application posts a receive.
    Post,
    /// The batch is complete.
    Commit,
    /// The announcer says something, what is not proven again first: its timer has run out.
    Say,
    /// It says something else than that: its timer still runs.
    SayBefore,
    /// An entry reaches the sender's credit buffer. It may come again.
    Arrive(usize),
    /// An entry is lost.
    Lose(usize),
    /// The sender posts the other buffer and uses what has arrived.
    Process,
    /// The sender says something.
    Answer,
    /// It arrives. It may come again.
    Hear(usize),
    /// It is lost.
    LoseAnswer(usize),
    /// The sender cuts a piece.
    Cut,
    /// The oldest piece arrives.
    Data,
    /// The newest credit is wanted back.
    Recall,
    /// The carrier tells the sender that it has lost something.
    Resync,
    /// The connection is made anew; entries of the old one are still under way.
    Reconnect,
}

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Lists<const ROOM: usize, const LIST: usize> {
    /// When the next list goes.
    pub policy: Kind,
    /// Credits in one entry of the carrier.
    pub part: u32,
    /// Sizes of the receives, in their order.
    pub receives: &'static [u8],
    /// Bytes to be sent.
    pub bytes: u8,
    /// Entries under way there and back.
    pub air: (usize, usize),
    /// Recalls, reconnects and resynchronisations.
    pub events: (u8, u8, u8),
}

impl<const ROOM: usize, const LIST: usize> Lists<ROOM, LIST> {
    fn announcer(&self, epoch: u32) -> Announcer<ROOM, LIST> {
        let policy = Settings::of(self.policy);
        let mut announcer = Announcer::new(&Options {
            max_list: LIST as u32,
            part: self.part,
            repeat: 0,
            policy,
            ..Options::default()
        });
        announcer.connect(0, Name { qpn: 1, epoch }, Name { qpn: 2, epoch });
        announcer
    }

    fn reconnect(&self, s: &mut State<ROOM, LIST>) {
        s.reconnects += 1;
        let epoch = s.reconnects as u32;
        s.announcer = self.announcer(epoch);
        s.taker.connect(Name { qpn: 2, epoch }, Name { qpn: 1, epoch });
        s.buffers = CreditBuffers::default();
        // What was under way is lost and sent again; receives are flushed and posted again.
        s.pending += s.pieces.drain(..).map(|p| p.len).sum::<u8>();
        let flushed: Vec<u8> = s.posted.drain(..).collect();
        s.to_post.extend(flushed);
        s.number = 0;
    }

    fn step(&self, s: &mut State<ROOM, LIST>, action: Action) -> Result<bool, Fault> {
        match action {
            Action::Post => {
                let Some(&size) = s.to_post.front() else { return Ok(false) };
                if s.announcer.post(size as u32).is_none() {
                    return Ok(false);
                }
                s.to_post.pop_front();
                s.posted.push_back(size);
            }
            Action::Commit => s.announcer.commit(),
            Action::Say | Action::SayBefore => {
                let late = s.announcer.clone().poll(RUN_OUT);
                let entry = s.announcer.poll(if action == Action::Say { RUN_OUT } else { RUNS });
                match entry.filter(|e| action == Action::Say || late != Some(*e)) {
                    Some(entry) => s.there.send(entry),
                    None => return Ok(false),
                }
            }
            Action::Arrive(i) => {
                let Some(entry) = s.there.get(i).cloned() else { return Ok(false) };
                if entry.to.epoch == s.reconnects as u32 && !s.buffers.deliver(&entry) {
                    return Err(Fault::NoCreditBuffer);
                }
                match s.taker.arrive(&entry) {
                    Arrived::Bad | Arrived::Early | Arrived::Overflow => return Err(Fault::Refused),
                    Arrived::Stale => s.stale = true,
                    Arrived::WrongEpoch => {
                        if s.reconnects == 0 {
                            return Err(Fault::Refused);
                        }
                    }
                    Arrived::Buffered => {
                        let (Body::List(part), expected) = (&entry.body, s.taker.reader().expected()) else {
                            return Ok(true);
                        };
                        s.held |= part.list.wrapping_add(part.offset as u32) != expected;
                    }
                    Arrived::Repeat | Arrived::Recalled => (),
                }
            }
            Action::Lose(i) => return Ok(s.there.remove(i).is_some()),
            Action::Process => {
                s.buffers.used();
                s.taker.process();
            }
            Action::Answer => match s.taker.poll() {
                Some(entry) => s.back.send(entry),
                None => return Ok(false),
            },
            Action::Hear(i) => {
                let Some(entry) = s.back.get(i).cloned() else { return Ok(false) };
                match s.announcer.hear(&entry) {
                    Heard::Bad => return Err(Fault::Refused),
                    Heard::Voided(first) => {
                        let keep = first.wrapping_sub(s.number) as usize;
                        if keep > s.posted.len() {
                            return Err(Fault::NoCredit);
                        }
                        // The application posts others in their place: their sizes change.
                        let voided: Vec<u8> = s.posted.drain(keep..).collect();
                        s.to_post.extend(voided);
                        s.voided = true;
                    }
                    Heard::Synced | Heard::Repeat | Heard::WrongEpoch => (),
                }
            }
            Action::LoseAnswer(i) => return Ok(s.back.remove(i).is_some()),
            Action::Cut => {
                if s.pending == 0 {
                    return Ok(false);
                }
                let Some((len, number, _)) = s.taker.take(s.pending as u32) else { return Ok(false) };
                s.pending -= len as u8;
                s.pieces.push_back(Piece { number, len: len as u8 });
            }
            Action::Data => {
                let Some(piece) = s.pieces.pop_front() else { return Ok(false) };
                let announced = s.announcer.landed(0, None);
                let fits = s.posted.front().is_some_and(|&size| size >= piece.len);
                if !announced || !fits || piece.number != s.number || piece.len == 0 {
                    return Err(Fault::NoCredit);
                }
                s.posted.pop_front();
                s.number += 1;
            }
            Action::Recall => {
                s.recalls += 1;
                return Ok(s.announcer.recall(1));
            }
            Action::Resync => {
                s.syncs += 1;
                s.taker.resync();
            }
            Action::Reconnect => self.reconnect(s),
        }
        Ok(true)
    }
}

impl<const ROOM: usize, const LIST: usize> Model for Lists<ROOM, LIST> {
    type State = State<ROOM, LIST>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let mut taker = Taker::new();
        taker.connect(Name { qpn: 2, epoch: 0 }, Name { qpn: 1, epoch: 0 });
        vec![State {
            announcer: self.announcer(0),
            taker,
            there: Air::default(),
            back: Air::default(),
            buffers: CreditBuffers::default(),
            pieces: VecDeque::new(),
            to_post: self.receives.iter().copied().collect(),
            posted: VecDeque::new(),
            number: 0,
            pending: self.bytes,
            recalls: 0,
            reconnects: 0,
            syncs: 0,
            voided: false,
            held: false,
            stale: false,
            fault: None,
        }]
    }

    fn actions(&self, s: &Self::State, actions: &mut Vec<Action>) {
        if s.fault.is_some() || self.finished(s) {
            return;
        }
        actions.extend([Action::Post, Action::Commit, Action::Process, Action::Cut, Action::Data]);
        if s.there.len() < self.air.0 {
            actions.extend([Action::Say, Action::SayBefore]);
        }
        if s.back.len() < self.air.1 {
            actions.push(Action::Answer);
        }
        for i in 0..s.there.len() {
            actions.extend([Action::Arrive(i), Action::Lose(i)]);
        }
        for i in 0..s.back.len() {
            actions.extend([Action::Hear(i), Action::LoseAnswer(i)]);
        }
        if s.recalls < self.events.0 {
            actions.push(Action::Recall);
        }
        if s.reconnects < self.events.1 {
            actions.push(Action::Reconnect);
        }
        if s.syncs < self.events.2 {
            actions.push(Action::Resync);
        }
    }

    fn next_state(&self, state: &Self::State, action: Action) -> Option<Self::State> {
        let mut next = state.clone();
        match self.step(&mut next, action) {
            Ok(true) => (),
            Ok(false) => return None,
            Err(fault) => next.fault = Some(fault),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("no data without credit", |_, s: &Self::State| s.fault != Some(Fault::NoCredit)),
            Property::always("no list without a free credit buffer", |_, s: &Self::State| {
                s.fault != Some(Fault::NoCreditBuffer)
            }),
            Property::always("no honest entry is refused", |_, s: &Self::State| s.fault != Some(Fault::Refused)),
        ];
        if (self.part as usize) < LIST {
            properties.push(Property::sometimes("something is held behind a gap", |_, s: &Self::State| s.held));
        }
        if self.events.0 > 0 {
            properties.push(Property::sometimes("credits are given back", |_, s: &Self::State| s.voided));
            properties.push(Property::sometimes("an old list is dropped", |_, s: &Self::State| s.stale));
        }
        if self.events.1 > 0 {
            properties.push(Property::sometimes("an old entry meets a new connection", |_, s: &Self::State| {
                s.there.iter().any(|e| e.to.epoch != s.reconnects as u32)
            }));
        }
        properties
    }
}

impl<const ROOM: usize, const LIST: usize> Harness for Lists<ROOM, LIST> {
    const NAME: &'static str = "lists";

    fn finished(&self, s: &Self::State) -> bool {
        s.fault.is_none() && s.pending == 0 && s.pieces.is_empty()
    }

    fn bounds(&self) -> String {
        format!(
            "policy {:?}, store {ROOM}, lists of {LIST} in parts of {}, receives of {:?}, {} bytes, {}+{} entries on a carrier that loses, repeats and reorders, {} recall, {} reconnect, {} resync",
            self.policy,
            self.part,
            self.receives,
            self.bytes,
            self.air.0,
            self.air.1,
            self.events.0,
            self.events.1,
            self.events.2,
        )
    }
}
