// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two whole ends against each other, with random loss, repetition and reordering, under a budget of pages.
//! Each case prints its seed; `BERTH_SEED` and `BERTH_CASES` choose others.

use berth_protocol::announce::Options;
use berth_protocol::context::{Again, Choice, First, Place, Policy, Span};
use berth_protocol::end::{Broken, Config, Departure, End, HostAction, Landing};
use berth_protocol::entry::{Entry, Name};
use berth_protocol::model::Rng;
use berth_protocol::pins::{self, Answer, Pins, Request, Served, Usage};
use berth_protocol::policy::{Kind, Settings};
use berth_protocol::rc::{RequestPacket, RequesterConfig, ResponderConfig, ResponsePacket};
use berth_protocol::receive::Status;
use berth_protocol::vc::{self, Outcome};
use std::collections::BTreeMap;

type Side = End<8, 4, 24, 16, 8, 8, 4, 16>;

const RECEIVE_AT: u64 = 1 << 20;

struct World {
    ends: [Side; 2],
    pins: Pins<64, 1, 16>,
    services: Vec<Request>,
    flying: Vec<Departure>,
    dma: Vec<(Landing, Vec<u8>)>,
    there: Vec<(RequestPacket, Vec<u8>)>,
    back: Vec<ResponsePacket>,
    entries: [Vec<Entry<4>>; 2],
    memory: BTreeMap<u64, u8>,
    received: Vec<(u16, Status)>,
    sent: Vec<u32>,
    now: u64,
}

fn config(policy: Policy) -> Config {
    Config {
        lists: Options { max_list: 4, part: 2, repeat: 50, policy: Settings::of(Kind::First), cap: None },
        requester: RequesterConfig { retries: 0, ..RequesterConfig::berth(3, 16, 40) },
        responder: ResponderConfig::berth(3),
        blocks: vc::Config { mtu: 8, block: 16, window: 64, copy_room: 64, choice: Choice::Fixed(policy) },
    }
}

fn byte(offset: u64) -> u8 {
    (offset * 7 + 3) as u8
}

fn name(qpn: u32) -> Name {
    Name { qpn, epoch: 5 }
}

impl World {
    fn new(policy: Policy, budget: u32, linger: u64) -> Self {
        let c = config(policy);
        let mut pins = Pins::new(pins::Config { budget, reserve: 4, lend: false, page_shift: 3, linger });
        assert!(pins.open(1, budget));
        let end = |a, b, p| Side::new(&c, 0, name(a), name(b), p);
        Self {
            ends: [end(1, 2, (0xff_fff0, 9)), end(2, 1, (9, 0xff_fff0))],
            pins,
            services: vec![],
            flying: vec![],
            dma: vec![],
            there: vec![],
            back: vec![],
            entries: [vec![], vec![]],
            memory: BTreeMap::new(),
            received: vec![],
            sent: vec![],
            now: 0,
        }
    }

    fn spans(&self, r: &Request) -> Vec<Span> {
        let end = &self.ends[r.owner as usize];
        match r.owner {
            0 => end.block(r.tag).map(|(at, len, _)| end.block_spans(at, len).collect()).unwrap_or_default(),
            _ => end.receive_spans(r.tag).collect(),
        }
    }

    fn answer(&mut self, r: &Request, outcome: Outcome) {
        let end = &mut self.ends[r.owner as usize];
        assert!(if r.owner == 0 { end.block_answer(r.tag, outcome) } else { end.receive_answer(r.tag, outcome) });
    }

    fn acquire(&mut self, r: Request) {
        let spans = self.spans(&r);
        let outcome = match self.pins.acquire(&r, spans.into_iter(), r.owner == 1) {
            Answer::Hit => Outcome::Held,
            Answer::Serve { .. } => return self.services.push(r),
            Answer::Wait => Outcome::Waits,
            Answer::Refused(error) => Outcome::Failed(error.into()),
        };
        self.answer(&r, outcome);
    }

    fn host(&mut self) {
        loop {
            let mut idle = true;
            for owner in 0..2u32 {
                while let Some(action) = self.ends[owner as usize].poll_host() {
                    idle = false;
                    let request = |tag, usage| Request { owner, tag, asid: 1, usage };
                    match action {
                        HostAction::Send(vc::Action::Pin { tag, usage, .. }) => self.acquire(request(tag, usage)),
                        HostAction::Send(vc::Action::Copy { tag, .. }) => {
                            assert!(self.ends[0].block_answer(tag, Outcome::Held));
                        }
                        HostAction::Send(vc::Action::Release { tag, start, len, usage }) => {
                            let spans: Vec<_> = self.ends[0].block_spans(start, len).collect();
                            assert!(self.pins.release(&request(tag, usage), spans.into_iter(), self.now));
                        }
                        HostAction::Send(vc::Action::Cancel { tag, usage }) => self.cancel(&request(tag, usage)),
                        HostAction::PinReceive(tag) => self.acquire(request(tag, Usage::Lasting)),
                        HostAction::ReleaseReceive(tag) => {
                            let spans: Vec<_> = self.ends[1].receive_spans(tag).collect();
                            assert!(self.pins.release(&request(tag, Usage::Lasting), spans.into_iter(), self.now));
                        }
                        HostAction::CancelReceive(tag) => self.cancel(&request(tag, Usage::Lasting)),
                        HostAction::Received(tag, status) => self.received.push((tag, status)),
                        HostAction::Sent(tag) => self.sent.push(tag),
                    }
                }
            }
            while let Some(request) = self.pins.retry() {
                idle = false;
                self.acquire(request);
            }
            if idle {
                break;
            }
        }
        assert!(self.pins.pinned() <= self.pins.config().budget);
    }

    fn cancel(&mut self, request: &Request) {
        if self.pins.cancel(request) {
            self.answer(request, Outcome::Gone);
        }
    }

    fn read(&self, d: &Departure) -> Vec<u8> {
        let len = d.packet.len as u64;
        for span in self.ends[0].block_spans(d.offset, len) {
            assert!(d.copy || self.pins.may_touch(1, span, false), "the card reads what it does not hold");
        }
        (d.offset..d.offset + len).map(byte).collect()
    }

    /// One random step; with `faults` things may get lost or come again.
    fn step(&mut self, rng: &mut Rng, faults: bool) {
        let lost = faults && rng.below(8) == 0;
        let again = faults && rng.below(8) == 0;
        match rng.below(12) {
            0 | 1 => self.flying.extend(self.ends[0].poll_request(self.now)),
            2 if !self.flying.is_empty() => {
                let d = self.flying.remove(0);
                let bytes = self.read(&d);
                assert!(self.ends[0].left(d.block));
                if !lost {
                    self.there.push((d.packet, bytes));
                }
            }
            3 | 4 if !self.there.is_empty() => {
                let i = if faults { rng.below(self.there.len() as u64) as usize } else { 0 };
                let (packet, bytes) = if again { self.there[i].clone() } else { self.there.remove(i) };
                if let Some(landing) = self.ends[1].request(self.now, &packet) {
                    self.dma.push((landing, bytes));
                }
            }
            5 if !self.dma.is_empty() => {
                let i = rng.below(self.dma.len() as u64) as usize;
                let (landing, bytes) = self.dma.remove(i);
                let mut bytes = bytes.into_iter();
                let spans: Vec<_> = self.ends[1].landing_spans(&landing).collect();
                for span in spans {
                    assert!(self.pins.may_touch(1, span, true), "data meets memory that is not pinned");
                    for at in span.va..span.va + span.len as u64 {
                        assert_eq!(self.memory.insert(at, bytes.next().unwrap()), None, "a byte is placed once");
                    }
                }
                self.ends[1].placed(self.now, landing.psn, landing.tag);
            }
            6 => self.back.extend(self.ends[1].poll_response(self.now).filter(|_| !lost)),
            7 if !self.back.is_empty() => {
                let packet = self.back.remove(0);
                self.ends[0].response(self.now, &packet);
            }
            8 => {
                for who in 0..2 {
                    self.entries[who].extend(self.ends[who].poll_control(self.now).filter(|_| !lost));
                }
            }
            9 => {
                for who in 0..2 {
                    if let Some(entry) = self.entries[who].pop() {
                        self.ends[1 - who].control(&entry);
                        self.ends[0].use_credits();
                    }
                }
            }
            10 if !self.services.is_empty() => {
                let i = rng.below(self.services.len() as u64) as usize;
                let request = self.services.remove(i);
                let spans = self.spans(&request);
                let served = self.pins.served(&request, spans.into_iter(), request.owner == 1, self.now);
                self.answer(&request, if served == Served::Held { Outcome::Held } else { Outcome::Gone });
            }
            11 => {
                self.now += rng.below(30);
                self.ends[0].tick(self.now);
                self.pins.expire(self.now);
                if self.pins.pressure(Usage::Lasting).is_some() {
                    self.ends[1].recall(8);
                }
                if self.pins.pressure(Usage::Brief).is_some() {
                    self.ends[0].give_way();
                }
                if again {
                    self.ends[0].resync();
                }
            }
            _ => (),
        }
        self.host();
    }

    fn quiet(&self) -> bool {
        self.ends.iter().all(End::idle) && self.services.is_empty() && self.flying.is_empty() && self.dma.is_empty()
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("BERTH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("BERTH_CASES").unwrap_or(300).min(3000),
    }
}

#[test]
fn qp_7_cr_2_pc_3_streams_between_two_ends_arrive_once_in_order_within_the_budget() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let first = [First::Pin, First::Copy, First::All][rng.below(3) as usize];
        let again = [Again::Pin, Again::Copy][rng.below(2) as usize];
        let mut w = World::new(Policy { first, again }, 10 + rng.below(40) as u32, rng.below(2) * 20);
        let sends: Vec<u32> = (0..1 + rng.below(3)).map(|_| 1 + rng.below(70) as u32).collect();
        let (mut va, mut sent) = (0x100, 0u64);
        let mut cuts = Vec::new();
        for (tag, &len) in sends.iter().enumerate() {
            w.ends[0]
                .post_send(tag as u32, &[Place::at(va, len / 2), Place::at(va + 200, len - len / 2)], None)
                .unwrap();
            va += 1000;
            cuts.push(sent + len as u64);
            sent += len as u64;
        }
        let mut posted: Vec<(u16, u64, u32)> = Vec::new();
        let (mut place, mut steps) = (RECEIVE_AT, 0);
        loop {
            let open = posted.len() - w.received.len();
            if open < 6 && w.sent.len() < sends.len() {
                let size = 1 + rng.below(40) as u32;
                if let Ok(tag) = w.ends[1].post_receive(&[Span { va: place, len: size }]) {
                    w.ends[1].ring();
                    posted.push((tag, place, size));
                    place += 100;
                }
            }
            w.step(&mut rng, steps < 2000);
            steps += 1;
            if w.sent.len() == sends.len() {
                break;
            }
            assert!(steps < 200_000, "stuck with {:?} of {sends:?} sent", w.sent);
        }
        for _ in 0..300 {
            w.step(&mut rng, false);
        }
        assert_eq!(w.ends.each_ref().map(End::broken), [None, None]);
        assert!(w.ends[0].sent_all());
        let (mut offset, mut cut) = (0u64, 0);
        for (&(tag, at, size), &(done, status)) in posted.iter().zip(&w.received) {
            let Status::Filled(len) = status else { panic!("{status:?}") };
            let rest = cuts[cut] - offset;
            assert_eq!((done, len as u64), (tag, rest.min(size as u64)), "one credit serves one send");
            for i in 0..len as u64 {
                assert_eq!(w.memory.get(&(at + i)), Some(&byte(offset + i)));
            }
            offset += len as u64;
            cut += (offset == cuts[cut]) as usize;
        }
        assert_eq!(offset, sent);
        w.ends[1].close();
        w.ends[0].close();
        for _ in 0..2000 {
            w.step(&mut rng, false);
        }
        assert!(w.quiet(), "all is let go at the end");
        w.pins.expire(u64::MAX);
        assert_eq!(w.pins.pinned(), 0);
    }
}

#[test]
fn vc_9_data_for_withdrawn_memory_breaks_that_end_only() {
    let mut w = World::new(Policy { first: First::Pin, again: Again::Pin }, 20, 0);
    w.ends[0].post_send(7, &[Place::at(0x100, 8)], None).unwrap();
    w.ends[1].post_receive(&[Span { va: RECEIVE_AT, len: 8 }]).unwrap();
    w.ends[1].ring();
    let mut rng = Rng(1);
    while w.ends[1].receives().unused().0 == 0 {
        w.step(&mut rng, false);
    }
    w.pins.withdraw(1, RECEIVE_AT, 8, |_| false);
    assert_eq!(w.ends[1].withdrawn(RECEIVE_AT, 8), 1);
    w.pins.fenced();
    for _ in 0..3000 {
        w.step(&mut rng, false);
    }
    assert_eq!(w.ends[1].broken(), Some(Broken::Withdrawn));
    assert!(matches!(w.ends[0].broken(), Some(Broken::Requester(_))), "the peer is told");
    assert_eq!((w.received.as_slice(), w.pins.pinned()), (&[(0, Status::Withdrawn)][..], 0));
    assert!(w.memory.is_empty() && w.sent.is_empty());
    let (announcer, taker) = w.ends[1].credits();
    assert_eq!((announcer.recalling(), taker.own(), w.ends[0].requester().pending()), (false, name(2), 0));
}
