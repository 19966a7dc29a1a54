// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_rx` against the golden responder: see `rx`.
#![cfg(feature = "fastpath")]

mod rx;

use berth_protocol::rc::{Placement, Position, RequestPacket, ResponseBody, ResponsePacket, Syndrome};
use berth_random::{Rng, mix};
use berth_rtl_unit::Module;
use rx::{Rig, World};

const NAME: &str = "berth_fp_rx";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn widths() -> Vec<u32> {
    Module::widths(NAME)
}

/// Where receive `n` of QP `q` lies: pages of its own.
fn buffer(q: u32, n: usize, pages: u64) -> u64 {
    (u64::from(q) << 32) + 0x10_0000 + n as u64 % 256 * pages * 4096
}

/// Keeps `depth` receives of `size` bytes posted, `batch` with a doorbell, and sends until each QP has `count` completions.
fn stream(rig: &mut Rig, count: usize, depth: usize, batch: usize, size: u32, len: u32) {
    let pages = u64::from(size.div_ceil(4096));
    let qps = rig.qps.len();
    let mut done = |rig: &mut Rig| {
        for i in 0..qps {
            let want = (count - rig.qps[i].recvs.len()).min(depth - rig.open(i));
            if want >= batch || want > 0 && rig.qps[i].recvs.len() + want == count {
                for _ in 0..want {
                    let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                    rig.post(i, &[(buffer(q, n, pages), size)]);
                }
                rig.ring(i);
            }
            while rig.usable(i) > 0 && rig.qps[i].sent.len() < count {
                let before = rig.qps[i].sent.len();
                rig.send(i, len, false);
                if rig.qps[i].sent.len() == before {
                    break;
                }
            }
        }
        rig.qps.iter().all(|qp| qp.cqes.len() == count)
    };
    rig.until(400_000, "the end of the stream", &mut done);
    rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
    assert!(rig.events.is_empty() && rig.core.is_empty(), "firmware had to do nothing");
}

#[test]
fn one_qp_stream_aligned_and_warm() {
    for width in widths() {
        let mut rig = Rig::new(World { width, ..World::default() }, 1);
        stream(&mut rig, 40, 16, 4, 4096, 4096);
    }
}

#[test]
fn dec_5_a_batch_is_announced_when_all_of_it_is_held() {
    for width in widths() {
        let mut rig = Rig::new(World { width, warm: 0, ..World::default() }, 2);
        for n in 0..7 {
            rig.post(0, &[(buffer(16, n, 1), 4096)]);
        }
        rig.ring(0);
        rig.until(20_000, "a list", |rig| rig.lists_out == 1);
        assert_eq!(rig.held(), 7);
        rig.until(2000, "its arrival", |rig| rig.usable(0) == 7);
        stream(&mut rig, 30, 10, 1, 4096, 3000);
    }
}

#[test]
fn rates_and_latency() {
    for width in widths() {
        for (qps, bar) in [(16, 8.0), (1, 16.0)] {
            let mut rig = Rig::new(World { width, qps, ..World::default() }, 3);
            let count = 400;
            // The first half fills the pipes.
            let half = count / 2 * qps as usize;
            let mut start = 0;
            let pages = 1;
            rig.until(400_000, "the messages", |rig| {
                for i in 0..qps as usize {
                    let want = (count - rig.qps[i].recvs.len()).min(64 - rig.open(i));
                    if want >= 16 || want > 0 && rig.qps[i].recvs.len() + want == count {
                        for _ in 0..want {
                            let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                            rig.post(i, &[(buffer(q, n, pages), 64)]);
                        }
                        rig.ring(i);
                    }
                    while rig.usable(i) > 0 && rig.qps[i].sent.len() < count {
                        rig.send(i, 64, false);
                    }
                }
                if rig.cqe_count as usize >= half && start == 0 {
                    start = rig.now();
                }
                rig.cqe_count as usize == count * qps as usize
            });
            let per = (rig.now() - start) as f64 / half as f64;
            assert!(per <= bar, "{per:.1} cycles per message");
            println!(
                "{width} bits, {qps} QPs, 64 B messages: {per:.1} cycles each (bar {bar}), {} lists",
                rig.lists_out
            );
        }
        let mut rig = Rig::new(World { width, ..World::default() }, 4);
        rig.post(0, &[(buffer(16, 0, 1), 64)]);
        rig.ring(0);
        rig.until(5000, "a credit", |rig| rig.usable(0) == 1);
        rig.send(0, 64, false);
        rig.until(500, "its completion", |rig| rig.cqe_count == 1);
        let beats = u64::from(64_u32.div_ceil(width / 8));
        println!(
            "{width} bits: frame shown to completion shown: {} cycles, of them {} from the write command to its end",
            rig.last_cqe - rig.last_frame,
            rig.world.write + beats
        );
    }
}

#[test]
fn random_streams_are_as_the_model_has_them() {
    let seed = number("BERTH_SEED", 7);
    let cases = number("BERTH_CASES", 24);
    println!("BERTH_SEED={seed} BERTH_CASES={cases}");
    for width in widths() {
        let mut verdicts = [0; 11];
        for case in 0..cases {
            let mut draw = Rng(mix(seed) ^ mix(case));
            let faults = draw.chance(0.6);
            let percent = |draw: &mut Rng, most: u64| if faults { draw.below(most + 1) } else { 0 };
            let selective = draw.chance(0.7);
            let world = World {
                width,
                qps: *[1, 2, 5, 16].get(draw.below(4) as usize).expect("one of four"),
                log2_mtu: 8 + draw.below(5) as u8,
                selective,
                foreign: !selective && draw.chance(0.4),
                message_mode: draw.chance(0.3),
                max_list: draw.between(1, 64) as u32,
                trigger: (draw.below(3) as u32, draw.below(20) as u32),
                few: if draw.chance(0.3) { draw.below(20) as u32 } else { 0 },
                repeat: 100,
                read: draw.between(5, 300),
                write: draw.between(1, 60),
                xlat: draw.between(1, 20),
                service: draw.between(10, 2500),
                warm: draw.below(101),
                stall: if draw.chance(0.5) { draw.below(60) } else { 0 },
                loss: percent(&mut draw, 8),
                twice: percent(&mut draw, 8),
                late: percent(&mut draw, 20),
                list_loss: percent(&mut draw, 30),
                timeout: 4000,
            };
            println!("case {case}: {world:?}");
            let seen = scenario(Rig::new(world, draw.draw()), &mut draw);
            verdicts.iter_mut().zip(seen).for_each(|(sum, n)| *sum += n);
        }
        println!("{width} bits: packets placed, taken, twice, dropped (order, window, RNR, ...): {verdicts:?}");
        assert!(cases < 24 || [0, 1, 2, 4, 6].iter().all(|&v| verdicts[v] > 0), "something was never tried");
    }
}

/// Receives of all kinds, messages of all lengths, until all are through.
fn scenario(mut rig: Rig, draw: &mut Rng) -> [u64; 11] {
    let qps = rig.qps.len();
    let count = 20 + draw.below(100) as usize / qps;
    let most = 3 << rig.world.log2_mtu;
    let mut draw = draw.clone();
    rig.until(3_000_000, "the end", |rig| {
        for i in 0..qps {
            let posted = rig.qps[i].recvs.len();
            if posted < count && rig.open(i) < 100 && draw.chance(0.02) {
                for _ in 0..draw.between(1, 6) {
                    let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                    let mut at = buffer(q, n, 32) + draw.below(4096);
                    let sges: Vec<(u64, u32)> = (0..draw.below(8))
                        .map(|_| {
                            let len = if draw.chance(0.1) { 0 } else { draw.below(most) as u32 };
                            let sge = (at, len);
                            at += u64::from(len) + draw.below(300);
                            sge
                        })
                        .collect();
                    rig.post(i, &sges);
                    if draw.chance(0.03) {
                        rig.spoil(i);
                    } else if draw.chance(0.05) {
                        rig.refuse(i, draw.between(1, 2) as u8);
                    }
                }
                rig.ring(i);
            }
            if rig.usable(i) > 0 && draw.chance(0.1) {
                let least = u64::from(!rig.world.message_mode);
                let len = draw.between(least, 2 * most) as u32;
                rig.send(i, len, draw.chance(0.2));
            }
        }
        rig.qps.iter().all(|qp| qp.recvs.len() >= count && qp.cqes.len() == qp.recvs.len())
    });
    rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
    assert!(rig.events.is_empty() && rig.core.is_empty(), "firmware had to do nothing: {:x?}", rig.events);
    rig.verdicts
}

fn packet(psn: u32, len: u32, credit: u8, index: u32, position: Position) -> RequestPacket {
    let placement = Some(Placement { credit, index });
    RequestPacket { psn, len, position, placement, ..RequestPacket::default() }
}

#[test]
fn inv_1_what_has_no_credit_or_does_not_fit_breaks_the_connection() {
    for width in widths() {
        // No credit; longer than the credit; a piece that begins in its middle.
        for (len, credit, index, position, fault) in [
            (64, 1, 0, Position::Only, 4),
            (65, 0, 0, Position::Only, 5),
            (64, 0, 1, Position::Last, 5),
            (64, 0, 1, Position::Only, 6),
        ] {
            // The far end has sent nothing and must not hear of it.
            let mut rig = Rig::new(World { width, loss: 100, ..World::default() }, 5);
            rig.post(0, &[(buffer(16, 0, 1), 64)]);
            rig.ring(0);
            rig.until(5000, "a credit", |rig| rig.usable(0) == 1);
            let psn = rig.qps[0].model.arrival().expected().get();
            let frame = rig.frame(0, &packet(psn, len, credit, index, position), &vec![1; len as usize]);
            rig.inject(frame, 1);
            rig.until(500, "the event", |rig| rig.qps[0].broken == Some(fault));
            rig.until(500, "the NAK", |rig| !rig.replies.is_empty());
            assert!(matches!(rig.replies[0].body, ResponseBody::Ack { syndrome: Syndrome::Nak(_), sack: None }));
            assert_eq!(rig.cqe_count, 0);
        }
    }
}

#[test]
fn acks_and_lists_go_to_the_transmit_half_and_strangers_to_the_core() {
    for width in widths() {
        let mut rig = Rig::new(World { width, qps: 2, stall: 30, ..World::default() }, 6);
        let body = |sack| ResponseBody::Ack { syndrome: Syndrome::Ack(31), sack };
        let ack = ResponsePacket { psn: 0x12_3456, msn: 1, body: body(None) };
        let frame = rig.ack_frame(1, &ack);
        rig.inject(frame, 1);
        let bits = 0x8000_0000_0000_0000_0000_0000_0000_0007;
        let frame = rig.ack_frame(0, &ResponsePacket { body: body(Some(bits)), ..ack });
        rig.inject(frame, 2);
        for n in [1, 2, 31, 64] {
            let sizes: Vec<u32> = (0..n).map(|k| 0x0102_0304 * k + n).collect();
            let frame = rig.list_frame(n as usize % 2, n * 100, &sizes);
            rig.inject(frame, 3);
        }
        // From another peer, to another card, to a QP that is off, with a bad IPv4 checksum, another epoch.
        let good = rig.ack_frame(0, &ack);
        for at in [7, 3, 48, 25] {
            let mut frame = good.clone();
            frame[at] ^= 1;
            rig.inject(frame, 4);
        }
        let mut frame = rig.list_frame(0, 5, &[1]);
        frame[66] ^= 1;
        rig.inject(frame, 4);
        rig.until(5000, "all of it", |rig| rig.lists_in.len() == 4 && rig.acks_in.len() == 2 && rig.core.len() == 5);
        rig.until(500, "the last sizes", |rig| rig.lists_in.iter().all(|l| l.2.len() as u32 == l.1 / 100));
        assert_eq!(rig.acks_in[0], (17, 0x12_3456, 31, None));
        assert_eq!(rig.acks_in[1], (16, 0x12_3456, 31, Some(bits)));
        for (q, first, sizes) in &rig.lists_in {
            let n = first / 100;
            assert_eq!(*q, 16 + n % 2);
            assert!(sizes.iter().zip(0..).all(|(size, k)| *size == 0x0102_0304 * k + n));
        }
    }
}
