// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Buffers that grow: both ends, the memory between them, and hosts that run out of it.

use berth_protocol::service::grow::{
    ANSWER_BYTES, Answer, Config, Footprint, Frame, GrowError, Hello, News, OFFER_BYTES, Offer, Place, Progress,
    Receiver, ReceiverAction, Remote, Request, Sender, SenderAction, Tally,
};
use proptest::prelude::*;
use std::collections::VecDeque;

mod common;

/// What goes through the buffers, in order.
#[derive(Debug)]
enum InBuffer {
    Element { number: u32, len: u32, slot: u32, remote: Option<Remote> },
    Request { phase: u32, size: u32, slot: u32 },
}

struct World<const L: usize> {
    config: Config<L>,
    tx: Sender<L>,
    rx: Receiver<L>,
    /// The sender's memory for the answer.
    memory: [u8; ANSWER_BYTES],
    wire: VecDeque<InBuffer>,
    releases: VecDeque<(u32, u32)>,
    /// Registered bytes as the hosts count them.
    host: [u64; 2],
    refuse: [bool; 2],
    number: u32,
    /// What has come and was not consumed: its number, and the level and number of its buffer.
    got: VecDeque<(u32, usize, u32)>,
    answers: u32,
    /// The answer does not reach memory by itself.
    hold_answers: bool,
    held: Option<Answer>,
}

impl<const L: usize> World<L> {
    fn new(config: Config<L>) -> Self {
        Self {
            config,
            tx: Sender::new(config),
            rx: Receiver::new(config),
            memory: [0xff; ANSWER_BYTES],
            wire: VecDeque::new(),
            releases: VecDeque::new(),
            host: [config.bytes(0); 2],
            refuse: [false; 2],
            number: 0,
            got: VecDeque::new(),
            answers: 0,
            hold_answers: false,
            held: None,
        }
    }

    fn tx(&mut self) -> bool {
        let Some(action) = self.tx.poll() else {
            return self.tx.look(&self.memory.clone());
        };
        match action {
            SenderAction::Clear => self.memory = [0; ANSWER_BYTES],
            SenderAction::Request { phase, size, slot } => {
                self.wire.push_back(InBuffer::Request { phase, size, slot });
            }
            SenderAction::Provision { size, count } => {
                if !self.refuse[0] {
                    self.host[0] += size as u64 * count as u64;
                }
                assert!(self.tx.provisioned(!self.refuse[0]));
            }
            SenderAction::Free { size, count } => self.host[0] -= size as u64 * count as u64,
        }
        true
    }

    fn rx(&mut self) -> bool {
        let Some(action) = self.rx.poll() else {
            return false;
        };
        match action {
            ReceiverAction::Provision { size, count } => {
                if !self.refuse[1] {
                    self.host[1] += size as u64 * count as u64;
                }
                let place = (!self.refuse[1]).then_some((0x7f00_0000, size));
                assert!(self.rx.provisioned(place));
            }
            ReceiverAction::Answer(answer) => {
                self.answers += 1;
                match self.hold_answers {
                    true => self.held = Some(answer),
                    false => self.memory = answer.encode(),
                }
            }
            ReceiverAction::Free { size, count } => self.host[1] -= size as u64 * count as u64,
            ReceiverAction::Release { phase, n } => self.releases.push_back((phase, n)),
        }
        true
    }

    fn deliver(&mut self) -> bool {
        match self.wire.pop_front() {
            Some(InBuffer::Element { number, len, slot, remote }) => {
                let size = self.config.size(self.rx.level());
                assert!(len <= size, "an element of {len} in a buffer of {size}");
                assert_eq!(remote.map_or(self.config.size(0), |r| r.size), size, "the sender means the present set");
                assert!(self.rx.message(), "no buffer is free");
                self.fill(slot);
                self.got.push_back((number, self.rx.level(), slot));
            }
            Some(InBuffer::Request { phase, size, slot }) => {
                self.fill(slot);
                assert!(self.rx.request(phase, size));
            }
            None => return false,
        }
        true
    }

    /// Something is written to a buffer of the present set.
    fn fill(&self, slot: u32) {
        assert!(slot < self.config.count);
        let level = self.rx.level();
        assert!(self.got.iter().all(|m| (m.1, m.2) != (level, slot)), "buffer {slot} is overwritten");
    }

    fn release(&mut self) -> bool {
        match self.releases.pop_front() {
            Some((phase, n)) => self.tx.released(phase, n),
            None => return false,
        }
        true
    }

    fn consume(&mut self, n: u32) -> Vec<u32> {
        let n = n.min(self.rx.waiting());
        assert!(self.rx.consumed(n));
        self.got.drain(..n as usize).map(|m| m.0).collect()
    }

    fn settle(&mut self) {
        while self.tx() || self.rx() || self.deliver() || self.release() {
            assert!(self.tx.memory() <= self.host[0] || self.refuse[0]);
        }
    }

    /// Sends what goes of a message: elements that went.
    fn send(&mut self, elements: &[u32]) -> Result<Option<usize>, GrowError> {
        Ok(match self.tx.send(elements)? {
            Progress::NotYet => None,
            Progress::Now { elements: n, slot, remote } => {
                for (slot, len) in (slot..).zip(&elements[..n]) {
                    let slot = slot % self.config.count;
                    let len = if self.config.offers(*len) { OFFER_BYTES as u32 } else { *len };
                    self.wire.push_back(InBuffer::Element { number: self.number, len, slot, remote });
                    self.number += 1;
                }
                Some(n)
            }
        })
    }
}

fn world() -> World<2> {
    World::new(Config::default())
}

#[test]
fn be_1_a_connection_starts_with_small_buffers_and_what_fits_goes_through_them() {
    let mut w = world();
    assert_eq!((w.tx.memory(), w.rx.memory()), (8 << 10, 8 << 10));
    assert_eq!(w.send(&[100, 384, 1]), Ok(Some(3)));
    assert_eq!(w.send(&[]), Ok(Some(0)));
    w.settle();
    assert_eq!((w.rx.waiting(), w.tx.levels(), w.rx.level()), (3, (0, 0), 0));
}

#[test]
fn be_1_buffers_that_are_in_use_are_waited_for_and_one_is_kept_for_a_request() {
    let mut w = world();
    assert_eq!(w.send(&[1; 40]), Ok(Some(15)));
    assert_eq!(w.send(&[1]), Ok(None));
    w.settle();
    assert_eq!(w.send(&[1]), Ok(None));
    assert_eq!(w.consume(4), [0, 1, 2, 3]);
    w.settle();
    assert_eq!(w.send(&[1; 40]), Ok(Some(4)));
    w.settle();
    assert_eq!(w.send(&[5000]), Ok(None));
    w.settle();
    assert_eq!(w.tx.levels(), (1, 1), "the request found its buffer");
}

#[test]
fn be_2_be_3_be_5_an_element_above_the_threshold_makes_both_ends_exchange_their_buffers() {
    let mut w = world();
    assert_eq!(w.send(&[385]), Ok(None), "zero bytes yet");
    assert!(w.tx.growing());
    assert!(w.tx() && w.tx(), "clears the memory, then asks");
    assert_eq!(w.memory, [0; ANSWER_BYTES]);
    assert!(
        matches!(w.wire.front(), Some(InBuffer::Request { phase: 1, size: 8192, slot: 0 })),
        "through the small buffers"
    );
    assert_eq!(w.send(&[1]), Ok(None), "nothing else is sent in that direction");
    w.settle();
    assert_eq!((w.tx.memory(), w.rx.memory()), (128 << 10, 128 << 10));
    assert_eq!(w.host, [128 << 10; 2], "the small ones are freed");
    let remote = Remote { addr: 0x7f00_0000, rkey: 8192, size: 8192 };
    assert_eq!(w.tx.send(&[385, 8192]), Ok(Progress::Now { elements: 2, slot: 0, remote: Some(remote) }));
    assert_eq!(w.tx.send(&[385]), Ok(Progress::Now { elements: 1, slot: 2, remote: Some(remote) }));
}

#[test]
fn be_3_the_old_set_is_freed_when_its_messages_are_consumed() {
    let mut w = world();
    assert_eq!(w.send(&[1, 2, 3, 4000]), Ok(Some(3)));
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    assert_eq!(w.rx.memory(), (128 << 10) + (8 << 10));
    assert_eq!(w.send(&[4000]), Ok(Some(1)));
    w.settle();
    assert_eq!(w.consume(2), [0, 1]);
    w.settle();
    assert_eq!(w.rx.memory(), (128 << 10) + (8 << 10));
    assert_eq!(w.consume(9), [2, 3]);
    w.settle();
    assert_eq!((w.rx.memory(), w.host[1]), (128 << 10, 128 << 10));
    assert!(!w.rx.consumed(1));
}

#[test]
fn be_3_if_the_receiver_has_no_memory_the_small_set_stays_and_the_message_fails_by_name() {
    let mut w = world();
    w.refuse[1] = true;
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    assert_eq!(w.send(&[4000]), Err(GrowError::PeerRefused));
    assert_eq!((w.host, w.tx.levels()), ([8 << 10; 2], (0, 0)));
    assert_eq!(w.send(&[1; 20]), Ok(Some(15)), "and its buffers are all there");
    w.settle();
    w.refuse[1] = false;
    assert_eq!(w.send(&[4000]), Ok(None), "tried again, in a new phase");
    w.settle();
    assert_eq!(w.send(&[4000]), Ok(Some(1)));
}

#[test]
fn be_3_a_refused_requests_buffer_is_free_only_behind_the_messages_before_it() {
    let mut w = World::new(Config { count: 2, ..Config::default() });
    w.refuse[1] = true;
    assert_eq!(w.send(&[1]), Ok(Some(1)));
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    assert_eq!(w.send(&[4000]), Err(GrowError::PeerRefused));
    // The next buffer still has the message.
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    assert!(w.tx.growing() && w.wire.is_empty(), "the request waits");
    assert_eq!(w.consume(1), [0]);
    w.settle();
    assert_eq!(w.send(&[4000]), Err(GrowError::PeerRefused));
    assert_eq!(w.send(&[1]), Ok(Some(1)));
}

#[test]
fn be_3_if_the_sender_has_no_memory_its_small_set_stays_and_the_message_fails_by_name() {
    let mut w = world();
    w.refuse[0] = true;
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    assert_eq!(w.send(&[4000]), Err(GrowError::NoMemory));
    assert_eq!((w.host[0], w.tx.levels()), (8 << 10, (0, 1)));
    assert_eq!(w.send(&[100]), Ok(Some(1)), "small elements go on, into the receiver's larger buffers");
    w.settle();
    w.refuse[0] = false;
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    assert_eq!((w.answers, w.tx.levels()), (1, (1, 1)), "the receiver need not be asked again");
    assert_eq!(w.send(&[4000]), Ok(Some(1)));
    w.settle();
}

#[test]
fn be_4_an_answer_counts_only_when_both_flags_and_the_checksum_are_those_of_the_phase() {
    let answer = Answer { phase: 7, granted: true, addr: 0x1122_3344_5566_7788, rkey: 9, size: 8192, count: 16 };
    let whole = answer.encode();
    assert_eq!(Answer::decode(&whole, 7), Some(answer));
    assert_eq!(
        (Answer::decode(&whole, 6), Answer::decode(&whole, 0), Answer::decode(&whole[..35], 7)),
        (None, None, None)
    );
    assert_eq!((&whole[..4], &whole[32..]), (&[0, 0, 0, 7][..], &[0, 0, 0, 7][..]));
    for bit in 0..8 * ANSWER_BYTES {
        let mut bad = whole;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Answer::decode(&bad, 7), None, "bit {bit}");
    }
}

#[test]
fn be_4_be_7_a_part_of_an_answer_is_not_yet_and_is_written_again() {
    let mut w = world();
    w.hold_answers = true;
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    let whole = w.held.take().unwrap().encode();
    // It comes in pieces, the tail first, and a byte is wrong.
    for cut in (0..ANSWER_BYTES).rev() {
        w.memory[cut] = whole[cut] ^ (cut == 9) as u8;
        w.settle();
        assert_eq!(w.send(&[4000]), Ok(None));
    }
    assert_eq!(w.tx.levels(), (0, 0));
    assert!(w.rx.repeat());
    w.hold_answers = false;
    w.settle();
    assert_eq!((w.tx.levels(), w.answers), ((1, 1), 2));
    assert_eq!(w.send(&[4000]), Ok(Some(1)));
    w.settle();
    assert!(!w.rx.repeat(), "what came through the new buffers proves that it was seen");
}

#[test]
fn be_4_an_answer_of_an_earlier_phase_is_not_taken() {
    let mut w = world();
    w.refuse[1] = true;
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    let old = w.memory;
    assert_eq!(w.send(&[4000]), Err(GrowError::PeerRefused));
    w.hold_answers = true;
    assert_eq!(w.send(&[4000]), Ok(None));
    w.settle();
    w.memory = old;
    w.settle();
    assert!(w.tx.growing());
    w.memory = Answer { count: 3, ..w.held.unwrap() }.encode();
    w.settle();
    assert_eq!(w.send(&[4000]), Err(GrowError::PeerRefused));
}

#[test]
fn be_4_an_answer_that_does_not_fit_the_request_fails_the_message() {
    for (size, count, addr) in [(4096, 16, 0), (8192, 15, 0), (8192, 16, u64::MAX)] {
        let mut w = world();
        w.hold_answers = true;
        assert_eq!(w.send(&[4000]), Ok(None));
        w.settle();
        w.memory = Answer { size, count, addr, ..w.held.unwrap() }.encode();
        w.settle();
        assert_eq!((w.send(&[4000]), w.tx.levels()), (Err(GrowError::BadAnswer), (0, 0)));
    }
}

#[test]
fn be_6_a_vector_is_cut_before_its_first_element_that_is_too_large() {
    let mut w = world();
    assert_eq!(w.send(&[100, 200, 4000, 100]), Ok(Some(2)), "the part before goes at once");
    assert!(!w.tx.growing());
    assert_eq!(w.send(&[4000, 100]), Ok(None));
    w.settle();
    assert_eq!(w.send(&[4000, 100]), Ok(Some(2)));
    w.settle();
    assert_eq!(w.consume(9), [0, 1, 2, 3]);
}

#[test]
fn be_7_more_than_two_phases() {
    let mut w = World::new(Config { sizes: [512, 5120, 20480], count: 4, share: 75, rendezvous: u32::MAX });
    for (len, level) in [(512, 1), (3840, 1), (5000, 2), (20480, 2)] {
        while w.send(&[len]) == Ok(None) {
            w.settle();
        }
        w.settle();
        assert_eq!((w.tx.levels(), w.rx.level()), ((level, level), level));
        w.consume(9);
        w.settle();
    }
    assert_eq!((w.host, w.answers), ([4 * 20480; 2], 2));
    let mut w = World::new(Config { sizes: [512, 5120, 20480], count: 4, share: 75, rendezvous: u32::MAX });
    assert_eq!(w.send(&[15000]), Ok(None));
    w.settle();
    assert_eq!((w.tx.levels(), w.answers), ((2, 2), 1), "straight to what is needed");
}

#[test]
fn be_7_an_element_larger_than_the_largest_level_fails_by_name() {
    let mut w = World::new(Config { rendezvous: u32::MAX, ..Config::default() });
    assert_eq!(w.send(&[100, 8193]), Ok(Some(1)));
    assert_eq!(w.send(&[8193]), Err(GrowError::TooLarge));
    assert!(!w.tx.growing());
}

#[test]
fn be_9_an_element_above_the_size_for_rendezvous_takes_a_small_buffer_and_starts_no_enlargement() {
    let mut w = world();
    assert_eq!(w.send(&[100, 8193, u32::MAX, 200]), Ok(Some(4)));
    w.settle();
    assert_eq!((w.rx.waiting(), w.tx.levels(), w.tx.room()), (4, (0, 0), 11));
    assert_eq!(w.consume(2), [0, 1]);
    w.settle();
    assert_eq!(w.tx.room(), 13);
    assert_eq!(w.send(&[8192]), Ok(None), "it goes through a larger buffer");
    assert_eq!((w.tx.growing(), w.tx.room()), (true, 0));
}

#[test]
fn be_9_what_ends_tell_each_other_is_read_as_it_was_written_and_nothing_else_is() {
    let [control, set] = [(0x1122_3344_5566_7788, 9), (u64::MAX, 8)].map(|(addr, rkey)| Place { addr, rkey });
    let hello = Hello { control, set, digest: Config::default().digest() };
    let bytes = hello.encode();
    assert_eq!(
        (Hello::decode(&bytes), Hello::decode(&bytes[..31]), Hello::decode(&[0; 32])),
        (Some(hello), None, None)
    );
    let request = Request { phase: 7, size: 8192 };
    assert_eq!(request.encode(), [0, 0, 0, 7, 0, 0, 32, 0]);
    assert_eq!((Request::decode(&request.encode()), Request::decode(&[0; 9])), (Some(request), None));
    let offer = Offer { place: control, len: 1 << 20 };
    assert_eq!((Offer::decode(&offer.encode()), Offer::decode(&[0; 15])), (Some(offer), None));
    assert_eq!(Offer::decode(&Offer { place: set, len: 1 }.encode()), None, "it wraps");
    for code in 0..9 {
        assert_eq!(Frame::of(code).map(Frame::code), (code < 5).then_some(code));
    }
    let other = Config { sizes: [520, 8192], ..Config::default() };
    let swapped = Config { sizes: [8192, 512], ..Config::default() };
    let digests = [Config::default(), other, swapped, Config { share: 74, ..other }].map(|config| config.digest());
    assert!((0..4).all(|a| (0..a).all(|b| digests[a] != digests[b])));
}

#[test]
fn be_9_a_tally_counts_only_whole_and_only_if_it_can_be() {
    let tally = Tally { set: 3, freed: 0xffff_fffe, consumed: 5 };
    assert_eq!(Tally::decode(&tally.encode()), Some(tally));
    assert_eq!(Tally::decode(&[0; 16]), None, "memory as it is at first");
    for bit in 0..128 {
        let mut bad = tally.encode();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Tally::decode(&bad), None, "bit {bit}");
    }
    let next = Tally { freed: 1, consumed: 9, ..tally };
    assert_eq!(next.since(&tally, 16, 4), Some(News { freed: 3, consumed: 4 }));
    assert_eq!((next.since(&tally, 2, 4), next.since(&tally, 16, 3)), (None, None));
    assert_eq!(Tally { set: 4, ..next }.since(&tally, 16, 4), Some(News { freed: 1, consumed: 4 }), "of a new set");
    assert_eq!(tally.since(&next, 16, 4), None, "it goes back");
}

#[test]
fn be_7_bad_requests_are_refused_and_repeats_answered_again() {
    let mut w = world();
    assert!(!w.rx.request(1, 4096), "no such level");
    assert!(w.rx() && w.answers == 1);
    assert!(w.rx.request(1, 4096) && w.rx());
    assert_eq!((w.answers, w.rx.level()), (2, 0));
    assert!(!w.rx.request(2, 512), "the level that is there");
    assert!(!w.rx.provisioned(None) && !w.tx.provisioned(true) && !w.tx.look(&w.memory.clone()));
    for _ in 0..16 {
        w.rx.message();
    }
    assert!(!w.rx.message(), "no more than there are buffers");
    w.tx.released(5, 3);
    assert_eq!(w.send(&[1; 40]), Ok(Some(15)), "buffers of another set do not count");
}

#[test]
fn be_8_memory_per_connection() {
    let config = Config::<2>::default();
    let w = world();
    let end = w.tx.memory() + w.rx.memory();
    assert_eq!((end, 2 * config.bytes(1)), (16 << 10, 256 << 10), "16 KB where a fixed scheme takes 256 KB");
    // Against a shared receive queue of 4096 buffers of 8 KiB (32 MiB).
    let of = |n, large| Footprint::of(&config, n, large, 4096);
    assert_eq!(Footprint::crossover(&config, 4096), 4097);
    assert!(of(4096, 0).growing <= of(4096, 0).shared && of(4097, 0).growing > of(4097, 0).shared);
    assert_eq!(of(1000, 1000).growing, of(1000, 0).fixed);
    assert!(of(100, 10).growing < of(100, 0).shared && of(100, 0).shared > of(100, 0).fixed);
}

/// What happens next, as far as it can.
#[derive(Clone, Debug)]
enum Op {
    /// The application has one more message, of elements of these lengths.
    Message(Vec<u32>),
    /// It sends what goes of the oldest one.
    Send,
    /// One action of the sender, of the receiver; one frame, one release arrives.
    Sender,
    Receiver,
    Deliver,
    Release,
    Consume(u32),
    Repeat,
    /// Sender's, receiver's host has no memory from now on.
    Refuse([bool; 2]),
    /// All of the answer that is on its way reaches memory, or a byte of it, or a wrong one; or it is lost.
    Answer,
    AnswerByte(usize),
    WrongByte(usize, u8),
    AnswerLost,
}

fn op() -> impl Strategy<Value = Op> {
    let element = prop_oneof![4 => 1u32..61, 1 => 1u32..4001];
    let refuse = || prop::bool::weighted(0.2);
    prop_oneof![
        2 => prop::collection::vec(element, 1..6).prop_map(Op::Message),
        4 => Just(Op::Send),
        4 => Just(Op::Sender),
        4 => Just(Op::Receiver),
        4 => Just(Op::Deliver),
        4 => Just(Op::Release),
        4 => (0u32..4).prop_map(Op::Consume),
        2 => Just(Op::Repeat),
        1 => [refuse(), refuse()].prop_map(Op::Refuse),
        1 => Just(Op::Answer),
        1 => (0..ANSWER_BYTES).prop_map(Op::AnswerByte),
        1 => (0..ANSWER_BYTES, any::<u8>()).prop_map(|(at, value)| Op::WrongByte(at, value)),
        1 => Just(Op::AnswerLost),
    ]
}

/// Messages of an application, and the numbers of the elements that have come: the reference counts them.
struct Application {
    messages: VecDeque<Vec<u32>>,
    elements: u32,
    consumed: u32,
}

impl Application {
    fn send<const L: usize>(&mut self, w: &mut World<L>) {
        let Some(message) = self.messages.front_mut() else { return };
        match w.send(message) {
            Ok(Some(n)) => _ = message.drain(..n),
            Ok(None) => (),
            Err(e) => assert!(matches!(e, GrowError::PeerRefused | GrowError::NoMemory), "{e:?}"),
        }
        if message.is_empty() {
            self.messages.pop_front();
        }
    }

    fn consume<const L: usize>(&mut self, w: &mut World<L>, n: u32) {
        for number in w.consume(n) {
            assert_eq!(number, self.consumed, "in order");
            self.consumed += 1;
        }
    }
}

fn follow(share: u8, count: u32, ops: &[Op]) {
    let mut w = World::new(Config { sizes: [64, 500, 4000], count, share, rendezvous: 2000 });
    w.hold_answers = true;
    let mut application = Application { messages: VecDeque::new(), elements: 0, consumed: 0 };
    for op in ops {
        match op {
            Op::Message(elements) => {
                application.elements += elements.len() as u32;
                application.messages.push_back(elements.clone());
            }
            Op::Send => application.send(&mut w),
            Op::Sender => _ = w.tx(),
            Op::Receiver => _ = w.rx(),
            Op::Deliver => _ = w.deliver(),
            Op::Release => _ = w.release(),
            Op::Consume(n) => application.consume(&mut w, *n),
            Op::Repeat => _ = w.rx.repeat(),
            Op::Refuse(refuse) => w.refuse = *refuse,
            Op::Answer => w.memory = w.held.map_or(w.memory, |answer| answer.encode()),
            Op::AnswerByte(at) => w.memory[*at] = w.held.map_or(w.memory[*at], |answer| answer.encode()[*at]),
            // Only while an answer is being written: nobody else writes there.
            Op::WrongByte(at, value) => w.memory[*at] = w.held.map_or(w.memory[*at], |_| *value),
            Op::AnswerLost => w.held = None,
        }
    }
    // With memory and answers everything goes through.
    w.refuse = [false; 2];
    w.hold_answers = false;
    for _ in 0..10 * (1 + application.elements) {
        w.rx.repeat();
        w.settle();
        application.send(&mut w);
        application.consume(&mut w, u32::MAX);
    }
    assert!(application.messages.is_empty(), "stands still: {:?} {:?}", w.tx, w.rx);
    w.settle();
    application.consume(&mut w, u32::MAX);
    assert_eq!(application.consumed, application.elements);
    w.settle();
    assert_eq!(w.host, [w.tx.memory(), w.rx.memory()], "nothing is registered but the present sets");
}

proptest! {
    #![proptest_config(common::config(300))]

    #[test]
    fn be_7_messages_arrive_once_and_in_order_whatever_happens_to_answers_and_memory(
        share in 1u8..101, count in 2u32..8, ops in prop::collection::vec(op(), 0..600),
    ) {
        follow(share, count, &ops);
    }
}
