// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reliable connection: requester against responder over a wire that loses, repeats and reorders as it likes.
//!
//! A frame does not outlive half a turn of the PSNs (as InfiniBand demands; with 24 bits that is eight million packets).
//! The record of what should happen is kept relative to the oldest unacknowledged packet.

use std::collections::VecDeque;

use berth_protocol::rc::{
    Access, Admit, Bitmap, Completion, Event, Immediate, Message, Op, Outcome, Place, Remote, RequestPacket, Requester,
    RequesterConfig, Responder, ResponderConfig, ResponseBody, ResponsePacket, Status, Syndrome, Target, Verdict,
};
use stateright::{Model, Property};

use crate::channel::{Air, Packet};
use crate::explore::Harness;

/// A message that may be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Do {
    /// SEND of so many packets (the MTU is one byte).
    Send(u32),
    /// WRITE of so many packets, always to the same place.
    Write(u32),
    /// READ of so many packets from that place.
    Read(u32),
    /// Fetch-and-add of 1.
    Add,
    /// WRITE of one packet that waits for READs and atomics before it.
    Fenced,
    /// WRITE of so many packets with an immediate, which uses a receive.
    WriteImm(u32),
}

impl Do {
    fn writes(self) -> Option<u32> {
        match self {
            Self::Write(len) | Self::WriteImm(len) => Some(len),
            Self::Fenced => Some(1),
            _ => None,
        }
    }

    /// The length that the receive is told, if it uses one.
    fn receives(self) -> Option<u32> {
        match self {
            Self::Send(len) | Self::WriteImm(len) => Some(len),
            _ => None,
        }
    }
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A packet was placed again, or an atomic carried out again.
    Twice,
    /// A packet went to another place than its own.
    Misplaced,
    /// Something was reported complete before all of it was there, or out of order.
    Early,
    /// A READ or atomic gave a value that it cannot have.
    WrongValue,
    /// An honest peer was refused, or a connection failed.
    Refused,
    /// A receive was used that is not there.
    NoReceive,
    /// More than one packet was to go again because nothing was heard.
    Storm,
}

/// A request on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    packet: RequestPacket,
    /// Its real number, counted from the oldest unacknowledged packet.
    at: i8,
    /// Where its payload belongs: number of its message, and its place in it.
    message: u8,
    index: u32,
}

/// A response on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Response {
    packet: ResponsePacket,
    /// As in [`Request`].
    at: i8,
    /// Of a READ: the value read.
    value: u8,
}

impl Response {
    /// It is not older than half a turn of the PSNs, `half`, whether it was on its way or waited at the responder.
    fn lives(&self, half: i8) -> bool {
        // An acknowledgement speaks of the PSN behind its own, all others of their own.
        let ack = matches!(self.packet.body, ResponseBody::Ack { syndrome: Syndrome::Ack(_), .. });
        self.at + ack as i8 > -half
    }
}

impl Packet for Request {
    fn key(&self) -> u64 {
        (self.at as u8 as u64) << 8 | self.packet.ack_request as u64
    }
}

impl Packet for Response {
    fn key(&self) -> u64 {
        let kind = match self.packet.body {
            ResponseBody::Ack { syndrome, sack } => {
                (syndrome.byte() as u64) << 8 | sack.map_or(0, |s| (s >> 112) as u64) << 16
            }
            ResponseBody::Read { .. } => 1,
            ResponseBody::Atomic { .. } => 2,
        };
        kind << 16 | (self.packet.msn as u64) << 48 | (self.at as u8 as u64) << 8 | self.value as u64
    }
}

/// A message as it should go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Posted {
    what: Do,
    number: u8,
    credit: u32,
    /// Packets of it that have been placed.
    placed: u32,
    /// Its receive was reported complete.
    received: bool,
    /// The responder's side has reported its end.
    over: bool,
    /// Of a READ: packets that have come back.
    back: u32,
    /// WRITEs and atomics before it.
    writes: u8,
    adds: u8,
}

/// A payload on its way to memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Dma {
    psn: u32,
    message: u8,
    place: Place,
}

/// Both ends and the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const B: u32, const W: usize, const M: usize, const R: usize> {
    requester: Requester<B, W, M>,
    responder: Responder<B, W, R>,
    there: Air<Request>,
    back: Air<Response>,
    /// Messages that are not complete, oldest first.
    posted: VecDeque<Posted>,
    /// Messages posted so far.
    count: u8,
    credits: u32,
    writes: u8,
    adds: u8,
    /// The responder's oldest packet that is not in place, counted from the oldest unacknowledged one.
    placed: i8,
    /// Packets above that, by bit, that were placed.
    above: u32,
    /// Payloads on their way to memory, oldest first.
    dma: Vec<Dma>,
    /// What the memory says: number of the last WRITE to its first byte, and the sum of adds.
    memory: u8,
    sum: u8,
    /// Receives that the other side has posted so far.
    receives: u32,
    fault: Option<Fault>,
    seen_again: bool,
    seen_rnr: bool,
    refused: bool,
}

/// Steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The user posts a message.
    Post(Do),
    /// The other side posts a receive (peers without credit lists).
    PostReceive,
    /// The requester sends a packet.
    Transmit,
    /// A request packet arrives. It may come again: that it does not is the same as its loss.
    Arrive(usize),
    /// It is lost.
    Lose(usize),
    /// A payload has reached memory.
    Placed(usize),
    /// The responder sends a packet.
    Respond,
    /// A response arrives.
    Answer(usize),
    /// It is lost.
    LoseAnswer(usize),
    /// The requester's timer runs out.
    Timeout,
}

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Transport<const B: u32, const W: usize, const M: usize, const R: usize> {
    /// Selective repeat, else go-back-N.
    pub selective: bool,
    /// Packets of WRITEs are taken in order only.
    pub writes_in_order: bool,
    /// Messages in this order, over and over.
    pub script: &'static [Do],
    /// Messages in all.
    pub total: u8,
    /// First PSN.
    pub psn: u32,
    /// Packets on their way there and back.
    pub air: (usize, usize),
    /// Payloads take a time to reach memory, and end in any order.
    pub dma: bool,
    /// The peer has no credit lists: RNR, count credits; it posts its receives one by one.
    pub rnr: bool,
    /// Receives that the other side has from the beginning. With fewer than the messages need, and no `rnr`, the sender
    /// does not keep to its credits, and must be refused.
    pub receives: u32,
    /// Packets that overtake one before it counts as lost.
    pub reorder: u8,
    /// Size of each receive. With less than the SENDs have the sender does not keep to its credits either.
    pub credit: u32,
    /// Packets on their way that were agreed on, at most `W`.
    pub window: u16,
    /// Messages are posted as soon as there is room, not at any time.
    pub eager: bool,
}

struct Host {
    credits: u32,
    count: u32,
}

impl Target for Host {
    fn credit(&self, number: u32) -> Option<u32> {
        (number < self.count).then_some(self.credits)
    }

    fn access(&mut self, _: &Access) -> Admit {
        Admit::Yes
    }
}

/// Numbers of WRITEs are compared around this.
const RING: u8 = 16;

type S<const B: u32, const W: usize, const M: usize, const R: usize> = State<B, W, M, R>;

impl<const B: u32, const W: usize, const M: usize, const R: usize> Transport<B, W, M, R> {
    const HALF: i8 = 1 << (B - 1);

    /// The sender does not keep to its credits.
    fn rogue(&self) -> bool {
        let all = self.script.iter().cycle().take(self.total as usize);
        let needed = all.filter(|what| what.receives().is_some()).count() as u32;
        let long = self.script.iter().any(|what| matches!(what, Do::Send(len) if *len > self.credit));
        long || (!self.rnr && needed > self.receives)
    }

    fn next_op(&self, s: &S<B, W, M, R>) -> Option<Do> {
        (s.count < self.total).then(|| self.script.get(s.count as usize % self.script.len()).copied()).flatten()
    }

    fn post(&self, s: &mut S<B, W, M, R>, what: Do) {
        let remote = Remote { va: 8, key: 1, len: 0 };
        let (op, len) = match what {
            Do::Send(len) => (Op::Send, len),
            Do::Write(len) | Do::WriteImm(len) => (Op::Write, len),
            Do::Fenced => (Op::Write, 1),
            Do::Read(len) => (Op::Read, len),
            Do::Add => (Op::FetchAdd { add: 1 }, 8),
        };
        let credit = what.receives().is_some();
        let message = Message {
            op,
            tag: s.count as u32,
            len,
            credit: if credit { s.credits } else { 0 },
            imm: if matches!(what, Do::WriteImm(_)) { Immediate::Value(7) } else { Immediate::None },
            remote: if op == Op::Send { Remote::default() } else { Remote { len, ..remote } },
            fence: what == Do::Fenced,
            ..Message::default()
        };
        if s.requester.post(message).is_err() {
            return;
        }
        s.writes += what.writes().is_some() as u8;
        let posted = Posted {
            what,
            number: s.count,
            credit: s.credits,
            placed: 0,
            received: false,
            over: false,
            back: 0,
            writes: s.writes,
            adds: s.adds,
        };
        s.credits += credit as u32;
        s.adds += matches!(what, Do::Add) as u8;
        s.posted.push_back(posted);
        s.count += 1;
    }

    fn post_all(&self, s: &mut S<B, W, M, R>) {
        while self.eager
            && s.requester.room() > 0
            && let Some(what) = self.next_op(s)
        {
            self.post(s, what);
        }
    }

    fn transmit(&self, s: &mut S<B, W, M, R>) -> Result<bool, Fault> {
        let una = s.requester.window().una();
        let Some(t) = s.requester.transmit(0) else { return Ok(false) };
        self.rebase(s, una.get());
        let una = s.requester.window().una().get();
        let at = (t.packet.psn.wrapping_sub(una) & ((1 << B) - 1)) as i8;
        s.seen_again |= t.again;
        s.there.send(Request { packet: t.packet, at, message: t.tag as u8, index: t.offset as u32 });
        let unanswered = |p: &&Posted| matches!((p.what, p.back), (Do::Read(_) | Do::Add, 0));
        let earlier = |p: &&Posted| p.number as u32 != t.tag;
        let fenced = s.posted.iter().find(|p| p.number as u32 == t.tag).is_some_and(|p| p.what == Do::Fenced);
        if fenced && !t.again && s.posted.iter().take_while(earlier).any(|p| unanswered(&p)) {
            return Err(Fault::Early);
        }
        Ok(true)
    }

    /// The oldest unacknowledged packet is another one than `una`: all is counted from there.
    fn rebase(&self, s: &mut S<B, W, M, R>, una: u32) {
        let moved = (s.requester.window().una().get().wrapping_sub(una) & ((1 << B) - 1)) as i8;
        s.placed -= moved;
        let placed = s.placed;
        s.there.age(|r| {
            r.at -= moved;
            r.at > placed - Self::HALF
        });
        s.back.age(|r| {
            r.at -= moved;
            r.lives(Self::HALF)
        });
    }

    fn arrive(&self, s: &mut S<B, W, M, R>, r: &Request) -> Result<(), Fault> {
        let mut host = Host { credits: self.credit, count: s.receives };
        let next = s.responder.arrival().expected().get();
        let verdict = s.responder.receive(&r.packet, &mut host);
        match verdict {
            Verdict::Place(place) => {
                if self.writes_in_order && matches!(place, Place::Memory { .. }) && r.packet.psn != next {
                    return Err(Fault::Misplaced);
                }
                let bit = r.at - s.placed;
                if bit < 0 || s.above & 1 << bit != 0 {
                    return Err(Fault::Twice);
                }
                s.above |= 1 << bit;
                let Some(posted) = s.posted.iter_mut().find(|p| p.number == r.message) else {
                    return Err(Fault::Twice);
                };
                let right = match (place, posted.what) {
                    (Place::Receive { credit, offset }, Do::Send(_)) => credit == posted.credit && offset == r.index,
                    (Place::Memory { va, .. }, Do::Write(_) | Do::WriteImm(_) | Do::Fenced) => va == 8 + r.index as u64,
                    _ => false,
                };
                if !right {
                    return Err(Fault::Misplaced);
                }
                if let Place::Receive { credit, offset } = place
                    && (credit >= s.receives || offset + r.packet.len > self.credit)
                {
                    return Err(Fault::NoReceive);
                }
                s.dma.push(Dma { psn: r.packet.psn, message: r.message, place });
                if !self.dma {
                    self.place(s, 0);
                }
            }
            Verdict::Taken | Verdict::Duplicate | Verdict::Drop(_) => (),
        }
        self.events(s)
    }

    fn place(&self, s: &mut S<B, W, M, R>, i: usize) {
        let Dma { psn, message, place } = s.dma.remove(i);
        if let Some(posted) = s.posted.iter_mut().find(|p| p.number == message) {
            posted.placed += 1;
            // The byte that is looked at is the first one of every WRITE; others may come behind a later WRITE's.
            if matches!(place, Place::Memory { va: 8, .. }) {
                s.memory = posted.writes;
            }
        }
        s.responder.placed(psn);
    }

    fn events(&self, s: &mut S<B, W, M, R>) -> Result<(), Fault> {
        let before = s.responder.arrival().placed().get();
        while let Some(event) = s.responder.event() {
            match event {
                Event::Landed { credit } if credit >= s.receives => return Err(Fault::NoReceive),
                Event::Landed { .. } => (),
                Event::Received { credit, len, write, .. } => {
                    let next = s.posted.iter_mut().find(|p| p.what.receives().is_some() && !p.received);
                    let Some(next) = next.filter(|p| p.credit == credit) else { return Err(Fault::Early) };
                    if next.what.receives() != Some(len) || next.placed != len {
                        return Err(Fault::Early);
                    }
                    // Of a WRITE that its key was used is still to come.
                    (next.received, next.over) = (true, !write);
                }
                Event::Used { .. } => {
                    let next = s.posted.iter_mut().find(|p| !matches!(p.what, Do::Send(_)) && !p.over);
                    let Some(next) = next else { return Err(Fault::Twice) };
                    let whole = next.what.writes().is_none_or(|len| next.placed == len);
                    if !whole || next.received != next.what.receives().is_some() {
                        return Err(Fault::Early);
                    }
                    next.over = true;
                }
                Event::Atomic { psn, .. } => {
                    s.responder.atomic_done(psn, s.sum as u64);
                    s.sum += 1;
                    let next = s.posted.iter_mut().find(|p| p.what == Do::Add && p.placed == 0);
                    next.ok_or(Fault::Twice)?.placed = 1;
                }
                Event::Broken(_) if self.rogue() => s.refused = true,
                Event::Broken(_) | Event::PageFault(_) | Event::Invalidate { .. } => return Err(Fault::Refused),
            }
        }
        self.moved(s, before);
        Ok(())
    }

    /// The responder's oldest packet that is not in place is another one.
    fn moved(&self, s: &mut S<B, W, M, R>, before: u32) {
        let moved = s.responder.arrival().placed().get().wrapping_sub(before) & ((1 << B) - 1);
        s.above >>= moved;
        s.placed += moved as i8;
        let placed = s.placed;
        s.there.age(|r| r.at > placed - Self::HALF);
    }

    fn respond(&self, s: &mut S<B, W, M, R>) -> Result<bool, Fault> {
        let before = s.responder.arrival().placed().get();
        let Some(reply) = s.responder.respond() else { return Ok(false) };
        // No answer is about a packet that has not come; one to a READ that came again may be far behind.
        let past = match reply.packet.body {
            ResponseBody::Ack { .. } => Self::HALF as u32,
            ResponseBody::Read { .. } | ResponseBody::Atomic { .. } => {
                let come = s.responder.arrival().expected().get().wrapping_sub(before) & ((1 << B) - 1);
                (1 << B) - come.max(1)
            }
        };
        let ahead = (reply.packet.psn.wrapping_sub(before).wrapping_add(past) & ((1 << B) - 1)) as i8;
        let at = s.placed + ahead - past as i8;
        if let ResponseBody::Ack { syndrome: Syndrome::Rnr(_), .. } = reply.packet.body {
            s.seen_rnr = true;
        }
        let response = Response { packet: reply.packet, at, value: s.memory };
        if response.lives(Self::HALF) {
            s.back.send(response);
        }
        self.events(s)?;
        Ok(true)
    }

    fn answer(&self, s: &mut S<B, W, M, R>, r: &Response) -> Result<(), Fault> {
        let una = s.requester.window().una().get();
        let outcome = s.requester.response(0, &r.packet);
        match outcome {
            Outcome::Bad | Outcome::Failed if !self.rogue() => return Err(Fault::Refused),
            Outcome::Bad | Outcome::Failed => (),
            Outcome::Read { tag, .. } => {
                let posted = s.posted.iter_mut().find(|p| p.number as u32 == tag).ok_or(Fault::WrongValue)?;
                posted.back += 1;
                if r.value.wrapping_sub(posted.writes) % RING >= RING / 2 {
                    return Err(Fault::WrongValue);
                }
            }
            Outcome::Atomic { tag, original, .. } => {
                let posted = s.posted.iter_mut().find(|p| p.number as u32 == tag).ok_or(Fault::WrongValue)?;
                posted.back += 1;
                if original != posted.adds as u64 {
                    return Err(Fault::WrongValue);
                }
            }
            Outcome::Nothing | Outcome::Progress => (),
        }
        self.rebase(s, una);
        self.completions(s)
    }

    fn completions(&self, s: &mut S<B, W, M, R>) -> Result<(), Fault> {
        while let Some(Completion { tag, status, .. }) = s.requester.complete() {
            if status != Status::Done && self.rogue() {
                return Ok(());
            }
            if status != Status::Done {
                return Err(Fault::Refused);
            }
            let posted = s.posted.pop_front().ok_or(Fault::Early)?;
            let whole = match posted.what {
                Do::Send(_) | Do::Write(_) | Do::WriteImm(_) | Do::Fenced => posted.over,
                Do::Read(len) => posted.back == len,
                Do::Add => posted.back == 1,
            };
            if posted.number as u32 != tag || !whole {
                return Err(Fault::Early);
            }
            if posted.what.writes().is_some() && s.memory.wrapping_sub(posted.writes) % RING >= RING / 2 {
                return Err(Fault::WrongValue);
            }
        }
        Ok(())
    }

    fn step(&self, s: &mut S<B, W, M, R>, action: Action) -> Result<bool, Fault> {
        match action {
            Action::Post(what) => self.post(s, what),
            Action::PostReceive => s.receives += 1,
            Action::Transmit => return self.transmit(s),
            Action::Arrive(i) => {
                let Some(r) = s.there.get(i).cloned() else { return Ok(false) };
                self.arrive(s, &r)?;
            }
            Action::Lose(i) => return Ok(s.there.remove(i).is_some()),
            Action::Placed(i) => {
                self.place(s, i);
                self.events(s)?;
            }
            Action::Respond => return self.respond(s),
            Action::Answer(i) => {
                let Some(r) = s.back.get(i).cloned() else { return Ok(false) };
                self.answer(s, &r)?;
            }
            Action::LoseAnswer(i) => return Ok(s.back.remove(i).is_some()),
            Action::Timeout => {
                let lost = s.requester.window().lost().count();
                s.requester.tick(0);
                // READs and atomics are asked for again together.
                let sends = self.script.iter().all(|what| !matches!(what, Do::Read(_) | Do::Add));
                if self.selective && sends && s.requester.window().lost().count() > lost + 1 {
                    return Err(Fault::Storm);
                }
            }
        }
        Ok(true)
    }
}

impl<const B: u32, const W: usize, const M: usize, const R: usize> Model for Transport<B, W, M, R> {
    type State = State<B, W, M, R>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let berth = RequesterConfig::berth(0, self.window, 0);
        let config = RequesterConfig {
            selective: self.selective,
            reorder: self.reorder,
            count_credits: self.rnr,
            tick: 0,
            retries: 0,
            reads: R as u8,
            read_log2: 0,
            ..berth
        };
        let answers = ResponderConfig {
            log2_mtu: 0,
            selective: self.selective,
            writes_in_order: self.writes_in_order,
            rnr_timer: self.rnr.then_some(1),
            ack_every: 2,
            credit_bits: 32,
        };
        let credits = 0;
        let mut state = State {
            requester: Requester::new(config, self.psn),
            responder: Responder::new(answers, self.psn, credits),
            there: Air::default(),
            back: Air::default(),
            posted: VecDeque::new(),
            count: 0,
            credits,
            writes: 0,
            adds: 0,
            placed: 0,
            above: 0,
            dma: Vec::new(),
            memory: 0,
            sum: 0,
            receives: if self.rnr { 0 } else { self.receives },
            fault: None,
            seen_again: false,
            seen_rnr: false,
            refused: false,
        };
        self.post_all(&mut state);
        vec![state]
    }

    fn actions(&self, s: &Self::State, actions: &mut Vec<Action>) {
        if s.fault.is_some() || s.refused {
            return;
        }
        if let Some(what) = self.next_op(s)
            && s.requester.room() > 0
            && !self.eager
        {
            actions.push(Action::Post(what));
        }
        if self.rnr && s.receives <= s.responder.next_credit() {
            actions.push(Action::PostReceive);
        }
        if s.there.len() < self.air.0 {
            actions.push(Action::Transmit);
        }
        for i in 0..s.there.len() {
            actions.extend([Action::Arrive(i), Action::Lose(i)]);
        }
        // Writes to the same bytes do not overtake each other, as on PCI Express; others may.
        let free = |i: &usize| s.dma[..*i].iter().all(|earlier| earlier.place != s.dma[*i].place);
        actions.extend((0..s.dma.len()).filter(free).map(Action::Placed));
        if s.back.len() < self.air.1 {
            actions.push(Action::Respond);
        }
        for i in 0..s.back.len() {
            actions.extend([Action::Answer(i), Action::LoseAnswer(i)]);
        }
        if s.requester.deadline().is_some() {
            actions.push(Action::Timeout);
        }
    }

    fn next_state(&self, state: &Self::State, action: Action) -> Option<Self::State> {
        let mut next = state.clone();
        match self.step(&mut next, action) {
            Ok(true) => self.post_all(&mut next),
            Ok(false) => return None,
            Err(fault) => next.fault = Some(fault),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("exactly once", |_, s: &Self::State| s.fault != Some(Fault::Twice)),
            Property::always("every byte in its place", |_, s: &Self::State| s.fault != Some(Fault::Misplaced)),
            Property::always("complete only when all of it is there, in order", |_, s: &Self::State| {
                s.fault != Some(Fault::Early)
            }),
            Property::always("READs and atomics see what was before them", |_, s: &Self::State| {
                s.fault != Some(Fault::WrongValue)
            }),
            Property::always("no honest peer is refused", |_, s: &Self::State| s.fault != Some(Fault::Refused)),
            Property::always("no receive is used that is not there", |_, s: &Self::State| {
                s.fault != Some(Fault::NoReceive)
            }),
            Property::always("no more on its way than agreed", |m: &Self, s: &Self::State| {
                s.requester.window().flight() <= m.window as u32
            }),
            Property::always("a time-out sends one packet", |_, s: &Self::State| s.fault != Some(Fault::Storm)),
            Property::sometimes("something is sent again", |_, s: &Self::State| s.seen_again),
        ];
        if self.rogue() {
            properties.push(Property::sometimes("the sender is refused", |_, s: &Self::State| s.refused));
        } else if self.script.iter().all(|what| matches!(what, Do::Send(_))) {
            properties.push(Property::sometimes("the window is full", |m: &Self, s: &Self::State| {
                s.requester.window().flight() == m.window as u32
            }));
            properties.push(Property::sometimes("the PSNs have turned", |m: &Self, s: &Self::State| {
                s.requester.window().una().get() < m.psn && s.posted.len() < s.count as usize
            }));
        }
        if self.rnr {
            properties.push(Property::sometimes("receiver not ready", |_, s: &Self::State| s.seen_rnr));
        }
        if self.selective && !self.rogue() && !self.script.iter().all(|what| what.writes().is_some()) {
            properties.push(Property::sometimes("a packet is placed ahead of a missing one", |_, s: &Self::State| {
                s.above & 1 == 0 && s.above != 0
            }));
        }
        properties
    }
}

impl<const B: u32, const W: usize, const M: usize, const R: usize> Harness for Transport<B, W, M, R> {
    const NAME: &'static str = "rc";

    fn finished(&self, s: &Self::State) -> bool {
        s.fault.is_none() && (s.refused || s.count == self.total && s.posted.is_empty())
    }

    fn bounds(&self) -> String {
        format!(
            "{}, {B}-bit PSN from {}, window {} of {W}, log of {M}, {R} READs, {} messages of {:?}{}, {}+{} packets on a wire that loses, repeats and reorders{}{}",
            if self.selective { "selective repeat" } else { "go-back-N" },
            self.psn,
            self.window,
            self.total,
            self.script,
            if self.eager { "" } else { " at any time" },
            self.air.0,
            self.air.1,
            if self.dma { ", DMA ends in any order" } else { "" },
            if self.rnr {
                ", RNR and count credits"
            } else if self.rogue() {
                ", more than the credits"
            } else {
                ""
            },
        )
    }
}
