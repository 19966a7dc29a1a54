// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual contexts, blocks and pinned pages, without a card: the sender's machine against the
//! host's page accounting.

use berth_protocol::context::{Again, Chain, ChainError, Choice, First, Place, Policy, Span};
use berth_protocol::pins::{self, Answer, Pins, Request, Served, Usage};
use berth_protocol::vc::{Action, BlockError, Config, Outcome, Sender, Transmit};
use std::collections::VecDeque;

const PIN: Choice = Choice::Fixed(Policy { first: First::Pin, again: Again::Pin });
const COPY: Choice = Choice::Fixed(Policy { first: First::Copy, again: Again::Copy });

type Stream = Sender<16, 8, 6>;
type Table = Pins<24, 4, 16>;

fn config(choice: Choice) -> Config {
    Config { mtu: 1024, block: 8192, window: 64 << 10, copy_room: 16 << 10, choice }
}

fn table(budget: u32, reserve: u32) -> Table {
    let mut pins = Pins::new(pins::Config { budget, reserve, lend: false, page_shift: 12, linger: 0 });
    assert!(pins.open(1, budget));
    pins
}

/// A host: page accounting, one stream per owner, and page services under way.
struct Host {
    pins: Table,
    streams: Vec<Stream>,
    services: VecDeque<Request>,
    copies: VecDeque<(usize, u16)>,
    /// Every request for memory: (owner, start, len, copy).
    asked: Vec<(usize, u64, u64, bool)>,
    now: u64,
    most: u32,
}

impl Host {
    fn new(pins: Table, streams: Vec<Stream>) -> Self {
        let (services, copies, asked) = Default::default();
        Self { pins, streams, services, copies, asked, now: 0, most: 0 }
    }

    fn try_pin(&mut self, request: Request) {
        let owner = request.owner as usize;
        let (start, len, _) = self.streams[owner].block(request.tag).unwrap();
        let spans = self.streams[owner].spans(start, len);
        let outcome = match self.pins.acquire(&request, spans, false) {
            Answer::Hit => Outcome::Held,
            Answer::Serve { .. } => return self.services.push_back(request),
            Answer::Wait => Outcome::Waits,
            Answer::Refused(e) => Outcome::Failed(e.into()),
        };
        self.most = self.most.max(self.pins.pinned());
        assert!(self.streams[owner].answer(request.tag, outcome));
    }

    /// Carries out what streams want and what became possible.
    fn run(&mut self) {
        let mut more = true;
        while more {
            more = false;
            for owner in 0..self.streams.len() {
                while let Some(action) = self.streams[owner].poll() {
                    more = true;
                    let request = |tag, usage| Request { owner: owner as u32, tag, asid: 1, usage };
                    match action {
                        Action::Pin { tag, start, len, usage } => {
                            self.asked.push((owner, start, len, false));
                            self.try_pin(request(tag, usage));
                        }
                        Action::Copy { tag, start, len } => {
                            self.asked.push((owner, start, len, true));
                            self.copies.push_back((owner, tag));
                        }
                        Action::Release { tag, start, len, usage } => {
                            let spans = self.streams[owner].spans(start, len);
                            assert!(self.pins.release(&request(tag, usage), spans, self.now));
                        }
                        Action::Cancel { tag, usage } => {
                            if self.pins.cancel(&request(tag, usage)) {
                                assert!(self.streams[owner].answer(tag, Outcome::Gone));
                            }
                        }
                    }
                }
            }
            while let Some(request) = self.pins.retry() {
                more = true;
                self.try_pin(request);
            }
            if !more && self.pins.pressure(Usage::Brief).is_some() {
                for stream in &mut self.streams {
                    stream.give_way();
                }
                more = self.streams.iter_mut().any(|s| s.clone().poll().is_some());
            }
        }
        self.most = self.most.max(self.pins.pinned());
        assert!(self.pins.pinned() <= self.pins.config().budget);
    }

    /// Ends service number `i` of those under way; `found` says whether the memory exists.
    fn serve(&mut self, i: usize, found: bool) {
        let request = self.services.remove(i).unwrap();
        let owner = request.owner as usize;
        let (start, len, _) = self.streams[owner].block(request.tag).unwrap();
        let spans = self.streams[owner].spans(start, len);
        let outcome = match found {
            true => match self.pins.served(&request, spans, false, self.now) {
                Served::Held => Outcome::Held,
                Served::Gone => Outcome::Gone,
                Served::NotHeld => panic!("a page service that nobody ordered"),
            },
            false => {
                assert!(self.pins.unserved(&request, spans, self.now));
                Outcome::Failed(BlockError::Protection)
            }
        };
        assert!(self.streams[owner].answer(request.tag, outcome));
    }

    /// Carries out everything, page services and copies in order.
    fn settle(&mut self) {
        self.run();
        while !self.services.is_empty() || !self.copies.is_empty() {
            if !self.services.is_empty() {
                self.serve(0, true);
            }
            if let Some((owner, tag)) = self.copies.pop_front() {
                assert!(self.streams[owner].answer(tag, Outcome::Held));
            }
            self.run();
        }
    }

    /// Hands a packet over and lets it leave at once.
    fn packet(&mut self, owner: usize, start: u64, len: u32) -> bool {
        let Transmit::Ready { tag, copy } = self.streams[owner].transmit(start, len) else {
            return false;
        };
        for span in self.streams[owner].spans(start, len as u64) {
            assert!(copy || self.pins.may_touch(1, span, false), "the card reads memory that it does not hold");
        }
        assert!(self.streams[owner].sent(tag));
        true
    }

    /// Sends all that is covered.
    fn send(&mut self, owner: usize) {
        loop {
            self.settle();
            let (_, sent, covered, _) = self.streams[owner].offsets();
            if sent == covered {
                return;
            }
            let end = self.streams[owner].piece_end(sent).unwrap();
            assert!(self.packet(owner, sent, (end - sent).min(1024) as u32), "stuck at {sent}");
        }
    }
}

fn one(choice: Choice, budget: u32) -> Host {
    Host::new(table(budget, 2), vec![Sender::new(config(choice), 0)])
}

#[test]
fn vc_1_a_stream_is_a_list_of_contexts_and_nothing_is_pinned_by_posting() {
    let mut h = one(PIN, 8);
    assert_eq!(h.streams[0].post(&[Place::at(0x1003, 10), Place::at(0x9000, 0), Place::at(0x5000, 5)], None), Ok(0));
    assert_eq!(h.streams[0].post(&[Place { base: 0x8000, offset: 0x21, len: 7 }], None), Ok(15));
    h.settle();
    assert_eq!((h.pins.pinned(), h.asked.len()), (0, 0));
    let spans: Vec<_> = h.streams[0].spans(8, 10).collect();
    let expected = [Span { va: 0x100b, len: 2 }, Span { va: 0x5000, len: 5 }, Span { va: 0x8021, len: 3 }];
    assert_eq!(spans, expected);
    assert_eq!(h.streams[0].offsets(), (0, 0, 0, 22));
}

#[test]
fn vc_1_chain_refuses_what_does_not_fit_and_keeps_the_rest() {
    let mut chain: Chain<2> = Chain::new(u64::MAX - 20);
    assert_eq!(chain.push(&[Place::at(1, 1); 3], PIN), Err(ChainError::Full));
    assert_eq!(chain.push(&[Place::at(u64::MAX, 2)], PIN), Err(ChainError::BadRange));
    assert_eq!(chain.push(&[Place { base: u64::MAX, offset: 1, len: 1 }], PIN), Err(ChainError::BadRange));
    assert_eq!(chain.push(&[Place::at(0, 21)], PIN), Err(ChainError::BadRange));
    assert_eq!(chain.push(&[Place::at(0, 20)], PIN), Ok(u64::MAX - 20));
    assert_eq!((chain.start(), chain.end(), chain.rest_of_send(u64::MAX - 5)), (u64::MAX - 20, u64::MAX, 5));
}

#[test]
fn pc_2_vc_2_a_block_is_asked_for_as_soon_as_a_credit_covers_it() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 20_000)], None).unwrap();
    h.settle();
    assert!(h.asked.is_empty(), "no credit, no request");
    assert_eq!(h.streams[0].cover(3000), Some(3000));
    assert_eq!(h.streams[0].cover(50_000), Some(17_000), "one credit never serves two sends, nor more than is posted");
    assert_eq!(h.streams[0].cover(1), None);
    h.run();
    assert_eq!(h.asked, [(0, 0, 3000, false), (0, 3000, 8192, false), (0, 11192, 8192, false), (0, 19384, 616, false)]);
    assert_eq!(h.services.len(), 4, "several at once, ahead of use");
    assert_eq!(h.streams[0].transmit(0, 1024), Transmit::Waits);
    assert_eq!(h.streams[0].transmit(1024, 1024), Transmit::Outside, "packets leave in order");
}

#[test]
fn vc_3_a_block_is_released_when_its_last_packet_has_left_before_any_acknowledgement() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 4096)], None).unwrap();
    h.streams[0].cover(4096);
    h.settle();
    assert_eq!(h.pins.pinned(), 1);
    for k in 0..3 {
        assert!(h.packet(0, k * 1024, 1024));
    }
    let Transmit::Ready { tag, .. } = h.streams[0].transmit(3072, 1024) else { panic!() };
    h.run();
    assert_eq!(h.pins.pinned(), 1, "its last packet is still in the transmitter");
    assert!(h.streams[0].sent(tag));
    h.run();
    assert_eq!((h.pins.pinned(), h.streams[0].offsets().0), (0, 0));
    assert!(h.streams[0].idle());
}

#[test]
fn vc_4_only_unacknowledged_packets_are_asked_for_again_by_address() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 8192)], None).unwrap();
    h.streams[0].cover(8192);
    h.send(0);
    h.streams[0].acknowledged(2048);
    h.asked.clear();
    // Selective repeat: one packet was lost.
    assert_eq!(h.streams[0].resend(4096, 1024), 1024);
    h.settle();
    assert_eq!((&h.asked[..], h.pins.pinned()), (&[(0, 4096, 1024, false)][..], 1));
    assert!(h.packet(0, 4096, 1024));
    h.run();
    assert_eq!(h.pins.pinned(), 0);
    // Go back: everything from the first that is not acknowledged, and no packet before it.
    h.asked.clear();
    assert_eq!(h.streams[0].resend(0, 8192), 8192);
    h.settle();
    assert_eq!(h.asked, [(0, 2048, 6144, false)]);
    h.streams[0].acknowledged(8192);
    h.run();
    assert_eq!((h.pins.pinned(), h.streams[0].idle()), (0, true));
    assert_eq!(h.streams[0].transmit(4096, 1024), Transmit::Outside);
}

#[test]
fn vc_4_a_packet_that_nobody_asked_for_is_asked_for_when_it_is_to_be_sent_again() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 3000)], None).unwrap();
    h.streams[0].cover(3000);
    h.send(0);
    assert_eq!(h.streams[0].transmit(1024, 1024), Transmit::Waits);
    h.settle();
    assert!(h.packet(0, 1024, 1024));
    h.settle();
    assert_eq!(h.pins.pinned(), 0);
}

#[test]
fn vc_5_retransmission_by_copy_pins_nothing() {
    let mut h = one(Choice::Fixed(Policy { first: First::Pin, again: Again::Copy }), 8);
    h.streams[0].post(&[Place::at(0x10_0000, 8192)], None).unwrap();
    h.streams[0].cover(8192);
    h.send(0);
    h.asked.clear();
    h.streams[0].resend(1024, 2048);
    h.settle();
    assert_eq!((&h.asked[..], h.pins.pinned(), h.streams[0].copied()), (&[(0, 1024, 2048, true)][..], 0, 2048));
    assert!(h.packet(0, 2048, 1024) && h.packet(0, 1024, 1024) && h.packet(0, 2048, 1024));
    h.settle();
    assert_eq!(h.streams[0].copied(), 0);
}

#[test]
fn vc_6_first_transmission_by_copy_pins_nothing_and_stays_within_the_cards_memory() {
    let mut h = one(COPY, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 100_000)], None).unwrap();
    h.streams[0].cover(100_000);
    h.run();
    assert_eq!(h.streams[0].copied(), 16 << 10);
    h.send(0);
    assert!(h.asked.iter().all(|a| a.3));
    assert_eq!((h.most, h.streams[0].copied()), (0, 0));
}

#[test]
fn vc_7_the_whole_send_is_pinned_and_unpinned_when_sent_and_its_contexts_stay() {
    let mut h = one(Choice::Fixed(Policy { first: First::All, again: Again::Pin }), 12);
    h.streams[0].post(&[Place::at(0x10_0000, 20_000), Place::at(0x20_0100, 5_000)], None).unwrap();
    h.streams[0].cover(2048);
    h.settle();
    assert_eq!((&h.asked[..], h.pins.pinned()), (&[(0, 0, 25_000, false)][..], 7));
    h.send(0);
    assert_eq!(h.pins.pinned(), 7, "the rest waits for credits, pinned");
    h.streams[0].cover(100_000);
    h.send(0);
    assert_eq!((h.pins.pinned(), h.asked.len()), (0, 1));
    h.streams[0].resend(20_480, 1024);
    h.settle();
    assert_eq!((h.asked.last(), h.pins.pinned()), (Some(&(0, 20_480, 1024, false)), 1));
}

#[test]
fn vc_7_a_send_that_does_not_fit_the_budget_goes_block_by_block() {
    let mut h = one(Choice::Fixed(Policy { first: First::All, again: Again::Pin }), 6);
    h.streams[0].post(&[Place::at(0x10_0000, 50_000)], None).unwrap();
    h.streams[0].cover(50_000);
    h.send(0);
    assert_eq!(h.asked[0], (0, 0, 50_000, false));
    assert!(h.asked.len() > 1 && h.asked[1..].iter().all(|a| a.2 <= 8192) && h.most <= 6);
    assert_eq!(h.pins.pinned(), 0);
}

#[test]
fn vc_7_a_send_pinned_as_a_whole_gives_way_to_others() {
    let all = Choice::Fixed(Policy { first: First::All, again: Again::Pin });
    let mut h = Host::new(table(6, 2), vec![Sender::new(config(all), 0), Sender::new(config(PIN), 0)]);
    h.streams[0].post(&[Place::at(0x10_0000, 4 * 4096)], None).unwrap();
    h.streams[0].cover(1024);
    h.send(0);
    assert_eq!(h.pins.pinned(), 4, "held for credits that may never come");
    h.streams[1].post(&[Place::at(0x80_0000 + 2048, 8192)], None).unwrap();
    h.streams[1].cover(8192);
    h.send(1);
    assert_eq!(h.pins.pinned(), 0);
    h.streams[0].cover(20_000);
    h.send(0);
    assert_eq!(h.pins.pinned(), 0);
}

#[test]
fn vc_8_blocks_are_outstanding_across_contexts_up_to_the_window_without_acknowledgement() {
    let mut stream = Stream::new(Config { window: 10_000, ..config(PIN) }, 0);
    let places: Vec<_> = (0..7).map(|i| Place::at(0x10_0000 + i * 0x3000, 1500)).collect();
    stream.post(&places, None).unwrap();
    stream.post(&places, None).unwrap();
    let cut: Vec<_> = (0..8).filter_map(|_| stream.cover(3000)).collect();
    assert_eq!(cut, [3000, 3000, 3000, 1500, 3000, 3000, 3000, 1500], "two sends never share a credit");
    let mut h = Host::new(table(24, 2), vec![stream]);
    h.settle();
    // 3000, 6000, 9000 and no more within 10 000 bytes.
    assert_eq!(h.asked.iter().map(|a| a.1).collect::<Vec<_>>(), [0, 3000, 6000]);
    assert_eq!(h.streams[0].offsets().0, 0);
    for at in [0, 1024, 2048] {
        assert!(h.packet(0, at, (3000 - at).min(1024) as u32));
    }
    h.settle();
    assert_eq!(h.asked.last().unwrap().1, 9000);
}
