// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builder and reader of credit lists: the golden model of RTL's.

use berth_abi::card::{CREDITS_PER_QP, MAX_LIST};
use berth_abi::cpu::*;
use berth_protocol::credit::list::{Builder, Reader, Trigger};
use proptest::prelude::*;

fn builder(trigger: Trigger) -> Builder {
    let mut b = <Builder>::new();
    b.reset(MAX_LIST, trigger);
    b.enable();
    b
}

fn post<const ROOM: usize, const LIST: usize, const BITS: u32>(b: &mut Builder<ROOM, LIST, BITS>, sizes: &[u32]) {
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
    assert!(!b.ready());
    post(&mut b, &[2]);
    assert!(b.ready());
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
        assert_eq!(r.take(5), (first == 1).then_some((1, first, 1)).or(Some((1, 2, 1))));
    }
    assert_eq!(r.list_begin(1 + 2 * MAX_LIST, MAX_LIST).0, LIST_EARLY);
    assert!(r.count() <= CREDITS_PER_QP);
}

#[test]
fn triggers_are_encoded_and_decoded() {
    let of_an_index = [Trigger::Between(0), Trigger::Between(255), Trigger::Quarters(3), Trigger::Behind(255)];
    for trigger in [Trigger::First, Trigger::Last].into_iter().chain(of_an_index) {
        assert_eq!(Trigger::from_arg(trigger.to_arg(), false), trigger);
        assert_eq!(trigger.index(0), 0);
    }
    let seven = |bounded| [0, 1, 2, 3, 4, 5, 6].map(|kind| Trigger::from_arg(kind | 7 << 8, bounded));
    let always = [Trigger::First, Trigger::Last, Trigger::Between(7)];
    assert_eq!(seven(false)[..3], always);
    assert_eq!(seven(false)[3..], [Trigger::Between(7), Trigger::Quarters(3), Trigger::Behind(7), Trigger::First]);
    assert_eq!((seven(true)[..3].to_vec(), seven(true)[3..].to_vec()), (always.to_vec(), vec![Trigger::First; 4]));
    assert_eq!([0, 1, 2, 3].map(|quarters| Trigger::Quarters(quarters).index(9)), [0, 2, 4, 6]);
    assert_eq!([0, 3, 8, 9].map(|behind| Trigger::Behind(behind).index(9)), [8, 5, 0, 0]);
    let (builder, reader) = (<Builder>::default(), <Reader>::default());
    assert_eq!((builder.trigger(), builder.fresh(), reader.next_out()), (Trigger::First, 0, 0));
}

#[test]
fn a_full_store_takes_no_more() {
    let (mut b, mut r) = (<Builder>::new(), <Reader>::new());
    b.enable();
    for n in 0..CREDITS_PER_QP {
        assert_eq!(b.post(1), Some(n));
        assert!(r.list_push(1));
    }
    assert_eq!(b.post(1), None);
    assert!(!r.list_push(1));
    assert_eq!(r.list_begin(CREDITS_PER_QP, 1), (LIST_OVERFLOW, 0));
    assert_eq!((r.count(), r.bytes()), (CREDITS_PER_QP, CREDITS_PER_QP));
    assert_eq!(r.peek(CREDITS_PER_QP - 1), Some((CREDITS_PER_QP - 1, 1)));
    assert_eq!(r.peek(CREDITS_PER_QP), None);
    assert_eq!((b.numbers(), b.list_next()), ((CREDITS_PER_QP, 0, 0), 0));
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
        trigger in 0u32..6, index in 0u32..8, max_list in 1u32..=64,
    ) {
        let (mut receiver, mut sender) = (<Builder>::new(), <Reader>::new());
        receiver.reset(max_list, Trigger::from_arg(trigger | index << 8, false));
        receiver.enable();
        let mut posted = std::collections::VecDeque::new();
        let mut used = 0u32;
        for (op, arg) in ops {
            match op {
                0 | 1 => {
                    if receiver.post(arg).is_some() {
                        posted.push_back(arg);
                    }
                    if op == 1 {
                        receiver.commit();
                    }
                }
                2 => {
                    if let Some((first, len)) = receiver.list_take() {
                        prop_assert!(len >= 1 && len <= max_list);
                        prop_assert_eq!(sender.list_begin(first, len), (LIST_OK, 0));
                        for _ in 0..len {
                            prop_assert!(sender.list_push(receiver.list_next()));
                        }
                    }
                }
                3 | 4 => match sender.take(arg) {
                    Some((cut, number, size)) => {
                        prop_assert_eq!(number, used);
                        prop_assert_eq!(Some(size), posted.pop_front());
                        prop_assert_eq!(cut, size.min(arg));
                        used += 1;
                        prop_assert!(receiver.landed());
                    }
                    None => prop_assert!(!receiver.landed()),
                },
                _ => {
                    let first = sender.give_up(arg % 8);
                    prop_assert!(receiver.void(first));
                    posted.truncate((first - used) as usize);
                }
            }
        }
    }
}

/// The builder's rules with numbers that never wrap, and sizes that are never thrown away.
#[derive(Default)]
struct Plain {
    sizes: Vec<u32>,
    committed: usize,
    announced: usize,
    landed: usize,
    /// The last list: its first credit, and the one that triggers the next list.
    list: Option<(usize, usize)>,
    trigger: Trigger,
    /// Sizes of the last list that are still to be read.
    unread: std::ops::Range<usize>,
}

const FEW: usize = 8;
const SHORT: usize = 4;
type Small = Builder<FEW, SHORT, 5>;

impl Plain {
    fn settle(&mut self) {
        self.list = self.list.filter(|&(first, trigger)| self.landed <= first.max(trigger));
    }

    fn ready(&self) -> bool {
        self.committed > self.announced && self.unread.is_empty() && self.list.is_none()
    }

    fn take(&mut self, max_list: usize, most: usize) -> Option<(usize, usize)> {
        let len = (self.committed - self.announced).min(max_list).min(most);
        if !self.ready() || len == 0 {
            return None;
        }
        let first = self.announced;
        self.announced += len;
        self.list = Some((first, first + self.trigger.index(len as u32) as usize));
        self.unread = first..self.announced;
        Some((first, len))
    }

    fn void(&mut self, first: usize) {
        self.sizes.truncate(first);
        (self.committed, self.announced, self.list, self.unread) = (first, first, None, 0..0);
    }
}

proptest! {
    /// A builder with five-bit numbers and eight places says the same as one with numbers without end.
    #[test]
    fn cr_11_numbers_that_wrap_say_the_same_as_numbers_that_do_not(
        ops in prop::collection::vec((0u8..12, 0u32..9), 0..300), max_list in 0u32..7, kind in 0u32..6, index in 0u32..5,
    ) {
        let mut b = Small::new();
        b.reset(max_list, Trigger::from_arg(kind | index << 8, false));
        b.enable();
        let mut p = Plain { trigger: Trigger::from_arg(kind | index << 8, false), ..Plain::default() };
        let max_list = max_list.clamp(1, SHORT as u32) as usize;
        for (op, arg) in ops {
            match op {
                0..=2 => {
                    let posted = b.post(arg);
                    prop_assert_eq!(posted.is_some(), p.sizes.len() - p.landed < FEW);
                    if posted.is_some() {
                        prop_assert_eq!(posted, Some(p.sizes.len() as u32 % 32));
                        p.sizes.push(arg);
                    }
                }
                3 => {
                    b.commit();
                    p.committed = p.sizes.len();
                }
                4 | 5 => {
                    let taken = b.list_take_most(arg);
                    prop_assert_eq!(taken, p.take(max_list, arg as usize).map(|(first, len)| (first as u32 % 32, len as u32)));
                }
                6 | 7 => prop_assert_eq!(b.list_next(), p.unread.next().map_or(0, |i| p.sizes[i])),
                // A peer lands data for what it was told, so all sizes are read.
                8 | 9 if !p.unread.is_empty() => (),
                8 | 9 => {
                    prop_assert_eq!(b.landed(), p.landed < p.announced);
                    p.landed = (p.landed + 1).min(p.announced);
                    p.settle();
                }
                10 => {
                    let first = (p.landed + arg as usize).saturating_sub(1);
                    let good = (p.landed..=p.announced).contains(&first);
                    // Sizes are read before anything is taken back.
                    if !good || p.unread.is_empty() || arg % 2 == 0 {
                        prop_assert_eq!(b.void(first as u32 % 32), good);
                        if good {
                            p.void(first);
                        }
                    }
                }
                _ => {
                    let trigger = Trigger::from_arg((arg % 3) | ((arg / 3) << 8), false);
                    b.set_trigger(trigger);
                    p.trigger = trigger;
                    if arg % 3 == 0 {
                        b.skip_trigger();
                        p.list = p.list.map(|(first, _)| (first, first));
                        p.settle();
                    }
                }
            }
            prop_assert_eq!(b.ready(), p.ready());
            let numbers = (p.sizes.len() as u32 % 32, p.announced as u32 % 32, p.landed as u32 % 32);
            prop_assert_eq!(b.numbers(), numbers);
            prop_assert_eq!(b.outstanding() as usize, p.announced - p.landed);
            prop_assert_eq!(b.fresh() as usize, p.committed - p.announced);
            prop_assert_eq!(b.rtrip(), p.list.filter(|l| p.landed <= l.0).map(|l| l.0 as u32 % 32));
            prop_assert_eq!(b.next_unannounced(), (p.sizes.len() > p.announced).then_some(numbers.1));
            for number in p.landed.saturating_sub(1)..p.sizes.len() + 2 {
                let live = (p.landed..p.sizes.len()).contains(&number);
                prop_assert_eq!(b.size_of(number as u32 % 32), live.then(|| p.sizes[number]));
            }
        }
        // What is taken back leaves nothing behind but the numbers.
        prop_assert!(b.void(p.landed as u32 % 32));
        while b.numbers().2 != 0 {
            post(&mut b, &[1]);
            b.list_take().unwrap();
            b.list_next();
            b.landed();
        }
        let mut fresh = Small::new();
        fresh.reset(max_list as u32, p.trigger);
        fresh.enable();
        prop_assert_eq!(b, fresh);
    }

    /// The same of a reader: what lists it takes, and what it holds.
    #[test]
    fn cr_11_a_reader_with_numbers_that_wrap_takes_the_same_lists(
        ops in prop::collection::vec((0u8..8, 0usize..32, 0u32..9), 0..300),
    ) {
        let mut r = Reader::<FEW, SHORT, 5>::new();
        let (mut held, mut next_in) = (std::collections::VecDeque::new(), 0usize);
        let mut open: Option<usize> = None;
        let mut due = 0;
        for (op, at, arg) in ops {
            let next_out = next_in - held.len();
            match op {
                0..=2 => {
                    // From six before the number that is expected to six behind it.
                    let first = (next_in + at % 13).saturating_sub(6);
                    let len = arg.min(SHORT as u32 + 1) as usize;
                    let skip = next_in.saturating_sub(first);
                    let expected = match len {
                        0 => LIST_BAD,
                        _ if len > SHORT => LIST_BAD,
                        _ if first + len <= next_in => LIST_REPEAT,
                        _ if first > next_in => LIST_GAP,
                        _ if open.is_some_and(|list| next_out <= list) => LIST_EARLY,
                        _ if held.len() + len - skip > FEW => LIST_OVERFLOW,
                        _ => LIST_OK,
                    };
                    let good = expected == LIST_OK;
                    let answer = r.list_begin(first as u32 % 32, len as u32);
                    prop_assert_eq!(answer, (expected, if good { skip as u32 } else { 0 }));
                    if good {
                        open = Some(first);
                        due = len - skip;
                    }
                }
                3 | 4 => {
                    for _ in 0..due {
                        prop_assert!(r.list_push(arg * 7));
                        held.push_back(arg * 7);
                        next_in += 1;
                    }
                    due = 0;
                }
                5 | 6 => {
                    let taken = held.pop_front();
                    let expected = taken.map(|size| (size.min(arg * 5), next_out as u32 % 32, size));
                    prop_assert_eq!(r.take(arg * 5), expected);
                }
                _ => {
                    let kept = next_in - (arg as usize).min(held.len());
                    prop_assert_eq!(r.give_up(arg), kept as u32 % 32);
                    held.truncate(held.len() - (next_in - kept));
                    (next_in, open, due) = (kept, None, 0);
                }
            }
            let next_out = next_in - held.len();
            prop_assert_eq!((r.expected(), r.next_out()), (next_in as u32 % 32, next_out as u32 % 32));
            prop_assert_eq!((r.count() as usize, r.bytes()), (held.len(), held.iter().sum::<u32>()));
            prop_assert_eq!(r.proven(), open.is_none_or(|list| next_out > list));
            for i in 0..held.len() as u32 + 1 {
                let expected = held.get(i as usize).map(|size| ((next_out as u32 + i) % 32, *size));
                prop_assert_eq!(r.peek(i), expected);
            }
        }
        r.give_up(u32::MAX);
        let mut fresh = Reader::<FEW, SHORT, 5>::new();
        while fresh.next_out() != r.next_out() {
            assert!(fresh.list_push(1) && fresh.take(1).is_some());
        }
        prop_assert_eq!(r, fresh);
    }
}

#[test]
fn cr_11_a_number_comes_after_those_of_the_half_before_it() {
    type Five = berth_protocol::credit::list::Seq<5>;
    for a in 0..32 {
        for b in 0..32 {
            assert_eq!(Five::after(a, b), (1..16).contains(&((32 + a - b) % 32)), "{a} after {b}");
        }
    }
}

#[test]
fn a_builder_that_is_reset_is_a_new_one() {
    let mut b = builder(Trigger::First);
    post(&mut b, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(b.list_take(), Some((0, 8)));
    b.reset(MAX_LIST, Trigger::First);
    assert_eq!(b, <Builder>::new());
}

#[test]
fn cr_2_a_piece_has_31_bits_of_length() {
    let mut r = <Reader>::new();
    assert!(r.list_push(u32::MAX) && r.list_push(1 << 31));
    assert_eq!(r.take(u32::MAX), Some((0x7fff_ffff, 0, u32::MAX)));
    assert_eq!(r.take(u32::MAX), Some((0, 1, 1 << 31)));
}

#[test]
fn a_list_that_fills_the_store_is_taken_and_one_that_is_longer_is_not() {
    // Seven places of eight are taken; what a list repeats takes none.
    for (first, len, answer) in
        [(7, 1, (LIST_OK, 0)), (7, 2, (LIST_OVERFLOW, 0)), (6, 2, (LIST_OK, 1)), (6, 3, (LIST_OVERFLOW, 0))]
    {
        let mut r = Reader::<8, 4, 5>::new();
        (0..7).for_each(|_| assert!(r.list_push(1)));
        assert_eq!(r.list_begin(first, len), answer);
    }
}
