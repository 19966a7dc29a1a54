// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The golden model of the credit engine.

use berth_abi::card::{CREDITS_PER_QP, MAX_LIST};
use berth_abi::cpu::*;
use berth_protocol::credit::{Builder, CreditRow, Reader, Trigger};
use proptest::prelude::*;

fn builder(trigger: Trigger) -> Builder {
    let mut b = <Builder>::new();
    b.reset(MAX_LIST, trigger);
    b.enable();
    b
}

fn post(b: &mut Builder, sizes: &[u32]) {
    for size in sizes {
        b.post(*size).unwrap();
    }
    b.commit();
}

fn take(b: &mut Builder) -> (u32, Vec<u32>) {
    let (first, len) = b.list_take().unwrap();
    (first, (0..len).map(|_| b.list_next()).collect())
}

#[test]
fn cr_4_the_first_list_goes_when_credits_are_committed_and_the_connection_is_there() {
    let mut b = <Builder>::new();
    post(&mut b, &[3, 7]);
    assert!(!b.ready());
    b.enable();
    b.post(22);
    assert_eq!(take(&mut b), (0, vec![3, 7]));
}

#[test]
fn cr_11_second_list_waits_for_first_buffer() {
    let mut b = builder(Trigger::First);
    post(&mut b, &[3, 7]);
    assert_eq!(take(&mut b), (0, vec![3, 7]));
    post(&mut b, &[22, 44]);
    assert!(b.list_take().is_none());
    assert!(b.landed());
    assert_eq!(take(&mut b), (2, vec![22, 44]));
    // The second buffer of the first list is no proof for the second list.
    post(&mut b, &[11]);
    assert!(b.landed());
    assert!(!b.ready());
    assert!(b.landed());
    assert_eq!(take(&mut b), (4, vec![11]));
}

#[test]
fn cr_5_triggers_first_last_and_in_between() {
    for (trigger, at) in [(Trigger::First, 1), (Trigger::Last, 5), (Trigger::Between(2), 3), (Trigger::Between(200), 5)]
    {
        let mut b = builder(trigger);
        post(&mut b, &[1; 5]);
        take(&mut b);
        post(&mut b, &[2]);
        for landed in 1..=5 {
            assert!(b.landed());
            assert_eq!(b.ready(), landed >= at, "{trigger:?} after {landed}");
        }
    }
}

#[test]
fn decision_4_a_trigger_that_passes_with_nothing_new_stays_armed() {
    let mut b = builder(Trigger::First);
    post(&mut b, &[1]);
    take(&mut b);
    assert!(b.landed());
    assert!(!b.report());
    post(&mut b, &[2]);
    assert!(b.report());
    assert!(!b.report(), "reported once");
}

#[test]
fn decision_19_void_takes_back_and_counts_as_proof() {
    let mut b = builder(Trigger::Last);
    post(&mut b, &[1, 2, 3, 4]);
    take(&mut b);
    assert!(b.landed());
    assert!(!b.void(5));
    assert!(!b.void(0));
    assert!(b.void(2));
    assert_eq!(b.numbers(), (2, 2, 1));
    post(&mut b, &[9]);
    assert_eq!(take(&mut b), (2, vec![9]));
}

#[test]
fn cr_11_reader_refuses_early_gap_overflow_and_bad_lists_and_skips_repeats() {
    let mut r = <Reader>::new();
    assert_eq!(r.list_begin(0, 0), (LIST_BAD, 0));
    assert_eq!(r.list_begin(0, MAX_LIST + 1), (LIST_BAD, 0));
    assert_eq!(r.list_begin(1, 2), (LIST_GAP, 0));
    assert_eq!(r.list_begin(0, 2), (LIST_OK, 0));
    assert!(r.list_push(3) && r.list_push(7));
    assert_eq!(r.list_begin(0, 2), (LIST_REPEAT, 0));
    assert_eq!(r.list_begin(2, 1), (LIST_EARLY, 0));
    assert_eq!(r.take(72), Some((3, 0, 3)));
    assert_eq!(r.list_begin(1, 3), (LIST_OK, 1));
    assert!(r.list_push(22) && r.list_push(44));
    assert_eq!((r.count(), r.bytes()), (3, 73));
    assert_eq!(r.peek(2), Some((3, 44)));
    assert_eq!(r.give_up(2), 2);
    assert_eq!(r.give_up(9), 1);
    assert_eq!(r.take(1), None);
    // The answer to the recall counts as proof.
    for first in (1..).step_by(MAX_LIST as usize).take(2) {
        assert_eq!(r.list_begin(first, MAX_LIST).0, LIST_OK);
        (0..MAX_LIST).for_each(|_| assert!(r.list_push(1)));
        assert_eq!(r.take(5), Some((1, first, 1)).filter(|_| first == 1).or(Some((1, 2, 1))));
    }
    assert_eq!(r.list_begin(1 + 2 * MAX_LIST, MAX_LIST).0, LIST_EARLY);
    assert!(r.count() <= CREDITS_PER_QP);
}

#[test]
fn triggers_are_encoded_and_decoded() {
    for trigger in [Trigger::First, Trigger::Last, Trigger::Between(0), Trigger::Between(255)] {
        assert_eq!(Trigger::from_arg(trigger.to_arg()), trigger);
    }
    assert_eq!(Trigger::from_arg(3), Trigger::First);
    assert_eq!([Trigger::First, Trigger::Last, Trigger::Between(2)].map(|t| t.index(0)), [0; 3]);
    let (builder, reader) = (<Builder>::default(), <Reader>::default());
    assert_eq!((builder.trigger(), builder.fresh(), reader.next_out()), (Trigger::First, 0, 0));
    assert_eq!(CreditRow::default(), CreditRow::new());
}

#[test]
fn a_full_store_takes_no_more_and_unknown_operations_do_nothing() {
    let mut row = CreditRow::new();
    row.execute(CRD_ENABLE, 0, 0);
    for _ in 0..CREDITS_PER_QP {
        assert_eq!(row.execute(CRD_POST, 1, 0)[0], 0);
        assert!(row.reader.list_push(1));
    }
    assert_eq!(row.execute(CRD_POST, 1, 0), [1, 0, 0]);
    assert_eq!(row.execute(CRD_LIST_PUSH, 1, 0), [1, 0, 0]);
    assert_eq!(row.execute(CRD_LIST_BEGIN, CREDITS_PER_QP, 1), [LIST_OVERFLOW, 0, 0]);
    assert_eq!(row.execute(CRD_COUNT, 0, 0), [CREDITS_PER_QP, CREDITS_PER_QP, 0]);
    assert_eq!(row.execute(CRD_PEEK, CREDITS_PER_QP - 1, 0), [1 << 31, CREDITS_PER_QP - 1, 1]);
    assert_eq!(row.execute(CRD_PEEK, CREDITS_PER_QP, 0), [0; 3]);
    assert_eq!(row.execute(CRD_BUILDER, 0, 0), [CREDITS_PER_QP, 0, 0]);
    let before = row.clone();
    assert_eq!(row.execute(99, 1, 2), [0; 3]);
    assert_eq!(row, before);
    assert_eq!(row.execute(CRD_LIST_NEXT, 0, 0), [0; 3]);
}

#[test]
fn states_that_behave_alike_are_equal() {
    // What has passed through leaves nothing behind, but for the numbers, which come round.
    let mut b = Builder::<4, 2, 4>::new();
    let mut r = Reader::<4, 2, 4>::new();
    b.enable();
    let (fresh_b, fresh_r) = (b.clone(), r.clone());
    for _ in 0..16 {
        b.post(9);
        b.commit();
        let (first, len) = b.list_take().unwrap();
        assert_eq!(r.list_begin(first, len), (LIST_OK, 0));
        assert!(r.list_push(b.list_next()));
        assert_eq!(r.take(5), Some((5, first, 9)));
        assert!(b.landed());
    }
    assert_eq!(b, fresh_b);
    // The reader remembers that the last list is proven.
    assert!(r.proven() && fresh_r.proven());
    assert_eq!((r.expected(), r.next_out(), r.count()), (0, 0, 0));
}

proptest! {
    /// Whatever the order of posts, lists and data: numbers agree on both sides, nothing is
    /// sent without a credit, no list comes before its proof.
    #[test]
    fn cr_2_builder_and_reader_agree(
        ops in prop::collection::vec((0u8..6, 1u32..5000), 0..400),
        trigger in 0u32..3, index in 0u32..8, max_list in 1u32..=64,
    ) {
        let mut receiver = CreditRow::new();
        let mut sender = CreditRow::new();
        receiver.execute(CRD_RESET, max_list, trigger | index << 8);
        receiver.execute(CRD_ENABLE, 0, 0);
        let mut posted = std::collections::VecDeque::new();
        let mut used = 0u32;
        for (op, arg) in ops {
            match op {
                0 | 1 => {
                    if receiver.execute(CRD_POST, arg, 0)[0] == 0 {
                        posted.push_back(arg);
                    }
                    if op == 1 {
                        receiver.execute(CRD_COMMIT, 0, 0);
                    }
                }
                2 => {
                    let [no, first, len] = receiver.execute(CRD_LIST_TAKE, 0, 0);
                    if no == 0 {
                        prop_assert!(len >= 1 && len <= max_list);
                        prop_assert_eq!(sender.execute(CRD_LIST_BEGIN, first, len), [LIST_OK, 0, 0]);
                        for _ in 0..len {
                            let size = receiver.execute(CRD_LIST_NEXT, 0, 0)[0];
                            prop_assert_eq!(sender.execute(CRD_LIST_PUSH, size, 0)[0], 0);
                        }
                    }
                }
                3 | 4 => {
                    let [cut, number, size] = sender.execute(CRD_TAKE, arg, 0);
                    if cut >> 31 != 0 {
                        prop_assert_eq!(number, used);
                        prop_assert_eq!(Some(size), posted.pop_front());
                        prop_assert_eq!(cut & 0x7fff_ffff, size.min(arg));
                        used += 1;
                        prop_assert_eq!(receiver.execute(CRD_LANDED, 0, 0)[0], 0);
                    } else {
                        prop_assert_eq!(receiver.execute(CRD_LANDED, 0, 0)[0], 1);
                    }
                }
                _ => {
                    let first = sender.execute(CRD_GIVE_UP, arg % 8, 0)[0];
                    prop_assert_eq!(receiver.execute(CRD_VOID, first, 0)[0], 0);
                    posted.truncate((first - used) as usize);
                }
            }
        }
    }
}
