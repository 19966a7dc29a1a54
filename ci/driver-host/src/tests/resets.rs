// SPDX-License-Identifier: GPL-2.0
//! Reset, the loss of a card, and the end of the driver on it.

use super::clients::{asked, listening};
use super::rig::*;
use crate::abi::message::{NetConfig, code};
use crate::abi::{card::*, counters::*, host::*, ioctl, status::*};
use crate::card::net::Net;
use crate::card::{Card, State};
use crate::hardware::{Hardware, MASTER};
use crate::process::Context;
use kernel::{
    prelude::*,
    sync::{Arc, atomic::Relaxed},
};

/// What a context is told, in order.
fn told(context: &Context) -> Vec<u32> {
    std::iter::from_fn(|| context.take_event()).map(|event| event.kind).collect()
}

/// A name for the card.
const NET: Net =
    Net { ipv4: 0x0a01_0203, mtu: 2048, mac: [2, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5], guid: 0x1122_3344_5566_7788 };

/// The commands that it was given.
fn opcodes(hardware: &Hardware) -> Vec<u32> {
    hardware.log.iter().map(code).collect()
}

/// Nothing of the page service's goes on, and what it has of the card is forgotten.
fn assert_unused(rig: &Rig) {
    assert_eq!((rig.pins(), rig.pages.table.lock().used(), rig.pages.budget.lock().pinned), (0, 0, 0));
}

#[test]
fn a_reset_sets_the_card_up_register_by_register() {
    let rig = Rig::new(Setup::default());
    let first = rig.hardware().take_written();
    rig.hardware().habits.answer = 77;
    rig.card.reset("a test").unwrap();
    let again = rig.hardware().take_written();
    let value = |offset: u32| first.iter().find(|(o, _)| *o == offset).expect("it is written").1;
    let addresses = [HOST_CMD_BASE_LO, HOST_EVT_BASE_LO, HOST_FENCE_LO].map(|low| (value(low), value(low + 4)));
    assert!(addresses.iter().all(|(low, _)| *low != 0));
    let expected = [
        (HOST_DMA_ENABLE, 0),
        (HOST_CTRL, 1),
        (HOST_CMD_BASE_LO, addresses[0].0),
        (HOST_CMD_BASE_HI, addresses[0].1),
        (HOST_CMD_LOG2, 12),
        (HOST_EVT_BASE_LO, addresses[1].0),
        (HOST_EVT_BASE_HI, addresses[1].1),
        (HOST_EVT_LOG2, 12),
        (HOST_FENCE_LO, addresses[2].0),
        (HOST_FENCE_HI, addresses[2].1),
        (MASTER, 1),
        (HOST_HB_CHALLENGE, 77),
        (HOST_DMA_ENABLE, 1),
        (HOST_FW_BOOT, 1),
        (HOST_EVT_CI, 1 << 31),
        (HOST_EVT_CI, 1 << 31),
    ];
    assert_eq!(again, expected);
    assert_eq!(first.len(), expected.len());
    rig.end();
}

#[test]
fn inv_6_a_reset_begins_anew_and_contexts_lose_what_they_had() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(FIRST_QPN, 64);
    let (epoch, run) = (rig.card.epoch.load(Relaxed), rig.card.generation());
    assert_eq!((epoch, run, rig.counter(D_RESETS)), (0, 1, 0));
    rig.get(1, &c, BASE, 20, true);
    // Half a round of each ring is used, and the card has sent what nobody has taken.
    rig.card.post(&vec![nothing(1); 2000]).unwrap();
    (0..100).for_each(|n| rig.hardware().send(log_event(n)));
    rig.settle();
    rig.hardware().send(log_event(100));
    rig.drain();
    rig.card.put(&[nothing(2)]).unwrap();
    {
        let mut tables = rig.registry.tables.lock();
        tables.services.push(listening(7, c.asid), GFP_KERNEL).unwrap();
        tables.requests.push(asked(8, c.asid), GFP_KERNEL).unwrap();
    }
    let events = rig.counter(D_EVENTS);
    rig.logged("");
    rig.hardware().log.clear();
    rig.card.reset("a test").unwrap();
    rig.ms(5);
    assert_eq!(rig.logged("resetting"), ["berth: resetting the card (a test)\n"]);
    assert_eq!((rig.card.epoch.load(Relaxed), rig.card.generation(), rig.counter(D_RESETS)), (1, 2, 1));
    assert_eq!((rig.card.state(), told(&c)), (State::Up, vec![ioctl::CTX_DEVICE_LOST]));
    assert_unused(&rig);
    let tables = kernel::world::calmly(|| {
        let tables = rig.registry.tables.lock();
        (tables.services.len(), tables.requests.len())
    });
    assert_eq!((tables, rig.counter(D_EVENTS)), ((0, 0), events));
    assert!(rig.hardware().log.is_empty());
    // Both rings begin at their beginning.
    rig.hardware().take_written();
    rig.card.post(&[nothing(3)]).unwrap();
    assert_eq!(rig.hardware().take_written(), [(HOST_CMD_PUSH, 0), (HOST_CMD_PI, 1)]);
    rig.hardware().send(log_event(101));
    rig.settle();
    assert_eq!((rig.counter(D_EVENTS) - events, rig.hardware().take_written()), (1, vec![(HOST_EVT_CI, 1 << 31 | 1)]));
    assert_eq!(rig.hardware().log, [nothing(3)]);
    rig.end();
}

#[test]
fn inv_6_a_reset_forgets_requests_that_wait_for_memory() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(FIRST_QPN, 64);
    rig.world.fail_next(0, 3);
    (1..=3).for_each(|tag| rig.ask(tag, &c, BASE, 1, false));
    rig.settle();
    assert_eq!(rig.pages.needs.lock().len(), 3);
    rig.card.reset("a test").unwrap();
    assert_eq!(rig.pages.needs.lock().len(), 0);
    rig.end();
}

#[test]
fn fw_a_card_has_its_name_again_after_a_reset() {
    let rig = Rig::new(Setup::default());
    rig.card.reset("a test").unwrap();
    rig.settle();
    assert_eq!(opcodes(&rig.hardware()), [0; 0]);
    *rig.card.net.lock() = NET;
    rig.card.reset("a test").unwrap();
    rig.settle();
    let (ipv4, mtu, guid) = (NET.ipv4, NET.mtu, NET.guid);
    // The key is what the kernel's generator gives here.
    let name = NetConfig { ipv4, mac_first: 0x02b1_b2b3, mac_last: 0xb4b5, mtu, guid, key: [0x0707_0707; 4] };
    let expected = name.encode();
    assert_eq!(rig.hardware().log, [expected]);
    assert_eq!(NET.command(), expected);
    rig.end();
}

#[test]
fn fw_events_that_come_before_service_begins_are_taken_then() {
    let rig = Rig::new(Setup::default());
    rig.hardware().habits.boot.1 = 5 * MS;
    let reset = rig.begin(|card| card.reset("a test"));
    rig.ms(2);
    rig.hardware().send(log_event(1));
    rig.hardware().send(blank(99));
    rig.ms(2);
    assert_eq!((rig.card.state(), rig.counter(D_EVENTS)), (State::Down, 0));
    rig.ms(2);
    assert_eq!((reset.get(), rig.counter(D_EVENTS), rig.counter(D_BAD_EVENTS)), (Some(Ok(())), 2, 1));
    rig.end();
}

#[test]
fn fw_a_card_whose_firmware_does_not_start_stays_without_service() {
    // With a core that is stopped by itself, and one that is not.
    for (status, off) in [(FW_REFUSED, false), (FW_PANIC, true)] {
        let mut rig = Rig::new(Setup::default());
        let (_, c) = rig.user(FIRST_QPN, 64);
        rig.get(1, &c, BASE, 3, false);
        *rig.card.net.lock() = NET;
        rig.hardware().habits.boot.0 = status;
        rig.hardware().log.clear();
        rig.hardware().take_written();
        assert_eq!(rig.card.reset("a test"), Err(EIO));
        rig.ms(5);
        assert_eq!((rig.card.state(), rig.counter(D_RESETS), rig.card.epoch.load(Relaxed)), (State::Down, 1, 1));
        let written = rig.hardware().take_written();
        assert_eq!(written[written.len() - 1], if off { (HOST_DMA_ENABLE, 0) } else { (HOST_FW_BOOT, 1) });
        assert_eq!((told(&c), rig.hardware().log.len()), (vec![ioctl::CTX_DEVICE_LOST], 0));
        assert_unused(&rig);
        // With better firmware it works, and nobody loses anything once more.
        rig.hardware().habits.boot.0 = FW_RUNNING;
        rig.card.reset("a test").unwrap();
        rig.ms(5);
        assert_eq!((rig.card.state(), rig.counter(D_RESETS), rig.card.epoch.load(Relaxed)), (State::Up, 1, 1));
        assert_eq!(told(&c), [0; 0]);
        rig.end();
    }
}

#[test]
fn inv_6_a_card_that_does_not_end_a_reset_is_out_of_service() {
    // Milliseconds that it takes, and whether that is in time.
    for (ms, works) in [(30_001, true), (30_002, false)] {
        let mut rig = Rig::watched(Setup::default());
        let (_, c) = rig.user(FIRST_QPN, 64);
        rig.hardware().reset_ns = ms * MS;
        rig.hardware().take_written();
        rig.logged("");
        let reset = rig.begin(|card| card.reset("a test"));
        rig.ms(29_999);
        assert_eq!((reset.get(), rig.card.state(), told(&c)), (None, State::Resetting, vec![]));
        rig.ms(2);
        assert_eq!(reset.get(), Some(if works { Ok(()) } else { Err(ENODEV) }));
        assert_eq!(told(&c), [ioctl::CTX_DEVICE_LOST]);
        rig.hardware().reset_ns = 0;
        if works {
            assert_eq!(rig.card.state(), State::Up);
            rig.end();
            continue;
        }
        assert_eq!(rig.hardware().take_written(), [(HOST_DMA_ENABLE, 0), (HOST_CTRL, 1), (MASTER, 0)]);
        assert_eq!(rig.logged("out of service"), ["berth: the card does not answer, it is out of service\n"]);
        // Though it is there, nobody tries again, until somebody asks.
        rig.ms(2000);
        assert_eq!((rig.card.state(), rig.counter(D_RESETS)), (State::Gone, 1));
        rig.card.reset("asked for").unwrap();
        assert_eq!((rig.card.state(), rig.counter(D_RESETS)), (State::Up, 2));
        rig.end();
    }
}

#[test]
fn inv_6_a_card_that_goes_during_a_reset_is_out_of_service_at_once() {
    for (at, written) in [(0, 0), (5, 2)] {
        let rig = Rig::new(Setup::default());
        rig.hardware().take_written();
        rig.hardware().reset_ns = 10 * MS;
        rig.hardware().habits.gone = at == 0;
        let reset = rig.begin(|card| card.reset("a test"));
        rig.ms(at);
        rig.hardware().habits.gone = true;
        rig.ms(u64::from(at > 0));
        assert_eq!((reset.get(), rig.card.state()), (Some(Err(ENODEV)), State::Gone));
        assert_eq!(rig.hardware().take_written()[written..], [(MASTER, 0)]);
        assert_eq!((rig.card.reset("a test"), rig.card.state()), (Err(ENODEV), State::Gone));
        rig.end_at_once();
    }
}

#[test]
fn inv_3_unbinding_ends_dma_and_everything_that_contexts_have() {
    for present in [true, false] {
        let mut rig = Rig::watched(Setup::default());
        let (mm, c) = rig.user(FIRST_QPN, 64);
        rig.get(1, &c, BASE, 20, true);
        rig.stick(mm, BASE + 30, true);
        rig.ask(2, &c, BASE + 30, 1, false);
        rig.settle();
        rig.world.fail_next(0, 1);
        rig.ask(3, &c, BASE, 1, false);
        rig.settle();
        rig.pages.sweep_later();
        rig.pages.press_later();
        rig.fill();
        rig.card.answer(rig.card.generation(), nothing(1));
        rig.card.schedule_reset();
        rig.hardware().take_written();
        rig.hardware().habits.gone = !present;
        rig.stick(mm, BASE + 30, false);
        let epoch = rig.card.epoch.load(Relaxed);
        rig.registry.unbind();
        let off = [(HOST_DMA_ENABLE, 0), (HOST_CTRL, 1), (MASTER, 0)];
        let written = rig.hardware().take_written();
        assert!(present || written == off[2..]);
        assert!(!present || written == off, "{written:x?}");
        assert_eq!((rig.card.state(), rig.card.epoch.load(Relaxed) > epoch), (State::Unbound, true));
        assert_eq!(told(&c), [ioctl::CTX_DEVICE_LOST]);
        assert_eq!(rig.pages.needs.lock().len(), 0);
        rig.settle();
        assert_unused(&rig);
        assert!(!rig.world.is_busy(), "nothing of the card's is done any more");
        // Nothing is begun any more, either.
        assert_eq!((rig.card.reset("a test"), rig.card.post(&[nothing(1)])), (Err(ENODEV), Err(ENODEV)));
        rig.pages.sweep_later();
        rig.pages.press_later();
        rig.pages.look_at_needs();
        assert_eq!((rig.hardware().take_written(), rig.world.is_busy()), (vec![], false));
        rig.end_at_once();
    }
}

#[test]
fn inv_3_unbinding_takes_back_what_was_to_be_done_later() {
    let rig = Rig::new(Setup::default());
    rig.fill();
    rig.card.start_watching();
    rig.pages.sweep_later();
    rig.pages.press_later();
    rig.pages.look_at_needs();
    rig.card.answer(rig.card.generation(), nothing(1));
    rig.card.schedule_reset();
    rig.registry.unbind();
    assert!(!rig.world.is_busy());
    rig.end_at_once();
}

#[test]
fn inv_3_unbinding_waits_for_the_interrupt_thread() {
    let mut rig = Rig::new(Setup::default());
    let (_, c) = rig.user(FIRST_QPN, 64);
    rig.begin(|card| {
        let _events = card.events.lock();
        kernel::time::delay::fsleep(kernel::time::Delta::from_millis(5));
    });
    let unbind = rig.begin_unbind();
    rig.ms(4);
    assert_eq!((unbind.get(), rig.card.state(), told(&c)), (None, State::Unbound, vec![]));
    rig.ms(1);
    assert_eq!((unbind.get(), told(&c)), (Some(()), vec![ioctl::CTX_DEVICE_LOST]));
    rig.end_at_once();
}

#[test]
fn inv_3_no_request_is_begun_on_a_card_that_is_unbound() {
    // At any moment.
    for seed in 0..40 {
        let mut rig = Rig::with(Some(seed), Setup::default());
        let (_, c) = rig.user(FIRST_QPN, 64);
        (0..32).for_each(|tag| rig.ask(tag, &c, BASE + u64::from(tag), 1, false));
        rig.world.set_preempt(3);
        let unbound = rig.begin_unbind();
        rig.world.run_until(|| unbound.get().is_some());
        assert_eq!((shown(&c).requests.len(), rig.pages.needs.lock().len()), (0, 0), "seed {seed}");
        rig.world.set_preempt(0);
        rig.ms(10);
        assert_eq!(shown(&c).requests.len(), 0, "seed {seed}");
        assert_unused(&rig);
        rig.end_at_once();
    }
}

#[test]
fn inv_3_a_card_that_is_unbound_stays_so() {
    let rig = Rig::new(Setup::default());
    rig.registry.unbind();
    rig.hardware().reset_ns = 5 * MS;
    let again = rig.begin_unbind();
    rig.ms(2);
    assert_eq!((again.get(), rig.card.state()), (None, State::Unbound));
    rig.ms(5);
    assert_eq!((again.get(), rig.card.state()), (Some(()), State::Unbound));
    rig.end_at_once();
}

#[test]
fn inv_3_who_uses_a_card_that_is_being_unbound_waits_or_fails() {
    let rig = Rig::new(Setup::default());
    let query = |card: &Arc<Card>| card.call(query(1));
    rig.hardware().deaf = true;
    let before = rig.begin(query);
    rig.hardware().reset_ns = 5 * MS;
    let unbind = rig.begin_unbind();
    rig.ms(2);
    let fence = rig.begin(|card| card.stop_dma());
    let calls = [before, rig.begin(query)].map(|c| c.get());
    // Who waits for firmware does not wait for the end of this.
    assert_eq!(calls, [Some(Err(ENODEV)), Some(Err(EIO))]);
    assert_eq!((rig.card.state(), fence.get()), (State::Resetting, None));
    rig.ms(5);
    assert_eq!((unbind.get(), fence.get(), rig.card.state()), (Some(()), Some(()), State::Unbound));
    rig.end_at_once();
}

#[test]
fn inv_3_a_device_that_is_not_bound_any_more_is_not_started() {
    let rig = Rig::new(Setup::default());
    rig.close_gate();
    assert_eq!(rig.card.reset("a test"), Err(ENODEV));
    assert_eq!(rig.card.state(), State::Down);
    assert!(rig.card.bound().is_err());
    rig.end_at_once();
}

#[test]
fn rings_that_were_given_back_are_not_used() {
    let rig = Rig::new(Setup::default());
    rig.card.free_rings();
    assert_eq!((rig.card.post(&[nothing(1)]), rig.card.put_evicts([1].into_iter())), (Err(ENODEV), 0));
    assert!(rig.card.next_event(&mut rig.card.events.lock()).is_none());
    assert_eq!(rig.card.reset("a test"), Err(ENODEV));
    rig.end_at_once();
}
