// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two connected cards with their applications, for the tests with real firmware. The
//! image comes from `BERTH_FW_IMAGE`, the seed from `BERTH_SEED`.
#![allow(dead_code, reason = "each test program uses some of it")]

use berth_abi::card::{FIRST_QPN, NUM_QPS};
use berth_abi::counters::*;
use berth_abi::host::*;
use berth_abi::message::{CmdDone, QpDestroy, QpQuery};
use berth_abi::ring::QpState;
use berth_abi::status::*;
use berth_abi::wqe::*;
use berth_rtl_host::*;
use std::collections::VecDeque;

pub const ASID: u32 = 5;
pub const UAR: u32 = 3;
pub const CQN: u32 = 7;
pub const QP_A: u32 = FIRST_QPN + 1;
pub const QP_B: u32 = FIRST_QPN + if NUM_QPS < 8 { NUM_QPS } else { 8 } - 1;
pub const SERVICE: u32 = 1000;
/// Acknowledgement time-out that no test with a held wire reaches.
pub const NO_TIMEOUT: u32 = 0xf000_0000;

pub fn image() -> Vec<u8> {
    let path =
        std::env::var("BERTH_FW_IMAGE").expect("BERTH_FW_IMAGE names the firmware image (cargo xtask setup builds it)");
    std::fs::read(&path).unwrap_or_else(|e| panic!("cannot read {path}: {e}"))
}

pub fn qp(qpn: u32) -> QpCreate {
    QpCreate {
        qpn,
        asid: ASID as u8,
        uar: UAR as u8,
        log2_sq: 5,
        log2_rq: 7,
        send_cqn: CQN as u16,
        recv_cqn: CQN as u16,
        ..QpCreate::default()
    }
}

/// Two hosts, a connected QP on each.
pub fn pair(seed: u64, with: impl Fn(usize, &mut HostConfig), a: QpCreate, b: QpCreate) -> Net {
    let image = image();
    let hosts = (0..2)
        .map(|d| {
            let mut config =
                HostConfig { seed: seed + d as u64, ipv4: 0x0a00_0001 + d as u32, ..HostConfig::default() };
            config.card.seed = seed ^ d as u64;
            with(d, &mut config);
            let mut host = Host::new(config);
            host.start(&image);
            host.create_cq(CQN, UAR, 8);
            host
        })
        .collect();
    let mut net = Net::new(hosts);
    let (qa, qb) = (a.qpn, b.qpn);
    net.hosts[0].create_qp(a);
    net.hosts[1].create_qp(b);
    net.connect(0, qa, 1, qb, SERVICE);
    net
}

/// One direction of a stream: what the two applications do.
pub struct Stream {
    pub from: usize,
    pub to: usize,
    pub send_qp: u32,
    pub recv_qp: u32,
    pub data: Vec<u8>,
    pub source: u64,
    pub sent: usize,
    pub sends_out: usize,
    pub chunks: VecDeque<Vec<usize>>,
    pub recvs: VecDeque<(u64, Vec<(u64, u32)>)>,
    pub received: Vec<u8>,
    pub next_id: u64,
    pub sizes: Box<dyn FnMut() -> Vec<u32>>,
    pub depth: usize,
    /// Receives that may still be posted; `None` without end.
    pub recvs_left: Option<usize>,
    pub alignment: Box<dyn FnMut() -> u64>,
}

impl Stream {
    pub fn new(net: &mut Net, (from, send_qp): (usize, u32), (to, recv_qp): (usize, u32), data: Vec<u8>) -> Stream {
        let asid = net.hosts[from].asid_of(send_qp);
        let source = net.hosts[from].alloc(asid, data.len() as u64, 0, false);
        net.hosts[from].write(asid, source, &data);
        let chunks = VecDeque::from([vec![data.len()]]);
        Stream {
            from,
            to,
            send_qp,
            recv_qp,
            data,
            source,
            sent: 0,
            sends_out: 0,
            chunks,
            recvs: VecDeque::new(),
            received: Vec::new(),
            next_id: 1,
            sizes: Box::new(|| vec![4096]),
            depth: 16,
            recvs_left: None,
            alignment: Box::new(|| 0),
        }
    }

    /// Posts what there is room for.
    pub fn post(&mut self, net: &mut Net) {
        let host = &mut net.hosts[self.from];
        let mut rang = false;
        while self.sends_out < 16 {
            let Some(sges) = self.chunks.pop_front() else { break };
            let mut list = Vec::new();
            for n in sges {
                list.push((self.source + self.sent as u64, n as u32));
                self.sent += n;
            }
            host.put_send(self.send_qp, self.next_id, 0, &list);
            self.next_id += 1;
            self.sends_out += 1;
            rang = true;
        }
        if rang {
            host.ring_send(self.send_qp);
        }
        let host = &mut net.hosts[self.to];
        let asid = host.asid_of(self.recv_qp);
        let mut rang = false;
        while self.recvs.len() < self.depth && self.recvs_left != Some(0) {
            self.recvs_left = self.recvs_left.map(|n| n - 1);
            let mut sges = Vec::new();
            for len in (self.sizes)() {
                let offset = (self.alignment)() % PAGE;
                sges.push((host.alloc(asid, len.into(), offset, true), len));
            }
            host.put_recv(self.recv_qp, self.next_id, &sges);
            self.recvs.push_back((self.next_id, sges));
            self.next_id += 1;
            rang = true;
        }
        if rang {
            host.ring_recv(self.recv_qp);
        }
    }

    pub fn complete(&mut self, net: &mut Net, host: usize, c: &Cqe) {
        assert_eq!(c.status, WC_OK, "{c:?}");
        if host == self.from && c.qpn == self.send_qp && c.opcode == OP_SEND {
            self.sends_out -= 1;
        } else if host == self.to && c.qpn == self.recv_qp && c.opcode == OP_RECV {
            let (id, sges) = self.recvs.pop_front().expect("a receive that was posted");
            assert_eq!(c.wr_id, id, "receives complete in order");
            let mut left = c.byte_len as usize;
            let asid = net.hosts[host].asid_of(self.recv_qp);
            for (va, len) in sges {
                let n = left.min(len as usize);
                self.received.extend(net.hosts[host].read(asid, va, n));
                left -= n;
            }
            assert_eq!(left, 0, "no more bytes than the buffer holds");
        }
    }

    pub fn finished(&self) -> bool {
        self.received.len() >= self.data.len() && self.sends_out == 0 && self.chunks.is_empty()
    }
}

/// One look at what the applications have to do.
pub fn step(net: &mut Net, streams: &mut [Stream]) {
    for s in streams.iter_mut().filter(|s| !s.finished()) {
        s.post(net);
    }
    for host in 0..net.hosts.len() {
        for c in net.hosts[host].poll_cq(CQN) {
            for s in streams.iter_mut() {
                s.complete(net, host, &c);
            }
        }
    }
}

/// Runs streams to their ends and checks the bytes.
pub fn run(net: &mut Net, streams: &mut [Stream], limit: u64) {
    net.run_until("streams at their ends", limit, |net| {
        step(net, streams);
        streams.iter().all(Stream::finished)
    });
    for s in streams.iter() {
        assert!(s.received == s.data, "bytes differ: {} received, {} sent", s.received.len(), s.data.len());
    }
}

/// Credits that QP `qpn` of host `host` has announced and whose data has not landed.
pub fn credits_out(net: &mut Net, host: usize, qpn: u32) -> u32 {
    let w = QpQuery { qpn }.encode();
    let cookie = net.hosts[host].submit(w);
    let mut done = CmdDone::default();
    net.run_until("CMD_QP_QUERY", 10_000_000, |n| n.hosts[host].done(cookie).map(|answer| done = answer).is_some());
    assert_eq!(done.status, CMD_OK);
    let [_, _, announced, landed, _] = QpState::from_results(&done.results).receives;
    announced.wrapping_sub(landed)
}

/// Posted receives without data keep their pins: end the connection, then nothing may be pinned.
pub fn finish(net: &mut Net, qps: &[(usize, u32)]) {
    wind_up(net, qps);
    for host in &mut net.hosts {
        assert_eq!(host.fw_counter(F_NO_CREDIT), 0, "invariant 1");
    }
}

/// As [`finish`], when a test has broken invariant 1 by hand.
pub fn wind_up(net: &mut Net, qps: &[(usize, u32)]) {
    for &(host, qpn) in qps {
        let w = QpDestroy { qpn }.encode();
        let cookie = net.hosts[host].submit(w);
        net.run_until("CMD_QP_DESTROY", 100_000_000, |n| {
            n.hosts[host].done(cookie).map(|answer| assert_eq!(answer.status, CMD_OK)).is_some()
        });
    }
    net.wait_unpinned();
    for host in &mut net.hosts {
        assert_eq!(host.violations(), [], "invariant 4");
        assert_eq!(host.rtl_counter(C_DMA_NO_TRANSLATION), 0);
        assert_eq!(host.rtl_counter(C_DMA_HOST_ERROR), 0);
        assert_eq!(host.pinned(), 0, "invariant 3");
    }
}

/// Waits until counter `index` of host `d`'s firmware is at least `n`.
pub fn wait_counter(net: &mut Net, d: usize, index: u32, n: u64) {
    let (name, ..) = FW_COUNTER_TABLE[index as usize];
    let mut looks = 0u32;
    net.run_until(name, 20_000_000, |net| {
        looks += 1;
        // Seldom, but before time is skipped.
        (looks.is_multiple_of(64) || net.hosts[d].card.idle()) && net.hosts[d].fw_counter(index) >= n
    });
}

/// The firmware of host `d` runs and answers.
pub fn alive(net: &mut Net, d: usize) {
    let challenge = 0x600d_0000 ^ net.hosts[d].card.cycles() as u32;
    net.hosts[d].set_reg(HOST_HB_CHALLENGE, challenge);
    let mut looks = 0u32;
    net.run_until("answer to the heartbeat", 2_000_000, |net| {
        looks += 1;
        (looks.is_multiple_of(16) || net.hosts[d].card.idle()) && net.hosts[d].reg(HOST_HB_ANSWER) == challenge
    });
    assert_eq!(net.hosts[d].reg(HOST_STATUS), FW_RUNNING, "{}", net.hosts[d].report());
}

/// A short stream that uses up all the receives that it posts.
pub fn small_stream(net: &mut Net, seed: u64) {
    let mut s = Stream::new(net, (0, QP_A), (1, QP_B), Rng(seed).bytes(20_000));
    s.recvs_left = Some(5);
    run(net, std::slice::from_mut(&mut s), 60_000_000);
}

/// The last frame that host 0 sent for which `which` holds.
pub fn last(net: &Net, d: usize, which: impl Fn(&Bth) -> bool) -> Vec<u8> {
    net.wires[d].sent.iter().rev().find(|f| roce(f).is_some_and(|b| which(&b))).expect("such a frame").clone()
}
