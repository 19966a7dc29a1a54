// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two endpoints in one process, over each transport (CR-12, CR-15).

use berth_credits::endpoint::{Endpoint, Event, Options, Reason, SENDS};
use berth_credits::shared::Shared;
use berth_credits::tcp::Tcp;
use berth_credits::transport::{Error, ROOM, Transport};
use berth_protocol::credit::policy::{Cap, Kind, Settings};
use berth_random::Rng;
use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

const MEMORY: u32 = 1 << 16;

fn shared() -> (Shared, Shared) {
    let (one, other) = UnixStream::pair().unwrap();
    let one = Shared::offer(one, MEMORY, MEMORY).unwrap();
    (one, Shared::join(other).unwrap())
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

fn tcp() -> (Tcp, Tcp) {
    let (one, other) = sockets();
    (Tcp::new(one, MEMORY).unwrap(), Tcp::new(other, MEMORY).unwrap())
}

/// Runs `test` over each transport.
macro_rules! each {
    ($test:expr) => {{
        println!("shared memory");
        let (one, other) = shared();
        $test(one, other);
        println!("TCP");
        let (one, other) = tcp();
        $test(one, other);
    }};
}

fn options(kind: Kind) -> Options {
    Options { policy: Settings::of(kind), ..Options::default() }
}

fn end<T: Transport>(transport: T, kind: Kind) -> Endpoint<T> {
    Endpoint::new(transport, &options(kind), 0)
}

/// Both ends until nothing is on its way and neither has anything to do.
fn settle<T: Transport>(a: &mut Endpoint<T>, b: &mut Endpoint<T>, now: u64) {
    loop {
        let moved = a.progress(now).unwrap() | b.progress(now).unwrap();
        let (x, y) = (*a.counters(), *b.counters());
        let there = (x.pieces_sent, x.credits_sent, x.pieces_received, x.credits_received)
            == (y.pieces_received, y.credits_received, y.pieces_sent, y.credits_sent);
        if !moved && there {
            return;
        }
        std::thread::yield_now();
    }
}

/// Bytes of the receives that were filled.
fn pieces<T: Transport>(end: &mut Endpoint<T>) -> Vec<u32> {
    std::iter::from_fn(|| end.event())
        .filter_map(|event| if let Event::Received { len, .. } = event { Some(len) } else { None })
        .collect()
}

fn worked_example<T: Transport>(a: T, b: T) {
    let (mut sender, mut receiver) = (end(a, Kind::First), end(b, Kind::First));
    receiver.post_receive(1, 0, 3).unwrap();
    receiver.post_receive(2, 3, 7).unwrap();
    receiver.commit();
    let bytes: Vec<u8> = (0..72).collect();
    sender.post_send(1, vec![bytes.clone()]).unwrap();
    settle(&mut sender, &mut receiver, 1);
    assert_eq!(pieces(&mut receiver), [3, 7]);
    assert_eq!((sender.unsent(), sender.event()), (62, None), "CR-3: held");
    assert!(sender.counters().held > 0);
    receiver.post_receive(3, 10, 22).unwrap();
    receiver.post_receive(4, 32, 44).unwrap();
    receiver.commit();
    settle(&mut sender, &mut receiver, 2);
    assert_eq!(pieces(&mut receiver), [22, 40]);
    assert_eq!(sender.event(), Some(Event::Sent { id: 1, buffers: vec![bytes.clone()] }));
    let mut got = [0; 72];
    assert!(receiver.read(0, &mut got));
    assert_eq!(got[..], bytes[..]);
    let (out, into) = (*sender.counters(), *receiver.counters());
    assert_eq!((out.pieces_sent, out.bytes_sent, out.credits_received, out.lists_received), (4, 72, 4, 2));
    assert_eq!((into.pieces_received, into.bytes_received, into.credits_sent, into.lists_sent), (4, 72, 4, 2));
    assert_eq!(into.bytes_wasted, 4);
}

#[test]
fn cr_11_worked_example_72_bytes_leave_as_3_7_22_40() {
    each!(worked_example);
}

fn eleven<T: Transport>(a: T, b: T) {
    let (mut sender, mut receiver) = (end(a, Kind::InBand), end(b, Kind::InBand));
    sender.post_send(1, vec![b"eleven ".to_vec(), Vec::new(), b"byte".to_vec()]).unwrap();
    settle(&mut sender, &mut receiver, 1);
    assert_eq!((sender.unsent(), sender.counters().pieces_sent), (11, 0), "nothing without a credit");
    receiver.post_receive(1, 100, 5).unwrap();
    receiver.post_receive(2, 0, 6).unwrap();
    settle(&mut sender, &mut receiver, 2);
    assert_eq!(sender.counters().credits_received, 0, "not before the commit");
    receiver.commit();
    settle(&mut sender, &mut receiver, 3);
    assert_eq!(receiver.event(), Some(Event::Received { id: 1, offset: 100, len: 5, remaining: 6 }));
    assert_eq!(receiver.event(), Some(Event::Received { id: 2, offset: 0, len: 6, remaining: 0 }));
    let mut got = [0; 11];
    assert!(receiver.read(100, &mut got[..5]) && receiver.read(0, &mut got[5..]));
    assert_eq!(&got, b"eleven byte");
}

#[test]
fn cr_15_send_of_11_leaves_as_5_and_6() {
    each!(eleven);
}

/// What has to come out at one end: sends are cut to receives in order, and never share one.
#[derive(Default)]
struct Expected {
    receives: VecDeque<u32>,
    /// Bytes of sends.
    sends: VecDeque<Vec<u8>>,
}

impl Expected {
    /// The next piece.
    fn piece(&mut self) -> Option<Vec<u8>> {
        while self.sends.front().is_some_and(Vec::is_empty) {
            self.sends.pop_front();
        }
        let size = *self.receives.front()? as usize;
        let send = self.sends.front_mut()?;
        self.receives.pop_front();
        Some(send.drain(..size.min(send.len())).collect())
    }
}

/// Both ends send and receive (CR-14) in bursts.
fn random<T: Transport>(a: T, b: T, rng: &mut Rng) {
    let kinds = [Kind::First, Kind::Last, Kind::Adaptive, Kind::Timed, Kind::Predictive, Kind::InBand];
    let mut one = || {
        let kind = kinds[rng.below(kinds.len() as u64) as usize];
        Options { list: 1 + rng.below(64) as u32, few: rng.below(3) as u32, ..options(kind) }
    };
    let mut ends = [Endpoint::new(a, &one(), 0), Endpoint::new(b, &one(), 0)];
    let mut expected = [Expected::default(), Expected::default()];
    let (mut posted, mut open, mut filled) = ([0u64; 2], [0; 2], [0u64; 2]);
    let (mut next_send, mut sent) = ([0u64; 2], [0u64; 2]);
    let mut now = 0;
    let mut idle = 0;
    for round in 0.. {
        now += rng.below(10_000);
        let more = round < 300;
        for at in 0..2 {
            let peer = 1 - at;
            // Receives, at the end enough of them.
            if rng.chance(0.2) || !more {
                for _ in 0..rng.below(40) {
                    let len = rng.between(1, 256) as u32;
                    if open[at] == ROOM {
                        let full = ends[at].post_receive(0, 0, len);
                        assert_eq!(full, Err(Reason::Full));
                        break;
                    }
                    ends[at].post_receive(posted[at], (posted[at] % ROOM as u64) as u32 * 256, len).unwrap();
                    expected[at].receives.push_back(len);
                    posted[at] += 1;
                    open[at] += 1;
                }
                ends[at].commit();
            }
            if more && rng.chance(0.2) {
                for _ in 0..rng.below(10) {
                    if next_send[at] - sent[at] == SENDS as u64 {
                        let full = ends[at].post_send(0, vec![vec![1]]).unwrap_err();
                        assert_eq!((full.reason, full.buffers), (Reason::Full, vec![vec![1]]));
                        break;
                    }
                    let buffers: Vec<Vec<u8>> = (0..rng.below(4))
                        .map(|_| {
                            let len = rng.below(500) as usize;
                            rng.bytes(len)
                        })
                        .collect();
                    expected[peer].sends.push_back(buffers.concat());
                    ends[at].post_send(next_send[at], buffers).unwrap();
                    next_send[at] += 1;
                }
            }
            if rng.chance(0.7) || !more {
                ends[at].progress(now).unwrap();
            }
            while let Some(event) = ends[at].event() {
                match event {
                    Event::Received { id, offset, len, .. } => {
                        let mut bytes = vec![0; len as usize];
                        assert!(ends[at].read(offset, &mut bytes));
                        assert_eq!((id, Some(bytes)), (filled[at], expected[at].piece()));
                        filled[at] += 1;
                        open[at] -= 1;
                    }
                    Event::Sent { id, .. } => {
                        assert_eq!(id, sent[at]);
                        sent[at] += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let done = expected.iter().all(|expected| expected.sends.iter().all(Vec::is_empty)) && sent == next_send;
        if !more && done {
            break;
        }
        idle = if more { 0 } else { idle + 1 };
        assert!(idle < 10_000_000, "no end in sight");
    }
    for (at, end) in ends.iter().enumerate() {
        let (own, peer) = (end.counters(), ends[1 - at].counters());
        assert_eq!((own.bytes_sent, own.pieces_sent), (peer.bytes_received, peer.pieces_received));
        assert!(own.pieces_sent <= own.credits_received && own.credits_received <= peer.credits_sent);
    }
}

#[test]
fn cr_12_random_bursts_arrive_cut_to_the_receives() {
    let first = berth_random::seed(1);
    for seed in first..first + berth_random::cases(12) {
        println!("seed {seed}");
        each!(|a, b| random(a, b, &mut Rng(seed)));
    }
}

/// The virtual clock goes to the receiver's deadlines only: they suffice, and the cap holds over any time.
/// The sender has sends of `len` bytes, the receiver receives of 100: what is left of them does not count.
fn capped<T: Transport>(a: T, b: T, kind: Kind, len: usize) {
    const BURST: u64 = 500;
    const BYTES: u64 = 12_000;
    // A byte in 10 units.
    let cap = Cap::new(100_000, 1_000_000, BURST as u32);
    let mut sender = Endpoint::<_>::new(a, &Options::default(), 0);
    let mut receiver = Endpoint::<_>::new(b, &Options { cap: Some(cap), ..options(kind) }, 0);
    for _ in 0..BYTES as usize / len {
        sender.post_send(1, vec![vec![7; len]]).unwrap();
    }
    let (mut now, mut landed) = (0, 0);
    let mut history = vec![(0, 0)];
    let mut posted = 0;
    while landed < BYTES {
        while receiver.post_receive(posted, 0, 100).is_ok() {
            posted += 1;
        }
        receiver.commit();
        settle(&mut sender, &mut receiver, now);
        landed += pieces(&mut receiver).into_iter().map(u64::from).sum::<u64>();
        history.push((now, landed));
        if landed < BYTES {
            let deadline = receiver.deadline(now).expect("withheld credits have a time");
            assert!(deadline > now, "{kind:?}: {deadline} at {now}");
            now = deadline;
        }
    }
    for (i, (from, before)) in history.iter().enumerate() {
        for (to, after) in &history[i..] {
            assert!(after - before <= BURST + (to - from) / 10, "{kind:?}: {before} at {from}, {after} at {to}");
        }
    }
    let least = (BYTES - BURST) * 10;
    assert!((least..least + least / 4).contains(&now), "{kind:?}: done at {now}, not before {least}");
}

#[test]
fn cr_10_cap_holds_over_any_time() {
    for kind in [Kind::First, Kind::Last, Kind::Adaptive, Kind::Timed, Kind::Predictive, Kind::InBand] {
        each!(|a, b| capped(a, b, kind, 12_000));
        each!(|a, b| capped(a, b, kind, 50));
    }
}

fn refusals<T: Transport>(a: T, b: T) {
    let (mut end, mut peer) = (end(a, Kind::First), end(b, Kind::First));
    let memory = end.transport().memory();
    assert_eq!(end.post_receive(1, 0, 0), Err(Reason::Length));
    assert_eq!(end.post_receive(1, memory - 1, 2), Err(Reason::Range));
    assert_eq!(end.post_receive(1, u32::MAX, 2), Err(Reason::Range));
    assert!(!end.read(memory - 1, &mut [0; 2]) && !end.read(u32::MAX, &mut [0]) && end.read(memory, &mut []));
    let many = end.post_send(1, vec![Vec::new(); 1 << 16 | 1]).unwrap_err();
    assert_eq!((many.reason, many.buffers.len()), (Reason::Length, 1 << 16 | 1));
    assert_eq!(end.deadline(5), None);

    // The peer goes in the middle: what it sent before still comes, and everything that was posted comes back.
    end.post_receive(1, 0, 4).unwrap();
    end.post_receive(2, 4, 4).unwrap();
    end.commit();
    end.post_send(3, vec![vec![3; 10]]).unwrap();
    end.post_send(4, Vec::new()).unwrap();
    peer.post_receive(1, 0, 4).unwrap();
    peer.commit();
    settle(&mut end, &mut peer, 1);
    peer.post_send(5, vec![vec![5; 4]]).unwrap();
    peer.progress(2).unwrap();
    drop(peer);
    let error = (0..).find_map(|now| end.progress(2 + now).err());
    assert_eq!(error, Some(Error::Gone));
    let events: Vec<_> = std::iter::from_fn(|| end.event()).collect();
    let sent = Event::NotSent { id: 3, buffers: vec![vec![3; 10]] };
    let came = Event::Received { id: 1, offset: 0, len: 4, remaining: 0 };
    assert_eq!(events, [came, Event::NotReceived { id: 2 }, sent, Event::NotSent { id: 4, buffers: Vec::new() }]);
    assert_eq!(end.progress(0), Err(Error::Gone));
    assert_eq!(end.post_receive(9, 0, 1), Err(Reason::Ended(Error::Gone)));
    assert_eq!(end.post_send(9, Vec::new()).unwrap_err().reason, Reason::Ended(Error::Gone));
    assert_eq!(end.deadline(9), None);
}

#[test]
fn cr_15_refusals_and_a_peer_that_goes() {
    each!(refusals);
}
