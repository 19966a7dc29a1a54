// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cards that an input meets, and what must hold then.
//!
//! Host 1 is the victim. Its QP `QP_B` is attacked: from the wire, by its process, by what the driver does with the pages
//! of its address space. `GOOD` is of another process, with an address space, a doorbell page and a CQ of its own.

use super::input::{Action, Damage, Step, Target};
use crate::attacked::{GOOD, account, attacked_beside};
use crate::grammar::{Seen, blind, credit_of, forge, placement, seal};
use crate::pair::*;
use berth_abi::card::CONTROL_QPN;
use berth_abi::host::DB_CQ;
use berth_abi::message::{QpCreate, QpDestroy};
use berth_abi::wire::BTH_ACKNOWLEDGE;
use berth_rtl::BAR_DOORBELL;
use berth_rtl_host::*;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

const GOOD_ASID: u32 = 6;
const GOOD_UAR: u32 = 4;
const GOOD_CQN: u32 = 8;
/// A QP that there is not.
const NOBODY: u32 = 60;
/// Bytes of a message of the good connection.
const MESSAGE: usize = 6000;
/// No message takes more cycles.
const PATIENCE: u64 = 20_000_000;

/// What came of an input.
pub struct Outcome {
    /// Of all that could be seen: frames, completions, times.
    pub trace: u64,
    /// How often each coverage point of the victim was passed.
    pub counts: Vec<u32>,
}

/// Two cards with their connections, at rest.
pub struct Scene {
    net: Net,
    seen: Seen,
    rng: Rng,
    /// PSN, and low byte of the credit, of the attacker's next packet.
    next: (u32, u8),
    /// Buffers of the attacked process, by receive: address and length.
    granted: Vec<Vec<(u64, u32)>>,
    next_id: u64,
    destroyed: bool,
    /// Messages of the good connection that are under way.
    good: Vec<Stream>,
    trace: DefaultHasher,
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let (cqn, uar, asid) = (GOOD_CQN as u16, GOOD_UAR as u8, GOOD_ASID as u8);
        let good = QpCreate { asid, uar, send_cqn: cqn, recv_cqn: cqn, ..qp(GOOD) };
        let (net, seen) = attacked_beside(seed, good, |host| host.create_cq(GOOD_CQN, GOOD_UAR, 8));
        let next = (seen.next_psn(), credit_of(&seen.data).wrapping_add(1));
        Scene {
            net,
            seen,
            rng: Rng(seed),
            next,
            granted: Vec::new(),
            next_id: 1 << 32,
            destroyed: false,
            good: Vec::new(),
            trace: DefaultHasher::new(),
        }
    }

    /// The victim's card.
    pub fn card(&mut self) -> &mut berth_rtl::Card {
        &mut self.net.hosts[1].card
    }

    /// Does these steps, then checks what must hold.
    ///
    /// # Panics
    /// When something does not.
    pub fn run(mut self, steps: &[Step]) -> Outcome {
        let mut outcome = Outcome { trace: 0, counts: Vec::new() };
        self.card().take_coverage(&mut outcome.counts);
        let sent = [0, 1].map(|d| self.net.wires[d].sent.len());
        let offered = [0, 1].map(|d| self.net.hosts[d].card.rx_offered());
        let before = [0, 1].map(|d| account(&mut self.net, d));
        self.message((0, 1));
        for step in steps {
            self.act(&step.action, step.damage);
            self.pass(step.pause);
        }
        self.calm();
        self.deliver();
        self.message((0, 1));
        self.message((1, 0));
        self.deliver();
        self.card().take_coverage(&mut outcome.counts);
        self.net.settle(20_000);
        for d in 0..2 {
            let now = account(&mut self.net, d);
            let frames = self.net.hosts[d].card.rx_offered() - offered[d];
            assert_eq!(
                [now[0] - before[d][0], now[1] - before[d][1]],
                [frames; 2],
                "host {d}: frames that came and frames that are counted, of {frames}"
            );
            alive(&mut self.net, d);
        }
        self.check_memory();
        let mut qps = vec![(0, QP_A), (0, GOOD), (1, GOOD)];
        if !self.destroyed {
            qps.push((1, QP_B));
        }
        wind_up(&mut self.net, &qps);
        for (d, before) in sent.into_iter().enumerate() {
            self.net.wires[d].sent[before..].hash(&mut self.trace);
            self.net.hosts[d].card.cycles().hash(&mut self.trace);
        }
        outcome.trace = self.trace.finish();
        outcome
    }

    /// A message of the good connection, in this direction.
    fn message(&mut self, (from, to): (usize, usize)) {
        let data = self.rng.bytes(MESSAGE);
        let mut stream = Stream::new(&mut self.net, (from, GOOD), (to, GOOD), data);
        stream.recvs_left = Some(MESSAGE.div_ceil(4096));
        stream.post(&mut self.net);
        self.good.push(stream);
    }

    /// Lets the good connection's messages arrive.
    fn deliver(&mut self) {
        let Scene { net, good, trace, .. } = self;
        net.run_until("the good connection's message", PATIENCE, |net| {
            poll(net, good, trace);
            good.iter().all(Stream::finished)
        });
        for stream in good.drain(..) {
            assert!(stream.received == stream.data, "bytes of the good connection differ");
        }
    }

    /// Lets cycles pass.
    fn pass(&mut self, cycles: u64) {
        let end = self.net.hosts[1].card.cycles() + cycles;
        let Scene { net, good, trace, .. } = self;
        net.run_until("time to pass", PATIENCE, |net| {
            poll(net, good, trace);
            net.hosts[1].card.cycles() >= end
        });
    }

    /// Whatever was done to wire, host and driver ends.
    fn calm(&mut self) {
        self.net.faults = Faults::default();
        self.stall([false; 4]);
        self.net.hosts[1].set_page_answer(ASID, None);
    }

    fn stall(&mut self, [tx, writes, msix, dma]: [bool; 4]) {
        let card = self.card();
        card.set_tx_ready(!tx);
        card.set_writes_ready(!writes);
        card.set_msix_ready(!msix);
        card.set_stalled(dma);
    }

    fn act(&mut self, action: &Action, damage: Option<Damage>) {
        match *action {
            Action::Rule(seed) => self.frame(self.seen.act(&mut Rng(seed)).frame, damage),
            Action::Repeat(seed) => self.frame(self.seen.repeat(&mut Rng(seed)).frame, damage),
            Action::Blind(seed) => self.frame(blind(&self.seen.data, &mut Rng(seed)), damage),
            Action::Data { opcode, qpn, psn, credit, index, len, solicited } => {
                self.data(opcode, qpn, (psn, credit), index, len, solicited, damage);
            }
            Action::Ack { opcode, psn, syndrome, bits } => {
                let newest = newest(&self.net, 1, QP_A).unwrap_or_default().wrapping_add_signed(psn.into());
                let mut body = vec![syndrome, 0, 0, 0];
                if opcode != BTH_ACKNOWLEDGE {
                    body.extend([bits.to_le_bytes(), [0; 8]].as_flattened());
                }
                self.frame(forge(&self.seen.data, opcode, self.seen.qpn, newest, &body), damage);
            }
            Action::List { epoch, first, ref sizes } => {
                let first = self.seen.next_credit().wrapping_add_signed(first.into());
                self.frame(self.seen.list(epoch, 0, first, sizes), damage);
            }
            Action::Again(back) => {
                let sent = &self.net.wires[0].sent;
                let frame = sent[sent.len() - 1 - back % sent.len()].clone();
                self.frame(frame, damage);
            }
            Action::Recv { host, offset, ref parts } => self.recv(host, offset, parts),
            Action::Send { host, ref parts } => {
                let length = parts.iter().sum::<u32>();
                let source = self.net.hosts[host].alloc(ASID, length.into(), 0, false);
                let ends = parts.iter().scan(source, |at, &n| {
                    *at += u64::from(n);
                    Some((*at - u64::from(n), n))
                });
                let list: Vec<_> = ends.collect();
                self.next_id += 1;
                self.net.hosts[host].post_send([QP_A, QP_B][host], self.next_id, &list);
            }
            Action::Doorbell { offset, qpn, index, bytes } => {
                let queues = if offset == DB_CQ { [CQN, GOOD_CQN] } else { [QP_B, GOOD] };
                let number = match qpn {
                    Target::Attacked => queues[0],
                    Target::Good => queues[1],
                    Target::Nobody => NOBODY,
                };
                let value = u64::from(number) | u64::from(index) << 16 | u64::from(bytes) << 32;
                self.card().post_write(BAR_DOORBELL, u64::from(UAR) * PAGE + u64::from(offset), value, 8);
            }
            Action::Pages(answer) => self.net.hosts[1].set_page_answer(ASID, answer),
            Action::Evict => self.net.hosts[1].evict_idle(),
            Action::Revoke(back) => {
                // A fence ends when the host takes writes.
                self.stall([false; 4]);
                if let Some(last) = self.granted.len().checked_sub(1) {
                    for (va, len) in self.granted.remove(last - back % (last + 1)) {
                        self.net.hosts[1].revoke(ASID, va, len.into());
                    }
                }
            }
            Action::Wire { percent: [loss, dup, reorder, corrupt], seed } => {
                let [loss, dup, reorder, corrupt] = [loss, dup, reorder, corrupt].map(|p| f64::from(p) / 100.0);
                self.net.faults = Faults { loss, dup, reorder, corrupt, seed: seed.into() };
            }
            Action::Stall { tx, writes, msix, dma } => self.stall([tx, writes, msix, dma]),
            Action::Destroy if self.destroyed => {}
            Action::Destroy => {
                self.destroyed = true;
                self.net.hosts[1].submit(QpDestroy { qpn: QP_B }.encode());
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a packet")]
    fn data(
        &mut self,
        opcode: u8,
        qpn: Target,
        (psn, credit): (i16, i8),
        index: u32,
        len: usize,
        solicited: bool,
        damage: Option<Damage>,
    ) {
        // The peer's own packets come in between.
        if let Some(newest) = newest(&self.net, 0, QP_B).map(|psn| psn.wrapping_add(1) & PSN_MASK)
            && newest.wrapping_sub(self.next.0) & PSN_MASK < 1 << 23
        {
            self.next.0 = newest;
        }
        let qpn = if let Target::Attacked = qpn { self.seen.qpn } else { NOBODY };
        let place = placement(self.next.1.wrapping_add_signed(credit), index);
        let immediate: &[u8] = if matches!(opcode, 0x03 | 0x05) { &[0; 4] } else { &[] };
        let body = [immediate, &place, &self.rng.bytes(len)].concat();
        let mut frame = forge(&self.seen.data, opcode, qpn, self.next.0.wrapping_add_signed(psn.into()), &body);
        frame[43] |= u8::from(solicited) << 7;
        seal(&mut frame);
        if psn == 0 && qpn == self.seen.qpn && damage.is_none() {
            self.next.0 = self.next.0.wrapping_add(1) & PSN_MASK;
            if matches!(opcode, 0x02..=0x05) {
                self.next.1 = self.next.1.wrapping_add(1);
            }
        }
        self.frame(frame, damage);
    }

    fn recv(&mut self, host: usize, offset: u64, parts: &[u32]) {
        let mut at = offset;
        let mut buffers = Vec::new();
        for &length in parts {
            buffers.push((self.net.hosts[host].alloc(ASID, length.into(), std::mem::take(&mut at), true), length));
        }
        self.next_id += 1;
        self.net.hosts[host].post_recvs([QP_A, QP_B][host], &[(self.next_id, buffers.clone())]);
        if host == 1 {
            self.granted.push(buffers);
        }
    }

    /// Puts a frame of the attacker on the wire to the victim.
    fn frame(&mut self, mut frame: Vec<u8>, damage: Option<Damage>) {
        let len = frame.len();
        let mut flagged = false;
        match damage {
            None => {}
            Some(Damage::Raw(at, bits)) => frame[at % len] ^= bits,
            Some(Damage::Cut(bytes)) => frame.truncate(len - bytes % len),
            Some(Damage::Longer(bytes)) => frame.resize(len + bytes, 0),
            Some(Damage::Flagged) => flagged = true,
            // Too short for a RoCE frame: nothing to be made right.
            Some(Damage::Sealed(at, bits)) if len < 58 => frame[at % len] ^= bits,
            Some(Damage::Sealed(at, bits)) => {
                frame[at % len] ^= bits;
                // Whoever hears the wire may end any connection, or speak as the peer's firmware: here only this one's.
                let qpn = u32::from_be_bytes([0, frame[47], frame[48], frame[49]]);
                if qpn == GOOD || qpn == CONTROL_QPN {
                    frame[46..50].copy_from_slice(&self.seen.qpn.to_be_bytes());
                }
                seal(&mut frame);
            }
        }
        match flagged {
            true => self.card().push_rx_damaged(frame),
            false => self.card().push_rx(frame),
        }
    }

    /// In the pages of the attacked process's buffers nothing is written but the buffers.
    fn check_memory(&self) {
        let host = &self.net.hosts[1];
        for &(va, length) in self.granted.iter().flatten() {
            let end = va + u64::from(length);
            let before = host.read(ASID, va / PAGE * PAGE, (va % PAGE) as usize);
            let behind = host.read(ASID, end, (end.next_multiple_of(PAGE) - end) as usize);
            assert!([before, behind].concat().iter().all(|&b| b == 0), "written beside the buffer {va:#x} + {length}");
        }
    }
}

const PSN_MASK: u32 = 0xff_ffff;

/// PSN of the last data packet that host `d` has sent to QP `qpn`.
fn newest(net: &Net, d: usize, qpn: u32) -> Option<u32> {
    net.wires[d].sent.iter().rev().find_map(|f| roce(f).filter(|b| b.qpn == qpn && b.opcode <= 5).map(|b| b.psn))
}

/// What the processes have to do.
fn poll(net: &mut Net, good: &mut [Stream], trace: &mut DefaultHasher) {
    for d in 0..2 {
        for c in net.hosts[d].poll_cq(CQN) {
            (d, c.wr_id, c.status, c.byte_len).hash(trace);
        }
        for c in net.hosts[d].poll_cq(GOOD_CQN) {
            assert_eq!(c.qpn, GOOD, "a completion in another process's queue: {c:?}");
            (d, c.wr_id, c.status, c.byte_len).hash(trace);
            for stream in &mut *good {
                stream.complete(net, d, &c);
            }
        }
    }
}
