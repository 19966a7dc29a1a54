// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Indicate window: card and driver with queues between them.

use berth_protocol::service::indicate::{Driver, DriverAction, Nic, NicAction, Pool, Reason, Settings};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap, VecDeque};

mod common;

/// What goes from the driver to the card.
#[derive(Debug)]
enum Command {
    HandOver { id: u16, start: u64, len: u32, push: bool },
    Acknowledge(u32),
}

struct World {
    nic: Nic<8, 4>,
    driver: Driver<4>,
    events: VecDeque<NicAction>,
    commands: VecDeque<Command>,
    /// Stream offsets in anonymous memory, in named buffers, and in the application's hands.
    anonymous: BTreeSet<u64>,
    named: HashMap<u16, Vec<Option<u64>>>,
    got: u64,
    told: Vec<u64>,
    done: Vec<(u16, u32, Reason)>,
    now: u64,
    most: usize,
}

fn settings(early: u32, push_time: u64) -> Settings {
    Settings { early, push_time, ..Settings::default() }
}

impl World {
    fn new(window: u32, push_time: u64) -> Self {
        Self {
            nic: Nic::new(window, 0, push_time, 0),
            driver: Driver::new(&settings(0, push_time), window, 0),
            events: VecDeque::new(),
            commands: VecDeque::new(),
            anonymous: BTreeSet::new(),
            named: HashMap::new(),
            got: 0,
            told: Vec::new(),
            done: Vec::new(),
            now: 0,
            most: 0,
        }
    }

    fn post(&mut self, id: u16, len: u32, push: bool) -> bool {
        let taken = self.driver.post(id, len, push);
        if taken {
            self.named.insert(id, vec![None; len as usize]);
        }
        taken
    }

    /// One action of the card. False when it has none.
    fn nic(&mut self) -> bool {
        let Some(action) = self.nic.poll(self.now) else {
            return false;
        };
        match action {
            NicAction::Anonymous { start, len, .. } => {
                for at in start..start + len as u64 {
                    assert!(self.anonymous.insert(at), "byte {at} came twice");
                }
                self.most = self.most.max(self.anonymous.len());
                self.events.push_back(action);
            }
            NicAction::Named { id, offset, start, len } => {
                for i in 0..len as u64 {
                    self.put(id, offset as u64 + i, start + i);
                }
            }
            NicAction::Return { .. } => self.events.push_back(action),
        }
        true
    }

    fn put(&mut self, id: u16, place: u64, at: u64) {
        let old = self.named.get_mut(&id).unwrap()[place as usize].replace(at);
        assert_eq!(old, None, "a place is written once");
    }

    fn event(&mut self) -> bool {
        match self.events.pop_front() {
            Some(NicAction::Anonymous { start, len, push }) => assert!(self.driver.indicated(start, len, push)),
            Some(NicAction::Return { id, end, reason }) => assert!(self.driver.returned(id, end, reason)),
            Some(other) => panic!("{other:?} is no event"),
            None => return false,
        }
        true
    }

    fn command(&mut self) -> bool {
        match self.commands.pop_front() {
            Some(Command::HandOver { id, start, len, push }) => {
                assert!(self.nic.hand_over(id, start, len, push, self.now));
            }
            Some(Command::Acknowledge(n)) => self.nic.acknowledge(n),
            None => return false,
        }
        true
    }

    /// One action of the driver. False when it has none.
    fn driver(&mut self) -> bool {
        let Some(action) = self.driver.poll(self.now) else {
            return false;
        };
        match action {
            DriverAction::Copy { id, offset, start, len } => {
                for i in 0..len as u64 {
                    assert!(self.anonymous.remove(&(start + i)), "byte {} is not there", start + i);
                    self.put(id, offset as u64 + i, start + i);
                }
            }
            DriverAction::HandOver { id, start, len, push } => {
                self.commands.push_back(Command::HandOver { id, start, len, push });
            }
            DriverAction::Acknowledge(n) => self.commands.push_back(Command::Acknowledge(n)),
            DriverAction::Complete { id, bytes, reason } => {
                let buffer = self.named.remove(&id).unwrap();
                for (i, at) in buffer.iter().enumerate() {
                    let expected = ((i as u32) < bytes).then_some(self.got + i as u64);
                    assert_eq!(*at, expected, "place {i} of buffer {id}, {bytes} bytes");
                }
                self.got += bytes as u64;
                self.done.push((id, bytes, reason));
            }
            DriverAction::Tell(n) => self.told.push(n),
        }
        true
    }

    /// Everything that follows.
    fn settle(&mut self) {
        while self.nic() || self.event() || self.driver() || self.command() {}
    }

    fn arrive(&mut self, len: u32, push: bool) {
        assert!(self.nic.arrived(len, push));
        self.settle();
    }

    fn accept(&mut self, n: u32) -> u32 {
        let taken = self.driver.accept(n);
        for _ in 0..taken {
            assert!(self.anonymous.remove(&self.got));
            self.got += 1;
        }
        taken
    }
}

#[test]
fn iw_1_window_has_a_default_and_a_value_per_connection_and_the_pool_is_sized_from_it() {
    let mut pool = Pool::new(Settings { default_window: 1000, pool: 5000, ahead: 1, ..settings(100, 0) });
    assert_eq!(pool.need(1000), 2100);
    assert_eq!(pool.open(None), Some(1000));
    assert_eq!(pool.open(Some(1400)), Some(1400));
    assert_eq!(pool.reserved(), 5000);
    assert_eq!(pool.open(Some(1)), None);
    pool.close(1000);
    assert_eq!(pool.open(Some(0)), Some(1), "a window of nothing would never deliver");
    assert_eq!(Pool::new(Settings::default()).open(None), Some(64 << 10));
}

#[test]
fn iw_2_delivery_suspends_at_the_window_and_the_sender_is_held_by_credits() {
    let mut w = World::new(100, 0);
    assert_eq!((w.nic.credit(70), w.nic.credit(70), w.nic.credit(70)), (Some(70), Some(30), None));
    w.arrive(60, false);
    assert_eq!((w.nic.pending(), w.driver.indicated_bytes(), w.nic.suspended()), (60, 60, false));
    w.arrive(40, false);
    assert_eq!((w.nic.pending(), w.driver.indicated_bytes(), w.nic.suspended()), (100, 100, true));
    assert!(!w.nic.arrived(1, false), "no room, no credit");
    assert_eq!((w.nic.credit(70), w.told.as_slice()), (None, &[60, 100][..]));
    assert_eq!(w.accept(30), 30);
    w.settle();
    assert_eq!(w.nic.pending(), 100, "less than half a window is not worth a command");
    assert_eq!(w.accept(30), 30);
    w.settle();
    assert_eq!((w.nic.pending(), w.nic.credit(70), w.driver.indicated_bytes()), (40, Some(60), 100));
    assert_eq!(w.accept(100), 40);
    w.settle();
    assert_eq!((w.nic.pending(), w.driver.indicated_bytes()), (0, 0), "the window was full and all was accepted");
}

#[test]
fn iw_2_what_arrives_beyond_the_window_is_held_if_there_is_room() {
    let mut w = World::new(10, 0);
    w.nic = Nic::new(10, 5, 0, 0);
    w.arrive(12, false);
    assert_eq!((w.nic.held(), w.anonymous.len()), (2, 10));
    assert!(!w.nic.arrived(4, false));
    assert!(w.nic.arrived(3, true));
    w.accept(10);
    w.settle();
    assert_eq!((w.nic.held(), w.driver.waiting()), (0, 5));
    w.nic.set_window(3);
    assert!(w.nic.suspended());
}

#[test]
fn iw_3_acknowledge_may_be_sent_early_while_the_application_accepts() {
    let mut w = World::new(100, 0);
    w.driver = Driver::new(&settings(40, 0), 100, 0);
    w.arrive(100, false);
    w.driver.accepting(80);
    w.settle();
    assert_eq!((w.nic.pending(), w.got), (60, 0));
    w.arrive(40, false);
    assert_eq!(w.accept(140), 140);
    w.settle();
    assert_eq!((w.nic.pending(), w.most), (0, 140));
    w.nic.acknowledge(7);
    assert_eq!(w.nic.pending(), 0, "pending saturates at 0");
}

#[test]
fn iw_3_iw_4_a_large_named_buffer_takes_what_waits_by_copy_and_the_rest_directly() {
    let mut w = World::new(100, 0);
    w.arrive(80, false);
    assert!(w.post(1, 500, false));
    w.settle();
    assert_eq!((w.nic.pending(), w.anonymous.len(), w.driver.consumed()), (0, 0, 80));
    w.arrive(400, false);
    assert!(w.done.is_empty() && w.anonymous.is_empty());
    w.arrive(40, false);
    assert_eq!(w.done, [(1, 500, Reason::Full)]);
    assert_eq!((w.driver.waiting(), w.nic.pending()), (20, 20), "and goes on in anonymous memory");
    assert_eq!(w.told, [80, 20]);
}

#[test]
fn iw_4_a_buffer_not_larger_than_the_window_is_filled_by_copy_alone() {
    let mut w = World::new(100, 0);
    assert!(w.post(1, 100, false));
    w.arrive(60, false);
    assert!(w.commands.is_empty() && w.done.is_empty() && w.told.is_empty());
    w.arrive(50, false);
    assert_eq!(w.done, [(1, 100, Reason::Full)]);
    assert_eq!(w.told, [10]);
}

#[test]
fn iw_4_a_smaller_buffer_is_filled_and_the_application_is_told_that_more_is_there() {
    let mut w = World::new(100, 0);
    w.arrive(90, false);
    assert!(w.post(1, 30, false));
    w.settle();
    assert_eq!((w.done.as_slice(), w.told.as_slice()), (&[(1, 30, Reason::Full)][..], &[90, 60][..]));
    assert!(w.post(2, 0, true) && w.post(3, 40, false) && w.post(4, 40, false));
    w.settle();
    assert_eq!(w.done[1..], [(2, 0, Reason::Full), (3, 40, Reason::Full)]);
    assert_eq!(w.driver.accept(5), 0, "reading does not overtake a buffer");
    w.arrive(20, false);
    assert_eq!(w.done[3..], [(4, 40, Reason::Full)]);
    assert_eq!(w.got, 110);
}

#[test]
fn iw_4_bytes_in_flight_while_a_buffer_is_handed_over_fall_in_place() {
    let mut w = World::new(100, 0);
    w.arrive(10, false);
    // 30 bytes are on their way to the driver while it hands over a buffer that begins at 0.
    assert!(w.nic.arrived(30, false) && w.nic());
    assert!(w.post(1, 200, false));
    while w.driver() {}
    assert!(w.command(), "the buffer is with the card before the driver knows of the 30 bytes");
    assert!(w.nic.arrived(170, true) && w.nic() && w.nic());
    w.settle();
    assert_eq!((w.done.as_slice(), w.driver.waiting()), (&[(1, 200, Reason::Full)][..], 10));
}

#[test]
fn iw_4_a_buffer_that_is_full_of_bytes_in_flight_comes_back_at_once() {
    let mut w = World::new(100, 0);
    assert!(w.nic.arrived(90, false) && w.nic());
    assert!(w.nic.arrived(10, false) && w.nic());
    w.driver = Driver::new(&settings(0, 0), 50, 0);
    assert!(w.post(1, 60, false));
    while w.driver() {}
    assert!(w.command());
    assert_eq!(w.nic.pending(), 40, "what lies behind it is still to be acknowledged");
    w.settle();
    assert_eq!((w.done.as_slice(), w.driver.waiting(), w.nic.pending()), (&[(1, 60, Reason::Full)][..], 40, 40));
    assert_eq!(w.accept(40), 40);
    w.settle();
    assert_eq!(w.nic.pending(), 0);
}

#[test]
fn iw_5_without_a_buffer_the_application_is_told_and_memory_goes_back_when_it_has_accepted() {
    let mut w = World::new(100, 0);
    w.arrive(50, false);
    assert_eq!(w.told, [50]);
    w.settle();
    assert_eq!(w.told, [50], "once");
    assert_eq!(w.accept(20), 20);
    w.settle();
    assert_eq!((w.anonymous.len(), w.told.len()), (30, 1));
    w.arrive(1, false);
    assert_eq!(w.told, [50, 31]);
}

#[test]
fn iw_6_push_returns_a_partly_filled_buffer_and_without_push_mode_it_waits_until_full() {
    for len in [60, 200] {
        let mut w = World::new(100, 50);
        assert!(w.post(1, len, true));
        w.arrive(20, false);
        assert!(w.done.is_empty());
        w.arrive(20, true);
        assert_eq!(w.done, [(1, 40, Reason::Push)], "buffer of {len}");
        assert_eq!((w.nic.deadline(), w.driver.deadline()), (None, None), "returning it stops its timer");
        let mut w = World::new(100, 50);
        assert!(w.post(1, len, false));
        w.arrive(40, true);
        w.now = 1000;
        w.settle();
        assert!(w.done.is_empty() && w.nic.deadline().is_none() && w.driver.deadline().is_none());
        w.arrive(len - 40, false);
        assert_eq!(w.done, [(1, len, Reason::Full)]);
    }
}

#[test]
fn iw_6_the_push_timer_returns_a_buffer_that_holds_something() {
    for len in [60, 200] {
        let mut w = World::new(100, 50);
        assert!(w.post(1, len, true));
        w.settle();
        w.now = 500;
        w.settle();
        assert!(w.done.is_empty() && w.nic.deadline().is_none(), "an empty buffer has no timer");
        w.arrive(20, false);
        assert_eq!(w.nic.deadline().or(w.driver.deadline()), Some(550));
        w.now = 549;
        w.settle();
        assert!(w.done.is_empty());
        w.now = 550;
        w.settle();
        assert_eq!(w.done, [(1, 20, Reason::Timer)]);
    }
}

#[test]
fn iw_6_push_that_came_through_anonymous_memory_returns_the_buffer_too() {
    let mut w = World::new(100, 50);
    w.arrive(10, true);
    assert!(w.post(1, 300, true) && w.post(2, 300, true));
    w.settle();
    assert_eq!(w.done, [(1, 10, Reason::Push)]);
    w.arrive(5, true);
    assert_eq!(w.done[1..], [(2, 5, Reason::Push)]);
}

#[test]
fn iw_7_bad_events_and_commands_change_nothing() {
    let mut w = World::new(100, 50);
    w.arrive(10, false);
    let before = (w.driver.clone(), w.nic.clone());
    assert!(!w.driver.indicated(9, 5, false) && !w.driver.indicated(11, 5, false));
    assert!(!w.driver.returned(1, 10, Reason::Full) && !w.nic.arrived(0, true));
    assert_eq!((w.driver.clone(), w.nic.clone()), before);
    assert!(w.post(1, 300, false));
    w.settle();
    assert!(!w.driver.returned(2, 10, Reason::Full) && !w.driver.returned(1, 301, Reason::Full));
    for id in 2..6 {
        assert_eq!((w.nic.hand_over(id, 300, 1, false, 0), w.driver.post(id, 1, false)), (id < 5, id < 5));
    }
}

#[test]
fn iw_7_close_returns_every_buffer_with_what_is_in_it() {
    let mut w = World::new(100, 50);
    w.arrive(10, false);
    assert!(w.post(1, 300, false) && w.post(2, 5, false) && w.post(3, 300, true));
    w.settle();
    w.arrive(70, true);
    w.driver.close();
    w.nic.close();
    w.settle();
    assert_eq!(w.done, [(1, 80, Reason::Closed), (2, 0, Reason::Closed), (3, 0, Reason::Closed)]);
    assert!(!w.nic.arrived(1, false) && w.nic.credit(1).is_none() && !w.driver.post(4, 1, false));
}

/// How a connection is set up.
#[derive(Clone, Debug)]
struct Connection {
    window: u32,
    early: u32,
    push_time: u64,
    hold: u32,
    ahead: u8,
}

/// What happens next, as far as it can.
#[derive(Clone, Debug)]
enum Op {
    Arrive {
        len: u32,
        push: bool,
    },
    /// One action of the card, one event at the driver, one action of the driver, one command at the card.
    Nic,
    Event,
    Driver,
    Command,
    Post {
        len: u32,
        push: bool,
    },
    Accept(u32),
    Accepting(u32),
    Wait(u64),
}

fn connection() -> impl Strategy<Value = Connection> {
    (1u32..61, 0u32..20, 0u64..40, 0u32..40, 1u8..4).prop_map(|(window, early, push_time, hold, ahead)| Connection {
        window,
        early,
        push_time,
        hold,
        ahead,
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1u32..31, prop::bool::weighted(0.2)).prop_map(|(len, push)| Op::Arrive { len, push }),
        2 => Just(Op::Nic),
        2 => Just(Op::Event),
        2 => Just(Op::Driver),
        2 => Just(Op::Command),
        1 => (0u32..240, any::<bool>()).prop_map(|(len, push)| Op::Post { len, push }),
        2 => (0u32..40).prop_map(Op::Accept),
        1 => (0u32..40).prop_map(Op::Accepting),
        2 => (0u64..3).prop_map(Op::Wait),
    ]
}

/// The reference is one queue: what the card took, in order.
fn follow(connection: &Connection, ops: &[Op]) {
    let Connection { window, early, push_time, hold, ahead } = *connection;
    let mut w = World::new(window, push_time);
    w.nic = Nic::new(window, hold, push_time, 0);
    let settings = Settings { ahead, ..settings(early, push_time) };
    w.driver = Driver::new(&settings, window, 0);
    let most = Pool::new(settings).need(window);
    let (mut came, mut id) = (0u64, 0u16);
    for op in ops {
        match *op {
            Op::Arrive { len, push } => {
                if w.nic.arrived(len, push) {
                    came += u64::from(len);
                }
            }
            Op::Nic => _ = w.nic(),
            Op::Event => _ = w.event(),
            Op::Driver => _ = w.driver(),
            Op::Command => _ = w.command(),
            Op::Post { len, push } => id += u16::from(w.post(id, len, push)),
            Op::Accept(n) => _ = w.accept(n),
            Op::Accepting(n) => w.driver.accepting(n),
            Op::Wait(time) => w.now += time,
        }
        assert!(w.nic.pending() <= window);
        assert!(w.anonymous.len() as u64 <= most, "{} bytes of anonymous memory", w.anonymous.len());
    }
    // An application that takes what there is gets everything, but for what is in buffers that are not full.
    loop {
        w.settle();
        if w.accept(u32::MAX) == 0 {
            break;
        }
    }
    assert_eq!(w.nic.held(), 0, "the card stands still: {:?} {:?}", w.nic, w.driver);
    w.driver.close();
    w.nic.close();
    w.settle();
    assert_eq!(w.driver.outstanding(), 0);
    w.accept(u32::MAX);
    w.settle();
    assert_eq!((w.got, w.anonymous.len()), (came, 0));
}

proptest! {
    #![proptest_config(common::config(500))]

    #[test]
    fn iw_7_bytes_are_delivered_once_and_in_order_whatever_the_timing_of_buffers(
        connection in connection(), ops in prop::collection::vec(op(), 0..600),
    ) {
        follow(&connection, &ops);
    }
}

#[test]
fn iw_7_offsets_can_be_counted_anew() {
    let mut w = World::new(100, 0);
    w.arrive(80, false);
    assert!(!w.driver.rebase(1) && !w.nic.rebase(81));
    assert_eq!(w.accept(80), 80);
    w.settle();
    assert!(w.driver.rebase(80) && w.nic.rebase(80));
    assert_eq!((w.driver.consumed(), w.nic.next()), (0, 0));
    w.got = 0;
    assert!(w.post(1, 150, false));
    w.settle();
    w.arrive(150, false);
    assert_eq!(w.done, [(1, 150, Reason::Full)]);
    // With buffers on both sides, and one on its way back.
    assert!(w.post(2, 200, false) && w.post(3, 300, false));
    w.settle();
    w.arrive(150, false);
    assert!(w.nic.arrived(100, false) && w.nic() && w.nic() && w.nic() && w.event());
    assert!(!w.driver.rebase(151) && w.driver.rebase(150));
    assert!(!w.nic.rebase(351) && w.nic.rebase(350));
    assert_eq!((w.driver.consumed(), w.nic.next()), (0, 50));
}
