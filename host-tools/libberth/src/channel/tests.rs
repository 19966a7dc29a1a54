// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two ends with a wire and two hosts between them that do the worst that a card may do: WRITEs are read from memory late,
//! completions come later still, answers are lost and damaged, memory is refused.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use berth_protocol::service::grow::{ANSWER_BYTES, CONTROL_BYTES, Config, Frame, Hello, Offer, Place, TALLY_AT, Tally};
use berth_queue::Remote;
use berth_random::Rng;

use super::ends::{Ends, check};
use super::error::{ChannelError, Refused};
use super::medium::{Event, Medium, Tag};
use super::words::Words;
use super::{Arrived, Status};
use crate::cq;
use crate::mapping::Buffer;

/// Elements that may be under way, of each end.
const DEPTH: usize = 32;

#[derive(Debug)]
enum Op {
    Write { from: Words, at: usize, len: usize, to: Remote, code: u32, tag: Tag },
    Now { bytes: Vec<u8>, to: Remote, code: Option<u32>, tag: Tag },
    Read { into: Buffer, len: u32, from: Remote },
}

#[derive(Debug)]
enum Memory {
    Written(Words),
    Read(Vec<u8>),
}

#[derive(Debug, Default)]
struct Net {
    /// Of each end: what it has posted, what is done and not told, what it is told.
    posted: [VecDeque<Op>; 2],
    done: [VecDeque<Event>; 2],
    events: [VecDeque<Result<Event, cq::Status>>; 2],
    keys: BTreeMap<u32, (u64, Memory)>,
    given: u32,
    refuse: [bool; 2],
    /// Answers: the next is lost, or has this byte changed, or comes only up to it.
    harm: Option<Harm>,
    answers: u32,
}

#[derive(Clone, Copy, Debug)]
enum Harm {
    Lost,
    Changed(usize),
    Cut(usize),
}

impl Net {
    fn key(&mut self, va: u64, memory: Memory) -> Remote {
        self.given += 1;
        self.keys.insert(self.given, (va, memory));
        Remote { va, key: self.given }
    }

    fn written(&self, to: Remote, bytes: &[u8]) {
        let Some((va, Memory::Written(words))) = self.keys.get(&to.key) else { panic!("no key {to:?}") };
        let at = usize::try_from(to.va - va).unwrap();
        assert!(at + bytes.len() <= words.len(), "{to:?} and {} bytes", bytes.len());
        words.put(at, bytes);
    }

    /// The card does what an end has posted first; false if there is nothing.
    fn step(&mut self, end: usize) -> bool {
        let op = self.posted[end].pop_front();
        op.is_some_and(|op| self.carry_out(end, op))
    }

    /// The card does the last WRITE without an immediate before all else, as when frames were lost.
    fn step_ahead(&mut self, end: usize) -> bool {
        let last = self.posted[end].iter().rposition(|op| matches!(op, Op::Now { code: None, .. }));
        let op = last.and_then(|at| self.posted[end].remove(at));
        op.is_some_and(|op| self.carry_out(end, op))
    }

    fn carry_out(&mut self, end: usize, op: Op) -> bool {
        let arrived = |code, len: usize| Ok(Event::Arrived { code: Some(code), len: len as u32 });
        match op {
            Op::Write { from, at, len, to, code, tag } => {
                let mut bytes = vec![0; len];
                from.get(at, &mut bytes);
                self.written(to, &bytes);
                self.events[1 - end].push_back(arrived(code, len));
                self.done[end].push_back(Event::Sent(tag));
            }
            Op::Now { mut bytes, to, code, tag } => {
                let answer = code.is_none() && bytes.len() == ANSWER_BYTES;
                let harm = self.harm.filter(|_| answer);
                self.answers += u32::from(answer);
                match harm {
                    Some(Harm::Lost) => bytes.clear(),
                    Some(Harm::Changed(at)) => bytes[at] ^= 0x40,
                    Some(Harm::Cut(at)) => bytes.truncate(at / 8 * 8),
                    None => {}
                }
                self.written(to, &bytes);
                self.events[1 - end].extend(code.map(|code| arrived(code, bytes.len())));
                self.done[end].push_back(Event::Sent(tag));
            }
            Op::Read { mut into, len, from } => {
                let Some((va, Memory::Read(bytes))) = self.keys.get(&from.key) else { panic!("no key {from:?}") };
                let at = usize::try_from(from.va - va).unwrap();
                into[..len as usize].copy_from_slice(&bytes[at..at + len as usize]);
                self.done[end].push_back(Event::Read(into));
            }
        }
        true
    }

    /// An end is told of what was done first.
    fn tell(&mut self, end: usize) -> bool {
        let done = self.done[end].pop_front();
        let some = done.is_some();
        self.events[end].extend(done.map(Ok));
        some
    }
}

#[derive(Debug)]
struct End {
    net: Rc<RefCell<Net>>,
    end: usize,
}

/// Memory with a key, which ends with it.
#[derive(Debug)]
struct Keyed<T> {
    memory: Option<T>,
    remote: Remote,
    net: Rc<RefCell<Net>>,
}

impl<T> Drop for Keyed<T> {
    fn drop(&mut self) {
        self.net.borrow_mut().keys.remove(&self.remote.key);
    }
}

impl End {
    fn post(&mut self, op: Op) {
        assert!(self.room() > 0);
        self.net.borrow_mut().posted[self.end].push_back(op);
    }
}

impl Medium for End {
    type Open = Keyed<Words>;
    type Offered = Keyed<Buffer>;

    fn own(&mut self, bytes: usize) -> Option<Words> {
        if self.net.borrow().refuse[self.end] { None } else { Words::new(bytes) }
    }

    fn open(&mut self, bytes: usize) -> Option<Self::Open> {
        let memory = self.own(bytes)?;
        let remote = self.net.borrow_mut().key(memory.va(), Memory::Written(memory.clone()));
        Some(Keyed { memory: Some(memory), remote, net: Rc::clone(&self.net) })
    }

    fn words(open: &Self::Open) -> &Words {
        open.memory.as_ref().unwrap()
    }

    fn remote(open: &Self::Open) -> Remote {
        open.remote
    }

    fn offer(&mut self, buffer: Buffer) -> Result<Self::Offered, Buffer> {
        if self.net.borrow().refuse[self.end] {
            return Err(buffer);
        }
        let remote = self.net.borrow_mut().key(buffer.as_ptr() as u64, Memory::Read(buffer.to_vec()));
        Ok(Keyed { memory: Some(buffer), remote, net: Rc::clone(&self.net) })
    }

    fn offered(offered: &Self::Offered) -> Remote {
        offered.remote
    }

    fn take_back(mut offered: Self::Offered) -> Option<Buffer> {
        offered.memory.take()
    }

    fn room(&self) -> usize {
        let net = self.net.borrow();
        DEPTH - net.posted[self.end].len() - net.done[self.end].len()
    }

    fn write(
        &mut self,
        from: &Words,
        at: usize,
        len: usize,
        to: Remote,
        code: u32,
        tag: Tag,
    ) -> Result<(), ChannelError> {
        assert!(at + len <= from.len());
        self.post(Op::Write { from: from.clone(), at, len, to, code, tag });
        Ok(())
    }

    fn write_now(&mut self, bytes: &[u8], to: Remote, code: Option<u32>, tag: Tag) -> Result<(), ChannelError> {
        self.post(Op::Now { bytes: bytes.to_vec(), to, code, tag });
        Ok(())
    }

    fn read(&mut self, into: Buffer, len: u32, from: Remote) -> Result<(), Refused> {
        self.post(Op::Read { into, len, from });
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Event>, ChannelError> {
        self.net.borrow_mut().events[self.end].pop_front().transpose().map_err(ChannelError::Lost)
    }
}

struct World<const L: usize> {
    net: Rc<RefCell<Net>>,
    ends: [Ends<End, L>; 2],
}

impl<const L: usize> World<L> {
    fn new(config: Config<L>) -> Self {
        check(&config).unwrap();
        let net = Rc::<RefCell<Net>>::default();
        let mut ends = [0, 1].map(|end| Ends::new(End { net: Rc::clone(&net), end }, config).unwrap());
        let hellos = [ends[1].hello(), ends[0].hello()];
        ends.iter_mut().zip(hellos).for_each(|(end, hello)| end.begin(&hello).unwrap());
        Self { net, ends }
    }

    /// Both hosts and the wire do all that they can, for so many rounds.
    fn settle(&mut self) {
        for _ in 0..40 {
            for end in 0..2 {
                let _ = self.ends[end].progress();
                while self.net.borrow_mut().step(end) || self.net.borrow_mut().tell(end) {}
            }
        }
    }

    fn take(&mut self, end: usize) -> Vec<u8> {
        let Arrived { len, .. } = self.ends[end].peek().unwrap().expect("an element");
        let mut bytes = vec![0; len];
        self.ends[end].receive(&mut bytes).unwrap();
        bytes
    }
}

fn world() -> World<2> {
    World::new(Config::default())
}

const NONE: Status = Status { elements: 0, bytes: 0 };

fn taken(elements: usize, bytes: usize) -> Status {
    Status { elements, bytes }
}

#[test]
fn be_1_be_8_small_elements_go_through_small_buffers_of_16_kib_in_both_directions() {
    let mut w = world();
    let idle = w.ends[0].bytes();
    assert!(idle <= 16 << 10, "{idle}");
    assert_eq!(w.ends[0].send(&[&[1; 384], &[], &[2; 3]]).unwrap(), taken(3, 387));
    w.settle();
    assert_eq!(w.ends[1].peek().unwrap(), Some(Arrived { len: 384, last: false, offered: false }));
    assert!(matches!(w.ends[1].receive(&mut [0; 383]), Err(ChannelError::TooSmall { len: 384 })));
    assert_eq!((w.take(1), w.take(1)), (vec![1; 384], vec![]));
    assert_eq!(w.ends[1].receive(&mut [0; 9]).unwrap(), Some(Arrived { len: 3, last: true, offered: false }));
    assert_eq!(w.ends[1].peek().unwrap(), None);
    w.settle();
    assert_eq!((w.ends[0].unconsumed(), w.ends[0].bytes(), w.ends[1].bytes()), (0, idle, idle));
}

#[test]
fn be_2_be_5_be_6_a_large_element_is_cut_off_and_gets_larger_buffers_in_its_direction_only() {
    let mut w = world();
    let idle = w.ends[0].bytes();
    let (small, large) = ([1; 100], [2; 8192]);
    assert_eq!(w.ends[0].send(&[&small, &large, &small]).unwrap(), taken(1, 100), "the part before goes at once");
    assert_eq!(w.ends[0].send(&[&large, &small]).unwrap(), NONE);
    assert!(w.ends[0].growing());
    assert_eq!(w.ends[0].send(&[&small]).unwrap(), NONE, "nothing else is sent");
    w.settle();
    assert_eq!(w.ends[0].send(&[&large, &small]).unwrap(), taken(2, 8292));
    w.settle();
    assert_eq!((w.take(1), w.take(1), w.take(1)), (small.to_vec(), large.to_vec(), small.to_vec()));
    w.settle();
    assert_eq!((w.ends[0].levels(), w.ends[1].levels()), ((1, 0), (0, 1)));
    let (more_own, more) = (15 * (8192 - 512), 16 * (8192 - 512));
    assert_eq!((w.ends[0].bytes(), w.ends[1].bytes()), (idle + more_own, idle + more), "the small ones are freed");
    assert_eq!(w.net.borrow().keys.len(), 4);
}

#[test]
fn be_3_without_memory_a_message_fails_by_name_and_the_channel_goes_on() {
    for (end, error) in [(1, "PeerRefused"), (0, "NoMemory")] {
        let mut w = world();
        w.net.borrow_mut().refuse[end] = true;
        assert_eq!(w.ends[0].send(&[&[2; 4000]]).unwrap(), NONE);
        w.settle();
        let failed = w.ends[0].send(&[&[2; 4000]]).unwrap_err();
        assert_eq!(format!("{failed:?}"), error);
        assert_eq!(w.ends[0].send(&[&[3; 300]]).unwrap(), taken(1, 300));
        w.settle();
        assert_eq!(w.take(1), vec![3; 300]);
        w.net.borrow_mut().refuse[end] = false;
        assert_eq!(w.ends[0].send(&[&[2; 4000]]).unwrap(), NONE);
        w.settle();
        assert_eq!(w.ends[0].send(&[&[2; 4000]]).unwrap(), taken(1, 4000));
        w.settle();
        assert_eq!(w.take(1), vec![2; 4000]);
    }
    // Offers, too.
    let mut w = world();
    w.net.borrow_mut().refuse[0] = true;
    let refused = w.ends[0].send_buffer(Buffer::new(9000).unwrap()).unwrap_err();
    assert!(matches!(refused, Refused { error: ChannelError::NoMemory, buffer: Some(_) }));
    assert!(matches!(w.ends[0].send(&[&[1; 9000]]), Err(ChannelError::NoMemory)));
    w.net.borrow_mut().refuse[0] = false;
    assert!(w.ends[0].send_buffer(Buffer::new(9000).unwrap()).unwrap().is_none());
}

#[test]
fn be_4_be_7_a_lost_or_damaged_answer_is_not_yet_and_comes_again() {
    let mut w = world();
    assert_eq!(w.ends[0].send(&[&[2; 4000]]).unwrap(), NONE);
    let harms = (0..ANSWER_BYTES).map(Harm::Changed).chain((0..ANSWER_BYTES).map(Harm::Cut)).chain([Harm::Lost]);
    for harm in harms {
        w.net.borrow_mut().harm = Some(harm);
        w.settle();
        assert_eq!(w.ends[0].send(&[&[2; 4000]]).unwrap(), NONE, "{harm:?}");
    }
    assert!(w.net.borrow().answers > 5);
    w.net.borrow_mut().harm = None;
    for _ in 0..60 {
        w.settle();
    }
    assert_eq!(w.ends[0].send(&[&[2; 4000]]).unwrap(), taken(1, 4000));
    w.settle();
    let answers = w.net.borrow().answers;
    assert_eq!(w.take(1), vec![2; 4000]);
    for _ in 0..100 {
        w.settle();
    }
    assert_eq!(w.net.borrow().answers, answers, "what came through the new set proves that it was seen");
}

#[test]
fn be_7_an_element_beyond_the_largest_buffer_fails_by_name() {
    let mut w = World::new(Config { rendezvous: u32::MAX, ..Config::default() });
    assert_eq!(w.ends[0].send(&[&[1; 10], &[1; 8193]]).unwrap(), taken(1, 10));
    assert!(matches!(w.ends[0].send(&[&[1; 8193]]), Err(ChannelError::TooLarge)));
    assert_eq!(w.ends[0].send(&[&[1; 10]]).unwrap(), taken(1, 10));
}

#[test]
fn be_9_above_the_size_for_rendezvous_the_receiver_reads_and_the_sender_hears_when() {
    let mut w = world();
    let idle = w.ends[0].bytes();
    let large = vec![7; 100_000];
    // A copy is taken, one at a time.
    assert_eq!(w.ends[0].send(&[&[1; 4], &large, &[3; 4]]).unwrap(), taken(1, 4));
    assert_eq!(w.ends[0].send(&[&large, &[3; 4]]).unwrap(), taken(1, 100_000));
    assert_eq!(w.ends[0].bytes(), idle + 100_000);
    assert_eq!(w.ends[0].send(&[&large]).unwrap(), NONE);
    assert_eq!(w.ends[0].send(&[&[3; 4]]).unwrap(), taken(1, 4));
    // None is: a buffer is offered.
    let buffer = Buffer::from_slice(&vec![8; 50_000]).unwrap();
    let va = buffer.as_ptr();
    assert!(w.ends[0].send_buffer(buffer).unwrap().is_none());
    w.settle();
    assert_eq!(w.take(1), [1; 4]);
    assert_eq!(w.ends[1].peek().unwrap(), Some(Arrived { len: 100_000, last: false, offered: true }));
    assert!(matches!(w.ends[1].receive(&mut vec![0; 100_000]), Err(ChannelError::IsOffered { len: 100_000 })));
    let short = w.ends[1].fetch(Buffer::new(99_999).unwrap()).unwrap_err();
    assert!(matches!(short, Refused { error: ChannelError::TooSmall { len: 100_000 }, buffer: Some(_) }));
    assert!(w.ends[1].fetch(Buffer::new(100_003).unwrap()).unwrap().is_none());
    assert_eq!(w.ends[1].peek().unwrap(), None, "in order");
    assert!(w.ends[1].fetch(Buffer::new(9).unwrap()).unwrap().is_some());
    assert!(w.ends[0].returned().is_none());
    w.settle();
    let fetched = w.ends[1].fetched().unwrap();
    assert_eq!((fetched.len, fetched.last, &fetched.buffer[..100_000]), (100_000, false, &large[..]));
    assert_eq!(w.ends[0].bytes(), idle, "the copy is freed");
    // A small one may be fetched, too, and any one be left unread.
    assert!(w.ends[1].fetch(Buffer::new(9).unwrap()).unwrap().is_none());
    assert_eq!(w.ends[1].fetched().unwrap().buffer[..4], [3; 4]);
    assert!(w.ends[1].skip().unwrap().unwrap().offered);
    w.settle();
    let returned = w.ends[0].returned().unwrap();
    assert_eq!((returned.as_ptr(), returned[..] == [8; 50_000]), (va, true));
    assert_eq!((w.ends[0].unconsumed(), w.ends[1].skip().unwrap()), (0, None));
    assert_eq!(w.net.borrow().keys.len(), 4);
}

#[test]
fn be_9_what_no_channel_writes_has_a_name_and_what_came_before_and_the_other_direction_go_on() {
    let lying = Offer { place: Place { addr: u64::MAX - 5, rkey: 1 }, len: 6 }.encode();
    let huge = Offer { place: Place { addr: 0, rkey: 1 }, len: (1 << 30) + 1 }.encode();
    let offer = Some(Frame::Offer { last: true }.code());
    let cases: [(Option<u32>, u32, &[u8]); 8] = [
        (None, 0, b""),
        (Some(5), 0, b""),
        (Some(u32::MAX), 0, b""),
        (Some(0), 513, b""),
        (Some(Frame::Request.code()), 9, b""),
        (offer, 15, b""),
        (offer, 16, &lying),
        (offer, 16, &huge),
    ];
    for (code, len, content) in cases {
        let mut w = world();
        w.ends[0].send(&[&[1; 10]]).unwrap();
        w.settle();
        let hello = Hello::decode(&w.ends[1].hello()).unwrap();
        let second = Remote { va: hello.set.addr + 512, key: hello.set.rkey };
        w.net.borrow().written(second, content);
        w.net.borrow_mut().events[1].push_back(Ok(Event::Arrived { code, len }));
        assert_eq!(w.take(1), [1; 10]);
        for _ in 0..2 {
            assert!(matches!(w.ends[1].peek(), Err(ChannelError::BadFrame(_))), "{code:?} {len}");
        }
        assert_eq!(w.ends[1].send(&[&[2; 10]]).unwrap(), taken(1, 10));
        w.settle();
        assert_eq!(w.take(0), [2; 10]);
    }
    // More than there are buffers.
    let mut w = world();
    for _ in 0..17 {
        w.net.borrow_mut().events[1].push_back(Ok(Event::Arrived { code: Some(0), len: 1 }));
    }
    for _ in 0..16 {
        assert_eq!(w.ends[1].skip().unwrap().map(|a| a.len), Some(1));
    }
    assert!(matches!(w.ends[1].peek(), Err(ChannelError::BadFrame(_))));
    // A request that cannot be is refused, and takes nothing.
    let mut w = world();
    let hello = Hello::decode(&w.ends[1].hello()).unwrap();
    let first = Remote { va: hello.set.addr, key: hello.set.rkey };
    w.net.borrow().written(first, &[0, 0, 0, 9, 0, 0, 2, 1]);
    w.net.borrow_mut().events[1].push_back(Ok(Event::Arrived { code: Some(4), len: 8 }));
    w.settle();
    assert_eq!((w.ends[1].levels(), w.ends[1].peek().unwrap()), ((0, 0), None));
    // More given back than there was.
    for tally in [Tally { freed: 17, ..Tally::default() }, Tally { consumed: 2, ..Tally::default() }] {
        let mut w = world();
        w.ends[0].send(&[&[1; 10]]).unwrap();
        let hello = Hello::decode(&w.ends[0].hello()).unwrap();
        let to = Remote { va: hello.control.addr + TALLY_AT as u64, key: hello.control.rkey };
        w.net.borrow().written(to, &tally.encode());
        assert!(matches!(w.ends[0].send(&[&[1]]), Err(ChannelError::BadTally)));
        assert!(matches!(w.ends[0].send_buffer(Buffer::new(1).unwrap()).unwrap_err().error, ChannelError::BadTally));
        w.ends[1].send(&[&[2; 10]]).unwrap();
        w.settle();
        assert_eq!(w.take(0), [2; 10]);
    }
}

#[test]
fn be_9_another_peer_or_sizes_that_cannot_be_are_refused_and_a_failure_leaves_what_has_arrived() {
    let mut w = world();
    let other = World::new(Config { count: 15, ..Config::<2>::default() });
    for hello in [&other.ends[0].hello()[..], b"", &[0; 32]] {
        assert!(matches!(w.ends[0].begin(hello), Err(ChannelError::BadPeer)));
    }
    for config in [
        Config { sizes: [512, 512], ..Config::default() },
        Config { sizes: [500, 8192], ..Config::default() },
        Config { sizes: [16, 8192], ..Config::default() },
        Config { sizes: [512, 2 << 20], ..Config::default() },
        Config { count: 1, ..Config::default() },
        Config { count: 1025, ..Config::default() },
        Config { share: 0, ..Config::default() },
        Config { share: 101, ..Config::default() },
    ] {
        assert!(check(&config).is_err(), "{config:?}");
    }
    w.ends[0].send(&[&[1; 10]]).unwrap();
    w.net.borrow_mut().step(0);
    w.net.borrow_mut().events[1].push_front(Err(cq::Status::RetryExceeded));
    w.net.borrow_mut().events[1].push_back(Err(cq::Status::Flushed));
    assert_eq!(w.take(1), [1; 10]);
    assert!(matches!(w.ends[1].peek(), Err(ChannelError::Lost(cq::Status::RetryExceeded))));
    assert!(matches!(w.ends[1].send(&[&[1]]), Err(ChannelError::Lost(_))));
}

/// One direction, as its two programs see it.
#[derive(Default)]
struct Program {
    /// The rest of the vector that is being sent.
    vector: VecDeque<Vec<u8>>,
    left: u32,
    /// Elements that are on their way, and whether each is the last of its vector.
    expected: VecDeque<(Vec<u8>, bool)>,
    /// Buffers that are offered.
    offered: VecDeque<Vec<u8>>,
}

impl Program {
    fn send<const L: usize>(&mut self, end: &mut Ends<End, L>, random: &mut Rng, largest: u64) {
        if self.vector.is_empty() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            for _ in 0..random.between(1, 5) {
                let len = if random.chance(0.7) { random.below(40) } else { random.below(largest + 1) };
                self.vector.push_back(random.bytes(len as usize));
            }
        }
        let done = |error: &ChannelError| matches!(error, ChannelError::PeerRefused | ChannelError::NoMemory);
        if self.vector.len() == 1 && !self.vector[0].is_empty() && random.chance(0.3) {
            let bytes = self.vector[0].clone();
            match end.send_buffer(Buffer::from_slice(&bytes).unwrap()) {
                Ok(Some(_)) => {}
                Err(refused) => assert!(done(&refused.error) && refused.buffer.is_some(), "{refused:?}"),
                Ok(None) => {
                    self.offered.push_back(bytes.clone());
                    self.expected.push_back((bytes, true));
                    self.vector.clear();
                }
            }
            return;
        }
        let slices: Vec<_> = self.vector.iter().map(Vec::as_slice).collect();
        match end.send(&slices) {
            Err(error) => assert!(done(&error), "{error:?}"),
            Ok(status) => {
                let parts: Vec<_> = self.vector.drain(..status.elements).collect();
                assert_eq!(status.bytes, parts.iter().map(Vec::len).sum());
                let rest = self.vector.is_empty();
                let count = parts.len();
                self.expected.extend(parts.into_iter().enumerate().map(|(n, part)| (part, rest && n + 1 == count)));
            }
        }
        while let Some(buffer) = end.returned() {
            assert_eq!(buffer[..], self.offered.pop_front().expect("it was offered"));
        }
    }

    fn receive<const L: usize>(&mut self, end: &mut Ends<End, L>, random: &mut Rng) {
        if let Some(fetched) = end.fetched() {
            self.came(&fetched.buffer[..fetched.len], fetched.last);
        }
        let Some(Arrived { len, last, offered }) = end.peek().unwrap() else { return };
        if offered || random.chance(0.1) {
            assert!(end.fetch(Buffer::new(len + 3).unwrap()).unwrap().is_none());
        } else {
            let mut bytes = vec![0; len];
            end.receive(&mut bytes).unwrap();
            self.came(&bytes, last);
        }
    }

    fn came(&mut self, bytes: &[u8], last: bool) {
        let (expected, is_last) = self.expected.pop_front().expect("nothing comes twice");
        assert!(bytes == expected && last == is_last, "{} bytes", bytes.len());
    }

    fn is_done(&self) -> bool {
        self.vector.is_empty() && self.left == 0 && self.expected.is_empty()
    }
}

fn run(seed: u64) {
    let mut random = Rng(seed);
    let rendezvous = if random.chance(0.7) { random.between(1, 1000) as u32 } else { u32::MAX };
    let config = Config {
        sizes: [64, 200, 1000],
        count: random.between(2, 7) as u32,
        share: random.between(25, 100) as u8,
        rendezvous,
    };
    let largest = if rendezvous == u32::MAX { 1000 } else { 1500 };
    let mut w = World::new(config);
    let mut programs = [0, 1].map(|_| Program { left: 30, ..Program::default() });
    let mut steps = 0;
    while !programs.iter().all(Program::is_done) {
        steps += 1;
        // With memory and answers all of it goes through.
        let calm = steps > 4000;
        assert!(steps < 400_000, "it stands still: {:?} {:?}", w.ends, w.net);
        let end = random.below(2) as usize;
        match random.below(8) {
            0 | 1 => programs[end].send(&mut w.ends[end], &mut random, largest),
            2 | 3 => programs[end].receive(&mut w.ends[1 - end], &mut random),
            4 if random.chance(0.3) => _ = w.net.borrow_mut().step_ahead(end),
            4 => _ = w.net.borrow_mut().step(end),
            5 => _ = w.net.borrow_mut().tell(end),
            6 => w.ends[end].progress().unwrap(),
            _ => {
                let mut net = w.net.borrow_mut();
                net.refuse[end] = !calm && random.chance(0.2);
                net.harm = match random.below(4) {
                    _ if calm => None,
                    0 => Some(Harm::Lost),
                    1 => Some(Harm::Changed(random.below(ANSWER_BYTES as u64) as usize)),
                    2 => Some(Harm::Cut(random.below(ANSWER_BYTES as u64) as usize)),
                    _ => None,
                };
            }
        }
    }
    w.net.borrow_mut().refuse = [false; 2];
    w.net.borrow_mut().harm = None;
    for _ in 0..60 {
        w.settle();
    }
    for (end, program) in w.ends.iter_mut().zip(&mut programs) {
        while let Some(buffer) = end.returned() {
            assert_eq!(buffer[..], program.offered.pop_front().expect("it was offered"));
        }
        assert!(program.offered.is_empty() && end.unconsumed() == 0);
        let (count, (_, level)) = (config.count as usize, end.levels());
        let received = count * config.size(level) as usize;
        let rest = end.bytes() - CONTROL_BYTES - received;
        assert!(config.sizes.iter().any(|size| rest == (count - 1) * *size as usize), "{rest} bytes to send from");
    }
    assert_eq!(w.net.borrow().keys.len(), 4, "control memory and a set at each end");
}

#[test]
fn be_7_vectors_arrive_whole_in_order_once_whatever_happens_to_answers_and_memory() {
    let seed = berth_random::seed(1);
    for case in 0..berth_random::few_or_all(60, 2000) {
        println!("case {case}");
        run(berth_random::mix(seed ^ case));
    }
}
