// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sender's pattern in time, as the simulation at scale has it (`Pace` in host-tools/berth-fabric), with the link's rate for
//! a clock, and what becomes of its credits.

use berth_random::Rng;

/// Bytes of a message.
pub const MESSAGE: u64 = 16 << 10;
/// Messages of a burst.
const BURST: u64 = 64;
/// Times of a message at the link's rate after which a changing sender has another rate.
const SAME: u64 = 76;
/// Its rates as parts of the link's.
const PARTS: [u64; 6] = [1, 2, 5, 10, 30, 100];

/// A sender's pattern in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it can.
    Fast,
    /// A twentieth of the link's rate.
    Slow,
    /// 1 MiB as fast as it can, then a pause of 0.6 to 1.8 times as long.
    Bursty,
    /// All rates, from all of the link's to a hundredth of it.
    Changing,
}

impl Pace {
    /// All.
    pub const ALL: [Self; 4] = [Self::Fast, Self::Slow, Self::Bursty, Self::Changing];

    /// Id of its figure, and its name there.
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Fast => ("policy_steady", "steady, fast"),
            Self::Slow => ("policy_steady", "steady, slow"),
            Self::Bursty => ("policy_bursty", "bursty"),
            Self::Changing => ("policy_changing", "changing"),
        }
    }

    /// Cycles at which a message is posted each, one of which takes `message` cycles at the link's rate.
    pub fn posts(self, message: u64, seed: u64) -> Vec<u64> {
        let mut rng = Rng(seed);
        let mut at = 0;
        let mut posts = Vec::new();
        match self {
            Self::Fast => posts.extend((0..128).map(|n| n * message)),
            Self::Slow => posts.extend((0..48).map(|n| n * 20 * message)),
            Self::Bursty => {
                for _ in 0..2 {
                    posts.extend([at; BURST as usize]);
                    at += BURST * message + rng.between(38 * message, 114 * message);
                }
            }
            // Each of the rates once, in any order: so that few of them are enough.
            Self::Changing => {
                let mut parts = PARTS.to_vec();
                let mut until = 0;
                while !parts.is_empty() {
                    let part = parts.swap_remove(rng.below(parts.len() as u64) as usize);
                    until += SAME * message;
                    while at < until {
                        posts.push(at);
                        at += part * message;
                    }
                }
            }
        }
        posts
    }
}

/// What changes for a sender.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// So many bytes are to be sent.
    Posted(u64),
    /// A list of so many credits has come.
    List(usize),
    /// So many bytes have left, and with them a credit is used up or not.
    Sent(u64, bool),
}

/// What has changed for a sender, and when.
#[derive(Debug, Default)]
pub struct Log(Vec<(u64, Change)>);

/// What was measured of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Percent of the time in which it had something to send and no credit.
    pub idle: f64,
    /// Lists with new credits that it got for each MiB.
    pub lists: f64,
    /// Those that were told again, for each MiB.
    pub again: f64,
    /// Bytes per cycle from a fifth of them to nine tenths.
    pub rate: f64,
}

impl Log {
    /// Bytes are posted.
    pub fn posted(&mut self, at: u64, bytes: u64) {
        self.0.push((at, Change::Posted(bytes)));
    }

    /// The last byte of a list of `credits` new ones has come; none are new in one that is told again.
    pub fn list(&mut self, at: u64, credits: usize) {
        self.0.push((at, Change::List(credits)));
    }

    /// The last byte of a packet has left; `last`: it was the last one for its credit.
    pub fn sent(&mut self, at: u64, bytes: u64, last: bool) {
        self.0.push((at, Change::Sent(bytes, last)));
    }

    /// Bytes that have left.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|change| if let Change::Sent(bytes, _) = change.1 { bytes } else { 0 }).sum()
    }

    /// What it was like from one cycle to another.
    pub fn measured(mut self, from: u64, to: u64) -> Measured {
        self.0.sort_by_key(|change| change.0);
        let all = self.bytes();
        let (mut waiting, mut credits, mut sent) = (0, 0, 0);
        let (mut lists, mut again) = (0_u32, 0_u32);
        let (mut idle, mut since) = (0, None);
        let (mut first, mut last) = ((from, 0), (to, all));
        for (at, change) in self.0 {
            match change {
                Change::Posted(bytes) => waiting += bytes,
                Change::List(count) => {
                    credits += count;
                    if at >= from && at <= to {
                        *if count > 0 { &mut lists } else { &mut again } += 1;
                    }
                }
                Change::Sent(bytes, used) => {
                    waiting -= bytes;
                    credits -= usize::from(used);
                    sent += bytes;
                    if sent * 5 <= all {
                        first = (at, sent);
                    }
                    if sent * 10 <= all * 9 {
                        last = (at, sent);
                    }
                }
            }
            match (waiting > 0 && credits == 0, since) {
                (true, None) => since = Some(at),
                (false, Some(begin)) => (idle, since) = (idle + at - begin, None),
                _ => (),
            }
        }
        Measured {
            idle: 100.0 * idle as f64 / (to - from) as f64,
            lists: f64::from(lists) * f64::from(1 << 20) / all as f64,
            again: f64::from(again) * f64::from(1 << 20) / all as f64,
            rate: (last.1 - first.1) as f64 / (last.0 - first.0) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sender_is_idle_while_it_has_something_to_send_and_no_credit() {
        let mut log = Log::default();
        log.list(0, 1);
        log.posted(100, 2000);
        log.sent(150, 500, false);
        log.sent(200, 500, true);
        log.list(230, 0);
        log.list(260, 2);
        log.sent(300, 1000, true);
        let measured = log.measured(100, 300);
        let one = f64::from(1 << 20) / 2000.0;
        assert_eq!((measured.idle, measured.lists, measured.again), (30.0, one, one));
    }

    #[test]
    fn every_rate_of_a_changing_sender_comes_once() {
        for seed in 0..20 {
            let posts = Pace::Changing.posts(10, seed);
            let gaps: Vec<u64> = posts.windows(2).map(|w| w[1] - w[0]).collect();
            // One message is all that the slowest one sends.
            let mut parts = PARTS.iter().filter(|&&part| part < SAME);
            assert!(parts.all(|part| gaps.contains(&(10 * part))), "seed {seed}: {gaps:?}");
        }
    }
}
