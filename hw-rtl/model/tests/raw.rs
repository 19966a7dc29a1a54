// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw queues of two cards with firmware: frames of the kernels beside a connection. The firmware image comes from
//! `BERTH_FW_IMAGE`, the seed from `BERTH_SEED`.

mod pair;

use berth_abi::counters::*;
use berth_abi::message::{RawCreate, RawDestroy, RawMode};
use berth_abi::raw::{RAW_DEFAULT, RAW_FRAME_BYTES, RAW_LEAST_BYTES, RAW_MULTICAST, RAW_QPN};
use berth_abi::status::*;
use berth_abi::wqe::*;
use berth_rtl_host::*;
use pair::*;
use std::collections::HashMap;

/// CQ of raw queues, of doorbell page 0 as the kernel's are.
const RAW_CQN: u32 = 2;

/// A queue and the memory behind it.
struct End {
    queue: RawQueue,
    /// Places of frames that go out, free ones.
    out: Vec<u64>,
    /// Receives by their names.
    receives: HashMap<u64, u64>,
    sends: HashMap<u64, u64>,
    next: u64,
    /// Frames that have come.
    got: Vec<Vec<u8>>,
}

const PLACE: u64 = 8192;
const DEPTH: usize = 16;

fn end(host: &mut Host, flags: u8) -> End {
    deep_end(host, flags, DEPTH)
}

/// With so many receives, and sends at a time.
fn deep_end(host: &mut Host, flags: u8, depth: usize) -> End {
    let log2 = depth.ilog2();
    host.create_cq(RAW_CQN, 0, log2 + 2);
    let cqn = RAW_CQN as u16;
    let (log2_sq, log2_rq) = (log2 as u8 + 1, log2 as u8 + 2);
    let want = RawCreate { queue: 0, log2_sq, log2_rq, flags, send_cqn: cqn, recv_cqn: cqn, ..RawCreate::default() };
    let queue = RawQueue::new(host, want);
    let pages = depth as u64 * PLACE / PAGE;
    let (from, to) = (host.memory.alloc(pages, Access::Read), host.memory.alloc(pages, Access::ReadWrite));
    let mut end = End {
        queue,
        out: (0..depth as u64).map(|i| from + i * PLACE).collect(),
        receives: HashMap::new(),
        sends: HashMap::new(),
        next: 1,
        got: Vec::new(),
    };
    for i in 0..depth as u64 {
        end.post(host, to + i * PLACE + i * 7 % 64);
    }
    end.queue.ring(host);
    end
}

impl End {
    fn post(&mut self, host: &Host, at: u64) {
        self.queue.receive(host, self.next, at, RAW_FRAME_BYTES);
        self.receives.insert(self.next, at);
        self.next += 1;
    }

    fn send(&mut self, host: &Host, frame: &[u8]) -> bool {
        let Some(at) = self.out.pop() else { return false };
        host.memory.poke(at, frame);
        self.queue.send(host, self.next, at, frame.len() as u32);
        self.sends.insert(self.next, at);
        self.next += 1;
        true
    }

    /// Takes completions; gives receives back.
    fn poll(&mut self, host: &mut Host) {
        let completions = host.poll_cq(RAW_CQN);
        if completions.is_empty() {
            return;
        }
        for c in completions {
            assert_eq!((c.status, c.qpn, c.flags), (WC_OK, RAW_QPN, 0), "{c:?}");
            if c.opcode == OP_SEND {
                self.out.push(self.sends.remove(&c.wr_id).expect("a send"));
            } else {
                let at = self.receives.remove(&c.wr_id).expect("a receive");
                self.got.push(host.memory.peek(at, c.byte_len as usize));
                self.post(host, at);
            }
        }
        self.queue.ring(host);
    }
}

/// The MAC address of a host, as the driver stand-in names it.
fn mac(net: &Net, d: usize) -> [u8; 6] {
    let frame = net.wires[d].sent.first().expect("it has said its name");
    frame[6..12].try_into().expect("six bytes")
}

fn frame(rng: &mut Rng, to: [u8; 6], from: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.extend(rng.bytes(len - 14));
    frame
}

/// What comes of a frame that was sent.
fn padded(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn qp_6_raw_frames_go_both_ways_beside_a_connection() {
    let seed = seed(71);
    println!("BERTH_SEED={seed}");
    let mut rng = Rng(seed);
    let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
    let macs = [mac(&net, 0), mac(&net, 1)];
    let mut ends: Vec<_> = net.hosts.iter_mut().map(|host| end(host, RAW_DEFAULT)).collect();
    let mut streams = [
        Stream::new(&mut net, (0, QP_A), (1, QP_B), rng.bytes(150_000)),
        Stream::new(&mut net, (1, QP_B), (0, QP_A), rng.bytes(150_000)),
    ];
    let mut left = [150, 150];
    let mut wanted: [Vec<Vec<u8>>; 2] = Default::default();
    net.run_until("frames and streams at their ends", 60_000_000, |net| {
        step(net, &mut streams);
        for d in 0..2 {
            let host = &mut net.hosts[d];
            ends[d].poll(host);
            // No more are under way than there are receives.
            while left[d] > 0 && wanted[1 - d].len() - ends[1 - d].got.len() < DEPTH / 2 {
                let len = rng.between(RAW_LEAST_BYTES.into(), RAW_FRAME_BYTES.into()) as usize;
                let len = if rng.chance(0.5) { len.min(90) } else { len };
                let next = frame(&mut rng, macs[1 - d], macs[d], len);
                if !ends[d].send(&net.hosts[d], &next) {
                    break;
                }
                ends[d].queue.ring(&mut net.hosts[d]);
                wanted[1 - d].push(padded(&next));
                left[d] -= 1;
            }
        }
        left == [0, 0]
            && (0..2).all(|d| ends[d].got.len() == wanted[d].len() && ends[d].out.len() == DEPTH)
            && streams.iter().all(Stream::finished)
    });
    for d in 0..2 {
        assert!(ends[d].got == wanted[d], "frames to host {d} differ");
        assert!(streams[d].received == streams[d].data, "stream {d} differs");
        let host = &mut net.hosts[d];
        let counts = [C_RAW_SENT, C_RAW_RECEIVED, C_RAW_BAD, C_RAW_NO_RECEIVE, C_RAW_TOO_LONG];
        assert_eq!(counts.map(|c| host.rtl_counter(c)), [150, 150, 0, 0, 0]);
        assert_eq!(host.rtl_counter(C_FP_AGAIN), 0, "nothing of the connection is lost");
    }
    for (end, host) in ends.into_iter().zip(&mut net.hosts) {
        assert_eq!(end.queue.end(host).status, CMD_OK);
        assert_eq!(host.command(RawDestroy { queue: 0 }.encode()).status, CMD_NOT_FOUND);
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn qp_6_a_frame_to_the_own_address_comes_back() {
    let mut net = pair(seed(72), |_, _| {}, qp(QP_A), qp(QP_B));
    let own = mac(&net, 0);
    let mut end = end(&mut net.hosts[0], RAW_DEFAULT | RAW_MULTICAST);
    let before = net.wires[0].sent.len();
    let mine = frame(&mut Rng(1), own, own, 20);
    assert!(end.send(&net.hosts[0], &mine));
    end.queue.ring(&mut net.hosts[0]);
    net.run_until("the frame", 1_000_000, |net| {
        end.poll(&mut net.hosts[0]);
        end.got.len() == 1
    });
    assert_eq!(end.got, [padded(&mine)]);
    assert_eq!(net.wires[0].sent.len(), before, "nothing is on the wire");
    assert_eq!(net.hosts[0].command(RawMode { queue: 0, flags: 0 }.encode()).status, CMD_OK);
    assert_eq!(end.queue.end(&mut net.hosts[0]).status, CMD_OK);
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

#[test]
fn qp_6_arp_for_the_card_reaches_the_kernel_and_firmware() {
    let mut net = pair(seed(73), |_, _| {}, qp(QP_A), qp(QP_B));
    let macs = [mac(&net, 0), mac(&net, 1)];
    let ips = [0, 1].map(|d: usize| net.hosts[d].config().ipv4.to_be_bytes());
    let mut ends: Vec<_> = net.hosts.iter_mut().map(|host| end(host, RAW_DEFAULT)).collect();
    let arp = |operation, from: usize, mac: [u8; 6], to: [u8; 6]| {
        let front = [0, 1, 8, 0, 6, 4, 0, operation];
        let arp = [&front[..], &macs[from], &ips[from], &to, &ips[1 - from]].concat();
        padded(&[&mac[..], &macs[from], &[8, 6], &arp].concat())
    };
    // The kernel of host 0 asks for the name that host 1's kernel shares with its card. The card answers, to a name that is
    // shared as well; and does so again as often as it has slots, so that none is lost.
    let ask = arp(1, 0, [0xff; 6], [0; 6]);
    let answer = arp(2, 1, macs[0], macs[0]);
    for round in 1..=DEPTH {
        assert!(ends[0].send(&net.hosts[0], &ask));
        ends[0].queue.ring(&mut net.hosts[0]);
        net.run_until("the request and its answer", 1_000_000, |net| {
            ends.iter_mut().zip(&mut net.hosts).for_each(|(end, host)| end.poll(host));
            ends.iter().all(|end| end.got.len() == round)
        });
        assert_eq!((ends[1].got.last(), ends[0].got.last()), (Some(&ask), Some(&answer)));
    }
    for (end, host) in ends.into_iter().zip(&mut net.hosts) {
        assert_eq!(end.queue.end(host).status, CMD_OK);
    }
    finish(&mut net, &[(0, QP_A), (1, QP_B)]);
}

/// Frames come as fast as another card can send them, of any length: none is lost while receives are posted.
#[test]
fn qp_6_a_flood_loses_no_frame_that_has_a_receive() {
    const FRAMES: usize = 256;
    let seed = seed(74);
    println!("BERTH_SEED={seed}");
    let mut rng = Rng(seed);
    for len in [RAW_LEAST_BYTES as usize, 200, 600, 1514] {
        let mut net = pair(seed, |_, _| {}, qp(QP_A), qp(QP_B));
        let macs = [mac(&net, 0), mac(&net, 1)];
        let mut ends: Vec<_> = net.hosts.iter_mut().map(|host| deep_end(host, RAW_DEFAULT, FRAMES)).collect();
        let wanted: Vec<_> = (0..FRAMES).map(|_| frame(&mut rng, macs[1], macs[0], len)).collect();
        for frame in &wanted {
            assert!(ends[0].send(&net.hosts[0], frame));
        }
        ends[0].queue.ring(&mut net.hosts[0]);
        let mut dropped = [0; 3];
        net.run_until("all frames", 10_000_000, |net| {
            ends.iter_mut().zip(&mut net.hosts).for_each(|(end, host)| end.poll(host));
            dropped = [C_RAW_NO_RECEIVE, C_RAW_NO_SLOT, C_RAW_TOO_LONG].map(|c| net.hosts[1].rtl_counter(c));
            ends[1].got.len() as u64 + dropped.iter().sum::<u64>() == FRAMES as u64
        });
        println!("{len} bytes: {dropped:?} dropped");
        assert_eq!(dropped, [0; 3], "{len} bytes");
        assert!(
            ends[1].got == wanted.iter().map(|frame| padded(frame)).collect::<Vec<_>>(),
            "{len} bytes: frames differ"
        );
        for (end, host) in ends.into_iter().zip(&mut net.hosts) {
            assert_eq!(end.queue.end(host).status, CMD_OK);
        }
        finish(&mut net, &[(0, QP_A), (1, QP_B)]);
    }
}
