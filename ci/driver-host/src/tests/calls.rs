// SPDX-License-Identifier: GPL-2.0
//! Commands that firmware answers, fences, and DMA that is switched off.

use super::rig::*;
use crate::abi::message;
use crate::abi::message::{COOKIE, CmdDone, Fence, Pressure};
use crate::abi::{card::*, counters::*, host::*, ring::*, status::*};
use crate::card::deadline::Deadline;
use crate::card::{Entry, State};
use crate::hardware::MASTER;
use kernel::prelude::*;

/// Card cycles of a millisecond.
const CYCLES: u64 = 250_000;

/// A call of firmware is under way.
fn call(rig: &Rig, what: u32) -> Outcome<Result<Entry>> {
    rig.begin(move |card| card.call(query(what)))
}

/// Firmware answers a call.
fn done(cookie: u32, status: u32, result: u32) -> Entry {
    let mut done = CmdDone { cookie, status, ..CmdDone::default() };
    let [first, ..] = &mut done.results;
    *first = result;
    done.encode()
}

/// Firmware answers nothing by itself.
fn deaf() -> Rig {
    let rig = Rig::new(Setup::default());
    rig.hardware().deaf = true;
    rig
}

/// The test answers a call.
fn answer(rig: &Rig, event: Entry) {
    rig.hardware().send(event);
    rig.settle();
}

#[test]
fn fw_answers_belong_to_their_commands_whatever_their_order() {
    let rig = deaf();
    let calls: Vec<_> = (0..5).map(|n| call(&rig, 100 + n)).collect();
    let cookies: Vec<u32> = rig.hardware().log.iter().map(|c| c[COOKIE]).collect();
    assert_eq!(cookies, [2, 3, 4, 5, 6]);
    for n in [3, 0, 4, 1, 2] {
        assert_eq!(calls[n].get(), None);
        let event = done(cookies[n], CMD_OK, 7 * n as u32);
        answer(&rig, event);
        assert_eq!(calls[n].get(), Some(Ok(event)));
    }
    assert_eq!(rig.counter(D_BAD_EVENTS), 0);
    // Of a call that is over, or of none.
    answer(&rig, done(3, CMD_OK, 0));
    answer(&rig, done(99, CMD_OK, 0));
    assert_eq!(rig.counter(D_BAD_EVENTS), 2);
    // Nobody waits for the answers to commands without a cookie.
    answer(&rig, done(0, CMD_BUSY, 0));
    assert_eq!(rig.counter(D_BAD_EVENTS), 2);
    rig.end_at_once();
}

#[test]
fn fw_a_call_that_firmware_refuses_fails_so() {
    let rig = deaf();
    let errors = [
        (CMD_INVALID, EINVAL),
        (CMD_BUSY, EBUSY),
        (CMD_NOT_FOUND, ENOENT),
        (CMD_FULL, ENOSPC),
        (CMD_UNKNOWN, EOPNOTSUPP),
        (6, EIO),
        (u32::MAX, EIO),
    ];
    for (cookie, (status, error)) in (2..).zip(errors) {
        let called = call(&rig, 1);
        answer(&rig, done(cookie, status, 0));
        assert_eq!(called.get(), Some(Err(error)));
    }
    rig.end_at_once();
}

#[test]
fn at_most_256_calls_are_under_way() {
    let rig = deaf();
    let calls: Vec<_> = (0..256).map(|n| call(&rig, n)).collect();
    assert_eq!((rig.times(CMD_QP_QUERY), call(&rig, 256).get()), (256, Some(Err(EBUSY))));
    assert_eq!(rig.times(CMD_QP_QUERY), 256);
    // Who must be heard tries again, every 10 ms.
    let patient = rig.begin(|card| card.call_patiently(query(1)));
    rig.ms(25);
    assert_eq!(patient.get(), None);
    answer(&rig, done(2, CMD_OK, 0));
    assert_eq!((calls[0].get().is_some(), rig.times(CMD_QP_QUERY)), (true, 256));
    rig.ms(5);
    assert_eq!(rig.times(CMD_QP_QUERY), 257);
    let cookie = rig.hardware().log.last().unwrap()[COOKIE];
    answer(&rig, done(cookie, CMD_INVALID, 0));
    assert_eq!(patient.get(), Some(Err(EINVAL)));
    // Nobody does so for ever.
    let (_last, late) = (call(&rig, 1), rig.begin(|card| card.call_patiently(query(1))));
    rig.ms(999);
    assert_eq!(late.get(), None);
    rig.ms(1);
    assert_eq!(late.get(), Some(Err(EBUSY)));
    rig.end_at_once();
}

#[test]
fn a_call_without_memory_is_tried_again_by_who_is_patient() {
    let rig = Rig::new(Setup::default());
    rig.world.fail_next(2, 0);
    assert_eq!(call(&rig, 1).get(), Some(Err(ENOMEM)));
    let patient = rig.begin(|card| card.call_patiently(query(1)));
    assert_eq!((rig.times(CMD_QP_QUERY), patient.get()), (0, None));
    rig.ms(10);
    assert!(patient.get().unwrap().is_ok());
    rig.end();
}

#[test]
fn calls_end_with_the_service_they_wait_for() {
    type Ends = (fn(&Rig), Error, Error, State);
    let ends: [Ends; 4] = [
        (|rig| rig.card.reset("a test").unwrap(), EIO, EIO, State::Up),
        (
            |rig| {
                rig.hardware().habits.boot.0 = FW_REFUSED;
                rig.card.reset("a test").unwrap_err();
            },
            EIO,
            EIO,
            State::Down,
        ),
        (
            |rig| {
                rig.hardware().habits.gone = true;
                rig.card.reset("a test").unwrap_err();
            },
            EIO,
            ENODEV,
            State::Gone,
        ),
        (|rig| rig.registry.unbind(), ENODEV, ENODEV, State::Unbound),
    ];
    for (end, error, after, state) in ends {
        let rig = deaf();
        let calls = [call(&rig, 1), call(&rig, 2)];
        assert!(rig.card.press(4096));
        end(&rig);
        rig.settle();
        assert_eq!(calls.map(|c| c.get()), [Some(Err(error)), Some(Err(error))]);
        assert_eq!((rig.card.state(), rig.card.is_pressing()), (state, false));
        let (given, more) = (rig.hardware().log.len(), state != State::Up);
        // More than may be under way: none of them is kept.
        for n in 0..if more { 300 } else { 1 } {
            let called = call(&rig, n).get().expect("it is over");
            assert_eq!(called.map(drop), if more { Err(after) } else { Ok(()) });
        }
        assert_eq!(rig.hardware().log.len() - given, usize::from(!more));
        rig.end_at_once();
    }
}

#[test]
fn a_call_during_a_reset_fails_at_once() {
    let rig = Rig::new(Setup::default());
    rig.hardware().reset_ns = 5 * MS;
    let reset = rig.begin(|card| card.reset("a test"));
    assert_eq!((rig.card.state(), call(&rig, 1).get()), (State::Resetting, Some(Err(EIO))));
    rig.ms(6);
    assert_eq!((reset.get(), rig.card.state()), (Some(Ok(())), State::Up));
    assert!(call(&rig, 1).get().unwrap().is_ok());
    rig.end();
}

#[test]
fn a_call_waits_a_second_for_room_and_no_longer() {
    let rig = Rig::new(Setup::default());
    rig.fill();
    let late = call(&rig, 1);
    rig.ms(1000);
    assert_eq!((late.get(), rig.hardware().backlog()), (None, 4096));
    rig.ms(1);
    assert_eq!(late.get(), Some(Err(EIO)));
    let early = call(&rig, 2);
    rig.ms(500);
    rig.stall(false);
    rig.ms(1);
    assert_eq!((early.get().unwrap().is_ok(), rig.last::<message::QpQuery>().qpn), (true, 2));
    assert_eq!((rig.times(CMD_QP_QUERY), rig.counter(D_RESETS)), (1, 0));
    rig.end();
}

#[test]
fn a_call_that_fails_is_forgotten_and_no_other() {
    let rig = deaf();
    let first = call(&rig, 1);
    rig.fill();
    let late = call(&rig, 2);
    rig.ms(1001);
    assert_eq!((first.get(), late.get()), (None, Some(Err(EIO))));
    answer(&rig, done(2, CMD_OK, 5));
    assert_eq!((first.get(), rig.counter(D_BAD_EVENTS)), (Some(Ok(done(2, CMD_OK, 5))), 0));
    answer(&rig, done(3, CMD_OK, 5));
    assert_eq!(rig.counter(D_BAD_EVENTS), 1);
    rig.end_at_once();
}

#[test]
fn what_waits_for_room_is_not_told_to_the_next_run_of_firmware() {
    let rig = Rig::new(Setup::default());
    rig.fill();
    let posts =
        [call(&rig, 1), rig.begin(|card| card.post_wait(card.generation(), nothing(5)).map(|()| [0; ENTRY_WORDS]))];
    rig.ms(10);
    rig.card.reset("a test").unwrap();
    rig.ms(2);
    assert_eq!(posts.map(|p| p.get()), [Some(Err(EIO)), Some(Err(EIO))]);
    assert!(rig.hardware().log.is_empty());
    rig.end();
}

#[test]
fn firmware_is_pressed_by_one_command_at_a_time() {
    let rig = deaf();
    assert!(!rig.card.is_pressing());
    assert!(rig.card.press(12345) && rig.card.is_pressing() && !rig.card.press(1));
    rig.settle();
    let mut entry = Pressure { asid: 0, bytes: 12345 }.encode();
    entry[COOKIE] = u32::MAX;
    assert_eq!(rig.hardware().log, [entry]);
    answer(&rig, done(u32::MAX, CMD_OK, 0));
    assert_eq!((rig.card.is_pressing(), rig.counter(D_BAD_EVENTS)), (false, 0));
    // What finds no room is not under way.
    rig.fill();
    assert!(!rig.card.press(1) && !rig.card.is_pressing());
    rig.end_at_once();
}

#[test]
fn pc_3_a_receive_is_refused_only_by_an_answer_that_is_ok_and_names_it() {
    for (status, qpn, refused) in [(CMD_OK, FIRST_QPN, true), (CMD_BUSY, FIRST_QPN, false), (CMD_OK, 0, false)] {
        let mut rig = Rig::new(Setup { card_pages: 40, ..Setup::default() });
        let (_, c) = rig.user(FIRST_QPN, 64);
        rig.hardware().deaf = true;
        rig.get(receive_tag(FIRST_QPN + 1, 0), &c, BASE, 20, true);
        rig.ask(receive_tag(FIRST_QPN, 0), &c, BASE + 20, 20, true);
        rig.ms(200);
        assert!(rig.card.is_pressing());
        answer(&rig, done(u32::MAX, status, qpn));
        assert_eq!(rig.refused(receive_tag(FIRST_QPN, 0)), refused.then_some(PAGE_OVER_BUDGET));
        rig.end_at_once();
    }
}

#[test]
fn decision_17_a_fence_ends_when_the_card_has_written_its_token() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(FIRST_QPN, 8);
    rig.get(1, &c, BASE, 3, true);
    rig.card.fence();
    assert_eq!((rig.counter(D_FENCES), rig.last::<Fence>().token), (1, 1));
    // Of two fences the second one waits for DMA.
    rig.hardware().slow = true;
    rig.stall(true);
    let first = rig.begin(|card| card.fence());
    rig.stall(false);
    rig.drain();
    assert!(rig.hardware().begin_dma(1, 0));
    let second = rig.begin(|card| card.fence());
    rig.ms(50);
    assert_eq!((first.get(), second.get(), rig.counter(D_FENCES)), (Some(()), None, 2));
    rig.hardware().slow = false;
    rig.ms(2);
    assert_eq!((second.get(), rig.counter(D_FENCES), rig.last::<Fence>().token), (Some(()), 3, 3));
    assert_eq!((rig.counter(D_FENCE_TIMEOUTS), rig.counter(D_RESETS)), (0, 0));
    rig.end();
}

#[test]
fn decision_17_the_fence_with_the_highest_token_ends_all_before_it() {
    let rig = Rig::new(Setup::default());
    rig.stall(true);
    let fences: Vec<_> = (0..3).map(|_| rig.begin(|card| card.fence())).collect();
    rig.ms(1);
    // All three are answered before the first one looks.
    rig.stall(false);
    rig.drain();
    rig.ms(2);
    assert!(fences.iter().all(|f| f.get().is_some()));
    assert_eq!(rig.hardware().log.iter().map(|c| Fence::decode(c).token).collect::<Vec<_>>(), [1, 2, 3]);
    rig.end();
}

#[test]
fn decision_17_a_fence_without_an_answer_for_100_ms_has_the_card_switched_off() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(FIRST_QPN, 8);
    rig.get(1, &c, BASE, 3, true);
    rig.hardware().slow = true;
    rig.hardware().begin_dma(1, 0);
    let taken = rig.hardware().read(HOST_CMD_PI);
    let fence = rig.begin(|card| card.fence());
    rig.hardware().take_written();
    // It begins to count after 10 us, and looks each millisecond then.
    rig.world.run_for(100 * MS + 200_000);
    assert_eq!((fence.get(), rig.counter(D_FENCE_TIMEOUTS), rig.hardware().take_written()), (None, 0, vec![]));
    rig.world.run_for(100_000);
    assert_eq!((rig.counter(D_FENCE_TIMEOUTS), rig.counter(D_FENCES)), (1, 0));
    assert_eq!(rig.hardware().take_written(), [(HOST_DMA_ENABLE, 0)]);
    let ring = taken + 1;
    let line = format!(
        "berth: fence 1 not answered in time (last 0), command ring {ring}/{ring}, DMA in flight 1: resetting the card\n"
    );
    assert_eq!(rig.logged("fence"), [line]);
    // Its DMA has another 100 ms.
    rig.ms(100);
    assert_eq!((fence.get(), rig.counter(D_RESETS)), (None, 0));
    rig.ms(1);
    assert_eq!((fence.get(), rig.counter(D_RESETS), rig.card.state()), (Some(()), 1, State::Up));
    rig.ms(300);
    assert_eq!((rig.counter(D_RESETS), rig.counter(D_FENCE_TIMEOUTS)), (1, 1));
    rig.end();
}

#[test]
fn decision_17_time_that_the_driver_does_not_run_is_not_held_against_the_card() {
    let rig = Rig::new(Setup::default());
    rig.stall(true);
    let start = rig.world.now();
    let at = |us: u64| rig.world.run_for(start + us * 1000 - rig.world.now());
    let fence = rig.begin(|card| card.fence());
    at(15);
    // Much time has passed there at once.
    rig.hardware().habits.clock = Some(1 << 40);
    at(620);
    assert_eq!((fence.get(), rig.counter(D_FENCE_TIMEOUTS)), (None, 0));
    at(640);
    assert_eq!(rig.counter(D_FENCE_TIMEOUTS), 1);
    rig.ms(5);
    assert_eq!((fence.get(), rig.counter(D_RESETS)), (Some(()), 1));
    rig.end();
}

#[test]
fn decision_17_a_fence_ends_with_a_reset_and_brings_about_no_other() {
    for ms in [0, 5] {
        let rig = Rig::new(Setup::default());
        rig.stall(true);
        rig.hardware().reset_ns = ms * MS;
        let fence = rig.begin(|card| card.fence());
        rig.ms(20);
        let reset = rig.begin(|card| card.reset("a test"));
        rig.ms(ms + 2);
        assert_eq!((fence.get(), reset.get()), (Some(()), Some(Ok(()))));
        rig.ms(300);
        assert_eq!((rig.counter(D_RESETS), rig.counter(D_FENCE_TIMEOUTS), rig.counter(D_FENCES)), (1, 0, 0));
        rig.end();
    }
}

#[test]
fn decision_17_nobody_waits_for_dma_of_a_card_out_of_service() {
    let rig = Rig::new(Setup::default());
    rig.hardware().reset_ns = 5 * MS;
    rig.hardware().habits.boot.0 = FW_REFUSED;
    let reset = rig.begin(|card| card.reset("a test"));
    rig.ms(1);
    // While it is being reset, its DMA may still be under way.
    let fences = [rig.begin(|card| card.fence()), rig.begin(|card| card.stop_dma())];
    rig.ms(3);
    assert_eq!(fences.each_ref().map(|f| f.get()), [None, None]);
    rig.ms(3);
    assert_eq!((reset.get(), fences.map(|f| f.get())), (Some(Err(EIO)), [Some(()), Some(())]));
    rig.hardware().take_written();
    assert_eq!(rig.card.state(), State::Down);
    assert_eq!((rig.begin(|card| card.fence()).get(), rig.begin(|card| card.stop_dma()).get()), (Some(()), Some(())));
    rig.ms(10);
    assert_eq!((rig.hardware().take_written(), rig.counter(D_RESETS)), (vec![], 1));
    rig.end_at_once();
}

#[test]
fn decision_17_dma_is_switched_off_by_the_bus_if_the_card_does_not() {
    // Milliseconds that DMA takes, and whether the bus is asked.
    for (ms, bus) in [(0, false), (50, false), (101, true)] {
        let rig = Rig::new(Setup::default());
        rig.hardware().take_written();
        rig.hardware().habits.stuck_dma = u32::from(ms > 0);
        let stopped = rig.begin(|card| card.stop_dma());
        if ms > 0 {
            rig.ms(ms - 1);
            assert_eq!((stopped.get(), rig.counter(D_RESETS)), (None, 0));
            rig.hardware().habits.stuck_dma = u32::from(bus);
            rig.ms(1);
        }
        let (expected, master) = ((HOST_DMA_ENABLE, 0), (MASTER, 0));
        let written = rig.hardware().take_written();
        assert_eq!((stopped.get(), written[0], written[1] == master), (Some(()), expected, bus));
        assert_eq!((rig.counter(D_RESETS), rig.card.state()), (1, State::Up));
        rig.hardware().habits.stuck_dma = 0;
        rig.end();
    }
}

#[test]
fn decision_17_a_card_that_is_gone_does_no_dma() {
    let rig = Rig::new(Setup::default());
    rig.hardware().habits.gone = true;
    rig.hardware().take_written();
    assert_eq!(rig.begin(|card| card.stop_dma()).get(), Some(()));
    assert_eq!((rig.card.state(), rig.hardware().take_written()), (State::Gone, vec![(MASTER, 0)]));
    rig.end_at_once();
}

#[test]
fn decision_17_a_deadline_counts_the_cards_cycles() {
    let rig = Rig::new(Setup::default());
    let regs = &rig.card.regs;
    let clock = |cycles| rig.hardware().habits.clock = Some(cycles);
    clock(1000);
    let mut deadline = Deadline::new(regs, 10 * CYCLES);
    // Slow as it may be.
    for cycles in [1000, 1001, 10 * CYCLES, 10 * CYCLES + 1000] {
        rig.world.pass(29_000 * MS);
        clock(cycles);
        assert!(!deadline.passed(regs), "{cycles}");
    }
    clock(10 * CYCLES + 1001);
    assert!(deadline.passed(regs));
    // Reset meanwhile, its clock begins anew.
    clock(7);
    assert!(!deadline.passed(regs));
    clock(10 * CYCLES + 7);
    assert!(!deadline.passed(regs));
    clock(10 * CYCLES + 8);
    assert!(deadline.passed(regs));
    rig.hardware().habits.clock = None;
    rig.end();
}

#[test]
fn decision_17_a_clock_that_stands_still_for_30_s_ends_a_deadline() {
    let rig = Rig::new(Setup::default());
    let regs = &rig.card.regs;
    let clock = |cycles| rig.hardware().habits.clock = Some(cycles);
    clock(5);
    let mut deadline = Deadline::new(regs, u64::MAX);
    rig.world.pass(20_000 * MS);
    clock(6);
    assert!(!deadline.passed(regs));
    rig.world.pass(30_000 * MS);
    assert!(!deadline.passed(regs));
    rig.world.pass(MS);
    assert!(deadline.passed(regs));
    // It goes on, backwards too.
    clock(3);
    assert!(!deadline.passed(regs));
    rig.world.pass(30_000 * MS);
    assert!(!deadline.passed(regs));
    rig.world.pass(MS);
    assert!(deadline.passed(regs));
    // A card that is gone has no time, now or before.
    clock(4);
    assert!(!deadline.passed(regs));
    rig.hardware().habits.gone = true;
    assert!(deadline.passed(regs));
    let mut never = Deadline::new(regs, 100);
    rig.hardware().habits.gone = false;
    assert!(never.passed(regs));
    rig.hardware().habits.clock = None;
    rig.end();
}
