// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_builder` alone: when a list goes, what it says, how it is repeated until its proof (CR-1, CR-4, CR-5, CR-11,
//! decisions 5, 6, 19), and what is measured and told beside it. `builder` has what is around it and checks all of that in
//! each clock.
#![cfg(feature = "fastpath")]

mod builder;

use berth_abi::rows::recv;
use berth_random::{Rng, mix, seed};
use berth_rtl_unit::{Module, Op};
use builder::{Command, Landed, List, Post, QPS, Rig};

/// Cases of a test: four for each that others have, as they are short.
fn cases() -> u64 {
    4 * berth_random::cases(8)
}

fn widths() -> Vec<u32> {
    // No port is as wide as the card's data.
    Module::widths("berth_fp_builder").into_iter().take(1).collect()
}

/// QP 5, started so.
fn one(width: u32, start: Command) -> Rig {
    let mut rig = Rig::new(width, 1);
    rig.command(start);
    rig.rest();
    rig
}

fn start() -> Command {
    Command::new(Op::Start, 5)
}

fn ask(op: Op) -> Command {
    Command::new(op, 5)
}

/// One more piece of QP 5 has come.
fn land(rig: &mut Rig) {
    rig.land(5);
    rig.rest();
}

/// A batch of so many credits of QP 5.
fn batch(rig: &mut Rig, n: u32) {
    let from = rig.qps[&5].posted();
    rig.batch(5, &(from..from + n).map(|k| 0x0102_0304 * (k + 1)).collect::<Vec<_>>());
    rig.rest();
}

/// (first credit, how many, for the first time) of all lists so far.
fn lists(rig: &Rig) -> Vec<(u32, usize, bool)> {
    rig.lists.iter().map(|l| (l.first, l.sizes.len(), l.new)).collect()
}

/// Lets so much time pass, unit by unit, each long enough for all timers.
fn pass(rig: &mut Rig, units: u32) {
    for _ in 0..units {
        rig.now += 1;
        rig.rest();
    }
}

// ---- a maximum bandwidth --------------------------------------------------------------------------

/// QP 5 with a maximum of so many bytes in a unit and at once, and a batch of credits of `sizes` bytes.
fn capped(width: u32, rate: u32, burst: u32, sizes: &[u32]) -> Rig {
    let mut rig = one(width, start());
    rig.cap(5, 256 * rate, burst);
    rig.batch(5, sizes);
    rig.rest();
    rig
}

/// Data come for the next credit, and fill so much of it.
fn fill(rig: &mut Rig, filled: u32) {
    land(rig);
    rig.complete(5, filled);
    rig.rest();
}

fn announced(rig: &Rig) -> u32 {
    rig.qps[&5].announced()
}

#[test]
fn cr_10_credits_are_withheld_until_they_fit_what_has_been_saved() {
    for width in widths() {
        let mut rig = capped(width, 10, 100, &[40; 5]);
        assert_eq!(lists(&rig), [(0, 2, true)], "80 of 100 bytes");
        rig.hurry = true;
        pass(&mut rig, 50);
        assert_eq!(announced(&rig), 2, "while they are out, no more than 20 is saved");
        assert_eq!(rig.dues[&5], None);
        fill(&mut rig, 40);
        assert!([Some(1), Some(2)].contains(&rig.dues[&5]), "{:?}: two units are left", rig.dues);
        pass(&mut rig, 1);
        assert_eq!(rig.dues[&5], Some(1));
        assert_eq!(announced(&rig), 2, "30 bytes");
        pass(&mut rig, 1);
        assert_eq!(announced(&rig), 3, "40 bytes");
        fill(&mut rig, 40);
        fill(&mut rig, 40);
        pass(&mut rig, 3);
        assert_eq!(announced(&rig), 3);
        pass(&mut rig, 1);
        assert_eq!(announced(&rig), 4);
        // Longer than it takes to save the burst.
        fill(&mut rig, 40);
        pass(&mut rig, 100);
        rig.batch(5, &[40; 5]);
        rig.rest();
        assert_eq!(announced(&rig), 5);
        land(&mut rig);
        assert_eq!(announced(&rig), 6, "40 of 100 bytes were out");
    }
}

#[test]
fn cr_10_bytes_that_are_not_used_come_back() {
    for width in widths() {
        let mut rig = capped(width, 1, 100, &[50; 6]);
        assert_eq!(announced(&rig), 2);
        fill(&mut rig, 10);
        assert_eq!(announced(&rig), 2, "40 bytes");
        fill(&mut rig, 40);
        assert_eq!(announced(&rig), 3, "50 bytes");
    }
}

#[test]
fn cr_10_a_credit_that_is_larger_than_the_burst_goes_alone_and_is_paid_for() {
    for width in widths() {
        let mut rig = capped(width, 10, 100, &[250, 50, 250]);
        assert_eq!(lists(&rig), [(0, 1, true)]);
        fill(&mut rig, 250);
        pass(&mut rig, 19);
        assert_eq!(announced(&rig), 1, "40 bytes are saved");
        pass(&mut rig, 1);
        assert_eq!(announced(&rig), 2);
        pass(&mut rig, 50);
        fill(&mut rig, 50);
        assert_eq!(announced(&rig), 2, "the whole burst must be saved");
        pass(&mut rig, 5);
        assert_eq!(announced(&rig), 3);
    }
}

#[test]
fn cr_10_a_maximum_may_come_later_change_and_end() {
    for width in widths() {
        let mut rig = one(width, start());
        rig.batch(5, &[40; 3]);
        rig.rest();
        rig.batch(5, &[40; 4]);
        rig.rest();
        // What is in no list yet is withheld, too.
        rig.cap(5, 256, 150);
        rig.batch(5, &[40; 5]);
        land(&mut rig);
        assert_eq!(announced(&rig), 3, "120 bytes are out already");
        rig.complete(5, 40);
        rig.cap(5, 256, 200);
        rig.rest();
        assert_eq!(announced(&rig), 3, "30 bytes had been saved");
        pass(&mut rig, 100);
        (0..3).for_each(|_| land(&mut rig));
        assert_eq!(announced(&rig), 6, "80 of 200 bytes were out");
        // A lower one.
        (0..3).for_each(|_| rig.complete(5, 40));
        rig.cap(5, 256, 130);
        land(&mut rig);
        pass(&mut rig, 39);
        assert_eq!(announced(&rig), 6, "39 bytes");
        pass(&mut rig, 1);
        assert_eq!(announced(&rig), 7, "40 bytes");
        (0..2).for_each(|_| land(&mut rig));
        rig.cap(5, 0, 0);
        rig.rest();
        assert_eq!(announced(&rig), 12);
    }
}

#[test]
fn cr_10_what_is_taken_back_is_not_paid_for() {
    for width in widths() {
        let mut rig = capped(width, 1, 100, &[50; 6]);
        fill(&mut rig, 50);
        assert_eq!(rig.command(Command { first: 1, ..ask(Op::Hold) }), (2, 1));
        rig.command(Command { first: 1, ..ask(Op::Void) });
        rig.batch(5, &[50; 6]);
        rig.rest();
        assert_eq!(announced(&rig), 2, "50 of 100 bytes have been used");
        pass(&mut rig, 49);
        fill(&mut rig, 0);
        assert_eq!(announced(&rig), 3);
    }
}

/// Random loads: the bench compares each list with the model's maximum. Nothing is withheld for ever.
#[test]
fn cr_10_no_sender_is_let_send_more_than_its_maximum() {
    let seed = seed(77);
    for width in widths() {
        for case in 0..berth_random::cases(8) {
            println!("case {case}");
            let mut draw = Rng(mix(seed ^ 0xca9) ^ mix(case));
            let mut rig = Rig::new(width, draw.draw());
            rig.now = u64::from(if draw.chance(0.5) { u32::MAX - 40 } else { draw.draw() as u32 });
            rig.stall = draw.below(60) as f64 / 100.0;
            let qs = [3, 5, QPS - 1];
            for q in qs {
                rig.command(Command { foreign: false, repeat: 0, ..any_start(q, &mut draw) });
                if q != 3 {
                    let rate = draw.between(256, 1 << 16) as u32;
                    rig.cap(q, rate, draw.between(1, 40_000) as u32);
                }
            }
            for _ in 0..150 {
                let q = qs[draw.below(3) as usize];
                match draw.below(12) {
                    0..4 if rig.places(q) > 30 => {
                        let sizes: Vec<u32> = (0..draw.between(1, 9)).map(|_| 1 << draw.below(15)).collect();
                        rig.batch(q, &sizes);
                    }
                    4..8 if rig.out(q) > 0 => rig.landed(any_piece(q, true, &mut draw)),
                    8..10 if rig.open(q) > 0 => {
                        let filled = draw.between(0, rig.open_size(q).into()) as u32;
                        rig.complete(q, filled);
                    }
                    10 => {
                        let now = rig.now + draw.between(1, 300);
                        rig.at(now);
                    }
                    11 if q != 3 && draw.chance(0.2) => {
                        rig.cap(q, draw.between(256, 1 << 16) as u32, draw.between(1, 40_000) as u32);
                    }
                    11 if draw.chance(0.1) => {
                        let (from, to) = (rig.qps[&q].landed(), rig.qps[&q].announced());
                        rig.command(Command::new(Op::Hold, q));
                        let first = draw.between(from.into(), to.into()) as u32;
                        rig.command(Command { first, ..Command::new(Op::Void, q) });
                    }
                    _ => (),
                }
                rig.rest();
            }
            rig.stall = 0.0;
            for q in qs {
                let mut rounds = 0;
                while rig.qps[&q].posted() != rig.qps[&q].landed() || rig.open(q) > 0 {
                    while rig.out(q) > 0 {
                        rig.land(q);
                        rig.rest();
                    }
                    while rig.open(q) > 0 {
                        let size = rig.open_size(q);
                        rig.complete(q, size);
                        rig.rest();
                    }
                    let now = rig.now + 1000;
                    rig.at(now);
                    rig.rest();
                    rounds += 1;
                    assert!(rounds < 5000, "QP {q}: credits are withheld for ever");
                }
            }
        }
    }
}

// ---- lists --------------------------------------------------------------------------------------

/// Decision 5: a batch is announced as a whole, in one list if that is long enough; an end of a batch that is no credit
/// announces those before it.
#[test]
fn decision_5_credits_are_announced_when_their_batch_ends() {
    for width in widths() {
        let mut rig = one(width, start());
        let post = |size, commit| Post { q: 5, size, commit, early: false };
        for size in 1..=3 {
            rig.post(post(Some(size), false));
            rig.rest();
        }
        assert!(rig.lists.is_empty());
        rig.post(post(None, true));
        rig.rest();
        assert_eq!(lists(&rig), [(0, 3, true)]);
        // An end with nothing before it.
        rig.post(post(None, true));
        rig.post(post(Some(4), true));
        rig.rest();
        assert_eq!(rig.command(ask(Op::Query)), (3, 0));
        land(&mut rig);
        assert_eq!(lists(&rig)[1..], [(3, 1, true)]);
        assert_eq!(rig.command(ask(Op::Query)), (4, 1));
    }
}

/// CR-4: at most as many credits as the row says, and the rest with the lists after it. Sizes go two at a time, from an even
/// or an odd number on; 64 of them in 33 clocks.
#[test]
fn cr_4_a_list_has_at_most_as_many_credits_as_the_row_allows() {
    for width in widths() {
        for max_list in [1, 2, 3, 7, 32, 61, 63, 64] {
            let mut rig = one(width, Command { max_list, ..start() });
            let posted = if max_list < 4 { 20 } else { 128 };
            batch(&mut rig, posted);
            while rig.out(5) > 0 {
                land(&mut rig);
            }
            let max = u32::from(max_list);
            let wanted: Vec<_> =
                (0..posted).step_by(max_list.into()).map(|n| (n, max.min(posted - n) as usize, true)).collect();
            assert_eq!(lists(&rig), wanted, "lists of {max_list}");
            for l in &rig.lists {
                assert_eq!(l.at.1 - l.at.0, (l.sizes.len() as u64).div_ceil(2), "clocks of {l:?}");
            }
        }
    }
}

/// CR-5 and CR-11: the next list goes when the data of the trigger's buffer have come, and not before; an adaptive trigger is
/// the first buffer of lists that last no longer than the next one takes to come (CR-6).
#[test]
fn cr_5_the_next_list_goes_with_the_triggers_buffer() {
    for width in widths() {
        for (trigger, index, early, n, wanted) in [
            (0, 9, false, 6, 1),
            (1, 0, false, 6, 6),
            (1, 0, true, 1, 1),
            (2, 0, false, 6, 1),
            (2, 4, false, 6, 5),
            (2, 5, true, 6, 6),
            (2, 6, false, 6, 6),
            (2, 255, false, 6, 6),
            (2, 0x43, false, 64, 64),
            (2, 62, false, 64, 63),
            (3, 3, false, 6, 4),
            (3, 200, false, 6, 6),
            (3, 3, true, 6, 1),
            (4, 0, false, 8, 1),
            (4, 1, false, 8, 3),
            (4, 2, false, 9, 5),
            (4, 3, false, 64, 49),
            (4, 3, false, 1, 1),
            (4, 7, false, 8, 7),
            (4, 3, true, 8, 1),
            (5, 0, false, 6, 6),
            (5, 2, false, 6, 4),
            (5, 5, false, 6, 1),
            (5, 200, false, 64, 1),
            (5, 2, true, 6, 1),
        ] {
            let mut rig = one(width, Command { trigger, index, ..start() });
            for k in 0..n {
                rig.post(Post { q: 5, size: Some(k), commit: k + 1 == n, early });
            }
            rig.rest();
            batch(&mut rig, 2);
            let mut landed = 0;
            while rig.lists.len() < 2 {
                assert_eq!(rig.proofs, 0);
                land(&mut rig);
                landed += 1;
            }
            assert_eq!((landed, rig.proofs), (wanted, 1), "{trigger} {index} {early}");
        }
    }
}

/// CR-6, CR-9: what is told while lists go counts for those to come; the first buffer counts at once.
#[test]
fn cr_6_another_trigger_counts_from_the_next_list_on_and_the_first_buffer_at_once() {
    for width in widths() {
        let mut rig = one(width, Command { trigger: 1, ..start() });
        batch(&mut rig, 4);
        batch(&mut rig, 4);
        land(&mut rig);
        rig.command(Command { op: Op::Lists, trigger: 4, index: 2, ..start() });
        (0..2).for_each(|_| land(&mut rig));
        assert_eq!((lists(&rig).len(), rig.proofs), (1, 0), "the last list keeps its trigger");
        land(&mut rig);
        assert_eq!((lists(&rig)[1..].to_vec(), rig.proofs), (vec![(4, 4, true)], 1));
        batch(&mut rig, 4);
        (0..2).for_each(|_| land(&mut rig));
        assert_eq!(rig.lists.len(), 2);
        land(&mut rig);
        assert_eq!(lists(&rig)[2..], [(8, 4, true)]);
        // The proof has come or not.
        for landed in [0, 1] {
            let mut rig = one(width, Command { trigger: 1, ..start() });
            batch(&mut rig, 4);
            batch(&mut rig, 4);
            (0..landed).for_each(|_| land(&mut rig));
            rig.command(Command { op: Op::Lists, trigger: 0, ..start() });
            rig.rest();
            assert_eq!(rig.lists.len(), 1 + landed);
            land(&mut rig);
            assert_eq!(rig.lists.len(), 2);
        }
    }
}

/// CR-7, CR-8: a list waits for its time, unless the sender has no credits; a time that has passed does not come again.
#[test]
fn cr_7_a_list_waits_for_its_time_while_the_sender_has_credits() {
    for width in widths() {
        for begin in [0, u64::from(u32::MAX) - 4] {
            let mut rig = one(width, start());
            (rig.hurry, rig.now) = (true, begin);
            batch(&mut rig, 4);
            batch(&mut rig, 4);
            rig.command(Command { op: Op::Lists, due: Some(begin + 9), ..start() });
            land(&mut rig);
            pass(&mut rig, 8);
            assert_eq!((rig.lists.len(), rig.proofs), (1, 1));
            pass(&mut rig, 1);
            assert_eq!(lists(&rig)[1..], [(4, 4, true)]);
            // Half of the clock's range later it is no time to come.
            rig.at(begin + (1 << 31) + 20);
            rig.rest();
            batch(&mut rig, 4);
            (0..4).for_each(|_| land(&mut rig));
            assert_eq!(lists(&rig)[2..], [(8, 4, true)]);
            // Without credits.
            rig.command(Command { op: Op::Lists, due: Some(rig.now + 1000), ..start() });
            (0..3).for_each(|_| land(&mut rig));
            batch(&mut rig, 2);
            (0..3).for_each(|_| land(&mut rig));
            assert_eq!(rig.lists.len(), 3);
            land(&mut rig);
            assert_eq!(lists(&rig)[3..], [(12, 2, true)]);
            // Another command ends it.
            batch(&mut rig, 2);
            land(&mut rig);
            assert_eq!(rig.lists.len(), 4);
            rig.command(Command { op: Op::Lists, ..start() });
            rig.rest();
            assert_eq!(lists(&rig)[4..], [(14, 2, true)]);
        }
    }
}

/// CR-6 to CR-9: the proof of each list comes with a report of how credits were used. The bench compares it with the
/// protocol's meter; counts and times end at the largest that fit.
#[test]
fn cr_9_each_proof_comes_with_a_report_of_how_credits_are_used() {
    let said = |begins, said| Landed { q: 5, begins, said };
    for width in widths() {
        let mut rig = one(width, Command { trigger: 1, ..start() });
        rig.now = u64::from(u32::MAX - 30);
        // (gaps, their sum), (lead, longest), (left, outstanding, covered, waited, dry)
        let seen = |rig: &Rig| {
            let (_, [gaps, times, used]) = rig.uses[rig.uses.len() - 1];
            let (gaps, used) = (recv::Gaps::from_word(gaps), recv::Use::from_word(used));
            let flags = [used.covered, used.waited, used.dry];
            ((gaps.count, gaps.sum), (times, used.left, used.outstanding), flags)
        };
        let lead = |lead: u32, longest: u32| recv::Times { led: 1, longest, lead }.word();
        rig.batch(5, &[100, 200, 300]);
        rig.rest();
        rig.at(rig.now + 20);
        rig.landed(said(true, Some(501)));
        rig.rest();
        assert_eq!(seen(&rig), ((0, 0), (lead(20, 0), 0, 2), [0, 0, 0]), "501 bytes do not fit 200 and 300");
        rig.batch(5, &[1, 2]);
        rig.at(rig.now + 30);
        land(&mut rig);
        // The last packet of that piece.
        rig.landed(said(false, Some(2)));
        rig.rest();
        rig.at(rig.now + 5);
        land(&mut rig);
        assert_eq!(rig.uses.len(), 1);
        rig.at(rig.now + 70_000);
        land(&mut rig);
        assert_eq!(seen(&rig), ((2, 35), (lead(0xffff, 30), 0, 1), [1, 1, 1]), "it ran dry, and 2 bytes fit");
        // Nothing is left to be sent; a time that is too long.
        rig.batch(5, &[7; 4]);
        rig.landed(said(false, Some(0)));
        rig.rest();
        rig.at(rig.now + (1 << 25));
        land(&mut rig);
        land(&mut rig);
        assert_eq!(seen(&rig), ((1, 0xff_ffff), (lead(0, 0x7fff), 0, 3), [1, 0, 0]));
        // Credits that are taken back are forgotten, but not what the sender has to send.
        rig.at(rig.now + 9);
        land(&mut rig);
        rig.command(Command { first: rig.qps[&5].landed(), ..ask(Op::Void) });
        batch(&mut rig, 2);
        rig.at(rig.now + 3);
        land(&mut rig);
        assert_eq!(seen(&rig), ((0, 0), (lead(3, 0), 0, 1), [1, 0, 0]));
        // Another mode, another wish.
        for (told, stream) in [(false, true), (true, false)] {
            let mut rig = one(width, Command { told, stream, ..start() });
            batch(&mut rig, 2);
            rig.landed(said(true, Some(0)));
            rig.rest();
            assert_eq!(rig.uses.len(), usize::from(told));
            assert!(!told || seen(&rig).2 == [0, 0, 0], "an immediate of the program says nothing");
        }
    }
}

/// CR-4: more than `few` new credits, or no more than that out.
#[test]
fn cr_4_few_new_credits_wait_while_more_are_out() {
    for width in widths() {
        for (few, first, later, wanted) in
            [(3, 6, 3, 3), (3, 6, 4, 1), (3, 3, 1, 1), (0, 3, 1, 1), (127, 5, 1, 1), (5, 9, 1, 4)]
        {
            let mut rig = one(width, Command { few, ..start() });
            batch(&mut rig, first);
            batch(&mut rig, later);
            let mut landed = 0;
            while rig.lists.len() < 2 {
                land(&mut rig);
                landed += 1;
            }
            assert_eq!(landed, wanted, "few {few}, {first} out, {later} new");
        }
        // A batch that comes when the proof has come.
        let mut rig = one(width, Command { few: 3, ..start() });
        batch(&mut rig, 9);
        land(&mut rig);
        batch(&mut rig, 3);
        assert_eq!(rig.lists.len(), 1);
        batch(&mut rig, 1);
        assert_eq!(lists(&rig)[1..], [(9, 4, true)]);
    }
}

/// Where a list finds no room, it waits, and so do repeats; it goes as soon as there is some.
#[test]
fn a_list_waits_for_room() {
    for width in widths() {
        let mut rig = one(width, Command { repeat: 2, ..start() });
        rig.hurry = true;
        rig.room = false;
        batch(&mut rig, 3);
        assert!(rig.lists.is_empty());
        rig.room = true;
        assert!(rig.lists_told(1) <= 10);
        rig.rest();
        rig.room = false;
        pass(&mut rig, 5);
        assert_eq!(rig.lists.len(), 1);
        rig.room = true;
        rig.rest();
        assert_eq!(lists(&rig)[1..], [(0, 3, false)]);
        // What happens meanwhile counts: it may not go any more.
        for (few, op) in [(0, Op::Hold), (0, Op::End), (3, Op::Unpost)] {
            let mut rig = one(width, Command { few, ..start() });
            batch(&mut rig, 6);
            land(&mut rig);
            rig.room = false;
            batch(&mut rig, 4);
            rig.command(ask(op));
            if op == Op::Unpost {
                batch(&mut rig, 3);
            }
            rig.room = true;
            rig.rest();
            assert_eq!(rig.lists.len(), 1, "{op:?}");
        }
    }
}

/// One operation starts in each clock, of one QP in every second one, whatever waits; and a list of one credit has left
/// eight clocks after its batch's end.
#[test]
fn an_operation_takes_one_clock_and_of_one_qp_two() {
    for width in widths() {
        for qps in [1, 2] {
            let mut rig = Rig::new(width, 1);
            for q in 0..qps {
                rig.command(Command::new(Op::Start, q));
            }
            let clocks = |rig: &mut Rig| {
                let from = rig.cycle;
                while !rig.idle() {
                    rig.step();
                }
                rig.cycle - from
            };
            for q in (0..60).flat_map(|_| 0..qps) {
                rig.post(Post { q, size: Some(1), commit: false, early: false });
            }
            let posts = clocks(&mut rig);
            (0..qps).for_each(|q| rig.batch(q, &[7]));
            rig.rest();
            for q in (0..60).flat_map(|_| 0..qps) {
                rig.land(q);
            }
            let landings = clocks(&mut rig);
            assert!(posts.max(landings) <= 120 + 12, "{qps} QPs: {posts} clocks for posts, {landings} for landings");
            rig.rest();
        }
        let mut rig = one(width, start());
        rig.batch(5, &[9]);
        let clocks = rig.lists_told(1);
        assert!(clocks <= 8, "{clocks} clocks");
        // Operations of other QPs do not hold it up for long.
        let mut rig = one(width, start());
        for q in [6, 7] {
            rig.command(Command::new(Op::Start, q));
            rig.batch(q, &[7; 64]);
        }
        rig.rest();
        (0..60).flat_map(|_| [6, 7]).for_each(|q| rig.land(q));
        rig.batch(5, &[9]);
        rig.rest();
        assert_eq!(rig.lists[2].q, 5);
    }
}

// ---- repeats ------------------------------------------------------------------------------------

/// Decision 6: a list is told again when its time is over, and again, until data for its first credit have come; the same
/// list, whatever was posted since. The time is counted from when it was told last.
#[test]
fn decision_6_a_list_is_told_again_until_its_proof_comes() {
    for width in widths() {
        for repeat in [1, 2, 7] {
            let mut rig = one(width, Command { repeat, trigger: 1, max_list: 5, ..start() });
            rig.hurry = true;
            rig.now = u64::from(u32::MAX - 9);
            batch(&mut rig, 7);
            let mut wanted = vec![(0, 5, true)];
            for _ in 0..3 {
                pass(&mut rig, u32::from(repeat) - 1);
                assert_eq!(lists(&rig), wanted);
                pass(&mut rig, 1);
                wanted.push((0, 5, false));
                assert_eq!(lists(&rig), wanted);
                batch(&mut rig, 1);
            }
            // The proof: no repeat, though the trigger's data are to come.
            land(&mut rig);
            pass(&mut rig, 3 * u32::from(repeat));
            assert_eq!((lists(&rig), rig.proofs), (wanted.clone(), 0));
            (0..4).for_each(|_| land(&mut rig));
            wanted.push((5, 5, true));
            assert_eq!((lists(&rig), rig.proofs), (wanted.clone(), 1));
            pass(&mut rig, u32::from(repeat));
            wanted.push((5, 5, false));
            assert_eq!(lists(&rig), wanted);
        }
        // Never.
        let mut rig = one(width, start());
        rig.hurry = true;
        batch(&mut rig, 7);
        rig.now += 1 << 20;
        rig.rest();
        assert_eq!(lists(&rig), [(0, 7, true)]);
    }
}

/// A list that is lost is told again after two of the shortest round trips, then after twice as long each time; never
/// sooner than the floor, nor later than the row's time.
#[test]
fn f11_a_list_is_told_again_after_two_round_trips_and_then_twice_as_late_each_time() {
    for width in widths() {
        for (round, pauses) in [
            (300, [600, 1200, 2400, 4800, 5000, 5000]),
            (10, [128, 256, 512, 1024, 2048, 4096]),
            (64, [128, 256, 512, 1024, 2048, 4096]),
            (4000, [5000; 6]),
        ] {
            let mut rig = one(width, Command { repeat: 5000, ..start() });
            rig.hurry = true;
            // As long as no round trip is known only the row's time counts.
            batch(&mut rig, 1);
            pass(&mut rig, round);
            land(&mut rig);
            assert_eq!(rig.proofs, 1);
            batch(&mut rig, 3);
            let mut told = rig.lists.len();
            for pause in pauses {
                pass(&mut rig, pause - 1);
                assert_eq!(rig.lists.len(), told, "round trip {round}: too early");
                pass(&mut rig, 1);
                told += 1;
                assert_eq!(rig.lists.len(), told, "round trip {round}: {pause} have passed");
            }
        }
    }
}

/// A timer is looked at in every 16th clock, one QP after the other from the first one on, or, for simulation, all the time;
/// then the QP is told whose runs, and until when.
#[test]
fn timers_are_looked_at_in_turn() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        for q in [0, 3] {
            rig.command(Command { repeat: 1000, ..Command::new(Op::Start, q) });
            rig.batch(q, &[1]);
        }
        while rig.sweeps.len() < 2 * QPS as usize {
            rig.step();
        }
        // After the reset, and then.
        assert_eq!(rig.sweeps[0].0, 17);
        assert!(rig.sweeps.windows(2).all(|w| w[1].0 - w[0].0 == 16), "{:?}", rig.sweeps);
        let on: Vec<_> = (0..).zip(&rig.sweeps).filter(|(_, s)| s.1).map(|(n, _)| n).collect();
        assert_eq!(on, [0, 3, 64, 67]);
        // Each repeat goes when its timer is looked at, and once.
        rig.now += 1000;
        rig.hurry = true;
        rig.rest();
        let mut again: Vec<_> = rig.lists[2..].iter().map(|l| (l.q, l.new)).collect();
        again.sort();
        assert_eq!(again, [(0, false), (3, false)]);
        let from = rig.sweeps.len();
        (0..4 * QPS).for_each(|_| rig.step());
        assert!(rig.sweeps.len() - from >= 2 * QPS as usize - 1, "{} looks", rig.sweeps.len() - from);
        // A list that is being told holds them up.
        rig.stall = 1.0;
        rig.now += 1000;
        (0..4 * QPS).for_each(|_| rig.step());
        let from = rig.sweeps.len();
        (0..4 * QPS).for_each(|_| rig.step());
        assert_eq!(rig.sweeps.len(), from);
        rig.stall = 0.0;
        rig.rest();
    }
}

// ---- what is told beside them -------------------------------------------------------------------

/// The shortest time from a list to its proof: at least a unit, at most 65535; it grows by a 2048th with each list, so that
/// one that was short once is forgotten. Of a list that is told again it counts from the first time. The bench compares it.
#[test]
fn pc_3_the_shortest_time_from_a_list_to_its_proof_is_told_with_the_next_one() {
    for width in widths() {
        for (times, told) in [
            (&[0, 5, 5][..], &[0, 1, 1][..]),
            (&[5, 3, 9, 1], &[0, 5, 3, 3]),
            (&[2047, 5000, 5000, 5000], &[0, 2047, 2047, 2048]),
            (&[65534, 1 << 31, 1 << 31], &[0, 65534, 65534]),
            (&[65535, 70_000, 65_536, 10], &[0, 65535, 65535, 65535]),
            (&[70_000, 65_020, 65_100, 65_100], &[0, 65535, 65020, 65051]),
            (&[1 << 20, 65_024, 65_600, 65_600, 65_023], &[0, 65535, 65024, 65024, 65024]),
        ] {
            for repeat in [0, 2] {
                let mut rig = one(width, Command { repeat, ..start() });
                rig.now = u64::from(u32::MAX - 3);
                let mut seen = Vec::new();
                for &time in times {
                    batch(&mut rig, 1);
                    seen.push(rig.round(5));
                    if repeat != 0 && time > 4 {
                        // Twice meanwhile.
                        rig.hurry = true;
                        for _ in 0..2 {
                            rig.now += 2;
                            rig.rest();
                        }
                        rig.hurry = false;
                        rig.now -= 4;
                    }
                    rig.now += time;
                    land(&mut rig);
                }
                assert_eq!(seen, told, "{times:?}");
            }
        }
    }
}

/// What a process has is told when it changes: with a list, where there are none with what is committed, and when asked.
#[test]
fn a_foreign_peer_may_use_at_once_what_is_committed() {
    for width in widths() {
        let mut rig = one(width, Command { foreign: true, ..start() });
        rig.post(Post { q: 5, size: Some(1), commit: false, early: false });
        rig.rest();
        assert_eq!(rig.qps[&5].announced(), 0);
        rig.post(Post { q: 5, size: Some(1), commit: true, early: false });
        rig.rest();
        assert_eq!(rig.qps[&5].announced(), 2);
        batch(&mut rig, 5);
        rig.land(5);
        rig.rest();
        assert_eq!((rig.command(ask(Op::Query)), rig.lists.len()), ((7, 1), 0));
    }
}

/// Credits that a foreign peer has not used are taken back; those whose data come as the command does are used.
#[test]
fn what_a_foreign_peer_has_not_used_is_taken_back() {
    for width in widths() {
        for landed in 0..6 {
            let mut rig = one(width, Command { foreign: true, ..start() });
            batch(&mut rig, 6);
            for _ in 0..landed {
                rig.land(5);
                rig.step();
            }
            assert_eq!(rig.command(ask(Op::Reclaim)), (landed, landed));
            batch(&mut rig, 2);
            assert_eq!(rig.command(ask(Op::Query)), (landed + 2, landed));
        }
    }
}

// ---- commands -----------------------------------------------------------------------------------

/// A command that is given after credits comes behind them.
#[test]
fn what_has_been_posted_comes_before_a_command() {
    for width in widths() {
        let mut rig = one(width, Command { foreign: true, ..start() });
        rig.batch(5, &[1; 40]);
        while rig.qps[&5].posted() < 40 {
            rig.step();
        }
        assert_eq!(rig.command(ask(Op::Query)), (40, 0));
    }
}

/// After the end there is neither a list nor a repeat; pieces that come are counted still.
#[test]
fn no_list_goes_after_the_end() {
    for width in widths() {
        let mut rig = one(width, Command { repeat: 2, ..start() });
        rig.hurry = true;
        batch(&mut rig, 3);
        batch(&mut rig, 3);
        rig.command(ask(Op::End));
        pass(&mut rig, 5);
        (0..3).for_each(|_| land(&mut rig));
        batch(&mut rig, 1);
        assert_eq!((lists(&rig), rig.command(ask(Op::Query))), (vec![(0, 3, true)], (3, 3)));
        // The next connection begins from nothing.
        rig.command(Command { epoch: 77, ..start() });
        rig.rest();
        assert_eq!(rig.command(ask(Op::Query)), (0, 0));
        batch(&mut rig, 2);
        assert_eq!((rig.lists[1].epoch, lists(&rig)[1..].to_vec()), (77, vec![(0, 2, true)]));
    }
}

/// Decision 19, recalls: no list, and no repeat, until credits from a number on are void; then lists go on with that number
/// and another epoch, and need no proof of those before.
#[test]
fn decision_19_held_lists_go_on_with_the_first_void_credit() {
    for width in widths() {
        for (landed, first) in [(0, 0), (0, 2), (1, 1), (2, 6), (6, 6)] {
            let mut rig = one(width, Command { repeat: 2, trigger: 1, ..start() });
            rig.hurry = true;
            batch(&mut rig, 6);
            rig.command(ask(Op::Hold));
            batch(&mut rig, 3);
            pass(&mut rig, 3);
            for _ in 0..landed {
                land(&mut rig);
            }
            assert_eq!(lists(&rig), [(0, 6, true)]);
            for op in [Op::Stop, Op::Squeeze, Op::Query] {
                assert_eq!(rig.command(Command { first: 1, ..ask(op) }), (6, landed));
            }
            let void = rig.command(Command { first, epoch: 99, ..ask(Op::Void) });
            assert_eq!(void, (first, landed));
            pass(&mut rig, 3);
            assert_eq!(rig.lists.len(), 1);
            // Credits that were posted are void too.
            batch(&mut rig, 4);
            let List { epoch, first: from, .. } = rig.lists[1];
            assert_eq!((epoch, from, rig.lists[1].sizes.len()), (99, first, 4));
            pass(&mut rig, 2);
            assert_eq!(lists(&rig)[2..], [(first, 4, false)]);
        }
    }
}

/// Revocation: what is not announced is not posted any more. The last list and its trigger stand.
#[test]
fn decision_17_what_is_not_announced_is_taken_back_and_the_last_list_stands() {
    for width in widths() {
        let mut rig = one(width, Command { repeat: 2, trigger: 1, max_list: 4, ..start() });
        rig.hurry = true;
        batch(&mut rig, 9);
        rig.post(Post { q: 5, size: Some(1), commit: false, early: false });
        rig.rest();
        assert_eq!(rig.command(Command { first: 2, epoch: 99, ..ask(Op::Unpost) }), (4, 0));
        pass(&mut rig, 2);
        assert_eq!(lists(&rig), [(0, 4, true), (0, 4, false)]);
        batch(&mut rig, 3);
        (0..3).for_each(|_| land(&mut rig));
        assert_eq!(rig.lists.len(), 2);
        land(&mut rig);
        assert_eq!(lists(&rig)[2..], [(4, 3, true)]);
        assert_eq!(rig.lists[2].epoch, rig.lists[0].epoch);
        // Held as before, if it was.
        rig.command(ask(Op::Hold));
        batch(&mut rig, 3);
        rig.command(ask(Op::Unpost));
        (0..3).for_each(|_| land(&mut rig));
        batch(&mut rig, 3);
        assert_eq!(rig.lists.len(), 3);
    }
}

/// A reset at any time: nothing comes of what was there, no QP is on, and each begins anew.
#[test]
fn a_reset_leaves_nothing() {
    for width in widths() {
        // So long something goes on; then nobody takes a list, and there may be no room for one more.
        for clocks in 0..60 {
            let mut rig = Rig::new(width, 1);
            for q in [0, 5] {
                rig.command(Command { repeat: 1, ..Command::new(Op::Start, q) });
                rig.batch(q, &[3; 40]);
            }
            rig.rest();
            rig.land(5);
            rig.batch(0, &[4; 4]);
            rig.batch(5, &[4; 20]);
            rig.now = 1;
            rig.stall = 0.3;
            (0..clocks).for_each(|_| rig.step());
            (rig.stall, rig.room) = (1.0, clocks % 2 == 0);
            (0..20).for_each(|_| rig.step());
            let mut rig = rig.reset();
            (0..20).for_each(|_| rig.step());
            assert_eq!(rig.sweeps, [(17, false)]);
            rig.now = 1000;
            rig.hurry = true;
            rig.rest();
            assert!(rig.sweeps.iter().all(|s| !s.1), "no timer runs");
            rig.command(start());
            batch(&mut rig, 3);
            assert_eq!(lists(&rig), [(0, 3, true)]);
        }
    }
}

// ---- at random ----------------------------------------------------------------------------------

fn any_start(q: u32, draw: &mut Rng) -> Command {
    let (foreign, most) = (draw.chance(0.1), if draw.chance(0.3) { 256 } else { 20 });
    Command {
        epoch: draw.draw() as u32,
        max_list: draw.between(1, 64) as u8,
        trigger: draw.below(6) as u8,
        index: draw.below(most) as u8,
        few: if draw.chance(0.5) { 0 } else { draw.below(40) as u8 },
        repeat: if draw.chance(0.3) { 0 } else { draw.between(1, 30) as u16 },
        foreign,
        told: draw.chance(0.8),
        stream: draw.chance(0.7),
        ..Command::new(Op::Start, q)
    }
}

fn any_piece(q: u32, begins: bool, draw: &mut Rng) -> Landed {
    let said =
        (!begins || draw.chance(0.5)).then(|| if draw.chance(0.3) { 0 } else { draw.draw() as u32 >> draw.below(32) });
    Landed { q, begins, said }
}

fn any_post(q: u32, early: bool, draw: &mut Rng) -> Post {
    let size = draw.chance(0.9).then(|| draw.draw() as u32 >> draw.below(32));
    Post { q, size, commit: size.is_none() || draw.chance(0.3), early }
}

/// One case of many: credits, data and commands of several QPs; `together`, or each when all before it is done.
fn whatever_comes(width: u32, together: bool, draw: &mut Rng) {
    let mut rig = Rig::new(width, draw.draw());
    rig.now = u64::from(if draw.chance(0.5) { u32::MAX - 40 } else { draw.draw() as u32 });
    rig.stall = if draw.chance(0.5) { 0.0 } else { draw.below(60) as f64 / 100.0 };
    rig.hurry = draw.chance(0.7);
    rig.together = together;
    let mut qs = vec![0, 5, 33, QPS - 1];
    qs.truncate(draw.between(1, 4) as usize);
    for &q in &qs {
        rig.command(any_start(q, draw));
    }
    let events = if together { 4000 } else { 150 };
    for _ in 0..events {
        let q = qs[draw.below(qs.len() as u64) as usize];
        match draw.below(20) {
            // Of one QP always the same, where lists and ends of batches may be done in this or that order.
            0..6 if rig.places(q) > 70 => rig.post(any_post(q, if together { q != 5 } else { draw.chance(0.5) }, draw)),
            6..13 if rig.out(q) > 0 => rig.landed(any_piece(q, true, draw)),
            14 if draw.chance(0.3) => rig.landed(any_piece(q, false, draw)),
            13 if draw.chance(if together { 0.05 } else { 0.5 }) => {
                let now = rig.now + draw.between(1, 20);
                rig.at(now);
            }
            14 if draw.chance(0.1) => rig.room = !rig.room,
            15 if !together => {
                let (out, landed) = (rig.qps[&q].announced(), rig.qps[&q].landed());
                let first = draw.between(landed.into(), out.into()) as u32;
                let epoch = draw.draw() as u32;
                let op =
                    [Op::Query, Op::Hold, Op::Void, Op::Unpost, Op::Stop, Op::Squeeze, Op::End][draw.below(7) as usize];
                let op = if rig.qps[&q].is_foreign() && draw.chance(0.3) { Op::Reclaim } else { op };
                match op {
                    Op::Stop if draw.chance(0.7) => {
                        let due = (rig.hurry && draw.chance(0.5)).then(|| rig.now + draw.between(1, 30));
                        _ = rig.command(Command { op: Op::Lists, due, ..any_start(q, draw) });
                    }
                    Op::End => _ = rig.command(any_start(q, draw)),
                    _ => {
                        let answer = rig.command(Command { first, epoch, ..Command::new(op, q) });
                        assert_eq!(answer, (rig.qps[&q].announced(), landed));
                    }
                }
            }
            _ => (),
        }
        if together {
            rig.step();
        } else {
            rig.rest();
        }
    }
    rig.room = true;
    rig.stall = 0.0;
    rig.rest();
    for q in qs {
        let wanted = (rig.qps[&q].announced(), rig.qps[&q].landed());
        assert_eq!(rig.command(Command::new(Op::Query, q)), wanted);
    }
}

#[test]
fn lists_repeats_and_proofs_are_as_they_must_be_whatever_comes() {
    let seed = seed(52);
    for width in widths() {
        for case in 0..cases() {
            println!("case {case}");
            whatever_comes(width, case % 2 == 0, &mut Rng(mix(seed ^ 0xb11d) ^ mix(case)));
        }
    }
}
