// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two whole ends on one host: one sends a stream to the other, under a budget of pinned pages that both share.
//!
//! Everything between them is nondeterministic: packets, acknowledgements and credit entries are lost, repeated and
//! reordered; page services, reads by the transmitter and writes to memory end when they like. Pages are one byte, so
//! is the MTU. There are more PSNs than packets: what old packets may do is explored in `transport`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_protocol::credit::announcer::Options;
use berth_protocol::credit::entry::{Entry, Name};
use berth_protocol::credit::policy::{Kind, Settings};
use berth_protocol::credit::taker::Arrived;
use berth_protocol::memory::blocks::{self, Outcome};
use berth_protocol::memory::context::{Again, Choice, First, Place, Policy, Span};
use berth_protocol::memory::pins::{self, Answer, Pins, Request, Served, Usage};
use berth_protocol::memory::receives;
use berth_protocol::rc::{Outcome as Heed, RequestPacket, RequesterConfig, ResponderConfig, ResponsePacket};
use berth_protocol::stream::{Config, Departure, End, HostAction, Landing};
use stateright::{Model, Property};

use crate::buffers::CreditBuffers;
use crate::channel::{Air, Packet};
use crate::explore::{Harness, stable_hash};
use crate::lists::{RUN_OUT, RUNS};

/// Store of 4 credits, lists of 2, 4-bit PSN, window of 4, log of 3, 2 sends, 3 blocks, 4 ranges.
type Side = End<4, 2, 4, 4, 3, 2, 3, 4>;
/// Pages of one process, and its waiting line.
type Table = Pins<8, 1, 4>;

const SENDER: usize = 0;
const RECEIVER: usize = 1;

impl Packet for RequestPacket {
    fn key(&self) -> u64 {
        (self.psn as u64) << 8 | self.ack_request as u64
    }
}

impl Packet for ResponsePacket {
    fn key(&self) -> u64 {
        stable_hash(self)
    }
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// More pages are pinned, or being brought in, than the budget has.
    OverBudget,
    /// The card touches memory that it does not hold.
    Untouchable,
    /// A byte was placed twice, or not where it belongs.
    WrongBytes,
    /// A receive or a send was reported complete before it was, or with another length.
    Early,
    /// An end is broken, or refuses what an honest peer says.
    Broken,
    /// A new list found no posted credit buffer.
    NoCreditBuffer,
    /// The page accounting contradicts itself.
    Accounting,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    ends: [Side; 2],
    pins: Table,
    /// Pages of each use that is held or being brought in: (owner, tag) to its bytes.
    uses: BTreeMap<(u32, u16), Vec<(u64, u32)>>,
    /// Page services under way.
    services: Vec<Request>,
    /// Packets whose bytes are to be read.
    transmitter: VecDeque<Departure>,
    /// Bytes on their way to memory.
    dma: Vec<(Landing, u8)>,
    there: Air<RequestPacket>,
    back: Air<ResponsePacket>,
    entries: [Air<Entry<2>>; 2],
    /// The sender's credit buffers, counted independently.
    buffers: CreditBuffers,
    /// Memory of the receiver: which byte of the stream lies where.
    memory: BTreeMap<u64, u8>,
    received: u8,
    sent: u8,
    recalls: u8,
    waited: bool,
    again: bool,
    fault: Option<Fault>,
}

/// Steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The sender hands a packet to the transmitter.
    Transmit,
    /// The oldest packet there is read and leaves.
    Leave,
    /// A packet arrives; it may come again.
    Arrive(usize),
    /// It is lost.
    Lose(usize),
    /// Bytes have reached memory.
    Placed(usize),
    /// The receiver acknowledges.
    Respond,
    /// An acknowledgement arrives.
    Heed(usize),
    /// It is lost.
    LoseResponse(usize),
    /// An end says something about credits to the other one, what is not proven again first: its timer has run out.
    Say(usize),
    /// It says something else than that: its timer still runs.
    SayBefore(usize),
    /// It arrives.
    Hear(usize, usize),
    /// It is lost.
    LoseEntry(usize, usize),
    /// The sender uses what has arrived.
    UseCredits,
    /// A page service ends.
    Serve(usize),
    /// The sender's timer runs out.
    Timeout,
    /// Somebody lacks memory: the receiver asks for credits back.
    Recall,
}

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Pages that may be pinned, and those of them that receives never take.
    pub budget: (u32, u32),
    /// Sizes of the receives, posted one by one at the beginning.
    pub receives: &'static [u32],
    /// Sizes of the sends.
    pub sends: &'static [u32],
    /// Bytes of a block.
    pub block: u32,
    /// Packets, acknowledgements and entries (each way) under way.
    pub air: (usize, usize, usize),
    /// How blocks are had, first and again.
    pub policy: Policy,
    /// Recalls.
    pub recalls: u8,
}

impl Ends {
    /// Everything through pins.
    pub const PIN: Policy = Policy { first: First::Pin, again: Again::Pin };

    fn byte_of(offset: u64) -> u8 {
        offset as u8 + 1
    }

    fn request(owner: usize, tag: u16, usage: Usage) -> Request {
        Request { owner: owner as u32, tag, asid: 1, usage }
    }

    fn spans(s: &State, request: &Request) -> Vec<Span> {
        let end = &s.ends[request.owner as usize];
        match request.owner as usize {
            SENDER => end.block(request.tag).map(|(at, len, _)| end.block_spans(at, len).collect()).unwrap_or_default(),
            _ => end.receive_spans(request.tag).collect(),
        }
    }

    fn answer(s: &mut State, request: &Request, outcome: Outcome) -> Result<(), Fault> {
        s.waited |= outcome == Outcome::Waits;
        let end = &mut s.ends[request.owner as usize];
        let awaited = match request.owner as usize {
            SENDER => end.block_answer(request.tag, outcome),
            _ => end.receive_answer(request.tag, outcome),
        };
        if awaited { Ok(()) } else { Err(Fault::Accounting) }
    }

    fn acquire(s: &mut State, request: Request) -> Result<(), Fault> {
        let spans = Self::spans(s, &request);
        let writing = request.owner as usize == RECEIVER;
        let answer = s.pins.acquire(&request, spans.iter().copied(), writing);
        if matches!(answer, Answer::Hit | Answer::Serve { .. }) {
            s.uses.insert((request.owner, request.tag), spans.iter().map(|s| (s.va, s.len)).collect());
        }
        let outcome = match answer {
            Answer::Hit => Outcome::Held,
            Answer::Serve { .. } => {
                s.services.push(request);
                s.services.sort_by_key(|r| (r.owner, r.tag));
                return Ok(());
            }
            Answer::Wait => Outcome::Waits,
            Answer::Refused(error) => Outcome::Failed(error.into()),
        };
        Self::answer(s, &request, outcome)
    }

    fn release(s: &mut State, owner: usize, tag: u16, usage: Usage, spans: &[Span]) -> Result<(), Fault> {
        s.uses.remove(&(owner as u32, tag));
        match s.pins.release(&Self::request(owner, tag, usage), spans.iter().copied(), 0) {
            true => Ok(()),
            false => Err(Fault::Accounting),
        }
    }

    /// What the host does at once.
    fn host(&self, s: &mut State) -> Result<(), Fault> {
        loop {
            let mut idle = true;
            for owner in [SENDER, RECEIVER] {
                while let Some(action) = s.ends[owner].poll_host() {
                    idle = false;
                    self.host_action(s, owner, action)?;
                }
            }
            while let Some(request) = s.pins.retry() {
                idle = false;
                Self::acquire(s, request)?;
            }
            if idle {
                break;
            }
        }
        let pages: BTreeSet<u64> = s.uses.values().flatten().flat_map(|&(va, len)| va..va + len as u64).collect();
        if pages.len() as u32 > self.budget.0 || s.pins.pinned() > self.budget.0 {
            return Err(Fault::OverBudget);
        }
        if pages.len() as u32 != s.pins.pinned() {
            return Err(Fault::Accounting);
        }
        if s.ends.iter().any(|e| e.broken().is_some()) {
            return Err(Fault::Broken);
        }
        Ok(())
    }

    fn host_action(&self, s: &mut State, owner: usize, action: HostAction) -> Result<(), Fault> {
        match action {
            HostAction::Send(blocks::Action::Pin { tag, usage, .. }) => {
                Self::acquire(s, Self::request(owner, tag, usage))?;
            }
            HostAction::Send(blocks::Action::Copy { tag, .. }) => {
                s.ends[owner].block_answer(tag, Outcome::Held);
            }
            HostAction::Send(blocks::Action::Release { tag, start, len, usage }) => {
                let spans: Vec<Span> = s.ends[owner].block_spans(start, len).collect();
                Self::release(s, owner, tag, usage, &spans)?;
            }
            HostAction::Send(blocks::Action::Cancel { tag, usage }) => {
                let request = Self::request(owner, tag, usage);
                if s.pins.cancel(&request) {
                    Self::answer(s, &request, Outcome::Gone)?;
                }
            }
            HostAction::PinReceive(tag) => Self::acquire(s, Self::request(owner, tag, Usage::Lasting))?,
            HostAction::ReleaseReceive(tag) => {
                let spans: Vec<Span> = s.ends[owner].receive_spans(tag).collect();
                Self::release(s, owner, tag, Usage::Lasting, &spans)?;
            }
            HostAction::CancelReceive(tag) => {
                let request = Self::request(owner, tag, Usage::Lasting);
                if s.pins.cancel(&request) {
                    Self::answer(s, &request, Outcome::Gone)?;
                }
            }
            HostAction::Received(_, receives::Status::Filled(len)) => {
                // The bytes of the stream, in order, lie in the receives, in order.
                let first: u32 = self.receives[..s.received as usize].iter().sum();
                let before: u32 = self.filled(s.received as usize).0;
                let expected = self.filled(s.received as usize).1;
                let right = (0..len).all(|i| {
                    s.memory.get(&(100 + first as u64 + i as u64)) == Some(&Self::byte_of((before + i) as u64))
                });
                if len != expected || !right {
                    return Err(Fault::Early);
                }
                s.received += 1;
            }
            HostAction::Received(..) => return Err(Fault::Broken),
            HostAction::Sent(_) => {
                s.sent += 1;
                let bytes: u32 = self.sends[..s.sent as usize].iter().sum();
                if s.memory.len() < bytes as usize {
                    return Err(Fault::Early);
                }
            }
        }
        Ok(())
    }

    /// Stream offset at which receive `i` begins, and the bytes that it gets: sends are cut to receives, and no
    /// receive serves two sends.
    fn filled(&self, i: usize) -> (u32, u32) {
        let (mut offset, mut send, mut used) = (0, 0, 0);
        let mut last = 0;
        for size in &self.receives[..=i] {
            offset += last;
            let rest = self.sends.get(send).map_or(0, |len| len - used);
            last = rest.min(*size);
            used += last;
            if self.sends.get(send).is_some_and(|len| used == *len) {
                (send, used) = (send + 1, 0);
            }
        }
        (offset, last)
    }

    fn touch(s: &State, spans: impl Iterator<Item = Span>, writing: bool) -> Result<(), Fault> {
        let mut spans = spans;
        if spans.all(|span| s.pins.may_touch(1, span, writing)) { Ok(()) } else { Err(Fault::Untouchable) }
    }

    fn step(&self, s: &mut State, action: Action) -> Result<bool, Fault> {
        match action {
            // Asking has no effect that waiting would not have.
            Action::Transmit => {
                if let Some(departure) = s.ends[SENDER].poll_request(0) {
                    s.again |= departure.again;
                    s.transmitter.push_back(departure);
                }
            }
            Action::Leave => {
                let Some(d) = s.transmitter.pop_front() else { return Ok(false) };
                if !d.copy {
                    Self::touch(s, s.ends[SENDER].block_spans(d.offset, d.packet.len as u64), false)?;
                }
                s.ends[SENDER].left(d.block);
                s.there.send(d.packet);
            }
            Action::Arrive(i) => {
                let Some(packet) = s.there.get(i).copied() else { return Ok(false) };
                if let Some(landing) = s.ends[RECEIVER].request(0, &packet) {
                    // The number of a packet is its byte of the stream here.
                    s.dma.push((landing, Self::byte_of(packet.psn as u64)));
                    s.dma.sort_by_key(|d| d.0.psn);
                }
            }
            Action::Lose(i) => return Ok(s.there.remove(i).is_some()),
            Action::Placed(i) => {
                let (landing, byte) = s.dma.remove(i);
                let spans: Vec<Span> = s.ends[RECEIVER].landing_spans(&landing).collect();
                Self::touch(s, spans.iter().copied(), true)?;
                for span in spans {
                    if s.memory.insert(span.va, byte).is_some() {
                        return Err(Fault::WrongBytes);
                    }
                }
                s.ends[RECEIVER].placed(0, landing.psn, landing.tag);
            }
            Action::Respond => match s.ends[RECEIVER].poll_response(0) {
                Some(packet) => s.back.send(packet),
                None => return Ok(false),
            },
            Action::Heed(i) => {
                let Some(packet) = s.back.get(i).copied() else { return Ok(false) };
                if matches!(s.ends[SENDER].response(0, &packet), Heed::Bad | Heed::Failed) {
                    return Err(Fault::Broken);
                }
            }
            Action::LoseResponse(i) => return Ok(s.back.remove(i).is_some()),
            Action::Say(who) | Action::SayBefore(who) => {
                let late = s.ends[who].clone().poll_control(RUN_OUT);
                let run_out = action == Action::Say(who);
                let entry = s.ends[who].poll_control(if run_out { RUN_OUT } else { RUNS });
                match entry.filter(|e| run_out || late != Some(*e)) {
                    Some(entry) => s.entries[who].send(entry),
                    None => return Ok(false),
                }
            }
            Action::Hear(from, i) => {
                let Some(entry) = s.entries[from].get(i).copied() else { return Ok(false) };
                if from == RECEIVER && !s.buffers.deliver(&entry) {
                    return Err(Fault::NoCreditBuffer);
                }
                let refusals = [Arrived::Early, Arrived::Overflow, Arrived::Bad, Arrived::WrongEpoch];
                if s.ends[1 - from].control(&entry).is_some_and(|arrived| refusals.contains(&arrived)) {
                    return Err(Fault::Broken);
                }
            }
            Action::LoseEntry(from, i) => return Ok(s.entries[from].remove(i).is_some()),
            Action::UseCredits => {
                s.buffers.used();
                s.ends[SENDER].use_credits();
            }
            Action::Serve(i) => {
                let request = s.services.remove(i);
                let spans = Self::spans(s, &request);
                let writing = request.owner as usize == RECEIVER;
                let outcome = match s.pins.served(&request, spans.iter().copied(), writing, 0) {
                    Served::Held => Outcome::Held,
                    Served::Gone | Served::NotHeld => return Err(Fault::Accounting),
                };
                Self::answer(s, &request, outcome)?;
            }
            Action::Timeout => s.ends[SENDER].tick(0),
            Action::Recall => {
                s.recalls += 1;
                s.ends[RECEIVER].recall(1);
            }
        }
        self.host(s)?;
        Ok(true)
    }

    /// Nothing is under way.
    fn rest(&self, s: &State) -> bool {
        s.received as usize == self.receives.len()
            && s.sent as usize == self.sends.len()
            && s.ends.iter().all(End::idle)
            && s.services.is_empty()
            && s.transmitter.is_empty()
            && s.dma.is_empty()
    }
}

impl Model for Ends {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let requester = RequesterConfig { reorder: 1, tick: 0, retries: 0, ..RequesterConfig::berth(0, 4, 0) };
        let responder = ResponderConfig { ack_every: 2, ..ResponderConfig::berth(0) };
        let choice = Choice::Fixed(self.policy);
        let config = Config {
            lists: Options { max_list: 2, part: 2, repeat: 0, policy: Settings::of(Kind::First), ..Options::default() },
            requester,
            responder,
            blocks: blocks::Config { mtu: 1, block: self.block, window: 2, copy_room: 2, choice },
        };
        let (a, b) = (Name { qpn: 1, epoch: 0 }, Name { qpn: 2, epoch: 0 });
        let mut ends = [End::new(&config, 0, a, b, (0, 0)), End::new(&config, 0, b, a, (0, 0))];
        let mut va = 100;
        for &size in self.receives {
            let _ = ends[RECEIVER].post_receive(&[Span { va, len: size }]);
            ends[RECEIVER].ring();
            va += size as u64;
        }
        let mut va = 0;
        for (tag, &len) in self.sends.iter().enumerate() {
            let _ = ends[SENDER].post_send(tag as u32, &[Place::at(va, len)], None);
            va += len as u64;
        }
        let mut pins = Pins::new(pins::Config {
            budget: self.budget.0,
            reserve: self.budget.1,
            lend: false,
            page_shift: 0,
            linger: 0,
        });
        pins.open(1, self.budget.0);
        let mut state = State {
            ends,
            pins,
            uses: BTreeMap::new(),
            services: Vec::new(),
            transmitter: VecDeque::new(),
            dma: Vec::new(),
            there: Air::default(),
            back: Air::default(),
            entries: [Air::default(), Air::default()],
            buffers: CreditBuffers::default(),
            memory: BTreeMap::new(),
            received: 0,
            sent: 0,
            recalls: 0,
            waited: false,
            again: false,
            fault: None,
        };
        state.fault = self.host(&mut state).err();
        vec![state]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        if s.fault.is_some() || self.rest(s) {
            return;
        }
        if s.there.len() < self.air.0 && s.transmitter.is_empty() {
            actions.push(Action::Transmit);
        }
        actions.push(Action::Leave);
        for i in 0..s.there.len() {
            actions.extend([Action::Arrive(i), Action::Lose(i)]);
        }
        actions.extend((0..s.dma.len()).map(Action::Placed));
        if s.back.len() < self.air.1 {
            actions.push(Action::Respond);
        }
        for i in 0..s.back.len() {
            actions.extend([Action::Heed(i), Action::LoseResponse(i)]);
        }
        for who in [RECEIVER, SENDER] {
            if s.entries[who].len() < self.air.2 {
                actions.extend([Action::Say(who), Action::SayBefore(who)]);
            }
            for i in 0..s.entries[who].len() {
                actions.extend([Action::Hear(who, i), Action::LoseEntry(who, i)]);
            }
        }
        actions.push(Action::UseCredits);
        actions.extend((0..s.services.len()).map(Action::Serve));
        if s.ends[SENDER].requester().deadline().is_some() {
            actions.push(Action::Timeout);
        }
        if s.recalls < self.recalls && s.pins.pressure(Usage::Lasting).is_some() {
            actions.push(Action::Recall);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match self.step(&mut next, action) {
            Ok(true) => (),
            Ok(false) => return None,
            Err(fault) => next.fault = Some(fault),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("pinned within the budget", |_, s: &State| s.fault != Some(Fault::OverBudget)),
            Property::always("nothing pinned at rest", |m: &Self, s: &State| !m.rest(s) || s.pins.pinned() == 0),
            Property::always("the card touches only what it holds", |_, s: &State| s.fault != Some(Fault::Untouchable)),
            Property::always("exactly once, in order", |_, s: &State| {
                !matches!(s.fault, Some(Fault::WrongBytes | Fault::Early))
            }),
            Property::always("no list without a free credit buffer", |_, s: &State| {
                s.fault != Some(Fault::NoCreditBuffer)
            }),
            Property::always("no honest end breaks", |_, s: &State| s.fault != Some(Fault::Broken)),
            Property::always("page accounting agrees", |_, s: &State| s.fault != Some(Fault::Accounting)),
            Property::sometimes("a request waits for budget", |_, s: &State| s.waited),
            Property::sometimes("something is sent again", |_, s: &State| s.again),
            Property::sometimes("at rest", |m: &Self, s: &State| m.rest(s)),
        ]
    }
}

impl Harness for Ends {
    const NAME: &'static str = "ends";

    fn finished(&self, s: &State) -> bool {
        s.fault.is_none() && self.rest(s)
    }

    fn bounds(&self) -> String {
        format!(
            "two ends: credit store 4, lists of 2, 4-bit PSN, window 4; {} pages, {} of them for sends; receives of {:?}, sends of {:?}, blocks of {}, {:?}; {}+{} packets, {} entries each way, all may be lost, repeated, reordered; {} recalls",
            self.budget.0,
            self.budget.1,
            self.receives,
            self.sends,
            self.block,
            self.policy,
            self.air.0,
            self.air.1,
            self.air.2,
            self.recalls,
        )
    }
}
