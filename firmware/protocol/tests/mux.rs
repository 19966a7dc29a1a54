// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many data connections on one control connection (CR-13), both ends at once (CR-14).

mod common;
use berth_protocol::credit::announcer::{Heard, Options};
use berth_protocol::credit::entry::{Body, Entry, Name, Part};
use berth_protocol::credit::mux::{Mux, OpenError, Received};
use berth_protocol::credit::policy::{Kind, Settings};
use berth_protocol::credit::taker::Arrived;
use berth_protocol::model::Rng;
use proptest::prelude::*;

type Small = Mux<8, 16, 8, 32>;

fn options() -> Options {
    Options { repeat: 100, policy: Settings::of(Kind::First), ..Options::default() }
}

fn name(end: u32, i: u32) -> Name {
    Name { qpn: end * 100 + i, epoch: 1000 * end + i }
}

/// Two ends with `n` connections.
fn pair(n: u32, options: &Options) -> [Small; 2] {
    let mut ends = [Mux::new(), Mux::new()];
    for i in 0..n {
        assert_eq!(ends[0].open(0, name(1, i), name(2, i), options), Ok(i as usize));
        assert_eq!(ends[1].open(0, name(2, i), name(1, i), options), Ok(i as usize));
    }
    ends
}

/// A message of at most 61 words from one end to the other.
fn message(ends: &mut [Small; 2], from: usize, now: u64, lost: bool) -> usize {
    let mut words = [0; 61];
    let len = ends[from].fill(now, &mut words);
    if !lost {
        assert!(ends[1 - from].receive_words(&words[..len], |entry, received| {
            assert!(
                !matches!(
                    received,
                    Received::UnknownQpn
                        | Received::Credits(Arrived::Overflow | Arrived::Early | Arrived::Bad | Arrived::WrongEpoch)
                        | Received::Receipt(Heard::Bad | Heard::WrongEpoch)
                ),
                "{entry:?} {received:?}"
            );
        }));
    }
    len
}

#[test]
fn cr_13_entries_find_their_connection_and_no_other() {
    let mut ends = pair(3, &options());
    for i in 0..3u32 {
        let port = ends[0].port(i as usize).unwrap();
        (0..2).for_each(|_| assert!(port.announcer.post(10 + i).is_some()));
        port.announcer.commit();
    }
    assert!(message(&mut ends, 0, 0, false) > 0);
    for i in 0..3u32 {
        let taker = &mut ends[1].port(i as usize).unwrap().taker;
        assert_eq!(taker.process(), 2);
        assert_eq!(taker.reader().bytes(), 20 + 2 * i);
    }
    let stranger = Entry { to: name(2, 7), body: Body::Sync { round: 0, next: 0 } };
    assert_eq!(ends[1].receive(&stranger), Received::UnknownQpn);
    let stale = Entry { to: Name { epoch: 0, ..name(2, 1) }, body: Body::Recall { round: 0, first: 0 } };
    assert_eq!(ends[1].receive(&stale), Received::Credits(Arrived::WrongEpoch));
    assert_eq!(ends[1].port(1).unwrap().taker.reader().count(), 2);
}

#[test]
fn cr_13_one_connection_cannot_overflow_another() {
    let mut ends = pair(2, &options());
    let list = |i, first| {
        let mut sizes = [0; 8];
        sizes[0] = 1;
        let part = Part { round: 0, list: first, total: 1, offset: 0, len: 1, sizes };
        Entry { to: name(2, i), body: Body::List(part) }
    };
    // Connection 0 is flooded, in order and with gaps; what does not fit is its own loss.
    let mut refused = 0;
    for first in 0..100 {
        let received = ends[1].receive(&list(0, first));
        refused += matches!(received, Received::Credits(Arrived::Overflow | Arrived::Early)) as u32;
        ends[1].port(0).unwrap().taker.process();
    }
    assert_eq!(refused, 99);
    assert_eq!(ends[1].port(0).unwrap().taker.reader().count(), 1);
    // Connection 1 has its buffers.
    assert!(ends[1].port(1).unwrap().taker.buffer_posted());
    assert_eq!(ends[1].receive(&list(1, 0)), Received::Credits(Arrived::Buffered));
    assert_eq!(ends[1].port(1).unwrap().taker.process(), 1);
    // Neither is connection 0 lost: it goes on where it was.
    assert_eq!(ends[1].port(0).unwrap().taker.take(5), Some((1, 0, 1)));
    assert_eq!(ends[1].receive(&list(0, 1)), Received::Credits(Arrived::Buffered));
}

#[test]
fn cr_13_connections_take_turns_and_a_long_list_waits_for_the_next_message() {
    let mut ends = pair(8, &options());
    for i in 0..8 {
        let port = ends[0].port(i).unwrap();
        (0..8).for_each(|_| assert!(port.announcer.post(1).is_some()));
        port.announcer.commit();
    }
    // 12 words each: five in a message.
    assert_eq!(message(&mut ends, 0, 0, false), 60);
    assert!(ends[0].deadline(0) == Some(0));
    assert_eq!(message(&mut ends, 0, 0, false), 36);
    for i in 0..8 {
        assert_eq!(ends[1].port(i).unwrap().taker.process(), 8, "{i}");
    }
    assert_eq!(ends[0].deadline(5), Some(100), "the repeat");
    // A connection that always has something does not starve the others.
    for _ in 0..20 {
        for i in [0, 5] {
            ends[1].port(i).unwrap().taker.resync();
        }
        let first = ends[1].poll(5).unwrap().to.qpn;
        let second = ends[1].poll(5).unwrap().to.qpn;
        assert_eq!(
            {
                let mut both = [first, second];
                both.sort();
                both
            },
            [100, 105]
        );
    }
}

#[test]
fn cr_13_places_are_given_and_taken() {
    let mut mux = Small::new();
    for i in 0..8 {
        assert_eq!(mux.open(0, name(1, i), name(2, i), &options()), Ok(i as usize));
    }
    assert_eq!(mux.open(0, name(1, 3), name(2, 9), &options()), Err(OpenError::Duplicate));
    assert_eq!(mux.open(0, name(1, 9), name(2, 9), &options()), Err(OpenError::Full));
    assert!(mux.close(3) && !mux.close(3) && !mux.close(99));
    assert!(mux.port(3).is_none() && mux.find(103).is_none());
    assert_eq!(mux.open(0, name(1, 9), name(2, 9), &options()), Ok(3));
    assert_eq!(mux.find(109), Some(3));
    // A message that holds nonsense ends there.
    assert!(!mux.receive_words(&[0xffff_ffff], |_, _| ()));
    assert!(mux.receive_words(&[], |_, _| ()));
    // An entry that fits no message does not block the others.
    let port = mux.port(0).unwrap();
    (0..8).for_each(|_| assert!(port.announcer.post(1).is_some()));
    port.announcer.commit();
    mux.port(1).unwrap().taker.resync();
    assert_eq!(mux.fill(0, &mut [0; 6]), 0);
    assert_eq!(mux.fill(0, &mut [0; 6]), 4);
}

#[test]
fn decision_6_data_connections_outlive_their_control_connection() {
    let mut ends = pair(4, &Options { repeat: 1 << 40, ..options() });
    let post = |ends: &mut [Small; 2], i: usize, sizes: &[u32]| {
        let port = ends[0].port(i).unwrap();
        sizes.iter().for_each(|size| assert!(port.announcer.post(*size).is_some()));
        port.announcer.commit();
    };
    (0..4).for_each(|i| post(&mut ends, i, &[5, 6, 7]));
    message(&mut ends, 0, 0, false);
    for i in 0..4 {
        // They live on their credits.
        let taker = &mut ends[1].port(i).unwrap().taker;
        taker.process();
        assert_eq!(taker.take(100), Some((5, 0, 5)));
        assert!(ends[0].port(i).unwrap().announcer.landed(1, None));
        post(&mut ends, i, &[8]);
    }
    // The lists of 8 are lost with the control connection. It comes again, and so do they, long before their time.
    message(&mut ends, 0, 1, true);
    assert_eq!(message(&mut ends, 0, 2, false), 0);
    ends.iter_mut().for_each(Mux::resync);
    assert!(message(&mut ends, 1, 3, false) > 0);
    assert!(message(&mut ends, 0, 3, false) > 0);
    for i in 0..4 {
        let taker = &mut ends[1].port(i).unwrap().taker;
        assert_eq!(taker.process(), 1);
        assert_eq!([taker.take(100), taker.take(100), taker.take(100)].map(|t| t.unwrap().0), [6, 7, 8]);
    }
}

proptest! {
    #![proptest_config(common::config(64))]

    /// Streams in both directions of several connections, on a control connection that loses
    /// messages and is lost.
    #[test]
    fn cr_14_both_ends_of_every_connection_send_and_receive(seed in any::<u64>(), n in 1u32..8, loss in 0u32..60) {
        let mut rng = Rng(seed);
        let mut ends = pair(n, &options());
        let mut left = vec![[2000u32; 2]; n as usize];
        let mut now = 0;
        while left.iter().flatten().any(|left| *left > 0) {
            now += 20;
            prop_assert!(now < 1_000_000, "no end in sight: {left:?}");
            for i in 0..n as usize {
                for end in 0..2 {
                    let port = ends[end].port(i).unwrap();
                    for _ in 0..rng.below(4) {
                        port.announcer.post(1 + rng.below(60) as u32);
                    }
                    port.announcer.commit();
                    port.taker.process();
                    if let Some((len, number, size)) = port.taker.take(left[i][end]) {
                        left[i][end] -= len;
                        let other = &mut ends[1 - end].port(i).unwrap().announcer;
                        prop_assert_eq!(other.builder().size_of(number), Some(size));
                        prop_assert!(other.landed(now, Some(left[i][end])));
                    }
                }
            }
            for from in 0..2 {
                let lost = rng.below(100) < loss as u64;
                message(&mut ends, from, now, lost);
            }
            if rng.chance(0.02) {
                ends.iter_mut().for_each(Mux::resync);
            }
        }
    }
}
