// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fast path against the golden model, scenario by scenario. A scenario is one configuration of one or several QPs
//! drawn from a seed; per QP what the RTL does must be what the model does, in its order: frames, completions, memory
//! acquired and given back, events.
//!
//! | kind | RTL | model |
//! |---|---|---|
//! | sending, resending | `berth_fp_tx` (`tx`) | `cut::NicCut`, `credit::Reader`, `rc::Requester` |
//! | receiving | `berth_fp_rx` (`rx`) | `rc::Responder` behind `rc::Requester` |
//! | both ends | two `berth_fp` and a wire (`pair`) | the same, both ways |
//!
//! `BERTH_CASES` gives their number, of each kind and at each width; `BERTH_SEED` the first one's seed. One that fails
//! prints the seed with which it runs alone.
#![cfg(feature = "fastpath")]

#[expect(dead_code, reason = "fp_rx.rs uses all of it")]
mod rx;
#[expect(dead_code, reason = "fp_tx.rs uses all of it")]
mod tx;

use berth_random::{Rng, mix};
use berth_rtl_unit::Module;
use rx::{Rig, World, buffer};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tx::{Bench, Setup};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// Says how to run a scenario again, if it is left by a panic.
struct Named<'a> {
    kind: &'a str,
    width: u32,
    seed: u64,
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let Self { kind, width, seed } = self;
            eprintln!("to run it again: BERTH_SEED={seed} BERTH_CASES=1 BERTH_DATA_W={width}, test `{kind}`");
        }
    }
}

/// Runs scenarios of a kind at every width that is built in, on all processors: `normal` of them unless told.
fn run(kind: &str, unit: &str, normal: u64, scenario: impl Fn(u32, &mut Rng) + Sync) {
    let first = number("BERTH_SEED").unwrap_or(1);
    let count = number("BERTH_CASES").unwrap_or(normal);
    let only = number("BERTH_DATA_W");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for width in Module::widths(unit).into_iter().filter(|w| only.is_none_or(|only| only == u64::from(*w))) {
        let next = AtomicU64::new(0);
        let work = || {
            while let case = next.fetch_add(1, Ordering::Relaxed)
                && case < count
            {
                let seed = first.wrapping_add(case);
                let _named = Named { kind, width, seed };
                scenario(width, &mut Rng(mix(seed) ^ mix(u64::from(width))));
            }
        };
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        println!("scenarios: DATA_W {width}, {kind}: {count} as the golden model has them (from BERTH_SEED={first})");
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

#[test]
fn sending_on_a_clean_wire() {
    run("sending_on_a_clean_wire", "berth_fp_tx", 100, |width, rng| {
        let setup = Setup { stalls: pick(rng, &[0.0, 0.1, 0.5]), jitter: rng.below(300), ..Setup::default() };
        Bench::random(rng, width, setup, &[true, false]).finish(3_000_000);
    });
}

#[test]
fn sending_with_loss_reordering_page_faults_and_failed_reads() {
    run("sending_with_loss_reordering_page_faults_and_failed_reads", "berth_fp_tx", 150, |width, rng| {
        let setup = Setup {
            stalls: pick(rng, &[0.0, 0.2]),
            jitter: rng.below(300),
            loss: pick(rng, &[0.0, 0.01, 0.1]),
            twice: pick(rng, &[0.0, 0.05]),
            late: pick(rng, &[0, 100, 1_000]),
            missing: pick(rng, &[0.0, 0.3]),
            service: rng.between(1, 4_000),
            read_failures: pick(rng, &[0.0, 0.02]),
            ..Setup::default()
        };
        Bench::random(rng, width, setup, &[true, false]).finish(3_000_000);
    });
}

#[test]
fn sending_while_memory_is_withdrawn() {
    run("sending_while_memory_is_withdrawn", "berth_fp_tx", 50, |width, rng| {
        let setup = Setup {
            stalls: pick(rng, &[0.0, 0.2]),
            loss: pick(rng, &[0.01, 0.1]),
            missing: pick(rng, &[0.0, 0.3]),
            service: rng.between(1, 4_000),
            ..Setup::default()
        };
        let mut bench = Bench::random(rng, width, setup, &[true, false]);
        for _ in 0..rng.between(1, 8) {
            bench.run(rng.below(4_000));
            let len = 1 << rng.between(12, 21);
            bench.revoke(rng.below(1 << 22) & !0xfff, len);
        }
        bench.finish(3_000_000);
    });
}

#[test]
fn what_is_sent_again_is_what_the_golden_model_sends_again() {
    run("what_is_sent_again_is_what_the_golden_model_sends_again", "berth_fp_tx", 100, |width, rng| {
        let mut bench = Bench::new(width, Setup::default(), rng.draw());
        bench.follow_golden_model(rng);
        bench.finish(100_000);
    });
}

#[test]
fn receiving() {
    let seen = Mutex::new([0_u64; 11]);
    run("receiving", "berth_fp_rx", 150, |width, rng| {
        let faults = rng.chance(0.6);
        let percent = |rng: &mut Rng, most: u64| if faults { rng.below(most + 1) } else { 0 };
        let selective = rng.chance(0.7);
        let world = World {
            width,
            qps: pick(rng, &[1, 2, 5, 16]),
            log2_mtu: 8 + rng.below(5) as u8,
            selective,
            foreign: !selective && rng.chance(0.4),
            message_mode: rng.chance(0.3),
            max_list: rng.between(1, 64) as u32,
            trigger: (rng.below(3) as u32, rng.below(20) as u32),
            few: if rng.chance(0.3) { rng.below(20) as u32 } else { 0 },
            repeat: 100,
            read: rng.between(5, 300),
            write: rng.between(1, 60),
            xlat: rng.between(1, 20),
            service: rng.between(10, 2500),
            warm: rng.below(101),
            stall: if rng.chance(0.5) { rng.below(60) } else { 0 },
            loss: percent(rng, 8),
            twice: percent(rng, 8),
            late: percent(rng, 20),
            list_loss: percent(rng, 30),
            timeout: 4000,
        };
        let verdicts = receive(Rig::new(world, rng.draw()), rng);
        seen.lock().expect("no scenario has failed").iter_mut().zip(verdicts).for_each(|(sum, n)| *sum += n);
    });
    let seen = seen.into_inner().expect("no scenario has failed");
    println!("packets placed, taken, twice, dropped (order, window, RNR, ...): {seen:?}");
    assert!(number("BERTH_CASES").is_some() || [0, 1, 2, 4, 6].iter().all(|&v| seen[v] > 0), "never tried");
}

/// Receives of all kinds, messages of all lengths, until all are through; how packets were judged.
fn receive(mut rig: Rig, rng: &mut Rng) -> [u64; 11] {
    let qps = rig.qps.len();
    let count = 20 + rng.below(100) as usize / qps;
    let most = 3 << rig.world.log2_mtu;
    rig.until(3_000_000, "the end", |rig| {
        for i in 0..qps {
            let posted = rig.qps[i].recvs.len();
            if posted < count && rig.open(i) < 100 && rng.chance(0.02) {
                for _ in 0..rng.between(1, 6) {
                    let (q, n) = (rig.qps[i].q, rig.qps[i].recvs.len());
                    let mut at = buffer(q, n, 32) + rng.below(4096);
                    let sges: Vec<(u64, u32)> = (0..rng.below(8))
                        .map(|_| {
                            let len = if rng.chance(0.1) { 0 } else { rng.below(most) as u32 };
                            let sge = (at, len);
                            at += u64::from(len) + rng.below(300);
                            sge
                        })
                        .collect();
                    rig.post(i, &sges);
                    if rng.chance(0.03) {
                        rig.spoil(i);
                    } else if rng.chance(0.05) {
                        rig.refuse(i, rng.between(1, 2) as u8);
                    }
                }
                rig.ring(i);
            }
            if rig.usable(i) > 0 && rng.chance(0.1) {
                let least = u64::from(!rig.world.message_mode);
                let len = rng.between(least, 2 * most) as u32;
                rig.send(i, len, rng.chance(0.2));
            }
        }
        rig.qps.iter().all(|qp| qp.recvs.len() >= count && qp.cqes.len() == qp.recvs.len())
    });
    rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
    assert!(rig.events.is_empty() && rig.core.is_empty(), "firmware had to do nothing: {:x?}", rig.events);
    rig.verdicts
}
