// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The fast path against the golden model, scenario by scenario. A scenario is one configuration of one or several QPs
//! drawn from a seed; per QP what the RTL does must be what the model does, in its order: frames, completions, memory
//! acquired and given back, events.
//!
//! | kind | RTL | model |
//! |---|---|---|
//! | sending, resending | `berth_fp_tx` (`tx`) | `cut::NicCut`, `credit::list::Reader`, `rc::Requester` |
//! | receiving | `berth_fp_rx` (`rx`) | `rc::Responder` behind `rc::Requester` |
//! | both ends | two `berth_fp` and a wire (`pair`) | the same, both ways |
//!
//! `BERTH_CASES` gives their number, of each kind; `BERTH_SEED` the first one's seed. One that fails prints the seed with
//! which it runs alone, exactly as before: also what memories begin with comes from it.
#![cfg(feature = "fastpath")]

mod pair;
#[expect(dead_code, reason = "fp_rx.rs uses all of it")]
mod rx;
#[expect(dead_code, reason = "fp_tx.rs uses all of it")]
mod tx;

use berth_abi::card::MAX_READS;
use berth_abi::status::{PAGE_FAULT, PAGE_NO_MEMORY, PAGE_OVER_BUDGET};
use berth_protocol::memory::keys::{ATOMIC, Binding, READ, WRITE};
use berth_random::{Rng, cases, mix, number};
use berth_rtl_unit::Module;
use pair::{Pair, Settings};
use rx::{Atomic, FRESH, Rig, World, buffer, target};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tx::{Bench, Element, Setup};

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

/// Runs scenarios of a kind on all processors: `normal` of them unless told, each at one of the widths that are built in.
fn run(kind: &str, unit: &str, normal: u64, scenario: impl Fn(u32, &mut Rng) + Sync) {
    let first = number("BERTH_SEED").unwrap_or(1);
    let count = cases(normal);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let widths = Module::widths(unit);
    let next = AtomicU64::new(0);
    let work = || {
        while let case = next.fetch_add(1, Ordering::Relaxed)
            && case < count
        {
            let seed = first.wrapping_add(case);
            let Some(&width) = widths.get((seed % widths.len().max(1) as u64) as usize) else { return };
            let _named = Named { kind, width, seed };
            scenario(width, &mut Rng(mix(seed) ^ mix(u64::from(width))));
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    println!("scenarios: {kind}: {count} at DATA_W {widths:?} as the golden model has them (from BERTH_SEED={first})");
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

#[test]
fn sending_on_a_clean_wire() {
    run("sending_on_a_clean_wire", "berth_fp_tx", 90, |width, rng| {
        let setup = Setup { stalls: pick(rng, &[0.0, 0.1, 0.5]), jitter: rng.below(300), ..Setup::default() };
        Bench::random(rng, width, setup, &[true, false]).finish(3_000_000);
    });
}

#[test]
fn sending_with_loss_reordering_page_faults_and_failed_reads() {
    run("sending_with_loss_reordering_page_faults_and_failed_reads", "berth_fp_tx", 110, |width, rng| {
        let setup = Setup {
            stalls: pick(rng, &[0.0, 0.2]),
            jitter: rng.below(300),
            loss: pick(rng, &[0.0, 0.01, 0.1]),
            twice: pick(rng, &[0.0, 0.05]),
            late: pick(rng, &[0, 100, 1_000]),
            missing: pick(rng, &[0.0, 0.3]),
            unmaps: rng.chance(0.5),
            service: rng.between(1, 4_000),
            read_failures: pick(rng, &[0.0, 0.02]),
            write_failures: pick(rng, &[0.0, 0.05]),
            write: rng.between(1, 400),
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
    run("what_is_sent_again_is_what_the_golden_model_sends_again", "berth_fp_tx", 70, |width, rng| {
        let mut bench = Bench::new(width, Setup::default(), rng.draw());
        bench.follow_golden_model(rng);
        bench.finish(100_000);
    });
}

#[test]
fn receiving() {
    let seen = Mutex::new([0_u64; 14]);
    run("receiving", "berth_fp_rx", 90, |width, rng| {
        let faults = rng.chance(0.6);
        let percent = |rng: &mut Rng, most: u64| if faults { rng.below(most + 1) } else { 0 };
        let selective = rng.chance(0.7);
        let world = World {
            width,
            qps: pick(rng, &[1, 2, 5, 16]),
            log2_mtu: 8 + rng.below(5) as u8,
            selective,
            writes_in_order: rng.chance(0.3),
            foreign: !selective && rng.chance(0.4),
            message_mode: rng.chance(0.3),
            invalidates: if rng.chance(0.5) { 30 } else { 0 },
            max_list: rng.between(1, 64) as u32,
            trigger: (rng.below(4) as u32, rng.below(20) as u32),
            few: if rng.chance(0.3) { rng.below(20) as u32 } else { 0 },
            // fixed, or with what is measured on top
            limit: if rng.chance(0.3) { rng.below(2) as u32 * 0x0400_0000 + rng.between(1, 60) as u32 } else { 0 },
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
            reads: rng.between(1, u64::from(MAX_READS)) as u32,
            denies: 0,
        };
        let verdicts = receive(Rig::new(world, rng.draw()), rng);
        seen.lock().expect("no scenario has failed").iter_mut().zip(verdicts).for_each(|(sum, n)| *sum += n);
    });
    let seen = seen.into_inner().expect("no scenario has failed");
    println!("packets placed, taken, twice, dropped (order, window, RNR, ...): {seen:?}");
    assert!(number("BERTH_CASES").is_some() || [0, 1, 2, 4, 6].iter().all(|&v| seen[v] > 0), "never tried");
}

/// Receives of all kinds, messages of all lengths, until all are through; how packets were judged.
fn receive(mut rig: Rig, rng: &mut Rng) -> [u64; 14] {
    let qps = rig.qps.len();
    let count = 20 + rng.below(100) as usize / qps;
    let most = 3 << rig.world.log2_mtu;
    // Memory that the peer may write to.
    let targets: Vec<_> = (0..if rig.world.selective { qps } else { 0 })
        .map(|i| {
            let (va, len) = (target(rig.qps[i].q) + rng.below(4096), 1 + rng.below(200_000));
            (va, len, rig.bind(i, Binding { va, len, rights: WRITE, ..Binding::default() }))
        })
        .collect();
    // And memory that it may change, eight bytes at a time, and read.
    let numbers: Vec<_> = (0..targets.len())
        .map(|i| {
            let va = target(rig.qps[i].q) + 0x2000_0000 + 8 * rng.below(600);
            (va, rig.bind(i, Binding { va, len: 64, rights: ATOMIC, ..Binding::default() }))
        })
        .collect();
    // And memory that it may read.
    let sources: Vec<_> = (0..targets.len())
        .map(|i| {
            let (va, len) = (target(rig.qps[i].q) + 0x1000_0000 + rng.below(4096), 1 + rng.below(200_000));
            rig.fill(i, va, len as u32);
            (va, len, rig.bind(i, Binding { va, len, rights: READ, ..Binding::default() }))
        })
        .collect();
    rig.until(3_000_000, "the end", |rig| {
        for i in 0..qps {
            if let Some(&(va, len, key)) = sources.get(i)
                && rig.qps[i].reads.len() < count
                && rng.chance(0.01)
            {
                let at = rng.below(len);
                let bytes = rng.below((len - at).min(10 * most) + 1) as u32;
                rig.read_from(i, va + at, bytes, key);
            }
            if let Some(&(va, key)) = numbers.get(i)
                && rig.qps[i].atomics.len() < count
                && rng.chance(0.01)
            {
                let (add, va) = (rng.chance(0.5), va + 8 * rng.below(8));
                let fresh = u64::from_le_bytes([FRESH; 8]);
                let compare = if add {
                    0
                } else if rng.chance(0.5) {
                    fresh
                } else {
                    rng.draw()
                };
                rig.change(i, Atomic { add, va, operands: [rng.draw(), compare] }, key);
            }
            if let Some(&(va, _)) = numbers.get(i)
                && rng.chance(0.0001)
            {
                rig.host.evict(rig.qps[i].q, va, 64);
            }
            if let Some(&(va, len, _)) = sources.get(i)
                && rng.chance(0.0001)
            {
                rig.host.evict(rig.qps[i].q, va, len);
            }
            if let Some(&(va, len, key)) = targets.get(i)
                && rig.qps[i].written.len() < 2 * count
                && rng.chance(0.02)
            {
                let at = rng.below(len);
                let bytes = rng.below((len - at).min(2 * most) + 1) as u32;
                let immediate = (rig.usable(i) > 0 && rng.chance(0.1)).then(|| rng.draw() as u32);
                rig.write(i, va + at, bytes, key, immediate);
            }
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
                        let why = [PAGE_FAULT, PAGE_OVER_BUDGET, PAGE_NO_MEMORY][rng.below(3) as usize];
                        rig.refuse(i, why as u8);
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
        rig.qps
            .iter()
            .all(|qp| qp.recvs.len() >= count && qp.cqes.len() == qp.recvs.len() && qp.requester.pending() == 0)
    });
    (0..qps).for_each(|i| rig.check_written(i));
    (0..qps).for_each(|i| rig.check_read(i));
    (0..qps).for_each(|i| rig.check_atomics(i));
    rig.until(20_000, "all to be released and as the model has it", |rig| rig.settled());
    rig.rests();
    assert!(rig.events.is_empty() && rig.core.is_empty(), "firmware had to do nothing: {:x?}", rig.events);
    rig.verdicts
}

/// WRITEs, READs and atomics of scenarios, and how often they had to wait for memory.
#[derive(Default)]
struct Remote {
    writes: AtomicU64,
    reads: AtomicU64,
    atomics: AtomicU64,
    waits: AtomicU64,
}

impl Remote {
    fn tell(&self) {
        let counts = [&self.writes, &self.reads, &self.atomics, &self.waits].map(|count| count.load(Ordering::Relaxed));
        println!("WRITEs, READs, atomics, waits for memory: {counts:?}");
        assert!(number("BERTH_CASES").is_some() || !counts.contains(&0), "never tried");
    }
}

/// Two cards with everything at random; posts as it goes.
fn both_ends(rng: &mut Rng, world: pair::World, remote: &Remote) {
    let faulty = world.loss > 0.0 || world.late > 0;
    let mut pair = Pair::new(world, rng.draw());
    let flows = rng.between(1, 5) as u32;
    let mut left = Vec::new();
    for i in 0..flows {
        let rows = [i * 7 + rng.below(7) as u32, i * 9 + rng.below(9) as u32];
        let message = rng.chance(0.3);
        let settings = Settings {
            message,
            selective: rng.chance(0.7),
            log2_mtu: rng.between(8, 12) as u32,
            window: rng.between(1, 255) as u32,
            ahead: rng.between(1, 32) as u32,
            log2_block: rng.between(12, 16) as u32,
            first_psn: (rng.below(400) as u32).wrapping_sub(200) & 0xff_ffff,
            timeout: if faulty { 300 } else { 0 },
            reads: rng.between(1, u64::from(MAX_READS)) as u32,
            ..Settings::default()
        };
        pair.connect(rows, &settings);
        for end in 0..2 {
            left.push((end, rows[end], message, rng.below(25)));
        }
    }
    pair.until(3_000_000, "the end", |pair| {
        for (end, q, message, sends) in &mut left {
            if *sends > 0 && rng.chance(0.02) {
                let mut group: Vec<Element> =
                    (0..rng.between(1, 4)).map(|_| pair.random_element(*end, *q, *message)).collect();
                // Something says that all is over.
                group.last_mut().expect("one").quiet = false;
                pair.send(*end, *q, &group, rng.chance(0.5));
                *sends -= 1;
            }
            // Receives as long as there is something to send.
            if pair.open(*end, *q) < 60 && pair.flows[*end][q].wants_receives() && rng.chance(0.02) {
                let most = if *message { 16_000 } else { 1 << rng.between(5, 14) };
                let least = if *message { 8_200 } else { 1 };
                let recvs: Vec<Vec<(u64, u32)>> = (0..rng.between(1, 30))
                    .map(|n| {
                        let n = pair.posted(*end, *q) + n as usize;
                        let at = Pair::buffer(*end, *q, n, 8) + rng.below(4096);
                        let size = rng.between(least, most) as u32;
                        let cut = if rng.chance(0.5) { rng.below(u64::from(size)) as u32 } else { 0 };
                        vec![(at, size - cut), (at + u64::from(size) + rng.below(100), cut)]
                    })
                    .collect();
                pair.receive(*end, *q, &recvs);
            }
        }
        left.iter().all(|l| l.3 == 0) && pair.sent()
    });
    // What is left of the receives stays held.
    pair.check_end();
    remote.writes.fetch_add(pair.writes() as u64, Ordering::Relaxed);
    remote.reads.fetch_add(pair.reads, Ordering::Relaxed);
    remote.atomics.fetch_add(pair.atomics, Ordering::Relaxed);
    remote.waits.fetch_add(pair.waits, Ordering::Relaxed);
}

#[test]
fn both_ends_on_a_clean_wire() {
    let remote = Remote::default();
    run("both_ends_on_a_clean_wire", "berth_fp", 40, |width, rng| {
        let world = pair::World {
            width,
            stall: pick(rng, &[0.0, 0.1, 0.4]),
            read: rng.between(20, 300),
            jitter: rng.below(300),
            write: rng.between(1, 100),
            xlat: rng.between(1, 20),
            service: rng.between(10, 2_500),
            warm: pick(rng, &[1.0, 0.5, 0.0]),
            wire: rng.between(10, 1_000),
            max_list: rng.between(1, 64) as u32,
            ack_every: rng.between(1, 8) as u32,
            ..pair::World::default()
        };
        both_ends(rng, world, &remote);
    });
    remote.tell();
}

#[test]
fn both_ends_with_loss_duplicates_and_reordering() {
    let remote = Remote::default();
    run("both_ends_with_loss_duplicates_and_reordering", "berth_fp", 40, |width, rng| {
        let world = pair::World {
            width,
            stall: pick(rng, &[0.0, 0.2]),
            jitter: rng.below(300),
            service: rng.between(10, 2_500),
            warm: pick(rng, &[1.0, 0.5]),
            wire: rng.between(10, 1_000),
            loss: pick(rng, &[0.0, 0.01, 0.05]),
            twice: pick(rng, &[0.0, 0.05]),
            late: pick(rng, &[0, 100, 1_000]),
            max_list: rng.between(1, 64) as u32,
            ack_every: rng.between(1, 8) as u32,
            ..pair::World::default()
        };
        both_ends(rng, world, &remote);
    });
    remote.tell();
}

/// One QP is held up by `stall`; three others send 4 KiB messages meanwhile, and fill the wire.
fn others_fill_the_wire(width: u32, stall: impl Fn(&mut Pair)) {
    let went_on = others_fill_the_wire_beside(width, 100_000, stall, |_| ());
    assert_eq!(went_on, 0, "it was not held up all the time");
}

/// Three QPs send 4 KiB messages and fill the wire, beside one for which `start` has done something, and for which
/// `meanwhile` goes on to, in each cycle. Pages come after `service` cycles. How many receives of that one were filled
/// meanwhile.
fn others_fill_the_wire_beside(
    width: u32,
    service: u64,
    start: impl Fn(&mut Pair),
    mut meanwhile: impl FnMut(&mut Pair),
) -> usize {
    const LEN: u32 = 4096;
    const COUNT: usize = 40;
    let world = pair::World { width, service, ..pair::World::default() };
    let mut pair = Pair::new(world, 1);
    for q in 1..=4 {
        pair.connect([q, q + 8], &Settings { ahead: 4, log2_block: 12, ..Settings::default() });
    }
    let sends = |q: u32, count: usize| -> Vec<Element> {
        (0..count).map(|n| Element::plain(u64::from(q) << 24 | (n as u64) << 12, LEN)).collect()
    };
    for q in 2..=4 {
        let recvs: Vec<_> = (0..COUNT).map(|n| vec![(Pair::buffer(0, q, n, 1), LEN)]).collect();
        pair.receive(0, q, &recvs);
    }
    start(&mut pair);
    let before = pair.flows[0][&1].received.len();
    for q in 2..=4 {
        pair.send(0, q, &sends(q, COUNT), false);
    }
    pair.until(1_000_000, "the others' end", |pair| {
        meanwhile(pair);
        (2..=4).all(|q| pair.flows[0][&q].received.len() == COUNT)
    });
    let went_on = pair.flows[0][&1].received.len() - before;
    let mut at: Vec<u64> = (2..=4).flat_map(|q| pair.flows[0][&q].received.clone()).collect();
    at.sort_unstable();
    let (a, b) = (at.len() / 4, at.len() * 3 / 4);
    let cycles = (at[b] - at[a]) as f64 / (b - a) as f64;
    let wire = (f64::from(LEN + 62 + 4) / f64::from(width / 8)).ceil() + 24.0 * 8.0 / f64::from(width);
    println!("DATA_W {width}: {:.1} % of the wire beside that QP, which has got {went_on}", 100.0 * wire / cycles);
    assert!(wire / cycles >= 0.97, "{cycles:.1} cycles per message, wire {wire:.1}");
    // What it waits for comes, and it goes on.
    let recvs: Vec<_> = (0..8).map(|n| vec![(Pair::buffer(0, 1, 8 + n, 1), LEN)]).collect();
    pair.receive(0, 1, &recvs);
    pair.until(1_000_000, "the end", |pair| pair.sent());
    pair.check_end();
    went_on
}

#[test]
fn fairness_a_slow_connection_leaves_others_the_wire() {
    const LEN: u32 = 100;
    const COUNT: usize = 8;
    for width in Module::widths("berth_fp") {
        // Each of its messages is of another page, which is not there when it is to be sent, and its receiver posts one
        // receive at a time, of another page as well, when the last one has been filled.
        let receive = |pair: &mut Pair, n: usize| {
            pair.evict(1, false, Pair::buffer(0, 1, n, 1));
            pair.receive(0, 1, &[vec![(Pair::buffer(0, 1, n, 1), LEN)]]);
        };
        let start = |pair: &mut Pair| {
            let pages = (0..COUNT as u64).map(|n| 0x10_0000 + n * 4096);
            pages.clone().for_each(|va| pair.evict(0, true, va));
            pair.send(0, 1, &pages.map(|va| Element::plain(va, LEN)).collect::<Vec<_>>(), false);
            receive(pair, 0);
        };
        let mut posted = 1;
        let went_on = others_fill_the_wire_beside(width, 500, start, |pair| {
            if posted < COUNT && pair.flows[0][&1].received.len() == posted {
                receive(pair, posted);
                posted += 1;
            }
        });
        assert!(went_on > 0, "it stood still");
    }
}

#[test]
fn a_missing_page_holds_up_nobody_else() {
    for width in Module::widths("berth_fp") {
        others_fill_the_wire(width, |pair| {
            pair.receive(0, 1, &[vec![(Pair::buffer(0, 1, 0, 1), 4096)]]);
            pair.evict(0, true, 0x10_0000);
            pair.send(0, 1, &[Element::plain(0x10_0000, 4096)], false);
        });
    }
}

#[test]
fn a_missing_page_of_a_receive_and_a_missing_credit_hold_up_nobody_else() {
    for width in Module::widths("berth_fp") {
        others_fill_the_wire(width, |pair| {
            pair.evict(1, false, Pair::buffer(0, 1, 0, 1));
            pair.receive(0, 1, &[vec![(Pair::buffer(0, 1, 0, 1), 4096)]]);
            pair.send(0, 1, &[Element::plain(0x10_0000, 4096)], false);
        });
    }
}

#[test]
fn a_packet_that_must_go_again_holds_up_nobody_else() {
    for width in Module::widths("berth_fp") {
        others_fill_the_wire(width, |pair| {
            let recvs: Vec<_> = (0..8).map(|n| vec![(Pair::buffer(0, 1, n, 1), 4096)]).collect();
            pair.receive(0, 1, &recvs);
            pair.until(5_000, "credits", |pair| pair.flows[0][&1].arrived == 8);
            // The first of eight is lost, and its page is gone when it is to go again.
            pair.drop = Some((0, 9, 0));
            let sends: Vec<_> = (0..8).map(|n| Element::plain(0x10_0000 + n * 4096, 4096)).collect();
            pair.send(0, 1, &sends, false);
            pair.until(20_000, "the loss", |pair| pair.drop.is_none());
            pair.evict(0, true, 0x10_0000);
        });
    }
}

#[test]
fn a_thousand_qps_with_128_credits_and_16_blocks_of_some() {
    let Some(&width) = Module::widths("berth_fp_1024").first() else { return };
    let mut rng = Rng(number("BERTH_SEED").unwrap_or(1));
    let world = pair::World { unit: "berth_fp_1024", width, max_list: 64, ..pair::World::default() };
    let mut pair = Pair::new(world, rng.draw());
    for q in 0..1024 {
        let settings = Settings { log2_mtu: 10, ahead: 16, log2_block: 12, ..Settings::default() };
        pair.connect([q, 1023 - q], &settings);
    }
    for q in 0..1024 {
        for end in 0..2 {
            // Some have as many credits and as many blocks out as there may be.
            let many = q % 256 == 5;
            let count = if many { 128 } else { rng.between(2, 4) as usize };
            let recvs: Vec<_> = (0..count).map(|n| vec![(Pair::buffer(end, q, n, 1), 4096)]).collect();
            pair.receive(end, q, &recvs);
            let at = u64::from(q) << 20;
            if many {
                (0..32).for_each(|page| pair.evict(end, true, at + page * 4096));
                pair.send(end, q, &[Element::plain(at, 0x2_0000)], false);
            } else {
                let sends = [Element::inline(40), Element::plain(at, rng.between(1, 2048) as u32)];
                pair.send(end, q, &sends, rng.chance(0.5));
            }
        }
    }
    pair.until(6_000_000, "the end", |pair| pair.sent());
    pair.check_end();
    let (credits, blocks) = (pair.most_credits, pair.most_waiting);
    println!("1024 QPs, DATA_W {width}: {} cycles; at most {credits} credits and {blocks} blocks of one out", pair.now);
    assert!(credits >= 120 && blocks >= 16, "{credits} credits, {blocks} blocks");
}
