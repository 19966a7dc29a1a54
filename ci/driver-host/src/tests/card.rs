// SPDX-License-Identifier: GPL-2.0
//! What is known of a card: who owns what, device nodes, queries, and when it is looked at what waits.

use super::clients::{asked, listening};
use super::rig::*;
use crate::abi::{card::*, counters::*, status::*};
use crate::card::net::Net;
use crate::card::parts::FwInfo;
use crate::kernel::doorbell::HeldInode;
use crate::process::doorbells::DOORBELL_OFFSET;
use kernel::{prelude::*, sync::atomic::Relaxed, world::calmly};

#[test]
fn a_process_gets_the_first_free_place_up_to_its_cap_whatever_its_contexts() {
    let mut rig = Rig::new(Setup::default());
    let (mm, _) = rig.user(FIRST_QPN, 1);
    let (mine, twin) = (rig.context(mm), rig.context(mm));
    let (_, other) = rig.user(FIRST_QPN, 1);
    let place = |owners: &[u8], most: u32| calmly(|| rig.registry.tables.lock().free_place(owners, &mine, most));
    let (m, t, o) = (mine.asid as u8, twin.asid as u8, other.asid as u8);
    let cases: [(&[u8], u32, Result<usize>); 8] = [
        (&[0, 0], 1, Ok(0)),
        (&[o, o, 0, 0], 1, Ok(2)),
        (&[m, 0], 1, Err(ENOSPC)),
        (&[m, 0], 2, Ok(1)),
        (&[m, t, 0], 2, Err(ENOSPC)),
        (&[m, o, t, 0], 3, Ok(3)),
        (&[o, o], 2, Err(ENOSPC)),
        (&[0], 0, Err(ENOSPC)),
    ];
    for (owners, most, expected) in cases {
        assert_eq!(place(owners, most), expected, "{owners:?} {most}");
    }
    rig.end();
}

#[test]
fn a_connection_request_is_taken_once() {
    let rig = Rig::new(Setup::default());
    let mut tables = rig.registry.tables.lock();
    for (id, asid) in [(7, 1), (9, 2), (8, 3)] {
        tables.requests.push(asked(id, asid), GFP_KERNEL).unwrap();
    }
    assert_eq!((tables.take_request(9), tables.take_request(9), tables.take_request(1)), (Some(2), None, None));
    assert_eq!(tables.requests[..], [asked(7, 1), asked(8, 3)]);
    drop(tables);
    rig.end();
}

#[test]
fn listeners_are_counted_by_process_and_requests_by_who_they_wait_for() {
    let mut rig = Rig::new(Setup::default());
    let (one, a) = rig.user(FIRST_QPN, 1);
    let b = rig.context(one);
    let (two, c) = rig.user(FIRST_QPN + 1, 1);
    let three = rig.process();
    let count = |mm: &kernel::mm::MmWithUser| calmly(|| rig.registry.tables.lock().listeners(mm.as_raw()));
    assert_eq!([one, two, three].map(count), [(0, 0); 3]);
    {
        let mut tables = rig.registry.tables.lock();
        for (service, asid) in [(1, a.asid), (2, b.asid), (3, b.asid)] {
            tables.services.push(listening(service, asid), GFP_KERNEL).unwrap();
        }
        for (id, asid) in [(1, a.asid), (2, c.asid), (3, b.asid), (4, 9)] {
            tables.requests.push(asked(id, asid), GFP_KERNEL).unwrap();
        }
    }
    assert_eq!([one, two, three].map(count), [(1, 2), (1, 1), (1, 0)]);
    rig.registry.tables.lock().services.push(listening(4, c.asid), GFP_KERNEL).unwrap();
    assert_eq!([one, two, three].map(count), [(2, 2), (2, 1), (2, 0)]);
    rig.end();
}

#[test]
fn queue_pairs_and_contexts_are_found_by_their_numbers_only() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(FIRST_QPN + 1, 1);
    let owner = |qpn| calmly(|| rig.registry.owner_of_qp(qpn)).map(|c| c.asid);
    assert_eq!(owner(FIRST_QPN + 1), Some(c.asid));
    for qpn in [0, FIRST_QPN - 1, FIRST_QPN, FIRST_QPN + 2, FIRST_QPN + NUM_QPS, u32::MAX] {
        assert_eq!(owner(qpn), None);
    }
    let context = |asid| calmly(|| rig.registry.context(asid)).map(|c| c.asid);
    assert_eq!((context(c.asid), context(c.asid + 1), context(NUM_ASIDS)), (Some(c.asid), None, None));
    rig.end();
}

#[test]
fn a_device_node_is_held_as_long_as_a_session_has_noted_it() {
    let rig = Rig::new(Setup::default());
    let (a, b) = (HeldInode::default(), HeldInode::default());
    let held = || [&a, &b].map(|node| std::sync::Arc::strong_count(&node.0) - 1);
    rig.world.fail_next(1, 0);
    assert_eq!((rig.registry.note_node(&a), held()), (Err(ENOMEM), [0, 0]));
    for (node, expected) in [(&a, [1, 0]), (&b, [1, 1]), (&a, [1, 1]), (&a, [1, 1])] {
        rig.registry.note_node(node).unwrap();
        assert_eq!(held(), expected);
    }
    for (node, expected) in [(&a, [1, 1]), (&b, [1, 0]), (&b, [1, 0]), (&a, [1, 0]), (&a, [0, 0])] {
        rig.registry.forget_node(node);
        assert_eq!(held(), expected);
    }
    // Pages go from all that are there, once.
    rig.registry.note_node(&a).unwrap();
    rig.registry.note_node(&b).unwrap();
    rig.registry.forget_node(&b);
    rig.registry.take_doorbells();
    rig.registry.take_doorbells();
    assert_eq!((held(), a.0.zapped.borrow().clone()), ([0, 0], vec![DOORBELL_OFFSET]));
    assert!(b.0.zapped.borrow().is_empty());
    rig.end();
}

#[test]
fn a_query_says_what_the_card_is() {
    let rig = Rig::new(Setup { linger_ms: 33, card_pages: 70, context_pages: 60, ..Setup::default() });
    *rig.card.net.lock() = Net { ipv4: 0x0a01_0203, mtu: 2048, mac: [1, 2, 3, 4, 5, 6], guid: 0x1122_3344_5566_7788 };
    *rig.card.fw.lock() = FwInfo { version: 0x2_0304, elf_id: [5, 6, 7] };
    rig.hardware().habits.code = 9;
    rig.hardware().habits.clock = Some(0x7_0000_0001);
    let query = rig.registry.query();
    assert_eq!(
        (query.abi, query.fw_version, query.fw_status, query.fw_code, query.elf_id),
        (ABI_VERSION, 0x2_0304, FW_RUNNING, 9, [5, 6, 7])
    );
    assert_eq!(
        (query.max_qps, query.max_cqs, query.max_qps_per_process),
        (NUM_QPS, NUM_CQS, NUM_QPS),
        "no process has more than the card"
    );
    assert_eq!((query.ipv4, query.mtu, query.guid), (0x0a01_0203, 2048, 0x1122_3344_5566_7788));
    assert_eq!((query.mac, query.clock_hz, query.cycles), ([1, 2, 3, 4, 5, 6, 0, 0], CLOCK_HZ, 0x7_0000_0001));
    assert_eq!((query.card_budget, query.process_budget, query.linger_ms), (bytes(70), bytes(60), 33));
    // Nobody gets more than the card has; a card that is gone has no time.
    rig.pages.budget.lock().limit = 50;
    rig.hardware().habits.gone = true;
    let query = rig.registry.query();
    assert_eq!((query.card_budget, query.process_budget, query.cycles), (bytes(50), bytes(50), 0));
    rig.hardware().habits.gone = false;
    rig.hardware().habits.clock = None;
    rig.end();
}

#[test]
fn counters_of_the_driver_are_told_one_by_one() {
    let mut rig = Rig::new(Setup { card_pages: 70, ..Setup::default() });
    assert_eq!(rig.pages.drv_counter(D_BUDGET), bytes(70));
    let (_, c) = rig.user(FIRST_QPN, 8);
    rig.get(1, &c, BASE, 5, false);
    assert_eq!((rig.pages.drv_counter(D_XLT_USED), rig.pages.drv_counter(D_PAGES_PINNED)), (5, 5));
    let counters = &rig.card.counters;
    counters.set(D_CQS, 10);
    counters.add(D_CQS, 5);
    counters.inc(D_CQS);
    counters.sub(D_CQS, 3);
    assert_eq!((rig.pages.drv_counter(D_CQS), counters.get(D_QPS)), (13, 0));
    rig.end();
}

/// After how many milliseconds work that was asked for is done, if it finds nothing to do.
fn done_after(rig: &Rig, what: impl Fn()) -> u64 {
    what();
    // Once is enough.
    what();
    let start = rig.world.now();
    rig.world.run_until(|| !rig.world.is_busy());
    (rig.world.now() - start) / MS
}

#[test]
fn idle_pages_are_looked_at_after_the_linger_time_within_bounds() {
    let rig = Rig::new(Setup::default());
    for (linger, ms) in [(0, 20), (19, 20), (20, 20), (21, 21), (50, 50), (100, 100), (101, 100), (5000, 100)] {
        rig.pages.linger_ms.store(linger, Relaxed);
        assert_eq!(done_after(&rig, || rig.pages.sweep_later()), ms, "{linger}");
    }
    rig.pages.linger_ms.store(50, Relaxed);
    // Others that wait have times of their own.
    assert_eq!(done_after(&rig, || rig.pages.press_later()), 10);
    assert_eq!(done_after(&rig, || rig.pages.look_at_needs()), 10);
    rig.end();
}

#[test]
fn whether_receives_wait_is_looked_at_every_10_ms_while_they_do() {
    let mut rig = Rig::new(Setup { card_pages: 40, linger_ms: 5000, ..Setup::default() });
    let (_, c) = rig.user(FIRST_QPN, 64);
    rig.hardware().deaf = true;
    rig.pages.press_later();
    rig.ms(15);
    assert!(!rig.world.is_busy(), "nobody waits");
    rig.get(receive_tag(FIRST_QPN, 0), &c, BASE, 20, true);
    rig.ask(receive_tag(FIRST_QPN + 1, 0), &c, BASE + 20, 20, true);
    let start = rig.world.now();
    rig.world.run_until(|| rig.card.is_pressing());
    assert_eq!(rig.world.now() - start, 40 * MS);
    rig.hardware().deaf = false;
    rig.end();
}

#[test]
fn qp_19_a_card_says_what_it_has_room_for_and_one_that_cannot_be_is_refused() {
    // 1,008 QPs from 16 on, 256 CQs; 64 pages, 512 rows of 16; 64 address spaces; 4,096 keys.
    const LARGE: [u32; 4] = [256 << 16 | 1008, 512 << 16 | 64, 16 << 24 | 16 << 16 | 64, 4096];
    let large = Sizes { first_qpn: 16, qps: 1008, cqs: 256, asids: 64, keys: 4096, table: Xlt { rows: 512, ways: 16 } };
    assert_eq!((Sizes::from_registers(LARGE), large.table.entries()), (Some(large), 8192));
    // A process has its own doorbell page.
    assert_eq!(Sizes::from_registers([LARGE[0], 512 << 16 | 8, LARGE[2], LARGE[3]]).map(|sizes| sizes.asids), Some(8));
    let wrong = [
        (0, 0),
        (0, 256 << 16),
        (0, 1008),
        (0, 1 << 16 | 0xffff),
        (1, 256 << 16 | 64),
        (1, 512 << 16 | 1),
        (2, 2 << 24 | 16 << 16 | 64),
        (2, 16 << 24 | 17 << 16 | 64),
        (2, 16 << 24 | 18 << 16 | 64),
        (2, 16 << 24 | 64),
        (3, 0),
        (3, 4095),
    ];
    for (at, word) in wrong {
        let mut registers = LARGE;
        registers[at] = word;
        assert_eq!(Sizes::from_registers(registers), None, "HOST_CAPS{at} {word:#x}");
    }
    for all in [0, u32::MAX] {
        assert_eq!(Sizes::from_registers([all; 4]), None);
    }
}
