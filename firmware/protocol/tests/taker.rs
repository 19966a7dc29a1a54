// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sender's end of a credit connection alone: lists in parts, gaps, and credits that are wanted back.

use berth_protocol::credit::entry::{Body, Entry, Name, Part};
use berth_protocol::credit::taker::{Arrived, Taker};

const OWN: Name = Name { qpn: 3, epoch: 7 };
const PEER: Name = Name { qpn: 4, epoch: 9 };

type Small = Taker<16, 8, 8>;

fn taker() -> Small {
    let mut t = Small::new();
    t.connect(OWN, PEER);
    t
}

/// Sizes `offset + 1` and so on of a list of `total` credits from number `list` on.
fn part(round: u8, list: u32, total: u8, offset: u8, len: u8) -> Entry<8> {
    let mut sizes = [0; 8];
    (0..len).for_each(|i| sizes[i as usize] = list + u32::from(offset + i) + 1);
    Entry { to: OWN, body: Body::List(Part { round, list, total, offset, len, sizes }) }
}

fn recall(round: u8, first: u32) -> Entry<8> {
    Entry { to: OWN, body: Body::Recall { round, first } }
}

fn recalled(round: u8, first: u32) -> Option<Entry<8>> {
    Some(Entry { to: PEER, body: Body::Recalled { round, first } })
}

#[test]
fn decision_19_a_recall_forgets_what_waits_behind_a_gap_and_is_answered_each_time_it_is_asked() {
    let mut t = taker();
    assert!(t.buffer_posted() && !t.wants_to_send() && t.poll().is_none());
    assert_eq!(t.accept(&part(0, 0, 4, 2, 2)), Arrived::Buffered);
    assert_eq!(t.reader().count(), 0, "held until the gap is filled");
    assert_eq!(t.accept(&recall(0, 0)), Arrived::Recalled);
    assert!(t.wants_to_send() && t.buffer_posted());
    assert_eq!((t.poll(), t.poll(), t.wants_to_send()), (recalled(0, 0), None, false));
    // The answer was lost.
    assert_eq!(t.accept(&recall(0, 0)), Arrived::Recalled);
    assert_eq!(t.poll(), recalled(0, 0));
    assert_eq!(t.accept(&recall(2, 0)), Arrived::Stale);
    // What was said before is void, and numbers are used again.
    assert_eq!(t.accept(&part(0, 0, 4, 0, 2)), Arrived::Stale);
    assert_eq!(t.accept(&part(1, 0, 3, 0, 3)), Arrived::Buffered);
    assert_eq!((t.reader().count(), t.reader().bytes()), (3, 6));
    t.resync();
    assert!(t.wants_to_send());
    assert_eq!(t.poll(), Some(Entry { to: PEER, body: Body::Sync { round: 1, next: 3 } }));
}

#[test]
fn decision_19_a_recall_keeps_the_credits_before_it_though_they_were_not_looked_at_yet() {
    let mut t = taker();
    assert_eq!(t.arrive(&part(0, 0, 4, 0, 4)), Arrived::Buffered);
    assert_eq!(t.accept(&recall(0, 2)), Arrived::Recalled);
    assert_eq!(t.poll(), recalled(0, 2));
    assert_eq!((t.take(9), t.take(9), t.take(9)), (Some((1, 0, 1)), Some((2, 1, 2)), None));
    // One for credits that have been used gets what is there.
    assert_eq!(t.accept(&part(1, 2, 2, 0, 2)), Arrived::Buffered);
    t.take(1);
    assert_eq!(t.accept(&recall(1, 2)), Arrived::Recalled);
    assert_eq!(t.poll(), recalled(1, 3));
}

#[test]
fn decision_6_the_next_list_may_come_before_the_last_part_of_the_one_before_it() {
    let mut t = taker();
    assert_eq!(t.accept(&part(0, 0, 4, 0, 2)), Arrived::Buffered);
    assert_eq!(t.accept(&part(0, 4, 2, 0, 2)), Arrived::Early, "nothing of it has been used");
    assert_eq!(t.take(1), Some((1, 0, 1)));
    assert_eq!(t.accept(&part(0, 4, 2, 0, 1)), Arrived::Buffered);
    assert!(!t.buffer_posted());
    assert_eq!(t.accept(&part(0, 6, 1, 0, 1)), Arrived::Overflow);
    assert_eq!((t.reader().count(), t.reader().expected()), (1, 2));
    // The part that was missing brings both lists, as far as they are there.
    assert_eq!(t.accept(&part(0, 0, 4, 2, 2)), Arrived::Buffered);
    assert_eq!(t.reader().expected(), 5);
    assert!(t.buffer_posted());
    assert_eq!(t.accept(&part(0, 0, 4, 2, 2)), Arrived::Repeat);
    assert_eq!(t.accept(&part(0, 4, 3, 1, 1)), Arrived::Bad, "another length");
    for number in 1..4 {
        assert_eq!(t.take(1).map(|c| c.1), Some(number));
    }
    assert_eq!(t.accept(&part(0, 4, 2, 1, 1)), Arrived::Buffered);
    assert_eq!((t.reader().expected(), t.reader().count(), t.reader().bytes()), (6, 2, 11));
}

#[test]
fn cr_11_a_list_is_taken_whatever_its_number_and_however_its_parts_come() {
    let mut t = taker();
    let mut first = 0;
    // All numbers come round several times.
    for round in 0..200u32 {
        let (total, cut) = ((round % 8 + 1) as u8, (round % 3) as u8);
        let cut = cut.min(total - 1);
        if cut > 0 {
            assert_eq!(t.accept(&part(0, first, total, cut, total - cut)), Arrived::Buffered);
            assert_eq!(t.reader().count(), 0);
        }
        let head = if cut > 0 { cut } else { total };
        assert_eq!(t.accept(&part(0, first, total, 0, head)), Arrived::Buffered);
        assert_eq!(t.reader().count(), u32::from(total));
        for i in 0..u32::from(total) {
            let number = (first + i) & 0xff;
            assert_eq!(t.take(u32::MAX).map(|c| (c.1, c.2)), Some((number, first + i + 1)));
        }
        assert_eq!(t.accept(&part(0, first, total, 0, head)), Arrived::Repeat);
        first = (first + u32::from(total)) & 0xff;
    }
}
