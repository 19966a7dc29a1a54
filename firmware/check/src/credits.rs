// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Credit lists: builder (receiver) against reader (sender), the machines that the RTL is compared with.
//!
//! Data goes in order and once (the reliable connection's business); lists go over a carrier that delivers in
//! order, each into one of the sender's credit buffers (CR-11). A list whose proof is outstanding may be sent again
//! (decision 6): a repeat is taken where the list lies or is thrown away, and needs no buffer of its own.

use std::collections::VecDeque;

use berth_abi::cpu::{LIST_OK, LIST_REPEAT};
use berth_protocol::credit::list::{Builder, Reader, Trigger};
use stateright::{Model, Property};

use crate::explore::Harness;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Data arrived that no announced credit is there for, or more of it than the credit.
    NoCredit,
    /// A new list arrived and the sender had no credit buffer posted.
    NoCreditBuffer,
    /// A piece used another credit than that of the receive that it falls into.
    WrongReceive,
    /// The reader refused a list of an honest builder.
    ListRefused,
}

/// A credit list on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    first: u32,
    sizes: Vec<u32>,
    again: bool,
}

/// A piece on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    len: u8,
    /// The credit that the reader used for it: its number and its size.
    number: u32,
    size: u32,
}

/// Both ends and what is between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const ROOM: usize, const LIST: usize, const BITS: u32> {
    builder: Builder<ROOM, LIST, BITS>,
    reader: Reader<ROOM, LIST, BITS>,
    /// Sizes of the receives posted, independent of the builder's own record.
    buffers: VecDeque<u8>,
    /// The last list, while it may have to be repeated.
    last: Option<List>,
    lists: VecDeque<List>,
    pieces: VecDeque<Piece>,
    /// Credit buffers that the sender has posted.
    credit_buffers: u8,
    /// A list lies in a credit buffer and is not used yet.
    arrived: Option<List>,
    /// Bytes that the application wants sent.
    pending: u8,
    /// A repeat was thrown away, for the record.
    repeated: bool,
    fault: Option<Fault>,
}

/// Steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The receiver posts a buffer.
    Post(u8),
    /// All that is posted may be announced.
    Commit,
    /// The sender's application wants bytes sent.
    Send(u8),
    /// The builder makes a list.
    MakeList,
    /// The last list is sent again.
    RepeatList,
    /// The oldest list arrives.
    ListArrives,
    /// The carrier loses the oldest list.
    ListLost,
    /// The sender posts the second buffer, then uses the list.
    UseList,
    /// The sender cuts a piece.
    Cut,
    /// The oldest piece arrives.
    DataArrives,
}

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Credits<const ROOM: usize, const LIST: usize, const BITS: u32> {
    /// Trigger of the next list.
    pub trigger: Trigger,
    /// Receives posted and not filled.
    pub posted: usize,
    /// Sizes of receives.
    pub sizes: &'static [u8],
    /// Sizes of sends; one at a time.
    pub sends: &'static [u8],
    /// The carrier may lose lists, and the builder's side repeats them.
    pub lossy: bool,
    /// Most lists on their way.
    pub lists: usize,
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Credits<ROOM, LIST, BITS> {
    fn step(&self, s: &mut State<ROOM, LIST, BITS>, action: &Action) -> Result<(), Fault> {
        match *action {
            Action::Post(size) => {
                if s.builder.post(size as u32).is_some() {
                    s.buffers.push_back(size);
                }
            }
            Action::Commit => s.builder.commit(),
            Action::Send(bytes) => s.pending = bytes,
            Action::MakeList => {
                if let Some((first, len)) = s.builder.list_take() {
                    let sizes = (0..len).map(|_| s.builder.list_next()).collect();
                    let list = List { first, sizes, again: false };
                    s.last = self.lossy.then(|| List { again: true, ..list.clone() });
                    s.lists.push_back(list);
                }
            }
            Action::RepeatList => s.lists.extend(s.last.clone()),
            Action::ListArrives => {
                let Some(list) = s.lists.pop_front() else { return Ok(()) };
                // What lies in the buffer already, or was used, needs no further one.
                let known = s.arrived.as_ref().map_or(s.reader.expected(), |a| a.first + a.sizes.len() as u32);
                let mask = u32::MAX >> (32 - BITS);
                let new = list.first.wrapping_sub(known) & mask <= mask >> 1;
                if list.again && !new {
                    s.repeated = true;
                    return self.throw_away(s, &list);
                }
                s.credit_buffers = s.credit_buffers.checked_sub(1).ok_or(Fault::NoCreditBuffer)?;
                s.arrived = Some(list);
            }
            Action::ListLost => {
                s.lists.pop_front();
            }
            Action::UseList => {
                let Some(list) = s.arrived.take() else { return Ok(()) };
                s.credit_buffers += 1;
                let (answer, skip) = s.reader.list_begin(list.first, list.sizes.len() as u32);
                if answer != LIST_OK && !(list.again && answer == LIST_REPEAT) {
                    return Err(Fault::ListRefused);
                }
                if answer == LIST_OK {
                    for &size in list.sizes.iter().skip(skip as usize) {
                        s.reader.list_push(size);
                    }
                }
            }
            Action::Cut => {
                if let Some((bytes, number, size)) = s.reader.take(s.pending as u32) {
                    s.pieces.push_back(Piece { len: bytes as u8, number, size });
                    s.pending -= bytes as u8;
                }
            }
            Action::DataArrives => {
                let Some(piece) = s.pieces.pop_front() else { return Ok(()) };
                let (_, _, number) = s.builder.numbers();
                let announced = s.builder.landed();
                let room = s.buffers.pop_front();
                if !announced || room.is_none_or(|room| room < piece.len) {
                    return Err(Fault::NoCredit);
                }
                if piece.number != number || room.map(u32::from) != Some(piece.size) || piece.len == 0 {
                    return Err(Fault::WrongReceive);
                }
                if s.builder.rtrip().is_none() {
                    s.last = None;
                }
            }
        }
        Ok(())
    }

    /// A repeat of what is known goes through the reader too, which must not take credits from it.
    fn throw_away(&self, s: &mut State<ROOM, LIST, BITS>, list: &List) -> Result<(), Fault> {
        if s.arrived.is_some() {
            return Ok(());
        }
        match s.reader.list_begin(list.first, list.sizes.len() as u32) {
            (LIST_OK, skip) => {
                for &size in list.sizes.iter().skip(skip as usize) {
                    s.reader.list_push(size);
                }
            }
            (LIST_REPEAT, _) => (),
            _ => return Err(Fault::ListRefused),
        }
        Ok(())
    }
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Model for Credits<ROOM, LIST, BITS> {
    type State = State<ROOM, LIST, BITS>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let mut builder = Builder::new();
        builder.reset(LIST as u32, self.trigger);
        builder.enable();
        vec![State {
            builder,
            reader: Reader::new(),
            buffers: VecDeque::new(),
            last: None,
            lists: VecDeque::new(),
            pieces: VecDeque::new(),
            credit_buffers: 1,
            arrived: None,
            pending: 0,
            repeated: false,
            fault: None,
        }]
    }

    fn actions(&self, s: &Self::State, actions: &mut Vec<Action>) {
        if s.fault.is_some() {
            return;
        }
        if s.buffers.len() < self.posted {
            actions.extend(self.sizes.iter().map(|&size| Action::Post(size)));
        }
        actions.push(Action::Commit);
        if s.pending == 0 {
            actions.extend(self.sends.iter().map(|&bytes| Action::Send(bytes)));
        } else {
            actions.push(Action::Cut);
        }
        if s.builder.ready() && s.lists.len() < self.lists {
            actions.push(Action::MakeList);
        }
        if s.last.is_some() && s.lists.len() < self.lists {
            actions.push(Action::RepeatList);
        }
        if !s.lists.is_empty() {
            actions.push(Action::ListArrives);
            if self.lossy {
                actions.push(Action::ListLost);
            }
        }
        if s.arrived.is_some() {
            actions.push(Action::UseList);
        }
        if !s.pieces.is_empty() {
            actions.push(Action::DataArrives);
        }
    }

    fn next_state(&self, state: &Self::State, action: Action) -> Option<Self::State> {
        let mut next = state.clone();
        next.fault = self.step(&mut next, &action).err();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("no data without credit", |_, s: &Self::State| s.fault != Some(Fault::NoCredit)),
            Property::always("no list without a free credit buffer", |_, s: &Self::State| {
                s.fault != Some(Fault::NoCreditBuffer)
            }),
            Property::always("exactly once, in order", |_, s: &Self::State| s.fault != Some(Fault::WrongReceive)),
            Property::always("no honest list is refused", |_, s: &Self::State| s.fault != Some(Fault::ListRefused)),
            Property::always("the sender never has more credits than were announced", |_, s: &Self::State| {
                s.fault.is_some() || s.reader.count() + s.pieces.len() as u32 <= s.builder.outstanding()
            }),
            Property::sometimes("the sender waits for credit", |_, s: &Self::State| {
                s.pending > 0 && s.reader.count() == 0
            }),
            Property::sometimes("a credit is wasted in part", |_, s: &Self::State| {
                s.pieces.front().is_some_and(|p| s.buffers.front().is_some_and(|&b| p.len < b))
            }),
            Property::sometimes("the longest list", |_, s: &Self::State| s.lists.iter().any(|l| l.sizes.len() == LIST)),
        ];
        if self.lossy {
            properties.push(Property::sometimes("a repeat is thrown away", |_, s: &Self::State| s.repeated));
        }
        properties
    }
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Harness for Credits<ROOM, LIST, BITS> {
    const NAME: &'static str = "credits";

    fn finished(&self, s: &Self::State) -> bool {
        s.fault.is_none() && s.pending == 0 && s.pieces.is_empty() && s.lists.is_empty() && s.arrived.is_none()
    }

    fn bounds(&self) -> String {
        format!(
            "trigger {:?}, store {ROOM}, lists of {LIST}, {BITS}-bit credit numbers, {} receives of {:?}, sends of {:?}, {} lists on a {} carrier; runs of any length",
            self.trigger,
            self.posted,
            self.sizes,
            self.sends,
            self.lists,
            if self.lossy { "lossy, repeating" } else { "reliable" },
        )
    }
}
