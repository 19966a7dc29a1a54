// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random sizes, credits and wire faults. Each case prints its seed; `BERTH_SEED` and
//! `BERTH_CASES` choose others.

mod common;
use berth_abi::card::MAX_LIST;
use berth_abi::counters::{F_CREDITS_OUTSTANDING, F_NO_BUFFER, F_NO_CREDIT, F_RESEND_BLOCKS, F_RETRANSMITTED};
use berth_protocol::model::{Faults, Rng, User, World};
use common::*;

/// One direction of a transfer: bytes of `a` to `b`.
struct Flow {
    a: User,
    b: User,
    data: Vec<u8>,
    /// Cuts of the stream into send WQEs, each a gather list.
    sends: Vec<Vec<(u64, u32)>>,
    recvs: Vec<Vec<(u64, u32)>>,
    sent: usize,
    given: usize,
    got: Vec<u8>,
    seen: usize,
}

/// Cuts `total` bytes at `base` into WQEs of up to `most` bytes with up to 7 SGEs.
fn cut(rng: &mut Rng, base: u64, total: usize, most: usize) -> Vec<Vec<(u64, u32)>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < total {
        let len = (1 + rng.below(most as u64) as usize).min(total - at);
        let sges = 1 + rng.below(7) as usize;
        let mut list = Vec::new();
        let mut left = len;
        for i in 0..sges {
            let part = if i == sges - 1 { left } else { rng.below(left as u64 + 1) as usize };
            list.push((base + (at + len - left) as u64, part as u32));
            left -= part;
        }
        out.push(list);
        at += len;
    }
    out
}

fn case(seed: u64, faults: Faults) -> World {
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let mut w = World::with_mtu(2, rng.draw(), 256 << rng.below(5));
    if seed & 1 != 0 {
        w.edit = Some(go_back_n);
    }
    let both = rng.chance(0.5);
    let qps = 1 + rng.below(3) as u32;
    let mut flows = Vec::new();
    for node in 0..2 {
        w.nodes[node].hw.budget = if rng.chance(0.3) { 40 * 4096 } else { 64 << 20 };
    }
    let mut users = Vec::new();
    for q in 0..qps {
        let tune = |r: u64| {
            move |cmd: &mut [u32; 16]| {
                let trigger = r as u32 % 3;
                cmd[5] = trigger | (r as u32 >> 8 & 7) << 8 | ((r as u32 >> 16) % (MAX_LIST + 1)) << 16;
                cmd[6] = (1 + (r >> 32) as u32 % 16) * 4096;
            }
        };
        let a = w.create_qp(0, 16 + q, ASID, tune(rng.draw()));
        let b = w.create_qp(1, 40 + q, ASID, tune(rng.draw()));
        w.connect(&a, &b, 9);
        users.push((a, b));
    }
    w.faults = faults;
    for (q, (a, b)) in users.into_iter().enumerate() {
        for (a, b, dir) in [(a.clone(), b.clone(), 0u64), (b, a, 1)] {
            if dir == 1 && !both {
                continue;
            }
            let total = 1 + rng.below(200_000) as usize;
            let small = rng.chance(0.3);
            let most = if small { 3000 } else { 60_000 };
            let off = rng.below(5000);
            let src = SRC + (q as u64 * 2 + dir) * 0x100_0000 + off;
            let dst = DST + (q as u64 * 2 + dir) * 0x100_0000 + rng.below(5000);
            let data = pattern(rng.draw(), total);
            w.nodes[a.node].hw.map(ASID, src, total as u64, false);
            w.nodes[a.node].hw.poke(ASID, src, &data);
            // Wasted remainders take receive space, so there is more of it than data.
            let space = total * 3 + 400_000;
            w.nodes[b.node].hw.map(ASID, dst, space as u64, true);
            let most_recv = if rng.chance(0.3) { 3000 } else { 60_000 };
            flows.push(Flow {
                sends: cut(&mut rng, src, total, most),
                recvs: cut(&mut rng, dst, space, most_recv),
                a,
                b,
                data,
                sent: 0,
                given: 0,
                got: Vec::new(),
                seen: 0,
            });
        }
    }
    // Users that belong to two flows share their producer indices.
    let mut rounds = 0u64;
    loop {
        let mut busy = false;
        for f in 0..flows.len() {
            let twin = both.then_some(f ^ 1);
            let done_sends = w.completions(&flows[f].a, false);
            let done_recvs = w.completions(&flows[f].b, true);
            assert!(done_sends.iter().chain(&done_recvs).all(|c| c[4] & 0xff == 0), "{done_sends:x?} {done_recvs:x?}");
            for (i, c) in done_sends.iter().enumerate() {
                assert_eq!(c[0], i as u32, "sends complete in order");
            }
            for c in &done_recvs[flows[f].seen..] {
                assert_eq!(c[0], flows[f].seen as u32);
                let mut left = c[2] as usize;
                let index = c[0] as usize % flows[f].recvs.len();
                for (va, len) in flows[f].recvs[index].clone() {
                    let part = left.min(len as usize);
                    let part = w.nodes[flows[f].b.node].hw.peek(ASID, va, part);
                    flows[f].got.extend(&part);
                    left -= part.len();
                }
                assert_eq!(left, 0);
                flows[f].seen += 1;
            }
            let flow = &mut flows[f];
            if flow.got.len() < flow.data.len() || done_sends.len() < flow.sends.len() {
                busy = true;
            }
            if rounds.is_multiple_of(3) {
                let n = rng.below(12) as usize;
                let mut rung = false;
                for _ in 0..n {
                    if flow.sent < flow.sends.len() && flow.sent - done_sends.len() < 60 {
                        let list = flow.sends[flow.sent].clone();
                        w.post_send(&mut flow.a, &list, flow.sent as u64);
                        flow.sent += 1;
                        rung = true;
                    }
                    let room = flow.recvs.len().min(60);
                    if flow.given - done_recvs.len() < room && flow.got.len() < flow.data.len() {
                        // Buffers that are read out already are used again.
                        let list = flow.recvs[flow.given % flow.recvs.len()].clone();
                        w.post_recv(&mut flow.b, &list, flow.given as u64);
                        flow.given += 1;
                        rung = true;
                    }
                }
                if rung {
                    if let Some(t) = twin {
                        let (a, b) = (flows[f].a.clone(), flows[f].b.clone());
                        flows[t].b.merge(&a);
                        flows[t].a.merge(&b);
                    }
                    w.ring(&flows[f].a);
                    w.ring(&flows[f].b);
                }
            }
        }
        if !busy {
            break;
        }
        rounds += 1;
        if rounds > 100_000 {
            for f in &flows {
                println!(
                    "{:?} -> {:?}: {} of {}, sends {} of {}, recvs {}",
                    f.a.qpn,
                    f.b.qpn,
                    f.got.len(),
                    f.data.len(),
                    f.sent,
                    f.sends.len(),
                    f.given
                );
                w.dump(f.a.node, f.a.qpn);
                w.dump(f.b.node, f.b.qpn);
            }
            panic!("no end in sight");
        }
        w.run(10_000);
    }
    for f in &flows {
        assert!(f.got == f.data, "bytes differ");
    }
    for i in 0..2 {
        assert_eq!(w.counter(i, F_NO_BUFFER), 0);
        assert_eq!(w.counter(i, F_NO_CREDIT), 0);
    }
    for f in &flows {
        for user in [&f.a, &f.b] {
            if w.nodes[user.node].card.state_of(user.qpn) != 0 {
                w.destroy(user);
            }
        }
    }
    w.run(100_000_000);
    assert_clean(&mut w);
    for i in 0..2 {
        assert_eq!(w.counter(i, F_CREDITS_OUTSTANDING), 0);
    }
    w
}

/// Runs the cases; gives the sums of both cards' firmware counters. Worlds are large: none is kept.
fn run(cases: u64, base: u64, faults: impl Fn(&mut Rng) -> Faults, check: impl Fn(&World)) -> Vec<u64> {
    let base = std::env::var("BERTH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(base);
    let cases = std::env::var("BERTH_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(cases);
    let mut sums = vec![0; berth_abi::counters::NUM_FW_COUNTERS];
    for seed in base..base + cases {
        let world = case(seed, faults(&mut Rng(!seed)));
        check(&world);
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += world.counter(0, i as u32) + world.counter(1, i as u32);
        }
    }
    sums
}

#[test]
fn cr_2_random_sizes_and_credits_arrive_once_in_order_unchanged() {
    run(
        20,
        1000,
        |_| Faults::default(),
        |w| {
            // Without faults, and with memory for all, nothing is sent again.
            if w.nodes.iter().all(|node| node.hw.budget > 1 << 20) {
                assert_eq!(w.counter(0, F_RETRANSMITTED) + w.counter(1, F_RETRANSMITTED), 0);
            }
        },
    );
}

#[test]
fn qp_7_lost_duplicated_reordered_and_corrupt_frames_change_nothing() {
    let sums = run(
        20,
        2000,
        |rng| Faults {
            loss: rng.below(80) as f64 / 1000.0,
            dup: rng.below(80) as f64 / 1000.0,
            reorder: rng.below(80) as f64 / 1000.0,
            corrupt: rng.below(50) as f64 / 1000.0,
        },
        |_| (),
    );
    assert!(sums[F_RETRANSMITTED as usize] > 0);
    assert!(sums[F_RESEND_BLOCKS as usize] > 0, "VC-4: blocks are asked for again");
}
