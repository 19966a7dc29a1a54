// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trigger policies and bandwidth caps, with a sender at the other end of a link.

mod common;
use berth_protocol::credit::announcer::{Announcer, Options};
use berth_protocol::credit::entry::{Body, Entry, Name};
use berth_protocol::credit::policy::{Cap, Kind, Meter, Policy, Predictor, RUNGS, Settings, Use};
use berth_protocol::credit::taker::{Arrived, Taker};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const R: Name = Name { qpn: 1, epoch: 5 };
const S: Name = Name { qpn: 2, epoch: 6 };

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    List(usize),
    Piece { len: u32, size: u32, remaining: u32 },
    SenderReady,
    Message(u32),
    Wake,
}

/// A receiver that keeps `depth` receives of `size` bytes posted, a link of `delay` each way, and
/// a sender that takes `pace` for a credit.
struct Sim {
    announcer: Announcer,
    taker: Taker,
    size: u32,
    delay: u64,
    /// Receives are posted again so many at a time.
    batch: u32,
    free: u32,
    pace: fn(u64) -> u64,
    backlog: u32,
    busy: bool,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    stamp: u64,
    entries: Vec<Entry<64>>,
    /// Times of new lists, and times at which bytes landed.
    lists: Vec<(u64, u32)>,
    landings: Vec<(u64, u32)>,
    pieces: u64,
    /// Time in which the sender had data, was not sending, and had no credit.
    idle: u64,
    idle_from: Option<u64>,
    woken: u64,
}

impl Sim {
    fn new(options: &Options, depth: u32, size: u32, delay: u64, pace: fn(u64) -> u64) -> Self {
        let mut sim = Self {
            announcer: Announcer::new(options),
            taker: Taker::new(),
            size,
            delay,
            batch: 1,
            free: 0,
            pace,
            backlog: 0,
            busy: false,
            now: 0,
            events: BinaryHeap::new(),
            stamp: 0,
            entries: Vec::new(),
            lists: Vec::new(),
            landings: Vec::new(),
            pieces: 0,
            idle: 0,
            idle_from: None,
            woken: 0,
        };
        sim.announcer.connect(0, R, S);
        sim.taker.connect(S, R);
        for _ in 0..depth {
            sim.announcer.post(size);
        }
        sim.announcer.commit();
        sim
    }

    fn at(&mut self, time: u64, event: Event) {
        self.stamp += 1;
        self.events.push(Reverse((time, self.stamp, event)));
    }

    fn receiver(&mut self) {
        loop {
            let rtrip = self.announcer.builder().rtrip();
            let announced = self.announcer.builder().numbers().1;
            let Some(entry) = self.announcer.poll(self.now) else {
                break;
            };
            let Body::List(part) = entry.body else {
                panic!("{entry:?}");
            };
            if self.announcer.builder().numbers().1 != announced {
                assert_eq!(rtrip, None, "CR-11: a new list before the proof");
                self.lists.push((self.now, part.len as u32));
            }
            self.entries.push(entry);
            self.at(self.now + self.delay, Event::List(self.entries.len() - 1));
        }
        if let Some(at) = self.announcer.deadline(self.now)
            && at > self.now
            && self.woken != at
        {
            self.woken = at;
            self.at(at, Event::Wake);
        }
    }

    fn sender(&mut self) {
        if self.busy || self.backlog == 0 {
            return;
        }
        let Some((len, _, size)) = self.taker.take(self.backlog) else {
            self.idle_from.get_or_insert(self.now);
            return;
        };
        if let Some(from) = self.idle_from.take() {
            self.idle += self.now - from;
        }
        self.backlog -= len;
        self.busy = true;
        self.pieces += 1;
        let done = self.now + (self.pace)(self.pieces);
        self.at(done, Event::SenderReady);
        self.at(done + self.delay, Event::Piece { len, size, remaining: self.backlog });
    }

    fn run(&mut self, until: u64) {
        self.receiver();
        self.sender();
        while let Some(Reverse((time, _, event))) = self.events.peek().copied() {
            if time > until {
                break;
            }
            self.events.pop();
            self.now = time;
            match event {
                Event::List(i) => {
                    let arrived = self.taker.accept(&self.entries[i]);
                    assert!(matches!(arrived, Arrived::Buffered | Arrived::Repeat), "{arrived:?}");
                }
                Event::Piece { len, size, remaining } => {
                    assert!(self.announcer.landed(time, Some(remaining)));
                    self.announcer.wasted(time, size - len);
                    self.landings.push((time, len));
                    self.free += 1;
                    if self.free >= self.batch {
                        for _ in 0..std::mem::take(&mut self.free) {
                            self.announcer.post(self.size).unwrap();
                        }
                        self.announcer.commit();
                    }
                }
                Event::SenderReady => self.busy = false,
                Event::Message(len) => self.backlog += len,
                Event::Wake => (),
            }
            self.receiver();
            self.sender();
        }
        self.now = until;
    }
}

fn options(kind: Kind) -> Options {
    Options { policy: Settings { lead: 2000, ..Settings::of(kind) }, repeat: 1_000_000, ..Options::default() }
}

/// A steady sender with much to send to a receiver that posts `batch` receives at a time: (lists, pieces, time idle after the start).
fn steady(kind: Kind, depth: u32, batch: u32, pace: fn(u64) -> u64) -> (usize, u64, u64) {
    let mut sim = Sim::new(&options(kind), depth, 1000, 1000, pace);
    sim.batch = batch;
    sim.backlog = u32::MAX;
    sim.run(200_000);
    let (lists, pieces, idle) = (sim.lists.len(), sim.pieces, sim.idle);
    sim.run(2_000_000);
    (sim.lists.len() - lists, sim.pieces - pieces, sim.idle - idle)
}

#[test]
fn cr_5_the_first_buffer_keeps_a_fast_sender_busy_and_the_last_saves_lists_for_a_slow_one() {
    let fast = |_| 100;
    let (first, last) = (steady(Kind::First, 120, 40, fast), steady(Kind::Last, 120, 40, fast));
    assert_eq!(first.2, 0, "{first:?}");
    assert!(last.2 > 0, "{last:?}");
    let slow = |_| 1_000;
    let (first, last) = (steady(Kind::First, 60, 10, slow), steady(Kind::Last, 60, 10, slow));
    assert!(last.0 * 2 <= first.0 + 1, "{first:?} {last:?}");
}

/// A report of 8 credits used, `pace` each, by a sender that has `outstanding` credits and much to send.
fn used(pace: u64, outstanding: u32) -> Use {
    Use { gaps: 8, time: 8 * pace, longest: pace, outstanding, ..Use::default() }
}

#[test]
fn a_meter_reports_once_a_list_how_credits_were_used() {
    let mut meter = Meter::new();
    // A list of three credits to a sender without any, which waits for it.
    meter.remaining(9_000);
    meter.sent(1_000, 0);
    let report = meter.landed(3_000, true, 2, 2_000, Some(8_000)).unwrap();
    assert_eq!(report, Use { lead: Some(2_000), waited: true, outstanding: 2, ..Use::default() });
    // Another one while it has one credit. It uses it before the list has come, and has more to send.
    assert_eq!(meter.landed(3_100, false, 1, 1_000, Some(7_000)), None);
    meter.sent(3_150, 1);
    assert_eq!(meter.landed(3_300, false, 4, 4_000, None), None);
    let report = meter.landed(3_700, true, 3, 3_000, Some(0)).unwrap();
    let second = Use { gaps: 3, time: 700, longest: 400, left: 1, outstanding: 3, ..Use::default() };
    assert_eq!(report, Use { covered: true, waited: true, ..second });
    assert_eq!(meter.bytes_remaining(), Some(0));
    // It runs dry with more to send, which the next report says, and the time without credits does not count.
    meter.remaining(500);
    for left in (0..3).rev() {
        assert_eq!(meter.landed(4_000, false, left, 0, None), None);
    }
    meter.sent(9_000, 0);
    let report = meter.landed(9_900, true, 0, 0, None).unwrap();
    let dry = Use { gaps: 3, time: 300, longest: 300, lead: Some(900), waited: true, ..Use::default() };
    assert_eq!(report, Use { dry: true, ..dry });
    // That landing took its last credit again.
    meter.sent(10_000, 0);
    assert!(meter.landed(11_000, true, 1, 0, Some(0)).unwrap().dry);
    // Nothing of credits that were taken back is reported.
    meter.voided();
    meter.sent(20_000, 3);
    let report = meter.landed(30_000, true, 3, 300, None).unwrap();
    assert_eq!((report.gaps, report.time, report.lead, report.dry), (0, 0, None, false));
}

#[test]
fn cr_6_a_fast_sender_moves_the_trigger_to_the_start() {
    let mut policy = Policy::new(Settings { lead: 1000, ..Settings::of(Kind::Adaptive) });
    let mut at = |pace: u64, lists: u32| {
        for _ in 0..lists {
            policy.learn(0, &used(pace, 20));
        }
        policy.trigger().index(32)
    };
    // 1000 of lead are 100, 10, 1 credits, and one of margin.
    let (fast, middle, slow) = (at(10, 60), at(100, 60), at(1000, 60));
    assert_eq!(fast, 0);
    assert!((28..=29).contains(&slow), "{slow}");
    assert!((18..=20).contains(&middle), "{middle}");
    // It moves with each list, and back.
    let mut before = slow;
    for _ in 0..40 {
        let index = at(10, 1);
        assert!(index <= before);
        before = index;
    }
    assert_eq!(before, 0);
}

#[test]
fn cr_6_adaptive_takes_few_lists_and_leaves_nobody_idle() {
    for pace in [(|_| 100) as fn(u64) -> u64, |_| 500, |_| 5_000] {
        let (first, adaptive) = (steady(Kind::First, 60, 1, pace), steady(Kind::Adaptive, 60, 1, pace));
        assert!(adaptive.2 <= 2_000 && adaptive.1 >= first.1, "{first:?} {adaptive:?}");
    }
    // The slower the sender the fewer lists.
    let lists_per_1000 = |pace| {
        let (lists, pieces, _) = steady(Kind::Adaptive, 60, 1, pace);
        lists as u64 * 1000 / pieces
    };
    let (fast, middle, slow) = (lists_per_1000(|_| 100), lists_per_1000(|_| 300), lists_per_1000(|_| 3_000));
    assert!(fast > middle && middle > slow, "{fast} {middle} {slow}");
}

#[test]
fn cr_7_timed_lists_come_one_lead_before_the_sender_runs_dry() {
    let (first, timed) = (steady(Kind::First, 60, 1, |_| 500), steady(Kind::Timed, 60, 1, |_| 500));
    assert!(timed.0 < first.0 && timed.2 == 0, "{first:?} {timed:?}");
    // The time is that of the measurement: 40 credits of 500, less 2000 of lead and 500 of margin.
    let mut policy = Policy::new(Settings { lead: 2000, ..Settings::of(Kind::Timed) });
    for i in 0..50 {
        policy.learn(i * 500, &used(500, 40));
    }
    assert_eq!(policy.deadline(40), Some(49 * 500 + 40 * 500 - 2500));
    assert!(!policy.due(49 * 500, 40));
    assert!(policy.due(49 * 500, 0), "a sender without credits does not wait");
}

#[test]
fn cr_8_the_filter_learns_a_pattern_that_a_mean_cannot() {
    // Bursts: three quick credits, one slow.
    let pattern = |i: u64| if i % 4 == 3 { 4000 } else { 100 };
    let mut filter = Predictor::new();
    let mut mean = 1000i64;
    let (mut error, mut error_of_mean) = (0, 0);
    for i in 0..400 {
        if i >= 200 {
            let predicted = filter.predict(1).unwrap() as i64;
            error += (pattern(i) as i64 - predicted).abs();
            error_of_mean += (pattern(i) as i64 - mean).abs();
        }
        filter.learn(pattern(i));
        mean += (pattern(i) as i64 - mean) / 8;
    }
    assert!(error * 4 < error_of_mean, "{error} {error_of_mean}");
    // Several ahead: the whole pattern.
    let whole = filter.predict(8).unwrap();
    assert!((8_000..9_300).contains(&whole), "{whole}");
}

#[test]
fn cr_8_predictive_lists_follow_a_bursty_sender() {
    let bursty = |i: u64| if i % 4 == 3 { 4000 } else { 100 };
    let (first, predictive) = (steady(Kind::First, 40, 1, bursty), steady(Kind::Predictive, 40, 1, bursty));
    // It runs dry once at most, for a round trip, while the filter learns.
    assert!(predictive.0 < first.0 && predictive.2 <= 2_000, "{first:?} {predictive:?}");
}

#[test]
fn cr_8_nothing_is_predicted_for_a_sender_whose_credits_cover_all_that_it_has() {
    let mut policy = Policy::new(Settings { lead: 2000, ..Settings::of(Kind::Predictive) });
    for i in 0..50 {
        policy.learn(i * 500, &used(500, 40));
    }
    assert_eq!(policy.deadline(40), Some(49 * 500 + 40 * 500 - 2500));
    policy.learn(25_000, &Use { covered: true, ..used(500, 39) });
    assert_eq!(policy.deadline(39), None);
    // It has got more to send.
    policy.remaining(50_000, 39_000);
    assert!(policy.deadline(39).is_some());
}

fn in_band(rung: u8) -> Policy {
    Policy::new(Settings { lead: 1000, rung, ..Settings::of(Kind::InBand) })
}

/// `n` lists, between each of which 8 credits are used, `pace` each; `left` are left each time.
fn rounds(policy: &mut Policy, n: u32, left: u32, covered: bool, mut pace: impl FnMut() -> u64) {
    for _ in 0..n {
        let gaps = std::array::from_fn::<u64, 8, _>(|_| pace());
        let (time, longest) = (gaps.iter().sum(), gaps.into_iter().max().unwrap());
        policy.learn(0, &Use { time, longest, left, covered, ..used(0, 8) });
    }
}

#[test]
fn cr_9_lists_that_come_too_fast_switch_to_a_slower_policy_and_too_slow_to_a_faster_one() {
    let mut policy = in_band(2);
    assert_eq!(policy.kind(), Kind::Quarters(2));
    // 60 credits are left each time: at 500 each they last 30 leads.
    rounds(&mut policy, 20, 60, false, || 500);
    assert_eq!(policy.kind(), Kind::Last);
    // One credit is left: less than a lead.
    rounds(&mut policy, 20, 1, false, || 500);
    assert_eq!(policy.kind(), Kind::First);
    // In between nothing is changed: 4 credits last two leads.
    let mut policy = in_band(3);
    rounds(&mut policy, 20, 4, false, || 500);
    assert_eq!(policy.kind(), Kind::Quarters(1));
}

#[test]
fn cr_9_a_sender_that_has_little_more_to_send_needs_no_quick_lists() {
    let mut policy = in_band(RUNGS as u8 - 1);
    rounds(&mut policy, 20, 1, true, || 500);
    assert_eq!(policy.kind(), Kind::Last);
}

#[test]
fn cr_9_no_switch_while_the_variance_is_above_the_bound() {
    let mut policy = in_band(2);
    let mut i = 0;
    rounds(&mut policy, 40, 1, false, || {
        i += 1;
        if i % 16 == 0 { 20_000 } else { 50 }
    });
    let mean = policy.mean().unwrap();
    assert!(policy.variance() > mean * mean, "{} {mean}", policy.variance());
    assert_eq!(policy.kind(), Kind::Quarters(2));
    // It calms down: now it switches.
    rounds(&mut policy, 40, 1, false, || 400);
    assert_eq!(policy.kind(), Kind::First);
}

#[test]
fn cr_9_a_changing_sender_is_followed_by_the_whole_connection() {
    let pace = |i: u64| if i < 2_000 { 100 } else { 5_000 };
    let mut sim = Sim::new(&options(Kind::InBand), 60, 1000, 1000, pace);
    sim.backlog = u32::MAX;
    sim.run(190_000);
    let idle = sim.idle;
    let fast = sim.announcer.policy().kind();
    sim.run(5_000_000);
    assert!(matches!(fast, Kind::Quarters(_) | Kind::First), "{fast:?}");
    // "Last" lets it run dry each time, so it is left again; the next one is not.
    assert!(matches!(sim.announcer.policy().kind(), Kind::Last | Kind::Quarters(3)));
    assert!(sim.idle - idle < 100_000, "{}", sim.idle);
}

#[test]
fn cr_9_a_rung_that_does_not_exist_or_names_the_ladder_itself_is_no_trap() {
    assert_eq!(in_band(200).kind(), Kind::First);
    let ladder = [Kind::InBand; RUNGS];
    assert_eq!(Policy::new(Settings { ladder, ..Settings::of(Kind::InBand) }).kind(), Kind::First);
}

/// In every time bytes landed ≤ burst + rate × time.
fn within_cap(landings: &[(u64, u32)], rate_per_unit: f64, burst: f64) {
    for (i, (from, _)) in landings.iter().enumerate() {
        let mut sum = 0.0;
        for (to, len) in &landings[i..] {
            sum += *len as f64;
            let most = burst + rate_per_unit * (to - from) as f64;
            assert!(sum <= most + 1.0, "{sum} > {most} from {from} to {to}");
        }
    }
}

#[test]
fn cr_10_a_sender_does_not_exceed_its_bandwidth_and_gets_it() {
    for kind in [Kind::First, Kind::Last, Kind::Adaptive, Kind::Timed, Kind::Predictive, Kind::InBand] {
        // 2 bytes per unit; the link could carry 10.
        let cap = Cap::new(2_000_000, 1_000_000, 20_000);
        let mut sim = Sim::new(&Options { cap: Some(cap), ..options(kind) }, 60, 1000, 1000, |_| 100);
        sim.backlog = u32::MAX;
        sim.run(500_000);
        within_cap(&sim.landings, 2.0, 20_000.0);
        let bytes: u64 = sim.landings.iter().map(|l| l.1 as u64).sum();
        assert!(bytes > 900_000, "{kind:?}: {bytes}");
    }
}

#[test]
fn cr_10_bytes_that_a_piece_left_unused_do_not_count() {
    let cap = Cap::new(2_000_000, 1_000_000, 20_000);
    let mut sim = Sim::new(&Options { cap: Some(cap), ..options(Kind::First) }, 60, 1000, 1000, |_| 100);
    // Messages of 250 bytes against credits of 1000, 1 byte per unit.
    for i in 0..2000 {
        sim.at(i * 250, Event::Message(250));
    }
    sim.run(600_000);
    assert_eq!(sim.landings.iter().map(|l| l.1).sum::<u32>(), 500_000);
    within_cap(&sim.landings, 2.0, 20_000.0);
}

#[test]
fn cr_10_a_credit_larger_than_the_burst_goes_alone_and_is_paid_for() {
    let cap = Cap::new(1_000_000, 1_000_000, 1_000);
    let mut sim = Sim::new(&Options { cap: Some(cap), ..options(Kind::First) }, 10, 5_000, 1000, |_| 100);
    sim.backlog = u32::MAX;
    sim.run(500_000);
    assert!(sim.lists.iter().all(|l| l.1 == 1));
    within_cap(&sim.landings, 1.0, 5_000.0);
    assert!(sim.landings.len() > 65, "{}", sim.landings.len());
}

#[test]
fn cr_10_a_servers_load_is_clients_times_cap() {
    let clients = 20;
    let rate = 500_000;
    let mut bytes = 0;
    for i in 0..clients {
        let cap = Cap::new(rate, 1_000_000, 4_000);
        let delay = 500 + 50 * i as u64;
        let mut sim = Sim::new(&Options { cap: Some(cap), ..options(Kind::First) }, 30, 1000, delay, |_| 50);
        sim.backlog = u32::MAX;
        sim.run(1_000_000);
        bytes += sim.landings.iter().map(|l| l.1 as u64).sum::<u64>();
    }
    let planned = Cap::planned_load(clients, rate);
    assert_eq!(planned, 10_000_000);
    assert!(bytes <= planned + 20 * 4_000 && bytes * 10 > planned * 9, "{bytes}");
    // A rate of 0 grants its burst and no more.
    let cap = Cap::new(0, 0, 3_000);
    let mut sim = Sim::new(&Options { cap: Some(cap), ..options(Kind::First) }, 30, 1000, 10, |_| 50);
    sim.backlog = u32::MAX;
    sim.run(1_000_000);
    assert_eq!(sim.landings.len(), 3);
}

proptest! {
    #![proptest_config(common::config(100))]

    /// CR-11 gates every policy (asserted in `Sim::receiver`), caps hold for any pattern, and
    /// everything arrives.
    #[test]
    fn cr_11_gates_every_policy_and_nothing_stalls(
        kind in prop_oneof![
            Just(Kind::First), Just(Kind::Last), (0u8..70).prop_map(Kind::Between), any::<u8>().prop_map(Kind::Quarters),
            Just(Kind::Adaptive), Just(Kind::Timed), Just(Kind::Predictive), Just(Kind::InBand),
        ],
        depth in 1u32..100, size in 1u32..5000, delay in 0u64..5000, lead in 0u32..10_000, margin in 0u8..5,
        cap in proptest::option::of((1u64..20, 1u32..50_000)),
        messages in prop::collection::vec((0u64..100_000, 1u32..30_000), 1..40),
    ) {
        let settings = Settings { lead, margin, ..Settings::of(kind) };
        let cap_of = |(rate, burst)| Cap::new(rate * 1_000_000, 1_000_000, burst);
        let options = Options { policy: settings, cap: cap.map(cap_of), repeat: 50_000, ..Options::default() };
        let pace = |i: u64| 20 + i * 7919 % 400;
        let mut sim = Sim::new(&options, depth, size, delay, pace);
        let total: u64 = messages.iter().map(|m| m.1 as u64).sum();
        for (at, len) in &messages {
            sim.at(*at, Event::Message(*len));
        }
        for _ in 0..10_000 {
            sim.run(sim.now + 100_000);
            if sim.landings.iter().map(|l| l.1 as u64).sum::<u64>() == total {
                break;
            }
        }
        prop_assert_eq!(sim.landings.iter().map(|l| l.1 as u64).sum::<u64>(), total);
        if let Some((rate, burst)) = cap {
            within_cap(&sim.landings, rate as f64, burst.max(size) as f64);
        }
    }
}
