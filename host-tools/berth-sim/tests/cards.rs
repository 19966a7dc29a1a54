// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two cards on a wire, with small models in place of the RTL: clocks, frames, hosts.

use berth_sim::card::{SimCard, TxFrame, Worker};
use berth_sim::device::Slot;
use berth_sim::link::{Link, LinkConfig, Request};
use berth_sim::time::Pace;
use berth_sim::wire::Faults;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const LATENCY: u64 = 500;

/// What a model card tells its test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A frame came; its first byte, and the cycle.
    Frame(u8, u64),
    /// The timer came, in this cycle.
    Timer(u64),
}

/// A card that works for some cycles, sends frames on command and has a timer.
///
/// Registers (any BAR): 0: reads the cycle counter; 8: work for so many cycles (all-ones: for
/// ever); 16: send a frame with this first byte; 24: arm the timer for so many cycles from
/// now; 32: answer every frame with one whose first byte is one less, down to 1.
struct Model {
    cycles: u64,
    work_until: u64,
    timer: Option<u64>,
    echo: bool,
    tx: VecDeque<TxFrame>,
    rx: VecDeque<Vec<u8>>,
    events: Sender<Event>,
    clocks: Arc<[AtomicU64; 2]>,
    me: usize,
    too_far: Arc<AtomicBool>,
    bells: usize,
}

impl Model {
    /// Cycles that it takes for a doorbell.
    const BELL: u64 = 5;

    fn send(&mut self, byte: u8) {
        let mut data = vec![0; 100];
        data[0] = byte;
        self.tx.push_back(TxFrame { data, start_cycle: self.cycles, end_cycle: self.cycles });
    }
}

impl Model {
    fn step(&mut self) {
        self.cycles += 1;
        if self.work_until == u64::MAX {
            self.clocks[self.me].store(self.cycles, Ordering::SeqCst);
        }
        // A clock of 0 is that of a card that does not work for ever (yet): it may be parked.
        let peer = self.clocks[1 - self.me].load(Ordering::SeqCst);
        if peer > 0 && self.cycles > peer + LATENCY {
            self.too_far.store(true, Ordering::SeqCst);
        }
        if self.cycles.is_multiple_of(Self::BELL) {
            self.bells = self.bells.saturating_sub(1);
        }
        if self.timer.is_some_and(|t| t <= self.cycles) {
            self.timer = None;
            let _ = self.events.send(Event::Timer(self.cycles));
        }
        if let Some(frame) = self.rx.pop_front() {
            let _ = self.events.send(Event::Frame(frame[0], self.cycles));
            if self.echo && frame[0] > 1 {
                self.send(frame[0] - 1);
            }
        }
    }
}

impl SimCard for Model {
    fn run(&mut self, cycles: u64) {
        (0..cycles).for_each(|_| self.step());
    }
    fn run_until_idle(&mut self, limit: u64) {
        let end = self.cycles + limit;
        while self.cycles < end && !self.idle() {
            self.step();
        }
    }
    fn card_cycles(&self) -> u64 {
        self.cycles
    }
    fn idle(&self) -> bool {
        self.cycles >= self.work_until
            && self.bells == 0
            && self.rx.is_empty()
            && self.timer.is_none_or(|t| t > self.cycles)
    }
    fn cycles(&self) -> u64 {
        self.cycles
    }
    fn timer(&self) -> Option<u64> {
        self.timer
    }
    fn skip_to(&mut self, cycle: u64) {
        assert!(self.idle() && cycle > self.cycles);
        self.cycles = cycle;
    }
    fn mmio_write(&mut self, _bar: u32, offset: u64, data: u64, _len: usize) {
        match offset {
            8 => self.work_until = self.cycles.saturating_add(data),
            16 => self.send(data as u8),
            24 => self.timer = Some(self.cycles + data),
            32 => self.echo = data != 0,
            40 => {
                self.bells += 1;
                assert!(self.bells <= 16, "posted without bound");
            }
            _ => {}
        }
    }
    fn set_device_control(&mut self, _control: u16) {}
    fn writes_pending(&self) -> usize {
        self.bells
    }
    fn mmio_read(&mut self, _bar: u32, offset: u64, _len: usize) -> u64 {
        while self.bells > 0 {
            self.step();
        }
        if offset == 0 { self.cycles } else { 0 }
    }
    fn take_tx(&mut self) -> Option<TxFrame> {
        self.tx.pop_front()
    }
    fn set_tx_ready(&mut self, _ready: bool) {}
    fn push_rx(&mut self, frame: Vec<u8>, _damaged: bool) {
        self.rx.push_back(frame);
    }
    fn rx_pending(&self) -> usize {
        self.rx.len()
    }
    fn drain(&mut self) {}
    fn set_stalled(&mut self, _stalled: bool) {}
    fn trace(&mut self, _file: Option<&Path>) -> Result<(), String> {
        Ok(())
    }
}

struct Bench {
    link: Arc<Link>,
    slots: Vec<Arc<Slot>>,
    events: Vec<Receiver<Event>>,
    too_far: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Value>>,
}

impl Bench {
    fn new(cards: usize, cycles_per_ms: u64, faults: Faults) -> Self {
        let pace = Pace { cycles_per_ms };
        let link = Arc::new(Link::new(LinkConfig { latency: LATENCY, quantum: 64, pace, faults }, 0));
        let clocks: Arc<[AtomicU64; 2]> = Arc::default();
        let too_far: Arc<AtomicBool> = Arc::default();
        let mut bench =
            Bench { link: link.clone(), slots: vec![], events: vec![], too_far: too_far.clone(), threads: vec![] };
        let mut workers = vec![];
        for me in 0..cards {
            let (events, receiver) = channel();
            let model = Model {
                cycles: 0,
                work_until: 0,
                timer: None,
                echo: false,
                tx: VecDeque::new(),
                rx: VecDeque::new(),
                events,
                clocks: clocks.clone(),
                me,
                too_far: too_far.clone(),
                bells: 0,
            };
            let slot = Arc::new(Slot::new(["a", "b"][me], link.clone(), me));
            workers.push(Worker::new(&slot.name, model, link.clone(), me, slot.dma.clone()));
            bench.slots.push(slot);
            bench.events.push(receiver);
        }
        bench.threads = workers.into_iter().map(|w| std::thread::spawn(move || w.run())).collect();
        bench
    }

    fn write(&self, card: usize, offset: u64, data: u64) {
        self.link.request(card, Request::Write { bar: 0, offset, len: 8, data });
    }

    fn clock(&self, card: usize) -> u64 {
        self.slots[card].ask(|reply| Request::Read { bar: 0, offset: 0, len: 8, reply }).recv().unwrap()
    }

    fn event(&self, card: usize) -> Event {
        self.events[card].recv_timeout(Duration::from_secs(20)).expect("an event")
    }

    fn finish(self) -> Vec<Value> {
        self.link.stop();
        self.threads.into_iter().map(|t| t.join().unwrap()).collect()
    }
}

#[test]
fn busy_cards_stay_within_one_latency() {
    let b = Bench::new(2, 25_000, Faults::default());
    b.write(0, 8, u64::MAX);
    b.write(1, 8, u64::MAX);
    while b.clock(0) < 300_000 || b.clock(1) < 300_000 {}
    assert!(!b.too_far.load(Ordering::SeqCst));
    b.finish();
}

#[test]
fn posted_writes_without_end_hold_up_their_host_and_not_a_read_behind_them() {
    let b = Bench::new(2, 25_000, Faults::default());
    b.write(0, 8, u64::MAX);
    b.write(1, 8, u64::MAX);
    std::thread::scope(|scope| {
        let link = &b.link;
        for _ in 0..3 {
            scope.spawn(move || {
                (0..10_000).for_each(|_| link.request(0, Request::Write { bar: 2, offset: 40, len: 8, data: 0 }))
            });
        }
        (0..200).for_each(|_| assert!(b.clock(0) < u64::MAX));
    });
    assert!(!b.too_far.load(Ordering::SeqCst));
    b.finish();
}

#[test]
fn a_frame_arrives_one_latency_after_its_last_byte() {
    let b = Bench::new(2, 25_000, Faults::default());
    b.write(0, 16, 7);
    let Event::Frame(7, at) = b.event(1) else { panic!("no frame") };
    let reports = b.finish();
    // Sent in or after the cycle of the write; (100 + 24) / 8 beats on the wire. The receiver was idle: no cycle was lost.
    assert!(at >= LATENCY + 16, "{at}");
    assert_eq!(reports[1]["rx_frames"], 1);
    assert_eq!(reports[0]["tx_frames"], 1);
}

#[test]
fn cards_that_answer_each_other_need_no_wall_clock() {
    // At this pace one flight would take half a second; 200 of them must not wait for it.
    let b = Bench::new(2, 1, Faults::default());
    let (link, slow) = (b.link.clone(), b);
    slow.write(0, 32, 1);
    slow.write(1, 32, 1);
    slow.write(0, 16, 200);
    let mut last = 0;
    for n in (1..=200u8).rev() {
        let Event::Frame(byte, at) = slow.event(usize::from(n % 2 == 0)) else { panic!("no frame") };
        assert_eq!(byte, n);
        assert!(last == 0 || at - last >= LATENCY, "{n}: {last} {at}");
        last = at;
    }
    assert_eq!(link.direction(0).late + link.direction(1).late, 0);
    slow.finish();
}

#[test]
fn an_idle_card_skips_to_its_timer() {
    let b = Bench::new(1, 1_000_000, Faults::default());
    b.write(0, 24, 50_000_000);
    let start = b.clock(0);
    let Event::Timer(at) = b.event(0) else { panic!("no timer") };
    assert!((49_000_000..50_000_200).contains(&(at - start.min(at))), "{start} {at}");
    let stepped = b.finish()[0]["stepped_cycles"].as_u64().unwrap();
    assert!(stepped < 100_000, "{stepped} cycles were clocked, not skipped");
}

#[test]
fn a_timer_does_not_overtake_a_busy_peer() {
    let b = Bench::new(2, 0, Faults::default());
    // Card b works for ever; card a's time-out must not come before b has worked that long.
    b.write(1, 8, u64::MAX);
    b.write(0, 24, 100_000);
    let Event::Timer(at) = b.event(0) else { panic!("no timer") };
    let peer = b.clock(1);
    assert!(peer + LATENCY >= at, "timer in {at}, peer only in {peer}");
    assert!(at >= 100_000);
    b.finish();
}

#[test]
fn time_passes_slowly_while_only_hosts_have_work() {
    // 1000 cycles per millisecond: a timer of 100 000 cycles leaves a host 100 ms.
    let b = Bench::new(2, 1000, Faults::default());
    let start = std::time::Instant::now();
    b.write(0, 24, 100_000);
    b.event(0);
    assert!(start.elapsed() >= Duration::from_millis(90), "{:?}", start.elapsed());
    b.finish();
}

#[test]
fn the_clock_of_idle_cards_moves_on() {
    let b = Bench::new(2, 1_000_000, Faults::default());
    let first = b.clock(0);
    // A driver that waits for card cycles gets there although nothing happens.
    while b.clock(0) < first + 5_000_000 {}
    assert!(b.clock(1) >= first);
    let reports = b.finish();
    assert!(reports[0]["host_wait_cycles"].as_u64().unwrap() >= 4_000_000);
}

#[test]
fn hold_and_release_force_an_order() {
    let b = Bench::new(2, 25_000, Faults::default());
    b.link.hold(0, 1);
    for byte in 1..=3 {
        b.write(0, 16, byte);
    }
    assert!(matches!(b.event(1), Event::Frame(1, _)));
    assert!(b.link.wait_held(0, 2, Duration::from_secs(10)));
    b.write(1, 16, 99);
    assert!(matches!(b.event(0), Event::Frame(99, _)));
    assert!(b.events[1].try_recv().is_err());
    assert_eq!(b.link.release(0, None), 2);
    assert!(matches!(b.event(1), Event::Frame(2, _)));
    assert!(matches!(b.event(1), Event::Frame(3, _)));
    b.finish();
}

#[test]
fn an_unplugged_card_is_silent_until_it_is_back() {
    let b = Bench::new(2, 25_000, Faults::default());
    b.slots[1].unplug(true);
    b.write(0, 16, 1);
    // The peer goes on; the card that has gone reads all-ones.
    let now = b.clock(0);
    b.write(0, 8, 10_000);
    while b.clock(0) < now + 10_000 {}
    assert_eq!(b.clock(1), u64::MAX);
    assert!(b.events[1].try_recv().is_err());
    b.slots[1].unplug(false);
    b.write(0, 16, 2);
    assert!(matches!(b.event(1), Event::Frame(2, _)));
    assert_eq!(b.link.direction(0).unplugged, 1);
    b.finish();
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let faults = Faults { loss: 0.2, dup: 0.2, reorder: 0.0, corrupt: 0.0, seed: 42, ..Faults::default() };
    let run = || {
        let b = Bench::new(2, 25_000, faults);
        for byte in 1..=100 {
            b.write(0, 16, byte);
        }
        let want = (0..100)
            .map(|i| faults.verdict(0, i))
            .fold((0, 0), |(lost, dup), v| (lost + u64::from(v.lost), dup + u64::from(v.duplicated)));
        let got: Vec<u8> = (0..100 - want.0 + want.1)
            .map(|_| match b.event(1) {
                Event::Frame(byte, _) => byte,
                Event::Timer(_) => panic!("a timer"),
            })
            .collect();
        let stats = b.link.direction(0);
        assert_eq!((stats.lost, stats.duplicated), want);
        b.finish();
        got
    };
    assert_eq!(run(), run());
}
