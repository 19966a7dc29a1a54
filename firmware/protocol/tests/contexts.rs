// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual contexts, blocks and pinned pages, without a card: the sender's machine against the
//! host's page accounting.

use berth_protocol::memory::blocks::{Action, BlockError, Config, Costs, Outcome, Sender, Transmit};
use berth_protocol::memory::context::{Again, Chain, ChainError, Choice, Copy, First, Local, Place, Policy, Span};
use berth_protocol::memory::pins::{self, Answer, PinError, Pins, Request, Served, Usage};
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

#[test]
fn vc_8_a_resend_comes_before_blocks_ahead_and_one_block_is_kept_for_it() {
    let mut h = one(PIN, 24);
    h.streams[0].post(&[Place::at(0x10_0000, 100_000)], None).unwrap();
    for _ in 0..8 {
        h.streams[0].cover(1024);
    }
    h.settle();
    assert_eq!(h.asked.len(), 5, "of 6");
    assert!(h.packet(0, 0, 1024) && h.packet(0, 1024, 1024));
    h.settle();
    assert_eq!(h.streams[0].resend(0, 2048), 2048);
    h.settle();
    assert_eq!(h.asked.last(), Some(&(0, 0, 2048, false)));
    assert!(h.packet(0, 0, 1024) && h.packet(0, 1024, 1024));
}

#[test]
fn vc_9_blocks_whose_memory_moves_are_asked_for_again_and_no_packet_is_read_from_the_old_page() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 8192)], None).unwrap();
    h.streams[0].cover(8192);
    h.settle();
    assert!(h.packet(0, 0, 1024));
    let Transmit::Ready { tag, .. } = h.streams[0].transmit(1024, 1024) else { panic!() };
    assert_eq!(h.pins.withdraw(1, 0x10_0000, 4096, |_| false), 1);
    h.streams[0].withdrawn(0x10_0000, 4096);
    assert!(!h.pins.may_touch(1, Span { va: 0x10_0000, len: 1 }, false));
    assert_eq!(h.streams[0].transmit(2048, 1024), Transmit::Waits);
    h.run();
    assert_eq!(h.pins.pinned(), 2, "nothing is unpinned before the fence");
    h.pins.fenced();
    assert!(h.streams[0].sent(tag));
    h.asked.clear();
    h.settle();
    assert_eq!(h.asked, [(0, 2048, 6144, false)], "only what is still to be sent");
    for at in (2048..8192).step_by(1024) {
        assert!(h.packet(0, at, 1024));
    }
    h.settle();
    assert_eq!((h.pins.pinned(), h.streams[0].idle()), (0, true));
}

#[test]
fn vc_9_memory_that_is_gone_fails_the_send_by_name_and_leaves_nothing_pinned() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 4096), Place::at(0x20_0000, 4096)], None).unwrap();
    h.streams[0].cover(2048);
    h.streams[0].cover(6144);
    h.run();
    h.serve(1, false);
    h.settle();
    assert!(h.packet(0, 0, 1024), "what is there is sent");
    assert_eq!(h.streams[0].transmit(1024, 1024), Transmit::Ready { tag: 0, copy: false });
    assert!(h.streams[0].sent(0));
    assert_eq!(h.streams[0].transmit(2048, 1024), Transmit::Failed(BlockError::Protection));
    h.streams[0].close();
    h.settle();
    assert_eq!((h.pins.pinned(), h.streams[0].idle()), (0, true));
    assert_eq!(h.streams[0].transmit(2048, 1024), Transmit::Outside);
    assert_eq!(h.streams[0].cover(5), None);
}

#[test]
fn vc_9_a_page_that_goes_while_it_is_brought_in_is_asked_for_again() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 4096)], None).unwrap();
    h.streams[0].cover(4096);
    h.run();
    h.pins.withdraw(1, 0, u64::MAX, |_| false);
    h.pins.fenced();
    h.serve(0, true);
    h.settle();
    assert_eq!(h.asked, [(0, 0, 4096, false); 2]);
    assert!(h.packet(0, 0, 1024));
}

#[test]
fn vc_9_a_process_that_exits_leaves_nothing_pinned() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x10_0000, 20_000)], None).unwrap();
    h.streams[0].cover(20_000);
    h.run();
    h.serve(0, true);
    h.pins.close(1);
    h.streams[0].close();
    h.pins.fenced();
    assert_eq!(h.pins.pinned(), 0);
    h.settle();
    assert_eq!((h.streams[0].idle(), h.pins.pinned_by(1)), (true, None));
    let request = Request { owner: 0, tag: 0, asid: 1, usage: Usage::Brief };
    let span = [Span { va: 0, len: 1 }];
    assert_eq!(h.pins.acquire(&request, span.into_iter(), false), Answer::Refused(PinError::NoProcess));
}

#[test]
fn vc_10_the_default_copies_small_blocks_and_pins_large_ones_and_adapts_to_what_each_costs() {
    let mut h = one(Choice::Adaptive, 24);
    h.streams[0] = Sender::new(Config { block: 16 << 10, copy_room: 64 << 10, ..config(Choice::Adaptive) }, 0);
    h.streams[0].post(&[Place::at(0x10_0000, 100_000)], None).unwrap();
    h.streams[0].cover(5000);
    h.streams[0].cover(15_000);
    h.send(0);
    assert_eq!(h.asked, [(0, 0, 5000, true), (0, 5000, 15_000, false)]);
    // Page service becomes slow: 20 000 bytes are cheaper as a copy, and again when it is over.
    for _ in 0..40 {
        h.streams[0].costs_mut().pinned(5000);
    }
    h.streams[0].cover(15_000);
    h.send(0);
    assert_eq!(h.asked.last(), Some(&(0, 20_000, 15_000, true)));
    for _ in 0..400 {
        h.streams[0].costs_mut().copied(1024, 100);
    }
    h.streams[0].cover(15_000);
    h.send(0);
    assert_eq!(h.asked.last(), Some(&(0, 35_000, 15_000, false)), "a bad moment is not remembered for ever");
    // A choice for one send overrides the connection's.
    h.streams[0].post(&[Place::at(0x20_0000, 100)], Some(PIN)).unwrap();
    h.streams[0].cover(50_000);
    h.streams[0].cover(100);
    h.send(0);
    assert_eq!(h.asked.last(), Some(&(0, 100_000, 100, false)));
}

#[test]
fn vc_10_costs_are_bounded_whatever_is_measured() {
    let mut costs = Costs::new(0, 0);
    assert_eq!(costs.threshold(), 0);
    for (bytes, time) in [(0, u32::MAX), (1, u32::MAX), (u32::MAX, 0), (1024, 7)] {
        costs.copied(bytes, time);
        costs.pinned(time);
        costs.threshold();
    }
    assert_eq!(Costs::default().threshold(), 10 << 10);
}

#[test]
fn vc_11_processes_of_one_host_use_the_same_contexts_and_nothing_is_pinned() {
    let (mut from, mut to): (Chain<4>, Chain<4>) = (Chain::new(0), Chain::new(0));
    from.push(&[Place::at(0x1000, 5), Place::at(0x9000, 20)], PIN).unwrap();
    to.push(&[Place::at(0x70, 8)], PIN).unwrap();
    let mut local = Local::new(0);
    let copy = |from, to, len, start| Some(Copy { from, to, len, start });
    assert_eq!(local.next(&from, &to, 100), copy(0x1000, 0x70, 5, 0));
    assert_eq!(local.next(&from, &to, 100), copy(0x9000, 0x75, 3, 5));
    assert_eq!(local.next(&from, &to, 100), None, "the receiver has no buffer: the data waits");
    to.push(&[Place::at(0x200, 50)], PIN).unwrap();
    assert_eq!(local.next(&from, &to, 10), copy(0x9003, 0x200, 10, 8));
    local.failed(8);
    assert_eq!(local.next(&from, &to, 0), None);
    assert_eq!(local.next(&from, &to, 100), copy(0x9003, 0x200, 17, 8));
    assert!(!local.copied(26, &mut from, &mut to));
    assert!(local.copied(8, &mut from, &mut to));
    assert_eq!((local.done(), from.start(), to.start()), (8, 5, 8));
    assert!(local.copied(17, &mut from, &mut to));
    assert_eq!((local.done(), from.start(), to.start(), to.rest_of_send(25)), (25, 25, 8, 33));
}

#[test]
fn recall_takes_back_blocks_of_pieces_that_were_not_begun() {
    let mut h = one(PIN, 24);
    h.streams[0].post(&[Place::at(0x10_0000, 20_000)], None).unwrap();
    for _ in 0..4 {
        h.streams[0].cover(5000);
    }
    h.settle();
    assert_eq!(h.pins.pinned(), 5);
    assert!(h.packet(0, 0, 1024));
    assert_eq!(h.streams[0].uncover(0), 5000, "the piece that was begun stays");
    h.settle();
    assert_eq!(h.pins.pinned(), 2);
    assert_eq!(h.streams[0].transmit(5000, 1024), Transmit::Outside);
    assert_eq!(h.streams[0].cover(100_000), Some(15_000));
    h.send(0);
    assert_eq!(h.pins.pinned(), 0);
}

#[test]
fn offsets_can_be_counted_anew() {
    let mut s = Stream::new(config(PIN), 0);
    s.post(&[Place::at(0x1000, 3000)], None).unwrap();
    s.cover(3000);
    let mut h = Host::new(table(8, 2), vec![s]);
    h.send(0);
    h.streams[0].acknowledged(3000);
    assert!(!h.streams[0].rebase(3000), "its contexts are still known");
    h.settle();
    assert!(h.streams[0].rebase(3000));
    assert_eq!(h.streams[0], Stream::new(config(PIN), 0), "as it was when it began");
}

/// Page accounting alone: a request of one page for owner `owner`.
fn page(pins: &mut Table, owner: u32, asid: u16, number: u64, usage: Usage) -> Answer {
    let request = Request { owner, tag: 0, asid, usage };
    pins.acquire(&request, [Span { va: number << 12, len: 1 }].into_iter(), false)
}

fn free(pins: &mut Table, owner: u32, asid: u16, number: u64, usage: Usage, now: u64) -> bool {
    let request = Request { owner, tag: 0, asid, usage };
    pins.release(&request, [Span { va: number << 12, len: 1 }].into_iter(), now)
}

use Usage::{Brief, Lasting};

#[test]
fn decision_14_a_page_is_pinned_once_and_counted_once_however_many_uses_it_has() {
    let mut pins = table(8, 1);
    assert!(pins.open(2, 8) && !pins.open(2, 8));
    for owner in 0..3 {
        assert_eq!(page(&mut pins, owner, 1, 5, if owner == 0 { Lasting } else { Brief }), Answer::Serve { pages: 1 });
    }
    assert_eq!(page(&mut pins, 9, 2, 5, Brief), Answer::Serve { pages: 1 });
    assert_eq!((pins.pinned(), pins.lasting(), pins.pinned_bytes()), (2, 1, 8192));
    assert_eq!((pins.pinned_by(1), pins.pinned_by(2), pins.pinned_by(3)), (Some((1, 8)), Some((1, 8)), None));
    let request = Request { owner: 0, tag: 0, asid: 1, usage: Lasting };
    let spans = [Span { va: 5 << 12, len: 1 }];
    assert_eq!(pins.served(&request, spans.into_iter(), true, 0), Served::Held);
    assert_eq!(page(&mut pins, 4, 1, 5, Brief), Answer::Hit);
    for owner in [1, 2, 4] {
        assert!(free(&mut pins, owner, 1, 5, Brief, 0));
    }
    assert!(!free(&mut pins, 1, 1, 5, Brief, 0), "it does not hold it");
    assert_eq!(pins.served(&request, [Span { va: 6 << 12, len: 1 }].into_iter(), false, 0), Served::NotHeld);
    assert!(pins.may_touch(1, spans[0], true));
    assert!(free(&mut pins, 0, 1, 5, Lasting, 0) && free(&mut pins, 9, 2, 5, Brief, 0));
    assert_eq!((pins.pinned(), pins.lasting()), (0, 0));
}

#[test]
fn decision_14_pages_linger_inside_the_budget_and_make_room_when_it_is_short() {
    let mut pins = Table::new(pins::Config { budget: 3, reserve: 0, lend: false, page_shift: 12, linger: 10 });
    pins.open(1, 3);
    for n in 0..3 {
        page(&mut pins, 0, 1, n, Brief);
        let request = Request { owner: 0, tag: 0, asid: 1, usage: Brief };
        pins.served(&request, [Span { va: n << 12, len: 1 }].into_iter(), false, 0);
        assert!(free(&mut pins, 0, 1, n, Brief, n));
    }
    assert_eq!((pins.pinned(), pins.next_expiry()), (3, Some(10)));
    assert_eq!(page(&mut pins, 0, 1, 1, Brief), Answer::Hit, "still warm");
    assert!(!pins.may_touch(1, Span { va: 0, len: 1 }, false), "nobody uses it");
    assert_eq!(page(&mut pins, 1, 1, 7, Brief), Answer::Serve { pages: 1 });
    assert_eq!(page(&mut pins, 2, 1, 2, Brief), Answer::Hit, "the one that lingered longest went");
    assert_eq!(page(&mut pins, 3, 1, 8, Brief), Answer::Wait);
    free(&mut pins, 2, 1, 2, Brief, 20);
    assert_eq!(pins.retry().map(|r| r.owner), Some(3));
    assert_eq!(page(&mut pins, 3, 1, 8, Brief), Answer::Serve { pages: 1 });
    free(&mut pins, 3, 1, 8, Brief, 20);
    free(&mut pins, 0, 1, 1, Brief, 20);
    pins.expire(29);
    assert_eq!(pins.pinned(), 2);
    pins.expire(30);
    assert_eq!(pins.pinned(), 1);
}

#[test]
fn pc_3_budgets_of_process_and_card_and_the_reserve_for_sends_are_kept() {
    let mut pins = table(6, 2);
    assert!(pins.open(2, 3));
    for n in 0..4 {
        assert_eq!(page(&mut pins, n as u32, 1, n, Lasting), Answer::Serve { pages: 1 });
    }
    assert_eq!(page(&mut pins, 4, 1, 4, Lasting), Answer::Wait, "the reserve is not for receives");
    assert_eq!(page(&mut pins, 5, 2, 0, Brief), Answer::Serve { pages: 1 });
    assert_eq!(page(&mut pins, 6, 2, 1, Brief), Answer::Serve { pages: 1 });
    assert_eq!(page(&mut pins, 7, 2, 2, Brief), Answer::Wait, "the card's budget is used up");
    assert_eq!(pins.pressure(Lasting).map(|p| (p.request.owner, p.pages)), Some((4, 1)));
    assert_eq!(pins.pressure(Brief).map(|p| (p.request.owner, p.card)), Some((7, true)));
    // A send that shares a receive's page costs nothing and need not wait.
    assert_eq!(page(&mut pins, 8, 1, 3, Brief), Answer::Serve { pages: 1 });
    // A receive cannot turn pages of sends into pages of its own beyond its share.
    assert_eq!(page(&mut pins, 9, 2, 0, Lasting), Answer::Wait);
    assert_eq!((pins.pinned(), pins.lasting(), pins.waiting()), (6, 4, 3));
    let request = Request { owner: 9, tag: 0, asid: 2, usage: Lasting };
    assert!(pins.cancel(&request) && !pins.cancel(&request));
    let all = [Span { va: 0, len: 7 << 12 }];
    let big = Request { owner: 10, tag: 0, asid: 1, usage: Brief };
    assert_eq!(pins.acquire(&big, all.into_iter(), false), Answer::Refused(PinError::OverBudget));
}

#[test]
fn pc_3_requests_wait_in_line_and_small_ones_do_not_overtake() {
    let mut pins = table(4, 0);
    assert!(pins.open(2, 2));
    for n in 0..3 {
        page(&mut pins, n as u32, 1, n, Brief);
    }
    let big = Request { owner: 8, tag: 0, asid: 1, usage: Brief };
    let spans = [Span { va: 100 << 12, len: 3 << 12 }];
    assert_eq!(pins.acquire(&big, spans.into_iter(), false), Answer::Wait);
    assert_eq!(page(&mut pins, 9, 1, 50, Brief), Answer::Wait, "though one page is free");
    assert_eq!(pins.retry(), None);
    free(&mut pins, 0, 1, 0, Brief, 0);
    assert_eq!(pins.retry(), Some(big));
    assert_eq!(pins.acquire(&big, spans.into_iter(), false), Answer::Wait);
    assert_eq!(pins.retry(), None, "the one behind it does not try before it");
    free(&mut pins, 1, 1, 1, Brief, 0);
    assert_eq!(pins.retry(), Some(big));
    assert_eq!(pins.acquire(&big, spans.into_iter(), false), Answer::Serve { pages: 3 });
    assert_eq!(pins.retry().map(|r| r.owner), Some(9));
    assert_eq!(page(&mut pins, 9, 1, 50, Brief), Answer::Wait);
    // What lacks only its process's budget holds up nobody else.
    let mut pins = table(10, 0);
    pins.open(2, 1);
    page(&mut pins, 0, 2, 0, Brief);
    assert_eq!(page(&mut pins, 1, 2, 1, Brief), Answer::Wait);
    assert_eq!(page(&mut pins, 2, 1, 1, Brief), Answer::Serve { pages: 1 });
}

#[test]
fn pc_3_the_reserve_is_lent_to_the_only_receive_if_the_host_wishes() {
    let mut pins = Table::new(pins::Config { budget: 4, reserve: 1, lend: true, page_shift: 12, linger: 0 });
    pins.open(1, 4);
    let request = Request { owner: 8, tag: 0, asid: 1, usage: Lasting };
    let spans = [Span { va: 0, len: 4 << 12 }];
    page(&mut pins, 0, 1, 9, Lasting);
    assert_eq!(pins.acquire(&request, spans.into_iter(), true), Answer::Wait);
    free(&mut pins, 0, 1, 9, Lasting, 0);
    assert_eq!(pins.acquire(&request, spans.into_iter(), true), Answer::Serve { pages: 4 });
}

#[test]
fn decision_18_only_pages_that_changed_are_taken_from_the_card() {
    let mut pins = table(8, 0);
    let request = Request { owner: 0, tag: 0, asid: 1, usage: Brief };
    let spans = [Span { va: 0, len: 3 << 12 }];
    pins.acquire(&request, spans.into_iter(), false);
    pins.served(&request, spans.into_iter(), false, 0);
    // fork marks all for copy-on-write; page 1 was written to and is another one now.
    assert_eq!(pins.withdraw(1, 0, 3 << 12, |number| number != 1), 1);
    let touch = |pins: &Table, n: u64| pins.may_touch(1, Span { va: n << 12, len: 1 }, false);
    assert_eq!([0, 1, 2].map(|n| touch(&pins, n)), [true, false, true]);
    assert_eq!(page(&mut pins, 1, 1, 1, Brief), Answer::Wait, "until those who had the old one let go");
    pins.fenced();
    assert_eq!(page(&mut pins, 1, 1, 1, Brief), Answer::Wait);
    assert_eq!((pins.pinned(), pins.retry()), (2, None));
    assert!(pins.release(&request, spans.into_iter(), 0));
    assert_eq!(pins.retry().map(|r| r.owner), Some(1));
    assert_eq!(page(&mut pins, 1, 1, 1, Brief), Answer::Serve { pages: 1 });
    assert_eq!(pins.withdraw(1, 0x1000, 0, |_| false), 0);
}

#[test]
fn inv_6_bad_page_requests_are_refused() {
    let mut pins: Pins<4, 1, 1> =
        Pins::new(pins::Config { budget: 9, reserve: 0, lend: false, page_shift: 12, linger: 0 });
    assert!(pins.open(1, 9) && !pins.open(2, 9));
    let mut ask = |va, len, owner| {
        let request = Request { owner, tag: 0, asid: 1, usage: Brief };
        pins.acquire(&request, [Span { va, len }].into_iter(), false)
    };
    assert_eq!(ask(0, 0, 0), Answer::Refused(PinError::BadRange));
    assert_eq!(ask(u64::MAX, 2, 0), Answer::Refused(PinError::BadRange));
    assert_eq!(ask(0, u32::MAX, 0), Answer::Refused(PinError::OverBudget), "no more than the table holds");
    assert_eq!(ask(u64::MAX, 1, 0), Answer::Serve { pages: 1 });
    assert_eq!(ask(0, 4 << 12, 1), Answer::Wait);
    assert_eq!(ask(0, 4 << 12, 2), Answer::Refused(PinError::LineFull));
}

#[test]
fn offsets_of_blocks_under_way_can_be_counted_anew() {
    let mut h = one(PIN, 8);
    let mut fresh = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x7000, 100)], None).unwrap();
    h.streams[0].cover(100);
    h.send(0);
    h.streams[0].acknowledged(100);
    h.settle();
    for stream in [&mut h.streams[0], &mut fresh.streams[0]] {
        stream.post(&[Place::at(0x1000, 3000), Place::at(0x8000, 50)], None).unwrap();
        stream.cover(2000);
    }
    h.run();
    fresh.run();
    assert!(h.streams[0].rebase(100));
    assert_eq!(h.streams[0], fresh.streams[0]);
}

#[test]
fn inv_6_answers_and_packets_that_nobody_awaits_change_nothing() {
    let mut h = one(PIN, 8);
    h.streams[0].post(&[Place::at(0x1000, 3000)], None).unwrap();
    h.streams[0].cover(3000);
    h.settle();
    let before = h.streams[0].clone();
    assert!(!h.streams[0].answer(9, Outcome::Held) && !h.streams[0].answer(0, Outcome::Held));
    assert!(!h.streams[0].sent(0) && !h.streams[0].sent(9));
    assert_eq!(
        (h.streams[0].transmit(0, 0), h.streams[0].transmit(u64::MAX, 9)),
        (Transmit::Outside, Transmit::Outside)
    );
    assert_eq!((h.streams[0].resend(0, 0), h.streams[0].uncover(9000), h.streams[0].block(9)), (0, 3000, None));
    assert_eq!(h.streams[0], before);
    let errors = [PinError::NoProcess, PinError::BadRange, PinError::LineFull, PinError::OverBudget];
    let named = [BlockError::Protection, BlockError::Protection, BlockError::Protection, BlockError::OverBudget];
    assert_eq!(errors.map(BlockError::from), named);
}

#[test]
fn decision_21_a_block_that_is_not_wanted_any_more_is_let_go_whatever_the_answer() {
    // Asked for, closed, and then: the host still lets it wait, or has it after all, or not.
    for last in [Outcome::Held, Outcome::Gone, Outcome::Failed(BlockError::Protection)] {
        let mut s = Stream::new(config(PIN), 0);
        s.post(&[Place::at(0x1000, 3000)], None).unwrap();
        s.cover(3000);
        let Some(Action::Pin { tag, .. }) = s.poll() else { panic!() };
        s.close();
        assert_eq!(s.poll(), None, "the host is at work");
        assert!(s.answer(tag, Outcome::Waits) && s.answer(tag, Outcome::Waits));
        assert_eq!(s.poll(), Some(Action::Cancel { tag, usage: Usage::Brief }));
        assert_eq!((s.poll(), s.idle()), (None, false));
        assert!(s.answer(tag, last));
        let release = Action::Release { tag, start: 0, len: 3000, usage: Usage::Brief };
        assert_eq!(s.poll(), (last == Outcome::Held).then_some(release));
        assert!(s.poll().is_none() && s.idle());
    }
}

#[test]
fn vc_7_an_adaptive_send_that_gives_way_is_pinned_block_by_block() {
    let mut chain: Chain<2> = Chain::new(0);
    chain.push(&[Place::at(0, 10)], Choice::Adaptive).unwrap();
    chain.push(&[Place::at(0, 10)], COPY).unwrap();
    chain.pin_by_block(20);
    assert_eq!(chain.contexts()[0].choice, Choice::Adaptive, "there is no such byte");
    chain.pin_by_block(9);
    chain.pin_by_block(10);
    let mixed = Choice::Fixed(Policy { first: First::Pin, again: Again::Copy });
    assert_eq!([0, 1].map(|i| chain.contexts()[i].choice), [PIN, mixed]);
}

#[test]
fn vc_8_what_was_asked_for_behind_a_block_that_moved_is_not_asked_for_twice() {
    let all = Choice::Fixed(Policy { first: First::All, again: Again::Pin });
    let mut h = one(PIN, 24);
    h.streams[0].post(&[Place::at(0x10_0000, 4096)], Some(all)).unwrap();
    h.streams[0].post(&[Place::at(0x20_0000, 4096)], None).unwrap();
    h.streams[0].cover(4096);
    h.streams[0].cover(4096);
    h.settle();
    assert_eq!(h.asked, [(0, 0, 4096, false), (0, 4096, 4096, false)]);
    h.streams[0].give_way();
    h.settle();
    assert_eq!(h.asked[2..], [(0, 0, 4096, false)], "the second is still held");
    h.send(0);
    assert_eq!((h.pins.pinned(), h.asked.len()), (0, 3));
}

#[test]
fn vc_6_a_copy_waits_for_room_and_one_that_never_fits_is_pinned() {
    let mut h = one(COPY, 24);
    h.streams[0] = Sender::new(Config { copy_room: 1500, ..config(COPY) }, 0);
    h.streams[0].post(&[Place::at(0x10_0000, 9000)], None).unwrap();
    for size in [1000, 1000, 7000] {
        h.streams[0].cover(size);
    }
    h.run();
    assert_eq!(h.asked, [(0, 0, 1000, true)], "one at a time");
    h.send(0);
    assert_eq!(h.asked, [(0, 0, 1000, true), (0, 1000, 1000, true), (0, 2000, 7000, false)]);
}
