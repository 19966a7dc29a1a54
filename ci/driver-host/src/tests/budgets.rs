// SPDX-License-Identifier: GPL-2.0
//! How much may be pinned, and whose turn it is when that is not enough.

use super::rig::*;
use crate::abi::message;
use crate::abi::{counters::*, ring::*, status::*};
use crate::card::owner::Owner as _;
use crate::memory::Change;
use crate::pages::budget::{Budget, spare};
use crate::process::Context;
use kernel::sync::Arc;

/// Queue pairs.
const QP: u32 = crate::abi::card::FIRST_QPN;
const OTHER: u32 = QP + 1;

/// The budget of a context's process.
fn share(context: &Context) -> Budget {
    *context.space.share.budget.lock()
}

/// A card that may have so many pages.
fn card(pages: u64) -> Setup {
    Setup { card_pages: pages, ..Setup::default() }
}

#[test]
fn decision_19_receives_leave_a_reserve_and_at_most_half_to_sends() {
    assert_eq!(
        [spare(100, true, 14), spare(20, true, 14), spare(21, true, 14), spare(100, false, 14)],
        [14, 10, 10, 0]
    );
    let mut budget = Budget::new(100);
    assert_eq!((budget.most(true, 14), budget.most(false, 14)), (86, 100));
    assert!(budget.fits(86, true, 14) && !budget.fits(87, true, 14) && budget.fits(100, false, 14));
    budget.charge(50, false);
    budget.charge(36, true);
    assert_eq!((budget.pinned, budget.receive), (86, 36));
    assert!(
        !budget.fits(1, true, 14)
            && budget.fits(0, true, 14)
            && budget.fits(14, false, 14)
            && !budget.fits(15, false, 14)
    );
    budget.uncharge(10, true);
    budget.uncharge(20, false);
    assert_eq!((budget.pinned, budget.receive, budget.limit), (56, 26, 100));
}

#[test]
fn f10_a_context_is_told_of_its_own_pages_only() {
    let mut rig = Rig::new(card(100));
    let (_, one) = rig.user(QP, 200);
    let (_, other) = rig.user(OTHER, 200);
    let told = |c: &Context| {
        let q = c.space.query();
        (q.pinned / 4096, q.pinned_peak / 4096)
    };
    rig.get(1, &one, BASE, 30, false);
    rig.get(2, &other, BASE, 5, false);
    assert_eq!((told(&one), told(&other)), ((30, 30), (5, 5)));
    rig.release(1);
    rig.ms(200);
    rig.get(3, &other, BASE + 50, 7, true);
    assert_eq!((told(&one), told(&other)), ((0, 30), (12, 12)), "the card's peak is 35, and nobody's");
    assert_eq!(rig.counter(D_PINNED_PEAK), 35 * 4096);
    // The peak of all may begin anew; that of a context stays what it was.
    rig.pages.reset_peak();
    rig.release(2);
    rig.release(3);
    rig.ms(200);
    assert_eq!((told(&one), told(&other)), ((0, 30), (0, 12)));
    assert_eq!(other.space.query().budget, 100 * 4096, "at most the card's");
    rig.end();
}

#[test]
fn pc_3_requests_larger_than_a_budget_are_refused_at_once() {
    // By the card, the process, RLIMIT_MEMLOCK; receives leave 14 pages for sends, at most half.
    for (card, context, memlock) in [(40, 256, u64::MAX), (256, 40, u64::MAX), (256, 256, 40)] {
        let mut rig = Rig::new(Setup { card_pages: card, context_pages: context, ..Setup::default() });
        let mm = rig.process();
        rig.mmap(mm, BASE, 100);
        let c = rig.context_with(mm, memlock);
        for (n, (pages, write, fits)) in
            [(41, false, false), (40, false, true), (27, true, false), (26, true, true)].into_iter().enumerate()
        {
            rig.ask(1, &c, BASE, pages, write);
            rig.settle();
            assert_eq!((rig.holds(1), rig.refused(1)), (fits, (!fits).then_some(PAGE_OVER_BUDGET)), "{n}");
            if fits {
                rig.release(1);
                rig.ms(200);
                assert_eq!(rig.pins(), 0);
            }
        }
        assert_eq!((rig.counter(D_OVER_BUDGET), rig.counter(D_BUDGET_WAITS)), (2, 0));
        rig.end();
    }
}

#[test]
fn pc_3_who_waits_for_budget_is_served_in_order_when_pages_go() {
    let mut rig = Rig::new(card(40));
    let (_, c) = rig.user(QP, 200);
    rig.get(1, &c, BASE, 30, false);
    rig.ask(2, &c, BASE + 30, 12, false);
    rig.ask(3, &c, BASE + 50, 5, false);
    rig.ask(4, &c, BASE + 60, 30, false);
    rig.settle();
    let flags = [2, 3, 4].map(|tag| rig.flags(&c, tag));
    assert_eq!(flags.map(|f| f & (WAITING | SHORT)), [WAITING | SHORT, WAITING, WAITING]);
    // The card is asked whether anything is idle; nothing is. Only the first counts as one that waits.
    assert_eq!((rig.counter(D_BUDGET_WAITS), rig.times(CMD_PAGE_EVICT)), (1, 0));
    // Released, it does not linger.
    rig.release(1);
    rig.settle();
    assert!(rig.holds(2) && rig.holds(3) && !rig.holds(4));
    assert_eq!((shown(&c).pinned, rig.counter(D_BUDGET_WAITS)), (17, 2));
    rig.release(3);
    rig.release(2);
    rig.settle();
    assert!(rig.holds(4));
    rig.end();
}

#[test]
fn pc_3_idle_pages_of_anybody_make_room() {
    let mut rig = Rig::new(Setup { linger_ms: 900, ..card(40) });
    let (_, a) = rig.user(QP, 64);
    let (_, b) = rig.user(OTHER, 64);
    rig.get(1, &a, BASE, 30, false);
    rig.release(1);
    rig.ms(20);
    assert_eq!(rig.pins(), 30);
    rig.ask(2, &b, BASE, 12, false);
    rig.settle();
    assert!(rig.holds(2));
    assert_eq!((shown(&a).pinned, rig.counter(D_BUDGET_WAITS)), (0, 1));
    // What is in use stays, and so does what is idle as long as it fits.
    rig.get(3, &a, BASE, 20, false);
    rig.release(3);
    rig.get(4, &b, BASE + 20, 8, false);
    assert_eq!(rig.pins(), 40);
    rig.end();
}

#[test]
fn decision_19_sends_go_on_while_receives_wait() {
    let mut rig = Rig::new(card(40));
    let (_, c) = rig.user(QP, 200);
    rig.get(receive_tag(QP, 0), &c, BASE, 26, true);
    rig.ask(receive_tag(QP, 1), &c, BASE + 30, 1, true);
    rig.settle();
    assert_eq!(rig.flags(&c, receive_tag(QP, 1)) & (WAITING | SHORT | LISTED), WAITING | SHORT | LISTED);
    rig.get(send_tag(QP, 0), &c, BASE + 40, 14, false);
    assert_eq!(rig.pins(), 40);
    assert!(!rig.holds(receive_tag(QP, 1)));
    // A send that has to wait stands in another line.
    rig.ask(send_tag(QP, 1), &c, BASE + 60, 1, false);
    rig.settle();
    assert_eq!(rig.flags(&c, send_tag(QP, 1)) & WAITING, WAITING);
    // What sends give back is for sends.
    rig.release(send_tag(QP, 0));
    rig.settle();
    assert!(!rig.holds(receive_tag(QP, 1)) && rig.holds(send_tag(QP, 1)));
    rig.release(receive_tag(QP, 0));
    rig.settle();
    assert!(rig.holds(receive_tag(QP, 1)));
    rig.end();
}

#[test]
fn pc_3_contexts_of_a_process_share_its_budget() {
    let mut rig = Rig::new(Setup { context_pages: 40, ..Setup::default() });
    let (mm, a) = rig.user(QP, 200);
    let b = rig.context(mm);
    assert!(Arc::ptr_eq(&a.space.share, &b.space.share));
    rig.get(1, &a, BASE, 30, false);
    rig.ask(2, &b, BASE + 50, 20, false);
    rig.settle();
    assert_eq!(rig.flags(&b, 2) & (WAITING | SHORT), WAITING | SHORT);
    assert_eq!((share(&a).pinned, shown(&b).pinned), (30, 0));
    // More for one context is more for the process, and never less.
    b.space.set_budget(60);
    rig.settle();
    assert!(rig.holds(2));
    assert_eq!((share(&a).limit, shown(&b).limit), (60, 60));
    b.space.set_budget(20);
    assert_eq!((share(&a).limit, shown(&b).limit), (60, 20));
    rig.release(1);
    rig.settle();
    assert_eq!(share(&a).pinned, 50);
    // It may be less than is pinned: what is idle goes at once then.
    b.space.set_budget(20);
    rig.settle();
    assert_eq!(shown(&b).pinned, 20);
    rig.release(2);
    rig.settle();
    b.space.set_budget(20);
    rig.settle();
    assert_eq!((shown(&b).pinned, rig.times(CMD_PAGE_EVICT)), (20, 0));
    b.space.set_budget(19);
    rig.settle();
    assert_eq!((shown(&b).pinned, share(&a).pinned), (0, 30));
    rig.end();
}

#[test]
fn pc_3_a_raised_budget_serves_who_waits() {
    let mut rig = Rig::new(card(40));
    let (_, a) = rig.user(QP, 200);
    let (_, b) = rig.user(OTHER, 200);
    rig.get(1, &a, BASE, 30, false);
    rig.ask(2, &b, BASE, 20, false);
    rig.settle();
    assert!(!rig.holds(2));
    rig.pages.set_budget(49);
    rig.settle();
    assert!(!rig.holds(2));
    rig.pages.set_budget(50);
    rig.settle();
    assert!(rig.holds(2));
    assert_eq!((rig.counter(D_BUDGET), rig.counter(D_PINNED_PEAK)), (bytes(50), bytes(50)));
    rig.release(1);
    rig.ms(200);
    assert_eq!((rig.counter(D_PINNED), rig.counter(D_PINNED_PEAK)), (bytes(20), bytes(50)));
    rig.pages.reset_peak();
    assert_eq!(rig.counter(D_PINNED_PEAK), bytes(20));
    rig.end();
}

#[test]
fn pc_3_what_others_have_of_memlock_is_refused_or_waited_for() {
    let mut rig = Rig::new(Setup::default());
    let mm = rig.process();
    rig.mmap(mm, BASE, 100);
    let c = rig.context_with(mm, 40);
    rig.get(1, &c, BASE, 20, false);
    mm.charge_for_others(15);
    // 20 of its own: they may come back.
    rig.ask(2, &c, BASE + 30, 6, false);
    rig.settle();
    assert_eq!((rig.flags(&c, 2) & (WAITING | SHORT), mm.counts().2), (WAITING | SHORT, 35));
    rig.release(1);
    rig.settle();
    assert!(rig.holds(2));
    rig.release(2);
    rig.ms(200);
    assert_eq!((rig.pins(), mm.counts().2), (0, 15));
    // Nothing of its own: nothing would come back.
    rig.ask(4, &c, BASE, 26, false);
    rig.settle();
    assert_eq!((rig.refused(4), rig.counter(D_OVER_BUDGET)), (Some(PAGE_OVER_BUDGET), 1));
    // Receives leave as much here, too.
    rig.ask(5, &c, BASE, 12, true);
    rig.settle();
    assert_eq!(rig.refused(5), Some(PAGE_OVER_BUDGET));
    rig.get(6, &c, BASE, 11, true);
    assert_eq!(mm.counts().2, 26);
    mm.charge_for_others(-15);
    rig.end();
}

#[test]
fn pc_3_memlock_is_charged_to_its_limit() {
    let mut rig = Rig::new(Setup::default());
    let mm = rig.process();
    let c = rig.context_with(mm, 10);
    assert_eq!(c.space.memlock.limit(), 10);
    assert!(
        c.space.memlock.charge(6, 4)
            && !c.space.memlock.charge(1, 4)
            && c.space.memlock.charge(4, 0)
            && !c.space.memlock.charge(1, 0)
    );
    assert_eq!(mm.counts().2, 10);
    c.space.memlock.uncharge(10);
    let free = rig.context(mm);
    assert_eq!(free.space.memlock.limit(), i64::MAX as u64);
    assert!(free.space.memlock.charge(1 << 40, 14));
    free.space.memlock.uncharge(1 << 40);
    assert_eq!(mm.counts().2, 0);
    rig.end();
}

#[test]
fn pc_3_blocks_are_less_than_half_of_what_may_be_pinned() {
    let mut rig = Rig::new(Setup { card_pages: 100, context_pages: 60, ..Setup::default() });
    let mm = rig.process();
    let c = rig.context(mm);
    // 64 KiB unless something else is asked for; in whole pages; at most half of the budget, less one; at least one.
    assert_eq!([0, 4096, 8192, 65536].map(|n| c.space.block(n)), [65536, 4096, 8192, 65536]);
    assert_eq!(c.space.block(1 << 20), 29 * 4096);
    let small = rig.context_with(mm, 20);
    assert_eq!([0, 4096, 1 << 20].map(|n| small.space.block(n)), [9 * 4096, 4096, 9 * 4096]);
    let tiny = rig.context_with(mm, 2);
    assert_eq!(tiny.space.block(0), 4096);
    rig.pages.set_budget(40);
    assert_eq!(c.space.block(1 << 20), 19 * 4096);
    rig.pages.set_budget(100);
    // Receives leave as much as the largest, and a page more.
    rig.mmap(mm, BASE, 100);
    rig.ask(1, &c, BASE, 31, true);
    rig.settle();
    assert_eq!(rig.refused(1), Some(PAGE_OVER_BUDGET));
    rig.reserve.insert(Arc::as_ptr(&c.space) as usize, 30);
    rig.get(1, &c, BASE, 30, true);
    rig.end();
}

/// Milliseconds until the card has been asked to recall grants once more, at most 300.
fn until_pressed(rig: &mut Rig) -> u64 {
    let times = rig.times(CMD_PRESSURE);
    for ms in 0..300 {
        if rig.times(CMD_PRESSURE) > times {
            return ms;
        }
        rig.ms(1);
    }
    300
}

#[test]
fn pc_3_grants_are_recalled_at_once_for_a_send_and_after_40_ms_for_a_receive() {
    let mut rig = Rig::new(card(40));
    let (_, c) = rig.user(QP, 200);
    rig.get(receive_tag(QP, 0), &c, BASE, 26, true);
    rig.ask(receive_tag(QP, 1), &c, BASE + 30, 3, true);
    let first = until_pressed(&mut rig);
    assert_eq!(first, 40);
    assert_eq!(rig.last::<message::Pressure>(), message::Pressure { asid: 0, bytes: bytes(3) as u32 });
    assert_eq!(rig.flags(&c, receive_tag(QP, 1)) & PRESSED, PRESSED);
    // Again and again, at such distances.
    let second = until_pressed(&mut rig);
    assert_eq!(second, 40);
    // Something that goes gives it time.
    rig.get(send_tag(QP, 0), &c, BASE + 80, 3, false);
    rig.ms(20);
    rig.release(send_tag(QP, 0));
    rig.settle();
    let third = until_pressed(&mut rig);
    assert_eq!(third, 40);
    assert_eq!(rig.counter(D_BUDGET_WAITS), 1);
    // A send presses when it has to wait, once; afterwards it has as much patience.
    rig.ask(send_tag(QP, 1), &c, BASE + 60, 15, false);
    rig.settle();
    assert_eq!(rig.flags(&c, send_tag(QP, 1)) & PRESSED, PRESSED);
    assert_eq!(rig.last::<message::Pressure>().bytes, bytes(15) as u32);
    let next = until_pressed(&mut rig);
    assert!((30..=50).contains(&next), "{next}");
    // Both at once.
    assert_eq!(rig.last::<message::Pressure>().bytes, bytes(18) as u32);
    rig.surroundings.hardware.borrow_mut().recalls = true;
    rig.ms(60);
    assert!(rig.holds(send_tag(QP, 1)) && rig.holds(receive_tag(QP, 1)));
    rig.end();
}

#[test]
fn pc_3_firmware_is_asked_to_recall_grants_once_at_a_time() {
    let mut rig = Rig::new(card(40));
    let (_, c) = rig.user(QP, 200);
    rig.get(receive_tag(QP, 0), &c, BASE, 26, true);
    rig.surroundings.hardware.borrow_mut().deaf = true;
    rig.ask(send_tag(QP, 0), &c, BASE + 60, 15, false);
    rig.settle();
    rig.ask(send_tag(QP, 1), &c, BASE + 80, 15, false);
    rig.ask(receive_tag(QP, 1), &c, BASE + 30, 3, true);
    rig.ms(200);
    assert_eq!(rig.times(CMD_PRESSURE), 1);
    assert_eq!(rig.flags(&c, receive_tag(QP, 1)) & PRESSED, 0);
    rig.surroundings.hardware.borrow_mut().deaf = false;
    rig.ms(12);
    assert_eq!(rig.times(CMD_PRESSURE), 2);
    assert_eq!(rig.flags(&c, receive_tag(QP, 1)) & PRESSED, PRESSED);
    rig.end();
}

#[test]
fn pc_3_idle_pages_go_before_grants_are_recalled() {
    let mut rig = Rig::new(Setup { linger_ms: 500, ..card(40) });
    let (_, a) = rig.user(QP, 200);
    let (_, b) = rig.user(OTHER, 200);
    rig.get(receive_tag(QP, 0), &a, BASE, 16, true);
    rig.get(receive_tag(QP, 1), &a, BASE + 16, 10, true);
    rig.release(receive_tag(QP, 1));
    rig.settle();
    rig.ask(receive_tag(OTHER, 0), &b, BASE, 5, true);
    rig.settle();
    assert!(rig.holds(receive_tag(OTHER, 0)));
    assert_eq!((rig.times(CMD_PRESSURE), shown(&a).pinned), (0, 16));
    // Those of its own as well.
    rig.release(receive_tag(OTHER, 0));
    rig.settle();
    rig.ask(receive_tag(OTHER, 1), &b, BASE + 20, 8, true);
    rig.settle();
    assert!(rig.holds(receive_tag(OTHER, 1)));
    assert_eq!((rig.times(CMD_PRESSURE), shown(&b).pinned), (0, 8));
    rig.end();
}

#[test]
fn pc_3_a_receive_that_waits_for_more_than_there_is_ends_by_name() {
    let mut rig = Rig::new(card(40));
    let (_, c) = rig.user(QP, 200);
    rig.give_qp(OTHER, c.asid);
    rig.get(receive_tag(QP, 0), &c, BASE, 20, true);
    rig.ask(receive_tag(QP, 1), &c, BASE + 20, 10, true);
    rig.ask(receive_tag(QP, 2), &c, BASE + 40, 10, true);
    rig.ask(receive_tag(OTHER, 0), &c, BASE + 60, 10, true);
    rig.settle();
    // Firmware says so, but not of a queue pair that there is; then of another's that waits behind.
    rig.registry.refuse_receive(QP + 3);
    rig.registry.refuse_receive(0);
    rig.registry.refuse_receive(OTHER);
    rig.ms(39);
    rig.registry.refuse_receive(QP);
    rig.settle();
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    rig.ms(1);
    rig.registry.refuse_receive(OTHER);
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    // Somebody's memory is idle, or on its way: its budget may come back.
    rig.get(send_tag(QP, 0), &c, BASE + 80, 2, false);
    let mm = rig.process();
    rig.mmap(mm, BASE, 10);
    let other = rig.context(mm);
    rig.stick(mm, BASE, true);
    rig.ask(99, &other, BASE, 2, false);
    rig.settle();
    rig.registry.refuse_receive(QP);
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    rig.ms(499);
    rig.registry.refuse_receive(QP);
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    rig.ms(1);
    rig.stall(true);
    rig.release(send_tag(QP, 0));
    rig.settle();
    rig.registry.refuse_receive(QP);
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    rig.stall(false);
    rig.ms(40);
    // Only that which waits for budget, not what waits behind it in line.
    rig.registry.refuse_receive(QP);
    rig.settle();
    assert_eq!(rig.refused(receive_tag(QP, 1)), Some(PAGE_OVER_BUDGET));
    assert_eq!(rig.counter(D_OVER_BUDGET), 1);
    assert!(rig.asks(receive_tag(QP, 2)).is_some() && rig.asks(receive_tag(OTHER, 0)).is_some());
    // The next one in line has its turn, and is refused as firmware's answer to pressure.
    assert_eq!(rig.flags(&c, receive_tag(QP, 2)) & SHORT, SHORT);
    rig.surroundings.hardware.borrow_mut().stuck_qp = QP;
    rig.ms(60);
    assert_eq!(rig.refused(receive_tag(QP, 2)), Some(PAGE_OVER_BUDGET));
    rig.surroundings.hardware.borrow_mut().stuck_qp = 0;
    rig.end();
}

#[test]
fn pc_3_receives_of_two_contexts_that_both_fit_do_not_wait_for_each_other() {
    // In what order their requests are worked on at random.
    for seed in 0..60 {
        let mut rig = Rig::with(Some(seed), card(400));
        let (_, one) = rig.user(QP, 40);
        let (_, two) = rig.user(OTHER, 40);
        rig.world.set_preempt(2);
        for n in 0..8 {
            rig.ask(receive_tag(QP, n), &one, BASE + 2 * u64::from(n), 2, true);
            rig.ask(receive_tag(OTHER, n), &two, BASE + 2 * u64::from(n), 2, true);
        }
        rig.watch(10 * MS);
        assert_eq!(rig.counter(D_BUDGET_WAITS), 0);
        rig.end();
    }
}

#[test]
fn pc_3_sends_are_not_refused_with_receives() {
    let mut rig = Rig::new(card(40));
    let (_, c) = rig.user(QP, 200);
    rig.get(receive_tag(QP, 0), &c, BASE, 26, true);
    rig.ask(send_tag(QP, 0), &c, BASE + 40, 20, false);
    rig.ms(100);
    rig.registry.refuse_receive(QP);
    rig.settle();
    assert!(rig.asks(send_tag(QP, 0)).is_some());
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    rig.end();
}

#[test]
fn pc_3_a_receive_that_waits_for_the_cards_budget_keeps_later_ones_from_it_for_2_s() {
    let mut rig = Rig::new(card(60));
    let (_, a) = rig.user(QP, 200);
    let (_, b) = rig.user(OTHER, 200);
    let (_, holder) = rig.user(QP + 2, 200);
    let (mine, later, small) = (receive_tag(QP, 0), receive_tag(OTHER, 0), send_tag(OTHER, 0));
    rig.get(1, &holder, BASE, 20, true);
    rig.ask(mine, &a, BASE, 30, true);
    rig.ms(1);
    rig.ask(later, &b, BASE, 5, true);
    rig.settle();
    assert_eq!(rig.flags(&a, mine) & (WAITING | SHORT | LISTED | BEHIND), WAITING | SHORT | LISTED);
    assert_eq!(rig.flags(&b, later) & (WAITING | SHORT | LISTED | BEHIND), WAITING | SHORT | LISTED | BEHIND);
    // It would fit, so nobody is refused for its sake.
    rig.ms(60);
    rig.registry.refuse_receive(OTHER);
    rig.settle();
    assert!(rig.asks(later).is_some());
    // Sends stand in no line.
    rig.get(small, &b, BASE + 20, 2, false);
    rig.ms(1900);
    assert!(!rig.holds(later));
    rig.ms(70);
    assert!(rig.holds(later));
    rig.release(1);
    rig.ms(110);
    assert!(rig.holds(mine));
    assert!(rig.pages.waiting.lock().iter().all(Option::is_none));
    rig.end();
}

#[test]
fn pc_3_who_leaves_the_line_lets_those_behind_go_on_at_once() {
    // It is served, its queue pair ends, it is refused, or it waits for something else first.
    for how in 0..5 {
        let mut rig = Rig::new(card(60));
        let (mm, a) = rig.user(QP, 200);
        let (_, b) = rig.user(OTHER, 200);
        let (_, holder) = rig.user(QP + 2, 200);
        let (mine, later) = (receive_tag(QP, 0), receive_tag(OTHER, 0));
        rig.get(1, &holder, BASE, 20, true);
        rig.ask(mine, &a, BASE, 30, true);
        rig.ms(1);
        rig.ask(later, &b, BASE, 5, true);
        rig.ms(50);
        assert_eq!(rig.flags(&b, later) & BEHIND, BEHIND);
        match how {
            0 => {
                rig.pages.set_budget(69);
                rig.settle();
                assert!(rig.holds(mine));
            }
            1 => {
                a.space.end_requests(QP);
                a.space.end_requests(0);
            }
            2 => rig.registry.refuse_receive(QP),
            3 => a.space.drop_requests(),
            _ => {
                // Its own context's budget is too small now: it is not the card's that it waits for.
                rig.get(2, &a, BASE + 100, 2, false);
                a.space.set_budget(45);
                rig.get(3, &a, BASE + 110, 1, false);
                rig.ms(110);
            }
        }
        rig.settle();
        assert!(rig.holds(later), "{how}");
        if how == 3 {
            rig.surroundings.hardware.borrow_mut().asks.remove(&mine);
        }
        let _ = mm;
        rig.end();
    }
}

#[test]
fn pc_3_who_waits_for_a_page_to_go_keeps_nobody_from_the_budget() {
    let mut rig = Rig::new(card(60));
    let (_, a) = rig.user(QP, 200);
    let (_, b) = rig.user(OTHER, 200);
    let (mine, later) = (receive_tag(QP, 0), receive_tag(OTHER, 0));
    rig.get(1, &b, BASE + 100, 20, true);
    rig.ask(mine, &a, BASE, 30, true);
    rig.ms(1);
    rig.ask(later, &b, BASE, 5, true);
    rig.settle();
    assert_eq!(rig.flags(&b, later) & BEHIND, BEHIND);
    // A page of its range comes, for reading.
    rig.get(2, &a, BASE + 3, 1, false);
    rig.ms(30);
    assert_eq!(rig.flags(&a, mine) & BLOCKED, BLOCKED);
    rig.ms(30);
    assert!(rig.holds(later));
    rig.end();
}

#[test]
fn pc_3_what_a_request_does_not_get_is_charged_no_more() {
    let mut rig = Rig::new(card(60));
    let (mm, c) = rig.user(QP, 20);
    rig.ask(1, &c, BASE + 10, 20, true);
    rig.settle();
    assert_eq!(rig.refused(1), Some(PAGE_FAULT));
    assert_eq!((shown(&c).pinned, shown(&c).receive, mm.counts().2), (0, 0, 0));
    assert_eq!(rig.pages.budget.lock().receive, 0);
    assert_eq!(c.space.share.budget.lock().receive, 0);
    rig.change(mm, BASE, 1, Change::Suspect);
    rig.end();
}

#[test]
fn pc_3_a_receive_is_refused_from_40_ms_on_and_while_nothing_comes() {
    let mut rig = Rig::new(Setup { context_pages: 40, ..Setup::default() });
    let (_, c) = rig.user(QP, 200);
    let (mm, other) = rig.user(OTHER, 10);
    let (mine, next) = (receive_tag(QP, 1), receive_tag(QP, 2));
    rig.get(receive_tag(QP, 0), &c, BASE, 20, true);
    rig.ask(mine, &c, BASE + 20, 10, true);
    rig.ask(next, &c, BASE + 40, 5, true);
    rig.settle();
    rig.ms(39);
    rig.registry.refuse_receive(QP);
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    // Pages are on their way for less than half a second.
    rig.stick(mm, BASE, true);
    rig.ask(99, &other, BASE, 2, false);
    rig.ms(499);
    rig.registry.refuse_receive(QP);
    assert_eq!(rig.counter(D_OVER_BUDGET), 0);
    rig.ms(1);
    rig.registry.refuse_receive(QP);
    rig.settle();
    assert_eq!((rig.refused(mine), rig.counter(D_OVER_BUDGET)), (Some(PAGE_OVER_BUDGET), 1));
    // The next one in line goes on at once.
    assert!(rig.holds(next));
    rig.ask(mine, &c, BASE + 20, 10, true);
    rig.settle();
    rig.ms(40);
    rig.registry.refuse_receive(QP);
    rig.settle();
    assert_eq!(rig.counter(D_OVER_BUDGET), 2);
    rig.end();
}

#[test]
fn pc_3_a_receive_that_can_never_fit_beside_what_memlock_leaves_to_sends_is_refused() {
    let mut rig = Rig::new(Setup::default());
    let mm = rig.process();
    rig.mmap(mm, BASE, 100);
    let c = rig.context_with(mm, 40);
    rig.get(1, &c, BASE + 50, 1, false);
    rig.ask(2, &c, BASE, 27, true);
    rig.settle();
    assert_eq!(rig.refused(2), Some(PAGE_OVER_BUDGET));
    rig.end();
}

#[test]
fn pc_3_who_waits_for_memlock_keeps_nobody_from_the_cards_budget() {
    let mut rig = Rig::new(Setup::default());
    let mm = rig.process();
    rig.mmap(mm, BASE, 100);
    let a = rig.context_with(mm, 40);
    let (_, b) = rig.user(OTHER, 64);
    rig.get(1, &a, BASE + 50, 1, false);
    mm.charge_for_others(30);
    rig.ask(2, &a, BASE, 10, true);
    rig.ms(1);
    assert_eq!(rig.flags(&a, 2) & (WAITING | SHORT), WAITING | SHORT);
    rig.ask(3, &b, BASE, 10, true);
    rig.settle();
    assert!(rig.holds(3));
    mm.charge_for_others(-30);
    rig.end();
}

#[test]
fn pc_3_memory_that_does_not_come_keeps_one_page_of_the_budget() {
    for write in [false, true] {
        let mut rig = Rig::new(Setup { linger_ms: 20, ..card(60) });
        let (mm, a) = rig.user(QP, 64);
        let (_, b) = rig.user(OTHER, 64);
        rig.stick(mm, BASE + 2, true);
        rig.ask(1, &a, BASE, 30, write);
        if write {
            rig.ask(2, &b, BASE, 31, false);
        }
        rig.ms(499);
        // It has its turn first, in case its pages come.
        assert_eq!((shown(&a).pinned, rig.pins(), rig.flags(&a, 1)), (30, 0, CHARGED | BRINGING));
        rig.ms(21);
        if !write {
            rig.ask(2, &b, BASE, 31, false);
            rig.settle();
        }
        assert!(rig.holds(2));
        let receive = u64::from(write);
        assert_eq!((shown(&a).pinned, shown(&a).receive, rig.pins()), (1, receive, 31));
        assert_eq!(rig.flags(&a, 1), CHARGED | BRINGING | LENT);
        rig.ms(600);
        assert_eq!((shown(&a).pinned, rig.pages.budget.lock().pinned), (1, 32));
        // When they come it is charged anew, in its turn.
        rig.stick(mm, BASE + 2, false);
        rig.settle();
        assert_eq!(rig.flags(&a, 1) & (CHARGED | BRINGING | LENT | WAITING), WAITING);
        assert_eq!(shown(&a).pinned, 0);
        rig.release(2);
        rig.ms(60);
        assert!(rig.holds(1), "{write}");
        assert_eq!((shown(&a).pinned, rig.pins()), (30, 30));
        rig.end();
    }
}

#[test]
fn pc_3_memory_that_comes_late_is_charged_from_when_it_is_looked_for() {
    let mut rig = Rig::new(Setup { linger_ms: 20, ..card(40) });
    let (mm, a) = rig.user(QP, 64);
    let (_, b) = rig.user(OTHER, 64);
    rig.get(1, &b, BASE, 20, false);
    rig.stick(mm, BASE + 2, true);
    rig.ask(2, &a, BASE, 30, false);
    // That it waits for budget does not count.
    rig.ms(700);
    assert_eq!(rig.flags(&a, 2) & WAITING, WAITING);
    rig.release(1);
    rig.ms(450);
    assert_eq!((rig.flags(&a, 2) & (BRINGING | LENT), shown(&a).pinned), (BRINGING, 30));
    rig.ms(100);
    assert_eq!((rig.flags(&a, 2) & LENT, shown(&a).pinned), (LENT, 1));
    // Nor that its memory was looked for once, when that has come and gone.
    rig.surroundings.memory.borrow_mut().pass(mm.as_raw() as usize);
    rig.ms(400);
    assert_eq!((rig.flags(&a, 2) & (BRINGING | LENT), shown(&a).pinned), (BRINGING, 30));
    rig.end();
}

#[test]
fn pc_3_a_request_that_is_given_up_lends_at_once_what_it_was_charged() {
    let mut rig = Rig::new(card(40));
    let (mm, a) = rig.user(QP, 64);
    let (_, b) = rig.user(OTHER, 64);
    rig.stick(mm, BASE + 29, true);
    rig.ask(send_tag(QP, 0), &a, BASE, 30, false);
    rig.ask(2, &b, BASE, 20, false);
    rig.settle();
    a.space.end_requests(QP);
    rig.settle();
    assert_eq!(rig.refused(send_tag(QP, 0)), Some(PAGE_NO_PROCESS));
    assert!(rig.holds(2));
    assert_eq!((shown(&a).pinned, rig.pins()), (1, 20));
    rig.stick(mm, BASE + 29, false);
    rig.settle();
    assert_eq!((shown(&a).pinned, rig.pins()), (0, 20));
    a.space.end_requests(0);
    rig.end();
}

#[test]
fn pc_3_each_that_is_charged_wakes_the_next() {
    let mut rig = Rig::new(Setup { linger_ms: 1000, ..card(40) });
    let (mm, c) = rig.user(QP, 200);
    rig.get(1, &c, BASE, 30, false);
    rig.stick(mm, BASE + 50, true);
    rig.ask(2, &c, BASE + 50, 20, false);
    rig.ask(3, &c, BASE + 80, 20, false);
    rig.settle();
    rig.pages.set_budget(100);
    rig.settle();
    // The first one's pages do not come.
    assert_eq!(rig.flags(&c, 2) & (CHARGED | WAITING), CHARGED);
    assert!(rig.holds(3));
    rig.end();
}

#[test]
fn pc_3_receives_that_come_together_do_not_wait_for_each_other() {
    let mut rig = Rig::new(Setup { linger_ms: 1000, ..card(60) });
    let (_, a) = rig.user(QP, 200);
    let (_, b) = rig.user(OTHER, 200);
    let (_, holder) = rig.user(QP + 2, 200);
    rig.get(1, &holder, BASE, 40, true);
    rig.ask(2, &a, BASE, 20, true);
    rig.ask(3, &b, BASE, 20, true);
    rig.settle();
    assert!(!rig.holds(2) && !rig.holds(3));
    rig.pages.set_budget(100);
    rig.settle();
    assert!(rig.holds(2) && rig.holds(3));
    rig.end();
}

#[test]
fn pc_3_who_is_refused_as_the_budget_shrinks_leaves_the_line() {
    let mut rig = Rig::new(Setup { linger_ms: 1000, ..card(60) });
    let (_, a) = rig.user(QP, 200);
    let (_, b) = rig.user(OTHER, 200);
    let (_, holder) = rig.user(QP + 2, 200);
    rig.get(1, &holder, BASE, 20, true);
    rig.ask(2, &a, BASE, 30, true);
    rig.ms(1);
    rig.ask(3, &b, BASE, 5, true);
    rig.settle();
    assert_eq!(rig.flags(&b, 3) & BEHIND, BEHIND);
    rig.pages.set_budget(43);
    rig.settle();
    assert_eq!(rig.refused(2), Some(PAGE_OVER_BUDGET));
    assert!(rig.holds(3));
    rig.end();
}

#[test]
fn pc_3_the_next_in_line_goes_on_when_the_first_is_refused() {
    let mut rig = Rig::new(Setup { linger_ms: 1000, ..card(45) });
    let (_, c) = rig.user(QP, 200);
    rig.get(1, &c, BASE, 20, false);
    rig.ask(2, &c, BASE + 30, 30, false);
    rig.ask(3, &c, BASE + 70, 5, false);
    rig.settle();
    assert!(!rig.holds(3));
    rig.pages.set_budget(29);
    rig.settle();
    assert_eq!(rig.refused(2), Some(PAGE_OVER_BUDGET));
    assert!(rig.holds(3));
    rig.end();
}
