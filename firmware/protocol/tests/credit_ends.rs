// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Announcer and taker against each other, over a control path that loses, repeats and reorders.

mod common;
use berth_protocol::credit::announcer::{Announcer, Heard, Options, list_limit};
use berth_protocol::credit::entry::{Body, Entry, Name, Part};
use berth_protocol::credit::policy::{Cap, Kind, Policy, Settings};
use berth_protocol::credit::taker::{Arrived, Taker};
use proptest::prelude::*;
use std::collections::VecDeque;

const RECEIVER: Name = Name { qpn: 40, epoch: 0x1111 };
const SENDER: Name = Name { qpn: 16, epoch: 0x2222 };

/// A receiver and a sender of one direction of data; receives are posted again after a recall.
struct Ends<const ROOM: usize, const LIST: usize, const BITS: u32> {
    announcer: Announcer<ROOM, LIST, BITS>,
    taker: Taker<ROOM, LIST, BITS>,
    now: u64,
    /// Entries on their way: to the sender, to the receiver.
    control: [VecDeque<Entry<LIST>>; 2],
    /// Pieces on their way: (number, credit size, length).
    data: VecDeque<(u32, u32, u32)>,
    /// Receives that are credits, oldest first, and receives that are to be posted again.
    posted: VecDeque<(u32, u32)>,
    again: VecDeque<u32>,
    lists: Vec<Vec<u32>>,
    sent: Vec<u32>,
    landed: u64,
}

impl<const ROOM: usize, const LIST: usize, const BITS: u32> Ends<ROOM, LIST, BITS> {
    fn new(options: &Options) -> Self {
        let mut announcer = Announcer::new(options);
        let mut taker = Taker::new();
        announcer.connect(0, RECEIVER, SENDER);
        taker.connect(SENDER, RECEIVER);
        Self {
            announcer,
            taker,
            now: 0,
            control: [VecDeque::new(), VecDeque::new()],
            data: VecDeque::new(),
            posted: VecDeque::new(),
            again: VecDeque::new(),
            lists: Vec::new(),
            sent: Vec::new(),
            landed: 0,
        }
    }

    fn post(&mut self, sizes: &[u32]) {
        for size in sizes {
            self.again.push_back(*size);
        }
        self.post_again();
    }

    fn post_again(&mut self) {
        while !self.announcer.recalling()
            && let Some(size) = self.again.front()
            && let Some(number) = self.announcer.post(*size)
        {
            self.posted.push_back((number, *size));
            self.again.pop_front();
        }
        self.announcer.commit();
    }

    /// What both ends want to say goes on its way.
    fn talk(&mut self) {
        while let Some(entry) = self.announcer.poll(self.now) {
            if let Body::List(part) = entry.body {
                self.lists.push(part.sizes().to_vec());
            }
            self.control[0].push_back(entry);
        }
        while let Some(entry) = self.taker.poll() {
            self.control[1].push_back(entry);
        }
    }

    /// The entry at place `i` arrives.
    fn deliver(&mut self, to_receiver: bool, i: usize) {
        let Some(entry) = self.control[to_receiver as usize].remove(i) else {
            return;
        };
        if !to_receiver {
            let arrived = self.taker.arrive(&entry);
            assert!(
                !matches!(arrived, Arrived::Overflow | Arrived::Early | Arrived::Bad | Arrived::WrongEpoch),
                "{arrived:?} {entry:x?} {:x?}",
                self.taker
            );
            return;
        }
        match self.announcer.hear(&entry) {
            Heard::Voided(first) => {
                while let Some((number, size)) = self.posted.pop_back() {
                    if number.wrapping_sub(first) & 0xff > 0x80 {
                        self.posted.push_back((number, size));
                        break;
                    }
                    self.again.push_front(size);
                }
                self.post_again();
            }
            Heard::Bad | Heard::WrongEpoch => panic!("{entry:x?}"),
            _ => (),
        }
    }

    fn send(&mut self, remaining: u32) -> u32 {
        let Some((len, number, size)) = self.taker.take(remaining) else {
            return 0;
        };
        assert!(len <= size, "CR-2");
        self.data.push_back((number, size, len));
        self.sent.push(len);
        len
    }

    fn land(&mut self, remaining: Option<u32>) -> bool {
        let Some((number, size, len)) = self.data.pop_front() else {
            return false;
        };
        let posted = self.posted.pop_front();
        assert_eq!(posted, Some((number, size)), "credit and receive belong together");
        assert!(self.announcer.landed(self.now, remaining), "data without credit");
        self.announcer.wasted(self.now, size - len);
        self.landed += len as u64;
        true
    }
}

fn options(kind: Kind) -> Options {
    Options { policy: Settings::of(kind), repeat: 1000, ..Options::default() }
}

#[test]
fn cr_11_worked_example_with_next_and_rtrip() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    let step = |e: &mut Ends<128, 64, 32>| {
        e.talk();
        while !e.control[0].is_empty() {
            assert!(e.taker.buffer_posted(), "a list has a place");
            e.deliver(false, 0);
            assert!(!e.taker.buffer_posted());
            e.taker.process();
        }
    };
    assert_eq!(e.taker.take(72), None, "CR-3: held");
    e.post(&[3, 7]);
    assert_eq!(e.announcer.builder().next_unannounced(), Some(0));
    step(&mut e);
    assert_eq!((e.announcer.builder().rtrip(), e.announcer.builder().next_unannounced()), (Some(0), None));
    assert_eq!([e.send(72), e.send(69), e.send(62)], [3, 7, 0]);
    e.post(&[22]);
    e.post(&[44]);
    step(&mut e);
    assert_eq!(e.announcer.builder().next_unannounced(), Some(2));
    assert_eq!(e.lists, [vec![3, 7]]);
    e.land(Some(69));
    step(&mut e);
    assert_eq!((e.announcer.builder().rtrip(), e.announcer.builder().next_unannounced()), (Some(2), None));
    assert_eq!(e.send(62), 22);
    e.post(&[11]);
    step(&mut e);
    assert_eq!(e.announcer.builder().next_unannounced(), Some(4));
    assert_eq!([e.send(40), e.send(0)], [40, 0]);
    e.land(Some(62));
    step(&mut e);
    assert_eq!(e.lists.len(), 2);
    e.land(Some(40));
    assert_eq!(e.announcer.builder().rtrip(), None);
    step(&mut e);
    assert_eq!(e.lists, [vec![3, 7], vec![22, 44], vec![11]]);
    e.land(Some(0));
    assert_eq!((e.sent.clone(), e.landed), (vec![3, 7, 22, 40], 72));
}

#[test]
fn cr_1_posted_receives_become_credits_in_posting_order() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    let sizes = [9, 1, 500, 1, u32::MAX >> 1, 3];
    e.post(&sizes[..4]);
    e.post(&sizes[4..]);
    e.talk();
    assert_eq!(e.lists, [sizes.to_vec()]);
    e.deliver(false, 0);
    e.taker.process();
    let numbers: Vec<_> = (0..6).map(|i| e.taker.reader().peek(i).unwrap()).collect();
    assert_eq!(numbers, (0..6).zip(sizes).collect::<Vec<_>>());
    // Decision 5: a batch is announced when it is complete.
    assert_eq!(e.announcer.post(7), Some(6));
    e.send(9);
    e.land(None);
    e.talk();
    assert_eq!(e.lists.len(), 1);
    e.announcer.commit();
    e.talk();
    assert_eq!(e.lists[1], [7]);
}

#[test]
fn cr_3_without_a_credit_the_sender_holds_its_data_and_the_connection_lives() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    for round in 0..10 {
        for _ in 0..100 {
            assert_eq!(e.send(1000), 0);
            e.now += 1_000_000;
            e.talk();
        }
        assert!(e.control.iter().all(|q| q.is_empty()), "nothing is said, nothing is sent");
        e.post(&[10 + round]);
        e.talk();
        e.deliver(false, 0);
        e.taker.process();
        assert_eq!(e.send(1000), 10 + round);
        e.land(None);
    }
    assert!(!e.announcer.landed(e.now, None), "data without a credit is the sender's fault, and is seen");
}

#[test]
fn cr_4_the_longest_list_fits_the_packet_the_credit_buffer_and_half_the_store() {
    assert_eq!(list_limit(256, 16, 4096, 128), 60);
    assert_eq!(list_limit(4096, 16, 100, 128), 21);
    assert_eq!(list_limit(4096, 16, 4096, 128), 64);
    assert_eq!(list_limit(8, 16, 0, 0), 1);
    let mut e = Ends::<128, 64, 32>::new(&Options { max_list: 5, ..options(Kind::First) });
    e.post(&[1; 12]);
    e.talk();
    assert_eq!(e.lists, [vec![1; 5]]);
    e.deliver(false, 0);
    e.taker.process();
    e.send(1);
    e.land(None);
    e.talk();
    assert_eq!(e.lists, [vec![1; 5], vec![1; 5]]);
}

#[test]
fn cr_4_a_sender_without_credits_gets_a_list_whatever_the_policy() {
    for kind in
        [Kind::First, Kind::Last, Kind::Timed, Kind::Predictive, Kind::InBand, Kind::Adaptive, Kind::Quarters(2)]
    {
        let mut e = Ends::<128, 64, 32>::new(&options(kind));
        for round in 0..20 {
            e.post(&[10, 10, 10]);
            e.talk();
            assert_eq!(e.lists.len(), round + 1, "{kind:?}");
            e.deliver(false, 0);
            e.taker.process();
            for _ in 0..3 {
                e.now += 100;
                assert_eq!(e.send(1000), 10);
                e.land(Some(500));
            }
        }
    }
}

#[test]
fn decision_6_a_list_is_repeated_until_its_proof_and_the_repeat_is_ignored() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    e.post(&[5, 6]);
    e.talk();
    e.control[0].clear();
    e.talk();
    assert!(e.control[0].is_empty(), "not before its time");
    let at = e.announcer.deadline(e.now).unwrap();
    assert_eq!(at, 1000);
    e.now = at;
    e.talk();
    let first = e.control[0][0];
    assert_eq!(e.taker.accept(&first), Arrived::Buffered);
    assert_eq!(e.taker.accept(&first), Arrived::Repeat);
    assert_eq!(e.taker.reader().count(), 2);
    assert!(e.taker.buffer_posted());
    // Twice the time, as long as there is no proof.
    assert_eq!(e.announcer.deadline(e.now), Some(e.now + 2000));
    e.send(5);
    e.land(None);
    assert_eq!(e.announcer.deadline(e.now), None);
    e.control[0].clear();
    e.now += 100_000;
    e.talk();
    assert!(e.control[0].is_empty());
}

/// As RTL does (`berth_fp_builder`).
#[test]
fn f11_a_lost_list_is_said_again_after_two_round_trips_and_then_twice_as_late_each_time() {
    for (trip, pauses) in
        [(300, [600, 1200, 2400, 4800, 5000, 5000]), (10, [128, 256, 512, 1024, 2048, 4096]), (4000, [5000; 6])]
    {
        let options = Options { policy: Settings::of(Kind::First), repeat: 5000, probe: 128, ..Options::default() };
        let mut e = Ends::<128, 64, 32>::new(&options);
        e.post(&[5]);
        e.talk();
        // As long as no round trip is known.
        assert_eq!(e.announcer.deadline(e.now), Some(e.now + 5000));
        e.deliver(false, 0);
        e.taker.process();
        e.now += trip;
        e.send(5);
        e.land(None);
        e.post(&[6, 7]);
        e.talk();
        for pause in pauses {
            assert_eq!(e.announcer.deadline(e.now), Some(e.now + pause), "round trip {trip}");
            e.now += pause;
            e.talk();
        }
    }
}

/// Its credits in lists of their own; gives the time of the next repeat, if there is one.
fn lists_of(e: &mut Ends<128, 64, 32>) -> (Vec<usize>, Option<u64>) {
    e.talk();
    (std::mem::take(&mut e.lists).iter().map(Vec::len).collect(), e.announcer.repeat_at())
}

#[test]
fn f11_repeats_of_a_list_come_as_late_as_the_longest_time_and_no_later() {
    let policy = Settings::of(Kind::First);
    for (options, pauses) in [
        (Options { policy, repeat: 100, probe: 10, ..Options::default() }, vec![100; 9]),
        (Options { policy, repeat: 100, ..Options::default() }, vec![100, 200, 400, 800, 1600, 3200, 3200]),
        (Options { policy, repeat: u64::MAX, probe: 10, ..Options::default() }, vec![]),
    ] {
        let mut e = Ends::<128, 64, 32>::new(&options);
        e.post(&[5, 6]);
        assert_eq!(lists_of(&mut e).0, [2]);
        for pause in pauses {
            assert_eq!(e.announcer.repeat_at(), Some(e.now + pause));
            e.now += pause;
            assert_eq!(lists_of(&mut e).0, [2]);
        }
        e.now += 1 << 40;
        assert_eq!(lists_of(&mut e).0.len(), usize::from(options.repeat != u64::MAX));
        // Nor the next one, when the time is known.
        e.deliver(false, 0);
        e.taker.process();
        e.send(5);
        e.land(None);
        e.post(&[7]);
        e.talk();
        assert_eq!(e.announcer.repeat_at().is_some_and(|at| at < u64::MAX), options.repeat != u64::MAX);
    }
    // The time is that to the first data, whatever the trigger is.
    let policy = Settings::of(Kind::Last);
    let mut e = Ends::<128, 64, 32>::new(&Options { policy, repeat: 5000, probe: 10, ..Options::default() });
    e.post(&[5, 6]);
    e.talk();
    e.deliver(false, 0);
    e.taker.process();
    for (now, trip) in [(30, Some(30)), (1000, Some(30))] {
        e.now = now;
        e.send(5);
        e.land(None);
        assert_eq!(e.announcer.trip(), trip);
    }
}

#[test]
fn cr_4_few_new_credits_make_no_list_while_more_are_out() {
    let mut e = Ends::<128, 64, 32>::new(&Options { few: 2, ..options(Kind::First) });
    e.post(&[1; 5]);
    assert_eq!(lists_of(&mut e).0, [5]);
    e.deliver(false, 0);
    e.taker.process();
    e.send(1);
    e.land(None);
    e.post(&[1; 2]);
    assert_eq!(lists_of(&mut e), (vec![], None));
    assert_eq!(e.announcer.deadline(0), None);
    // One more is enough; and so are they when no more are out.
    let mut more = e.announcer.clone();
    more.post(1);
    more.commit();
    assert!(more.poll(0).is_some());
    for left in [3, 2] {
        assert_eq!(lists_of(&mut e).0.len(), 0, "{left} left");
        e.send(1);
        e.land(None);
    }
    assert_eq!(lists_of(&mut e).0, [2]);
}

#[test]
fn decision_19_lists_that_are_held_go_on_from_the_first_void_credit() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    e.post(&[1, 2, 3, 4]);
    assert_eq!(lists_of(&mut e).0, [4]);
    e.deliver(false, 0);
    e.taker.process();
    e.announcer.hold();
    e.send(1);
    e.land(None);
    e.post(&[5]);
    e.now += 100_000;
    assert_eq!(lists_of(&mut e), (vec![], None));
    assert_eq!(e.announcer.deadline(e.now), None);
    assert!(!e.announcer.void(0) && !e.announcer.void(5), "used, or never given");
    assert!(e.announcer.void(2));
    assert_eq!((e.announcer.builder().numbers(), e.announcer.outstanding_bytes()), ((2, 2, 1), 2));
    assert_eq!(e.announcer.post(9), Some(2));
    e.announcer.commit();
    assert_eq!(lists_of(&mut e), (vec![1], Some(e.now + 1000)));
}

#[test]
fn decision_17_receives_that_are_not_announced_are_no_credits_any_more() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    e.post(&[1, 2]);
    assert_eq!(lists_of(&mut e).0, [2]);
    e.post(&[3, 4]);
    e.announcer.unpost();
    assert_eq!(e.announcer.builder().numbers(), (2, 2, 0));
    // The last list stands, and is repeated.
    assert_eq!(lists_of(&mut e), (vec![], Some(1000)));
    e.now = 1000;
    assert_eq!(lists_of(&mut e).0, [2]);
    assert_eq!(e.announcer.post(9), Some(2));
}

#[test]
fn no_list_goes_after_the_end() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    e.post(&[1, 2]);
    assert_eq!(lists_of(&mut e).0, [2]);
    e.announcer.close();
    e.post(&[3]);
    e.now += 100_000;
    assert_eq!(lists_of(&mut e), (vec![], None));
    assert!(e.announcer.landed(e.now, None) && e.announcer.landed(e.now, None) && !e.announcer.landed(e.now, None));
    assert_eq!(lists_of(&mut e), (vec![], None));
}

#[test]
fn a_peer_without_lists_may_use_at_once_what_is_committed() {
    let mut a = Announcer::<128, 64, 32>::new(&options(Kind::First));
    for size in [1, 2, 3] {
        a.post(size);
    }
    a.announce_all();
    assert!(!a.landed(0, None));
    a.commit();
    a.announce_all();
    assert_eq!(a.builder().numbers(), (3, 3, 0));
    assert!((0..3).all(|now| a.landed(now, None)) && !a.landed(3, None));
    assert_eq!((a.poll(1 << 40), a.trip()), (None, None));
}

#[test]
fn decision_6_a_gap_is_held_until_it_is_filled() {
    let mut e = Ends::<128, 64, 32>::new(&Options { part: 2, ..options(Kind::First) });
    e.post(&[1, 2, 3, 4, 5]);
    e.talk();
    assert_eq!(e.lists, [vec![1, 2], vec![3, 4], vec![5]]);
    // The middle part is lost; the last one is held.
    e.deliver(false, 0);
    e.deliver(false, 1);
    e.taker.process();
    assert_eq!((e.taker.reader().count(), e.taker.reader().bytes()), (2, 3));
    e.control[0].clear();
    // Data that lands for the first part proves that one only: the next list may go, the rest is repeated.
    e.send(1);
    e.land(None);
    e.post(&[6]);
    e.talk();
    assert_eq!(e.lists.len(), 4, "{:?}", e.lists);
    e.deliver(false, 0);
    e.taker.process();
    assert_eq!(e.taker.reader().count(), 1, "the next list is held, too");
    assert!(!e.taker.buffer_posted());
    e.now += 1000;
    e.talk();
    assert_eq!(e.lists[4..], [vec![3, 4], vec![5], vec![6]]);
    e.deliver(false, 0);
    assert_eq!(e.taker.process(), 4);
    assert!(e.taker.buffer_posted());
    assert_eq!((0..6).map(|_| e.send(100)).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 0]);
}

#[test]
fn decision_6_wrong_epochs_and_queue_pairs_are_dropped_and_a_reconnect_voids_all_credits() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    e.post(&[5, 6]);
    e.talk();
    let entry = e.control[0][0];
    for to in [Name { epoch: 1, ..SENDER }, Name { qpn: 17, ..SENDER }] {
        assert_eq!(e.taker.accept(&Entry { to, ..entry }), Arrived::WrongEpoch);
    }
    assert_eq!(e.taker.accept(&entry), Arrived::Buffered);
    let sync = Entry { to: RECEIVER, body: Body::Sync { round: 0, next: 0 } };
    let stale = Entry { to: Name { epoch: 9, ..RECEIVER }, ..sync };
    assert_eq!(e.announcer.hear(&stale), Heard::WrongEpoch);
    let next = Name { epoch: 0x3333, ..SENDER };
    e.taker.connect(next, RECEIVER);
    assert_eq!(e.taker.take(1), None);
    assert_eq!(e.taker.accept(&entry), Arrived::WrongEpoch);
    let mut e2 = Announcer::<128, 64, 32>::new(&options(Kind::First));
    e2.connect(0, RECEIVER, next);
    e2.post(9);
    e2.commit();
    assert_eq!(e.taker.accept(&e2.poll(0).unwrap()), Arrived::Buffered);
    assert_eq!(e.taker.take(100), Some((9, 0, 9)));
}

#[test]
fn decision_6_after_control_loss_both_ends_agree_by_credit_number() {
    let mut e = Ends::<128, 64, 32>::new(&Options { part: 2, repeat: 1_000_000, ..options(Kind::First) });
    e.post(&[1, 2, 3, 4, 5]);
    e.talk();
    e.deliver(false, 0);
    e.taker.process();
    e.control[0].clear();
    // The control connection is back long before the repeat's time: the sender says what it has.
    e.taker.resync();
    e.talk();
    assert_eq!(e.control[1][0].body, Body::Sync { round: 0, next: 2 });
    e.deliver(true, 0);
    e.talk();
    assert_eq!(e.lists[3..], [vec![3, 4], vec![5]], "only what is missing");
    e.deliver(false, 0);
    e.deliver(false, 0);
    e.taker.process();
    assert_eq!(e.taker.reader().bytes(), 15);
    // One that has all is told nothing again.
    let all = Entry { to: RECEIVER, body: Body::Sync { round: 0, next: 5 } };
    assert_eq!(e.announcer.hear(&all), Heard::Synced);
    e.now += 10_000_000;
    e.talk();
    assert!(e.control[0].is_empty());
    // One that claims more than was announced is no sender of ours.
    let lie = Entry { to: RECEIVER, body: Body::Sync { round: 0, next: 6 } };
    assert_eq!(e.announcer.hear(&lie), Heard::Bad);
}

#[test]
fn decision_19_recall_gives_unused_credits_back_and_its_answer_is_the_proof() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::Last));
    e.post(&[10, 20, 30, 40]);
    e.talk();
    let list = e.control[0][0];
    e.deliver(false, 0);
    e.taker.process();
    assert_eq!(e.send(100), 10);
    assert!(e.announcer.recall(3));
    assert!(!e.announcer.recall(1), "one at a time");
    e.talk();
    assert_eq!(e.control[0][0].body, Body::Recall { round: 0, first: 1 });
    // It is repeated until it is answered; no list goes meanwhile.
    e.post(&[50]);
    e.now = 1000;
    e.talk();
    assert_eq!(e.control[0].len(), 2);
    // The sender uses one more meanwhile.
    assert_eq!(e.send(90), 20);
    let recall = e.control[0][0];
    e.deliver(false, 0);
    assert_eq!(e.taker.reader().count(), 0);
    e.deliver(false, 0);
    e.talk();
    assert_eq!(e.control[1].len(), 1, "the same answer");
    let answer = e.control[1][0];
    assert_eq!(answer.body, Body::Recalled { round: 0, first: 2 });
    assert_eq!(e.taker.accept(&list), Arrived::Stale, "made before the recall");
    e.deliver(true, 0);
    assert_eq!(e.announcer.outstanding_bytes(), 30);
    assert_eq!(e.announcer.hear(&answer), Heard::Repeat);
    // The next list does not wait for data of the one before.
    e.talk();
    assert_eq!(e.lists.last().unwrap(), &[30, 40, 50]);
    assert_eq!(e.taker.accept(&recall), Arrived::Recalled, "asked again, answered again");
    e.talk();
    e.deliver(true, 0);
    e.deliver(false, 0);
    e.taker.process();
    assert_eq!([e.send(70), e.send(40)], [30, 40]);
    while e.land(None) {}
    assert_eq!(e.landed, 100);
}

#[test]
fn decision_6_a_list_whose_parts_disagree_is_dropped() {
    let mut taker = Taker::<8, 4, 32>::default();
    taker.connect(SENDER, RECEIVER);
    let part = |total, offset| Entry {
        to: SENDER,
        body: Body::List(Part { round: 0, list: 0, total, offset, len: 1, sizes: [5, 0, 0, 0] }),
    };
    assert_eq!(taker.arrive(&part(4, 1)), Arrived::Buffered);
    assert_eq!(taker.arrive(&part(3, 0)), Arrived::Bad);
    assert_eq!(taker.arrive(&part(4, 1)), Arrived::Repeat);
    assert_eq!(taker.arrive(&part(4, 0)), Arrived::Buffered);
    assert_eq!(taker.process(), 2);
}

#[test]
fn ends_without_a_connection_say_nothing() {
    let mut announcer = <Announcer>::default();
    announcer.post(5);
    announcer.commit();
    assert_eq!((announcer.poll(0), announcer.deadline(0)), (None, None));
    assert!(!announcer.landed(0, None) && !announcer.recall(1));
    assert_eq!(
        (announcer.own(), announcer.policy().kind()),
        (Name::default(), Policy::new(Settings::default()).kind())
    );
    let mut taker = <Taker>::default();
    assert_eq!((taker.poll(), taker.take(1), taker.own()), (None, None, Name::default()));
    // An answer that nobody asked for.
    let answer = Entry { to: Name::default(), body: Body::Recalled { round: 0, first: 0 } };
    assert_eq!(announcer.hear(&answer), Heard::Repeat);
    assert_eq!(announcer.hear(&Entry { body: Body::Recall { round: 0, first: 0 }, ..answer }), Heard::Bad);
}

#[test]
fn decision_19_an_answer_that_keeps_more_than_there_is_is_refused() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    e.post(&[10, 20, 30, 40]);
    e.talk();
    assert!(e.announcer.recall(2));
    e.talk();
    let answer = |first| Entry { to: RECEIVER, body: Body::Recalled { round: 0, first } };
    assert_eq!(e.announcer.hear(&answer(5)), Heard::Bad);
    assert_eq!(e.announcer.hear(&answer(u32::MAX)), Heard::Bad);
    // Control traffic was lost: the recall is said again at once.
    let sync = Entry { to: RECEIVER, body: Body::Sync { round: 1, next: 0 } };
    e.control[0].clear();
    assert_eq!(e.announcer.hear(&sync), Heard::Synced);
    assert_eq!(e.announcer.deadline(e.now), Some(e.now));
    e.talk();
    assert_eq!(e.control[0].len(), 1);
    assert_eq!(e.announcer.hear(&answer(1)), Heard::Voided(1));
    assert_eq!(e.announcer.hear(&Entry { body: Body::Sync { round: 0, next: 0 }, ..sync }), Heard::Repeat);
}

#[test]
fn decision_19_recall_in_bytes_takes_the_newest() {
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    assert!(!e.announcer.recall_bytes(1));
    e.post(&[10, 20, 30, 40]);
    e.talk();
    assert!(e.announcer.recall_bytes(41));
    assert!(e.announcer.recalling());
    e.talk();
    assert_eq!(e.control[0][1].body, Body::Recall { round: 0, first: 2 });
    let mut e = Ends::<128, 64, 32>::new(&options(Kind::First));
    e.post(&[10, 20, 30, 40]);
    e.talk();
    assert!(!e.announcer.recalling() && e.announcer.recall_bytes(40));
    e.talk();
    assert_eq!(e.control[0][1].body, Body::Recall { round: 0, first: 3 }, "no more than it takes");
}

#[test]
fn cr_10_what_a_piece_wasted_may_be_announced_at_once() {
    // A byte in each unit of time, 100 at once.
    let cap = Some(Cap::new(1_000_000, 1_000_000, 100));
    let mut e = Ends::<128, 64, 32>::new(&Options { cap, ..options(Kind::First) });
    e.post(&[100, 60, 30]);
    e.talk();
    e.deliver(false, 0);
    e.taker.process();
    assert_eq!((e.lists.clone(), e.send(40)), (vec![vec![100]], 40));
    let (number, size, len) = e.data[0];
    assert_eq!((number, size, len), (0, 100, 40));
    // It has landed, and is paid for as a whole as long as nobody says how much of it was used.
    assert!(e.announcer.landed(0, None));
    e.talk();
    assert_eq!(e.lists.len(), 1);
    e.announcer.wasted(0, size - len);
    e.talk();
    assert_eq!(e.lists, [vec![100], vec![60]]);
}

#[test]
fn cr_11_a_receiver_that_does_not_wait_is_refused_and_nothing_is_lost() {
    let mut taker = Taker::<8, 4, 32>::new();
    taker.connect(SENDER, RECEIVER);
    let part = |list, sizes: [u32; 4], len| Entry {
        to: SENDER,
        body: Body::List(Part { round: 0, list, total: len, offset: 0, len, sizes }),
    };
    assert_eq!(taker.arrive(&part(0, [5, 6, 0, 0], 2)), Arrived::Buffered);
    assert_eq!(taker.arrive(&part(2, [7, 0, 0, 0], 1)), Arrived::Overflow, "no buffer is posted yet");
    assert_eq!(taker.process(), 2);
    assert_eq!(taker.arrive(&part(2, [7, 0, 0, 0], 1)), Arrived::Early);
    assert_eq!(taker.take(9), Some((5, 0, 5)));
    assert_eq!(taker.accept(&part(2, [7, 0, 0, 0], 1)), Arrived::Buffered);
    // Lies about lists: none is taken, what is there stays.
    assert_eq!(taker.take(9), Some((6, 1, 6)));
    assert_eq!(taker.take(9), Some((7, 2, 7)));
    for bad in [part(3, [0; 4], 0), part(3, [1; 4], 5), part(3, [1, 2, 3, 4], 2)] {
        assert_eq!(taker.accept(&bad), Arrived::Bad);
    }
    assert_eq!(taker.accept(&part(1, [9; 4], 4)), Arrived::Bad, "overlaps what is known");
    assert_eq!(taker.accept(&part(3, [8, 0, 0, 0], 1)), Arrived::Buffered);
    assert_eq!(taker.take(9), Some((8, 3, 8)));
    assert_eq!(taker.accept(&Entry { to: SENDER, body: Body::Sync { round: 0, next: 0 } }), Arrived::Bad);
}

#[test]
fn entries_survive_encoding_and_bad_records_are_refused() {
    let mut sizes = [0; 8];
    sizes[..3].copy_from_slice(&[1, 2, u32::MAX]);
    let bodies = [
        Body::List(Part { round: 7, list: 0xfedc_ba98, total: 8, offset: 5, len: 3, sizes }),
        Body::Recall { round: 255, first: 1 },
        Body::Recalled { round: 0, first: u32::MAX },
        Body::Sync { round: 3, next: 9 },
    ];
    for body in bodies {
        let entry = Entry::<8> { to: Name { qpn: 0xffff, epoch: 0x8000_0001 }, body };
        let mut words = [0xdead; 16];
        let n = entry.encode(&mut words).unwrap();
        assert_eq!(n, entry.words());
        assert_eq!(Entry::decode(&words), Some((entry, n)));
        assert_eq!(entry.encode(&mut words[..n - 1]), None);
        assert_eq!(Entry::<8>::decode(&words[..n - 1]), None);
        for (word, bits) in [(0, 0xff), (0, 0xff00), (2, 0xff00_0000)] {
            let mut bad = words;
            bad[word] ^= bits;
            assert_eq!(Entry::<8>::decode(&bad), None, "{word} {bits:x}");
        }
    }
    assert_eq!(Entry::<8>::decode(&[]), None);
    // A list that is longer than the reader's lists.
    let long = Entry::<8> { to: SENDER, body: bodies[0] };
    let mut words = [0; 16];
    long.encode(&mut words).unwrap();
    assert_eq!(Entry::<4>::decode(&words), None);
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::First),
        Just(Kind::Last),
        (0u8..9).prop_map(Kind::Between),
        any::<u8>().prop_map(Kind::Quarters),
        Just(Kind::Adaptive),
        Just(Kind::Timed),
        Just(Kind::Predictive),
        Just(Kind::InBand),
    ]
}

/// Random operations, then everything is delivered until all data has landed.
fn random<const ROOM: usize, const LIST: usize, const BITS: u32>(
    ops: Vec<(u8, u32)>,
    options: &Options,
) -> Result<(), TestCaseError> {
    let mut e = Ends::<ROOM, LIST, BITS>::new(options);
    let mut todo = 3000u32;
    let mut act = |e: &mut Ends<ROOM, LIST, BITS>, op: u8, arg: u32| {
        let i = arg as usize;
        match op {
            0 => e.post(&vec![1 + arg % 97; 1 + i % LIST]),
            1 => e.talk(),
            2 | 3 => e.deliver(false, i % e.control[0].len().max(1)),
            4 => e.deliver(true, i % e.control[1].len().max(1)),
            5 => {
                // Lost.
                let q = &mut e.control[i & 1];
                q.remove((i >> 1) % q.len().max(1));
            }
            6 => {
                // Twice, in some order. Few, so that numbers do not come round.
                let q = &mut e.control[i & 1];
                if q.len() < 3
                    && let Some(entry) = q.get((i >> 1) % q.len().max(1)).copied()
                {
                    q.push_front(entry);
                }
            }
            7 | 8 if todo > 0 => todo -= e.send(todo),
            9 | 10 => {
                e.land(Some(todo));
            }
            11 => e.now += arg as u64,
            12 => {
                e.taker.process();
            }
            13 if arg.is_multiple_of(3) => {
                e.announcer.recall(arg % 5);
            }
            14 if arg.is_multiple_of(3) => e.taker.resync(),
            _ => (),
        }
    };
    for (op, arg) in ops {
        act(&mut e, op, arg);
    }
    // Whatever has happened: when the receiver keeps posting the sender finishes.
    for round in 0..20_000u32 {
        if e.landed == 3000 {
            prop_assert!(e.announcer.outstanding_bytes() <= u64::from(u32::MAX));
            return Ok(());
        }
        if e.again.is_empty() {
            act(&mut e, 0, round % 101);
        }
        act(&mut e, 1, 0);
        while e.control.iter().any(|q| !q.is_empty()) {
            for op in [4, 2, 12, 1] {
                act(&mut e, op, 0);
            }
        }
        for op in [7, 9, 1] {
            act(&mut e, op, 0);
        }
        e.post_again();
        e.now = e.announcer.deadline(e.now).unwrap_or(e.now).max(e.now + 1);
    }
    prop_assert!(false, "no end: {:x?} {:x?}", e.announcer, e.taker);
    Ok(())
}

proptest! {
    #![proptest_config(common::config(256))]

    #[test]
    fn decision_6_lists_that_are_lost_repeated_and_reordered_lose_and_double_no_credit(
        ops in prop::collection::vec((0u8..15, 0u32..3000), 0..600),
        kind in kinds(), part in 1u32..65, max_list in 1u32..65,
    ) {
        random::<128, 64, 32>(ops, &Options { part, max_list, ..options(kind) })?;
    }

    #[test]
    fn decision_6_the_same_with_the_sizes_of_a_model_checker(
        ops in prop::collection::vec((0u8..15, 0u32..3000), 0..600),
        kind in kinds(), part in 1u32..4, cap in any::<bool>(),
    ) {
        let cap = cap.then(|| Cap::new(1_000_000, 1_000_000, 60));
        random::<8, 4, 8>(ops, &Options { part, cap, ..options(kind) })?;
    }
}
