// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wire between the cards of hosts, and what it does to frames.

use crate::driver::Host;
use berth_abi::message::{Accept, CmEstablished, CmRequest, Connect, Listen};
use berth_abi::status::CMD_OK;
use berth_random::Rng;
use std::collections::VecDeque;

/// What happens to frames, as a function of (seed, direction, frame index) alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame comes twice.
    pub dup: f64,
    /// Probability that a frame is overtaken by later ones.
    pub reorder: f64,
    /// Probability that a bit of a frame flips.
    pub corrupt: f64,
    /// Seed.
    pub seed: u64,
}

/// One direction of the wire.
#[derive(Default)]
pub struct Wire {
    /// Frames under way, by the receiver's arrival cycle.
    flying: VecDeque<(u64, Vec<u8>)>,
    /// Frames that are held, oldest first.
    pub held: VecDeque<Vec<u8>>,
    hold: Option<fn(&[u8]) -> bool>,
    /// Every frame that the sender has put on the wire, in order.
    pub sent: Vec<Vec<u8>>,
    index: u64,
    /// Frames lost, doubled, reordered, corrupted.
    pub faults: [u64; 4],
}

/// Hosts with a wire between the first two.
pub struct Net {
    /// The hosts: one (loopback only) or two.
    pub hosts: Vec<Host>,
    /// `wires[d]`: what host `d` sends.
    pub wires: [Wire; 2],
    /// Cycles a frame is under way.
    pub latency: u64,
    /// What the wire does to frames.
    pub faults: Faults,
}

impl Net {
    /// Joins hosts.
    pub fn new(hosts: Vec<Host>) -> Net {
        Net { hosts, wires: Default::default(), latency: 300, faults: Faults::default() }
    }

    /// Keeps the frames that host `d` sends and for which `which` says so at the wire.
    pub fn hold(&mut self, d: usize, which: fn(&[u8]) -> bool) {
        self.wires[d].hold = Some(which);
    }

    /// Lets the oldest `n` held frames of host `d` go and keeps holding.
    pub fn release(&mut self, d: usize, n: usize) {
        for _ in 0..n {
            let frame = self.wires[d].held.pop_front().expect("a held frame");
            self.fly(d, frame, 0);
        }
    }

    /// Lets all held frames of host `d` go and holds no more.
    pub fn unhold(&mut self, d: usize) {
        let n = self.wires[d].held.len();
        self.release(d, n);
        self.wires[d].hold = None;
    }

    fn fly(&mut self, d: usize, frame: Vec<u8>, extra: u64) {
        let at = self.hosts[1 - d].card.cycles() + self.latency + extra;
        let wire = &mut self.wires[d];
        let place = wire.flying.iter().position(|f| f.0 > at).unwrap_or(wire.flying.len());
        wire.flying.insert(place, (at, frame));
    }

    fn carry(&mut self, d: usize, mut frame: Vec<u8>) {
        let faults = self.faults;
        let wire = &mut self.wires[d];
        wire.sent.push(frame.clone());
        if wire.hold.is_some_and(|which| which(&frame)) {
            wire.held.push_back(frame);
            return;
        }
        let mut rng = Rng(faults.seed ^ (d as u64) << 63 ^ wire.index.wrapping_mul(0x2545_f491_4f6c_dd1d));
        wire.index += 1;
        rng.draw();
        let (lost, dup, reordered, corrupt) =
            (rng.chance(faults.loss), rng.chance(faults.dup), rng.chance(faults.reorder), rng.chance(faults.corrupt));
        if lost {
            wire.faults[0] += 1;
            return;
        }
        if corrupt {
            wire.faults[3] += 1;
            let bit = rng.below(frame.len() as u64 * 8);
            frame[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let extra = if reordered {
            wire.faults[2] += 1;
            rng.between(1000, 6000)
        } else {
            0
        };
        if dup {
            wire.faults[1] += 1;
            let after = rng.between(0, 3000);
            self.fly(d, frame.clone(), extra + after);
        }
        self.fly(d, frame, extra);
    }

    /// One clock of every host.
    pub fn step(&mut self) {
        for d in 0..self.hosts.len() {
            self.hosts[d].step();
            while let Some(frame) = self.hosts[d].card.take_tx() {
                if self.hosts.len() == 2 {
                    self.carry(d, frame.data);
                } else {
                    // Whether somebody else has its address is asked by every card that gets one.
                    let probe = frame.data.starts_with(&[0xff; 6]) && frame.data.get(12..14) == Some(&[8, 6]);
                    assert!(probe, "a frame left a host that has no wire");
                }
            }
        }
        for d in 0..2 {
            while let Some(&(at, _)) = self.wires[d].flying.front() {
                if at > self.hosts[1 - d].card.cycles() {
                    break;
                }
                let (_, frame) = self.wires[d].flying.pop_front().expect("front");
                self.hosts[1 - d].card.push_rx(frame);
            }
        }
    }

    /// Cycles that may be skipped: until something is bound to happen. `None`: now.
    /// `Some(u64::MAX)`: nothing will ever happen by itself.
    fn gap(&self) -> Option<u64> {
        let mut gap = u64::MAX;
        for (d, host) in self.hosts.iter().enumerate() {
            if !host.card.idle() || host.is_full() {
                return None;
            }
            let now = host.card.cycles();
            let wire = &self.wires[1 - d];
            let times = [host.card.timer(), host.next_action(), wire.flying.front().map(|f| f.0)];
            for at in times.into_iter().flatten() {
                gap = gap.min(at.checked_sub(now).filter(|&g| g > 0)?);
            }
        }
        Some(gap)
    }

    /// Steps until `ready` says so; skips time in which nothing happens. Panics with a
    /// report after `limit` cycles of the first card.
    pub fn run_until(&mut self, what: &str, limit: u64, mut ready: impl FnMut(&mut Net) -> bool) {
        let end = self.hosts[0].card.cycles() + limit;
        let mut n = 0u32;
        loop {
            // What tests look at changes with completions and events: a look each few cycles will do.
            if n.is_multiple_of(16) {
                if ready(self) {
                    return;
                }
                if self.hosts[0].card.cycles() > end {
                    self.fail(what);
                }
                if let Some(gap) = self.gap().filter(|&g| g > 32 && g < u64::MAX) {
                    self.skip(gap - 16);
                }
            }
            n = n.wrapping_add(1);
            self.step();
        }
    }

    /// Steps until no card has work, no frame flies and no page request waits, and no
    /// timer is due within `margin` cycles.
    pub fn settle(&mut self, margin: u64) {
        let mut calm = 0;
        let end = self.hosts[0].card.cycles() + 50_000_000;
        // A posted write needs a few clocks to make a card busy.
        while calm < 64 {
            match self.gap() {
                Some(gap) if gap > margin => calm += 1,
                _ => calm = 0,
            }
            if self.hosts[0].card.cycles() > end {
                self.fail("cards do not settle");
            }
            self.step();
        }
    }

    fn skip(&mut self, gap: u64) {
        for host in &mut self.hosts {
            let at = host.card.cycles() + gap;
            host.card.skip_to(at);
        }
    }

    fn fail(&mut self, what: &str) -> ! {
        let reports: Vec<String> = self.hosts.iter_mut().map(Host::report).collect();
        panic!("gave up waiting for: {what}\n{}", reports.join("\n"));
    }

    /// Connects QP `a` of host `from` to QP `b` of host `to` by service `service`.
    pub fn connect(&mut self, from: usize, a: u32, to: usize, b: u32, service: u32) {
        let listen = self.hosts[to].submit(Listen { service }.encode());
        self.run_until("CMD_CM_LISTEN", 10_000_000, |n| {
            n.hosts[to].done(listen).map(|answer| assert_eq!(answer.status, CMD_OK)).is_some()
        });
        self.join(from, a, to, b, service);
    }

    /// As [`Net::connect`], to a service that is listening.
    pub fn join(&mut self, from: usize, a: u32, to: usize, b: u32, service: u32) {
        let ask = Connect { qpn: a, ipv4: self.hosts[to].config().ipv4, service, ..Connect::default() };
        let connect = self.hosts[from].submit(ask.encode());
        self.run_until("CMD_CM_CONNECT", 10_000_000, |n| {
            n.hosts[from].done(connect).map(|answer| assert_eq!(answer.status, CMD_OK)).is_some()
        });
        let mut request = CmRequest::default();
        self.run_until("EV_CM_REQUEST", 500_000_000, |n| {
            n.hosts[to].take_event().map(|event| request = event).is_some()
        });
        assert_eq!(request.service, service);
        let answer = Accept { request: request.request, qpn: b, ..Accept::default() };
        let accept = self.hosts[to].submit(answer.encode());
        self.run_until("CMD_CM_ACCEPT", 10_000_000, |n| {
            n.hosts[to].done(accept).map(|answer| assert_eq!(answer.status, CMD_OK)).is_some()
        });
        for host in [from, to] {
            self.run_until("EV_CM_ESTABLISHED", 500_000_000, |n| n.hosts[host].take_event::<CmEstablished>().is_some());
        }
    }

    /// Steps until nothing is pinned on any host. Pages that were installed for a request that
    /// nobody waits for any more have no release: idle ones are evicted now and then.
    pub fn wait_unpinned(&mut self) {
        let mut looks = 0u32;
        self.run_until("nothing pinned", 20_000_000, |n| {
            if looks.is_multiple_of(1000) {
                n.hosts.iter_mut().for_each(Host::evict_idle);
            }
            looks += 1;
            n.hosts.iter().all(|h| h.pinned() == 0 && !h.pager.waits())
        });
    }
}
