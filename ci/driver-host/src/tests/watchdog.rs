// SPDX-License-Identifier: GPL-2.0
//! Firmware and cards that fail, and how that is found.

use super::rig::*;
use crate::abi::message::{CmdDone, QpDestroy};
use crate::abi::{card::*, counters::*, host::*, status::*};
use crate::card::State;
use crate::hardware::MASTER;
use kernel::prelude::*;

/// Card cycles of a millisecond.
const CYCLES: u64 = 250_000;

fn watched() -> Rig {
    let rig = Rig::watched(Setup::default());
    rig.hardware().take_written();
    rig.logged("");
    rig
}

/// The challenges that firmware was given.
fn challenges(rig: &Rig) -> Vec<u32> {
    let written = rig.hardware().take_written();
    written.into_iter().filter(|w| w.0 == HOST_HB_CHALLENGE).map(|w| w.1).collect()
}

/// Firmware has panicked.
fn panic(rig: &Rig) {
    rig.hardware().set_status(FW_PANIC);
}

#[test]
fn fw_firmware_is_challenged_twice_a_second() {
    let rig = watched();
    rig.ms(499);
    assert_eq!(challenges(&rig), [0; 0]);
    rig.ms(1);
    assert_eq!(challenges(&rig), [1]);
    rig.ms(1500);
    assert_eq!((challenges(&rig), rig.counter(D_RESETS)), (vec![2, 3, 4], 0));
    // Whatever it has answered at its start.
    rig.hardware().habits.answer = u32::MAX - 1;
    rig.card.reset("a test").unwrap();
    rig.ms(1500);
    assert_eq!(challenges(&rig), [u32::MAX - 1, u32::MAX, 0, 1]);
    assert_eq!((rig.counter(D_HEARTBEAT_LOST), rig.counter(D_RESETS)), (0, 1));
    rig.end();
}

#[test]
fn fw_firmware_without_an_answer_for_5_ms_of_the_card_is_lost() {
    let rig = watched();
    let clock = |cycles| rig.hardware().habits.clock = Some(cycles);
    rig.hardware().habits.heartless = true;
    clock(9);
    rig.ms(500);
    assert_eq!(challenges(&rig), [1]);
    // A slow card has all the time that it wants.
    for cycles in [9, 10, 5 * CYCLES + 8, 5 * CYCLES + 9] {
        clock(cycles);
        rig.ms(20_000);
        assert_eq!((rig.counter(D_HEARTBEAT_LOST), rig.card.state()), (0, State::Up));
    }
    clock(5 * CYCLES + 10);
    rig.ms(500);
    assert_eq!((rig.counter(D_HEARTBEAT_LOST), rig.counter(D_RESETS)), (1, 1));
    assert_eq!(rig.logged("firmware hangs"), ["berth: firmware hangs (code 0x0): \n"]);
    // It is told what it has answered, and asked again.
    assert_eq!(challenges(&rig), [0]);
    rig.ms(500);
    assert_eq!(challenges(&rig), [1]);
    rig.hardware().habits.clock = None;
    rig.ms(500);
    assert_eq!((rig.counter(D_HEARTBEAT_LOST), rig.counter(D_RESETS)), (2, 2));
    rig.hardware().habits.heartless = false;
    rig.ms(5000);
    assert_eq!((rig.counter(D_HEARTBEAT_LOST), rig.counter(D_RESETS), rig.card.state()), (2, 2, State::Up));
    rig.end();
}

#[test]
fn fw_a_clock_that_stands_still_for_30_s_is_a_card_that_hangs() {
    let rig = watched();
    rig.hardware().habits.heartless = true;
    rig.hardware().habits.clock = Some(9);
    rig.ms(30_500);
    assert_eq!(rig.counter(D_HEARTBEAT_LOST), 0);
    rig.ms(500);
    assert_eq!((rig.counter(D_HEARTBEAT_LOST), rig.counter(D_RESETS)), (1, 1));
    rig.hardware().habits.heartless = false;
    rig.hardware().habits.clock = None;
    rig.end();
}

#[test]
fn fw_the_log_says_what_firmware_has_died_of() {
    let (text, long) = ("panicked at 'x' \u{1}\u{80}!\0no more", "0123456789abcdef".repeat(40));
    // State, reason, what it has said, and the line.
    let cases: [(u32, u32, &[u8], String); 6] = [
        (FW_PANIC, 0x1f, b"why not", "panicked (code 0x1f): why not".into()),
        (FW_PANIC, 0, text.as_bytes(), "panicked (code 0x0): panicked at 'x' ...!".into()),
        (FW_PANIC, 0, long.as_bytes(), format!("panicked (code 0x0): {}", &long[..512])),
        (FW_PANIC, 0, b"", "panicked (code 0x0): ".into()),
        (FW_LOADING, 7, b"of old", "stopped (code 0x7): ".into()),
        // The card is there, whatever this register says.
        (u32::MAX, 0, b"of old", "stopped (code 0x0): ".into()),
    ];
    for (status, code, text, line) in cases {
        let rig = watched();
        rig.hardware().set_status(status);
        rig.hardware().habits.code = code;
        rig.hardware().habits.text = text.into();
        rig.ms(499);
        assert_eq!(rig.card.state(), State::Up);
        rig.ms(1);
        assert_eq!(rig.logged("berth: firmware ")[0], format!("berth: firmware {line}\n"));
        assert_eq!((rig.card.state(), rig.counter(D_RESETS), rig.counter(D_HEARTBEAT_LOST)), (State::Up, 1, 0));
        rig.end();
    }
}

/// Firmware panics so many times, once in each half second; whether it is in service then.
fn lose(rig: &Rig, times: u32) -> bool {
    for _ in 0..times {
        panic(rig);
        rig.ms(500);
    }
    rig.card.state() == State::Up
}

#[test]
fn fw_firmware_that_is_lost_more_than_eight_times_in_a_minute_is_given_up() {
    let mut rig = watched();
    let (_, c) = rig.user(FIRST_QPN, 8);
    assert!(lose(&rig, 8));
    rig.get(1, &c, BASE, 3, false);
    while c.take_event().is_some() {}
    assert_eq!((rig.counter(D_RESETS), rig.logged("given up").len()), (8, 0));
    rig.hardware().take_written();
    let called = rig.begin(|card| card.call(query(1)));
    assert!(called.get().is_some());
    assert!(!lose(&rig, 1));
    assert_eq!(rig.logged("given up"), ["berth: firmware keeps failing, given up until a reset is asked for\n"]);
    assert_eq!((rig.card.state(), rig.counter(D_RESETS), rig.pins()), (State::Down, 8, 0));
    assert!(c.take_event().is_some());
    // It does no DMA, and is left alone.
    rig.ms(20_000);
    let written = rig.hardware().take_written();
    assert_eq!(
        (&written[written.len() - 2..], rig.card.state()),
        (&[(HOST_DMA_ENABLE, 0), (HOST_CTRL, 1)][..], State::Down)
    );
    // Who asks for it gets eight more.
    rig.card.forgive();
    rig.card.reset("asked for").unwrap();
    assert_eq!(rig.card.state(), State::Up);
    assert!(lose(&rig, 8) && !lose(&rig, 1));
    // Without being forgiven one more is one too many.
    rig.card.reset("a test").unwrap();
    assert!(!lose(&rig, 1));
    rig.end_at_once();
}

#[test]
fn fw_firmware_is_given_up_whatever_it_is_lost_by() {
    let ways: [fn(&Rig); 2] = [
        |rig| rig.hardware().habits.heartless = true,
        |rig| {
            rig.hardware().deaf = true;
            let _ = rig.begin(|card| card.call(query(1)));
        },
    ];
    for way in ways {
        let rig = watched();
        assert!(lose(&rig, 8));
        way(&rig);
        rig.ms(2500);
        assert_eq!((rig.card.state(), rig.logged("given up").len(), rig.counter(D_RESETS)), (State::Down, 1, 8));
        rig.end_at_once();
    }
}

#[test]
fn fw_what_firmware_was_asked_is_not_asked_of_the_next_run() {
    let rig = watched();
    rig.hardware().habits.heartless = true;
    rig.ms(510);
    assert_eq!(challenges(&rig), [1]);
    rig.card.reset("a test").unwrap();
    // It begins with another number than the one that is there after a reset.
    rig.hardware().set_answer(5);
    rig.ms(3000);
    assert_eq!((rig.counter(D_RESETS), rig.counter(D_HEARTBEAT_LOST)), (1, 0));
    rig.end();
}

#[test]
fn fw_losses_are_counted_within_a_minute() {
    // The ninth is in the same minute as the others, or just after it.
    for (ms, works) in [(60_000, false), (60_500, true)] {
        let rig = watched();
        assert!(lose(&rig, 8));
        rig.ms(ms - 4500);
        assert_eq!(lose(&rig, 1), works);
        if works {
            // It is the first one of another minute.
            assert!(lose(&rig, 7) && !lose(&rig, 1));
        }
        rig.end_at_once();
    }
}

#[test]
fn inv_6_a_card_that_is_pulled_out_is_gone_and_comes_back_when_it_answers() {
    let mut rig = watched();
    let (_, c) = rig.user(FIRST_QPN, 8);
    rig.get(1, &c, BASE, 3, false);
    rig.hardware().deaf = true;
    let called = rig.begin(|card| card.call(query(1)));
    rig.hardware().habits.gone = true;
    rig.ms(499);
    assert_eq!((rig.card.state(), called.get()), (State::Up, None));
    rig.hardware().take_written();
    rig.ms(1);
    assert_eq!((rig.card.state(), called.get()), (State::Gone, Some(Err(ENODEV))));
    assert_eq!((rig.hardware().take_written(), rig.pins()), (vec![(MASTER, 0)], 0));
    assert_eq!(rig.logged("berth"), ["berth: the card does not answer, it is out of service\n"]);
    rig.ms(100_000);
    assert_eq!((rig.card.state(), rig.counter(D_RESETS)), (State::Gone, 0));
    // Somebody has reset it.
    rig.hardware().habits.gone = false;
    rig.hardware().reset();
    rig.ms(499);
    assert_eq!(rig.card.state(), State::Gone);
    rig.ms(1);
    assert_eq!((rig.card.state(), rig.counter(D_RESETS)), (State::Up, 1));
    assert_eq!(rig.logged("resetting"), ["berth: resetting the card (the card answers again)\n"]);
    rig.get(1, &c, BASE, 3, false);
    rig.end();
}

#[test]
fn inv_6_a_card_that_comes_back_and_does_not_start_is_not_tried_again() {
    let rig = watched();
    rig.hardware().habits.gone = true;
    rig.ms(500);
    rig.hardware().habits.gone = false;
    rig.hardware().reset();
    rig.hardware().reset_ns = 1 << 60;
    rig.ms(31_000);
    assert_eq!((rig.card.state(), rig.counter(D_RESETS)), (State::Gone, 1));
    rig.hardware().reset_ns = 0;
    rig.ms(5000);
    assert_eq!((rig.card.state(), rig.counter(D_RESETS)), (State::Gone, 1));
    rig.end_at_once();
}

#[test]
fn fw_firmware_that_holds_a_command_back_for_a_second_is_lost() {
    let rig = watched();
    let clock = |cycles| rig.hardware().habits.clock = Some(cycles);
    rig.hardware().deaf = true;
    clock(100);
    rig.ms(250);
    let query = || rig.begin(|card| card.call(query(1)));
    let called = query();
    // Seen first at 500 ms, by a clock of which only the cycles count.
    rig.ms(500);
    for cycles in [500 * CYCLES, 1000 * CYCLES + 99, 1000 * CYCLES + 100] {
        clock(cycles);
        rig.ms(20_000);
        assert_eq!((called.get(), rig.card.state(), rig.counter(D_RESETS)), (None, State::Up, 0));
    }
    // One that is younger has its own time.
    let young = query();
    rig.hardware().send(CmdDone { cookie: 2, status: CMD_OK, ..CmdDone::default() }.encode());
    rig.ms(500);
    assert!(called.get().unwrap().is_ok());
    clock(1000 * CYCLES + 101);
    rig.ms(500);
    assert_eq!((young.get(), rig.counter(D_RESETS)), (None, 0));
    clock(2000 * CYCLES + 101);
    rig.ms(500);
    assert_eq!((young.get(), rig.counter(D_RESETS)), (Some(Err(EIO)), 1));
    assert_eq!(rig.logged("does not answer"), ["berth: firmware does not answer a command (code 0x0): \n"]);
    rig.hardware().habits.clock = None;
    rig.end();
}

#[test]
fn fw_a_command_under_way_on_a_card_whose_clock_stands_still_ends_after_30_s() {
    let rig = watched();
    rig.hardware().deaf = true;
    rig.hardware().habits.clock = Some(5);
    let called = rig.begin(|card| card.call(query(1)));
    rig.ms(10_000);
    rig.hardware().habits.clock = Some(6);
    rig.ms(500);
    // From now on.
    rig.ms(30_000);
    assert_eq!((called.get(), rig.counter(D_RESETS)), (None, 0));
    rig.ms(500);
    assert_eq!((called.get(), rig.counter(D_RESETS)), (Some(Err(EIO)), 1));
    rig.hardware().habits.clock = None;
    rig.end();
}

#[test]
fn decision_21_a_qp_that_is_not_destroyed_for_half_a_second_waits_for_its_page_no_more() {
    // Another command gives nobody up, nor does that of a QP of nobody.
    let destroy = |qpn| QpDestroy { qpn }.encode();
    for (entry, given_up) in [(destroy(FIRST_QPN), true), (query(FIRST_QPN), false), (destroy(FIRST_QPN + 1), false)] {
        let mut rig = watched();
        let (mm, c) = rig.user(FIRST_QPN, 8);
        rig.stick(mm, BASE, true);
        let tag = send_tag(FIRST_QPN, 0);
        rig.ask(tag, &c, BASE, 1, false);
        rig.settle();
        rig.hardware().deaf = !given_up;
        rig.hardware().habits.clock = Some(7);
        let called = rig.begin(move |card| card.call(entry));
        rig.ms(600);
        rig.hardware().habits.clock = Some(500 * CYCLES + 7);
        rig.ms(1000);
        assert_eq!((called.get(), rig.refused(tag)), (None, None));
        rig.hardware().habits.clock = Some(500 * CYCLES + 8);
        rig.ms(500);
        assert_eq!((called.get().is_some(), rig.refused(tag)), (given_up, given_up.then_some(PAGE_FAULT)));
        assert_eq!((rig.counter(D_RESETS), rig.card.state()), (0, State::Up));
        rig.hardware().habits.clock = None;
        rig.hardware().deaf = false;
        rig.stick(mm, BASE, false);
        rig.end();
    }
}

#[test]
fn inv_3_what_a_process_that_is_gone_has_left_behind_is_closed() {
    let mut rig = watched();
    let (mm, c) = rig.user(FIRST_QPN, 8);
    let (_, other) = rig.user(FIRST_QPN + 1, 8);
    rig.stick(mm, BASE, true);
    rig.ask(1, &c, BASE, 1, false);
    rig.ms(1000);
    let shares = || kernel::world::calmly(|| rig.registry.shares.lock().len());
    assert!(rig.registry.context(c.asid).is_some());
    // The process ends, and a page fault keeps its memory.
    mm.put_user();
    rig.ms(500);
    assert!(rig.registry.context(c.asid).is_none() && rig.registry.context(other.asid).is_some());
    rig.ms(1000);
    assert_eq!(shares(), 2, "work of it is not over");
    rig.stick(mm, BASE, false);
    rig.ms(500);
    assert_eq!(shares(), 1);
    other.close();
    assert_eq!(shares(), 1);
    rig.ms(500);
    assert_eq!(shares(), 0);
    rig.end_at_once();
}

#[test]
fn f9_an_address_that_another_host_has_is_told_in_the_log() {
    let rig = watched();
    rig.card.net.lock().ipv4 = 0x0a00_0102;
    rig.ms(2000);
    assert_eq!(rig.logged("address"), [""; 0]);
    // Once for what is new, not for each of them.
    let first = rig.card.regs.read64(HOST_STATS + 8 * F_ADDRESS_CONFLICTS);
    for (more, lines) in [(1, 1), (1, 0), (50, 1), (50, 0)] {
        rig.hardware().habits.conflicts = first + more;
        rig.ms(1500);
        let told = rig.logged("another host has this card's IPv4 address 10.0.1.2");
        assert_eq!(told.len(), lines, "{more}: {told:?}");
    }
    rig.end();
}
