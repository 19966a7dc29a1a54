// SPDX-License-Identifier: GPL-2.0
//! Sending by copy: whose bytes the card gets, when copies go, and how many there are.

use super::clients;
use super::rig::*;
use crate::abi::{
    alias::*,
    card::*,
    counters::*,
    ioctl::{self, *},
    status::*,
};
use crate::memory::Change;
use crate::pages::aliases::Aliases;
use crate::pages::costs::Costs as OurCosts;
use crate::process::Context;
use berth_protocol::memory::blocks::Costs;
use berth_random::Rng;
use kernel::{
    mm::MmWithUser,
    prelude::{EBUSY, EINVAL, ENOSPC},
    sync::Arc,
};

const QP: u32 = FIRST_QPN;

/// The page number under which a copy of page `vpn` stands.
fn copy_of(tag: u32, vpn: u64) -> u64 {
    alias_va(tag, bytes(vpn)) / 4096
}

/// A card with so many pages for copies, and a context with tags of copies.
fn rig(copy_pages: u64) -> (Rig, &'static MmWithUser, Arc<Context>, Aliases) {
    let mut rig = Rig::new(Setup { copy_pages, ..Setup::default() });
    let (mm, c) = rig.user(QP, 64);
    let tags = c.space.aliases().expect("tags");
    (rig, mm, c, tags)
}

/// The process writes to a page.
fn write(rig: &Rig, mm: &MmWithUser, vpn: u64, what: u64) {
    rig.surroundings.memory.borrow_mut().write(mm.as_raw() as usize, vpn, what);
}

/// What the card finds under a tag.
fn found(rig: &Rig, c: &Context, tag: u32, vpn: u64) -> Option<u64> {
    let bus = rig.hardware().has(c.asid, copy_of(tag, vpn))?.bus;
    Some(rig.surroundings.memory.borrow().copied(bus).expect("it is a copy").2)
}

/// A completion queue.
fn make_cq(rig: &Rig, c: &Arc<Context>) -> u32 {
    let c = c.clone();
    let mut arg = clients::cq(16);
    let made = rig.spawn(move || c.create_cq(&mut arg).map(|_| arg.cqn));
    rig.ms(5);
    made.take().expect("it is over").expect("a completion queue")
}

/// Gives tags back.
fn drop_later(rig: &Rig, tags: Aliases) {
    rig.spawn(move || drop(tags));
    rig.ms(50);
}

#[test]
fn vc_6_addresses_of_copies_are_told_from_others() {
    let mut random = Rng(7);
    for _ in 0..10_000 {
        let tag = ALIASES_OF_QP + random.below(u64::from(ALIASES_OF_QP * ALIAS_QPS)) as u32;
        let va = random.below(ALIAS_END);
        let copy = alias_va(tag, va);
        assert_eq!(aliased_va(copy), Some((tag, va)));
        assert!(copy < 1 << 60, "the table has so many bits");
        assert_eq!(aliased_va(va), None);
    }
    assert_eq!(aliased_va(1 << 57), None);
    assert_eq!(aliased_va(u64::MAX), None);
    assert_eq!(aliased_va(1 << 60), None);
    // As many aliases of each kind as there are, and memory is contiguous under them, up to a multiple of 512 GiB.
    assert_eq!(ALIAS_POLICIES.map(|(_, _, n)| n).iter().sum::<u32>(), ALIASES_OF_QP);
    let counted = |n| (0..ALIASES_OF_QP).filter(|alias| alias_policy(3 * ALIASES_OF_QP + alias) == n).count() as u32;
    ALIAS_POLICIES.iter().for_each(|(first, again, n)| assert_eq!(counted((*first, *again)), *n));
    assert!(fits_alias((1 << 39) - 4096, 4096) && !fits_alias((1 << 39) - 4096, 4097) && !fits_alias(u64::MAX, 2));
    assert!(fits_alias(ALIAS_END - 1, 1) && !fits_alias(ALIAS_END, 1));
}

#[test]
fn vc_6_a_send_by_copy_pins_nothing_and_has_the_bytes_of_its_time() {
    let (rig, mm, c, tags) = rig(64);
    let tag = tags.first();
    (0..3).for_each(|n| write(&rig, mm, BASE + n, 10 + n));
    rig.get(1, &c, copy_of(tag, BASE), 3, false);
    assert_eq!([0, 1, 2].map(|n| found(&rig, &c, tag, BASE + n)), [Some(10), Some(11), Some(12)]);
    assert_eq!((rig.pins(), rig.pinned(), mm.counts().2), (0, 0, 0), "nothing is pinned or charged");
    assert_eq!(rig.pages.budget.lock().pinned, 0);
    let counters = [D_COPY_USED, D_COPY_PEAK, D_COPIES, D_COPIED_BYTES];
    assert_eq!(counters.map(|n| rig.counter(n)), [bytes(3), bytes(3), 1, bytes(3)]);
    // A later element, under a tag of its own, has newer bytes, though the first is still held.
    write(&rig, mm, BASE + 1, 99);
    rig.get(2, &c, copy_of(tag + 1, BASE + 1), 1, false);
    assert_eq!((found(&rig, &c, tag, BASE + 1), found(&rig, &c, tag + 1, BASE + 1)), (Some(11), Some(99)));
    rig.release(1);
    rig.release(2);
    rig.ms(20);
    assert_eq!((rig.counter(D_COPY_USED), rig.hardware().translations().count()), (0, 0), "they do not linger");
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_5_a_retransmission_is_copied_anew() {
    let (rig, mm, c, tags) = rig(64);
    let tag = tags.first() + 5;
    for turn in 0..3 {
        write(&rig, mm, BASE, turn);
        rig.get(1, &c, copy_of(tag, BASE), 1, false);
        assert_eq!(found(&rig, &c, tag, BASE), Some(turn));
        rig.release(1);
        rig.ms(20);
        assert_eq!(found(&rig, &c, tag, BASE), None);
    }
    assert_eq!((rig.pinned(), rig.counter(D_COPIES)), (0, 3));
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_6_receives_and_peers_never_meet_a_copy() {
    let (rig, mm, c, tags) = rig(64);
    let tag = tags.first();
    rig.get(1, &c, copy_of(tag, BASE), 2, false);
    // A receive into the same page has the process's own, at the same time.
    rig.get(2, &c, BASE, 2, true);
    let own = rig.hardware().has(c.asid, BASE).expect("the card has it").bus;
    assert!(rig.surroundings.memory.borrow().behind(own).1, "the card may write there");
    assert_ne!(own, rig.hardware().has(c.asid, copy_of(tag, BASE)).unwrap().bus);
    assert_eq!(rig.pins(), 2);
    // Nothing is received at an address of copies.
    for (n, (first, pages, write)) in [
        (copy_of(tag, BASE + 4), 1, true),
        // Tags that no queue pair has, and none at all.
        (copy_of(tag + ALIASES_OF_QP, BASE), 1, false),
        (1 << 47, 1, false),
        (copy_of(tag, BASE) | 1 << 48, 1, false),
        // From one tag to another.
        (copy_of(tag, ALIAS_END / 4096 - 1), 2, false),
    ]
    .into_iter()
    .enumerate()
    {
        let ask = 10 + n as u32;
        rig.ask(ask, &c, first, pages, write);
        rig.ms(5);
        assert_eq!(rig.refused(ask), Some(PAGE_FAULT), "{first:#x}");
    }
    let _ = mm;
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_6_memory_that_is_not_there_is_refused_as_with_a_pin() {
    let (rig, mm, c, tags) = rig(64);
    let tag = tags.first();
    rig.ask(1, &c, copy_of(tag, BASE + 63), 2, false);
    rig.ask(2, &c, BASE + 63, 2, false);
    rig.ms(20);
    assert_eq!((rig.refused(1), rig.refused(2)), (Some(PAGE_FAULT), Some(PAGE_FAULT)));
    assert_eq!(rig.counter(D_PAGE_FAULTS), 2);
    assert_eq!((rig.counter(D_COPY_USED), rig.logged("cannot be copied for sending").len()), (0, 1));
    // What can be read only can be sent.
    rig.change(mm, BASE, 2, Change::Protect);
    rig.get(3, &c, copy_of(tag, BASE), 2, false);
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_9_changes_of_memory_leave_copies_as_they_are() {
    for change in [Change::Unmap, Change::Replace, Change::Dontneed, Change::Protect, Change::Suspect, Change::Migrate]
    {
        let (rig, mm, c, tags) = rig(64);
        write(&rig, mm, BASE, 5);
        rig.get(1, &c, copy_of(tags.first(), BASE), 2, false);
        rig.change(mm, BASE, 2, change);
        rig.ms(5);
        assert_eq!(found(&rig, &c, tags.first(), BASE), Some(5), "{change:?}");
        rig.release(1);
        rig.ms(20);
        // What is asked for afterwards is of what is there now.
        rig.ask(2, &c, copy_of(tags.first(), BASE), 2, false);
        rig.ms(20);
        match change {
            Change::Unmap => assert_eq!(rig.refused(2), Some(PAGE_FAULT)),
            _ => assert!(rig.holds(2), "{change:?}"),
        }
        drop_later(&rig, tags);
        rig.end();
    }
}

#[test]
fn vc_9_copies_go_when_the_process_does() {
    let (rig, mm, c, tags) = rig(64);
    rig.get(1, &c, copy_of(tags.first(), BASE), 3, false);
    rig.stick(mm, BASE + 9, true);
    rig.ask(2, &c, copy_of(tags.first() + 1, BASE + 9), 1, false);
    rig.settle();
    rig.change(mm, 0, 1 << 45, Change::Release);
    rig.ms(100);
    assert_eq!((rig.counter(D_COPY_USED), rig.hardware().translations().count()), (0, 0));
    drop(tags);
    drop(c);
    rig.end();
}

#[test]
fn vc_6_the_pool_is_bounded_and_requests_wait_for_it_in_order() {
    let (mut rig, _, c, tags) = rig(16);
    let tag = tags.first();
    let (_, other) = rig.user(QP + 1, 64);
    let theirs = other.space.aliases().expect("tags");
    let their = theirs.first();
    rig.get(1, &c, copy_of(tag, BASE), 5, false);
    rig.ask(2, &c, copy_of(tag + 1, BASE + 5), 4, false);
    rig.ms(1);
    assert!(!rig.holds(2), "a process has half of the pool");
    rig.get(6, &other, copy_of(their, BASE), 8, false);
    rig.ask(7, &other, copy_of(their + 1, BASE), 1, false);
    rig.release(1);
    rig.ms(20);
    assert!(rig.holds(2) && !rig.holds(7));
    rig.release(6);
    rig.ms(20);
    assert!(rig.holds(7));
    // The pool is short.
    rig.get(8, &other, copy_of(their + 2, BASE), 7, false);
    let (_, third) = rig.user(QP + 2, 64);
    let more = third.space.aliases().expect("tags");
    rig.ask(3, &third, copy_of(more.first(), BASE), 6, false);
    rig.ms(1);
    rig.ask(9, &c, copy_of(tag + 2, BASE + 11), 1, false);
    rig.ms(10);
    assert!(!rig.holds(3) && !rig.holds(9), "the earlier one is served first");
    assert_eq!(rig.flags(&third, 3) & POOL, POOL);
    // Pins do not wait for copies, nor behind them.
    rig.get(4, &c, BASE + 20, 4, false);
    rig.release(8);
    rig.ms(20);
    assert!(rig.holds(3) && rig.holds(9));
    assert_eq!((rig.counter(D_COPY_PEAK), rig.counter(D_BUDGET_WAITS)), (bytes(13), 4));
    rig.spawn(move || drop((theirs, more)));
    // What never fits is refused.
    rig.ask(5, &c, copy_of(tag, BASE), 9, false);
    rig.ms(5);
    assert_eq!(rig.refused(5), Some(PAGE_OVER_BUDGET));
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn decision_21_memory_that_does_not_come_keeps_no_page_of_the_pool() {
    let (rig, mm, c, tags) = rig(8);
    let tag = tags.first();
    rig.stick(mm, BASE, true);
    rig.ask(1, &c, copy_of(tag, BASE), 4, false);
    rig.ms(30);
    rig.get(2, &c, copy_of(tag + 1, BASE + 8), 4, false);
    assert!(!rig.holds(1));
    rig.release(2);
    rig.stick(mm, BASE, false);
    rig.ms(30);
    assert!(rig.holds(1));
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_6_tags_are_used_again_when_their_copies_are_gone() {
    let (rig, mm, c, tags) = rig(64);
    let tag = tags.first();
    write(&rig, mm, BASE, 1);
    rig.get(1, &c, copy_of(tag + 3, BASE), 1, false);
    let space = c.space.clone();
    let gone = |rig: &Rig, first, n| {
        let space = space.clone();
        rig.spawn(move || space.wait_aliases_gone(first, n))
    };
    let others = gone(&rig, tag, 3);
    let mine = gone(&rig, tag, 4);
    rig.ms(150);
    assert_eq!((others.get(), mine.get()), (Some(Ok(())), Some(Err(EBUSY))), "one is in use");
    let mine = gone(&rig, tag, 4);
    rig.ms(10);
    assert_eq!(mine.get(), None);
    rig.release(1);
    rig.ms(10);
    assert_eq!(mine.get(), Some(Ok(())));
    write(&rig, mm, BASE, 2);
    rig.get(2, &c, copy_of(tag + 3, BASE), 1, false);
    assert_eq!(found(&rig, &c, tag + 3, BASE), Some(2), "newer bytes under the same tag");
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_6_tags_of_a_queue_pair_that_ends_are_nobodys() {
    let (rig, mm, c, tags) = rig(64);
    let first = tags.first();
    write(&rig, mm, BASE, 1);
    rig.get(1, &c, copy_of(first, BASE), 2, false);
    // The card lets go of them, and the driver is not told.
    rig.hardware().release(1);
    rig.hardware().take_event();
    drop_later(&rig, tags);
    assert_eq!(found(&rig, &c, first, BASE), None);
    rig.ask(2, &c, copy_of(first, BASE), 1, false);
    rig.ms(5);
    assert_eq!(rig.refused(2), Some(PAGE_FAULT));
    let again = c.space.aliases().expect("the same tags");
    assert_eq!(again.first(), first);
    // There are so many, and each is somebody's alone.
    let all: Vec<Aliases> = (1..ALIAS_QPS).map(|_| c.space.aliases().expect("tags")).collect();
    let mut firsts: Vec<u32> = all.iter().map(Aliases::first).collect();
    firsts.dedup();
    assert_eq!(firsts.len() as u32, ALIAS_QPS - 1);
    assert_eq!(c.space.aliases().err(), Some(ENOSPC));
    rig.spawn(move || drop((again, all)));
    rig.ms(20);
    rig.end();
}

#[test]
fn vc_6_a_reset_takes_all_copies() {
    let (rig, _, c, tags) = rig(24);
    rig.get(1, &c, copy_of(tags.first(), BASE), 7, false);
    rig.ask(2, &c, copy_of(tags.first() + 1, BASE), 12, false);
    rig.ms(5);
    rig.card.schedule_reset();
    rig.ms(2000);
    assert_eq!(rig.counter(D_COPY_USED), 0);
    rig.get(3, &c, copy_of(tags.first(), BASE), 7, false);
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_6_blocks_that_share_pages_share_copies_of_their_element() {
    let (rig, mm, c, tags) = rig(64);
    let tag = tags.first();
    write(&rig, mm, BASE + 1, 3);
    let at = alias_va(tag, bytes(BASE));
    let mut hardware = rig.surroundings.hardware.borrow_mut();
    hardware.ask(1, c.asid, at + 100, 6000, false);
    hardware.ask(2, c.asid, at + 6100, 6000, false);
    drop(hardware);
    rig.ms(20);
    assert!(rig.holds(1) && rig.holds(2));
    assert_eq!(rig.counter(D_COPY_USED), bytes(3));
    rig.release(1);
    rig.ms(20);
    assert_eq!((rig.counter(D_COPY_USED), found(&rig, &c, tag, BASE + 1)), (bytes(2), Some(3)));
    drop_later(&rig, tags);
    rig.end();
}

#[test]
fn vc_10_a_queue_pair_chooses_how_its_sends_reach_the_card() {
    let mut rig = Rig::new(Setup { copy_pages: 12, ..Setup::default() });
    let mm = rig.process();
    let c = rig.context(mm);
    let cq = make_cq(&rig, &c);
    let make = |rig: &Rig, memory| {
        let c = c.clone();
        let mut arg = CreateQp { aliases: memory, ..clients::qp(cq, cq) };
        let made = rig.spawn(move || c.create_qp(&mut arg).map(|_| arg));
        rig.ms(5);
        made.take().expect("it is over")
    };
    let pin = make(&rig, ALIASES_NONE).unwrap();
    assert_eq!(pin.first_alias, 0);
    let copy = make(&rig, ALIASES).unwrap();
    assert_eq!(copy.first_alias, ALIASES_OF_QP);
    let create: crate::abi::message::QpCreate = rig.last();
    assert_eq!(create.block, 5 * 4096, "a process has half of the pool");
    assert_eq!(make(&rig, ALIASES_IF_FREE + 1).err(), Some(EINVAL));
    let gone = |rig: &Rig, first, aliases| {
        let c = c.clone();
        let mut arg = ioctl::Aliases { qpn: copy.qpn, first, aliases, identity: copy.identity, ..Default::default() };
        let gone = rig.spawn(move || c.free_aliases(&mut arg).map(|()| arg.copy_most));
        rig.ms(5);
        gone.take().expect("it is over")
    };
    assert_eq!(gone(&rig, 0, 0), Ok(0), "none was asked for");
    assert_eq!(gone(&rig, ALIASES_OF_QP, ALIASES_OF_QP), Ok(0));
    for (first, tags) in
        [(0, 1), (ALIASES_OF_QP, ALIASES_OF_QP + 1), (2 * ALIASES_OF_QP, 1), (ALIASES_OF_QP + 1, u32::MAX)]
    {
        assert_eq!(gone(&rig, first, tags), Err(EINVAL), "{first} {tags}");
    }
    // As many as there are tags for; where the driver may choose, the others pin.
    assert_eq!(make(&rig, ALIASES_IF_FREE).unwrap().first_alias, 2 * ALIASES_OF_QP);
    let others: Vec<Aliases> = (3..=ALIAS_QPS).map(|_| c.space.aliases().expect("tags")).collect();
    assert_eq!(make(&rig, ALIASES_IF_FREE).unwrap().first_alias, 0);
    assert_eq!(make(&rig, ALIASES).err(), Some(ENOSPC));
    rig.spawn(move || drop(others));
    rig.ms(5);
    drop(c);
    rig.end();
}

#[test]
fn vc_10_without_a_pool_nothing_is_copied() {
    let mut rig = Rig::new(Setup { copy_pages: 0, ..Setup::default() });
    let mm = rig.process();
    let c = rig.context(mm);
    let cq = make_cq(&rig, &c);
    for (memory, expected) in [(ALIASES_IF_FREE, Ok(0)), (ALIASES, Err(EOPNOTSUPP))] {
        let c = c.clone();
        let mut arg = CreateQp { aliases: memory, ..clients::qp(cq, cq) };
        let made = rig.spawn(move || c.create_qp(&mut arg).map(|_| arg.first_alias));
        rig.ms(5);
        assert_eq!(made.take(), Some(expected));
    }
    drop(c);
    rig.end();
}

#[test]
fn vc_10_the_driver_weighs_costs_as_the_model_does() {
    let mut random = Rng(3);
    let (mut ours, mut model) = (OurCosts::new(), Costs::default());
    for _ in 0..20_000 {
        let time = (random.below(1 << 32) >> random.below(32)) as u32;
        if random.below(2) == 0 {
            ours.pinned(time);
            model.pinned(time);
        } else {
            let bytes = 1 + random.below(1 << 20) as u32;
            ours.copied(bytes, time);
            model.copied(bytes, time);
        }
        assert_eq!(ours.threshold(), model.threshold());
        let (asked, sends) = (random.below(300) as u32, random.below(300) as u32);
        assert_eq!(ours.threshold_of(asked, sends), model.threshold_of(asked, sends));
    }
}
