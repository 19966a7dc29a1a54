// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two Verilated cards with the real firmware, a host model each, and a wire between
//! them. The firmware image comes from `BERTH_FW_IMAGE`, the seed from `BERTH_SEED`.

use berth_abi::counters::*;
use berth_abi::ring::*;
use berth_abi::status::*;
use berth_abi::wqe::*;
use berth_rtl::hostmodel::*;
use std::collections::VecDeque;

const ASID: u32 = 5;
const UAR: u32 = 3;
const CQN: u32 = 7;
const QP_A: u32 = 17;
const QP_B: u32 = 23;
const SERVICE: u32 = 1000;
/// Acknowledgement time-out that no test with a held wire reaches.
const NO_TIMEOUT: u32 = 0xf000_0000;

fn image() -> Vec<u8> {
    let path = std::env::var("BERTH_FW_IMAGE")
        .expect("BERTH_FW_IMAGE names the firmware image (cargo xtask firmware builds it)");
    std::fs::read(&path).unwrap_or_else(|e| panic!("cannot read {path}: {e}"))
}

fn qp(qpn: u32) -> QpCreate {
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
fn pair(seed: u64, with: impl Fn(usize, &mut HostConfig), a: QpCreate, b: QpCreate) -> Net {
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
struct Stream {
    from: usize,
    to: usize,
    send_qp: u32,
    recv_qp: u32,
    data: Vec<u8>,
    source: u64,
    sent: usize,
    sends_out: usize,
    chunks: VecDeque<Vec<usize>>,
    recvs: VecDeque<(u64, Vec<(u64, u32)>)>,
    received: Vec<u8>,
    next_id: u64,
    sizes: Box<dyn FnMut() -> Vec<u32>>,
    depth: usize,
    alignment: Box<dyn FnMut() -> u64>,
}

impl Stream {
    fn new(net: &mut Net, (from, send_qp): (usize, u32), (to, recv_qp): (usize, u32), data: Vec<u8>) -> Stream {
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
            alignment: Box::new(|| 0),
        }
    }

    /// Posts what there is room for.
    fn post(&mut self, net: &mut Net) {
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
        while self.recvs.len() < self.depth {
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

    fn complete(&mut self, net: &mut Net, host: usize, c: &Completion) {
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

    fn finished(&self) -> bool {
        self.received.len() >= self.data.len() && self.sends_out == 0 && self.chunks.is_empty()
    }
}

/// Runs streams to their ends and checks the bytes.
fn run(net: &mut Net, streams: &mut [Stream], limit: u64) {
    net.run_until("streams at their ends", limit, |net| {
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
        streams.iter().all(Stream::finished)
    });
    for s in streams.iter() {
        assert!(s.received == s.data, "bytes differ: {} received, {} sent", s.received.len(), s.data.len());
    }
}

/// Posted receives without data keep their pins: end the connection, then nothing may be pinned.
fn finish(net: &mut Net, qps: &[(usize, u32)]) {
    for &(host, qpn) in qps {
        let mut w = [0; 16];
        (w[0], w[2]) = (CMD_QP_DESTROY, qpn);
        let cookie = net.hosts[host].submit(w);
        net.run_until("CMD_QP_DESTROY", 100_000_000, |n| {
            n.hosts[host].done(cookie).map(|w| assert_eq!(w[2], CMD_OK)).is_some()
        });
    }
    net.wait_unpinned();
    for host in &mut net.hosts {
        assert_eq!(host.fw_counter(F_NO_BUFFER), 0, "invariant 1");
        assert_eq!(host.violations(), [], "invariant 4");
        assert_eq!(host.rtl_counter(C_DMA_NO_TRANSLATION), 0);
        assert_eq!(host.rtl_counter(C_DMA_HOST_ERROR), 0);
        assert_eq!(host.fw_counter(F_CREDITS_OUTSTANDING), 0);
        assert_eq!(host.pinned(), 0, "invariant 3");
    }
}

#[test]
fn cr_15_worked_example_of_72_bytes() {
    let a = QpCreate { timeout: NO_TIMEOUT, ..qp(QP_A) };
    let b = QpCreate { timeout: NO_TIMEOUT, ..qp(QP_B) };
    let mut net = pair(seed(1), |_, _| {}, a, b);
    let data: Vec<u8> = (0..72).collect();
    let source = net.hosts[0].alloc(ASID, 72, 100, false);
    net.hosts[0].write(ASID, source, &data);
    let mut posted = Vec::new();
    let mut recv = |net: &mut Net, sizes: &[u32]| {
        for &len in sizes {
            let va = net.hosts[1].alloc(ASID, len.into(), 200, true);
            posted.push((va, len));
            net.hosts[1].put_recv(QP_B, u64::from(len), &[(va, len)]);
        }
        net.hosts[1].ring_recv(QP_B);
        posted.clone()
    };
    let sent = |net: &Net| data_lengths(&net.wires[0].sent, QP_B);
    let lists = |net: &Net| credit_lists(&net.wires[1].sent, QP_A);

    // The sender has data and no credit: it holds it (CR-3).
    net.hosts[0].post_send(QP_A, 72, &[(source, 72)]);
    net.settle(50_000);
    assert_eq!(sent(&net), []);

    // 1. [3, 7] goes to the sender; what it sends is held at the wire.
    net.hold(0, is_data);
    recv(&mut net, &[3, 7]);
    net.run_until("3 and 7 are sent", 10_000_000, |n| sent(n).len() == 2);
    assert_eq!(lists(&net), [vec![3, 7]]);
    assert_eq!(sent(&net), [3, 7]);

    // 2. 22 and 44 are posted; no list may go before the 3 bytes have landed (CR-11).
    recv(&mut net, &[22, 44]);
    net.settle(50_000);
    assert_eq!(lists(&net), [vec![3, 7]]);
    assert_eq!(sent(&net), [3, 7]);

    // 3. The 3 bytes land: [22, 44] goes. 4. The sender sends 22, 5. and the last 40.
    net.release(0, 1);
    net.run_until("22 and 40 are sent", 10_000_000, |n| sent(n).len() == 4);
    assert_eq!(lists(&net), [vec![3, 7], vec![22, 44]]);
    assert_eq!(sent(&net), [3, 7, 22, 40]);
    let all = recv(&mut net, &[11]);
    net.settle(50_000);
    assert_eq!(lists(&net).len(), 2, "22 has not landed");

    // 6. 7 lands: still no list. 22 lands: [11].
    net.release(0, 1);
    net.settle(50_000);
    assert_eq!(lists(&net).len(), 2, "22 has not landed");
    net.release(0, 1);
    net.run_until("[11] is announced", 10_000_000, |n| lists(n).len() == 3);
    assert_eq!(lists(&net), [vec![3, 7], vec![22, 44], vec![11]]);
    assert_eq!(net.wires[0].held.len(), 1, "the last 40 bytes");
    net.unhold(0);

    let mut got = Vec::new();
    let mut sends = Vec::new();
    net.run_until("completions", 10_000_000, |n| {
        got.extend(n.hosts[1].poll_cq(CQN));
        sends.extend(n.hosts[0].poll_cq(CQN));
        got.len() == 4 && sends.len() == 1
    });
    assert_eq!(got.iter().map(|c| c.byte_len).collect::<Vec<_>>(), [3, 7, 22, 40]);
    assert_eq!(got.iter().map(|c| c.remaining).collect::<Vec<_>>(), [69, 62, 40, 0], "bytes remaining in band (CR-9)");
    assert_eq!((sends[0].wr_id, sends[0].status), (72, WC_OK));
    let mut bytes = Vec::new();
    for (c, &(va, len)) in got.iter().zip(&all) {
        assert_eq!(c.wr_id, u64::from(len));
        bytes.extend(net.hosts[1].read(ASID, va, c.byte_len as usize));
        // The rest of the 44-byte buffer is not touched.
        assert!(
            net.hosts[1].read(ASID, va + u64::from(c.byte_len), (len - c.byte_len) as usize).iter().all(|&b| b == 0)
        );
    }
    assert_eq!(bytes, data);
    assert_eq!(sent(&net), [3, 7, 22, 40]);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

fn random_stream(seed: u64, len: usize, faults: Option<(f64, f64, f64, f64)>, limit: u64) {
    let timeout = if faults.is_some() { 60_000 } else { 0 };
    let a = QpCreate { timeout, retries: 30, ..qp(QP_A) };
    let b = QpCreate { timeout, retries: 30, ..qp(QP_B) };
    let mut net = pair(
        seed,
        |_, c| {
            c.mtu = 1024;
            c.card.out_of_order = true;
        },
        a,
        b,
    );
    let mut rng = Rng(seed);
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), rng.bytes(len));
    s.chunks.clear();
    let mut left = len;
    while left > 0 {
        let n = (rng.between(1, 3) as usize).min(left);
        let mut sges = Vec::new();
        for _ in 0..n {
            let x = (rng.between(1, 20_000) as usize).min(left);
            if x > 0 {
                sges.push(x);
            }
            left -= x;
        }
        s.chunks.push_back(sges);
    }
    let mut r = Rng(seed ^ 99);
    s.sizes = Box::new(move || {
        let n = r.between(1, 3);
        (0..n).map(|_| if r.below(4) == 0 { r.between(1, 64) } else { r.between(1, 9000) } as u32).collect()
    });
    let mut r = Rng(seed ^ 77);
    s.alignment = Box::new(move || r.draw());
    if let Some((loss, dup, reorder, corrupt)) = faults {
        net.faults = Faults { loss, dup, reorder, corrupt, seed };
    }
    let mut streams = [s];
    let start = net.hosts[0].card.cycles();
    run(&mut net, &mut streams, limit);
    println!(
        "{len} bytes in {} cycles; wire faults lost/doubled/reordered/corrupted {:?} and {:?}; resent {}, bad iCRC {}",
        net.hosts[0].card.cycles() - start,
        net.wires[0].faults,
        net.wires[1].faults,
        net.hosts[0].fw_counter(F_RETRANSMITTED),
        net.hosts[1].rtl_counter(berth_abi::counters::C_RX_BAD_ICRC),
    );
    net.faults = Faults::default();
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
    for host in &net.hosts {
        println!("pinned at most {} bytes, {} page requests", host.pinned_peak, host.page_needs);
    }
}

#[test]
fn cr_2_random_sends_fill_random_receives_in_order() {
    random_stream(seed(2), 256 << 10, None, 60_000_000);
}

#[test]
fn qp_7_random_stream_survives_loss_duplication_reordering_and_corruption() {
    random_stream(seed(3), 256 << 10, Some((0.02, 0.02, 0.02, 0.02)), 400_000_000);
}

#[test]
fn cr_14_both_ends_send_at_once() {
    let seed = seed(4);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let mut rng = Rng(seed);
    let mut streams = [
        Stream::new(&mut net, (0, QP_A), (1, QP_B), rng.bytes(64 << 10)),
        Stream::new(&mut net, (1, QP_B), (0, QP_A), rng.bytes(64 << 10)),
    ];
    run(&mut net, &mut streams, 60_000_000);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn qp_18_loopback_between_two_qps_of_one_card() {
    let seed = seed(5);
    let mut host = Host::new(HostConfig { seed, ..HostConfig::default() });
    host.start(&image());
    host.create_cq(CQN, UAR, 8);
    host.create_qp(qp(QP_A));
    host.create_qp(qp(QP_B));
    let mut net = Net::new(vec![host]);
    net.connect(0, QP_A, 0, QP_B, SERVICE);
    let mut streams = [Stream::new(&mut net, (0, QP_A), (0, QP_B), Rng(seed).bytes(64 << 10))];
    run(&mut net, &mut streams, 60_000_000);
    assert!(net.hosts[0].rtl_counter(C_LOOPBACK_FRAMES) > 16);
    assert_eq!(net.hosts[0].rtl_counter(C_TX_FRAMES), 0, "nothing goes to the wire");
    finish(&mut net, &[(0, QP_A), (0, QP_B)]);
}

#[test]
fn pc_3_budget_of_a_few_pages_is_kept_and_the_stream_goes_on() {
    let seed = seed(6);
    let budget = 12 * PAGE;
    let mut net = pair(seed, |_, c| c.budget = budget, QpCreate { block: 8192, ..qp(QP_A) }, qp(QP_B));
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(seed).bytes(128 << 10));
    s.sizes = Box::new(|| vec![8192]);
    s.depth = 32;
    let mut streams = [s];
    run(&mut net, &mut streams, 100_000_000);
    for host in &net.hosts {
        assert!(host.pinned_peak <= budget, "{} bytes pinned", host.pinned_peak);
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn cycles_per_packet() {
    let mut net = pair(1, |_, c| c.limits = (9, 12), qp(QP_A), qp(QP_B));
    let len = 512 << 10;
    let mut s = Stream::new(&mut net, (0, QP_A), (1, QP_B), Rng(1).bytes(len));
    s.sizes = Box::new(|| vec![16384]);
    s.depth = 32;
    let before: Vec<_> = net.hosts.iter_mut().map(|h| (h.card.cycles(), h.rtl_counter(C_IDLE_CYCLES))).collect();
    let mut streams = [s];
    run(&mut net, &mut streams, 60_000_000);
    let packets = (len / 4096) as u64;
    for (host, (cycles, idle)) in net.hosts.iter_mut().zip(before) {
        let all = host.card.cycles() - cycles;
        let busy = all - (host.rtl_counter(C_IDLE_CYCLES) - idle);
        println!(
            "{packets} packets of 4096 bytes: {} cycles each, core busy {} cycles each, {:.2} cycles per byte",
            all / packets,
            busy / packets,
            all as f64 / len as f64
        );
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}
