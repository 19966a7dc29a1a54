// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One direction of the wire between two cards: serialisation, latency, faults, hold and release.
//!
//! Everything here is a pure function of what is sent and when (in card cycles); no
//! wall-clock time and no thread. What happens to a frame depends only on the seed, the
//! direction and the frame's index, so that a run can be repeated.

use berth_abi::card::CONTROL_QPN;
use berth_random::mix;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a frame costs on the wire beside its own: preamble and start delimiter (8), FCS (4), least gap (12).
pub const FRAME_OVERHEAD: u64 = 24;
/// Bytes that the wire moves per card cycle: one beat of the MAC port.
pub const BYTES_PER_CYCLE: u64 = 8;
/// A reordered frame that is not overtaken is delivered after this many further cycles.
pub const REORDER_LIMIT: u64 = 20_000;
/// Ethernet header, IPv4 header without options, UDP header: where BTH begins.
const BTH: usize = 14 + 20 + 8;

/// Probabilities of the wire's faults, each per frame and in 0.0 ..= 1.0, and the seed they are drawn from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A frame is lost.
    pub loss: f64,
    /// A frame arrives twice.
    pub dup: f64,
    /// A frame is overtaken by one to three later ones.
    pub reorder: f64,
    /// One bit of a frame is flipped.
    pub corrupt: f64,
    /// A frame of the control connection (to QPN `CONTROL_QPN`) is lost, beside what `loss` takes.
    pub control: f64,
    /// Seed of all draws.
    pub seed: u64,
}

/// What the wire does to one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The frame is lost; nothing else is done to it.
    pub lost: bool,
    /// A second, intact copy follows.
    pub duplicated: bool,
    /// How many later frames overtake it; 0: none.
    pub overtaken_by: u32,
    /// A bit is flipped: the number from which its place is taken.
    pub corrupted: Option<u64>,
}

impl Faults {
    /// The verdict on frame `index` of `direction`: decision 31, a pure function of (seed, direction, index).
    pub fn verdict(&self, direction: u32, index: u64) -> Verdict {
        let base = mix(mix(self.seed ^ (u64::from(direction) << 56)) ^ index);
        let draw = |n: u64| mix(base.wrapping_add(n));
        // 53 bits: every value is exact in an f64, and 1.0 is never drawn.
        let happens = |n: u64, p: f64| ((draw(n) >> 11) as f64) < p * (1u64 << 53) as f64;
        if happens(0, self.loss) {
            return Verdict { lost: true, ..Verdict::default() };
        }
        Verdict {
            lost: false,
            duplicated: happens(1, self.dup),
            overtaken_by: if happens(2, self.reorder) { 1 + (draw(3) % 3) as u32 } else { 0 },
            corrupted: happens(4, self.corrupt).then(|| draw(5)),
        }
    }

    /// The same for `frame`, which may be one of the control connection.
    fn verdict_on(&self, direction: u32, index: u64, frame: &[u8]) -> Verdict {
        if self.control > 0.0
            && is_control(frame)
            && (Self { loss: self.control, ..*self }).verdict(direction, !index).lost
        {
            return Verdict { lost: true, ..Verdict::default() };
        }
        self.verdict(direction, index)
    }

    /// Whether all probabilities lie in 0 ..= 1.
    pub fn valid(&self) -> bool {
        [self.loss, self.dup, self.reorder, self.corrupt, self.control].iter().all(|p| (0.0..=1.0).contains(p))
    }
}

/// Whether this is a RoCEv2 frame over IPv4 without options.
fn is_roce(frame: &[u8]) -> bool {
    frame.len() >= BTH + 12 + 4
        && frame[12..14] == [0x08, 0x00]
        && frame[14] == 0x45
        && frame[23] == 17
        && frame[36..38] == 4791u16.to_be_bytes()
}

/// Whether this is a frame of the control connection between two cards.
fn is_control(frame: &[u8]) -> bool {
    is_roce(frame) && frame[BTH + 5..BTH + 8] == CONTROL_QPN.to_be_bytes()[1..]
}

/// Flips the bit that `draw` selects, among those that the invariant CRC covers.
///
/// Returns false, and leaves the frame alone, when it is no RoCEv2 frame: without iCRC
/// only the FCS notices.
pub fn corrupt(frame: &mut [u8], draw: u64) -> bool {
    if !is_roce(frame) {
        return false;
    }
    // Masked by the iCRC (IBTA annex A17): type of service, time to live, both checksums, BTH's resv8a.
    let masked = |i: usize| matches!(i, 15 | 22 | 24 | 25 | 40 | 41) || i == BTH + 4;
    let covered: Vec<usize> = (14..frame.len()).filter(|&i| !masked(i)).collect();
    let bit = draw as usize % (covered.len() * 8);
    frame[covered[bit / 8]] ^= 1 << (bit % 8);
    true
}

/// Cycles that a frame of `len` bytes occupies the wire, with preamble, FCS and gap.
pub const fn serialisation(len: usize) -> u64 {
    (len as u64 + FRAME_OVERHEAD).div_ceil(BYTES_PER_CYCLE)
}

/// A frame at the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// From the destination address on, without FCS.
    pub frame: Vec<u8>,
    /// Its FCS is wrong: the MAC says so with the last beat.
    pub damaged: bool,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Frames that the card sent.
    pub frames: u64,
    /// Bytes of them, without preamble, FCS and gap.
    pub bytes: u64,
    /// Frames lost on purpose.
    pub lost: u64,
    /// Frames delivered twice.
    pub duplicated: u64,
    /// Frames that were overtaken.
    pub reordered: u64,
    /// Frames in which a bit was flipped (without iCRC: delivered with a wrong FCS).
    pub corrupted: u64,
    /// Frames handed to the receiver, copies included.
    pub delivered: u64,
    /// Frames dropped because an end of the wire was unplugged.
    pub unplugged: u64,
    /// Frames that had to wait for the receiver to take those before them.
    pub waited: u64,
    /// Frames that came due while the receiver was being clocked to the answer of a register read.
    pub late: u64,
    /// The most cycles that such a frame came too late; a register read takes some ten.
    pub latest: u64,
    /// Cycles that the wire was occupied.
    pub busy_cycles: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Open,
    After(u64),
    Closed,
}

#[derive(Debug)]
struct Held {
    frame: Vec<u8>,
    verdict: Verdict,
}

#[derive(Debug)]
struct InFlight {
    frame: Vec<u8>,
    damaged: bool,
    // Later frames that still have to overtake this one.
    overtakers: u32,
    overtaken: bool,
}

/// One direction of the wire.
#[derive(Debug)]
pub struct Direction {
    number: u32,
    latency: u64,
    free_at: u64,
    next_seq: u64,
    // Keyed by (arrival, order of insertion).
    in_flight: BTreeMap<(u64, u64), InFlight>,
    held: VecDeque<Held>,
    hold: Hold,
    // The receiver could not take a frame that was due.
    congested: bool,
    stats: DirectionStats,
}

/// The fate of a sent frame, for the capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Index of the frame in its direction, from 0.
    pub index: u64,
    /// Cycle in which the frame's first byte left the card.
    pub departure: u64,
    /// What the wire does to it.
    pub verdict: Verdict,
    /// The frame is held at the wire.
    pub held: bool,
}

impl Direction {
    /// An idle wire of `latency` cycles; `number` tells directions apart in the draws of faults.
    pub fn new(number: u32, latency: u64) -> Self {
        Self {
            number,
            latency,
            free_at: 0,
            next_seq: 0,
            in_flight: BTreeMap::new(),
            held: VecDeque::new(),
            hold: Hold::Open,
            congested: false,
            stats: DirectionStats::default(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> DirectionStats {
        self.stats
    }

    /// Frames held at the wire.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Frames under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The card has sent `frame` in the cycles `start..=end`.
    ///
    /// The last byte arrives `latency` cycles after the wire has carried it; frames that
    /// follow too closely wait for preamble, FCS and gap of those before them.
    pub fn send(&mut self, faults: &Faults, frame: Vec<u8>, start: u64, end: u64) -> Sent {
        let index = self.stats.frames;
        self.stats.frames += 1;
        self.stats.bytes += frame.len() as u64;
        let verdict = faults.verdict_on(self.number, index, &frame);
        let departure = start.max(self.free_at);
        let held = match &mut self.hold {
            Hold::Open => false,
            Hold::After(n) => {
                if *n > 0 {
                    *n -= 1;
                    false
                } else {
                    self.hold = Hold::Closed;
                    true
                }
            }
            Hold::Closed => true,
        };
        if held {
            self.held.push_back(Held { frame, verdict });
        } else {
            self.carry(frame, verdict, departure, end);
        }
        Sent { index, departure, verdict, held }
    }

    // Puts a frame on the wire: it occupies it from `departure`, its last byte leaves no sooner than `end`.
    fn carry(&mut self, mut frame: Vec<u8>, verdict: Verdict, departure: u64, end: u64) {
        let cycles = serialisation(frame.len());
        self.free_at = departure + cycles;
        self.stats.busy_cycles += cycles;
        let arrival = self.free_at.max(end) + self.latency;
        if verdict.lost {
            self.stats.lost += 1;
            return;
        }
        let copy = verdict.duplicated.then(|| frame.clone());
        let mut damaged = false;
        if let Some(draw) = verdict.corrupted {
            self.stats.corrupted += 1;
            damaged = !corrupt(&mut frame, draw);
        }
        self.insert(frame, damaged, arrival, verdict.overtaken_by);
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.free_at += cycles;
            self.stats.busy_cycles += cycles;
            self.insert(copy, false, arrival + cycles, 0);
        }
    }

    fn insert(&mut self, frame: Vec<u8>, damaged: bool, arrival: u64, overtakers: u32) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let key = if overtakers > 0 { arrival + REORDER_LIMIT } else { arrival };
        self.in_flight.insert((key, seq), InFlight { frame, damaged, overtakers, overtaken: false });
        if overtakers > 0 {
            return;
        }
        // This frame overtakes those that wait for it and would arrive later.
        let waiting: Vec<_> =
            self.in_flight.range((arrival, seq + 1)..).filter(|(_, f)| f.overtakers > 0).map(|(&key, _)| key).collect();
        for key in waiting {
            let mut f = self.in_flight.remove(&key).expect("taken from the same map");
            f.overtakers -= 1;
            if !f.overtaken {
                f.overtaken = true;
                self.stats.reordered += 1;
            }
            let key = if f.overtakers == 0 {
                let seq = self.next_seq;
                self.next_seq += 1;
                (arrival, seq)
            } else {
                key
            };
            self.in_flight.insert(key, f);
        }
    }

    /// Cycle in which the next frame arrives.
    pub fn next_arrival(&self) -> Option<u64> {
        self.in_flight.first_key_value().map(|(&(arrival, _), _)| arrival)
    }

    /// The receiver cannot take frames now, at `now`; those that are due wait on the wire.
    pub fn congest(&mut self, now: u64) {
        self.congested |= self.next_arrival().is_some_and(|arrival| arrival <= now);
    }

    /// Takes the next frame that has arrived by `now`.
    pub fn take_due(&mut self, now: u64) -> Option<Arrived> {
        let Some(entry) = self.in_flight.first_entry() else {
            self.congested = false;
            return None;
        };
        let arrival = entry.key().0;
        if arrival > now {
            self.congested = false;
            return None;
        }
        self.stats.delivered += 1;
        if self.congested {
            self.stats.waited += 1;
        } else if arrival < now {
            self.stats.late += 1;
            self.stats.latest = self.stats.latest.max(now - arrival);
        }
        let InFlight { frame, damaged, .. } = entry.remove();
        Some(Arrived { frame, damaged })
    }

    /// From now on, frames stay at the wire; `after` further frames pass first.
    pub fn hold(&mut self, after: u64) {
        self.hold = if after == 0 { Hold::Closed } else { Hold::After(after) };
    }

    /// Lets held frames go, in order, from cycle `now` on: `count` of them and the rest
    /// stays, or all (`None`), and the wire is open again. Returns how many went.
    pub fn release(&mut self, now: u64, count: Option<usize>) -> usize {
        let n = count.unwrap_or(usize::MAX).min(self.held.len());
        for held in self.held.drain(..n).collect::<Vec<_>>() {
            let departure = now.max(self.free_at);
            self.carry(held.frame, held.verdict, departure, departure);
        }
        if count.is_none() {
            self.hold = Hold::Open;
        }
        n
    }

    /// An end was unplugged: frames under way or held are dropped.
    pub fn cut(&mut self) {
        self.stats.unplugged += (self.in_flight.len() + self.held.len()) as u64;
        self.in_flight.clear();
        self.held.clear();
    }

    /// A frame was sent to, or by, an end that is unplugged.
    pub fn drop_unplugged(&mut self, frame: &[u8]) {
        self.stats.frames += 1;
        self.stats.bytes += frame.len() as u64;
        self.stats.unplugged += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roce(len: usize) -> Vec<u8> {
        let mut f = vec![0u8; len];
        f[12..14].copy_from_slice(&[0x08, 0x00]);
        f[14] = 0x45;
        f[23] = 17;
        f[36..38].copy_from_slice(&4791u16.to_be_bytes());
        f
    }

    fn numbered(n: u8) -> Vec<u8> {
        let mut f = roce(80);
        f[70] = n;
        f
    }

    fn drain(d: &mut Direction, now: u64) -> Vec<u8> {
        std::iter::from_fn(|| d.take_due(now)).map(|f| f.frame[70]).collect()
    }

    const CLEAN: Faults = Faults { loss: 0.0, dup: 0.0, reorder: 0.0, corrupt: 0.0, control: 0.0, seed: 1 };

    #[test]
    fn verdicts_depend_only_on_seed_direction_and_index() {
        let f = Faults { loss: 0.3, dup: 0.3, reorder: 0.3, corrupt: 0.3, seed: 7, ..CLEAN };
        let all = |f: &Faults, d| (0..200).map(|i| f.verdict(d, i)).collect::<Vec<_>>();
        let forward = all(&f, 0);
        let mut backward: Vec<_> = (0..200).rev().map(|i| f.verdict(0, i)).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_ne!(forward, all(&f, 1));
        assert_ne!(forward, all(&Faults { seed: 8, ..f }, 0));
    }

    #[test]
    fn fault_rates_are_those_asked_for() {
        let f = Faults { loss: 0.1, dup: 0.2, reorder: 0.05, corrupt: 0.01, seed: 3, ..CLEAN };
        let n = 100_000;
        let (mut lost, mut dup, mut re, mut cor) = (0, 0, 0, 0);
        for i in 0..n {
            let v = f.verdict(0, i);
            lost += u64::from(v.lost);
            dup += u64::from(v.duplicated);
            re += u64::from(v.overtaken_by > 0);
            cor += u64::from(v.corrupted.is_some());
        }
        let near = |count: u64, p: f64| (count as f64 - n as f64 * p).abs() < 5.0 * (n as f64 * p).sqrt();
        assert!(near(lost, 0.1) && near(dup, 0.18) && near(re, 0.045) && near(cor, 0.009));
        assert_eq!(CLEAN.verdict(0, 5), Verdict::default());
        assert!(Faults { loss: 1.0, ..CLEAN }.verdict(1, 9).lost);
    }

    #[test]
    fn frames_serialise_with_preamble_fcs_and_gap() {
        let mut d = Direction::new(0, 500);
        // 80 + 24 bytes: 13 beats. The second is sent at once behind the first.
        d.send(&CLEAN, numbered(1), 100, 110);
        d.send(&CLEAN, numbered(2), 110, 120);
        assert_eq!(d.next_arrival(), Some(100 + 13 + 500));
        assert!(d.take_due(612).is_none());
        assert!(d.take_due(613).is_some());
        assert_eq!(d.next_arrival(), Some(113 + 13 + 500));
        assert_eq!(d.stats().busy_cycles, 26);
    }

    #[test]
    fn arrival_is_never_sooner_than_the_latency_after_the_last_byte() {
        let mut d = Direction::new(0, 500);
        d.send(&CLEAN, numbered(1), 100, 300);
        assert_eq!(d.next_arrival(), Some(800));
    }

    #[test]
    fn lost_and_duplicated_frames_are_counted() {
        let mut d = Direction::new(0, 10);
        d.send(&Faults { loss: 1.0, ..CLEAN }, numbered(1), 0, 10);
        d.send(&Faults { dup: 1.0, ..CLEAN }, numbered(2), 50, 60);
        assert_eq!(drain(&mut d, 1000), [2, 2]);
        assert_eq!((d.stats().lost, d.stats().duplicated, d.stats().delivered), (1, 1, 2));
    }

    #[test]
    fn frames_of_the_control_connection_can_be_lost_alone() {
        let f = Faults { control: 1.0, ..CLEAN };
        let mut d = Direction::new(0, 100);
        let (mut control, mut data) = (roce(80), roce(80));
        control[BTH + 5..BTH + 8].copy_from_slice(&CONTROL_QPN.to_be_bytes()[1..]);
        data[BTH + 5..BTH + 8].copy_from_slice(&[0, 0, 16]);
        assert!(d.send(&f, control.clone(), 0, 10).verdict.lost);
        assert!(!d.send(&f, data.clone(), 20, 30).verdict.lost);
        // The fate of other frames does not depend on it.
        let f = Faults { loss: 0.3, control: 0.5, ..CLEAN };
        let plain = Faults { control: 0.0, ..f };
        assert!((0..100).all(|i| f.verdict_on(1, i, &data) == plain.verdict(1, i)));
        let lost = (0..1000).filter(|&i| f.verdict_on(1, i, &control).lost).count();
        assert!((560..740).contains(&lost), "{lost} of 1000, not about 650");
    }

    #[test]
    fn a_corrupted_frame_differs_in_one_covered_bit() {
        for draw in 0..2000 {
            let mut f = roce(90);
            assert!(corrupt(&mut f, mix(draw)));
            let diff: Vec<usize> = (0..90).filter(|&i| f[i] != roce(90)[i]).collect();
            assert_eq!(diff.len(), 1);
            assert!(diff[0] >= 14 && ![15, 22, 24, 25, 40, 41, 46].contains(&diff[0]));
            assert_eq!((f[diff[0]] ^ roce(90)[diff[0]]).count_ones(), 1);
        }
    }

    #[test]
    fn a_corrupted_frame_without_icrc_has_a_wrong_fcs() {
        let mut d = Direction::new(0, 10);
        let mut arp = vec![0u8; 60];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        d.send(&Faults { corrupt: 1.0, ..CLEAN }, arp, 0, 8);
        assert_eq!(d.stats().corrupted, 1);
        assert!(d.take_due(1000).unwrap().damaged);
    }

    #[test]
    fn a_reordered_frame_is_overtaken_and_then_delivered() {
        let mut d = Direction::new(0, 10);
        let re = Faults { reorder: 1.0, ..CLEAN };
        let k = re.verdict(0, 0).overtaken_by;
        assert!((1..=3).contains(&k));
        d.send(&re, numbered(0), 0, 10);
        for n in 1..=4u8 {
            d.send(&CLEAN, numbered(n), u64::from(n) * 100, u64::from(n) * 100 + 10);
        }
        let mut want: Vec<u8> = (1..=4).collect();
        want.insert(k as usize, 0);
        assert_eq!(drain(&mut d, 1_000), want);
        assert_eq!(d.stats().reordered, 1);
    }

    #[test]
    fn a_reordered_frame_that_nobody_overtakes_still_arrives() {
        let mut d = Direction::new(0, 10);
        d.send(&Faults { reorder: 1.0, ..CLEAN }, numbered(9), 0, 10);
        assert_eq!(d.next_arrival(), Some(13 + 10 + REORDER_LIMIT));
        assert_eq!(drain(&mut d, 13 + 10 + REORDER_LIMIT), [9]);
        assert_eq!(d.stats().reordered, 0);
    }

    #[test]
    fn held_frames_go_in_order_when_released() {
        let mut d = Direction::new(0, 10);
        d.hold(1);
        for n in 0..4 {
            d.send(&CLEAN, numbered(n), u64::from(n) * 20, u64::from(n) * 20 + 10);
        }
        assert_eq!(drain(&mut d, 500), [0]);
        assert_eq!(d.held(), 3);
        assert_eq!(d.release(1000, Some(1)), 1);
        assert_eq!(drain(&mut d, 2000), [1]);
        d.send(&CLEAN, numbered(4), 1500, 1510);
        assert_eq!(d.held(), 3);
        assert_eq!(d.release(3000, None), 3);
        assert!(d.next_arrival().unwrap() >= 3010);
        d.send(&CLEAN, numbered(5), 3010, 3020);
        assert_eq!(drain(&mut d, 9000), [2, 3, 4, 5]);
        assert_eq!(d.held(), 0);
    }

    #[test]
    fn a_frame_that_came_late_is_counted() {
        let mut d = Direction::new(0, 10);
        d.send(&CLEAN, numbered(1), 0, 10);
        d.take_due(5000);
        assert_eq!(d.stats().late, 1);
    }

    #[test]
    fn a_frame_that_waits_for_a_busy_receiver_is_not_late() {
        let mut d = Direction::new(0, 10);
        d.send(&CLEAN, numbered(1), 0, 10);
        d.congest(100);
        assert!(d.take_due(5000).is_some() && d.take_due(5000).is_none());
        assert_eq!((d.stats().late, d.stats().waited), (0, 1));
    }

    #[test]
    fn a_cut_wire_drops_what_is_under_way() {
        let mut d = Direction::new(0, 10);
        d.send(&CLEAN, numbered(1), 0, 10);
        d.hold(0);
        d.send(&CLEAN, numbered(2), 20, 30);
        d.cut();
        assert_eq!((d.in_flight(), d.held(), d.stats().unplugged), (0, 0, 2));
    }
}
