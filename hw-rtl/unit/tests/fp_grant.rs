// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_grant` alone: what it asks for ahead of what is consumed, in which order, and what becomes a credit (PC-1,
//! PC-3, decisions 5, 16, 19, 20). `grant` has what is around it and what is checked whatever a test does; `grant::bound`
//! has the protocol's model of how much.
#![cfg(feature = "fastpath")]

mod grant;

use berth_abi::cpu::{XLT_HIT, XLT_MISS, XLT_READY};
use berth_abi::status::{WC_BAD_WQE, WC_FLUSHED, WC_LOCAL_PROTECTION, WC_NO_MEMORY, WC_OVER_BUDGET, WC_RECALLED};
use berth_random::{Rng, mix, seed};
use berth_rtl_unit::{Module, Op};
use grant::bound::Bound;
use grant::{Command, Host, NO_MEMORY, OVER_BUDGET, Place, Post, Rig, wr_id};
use std::collections::BTreeMap;

const PAGE: u32 = 4096;
const MIB: u64 = 1 << 20;
/// Answers: the table has it; the host is asked; the host has answered.
const HELD: u8 = XLT_HIT as u8;
const MISS: u8 = XLT_MISS as u8;
const ANSWERED: u8 = XLT_READY as u8;

/// Cases of a test: four for each that others have, as they are short.
fn cases() -> u64 {
    4 * berth_random::cases(8)
}

fn widths() -> Vec<u32> {
    Module::widths("berth_fp_grant")
}

/// Where the nth receive lies: each in a MiB of its own.
fn at(n: usize) -> u64 {
    0x7000_0000_0000 + MIB * n as u64
}

/// A QP with one bound and one without a second number, and its receives of these sizes, one batch; nothing has answered.
fn posted(width: u32, limit: u16, most: u16, sizes: &[u32]) -> Rig {
    let mut rig = Rig::new(width, 1);
    rig.start(3, limit, most);
    for (n, &size) in sizes.iter().enumerate() {
        rig.post(3, &[(at(n), size)], n + 1 == sizes.len());
    }
    rig.rest();
    rig
}

/// How many receives were asked for.
fn asked(rig: &Rig) -> usize {
    rig.qps[&3].next.0
}

/// Whatever is asked for is held: the host pins it.
fn hold_all(rig: &mut Rig) {
    loop {
        rig.rest();
        let open = rig.open(3);
        if open.is_empty() {
            return;
        }
        for c in open {
            rig.answer(3, c.slot, MISS, 0);
            rig.rest();
            rig.answer(3, c.slot, ANSWERED, 0);
        }
    }
}

fn credit(size: u32, commit: bool) -> Post {
    Post { size: Some(size), commit, early: false }
}

// ---- PC-3: the bound ----------------------------------------------------------------------------

/// "Pinned bytes never exceed the budget [...] when it is used up, credits are withheld."
#[test]
fn pc_3_no_further_receive_is_asked_for_when_the_bound_is_reached_and_one_is_a_byte_below() {
    for width in widths() {
        for (sizes, first) in [
            (&[4096, 4096, 100, 100][..], 2),
            (&[4096, 4095, 100, 100], 3),
            (&[1, 8190, 1, 100], 3),
            (&[8192, 1, 1, 1], 1),
            (&[8191, 1, 1, 1], 2),
            (&[9000, 1, 1, 1], 1),
        ] {
            let mut rig = posted(width, 2, 0, sizes);
            assert_eq!(asked(&rig), first.min(sizes.len()), "{sizes:?}");
            // Held is as much as asked for.
            hold_all(&mut rig);
            let held: u32 = sizes[..asked(&rig)].iter().sum();
            assert_eq!((asked(&rig), rig.held(3)), (first.min(sizes.len()), held.into()), "{sizes:?}");
            // Room is what completed receives had, to the byte.
            while asked(&rig) < sizes.len() {
                let before = asked(&rig);
                rig.complete(3);
                rig.rest();
                let done = rig.qps[&3].freed;
                let mut now = before;
                while now < sizes.len() && (now == done || sizes[done..now].iter().sum::<u32>() < 2 * PAGE) {
                    now += 1;
                }
                assert_eq!(asked(&rig), now, "{sizes:?}, {done} complete");
                hold_all(&mut rig);
            }
        }
    }
}

/// "Progress is guaranteed as long as one block fits": the oldest is asked for in any case, alone.
#[test]
fn pc_3_a_receive_that_is_larger_than_the_bound_is_asked_for_when_it_is_the_oldest() {
    for width in widths() {
        for most in [0, 64] {
            let sizes = [16 * PAGE, 4 * PAGE, 5 * PAGE, PAGE, 16 * PAGE, PAGE];
            let mut rig = posted(width, 4, most, &sizes);
            for n in 0..sizes.len() {
                let together = if sizes[n] == PAGE && n == 3 { 2 } else { 1 };
                let small = n + 1 < sizes.len() && sizes[n] < 4 * PAGE && most == 0;
                let want = if small { n + together } else { n + 1 };
                assert_eq!(asked(&rig), want, "most {most}, {n} complete");
                hold_all(&mut rig);
                assert_eq!(rig.qps[&3].committed, asked(&rig), "what is granted is announced");
                let credits = rig.qps[&3].credits;
                assert!(credits > n);
                rig.complete(3);
                rig.rest();
            }
            assert_eq!(rig.held(3), 0);
        }
    }
}

/// Two receives of 2 GiB are 4 GiB, not none.
#[test]
fn pc_3_the_largest_receives_are_asked_for_one_at_a_time() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        rig.start(3, 1, 1);
        (0..2).for_each(|n| rig.post(3, &[(at(n << 12), 1 << 31)], n == 1));
        for n in 1..=2 {
            hold_all(&mut rig);
            assert_eq!((rig.held(3), rig.qps[&3].committed), (1 << 31, n));
            rig.complete(3);
        }
        rig.rest();
        assert_eq!(rig.held(3), 0);
    }
}

/// Bytes asked for and bytes given back are counted modulo 2^32; what is held is their difference, also when one has come
/// round and the other has not.
#[test]
fn pc_3_the_bound_is_the_same_when_4_gib_have_been_asked_for() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        rig.start(3, 16, 1);
        for size in [1 << 31, (1 << 31) - (96 << 10)] {
            rig.post(3, &[(at(0), size)], true);
            hold_all(&mut rig);
            rig.complete(3);
        }
        rig.rest();
        (0..16).for_each(|n| rig.post(3, &[(at(n << 14), 16 << 10)], n == 15));
        for n in 0..12 {
            hold_all(&mut rig);
            assert_eq!(rig.held(3), 64 << 10, "four of them, when {n} are complete");
            rig.complete(3);
        }
    }
}

/// Without a bound the window is what limits: 16 chunks; and the next when the oldest is passed on.
#[test]
fn pc_2_16_chunks_are_on_their_way_and_one_more_when_the_oldest_is_passed_on() {
    for width in widths() {
        let mut rig = posted(width, 0, 0, &[64; 40]);
        assert_eq!(asked(&rig), 16);
        // In any order; only the oldest makes room.
        for slot in (1..16).rev() {
            rig.answer(3, slot, HELD, 0);
            rig.rest();
            assert_eq!((asked(&rig), rig.qps[&3].credits), (16, 0));
        }
        rig.answer(3, 0, HELD, 0);
        rig.rest();
        assert_eq!((asked(&rig), rig.qps[&3].credits), (32, 16));
        hold_all(&mut rig);
        let mut wanted = vec![credit(64, false); 40];
        wanted[39].commit = true;
        assert_eq!(rig.qps[&3].posts, wanted, "decision 5: one batch");
    }
}

/// Chunks end at multiples of 1 MiB and with their range; each is asked for once, range by range.
#[test]
fn chunks_of_large_and_of_scattered_receives() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        rig.start(3, 0, 0);
        let far = 0xffff_8000_0000_0000 - 3 * MIB;
        let sges = [(far + 1, 3 * MIB as u32), (far + 5, MIB as u32 - 5), (far + MIB - 1, 2), (far + MIB, MIB as u32)];
        rig.post(3, &sges, false);
        rig.post(3, &[(at(1), 1), (at(2), 1), (at(3), 1), (at(4), 1), (at(5), 1), (at(6), 1), (at(7), 1)], true);
        rig.rest();
        let sizes: Vec<_> = rig.asks.iter().map(|a| a.2).collect();
        let mib = MIB as u32;
        assert_eq!(sizes, [mib - 1, mib, mib, 1, mib - 5, 1, 1, mib, 1, 1, 1, 1, 1, 1, 1]);
        for c in rig.open(3).into_iter().rev() {
            assert_eq!(rig.qps[&3].credits, 0, "PC-1: not before all is held");
            rig.answer(3, c.slot, HELD, 0);
            rig.rest();
        }
        assert_eq!(rig.qps[&3].posts, [credit(5 * mib - 3, false), credit(7, true)]);
    }
}

/// "A batch that meets it is announced in parts": what is granted never waits for what the bound withholds.
#[test]
fn pc_3_what_is_granted_of_a_batch_is_announced_when_the_bound_withholds_the_rest() {
    for width in widths() {
        let mut rig = posted(width, 3, 0, &[PAGE; 8]);
        hold_all(&mut rig);
        assert_eq!(rig.qps[&3].posts, [credit(PAGE, false), credit(PAGE, false), credit(PAGE, true)]);
        // One at a time now.
        for n in 3..8 {
            rig.complete(3);
            hold_all(&mut rig);
            assert_eq!((rig.qps[&3].posts.len(), rig.qps[&3].posts.last()), (n + 1, Some(&credit(PAGE, true))));
        }
        // The bound is met when all is held already.
        let mut rig = Rig::new(width, 1);
        rig.start(3, 3, 0);
        (0..3).for_each(|n| rig.post(3, &[(at(n), PAGE)], false));
        hold_all(&mut rig);
        assert_eq!(rig.qps[&3].posts, vec![credit(PAGE, false); 3], "the batch goes on");
        rig.post(3, &[(at(3), PAGE)], true);
        rig.rest();
        assert_eq!(rig.qps[&3].posts[3..], [Post { size: None, commit: true, early: false }]);
    }
}

/// Bytes that could not be had are not held (decision 20).
#[test]
fn pc_3_what_is_refused_leaves_room_for_others() {
    for width in widths() {
        let mut rig = posted(width, 2, 0, &[2 * PAGE, 2 * PAGE, PAGE, PAGE, PAGE]);
        rig.answer(3, 0, MISS, 0);
        rig.rest();
        rig.answer(3, 0, ANSWERED, OVER_BUDGET);
        rig.rest();
        assert_eq!((rig.qps[&3].local.clone(), asked(&rig)), (vec![(0, WC_OVER_BUDGET)], 2));
        hold_all(&mut rig);
        rig.complete(3);
        hold_all(&mut rig);
        assert_eq!((asked(&rig), rig.qps[&3].credits), (4, 3));
        rig.complete(3);
        hold_all(&mut rig);
        assert_eq!(rig.qps[&3].posts.last(), Some(&credit(PAGE, true)));
    }
}

/// The same of a bound that grows: what was asked for behind it is counted as before.
#[test]
fn pc_3_what_is_refused_makes_room_for_as_much_and_no_more() {
    const SIZE: u32 = 2 * PAGE;
    for width in widths() {
        let mut rig = posted(width, 16, 1, &[SIZE]);
        hold_all(&mut rig);
        // With that round trip, half of the bound is one list.
        rig.tell(3, SIZE, 1000 / (width as u16 / 8));
        rig.rest();
        rig.prove(3);
        rig.complete(3);
        (1..30).for_each(|n| rig.post(3, &[(at(n), SIZE)], n == 29));
        let wait = |rig: &mut Rig| {
            for _ in 0..8 {
                rig.rest();
                rig.now += 64;
            }
        };
        wait(&mut rig);
        // Two lists of half the bound; the third begins when the first has gone, which never is one.
        assert_eq!(asked(&rig), 9);
        for n in 1..9 {
            let oldest = rig.open(3)[0];
            rig.answer(3, oldest.slot, MISS, 0);
            rig.rest();
            rig.answer(3, oldest.slot, ANSWERED, if n < 5 { OVER_BUDGET } else { 0 });
            wait(&mut rig);
            assert_eq!((rig.qps[&3].local.len(), asked(&rig)), (n.min(4), if n < 4 { 9 } else { 13 }));
        }
        // The second is announced, and all of the third is asked for: that is the bound.
        assert_eq!(rig.qps[&3].committed, 5);
        rig.tell(3, 4 * SIZE, 1000 / (width as u16 / 8));
        wait(&mut rig);
        assert_eq!(asked(&rig), 13);
    }
}

/// The whole of it against `bound`, one event after the other: asked for is what the bound lets, neither more nor less; a
/// list is as long as it may be, and goes when it may.
fn as_the_bound_has_it(width: u32, draw: &mut Rng, most: u16) {
    let limit = [1, 4, 15, 16, 17, 40, 100][draw.below(7) as usize];
    let mut rig = Rig::new(width, draw.draw());
    // What it may be, as some of its work may be done in this or that order.
    let mut bounds = vec![Bound::new(width, limit, most)];
    rig.now = if draw.chance(0.3) { u32::MAX - draw.below(3000) as u32 } else { draw.draw() as u32 };
    rig.start(3, limit, most);
    rig.rest();
    let (far, service) = (draw.between(1, 600) as u32, draw.between(0, 600) as u32);
    let hits = if draw.chance(0.2) { 0.3 } else { 0.0 };
    let refusals = if draw.chance(0.3) { 0.2 } else { 0.0 };
    let hollows = if draw.chance(0.5) { 0.5 } else { 0.0 };
    let sizes = [1000, 4096, 16384, 65536, 200_000, 1 << 20];
    let (mut announced, mut proven, mut list) = (0, 0, None);
    let (mut misses, mut host) = (BTreeMap::new(), BTreeMap::new());
    let mut round = 0;
    let top = draw.below(6);
    let what = format!(
        "{width} bits, limit {limit}, most {most}, far {far}, service {service}, hits {hits}, refusals {refusals}, \
         hollows {hollows}"
    );
    for n in 0..300 {
        let open = rig.open(3);
        let qp = &rig.qps[&3];
        let now = rig.now;
        let pick = draw.below(100);
        match pick {
            0..25 if qp.recvs.len() - qp.freed < 60 => {
                for _ in 0..draw.between(1, 4) {
                    let most = sizes[draw.below(top + 1) as usize];
                    let size = draw.between(1, most) as u32;
                    let (here, last) = (at(rig.qps[&3].recvs.len()), draw.chance(0.5));
                    // Each is parsed, and looked at, before the next one.
                    rig.post(3, &[(here, size)], last);
                    bounds.iter_mut().for_each(|b| assert!(b.event(|m| m.post(size, last))));
                    rig.rest();
                    bounds = settled(bounds, &rig);
                    assert!(!bounds.is_empty(), "{what}: event {n}, a receive of {size} bytes");
                }
            }
            25..55 if !open.is_empty() => {
                let c = open[draw.below(open.len() as u64) as usize];
                let number = c.recv as u32;
                match c.place {
                    Place::Table if draw.chance(hits) => {
                        rig.answer(3, c.slot, HELD, 0);
                        bounds.iter_mut().for_each(|b| b.event(|m| m.answer(number, true)));
                    }
                    Place::Table => {
                        misses.insert(c.recv, now.wrapping_add(draw.between(0, u64::from(service)) as u32));
                        rig.answer(3, c.slot, MISS, 0);
                        bounds.iter_mut().for_each(|b| b.event(|m| m.answer(number, false)));
                    }
                    // The rig's table holds what the host has pinned.
                    _ if misses.get(&c.recv).is_none_or(|&due| now.wrapping_sub(due) >= 1 << 31) => (),
                    _ if draw.chance(refusals) => {
                        rig.answer(3, c.slot, ANSWERED, OVER_BUDGET);
                        bounds.iter_mut().for_each(|b| b.event(|m| m.refuse(number)));
                    }
                    _ => {
                        misses.remove(&c.recv);
                        host.insert(c.recv, ());
                        rig.answer(3, c.slot, ANSWERED, 0);
                        bounds.iter_mut().for_each(|b| b.event(|m| m.served(number, now)));
                        // Other work may be done before the table answers, or after it.
                        let before = bounds.iter().flat_map(|b| b.rests(now)).collect::<Vec<_>>();
                        bounds.extend(before);
                        bounds.iter_mut().for_each(|b| b.event(|m| m.answer(number, true)));
                    }
                }
            }
            55..65 if list.is_none() && qp.committed > announced => {
                let sum = |(_, n): &(&usize, &usize)| (announced..qp.committed).contains(*n);
                let bytes: u32 = qp.credit_of.iter().filter(sum).map(|(&r, _)| qp.recvs[r].size()).sum();
                (announced, list) = (qp.committed, Some(now));
                rig.tell(3, bytes, round);
                bounds.iter_mut().for_each(|b| b.event(|m| m.tell(bytes, round.into(), now)));
            }
            65..75 if list.is_some_and(|told| now.wrapping_sub(told) >= far) => {
                round = if round == 0 { far as u16 } else { round.min(far as u16) };
                (proven, list) = (announced, None);
                rig.prove(3);
                bounds.iter_mut().for_each(|b| b.event(|m| m.prove(now)));
            }
            75..85 if qp.freed - qp.local.len() < proven => {
                let hollow = if draw.chance(hollows) { draw.below(4) } else { 0 };
                rig.qps.get_mut(&3).expect("a QP").hollow = hollow as u8;
                rig.complete(3);
                bounds.iter_mut().for_each(|b| b.event(|m| m.complete(hollow as u32)));
            }
            _ => {
                let most = if draw.chance(0.7) { 8 } else { 200 };
                rig.now = now.wrapping_add(draw.below(most) as u32);
            }
        }
        rig.rest();
        let before = bounds.clone();
        bounds = settled(bounds, &rig);
        let (qp, event) = (&rig.qps[&3], format!("{what}: event {n} ({pick})"));
        assert!(!bounds.is_empty(), "{event}: {:?} is next, posted {:?}; before it {before:?}", qp.next, qp.posts);
        assert_eq!(qp.asked, bounds[0].model.out(), "{event}");
    }
}

/// Of what the bound may be when it has come to rest: what the engine has asked for and posted.
fn settled(bounds: Vec<Bound>, rig: &Rig) -> Vec<Bound> {
    let qp = &rig.qps[&3];
    let mut may: Vec<Bound> = Vec::new();
    for bound in bounds.iter().flat_map(|b| b.rests(rig.now)) {
        if (bound.model.numbers().0 as usize, &bound.posts) == (qp.next.0, &qp.posts) && !may.contains(&bound) {
            may.push(bound);
        }
    }
    may
}

#[test]
fn pc_3_a_bound_that_stays_lets_as_many_receives_be_asked_for_as_it_has_bytes() {
    let seed = seed(31);
    for width in widths() {
        for case in 0..cases() {
            as_the_bound_has_it(width, &mut Rng(mix(seed) ^ mix(case)), 0);
        }
    }
}

#[test]
fn pc_3_a_bound_that_grows_lets_as_much_be_asked_for_as_the_wire_carries() {
    let seed = seed(32);
    for width in widths() {
        for case in 0..cases() {
            let mut draw = Rng(mix(seed ^ 0x9a) ^ mix(case));
            let most = [1, 8, 64, 1024][draw.below(4) as usize];
            as_the_bound_has_it(width, &mut draw, most);
        }
    }
}

/// "A list [...] is whole when it leaves", and leaves when the one before it has left, whatever is asked for behind it.
#[test]
fn pc_3_a_list_in_hand_leaves_when_the_one_before_it_has_left() {
    const SIZE: u32 = 200_000;
    for width in widths() {
        // With a round trip of a unit, a list is as long as one receive.
        let mut rig = posted(width, 1000, 1, &[SIZE]);
        hold_all(&mut rig);
        rig.tell(3, SIZE, 1);
        rig.rest();
        rig.prove(3);
        (1..6).for_each(|n| rig.post(3, &[(at(n), SIZE)], n == 5));
        let paced = |commit| Post { size: Some(SIZE), commit, early: true };
        let hold = |rig: &mut Rig, recv: usize| {
            for _ in 0..4 {
                rig.now += 64;
                rig.rest();
            }
            let c = rig.open(3).into_iter().find(|c| c.recv == recv).expect("it was asked for");
            rig.answer(3, c.slot, MISS, 0);
            rig.rest();
            rig.answer(3, c.slot, ANSWERED, 0);
            for _ in 0..4 {
                rig.rest();
                rig.now += 64;
            }
        };
        // The second list is the builder's, the third waits for it; the next two are asked for.
        hold(&mut rig, 1);
        hold(&mut rig, 2);
        assert_eq!((rig.qps[&3].posts.clone(), asked(&rig)), (vec![paced(true), paced(true), paced(false)], 5));
        // Nothing becomes a credit of a list that waits.
        hold(&mut rig, 3);
        assert_eq!(rig.qps[&3].posts.len(), 3);
        rig.tell(3, SIZE, 1);
        rig.rest();
        let commit = Post { size: None, commit: true, early: true };
        assert_eq!(rig.qps[&3].posts[3..], [commit, paced(false)]);
    }
}

// ---- everything at once -------------------------------------------------------------------------

/// Receives of a QP.
const RECVS: usize = 50;

/// Builder, sender and wire of a QP: a list at a time, its data so long after it.
#[derive(Default)]
struct Peer {
    announced: usize,
    proven: usize,
    told: Option<u64>,
    round: u16,
    /// No list is sent.
    held: bool,
    over: bool,
}

impl Peer {
    fn step(&mut self, rig: &mut Rig, q: u32, far: u64, rate: f64) {
        let now = rig.cycle();
        let qp = &rig.qps[&q];
        if self.over {
            return;
        }
        if self.told.is_none() && qp.committed > self.announced && !self.held {
            let new = |(_, n): &(&usize, &usize)| (self.announced..qp.committed).contains(*n);
            let bytes = qp.credit_of.iter().filter(new).map(|(&r, _)| qp.recvs[r].size()).sum();
            self.announced = qp.committed;
            self.told = Some(now);
            rig.tell(q, bytes, self.round);
        } else if self.told.is_some_and(|at| now >= at + far) {
            self.round = (far / 64).max(1) as u16;
            self.proven = self.announced;
            self.told = None;
            rig.prove(q);
        } else if qp.credit_of.get(&qp.freed).is_some_and(|&n| n < self.proven) && rig.rng.chance(rate) {
            rig.complete(q);
        }
    }

    /// Credits whose data have come.
    fn used(&self, rig: &Rig, q: u32) -> usize {
        let qp = &rig.qps[&q];
        qp.credit_of.get(&qp.freed).map_or(qp.credits, |&n| n).min(self.announced)
    }
}

/// A receive: mostly of one range, some large, some scattered, some of nothing, some malformed.
fn post_any(rig: &mut Rig, q: u32, draw: &mut Rng) {
    let n = rig.qps[&q].recvs.len();
    let last = draw.chance(0.4) || n + 1 >= RECVS;
    let mut here = 0x7f00_0000_0000 + (n as u64 % 1000) * 16 * MIB + draw.below(MIB);
    let ranges = [1, 1, 1, 1, 2, 3, 7][draw.below(7) as usize];
    let most = [100, 5000, 70_000, 3 << 20][draw.below(4) as usize];
    let mut sges = Vec::new();
    for _ in 0..ranges {
        let len = draw.between(1, most / ranges) as u32;
        sges.push((here, len));
        here += u64::from(len) + draw.below(10_000);
    }
    match draw.below(20) {
        0 => rig.post_as(q, &[], last, true, false),
        1 => rig.post_as(q, &[], last, true, true),
        // A credit of no bytes, as there are in message mode.
        2 => rig.post(q, &[], last),
        _ => rig.post(q, &sges, last),
    }
}

/// One case of many: what `grant` checks holds whatever comes, and all receives complete in the end.
fn whatever_comes(width: u32, draw: &mut Rng) {
    let mut rig = Rig::new(width, draw.draw());
    rig.runs = true;
    rig.now = if draw.chance(0.5) { u32::MAX - 20 } else { draw.draw() as u32 };
    rig.stall = if draw.chance(0.5) { 0.0 } else { draw.below(60) as f64 / 100.0 };
    let chance = |draw: &mut Rng, of: &[f64]| of[draw.below(of.len() as u64) as usize];
    let host = Host {
        hit: chance(draw, &[0.0, 0.5, 1.0]),
        refuse: chance(draw, &[0.0, 0.0, 0.05]),
        service: draw.between(10, 3000),
    };
    rig.host = Some(host);
    let mut qs = vec![0, 3, 33, 63];
    qs.truncate(draw.between(1, 4) as usize);
    let mut peers: BTreeMap<u32, Peer> = qs.iter().map(|&q| (q, Peer::default())).collect();
    for &q in &qs {
        let limit = [0, 1, 5, 40, 300][draw.below(5) as usize];
        rig.start(q, limit, [0, 0, 1, 100][draw.below(4) as usize]);
    }
    let (far, rate) = (draw.between(50, 3000), chance(draw, &[0.01, 0.05, 0.3]));
    let commands = chance(draw, &[0.0, 0.001, 0.005]);
    let run = |rig: &mut Rig, peers: &mut BTreeMap<u32, Peer>, cycles: u64| {
        for _ in 0..cycles {
            peers.iter_mut().for_each(|(&q, peer)| peer.step(rig, q, far, rate));
            rig.step();
        }
    };
    let wait_until = |rig: &mut Rig, peers: &mut BTreeMap<u32, Peer>, q, what: &str| {
        for _ in 0..20_000 {
            run(rig, peers, 10);
            if !rig.query(q).going {
                return;
            }
        }
        panic!("{what} of QP {q} does not end");
    };
    let mut steps = 0;
    loop {
        steps += 1;
        // Where one page is asked for at a time, each may take 3000 clocks.
        assert!(steps < 3_000_000, "it does not end: {}", rig.state_of_all());
        run(&mut rig, &mut peers, 1);
        for &q in &qs {
            let qp = &rig.qps[&q];
            if qp.recvs.len() < RECVS && qp.recvs.len() - qp.freed < 36 && draw.chance(0.03) {
                (0..draw.between(1, 4)).for_each(|_| post_any(&mut rig, q, draw));
            }
        }
        if draw.chance(commands) && steps < 40_000 {
            let q = qs[draw.below(qs.len() as u64) as usize];
            let peer = peers.get_mut(&q).expect("a peer");
            match draw.below(8) {
                _ if peer.over => (),
                0..3 => {
                    if draw.chance(0.3) {
                        rig.command(Command::new(Op::Rest, q));
                        let wait = draw.below(2000);
                        run(&mut rig, &mut peers, wait);
                    }
                    rig.command(Command::new(Op::Squeeze, q));
                }
                3..6 => {
                    let recall = draw.chance(0.5);
                    peer.held = true;
                    rig.command(Command::new(if recall { Op::Hold } else { Op::Stop }, q));
                    let credits = rig.qps[&q].credits;
                    run(&mut rig, &mut peers, draw.below(3000));
                    let peer = peers.get_mut(&q).expect("a peer");
                    assert!(rig.qps[&q].credits <= credits + 1, "QP {q}: credits although it is held");
                    let used = peer.used(&rig, q) as u64;
                    let kept = if recall { draw.between(used, peer.announced as u64) as usize } else { peer.announced };
                    let op = if recall { Op::Void } else { Op::Unpost };
                    rig.command(Command { first: kept as u8, ..Command::new(op, q) });
                    (peer.announced, peer.proven) = (kept, peer.proven.min(kept));
                    if draw.chance(0.5) {
                        let recv = rig.qps[&q].recvs.len() as u16;
                        rig.command(Command { recv, ..Command::new(Op::Cancel, q) });
                    }
                    wait_until(&mut rig, &mut peers, q, "going back");
                    peers.get_mut(&q).expect("a peer").held = false;
                }
                6 => drop(rig.query(q)),
                _ => {
                    rig.command(Command { status: WC_FLUSHED, ..Command::new(Op::End, q) });
                    peer.over = true;
                    let wait = draw.below(2000);
                    run(&mut rig, &mut peers, wait);
                    rig.quiet(q);
                }
            }
        }
        let done = |q: &u32| rig.qps[q].recvs.len() >= RECVS && rig.qps[q].freed == rig.qps[q].recvs.len();
        if qs.iter().all(done) {
            break;
        }
    }
    rig.rest();
    for &q in &qs {
        assert_eq!((rig.held(q), rig.open(q).len()), (0, 0), "QP {q}: held in the end");
        let s = rig.query(q);
        let n = rig.qps[&q].recvs.len() as u16;
        assert_eq!((s.freed, s.granted, s.holds), (n, n, 0), "QP {q}");
        assert!(!s.queued && !s.going && !s.waits, "QP {q}: {s:?}");
    }
    rig.rest();
    assert!(!rig.busy());
    assert_eq!(rig.counted[2], 0, "an answer that was not asked for");
}

#[test]
fn receives_are_granted_in_order_and_given_back_once_whatever_comes() {
    let seed = seed(33);
    for width in widths() {
        for case in 0..cases() {
            println!("case {case}");
            whatever_comes(width, &mut Rng(mix(seed ^ 0xa11) ^ mix(case)));
        }
    }
}

// ---- refusals, commands -------------------------------------------------------------------------

/// Decision 20: it "completes with a protection error, is never announced, and later receives go on in order"; 19: one that
/// is larger than the budget with an error of its own. What it held goes back, whenever that came.
#[test]
fn decision_20_a_receive_that_is_refused_completes_in_its_turn_and_gives_back_what_it_held() {
    let statuses = [(OVER_BUDGET, WC_OVER_BUDGET), (NO_MEMORY, WC_NO_MEMORY), (1, WC_LOCAL_PROTECTION)];
    for width in widths() {
        for ((reason, status), refused) in statuses.into_iter().flat_map(|s| (0..4).map(move |n| (s, n))) {
            let mut rig = Rig::new(width, 1);
            rig.start(3, 0, 0);
            rig.post(3, &[(at(0), 9)], false);
            rig.post(3, &[0, 1, 2, 3].map(|k| (at(1) + 10_000 * k, PAGE)), false);
            rig.post(3, &[(at(2), 7)], true);
            rig.rest();
            // The newest first, the refused one last of all.
            let order = [5, 0, 4, 3, 2, 1].into_iter().filter(|&slot| slot != 1 + refused);
            for slot in order.chain([1 + refused]) {
                rig.answer(3, slot, MISS, 0);
                rig.rest();
                rig.answer(3, slot, ANSWERED, if slot == 1 + refused { reason } else { 0 });
                rig.rest();
            }
            // The credit before it is announced at once, and comes first. What lies behind the refused chunk goes back at
            // once, but for the last one, which waits for the receive's turn.
            let left = u64::from(refused) + u64::from(refused != 3);
            assert_eq!(rig.qps[&3].posts, [credit(9, false), Post { size: None, commit: true, early: false }]);
            assert_eq!(rig.held(3), 9 + 7 + u64::from(PAGE) * left);
            rig.complete(3);
            rig.rest();
            assert_eq!(rig.qps[&3].local, [(1, status)]);
            assert_eq!((rig.qps[&3].posts.last(), rig.held(3)), (Some(&credit(7, true)), 7));
        }
    }
}

/// A malformed receive ends a batch as any other; one of no bytes in message mode is a credit (decision 10).
#[test]
fn decision_10_a_receive_of_no_bytes_completes_by_itself_or_is_a_credit_of_0() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        rig.start(3, 1, 0);
        rig.post_as(3, &[], false, true, false);
        rig.post(3, &[], false);
        rig.post(3, &[(at(2), 5)], false);
        rig.post_as(3, &[], true, true, true);
        hold_all(&mut rig);
        assert_eq!(rig.qps[&3].local, [(0, 0)]);
        let end = Post { size: None, commit: true, early: false };
        assert_eq!(rig.qps[&3].posts, [credit(0, false), credit(5, false), end]);
        rig.complete(3);
        rig.complete(3);
        rig.rest();
        assert_eq!(rig.qps[&3].local, [(0, 0), (3, WC_BAD_WQE)]);
        assert_eq!(rig.query(3).freed, 4);
    }
}

/// Decision 21: "page answers come in any order, by tag"; one that was not asked for changes nothing and is counted.
#[test]
fn decision_21_an_answer_that_was_not_asked_for_is_counted_and_changes_nothing() {
    for width in widths() {
        let mut rig = posted(width, 0, 0, &[64, 64]);
        let strays = [(3, 0, 0), (3, 2, 0), (3, 1, NO_MEMORY), (9, 0, 0)];
        for (n, (q, slot, status)) in strays.into_iter().enumerate() {
            rig.answer(q, slot, ANSWERED, status);
            rig.rest();
            assert_eq!((rig.counted, rig.asks.len()), ([0, 0, n as u32 + 1], 2));
        }
        hold_all(&mut rig);
        assert_eq!((rig.counted, rig.qps[&3].committed), ([2, 2, 4], 2));
        assert!(!rig.busy());
    }
}

/// What a row says of itself, at each step of a receive.
#[test]
fn a_row_says_what_it_holds_asks_for_and_has_granted() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        rig.start(3, 0, 0);
        let says = |rig: &mut Rig| {
            let s = rig.query(3);
            (s.freed, s.granted, s.holds, s.waits, s.queued, s.going)
        };
        assert_eq!(says(&mut rig), (0, 0, 0, false, false, false));
        for n in 0..3 {
            rig.post(3, &[(at(n), 64)], n == 2);
        }
        rig.rest();
        assert_eq!(says(&mut rig), (0, 0, 3, true, false, false));
        rig.answer(3, 0, HELD, 0);
        rig.rest();
        assert_eq!(says(&mut rig), (0, 1, 3, true, false, false));
        hold_all(&mut rig);
        assert_eq!(says(&mut rig), (0, 3, 3, false, false, false));
        rig.complete(3);
        rig.rest();
        assert_eq!(says(&mut rig), (1, 3, 2, false, false, false));
        let look = rig.command(Command { recv: 2, sge: 1, ..Command::new(Op::Query, 3) });
        assert_eq!((look.first, look.ranges, look.sge), (2, 1, (at(1), 64)));
        // After the end: two receives wait for their completion, until nothing is written any more.
        rig.command(Command { status: WC_FLUSHED, ..Command::new(Op::End, 3) });
        rig.rest();
        assert_eq!(says(&mut rig), (1, 3, 2, false, true, false));
        rig.quiet(3);
        rig.rest();
        assert_eq!(rig.qps[&3].local, [(1, WC_FLUSHED), (2, WC_FLUSHED)]);
        // One that is posted later completes likewise; nothing is asked for.
        rig.post(3, &[(at(3), 64)], true);
        rig.rest();
        assert_eq!(rig.qps[&3].local[2..], [(3, WC_FLUSHED)]);
        assert_eq!((says(&mut rig), rig.asks.len()), ((4, 4, 0, false, false, false), 3));
    }
}

/// Revocation (decision 17): announced receives are marked, then let go of, once; only such as are not complete.
#[test]
fn decision_17_a_receive_whose_memory_is_gone_is_marked_and_let_go_of() {
    for width in widths() {
        let mut rig = posted(width, 0, 0, &[64; 4]);
        hold_all(&mut rig);
        rig.complete(3);
        rig.rest();
        for recv in [0, 2] {
            for op in [Op::Mark, Op::LetGo] {
                rig.command(Command { recv, ..Command::new(op, 3) });
                rig.rest();
            }
        }
        // {QP, credit, released, withdrawn, id}
        assert_eq!(rig.rings, [(3, 2, false, true, wr_id(3, 2)), (3, 2, true, true, wr_id(3, 2))]);
        assert_eq!(rig.held(3), 2 * 64);
        assert_eq!((rig.query(3).granted, rig.qps[&3].grant), (4, 4), "it stays a credit");
    }
}

/// Decision 19, recalls: nothing becomes a credit while it is held; then all from the first void credit on is granted anew.
#[test]
fn decision_19_void_credits_go_back_newest_first_and_are_granted_anew() {
    for width in widths() {
        for (hold, back) in [(Op::Hold, Op::Void), (Op::Stop, Op::Unpost)] {
            for kept in 0..5 {
                let mut rig = posted(width, 0, 0, &[64; 6]);
                for slot in [0, 1, 2, 3] {
                    rig.answer(3, slot, HELD, 0);
                    rig.rest();
                }
                rig.command(Command::new(hold, 3));
                rig.answer(3, 4, HELD, 0);
                rig.answer(3, 5, MISS, 0);
                rig.rest();
                assert_eq!(rig.qps[&3].credits, 4, "a credit although it is held");
                rig.command(Command { first: kept.min(4), ..Command::new(back, 3) });
                rig.rest();
                // The host works on one: nothing is asked for before it has answered.
                let kept = usize::from(kept.min(4));
                assert_eq!((rig.qps[&3].credits, rig.held(3), rig.asks.len()), (kept, 64 * kept as u64, 6));
                assert!(!rig.query(3).going, "what the host has not given yet is not waited for");
                rig.answer(3, 5, ANSWERED, 0);
                hold_all(&mut rig);
                assert_eq!((rig.qps[&3].credits, rig.qps[&3].committed), (6, 6));
                assert_eq!(rig.asks.len(), 6 + 6 - kept);
            }
        }
    }
}

/// Decision 19: what a recall gives back is there for others, until the row is told that it may ask again.
#[test]
fn pc_3_a_row_that_rests_asks_for_nothing() {
    for width in widths() {
        let mut rig = posted(width, 0, 0, &[64; 3]);
        for slot in 0..3 {
            rig.answer(3, slot, HELD, 0);
            rig.rest();
        }
        rig.command(Command::new(Op::Hold, 3));
        rig.command(Command::new(Op::Rest, 3));
        rig.command(Command { first: 1, ..Command::new(Op::Void, 3) });
        rig.rest();
        assert_eq!((rig.held(3), rig.asks.len()), (64, 3), "two go back, and are not asked for");
        assert_eq!(rig.query(3).holds, 1);
        rig.post(3, &[(at(3), 64)], true);
        rig.rest();
        assert_eq!(rig.asks.len(), 3);
        rig.command(Command::new(Op::Squeeze, 3));
        hold_all(&mut rig);
        assert_eq!((rig.held(3), rig.qps[&3].grant), (4 * 64, 4));
        // The end does not wait for it.
        rig.command(Command::new(Op::Rest, 3));
        rig.post(3, &[(at(4), 64)], false);
        rig.post(3, &[(at(5), 64)], true);
        rig.rest();
        assert_eq!(rig.open(3).len(), 0);
        rig.command(Command { status: WC_FLUSHED, ..Command::new(Op::End, 3) });
        rig.quiet(3);
        rig.rest();
        assert_eq!((rig.held(3), rig.qps[&3].freed), (0, 6));
    }
}

/// What is no credit goes back to the program, whatever was asked for it; what is posted later is granted as ever.
#[test]
fn receives_that_are_no_credits_complete_as_recalled_in_their_turn() {
    for width in widths() {
        for kept in 0..4 {
            let mut rig = posted(width, 0, 0, &[64; 6]);
            for slot in [0, 1, 2, 4] {
                rig.answer(3, slot, HELD, 0);
                rig.rest();
            }
            rig.answer(3, 3, MISS, 0);
            rig.rest();
            assert_eq!(rig.qps[&3].credits, 3);
            rig.command(Command::new(Op::Hold, 3));
            rig.command(Command::new(Op::Rest, 3));
            rig.command(Command { first: kept, ..Command::new(Op::Void, 3) });
            rig.command(Command { recv: 6, ..Command::new(Op::Cancel, 3) });
            rig.post(3, &[(at(6), 64)], true);
            rig.rest();
            // The table and the host answer what they were asked before.
            let kept = usize::from(kept);
            assert_eq!((rig.held(3), rig.asks.len(), rig.qps[&3].local.len()), (64 * kept as u64, 6, 0));
            rig.answer(3, 3, ANSWERED, 0);
            rig.rest();
            rig.answer(3, 5, HELD, 0);
            rig.rest();
            for n in 0..kept {
                assert_eq!(rig.qps[&3].local, [], "not before the credits that are left: {n}");
                rig.complete(3);
                rig.rest();
            }
            let all: Vec<_> = (kept..6).map(|n| (n, WC_RECALLED)).collect();
            assert_eq!(rig.qps[&3].local, all);
            hold_all(&mut rig);
            assert_eq!((rig.asks.len(), rig.qps[&3].credits, rig.held(3)), (7, kept + 1, 64));
            // All before this number are complete, or a credit.
            for recv in [0, 6, 7] {
                rig.command(Command { recv, ..Command::new(Op::Cancel, 3) });
                hold_all(&mut rig);
            }
            assert_eq!((rig.qps[&3].local.len(), rig.qps[&3].grant, rig.held(3)), (all.len(), 7, 64));
        }
    }
}

/// PC-3, pressure: what is granted is announced, what is held ahead of the first that waits goes back, and "only that one is
/// asked for until it is granted".
#[test]
fn pc_3_when_memory_is_short_only_the_oldest_is_asked_for() {
    for width in widths() {
        let mut rig = posted(width, 0, 0, &[64; 6]);
        for slot in [0, 1, 3, 5] {
            rig.answer(3, slot, HELD, 0);
            rig.rest();
        }
        rig.answer(3, 2, MISS, 0);
        rig.answer(3, 4, MISS, 0);
        rig.rest();
        rig.command(Command::new(Op::Squeeze, 3));
        rig.rest();
        assert_eq!((rig.qps[&3].committed, rig.held(3), rig.asks.len()), (2, 128, 6));
        for slot in [2, 4] {
            rig.answer(3, slot, ANSWERED, NO_MEMORY);
            rig.rest();
        }
        let third = rig.open(3);
        assert_eq!((third.len(), third[0].recv, rig.asks.len()), (1, 2, 7));
        rig.answer(3, third[0].slot, HELD, 0);
        rig.rest();
        assert_eq!((rig.qps[&3].committed, rig.asks.len()), (3, 10), "then as before");
        hold_all(&mut rig);
        assert_eq!(rig.qps[&3].committed, 6);
    }
}
