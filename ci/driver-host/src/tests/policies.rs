// SPDX-License-Identifier: GPL-2.0
//! How the memory of sends reaches the card (VC-10): what an alias stands for, and sends that are pinned as a whole (VC-7).

use super::rig::*;
use crate::abi::{alias::*, counters::*, ioctl::Whole, ring::TAG_SENDS_AGAIN, status::*, wqe::Sge};
use crate::memory::Change;
use crate::pages::aliases::Aliases;
use crate::process::Context;
use kernel::{mm::MmWithUser, prelude::EINVAL, sync::Arc};

const QP: u32 = crate::abi::card::FIRST_QPN;

/// A card with 64 pages for copies, and a context with aliases.
fn rig() -> (Rig, &'static MmWithUser, Arc<Context>, Aliases) {
    let mut rig = Rig::new(Setup { copy_pages: 64, ..Setup::default() });
    let (mm, c) = rig.user(QP, 64);
    let aliases = c.space.aliases().expect("aliases");
    (rig, mm, c, aliases)
}

/// Number `n` of those that stand for a policy.
fn alias(of: &Aliases, first: First, again: Again, n: u32) -> u32 {
    let mut all = of.first()..of.first() + ALIASES_OF_QP;
    all.find(|alias| alias_policy(*alias) == (first, again)).expect("there are some") + n
}

/// The page number under which page `vpn` stands.
fn under(alias: u32, vpn: u64) -> u64 {
    alias_va(alias, bytes(vpn)) / 4096
}

/// Tag `n` of packets that go again.
fn again(n: u32) -> u32 {
    send_tag(QP, n | 1 << TAG_SENDS_AGAIN)
}

/// The process posts a send of so many pages.
fn post(c: &Context, alias: u32, ranges: &[(u64, u64)]) -> kernel::error::Result {
    let mut whole = Whole { alias, ranges: ranges.len() as u32, ..Whole::default() };
    for (range, (first, pages)) in whole.range.iter_mut().zip(ranges) {
        *range = Sge { va: bytes(*first) + 100, len: bytes(*pages) as u32 - 100, reserved: 0 };
    }
    c.space.note_whole(&whole)
}

fn end(rig: Rig, c: Arc<Context>, aliases: Aliases) {
    rig.spawn(move || drop(aliases));
    rig.ms(50);
    assert_eq!((rig.pins(), rig.counter(D_COPY_USED), rig.hardware().translations().count()), (0, 0, 0));
    drop(c);
    rig.end();
}

#[test]
fn vc_10_first_and_again_are_chosen_apart() {
    for (first, later) in ALIAS_POLICIES.map(|(first, again, _)| (first, again)) {
        let (rig, _, c, aliases) = rig();
        let alias = alias(&aliases, first, later, 3);
        for (tag, copied) in [(send_tag(QP, 1), first == First::Copy), (again(2), later == Again::Copy)] {
            rig.get(tag, &c, under(alias, BASE), 3, false);
            let expected = if copied { (0, bytes(3)) } else { (3, 0) };
            assert_eq!((rig.pins(), rig.counter(D_COPY_USED)), expected, "{first:?} {later:?} {tag:#x}");
            rig.release(tag);
            rig.ms(20);
            assert_eq!((rig.pins(), rig.counter(D_COPY_USED)), (0, 0), "it goes at once");
        }
        end(rig, c, aliases);
    }
}

#[test]
fn vc_7_the_whole_send_is_pinned_for_its_first_block_and_each_page_goes_when_it_is_sent() {
    let (rig, _, c, aliases) = rig();
    let alias = alias(&aliases, First::Whole, Again::Copy, 0);
    post(&c, alias, &[(BASE, 20), (BASE + 30, 3)]).unwrap();
    rig.ms(20);
    assert_eq!(rig.pins(), 0, "posting pins nothing");
    rig.get(1, &c, under(alias, BASE), 4, false);
    rig.ms(20);
    assert_eq!(rig.pins(), 23);
    // The card finds the rest.
    let asked = rig.counter(D_PAGE_NEEDS);
    rig.get(2, &c, under(alias, BASE + 4), 16, false);
    rig.get(3, &c, under(alias, BASE + 30), 3, false);
    assert_eq!(rig.counter(D_PAGE_NEEDS), asked);
    for (tag, left) in [(1, 19), (3, 16), (2, 0)] {
        rig.release(tag);
        rig.ms(20);
        assert_eq!(rig.pins(), left, "{tag}");
    }
    // A retransmission brings what it needs, and no more.
    rig.get(again(4), &c, under(alias, BASE + 1), 1, false);
    rig.ms(20);
    assert_eq!((rig.pins(), rig.counter(D_COPY_USED)), (0, bytes(1)));
    rig.release(again(4));
    end(rig, c, aliases);
}

#[test]
fn vc_7_what_has_no_room_is_pinned_block_by_block() {
    let (rig, _, c, aliases) = rig();
    let alias = alias(&aliases, First::Whole, Again::Pin, 0);
    c.space.set_budget(16);
    rig.ms(1);
    post(&c, alias, &[(BASE, 20)]).unwrap();
    rig.get(1, &c, under(alias, BASE), 4, false);
    rig.ms(20);
    assert_eq!(rig.pins(), 4);
    rig.get(2, &c, under(alias, BASE + 4), 4, false);
    assert_eq!((rig.pins(), rig.counter(D_OVER_BUDGET), rig.counter(D_BUDGET_WAITS)), (8, 0, 0));
    rig.release(1);
    rig.release(2);
    end(rig, c, aliases);
}

#[test]
fn pc_3_pages_that_are_pinned_ahead_go_before_anybody_waits() {
    let (rig, _, c, aliases) = rig();
    let alias = alias(&aliases, First::Whole, Again::Pin, 0);
    c.space.set_budget(24);
    rig.ms(1);
    post(&c, alias, &[(BASE, 20)]).unwrap();
    rig.get(1, &c, under(alias, BASE), 4, false);
    rig.ms(20);
    assert_eq!(rig.pins(), 20);
    // Another send needs the room.
    rig.ask(2, &c, under(alias + 1, BASE + 40), 16, false);
    rig.ms(50);
    assert!(rig.holds(1) && rig.holds(2));
    assert_eq!(rig.pins(), 20);
    rig.release(1);
    rig.release(2);
    end(rig, c, aliases);
}

#[test]
fn vc_9_memory_that_is_pinned_under_an_alias_is_let_go_of_too() {
    for what in [Change::Unmap, Change::Replace, Change::Dontneed, Change::Migrate] {
        let (rig, mm, c, aliases) = rig();
        let alias = alias(&aliases, First::Pin, Again::Copy, 0);
        rig.get(1, &c, under(alias, BASE), 4, false);
        rig.get(2, &c, under(alias + 1, BASE + 2), 4, false);
        rig.get(3, &c, under(alias + 1, BASE + 8), 2, false);
        rig.change(mm, BASE + 3, 2, what);
        rig.ms(50);
        let gone = [(alias, 3), (alias + 1, 3), (alias + 1, 4)];
        for (alias, n) in gone {
            assert!(rig.hardware().has(c.asid, under(alias, BASE + n)).is_none(), "{what:?} {n}");
        }
        // Firmware was told, and let go of the blocks; of others it was not.
        assert_eq!([1, 2, 3].map(|tag| rig.holds(tag)), [false, false, true], "{what:?}");
        rig.release(3);
        end(rig, c, aliases);
    }
}

#[test]
fn vc_7_what_is_said_of_a_send_must_be_possible() {
    let (rig, _, c, aliases) = rig();
    let whole = alias(&aliases, First::Whole, Again::Pin, 0);
    assert_eq!(post(&c, whole, &[]), Err(EINVAL));
    assert_eq!(post(&c, alias(&aliases, First::Pin, Again::Copy, 0), &[(BASE, 1)]), Err(EINVAL));
    let mut arg = Whole { alias: whole, ranges: 8, ..Whole::default() };
    assert_eq!(c.space.note_whole(&arg), Err(EINVAL));
    arg.ranges = 1;
    for (va, len, reserved) in [(5, 0, 0), (5, 1, 1), (ALIAS_END - 1, 2, 0), (u64::MAX, 2, 0), ((1 << 39) - 1, 2, 0)] {
        arg.range[0] = Sge { va, len, reserved };
        assert_eq!(c.space.note_whole(&arg), Err(EINVAL), "{va:#x}");
    }
    // Memory that is not there: the card's own question is answered.
    post(&c, whole, &[(BASE + 60, 8)]).unwrap();
    rig.get(1, &c, under(whole, BASE + 60), 4, false);
    rig.ask(2, &c, under(whole, BASE + 64), 4, false);
    rig.ms(50);
    assert_eq!(rig.refused(2), Some(PAGE_FAULT));
    assert_eq!(rig.counter(D_PAGE_FAULTS), 1);
    rig.release(1);
    rig.ms(20);
    // What was never sent is forgotten with the alias.
    post(&c, whole, &[(BASE, 8)]).unwrap();
    let space = c.space.clone();
    let gone = rig.spawn(move || space.wait_aliases_gone(whole, 1));
    rig.ms(10);
    assert_eq!(gone.get(), Some(Ok(())));
    rig.get(3, &c, under(whole, BASE), 1, false);
    rig.ms(20);
    assert_eq!(rig.pins(), 1);
    rig.release(3);
    end(rig, c, aliases);
}
