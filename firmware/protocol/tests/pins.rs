// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pinned pages: what is counted, who waits, and what is let go, rule by rule (PC-3; decisions 17 to 19).

use berth_protocol::memory::context::Span;
use berth_protocol::memory::pins::{Answer, Config, PinError, Pins, Request, Served, Usage};

type Table = Pins<8, 3, 4>;

const A: u16 = 1;
const B: u16 = 2;
const LINGER: u64 = 10;

/// Two processes, on a card that may pin `budget` pages.
fn table(budget: u32, reserve: u32, of_a: u32, of_b: u32) -> Table {
    let mut pins = Pins::new(Config { budget, reserve, lend: false, page_shift: 12, linger: LINGER });
    assert!(pins.open(A, of_a) && pins.open(B, of_b));
    pins
}

fn brief(asid: u16, tag: u16) -> Request {
    Request { owner: 0, tag, asid, usage: Usage::Brief }
}

fn lasting(asid: u16, tag: u16) -> Request {
    Request { usage: Usage::Lasting, ..brief(asid, tag) }
}

/// The first bytes of some pages.
fn pages(numbers: &[u64]) -> Vec<Span> {
    numbers.iter().map(|n| Span { va: n << 12, len: 100 }).collect()
}

fn ask(pins: &mut Table, r: &Request, numbers: &[u64]) -> Answer {
    pins.acquire(r, pages(numbers).into_iter(), false)
}

/// Asks, and the pages come at once.
fn hold(pins: &mut Table, r: &Request, numbers: &[u64]) {
    assert!(matches!(ask(pins, r, numbers), Answer::Serve { .. } | Answer::Hit), "{r:?}");
    assert_eq!(pins.served(r, pages(numbers).into_iter(), false, 0), Served::Held);
}

fn release(pins: &mut Table, r: &Request, numbers: &[u64], now: u64) -> bool {
    pins.release(r, pages(numbers).into_iter(), now)
}

/// Asks, the pages come, and linger from `now` on.
fn linger(pins: &mut Table, asid: u16, numbers: &[u64], now: u64) {
    hold(pins, &brief(asid, 99), numbers);
    assert!(release(pins, &brief(asid, 99), numbers, now));
}

#[test]
fn a_process_that_ends_leaves_the_line_and_is_forgotten_when_its_pages_are() {
    let mut pins = table(2, 0, 2, 2);
    hold(&mut pins, &brief(A, 1), &[1, 2]);
    assert_eq!(ask(&mut pins, &brief(A, 2), &[3]), Answer::Wait);
    assert_eq!(ask(&mut pins, &brief(B, 3), &[3]), Answer::Wait);
    pins.close(A);
    assert_eq!(pins.waiting(), 1);
    assert_eq!(ask(&mut pins, &brief(A, 4), &[1]), Answer::Refused(PinError::NoProcess));
    // Not before fence and release.
    assert_eq!(pins.pinned_by(A), Some((2, 2)));
    pins.fenced();
    assert_eq!(pins.pinned_by(A), Some((0, 2)));
    assert!(release(&mut pins, &brief(A, 1), &[1, 2], 0));
    assert_eq!(pins.pinned_by(A), None);
    assert_eq!(pins.pinned_by(B), Some((0, 2)));
    // One without pages is forgotten at once.
    pins.close(B);
    assert_eq!((pins.waiting(), pins.pinned_by(B)), (0, None));
    assert!(pins.open(A, 1) && pins.open(B, 1) && pins.open(3, 1) && !pins.open(4, 1));
}

#[test]
fn what_is_refused_waits_no_longer() {
    let mut pins = table(1, 0, 1, 1);
    hold(&mut pins, &brief(A, 1), &[1]);
    assert_eq!(ask(&mut pins, &brief(A, 2), &[2]), Answer::Wait);
    let wrapped = [Span { va: u64::MAX, len: 2 }];
    assert_eq!(pins.acquire(&brief(A, 2), wrapped.into_iter(), false), Answer::Refused(PinError::BadRange));
    assert_eq!(pins.waiting(), 0);
    let last = [Span { va: u64::MAX, len: 1 }];
    assert_eq!(pins.acquire(&brief(A, 2), last.into_iter(), false), Answer::Wait);
}

#[test]
fn spans_without_bytes_touch_no_page_and_a_page_counts_once() {
    let mut pins = table(4, 0, 4, 4);
    let spans = [(0, 0), (0x1000, 0), (0x1ff0, 0x20), (0x1000, 1), (0x1234, 5), (0x2fff, 1)];
    let spans = spans.map(|(va, len)| Span { va, len });
    assert_eq!(pins.acquire(&brief(A, 1), spans.into_iter(), false), Answer::Serve { pages: 2 });
    assert_eq!((pins.pinned(), pins.pinned_bytes(), pins.pinned_by(A)), (2, 0x2000, Some((2, 4))));
    assert_eq!(pins.served(&brief(A, 1), spans.into_iter(), false, 0), Served::Held);
    assert!(pins.may_touch(A, Span { va: 0x1000, len: 0x2000 }, false));
    assert!(!pins.may_touch(A, Span { va: 0x1000, len: 0x2001 }, false));
    assert!(pins.release(&brief(A, 1), spans.into_iter(), 0));
    assert!(!pins.may_touch(A, Span { va: 0x1000, len: 1 }, false), "nobody uses it");
    let none = [Span { va: 0x1000, len: 0 }];
    assert_eq!(pins.acquire(&brief(A, 1), none.into_iter(), false), Answer::Refused(PinError::BadRange));
}

#[test]
fn pc_3_pages_that_linger_make_room_for_their_own_process_and_for_the_card() {
    // Another's pages are no room under a process's own budget.
    let mut pins = table(4, 0, 2, 4);
    hold(&mut pins, &brief(A, 1), &[1, 2]);
    linger(&mut pins, B, &[7], 0);
    assert_eq!(ask(&mut pins, &brief(A, 2), &[3]), Answer::Wait);
    assert!(!pins.pressure(Usage::Brief).unwrap().card);
    assert_eq!(pins.pinned(), 3);
    // They are under the card's: as many go as are needed.
    let mut pins = table(4, 0, 4, 4);
    hold(&mut pins, &brief(A, 1), &[1, 2]);
    linger(&mut pins, B, &[7, 8], 0);
    hold(&mut pins, &brief(A, 2), &[3, 4]);
    assert_eq!((pins.pinned(), pins.pinned_by(A), pins.pinned_by(B)), (4, Some((4, 4)), Some((0, 4))));
    // Its own are room under both.
    let mut pins = table(4, 0, 2, 4);
    linger(&mut pins, A, &[1, 2], 0);
    hold(&mut pins, &brief(A, 2), &[3, 4]);
    assert_eq!(pins.pinned_by(A), Some((2, 2)));
}

#[test]
fn pc_3_a_lingering_page_that_is_asked_for_is_no_room() {
    let mut pins = table(3, 0, 3, 3);
    hold(&mut pins, &brief(B, 1), &[7, 8]);
    linger(&mut pins, A, &[1], 0);
    assert_eq!(ask(&mut pins, &brief(A, 2), &[1, 2]), Answer::Wait);
    assert_eq!((pins.pinned(), pins.pressure(Usage::Brief).unwrap().pages), (3, 1));
    assert!(pins.pressure(Usage::Brief).unwrap().card);
}

#[test]
fn pc_3_what_lingers_longest_goes_first_and_no_more_than_needed() {
    let mut pins = table(8, 0, 8, 8);
    linger(&mut pins, A, &[1], 5);
    linger(&mut pins, A, &[2], 0);
    linger(&mut pins, B, &[1, 3, 4], 7);
    hold(&mut pins, &brief(A, 1), &[4, 5, 6]);
    assert_eq!((pins.pinned(), pins.next_expiry()), (8, Some(10)), "the table is full, and nothing had to go");
    hold(&mut pins, &brief(A, 2), &[7]);
    assert_eq!((pins.pinned(), pins.next_expiry()), (8, Some(15)));
    assert_eq!(ask(&mut pins, &brief(A, 3), &[1]), Answer::Hit, "the younger one is still there");
}

#[test]
fn pressure_says_whether_process_or_card_is_full_and_how_many_pages_are_wanted() {
    let mut pins = table(3, 0, 2, 3);
    hold(&mut pins, &brief(A, 1), &[1, 2]);
    hold(&mut pins, &brief(B, 2), &[7]);
    // Both are full: the process is.
    assert_eq!(ask(&mut pins, &brief(A, 3), &[3]), Answer::Wait);
    assert!(!pins.pressure(Usage::Brief).unwrap().card);
    assert!(pins.pressure(Usage::Lasting).is_none());
    assert!(pins.cancel(&brief(A, 3)) && !pins.cancel(&brief(A, 3)));
    assert_eq!(ask(&mut pins, &brief(B, 4), &[8, 9]), Answer::Wait);
    let p = pins.pressure(Usage::Brief).unwrap();
    assert_eq!((p.request, p.pages, p.card), (brief(B, 4), 2, true));
    assert!(pins.cancel(&brief(B, 4)));
    // A page that was taken away is a matter of neither.
    pins.withdraw(B, 7 << 12, 1, |_| false);
    assert_eq!(ask(&mut pins, &brief(B, 5), &[7]), Answer::Wait);
    assert!(!pins.pressure(Usage::Brief).unwrap().card);
}

#[test]
fn vc_9_a_right_to_write_is_asked_for_once() {
    let mut pins = table(4, 0, 4, 4);
    let at = Span { va: 0x1000, len: 1 };
    hold(&mut pins, &brief(A, 1), &[1]);
    assert!(pins.may_touch(A, at, false) && !pins.may_touch(A, at, true));
    assert_eq!(pins.acquire(&brief(A, 2), pages(&[1]).into_iter(), true), Answer::Serve { pages: 1 });
    assert_eq!(pins.served(&brief(A, 2), pages(&[1]).into_iter(), true, 0), Served::Held);
    assert!(pins.may_touch(A, at, true));
    assert_eq!(pins.acquire(&brief(A, 3), pages(&[1]).into_iter(), true), Answer::Hit);
    assert_eq!(ask(&mut pins, &brief(A, 4), &[1]), Answer::Hit);
    assert_eq!(pins.pinned(), 1);
}

#[test]
fn pc_3_lasting_uses_are_counted_by_page_and_never_take_the_reserve() {
    let mut pins = table(4, 2, 4, 4);
    hold(&mut pins, &brief(A, 1), &[1]);
    assert_eq!(pins.lasting(), 0);
    hold(&mut pins, &lasting(A, 2), &[1]);
    assert_eq!(pins.lasting(), 1, "a page in brief use before");
    hold(&mut pins, &lasting(A, 3), &[1, 2]);
    assert_eq!(pins.lasting(), 2);
    // The share is used up, and what is in it may have further uses.
    hold(&mut pins, &lasting(A, 4), &[1, 2]);
    assert_eq!(ask(&mut pins, &lasting(A, 5), &[3]), Answer::Wait);
    hold(&mut pins, &brief(A, 6), &[3]);
    // The end of a brief use gives back nothing of it, that of the last lasting one does.
    assert!(release(&mut pins, &brief(A, 1), &[1], 0));
    assert!(release(&mut pins, &lasting(A, 4), &[1, 2], 0));
    assert!(release(&mut pins, &lasting(A, 3), &[1, 2], 0));
    assert_eq!(pins.lasting(), 1);
    assert!(!release(&mut pins, &lasting(A, 3), &[2], 0), "not held any more");
    hold(&mut pins, &brief(A, 7), &[1]);
    assert!(release(&mut pins, &lasting(A, 2), &[1], 0));
    assert_eq!(pins.lasting(), 0, "though it is in brief use still");
}

#[test]
fn pc_3_the_lasting_share_of_a_process_is_its_own() {
    let mut pins = table(8, 1, 2, 8);
    hold(&mut pins, &brief(A, 1), &[1]);
    hold(&mut pins, &lasting(A, 2), &[1]);
    assert_eq!(ask(&mut pins, &lasting(A, 3), &[2]), Answer::Wait);
    hold(&mut pins, &lasting(B, 4), &[1, 2, 3]);
    assert_eq!(pins.lasting(), 4);
    // What the fence takes from one is counted once.
    pins.withdraw(A, 0, u64::MAX, |_| false);
    pins.fenced();
    assert_eq!(pins.lasting(), 3);
    assert!(release(&mut pins, &lasting(A, 2), &[1], 0));
    assert_eq!(pins.lasting(), 3);
    assert!(release(&mut pins, &brief(A, 1), &[1], 0));
    // A page in brief use only is none of it.
    hold(&mut pins, &brief(A, 5), &[1]);
    pins.withdraw(A, 0, u64::MAX, |_| false);
    pins.fenced();
    assert_eq!((pins.lasting(), pins.pinned()), (3, 3));
}

#[test]
fn decision_17_pages_without_use_that_are_withdrawn_are_forgotten_with_the_fence() {
    let mut pins = table(4, 0, 4, 4);
    linger(&mut pins, A, &[1], 0);
    assert_eq!(pins.withdraw(A, 0x1000, 0, |_| false), 0);
    assert_eq!(pins.withdraw(A, 0x1000, 1, |_| true), 0);
    assert_eq!(pins.withdraw(A, 0x1000, 1, |_| false), 1);
    assert_eq!(ask(&mut pins, &brief(A, 1), &[1]), Answer::Wait);
    assert_eq!((pins.pinned(), pins.retry()), (1, None));
    pins.fenced();
    assert_eq!((pins.pinned(), pins.retry()), (0, Some(brief(A, 1))));
    assert_eq!(ask(&mut pins, &brief(A, 1), &[1]), Answer::Serve { pages: 1 });
}

#[test]
fn vc_9_pages_that_are_withdrawn_while_they_are_brought_in_are_held_by_nobody() {
    let mut pins = table(4, 0, 4, 4);
    assert_eq!(ask(&mut pins, &brief(A, 1), &[1, 2]), Answer::Serve { pages: 2 });
    pins.withdraw(A, 0x1000, 1, |_| false);
    assert_eq!(pins.served(&brief(A, 1), pages(&[1, 2]).into_iter(), true, 0), Served::Gone);
    assert!(!pins.may_touch(A, Span { va: 0x1000, len: 1 }, false));
    assert!(!release(&mut pins, &brief(A, 1), &[1, 2], 0));
    assert_eq!(pins.served(&brief(A, 1), pages(&[1, 2]).into_iter(), true, 0), Served::NotHeld);
}

#[test]
fn who_waits_may_try_again_when_something_has_changed_and_only_then() {
    let mut pins = table(2, 0, 2, 2);
    hold(&mut pins, &brief(A, 1), &[1, 2]);
    hold(&mut pins, &brief(A, 2), &[2]);
    assert_eq!(ask(&mut pins, &brief(A, 3), &[3]), Answer::Wait);
    assert_eq!(ask(&mut pins, &brief(A, 4), &[4]), Answer::Wait);
    assert!(release(&mut pins, &brief(A, 2), &[2], 0));
    assert_eq!(pins.retry(), None, "another still uses the page");
    // Who leaves the line lets those behind try.
    assert!(pins.cancel(&brief(A, 3)));
    assert_eq!(pins.retry(), Some(brief(A, 4)));
    assert_eq!(ask(&mut pins, &brief(A, 4), &[4]), Answer::Wait);
    assert_eq!(pins.retry(), None);
    assert!(release(&mut pins, &brief(A, 1), &[1, 2], 0));
    assert_eq!(pins.retry(), Some(brief(A, 4)));
    assert_eq!(ask(&mut pins, &brief(A, 4), &[4]), Answer::Serve { pages: 1 });
}

#[test]
fn the_line_has_an_end_and_who_stands_in_it_keeps_its_place() {
    let mut pins = table(1, 0, 1, 1);
    hold(&mut pins, &brief(A, 1), &[1]);
    for tag in 2..6 {
        assert_eq!(ask(&mut pins, &brief(A, tag), &[2]), Answer::Wait);
        assert_eq!(ask(&mut pins, &brief(A, tag), &[2]), Answer::Wait);
    }
    assert_eq!(pins.waiting(), 4);
    assert_eq!(ask(&mut pins, &brief(A, 6), &[2]), Answer::Refused(PinError::LineFull));
    // All leave at once.
    pins.close(A);
    assert_eq!(pins.waiting(), 0);
}
