// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transport over two NICs that exist in a test alone: they deliver when they like, and read memory no sooner than that.

use super::{Done, EXTRA, LONGEST, Nic, Pairs, Request, STAGING};
use crate::endpoint::{Endpoint, Event, Options, SENDS};
use crate::memory;
use crate::transport::{Completion, Error, Failure, Message, ROOM, Transport};
use berth_protocol::credit::entry::Body;
use berth_random::Rng;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{ErrorKind, Result};
use std::rc::Rc;
use std::sync::atomic::AtomicU8;

type Bytes = Rc<[AtomicU8]>;
/// What was posted: bytes, and where in them it begins and how long it is.
type Posted = (Request, Bytes, usize, u32);

/// What one end has posted, what is on its way to it, and what is done. Data stand first, then messages about credits.
#[derive(Debug, Default)]
struct Side {
    receives: [VecDeque<Posted>; 2],
    /// With its immediate.
    coming: [VecDeque<(Posted, u32)>; 2],
    done: Vec<Done>,
    gone: bool,
    /// Nothing more is sent from here, as a NIC has it whose connection has ended.
    refuses: bool,
}

/// One end's NIC.
#[derive(Debug)]
struct Fake {
    sides: Rc<RefCell<[Side; 2]>>,
    at: usize,
    bytes: Bytes,
    long: Bytes,
    rng: Rng,
}

fn bytes(len: usize) -> Bytes {
    std::iter::repeat_with(|| AtomicU8::new(0)).take(len).collect()
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.sides.borrow_mut()[self.at].gone = true;
    }
}

impl Fake {
    fn to_peer(&self, request: Request, bytes: &Bytes, at: usize, len: u32, immediate: u32) -> Result<()> {
        let queue = usize::from(request == Request::Message);
        let mut sides = self.sides.borrow_mut();
        if sides[self.at].refuses {
            return Err(ErrorKind::NotConnected.into());
        }
        sides[1 - self.at].coming[queue].push_back(((request, Rc::clone(bytes), at, len), immediate));
        Ok(())
    }
}

impl Nic for Fake {
    fn bytes(&self) -> &[AtomicU8] {
        &self.bytes
    }

    fn receive(&mut self, request: Request, at: usize, len: u32) -> Result<()> {
        let queue = usize::from(request != Request::Receive);
        self.sides.borrow_mut()[self.at].receives[queue].push_back((request, Rc::clone(&self.bytes), at, len));
        Ok(())
    }

    fn send(&mut self, request: Request, at: usize, len: u32, immediate: u32) -> Result<()> {
        self.to_peer(request, &self.bytes, at, len, immediate)
    }

    fn long(&mut self, len: u32) -> Result<&[AtomicU8]> {
        self.long = bytes(len as usize);
        Ok(&self.long)
    }

    fn send_long(&mut self, immediate: u32) -> Result<()> {
        self.to_peer(Request::LongPiece, &self.long, 0, self.long.len() as u32, immediate)
    }

    fn done(&mut self, into: &mut Vec<Done>) -> Result<()> {
        let mut sides = self.sides.borrow_mut();
        for _ in 0..self.rng.below(8) {
            let queue = self.rng.below(2) as usize;
            let own = &mut sides[self.at];
            let Some(((sent, from, at, len), immediate)) = own.coming[queue].pop_front() else {
                continue;
            };
            let failed = |failure| Err(Error::Failed(failure));
            let (here, there) = match own.receives[queue].pop_front() {
                None => (None, failed(Failure::ReceiverNotReady)),
                Some((request, _, _, size)) if len > size => {
                    (Some((request, failed(Failure::TooLong))), failed(Failure::Refused))
                }
                Some((request, to, place, _)) => {
                    let mut copy = vec![0; len as usize];
                    memory::load(&mut copy, &from[at..][..len as usize]);
                    memory::store(&to[place..][..len as usize], &copy);
                    (Some((request, Ok(()))), Ok(()))
                }
            };
            if let Some((request, result)) = here {
                own.done.push(Done { request, result, len, immediate });
            }
            sides[1 - self.at].done.push(Done { request: sent, result: there, len: 0, immediate: 0 });
        }
        into.append(&mut sides[self.at].done);
        Ok(())
    }

    fn closed(&mut self) -> bool {
        self.sides.borrow()[1 - self.at].gone
    }
}

fn pair(seed: u64, memory: u32) -> [Pairs<Fake>; 2] {
    let sides = Rc::new(RefCell::new(<[Side; 2]>::default()));
    [0, 1].map(|at| {
        let bytes = bytes(memory as usize + EXTRA);
        let fake = Fake { sides: Rc::clone(&sides), at, long: Rc::clone(&bytes), bytes, rng: Rng(seed + at as u64) };
        Pairs::new(fake, [17 + at as u32, 18 - at as u32], memory).unwrap()
    })
}

#[test]
fn cr_15_random_bursts_over_queue_pairs_always_find_a_receive() {
    const SLOT: u32 = 1 << 18;
    let first = berth_random::seed(13);
    for seed in first..first + berth_random::cases(4) {
        let mut rng = Rng(seed);
        let slots = rng.between(1, 20);
        let mut ends = pair(seed, slots as u32 * SLOT).map(|pairs| Endpoint::<_>::new(pairs, &Options::default(), 0));
        // Bytes that each end gave to be sent, and of them what has not come.
        let mut away = [VecDeque::new(), VecDeque::new()];
        let (mut posted, mut open, mut sends) = ([0; 2], [0; 2], [0; 2]);
        for now in 0.. {
            let at = rng.below(2) as usize;
            let more = now < 2000;
            if !more && away.iter().all(VecDeque::is_empty) && sends == [0; 2] {
                break;
            }
            assert!(now < 1_000_000, "seed {seed}: no end in sight");
            // Small receives mostly; some are longer than what pieces have room in together.
            for _ in 0..if rng.chance(0.3) { rng.below(10) } else { 0 } {
                let most = if rng.chance(0.05) { SLOT } else { 300 };
                if open[at] < slots.min(ROOM as u64) {
                    let offset = (posted[at] % slots) as u32 * SLOT;
                    ends[at].post_receive(posted[at], offset, rng.between(1, most.into()) as u32).unwrap();
                    (posted[at], open[at]) = (posted[at] + 1, open[at] + 1);
                }
            }
            ends[at].commit();
            if more && rng.chance(0.1) && sends[at] < SENDS {
                let most = if rng.chance(0.02) { 2 * SLOT } else { 1000 };
                let len = rng.below(most.into()) as usize;
                let bytes = rng.bytes(len);
                away[at].extend(bytes.iter().copied());
                ends[at].post_send(0, vec![bytes]).unwrap();
                sends[at] += 1;
            }
            ends[at].progress(now).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            while let Some(event) = ends[at].event() {
                match event {
                    Event::Received { offset, len, .. } => {
                        let mut bytes = vec![0; len as usize];
                        assert!(ends[at].read(offset, &mut bytes));
                        assert!(bytes.into_iter().eq(away[1 - at].drain(..len as usize)), "seed {seed}");
                        open[at] -= 1;
                    }
                    Event::Sent { .. } => sends[at] -= 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// What an end comes to say of what `lie` does.
fn told(lie: impl FnOnce(&mut Pairs<Fake>)) -> Error {
    let [own, mut peer] = pair(1, 1000);
    let mut end = Endpoint::<_>::new(own, &Options::default(), 0);
    end.post_receive(1, 0, 10).unwrap();
    end.commit();
    end.progress(1).unwrap();
    lie(&mut peer);
    (2..10_000).find_map(|now| end.progress(now).err()).expect("it is not found")
}

#[test]
fn cr_15_each_lie_over_queue_pairs_has_its_error() {
    let say = |peer: &mut Pairs<Fake>, len, immediate| peer.nic.send(Request::Message, 0, len, immediate).unwrap();
    let piece = |peer: &mut Pairs<Fake>, len| peer.nic.send(Request::Piece, 0, len, 0).unwrap();
    assert_eq!(told(|peer| say(peer, 4, 2)), Error::BadMedium, "a receive that was never used");
    assert_eq!(told(|peer| say(peer, 3, 0)), Error::BadMessage);
    assert_eq!(told(|peer| say(peer, 16, 0)), Error::BadMessage, "all zero");
    assert_eq!(told(|peer| say(peer, LONGEST as u32 + 1, 0)), Error::Failed(Failure::TooLong));
    assert_eq!(told(|peer| piece(peer, 11)), Error::Failed(Failure::TooLong));
    assert_eq!(told(|peer| piece(peer, 0)), Error::Empty);
}

#[test]
fn cr_15_a_peer_over_queue_pairs_goes_and_what_it_sent_still_comes() {
    let [own, mut peer] = pair(2, 1000);
    let mut end = Endpoint::<_>::new(own, &Options::default(), 0);
    end.post_receive(1, 0, 10).unwrap();
    end.post_receive(2, 10, 10).unwrap();
    end.commit();
    end.post_send(3, vec![vec![3; 10]]).unwrap();
    end.progress(1).unwrap();
    peer.post_send(&mut [&[7; 10][..]].into_iter(), 10, 5).unwrap();
    drop(peer);
    let error = (2..).find_map(|now| end.progress(now).err());
    assert_eq!(error, Some(Error::Gone));
    let events: Vec<_> = std::iter::from_fn(|| end.event()).collect();
    let came = Event::Received { id: 1, offset: 0, len: 10, remaining: 5 };
    assert_eq!(events, [came, Event::NotReceived { id: 2 }, Event::NotSent { id: 3, buffers: vec![vec![3; 10]] }]);
    let mut got = [0; 10];
    assert!(end.read(0, &mut got));
    assert_eq!(got, [7; 10]);
}

#[test]
fn cr_15_what_a_nic_refuses_without_a_peer_says_that_the_peer_is_gone() {
    for (there, error) in [(true, Error::System(ErrorKind::NotConnected)), (false, Error::Gone)] {
        let [mut own, peer] = pair(5, 1000);
        own.nic.sides.borrow_mut()[0].refuses = true;
        let _peer = there.then_some(peer);
        assert_eq!(own.post_send(&mut [&b"x"[..]].into_iter(), 1, 0), Err(error));
        assert_eq!(own.put(&Message { to: own.names().1, body: Body::Sync { round: 0, next: 0 } }), Err(error));
    }
}

#[test]
fn cr_15_without_credits_the_error_says_that_a_receiver_was_not_ready() {
    let [mut own, mut peer] = pair(3, 1000);
    peer.post_receive(0, 10).unwrap();
    for _ in 0..2 {
        own.post_send(&mut [&b"x"[..]].into_iter(), 1, 0).unwrap();
    }
    let mut sent = 0;
    let error = loop {
        peer.poll().unwrap();
        match own.poll() {
            Ok(done) => sent += u32::from(done == Some(Completion::Sent)),
            Err(error) => break error,
        }
    };
    assert_eq!((sent, error), (1, Error::Failed(Failure::ReceiverNotReady)));
    assert!(!own.can_send());
}

#[test]
fn cr_15_no_other_piece_is_cut_while_there_is_no_room_for_it() {
    let [mut own, mut peer] = pair(4, 1 << 20);
    let long = vec![1; STAGING as usize];
    for (len, room) in [(STAGING / 2, true), (STAGING / 2, false)] {
        peer.post_receive(0, len).unwrap();
        own.post_send(&mut [&long[..]].into_iter(), len, 0).unwrap();
        assert_eq!(own.can_send(), room);
    }
    let settle = |own: &mut Pairs<Fake>, peer: &mut Pairs<Fake>| {
        for _ in 0..1000 {
            peer.poll().unwrap();
            own.poll().unwrap();
        }
        own.can_send()
    };
    assert!(settle(&mut own, &mut peer));
    peer.post_receive(0, STAGING).unwrap();
    own.post_send(&mut [&long[..]].into_iter(), STAGING, 0).unwrap();
    assert!(!own.can_send(), "it has memory of its own, of which there is only one");
    assert!(settle(&mut own, &mut peer));
    assert_eq!(own.post_send(&mut [&b"short"[..]].into_iter(), 6, 0), Err(Error::Short));
}
