// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two cards with firmware, their hosts, and the wire between them: one stream at a time from the first to the second.

use anyhow::{Result, ensure};
use berth_abi::card::FIRST_QPN;
use berth_abi::message::{QpCreate, QpTrigger};
use berth_abi::status::{CMD_OK, WC_OK};
use berth_abi::wqe::OP_SEND;
use berth_random::Rng;
use berth_rtl_host::{Host, HostConfig, Net, data_lengths, is_data, numbered_lists, piece_lengths};
use std::collections::VecDeque;

use crate::model::{FRAMING, Model};
use crate::sender::{Log, MESSAGE, Measured};

const ASID: u32 = 5;
const UAR: u32 = 3;
const CQN: u32 = 7;
const SERVICE: u32 = 1000;
/// log2 of the queues: sends, receives, completions.
const LOG2_SENDS: u8 = 7;
const LOG2_RECEIVES: u8 = 7;
const LOG2_COMPLETIONS: u32 = 9;
/// Bytes of what is sent, over and over.
const SOURCE: u64 = 1 << 20;
/// Bytes of what is received, over and over.
const SINK: u64 = 512 << 10;
/// Cycles between two looks of a host at its completions.
pub const LOOK: u64 = 16;
/// Cycles that a measurement may take.
const PATIENCE: u64 = 20_000_000;
/// Clocks that are not skipped before something happens.
const CLOSE: u64 = 16;

/// Receives that are always posted: how many, and bytes of each, one or several of which take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receives {
    /// How many.
    pub count: u64,
    /// Bytes of each.
    pub bytes: u64,
}

/// How a queue pair's lists go: kind and index of the trigger.
pub type Trigger = (u8, u8);

/// Two cards, and connected queue pairs with the same numbers.
pub struct Cards {
    hosts: [Host; 2],
    /// Frames to the other card, and when their first beat comes.
    flying: [VecDeque<(u64, Vec<u8>)>; 2],
    /// Cycle until which each direction of the wire is taken, with fractions of a beat.
    taken: [f64; 2],
    beat: f64,
    data: Vec<u8>,
    source: u64,
    sink: u64,
    /// By queue pair.
    counts: Vec<Counts>,
}

/// What a queue pair has done so far.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Messages that were handed to the card, and that have completed.
    put: u64,
    sent: u64,
    /// Number of the next credit that is announced.
    announced: u32,
    /// Receives that were posted, and that have completed.
    posted: u64,
    received: u64,
}

/// One stream.
struct Stream {
    qpn: u32,
    receives: Receives,
    log: Log,
    posts: VecDeque<u64>,
    counts: Counts,
    /// When the last receive completed.
    last: u64,
}

impl Cards {
    /// Two cards of `data_w` bits whose firmware is `image`, and as many queue pairs as triggers, each of which the second
    /// card uses for its receives.
    ///
    /// # Panics
    /// When they do not come up.
    pub fn new(model: &Model, data_w: usize, image: &[u8], triggers: &[Trigger]) -> Self {
        let hosts = [0, 1].map(|n| {
            let slot = model.slot(data_w, 0);
            let mut host = Host::new(HostConfig {
                card: slot,
                seed: model.seed + n,
                ipv4: 0x0a00_0001 + n as u32,
                limits: (model.mps.ilog2(), model.mrrs.ilog2()),
                ..HostConfig::default()
            });
            host.start(image);
            host.create_cq(CQN, UAR, LOG2_COMPLETIONS);
            host
        });
        let mut net = Net::new(hosts.into());
        for (n, &(trigger, trigger_index)) in (0..).zip(triggers) {
            let qp = QpCreate {
                qpn: FIRST_QPN + n,
                asid: ASID as u8,
                uar: UAR as u8,
                log2_sq: LOG2_SENDS,
                log2_rq: LOG2_RECEIVES,
                send_cqn: CQN as u16,
                recv_cqn: CQN as u16,
                trigger,
                trigger_index,
                ..QpCreate::default()
            };
            net.hosts[0].create_qp(QpCreate { trigger: 0, trigger_index: 0, ..qp });
            net.hosts[1].create_qp(qp);
            net.connect(0, qp.qpn, 1, qp.qpn, SERVICE + n);
        }
        net.settle(10_000);
        let mut hosts: [Host; 2] = net.hosts.try_into().ok().expect("two hosts");
        // Of their clocks, booting has taken as many as it has.
        align(&mut hosts);
        let data = Rng(model.seed).bytes(SOURCE as usize);
        let source = hosts[0].alloc(ASID, SOURCE, 0, false);
        hosts[0].write(ASID, source, &data);
        let sink = hosts[1].alloc(ASID, SINK, 0, true);
        hosts[0].pin(ASID, source, SOURCE);
        hosts[1].pin(ASID, sink, SINK);
        let (flying, taken, beat) = (Default::default(), [0.0; 2], data_w as f64 / 8.0);
        let counts = vec![Counts::default(); triggers.len()];
        Self { hosts, flying, taken, beat, data, source, sink, counts }
    }

    fn now(&self) -> u64 {
        self.hosts[0].card.cycles()
    }

    /// One clock of both; what has left and come of the stream is noted.
    fn step(&mut self, half: u64, stream: &mut Stream) {
        for n in 0..2 {
            let host = &mut self.hosts[n];
            host.card.set_tx_ready(host.card.cycles() as f64 + 1.0 >= self.taken[n]);
            host.step();
            while let Some(frame) = host.card.take_tx() {
                let begins = frame.start_cycle as f64;
                let start = if begins - self.taken[n] < 1.0 { self.taken[n] } else { begins };
                self.taken[n] = start + (frame.data.len() + FRAMING) as f64 / self.beat;
                let ends = frame.start_cycle + (frame.data.len() as f64 / self.beat) as u64;
                let frame = [frame.data];
                if n == 0 && is_data(&frame[0]) {
                    let bytes = data_lengths(&frame, stream.qpn).iter().sum::<usize>() as u64;
                    stream.log.sent(ends, bytes, !piece_lengths(&frame, stream.qpn).is_empty());
                }
                for (first, list) in numbered_lists(&frame, stream.qpn).into_iter().filter(|_| n == 1) {
                    let credits = if first == stream.counts.announced { list.len() } else { 0 };
                    stream.counts.announced = stream.counts.announced.wrapping_add(credits as u32);
                    stream.log.list(ends + half, credits);
                }
                let [frame] = frame;
                // Not before its last beat is out, which is now.
                self.flying[n].push_back((begins as u64 + half, frame));
            }
        }
        for n in 0..2 {
            let now = self.hosts[n].card.cycles();
            while self.flying[1 - n].front().is_some_and(|frame| frame.0 <= now) {
                self.flying[1 - n].pop_front().into_iter().for_each(|(_, frame)| self.hosts[n].card.push_rx(frame));
            }
        }
    }

    /// Cycles in which nothing happens before `next`, if both cards are idle.
    fn gap(&self, next: u64) -> Option<u64> {
        let now = self.now();
        let mut gap = next.saturating_sub(now);
        for (host, wire) in self.hosts.iter().zip(&self.flying) {
            if !host.card.idle() || host.is_full() {
                return None;
            }
            for at in [host.card.timer(), host.next_action(), wire.front().map(|f| f.0)].into_iter().flatten() {
                gap = gap.min(at.saturating_sub(now));
            }
        }
        Some(gap).filter(|&gap| gap > 2 * CLOSE)
    }

    /// Hands sends and receives to the cards, and takes completions.
    fn work(&mut self, stream: &mut Stream) -> Result<()> {
        let now = self.now();
        let [sender, receiver] = &mut self.hosts;
        let mut rang = false;
        while stream.posts.front().is_some_and(|&at| at <= now)
            && stream.counts.put - stream.counts.sent < 1 << LOG2_SENDS
        {
            stream.posts.pop_front();
            let from = self.source + stream.counts.put * MESSAGE % SOURCE;
            sender.put_send(stream.qpn, stream.counts.put, 0, &[(from, MESSAGE as u32)]);
            stream.counts.put += 1;
            rang = true;
        }
        if rang {
            sender.ring_send(stream.qpn);
        }
        for c in sender.poll_cq(CQN) {
            ensure!(
                (c.status, c.opcode, c.wr_id) == (WC_OK, OP_SEND, stream.counts.sent),
                "send {}: {c:?}",
                stream.counts.sent
            );
            stream.counts.sent += 1;
        }
        let Receives { count, bytes } = stream.receives;
        let place = |n: u64| self.sink + n % count * bytes;
        for c in receiver.poll_cq(CQN) {
            let n = stream.counts.received;
            ensure!((c.status, c.wr_id, u64::from(c.byte_len)) == (WC_OK, n, bytes), "receive {n}: {c:?}");
            let got = receiver.read(ASID, place(n), bytes as usize);
            let sent = &self.data[(n * bytes % SOURCE) as usize..][..bytes as usize];
            ensure!(got == sent, "receive {n} has not what was sent");
            stream.counts.received += 1;
            stream.last = now;
        }
        if stream.counts.posted < stream.counts.received + count {
            while stream.counts.posted < stream.counts.received + count {
                receiver.put_recv(stream.qpn, stream.counts.posted, &[(place(stream.counts.posted), bytes as u32)]);
                stream.counts.posted += 1;
            }
            receiver.ring_recv(stream.qpn);
        }
        Ok(())
    }

    /// Until it is `done`, for at most `cycles`.
    fn until(&mut self, half: u64, cycles: u64, stream: &mut Stream, done: impl Fn(&Stream) -> bool) -> Result<()> {
        let end = self.now() + cycles;
        for n in 0u64.. {
            if n.is_multiple_of(LOOK) {
                self.work(stream)?;
                if self.now() >= end || done(stream) {
                    break;
                }
                let next = stream.posts.front().map_or(end, |&at| at.min(end));
                if let Some(gap) = self.gap(next) {
                    for host in &mut self.hosts {
                        host.card.skip_to(host.card.cycles() + gap - CLOSE);
                    }
                }
            }
            self.step(half, stream);
        }
        Ok(())
    }

    /// Lists of queue pair `n` go by this trigger from now on, and what was measured is forgotten.
    ///
    /// # Errors
    /// When the card refuses it.
    pub fn set_trigger(&mut self, n: u32, (trigger, index): Trigger) -> Result<()> {
        let (qpn, trigger, trigger_index) = (FIRST_QPN + n, trigger, index);
        let answer = self.hosts[1].command(QpTrigger { qpn, trigger, trigger_index }.encode());
        ensure!(answer.status == CMD_OK, "trigger {trigger}: {answer:?}");
        align(&mut self.hosts);
        Ok(())
    }

    /// Queue pair `n` sends messages, each posted at its time, over a wire with this round trip; each receive is posted
    /// again as soon as it has completed.
    ///
    /// # Errors
    /// When not all bytes arrive as they were sent.
    pub fn stream(&mut self, n: u32, receives: Receives, round_trip: u64, posts: &[u64]) -> Result<Measured> {
        let half = round_trip / 2;
        let before = self.counts[n as usize];
        let mut stream = Stream {
            qpn: FIRST_QPN + n,
            receives,
            log: Log::default(),
            posts: VecDeque::new(),
            counts: before,
            last: 0,
        };
        stream.log.list(0, (u64::from(before.announced) - before.received) as usize);
        // The first list goes.
        self.until(half, settled(round_trip), &mut stream, |_| false)?;
        let from = self.now();
        stream.posts = posts.iter().map(|at| from + at).collect();
        stream.posts.iter().for_each(|&at| stream.log.posted(at, MESSAGE));
        let messages = posts.len() as u64;
        self.until(half, PATIENCE, &mut stream, |s| s.counts.sent == before.sent + messages)?;
        let wanted = messages * MESSAGE;
        let (received, sent) = ((stream.counts.received - before.received) * receives.bytes, stream.log.bytes());
        ensure!(received == wanted && sent == wanted, "{received} bytes received and {sent} sent of {wanted}");
        let announced = u64::from(stream.counts.announced);
        ensure!(announced >= stream.counts.received, "{announced} credits for {} receives", stream.counts.received);
        // What is still on its way.
        self.until(half, settled(round_trip), &mut stream, |_| false)?;
        for host in &self.hosts {
            let violations = host.violations();
            ensure!(violations.is_empty(), "DMA to what is not pinned: {violations:x?}");
        }
        self.counts[n as usize] = stream.counts;
        Ok(stream.log.measured(from, stream.last))
    }
}

/// Cycles after which nothing of a stream is on its way any more.
pub const fn settled(round_trip: u64) -> u64 {
    4 * round_trip + 10_000
}

/// Lets the card that is behind catch up.
fn align(hosts: &mut [Host; 2]) {
    let now = hosts.iter().map(|host| host.card.cycles()).max().unwrap_or_default();
    for host in hosts {
        while host.card.cycles() < now {
            host.step();
        }
    }
}
