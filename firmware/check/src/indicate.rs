// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The indicate window: card and driver with queues between them, bytes that arrive as they like, buffers that the
//! application posts (or reads without) when it likes, push timers that run out when they like.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_protocol::service::indicate::{Driver, DriverAction, Nic, NicAction, Settings};
use stateright::{Model, Property};

use crate::explore::Harness;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A byte is lost, repeated, or out of order.
    WrongBytes,
    /// More is in anonymous memory than the pool has for the connection.
    PoolOverflow,
    /// Card or driver refuses what the other one honestly says.
    Refused,
}

/// From the driver to the card.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Command {
    HandOver { id: u16, start: u64, len: u32, push: bool },
    Acknowledge(u32),
}

/// From the card to the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Report {
    Indicated { start: u64, len: u32, push: bool },
    Returned { id: u16, end: u64, reason: berth_protocol::service::indicate::Reason },
}

/// Card, driver, and memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    nic: Nic<4, 3>,
    driver: Driver<3>,
    reports: VecDeque<Report>,
    commands: VecDeque<Command>,
    /// Stream offsets of the bytes in anonymous memory.
    anonymous: BTreeSet<u64>,
    /// What lies in each named buffer.
    named: BTreeMap<u16, Vec<Option<u64>>>,
    /// Bytes that have arrived from the wire, and those that the application has.
    arrived: u64,
    got: u64,
    posted: usize,
    closed: bool,
    /// Bytes that the sender has credit for.
    credit: u32,
    straddled: bool,
    suspended: bool,
    fault: Option<Fault>,
}

/// Steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// So many bytes arrive, with PUSH or without.
    Arrive(u32, bool),
    /// The card does something.
    Card,
    /// A push timer at the card runs out.
    CardTimer,
    /// A report reaches the driver.
    Report,
    /// The driver does something.
    Driver,
    /// A push timer at the driver runs out.
    DriverTimer,
    /// A command reaches the card.
    Command,
    /// The application posts the next buffer.
    Post,
    /// The application reads a byte without a buffer.
    Accept,
    /// All has arrived: the connection ends.
    Close,
}

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Indicate {
    /// Indicate window.
    pub window: u32,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Buffers that the application posts: size, push mode.
    pub posts: &'static [(u32, bool)],
    /// Bytes that the card can hold; with 0 the sender keeps to credits.
    pub hold: u32,
    /// Buffers with the card at a time.
    pub ahead: u8,
}

impl Indicate {
    fn settings(&self) -> Settings {
        Settings { push_time: 1, ahead: self.ahead, early: 0, ..Settings::default() }
    }

    fn put(s: &mut State, id: u16, place: u64, at: u64) -> Result<(), Fault> {
        let place = s.named.get_mut(&id).and_then(|b| b.get_mut(place as usize)).ok_or(Fault::WrongBytes)?;
        if place.replace(at).is_some() { Err(Fault::WrongBytes) } else { Ok(()) }
    }

    fn card(&self, s: &mut State, now: u64) -> Result<bool, Fault> {
        let Some(action) = s.nic.poll(now) else { return Ok(false) };
        match action {
            NicAction::Anonymous { start, len, push } => {
                for at in start..start + len as u64 {
                    if !s.anonymous.insert(at) {
                        return Err(Fault::WrongBytes);
                    }
                }
                if s.anonymous.len() > (self.window as usize) * (1 + self.ahead as usize) {
                    return Err(Fault::PoolOverflow);
                }
                s.reports.push_back(Report::Indicated { start, len, push });
            }
            NicAction::Named { id, offset, start, len } => {
                for i in 0..len as u64 {
                    Self::put(s, id, offset as u64 + i, start + i)?;
                }
            }
            NicAction::Return { id, end, reason } => s.reports.push_back(Report::Returned { id, end, reason }),
        }
        Ok(true)
    }

    fn driver(s: &mut State, now: u64) -> Result<bool, Fault> {
        let Some(action) = s.driver.poll(now) else { return Ok(false) };
        match action {
            DriverAction::Copy { id, offset, start, len } => {
                for i in 0..len as u64 {
                    if !s.anonymous.remove(&(start + i)) {
                        return Err(Fault::WrongBytes);
                    }
                    Self::put(s, id, offset as u64 + i, start + i)?;
                }
                s.straddled |= len > 0;
            }
            DriverAction::HandOver { id, start, len, push } => {
                s.commands.push_back(Command::HandOver { id, start, len, push });
            }
            DriverAction::Acknowledge(n) => s.commands.push_back(Command::Acknowledge(n)),
            DriverAction::Complete { id, bytes, .. } => {
                let buffer = s.named.remove(&id).ok_or(Fault::WrongBytes)?;
                let right = |(i, at): (usize, &Option<u64>)| *at == ((i as u32) < bytes).then_some(s.got + i as u64);
                if !buffer.iter().enumerate().all(right) {
                    return Err(Fault::WrongBytes);
                }
                s.got += bytes as u64;
            }
            DriverAction::Tell(_) => (),
        }
        Ok(true)
    }

    fn step(&self, s: &mut State, action: Action) -> Result<bool, Fault> {
        match action {
            Action::Arrive(len, push) => {
                if !s.nic.arrived(len, push) {
                    // With a credit there must be room.
                    return if self.hold == 0 { Err(Fault::Refused) } else { Ok(false) };
                }
                s.arrived += len as u64;
                s.credit = s.credit.saturating_sub(len);
            }
            Action::Card => return self.card(s, 0),
            Action::CardTimer => {
                let Some(at) = s.nic.deadline() else { return Ok(false) };
                return self.card(s, at);
            }
            Action::Driver => return Self::driver(s, 0),
            Action::DriverTimer => {
                let Some(at) = s.driver.deadline() else { return Ok(false) };
                return Self::driver(s, at);
            }
            Action::Report => {
                let fine = match s.reports.pop_front() {
                    None => return Ok(false),
                    Some(Report::Indicated { start, len, push }) => s.driver.indicated(start, len, push),
                    Some(Report::Returned { id, end, reason }) => s.driver.returned(id, end, reason),
                };
                if !fine {
                    return Err(Fault::Refused);
                }
            }
            Action::Command => match s.commands.pop_front() {
                None => return Ok(false),
                Some(Command::HandOver { id, start, len, push }) => {
                    // A card that is closed takes none; the driver gets it back at once.
                    if !s.nic.hand_over(id, start, len, push, 0) {
                        if !s.closed {
                            return Err(Fault::Refused);
                        }
                        let reason = berth_protocol::service::indicate::Reason::Closed;
                        let end = s.nic.next().clamp(start, start + len as u64);
                        s.reports.push_back(Report::Returned { id, end, reason });
                    }
                }
                Some(Command::Acknowledge(n)) => s.nic.acknowledge(n),
            },
            Action::Post => {
                let Some(&(len, push)) = self.posts.get(s.posted) else { return Ok(false) };
                let id = s.posted as u16;
                if !s.driver.post(id, len, push) {
                    return Ok(false);
                }
                s.posted += 1;
                s.named.insert(id, vec![None; len as usize]);
            }
            Action::Accept => {
                if s.driver.accept(1) == 0 {
                    return Ok(false);
                }
                if !s.anonymous.remove(&s.got) {
                    return Err(Fault::WrongBytes);
                }
                s.got += 1;
            }
            Action::Close => {
                s.closed = true;
                s.nic.close();
                s.driver.close();
            }
        }
        Ok(true)
    }

    fn grant(&self, s: &mut State) {
        while self.hold == 0
            && !s.closed
            && let Some(size) = s.nic.credit(2)
        {
            s.credit += size;
        }
    }
}

impl Model for Indicate {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            nic: Nic::new(self.window, self.hold, 1, 0),
            driver: Driver::new(&self.settings(), self.window, 0),
            reports: VecDeque::new(),
            commands: VecDeque::new(),
            anonymous: BTreeSet::new(),
            named: BTreeMap::new(),
            arrived: 0,
            got: 0,
            posted: 0,
            closed: false,
            credit: 0,
            straddled: false,
            suspended: false,
            fault: None,
        };
        self.grant(&mut state);
        vec![state]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        if s.fault.is_some() || self.finished(s) {
            return;
        }
        for len in [1, 2] {
            let room = s.arrived + len as u64 <= self.bytes && !s.closed;
            if room && (self.hold > 0 || s.credit >= len) {
                actions.extend([Action::Arrive(len, false), Action::Arrive(len, true)]);
            }
        }
        actions.extend([Action::Card, Action::CardTimer, Action::Report, Action::Driver, Action::DriverTimer]);
        actions.extend([Action::Command, Action::Accept]);
        if !s.closed {
            actions.push(Action::Post);
        }
        if s.arrived == self.bytes && s.nic.held() == 0 && !s.closed && s.commands.is_empty() {
            actions.push(Action::Close);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match self.step(&mut next, action) {
            Ok(true) => (),
            Ok(false) => return None,
            Err(fault) => next.fault = Some(fault),
        }
        self.grant(&mut next);
        next.suspended |= next.nic.suspended();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("bytes never lost or repeated, and in order", |_, s: &State| {
                s.fault != Some(Fault::WrongBytes)
            }),
            Property::always("never more delivered than the window", |m: &Self, s: &State| {
                s.nic.pending() <= m.window && s.fault != Some(Fault::PoolOverflow)
            }),
            Property::always("card and driver understand each other", |_, s: &State| s.fault != Some(Fault::Refused)),
            Property::sometimes("the card suspends", |_, s: &State| s.suspended),
            Property::sometimes("bytes are copied into a named buffer", |_, s: &State| s.straddled),
        ]
    }
}

impl Harness for Indicate {
    const NAME: &'static str = "indicate";

    fn finished(&self, s: &State) -> bool {
        s.fault.is_none() && s.got == self.bytes && s.named.is_empty()
    }

    fn bounds(&self) -> String {
        format!(
            "window {}, {} bytes in segments of 1 and 2, buffers of {:?} (bytes, push), {} with the card, {}",
            self.window,
            self.bytes,
            self.posts,
            self.ahead,
            if self.hold == 0 { "sender with credits".to_owned() } else { format!("card holds {}", self.hold) },
        )
    }
}
