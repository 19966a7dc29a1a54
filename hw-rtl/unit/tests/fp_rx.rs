// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `berth_fp_rx` against the golden responder: see `rx`.
#![cfg(feature = "fastpath")]

#[expect(dead_code, reason = "scenarios.rs uses all of it")]
mod rx;

use berth_protocol::rc::{Placement, Position, RequestPacket, ResponseBody, ResponsePacket, Syndrome};
use berth_rtl_unit::Module;
use rx::{Rig, World, buffer};

const NAME: &str = "berth_fp_rx";

fn widths() -> Vec<u32> {
    Module::widths(NAME)
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
