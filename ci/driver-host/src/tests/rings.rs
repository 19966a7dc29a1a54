// SPDX-License-Identifier: GPL-2.0
//! The command ring and the event ring, and firmware's log.

use super::rig::*;
use crate::abi::message::{CODE, CmRequest};
use crate::abi::{counters::*, host::*, ring::*, status::FW_REFUSED};
use crate::card::State;
use crate::events::Events;
use kernel::{irq::ThreadedHandler, prelude::*};

/// Asks that some pages be evicted, as one command.
fn evict(indices: &[u32]) -> [u32; ENTRY_WORDS] {
    let mut entry = evict_command(indices[0]);
    assert!(indices[1..].iter().all(|index| evict_add(&mut entry, *index)));
    entry
}

/// What is written for commands from `first` to before `end`, of which so many are pushed.
fn doorbell(first: u16, pushed: u16, end: u16) -> Vec<(u32, u32)> {
    let pushes = (0..pushed).map(|n| (HOST_CMD_PUSH, first.wrapping_add(n).into()));
    pushes.chain([(HOST_CMD_PI, end.into())]).collect()
}

#[test]
fn commands_are_pushed_before_their_doorbell_and_carried_out_in_order() {
    let rig = Rig::new(Setup::default());
    let commands: Vec<_> = (0..31).map(nothing).collect();
    rig.hardware().take_written();
    rig.card.post(&commands[..3]).unwrap();
    assert_eq!(rig.hardware().take_written(), doorbell(0, 3, 3));
    rig.card.ring();
    assert_eq!(rig.hardware().take_written(), [], "the card has been told");
    rig.card.put(&commands[3..5]).unwrap();
    rig.card.put(&commands[5..11]).unwrap();
    assert_eq!(rig.hardware().take_written(), [], "nobody has rung");
    rig.card.ring();
    assert_eq!(rig.hardware().take_written(), doorbell(3, 8, 11));
    // The first 16 of a doorbell.
    rig.card.post(&commands[11..]).unwrap();
    assert_eq!(rig.hardware().take_written(), doorbell(11, 16, 31));
    rig.settle();
    assert_eq!(rig.hardware().log, commands);
    rig.end();
}

#[test]
fn the_command_ring_goes_round_and_so_does_its_index() {
    let rig = Rig::new(Setup::default());
    rig.hardware().take_written();
    for n in 0..1030_u32 {
        let commands: Vec<_> = (0..64).map(|i| nothing(64 * n + i)).collect();
        rig.card.post(&commands).unwrap();
        assert_eq!(rig.hardware().take_written(), doorbell((64 * n) as u16, 16, (64 * n + 64) as u16));
        rig.drain();
        assert_eq!(core::mem::take(&mut rig.hardware().log), commands);
    }
    rig.end();
}

#[test]
fn a_full_command_ring_takes_no_part_of_what_has_no_room() {
    let rig = Rig::new(Setup::default());
    rig.stall(true);
    let all: Vec<_> = (0..4096).map(nothing).collect();
    assert_eq!(rig.card.post(&[&all[..], &all[..1]].concat()), Err(EBUSY));
    assert_eq!(rig.hardware().backlog(), 0);
    rig.card.post(&all[..4090]).unwrap();
    assert_eq!(rig.card.post(&all[..7]), Err(EBUSY));
    assert_eq!(rig.hardware().backlog(), 4090);
    rig.card.post(&all[4090..]).unwrap();
    assert_eq!((rig.card.post(&all[..1]), rig.hardware().backlog()), (Err(EBUSY), 4096));
    // It has taken ten.
    rig.stall(false);
    for _ in 0..10 {
        rig.hardware().step();
    }
    rig.stall(true);
    assert_eq!(rig.card.post(&all[..11]), Err(EBUSY));
    rig.card.post(&all[..10]).unwrap();
    assert_eq!(rig.card.post(&all[..1]), Err(EBUSY));
    rig.stall(false);
    rig.settle();
    assert_eq!(rig.hardware().log, [&all[..], &all[..10]].concat());
    rig.end();
}

#[test]
fn a_card_that_is_gone_has_no_room() {
    let rig = Rig::new(Setup::default());
    rig.stall(true);
    rig.card.put(&vec![nothing(0); 4095]).unwrap();
    rig.hardware().habits.gone = true;
    // Of the last place nobody has to ask.
    assert_eq!(rig.card.put(&[nothing(1)]), Ok(()));
    assert_eq!(rig.card.put(&[nothing(1)]), Err(ENODEV));
    rig.hardware().habits.gone = false;
    assert_eq!(rig.card.post(&[nothing(1)]), Err(EBUSY));
    rig.card.ring();
    rig.stall(false);
    rig.settle();
    // Without service nothing is queued, either.
    rig.hardware().habits.boot.0 = FW_REFUSED;
    assert_eq!(rig.card.reset("a test"), Err(EIO));
    assert_eq!((rig.card.state(), rig.card.post(&[nothing(1)])), (State::Down, Err(ENODEV)));
    assert_eq!((rig.card.put(&[nothing(1)]), rig.card.put_evicts([1].into_iter())), (Err(ENODEV), 0));
    rig.end_at_once();
}

#[test]
fn pages_are_evicted_by_one_command_until_the_card_is_told() {
    let rig = Rig::new(Setup::default());
    let put = |places: &[u32]| {
        let all = places.iter().map(|place| *place as u16);
        assert_eq!(rig.card.put_evicts(all), places.len());
    };
    put(&[1, 2, 3]);
    rig.card.put(&[nothing(9)]).unwrap();
    put(&[4, 5]);
    rig.card.ring();
    // The card has that one already.
    put(&[6]);
    rig.card.ring();
    let many: Vec<u32> = (10..30).collect();
    put(&many);
    rig.card.ring();
    rig.settle();
    let expected = [
        evict(&[1, 2, 3]),
        nothing(9),
        evict(&[4, 5]),
        evict(&[6]),
        evict(&many[..EVICT_PAGES]),
        evict(&many[EVICT_PAGES..]),
    ];
    assert_eq!(rig.hardware().log, expected);
    // The last place of the ring, and of what is in it.
    rig.stall(true);
    rig.card.post(&vec![nothing(0); 4095]).unwrap();
    put(&[40, 41]);
    assert_eq!(rig.card.put(&[nothing(0)]), Err(EBUSY));
    rig.card.ring();
    assert_eq!(rig.card.put_evicts([42].into_iter()), 0);
    rig.stall(false);
    rig.settle();
    assert_eq!(rig.hardware().log.last(), Some(&evict(&[40, 41])));
    rig.end();
}

#[test]
fn inv_6_an_answer_without_room_goes_as_soon_as_there_is_some() {
    let rig = Rig::new(Setup::default());
    let run = rig.card.generation();
    rig.fill();
    rig.card.answer(run, nothing(1));
    rig.card.answer(run, nothing(2));
    rig.ms(7);
    rig.stall(false);
    rig.drain();
    rig.hardware().log.clear();
    // It is looked every two milliseconds.
    rig.world.run_for(MS - 1000);
    assert!(rig.hardware().log.is_empty());
    rig.world.run_for(2000);
    assert_eq!(rig.hardware().log, [nothing(1), nothing(2)]);
    rig.card.answer(run, nothing(3));
    rig.settle();
    assert_eq!(rig.hardware().log[2..], [nothing(3)]);
    rig.end();
}

#[test]
fn fw_an_answer_goes_to_the_run_of_firmware_that_has_asked() {
    let rig = Rig::new(Setup::default());
    let run = rig.card.generation();
    rig.fill();
    rig.card.answer(run, nothing(1));
    rig.ms(10);
    rig.card.reset("a test").unwrap();
    assert_eq!(rig.card.generation(), run + 1);
    rig.card.answer(run, nothing(2));
    rig.card.answer(run + 1, nothing(3));
    rig.ms(10);
    assert_eq!(rig.hardware().log, [nothing(3)]);
    assert_eq!(rig.counter(D_RESETS), 1);
    rig.end();
}

#[test]
fn inv_6_a_card_that_takes_no_answers_for_a_second_is_reset() {
    let rig = Rig::new(Setup::default());
    let wait = |ms| {
        rig.fill();
        rig.card.answer(rig.card.generation(), nothing(1));
        rig.ms(ms);
    };
    // Each time anew.
    for _ in 0..3 {
        wait(900);
        rig.stall(false);
        rig.ms(10);
    }
    // The time runs from the first try again on.
    wait(1003);
    assert_eq!(rig.counter(D_RESETS), 0);
    rig.ms(1);
    assert_eq!((rig.counter(D_RESETS), rig.card.state()), (1, State::Up));
    rig.ms(2000);
    assert_eq!(rig.counter(D_RESETS), 1);
    rig.end();
}

#[test]
fn inv_6_a_card_with_more_answers_than_it_can_have_asked_for_is_reset() {
    let rig = Rig::new(Setup::default());
    rig.fill();
    let answer = |n| rig.card.answer(rig.card.generation(), nothing(n));
    (0..512).for_each(answer);
    rig.settle();
    assert_eq!(rig.counter(D_RESETS), 0);
    answer(512);
    rig.settle();
    assert_eq!((rig.counter(D_RESETS), rig.card.state()), (1, State::Up));
    rig.ms(10);
    assert!(rig.hardware().log.is_empty());
    rig.end();
}

#[test]
fn events_are_taken_once_in_order_round_after_round() {
    let rig = Rig::new(Setup::default());
    let rounds = [3, 4000, 96, 4096, 1000];
    let mut sent = 0_u32;
    let mut out = [0; 16500];
    for events in rounds {
        (sent..sent + events).for_each(|n| rig.hardware().send(log_event(n)));
        rig.settle();
        let (bytes, lost) = rig.card.take_log(&mut out);
        let expected: Vec<u8> = (sent..sent + events).flat_map(u32::to_le_bytes).collect();
        assert_eq!((&out[..bytes], lost), (&expected[..], 0));
        sent += events;
        assert_eq!((rig.counter(D_EVENTS), rig.counter(D_BAD_EVENTS)), (sent.into(), 0));
    }
    rig.end();
}

#[test]
fn an_event_is_given_without_its_phase() {
    let rig = Rig::new(Setup::default());
    let mut event = log_event(5);
    event[EVENT_PHASE] = 0x7fff_fff1;
    rig.hardware().send(event);
    rig.hardware().step();
    let mut ring = rig.card.events.lock();
    assert_eq!((rig.card.next_event(&mut ring), rig.card.next_event(&mut ring)), (Some(event), None));
    drop(ring);
    rig.settle();
    assert_eq!((rig.counter(D_EVENTS), rig.counter(D_INTERRUPTS)), (0, 1));
    rig.end();
}

#[test]
fn the_card_gets_room_for_events_while_many_are_taken() {
    let rig = Rig::new(Setup::default());
    rig.hardware().take_written();
    let armed = |index: u32| (HOST_EVT_CI, 1 << 31 | index);
    // Up to when the card is told.
    let cases: [(u32, &[u32]); 3] = [(1, &[1]), (15, &[16]), (40, &[32, 48, 56, 56])];
    for (n, (events, told)) in cases.into_iter().enumerate() {
        let interrupts = rig.counter(D_INTERRUPTS);
        (0..events).for_each(|n| rig.hardware().send(log_event(n)));
        rig.drain();
        rig.settle();
        assert_eq!(rig.hardware().take_written(), told.iter().map(|i| armed(*i)).collect::<Vec<_>>());
        // Of those that were there when it was told it has told the driver once more.
        assert_eq!(rig.counter(D_INTERRUPTS) - interrupts, if n == 2 { 2 } else { 1 });
    }
    rig.end();
}

#[test]
fn fw_what_firmware_that_does_not_serve_asks_for_concerns_nobody() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(crate::abi::card::FIRST_QPN, 8);
    rig.hardware().habits.boot.0 = FW_REFUSED;
    rig.card.reset("a test").unwrap_err();
    rig.hardware().take_written();
    rig.ask(1, &c, BASE, 1, false);
    (0..16).for_each(|n| rig.hardware().send(log_event(n)));
    rig.drain();
    Events(rig.registry.clone()).handle_threaded();
    assert_eq!((rig.counter(D_EVENTS), rig.counter(D_PAGE_NEEDS), rig.counter(D_BAD_EVENTS)), (17, 0, 0));
    assert_eq!(rig.card.take_log(&mut [0; 100]), (64, 0));
    // Those that were taken count, the others do not.
    assert_eq!(rig.hardware().take_written(), [(HOST_EVT_CI, 1 << 31 | 17); 2]);
    rig.end_at_once();
}

#[test]
fn inv_6_bad_events_are_counted_and_said_at_most_ten_times_in_four_seconds() {
    let rig = Rig::new(Setup::default());
    let bad = || {
        for n in 0..30 {
            let mut event = CmRequest { request: 0x10, ipv4: 0x20 + n, service: 0x30, ..CmRequest::default() }.encode();
            event[CODE] = 99 | 0xab00;
            rig.hardware().send(event);
        }
        rig.settle();
        rig.logged("berth: bad event")
    };
    assert_eq!(bad()[..2], ["berth: bad event 99: 0x10 0x20 0x30\n", "berth: bad event 99: 0x10 0x21 0x30\n"]);
    assert_eq!(rig.counter(D_BAD_EVENTS), 30);
    rig.ms(4095);
    assert_eq!(bad().len(), 0);
    rig.ms(1);
    assert_eq!(bad().len(), 10);
    rig.ms(4095);
    assert_eq!(bad().len(), 0);
    rig.ms(1);
    assert_eq!(bad().len(), 10);
    assert_eq!(rig.counter(D_BAD_EVENTS), 150);
    rig.end();
}

#[test]
fn at_most_ten_lines_are_allowed_in_about_four_seconds() {
    let rig = Rig::new(Setup::default());
    // Of the first window one is missing.
    for most in [9, 10, 10] {
        assert_eq!((0..40).filter(|_| rig.card.may_log()).count(), most);
        rig.ms(4096);
    }
    rig.ms(3 * 4096);
    let allowed: Vec<bool> = (0..12).map(|_| rig.card.may_log()).collect();
    assert_eq!(allowed, [[true; 10].as_slice(), &[false; 2]].concat());
    rig.end();
}

#[test]
fn of_the_log_the_oldest_bytes_give_way_and_are_counted() {
    const ROOM: usize = 65536;
    let rig = Rig::new(Setup::default());
    let stream: Vec<u8> = (0..3 * ROOM as u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let take = |most: usize| {
        let mut out = vec![0; most];
        let (bytes, lost) = rig.card.take_log(&mut out);
        out.truncate(bytes);
        (out, lost)
    };
    assert_eq!(take(10), (vec![], 0));
    rig.card.log(&stream[..ROOM]);
    assert_eq!(take(10), (stream[..10].into(), 0));
    rig.card.log(&stream[ROOM..ROOM + 10]);
    assert_eq!(take(1), (stream[10..11].into(), 0));
    // One more than it has room for, and many more.
    rig.card.log(&stream[ROOM + 10..ROOM + 12]);
    assert_eq!(take(5), (stream[12..17].into(), 1));
    rig.card.log(&stream[ROOM + 12..2 * ROOM + 300]);
    assert_eq!(take(2 * ROOM), (stream[ROOM + 300..2 * ROOM + 300].into(), (ROOM + 300 - 17) as u32));
    assert_eq!(take(10), (vec![], 0));
    rig.card.log(&stream[..3]);
    rig.card.lose_log(7);
    rig.card.lose_log(5);
    assert_eq!(take(2), (stream[..2].into(), 12));
    assert_eq!(take(2), (stream[2..3].into(), 0));
    rig.card.lose_log(u32::MAX as usize - 1);
    rig.card.lose_log(5);
    assert_eq!(take(2), (vec![], u32::MAX));
    rig.end();
}
