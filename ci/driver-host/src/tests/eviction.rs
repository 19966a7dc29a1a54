// SPDX-License-Identifier: GPL-2.0
//! How pages go that nobody uses, and places in the card's table.

use super::rig::*;
use crate::abi::message::{Fence, PageRelease, code};
use crate::abi::{card::*, counters::*, ring::*, status::*};
use crate::card::owner::Owner as _;
use crate::pages::table::{Evicted, Table};
use crate::process::Context;
use kernel::{mm::MmWithUser, prelude::*, sync::Arc};

/// Queue pairs.
const QP: u32 = FIRST_QPN;

/// Pages that have the same places in the table as [`BASE`], that one first.
fn rivals(n: usize) -> Vec<u64> {
    let rows = |vpn: u64| (Xlt::HERE.place(1, vpn, 0), Xlt::HERE.place(1, vpn, XLT_WAYS - 1));
    let mut found = vec![BASE];
    for high in 1..1 << 18 {
        let (a, b) = (high & 511, high >> 9);
        let vpn = BASE ^ (a << 9 | b << 18 | (a ^ b) << 27);
        if vpn != BASE && rows(vpn) == rows(BASE) {
            found.push(vpn);
            if found.len() == n {
                break;
            }
        }
    }
    assert_eq!(found.len(), n);
    found
}

/// All places of the card's table that the last of these pages may have are taken, by the others, which receive.
fn crowded() -> (Rig, &'static MmWithUser, Arc<Context>, Vec<u64>) {
    let mut rig = Rig::new(Setup { linger_ms: 1000, ..Setup::default() });
    let (mm, c) = rig.user(QP, 1);
    let same = rivals(5);
    for vpn in &same[1..] {
        rig.mmap(mm, *vpn, 1);
    }
    for (n, vpn) in same.iter().enumerate().take(4) {
        rig.get(1 + n as u32, &c, *vpn, 1, true);
    }
    (rig, mm, c, same)
}

#[test]
fn decision_14_idle_pages_stay_for_the_linger_time() {
    for linger_ms in [20, 50, 300] {
        let mut rig = Rig::new(Setup { linger_ms, ..Setup::default() });
        let (_, c) = rig.user(QP, 64);
        rig.get(1, &c, BASE, 3, false);
        rig.ms(7);
        rig.release(1);
        rig.settle();
        assert!(rig.page(&c, BASE).unwrap().released);
        rig.ms(u64::from(linger_ms) - 1);
        assert_eq!((rig.pins(), rig.times(CMD_PAGE_EVICT)), (3, 0));
        rig.ms(u64::from(linger_ms) + 1);
        assert_eq!((rig.pins(), rig.counter(D_PAGES_UNPINNED)), (0, 3));
        rig.end();
    }
}

#[test]
fn decision_14_without_a_linger_time_pages_go_when_they_are_released() {
    let mut rig = Rig::new(Setup { linger_ms: 0, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 15, false);
    rig.get(2, &c, BASE + 14, 2, false);
    rig.release(1);
    rig.settle();
    // One of them is in use by another, and stays. Evictions go together, twelve to a command.
    assert_eq!((rig.pins(), rig.times(CMD_PAGE_EVICT)), (2, 2));
    assert_eq!(rig.page(&c, BASE + 14).unwrap().state, "Live");
    rig.release(2);
    rig.settle();
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn decision_14_of_pages_that_linger_nobody_is_told_until_somebody_waits() {
    let mut rig = Rig::new(Setup { linger_ms: 500, card_pages: 20, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    // The first one is told of, so that the next look at them is planned.
    rig.get(1, &c, BASE, 2, false);
    rig.release(1);
    rig.settle();
    assert!(rig.page(&c, BASE).unwrap().released);
    rig.get(2, &c, BASE + 2, 2, false);
    let told = rig.counter(D_INTERRUPTS);
    rig.release(2);
    rig.ms(50);
    assert_eq!((rig.counter(D_INTERRUPTS), rig.page(&c, BASE + 2).unwrap().released), (told, false));
    // There is room for this one without all of the others only.
    rig.ask(3, &c, BASE + 10, 18, false);
    rig.ms(5);
    assert!(rig.holds(3) && rig.page(&c, BASE).is_none());
    // The last one goes, and the others with it, when it has lingered.
    rig.release(3);
    rig.ms(700);
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn decision_14_a_run_goes_in_parts_and_what_is_gone_comes_again() {
    let mut rig = Rig::new(Setup { linger_ms: 20, ..Setup::default() });
    let (_, c) = rig.user(QP, 200);
    rig.get(1, &c, BASE, 130, false);
    // The first and last pages of runs, and one between, stay in use.
    let kept = [0, 31, 63, 64, 127, 129];
    for (n, page) in kept.iter().enumerate() {
        rig.get(10 + n as u32, &c, BASE + page, 1, false);
    }
    rig.release(1);
    rig.ms(60);
    let pages = |rig: &Rig| (0..130).filter(|n| rig.page(&c, BASE + n).is_some()).collect::<Vec<_>>();
    assert_eq!((pages(&rig), rig.pins()), (kept.to_vec(), kept.len() as u64));
    // All of them again, in other runs, of which parts go once more.
    rig.get(2, &c, BASE, 130, false);
    assert_eq!((pages(&rig).len(), rig.pins()), (130, 130));
    for n in 0..kept.len() as u32 {
        rig.release(10 + n);
    }
    rig.get(3, &c, BASE + 60, 10, false);
    rig.release(2);
    rig.ms(60);
    assert_eq!((pages(&rig), rig.pins()), ((60..70).collect(), 10));
    rig.release(3);
    rig.ms(60);
    assert_eq!((rig.pins(), rig.pages.table.lock().used()), (0, 0));
    rig.end();
}

#[test]
fn decision_14_another_linger_time_holds_at_once() {
    let mut rig = Rig::new(Setup { linger_ms: 60_000, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    for (n, page) in [0, 4].into_iter().enumerate() {
        rig.get(1 + n as u32, &c, BASE + page, 3, false);
        rig.release(1 + n as u32);
    }
    rig.ms(3000);
    assert_eq!(rig.pins(), 6);
    rig.pages.set_linger(0);
    rig.ms(30);
    assert_eq!(rig.pins(), 0);
    // The card tells of releases again.
    rig.get(1, &c, BASE, 2, false);
    rig.release(1);
    rig.settle();
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn decision_14_pages_do_not_stay_because_of_a_neighbour_that_is_used() {
    let mut rig = Rig::new(Setup { linger_ms: 50, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    // Page 5 is never released: its user goes without a word.
    rig.get(1, &c, BASE, 5, false);
    rig.get(3, &c, BASE + 5, 1, false);
    rig.get(4, &c, BASE, 6, false);
    rig.release(4);
    rig.release(1);
    rig.surroundings.hardware.borrow_mut().release(3);
    rig.surroundings.hardware.borrow_mut().take_event();
    for _ in 0..10 {
        rig.get(2, &c, BASE, 1, false);
        rig.release(2);
        rig.ms(20);
    }
    let there: Vec<u64> = (0..6).filter(|n| rig.page(&c, BASE + n).is_some()).collect();
    assert_eq!(there, [0]);
    rig.end();
}

#[test]
fn decision_14_releases_concern_their_range_only() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 8, false);
    let released = |rig: &Rig| (0..8).filter(|n| rig.page(&c, BASE + n).unwrap().released).collect::<Vec<_>>();
    let tell = |rig: &Rig, va: u64, len: u32| {
        let released = PageRelease { tag: 0, asid: c.asid, wrote: false, va, len };
        rig.surroundings.hardware.borrow_mut().send(released.encode());
        rig.settle();
        // The card does not tell of each at once.
        rig.registry.take_events(true);
    };
    tell(&rig, u64::MAX - 5, 100);
    assert!(released(&rig).is_empty());
    tell(&rig, bytes(BASE + 2) + 4095, 2);
    assert_eq!(released(&rig), [2, 3]);
    tell(&rig, bytes(BASE + 5), 0);
    tell(&rig, bytes(BASE + 6), 4096);
    assert_eq!(released(&rig), [2, 3, 5, 6]);
    rig.end();
}

#[test]
fn decision_14_pages_that_are_never_released_are_looked_at_after_a_second() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 2, false);
    rig.ms(999);
    assert_eq!(rig.times(CMD_PAGE_EVICT), 0);
    rig.ms(60);
    assert_eq!((rig.times(CMD_PAGE_EVICT), rig.pins()), (1, 2));
    // They are in use. Another second.
    assert_eq!(rig.page(&c, BASE).unwrap().state, "Live");
    rig.ms(930);
    assert_eq!(rig.times(CMD_PAGE_EVICT), 1);
    rig.ms(130);
    assert_eq!((rig.times(CMD_PAGE_EVICT), rig.pins()), (2, 2));
    // A use that nobody told the end of.
    rig.surroundings.hardware.borrow_mut().release(1);
    rig.surroundings.hardware.borrow_mut().take_event();
    rig.ms(1150);
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn decision_14_a_linger_time_over_a_second_is_kept_for_what_is_in_use() {
    let mut rig = Rig::new(Setup { linger_ms: 3000, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 2, false);
    rig.ms(2990);
    assert_eq!(rig.times(CMD_PAGE_EVICT), 0);
    rig.ms(1100);
    assert_eq!(rig.times(CMD_PAGE_EVICT), 1);
    rig.end();
}

#[test]
fn decision_14_what_is_asked_for_again_does_not_go() {
    let mut rig = Rig::new(Setup { linger_ms: 100, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 1, false);
    rig.release(1);
    rig.ms(90);
    // With a page that is not there: so the driver hears of it.
    rig.get(2, &c, BASE, 2, false);
    rig.ms(60);
    assert_eq!(rig.times(CMD_PAGE_EVICT), 0);
    rig.end();
}

#[test]
fn decision_14_a_page_released_while_the_card_looks_is_looked_at_again() {
    let mut rig = Rig::new(Setup { linger_ms: 30, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 1, false);
    rig.get(2, &c, BASE, 1, false);
    rig.stall(true);
    rig.release(1);
    rig.ms(70);
    assert_eq!(rig.page(&c, BASE).unwrap().state, "Evicting");
    rig.surroundings.hardware.borrow_mut().release(2);
    rig.settle();
    rig.registry.take_events(true);
    assert!(rig.page(&c, BASE).unwrap().released);
    // Used again before the card looks.
    rig.surroundings.hardware.borrow_mut().ask(3, c.asid, bytes(BASE), 1, false);
    rig.stall(false);
    rig.settle();
    // Both answers.
    (0..2).for_each(|_| {
        rig.registry.take_events(true);
        rig.settle();
    });
    assert_eq!((rig.times(CMD_PAGE_EVICT), rig.pins()), (2, 1));
    let page = rig.page(&c, BASE).unwrap();
    assert_eq!((page.state.as_str(), page.released), ("Live", false));
    rig.end();
}

#[test]
fn decision_14_an_eviction_that_finds_no_room_in_the_ring_is_asked_for_again() {
    let mut rig = Rig::new(Setup { linger_ms: 30, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.narrow(3);
    rig.get(1, &c, BASE, 1, false);
    rig.stall(true);
    for _ in 0..3 {
        let fence = Fence::default().encode();
        rig.card.post(&[fence]).unwrap();
    }
    rig.release(1);
    rig.ms(100);
    let page = rig.page(&c, BASE).unwrap();
    assert_eq!((page.state.as_str(), page.released), ("Live", true));
    rig.stall(false);
    rig.ms(40);
    assert_eq!((rig.pins(), rig.times(CMD_PAGE_EVICT)), (0, 1));
    rig.end();
}

#[test]
fn decision_14_very_many_pages_go_together_and_those_between_stay() {
    let mut rig = Rig::new(Setup { card_pages: 400, context_pages: 400, linger_ms: 20, ..Setup::default() });
    let (_, c) = rig.user(QP, 400);
    rig.get(1, &c, BASE, 200, false);
    // Every third stays in use, the last does not.
    for n in 0..66 {
        rig.get(100 + n as u32, &c, BASE + 3 * n, 1, false);
    }
    rig.release(1);
    rig.ms(60);
    assert_eq!((rig.pins(), rig.counter(D_PAGES_UNPINNED)), (66, 134));
    let now = shown(&c);
    assert!(now.pages.iter().all(|p| (p.vpn - BASE).is_multiple_of(3)));
    assert_eq!((now.pinned, rig.pages.table.lock().used()), (66, 66));
    rig.end();
}

/// An answer to an eviction.
fn answer(vpn: u64, index: u32, dropped: bool, last: bool) -> Evicted {
    Evicted { asid: 1, vpn, place: index as u16, dropped, last }
}

/// A place for one page.
fn take(xlt: &mut Table, asid: u32, vpn: u64) -> Option<u16> {
    let mut places = KVec::with_capacity(1, GFP_KERNEL).unwrap();
    xlt.take(asid, vpn..=vpn, &mut places).ok()?;
    places.pop()
}

#[test]
fn places_of_the_table_are_taken_given_back_and_kept_until_evictions_are_answered() {
    let mut rig = Rig::new(Setup::default());
    let mut xlt = Table::new(Xlt::HERE).unwrap();
    let places: Vec<u32> = (0..XLT_WAYS).map(|n| Xlt::HERE.place(1, 5, n)).collect();
    let same = rivals(5);
    let place = take(&mut xlt, 1, 5).unwrap();
    let index = u32::from(place);
    assert!(places.contains(&index));
    assert_eq!((xlt.used(), xlt.rivals(1, 5).iter().filter(|r| **r == (1, 5, place)).count()), (1, 1));
    assert_eq!(xlt.rivals(1, 5).iter().filter(|r| r.0 == 0).count(), MAX_WAYS - 1);
    // Nothing was asked.
    assert_eq!(
        (xlt.evict_answered(index), xlt.evict_answered(1 << 20), xlt.evict_answered(XLT_ENTRIES)),
        (None, None, None)
    );
    assert!(xlt.evict_asked(place) && xlt.evict_asked(place));
    assert_eq!(xlt.evict_answered(index), Some((1, 5, false)));
    assert_eq!(xlt.evict_answered(index), Some((1, 5, true)));
    // Given back with answers due it is nobody's until the last has come.
    assert!(xlt.evict_asked(place) && xlt.evict_asked(place));
    xlt.give_back(place);
    assert_eq!(xlt.used(), 1);
    assert!(xlt.rivals(1, 5).iter().all(|r| r.0 == 0));
    assert_eq!((xlt.evict_answered(index), xlt.used()), (None, 1));
    assert_ne!(take(&mut xlt, 1, 5), Some(place));
    assert_eq!((xlt.evict_answered(index), xlt.used()), (None, 1));
    // What was free and asked for before gives nothing.
    assert!(xlt.evict_asked(place));
    assert_eq!(xlt.evict_answered(index), None);
    // So many answers at the most.
    assert!((0..255).all(|_| xlt.evict_asked(place)) && !xlt.evict_asked(place));
    // A reset forgets them, and frees what waited for them.
    let other = take(&mut xlt, 2, 9).unwrap();
    assert!(xlt.evict_asked(other));
    xlt.give_back(other);
    let used = xlt.used();
    xlt.clear();
    assert_eq!((xlt.used(), xlt.evict_answered(index)), (used - 1, None));
    // Large numbers are kept.
    let vpn = (1 << 45) - 1;
    let place = take(&mut xlt, 15, vpn).unwrap();
    assert!(xlt.evict_asked(place));
    assert_eq!(xlt.evict_answered(place.into()), Some((15, vpn, true)));
    assert!(xlt.rivals(15, vpn).contains(&(15, vpn, place)));
    // All of a page's places.
    let taken: Vec<Option<u16>> = same.iter().map(|vpn| take(&mut xlt, 1, *vpn)).collect();
    assert!(taken[..4].iter().all(Option::is_some) && taken[4].is_none());
    assert_eq!((xlt.free(1, same[4]), xlt.free(1, BASE + 1).is_some()), (None, true));
    xlt.give_back(taken[2].unwrap());
    assert_eq!(take(&mut xlt, 1, same[4]), taken[2]);
    rig.check();
    rig.end();
}

#[test]
fn pc_3_pages_without_a_place_in_the_table_wait_for_one() {
    let mut rig = Rig::new(Setup { linger_ms: 20, ..Setup::default() });
    let (mm, c) = rig.user(QP, 1);
    let same = rivals(6);
    assert_eq!(c.asid, 1);
    for vpn in &same[1..] {
        rig.mmap(mm, *vpn, 1);
    }
    for (n, vpn) in same.iter().enumerate().take(4) {
        rig.get(1 + n as u32, &c, *vpn, 1, n % 2 == 0);
    }
    // A receive does not press yet, but those in the way are asked whether they are idle, once.
    rig.ask(5, &c, same[4], 1, true);
    rig.settle();
    assert_eq!((rig.flags(&c, 5), rig.times(CMD_PRESSURE)), (NO_PLACE, 0));
    let evictions: usize = {
        let hardware = rig.surroundings.hardware.borrow();
        let all = hardware.log.iter().filter(|e| code(e) == CMD_PAGE_EVICT);
        all.map(|e| evict_indices(e).count()).sum()
    };
    assert_eq!(evictions, 4);
    assert!(same[..4].iter().all(|vpn| rig.page(&c, *vpn).unwrap().urgent));
    assert_eq!((shown(&c).pinned, rig.pins(), rig.counter(D_BUDGET_WAITS)), (4, 4, 0));
    // Every 100 ms it is looked whether a place has become free.
    let before = rig.pinned();
    rig.ms(1000);
    let again = rig.pinned() - before;
    assert!((9..=10).contains(&again), "{again}");
    // It presses after 40 ms, again and again.
    let pressed = rig.times(CMD_PRESSURE);
    assert!((15..=25).contains(&pressed), "{pressed}");
    // One is released: it goes at once, and the place is taken.
    rig.release(2);
    rig.settle();
    assert!(rig.holds(5));
    assert!(rig.page(&c, same[1]).is_none());
    // A send presses at once.
    rig.ms(100);
    let pressed = rig.times(CMD_PRESSURE);
    rig.ask(6, &c, same[5], 1, false);
    rig.settle();
    assert_eq!((rig.times(CMD_PRESSURE), rig.flags(&c, 6)), (pressed + 1, NO_PLACE | PRESSED));
    rig.end();
}

#[test]
fn pc_3_idle_pages_in_the_way_of_others_go_whosever_they_are() {
    let mut rig = Rig::new(Setup { linger_ms: 900, ..Setup::default() });
    let (mm, c) = rig.user(QP, 1);
    let (_, other) = rig.user(QP + 1, 1);
    let same = rivals(6);
    for vpn in &same[1..] {
        rig.mmap(mm, *vpn, 1);
    }
    for (n, vpn) in same.iter().enumerate().take(4) {
        rig.get(1 + n as u32, &c, *vpn, 1, false);
    }
    rig.get(10, &other, BASE, 1, false);
    rig.release(3);
    rig.settle();
    // It is idle: it makes room without anybody being asked for more.
    rig.ask(5, &c, same[4], 1, true);
    rig.settle();
    assert!(rig.holds(5) && rig.page(&c, same[2]).is_none());
    assert!(rig.page(&other, BASE).is_some());
    rig.end();
}

#[test]
fn pc_3_a_receive_whose_pages_find_no_place_ends_by_name() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 1);
    let same = rivals(5);
    for vpn in &same[1..] {
        rig.mmap(mm, *vpn, 1);
    }
    for (n, vpn) in same.iter().enumerate().take(4) {
        rig.get(receive_tag(QP, n as u32), &c, *vpn, 1, true);
    }
    rig.ask(receive_tag(QP, 9), &c, same[4], 1, true);
    rig.ms(20);
    rig.registry.refuse_receive(QP);
    rig.settle();
    assert!(rig.asks(receive_tag(QP, 9)).is_some());
    rig.ms(30);
    rig.registry.refuse_receive(QP);
    rig.settle();
    assert_eq!(rig.refused(receive_tag(QP, 9)), Some(PAGE_OVER_BUDGET));
    rig.end();
}

#[test]
fn decision_14_answers_to_evictions_of_what_is_there_no_more_change_nothing() {
    let mut rig = Rig::new(Setup { linger_ms: 500, ..Setup::default() });
    let (_, c) = rig.user(QP, 8);
    rig.get(1, &c, BASE, 1, false);
    let index = rig.page(&c, BASE).unwrap().index;
    // Live: nobody has asked.
    c.space.evicted(&[answer(BASE, index, true, true)], true);
    assert_eq!(rig.page(&c, BASE).unwrap().state, "Live");
    rig.stall(true);
    rig.release(1);
    rig.ms(1100);
    assert_eq!(rig.page(&c, BASE).unwrap().state, "Evicting");
    // Of another place, of another page, not the last answer.
    c.space.evicted(&[answer(BASE, index + 1, true, true)], true);
    c.space.evicted(&[answer(BASE + 1, index, true, true)], true);
    c.space.evicted(&[answer(BASE, index, false, false)], true);
    assert_eq!(rig.page(&c, BASE).unwrap().state, "Evicting");
    rig.stall(false);
    // At the next look at them.
    rig.ms(32);
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn a_used_up_table_is_counted() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 8);
    rig.get(1, &c, BASE, 5, false);
    assert_eq!((rig.pages.drv_counter(D_XLT_USED), rig.pages.drv_counter(D_PAGES_PINNED)), (5, 5));
    rig.end();
}

#[test]
fn decision_14_linger_and_stale_times_are_kept_to_the_millisecond() {
    // The sweep that pages begin is at the same distance as their linger time.
    let mut rig = Rig::new(Setup { linger_ms: 20, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 1, false);
    rig.release(1);
    rig.settle();
    rig.ms(19);
    assert_eq!((rig.pins(), rig.times(CMD_PAGE_EVICT)), (1, 0));
    rig.ms(1);
    assert_eq!(rig.times(CMD_PAGE_EVICT), 1);
    // The card's answer is taken.
    rig.ms(1);
    assert_eq!(rig.pins(), 0);
    rig.ms(100);
    rig.get(1, &c, BASE, 1, false);
    rig.ms(999);
    let before = rig.times(CMD_PAGE_EVICT);
    rig.ms(1);
    assert_eq!(rig.times(CMD_PAGE_EVICT), before + 1);
    rig.end();
}

#[test]
fn pc_3_who_finds_no_place_presses_every_40_ms_whatever_the_linger_time() {
    let (rig, _, c, same) = crowded();
    rig.ask(5, &c, same[4], 1, true);
    rig.ms(39);
    assert_eq!(rig.times(CMD_PRESSURE), 0);
    rig.ms(1);
    assert_eq!(rig.times(CMD_PRESSURE), 1);
    rig.ms(40);
    assert_eq!(rig.times(CMD_PRESSURE), 2);
    rig.end();
}

#[test]
fn pc_3_who_finds_no_place_tries_again_every_100_ms_whatever_the_linger_time() {
    let (rig, _, c, same) = crowded();
    rig.ask(5, &c, same[4], 1, true);
    rig.ms(10);
    let pinned = || rig.surroundings.memory.borrow().pinned;
    let before = pinned();
    rig.ms(500);
    let tries = pinned() - before;
    assert!((4..=5).contains(&tries), "{tries} tries in 500 ms");
    rig.end();
}

#[test]
fn pc_3_pages_that_are_taken_away_are_not_evicted_for_who_finds_no_place() {
    let (rig, mm, c, same) = crowded();
    rig.surroundings.hardware.borrow_mut().slow = true;
    rig.surroundings.hardware.borrow_mut().begin_dma(2, 0);
    assert!(rig.change_at_once(mm, same[1], 1, crate::memory::Change::Replace));
    rig.settle();
    rig.ask(5, &c, same[4], 1, false);
    rig.ms(5);
    assert_eq!(rig.page(&c, same[1]).unwrap().state, "Fencing");
    rig.surroundings.hardware.borrow_mut().slow = false;
    rig.ms(5);
    assert!(rig.holds(5));
    rig.end();
}
