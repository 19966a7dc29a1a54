// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory of receives is asked for ahead (PC-3): `memory::ahead`, with which `berth_fp_grant` is compared.

use berth_protocol::memory::ahead::{Ahead, Post};
use std::num::NonZeroU64;

/// Bytes that the wire carries in a unit.
const RATE: u64 = 512;
const PAGE: u32 = 4096;

struct Grant {
    ahead: Ahead<128, 16>,
    now: u32,
    posts: Vec<Post>,
}

impl Grant {
    fn new(limit: u16, most: u16, sizes: &[u32]) -> Self {
        let mut ahead = Ahead::new(NonZeroU64::new(RATE).unwrap(), limit, most);
        for (n, &size) in sizes.iter().enumerate() {
            assert!(ahead.post(size, n + 1 == sizes.len()));
        }
        let mut grant = Self { ahead, now: 0, posts: Vec::new() };
        grant.rest();
        grant
    }

    fn rest(&mut self) {
        loop {
            self.posts.extend(std::iter::from_fn(|| self.ahead.take()));
            match self.ahead.due() {
                (_, true) => self.ahead.advance(),
                (true, _) => self.ahead.ask(self.now),
                _ => return,
            }
        }
    }

    fn event(&mut self, event: impl FnOnce(&mut Ahead<128, 16>, u32)) {
        event(&mut self.ahead, self.now);
        self.rest();
    }

    /// The host pins the pages of these receives.
    fn hold(&mut self, recvs: std::ops::Range<u32>) {
        for recv in recvs {
            self.event(|a, _| a.answer(recv, false));
            self.event(|a, now| a.served(recv, now));
            self.event(|a, _| a.answer(recv, true));
        }
    }

    fn asked(&self) -> u32 {
        self.ahead.numbers().0
    }

    /// Time passes, and what waits for it is looked at.
    fn pass(&mut self, units: u32) {
        self.now = self.now.wrapping_add(units);
        if self.ahead.later() {
            self.event(|a, now| a.ask(now));
        }
    }
}

fn credit(size: u32, commit: bool, early: bool) -> Post {
    Post { size: Some(size), commit, early }
}

#[test]
fn pc_3_no_further_receive_is_asked_for_when_the_bound_is_reached() {
    for (sizes, first) in [([4096, 4096, 100], 2), ([4096, 4095, 100], 3), ([9000, 1, 1], 1)] {
        let mut g = Grant::new(2, 0, &sizes);
        assert_eq!((g.asked(), g.ahead.bytes()), (first, 8192), "{sizes:?}");
        let held: u32 = sizes[..first as usize].iter().sum();
        assert_eq!(g.ahead.out(), held.into());
        // What is granted is announced, although the batch is not.
        g.hold(0..first);
        assert_eq!(g.posts.len(), first as usize);
        assert!(g.posts.last().unwrap().commit && g.posts.iter().filter(|p| p.commit).count() == 1);
        g.event(|a, _| a.complete(0));
        assert_eq!(g.asked(), 3, "{sizes:?}");
    }
    // Without a bound only the window counts.
    let mut g = Grant::new(0, 0, &[1 << 30; 40]);
    assert_eq!(g.asked(), 16);
    g.hold(0..1);
    assert_eq!((g.asked(), g.posts), (17, vec![credit(1 << 30, false, false)]));
}

#[test]
fn pc_3_the_bound_grows_by_what_the_wire_carries_in_round_trip_and_service() {
    let mut g = Grant::new(4, 64, &[PAGE; 100]);
    assert_eq!((g.ahead.bytes(), g.asked()), (4 * 4096, 4));
    g.now = 100;
    g.hold(0..1);
    g.event(|a, now| a.tell(PAGE, 200, now));
    // Less what the cards take themselves, 8 units and two packets, and a sixteenth.
    let carried = (200 + 100 - 24) * RATE * 15 / 16;
    assert_eq!(g.ahead.bytes(), (4 + carried / 4096) * 4096);
    g.event(|a, now| a.tell(PAGE, 60_000, now));
    assert_eq!(g.ahead.bytes(), 68 / 16 * 65_536 + 4 * 4096, "no more than the second number");
    // A bound of a block or more is one of whole blocks.
    let mut g = Grant::new(16, 64, &[PAGE; 4]);
    g.event(|a, now| a.tell(0, 100, now));
    assert_eq!(g.ahead.bytes() % 65_536, 0);
    // Where nothing was missing there is no bound.
    let mut g = Grant::new(1, 1, &[PAGE; 8]);
    assert_eq!(g.asked(), 1);
    g.event(|a, _| a.answer(0, true));
    assert_eq!(g.asked(), 8);
}

#[test]
fn pc_3_a_list_has_half_of_the_bound_and_the_next_one_is_whole_when_it_leaves() {
    let mut g = Grant::new(8, 8, &[PAGE; 20]);
    assert_eq!(g.asked(), 8, "two lists");
    g.hold(0..8);
    let lists: Vec<_> = g.posts.iter().map(|p| p.commit).collect();
    assert_eq!(lists, [false, false, false, true, false, false, false, true]);
    assert!(g.posts.iter().all(|p| p.early));
    // The first has left, and its data come: the third is asked for as what comes counts as gone.
    g.event(|a, now| a.tell(4 * PAGE, 30, now));
    g.event(|a, now| a.prove(now));
    g.event(|a, now| a.tell(4 * PAGE, 30, now));
    let before = g.asked();
    g.pass(30);
    assert!(g.asked() > before && g.asked() < 20, "{} receives", g.asked());
}

#[test]
fn pc_3_after_a_proof_no_more_is_asked_for_than_eight_times_what_the_wire_carries() {
    let mut g = Grant::new(1000, 1000, &[2 * PAGE; 100]);
    g.hold(0..2);
    g.event(|a, now| a.tell(PAGE, 40, now));
    g.event(|a, now| a.prove(now));
    let first = g.asked();
    g.hold(2..first);
    let mut last = g.asked();
    for unit in 1..20 {
        g.pass(1);
        g.hold(last.min(first)..g.asked().min(last));
        last = g.asked();
        assert!(u64::from(last - first) * 8192 <= unit * 8 * RATE + 8192 + 16 * 8192, "{last} after {unit}");
    }
    assert!(last > first);
}

#[test]
fn decision_20_a_receive_that_is_refused_completes_in_its_turn() {
    let mut g = Grant::new(100, 0, &[PAGE; 3]);
    g.event(|a, _| a.answer(1, false));
    g.event(|a, _| a.refuse(1));
    assert_eq!((g.ahead.out(), g.ahead.numbers()), (2 * 4096, (3, 0)));
    g.hold(0..1);
    // What is granted before it is announced.
    assert_eq!(g.posts, [credit(PAGE, false, false), Post { size: None, commit: true, early: false }]);
    g.hold(2..3);
    assert_eq!(g.ahead.numbers(), (3, 1), "not before the first is complete");
    g.event(|a, _| a.complete(0));
    assert_eq!((g.ahead.numbers(), g.posts.len()), ((3, 3), 3));
    assert_eq!(g.posts[2], credit(PAGE, true, false));
    g.event(|a, _| a.complete(0));
    assert_eq!(g.ahead.out(), 0);
    // No more than there is room for.
    let mut ahead = Ahead::<2, 2>::new(NonZeroU64::MIN, 0, 0);
    assert_eq!([1, 2, 3].map(|size| ahead.post(size, true)), [true, true, false]);
}
