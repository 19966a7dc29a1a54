// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_cut` alone: which lists are taken, how elements become pieces, and when (CR-1, CR-2, CR-3, CR-11, CR-15, CR-17,
//! decisions 6, 9, 10, 19). `cut` has what is around it, and the golden model beside it in each clock.
#![cfg(feature = "fastpath")]

mod cut;

use berth_abi::cpu::{LIST_BAD, LIST_EARLY, LIST_OVERFLOW};
use berth_protocol::credit::cut::Mode;
use berth_random::{Rng, mix, seed};
use berth_rtl_unit::Module;
use cut::{AHEAD, Bind, Counts, Elem, Kind, Peer, Rig};
use std::collections::HashMap;

/// QPs of the module.
const QPS: u32 = 64;

/// Cases of a test: four for each that others have, as they are short.
fn cases() -> u64 {
    4 * berth_random::cases(8)
}

fn widths() -> Vec<u32> {
    // No port is as wide as the card's data.
    Module::widths("berth_fp_cut").into_iter().take(1).collect()
}

/// One QP, 5, in a mode; its first lists as given, each with its first number.
fn one(width: u32, mode: Mode, lists: &[(u32, &[u32])]) -> Rig {
    let mut rig = Rig::new(width, 1);
    rig.start(5, mode);
    rig.rest();
    for (first, sizes) in lists {
        rig.list(5, *first, sizes);
        rig.rest();
    }
    rig
}

/// Elements of so many bytes are posted to QP 5.
fn post(rig: &mut Rig, lens: &[u32]) {
    lens.iter().for_each(|&len| rig.post(5, Elem::of(len)));
    rig.rest();
}

/// (kind, length) of all pieces so far.
fn pieces(rig: &Rig) -> Vec<(Kind, u32)> {
    rig.pieces.iter().map(|p| (p.kind, p.len)).collect()
}

/// Runs until a piece is cut; gives its clock.
fn next_piece(rig: &mut Rig) -> u64 {
    let (before, end) = (rig.pieces.len(), rig.cycle + 300);
    while rig.pieces.len() == before {
        rig.step();
        assert!(rig.cycle < end, "no piece");
    }
    rig.pieces[before].at
}

/// A byte of each of so many credits is used: sent, and with memory.
fn use_credits(rig: &mut Rig, n: u32) {
    for _ in 0..n {
        post(rig, &[1]);
        let pieces = rig.qps[&5].pieces();
        rig.cover(5, pieces);
        rig.send(5, pieces);
    }
    rig.rest();
}

// ---- lists --------------------------------------------------------------------------------------

/// "The sender uses credits strictly in order": what a list says is taken once, and only without a gap before it; and the
/// next one not before a credit of the last one is used (CR-11). To the credit, and modulo 2^32.
#[test]
fn cr_2_which_lists_are_taken() {
    let ones = [1; 127];
    // What becomes of a list: {taken, repeat, refused}, what firmware is told.
    let ok = (1, 0, 0, None);
    let repeat = (0, 1, 0, None);
    let gap = (0, 0, 1, None);
    let refused = |status| (0, 0, 1, Some(status));
    for width in widths() {
        // Credits that a list has brought, how many of them are used; the list.
        for (there, used, first, n, (lists, repeats, refusals, broken)) in [
            // Length.
            (0, 0, 0, 0, refused(LIST_BAD)),
            (0, 0, 0, 1, ok),
            (0, 0, 0, 64, ok),
            (0, 0, 0, 65, refused(LIST_BAD)),
            (0, 0, 0, 127, refused(LIST_BAD)),
            // All known; some new; all new; one left out.
            (64, 1, 0, 64, repeat),
            (64, 1, 63, 1, repeat),
            (64, 1, 1, 64, ok),
            (64, 1, 63, 2, ok),
            (64, 1, 40, 60, ok),
            (64, 1, 64, 1, ok),
            (64, 1, 64, 64, ok),
            (64, 1, 65, 1, gap),
            (64, 1, 64 + (1 << 31) - 2, 1, gap),
            (64, 1, 64 + (1 << 31) - 1, 1, repeat),
            (0, 0, u32::MAX, 1, repeat),
            (0, 0, u32::MAX, 2, ok),
            (0, 0, 1, 1, gap),
            // The first credit of the last list is not used; what says nothing new needs no proof.
            (64, 0, 64, 1, refused(LIST_EARLY)),
            (64, 0, 1, 64, refused(LIST_EARLY)),
            (64, 0, 63, 1, repeat),
            (64, 0, 65, 1, gap),
        ] {
            let mut rig = one(width, Mode::Stream, &[]);
            if there != 0 {
                rig.list(5, 0, &ones[..there]);
                rig.rest();
            }
            use_credits(&mut rig, used);
            rig.counts = Counts::default();
            rig.list(5, first, &ones[..n]);
            rig.rest();
            let what = format!("{there} credits, {used} used, list of {n} from {first}");
            let new = if lists == 0 { 0 } else { first.wrapping_add(n as u32).wrapping_sub(there as u32) };
            let of = rig.counts;
            assert_eq!((of.lists, of.repeats, of.refused, of.credits), (lists, repeats, refusals, new), "{what}");
            assert_eq!(rig.broken, broken.map(|status| (5, status)).into_iter().collect::<Vec<_>>(), "{what}");
            assert_eq!(rig.qps[&5].unused(), there as u32 + new - used, "{what}");
        }
    }
}

/// A list that its header refuses, or that says nothing new, is over with its first size, however many it has: 3 clocks each.
/// So a flood of them holds up neither a list that is taken nor another QP's pieces.
#[test]
fn fairness_a_list_that_is_not_taken_takes_three_clocks_whatever_its_length() {
    let ones = [1; 127];
    for width in widths() {
        // Credits that are there, used; first number and length of the lists that are not taken.
        for (there, used, first, n, what) in
            [(8, 1, 9, 61, "a gap"), (61, 1, 0, 61, "a repeat"), (8, 0, 8, 61, "no proof"), (8, 1, 8, 127, "too long")]
        {
            let mut rig = one(width, Mode::Stream, &[(0, &ones[..there])]);
            use_credits(&mut rig, used);
            rig.start(6, Mode::Stream);
            rig.list(6, 0, &[1; 16]);
            rig.rest();
            let flood = |rig: &mut Rig| (0..20).for_each(|_| rig.list(5, first, &ones[..n]));
            flood(&mut rig);
            let from = rig.cycle;
            rig.rest_of_lists(0);
            assert!(rig.cycle - from <= 3 * 20, "{what}: {} clocks", rig.cycle - from);
            // Another QP's 16 pieces, of at least four clocks each, have every second turn.
            rig.rest();
            (0..3).for_each(|_| flood(&mut rig));
            let pieces = rig.pieces.len();
            rig.post(6, Elem::of(16));
            rig.rest();
            let of_6 = &rig.pieces[pieces..];
            assert_eq!((of_6.len(), of_6[15].q), (16, 6));
            assert!(of_6[15].at - of_6[0].at <= 15 * 8, "{what}: {of_6:?}");
            // Credits that come behind the lists are used.
            let unused = rig.qps[&5].unused();
            use_credits(&mut rig, unused);
            rig.list(5, there as u32, &[1; 3]);
            rig.rest();
            assert_eq!((rig.counts.lists, rig.qps[&5].unused()), (3, 3), "{what}");
        }
    }
}

/// Credits of a list that are known already need no place in the store, which has 128. More than it holds can come only
/// where a list is forgotten whose proof was waited for: when credits are given up, even none (decision 19).
#[test]
fn cr_2_a_list_that_the_store_has_no_room_for_is_refused() {
    let ones = [1; 64];
    for width in widths() {
        // Credits given up of 128; the list's first number and length; whether it is taken.
        for (given, first, n, taken) in [
            (0, 128, 1, false),
            (0, 100, 29, false),
            (1, 127, 1, true),
            (1, 127, 2, false),
            (1, 65, 63, true),
            (1, 65, 64, false),
            (64, 64, 64, true),
            (63, 65, 64, false),
            (63, 64, 64, true),
            (128, 0, 64, true),
        ] {
            let mut rig = one(width, Mode::Stream, &[(0, &ones)]);
            rig.give_up(5, 0);
            rig.list(5, 64, &ones);
            rig.rest();
            assert_eq!(rig.qps[&5].unused(), 128);
            rig.give_up(5, given);
            rig.list(5, first, &ones[..n]);
            rig.rest();
            let what = format!("{given} of 128 are given up, list of {n} from {first}");
            assert_eq!((rig.counts.lists, rig.counts.refused), if taken { (3, 0) } else { (2, 1) }, "{what}");
            assert_eq!(rig.broken, if taken { vec![] } else { vec![(5, LIST_OVERFLOW)] }, "{what}");
            // All of them are used.
            let unused = rig.qps[&5].unused();
            assert_eq!(unused, if taken { first + n as u32 } else { 128 - given }, "{what}");
            use_credits(&mut rig, unused);
            assert_eq!((rig.pieces.len() as u32, rig.qps[&5].unused()), (unused, 0), "{what}");
        }
    }
}

/// Decision 19: the newest go; what is asked for beyond those that are unused has no effect. The next list begins there,
/// needs no proof, and its sizes are those that count.
#[test]
fn decision_19_the_newest_credits_are_given_up_and_a_list_begins_with_the_first_of_them() {
    for width in widths() {
        for (used, n, first) in [
            (0, 0, 10),
            (0, 3, 7),
            (0, 10, 0),
            (0, 11, 0),
            (4, 5, 5),
            (4, 6, 4),
            (4, 7, 4),
            (4, 0xff_ffff, 4),
            (10, 1, 10),
        ] {
            let mut rig = one(width, Mode::Stream, &[(0, &[20; 10])]);
            post(&mut rig, &vec![20; used]);
            rig.give_up(5, n);
            rig.rest();
            // The bench compares what is told of it with the model.
            assert_eq!((rig.qps[&5].expected(), rig.qps[&5].unused()), (first, first - used as u32), "{used}, {n}");
            rig.list(5, first, &[30; 4]);
            rig.rest();
            post(&mut rig, &[100_000]);
            let old = vec![(Kind::Data, 20); first as usize];
            assert_eq!(pieces(&rig), [old, vec![(Kind::Data, 30); 4]].concat(), "{used} used, {n} given up");
        }
    }
}

/// CR-1: in a stream the list breaks the protocol. Credits before the empty one are used, nothing after it; in message mode
/// it is a receive of no bytes (decision 10).
#[test]
fn cr_1_nothing_is_cut_from_a_credit_of_no_bytes_on() {
    for width in widths() {
        for sizes in [&[0, 7, 7][..], &[7, 0, 7], &[7, 7, 0], &[0]] {
            let before: Vec<_> = sizes.iter().take_while(|&&size| size != 0).map(|&size| (Kind::Data, size)).collect();
            let mut rig = one(width, Mode::Stream, &[(0, sizes)]);
            let of = rig.counts;
            assert_eq!(
                (of.lists, of.refused, of.credits as usize, &rig.broken),
                (0, 1, sizes.len(), &vec![(5, LIST_BAD)])
            );
            post(&mut rig, &[100, 0]);
            assert_eq!(pieces(&rig), before, "{sizes:?}");
            // The QP is over; another one's lists are not broken.
            rig.start(6, Mode::Stream);
            rig.list(6, 0, &[7]);
            rig.rest();
            assert_eq!((rig.counts.lists, rig.counts.refused), (1, 1));
            // One that repeats it, or that is refused, is not told of once more.
            rig.list(5, 0, sizes);
            rig.list(5, 90, sizes);
            rig.rest();
            assert_eq!((rig.counts.repeats, rig.counts.refused, rig.broken.len()), (1, 2, 1));
            let rig = one(width, Mode::Message, &[(0, sizes)]);
            assert_eq!((rig.counts.lists, rig.counts.refused), (1, 0));
        }
        // What is known already is not looked at.
        let mut rig = one(width, Mode::Stream, &[(0, &[7, 7])]);
        use_credits(&mut rig, 1);
        rig.list(5, 1, &[0, 8]);
        rig.rest();
        post(&mut rig, &[15]);
        assert_eq!((rig.counts.lists, pieces(&rig)), (2, vec![(Kind::Data, 1), (Kind::Data, 7), (Kind::Data, 8)]));
    }
}

/// Sizes of a list that is not taken, or that comes without one, are passed over.
#[test]
fn sizes_that_belong_to_no_list_that_is_taken_change_nothing() {
    for width in widths() {
        let mut rig = one(width, Mode::Stream, &[]);
        rig.size(77);
        rig.size(0);
        rig.list(5, 0, &[10, 11]);
        rig.size(78);
        rig.rest();
        use_credits(&mut rig, 1);
        for (first, sizes) in [(0, &[80, 81][..]), (9, &[82]), (2, &[]), (2, &[12]), (3, &[13])] {
            rig.list(5, first, sizes);
            rig.size(79);
        }
        rig.rest();
        assert_eq!(rig.broken, [(5, LIST_BAD), (5, LIST_EARLY)]);
        assert_eq!(rig.counts, Counts { lists: 2, repeats: 1, refused: 3, credits: 3, ..rig.counts });
        post(&mut rig, &[1000]);
        assert_eq!(pieces(&rig), [1, 11, 12].map(|len| (Kind::Data, len)));
    }
}

// ---- pieces -------------------------------------------------------------------------------------

/// CR-15: "an 11-byte send against credits 5 and 6 leaves as packets of 5 and 6"; a remainder of a credit is wasted (CR-2).
/// Fields of a piece are compared with the model.
#[test]
fn cr_15_an_element_is_cut_over_credits_and_a_remainder_is_wasted() {
    for width in widths() {
        let mut rig = one(width, Mode::Stream, &[(0, &[5, 6, 100, 100, 1 << 30, 40, 30, 200])]);
        for (len, flag) in [(11, false), (99, true), (100, false), ((1 << 30) + 40, true), (230, false)] {
            rig.post(5, Elem { len, push: flag, inline: !flag, ctxs: (len % 512) as u16, ..Elem::default() });
        }
        rig.rest();
        assert_eq!(pieces(&rig), [5, 6, 99, 100, 1 << 30, 40, 30, 200].map(|len| (Kind::Data, len)));
        assert_eq!(rig.pieces.iter().map(|p| p.elem).collect::<Vec<_>>(), [0, 0, 1, 2, 3, 3, 4, 4]);
    }
}

/// CR-17: "one send fills one receive [...] if that credit is too small the send fails locally, before anything has left";
/// the credit is kept for the next one.
#[test]
fn cr_17_a_message_fills_one_credit_or_fails_and_leaves_it() {
    use Kind::{Bad, Data, TooLong};
    for width in widths() {
        let mut rig = one(width, Mode::Message, &[(0, &[10, 0, 10, 20])]);
        post(&mut rig, &[11, 10, 1, 0, 9]);
        rig.post(5, Elem { bad: true, ..Elem::of(500) });
        post(&mut rig, &[21, 20, 0]);
        let wanted = [(TooLong, 0), (Data, 10), (TooLong, 0), (Data, 0), (Data, 9), (Bad, 0), (TooLong, 0), (Data, 20)];
        assert_eq!(pieces(&rig), wanted);
        // CR-3: the last one, of no bytes, waits for a credit, of whatever size.
        rig.list(5, 4, &[0]);
        rig.rest();
        assert_eq!(pieces(&rig)[8..], [(Data, 0)]);
    }
}

/// Decision 10, and a malformed element: neither needs a credit, and none is used.
#[test]
fn decision_10_a_send_of_no_bytes_and_a_malformed_one_complete_without_a_credit() {
    use Kind::{Bad, Data, Empty};
    for width in widths() {
        let mut rig = one(width, Mode::Stream, &[]);
        post(&mut rig, &[0]);
        rig.post(5, Elem { bad: true, ..Elem::of(9) });
        rig.post(5, Elem { bad: true, ..Elem::of(0) });
        post(&mut rig, &[3, 0]);
        assert_eq!(pieces(&rig), [(Empty, 0), (Bad, 0), (Bad, 0)]);
        rig.list(5, 0, &[2, 1]);
        rig.rest();
        assert_eq!(pieces(&rig)[3..], [(Data, 2), (Data, 1), (Empty, 0)]);
        let mut rig = one(width, Mode::Message, &[]);
        rig.post(5, Elem { bad: true, ..Elem::of(0) });
        rig.rest();
        post(&mut rig, &[0]);
        assert_eq!((pieces(&rig), rig.counts.held), (vec![(Bad, 0)], 1));
    }
}

/// A NOP needs no credit in either mode, as a send of no bytes does in message mode.
#[test]
fn qp_2_a_nop_completes_without_a_credit() {
    for (width, mode) in widths().into_iter().flat_map(|width| [Mode::Stream, Mode::Message].map(|mode| (width, mode)))
    {
        let mut rig = one(width, mode, &[]);
        rig.post(5, Elem { nothing: true, ..Elem::default() });
        rig.rest();
        post(&mut rig, &[3]);
        assert_eq!((pieces(&rig), rig.counts.held), (vec![(Kind::Empty, 0)], 1));
    }
}

/// An element with a fence is begun when the READs before it are complete; what is before the last of them does not matter.
#[test]
fn qp_3_a_fence_waits_for_reads() {
    for width in widths() {
        let mut rig = one(width, Mode::Message, &[(0, &[10; 8])]);
        let fenced = |elem| Elem { fence: true, ..elem };
        for elem in [fenced(Elem::of(1)), Elem::read(100), Elem::of(2), fenced(Elem::of(3)), Elem::of(4)] {
            rig.post(5, elem);
        }
        rig.rest();
        assert_eq!(pieces(&rig).len(), 3, "one with a fence and nothing before it goes");
        rig.complete(5, 1);
        rig.rest();
        assert_eq!((pieces(&rig).len(), rig.counts.held), (3, 0));
        rig.complete(5, 2);
        rig.rest();
        assert_eq!(pieces(&rig)[3..], [(Kind::Data, 3), (Kind::Data, 4)]);
        // A malformed READ is none.
        rig.post(5, Elem { bad: true, ..Elem::read(1) });
        rig.post(5, fenced(Elem::of(5)));
        rig.rest();
        assert_eq!(pieces(&rig)[5..], [(Kind::Bad, 0), (Kind::Data, 5)]);
    }
}

/// A DELAY begins when all before it has been sent, and what is behind it is cut when it is over; other QPs do not wait.
#[test]
fn qp_5_a_delay_holds_what_is_behind_it() {
    for (width, time) in widths().into_iter().flat_map(|width| [0, 1, 2, 100].map(|time| (width, time))) {
        let mut rig = one(width, Mode::Stream, &[(0, &[100; 8])]);
        rig.start(6, Mode::Stream);
        rig.list(6, 0, &[100; 60]);
        rig.rest();
        for elem in [Elem::of(1), Elem::delay(time), Elem::of(2)] {
            rig.post(5, elem);
        }
        (0..1000).for_each(|_| rig.step());
        assert_eq!(pieces(&rig), [(Kind::Data, 1)], "it is not sent");
        let sent = rig.cycle;
        rig.send(5, 1);
        rig.cover(5, 1);
        while rig.qps[&5].done() < 3 {
            if rig.qps[&6].elems() < 40 && rig.rng.chance(0.1) {
                rig.post(6, Elem::of(1));
            }
            rig.step();
            assert!(rig.cycle < sent + 64 * u64::from(time) + 400);
        }
        let at = |elem| rig.pieces.iter().find(|piece| (piece.q, piece.elem) == (5, elem)).expect("a piece").at - sent;
        assert!(at(1) + 64 >= 64 * u64::from(time) && at(2) - at(1) < 20, "{} of {time}, {}", at(1), at(2));
        assert!(time < 100 || rig.qps[&6].done() > 10, "the other QP waits");
        // The next one begins anew.
        rig.send(5, 3);
        rig.cover(5, 3);
        [Elem::delay(3), Elem::of(3)].into_iter().for_each(|elem| rig.post(5, elem));
        (0..1000).for_each(|_| rig.step());
        assert_eq!(rig.qps[&5].done(), 5);
    }
}

/// A BIND is told when all before it has been sent, and what is behind it is cut when firmware has done it.
#[test]
fn qp_4_a_bind_holds_what_is_behind_it() {
    for (width, time) in widths().into_iter().flat_map(|width| [1, 3000].map(|time| (width, time))) {
        let mut rig = one(width, Mode::Message, &[(0, &[100; 8])]);
        rig.bind_time = time;
        let bind = Bind { key: 0xabcd_ef01, va: u64::MAX - 9, span: 1 << 40 | 7, one_shot: true, rights: 5 };
        let bind = |va| Elem { bind: Some(Bind { va, ..bind }), ..Elem::default() };
        for elem in [Elem::of(1), bind(1), bind(u64::MAX), Elem::of(2)] {
            rig.post(5, elem);
        }
        (0..1000).for_each(|_| rig.step());
        assert_eq!(pieces(&rig), [(Kind::Data, 1)], "it is not sent");
        for pieces in 1..4 {
            rig.send(5, pieces);
            rig.cover(5, pieces);
            (0..time + 300).for_each(|_| rig.step());
            rig.rest();
        }
        assert_eq!(pieces(&rig)[1..], [(Kind::Empty, 0), (Kind::Empty, 0), (Kind::Data, 2)]);
        rig.post(5, Elem::of(3));
        rig.rest();
        assert_eq!(rig.qps[&5].done(), 5);
    }
}

/// CR-3: "With no credit the sender holds the data." It is counted each time that it is looked at: when the element comes,
/// and when what came has brought no credit. No piece waits for the size of a credit that is there.
#[test]
fn cr_3_an_element_without_a_credit_is_held_and_counted() {
    for width in widths() {
        let mut rig = one(width, Mode::Stream, &[]);
        assert_eq!(rig.counts.held, 0);
        post(&mut rig, &[30]);
        assert_eq!((rig.counts.held, rig.pieces.len()), (1, 0));
        // The piece, then the rest of the element.
        rig.list(5, 0, &[10]);
        rig.rest();
        assert_eq!((rig.counts.held, rig.pieces.len()), (2, 1));
        // Neither a repeat nor a list with a gap before it brings anything to look for.
        rig.list(5, 0, &[10]);
        rig.list(5, 2, &[10]);
        rig.rest();
        assert_eq!((rig.counts.held, rig.counts.repeats, rig.counts.refused), (2, 1, 1));
        rig.list(5, 1, &[10; 40]);
        rig.rest();
        assert_eq!((rig.counts.held, rig.pieces.len()), (2, 3));
        // Neither without an element, nor without room, is anything held.
        rig.cover(5, 3);
        rig.send(5, 3);
        rig.rest();
        post(&mut rig, &[1000]);
        let held = rig.counts.held;
        rig.list(5, 41, &[10]);
        rig.rest();
        assert_eq!((rig.counts.held, rig.pieces.len()), (held, 3 + usize::from(AHEAD)));
        // Sizes that come slowly: the element is looked at when there is one, and not counted in between.
        let mut rig = one(width, Mode::Stream, &[]);
        rig.stall = 0.95;
        rig.list(5, 0, &[10; 20]);
        rig.rest();
        post(&mut rig, &[200]);
        rig.rest();
        assert_eq!((rig.counts.held, rig.pieces.len()), (0, 16));
    }
}

/// A size that comes late, as the only one that is awaited, or as the last one, is used at once.
#[test]
fn cr_2_a_credit_is_used_as_soon_as_its_size_is_there() {
    for width in widths() {
        for n in 1..=3 {
            let mut rig = one(width, Mode::Stream, &[]);
            post(&mut rig, &[1000]);
            // The beat that begins the list, then size by size.
            rig.list(5, 0, &[]);
            rig.rest();
            assert_eq!(rig.broken.pop(), Some((5, LIST_BAD)));
            rig.begin(5, 0, n);
            rig.rest();
            for at in 0..n {
                rig.size(7);
                let from = rig.cycle;
                match at {
                    // Those between wait for the first piece, or for the list's end.
                    _ if at == 0 || at + 1 == n => assert!(next_piece(&mut rig) - from <= 6, "size {at} of {n}"),
                    _ => rig.settle(),
                }
                rig.settle();
            }
            rig.rest();
            assert_eq!(rig.pieces.len(), n as usize);
        }
        // Its first credits are used while the last ones come, also those of a later list.
        let mut rig = one(width, Mode::Stream, &[]);
        post(&mut rig, &[1000]);
        for list in 0..2 {
            rig.list(5, 16 * list, &[7; 64][..if list == 0 { 16 } else { 64 }]);
            next_piece(&mut rig);
            assert!(rig.to_come() > if list == 0 { 5 } else { 50 }, "{} sizes are to come", rig.to_come());
            rig.rest();
            assert_eq!(rig.pieces.len(), 16 * (list as usize + 1));
            let pieces = rig.qps[&5].pieces();
            rig.cover(5, pieces);
            rig.send(5, pieces);
            rig.rest();
        }
        // They cost another QP's pieces no clock, but for a look at the first and one at the last.
        let mut rig = one(width, Mode::Stream, &[(0, &[1; 16])]);
        rig.start(6, Mode::Stream);
        rig.rest();
        rig.list(6, 0, &[7; 64]);
        rig.rest_of_lists(60);
        post(&mut rig, &[16]);
        assert!(rig.pieces[15].at - rig.pieces[0].at <= 4 * 15 + 4, "{:?}", rig.pieces);
    }
}

/// Pieces are cut ahead: 16 of them without memory, and 16 that are not sent, whichever is reached first.
#[test]
fn pc_2_16_pieces_are_cut_ahead_and_one_more_for_each_that_has_memory_and_is_sent() {
    for width in widths() {
        let mut rig = one(width, Mode::Stream, &[(0, &[1; 64])]);
        post(&mut rig, &[1000]);
        assert_eq!(rig.pieces.len(), 16);
        for (covered, sent, wanted) in
            [(3, 0, 16), (3, 2, 18), (9, 2, 18), (9, 9, 25), (25, 9, 25), (25, 24, 40), (40, 40, 56)]
        {
            rig.cover(5, covered);
            rig.send(5, sent);
            rig.rest();
            assert_eq!(rig.pieces.len(), wanted, "{covered} with memory, {sent} sent");
        }
        // Numbers of pieces are modulo 256.
        for list in 1..8 {
            let n = rig.qps[&5].pieces();
            rig.cover(5, n);
            rig.send(5, n);
            rig.rest();
            while rig.qps[&5].unused() != 0 {
                let n = rig.qps[&5].pieces();
                rig.cover(5, n);
                rig.send(5, n);
                rig.rest();
            }
            rig.list(5, 64 * list, &[1; 64]);
            rig.rest();
        }
        assert!(rig.pieces.len() > 256 + 64);
    }
}

/// One piece costs its QP four clocks, and three where there are several QPs; what finds nothing to do costs two.
#[test]
fn a_piece_takes_three_clocks_and_a_look_for_nothing_two() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        for q in 0..4 {
            rig.start(q, Mode::Stream);
            rig.list(q, 0, &[1; 64]);
        }
        rig.rest();
        for (qps, clocks) in [(1, 4), (4, 3)] {
            let from = rig.pieces.len();
            (0..qps).for_each(|q| rig.post(q, Elem::of(10)));
            rig.rest();
            let at = |n: usize| rig.pieces[from + n].at;
            let n = 10 * qps as usize;
            assert_eq!(at(n - 2) - at(qps as usize), clocks * (n as u64 - 2 - u64::from(qps)), "{qps} QPs");
            (0..qps).for_each(|q| {
                rig.cover(q, 10);
                rig.send(q, 10);
            });
            rig.rest();
        }
        // QPs that have nothing to do, in front of one that has.
        let mut rig = Rig::new(width, 1);
        (0..QPS).for_each(|q| rig.start(q, Mode::Stream));
        rig.list(QPS - 1, 0, &[5]);
        rig.rest();
        (0..QPS - 1).for_each(|q| rig.cover(q, 0));
        rig.post(QPS - 1, Elem::of(5));
        let from = rig.cycle;
        assert!(next_piece(&mut rig) - from <= 2 * u64::from(QPS) + 8, "{} clocks", rig.pieces[0].at - from);
        // Elements, but no room.
        let mut rig = Rig::new(width, 1);
        for q in 0..QPS {
            rig.start(q, Mode::Stream);
            rig.list(q, 0, &[1; 30]);
        }
        rig.rest();
        (0..QPS - 1).for_each(|q| rig.post(q, Elem::of(30)));
        rig.rest();
        (0..QPS - 1).for_each(|q| rig.cover(q, 0));
        rig.post(QPS - 1, Elem::of(1));
        let from = rig.cycle;
        let at = next_piece(&mut rig);
        assert!(at - from <= 2 * u64::from(QPS) + 8, "{} clocks", at - from);
    }
}

/// Under selective repeat a WRITE waits for those before it that it overlaps, and for no others; it takes no credit, but with
/// an immediate it does, of any size. Without selective repeat nothing waits.
#[test]
fn qp_3_a_write_waits_for_those_that_it_overlaps() {
    for width in widths() {
        for (peer, before) in [
            (Peer::Berth, 1),
            (Peer::Berth, 2),
            (Peer::Berth, 5),
            (Peer::Berth, 12),
            (Peer::GoBackN, 3),
            (Peer::Foreign, 3),
        ] {
            let selective = peer == Peer::Berth;
            for over in 0..before {
                let mut rig = Rig::new(width, 1);
                rig.start_with(5, Mode::Message, peer);
                rig.rest();
                // They begin anywhere in the rows that are looked at.
                let skip = over % 4;
                (0..skip).for_each(|_| rig.post(5, Elem { bad: true, ..Elem::of(0) }));
                rig.rest();
                rig.complete(5, skip);
                rig.rest();
                // One behind the other, from the top of the address space on.
                let va = |i: usize| (u64::MAX - 99).wrapping_sub(100 * i as u64);
                (0..before).for_each(|i| rig.post(5, Elem::write(va(i), if i == 0 { 99 } else { 100 })));
                rig.post(5, Elem::write(va(before) + 1, 99));
                rig.rest();
                assert_eq!(rig.pieces.len(), skip + before + 1, "none of them overlaps another");
                rig.cover(5, rig.qps[&5].pieces());
                rig.send(5, rig.qps[&5].pieces());
                rig.post(5, Elem::write(va(over) + 98, if over == 0 { 1 } else { 2 }));
                rig.rest();
                let all = skip + before + 2;
                assert_eq!(rig.pieces.len(), all - usize::from(selective), "{peer:?} {before} {over}");
                rig.complete(5, skip + over);
                rig.rest();
                assert_eq!(rig.pieces.len(), all - usize::from(selective), "{peer:?} {before} {over}");
                rig.complete(5, skip + over + 1);
                rig.rest();
                assert_eq!(rig.pieces.len(), all, "{peer:?} {before} {over}");
            }
        }
        let mut rig = Rig::new(width, 1);
        rig.start(5, Mode::Message);
        rig.post(5, Elem { imm: true, ..Elem::write(0, 50) });
        rig.post(5, Elem::write(50, 50));
        rig.rest();
        assert!(rig.pieces.is_empty(), "the first needs a credit");
        rig.list(5, 0, &[3, 8]);
        rig.rest();
        assert_eq!((pieces(&rig), rig.qps[&5].unused()), (vec![(Kind::Data, 50), (Kind::Data, 50)], 1));
    }
}

/// A WRITE that begins where the one before it ends, or behind, is cut as fast with many before it as with few; one that begins
/// before that is compared with them, and those behind it with what lies before it, until that is complete.
#[test]
fn qp_3_writes_behind_each_other_are_not_compared() {
    for width in widths() {
        let mut rig = one(width, Mode::Message, &[]);
        let took = |rig: &mut Rig, vas: &[u64]| -> Vec<u64> {
            let first = rig.pieces.len();
            vas.iter().for_each(|&va| rig.post(5, Elem::write(va, 100)));
            rig.rest();
            assert_eq!(rig.pieces.len(), first + vas.len());
            let (pieces, elems) = (rig.qps[&5].pieces(), rig.qps[&5].elems());
            let at: Vec<u64> = rig.pieces[first..].iter().map(|p| p.at).collect();
            rig.cover(5, pieces);
            rig.send(5, pieces);
            assert!(elems <= 64, "the ring is not full");
            at.windows(2).map(|two| two[1] - two[0]).collect()
        };
        let up = |from: u64| -> Vec<u64> { (0..12).map(|i| from + 150 * i).collect() };
        let few = took(&mut rig, &up(10_000));
        let many = took(&mut rig, &up(20_000));
        assert_eq!(few, many, "all lie behind those before them");
        let back = took(&mut rig, &up(0));
        assert!(back.iter().zip(&many).all(|(b, m)| b > m), "{back:?} {many:?}: 24 lie behind them in memory");
        rig.complete(5, 24);
        rig.rest();
        assert_eq!(took(&mut rig, &up(5000)), many, "they are complete");
    }
}

/// Each element is one piece at once, and credits that come all the same stay unused.
#[test]
fn qp_7_a_peer_without_lists_is_sent_messages_whole() {
    for width in widths() {
        let mut rig = Rig::new(width, 1);
        rig.start_with(5, Mode::Message, Peer::Foreign);
        let elems =
            [Elem::of(70_000), Elem { imm: true, ..Elem::write(0, 50) }, Elem::of(0), Elem::write(0, 9), Elem::read(3)];
        elems.iter().for_each(|elem| rig.post(5, *elem));
        rig.rest();
        assert_eq!(pieces(&rig), elems.map(|elem| (Kind::Data, elem.len)));
        rig.list(5, 0, &[3, 8]);
        rig.post(5, Elem { imm: true, ..Elem::of(4) });
        rig.rest();
        assert_eq!((pieces(&rig).last(), rig.qps[&5].unused()), (Some(&(Kind::Data, 4)), 2));
    }
}

/// A QP that begins anew has no credits, no piece and no element of before; others keep theirs. So it is with a reset.
#[test]
fn what_begins_anew_begins_from_nothing() {
    for width in widths() {
        let mut rig = one(width, Mode::Stream, &[(0, &[100; 20])]);
        rig.start(6, Mode::Message);
        rig.list(6, 0, &[50; 3]);
        rig.post(6, Elem::of(50));
        post(&mut rig, &[150, 0, 7]);
        // In the midst of an element, and of a list's sizes, which it waits for.
        post(&mut rig, &[100_000]);
        rig.list(5, 20, &[100; 60]);
        (0..5).for_each(|_| rig.step());
        rig.start(5, Mode::Stream);
        rig.rest();
        assert_eq!((rig.qps[&5].unused(), rig.qps[&6].unused()), (0, 2));
        rig.list(5, 0, &[30; 2]);
        rig.post(6, Elem::of(49));
        let from = rig.pieces.len();
        post(&mut rig, &[0, 31]);
        let mut new: Vec<_> = rig.pieces[from..].iter().map(|p| (p.q, p.len)).collect();
        new.sort();
        assert_eq!(new, [(5, 0), (5, 1), (5, 30), (6, 49)]);
        // A reset in the midst of a list's sizes: none of them is waited for.
        for clocks in 1..12 {
            let mut rig = one(width, Mode::Stream, &[(0, &[9])]);
            post(&mut rig, &[3, 4]);
            rig.list(5, 1, &[100; 60]);
            (0..clocks).for_each(|_| rig.step());
            let mut rig = rig.reset();
            rig.start(5, Mode::Message);
            rig.list(5, 0, &[30; 2]);
            post(&mut rig, &[30, 29]);
            assert_eq!(pieces(&rig), [(Kind::Data, 30), (Kind::Data, 29)]);
            assert_eq!(rig.counts, Counts { lists: 1, credits: 2, ..Counts::default() });
        }
    }
}

/// No work is begun while some engine's row is not initialised.
#[test]
fn no_piece_is_cut_while_a_row_begins() {
    for width in widths() {
        let mut rig = one(width, Mode::Stream, &[(0, &[1; 9])]);
        rig.hold(true);
        rig.post(5, Elem::of(9));
        (0..100).for_each(|_| rig.step());
        assert_eq!(rig.pieces.len(), 0);
        rig.hold(false);
        rig.rest();
        assert_eq!(rig.pieces.len(), 9);
    }
}

// ---- at random ----------------------------------------------------------------------------------

/// What a peer might send next to a QP: mostly what it should.
fn any_list(rig: &mut Rig, q: u32, message: bool, draw: &mut Rng) {
    let qp = &rig.qps[&q];
    let (expected, room) = (qp.expected(), 128 - qp.unused());
    let n = draw.between(1, 20) as u32;
    let first = match draw.below(10) {
        0 => expected.wrapping_add(draw.between(1, 3) as u32),
        1 => expected.wrapping_sub(n),
        2 => expected.wrapping_sub(draw.below(10) as u32),
        3 => draw.draw() as u32,
        _ => expected,
    };
    let n = match draw.below(30) {
        0 => draw.between(60, 80) as u32,
        1 => 0,
        _ => n.min(room.max(1)),
    };
    let size = |draw: &mut Rng| match draw.below(10) {
        0 if message => 0,
        1..3 => draw.between(1, 3) as u32,
        3 => draw.draw() as u32 >> draw.between(1, 31) | 1,
        _ => draw.between(1, 100) as u32,
    };
    let sizes: Vec<_> = (0..n).map(|_| size(draw)).collect();
    rig.list(q, first, &sizes);
}

/// One case of many: several QPs in both modes, lists of all kinds, credits that are given up, QPs that begin anew.
fn whatever_comes(width: u32, draw: &mut Rng) {
    let mut rig = Rig::new(width, draw.draw());
    rig.stall = if draw.chance(0.5) { 0.0 } else { draw.below(90) as f64 / 100.0 };
    let mut qs = vec![(0, false), (5, true), (33, false), (QPS - 1, true)];
    qs.truncate(draw.between(1, 4) as usize);
    rig.bind_time = 1 << draw.below(11);
    let mode = |message| if message { Mode::Message } else { Mode::Stream };
    let others = if draw.chance(0.8) { Peer::Berth } else { Peer::GoBackN };
    let foreign = draw.chance(0.3);
    let peer = |q: u32| if foreign && q == 5 { Peer::Foreign } else { others };
    qs.iter().for_each(|&(q, message)| rig.start_with(q, mode(message), peer(q)));
    // Of each QP where its last WRITE ends.
    let mut ends = HashMap::new();
    for _ in 0..3000 {
        let (q, message) = qs[draw.below(qs.len() as u64) as usize];
        match draw.below(40) {
            0..2 if rig.to_come() == 0 => any_list(&mut rig, q, message, draw),
            2..5 if rig.qps[&q].elems() - rig.qps[&q].complete() < 60 => {
                let len = [0, 3, 30, 300, 3000][draw.below(5) as usize];
                let len = if draw.chance(0.02) { draw.draw() as u32 >> 1 } else { draw.between(0, len) as u32 };
                let (push, inline, bad) = (draw.chance(0.5), draw.chance(0.5), draw.chance(0.05));
                let behind = ends.get(&q).map_or(0, |end: &u64| end.wrapping_add(draw.below(3)));
                let write = (message && draw.chance(0.4)).then(|| match draw.below(8) {
                    0..2 => (!draw.below(3000)).wrapping_sub(100),
                    2..6 => behind,
                    _ => draw.below(8000),
                });
                ends.extend(write.map(|va| (q, va.wrapping_add(u64::from(len)))));
                let imm = message && draw.chance(0.3);
                let ctxs = draw.below(512) as u16;
                let elem =
                    Elem { len, bad, push, inline, ctxs, write, imm, fence: draw.chance(0.1), ..Elem::default() };
                let local = Elem { len: 0, write: None, imm: false, ..elem };
                let bind = Bind {
                    key: draw.draw() as u32,
                    va: draw.draw(),
                    span: draw.draw(),
                    one_shot: draw.chance(0.5),
                    rights: draw.below(8) as u8,
                };
                rig.post(
                    q,
                    match draw.below(20) {
                        0 => Elem { nothing: true, ..local },
                        1 => Elem { delay: Some(draw.below(8) as u32), ..local },
                        2 => Elem { bind: Some(bind), ..local },
                        3..7 if message => Elem { read: true, write: None, imm: false, ..elem },
                        _ => elem,
                    },
                );
            }
            5..13 => {
                let qp = &rig.qps[&q];
                let (pieces, covered, sent) = (qp.pieces(), qp.covered(), qp.sent());
                let more = |from: u8, draw: &mut Rng| {
                    from.wrapping_add(draw.between(0, u64::from(pieces.wrapping_sub(from))) as u8)
                };
                rig.cover(q, more(covered, draw));
                rig.send(q, more(sent, draw));
                let (complete, done) = (rig.qps[&q].complete() as u64, rig.qps[&q].done() as u64);
                rig.complete(q, draw.between(complete, done) as usize);
            }
            13 if rig.to_come() == 0 && draw.chance(0.1) => {
                let n = if draw.chance(0.2) { draw.below(1 << 24) } else { draw.below(20) };
                rig.give_up(q, n as u32);
            }
            14 if draw.chance(0.03) => rig.start_with(q, mode(message), peer(q)),
            _ => (),
        }
        rig.step();
    }
    rig.stall = 0.0;
    rig.rest();
}

#[test]
fn lists_are_taken_and_pieces_are_cut_as_the_model_has_it_whatever_comes() {
    let seed = seed(51);
    for width in widths() {
        for case in 0..cases() {
            println!("case {case}");
            whatever_comes(width, &mut Rng(mix(seed ^ 0xc07) ^ mix(case)));
        }
    }
}
