// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A long wire that loses frames: what selective repeat keeps of the rate without loss, and what the card's own delays cost
//! of it (docs/internals/sending.md, "Selective repeat").

use berth_abi::card::FAST_PROBE;
use berth_protocol::card::limits::TIMEOUT;
use berth_protocol::rc::*;
use berth_random::Rng;
use std::collections::VecDeque;

const LOG2_MTU: u8 = 12;
/// Packets of a message.
const PACKETS: u32 = 16;
/// Messages of a run: 1536 packets, of which about 15 are lost.
const MESSAGES: u32 = 96;

/// All messages have a receive.
struct Host;

impl Target for Host {
    fn credit(&self, _: u32) -> Option<u32> {
        Some(PACKETS << LOG2_MTU)
    }
    fn access(&mut self, _: &Access) -> Admit {
        Admit::Yes
    }
}

/// A wire and the cards at its ends. Times are counted in packets: what one takes on the wire.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Packets under way at most.
    window: u16,
    /// Round trip.
    trip: u64,
    /// Part of the frames that is lost, and that one to eight later ones overtake.
    loss: f64,
    reorder: f64,
    /// From when an acknowledgement is due until it leaves.
    ack_delay: u64,
    /// From when a packet is to go again until it leaves.
    again_delay: u64,
    /// As firmware's time-out and RTL's least time until a probe.
    timeout: u32,
    probe: u32,
}

/// 5000 cycles at 512 bits, where a packet of 4 KiB takes 65.
const LONG: Line = Line {
    window: 255,
    trip: 76,
    loss: 0.01,
    reorder: 0.0,
    ack_delay: 3,
    again_delay: 5,
    timeout: TIMEOUT / 65,
    probe: FAST_PROBE * 64 / 65,
};

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// From a fifth of the messages to nine tenths.
    time: u64,
    /// Until all is acknowledged.
    all: u64,
    /// Time-outs while there was something new to send, and those at the end.
    time_outs: [u32; 2],
    /// Packets sent again.
    again: u32,
}

/// Frames come in the order of their times, else as they were sent.
fn sent<T>(coming: &mut VecDeque<(u64, T)>, at: u64, frame: T) {
    let place = coming.partition_point(|f| f.0 <= at);
    coming.insert(place, (at, frame));
}

/// The first of those that come at their times, if its time has come.
fn arrived<T>(coming: &mut VecDeque<(u64, T)>, now: u64) -> Option<T> {
    if coming.front()?.0 > now {
        return None;
    }
    coming.pop_front().map(|p| p.1)
}

fn run(line: Line, seed: u64) -> Run {
    let mut rng = Rng(seed);
    let berth = RequesterConfig::berth(LOG2_MTU, line.window, line.timeout);
    let config = RequesterConfig { retries: 0, probe: line.probe, ..berth };
    let mut a = Requester::<24, 256, 32>::new(config, 100);
    let mut b =
        Responder::<24, 256, 4>::new(ResponderConfig { ack_every: 8, ..ResponderConfig::berth(LOG2_MTU) }, 100, 0);
    let mut to_b: VecDeque<(u64, RequestPacket)> = VecDeque::new();
    let mut again: VecDeque<(u64, RequestPacket)> = VecDeque::new();
    let mut to_a: VecDeque<(u64, ResponsePacket)> = VecDeque::new();
    let (mut posted, mut done, mut begin) = (0, 0, 0);
    let mut told = Run::default();
    for now in 0..1_000_000 {
        while posted < MESSAGES && a.room() > 0 {
            let message = Message { len: PACKETS << LOG2_MTU, credit: posted, ..Default::default() };
            a.post(message).expect("there is room");
            posted += 1;
        }
        // A slot of the wire: what was to go again some time ago, else what is new.
        let mut leaves = arrived(&mut again, now);
        while leaves.is_none()
            && let Some(sent) = a.transmit(now)
        {
            told.again += u32::from(sent.again);
            match sent.again {
                true => again.push_back((now + line.again_delay, sent.packet)),
                false => leaves = Some(sent.packet),
            }
        }
        if let Some(packet) = leaves
            && !rng.chance(line.loss)
        {
            let late = if rng.chance(line.reorder) { rng.between(1, 8) } else { 0 };
            sent(&mut to_b, now + line.trip / 2 + late, packet);
        }
        while let Some(packet) = arrived(&mut to_b, now) {
            match b.receive(&packet, &mut Host) {
                Verdict::Place(_) => b.placed(packet.psn),
                Verdict::Duplicate => (),
                verdict => panic!("seed {seed}: PSN {}: {verdict:?}", packet.psn),
            }
            while let Some(event) = b.event() {
                done += u32::from(matches!(event, Event::Received { .. }));
                if let (Event::Received { .. }, true) = (event, done == MESSAGES / 5) {
                    begin = now;
                }
                if let (Event::Received { .. }, true) = (event, done == MESSAGES * 9 / 10) {
                    told.time = now - begin;
                }
            }
        }
        if let Some(reply) = b.respond()
            && !rng.chance(line.loss)
        {
            let late = if rng.chance(line.reorder) { rng.between(1, 8) } else { 0 };
            sent(&mut to_a, now + line.ack_delay + line.trip / 2 + late, reply.packet);
        }
        while let Some(reply) = arrived(&mut to_a, now) {
            assert!(!matches!(a.response(now, &reply), Outcome::Bad | Outcome::Failed), "seed {seed}: {reply:?}");
        }
        while a.complete().is_some() {}
        if a.tick(now) {
            told.time_outs[usize::from(!a.has_new())] += 1;
        }
        if posted == MESSAGES && a.pending() == 0 {
            told.all = now;
            return told;
        }
    }
    panic!("seed {seed}: not done");
}

/// Mean of the rate against that without loss; all time-outs.
fn keeps(line: Line, runs: u64) -> (f64, [u32; 2]) {
    let clean = run(Line { loss: 0.0, reorder: 0.0, ..line }, 1).time as f64;
    let (mut sum, mut time_outs) = (0.0, [0; 2]);
    for seed in 1..=runs {
        let told = run(line, seed);
        sum += clean / told.time as f64;
        time_outs = [time_outs[0] + told.time_outs[0], time_outs[1] + told.time_outs[1]];
    }
    (sum / runs as f64, time_outs)
}

#[test]
fn one_percent_of_loss_on_a_long_wire_leaves_more_than_nine_tenths_of_the_rate_and_needs_hardly_a_time_out() {
    let (rate, [stream, end]) = keeps(LONG, 200);
    println!("{rate:.3} of the loss-free rate; time-outs in 200 runs: {stream} in the stream, {end} at its end");
    assert!(rate > 0.95, "{rate}");
    assert!(stream <= 10, "{stream} time-outs");
}

#[test]
fn the_page_of_what_goes_again_may_take_half_a_round_trip() {
    let (rate, _) = keeps(Line { again_delay: 45, ..LONG }, 100);
    println!("{rate:.3} of the loss-free rate");
    assert!(rate > 0.9, "{rate}");
}

#[test]
fn a_window_shorter_than_two_round_trips_is_shut_by_each_loss() {
    // Then also what the cards add to them counts: as many packets as packet RAM holds before what goes again, and as many
    // as the MAC holds before an acknowledgement.
    let (half, _) = keeps(Line { window: 128, ..LONG }, 100);
    let (late, _) = keeps(Line { window: 128, ack_delay: 12, again_delay: 18, ..LONG }, 100);
    println!("{half:.3}, and {late:.3} with delays");
    assert!(half < 0.9 && late + 0.05 < half, "{half}, {late}");
}

#[test]
fn f11_five_percent_of_loss_leave_more_than_six_tenths_of_the_rate_without_a_time_out() {
    let (rate, [stream, end]) = keeps(Line { loss: 0.05, ..LONG }, 100);
    println!("{rate:.3} of the loss-free rate; time-outs in 100 runs: {stream} in the stream, {end} at its end");
    assert!(rate > 0.6, "{rate}");
    assert_eq!([stream, end], [0, 0], "time-outs");
}

#[test]
fn f11_loss_and_reordering_leave_more_than_three_quarters_of_the_rate_without_a_time_out() {
    for (loss, reorder) in [(0.01, 0.1), (0.0, 0.5)] {
        let (rate, [stream, end]) = keeps(Line { loss, reorder, ..LONG }, 100);
        println!("{rate:.3} of the loss-free rate; time-outs in 100 runs: {stream} in the stream, {end} at its end");
        assert!(rate > 0.75, "{loss}, {reorder}: {rate}");
        assert_eq!([stream, end], [0, 0], "time-outs");
    }
}

/// Both ends of a connection, and a wire that loses only what a test does not put on it.
struct Ends {
    a: Requester<24, 256, 32>,
    b: Responder<24, 256, 4>,
    to_b: VecDeque<(u64, RequestPacket)>,
    to_a: VecDeque<(u64, ResponsePacket)>,
}

impl Ends {
    fn new(config: RequesterConfig) -> Self {
        let near = ResponderConfig { ack_every: 8, ..ResponderConfig::berth(LOG2_MTU) };
        let (a, b) = (Requester::new(config, 0), Responder::new(near, 0, 0));
        Self { a, b, to_b: VecDeque::new(), to_a: VecDeque::new() }
    }

    /// What has arrived by `now` is taken and answered, over a round trip of `trip`.
    fn exchange(&mut self, now: u64, trip: u64) {
        while let Some(packet) = arrived(&mut self.to_b, now) {
            if let Verdict::Place(_) = self.b.receive(&packet, &mut Host) {
                self.b.placed(packet.psn);
            }
            while self.b.event().is_some() {}
        }
        while let Some(reply) = self.b.respond() {
            sent(&mut self.to_a, now + trip / 2, reply.packet);
        }
        while let Some(reply) = arrived(&mut self.to_a, now) {
            self.a.response(now, &reply);
        }
        while self.a.complete().is_some() {}
        assert!(!self.a.tick(now), "no time-out");
    }
}

/// Copies of packets that the wire loses, by PSN from 0 on and number of the copy; how many packets a message has, and round
/// trips until all of it is acknowledged.
fn trips(packets: u32, drops: &[(u32, u32)]) -> f64 {
    const TRIP: u64 = 200;
    let config = RequesterConfig { probe: 100, ..RequesterConfig::berth(LOG2_MTU, 255, 1_000_000) };
    let mut ends = Ends::new(config);
    let mut copies = vec![0; packets as usize + 1];
    // The round trip is measured with the first message, of PSN 0.
    let mut left = [packets << LOG2_MTU, 1 << LOG2_MTU].to_vec();
    let mut begin = 0;
    for now in 0..100 * TRIP {
        if ends.a.pending() == 0 {
            let Some(len) = left.pop() else {
                assert_eq!(ends.a.failed(), None);
                return (now - begin) as f64 / TRIP as f64;
            };
            ends.a.post(Message { len, credit: 1 - left.len() as u32, ..Default::default() }).expect("there is room");
            begin = now;
        }
        if let Some(p) = ends.a.transmit(now) {
            let copy = &mut copies[p.packet.psn as usize];
            *copy += 1;
            if !drops.contains(&(p.packet.psn, *copy)) {
                sent(&mut ends.to_b, now + TRIP / 2, p.packet);
            }
        }
        ends.exchange(now, TRIP);
    }
    panic!("{drops:?}: not done");
}

#[test]
fn f11_a_lost_tail_and_a_lost_resend_are_found_within_about_two_round_trips() {
    assert!(trips(16, &[]) < 1.2);
    // Found by what follows it.
    assert!(trips(16, &[(5, 1)]) < 2.3);
    // The last ones: after two round trips of silence; the others when the answer to the first one of them is there.
    assert!(trips(16, &[(16, 1)]) < 4.3);
    assert!(trips(16, &[(14, 1), (15, 1), (16, 1)]) < 5.3);
    assert!(trips(1, &[(1, 1)]) < 3.3);
    // What goes again is lost again: another one that left with it tells, or two round trips of silence do.
    assert!(trips(16, &[(5, 1), (5, 2), (7, 1)]) < 3.5);
    assert!(trips(16, &[(5, 1), (7, 1), (7, 2)]) < 5.3);
    assert!(trips(16, &[(5, 1), (5, 2)]) < 4.5);
    // And once more, when the time has doubled.
    assert!(trips(16, &[(5, 1), (5, 2), (5, 3)]) < 8.5);
    assert!(trips(16, &[(16, 1), (16, 2)]) < 9.5);
}

/// How many packets of each message go again, without loss, of which there is one of `packets` at a time: five while a
/// round trip takes 200, then five while it takes `times` that.
fn needless(packets: u32, times: u64) -> [u32; 10] {
    const TRIP: u64 = 200;
    let config = RequesterConfig { probe: 10, ..RequesterConfig::berth(LOG2_MTU, 255, 10_000_000) };
    let mut ends = Ends::new(config);
    let mut again = [0; 10];
    let mut number = 0;
    for now in 0.. {
        if ends.a.pending() == 0 {
            if number == again.len() {
                return again;
            }
            ends.a
                .post(Message { len: packets << LOG2_MTU, credit: number as u32, ..Default::default() })
                .expect("room");
            number += 1;
        }
        let trip = if number > 5 { times * TRIP } else { TRIP };
        if let Some(p) = ends.a.transmit(now) {
            again[number - 1] += u32::from(p.again);
            sent(&mut ends.to_b, now + trip / 2, p.packet);
        }
        ends.exchange(now, trip);
    }
    unreachable!("the loop ends with the last message")
}

/// As where a receiver's memory suddenly takes long: each probe doubles the time until the next one, which stays so until a
/// packet that was sent once is acknowledged (Karn).
#[test]
fn a_round_trip_that_grows_tenfold_costs_as_many_packets_as_it_doubles_and_then_none() {
    // Two round trips are waited for anyway. Of a message of one packet that packet goes again, so the next one measures.
    assert_eq!(needless(1, 10), [0, 0, 0, 0, 0, 2, 1, 0, 0, 0]);
    assert_eq!(needless(1, 100), [0, 0, 0, 0, 0, 5, 1, 0, 0, 0]);
    // Of several packets likewise: an acknowledgement that comes so late is no answer to the probe, and says nothing of others.
    assert_eq!(needless(16, 10), [0, 0, 0, 0, 0, 2, 1, 0, 0, 0]);
    for times in [1, 2] {
        assert_eq!(needless(1, times), [0; 10], "{times}");
        assert_eq!(needless(16, times), [0; 10], "{times}");
    }
}
