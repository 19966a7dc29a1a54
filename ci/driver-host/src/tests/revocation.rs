// SPDX-License-Identifier: GPL-2.0
//! Memory that changes while the card has it.

use super::rig::*;
use crate::abi::message::{Fence, RangeRevoked, Typed};
use crate::abi::{card::*, counters::*, ring::*, status::*};
use crate::card::State;
use crate::memory::{Change, change};
use kernel::mm::MmWithUser;

/// Queue pair.
const QP: u32 = FIRST_QPN;

/// Changes pages in a thread of its own, as it may take long.
fn begin(rig: &Rig, mm: &'static MmWithUser, first: u64, pages: u64, what: Change) {
    let mm = mm.as_raw() as usize;
    rig.world.spawn(move || assert!(change(mm, first, pages, what, true)));
}

/// Ranges that firmware was told of, as (address space number, first page, pages).
fn told(rig: &Rig) -> Vec<(u32, u64, u64)> {
    let hardware = rig.surroundings.hardware.borrow();
    let all = hardware.log.iter().filter_map(RangeRevoked::of);
    all.map(|e| (e.asid, e.va / 4096, e.len / 4096)).collect()
}

#[test]
fn vc_9_memory_that_is_unmapped_is_taken_from_the_card_first() {
    for what in [Change::Unmap, Change::Replace] {
        let mut rig = Rig::new(Setup::default());
        let (mm, c) = rig.user(QP, 64);
        rig.get(1, &c, BASE, 10, false);
        rig.get(2, &c, BASE + 10, 2, true);
        rig.change(mm, BASE + 4, 7, what);
        // Those only.
        assert_eq!((rig.times(CMD_PAGE_REVOKE), rig.times(CMD_FENCE)), (7, 1));
        let there: Vec<u64> =
            (0..12).filter(|n| rig.surroundings.hardware.borrow().has(c.asid, BASE + n).is_some()).collect();
        assert_eq!(there, [0, 1, 2, 3, 11]);
        rig.ms(5);
        assert_eq!((rig.pins(), rig.counter(D_REVOKED), told(&rig)), (5, 7, vec![(c.asid, BASE + 4, 7)]));
        let now = shown(&c);
        assert_eq!((now.pinned, now.receive, now.pages.len()), (5, 1, 5));
        rig.end();
    }
}

#[test]
fn vc_9_addresses_above_4_gib_are_told_whole() {
    let mut rig = Rig::new(Setup { card_pages: 700, context_pages: 700, ..Setup::default() });
    let mm = rig.process();
    let high = (1 << 36) + 5;
    rig.mmap(mm, high, 4);
    rig.mmap(mm, 16, 1);
    let c = rig.context(mm);
    rig.get(1, &c, high, 4, false);
    rig.get(2, &c, 16, 1, false);
    rig.change(mm, high, 4, Change::Unmap);
    rig.ms(5);
    assert_eq!(told(&rig), [(c.asid, high, 4)]);
    // All between the first and the last of what was there.
    rig.mmap(mm, high, 4);
    rig.get(1, &c, high + 2, 1, false);
    rig.change(mm, 0, high + 4, Change::Replace);
    rig.ms(5);
    assert_eq!(told(&rig)[1..], [(c.asid, 16, high + 2 - 16 + 1)]);
    rig.end();
}

#[test]
fn decision_17_what_is_unmapped_waits_for_dma_and_nothing_else() {
    for (what, waits) in
        [(Change::Unmap, true), (Change::Dontneed, true), (Change::Suspect, false), (Change::Protect, false)]
    {
        let mut rig = Rig::new(Setup::default());
        let (mm, c) = rig.user(QP, 64);
        rig.get(1, &c, BASE, 3, true);
        rig.surroundings.hardware.borrow_mut().slow = true;
        assert!(rig.surroundings.hardware.borrow_mut().begin_dma(1, 1));
        begin(&rig, mm, BASE, 3, what);
        rig.ms(10);
        assert_eq!(rig.surroundings.memory.borrow().is_changing(mm.as_raw() as usize), waits, "{what:?}");
        // Nothing is unpinned under DMA.
        assert_eq!(rig.pins(), 3);
        // Somebody else comes through meanwhile.
        let (_, other) = rig.user(QP + 1, 8);
        rig.get(2, &other, BASE, 2, false);
        rig.surroundings.hardware.borrow_mut().slow = false;
        rig.ms(10);
        assert!(!rig.surroundings.memory.borrow().is_changing(mm.as_raw() as usize));
        rig.end();
    }
}

#[test]
fn vc_9_a_change_of_what_another_one_revokes_waits_for_dma_too() {
    // In what order they come at random: without waiting, one of them ends while the card has the page.
    for seed in 0..60 {
        let mut rig = Rig::with(Some(seed), Setup::default());
        let (mm, c) = rig.user(QP, 8);
        rig.get(1, &c, BASE, 3, true);
        rig.world.set_preempt(2);
        rig.surroundings.hardware.borrow_mut().begin_dma(1, 1);
        begin(&rig, mm, BASE, 2, Change::Replace);
        begin(&rig, mm, BASE + 1, 2, Change::Unmap);
        begin(&rig, mm, BASE + 1, 1, Change::Replace);
        rig.watch(10 * MS);
        rig.end();
    }
}

#[test]
fn vc_9_idle_pages_whose_contents_are_given_up_are_not_used_again() {
    let mut rig = Rig::new(Setup { linger_ms: 900, ..Setup::default() });
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 4, false);
    rig.get(2, &c, BASE + 2, 2, false);
    rig.release(1);
    rig.ms(5);
    rig.change(mm, BASE, 4, Change::Dontneed);
    // When it returns the card has only what is in use.
    let there: Vec<u64> =
        (0..4).filter(|n| rig.surroundings.hardware.borrow().has(c.asid, BASE + n).is_some()).collect();
    assert_eq!(there, [2, 3]);
    assert_eq!((rig.times(CMD_FENCE), rig.times(CMD_PAGE_REVOKE)), (1, 0));
    // That is another page by now, and taken away.
    rig.ms(5);
    assert_eq!((rig.times(CMD_PAGE_REVOKE), rig.pins()), (2, 0));
    assert_eq!(told(&rig), [(c.asid, BASE + 2, 1), (c.asid, BASE + 3, 1)]);
    rig.get(3, &c, BASE, 4, false);
    rig.end();
}

#[test]
fn decision_18_pages_that_stay_what_they_are_stay() {
    for what in [Change::Suspect, Change::Swap, Change::Protect] {
        let mut rig = Rig::new(Setup::default());
        let (mm, c) = rig.user(QP, 64);
        rig.get(1, &c, BASE, 4, false);
        rig.change(mm, BASE + 1, 2, what);
        let suspect: Vec<bool> = shown(&c).pages.iter().map(|p| p.suspect).collect();
        assert_eq!(suspect, [false, true, true, false]);
        rig.ms(5);
        assert!(shown(&c).pages.iter().all(|p| !p.suspect && p.state == "Live"));
        assert_eq!((rig.pins(), rig.times(CMD_PAGE_REVOKE), told(&rig).len()), (4, 0, 0));
        rig.end();
    }
}

#[test]
fn decision_18_pages_that_become_others_or_lose_the_right_to_be_written_go() {
    for (what, write, goes) in [
        (Change::Migrate, false, true),
        (Change::Protect, true, true),
        (Change::Protect, false, false),
        (Change::Dontneed, true, true),
    ] {
        let mut rig = Rig::new(Setup::default());
        let (mm, c) = rig.user(QP, 64);
        rig.get(1, &c, BASE, 3, write);
        rig.change(mm, BASE + 1, 1, what);
        rig.ms(5);
        assert_eq!((rig.pins(), rig.times(CMD_PAGE_REVOKE)), if goes { (2, 1) } else { (3, 0) }, "{what:?}");
        assert_eq!(told(&rig), if goes { vec![(c.asid, BASE + 1, 1)] } else { vec![] });
        rig.end();
    }
}

#[test]
fn decision_18_very_many_suspects_are_all_looked_at() {
    let mut rig = Rig::new(Setup { card_pages: 400, context_pages: 400, ..Setup::default() });
    let (mm, c) = rig.user(QP, 300);
    rig.get(1, &c, BASE, 200, true);
    rig.change(mm, BASE, 200, Change::Suspect);
    rig.ms(2);
    assert!(shown(&c).pages.iter().all(|p| !p.suspect));
    assert_eq!(rig.pins(), 200);
    rig.change(mm, BASE + 3, 150, Change::Protect);
    rig.ms(5);
    assert_eq!((rig.pins(), rig.counter(D_REVOKED)), (50, 150));
    rig.end();
}

#[test]
fn decision_17_a_change_that_may_not_wait_does_not() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 6, false);
    rig.surroundings.hardware.borrow_mut().slow = true;
    rig.surroundings.hardware.borrow_mut().begin_dma(1, 0);
    assert!(rig.change_at_once(mm, BASE, 3, Change::Replace));
    assert_eq!(rig.times(CMD_FENCE), 0);
    rig.ms(10);
    // The card has them no more, and they stay pinned until its DMA is over.
    assert_eq!((rig.pins(), rig.times(CMD_PAGE_REVOKE), rig.times(CMD_FENCE)), (6, 3, 1));
    rig.surroundings.hardware.borrow_mut().slow = false;
    rig.ms(10);
    assert_eq!(rig.pins(), 3);
    // What is only given up is evicted, or looked at later.
    assert!(rig.change_at_once(mm, BASE + 3, 3, Change::Dontneed));
    rig.ms(5);
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn decision_17_without_room_in_the_ring_a_change_that_may_not_wait_is_refused() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.narrow(10);
    rig.get(1, &c, BASE, 6, false);
    rig.stall(true);
    let fence = Fence::default().encode();
    for _ in 0..6 {
        rig.card.post(&[fence]).unwrap();
    }
    assert!(!rig.change_at_once(mm, BASE, 6, Change::Replace));
    let states: Vec<String> = shown(&c).pages.into_iter().map(|p| p.state).collect();
    assert_eq!(states, ["Revoking", "Revoking", "Revoking", "Revoking", "Live", "Live"]);
    // Contents that are given up: not even that it is to be evicted can be said, so it is taken away; in vain.
    assert!(!rig.change_at_once(mm, BASE + 4, 1, Change::Dontneed));
    rig.stall(false);
    rig.ms(5);
    assert_eq!((rig.pins(), told(&rig)), (2, vec![(c.asid, BASE, 4)]));
    rig.end();
}

#[test]
fn decision_17_a_change_that_may_wait_waits_for_room_in_the_ring() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.narrow(10);
    rig.get(1, &c, BASE, 20, false);
    rig.stall(true);
    begin(&rig, mm, BASE + 1, 18, Change::Unmap);
    rig.ms(20);
    let count = |state: &str| shown(&c).pages.iter().filter(|p| p.state == state).count();
    assert_eq!((count("Revoking"), count("Live")), (10, 10));
    rig.stall(false);
    rig.ms(10);
    assert_eq!((rig.pins(), rig.counter(D_REVOKED), rig.counter(D_RESETS)), (2, 18, 0));
    let told = told(&rig);
    assert_eq!((told[0], told.iter().map(|t| t.2).sum::<u64>()), ((c.asid, BASE + 1, 10), 18));
    rig.end();
}

#[test]
fn decision_17_a_card_that_takes_no_commands_is_switched_off_after_100_ms() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.narrow(10);
    rig.get(1, &c, BASE, 20, false);
    rig.stall(true);
    rig.surroundings.hardware.borrow_mut().begin_dma(1, 0);
    begin(&rig, mm, BASE, 20, Change::Unmap);
    rig.ms(95);
    assert!(rig.surroundings.memory.borrow().is_changing(mm.as_raw() as usize));
    assert_eq!(rig.counter(D_RESETS), 0);
    rig.ms(40);
    assert_eq!((rig.counter(D_RESETS), rig.pins(), rig.card.state()), (1, 0, State::Up));
    assert!(!rig.surroundings.memory.borrow().is_changing(mm.as_raw() as usize));
    assert_eq!(shown(&c).pages.len(), 0);
    rig.end();
}

#[test]
fn vc_9_a_change_while_pages_are_pinned_has_them_pinned_anew() {
    for what in [Change::Replace, Change::Dontneed, Change::Migrate] {
        let mut rig = Rig::new(Setup::default());
        let (mm, c) = rig.user(QP, 64);
        rig.stick(mm, BASE + 3, true);
        rig.ask(1, &c, BASE, 4, false);
        // Neither of them touches it.
        rig.ask(2, &c, BASE + 3, 2, true);
        rig.settle();
        // Its first page is enough.
        rig.change(mm, BASE, if what == Change::Replace { 1 } else { 3 }, what);
        assert_eq!((rig.flags(&c, 1) & STALE, rig.flags(&c, 2) & STALE), (STALE, 0));
        rig.change(mm, BASE + 5, 1, what);
        assert_eq!(rig.flags(&c, 2) & STALE, 0);
        // Of its pages the first one.
        rig.change(mm, BASE + 2, 2, what);
        assert_eq!(rig.flags(&c, 2) & STALE, STALE);
        rig.stick(mm, BASE + 3, false);
        rig.ms(1);
        assert!(rig.holds(1));
        assert_eq!(rig.times(CMD_PAGE_REVOKE), 0);
        rig.release(1);
        rig.end();
    }
}

#[test]
fn vc_9_a_range_that_is_taken_away_comes_back_when_firmware_has_let_go() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 4, false);
    rig.surroundings.hardware.borrow_mut().deaf = true;
    rig.change(mm, BASE, 4, Change::Replace);
    rig.ms(5);
    assert_eq!(rig.pins(), 0);
    rig.mmap(mm, BASE - 5, 5);
    // At its last page, at its first, within; beside it, and far away.
    let cases =
        [(3, 2, true), (-1, 2, true), (1, 1, true), (4, 1, false), (-1, 1, false), (20, 2, false), (-5, 2, false)];
    for (n, (first, pages, blocked)) in cases.into_iter().enumerate() {
        let tag = 2 + n as u32;
        rig.ask(tag, &c, (BASE as i64 + first) as u64, pages, false);
        rig.settle();
        assert_eq!(rig.holds(tag), !blocked, "{first}");
        if blocked {
            assert_eq!(rig.flags(&c, tag), BLOCKED);
            c.space.answer_requests(PAGE_FAULT);
            rig.settle();
        }
    }
    rig.ask(20, &c, BASE, 4, false);
    rig.ms(60);
    rig.surroundings.hardware.borrow_mut().deaf = false;
    rig.ms(1);
    assert!(rig.holds(20));
    rig.end();
}

#[test]
fn vc_9_many_ranges_at_a_time_are_all_told() {
    for (memory, merged) in [(true, false), (false, true)] {
        let mut rig = Rig::new(Setup { card_pages: 600, context_pages: 600, ..Setup::default() });
        let (mm, c) = rig.user(QP, 400);
        rig.get(1, &c, BASE, 160, false);
        rig.release(1);
        rig.settle();
        rig.world.set_failures(0, u64::from(!memory));
        for n in 0..70 {
            assert!(rig.change_at_once(mm, BASE + 2 * n, 1, Change::Replace));
        }
        if merged {
            assert!(rig.change_at_once(mm, BASE + 51, 1, Change::Replace));
        }
        rig.world.set_failures(0, 0);
        assert_eq!(rig.times(CMD_FENCE), 0);
        rig.ms(20);
        let told = told(&rig);
        if merged {
            assert_eq!(told.len(), 64);
            // The last has become larger.
            assert_eq!(told[63], (c.asid, BASE + 51, 88));
        } else {
            assert_eq!(told.len(), 70);
        }
        for (n, range) in told.iter().enumerate().take(63) {
            assert_eq!(*range, (c.asid, BASE + 2 * n as u64, 1));
        }
        // 16 at a time; the first fence is for all.
        assert_eq!(rig.times(CMD_FENCE), if merged { 4 } else { 5 });
        assert_eq!(rig.pins(), if merged { 89 } else { 90 });
        rig.end();
    }
}

#[test]
fn vc_9_a_range_that_grows_while_firmware_is_told_is_told_again() {
    let mut rig = Rig::new(Setup { card_pages: 600, context_pages: 600, ..Setup::default() });
    let (mm, c) = rig.user(QP, 400);
    rig.get(1, &c, BASE, 160, false);
    for n in 0..64 {
        assert!(rig.change_at_once(mm, BASE + 2 * n, 1, Change::Replace));
    }
    // The last ones are being told.
    rig.world.run_until(|| rig.times(CMD_RANGE_REVOKED) > 50);
    rig.surroundings.hardware.borrow_mut().deaf = true;
    rig.world.set_failures(0, 1);
    let place = |rig: &Rig| rig.times(CMD_RANGE_REVOKED);
    let before = place(&rig);
    assert!(rig.change_at_once(mm, BASE + 140, 1, Change::Replace));
    assert!(rig.change_at_once(mm, BASE + 101, 1, Change::Replace));
    rig.world.set_failures(0, 0);
    rig.surroundings.hardware.borrow_mut().deaf = false;
    rig.ms(20);
    assert!(place(&rig) > before);
    let told = told(&rig);
    let covers = |vpn: u64| told.iter().any(|t| t.1 <= vpn && vpn < t.1 + t.2);
    assert!(covers(BASE + 140) && covers(BASE + 101));
    assert!(shown(&c).pages.iter().all(|p| p.state != "Revoking" && p.state != "Fencing"));
    rig.end();
}

#[test]
fn inv_3_a_process_that_ends_leaves_nothing() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    let second = rig.context(mm);
    let (_, stranger) = rig.user(QP + 1, 8);
    rig.get(1, &c, BASE, 4, true);
    rig.get(2, &second, BASE, 4, true);
    rig.get(3, &stranger, BASE, 4, true);
    rig.surroundings.hardware.borrow_mut().begin_dma(1, 2);
    mm.put_user();
    rig.change(mm, 0, u64::MAX, Change::Release);
    assert_eq!(rig.surroundings.hardware.borrow().translations().count(), 4);
    rig.ms(20);
    assert_eq!((rig.pins(), rig.contexts().len(), rig.pages.budget.lock().pinned), (4, 1, 4));
    drop((c, second, stranger));
    rig.end();
}

#[test]
fn inv_3_closing_waits_for_dma_also_of_what_was_revoked_before() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 4, true);
    rig.surroundings.hardware.borrow_mut().slow = true;
    rig.surroundings.hardware.borrow_mut().begin_dma(1, 2);
    assert!(rig.change_at_once(mm, BASE, 4, Change::Replace));
    let closing = c.clone();
    rig.world.spawn(move || closing.close());
    rig.ms(20);
    assert_eq!(rig.pins(), 4);
    rig.surroundings.hardware.borrow_mut().slow = false;
    rig.ms(20);
    assert_eq!((rig.pins(), rig.contexts().len()), (0, 0));
    // Another context gets its number, and nothing of what was told before.
    let again = rig.context(mm);
    assert_eq!(again.asid, c.asid);
    rig.end();
}

#[test]
fn decision_18_nothing_is_looked_at_when_the_process_is_gone() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 4, true);
    rig.change(mm, BASE, 4, Change::Suspect);
    mm.put_user();
    rig.ms(5);
    assert!(shown(&c).pages.iter().all(|p| p.suspect && p.state == "Live"));
    rig.end_at_once();
}

#[test]
fn vc_9_pages_of_no_request_and_no_change_are_left_alone() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 4, true);
    rig.change(mm, BASE + 4, 10, Change::Unmap);
    rig.change(mm, BASE - 10, 10, Change::Replace);
    rig.change(mm, BASE + 20, 10, Change::Suspect);
    rig.ms(5);
    assert_eq!((rig.times(CMD_FENCE), rig.times(CMD_PAGE_REVOKE), told(&rig).len(), rig.pins()), (0, 0, 0, 4));
    assert_eq!(rig.refused(1), None);
    let _ = PAGE_OK;
    rig.end();
}

#[test]
fn decision_17_evictions_that_were_asked_for_before_a_change_do_not_count() {
    let mut rig = Rig::new(Setup { linger_ms: 0, ..Setup::default() });
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 2, false);
    rig.get(2, &c, BASE, 2, false);
    // The card has looked already, and the page was in use; its answer is on the way.
    rig.surroundings.hardware.borrow_mut().mute = false;
    rig.release(1);
    rig.world.run_until(|| rig.times(CMD_PAGE_EVICT) > 0);
    rig.surroundings.hardware.borrow_mut().mute = true;
    rig.surroundings.hardware.borrow_mut().release(2);
    begin(&rig, mm, BASE, 2, Change::Dontneed);
    rig.ms(2);
    assert_eq!(rig.surroundings.hardware.borrow().translations().count(), 0);
    rig.surroundings.hardware.borrow_mut().mute = false;
    rig.ms(5);
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn vc_9_what_is_taken_away_already_is_not_taken_away_again() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 3, true);
    assert!(rig.change_at_once(mm, BASE, 3, Change::Replace));
    assert!(rig.change_at_once(mm, BASE, 3, Change::Replace));
    rig.ms(5);
    assert_eq!((rig.times(CMD_PAGE_REVOKE), rig.counter(D_REVOKED), told(&rig).len()), (3, 3, 1));
    rig.end();
}

#[test]
fn vc_9_firmware_is_not_told_of_what_its_predecessor_had() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 3, true);
    assert!(rig.change_at_once(mm, BASE, 3, Change::Replace));
    rig.card.reset("a test").unwrap();
    rig.ms(5);
    assert!(told(&rig).is_empty());
    assert_eq!(rig.pins(), 0);
    rig.end();
}

#[test]
fn vc_9_idle_pages_go_at_once_also_when_nobody_may_wait_for_it() {
    let mut rig = Rig::new(Setup { linger_ms: 1000, ..Setup::default() });
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 3, true);
    rig.release(1);
    rig.settle();
    assert!(rig.change_at_once(mm, BASE, 3, Change::Swap));
    rig.settle();
    assert_eq!((rig.times(CMD_PAGE_EVICT), rig.pins()), (1, 0));
    rig.end();
}

#[test]
fn decision_18_pages_are_looked_at_when_their_change_is_over() {
    let mut rig = Rig::new(Setup { linger_ms: 1000, ..Setup::default() });
    let (mm, c) = rig.user(QP, 8);
    rig.get(1, &c, BASE, 3, true);
    rig.surroundings.memory.borrow_mut().dwell = 2 * MS;
    begin(&rig, mm, BASE, 3, Change::Migrate);
    rig.ms(1);
    // It waits; what is asked for meanwhile does as well, once it is to be pinned.
    assert_eq!((rig.pins(), rig.times(CMD_PAGE_REVOKE)), (3, 0));
    rig.ask(2, &c, BASE + 4, 1, false);
    rig.settle();
    assert!(!rig.holds(2));
    rig.ms(2);
    assert_eq!((rig.pins(), rig.times(CMD_PAGE_REVOKE)), (1, 3));
    assert!(rig.holds(2));
    rig.end();
}

#[test]
fn decision_17_a_card_that_is_being_reset_keeps_no_change_from_happening() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 8);
    rig.get(1, &c, BASE, 3, true);
    rig.surroundings.hardware.borrow_mut().reset_ns = 5 * MS;
    rig.surroundings.hardware.borrow_mut().begin_dma(1, 0);
    let card = rig.card.clone();
    rig.world.spawn(move || card.reset("a test").unwrap());
    rig.ms(1);
    assert_eq!(rig.card.state(), State::Resetting);
    assert!(rig.change_at_once(mm, BASE, 2, Change::Replace));
    begin(&rig, mm, BASE, 3, Change::Unmap);
    rig.ms(1);
    // Who may wait does so until the card's DMA has ended.
    assert!(rig.surroundings.memory.borrow().is_changing(mm.as_raw() as usize));
    rig.ms(10);
    assert!(!rig.surroundings.memory.borrow().is_changing(mm.as_raw() as usize));
    assert_eq!((rig.pins(), rig.card.state(), rig.counter(D_RESETS)), (0, State::Up, 1));
    rig.end();
}
