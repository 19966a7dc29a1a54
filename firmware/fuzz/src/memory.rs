// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arbitrary schedules of contexts, receives and pinned pages; of an indicate window; any bytes as an answer about
//! larger buffers.

use std::collections::{BTreeSet, VecDeque};

use berth_protocol::memory::blocks::{self, BlockError, Outcome, Sender, Transmit};
use berth_protocol::memory::context::{Again, Choice, First, Place, Policy, Span};
use berth_protocol::memory::pins::{self, Answer as Page, Pins, Request, Served, Usage};
use berth_protocol::memory::receives::{self, Receives};
use berth_protocol::service::grow::{self, ANSWER_BYTES, Answer, Hello, Offer, Tally};
use berth_protocol::service::indicate::{Driver, DriverAction, Nic, NicAction, Pool, Settings};

use crate::input::Input;

/// The first byte chooses.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => answer(&mut input),
        1 => indicate(&mut input),
        _ => Pages::new(&mut input).run(&mut input),
    }
}

/// What decodes is encoded again to the same bytes.
fn answer(input: &mut Input<'_>) {
    let phase = input.u32();
    if let Some(answer) = Answer::decode(input.rest(), phase) {
        assert_eq!(answer.encode(), input.rest()[..ANSWER_BYTES]);
    }
    let bytes = input.rest();
    assert!(Hello::decode(bytes).is_none_or(|hello| hello.encode() == bytes));
    assert!(Offer::decode(bytes).is_none_or(|offer| offer.encode() == bytes));
    assert!(grow::Request::decode(bytes).is_none_or(|request| request.encode() == bytes));
    assert!(Tally::decode(bytes).is_none_or(|tally| tally.encode() == bytes[..tally.encode().len()]));
    let answer = Answer { phase: phase.max(1), granted: input.below(2) == 1, addr: input.u64(), ..Answer::default() };
    assert_eq!(Answer::decode(&answer.encode(), answer.phase), Some(answer));
}

/// Card and driver with queues between them: no byte twice, none lost, memory bounded.
fn indicate(input: &mut Input<'_>) {
    let window = 1 + input.below(20);
    let settings = Settings {
        early: input.below(10),
        ahead: input.below(4) as u8,
        push_time: u64::from(input.below(8)),
        ..Settings::default()
    };
    let most = Pool::new(settings).need(window) as usize;
    let mut nic: Nic<4, 4> = Nic::new(window, input.below(20), settings.push_time, 0);
    let mut driver: Driver<4> = Driver::new(&settings, window, 0);
    let (mut events, mut commands) = (VecDeque::new(), VecDeque::new());
    let mut anonymous = BTreeSet::new();
    let (mut now, mut id, mut got, mut came) = (0u64, 0u16, 0u64, 0u64);
    // Where bytes of named buffers lie: (buffer, place, stream offset).
    let mut named = BTreeSet::new();
    let mut closing = false;
    loop {
        closing |= input.is_empty();
        let op = if closing { 0 } else { input.below(8) };
        if closing {
            nic.close();
            driver.close();
        }
        let mut moved = false;
        if matches!(op, 0 | 1) {
            while let Some(action) = nic.poll(now) {
                moved = true;
                match action {
                    NicAction::Anonymous { start, len, .. } => {
                        (start..start + u64::from(len)).for_each(|at| assert!(anonymous.insert(at)));
                        events.push_back(action);
                    }
                    NicAction::Named { id, offset, start, len } => {
                        (0..u64::from(len)).for_each(|i| assert!(named.insert((id, u64::from(offset) + i, start + i))));
                    }
                    NicAction::Return { .. } => events.push_back(action),
                }
            }
        }
        if matches!(op, 0 | 2) {
            moved |= !events.is_empty();
            match events.pop_front() {
                Some(NicAction::Anonymous { start, len, push }) => assert!(driver.indicated(start, len, push)),
                Some(NicAction::Return { id, end, reason }) => assert!(driver.returned(id, end, reason)),
                _ => (),
            }
        }
        if matches!(op, 0 | 3) {
            while let Some(action) = driver.poll(now) {
                moved = true;
                match action {
                    DriverAction::Copy { id, offset, start, len } => {
                        for i in 0..u64::from(len) {
                            assert!(anonymous.remove(&(start + i)));
                            assert!(named.insert((id, u64::from(offset) + i, start + i)));
                        }
                    }
                    DriverAction::Complete { id, bytes, .. } => {
                        (0..u64::from(bytes)).for_each(|i| assert!(named.remove(&(id, i, got + i))));
                        assert!(!named.iter().any(|n| n.0 == id));
                        got += u64::from(bytes);
                    }
                    other => commands.push_back(other),
                }
            }
        }
        if matches!(op, 0 | 4) {
            moved |= !commands.is_empty();
            match commands.pop_front() {
                Some(DriverAction::HandOver { id, start, len, push }) => {
                    assert!(nic.hand_over(id, start, len, push, now));
                }
                Some(DriverAction::Acknowledge(n)) => nic.acknowledge(n),
                _ => (),
            }
        }
        match op {
            5 => {
                let len = 1 + input.below(30);
                came += if nic.arrived(len, input.below(3) == 0) { u64::from(len) } else { 0 };
            }
            6 => {
                id += 1;
                driver.post(id, input.below(5 * window), input.below(2) == 0);
            }
            7 => match input.below(3) {
                0 => now += u64::from(input.below(9)),
                1 => driver.accepting(input.below(20)),
                _ => {
                    for _ in 0..driver.accept(input.below(40)) {
                        assert!(anonymous.remove(&got));
                        got += 1;
                    }
                }
            },
            _ => (),
        }
        assert!(nic.pending() <= window && anonymous.len() <= most && got <= came);
        if closing && !moved {
            break;
        }
    }
    assert_eq!((driver.consumed(), driver.outstanding()), (got, 0), "every buffer comes back");
}

type Recvs = Receives<4, 8>;

/// A connection's two directions on one host.
struct Pages {
    pins: Pins<12, 2, 8>,
    sender: Sender<4, 4, 3>,
    recvs: Recvs,
    services: Vec<Request>,
    copies: Vec<u16>,
    flying: Vec<u16>,
    writing: Vec<u16>,
    credits: u32,
    now: u64,
}

impl Pages {
    fn new(input: &mut Input<'_>) -> Self {
        let budget = 1 + input.below(12);
        let config = pins::Config {
            budget,
            reserve: input.below(4),
            lend: input.below(2) == 1,
            page_shift: 4,
            linger: u64::from(input.below(5)),
        };
        let mut pins = Pins::new(config);
        assert!(pins.open(1, 1 + input.below(14)));
        let policy = Policy {
            first: [First::Pin, First::Copy, First::All][input.below(3) as usize],
            again: if input.below(2) == 0 { Again::Pin } else { Again::Copy },
        };
        let config = blocks::Config {
            mtu: 1 + input.below(20),
            block: input.below(60),
            window: u64::from(input.below(200)),
            copy_room: input.below(80),
            choice: if input.below(4) == 0 { Choice::Adaptive } else { Choice::Fixed(policy) },
        };
        let mut recvs = Recvs::new(input.below(2) == 1);
        recvs.connect();
        Self {
            pins,
            sender: Sender::new(config, 0),
            recvs,
            services: Vec::new(),
            copies: Vec::new(),
            flying: Vec::new(),
            writing: Vec::new(),
            credits: 0,
            now: 0,
        }
    }

    fn spans(&self, request: &Request) -> Vec<Span> {
        if request.owner == 1 {
            return self.recvs.spans(request.tag).collect();
        }
        let (start, len, _) = self.sender.block(request.tag).expect("a block that is asked for");
        self.sender.spans(start, len).collect()
    }

    fn answer(&mut self, request: &Request, outcome: Outcome) {
        assert!(match request.owner {
            1 => self.recvs.answer(request.tag, outcome),
            _ => self.sender.answer(request.tag, outcome),
        });
    }

    fn ask(&mut self, request: Request) {
        let spans = self.spans(&request);
        match self.pins.acquire(&request, spans.into_iter(), request.owner == 1) {
            Page::Hit => self.answer(&request, Outcome::Held),
            Page::Serve { pages } => {
                assert!(pages > 0);
                self.services.push(request);
            }
            Page::Wait => self.answer(&request, Outcome::Waits),
            Page::Refused(error) => self.answer(&request, Outcome::Failed(error.into())),
        }
    }

    fn cancel(&mut self, request: Request) {
        if self.pins.cancel(&request) {
            self.answer(&request, Outcome::Gone);
        }
    }

    /// Everything that follows.
    fn settle(&mut self) {
        loop {
            let mut more = false;
            while let Some(action) = self.sender.poll() {
                more = true;
                let request = |tag, usage| Request { owner: 0, tag, asid: 1, usage };
                match action {
                    blocks::Action::Pin { tag, usage, .. } => self.ask(request(tag, usage)),
                    blocks::Action::Copy { tag, .. } => self.copies.push(tag),
                    blocks::Action::Release { tag, start, len, usage } => {
                        assert!(self.pins.release(&request(tag, usage), self.sender.spans(start, len), self.now));
                    }
                    blocks::Action::Cancel { tag, usage } => self.cancel(request(tag, usage)),
                }
            }
            while let Some(action) = self.recvs.poll() {
                more = true;
                let request = |tag| Request { owner: 1, tag, asid: 1, usage: Usage::Lasting };
                match action {
                    receives::Action::Pin { tag } => self.ask(request(tag)),
                    receives::Action::Release { tag } => {
                        assert!(self.pins.release(&request(tag), self.recvs.spans(tag), self.now));
                    }
                    receives::Action::Cancel { tag } => self.cancel(request(tag)),
                    receives::Action::Post { credit, .. } => {
                        assert_eq!(credit, self.credits);
                        self.credits += 1;
                    }
                    receives::Action::Commit | receives::Action::Complete { .. } => (),
                }
            }
            while let Some(request) = self.pins.retry() {
                more = true;
                self.ask(request);
            }
            let config = self.pins.config();
            assert!(self.pins.pinned() <= config.budget && self.pins.lasting() <= self.pins.pinned());
            assert!(config.lend || self.pins.lasting() <= config.budget.saturating_sub(config.reserve));
            if !more {
                return;
            }
        }
    }

    fn serve(&mut self, i: usize, found: bool) {
        let request = self.services.swap_remove(i);
        let spans = self.spans(&request).into_iter();
        let outcome = match found {
            true => match self.pins.served(&request, spans, request.owner == 1, self.now) {
                Served::Held => Outcome::Held,
                Served::Gone => Outcome::Gone,
                Served::NotHeld => panic!("a service that nobody ordered"),
            },
            false => {
                assert!(self.pins.unserved(&request, spans, self.now));
                Outcome::Failed(BlockError::Protection)
            }
        };
        self.answer(&request, outcome);
    }

    fn event(&mut self, input: &mut Input<'_>) {
        let (acked, sent, covered, _) = self.sender.offsets();
        match input.below(16) {
            0 => {
                let places: Vec<_> = (0..input.below(4))
                    .map(|_| Place {
                        base: u64::from(input.below(60)),
                        offset: u64::from(input.below(60)),
                        len: input.below(70),
                    })
                    .collect();
                self.sender.post(&places, None).ok();
            }
            1 => _ = self.sender.cover(input.below(90)),
            2 => _ = self.sender.uncover(sent + u64::from(input.below(90))),
            3 | 4 => {
                let at = if input.below(3) > 0 { sent } else { acked + u64::from(input.below(60)) };
                if let Transmit::Ready { tag, .. } = self.sender.transmit(at, input.below(30)) {
                    assert!(self.sender.offsets().1 <= covered, "sent without a credit");
                    self.flying.push(tag);
                }
            }
            5 => {
                if let Some(tag) = self.flying.pop() {
                    assert!(self.sender.sent(tag));
                }
            }
            6 => self.sender.acknowledged(acked + u64::from(input.below(60))),
            7 => _ = self.sender.resend(acked + u64::from(input.below(60)), u64::from(input.below(60))),
            8 => {
                let spans: Vec<_> = (0..input.below(4))
                    .map(|_| Span { va: u64::from(input.below(200)), len: input.below(40) })
                    .collect();
                self.recvs.post(&spans).ok();
                if input.below(2) == 0 {
                    self.recvs.ring();
                }
            }
            9 if !self.services.is_empty() => {
                let i = input.below(self.services.len() as u32) as usize;
                self.serve(i, input.below(8) > 0);
            }
            10 => {
                if let Some(tag) = self.copies.pop() {
                    assert!(self.sender.answer(tag, Outcome::Held));
                }
            }
            11 => {
                let (va, len) = (u64::from(input.below(200)), u64::from(input.below(60)));
                self.pins.withdraw(1, va, len, |_| false);
                self.sender.withdrawn(va & !15, len + 31);
                self.recvs.withdrawn(va & !15, len + 31);
                self.pins.fenced();
            }
            12 => {
                let credit = self.credits.wrapping_sub(input.below(5));
                self.recvs.begin(credit).ok();
                if let Ok(tag) = self.recvs.write(credit, input.below(20), input.below(30)) {
                    self.writing.push(tag);
                }
                if input.below(2) == 0 {
                    self.recvs.filled(credit, input.below(40)).ok();
                }
            }
            13 => {
                if let Some(tag) = self.writing.pop() {
                    assert!(self.recvs.written(tag));
                }
            }
            14 => {
                let (unused, _) = self.recvs.unused();
                let n = self.recvs.recall(u64::from(input.below(100)));
                if n > 0 {
                    let first = self.credits - n.min(unused);
                    if self.recvs.recalled(first) {
                        self.credits = first;
                    } else {
                        // Data has overtaken the answer: all credits stay.
                        assert!(self.recvs.recalled(self.credits));
                    }
                }
            }
            _ => {
                self.now += u64::from(input.below(4));
                self.pins.expire(self.now);
                self.sender.give_way();
            }
        }
    }

    fn run(mut self, input: &mut Input<'_>) {
        while !input.is_empty() {
            self.event(input);
            self.settle();
        }
        self.sender.close();
        self.recvs.close();
        std::mem::take(&mut self.flying).into_iter().for_each(|tag| assert!(self.sender.sent(tag)));
        std::mem::take(&mut self.writing).into_iter().for_each(|tag| assert!(self.recvs.written(tag)));
        self.settle();
        while !self.services.is_empty() || !self.copies.is_empty() {
            if !self.services.is_empty() {
                self.serve(0, true);
            }
            if let Some(tag) = self.copies.pop() {
                assert!(self.sender.answer(tag, Outcome::Held));
            }
            self.settle();
        }
        self.pins.expire(u64::MAX);
        assert!(self.sender.idle() && self.recvs.idle() && self.pins.waiting() == 0);
        assert_eq!((self.pins.pinned(), self.pins.lasting()), (0, 0), "something stays pinned");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_schedules_do_no_harm() {
        let mut state = 1u64;
        for _ in 0..1000 {
            let data: Vec<u8> = (0..600)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .collect();
            super::run(&data);
        }
    }
}
