// SPDX-License-Identifier: GPL-2.0
//! What the card asks for, and what it is answered.

use super::rig::*;
use crate::abi::message::PageNeed;
use crate::abi::{counters::*, ring::*, status::*};
use crate::card::State;
use crate::memory::Change;

/// Queue pairs.
const QP: u32 = crate::abi::card::FIRST_QPN;
const OTHER: u32 = QP + 1;

/// An `EV_PAGE_NEED` as it stands.
fn need(tag: u32, asid: u32, va: u64, len: u32, write: bool) -> [u32; ENTRY_WORDS] {
    PageNeed { tag, asid, write, va, len }.encode()
}

#[test]
fn pc_2_pages_are_pinned_installed_and_answered_once() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.get(send_tag(QP, 0), &c, BASE, 10, false);
    assert_eq!((rig.pins(), rig.times(CMD_PAGE_INSTALL), rig.times(CMD_PAGE_READY)), (10, 2, 1));
    assert_eq!((rig.counter(D_PAGES_PINNED), rig.counter(D_PAGES_UNPINNED)), (10, 0));
    assert_eq!((rig.counter(D_PINNED), rig.counter(D_PINNED_PEAK)), (bytes(10), bytes(10)));
    assert_eq!((rig.counter(D_PAGE_NEEDS), rig.counter(D_PAGE_FAULTS)), (1, 0));
    let now = shown(&c);
    assert_eq!((now.pinned, now.receive, now.running, now.requests.len()), (10, 0, 0, 0));
    assert_eq!(now.pages.len(), 10);
    for (n, page) in now.pages.iter().enumerate() {
        assert_eq!((page.vpn, page.state.as_str(), page.write), (BASE + n as u64, "Live", false));
        assert!(!page.released && !page.urgent && !page.suspect);
    }
    rig.end();
}

#[test]
fn decision_14_a_page_is_pinned_once_whatever_the_number_of_its_uses() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.get(send_tag(QP, 0), &c, BASE + 3, 2, false);
    // Three before and three behind what is there: two runs, one command each.
    rig.get(send_tag(QP, 1), &c, BASE, 8, false);
    assert_eq!((rig.pinned(), rig.pins(), rig.times(CMD_PAGE_INSTALL)), (8, 8, 3));
    // All is there, but the card did not know: a need that is answered without pinning.
    rig.surroundings.hardware.borrow_mut().mute = true;
    rig.ask(send_tag(QP, 2), &c, BASE + 8, 1, false);
    rig.ask(send_tag(QP, 3), &c, BASE + 8, 1, false);
    rig.surroundings.hardware.borrow_mut().mute = false;
    rig.settle();
    assert!(rig.holds(send_tag(QP, 2)) && rig.holds(send_tag(QP, 3)));
    assert_eq!((rig.pinned(), rig.times(CMD_PAGE_READY)), (9, 4));
    assert_eq!(c.space.share.budget.lock().pinned, 9);
    rig.end();
}

#[test]
fn pc_1_receives_are_pinned_for_writing_and_counted_apart() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.get(receive_tag(QP, 0), &c, BASE, 5, true);
    rig.get(send_tag(QP, 0), &c, BASE + 5, 3, false);
    // Memory that may be written serves for sending too.
    rig.get(send_tag(QP, 1), &c, BASE + 4, 2, false);
    let now = shown(&c);
    assert_eq!((now.pinned, now.receive), (8, 5));
    assert_eq!(c.space.share.budget.lock().receive, 5);
    assert_eq!(rig.pages.budget.lock().receive, 5);
    assert!(now.pages[..5].iter().all(|p| p.write) && now.pages[5..].iter().all(|p| !p.write));
    rig.end();
}

#[test]
fn inv_6_ranges_that_are_none_are_refused() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    let end: u64 = 1 << 57;
    let cases = [
        // Empty, wrapping, beyond user space by a page.
        (bytes(BASE), 0, PAGE_FAULT),
        (u64::MAX - 5, 100, PAGE_FAULT),
        (end - bytes(300), bytes(301) as u32, PAGE_FAULT),
        (end, 1, PAGE_FAULT),
        // The last one of user space is looked for: there is nothing.
        (end - 1, 1, PAGE_FAULT),
        // As large as that it is too large.
        (end - bytes(300), bytes(300) as u32, PAGE_OVER_BUDGET),
    ];
    for (n, (va, len, status)) in cases.into_iter().enumerate() {
        let tag = 1 + n as u32;
        {
            let mut hardware = rig.surroundings.hardware.borrow_mut();
            hardware.ask(tag, c.asid, bytes(BASE), 1, false);
            // What it says is something else.
            let event = hardware.take_event();
            assert_eq!(PageNeed::decode(&event).tag, tag);
            hardware.send(need(tag, c.asid, va, len, false));
        }
        rig.settle();
        assert_eq!(rig.refused(tag), Some(status), "{va:#x}+{len:#x}");
    }
    assert_eq!((rig.counter(D_PAGE_FAULTS), rig.counter(D_OVER_BUDGET)), (5, 1));
    // Not whole pages: two bytes may be in two pages.
    rig.surroundings.hardware.borrow_mut().ask(100, c.asid, bytes(BASE) + 4095, 2, false);
    rig.settle();
    assert_eq!(rig.pins(), 2);
    rig.surroundings.hardware.borrow_mut().ask(101, c.asid, bytes(BASE + 4), 4096, false);
    rig.settle();
    assert_eq!(rig.pins(), 3);
    rig.end();
}

#[test]
fn decision_20_pages_that_cannot_be_pinned_are_refused_and_the_others_given_back() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 8);
    // At first the four that there are have to come; then they are pinned, in vain.
    for (faults, pinned) in [(1, 0), (2, 4)] {
        rig.ask(send_tag(QP, 0), &c, BASE + 4, 6, false);
        rig.settle();
        assert_eq!(rig.refused(send_tag(QP, 0)), Some(PAGE_FAULT));
        assert_eq!((rig.counter(D_PAGE_FAULTS), rig.pins(), rig.pinned()), (faults, 0, pinned));
    }
    assert_eq!((shown(&c).pinned, rig.counter(D_PINNED), rig.counter(D_PINNED_PEAK)), (0, 0, bytes(6)));
    // To be written, but it may only be read.
    rig.change(mm, BASE, 8, Change::Protect);
    rig.ask(receive_tag(QP, 0), &c, BASE, 2, true);
    rig.settle();
    assert_eq!(rig.refused(receive_tag(QP, 0)), Some(PAGE_FAULT));
    rig.get(send_tag(QP, 0), &c, BASE, 2, false);
    // Nobody has that address space, and one whose process is gone.
    rig.surroundings.hardware.borrow_mut().mms.insert(9, 0);
    rig.surroundings.hardware.borrow_mut().ask(7, 9, 0, 1, false);
    rig.settle();
    assert_eq!(rig.refused(7), Some(PAGE_NO_PROCESS));
    assert_eq!(rig.counter(D_PAGE_FAULTS), 4);
    mm.put_user();
    rig.ask(send_tag(QP, 1), &c, BASE + 3, 1, false);
    rig.settle();
    assert_eq!(rig.refused(send_tag(QP, 1)), Some(PAGE_NO_PROCESS));
    assert_eq!(rig.counter(D_PAGE_FAULTS), 5);
    rig.end();
}

#[test]
fn decision_21_a_page_that_never_comes_holds_up_nothing_else() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.stick(mm, BASE + 1, true);
    rig.ask(send_tag(QP, 0), &c, BASE, 3, false);
    rig.ask(send_tag(QP, 1), &c, BASE + 2, 4, false);
    rig.ask(receive_tag(QP, 1), &c, BASE + 2, 1, true);
    rig.ms(30);
    assert!(rig.holds(send_tag(QP, 1)) && rig.asks(send_tag(QP, 0)).is_some());
    assert_eq!(rig.flags(&c, send_tag(QP, 0)), CHARGED | BRINGING);
    assert_eq!((shown(&c).pinned, shown(&c).running), (7, 1));
    rig.stick(mm, BASE + 1, false);
    rig.settle();
    assert!(rig.holds(send_tag(QP, 0)));
    assert_eq!(shown(&c).pinned, 6);
    rig.end();
}

#[test]
fn decision_21_requests_that_are_stuck_for_long_are_given_up() {
    let mut rig = Rig::new(Setup { card_pages: 40, ..Setup::default() });
    let (mm, c) = rig.user(QP, 70);
    rig.get(9, &c, BASE + 60, 5, false);
    rig.stick(mm, BASE + 1, true);
    rig.ask(send_tag(QP, 0), &c, BASE, 30, false);
    rig.settle();
    // One waits for budget, also when others have that of the first; one for a page to be let go of.
    rig.ask(send_tag(QP, 1), &c, BASE + 20, 37, false);
    rig.ask(receive_tag(QP, 1), &c, BASE + 60, 1, true);
    rig.ms(499);
    c.space.give_up_requests();
    rig.settle();
    assert!(rig.asks(send_tag(QP, 0)).is_some());
    // Not while the others are being tried again.
    rig.ms(3);
    c.space.give_up_requests();
    rig.settle();
    assert_eq!(rig.refused(send_tag(QP, 0)), Some(PAGE_FAULT));
    assert!(rig.asks(send_tag(QP, 1)).is_some() && rig.asks(receive_tag(QP, 1)).is_some());
    // Others have its budget, but for a page, until that comes; it is not answered again then.
    assert_eq!((shown(&c).pinned, shown(&c).running), (6, 1));
    let (_, other) = rig.user(OTHER, 64);
    rig.get(77, &other, BASE, 20, false);
    rig.release(77);
    rig.stick(mm, BASE + 1, false);
    rig.watch(30 * MS);
    rig.release(9);
    rig.watch(30 * MS);
    assert!(rig.holds(send_tag(QP, 1)));
    rig.release(send_tag(QP, 1));
    rig.end();
}

#[test]
fn decision_21_requests_of_a_queue_pair_that_ends_are_answered() {
    let mut rig = Rig::new(Setup { card_pages: 40, ..Setup::default() });
    let (mm, c) = rig.user(QP, 64);
    rig.give_qp(OTHER, c.asid);
    rig.stick(mm, BASE, true);
    let (mine, theirs) = ([send_tag(QP, 3), receive_tag(QP, 5)], [send_tag(OTHER, 1), receive_tag(OTHER, 1), 77]);
    for (n, tag) in mine.into_iter().chain(theirs).enumerate() {
        rig.ask(tag, &c, BASE, 1 + n as u64, n % 2 == 1);
    }
    rig.settle();
    assert!(c.space.asks(QP) && c.space.asks(OTHER) && !c.space.asks(OTHER + 1));
    c.space.end_requests(QP);
    rig.settle();
    assert!(mine.iter().all(|tag| rig.refused(*tag) == Some(PAGE_NO_PROCESS)));
    assert!(theirs.iter().all(|tag| rig.asks(*tag).is_some()));
    assert!(!c.space.asks(QP) && c.space.asks(OTHER));
    // More of it are not begun, those of others are.
    rig.ask(mine[0], &c, BASE + 20, 1, false);
    rig.ask(send_tag(OTHER, 4), &c, BASE + 21, 1, false);
    rig.ask(78, &c, BASE + 22, 1, false);
    rig.settle();
    assert_eq!(rig.refused(mine[0]), Some(PAGE_NO_PROCESS));
    assert!(rig.holds(send_tag(OTHER, 4)) && rig.holds(78));
    c.space.end_requests(0);
    rig.get(mine[0], &c, BASE + 20, 1, false);
    // Those of firmware have no queue pair, and none is over.
    assert!(rig.asks(77).is_some());
    rig.end();
}

#[test]
fn decision_21_96_requests_of_a_process_are_worked_on_at_once() {
    let mut rig = Rig::new(Setup { card_pages: 1000, context_pages: 1000, ..Setup::default() });
    let (mm, c) = rig.user(QP, 200);
    let second = rig.context(mm);
    let (_, stranger) = rig.user(OTHER, 64);
    for tag in 1..=100 {
        rig.stick(mm, BASE + u64::from(tag), true);
        rig.ask(tag, if tag % 2 == 0 { &c } else { &second }, BASE + u64::from(tag), 1, false);
    }
    rig.ask(200, &second, BASE + 150, 1, false);
    rig.ask(300, &stranger, BASE, 1, false);
    rig.settle();
    assert!(rig.holds(300));
    let running = |rig: &Rig| (shown(&c).running, rig.world.threads());
    let queued = |_: &Rig| {
        let all = shown(&c).requests.into_iter().chain(shown(&second).requests);
        all.filter(|r| r.flags & QUEUED != 0).map(|r| r.tag).collect::<Vec<_>>()
    };
    assert_eq!((running(&rig), queued(&rig)), ((96, 96), vec![98, 100, 97, 99, 200]));
    // One has its page: another has its turn, whichever context it is of.
    rig.stick(mm, BASE + 1, false);
    rig.settle();
    assert!(rig.holds(1));
    assert_eq!((running(&rig), queued(&rig)), ((96, 96), vec![100, 97, 99, 200]));
    // It is given up: it still waits for its page.
    rig.ms(500);
    c.space.give_up_requests();
    rig.settle();
    assert_eq!(running(&rig).0, 96);
    assert!(rig.asks(97).is_some());
    rig.surroundings.memory.borrow_mut().unstick_all();
    rig.settle();
    assert_eq!(shown(&c).running, 0);
    assert!(rig.holds(99) && rig.holds(200) && rig.asks(97).is_none());
    rig.end();
}

#[test]
fn inv_6_a_card_that_asks_for_more_than_it_can_is_reset() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.stick(mm, BASE, true);
    for tag in 1..=512 {
        rig.ask(tag, &c, BASE, 1, false);
        rig.settle();
    }
    assert_eq!((shown(&c).requests.len(), rig.counter(D_RESETS)), (512, 0));
    rig.ask(513, &c, BASE, 1, false);
    rig.ms(5);
    assert_eq!((shown(&c).requests.len(), rig.counter(D_RESETS)), (0, 1));
    assert_eq!(rig.card.state(), State::Up);
    rig.end();
}

#[test]
fn inv_6_requests_without_memory_are_tried_again_for_half_a_second() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    let tag = send_tag(QP, 0);
    rig.world.set_failures(1, 0);
    rig.ask(tag, &c, BASE, 2, false);
    rig.ms(510);
    assert!(rig.asks(tag).is_some());
    assert_eq!(rig.counter(D_NO_MEMORY), 9);
    rig.ms(1);
    assert_eq!(rig.refused(tag), Some(PAGE_NO_MEMORY));
    assert_eq!((rig.counter(D_NO_MEMORY), rig.counter(D_PAGE_FAULTS)), (10, 0));
    // After 1, 2 and 4 ms.
    rig.world.set_failures(0, 0);
    rig.world.fail_next(3, 0);
    rig.ask(tag, &c, BASE, 2, false);
    rig.ms(6);
    assert!(!rig.holds(tag));
    rig.ms(1);
    assert!(rig.holds(tag));
    rig.end();
}

#[test]
fn inv_6_whichever_allocation_fails_the_request_is_tried_again() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 200);
    let mut first = BASE;
    for n in 1.. {
        rig.world.fail_nth(n);
        rig.ask(1, &c, first, 3, n % 2 == 0);
        rig.settle();
        let failed = rig.world.fail_nth(0) == 0;
        assert_eq!(rig.holds(1), !failed);
        if failed {
            // All is given back meanwhile.
            assert_eq!((rig.pins(), shown(&c).pinned), (0, 0));
            assert_eq!((rig.pages.table.lock().used(), rig.surroundings.memory.borrow().mappings()), (0, 0));
            assert_eq!(rig.counter(D_NO_MEMORY), n);
        }
        rig.ms(1);
        assert!(rig.holds(1), "{n}");
        rig.release(1);
        rig.ms(300);
        assert_eq!(rig.pins(), 0);
        first += 3;
        if !failed {
            // The list of what is missing, of runs, pins and their addresses; the runs, the commands, a node, places.
            assert_eq!(n, 9);
            break;
        }
    }
    rig.end();
}

#[test]
fn inv_6_pages_that_cannot_be_mapped_or_pinned_for_want_of_memory_are_tried_again() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 200);
    rig.surroundings.memory.borrow_mut().fail_maps = 2;
    rig.ask(1, &c, BASE, 3, false);
    rig.settle();
    assert_eq!((rig.pins(), shown(&c).pinned, rig.pages.table.lock().used()), (0, 0, 0));
    rig.ms(2);
    assert!(!rig.holds(1));
    rig.ms(1);
    assert!(rig.holds(1));
    rig.surroundings.memory.borrow_mut().fail_pins = (1, Some(kernel::error::code::ENOMEM));
    rig.ask(2, &c, BASE + 3, 3, false);
    rig.settle();
    assert!(rig.asks(2).is_some());
    rig.ms(1);
    assert!(rig.holds(2));
    assert_eq!(rig.counter(D_NO_MEMORY), 3);
    // Any other error is one.
    rig.surroundings.memory.borrow_mut().fail_pins = (1, Some(kernel::error::code::EIO));
    rig.ask(3, &c, BASE + 6, 3, false);
    rig.settle();
    assert_eq!(rig.refused(3), Some(PAGE_FAULT));
    rig.end();
}

#[test]
fn inv_6_requests_that_cannot_even_be_noted_are_tried_again() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.world.fail_next(0, 2);
    rig.ask(1, &c, BASE, 1, false);
    rig.ask(2, &c, BASE + 1, 1, false);
    rig.settle();
    assert_eq!((rig.counter(D_NO_MEMORY), rig.pages.needs.lock().len()), (2, 2));
    rig.ms(9);
    assert!(!rig.holds(1) && !rig.holds(2));
    rig.ms(1);
    assert!(rig.holds(1) && rig.holds(2));
    assert_eq!(rig.pages.needs.lock().len(), 0);
    // 64 times, then it is said that there is no memory.
    rig.world.fail_next(0, 1);
    rig.world.set_failures(1, 0);
    rig.ask(3, &c, BASE + 2, 1, false);
    rig.ms(649);
    assert!(rig.asks(3).is_some());
    assert_eq!(rig.counter(D_NO_MEMORY), 67);
    rig.ms(1);
    assert_eq!(rig.refused(3), Some(PAGE_NO_MEMORY));
    assert_eq!(rig.counter(D_NO_MEMORY), 67);
    rig.world.set_failures(0, 0);
    rig.end();
}

#[test]
fn inv_6_what_a_card_that_was_reset_has_asked_for_is_forgotten() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.world.fail_next(0, 1);
    rig.ask(1, &c, BASE, 1, false);
    rig.settle();
    rig.stick(mm, BASE + 1, true);
    rig.ask(2, &c, BASE + 1, 1, false);
    rig.get(3, &c, BASE + 2, 1, false);
    rig.card.reset("a test").unwrap();
    assert_eq!((rig.pages.needs.lock().len(), shown(&c).requests.len(), rig.pins()), (0, 0, 0));
    // The same once more; it is the new firmware's, and answered once.
    rig.ask(2, &c, BASE + 1, 1, false);
    rig.stick(mm, BASE + 1, false);
    rig.ms(30);
    assert!(rig.holds(2) && rig.asks(1).is_none());
    // One whose memory comes when another firmware runs already.
    rig.world.fail_next(0, 1);
    rig.ask(4, &c, BASE + 5, 1, false);
    rig.settle();
    let kept = rig.pages.needs.lock().len();
    assert_eq!(kept, 1);
    rig.pages.drop_needs();
    assert_eq!(rig.pages.needs.lock().len(), 0);
    rig.card.reset("a test").unwrap();
    rig.end();
}

#[test]
fn inv_3_a_closed_context_answers_and_begins_nothing() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.stick(mm, BASE, true);
    rig.ask(1, &c, BASE, 2, false);
    rig.get(2, &c, BASE + 4, 2, true);
    c.space.lock().closing = true;
    rig.ask(3, &c, BASE + 8, 1, false);
    rig.settle();
    assert_eq!(rig.refused(3), Some(PAGE_NO_PROCESS));
    // What was begun before comes to nothing.
    rig.stick(mm, BASE, false);
    rig.settle();
    assert_eq!(rig.refused(1), Some(PAGE_NO_PROCESS));
    assert_eq!((shown(&c).pinned, rig.pins()), (2, 2));
    c.space.lock().closing = false;
    rig.stick(mm, BASE, true);
    rig.ask(1, &c, BASE, 2, false);
    rig.settle();
    c.close();
    rig.settle();
    assert_eq!(rig.refused(1), Some(PAGE_NO_PROCESS));
    assert_eq!(rig.times(CMD_PAGE_REVOKE), 2);
    assert_eq!((rig.pins(), rig.contexts().len()), (0, 0));
    // Its request still waits for its page, and is charged for that one.
    assert_eq!((shown(&c).pinned, rig.pages.budget.lock().pinned), (1, 1));
    rig.stick(mm, BASE, false);
    rig.settle();
    assert_eq!((shown(&c).pinned, rig.pages.budget.lock().pinned), (0, 0));
    drop(c);
    rig.end();
}

#[test]
fn decision_14_requests_for_the_same_pages_map_them_one_at_a_time() {
    // Beside what another one maps; over its first and its last page, within, and around.
    for (first, pages, both) in
        [(14, 2, false), (8, 2, false), (13, 2, true), (9, 2, true), (11, 1, true), (8, 10, true)]
    {
        // No sweep tries anything again.
        let mut rig = Rig::new(Setup { linger_ms: 1000, ..Setup::default() });
        let (_, c) = rig.user(QP, 64);
        rig.narrow(4);
        // The ring is full: the first one cannot install what it has mapped.
        rig.stall(true);
        for index in 0..4 {
            assert_eq!(rig.card.put_evicts([index as u16].into_iter()), 1);
            rig.card.ring();
        }
        rig.ask(1, &c, BASE + 10, 4, false);
        rig.ms(2);
        assert_eq!(rig.flags(&c, 1), INSTALLING | CHARGED);
        rig.ask(2, &c, BASE + first, pages, false);
        rig.settle();
        assert_eq!(rig.flags(&c, 2), if both { BLOCKED } else { INSTALLING | CHARGED });
        rig.ms(2);
        assert_eq!(rig.surroundings.memory.borrow().most_maps, 1);
        rig.stall(false);
        // Who has waited is tried again as soon as the other one is ready.
        rig.ms(2);
        assert!(rig.holds(1) && rig.holds(2));
        assert_eq!(rig.surroundings.memory.borrow().most_maps, 1);
        rig.end();
    }
}

#[test]
fn decision_14_pages_that_have_come_meanwhile_are_not_mapped_again() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.stick(mm, BASE + 1, true);
    for tag in 1..=3 {
        rig.ask(tag, &c, BASE, 2, tag == 3);
    }
    rig.settle();
    assert_eq!(shown(&c).pinned, 6);
    rig.stick(mm, BASE + 1, false);
    rig.settle();
    assert!(rig.holds(1) && rig.holds(2));
    // The third wants to write: what is there goes and comes again when it is released.
    assert!(rig.asks(3).is_some());
    assert_eq!(rig.surroundings.memory.borrow().most_maps, 1);
    rig.release(1);
    rig.release(2);
    rig.settle();
    assert!(rig.holds(3));
    assert_eq!((shown(&c).pinned, shown(&c).receive), (2, 2));
    rig.end();
}

#[test]
fn pc_1_pages_that_may_only_be_read_come_again_to_be_written() {
    let mut rig = Rig::new(Setup { linger_ms: 500, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 4, false);
    rig.ask(2, &c, BASE + 1, 2, true);
    rig.settle();
    // The card was asked whether they are idle; they are not.
    assert_eq!((rig.times(CMD_PAGE_EVICT), rig.flags(&c, 2)), (1, BLOCKED));
    let state = |rig: &Rig, n: u64| rig.page(&c, BASE + n).map(|p| (p.state, p.urgent, p.released));
    assert_eq!(state(&rig, 1), Some(("Live".into(), true, false)));
    assert_eq!(state(&rig, 0), Some(("Live".into(), false, false)));
    // Another one that waits for the same asks the card no more.
    rig.ask(3, &c, BASE + 1, 1, true);
    rig.settle();
    assert_eq!(rig.times(CMD_PAGE_EVICT), 1);
    // Released, they go at once; the other two, which nobody else wants, as well, since somebody waits.
    rig.release(1);
    rig.settle();
    assert!(rig.holds(2) && rig.holds(3));
    assert_eq!(state(&rig, 0), None);
    assert_eq!((shown(&c).pinned, shown(&c).receive), (2, 2));
    rig.end();
}

#[test]
fn vc_9_a_range_that_never_comes_to_rest_is_handed_back_to_the_card() {
    let mut rig = Rig::new(Setup::default());
    let (mm, c) = rig.user(QP, 64);
    rig.stick(mm, BASE + 1, true);
    rig.ask(1, &c, BASE, 3, false);
    rig.settle();
    for n in 1..=17 {
        assert!(rig.surroundings.hardware.borrow().answers.is_empty(), "{n}");
        rig.change(mm, BASE + 2, 1, Change::Suspect);
        rig.surroundings.memory.borrow_mut().pass(mm.as_raw() as usize);
        rig.settle();
    }
    // 16 times again, and then: try it once more. The card has, and it begins anew.
    assert_eq!(rig.surroundings.hardware.borrow().answers[..], [(1, PAGE_OK)]);
    assert_eq!(rig.asks(1).unwrap().vain, 1);
    assert_eq!(rig.counter(D_PAGE_NEEDS), 2);
    rig.stick(mm, BASE + 1, false);
    rig.settle();
    assert!(rig.holds(1));
    rig.end();
}

#[test]
fn inv_6_a_command_ring_without_room_ends_a_request_in_time() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.narrow(3);
    rig.stall(true);
    for index in 0..3 {
        assert_eq!(rig.card.put_evicts([index as u16].into_iter()), 1);
        rig.card.ring();
    }
    rig.ask(1, &c, BASE, 2, false);
    rig.ms(99);
    assert_eq!((rig.flags(&c, 1), rig.pins()), (INSTALLING | CHARGED, 2));
    rig.ms(4);
    assert_eq!((shown(&c).requests.len(), rig.pins(), rig.pages.table.lock().used()), (0, 0, 0));
    assert!(rig.asks(1).is_some());
    rig.stall(false);
    rig.ms(5);
    assert_eq!(rig.refused(1), Some(PAGE_NO_PROCESS));
    assert_eq!(rig.counter(D_PAGE_FAULTS), 1);
    rig.end();
}

#[test]
fn the_list_of_pages_in_debugfs_is_bounded() {
    let mut rig = Rig::new(Setup { card_pages: 600, context_pages: 600, ..Setup::default() });
    let (_, c) = rig.user(QP, 600);
    rig.get(1, &c, BASE, 256, false);
    assert_eq!(shown(&c).pages.len(), 256);
    rig.get(2, &c, BASE + 256, 10, false);
    let now = shown(&c);
    assert_eq!((now.pages.len(), now.pinned, now.limit), (256, 266, 600));
    rig.end();
}

#[test]
fn inv_6_a_card_that_asks_for_more_than_can_be_kept_is_reset() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(QP, 64);
    rig.world.fail_next(0, 513);
    for tag in 1..=512 {
        rig.ask(tag, &c, BASE, 1, false);
    }
    rig.settle();
    assert_eq!((rig.pages.needs.lock().len(), rig.counter(D_RESETS)), (512, 0));
    rig.ask(513, &c, BASE, 1, false);
    rig.ms(5);
    assert_eq!((rig.pages.needs.lock().len(), rig.counter(D_RESETS)), (0, 1));
    rig.end();
}

#[test]
fn inv_6_a_need_that_is_kept_is_not_answered_to_other_firmware() {
    // The card is reset at any moment.
    for seed in 0..60 {
        let mut rig = Rig::with(Some(seed), Setup::default());
        let (_, c) = rig.user(QP, 64);
        rig.world.fail_next(0, 8);
        for tag in 1..=8 {
            rig.ask(tag, &c, BASE, 1, false);
        }
        rig.ms(9);
        rig.world.set_preempt(2);
        if seed % 2 == 0 {
            rig.world.set_failures(1, 0);
        }
        let card = rig.card.clone();
        rig.world.spawn(move || {
            kernel::time::delay::fsleep(kernel::time::Delta::from_micros(980 + 2 * (seed as i64 % 20)));
            let _ = card.reset("a test");
        });
        rig.watch(5 * MS);
        rig.end();
    }
}

#[test]
fn inv_3_nothing_is_pinned_for_a_context_that_is_being_closed() {
    let mut rig = Rig::new(Setup { card_pages: 40, ..Setup::default() });
    let (_, c) = rig.user(QP, 200);
    rig.get(1, &c, BASE, 30, false);
    rig.ask(2, &c, BASE + 50, 20, false);
    rig.settle();
    c.space.lock().closing = true;
    let before = rig.pinned();
    rig.pages.set_budget(100);
    rig.settle();
    assert_eq!((rig.refused(2), rig.pinned()), (Some(PAGE_NO_PROCESS), before));
    c.space.lock().closing = false;
    rig.end();
}

#[test]
fn decision_14_pages_that_are_leaving_do_not_count_as_there() {
    let mut rig = Rig::new(Setup { linger_ms: 0, ..Setup::default() });
    let (mm, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 1, false);
    rig.stick(mm, BASE + 1, true);
    rig.ask(2, &c, BASE, 2, false);
    rig.settle();
    // While its other page is on the way, the first one is offered for eviction.
    rig.stall(true);
    rig.release(1);
    rig.settle();
    assert_eq!(rig.page(&c, BASE).unwrap().state, "Evicting");
    rig.stick(mm, BASE + 1, false);
    rig.settle();
    assert_eq!(rig.flags(&c, 2), BLOCKED);
    rig.stall(false);
    rig.settle();
    assert!(rig.holds(2));
    assert_eq!(rig.surroundings.hardware.borrow().vain, 0);
    rig.end();
}

#[test]
fn decision_14_a_request_goes_on_when_a_page_turns_out_to_be_in_use() {
    let mut rig = Rig::new(Setup { linger_ms: 0, ..Setup::default() });
    let (_, c) = rig.user(QP, 64);
    rig.get(1, &c, BASE, 1, false);
    rig.get(2, &c, BASE, 1, false);
    rig.stall(true);
    rig.release(1);
    rig.settle();
    rig.ask(3, &c, BASE, 2, false);
    rig.settle();
    assert_eq!(rig.flags(&c, 3), BLOCKED);
    rig.stall(false);
    rig.settle();
    assert!(rig.holds(3));
    rig.end();
}
